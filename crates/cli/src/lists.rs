//! `ps`, `show`, `cancel`, `signal`, `wait`.

use crate::{Doors, Usage, args::ViewArg, code, house::reach};
use countersign_client::{Client, ClientError};
use countersign_model::{At, Ruling, Shown, SignalName, Status, TaskState, WaitsFor};
use countersign_store::clock;
use std::{
    io::{self, Write},
    process::ExitCode,
    thread,
    time::Duration,
};

/// How long one question for the end of a task waits at the house before it is put again.
const WAIT_MS: u64 = 60_000;
/// Between attempts to reach a house that is restarting.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn ps(doors: &Doors<'_>, all: bool, json: bool) -> anyhow::Result<ExitCode> {
    let client = reach(doors)?;
    let mut out = io::stdout().lock();
    let now = clock::now();
    if !json {
        writeln!(out, "{:<19}  {:<9}  {:>6}  {:<22}  COMMAND", "TASK", "STATUS", "AGE", "OUTCOME")?;
    }
    let statuses: &[&str] = if all { &[""] } else { &["running", "queued"] };
    for status in statuses {
        let mut cursor = String::new();
        loop {
            let status = if status.is_empty() { String::new() } else { format!("&status={status}") };
            let page = client.tasks(&format!("?limit=200{status}{cursor}"))?;
            for task in &page.tasks {
                match json {
                    true => writeln!(out, "{}", serde_json::to_string(task)?)?,
                    false => line(&mut out, task, now)?,
                }
            }
            match page.next {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn line(out: &mut impl Write, task: &TaskState, now: At) -> io::Result<()> {
    let outcome = match (&task.outcome, task.approval_id) {
        (Some(outcome), _) => outcome.to_string(),
        (None, _) if task.waits_for == Some(WaitsFor::Slot) => match task.position {
            Some(position) => format!("{position}. in line"),
            None => "in line".to_owned(),
        },
        (None, Some(approval)) if task.status == Status::Queued => approval.to_string(),
        _ => String::new(),
    };
    let name = task.title.as_ref().unwrap_or(&task.display);
    let age = brief(now.since(task.asked_at));
    let (status, outcome) = (task.status.to_string(), cut(&outcome, 22));
    writeln!(out, "{}  {status:<9}  {age:>6}  {outcome:<22}  {}", task.task_id, cut(name.as_str(), 60))
}

/// Untrusted text for a column of `width` characters.
pub(crate) fn cut(text: &str, width: usize) -> String {
    let shown = Shown::bounded(text, width + 1).to_string();
    match shown.chars().count() > width {
        true => shown.chars().take(width - 1).chain(['…']).collect(),
        false => shown,
    }
}

pub(crate) fn brief(d: Duration) -> String {
    match d.as_secs() {
        0 => format!("{}ms", d.as_millis()),
        s @ 1..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        s @ 3600..86400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        s => format!("{}d{:02}h", s / 86400, s % 86400 / 3600),
    }
}

pub(crate) fn show(doors: &Doors<'_>, task: &str, json: bool) -> anyhow::Result<ExitCode> {
    let state = reach(doors)?.task(task)?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(&state)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut row = |name: &str, value: String| writeln!(out, "{name:<12} {value}");
    row("task", state.task_id.to_string())?;
    row("command", Shown::new(state.display.as_str()).to_string())?;
    row("directory", Shown::new(state.cwd.as_str()).to_string())?;
    for (name, text) in [("title", &state.title), ("why", &state.rationale)] {
        if let Some(text) = text {
            row(name, Shown::new(text.as_str()).to_string())?;
        }
    }
    let place = state.position.map(|n| format!(", {n}. in line for a slot")).unwrap_or_default();
    row("status", format!("{}{place}", state.status))?;
    if let Some(outcome) = &state.outcome {
        row("outcome", Shown::new(&outcome.to_string()).to_string())?;
    }
    if let Some(approval) = state.approval_id {
        row("approval", approval.to_string())?;
    }
    match &state.ruling {
        Some(Ruling::Granted { by, .. }) => row("allowed by", by.to_string())?,
        Some(Ruling::Denied { by, reason, words, .. }) => {
            let words = words.as_ref().map(|w| format!(": {}", Shown::new(w.as_str()))).unwrap_or_default();
            row("denied by", format!("{by}: {reason}{words}"))?;
        }
        None => {}
    }
    let risks: Vec<String> =
        state.risks.iter().filter_map(|r| serde_json::to_value(r).ok()?.as_str().map(str::to_owned)).collect();
    row("risks", if risks.is_empty() { "none".to_owned() } else { risks.join(", ") })?;
    if let Some(confinement) = state.confinement {
        let missing: Vec<&str> = state.enforced.iter().flat_map(|e| &e.missing).map(|m| m.as_str()).collect();
        let partial = if missing.is_empty() { String::new() } else { format!(" (partial: no {})", missing.join(", ")) };
        row("confinement", format!("{}{partial}", confinement.as_str()))?;
        if let Some(sandbox) = &state.sandbox {
            row("sandbox", Shown::bounded(&sandbox.sentence(confinement), 600).to_string())?;
        }
    }
    if let Some(note) = &state.note {
        row("note", Shown::new(note.as_str()).to_string())?;
    }
    for path in &state.escapes {
        row("changed", format!("{} (makes programs run later)", Shown::new(path.as_str())))?;
    }
    row("asked", state.asked_at.to_string())?;
    if let Some(at) = state.ended_at {
        row("ended", at.to_string())?;
    }
    if let Some(us) = state.duration_us {
        row("took", brief(Duration::from_micros(us)))?;
    }
    if let Some(pid) = state.pid {
        row("process", format!("{pid} below supervisor {}", state.shim_pid.unwrap_or(0)))?;
    }
    for (stream, s) in &state.streams {
        let redacted = if s.redactions > 0 { format!(", {} redacted", s.redactions) } else { String::new() };
        let dropped = if s.dropped > 0 { format!(", {} of them not kept", s.dropped) } else { String::new() };
        row(stream.as_str(), format!("{} bytes{redacted}{dropped}", s.bytes))?;
    }
    if let Some(terminal) = state.terminal {
        let hidden = if terminal.echo || state.settled() { "" } else { ", waits for a line that it does not show" };
        row("terminal", format!("{} rows, {} columns{hidden}", terminal.rows, terminal.cols))?;
    }
    if let Some(directory) = &state.current_directory {
        row("now in", Shown::new(directory.as_str()).to_string())?;
    }
    if let Some(at) = state.expired_at {
        row("removed", format!("{at}: its output is not kept any more, its digests are"))?;
    }
    if !state.kept.is_empty() {
        row("left running", format!("{:?}", state.kept))?;
    }
    if !state.survivors.is_empty() {
        row("survivors", format!("{:?}", state.survivors))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The records of a task in one of the vocabularies.
pub(crate) fn view(doors: &Doors<'_>, task: &str, view: ViewArg) -> anyhow::Result<ExitCode> {
    let client = reach(doors)?;
    let state = client.task(task)?;
    let name = match view {
        ViewArg::Native => "native",
        ViewArg::Terminal => "terminal",
        ViewArg::ToolTask => "tool_task",
    };
    let mut out = io::stdout().lock();
    let mut events = client.view(state.task_id, name);
    while let Some(event) = events.next_event()? {
        writeln!(out, "{}", event.line)?;
        // Of a task that goes on, as far as it has come; one record may be told in several events.
        if !state.settled() && event.seq + 1 >= state.next_seq {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the terminal of a task shows.
pub(crate) fn screen(doors: &Doors<'_>, task: &str, json: bool) -> anyhow::Result<ExitCode> {
    let client = reach(doors)?;
    let task = client.task(task)?.task_id;
    let screen = client.screen(task)?;
    let mut out = io::stdout().lock();
    match json {
        true => writeln!(out, "{screen}")?,
        false => {
            for line in screen["text"].as_str().unwrap_or_default().lines() {
                writeln!(out, "{}", Shown::new(line))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn resize(doors: &Doors<'_>, task: &str, rows: u16, cols: u16) -> anyhow::Result<ExitCode> {
    let client = reach(doors)?;
    let task = client.task(task)?;
    client.resize(task.task_id, rows, cols)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn cancel(doors: &Doors<'_>, task: &str, reason: Option<&str>) -> anyhow::Result<ExitCode> {
    let client = reach(doors)?;
    let task = client.task(task)?;
    client.cancel(task.task_id, reason)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn signal(doors: &Doors<'_>, task: &str, signal: &str) -> anyhow::Result<ExitCode> {
    let signal: SignalName = signal.parse().map_err(Usage)?;
    let client = reach(doors)?;
    let task = client.task(task)?;
    client.signal(task.task_id, signal)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn wait(doors: &Doors<'_>, task: &str, json: bool) -> anyhow::Result<ExitCode> {
    let client = reach(doors)?;
    let task = client.task(task)?.task_id;
    let ended = until_ended(doors, &client, task)?;
    if json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&ended)?)?;
    }
    Ok(code(ended.outcome.map_or(i32::from(crate::exit::OURS), |o| o.exit_code())))
}

/// The task once it has settled, through any number of restarts of the daemon.
pub(crate) fn until_ended(
    doors: &Doors<'_>,
    client: &Client,
    task: countersign_model::TaskId,
) -> anyhow::Result<TaskState> {
    loop {
        match client.wait(task, WAIT_MS) {
            Ok(state) if state.settled() => return Ok(state),
            Ok(_) => {}
            Err(ClientError::NoHouse { .. }) => drop(reach(doors)?),
            Err(ClientError::Broken(_)) => thread::sleep(PAUSE),
            Err(e) => return Err(e.into()),
        }
    }
}
