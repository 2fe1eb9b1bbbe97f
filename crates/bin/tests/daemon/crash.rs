//! Death at every point between ask and settle: never two runs of one order, never a task without a state,
//! acknowledged decisions never lost.

use crate::{CSN, tree::kill};
use countersign_client::ClientError;
use countersign_model::{Choice, Outcome, StreamName, TaskId, TaskState};
use countersign_testkit::{TestHome, body};
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// Each run of a task leaves its id behind.
const RUN: &str = "echo $COUNTERSIGN_TASK >> runs; echo out";

/// Everything that must hold after any crash and a restart.
fn check(daemon: &TestHome, acknowledged: &[TaskId]) {
    let page = daemon.client().tasks(&body(json!({"limit": 500}))).unwrap();
    let known: Vec<TaskId> = page.tasks.iter().map(|t| t.task_id).collect();
    for task in acknowledged {
        assert!(known.contains(task), "{task} was acknowledged and is gone");
    }
    let runs = std::fs::read_to_string(daemon.work().join("runs")).unwrap_or_default();
    for task in &known {
        let state = daemon.client().task(&task.to_string()).unwrap();
        let ran = runs.lines().filter(|id| *id == task.to_string()).count();
        assert!(ran <= 1, "{task} ran {ran} times");
        let waits = state.approval_id().is_some() && state.ruling.is_none();
        if waits {
            assert_eq!(ran, 0, "{task} ran without leave");
            continue;
        }
        let settled = daemon.settled(*task);
        match settled.outcome().unwrap() {
            Outcome::Exited { code: 0 } => assert_eq!((ran, daemon.stdout(*task).as_str()), (1, "out\n")),
            Outcome::Failed { .. } => assert_eq!(ran, 0, "{task} ran and says that it did not"),
            Outcome::Lost { .. } => {}
            other => panic!("{task}: {other:?}"),
        }
        let records = daemon.records(*task);
        assert!(records.iter().zip(0..).all(|(r, n)| r.seq == n), "{task}: a gap in the numbering");
    }
    let out = daemon.csn(&["doctor", "--json"]);
    let doctor: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(doctor["ok"], true, "{doctor}");
}

fn armed() -> (TestHome, std::path::PathBuf) {
    let daemon = TestHome::new(CSN);
    let file = daemon.work().join("crash-at");
    let daemon = daemon.with_env("COUNTERSIGN_CRASH_FILE", file.to_str().unwrap());
    daemon.start();
    (daemon, file)
}

/// Asks while a crash is due; the task if that was acknowledged.
fn risky_ask(daemon: &TestHome, profile: &str) -> Option<TaskState> {
    match daemon.client().ask(&daemon.request(RUN, json!({"profile": profile}))) {
        Ok(state) => Some(state),
        Err(ClientError::Broken(_) | ClientError::NoDaemon { .. }) => None,
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn the_daemon_may_die_at_every_named_point() {
    for point in [
        "ledger.before_commit",
        "ledger.after_commit",
        "office.before_hand_over",
        "office.after_hand_over",
        "office.after_waiting",
    ] {
        for profile in ["full_auto", "safe"] {
            if (point.contains("hand_over") && profile == "safe")
                || (point == "office.after_waiting" && profile != "safe")
            {
                continue;
            }
            let (daemon, file) = armed();
            std::fs::write(&file, point).unwrap();
            let acknowledged = risky_ask(&daemon, profile).map(|s| s.task_id);
            daemon.daemon_ends();
            std::fs::remove_file(&file).unwrap();
            daemon.start();
            check(&daemon, &acknowledged.into_iter().collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_daemon_may_die_at_every_point_of_an_answer() {
    for point in ["ledger.before_commit", "ledger.after_commit", "office.before_hand_over", "office.after_hand_over"] {
        let (daemon, file) = armed();
        let asked = risky_ask(&daemon, "safe").unwrap();
        std::fs::write(&file, point).unwrap();
        let answered = daemon.client().answer(asked.approval_id().unwrap(), Choice::Once, None);
        daemon.daemon_ends();
        std::fs::remove_file(&file).unwrap();
        daemon.start();
        check(&daemon, &[asked.task_id]);
        if answered.is_ok() {
            let state = daemon.client().task(&asked.task_id.to_string()).unwrap();
            assert!(state.ruling.is_some(), "an acknowledged answer was lost at {point}");
        }
    }
}

#[test]
fn the_daemon_may_die_while_it_settles() {
    for point in ["ledger.before_commit", "ledger.after_commit"] {
        let (daemon, file) = armed();
        let task = daemon.ask("echo $COUNTERSIGN_TASK >> runs; until [ -e go ]; do sleep 0.01; done; echo out");
        daemon.frame(task, |f| matches!(f, countersign_model::Frame::Spawned { .. }));
        std::fs::write(&file, point).unwrap();
        std::fs::write(daemon.work().join("go"), "").unwrap();
        daemon.daemon_ends();
        std::fs::remove_file(&file).unwrap();
        daemon.start();
        check(&daemon, &[task]);
        assert_eq!(daemon.outcome(task), Outcome::Exited { code: 0 });
    }
}

#[test]
fn a_shim_may_die_at_every_named_point() {
    for point in
        ["shim.before_journal", "shim.after_journal", "shim.after_spawn", "shim.before_close", "shim.after_close"]
    {
        let (daemon, file) = armed();
        std::fs::write(&file, point).unwrap();
        let task = daemon.ask(RUN);
        let outcome = daemon.outcome(task);
        std::fs::remove_file(&file).unwrap();
        check(&daemon, &[task]);
        match point {
            "shim.before_journal" => assert!(matches!(outcome, Outcome::Failed { .. }), "{point}: {outcome:?}"),
            "shim.after_close" => assert_eq!(outcome, Outcome::Exited { code: 0 }),
            _ => assert!(matches!(outcome, Outcome::Lost { .. }), "{point}: {outcome:?}"),
        }
        assert!(!daemon.task_dir(task).join("tmp").exists(), "{point}: its temporary files went with it");
        let next = daemon.ask("true");
        assert_eq!(daemon.outcome(next), Outcome::Exited { code: 0 });
    }
}

#[test]
fn f153_twenty_printing_tasks_survive_the_daemon() {
    let daemon = TestHome::started(CSN);
    let text = "for i in $(seq 1 400); do echo \"line $i of $N\"; [ $i = 100 ] && until [ -e go ]; do sleep 0.01; done; done; exit $N";
    let expected = |n: usize| (1..=400).map(|i| format!("line {i} of {n}\n")).collect::<String>();
    let tasks: Vec<TaskId> =
        (0..20).map(|n| daemon.ask_with(text, json!({"args": {"env": {"N": n.to_string()}}})).task_id).collect();
    for task in &tasks {
        daemon.frame(*task, |f| matches!(f, countersign_model::Frame::Output { .. }));
    }
    kill(daemon.daemon_pid());
    daemon.daemon_ends();
    std::fs::write(daemon.work().join("go"), "").unwrap();
    daemon.start();
    for (n, task) in tasks.iter().enumerate() {
        let state = daemon.settled(*task);
        assert_eq!(state.outcome(), Some(&Outcome::Exited { code: n as i32 }));
        let digest: [u8; 32] = Sha256::digest(expected(n).as_bytes()).into();
        assert_eq!(state.io.streams[&StreamName::Stdout].sha256.unwrap().as_bytes(), &digest);
        assert_eq!(daemon.stdout(*task), expected(n));
        let records = daemon.records(*task);
        assert!(records.iter().zip(0..).all(|(r, n)| r.seq == n));
    }
}

#[test]
fn a_damaged_journal_settles_as_lost_and_says_so() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo out; sleep 1000");
    daemon.wait_for_stdout(task, "out");
    let shim = daemon.client().task(&task.to_string()).unwrap().shim_pid().unwrap();
    daemon.kill_daemon();
    kill(shim);
    let journal = daemon.task_dir(task).join("journal");
    let mut text = std::fs::read_to_string(&journal).unwrap();
    text.push_str("garbage\nmore garbage\n");
    std::fs::write(&journal, text).unwrap();
    daemon.start();
    assert!(matches!(daemon.outcome(task), Outcome::Lost { .. }));
    let known = daemon.records(task).into_iter().find_map(|r| match r.what {
        countersign_model::RecordContent::Decision(countersign_model::Decision::Lost { known }) => Some(known),
        _ => None,
    });
    assert!(known.unwrap().as_str().contains("journal.damaged"));
    assert_eq!(daemon.stdout(task), "out\n");
}

#[test]
fn a_stopped_shim_does_not_stop_the_house_and_is_found_when_it_goes_on() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo out; sleep 1000");
    daemon.wait_for_stdout(task, "out");
    let shim = daemon.client().task(&task.to_string()).unwrap().shim_pid().unwrap();
    let send = |signal| {
        let pid = rustix::process::Pid::from_raw(i32::try_from(shim).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    };
    send(rustix::process::Signal::STOP);
    daemon.kill_daemon();
    daemon.start();
    let other = daemon.ask("true");
    assert_eq!(daemon.outcome(other), Outcome::Exited { code: 0 });
    send(rustix::process::Signal::CONT);
    // It is tried every second; cancelling works as soon as it has been found.
    while daemon.client().cancel(task, None).is_err() {
        std::thread::yield_now();
    }
    assert!(matches!(daemon.outcome(task), Outcome::Cancelled { .. }));
}

/// Kills the daemon, then a shim, at moments that nobody chose.
fn random_crashes(rounds: u32) {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut state = seed | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let daemon = TestHome::new(CSN);
    daemon.start();
    let mut acknowledged = Vec::new();
    for round in 0..rounds {
        let delay = std::time::Duration::from_micros(random(6000));
        if round % 2 == 0 {
            let asks = std::thread::scope(|scope| {
                let asking = scope.spawn(|| risky_ask(&daemon, "full_auto"));
                // The moment is the point of this test, not a stand-in for an event.
                std::thread::sleep(delay);
                daemon.kill_daemon();
                asking.join().unwrap()
            });
            acknowledged.extend(asks.map(|s| s.task_id));
            daemon.start();
        } else {
            let asked = risky_ask(&daemon, "full_auto").unwrap();
            acknowledged.push(asked.task_id);
            std::thread::sleep(delay);
            if let Some(pid) = asked.shim_pid().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?))
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
    assert!(acknowledged.len() as u32 >= rounds / 2, "most asks were acknowledged");
    check(&daemon, &acknowledged);
}

#[test]
fn random_crashes_lose_nothing() {
    random_crashes(30);
}

#[test]
#[ignore = "slow: cargo xtask soak"]
fn two_hundred_random_crashes_lose_nothing() {
    random_crashes(200);
}
