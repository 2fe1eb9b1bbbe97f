//! Finds tokens inside base64: the text is decoded, and the rule of the token judges what it says.

use crate::{
    rules::{RULES, Shape, ShapeCache, ShapeRun, WRAPPED_KEYWORDS, has_entropy},
    span::{Inspection, Rank, Span},
    visible_text::{TextView, is_break},
};

/// The longest base64 text that is decoded.
const MAX_ENCODED_BYTES: usize = 4096;

/// Inspects the text behind a keyword in base64 that begins at `start`.
pub(crate) fn inspect_wrapped(view: TextView<'_>, start: usize, n: usize, cache: &mut ShapeCache) -> Inspection {
    let wrapped = &WRAPPED_KEYWORDS[n];
    let rule = &RULES[wrapped.rule];
    // The letters of the group that precede the keyword do not matter.
    let skipped = (wrapped.offset * 8).div_ceil(6);
    let mut letters = vec![b'A'; skipped];
    let mut places = vec![start; skipped];
    let mut at = start;
    loop {
        match view.byte(at) {
            _ if at - start >= MAX_ENCODED_BYTES || at > start && view.is_moved_at(at) => break,
            None if view.end => break,
            None => return Inspection::Open(start),
            Some(b) if is_break(b) => {}
            Some(b) if b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'-' | b'_') => {
                letters.push(b);
                places.push(at);
            }
            Some(_) => break,
        }
        at += 1;
    }
    let decoded = decode(&letters);
    let Some(value) = decoded.get(wrapped.offset..).and_then(|d| d.strip_prefix(wrapped.keyword.as_bytes())) else {
        return Inspection::Nothing;
    };
    let Some(length) = match_length(value, Shape::for_rule(wrapped.rule), cache) else { return Inspection::Nothing };
    if !has_entropy(&value[..length], rule.entropy) || value.get(length).is_some_and(u8::is_ascii_alphanumeric) {
        return Inspection::Nothing;
    }
    let bytes = wrapped.offset + wrapped.keyword.len() + length;
    let last = (bytes * 8).div_ceil(6).min(places.len()) - 1;
    Inspection::Found(Span::new(start, places[last] + 1, rule.id, Rank::Shape))
}

/// Decodes base64 letters of either alphabet. What the last letters leave incomplete is dropped.
fn decode(letters: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(letters.len());
    let (mut bits, mut count) = (0u32, 0);
    for letter in letters {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            _ => 63,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}

/// How much of a value has the shape.
fn match_length(value: &[u8], shape: &Shape, cache: &mut ShapeCache) -> Option<usize> {
    let mut run = ShapeRun::new(shape, cache)?;
    let mut length = None;
    for (n, b) in value.iter().enumerate() {
        let mut matched = false;
        let lives = run.take(*b, &mut matched);
        if matched && n > 0 {
            length = Some(n);
        }
        if !lives {
            return length;
        }
    }
    if run.matches_here() { Some(value.len()) } else { length }
}
