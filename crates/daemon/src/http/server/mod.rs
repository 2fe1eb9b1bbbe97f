//! Serves HTTP on the connections that come in, each within bounds: how many there are, how long a request may take to
//! arrive, how much is kept for a reader that does not read.

mod request_body;
mod slots;
mod stream;
mod user_limits;

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
pub(crate) use user_limits::UserLimits;

pub(crate) use request_body::MAX_BODY;

/// How much is kept of what a connection sends and is sent: the head of a request fits, and a piece of a stream.
const MAX_BUFFERED: usize = 16 * 1024;
/// How many connections may be open that have not said who they are.
const MAX_UNRECOGNISED: usize = 512;
/// How many connections another user of the machine may have.
const MAX_OF_USER: usize = 256;
/// How long a door waits that could not take a connection: nothing tells when there is room again.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection, for as long as it is open.
pub(crate) struct Connection {
    slot: ConnectionSlot,
    upgraded: AtomicBool,
    /// It came in on the reserve: what is short is answered, what goes on is not begun.
    loan: Option<DescriptorLoan>,
    front: Arc<HttpState>,
}

impl Connection {
    fn open(front: &Arc<HttpState>, slot: ConnectionSlot, loan: Option<DescriptorLoan>) -> Arc<Self> {
        front.crowd.comes();
        Arc::new(Self { slot, upgraded: AtomicBool::new(false), loan, front: Arc::clone(front) })
    }

    /// Who has it is known from now on.
    pub(crate) fn recognise(&self, kind: CredentialKind) -> Result<(), Refusal> {
        self.slot.recognise(kind)
    }

    /// Whether it may go on after its answer: a stream of events, another protocol.
    pub(crate) fn may_go_on(&self) -> Result<(), OutOfDescriptors> {
        if self.loan.is_some() { Err(OutOfDescriptors) } else { Ok(()) }
    }

    /// It speaks another protocol from now on.
    pub(crate) fn upgrade(&self) {
        self.upgraded.store(true, Ordering::Relaxed);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.front.crowd.goes();
    }
}

/// The unix socket: everybody whom its mode lets in may knock, and nobody may stand in it alone.
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
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let uid = stream.peer_cred().map_or(u32::MAX, |c| c.uid());
        let slots = users.entry(uid).or_insert_with(|| ConnectionSlots::new(bounds_of_user(uid)));
        let connection = Connection::open(&front, slots.enter(), loan);
        let peer = Transport::Socket(SocketPeer::of(&front.ops, &stream));
        let arrival = ConnectionOrigin { peer, connection: Arc::clone(&connection) };
        spawn(&front.ops, stream, arrival, connection, &router);
    }
}

/// The daemon's own user is bounded by what the machine has alone: the kernel says who it is, and a burst of many is no
/// reason to drop any.
fn bounds_of_user(uid: u32) -> ConnectionLimits {
    let own = uid == rustix::process::geteuid().as_raw();
    let most = if own { usize::MAX } else { MAX_OF_USER };
    ConnectionLimits { unrecognised: most, recognised: most }
}

/// The next connection, with a loan of the reserve where there is no other way.
async fn accept(ops: &Ops, listener: &UnixListener) -> io::Result<(UnixStream, Option<DescriptorLoan>)> {
    ops.descriptors.fill();
    match listener.accept().await {
        Err(e) if OutOfDescriptors::is_it(&e) => {
            let loan = ops.descriptors.lend().ok_or(e)?;
            let (stream, _) = listener.accept().await?;
            // What is scarce may have come back while it was waited for.
            Ok((stream, Some(loan).filter(|loan| !loan.is_repaid())))
        }
        accepted => Ok((accepted?.0, None)),
    }
}

/// The door on loopback.
pub(crate) async fn serve_tcp(front: Arc<HttpState>, listener: TcpListener) {
    let router = front.router();
    let slots = ConnectionSlots::new(ConnectionLimits {
        unrecognised: MAX_UNRECOGNISED,
        recognised: front.ops.config.http.connections,
    });
    loop {
        let (stream, theirs) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                if OutOfDescriptors::is_it(&e) {
                    slots.drop_oldest();
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let connection = Connection::open(&front, slots.enter(), None);
        let peer = Transport::Tcp(TcpPeer::new(theirs, stream.local_addr().ok()));
        let arrival = ConnectionOrigin { peer, connection: Arc::clone(&connection) };
        spawn(&front.ops, stream, arrival, connection, &router);
        // Those who have come say who they are before the next one may take their place.
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
    http.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(MAX_BUFFERED).keep_alive(!borrowed);
    let router = router.clone();
    let answer = service_fn(move |request| answer(request, arrival.clone(), router.clone(), body));
    let served = http.serve_connection(io, answer).with_upgrades();
    tokio::spawn(async move {
        tokio::select! {
            _ = served => {}
            () = connection.slot.dropped() => {}
            () = tokio::time::sleep(head), if borrowed => {}
        }
    });
}

async fn answer(
    request: Request<Incoming>,
    arrival: ConnectionOrigin,
    mut router: Router,
    patience: Duration,
) -> Result<axum::response::Response, Infallible> {
    let fault = BodyFaultCell::default();
    let waits_for_leave = request.headers().contains_key(header::EXPECT);
    let body = |incoming| Body::new(RequestBody::new(incoming, waits_for_leave, patience, fault.clone()));
    let mut request = request.map(body);
    request.extensions_mut().insert(ConnectInfo(arrival));
    let response = router.call(request).await?;
    // Whoever read the body knows only that it came to nothing.
    Ok(match fault.get() {
        Some(fault @ (BodyFault::TooLarge | BodyFault::Late)) => Problem::from(fault.refusal()).into_response(),
        Some(BodyFault::Broken) | None => response,
    })
}
