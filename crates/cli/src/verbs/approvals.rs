//! `approvals list|show|answer|watch`.

use crate::{
    UsageError,
    args::ApprovalsCommand,
    render::{
        card::{self, CardLimits},
        text::{brief, cut},
    },
    target_home::reach,
    terminal::prompt::TerminalPrompt,
};
use countersign_client::{Client, ClientError, Event};
use countersign_model::{Approval, ApprovalId, ApprovalState, AskerPresence, CardView, Choice, DisplaySafe};
use countersign_store::clock;
use std::{
    collections::VecDeque,
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    sync::mpsc,
    time::Duration,
};

pub(crate) fn approvals(command: Option<ApprovalsCommand>) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let mut out = io::stdout().lock();
    match command.unwrap_or(ApprovalsCommand::List { all: false, json: false }) {
        ApprovalsCommand::List { all, json } => {
            let (approvals, without) = client.approvals_with_hidden_count(all)?;
            for approval in &approvals {
                match json {
                    true => writeln!(out, "{}", serde_json::to_string(approval)?)?,
                    false => line(&mut out, approval)?,
                }
            }
            if approvals.is_empty() && !json {
                crate::say("csn: nothing waits for an answer");
            }
            if without > 0 {
                crate::say(&format!("csn: {without} more wait until some of these are answered"));
            }
        }
        ApprovalsCommand::Show { approval, json } => {
            let approval = client.approval(&approval)?;
            match json {
                true => writeln!(out, "{}", serde_json::to_string(&approval)?)?,
                false => {
                    let view = CardView::from_approval(&approval);
                    write!(out, "{}", card::card(&view, CardLimits::WHOLE))?;
                    match approval.state {
                        ApprovalState::Waiting => {
                            write!(out, "{}", card::choices(&view))?;
                            writeln!(out, "csn approvals answer {} {}", approval.id, names(&approval))?;
                        }
                        _ => writeln!(out, "{}", state(&approval))?,
                    }
                }
            }
        }
        ApprovalsCommand::Answer { approval, choice, words, any_arguments } => {
            let choice: Choice = choice.parse().map_err(UsageError)?;
            let approval = client.approval(&approval)?.id;
            let answered = client.answer_with(approval, choice, words.as_deref(), any_arguments)?;
            writeln!(out, "{}: {}", answered.task_id, card::resolution(&answered))?;
        }
        ApprovalsCommand::Watch { json } => {
            drop(out);
            return watch(client, json);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn names(approval: &Approval) -> String {
    approval.options.iter().map(|c| c.as_str()).collect::<Vec<_>>().join("|")
}

/// Shows every question as it comes and asks it here, one after another; without a terminal, or as JSON, only tells.
fn watch(client: Client, json: bool) -> anyhow::Result<ExitCode> {
    let asks = !json && io::stdin().is_terminal() && io::stdout().is_terminal();
    let (send, events) = mpsc::channel();
    let mut stream = client.approval_events();
    let follower = std::thread::spawn(move || {
        loop {
            let event = stream.next_event();
            // A house that goes down and comes up again is waited for: each try waits a little longer.
            if send.send(event).is_err() {
                return;
            }
        }
    });
    let (mut waiting, mut asking): (VecDeque<ApprovalId>, Option<(ApprovalId, TerminalPrompt)>) =
        (VecDeque::new(), None);
    let mut told_down = false;
    if asks {
        crate::say("csn: questions come up here; Ctrl-C ends");
    }
    loop {
        // A question that has been answered here makes room for the next.
        let event = match asking.is_some() || !waiting.is_empty() {
            true => events.recv_timeout(Duration::from_millis(100)).ok(),
            false => Some(events.recv()?),
        };
        match event {
            Some(Ok(Some(Event { value: approval, .. }))) => {
                told_down = false;
                if json {
                    writeln!(io::stdout(), "{}", serde_json::to_string(&approval)?)?;
                } else if !asks {
                    line(&mut io::stdout().lock(), &approval)?;
                }
                let over = approval.state != ApprovalState::Waiting;
                if over {
                    waiting.retain(|id| *id != approval.id);
                    if asking.as_ref().is_some_and(|(id, _)| *id == approval.id) {
                        let withdrawn = approval.state == ApprovalState::Withdrawn;
                        asking.take().into_iter().for_each(|(_, a)| a.end(withdrawn));
                    }
                } else if !waiting.contains(&approval.id) && asking.as_ref().is_none_or(|(id, _)| *id != approval.id) {
                    waiting.push_back(approval.id);
                }
            }
            Some(Err(ClientError::Broken(_) | ClientError::NoDaemon { .. })) => {
                let told = std::mem::replace(&mut told_down, true);
                if !told {
                    crate::say("csn: the house is down; waiting for it");
                }
                let _ = (!told).then(reach);
            }
            Some(Err(e)) => return Err(e.into()),
            // This stream does not end by itself.
            Some(Ok(None)) => return Ok(ExitCode::SUCCESS),
            None => {}
        }
        if follower.is_finished() {
            return Ok(ExitCode::SUCCESS);
        }
        if asking.as_ref().is_some_and(|(_, a)| a.over()) {
            asking.take().into_iter().for_each(|(_, a)| a.end(false));
        }
        if asks
            && asking.is_none()
            && let Some(next) = waiting.pop_front()
        {
            asking = TerminalPrompt::begin(&client, next).map(|a| (next, a));
        }
        if !asks {
            waiting.clear();
        }
    }
}

fn line(out: &mut impl io::Write, approval: &Approval) -> io::Result<()> {
    let age = brief(clock::now().since(approval.asked_at));
    let what = cut(approval.display.as_str(), 60);
    writeln!(out, "{}  {age:>6}  {}  {what}  in {}", approval.id, state(approval), cut(approval.cwd.as_str(), 60))
}

fn state(approval: &Approval) -> String {
    match &approval.state {
        ApprovalState::Waiting if approval.asker == Some(AskerPresence::Gone) => "waiting (asker gone)".to_owned(),
        ApprovalState::Waiting => "waiting".to_owned(),
        ApprovalState::Answered { choice, at, by, .. } => {
            let by = by.to_string();
            format!("answered {choice} by {} at {at}: {}", DisplaySafe::bounded(&by, 100), card::resolution(approval))
        }
        ApprovalState::Withdrawn => "withdrawn".to_owned(),
    }
}
