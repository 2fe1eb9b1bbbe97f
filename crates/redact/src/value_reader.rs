//! Reads the text around a value, byte by byte, and tells when more bytes are needed.

use crate::{
    span::Inspection,
    visible_text::{TextView, is_break},
};

/// The most backslashes before a quote: JSON inside JSON inside JSON has seven.
const MAX_QUOTE_SLASHES: usize = 15;

/// Reads forward in the text. A method returns `None` when more bytes are needed.
#[derive(Clone, Copy)]
pub(crate) struct ValueReader<'a> {
    pub(crate) view: TextView<'a>,
    pub(crate) at: usize,
    /// The start of the value, once everything before it was read.
    pub(crate) value: Option<usize>,
}

/// A line break, or the end of the stream.
pub(crate) const BREAK: u8 = b'\n';

impl ValueReader<'_> {
    /// The next byte, which is not consumed.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    /// The result when more bytes are needed: a value that has begun is held.
    pub(crate) fn unfinished(&self) -> Inspection {
        match self.value {
            Some(start) if start < self.view.len() => Inspection::Open(start),
            _ => Inspection::Nothing,
        }
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> Option<u8> {
        match self.view.byte(self.at + ahead) {
            // A cursor movement begins another text.
            _ if self.view.moves_within(self.at, self.at + ahead) => Some(BREAK),
            Some(b) if is_break(b) => Some(BREAK),
            None if self.view.end => Some(BREAK),
            b => b,
        }
    }

    /// Skips up to `max` such bytes, and returns how many.
    pub(crate) fn skip(&mut self, max: usize, wanted: impl Fn(u8) -> bool) -> Option<usize> {
        let from = self.at;
        while self.at - from < max && wanted(self.peek()?) {
            self.at += 1;
        }
        Some(self.at - from)
    }

    pub(crate) fn take_byte(&mut self, wanted: u8) -> Option<bool> {
        let found = self.peek()? == wanted;
        self.at += usize::from(found);
        Some(found)
    }

    /// Reads an opening quote, plain or escaped, if there is one.
    pub(crate) fn read_quote(&mut self) -> Option<Quote> {
        if self.peek()? == b'&' && self.entity_bytes()? > 0 {
            self.at += self.entity_bytes()?;
            return Some(Quote::Of(b'&', 0));
        }
        let slashes = self.skip(MAX_QUOTE_SLASHES, |b| b == b'\\')?;
        if slashes > 0 && self.peek()? == b'u' && self.is_unicode_quote_at(0)? {
            self.at += 5;
            return Some(Quote::Of(UNICODE_QUOTE, slashes));
        }
        match self.peek()? {
            q @ (b'"' | b'\'' | b'`') => {
                self.at += 1;
                Some(Quote::Of(q, slashes))
            }
            _ => {
                self.at -= slashes;
                Some(Quote::None)
            }
        }
    }
}

/// A quote as JSON may write it behind backslashes: `u0022`, `u0027`. No text has this byte there.
const UNICODE_QUOTE: u8 = 0x01;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quote {
    None,
    Of(u8, usize),
}

impl ValueReader<'_> {
    /// The length of a quote as HTML writes it; 0 if there is none.
    fn entity_bytes(&self) -> Option<usize> {
        for entity in [&b"&quot;"[..], b"&#34;", b"&#39;", b"&apos;"] {
            let mut matched = 0;
            while matched < entity.len() && self.peek_at(matched)? == entity[matched] {
                matched += 1;
            }
            if matched == entity.len() {
                return Some(matched);
            }
        }
        Some(0)
    }

    /// Whether a quote that ends a value begins here: at most as many backslashes as before the opening one, and the quote.
    pub(crate) fn is_closing_quote(&self, quote: u8, slashes: usize) -> Option<bool> {
        if quote == b'&' {
            return Some(self.peek()? == b'&' && self.entity_bytes()? > 0);
        }
        let mut n = 0;
        while n <= slashes && self.peek_at(n)? == b'\\' {
            n += 1;
        }
        if quote == UNICODE_QUOTE {
            return Some(n == slashes && self.is_unicode_quote_at(n)?);
        }
        Some(n <= slashes && self.peek_at(n)? == quote)
    }

    /// Whether `u0022` or `u0027` stands behind this many bytes.
    fn is_unicode_quote_at(&self, ahead: usize) -> Option<bool> {
        for (n, want) in b"u002".iter().enumerate() {
            if self.peek_at(ahead + n)? != *want {
                return Some(false);
            }
        }
        Some(matches!(self.peek_at(ahead + 4)?, b'2' | b'7'))
    }
}
