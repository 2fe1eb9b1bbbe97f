//! HTTP on the unix socket, and on loopback for those who have a token. Handlers parse, call [`crate::ops`] and render;
//! they never decide or remember. Nothing outside of this module names axum.

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
use server::UserLimits;
pub(crate) use server::serve_unix;
use std::sync::Arc;

type Shared = State<Arc<HttpState>>;

/// What the HTTP surface keeps beside the operations that it calls.
pub(crate) struct HttpState {
    pub(crate) ops: Arc<Ops>,
    /// How many connections there are.
    crowd: UserLimits,
    /// What MCP connections are known by.
    mcp: Arc<Connections>,
}

impl HttpState {
    pub(crate) fn new(ops: Arc<Ops>) -> Arc<Self> {
        Arc::new(Self { ops, crowd: UserLimits::default(), mcp: Arc::default() })
    }

    /// Every route, and the door before them.
    fn router(self: &Arc<Self>) -> Router {
        let door = middleware::from_fn_with_state(Arc::clone(self), auth::arrive);
        routes::router()
            .fallback(nowhere)
            .method_not_allowed_fallback(not_that_way)
            .layer(DefaultBodyLimit::max(server::MAX_BODY as usize))
            .with_state(Arc::clone(self))
            .merge(mcp::router(self))
            .layer(door)
    }
}

async fn nowhere() -> Problem {
    Refusal::new(RefusalCode::NotFound, "there is nothing at this address")
        .hint("see docs/api.md for the routes")
        .into()
}

async fn not_that_way() -> Problem {
    Refusal::new(RefusalCode::MethodNotAllowed, "this address does not take this method").hint("see docs/api.md").into()
}
