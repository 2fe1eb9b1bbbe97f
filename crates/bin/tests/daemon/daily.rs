//! Everyday read-only commands, sandboxed: they print the same bytes as without a sandbox.

use crate::CSN;
use countersign_model::{Confinement, StreamName};
use countersign_testkit::TestHome;
use serde_json::json;
use std::{collections::BTreeMap, os::unix::process::CommandExt as _, path::Path, process::Stdio};

const DAY_COMMANDS: &str = include_str!("../../../policy/tests/gate/data/day.txt");

/// Commands whose output differs each time, or that do not end.
const UNSTABLE_COMMANDS: &[&str] =
    &["rg --json", "date", "uptime", "free", "ps ", "pgrep", "df ", "tail -f", "time ", "TZ=UTC date", "sleep"];

fn commands() -> Vec<String> {
    let reads = DAY_COMMANDS.lines().filter(|l| !l.starts_with("? ") && (!l.starts_with("# ") || l.contains('⏎')));
    let steady = |text: &String| !UNSTABLE_COMMANDS.iter().any(|f| text.starts_with(f));
    reads.map(|l| l.replace('⏎', "\n")).filter(steady).collect()
}

#[expect(clippy::disallowed_methods, reason = "the comparison runs what the daemon runs")]
fn bash(text: &str, cwd: &Path, env: &BTreeMap<String, String>) -> (i32, Vec<u8>, Vec<u8>) {
    let mut command = std::process::Command::new("/bin/bash");
    command.arg0("bash").args(["-c", text]).env_clear().envs(env).env("PWD", cwd).current_dir(cwd).stdin(Stdio::null());
    let out = command.output().unwrap();
    (out.status.code().unwrap_or(-1), out.stdout, out.stderr)
}

/// Runs each command both ways and returns those that differ.
fn differing(daemon: &TestHome, cwd: &Path, commands: &[String], env: &BTreeMap<String, String>) -> Vec<String> {
    let mut differ = Vec::new();
    for text in commands {
        let with = json!({"profile": "safe", "attended": false, "args": {"cwd": cwd, "inherit": env}});
        let asked = match daemon.client().ask(&daemon.request(text, with)) {
            Ok(state) => state.task_id,
            Err(e) => {
                differ.push(format!("{text}: {e}"));
                continue;
            }
        };
        let state = daemon.settled(asked);
        assert_eq!(state.confinement(), Some(Confinement::ReadOnly), "{text}");
        let code = state.outcome().unwrap().exit_code();
        let confined = (code, daemon.output(asked, StreamName::Stdout), daemon.output(asked, StreamName::Stderr));
        let open = bash(text, cwd, env);
        // It searches in parallel, so the order of its lines is random.
        let in_any_order = (text.starts_with("rg ") || text.contains(" rg ")) && sorted(&confined) == sorted(&open);
        if confined != open && !in_any_order {
            let show = |(code, out, err): &(i32, Vec<u8>, Vec<u8>)| {
                let text = |b: &[u8]| String::from_utf8_lossy(&b[..b.len().min(600)]).into_owned();
                format!("{code}\n{}\n{}", text(out), text(err))
            };
            differ.push(format!("== {text}\n-- confined: {}\n-- open: {}", show(&confined), show(&open)));
        }
    }
    differ
}

fn sorted((code, out, err): &(i32, Vec<u8>, Vec<u8>)) -> (i32, Vec<&[u8]>, Vec<&[u8]>) {
    let lines = |bytes| {
        let mut lines: Vec<&[u8]> = <[u8]>::split(bytes, |b| *b == b'\n').collect();
        lines.sort();
        lines
    };
    (*code, lines(out), lines(err))
}

fn project(daemon: &TestHome) -> BTreeMap<String, String> {
    let home = daemon.base().to_owned();
    // The toolchain of the user who runs the test, at its usual place.
    if let Some(real) = std::env::var_os("HOME") {
        let _ = std::os::unix::fs::symlink(Path::new(&real).join(".rustup"), home.join(".rustup"));
    }
    let env = BTreeMap::from([
        ("HOME".to_owned(), home.to_str().unwrap().to_owned()),
        ("PATH".to_owned(), std::env::var("PATH").unwrap()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ("USER".to_owned(), "dev".to_owned()),
    ]);
    let (code, out, err) = bash(include_str!("daily.sh"), &home, &env);
    assert_eq!(code, 0, "{}{}", String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
    env
}

#[test]
fn everyday_commands_print_the_same_in_the_sandbox() {
    let daemon = TestHome::started(CSN);
    let env = project(&daemon);
    let commands = commands();
    assert!(commands.len() > 270, "{}", commands.len());
    let cwd = Path::new(&env["HOME"]).join("project");
    let differ = differing(&daemon, &cwd, &commands, &env);
    assert!(differ.is_empty(), "{} of {}:\n{}", differ.len(), commands.len(), differ.join("\n"));
}

/// From a work tree and from inside a submodule: their git directories are elsewhere.
#[test]
fn git_reads_in_the_sandbox_with_its_directory_elsewhere() {
    let daemon = TestHome::started(CSN);
    let env = project(&daemon);
    let commands: Vec<String> = [
        "git status",
        "git log --oneline -3",
        "git diff HEAD~1 --stat",
        "git show HEAD",
        "git branch -vv",
        "git worktree list",
        "git ls-files",
        "git rev-parse --git-dir --show-toplevel",
        "git stash list",
        "git describe --tags --always",
    ]
    .map(str::to_owned)
    .to_vec();
    for place in ["tree", "project/sub", "project/crates/core", "project"] {
        let cwd = Path::new(&env["HOME"]).join(place);
        let differ = differing(&daemon, &cwd, &commands, &env);
        assert!(differ.is_empty(), "{place}: {}", differ.join("\n"));
    }
}
