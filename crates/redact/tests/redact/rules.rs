//! Every rule against its own examples, made anew each time.

use crate::support::{leak, mask, run};
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
                    let out = String::from_utf8(run(&mask, input.as_bytes(), &[])).unwrap();
                    let leaked = example.secrets.iter().filter(|s| s.len() >= 8).find_map(|s| leak(&out, s));
                    if leaked.is_some() || !out.contains("[redacted:") {
                        wrong.push(format!("{}: {template} in {before:?}: {input:?} → {out:?} ({leaked:?})", rule.id));
                    }
                }
            }
        }
        for template in rule.misses {
            for seed in 0..6 {
                let text = expand(template, seed).unwrap().text;
                let out = String::from_utf8(run(&mask, text.as_bytes(), &[])).unwrap();
                if out != text {
                    wrong.push(format!("{}: {template} → {out}", rule.id));
                }
            }
        }
    }
    wrong.dedup_by_key(|w| w.split(':').next().unwrap().to_owned());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Hexadecimal digits are thrown, too, when they happen to be mostly numbers.
#[test]
fn a_token_whose_digits_seldom_change_is_found() {
    let token = ["said: pat.acPkuTDgqQ4tDE3nKVptkS", "869150559620121c78205565", "70iX0ECElEXc1yZp70xI\r\n"].join(".");
    let out = String::from_utf8(run(&mask(&[]), token.as_bytes(), &[])).unwrap();
    assert!(out.starts_with("said: pat.[redacted:harness-token:") && out.ends_with("]\r\n"), "{out}");
}

/// Tokens are thrown, and so some look like something else. Those that are cut by slashes may have no stretch that is long
/// enough to be seen: docs/redaction.md says how many. Of the others none is missed.
#[test]
fn what_is_missed_is_as_rare_as_is_said() {
    let mask = mask(&[]);
    let mut wrong = Vec::new();
    for rule in built_in_rules() {
        let template = rule.matches[0];
        let missed = |seed: &u64| {
            let example = expand(template, seed * 7919).unwrap();
            let out = run(&mask, format!("said: {}\n", example.text).as_bytes(), &[]);
            let out = String::from_utf8(out).unwrap();
            example.secrets.iter().filter(|s| s.len() >= 12).any(|s| out.contains(s.as_str()))
        };
        let missed = (0..400).filter(missed).count();
        let allowed = if template.contains("{base64:") { 6 } else { 0 };
        if missed > allowed {
            wrong.push(format!("{}: {missed} of 400", rule.id));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
