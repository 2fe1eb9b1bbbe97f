//! Every rule against its own examples, made anew each time.

use crate::support::{leak, mask, run};
use countersign_redact::{examples::expand, rules};

#[test]
fn every_rule_finds_its_examples_and_nothing_else() {
    let mask = mask(&[]);
    let mut wrong = Vec::new();
    for rule in rules() {
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
