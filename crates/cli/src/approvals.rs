//! `approvals list|show|answer`.

use crate::{
    Doors, Usage,
    args::ApprovalsCommand,
    house::reach,
    lists::{brief, cut},
    prompt,
};
use countersign_model::{Approval, ApprovalState, Choice};
use countersign_store::clock;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn approvals(doors: &Doors<'_>, command: Option<ApprovalsCommand>) -> anyhow::Result<ExitCode> {
    let client = reach(doors)?;
    let mut out = io::stdout().lock();
    match command.unwrap_or(ApprovalsCommand::List { all: false, json: false }) {
        ApprovalsCommand::List { all, json } => {
            let approvals = client.approvals(all)?;
            for approval in &approvals {
                match json {
                    true => writeln!(out, "{}", serde_json::to_string(approval)?)?,
                    false => line(&mut out, approval)?,
                }
            }
            if approvals.is_empty() && !json {
                crate::say("csn: nothing waits for an answer");
            }
        }
        ApprovalsCommand::Show { approval, json } => {
            let approval = client.approval(&approval)?;
            match json {
                true => writeln!(out, "{}", serde_json::to_string(&approval)?)?,
                false => {
                    write!(out, "{}", prompt::card(&approval, usize::MAX))?;
                    writeln!(out, "{}", state(&approval))?;
                }
            }
        }
        ApprovalsCommand::Answer { approval, choice, words } => {
            let choice: Choice = choice.parse().map_err(Usage)?;
            let approval = client.approval(&approval)?.id;
            let answered = client.answer(approval, choice, words.as_deref())?;
            writeln!(out, "{}: {}", answered.task_id, prompt::resolution(choice))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn line(out: &mut impl io::Write, approval: &Approval) -> io::Result<()> {
    let age = brief(clock::now().since(approval.asked_at));
    let what = cut(approval.display.as_str(), 60);
    writeln!(out, "{}  {age:>6}  {}  {what}  in {}", approval.id, state(approval), cut(approval.cwd.as_str(), 60))
}

fn state(approval: &Approval) -> String {
    match &approval.state {
        ApprovalState::Waiting => "waiting".to_owned(),
        ApprovalState::Answered { choice, at, .. } => format!("answered {choice} at {at}"),
        ApprovalState::Withdrawn => "withdrawn".to_owned(),
    }
}
