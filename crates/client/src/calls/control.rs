//! Operations on a running or waiting task.

use crate::{Call, HttpRequest};
use countersign_model::{
    SignalName, TaskId,
    api::{AppliedRecord, CancelBody, ResizeBody, SignalBody, StdinBody},
};

/// Withdraws a waiting task, or stops a running one.
#[must_use]
pub fn cancel(task: TaskId, reason: Option<&str>) -> Call<AppliedRecord> {
    let body = CancelBody { reason: reason.map(str::to_owned) };
    Call::json(HttpRequest::post(&["tasks", &task.to_string(), "cancel"]).json(&body))
}

#[must_use]
pub fn signal(task: TaskId, signal: SignalName) -> Call<AppliedRecord> {
    Call::json(HttpRequest::post(&["tasks", &task.to_string(), "signal"]).json(&SignalBody { signal }))
}

/// Sends input to a task.
#[must_use]
pub fn stdin(task: TaskId, body: &StdinBody) -> Call<AppliedRecord> {
    Call::json(HttpRequest::post(&["tasks", &task.to_string(), "stdin"]).json(body))
}

#[must_use]
pub fn resize(task: TaskId, rows: u16, cols: u16) -> Call<AppliedRecord> {
    Call::json(HttpRequest::post(&["tasks", &task.to_string(), "resize"]).json(&ResizeBody { rows, cols }))
}
