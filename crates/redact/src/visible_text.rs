//! The visible text of a stream, without escape sequences, and the position of each of its bytes in the stream.
//!
//! Secrets are searched in this text, so that a colour hides none. Line breaks stay in the text; [`TextWalk`] reports them
//! as [`TextGap`]s, and a caller may continue behind one. A stream without escape sequences is its own text and is not
//! copied.

use std::{borrow::Cow, ops::Range};

/// A longer string in an escape sequence (a title, a link) is read as text.
const MAX_STRING_BYTES: usize = 4096;
const MAX_SEQUENCE_BYTES: usize = 64;
const ESC: u8 = 0x1b;
/// A shorter line was not wrapped.
const MIN_WRAP_COLUMNS: usize = 60;

/// What separates two bytes of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TextGap {
    /// Escape sequences that do not move the cursor.
    Escape,
    /// A carriage return without a line feed: a line that is drawn again, or that a line editor wrapped.
    Return,
    /// A line break, or the end of the stream.
    Break,
    /// The cursor moved: the next byte is elsewhere on the screen.
    Move,
}

/// A part of the text that is contiguous in the stream, too. An escape sequence precedes each but the first.
#[derive(Debug, Clone, Copy)]
struct TextRun {
    text: usize,
    raw: usize,
    /// The escape sequence before it moved the cursor.
    moved: bool,
}

#[derive(Debug, Default)]
pub(crate) struct VisibleText {
    /// The text, if it differs from the stream.
    copy: Option<Vec<u8>>,
    runs: Vec<TextRun>,
    /// An escape sequence was read since the last byte; whether it moved the cursor.
    open: Option<bool>,
    /// The end of what was read of the stream; behind it is at most an unfinished escape sequence.
    built: usize,
    /// The stream contains carriage returns.
    pub(crate) returns: bool,
}

/// An escape sequence at the beginning of some bytes.
enum EscapeSequence {
    /// Its length.
    Whole(usize),
    /// Its length, and where the text in it begins and ends.
    Text(usize, Range<usize>),
    /// More bytes are needed.
    Unfinished,
}

impl VisibleText {
    /// Reads more of the stream. Adds the ranges of texts inside escape sequences to `strings`.
    pub(crate) fn read_stream(&mut self, raw: &[u8], end: bool, strings: &mut Vec<Range<usize>>) {
        while self.built < raw.len() {
            let rest = &raw[self.built..];
            let plain = if self.returns { memchr::memchr(ESC, rest) } else { memchr::memchr2(ESC, b'\r', rest) };
            let plain = plain.unwrap_or(rest.len());
            if rest.get(plain) == Some(&b'\r') {
                self.returns = true;
                continue;
            }
            if plain > 0 {
                self.push_plain(&rest[..plain]);
                continue;
            }
            let length = match read_sequence(rest) {
                EscapeSequence::Whole(length) => length,
                EscapeSequence::Text(length, text) => {
                    strings.push(self.built + text.start..self.built + text.end);
                    length
                }
                EscapeSequence::Unfinished if end => 1,
                EscapeSequence::Unfinished => return,
            };
            if self.copy.is_none() {
                self.copy = Some(raw[..self.built].to_vec());
                self.runs = vec![TextRun { text: 0, raw: 0, moved: false }];
            }
            self.open = self.open.max(Some(moves_cursor(&rest[..length])));
            self.built += length;
        }
    }

    fn push_plain(&mut self, plain: &[u8]) {
        if let Some(copy) = &mut self.copy {
            if let Some(moved) = self.open.take() {
                self.runs.push(TextRun { text: copy.len(), raw: self.built, moved });
            }
            copy.extend_from_slice(plain);
        }
        self.built += plain.len();
    }

    pub(crate) fn view<'a>(&'a self, raw: &'a [u8], end: bool) -> TextView<'a> {
        let bytes = self.copy.as_deref().unwrap_or(&raw[..self.built]);
        TextView { bytes, runs: &self.runs, moved: self.open == Some(true), end }
    }

    pub(crate) fn len(&self) -> usize {
        self.copy.as_ref().map_or(self.built, Vec::len)
    }

    /// The position of a byte of the text in the stream; behind the last one, the end of what was read.
    pub(crate) fn raw_offset(&self, at: usize) -> usize {
        if self.copy.is_none() || at >= self.len() {
            return at.min(self.len()) + (self.built - self.len());
        }
        let run = &self.runs[self.runs.partition_point(|r| r.text <= at) - 1];
        run.raw + (at - run.text)
    }

    /// How much of the text precedes a position in the stream.
    pub(crate) fn text_before(&self, raw: usize) -> usize {
        if self.copy.is_none() {
            return raw.min(self.built);
        }
        let Some(last) = self.runs.partition_point(|r| r.raw < raw).checked_sub(1) else { return 0 };
        let end = self.runs.get(last + 1).map_or(self.len(), |next| next.text);
        (self.runs[last].text + (raw - self.runs[last].raw)).min(end)
    }

    /// The escape sequences between two bytes of the text, as ranges of the stream.
    pub(crate) fn gaps_inside(&self, from: usize, to: usize) -> impl Iterator<Item = Range<usize>> {
        let first = self.runs.partition_point(|r| r.text <= from);
        let last = self.runs.partition_point(|r| r.text < to);
        (first..last.max(first)).map(|n| {
            let (before, run) = (&self.runs[n - 1], &self.runs[n]);
            before.raw + (run.text - before.text)..run.raw
        })
    }

    /// Drops text from the beginning. Returns how many bytes of the stream that is.
    pub(crate) fn forget(&mut self, text: usize) -> usize {
        let raw = self.raw_offset(text);
        if let Some(copy) = &mut self.copy {
            copy.drain(..text);
            let keep = self.runs.partition_point(|r| r.text <= text) - 1;
            self.runs.drain(..keep);
            let first = &mut self.runs[0];
            if first.text < text {
                first.moved = false;
            }
            (first.raw, first.text) = (first.raw + text - first.text, text);
            for run in &mut self.runs {
                run.text -= text;
                // At the end, more of the stream may have been read than its last run.
                run.raw = run.raw.saturating_sub(raw);
            }
            if self.runs.len() == 1 && self.open.is_none() && self.built - raw == copy.len() {
                self.copy = None;
                self.runs.clear();
            }
        }
        self.built -= raw;
        raw
    }
}

/// Whether a sequence moves the cursor, or the text below it. Colours, modes and strings do not, nor does clearing the rest
/// of a line.
fn moves_cursor(sequence: &[u8]) -> bool {
    match sequence {
        [ESC, b'[', .., last] => {
            matches!(last, b'A'..=b'J' | b'L'..=b'P' | b'S' | b'T' | b'X' | b'Z' | b'@' | b'`' | b'a' | b'd'..=b'f' | b'r' | b'u')
        }
        [ESC, kind] => matches!(kind, b'8' | b'D' | b'E' | b'M' | b'c'),
        _ => false,
    }
}

/// The escape sequence at the beginning of `bytes`. An invalid one is its first byte alone.
fn read_sequence(bytes: &[u8]) -> EscapeSequence {
    let Some(kind) = bytes.get(1) else { return EscapeSequence::Unfinished };
    match kind {
        b'[' => {
            let params = bytes[2..].iter().take(MAX_SEQUENCE_BYTES).take_while(|b| (0x20..0x40).contains(*b)).count();
            match bytes.get(2 + params) {
                _ if params == MAX_SEQUENCE_BYTES => EscapeSequence::Whole(1),
                Some(0x40..=0x7e) => EscapeSequence::Whole(params + 3),
                Some(_) => EscapeSequence::Whole(1),
                None => EscapeSequence::Unfinished,
            }
        }
        b']' | b'P' | b'X' | b'^' | b'_' => {
            let text = &bytes[2..bytes.len().min(2 + MAX_STRING_BYTES)];
            match memchr::memchr2(0x07, ESC, text) {
                Some(n) if text[n] == 0x07 => EscapeSequence::Text(n + 3, 2..n + 2),
                Some(n) => match bytes.get(n + 3) {
                    Some(b'\\') => EscapeSequence::Text(n + 4, 2..n + 2),
                    Some(_) => EscapeSequence::Whole(1),
                    None => EscapeSequence::Unfinished,
                },
                None if text.len() == MAX_STRING_BYTES => EscapeSequence::Whole(1),
                None => EscapeSequence::Unfinished,
            }
        }
        0x20..=0x2f => {
            let more = bytes[1..].iter().take(4).take_while(|b| (0x20..0x30).contains(*b)).count();
            match bytes.get(1 + more) {
                Some(0x30..=0x7e) => EscapeSequence::Whole(more + 2),
                Some(_) => EscapeSequence::Whole(1),
                None => EscapeSequence::Unfinished,
            }
        }
        0x30..=0x7e => EscapeSequence::Whole(2),
        _ => EscapeSequence::Whole(1),
    }
}

/// The text as rules inspect it.
#[derive(Clone, Copy)]
pub(crate) struct TextView<'a> {
    pub(crate) bytes: &'a [u8],
    runs: &'a [TextRun],
    /// The cursor moved since the last byte.
    moved: bool,
    /// The stream has ended.
    pub(crate) end: bool,
}

/// The next step of a walk through the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkStep {
    Byte(u8),
    Gap(TextGap),
    /// More input is needed. At the end of the stream a break is reported instead.
    More,
}

#[inline]
pub(crate) fn is_break(b: u8) -> bool {
    matches!(b, b'\n' | b'\r')
}

impl<'a> TextView<'a> {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// Whether an escape sequence precedes this byte.
    pub(crate) fn follows_escape(&self, at: usize) -> bool {
        self.runs.binary_search_by_key(&at, |r| r.text).is_ok_and(|n| n > 0)
    }

    /// Whether the cursor moved between this byte, or the end of the text, and the byte before it.
    pub(crate) fn is_moved_at(&self, at: usize) -> bool {
        if at >= self.bytes.len() {
            return self.moved;
        }
        !self.runs.is_empty() && self.runs.binary_search_by_key(&at, |r| r.text).is_ok_and(|n| self.runs[n].moved)
    }

    /// Whether the cursor moved before one of these bytes, the last one included.
    #[inline]
    pub(crate) fn moves_within(&self, first: usize, last: usize) -> bool {
        if self.runs.is_empty() {
            return self.moved && last >= self.bytes.len();
        }
        (first..=last).any(|at| self.is_moved_at(at))
    }

    /// Where the cursor moves next behind `at`; the end of the text if it does not.
    pub(crate) fn until_moved(&self, at: usize) -> usize {
        let from = self.runs.partition_point(|r| r.text <= at);
        self.runs[from..].iter().find(|r| r.moved).map_or(self.bytes.len(), |r| r.text)
    }

    /// Whether a line editor wrapped its line behind the blank at `at`: a carriage return follows that begins no new line.
    /// None: more bytes are needed.
    pub(crate) fn is_wrapped_at(&self, at: usize) -> Option<bool> {
        match (self.byte(at + 1), self.byte(at + 2)) {
            (Some(b'\r'), Some(b)) => Some(!is_break(b)),
            (Some(b'\r') | None, _) if !self.end => None,
            _ => Some(false),
        }
    }

    /// A part of the text without its line breaks.
    pub(crate) fn without_breaks(&self, range: Range<usize>) -> Cow<'a, [u8]> {
        let part = &self.bytes[range];
        match memchr::memchr2(b'\n', b'\r', part) {
            None => Cow::Borrowed(part),
            Some(_) => {
                let mut joined: Vec<u8> = Vec::with_capacity(part.len());
                for (n, b) in part.iter().enumerate() {
                    if !is_break(*b) {
                        joined.push(*b);
                    } else if *b == b'\r' && part.get(n + 1) != Some(&b'\n') && joined.last() == Some(&b' ') {
                        // A line editor wraps with a blank and a carriage return.
                        joined.pop();
                    }
                }
                Cow::Owned(joined)
            }
        }
    }

    pub(crate) fn walk(self, at: usize) -> TextWalk<'a> {
        TextWalk { view: self, at, next: self.runs.partition_point(|r| r.text <= at), move_reported: false }
    }

    /// Whether the line that ends at `at`, or in the breaks around it, is so long that it may have been wrapped.
    pub(crate) fn is_wrapped_line_end(&self, at: usize) -> bool {
        let breaks = self.bytes[..at].iter().rev().take_while(|b| is_break(**b)).count();
        let end = at - breaks;
        end - self.line_start(end, MIN_WRAP_COLUMNS + 1) >= MIN_WRAP_COLUMNS
    }

    /// The start of the line around `at`, at most `reach` bytes back.
    pub(crate) fn line_start(&self, at: usize, reach: usize) -> usize {
        let lowest = at.saturating_sub(reach);
        memchr::memrchr2(b'\n', b'\r', &self.bytes[lowest..at]).map_or(lowest, |n| lowest + n + 1)
    }
}

/// Walks forward through the text. `at` is the position of the next byte.
pub(crate) struct TextWalk<'a> {
    view: TextView<'a>,
    pub(crate) at: usize,
    next: usize,
    move_reported: bool,
}

impl TextWalk<'_> {
    /// The next bytes of a text without escape sequences: at most `most`.
    #[inline]
    pub(crate) fn rest(&self, most: usize) -> &[u8] {
        let rest = self.view.bytes.get(self.at..).filter(|_| self.view.runs.is_empty()).unwrap_or_default();
        &rest[..rest.len().min(most)]
    }

    #[inline]
    pub(crate) fn step(&mut self) -> WalkStep {
        if !self.view.runs.is_empty() && self.view.runs.get(self.next).is_some_and(|run| run.text == self.at) {
            self.next += 1;
            let moved = self.view.runs[self.next - 1].moved;
            return WalkStep::Gap(if moved { TextGap::Move } else { TextGap::Escape });
        }
        match self.view.bytes.get(self.at) {
            Some(b) if is_break(*b) => self.step_over_breaks(),
            Some(b) => {
                self.at += 1;
                WalkStep::Byte(*b)
            }
            None if self.view.end => WalkStep::Gap(TextGap::Break),
            None if self.view.moved && !std::mem::replace(&mut self.move_reported, true) => {
                WalkStep::Gap(TextGap::Move)
            }
            None => WalkStep::More,
        }
    }

    fn step_over_breaks(&mut self) -> WalkStep {
        let rest = &self.view.bytes[self.at..];
        let run = rest.iter().take_while(|b| is_break(**b)).count();
        let gap = if rest[..run].contains(&b'\n') {
            TextGap::Break
        } else if run == rest.len() && !self.view.end {
            // A line feed may follow.
            return WalkStep::More;
        } else {
            TextGap::Return
        };
        self.at += run;
        // Escape sequences among the breaks are skipped with them.
        while self.view.runs.get(self.next).is_some_and(|run| run.text < self.at) {
            self.next += 1;
        }
        WalkStep::Gap(gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_in_pieces(raw: &[u8], cuts: usize) -> (String, Vec<String>) {
        let mut visible = VisibleText::default();
        let mut strings = Vec::new();
        for end in (1..=raw.len()).filter(|n| n % cuts == 0 || *n == raw.len()) {
            visible.read_stream(&raw[..end], end == raw.len(), &mut strings);
        }
        for at in 0..visible.len() {
            assert_eq!(raw[visible.raw_offset(at)], visible.view(raw, true).bytes[at]);
        }
        let text = String::from_utf8(visible.view(raw, true).bytes.to_vec()).unwrap();
        (text, strings.into_iter().map(|r| String::from_utf8(raw[r].to_vec()).unwrap()).collect())
    }

    #[test]
    fn escape_sequences_are_removed_whatever_the_pieces() {
        let cases: &[(&str, &str, &[&str])] = &[
            ("a\x1b[31mb\x1b[0mc", "abc", &[]),
            ("a\r\nb\nc\rd", "a\r\nb\nc\rd", &[]),
            ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\!", "link!", &["8;;http://x", "8;;"]),
            ("\x1b]0;title\x07x\x1b(By\x1b7z", "xyz", &["0;title"]),
            ("\x1b[12\x01x", "[12\x01x", &[]),
            ("é\x1b[m€", "é€", &[]),
            ("x\x1b", "x", &[]),
        ];
        for (raw, text, strings) in cases {
            for cuts in [1, 2, 3, 100] {
                let (got, inside) = read_in_pieces(raw.as_bytes(), cuts);
                assert_eq!(
                    (&*got, &inside[..]),
                    (*text, &strings.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
                    "{raw:?}"
                );
            }
        }
    }

    #[test]
    fn positions_stay_right_after_text_is_dropped() {
        let raw = b"one\n\x1b[1mtwo\x1b[0m\nthree\x1b[0m";
        for text in 0..14 {
            let mut s = VisibleText::default();
            s.read_stream(raw, false, &mut Vec::new());
            let whole = s.view(raw, false).bytes.to_vec();
            let dropped = s.forget(text.min(whole.len()));
            let left = &raw[dropped..];
            for at in 0..s.len() {
                assert_eq!(left[s.raw_offset(at)], s.view(left, false).bytes[at], "{text}");
            }
            assert_eq!(s.view(left, false).bytes, &whole[text.min(whole.len())..]);
        }
    }
}
