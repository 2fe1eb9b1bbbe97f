//! `show`: everything that is known of a task; its records; its screen.

use crate::{args::ViewArg, render::text::brief, target_home::reach};
use countersign_client::{Events, calls};
use countersign_model::{DisplaySafe, Ruling, TaskSandbox, TaskState};
use serde::de::DeserializeOwned;
use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

pub(crate) fn show(task: &str, json: bool) -> anyhow::Result<ExitCode> {
    let state = reach()?.task(task)?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(&state)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut row = |name: &str, value: String| writeln!(out, "{name:<12} {value}");
    row("task", state.task_id.to_string())?;
    row("command", DisplaySafe::new(state.request.display.as_str()).to_string())?;
    row("directory", DisplaySafe::new(state.request.cwd.as_str()).to_string())?;
    for (name, text) in [("title", &state.request.title), ("why", &state.request.rationale)] {
        if let Some(text) = text {
            row(name, DisplaySafe::new(text.as_str()).to_string())?;
        }
    }
    let place = state.position().map(|n| format!(", {n}. in line for a slot")).unwrap_or_default();
    row("status", format!("{}{place}", state.status))?;
    if let Some(outcome) = state.outcome() {
        row("outcome", DisplaySafe::new(&outcome.to_string()).to_string())?;
    }
    if let Some(approval) = state.approval_id() {
        row("approval", approval.to_string())?;
    }
    match &state.ruling {
        Some(Ruling::Granted { by, .. }) => row("allowed by", by.to_string())?,
        Some(Ruling::Denied { by, reason, words, .. }) => {
            let words = words.as_ref().map(|w| format!(": {}", DisplaySafe::new(w.as_str()))).unwrap_or_default();
            row("denied by", format!("{by}: {reason}{words}"))?;
        }
        None => {}
    }
    let risks: Vec<String> =
        state.request.risks.iter().filter_map(|r| serde_json::to_value(r).ok()?.as_str().map(str::to_owned)).collect();
    row("risks", if risks.is_empty() { "none".to_owned() } else { risks.join(", ") })?;
    if let Some(TaskSandbox { confinement, summary, enforced }) = &state.sandbox {
        let missing: Vec<&str> = enforced.iter().flat_map(|e| &e.missing).map(|m| m.as_str()).collect();
        let partial = if missing.is_empty() { String::new() } else { format!(" (partial: no {})", missing.join(", ")) };
        row("confinement", format!("{}{partial}", confinement.as_str()))?;
        if let Some(summary) = summary {
            row("sandbox", DisplaySafe::bounded(&summary.sentence(*confinement), 600).to_string())?;
        }
    }
    if let Some(note) = &state.aftermath.note {
        row("note", DisplaySafe::new(note.as_str()).to_string())?;
    }
    for path in &state.aftermath.escapes {
        row("changed", format!("{} (makes programs run later)", DisplaySafe::new(path.as_str())))?;
    }
    row("asked", state.request.asked_at.to_string())?;
    if let Some(at) = state.ended_at() {
        row("ended", at.to_string())?;
    }
    if let Some(us) = state.usage().map(|u| u.duration_us) {
        row("took", brief(Duration::from_micros(us)))?;
    }
    if let Some(pid) = state.pid() {
        row("process", format!("{pid} below supervisor {}", state.shim_pid().unwrap_or(0)))?;
    }
    for (stream, s) in &state.io.streams {
        let redacted = if s.redactions > 0 { format!(", {} redacted", s.redactions) } else { String::new() };
        let dropped = if s.dropped > 0 { format!(", {} of them not kept", s.dropped) } else { String::new() };
        row(stream.as_str(), format!("{} bytes{redacted}{dropped}", s.bytes))?;
    }
    if let Some(terminal) = state.io.terminal {
        let hidden = if terminal.echo || state.settled() { "" } else { ", waits for a line that it does not show" };
        row("terminal", format!("{} rows, {} columns{hidden}", terminal.rows, terminal.cols))?;
    }
    if let Some(directory) = &state.io.current_directory {
        row("now in", DisplaySafe::new(directory.as_str()).to_string())?;
    }
    if let Some(at) = state.expired_at {
        row("removed", format!("{at}: its output is not kept any more, its digests are"))?;
    }
    if !state.aftermath.kept.is_empty() {
        row("left running", format!("{:?}", state.aftermath.kept))?;
    }
    if !state.aftermath.survivors.is_empty() {
        row("survivors", format!("{:?}", state.aftermath.survivors))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The records of a task in one of the vocabularies.
pub(crate) fn view(task: &str, view: ViewArg) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let state = client.task(task)?;
    let task = state.task_id;
    match view {
        ViewArg::Native => print_events(&state, client.follow(calls::tasks::events(task)), |r| r.record.seq),
        ViewArg::Terminal => {
            print_events(&state, client.follow(calls::tasks::terminal_events(task)), |r| r.0.record.seq)
        }
        ViewArg::ToolTask => print_events(&state, client.follow(calls::tasks::tool_task_events(task)), |e| e.head.seq),
    }
}

/// Events as they came, one to a line. Of a task that goes on, as far as it has come.
fn print_events<E: DeserializeOwned>(
    state: &TaskState,
    mut events: Events<E>,
    seq: impl Fn(&E) -> u64,
) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    while let Some(event) = events.next_event()? {
        writeln!(out, "{}", event.json)?;
        // One record may be told in several events.
        if !state.settled() && seq(&event.value) + 1 >= state.next_seq {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the terminal of a task shows.
pub(crate) fn screen(task: &str, json: bool) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let task = client.task(task)?.task_id;
    let screen = client.screen(task)?;
    let mut out = io::stdout().lock();
    match json {
        true => writeln!(out, "{}", serde_json::json!(screen))?,
        false => {
            for line in screen.text.as_str().lines() {
                writeln!(out, "{}", DisplaySafe::new(line))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
