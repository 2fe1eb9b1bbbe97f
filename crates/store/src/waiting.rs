//! Raw requests that wait for a person or for a slot: kept outside the logs, mode 0600, deleted at launch, denial or withdrawal.

use crate::{Home, fsx};
use countersign_model::{Facts, Process, Request, TaskId};
use serde::{Deserialize, Serialize};
use std::io;

/// What must be remembered to run a request that was asked about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitingRequest {
    pub v: u32,
    pub request: Request,
    /// The world as it was when the question was put.
    pub facts: Facts,
    /// Who put it, where that is a process of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asker: Option<Process>,
    /// The user of the machine that it runs as, in a house of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
}

/// Written and synced before the ask is acknowledged.
pub fn save(home: &Home, task: TaskId, waiting: &WaitingRequest) -> io::Result<()> {
    let bytes = serde_json::to_vec(waiting).map_err(io::Error::other)?;
    fsx::write_durably(&home.waiting(), &task.to_string(), &bytes)
}

pub fn read(home: &Home, task: TaskId) -> io::Result<WaitingRequest> {
    let bytes = std::fs::read(home.waiting().join(task.to_string()))?;
    serde_json::from_slice(&bytes).map_err(io::Error::other)
}

pub fn forget(home: &Home, task: TaskId) -> io::Result<()> {
    match std::fs::remove_file(home.waiting().join(task.to_string())) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Deletes what a crash left half written.
pub fn sweep(home: &Home) -> io::Result<()> {
    for entry in std::fs::read_dir(home.waiting())? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().ends_with(b".new") {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Every task that has a raw request waiting.
pub fn all(home: &Home) -> io::Result<Vec<TaskId>> {
    let mut tasks = Vec::new();
    for entry in std::fs::read_dir(home.waiting())? {
        if let Some(task) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            tasks.push(task);
        }
    }
    Ok(tasks)
}
