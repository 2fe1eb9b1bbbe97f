//! Tests every rule with its own examples, which are generated in each run.

use crate::support::{find_leak, mask, redact_in_pieces};
use countersign_redact::{built_in_rules, examples::expand};

#[test]
fn every_rule_finds_its_examples_and_nothing_else() {
    let mask = mask(&[]);
    let mut wrong = Vec::new();
    for rule in built_in_rules() {
        for (n, template) in rule.matches.iter().enumerate() {
            for seed in 0..6 {
                let example = expand(template, seed * 1000 + n as u64).unwrap();
                for (before, after) in
                    [("", ""), ("see ", " there\n"), ("x=\"", "\","), ("\\n", "\\n"), ("\x1b[1m", "\x1b[0m\r\n")]
                {
                    let input = format!("{before}{}{after}", example.text);
                    let out = String::from_utf8(redact_in_pieces(&mask, input.as_bytes(), &[])).unwrap();
                    let leaked = example.secrets.iter().filter(|s| s.len() >= 8).find_map(|s| find_leak(&out, s));
                    if leaked.is_some() || !out.contains("[redacted:") {
                        wrong.push(format!("{}: {template} in {before:?}: {input:?} → {out:?} ({leaked:?})", rule.id));
                    }
                }
            }
        }
        for template in rule.misses {
            for seed in 0..6 {
                let text = expand(template, seed).unwrap().text;
                let out = String::from_utf8(redact_in_pieces(&mask, text.as_bytes(), &[])).unwrap();
                if out != text {
                    wrong.push(format!("{}: {template} → {out}", rule.id));
                }
            }
        }
    }
    wrong.dedup_by_key(|w| w.split(':').next().unwrap().to_owned());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Some random hexadecimal tokens consist mostly of digits.
#[test]
fn a_token_whose_digits_seldom_change_is_found() {
    let token = ["said: pat.acPkuTDgqQ4tDE3nKVptkS", "869150559620121c78205565", "70iX0ECElEXc1yZp70xI\r\n"].join(".");
    let out = String::from_utf8(redact_in_pieces(&mask(&[]), token.as_bytes(), &[])).unwrap();
    assert!(out.starts_with("said: pat.[redacted:harness-token:") && out.ends_with("]\r\n"), "{out}");
}

/// A random token with slashes may have no run that is long enough to be found; docs/redaction.md gives the share. No
/// other token is missed.
#[test]
fn no_more_tokens_are_missed_than_documented() {
    let mask = mask(&[]);
    let mut wrong = Vec::new();
    for rule in built_in_rules() {
        let template = rule.matches[0];
        let missed = |seed: &u64| {
            let example = expand(template, seed * 7919).unwrap();
            let out = redact_in_pieces(&mask, format!("said: {}\n", example.text).as_bytes(), &[]);
            let out = String::from_utf8(out).unwrap();
            example.secrets.iter().filter(|s| s.len() >= 12).any(|s| out.contains(s.as_str()))
        };
        let missed = (0..100).filter(missed).count();
        let allowed = if template.contains("{base64:") { 1 } else { 0 };
        if missed > allowed {
            wrong.push(format!("{}: {missed} of 100", rule.id));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
