//! Finds secrets by their names: `name=value`, `"name": "value"`, `--name value`.
//!
//! The name and the separator stay; the value is redacted. Most of this file recognises values that are *no* secrets:
//! types, variables, calls, words, placeholders.

use crate::{
    guard::{self, NameStrength, ValueSetting},
    span::{Inspection, Rank, Span},
    visible_text::{TextView, is_break},
};

/// Words that a telling name contains, in their usual spellings; for most words the end suffices.
pub(crate) const NAME_WORDS: &[&str] = &[
    "key",
    "KEY",
    "Key",
    "pwd",
    "PWD",
    "Pwd",
    "oken",
    "OKEN",
    "ecret",
    "ECRET",
    "assw",
    "ASSW",
    "assW",
    "_pass",
    "_PASS",
    "quirepass",
    "assphrase",
    "ASSPHRASE",
    "redential",
    "REDENTIAL",
];

/// How far a name may extend before and behind the word in it.
const MAX_NAME_REACH_BYTES: usize = 48;
/// The most blanks between a name, its separator and its value.
pub(crate) const MAX_BLANKS: usize = 24;
pub(crate) const MAX_VALUE_BYTES: usize = 4096;
/// The longest value of a name that is not strong.
const MAX_WEAK_VALUE_BYTES: usize = 256;
/// How far back an unfinished name may begin, which is inspected again when more input comes.
pub(crate) const REINSPECT_BYTES: usize = 2 * MAX_NAME_REACH_BYTES + 2 * MAX_BLANKS + 64;

pub(crate) fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
}

/// Reads forward in the text. A method returns `None` when more bytes are needed.
pub(crate) struct ValueReader<'a> {
    pub(crate) view: TextView<'a>,
    pub(crate) at: usize,
    /// The start of the value, once everything before it was read.
    pub(crate) value: Option<usize>,
}

/// A line break, or the end of the stream.
pub(crate) const BREAK: u8 = b'\n';

impl ValueReader<'_> {
    /// The next byte, which is not consumed.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    /// The result when more bytes are needed: a value that has begun is held.
    pub(crate) fn unfinished(&self) -> Inspection {
        match self.value {
            Some(start) if start < self.view.len() => Inspection::Open(start),
            _ => Inspection::Nothing,
        }
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> Option<u8> {
        match self.view.byte(self.at + ahead) {
            // A cursor movement begins another text.
            _ if (0..=ahead).any(|n| self.view.is_moved_at(self.at + n)) => Some(BREAK),
            Some(b) if is_break(b) => Some(BREAK),
            None if self.view.end => Some(BREAK),
            b => b,
        }
    }

    /// Skips up to `max` such bytes, and returns how many.
    pub(crate) fn skip(&mut self, max: usize, wanted: impl Fn(u8) -> bool) -> Option<usize> {
        let from = self.at;
        while self.at - from < max && wanted(self.peek()?) {
            self.at += 1;
        }
        Some(self.at - from)
    }

    pub(crate) fn take_byte(&mut self, wanted: u8) -> Option<bool> {
        let found = self.peek()? == wanted;
        self.at += usize::from(found);
        Some(found)
    }

    /// Reads an opening quote, plain or escaped, if there is one.
    pub(crate) fn read_quote(&mut self) -> Option<Quote> {
        let slashes = self.skip(3, |b| b == b'\\')?;
        match self.peek()? {
            q @ (b'"' | b'\'' | b'`') => {
                self.at += 1;
                Some(Quote::Of(q, slashes))
            }
            _ => {
                self.at -= slashes;
                Some(Quote::None)
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quote {
    None,
    Of(u8, usize),
}

/// Inspects the name around the word that was found at `word`.
pub(crate) fn inspect_name(view: TextView<'_>, word: usize, length: usize) -> Inspection {
    let mut r = ValueReader { view, at: word + length, value: None };
    read_assignment(&mut r, word).unwrap_or_else(|| r.unfinished())
}

/// What separates a name from its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Separator {
    /// `=` and similar; true: directly behind the name, as in a shell.
    Equals(bool),
    /// `:`; true: with a blank behind it, as in YAML and headers.
    Colon(bool),
    /// `<name>value</name>`
    Tag,
    /// A blank: the argument of an option, a command or a line of a configuration.
    Blank,
    /// A comma, a bar, or a key `value`: `"name", "value"`, `name: X, value: Y`.
    Apart,
}

fn read_assignment(r: &mut ValueReader<'_>, word: usize) -> Option<Inspection> {
    let view = r.view;
    let Some(name_info) = read_name(r, word)? else { return Some(Inspection::Nothing) };
    let SecretName { begin, name, strength, opened, .. } = name_info;
    let Some(separator) = read_separator(r, &name_info)? else { return Some(Inspection::Nothing) };
    r.skip(MAX_BLANKS, |b| matches!(b, b' ' | b'\t'))?;
    r.value = Some(r.at);
    let Some(quote) = read_value_start(r, &name_info, separator)? else { return Some(Inspection::Nothing) };
    let start = r.at;
    r.value = Some(start);
    if r.peek()? == BREAK {
        return Some(Inspection::Nothing);
    }
    let shell = separator == Separator::Equals(true) && !opened;
    let alone = shell && is_assignment(view, begin);
    let end = find_value_end(
        r,
        quote,
        alone,
        separator == Separator::Tag,
        if strength < NameStrength::Strong { MAX_WEAK_VALUE_BYTES } else { MAX_VALUE_BYTES },
    )?;
    if end == start {
        return Some(Inspection::Nothing);
    }
    let follows = r.peek().unwrap_or(BREAK);
    let setting = value_setting(view, &name_info, separator, quote != Quote::None, follows, (shell, alone));
    let value = &*view.without_breaks(start..end);
    if !guard::is_secret(strength, name, value, &setting) || guard::names_something_else(name, strength) {
        return Some(Inspection::Nothing);
    }
    // The rest of a longer value is removed without another placeholder.
    let in_quotes: fn(u8) -> bool = |b| !matches!(b, b'"' | b'\'' | b'`');
    let belongs = if quote == Quote::None { crate::span::is_token_byte as fn(u8) -> bool } else { in_quotes };
    let swallow = (end - start >= MAX_VALUE_BYTES).then_some(belongs);
    Some(Inspection::Found(Span { swallow, ..Span::new(start, end, rule_for(strength), Rank::Context) }))
}

/// Reads the name around the word that was found. The inner `None`: no value follows, or it does not name a secret.
fn read_name<'v>(r: &mut ValueReader<'v>, word: usize) -> Option<Option<SecretName<'v>>> {
    let view = r.view;
    let lowest = word.saturating_sub(MAX_NAME_REACH_BYTES);
    let mut begin = word;
    while begin > lowest && is_name_byte(view.bytes[begin - 1]) {
        begin -= 1;
    }
    if r.skip(MAX_NAME_REACH_BYTES, is_name_byte)? == MAX_NAME_REACH_BYTES {
        return Some(None);
    }
    let mut name = &view.bytes[begin..r.at];
    // A sentence ends with a dot, a name does not.
    while let [rest @ .., b'.' | b'-'] = name {
        name = rest;
    }
    let before = |n: usize| begin.checked_sub(n).and_then(|i| view.byte(i));
    let opened = matches!(before(1), Some(b'"' | b'\'' | b'`'));
    let (mut closed, mut subscript) = (false, false);
    for _ in 0..3 {
        if r.take_byte(b']')? {
            subscript = true;
        } else if r.read_quote()? != Quote::None {
            closed = true;
        } else {
            break;
        }
    }
    let blanks = r.skip(MAX_BLANKS, |b| matches!(b, b' ' | b'\t'))?;
    // Most hits are plain words: no separator follows them.
    let flag = name.starts_with(b"-");
    let separated = match r.peek()? {
        b'=' | b':' | b'?' | b'+' | b'%' => true,
        b'>' => before(1) == Some(b'<'),
        b',' => opened && closed,
        b'|' | b'\'' => blanks > 0,
        // `name: NAME`, with the value on the next line.
        BREAK => view.bytes[begin.saturating_sub(8)..begin].windows(4).any(|w| w.eq_ignore_ascii_case(b"name")),
        _ => closed && blanks > 0,
    };
    if !(separated || flag || blanks > 0 && is_command(view, begin, name)) {
        return Some(None);
    }
    let follows_word = follows_telling_word(view, begin);
    let strength = match guard::name_strength(name, (closed || opened) && !subscript) {
        NameStrength::Weak | NameStrength::Fair if follows_word => NameStrength::Strong,
        strength => strength,
    };
    if strength == NameStrength::None {
        return Some(None);
    }
    Some(Some(SecretName { begin, name, strength, opened, closed, blanks, follows_word }))
}

/// Reads over a type, a prefix, a quote and a scheme before the value. The inner `None`: there is no value.
fn read_value_start(
    r: &mut ValueReader<'_>,
    name_info: &SecretName<'_>,
    separator: Separator,
) -> Option<Option<Quote>> {
    // `let key: &str = "…"`: a type comes first.
    let typed = separator == Separator::Colon(true) && !name_info.closed && skip_type(r)?;
    // `b"…"`, `rb'…'`, `@"…"`.
    let prefix = |b: u8| matches!(b, b'b' | b'r' | b'f' | b'u' | b'L' | b'@');
    let letters = match (prefix(r.peek()?), r.peek_at(1)?) {
        (true, b'"' | b'\'') => 1,
        (true, b) if prefix(b) && matches!(r.peek_at(2)?, b'"' | b'\'') => 2,
        _ => 0,
    };
    r.at += letters;
    let mut quote = r.read_quote()?;
    skip_scheme(r)?;
    if quote == Quote::None {
        quote = r.read_quote()?;
    }
    Some(Some(quote).filter(|quote| !typed || *quote != Quote::None))
}

/// How a value is written.
fn value_setting(
    view: TextView<'_>,
    name_info: &SecretName<'_>,
    separator: Separator,
    quoted: bool,
    follows: u8,
    (shell, alone): (bool, bool),
) -> ValueSetting {
    let SecretName { begin, name, follows_word, .. } = *name_info;
    let before = begin.checked_sub(1).and_then(|i| view.byte(i));
    let flag = name.starts_with(b"-");
    let header = matches!(name, [b'x' | b'X', b'-', ..]) && separator == Separator::Colon(true);
    ValueSetting {
        quoted,
        // A whole line of a configuration, an argument or a part of a link.
        plain: quoted
            || alone
            || follows_word
            || flag
            || header
            || matches!(separator, Separator::Blank | Separator::Tag | Separator::Apart)
            || shell && name.len() > 3 && !name.iter().any(u8::is_ascii_lowercase)
            || shell && matches!(before, Some(b'?' | b'&' | b';'))
            || is_config_entry(view, begin, separator, follows),
        spaced: !matches!(separator, Separator::Equals(true) | Separator::Colon(false) | Separator::Tag),
        follows,
        shell,
        alone,
    }
}

/// A name of a secret, and how it is written.
struct SecretName<'a> {
    begin: usize,
    name: &'a [u8],
    strength: NameStrength,
    opened: bool,
    closed: bool,
    blanks: usize,
    /// The word before it makes it a name of a secret: `API key`.
    follows_word: bool,
}

/// Reads the separator between a name and its value. The inner `None`: there is no value.
fn read_separator(r: &mut ValueReader<'_>, name_info: &SecretName<'_>) -> Option<Option<Separator>> {
    let SecretName { begin, name, strength, opened, closed, blanks, .. } = *name_info;
    let flag = name.starts_with(b"-");
    let certain = strength >= NameStrength::Strong;
    let (separator, length) = match r.peek()? {
        b'=' => match r.peek_at(1)? {
            b'=' | b'~' => return Some(None),
            b'>' => (Separator::Equals(false), 2),
            _ => (Separator::Equals(blanks == 0), 1),
        },
        b'?' | b'+' if r.peek_at(1)? == b'=' => (Separator::Equals(false), 2),
        b'%' if r.peek_at(1)? == b'3' && matches!(r.peek_at(2)?, b'D' | b'd' | b'A' | b'a') => {
            (Separator::Equals(true), 3)
        }
        b':' => match r.peek_at(1)? {
            b':' => return Some(None),
            b'=' => (Separator::Equals(false), 2),
            b => (Separator::Colon(matches!(b, b' ' | b'\t')), 1),
        },
        b'>' if !closed && begin > 0 && r.view.bytes[begin - 1] == b'<' => (Separator::Tag, 1),
        b',' if opened && closed && certain && skip_to_value_key(r)? => return Some(Some(Separator::Apart)),
        b',' if opened && closed && (flag || certain) && matches!(peek_after_blanks(r, 1)?, b'"' | b'\'') => {
            (Separator::Apart, 1)
        }
        b'|' if blanks > 0 && certain => (Separator::Apart, 1),
        // `ALTER USER x PASSWORD 'value'`
        b'\'' if blanks > 0 && !closed && name.eq_ignore_ascii_case(b"password") => (Separator::Apart, 0),
        _ if flag && blanks > 0 && !closed => (Separator::Blank, 0),
        _ if blanks > 0 && !closed && is_command(r.view, begin, name) => (Separator::Blank, 0),
        _ if certain => return Some(skip_to_value_key(r)?.then_some(Separator::Apart)),
        _ => return Some(None),
    };
    r.at += length;
    Some(Some(separator))
}

/// The byte behind `from` bytes and blanks.
fn peek_after_blanks(r: &ValueReader<'_>, from: usize) -> Option<u8> {
    let mut n = from;
    while matches!(r.peek_at(n)?, b' ' | b'\t') && n < MAX_BLANKS {
        n += 1;
    }
    r.peek_at(n)
}

/// Skips to the value in `name: X` and `value: Y`, on the same line or the next. False: there is no such value.
fn skip_to_value_key(r: &mut ValueReader<'_>) -> Option<bool> {
    const WORD: &[u8] = b"value";
    let bytes = r.view.bytes;
    let mut at = r.at;
    while at - r.at < MAX_BLANKS {
        match bytes.get(at) {
            Some(b' ' | b'\t' | b'\r' | b'\n' | b',' | b'"' | b'\'') => at += 1,
            Some(_) => break,
            None if r.view.end => return Some(false),
            None => return None,
        }
    }
    for (n, want) in WORD.iter().enumerate() {
        match bytes.get(at + n) {
            Some(b) if b.eq_ignore_ascii_case(want) => {}
            None if !r.view.end => return None,
            _ => return Some(false),
        }
    }
    let mut reader = ValueReader { view: r.view, at: at + WORD.len(), value: None };
    reader.read_quote()?;
    reader.skip(MAX_BLANKS, |b| b == b' ')?;
    if !matches!(reader.peek()?, b':' | b'=') {
        return Some(false);
    }
    r.at = reader.at + 1;
    Some(true)
}

/// Whether the word before the name makes it a name of a secret, as in `API key: …`.
fn follows_telling_word(view: TextView<'_>, begin: usize) -> bool {
    const BEFORE: &[&[u8]] =
        &[b"api", b"access", b"secret", b"private", b"auth", b"account", b"license", b"bearer", b"refresh"];
    let Some(blank) = begin.checked_sub(1).filter(|i| view.bytes[*i] == b' ') else { return false };
    let length = view.bytes[..blank].iter().rev().take(12).take_while(|b| b.is_ascii_alphabetic()).count();
    let word = view.bytes[blank - length..blank].to_ascii_lowercase();
    BEFORE.contains(&&*word)
}

/// A command or a line of a configuration with its value behind a blank: `ENV NAME value`, `machine … password value`.
fn is_command(view: TextView<'_>, begin: usize, name: &[u8]) -> bool {
    const SETS: &[&[u8]] = &[b"ENV", b"setx", b"set -x", b"set -gx", b"set -Ux", b"setenv", b"ARG"];
    let line = view.line_start(begin, 128);
    let before = view.bytes[line..begin].trim_ascii();
    let is_upper_case = !name.iter().any(u8::is_ascii_lowercase);
    SETS.contains(&before) && is_upper_case
        || name == b"password"
            && (before.is_empty()
                || before.starts_with(b"machine ")
                || before.starts_with(b"login ")
                || before.starts_with(b"default "))
        || matches!(name, b"requirepass" | b"masterauth") && before.is_empty()
}

fn rule_for(strength: NameStrength) -> &'static str {
    match strength {
        NameStrength::Password => "password",
        _ => "secret-value",
    }
}

/// Skips a type between `:` and `=`, with the `=`. False: there is none, and the reader has not moved.
fn skip_type(r: &mut ValueReader<'_>) -> Option<bool> {
    let from = r.at;
    if !matches!(r.peek()?, b'A'..=b'Z' | b'a'..=b'z' | b'&' | b'*') {
        return Some(false);
    }
    let taken = r.skip(40, |b| {
        b.is_ascii_alphanumeric()
            || matches!(b, b'_' | b'&' | b'*' | b'<' | b'>' | b'[' | b']' | b'\'' | b' ' | b'|' | b':' | b'.')
    })?;
    if taken < 40 && r.peek()? == b'=' && matches!(r.peek_at(1)?, b' ' | b'"' | b'\'') {
        r.at += 1;
        r.skip(MAX_BLANKS, |b| b == b' ')?;
        return Some(true);
    }
    r.at = from;
    Some(false)
}

/// Skips a scheme before the value: `Bearer`, `Basic`, `token`.
pub(crate) fn skip_scheme(r: &mut ValueReader<'_>) -> Option<()> {
    const SCHEMES: &[&[u8]] =
        &[b"bearer ", b"basic ", b"token ", b"bot ", b"apikey ", b"digest ", b"key ", b"splunk ", b"negotiate "];
    for scheme in SCHEMES {
        let mut matched = 0;
        for (n, want) in scheme.iter().enumerate() {
            match r.peek_at(n) {
                Some(b) if b.to_ascii_lowercase() == *want => matched += 1,
                Some(_) => break,
                // More bytes may complete the scheme.
                None if n >= 3 => return None,
                None => break,
            }
        }
        if matched == scheme.len() {
            r.at += matched;
            r.skip(MAX_BLANKS, |b| b == b' ')?;
            return Some(());
        }
    }
    Some(())
}

/// The end of the value; none if it is still to come.
fn find_value_end(r: &mut ValueReader<'_>, quote: Quote, alone: bool, in_tag: bool, max: usize) -> Option<usize> {
    let start = r.at;
    loop {
        let b = r.peek()?;
        if b == BREAK || r.at - start >= max {
            break;
        }
        // A line editor wraps with a blank and a carriage return; the value continues.
        if b == b' '
            && r.at > start
            && (quote == Quote::None || r.at + 3 > r.view.len() || r.view.bytes[r.at + 1] == b'\r')
            && r.view.is_wrapped_at(r.at)?
        {
            r.at += 2;
            continue;
        }
        let ends = match quote {
            Quote::Of(q, 0) => {
                if b == b'\\' && r.peek_at(1)? != BREAK {
                    r.at += 2;
                    continue;
                }
                b == q
            }
            Quote::Of(q, _) => b == b'\\' && r.peek_at(1)? == q || b == q,
            Quote::None if in_tag => matches!(b, b'<'),
            Quote::None if alone => matches!(b, b' ' | b'\t' | b'"' | b'\'' | b'`'),
            Quote::None => matches!(
                b,
                b' ' | b'\t'
                    | b'"'
                    | b'\''
                    | b'`'
                    | b','
                    | b';'
                    | b'&'
                    | b'<'
                    | b'>'
                    | b'('
                    | b')'
                    | b'{'
                    | b'}'
                    | b'['
                    | b']'
                    | b'|'
                    | b'\\'
            ),
        };
        if ends {
            break;
        }
        r.at += 1;
    }
    let mut end = r.at;
    if quote == Quote::None {
        while end > start && matches!(r.view.bytes[end - 1], b',' | b';' | b')' | b'.') {
            end -= 1;
        }
    }
    Some(end)
}

/// Whether this is an assignment of a shell, whose value ends with a blank: the name begins a line, or follows `export`,
/// `set` or `env`.
fn is_assignment(view: TextView<'_>, begin: usize) -> bool {
    let line = view.line_start(begin, 64);
    let before = view.bytes[line..begin].trim_ascii();
    before.is_empty()
        || [&b"export"[..], b"set", b"env", b"ENV", b"ARG", b"setx", b"declare -x", b"+", b"-"].contains(&before)
        || view.bytes[..begin].ends_with(b" ")
            && before.split(|b| *b == b' ').all(|w| w.contains(&b'=') || w == b"env" || w == b"export")
}

/// Whether a line of a configuration consists of a name and a value.
fn is_config_entry(view: TextView<'_>, begin: usize, separator: Separator, follows: u8) -> bool {
    let line = view.line_start(begin, 64);
    let before = view.bytes[line..begin].trim_ascii();
    matches!(separator, Separator::Colon(true) | Separator::Equals(_))
        && matches!(before, b"" | b"-")
        && follows == BREAK
}
