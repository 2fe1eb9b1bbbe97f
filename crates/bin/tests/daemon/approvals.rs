//! Approvals: they survive crashes, are answered once, and can be answered on every surface.

use crate::{CSN, tree::kill};
use countersign_client::ClientError;
use countersign_model::{
    ApprovalId, Choice, Decision, Outcome, RecordContent, RefusalCode, Status, TaskId, TaskRefusal,
};
use countersign_testkit::{RawCalls as _, TestHome};
use serde_json::json;
use std::io::{BufRead as _, BufReader, Read as _};

/// Requests a command that profile `safe` asks a person about.
fn ask(daemon: &TestHome, text: &str) -> (TaskId, ApprovalId) {
    let state = daemon.ask_with(text, json!({"profile": "safe"}));
    assert_eq!(state.status, Status::Queued);
    (state.task_id, state.approval_id().unwrap())
}

pub(crate) fn refusal<T: std::fmt::Debug>(result: countersign_client::Result<T>) -> countersign_model::Refusal {
    match result {
        Err(ClientError::Refused(TaskRefusal { refusal, .. })) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn an_answer_after_a_crash_runs_the_request_once() {
    let daemon = TestHome::started(CSN);
    let (task, approval) = ask(&daemon, "echo ran >> ran; echo \"$SECRET_PASSWORD\"");
    daemon.kill_daemon();
    daemon.start();
    assert_eq!(daemon.client().approval(&approval.to_string()[..16]).unwrap().id, approval, "a beginning is enough");
    let waiting = daemon.client().approvals(false).unwrap();
    assert_eq!(waiting.iter().map(|a| a.id).collect::<Vec<_>>(), [approval]);
    let out = daemon.csn(&["approvals", "answer", &approval.to_string(), "once"]);
    assert_eq!(String::from_utf8(out.stdout).unwrap(), format!("{task}: Approved (no save)\n"));
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 0 });
    assert_eq!(std::fs::read_to_string(daemon.work().join("ran")).unwrap(), "ran\n");
    assert_eq!(std::fs::read_dir(daemon.home().join("waiting")).unwrap().count(), 0, "the raw request is gone");
    assert!(daemon.client().approvals(false).unwrap().is_empty());
}

#[test]
fn of_two_answers_the_first_counts_and_the_second_is_refused() {
    let daemon = TestHome::started(CSN);
    for n in 0..10 {
        let (task, approval) = ask(&daemon, &format!("echo {n} >> twice"));
        let answers: Vec<_> = std::thread::scope(|scope| {
            let client = || daemon.client();
            let threads: Vec<_> = [Choice::Once, Choice::Deny]
                .into_iter()
                .map(|choice| {
                    let client = client();
                    scope.spawn(move || client.answer(approval, choice, None))
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let lost = answers.into_iter().filter(Result::is_err).map(refusal).collect::<Vec<_>>();
        assert_eq!(lost.len(), 1);
        assert_eq!(lost[0].code, RefusalCode::AlreadyAnswered);
        assert!(
            lost[0].message.contains("already answered") && lost[0].message.contains("owner"),
            "{}",
            lost[0].message
        );
        daemon.settled(task);
    }
}

#[test]
fn f151_a_task_cancelled_while_it_waits_never_starts() {
    let daemon = TestHome::started(CSN);
    let (task, approval) = ask(&daemon, "echo x > started");
    daemon.client().cancel(task, None).unwrap();
    assert!(matches!(daemon.outcome(task), Outcome::Withdrawn { .. }));
    assert_eq!(refusal(daemon.client().answer(approval, Choice::Once, None)).code, RefusalCode::AlreadyAnswered);
    assert!(!daemon.work().join("started").exists() && !daemon.task_dir(task).exists());
    assert_eq!(refusal(daemon.client().cancel(task, None)).code, RefusalCode::TaskOver);
}

#[test]
fn a_denial_carries_the_persons_words() {
    let daemon = TestHome::started(CSN);
    let (task, approval) = ask(&daemon, "make");
    daemon.client().answer(approval, Choice::Deny, Some("use the other target")).unwrap();
    assert!(matches!(daemon.outcome(task), Outcome::Denied { .. }));
    let words = daemon.records(task).into_iter().find_map(|r| match r.what {
        RecordContent::Decision(Decision::PermissionDenied { words, .. }) => words,
        _ => None,
    });
    assert_eq!(words.unwrap().as_str(), "use the other target");
}

#[test]
fn answers_that_were_not_offered_and_unknown_ids_are_refused() {
    let daemon = TestHome::started(CSN);
    let (_, approval) = ask(&daemon, "eval \"$X\"");
    let post = |path: &str, body: serde_json::Value| refusal(daemon.client().call("POST", path, &[], Some(&body)));
    let anywhere = post(&format!("/approvals/{approval}"), json!({"choice": "anywhere"}));
    assert_eq!(
        anywhere.code,
        RefusalCode::OptionNotOffered,
        "a command that cannot be analysed can only be approved once"
    );
    let forged = post(&format!("/approvals/{approval}"), json!({"choice": "always"}));
    assert_eq!(forged.code, RefusalCode::BadRequest);
    assert!(forged.message.contains("`choice`"), "{}", forged.message);
    assert_eq!(post("/approvals/ap_0000000000000000", json!({"choice": "once"})).code, RefusalCode::NotFound);
    assert_eq!(post("/approvals/../../etc", json!({"choice": "once"})).code, RefusalCode::NotFound);
    assert_eq!(daemon.client().approvals(false).unwrap().len(), 1, "it still waits");
}

#[test]
fn a_command_whose_paths_changed_before_the_answer_does_not_run() {
    let daemon = TestHome::started(CSN);
    let work = daemon.work();
    let inner = work.join("inner");
    std::fs::create_dir(&inner).unwrap();
    let state = daemon.ask_with("echo x > ../ran", json!({"profile": "safe", "args": {"cwd": inner}}));
    std::fs::rename(&inner, work.join("moved")).unwrap();
    std::os::unix::fs::symlink("/tmp", &inner).unwrap();
    daemon.client().answer(state.approval_id().unwrap(), Choice::Once, None).unwrap();
    let outcome = daemon.outcome(state.task_id);
    assert!(matches!(&outcome, Outcome::Denied { reason } if reason.as_str() == "paths_changed"), "{outcome:?}");
    assert!(!work.join("ran").exists());
}

#[test]
fn csn_run_without_a_terminal_says_what_it_waits_for() {
    let daemon = TestHome::started(CSN);
    let mut run = daemon.csn_spawn(&["run", "--confinement", "shield", "echo approved"]);
    let mut err = BufReader::new(run.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    let approval = line.split_whitespace().find(|w| w.starts_with("ap_")).unwrap().trim_end_matches(';').to_owned();
    assert_eq!(
        line,
        format!("csn: waiting for approval {approval}; a person can answer it: csn approvals show {approval}\n")
    );
    daemon.client().answer(approval.parse().unwrap(), Choice::Once, None).unwrap();
    let mut out = String::new();
    run.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!((out.as_str(), run.wait().unwrap().code()), ("approved\n", Some(0)));
    let out = daemon.csn(&["run", "--no-wait", "--confinement", "shield", "echo never"]);
    assert_eq!(out.status.code(), Some(75));
    let out = daemon.csn(&["run", "--unattended", "--confinement", "shield", "echo never"]);
    assert_eq!(out.status.code(), Some(77));
    assert!(String::from_utf8_lossy(&out.stderr).contains("no person can be asked"));
    let out = daemon.csn(&["run", "--profile", "locked", "touch never"]);
    assert_eq!(out.status.code(), Some(77));
}

#[test]
fn csn_run_survives_the_daemon_it_asked() {
    let daemon = TestHome::started(CSN);
    let mut run = daemon.csn_spawn(&[
        "run",
        "--profile",
        "full_auto",
        "echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 6",
    ]);
    let mut out = BufReader::new(run.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "one\n");
    kill(daemon.daemon_pid());
    daemon.daemon_ends();
    std::fs::write(daemon.work().join("go"), "").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), run.wait().unwrap().code()), ("two\n", Some(6)));
}
