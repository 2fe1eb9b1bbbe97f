//! `csn run` while the daemon dies: the command runs once, and `csn run` exits with its code.

use crate::{CSN, tree::kill};
use countersign_testkit::TestHome;
use std::process::{Child, Output};

/// Leaves a mark each time it runs, and exits with a code that nothing else here uses.
const COMMAND: &str = "echo ran >> marks; echo out; exit 7";

fn csn_run(daemon: &TestHome, more: &[&str]) -> Child {
    daemon.csn_spawn(&[&["run", "--profile", "full_auto"], more, &[COMMAND]].concat())
}

fn marks(daemon: &TestHome) -> usize {
    std::fs::read_to_string(daemon.work().join("marks")).unwrap_or_default().lines().count()
}

/// Checks a run, whatever happened to the daemon meanwhile.
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
        // The daemon that `csn run` starts then does not know the file.
        let run = csn_run(&daemon, &["--raw"]);
        daemon.daemon_ends();
        check(&daemon, run, 0, point);
    }
}

#[test]
fn a_run_with_a_terminal_survives_a_daemon_that_dies_before_it_starts() {
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

/// Kills the daemon at random moments while `csn run` runs.
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
        // The random moment is the point of this test; it replaces no event.
        std::thread::sleep(delay);
        kill(daemon_pid);
        check(&daemon, run, before, &format!("round {round}, after {delay:?}"));
        // The last kill may have come after the end of the run: start the next round with a daemon.
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
