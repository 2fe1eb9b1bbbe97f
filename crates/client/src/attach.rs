//! A task over a WebSocket: what it shows, and what is typed into it. One connection, no threads: whoever has other
//! things to wait for polls its descriptor.

use crate::{Client, ClientError, Result, http, problem_of};
use countersign_model::TaskId;
use std::{
    collections::VecDeque,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};
use tungstenite::{Message, WebSocket, client::client_with_config, http::Request, protocol::WebSocketConfig};

/// What comes from the house.
#[derive(Debug)]
pub enum Attached {
    /// A record of the stream, or a word about the attachment (`attach.…`), as JSON.
    Line(String),
    /// The bytes of the output record before, or what draws the screen.
    Bytes(Vec<u8>),
}

/// How to attach.
#[derive(Debug, Clone, Default)]
pub struct AttachOptions {
    pub read_only: bool,
    /// When far behind, see the screen as it is instead of all that led to it.
    pub skip: bool,
    /// From the record after this one on, instead of the screen as it is.
    pub after: Option<u64>,
    /// Names this client across connections, so that what it sends again is applied once.
    pub key: Option<String>,
    /// The number of the first message that will be sent.
    pub from: u64,
}

pub struct Attachment {
    socket: WebSocket<UnixStream>,
    /// What the socket did not take yet.
    unsent: VecDeque<Message>,
    blocked: bool,
    /// The house has closed the conversation.
    closed: bool,
}

impl Client {
    /// Attaches to a task.
    pub fn attach(&self, task: TaskId, options: &AttachOptions) -> Result<Attachment> {
        let stream =
            http::connect(&self.socket).map_err(|error| ClientError::NoHouse { socket: self.socket.clone(), error })?;
        let mut uri = format!(
            "ws://countersign/tasks/{task}/attach?read_only={}&from={}&skip={}",
            options.read_only, options.from, options.skip
        );
        if let Some(after) = options.after {
            uri += &format!("&after={after}");
        }
        if let Some(key) = &options.key {
            uri += &format!("&key={key}");
        }
        let request = Request::builder()
            .uri(uri)
            .header("host", "countersign")
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", tungstenite::handshake::client::generate_key())
            .body(())
            .map_err(|e| ClientError::Strange(e.to_string()))?;
        let config = WebSocketConfig::default().max_message_size(Some(64 << 20)).max_frame_size(Some(64 << 20));
        let (socket, _) = client_with_config(request, stream, Some(config)).map_err(|e| match e {
            tungstenite::HandshakeError::Failure(tungstenite::Error::Http(response)) => {
                let status = response.status().as_u16();
                problem_of(status, response.body().as_deref().unwrap_or_default())
            }
            tungstenite::HandshakeError::Failure(tungstenite::Error::Io(e)) => ClientError::Broken(e),
            other => ClientError::Broken(io::Error::other(other.to_string())),
        })?;
        socket.get_ref().set_nonblocking(true)?;
        Ok(Attachment { socket, unsent: VecDeque::new(), blocked: false, closed: false })
    }
}

impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

impl Attachment {
    /// Input as it was typed.
    pub fn type_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.unsent.push_back(Message::binary(bytes.to_vec()));
        self.flush()
    }

    /// A wish: `{"resize": …}`, `{"stdin": …}`, `{"signal": …}`.
    pub fn wish(&mut self, wish: &serde_json::Value) -> Result<()> {
        self.unsent.push_back(Message::text(wish.to_string()));
        self.flush()
    }

    /// Whether something waits to be sent, so that the descriptor is of interest when it can be written to as well.
    #[must_use]
    pub fn wants_to_write(&self) -> bool {
        self.blocked
    }

    /// Sends what the socket takes.
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

    /// The next thing that has come; none when nothing has. The end of the conversation is [`ClientError::Broken`] with
    /// `UnexpectedEof` unless the house closed it in order: then `Ok(None)` and [`Attachment::is_over`].
    pub fn next_message(&mut self) -> Result<Option<Attached>> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => return Ok(Some(Attached::Line(text.as_str().to_owned()))),
                Ok(Message::Binary(bytes)) => return Ok(Some(Attached::Bytes(bytes.to_vec()))),
                Ok(Message::Close(_)) => self.closed = true,
                Ok(_) => {}
                Err(e) if would_block(&e) => return Ok(None),
                Err(tungstenite::Error::ConnectionClosed) => return Ok(None),
                // The house has said its last word; that ours did not reach it matters to nobody.
                Err(_) if self.closed => return Ok(None),
                Err(e) => return Err(broken(e)),
            }
        }
    }

    /// Whether the house has closed the conversation in order.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.closed || !self.socket.can_read()
    }
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
