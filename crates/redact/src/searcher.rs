//! Searches for a few dozen texts at once.

use aho_corasick::{AhoCorasick, Match, MatchKind, packed};

/// The SIMD search takes at most this many patterns; more go into another searcher.
pub(crate) const MAX_SEARCHER_PATTERNS: usize = 64;

/// A search for a few dozen patterns: with SIMD where the processor supports it, which is also built fastest.
#[derive(Debug)]
pub(crate) enum Searcher {
    Packed(packed::Searcher),
    Automaton(AhoCorasick),
}

impl Searcher {
    pub(crate) fn new<P: AsRef<[u8]>>(patterns: &[P]) -> Self {
        let mut builder = packed::Config::new().match_kind(packed::MatchKind::LeftmostFirst).builder();
        match builder.extend(patterns).build() {
            Some(searcher) => Searcher::Packed(searcher),
            None => {
                let mut builder = AhoCorasick::builder();
                let built = builder.match_kind(MatchKind::LeftmostFirst).build(patterns);
                Searcher::Automaton(built.expect("a few dozen short patterns are within every limit of the automaton"))
            }
        }
    }

    fn find(&self, text: &[u8]) -> Option<Match> {
        match self {
            Searcher::Packed(searcher) => searcher.find(text),
            Searcher::Automaton(searcher) => searcher.find(text),
        }
    }

    /// Reports all matches from `from` on, with their starts, ends and patterns. Matches may overlap.
    pub(crate) fn find_all(&self, text: &[u8], from: usize, mut report: impl FnMut(usize, usize, usize)) {
        let mut at = from;
        while let Some(m) = text.get(at..).and_then(|rest| self.find(rest)) {
            report(at + m.start(), at + m.end(), m.pattern().as_usize());
            at += m.start() + 1;
        }
    }
}
