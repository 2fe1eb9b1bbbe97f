//! Helpers that redact a text in pieces and read the result.

use countersign_model::Digest;
use countersign_redact::{KnownSecrets, Mask, Scrubber};
use std::sync::Arc;

pub(crate) fn mask(values: &[&str]) -> Arc<Mask> {
    let mut known = KnownSecrets::default();
    values.iter().for_each(|v| known.add(v));
    Arc::new(Mask::new(Digest::sha256(&[b"test"]), known))
}

/// Redacts `input` in pieces; a piece of length 0 is a flush.
pub(crate) fn redact_in_pieces(mask: &Arc<Mask>, input: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut s = Scrubber::new(Arc::clone(mask));
    let (mut out, mut rest) = (Vec::new(), input);
    let mut cuts = cuts.iter().copied();
    while !rest.is_empty() {
        let n = cuts.next().unwrap_or(rest.len()).min(rest.len()).min(100_000);
        if n == 0 {
            s.flush();
        } else {
            s.input_buffer()[..n].copy_from_slice(&rest[..n]);
            s.accept_input(n);
            rest = &rest[n..];
        }
        while let Some(chunk) = s.take_chunk(false) {
            out.extend_from_slice(chunk.as_ref());
        }
    }
    s.finish();
    while let Some(chunk) = s.take_chunk(true) {
        out.extend_from_slice(chunk.as_ref());
    }
    assert_eq!(s.held_bytes() + s.ready_bytes(), 0);
    out
}

/// The text with `<rule>` for each placeholder.
pub(crate) fn name_placeholders(out: &str) -> String {
    replace_placeholders(out, |rule| format!("<{rule}>"))
}

fn replace_placeholders(out: &str, with: impl Fn(&str) -> String) -> String {
    let (mut text, mut rest) = (String::new(), out);
    while let Some(i) = rest.find("[redacted:") {
        let end = i + rest[i..].find(']').unwrap();
        text += &rest[..i];
        text += &with(rest[i + 10..end].rsplit_once(':').unwrap().0);
        rest = &rest[end + 1..];
    }
    text + rest
}

pub(crate) fn redact(values: &[&str], input: &str) -> String {
    name_placeholders(&String::from_utf8(redact_in_pieces(&mask(values), input.as_bytes(), &[])).unwrap())
}

pub(crate) fn check_redacted(values: &[&str], input: &str, expect: &str) {
    assert_eq!(redact(values, input), expect, "from {input:?}");
}

/// Four bytes of a secret that are in `out`, if there are any.
pub(crate) fn find_leak<'a>(out: &str, secret: &'a str) -> Option<&'a str> {
    let left = replace_placeholders(out, |_| "\0".to_owned());
    (0..secret.len().saturating_sub(3)).filter_map(|i| secret.get(i..i + 4)).find(|w| left.contains(w))
}
