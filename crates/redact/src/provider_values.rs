//! Finds random values of names that contain the name of a provider: `asana = "…"`, `"mailchimp": "…"`.
//!
//! Such values have no prefix, and their names do not say that they are secret.

use crate::{
    context::is_name_byte,
    generated::{Composition, looks_generated},
    guard::{self, is_uuid},
    name::{NameStrength, name_strength, names_something_else},
    rules::{PROVIDERS, Provider},
    span::{Inspection, Rank, Span},
    visible_text::{TextView, is_break},
};
use std::{ops::Range, sync::OnceLock};

pub(crate) const RULE: &str = "named-token";

const VALUE_BYTES: std::ops::RangeInclusive<usize> = 16..=256;
/// The shortest random value of a name with an ambiguous word.
const MIN_STRICT_BYTES: usize = 20;
const MAX_NAME_BYTES: usize = 48;
/// The most bytes between a name and its value.
const MAX_SEPARATOR_BYTES: usize = 24;

/// Endings of names whose values are no secrets.
const OTHER_ENDINGS: &[&str] = &[
    "id",
    "ids",
    "org",
    "project",
    "zone",
    "account",
    "url",
    "uri",
    "host",
    "region",
    "name",
    "version",
    "hash",
    "sha",
    "sha1",
    "sha256",
    "md5",
    "digest",
    "commit",
    "ref",
    "branch",
    "tag",
    "path",
    "file",
    "dir",
    "class",
    "type",
    "revision",
    "rev",
    "release",
    "checksum",
    "integrity",
    "fingerprint",
    "etag",
    "cursor",
    "trace",
    "span",
    "image",
    "build",
    "uuid",
    "guid",
    "public",
    "pub",
    "slug",
    "index",
    "nonce",
    "state",
    "hashes",
];

/// Words that names of configurations put directly behind a provider's.
const JOINED_ENDINGS: &[&str] =
    &["token", "apitoken", "authtoken", "accesstoken", "httptoken", "apikey", "secret", "key"];

/// Last words of names of secrets.
const TELLING_ENDINGS: &[&str] =
    &["token", "key", "secret", "pat", "apikey", "apitoken", "authtoken", "accesstoken", "private", "auth"];

fn is_value_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'_' | b'-' | b'.' | b'~')
}

/// Inspects the value around a word.
pub(crate) fn inspect_word(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    if end - start > *VALUE_BYTES.end() {
        return Inspection::Nothing;
    }
    let lowest = start.saturating_sub(*VALUE_BYTES.end());
    let is_inside = |at: &usize| is_value_byte(view.bytes[at - 1]) && !view.is_moved_at(*at);
    let start = start - (lowest + 1..=start).rev().take_while(is_inside).count();
    let Some(name) = name_before(view, start) else { return Inspection::Nothing };
    let until = if view.is_moved_at(end) { end } else { view.until_moved(end).min(end + *VALUE_BYTES.end()) };
    let more = view.bytes[end..until].iter().take_while(|b| is_value_byte(**b) || **b == b'=').count();
    let mut end = end + more;
    // `key="NAME" value="…"`, `- name: NAME` and `value: …` below it, `<key>NAME</key><string>…`.
    let (names, is_outer) = if ["value", "string"].iter().any(|word| name.eq_ignore_ascii_case(word.as_bytes())) {
        let Some(behind) = name_behind_value(view, end) else { return Inspection::Open(start) };
        ([word_before_value(view, start), behind], true)
    } else if name == b"default" {
        ([name_of_variable(view, start), None], true)
    } else {
        ([Some(name.strip_prefix(b"-D").unwrap_or(name)), None], false)
    };
    for name in names.into_iter().flatten() {
        let provider = find_provider(name);
        let tells = is_outer
            && name_strength(name, true) >= NameStrength::Strong
            && !names_something_else(name, NameStrength::Strong);
        if provider.is_none() && !tells {
            continue;
        }
        if end == view.len() && !view.end && !view.is_moved_at(end) {
            return Inspection::Open(start);
        }
        // A dot ends a sentence.
        while view.bytes[end - 1] == b'.' {
            end -= 1;
        }
        let value = &view.bytes[start..end];
        let fits = provider.is_some_and(|p| is_secret(value, p) || is_telling(name) && is_secret_of_telling(value))
            || tells && guard::is_certain_value(value);
        if view.byte(end) != Some(b'(') && fits {
            let continues = end < view.len() && is_break(view.bytes[end]) && view.is_wrapped_line_end(end);
            return Inspection::Found(Span { continues, ..Span::new(start, end, RULE, Rank::Context) });
        }
    }
    Inspection::Nothing
}

/// Whether the name before a word that has begun tells that it may become a secret.
pub(crate) fn may_be_secret(view: TextView<'_>, start: usize) -> bool {
    name_before(view, start).is_some_and(|name| {
        [&b"value"[..], b"string", b"default"].iter().any(|word| name.eq_ignore_ascii_case(word))
            || find_provider(name).is_some()
    })
}

/// How far behind a value its name is searched: `value="V" id="NAME"`, `{"value": "V", "name": "NAME"}`.
const MAX_BEHIND_BYTES: usize = 96;

/// The name behind a value, in the same tag or object. The outer `None`: more bytes are needed.
fn name_behind_value(view: TextView<'_>, end: usize) -> Option<Option<&[u8]>> {
    const KEYS: &[&[u8]] = &[b" name=\"", b" id=\"", b"\"name\":", b"\"Name\":", b"\"key\":", b"\"Key\":"];
    let limit = end + MAX_BEHIND_BYTES;
    let until = if view.is_moved_at(end) { end } else { view.until_moved(end).min(limit) };
    let text = &view.bytes[end..until];
    let stop = text.iter().position(|b| matches!(b, b'>' | b'}' | b'\n' | b'\r'));
    if stop.is_none() && until == view.len() && until < limit && !view.end {
        return None;
    }
    let text = &text[..stop.unwrap_or(text.len())];
    let behind = KEYS.iter().find_map(|key| memchr::memmem::find(text, key).map(|at| &text[at + key.len()..]));
    let name = behind.map(|text| {
        let from = text.iter().take_while(|b| matches!(b, b' ' | b'"')).count();
        let length = text[from..].iter().take_while(|b| is_name_byte(**b)).count();
        &text[from..from + length]
    });
    Some(name.filter(|name| name.len() >= 3))
}

/// The name of a variable of Terraform whose default value this is: `variable "NAME" {`.
fn name_of_variable(view: TextView<'_>, value: usize) -> Option<&[u8]> {
    let text = &view.bytes[value.saturating_sub(MAX_VARIABLE_BYTES)..value];
    let at = memchr::memmem::rfind(text, b"variable \"")? + b"variable \"".len();
    let length = text[at..].iter().take_while(|b| is_name_byte(**b)).count();
    // No other block begins between them.
    let is_one = text[at + length..].starts_with(b"\" {") && !text[at + length..].contains(&b'}');
    is_one.then(|| &text[at..at + length])
}

/// How far before its default value the name of a variable is searched.
const MAX_VARIABLE_BYTES: usize = 240;

/// The name before a value: a separator, and perhaps quotes and blanks, divide them.
pub(crate) fn name_before(view: TextView<'_>, value: usize) -> Option<&[u8]> {
    let lowest = value.saturating_sub(MAX_SEPARATOR_BYTES);
    let divides = |b: &u8| {
        matches!(
            b,
            b' ' | b'\t'
                | b'"'
                | b'\''
                | b'`'
                | b'\\'
                | b'='
                | b':'
                | b'>'
                | b']'
                | b','
                | b'('
                | b'!'
                | b'?'
                | b'{'
                | b'|'
        )
    };
    let length = view.bytes[lowest..value].iter().rev().take_while(|b| divides(b)).count();
    let end = value - length;
    let separator = &view.bytes[end..value];
    let lowest = end.saturating_sub(MAX_NAME_BYTES);
    let start = end - view.bytes[lowest..end].iter().rev().take_while(|b| is_name_byte(**b)).count();
    let name = &view.bytes[start..end];
    let is_moved = || (start + 1..=value).any(|at| view.is_moved_at(at));
    let assigns = separator.iter().any(|b| matches!(b, b'=' | b':' | b'>'));
    // `--asana VALUE`, `set -x ASANA VALUE`, `("ASANA", "VALUE")`.
    let is_argument = !separator.is_empty()
        && (name.starts_with(b"-")
            || name.len() >= 4 && !name.iter().any(u8::is_ascii_lowercase)
            || separator.contains(&b',') && separator.iter().filter(|b| matches!(b, b'"' | b'\'')).count() >= 2);
    (name.len() >= 3 && (assigns || is_argument) && !is_moved()).then_some(name)
}

/// The name that precedes the word `value`, and perhaps the end of a tag `key`.
fn word_before_value(view: TextView<'_>, value: usize) -> Option<&[u8]> {
    let text = &view.bytes[value.saturating_sub(MAX_NAME_BYTES + 3 * MAX_SEPARATOR_BYTES)..value];
    let mut words = text.rsplit(|b| !is_name_byte(*b)).filter(|word| word.len() >= 3);
    words.next().filter(|word| word.eq_ignore_ascii_case(b"value") || word.eq_ignore_ascii_case(b"string"))?;
    // Words for the kind of a value are not its name.
    let is_kind = |word: &[u8]| {
        ["key", "type", "string", "securestring", "stringlist"]
            .iter()
            .any(|kind| word.eq_ignore_ascii_case(kind.as_bytes()))
    };
    words.find(|word| !is_kind(word))
}

/// The provider that a name contains: one of its words, or two or three of them together.
fn find_provider(name: &[u8]) -> Option<&'static Provider> {
    let words = NameWords::of(name);
    if words.last().is_some_and(|word| OTHER_ENDINGS.iter().any(|ending| ending.as_bytes() == word)) {
        return None;
    }
    let count = words.count();
    let together = (1..=count.min(3)).rev().find_map(|n| (0..=count - n).find_map(|at| listed(words.join(at..at + n))));
    // `snyktoken`
    let joined = || {
        let word = words.last().filter(|_| count == 1)?;
        JOINED_ENDINGS.iter().find_map(|ending| listed(word.strip_suffix(ending.as_bytes())?))
    };
    together.or_else(joined)
}

/// The provider with this word.
fn listed(word: &[u8]) -> Option<&'static Provider> {
    static STARTS: OnceLock<[usize; 257]> = OnceLock::new();
    // Where the words with each first byte begin.
    let starts = STARTS.get_or_init(|| {
        std::array::from_fn(|first| PROVIDERS.partition_point(|p| usize::from(p.word.as_bytes()[0]) < first))
    });
    let first = usize::from(*word.first()?);
    let these = &PROVIDERS[starts[first]..starts[first + 1]];
    these.binary_search_by(|p| p.word.as_bytes().cmp(word)).ok().map(|n| &these[n])
}

/// Whether a word is the name of a provider.
pub(crate) fn is_provider(word: &[u8]) -> bool {
    find_provider(word).is_some()
}

/// Whether a name contains the name of a provider: before `key` only one that means nothing else.
pub(crate) fn names_provider(name: &[u8]) -> bool {
    let is_token = name.len() >= 5 && name[name.len() - 5..].eq_ignore_ascii_case(b"token");
    find_provider(name).is_some_and(|provider| is_token || !provider.strict)
}

/// The words of a name, in lower case and one behind the other: `MAIL_CHIMP`, `mailChimp` and `mail-chimp` have two.
pub(crate) struct NameWords {
    letters: Vec<u8>,
    /// Where each word ends.
    ends: Vec<usize>,
}

impl NameWords {
    pub(crate) fn of(name: &[u8]) -> Self {
        let mut words = Self { letters: Vec::with_capacity(name.len()), ends: Vec::with_capacity(8) };
        let mut last = b'_';
        for b in name {
            let begins = b.is_ascii_uppercase() && (last.is_ascii_lowercase() || last.is_ascii_digit());
            if begins || !b.is_ascii_alphanumeric() {
                words.end_word();
            }
            if b.is_ascii_alphanumeric() {
                words.letters.push(b.to_ascii_lowercase());
            }
            last = *b;
        }
        words.end_word();
        words
    }

    fn end_word(&mut self) {
        if self.letters.len() > self.ends.last().copied().unwrap_or(0) {
            self.ends.push(self.letters.len());
        }
    }

    fn count(&self) -> usize {
        self.ends.len()
    }

    /// Some words without what divides them.
    fn join(&self, words: Range<usize>) -> &[u8] {
        let start = words.start.checked_sub(1).map_or(0, |n| self.ends[n]);
        &self.letters[start..self.ends[words.end - 1]]
    }

    pub(crate) fn last(&self) -> Option<&[u8]> {
        let count = self.count();
        (count > 0).then(|| self.join(count - 1..count))
    }
}

/// `1.0.6~git20210604-d5e0c0615ace-1`
fn is_version(value: &[u8]) -> bool {
    let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    (1..=4).contains(&digits)
        && value.get(digits) == Some(&b'.')
        && value.get(digits + 1).is_some_and(u8::is_ascii_digit)
}

/// Whether the last word of a name of several words says that its value is a secret: `CYPRESS_RECORD_KEY`.
fn is_telling(name: &[u8]) -> bool {
    let words = NameWords::of(name);
    words.count() > 1 && words.last().is_some_and(|word| TELLING_ENDINGS.iter().any(|w| w.as_bytes() == word))
}

/// Whether the value of a telling name that contains a provider's may be a secret.
fn is_secret_of_telling(value: &[u8]) -> bool {
    let counted = Composition::of(value);
    let letters = counted.lower + counted.upper;
    match value.len() {
        _ if is_uuid(value) => true,
        24..=128 if counted.is_hex => counted.digits >= 3 && letters >= 3,
        16..=128 => !value.starts_with(b"/") && !is_version(value) && looks_generated(value),
        _ => false,
    }
}

fn is_secret(value: &[u8], provider: &Provider) -> bool {
    let counted = Composition::of(value);
    if counted.is_hex {
        return provider.hex.contains(&value.len()) && counted.digits > 0;
    }
    if is_uuid(value) {
        return provider.uuid;
    }
    VALUE_BYTES.contains(&value.len())
        && (provider.random || provider.strict && value.len() >= MIN_STRICT_BYTES)
        && !value.starts_with(b"0x")
        && !value.starts_with(b"/")
        && !value.starts_with(b"http")
        && !is_port_and_path(value)
        && !is_version(value)
        && !is_name_of_type(value)
        && looks_generated(value)
}

/// `443/workflows/0a1b2c`
fn is_port_and_path(value: &[u8]) -> bool {
    let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    (2..=5).contains(&digits) && value.get(digits) == Some(&b'/')
}

/// `Base_Ai_Cf_Mistral_Small_3_1_24B_Instruct`
fn is_name_of_type(value: &[u8]) -> bool {
    let is_word = |part: &[u8]| !part.is_empty() && (part.len() <= 4 || part[1..].iter().all(u8::is_ascii_lowercase));
    value.split(|b| *b == b'_').count() >= 4 && value.split(|b| *b == b'_').all(is_word)
}
