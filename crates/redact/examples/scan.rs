use countersign_model::Digest;
use countersign_redact::{KnownSecrets, Mask, Scrubber};
use std::{io::BufRead, sync::Arc};
fn main() {
    let mask = Arc::new(Mask::new(Digest::sha256(&[b"x"]), KnownSecrets::default()));
    let (mut total, mut count) = (0usize, 0usize);
    for path in std::io::stdin().lock().lines() {
        let path = path.unwrap();
        let Ok(text) = std::fs::read(&path) else { continue };
        if text.len() > 20_000_000 {
            continue;
        }
        total += text.len();
        let mut s = Scrubber::new(mask.clone());
        let mut clean = Vec::new();
        for piece in text.chunks(100_000) {
            s.input_buffer()[..piece.len()].copy_from_slice(piece);
            s.accept_input(piece.len());
            while let Some(c) = s.take_chunk(false) {
                clean.extend_from_slice(c.as_ref());
            }
        }
        s.finish();
        while let Some(c) = s.take_chunk(true) {
            clean.extend_from_slice(c.as_ref());
        }
        let found = s.take_findings();
        if found.is_empty() {
            continue;
        }
        count += found.len();
        for f in found {
            let o = f.offset as usize;
            let from = clean[..o].iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1).max(o.saturating_sub(100));
            let rest = &clean[o..];
            let close = rest.iter().position(|b| *b == b']').unwrap_or(0) + 1;
            let after = &rest[close..(close + 40).min(rest.len())];
            // find the value in the original
            let tail: Vec<u8> = after.iter().copied().take(16).collect();
            let pre = &clean[from..o];
            let value = memchr_find(&text, pre).and_then(|i| {
                let v = &text[i + pre.len()..(i + pre.len() + 400).min(text.len())];
                memchr_find(v, &tail).map(|n| &v[..n])
            });
            println!(
                "{}\t{}\t{}\t«{}»\t{}",
                f.rule,
                path.rsplit('/').take(3).collect::<Vec<_>>().join("<"),
                String::from_utf8_lossy(pre).replace('\n', "\\n"),
                String::from_utf8_lossy(value.unwrap_or(b"?")).replace('\n', "\\n"),
                String::from_utf8_lossy(after).replace('\n', "\\n")
            );
        }
    }
    eprintln!("{total} bytes, {count} replaced, {:.3} per MB", count as f64 / (total as f64 / 1e6));
}
fn memchr_find(h: &[u8], n: &[u8]) -> Option<usize> {
    if n.is_empty() {
        return Some(h.len());
    }
    h.windows(n.len()).position(|w| w == n)
}
