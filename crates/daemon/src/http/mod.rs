//! HTTP on the unix socket, and on loopback for callers with a token. Handlers parse, call [`crate::ops`] and render;
//! they never decide and keep no state. Nothing outside of this module names axum.

mod approvals;
mod attach;
mod auth;
mod body;
mod control;
mod events;
mod extract;
mod feed;
mod grants;
mod hooks;
mod lifecycle;
mod mcp;
mod openapi;
mod problem;
mod receipts;
mod routes;
mod server;
mod sessions;
mod tasks;
pub(crate) mod tcp;
mod tokens;

use crate::{mcp::Connections, ops::Ops};
use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    middleware,
};
use countersign_model::{Refusal, RefusalCode};
use problem::Problem;
use server::ConnectionCounter;
pub(crate) use server::serve_unix;
use std::sync::Arc;

type SharedState = State<Arc<HttpState>>;

/// The state of the HTTP surface, besides the operations that it calls.
pub(crate) struct HttpState {
    pub(crate) ops: Arc<Ops>,
    /// Counts the open connections.
    connection_counter: ConnectionCounter,
    /// The state of MCP connections.
    mcp: Arc<Connections>,
}

impl HttpState {
    pub(crate) fn new(ops: Arc<Ops>) -> Arc<Self> {
        Arc::new(Self { ops, connection_counter: ConnectionCounter::default(), mcp: Arc::default() })
    }

    /// All routes, behind authentication.
    fn router(self: &Arc<Self>) -> Router {
        let door = middleware::from_fn_with_state(Arc::clone(self), auth::authenticate);
        routes::router()
            .fallback(unknown_path)
            .method_not_allowed_fallback(unsupported_method)
            .layer(DefaultBodyLimit::max(server::MAX_BODY_BYTES as usize))
            .with_state(Arc::clone(self))
            .merge(mcp::router(self))
            .layer(door)
    }
}

async fn unknown_path() -> Problem {
    Refusal::new(RefusalCode::NotFound, "this path does not exist").hint("GET /openapi.json lists the routes").into()
}

async fn unsupported_method() -> Problem {
    Refusal::new(RefusalCode::MethodNotAllowed, "this path does not support this method")
        .hint("GET /openapi.json lists the methods of each path")
        .into()
}
