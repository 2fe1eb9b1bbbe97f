//! `/hooks` and `/tickets`: agents that ask before their own shell runs a command.

use super::{
    SharedState,
    extract::{Payload, Segment},
    problem::HttpResult,
};
use crate::{caller::Caller, ops::tickets};
use axum::{Json, extract::State};
use countersign_model::{
    TaskState,
    api::{HookAfterBody, HookAfterResponse, HookBeforeBody, HookBeforeResponse, RedeemBody, RedeemResponse},
};

pub(crate) async fn before(
    State(front): SharedState,
    caller: Caller,
    Payload(body): Payload<HookBeforeBody>,
) -> HttpResult<Json<HookBeforeResponse>> {
    Ok(Json(tickets::hook_before(&front.ops, &caller, body).await?))
}

pub(crate) async fn after(
    State(front): SharedState,
    caller: Caller,
    Payload(body): Payload<HookAfterBody>,
) -> HttpResult<Json<HookAfterResponse>> {
    Ok(Json(tickets::hook_after(&front.ops, &caller, body).await?))
}

pub(crate) async fn redeem(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    Payload(body): Payload<RedeemBody>,
) -> HttpResult<Json<RedeemResponse>> {
    Ok(Json(tickets::redeem(&front.ops, &caller, &id, body).await?))
}

pub(crate) async fn redeemed(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
) -> HttpResult<Json<TaskState>> {
    Ok(Json(tickets::task_of_ticket(&front.ops, &caller, &id)?))
}
