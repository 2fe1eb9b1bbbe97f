//! The body of a request: within the size limit and in time. An unread rest is still drained from the connection, up to
//! a limit, so that a client that sends before it reads gets the response and not a reset.

use axum::body::{Bytes, HttpBody};
use countersign_model::{Refusal, RefusalCode};
use hyper::body::{Frame, Incoming, SizeHint};
use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Sleep;

/// The maximum size of a body, in bytes.
pub(crate) const MAX_BODY_BYTES: u64 = 4 * 1024 * 1024;
/// How many bytes of an unread body are drained.
const MAX_DRAINED_BYTES: u64 = 64 * 1024 * 1024;

/// Why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyFault {
    #[error("the body is larger than 4 MiB")]
    TooLarge,
    #[error("the body did not arrive in time")]
    Late,
    #[error("the connection broke while the body was sent")]
    Broken,
}

impl BodyFault {
    pub(crate) fn refusal(self) -> Refusal {
        match self {
            Self::TooLarge => Refusal::new(RefusalCode::TooLarge, self.to_string()).hint("a body has at most 4 MiB"),
            Self::Late => Refusal::new(RefusalCode::RequestTimeout, self.to_string())
                .hint("send the body without a pause, or raise `body_timeout_ms` below [http] in config.toml"),
            Self::Broken => Refusal::new(RefusalCode::BadRequest, self.to_string()),
        }
    }
}

/// The fault of a body, for the code that responds to the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct BodyFaultCell(Arc<Mutex<Option<BodyFault>>>);

impl BodyFaultCell {
    pub(crate) fn get(&self) -> Option<BodyFault> {
        *crate::lock(&self.0)
    }

    fn set(&self, fault: BodyFault) -> BodyFault {
        *crate::lock(&self.0) = Some(fault);
        fault
    }
}

pub(crate) struct RequestBody {
    /// None once it has ended or failed.
    incoming: Option<Incoming>,
    read: u64,
    /// Runs from the first time that the daemon waits for data.
    deadline: Option<Pin<Box<Sleep>>>,
    timeout: Duration,
    /// The client sends the body only after the daemon begins to read it (`Expect: 100-continue`).
    expects_continue: bool,
    fault: BodyFaultCell,
}

impl RequestBody {
    pub(crate) fn new(incoming: Incoming, waits_for_leave: bool, timeout: Duration, fault: BodyFaultCell) -> Self {
        Self { incoming: Some(incoming), read: 0, deadline: None, timeout, expects_continue: waits_for_leave, fault }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let this = self.get_mut();
        let Some(incoming) = &mut this.incoming else { return Poll::Ready(None) };
        if this.read + incoming.size_hint().lower() > MAX_BODY_BYTES {
            return Poll::Ready(Some(Err(this.fault.set(BodyFault::TooLarge))));
        }
        this.expects_continue = false;
        match Pin::new(incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.read += frame.data_ref().map_or(0, |data| data.len() as u64);
                if this.read > MAX_BODY_BYTES {
                    return Poll::Ready(Some(Err(this.fault.set(BodyFault::TooLarge))));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(_))) => {
                this.incoming = None;
                Poll::Ready(Some(Err(this.fault.set(BodyFault::Broken))))
            }
            Poll::Ready(None) => {
                this.incoming = None;
                Poll::Ready(None)
            }
            Poll::Pending => {
                let timeout = this.timeout;
                let deadline = this.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
                if deadline.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.incoming = None;
                Poll::Ready(Some(Err(this.fault.set(BodyFault::Late))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Some(incoming) = self.incoming.take() else { return };
        if incoming.is_end_stream() || self.expects_continue {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(tokio::time::timeout(self.timeout, drain(incoming)));
        }
    }
}

/// Reads and discards the rest of a body while the response is sent.
async fn drain(mut incoming: Incoming) {
    let mut left = MAX_DRAINED_BYTES;
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await {
        let Some(less) = left.checked_sub(frame.data_ref().map_or(0, |data| data.len() as u64)) else { return };
        left = less;
    }
}
