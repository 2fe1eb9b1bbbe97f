//! Keeps the last bytes of a stream whose beginning is dropped.

use crate::{Chunk, MAX_CHUNK_BYTES};
use countersign_model::Clean;
use std::collections::VecDeque;

/// The most bytes that are kept.
pub const MAX_TAIL_BYTES: usize = 1024 * 1024;

/// The last clean bytes of a stream.
#[derive(Debug, Default)]
pub struct Tail {
    bytes: VecDeque<u8>,
    dropped: u64,
}

impl Tail {
    /// Appends the bytes of `chunk` from `from` on.
    pub fn push(&mut self, chunk: &Clean<Chunk>, from: usize) {
        let bytes = &chunk.as_ref()[from..];
        let overflow = (self.bytes.len() + bytes.len()).saturating_sub(MAX_TAIL_BYTES);
        let old = overflow.min(self.bytes.len());
        self.bytes.drain(..old);
        self.bytes.extend(&bytes[overflow - old..]);
        self.dropped += overflow as u64;
    }

    /// How many bytes were dropped, and the rest in pieces of chunk size. The rest begins with a whole character.
    #[must_use]
    pub fn finish(self) -> (u64, Vec<Clean<Vec<u8>>>) {
        let mut bytes = Vec::from(self.bytes);
        let is_continuation = |b: &&u8| (0x80..0xc0).contains(*b);
        let broken = if self.dropped == 0 { 0 } else { bytes.iter().take(3).take_while(is_continuation).count() };
        bytes.drain(..broken);
        (self.dropped + broken as u64, bytes.chunks(MAX_CHUNK_BYTES).map(|piece| crate::mint(piece.to_vec())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mask, Scrubber};
    use std::sync::Arc;

    fn chunks(text: &[u8]) -> Vec<Clean<Chunk>> {
        let mut scrubber = Scrubber::new(Arc::new(Mask::without_values()));
        let mut out = Vec::new();
        for piece in text.chunks(10_007) {
            scrubber.input_buffer()[..piece.len()].copy_from_slice(piece);
            scrubber.accept_input(piece.len());
            out.extend(scrubber.take_chunk(false));
        }
        scrubber.finish();
        out.extend(scrubber.take_chunk(true));
        out
    }

    fn joined(pieces: &[Clean<Vec<u8>>]) -> Vec<u8> {
        pieces.iter().flat_map(|p| p.as_ref().to_vec()).collect()
    }

    #[test]
    fn the_last_bytes_are_kept_and_the_others_counted() {
        for len in [0, 10, MAX_TAIL_BYTES, MAX_TAIL_BYTES + 1, 3 * MAX_TAIL_BYTES + 12_345] {
            let text: Vec<u8> = (0..len).map(|n| b'a' + (n % 23) as u8).collect();
            let mut tail = Tail::default();
            chunks(&text).iter().for_each(|c| tail.push(c, 0));
            let (dropped, kept) = tail.finish();
            assert_eq!(dropped as usize, len.saturating_sub(MAX_TAIL_BYTES));
            assert_eq!(joined(&kept), &text[dropped as usize..]);
        }
    }

    #[test]
    fn a_tail_begins_with_a_whole_character() {
        let text = "€".repeat(MAX_TAIL_BYTES / 2);
        let mut tail = Tail::default();
        chunks(text.as_bytes()).iter().for_each(|c| tail.push(c, 0));
        let (dropped, kept) = tail.finish();
        let kept = joined(&kept);
        assert_eq!(dropped as usize + kept.len(), text.len());
        assert!(std::str::from_utf8(&kept).is_ok_and(|t| t.starts_with('€')));
    }
}
