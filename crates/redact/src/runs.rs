//! Finds the runs of a text: stretches of at least 20 bytes that tokens consist of.
//!
//! Nearly every secret contains a run that looks random, and ordinary text has few of those. So the text is read once,
//! 64 bytes at a time, by code that the compiler turns into vector instructions, and rules look only in and near runs.

use crate::visible_text::is_break;
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
const BLOCK_BYTES: usize = 64;

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

/// Reports each run that ends behind `from`, from left to right.
pub(crate) fn for_each_run(text: &[u8], from: usize, mut report: impl FnMut(Run)) {
    // A run that reaches the end of the block before.
    let mut open = (from < text.len() && is_run_byte(text[from])).then(|| run_start(text, from));
    let crossing = |start: usize, end: usize, report: &mut dyn FnMut(Run)| {
        if end - start >= MIN_RUN_BYTES {
            report(Run { start, end, mixed: is_mixed_run(&text[start..end]) });
        }
    };
    for_each_block(text, from..text.len(), |at, block, _| {
        let mut runs = pack(block, is_run_lane);
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
            report_inner_runs(block, at, runs, long, &mut report);
        }
    });
    if let Some(start) = open {
        crossing(start, text.len(), &mut report);
    }
}

/// Reports the runs that begin and end in a block.
fn report_inner_runs(block: &[u8; BLOCK_BYTES], at: usize, runs: u64, mut long: u64, report: &mut dyn FnMut(Run)) {
    let digits = pack(block, is_digit_lane);
    let upper = pack(block, is_upper_lane);
    let letters = pack(block, is_letter_lane);
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
        || text[at.saturating_sub(ESCAPE_BYTES)..at].iter().any(|b| is_escape_lane(*b))
}

/// Reports where words may begin in a part of a text.
pub(crate) fn for_each_word_start(text: &[u8], part: Range<usize>, mut report: impl FnMut(usize)) {
    let before = &text[part.start.saturating_sub(ESCAPE_BYTES)..part.start];
    // The bits of the bytes before a block, the nearest in the highest bit.
    let mut last_signs = u64::from(before.last().is_none_or(|b| byte_class(*b) == 0)) << 63;
    let mut last_escapes =
        (0..).zip(before.iter().rev()).fold(0, |bits, (n, b)| bits | u64::from(is_escape_lane(*b)) << (63 - n));
    for_each_block(text, part, |at, block, within| {
        let signs = !pack(block, |b| is_letter_lane(b) | is_digit_lane(b));
        let escapes = pack(block, is_escape_lane);
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

/// Reports the line breaks of a part of a text.
pub(crate) fn for_each_break(text: &[u8], part: Range<usize>, mut report: impl FnMut(usize)) {
    for_each_block(text, part, |at, block, within| {
        report_bits(at, pack(block, |b| (b == b'\n') | (b == b'\r')) & within, &mut report);
    });
}

/// Reports the blocks of a part of a text, and which of their bytes belong to it. Behind the text are zeros.
#[inline]
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
#[inline]
fn report_bits(at: usize, mut bits: u64, report: &mut impl FnMut(usize)) {
    while bits != 0 {
        report(at + bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

fn is_escape_lane(b: u8) -> bool {
    (b == b'\\') | (b == b'%')
}

fn is_run_lane(b: u8) -> bool {
    is_letter_lane(b) | is_digit_lane(b) | (b == b'_') | (b == b'-') | (b == b'+') | (b == b'\n') | (b == b'\r')
}

fn is_letter_lane(b: u8) -> bool {
    (b | 0x20).wrapping_sub(b'a') < 26
}

fn is_upper_lane(b: u8) -> bool {
    b.wrapping_sub(b'A') < 26
}

fn is_digit_lane(b: u8) -> bool {
    b.wrapping_sub(b'0') < 10
}

/// One bit for each byte of a block, the first byte in the lowest bit.
#[inline(always)]
fn pack(block: &[u8; BLOCK_BYTES], is: impl Fn(u8) -> bool) -> u64 {
    let mut flags = [0u8; BLOCK_BYTES];
    for (flag, b) in flags.iter_mut().zip(block) {
        *flag = if is(*b) { 0xff } else { 0 };
    }
    let mut packed = 0;
    for (n, part) in flags.as_chunks().0.iter().enumerate() {
        packed |= u64::from(top_bits(*part)) << (n * 16);
    }
    packed
}

/// The highest bits of 16 bytes: one instruction.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn top_bits(bytes: [u8; 16]) -> u16 {
    safe_arch::move_mask_i8_m128i(safe_arch::m128i::from(bytes)) as u16
}

/// The highest bits of 16 bytes.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn top_bits(bytes: [u8; 16]) -> u16 {
    let mut bits = 0;
    for (n, eight) in bytes.as_chunks().0.iter().enumerate() {
        // The highest bits of eight bytes, gathered in the highest byte.
        let top = u64::from_le_bytes(*eight) >> 7 & 0x0101_0101_0101_0101;
        bits |= ((top.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u16) << (n * 8);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs(text: &[u8], from: usize) -> Vec<Run> {
        let mut found = Vec::new();
        for_each_run(text, from, |run| found.push(run));
        found
    }

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
            prop_assert_eq!(runs(text, 0), runs_by_definition(text));
            let from = from.min(text.len());
            let later: Vec<Run> = runs_by_definition(text).into_iter().filter(|r| r.end > from).collect();
            prop_assert_eq!(runs(text, from), later);
        }

        #[test]
        fn word_starts_are_found_as_defined(text in "([a-cA-C1-3]{1,40}|[_. \\\\%é]){0,40}", from in 0usize..90, to in 0usize..200) {
            let text = text.as_bytes();
            let to = to.min(text.len());
            let from = from.min(to);
            let defined: Vec<usize> = (from..to).filter(|at| may_begin_word(text, *at)).collect();
            let mut found = Vec::new();
            for_each_word_start(text, from..to, |at| found.push(at));
            prop_assert_eq!(found, defined);
        }
    }
}
