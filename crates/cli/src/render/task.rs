//! A task: as a row of `csn ps`, and everything that `csn show` tells of it.

use super::text::{brief, count, cut};
use countersign_model::{DisplaySafe, Outcome, Ruling, Status, TaskSandbox, TaskState, Timestamp, WaitsFor};
use std::{fmt::Write as _, time::Duration};

/// The heading of the rows that [`task_row`] makes.
pub(crate) fn task_table_heading() -> String {
    format!("{:<19}  {:<9}  {:>6}  {:<22}  COMMAND", "TASK", "STATUS", "AGE", "OUTCOME")
}

/// One row of `csn ps`.
pub(crate) fn task_row(task: &TaskState, now: Timestamp) -> String {
    let outcome = match (task.outcome(), task.approval_id()) {
        (Some(outcome), _) => outcome.to_string(),
        (None, _) if task.waits_for() == Some(WaitsFor::Slot) => match task.position() {
            Some(position) => format!("number {position} in queue"),
            None => "in the queue".to_owned(),
        },
        (None, Some(approval)) if task.status == Status::Queued => approval.to_string(),
        _ => String::new(),
    };
    let name = task.request.title.as_ref().unwrap_or(&task.request.display);
    let age = brief(now.since(task.request.asked_at));
    let (status, outcome) = (status_label(task), cut(&outcome, 22));
    format!("{}  {status:<9}  {age:>6}  {outcome:<22}  {}", task.task_id, cut(name.as_str(), 60))
}

/// The status as people read it. The API knows fewer: a task that waits for a person is `queued` there, and one that was
/// denied or timed out is `failed`.
fn status_label(task: &TaskState) -> String {
    match task.outcome() {
        Some(Outcome::Denied { .. }) => "denied".to_owned(),
        Some(Outcome::TimedOut { .. }) => "timed out".to_owned(),
        Some(Outcome::Withdrawn { .. }) => "withdrawn".to_owned(),
        Some(Outcome::Lost { .. }) => "lost".to_owned(),
        None if task.waits_for() == Some(WaitsFor::Approval) => "waiting".to_owned(),
        _ => task.status.to_string(),
    }
}

/// Tells that a task waits for a free slot, and where in the queue it stands.
pub(crate) fn queue_line(position: u64) -> String {
    format!("csn: waiting for a free slot: number {position} in the queue")
}

/// Everything that `csn show` tells of a task, one fact per line.
pub(crate) fn task_details(state: &TaskState) -> String {
    let mut out = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<12} {value}");
    };
    row("task", state.task_id.to_string());
    row("command", DisplaySafe::new(state.request.display.as_str()).to_string());
    row("directory", DisplaySafe::new(state.request.cwd.as_str()).to_string());
    for (name, text) in [("title", &state.request.title), ("reason", &state.request.rationale)] {
        if let Some(text) = text {
            row(name, DisplaySafe::new(text.as_str()).to_string());
        }
    }
    let queue = state.position().map(|n| format!(", number {n} in the queue for a slot")).unwrap_or_default();
    row("status", format!("{}{queue}", status_label(state)));
    if let Some(outcome) = state.outcome() {
        row("outcome", DisplaySafe::new(&outcome.to_string()).to_string());
    }
    if let Some(approval) = state.approval_id() {
        let pending = state.waits_for() == Some(WaitsFor::Approval);
        let answer = if pending { format!("; to answer: csn approvals show {approval}") } else { String::new() };
        row("approval", format!("{approval}{answer}"));
    }
    match &state.ruling {
        Some(Ruling::Granted { by, .. }) => row("allowed by", by.to_string()),
        Some(Ruling::Denied { by, reason, hint, words, .. }) => {
            row("denied by", format!("{by}: {reason}"));
            if let Some(words) = words {
                row("message", DisplaySafe::new(words.as_str()).to_string());
            }
            if let Some(hint) = hint {
                row("hint", DisplaySafe::new(hint.as_str()).to_string());
            }
        }
        None => {}
    }
    let risks: Vec<&str> = state.request.risks.iter().map(|risk| risk.as_str()).collect();
    row("risks", if risks.is_empty() { "none".to_owned() } else { risks.join(", ") });
    if let Some(sandbox) = &state.sandbox {
        row("sandbox", sandbox_sentence(sandbox));
    }
    if let Some(note) = &state.aftermath.note {
        row("note", DisplaySafe::new(note.as_str()).to_string());
    }
    for path in &state.aftermath.escapes {
        row("changed", format!("{} (makes other programs run commands later)", DisplaySafe::new(path.as_str())));
    }
    row("asked", state.request.asked_at.to_string());
    if let Some(at) = state.ended_at() {
        row("ended", at.to_string());
    }
    if let Some(us) = state.usage().map(|u| u.duration_us) {
        row("took", brief(Duration::from_micros(us)));
    }
    if let Some(pid) = state.pid() {
        row("process", format!("{pid}, supervised by {}", state.shim_pid().unwrap_or(0)));
    }
    write_io(state, &mut row);
    if let Some(at) = state.expired_at {
        row("removed", format!("{at}: its output was deleted; its digests remain"));
    }
    let pids = |pids: &[u32]| pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    if !state.aftermath.kept.is_empty() {
        row("left running", pids(&state.aftermath.kept));
    }
    if !state.aftermath.survivors.is_empty() {
        row("survivors", format!("{} (did not end when killed)", pids(&state.aftermath.survivors)));
    }
    out
}

fn sandbox_sentence(sandbox: &TaskSandbox) -> String {
    let TaskSandbox { confinement, summary, enforced } = sandbox;
    let sentence = match summary {
        Some(summary) => DisplaySafe::bounded(&summary.sentence(*confinement), 600).to_string(),
        None => confinement.for_people().to_owned(),
    };
    let missing: Vec<&str> = enforced.iter().flat_map(|e| &e.missing).map(|m| m.as_str()).collect();
    if missing.is_empty() {
        return sentence;
    }
    format!("{sentence}; this kernel does not restrict {}", missing.join(", "))
}

fn write_io(state: &TaskState, row: &mut impl FnMut(&str, String)) {
    for (stream, s) in &state.io.streams {
        let redacted = if s.redactions > 0 { format!(", {} redacted", s.redactions) } else { String::new() };
        let dropped = if s.dropped > 0 { format!(", {} of them not stored", s.dropped) } else { String::new() };
        row(stream.as_str(), format!("{}{redacted}{dropped}", count(s.bytes, "byte")));
    }
    if let Some(terminal) = state.io.terminal {
        let hidden = if terminal.echo || state.settled() {
            ""
        } else {
            ", waits for a line that it does not echo (a password?)"
        };
        row("terminal", format!("{} rows, {} columns{hidden}", terminal.rows, terminal.cols));
    }
    if let Some(directory) = &state.io.current_directory {
        row("now in", DisplaySafe::new(directory.as_str()).to_string());
    }
}
