//! Rules for tokens: the tables generated from `rules/*.toml`, the check of users' rules, and their compiled patterns.

use crate::runs::is_plain;
use countersign_model::RedactionRule;
use regex_automata::{
    Anchored, MatchKind,
    hybrid::{
        LazyStateID,
        dfa::{Cache, DFA},
    },
    nfa::thompson,
    util::{start, syntax},
};
use regex_syntax::hir::{Class, HirKind};
use std::sync::OnceLock;

/// One built-in rule: a public keyword, which stays, and the shape of the secret behind it, which is redacted.
#[derive(Debug)]
pub struct BuiltInRule {
    pub id: &'static str,
    pub about: &'static str,
    pub keywords: &'static [&'static str],
    pub regex: &'static str,
    pub(crate) entropy: f64,
    pub(crate) checked: bool,
    pub(crate) before: Option<&'static str>,
    /// Directly behind one of these texts the keyword begins something public.
    pub(crate) unless: &'static [&'static str],
    pub(crate) whole: bool,
    pub(crate) mixed: bool,
    pub(crate) digit: bool,
    pub(crate) bounded: bool,
    /// Templates of texts that contain a secret, and of texts that do not.
    pub matches: &'static [&'static str],
    pub misses: &'static [&'static str],
}

pub(crate) struct Keyword {
    pub(crate) text: &'static str,
    pub(crate) rule: usize,
}

/// A word of a provider, and which values are secrets that are assigned to a name with it.
pub(crate) struct Provider {
    pub(crate) word: &'static str,
    /// Random text.
    pub(crate) random: bool,
    /// Only long random text: the word has other meanings.
    pub(crate) strict: bool,
    pub(crate) uuid: bool,
    /// Hexadecimal text of these lengths.
    pub(crate) hex: &'static [usize],
}

/// A keyword as it looks in base64.
pub(crate) struct WrappedKeyword {
    pub(crate) text: &'static str,
    pub(crate) keyword: &'static str,
    /// How many bytes of its group precede it.
    pub(crate) offset: usize,
    pub(crate) rule: usize,
}

include!(concat!(env!("OUT_DIR"), "/rules.rs"));

/// Checks and compiles a user's rule.
///
/// # Errors
/// What is wrong, and what to do.
pub(crate) fn compile_user_rule(rule: &RedactionRule) -> Result<Shape, String> {
    let id = &rule.id;
    if id.is_empty() || id.len() > 40 || !id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    {
        return Err(format!("the id {id:?} must have 1 to 40 lower-case letters, digits or dashes"));
    }
    if RULES.iter().any(|r| r.id == id) {
        return Err(format!("{id}: a built-in rule has this id: choose another one"));
    }
    if rule.keywords.is_empty() {
        return Err(format!(
            "{id}: keywords are missing: give the fixed text before the secret, which is not redacted"
        ));
    }
    if let Some(k) = rule.keywords.iter().find(|k| k.len() < 3 || k.len() > 48) {
        return Err(format!("{id}: the keyword {k:?} must have 3 to 48 bytes: a shorter one would match too often"));
    }
    if rule.keywords.iter().any(|k| k.bytes().any(|b| b.is_ascii_control())) {
        return Err(format!("{id}: a keyword cannot contain line breaks or control characters"));
    }
    let shape = Shape::new(&rule.regex).map_err(|e| format!("{id}: regex: {e}"))?;
    if shape.matches_empty() {
        return Err(format!("{id}: the regex matches empty text: it must describe the secret behind the keyword"));
    }
    Ok(shape)
}

/// A compiled regex, anchored at the end of the keyword.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A number of bytes of one class, as most tokens are: nothing has to be built for it.
    Counted(Box<CountedShape>),
    /// Any other. Its states are built as they are reached.
    Automaton(Box<DFA>),
}

/// `[0-9a-f]{32,64}`
#[derive(Debug)]
pub(crate) struct CountedShape {
    class: [bool; 256],
    /// The plain bytes of the class.
    plain: [bool; 256],
    min: usize,
    max: usize,
}

/// One run of a shape over a text.
pub(crate) enum ShapeRun<'a> {
    Counted { shape: &'a CountedShape, count: usize },
    Automaton(AutomatonRun<'a>),
}

pub(crate) struct AutomatonRun<'a> {
    dfa: &'a DFA,
    cache: &'a mut AutomatonCache,
    state: LazyStateID,
}

/// What was built of a shape so far: nothing of one that counts.
pub(crate) struct ShapeCache(Option<AutomatonCache>);

struct AutomatonCache {
    dfa: Cache,
    /// Whether a state can take another byte.
    continuable: Vec<(LazyStateID, bool)>,
}

impl Shape {
    pub(crate) fn new(regex: &str) -> Result<Self, String> {
        Self::compile(regex, false)
    }

    fn compile(regex: &str, backwards: bool) -> Result<Self, String> {
        let syntax = syntax::Config::new().unicode(false).utf8(false);
        // It is the same in both directions.
        if let Some(counted) = CountedShape::read(regex, &syntax) {
            return Ok(Shape::Counted(Box::new(counted)));
        }
        let built = DFA::builder()
            .syntax(syntax)
            .thompson(thompson::Config::new().nfa_size_limit(Some(2 << 20)).utf8(false).reverse(backwards))
            .configure(DFA::config().match_kind(MatchKind::All).cache_capacity(8 << 20))
            .build(regex);
        built.map(|dfa| Shape::Automaton(Box::new(dfa))).map_err(|e| {
            // The innermost error names the problem and its place.
            let mut inner: &dyn std::error::Error = &e;
            while let Some(source) = inner.source() {
                inner = source;
            }
            inner.to_string()
        })
    }

    /// The shape of what stands before the keyword, read backwards.
    pub(crate) fn before_rule(rule: usize) -> Option<&'static Self> {
        static SHAPES: OnceLock<Vec<OnceLock<Shape>>> = OnceLock::new();
        let before = RULES[rule].before?;
        let shapes = SHAPES.get_or_init(|| RULES.iter().map(|_| OnceLock::new()).collect());
        Some(shapes[rule].get_or_init(|| Self::compile(before, true).expect("a test compiles every rule")))
    }

    pub(crate) fn for_rule(rule: usize) -> &'static Self {
        static SHAPES: OnceLock<Vec<OnceLock<Shape>>> = OnceLock::new();
        let shapes = SHAPES.get_or_init(|| RULES.iter().map(|_| OnceLock::new()).collect());
        shapes[rule].get_or_init(|| Self::new(RULES[rule].regex).expect("a test compiles every rule"))
    }

    pub(crate) fn new_cache(&self) -> ShapeCache {
        ShapeCache(match self {
            Shape::Counted(_) => None,
            Shape::Automaton(dfa) => Some(AutomatonCache { dfa: dfa.create_cache(), continuable: Vec::new() }),
        })
    }

    fn matches_empty(&self) -> bool {
        let mut cache = self.new_cache();
        ShapeRun::new(self, &mut cache).is_none_or(|mut r| r.matches_here())
    }
}

impl CountedShape {
    /// Reads a regex that repeats one class; none if it is something else.
    fn read(regex: &str, syntax: &syntax::Config) -> Option<Self> {
        let parsed = syntax::parse_with(regex, syntax).ok()?;
        let HirKind::Repetition(repetition) = parsed.kind() else { return None };
        let HirKind::Class(Class::Bytes(ranges)) = repetition.sub.kind() else { return None };
        let mut class = [false; 256];
        for range in ranges.iter() {
            class[usize::from(range.start())..=usize::from(range.end())].fill(true);
        }
        let plain = std::array::from_fn(|b| class[b] && is_plain(b as u8));
        let max = repetition.max.map_or(usize::MAX, |max| max as usize);
        Some(Self { class, plain, min: repetition.min as usize, max })
    }
}

impl<'a> ShapeRun<'a> {
    pub(crate) fn new(shape: &'a Shape, cache: &'a mut ShapeCache) -> Option<Self> {
        let dfa = match shape {
            Shape::Counted(shape) => return Some(ShapeRun::Counted { shape, count: 0 }),
            Shape::Automaton(dfa) => dfa,
        };
        let cache = cache.0.as_mut()?;
        let state = dfa.start_state(&mut cache.dfa, &start::Config::new().anchored(Anchored::Yes)).ok()?;
        Some(ShapeRun::Automaton(AutomatonRun { dfa, cache, state }))
    }

    /// Takes plain bytes at the beginning of a text, as far as a shape only counts them. How many it took.
    #[inline]
    pub(crate) fn take_plain(&mut self, text: &[u8]) -> usize {
        let ShapeRun::Counted { shape, count } = self else { return 0 };
        let text = &text[..text.len().min(shape.max - *count)];
        let taken = text.iter().position(|b| !shape.plain[usize::from(*b)]).unwrap_or(text.len());
        *count += taken;
        taken
    }

    /// Takes one byte. False: no match begins like this. `matched`: the bytes before this one match.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8, matched: &mut bool) -> bool {
        match self {
            ShapeRun::Counted { shape, count } => {
                *matched = *count >= shape.min;
                let lives = shape.class[usize::from(byte)] && *count < shape.max;
                *count += usize::from(lives);
                lives
            }
            ShapeRun::Automaton(run) => run.take(byte, matched),
        }
    }

    /// Whether a match can go on with this byte.
    pub(crate) fn can_take(&mut self, byte: u8) -> bool {
        match self {
            ShapeRun::Counted { shape, count } => shape.class[usize::from(byte)] && *count < shape.max,
            ShapeRun::Automaton(run) => run.can_take(byte),
        }
    }

    /// Whether the bytes so far match.
    pub(crate) fn matches_here(&mut self) -> bool {
        match self {
            ShapeRun::Counted { shape, count } => *count >= shape.min,
            ShapeRun::Automaton(run) => run.matches_here(),
        }
    }

    /// Whether another byte could continue the match.
    pub(crate) fn can_continue(&mut self) -> bool {
        match self {
            ShapeRun::Counted { shape, count } => *count < shape.max,
            ShapeRun::Automaton(run) => run.can_continue(),
        }
    }
}

impl AutomatonRun<'_> {
    fn take(&mut self, byte: u8, matched: &mut bool) -> bool {
        // A cache that was cleared too often gives up; only this match is lost.
        let Ok(next) = self.dfa.next_state(&mut self.cache.dfa, self.state, byte) else { return false };
        self.state = next;
        if !next.is_tagged() {
            *matched = false;
            return true;
        }
        *matched = next.is_match();
        !next.is_dead() && !next.is_quit()
    }

    fn can_take(&mut self, byte: u8) -> bool {
        let cache = &mut self.cache.dfa;
        let next = self.dfa.next_state(cache, self.state, byte);
        next.is_ok_and(|s| !s.is_dead() && !s.is_quit() && !Self::is_past_match(self.dfa, cache, s))
    }

    fn matches_here(&mut self) -> bool {
        self.dfa.next_eoi_state(&mut self.cache.dfa, self.state).is_ok_and(|s| s.is_match())
    }

    fn can_continue(&mut self) -> bool {
        if let Some((_, lives)) = self.cache.continuable.iter().find(|(state, _)| *state == self.state) {
            return *lives;
        }
        let cache = &mut self.cache.dfa;
        let classes = self.dfa.byte_classes();
        let lives = classes.representatives(0..=255).filter_map(|unit| unit.as_u8()).any(|byte| {
            let next = self.dfa.next_state(cache, self.state, byte);
            next.is_ok_and(|s| !s.is_dead() && !s.is_quit() && !Self::is_past_match(self.dfa, cache, s))
        });
        self.cache.continuable.push((self.state, lives));
        lives
    }

    /// Whether a state only reports that a match ended one byte ago.
    fn is_past_match(dfa: &DFA, cache: &mut Cache, state: LazyStateID) -> bool {
        state.is_match()
            && dfa.byte_classes().representatives(0..=255).all(|unit| {
                unit.as_u8().is_none_or(|b| dfa.next_state(cache, state, b).is_ok_and(|s| s.is_dead() || s.is_quit()))
            })
            && !dfa.next_eoi_state(cache, state).is_ok_and(|s| s.is_match())
    }
}

/// The place of a head in the tables of bits; it is in the lowest three bytes.
#[inline]
fn head_hash(head: u32) -> usize {
    (head.wrapping_mul(0x9e37_79b1) >> 16) as usize
}

fn head_number([a, b, c]: [u8; 3]) -> u32 {
    u32::from_le_bytes([a, b, c, 0])
}

/// Whether a table of bits has a head, or another one with its hash.
#[inline]
pub(crate) fn has_head(bits: &[u64; 1024], head: [u8; 3]) -> bool {
    has_bit(bits, head_number(head))
}

/// The same for the first three of four bytes, which are in a number from the lowest on.
#[inline]
pub(crate) fn has_head_of(bits: &[u64; 1024], bytes: u32) -> bool {
    has_bit(bits, bytes & 0x00ff_ffff)
}

#[inline]
fn has_bit(bits: &[u64; 1024], head: u32) -> bool {
    let hash = head_hash(head);
    bits[hash / 64] >> (hash % 64) & 1 != 0
}

/// The keywords with these first three bytes.
pub(crate) fn keywords_with_head(head: [u8; 3]) -> &'static [Keyword] {
    if !has_head(&HEAD_BITS, head) {
        return &[];
    }
    let mut slot = head_hash(head_number(head)) % HEAD_SLOTS.len();
    while let Some(n) = usize::from(HEAD_SLOTS[slot]).checked_sub(1) {
        if KEYWORD_HEADS[n].0 == head {
            return KEYWORD_HEADS[n].1;
        }
        slot = (slot + 1) % HEAD_SLOTS.len();
    }
    &[]
}

/// The keywords in base64 that begin a text of three bytes and more.
pub(crate) fn wrapped_keywords_at(text: &[u8]) -> impl Iterator<Item = usize> {
    let head = &text[..3];
    let first = WRAPPED_KEYWORDS.partition_point(|k| &k.text.as_bytes()[..3] < head);
    (first..WRAPPED_KEYWORDS.len())
        .take_while(move |n| &WRAPPED_KEYWORDS[*n].text.as_bytes()[..3] == head)
        .filter(|n| text.starts_with(WRAPPED_KEYWORDS[*n].text.as_bytes()))
}

/// `n·log n` of the numbers to 256.
fn logs() -> &'static [f64; 257] {
    static LOGS: OnceLock<Box<[f64; 257]>> = OnceLock::new();
    LOGS.get_or_init(|| Box::new(std::array::from_fn(|n| if n == 0 { 0.0 } else { n as f64 * (n as f64).log2() })))
}

/// Whether a text has this entropy, in bits per byte.
pub(crate) fn has_entropy(bytes: &[u8], least: f64) -> bool {
    // With enough different bytes a text has it, however often each occurs: no need to count.
    if let Some(all) = logs().get(bytes.len()) {
        let different = bytes.iter().fold(0u64, |seen, b| seen | 1 << (b & 63)).count_ones() as usize;
        if different > 0 && all - logs()[bytes.len() - different + 1] >= least * bytes.len() as f64 {
            return true;
        }
    }
    entropy(bytes) >= least
}

/// Shannon entropy, in bits per byte.
fn entropy(bytes: &[u8]) -> f64 {
    let log = |n: u16| logs().get(usize::from(n)).copied().unwrap_or_else(|| f64::from(n) * f64::from(n).log2());
    // More bytes hardly change the result.
    let bytes = &bytes[..bytes.len().min(4096)];
    let mut counts = [0u16; 256];
    bytes.iter().for_each(|b| counts[usize::from(*b)] += 1);
    let total = bytes.len() as f64;
    if total == 0.0 {
        0.0
    } else {
        total.log2() - bytes.iter().map(|b| log(std::mem::take(&mut counts[usize::from(*b)]))).sum::<f64>() / total
    }
}

/// The checksum at the end of GitHub's and npm's tokens: CRC-32 of the rest, as six digits in base 62.
pub(crate) fn crc32_base62(random: &[u8]) -> [u8; 6] {
    let mut crc = !0u32;
    for &byte in random {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    let (mut rest, mut out) = (!crc, [b'0'; 6]);
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[(rest % 62) as usize];
        rest /= 62;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_compiles_and_matches_no_empty_text() {
        for (n, rule) in RULES.iter().enumerate() {
            assert!(rule.whole && rule.regex.is_empty() || !Shape::for_rule(n).matches_empty(), "{}", rule.id);
            assert!(!rule.whole || rule.before.is_some(), "{}", rule.id);
            assert!(Shape::before_rule(n).is_none_or(|s| !s.matches_empty()), "{}", rule.id);
            assert!(!rule.matches.is_empty() && !rule.misses.is_empty(), "{}", rule.id);
            assert_eq!(RULES.iter().filter(|r| r.id == rule.id).count(), 1, "{}", rule.id);
        }
    }

    #[test]
    fn every_keyword_is_found_by_its_head() {
        let found = |text: &str| KEYWORD_HEADS.iter().any(|(_, k)| k.iter().any(|k| k.text == text));
        assert!(RULES.iter().flat_map(|r| r.keywords).all(|k| found(k)));
        assert!(KEYWORD_HEADS.is_sorted_by_key(|(head, _)| head));
    }

    #[test]
    fn a_shape_reports_when_its_match_is_complete() {
        let shape = Shape::new("[a-z]{3}(-[0-9]{2})?").unwrap();
        let mut cache = shape.new_cache();
        let mut run = ShapeRun::new(&shape, &mut cache).unwrap();
        let mut matched = false;
        for b in b"abc" {
            assert!(run.take(*b, &mut matched));
        }
        assert!(run.matches_here() && run.can_continue());
        for b in b"-12" {
            assert!(run.take(*b, &mut matched));
        }
        assert!(run.matches_here() && !run.can_continue());
    }

    #[test]
    fn the_error_of_a_rule_names_the_problem() {
        let rule = |id: &str, keyword: &str, regex: &str| RedactionRule {
            id: id.to_owned(),
            about: String::new(),
            keywords: vec![keyword.to_owned()],
            regex: regex.to_owned(),
            matches: Vec::new(),
            misses: Vec::new(),
        };
        assert!(compile_user_rule(&rule("acme", "acme_", "[a-z]{20}")).is_ok());
        for (bad, why) in [
            (rule("Acme", "acme_", "[a-z]{20}"), "lower-case"),
            (rule("jwt", "acme_", "[a-z]{20}"), "built-in"),
            (rule("acme", "a_", "[a-z]{20}"), "3 to 48"),
            (rule("acme", "acme_", "[a-z"), "unclosed"),
            (rule("acme", "acme_", "[a-z]*"), "empty"),
            (rule("acme", "acme_", "[a-z]{1000}{1000}"), "exceeded"),
        ] {
            let message = compile_user_rule(&bad).unwrap_err();
            assert!(message.contains(why), "{message}");
        }
    }
}
