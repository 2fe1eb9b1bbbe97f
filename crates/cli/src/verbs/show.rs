//! `show`: a task's state, its records, or its screen.

use crate::{args::ViewArg, render::task::task_details, target_home::reach};
use countersign_client::{Events, calls};
use countersign_model::{DisplaySafe, TaskState};
use serde::de::DeserializeOwned;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn show(task: &str, json: bool) -> anyhow::Result<ExitCode> {
    let state = reach()?.task(task)?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(&state)?)?;
    } else {
        write!(out, "{}", task_details(&state))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the records of a task in one of the vocabularies.
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

/// Prints events as they were received, one per line. Stops at the newest one if the task has not ended.
fn print_events<E: DeserializeOwned>(
    state: &TaskState,
    mut events: Events<E>,
    seq: impl Fn(&E) -> u64,
) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    while let Some(event) = events.next_event()? {
        writeln!(out, "{}", event.json)?;
        // One record may become several events.
        if !state.settled() && seq(&event.value) + 1 >= state.next_seq {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what the terminal of a task shows.
pub(crate) fn screen(task: &str, json: bool) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let task = client.task(task)?.task_id;
    let screen = client.screen(task)?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::json!(screen))?;
        return Ok(ExitCode::SUCCESS);
    }
    for line in screen.text.as_str().lines() {
        writeln!(out, "{}", DisplaySafe::new(line))?;
    }
    Ok(ExitCode::SUCCESS)
}
