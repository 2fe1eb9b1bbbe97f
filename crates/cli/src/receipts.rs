//! `receipts`, `keys`: what was signed, and with what.

use crate::{
    Doors, Usage,
    args::{KeysCommand, ReceiptsCommand},
    house::reach,
    lists::cut,
    verify,
};
use anyhow::Context as _;
use countersign_client::Client;
use countersign_model::{By, KeyAnnounced, Observed, Receipt, Shown, Statement};
use countersign_store::{Envelope, RECEIPT_TYPE};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

/// How long a receipt is waited for, of a task that has just settled.
const PATIENCE_MS: u64 = 5000;

pub(crate) fn receipts(doors: &Doors<'_>, command: ReceiptsCommand) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match command {
        ReceiptsCommand::List { limit, json } => list(&reach(doors)?, limit, json, &mut out)?,
        ReceiptsCommand::Show { receipt, json, envelope } => {
            let found = fetch(&reach(doors)?, &receipt)?;
            let statement = read(&found)?;
            match (envelope, json) {
                (true, _) => writeln!(out, "{}", found.json())?,
                (false, true) => writeln!(out, "{}", json!(statement))?,
                (false, false) => show(&statement, &found, &mut out)?,
            }
        }
        ReceiptsCommand::Export { receipts, from, to, output } => {
            let client = reach(doors)?;
            drop(out);
            let exported = export(&client, &receipts, from, to, output.as_deref());
            if let (Err(e), Some(path)) = (&exported, &output)
                && !e.is::<Usage>()
            {
                // Half of what was wanted would pass for all of it.
                let _ = std::fs::remove_file(path);
            }
            exported?;
        }
        ReceiptsCommand::Verify(args) => {
            drop(out);
            return verify::verify(&args);
        }
        ReceiptsCommand::Head { output } => {
            let head = reach(doors)?.signed_head()?;
            drop(out);
            writeln!(sink(output.as_deref())?, "{}", String::from_utf8_lossy(&head))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A file that was not there before.
pub(crate) fn new_file(path: &Path) -> anyhow::Result<File> {
    match File::create_new(path) {
        Ok(file) => Ok(file),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let what = format!("{} is there already: remove it, or name another with -o", path.display());
            Err(Usage(what).into())
        }
        Err(e) => Err(e).with_context(|| format!("{} cannot be written", path.display())),
    }
}

/// Standard output, or a new file.
fn sink(path: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    Ok(match path {
        None => Box::new(io::stdout().lock()),
        Some(path) => Box::new(new_file(path)?),
    })
}

/// The envelope of a receipt by task, id or number.
pub(crate) fn fetch(client: &Client, receipt: &str) -> anyhow::Result<Envelope> {
    let bytes = client.receipt(receipt, PATIENCE_MS)?;
    serde_json::from_slice(&bytes).context("the house sent something that is no envelope")
}

pub(crate) fn read(envelope: &Envelope) -> anyhow::Result<Statement> {
    let (payload, ..) = envelope.open(RECEIPT_TYPE).map_err(anyhow::Error::msg)?;
    serde_json::from_str(&payload).context("the receipt does not read")
}

fn list(client: &Client, limit: usize, as_json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let (mut left, mut cursor) = (limit, None);
    while left > 0 {
        let page = client.receipts(left.min(500), cursor.as_deref())?;
        for row in page["receipts"].as_array().into_iter().flatten() {
            left = left.saturating_sub(1);
            match as_json {
                true => writeln!(out, "{row}")?,
                false => writeln!(out, "{}", line(row))?,
            }
        }
        if let Some(why) = page["failing"].as_str() {
            crate::say(&format!("csn: receipts are not made out: {why}"));
        }
        match page["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    Ok(())
}

fn line(row: &Value) -> String {
    let text = |name: &str| row[name].as_str().unwrap_or("-").to_owned();
    let outcome: Option<countersign_model::Outcome> = serde_json::from_value(row["outcome"].clone()).ok();
    let outcome = outcome.map_or_else(|| "-".to_owned(), |o| o.to_string());
    let late = if row["recovered"] == true { "  recovered" } else { "" };
    let display = countersign_model::Shown::bounded(&text("display"), 200).to_string();
    format!("{:>6}  {}  {:<24}  {}{late}", text("seq"), text("task_id"), cut(&outcome, 24), cut(&display, 60))
}

fn show(statement: &Statement, envelope: &Envelope, out: &mut impl Write) -> io::Result<()> {
    let r = &statement.predicate;
    let mut row = |name: &str, value: String| {
        let value = countersign_model::Shown::bounded(&value, 4000).to_string();
        writeln!(out, "{name:<12} {value}")
    };
    row("receipt", format!("{} ({}), sealed {}", r.seq, r.receipt_id, r.sealed_at))?;
    row("task", r.task_id.to_string())?;
    row("command", r.request.display.to_string())?;
    row("directory", r.request.cwd.to_string())?;
    row("asked", format!("{} by {}", r.request.asked_at, requester(r)))?;
    if !r.risks.is_empty() {
        let risks: Vec<String> = r.risks.iter().map(|risk| text(json!(risk))).collect();
        row("risks", risks.join(", "))?;
    }
    row("decision", decision(r))?;
    row("confinement", confinement(r))?;
    if let (Some(sandbox), Some(held)) = (&r.confinement.sandbox, r.confinement.confinement) {
        row("sandbox", Shown::bounded(&sandbox.sentence(held), 600).to_string())?;
    }
    row("outcome", format!("{}{}", r.outcome, if r.recovered { " (recovered after a crash)" } else { "" }))?;
    if let Some(e) = &r.execution {
        row("execution", execution(e))?;
    }
    row("files", files(r))?;
    for file in &r.touched_files.files {
        let escape = if file.escape { ", runs later" } else { "" };
        row("", format!("{} ({}{escape})", file.path, text(json!(file.change))))?;
    }
    for redaction in &r.redactions {
        row("redacted", format!("{} {}", redaction.count, redaction.rule))?;
    }
    for subject in &statement.subject {
        row("speaks for", format!("{} {}", subject.digest.sha256, subject.name))?;
    }
    let before = r.prev.map_or_else(|| "nothing: it is the first".to_owned(), |p| p.to_string());
    row("goes on from", before)?;
    let keys: Vec<&str> = envelope.signatures.iter().map(|s| s.keyid.as_str()).collect();
    row("signed by", keys.join(", "))
}

fn text(value: Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn requester(r: &Receipt) -> String {
    let who = text(json!(r.request.requester.credential));
    let session = r.request.session.map_or_else(String::new, |s| format!(", session {s}"));
    let labels: Vec<String> = r.request.caller.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let labels = if labels.is_empty() { String::new() } else { format!(", says: {}", labels.join(" ")) };
    format!("{} {}{session}{labels}", who, r.request.requester.principal)
}

fn decision(r: &Receipt) -> String {
    let d = &r.decision;
    let by = d.by.as_ref().map_or_else(String::new, |by: &By| format!(" by {by}"));
    let scope = d.scope.map_or_else(String::new, |s| format!(", {}", text(json!(s))));
    let at = d.at.map_or_else(String::new, |at| format!(" at {at}"));
    let reason = d.reason.as_ref().map_or_else(String::new, |r| format!(": {r}"));
    format!("{}{by}{scope}{at}{reason}", text(json!(d.outcome)))
}

fn confinement(r: &Receipt) -> String {
    let Some(confinement) = r.confinement.confinement else { return "no program ran".to_owned() };
    match &r.confinement.enforced {
        Some(e) if !e.missing.is_empty() => {
            let missing: Vec<&str> = e.missing.iter().map(|m| m.as_str()).collect();
            format!("{}, without {}", confinement.as_str(), missing.join(", "))
        }
        _ => confinement.as_str().to_owned(),
    }
}

fn execution(e: &countersign_model::Execution) -> String {
    let ms =
        |us: Option<countersign_model::Count>| us.map_or_else(|| "-".to_owned(), |us| format!("{} ms", us.0 / 1000));
    let mut parts = vec![text(json!(e.kind))];
    if let Some(x) = &e.executable {
        parts.push(x.path.to_string());
    }
    parts.push(format!("took {}, cpu {}", ms(e.duration_us), ms(e.cpu_us)));
    parts.extend(e.max_rss_kb.map(|kb| format!("{kb} kB at most")));
    parts.extend(e.streams.iter().map(|(name, s)| format!("{name} {} bytes", s.bytes)));
    if let Some(cleanup) = e.cleanup.as_ref().filter(|c| !c.survivors.is_empty()) {
        parts.push(format!("would not end: {:?}", cleanup.survivors));
    }
    parts.join(", ")
}

fn files(r: &Receipt) -> String {
    let t = &r.touched_files;
    let how = match t.observed {
        Observed::Confined => return "none: it could change none".to_owned(),
        Observed::None if r.execution.is_none() => return "none: nothing ran".to_owned(),
        Observed::None => return "not looked for".to_owned(),
        Observed::Scan => "seen in the roots afterwards",
        Observed::Exact => "changed by the house",
    };
    let complete = match (t.complete, t.files.is_empty() && t.more > 0) {
        (_, true) => ", not named: nobody knows any more what in their names was secret",
        (true, false) => "",
        (false, false) => ", there may be more",
    };
    format!("{} {how}{complete}", t.files.len() as u64 + t.more)
}

/// Envelopes, one to a line, behind the keys that they were signed with. A row says first where it begins and ends, so that
/// what is taken out of it is missed.
fn export(
    client: &Client,
    receipts: &[String],
    from: Option<u64>,
    to: Option<u64>,
    output: Option<&Path>,
) -> anyhow::Result<()> {
    if receipts.is_empty() && from.is_none() && to.is_none() {
        let what = "name receipts or tasks, or a row of them: csn receipts export --from 1";
        return Err(Usage(what.to_owned()).into());
    }
    let row = from.is_some() || to.is_some();
    if row && !receipts.is_empty() {
        return Err(Usage("name receipts, or a row of them with --from and --to, not both".to_owned()).into());
    }
    let (from, to) = match row {
        true => ends(client, from, to)?,
        false => (1, 0),
    };
    let mut out = sink(output)?;
    if row {
        writeln!(out, "{}", json!({"row": {"from": from, "to": to}}))?;
    }
    for key in client.keys()?["keys"].as_array().into_iter().flatten() {
        writeln!(out, "{}", json!({"announcement": key["announcement"]}))?;
    }
    for receipt in receipts {
        writeln!(out, "{}", fetch(client, receipt)?.json())?;
    }
    for number in from..=to {
        writeln!(out, "{}", fetch(client, &number.to_string())?.json())?;
    }
    out.flush()?;
    Ok(())
}

/// From which receipt to which a row goes; each of them is there.
fn ends(client: &Client, from: Option<u64>, to: Option<u64>) -> anyhow::Result<(u64, u64)> {
    let newest = client.receipts(1, None)?["receipts"][0]["seq"].as_str().and_then(|n| n.parse().ok()).unwrap_or(0);
    let (from, to) = (from.unwrap_or(1), to.unwrap_or(newest));
    if from == 0 || from > to || to > newest {
        return Err(Usage(format!("there is no row from {from} to {to}: the newest receipt is {newest}")).into());
    }
    Ok((from, to))
}

pub(crate) fn keys(doors: &Doors<'_>, command: KeysCommand) -> anyhow::Result<ExitCode> {
    let client = reach(doors)?;
    let mut out = io::stdout().lock();
    match command {
        KeysCommand::List { json } => {
            for key in client.keys()?["keys"].as_array().into_iter().flatten() {
                if json {
                    writeln!(out, "{key}")?;
                    continue;
                }
                let by = key["announced_by"].as_str().map_or_else(|| "nobody".to_owned(), |k| cut(k, 16));
                let used = if key["in_use"] == true { "in use" } else { "retired" };
                writeln!(out, "{}  {used}, announced by {by}", key["key"].as_str().unwrap_or_default())?;
            }
        }
        KeysCommand::Export { key } => {
            let all = client.keys()?;
            let all: Vec<&Value> = all["keys"].as_array().into_iter().flatten().collect();
            let wanted = |k: &&&Value| match &key {
                Some(id) => k["key"].as_str().is_some_and(|k| k.starts_with(id.as_str())),
                None => k["in_use"] == true,
            };
            let found = all.iter().find(wanted).context("there is no such key; see csn keys list")?;
            write!(out, "{}", found["pem"].as_str().unwrap_or_default())?;
        }
        KeysCommand::Rotate { lost } => {
            let announced: KeyAnnounced = serde_json::from_value(client.rotate_key(lost)?)?;
            writeln!(out, "{}", announced.key)?;
            let spoken = match announced.by {
                Some(old) => format!("{old} speaks for it"),
                None => {
                    "no key speaks for it: whoever verifies must be told (csn keys export, csn verify --key)".to_owned()
                }
            };
            crate::say(&format!("csn: receipts are signed with this key from now on; {spoken}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
