//! A connection that is dropped when the client reads nothing for too long; the client can reconnect with its cursor.

use super::Connection;
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

pub(crate) struct DroppingStream<S, C> {
    stream: S,
    timeout: Duration,
    /// Kept open with the stream. Protocols other than HTTP handle slow readers themselves.
    connection: C,
    /// Runs while the client reads nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// Whether a connection has switched to another protocol.
pub(crate) trait UpgradeState {
    fn is_upgraded(&self) -> bool;
}

impl UpgradeState for Arc<Connection> {
    fn is_upgraded(&self) -> bool {
        self.upgraded.load(Ordering::Relaxed)
    }
}

impl<S, C: UpgradeState> DroppingStream<S, C> {
    pub(crate) fn new(stream: S, timeout: Duration, connection: C) -> Self {
        Self { stream, timeout, connection, stalled: None }
    }

    /// The result of a write, or an error if nothing was read for too long.
    fn check_stalled<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() || self.connection.is_upgraded() {
            self.stalled = None;
            return written;
        }
        let timeout = self.timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin, C: Unpin> AsyncRead for DroppingStream<S, C> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin, C: UpgradeState + Unpin> AsyncWrite for DroppingStream<S, C> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.check_stalled(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.check_stalled(cx, written)
    }

    // Vectored writes send data from where it is, instead of copying it into one buffer per connection.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.check_stalled(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    impl UpgradeState for Arc<AtomicBool> {
        fn is_upgraded(&self) -> bool {
            self.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_dropped_and_a_slow_one_is_not() {
        let (ours, theirs) = tokio::io::duplex(4);
        let upgraded = Arc::new(AtomicBool::new(false));
        let mut stream = DroppingStream::new(ours, Duration::from_millis(1), Arc::clone(&upgraded));
        stream.write_all(b"1234").await.unwrap();
        assert_eq!(stream.write_all(b"5").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let (mut ours, mut theirs) = (stream, theirs);
        let mut four = [0; 4];
        theirs.read_exact(&mut four).await.unwrap();
        ours.write_all(b"5678").await.unwrap();
        assert_eq!(&four, b"1234");
        // An upgraded connection waits as long as its protocol allows.
        upgraded.store(true, Ordering::Relaxed);
        let waiting = tokio::spawn(async move { ours.write_all(b"9").await });
        theirs.read_exact(&mut four).await.unwrap();
        waiting.await.unwrap().unwrap();
    }
}
