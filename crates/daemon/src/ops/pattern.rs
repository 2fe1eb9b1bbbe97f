//! The search itself: pieces in, matches out, in bounded memory. Line by line, as people read.

use memchr::memmem;
use regex::bytes::{Regex, RegexBuilder};
use std::collections::VecDeque;

/// A longer line is searched in parts; a match across two of them is not found.
const MAX_LINE_BYTES: usize = 1024 * 1024;
/// How much of a line is shown.
const MAX_EXCERPT_BYTES: usize = 512;
/// How much memory a pattern may take.
const MAX_PATTERN_MEMORY_BYTES: usize = 4 * 1024 * 1024;

/// Why a pattern cannot be searched for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatternError {
    #[error("the pattern is empty")]
    Empty,
    #[error("a pattern cannot contain a line break: it is searched for within lines")]
    LineBreak,
    #[error(transparent)]
    Regex(#[from] regex::Error),
}

/// What to search for.
pub(crate) enum SearchPattern {
    /// Owns its needle, so that it can be stored.
    Literal(Box<memmem::Finder<'static>>),
    Regex(Box<Regex>),
}

impl SearchPattern {
    pub(crate) fn new(pattern: &str, regex: bool, ignore_case: bool) -> Result<Self, PatternError> {
        if pattern.is_empty() {
            return Err(PatternError::Empty);
        }
        if pattern.contains('\n') && !regex {
            return Err(PatternError::LineBreak);
        }
        if !regex && !ignore_case {
            return Ok(Self::Literal(Box::new(memmem::Finder::new(pattern.as_bytes()).into_owned())));
        }
        let source = if regex { pattern.to_owned() } else { regex::escape(pattern) };
        let mut builder = RegexBuilder::new(&source);
        let built = builder.case_insensitive(ignore_case).multi_line(true).size_limit(MAX_PATTERN_MEMORY_BYTES).build();
        Ok(Self::Regex(Box::new(built?)))
    }

    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        self.find(bytes, 0).is_some()
    }

    fn find(&self, line: &[u8], from: usize) -> Option<(usize, usize)> {
        match self {
            Self::Literal(finder) => finder.find(&line[from..]).map(|at| (from + at, finder.needle().len())),
            Self::Regex(regex) => regex.find_at(line, from).map(|m| (m.start(), m.len())),
        }
    }
}

/// A summary of a stretch of output.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct OutputSketch {
    pub(crate) len: u64,
    pub(crate) lines: u64,
    /// Behind the first and behind the last line break, if there is one.
    pub(crate) first: Option<u64>,
    pub(crate) last: Option<u64>,
    /// The pattern may occur in it.
    pub(crate) may_match: bool,
}

impl OutputSketch {
    pub(crate) fn scan(pattern: &SearchPattern, bytes: &[u8]) -> Self {
        Self {
            len: bytes.len() as u64,
            lines: memchr::memchr_iter(b'\n', bytes).count() as u64,
            first: memchr::memchr(b'\n', bytes).map(|n| n as u64 + 1),
            last: memchr::memrchr(b'\n', bytes).map(|n| n as u64 + 1),
            may_match: pattern.find(bytes, 0).is_some(),
        }
    }

    /// This stretch and the next one together. The caller must check the line across their border.
    pub(crate) fn join(self, next: Self) -> Self {
        Self {
            len: self.len + next.len,
            lines: self.lines + next.lines,
            first: self.first.or(next.first.map(|n| self.len + n)),
            last: next.last.map(|n| self.len + n).or(self.last),
            may_match: self.may_match || next.may_match,
        }
    }
}

/// One match.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PatternMatch {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// From 1; none after a gap, where the number is unknown.
    pub(crate) line: Option<u64>,
    pub(crate) line_offset: u64,
    pub(crate) excerpt: Vec<u8>,
    pub(crate) before: Vec<Vec<u8>>,
    pub(crate) after: Vec<Vec<u8>>,
}

/// Where a search continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SearchPosition {
    pub(crate) offset: u64,
    /// The number of the line that begins or continues here; 0 if it is unknown.
    pub(crate) line: u64,
    /// How much of that line has been searched.
    pub(crate) searched_bytes: u64,
}

pub(crate) struct Search<'p> {
    pattern: &'p SearchPattern,
    context: usize,
    max_matches: usize,
    found: Vec<PatternMatch>,
    /// The previous lines, for context.
    recent: VecDeque<Vec<u8>>,
    /// Matches that still need lines after them: index and number of lines.
    open: VecDeque<(usize, usize)>,
    position: SearchPosition,
    /// The pattern matches across line ends. From here on lines are searched one by one; otherwise each match would run
    /// to the end of the text.
    crosses_lines: bool,
    /// The last match has been found: its line is completed and the lines after it are collected, but nothing more is
    /// searched.
    full: Option<SearchPosition>,
}

impl<'p> Search<'p> {
    pub(crate) fn new(pattern: &'p SearchPattern, context: usize, most: usize, from: SearchPosition) -> Self {
        Self {
            pattern,
            context,
            max_matches: most.max(1),
            found: Vec::new(),
            recent: VecDeque::new(),
            open: VecDeque::new(),
            position: from,
            crosses_lines: false,
            full: None,
        }
    }

    pub(crate) fn pattern(&self) -> &'p SearchPattern {
        self.pattern
    }

    /// The position of the next byte.
    pub(crate) fn position(&self) -> SearchPosition {
        self.position
    }

    /// Whether nothing more is needed.
    pub(crate) fn is_done(&self) -> bool {
        self.full.is_some() && self.open.is_empty()
    }

    /// Whether stretches without a match may be skipped without splitting them into lines.
    pub(crate) fn can_skip(&self) -> bool {
        self.context == 0 && self.full.is_none() && self.position.searched_bytes == 0
    }

    /// Skips lines without a match, given their length and number.
    pub(crate) fn skip_counted(&mut self, bytes: u64, lines: u64) {
        self.position.offset += bytes;
        if self.position.line > 0 {
            self.position.line += lines;
        }
    }

    /// Continues after a gap, where line numbers are unknown.
    pub(crate) fn continue_after_gap(&mut self, offset: u64) {
        self.position = SearchPosition { offset, line: 0, searched_bytes: 0 };
        self.recent.clear();
        self.open.clear();
    }

    /// Searches the next bytes. `last` if none follow (before a gap, or at the current end). Returns how many were
    /// used: an incomplete line stays for the next piece.
    pub(crate) fn feed(&mut self, bytes: &[u8], last: bool) -> usize {
        let whole = match memchr::memrchr(b'\n', bytes) {
            _ if last => bytes.len(),
            Some(end) => end + 1,
            None if bytes.len() >= MAX_LINE_BYTES => bytes.len(),
            None => return 0,
        };
        let mut at = 0;
        while at < whole && !self.is_done() {
            at += self.step(&bytes[at..whole]);
        }
        at
    }

    /// Advances by one line, or directly to the next matching line if no context is being collected.
    fn step(&mut self, bytes: &[u8]) -> usize {
        if self.open.is_empty() && self.full.is_none() && !self.crosses_lines && self.position.searched_bytes == 0 {
            let skip = match self.pattern.find(bytes, 0) {
                None => bytes.len(),
                Some((at, len)) if memchr::memchr(b'\n', &bytes[at..at + len]).is_some() => {
                    self.crosses_lines = true;
                    0
                }
                Some((at, _)) => memchr::memrchr(b'\n', &bytes[..at]).map_or(0, |n| n + 1),
            };
            if skip > 0 {
                self.skip_lines(&bytes[..skip]);
                return skip;
            }
        }
        let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |n| n + 1);
        self.search_line(&bytes[..end]);
        end
    }

    /// Counts lines without a match, and remembers the last of them.
    fn skip_lines(&mut self, lines: &[u8]) {
        if self.context > 0 {
            let mut start = lines.len();
            for _ in 0..=self.context {
                start = memchr::memrchr(b'\n', &lines[..start.saturating_sub(1)]).map_or(0, |n| n + 1);
            }
            for line in lines[start..].split_inclusive(|b| *b == b'\n') {
                self.remember_line(line);
            }
        }
        self.advance(lines);
    }

    fn advance(&mut self, bytes: &[u8]) {
        self.position.offset += bytes.len() as u64;
        if self.position.line > 0 {
            self.position.line += memchr::memchr_iter(b'\n', bytes).count() as u64;
        }
    }

    fn remember_line(&mut self, line: &[u8]) {
        self.recent.push_back(shorten_line(line, 0).to_vec());
        if self.recent.len() > self.context {
            self.recent.pop_front();
        }
    }

    fn search_line(&mut self, line: &[u8]) {
        let body = line.strip_suffix(b"\n").unwrap_or(line);
        for (index, wanted) in &mut self.open {
            self.found[*index].after.push(shorten_line(body, 0).to_vec());
            *wanted -= 1;
        }
        self.open.retain(|(_, wanted)| *wanted > 0);
        let mut from = usize::try_from(std::mem::take(&mut self.position.searched_bytes))
            .unwrap_or(usize::MAX)
            .min(body.len() + 1);
        while self.full.is_none()
            && from <= body.len()
            && let Some((at, len)) = self.pattern.find(body, from)
        {
            self.found.push(PatternMatch {
                offset: self.position.offset + at as u64,
                length: len as u64,
                line: Some(self.position.line).filter(|n| *n > 0),
                line_offset: self.position.offset,
                excerpt: shorten_line(body, at).to_vec(),
                before: self.recent.iter().cloned().collect(),
                after: Vec::new(),
            });
            if self.context > 0 {
                self.open.push_back((self.found.len() - 1, self.context));
            }
            // An empty match must not be found again at the same position.
            from = at + len.max(1);
            if self.found.len() == self.max_matches {
                self.full = Some(SearchPosition { searched_bytes: from as u64, ..self.position });
            }
        }
        if self.context > 0 {
            self.remember_line(line);
        }
        self.advance(line);
    }

    /// Stops because time is up.
    pub(crate) fn stop(&mut self) {
        self.full.get_or_insert(self.position);
        self.open.clear();
    }

    /// The matches, and where to continue if there may be more.
    pub(crate) fn finish(self) -> (Vec<PatternMatch>, Option<SearchPosition>) {
        (self.found, self.full)
    }
}

/// The part of a line that is shown: around `at`, in whole characters if it is text.
fn shorten_line(line: &[u8], at: usize) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if line.len() <= MAX_EXCERPT_BYTES {
        return line;
    }
    let mut start = at.saturating_sub(MAX_EXCERPT_BYTES / 4).min(line.len() - MAX_EXCERPT_BYTES);
    let mut end = start + MAX_EXCERPT_BYTES;
    let inside = |i: usize| line.get(i).is_some_and(|b| (0x80..0xc0).contains(b));
    for _ in 0..3 {
        start += usize::from(inside(start));
        end -= usize::from(inside(end));
    }
    &line[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `text` in pieces and returns offset and line of every match, over as many searches as needed.
    fn all(pattern: &SearchPattern, text: &[u8], piece: usize, most: usize) -> Vec<(u64, Option<u64>)> {
        let (mut found, mut from) = (Vec::new(), SearchPosition { offset: 0, line: 1, searched_bytes: 0 });
        loop {
            let mut search = Search::new(pattern, 0, most, from);
            let mut held = Vec::new();
            let mut at = from.offset as usize;
            while at < text.len() && !search.is_done() {
                let end = (at + piece).min(text.len());
                held.extend_from_slice(&text[at..end]);
                at = end;
                let used = search.feed(&held, at == text.len());
                held.drain(..used);
            }
            let (matches, next) = search.finish();
            found.extend(matches.iter().map(|m| (m.offset, m.line)));
            match next {
                Some(next) => from = next,
                None => return found,
            }
        }
    }

    #[test]
    fn every_match_is_found_once_for_every_piece_and_page_size() {
        let text = b"one\ntwo one one\n\nthree\nxonex\noneone".as_slice();
        let expect = [(0, Some(1)), (8, Some(2)), (12, Some(2)), (24, Some(5)), (29, Some(6)), (32, Some(6))];
        for regex in [false, true] {
            let pattern = SearchPattern::new("one", regex, false).unwrap();
            for piece in 1..text.len() {
                for most in 1..8 {
                    assert_eq!(all(&pattern, text, piece, most), expect, "{piece} {most}");
                }
            }
        }
    }

    #[test]
    fn a_match_comes_with_the_lines_around_it() {
        let pattern = SearchPattern::new("C", false, true).unwrap();
        let mut search = Search::new(&pattern, 2, 10, SearchPosition { offset: 0, line: 1, searched_bytes: 0 });
        search.feed(b"a\nb\nc\nd\ne\nf\n", true);
        let (found, next) = search.finish();
        let text = |lines: &[Vec<u8>]| lines.iter().map(|l| String::from_utf8(l.clone()).unwrap()).collect::<Vec<_>>();
        assert_eq!((found.len(), next), (1, None));
        assert_eq!(
            (text(&found[0].before), text(&found[0].after)),
            (vec!["a".into(), "b".into()], vec!["d".into(), "e".into()])
        );
        assert_eq!((found[0].line, found[0].offset), (Some(3), 4));
    }

    #[test]
    fn a_match_stays_within_its_line_and_empty_matches_terminate() {
        let pattern = SearchPattern::new(r"a\s+b", true, false).unwrap();
        assert_eq!(all(&pattern, b"a\nb\na b\n", 100, 5), [(4, Some(3))]);
        // Linear, although every line matches up to the end of the text.
        let greedy = SearchPattern::new("a[^c]*c", true, false).unwrap();
        assert_eq!(
            all(&greedy, &[&b"a\n".repeat(200_000)[..], b"abc\n"].concat(), 1 << 20, 5),
            [(400_000, Some(200_001))]
        );
        let anchored = SearchPattern::new("^a", true, false).unwrap();
        assert_eq!(all(&anchored, b"aaa\naa\n", 100, 1), [(0, Some(1)), (4, Some(2))]);
        let lines = SearchPattern::new("^b$", true, false).unwrap();
        assert_eq!(all(&lines, b"ab\nb\nbc\n", 100, 5), [(3, Some(2))]);
        let empty = SearchPattern::new("x*", true, false).unwrap();
        assert_eq!(all(&empty, b"ab\n", 100, 100).len(), 3);
        assert!(SearchPattern::new("(", true, false).is_err() && SearchPattern::new("", false, false).is_err());
        assert!(SearchPattern::new(&"(a{1000}){1000}".repeat(3), true, false).is_err(), "bounded");
    }

    #[test]
    fn an_endless_line_is_searched_in_bounded_parts() {
        let mut text = vec![b'x'; MAX_LINE_BYTES + 10];
        text.extend_from_slice(b"needle");
        let pattern = SearchPattern::new("needle", false, false).unwrap();
        let mut search = Search::new(&pattern, 1, 1, SearchPosition { offset: 0, line: 1, searched_bytes: 0 });
        let used = search.feed(&text[..MAX_LINE_BYTES], false);
        assert_eq!(used, MAX_LINE_BYTES);
        search.feed(&text[used..], true);
        let (found, _) = search.finish();
        assert_eq!((found[0].offset, found[0].line), (MAX_LINE_BYTES as u64 + 10, Some(1)));
        assert!(found[0].excerpt.len() <= MAX_EXCERPT_BYTES);
    }
}
