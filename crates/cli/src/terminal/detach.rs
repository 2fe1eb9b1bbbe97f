//! Finds the detach keys in what the user types.

use crate::UsageError;
use countersign_model::{KeyMode, KeyPress};
use std::time::{Duration, Instant};

/// The default detach keys: Ctrl-\ then Ctrl-D.
pub(crate) const DETACH_KEYS: &str = "ctrl-\\,ctrl-d";

/// How long the first of the detach keys is held back while the rest may follow.
const HOLD_TIMEOUT: Duration = Duration::from_millis(500);

/// Parses `--detach-keys` into the bytes that these keys send.
pub(crate) fn parse_detach_keys(text: &str) -> anyhow::Result<Vec<u8>> {
    let key = |name: &str| name.trim().parse::<KeyPress>().map(|k| k.bytes(KeyMode::default()));
    let keys: Result<Vec<_>, String> = text.split(',').map(key).collect();
    Ok(keys.map_err(|e| UsageError(format!("--detach-keys: {e}")))?.concat())
}

/// Searches typed bytes for the detach keys and holds back bytes that may be the start of them.
pub(crate) struct DetachWatch {
    keys: Vec<u8>,
    held: Vec<u8>,
    held_since: Option<Instant>,
}

/// What to do with typed bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TypedBytes {
    /// The bytes that go to the task.
    pub(crate) bytes: Vec<u8>,
    /// Whether the detach keys followed them.
    pub(crate) detach: bool,
}

impl DetachWatch {
    pub(crate) fn new(keys: Vec<u8>) -> Self {
        Self { keys, held: Vec::new(), held_since: None }
    }

    /// Takes bytes from the keyboard. Unless `watching`, the detach keys go to the task like all others.
    pub(crate) fn feed(&mut self, bytes: &[u8], watching: bool, now: Instant) -> TypedBytes {
        let mut out = Vec::new();
        for b in bytes {
            self.held.push(*b);
            if watching && self.held == self.keys {
                self.held.clear();
                self.held_since = None;
                return TypedBytes { bytes: out, detach: true };
            }
            while !(self.held.is_empty() || watching && self.keys.starts_with(&self.held)) {
                out.push(self.held.remove(0));
            }
        }
        self.held_since = (!self.held.is_empty()).then_some(now);
        TypedBytes { bytes: out, detach: false }
    }

    /// How long to wait for the rest of the detach keys.
    pub(crate) fn remaining_wait(&self, now: Instant) -> Option<Duration> {
        self.held_since.map(|since| (since + HOLD_TIMEOUT).saturating_duration_since(now))
    }

    /// Takes the held bytes if the rest of the detach keys did not follow in time.
    pub(crate) fn take_overdue(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.held_since.take_if(|since| now >= *since + HOLD_TIMEOUT)?;
        Some(std::mem::take(&mut self.held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detach_keys_are_found_in_any_pieces_and_nothing_else_is_held_back() {
        let now = countersign_store::clock::steady();
        for (pieces, watching, bytes, detach) in [
            (&["ls\n"][..], true, "ls\n", false),
            (&["ls\x1c\x04rest"], true, "ls", true),
            (&["ls\x1c", "\x04"], true, "ls", true),
            (&["\x1c\x1c\x04"], true, "\x1c", true),
            (&["\x1cx"], true, "\x1cx", false),
            (&["\x1c\x04"], false, "\x1c\x04", false),
        ] {
            let mut watch = DetachWatch::new(b"\x1c\x04".to_vec());
            let mut typed = TypedBytes { bytes: Vec::new(), detach: false };
            for piece in pieces {
                let next = watch.feed(piece.as_bytes(), watching, now);
                typed.bytes.extend(next.bytes);
                typed.detach |= next.detach;
            }
            assert_eq!(typed, TypedBytes { bytes: bytes.as_bytes().to_vec(), detach }, "{pieces:?}");
            assert_eq!(watch.remaining_wait(now), None, "{pieces:?}");
        }
    }

    #[test]
    fn the_first_detach_key_alone_reaches_the_task_after_a_timeout() {
        let now = countersign_store::clock::steady();
        let mut watch = DetachWatch::new(b"\x1c\x04".to_vec());
        assert_eq!(watch.feed(b"a\x1c", true, now), TypedBytes { bytes: b"a".to_vec(), detach: false });
        assert_eq!((watch.remaining_wait(now), watch.take_overdue(now)), (Some(HOLD_TIMEOUT), None));
        assert_eq!(watch.take_overdue(now + HOLD_TIMEOUT), Some(b"\x1c".to_vec()));
        assert_eq!(watch.take_overdue(now + HOLD_TIMEOUT), None);
    }
}
