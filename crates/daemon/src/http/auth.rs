//! Authentication: every request passes here first. The route table states what each route requires.

use super::{
    HttpState,
    problem::Problem,
    routes::{self, Access, Route, WhileDraining},
    server::Connection,
    tcp,
};
use crate::caller::Caller;
use crate::ops::{
    Ops,
    recognition::{self, SocketPeer, TcpPeer},
};
use axum::{
    extract::{ConnectInfo, FromRequestParts, MatchedPath, Request, State},
    http::{HeaderMap, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use countersign_model::{CredentialScope, DaemonState, DisplaySafe, Refusal, RefusalCode};
use std::{sync::Arc, time::Duration};

/// How long a request waits for a daemon that is starting.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The other end of a connection.
#[derive(Clone)]
pub(crate) struct ConnectionOrigin {
    pub(crate) peer: Transport,
    pub(crate) connection: Arc<Connection>,
}

#[derive(Clone)]
pub(crate) enum Transport {
    Socket(SocketPeer),
    Tcp(TcpPeer),
}

impl ConnectionOrigin {
    /// The process at the other end, if the kernel reports it.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.peer {
            Transport::Socket(peer) => peer.pid(),
            Transport::Tcp(_) => None,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Arc<Caller>>().map(|caller| (**caller).clone());
        caller.ok_or_else(|| Refusal::new(RefusalCode::Internal, "the request has no recognised caller").into())
    }
}

/// Authenticates a request and passes it to its route.
pub(crate) async fn authenticate(
    State(front): State<Arc<HttpState>>,
    ConnectInfo(arrival): ConnectInfo<ConnectionOrigin>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let route = routes::find_route(request.method(), path.map(MatchedPath::as_str));
    let admitted = recognise_caller(&front.ops, &arrival, route, request.headers()).await;
    match admitted.and_then(|caller| check_query(route, request.uri().query()).map(|()| caller)) {
        Ok(Some(caller)) => {
            request.extensions_mut().insert(Arc::new(caller));
        }
        Ok(None) => {}
        Err(refusal) => return Problem::from(refusal).into_response(),
    }
    let response = next.run(request).await;
    if !stays_open(&response) {
        return response;
    }
    match arrival.connection.check_may_stay_open() {
        Ok(()) if response.status() == StatusCode::SWITCHING_PROTOCOLS => arrival.connection.mark_upgraded(),
        Ok(()) => {}
        Err(out) => return Problem::from(Refusal::from(out)).into_response(),
    }
    response
}

/// Whether a response may last as long as its reader.
fn stays_open(response: &Response) -> bool {
    let events = |v: &header::HeaderValue| v.as_bytes().starts_with(b"text/event-stream");
    response.status() == StatusCode::SWITCHING_PROTOCOLS
        || response.headers().get(header::CONTENT_TYPE).is_some_and(events)
}

/// Recognises the caller and checks the route's requirements. Public routes need no caller.
async fn recognise_caller(
    ops: &Arc<Ops>,
    arrival: &ConnectionOrigin,
    route: &Route,
    headers: &HeaderMap,
) -> Result<Option<Caller>, Refusal> {
    if let Transport::Tcp(_) = arrival.peer {
        tcp::check_host(headers)?;
    }
    let Access::Needs(scope) = route.access else { return Ok(None) };
    check_serving(ops, route).await?;
    let token = presented_token(headers);
    let mut caller = match &arrival.peer {
        Transport::Socket(peer) => {
            peer.add_new_user(ops).await?;
            match token {
                PresentedToken::None => peer.caller(ops, None)?,
                PresentedToken::Token(token) => peer.caller(ops, Some(token))?,
                // A person with an unreadable credential is not accepted as themselves.
                PresentedToken::Unreadable => peer.caller(ops, Some(""))?,
            }
        }
        Transport::Tcp(_) => match token {
            PresentedToken::Token(token) => recognition::caller_for_token(ops, token)?,
            PresentedToken::None | PresentedToken::Unreadable => return Err(recognition::invalid_token_refusal()),
        },
    };
    caller.require_scope(scope)?;
    let writes = scope != CredentialScope::Observe && route.while_draining != WhileDraining::AlwaysServed;
    if let (true, Some(why)) = (writes, ops.reading_only.why()) {
        return Err(Refusal::new(RefusalCode::LedgerUnavailable, why)
            .hint("nothing runs until the ledger is repaired (csn doctor); existing tasks and logs can be read"));
    }
    arrival.connection.recognise(caller.kind)?;
    if let Transport::Tcp(peer) = &arrival.peer {
        peer.check_holder(ops, route.request_kind, &mut caller).await?;
    }
    Ok(Some(caller))
}

/// A route without parameters refuses them instead of ignoring them.
fn check_query(route: &Route, query: Option<&str>) -> Result<(), Refusal> {
    let Some(first) = query.and_then(|q| form_urlencoded::parse(q.as_bytes()).next()) else { return Ok(()) };
    // Probes may send any parameters.
    if route.query.is_some() || !route.has_handler() || route.access == Access::Public {
        return Ok(());
    }
    let name = DisplaySafe::bounded(&first.0, 40);
    Err(Refusal::new(RefusalCode::BadRequest, format!("unknown parameter `{name}`: this path has no parameters")))
}

/// The credential of a request.
enum PresentedToken<'a> {
    None,
    Token(&'a str),
    /// A credential of another kind.
    Unreadable,
}

fn presented_token(headers: &HeaderMap) -> PresentedToken<'_> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return PresentedToken::None };
    let token = value.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
    token.map_or(PresentedToken::Unreadable, PresentedToken::Token)
}

/// While the daemon starts, requests wait; while it stops, it refuses new ones. Its state can always be read.
async fn check_serving(ops: &Ops, route: &Route) -> Result<(), Refusal> {
    if route.while_draining == WhileDraining::AlwaysServed {
        return Ok(());
    }
    let mut state = ops.state.subscribe();
    let up = |s: &DaemonState| !matches!(s, DaemonState::Boot | DaemonState::Recovering | DaemonState::Ready);
    let now = match tokio::time::timeout(STARTUP_TIMEOUT, state.wait_for(up)).await {
        Ok(Ok(state)) => *state,
        _ => {
            let refusal = Refusal::new(RefusalCode::Draining, "the daemon has not finished starting");
            return Err(refusal.hint("GET /readyz shows the reason"));
        }
    };
    if now == DaemonState::Running || route.while_draining == WhileDraining::Served {
        return Ok(());
    }
    Err(Refusal::new(RefusalCode::Draining, "the daemon is stopping and accepts no new requests")
        .hint("pending approvals and queued tasks stay; try again when the daemon runs"))
}
