//! Finds the values of headers that contain secrets alone.

use crate::{
    command_line::MAX_COMMAND_BYTES,
    context::{MAX_BLANKS, MAX_VALUE_BYTES, is_name_byte},
    guard,
    span::{Inspection, Rank, Span},
    value_reader::{BREAK, Quote, ValueReader},
    value_syntax::{skip_scheme, skip_text},
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
        skip_text(r, b"value")?;
        if !matches!(r.peek()?, b':' | b'=' | b',') {
            return Some(Inspection::Nothing);
        }
        r.at += 1;
    }
    // `authorization::Type`
    if r.peek()? == b':' {
        return Some(Inspection::Nothing);
    }
    if view.bytes[r.at - 1] == b',' {
        skip_value_key(r)?;
    }
    let from = r.at;
    r.skip(MAX_BLANKS, |b| matches!(b, b' ' | b'\t' | b'['))?;
    let in_list = view.bytes[from..r.at].contains(&b'[');
    r.value = Some(r.at);
    if matches!(r.peek()?, b'f' | b'b' | b'r') && matches!(r.peek_at(1)?, b'"' | b'\'') {
        r.at += 1;
    }
    r.read_quote()?;
    if cookie {
        // The first cookie name stays.
        r.skip(64, is_name_byte)?;
        if !r.take_byte(b'=')? {
            return Some(Inspection::Nothing);
        }
    } else {
        if let Some(found) = read_parts(r, at)? {
            return Some(found);
        }
        skip_scheme(r)?;
        skip_joined_text(r)?;
        // An unknown scheme: a word, followed by another one.
        let word = (0..20)
            .take_while(|n| r.peek_at(*n).is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')))
            .count();
        let colon = usize::from(r.peek_at(word)? == b':');
        let next = (r.peek_at(word + colon)?, r.peek_at(word + colon + 1)?);
        if word >= 3 && next.0 == b' ' && next.1.is_ascii_alphanumeric() {
            r.at += word + colon + 1;
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
        // `<li>Authorization: Included</li>`
        b'<' => !cookie,
        b']' => in_list,
        b' ' | b'\t' | b',' => !cookie && !parts,
        _ => false,
    };
    let length = match longest.iter().position(|b| ends(*b)) {
        Some(n) => n,
        None if longest.len() == MAX_VALUE_BYTES || view.end || view.is_moved_at(until) => longest.len(),
        None => return None,
    };
    // What escapes the quote behind it is no part of the value.
    let length = length - longest[..length].iter().rev().take_while(|b| **b == b'\\').count();
    let long = length == MAX_VALUE_BYTES;
    r.at += length;
    let value = &longest[..length];
    // The beginning suffices to decide.
    let first = &value[..length.min(256)];
    let is_telling = first.iter().any(u8::is_ascii_digit) || crate::rules::has_entropy(first, 3.0);
    if length < 8 || !is_telling || guard::is_placeholder(first) || guard::is_code(first) || first[0] == b'{' {
        return Some(Inspection::Nothing);
    }
    let rule = if cookie { "cookie" } else { "authorization" };
    let rest: fn(u8) -> bool = |b| !matches!(b, b'"' | b'\'' | b'`');
    Some(Inspection::Found(Span { swallow: long.then_some(rest), ..Span::new(start, r.at, rule, Rank::Context) }))
}

/// Skips the name of a value: `"name": "Authorization", "value": "V"`.
fn skip_value_key(r: &mut ValueReader<'_>) -> Option<()> {
    let mut next = *r;
    while next.at - r.at < MAX_BLANKS
        && (next.at < r.view.len() || !r.view.end)
        && matches!(next.peek()?, b' ' | b'\t' | BREAK)
    {
        next.at += 1;
    }
    for key in [&b"\"value\":"[..], b"\\\"value\\\":", b"value:", b"value="] {
        if skip_text(&mut next, key)? {
            *r = next;
            break;
        }
    }
    Some(())
}

/// Skips `" + "` between a scheme and its credentials.
fn skip_joined_text(r: &mut ValueReader<'_>) -> Option<()> {
    let mut value = ValueReader { view: r.view, at: r.at, value: None };
    if value.read_quote()? == Quote::None {
        return Some(());
    }
    value.skip(4, |b| b == b' ')?;
    if value.take_byte(b'+')? {
        value.skip(4, |b| b == b' ')?;
        if value.read_quote()? != Quote::None {
            r.at = value.at;
        }
    }
    Some(())
}

/// Schemes whose credentials are a list of names and values, and the names whose values are secret.
const PART_SCHEMES: &[&[u8]] = &[b"digest ", b"hawk ", b"oauth ", b"hmac ", b"signature ", b"aws4-hmac-sha256 "];
const SECRET_PARTS: &[&[u8]] = &[
    b"response",
    b"cnonce",
    b"nonce",
    b"mac",
    b"oauth_signature",
    b"oauth_token",
    b"oauth_token_secret",
    b"oauth_verifier",
    b"signature",
];

/// Reads `Digest name="V", name=V`: users, realms and addresses stay. The inner `None`: another scheme.
fn read_parts(r: &mut ValueReader<'_>, header: usize) -> Option<Option<Inspection>> {
    let mut scheme = None;
    for name in PART_SCHEMES {
        let mut matched = 0;
        while matched < name.len() && r.peek_at(matched)?.to_ascii_lowercase() == name[matched] {
            matched += 1;
        }
        if matched == name.len() {
            scheme = Some(matched);
            break;
        }
    }
    let Some(scheme) = scheme else { return Some(None) };
    let mut parts = ValueReader { view: r.view, at: r.at + scheme, value: None };
    let mut spans = Vec::new();
    // One part without names is a token: `OAuth V`.
    let first = (0..64).take_while(|n| parts.peek_at(*n).is_some_and(is_name_byte)).count();
    if parts.peek_at(first)? != b'=' {
        return Some(None);
    }
    // Parts that have not come are read when the header is inspected again.
    while parts.at - header < MAX_COMMAND_BYTES {
        parts.value = None;
        match read_part(&mut parts, &mut spans) {
            Some(true) => {}
            Some(false) => break,
            None => {
                let open = parts.value.filter(|v| *v < r.view.len());
                return Some(Some(Inspection::from_parts(spans, open)));
            }
        }
    }
    Some(Some(Inspection::from_parts(spans, None)))
}

/// Reads one `name="V"`. False: the list has ended.
fn read_part(r: &mut ValueReader<'_>, spans: &mut Vec<Span>) -> Option<bool> {
    r.skip(MAX_BLANKS, |b| matches!(b, b' ' | b','))?;
    let from = r.at;
    r.skip(40, is_name_byte)?;
    let name = r.view.bytes[from..r.at].to_ascii_lowercase();
    if name.is_empty() || !r.take_byte(b'=')? {
        return Some(false);
    }
    let secret = SECRET_PARTS.contains(&&*name);
    // A quote may need more bytes than are there.
    r.value = secret.then_some(r.at);
    let quote = r.read_quote()?;
    let start = r.at;
    r.value = secret.then_some(start);
    loop {
        let b = r.peek()?;
        let ends = match quote {
            Quote::Of(q, slashes) => b == BREAK || r.is_closing_quote(q, slashes)?,
            Quote::None => matches!(b, BREAK | b' ' | b',' | b'"' | b'\'' | b'\\'),
        };
        if ends || r.at - start >= MAX_VALUE_BYTES {
            break;
        }
        r.at += 1;
    }
    let value = &r.view.bytes[start..r.at];
    if secret && value.len() >= 6 && !guard::is_placeholder(value) {
        spans.push(Span::new(start, r.at, "authorization", Rank::Context));
    }
    if let Quote::Of(_, slashes) = quote
        && r.peek()? != BREAK
    {
        r.at += slashes + 1;
    }
    Some(r.peek()? == b',' || r.peek()? == b' ')
}
