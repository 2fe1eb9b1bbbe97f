//! Digests: SHA-256 for bytes that standard tools must be able to check, HMAC for values that could be guessed, and the
//! hash chain of a log.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// Thirty-two bytes, written as hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    pub fn sha256(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads 64 hex digits.
    pub fn parse(hex: &str) -> Option<Self> {
        let hex = hex.as_bytes();
        let mut out = [0; 32];
        if hex.len() != 64 {
            return None;
        }
        for (byte, pair) in out.iter_mut().zip(hex.chunks_exact(2)) {
            let nibble = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(out))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        f.write_str(std::str::from_utf8(&text).expect("hex digits are ASCII"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("a digest is 64 hex digits"))
    }
}

/// The digest key of a home. A plain hash of a short secret could be guessed; an HMAC with this key cannot.
#[derive(Clone)]
pub struct HomeKey([u8; 32]);

impl HomeKey {
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// HMAC-SHA-256 over `purpose` and the parts. Each part is preceded by its length, so that bytes cannot move from
    /// one part to the next.
    pub fn digest(&self, purpose: &str, parts: &[&[u8]]) -> Digest {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in std::iter::once(&purpose.as_bytes()).chain(parts) {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        Digest(mac.finalize().into_bytes().into())
    }
}

/// The keyed digest of a file's content.
pub fn file_digest(key: Digest, bytes: &[u8]) -> Digest {
    HomeKey(key.0).digest("file", &[bytes])
}

impl fmt::Debug for HomeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HomeKey(…)")
    }
}

/// The running hash of a log: `h(n) = sha256(h(n-1) ‖ line)`, with the line without its newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashChain(Digest);

impl HashChain {
    pub fn start(seed: &str) -> Self {
        Self(Digest::sha256(&[seed.as_bytes()]))
    }

    /// The chain of a journal continues the chain of the task's prologue.
    pub fn for_journal(task: super::TaskId, prologue: Digest) -> Self {
        Self::start(&format!("countersign.journal.v1:{task}:{prologue}"))
    }

    /// The chain over a task's decisions up to its launch.
    pub fn for_prologue(task: super::TaskId) -> Self {
        Self::start(&format!("countersign.prologue.v1:{task}"))
    }

    pub fn for_ledger() -> Self {
        Self::start("countersign.ledger.v1")
    }

    pub fn resume(head: Digest) -> Self {
        Self(head)
    }

    pub fn push_line(&mut self, line: &str) {
        self.0 = Digest::sha256(&[&self.0.0, line.as_bytes()]);
    }

    pub fn head(&self) -> Digest {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_parse_back_and_parts_cannot_be_shifted() {
        let d = Digest::sha256(&[b"abc"]);
        assert_eq!(d.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(Digest::parse(&d.to_string()), Some(d));
        let key = HomeKey::new([7; 32]);
        assert_ne!(key.digest("argv", &[b"ab", b"c"]), key.digest("argv", &[b"a", b"bc"]));
        assert_ne!(key.digest("argv", &[b"ab"]), key.digest("plan", &[b"ab"]));
        assert!(!format!("{key:?}").contains('7'));
    }
}
