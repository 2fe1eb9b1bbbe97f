//! Finds secrets by their names: `name=value`, `"name": "value"`, `--name value`.
//!
//! The name and the separator stay; the value is redacted. Most of this file recognises values that are *no* secrets:
//! types, variables, calls, words, placeholders.
use crate::{
    distant_value::{NameEnd, find_distant_value},
    guard::{self, ValueSetting},
    name::{self, NameStrength},
    provider_values,
    separator::{
        Separator, follows_telling_word, is_command, is_setting_command, is_typed_name, joined_name, read_separator,
    },
    span::{Inspection, Rank, Span},
    table,
    value_reader::{BREAK, Quote, ValueReader},
    value_syntax::{
        ValueExtent, find_value_end, is_text_next, read_changed_value, skip_block_header, skip_block_lines,
        skip_condition, skip_continued_line, skip_curly_quote, skip_format, skip_line_break, skip_long_quote,
        skip_scheme, skip_text, skip_to_quoted_line, skip_type, skip_wrapper, skip_yaml_marker,
    },
    visible_text::TextView,
};
use std::ops::Range;
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
    "pw ",
    "pw\"",
    "auth=",
    "auth\"",
    "auth: ",
    "Auth: ",
    "AUTH=",
    "ature=",
    "creds",
    "salt",
    "SALT",
    "seed",
    "SEED",
    "psk",
    "PSK",
    "nemonic",
    "authtok",
    "asterauth ",
    "NEMONIC",
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

/// Calls that take a user and a password, or a key and its secret.
const PAIR_CALLS: &[&[u8]] =
    &[b"Credential", b"Credentials", b"PasswordAuthentication", b"username_pw_set", b"changeUserPassword"];

/// How far before a name the beginning of an ARN is searched.
const MAX_ARN_BYTES: usize = 96;
/// How far a name may extend before and behind the word in it.
pub(crate) const MAX_NAME_REACH_BYTES: usize = 48;
/// The most blanks between a name, its separator and its value.
pub(crate) const MAX_BLANKS: usize = 48;
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
    let end = word + name + view.bytes[word + name..].iter().take(16).take_while(|b| is_name_byte(**b)).count();
    let assigns = matches!(view.byte(end + 1), Some(b'=' | b':'));
    if view.byte(end) == Some(b' ')
        && !assigns
        && crate::programs::NAMED_COMMANDS.iter().any(|c| view.bytes[..end].ends_with(c))
    {
        return crate::command_line::inspect_command(view, word, end);
    }
    // `new NetworkCredential("user", "V")`, `auth=("user", "V")`
    let whole = &view.bytes[..end];
    if view.byte(end) == Some(b'(') && PAIR_CALLS.iter().any(|c| whole.ends_with(c)) {
        return crate::call::inspect_pair(view, end);
    }
    if whole.ends_with(b"auth") && view.bytes[end..].starts_with(b"=") {
        let class =
            view.bytes[end + 1..].iter().take(24).take_while(|b| b.is_ascii_alphanumeric() || **b == b'.').count();
        if view.byte(end + 1 + class) == Some(b'(') {
            return crate::call::inspect_pair(view, end + 1 + class);
        }
    }
    let mut r = ValueReader { view, at: word + name, value: None };
    let value = read_assignment(&mut r, word).unwrap_or_else(|| r.unfinished());
    match inspect_column(view, word - before, end) {
        Some(column) => value.and(column),
        None => value,
    }
}

/// Inspects the column of a table of which this may be the name. None: it is none.
fn inspect_column(view: TextView<'_>, begin: usize, end: usize) -> Option<Inspection> {
    let lowest = begin.saturating_sub(MAX_NAME_REACH_BYTES);
    let begin = begin - view.bytes[lowest..begin].iter().rev().take_while(|b| is_name_byte(**b)).count();
    let behind = view.bytes[end..].iter().take(MAX_BLANKS).find(|b| !matches!(b, b' ' | b'"' | b'\'' | b'`' | b'*'))?;
    if !matches!(behind, b',' | b'|' | b'\t' | b';' | b'\n' | b'\r' | b')') || end - begin > MAX_NAME_REACH_BYTES {
        return None;
    }
    let inspect = if table::may_be_header(view, begin) {
        table::inspect_column
    } else if table::is_in_insert(view, begin) {
        table::inspect_insert
    } else {
        return None;
    };
    let name = &view.bytes[begin..end];
    let strength = match name::name_strength(name, true) {
        NameStrength::Weak | NameStrength::Fair if follows_telling_word(view, begin) => NameStrength::Strong,
        strength => strength,
    };
    if strength < NameStrength::Strong || name::names_something_else(name, strength) {
        return None;
    }
    inspect(view, table::Column { name: begin..end, strength, rule: rule_for(strength) })
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
    // `Become Pass: V`
    let follows_word = matches!(view.bytes[..begin], [.., b, b' '] if b.is_ascii_alphabetic());
    is_colon && (matches!(name, b"PASS" | b"Pass") && !follows_word || is_in_arn(view, begin))
        || before.ends_with(b"checksum/")
        || before.ends_with(b"/") && !before.ends_with(b" /") && separator == Separator::Colon(false)
}

fn read_assignment(r: &mut ValueReader<'_>, word: usize) -> Option<Inspection> {
    let view = r.view;
    let Some(name_info) = read_name(r, word)? else { return Some(Inspection::Nothing) };
    let SecretName { begin, name, strength, closed, blanks, .. } = name_info;
    let mut behind = *r;
    if !name_info.is_distant {
        let separator = read_separator(r, &name_info)?;
        if separator.is_some_and(|separator| is_part_of_id(view, begin, name, separator)) {
            return Some(Inspection::Nothing);
        }
        if let Some(separator) = separator {
            match read_value(r, &name_info, separator)? {
                Inspection::Nothing => {}
                found => return Some(found),
            }
        }
        let may_be_distant = strength >= NameStrength::Strong
            && match separator {
                None | Some(Separator::Column | Separator::Prose | Separator::Apart) => true,
                // `"NAME": {"value": "V"}`
                Some(Separator::Colon(_) | Separator::Equals(_)) => is_object_or_line_next(&behind, begin)?,
                Some(_) => false,
            };
        if !may_be_distant {
            return Some(Inspection::Nothing);
        }
    }
    behind.value = None;
    let found = find_distant_value(&mut behind, NameEnd { begin, closed, blanks });
    *r = behind;
    let Some((at, separator)) = found? else { return Some(Inspection::Nothing) };
    r.at = at;
    read_value(r, &name_info, separator)
}

/// Reads the value behind a separator, and decides whether it is a secret.
fn read_value(r: &mut ValueReader<'_>, name_info: &SecretName<'_>, mut separator: Separator) -> Option<Inspection> {
    let view = r.view;
    let SecretName { begin, name, strength, opened, .. } = *name_info;
    r.skip(MAX_BLANKS, |b| matches!(b, b' ' | b'\t' | 0))?;
    r.value = Some(r.at);
    if skip_to_value(r, separator, strength)? {
        separator = Separator::Compared;
    }
    let mut quote = Quote::None;
    if matches!(separator, Separator::Colon(_)) && skip_block_header(r, begin)? {
        separator = Separator::Block;
    } else {
        let Some(read) = read_value_start(r, name_info, separator)? else { return Some(Inspection::Nothing) };
        quote = read;
    }
    let start = r.at;
    r.value = Some(start);
    if r.peek()? == BREAK {
        return Some(Inspection::Nothing);
    }
    let shell = separator == Separator::Equals(true) && !(opened && name_info.closed);
    let alone = shell && is_assignment(view, begin);
    // `'NAME=V'`
    if shell && opened && quote == Quote::None && strength != NameStrength::Fair {
        quote = read_outer_quote(r, begin)?;
    }
    let extent = ValueExtent {
        quote,
        to_blank: alone || matches!(separator, Separator::Prose | Separator::Column | Separator::Below),
        in_tag: separator == Separator::Tag,
        to_line_end: separator == Separator::Block
            || strength == NameStrength::Random && name.to_ascii_lowercase().ends_with(b"mnemonic"),
        max: if strength < NameStrength::Strong { MAX_WEAK_VALUE_BYTES } else { MAX_VALUE_BYTES },
    };
    let end = read_value_end(r, name_info, separator, &extent)?;
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
    let setting = value_setting(view, name_info, separator, quote != Quote::None, follows, (shell, alone));
    let value = &*view.without_breaks(start..end);
    // `<password>V</password>`
    if separator == Separator::Tag && !is_end_tag_next(r)? {
        return Some(Inspection::Nothing);
    }
    let fits = match separator {
        _ if user > 0 => guard::is_token_like(value) && !guard::is_placeholder(value),
        separator => fits_separator(separator, name_info, value, &setting),
    };
    let code = strength == NameStrength::Random && !is_random_in_place(r, name_info, end)?;
    if code || name::names_something_else(name, strength) {
        return Some(Inspection::Nothing);
    }
    if !fits {
        // `password = "x" -> "new"`
        let changed = match quote {
            Quote::Of(_, slashes) if strength >= NameStrength::Strong => read_changed_value(r, slashes)?,
            _ => None,
        };
        return Some(changed.map_or(Inspection::Nothing, |(from, to)| {
            Inspection::Found(Span::new(from, to, rule_for(strength), Rank::Context))
        }));
    }
    conclude_value(r, start..end, (separator, extent.max), quote, rule_for(strength))
}

/// The end of a value, which may contain any sign, blanks between groups, and a line break of a terminal.
fn read_value_end(
    r: &mut ValueReader<'_>,
    name_info: &SecretName<'_>,
    separator: Separator,
    extent: &ValueExtent,
) -> Option<usize> {
    let SecretName { begin, strength, .. } = *name_info;
    let (start, is_bare) = (r.at, extent.quote == Quote::None);
    let is_word = is_bare && !extent.to_blank && is_password_word(r, strength)?;
    let mut end = find_value_end(r, &ValueExtent { to_blank: extent.to_blank || is_word, ..*extent })?;
    if is_bare && strength == NameStrength::Password && end == start + 4 && is_in_groups(r, start)? {
        end = start + GROUPED_BYTES;
        r.at = end;
    }
    // The next cell of a row; the place in a page, `?key=V#top`.
    let in_link = begin.checked_sub(1).is_some_and(|at| matches!(r.view.bytes[at], b'?' | b'&'));
    for (sign, ends) in [(b',', strength == NameStrength::Random), (b'#', in_link)] {
        if ends && let Some(length) = memchr::memchr(sign, &r.view.bytes[start..end]) {
            end = start + length;
        }
    }
    extend_over_wrap(r, start..end, strength, separator)
}

/// Whether a value is a secret behind this separator.
fn fits_separator(separator: Separator, name_info: &SecretName<'_>, value: &[u8], setting: &ValueSetting) -> bool {
    let SecretName { name, strength, .. } = *name_info;
    let is_password = strength == NameStrength::Password;
    let is_call = setting.follows == b'(';
    match separator {
        Separator::Prose => {
            let is_secret = guard::is_password_in_prose(value) || is_password && guard::is_word_with_number(value);
            is_secret && !value.contains(&b'(') && !is_call
        }
        Separator::Column => {
            let is_secret = guard::is_token_in_column(value)
                || is_password && guard::is_password_in_prose(value) && !value.starts_with(b"0x")
                || name.ends_with(b"secret_id") && guard::is_uuid(value);
            is_secret && matches!(setting.follows, b' ' | b'\t' | BREAK)
        }
        Separator::Compared => guard::is_certain_value(value) || is_password && guard::is_clear_password(value),
        Separator::Near | Separator::Below => {
            let is_secret = guard::is_certain_value(value) && value.len() >= MIN_DISTANT_BYTES
                || is_password && guard::is_password_in_prose(value);
            is_secret && !is_call && !guard::is_file_path(value)
        }
        _ => guard::is_secret(strength, name, value, setting),
    }
}

/// A shorter value far from its name may be a word.
const MIN_DISTANT_BYTES: usize = 12;

/// Whether an object, or a line that is not indented, begins behind a separator and blanks.
fn is_object_or_line_next(r: &ValueReader<'_>, begin: usize) -> Option<bool> {
    let mut next = *r;
    next.at += 1;
    next.skip(MAX_BLANKS, |b| b == b' ')?;
    if next.peek()? != BREAK {
        return Some(next.peek()? == b'{');
    }
    let line = r.view.line_start(begin, MAX_NAME_REACH_BYTES);
    let indent = r.view.bytes[line..begin].iter().take_while(|b| **b == b' ').count();
    Some(!r.view.is_moved_at(next.at) && skip_line_break(&mut next)? && next.skip(MAX_BLANKS, |b| b == b' ')? <= indent)
}

/// The length of six groups of four letters and digits with blanks between them, as WordPress writes passwords.
const GROUPED_BYTES: usize = 29;

/// Whether such groups begin here.
fn is_in_groups(r: &ValueReader<'_>, start: usize) -> Option<bool> {
    let value = ValueReader { view: r.view, at: start, value: None };
    for n in 0..GROUPED_BYTES {
        let b = value.peek_at(n)?;
        if n % 5 == 4 && b != b' ' || n % 5 != 4 && !b.is_ascii_alphanumeric() {
            return Some(false);
        }
    }
    Some(!value.peek_at(GROUPED_BYTES)?.is_ascii_alphanumeric())
}

/// Whether the word behind a separator is a generated password, which may contain any sign.
fn is_password_word(r: &ValueReader<'_>, strength: NameStrength) -> Option<bool> {
    if strength < NameStrength::Strong {
        return Some(false);
    }
    let mut value = *r;
    value.skip(MAX_WEAK_VALUE_BYTES, |b| !matches!(b, b' ' | b'\t' | b'"' | b'\'' | b'`' | BREAK))?;
    let word = &r.view.bytes[r.at..value.at];
    // `a=V;b=c`, `a=V&b=c`
    let is_list = memchr::memchr2(b';', b'&', word).is_some_and(|at| word[at..].contains(&b'='));
    Some(
        !is_list
            && !word.contains(&b'|')
            && !word.ends_with(b",")
            && !word.ends_with(b";")
            && guard::is_generated_password(word),
    )
}

/// The quote around `'NAME=V'`, if the value is all that is behind the name.
fn read_outer_quote(r: &ValueReader<'_>, begin: usize) -> Option<Quote> {
    let sign = r.view.bytes[begin - 1];
    let slashes = r.view.bytes[..begin - 1].iter().rev().take(7).take_while(|b| **b == b'\\').count();
    let mut value = ValueReader { view: r.view, at: r.at, value: None };
    value.skip(MAX_WEAK_VALUE_BYTES, |b| !matches!(b, b' ' | b'&' | b'\\' | BREAK) && b != sign)?;
    let text = &r.view.bytes[r.at..value.at];
    // `'a=V;b=c'`
    let is_list = memchr::memchr(b';', text).is_some_and(|at| at + 1 == text.len() || text[at..].contains(&b'='));
    Some(if value.at > r.at && !is_list && value.is_closing_quote(sign, slashes)? {
        Quote::Of(sign, slashes)
    } else {
        Quote::None
    })
}

/// The end of a value whose line a terminal wrapped, if it is a secret together with the beginning of the next line.
fn extend_over_wrap(
    r: &mut ValueReader<'_>,
    value: Range<usize>,
    strength: NameStrength,
    separator: Separator,
) -> Option<usize> {
    let may_extend = strength >= NameStrength::Strong
        && separator != Separator::Block
        && value.start < value.end
        && r.at == value.end
        && r.peek()? == BREAK
        && r.view.is_wrapped_line_end(value.end);
    let mut next = ValueReader { view: r.view, at: r.at, value: None };
    if !may_extend || r.view.is_moved_at(r.at) || !skip_line_break(&mut next)? {
        return Some(value.end);
    }
    let from = next.at;
    // `NAME=value`
    let mut name = next;
    if name.skip(MAX_NAME_REACH_BYTES, is_name_byte)? > 0
        && name.peek()? == b'='
        && name.peek_at(1)? != b'='
        && name.peek_at(1)? != BREAK
    {
        return Some(value.end);
    }
    let is_password = strength == NameStrength::Password;
    let is_sign = |b: u8| is_password && matches!(b, b'!' | b'#' | b'$' | b'*' | b'^' | b'@' | b'?');
    let is_part = |b: u8| crate::span::is_token_byte(b) || matches!(b, b':' | b'%') || is_sign(b);
    let length = next.skip(MAX_WEAK_VALUE_BYTES, is_part)?;
    let joined = [&*r.view.without_breaks(value.clone()), &r.view.bytes[from..from + length]].concat();
    let ends = matches!(next.peek()?, BREAK | b' ' | b'"' | b'\'' | b',' | b';' | b'}' | b')');
    let is_secret = guard::is_certain_value(&joined) || is_password && guard::is_generated_password(&joined);
    if length < 3 || !ends || !is_secret {
        return Some(value.end);
    }
    r.at = next.at;
    Some(next.at)
}

/// Skips line breaks and conditions before a value. True: it stands behind a condition.
fn skip_to_value(r: &mut ValueReader<'_>, separator: Separator, strength: NameStrength) -> Option<bool> {
    skip_continued_line(r)?;
    let assigns = matches!(separator, Separator::Colon(_) | Separator::Equals(_)) && strength >= NameStrength::Strong;
    if assigns {
        skip_to_quoted_line(r)?;
        return skip_condition(r);
    }
    // `<name>`, and the value on the next line.
    if separator == Separator::Tag && r.peek()? == BREAK && skip_line_break(r)? {
        r.skip(2 * MAX_BLANKS, |b| matches!(b, b' ' | b'\t'))?;
    }
    Some(false)
}

/// Whether an end tag follows, perhaps on the next line.
fn is_end_tag_next(r: &ValueReader<'_>) -> Option<bool> {
    let mut tag = ValueReader { view: r.view, at: r.at, value: None };
    if tag.peek()? == BREAK && !tag.view.is_moved_at(tag.at) && skip_line_break(&mut tag)? {
        tag.skip(2 * MAX_BLANKS, |b| matches!(b, b' ' | b'\t'))?;
    }
    Some(tag.peek()? == b'<' && tag.peek_at(1)? == b'/')
}

/// The span of a value that is a secret, with what belongs to it behind its end.
fn conclude_value(
    r: &mut ValueReader<'_>,
    value: Range<usize>,
    (separator, max): (Separator, usize),
    quote: Quote,
    rule: &'static str,
) -> Option<Inspection> {
    let view = r.view;
    let Range { start, mut end } = value;
    // A terminal wrapped the line inside the value.
    let continues = end < view.len()
        && !matches!(separator, Separator::Block | Separator::Below)
        && r.peek()? == BREAK
        && (quote != Quote::None || guard::is_random_token(&view.without_breaks(start..end)))
        && view.is_wrapped_line_end(end);
    if separator == Separator::Block {
        end = skip_block_lines(r, start, end)?;
    }
    // The rest of a longer value is removed without another placeholder.
    let in_quotes: fn(u8) -> bool = |b| !matches!(b, b'"' | b'\'' | b'`');
    let is_quoted = matches!(quote, Quote::Of(b'"' | b'\'' | b'`', _));
    let belongs = if is_quoted { in_quotes } else { crate::span::is_token_byte as fn(u8) -> bool };
    let swallow = (end - start >= max).then_some(belongs);
    let span = Span { swallow, continues, ..Span::new(start, end, rule, Rank::Context) };
    // `password = "old" -> "new"`
    if let Quote::Of(_, slashes) = quote
        && swallow.is_none()
        && let Some((from, to)) = read_changed_value(r, slashes)?
    {
        let changed = Span::new(from, to, rule, Rank::Context);
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
        b"sig" | b"signature" | b"jwt" => matches!(before, Some(b'?' | b'&')),
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

/// Where the name begins of which a word was found.
fn name_begin(view: TextView<'_>, word: usize) -> usize {
    let lowest = word.saturating_sub(MAX_NAME_REACH_BYTES);
    let mut begin = word;
    while begin > lowest && is_name_byte(view.bytes[begin - 1]) {
        begin -= 1;
    }
    // `\u0022name\u0022`
    if [&b"\\u0022"[..], b"\\u0027"].iter().any(|quote| view.bytes[begin.saturating_sub(1)..word].starts_with(quote)) {
        begin += 5;
    }
    // `%26name%3D`
    let follows_percent = begin > 0 && view.bytes[begin - 1] == b'%';
    if follows_percent && word >= begin + 2 && view.bytes[begin..begin + 2].iter().all(u8::is_ascii_hexdigit) {
        begin += 2;
    }
    begin
}

/// Reads the name around the word that was found. The inner `None`: no value follows, or it does not name a secret.
fn read_name<'v>(r: &mut ValueReader<'v>, word: usize) -> Option<Option<SecretName<'v>>> {
    let view = r.view;
    let begin = name_begin(view, word);
    if r.skip(MAX_NAME_REACH_BYTES, is_name_byte)? == MAX_NAME_REACH_BYTES {
        return Some(None);
    }
    let mut name = &view.bytes[begin..r.at];
    // A sentence ends with a dot, a name does not.
    while let [rest @ .., b'.' | b'-'] = name {
        name = rest;
    }
    let before = |n: usize| begin.checked_sub(n).and_then(|i| view.byte(i));
    let quotes = [&b"&quot;"[..], b"\\u0022", b"\\u0027"];
    let opened =
        matches!(before(1), Some(b'"' | b'\'' | b'`')) || quotes.iter().any(|q| view.bytes[..begin].ends_with(q));
    let (mut closed, mut subscript) = (false, false);
    for _ in 0..3 {
        let in_braces = before(1) == Some(b'{') || closed && before(2) == Some(b'{');
        if r.take_byte(b']')? || in_braces && r.take_byte(b'}')? {
            subscript = true;
        } else if r.peek()? == b'*' && (before(1) == Some(b'*') || r.peek_at(1)? == b'*') {
            r.skip(2, |b| b == b'*')?;
        } else if before(1).is_some_and(|b| !b.is_ascii()) && skip_curly_quote(r)? || r.read_quote()? != Quote::None {
            closed = true;
        } else {
            break;
        }
    }
    // `Secret ID = V`, `Key Content : V`
    let mut is_content = false;
    if !opened && !closed {
        let more = if matches!(name, b"Secret" | b"secret") { &b" ID"[..] } else { b" Content" };
        if matches!(name, b"Secret" | b"secret" | b"Key") && is_text_next(r, more)? {
            r.at += more.len();
            is_content = name == b"Key";
        }
    }
    // The arguments of a running program end with NUL.
    let blanks = r.skip(MAX_BLANKS, |b| matches!(b, b' ' | b'\t' | 0))?;
    // `Unseal Key 1: V`
    if blanks == 1 && view.bytes[..begin].ends_with(b"Unseal ") {
        r.skip(2, |b| b.is_ascii_digit())?;
    }
    // Behind a blank the value itself may begin.
    r.value = (blanks > 0).then_some(r.at);
    // Most hits are plain words: no separator follows them.
    let flag = name.starts_with(b"-");
    // `<name>`, but not the argument of a type or the name of a group.
    let in_tag = before(1) == Some(b'<') && !before(2).is_some_and(|b| b.is_ascii_alphanumeric() || b == b':');
    if before(1) == Some(b'<') && !in_tag {
        return Some(None);
    }
    let separated = may_separate(r, (begin, name), (opened, closed), blanks)?;
    let is_given = || {
        blanks > 1
            || is_command(view, begin, name)
            || is_setting_command(view, begin)
            || follows_telling_word(view, begin)
            || name.contains(&b'_')
    };
    let is_distant = !(separated || flag || blanks > 0 && is_given());
    if is_distant && find_distant_value(r, NameEnd { begin, closed, blanks })?.is_none() {
        return Some(None);
    }
    let follows_word = follows_telling_word(view, begin);
    let strength = match name::name_strength(name, (closed || opened) && !subscript) {
        _ if is_content => NameStrength::Password,
        NameStrength::Weak | NameStrength::Fair if follows_word => NameStrength::Strong,
        NameStrength::Fair if belongs_to_provider(view, begin) => NameStrength::Strong,
        weak @ (NameStrength::Weak | NameStrength::Fair)
            if is_distant || matches!(r.peek()?, b':' | b'|' | b'*' | b'i' | b'f' | b'"' | b'\'' | b'`') =>
        {
            joined_name(view, begin, name).map_or(weak, |joined| name::name_strength(&joined, true).max(weak))
        }
        strength => strength,
    };
    if strength == NameStrength::None || is_distant && strength < NameStrength::Strong {
        return Some(None);
    }
    Some(Some(SecretName { begin, name, strength, opened, closed, blanks, follows_word, is_distant }))
}

/// Whether the object or the section in which a name stands has the name of a provider: `"codecov": {"token": "V"}`.
fn belongs_to_provider(view: TextView<'_>, begin: usize) -> bool {
    const MAX_OBJECT_BYTES: usize = 160;
    let text = &view.bytes[begin.saturating_sub(MAX_OBJECT_BYTES)..begin];
    let last_word = |text: &[u8]| -> bool {
        let end = text.len() - text.iter().rev().take_while(|b| !b.is_ascii_alphanumeric()).count();
        let length = text[..end].iter().rev().take_while(|b| is_name_byte(**b)).count();
        text.len() - end <= 4 && provider_values::is_provider(&text[end - length..end])
    };
    let mut depth = 0;
    for (at, b) in text.iter().enumerate().rev() {
        match b {
            b'}' => depth += 1,
            b'{' if depth > 0 => depth -= 1,
            b'{' => return last_word(&text[..at]),
            // `[codecov]`
            b']' if depth == 0 && text.get(at + 1) == Some(&b'\n') => {
                let is_section =
                    memchr::memrchr(b'[', &text[..at]).is_some_and(|open| open == 0 || text[open - 1] == b'\n');
                return is_section && last_word(&text[..at]);
            }
            _ => {}
        }
    }
    false
}

/// Whether a separator may begin here, behind a name at `begin` that may be in quotes and is followed by `blanks`.
fn may_separate(
    r: &ValueReader<'_>,
    (begin, name): (usize, &[u8]),
    (opened, closed): (bool, bool),
    blanks: usize,
) -> Option<bool> {
    let view = r.view;
    let before = |n: usize| begin.checked_sub(n).and_then(|i| view.byte(i));
    let in_tag = before(1) == Some(b'<');
    Some(match r.peek()? {
        b'=' | b':' | b'?' | b'+' | b'%' => true,
        b'!' => r.peek_at(1)? == b'=',
        b'{' => {
            !closed && (blanks == 1 && r.peek_at(2)? == b'g' || blanks == 0 && matches!(r.peek_at(1)?, b'"' | b'\''))
        }
        b';' | b']' => view.bytes[..begin].ends_with(b"variable="),
        b'`' => blanks > 0 && !closed,
        b'.' => blanks > 0 && !closed && r.peek_at(1)? == b'.' && r.peek_at(2)? == b'.',
        b'<' if blanks > 0 && r.peek_at(1)? == b'<' => r.peek_at(2)? == b'<',
        b'>' if in_tag => true,
        b'-' => blanks > 0 && r.peek_at(1)? == b'>',
        b'<' if blanks > 0 && r.peek_at(1)? == b'-' => true,
        b'"' | b'$' => blanks > 0 && !closed,
        b'(' => blanks == 0 && !closed && matches!(r.peek_at(1)?, b'"' | b'\'' | b'\\'),
        b'B' => blanks == 1 && !closed && r.peek_at(1)? == b'Y' && r.peek_at(2)? == b' ',
        b't' => blanks == 1 && r.peek_at(1)? == b'o' && r.peek_at(2)? == b' ',
        // `password for user bob: V`, `Access Key [None]: V`
        b'f' => blanks == 1 && !closed && r.peek_at(1)? == b'o' && r.peek_at(2)? == b'r' && r.peek_at(3)? == b' ',
        b'[' => blanks == 1 && !closed && r.peek_at(1)? == b'N',
        b'F' => blanks == 1 && !closed && r.peek_at(1)? == b'O' && r.peek_at(2)? == b'R' && r.peek_at(3)? == b' ',
        b'R' => blanks > 1 && !closed && r.peek_at(1)? == b'E' && r.peek_at(2)? == b'G' && r.peek_at(3)? == b'_',
        b'S' => blanks > 0 && !closed && r.peek_at(1)? == b'e' && r.peek_at(2)? == b'c' && r.peek_at(3)? == b'u',
        // The bar of a drawn table.
        0xe2 => blanks > 0,
        b'<' | b'>' => closed || before(1) == Some(b'>'),
        b'i' => blanks == 1 && !closed && r.peek_at(1)? == b's' && matches!(r.peek_at(2)?, b' ' | b':'),
        b'0'..=b'9' => blanks > 0 && !closed && is_typed_name(name) && r.peek_at(1)? == b' ',
        _ if in_tag && blanks > 0 => true,
        b',' => opened == closed && (opened || blanks == 0),
        b'c' | b'v' => closed && blanks == 1,
        // A full-width colon.
        0xef => r.peek_at(1)? == 0xbc && r.peek_at(2)? == 0x9a,
        b'|' | b'\'' => blanks > 0,
        // `name: NAME`, with the value on the next line.
        BREAK => {
            let line = view.line_start(begin, MAX_NAME_REACH_BYTES);
            let alone = [&b">>>"[..], b"-"].contains(&view.bytes[line..begin].trim_ascii());
            alone || view.bytes[begin.saturating_sub(8)..begin].windows(4).any(|w| w.eq_ignore_ascii_case(b"name"))
        }
        _ => closed && blanks > 0,
    })
}

/// Reads over a type, a prefix, a quote and a scheme before the value. The inner `None`: there is no value.
fn read_value_start(
    r: &mut ValueReader<'_>,
    name_info: &SecretName<'_>,
    separator: Separator,
) -> Option<Option<Quote>> {
    // `let key: &str = "…"`: a type comes first.
    let typed = separator == Separator::Colon(true) && !name_info.closed && skip_type(r)?;
    skip_format(r)?;
    // `? name: › V`, `**name:** V`
    if !skip_text(r, "› ".as_bytes())? && matches!(separator, Separator::Colon(_)) {
        skip_text(r, b"** ")?;
    }
    skip_curly_quote(r)?;
    // `b"…"`, `rb'…'`, `@"…"`.
    let prefix = |b: u8| matches!(b, b'b' | b'r' | b'f' | b'u' | b'L' | b'N' | b'@');
    skip_wrapper(r)?;
    if separator == Separator::Tag {
        skip_text(r, b"<Value>")?;
        skip_text(r, b"<![CDATA[")?;
    } else if matches!(separator, Separator::Colon(_)) {
        skip_yaml_marker(r)?;
    }
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
    // `map[X-Api-Key:[V]]`
    let in_map = separator == Separator::Colon(false) && name_info.name.contains(&b'-');
    if in_map && r.peek()? == b'[' && !matches!(r.peek_at(1)?, b'"' | b'\'' | b'[' | b']') {
        r.at += 1;
        return Some(Some(Quote::Of(b']', 0)));
    }
    let letters = match (prefix(r.peek()?), r.peek_at(1)?) {
        (true, b'"' | b'\'') => 1,
        (true, b) if prefix(b) && matches!(r.peek_at(2)?, b'"' | b'\'') => 2,
        _ => 0,
    };
    r.at += letters;
    let mut quote = r.read_quote()?;
    skip_long_quote(r, quote)?;
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
        paired: follows == BREAK && follows_user(view, begin),
    }
}

/// Whether the line above the one of a name is `Username: …` or similar.
fn follows_user(view: TextView<'_>, begin: usize) -> bool {
    const NAMES: &[&[u8]] = &[b"user", b"username", b"login", b"user name", b"benutzername", b"account"];
    let line = view.line_start(begin, 64);
    let breaks = view.bytes[..line].iter().rev().take(2).take_while(|b| crate::visible_text::is_break(**b)).count();
    let end = line - breaks;
    let above = view.bytes[view.line_start(end, 120)..end].trim_ascii();
    let name = above.split(|b| *b == b':').next().unwrap_or_default().to_ascii_lowercase();
    // A member of an object ends with a comma.
    above.contains(&b':') && !above.ends_with(b",") && NAMES.contains(&name.trim_ascii())
}

/// A name of a secret, and how it is written.
pub(crate) struct SecretName<'a> {
    pub(crate) begin: usize,
    pub(crate) name: &'a [u8],
    pub(crate) strength: NameStrength,
    pub(crate) opened: bool,
    pub(crate) closed: bool,
    pub(crate) blanks: usize,
    /// The word before it makes it a name of a secret: `API key`.
    pub(crate) follows_word: bool,
    /// No separator follows it, but a value that is not far may be its own.
    pub(crate) is_distant: bool,
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
    // A log puts the time before it.
    let is_time = |b: &u8| b.is_ascii_digit() || matches!(b, b'T' | b'Z' | b':' | b'.' | b'-' | b'+' | b' ');
    matches!(separator, Separator::Colon(true) | Separator::Equals(_))
        && (matches!(before, b"-") || before.iter().all(is_time))
        && follows == BREAK
}
