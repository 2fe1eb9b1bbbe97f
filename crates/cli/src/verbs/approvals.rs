//! `approvals list|show|answer|watch`: the requests that wait for a person.

use crate::{
    UsageError,
    args::ApprovalsCommand,
    render::{
        card::{self, CardLimits},
        text::{brief, count, cut},
    },
    target_home::reach,
    terminal::prompt::TerminalPrompt,
};
use countersign_client::{Client, Event};
use countersign_model::{Approval, ApprovalId, ApprovalState, AskerPresence, CardView, Choice, DisplaySafe};
use countersign_store::clock;
use std::{
    collections::VecDeque,
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    sync::mpsc,
    time::Duration,
};

/// How often an open prompt is checked for an answer.
const PROMPT_POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn approvals(command: Option<ApprovalsCommand>) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let mut out = io::stdout().lock();
    match command.unwrap_or(ApprovalsCommand::List { all: false, json: false }) {
        ApprovalsCommand::List { all, json } => {
            let (approvals, without) = client.approvals_with_hidden_count(all)?;
            for approval in &approvals {
                if json {
                    writeln!(out, "{}", serde_json::to_string(approval)?)?;
                } else {
                    writeln!(out, "{}", approval_row(approval))?;
                }
            }
            if approvals.is_empty() && !json {
                crate::say("csn: no approval is pending");
            }
            if without > 0 {
                let more = count(without as u64, "more request");
                crate::say(&format!("csn: {more} will be shown once some of these are answered"));
            }
        }
        ApprovalsCommand::Show { approval, json } => {
            let approval = client.approval(&approval)?;
            if json {
                writeln!(out, "{}", serde_json::to_string(&approval)?)?;
                return Ok(ExitCode::SUCCESS);
            }
            let view = CardView::from_approval(&approval);
            write!(out, "{}", card::card(&view, CardLimits::UNLIMITED))?;
            if approval.state == ApprovalState::Waiting {
                write!(out, "{}", card::choices(&view))?;
                writeln!(out, "to answer: csn approvals answer {} {}", approval.id, choice_names(&approval))?;
            } else {
                writeln!(out, "{}", state_text(&approval))?;
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

fn choice_names(approval: &Approval) -> String {
    approval.options.iter().map(|c| c.as_str()).collect::<Vec<_>>().join("|")
}

/// Shows approvals as they arrive. At a terminal it asks them one after another; otherwise, or as JSON, it only lists them.
fn watch(client: Client, json: bool) -> anyhow::Result<ExitCode> {
    let interactive = !json && io::stdin().is_terminal() && io::stdout().is_terminal();
    let (send, events) = mpsc::channel();
    let mut stream = client.approval_events();
    let follower = std::thread::spawn(move || {
        loop {
            let event = stream.next_event();
            // The stream reconnects by itself when the daemon restarts; each attempt waits a little longer.
            if send.send(event).is_err() {
                return;
            }
        }
    });
    let mut waiting: VecDeque<ApprovalId> = VecDeque::new();
    let mut prompt: Option<(ApprovalId, TerminalPrompt)> = None;
    let mut reported_stop = false;
    if interactive {
        crate::say("csn: approvals are asked here as they arrive; press Ctrl-C to stop watching");
    }
    loop {
        // While a prompt is open, look regularly whether it was answered and the next one can be asked.
        let event = if prompt.is_some() || !waiting.is_empty() {
            events.recv_timeout(PROMPT_POLL_INTERVAL).ok()
        } else {
            Some(events.recv()?)
        };
        match event {
            Some(Ok(Some(Event { value: approval, .. }))) => {
                reported_stop = false;
                if json {
                    writeln!(io::stdout(), "{}", serde_json::to_string(&approval)?)?;
                } else if !interactive {
                    writeln!(io::stdout(), "{}", approval_row(&approval))?;
                }
                let asked = prompt.as_ref().is_some_and(|(id, _)| *id == approval.id);
                if approval.state != ApprovalState::Waiting {
                    waiting.retain(|id| *id != approval.id);
                    if asked && let Some((_, prompt)) = prompt.take() {
                        prompt.close(approval.state == ApprovalState::Withdrawn);
                    }
                } else if !asked && !waiting.contains(&approval.id) {
                    waiting.push_back(approval.id);
                }
            }
            Some(Err(e)) if e.is_daemon_gone() && reported_stop => {}
            Some(Err(e)) if e.is_daemon_gone() => {
                reported_stop = true;
                crate::say("csn: the daemon has stopped; waiting until it runs again");
                let _ = reach();
            }
            Some(Err(e)) => return Err(e.into()),
            // The daemon never ends this stream; it ended with the client.
            Some(Ok(None)) => return Ok(ExitCode::SUCCESS),
            None => {}
        }
        if follower.is_finished() {
            return Ok(ExitCode::SUCCESS);
        }
        if prompt.as_ref().is_some_and(|(_, prompt)| prompt.is_finished())
            && let Some((_, prompt)) = prompt.take()
        {
            prompt.close(false);
        }
        if interactive
            && prompt.is_none()
            && let Some(next) = waiting.pop_front()
        {
            prompt = TerminalPrompt::begin(&client, next).map(|prompt| (next, prompt));
        }
        if !interactive {
            waiting.clear();
        }
    }
}

fn approval_row(approval: &Approval) -> String {
    let age = brief(clock::now().since(approval.asked_at));
    let command = cut(approval.display.as_str(), 60);
    let directory = cut(approval.cwd.as_str(), 60);
    format!("{}  {age:>6}  {}  {command}  in {directory}", approval.id, state_text(approval))
}

fn state_text(approval: &Approval) -> String {
    match &approval.state {
        ApprovalState::Waiting if approval.asker == Some(AskerPresence::Gone) => "waiting (requester gone)".to_owned(),
        ApprovalState::Waiting => "waiting".to_owned(),
        ApprovalState::Answered { choice, at, by, .. } => {
            let by = by.to_string();
            format!("answered {choice} by {} at {at}: {}", DisplaySafe::bounded(&by, 100), card::resolution(approval))
        }
        ApprovalState::Withdrawn => "withdrawn".to_owned(),
    }
}
