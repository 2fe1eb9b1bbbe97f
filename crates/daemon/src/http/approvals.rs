//! `/approvals`: requests that wait for a person, and the answers to them.

use super::{
    SharedState,
    extract::{Params, Payload, Segment},
    problem::HttpResult,
};
use crate::{caller::Caller, ops::answers};
use axum::{Json, extract::State};
use countersign_model::{
    Approval,
    api::{AnswerBody, ApprovalPage, ApprovalQuery},
};

pub(crate) async fn list(
    State(front): SharedState,
    caller: Caller,
    Params(query): Params<ApprovalQuery>,
) -> HttpResult<Json<ApprovalPage>> {
    Ok(Json(answers::list(&front.ops, &caller, query).await?))
}

pub(crate) async fn show(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
) -> HttpResult<Json<Approval>> {
    Ok(Json(answers::show(&front.ops, &caller, &id).await?))
}

pub(crate) async fn answer(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    Payload(body): Payload<AnswerBody>,
) -> HttpResult<Json<Approval>> {
    Ok(Json(answers::answer(&front.ops, &caller, &id, body).await?))
}
