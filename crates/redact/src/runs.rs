//! Finds the runs of a text: stretches of at least 20 bytes that tokens consist of.
//!
//! Nearly every secret contains a run that looks random, and ordinary text has few of those. So the text is read once,
//! 64 bytes at a time, with vector instructions, and rules look only in and near runs.

use crate::visible_text::is_break;
use fearless_simd::{Level, dispatch, prelude::*, u8x64};
use std::ops::Range;

/// Shorter stretches are no runs.
pub(crate) const MIN_RUN_BYTES: usize = 20;
/// How far back the beginning of a run is searched.
const MAX_LOOKBACK_BYTES: usize = 512;
/// A random run changes at least this many times between lower case, upper case and digits.
const MIN_CLASS_CHANGES: u32 = 3;
/// Or it has this many digits: some hexadecimal tokens change seldom. Both are counts, not shares, so that more text
/// cannot undo them.
const MIN_DIGITS: u32 = 10;
pub(crate) const BLOCK_BYTES: usize = 64;

/// A stretch of run bytes, as long as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// It may be random.
    pub(crate) mixed: bool,
}

/// Whether a run may contain this byte: token bytes, and line breaks, which may interrupt a token.
pub(crate) fn is_run_byte(b: u8) -> bool {
    RUN_BYTES[usize::from(b)]
}

static RUN_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = (b as u8).is_ascii_alphanumeric() || matches!(b as u8, b'_' | b'-' | b'+' | b'\n' | b'\r');
        b += 1;
    }
    table
};

/// Whether a byte means the same wherever it stands in a token: no escape, and no end of a word in any notation.
#[inline]
pub(crate) fn is_plain(b: u8) -> bool {
    PLAIN_BYTES[usize::from(b)]
}

static PLAIN_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = (b as u8).is_ascii_alphanumeric() || matches!(b as u8, b'_' | b'-');
        b += 1;
    }
    table
};

/// Lower case, upper case, digit; 0 for everything else.
#[inline]
pub(crate) fn byte_class(b: u8) -> u8 {
    BYTE_CLASSES[usize::from(b)]
}

const DIGIT_CLASS: u8 = 3;

static BYTE_CLASSES: [u8; 256] = {
    let mut table = [0; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = match b as u8 {
            b'a'..=b'z' => 1,
            b'A'..=b'Z' => 2,
            b'0'..=b'9' => DIGIT_CLASS,
            _ => 0,
        };
        b += 1;
    }
    table
};

/// Whether these are the classes of two bytes that differ, and of two letters or digits.
#[inline]
fn is_class_change(last: u8, now: u8) -> bool {
    // A bit for each pair of classes, without branches.
    const CHANGES: u16 = 1 << 0b01_10 | 1 << 0b01_11 | 1 << 0b10_01 | 1 << 0b10_11 | 1 << 0b11_01 | 1 << 0b11_10;
    CHANGES >> (last << 2 | now) & 1 != 0
}

/// Whether a run changes often enough between lower case, upper case and digits, or has many digits.
pub(crate) fn is_mixed_run(run: &[u8]) -> bool {
    let (mut last, mut changes, mut digits) = (0, 0, 0);
    for b in run {
        let now = byte_class(*b);
        changes += u32::from(is_class_change(last, now));
        last = now;
        digits += u32::from(now == DIGIT_CLASS);
        if changes >= MIN_CLASS_CHANGES || digits >= MIN_DIGITS {
            return true;
        }
    }
    false
}

/// Whether a value is always part of a run that looks random, unless a line break interrupts it.
pub(crate) fn is_always_run(value: &[u8]) -> bool {
    value.len() >= MIN_RUN_BYTES && value.iter().all(|b| is_run_byte(*b) && !is_break(*b)) && is_mixed_run(value)
}

/// The start of the run around `at`.
pub(crate) fn run_start(text: &[u8], at: usize) -> usize {
    let lowest = at.saturating_sub(MAX_LOOKBACK_BYTES);
    let mut start = at;
    while start > lowest && is_run_byte(text[start - 1]) {
        start -= 1;
    }
    start
}

/// The runs that end behind `from`, from left to right.
pub(crate) fn find_runs(text: &[u8], from: usize) -> Vec<Run> {
    let mut found = Vec::new();
    dispatch!(Level::new(), simd => for_each_run(simd, text, from, |run| found.push(run)));
    found
}

#[inline(always)]
fn for_each_run<S: Simd>(simd: S, text: &[u8], from: usize, mut report: impl FnMut(Run)) {
    // A run that reaches the end of the block before.
    let mut open = (from < text.len() && is_run_byte(text[from])).then(|| run_start(text, from));
    let crossing = |start: usize, end: usize, report: &mut dyn FnMut(Run)| {
        if end - start >= MIN_RUN_BYTES {
            report(Run { start, end, mixed: is_mixed_run(&text[start..end]) });
        }
    };
    for_each_block(text, from..text.len(), |at, block, _| {
        let kinds = Kinds::of(simd, block);
        let mut runs = kinds.bits(RUN_KINDS);
        if let Some(start) = open {
            let more = runs.trailing_ones();
            if more as usize == BLOCK_BYTES {
                return;
            }
            crossing(start, at + more as usize, &mut report);
            runs = runs >> more << more;
        }
        let into_next = runs.leading_ones() as usize;
        open = (into_next > 0).then_some(at + BLOCK_BYTES - into_next);
        // The starts of 2, 4, 8, 16 and 20 ones.
        let mut long = runs & runs >> 1;
        long &= long >> 2;
        long &= long >> 4;
        long &= long >> 8;
        long &= long >> 4;
        if long != 0 {
            let digits = kinds.bits(DIGITS);
            let upper = Kinds::upper(simd, block);
            report_inner_runs(at, runs, long, (digits, upper, kinds.bits(LETTERS)), &mut report);
        }
    });
    if let Some(start) = open {
        crossing(start, text.len(), &mut report);
    }
}

/// Reports the runs that begin and end in a block, given its digits, upper case letters and letters.
fn report_inner_runs(
    at: usize,
    runs: u64,
    mut long: u64,
    (digits, upper, letters): (u64, u64, u64),
    report: &mut dyn FnMut(Run),
) {
    let known = digits | letters;
    let changes = (digits ^ digits >> 1 | upper ^ upper >> 1) & known & known >> 1;
    while long != 0 {
        let start = long.trailing_zeros();
        let length = (runs >> start).trailing_ones();
        let end = start + length;
        if end as usize >= BLOCK_BYTES {
            return;
        }
        let within = ((1u64 << length) - 1) << start;
        let pairs = within & within >> 1;
        let mixed = (changes & pairs).count_ones() >= MIN_CLASS_CHANGES || (digits & within).count_ones() >= MIN_DIGITS;
        report(Run { start: at + start as usize, end: at + end as usize, mixed });
        long = long >> end << end;
    }
}

/// How far behind the sign of an escape (`\n`, `%3D`, `\u003d`) a word may begin.
const ESCAPE_BYTES: usize = 6;

/// Whether a word may begin here: a byte that is no letter or digit, one behind such a byte, or one near an escape.
pub(crate) fn may_begin_word(text: &[u8], at: usize) -> bool {
    byte_class(text[at]) == 0
        || at == 0
        || byte_class(text[at - 1]) == 0
        || text[at.saturating_sub(ESCAPE_BYTES)..at].iter().any(|b| is_escape(*b))
}

/// Reports where words may begin in a part of a text.
#[inline(always)]
pub(crate) fn for_each_word_start<S: Simd>(simd: S, text: &[u8], part: Range<usize>, mut report: impl FnMut(usize)) {
    let before = &text[part.start.saturating_sub(ESCAPE_BYTES)..part.start];
    // The bits of the bytes before a block, the nearest in the highest bit.
    let mut last_signs = u64::from(before.last().is_none_or(|b| byte_class(*b) == 0)) << 63;
    let mut last_escapes =
        (0..).zip(before.iter().rev()).fold(0, |bits, (n, b)| bits | u64::from(is_escape(*b)) << (63 - n));
    for_each_block(text, part, |at, block, within| {
        let kinds = Kinds::of(simd, block);
        let signs = !kinds.bits(LETTERS | DIGITS);
        let escapes = kinds.bits(ESCAPES);
        let mut starts = signs | signs << 1 | last_signs >> 63;
        if escapes | last_escapes != 0 {
            // Behind an escape by one, by one or two, by one to four, by one to six.
            let mut near = (u128::from(escapes) << 64 | u128::from(last_escapes)) << 1;
            near |= near << 1;
            near |= near << 2;
            near |= near << 2;
            starts |= (near >> 64) as u64;
        }
        (last_signs, last_escapes) = (signs, escapes);
        report_bits(at, starts & within, &mut report);
    });
}

/// Where lines begin in a part of a text with a byte of one set, behind a line that may end with a byte of another. Lines
/// without bytes do not count.
pub(crate) fn find_line_starts(text: &[u8], part: Range<usize>, last: &ByteSet, next: &ByteSet) -> Vec<usize> {
    let mut found = Vec::new();
    let mut last_breaks = u64::from(part.start > 0 && is_break(text[part.start - 1])) << 63;
    // What precedes the part may be anything, and so may a line before another break.
    let mut last_ends = u64::MAX;
    dispatch!(Level::new(), simd => for_each_block(text, part, |at, block, within| {
        let breaks = Kinds::of(simd, block).bits(BREAKS);
        let ends = last.bits(simd, block) | breaks;
        let starts = (breaks << 1 | last_breaks >> 63) & !breaks & (ends << 2 | last_ends >> 62);
        (last_breaks, last_ends) = (breaks, ends);
        report_bits(at, starts & next.bits(simd, block) & within, &mut |at| found.push(at));
    }));
    found
}

/// Reports the blocks of a part of a text, and which of their bytes belong to it. Behind the text are zeros.
#[inline(always)]
fn for_each_block(text: &[u8], part: Range<usize>, mut report: impl FnMut(usize, &[u8; BLOCK_BYTES], u64)) {
    let mut at = part.start;
    while at < part.end {
        let mut last = [0; BLOCK_BYTES];
        let block = text[at..].first_chunk().unwrap_or_else(|| {
            last[..text.len() - at].copy_from_slice(&text[at..]);
            &last
        });
        report(at, block, u64::MAX >> BLOCK_BYTES.saturating_sub(part.end - at));
        at += BLOCK_BYTES;
    }
}

/// Reports the place of each bit that is set.
#[inline(always)]
fn report_bits(at: usize, mut bits: u64, report: &mut impl FnMut(usize)) {
    while bits != 0 {
        report(at + bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

fn is_escape(b: u8) -> bool {
    matches!(b, b'\\' | b'%')
}

/// Kinds of bytes, a bit for each.
const DIGITS: u8 = 1 << 0;
const LETTERS: u8 = 1 << 1 | 1 << 2;
const BREAKS: u8 = 1 << 3;
/// `_`, and `-` and `+`.
const JOINTS: u8 = 1 << 4 | 1 << 5;
const ESCAPES: u8 = 1 << 6 | 1 << 7;
const RUN_KINDS: u8 = DIGITS | LETTERS | BREAKS | JOINTS;

/// The kinds that bytes with each low half may have, and with each high half: a byte has those that both halves have.
static LOW_KINDS: HalfTable = HalfTable(kinds_of_halves(0));
static HIGH_KINDS: HalfTable = HalfTable(kinds_of_halves(4));

/// What is known of a byte by one of its halves, once for each 16 bytes of a block.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct HalfTable(pub(crate) [u8; BLOCK_BYTES]);

const fn kinds_of_halves(shift: u32) -> [u8; BLOCK_BYTES] {
    // Letters from `a` to `o`, and from `p` to `z`: all bytes with one of their halves each.
    const OF_KINDS: [&[u8]; 8] = [
        b"0123456789",
        b"abcdefghijklmnoABCDEFGHIJKLMNO",
        b"pqrstuvwxyzPQRSTUVWXYZ",
        b"\n\r",
        b"_",
        b"-+",
        b"\\",
        b"%",
    ];
    let mut table = [0; BLOCK_BYTES];
    let mut kind = 0;
    while kind < OF_KINDS.len() {
        let mut n = 0;
        while n < OF_KINDS[kind].len() {
            let half = (OF_KINDS[kind][n] >> shift & 15) as usize;
            let mut at = half;
            while at < BLOCK_BYTES {
                table[at] |= 1 << kind;
                at += 16;
            }
            n += 1;
        }
        kind += 1;
    }
    table
}

/// A set of bytes.
#[derive(Debug)]
pub(crate) struct ByteSet {
    /// For each low half of an ASCII byte, a bit for each high half.
    halves: HalfTable,
    /// It has other bytes than ASCII.
    others: bool,
}

/// A bit for each high half of an ASCII byte.
static HIGH_BITS: HalfTable = HalfTable({
    let mut table = [0; BLOCK_BYTES];
    let mut n = 0;
    while n < BLOCK_BYTES {
        if n % 16 < 8 {
            table[n] = 1 << (n % 16);
        }
        n += 1;
    }
    table
});

impl ByteSet {
    pub(crate) fn new() -> Self {
        Self { halves: HalfTable([0; BLOCK_BYTES]), others: false }
    }

    pub(crate) fn add(&mut self, b: u8) {
        self.others |= !b.is_ascii();
        if b.is_ascii() {
            (usize::from(b & 15)..BLOCK_BYTES).step_by(16).for_each(|n| self.halves.0[n] |= 1 << (b >> 4));
        }
    }

    #[inline]
    pub(crate) fn may_contain(&self, b: u8) -> bool {
        if b.is_ascii() { self.halves.0[usize::from(b & 15)] >> (b >> 4) & 1 != 0 } else { self.others }
    }

    /// A bit for each byte of a block that the set may contain.
    #[inline(always)]
    fn bits<S: Simd>(&self, simd: S, block: &[u8; BLOCK_BYTES]) -> u64 {
        let bytes = u8x64::from_slice(simd, block);
        let low = u8x64::from_slice(simd, &self.halves.0).swizzle_dyn_within_blocks(bytes & 15);
        let high = u8x64::from_slice(simd, &HIGH_BITS.0).swizzle_dyn_within_blocks(bytes >> 4);
        let others = if self.others { bytes.simd_ge(0x80).to_bitmask() } else { 0 };
        (low & high).simd_ne(0).to_bitmask() | others
    }
}

/// The kinds of the bytes of a block.
#[derive(Clone, Copy)]
struct Kinds<S: Simd>(u8x64<S>);

impl<S: Simd> Kinds<S> {
    #[inline(always)]
    fn of(simd: S, block: &[u8; BLOCK_BYTES]) -> Self {
        let bytes = u8x64::from_slice(simd, block);
        let low = u8x64::from_slice(simd, &LOW_KINDS.0).swizzle_dyn_within_blocks(bytes & 15);
        Self(low & u8x64::from_slice(simd, &HIGH_KINDS.0).swizzle_dyn_within_blocks(bytes >> 4))
    }

    /// One bit for each byte that has one of some kinds, the first byte in the lowest bit.
    #[inline(always)]
    fn bits(self, kinds: u8) -> u64 {
        (self.0 & kinds).simd_ne(0).to_bitmask()
    }

    /// The same for upper case letters.
    #[inline(always)]
    fn upper(simd: S, block: &[u8; BLOCK_BYTES]) -> u64 {
        (u8x64::from_slice(simd, block) - b'A').simd_lt(26).to_bitmask()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs_by_definition(text: &[u8]) -> Vec<Run> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let length = text[at..].iter().take_while(|b| is_run_byte(**b)).count();
            if length >= MIN_RUN_BYTES {
                let mixed = is_mixed_run(&text[at..at + length]);
                found.push(Run { start: at, end: at + length, mixed });
            }
            at += length.max(1);
        }
        found
    }

    proptest! {
        #[test]
        fn runs_are_found_as_defined(text in "[a-c A-C1-3_\n.]{0,40}([a-f0-9A-F]{10,90}[ .\n][x ]{0,5}){0,5}", from in 0usize..60) {
            let text = text.as_bytes();
            prop_assert_eq!(find_runs(text, 0), runs_by_definition(text));
            let from = from.min(text.len());
            let later: Vec<Run> = runs_by_definition(text).into_iter().filter(|r| r.end > from).collect();
            prop_assert_eq!(find_runs(text, from), later);
        }

        #[test]
        fn word_starts_are_found_as_defined(text in "([a-cA-C1-3]{1,40}|[_. \\\\%é]){0,40}", from in 0usize..90, to in 0usize..200) {
            let text = text.as_bytes();
            let to = to.min(text.len());
            let from = from.min(to);
            let defined: Vec<usize> = (from..to).filter(|at| may_begin_word(text, *at)).collect();
            let mut found = Vec::new();
            dispatch!(Level::new(), simd => for_each_word_start(simd, text, from..to, |at| found.push(at)));
            prop_assert_eq!(found, defined);
        }
    }
}
