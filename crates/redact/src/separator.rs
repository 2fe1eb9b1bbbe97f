//! Reads what stands between a name and its value: `=`, `: `, `" => "`, a blank, a tag, a bar of a table.

use crate::{
    context::{MAX_BLANKS, SecretName},
    name::NameStrength,
    rare_separator::read_rare_separator,
    value_reader::{BREAK, ValueReader},
    value_syntax::is_text_next,
    visible_text::TextView,
};
use aho_corasick::AhoCorasick;
use std::sync::OnceLock;

/// What separates a name from its value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Separator {
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
    /// Several blanks, as in tables, or one between words: `API key V`. Only a random token counts.
    Column,
    /// The name stands alone, and the value is below it: `password: >-`.
    Block,
    /// Words of a sentence: `the API key for the backup is V`.
    Near,
    /// The value stands alone on the line below.
    Below,
    /// A comparison, a condition or a call: `NAME == "V"`, `.apiKey("V")`. Only a random token counts.
    Compared,
}

/// Reads the separator between a name and its value. The inner `None`: there is no value.
pub(crate) fn read_separator(r: &mut ValueReader<'_>, name_info: &SecretName<'_>) -> Option<Option<Separator>> {
    let SecretName { begin, strength, opened, closed, blanks, .. } = *name_info;
    let certain = strength >= NameStrength::Strong;
    let before = begin.checked_sub(1).and_then(|i| r.view.byte(i));
    if r.peek()? == b',' && opened && closed {
        // The value may begin right behind the comma, or a key `value` comes first.
        r.value = Some(r.at + 1);
    }
    let (separator, length) = match r.peek()? {
        b'=' => match r.peek_at(1)? {
            b'=' if certain => {
                let length = if r.peek_at(2)? == b'=' { 3 } else { 2 };
                let quoted = matches!(peek_after_blanks(r, length)?, b'"' | b'\'');
                if !quoted {
                    return Some(None);
                }
                (Separator::Compared, length)
            }
            b'=' | b'~' => return Some(None),
            b'>' => (Separator::Equals(false), 2),
            _ => (Separator::Equals(blanks == 0), 1),
        },
        b'?' if r.peek_at(1)? == b'?' && certain => (Separator::Apart, if r.peek_at(2)? == b'=' { 3 } else { 2 }),
        b'?' | b'+' if r.peek_at(1)? == b'=' => (Separator::Equals(false), 2),
        b'%' if r.peek_at(1)? == b'3' && matches!(r.peek_at(2)?, b'D' | b'd' | b'A' | b'a') => {
            // `X-Api-Key%3A%20V`
            let blank = r.peek_at(3)? == b'%' && r.peek_at(4)? == b'2' && r.peek_at(5)? == b'0';
            (Separator::Equals(true), if blank { 6 } else { 3 })
        }
        b'!' => {
            let length = if r.peek_at(2)? == b'=' { 3 } else { 2 };
            if !certain || !matches!(peek_after_blanks(r, length)?, b'"' | b'\'') {
                return Some(None);
            }
            (Separator::Compared, length)
        }
        b':' => match r.peek_at(1)? {
            // `::set-env name=NAME::V`
            b':' if certain && r.view.bytes[..begin].ends_with(b" name=") => (Separator::Apart, 2),
            // `${DB_PASS:-V}`
            b'-' if before == Some(b'{') => (Separator::Compared, 2),
            // `userPassword:: V` of LDIF
            b':' if certain && r.peek_at(2)? == b' ' => (Separator::Colon(true), 2),
            b':' => return Some(None),
            b'=' => (Separator::Equals(false), 2),
            b => (Separator::Colon(matches!(b, b' ' | b'\t')), 1),
        },
        b'<' | b'>' if (closed || before == Some(b'>')) && certain && skip_to_tag_text(r, begin)? => {
            return Some(Some(Separator::Tag));
        }
        b'>' if !closed && begin > 0 && r.view.bytes[begin - 1] == b'<' => (Separator::Tag, 1),
        b'-' if blanks > 0 && r.peek_at(1)? == b'>' => (Separator::Equals(false), 2),
        b'<' if blanks > 0 && r.peek_at(1)? == b'-' => (Separator::Equals(false), 2),
        // `read -r NAME <<< V`
        b'<' if blanks > 0 && is_read(r.view, begin) && r.peek_at(1)? == b'<' && r.peek_at(2)? == b'<' => {
            (Separator::Apart, 3)
        }
        // `variable=NAME;issecret=true]V`
        b';' | b']' if certain && r.view.bytes[..begin].ends_with(b"variable=") => {
            r.skip(MAX_TAG_BYTES, |b| b != b']' && b != BREAK)?;
            if r.peek()? != b']' {
                return Some(None);
            }
            (Separator::Apart, 1)
        }
        0xef if r.peek_at(1)? == 0xbc && r.peek_at(2)? == 0x9a => (Separator::Colon(true), 3),
        b'.' if certain && blanks > 0 => {
            r.skip(MAX_TAG_BYTES, |b| b == b'.')?;
            if r.peek()? != b' ' {
                return Some(None);
            }
            (Separator::Column, 1)
        }
        // `<Pass encoding="base64">V</Pass>`
        _ if blanks > 0 && !closed && begin > 0 && r.view.bytes[begin - 1] == b'<' => {
            r.skip(64, |b| !matches!(b, b'>' | b'<' | b'/' | BREAK))?;
            if r.peek()? != b'>' {
                return Some(None);
            }
            (Separator::Tag, 1)
        }
        _ => return read_loose_separator(r, name_info),
    };
    r.at += length;
    Some(Some(separator))
}

/// Reads a separator that is a word, a bracket, a bar or a blank: only some names have a value behind those.
fn read_loose_separator(r: &mut ValueReader<'_>, name_info: &SecretName<'_>) -> Option<Option<Separator>> {
    let SecretName { begin, name, strength, opened, closed, blanks, .. } = *name_info;
    let flag = name.starts_with(b"-");
    let certain = strength >= NameStrength::Strong;
    let before = begin.checked_sub(1).and_then(|i| r.view.byte(i));
    if let Some(separator) = read_rare_separator(r, name_info)? {
        return Some(Some(separator));
    }
    let (separator, length) = match r.peek()? {
        // `#define NAME "V"`, `secret "$9$…"`
        b'"' if blanks > 0 && !closed && (is_definition(r.view, begin) || certain && r.peek_at(1)? == b'$') => {
            (Separator::Apart, 0)
        }
        // `password 7 V`, as routers write it.
        b'0'..=b'9' if blanks > 0 && !closed && is_typed_name(name) && r.peek_at(1)? == b' ' => (Separator::Prose, 2),
        // `ALTER USER x PASSWORD 'value'`
        b'\'' if blanks > 0 && !closed && !flag && name.eq_ignore_ascii_case(b"password") => (Separator::Apart, 0),
        b'"' | b'\'' if blanks > 0 && !closed && certain && !flag => {
            let is_entry = matches!(before, None | Some(b':' | b'\n'))
                || is_definition(r.view, begin)
                || is_setting_command(r.view, begin)
                || begins_line(r.view, begin);
            (if is_entry { Separator::Apart } else { Separator::Prose }, 0)
        }
        // `.setPassword("V")`, `PASSWORD('V')`
        b'(' if blanks == 0 && certain && is_setter(name) && matches!(r.peek_at(1)?, b'"' | b'\'' | b'\\') => {
            (Separator::Apart, 1)
        }
        // `IDENTIFIED WITH mysql_native_password BY 'V'`
        b'B' if blanks == 1 && certain && !closed && matches!(r.peek_at(3)?, b'"' | b'\'') => (Separator::Apart, 3),
        b't' if blanks == 1 && certain && !closed && r.peek_at(1)? == b'o' && r.peek_at(2)? == b' ' => {
            (Separator::Prose, 3)
        }
        b'i' if blanks == 1 && strength >= NameStrength::Fair && !closed && r.peek_at(1)? == b's' => {
            let colon = usize::from(r.peek_at(2)? == b':');
            if r.peek_at(2 + colon)? != b' ' {
                return Some(None);
            }
            let separator = if certain { Separator::Prose } else { Separator::Column };
            // `A temporary password is generated for root@localhost: V`
            (separator, 3 + colon + announcement_bytes(r, 3 + colon)?)
        }
        // An id in a list: `"SE0FHWK0ID7SPWDI", "x-amz-id-2"`.
        b',' if name.split(|b| !b.is_ascii_digit()).filter(|part| !part.is_empty()).count() > 2 => return Some(None),
        b',' if opened && closed && certain && skip_to_value_key(r)? => return Some(Some(Separator::Apart)),
        b',' if opened && closed && (flag || certain) && matches!(peek_after_blanks(r, 1)?, b'"' | b'\'') => {
            // The value of another name: `"Challenge": "PASSWORD", …`.
            let is_plugin = [&b"native_password"[..], b"sha2_password"].iter().any(|p| name.ends_with(p));
            if is_plugin || is_value_of_name(r.view, begin) {
                return Some(None);
            }
            (Separator::Apart, 1)
        }
        // `process.env.NAME || "V"`
        b'|' if blanks > 0 && certain && r.peek_at(1)? == b'|' => {
            // `NAME ||= "V"`
            let length = if r.peek_at(2)? == b'=' { 3 } else { 2 };
            if !matches!(peek_after_blanks(r, length)?, b'"' | b'\'' | b'`') {
                return Some(None);
            }
            (Separator::Apart, length)
        }
        // A table, but not the log of a service (`secret-store-1  | …`), and not a pattern (`"PWD" | "OLDPWD"`).
        b'|' if blanks > 0 && certain && (!closed || before == Some(b'`')) && !is_numbered(name) => {
            (Separator::Apart, 1)
        }
        0xe2 if blanks > 0 && certain && r.peek_at(1)? == 0x94 && matches!(r.peek_at(2)?, 0x82 | 0x83) => {
            (Separator::Apart, 3)
        }
        _ if flag && blanks > 0 && !closed => (Separator::Blank, 0),
        _ if blanks > 0 && !closed && is_command(r.view, begin, name) => (Separator::Blank, 0),
        _ if blanks > 0 && !closed && is_setting_command(r.view, begin) => (Separator::Prose, 0),
        // A column, or `API key V`.
        _ if certain
            && !closed
            && !opened
            && (blanks > 1 || blanks > 0 && (name_info.follows_word || name.contains(&b'_'))) =>
        {
            (Separator::Column, 0)
        }
        _ if certain => return Some(skip_to_value_key(r)?.then_some(Separator::Apart)),
        _ => return Some(None),
    };
    r.at += length;
    Some(Some(separator))
}

/// The longest key of a value: `ParameterValue`.
const MAX_VALUE_KEY_BYTES: usize = 24;

/// Skips to the text behind a name in a tag: `<string name="NAME">V`, `<key>NAME</key><string>V`. False: there is none, and
/// the reader has not moved.
fn skip_to_tag_text(r: &mut ValueReader<'_>, begin: usize) -> Option<bool> {
    let from = r.at;
    let text = &r.view.bytes[..begin];
    let before = text.strip_suffix(b"\"").or(text.strip_suffix(b"'")).unwrap_or(text);
    let before = &before[before.len().saturating_sub(8)..];
    let is_attribute = [&b"name="[..], b"key="].iter().any(|a| before.to_ascii_lowercase().ends_with(a));
    if !is_attribute && !before.ends_with(b">") {
        return Some(false);
    }
    // The rest of the tag, or the end tag of the name.
    r.skip(MAX_TAG_BYTES, |b| !matches!(b, b'>' | BREAK))?;
    if !r.take_byte(b'>')? || is_attribute && r.view.bytes[r.at - 2] == b'/' {
        r.at = from;
        return Some(false);
    }
    r.skip(2 * MAX_BLANKS, |b| matches!(b, b' ' | b'\t' | BREAK))?;
    let inner = r.peek()? == b'<' && r.peek_at(1)? != b'!';
    if inner {
        let mut opens = false;
        // `</code></td><td><code>`
        for _ in 0..4 {
            if !(r.peek()? == b'<' && r.peek_at(1)? != b'!') {
                break;
            }
            let name = r.skip(MAX_TAG_BYTES, |b| !matches!(b, b'>' | BREAK | b' '))?;
            let tag = &r.view.bytes[r.at - name..r.at];
            let is_value =
                matches!(tag, b"<value" | b"<string" | b"<Value" | b"<String" | b"<td" | b"<dd" | b"<code" | b"<span");
            opens |= is_value;
            r.skip(MAX_TAG_BYTES, |b| !matches!(b, b'>' | BREAK))?;
            if !(is_value || tag.starts_with(b"</")) || !r.take_byte(b'>')? {
                r.at = from;
                return Some(false);
            }
        }
        if !opens {
            r.at = from;
            return Some(false);
        }
    }
    if inner || is_attribute {
        return Some(true);
    }
    r.at = from;
    Some(false)
}

/// Whether a quoted word that begins here is the value of a name: `"name": "word"`, but not `("word"`.
fn is_value_of_name(view: TextView<'_>, begin: usize) -> bool {
    let before = &view.bytes[begin.saturating_sub(4)..begin.saturating_sub(1)];
    before.ends_with(b"\": ") || before.ends_with(b"\":")
}

/// The longest rest of a tag.
pub(crate) const MAX_TAG_BYTES: usize = 64;

/// Whether a name begins its line, alone or in a list.
fn begins_line(view: TextView<'_>, begin: usize) -> bool {
    let line = view.line_start(begin, 64);
    let before = view.bytes[line..begin].trim_ascii();
    before.is_empty() || before.starts_with(b"(") || before.ends_with(b"(") || before.ends_with(b"{")
}

/// Whether a call of this name takes the secret: `setPassword`, `withToken`, `apiKey`.
pub(crate) fn is_setter(name: &[u8]) -> bool {
    const NAMES: &[&[u8]] = &[
        b"password",
        b"passwd",
        b"apikey",
        b"api_key",
        b"secret",
        b"secretkey",
        b"secret_key",
        b"accesskey",
        b"passphrase",
        b"authtoken",
        b"accesstoken",
        b"clientsecret",
        b"client_secret",
    ];
    let last = name.rsplit(|b| *b == b'.').next().unwrap_or(name);
    let lower = last.to_ascii_lowercase();
    lower.starts_with(b"set") || lower.starts_with(b"with") || NAMES.contains(&&*lower)
}

/// Whether a name is an argument of `read`.
fn is_read(view: TextView<'_>, begin: usize) -> bool {
    let line = view.line_start(begin, 64);
    view.bytes[line..begin].split(|b| *b == b' ').any(|word| word == b"read")
}

/// The length of `generated for NAME: ` behind `from` bytes; 0 if it is not there.
fn announcement_bytes(r: &ValueReader<'_>, from: usize) -> Option<usize> {
    let rest = ValueReader { view: r.view, at: r.at + from, value: None };
    for text in [&b"set to "[..], b"now "] {
        if is_text_next(&rest, text)? {
            return Some(text.len());
        }
    }
    for (n, want) in b"generated for ".iter().enumerate() {
        if r.peek_at(from + n)? != *want {
            return Some(0);
        }
    }
    let mut n = 14;
    while n < MAX_TAG_BYTES && !matches!(r.peek_at(from + n)?, b' ' | BREAK) {
        n += 1;
    }
    Some(if r.peek_at(from + n - 1)? == b':' { n + 1 } else { 0 })
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
    // `value`, `ParameterValue`
    let key =
        bytes[at.min(bytes.len())..].iter().take(MAX_VALUE_KEY_BYTES).take_while(|b| b.is_ascii_alphabetic()).count();
    if at + key >= bytes.len() && !r.view.end {
        return None;
    }
    let word = &bytes[at.min(bytes.len())..at + key];
    if key < WORD.len() || !word[key - WORD.len()..].eq_ignore_ascii_case(WORD) {
        return Some(false);
    }
    let mut reader = ValueReader { view: r.view, at: at + key, value: None };
    reader.read_quote()?;
    reader.skip(MAX_BLANKS, |b| b == b' ')?;
    if !matches!(reader.peek()?, b':' | b'=') {
        return Some(false);
    }
    r.at = reader.at + 1;
    Some(true)
}

/// Whether the word before the name makes it a name of a secret, as in `API key: …`.
pub(crate) fn follows_telling_word(view: TextView<'_>, begin: usize) -> bool {
    const BEFORE: &[&[u8]] = &[
        b"api",
        b"access",
        b"secret",
        b"private",
        b"auth",
        b"account",
        b"license",
        b"bearer",
        b"refresh",
        b"unseal",
        b"user",
        b"session",
        b"signing",
        b"client",
        b"service",
        b"bot",
        b"upload",
        b"encryption",
        b"routing",
        b"webhook",
        b"admin",
        b"deploy",
        b"master",
    ];
    let Some(blank) = begin.checked_sub(1).filter(|i| view.bytes[*i] == b' ') else { return false };
    let length = view.bytes[..blank].iter().rev().take(12).take_while(|b| b.is_ascii_alphabetic()).count();
    let word = view.bytes[blank - length..blank].to_ascii_lowercase();
    BEFORE.contains(&&*word)
}

/// The name of several words that ends here, joined: `Datadog App Key` is `Datadog_App_Key`. None: it has one word.
pub(crate) fn joined_name(view: TextView<'_>, begin: usize, name: &[u8]) -> Option<Vec<u8>> {
    const MAX_WORDS: usize = 4;
    // Words at the start of a line: `rails master key: V`.
    let line = view.line_start(begin, 48);
    let before = view.bytes[line..begin].trim_ascii_start();
    let before = before.strip_prefix(b"- ").or(before.strip_prefix(b"* ")).unwrap_or(before);
    let before = before.strip_prefix(b"**").unwrap_or(before);
    let is_label = begin - line < 48
        && before.split(|b| *b == b' ').count() <= MAX_WORDS + 1
        && before.iter().all(|b| b.is_ascii_alphanumeric() || *b == b' ');
    let mut joined = name.to_vec();
    let mut at = begin;
    for _ in 0..MAX_WORDS {
        let Some(blank) = at.checked_sub(1).filter(|i| view.bytes[*i] == b' ') else { break };
        let length = view.bytes[..blank].iter().rev().take(16).take_while(|b| b.is_ascii_alphanumeric()).count();
        let word = &view.bytes[blank - length..blank];
        // `Coveralls repo token`
        let follows_capital = || {
            let before = &view.bytes[(blank - length).saturating_sub(24)..blank - length];
            let Some(before) = before.strip_suffix(b" ") else { return false };
            before.rsplit(|b| *b == b' ').next().is_some_and(|word| word.first().is_some_and(u8::is_ascii_uppercase))
        };
        let is_part = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_alphanumeric() && (is_label || follows_capital());
        if !word.first().is_some_and(is_part) {
            break;
        }
        joined = [word, b"_", &joined].concat();
        at = blank - length;
    }
    (at < begin).then_some(joined)
}

/// A command or a line of a configuration with its value behind a blank: `ENV NAME value`, `machine … password value`.
pub(crate) fn is_command(view: TextView<'_>, begin: usize, name: &[u8]) -> bool {
    const SETS: &[&[u8]] = &[b"ENV", b"setx", b"set -x", b"set -gx", b"set -Ux", b"setenv", b"ARG"];
    // Lines of configurations that consist of a name and a value.
    const DIRECTIVES: &[&[u8]] =
        &[b"requirepass", b"masterauth", b"bindpw", b"rootbindpw", b"rootpw", b"remote_password", b"PASS"];
    let line = view.line_start(begin, 128);
    let before = view.bytes[line..begin].trim_ascii();
    let is_upper_case = !name.iter().any(u8::is_ascii_lowercase);
    SETS.contains(&before) && is_upper_case
        || name == b"password"
            && (before.is_empty()
                || before.starts_with(b"machine ")
                || before.starts_with(b"login ")
                || before.starts_with(b"default "))
        || before.is_empty() && DIRECTIVES.contains(&name)
        || name == b"PASS" && before.ends_with(b"FTP:")
        || name == b"sasl_password" && before.starts_with(b"/set ")
}

/// Whether the command before a name sets it to the next argument: `aws configure set NAME V`, `enable secret V`.
pub(crate) fn is_setting_command(view: TextView<'_>, begin: usize) -> bool {
    const INSIDE: &[&[u8]] =
        &[b"configure set", b"config set", b"CONFIG SET", b" config ", b"nmcli ", b"iwconfig ", b"-server "];
    const FIRST: &[&[u8]] = &[b"enable ", b"username ", b"neighbor ", b"crypto isakmp ", b"user: ", b"User: ", b"set "];
    static BUILT: OnceLock<AhoCorasick> = OnceLock::new();
    let line = view.line_start(begin, 128);
    let before = &view.bytes[line..begin];
    BUILT.get_or_init(|| AhoCorasick::new(INSIDE).expect("a few short texts")).is_match(before)
        || FIRST.iter().any(|s| before.trim_ascii_start().starts_with(s))
}

/// Whether the name is defined by a preprocessor.
fn is_definition(view: TextView<'_>, begin: usize) -> bool {
    let line = view.line_start(begin, 32);
    matches!(view.bytes[line..begin].trim_ascii(), b"#define" | b"# define" | b"%define" | b"DEFINE")
}

/// Names that routers write with the type of the encryption between them and the value.
pub(crate) fn is_typed_name(name: &[u8]) -> bool {
    matches!(name, b"password" | b"secret" | b"key" | b"key-string" | b"pre-shared-key" | b"md5-key")
}

/// Whether a name ends with the number of an instance: `secret-store-1`.
fn is_numbered(name: &[u8]) -> bool {
    let digits = name.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    digits > 0 && name[..name.len() - digits].ends_with(b"-")
}
