//! Finds the values of headers that contain secrets alone, and the passwords of links.

use crate::{
    context::{MAX_BLANKS, MAX_VALUE_BYTES, ValueReader, is_name_byte, skip_scheme},
    guard,
    span::{Inspection, Rank, Span},
    visible_text::{TextView, is_break},
};

/// The texts by which such headers are found.
pub(crate) const HEADER_STARTS: &[&str] = &["uthorization", "UTHORIZATION", "ookie:", "OOKIE:", "ookie\"", "ookie'"];

/// Inspects a header: its whole value is redacted, except for the scheme and the first cookie name.
pub(crate) fn inspect_header(view: TextView<'_>, at: usize, length: usize) -> Inspection {
    let mut r = ValueReader { view, at: at + length, value: None };
    read_header(&mut r, at).unwrap_or_else(|| r.unfinished())
}

fn read_header(r: &mut ValueReader<'_>, at: usize) -> Option<Inspection> {
    let view = r.view;
    let last = view.bytes[r.at - 1];
    let cookie = matches!(last, b':' | b'"' | b'\'');
    if last != b':' {
        if !cookie {
            r.read_quote()?;
        }
        r.skip(4, |b| b == b' ')?;
        if !matches!(r.peek()?, b':' | b'=' | b',') {
            return Some(Inspection::Nothing);
        }
        r.at += 1;
    }
    r.skip(MAX_BLANKS, |b| matches!(b, b' ' | b'\t' | b'['))?;
    r.value = Some(r.at);
    r.read_quote()?;
    if cookie {
        // The first cookie name stays.
        r.skip(64, is_name_byte)?;
        if !r.take_byte(b'=')? {
            return Some(Inspection::Nothing);
        }
    } else {
        skip_scheme(r)?;
        // An unknown scheme: a word, followed by another one.
        let word =
            (0..20).take_while(|n| r.peek_at(*n).is_some_and(|b| b.is_ascii_alphanumeric() || b == b'-')).count();
        let next = (r.peek_at(word)?, r.peek_at(word + 1)?);
        if word >= 3 && next.0 == b' ' && next.1.is_ascii_alphanumeric() {
            r.at += word + 1;
        }
    }
    r.value = Some(r.at);
    let start = r.at;
    let set_cookie = cookie && at >= 5 && view.bytes[at - 5..at].to_ascii_lowercase().starts_with(b"set-");
    let until = view.until_moved(start);
    let longest = &view.bytes[start..until.min(start + MAX_VALUE_BYTES)];
    // `Credential=…, Signature=…`
    let word = longest.iter().take(32).take_while(|b| !matches!(b, b' ' | b'\t' | b','));
    let parts = word.zip(longest.iter().skip(1)).any(|(a, b)| *a == b'=' && *b != b'=' && !is_break(*b));
    let ends = |b: u8| match b {
        b'\n' | b'\r' | b'"' | b'\'' | b'`' => true,
        b';' => set_cookie || !cookie,
        b' ' | b'\t' | b',' => !cookie && !parts,
        _ => false,
    };
    let length = match longest.iter().position(|b| ends(*b)) {
        Some(n) => n,
        None if longest.len() == MAX_VALUE_BYTES || view.end || view.is_moved_at(until) => longest.len(),
        None => return None,
    };
    let long = length == MAX_VALUE_BYTES;
    r.at += length;
    let value = &longest[..length];
    // The beginning suffices to decide.
    let first = &value[..length.min(256)];
    let is_telling = first.iter().any(u8::is_ascii_digit) || crate::rules::entropy(first) >= 3.0;
    if length < 8 || !is_telling || guard::is_placeholder(first) || guard::is_code(first) {
        return Some(Inspection::Nothing);
    }
    let rule = if cookie { "cookie" } else { "authorization" };
    let rest: fn(u8) -> bool = |b| !matches!(b, b'"' | b'\'' | b'`');
    Some(Inspection::Found(Span { swallow: long.then_some(rest), ..Span::new(start, r.at, rule, Rank::Context) }))
}

/// The longest user and password before the `@` of a link.
const MAX_USERINFO_BYTES: usize = 384;

fn is_userinfo_byte(b: u8) -> bool {
    !matches!(b, b' ' | b'\t' | b'/' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b'(' | b')') && !b.is_ascii_control()
}

/// The password between `scheme://user:` and `at`, if there is one.
fn link_password(view: TextView<'_>, at: usize) -> Option<(usize, usize)> {
    let mut i = at;
    let mut colon = None;
    while i > 0 && at - i < MAX_USERINFO_BYTES && is_userinfo_byte(view.bytes[i - 1]) && !view.is_moved_at(i) {
        i -= 1;
        if view.bytes[i] == b':' {
            colon = Some(i);
        }
    }
    let scheme = i >= 4 && &view.bytes[i - 3..i] == b"://" && view.bytes[i - 4].is_ascii_alphanumeric();
    let colon = colon.filter(|_| scheme)?;
    Some((colon + 1, at))
}

/// Inspects an `@`: in a link, the text between the colon and the `@` is a password.
pub(crate) fn inspect_at_sign(view: TextView<'_>, at: usize) -> Inspection {
    // The last `@` before the host counts.
    if view.byte(at + 1) == Some(b'@') {
        return Inspection::Nothing;
    }
    let Some((start, end)) = link_password(view, at) else { return Inspection::Nothing };
    // A password may contain an `@`; the last one before the host counts.
    let rest = &view.bytes[at + 1..view.len().min(at + MAX_USERINFO_BYTES)];
    let host = rest.iter().position(|b| !is_userinfo_byte(*b));
    let Some(host) = host.or((view.end || rest.len() + 1 >= MAX_USERINFO_BYTES).then_some(rest.len())) else {
        return Inspection::Open(start);
    };
    if rest[..host].contains(&b'@') {
        return Inspection::Nothing;
    }
    let value = &view.bytes[start..end];
    if value.is_empty() || guard::is_placeholder(value) {
        return Inspection::Nothing;
    }
    Inspection::Found(Span::new(start, end, "url-password", Rank::Context))
}

/// The start of a password at the end of the text, in a link whose `@` may still come.
pub(crate) fn unfinished_link(view: TextView<'_>, flush: bool) -> Option<usize> {
    if view.end || view.is_moved_at(view.len()) {
        return None;
    }
    let (start, end) = link_password(view, view.len())?;
    // A port number looks the same, and users type those.
    let port = end - start <= 5 && view.bytes[start..end].iter().all(u8::is_ascii_digit);
    (start < end && !(flush && port)).then_some(start)
}
