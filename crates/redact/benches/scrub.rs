//! Redaction speed on one core, compared with memchr over the same bytes as the limit of the memory.
//!
//! `cargo bench -p countersign-redact [-- FILE…]` measures generated text, or the files.
#![allow(clippy::disallowed_methods)]

use countersign_model::Digest;
use countersign_redact::{KnownSecrets, MAX_CHUNK_BYTES, Mask, Scrubber, examples::expand};
use std::{collections::BTreeMap, sync::Arc, time::Instant};

const TEXT_BYTES: usize = 128 << 20;

fn mask(values: &[String]) -> Arc<Mask> {
    let mut known = KnownSecrets::default();
    values.iter().for_each(|v| known.add(v));
    Arc::new(Mask::new(Digest::sha256(&[b"bench"]), known))
}

/// Nanoseconds for which this thread ran: time that other programs take does not count.
fn cpu_time() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Gigabytes per second, and how many times each rule matched.
fn measure(mask: &Arc<Mask>, text: &[u8]) -> (f64, BTreeMap<String, usize>) {
    let mut scrubber = Scrubber::new(Arc::clone(mask));
    let mut found = BTreeMap::new();
    let began = cpu_time();
    for piece in text.chunks(MAX_CHUNK_BYTES / 4) {
        scrubber.input_buffer()[..piece.len()].copy_from_slice(piece);
        scrubber.accept_input(piece.len());
        while let Some(chunk) = scrubber.take_chunk(false) {
            scrubber.recycle(std::hint::black_box(chunk).into_inner());
        }
        for f in scrubber.take_findings() {
            *found.entry(f.rule.into_owned()).or_default() += 1;
        }
    }
    (text.len() as f64 / (cpu_time() - began) as f64, found)
}

fn measure_best(mask: &Arc<Mask>, text: &[u8]) -> (f64, usize) {
    let runs: Vec<_> = (0..3).map(|_| measure(mask, text)).collect();
    (runs.iter().map(|r| r.0).fold(0.0, f64::max), runs[0].1.values().sum())
}

fn memchr_speed(text: &[u8]) -> f64 {
    let began = cpu_time();
    std::hint::black_box(memchr::memchr_iter(0xff, text).count());
    text.len() as f64 / (cpu_time() - began) as f64
}

fn fill_lines(mut line: impl FnMut(u64) -> String) -> Vec<u8> {
    let mut out = Vec::with_capacity(TEXT_BYTES + 512);
    let mut n = 0;
    while out.len() < TEXT_BYTES {
        out.extend_from_slice(line(n).as_bytes());
        n += 1;
    }
    out
}

/// A line as cargo, make or a compiler prints it.
fn log_line(n: u64) -> String {
    let hex = expand("{=hex:16}", n).map(|e| e.text).unwrap_or_default();
    match n % 6 {
        0 => format!("   Compiling some-crate-{} v1.{}.3 (/home/someone/project/crates/some-crate)\n", n % 97, n % 31),
        1 => format!(
            "     Running `rustc --crate-name part_{} --edition=2021 src/lib.rs --crate-type lib -C opt-level=3 -C metadata={hex} --out-dir /build/target/release/deps`\n",
            n % 89
        ),
        2 => format!("warning: unused variable: `x{}`\n  --> src/part/mod.rs:{}:17\n   |\n", n % 10, n % 1000),
        3 => format!("[{:3}%] Building CXX object src/CMakeFiles/part.dir/part{}.cpp.o\n", n % 100, n % 50),
        4 => format!("gcc -O2 -g -Wall -I/usr/include/part -c part{}.c -o build/part{}.o\n", n % 70, n % 70),
        _ => format!("test result::case_{} ... ok ({}.{:03}s)\n", n % 700, n % 3, n % 1000),
    }
}

fn main() {
    let files: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    println!("| text | ours | memchr | ratio | found |\n|---|---|---|---|---|");
    let row = |name: &str, mask: &Arc<Mask>, text: &[u8]| {
        let limit = memchr_speed(text);
        let (ours, found) = measure_best(mask, text);
        println!("| {name} | {ours:.3} GB/s | {limit:.1} GB/s | {:.2}× | {found} |", ours / limit);
    };
    let plain = mask(&[]);
    for file in &files {
        let Ok(text) = std::fs::read(file) else { continue };
        row(file, &plain, &text);
        println!("{:?}", measure(&plain, &text).1);
    }
    if !files.is_empty() {
        return;
    }
    let began = Instant::now();
    countersign_redact::warm_up();
    let first = began.elapsed();
    let log = fill_lines(log_line);
    row("clean build log, all rules", &plain, &log);
    let values: Vec<String> = (0..5).map(|n| expand("{alnum:32}", n).map(|e| e.text).unwrap_or_default()).collect();
    row("clean build log, all rules and five known values", &mask(&values), &log);
    let prose = fill_lines(|n| match n % 50 {
        0 => "the token is refreshed when the password changes: see the secret store for the key\n".to_owned(),
        _ => log_line(n),
    });
    row("2 % of lines with \"token\" and \"password\"", &plain, &prose);
    let dense = fill_lines(|n| expand("{=lower:20} ghp_{alnum:36}\n", n).map(|e| e.text).unwrap_or_default());
    row("a token in every line of 62 bytes", &plain, &dense);
    println!("\nstart: {:.0} µs", first.as_secs_f64() * 1e6);
}
