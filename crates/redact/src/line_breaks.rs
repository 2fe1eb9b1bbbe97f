//! Finds texts that a line break interrupts. The three bytes around a break select the texts that it could interrupt.

use crate::{
    runs::{ByteSet, find_line_starts},
    visible_text::is_break,
};
use std::{collections::HashMap, ops::Range};

/// A bit for each possible hash of three bytes: most breaks interrupt nothing, and that has to be seen fast.
const BIT_WORDS: usize = 2048;

/// The places at which texts could be interrupted, by the bytes around them.
pub(crate) struct BreakPlaces {
    /// For the byte before a break and the two behind it, or, at the end of a text, the two before and the one behind: the
    /// index of each text with these bytes there, and how much of it precedes the break.
    places: HashMap<BytesAround, Vec<(usize, usize)>>,
    bits: Vec<u64>,
    /// The bytes that precede such a place, and those that follow one: most lines end or begin with another one.
    last: ByteSet,
    next: ByteSet,
}

/// Three bytes around a break, and whether two of them precede it.
type BytesAround = ([u8; 3], bool);

fn bit_of((bytes, ends): BytesAround) -> (usize, u64) {
    let [a, b, c] = bytes;
    let hash = u32::from_le_bytes([a, b, c, u8::from(ends)]).wrapping_mul(0x9e37_79b1) as usize >> 15;
    (hash / 64 % BIT_WORDS, 1 << (hash % 64))
}

impl Default for BreakPlaces {
    fn default() -> Self {
        Self { places: HashMap::new(), bits: Vec::new(), last: ByteSet::new(), next: ByteSet::new() }
    }
}

impl BreakPlaces {
    pub(crate) fn new<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Self {
        let mut places = Self::default();
        texts.into_iter().enumerate().for_each(|(n, text)| places.add(n, text.as_ref()));
        places
    }

    /// Adds a text of three bytes and more, and its index.
    pub(crate) fn add(&mut self, n: usize, text: &[u8]) {
        if self.bits.is_empty() {
            self.bits = vec![0; BIT_WORDS];
        }
        let mut add = |around: BytesAround, split: usize| {
            let (word, bit) = bit_of(around);
            self.bits[word] |= bit;
            self.places.entry(around).or_default().push((n, split));
        };
        for (at, bytes) in text.array_windows().enumerate() {
            add((*bytes, false), at + 1);
        }
        text.iter().rev().skip(1).for_each(|b| self.last.add(*b));
        text.iter().skip(1).for_each(|b| self.next.add(*b));
        if let Some(last) = text.last_chunk() {
            add((*last, true), text.len() - 1);
        }
    }

    /// Reports each text that a break interrupts which begins in a part of `text`, with its start and end.
    pub(crate) fn find<'t>(
        &self,
        text: &[u8],
        part: Range<usize>,
        text_of: impl Fn(usize) -> &'t [u8],
        mut report: impl FnMut(usize, usize, usize),
    ) {
        if self.bits.is_empty() {
            return;
        }
        let mut end = part.end;
        if end > part.start && is_break(text[end - 1]) {
            end += text[end..].iter().take_while(|b| is_break(**b)).count();
            end = text.len().min(end + 1);
        }
        for next in find_line_starts(text, part.start..end, &self.last, &self.next) {
            let at = next - text[..next].iter().rev().take_while(|b| is_break(**b)).count();
            if at >= part.start {
                self.find_around(text, at..next, &text_of, &mut report);
            }
        }
    }

    /// Reports each text that these breaks interrupt.
    fn find_around<'t>(
        &self,
        text: &[u8],
        breaks: Range<usize>,
        text_of: &impl Fn(usize) -> &'t [u8],
        report: &mut impl FnMut(usize, usize, usize),
    ) {
        let at = breaks.start;
        let [rest @ .., last] = &text[..at] else { return };
        if !self.last.may_contain(*last) {
            return;
        }
        let [next, behind @ ..] = &text[breaks.end..] else { return };
        let second = behind.iter().copied().find(|b| !is_break(*b));
        let before = rest.iter().rev().copied().find(|b| !is_break(*b));
        let inside = second.map(|second| ([*last, *next, second], false));
        let at_end = before.map(|before| ([before, *last, *next], true));
        for around in [inside, at_end].into_iter().flatten() {
            let (word, bit) = bit_of(around);
            if self.bits[word] & bit == 0 {
                continue;
            }
            for &(n, split) in self.places.get(&around).into_iter().flatten() {
                let (first, second) = text_of(n).split_at(split);
                let start = match_skipping_breaks(text, first.iter().rev(), (0..at).rev());
                let end = start.and_then(|_| match_skipping_breaks(text, second.iter(), at..text.len()));
                if let (Some(start), Some(end)) = (start, end) {
                    report(n, start, end + 1);
                }
            }
        }
    }
}

/// The last of `places` that `wanted` needs, if its bytes are there; breaks are skipped.
fn match_skipping_breaks<'w>(
    text: &[u8],
    wanted: impl Iterator<Item = &'w u8>,
    places: impl Iterator<Item = usize>,
) -> Option<usize> {
    let mut places = places.filter(|i| !is_break(text[*i]));
    let mut last = None;
    for b in wanted {
        last = Some(places.next().filter(|i| text[*i] == *b)?);
    }
    last
}
