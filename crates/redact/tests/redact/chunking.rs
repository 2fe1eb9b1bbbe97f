//! The result does not depend on how the input is cut: every example of every rule, in several surroundings, cut at every
//! byte.

use crate::support::{find_leak, mask, redact_in_pieces};
use countersign_redact::{built_in_rules, examples::expand};

/// Surroundings: `@` is replaced by the example.
const PLAIN: &[&str] = &["@", "see @ there\n", "{\"x\": \"@\"}\n", "https://h.example.com/a?b=1&x=@&c=2\n"];
const STRUCTURES: &[&str] = &[
    "curl -u bob:@ https://h/\n",
    "Authorization: Bearer @\r\n",
    "Cookie: a=@; b=c\r\n",
    "{\"a\": \"{\\\"api_key\\\": \\\"@\\\"}\"}\n",
    "password: >-\n  @\nnext: 1\n",
    "postgres://app:@@db:5432/x\n",
    "asana = \"@\"\n",
    "export GITHUB_TOKEN=@\n",
    "mysql -u root -p@ -h db\n",
    "https://hooks.example.com/run?sp=r&sv=1.0&sig=@\n",
    "acmecorp_live_@ then\n",
    "db.example.com:5432:app:bob:@\n",
];

/// Cuts a text at every byte, once in two pieces and once byte by byte, and compares with the whole.
fn check_cuts(text: &str, wrong: &mut Vec<String>, name: &str) {
    let mask = mask(&["a-known-value-1234"]);
    let whole = redact_in_pieces(&mask, text.as_bytes(), &[]);
    let differs = |cuts: &[usize]| redact_in_pieces(&mask, text.as_bytes(), cuts) != whole;
    let single: Vec<usize> = vec![1; text.len()];
    let at = (1..text.len()).find(|at| differs(&[*at])).or_else(|| differs(&single).then_some(0));
    if let Some(at) = at {
        wrong.push(format!("{name}: cut at {at}: {text:?} → {:?}", String::from_utf8_lossy(&whole)));
    }
}

#[test]
fn every_rule_finds_the_same_however_the_input_is_cut() {
    let mut wrong = Vec::new();
    for (n, rule) in built_in_rules().iter().enumerate() {
        let example = expand(rule.matches[n % rule.matches.len()], 31 + n as u64).unwrap().text;
        // Longer ones differ in nothing but their length.
        if example.len() <= 300 {
            check_cuts(&PLAIN[n % PLAIN.len()].replace('@', &example), &mut wrong, rule.id);
        }
    }
    assert!(wrong.is_empty(), "{} rules:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_structure_is_read_the_same_however_the_input_is_cut() {
    let mut wrong = Vec::new();
    let values =
        ["{alnum:12}", "{hex:32}", "{base64url:43}", "crimson-otter-{digit:4}", "{alnum:4}!{alnum:3}/{alnum:4}"];
    for structure in STRUCTURES {
        for (n, value) in values.iter().enumerate() {
            let secret = expand(value, 7 + n as u64).unwrap().text;
            // In `user:@@host` the second sign is the link's own.
            let text = structure.replacen('@', &secret, 1);
            for text in [
                text.clone(),
                format!("\x1b[1m{text}"),
                text.replace(&secret[..4], &format!("{}\x1b[0m", &secret[..4])),
            ] {
                check_cuts(&text, &mut wrong, structure);
            }
        }
    }
    assert!(wrong.is_empty(), "{} texts:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_pause_anywhere_shows_at_most_three_bytes_of_a_token_with_a_prefix() {
    let mask = mask(&[]);
    let mut wrong = Vec::new();
    for (n, rule) in built_in_rules().iter().enumerate() {
        let example = expand(rule.matches[0], 57 + n as u64).unwrap();
        // A rule whose keyword stands in the middle needs a digit among the first bytes to hold them.
        if example.text.len() > 200 || !rule.keywords.iter().any(|k| example.text.starts_with(k)) {
            continue;
        }
        let text = format!("said: {}\n", example.text);
        for at in (7..text.len()).step_by(3) {
            let out = String::from_utf8(redact_in_pieces(&mask, text.as_bytes(), &[at, 0])).unwrap();
            if let Some(leaked) = example.secrets.iter().filter(|s| s.len() >= 12).find_map(|s| find_leak(&out, s)) {
                wrong.push(format!("{}: pause at {at}: {text:?} → {out:?} ({leaked})", rule.id));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{} rules:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_cursor_movement_anywhere_is_read_the_same_however_the_input_is_cut() {
    let mask = mask(&[]);
    let secret = expand("{alnum:24}", 5).unwrap().text;
    let texts = [
        "echo \"\\\u{1b}[D".to_owned(),
        "curl -u \"bob:a\\\u{1b}[D".to_owned(),
        format!("VULTR_API_KEY = \"UX\u{1b}[2;3H{secret}\";\n"),
        format!("UPCLOUD_TOKEN=\"ucat_{secret}\u{1b}[2;3HEZXRISBAPE3\"\n"),
        format!("\"token\": \"pypi-AgEIcH\r\nlwaS5vcmc{secret}{secret}{secret}{secret}\"\n"),
        "Authorization: Digest nonce=&abcd1234efgh, x=1\n".to_owned(),
        format!("curl -u bob:[smtp.x.com]:58: {secret}\n"),
    ];
    for text in texts {
        let whole = redact_in_pieces(&mask, text.as_bytes(), &[]);
        for at in 1..text.len() {
            let cut = redact_in_pieces(&mask, text.as_bytes(), &[at]);
            assert_eq!(String::from_utf8_lossy(&whole), String::from_utf8_lossy(&cut), "{text:?} at {at}");
        }
    }
}
