//! The words that people read, as the real programs print them: cards of every kind, and the explanations of `csn check`.
//! Compared with snapshots, so that words are reviewed like code. Ids, digests and directories are replaced.

use crate::CSN;
use countersign_client::Client;
use countersign_model::{Choice, Status, TaskState, api::SessionMove};
use countersign_testkit::{TestHome, assert_snapshot, body};
use serde_json::{Value, json};
use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

/// A daemon with a repository below its work directory.
struct Scene {
    daemon: TestHome,
    client: Client,
    repo: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let daemon = TestHome::started(CSN);
        let repo = std::fs::canonicalize(daemon.work()).unwrap().join("repo");
        std::fs::create_dir_all(repo.join(".git")).unwrap();
        std::fs::write(repo.join("notes.txt"), "one\ntwo\n").unwrap();
        std::fs::write(repo.join("deploy.sh"), "#!/bin/sh\nmake deploy\n").unwrap();
        std::fs::set_permissions(repo.join("deploy.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let client = daemon.client();
        Self { daemon, client, repo }
    }

    fn ask(&self, text: &str, changes: Value) -> TaskState {
        let mut request = json!({"profile": "safe", "args": {"cwd": self.repo}});
        for (name, value) in changes.as_object().unwrap() {
            match (name.as_str(), value) {
                ("args", Value::Object(args)) => {
                    args.iter().for_each(|(name, value)| request["args"][name] = value.clone());
                }
                _ => request[name] = value.clone(),
            }
        }
        self.client.ask(&self.daemon.request(text, request)).unwrap()
    }

    /// The card of a request, which is then denied so that later cards do not depend on it.
    fn card(&self, task: &TaskState) -> String {
        assert_eq!(task.status, Status::Queued, "{}", task.request.display);
        let approval = task.approval_id().unwrap();
        let text = self.csn(&["approvals", "show", &approval.to_string()]);
        self.client.answer(approval, Choice::Deny, None).unwrap();
        text
    }

    /// What a verb prints, with everything replaced that differs between two runs.
    fn csn(&self, args: &[&str]) -> String {
        let out = self.daemon.csn(args);
        let text = String::from_utf8(out.stdout).unwrap() + &String::from_utf8(out.stderr).unwrap();
        let base = std::fs::canonicalize(self.daemon.base()).unwrap();
        let text = text.replace(self.repo.to_str().unwrap(), "/repo").replace(base.to_str().unwrap(), "/base");
        let replaced: Vec<String> = text.split_inclusive(|c: char| !is_word(c)).map(replace_word).collect();
        replaced.concat()
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Replaces an id or the beginning of a digest; keeps the character behind it.
fn replace_word(piece: &str) -> String {
    let word = piece.trim_end_matches(|c: char| !is_word(c));
    let end = &piece[word.len()..];
    let is_hex = word.len() >= 12 && word.bytes().all(|b| b.is_ascii_hexdigit());
    match word.split_once('_') {
        Some((kind @ ("ap" | "tk" | "se" | "rc" | "gr" | "hm"), id)) if id.len() == 16 => format!("{kind}_ID{end}"),
        _ if is_hex => format!("DIGEST{end}"),
        _ => piece.to_owned(),
    }
}

#[test]
fn every_kind_of_card_reads_as_reviewed() {
    let s = Scene::new();
    let session = s.client.open_session(&body(json!({"directory": s.repo, "title": "review"}))).unwrap();
    let no_command = |tool: &str, args: Value| {
        let mut changes = json!({"tool": tool, "args": args});
        changes["args"]["command"] = Value::Null;
        changes
    };
    let cases = [
        ("one command that uses the network", "git push", json!({})),
        ("a command with a title and a reason", "touch new.txt", json!({"title": "Start", "rationale": "To test"})),
        ("several commands", "make all && git push && touch done", json!({})),
        ("a command that destroys data", "rm -rf build", json!({})),
        ("a script of the workspace", "./deploy.sh", json!({})),
        ("a file that is written", "", no_command("write_file", json!({"path": "new.txt", "content": "text\n"}))),
        (
            "a file that is edited",
            "",
            no_command("edit_file", json!({"path": "notes.txt", "old": "two", "new": "three"})),
        ),
        ("a terminal", "vim notes.txt", json!({"execution_mode": "pty"})),
        ("a background task", "touch later", json!({"background": true})),
        ("a command that cannot be analysed", "eval \"$(cat notes.txt)\"", json!({})),
        ("a directory too shallow for a grant", "touch x", json!({"args": {"cwd": "/"}})),
        ("variables", "make", json!({"args": {"env": {"CC": "clang"}}})),
        ("a command of a session", "git push", json!({"session_id": session.id})),
        (
            "a command in the folder of a session",
            "touch x",
            json!({"session_id": session.id, "args": {"cwd": session.folder}}),
        ),
        ("a command without a sandbox", "make install", json!({"confinement": "shield"})),
        ("a command with another user's rights", "sudo ls", json!({})),
    ];
    let mut text = String::new();
    for (name, command, changes) in cases {
        text += &format!("== {name}\n{}\n", s.card(&s.ask(command, changes)));
    }
    let elsewhere = std::fs::canonicalize(s.daemon.work()).unwrap().join("elsewhere");
    std::fs::create_dir_all(&elsewhere).unwrap();
    let moved = s.client.set_directory(&session.id.to_string(), elsewhere.to_str().unwrap()).unwrap();
    let SessionMove::Asked(task) = moved else { panic!("the directory is outside of the session's roots") };
    text += &format!("== a session that wants to work elsewhere\n{}", s.card(&task));
    assert_snapshot("tests/daemon/snapshots/cards.txt", &text);
}

#[test]
fn the_explanations_of_check_read_as_reviewed() {
    let s = Scene::new();
    let repo = s.repo.to_str().unwrap();
    let commands: [&[&str]; 7] = [
        &["ls -la && cat notes.txt"],
        &["git push --force"],
        &["touch a && make install"],
        &["eval \"$(cat notes.txt)\""],
        &["csn approvals answer ap_0000000000000000 once"],
        &["--profile", "full_auto", "make"],
        &["--grant", "git push anywhere", "git push"],
    ];
    let text = commands.map(|args| {
        let printed = s.csn(&[&["check", "--cwd", repo], args].concat());
        format!("== csn check {}\n{printed}\n", args.join(" "))
    });
    assert_snapshot("tests/daemon/snapshots/check.txt", &text.concat());
}
