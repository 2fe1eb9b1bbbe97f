//! `sessions list|open|show|cd|end`: the conversations that requests belong to.

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
                if json {
                    writeln!(out, "{}", json!(session))?;
                } else {
                    writeln!(out, "{}", session_row(session))?;
                }
            }
            if sessions.is_empty() && !json {
                crate::say("csn: no session is open; to open one: csn sessions open");
            }
        }
        SessionsCommand::Open { directory, title, agent, json } => {
            let directory = directory.map(std::path::absolute).transpose()?;
            let directory = directory.map(|d| d.into_os_string().into_string()).transpose();
            let directory = directory
                .map_err(|_| UsageError("the directory's name is not UTF-8; use another directory".to_owned()))?;
            // The parent process is the agent: from now on the processes that it starts count as the agent's.
            let agent_pid = agent.then(|| rustix::process::getppid().map(|p| p.as_raw_nonzero().get()));
            let agent_pid = agent_pid.flatten().and_then(|pid| u32::try_from(pid).ok());
            let session = client.open_session(&OpenSessionBody { directory, title, agent_pid })?;
            if json {
                writeln!(out, "{}", json!(session))?;
            } else {
                writeln!(out, "{}", session.id)?;
            }
        }
        SessionsCommand::Show { session } => {
            writeln!(out, "{}", serde_json::to_string_pretty(&client.session(&session)?)?)?
        }
        SessionsCommand::Cd { session, directory } => {
            let directory = std::path::absolute(directory)?;
            let directory = directory
                .to_str()
                .ok_or_else(|| UsageError("the directory's name is not UTF-8; use another directory".to_owned()))?;
            match client.set_directory(&session, directory)? {
                SessionMove::There(session) => {
                    let directory = session.directory.as_ref().map_or("", |d| d.as_str());
                    writeln!(out, "{}", DisplaySafe::new(directory))?;
                }
                SessionMove::Asked(task) => {
                    if let Some(approval) = task.approval_id() {
                        crate::say(&waiting_line(approval));
                    }
                    return Ok(ExitCode::from(crate::exit::PENDING));
                }
            }
        }
        SessionsCommand::End { session } => {
            let stopped = client.end_session(&session)?;
            let tasks = match stopped.len() {
                0 => "no task was stopped".to_owned(),
                1 => "1 task was stopped".to_owned(),
                n => format!("{n} tasks were stopped"),
            };
            crate::say(&format!("csn: the session has ended; {tasks}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn session_row(session: &Session) -> String {
    let age = brief(clock::now().since(session.opened_at));
    let directory = session.directory.as_ref().or(session.folder.as_ref()).map_or("", |d| d.as_str());
    let state = match (&session.implicit, &session.title, session.ended_at) {
        (_, _, Some(_)) => "ended",
        (Some(_), ..) => "implicit",
        (None, ..) => "open",
    };
    let title =
        session.title.as_ref().map_or(String::new(), |t| format!("  \"{}\"", DisplaySafe::bounded(t.as_str(), 60)));
    let agent = session.agent.map_or(String::new(), |a| format!("  agent {}", a.pid));
    format!("{}  {age:>6}  {state:<8}  {}{agent}{title}", session.id, cut(directory, 60))
}
