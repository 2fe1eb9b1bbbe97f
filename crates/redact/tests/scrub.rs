//! Redaction by data and by property. Secrets are made here, never written down.
#![allow(clippy::unwrap_used)]

use countersign_model::Digest;
use countersign_redact::{Known, Mask, Scrubber, text};
use proptest::prelude::*;
use std::sync::Arc;

fn alnum(n: usize) -> String {
    (0..n).map(|i| char::from(b"aZ3kQ9xB7"[i * 5 % 9])).collect()
}

fn mask(values: &[&str]) -> Mask {
    let mut known = Known::default();
    values.iter().for_each(|v| known.add(v));
    Mask::new(Digest::sha256(&[b"test"]), known)
}

/// Feeds `input` in pieces; a piece of length 0 is a flush.
fn run(values: &[&str], input: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut s = Scrubber::new(Arc::new(mask(values)));
    let (mut out, mut rest) = (Vec::new(), input);
    let mut cuts = cuts.iter().copied();
    while !rest.is_empty() {
        let n = cuts.next().unwrap_or(rest.len()).min(rest.len());
        if n == 0 {
            s.flush();
        } else {
            s.room()[..n].copy_from_slice(&rest[..n]);
            s.fed(n);
            rest = &rest[n..];
        }
        while let Some(chunk) = s.cut(false) {
            out.extend_from_slice(chunk.as_ref());
        }
    }
    s.finish();
    while let Some(chunk) = s.cut(true) {
        out.extend_from_slice(chunk.as_ref());
    }
    out
}

fn check(values: &[&str], input: &str, expect: &str) {
    let out = String::from_utf8(run(values, input.as_bytes(), &[])).unwrap();
    let mut shown = String::new();
    let mut rest = out.as_str();
    while let Some(i) = rest.find("[redacted:") {
        let end = i + rest[i..].find(']').unwrap();
        shown += &rest[..i];
        shown += "<";
        shown += rest[i + 10..end].rsplit_once(':').unwrap().0;
        shown += ">";
        rest = &rest[end + 1..];
    }
    assert_eq!(shown + rest, expect, "from {input:?}");
}

#[test]
fn tokens_go_and_their_prefix_stays() {
    let token = format!("ghp_{}", alnum(36));
    check(&[], &format!("a {token} b"), "a ghp_<github-token> b");
    check(&[], &token, "ghp_<github-token>");
    check(&[], &format!("x{token}"), &format!("x{token}"));
    check(&[], "ghp_short ghp_", "ghp_short ghp_");
    let key = "AKIA".to_owned() + &"Q7".repeat(8);
    check(&[], &format!("{key}\n"), "AKIA<aws-key-id>\n");
    check(&[], &format!("{key}Z"), &format!("{key}Z"));
    check(&[], &format!("sk-ant-{}.", alnum(600)), "sk-ant-<anthropic-key>.");
}

#[test]
fn known_values_go_in_every_form() {
    let value = "hunter2\"&+/é";
    check(&[value], &format!("[{value}]"), "[<known-value>]");
    check(&[value], "aHVudGVyMiImKy/DqQ==", "<known-value>==");
    check(&[value], "hunter2%22%26%2B%2F%C3%A9", "<known-value>");
    check(&[value], r#"{"p":"hunter2\"&+/é"}"#, r#"{"p":"<known-value>"}"#);
    check(&["abcdef", "abcdefgh"], "abcdefgh abcdefg", "<known-value> <known-value>g");
    check(&["short"], "short", "short");
}

#[test]
fn the_same_secret_looks_the_same() {
    let m = mask(&["correct horse"]);
    let a = text(&m, "correct horse, correct horse");
    let (x, y) = a.as_str().split_once(", ").unwrap();
    assert_eq!(x, y);
}

#[test]
fn characters_are_not_cut_between_chunks() {
    let mut s = Scrubber::new(Arc::new(mask(&[])));
    let crab = "🦀".as_bytes();
    s.room()[..3].copy_from_slice(&crab[..3]);
    s.fed(3);
    assert!(s.cut(false).is_none());
    s.room()[..1].copy_from_slice(&crab[3..]);
    s.fed(1);
    assert_eq!(s.cut(false).unwrap().as_ref(), crab);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn every_chunking_gives_the_same(
        parts in prop::collection::vec(0..9usize, 1..12),
        noise in "[a-zAghp_s é\n-]{0,24}",
        cuts in prop::collection::vec(1..12usize, 0..60),
    ) {
        let token = format!("ghp_{}", alnum(36));
        let anthropic = format!("sk-ant-{}", alnum(40));
        let values = ["correct horse battery", "correct pony", "ghp_inside-a-value"];
        let pieces = [&noise, &token, &anthropic, values[0], values[1], values[2], "correct ", "\n", "ghp_"];
        let input: String = parts.iter().map(|i| pieces[*i]).collect();
        let whole = run(&values, input.as_bytes(), &[]);
        prop_assert_eq!(&whole, &run(&values, input.as_bytes(), &cuts));
        prop_assert_eq!(&whole, &run(&values, input.as_bytes(), &vec![1; input.len()]));
        let whole = String::from_utf8_lossy(&whole);
        for value in values {
            prop_assert!(!whole.contains(value));
        }
    }

    #[test]
    fn any_flush_lets_at_most_three_bytes_out(before in "[a-z \n]{0,9}", at in prop::collection::vec(0..60usize, 1..20)) {
        let value = "Zq8!vX2#kL9@mN4";
        let token = format!("{}W", "Y7".repeat(19));
        let input = format!("{before}{value} ghp_{token} ");
        let mut cuts = Vec::new();
        for n in &at {
            cuts.extend([1 + n % 7, 0]);
        }
        let out = String::from_utf8_lossy(&run(&[value], input.as_bytes(), &cuts)).into_owned();
        for secret in [value, &token] {
            for window in secret.as_bytes().windows(4) {
                let window = std::str::from_utf8(window).unwrap();
                prop_assert!(!out.contains(window), "{window} of {secret} in {out}");
            }
        }
    }
}
