//! What to search for: the known secrets of a task and the rules; and the search for both.

use crate::{
    KnownSecrets,
    fixed_search::fixed_search,
    keyword_search,
    known_values::KnownValues,
    link, prefixed, provider_values,
    rules::{self, RULES, Shape, WRAPPED_KEYWORDS, keywords_with_head},
    runs::{self, Run},
    searcher::{MAX_SEARCHER_PATTERNS, Searcher},
    shape::{self, ShapeCaches},
    span::{Inspection, Rank, RuleId, Span},
    unanchored,
    visible_text::TextView,
    wrapped,
};
use countersign_model::{Digest, RedactionRule};
use siphasher::sip::SipHasher24;
use std::sync::{Arc, OnceLock};

/// What to search for. The streams of a task share it; it is compiled when the first of them has input.
pub struct Mask {
    values: Vec<Vec<u8>>,
    built: OnceLock<KnownValues>,
    user: Option<Arc<UserRules>>,
    /// Gives each secret the tag of its placeholder.
    tags: SipHasher24,
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

/// Compiles in advance what does not depend on the task.
pub fn warm_up() {
    let _ = fixed_search();
}

/// The end of a placeholder: `:3fa7]`.
pub(crate) type SecretTag = [u8; 6];

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
    /// A word of a run that looks random.
    Word,
    /// A keyword in base64.
    Wrapped(usize),
}

impl Mask {
    #[must_use]
    pub fn new(key: Digest, known: KnownSecrets) -> Self {
        Self::with_rules(key, known, USER_RULES.get().cloned().flatten())
    }

    #[must_use]
    pub fn with_rules(key: Digest, known: KnownSecrets, user: Option<Arc<UserRules>>) -> Self {
        let key = u128::from_le_bytes(std::array::from_fn(|n| key.as_bytes()[n]));
        Self::with_tags(SipHasher24::new_with_keys(key as u64, (key >> 64) as u64), known, user)
    }

    fn with_tags(tags: SipHasher24, known: KnownSecrets, user: Option<Arc<UserRules>>) -> Self {
        Self { values: known.forms.into_iter().collect(), built: OnceLock::new(), user, tags }
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
        Self::with_tags(self.tags, known, self.user.clone())
    }

    /// This mask with more known secrets.
    #[must_use]
    pub fn with_known(&self, known: &KnownSecrets) -> Self {
        let forms = self.values.iter().chain(&known.forms).cloned().collect();
        Self::with_tags(self.tags, KnownSecrets { forms }, self.user.clone())
    }

    /// A mask of the rules alone.
    #[must_use]
    pub fn without_values() -> Self {
        Self::new(Digest::sha256(&[b"shape"]), KnownSecrets::default())
    }

    /// All hits in a text from `from` on, from left to right: their starts, their ends and their kinds.
    pub(crate) fn find_hits(
        &self,
        learned: &KnownValues,
        text: &[u8],
        from: usize,
        returns: bool,
    ) -> Vec<(usize, usize, Hit)> {
        let near = keyword_search::search_runs(text, from, returns);
        let mut found: Vec<_> = near.keywords.iter().map(|k| (k.start, k.end, Hit::Rule(k.rule, k.wrap))).collect();
        near.mixed.iter().for_each(|run| find_words(text, *run, &mut found));
        near.wrapped.iter().for_each(|at| {
            found.extend(rules::wrapped_keywords_at(&text[*at..]).map(|n| (*at, *at + 1, Hit::Wrapped(n))));
        });
        for known in [self.known_values(), learned] {
            known.find(text, from, &near.mixed, |start, end| found.push((start, end, Hit::Value)));
        }
        fixed_search().find_all(text, from, |start, end, n| found.push((start, end, Hit::Text(n))));
        if let Some(user) = &self.user {
            for (n, searcher) in user.searchers.iter().enumerate() {
                let base = n * MAX_SEARCHER_PATTERNS;
                searcher.find_all(text, from, |start, end, m| found.push((start, end, Hit::User(base + m))));
            }
        }
        for at in memchr::memchr2_iter(b'@', b'$', text.get(from..).unwrap_or_default()).map(|n| from + n) {
            found.push((at, at + 1, if text[at] == b'@' { Hit::At } else { Hit::Dollar }));
        }
        found.sort_by_key(|hit| hit.0);
        found
    }

    pub(crate) fn known_values(&self) -> &KnownValues {
        self.built.get_or_init(|| KnownValues::new(self.values.iter().cloned()))
    }

    /// Whether a hit begins a header.
    pub(crate) fn is_header(&self, hit: Hit) -> bool {
        matches!(hit, Hit::Text(n) if fixed_search().is_header(n))
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
            Hit::Word => inspect_word(view, start, end),
            Hit::Wrapped(n) => {
                let rule = WRAPPED_KEYWORDS[n].rule;
                wrapped::inspect_wrapped(view, start, n, caches.cache_for(rule, Shape::for_rule(rule)))
            }
            Hit::Rule(n, wrap) => match shape::inspect_keyword(view, start, end, n, caches) {
                Inspection::Found(span)
                    if wrap.is_none_or(|at| at >= span.end)
                        && !keyword_search::always_found(view.bytes, span.public, start, span.end) =>
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
            Hit::Text(n) => fixed_search().inspect(n, view, start..end, caches),
            Hit::User(n) => {
                let Some(user) = &self.user else { return Inspection::Nothing };
                let rule = user.keywords[n].1;
                let (id, shape) = &user.rules[rule];
                shape::inspect_user_keyword(view, start, end, id, rule, shape, caches)
            }
        }
    }

    /// The end of the placeholder of a secret: the same for the same secret.
    pub(crate) fn tag_of(&self, secret: &[u8]) -> SecretTag {
        let [a, b, ..] = self.tags.hash(secret).to_le_bytes();
        let hex = |n: u8| b"0123456789abcdef"[usize::from(n & 15)];
        [b':', hex(a >> 4), hex(a), hex(b >> 4), hex(b), b']']
    }
}

/// Inspects a word. Where the cursor moved, another word begins: each has to look random without the others.
fn inspect_word(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let (mut spans, mut open) = (Vec::new(), None::<usize>);
    let mut from = start;
    while from < end {
        let to = view.until_moved(from).min(end);
        let part = &view.bytes[from..to];
        if part.len() >= runs::MIN_RUN_BYTES && part.iter().any(u8::is_ascii_digit) && runs::is_mixed_run(part) {
            let found = [unanchored::inspect_word, provider_values::inspect_word, prefixed::inspect_word]
                .iter()
                .map(|inspect| inspect(view, from, to))
                .find(|found| !matches!(found, Inspection::Nothing));
            match found {
                Some(Inspection::Found(span)) => spans.push(span),
                Some(Inspection::Open(at)) => open = Some(open.map_or(at, |open| open.min(at))),
                Some(Inspection::Several(..) | Inspection::Nothing) | None => {}
            }
        }
        from = to;
    }
    Inspection::from_parts(spans, open)
}

/// Finds the words of a run that may be tokens.
fn find_words(text: &[u8], run: Run, found: &mut Vec<(usize, usize, Hit)>) {
    let mut start = run.start;
    let ends = memchr::memchr3_iter(b'+', b'\n', b'\r', &text[run.start..run.end]).map(|n| run.start + n);
    for end in ends.chain([run.end]) {
        // `\n` and similar are two bytes.
        let is_escape = start > 0 && text[start - 1] == b'\\' && matches!(text.get(start), Some(b'n' | b't' | b'r'));
        let from = start + usize::from(is_escape);
        if end >= from + runs::MIN_RUN_BYTES && text[start..end].iter().any(u8::is_ascii_digit) {
            found.push((from, end, Hit::Word));
        }
        start = end + 1;
    }
}

/// The built-in rules.
#[must_use]
pub fn built_in_rules() -> &'static [crate::BuiltInRule] {
    RULES
}
