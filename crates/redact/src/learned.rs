//! Secrets that a stream has shown: from then on they are found wherever they stand, in all their forms.

use crate::{
    generated::looks_generated,
    guard,
    known_secrets::KnownSecrets,
    known_values::KnownValues,
    prefixed, provider_values,
    span::{Rank, Span},
};

/// More secrets are not learned from one stream.
const MAX_SECRETS: usize = 64;
/// The most forms that are searched for in all text rather than in runs.
const MAX_SEARCHED_FORMS: usize = 64;
/// A shorter or longer value is not learned: the one may be a word, the other is hardly shown twice.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 8..=1024;

#[derive(Default)]
pub(crate) struct ShownSecrets {
    pub(crate) values: KnownValues,
    count: usize,
    /// Secrets that were learned since the last look.
    new: Vec<String>,
}

impl ShownSecrets {
    pub(crate) fn is_full(&self) -> bool {
        self.count == MAX_SECRETS
    }

    /// Learns the value that was found here. True: it was new.
    pub(crate) fn learn(&mut self, span: &Span, value: &[u8]) -> bool {
        let Ok(value) = std::str::from_utf8(value) else { return false };
        if self.is_full() || !is_distinct(span, value) || self.values.contains(value.as_bytes()) {
            return false;
        }
        let mut known = KnownSecrets::default();
        known.add(value);
        let room = MAX_SEARCHED_FORMS.saturating_sub(self.values.others());
        let (in_runs, others): (Vec<_>, Vec<_>) = known.forms.into_iter().partition(|f| crate::runs::is_always_run(f));
        self.values.add(in_runs.into_iter().chain(others.into_iter().take(room)));
        self.count += 1;
        self.new.push(value.to_owned());
        true
    }

    pub(crate) fn take_new(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new)
    }
}

/// Whether a value is so distinct that it is a secret wherever it stands: no word, no number, no list of cookies.
fn is_distinct(span: &Span, value: &str) -> bool {
    let bytes = value.as_bytes();
    let has = |of: fn(&u8) -> bool| bytes.iter().any(of);
    // A name of a provider and a prefix prove less than the others: ids look the same.
    // The members of a key are found together, and hardly shown again one by one.
    let is_certain = ![provider_values::RULE, prefixed::RULE, "private-key"].contains(&&*span.rule);
    span.rank != Rank::Known
        && is_certain
        && SECRET_BYTES.contains(&value.len())
        && !has(|b| matches!(b, b' ' | b'\t' | b';' | b',' | b'"' | b'\''))
        && has(u8::is_ascii_alphabetic)
        && (span.rank == Rank::Shape
            || looks_generated(bytes)
            || span.rule.ends_with("password") && guard::is_distinct_password(bytes))
        && !guard::is_ordinary(bytes)
}
