//! Headers that hold nothing but secrets, and the passwords of links.

use crate::{
    context::{MAX_BLANKS, MAX_VALUE_BYTES, ValueReader, is_name_byte, skip_scheme},
    guard,
    span::{Inspection, Rank, Span},
    visible_text::{TextView, is_break},
};

/// What begins a header that holds nothing but secrets.
pub(crate) const HEADER_STARTS: &[&str] = &["uthorization", "UTHORIZATION", "ookie:", "OOKIE:", "ookie\"", "ookie'"];

/// Looks at a header: its value goes as a whole, but for the scheme and, in cookies, names.
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
        // The first name stays.
        r.skip(64, is_name_byte)?;
        if !r.take_byte(b'=')? {
            return Some(Inspection::Nothing);
        }
    } else {
        skip_scheme(r)?;
        // A scheme that nobody has told us of: a word, and then another.
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
    let most = &view.bytes[start..until.min(start + MAX_VALUE_BYTES)];
    // `Credential=…, Signature=…`
    let word = most.iter().take(32).take_while(|b| !matches!(b, b' ' | b'\t' | b','));
    let parts = word.zip(most.iter().skip(1)).any(|(a, b)| *a == b'=' && *b != b'=' && !is_break(*b));
    let ends = |b: u8| match b {
        b'\n' | b'\r' | b'"' | b'\'' | b'`' => true,
        b';' => set_cookie || !cookie,
        b' ' | b'\t' | b',' => !cookie && !parts,
        _ => false,
    };
    let length = match most.iter().position(|b| ends(*b)) {
        Some(n) => n,
        None if most.len() == MAX_VALUE_BYTES || view.end || view.is_moved_at(until) => most.len(),
        None => return None,
    };
    let long = length == MAX_VALUE_BYTES;
    r.at += length;
    let value = &most[..length];
    // The beginning says enough.
    let first = &value[..length.min(256)];
    let telling = first.iter().any(u8::is_ascii_digit) || crate::rules::entropy(first) >= 3.0;
    if length < 8 || !telling || guard::is_placeholder(first) || guard::is_code(first) {
        return Some(Inspection::Nothing);
    }
    let rule = if cookie { "cookie" } else { "authorization" };
    let rest: fn(u8) -> bool = |b| !matches!(b, b'"' | b'\'' | b'`');
    Some(Inspection::Found(Span { swallow: long.then_some(rest), ..Span::new(start, r.at, rule, Rank::Context) }))
}

/// How far back a link's user may stand before the `@`.
const MAX_USERINFO_BYTES: usize = 384;

fn is_userinfo_byte(b: u8) -> bool {
    !matches!(b, b' ' | b'\t' | b'/' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b'(' | b')') && !b.is_ascii_control()
}

/// The password between `scheme://user:` and `at`, if that is what ends there.
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

/// Looks at an `@`: what stands between the colon and it in a link is a password.
pub(crate) fn inspect_at_sign(view: TextView<'_>, at: usize) -> Inspection {
    // The last one before the host counts.
    if view.byte(at + 1) == Some(b'@') {
        return Inspection::Nothing;
    }
    let Some((start, end)) = link_password(view, at) else { return Inspection::Nothing };
    // A password may hold an `@` itself; the last one before the host counts.
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

/// Where the password of a link begins whose `@` may still come, at the end of the text.
pub(crate) fn unfinished_link(view: TextView<'_>, flush: bool) -> Option<usize> {
    if view.end || view.is_moved_at(view.len()) {
        return None;
    }
    let (start, end) = link_password(view, view.len())?;
    // A port looks the same, and people type those.
    let port = end - start <= 5 && view.bytes[start..end].iter().all(u8::is_ascii_digit);
    (start < end && !(flush && port)).then_some(start)
}
