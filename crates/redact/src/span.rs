//! What a look at one place of the text comes to.

use std::borrow::Cow;

/// What a rule is called in placeholders, frames and reports.
pub type RuleId = Cow<'static, str>;

/// Who found a span. Where spans overlap, the one that says most gives its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Context,
    Known,
    Shape,
}

/// A part of the text that goes.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) rule: RuleId,
    pub(crate) rank: Rank,
    /// Where the public part before it begins.
    pub(crate) public: usize,
    /// What comes after it goes too, without a placeholder, as long as these go on.
    pub(crate) swallow: Option<fn(u8) -> bool>,
    /// It ends with its line, and could have gone on.
    pub(crate) continues: bool,
}

/// What a look comes to.
#[derive(Debug)]
pub(crate) enum Inspection {
    Nothing,
    Found(Span),
    /// Later bytes decide; from here on nothing may leave.
    Open(usize),
}

impl Span {
    pub(crate) fn new(start: usize, end: usize, rule: impl Into<RuleId>, rank: Rank) -> Self {
        Self { start, end, rule: rule.into(), rank, public: start, swallow: None, continues: false }
    }
}

/// What tokens are made of.
pub(crate) fn is_token_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'/' | b'=' | b'.' | b'~')
}
