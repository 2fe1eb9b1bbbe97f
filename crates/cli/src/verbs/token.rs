//! `token create|list|revoke`: credentials for those who do not come through the socket.

use super::grants;
use crate::{Usage, args::TokenCommand, house::reach};
use countersign_model::{CredentialScope, Shown};
use serde_json::{Value, json};
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn token(command: TokenCommand) -> anyhow::Result<ExitCode> {
    let client = reach()?;
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
