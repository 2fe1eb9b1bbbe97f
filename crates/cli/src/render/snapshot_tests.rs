//! Snapshots of the text that people read, so that words are reviewed like code. Each case is model data in its JSON
//! form; the files are in `snapshots/`.

use super::{
    card::{CardLimits, card, choices, resolution, waiting_line},
    doctor::{DoctorFacts, DoctorReport, HomeDirectory, SigningKeyFile},
    outcome::{OutcomeLine, closing_lines, escape_warning},
    receipt::receipt_details,
    shutdown::{OpenWork, stopped_line},
    task::{queue_line, task_details, task_row, task_table_heading},
};
use countersign_model::{
    Approval, CardView, FileChange, Outcome, Profile, Statement, TaskState, Text, Timestamp, api::Lifecycle,
};
use countersign_store::ConfineConfig;
use countersign_testkit::assert_snapshot;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{path::PathBuf, time::Duration};

const TASK: &str = "tk_01m7h4jys3gnc16g";
const APPROVAL: &str = "ap_01m7h4jys3gnc16j";
const ASKED_AT: &str = "2026-11-16T03:00:00.000000Z";
/// The rows of the terminal on which cards are shown.
const TERMINAL_ROWS: usize = 24;

fn parse<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the test data has the form of the model")
}

/// Sets members of a JSON object.
fn with(mut object: Value, changes: Value) -> Value {
    let Value::Object(changes) = changes else { panic!("changes are an object") };
    for (name, value) in changes {
        object[name] = value;
    }
    object
}

/// Joins cases into the text of one snapshot, each below its name.
fn join_cases<N: AsRef<str>>(cases: impl IntoIterator<Item = (N, String)>) -> String {
    cases.into_iter().map(|(name, text)| format!("== {}\n{}\n\n", name.as_ref(), text.trim_end())).collect()
}

/// An approval of `git push`, with these members changed.
fn approval(changes: Value) -> Approval {
    let approval = json!({
        "id": APPROVAL, "task_id": TASK, "state": {"is": "waiting"}, "asked_at": ASKED_AT,
        "principal": "pr_0000000000000000", "tool": "shell", "display": "git push", "uncovered": ["git push"],
        "cwd": "/home/u/repo", "risks": ["network"],
        "about": [{"verb": "git push", "directories": ["/home/u/repo"], "risks": ["network"]}],
        "options": ["once", "here", "anywhere", "deny"],
    });
    parse(with(approval, changes))
}

/// What the daemon adds to an approval that is shown, with these members changed.
fn details(changes: Value) -> Value {
    let card = json!({
        "asked_by": "you", "risks": ["network: git push talks to a remote"], "scripts": [], "confinement": "workspace",
        "sandbox": {"network": "open", "why": {"because": "writes"}},
        "offers": [
            {"choice": "here", "saves": ["git push in /home/u/repo"], "covers": ["git push origin"],
             "does_not_cover": ["git push --force"], "exact": false},
            {"choice": "anywhere", "saves": ["git push anywhere"], "covers": [], "does_not_cover": [], "exact": false},
        ],
    });
    with(card, changes)
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn card_cases() -> Vec<(&'static str, Approval)> {
    let about = |verb: &str, directory: &str| json!({"verb": verb, "directories": [directory], "risks": []});
    let script: Vec<String> = (1..=12).map(|n| format!("step {n}")).collect();
    let only_once = json!(["once", "deny"]);
    vec![
        ("one command, from the user", approval(json!({"card": details(json!({}))}))),
        (
            "one command, from an agent that no longer waits",
            approval(json!({
                "title": "Publish the branch", "rationale": "The review needs it", "asker": "gone",
                "card": details(json!({"asked_by": "agent `claude` (pid 812)", "variables": ["GIT_SSH=/usr/bin/ssh"]})),
            })),
        ),
        (
            "several commands in several directories",
            approval(json!({
                "display": "cargo build && cd /srv/b && make install", "uncovered": ["cargo build", "make install"],
                "about": [about("cargo build", "/home/u/repo"), about("make install", "/srv/b")],
                "risks": ["workspace_code", "host_modifying"], "options": ["once", "here", "deny"],
                "card": details(json!({
                    "risks": ["workspace_code: cargo build runs code of the workspace", "host_modifying: make install"],
                    "confinement": "shield",
                    "sandbox": {"network": "open", "why": {"because": "accepted", "risk": "host_modifying"}},
                    "offers": [{"choice": "here", "saves": ["cargo build in /home/u/repo", "make install in /srv/b (these arguments only)"],
                                "covers": [], "does_not_cover": [], "exact": true}],
                })),
            })),
        ),
        (
            "more commands than the card lists",
            approval(json!({
                "display": "a && b && …", "uncovered": (b'a'..=b'j').map(|c| char::from(c).to_string()).collect::<Vec<_>>(),
                "about": (b'a'..=b'j').map(|c| about(&char::from(c).to_string(), "/p")).collect::<Vec<_>>(),
                "options": only_once, "risks": ["opaque"], "card": null,
            })),
        ),
        (
            "a file that is written",
            approval(json!({
                "tool": "write_file", "display": "write 120 bytes to /home/u/repo/notes.txt",
                "uncovered": ["write_file"], "about": [about("write_file", "/home/u/repo")], "risks": ["write"],
                "options": ["once", "here", "deny"],
                "card": details(json!({
                    "risks": ["write: creates /home/u/repo/notes.txt"],
                    "offers": [{"choice": "here", "saves": ["write_file in /home/u/repo"], "covers": [],
                                "does_not_cover": [], "exact": false}],
                })),
            })),
        ),
        (
            "a file that is edited",
            approval(json!({
                "tool": "edit_file", "display": "edit /home/u/repo/Cargo.toml: 1 line", "uncovered": ["edit_file"],
                "about": [about("edit_file", "/home/u/repo")], "risks": ["write"], "options": ["once", "here", "deny"],
                "card": details(json!({
                    "risks": ["write: changes /home/u/repo/Cargo.toml"],
                    "offers": [{"choice": "here", "saves": ["edit_file in /home/u/repo"], "covers": [],
                                "does_not_cover": [], "exact": false}],
                })),
            })),
        ),
        (
            "a terminal and background processes",
            approval(json!({
                "display": "vim notes.txt &", "uncovered": ["vim notes.txt"],
                "about": [about("vim", "/home/u/repo")], "risks": ["interactive", "background"], "options": only_once,
                "card": details(json!({
                    "risks": ["interactive: vim wants a terminal", "background: it keeps running behind the command"],
                    "offers": [], "not_saved": "it leaves a process running in the background",
                })),
            })),
        ),
        (
            "a script, longer than the card shows",
            approval(json!({
                "display": "./deploy.sh", "uncovered": ["./deploy.sh"], "about": [about("deploy.sh", "/home/u/repo")],
                "risks": ["workspace_code"], "options": ["once", "here", "deny"],
                "card": details(json!({
                    "risks": ["workspace_code: runs a script of the workspace"],
                    "scripts": [{"path": "/home/u/repo/deploy.sh", "sha256": "ab".repeat(32),
                                 "content": script.join("\n"), "omitted": 1, "changed": false}],
                    "offers": [{"choice": "here", "saves": ["./deploy.sh in /home/u/repo (these arguments only)"], "covers": [],
                                "does_not_cover": [], "exact": true}],
                })),
            })),
        ),
        (
            "a script that changed since the request",
            approval(json!({
                "display": "./deploy.sh", "uncovered": ["./deploy.sh"], "about": [about("deploy.sh", "/home/u/repo")],
                "risks": ["workspace_code"], "options": only_once,
                "card": details(json!({
                    "risks": ["workspace_code: runs a script of the workspace"], "offers": [],
                    "scripts": [{"path": "/home/u/repo/deploy.sh", "sha256": "cd".repeat(32), "content": "make deploy",
                                 "omitted": 0, "changed": true}],
                })),
            })),
        ),
        (
            "a command that cannot be analysed",
            approval(json!({
                "display": "eval \"$(curl -s https://example.org/x)\"", "uncovered": ["eval"],
                "about": [about("eval", "/home/u/repo")], "risks": ["opaque", "network"], "options": only_once,
                "card": details(json!({
                    "risks": ["opaque: eval runs text that is known only when it runs", "network: curl"],
                    "confinement": "shield",
                    "sandbox": {"network": "open", "why": {"because": "accepted", "risk": "opaque"}},
                    "offers": [], "not_saved": "the command cannot be analysed",
                })),
            })),
        ),
        (
            "a directory too shallow for a grant",
            approval(json!({
                "cwd": "/home", "about": [about("git push", "/home")], "options": only_once,
                "card": details(json!({"offers": [], "not_saved": "a grant for /home would cover too much"})),
            })),
        ),
        (
            "a command in the folder of a session",
            approval(json!({
                "options": ["once", "session", "deny"],
                "card": details(json!({
                    "in_session_folder": true,
                    "offers": [{"choice": "session", "saves": ["git push in this session"], "covers": [],
                                "does_not_cover": [], "exact": false}],
                })),
            })),
        ),
        (
            "a session that wants to work elsewhere",
            approval(json!({
                "tool": "set_working_directory", "display": "Let this session work in /srv/other?",
                "uncovered": ["set_working_directory"], "about": [], "risks": [], "options": ["session", "deny"],
                "card": {"asked_by": "agent `claude`", "risks": [], "scripts": [],
                         "offers": [{"choice": "session", "saves": ["/srv/other"], "covers": [],
                                     "does_not_cover": [], "exact": false}]},
            })),
        ),
    ]
}

#[test]
fn every_kind_of_card_reads_as_reviewed() {
    let text = |approval: &Approval| {
        let view = CardView::from_approval(approval);
        format!("{}{}> ", card(&view, CardLimits::for_terminal_rows(TERMINAL_ROWS)), choices(&view))
    };
    let cards = join_cases(card_cases().iter().map(|(name, approval)| (*name, text(approval))));
    assert_snapshot("src/render/snapshots/cards.txt", &cards);
}

#[test]
fn resolved_approvals_read_as_reviewed() {
    let person = json!({"person": {"principal": "pr_0000000000000000", "surface": "socket"}});
    let answered = |choice: &str, by: &Value, saved: Value| json!({"is": "answered", "choice": choice, "by": by, "at": ASKED_AT, "saved": saved});
    let cases = [
        ("waiting", json!({"is": "waiting"})),
        ("approved once", answered("once", &person, json!([]))),
        ("denied", answered("deny", &person, json!([]))),
        ("withdrawn", json!({"is": "withdrawn"})),
    ];
    let mut text = join_cases(cases.map(|(name, state)| (name, resolution(&approval(json!({"state": state}))))));
    text += &join_cases([("no terminal to ask at", waiting_line(parse(json!(APPROVAL))))]);
    assert_snapshot("src/render/snapshots/resolutions.txt", &text);
}

/// A task that runs `cargo test`, with these members changed.
fn task(changes: Value) -> TaskState {
    let task = json!({
        "task_id": TASK, "status": "running", "plan_digest": "00".repeat(32), "display": "cargo test",
        "verb": "cargo test", "cwd": "/home/u/repo", "mode": "pipes", "tool": "shell",
        "principal": "pr_0000000000000000", "credential": "agent", "risks": ["write", "workspace_code"],
        "audience": "personal", "profile": "safe", "asked_at": ASKED_AT, "streams": {}, "next_seq": 4,
    });
    parse(with(task, changes))
}

/// The members of a task that a grant allowed and that has started.
fn started() -> Value {
    json!({
        "decision": {"answer": "granted", "by": {"rule": "read_only"}, "scope": "once", "at": ASKED_AT},
        "confinement": "workspace", "sandbox": {"network": "none", "why": {"because": "writes"}},
        "enforced": {"landlock": 7, "seccomp": true}, "launched_at": ASKED_AT, "shim_pid": 811, "first_seq": 4,
        "pid": 812, "spawned_at": ASKED_AT,
    })
}

fn ended(status: &str, outcome: Value) -> Value {
    with(
        started(),
        json!({
            "status": status, "outcome": outcome, "ended_at": "2026-11-16T03:01:05.000000Z", "duration_us": 65_000_000,
            "cpu_us": 1000, "max_rss_kb": 2048,
            "streams": {"stdout": {"bytes": 5000, "redactions": 2, "dropped": 100}, "stderr": {"bytes": 1, "redactions": 0}},
        }),
    )
}

fn task_cases() -> Vec<(&'static str, TaskState)> {
    let denied_by = json!({"person": {"principal": "pr_0000000000000000", "surface": "socket"}});
    vec![
        ("running", task(started())),
        (
            "running on a terminal that waits for a password",
            task(with(
                started(),
                json!({
                    "mode": "pty", "terminal": {"rows": 24, "cols": 80, "echo": false},
                    "current_directory": "/home/u/repo/crates", "streams": {"pty": {"bytes": 12, "redactions": 0}},
                }),
            )),
        ),
        (
            "waiting for an approval",
            task(json!({
                "status": "queued", "waits_for": "approval", "approval_id": APPROVAL, "title": "Run the tests",
                "rationale": "Before the commit",
            })),
        ),
        ("waiting for a slot", task(json!({"status": "queued", "waits_for": "slot", "position": 2}))),
        ("exited", task(ended("exited", json!({"kind": "exited", "code": 0})))),
        (
            "exited with findings",
            task(with(
                ended("exited", json!({"kind": "exited", "code": 1})),
                json!({
                    "note": "the sandbox may have refused a write: csn run --confinement shield", "kept": [901],
                    "escapes": ["/home/u/repo/.git/hooks/pre-commit"], "survivors": [902, 903],
                    "confinement": "shield", "sandbox": null, "enforced": {"landlock": 4, "seccomp": true, "missing": ["signals"]},
                    "expired_at": "2026-12-16T03:00:00.000000Z",
                }),
            )),
        ),
        (
            "denied",
            task(json!({
                "status": "failed", "outcome": {"kind": "denied", "reason": "denied_by_person"}, "ended_at": ASKED_AT,
                "decision": {"answer": "denied", "by": denied_by, "reason": "denied_by_person", "at": ASKED_AT,
                             "words": "use the other remote", "hint": "ask again with another command"},
            })),
        ),
        ("failed", task(ended("failed", json!({"kind": "failed", "error": "cargo: not found", "code": 127})))),
        ("lost", task(ended("failed", json!({"kind": "lost", "why": "its supervisor ended without a word"})))),
    ]
}

#[test]
fn show_reads_as_reviewed_in_every_state() {
    let text = join_cases(task_cases().iter().map(|(name, task)| (*name, task_details(task))));
    assert_snapshot("src/render/snapshots/show.txt", &text);
}

#[test]
fn ps_reads_as_reviewed() {
    let now: Timestamp = parse(json!("2026-11-16T03:02:03.000000Z"));
    let mut text = task_table_heading() + "\n";
    for (_, task) in task_cases() {
        text += &task_row(&task, now);
        text.push('\n');
    }
    assert_snapshot("src/render/snapshots/ps.txt", &text);
}

#[test]
fn the_closing_lines_of_run_read_as_reviewed_for_every_outcome() {
    let by = json!({"by": "person"});
    let outcomes = [
        json!({"kind": "exited", "code": 0}),
        json!({"kind": "exited", "code": 3}),
        json!({"kind": "signalled", "signal": 9, "core": false}),
        json!({"kind": "signalled", "signal": 11, "core": true}),
        json!({"kind": "timed_out", "limit": "wall"}),
        json!({"kind": "timed_out", "limit": "idle"}),
        json!({"kind": "limited", "limit": "output"}),
        json!({"kind": "limited", "limit": "frames"}),
        json!({"kind": "limited", "limit": "disk"}),
        json!({"kind": "limited", "limit": "memory"}),
        json!({"kind": "limited", "limit": "processes"}),
        json!({"kind": "limited", "limit": "temporary"}),
        with(json!({"kind": "cancelled", "reason": null}), by.clone()),
        with(json!({"kind": "cancelled", "reason": "interrupted twice"}), by.clone()),
        with(json!({"kind": "withdrawn"}), by),
        json!({"kind": "denied", "reason": "denied_by_person"}),
        json!({"kind": "failed", "error": "cargo: not found", "code": 127}),
        json!({"kind": "lost", "why": "its supervisor ended without a word"}),
    ];
    let line = |outcome: Value| {
        let outcome: Outcome = parse(outcome);
        let words = matches!(outcome, Outcome::Denied { .. }).then(|| Text::from_static("use the other remote"));
        let took = matches!(outcome, Outcome::Exited { .. }).then(|| Duration::from_millis(1234));
        let ended = OutcomeLine { outcome, took, words, notes: Vec::new(), never_began: false };
        closing_lines(parse(json!(TASK)), &ended)
    };
    let mut text: String = outcomes.map(|outcome| line(outcome) + "\n").concat();
    let hook = Text::from_static("/home/u/repo/.git/hooks/pre-commit");
    let notes = [FileChange::Created, FileChange::Modified, FileChange::Deleted].map(|c| escape_warning(&hook, c));
    let outcome = Outcome::Exited { code: 0 };
    let with_notes = OutcomeLine { outcome, took: None, words: None, notes: notes.to_vec(), never_began: false };
    text += &closing_lines(parse(json!(TASK)), &with_notes);
    text += &format!("\n{}\n", queue_line(3));
    assert_snapshot("src/render/snapshots/closing_lines.txt", &text);
}

#[test]
fn the_closing_line_of_down_reads_as_reviewed() {
    let work = |running, queued, approvals| Some(OpenWork { running, queued, approvals });
    let cases = [
        (work(2, 0, 1), false),
        (work(1, 1, 2), false),
        (work(1, 2, 0), true),
        (work(3, 0, 1), true),
        (work(0, 0, 0), false),
        (None, false),
        (None, true),
    ];
    let text: String = cases.map(|(work, stopped)| stopped_line(work, stopped) + "\n").concat();
    assert_snapshot("src/render/snapshots/down.txt", &text);
}

/// A receipt of `make all`, with these members of its predicate changed.
fn statement(changes: Value) -> Statement {
    let predicate = json!({
        "receipt_id": "rc_01m7h4jys3gnc16k", "task_id": TASK, "seq": "12", "prev": "84".repeat(32),
        "ledger_head": {"decision": "99", "sha256": "fe".repeat(32)}, "recovered": false, "sealed_at": ASKED_AT,
        "lifecycle": ["planned", "permission_granted", "exited", "receipt_sealed"],
        "request": {
            "plan_digest": "64".repeat(32), "argv_digest": null, "display": "make all", "verb": "make", "tool": "shell",
            "cwd": "/home/u/repo", "mode": "pipes", "background": false, "environment": null,
            "requester": {"principal": "pr_0000000000000000", "credential": "agent"},
            "session": "se_01m7h4jys3gnc16h", "audience": "personal", "profile": "safe", "asked_at": ASKED_AT,
            "title": null, "rationale": null, "caller": {"trusted": false, "labels": {"client": "codex 1.0"}},
        },
        "risks": ["write", "workspace_code"],
        "decision": {
            "outcome": "granted", "by": {"person": {"principal": "pr_0000000000000000", "surface": "socket"}},
            "at": ASKED_AT, "scope": "once", "approval": APPROVAL, "saved": [], "reason": null, "words": null,
            "policy": null,
        },
        "confinement": {"confinement": "workspace", "enforced": {"landlock": 7, "seccomp": true},
                        "sandbox": {"network": "none", "why": {"because": "writes"}}},
        "outcome": {"kind": "exited", "code": 0},
        "execution": {
            "kind": "performed", "launched_at": ASKED_AT, "spawned_at": ASKED_AT, "ended_at": ASKED_AT,
            "duration_us": "1500000", "executable": {"path": "/usr/bin/make", "dev": "1", "inode": "2"}, "pid": 43,
            "uid": null, "process_group": 43, "exit": {"code": 0}, "killed": [], "cleanup": null, "stdin_bytes": "0",
            "streams": {"stdout": {"bytes": "600", "dropped": "0"}, "stderr": {"bytes": "1", "dropped": "0"}},
            "truncated": false, "cpu_us": "900000", "max_rss_kb": "20480", "limits_reached": [],
        },
        "touched_files": {
            "observed": "scan", "roots": ["/home/u/repo"], "complete": true,
            "files": [{"path": "/home/u/repo/out", "change": "created"},
                      {"path": "/home/u/repo/.envrc", "change": "modified", "escape": true}],
        },
        "redactions": [{"rule": "github-token", "count": "2", "places": []}],
        "journal": null,
    });
    let subject = |name: &str, byte: &str| json!({"name": name, "digest": {"sha256": byte.repeat(32)}});
    parse(json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [subject("decisions.jsonl", "31"), subject("journal", "81")],
        "predicateType": "https://countersign.dev/command-receipt/v1", "predicate": with(predicate, changes),
    }))
}

#[test]
fn receipts_show_reads_as_reviewed() {
    let nothing_ran = json!({"observed": "none", "complete": true, "files": []});
    let no_sandbox = json!({"confinement": null, "enforced": null});
    let denied = json!({
        "outcome": {"kind": "denied", "reason": "denied_by_person"}, "execution": null, "prev": null, "redactions": [],
        "decision": {"outcome": "denied", "by": {"person": {"principal": "pr_0000000000000000", "surface": "socket"}},
                     "at": ASKED_AT, "scope": null, "approval": APPROVAL, "saved": [], "reason": "denied_by_person",
                     "words": "use the other remote", "policy": null},
        "touched_files": nothing_ran, "confinement": no_sandbox,
    });
    let execution = |changes: Value| {
        let execution = json!(statement(json!({})).predicate.execution);
        json!({"execution": with(execution, changes)})
    };
    let witnessed = with(
        execution(json!({
            "kind": "observed", "executable": null, "pid": null, "process_group": null, "streams": {}, "cpu_us": null,
            "max_rss_kb": null, "duration_us": null,
        })),
        json!({"touched_files": nothing_ran, "confinement": no_sandbox, "redactions": []}),
    );
    let builtin = with(
        execution(json!({"kind": "builtin", "executable": null, "streams": {}})),
        json!({
            "confinement": no_sandbox, "redactions": [],
            "touched_files": {"observed": "exact", "complete": true,
                              "files": [{"path": "/home/u/repo/notes.txt", "change": "modified"}]},
        }),
    );
    let partial = json!({
        "recovered": true,
        "confinement": {"confinement": "shield",
                        "enforced": {"landlock": 4, "seccomp": true, "missing": ["signals", "abstract sockets"]}},
        "touched_files": {"observed": "scan", "complete": false, "files": [], "more": 3},
    });
    let read_only = json!({
        "confinement": {"confinement": "read_only", "enforced": {"landlock": 7, "seccomp": true}},
        "touched_files": {"observed": "confined", "complete": true, "files": []}, "redactions": [], "risks": [],
    });
    let cases = [
        ("exited", json!({})),
        ("exited, read-only", read_only),
        ("exited, recovered, partly enforced", partial),
        ("a file that the daemon changed", builtin),
        ("denied", denied),
        ("witnessed", witnessed),
    ];
    let text = cases.map(|(name, changes)| (name, receipt_details(&statement(changes), &["629ebe7c69c82618"])));
    assert_snapshot("src/render/snapshots/receipts_show.txt", &join_cases(text));
}

fn lifecycle(changes: Value) -> Lifecycle {
    let lifecycle =
        json!({"state": "running", "pid": 4711, "version": "0.1.0", "home": "/home/u/.local/state/countersign"});
    parse(with(lifecycle, changes))
}

fn probe(landlock: u32) -> Value {
    let features = [
        "pidfd",
        "pty",
        "children_list",
        "subreaper",
        "unnamed_files",
        "cgroup2",
        "landlock",
        "seccomp",
        "own_network",
    ];
    let features: Value =
        features.into_iter().map(|name| (name.to_owned(), json!(true))).collect::<serde_json::Map<_, _>>().into();
    json!({"kernel": "6.8.0", "version": "0.1.0", "landlock_version": landlock, "features": features})
}

fn healthy_facts() -> DoctorFacts {
    DoctorFacts {
        csn_version: "0.1.0".to_owned(),
        home: PathBuf::from("/home/u/.local/state/countersign"),
        own: true,
        lifecycle: Ok(lifecycle(json!({}))),
        lock_holder: Some(4711),
        shim_path: PathBuf::from("/usr/local/bin/csn-shim"),
        shim_is_dynamic: Ok(false),
        probe: Ok(probe(7)),
        home_directory: HomeDirectory::Ready(Some(parse(json!("hm_01m7h4jys3gnc16h")))),
        config: Ok((Profile::Safe, 1)),
        confine: ConfineConfig::default(),
        ledger: Ok("120 decisions, 12 receipts, chains intact (csn verify also checks stored output)".to_owned()),
        signing_key: SigningKeyFile::Private,
        free_mib: Ok(20480),
        now: parse(json!(ASKED_AT)),
        last_decision_at: None,
        bash: Some(PathBuf::from("/bin/bash")),
        agents: vec![("agent claude-code".to_owned(), Ok("hook in /home/u/.claude/settings.json".to_owned()))],
    }
}

#[test]
fn doctor_reads_as_reviewed_healthy_and_with_problems() {
    let mut not_running = healthy_facts();
    not_running.lifecycle = Err("no daemon listens".to_owned());
    not_running.lock_holder = None;
    not_running.home_directory = HomeDirectory::Missing;
    not_running.ledger = Ok("none yet; the first start creates it".to_owned());
    not_running.signing_key = SigningKeyFile::Missing;
    not_running.config = Ok((Profile::Locked, 2));
    not_running.probe = Ok(probe(4));

    let mut broken = healthy_facts();
    broken.lifecycle = Err("the connection was refused".to_owned());
    broken.shim_is_dynamic = Err("No such file or directory".to_owned());
    broken.probe = Err("csn-shim cannot be started".to_owned());
    broken.home_directory = HomeDirectory::Unusable("the home is readable by others: chmod 700 it".to_owned());
    broken.config = Err("config.toml:3: unknown key `profil`".to_owned());
    broken.ledger = Err("receipt 7: its signature is wrong; for all findings: csn verify".to_owned());
    broken.signing_key = SigningKeyFile::ReadableByOthers(PathBuf::from("/home/u/keys/signing.key"));
    broken.free_mib = Ok(12);
    broken.last_decision_at = Some(parse(json!("2026-11-17T03:00:00.000000Z")));
    broken.bash = None;
    broken.agents = vec![("agent codex".to_owned(), Err("its hook is gone: csn install codex".to_owned()))];

    let mut outdated = healthy_facts();
    outdated.lifecycle = Ok(lifecycle(json!({
        "version": "0.0.9", "reading_only": "the ledger is damaged: run csn doctor --fix", "receipts": "the key is gone",
    })));
    outdated.probe = Ok(with(probe(0), json!({"version": "0.0.9", "features": {"pty": true}})));
    outdated.shim_is_dynamic = Ok(true);

    let mut system_service = healthy_facts();
    system_service.own = false;
    system_service.home = PathBuf::from("/var/lib/countersign");
    system_service.confine.network = countersign_model::Network::None;

    let mut system_service_stopped = healthy_facts();
    system_service_stopped.own = false;
    system_service_stopped.lifecycle = Err("the connection was refused".to_owned());

    let cases = [
        ("healthy", healthy_facts(), vec![]),
        ("not running, older kernel", not_running, vec![]),
        ("problems", broken, vec![]),
        ("another version, damaged ledger, old kernel", outdated, vec![]),
        ("the system service", system_service, vec![]),
        ("the system service does not answer", system_service_stopped, vec![]),
        ("after --fix", healthy_facts(), vec!["rebuilt the ledger's index from its decisions".to_owned()]),
    ];
    let text = cases.map(|(name, facts, repairs)| (name, DoctorReport::from_facts(&facts).table(&repairs)));
    assert_snapshot("src/render/snapshots/doctor.txt", &join_cases(text));
}
