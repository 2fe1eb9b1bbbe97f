//! `resize`: sets the size of a task's terminal.

use crate::target_home::reach;
use std::process::ExitCode;

pub(crate) fn resize(task: &str, rows: u16, cols: u16) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let task = client.task(task)?;
    client.resize(task.task_id, rows, cols)?;
    Ok(ExitCode::SUCCESS)
}
