//! The output of a task: its bytes, search results, its screen and its recording.

use crate::{Call, HttpRequest};
use countersign_model::{
    TaskId,
    api::{CastQuery, OutputPage, OutputQuery, ScreenView, SearchPage, SearchQuery},
    cast::Version,
};

/// A part of a stream, with its position.
#[must_use]
pub fn page(task: TaskId, query: &OutputQuery) -> Call<OutputPage> {
    Call::json(HttpRequest::get(&["tasks", &task.to_string(), "output"]).query(query))
}

/// The stored bytes of a part of a stream; empty after its end.
#[must_use]
pub fn bytes(task: TaskId, query: &OutputQuery) -> Call<Vec<u8>> {
    let request = HttpRequest::get(&["tasks", &task.to_string(), "output"]).query(query);
    Call::bytes(request.header("accept", "application/octet-stream"))
}

/// A page of matches.
#[must_use]
pub fn search(task: TaskId, query: &SearchQuery) -> Call<SearchPage> {
    Call::json(HttpRequest::get(&["tasks", &task.to_string(), "search"]).query(query))
}

/// What the terminal of a task shows.
#[must_use]
pub fn screen(task: TaskId) -> Call<ScreenView> {
    Call::json(HttpRequest::get(&["tasks", &task.to_string(), "screen"]))
}

/// The recording as asciicast.
#[must_use]
pub fn cast(task: TaskId, version: Option<Version>) -> Call<Vec<u8>> {
    Call::bytes(HttpRequest::get(&["tasks", &task.to_string(), "cast"]).query(&CastQuery { version }))
}
