//! Finds the passwords and tokens before the `@` of links and connection strings.

use crate::{
    guard,
    span::{Inspection, Rank, Span},
    visible_text::{TextView, is_break},
};

/// The longest user and password before the `@` of a link.
const MAX_USERINFO_BYTES: usize = 1280;

/// Whether a link may contain this byte before its host. A slash may be in a password.
fn is_userinfo_byte(b: u8) -> bool {
    !matches!(b, b' ' | b'\t' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b'(' | b')') && !b.is_ascii_control()
}

/// A secret before the `@` of a link: its start.
#[derive(Clone, Copy)]
enum UserInfo {
    /// `user:V`
    Password(usize),
    /// A token alone.
    Token(usize),
}

/// What is between `scheme://` and `at`, if it may be a secret.
fn read_userinfo(view: TextView<'_>, at: usize) -> Option<UserInfo> {
    let mut i = at;
    // A terminal may wrap the line inside.
    let is_inside = |at: usize| {
        let b = view.bytes[at];
        is_userinfo_byte(b)
            || is_break(b) && view.is_wrapped_line_end(at) && view.byte(at + 1).map_or(!view.end, |b| b != b' ')
    };
    while i > 0 && at - i < MAX_USERINFO_BYTES && is_inside(i - 1) && !view.is_moved_at(i) {
        i -= 1;
    }
    // A link that ends with its line is no part of the next line.
    let last_break = view.bytes[i..at].iter().rposition(|b| is_break(*b)).map_or(i, |n| i + n);
    if view.bytes[i..last_break].contains(&b'@') {
        i = last_break + 1;
    }
    // The part behind the last `://`.
    let begin = i + memchr::memmem::rfind(&view.bytes[i..at], b"://")? + 3;
    if !view.bytes[..begin - 3].last().is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    let info = &view.bytes[begin..at];
    let Some(colon) = find_colon(info) else {
        let token = info.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        return token.then_some(UserInfo::Token(begin));
    };
    let (user, password) = (&info[..colon], &info[colon + 1..]);
    match memchr::memchr(b'/', info) {
        None => {}
        // A path, or a port and a path.
        Some(slash) if slash < colon => return None,
        Some(slash) => {
            let first = &info[colon + 1..slash];
            let port =
                !first.is_empty() && first.iter().all(u8::is_ascii_digit) || matches!(first, [b'$' | b'{' | b'%', ..]);
            if port || user.iter().any(|b| matches!(b, b'@' | b'[')) || password.starts_with(b"//") {
                return None;
            }
        }
    }
    Some(UserInfo::Password(begin + colon + 1))
}

/// The colon between user and password; those inside `${…}` belong to a variable.
fn find_colon(info: &[u8]) -> Option<usize> {
    let mut depth = 0;
    for (n, b) in info.iter().enumerate() {
        match b {
            b'{' if n > 0 && matches!(info[n - 1], b'$' | b'{') => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            b':' if depth == 0 => return Some(n),
            _ => {}
        }
    }
    None
}

/// Whether a token alone before an `@` is a secret rather than a user.
fn is_secret_token(value: &[u8]) -> bool {
    let hex = value.iter().all(u8::is_ascii_hexdigit);
    value.len() >= 20 && (if hex { value.len() >= 40 } else { guard::is_random_token(value) })
}

/// Inspects an `@`: in a link, the text between the colon and the `@` is a password.
pub(crate) fn inspect_at_sign(view: TextView<'_>, at: usize) -> Inspection {
    // The last `@` before the host counts.
    if view.byte(at + 1) == Some(b'@') {
        return Inspection::Nothing;
    }
    let Some(info) = read_userinfo(view, at) else { return Inspection::Nothing };
    let (UserInfo::Password(start) | UserInfo::Token(start)) = info;
    // A password may contain an `@`; the last one before the host counts.
    let rest = &view.bytes[at + 1..view.len().min(at + MAX_USERINFO_BYTES)];
    let host = rest.iter().position(|b| !is_userinfo_byte(*b) || *b == b'/');
    let Some(host) = host.or((view.end || rest.len() + 1 >= MAX_USERINFO_BYTES).then_some(rest.len())) else {
        return Inspection::Open(start);
    };
    if rest[..host].contains(&b'@') {
        return Inspection::Nothing;
    }
    let value = &view.bytes[start..at];
    let fits = match info {
        UserInfo::Token(_) => is_secret_token(value),
        UserInfo::Password(_) if value.contains(&b'/') => is_host(&rest[..host]),
        UserInfo::Password(_) => true,
    };
    if value.is_empty() || !fits || guard::is_placeholder(value) {
        return Inspection::Nothing;
    }
    Inspection::Found(Span::new(start, at, "url-password", Rank::Context))
}

/// Whether this may be a host, with or without a port.
fn is_host(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_alphanumeric)
        && text.iter().all(|b| {
            b.is_ascii_alphanumeric()
                || matches!(b, b'.' | b'-' | b':' | b'_' | b',' | b'?' | b';' | b'&' | b'=' | b'}' | b']')
        })
}

/// The start of a password at the end of the text, in a link whose `@` may still come.
pub(crate) fn unfinished_link(view: TextView<'_>, flush: bool) -> Option<usize> {
    if view.end || view.is_moved_at(view.len()) {
        return None;
    }
    let end = view.len();
    match read_userinfo(view, end)? {
        UserInfo::Password(start) => {
            // A port number looks the same, and users type those: behind a host up to five digits, else three.
            let user =
                &view.bytes[view.bytes[..start].iter().rposition(|b| *b == b'/').map_or(0, |n| n + 1)..start - 1];
            let host = user == b"localhost" || user.contains(&b'.') || user.ends_with(b"]");
            let longest = if host { 5 } else { 3 };
            let port = end - start <= longest && view.bytes[start..end].iter().all(u8::is_ascii_digit);
            (start < end && !(flush && port)).then_some(start)
        }
        // A host that is being typed looks the same.
        UserInfo::Token(start) => (start < end && !(flush && end - start < 4)).then_some(start),
    }
}

/// Inspects `jdbc:oracle:thin:user/V@host`; the user begins at `end`.
pub(crate) fn inspect_oracle(view: TextView<'_>, _start: usize, end: usize) -> Inspection {
    let rest = &view.bytes[end..view.len().min(end + MAX_USERINFO_BYTES)];
    let user = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'#' | b'-')).count();
    if user == 0 || rest.get(user) != Some(&b'/') {
        return Inspection::Nothing;
    }
    let length = rest.iter().position(|b| matches!(b, b'"' | b'\'' | b'`' | b'<') || b.is_ascii_whitespace());
    let start = end + user + 1;
    let Some(length) = length.or((view.end || rest.len() == MAX_USERINFO_BYTES).then_some(rest.len())) else {
        return if start < view.len() { Inspection::Open(start) } else { Inspection::Nothing };
    };
    let Some(at) = rest[user + 1..length].iter().rposition(|b| *b == b'@') else { return Inspection::Nothing };
    let value = &view.bytes[start..start + at];
    if value.is_empty() || guard::is_placeholder(value) {
        return Inspection::Nothing;
    }
    Inspection::Found(Span::new(start, start + at, "url-password", Rank::Context))
}

/// Inspects the user and the password of a link that is written in another: `https%3A%2F%2Fuser%3AV%40host`, or with the
/// slashes of JSON: `https:\/\/user:V@host`.
pub(crate) fn inspect_written_link(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let is_encoded = view.bytes[start] == b'%';
    let (colon, at) = if is_encoded { (&b"%3A"[..], &b"%40"[..]) } else { (&b":"[..], &b"@"[..]) };
    let limit = end + MAX_USERINFO_BYTES;
    let until = view.until_moved(start).min(limit);
    let rest = &view.bytes[end..until.max(end)];
    let length = rest.iter().position(|b| !is_userinfo_byte(*b) || *b == b'/' || is_encoded && *b == b'&');
    let info = &rest[..length.unwrap_or(rest.len())];
    let Some(user) = memchr::memmem::find(info, colon) else { return Inspection::Nothing };
    let from = user + colon.len();
    let is_open = length.is_none() && until == view.len() && until < limit && !view.end && !view.is_moved_at(until);
    match memchr::memmem::rfind(&info[from..], at) {
        _ if is_open => Inspection::Open(end + from),
        Some(length) if length > 0 && !guard::is_placeholder(&info[from..from + length]) => {
            Inspection::Found(Span::new(end + from, end + from + length, "url-password", Rank::Context))
        }
        _ => Inspection::Nothing,
    }
}
