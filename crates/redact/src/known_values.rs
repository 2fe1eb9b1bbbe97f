//! The search for known secrets. More can be added while a stream is read.

use crate::{
    line_breaks::BreakPlaces,
    runs::{self, Run},
    searcher::{MAX_SEARCHER_PATTERNS, Searcher},
    visible_text::is_break,
};
use std::collections::HashMap;

/// Which heads of four bytes, or pairs, occur: a bit for each hash.
const BIT_WORDS: usize = 1024;
/// Runs are searched at every eighth byte, and each value is known by the bytes at its first eight places.
const SAMPLE_BYTES: usize = 8;

/// Known secrets in all their forms, and the search for them.
#[derive(Default)]
pub(crate) struct KnownValues {
    values: Vec<Vec<u8>>,
    longest: usize,
    /// Those that are always part of a run, by the four bytes at each of their first places. However many there are, clean
    /// text costs nothing.
    in_runs: HashMap<[u8; 4], Vec<InRun>>,
    head_bits: Vec<u64>,
    /// The others, the longest first.
    others: Vec<Vec<u8>>,
    searchers: Vec<Searcher>,
    broken: BreakPlaces,
    /// All of them in the order of their bytes, and which two bytes begin one.
    sorted: Vec<usize>,
    beginnings: Vec<u64>,
}

/// The place of a pair of bytes in a table of bits, and its bit there.
fn pair_bit(a: u8, b: u8) -> (usize, u64) {
    let bit = usize::from(a) << 8 | usize::from(b);
    (bit / 64, 1 << (bit % 64))
}

fn head_hash(head: [u8; 4]) -> usize {
    (u32::from_le_bytes(head).wrapping_mul(0x9e37_79b1) >> 16) as usize
}

/// A value, and where in it four bytes are.
struct InRun {
    value: usize,
    offset: usize,
}

impl KnownValues {
    pub(crate) fn new(values: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut known = Self::default();
        known.add(values);
        known
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn contains(&self, value: &[u8]) -> bool {
        self.sorted.binary_search_by(|n| (*self.values[*n]).cmp(value)).is_ok()
    }

    /// How many of them are searched for in all text.
    pub(crate) fn others(&self) -> usize {
        self.others.len()
    }

    /// Adds values of six bytes and more, without line breaks.
    pub(crate) fn add(&mut self, values: impl IntoIterator<Item = Vec<u8>>) {
        let before = self.others.len();
        for value in values {
            self.insert(value);
        }
        if self.others.len() > before {
            // With leftmost-first search the longest wins over its own beginning.
            self.others.sort_by_key(|v| std::cmp::Reverse(v.len()));
            self.searchers = self.others.chunks(MAX_SEARCHER_PATTERNS).map(Searcher::new).collect();
        }
    }

    fn insert(&mut self, value: Vec<u8>) {
        let [a, b, ..] = &*value else { return };
        let Err(place) = self.sorted.binary_search_by(|n| self.values[*n].cmp(&value)) else { return };
        let n = self.values.len();
        if self.values.is_empty() {
            self.head_bits = vec![0; BIT_WORDS];
            self.beginnings = vec![0; BIT_WORDS];
        }
        let (word, bit) = pair_bit(*a, *b);
        self.beginnings[word] |= bit;
        self.sorted.insert(place, n);
        self.broken.add(n, &value);
        self.longest = self.longest.max(value.len());
        if runs::is_always_run(&value) {
            for (offset, bytes) in value.array_windows().take(SAMPLE_BYTES).enumerate() {
                let hash = head_hash(*bytes);
                self.head_bits[hash / 64] |= 1 << (hash % 64);
                self.in_runs.entry(*bytes).or_default().push(InRun { value: n, offset });
            }
        } else {
            self.others.push(value.clone());
        }
        self.values.push(value);
    }

    /// Reports those in a text from `from` on: in its runs that look random, among line breaks, and elsewhere.
    pub(crate) fn find(&self, text: &[u8], from: usize, mixed: &[Run], mut report: impl FnMut(usize, usize)) {
        if self.is_empty() {
            return;
        }
        if !self.in_runs.is_empty() {
            mixed.iter().for_each(|run| self.find_in_run(text, *run, &mut report));
        }
        self.broken.find(text, from..text.len(), |n| &*self.values[n], |_, start, end| report(start, end));
        for searcher in &self.searchers {
            searcher.find_all(text, from, |start, end, _| report(start, end));
        }
    }

    /// A value that begins before a sample covers it.
    fn find_in_run(&self, text: &[u8], run: Run, report: &mut impl FnMut(usize, usize)) {
        for at in (run.start..run.end).step_by(SAMPLE_BYTES) {
            let Some(bytes) = text[at..].first_chunk::<4>() else { return };
            let hash = head_hash(*bytes);
            if self.head_bits[hash / 64] >> (hash % 64) & 1 == 0 {
                continue;
            }
            for InRun { value, offset } in self.in_runs.get(bytes).into_iter().flatten() {
                let value = &self.values[*value];
                if at - run.start >= *offset && text[at - offset..].starts_with(value) {
                    report(at - offset, at - offset + value.len());
                }
            }
        }
    }

    /// Where the undecided end of `text` begins: the earliest prefix, of this length at least, that later bytes may
    /// complete, with or without line breaks.
    pub(crate) fn undecided_from(&self, text: &[u8], at_least: usize) -> usize {
        if self.is_empty() {
            return text.len();
        }
        let mut places: Vec<usize> = (0..text.len()).rev().filter(|i| !is_break(text[*i])).take(self.longest).collect();
        places.reverse();
        let end: Vec<u8> = places.iter().map(|i| text[*i]).collect();
        let last = (end.len() + 1).saturating_sub(at_least).min(end.len());
        (0..last).find(|start| self.begin_with(&end[*start..])).map_or(text.len(), |start| places[start])
    }

    /// Whether one of them begins with this text and is longer.
    fn begin_with(&self, text: &[u8]) -> bool {
        if let [a, b, ..] = text {
            let (word, bit) = pair_bit(*a, *b);
            if self.beginnings[word] & bit == 0 {
                return false;
            }
        }
        let first = self.sorted.partition_point(|n| &*self.values[*n] < text);
        let mut from_there = self.sorted[first..].iter().map(|n| &self.values[*n]);
        from_there.by_ref().take_while(|value| value.starts_with(text)).any(|value| value.len() > text.len())
    }
}
