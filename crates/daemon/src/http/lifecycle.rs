//! `/lifecycle`, `/listen`, `/gc`, `/ledger`, `/livez`, `/readyz`: the daemon itself.

use super::{
    SharedState,
    extract::{MaybePayload, Payload},
    problem::HttpResult,
    tcp,
};
use crate::{caller::Caller, ops::lifecycle};
use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use countersign_model::{
    CredentialScope,
    api::{GcBody, GcReport, IndexRebuilt, Lifecycle, ListenBody, ListenResponse, RebuildBody, StopBody, StopResponse},
};

pub(crate) async fn show(State(front): SharedState, caller: Caller) -> HttpResult<Json<Lifecycle>> {
    Ok(Json(lifecycle::show(&front.ops, &caller).await?))
}

/// Starts to listen on loopback, for callers with a token. Listeners belong to this surface, so this is no operation.
pub(crate) async fn listen(
    State(front): SharedState,
    caller: Caller,
    MaybePayload(body): MaybePayload<ListenBody>,
) -> HttpResult<Json<ListenResponse>> {
    caller.require_scope(CredentialScope::Admin)?;
    let wanted = body.tcp.unwrap_or(tcp::DEFAULT_ADDRESS);
    Ok(Json(ListenResponse { tcp: tcp::start_listener(&front, wanted).await? }))
}

pub(crate) async fn stop(
    State(front): SharedState,
    caller: Caller,
    Payload(body): Payload<StopBody>,
) -> HttpResult<(StatusCode, Json<StopResponse>)> {
    Ok((StatusCode::ACCEPTED, Json(lifecycle::stop(&front.ops, &caller, body)?)))
}

pub(crate) async fn gc(
    State(front): SharedState,
    caller: Caller,
    MaybePayload(body): MaybePayload<GcBody>,
) -> HttpResult<Json<GcReport>> {
    Ok(Json(lifecycle::gc(&front.ops, &caller, body).await?))
}

pub(crate) async fn rebuild(
    State(front): SharedState,
    caller: Caller,
    Payload(body): Payload<RebuildBody>,
) -> HttpResult<Json<IndexRebuilt>> {
    Ok(Json(lifecycle::rebuild(&front.ops, &caller, body).await?))
}

pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

pub(crate) async fn ready(State(front): SharedState) -> Response {
    let readiness = lifecycle::readiness(&front.ops);
    if readiness.ready {
        return Json(readiness).into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], Json(readiness)).into_response()
}
