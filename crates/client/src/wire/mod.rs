//! HTTP/1.1 and server-sent events without a socket: bytes in, what they mean out. Both faces feed the same code.

pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod server_events;
