//! `/sessions`: conversations, their directories and roots.

use super::{
    SharedState,
    extract::{MaybePayload, Params, Payload, Segment},
    problem::HttpResult,
};
use crate::{caller::Caller, ops::sessions};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use countersign_model::api::{DirectoryBody, OpenSessionBody, SessionEnd, SessionMove, SessionPage, SessionQuery};

pub(crate) async fn list(
    State(front): SharedState,
    caller: Caller,
    Params(query): Params<SessionQuery>,
) -> HttpResult<Json<SessionPage>> {
    Ok(Json(sessions::list(&front.ops, &caller, query)?))
}

pub(crate) async fn show(State(front): SharedState, caller: Caller, Segment(id): Segment) -> HttpResult<Response> {
    Ok(Json(&*sessions::show(&front.ops, &caller, &id)?).into_response())
}

pub(crate) async fn open(
    State(front): SharedState,
    caller: Caller,
    MaybePayload(body): MaybePayload<OpenSessionBody>,
) -> HttpResult<Response> {
    let (session, new) = sessions::open(&front.ops, &caller, body).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(&*session)).into_response())
}

pub(crate) async fn set_directory(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    Payload(body): Payload<DirectoryBody>,
) -> HttpResult<Response> {
    Ok(match sessions::set_directory(&front.ops, &caller, &id, body).await? {
        SessionMove::There(session) => Json(session).into_response(),
        SessionMove::Asked(task) => (StatusCode::ACCEPTED, Json(task)).into_response(),
    })
}

pub(crate) async fn end(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
) -> HttpResult<Json<SessionEnd>> {
    Ok(Json(sessions::end(&front.ops, &caller, &id).await?))
}
