//! Redaction: no input panics, and the result does not depend on how the input is cut. The pauses are the same for both.
#![no_main]

use countersign_model::Digest;
use countersign_redact::{KnownSecrets, Mask, Scrubber};
use std::sync::Arc;

/// Parts that make secrets of what follows.
const PARTS: &[&[u8]] = &[
    b"password=",
    b"ghp_",
    b"https://u:",
    b"&sig=",
    b"-us1",
    b"Authorization: Bearer ",
    b"curl -u a:",
    b"-----BEGIN PRIVATE KEY-----\n",
    b"a-known-value-1234",
    b"0123456789abcdefABCDEF01234567",
    b"\x1b[5;7H",
    b"\r\n",
    b" \r",
    b"%2F",
    b"hooks.slack.com/services/",
];

fn redact(mask: &Arc<Mask>, input: &[u8], pauses: &[usize], sizes: &mut dyn Iterator<Item = usize>) -> Vec<u8> {
    let mut scrubber = Scrubber::new(Arc::clone(mask));
    let (mut out, mut at) = (Vec::new(), 0);
    while at < input.len() {
        let stop = pauses.iter().copied().find(|p| *p > at).unwrap_or(input.len()).min(input.len());
        let n = sizes.next().unwrap_or(usize::MAX).max(1).min(stop - at).min(4096);
        scrubber.input_buffer()[..n].copy_from_slice(&input[at..at + n]);
        scrubber.accept_input(n);
        at += n;
        if pauses.contains(&at) && at < input.len() {
            scrubber.flush();
        }
        while let Some(chunk) = scrubber.take_chunk(false) {
            out.extend_from_slice(chunk.as_ref());
        }
    }
    scrubber.finish();
    while let Some(chunk) = scrubber.take_chunk(true) {
        out.extend_from_slice(chunk.as_ref());
    }
    out
}

libfuzzer_sys::fuzz_target!(|input: (Vec<u8>, Vec<u8>, Vec<u16>)| {
    let (text, cuts, pauses) = input;
    // Every byte from 240 on stands for a part.
    let text: Vec<u8> = text
        .iter()
        .take(400)
        .flat_map(|b| match b.checked_sub(240) {
            Some(n) => PARTS[usize::from(n) % PARTS.len()].to_vec(),
            None => vec![*b],
        })
        .collect();
    let mut pauses: Vec<usize> = pauses.iter().take(4).map(|p| usize::from(*p) % (text.len() + 1)).collect();
    pauses.sort_unstable();
    let mut known = KnownSecrets::default();
    known.add("a-known-value-1234");
    let mask = Arc::new(Mask::new(Digest::sha256(&[b"fuzz"]), known));
    let whole = redact(&mask, &text, &pauses, &mut std::iter::repeat(usize::MAX));
    let cut = redact(&mask, &text, &pauses, &mut cuts.iter().map(|c| usize::from(*c)).cycle());
    assert!(whole == cut, "{:?} differs from {:?}", String::from_utf8_lossy(&cut), String::from_utf8_lossy(&whole));
});
