//! Redacts one stream: bytes in, clean chunks out. Text without secrets is never copied.
//!
//! ```text
//! buf:  [ context, already emitted ][ decided, not yet emitted ][ held: not yet decided ][ free ]
//!       0                    emitted                    decided                      len
//! ```

use crate::{
    Mask,
    engine::{Engine, Pause},
    span::RuleId,
};
use countersign_model::Clean;
use std::sync::Arc;

/// The largest chunk, apart from a placeholder at its end.
pub const MAX_CHUNK_BYTES: usize = 256 * 1024;
/// Left free in a chunk for a placeholder at its end.
const PLACEHOLDER_SLACK_BYTES: usize = 4096;

/// One replacement: its rule, and where its placeholder begins in the clean stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub rule: RuleId,
    pub offset: u64,
}

/// A piece of clean output. [`Scrubber::recycle`] takes its buffer back.
#[derive(Debug)]
pub struct Chunk {
    buf: Vec<u8>,
    start: usize,
    end: usize,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }
}

/// The redaction of one stream.
pub struct Scrubber {
    mask: Arc<Mask>,
    engine: Engine,
    buf: Vec<u8>,
    emitted: usize,
    len: usize,
    /// Clean bytes emitted before `buf[emitted]`.
    offset: u64,
    findings: Vec<Finding>,
    free_buffer: Option<Vec<u8>>,
}

impl Scrubber {
    #[must_use]
    pub fn new(mask: Arc<Mask>) -> Self {
        Self {
            mask,
            engine: Engine::default(),
            buf: Vec::new(),
            emitted: 0,
            len: 0,
            offset: 0,
            findings: Vec::new(),
            free_buffer: None,
        }
    }

    /// Redacts the rest of the stream with another mask, which knows more secrets.
    pub fn replace_mask(&mut self, mask: Arc<Mask>) {
        self.mask = mask;
    }

    /// The buffer for the next bytes; [`Scrubber::accept_input`] takes how many were written to it. Never empty.
    pub fn input_buffer(&mut self) -> &mut [u8] {
        let used = self.len - self.emitted;
        let want = MAX_CHUNK_BYTES.saturating_sub(used).max(4096);
        if self.buf.len() < self.len + want {
            let size = (self.len + want).max(MAX_CHUNK_BYTES + 16 * 1024);
            if self.buf.is_empty() {
                self.buf = vec![0; size];
            } else {
                self.buf.resize(size, 0);
            }
        }
        &mut self.buf[self.len..self.len + want]
    }

    /// Scans the next `n` bytes, which are in the input buffer.
    pub fn accept_input(&mut self, n: usize) {
        self.len += n;
        self.engine.scan(&self.mask, &self.buf[..self.len], Pause::None);
    }

    /// No input has come for a while: short beginnings of known secrets and words without digits are not held any longer.
    pub fn flush(&mut self) {
        self.engine.scan(&self.mask, &self.buf[..self.len], Pause::Idle);
    }

    /// A person has typed and waits for the echo: words that may be random are held only if they look it.
    pub fn flush_echo(&mut self) {
        self.engine.scan(&self.mask, &self.buf[..self.len], Pause::Echo);
    }

    /// The stream has ended: nothing is held.
    pub fn finish(&mut self) {
        self.engine.scan(&self.mask, &self.buf[..self.len], Pause::End);
    }

    /// How many clean bytes [`Scrubber::take_chunk`] can return.
    #[must_use]
    pub fn ready_bytes(&self) -> usize {
        let raw = self.engine.decided_raw - self.emitted;
        let (removed, added) =
            self.engine.replacements.iter().fold((0, 0), |(r, a), e| (r + e.raw.len(), a + e.written_bytes()));
        raw + added - removed
    }

    /// How many bytes are held because later bytes decide about them.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.len - self.engine.decided_raw
    }

    /// How many clean bytes were returned.
    #[must_use]
    pub fn emitted_bytes(&self) -> u64 {
        self.offset
    }

    /// Replacements since the last call.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// The secrets that this stream has shown for the first time since the last call. It redacts them itself from there on;
    /// other streams have to be told.
    pub fn take_learned(&mut self) -> Vec<String> {
        self.engine.take_learned()
    }

    /// Takes back the buffer of a chunk.
    pub fn recycle(&mut self, chunk: Chunk) {
        if chunk.buf.len() >= MAX_CHUNK_BYTES {
            self.free_buffer = Some(chunk.buf);
        }
    }

    /// The next clean bytes, at most [`MAX_CHUNK_BYTES`]. A character that is incomplete at the end waits for its rest,
    /// unless `all` is set.
    pub fn take_chunk(&mut self, all: bool) -> Option<Clean<Chunk>> {
        if self.engine.replacements.is_empty() { self.take_plain_chunk(all) } else { self.take_redacted_chunk(all) }
    }

    /// The end of a chunk that begins at `from` and has at most `max` bytes.
    fn chunk_end(&self, from: usize, max: usize, all: bool) -> usize {
        let decided = self.engine.decided_raw;
        let end = decided.min(from + max);
        if all && end == decided {
            return end;
        }
        let whole = whole_characters_len(&self.buf[from..end]);
        if whole == 0 && end - from > 3 { end } else { from + whole }
    }

    fn take_plain_chunk(&mut self, all: bool) -> Option<Clean<Chunk>> {
        let end = self.chunk_end(self.emitted, MAX_CHUNK_BYTES, all);
        if end == self.emitted {
            return None;
        }
        self.offset += (end - self.emitted) as u64;
        let dropped = self.engine.forget(end);
        let keep = dropped..self.len;
        let mut next = self.free_buffer.take().unwrap_or_default();
        if next.len() < keep.len() {
            next = vec![0; keep.len().max(MAX_CHUNK_BYTES + 16 * 1024)];
        }
        next[..keep.len()].copy_from_slice(&self.buf[keep]);
        let buf = std::mem::replace(&mut self.buf, next);
        let chunk = Chunk { buf, start: self.emitted, end };
        self.emitted = end - dropped;
        self.len -= dropped;
        Some(crate::mint(chunk))
    }

    fn take_redacted_chunk(&mut self, all: bool) -> Option<Clean<Chunk>> {
        let mut out = self.free_buffer.take().unwrap_or_default();
        let max = MAX_CHUNK_BYTES - PLACEHOLDER_SLACK_BYTES;
        if out.len() < MAX_CHUNK_BYTES {
            out = vec![0; MAX_CHUNK_BYTES + 16 * 1024];
        }
        let (mut at, mut n) = (self.emitted, 0);
        let put = |out: &mut Vec<u8>, n: &mut usize, bytes: &[u8]| {
            if out.len() < *n + bytes.len() {
                out.resize(*n + bytes.len(), 0);
            }
            out[*n..*n + bytes.len()].copy_from_slice(bytes);
            *n += bytes.len();
        };
        while n < max {
            let Some(replacement) = self.engine.replacements.front() else {
                let end = self.chunk_end(at, max - n, all);
                put(&mut out, &mut n, &self.buf[at..end]);
                at = end;
                break;
            };
            if replacement.raw.start - at > max - n {
                let end = self.chunk_end(at, max - n, false);
                put(&mut out, &mut n, &self.buf[at..end]);
                at = end;
                break;
            }
            put(&mut out, &mut n, &self.buf[at..replacement.raw.start]);
            if let Some(rule) = &replacement.rule {
                self.findings.push(Finding { rule: rule.clone(), offset: self.offset + n as u64 });
            }
            replacement.parts().iter().for_each(|part| put(&mut out, &mut n, part));
            at = replacement.raw.end;
            self.engine.replacements.pop_front();
        }
        let dropped = self.engine.forget(at);
        self.buf.copy_within(dropped..self.len, 0);
        self.emitted = at - dropped;
        self.len -= dropped;
        self.offset += n as u64;
        if n == 0 {
            self.free_buffer = Some(out);
            return None;
        }
        Some(crate::mint(Chunk { buf: out, start: 0, end: n }))
    }
}

/// The length of the longest prefix that does not end inside a UTF-8 character.
fn whole_characters_len(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let b = bytes[bytes.len() - back];
        let width = match b {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return bytes.len(),
        };
        return if width > back { bytes.len() - back } else { bytes.len() };
    }
    bytes.len()
}
