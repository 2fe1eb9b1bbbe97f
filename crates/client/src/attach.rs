//! A task over a WebSocket: its screen and its input. One connection, no threads: a caller that waits for other things
//! as well polls its descriptor.

use crate::{Client, ClientError, HttpRequest, Result, transport::Connection};
use countersign_model::{
    TaskId,
    api::{AttachEvent, AttachMessage, AttachQuery, StreamRecord},
};
use serde::Deserialize;
use std::{
    borrow::Cow,
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd},
};
use tungstenite::{Message, WebSocket, client::client_with_config, http::Request, protocol::WebSocketConfig};

/// The maximum size of a message. The daemon sends smaller ones.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A message from the daemon.
#[derive(Debug)]
pub enum AttachedEvent {
    Record(Box<StreamRecord>),
    /// An event about the attachment itself.
    Attach(Box<AttachEvent>),
    /// The bytes of the previous output record, or the bytes that draw the screen.
    Bytes(Vec<u8>),
}

pub struct Attachment {
    socket: WebSocket<Connection>,
    /// Messages that the socket has not accepted yet.
    unsent: VecDeque<Message>,
    blocked: bool,
    /// The daemon has closed the connection.
    closed: bool,
}

impl Client {
    /// Attaches to a task.
    pub fn attach(&self, task: TaskId, query: &AttachQuery) -> Result<Attachment> {
        let stream = Connection::connect(self.address())?;
        let path = HttpRequest::get(&["tasks", &task.to_string(), "attach"]).query(query);
        let host = self.address().host();
        let mut request = Request::builder()
            .uri(format!("ws://{host}{}", path.target()))
            .header("host", host)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", tungstenite::handshake::client::generate_key());
        if let Some(authorization) = self.address().authorization() {
            request = request.header("authorization", authorization);
        }
        let request = request.body(()).map_err(ClientError::unreadable)?;
        let config = WebSocketConfig::default();
        let config = config.max_message_size(Some(MAX_MESSAGE_BYTES)).max_frame_size(Some(MAX_MESSAGE_BYTES));
        let (socket, _) = client_with_config(request, stream, Some(config)).map_err(|e| match e {
            tungstenite::HandshakeError::Failure(tungstenite::Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                ClientError::from_problem(response.status().as_u16(), body)
            }
            tungstenite::HandshakeError::Failure(e) => broken(e),
            other => ClientError::Broken(io::Error::other(other.to_string())),
        })?;
        socket.get_ref().set_nonblocking()?;
        Ok(Attachment { socket, unsent: VecDeque::new(), blocked: false, closed: false })
    }
}

impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

impl Attachment {
    /// Sends typed input.
    pub fn type_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.unsent.push_back(Message::binary(bytes.to_vec()));
        self.flush()
    }

    /// Sends keys, a size or a signal.
    pub fn send(&mut self, message: &AttachMessage) -> Result<()> {
        let text = serde_json::to_string(message).map_err(ClientError::unreadable)?;
        self.unsent.push_back(Message::text(text));
        self.flush()
    }

    /// Whether a message waits to be sent, so that the caller should also poll for writing.
    #[must_use]
    pub fn wants_to_write(&self) -> bool {
        self.blocked
    }

    /// Sends as much as the socket accepts.
    pub fn flush(&mut self) -> Result<()> {
        self.blocked = false;
        while let Some(message) = self.unsent.pop_front() {
            match self.socket.write(message) {
                Ok(()) => {}
                Err(tungstenite::Error::WriteBufferFull(message)) => {
                    self.unsent.push_front(*message);
                    self.blocked = true;
                    break;
                }
                Err(e) if would_block(&e) => {
                    self.blocked = true;
                    break;
                }
                Err(e) => return Err(broken(e)),
            }
        }
        match self.socket.flush() {
            Ok(()) => Ok(()),
            Err(e) if would_block(&e) => {
                self.blocked = true;
                Ok(())
            }
            Err(e) => Err(broken(e)),
        }
    }

    /// The next message, if one has arrived. A broken connection is [`ClientError::Broken`] with `UnexpectedEof`. If
    /// the daemon closed it properly, the result is `Ok(None)` and [`Attachment::is_over`] is true.
    pub fn next_message(&mut self) -> Result<Option<AttachedEvent>> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => match read_text(&text)? {
                    Some(attached) => return Ok(Some(attached)),
                    None => continue,
                },
                Ok(Message::Binary(bytes)) => return Ok(Some(AttachedEvent::Bytes(bytes.to_vec()))),
                Ok(Message::Close(_)) => self.closed = true,
                Ok(_) => {}
                Err(e) if would_block(&e) => return Ok(None),
                Err(tungstenite::Error::ConnectionClosed) => return Ok(None),
                // The daemon has already closed the connection, so an error in our own closing does not matter.
                Err(_) if self.closed => return Ok(None),
                Err(e) => return Err(broken(e)),
            }
        }
    }

    /// Whether the daemon has closed the connection properly.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.closed || !self.socket.can_read()
    }
}

/// Parses a record or an event; none for an event of a newer daemon.
fn read_text(text: &str) -> Result<Option<AttachedEvent>> {
    #[derive(Deserialize)]
    struct EventKind<'a> {
        #[serde(borrow)]
        kind: Cow<'a, str>,
    }
    const KNOWN_EVENTS: [&str; 5] =
        ["attach.begin", "attach.screen", "attach.tail", "attach.applied", "attach.refused"];
    let EventKind { kind } = serde_json::from_str(text).map_err(ClientError::unreadable)?;
    if !kind.starts_with("attach.") {
        let record = serde_json::from_str(text).map_err(ClientError::unreadable)?;
        return Ok(Some(AttachedEvent::Record(Box::new(record))));
    }
    if !KNOWN_EVENTS.contains(&&*kind) {
        return Ok(None);
    }
    let event = serde_json::from_str(text).map_err(ClientError::unreadable)?;
    Ok(Some(AttachedEvent::Attach(Box::new(event))))
}

fn would_block(error: &tungstenite::Error) -> bool {
    matches!(error, tungstenite::Error::Io(e) if e.kind() == io::ErrorKind::WouldBlock)
}

fn broken(error: tungstenite::Error) -> ClientError {
    match error {
        tungstenite::Error::Io(e) => ClientError::Broken(e),
        other => ClientError::Broken(io::Error::other(other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_events_are_parsed_and_unknown_events_are_ignored() {
        let record = r#"{"v":1,"seq":3,"at":"2026-11-16T02:09:48.000120Z","t_us":5,"kind":"pty.echo","on":false}"#;
        assert!(matches!(read_text(record), Ok(Some(AttachedEvent::Record(r))) if r.record.seq == 3));
        let event = r#"{"kind":"attach.applied","n":1,"seq":9}"#;
        let Ok(Some(AttachedEvent::Attach(event))) = read_text(event) else { panic!("an event") };
        assert_eq!(*event, AttachEvent::Applied { n: 1, seq: 9 });
        assert!(matches!(read_text(r#"{"kind":"attach.weather","says":"rain"}"#), Ok(None)));
        assert!(read_text("{").is_err());
    }
}
