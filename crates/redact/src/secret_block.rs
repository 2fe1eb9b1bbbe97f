//! Finds the values of whole blocks: the data of a Kubernetes Secret, and the private members of a JSON web key.
//!
//! A block is held from its first value on until its end is there, like a key block: what follows it may decide.

use crate::{
    context::MAX_BLANKS,
    guard,
    span::{Inspection, Rank, Span},
    visible_text::TextView,
};

/// The most that is held or redacted of a block without an end.
const MAX_BLOCK_BYTES: usize = 32 * 1024;
/// How far before its data the kind of an object is searched.
const MAX_KIND_BYTES: usize = 640;
/// How far behind its data.
const MAX_KIND_AHEAD_BYTES: usize = 64;

/// Inspects the lines below `data:` or `stringData:`; `end` is behind the line break.
pub(crate) fn inspect_secret_data(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let line = view.line_start(start, 64);
    let name = view.bytes[line..start].trim_ascii();
    if !matches!(name, b"d" | b"stringD" | b"- d") {
        return Inspection::Nothing;
    }
    let indent = start - line - name.len();
    let before = &view.bytes[line.saturating_sub(MAX_KIND_BYTES)..line];
    let object = memchr::memmem::rfind(before, b"---\n").map_or(before, |n| &before[n..]);
    let kind_before = last_kind(object);
    // `kubectl get -o yaml` sorts the names: the kind follows the data.
    let version_before = object.trim_ascii_end().ends_with(b"apiVersion: v1");
    if kind_before.is_some_and(|k| !k) || kind_before.is_none() && !version_before {
        return Inspection::Nothing;
    }
    let limit = end + MAX_BLOCK_BYTES;
    let (mut spans, mut at) = (Vec::new(), end);
    let mut first = None;
    loop {
        let stop_at = view.len().min(limit);
        let rest = &view.bytes[at.min(stop_at)..stop_at];
        let stop = memchr::memchr(b'\n', rest);
        let whole = stop.is_some() || view.end || view.len() >= limit;
        let length = stop.unwrap_or(rest.len());
        let text = &rest[..length];
        let blanks = text.iter().take_while(|b| **b == b' ').count();
        let inside = blanks > indent || text.trim_ascii().is_empty();
        if !whole {
            // A line that has begun decides nothing before its end.
            let value = line_value(text, blanks).map(|(from, _)| at + from);
            return match first.or(value.filter(|v| inside && *v < view.len())) {
                Some(held) => Inspection::Open(held),
                None => Inspection::Nothing,
            };
        }
        if !inside || at >= view.len() || at >= limit {
            break;
        }
        if let Some((from, to)) = line_value(text, blanks) {
            first = first.or(Some(at + from));
            if is_data_value(&text[from..to]) {
                spans.push(Span::new(at + from, at + to, "file-password", Rank::Context));
            }
        }
        at += length + 1;
    }
    match (kind_before, first) {
        (_, None) => Inspection::Nothing,
        (Some(true), _) => Inspection::from_parts(spans, None),
        (_, Some(first)) => match kind_ahead(view, at.min(view.len())) {
            None => Inspection::Open(first),
            Some(true) => Inspection::from_parts(spans, None),
            Some(false) => Inspection::Nothing,
        },
    }
}

/// Inspects the members of `"data":{…}` of a Secret in JSON; `end` is behind the brace.
pub(crate) fn inspect_secret_json(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    if !matches!(view.bytes[..start].last(), Some(b'd' | b'D')) {
        return Inspection::Nothing;
    }
    let before = &view.bytes[start.saturating_sub(MAX_KIND_BYTES)..start];
    let without_blanks =
        |text: &[u8]| -> Vec<u8> { text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect() };
    let object = without_blanks(before);
    let is_secret = |text: &[u8]| text.starts_with(b"\"kind\":\"Secret\"");
    let kind_before = memchr::memmem::rfind(&object, b"\"kind\":").map(|at| is_secret(&object[at..]));
    let version_before = memchr::memmem::rfind(&object, b"\"apiVersion\":\"v1\",");
    if kind_before == Some(false) || kind_before.is_none() && version_before.is_none_or(|at| object.len() - at > 24) {
        return Inspection::Nothing;
    }
    let limit = end + MAX_BLOCK_BYTES;
    let until = view.until_moved(start).min(limit);
    let body = &view.bytes[end..until.max(end)];
    let close = body.iter().position(|b| matches!(b, b'}' | b'{'));
    let members = &body[..close.unwrap_or(body.len())];
    let (mut spans, mut first, mut at) = (Vec::new(), None, 0);
    // A name, a colon and a value in quotes.
    let quoted = |from: usize| -> Option<(usize, usize)> {
        let open = from + memchr::memchr(b'"', members.get(from..)?)? + 1;
        Some((open, open + memchr::memchr(b'"', &members[open..])?))
    };
    while let Some((_, name_end)) = quoted(at) {
        let Some((from, to)) = quoted(name_end + 1) else {
            let open = memchr::memchr(b'"', &members[name_end + 1..]).map(|n| end + name_end + 2 + n);
            first = first.or(open.filter(|open| *open < view.len()));
            break;
        };
        first = first.or(Some(end + from));
        if is_data_value(&members[from..to]) {
            spans.push(Span::new(end + from, end + to, "file-password", Rank::Context));
        }
        at = to + 1;
    }
    let Some(held) = first else { return Inspection::Nothing };
    let ends = |at: usize| view.end || at < view.len() || at >= limit || view.is_moved_at(at);
    let Some(close) = close else {
        return if ends(until) { Inspection::Nothing } else { Inspection::Open(held) };
    };
    if body[close] == b'{' {
        return Inspection::Nothing;
    }
    if kind_before == Some(true) {
        return Inspection::from_parts(spans, None);
    }
    let behind = end + close + 1;
    let ahead = &view.bytes[behind..view.len().min(behind + MAX_KIND_AHEAD_BYTES)];
    if is_secret(&without_blanks(ahead.strip_prefix(b",").unwrap_or(ahead))) {
        Inspection::from_parts(spans, None)
    } else if ahead.len() < MAX_KIND_AHEAD_BYTES && !view.end && !view.is_moved_at(view.len()) {
        Inspection::Open(held)
    } else {
        Inspection::Nothing
    }
}

/// Inspects the lines of hexadecimal pairs below `prime1:`, as `openssl` prints a private key; `end` is behind the break.
pub(crate) fn inspect_hex_block(view: TextView<'_>, _start: usize, end: usize) -> Inspection {
    let is_pair = |b: &u8| b.is_ascii_hexdigit() || *b == b':';
    let until = view.until_moved(end).min(end + MAX_BLOCK_BYTES);
    let text = &view.bytes[end..until.max(end)];
    let blanks = |at: usize| text[at..].iter().take(MAX_BLANKS).take_while(|b| **b == b' ').count();
    let first = blanks(0);
    let (mut at, mut last) = (0, 0);
    loop {
        let from = at + blanks(at);
        let length = text[from..].iter().take_while(|b| is_pair(b)).count();
        let behind = from + length;
        if behind == text.len() && until == view.len() && !view.end {
            return if first < text.len() { Inspection::Open(end + first) } else { Inspection::Nothing };
        }
        if length < 2 || !text[from..behind].contains(&b':') && last == 0 {
            break;
        }
        last = behind;
        match text.get(behind) {
            Some(b'\n') => at = behind + 1,
            _ => break,
        }
    }
    if last < first + 24 {
        return Inspection::Nothing;
    }
    Inspection::Found(Span::new(end + first, end + last, "private-key", Rank::Context))
}

/// The most values of a list.
const MAX_LIST_VALUES: usize = 24;

/// Inspects the quoted values of a list of keys or codes; `end` is behind the bracket.
pub(crate) fn inspect_list(view: TextView<'_>, _start: usize, end: usize) -> Inspection {
    let until = view.until_moved(end).min(end + crate::context::REINSPECT_BYTES - 64);
    let text = &view.bytes[end..until.max(end)];
    let is_open = until == view.len() && !view.end;
    let (mut spans, mut at) = (Vec::new(), 0);
    for _ in 0..MAX_LIST_VALUES {
        at += text[at..].iter().take_while(|b| matches!(b, b' ' | b'\n' | b'\r' | b',')).count();
        if text.get(at) != Some(&b'"') {
            break;
        }
        let from = at + 1;
        let Some(length) = memchr::memchr(b'"', &text[from..]) else {
            let open = (is_open && from < text.len()).then_some(end + from);
            return Inspection::from_parts(spans, open);
        };
        let value = &text[from..from + length];
        if value.len() >= 8 && value.iter().any(u8::is_ascii_digit) && !guard::is_placeholder(value) {
            spans.push(Span::new(end + from, end + from + length, "secret-value", Rank::Context));
        }
        at = from + length + 1;
    }
    Inspection::from_parts(spans, None)
}

/// Whether the last kind that is named is a Secret.
fn last_kind(text: &[u8]) -> Option<bool> {
    let at = memchr::memmem::rfind(text, b"kind: ")?;
    Some(text[at..].starts_with(b"kind: Secret\n") || text[at..].starts_with(b"kind: Secret\r"))
}

/// Whether the object goes on as a Secret. None: more bytes are needed.
fn kind_ahead(view: TextView<'_>, at: usize) -> Option<bool> {
    let rest = &view.bytes[at..view.len().min(at + MAX_KIND_AHEAD_BYTES)];
    let ends_line = |n: usize| matches!(rest.get(n + b"kind: Secret".len()), Some(b'\n' | b'\r'));
    if memchr::memmem::find(rest, b"kind: Secret").is_some_and(ends_line) {
        return Some(true);
    }
    (rest.len() == MAX_KIND_AHEAD_BYTES || view.end).then(|| memchr::memmem::find(rest, b"kind: Secret").is_some())
}

/// The value of a line `name: value`, without its quotes.
fn line_value(text: &[u8], blanks: usize) -> Option<(usize, usize)> {
    let colon = blanks + text[blanks..].iter().position(|b| *b == b':')?;
    let mut from = colon + 1;
    from += text.get(from..)?.iter().take(MAX_BLANKS).take_while(|b| b.is_ascii_whitespace()).count();
    let mut to = text.len() - text.iter().rev().take_while(|b| b.is_ascii_whitespace()).count();
    if matches!(text.get(from), Some(b'"' | b'\'')) {
        from += 1;
        to -= usize::from(to > from && matches!(text[to - 1], b'"' | b'\''));
    }
    (from <= to).then_some((from, to))
}

fn is_data_value(value: &[u8]) -> bool {
    value.len() >= 4 && !guard::is_placeholder(value) && !matches!(value, b"|" | b">-" | b"|-" | b">")
}

/// Inspects the members of a JSON web key behind `"kty"` or `"d"`.
pub(crate) fn inspect_web_key(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let limit = start + MAX_BLOCK_BYTES / 4;
    let rest = &view.bytes[start..view.len().min(limit)];
    let stop = rest.iter().position(|b| *b == b'}');
    let body = &rest[..stop.unwrap_or(rest.len())];
    let certain = view.bytes[start..end].starts_with(b"\"kty");
    let (mut spans, mut first) = (Vec::new(), None);
    let (mut at, mut any_private) = (0, certain);
    while let Some(quote) = body.get(at..).and_then(|b| memchr::memchr(b'"', b)) {
        let name_start = at + quote + 1;
        let Some(length) = memchr::memchr(b'"', &body[name_start..]) else { break };
        let name = &body[name_start..name_start + length];
        // JSON in JSON.
        let name = name.strip_suffix(b"\\").unwrap_or(name);
        at = name_start + length + 1;
        let private = matches!(name, b"d" | b"p" | b"q" | b"dp" | b"dq" | b"qi" | b"k");
        let between = body[at..].iter().take_while(|b| matches!(b, b':' | b' ' | b'\\')).count();
        if between == 0 || body.get(at + between) != Some(&b'"') {
            continue;
        }
        let from = at + between + 1;
        let length = body[from..].iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')));
        let to = from + length.unwrap_or(body.len() - from);
        if private {
            first = first.or(Some(start + from).filter(|_| to > from));
            if name == b"d" && to - from >= 40 && guard::is_token_like(&body[from..to]) {
                any_private = true;
            }
            if to - from >= 22 && length.is_some() {
                spans.push(Span::new(start + from, start + to, "private-key", Rank::Context));
            }
        }
        at = to + 1 + usize::from(body.get(to) == Some(&b'\\'));
    }
    let ended = stop.is_some() || rest.len() == MAX_BLOCK_BYTES / 4 || view.end;
    if !ended {
        // The key's beginning must stay in reach.
        let reach = start + crate::context::REINSPECT_BYTES / 2;
        let open = first.or((view.len() > reach).then_some(reach));
        return open.map_or(Inspection::Nothing, Inspection::Open);
    }
    if any_private { Inspection::from_parts(spans, None) } else { Inspection::Nothing }
}
