//! The result of inspecting one place in the text.

use std::borrow::Cow;

/// The id of a rule in placeholders, frames and reports.
pub type RuleId = Cow<'static, str>;

/// What found a span. Where spans overlap, the highest rank gives the rule id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Context,
    Known,
    Shape,
}

/// A part of the text to redact.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) rule: RuleId,
    pub(crate) rank: Rank,
    /// Where the public part before it begins, which stays.
    pub(crate) public: usize,
    /// Bytes behind it that match this are removed, too, without another placeholder.
    pub(crate) swallow: Option<fn(u8) -> bool>,
    /// It ends with its line, and the next line may continue it.
    pub(crate) continues: bool,
}

/// What one inspection found.
#[derive(Debug)]
pub(crate) enum Inspection {
    Nothing,
    Found(Span),
    /// Later bytes decide: everything from here on is held.
    Open(usize),
    /// Several spans, and where the held part begins, if any.
    Several(Vec<Span>, Option<usize>),
}

impl Inspection {
    /// The results of two inspections of one place.
    pub(crate) fn and(self, other: Self) -> Self {
        let (mut spans, open) = self.into_parts();
        let (more, other_open) = other.into_parts();
        spans.extend(more);
        Self::from_parts(spans, [open, other_open].into_iter().flatten().min())
    }

    fn into_parts(self) -> (Vec<Span>, Option<usize>) {
        match self {
            Inspection::Nothing => (Vec::new(), None),
            Inspection::Found(span) => (vec![span], None),
            Inspection::Open(at) => (Vec::new(), Some(at)),
            Inspection::Several(spans, open) => (spans, open),
        }
    }

    /// The result of an inspection that may find several spans.
    pub(crate) fn from_parts(mut spans: Vec<Span>, open: Option<usize>) -> Self {
        match (spans.len(), open) {
            (0, None) => Inspection::Nothing,
            (0, Some(open)) => Inspection::Open(open),
            (1, None) => spans.pop().map_or(Inspection::Nothing, Inspection::Found),
            _ => Inspection::Several(spans, open),
        }
    }
}

impl Span {
    pub(crate) fn new(start: usize, end: usize, rule: impl Into<RuleId>, rank: Rank) -> Self {
        Self { start, end, rule: rule.into(), rank, public: start, swallow: None, continues: false }
    }
}

/// Whether tokens may contain this byte.
pub(crate) fn is_token_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'/' | b'=' | b'.' | b'~')
}
