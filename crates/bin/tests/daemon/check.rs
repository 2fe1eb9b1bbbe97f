//! `csn check`, `csn policy` and the operator's rules, as a user sees them.

use crate::CSN;
use countersign_model::RefusalCode;
use countersign_testkit::TestHome;
use serde_json::{Value, json};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn check_explains_the_verdict_and_starts_nothing() {
    let daemon = TestHome::new(CSN);
    let work = daemon.work();
    let at = work.to_str().unwrap();
    let check = |command: &str| daemon.csn(&["check", "--cwd", at, "--root", at, command]);
    let out = check("ls -la && git push --force");
    assert_eq!(out.status.code(), Some(75));
    let said = text(&out.stdout);
    for part in [
        "allow `ls`",
        "known read-only command `ls`",
        "ask   `git push`",
        "destructive: data may be lost",
        "what would help",
        "1 command",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(check("ls").status.code(), Some(0));
    let denied = check("echo hi; rm -rf /");
    assert_eq!(denied.status.code(), Some(77));
    assert!(text(&denied.stdout).contains("system_destructive"));
    // The command cannot forge what a person sees.
    let shown = text(&check("echo \u{1b}[2Jhidden\u{202e}").stdout);
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}') && shown.contains("U+001B"), "{shown}");
    assert_eq!(daemon.csn(&["check"]).status.code(), Some(2));
    assert_eq!(
        daemon.csn(&["check", "--grant", "make", "make"]).status.code(),
        Some(2),
        "a verb alone names no directory"
    );
    assert_eq!(daemon.csn(&["check", "--cwd", at, "--grant", "make anywhere", "make"]).status.code(), Some(0));
    assert!(!daemon.home().exists(), "no home was created");
}

#[test]
fn batch_answers_every_line_and_continues_after_an_error() {
    let daemon = TestHome::new(CSN);
    let questions = [
        json!({"id": "a", "command": "ls", "cwd": "/work/proj", "roots": ["/work/proj"]}).to_string(),
        "not json".to_owned(),
        json!({"id": "b", "command": "cargo build", "cwd": "/work/proj", "roots": ["/work/proj"], "grants": [{"verb": "cargo build", "directory": "/work/proj"}]}).to_string(),
        json!({"id": "c", "command": "eval \"$X\"", "cwd": "/work/proj", "roots": ["/work/proj"], "attended": false}).to_string(),
        json!({"id": "d", "command": "ls", "cwd": "relative"}).to_string(),
        json!({"id": "e", "command": "make", "cwd": "/work/proj", "audience": "strangers"}).to_string(),
    ];
    let file = daemon.work().join("questions.jsonl");
    std::fs::write(&file, questions.join("\n")).unwrap();
    let out = daemon.csn(&["check", "--batch", file.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2), "one line was invalid");
    let answers: Vec<Value> = text(&out.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let verdicts: Vec<&str> = answers.iter().map(|a| a["verdict"].as_str().unwrap_or("error")).collect();
    assert_eq!(verdicts, ["allow", "error", "allow", "deny", "error", "deny"]);
    assert!(answers[1]["error"].as_str().unwrap().starts_with("line 2:"));
    assert_eq!(answers[2]["occurrences"][0]["covered_by"], "grant:cargo build in /work/proj");
    assert_eq!(answers[3]["one_shot"], true);
}

const RULES: &str = r#"
profile = "full_auto"

[[rules]]
name = "tests"
answer = "allow"
verb = "make"
match = "make -j4"
not_match = ["cargo build"]

[[rules]]
name = "no-production"
answer = "deny"
verb = "kubectl"
with = ["--context=prod*"]
reason = "production is changed by the pipeline only"
match = ["kubectl --context=prod-eu get pods"]
not_match = ["kubectl get pods"]

[[rules]]
name = "look-at-pushes"
answer = "ask"
verb = "git push"
match = "git push"
"#;

#[test]
fn rules_decide_before_profiles() {
    let daemon = TestHome::new(CSN);
    daemon.configure(RULES);
    let out = daemon.csn(&["policy", "test"]);
    assert!(out.status.success(), "{}", text(&out.stdout));
    assert!(text(&out.stdout).contains("5 examples of 3 rules in config.toml pass"), "{}", text(&out.stdout));
    let explained = text(&daemon.csn(&["policy", "explain", "git", "push"]).stdout);
    assert!(explained.contains("rule `look-at-pushes`") && explained.contains("network"), "{explained}");
    daemon.start();
    let (refusal, _) = daemon.refused("kubectl --context=prod-eu delete pod x", json!({}));
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (RefusalCode::DeniedByRule, "production is changed by the pipeline only")
    );
    let waits = daemon.ask_with("git push", json!({}));
    assert!(!waits.settled(), "a rule that asks is asked in full_auto too: {waits:?}");
}

#[test]
fn a_rule_whose_examples_fail_stops_the_start_and_names_its_line() {
    let daemon = TestHome::new(CSN);
    for (rules, part) in [
        (
            "[[rules]]\nname = \"x\"\nanswer = \"allow\"\nverb = \"make\"\nmatch = \"cargo build\"\n",
            "config.toml:1: rule `x`: its example `cargo build` should match, but does not",
        ),
        (
            "\n\n[[hard_deny]]\nname = \"y\"\nverb = \"curl\"\nmatch = \"curl x\"\nnot_match = \"curl -s y\"\n",
            "config.toml:3: rule `y`: its example `curl -s y` should not match, but does",
        ),
        ("[[rules]]\nname = \"z\"\nanswer = \"ask\"\nmatch = \"ls\"\n", "would match everything"),
        ("[[rules]]\nname = \"z\"\nanswer = \"ask\"\nverb = \"ls\"\n", "no `match` example"),
        ("[[hard_deny]]\nname = \"z\"\nverbs = \"ls\"\nmatch = \"ls\"\n", "verbs"),
        ("[[hard_deny]]\nname = \"z\"\nanswer = \"allow\"\nverb = \"ls\"\nmatch = \"ls\"\n", "can only deny"),
    ] {
        daemon.configure(rules);
        let error = daemon.try_start().unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
        let checked = daemon.csn(&["check", "ls"]);
        assert_ne!(checked.status.code(), Some(0));
        assert!(text(&checked.stderr).contains(part), "{part}: {}", text(&checked.stderr));
    }
}

#[test]
fn the_daemon_enforces_hard_denies() {
    let daemon = TestHome::started(CSN);
    let home = daemon.home().to_str().unwrap().to_owned();
    for (command, code) in [
        ("rm -rf /".to_owned(), RefusalCode::SystemDestructive),
        ("true && bash -c 'rm -rf ~'".to_owned(), RefusalCode::SystemDestructive),
        (format!("cat {home}/ledger.db"), RefusalCode::ProtectedPath),
        (format!("cd {home} && ls"), RefusalCode::ProtectedPath),
        (format!("kill {}", daemon.daemon_pid()), RefusalCode::SelfDestructive),
        ("csn approvals answer ap_x once".to_owned(), RefusalCode::SelfDestructive),
    ] {
        let (refusal, _) = daemon.refused(&command, json!({"profile": "full_auto"}));
        assert_eq!(refusal.code, code, "{command}");
    }
    // Through a link that is created only now.
    let link = daemon.work().join("link");
    std::os::unix::fs::symlink(&home, &link).unwrap();
    let (refusal, _) = daemon.refused(&format!("cat {}/ledger.db", link.display()), json!({"profile": "full_auto"}));
    assert_eq!(refusal.code, RefusalCode::ProtectedPath);
}
