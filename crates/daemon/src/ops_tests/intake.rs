//! Asking and checking: verdicts as a table, idempotency, and requests that are refused before the decision.

use super::{Daemon, agent, parse, person};
use crate::ops::{self, OnceKey};
use countersign_model::{Outcome, RefusalCode, Request, Status, TaskId, Text, VerdictKind, api::WaitQuery};
use serde_json::{Value, json};

#[test]
fn a_check_returns_the_verdict_and_records_nothing() {
    let daemon = Daemon::new();
    for (command, verdict, risky) in [
        ("cat Cargo.toml", VerdictKind::Allow, false),
        ("git push origin main", VerdictKind::Ask, true),
        ("rm -rf /", VerdictKind::Deny, true),
    ] {
        let answer = daemon.run(ops::intake::check(&daemon.ops, &person(), daemon.request(command))).unwrap();
        assert_eq!(answer.verdict, verdict, "{command}");
        assert_eq!(!answer.risks.is_empty(), risky, "{command}: {:?}", answer.risks);
        assert_eq!(answer.refusal.is_some(), verdict == VerdictKind::Deny, "{command}");
    }
    let page = daemon.run(ops::tasks::list(&daemon.ops, &person(), parse(json!({})))).unwrap();
    assert!(page.tasks.is_empty());
}

#[test]
fn a_waiting_task_has_the_verb_and_risks_of_its_verdict() {
    let daemon = Daemon::new();
    let command = "cd sub; git push origin main";
    let asked = daemon.run(ops::intake::ask(&daemon.ops, &agent(), daemon.request(command), None)).unwrap();
    let task = asked.answer.task;
    assert_eq!(
        (task.status, task.request.display.as_str(), task.request.verb.as_str()),
        (Status::Queued, command, "git push")
    );
    assert!(!task.request.risks.is_empty() && !asked.replayed);
}

#[test]
fn a_repeated_key_is_one_task_and_another_body_is_refused() {
    let daemon = Daemon::new();
    let ask = |command: &str, body: &[u8]| {
        let once = Some(OnceKey { key: "k", body });
        daemon.run(ops::intake::ask(&daemon.ops, &person(), daemon.request(command), once))
    };
    let first = ask("touch a", b"a").unwrap();
    let again = ask("touch a", b"a").unwrap();
    assert_eq!(first.answer.task.task_id, again.answer.task.task_id);
    assert_eq!((first.replayed, again.replayed), (false, true));
    assert_eq!(ask("touch b", b"b").err().unwrap().refusal.code, RefusalCode::IdempotencyConflict);
    for key in [String::new(), "k".repeat(256)] {
        let once = Some(OnceKey { key: &key, body: b"a" });
        let refused = daemon.refusal_code(ops::intake::ask(&daemon.ops, &person(), daemon.request("touch a"), once));
        assert_eq!(refused, Some(RefusalCode::BadRequest), "a key of {} bytes", key.len());
    }
}

#[test]
fn a_request_of_a_client_that_has_gone_away_is_not_decided() {
    let daemon = Daemon::new();
    let (caller, request) = (person(), daemon.request("git push origin main"));
    let asking = daemon.run(ops::intake::prepare(&daemon.ops, &caller, request, None)).ok().unwrap();
    let (reply, outcome) = tokio::sync::oneshot::channel();
    drop(outcome);
    daemon.ops.commit.send_ask(asking, reply);
    daemon.run(daemon.ops.wait_for_commits());
    let page = daemon.run(ops::tasks::list(&daemon.ops, &person(), parse(json!({})))).unwrap();
    assert!(page.tasks.is_empty());
}

#[test]
fn an_invalid_request_is_refused_before_the_decision() {
    let daemon = Daemon::new();
    let with = |mut base: Value, more: Value| -> Request {
        for (name, value) in more.as_object().unwrap() {
            base[name] = value.clone();
        }
        parse(base)
    };
    let shell = json!({"tool": "shell", "args": {"command": "true", "cwd": daemon.work()}});
    for (request, code) in [
        (daemon.request(""), RefusalCode::BadRequest),
        (daemon.request("a\0b"), RefusalCode::BadRequest),
        (daemon.request(&"x".repeat(200_000)), RefusalCode::TooLarge),
        (parse(json!({"tool": "shell", "args": {"command": "true", "cwd": "relative"}})), RefusalCode::BadRequest),
        (
            parse(json!({"tool": "shell", "args": {"command": "true", "cwd": "/no/such/place"}})),
            RefusalCode::BadRequest,
        ),
        (
            parse(json!({"tool": "shell", "args": {"command": "true", "argv": ["true"], "cwd": "/"}})),
            RefusalCode::BadRequest,
        ),
        (parse(json!({"tool": "write_file", "args": {"path": "/f", "old": "x"}})), RefusalCode::BadRequest),
        (with(shell.clone(), json!({"labels": {"": "x"}})), RefusalCode::BadRequest),
        (with(shell.clone(), json!({"limits": {"wall_ms": u64::MAX}})), RefusalCode::BadRequest),
        (with(shell.clone(), json!({"session_id": "se_01jcx3v9q8k2m4tz"})), RefusalCode::NotFound),
        (daemon.request("echo [redacted:known-value:aaaa]"), RefusalCode::PlaceholderInText),
    ] {
        let text = serde_json::to_string(&request).unwrap();
        let refused = daemon.refusal_code(ops::intake::ask(&daemon.ops, &person(), request, None));
        assert_eq!(refused, Some(code), "{}", &text[..text.len().min(200)]);
    }
    let terminal = with(shell, json!({"execution_mode": "pty"}));
    let refused = daemon.refusal_code(ops::intake::ask(&daemon.ops, &agent(), terminal, None));
    assert_eq!(refused, Some(RefusalCode::BadRequest), "an agent must say why it needs a terminal");
}

#[test]
fn a_denial_names_its_task_and_is_replayed_under_its_key() {
    let daemon = Daemon::new();
    let ask = || {
        let once = Some(OnceKey { key: "k", body: b"x" });
        daemon.run(ops::intake::ask(&daemon.ops, &person(), daemon.request("rm -rf /"), once)).err().unwrap()
    };
    let (first, again) = (ask(), ask());
    let task: TaskId = first.task.unwrap();
    assert_eq!((again.task, again.refusal.code), (Some(task), first.refusal.code));
    let state = daemon.ops.records.state(task).unwrap();
    assert!(matches!(state.outcome(), Some(Outcome::Denied { .. })), "{:?}", state.outcome());
}

/// A request for a task that has not changed waits a little; it is answered all the same, and sees the end.
#[test]
fn a_task_that_waits_is_shown_as_often_as_it_is_asked_for() {
    let daemon = Daemon::new();
    let asked = daemon.run(ops::intake::ask(&daemon.ops, &agent(), daemon.request("git push"), None)).unwrap();
    let task = asked.answer.task.task_id;
    let id = task.to_string();
    // Only a task with followers, or with a supervisor, reports changes that a request could wait for.
    let _follower = daemon.ops.registry.subscribe(task);
    let person = person();
    let show = || ops::tasks::show(&daemon.ops, &person, &id, WaitQuery::default());
    let first = daemon.run(show()).unwrap();
    for _ in 0..3 {
        assert_eq!(daemon.run(show()).unwrap(), first);
    }
    let withdraw = daemon.ops.commit.withdraw(task, Text::from_static("a test"));
    let (shown, withdrawn) = daemon.run(async { tokio::join!(show(), withdraw) });
    withdrawn.unwrap();
    assert!(!shown.unwrap().is_empty());
    let last = daemon.run(show()).unwrap();
    assert!(String::from_utf8_lossy(&last).contains(r#""kind":"withdrawn""#), "{last:?}");
}
