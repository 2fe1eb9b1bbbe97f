//! `/tasks/{id}/stdin`, `/resize`, `/signal`, `/cancel`.

use super::{
    Shared,
    extract::{MaybePayload, OncePayload, Segment},
    problem::HttpResult,
};
use crate::{caller::Caller, ops::control};
use axum::{Json, extract::State, http::StatusCode};
use countersign_model::api::{AppliedRecord, CancelBody, ResizeBody, SignalBody, StdinBody};

/// The operation was applied; this is its record.
type Accepted = (StatusCode, Json<AppliedRecord>);

fn accepted(applied: AppliedRecord) -> HttpResult<Accepted> {
    Ok((StatusCode::ACCEPTED, Json(applied)))
}

pub(crate) async fn cancel(
    State(front): Shared,
    caller: Caller,
    Segment(id): Segment,
    MaybePayload(body): MaybePayload<CancelBody>,
) -> HttpResult<Accepted> {
    accepted(control::cancel(&front.ops, &caller, &id, body).await?)
}

pub(crate) async fn signal(
    State(front): Shared,
    caller: Caller,
    Segment(id): Segment,
    payload: OncePayload<SignalBody>,
) -> HttpResult<Accepted> {
    let (body, once) = payload.into_parts();
    accepted(control::signal(&front.ops, &caller, &id, body, once.key()).await?)
}

pub(crate) async fn stdin(
    State(front): Shared,
    caller: Caller,
    Segment(id): Segment,
    payload: OncePayload<StdinBody>,
) -> HttpResult<Accepted> {
    let (body, once) = payload.into_parts();
    accepted(control::stdin(&front.ops, &caller, &id, body, once.key()).await?)
}

pub(crate) async fn resize(
    State(front): Shared,
    caller: Caller,
    Segment(id): Segment,
    payload: OncePayload<ResizeBody>,
) -> HttpResult<Accepted> {
    let (body, once) = payload.into_parts();
    accepted(control::resize(&front.ops, &caller, &id, body, once.key()).await?)
}
