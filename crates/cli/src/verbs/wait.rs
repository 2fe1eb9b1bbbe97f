//! `wait`: waits until a task has ended and exits with its code.

use crate::{code, target_home::reach};
use countersign_client::{Client, ClientError};
use countersign_model::{TaskId, TaskState};
use std::{
    io::{self, Write as _},
    process::ExitCode,
    thread,
    time::Duration,
};

/// How long the daemon holds one call before it answers that the task still runs.
const MAX_CALL_MS: u64 = 60_000;
/// Pause between attempts to reach a daemon that is restarting.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn wait(task: &str, json: bool) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let task = client.task(task)?.task_id;
    let ended = wait_until_ended(&client, task)?;
    if json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&ended)?)?;
    }
    Ok(code(ended.outcome().map_or(i32::from(crate::exit::OURS), |o| o.exit_code())))
}

/// Waits until a task has ended, across any number of restarts of the daemon.
fn wait_until_ended(client: &Client, task: TaskId) -> anyhow::Result<TaskState> {
    loop {
        match client.wait(task, MAX_CALL_MS) {
            Ok(state) if state.settled() => return Ok(state),
            Ok(_) => {}
            Err(ClientError::Broken(_)) => thread::sleep(RETRY_PAUSE),
            Err(e) if e.is_daemon_gone() => drop(reach()?),
            Err(e) => return Err(e.into()),
        }
    }
}
