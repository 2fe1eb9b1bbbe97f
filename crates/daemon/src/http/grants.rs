//! `/grants`: saved approvals.

use super::{
    SharedState,
    extract::{AnyPayload, Params, Payload, Segment},
    problem::{HttpResult, Problem},
};
use crate::{caller::Caller, ops::grants};
use axum::{Json, extract::State, http::StatusCode};
use countersign_model::api::{GrantBody, GrantPage, GrantQuery, GrantView};

pub(crate) async fn list(
    State(front): SharedState,
    caller: Caller,
    Params(query): Params<GrantQuery>,
) -> HttpResult<Json<GrantPage>> {
    Ok(Json(grants::list(&front.ops, &caller, query).await?))
}

pub(crate) async fn show(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
) -> HttpResult<Json<GrantView>> {
    Ok(Json(grants::show(&front.ops, &caller, &id).await?))
}

pub(crate) async fn add(
    State(front): SharedState,
    caller: Caller,
    body: Result<Payload<GrantBody>, Problem>,
) -> HttpResult<(StatusCode, Json<GrantView>)> {
    let explained = |problem: Problem| problem.explain("`directory` is missing", "give a path, or null for everywhere");
    let Payload(body) = body.map_err(explained)?;
    let (grant, new) = grants::add(&front.ops, &caller, body).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(grant)))
}

pub(crate) async fn revoke(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
) -> HttpResult<Json<GrantView>> {
    Ok(Json(grants::revoke(&front.ops, &caller, &id).await?))
}

pub(crate) async fn narrow(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    AnyPayload: AnyPayload,
) -> HttpResult<Json<GrantView>> {
    Ok(Json(grants::narrow(&front.ops, &caller, &id).await?))
}
