//! What to search for: the known secrets of a task and the rules; and the search for both.

use crate::{
    KnownSecrets, context, header, keyword_search,
    line_breaks::BreakPairs,
    link, pem, places,
    rules::{self, FREE_KEYWORDS, RULES, Shape, keywords_with_head},
    shape::{self, ShapeCaches},
    span::{Inspection, Rank, RuleId, Span},
    visible_text::{TextView, is_break},
};
use aho_corasick::{AhoCorasick, Match, MatchKind, packed};
use countersign_model::{Digest, RedactionRule};
use std::sync::{Arc, OnceLock};

/// The SIMD search takes at most this many patterns; more go into another searcher.
const MAX_SEARCHER_PATTERNS: usize = 64;
/// With few patterns a searcher has few false positives.
const FAST_SEARCHER_PATTERNS: usize = 16;
/// A prefix of a known secret of this length is held even after a flush.
const MIN_HELD_PREFIX_BYTES: usize = 4;

/// What to search for. The streams of a task share it; it is compiled when the first of them has input.
pub struct Mask {
    values: Vec<Vec<u8>>,
    built: OnceLock<ValueSearch>,
    user: Option<Arc<UserRules>>,
    key: [u8; 32],
}

/// The rules of a user, compiled.
#[derive(Debug)]
pub struct UserRules {
    rules: Vec<(RuleId, Shape)>,
    keywords: Vec<(Vec<u8>, usize)>,
    searchers: Vec<Searcher>,
}

/// What is wrong with a user's rule, and its index.
#[derive(Debug, PartialEq, Eq)]
pub struct RuleFault {
    pub index: usize,
    pub message: String,
}

impl UserRules {
    /// # Errors
    /// The first rule that cannot be used, and why.
    pub fn new(rules: &[RedactionRule]) -> Result<Option<Arc<Self>>, RuleFault> {
        let mut compiled: Vec<(RuleId, Shape)> = Vec::new();
        let mut keywords = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let fault = |message| RuleFault { index, message };
            if compiled.iter().any(|(id, _)| *id == rule.id) {
                return Err(fault(format!("{}: two rules have this id: rename one", rule.id)));
            }
            compiled.push((RuleId::from(rule.id.clone()), rules::compile_user_rule(rule).map_err(fault)?));
            keywords.extend(rule.keywords.iter().map(|k| (k.clone().into_bytes(), index)));
        }
        if compiled.is_empty() {
            return Ok(None);
        }
        keywords.sort_by_key(|(k, _)| std::cmp::Reverse(k.len()));
        let texts: Vec<&[u8]> = keywords.iter().map(|(k, _)| k.as_slice()).collect();
        let searchers = texts.chunks(MAX_SEARCHER_PATTERNS).map(Searcher::new).collect();
        Ok(Some(Arc::new(Self { rules: compiled, keywords, searchers })))
    }
}

static USER_RULES: OnceLock<Option<Arc<UserRules>>> = OnceLock::new();

/// Sets the user's rules for every mask that this process creates afterwards. Only the first call counts.
pub fn set_user_rules(user: Option<Arc<UserRules>>) {
    let _ = USER_RULES.set(user);
}

/// A search for a few dozen patterns: with SIMD where the processor supports it, which is also built fastest.
#[derive(Debug)]
enum Searcher {
    Packed(packed::Searcher),
    Automaton(AhoCorasick),
}

impl Searcher {
    fn new<P: AsRef<[u8]>>(patterns: &[P]) -> Self {
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
}

/// The search for texts that do not depend on the task: words of names, headers, first lines of keys and some keywords.
/// It is compiled once in a process, and its forks inherit it.
struct FixedSearch {
    texts: Vec<TextMeaning>,
    searchers: Vec<(Searcher, usize)>,
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
    Place(places::InspectPlace),
}

fn fixed_search() -> &'static FixedSearch {
    static BUILT: OnceLock<FixedSearch> = OnceLock::new();
    BUILT.get_or_init(|| {
        let words = context::NAME_WORDS.iter().map(|w| (*w, TextMeaning::Word));
        let headers = header::HEADER_STARTS.iter().map(|h| (*h, TextMeaning::Header));
        let keys = [(pem::PEM_START, TextMeaning::Key), (pem::PUTTY_START, TextMeaning::Putty)];
        let free = FREE_KEYWORDS.iter().map(|k| (k.text, TextMeaning::Rule(k.rule)));
        // A search is the faster the longer its shortest pattern is.
        let beside = places::places().map(|(text, inspect)| (text, TextMeaning::Place(inspect)));
        let all = words.chain(headers).chain(keys).chain(free).chain(beside);
        let (short, long): (Vec<_>, Vec<_>) = all.partition(|(text, _)| text.len() < 4);
        let search =
            |these: &[(&str, TextMeaning)]| Searcher::new(&these.iter().map(|(text, _)| *text).collect::<Vec<_>>());
        let mut searchers = vec![(search(&short), 0)];
        searchers.extend(
            long.chunks(FAST_SEARCHER_PATTERNS)
                .enumerate()
                .map(|(n, these)| (search(these), short.len() + n * FAST_SEARCHER_PATTERNS)),
        );
        FixedSearch { texts: short.iter().chain(&long).map(|(_, meaning)| *meaning).collect(), searchers }
    })
}

/// Compiles in advance what does not depend on the task.
pub fn warm_up() {
    let _ = fixed_search();
}

/// The search for the known secrets of a task.
struct ValueSearch {
    searchers: Vec<Searcher>,
    pairs: BreakPairs,
    /// Some of them are not always found as runs.
    any_unsampled: bool,
}

impl ValueSearch {
    fn new(values: &[Vec<u8>]) -> Self {
        Self {
            searchers: values.chunks(MAX_SEARCHER_PATTERNS).map(Searcher::new).collect(),
            pairs: BreakPairs::new(values),
            any_unsampled: values.iter().any(|v| !keyword_search::is_always_sampled(v)),
        }
    }
}

/// What was found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hit {
    Value,
    /// One of the texts of the fixed search.
    Text(usize),
    /// A keyword of this rule, and where a line editor wrapped the line behind it.
    Rule(usize, Option<usize>),
    User(usize),
    /// An `@`, which may end the password of a link.
    At,
    /// A `$`, which may begin a password hash.
    Dollar,
}

/// One searcher in the text, and its next hit.
struct SearchLane<'a> {
    source: HitSource<'a>,
    next: Option<(usize, usize, Hit)>,
}

enum HitSource<'a> {
    Search(&'a Searcher, fn(usize) -> Hit, usize),
    /// Single bytes: `@` and `$`.
    Marks,
    Found(std::vec::IntoIter<(usize, usize, Hit)>),
}

/// All hits in a text, from left to right.
pub(crate) struct Hits<'a> {
    text: &'a [u8],
    lanes: Vec<SearchLane<'a>>,
}

impl SearchLane<'_> {
    fn advance(&mut self, text: &[u8], from: usize) {
        let rest = text.get(from..).unwrap_or_default();
        self.next = match &mut self.source {
            HitSource::Search(searcher, kind, base) => {
                searcher.find(rest).map(|m| (from + m.start(), from + m.end(), kind(*base + m.pattern().as_usize())))
            }
            HitSource::Marks => memchr::memchr2(b'@', b'$', rest).map(|i| {
                let hit = if rest[i] == b'@' { Hit::At } else { Hit::Dollar };
                (from + i, from + i + 1, hit)
            }),
            HitSource::Found(found) => found.next(),
        };
    }
}

impl Hits<'_> {
    /// The next hit: its start, its end and its kind.
    pub(crate) fn next(&mut self) -> Option<(usize, usize, Hit)> {
        let lane = self.lanes.iter_mut().filter(|l| l.next.is_some()).min_by_key(|l| l.next.map(|n| n.0))?;
        let hit = lane.next?;
        lane.advance(self.text, hit.0 + 1);
        Some(hit)
    }
}

impl Mask {
    #[must_use]
    pub fn new(key: Digest, known: KnownSecrets) -> Self {
        Self::with_rules(key, known, USER_RULES.get().cloned().flatten())
    }

    #[must_use]
    pub fn with_rules(key: Digest, known: KnownSecrets, user: Option<Arc<UserRules>>) -> Self {
        // Longest first: with leftmost-first search a value then wins over its own beginning.
        let mut values: Vec<Vec<u8>> = known.forms.into_iter().collect();
        values.sort_by_key(|v| std::cmp::Reverse(v.len()));
        Self { values, built: OnceLock::new(), user, key: *key.as_bytes() }
    }

    /// Whether it knows secrets beside the rules.
    #[must_use]
    pub fn knows_values(&self) -> bool {
        !self.values.is_empty()
    }

    /// This mask with more known secrets, in all their forms.
    #[must_use]
    pub fn with_values<'a>(&self, values: impl IntoIterator<Item = &'a String>) -> Self {
        let mut known = KnownSecrets { forms: self.values.iter().cloned().collect() };
        values.into_iter().for_each(|value| known.add(value));
        Self::with_rules(Digest::from_bytes(self.key), known, self.user.clone())
    }

    /// This mask with more known secrets.
    #[must_use]
    pub fn with_known(&self, known: &KnownSecrets) -> Self {
        let forms = self.values.iter().chain(&known.forms).cloned().collect();
        Self::with_rules(Digest::from_bytes(self.key), KnownSecrets { forms }, self.user.clone())
    }

    /// A mask of the rules alone.
    #[must_use]
    pub fn without_values() -> Self {
        Self::new(Digest::sha256(&[b"shape"]), KnownSecrets::default())
    }

    pub(crate) fn find_hits<'a>(&'a self, text: &'a [u8], from: usize, returns: bool) -> Hits<'a> {
        let values = self.built.get_or_init(|| ValueSearch::new(&self.values));
        let built = fixed_search();
        let (places, breaks) = keyword_search::find_keywords(text, from, returns);
        let mut found: Vec<_> = places.iter().map(|p| (p.start, p.end, Hit::Rule(p.rule, p.wrap))).collect();
        if self.knows_values() {
            self.find_broken_values(values, text, from, &breaks, &mut found);
        }
        let mut sources = Vec::with_capacity(values.searchers.len() + 5);
        sources.extend(values.searchers.iter().map(|s| HitSource::Search(s, |_| Hit::Value, 0)));
        sources.extend(built.searchers.iter().map(|(s, base)| HitSource::Search(s, Hit::Text, *base)));
        sources.push(HitSource::Marks);
        if let Some(user) = &self.user {
            sources.extend(
                user.searchers
                    .iter()
                    .enumerate()
                    .map(|(n, s)| HitSource::Search(s, Hit::User, n * MAX_SEARCHER_PATTERNS)),
            );
        }
        if !found.is_empty() {
            found.sort_by_key(|f| f.0);
            sources.push(HitSource::Found(found.into_iter()));
        }
        let mut lanes: Vec<SearchLane<'a>> =
            sources.into_iter().map(|source| SearchLane { source, next: None }).collect();
        lanes.iter_mut().for_each(|l| l.advance(text, from));
        Hits { text, lanes }
    }

    /// Finds known secrets that line breaks interrupt. Most can be interrupted inside runs alone.
    fn find_broken_values(
        &self,
        values: &ValueSearch,
        text: &[u8],
        from: usize,
        breaks: &[usize],
        found: &mut Vec<(usize, usize, Hit)>,
    ) {
        if values.any_unsampled {
            for at in memchr::memchr2_iter(b'\n', b'\r', &text[from..]) {
                self.find_values_around(values, text, from + at, found);
            }
        } else {
            breaks.iter().for_each(|at| self.find_values_around(values, text, *at, found));
        }
    }

    /// Finds those that the break at `at` interrupts.
    fn find_values_around(&self, values: &ValueSearch, text: &[u8], at: usize, found: &mut Vec<(usize, usize, Hit)>) {
        values.pairs.find_around(text, at, |n| &self.values[n], |_, start, end| found.push((start, end, Hit::Value)));
    }

    /// Whether a hit begins a header.
    pub(crate) fn is_header(&self, hit: Hit) -> bool {
        matches!(hit, Hit::Text(n) if matches!(fixed_search().texts[n], TextMeaning::Header))
    }

    /// Inspects the text around one hit.
    pub(crate) fn inspect_hit(
        &self,
        view: TextView<'_>,
        start: usize,
        end: usize,
        hit: Hit,
        caches: &mut ShapeCaches,
    ) -> Inspection {
        match hit {
            Hit::Value => Inspection::Found(Span::new(start, end, "known-value", Rank::Known)),
            Hit::At => link::inspect_at_sign(view, start),
            Hit::Rule(n, wrap) => match shape::inspect_keyword(view, start, end, n, caches) {
                Inspection::Found(span)
                    if wrap.is_none_or(|at| at >= span.end)
                        && !keyword_search::always_found(view.bytes, start, span.end) =>
                {
                    Inspection::Nothing
                }
                other => other,
            },
            Hit::Dollar => {
                let Some(head) = view.bytes.get(start..start + 3) else { return Inspection::Nothing };
                let keyword = keywords_with_head([head[0], head[1], head[2]])
                    .iter()
                    .find(|k| view.bytes[start..].starts_with(k.text.as_bytes()));
                keyword.map_or(Inspection::Nothing, |k| {
                    shape::inspect_keyword(view, start, start + k.text.len(), k.rule, caches)
                })
            }
            Hit::Text(n) => match fixed_search().texts[n] {
                TextMeaning::Word => context::inspect_name(view, start, end - start),
                TextMeaning::Header => header::inspect_header(view, start, end - start),
                TextMeaning::Key => pem::inspect_pem(view, start),
                TextMeaning::Putty => pem::inspect_putty(view, end),
                TextMeaning::Rule(n) => shape::inspect_keyword(view, start, end, n, caches),
                TextMeaning::Place(inspect) => inspect(view, start, end),
            },
            Hit::User(n) => {
                let Some(user) = &self.user else { return Inspection::Nothing };
                let rule = user.keywords[n].1;
                let (id, shape) = &user.rules[rule];
                shape::inspect_user_keyword(view, start, end, id, rule, shape, caches)
            }
        }
    }

    /// Where the undecided end of `text` begins: the earliest prefix of a known secret that later bytes may complete, with
    /// or without line breaks.
    pub(crate) fn undecided_from(&self, text: &[u8], flush: bool) -> usize {
        let at_least = if flush { MIN_HELD_PREFIX_BYTES } else { 1 };
        let Some(longest) = self.values.first().map(Vec::len) else { return text.len() };
        let mut places: Vec<usize> = (0..text.len()).rev().filter(|i| !is_break(text[*i])).take(longest).collect();
        places.reverse();
        let joined: Vec<u8> = places.iter().map(|i| text[*i]).collect();
        let start = self.values.iter().map(|v| partial_match_start(&joined, v, at_least)).min().unwrap_or(joined.len());
        places.get(start).copied().unwrap_or(text.len())
    }

    pub(crate) fn write_placeholder(&self, rule: &str, secret: &[u8], into: &mut Vec<u8>) {
        let hash = blake3::keyed_hash(&self.key, secret);
        let [a, b, ..] = *hash.as_bytes();
        let hex = |n: u8| b"0123456789abcdef"[usize::from(n & 15)];
        into.extend_from_slice(b"[redacted:");
        into.extend_from_slice(rule.as_bytes());
        into.extend_from_slice(&[b':', hex(a >> 4), hex(a), hex(b >> 4), hex(b), b']']);
    }
}

/// The start of the longest suffix of `buf` that is a proper prefix of `pattern`.
fn partial_match_start(buf: &[u8], pattern: &[u8], at_least: usize) -> usize {
    let lowest = buf.len().saturating_sub(pattern.len() - 1);
    let highest = (buf.len() + 1).saturating_sub(at_least);
    let Some(first) = pattern.first() else { return buf.len() };
    let Some(range) = buf.get(lowest..highest) else { return buf.len() };
    memchr::memchr_iter(*first, range)
        .map(|i| lowest + i)
        .find(|&start| pattern.starts_with(&buf[start..]))
        .unwrap_or(buf.len())
}

/// The built-in rules.
#[must_use]
pub fn built_in_rules() -> &'static [crate::BuiltInRule] {
    RULES
}
