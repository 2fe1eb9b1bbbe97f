//! Process trees: nothing that a task started is left behind, unless the request says so.

use crate::CSN;
use countersign_model::{Frame, KilledWhy, Outcome, SignalName, Status, TimeLimit};
use countersign_testkit::{TestHome, process_state, processes_with};
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};

/// A duration that no other test sleeps for: it marks the processes of one test.
fn mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("10{:07}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn escapes(mark: &str) -> String {
    let quiet = ">/dev/null 2>&1";
    format!(
        "setsid sleep {mark} & (sleep {mark} &) ; nohup sleep {mark} & (env -i setsid setsid sleep {mark} {quiet} &); exit 3"
    )
}

#[test]
fn leftovers_are_ended_however_they_hide() {
    let daemon = TestHome::started(CSN);
    let mark = mark();
    let task = daemon.ask_with(&escapes(&mark), json!({"limits": {"drain_ms": 50}})).task_id;
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 3 });
    assert_eq!(processes_with(&mark), Vec::<u32>::new());
    let frame = daemon.frame(task, |f| matches!(f, Frame::CleanupCompleted { .. }));
    assert!(matches!(frame, Frame::CleanupCompleted { survivors, .. } if survivors.is_empty()));
}

#[test]
fn kept_leftovers_are_listed_and_cancel_ends_them_all() {
    let daemon = TestHome::started(CSN);
    let mark = mark();
    let task = daemon.ask_with(&escapes(&mark), json!({"leftovers": "keep"})).task_id;
    let Frame::Kept { processes } = daemon.frame(task, |f| matches!(f, Frame::Kept { .. })) else { unreachable!() };
    assert!(!processes.is_empty());
    let state = daemon.client().task(&task.to_string()).unwrap();
    assert_eq!(state.status, Status::Running);
    assert!(state.aftermath.kept.iter().any(|pid| process_state(*pid).is_some()), "{:?}", state.aftermath.kept);
    daemon.client().cancel(task, Some("enough")).unwrap();
    assert!(matches!(daemon.outcome(task), Outcome::Cancelled { reason: Some(r), .. } if r.as_str() == "enough"));
    assert_eq!(processes_with(&mark), Vec::<u32>::new());
}

#[test]
fn f152_cancel_ends_what_ignores_term_and_has_left_its_group() {
    let daemon = TestHome::started(CSN);
    let mark = mark();
    let text = format!(
        "trap '' TERM; setsid bash -c 'trap \"\" TERM; echo child; while :; do sleep {mark}; done' & echo ready; while :; do sleep {mark}; done"
    );
    let task = daemon.ask_with(&text, json!({"limits": {"grace_ms": 100}})).task_id;
    daemon.wait_for_stdout(task, "child");
    daemon.client().cancel(task, None).unwrap();
    assert!(matches!(daemon.outcome(task), Outcome::Cancelled { .. }));
    assert_eq!(processes_with(&mark), Vec::<u32>::new());
    let killed = daemon.frame(task, |f| matches!(f, Frame::Killed { .. }));
    assert!(
        matches!(killed, Frame::Killed { signal: SignalName::KILL, why: KilledWhy::Cancel, survivors } if survivors.is_empty())
    );
}

#[test]
fn f161_f162_the_wall_clock_ends_a_tree_however_much_it_prints() {
    let daemon = TestHome::started(CSN);
    let mark = mark();
    let text = format!("sleep {mark} & while true; do echo .; sleep 0.02; done");
    let task = daemon.ask_with(&text, json!({"limits": {"wall_ms": 300, "grace_ms": 200}})).task_id;
    let state = daemon.settled(task);
    assert_eq!(state.outcome(), Some(&Outcome::TimedOut { limit: TimeLimit::Wall }));
    assert_eq!(state.status, Status::Failed);
    assert_eq!(processes_with(&mark), Vec::<u32>::new());
    daemon.frame(task, |f| matches!(f, Frame::LimitReached { limit, value: 300, .. } if limit.as_str() == "wall"));
}

#[test]
fn f163_silence_is_ended_only_where_an_idle_limit_was_asked_for() {
    let daemon = TestHome::started(CSN);
    let quiet = daemon.ask("sleep 0.6; echo done");
    let idle = daemon.ask_with("echo begin; sleep 1000", json!({"limits": {"idle_ms": 150}})).task_id;
    assert_eq!(daemon.outcome(idle), Outcome::TimedOut { limit: TimeLimit::Idle });
    assert_eq!(daemon.outcome(quiet), Outcome::Exited { code: 0 });
}

#[test]
fn f150_a_long_running_server_blocks_no_other_task() {
    let daemon = TestHome::started(CSN);
    let server = daemon.ask_with("echo up; sleep 1000", json!({"background": true})).task_id;
    daemon.wait_for_stdout(server, "up");
    for n in 0..5 {
        let task = daemon.ask(&format!("echo {n}"));
        assert_eq!(daemon.outcome(task), Outcome::Exited { code: 0 });
    }
    assert_eq!(daemon.client().task(&server.to_string()).unwrap().status, Status::Running);
    daemon.client().cancel(server, None).unwrap();
    daemon.settled(server);
}

#[test]
fn signals_reach_the_group_and_are_recorded() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("trap 'echo got it; exit 5' USR1; echo ready; while :; do sleep 0.05; done");
    daemon.wait_for_stdout(task, "ready");
    assert!(daemon.csn(&["signal", &task.to_string(), "sigusr1"]).status.success());
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 5 });
    daemon.frame(task, |f| matches!(f, Frame::Signalled { signal: SignalName::USR1, .. }));
    let out = daemon.csn(&["signal", &task.to_string(), "TERM"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("the task has ended: exited 5"));
    let out = daemon.csn(&["signal", &task.to_string(), "NOPE"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("use one of HUP, INT"));
}

#[test]
fn a_killed_shim_loses_its_task_and_leaves_nothing() {
    let daemon = TestHome::started(CSN);
    let mark = mark();
    let text = format!("(env -i setsid sleep {mark} >/dev/null 2>&1 &); setsid sleep {mark} & echo up; sleep {mark}");
    let task = daemon.ask(&text);
    daemon.wait_for_stdout(task, "up");
    let shim = daemon.client().task(&task.to_string()).unwrap().shim_pid().unwrap();
    assert_eq!(processes_with(&format!("sleep {mark}")).len(), 3);
    kill(shim);
    let state = daemon.settled(task);
    assert!(matches!(state.outcome(), Some(&Outcome::Lost { .. })), "{:?}", state.outcome());
    assert_eq!(processes_with(&mark), Vec::<u32>::new());
    assert_eq!(daemon.stdout(task), "up\n");
    let other = daemon.ask("echo fine");
    assert_eq!(daemon.outcome(other), Outcome::Exited { code: 0 });
}

/// Waits until a process has ended.
pub(crate) fn gone(pid: u32) {
    countersign_store::Home::wait_for_exit(pid).unwrap();
}

pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_leftover_that_never_stops_writing_does_not_keep_its_task() {
    let daemon = TestHome::started(CSN);
    let mark = mark();
    let task = daemon.ask_with(&format!("yes {mark} & exit 0"), json!({"limits": {"drain_ms": 100}})).task_id;
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 0 });
    assert_eq!(processes_with(&mark), Vec::<u32>::new());
}

#[test]
fn a_process_may_call_itself_anything_and_is_found() {
    let daemon = TestHome::started(CSN);
    let mark = mark();
    let text = format!(
        "bash -c 'printf \"\\xff\\xfe\" > /proc/$$/comm; trap \"\" TERM; echo named; while :; do read -t 9 <> <(:); done' {mark} & wait"
    );
    let task = daemon.ask_with(&text, json!({"limits": {"grace_ms": 50}})).task_id;
    daemon.wait_for_stdout(task, "named");
    daemon.client().cancel(task, None).unwrap();
    assert!(matches!(daemon.outcome(task), Outcome::Cancelled { .. }));
    assert_eq!(processes_with(&mark), Vec::<u32>::new());
}

#[test]
fn stopping_the_daemon_keeps_or_stops_tasks() {
    let daemon = TestHome::started(CSN);
    let mark = mark();
    let task = daemon.ask(&format!("echo up; sleep {mark}"));
    daemon.wait_for_stdout(task, "up");
    assert!(daemon.csn(&["down"]).status.success());
    daemon.daemon_ends();
    assert!(!processes_with(&mark).is_empty(), "kept");
    daemon.start();
    assert_eq!(daemon.client().task(&task.to_string()).unwrap().status, Status::Running);
    assert!(daemon.csn(&["down", "--stop-tasks"]).status.success());
    daemon.daemon_ends();
    assert_eq!(processes_with(&mark), Vec::<u32>::new());
    daemon.start();
    assert!(matches!(daemon.outcome(task), Outcome::Cancelled { .. }));
}

#[test]
#[ignore = "slow: cargo xtask soak"]
fn a_thousand_trees_leave_no_survivors() {
    let daemon = TestHome::started(CSN);
    let mark = mark();
    let request = json!({"limits": {"drain_ms": 200}});
    for _ in 0..20 {
        let tasks: Vec<_> = (0..50).map(|_| daemon.ask_with(&escapes(&mark), request.clone()).task_id).collect();
        for task in tasks {
            assert_eq!(daemon.outcome(task), Outcome::Exited { code: 3 });
        }
    }
    assert_eq!(processes_with(&mark), Vec::<u32>::new());
}
