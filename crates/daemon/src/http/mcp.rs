//! `/mcp`, `/mcp/session`, `/mcp/stdio`: MCP over HTTP. [`crate::mcp`] implements the protocol.

use super::{
    HttpState, SharedState,
    auth::ConnectionOrigin,
    extract::{Params, Payload},
    problem::{HttpResult, Problem},
};
use crate::{caller::Caller, mcp};
use axum::{
    Json, Router,
    extract::{ConnectInfo, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use countersign_model::{
    Refusal, RefusalCode,
    api::{McpSessionBody, McpSessionResponse, McpStdioQuery},
};
use hyper_util::rt::TokioIo;
use std::sync::Arc;

/// The header with the id of a conversation over HTTP.
const SESSION_ID_HEADER: &str = "mcp-session-id";

/// The route for MCP over HTTP, as a service of its own.
pub(super) fn router(front: &Arc<HttpState>) -> Router {
    let served = mcp::http_service(&front.ops, &front.mcp);
    let bound = middleware::from_fn_with_state(Arc::clone(front), bind_conversation);
    Router::new().route_service("/mcp", served).layer(bound)
}

/// A conversation over HTTP belongs to the credential that began it; it does not exist for others.
async fn bind_conversation(State(front): SharedState, caller: Caller, request: Request, next: Next) -> Response {
    let named = |headers: &HeaderMap| headers.get(SESSION_ID_HEADER).and_then(|v| v.to_str().ok()).map(str::to_owned);
    if let Some(id) = named(request.headers())
        && !front.mcp.owns(&caller, &id)
    {
        let refusal = Refusal::new(RefusalCode::NotFound, "this MCP session does not exist or has ended")
            .hint("begin a new one with `initialize`");
        return Problem::from(refusal).into_response();
    }
    let response = next.run(request).await;
    if let Some(id) = named(response.headers()) {
        front.mcp.remember_conversation(&caller, id);
    }
    response
}

/// Opens a session for a connection. The process that started it is registered as an agent.
pub(crate) async fn session(
    State(front): SharedState,
    caller: Caller,
    Payload(body): Payload<McpSessionBody>,
) -> HttpResult<Json<McpSessionResponse>> {
    Ok(Json(mcp::open_session(&front.ops, &front.mcp, &caller, body).await?))
}

/// Switches the connection to MCP, one message per line.
pub(crate) async fn stdio(
    State(front): SharedState,
    ConnectInfo(arrival): ConnectInfo<ConnectionOrigin>,
    caller: Caller,
    Params(query): Params<McpStdioQuery>,
    request: Request,
) -> HttpResult<Response> {
    let connected = mcp::connect(&front.ops, &front.mcp, &caller, &query.session, arrival.pid())?;
    if request.headers().get(header::UPGRADE).is_none_or(|v| v.as_bytes() != b"mcp") {
        return Err(Refusal::new(RefusalCode::BadRequest, "this path is only for the MCP bridge `csn mcp`")
            .hint("use /mcp for MCP over HTTP")
            .into());
    }
    tokio::spawn(async move {
        if let Ok(upgraded) = hyper::upgrade::on(request).await {
            connected.serve_stream(TokioIo::new(upgraded)).await;
        }
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("mcp"));
    Ok(response)
}
