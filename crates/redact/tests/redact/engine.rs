//! Known secrets, tokens and key blocks are redacted, whatever the pieces in which the input comes.

use crate::support::{check_redacted, find_leak, mask, redact_in_pieces};
use countersign_redact::{Scrubber, built_in_rules, examples::expand, text};
use proptest::prelude::*;

fn alnum(n: usize) -> String {
    (0..n).map(|i| char::from(b"aZ3kQ9xB7"[i * 5 % 9])).collect()
}

#[test]
fn tokens_are_redacted_and_their_prefixes_stay() {
    let token = format!("ghp_{}", alnum(36));
    check_redacted(&[], &format!("a {token} b"), "a ghp_<github-token> b");
    check_redacted(&[], &token, "ghp_<github-token>");
    check_redacted(&[], &format!("x{token}"), &format!("x{token}"));
    check_redacted(&[], "ghp_short ghp_", "ghp_short ghp_");
    let key = "AKIA".to_owned() + &"Q7XM4KZP".repeat(2);
    check_redacted(&[], &format!("{key}\n"), "AKIA<aws-access-key>\n");
    check_redacted(&[], &format!("{key}Z"), &format!("{key}Z"));
    check_redacted(&[], &format!("sk-ant-{}.", alnum(600)), "sk-ant-<anthropic-key>.");
}

#[test]
fn known_values_are_redacted_in_every_form() {
    let value = "hunter2\"&+/é";
    check_redacted(&[value], &format!("[{value}]"), "[<known-value>]");
    check_redacted(&[value], "aHVudGVyMiImKy/DqQ==", "<known-value>==");
    check_redacted(&[value], "hunter2%22%26%2B%2F%C3%A9", "<known-value>");
    check_redacted(&[value], r#"{"p":"hunter2\"&+/é"}"#, r#"{"p":"<known-value>"}"#);
    check_redacted(&["abcdef", "abcdefgh"], "abcdefgh abcdefg", "<known-value> <known-value>g");
    check_redacted(&["short"], "short", "short");
}

#[test]
fn equal_secrets_have_equal_placeholders() {
    let m = mask(&["correct horse"]);
    let a = text(&m, "correct horse, correct horse");
    let (x, y) = a.as_str().split_once(", ").unwrap();
    assert_eq!(x, y);
}

#[test]
fn a_row_of_digits_is_shown_at_a_pause() {
    let row = "0123456789".repeat(8);
    let mut s = Scrubber::new(mask(&[]));
    s.input_buffer()[..80].copy_from_slice(row.as_bytes());
    s.accept_input(80);
    s.flush();
    assert_eq!(s.take_chunk(true).unwrap().as_ref(), row.as_bytes());
}

#[test]
fn characters_are_not_cut_between_chunks() {
    let mut s = Scrubber::new(mask(&[]));
    let crab = "🦀".as_bytes();
    s.input_buffer()[..3].copy_from_slice(&crab[..3]);
    s.accept_input(3);
    assert!(s.take_chunk(false).is_none());
    s.input_buffer()[..1].copy_from_slice(&crab[3..]);
    s.accept_input(1);
    assert_eq!(s.take_chunk(false).unwrap().as_ref(), crab);
}

#[test]
fn a_token_is_found_at_every_position_and_with_any_line_breaks() {
    let mask = mask(&[]);
    let mut wrong = Vec::new();
    for rule in built_in_rules() {
        let example = expand(rule.matches[0], 77).unwrap();
        for pad in 0..17 {
            for wrap in [0, 5, 9, 21] {
                let mut input = format!("{}{}", " ".repeat(pad), example.text);
                // Broken behind its keyword, where the secret begins.
                let from = pad
                    + rule.keywords.iter().filter_map(|k| example.text.find(k).map(|i| i + k.len())).min().unwrap_or(0);
                if wrap > 0 && example.text.len() > 30 && !rule.regex.contains('|') {
                    for at in (from + 1..input.len().saturating_sub(4)).rev().filter(|at| (at - from) % wrap == 0) {
                        input.insert_str(at, "\r\n");
                    }
                }
                let out = String::from_utf8(redact_in_pieces(&mask, input.as_bytes(), &[])).unwrap();
                let exact = !rule.regex.contains(',') && !rule.regex.contains('?');
                for secret in example.secrets.iter().filter(|s| s.len() >= 16 && (wrap == 0 || exact)) {
                    if find_leak(&out, secret).is_some() {
                        wrong.push((rule.id, pad, wrap, input.clone(), out.clone()));
                    }
                }
            }
        }
    }
    wrong.dedup_by_key(|w| w.0);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn key_blocks_are_redacted_and_their_first_and_last_lines_stay() {
    let lines: Vec<String> = (0..20).map(|n| expand("{base64:64}", n).unwrap().text).collect();
    let begin = "-----BEGIN RSA PRIVATE KEY-----";
    let end = "-----END RSA PRIVATE KEY-----";
    let body = lines.join("\n");
    check_redacted(&[], &format!("a\n{begin}\n{body}\n{end}\nb"), &format!("a\n{begin}\n<private-key>\n{end}\nb"));
    check_redacted(
        &[],
        &format!("{{\"k\": \"{begin}\\n{}\\n{end}\\n\"}}", lines.join("\\n")),
        &format!("{{\"k\": \"{begin}\\n<private-key>\\n{end}\\n\"}}"),
    );
    check_redacted(
        &[],
        &format!("{begin}\nProc-Type: 4,ENCRYPTED\n\n{body}\n{end}"),
        &format!("{begin}\n<private-key>\n{end}"),
    );
    let indented: String = lines.iter().map(|l| format!("    {l}\n")).collect();
    check_redacted(
        &[],
        &format!("    {begin}\n{indented}    {end}\n"),
        &format!("    {begin}\n    <private-key>\n    {end}\n"),
    );
    // Without an end, up to the last line of the key.
    check_redacted(
        &[],
        &format!("{begin}\n{body}\nand then (some) prose"),
        &format!("{begin}\n<private-key>\nand then (some) prose"),
    );
    check_redacted(
        &[],
        &format!("PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 3\n{}\nPrivate-MAC: 00", lines[..3].join("\n")),
        "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 3\n<private-key>",
    );
    for plain in [
        format!("if line == \"{begin}\" {{ return true; }}"),
        format!("{begin} is how such a file begins, and then there are lines of letters.\nThere is no key here: only words about it.\n"),
        "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ\n-----END CERTIFICATE-----\n".to_owned(),
    ] {
        check_redacted(&[], &plain, &plain);
    }
    let endless: String = (0..3000).map(|n| expand("{base64:64}\n", n).unwrap().text).collect();
    let out = String::from_utf8(redact_in_pieces(&mask(&[]), format!("{begin}\n{endless}").as_bytes(), &[])).unwrap();
    assert!(out.len() > 100_000 && out.len() < 3000 * 65 - 60_000, "{}", out.len());
}

#[test]
fn escape_sequences_hide_no_secret_and_stay() {
    let token = alnum(36);
    let coloured: String = token.chars().map(|c| format!("{c}\x1b[0m")).collect();
    check_redacted(
        &[],
        &format!("\x1b[32mgh\x1b[31mp_{coloured}!"),
        &format!("\x1b[32mgh\x1b[31mp_<github-token>{}!", "\x1b[0m".repeat(36)),
    );
    check_redacted(&[], &format!("\x1b]0;ghp_{token}\x07x"), "\x1b]0;ghp_<github-token>\x07x");
    check_redacted(
        &[],
        &format!("\x1b]8;;https://h/?token=ghp_{token}\x1b\\link\x1b]8;;\x1b\\"),
        "\x1b]8;;https://h/?token=ghp_<github-token>\x1b\\link\x1b]8;;\x1b\\",
    );
    // Text elsewhere on the screen is another text, and nothing is held for it.
    check_redacted(&[], "keys:\x1b[5;1H│──────1a2b3c4d5e6f7g8h9i0j", "keys:\x1b[5;1H│──────1a2b3c4d5e6f7g8h9i0j");
    let mut drawn = Scrubber::new(mask(&[]));
    for text in ["api_key: abc123def456\x1b[7;3H", "Authorization: Basic abc123def456ghi\x1b[2J"] {
        drawn.input_buffer()[..text.len()].copy_from_slice(text.as_bytes());
        drawn.accept_input(text.len());
        assert_eq!(drawn.held_bytes(), 0, "{text:?}");
    }
    // A line that is long enough for a wrap, with another token on the next line.
    let line = format!("{} ghp_{token}", "x".repeat(40));
    check_redacted(
        &[],
        &format!("{line}\r\nghp_{token}\r\n"),
        &format!("{} ghp_<github-token>\r\nghp_<github-token>\r\n", "x".repeat(40)),
    );
    // A line editor wraps with a blank and a carriage return.
    check_redacted(&[], &format!("$ x ghp_{} \r{} y", &token[..20], &token[20..]), "$ x ghp_<github-token> y");
    check_redacted(&["correct horse"], "cor\x1b[1mrect hor\r\nse", "<known-value>\x1b[1m");
}

#[test]
fn the_held_part_of_an_endless_value_is_bounded() {
    let mask = mask(&["a-known-value-of-some-length"]);
    for piece in [
        "Cookie: a=",
        "Cookie: a=b1",
        "password=",
        "password=\"a1b2c3",
        "Authorization: x1 ",
        "https://u:p@",
        "-----BEGIN PRIVATE KEY-----\n",
        "eyJhbGciOiJIUzI1NiJ9.",
        "ghp_a \r",
        "\x1b]0;",
        "a-known-value-",
        "token=ghp_",
        "sk-ant-aB3",
        "Bearer aB3",
    ] {
        let text = piece.repeat((1 << 20) / piece.len());
        let mut scrubber = Scrubber::new(std::sync::Arc::clone(&mask));
        let mut max_held = 0;
        for bytes in text.as_bytes().chunks(64 * 1024) {
            scrubber.input_buffer()[..bytes.len()].copy_from_slice(bytes);
            scrubber.accept_input(bytes.len());
            while scrubber.take_chunk(false).is_some() {}
            max_held = max_held.max(scrubber.held_bytes());
        }
        assert!(max_held <= 256 * 1024, "{piece:?}: {max_held}");
    }
}

/// Parts of texts that are hard to cut: secrets, their prefixes, and bytes that may end or interrupt them.
fn pieces() -> Vec<String> {
    let made = |t: &str| expand(t, 4711).unwrap().text;
    let mut all: Vec<String> = [
        "\n",
        "\r\n",
        "\r",
        " ",
        "\"",
        "'",
        "=",
        ":",
        "@",
        "/",
        "\\n",
        "\x1b[0m",
        "\x1b[1;31m",
        "\x1b[5;7H",
        "\x1b[K",
        "\x1b]0;t\x07",
        "\x1b",
        "é",
        "-----",
        "password",
        "token=",
        "\"key\": \"",
        "https://u:",
        "ghp_",
        "sk-ant-",
        "AKIA",
        "correct ",
        "Authorization: Bearer ",
        "Cookie: a=",
    ]
    .map(str::to_owned)
    .into();
    for template in [
        "ghp_{alnum:36}",
        "sk-ant-{base64url:40}",
        "AKIA{base32:16}",
        "glpat-{base64url:20}",
        "eyJ{base64url:30}.{base64url:40}.{base64url:43}",
        "hunter{digit:4}",
        "PASSWORD=p{alnum:9}",
        "https://u:{alnum:12}@h/",
        "-----BEGIN PRIVATE KEY-----\n{base64:64}\n{base64:64}\n-----END PRIVATE KEY-----\n",
        "\x1b]8;;https://h/?token={alnum:40}\x1b\\x",
    ] {
        all.push(made(template));
    }
    all.extend(VALUES.map(str::to_owned));
    all
}

const VALUES: [&str; 3] = ["correct horse battery", "correct pony", "ghp_inside-a-value"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_result_does_not_depend_on_the_pieces(
        parts in prop::collection::vec((any::<prop::sample::Index>(), 0..3usize), 1..24),
        cuts in prop::collection::vec(1..40usize, 0..60),
        flushes in prop::collection::btree_set(0..600usize, 0..5),
    ) {
        let pieces = pieces();
        let mut input = Vec::new();
        for (index, cut) in &parts {
            let piece = index.get(&pieces).as_bytes();
            // The whole piece, its first half or its second half.
            let middle = piece.len() / 2;
            input.extend_from_slice([piece, &piece[..middle], &piece[middle..]][*cut]);
        }
        let mask = mask(&VALUES);
        // Equal flush points, and any pieces between them.
        let plan = |sizes: &mut dyn Iterator<Item = usize>| {
            let (mut plan, mut at) = (Vec::new(), 0);
            for stop in flushes.iter().copied().chain([input.len()]) {
                while at < stop.min(input.len()) {
                    let n = sizes.next().unwrap_or(1).min(stop - at);
                    plan.push(n);
                    at += n;
                }
                if stop < input.len() {
                    plan.push(0);
                }
            }
            plan
        };
        let whole = redact_in_pieces(&mask, &input, &plan(&mut std::iter::repeat(usize::MAX)));
        for plan in [plan(&mut cuts.iter().copied().cycle()), plan(&mut std::iter::repeat(1))] {
            let other = redact_in_pieces(&mask, &input, &plan);
            prop_assert_eq!(String::from_utf8_lossy(&whole), String::from_utf8_lossy(&other), "{:?} {:?}", String::from_utf8_lossy(&input), flushes);
        }
    }

    #[test]
    fn a_flush_exposes_at_most_three_bytes_of_a_secret(
        which in 0..7usize,
        seed in any::<u64>(),
        before in "[a-z \n]{0,9}",
        at in prop::collection::vec(0..60usize, 1..40),
        style in 0..4usize,
    ) {
        let value = expand("{alnum:20}", seed).unwrap().text;
        let templates = ["ghp_{alnum:36}", "AKIA{base32:16}", "xoxb-{digit:12}-{digit:12}-{alnum:24}", "npm_{alnum:36}", "PASSWORD={alnum:15}", "glsa_{alnum:32}_{hex:8}", "postgres://u:{alnum:14}@db/x"];
        let example = expand(templates[which], seed).unwrap();
        // Colours, breaks and wraps inside. A value that is found by its name must be on one line.
        let broken: String = match style {
            1 => example.text.chars().map(|c| format!("{c}\x1b[3{}m", seed % 8)).collect(),
            2 if which == 1 => example.text[..5].to_owned() + &wrapped(&example.text[5..], 1 + (seed % 17) as usize, "\r\n"),
            2 if [0, 3].contains(&which) => wrapped(&example.text, 1 + (seed % 17) as usize, "\r\n"),
            3 if [0, 1, 3].contains(&which) => example.text[..5].to_owned() + &wrapped(&example.text[5..], 8 + (seed % 17) as usize, " \r"),
            _ => example.text.clone(),
        };
        let known = if style == 2 { wrapped(&value, 1 + (seed % 7) as usize, "\n") } else { value.clone() };
        let input = format!("{before}{known} {broken} \n");
        let cuts: Vec<usize> = at.iter().flat_map(|n| [1 + n % 9, 0]).collect();
        let out = String::from_utf8_lossy(&redact_in_pieces(&mask(&[&value]), input.as_bytes(), &cuts)).into_owned();
        // The visible text, without colours and breaks.
        let visible: String = out.replace(&format!("\x1b[3{}m", seed % 8), "").replace(" \r", "").replace(['\r', '\n'], "");
        // The name may contain four letters of a secret by chance.
        let visible = visible.replace("PASSWORD=", "");
        for secret in example.secrets.iter().chain([&value]).filter(|s| s.len() >= 12) {
            prop_assert_eq!(find_leak(&visible, secret), None, "{} in {:?} from {:?}", secret, out, input);
        }
    }
}

fn wrapped(text: &str, every: usize, with: &str) -> String {
    let bytes = text.as_bytes();
    let pieces: Vec<&str> = bytes.chunks(every).map(|c| std::str::from_utf8(c).unwrap()).collect();
    pieces.join(with)
}

#[test]
fn a_secret_that_was_shown_is_found_again_in_every_form() {
    let password = "Zx81kq99LmPq";
    check_redacted(
        &[],
        &format!("before {password}\npassword={password}\nthen {password}, 5a783831, Wng4MWtxOTlMbVBx\n"),
        &format!("before {password}\npassword=<password>\nthen <known-value>, 5a783831, <known-value>\n"),
    );
    // The first eight words of a value are no secret on their own, nor is a word.
    check_redacted(&[], "password=hunterland\nhunterland\n", "password=<password>\nhunterland\n");
    let token = expand("{alnum:36}", 5).unwrap().text;
    check_redacted(
        &[],
        &format!("ghp_{token}\nx{token}y\n{}\n", &token[..20]),
        &format!("ghp_<github-token>\nx<known-value>y\n{}\n", &token[..20]),
    );
}
