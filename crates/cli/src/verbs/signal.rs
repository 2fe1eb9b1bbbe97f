//! `signal`: sends a signal to a task.

use crate::{UsageError, target_home::reach};
use countersign_model::SignalName;
use std::process::ExitCode;

pub(crate) fn signal(task: &str, signal: &str) -> anyhow::Result<ExitCode> {
    let signal: SignalName = signal.parse().map_err(UsageError)?;
    let client = reach()?;
    let task = client.task(task)?;
    client.signal(task.task_id, signal)?;
    Ok(ExitCode::SUCCESS)
}
