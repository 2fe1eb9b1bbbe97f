//! Searches for hundreds of texts at once, in one pass with vector instructions.
//!
//! Four bytes of each text are in one of 32 buckets. For 64 places at a time, tables tell which buckets have the low and the
//! high half of a byte at each of the four positions. Where a bucket has all eight halves, a closer look is taken.

use crate::runs::{BLOCK_BYTES, HalfTable};
use fearless_simd::{Level, dispatch, prelude::*, u8x64};

/// The bytes of a text by which it is found.
const WINDOW_BYTES: usize = 4;
const HEAD_BYTES: usize = 3;
/// A block, and the rest of a window that begins with its last byte.
const READ_BYTES: usize = BLOCK_BYTES + WINDOW_BYTES - 1;
const BUCKETS: usize = 32;
/// Places that take a closer look are collected, some at once.
const LOOKS: usize = 512;
const LOOK_STEP: usize = 4;
const GROUPS: usize = BUCKETS / 8;
const HASH_BITS: u32 = 16;
const BIT_WORDS: usize = (1 << HASH_BITS) / 64;
const SLOTS: usize = 1 << 11;
/// The last letters are rarest in text and sources.
const LETTERS_BY_FREQUENCY: &[u8; 26] = b"etaoinsrlcdupmhgfbyvwxkjqz";

/// Where a text has the bytes by which it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Window {
    head: [u8; HEAD_BYTES],
    text: usize,
    offset: usize,
}

/// A search for texts of three bytes and more.
#[derive(Debug)]
pub(crate) struct TextSearch {
    texts: Vec<&'static [u8]>,
    /// For each group of eight buckets and each position in a window: which of the buckets have each low and each high half.
    tables: Box<[[[HalfTable; 2]; WINDOW_BYTES]; GROUPS]>,
    /// A bit for the hash of each head.
    bits: Box<[u64; BIT_WORDS]>,
    /// Sorted.
    windows: Vec<Window>,
    /// Open addressing by hash: the first window with the same head, counted from 1.
    slots: Vec<u16>,
}

/// The halves of the bytes that a bucket has at one position, a bit for each, and how often bytes with them are in text.
#[derive(Debug, Clone, Copy, Default)]
struct Halves {
    low: u16,
    high: u16,
    frequency: u64,
}

impl Halves {
    const ALL: Self = Self { low: u16::MAX, high: u16::MAX, frequency: 10_000 };

    fn with(mut self, b: u8) -> Self {
        let (low, high) = (usize::from(b & 15), usize::from(b >> 4));
        if self.low >> low & 1 == 0 {
            self.low |= 1 << low;
            self.frequency += bits_of(self.high).map(|high| FREQUENCIES[high << 4 | low]).sum::<u64>();
        }
        if self.high >> high & 1 == 0 {
            self.high |= 1 << high;
            self.frequency += bits_of(self.low).map(|low| FREQUENCIES[high << 4 | low]).sum::<u64>();
        }
        self
    }
}

/// How often each byte is in text and sources, roughly, of ten thousand: a product of four sums fits into 64 bits.
static FREQUENCIES: [u64; 256] = {
    let mut table = [3; 256];
    let mut b = 0x20;
    while b < 0x80 {
        table[b] = if (b as u8).is_ascii_digit() { 100 } else { 40 };
        b += 1;
    }
    let (mut n, mut frequency) = (0, 700);
    while n < LETTERS_BY_FREQUENCY.len() {
        table[LETTERS_BY_FREQUENCY[n] as usize] = frequency;
        frequency = frequency * 87 / 100;
        n += 1;
    }
    table[b' ' as usize] = 1_500;
    table[b'\n' as usize] = 300;
    table
};

/// The hash of the lowest three bytes: the factor moves the fourth out.
#[inline(always)]
fn hash(bytes: u32) -> usize {
    (bytes.wrapping_mul(0x9e37_79b1 << 8) >> (u32::BITS - HASH_BITS)) as usize
}

fn head_hash([a, b, c]: [u8; HEAD_BYTES]) -> usize {
    hash(u32::from_le_bytes([a, b, c, 0]))
}

fn frequency(bytes: &[u8]) -> u64 {
    bytes.iter().map(|b| FREQUENCIES[usize::from(*b)]).product()
}

/// The places of the bits of a set.
fn bits_of(mut set: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        place
    })
}

/// Some windows, and how often text looks as if it had one of them.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    halves: [Halves; WINDOW_BYTES],
    frequency: u64,
}

impl Bucket {
    fn with(&self, window: &[u8]) -> Self {
        let halves = std::array::from_fn(|n| window.get(n).map_or(Halves::ALL, |b| self.halves[n].with(*b)));
        Self { frequency: halves.iter().map(|h: &Halves| h.frequency).product(), halves }
    }
}

/// Divides windows among the buckets: each goes where it adds the fewest places that take a closer look.
fn fill_buckets(mut windows: Vec<&[u8]>) -> [Bucket; BUCKETS] {
    windows.sort_unstable();
    windows.dedup();
    windows.sort_by_cached_key(|window| std::cmp::Reverse(frequency(window)));
    let mut buckets = [Bucket::default(); BUCKETS];
    for window in windows {
        // All empty buckets are the same.
        let used = buckets.iter().take_while(|bucket| bucket.frequency > 0).count();
        let extended = buckets.iter().take(used + 1).map(|bucket| (bucket.frequency, bucket.with(window)));
        let best = extended.enumerate().min_by_key(|(_, (before, bucket))| bucket.frequency - before);
        if let Some((n, (_, bucket))) = best {
            buckets[n] = bucket;
        }
    }
    buckets
}

impl TextSearch {
    /// `texts` have at least three bytes.
    pub(crate) fn new(texts: Vec<&'static [u8]>) -> Self {
        let place = |text: &[u8]| {
            let places = 0..=text.len().saturating_sub(WINDOW_BYTES);
            places.min_by_key(|at| frequency(&text[*at..text.len().min(at + WINDOW_BYTES)])).unwrap_or_default()
        };
        let places: Vec<usize> = texts.iter().map(|text| place(text)).collect();
        let bytes = places.iter().zip(&texts).map(|(at, text)| &text[*at..text.len().min(at + WINDOW_BYTES)]).collect();
        let mut tables = Box::new([[[HalfTable([0; BLOCK_BYTES]); 2]; WINDOW_BYTES]; GROUPS]);
        for (n, bucket) in fill_buckets(bytes).iter().enumerate() {
            for (halves, [low, high]) in bucket.halves.iter().zip(&mut tables[n / 8]) {
                for half in 0..BLOCK_BYTES {
                    low.0[half] |= ((halves.low >> (half % 16) & 1) as u8) << (n % 8);
                    high.0[half] |= ((halves.high >> (half % 16) & 1) as u8) << (n % 8);
                }
            }
        }
        let mut windows: Vec<Window> = (0..)
            .zip(places.iter().zip(&texts))
            .map(|(n, (offset, text))| {
                let head = *text[*offset..].first_chunk().expect("a text has three bytes");
                Window { head, text: n, offset: *offset }
            })
            .collect();
        windows.sort_unstable();
        let mut bits = Box::new([0; BIT_WORDS]);
        let mut slots = vec![0; SLOTS];
        for n in (0..windows.len()).filter(|n| *n == 0 || windows[n - 1].head != windows[*n].head) {
            let hash = head_hash(windows[n].head);
            bits[hash / 64] |= 1 << (hash % 64);
            let mut slot = hash % SLOTS;
            while slots[slot] != 0 {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = u16::try_from(n + 1).expect("there are a few hundred texts");
        }
        Self { texts, tables, bits, windows, slots }
    }

    /// Reports each text that begins at `from` or behind it: its start, and its number. Not from left to right.
    pub(crate) fn find_all(&self, text: &[u8], from: usize, mut report: impl FnMut(usize, usize)) {
        let mut places = Vec::new();
        dispatch!(Level::new(), simd => self.find_places(simd, text, from, &mut places));
        places.into_iter().for_each(|at| self.report_at(text, from, at, &mut report));
    }

    /// Finds where the heads of windows may be.
    #[inline(always)]
    fn find_places<S: Simd>(&self, simd: S, text: &[u8], from: usize, places: &mut Vec<usize>) {
        let (none, low_half) = (u8x64::splat(simd, 0), u8x64::splat(simd, 15));
        let (mut looks, mut count) = ([0; LOOKS], 0);
        let mut at = from;
        while at < text.len() {
            let mut last = [0; READ_BYTES];
            let block: &[u8; READ_BYTES] = text[at..].first_chunk().unwrap_or_else(|| {
                last[..text.len() - at].copy_from_slice(&text[at..]);
                &last
            });
            let mut found = [u8x64::splat(simd, u8::MAX); GROUPS];
            for n in 0..WINDOW_BYTES {
                let bytes = u8x64::from_slice(simd, &block[n..n + BLOCK_BYTES]);
                let (low, high) = (bytes & low_half, bytes >> 4);
                for (found, tables) in found.iter_mut().zip(self.tables.iter()) {
                    let [lows, highs] = &tables[n];
                    let lows = u8x64::from_slice(simd, &lows.0).swizzle_dyn_within_blocks(low);
                    *found = *found & lows & u8x64::from_slice(simd, &highs.0).swizzle_dyn_within_blocks(high);
                }
            }
            let any = found.into_iter().fold(none, |any, found| any | found);
            let mut hits = any.simd_ne(none).to_bitmask();
            // Nobody knows how many hits a block has: in fours, there are fewer branches to predict.
            let mut first = count;
            count += hits.count_ones() as usize;
            while first < count {
                for place in &mut looks[first..first + LOOK_STEP] {
                    *place = at + hits.trailing_zeros() as usize;
                    hits &= hits.wrapping_sub(1);
                }
                first += LOOK_STEP;
            }
            at += BLOCK_BYTES;
            if count > looks.len() - BLOCK_BYTES - LOOK_STEP || at >= text.len() {
                places.extend(looks[..count].iter().filter(|place| self.has_head(text, **place)));
                count = 0;
            }
        }
    }

    /// Whether a text has a head at a place, or another one with its hash.
    #[inline(always)]
    fn has_head(&self, text: &[u8], at: usize) -> bool {
        let Some(head) = text.get(at..).and_then(|rest| rest.first_chunk()) else { return false };
        let hash = head_hash(*head);
        self.bits[hash / 64] >> (hash % 64) & 1 != 0
    }

    /// Reports the texts whose window is at this place.
    fn report_at(&self, text: &[u8], from: usize, at: usize, report: &mut impl FnMut(usize, usize)) {
        let Some(head) = text[at..].first_chunk::<HEAD_BYTES>() else { return };
        let mut slot = head_hash(*head) % SLOTS;
        while let Some(first) = usize::from(self.slots[slot]).checked_sub(1) {
            if self.windows[first].head == *head {
                for window in self.windows[first..].iter().take_while(|w| w.head == *head) {
                    let start = at.checked_sub(window.offset).filter(|start| *start >= from);
                    if let Some(start) = start
                        && text[start..].starts_with(self.texts[window.text])
                    {
                        report(start, window.text);
                    }
                }
                return;
            }
            slot = (slot + 1) % SLOTS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXTS: &[&str] = &[
        "key",
        "pw=",
        "pass",
        "passport",
        "oken",
        "code=",
        "aaaa",
        "aaaab",
        "ature=",
        ": V\n",
        "\u{0}\u{0}\u{0}\u{0}",
    ];

    proptest! {
        #[test]
        fn texts_are_found_as_defined(
            pieces in prop::collection::vec(prop_oneof![prop::sample::select(TEXTS).prop_map(str::to_owned), "[a-e= ]{0,7}"], 0..12),
            from in 0usize..40,
        ) {
            let text = pieces.concat();
            let text = text.as_bytes();
            let search = TextSearch::new(TEXTS.iter().map(|t| t.as_bytes()).collect());
            let starts = |n: usize| (from..text.len()).filter(move |at| text[*at..].starts_with(TEXTS[n].as_bytes()));
            let mut defined: Vec<(usize, usize)> =
                (0..TEXTS.len()).flat_map(|n| starts(n).map(move |at| (at, n))).collect();
            defined.sort_unstable();
            let mut found = Vec::new();
            search.find_all(text, from, |at, n| found.push((at, n)));
            found.sort_unstable();
            prop_assert_eq!(found, defined);
        }
    }
}
