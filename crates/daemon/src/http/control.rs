//! `/tasks/{id}/stdin`, `/resize`, `/signal`, `/cancel`.

use super::{
    SharedState,
    extract::{MaybePayload, OncePayload, Segment},
    problem::HttpResult,
};
use crate::{caller::Caller, ops::control};
use axum::{Json, extract::State, http::StatusCode};
use countersign_model::api::{AppliedRecord, CancelBody, ResizeBody, SignalBody, StdinBody};

/// The operation was applied; this is its record.
type AppliedResponse = (StatusCode, Json<AppliedRecord>);

fn accepted(applied: AppliedRecord) -> HttpResult<AppliedResponse> {
    Ok((StatusCode::ACCEPTED, Json(applied)))
}

pub(crate) async fn cancel(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    MaybePayload(body): MaybePayload<CancelBody>,
) -> HttpResult<AppliedResponse> {
    accepted(control::cancel(&front.ops, &caller, &id, body).await?)
}

pub(crate) async fn signal(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    payload: OncePayload<SignalBody>,
) -> HttpResult<AppliedResponse> {
    let (body, once) = payload.into_parts();
    accepted(control::signal(&front.ops, &caller, &id, body, once.key()).await?)
}

pub(crate) async fn stdin(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    payload: OncePayload<StdinBody>,
) -> HttpResult<AppliedResponse> {
    let (body, once) = payload.into_parts();
    accepted(control::stdin(&front.ops, &caller, &id, body, once.key()).await?)
}

pub(crate) async fn resize(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    payload: OncePayload<ResizeBody>,
) -> HttpResult<AppliedResponse> {
    let (body, once) = payload.into_parts();
    accepted(control::resize(&front.ops, &caller, &id, body, once.key()).await?)
}
