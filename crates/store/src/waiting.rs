//! Raw requests that wait for a person or for a slot: stored outside the logs with mode 0600, deleted at launch, denial
//! or withdrawal.

use crate::{Home, fsx};
use countersign_model::{Facts, Process, Request, TaskId};
use serde::{Deserialize, Serialize};
use std::io;

/// What the daemon needs to run a request after it waited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitingRequest {
    pub v: u32,
    pub request: Request,
    /// The facts when the approval was requested.
    pub facts: Facts,
    /// The process that asked, if it is a process of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asker: Option<Process>,
    /// The user that it runs as, under the system service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
}

/// Saves the request durably. The daemon does this before it acknowledges the request.
pub fn save(home: &Home, task: TaskId, waiting: &WaitingRequest) -> io::Result<()> {
    let bytes = serde_json::to_vec(waiting).map_err(io::Error::other)?;
    fsx::write_durably(&home.waiting(), &task.to_string(), &bytes)
}

pub fn read(home: &Home, task: TaskId) -> io::Result<WaitingRequest> {
    let bytes = std::fs::read(home.waiting().join(task.to_string()))?;
    serde_json::from_slice(&bytes).map_err(io::Error::other)
}

pub fn remove(home: &Home, task: TaskId) -> io::Result<()> {
    match std::fs::remove_file(home.waiting().join(task.to_string())) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Deletes files that a crash left unfinished.
pub fn remove_unfinished(home: &Home) -> io::Result<()> {
    for entry in std::fs::read_dir(home.waiting())? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().ends_with(b".new") {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Every task with a stored raw request.
pub fn waiting_tasks(home: &Home) -> io::Result<Vec<TaskId>> {
    let mut tasks = Vec::new();
    for entry in std::fs::read_dir(home.waiting())? {
        if let Some(task) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            tasks.push(task);
        }
    }
    Ok(tasks)
}
