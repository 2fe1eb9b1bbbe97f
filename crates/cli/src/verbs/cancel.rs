//! `cancel`: stops a running task, or withdraws one that waits.

use crate::target_home::reach;
use std::process::ExitCode;

pub(crate) fn cancel(task: &str, reason: Option<&str>) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let task = client.task(task)?;
    client.cancel(task.task_id, reason)?;
    Ok(ExitCode::SUCCESS)
}
