//! The hot paths of the store, compared with their physical limits: frames, verified ranges, decisions.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use countersign_model::{Clean, Digest, EnvClass, Frame, IdMint, StreamName, TaskId, Text};
use countersign_store::{
    journal::JournalWriter,
    output::{ChunkCache, OutputAppender, OutputMap, chunk_digest},
};
use std::{path::Path, time::Instant};

const OUTPUT_BYTES: usize = 128 * 1024 * 1024;

/// The best speed of each in GB/s, measured in turns, because the speed of the machine changes.
fn best_of_each<const N: usize>(mut all: [&mut dyn FnMut() -> usize; N]) -> [f64; N] {
    let mut best = [0.0; N];
    for _ in 0..15 {
        for (work, best) in all.iter_mut().zip(&mut best) {
            let began = Instant::now();
            let bytes = work();
            *best = f64::max(*best, bytes as f64 / 1e9 / began.elapsed().as_secs_f64());
        }
    }
    best
}

/// Verified reads of 1 MiB of an output with chunks of this length, beside BLAKE3 alone: over the same bytes in memory,
/// and over one chunk that stays in the processor's cache.
fn compare_ranges(chunk_bytes: usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = new_journal(dir.path());
    let mut appender = OutputAppender::new();
    let chunk: Vec<u8> = (0..chunk_bytes).map(|n| (n * 31 % 251) as u8).collect();
    for _ in 0..OUTPUT_BYTES / chunk_bytes {
        let offset = appender.offset();
        appender.append(dir.path(), StreamName::Stdout, &Clean::mint(&chunk), &mut 0, chunk.len()).unwrap();
        let digest = chunk_digest(&chunk);
        writer.push(&Frame::Output { stream: StreamName::Stdout, offset, len: chunk_bytes as u64, digest });
    }
    writer.write().unwrap();
    let mut map = OutputMap::open(dir.path(), 0).unwrap();
    map.refresh().unwrap();
    let total = map.total(StreamName::Stdout);
    let output = std::fs::read(dir.path().join(StreamName::Stdout.file())).unwrap();
    let hash_all = |chunks: &mut dyn Iterator<Item = &[u8]>| {
        for chunk in chunks {
            std::hint::black_box(chunk_digest(chunk));
        }
        OUTPUT_BYTES
    };
    let mut plain = || hash_all(&mut output.chunks(chunk_bytes));
    let mut cached = || hash_all(&mut std::iter::repeat_n(chunk.as_slice(), OUTPUT_BYTES / chunk_bytes));
    let mut verified = || {
        let (mut cache, mut offset) = (ChunkCache::default(), 0);
        while offset < total {
            let bytes = map.read(&mut cache, dir.path(), StreamName::Stdout, offset, 1 << 20).unwrap();
            offset += std::hint::black_box(bytes).len() as u64;
        }
        total as usize
    };
    let [plain, cached, verified] = best_of_each([&mut plain, &mut cached, &mut verified]);
    println!(
        "| verified range reads of 1 MiB, chunks of {} KiB | {verified:.2} GB/s | {plain:.2} GB/s (BLAKE3 alone, the same bytes in memory), {cached:.2} (one chunk in the cache) | {:.2}×, {:.2}× |",
        chunk_bytes / 1024,
        verified / plain,
        verified / cached
    );
}

fn new_journal(dir: &Path) -> JournalWriter {
    let task = TaskId::mint(&mut IdMint::default(), 1, 1);
    JournalWriter::create(dir, task, Digest::sha256(&[b"head"]), 0).unwrap()
}

fn main() {
    println!("| metric | ours | limit | ratio |\n|---|---|---|---|");
    compare_ranges(256 * 1024);
    compare_ranges(4 * 1024);
    let dir = tempfile::tempdir().unwrap();
    let mut writer = new_journal(dir.path());
    let head = Digest::sha256(&[b"head"]);
    let frames = 200_000;
    let began = Instant::now();
    let quiet = Frame::EnvExposed { class: EnvClass::Base, names: vec![Text::from_static("PATH")], withheld: vec![] };
    for n in 0..frames {
        match n % 2 {
            0 => writer.push(&Frame::Output { stream: StreamName::Stdout, offset: n, len: 80, digest: head }),
            _ => writer.push(&quiet),
        };
        writer.write().unwrap();
    }
    let each = began.elapsed().as_secs_f64() * 1e6 / frames as f64;
    println!("| one frame, chained and written | {each:.2} µs | | |");
}
