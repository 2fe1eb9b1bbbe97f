//! Finds the keywords of rules where tokens may be: in and near runs that look random.
//!
//! There are hundreds of keywords, and no search for that many is fast. But nearly all of them precede a run, or are part
//! of one.

use crate::{
    line_breaks::BreakPlaces,
    rules::{
        HEAD_BITS, INSIDE_BITS, INWARD_BITS, KEYWORD_HEADS, Keyword, WRAPPED_BITS, has_head, has_head_of,
        keywords_with_head,
    },
    runs::{self, MIN_RUN_BYTES, Run, is_run_byte, run_start},
    visible_text::is_break,
};
use fearless_simd::{Level, dispatch};
use std::{ops::Range, sync::OnceLock};

/// How far before a run its keyword may begin.
const KEYWORD_REACH_BYTES: usize = 48;
/// The reach behind a slash and similar bytes: they cut a base64 token, and follow the host of a link.
const LINK_REACH_BYTES: usize = 6 * KEYWORD_REACH_BYTES;
/// How far behind a run a keyword may end: a slash may precede it.
const KEYWORD_OVERHANG_BYTES: usize = 24;
/// How far back the end of the text is inspected: a run that has no end yet.
const MAX_OPEN_RUN_BYTES: usize = 4096;
/// A shorter run contains no token in base64.
const MIN_WRAPPED_BYTES: usize = 24;

/// All keywords, by the places at which a line break could interrupt them.
fn broken_keywords() -> &'static (BreakPlaces, Vec<&'static Keyword>) {
    static BROKEN: OnceLock<(BreakPlaces, Vec<&'static Keyword>)> = OnceLock::new();
    BROKEN.get_or_init(|| {
        let keywords: Vec<&Keyword> = KEYWORD_HEADS.iter().flat_map(|(_, keywords)| *keywords).collect();
        (BreakPlaces::new(keywords.iter().map(|k| k.text)), keywords)
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

/// Where a keyword of the run at `start` may begin.
fn reach_start(text: &[u8], start: usize) -> usize {
    let near = start.saturating_sub(KEYWORD_REACH_BYTES);
    if start == 0 || !matches!(text[start - 1], b'/' | b'=' | b'@' | b'%') {
        return near;
    }
    // A link has no blanks and no quotes.
    let far = start.saturating_sub(LINK_REACH_BYTES);
    let ends_link = |b: &u8| matches!(b, b' ' | b'"' | b'\'' | b'<' | b'>') || b.is_ascii_control();
    near.min(text[far..start].iter().rposition(ends_link).map_or(far, |n| far + n + 1))
}

/// Whether a token from `public` to `end`, with its keyword at `keyword`, is found whatever follows it. A token that is found
/// only if something else follows is not redacted at all.
pub(crate) fn always_found(text: &[u8], public: usize, keyword: usize, end: usize) -> bool {
    let mut at = public;
    while at < end {
        if !is_run_byte(text[at]) {
            at += 1;
            continue;
        }
        let start = run_start(text, at);
        let length = |most: usize| text[at..end].iter().take(most).take_while(|b| is_run_byte(**b)).count();
        // A keyword at the start of a run is always found.
        if start == keyword && at - start + length(MIN_RUN_BYTES) >= MIN_RUN_BYTES {
            return true;
        }
        let stop = at + length(usize::MAX);
        if stop - start >= MIN_RUN_BYTES
            && runs::is_mixed_run(&text[start..stop])
            && keyword >= reach_start(text, start)
            && keyword < stop + KEYWORD_OVERHANG_BYTES
        {
            return true;
        }
        at = stop;
    }
    false
}

/// What is near the runs of a text.
#[derive(Default)]
pub(crate) struct NearRuns {
    /// Keywords, from left to right.
    pub(crate) keywords: Vec<KeywordMatch>,
    /// The runs that look random.
    pub(crate) mixed: Vec<Run>,
    /// Where keywords in base64 may begin in those runs, from left to right.
    pub(crate) wrapped: Vec<usize>,
}

impl NearRuns {
    /// Keywords in base64 count inside long runs alone.
    fn keep_wrapped_in_runs(&mut self) {
        self.wrapped.sort_unstable();
        self.wrapped.dedup();
        let mut runs = self.mixed.iter().filter(|run| run.end - run.start >= MIN_WRAPPED_BYTES).peekable();
        self.wrapped.retain(|at| {
            while runs.next_if(|run| run.end < at + 3).is_some() {}
            runs.peek().is_some_and(|run| run.start <= *at)
        });
    }
}

/// One pass through a text.
struct KeywordFinder<'a> {
    text: &'a [u8],
    /// The parts in which keywords are searched, from left to right.
    parts: Vec<Range<usize>>,
    found: NearRuns,
}

/// Searches `text` from `from` on. `returns`: there are carriage returns in it.
pub(crate) fn search_runs(text: &[u8], from: usize, returns: bool) -> NearRuns {
    let mut finder = KeywordFinder { text, parts: Vec::new(), found: NearRuns::default() };
    runs::find_runs(text, from).into_iter().for_each(|run| finder.inspect_run(run));
    finder.inspect_tail();
    for part in std::mem::take(&mut finder.parts) {
        finder.find_keywords(part.clone());
        finder.find_broken_keywords(part);
    }
    if returns {
        finder.inspect_wraps(from);
    }
    let keywords = &mut finder.found.keywords;
    keywords.sort_unstable_by_key(|k| (k.start, k.end, k.rule));
    keywords.dedup();
    finder.found.keep_wrapped_in_runs();
    finder.found
}

impl KeywordFinder<'_> {
    fn inspect_run(&mut self, run: Run) {
        if run.mixed {
            self.found.mixed.push(run);
            let to = (run.end + KEYWORD_OVERHANG_BYTES).min(self.text.len());
            self.add_part(reach_start(self.text, run.start)..to);
        } else {
            // It may still be a token if it begins with a keyword.
            self.find_keywords_at(run.start);
        }
    }

    /// A token at the end of the text may continue with later bytes, and become random with them.
    fn inspect_tail(&mut self) {
        let blanks = self.text.iter().rev().take_while(|b| matches!(b, b' ' | b'\r')).count();
        let end = self.text.len() - blanks;
        let run = self.text[..end].iter().rev().take(MAX_OPEN_RUN_BYTES).take_while(|b| is_run_byte(**b)).count();
        self.add_part((end - run).saturating_sub(LINK_REACH_BYTES)..self.text.len());
    }

    /// A line editor's wrap ends a run in the middle of a token.
    fn inspect_wraps(&mut self, from: usize) {
        for at in memchr::memchr_iter(b'\r', &self.text[from..]).map(|n| from + n) {
            let wraps = at > 0 && self.text[at - 1] == b' ' && self.text.get(at + 1).is_some_and(|b| !is_break(*b));
            if wraps {
                let found = &mut self.found.keywords;
                let part = at.saturating_sub(2 * KEYWORD_REACH_BYTES)..at;
                for_each_keyword(self.text, part, |k| found.push(KeywordMatch { wrap: Some(at), ..k }), |_| {});
            }
        }
    }

    /// Adds a part, and joins it with those that it reaches. Parts end from left to right.
    fn add_part(&mut self, mut part: Range<usize>) {
        while let Some(before) = self.parts.pop_if(|before| before.end >= part.start) {
            part = before.start.min(part.start)..part.end;
        }
        self.parts.push(part);
    }

    /// Finds the keywords that begin here.
    fn find_keywords_at(&mut self, at: usize) {
        let Some(&head) = self.text[at..].first_chunk() else { return };
        if has_head(&HEAD_BITS, head) && (has_head(&INSIDE_BITS, head) || runs::may_begin_word(self.text, at)) {
            self.found.keywords.extend(keywords_at(self.text, at));
        }
    }

    fn find_keywords(&mut self, part: Range<usize>) {
        let NearRuns { keywords, wrapped, .. } = &mut self.found;
        for_each_keyword(self.text, part, |keyword| keywords.push(keyword), |at| wrapped.push(at));
    }

    /// Finds keywords that a line break interrupts.
    fn find_broken_keywords(&mut self, part: Range<usize>) {
        let found = &mut self.found.keywords;
        let (places, keywords) = broken_keywords();
        places.find(
            self.text,
            part.start..part.end.min(self.text.len()),
            |n| keywords[n].text.as_bytes(),
            |n, start, end| found.push(KeywordMatch { start, end, rule: keywords[n].rule, wrap: None }),
        );
    }
}

/// Reports each keyword that begins in a part of the text, at the start of a word or, if its rule says so, inside; and each
/// place where one in base64 may begin.
#[inline]
fn for_each_keyword(
    text: &[u8],
    part: Range<usize>,
    mut found: impl FnMut(KeywordMatch),
    mut wrapped: impl FnMut(usize),
) {
    let last = part.end.min(text.len().saturating_sub(2));
    if part.start >= last {
        return;
    }
    let head = |at: usize| [text[at], text[at + 1], text[at + 2]];
    let mut inspect_inward = |at: usize| {
        let head = head(at);
        if has_head(&WRAPPED_BITS, head) {
            wrapped(at);
        }
        if has_head(&INSIDE_BITS, head) && !runs::may_begin_word(text, at) {
            keywords_at(text, at).for_each(&mut found);
        }
    };
    // Every second place is tested, for keywords that begin there or one byte before.
    let searched = &text[part.start..text.len().min(last + 4)];
    let mut bytes = u32::from(searched[0]) << 16 | u32::from(searched[1]) << 24;
    for (n, pair) in searched[2..].as_chunks::<2>().0.iter().enumerate() {
        bytes = bytes >> 16 | u32::from(u16::from_le_bytes(*pair)) << 16;
        if has_head_of(&INWARD_BITS, bytes) {
            let at = part.start + 2 * n;
            (at.saturating_sub(1).max(part.start)..last.min(at + 1)).for_each(&mut inspect_inward);
        }
    }
    // Those tests end before the last heads.
    if last + 3 >= text.len() {
        (part.start.max(last.saturating_sub(2))..last).for_each(&mut inspect_inward);
    }
    let mut starts = Vec::new();
    dispatch!(Level::new(), simd => runs::for_each_word_start(simd, text, part.start..last, |at| {
        if has_head(&HEAD_BITS, head(at)) {
            starts.push(at);
        }
    }));
    starts.into_iter().flat_map(|at| keywords_at(text, at)).for_each(&mut found);
}

/// The keywords that a text has at a place before its last two bytes.
#[inline]
fn keywords_at(text: &[u8], at: usize) -> impl Iterator<Item = KeywordMatch> {
    let of_head = keywords_with_head([text[at], text[at + 1], text[at + 2]]).iter();
    let here = of_head.filter(move |k| text[at..].starts_with(k.text.as_bytes()));
    here.map(move |k| KeywordMatch { start: at, end: at + k.text.len(), rule: k.rule, wrap: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{RULES, wrapped_keywords_at};
    use proptest::prelude::*;

    /// Every keyword at a place where its rule lets it count, by trying each place.
    fn keywords_by_definition(text: &[u8], part: Range<usize>) -> Vec<KeywordMatch> {
        let last = part.end.min(text.len().saturating_sub(2));
        let counts = |k: &KeywordMatch| {
            let rule = &RULES[k.rule];
            runs::may_begin_word(text, k.start) || !rule.bounded || rule.before.is_some() || rule.checked
        };
        (part.start..last).flat_map(|at| keywords_at(text, at)).filter(counts).collect()
    }

    fn pieces() -> impl Strategy<Value = String> {
        let keywords: Vec<String> =
            KEYWORD_HEADS.iter().flat_map(|(_, of_head)| *of_head).map(|k| k.text.to_owned()).collect();
        prop_oneof![prop::sample::select(keywords), "[a-zA-Z0-9]{0,5}", "[ _.%\\\\\n-]{1,2}"]
    }

    proptest! {
        #[test]
        fn keywords_are_found_as_defined(
            pieces in prop::collection::vec(pieces(), 0..12),
            from in 0usize..40,
            to in 0usize..200,
        ) {
            let text = pieces.concat();
            let text = text.as_bytes();
            let to = to.min(text.len());
            let from = from.min(to);
            let (mut found, mut wrapped) = (Vec::new(), Vec::new());
            for_each_keyword(text, from..to, |keyword| found.push(keyword), |at| wrapped.push(at));
            for keyword in keywords_by_definition(text, from..to) {
                prop_assert!(found.contains(&keyword), "{keyword:?} lacks");
            }
            let last = to.min(text.len().saturating_sub(2));
            for at in (from..last).filter(|at| wrapped_keywords_at(&text[*at..]).next().is_some()) {
                prop_assert!(wrapped.contains(&at), "{at}");
            }
        }
    }
}
