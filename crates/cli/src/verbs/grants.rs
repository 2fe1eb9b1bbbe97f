//! `grants list|add|narrow|revoke`: what has been approved for good.

use crate::{
    UsageError,
    args::{GrantArgs, GrantsCommand},
    render::text::{brief, cut},
    target_home::reach,
    verbs::run,
};
use countersign_client::Client;
use countersign_model::{
    Audience, Confinement, DisplaySafe, Grant, GrantSandbox, IdError, Risk, Timestamp, Tool,
    api::{GrantBody, GrantView},
};
use countersign_policy::Label;
use countersign_store::clock;
use serde_json::json;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn grants(command: Option<GrantsCommand>) -> anyhow::Result<ExitCode> {
    match command.unwrap_or(GrantsCommand::List { json: false }) {
        GrantsCommand::List { json } => list(json),
        GrantsCommand::Add(args) => add(&args),
        GrantsCommand::Revoke { grant } => revoke(&grant.join(" ")),
        GrantsCommand::Narrow { grant, all } => narrow(&grant.join(" "), all),
    }
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let all = reach()?.grants()?;
    let mut out = io::stdout().lock();
    for GrantView { grant, label } in &all {
        if json {
            // What is stored, and nothing else.
            writeln!(out, "{}", json!(grant))?;
            continue;
        }
        writeln!(out, "{}  {}{}", id(grant), cut(label.as_str(), 100), notes(grant))?;
    }
    if all.is_empty() && !json {
        crate::say("csn: nothing is granted: `csn grants add --verb 'cargo test' --in .`");
    }
    Ok(ExitCode::SUCCESS)
}

/// How far it goes beyond its label.
fn notes(grant: &Grant) -> String {
    let mut notes = Vec::new();
    if let Some(risks) = &grant.risks {
        notes.push(risks.iter().map(|r| r.as_str()).collect::<Vec<_>>().join("+"));
    }
    if let Some(operands) = &grant.operands {
        notes.push(format!("only `{}`", DisplaySafe::bounded(operands.shown.as_str(), 60)));
    }
    if let Some(script) = grant.script {
        notes.push(format!("script {}…", &script.to_string()[..12]));
    }
    if grant.assignments.is_some() {
        notes.push("with its variables".to_owned());
    }
    match (grant.sandbox, grant.confinement) {
        (GrantSandbox::Open, Confinement::None | Confinement::Shield) => notes.push("runs open".to_owned()),
        (_, Confinement::None | Confinement::Shield) => {}
        (_, held) => notes.push(held.as_str().to_owned()),
    }
    if let Some(session) = grant.session {
        notes.push(format!("in {session}"));
    }
    if let Some(left) = grant.uses_left {
        notes.push(format!("uses left: {left}"));
    }
    if let Some(end) = grant.expires_at {
        notes.push(format!("for {}", brief(end.since(clock::now()))));
    }
    if grant.audience != Default::default() || grant.tool != Default::default() {
        notes.push(format!("{} {}", json!(grant.audience), json!(grant.tool)).replace('"', ""));
    }
    let notes: Vec<String> = notes.into_iter().filter(|n| !n.is_empty()).collect();
    if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) }
}

fn add(args: &GrantArgs) -> anyhow::Result<ExitCode> {
    let label = match (&args.label[..], &args.verb) {
        ([], None) => {
            return Err(UsageError("say what: csn grants add --verb 'cargo test' --anywhere".to_owned()).into());
        }
        ([], Some(verb)) => {
            let directory = match (&args.within, args.anywhere) {
                (Some(dir), false) => Some(absolute(dir)?),
                (None, true) => None,
                _ => return Err(UsageError("say where: --in DIR or --anywhere".to_owned()).into()),
            };
            Label { verb: verb.clone(), directory }
        }
        (words, None) if args.within.is_none() && !args.anywhere => {
            // Of several words the shell has taken the spaces, and with them what they meant.
            if words.len() > 1 && words.last().is_some_and(|w| w != "anywhere" && !w.starts_with('/')) {
                return Err(UsageError(
                    "put the label into quotes: csn grants add 'cargo test in /srv/a b'".to_owned(),
                )
                .into());
            }
            words.join(" ").parse::<Label>().map_err(|e| UsageError(format!("{e} (or --verb with --in DIR)")))?
        }
        _ => return Err(UsageError("give a label or --verb with --in or --anywhere, not both".to_owned()).into()),
    };
    let risks = match &args.accept[..] {
        [] => None,
        names => Some(
            names
                .iter()
                .map(|name| {
                    Risk::from_name(name).ok_or_else(|| {
                        let all = Risk::ALL.map(Risk::as_str).join(", ");
                        UsageError(format!("--accept `{}` is no risk: {all}", DisplaySafe::bounded(name, 40)))
                    })
                })
                .collect::<Result<Vec<_>, _>>()?,
        ),
    };
    let session = args.session.as_deref().map(str::parse).transpose();
    let body = GrantBody {
        verb: label.verb,
        directory: label.directory,
        audience: args.audience.as_deref().map(audience).transpose()?.unwrap_or_default(),
        tool: args.tool.as_deref().map(tool).transpose()?.unwrap_or_default(),
        risks,
        session: session.map_err(|e: IdError| UsageError(format!("--session {e}")))?,
        expires_at: args.expires.as_deref().map(ends).transpose()?,
        uses: args.uses,
        confinement: args.confinement.map(Into::into),
    };
    let grant = reach()?.grant(&body)?;
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", json!(grant))?,
        false => writeln!(out, "{}", changed("Saved", &grant))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A grant, and what was just done with it.
fn changed(how: &str, grant: &GrantView) -> String {
    format!("{}  {how}: {}", id(&grant.grant), DisplaySafe::bounded(grant.label.as_str(), 300))
}

/// The id of a grant; those of the daemon all have one.
fn id(grant: &Grant) -> String {
    grant.id.map(|id| id.to_string()).unwrap_or_default()
}

pub(crate) fn audience(name: &str) -> Result<Audience, UsageError> {
    let known = serde_json::from_value(name.into());
    known.map_err(|_| UsageError(format!("--audience {}: personal, team or public", DisplaySafe::bounded(name, 40))))
}

fn tool(name: &str) -> Result<Tool, UsageError> {
    Tool::ALL.into_iter().find(|tool| tool.as_str() == name).ok_or_else(|| {
        let all = Tool::ALL.map(Tool::as_str).join(", ");
        UsageError(format!("--tool {} is no tool: {all}", DisplaySafe::bounded(name, 40)))
    })
}

/// So long from now.
pub(crate) fn ends(text: &str) -> Result<Timestamp, UsageError> {
    let days = text.strip_suffix('d').and_then(|d| d.parse::<u64>().ok()).filter(|d| (1..=366).contains(d));
    let ms = match days {
        Some(days) => days * 24 * 3_600_000,
        None => {
            run::time(text).map_err(|_| UsageError(format!("--expires {text}: use 90m, 8h or 30d, at most 366d")))?
        }
    };
    Ok(Timestamp::from_micros(clock::now().micros() + i64::try_from(ms).unwrap_or(0) * 1000))
}

fn absolute(dir: &std::path::Path) -> anyhow::Result<String> {
    let path = std::path::absolute(dir)?;
    path.into_os_string()
        .into_string()
        .map_err(|_| UsageError("--in: the directory's name is not UTF-8".to_owned()).into())
}

/// The ids that are meant: by id, the beginning of one, or by label.
fn meant(client: &Client, what: &str) -> anyhow::Result<Vec<String>> {
    let ids: Vec<String> = match what.parse::<Label>() {
        Ok(label) => {
            let label = label.to_string();
            let all = client.grants()?;
            all.iter().filter(|g| g.label.as_str() == label).map(|g| id(&g.grant)).collect()
        }
        Err(_) => vec![what.to_owned()],
    };
    if ids.is_empty() {
        crate::say(&format!("csn: nothing is granted as `{}`: csn grants list", DisplaySafe::bounded(what, 200)));
    }
    Ok(ids)
}

/// Has grants that run open run in what their risks need.
fn narrow(what: &str, all: bool) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let ids = match (what, all) {
        ("", true) => {
            let all = client.grants()?;
            all.iter().filter(|g| g.grant.sandbox == GrantSandbox::Open).map(|g| id(&g.grant)).collect()
        }
        (what, false) if !what.is_empty() => meant(&client, what)?,
        _ => return Err(UsageError("say which: csn grants narrow GRANT, or --all".to_owned()).into()),
    };
    for id in &ids {
        let grant = client.narrow_grant(id)?;
        writeln!(io::stdout(), "{}", changed("Narrowed", &grant))?;
    }
    if ids.is_empty() && all {
        crate::say("csn: no grant runs open");
    }
    Ok(ExitCode::from(u8::from(ids.is_empty() && !all)))
}

fn revoke(what: &str) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let ids = meant(&client, what)?;
    if ids.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    for id in ids {
        let grant = client.revoke_grant(&id)?;
        writeln!(io::stdout(), "{}", changed("Revoked", &grant))?;
    }
    Ok(ExitCode::SUCCESS)
}
