//! A receipt: as a row of a list, and everything that it states.

use super::text::{count, cut};
use countersign_model::{
    AnswerKind, DecidedBy, DisplaySafe, ExecutionKind, FileObservation, Receipt, Statement, api::ReceiptRow,
};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// One row of `csn receipts list`.
pub(crate) fn receipt_row(row: &ReceiptRow) -> String {
    let recovered = if row.recovered { "  recovered" } else { "" };
    let outcome = cut(&row.outcome.to_string(), 24);
    let display = DisplaySafe::bounded(row.display.as_str(), 200).to_string();
    format!("{:>6}  {}  {outcome:<24}  {}{recovered}", row.seq, row.task_id, cut(&display, 60))
}

/// Everything that `csn receipts show` tells, one fact per line. `signers` are the ids of the keys that signed it.
pub(crate) fn receipt_details(statement: &Statement, signers: &[&str]) -> String {
    let r = &statement.predicate;
    let mut out = String::new();
    let mut row = |name: &str, value: String| {
        let value = DisplaySafe::bounded(&value, 4000).to_string();
        let _ = writeln!(out, "{}", format!("{name:<16} {value}").trim_end());
    };
    row("receipt", format!("{} ({}), sealed {}", r.seq, r.receipt_id, r.sealed_at));
    row("task", r.task_id.to_string());
    if let Some(home) = r.home_id {
        row("home", home.to_string());
    }
    row("command", r.request.display.to_string());
    row("directory", r.request.cwd.to_string());
    row("asked", format!("{} by {}", r.request.asked_at, requester(r)));
    if !r.risks.is_empty() {
        let risks: Vec<&str> = r.risks.iter().map(|risk| risk.as_str()).collect();
        row("risks", risks.join(", "));
    }
    row("decision", decision(r));
    row("sandbox", sandbox(r));
    row("outcome", format!("{}{}", r.outcome, if r.recovered { " (recovered after a crash)" } else { "" }));
    if let Some(e) = &r.execution {
        row("execution", execution(e));
    }
    row("files", files(r));
    for file in &r.touched_files.files {
        let escape = if file.escape { ", makes other programs run commands later" } else { "" };
        row("", format!("{} ({}{escape})", file.path, json_text(json!(file.change))));
    }
    for redaction in &r.redactions {
        row("redacted", format!("{} {}", redaction.count, redaction.rule));
    }
    for subject in &statement.subject {
        row("covers", format!("{} {}", subject.digest.sha256, subject.name));
    }
    let previous = r.prev.map_or_else(|| "none: this is the first receipt".to_owned(), |digest| digest.to_string());
    row("previous receipt", previous);
    row("signed by", signers.join(", "));
    out
}

fn json_text(value: Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn requester(r: &Receipt) -> String {
    let credential = json_text(json!(r.request.requester.credential));
    let session = r.request.session.map_or_else(String::new, |s| format!(", session {s}"));
    let labels: Vec<String> = r.request.caller.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let labels =
        if labels.is_empty() { String::new() } else { format!(", own labels (not verified): {}", labels.join(" ")) };
    format!("{} {}{session}{labels}", credential, r.request.requester.principal)
}

fn decision(r: &Receipt) -> String {
    let d = &r.decision;
    let by = d.by.as_ref().map_or_else(String::new, |by: &DecidedBy| format!(" by {by}"));
    let is_rule = matches!(d.by, Some(DecidedBy::Rule(_)));
    // The scope of a rule is the policy, which says nothing new.
    let scope = d.scope.filter(|_| !is_rule).map_or_else(String::new, |s| format!(", {}", json_text(json!(s))));
    let at = d.at.map_or_else(String::new, |at| format!(" at {at}"));
    let reason = d.reason.as_ref().map_or_else(String::new, |r| format!(": {r}"));
    let is_allowed = is_rule && d.outcome == AnswerKind::Granted;
    let outcome = if is_allowed { "allowed".to_owned() } else { json_text(json!(d.outcome)) };
    format!("{outcome}{by}{scope}{at}{reason}")
}

fn sandbox(r: &Receipt) -> String {
    let Some(confinement) = r.confinement.confinement else {
        let why = match r.execution.as_ref().map(|e| e.kind) {
            None => "none: nothing ran",
            Some(ExecutionKind::Builtin) => "none: the daemon did this itself",
            Some(ExecutionKind::Observed) => "none: the agent ran the command itself (witness mode)",
            Some(ExecutionKind::Performed) => "unknown: no process was started",
        };
        return why.to_owned();
    };
    let sentence = match &r.confinement.sandbox {
        Some(summary) => DisplaySafe::bounded(&summary.sentence(confinement), 600).to_string(),
        None => confinement.for_people().to_owned(),
    };
    match &r.confinement.enforced {
        Some(e) if !e.missing.is_empty() => {
            let missing: Vec<&str> = e.missing.iter().map(|m| m.as_str()).collect();
            format!("{sentence}; this kernel does not restrict {}", missing.join(", "))
        }
        _ => sentence,
    }
}

fn execution(e: &countersign_model::Execution) -> String {
    let mut parts = vec![json_text(json!(e.kind))];
    if let Some(x) = &e.executable {
        parts.push(x.path.to_string());
    }
    for (name, us) in [("took", e.duration_us), ("cpu", e.cpu_us)] {
        parts.extend(us.map(|us| format!("{name} {} ms", us.0 / 1000)));
    }
    parts.extend(e.max_rss_kb.map(|kb| format!("at most {kb} kB of memory")));
    parts.extend(e.streams.iter().map(|(name, s)| format!("{name} {}", count(s.bytes.0, "byte"))));
    if let Some(cleanup) = e.cleanup.as_ref().filter(|c| !c.survivors.is_empty()) {
        parts.push(format!("processes that did not end when killed: {:?}", cleanup.survivors));
    }
    parts.join(", ")
}

fn files(r: &Receipt) -> String {
    let t = &r.touched_files;
    let how = match t.observed {
        FileObservation::Confined => return "none: the sandbox allowed no writes".to_owned(),
        FileObservation::None if r.execution.is_none() => return "none: nothing ran".to_owned(),
        FileObservation::None => return "not examined".to_owned(),
        FileObservation::Scan => "found changed in the workspace roots afterwards",
        FileObservation::Exact => "changed by the daemon",
    };
    let complete = match (t.complete, t.files.is_empty() && t.more > 0) {
        (_, true) => ", not named: their names could not be redacted any more",
        (true, false) => "",
        (false, false) => ", there may be more",
    };
    format!("{} {how}{complete}", t.files.len() as u64 + t.more)
}
