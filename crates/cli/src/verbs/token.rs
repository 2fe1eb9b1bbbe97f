//! `token create|list|revoke`: credentials for clients that do not use the socket.

use super::grants;
use crate::{UsageError, args::TokenCommand, target_home::reach};
use countersign_model::{
    CredentialKind, CredentialScope, DisplaySafe,
    api::{TokenBody, TokenView},
};
use serde_json::json;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn token(command: TokenCommand) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let mut out = io::stdout().lock();
    match command {
        TokenCommand::Create { person, agent, scope, name, principal, audience, expires, json } => {
            let kind = match (person, agent) {
                (true, false) => CredentialKind::Person,
                (false, true) => CredentialKind::Agent,
                _ => return Err(UsageError("give --person or --agent: who will use the token".to_owned()).into()),
            };
            let scopes =
                scope.iter().map(|s| s.parse()).collect::<Result<Vec<CredentialScope>, _>>().map_err(UsageError)?;
            let audience = audience.as_deref().map(grants::parse_audience).transpose()?.unwrap_or_default();
            let expires_at = expires.as_deref().map(grants::parse_expiry).transpose()?;
            let token = client.create_token(&TokenBody { name, kind, scopes, audience, principal, expires_at })?;
            if json {
                writeln!(out, "{}", json!(token))?;
            } else {
                writeln!(out, "{}", token.token)?;
                crate::say("csn: store it now, it is not shown again; send it as: Authorization: Bearer TOKEN");
            }
        }
        TokenCommand::List { json } => {
            for token in client.tokens()? {
                if json {
                    writeln!(out, "{}", json!(token))?;
                    continue;
                }
                let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
                let state = match (token.revoked_at, token.expires_at) {
                    (Some(at), _) => format!("revoked at {at}"),
                    (None, Some(at)) => format!("valid until {at}"),
                    (None, None) => "valid".to_owned(),
                };
                writeln!(
                    out,
                    "{}  {:<12} {:<6} {:<26} {state}, last used {}",
                    token.id,
                    display_name(&token),
                    if token.kind == CredentialKind::Person { "person" } else { "agent" },
                    scopes.join(","),
                    token.last_used_at.map_or_else(|| "never".to_owned(), |at| at.to_string()),
                )?;
            }
        }
        TokenCommand::Revoke { token } => {
            let token = client.revoke_token(&token)?;
            writeln!(out, "{}  revoked: {}", token.id, display_name(&token))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of a token, without escapes that a terminal would obey.
fn display_name(token: &TokenView) -> String {
    DisplaySafe::bounded(token.name.as_str(), 60).to_string()
}
