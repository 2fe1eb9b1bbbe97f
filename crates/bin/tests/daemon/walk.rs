//! One command from request to receipt: ask, parse, look up, judge, run, record, settle, show.

use crate::CSN;
use countersign_model::{Decision, Frame, Outcome, Record, RecordContent, Status};
use countersign_testkit::{RawCalls as _, TestHome};
use serde_json::json;

#[test]
fn a_command_runs_and_leaves_its_record() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo out; echo err >&2; exit 3");
    let state = daemon.settled(task);
    assert_eq!((state.status, state.outcome()), (Status::Exited, Some(&Outcome::Exited { code: 3 })));
    assert_eq!(daemon.stdout(task), "out\n");
    let records = daemon.records(task);
    assert!(records.iter().zip(0..).all(|(r, n)| r.seq == n), "no gap in the numbering");
    assert!(matches!(records[0].what, RecordContent::Decision(Decision::Planned { .. })));
    assert!(matches!(records.last().unwrap().what, RecordContent::Decision(Decision::Sealed(_))));
    let exit = records.iter().position(|r| matches!(r.what, RecordContent::Frame(Frame::Exited { .. }))).unwrap();
    let output = records.iter().rposition(|r| matches!(r.what, RecordContent::Frame(Frame::Output { .. }))).unwrap();
    assert!(output < exit, "the exit comes after the last byte");
}

#[test]
fn f164_the_last_bytes_of_a_quick_process_are_stored() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("head -c 300000 /dev/zero | tr '\\0' x; printf end");
    daemon.settled(task);
    let out = daemon.stdout(task);
    assert_eq!((out.len(), &out[out.len() - 4..]), (300_003, "xend"));
}

#[test]
fn argv_runs_without_a_shell() {
    let daemon = TestHome::started(CSN);
    let with = json!({"args": {"command": null, "argv": ["printf", "%s|", "a b", "$HOME", "*"]}});
    let task = daemon.ask_with("", with).task_id;
    daemon.settled(task);
    assert_eq!(daemon.stdout(task), "a b|$HOME|*|");
}

#[test]
fn csn_run_prints_output_and_returns_the_exit_code() {
    let daemon = TestHome::started(CSN);
    let run = |text: &str| daemon.csn(&["run", "--profile", "full_auto", text]);
    let out = run("echo hello; echo trouble >&2; exit 7");
    assert_eq!((out.stdout.as_slice(), out.status.code()), (b"hello\n".as_slice(), Some(7)));
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(err.starts_with("trouble\n") && err.contains("exited 7"), "{err}");
    assert_eq!(run("kill -SEGV $$").status.code(), Some(128 + 11));
    assert_eq!(run("no-such-program-here").status.code(), Some(127));
}

#[test]
fn csn_run_starts_a_daemon_if_none_runs() {
    let daemon = TestHome::new(CSN);
    let out = daemon.csn(&["run", "--profile", "full_auto", "echo first"]);
    assert_eq!(out.stdout, b"first\n", "{}", String::from_utf8_lossy(&out.stderr));
    assert!(String::from_utf8_lossy(&out.stderr).contains("tk_"), "the task id is told");
    let inside = daemon.csn_with(&["ps"], &[("COUNTERSIGN_TASK", "tk_x"), ("COUNTERSIGN_HOME", "/nonexistent/home")]);
    assert!(String::from_utf8_lossy(&inside.stderr).contains("a task may not start one"));
}

/// `out=$(csn run … 3>&1)` must end although the daemon that it started keeps running.
#[test]
fn a_daemon_keeps_no_descriptor_of_its_starter_open() {
    use std::io::Read as _;
    let daemon = TestHome::new(CSN);
    let (mut read, write) = std::io::pipe().unwrap();
    // Inherited by what is started now, as a shell's descriptors are.
    rustix::io::fcntl_setfd(&write, rustix::io::FdFlags::empty()).unwrap();
    let out = daemon.csn(&["run", "--profile", "full_auto", "echo started"]);
    assert_eq!(out.stdout, b"started\n");
    drop(write);
    let mut rest = Vec::new();
    read.read_to_end(&mut rest).unwrap();
    assert!(daemon.client().lifecycle().is_ok(), "the daemon keeps running");
}

#[test]
fn background_tasks_are_waited_for_by_id() {
    let daemon = TestHome::started(CSN);
    let out = daemon.csn(&["run", "--background", "--json", "--profile", "full_auto", "echo later; exit 4"]);
    let told: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let task = told["task_id"].as_str().unwrap();
    assert_eq!(daemon.csn(&["wait", task]).status.code(), Some(4));
    assert_eq!(daemon.csn(&["logs", task]).stdout, b"later\n");
    assert_eq!(daemon.csn(&["logs", &task[..17]]).stdout, b"later\n", "a unique beginning is enough");
    let shown = String::from_utf8(daemon.csn(&["show", task]).stdout).unwrap();
    assert!(shown.contains("exited 4") && shown.contains("sandbox      sandboxed (workspace): "), "{shown}");
    let listed = String::from_utf8(daemon.csn(&["ps", "-a"]).stdout).unwrap();
    assert!(listed.contains(task));
}

#[test]
fn logs_print_the_stored_bytes_exactly() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("printf 'a\\0b\\xff\\n'; printf 'no newline'");
    daemon.settled(task);
    let id = task.to_string();
    let expected = b"a\0b\xff\nno newline".as_slice();
    assert_eq!(daemon.csn(&["logs", &id]).stdout, expected);
    assert_eq!(daemon.csn(&["logs", &id, "--stream", "stdout"]).stdout, expected);
    assert_eq!(daemon.csn(&["logs", &id, "--lines", "1"]).stdout, b"no newline");
    assert_eq!(daemon.csn(&["logs", &id, "--stream", "stderr"]).stdout, b"");
}

#[test]
fn lines_come_from_the_end_of_each_stream() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("for i in 1 2 3; do echo o$i; echo e$i >&2; done");
    daemon.settled(task);
    let out = daemon.csn(&["logs", &task.to_string(), "--lines", "1"]);
    assert_eq!((out.stdout.as_slice(), out.stderr.as_slice()), (b"o3\n".as_slice(), b"e3\n".as_slice()));
    let out = daemon.csn(&["logs", &task.to_string(), "--json"]);
    let lines: Vec<serde_json::Value> =
        String::from_utf8(out.stdout).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(lines.iter().all(|l| l["kind"] == "stream.output") && lines.iter().any(|l| l["stream"] == "stderr"));
}

#[test]
fn a_request_for_json_is_refused_in_json() {
    let daemon = TestHome::started(CSN);
    let error = |args: &[&str]| {
        let out = daemon.csn(args);
        (serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap(), out.status.code())
    };
    let (told, code) = error(&["run", "--json", "--profile", "full_auto", "csn down"]);
    assert_eq!((told["error"]["code"].as_str(), code), (Some("self_destructive"), Some(77)));
    assert!(told["task_id"].as_str().unwrap().starts_with("tk_"));
    let (told, code) = error(&["show", "nope", "--json"]);
    assert_eq!((told["error"]["code"].as_str(), code), (Some("not_found"), Some(1)));
}

#[test]
fn bad_arguments_are_usage_errors() {
    let daemon = TestHome::started(CSN);
    for args in [
        ["run", "--timeout", "0", "true"].as_slice(),
        &["run", "--timeout", "1d", "true"],
        &["run", "--env", "NO_SUCH_VARIABLE", "true"],
        &["run", "echo", "hi"],
        &["run", ""],
        &["run"],
        &["signal", "tk_x", "NOPE"],
        &["approvals", "answer", "ap_x", "maybe"],
    ] {
        let out = daemon.csn(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
    assert!(daemon.client().tasks(&Default::default()).unwrap().tasks.is_empty());
}

#[test]
fn closing_the_output_of_a_run_ends_its_task() {
    let daemon = TestHome::started(CSN);
    let mut run = daemon.csn_spawn(&["run", "--profile", "full_auto", "yes"]);
    let mut first = [0; 2];
    std::io::Read::read_exact(&mut run.stdout.take().unwrap(), &mut first).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(141));
    let task = daemon.client().tasks(&Default::default()).unwrap().tasks[0].task_id;
    assert!(matches!(daemon.outcome(task), Outcome::Cancelled { .. }));
}

#[test]
fn f160_a_child_inherits_nothing_of_the_daemon() {
    let daemon = TestHome::new(CSN)
        .with_env("LD_LIBRARY_PATH", "/evil")
        .with_env("BASH_ENV", "/evil")
        .with_env("API_TOKEN", "do-not-pass-this");
    daemon.start();
    let task = daemon.ask(
        "env; echo cwd=$PWD; ls -l /proc/self/fd | wc -l; read x; echo stdin=$?; cat /proc/self/status | grep Sig",
    );
    daemon.settled(task);
    let out = daemon.stdout(task);
    for bad in ["/evil", "do-not-pass-this", "API_TOKEN", "COUNTERSIGN_HOME"] {
        assert!(!out.contains(bad), "{bad} in {out}");
    }
    assert!(out.contains(&format!("cwd={}", daemon.work().display())), "{out}");
    assert!(out.contains(&format!("COUNTERSIGN_TASK={task}")), "{out}");
    // total, 0, 1, 2, and the directory that ls reads.
    assert!(out.contains("\n5\n"), "{out}");
    assert!(out.contains("stdin=1"), "standard input is empty: {out}");
    assert!(out.contains("SigBlk:\t0000000000000000"), "{out}");
    assert!(out.contains("SigIgn:\t0000000000000000"), "{out}");
}

#[test]
fn secrets_are_redacted_before_anything_is_stored() {
    let daemon = TestHome::started(CSN);
    let token = format!("ghp_{}", "Zq3x".repeat(9));
    let secret = format!("pass-{}", "w0rd".repeat(3));
    let text = format!("echo {token}; echo \"$MY_PASSWORD\"; printf %s \"$MY_PASSWORD\" | base64 >&2");
    let with = json!({"args": {"env": {"MY_PASSWORD": secret}}, "title": format!("use {token}")});
    let task = daemon.ask_with(&text, with).task_id;
    daemon.settled(task);
    let out = daemon.stdout(task);
    assert!(out.starts_with("ghp_[redacted:github-token:") && out.contains("[redacted:known-value:"), "{out}");
    let mut seen = 0;
    for file in files_below(daemon.home()) {
        let bytes = std::fs::read(&file).unwrap();
        seen += bytes.len();
        for plant in [token.as_bytes(), secret.as_bytes(), &base64(&secret)] {
            assert!(!bytes.windows(plant.len()).any(|w| w == plant), "a secret is in {}", file.display());
        }
    }
    assert!(seen > 1000, "the files were read");
    let redacted: u64 = daemon.settled(task).io.streams.values().map(|s| s.redactions).sum();
    assert_eq!(redacted, 3);
}

#[test]
fn a_long_command_is_recorded_completely_and_no_cut_leaves_half_a_secret() {
    let daemon = TestHome::started(CSN);
    let token = format!("ghp_{}", "Qx7v".repeat(9));
    for at in [4070, 4080, 4095] {
        let text = format!("true {} {token} ; echo the end", "a".repeat(at));
        let title = format!("{}{token}", "b ".repeat(at / 2));
        let task = daemon.ask_with(&text, json!({"title": title})).task_id;
        let state = daemon.settled(task);
        assert!(state.request.display.as_str().ends_with("; echo the end"), "nothing but the approved command runs");
        for shown in [state.request.display.as_str(), state.request.title.as_ref().unwrap().as_str()] {
            assert!(!shown.contains("Qx7v"), "{}", &shown[4000..]);
        }
        assert!(state.request.title.unwrap().as_str().len() < 4200);
    }
}

fn base64(text: &str) -> Vec<u8> {
    // As the encoder of coreutils prints it.
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    for three in text.as_bytes().chunks_exact(3) {
        let n = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
        out.extend((0..4).rev().map(|i| alphabet[(n >> (6 * i) & 63) as usize]));
    }
    out
}

pub(crate) fn files_below(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        match (kind.is_dir(), kind.is_file()) {
            (true, _) => found.extend(files_below(&entry.path())),
            (_, true) => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

#[test]
fn stopping_countersign_is_denied_and_recorded() {
    let daemon = TestHome::started(CSN);
    let (refusal, task) = daemon.refused("csn down", json!({}));
    assert_eq!(refusal.code.as_str(), "self_destructive");
    let state = daemon.settled(task.unwrap());
    assert!(matches!(state.outcome(), Some(&Outcome::Denied { .. })));
    assert!(!daemon.task_dir(task.unwrap()).exists(), "a denied task has no directory");
    let out = daemon.csn(&["run", "--profile", "full_auto", "csn down"]);
    assert_eq!(out.status.code(), Some(77));
}

#[test]
fn the_two_older_views_keep_their_vocabulary() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo hi");
    daemon.settled(task);
    let read = |view: &str| {
        let path = format!("/tasks/{task}/events?view={view}");
        let body = daemon.client().call("GET", &path, &[], None).unwrap();
        let text = String::from_utf8(body).unwrap();
        let data = text.lines().filter_map(|l| l.strip_prefix("data: ")).map(str::to_owned).collect::<Vec<_>>();
        data.iter().map(|d| serde_json::from_str::<serde_json::Value>(d).unwrap()).collect::<Vec<_>>()
    };
    let terminal = read("terminal");
    assert!(terminal.iter().any(|e| e["kind"] == "terminal.stream.output" && e["text"] == "hi\n"));
    let kinds: Vec<_> = read("tool_task").iter().filter_map(|e| e["type"].as_str().map(str::to_owned)).collect();
    assert_eq!(
        kinds,
        [
            "tool_task_spawned",
            "tool_task_status",
            "tool_task_output_delta",
            "tool_stdout",
            "tool_task_status",
            "tool_ended"
        ]
    );
}

#[test]
fn folding_the_stream_twice_gives_the_same_state() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo a; sleep 0.1; echo b >&2");
    let live = daemon.sealed(task);
    let records: Vec<Record> = daemon.records(task);
    let folded = countersign_model::TaskState::fold(task, &records).unwrap();
    assert_eq!(serde_json::to_string(&folded).unwrap(), serde_json::to_string(&live).unwrap());
    daemon.kill_daemon();
    daemon.start();
    assert_eq!(serde_json::to_string(&daemon.settled(task)).unwrap(), serde_json::to_string(&live).unwrap());
}
