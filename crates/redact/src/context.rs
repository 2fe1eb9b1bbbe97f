//! Finds secrets by their names: `name=value`, `"name": "value"`, `--name value`.
//!
//! The name and the separator stay; the value is redacted. Most of this file recognises values that are *no* secrets:
//! types, variables, calls, words, placeholders.

use crate::{
    guard::{self, NameStrength, ValueSetting},
    span::{Inspection, Rank, Span},
    value_reader::{BREAK, Quote, ValueReader},
    visible_text::TextView,
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
    "pass",
    "Pass",
    "PASS",
    "redential",
    "REDENTIAL",
    "pw=",
    "pw:",
    "pw\"",
    "auth=",
    "auth\"",
    "auth: ",
    "AUTH=",
    "creds",
    "salt",
    "SALT",
    "seed",
    "SEED",
    "psk",
    "PSK",
    "nemonic",
    "ICENSE=",
    "code=",
    "sig=",
    "sid=",
    "essionid=",
    "ession_id=",
    "essionId=",
    "SESSID=",
    "SESSIONID=",
    "_session=",
    "cf_clearance=",
    "li_at=",
    "__Secure-",
    "LOSECURITY=",
];

/// How far a name may extend before and behind the word in it.
const MAX_NAME_REACH_BYTES: usize = 48;
/// The most blanks between a name, its separator and its value.
pub(crate) const MAX_BLANKS: usize = 24;
pub(crate) const MAX_VALUE_BYTES: usize = 4096;
/// The longest value of a name that is not strong.
const MAX_WEAK_VALUE_BYTES: usize = 256;
/// How far back an unfinished name may begin, which is inspected again when more input comes.
pub(crate) const REINSPECT_BYTES: usize = crate::command_line::MAX_COMMAND_BYTES + 64;

pub(crate) fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
}

/// Inspects the name around the word that was found at `word`.
pub(crate) fn inspect_name(view: TextView<'_>, word: usize, length: usize) -> Inspection {
    // Some of the texts end with the separator.
    let name = view.bytes[word..word + length].iter().take_while(|b| is_name_byte(**b)).count();
    let before = view.bytes[..word].iter().rev().take(8).take_while(|b| is_name_byte(**b)).count();
    let rest = &view.bytes[word - before..];
    // `"github-oauth": {"github.com": "V"}`
    if view.bytes[..word].ends_with(b"-o") && view.bytes[word..word + length].ends_with(b"\"") {
        return crate::account_file::inspect_host_tokens(view, word, word + length);
    }
    if rest.starts_with(b"htpasswd") || rest.starts_with(b"wpa_passphrase") {
        return crate::command_line::inspect_command(view, word, word + name);
    }
    let mut r = ValueReader { view, at: word + name, value: None };
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
    /// A blank or a word of a sentence: `password is V`. Only a token or a password with digits counts.
    Prose,
    /// The name stands alone, and the value is below it: `password: >-`.
    Block,
}

fn read_assignment(r: &mut ValueReader<'_>, word: usize) -> Option<Inspection> {
    let view = r.view;
    let Some(name_info) = read_name(r, word)? else { return Some(Inspection::Nothing) };
    let SecretName { begin, name, strength, opened, .. } = name_info;
    let Some(mut separator) = read_separator(r, &name_info)? else { return Some(Inspection::Nothing) };
    r.skip(MAX_BLANKS, |b| matches!(b, b' ' | b'\t'))?;
    r.value = Some(r.at);
    let mut quote = Quote::None;
    if matches!(separator, Separator::Colon(_)) && skip_block_header(r, begin)? {
        separator = Separator::Block;
    } else {
        let Some(read) = read_value_start(r, &name_info, separator)? else { return Some(Inspection::Nothing) };
        quote = read;
    }
    let start = r.at;
    r.value = Some(start);
    if r.peek()? == BREAK {
        return Some(Inspection::Nothing);
    }
    let shell = separator == Separator::Equals(true) && !opened;
    let alone = shell && is_assignment(view, begin);
    let extent = ValueExtent {
        quote,
        to_blank: alone || separator == Separator::Prose,
        in_tag: separator == Separator::Tag,
        to_line_end: separator == Separator::Block
            || strength == NameStrength::Random && name.to_ascii_lowercase().ends_with(b"mnemonic"),
        max: if strength < NameStrength::Strong { MAX_WEAK_VALUE_BYTES } else { MAX_VALUE_BYTES },
    };
    let mut end = find_value_end(r, &extent)?;
    // `--creds user:V`
    let user = if strength == NameStrength::Random && name.to_ascii_lowercase().ends_with(b"creds") {
        view.bytes[start..end].iter().position(|b| *b == b':').map_or(0, |n| n + 1)
    } else {
        0
    };
    let start = start + user;
    if end == start {
        return Some(Inspection::Nothing);
    }
    let follows = r.peek().unwrap_or(BREAK);
    let setting = value_setting(view, &name_info, separator, quote != Quote::None, follows, (shell, alone));
    let value = &*view.without_breaks(start..end);
    let fits = match separator {
        Separator::Prose => guard::is_password_in_prose(value),
        _ if user > 0 => guard::is_token_like(value) && !guard::is_placeholder(value),
        _ => guard::is_secret(strength, name, value, &setting),
    };
    let code = strength == NameStrength::Random && !is_random_in_place(r, &name_info, end)?;
    if !fits || code || guard::names_something_else(name, strength) {
        return Some(Inspection::Nothing);
    }
    if separator == Separator::Block {
        end = skip_block_lines(r, start, end)?;
    }
    // The rest of a longer value is removed without another placeholder.
    let in_quotes: fn(u8) -> bool = |b| !matches!(b, b'"' | b'\'' | b'`');
    let belongs = if quote == Quote::None { crate::span::is_token_byte as fn(u8) -> bool } else { in_quotes };
    let swallow = (end - start >= MAX_VALUE_BYTES).then_some(belongs);
    let span = Span { swallow, ..Span::new(start, end, rule_for(strength), Rank::Context) };
    // `password = "old" -> "new"`
    if let Quote::Of(_, slashes) = quote
        && swallow.is_none()
        && let Some((from, to)) = read_changed_value(r, slashes)?
    {
        let changed = Span::new(from, to, rule_for(strength), Rank::Context);
        return Some(Inspection::Several(vec![span, changed], None));
    }
    Some(Inspection::Found(span))
}

/// Reads the second value in `"old" -> "new"`; the reader is before the first closing quote.
fn read_changed_value(r: &mut ValueReader<'_>, slashes: usize) -> Option<Option<(usize, usize)>> {
    const ARROW: &[u8] = b" -> ";
    let mut at = slashes + 1;
    for want in ARROW {
        // What comes later does not change the first value, but it must not be decided without the second.
        if r.peek_at(at)? != *want {
            return Some(None);
        }
        at += 1;
    }
    let mut reader = ValueReader { view: r.view, at: r.at + at, value: None };
    let Quote::Of(quote, slashes) = reader.read_quote()? else { return Some(None) };
    let from = reader.at;
    while !reader.is_closing_quote(quote, slashes)? {
        if reader.peek()? == BREAK || reader.at - from >= MAX_VALUE_BYTES {
            return Some(None);
        }
        reader.at += 1;
    }
    let value = &r.view.bytes[from..reader.at];
    Some((value.len() >= 4 && !guard::is_placeholder(value)).then_some((from, reader.at)))
}

/// Whether a random value is in a place where a name such as `code` or `sid` has a secret: in a link or a cookie.
fn is_random_in_place(r: &ValueReader<'_>, name_info: &SecretName<'_>, end: usize) -> Option<bool> {
    let view = r.view;
    let before = name_info.begin.checked_sub(1).and_then(|i| view.byte(i));
    let name = name_info.name.to_ascii_lowercase();
    Some(match &*name {
        b"sig" => matches!(before, Some(b'?' | b'&')),
        b"code" => {
            let link = &view.bytes[name_info.begin.saturating_sub(120)..name_info.begin];
            let telling = [&b"callback"[..], b"oauth", b"redirect", b"signin", b"state="];
            let mut state = true;
            for (n, want) in b"&state=".iter().enumerate() {
                let at = ValueReader { view, at: end, value: None };
                if at.peek_at(n)? != *want {
                    state = false;
                    break;
                }
            }
            matches!(before, Some(b'?' | b'&'))
                && (state || telling.iter().any(|t| memchr::memmem::find(link, t).is_some()))
        }
        _ => true,
    })
}

/// Skips `>-` or `|` and the line break behind it, to the value on the next line. False: there is none, and the reader has
/// not moved.
fn skip_block_header(r: &mut ValueReader<'_>, begin: usize) -> Option<bool> {
    let from = r.at;
    if !matches!(r.peek()?, b'|' | b'>') {
        return Some(false);
    }
    r.at += 1;
    r.skip(2, |b| matches!(b, b'-' | b'+' | b'1'..=b'9'))?;
    if r.peek()? != BREAK || r.view.is_moved_at(r.at) || !skip_line_break(r)? {
        r.at = from;
        return Some(false);
    }
    let line = r.view.line_start(begin, MAX_NAME_REACH_BYTES);
    let indent = r.view.bytes[line..begin].iter().take_while(|b| matches!(b, b' ' | b'-')).count();
    let blanks = r.skip(2 * MAX_BLANKS, |b| b == b' ')?;
    if blanks <= indent {
        r.at = from;
        return Some(false);
    }
    Some(true)
}

/// Skips one line break. False: the stream has ended.
fn skip_line_break(r: &mut ValueReader<'_>) -> Option<bool> {
    match (r.view.byte(r.at), r.view.byte(r.at + 1)) {
        (Some(b'\r'), Some(b'\n')) => r.at += 2,
        (Some(b'\r'), None) if !r.view.end => return None,
        (Some(b'\n' | b'\r'), _) => r.at += 1,
        (None, _) if !r.view.end => return None,
        _ => return Some(false),
    }
    Some(true)
}

/// The end of the further lines of a block: indented like the first, and without blanks or names.
fn skip_block_lines(r: &mut ValueReader<'_>, start: usize, end: usize) -> Option<usize> {
    let line = r.view.line_start(start, 4 * MAX_BLANKS);
    let indent = start - line;
    let mut end = end;
    while r.peek()? == BREAK && !r.view.is_moved_at(r.at) && r.at - start < MAX_VALUE_BYTES {
        if !skip_line_break(r)? {
            break;
        }
        let blanks = r.skip(2 * MAX_BLANKS, |b| b == b' ')?;
        let length = r.skip(MAX_WEAK_VALUE_BYTES, |b| b != BREAK && !matches!(b, b' ' | b':' | b'"' | b'#' | b'{'))?;
        if blanks != indent || length < 4 || r.peek()? != BREAK {
            break;
        }
        end = r.at;
    }
    Some(end)
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
    // Behind a blank the value itself may begin.
    r.value = (blanks > 0).then_some(r.at);
    // Most hits are plain words: no separator follows them.
    let flag = name.starts_with(b"-");
    // `<name>`, but not the argument of a type or the name of a group.
    let in_tag = before(1) == Some(b'<') && !before(2).is_some_and(|b| b.is_ascii_alphanumeric() || b == b':');
    if before(1) == Some(b'<') && !in_tag {
        return Some(None);
    }
    let separated = match r.peek()? {
        b'=' | b':' | b'?' | b'+' | b'%' => true,
        b'>' => in_tag,
        b'-' => blanks > 0 && r.peek_at(1)? == b'>',
        b'<' => blanks > 0 && r.peek_at(1)? == b'-',
        b'"' | b'$' => blanks > 0 && !closed,
        b'i' => blanks == 1 && !closed && r.peek_at(1)? == b's' && r.peek_at(2)? == b' ',
        b'0'..=b'9' => blanks > 0 && !closed && is_typed_name(name) && r.peek_at(1)? == b' ',
        _ if in_tag && blanks > 0 => true,
        b',' => opened && closed,
        b'|' | b'\'' => blanks > 0,
        // `name: NAME`, with the value on the next line.
        BREAK => view.bytes[begin.saturating_sub(8)..begin].windows(4).any(|w| w.eq_ignore_ascii_case(b"name")),
        _ => closed && blanks > 0,
    };
    if !(separated || flag || blanks > 0 && (is_command(view, begin, name) || is_setting_command(view, begin))) {
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
    let prefix = |b: u8| matches!(b, b'b' | b'r' | b'f' | b'u' | b'L' | b'N' | b'@');
    skip_wrapper(r)?;
    // `-passin pass:V`; other words before the colon tell where the password is.
    if name_info.name.starts_with(b"-") && r.peek()? == b'p' {
        skip_text(r, b"pass:")?;
    }
    // `PWD={V}` of a connection string.
    let follows_part = name_info.begin.checked_sub(1).is_some_and(|i| r.view.bytes[i] == b';');
    if separator == Separator::Equals(true) && follows_part && r.peek()? == b'{' && r.peek_at(1)? != b'{' {
        r.at += 1;
        return Some(Some(Quote::Of(b'}', 0)));
    }
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
            || matches!(separator, Separator::Blank | Separator::Tag | Separator::Apart | Separator::Block)
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
    if r.peek()? == b',' && opened && closed {
        // The value may begin right behind the comma, or a key `value` comes first.
        r.value = Some(r.at + 1);
    }
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
        b'-' if blanks > 0 && r.peek_at(1)? == b'>' => (Separator::Equals(false), 2),
        b'<' if blanks > 0 && r.peek_at(1)? == b'-' => (Separator::Equals(false), 2),
        // `<Pass encoding="base64">V</Pass>`
        _ if blanks > 0 && !closed && begin > 0 && r.view.bytes[begin - 1] == b'<' => {
            r.skip(64, |b| !matches!(b, b'>' | b'<' | b'/' | BREAK))?;
            if r.peek()? != b'>' {
                return Some(None);
            }
            (Separator::Tag, 1)
        }
        // `#define NAME "V"`, `secret "$9$…"`
        b'"' if blanks > 0 && !closed && (is_definition(r.view, begin) || certain && r.peek_at(1)? == b'$') => {
            (Separator::Apart, 0)
        }
        // `password 7 V`, as routers write it.
        b'0'..=b'9' if blanks > 0 && !closed && is_typed_name(name) && r.peek_at(1)? == b' ' => (Separator::Prose, 2),
        b'i' if blanks == 1 && !closed && r.peek_at(1)? == b's' && r.peek_at(2)? == b' ' => (Separator::Prose, 3),
        b',' if opened && closed && certain && skip_to_value_key(r)? => return Some(Some(Separator::Apart)),
        b',' if opened && closed && (flag || certain) && matches!(peek_after_blanks(r, 1)?, b'"' | b'\'') => {
            (Separator::Apart, 1)
        }
        b'|' if blanks > 0 && certain => (Separator::Apart, 1),
        // `ALTER USER x PASSWORD 'value'`
        b'\'' if blanks > 0 && !closed && name.eq_ignore_ascii_case(b"password") => (Separator::Apart, 0),
        _ if flag && blanks > 0 && !closed => (Separator::Blank, 0),
        _ if blanks > 0 && !closed && is_command(r.view, begin, name) => (Separator::Blank, 0),
        _ if blanks > 0 && !closed && is_setting_command(r.view, begin) => (Separator::Prose, 0),
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

/// Whether the command before a name sets it to the next argument: `aws configure set NAME V`, `enable secret V`.
fn is_setting_command(view: TextView<'_>, begin: usize) -> bool {
    const INSIDE: &[&[u8]] = &[b"configure set", b"config set", b" config ", b"nmcli ", b"iwconfig ", b"-server "];
    const FIRST: &[&[u8]] = &[b"enable ", b"username ", b"neighbor ", b"crypto isakmp ", b"user: ", b"User: ", b"set "];
    let line = view.line_start(begin, 128);
    let before = &view.bytes[line..begin];
    INSIDE.iter().any(|s| memchr::memmem::find(before, s).is_some())
        || FIRST.iter().any(|s| before.trim_ascii_start().starts_with(s))
}

/// Whether the name is defined by a preprocessor.
fn is_definition(view: TextView<'_>, begin: usize) -> bool {
    let line = view.line_start(begin, 32);
    matches!(view.bytes[line..begin].trim_ascii(), b"#define" | b"# define" | b"%define" | b"DEFINE")
}

/// Names that routers write with the type of the encryption between them and the value.
fn is_typed_name(name: &[u8]) -> bool {
    matches!(name, b"password" | b"secret" | b"key" | b"key-string" | b"pre-shared-key" | b"md5-key")
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

/// Skips this text if it is there.
fn skip_text(r: &mut ValueReader<'_>, text: &[u8]) -> Option<()> {
    for (n, want) in text.iter().enumerate() {
        if r.peek_at(n)? != *want {
            return Some(());
        }
    }
    r.at += text.len();
    Some(())
}

/// Skips what wraps a value in program text: `Some("V")`, `String::from("V")`, `("V")`.
fn skip_wrapper(r: &mut ValueReader<'_>) -> Option<()> {
    const WRAPPERS: &[&[u8]] = &[
        b"(",
        b"Some(",
        b"Ok(",
        b"Just ",
        b"String(",
        b"String::from(",
        b"new String(",
        b"str(",
        b"string(",
        b"[]byte(",
        b"bytes(",
        b"Buffer.from(",
        b"Secret(",
        b"SecretStr(",
        b"SecretString(",
        b"SecretString::from(",
        b"Optional.of(",
        b"pulumi.secret(",
        b"Optional[",
        b"pulumi.String(",
    ];
    for wrapper in WRAPPERS {
        let mut matched = 0;
        for want in *wrapper {
            if r.peek_at(matched)? != *want {
                break;
            }
            matched += 1;
        }
        if matched == wrapper.len() {
            let quoted = ValueReader { view: r.view, at: r.at + matched, value: None };
            let letter = matches!(quoted.peek()?, b'b' | b'@' | b'r') && matches!(quoted.peek_at(1)?, b'"' | b'\'');
            if letter || matches!(quoted.peek()?, b'"' | b'\'' | b'\\') || *wrapper == b"Optional[" {
                r.at += matched;
            }
            return Some(());
        }
    }
    Some(())
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

/// How far a value extends.
struct ValueExtent {
    quote: Quote,
    /// It ends with a blank, whatever signs it contains.
    to_blank: bool,
    in_tag: bool,
    to_line_end: bool,
    max: usize,
}

/// The end of the value; none if it is still to come.
fn find_value_end(r: &mut ValueReader<'_>, extent: &ValueExtent) -> Option<usize> {
    let start = r.at;
    let quote = extent.quote;
    loop {
        let b = r.peek()?;
        if b == BREAK || r.at - start >= extent.max {
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
            Quote::Of(q, slashes) => b == q || b == b'\\' && r.is_closing_quote(q, slashes)?,
            Quote::None if extent.to_line_end => false,
            Quote::None if extent.in_tag => matches!(b, b'<'),
            Quote::None if extent.to_blank => matches!(b, b' ' | b'\t' | b'"' | b'\'' | b'`'),
            Quote::None => match b {
                b' ' | b'\t' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'(' | b')' | b'{' | b'}' | b'[' | b']' | b'|'
                | b'\\' => true,
                b',' | b';' | b'&' => ends_at_sign(r)?,
                _ => false,
            },
        };
        if ends {
            break;
        }
        r.at += 1;
    }
    let mut end = r.at;
    if extent.to_line_end {
        while end > start && r.view.bytes[end - 1] == b' ' {
            end -= 1;
        }
    } else if quote == Quote::None {
        while end > start && matches!(r.view.bytes[end - 1], b',' | b';' | b')' | b'.') {
            end -= 1;
        }
    }
    Some(end)
}

/// Whether a comma, a semicolon or an `&` ends the value: another name or nothing follows. Otherwise it is part of the value.
fn ends_at_sign(r: &ValueReader<'_>) -> Option<bool> {
    const LONGEST_NAME: usize = 40;
    if !(r.peek_at(1)?.is_ascii_alphanumeric() || matches!(r.peek_at(1)?, b'!'..=b'~')) {
        return Some(true);
    }
    let mut n = 1;
    while n < LONGEST_NAME {
        match r.peek_at(n)? {
            b if b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.') => n += 1,
            // `&amp;`, `key: value`
            b'=' | b':' | b';' | b')' | b'}' | b']' | b'(' | b'\\' => return Some(true),
            // `Initial Catalog=…`
            b' ' if n > 1 && r.peek_at(1)?.is_ascii_alphabetic() => n += 1,
            b'"' | b'\'' => return Some(n == 1),
            _ => return Some(false),
        }
    }
    Some(true)
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
