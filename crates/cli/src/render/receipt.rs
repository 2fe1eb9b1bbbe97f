//! A receipt: as a row of a list, and all that it says.

use super::text::cut;
use countersign_model::{DecidedBy, DisplaySafe, FileObservation, Receipt, Statement, api::ReceiptRow};
use countersign_store::Envelope;
use serde_json::{Value, json};
use std::io::{self, Write};

pub(crate) fn line(row: &ReceiptRow) -> String {
    let late = if row.recovered { "  recovered" } else { "" };
    let outcome = cut(&row.outcome.to_string(), 24);
    let display = DisplaySafe::bounded(row.display.as_str(), 200).to_string();
    format!("{:>6}  {}  {outcome:<24}  {}{late}", row.seq, row.task_id, cut(&display, 60))
}

pub(crate) fn show(statement: &Statement, envelope: &Envelope, out: &mut impl Write) -> io::Result<()> {
    let r = &statement.predicate;
    let mut row = |name: &str, value: String| {
        let value = DisplaySafe::bounded(&value, 4000).to_string();
        writeln!(out, "{name:<12} {value}")
    };
    row("receipt", format!("{} ({}), sealed {}", r.seq, r.receipt_id, r.sealed_at))?;
    row("task", r.task_id.to_string())?;
    if let Some(home) = r.home_id {
        row("home", home.to_string())?;
    }
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
        row("sandbox", DisplaySafe::bounded(&sandbox.sentence(held), 600).to_string())?;
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
    let by = d.by.as_ref().map_or_else(String::new, |by: &DecidedBy| format!(" by {by}"));
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
    let ms = |us: Option<countersign_model::DecimalCount>| {
        us.map_or_else(|| "-".to_owned(), |us| format!("{} ms", us.0 / 1000))
    };
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
        FileObservation::Confined => return "none: it could change none".to_owned(),
        FileObservation::None if r.execution.is_none() => return "none: nothing ran".to_owned(),
        FileObservation::None => return "not looked for".to_owned(),
        FileObservation::Scan => "seen in the roots afterwards",
        FileObservation::Exact => "changed by the house",
    };
    let complete = match (t.complete, t.files.is_empty() && t.more > 0) {
        (_, true) => ", not named: nobody knows any more what in their names was secret",
        (true, false) => "",
        (false, false) => ", there may be more",
    };
    format!("{} {how}{complete}", t.files.len() as u64 + t.more)
}
