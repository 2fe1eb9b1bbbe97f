//! Conversations of agents and clients.

use crate::{Call, HttpRequest};
use countersign_model::{
    Session,
    api::{DirectoryBody, OpenSessionBody, SessionEnd, SessionMove, SessionPage, SessionQuery},
};
use std::fmt::Display;

/// A page of sessions, newest first: the open ones, or all.
#[must_use]
pub fn list(query: &SessionQuery) -> Call<SessionPage> {
    Call::json(HttpRequest::get(&["sessions"]).query(query))
}

#[must_use]
pub fn open(body: &OpenSessionBody) -> Call<Session> {
    Call::json(HttpRequest::post(&["sessions"]).json(body))
}

#[must_use]
pub fn show(id: impl Display) -> Call<Session> {
    Call::json(HttpRequest::get(&["sessions", &id.to_string()]))
}

/// Moves a session to another directory; a person may have to approve it first.
#[must_use]
pub fn set_directory(id: impl Display, directory: &str) -> Call<SessionMove> {
    let body = DirectoryBody { directory: directory.to_owned() };
    Call::json(HttpRequest::post(&["sessions", &id.to_string(), "directory"]).json(&body))
}

/// Ends a session, and the tasks that end with it.
#[must_use]
pub fn end(id: impl Display) -> Call<SessionEnd> {
    Call::json(HttpRequest::delete(&["sessions", &id.to_string()]))
}
