//! Finds secrets by their names: `name=value`, `"name": "value"`, `--name value`.
//!
//! The name and the separator stay; the value is redacted. Most of this file recognises values that are *no* secrets:
//! types, variables, calls, words, placeholders.
use crate::{
    guard::{self, ValueSetting},
    name::{self, NameStrength},
    span::{Inspection, Rank, Span},
    value_reader::{BREAK, Quote, ValueReader},
    value_syntax::{
        ValueExtent, find_value_end, read_changed_value, skip_block_header, skip_block_lines, skip_scheme, skip_text,
        skip_type, skip_wrapper,
    },
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

/// How far before a name the beginning of an ARN is searched.
const MAX_ARN_BYTES: usize = 96;
/// How far a name may extend before and behind the word in it.
pub(crate) const MAX_NAME_REACH_BYTES: usize = 48;
/// The most blanks between a name, its separator and its value.
pub(crate) const MAX_BLANKS: usize = 24;
pub(crate) const MAX_VALUE_BYTES: usize = 4096;
/// The longest value of a name that is not strong.
pub(crate) const MAX_WEAK_VALUE_BYTES: usize = 256;
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

/// Whether the word around `at` is the name of a resource: `arn:aws:secretsmanager:…:secret:…`.
fn is_in_arn(view: TextView<'_>, at: usize) -> bool {
    let lowest = at.saturating_sub(MAX_ARN_BYTES);
    let is_outside = |b: &u8| matches!(b, b' ' | b'\t' | b'"' | b'\'' | b'=' | b'\n' | b'(' | b'`');
    let start = view.bytes[lowest..at].iter().rposition(is_outside).map_or(lowest, |n| lowest + n + 1);
    view.bytes[start..at].starts_with(b"arn:")
}

/// Whether the name is no name: a test that passed (`PASS: name`), a part of an ARN, of an image or of a label.
fn is_part_of_id(view: TextView<'_>, begin: usize, name: &[u8], separator: Separator) -> bool {
    let before = &view.bytes[begin.saturating_sub(16)..begin];
    let is_colon = matches!(separator, Separator::Colon(_));
    is_colon && (matches!(name, b"PASS" | b"Pass") || is_in_arn(view, begin))
        || before.ends_with(b"checksum/")
        || before.ends_with(b"/") && separator == Separator::Colon(false)
}

fn read_assignment(r: &mut ValueReader<'_>, word: usize) -> Option<Inspection> {
    let view = r.view;
    let Some(name_info) = read_name(r, word)? else { return Some(Inspection::Nothing) };
    let SecretName { begin, name, strength, opened, .. } = name_info;
    let Some(mut separator) = read_separator(r, &name_info)? else { return Some(Inspection::Nothing) };
    if is_part_of_id(view, begin, name, separator) {
        return Some(Inspection::Nothing);
    }
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
    // `<password>V</password>`
    if separator == Separator::Tag && !(follows == b'<' && r.peek_at(1)? == b'/') {
        return Some(Inspection::Nothing);
    }
    let fits = match separator {
        Separator::Prose => guard::is_password_in_prose(value),
        _ if user > 0 => guard::is_token_like(value) && !guard::is_placeholder(value),
        _ => guard::is_secret(strength, name, value, &setting),
    };
    let code = strength == NameStrength::Random && !is_random_in_place(r, &name_info, end)?;
    if !fits || code || name::names_something_else(name, strength) {
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
    let strength = match name::name_strength(name, (closed || opened) && !subscript) {
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
        b'i' if blanks == 1 && certain && !closed && r.peek_at(1)? == b's' && r.peek_at(2)? == b' ' => {
            (Separator::Prose, 3)
        }
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
