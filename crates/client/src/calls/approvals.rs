//! Approvals that wait for a person, and the answers to them.

use crate::{Call, HttpRequest, StreamCall};
use countersign_model::{
    Approval, ApprovalId,
    api::{AnswerBody, ApprovalPage, ApprovalQuery},
};
use std::fmt::Display;

/// A page of approvals: those that wait and have a card, oldest first; or all, newest first.
#[must_use]
pub fn list(query: &ApprovalQuery) -> Call<ApprovalPage> {
    Call::json(HttpRequest::get(&["approvals"]).query(query))
}

/// An approval by its id or a prefix of it.
#[must_use]
pub fn show(id: impl Display) -> Call<Approval> {
    Call::json(HttpRequest::get(&["approvals", &id.to_string()]))
}

#[must_use]
pub fn answer(id: ApprovalId, body: &AnswerBody) -> Call<Approval> {
    Call::json(HttpRequest::post(&["approvals", &id.to_string()]).json(body))
}

/// Approvals as they are opened and resolved, beginning with the waiting ones. This stream does not end.
#[must_use]
pub fn events() -> StreamCall<Approval> {
    StreamCall::new(HttpRequest::get(&["approvals", "events"]))
}
