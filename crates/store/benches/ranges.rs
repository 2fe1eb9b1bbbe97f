//! The hot paths of the store, compared with their physical limits: frames, verified ranges, decisions.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use countersign_model::{Clean, Digest, EnvClass, Frame, IdMint, StreamName, TaskId, Text};
use countersign_store::{
    journal::JournalWriter,
    output::{ChunkCache, OutputAppender, OutputMap, chunk_digest},
};
use std::time::Instant;

const CHUNK: usize = 256 * 1024;
const CHUNKS: usize = 512;

fn best(mut f: impl FnMut() -> usize) -> f64 {
    let run = |f: &mut dyn FnMut() -> usize| {
        let began = Instant::now();
        let bytes = f();
        bytes as f64 / 1e9 / began.elapsed().as_secs_f64()
    };
    (0..5).map(|_| run(&mut f)).fold(0.0, f64::max)
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let task = TaskId::mint(&mut IdMint::default(), 1, 1);
    let head = Digest::sha256(&[b"head"]);
    let mut writer = JournalWriter::create(dir.path(), task, head, 0).unwrap();
    let mut appender = OutputAppender::new();
    let chunk: Vec<u8> = (0..CHUNK).map(|n| (n * 31 % 251) as u8).collect();
    for _ in 0..CHUNKS {
        let offset = appender.offset();
        appender.append(dir.path(), StreamName::Stdout, &Clean::mint(&chunk), &mut 0, chunk.len()).unwrap();
        let digest = chunk_digest(&chunk);
        writer.push(&Frame::Output { stream: StreamName::Stdout, offset, len: CHUNK as u64, digest });
    }
    writer.write().unwrap();
    let mut map = OutputMap::open(dir.path(), 0).unwrap();
    map.refresh().unwrap();
    let total = map.total(StreamName::Stdout);
    let plain = best(|| {
        for _ in 0..CHUNKS {
            std::hint::black_box(chunk_digest(&chunk));
        }
        CHUNK * CHUNKS
    });
    let verified = best(|| {
        let (mut cache, mut offset) = (ChunkCache::default(), 0);
        while offset < total {
            let bytes = map.read(&mut cache, dir.path(), StreamName::Stdout, offset, 1 << 20).unwrap();
            offset += std::hint::black_box(bytes).len() as u64;
        }
        total as usize
    });
    println!("| metric | ours | limit | ratio |\n|---|---|---|---|");
    println!(
        "| verified range reads of 1 MiB | {verified:.2} GB/s | {plain:.2} GB/s (BLAKE3 alone) | {:.2}× |",
        verified / plain
    );
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
