//! `/tokens`: credentials for callers that do not use the socket.

use super::{
    SharedState,
    extract::{Payload, Segment},
    problem::HttpResult,
};
use crate::{caller::Caller, ops::tokens};
use axum::{Json, extract::State, http::StatusCode};
use countersign_model::api::{NewToken, TokenBody, TokenList, TokenView};

pub(crate) async fn list(State(front): SharedState, caller: Caller) -> HttpResult<Json<TokenList>> {
    Ok(Json(tokens::list(&front.ops, &caller)?))
}

pub(crate) async fn create(
    State(front): SharedState,
    caller: Caller,
    Payload(body): Payload<TokenBody>,
) -> HttpResult<(StatusCode, Json<NewToken>)> {
    Ok((StatusCode::CREATED, Json(tokens::create(&front.ops, &caller, body).await?)))
}

pub(crate) async fn revoke(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
) -> HttpResult<Json<TokenView>> {
    Ok(Json(tokens::revoke(&front.ops, &caller, &id).await?))
}
