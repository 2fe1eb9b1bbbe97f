//! Bodies that are not one JSON value: streams of bytes, and JSON that was rendered before.

use crate::ops::output::ByteStream;
use axum::{
    body::Body,
    http::header,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use std::{
    convert::Infallible,
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::sync::mpsc;

/// JSON that was rendered before.
pub(crate) fn json_bytes(json: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

/// The bytes of a channel; an error ends the body early.
pub(crate) fn stream_body(receive: ByteStream) -> Body {
    Body::from_stream(FallibleBytes(receive))
}

/// The server-sent events of a channel.
pub(crate) fn event_response(receive: mpsc::Receiver<Bytes>) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(InfallibleBytes(receive))).into_response()
}

struct FallibleBytes(ByteStream);

impl futures_core::Stream for FallibleBytes {
    type Item = io::Result<Bytes>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}

struct InfallibleBytes(mpsc::Receiver<Bytes>);

impl futures_core::Stream for InfallibleBytes {
    type Item = Result<Bytes, Infallible>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|piece| piece.map(Ok))
    }
}
