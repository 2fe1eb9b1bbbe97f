//! HTTP/1.1 and server-sent events without a socket: bytes in, parsed values out. Both clients use this code.

pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod server_events;
