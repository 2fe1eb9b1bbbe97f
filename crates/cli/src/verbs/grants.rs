//! `grants list|add|narrow|revoke`: saved approvals.

use crate::{
    UsageError,
    args::{GrantArgs, GrantsCommand},
    render::text::{brief, count, cut},
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
            // Exactly what is stored, without the label.
            writeln!(out, "{}", json!(grant))?;
            continue;
        }
        writeln!(out, "{}  {}{}", grant_id(grant), cut(label.as_str(), 100), limits_note(grant))?;
    }
    if all.is_empty() && !json {
        crate::say("csn: there are no grants; to add one: csn grants add --verb 'cargo test' --in .");
    }
    Ok(ExitCode::SUCCESS)
}

/// The limits of a grant that its label does not name, in parentheses.
fn limits_note(grant: &Grant) -> String {
    let mut notes = Vec::new();
    if let Some(risks) = &grant.risks {
        notes.push(risks.iter().map(|r| r.as_str()).collect::<Vec<_>>().join("+"));
    }
    if let Some(operands) = &grant.operands {
        notes.push(match operands.shown.as_str() {
            "" => "only without arguments".to_owned(),
            shown => format!("only `{}`", DisplaySafe::bounded(shown, 60)),
        });
    }
    if let Some(script) = grant.script {
        notes.push(format!("script {}…", &script.to_string()[..12]));
    }
    if grant.assignments.is_some() {
        notes.push("only with its variables".to_owned());
    }
    match (grant.sandbox, grant.confinement) {
        (GrantSandbox::Open, Confinement::None | Confinement::Shield) => {
            notes.push(Confinement::Shield.for_people().to_owned())
        }
        (_, Confinement::None | Confinement::Shield) => {}
        (_, confinement) => notes.push(confinement.for_people().to_owned()),
    }
    if let Some(session) = grant.session {
        notes.push(format!("in {session}"));
    }
    if let Some(left) = grant.uses_left {
        notes.push(format!("{} left", count(left, "use")));
    }
    if let Some(end) = grant.expires_at {
        notes.push(format!("expires in {}", brief(end.since(clock::now()))));
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
            return Err(
                UsageError("name the commands: csn grants add --verb 'cargo test' --anywhere".to_owned()).into()
            );
        }
        ([], Some(verb)) => {
            let directory = match (&args.within, args.anywhere) {
                (Some(dir), false) => Some(absolute_path(dir)?),
                (None, true) => None,
                _ => return Err(UsageError("give --in DIR or --anywhere: where the grant holds".to_owned()).into()),
            };
            Label { verb: verb.clone(), directory }
        }
        (words, None) if args.within.is_none() && !args.anywhere => {
            // The shell has split an unquoted label at its spaces, so a directory with a space in it is lost.
            if words.len() > 1 && words.last().is_some_and(|w| w != "anywhere" && !w.starts_with('/')) {
                return Err(
                    UsageError("put the label in quotes: csn grants add 'cargo test in /srv/a b'".to_owned()).into()
                );
            }
            words
                .join(" ")
                .parse::<Label>()
                .map_err(|e| UsageError(format!("{e}, or use --verb with --in DIR or --anywhere")))?
        }
        _ => return Err(UsageError("give either a label, or --verb with --in DIR or --anywhere".to_owned()).into()),
    };
    let risks = match &args.accept[..] {
        [] => None,
        names => Some(
            names
                .iter()
                .map(|name| {
                    Risk::from_name(name).ok_or_else(|| {
                        let all = Risk::ALL.map(Risk::as_str).join(", ");
                        UsageError(format!(
                            "--accept `{}` is not a risk; the risks are {all}",
                            DisplaySafe::bounded(name, 40)
                        ))
                    })
                })
                .collect::<Result<Vec<_>, _>>()?,
        ),
    };
    let session = args.session.as_deref().map(str::parse).transpose();
    let body = GrantBody {
        verb: label.verb,
        directory: label.directory,
        audience: args.audience.as_deref().map(parse_audience).transpose()?.unwrap_or_default(),
        tool: args.tool.as_deref().map(parse_tool).transpose()?.unwrap_or_default(),
        risks,
        session: session.map_err(|e: IdError| UsageError(format!("--session {e}")))?,
        expires_at: args.expires.as_deref().map(parse_expiry).transpose()?,
        uses: args.uses,
        confinement: args.confinement.map(Into::into),
    };
    let grant = reach()?.grant(&body)?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", json!(grant))?;
    } else {
        writeln!(out, "{}", change_line("Saved", &grant))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reports what was done with a grant.
fn change_line(change: &str, grant: &GrantView) -> String {
    format!("{}  {change}: {}", grant_id(&grant.grant), DisplaySafe::bounded(grant.label.as_str(), 300))
}

/// The id of a grant. Every grant that the daemon returns has one.
fn grant_id(grant: &Grant) -> String {
    grant.id.map(|id| id.to_string()).unwrap_or_default()
}

pub(crate) fn parse_audience(name: &str) -> Result<Audience, UsageError> {
    let parsed = serde_json::from_value(name.into());
    parsed.map_err(|_| {
        UsageError(format!("--audience {}: give personal, team or public", DisplaySafe::bounded(name, 40)))
    })
}

fn parse_tool(name: &str) -> Result<Tool, UsageError> {
    Tool::ALL.into_iter().find(|tool| tool.as_str() == name).ok_or_else(|| {
        let all = Tool::ALL.map(Tool::as_str).join(", ");
        UsageError(format!("--tool {} is not a tool; the tools are {all}", DisplaySafe::bounded(name, 40)))
    })
}

/// Parses `90m`, `8h` or `30d` into the time that far from now.
pub(crate) fn parse_expiry(text: &str) -> Result<Timestamp, UsageError> {
    let days = text.strip_suffix('d').and_then(|d| d.parse::<u64>().ok()).filter(|d| (1..=366).contains(d));
    let ms = match days {
        Some(days) => days * 24 * 3_600_000,
        None => run::parse_duration_ms(text)
            .map_err(|_| UsageError(format!("--expires {text}: give a time such as 90m, 8h or 30d, at most 366d")))?,
    };
    Ok(Timestamp::from_micros(clock::now().micros() + i64::try_from(ms).unwrap_or(0) * 1000))
}

fn absolute_path(dir: &std::path::Path) -> anyhow::Result<String> {
    let path = std::path::absolute(dir)?;
    path.into_os_string()
        .into_string()
        .map_err(|_| UsageError("--in: the directory's name is not UTF-8; use another directory".to_owned()).into())
}

/// The ids of the grants with this label. Anything else is an id, or the beginning of one.
fn find_grants(client: &Client, name: &str) -> anyhow::Result<Vec<String>> {
    let ids: Vec<String> = match name.parse::<Label>() {
        Ok(label) => {
            let label = label.to_string();
            let all = client.grants()?;
            all.iter().filter(|g| g.label.as_str() == label).map(|g| grant_id(&g.grant)).collect()
        }
        Err(_) => vec![name.to_owned()],
    };
    if ids.is_empty() {
        crate::say(&format!(
            "csn: there is no grant `{}`; to list them: csn grants list",
            DisplaySafe::bounded(name, 200)
        ));
    }
    Ok(ids)
}

/// Makes grants that run without a sandbox use the sandbox that their risks need.
fn narrow(name: &str, all: bool) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let ids = match (name, all) {
        ("", true) => {
            let all = client.grants()?;
            all.iter().filter(|g| g.grant.sandbox == GrantSandbox::Open).map(|g| grant_id(&g.grant)).collect()
        }
        (name, false) if !name.is_empty() => find_grants(&client, name)?,
        _ => return Err(UsageError("name a grant or give --all: csn grants narrow GRANT".to_owned()).into()),
    };
    for id in &ids {
        let grant = client.narrow_grant(id)?;
        writeln!(io::stdout(), "{}", change_line("Narrowed", &grant))?;
    }
    if ids.is_empty() && all {
        crate::say("csn: every grant already runs in the sandbox that its risks need");
    }
    Ok(ExitCode::from(u8::from(ids.is_empty() && !all)))
}

fn revoke(name: &str) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let ids = find_grants(&client, name)?;
    if ids.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    for id in ids {
        let grant = client.revoke_grant(&id)?;
        writeln!(io::stdout(), "{}", change_line("Revoked", &grant))?;
    }
    Ok(ExitCode::SUCCESS)
}
