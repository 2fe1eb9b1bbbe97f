//! HTTP/1.1 and server-sent events without a socket: bytes in, what they mean out. Both faces feed the same code.

pub(crate) mod answer;
pub(crate) mod request;
pub(crate) mod server_events;
