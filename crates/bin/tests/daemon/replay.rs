//! Recordings: replayed, folded, exported, searched; never run again.

use crate::{CSN, stream::get};
use countersign_model::{RefusalCode, StreamName, TaskId, TaskState};
use countersign_testkit::{RawCalls as _, TestHome, body};
use serde_json::{Value, json};

fn lively(daemon: &TestHome) -> TaskId {
    let text = "echo ran >> ran; printf '\\033[31mrot\\033[0m \u{4f60}\\n'; read x; echo \"<$x>\"; stty size; exit 3";
    let task = daemon.ask_with(text, json!({"execution_mode": "pty"})).task_id;
    daemon.wait_for_stdout(task, "rot");
    daemon.client().resize(task, 30, 90).unwrap();
    daemon.client().stdin(task, &body(json!({"text": "typed\n"}))).unwrap();
    daemon.settled(task);
    task
}

#[test]
fn the_fold_of_the_recording_is_the_live_state_byte_for_byte() {
    let daemon = TestHome::started(CSN);
    let task = lively(&daemon);
    daemon.sealed(task);
    let live = daemon.client().call("GET", &format!("/tasks/{task}"), &[], None).unwrap();
    let folds: Vec<Vec<u8>> =
        (0..2).map(|_| serde_json::to_vec(&TaskState::fold(task, &daemon.records(task)).unwrap()).unwrap()).collect();
    assert!(folds[0] == live && folds[1] == live);
    daemon.kill_daemon();
    daemon.start();
    assert!(daemon.client().call("GET", &format!("/tasks/{task}"), &[], None).unwrap() == live);
}

#[test]
fn a_replay_shows_what_was_recorded_and_starts_nothing() {
    let daemon = TestHome::started(CSN);
    let task = lively(&daemon).to_string();
    let recorded = daemon.output(task.parse().unwrap(), StreamName::Pty);
    for how in [vec!["--instant"], vec!["--speed", "1000"], vec!["--max-pause", "0.01"]] {
        let replayed = daemon.csn(&[&["replay", &task][..], &how].concat());
        assert!(replayed.status.success() && replayed.stdout == recorded, "{how:?}");
    }
    let text = String::from_utf8(daemon.csn(&["replay", &task, "--text"]).stdout).unwrap();
    assert_eq!(text, "rot \u{4f60}\ntyped\n<typed>\n30 90\n");
    assert_eq!(std::fs::read_to_string(daemon.work().join("ran")).unwrap(), "ran\n", "it ran once");
    let paced = daemon.client().call("GET", &format!("/tasks/{task}/events?speed=100000"), &[], None).unwrap();
    let at_once = daemon.client().call("GET", &format!("/tasks/{task}/events"), &[], None).unwrap();
    assert_eq!(paced, at_once, "the same records, in their own time");
    assert_eq!(get(&daemon, &format!("/tasks/{task}/events?speed=0")).unwrap_err().code, RefusalCode::BadRequest);
    assert_eq!(daemon.csn(&["replay", &task, "--speed", "-1"]).status.code(), Some(2));
}

fn cast(daemon: &TestHome, task: TaskId, version: &str) -> Vec<Value> {
    let file = daemon.work().join(format!("{task}.{version}.cast"));
    let done = daemon.csn(&["replay", &task.to_string(), "--cast", version, file.to_str().unwrap()]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let again = daemon.csn(&["replay", &task.to_string(), "--cast", version, file.to_str().unwrap()]);
    assert!(!again.status.success(), "a file that is there is not written over");
    std::fs::read_to_string(file).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn casts_follow_their_format_version() {
    let daemon = TestHome::started(CSN);
    let task = lively(&daemon);
    let shown = |lines: &[Value]| -> String {
        lines[1..].iter().filter(|e| e[1] == "o").filter_map(|e| e[2].as_str()).collect()
    };
    let recorded = String::from_utf8(daemon.output(task, StreamName::Pty)).unwrap();
    let v2 = cast(&daemon, task, "v2");
    assert_eq!(
        (v2[0]["version"].as_u64(), v2[0]["width"].as_u64(), v2[0]["height"].as_u64()),
        (Some(2), Some(80), Some(24))
    );
    assert_eq!(shown(&v2), recorded);
    let times: Vec<f64> = v2[1..].iter().map(|e| e[0].as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "times since the beginning");
    let v3 = cast(&daemon, task, "v3");
    assert_eq!((v3[0]["version"].as_u64(), v3[0]["term"]["cols"].as_u64()), (Some(3), Some(80)));
    assert_eq!(shown(&v3), recorded);
    assert!(v3[1..].iter().any(|e| e[1] == "r" && e[2] == "90x30"));
    assert_eq!((&v3.last().unwrap()[1], &v3.last().unwrap()[2]), (&json!("x"), &json!("3")));
    let total: f64 = v3[1..].iter().map(|e| e[0].as_f64().unwrap()).sum();
    assert!(v3[1..].iter().all(|e| e[0].as_f64().unwrap() >= 0.0) && (total - times.last().unwrap()).abs() < 1.0);

    let task = daemon.ask("echo out; echo err >&2; printf '\\xe4\\xbd'; printf '\\xa0\\n'");
    daemon.settled(task);
    let v3 = cast(&daemon, task, "v3");
    let all = shown(&v3);
    assert!(all.contains("out\r\n") && all.contains("err\r\n") && all.contains("\u{4f60}\r\n"), "{all:?}");
    let task = daemon.client().ask(&daemon.request("touch x", json!({"profile": "safe"}))).unwrap().task_id;
    assert_eq!(cast(&daemon, task, "v3").len(), 1, "nothing has happened yet");
}

#[test]
fn views_are_printed_by_show() {
    let daemon = TestHome::started(CSN);
    let task = lively(&daemon).to_string();
    let kinds = |view: &str, field: &str| -> Vec<String> {
        let out = daemon.csn(&["show", &task, "--view", view]).stdout;
        let lines = String::from_utf8(out).unwrap();
        lines.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()[field].as_str().unwrap().to_owned()).collect()
    };
    assert!(kinds("native", "kind").contains(&"pty.resized".to_owned()));
    let terminal = kinds("terminal", "kind");
    assert!(
        terminal.contains(&"terminal.stdin.written".to_owned()) && terminal.iter().all(|k| k.starts_with("terminal."))
    );
    let older = kinds("tool_task", "type");
    for kind in ["tool_task_spawned", "tool_task_stdin_written", "tool_task_resized", "tool_stdout", "tool_ended"] {
        assert!(older.contains(&kind.to_owned()), "{kind}: {older:?}");
    }
}

#[test]
fn search_finds_by_page_and_by_line_while_a_task_runs_and_after() {
    let daemon = TestHome::started(CSN);
    let task = daemon
        .ask_with("seq 1 3000; echo Needle >&2; read x; echo last needle", json!({"args": {"stdin": true}}))
        .task_id;
    daemon.wait_for_stdout(task, "3000");
    daemon.frame(task, |f| matches!(f, countersign_model::Frame::Output { stream: StreamName::Stderr, .. }));
    let mut query = format!("/tasks/{task}/search?pattern=7&max_results=50");
    let mut found: Vec<(u64, u64)> = Vec::new();
    loop {
        let page = get(&daemon, &query).unwrap();
        let matches = page["matches"].as_array().unwrap();
        found.extend(matches.iter().map(|m| (m["line"].as_u64().unwrap(), m["offset_bytes"].as_u64().unwrap())));
        match page["next"].as_str() {
            Some(next) => query = format!("/tasks/{task}/search?pattern=7&max_results=50&after={next}"),
            None => break,
        }
    }
    let all = daemon.output(task, StreamName::Stdout);
    let expect: Vec<u64> = all.iter().zip(0u64..).filter(|(b, _)| **b == b'7').map(|(_, at)| at).collect();
    assert_eq!(found.iter().map(|(_, at)| *at).collect::<Vec<_>>(), expect, "each once, over all pages");
    assert!(found.iter().all(|(line, _)| line.to_string().contains('7')), "a line's number is the number in it");
    let one = get(&daemon, &format!("/tasks/{task}/search?pattern=^15..$&regex=true&context=1&max_results=1")).unwrap();
    assert_eq!(one["matches"][0]["excerpt"], "1500");
    assert_eq!((&one["matches"][0]["before"], &one["matches"][0]["after"]), (&json!(["1499"]), &json!(["1501"])));
    let err = get(&daemon, &format!("/tasks/{task}/search?pattern=needle&ignore_case=true")).unwrap();
    assert_eq!((&err["matches"][0]["stream"], &err["complete"]), (&json!("stderr"), &json!(false)));
    daemon.client().stdin(task, &body(json!({"text": "\n"}))).unwrap();
    daemon.settled(task);
    let cli = daemon.csn(&["search", &task.to_string(), "needle", "-i"]);
    let lines = String::from_utf8(cli.stdout).unwrap();
    assert_eq!(lines.lines().collect::<Vec<_>>(), ["stdout:3001:13898:last needle", "stderr:1:0:Needle"]);
    assert_eq!(daemon.csn(&["search", &task.to_string(), "absent"]).status.code(), Some(1));
    for bad in [
        "",
        "pattern=",
        "pattern=(&regex=true",
        "pattern=x&context=99",
        "pattern=x&max_results=0",
        "pattern=x&after=y",
        "pattern=x&after=stdout.0.18446744073709551615.0",
        "pattern=x&stream=pty",
        "pattern=x&other=1",
    ] {
        let refused = get(&daemon, &format!("/tasks/{task}/search?{bad}")).unwrap_err();
        assert_eq!(refused.code, RefusalCode::BadRequest, "{bad}");
    }
}

/// Long output: matches within chunks, across their borders and at the very end.
#[test]
fn search_of_much_output_finds_every_match_and_counts_every_line() {
    let daemon = TestHome::started(CSN);
    let text = "awk 'BEGIN { for (i = 1; i <= 900000; i++) print (i % 9973 == 0 ? \"needle \" : \"straw \") i }'; printf 'last needle'";
    let task = daemon.ask(text);
    daemon.settled(task);
    let mut lines = Vec::new();
    let mut after = String::new();
    loop {
        let page = get(&daemon, &format!("/tasks/{task}/search?pattern=needle&max_results=7{after}")).unwrap();
        for m in page["matches"].as_array().unwrap() {
            let (line, at) = (m["line"].as_u64().unwrap(), m["offset_bytes"].as_u64().unwrap());
            assert_eq!(daemon.client().output(task, StreamName::Stdout, at, 6).unwrap(), b"needle");
            lines.push(line);
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let expect: Vec<u64> = (1..=900_000).filter(|n| n % 9973 == 0).chain([900_001]).collect();
    assert_eq!(lines, expect);
    let regex = get(&daemon, &format!("/tasks/{task}/search?pattern=^straw%20899999$&regex=true")).unwrap();
    assert_eq!(regex["matches"][0]["line"], 899_999);
    let with_context = get(&daemon, &format!("/tasks/{task}/search?pattern=straw%20899999&context=1")).unwrap();
    assert_eq!(with_context["matches"][0]["after"], json!(["straw 900000"]));
    let mut bytes = std::fs::read(daemon.task_dir(task).join("stdout.log")).unwrap();
    bytes[5_000_000] ^= 1;
    std::fs::write(daemon.task_dir(task).join("stdout.log"), bytes).unwrap();
    assert_eq!(
        get(&daemon, &format!("/tasks/{task}/search?pattern=absent")).unwrap_err().code,
        RefusalCode::ArtifactTampered
    );
}

#[test]
fn a_line_that_the_gap_cuts_is_searched_too() {
    let daemon = TestHome::started(CSN);
    let limit = 6 * 1024 * 1024;
    let text = format!("yes straw | head -c {}; printf NEEDLEab; yes straw | head -c 3000000", limit - 8);
    let task = daemon.ask_with(&text, json!({"limits": {"output_bytes": limit}})).task_id;
    daemon.settled(task);
    for query in ["NEEDLE", "NEEDLE&context=1", "NEEDLE&ignore_case=true"] {
        let found = get(&daemon, &format!("/tasks/{task}/search?pattern={query}")).unwrap();
        assert_eq!(found["matches"][0]["offset_bytes"].as_u64(), Some(limit - 8), "{query}");
    }
}

#[test]
fn many_lines_are_printed_completely() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("yes 0123456789012345678901234567890123456789 | head -n 150000");
    daemon.settled(task);
    let out = daemon.csn(&["logs", &task.to_string(), "--lines", "1:149999"]).stdout;
    assert_eq!(out.len(), 149_999 * 41);
}

#[test]
fn events_of_a_finished_task_report_changed_files() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("yes | head -c 300000");
    daemon.settled(task);
    let file = daemon.task_dir(task).join("stdout.log");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[..8].copy_from_slice(b"TAMPERED");
    std::fs::write(&file, bytes).unwrap();
    let events = daemon.client().call("GET", &format!("/tasks/{task}/events"), &[], None).unwrap();
    let events = String::from_utf8(events).unwrap();
    assert!(events.contains("unreadable") && !events.contains("TAMPERED"));
}

#[test]
fn logs_select_by_line_by_tail_and_by_time() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("seq 1 50; echo err >&2");
    daemon.settled(task);
    let task = task.to_string();
    let logs = |args: &[&str]| String::from_utf8(daemon.csn(&[&["logs", &task][..], args].concat()).stdout).unwrap();
    assert_eq!(logs(&["--tail", "2", "--stream", "stdout"]), "49\n50\n");
    assert_eq!(logs(&["--lines", "2"]), "49\n50\n");
    assert_eq!(logs(&["--lines", "10:12"]), "10\n11\n12\n");
    assert_eq!(logs(&["--since", "1h"]).lines().count(), 50);
    assert_eq!(logs(&["--since", "2100-01-01T00:00:00Z"]), "");
    for bad in [["--lines", "5:2"], ["--lines", "x"], ["--since", "yesterday"]] {
        assert_eq!(daemon.csn(&["logs", &task, bad[0], bad[1]]).status.code(), Some(2), "{bad:?}");
    }
}
