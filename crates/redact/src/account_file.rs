//! Finds passwords on lines of files that have no names: `.pgpass`, `sasl_passwd`, `.htpasswd`, `.curlrc`.

use crate::{
    command_line, guard,
    span::{Inspection, Rank, Span},
    value_reader::{BREAK, Quote, ValueReader},
    value_syntax::skip_line_break,
    visible_text::TextView,
};

const MAX_FIELD_BYTES: usize = 80;
const MAX_PASSWORD_BYTES: usize = 256;

fn found(start: usize, end: usize) -> Inspection {
    Inspection::Found(Span::new(start, end, "file-password", Rank::Context))
}

/// Reads a password to a blank, a quote or the end of the line.
fn read_password(r: &mut ValueReader<'_>, least: usize) -> Option<Inspection> {
    let start = r.at;
    r.value = Some(start);
    let ends = |b: u8| matches!(b, BREAK | b' ' | b'\t' | b'"' | b'\'' | b'`');
    let length = r.skip(MAX_PASSWORD_BYTES, |b| !ends(b))?;
    r.peek()?;
    let value = &r.view.bytes[start..r.at];
    let empty = !value.iter().any(u8::is_ascii_alphanumeric);
    if empty || length < least || length == MAX_PASSWORD_BYTES || !command_line::is_argument_secret(value) {
        return Some(Inspection::Nothing);
    }
    Some(found(start, r.at))
}

/// Inspects a line `host:port:database:user:V`; one of the first fields is at `start`.
pub(crate) fn inspect_pgpass(view: TextView<'_>, start: usize, _end: usize) -> Inspection {
    let is_field = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'*' | b':' | b'/');
    let back = view.bytes[..start].iter().rev().take(MAX_FIELD_BYTES).take_while(|b| is_field(**b)).count();
    let begin = start - back;
    if begin > 0 && !matches!(view.bytes[begin - 1], b'\n' | b'\r' | b' ' | b'"' | b'\'' | b'\t') {
        return Inspection::Nothing;
    }
    let mut r = ValueReader { view, at: begin, value: None };
    read_pgpass(&mut r).unwrap_or_else(|| r.unfinished())
}

fn read_pgpass(r: &mut ValueReader<'_>) -> Option<Inspection> {
    for field in 0..4 {
        let from = r.at;
        let is_field = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'*' | b'/' | b'@');
        let length = r.skip(MAX_FIELD_BYTES, is_field)?;
        let text = &r.view.bytes[from..r.at];
        let port = text == b"*" || matches!(length, 4 | 5) && text.iter().all(u8::is_ascii_digit);
        if length == 0 || field == 1 && !port || !r.take_byte(b':')? {
            return Some(Inspection::Nothing);
        }
    }
    // Two colons, or a number: a place in a file or a time.
    if matches!(r.peek()?, b':' | b'/') {
        return Some(Inspection::Nothing);
    }
    read_password(r, 6)
}

/// Inspects a line `[host]:port user:V`.
pub(crate) fn inspect_sasl(view: TextView<'_>, _start: usize, end: usize) -> Inspection {
    let mut r = ValueReader { view, at: end, value: None };
    read_sasl(&mut r).unwrap_or_else(|| r.unfinished())
}

fn read_sasl(r: &mut ValueReader<'_>) -> Option<Inspection> {
    r.skip(24, |b| matches!(b, b' ' | b'\t'))?;
    let user =
        r.skip(MAX_FIELD_BYTES, |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'@' | b'+'))?;
    if user == 0 || !r.take_byte(b':')? {
        return Some(Inspection::Nothing);
    }
    read_password(r, 4)
}

/// Inspects `user = "name:V"` of a `.curlrc`; the name begins at `end`.
pub(crate) fn inspect_user_line(view: TextView<'_>, _start: usize, end: usize) -> Inspection {
    let mut r = ValueReader { view, at: end, value: None };
    read_user_line(&mut r).unwrap_or_else(|| r.unfinished())
}

fn read_user_line(r: &mut ValueReader<'_>) -> Option<Inspection> {
    let user = r.skip(MAX_FIELD_BYTES, |b| !matches!(b, BREAK | b':' | b'"' | b' ' | b'\'' | b'/' | b'{' | b'$'))?;
    if user == 0 || !r.take_byte(b':')? {
        return Some(Inspection::Nothing);
    }
    let start = r.at;
    r.value = Some(start);
    r.skip(MAX_PASSWORD_BYTES, |b| !matches!(b, BREAK | b'"'))?;
    let value = &r.view.bytes[start..r.at];
    if r.peek()? != b'"' || !command_line::is_argument_secret(value) || guard::is_code_like(value) {
        return Some(Inspection::Nothing);
    }
    Some(found(start, r.at))
}

/// Inspects `{SHA}V` of a password file.
pub(crate) fn inspect_sha(view: TextView<'_>, _start: usize, end: usize) -> Inspection {
    let mut r = ValueReader { view, at: end, value: Some(end) };
    let read = |r: &mut ValueReader<'_>| {
        let length = r.skip(96, |b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))?;
        r.skip(2, |b| b == b'=')?;
        let random = guard::is_token_like(&r.view.bytes[end..r.at]);
        Some(if length >= 20 && random { found(end, r.at) } else { Inspection::Nothing })
    };
    read(&mut r).unwrap_or_else(|| r.unfinished())
}

/// Inspects `snmp-server community V`.
pub(crate) fn inspect_community(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let line = view.line_start(start, 64);
    if !matches!(view.bytes[line..start].trim_ascii(), b"snmp-server" | b"set snmp" | b"snmp") {
        return Inspection::Nothing;
    }
    let mut r = ValueReader { view, at: end, value: Some(end) };
    let read = |r: &mut ValueReader<'_>| {
        if r.read_quote()? != Quote::None {
            r.value = Some(r.at);
        }
        read_password(r, 4)
    };
    read(&mut r).unwrap_or_else(|| r.unfinished())
}

/// Inspects the value that a traced script tests for being empty: `+ [[ -z V ]]`. Hashes of commits are tested like secrets.
pub(crate) fn inspect_tested(view: TextView<'_>, _start: usize, end: usize) -> Inspection {
    const COMMIT_BYTES: usize = 40;
    let mut r = ValueReader { view, at: end, value: Some(end) };
    let read = |r: &mut ValueReader<'_>| {
        r.read_quote()?;
        let start = r.at;
        r.value = Some(start);
        r.skip(MAX_PASSWORD_BYTES, |b| !matches!(b, BREAK | b' ' | b'\''))?;
        let value = &r.view.bytes[start..r.at];
        let is_commit = value.len() == COMMIT_BYTES && value.iter().all(u8::is_ascii_hexdigit);
        let is_secret = guard::is_certain_value(value) || guard::is_clear_password(value);
        let fits = value.len() >= 12 && is_secret && !is_commit && !guard::is_file_path(value);
        Some(if fits {
            Inspection::Found(Span::new(start, r.at, "secret-value", Rank::Context))
        } else {
            Inspection::Nothing
        })
    };
    read(&mut r).unwrap_or_else(|| r.unfinished())
}

/// Inspects a value behind a label that is certain: `Пароль: V`.
pub(crate) fn inspect_labelled(view: TextView<'_>, _start: usize, end: usize) -> Inspection {
    let mut r = ValueReader { view, at: end, value: Some(end) };
    let read = |r: &mut ValueReader<'_>| {
        r.skip(4, |b| matches!(b, b' ' | b'`' | b'"' | b'*'))?;
        let start = r.at;
        r.value = Some(start);
        r.skip(MAX_PASSWORD_BYTES, |b| !matches!(b, BREAK | b' ' | b'"' | b'`' | b'<'))?;
        let value = &r.view.bytes[start..r.at];
        let is_secret = value.len() >= 8
            && (guard::is_password_in_prose(value)
                || guard::is_certain_value(value)
                || guard::is_generated_password(value));
        Some(if is_secret {
            Inspection::Found(Span::new(start, r.at, "password", Rank::Context))
        } else {
            Inspection::Nothing
        })
    };
    read(&mut r).unwrap_or_else(|| r.unfinished())
}

/// Inspects the rest of a line of a file of cookies: when it ends, its name and its value.
pub(crate) fn inspect_cookie_line(view: TextView<'_>, _start: usize, end: usize) -> Inspection {
    let mut r = ValueReader { view, at: end, value: None };
    let read = |r: &mut ValueReader<'_>| {
        let is_time = r.skip(12, |b| b.is_ascii_digit())? > 0 && r.take_byte(b'\t')?;
        if !is_time || r.skip(MAX_FIELD_BYTES, |b| b.is_ascii_graphic())? == 0 || !r.take_byte(b'\t')? {
            return Some(Inspection::Nothing);
        }
        let start = r.at;
        r.value = Some(start);
        r.skip(MAX_COOKIE_BYTES, |b| b.is_ascii_graphic())?;
        let value = &r.view.bytes[start..r.at];
        let is_secret = value.len() >= 16 && value.iter().any(u8::is_ascii_digit) && !guard::is_placeholder(value);
        let span = Span::new(start, r.at, "cookie", Rank::Context);
        Some(if is_secret { Inspection::Found(span) } else { Inspection::Nothing })
    };
    read(&mut r).unwrap_or_else(|| r.unfinished())
}

/// Inspects the answer to `334 UGFzc3dvcmQ6`, with which a mail server asks for a password in base64.
pub(crate) fn inspect_mail_login(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    if !view.bytes[..start].ends_with(b"334 ") {
        return Inspection::Nothing;
    }
    let mut r = ValueReader { view, at: end, value: None };
    let read = |r: &mut ValueReader<'_>| {
        if !skip_line_break(r)? {
            return Some(Inspection::Nothing);
        }
        // A dump marks who speaks: ` -> `, `C: `.
        r.skip(4, |b| matches!(b, b' ' | b'-' | b'>' | b'C' | b':' | b'~'))?;
        let start = r.at;
        r.value = Some(start);
        let length = r.skip(MAX_COOKIE_BYTES, |b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))?;
        let is_alone = length >= 8 && r.peek()? == BREAK;
        Some(if is_alone {
            Inspection::Found(Span::new(start, r.at, "file-password", Rank::Context))
        } else {
            Inspection::Nothing
        })
    };
    read(&mut r).unwrap_or_else(|| r.unfinished())
}

/// The longest value of a cookie.
const MAX_COOKIE_BYTES: usize = 4096;

/// Inspects `login: user / V`.
pub(crate) fn inspect_login(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let before = &view.bytes[..start];
    if !matches!(before, [.., b'l' | b'L']) || matches!(before, [.., b, _] if b.is_ascii_alphanumeric()) {
        return Inspection::Nothing;
    }
    let mut r = ValueReader { view, at: end, value: None };
    let read = |r: &mut ValueReader<'_>| {
        r.skip(4, |b| b == b' ')?;
        let user = r.skip(MAX_FIELD_BYTES, |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'@'))?;
        let blank = r.skip(2, |b| b == b' ')?;
        if user == 0 || !r.take_byte(b'/')? {
            return Some(Inspection::Nothing);
        }
        if r.skip(2, |b| b == b' ')? != blank {
            return Some(Inspection::Nothing);
        }
        let from = r.at;
        Some(match read_password(r, 6)? {
            Inspection::Found(span) if guard::is_token_like(&r.view.bytes[from..span.end]) => Inspection::Found(span),
            _ => Inspection::Nothing,
        })
    };
    read(&mut r).unwrap_or_else(|| r.unfinished())
}

/// Inspects `user NAME on >V` of the users of Redis.
pub(crate) fn inspect_acl(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let line = view.line_start(start, MAX_FIELD_BYTES);
    let before = view.bytes[line..start].to_ascii_lowercase();
    if !before.split(|b| *b == b' ').any(|word| matches!(word, b"user" | b"setuser")) {
        return Inspection::Nothing;
    }
    let mut r = ValueReader { view, at: end, value: None };
    read_password(&mut r, 4).unwrap_or_else(|| r.unfinished())
}

/// Inspects `AUTH V`, `AUTH user V` and `AUTH PLAIN V` of protocols in which commands are lines.
pub(crate) fn inspect_auth(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let line = view.line_start(start, MAX_FIELD_BYTES);
    let before = view.bytes[line..start].trim_ascii();
    // At the start of a line, behind a prompt or a mark of direction.
    if !(before.is_empty() || before.ends_with(b">") || before.ends_with(b"C:")) {
        return Inspection::Nothing;
    }
    let mut r = ValueReader { view, at: end, value: Some(end) };
    let read = |r: &mut ValueReader<'_>| {
        let is_word = |b: u8| !matches!(b, BREAK | b' ' | b'\t');
        let from = r.at;
        let first = r.skip(MAX_PASSWORD_BYTES, is_word)?;
        let word = &r.view.bytes[from..from + first];
        let mechanism = matches!(word, b"PLAIN" | b"LOGIN" | b"XOAUTH2" | b"OAUTHBEARER" | b"CRAM-MD5");
        if r.peek()? == BREAK {
            let fits = !mechanism && (guard::is_password_in_prose(word) || guard::is_certain_value(word));
            return Some(if fits { found(from, r.at) } else { Inspection::Nothing });
        }
        r.skip(1, |b| b == b' ')?;
        let from = r.at;
        r.value = Some(from);
        r.skip(MAX_PASSWORD_BYTES, is_word)?;
        let word = &r.view.bytes[from..r.at];
        let fits = r.peek()? == BREAK
            && (mechanism && word.len() >= 8 && guard::is_basic_pair_of_auth(word)
                || guard::is_password_in_prose(word)
                || guard::is_certain_value(word));
        Some(if fits { found(from, r.at) } else { Inspection::Nothing })
    };
    read(&mut r).unwrap_or_else(|| r.unfinished())
}

/// Inspects `send "V\r"` of a script that waits for the question for a password.
pub(crate) fn inspect_expect(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let before = &view.bytes[start.saturating_sub(MAX_FIELD_BYTES)..start];
    if memchr::memmem::find(before, b"assword").is_none() {
        return Inspection::Nothing;
    }
    let mut r = ValueReader { view, at: end, value: Some(end) };
    let read = |r: &mut ValueReader<'_>| {
        r.skip(2, |b| b == b'-')?;
        let from = r.at;
        let length = r.skip(MAX_PASSWORD_BYTES, |b| !matches!(b, BREAK | b'"' | b'\\'))?;
        let value = &r.view.bytes[from..r.at];
        let ends = matches!(r.peek()?, b'"' | b'\\');
        let fits = ends && length >= 4 && command_line::is_argument_secret(value) && !guard::is_code_like(value);
        Some(if fits { found(from, r.at) } else { Inspection::Nothing })
    };
    read(&mut r).unwrap_or_else(|| r.unfinished())
}

/// Inspects `"github-oauth": {"github.com": "V"}` of Composer.
pub(crate) fn inspect_host_tokens(view: TextView<'_>, _start: usize, end: usize) -> Inspection {
    let mut r = ValueReader { view, at: end, value: None };
    let read = |r: &mut ValueReader<'_>| {
        let between = |b: u8| matches!(b, b' ' | b':' | b'{' | BREAK | b'\t');
        r.skip(24, between)?;
        if !r.take_byte(b'"')? {
            return Some(Inspection::Nothing);
        }
        r.skip(MAX_FIELD_BYTES, |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))?;
        if !r.take_byte(b'"')? {
            return Some(Inspection::Nothing);
        }
        r.skip(4, |b| matches!(b, b' ' | b':'))?;
        if !r.take_byte(b'"')? {
            return Some(Inspection::Nothing);
        }
        Some(match read_password(r, 16)? {
            Inspection::Found(span) if guard::is_token_like(&r.view.bytes[span.start..span.end]) => {
                Inspection::Found(span)
            }
            _ => Inspection::Nothing,
        })
    };
    read(&mut r).unwrap_or_else(|| r.unfinished())
}
