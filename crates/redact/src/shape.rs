//! Checks whether the text behind a keyword has the shape of its rule.

use crate::{
    generated,
    rules::{RULES, Shape, ShapeCache, ShapeRun, crc32_base62, has_entropy, keywords_with_head},
    runs::{byte_class, is_plain},
    span::{Inspection, Rank, RuleId, Span, is_token_byte},
    visible_text::{TextGap, TextView, WalkStep, is_break},
};

/// A longer value is redacted up to here, and the rest is removed without another placeholder.
const MAX_VALUE_BYTES: usize = 16 * 1024;

/// The longest text before a keyword that a rule may require.
const MAX_BEFORE_BYTES: usize = 256;

/// The caches of one stream, created when the first keyword of a rule is found.
#[derive(Default)]
pub(crate) struct ShapeCaches(Vec<Option<Box<ShapeCache>>>);

impl ShapeCaches {
    pub(crate) fn cache_for(&mut self, n: usize, shape: &Shape) -> &mut ShapeCache {
        if self.0.len() <= n {
            self.0.resize_with(n + 1, || None);
        }
        self.0[n].get_or_insert_with(|| Box::new(shape.new_cache()))
    }
}

/// What a rule requires beside the shape.
struct MatchTerms {
    id: RuleId,
    entropy: f64,
    digit: bool,
    mixed: bool,
    bounded: bool,
    checked: bool,
    /// The start of a secret that begins before its keyword.
    whole: Option<usize>,
}

/// Inspects the text around a keyword of a built-in rule; `start` and `end` delimit the keyword.
pub(crate) fn inspect_keyword(
    view: TextView<'_>,
    start: usize,
    end: usize,
    n: usize,
    caches: &mut ShapeCaches,
) -> Inspection {
    let rule = &RULES[n];
    if rule.unless.iter().any(|text| view.bytes[..start].ends_with(text.as_bytes())) {
        return Inspection::Nothing;
    }
    let mut public = start;
    if let Some(shape) = Shape::before_rule(n) {
        // What precedes the keyword is held only where a terminal may have wrapped the line.
        let broken = (start..end).find(|at| is_break(view.bytes[*at]));
        if broken.is_some_and(|at| !view.is_wrapped_line_end(at)) || (start + 1..end).any(|at| view.is_moved_at(at)) {
            return Inspection::Nothing;
        }
        let Some(first) = match_before(view, start, shape, caches.cache_for(RULES.len() + n, shape)) else {
            return Inspection::Nothing;
        };
        public = first;
    }
    let terms = MatchTerms {
        id: rule.id.into(),
        entropy: rule.entropy,
        digit: rule.digit,
        mixed: rule.mixed,
        // A sign begins a word wherever it stands.
        bounded: rule.bounded && rule.before.is_none() && view.bytes[start].is_ascii_alphanumeric(),
        checked: rule.checked,
        whole: rule.whole.then_some(public),
    };
    if rule.regex.is_empty() {
        return conclude_at_keyword(view, end, &terms);
    }
    let shape = Shape::for_rule(n);
    let cache = caches.cache_for(n, shape);
    match_shape(view, public, end, &terms, shape, cache)
}

/// Inspects the text behind a keyword of a user's rule.
pub(crate) fn inspect_user_keyword(
    view: TextView<'_>,
    start: usize,
    end: usize,
    id: &RuleId,
    n: usize,
    shape: &Shape,
    caches: &mut ShapeCaches,
) -> Inspection {
    let terms = MatchTerms {
        id: id.clone(),
        entropy: 0.0,
        digit: false,
        mixed: false,
        bounded: true,
        checked: false,
        whole: None,
    };
    let cache = caches.cache_for(2 * RULES.len() + n, shape);
    match_shape(view, start, end, &terms, shape, cache)
}

/// Where the text before a keyword begins that its rule requires there: the longest that no letter or digit precedes.
fn match_before(view: TextView<'_>, keyword: usize, shape: &Shape, cache: &mut ShapeCache) -> Option<usize> {
    let mut run = ShapeRun::new(shape, cache)?;
    let mut longest = None;
    let mut at = keyword;
    while at > 0 && keyword - at < MAX_BEFORE_BYTES && !view.is_moved_at(at) {
        at -= 1;
        let b = view.bytes[at];
        if is_break(b) {
            // A line break may interrupt it where a terminal wraps.
            if !view.is_wrapped_line_end(at) {
                break;
            }
            continue;
        }
        let mut b = b;
        // A link writes signs as `%2B`.
        if at >= 2
            && let EncodedByte::Byte(decoded, behind) = read_encoded(view, at - 2)
            && behind == at + 1
        {
            if !run.can_take(decoded) {
                break;
            }
            b = decoded;
            at -= 2;
        }
        let mut matched = false;
        if !run.take(b, &mut matched) {
            break;
        }
        // `\nV`: the letter belongs to the escape.
        if matches!(b, b'n' | b'r' | b't') && longest == Some(at + 1) && at > 0 && view.bytes[at - 1] == b'\\' {
            break;
        }
        let is_first = at == 0 || !view.bytes[at - 1].is_ascii_alphanumeric() || may_begin_word(view, at);
        if is_first && run.matches_here() {
            longest = Some(at);
        }
    }
    longest
}

/// A rule without a shape behind its keyword: the keyword ends the secret.
fn conclude_at_keyword(view: TextView<'_>, end: usize, terms: &MatchTerms) -> Inspection {
    let Some(start) = terms.whole else { return Inspection::Nothing };
    match view.byte(end).filter(|_| !view.is_moved_at(end)) {
        None if !view.end && !view.is_moved_at(end) => Inspection::Open(start),
        Some(b) if b.is_ascii_alphanumeric() => Inspection::Nothing,
        _ => judge_value(&view.without_breaks(start..end), terms)
            .then(|| shape_span(start, start, end, terms))
            .map_or(Inspection::Nothing, Inspection::Found),
    }
}

/// Whether a value that has the shape of a rule meets its other conditions.
fn judge_value(value: &[u8], terms: &MatchTerms) -> bool {
    has_entropy(value, terms.entropy)
        && (!terms.digit || value.iter().any(u8::is_ascii_digit) || looks_random(value))
        && (!terms.mixed || generated::looks_generated(value))
}

/// Whether a word may begin here: behind a byte that is no letter or digit, or behind an escape (`\n`, `%3D`).
fn may_begin_word(view: TextView<'_>, start: usize) -> bool {
    let Some(before) = start.checked_sub(1).and_then(|i| view.byte(i)) else { return true };
    if !before.is_ascii_alphanumeric() || view.follows_escape(start) {
        return true;
    }
    let back = |n: usize| start.checked_sub(n).and_then(|i| view.byte(i));
    let escaped = matches!(before, b'n' | b'r' | b't') && back(2) == Some(b'\\');
    let percent = before.is_ascii_hexdigit() && back(3) == Some(b'%');
    let unicode = before.is_ascii_hexdigit() && back(6) == Some(b'\\') && back(5) == Some(b'u');
    escaped || percent || unicode
}

fn match_shape(
    view: TextView<'_>,
    public: usize,
    start: usize,
    terms: &MatchTerms,
    shape: &Shape,
    cache: &mut ShapeCache,
) -> Inspection {
    let bounded = !terms.bounded || may_begin_word(view, public);
    // Only a checksum distinguishes a token inside a word from the word.
    if !bounded && !terms.checked {
        return Inspection::Nothing;
    }
    let Some(mut run) = ShapeRun::new(shape, cache) else { return Inspection::Nothing };
    let mut walk = view.walk(start);
    // The start of the value: a line break may separate it from its keyword.
    let mut begin = None;
    let mut last = None;
    // The next line may continue it; the lines before the last one suffice for a token.
    let (mut continues, mut suffices) = (false, false);
    // The start of the line, and the length of the last one: wrapped lines have one length.
    let (mut line, mut width) = (None, None);
    loop {
        // Most bytes of a value are only counted.
        if let Some(from) = begin {
            walk.at += run.take_plain(walk.rest((MAX_VALUE_BYTES / 2).saturating_sub(walk.at - from)));
        }
        let at = walk.at;
        match walk.step() {
            WalkStep::Byte(b) => {
                let begin = *begin.get_or_insert(at);
                let mut b = b;
                if matches!(b, b'%' | b'\\') {
                    match read_encoded(view, at) {
                        EncodedByte::Byte(decoded, _) if !run.can_take(decoded) => {}
                        EncodedByte::Byte(decoded, behind) => {
                            b = decoded;
                            walk = view.walk(behind);
                        }
                        EncodedByte::Unfinished => return Inspection::Open(terms.whole.unwrap_or(begin)),
                        EncodedByte::Nothing => {}
                    }
                }
                if b == b' ' && at > begin {
                    match view.is_wrapped_at(at) {
                        // A line editor wrapped the line here.
                        Some(true) => {
                            walk = view.walk(at + 2);
                            continue;
                        }
                        None => return Inspection::Open(terms.whole.unwrap_or(begin)),
                        Some(false) => {}
                    }
                }
                let mut matched = false;
                let lives = run.take(b, &mut matched);
                if matched && at > begin {
                    last = Some(at);
                }
                if !lives {
                    break;
                }
                if at + 1 - begin >= MAX_VALUE_BYTES {
                    let span = shape_span(public, terms.whole.unwrap_or(begin), at + 1, terms);
                    let endless = Inspection::Found(Span { swallow: Some(is_token_byte), ..span });
                    return if last.is_some() { endless } else { Inspection::Nothing };
                }
            }
            WalkStep::Gap(TextGap::Escape) => {}
            WalkStep::Gap(TextGap::Move) => {
                last = if begin.is_some() && run.matches_here() { Some(at) } else { last };
                break;
            }
            WalkStep::Gap(_) => {
                let length = line.map(|from| at - from);
                let wrapped = length.is_some() && length == width;
                (line, width) = (Some(walk.at), length);
                if begin.is_some() && (!wrapped || at >= view.len() && view.end) && run.matches_here() {
                    last = Some(at);
                    // Only a long line was wrapped.
                    continues = view.is_wrapped_line_end(at) && at < view.len() && run.can_continue();
                    break;
                }
                suffices = begin.is_some() && run.matches_here();
                if at >= view.len() && view.end {
                    break;
                }
            }
            WalkStep::More => return terms.whole.or(begin).map_or(Inspection::Nothing, Inspection::Open),
        }
    }
    let (Some(first), Some(end)) = (begin, last) else { return Inspection::Nothing };
    let public = public_start(view, public, first, terms);
    let span = Span { continues, ..shape_span(public, terms.whole.unwrap_or(first), end, terms) };
    if is_token(view, &span, (bounded, suffices), terms) { Inspection::Found(span) } else { Inspection::Nothing }
}

/// Where the public part of a token begins: behind the last line break and the last move of the cursor before the secret.
/// What stands before those was judged before the secret came.
fn public_start(view: TextView<'_>, public: usize, secret: usize, terms: &MatchTerms) -> usize {
    if terms.whole.is_some() {
        return public;
    }
    (public + 1..=secret).rev().find(|at| is_break(view.bytes[at - 1]) || view.is_moved_at(*at)).unwrap_or(public)
}

/// Whether a span that has the shape is a whole token that meets the other conditions of its rule. `bounded`: a word begins
/// with it; `suffices`: without its last line it would be one, too.
fn is_token(view: TextView<'_>, span: &Span, (bounded, suffices): (bool, bool), terms: &MatchTerms) -> bool {
    let (start, end) = (span.start, span.end);
    let value = &*view.without_breaks(start..end);
    // The next line begins with words, and does not continue the token.
    let last_line = memchr::memrchr2(b'\n', b'\r', &view.bytes[start..end]).map(|n| &view.bytes[start + n + 1..end]);
    let ends_line = view.byte(end).is_none_or(|b| is_break(b) || b == b' ');
    if (suffices || !ends_line) && last_line.is_some_and(generated::reads_as_words) {
        return false;
    }
    let follows = view.byte(end).filter(|_| !view.is_moved_at(end));
    let goes_on = follows.is_some_and(|b| b.is_ascii_alphanumeric());
    let proven = || terms.checked && value.len() == 36 && crc32_base62(&value[..30]) == value[30..];
    (!goes_on && bounded || proven()) && judge_value(value, terms)
}

fn shape_span(public: usize, start: usize, end: usize, terms: &MatchTerms) -> Span {
    Span { public, ..Span::new(start, end, terms.id.clone(), Rank::Shape) }
}

/// A byte as links and JSON write it.
enum EncodedByte {
    Nothing,
    /// The byte, and where the text behind it begins.
    Byte(u8, usize),
    /// More bytes are needed.
    Unfinished,
}

/// Reads `%2F` and `\/` at `at`.
fn read_encoded(view: TextView<'_>, at: usize) -> EncodedByte {
    let hex = |n: usize| {
        let b = view.byte(at + n).filter(|_| !view.is_moved_at(at + n));
        b.map(|b| char::from(b).to_digit(16))
    };
    if view.byte(at) == Some(b'\\') {
        return match view.byte(at + 1) {
            Some(b'/') => EncodedByte::Byte(b'/', at + 2),
            None if !view.end && !view.is_moved_at(at + 1) => EncodedByte::Unfinished,
            _ => EncodedByte::Nothing,
        };
    }
    if view.byte(at) != Some(b'%') {
        return EncodedByte::Nothing;
    }
    match (hex(1), hex(2)) {
        (Some(Some(a)), Some(Some(b))) => EncodedByte::Byte((a * 16 + b) as u8, at + 3),
        (None, _) | (Some(Some(_)), None) if !view.end && !view.is_moved_at(view.len()) => EncodedByte::Unfinished,
        _ => EncodedByte::Nothing,
    }
}

/// Inspects the beginning of a line: it may be the rest of a token that ended with the line before.
pub(crate) fn inspect_continuation(view: TextView<'_>, at: usize, rule: &RuleId) -> Inspection {
    // Text elsewhere on the screen continues nothing.
    if view.is_moved_at(at) && at < view.len() {
        return Inspection::Nothing;
    }
    let mut walk = view.walk(at);
    let mut begin = None;
    loop {
        let rest = walk.rest(MAX_VALUE_BYTES);
        let plain = rest.iter().position(|b| !is_plain(*b)).unwrap_or(rest.len());
        if plain > 0 {
            begin.get_or_insert(walk.at);
            walk.at += plain;
        }
        let here = walk.at;
        match walk.step() {
            WalkStep::Byte(b) if is_token_byte(b) => _ = begin.get_or_insert(here),
            WalkStep::Byte(_) => return judge_continuation(view, begin, here, rule, false),
            WalkStep::Gap(TextGap::Escape) => {}
            WalkStep::Gap(TextGap::Move) => return judge_continuation(view, begin, here, rule, false),
            WalkStep::Gap(_) if here >= view.len() && view.end => {
                return judge_continuation(view, begin, here, rule, false);
            }
            WalkStep::Gap(_) if begin.is_none() => {}
            WalkStep::Gap(_) => return judge_continuation(view, begin, here, rule, true),
            WalkStep::More => return Inspection::Open(begin.unwrap_or(view.len())),
        }
        if here - at > MAX_VALUE_BYTES {
            return Inspection::Nothing;
        }
    }
}

fn judge_continuation(view: TextView<'_>, at: Option<usize>, end: usize, rule: &RuleId, continues: bool) -> Inspection {
    let Some(at) = at else { return Inspection::Nothing };
    let value = &view.bytes[at..end];
    let follows = view.byte(end).filter(|_| !view.is_moved_at(end));
    // A word, a name with a value, or a path does not continue a token; and another token has a rule of its own.
    if value.len() < 4
        || !looks_random(value)
        || generated::reads_as_words(value)
        || matches!(follows, Some(b':' | b'(' | b'@'))
        || memchr::memchr(b'=', value).is_some_and(|n| !value.ends_with(b"=") && !is_checksum(&value[n + 1..]))
        || keywords_with_head([value[0], value[1], value[2]]).iter().any(|k| value.starts_with(k.text.as_bytes()))
    {
        return Inspection::Nothing;
    }
    Inspection::Found(Span { continues, ..Span::new(at, end, rule.clone(), Rank::Shape) })
}

/// `=3F94BC8A` at the end of a token.
fn is_checksum(value: &[u8]) -> bool {
    value.len() == 8 && value.iter().all(|b| b.is_ascii_digit() || matches!(b, b'A'..=b'F'))
}

/// Whether this looks random rather than written: letters of both cases in the middle of a word, or digits among them.
pub(crate) fn looks_random(value: &[u8]) -> bool {
    // Most values are words in one case.
    let one_case = |base: u8| value.iter().fold(true, |all, b| all & (b.wrapping_sub(base) < 26));
    if one_case(b'a') || one_case(b'A') {
        return false;
    }
    let (mut changes, mut pairs, mut last) = (0, 0, 0);
    for b in value {
        let class = byte_class(*b);
        let both = class != 0 && last != 0;
        pairs += usize::from(both);
        changes += usize::from(both && class != last);
        if changes == 2 {
            return true;
        }
        last = class;
    }
    changes == 1 && pairs <= 6 && value.iter().any(u8::is_ascii_digit)
}
