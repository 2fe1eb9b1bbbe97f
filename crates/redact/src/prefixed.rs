//! Finds tokens of providers that no rule lists: a prefix, a separator, and a long body that was generated at random.
//!
//! Ids look the same, so most of this file recognises what is *no* secret: words, hashes, ids of APIs.

use crate::{
    generated::{Composition, capitalised_letters, spoken_letters},
    guard::is_uuid,
    provider_values,
    rules::has_entropy,
    runs::is_plain,
    span::{Inspection, Rank, Span},
    visible_text::{TextView, is_break},
};
use std::{collections::HashSet, sync::OnceLock};

/// The name of the rule.
pub(crate) const RULE: &str = "prefixed-token";

const BODY_BYTES: std::ops::RangeInclusive<usize> = 20..=200;
/// The longest part of a prefix: `acme`, `live`.
const MAX_PART_BYTES: usize = 12;
const MAX_PREFIX_PARTS: usize = 3;
/// The shortest body behind a prefix of two letters.
const MIN_SHORT_PREFIX_BODY_BYTES: usize = 32;
/// A shorter or longer word is no token.
pub(crate) const MIN_WORD_BYTES: usize = *BODY_BYTES.start() + 3;
const MAX_WORD_BYTES: usize = *BODY_BYTES.end() + MAX_PREFIX_PARTS * (MAX_PART_BYTES + 1);
/// Dashes and underscores divide a body into at most five pieces.
const MAX_BODY_PIECES: usize = 5;

/// The first or last part of a prefix that makes an id of what follows.
const ID_WORDS: &str = "\
    msg chatcmpl call toolu tool user req resp run thread asst file evt cus ch pi in sub price prod acct org proj \
    session ses conv batch step vs cmpl item fc rs ws job task node pod deploy build commit rev sha sha1 sha256 sha384 \
    sha512 md5 blake3 digest etag chunk bundle main index app lib hash obj tree blob ref tag uuid guid id trace span rule \
    test part publickey pk pub cache layer image snapshot release dpl prj team integrity version ver nonce csp \
    si seti pm card ba txn re po tr ii qt cn dp du fee link mandate src grp group channel \
    srvtoolu container response message completion embedding model ft ftjob vsfs srv server host ip vm vol \
    inst instance eni subnet vpc sg ami snap rtb igw nat acl arn stack cluster ns zone region bucket keyid \
    page block list row col table db coll collection event issue pr comment review check suite workflow action \
    usr wrkspc slch capp compl tooluse gen usage agent skill memory artifact attempt env vendor \
    assets asset static css js font img svg png style script module component";

/// Endings of names whose values are ids or places in a list.
const OTHER_NAMES: &[&str] = &[
    "id",
    "ids",
    "cursor",
    "page",
    "nonce",
    "etag",
    "hash",
    "digest",
    "integrity",
    "marker",
    "sha1",
    "sha256",
    "sha384",
    "sha512",
    "md5",
    "blake3",
    "x5t",
];

/// A prefix with one of these precedes a public value.
const PUBLIC_WORDS: &str = "pk phc pub public publickey publishable client mobile id ids flwpubk rzp cli uuid project";

/// How the packed numbers of ids of nodes begin.
const PACKED_NUMBERS: &[&[u8]] = &[b"kw", b"kg", b"lA", b"lQ", b"lg", b"lw", b"MD"];

/// A prefix with one of these may precede hexadecimal text and UUIDs.
const SECRET_WORDS: &str = "sk rk ak pat tok token key secret api apikey live auth bot pw pass password";

/// Inspects a word: letters, digits, `_` and `-`.
pub(crate) fn inspect_word(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let end = end.min(view.until_moved(start));
    let word = &view.bytes[start..end];
    if !(MIN_WORD_BYTES..=MAX_WORD_BYTES).contains(&word.len()) {
        return Inspection::Nothing;
    }
    let before = start.checked_sub(1).and_then(|i| view.byte(i)).filter(|_| !view.is_moved_at(start));
    // A line that a diff adds.
    let before = before.filter(|b| *b != b'+' || view.line_start(start - 1, 1) < start - 1);
    let dotted = if before == Some(b'.') { dotted_prefix_bytes(view, start) } else { None };
    // A part of a path, a host or a longer expression.
    if dotted.is_none()
        && before.is_some_and(|b| matches!(b, b'.' | b'/' | b'+' | b'%' | b'\\' | b'#' | b'@' | b'$' | b'~'))
    {
        return Inspection::Nothing;
    }
    // Later bytes make no token of a word that does not begin like one: a row of digits is not held.
    let begins_with_part = word.iter().take(MAX_PART_BYTES + 1).any(|b| matches!(b, b'_' | b'-'));
    if dotted.is_none() && !begins_with_part {
        return Inspection::Nothing;
    }
    if end == view.len() && !view.end && !view.is_moved_at(end) {
        return Inspection::Open(start);
    }
    let follows = |n: usize| view.byte(end + n).filter(|_| !view.is_moved_at(end + n));
    match follows(0) {
        Some(b'/' | b'=' | b'+' | b'@' | b'(' | b'[') => return Inspection::Nothing,
        // A file's name, a host, a member.
        Some(b'.') => match follows(1) {
            None if !view.end && !view.is_moved_at(end + 1) => return Inspection::Open(start),
            Some(b) if b.is_ascii_alphanumeric() => return Inspection::Nothing,
            _ => {}
        },
        _ => {}
    }
    // `"id": "usr_…"`, `cursor: …`
    let name = provider_values::name_before(view, start).unwrap_or_default();
    let words = provider_values::NameWords::of(name);
    if words.last().is_some_and(|word| OTHER_NAMES.iter().any(|other| other.as_bytes() == word)) {
        return Inspection::Nothing;
    }
    if let Some(length) = dotted {
        let fits = is_secret_body(&view.bytes[start - length..start], word);
        let span = Span { public: start - length, ..Span::new(start, end, RULE, Rank::Context) };
        return if fits { Inspection::Found(span) } else { Inspection::Nothing };
    }
    let Some(prefix) = prefix_bytes(word) else { return Inspection::Nothing };
    let (prefix, body) = word.split_at(prefix);
    // A terminal wrapped the line inside the body.
    let is_wrapped = follows(0).is_some_and(is_break) && view.is_wrapped_line_end(end);
    if is_wrapped {
        let from = end + view.bytes[end..].iter().take(2).take_while(|b| is_break(**b)).count();
        let to = from + view.bytes[from..].iter().take(MAX_WORD_BYTES).take_while(|b| is_plain(**b)).count();
        if to == view.len() && !view.end {
            return Inspection::Open(start);
        }
        let joined = [body, &view.bytes[from..to]].concat();
        if to >= from + 3 && BODY_BYTES.contains(&joined.len()) && is_secret_body(prefix, &joined) {
            let span = Span::new(start + prefix.len(), to, RULE, Rank::Context);
            return Inspection::Found(Span { public: start, ..span });
        }
    }
    // A digest in base64url, which has a sign by chance: `l9_WDGYJD6…`.
    let is_digest = matches!(word.len(), 43 | 86) && prefix.len() <= 4 && body.iter().any(|b| matches!(b, b'_' | b'-'));
    if BODY_BYTES.contains(&body.len()) && !is_digest && is_secret_body(prefix, body) {
        let at = start + prefix.len();
        let span = Span::new(at, end, RULE, Rank::Context);
        return Inspection::Found(Span { public: start, continues: is_wrapped, ..span });
    }
    Inspection::Nothing
}

/// Whether a word that has begun has a prefix that says that a secret follows.
pub(crate) fn may_be_token(word: &[u8]) -> bool {
    prefix_bytes(word).is_some_and(|length| word[..length].split(|b| matches!(b, b'_' | b'-')).any(names_secret))
}

/// The length of the prefix with its separator: up to three short parts that begin with a letter and read like names.
fn prefix_bytes(word: &[u8]) -> Option<usize> {
    let mut at = 0;
    for n in 0..MAX_PREFIX_PARTS {
        let part = word[at..].iter().take_while(|b| b.is_ascii_alphanumeric()).count();
        let separated = matches!(word.get(at + part), Some(b'_' | b'-'));
        let part = &word[at..at + part];
        let is_name = match n {
            0 => part.len() >= 2 && part[0].is_ascii_alphabetic() && is_one_case(part),
            _ => part.len() >= 2,
        };
        if !separated || part.len() > MAX_PART_BYTES || !is_name || reads_random(part) {
            break;
        }
        at += part.len() + 1;
    }
    // Two letters also begin random text with dashes in it.
    let in_one_piece =
        || word[at..].iter().all(u8::is_ascii_alphanumeric) && word.len() - at >= MIN_SHORT_PREFIX_BODY_BYTES;
    (at > 3 || at == 3 && (in_one_piece() || names_secret(&word[..2]))).then_some(at)
}

/// The length of a prefix with dots before a word: short names of which the last one says that a secret follows, `acme.sk.`.
fn dotted_prefix_bytes(view: TextView<'_>, start: usize) -> Option<usize> {
    let lowest = start.saturating_sub(MAX_PREFIX_PARTS * (MAX_PART_BYTES + 1));
    let is_prefix = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'.';
    let length = view.bytes[lowest..start].iter().rev().take_while(|b| is_prefix(b)).count();
    let prefix = &view.bytes[start - length..start];
    let mut parts = prefix.strip_suffix(b".")?.split(|b| *b == b'.');
    let ends = view.byte((start - length).checked_sub(1)?).is_none_or(|b| !b.is_ascii_alphanumeric() && b != b'_');
    let is_short = |part: &[u8]| (2..=MAX_PART_BYTES).contains(&part.len());
    let fits = ends
        && parts.clone().count() == 2
        && parts.clone().all(is_short)
        && parts.next_back().is_some_and(names_secret);
    fits.then_some(length)
}

fn is_one_case(part: &[u8]) -> bool {
    !part.iter().any(u8::is_ascii_uppercase) || !part.iter().any(u8::is_ascii_lowercase)
}

/// Whether a short part belongs to the body rather than to the prefix.
fn reads_random(part: &[u8]) -> bool {
    let counted = Composition::of(part);
    counted.changes >= 2 || counted.digits > 2
}

/// Whether a part of a prefix is one of these words.
fn is_listed(words: &'static str, built: &'static OnceLock<HashSet<&'static str>>, part: &[u8]) -> bool {
    let words = built.get_or_init(|| words.split_ascii_whitespace().collect());
    std::str::from_utf8(part).is_ok_and(|part| words.contains(&*part.to_ascii_lowercase()))
}

fn names_id(part: &[u8]) -> bool {
    static BUILT: OnceLock<HashSet<&str>> = OnceLock::new();
    is_listed(ID_WORDS, &BUILT, part)
}

fn names_secret(part: &[u8]) -> bool {
    static BUILT: OnceLock<HashSet<&str>> = OnceLock::new();
    is_listed(SECRET_WORDS, &BUILT, part)
}

fn names_public(part: &[u8]) -> bool {
    static BUILT: OnceLock<HashSet<&str>> = OnceLock::new();
    is_listed(PUBLIC_WORDS, &BUILT, part)
}

fn is_secret_body(prefix: &[u8], body: &[u8]) -> bool {
    let counted = Composition::of(body);
    let parts: Vec<&[u8]> = prefix.split(|b| matches!(b, b'_' | b'-' | b'.')).filter(|p| !p.is_empty()).collect();
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return false };
    if counted.is_hex || is_uuid(body) {
        let is_key = names_secret(last) && !names_id(first);
        let is_long = is_uuid(body) || body.len() >= 32;
        return is_key && is_long && counted.digits >= 4 && !parts.iter().any(|p| names_public(p));
    }
    let is_telling = parts.iter().any(|p| names_secret(p));
    if !is_random_body(body, &counted, is_telling) || parts.iter().any(|p| names_public(p)) {
        return false;
    }
    if is_telling {
        return true;
    }
    // Ids that contain a version and a time: `rlg_01…`.
    if body.len() == 24 && body.starts_with(b"01") {
        return false;
    }
    // Ids of nodes: a few capitals before packed numbers, `PR_kwDO…`.
    let is_packed = PACKED_NUMBERS.iter().any(|start| body.starts_with(start));
    let is_constant = body.iter().any(|b| matches!(b, b'_' | b'-'));
    let is_node =
        (is_packed || is_constant) && parts.iter().all(|p| p.len() <= 5 && p.iter().all(u8::is_ascii_uppercase));
    // `acme-prod-…` names an environment, `prod_…` a product.
    let ends_with_id = names_id(last) && !(parts.len() > 1 && last.eq_ignore_ascii_case(b"prod"));
    !is_node && !names_id(first) && !ends_with_id
}

/// Whether a body was generated at random. `is_telling`: its prefix says that a secret follows.
fn is_random_body(body: &[u8], counted: &Composition, is_telling: bool) -> bool {
    let length = body.len();
    let pieces = || body.split(|b| matches!(b, b'_' | b'-'));
    let longest = pieces().map(<[u8]>::len).max().unwrap_or(0);
    let both_cases = counted.lower > 0 && counted.upper > 0;
    let has_hash = pieces().any(|piece| piece.len() >= 16 && piece.iter().all(u8::is_ascii_hexdigit));
    let least_digits = match length {
        24.. if is_telling && both_cases => 0,
        32.. => 1,
        _ => 2,
    };
    let spoken = spoken_letters(body);
    let is_written = if is_telling {
        spoken > (length / 3).max(8)
    } else {
        // Many changes and digits make words unlikely.
        let is_mixed = counted.digits >= 4 && counted.changes * 3 >= length;
        let names = both_cases && capitalised_letters(body) * 5 >= (counted.lower + counted.upper) * 4;
        names && !is_mixed || spoken > (length / 5).max(6)
    };
    !has_hash
        && !is_written
        && counted.digits >= least_digits
        && counted.digits * 5 < length * 3
        && counted.changes >= (length / 5).max(4)
        && (both_cases || counted.changes * 4 >= length)
        && (longest >= 16 && pieces().count() <= MAX_BODY_PIECES
            || longest >= if is_telling { 8 } else { 10 } && length >= 36 && counted.changes * 3 >= length)
        && has_entropy(body, if length >= 24 { 3.9 } else { 3.7 })
}
