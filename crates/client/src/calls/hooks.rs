//! Agents that ask before their own shell runs something, and the tickets that they get.

use crate::{Call, HttpRequest};
use countersign_model::{
    TaskState,
    api::{AfterAnswer, AfterBody, BeforeAnswer, BeforeBody, RedeemAnswer, RedeemBody},
};

/// Asks before an agent runs a command.
#[must_use]
pub fn before(body: &BeforeBody) -> Call<BeforeAnswer> {
    Call::json(HttpRequest::post(&["hooks", "before"]).json(body))
}

/// Says how a command went that the agent ran itself.
#[must_use]
pub fn after(body: &AfterBody) -> Call<AfterAnswer> {
    Call::json(HttpRequest::post(&["hooks", "after"]).json(body))
}

/// Has the command of a ticket run.
#[must_use]
pub fn redeem(ticket: &str, body: &RedeemBody) -> Call<RedeemAnswer> {
    Call::json(HttpRequest::post(&["tickets", ticket]).json(body))
}

/// The task that a ticket was redeemed for.
#[must_use]
pub fn redeemed(ticket: &str) -> Call<TaskState> {
    Call::json(HttpRequest::get(&["tickets", ticket]))
}
