//! `sessions list|open|show|cd|end`: who asks, and in which conversation.

use crate::{
    UsageError,
    args::SessionsCommand,
    render::{
        card::waiting_line,
        text::{brief, cut},
    },
    target_home::reach,
};
use countersign_model::{
    DisplaySafe, Session,
    api::{OpenSessionBody, SessionMove},
};
use countersign_store::clock;
use serde_json::json;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn sessions(command: Option<SessionsCommand>) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let mut out = io::stdout().lock();
    match command.unwrap_or(SessionsCommand::List { all: false, json: false }) {
        SessionsCommand::List { all, json } => {
            let sessions = client.sessions(all)?;
            for session in &sessions {
                match json {
                    true => writeln!(out, "{}", json!(session))?,
                    false => writeln!(out, "{}", line(session))?,
                }
            }
            if sessions.is_empty() && !json {
                crate::say("csn: there are no sessions");
            }
        }
        SessionsCommand::Open { directory, title, agent, json } => {
            let directory = directory.map(std::path::absolute).transpose()?;
            let directory = directory.map(|d| d.into_os_string().into_string()).transpose();
            let directory = directory.map_err(|_| UsageError("the directory's name is not UTF-8".to_owned()))?;
            // Who started us is the agent: from now on what it starts is an agent's.
            let agent_pid = agent.then(|| rustix::process::getppid().map(|p| p.as_raw_nonzero().get()));
            let agent_pid = agent_pid.flatten().and_then(|pid| u32::try_from(pid).ok());
            let session = client.open_session(&OpenSessionBody { directory, title, agent_pid })?;
            match json {
                true => writeln!(out, "{}", json!(session))?,
                false => writeln!(out, "{}", session.id)?,
            }
        }
        SessionsCommand::Show { session } => {
            writeln!(out, "{}", serde_json::to_string_pretty(&client.session(&session)?)?)?
        }
        SessionsCommand::Cd { session, directory } => {
            let directory = std::path::absolute(directory)?;
            let directory =
                directory.to_str().ok_or_else(|| UsageError("the directory's name is not UTF-8".to_owned()))?;
            match client.set_directory(&session, directory)? {
                SessionMove::There(session) => {
                    let there = session.directory.as_ref().map_or("", |d| d.as_str());
                    writeln!(out, "{}", DisplaySafe::new(there))?;
                }
                SessionMove::Asked(task) => {
                    if let Some(approval) = task.approval_id() {
                        crate::say(&waiting_line(approval).replace(" once", " session"));
                    }
                    return Ok(ExitCode::from(crate::exit::PENDING));
                }
            }
        }
        SessionsCommand::End { session } => {
            let stopped = client.end_session(&session)?;
            crate::say(&format!("csn: ended; tasks stopped with it: {}", stopped.len()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn line(session: &Session) -> String {
    let age = brief(clock::now().since(session.opened_at));
    let place = session.directory.as_ref().or(session.folder.as_ref()).map_or("", |d| d.as_str());
    let what = match (&session.implicit, &session.title, session.ended_at) {
        (_, _, Some(_)) => "ended",
        (Some(_), ..) => "implicit",
        (None, ..) => "open",
    };
    let title =
        session.title.as_ref().map_or(String::new(), |t| format!("  \"{}\"", DisplaySafe::bounded(t.as_str(), 60)));
    let agent = session.agent.map_or(String::new(), |a| format!("  agent {}", a.pid));
    format!("{}  {age:>6}  {what:<8}  {}{agent}{title}", session.id, cut(place, 60))
}
