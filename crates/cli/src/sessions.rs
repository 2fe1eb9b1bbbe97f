//! `sessions list|open|show|cd|end` and `token create|list|revoke`: who asks, and in which conversation.

use crate::{
    Doors, Usage,
    args::{SessionsCommand, TokenCommand},
    grants,
    house::reach,
    lists::{brief, cut},
    prompt,
};
use countersign_client::Moved;
use countersign_model::{CredentialScope, Session, Shown};
use countersign_store::clock;
use serde_json::{Value, json};
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn sessions(doors: &Doors<'_>, command: Option<SessionsCommand>) -> anyhow::Result<ExitCode> {
    let client = reach(doors)?;
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
            // Who started us is the agent: from now on what it starts is an agent's.
            let agent_pid = agent.then(|| rustix::process::getppid().map(|p| p.as_raw_nonzero().get()));
            let session = client.open_session(&json!({
                "directory": directory, "title": title, "agent_pid": agent_pid.flatten(),
            }))?;
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
            let directory = directory.to_str().ok_or_else(|| Usage("the directory's name is not UTF-8".to_owned()))?;
            match client.set_directory(&session, directory)? {
                Moved::There(session) => {
                    let there = session.directory.as_ref().map_or("", |d| d.as_str());
                    writeln!(out, "{}", Shown::new(there))?;
                }
                Moved::Asked(task) => {
                    if let Some(approval) = task.approval_id {
                        crate::say(&prompt::waiting_line(approval).replace(" once", " session"));
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
    let title = session.title.as_ref().map_or(String::new(), |t| format!("  \"{}\"", Shown::bounded(t.as_str(), 60)));
    let agent = session.agent.map_or(String::new(), |a| format!("  agent {}", a.pid));
    format!("{}  {age:>6}  {what:<8}  {}{agent}{title}", session.id, cut(place, 60))
}

pub(crate) fn token(doors: &Doors<'_>, command: TokenCommand) -> anyhow::Result<ExitCode> {
    let client = reach(doors)?;
    let mut out = io::stdout().lock();
    let text = |v: &Value, name: &str| Shown::bounded(v[name].as_str().unwrap_or("-"), 60).to_string();
    match command {
        TokenCommand::Create { person, agent, scope, name, principal, audience, expires, json } => {
            let kind = match (person, agent) {
                (true, false) => "person",
                (false, true) => "agent",
                _ => return Err(Usage("say for whom: --person or --agent".to_owned()).into()),
            };
            let scope = scope.iter().map(|s| s.parse()).collect::<Result<Vec<CredentialScope>, _>>().map_err(Usage)?;
            let mut body = json!({
                "name": name, "kind": kind, "scopes": scope, "principal": principal,
                "expires_at": expires.as_deref().map(grants::ends).transpose()?,
            });
            if let Some(audience) = audience {
                body["audience"] = json!(audience);
            }
            let token = client.create_token(&body)?;
            match json {
                true => writeln!(out, "{token}")?,
                false => {
                    writeln!(out, "{}", token["token"].as_str().unwrap_or_default())?;
                    crate::say("csn: this is shown once; Authorization: Bearer <token>");
                }
            }
        }
        TokenCommand::List { json } => {
            for token in client.tokens()? {
                if json {
                    writeln!(out, "{token}")?;
                    continue;
                }
                let scopes: Vec<&str> =
                    token["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                let state = match (token["revoked_at"].as_str(), token["expires_at"].as_str()) {
                    (Some(at), _) => format!("revoked at {at}"),
                    (None, Some(at)) => format!("until {at}"),
                    (None, None) => "good".to_owned(),
                };
                writeln!(
                    out,
                    "{}  {:<12} {:<6} {:<26} {state}, last used {}",
                    text(&token, "id"),
                    text(&token, "name"),
                    text(&token, "kind"),
                    scopes.join(","),
                    token["last_used_at"].as_str().unwrap_or("never"),
                )?;
            }
        }
        TokenCommand::Revoke { token } => {
            let token = client.revoke_token(&token)?;
            writeln!(out, "{}  revoked: {}", text(&token, "id"), text(&token, "name"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
