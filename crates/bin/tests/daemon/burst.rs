//! A burst of processes from a read-only task: its supervisor counts them, and the kernel limits them for users other
//! than root.

use crate::CSN;
use countersign_model::{LimitReached, Outcome};
use countersign_testkit::TestHome;
use serde_json::{Value, json};

/// A user that no one has; only root can switch to it.
const USER: u32 = 61_236;
/// How many processes the kernel leaves the user beyond those that run on the machine.
const EXTRA_PROCESSES: u64 = 384;

fn threads() -> u64 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    load.split(['/', ' ']).nth(4).unwrap().parse().unwrap()
}

#[test]
fn the_kernel_bounds_the_processes_of_a_read_only_task_and_of_no_other() {
    let daemon = TestHome::started(CSN);
    let limit = |task| {
        assert_eq!(daemon.outcome(task), Outcome::Exited { code: 0 });
        daemon.stdout(task).trim().parse::<u64>().unwrap_or(u64::MAX)
    };
    let most = limit(daemon.ask_with("ulimit -Hu", json!({"profile": "safe"})).task_id);
    // Other processes start and end meanwhile, so the limit is only near the number on the machine now.
    let now = threads();
    assert!(most <= now + EXTRA_PROCESSES + 500, "{most} with {now} threads on the machine");
    let own = String::from_utf8(daemon.outside(&["bash", "-c", "ulimit -Hu"]).stdout).unwrap();
    let own = own.trim().parse::<u64>().unwrap_or(u64::MAX);
    assert_eq!(limit(daemon.ask_open("ulimit -Hu", json!({}))), own, "a task without a sandbox keeps its limit");
}

#[test]
fn a_burst_of_processes_is_stopped() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be another user");
        return;
    }
    let daemon = TestHome::for_user(CSN, USER);
    daemon.start();
    let burst = "for i in $(seq 1 3000); do sleep 60 & done; wait";
    let ran = daemon.csn(&["run", burst]);
    assert!(!ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let listed = daemon.csn(&["ps", "-a", "--json"]);
    let state: Value = serde_json::from_slice(listed.stdout.split(|b| *b == b'\n').next().unwrap()).unwrap();
    let outcome: Outcome = serde_json::from_value(state["outcome"].clone()).unwrap();
    assert_eq!(outcome, Outcome::Limited { limit: LimitReached::Processes });
    assert_eq!(countersign_testkit::processes_with("sleep 60").iter().filter(|pid| runs_as_user(**pid)).count(), 0);
}

fn runs_as_user(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|l| l.starts_with("Uid:") && l.contains(&USER.to_string()))
}
