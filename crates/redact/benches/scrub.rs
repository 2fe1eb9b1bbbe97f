//! Redaction speed, beside memchr over the same bytes.
#![allow(clippy::disallowed_methods)]

use countersign_model::Digest;
use countersign_redact::{CHUNK, Known, Mask, Scrubber};
use std::{sync::Arc, time::Instant};

fn speed(values: &[&str], text: &[u8]) -> f64 {
    let mut known = Known::default();
    values.iter().for_each(|v| known.add(v));
    let mut scrubber = Scrubber::new(Arc::new(Mask::new(Digest::sha256(&[b"bench"]), known)));
    let began = Instant::now();
    for piece in text.chunks(CHUNK / 2) {
        scrubber.room()[..piece.len()].copy_from_slice(piece);
        scrubber.fed(piece.len());
        while let Some(chunk) = scrubber.cut(false) {
            scrubber.recycle(std::hint::black_box(chunk).into_inner());
        }
    }
    text.len() as f64 / 1e9 / began.elapsed().as_secs_f64()
}

fn main() {
    let log =
        "   Compiling some-crate v1.2.3 (/home/someone/project/crates/some-crate)\nwarning: unused variable: `x`\n";
    let text = log.repeat((256 << 20) / log.len()).into_bytes();
    let best = |values: &[&str]| (0..3).map(|_| speed(values, &text)).fold(0.0, f64::max);
    let began = Instant::now();
    std::hint::black_box(memchr::memchr_iter(0xff, &text).count());
    let limit = text.len() as f64 / 1e9 / began.elapsed().as_secs_f64();
    println!("| metric | ours | limit | ratio |\n|---|---|---|---|");
    for (name, values) in
        [("rules only", [].as_slice()), ("rules and ten known values", &["one-secret-value", "another-secret-value"])]
    {
        let ours = best(values);
        println!("| clean build log, {name} | {ours:.2} GB/s | {limit:.1} GB/s (memchr) | {:.2}× |", ours / limit);
    }
}
