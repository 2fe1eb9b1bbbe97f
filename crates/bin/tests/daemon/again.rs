//! `csn run` and a daemon that dies under it: the command runs once, and its exit code comes back.

use crate::{CSN, tree::kill};
use countersign_testkit::TestHome;
use std::process::{Child, Output};

/// Leaves a mark for every time that it runs, and ends with a code that nothing else here ends with.
const COMMAND: &str = "echo ran >> marks; echo out; exit 7";

fn csn_run(daemon: &TestHome, more: &[&str]) -> Child {
    daemon.csn_spawn(&[&["run", "--profile", "full_auto"], more, &[COMMAND]].concat())
}

fn marks(daemon: &TestHome) -> usize {
    std::fs::read_to_string(daemon.work().join("marks")).unwrap_or_default().lines().count()
}

/// What must hold of a run, whatever became of the daemon meanwhile.
fn check(daemon: &TestHome, run: Child, before: usize, moment: &str) {
    let Output { status, stdout, stderr } = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(7), "{moment}: {said}");
    assert_eq!(String::from_utf8_lossy(&stdout), "out\n", "{moment}: its output comes once; {said}");
    assert_eq!(marks(daemon) - before, 1, "{moment}: it ran once; {said}");
}

#[test]
fn a_run_survives_the_daemon_at_every_named_point() {
    for point in ["ledger.before_commit", "ledger.after_commit", "commit.before_hand_over", "commit.after_hand_over"] {
        let daemon = TestHome::new(CSN);
        let file = daemon.work().join("crash-at");
        let daemon = daemon.with_env("COUNTERSIGN_CRASH_FILE", file.to_str().unwrap());
        daemon.start();
        std::fs::write(&file, point).unwrap();
        // The daemon that `csn run` starts then knows nothing of the file.
        let run = csn_run(&daemon, &["--raw"]);
        daemon.daemon_ends();
        check(&daemon, run, 0, point);
    }
}

#[test]
fn a_terminal_of_a_run_survives_the_daemon_that_dies_before_it_begins() {
    let daemon = TestHome::new(CSN);
    let file = daemon.work().join("crash-at");
    let daemon = daemon.with_env("COUNTERSIGN_CRASH_FILE", file.to_str().unwrap());
    daemon.start();
    std::fs::write(&file, "commit.before_hand_over").unwrap();
    let run = csn_run(&daemon, &["--pty", "--quiet"]);
    daemon.daemon_ends();
    let ended = run.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), marks(&daemon)), (Some(7), 1), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Kills the daemon at moments that nobody chose, while `csn run` runs.
fn random_kills(rounds: u32) {
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
    assert_eq!(daemon.csn(&["run", "true"]).status.code(), Some(0), "it starts a daemon");
    for round in 0..rounds {
        let (before, daemon_pid) = (marks(&daemon), daemon.client().lifecycle().unwrap().pid);
        let run = csn_run(&daemon, &[]);
        let delay = std::time::Duration::from_micros(random(60_000));
        // The moment is the point of this test, not a stand-in for an event.
        std::thread::sleep(delay);
        kill(daemon_pid);
        check(&daemon, run, before, &format!("round {round}, after {delay:?}"));
        // The last kill may have come after its end: the next round begins with a daemon.
        assert_eq!(daemon.csn(&["run", "true"]).status.code(), Some(0));
    }
}

#[test]
fn a_run_survives_the_daemon_at_any_moment() {
    random_kills(20);
}

#[test]
#[ignore = "slow: cargo xtask soak"]
fn a_thousand_runs_survive_their_daemon() {
    random_kills(1000);
}
