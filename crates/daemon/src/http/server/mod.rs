//! Serves HTTP on incoming connections, within limits: their number, the time for a request to arrive, and the buffer
//! for a client that does not read.

mod connection_counter;
mod request_body;
mod slots;
mod stream;

use super::{
    HttpState,
    auth::{ConnectionOrigin, Transport},
    problem::Problem,
};
use crate::{
    descriptors::{DescriptorLoan, OutOfDescriptors},
    ops::{
        Ops,
        recognition::{SocketPeer, TcpPeer},
    },
};
use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    http::{Request, header},
    response::IntoResponse as _,
};
pub(crate) use connection_counter::ConnectionCounter;
use countersign_model::{CredentialKind, Refusal};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use request_body::{BodyFault, BodyFaultCell, RequestBody};
use slots::{ConnectionLimits, ConnectionSlot, ConnectionSlots};
use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use stream::DroppingStream;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener, UnixStream},
};
use tower_service::Service as _;

pub(crate) use request_body::MAX_BODY_BYTES;

/// The buffer of a connection in each direction: it holds the head of a request, or a piece of a stream.
const MAX_BUFFER_BYTES: usize = 16 * 1024;
/// How many open connections may be unauthenticated.
const MAX_UNRECOGNISED_CONNECTIONS: usize = 512;
/// How many connections another user of the machine may have.
const MAX_CONNECTIONS_PER_USER: usize = 256;
/// How long a listener waits when it cannot accept: nothing notifies it when descriptors are free again.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// An open connection.
pub(crate) struct Connection {
    slot: ConnectionSlot,
    upgraded: AtomicBool,
    /// It was accepted with reserved descriptors: short requests are answered, streams are refused.
    loan: Option<DescriptorLoan>,
    front: Arc<HttpState>,
}

impl Connection {
    fn open(front: &Arc<HttpState>, slot: ConnectionSlot, loan: Option<DescriptorLoan>) -> Arc<Self> {
        front.connection_counter.count_opened();
        Arc::new(Self { slot, upgraded: AtomicBool::new(false), loan, front: Arc::clone(front) })
    }

    /// Counts the connection as one of a recognised caller.
    pub(crate) fn recognise(&self, kind: CredentialKind) -> Result<(), Refusal> {
        self.slot.recognise(kind)
    }

    /// Whether the connection may stay open after the response, for events or another protocol.
    pub(crate) fn check_may_stay_open(&self) -> Result<(), OutOfDescriptors> {
        if self.loan.is_some() { Err(OutOfDescriptors) } else { Ok(()) }
    }

    /// Marks the connection as one of another protocol.
    pub(crate) fn mark_upgraded(&self) {
        self.upgraded.store(true, Ordering::Relaxed);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.front.connection_counter.count_closed();
    }
}

/// Serves the unix socket. Every user whom its mode admits may connect, and no user can block it for others.
pub(crate) async fn serve_unix(front: Arc<HttpState>, listener: UnixListener) {
    let router = front.router();
    let mut users: HashMap<u32, Arc<ConnectionSlots>> = HashMap::new();
    loop {
        let (stream, loan) = match accept(&front.ops, &listener).await {
            Ok(accepted) => accepted,
            Err(_) => {
                for slots in users.values() {
                    slots.drop_oldest();
                }
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                continue;
            }
        };
        let uid = stream.peer_cred().map_or(u32::MAX, |c| c.uid());
        let slots = users.entry(uid).or_insert_with(|| ConnectionSlots::new(limits_for_user(uid)));
        let connection = Connection::open(&front, slots.enter(), loan);
        let peer = Transport::Socket(SocketPeer::from_stream(&front.ops, &stream));
        let arrival = ConnectionOrigin { peer, connection: Arc::clone(&connection) };
        spawn(&front.ops, stream, arrival, connection, &router);
    }
}

/// The daemon's own user has no limit but the machine's: the kernel identifies it, and a burst of connections is no
/// reason to drop any.
fn limits_for_user(uid: u32) -> ConnectionLimits {
    let own = uid == rustix::process::geteuid().as_raw();
    let most = if own { usize::MAX } else { MAX_CONNECTIONS_PER_USER };
    ConnectionLimits { unrecognised: most, recognised: most }
}

/// The next connection, accepted with reserved descriptors if there are no others.
async fn accept(ops: &Ops, listener: &UnixListener) -> io::Result<(UnixStream, Option<DescriptorLoan>)> {
    ops.descriptors.fill();
    match listener.accept().await {
        Err(e) if OutOfDescriptors::matches(&e) => {
            let loan = ops.descriptors.lend().ok_or(e)?;
            let (stream, _) = listener.accept().await?;
            // Descriptors may be free again after the wait.
            Ok((stream, Some(loan).filter(|loan| !loan.is_repaid())))
        }
        accepted => Ok((accepted?.0, None)),
    }
}

/// Serves the loopback listener.
pub(crate) async fn serve_tcp(front: Arc<HttpState>, listener: TcpListener) {
    let router = front.router();
    let slots = ConnectionSlots::new(ConnectionLimits {
        unrecognised: MAX_UNRECOGNISED_CONNECTIONS,
        recognised: front.ops.config.http.connections,
    });
    loop {
        let (stream, peer_address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                if OutOfDescriptors::matches(&e) {
                    slots.drop_oldest();
                }
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let connection = Connection::open(&front, slots.enter(), None);
        let peer = Transport::Tcp(TcpPeer::new(peer_address, stream.local_addr().ok()));
        let arrival = ConnectionOrigin { peer, connection: Arc::clone(&connection) };
        spawn(&front.ops, stream, arrival, connection, &router);
        // Let open connections authenticate before the next one may displace them.
        tokio::task::yield_now().await;
    }
}

fn spawn<S>(ops: &Ops, stream: S, arrival: ConnectionOrigin, connection: Arc<Connection>, router: &Router)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let times = ops.config.http;
    let [head, body, stall] =
        [times.header_timeout_ms, times.body_timeout_ms, times.stall_timeout_ms].map(Duration::from_millis);
    let io = TokioIo::new(DroppingStream::new(stream, stall, Arc::clone(&connection)));
    let borrowed = connection.loan.is_some();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(MAX_BUFFER_BYTES).keep_alive(!borrowed);
    let router = router.clone();
    let answer = service_fn(move |request| handle_request(request, arrival.clone(), router.clone(), body));
    let served = http.serve_connection(io, answer).with_upgrades();
    tokio::spawn(async move {
        tokio::select! {
            _ = served => {}
            () = connection.slot.wait_until_dropped() => {}
            () = tokio::time::sleep(head), if borrowed => {}
        }
    });
}

async fn handle_request(
    request: Request<Incoming>,
    arrival: ConnectionOrigin,
    mut router: Router,
    timeout: Duration,
) -> Result<axum::response::Response, Infallible> {
    let fault = BodyFaultCell::default();
    let waits_for_leave = request.headers().contains_key(header::EXPECT);
    let body = |incoming| Body::new(RequestBody::new(incoming, waits_for_leave, timeout, fault.clone()));
    let mut request = request.map(body);
    request.extensions_mut().insert(ConnectInfo(arrival));
    let response = router.call(request).await?;
    // The handler only knows that the body could not be read; report the cause.
    Ok(match fault.get() {
        Some(fault @ (BodyFault::TooLarge | BodyFault::Late)) => Problem::from(fault.refusal()).into_response(),
        Some(BodyFault::Broken) | None => response,
    })
}
