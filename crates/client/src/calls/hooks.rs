//! For agents whose hook asks before their own shell runs a command, and for the tickets that they get.

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

/// Reports the result of a command that the agent ran itself.
#[must_use]
pub fn after(body: &HookAfterBody) -> Call<HookAfterResponse> {
    Call::json(HttpRequest::post(&["hooks", "after"]).json(body))
}

/// Runs the command of a ticket.
#[must_use]
pub fn redeem(ticket: &str, body: &RedeemBody) -> Call<RedeemResponse> {
    Call::json(HttpRequest::post(&["tickets", ticket]).json(body))
}

/// The task of a redeemed ticket.
#[must_use]
pub fn ticket_task(ticket: &str) -> Call<TaskState> {
    Call::json(HttpRequest::get(&["tickets", ticket]))
}
