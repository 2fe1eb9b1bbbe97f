//! Requesting commands, and listing, reading and following tasks.

use crate::{Call, HttpRequest, StreamCall};
use countersign_model::{
    Request, TaskState,
    api::{
        AskResponse, CheckResponse, EventQuery, StreamRecord, TaskPage, TaskQuery, TerminalRecord, ToolTaskEvent,
        WaitQuery,
    },
    view::View,
};
use std::fmt::Display;

/// Requests a command. A denial is a refusal that names its task.
#[must_use]
pub fn ask(request: &Request) -> Call<AskResponse> {
    Call::json(HttpRequest::post(&["tasks"]).json(request))
}

/// What the gate would decide; nothing runs.
#[must_use]
pub fn check(request: &Request) -> Call<CheckResponse> {
    Call::json(HttpRequest::post(&["check"]).json(request))
}

/// A page of tasks, newest first.
#[must_use]
pub fn list(query: &TaskQuery) -> Call<TaskPage> {
    Call::json(HttpRequest::get(&["tasks"]).query(query))
}

/// A task by its id or a prefix of it.
#[must_use]
pub fn show(id: impl Display) -> Call<TaskState> {
    Call::json(HttpRequest::get(&["tasks", &id.to_string()]))
}

/// A task after it has settled, or as it is after `wait_ms`.
#[must_use]
pub fn wait(id: impl Display, wait_ms: u64) -> Call<TaskState> {
    Call::json(HttpRequest::get(&["tasks", &id.to_string()]).query(&WaitQuery { wait_ms: Some(wait_ms) }))
}

fn events_request(id: impl Display, query: &EventQuery) -> HttpRequest {
    HttpRequest::get(&["tasks", &id.to_string(), "events"]).query(query)
}

fn view_query(view: View) -> EventQuery {
    EventQuery { view: Some(view), ..EventQuery::default() }
}

/// The records of a task from the first to the last, as they happen.
#[must_use]
pub fn events(id: impl Display) -> StreamCall<StreamRecord> {
    StreamCall::new(events_request(id, &EventQuery::default()))
}

/// The records of a task at their recorded pace; with `speed` 2 twice as fast.
#[must_use]
pub fn replayed_events(id: impl Display, speed: f64) -> StreamCall<StreamRecord> {
    StreamCall::new(events_request(id, &EventQuery { speed: Some(speed), ..EventQuery::default() }))
}

/// The records of a task in the `terminal` vocabulary.
#[must_use]
pub fn terminal_events(id: impl Display) -> StreamCall<TerminalRecord> {
    StreamCall::new(events_request(id, &view_query(View::Terminal)))
}

/// The events of a task in the `tool_task` vocabulary; one record yields none, one or several.
#[must_use]
pub fn tool_task_events(id: impl Display) -> StreamCall<ToolTaskEvent> {
    StreamCall::new(events_request(id, &view_query(View::ToolTask)))
}
