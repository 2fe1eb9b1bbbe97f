//! `wait`: until a task has settled; its exit code is ours.

use crate::{code, target_home::reach};
use countersign_client::{Client, ClientError};
use countersign_model::{TaskId, TaskState};
use std::{
    io::{self, Write as _},
    process::ExitCode,
    thread,
    time::Duration,
};

/// How long one question for the end of a task waits at the house before it is put again.
const WAIT_MS: u64 = 60_000;
/// Between attempts to reach a house that is restarting.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn wait(task: &str, json: bool) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let task = client.task(task)?.task_id;
    let ended = until_ended(&client, task)?;
    if json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&ended)?)?;
    }
    Ok(code(ended.outcome().map_or(i32::from(crate::exit::OURS), |o| o.exit_code())))
}

/// The task once it has settled, through any number of restarts of the daemon.
pub(crate) fn until_ended(client: &Client, task: TaskId) -> anyhow::Result<TaskState> {
    loop {
        match client.wait(task, WAIT_MS) {
            Ok(state) if state.settled() => return Ok(state),
            Ok(_) => {}
            Err(ClientError::NoDaemon { .. }) => drop(reach()?),
            Err(ClientError::Broken(_)) => thread::sleep(PAUSE),
            Err(e) => return Err(e.into()),
        }
    }
}
