//! The door of a house of the machine: everybody may knock, and nobody may stand in it alone.

use axum::serve::Listener;
use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{
        UnixListener, UnixStream,
        unix::{SocketAddr, UCred},
    },
};

/// So many connections of one user at once; what comes beyond is hung up on. The house's own user has no bound.
const MOST: usize = 256;

type Counts = Arc<Mutex<HashMap<u32, usize>>>;

/// A listener that knows how many of whom are in.
pub(crate) struct Door {
    listener: UnixListener,
    inside: Counts,
}

/// A connection that is counted until it ends.
pub(crate) struct Visit {
    stream: UnixStream,
    uid: u32,
    inside: Counts,
}

impl Door {
    pub(crate) fn new(listener: UnixListener) -> Self {
        Self { listener, inside: Counts::default() }
    }

    /// Counts one more of this user, if there may be one more.
    fn enters(&self, uid: u32) -> bool {
        let mut inside = self.inside.lock().expect("nothing panics while it holds this lock");
        let count = inside.entry(uid).or_default();
        let enters = *count < MOST || uid == rustix::process::geteuid().as_raw();
        *count += usize::from(enters);
        enters
    }
}

impl Listener for Door {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let uid = stream.peer_cred().map_or(u32::MAX, |c| c.uid());
                    if self.enters(uid) {
                        return (Visit { stream, uid, inside: Arc::clone(&self.inside) }, address);
                    }
                }
                // Out of descriptors, most likely: there is nothing to wait for but time.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Visit {
    pub(crate) fn peer(&self) -> Option<UCred> {
        self.stream.peer_cred().ok()
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut inside = self.inside.lock().expect("nothing panics while it holds this lock");
        match inside.get_mut(&self.uid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(inside.remove(&self.uid)),
        }
    }
}

impl AsyncRead for Visit {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Visit {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
