//! The messages between the daemon and a shim: a length, then JSON. They carry control and notifications, never output.

use crate::terminal::ScreenSnapshot;
use countersign_model::{
    Digest, Idempotency, JournalEnd, KeyPress, KilledWhy, Order, Refusal, SignalName, TaskId, Text,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};

/// The protocol version that each side sends first.
pub const PROTOCOL: u32 = 3;
/// The largest message. An order is the largest kind: it carries a command and an environment.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToShim {
    /// Sent once, over the inherited channel.
    Order(Box<Order>),
    /// The first message on the control socket: only the shim's own daemon knows the secret.
    Hello {
        protocol: u32,
        secret: Digest,
    },
    Signal {
        re: u64,
        signal: SignalName,
        by: Text,
        key: Option<Idempotency>,
    },
    Input {
        re: u64,
        input: TypedInput,
        by: Text,
        key: Option<Idempotency>,
    },
    Resize {
        re: u64,
        rows: u16,
        cols: u16,
        by: Text,
        key: Option<Idempotency>,
    },
    /// Requests the screen of the terminal.
    Screen {
        re: u64,
    },
    Cancel {
        re: u64,
        by: Text,
        reason: Option<Text>,
        /// Cancelled on request, because the daemon stops, or because the session has ended.
        why: KilledWhy,
    },
}

/// Input for the task.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TypedInput {
    Text {
        text: String,
        eof: bool,
    },
    /// Bytes that are not UTF-8 text.
    Bytes {
        bytes: Vec<u8>,
        eof: bool,
    },
    Keys(Vec<KeyPress>),
    /// Pasted text: marked as such if the program has requested bracketed paste.
    Paste(String),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromShim {
    Hello {
        protocol: u32,
        version: String,
        pid: u32,
        task: Option<TaskId>,
    },
    /// The journal has new frames.
    More,
    /// Secrets that the task has shown. Later tasks of its session redact them, too; they are never stored.
    Learned {
        secrets: Vec<String>,
    },
    /// The control operation `re` is recorded as frame `seq`.
    Applied {
        re: u64,
        seq: u64,
    },
    /// The screen, up to byte `offset` of the terminal's stream and frame `next_seq`.
    Screen {
        re: u64,
        screen: Box<ScreenSnapshot>,
        offset: u64,
        next_seq: u64,
    },
    Refused {
        re: u64,
        refusal: Refusal,
    },
    /// The journal is closed with this end.
    Closed(JournalEnd),
    /// Nothing was started, and the shim has written no journal.
    NotStarted {
        error: Text,
        code: i32,
    },
}

/// Encodes a message.
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message).map_err(io::Error::other)?;
    let len = bytes.len() - 4;
    if len > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message exceeds 16 MiB and cannot be sent"));
    }
    bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(bytes)
}

pub fn send<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&encode(message)?)
}

/// Blocks until one message has arrived.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut inbox = MessageReader::default();
    loop {
        if let Some(message) = inbox.next_message()? {
            return Ok(message);
        }
        let mut buf = vec![0; inbox.missing_bytes()];
        match from.read(&mut buf) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => inbox.feed(&buf[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Assembles messages from the pieces that arrive.
#[derive(Debug, Default)]
pub struct MessageReader {
    bytes: Vec<u8>,
}

impl MessageReader {
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn len(&self) -> Option<usize> {
        self.bytes.first_chunk::<4>().map(|len| u32::from_le_bytes(*len) as usize)
    }

    /// How many bytes the current message still lacks. Never more, so that no byte of the next message is read.
    fn missing_bytes(&self) -> usize {
        match self.len() {
            None => 4 - self.bytes.len(),
            Some(len) => (4 + len.min(MAX_MESSAGE_BYTES)).saturating_sub(self.bytes.len()).clamp(1, 64 * 1024),
        }
    }

    /// The next message, if it has arrived in full.
    pub fn next_message<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(len) = self.len() else { return Ok(None) };
        if len > MAX_MESSAGE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer announced a message of more than 16 MiB"));
        }
        if self.bytes.len() < 4 + len {
            return Ok(None);
        }
        let message = serde_json::from_slice(&self.bytes[4..4 + len]).map_err(io::Error::other);
        self.bytes.drain(..4 + len);
        message.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_assembled_from_any_pieces() {
        let bytes = [encode(&FromShim::More).unwrap(), encode(&FromShim::Applied { re: 1, seq: 2 }).unwrap()].concat();
        for size in 1..bytes.len() {
            let (mut inbox, mut seen) = (MessageReader::default(), 0);
            for piece in bytes.chunks(size) {
                inbox.feed(piece);
                while let Some(message) = inbox.next_message::<FromShim>().unwrap() {
                    seen += 1;
                    assert_eq!(seen == 1, matches!(message, FromShim::More));
                }
            }
            assert_eq!(seen, 2);
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused() {
        let mut inbox = MessageReader::default();
        inbox.feed(&u32::MAX.to_le_bytes());
        assert!(inbox.next_message::<FromShim>().is_err());
    }
}
