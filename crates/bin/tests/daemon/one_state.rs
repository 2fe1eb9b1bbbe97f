//! A task has one state on every surface: the list, the task itself, a view of its stream, and after a restart.

use crate::{CSN, tree::kill};
use countersign_client::ClientError;
use countersign_model::{Choice, Frame, Outcome, Refusal, RefusalCode, TaskId};
use countersign_testkit::{RawCalls as _, TestHome, body};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn get(daemon: &TestHome, path: &str) -> Value {
    serde_json::from_slice(&daemon.client().call("GET", path, &[], None).unwrap()).unwrap()
}

/// The task as the list shows it.
fn listed(daemon: &TestHome, task: TaskId) -> Value {
    let page = get(daemon, "/tasks?limit=100");
    let mut tasks = page["tasks"].as_array().unwrap().iter();
    tasks.find(|t| t["task_id"] == json!(task)).unwrap().clone()
}

/// One finished task of each kind, sealed.
fn finished(daemon: &TestHome) -> Vec<(&'static str, TaskId)> {
    let exited = daemon.ask("echo out; echo err >&2; exit 3");
    let denied = daemon.refused("csn down", json!({})).1.unwrap();
    let refused = daemon.ask_with("touch refused", json!({"profile": "safe", "title": "a title"}));
    daemon.client().answer(refused.approval_id().unwrap(), Choice::Deny, Some("no")).unwrap();
    let cancelled = daemon.ask("echo begun; sleep 600");
    daemon.wait_for_stdout(cancelled, "begun");
    daemon.client().cancel(cancelled, Some("enough")).unwrap();
    let withdrawn = daemon.ask_with("touch withdrawn", json!({"profile": "safe"})).task_id;
    daemon.client().cancel(withdrawn, None).unwrap();
    let pty = daemon.ask_with("stty size; echo seen", json!({"execution_mode": "pty"})).task_id;
    let lost = daemon.ask("echo begun; sleep 600");
    daemon.frame(lost, |f| matches!(f, Frame::Output { .. }));
    kill(daemon.client().task(&lost.to_string()).unwrap().shim_pid().unwrap());
    let all = vec![
        ("exited", exited),
        ("denied", denied),
        ("refused by a person", refused.task_id),
        ("cancelled", cancelled),
        ("withdrawn", withdrawn),
        ("pty", pty),
        ("lost", lost),
    ];
    for (_, task) in &all {
        daemon.sealed(*task);
    }
    all
}

#[test]
fn a_finished_task_is_the_same_in_the_list_and_alone_also_after_a_restart() {
    let daemon = TestHome::started(CSN);
    let tasks = finished(&daemon);
    assert!(matches!(daemon.outcome(tasks[6].1), Outcome::Lost { .. }));
    let before: Vec<Value> = tasks.iter().map(|(_, task)| get(&daemon, &format!("/tasks/{task}"))).collect();
    for ((kind, task), shown) in tasks.iter().zip(&before) {
        assert_eq!(listed(&daemon, *task), *shown, "{kind}");
        assert!(shown["receipt"].is_object() && shown["ended_at"].is_string(), "{kind}: {shown}");
    }
    let (exited, pty) = (&before[0], &before[5]);
    assert_eq!((&exited["streams"]["stdout"]["bytes"], &exited["streams"]["stderr"]["bytes"]), (&json!(4), &json!(4)));
    assert!(exited["confinement"].is_string() && exited["duration_us"].is_u64(), "{exited}");
    assert!(pty["terminal"].is_object() && pty["streams"]["pty"].is_object(), "{pty}");
    daemon.kill_daemon();
    daemon.start();
    // The list first: no task has been read by its id yet.
    for ((kind, task), shown) in tasks.iter().zip(&before) {
        assert_eq!(listed(&daemon, *task), *shown, "{kind}, listed after a restart");
        assert_eq!(get(&daemon, &format!("/tasks/{task}")), *shown, "{kind}, shown after a restart");
    }
}

fn post(daemon: &TestHome, body: &Value) -> Result<Value, Refusal> {
    match daemon.client().call("POST", "/tasks", &[], Some(body)) {
        Ok(answer) => Ok(serde_json::from_slice(&answer).unwrap()),
        Err(ClientError::Refused(refused)) => Err(refused.refusal),
        Err(other) => panic!("{body}: {other:?}"),
    }
}

#[test]
fn every_tool_that_a_refusal_lists_can_be_asked_for_by_absolute_path() {
    let daemon = TestHome::started(CSN);
    let file = daemon.work().join("file");
    std::fs::write(&file, "one\n").unwrap();
    let refusal = post(&daemon, &json!({"tool": "bash", "args": {"command": "true"}})).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::BadRequest);
    let list = refusal.message.split("use one of ").nth(1).unwrap();
    let words = list.split([',', ' ']).filter(|word| !word.is_empty());
    let named: Vec<&str> = words.take_while(|w| w.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')).collect();
    assert_eq!(named, ["shell", "read_file", "write_file", "edit_file"], "{}", refusal.message);
    for tool in named {
        let args = match tool {
            "shell" => json!({"command": "true", "cwd": daemon.work()}),
            "read_file" => json!({"path": file}),
            "write_file" => json!({"path": file, "content": "two\n"}),
            _ => json!({"path": file, "old": "two", "new": "three"}),
        };
        let body = json!({"tool": tool, "args": args, "profile": "full_auto", "wait_ms": 30_000});
        let answer = post(&daemon, &body).unwrap_or_else(|refusal| panic!("{tool}: {refusal}"));
        assert_eq!(answer["outcome"], json!({"kind": "exited", "code": 0}), "{tool}: {answer}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "three\n");
}

/// The events of the `tool_task` view after `last`, as (id, data), and whether the stream reported its end.
fn view_behind(daemon: &TestHome, task: TaskId, last: Option<&str>) -> (Vec<(String, Value)>, bool) {
    let headers: Vec<(&str, &str)> = last.iter().map(|id| ("last-event-id", *id)).collect();
    let path = format!("/tasks/{task}/events?view=tool_task");
    let text = String::from_utf8(daemon.client().call("GET", &path, &headers, None).unwrap()).unwrap();
    let field = |event: &str, name: &str| event.lines().find_map(|l| l.strip_prefix(name)).map(str::to_owned);
    let one = |event: &str| Some((field(event, "id: ")?, serde_json::from_str(&field(event, "data: ")?).unwrap()));
    (text.split("\n\n").filter_map(one).collect(), text.contains("event: end"))
}

#[test]
fn the_tool_task_view_resumes_after_every_single_event() {
    let daemon = TestHome::started(CSN);
    let text = r"head -c 20000 /dev/zero | tr '\0' x; printf '\377\376' >&2; read x; echo $x";
    let task = daemon.ask_with(text, json!({"args": {"stdin": true}})).task_id;
    daemon.frame(task, |f| matches!(f, Frame::Output { .. }));
    daemon.client().stdin(task, &body(json!({"text": "last\n"}))).unwrap();
    daemon.sealed(task);
    let (all, ended) = view_behind(&daemon, task, None);
    assert!(ended);
    let ids: BTreeSet<&str> = all.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids.len(), all.len(), "each event has an id of its own");
    let inner: BTreeSet<&str> = all.iter().map(|(_, e)| e["id"].as_str().unwrap()).collect();
    assert_eq!(inner.len(), all.len());
    for (n, (id, _)) in all.iter().enumerate() {
        let (rest, ended) = view_behind(&daemon, task, Some(id));
        assert!(rest == all[n + 1..] && ended, "behind {id}: {rest:#?}");
    }
    let last: Vec<&str> = all.iter().rev().take(2).map(|(_, e)| e["type"].as_str().unwrap()).collect();
    assert_eq!(last, ["tool_ended", "tool_task_status"]);
}

#[test]
fn the_tool_task_view_counts_every_byte_and_names_encoding_and_artifacts() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask(r"head -c 20000 /dev/zero | tr '\0' x; printf '\377\376' >&2");
    daemon.sealed(task);
    let (all, _) = view_behind(&daemon, task, None);
    for (stream, older, total) in [("stdout", "tool_stdout", 20_000), ("stderr", "tool_stderr", 2)] {
        let pieces: Vec<&Value> = all.iter().map(|(_, e)| e).filter(|e| e["stream"] == stream).collect();
        let mut end = 0;
        for piece in &pieces {
            assert_eq!(piece["offset_bytes"], end, "{piece}");
            end += piece["bytes"].as_u64().unwrap();
            let chunk = piece["chunk"].as_str().unwrap();
            let shown = match piece["encoding"].as_str().unwrap() {
                "utf-8" => chunk.len(),
                "base64" => chunk.len() / 4 * 3 - chunk.bytes().filter(|b| *b == b'=').count(),
                other => panic!("{other}"),
            };
            assert_eq!(shown as u64 + piece["omitted"].as_u64().unwrap_or(0), piece["bytes"].as_u64().unwrap());
        }
        assert_eq!(end, total, "{stream}");
        let count = all.iter().filter(|(_, e)| e["type"] == older).count();
        assert_eq!(count, pieces.len(), "the older event once for each piece");
    }
    let binary = all.iter().map(|(_, e)| e).find(|e| e["type"] == "tool_stderr").unwrap();
    assert_eq!((&binary["encoding"], &binary["chunk"]), (&json!("base64"), &json!("//4=")));
    let artifacts = all.last().unwrap().1["artifacts"].as_array().unwrap().clone();
    assert_eq!(artifacts.len(), 2, "{artifacts:?}");
    for artifact in artifacts {
        let path = format!("/artifacts/{}", artifact["sha256"].as_str().unwrap());
        let bytes = daemon.client().call("GET", &path, &[], None).unwrap();
        assert_eq!(bytes.len() as u64, artifact["bytes"].as_u64().unwrap(), "{artifact}");
    }
}
