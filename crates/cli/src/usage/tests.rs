use super::*;

/// What `csn` prints for this line: words between blanks, or within single quotes.
fn explained(line: &str) -> String {
    let words = split(line);
    let all = [help::PROGRAM.to_owned()].into_iter().chain(words.clone());
    match help::full_command(help::DEFAULT_WIDTH).try_get_matches_from(all) {
        Ok(_) if words[0] == "run" => several_words(&words).0,
        Ok(_) => panic!("`{line}` is no usage error"),
        Err(error) => {
            assert!(!is_output(&error), "`{line}` prints help");
            assert_eq!(error.exit_code(), i32::from(exit::USAGE), "{line}");
            explain(&error, &words)
        }
    }
}

pub(crate) fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (n, part) in line.split('\'').enumerate() {
        if n % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn assert_says(line: &str, parts: &[&str]) {
    let text = explained(line);
    for part in parts {
        assert!(text.contains(part), "`csn {line}` does not say `{part}`:\n{text}");
    }
}

#[test]
fn a_mistyped_verb_suggests_the_verb_with_the_rest_of_the_line() {
    assert_says("rn 'git status'", &["there is no verb `rn`.", "Did you mean: csn run 'git status'"]);
    assert_says("aprove", &["csn approvals"]);
    assert_says("aprovals", &["Did you mean: csn approvals"]);
    assert_says("docter", &["Did you mean: csn doctor"]);
    assert_says("attch tk_1", &["Did you mean: csn attach tk_1"]);
    assert_says("verfy", &["Did you mean: csn verify"]);
    assert_says("instal codex", &["Did you mean: csn install codex"]);
    assert_says("approvals lst", &["`csn approvals` has no verb `lst`.", "Did you mean: csn approvals list"]);
}

#[test]
fn a_common_word_that_is_no_verb_names_the_verb() {
    for (word, line) in [
        ("list", "csn ps"),
        ("start", "csn up --detach"),
        ("start", "csn run"),
        ("stop", "csn down"),
        ("stop", "csn cancel TASK"),
        ("kill", "csn cancel TASK"),
        ("status", "csn ps"),
        ("status", "csn doctor"),
        ("log", "csn logs TASK"),
        ("approve", "csn approvals answer APPROVAL once"),
        ("deny", "csn approvals answer APPROVAL deny"),
        ("allow", "csn grants add"),
        ("version", "csn --version"),
        ("approvals approve", "csn approvals answer APPROVAL once"),
        ("grants remove", "csn grants revoke"),
    ] {
        assert_says(word, &[line]);
    }
}

#[test]
fn an_unknown_word_is_offered_as_a_command() {
    assert_says("cargo test --all", &["csn run -- cargo test --all"]);
    assert_says("ls -la", &["csn ps", "csn run -- ls -la"]);
    assert_says("git status", &["csn run -- git status"]);
    assert!(!explained("git status").contains("Did you mean"));
}

#[test]
fn options_of_a_program_after_run_get_the_corrected_line() {
    assert_says("run ls -la", &["has no option `-l`", "csn run -- ls -la\n", "csn run 'ls -la'"]);
    assert_says("run --pty vim -u NONE", &["csn run --pty -- vim -u NONE"]);
    assert_says("run --timeout 5m make -j4", &["csn run --timeout 5m -- make -j4"]);
    assert_says("run grep -r 'a b' .", &["csn run -- grep -r 'a b' ."]);
    assert_says("check rm -rf build", &["csn check -- rm -rf build", "csn check 'rm -rf build'"]);
}

#[test]
fn several_words_after_run_get_the_corrected_line() {
    assert_says("run echo hi", &["csn run -- echo hi\n", "csn run 'echo hi'"]);
    assert_says("run --quiet echo 'a b'", &["csn run --quiet -- echo 'a b'"]);
    assert_says("run 'ls -l' wc", &["Quote the whole command: csn run 'ls -l wc'"]);
    assert_says("run ls '|' wc", &["csn run 'ls | wc'"]);
    assert!(!explained("run ls '|' wc").contains("-- ls"));
}

#[test]
fn options_of_csn_after_the_command_get_both_readings() {
    assert_says(
        "run echo hi --json",
        &["csn run -- echo hi --json", "If `--json` is for csn: csn run --json -- echo hi"],
    );
    assert_says("run ls -la --timeout 5m", &["csn run -- ls -la --timeout 5m", "csn run --timeout 5m -- ls -la"]);
    assert_says("run ls -- -la", &["csn run -- ls -la"]);
}

#[test]
fn a_mistyped_option_of_csn_is_suggested() {
    assert_says("run --jsn 'ls -l'", &["has no option `--jsn`", "Did you mean `--json`?"]);
    assert_says("ps --al", &["`csn ps` has no option `--al`.", "Did you mean `--all`?", "Example: csn ps"]);
    assert_says("--json ps", &["`csn` has no option `--json`.", "csn ps --json"]);
}

#[test]
fn every_usage_error_says_what_to_do_and_gives_an_example() {
    assert_says("show", &["`csn show` needs <TASK>.", "Example: csn show"]);
    assert_says("run", &["`csn run` needs", "Example: csn run"]);
    assert_says("logs tk_1 --stream x", &["does not accept `x`", "stdout, stderr, pty", "Example: csn logs"]);
    assert_says("logs tk_1 --stream stdot", &["Did you mean `stdout`?"]);
    assert_says("search tk_1 x --max 0", &["does not accept `0`", "Example: csn search"]);
    assert_says("show tk_1 --json --view native", &["cannot be used with", "Give only one of them."]);
    assert_says("replay tk_1 --cast v2", &["wrong number of values", "Example: csn replay"]);
    assert_says("run --title", &["needs a value"]);
    assert_says("ps x", &["does not take the argument `x`", "Example: csn ps"]);
    assert_says("file --json", &["`csn file` needs a verb.", "read, write, edit"]);
}

#[test]
fn escape_sequences_in_a_typed_word_are_shown_as_text() {
    assert!(!explained("\u{1b}[2J").contains('\u{1b}'));
    assert!(!explained("run ls -\u{1b}").contains('\u{1b}'));
}

#[test]
fn help_of_an_unknown_verb_suggests_one() {
    let text = no_such_verb(&[], "rn").0;
    assert!(text.contains("Did you mean: csn help run"), "{text}");
    let text = no_such_verb(&[], "nosuch").0;
    assert!(text.contains("`csn --help` lists the verbs.") && !text.contains("csn run"), "{text}");
    let text = no_such_verb(&["approvals".to_owned()], "anwser").0;
    assert!(text.contains("csn help approvals answer"), "{text}");
    let text = no_such_verb(&["run".to_owned()], "x").0;
    assert!(text.contains("`csn run` has no verbs below it."), "{text}");
}
