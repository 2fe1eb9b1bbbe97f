//! Finds the keywords of rules where tokens may be: in and before long runs of token bytes that mix letters and digits.
//!
//! There are hundreds of keywords, and no search for that many is fast. But nearly all of them precede a long, random run,
//! and ordinary text has few of those. So the text is sampled: eight bytes of every sixteen, by code that the compiler
//! turns into vector instructions. Every run of 23 bytes contains a whole sample. Keywords are searched in and before such
//! runs alone.

use crate::{
    line_breaks::BreakPairs,
    rules::{KEYWORD_HEADS, Keyword, keywords_with_head},
    visible_text::is_break,
};
use std::sync::OnceLock;

/// A run of this length contains a whole sample, wherever it begins. Shorter runs are ignored even if they contain one, so
/// that the result does not depend on the position.
const MIN_RUN_BYTES: usize = 23;
/// How far before a run its keyword may begin.
const KEYWORD_REACH_BYTES: usize = 48;
/// The reach is this many times larger behind a slash and similar bytes: they cut a base64 token, and follow the host of a
/// link.
const LINK_REACH_FACTOR: usize = 6;
/// How far back the beginning of a run is searched.
const MAX_LOOKBACK_BYTES: usize = 512;
/// A random run changes at least this many times between lower case, upper case and digits.
const MIN_CLASS_CHANGES: usize = 3;
/// Or it has this many digits: some hexadecimal tokens change seldom. This is a count, not a share, so that more text
/// cannot undo it.
const MIN_DIGITS: usize = 12;
const BLOCK_BYTES: usize = 64;

/// All keywords, by the places at which a line break could interrupt them.
fn broken_keywords() -> &'static (BreakPairs, Vec<&'static Keyword>) {
    static BROKEN: OnceLock<(BreakPairs, Vec<&'static Keyword>)> = OnceLock::new();
    BROKEN.get_or_init(|| {
        let keywords: Vec<&Keyword> = KEYWORD_HEADS.iter().flat_map(|(_, keywords)| *keywords).collect();
        (BreakPairs::new(keywords.iter().map(|k| k.text)), keywords)
    })
}

/// A keyword in the text, and its rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeywordMatch {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) rule: usize,
    /// Where a line editor wrapped the line behind it. A value that spans the wrap is found at every position.
    pub(crate) wrap: Option<usize>,
}

/// Whether a run may contain this byte: token bytes, and line breaks, which may interrupt a token.
fn is_run_byte(b: u8) -> bool {
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

/// Whether a value is always found by its run, whatever line breaks interrupt it.
pub(crate) fn is_always_sampled(value: &[u8]) -> bool {
    value.len() >= 23 && value.iter().all(|b| is_run_byte(*b)) && is_mixed_run(value)
}

/// Whether a run changes often enough between lower case, upper case and digits, or has many digits. Line breaks do not
/// count.
fn is_mixed_run(run: &[u8]) -> bool {
    let (mut last, mut changes, mut digits) = (0, 0, 0);
    for b in run {
        if is_break(*b) {
            continue;
        }
        let now = BYTE_CLASSES[usize::from(*b)];
        changes += usize::from(now != last && now != 0 && last != 0);
        last = now;
        digits += usize::from(now == DIGIT_CLASS);
        if changes >= MIN_CLASS_CHANGES || digits >= MIN_DIGITS {
            return true;
        }
    }
    false
}

/// The start of the run around `at`.
fn run_start(text: &[u8], at: usize) -> usize {
    let lowest = at.saturating_sub(MAX_LOOKBACK_BYTES);
    let mut start = at;
    while start > lowest && is_run_byte(text[start - 1]) {
        start -= 1;
    }
    start
}

/// How far before the run at `start` its keyword may begin.
fn keyword_reach(text: &[u8], start: usize) -> usize {
    let linked = start > 0 && matches!(text[start - 1], b'/' | b'=' | b'@');
    if linked { LINK_REACH_FACTOR * KEYWORD_REACH_BYTES } else { KEYWORD_REACH_BYTES }
}

/// Whether a value that ends at `end`, with its keyword at `public`, is found at every position and whatever follows it. A
/// value that is found at some positions only is not redacted at all.
pub(crate) fn always_found(text: &[u8], public: usize, end: usize) -> bool {
    let mut at = public;
    while at < end {
        if !is_run_byte(text[at]) {
            at += 1;
            continue;
        }
        let start = run_start(text, at);
        let stop = at + text[at..end].iter().take_while(|b| is_run_byte(**b)).count();
        // A keyword at the start of a run is always found.
        let near = || is_mixed_run(&text[start..stop]) && public + keyword_reach(text, start) >= start;
        if stop - start >= MIN_RUN_BYTES && (start == public || near()) {
            return true;
        }
        at = stop;
    }
    false
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

/// Which of the four samples of a block consist of run bytes alone.
#[inline]
fn sample_block(block: &[u8; BLOCK_BYTES]) -> u32 {
    let mut picked = [0u8; BLOCK_BYTES / 2];
    for n in 0..4 {
        picked[n * 8..n * 8 + 8].copy_from_slice(&block[n * 16..n * 16 + 8]);
    }
    for b in &mut picked {
        let alphabetic = (*b | 0x20).wrapping_sub(b'a') < 26;
        let digit = b.wrapping_sub(b'0') < 10;
        let other = (*b == b'_') | (*b == b'-') | (*b == b'+') | (*b == b'\n') | (*b == b'\r');
        *b = u8::from(!(alphabetic | digit | other));
    }
    let mut full = 0;
    for n in 0..4 {
        let eight: [u8; 8] = picked[n * 8..n * 8 + 8].try_into().expect("eight bytes");
        full |= u32::from(u64::from_ne_bytes(eight) == 0) << n;
    }
    full
}

/// One pass through a text.
pub(crate) struct KeywordFinder<'a> {
    text: &'a [u8],
    /// The end of the last run that was inspected.
    done: usize,
    /// The end of the text in which keywords were searched.
    inspected: usize,
    found: Vec<KeywordMatch>,
    /// Line breaks inside runs.
    breaks: Vec<usize>,
}

/// The keywords in `text` from `from` on, from left to right; and the line breaks inside runs.
///
/// `returns`: there are carriage returns in it.
pub(crate) fn find_keywords(text: &[u8], from: usize, returns: bool) -> (Vec<KeywordMatch>, Vec<usize>) {
    let mut finder = KeywordFinder { text, done: from, inspected: from, found: Vec::new(), breaks: Vec::new() };
    let base = from / 16 * 16;
    let mut at = base;
    while let Some(block) = text.get(at..at + BLOCK_BYTES) {
        let mut full = sample_block(block.try_into().expect("a whole block"));
        while full != 0 {
            let n = full.trailing_zeros() as usize;
            finder.inspect_run(at + n * 16);
            full &= full - 1;
        }
        at += BLOCK_BYTES;
    }
    while at < text.len() {
        if text[at..text.len().min(at + 8)].iter().all(|b| is_run_byte(*b)) {
            finder.inspect_run(at);
        }
        at += 16;
    }
    finder.inspect_tail();
    if returns {
        finder.inspect_wraps(from);
    }
    finder.found.sort_by_key(|p| p.start);
    // The keyword at the start of one run may be within reach of the next.
    finder.found.dedup();
    (finder.found, finder.breaks)
}

impl KeywordFinder<'_> {
    fn inspect_run(&mut self, at: usize) {
        if at < self.done {
            return;
        }
        let start = run_start(self.text, at);
        let mut end = (at + 8).min(self.text.len());
        while end < self.text.len() && is_run_byte(self.text[end]) {
            end += 1;
        }
        self.done = end;
        if end - start < MIN_RUN_BYTES {
            return;
        }
        if is_mixed_run(&self.text[start..end]) {
            self.inspect_range(start.saturating_sub(keyword_reach(self.text, start)), end);
        } else {
            self.inspect_run_start(start);
        }
    }

    /// A run that does not look random may still be a token if it begins with a keyword.
    fn inspect_run_start(&mut self, start: usize) {
        if start >= self.inspected {
            let before = start.checked_sub(1).map_or(b' ', |i| self.text[i]);
            for_each_keyword(self.text, start, start + 1, before, |start, end, rule| {
                self.found.push(KeywordMatch { start, end, rule, wrap: None });
            });
        }
    }

    /// A short run at the end of the text may continue with later bytes.
    fn inspect_tail(&mut self) {
        let blanks = self.text.iter().rev().take_while(|b| matches!(b, b' ' | b'\r')).count();
        let end = self.text.len() - blanks;
        let run = self.text[..end].iter().rev().take(4096).take_while(|b| is_run_byte(**b)).count();
        self.inspect_range((end - run).saturating_sub(KEYWORD_REACH_BYTES), self.text.len());
    }

    /// A line editor's wrap ends a run in the middle of a token.
    fn inspect_wraps(&mut self, from: usize) {
        for at in memchr::memchr_iter(b'\r', &self.text[from..]).map(|n| from + n) {
            let wraps = at > 0 && self.text[at - 1] == b' ' && self.text.get(at + 1).is_some_and(|b| !is_break(*b));
            if wraps {
                let start = at.saturating_sub(2 * KEYWORD_REACH_BYTES);
                for_each_keyword(self.text, start, at, b' ', |start, end, rule| {
                    self.found.push(KeywordMatch { start, end, rule, wrap: Some(at) });
                });
            }
        }
    }

    fn inspect_range(&mut self, from: usize, to: usize) {
        let from = from.max(self.inspected);
        if from >= to {
            return;
        }
        self.inspected = to;
        let before = from.checked_sub(1).map_or(b' ', |i| self.text[i]);
        for_each_keyword(self.text, from, to, before, |start, end, rule| {
            self.found.push(KeywordMatch { start, end, rule, wrap: None })
        });
        let mut at = from;
        while let Some(n) = memchr::memchr2(b'\n', b'\r', &self.text[at..to]) {
            at += n;
            self.find_broken_keywords(at);
            self.breaks.push(at);
            at += self.text[at..].iter().take_while(|b| is_break(**b)).count();
            if at >= to {
                break;
            }
        }
    }

    /// Finds keywords that the line break at `at` interrupts.
    fn find_broken_keywords(&mut self, at: usize) {
        let (pairs, keywords) = broken_keywords();
        pairs.find_around(
            self.text,
            at,
            |n| keywords[n].text.as_bytes(),
            |n, start, end| {
                self.found.push(KeywordMatch { start, end, rule: keywords[n].rule, wrap: None });
            },
        );
    }
}

/// Reports each keyword that begins in a part of the text, at the start of a word.
#[inline]
fn for_each_keyword(text: &[u8], from: usize, to: usize, before: u8, mut found: impl FnMut(usize, usize, usize)) {
    let last = to.min(text.len().saturating_sub(2));
    let mut inside = BYTE_CLASSES[usize::from(before)] != 0;
    // The position of the last `\` or `%`: a word also begins behind `\n`, `%3D` and `\u003d`.
    let near = from.saturating_sub(6);
    let before = text[near..from].iter().rposition(|b| matches!(b, b'\\' | b'%'));
    let mut mark = before.map_or(usize::MAX, |n| near + n);
    for (at, three) in (from..last).zip(text[from..].windows(3)) {
        let byte = three[0];
        let word = BYTE_CLASSES[usize::from(byte)] != 0;
        let within = inside && word;
        inside = word;
        if !word && matches!(byte, b'\\' | b'%') {
            mark = at;
        }
        if within && at.wrapping_sub(mark) > 6 && !counts_inside_words(byte, three[1]) {
            continue;
        }
        for keyword in keywords_with_head([byte, three[1], three[2]]) {
            if text[at..].starts_with(keyword.text.as_bytes()) {
                found(at, at + keyword.text.len(), keyword.rule);
            }
        }
    }
}

/// Keywords with this beginning also count inside a word: a checksum or their form distinguishes them.
fn counts_inside_words(byte: u8, next: u8) -> bool {
    matches!((byte, next), (b'g', b'h') | (b'n', b'p') | (b'7'..=b'9', b'Q'))
}
