//! What a daemon and a shim say to each other: a length, then JSON. Control and the doorbell; never output.

use crate::terminal::ScreenSnapshot;
use countersign_model::{
    Digest, Idempotency, JournalEnd, KeyPress, KilledWhy, Order, Refusal, SignalName, TaskId, Text,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};

/// The version that each side says first.
pub const PROTOCOL: u32 = 3;
/// An order carries a command and an environment; nothing larger than this is one.
pub const LARGEST: usize = 16 * 1024 * 1024;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToShim {
    /// Once, over the inherited channel.
    Order(Box<Order>),
    /// First on the control socket: only the own daemon can know the secret.
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
    /// What does the terminal show?
    Screen {
        re: u64,
    },
    Cancel {
        re: u64,
        by: Text,
        reason: Option<Text>,
        /// Cancelled, or with the house, or with its session.
        why: KilledWhy,
    },
}

/// What to type.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TypedInput {
    Text {
        text: String,
        eof: bool,
    },
    /// What is not text.
    Bytes {
        bytes: Vec<u8>,
        eof: bool,
    },
    Keys(Vec<KeyPress>),
    /// Text that was not typed: marked as such where the program asked for that.
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
    /// There is more to read in the journal.
    More,
    /// The control operation `re` stands in the journal as frame `seq`.
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
    /// The journal is closed; this is how.
    Closed(JournalEnd),
    /// Nothing was started and there is no journal of ours.
    NotStarted {
        error: Text,
        code: i32,
    },
}

/// A message as it goes over the wire.
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message).map_err(io::Error::other)?;
    let len = bytes.len() - 4;
    if len > LARGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too large for the wire"));
    }
    bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(bytes)
}

pub fn send<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&encode(message)?)
}

/// Blocks for one message.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut inbox = MessageReader::default();
    loop {
        if let Some(message) = inbox.message()? {
            return Ok(message);
        }
        let mut buf = vec![0; inbox.missing()];
        match from.read(&mut buf) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => inbox.feed(&buf[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Puts messages together from whatever pieces arrive.
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

    /// How many bytes the message that is coming in still lacks; never more, so that nothing of the next is taken.
    fn missing(&self) -> usize {
        match self.len() {
            None => 4 - self.bytes.len(),
            Some(len) => (4 + len.min(LARGEST)).saturating_sub(self.bytes.len()).clamp(1, 64 * 1024),
        }
    }

    /// The next whole message, if it has arrived.
    pub fn message<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(len) = self.len() else { return Ok(None) };
        if len > LARGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message longer than any of ours"));
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
    fn messages_arrive_whole_from_any_pieces() {
        let bytes = [encode(&FromShim::More).unwrap(), encode(&FromShim::Applied { re: 1, seq: 2 }).unwrap()].concat();
        for size in 1..bytes.len() {
            let (mut inbox, mut seen) = (MessageReader::default(), 0);
            for piece in bytes.chunks(size) {
                inbox.feed(piece);
                while let Some(message) = inbox.message::<FromShim>().unwrap() {
                    seen += 1;
                    assert_eq!(seen == 1, matches!(message, FromShim::More));
                }
            }
            assert_eq!(seen, 2);
        }
    }

    #[test]
    fn a_length_that_lies_is_refused() {
        let mut inbox = MessageReader::default();
        inbox.feed(&u32::MAX.to_le_bytes());
        assert!(inbox.message::<FromShim>().is_err());
    }
}
