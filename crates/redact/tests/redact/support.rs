//! Feeding a scrubber, and looking at what is left.

use countersign_model::Digest;
use countersign_redact::{KnownSecrets, Mask, Scrubber};
use std::sync::Arc;

pub(crate) fn mask(values: &[&str]) -> Arc<Mask> {
    let mut known = KnownSecrets::default();
    values.iter().for_each(|v| known.add(v));
    Arc::new(Mask::new(Digest::sha256(&[b"test"]), known))
}

/// Feeds `input` in pieces; a piece of length 0 is a flush.
pub(crate) fn run(mask: &Arc<Mask>, input: &[u8], cuts: &[usize]) -> Vec<u8> {
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

/// What is left, with `<rule>` for each placeholder.
pub(crate) fn shown(out: &str) -> String {
    let (mut shown, mut rest) = (String::new(), out);
    while let Some(i) = rest.find("[redacted:") {
        let end = i + rest[i..].find(']').unwrap();
        shown += &rest[..i];
        shown += "<";
        shown += rest[i + 10..end].rsplit_once(':').unwrap().0;
        shown += ">";
        rest = &rest[end + 1..];
    }
    shown + rest
}

pub(crate) fn clean(values: &[&str], input: &str) -> String {
    shown(&String::from_utf8(run(&mask(values), input.as_bytes(), &[])).unwrap())
}

pub(crate) fn check(values: &[&str], input: &str, expect: &str) {
    assert_eq!(clean(values, input), expect, "from {input:?}");
}

/// The first four bytes of a secret that are in `out`.
pub(crate) fn leak<'a>(out: &str, secret: &'a str) -> Option<&'a str> {
    let left = shown(out);
    (0..secret.len().saturating_sub(3)).filter_map(|i| secret.get(i..i + 4)).find(|w| left.contains(w))
}
