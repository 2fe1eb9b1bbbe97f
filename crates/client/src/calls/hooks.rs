//! Agents that ask before their own shell runs something, and the tickets that they get.

use crate::{Call, HttpRequest};
use countersign_model::{
    TaskState,
    api::{HookAfterBody, HookAfterResponse, HookBeforeBody, HookBeforeResponse, RedeemBody, RedeemResponse},
};

/// Asks before an agent runs a command.
#[must_use]
pub fn before(body: &HookBeforeBody) -> Call<HookBeforeResponse> {
    Call::json(HttpRequest::post(&["hooks", "before"]).json(body))
}

/// Says how a command went that the agent ran itself.
#[must_use]
pub fn after(body: &HookAfterBody) -> Call<HookAfterResponse> {
    Call::json(HttpRequest::post(&["hooks", "after"]).json(body))
}

/// Has the command of a ticket run.
#[must_use]
pub fn redeem(ticket: &str, body: &RedeemBody) -> Call<RedeemResponse> {
    Call::json(HttpRequest::post(&["tickets", ticket]).json(body))
}

/// The task that a ticket was redeemed for.
#[must_use]
pub fn redeemed(ticket: &str) -> Call<TaskState> {
    Call::json(HttpRequest::get(&["tickets", ticket]))
}
