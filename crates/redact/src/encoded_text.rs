//! Finds secrets in text that is written in an encoding as a whole: links in links, JSON in links, links in base64.

use crate::{
    Mask,
    engine::{Engine, Pause},
    link,
    span::{Inspection, Rank, Span},
    visible_text::TextView,
};
use base64::Engine as _;
use std::ops::Range;

/// How far behind the text that was found an encoded text is read.
const MAX_ENCODED_BYTES: usize = 640;
/// How far before it: a name, or the beginning of a link.
const MAX_BEFORE_BYTES: usize = 96;

/// A shorter rest behind the text that was found is no secret.
const MIN_SECRET_BYTES: usize = 4;

/// Whether a link may contain this byte.
fn is_link_byte(b: &u8) -> bool {
    b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\')
}

/// Whether a text of JSON may contain this byte between its quotes.
fn is_text_byte(b: &u8) -> bool {
    b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'`')
}

/// Inspects a link in a link: its password, and what it contains decoded.
pub(crate) fn inspect_written_link(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    link::inspect_written_link(view, start, end).and(inspect_percent(view, start, end))
}

/// Inspects a part of a link that is written with `%3A` and similar: what a rule or a name finds in the decoded text.
pub(crate) fn inspect_percent(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    inspect_decoded(view, start, end, is_link_byte)
}

/// Inspects a part of a link that JSON writes with `\\u003d` and similar.
pub(crate) fn inspect_unicode(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    inspect_decoded(view, start, end, is_text_byte)
}

fn inspect_decoded(view: TextView<'_>, start: usize, end: usize, is_inside: fn(&u8) -> bool) -> Inspection {
    let Some(part) = encoded_part(view, start, end, is_inside) else { return Inspection::Open(end) };
    let (decoded, places) = decode_percent(&view.bytes[part.clone()]);
    let mut engine = Engine::default();
    engine.scan(&Mask::without_values(), &decoded, Pause::End);
    let spans = engine.replacements.iter().filter_map(|found| {
        let rule = found.rule.clone()?;
        let (from, to) = (part.start + places[found.raw.start], part.start + places[found.raw.end]);
        // What stands before the text that was found may have been decided before that came.
        let from = from.max(end);
        (to >= from + MIN_SECRET_BYTES).then(|| Span::new(from, to, rule, Rank::Context))
    });
    Inspection::from_parts(spans.collect(), None)
}

/// Inspects a link in base64, of which the beginning was found: all of it is secret if there is a secret in it.
pub(crate) fn inspect_base64(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let is_base64 = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    if view.bytes[..start].last().is_some_and(is_base64) && !view.is_moved_at(start) {
        return Inspection::Nothing;
    }
    let Some(part) = encoded_part(view, end, end, is_base64) else { return Inspection::Open(end) };
    let whole = &view.bytes[start..part.end];
    let whole = &whole[..whole.len() / 4 * 4 + [0, 0, 2, 3][whole.len() % 4]];
    let decoded = base64::engine::general_purpose::STANDARD_NO_PAD.decode(whole);
    let holds_secret = |text: Vec<u8>| String::from_utf8(text).is_ok_and(|text| !crate::find_secrets(&text).is_empty());
    // The last bits of a text that was cut are not zero.
    let decoded =
        decoded.or_else(|_| base64::engine::general_purpose::STANDARD_NO_PAD.decode(&whole[..whole.len() / 4 * 4]));
    if part.end - end < 8 || !decoded.is_ok_and(holds_secret) {
        return Inspection::Nothing;
    }
    Inspection::Found(Span::new(end, part.end, "wrapped-secret", Rank::Context))
}

/// The stretch of such bytes around a text that was found. None: it may go on.
fn encoded_part(view: TextView<'_>, start: usize, end: usize, is_inside: impl Fn(&u8) -> bool) -> Option<Range<usize>> {
    let lowest = start.saturating_sub(MAX_BEFORE_BYTES);
    let before =
        (lowest..start).rev().take_while(|at| is_inside(&view.bytes[*at]) && !view.is_moved_at(at + 1)).count();
    let limit = end + MAX_ENCODED_BYTES;
    let until = view.until_moved(end).min(limit);
    let length = view.bytes[end..until.max(end)].iter().take_while(|b| is_inside(b)).count();
    let is_open = end + length == view.len() && end + length < limit && !view.end && !view.is_moved_at(view.len());
    (!is_open).then_some(start - before..end + length)
}

/// The text without `%3A`, `\\u003d` and similar, and for each of its bytes, and its end, where that stood.
fn decode_percent(text: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let (mut decoded, mut places) = (Vec::with_capacity(text.len()), Vec::with_capacity(text.len() + 1));
    let mut at = 0;
    while at < text.len() {
        places.push(at);
        let hex = |n: usize| text.get(at + n).and_then(|b| char::from(*b).to_digit(16));
        match (text[at], hex(1), hex(2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 3;
            }
            (b'\\', ..) => {
                let slashes = text[at..].iter().take_while(|b| **b == b'\\').count();
                let digit = |n: usize| text.get(at + slashes + n).and_then(|b| char::from(*b).to_digit(16));
                match (text[at + slashes..].starts_with(b"u00"), digit(3), digit(4)) {
                    (true, Some(high), Some(low)) => {
                        decoded.push((high * 16 + low) as u8);
                        at += slashes + 5;
                    }
                    _ => {
                        decoded.push(b'\\');
                        at += 1;
                    }
                }
            }
            (b, ..) => {
                decoded.push(b);
                at += 1;
            }
        }
    }
    places.push(text.len());
    (decoded, places)
}
