//! The texts that are searched for in every stream: words of names, headers, first lines of keys, texts beside which a secret
//! may be, and keywords of rules whose secrets may be short.

use crate::{
    context, header, pem,
    places::{self, InspectPlace},
    rules::FREE_KEYWORDS,
    shape::{self, ShapeCaches},
    span::Inspection,
    text_search::TextSearch,
    visible_text::TextView,
};
use std::{ops::Range, sync::OnceLock};

/// Of two texts that begin at one place, one that is shorter than this comes first.
const MIN_LONG_BYTES: usize = 4;

/// The search for texts that do not depend on the task. It is made once in a process, and its forks inherit it.
pub(crate) struct FixedSearch {
    /// The short ones first, then in the order of their bytes.
    texts: Vec<(&'static str, TextMeaning)>,
    search: TextSearch,
}

/// The meaning of a text that was found.
#[derive(Clone, Copy)]
enum TextMeaning {
    /// A name that contains it may have a secret value.
    Word,
    Header,
    /// The first line of a private key.
    Key,
    Putty,
    Rule(usize),
    /// A text beside which a secret may be.
    Place(InspectPlace),
}

pub(crate) fn fixed_search() -> &'static FixedSearch {
    static BUILT: OnceLock<FixedSearch> = OnceLock::new();
    BUILT.get_or_init(FixedSearch::new)
}

impl FixedSearch {
    fn new() -> Self {
        let words = context::NAME_WORDS.iter().map(|w| (*w, TextMeaning::Word));
        let headers = header::HEADER_STARTS.iter().map(|h| (*h, TextMeaning::Header));
        let keys = [
            (pem::PEM_START, TextMeaning::Key),
            (pem::SSH2_START, TextMeaning::Key),
            (pem::PUTTY_START, TextMeaning::Putty),
        ];
        let free = FREE_KEYWORDS.iter().map(|k| (k.text, TextMeaning::Rule(k.rule)));
        let beside = places::places().map(|(text, inspect)| (text, TextMeaning::Place(inspect)));
        let mut texts: Vec<_> = words.chain(headers).chain(keys).chain(free).chain(beside).collect();
        texts.sort_by_key(|(text, _)| (text.len() >= MIN_LONG_BYTES, *text));
        Self { search: TextSearch::new(texts.iter().map(|(text, _)| text.as_bytes()).collect()), texts }
    }

    /// Reports each text that begins at `from` or behind it: its start, its end and its number. The order of two that begin
    /// at one place depends on nothing else.
    pub(crate) fn find_all(&self, text: &[u8], from: usize, mut report: impl FnMut(usize, usize, usize)) {
        let mut found = Vec::new();
        self.search.find_all(text, from, |start, n| found.push((start, n)));
        found.sort_unstable();
        found.into_iter().for_each(|(start, n)| report(start, start + self.texts[n].0.len(), n));
    }

    /// Whether a text begins a header.
    pub(crate) fn is_header(&self, n: usize) -> bool {
        matches!(self.texts[n].1, TextMeaning::Header)
    }

    /// Inspects what is around a text that was found.
    pub(crate) fn inspect(
        &self,
        n: usize,
        view: TextView<'_>,
        Range { start, end }: Range<usize>,
        caches: &mut ShapeCaches,
    ) -> Inspection {
        match self.texts[n].1 {
            TextMeaning::Word => context::inspect_name(view, start, end - start),
            TextMeaning::Header => header::inspect_header(view, start, end - start),
            TextMeaning::Key => pem::inspect_pem(view, start),
            TextMeaning::Putty => pem::inspect_putty(view, end),
            TextMeaning::Rule(n) => shape::inspect_keyword(view, start, end, n, caches),
            TextMeaning::Place(inspect) => inspect(view, start, end),
        }
    }
}
