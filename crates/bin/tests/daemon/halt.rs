//! Orderly shutdown: its steps as decisions, tasks kept or stopped, signals that shorten it, and steps that hang.

use crate::{
    CSN,
    receipts::{findings, statement},
    tree::gone,
};
use countersign_model::{
    DaemonState, Decision, Outcome, Record, RecordContent, ShutdownStep, Status, StopStep, TaskId,
};
use countersign_testkit::{RawCalls as _, TestHome};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
};

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// The decisions of the ledger about the daemon itself, in order.
fn daemon_decisions(daemon: &TestHome) -> Vec<Decision> {
    let conn = rusqlite::Connection::open(daemon.home().join("ledger.db")).unwrap();
    let mut all = conn.prepare("SELECT line FROM decisions WHERE task IS NULL ORDER BY n").unwrap();
    let lines = all.query_map([], |r| r.get::<_, String>(0)).unwrap().map(Result::unwrap);
    let decision = |line: String| match Record::parse(&line).unwrap().what {
        RecordContent::Decision(decision) => decision,
        other => panic!("{other:?}"),
    };
    lines.map(decision).collect()
}

/// The steps of the last shutdown.
fn steps(daemon: &TestHome) -> Vec<ShutdownStep> {
    let all = daemon_decisions(daemon);
    let began = all
        .iter()
        .rposition(|d| matches!(d, Decision::DaemonStateChanged { state: DaemonState::Draining, .. }))
        .unwrap();
    all[began..].iter().filter_map(|d| if let Decision::Shutdown(s) = d { Some(s.clone()) } else { None }).collect()
}

const STEP_ORDER: [StopStep; 6] =
    [StopStep::Admission, StopStep::Intakes, StopStep::Tasks, StopStep::Receipts, StopStep::Ledger, StopStep::Surfaces];

/// Every step in its order, each done, with the states around them.
fn assert_stopped_in_order(daemon: &TestHome) {
    let steps = steps(daemon);
    assert_eq!(steps.iter().map(|s| s.step).collect::<Vec<_>>(), STEP_ORDER);
    assert!(steps.iter().all(|s| s.done && s.took_ms <= s.deadline_ms), "{steps:?}");
    let states: Vec<DaemonState> = daemon_decisions(daemon)
        .iter()
        .filter_map(|d| if let Decision::DaemonStateChanged { state, .. } = d { Some(*state) } else { None })
        .collect();
    assert_eq!(states[states.len() - 3..], [DaemonState::Draining, DaemonState::Cleanup, DaemonState::Halted]);
}

/// Waits until the daemon reports this state.
fn wait_for_state(daemon: &TestHome, wanted: &str) -> Value {
    loop {
        if let Ok(bytes) = daemon.client().call("GET", "/lifecycle", &[], None) {
            let life: Value = serde_json::from_slice(&bytes).unwrap();
            if life["state"] == wanted {
                return life;
            }
        }
        std::thread::yield_now();
    }
}

/// Fifty tasks, every fifth of them on a terminal.
fn start_fifty_tasks(daemon: &TestHome, text: &str, with: &Value) -> Vec<TaskId> {
    let one = |n: usize| {
        let mut with = with.clone();
        if n.is_multiple_of(5) {
            with["execution_mode"] = json!("pty");
        }
        daemon.ask_with(text, with).task_id
    };
    let tasks: Vec<TaskId> = (0..50).map(one).collect();
    tasks.iter().for_each(|t| daemon.wait_for_stdout(*t, "began"));
    tasks
}

/// Processes that carry the marker of one of these tasks.
fn processes_of(tasks: &[TaskId]) -> Vec<u32> {
    let markers: Vec<String> = tasks.iter().map(|t| format!("COUNTERSIGN_TASK={t}")).collect();
    let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let carries = |pid: &u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|b| *b == 0).any(|var| markers.iter().any(|m| m.as_bytes() == var))
    };
    all.filter(carries).collect()
}

#[test]
fn f186_with_keep_every_task_keeps_running_and_is_adopted() {
    let daemon = TestHome::started(CSN);
    let tasks = start_fifty_tasks(&daemon, "echo began; until [ -e go ]; do sleep 0.1; done; echo over", &json!({}));
    signal(daemon.daemon_pid(), Signal::TERM);
    daemon.daemon_ends();
    assert_stopped_in_order(&daemon);
    assert_eq!(steps(&daemon)[2].says.as_ref().unwrap().as_str(), "50 tasks kept running");
    daemon.start();
    for task in &tasks {
        assert_eq!(daemon.client().task(&task.to_string()).unwrap().status, Status::Running);
    }
    std::fs::write(daemon.work().join("go"), "").unwrap();
    for task in &tasks {
        assert_eq!(daemon.outcome(*task), Outcome::Exited { code: 0 });
        daemon.sealed(*task);
    }
    assert_eq!(findings(&daemon, &[]), [""; 0]);
}

#[test]
fn f186_f187_with_stop_the_steps_run_in_order_and_no_process_is_left() {
    let daemon = TestHome::new(CSN);
    daemon.configure("[shutdown]\ntasks = \"stop\"\n");
    daemon.start();
    // Some ignore signals, and some have moved children out of their group and session (F187).
    let text = "(setsid sleep 1002 &); trap '' TERM HUP; echo began; while :; do sleep 1; done";
    let tasks = start_fifty_tasks(&daemon, text, &json!({"limits": {"grace_ms": 200}}));
    // A task that waits for a person keeps waiting.
    let waits = daemon.ask_with("touch x", json!({"profile": "safe"}));
    signal(daemon.daemon_pid(), Signal::TERM);
    daemon.daemon_ends();
    assert_stopped_in_order(&daemon);
    assert_eq!(steps(&daemon)[2].says.as_ref().unwrap().as_str(), "50 tasks stopped");
    assert_eq!(processes_of(&tasks), [0; 0]);
    // Every task has its receipt, without a later daemon.
    let out = daemon.csn(&["verify", "--json"]);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((report["ok"].as_bool(), report["receipts"].as_u64()), (Some(true), Some(50)), "{report}");
    daemon.start();
    let r = statement(&daemon, tasks[0]).predicate;
    assert!(matches!(r.outcome, Outcome::Cancelled { .. }), "{:?}", r.outcome);
    let execution = r.execution.unwrap();
    assert_eq!(json!(execution.killed[0].why), "shutdown");
    assert!(execution.cleanup.unwrap().survivors.is_empty());
    assert_eq!(daemon.client().task(&waits.task_id.to_string()).unwrap().status, Status::Queued);
}

#[test]
fn a_second_signal_shortens_the_deadlines_and_a_third_ends_immediately() {
    let daemon = TestHome::new(CSN);
    daemon.configure("[shutdown]\ntasks = \"stop\"\n");
    daemon.start();
    let deaf = "trap '' TERM HUP; echo began; while :; do sleep 1; done";
    let task = daemon.ask_with(deaf, json!({"limits": {"grace_ms": 600_000}})).task_id;
    daemon.wait_for_stdout(task, "began");
    let pid = daemon.daemon_pid();
    signal(pid, Signal::TERM);
    wait_for_state(&daemon, "draining");
    signal(pid, Signal::TERM);
    daemon.daemon_ends();
    let went = steps(&daemon);
    assert_eq!(
        went.iter().map(|s| s.step).collect::<Vec<_>>(),
        STEP_ORDER,
        "a step that hangs does not block the others"
    );
    assert!(!went[2].done && went[2].took_ms < went[2].deadline_ms, "{:?}", went[2]);
    assert!(went.iter().filter(|s| s.step != StopStep::Tasks).all(|s| s.done), "{went:?}");
    // The next daemon finds what this one could not wait for.
    daemon.start();
    assert_eq!(daemon.client().task(&task.to_string()).unwrap().status, Status::Running);
    let pid = daemon.daemon_pid();
    signal(pid, Signal::TERM);
    wait_for_state(&daemon, "draining");
    signal(pid, Signal::TERM);
    signal(pid, Signal::INT);
    daemon.daemon_ends();
    daemon.start();
    daemon.client().signal(task, countersign_model::SignalName::KILL).unwrap();
    daemon.sealed(task);
    assert_eq!(findings(&daemon, &[]), [""; 0]);
}

#[test]
fn a_daemon_that_hangs_does_not_hang_csn_run() {
    let daemon = TestHome::started(CSN);
    signal(daemon.daemon_pid(), Signal::STOP);
    let run = daemon.csn(&["run", "true"]);
    signal(daemon.daemon_pid(), Signal::CONT);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success() && said.contains("the daemon does not answer; see: csn doctor"), "{said}");
}

#[test]
fn a_supervisor_that_does_not_answer_is_ended_with_its_task() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("(setsid sleep 1003 &); echo began; while :; do sleep 1; done");
    daemon.wait_for_stdout(task, "began");
    let shim = daemon.client().task(&task.to_string()).unwrap().shim_pid().unwrap();
    signal(shim, Signal::STOP);
    let out = daemon.csn(&["down", "--stop-tasks"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    daemon.daemon_ends();
    assert_stopped_in_order(&daemon);
    assert!(steps(&daemon)[2].says.as_ref().unwrap().as_str().contains("was killed"));
    gone(shim);
    assert_eq!(processes_of(&[task]), [0; 0]);
    daemon.start();
    assert!(matches!(statement(&daemon, task).predicate.outcome, Outcome::Lost { .. }));
}

#[test]
fn a_request_that_arrives_during_shutdown_is_refused() {
    let daemon = TestHome::started(CSN);
    let deaf = "trap '' TERM HUP; echo began; while :; do sleep 1; done";
    let task = daemon.ask_with(deaf, json!({"limits": {"grace_ms": 1500}})).task_id;
    daemon.wait_for_stdout(task, "began");
    let body = serde_json::to_vec(&daemon.request("touch late", json!({}))).unwrap();
    let mut socket = UnixStream::connect(daemon.home().join("run/csn.sock")).unwrap();
    let head =
        format!("POST /tasks HTTP/1.1\r\nHost: csn\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    socket.write_all(head.as_bytes()).unwrap();
    // The daemon has read it once it has answered a later request.
    daemon.client().lifecycle().unwrap();
    let down = daemon.csn_spawn(&["down", "--stop-tasks"]);
    wait_for_state(&daemon, "draining");
    socket.write_all(&body).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.to_lowercase().contains("retry-after"), "{answer}");
    assert!(down.wait_with_output().unwrap().status.success());
    daemon.daemon_ends();
    assert_stopped_in_order(&daemon);
    assert!(!daemon.work().join("late").exists());
}

#[test]
fn a_reader_of_the_ledger_does_not_delay_shutdown() {
    let daemon = TestHome::started(CSN);
    daemon.sealed(daemon.ask("echo one"));
    let conn = rusqlite::Connection::open(daemon.home().join("ledger.db")).unwrap();
    conn.execute_batch("BEGIN; SELECT count(*) FROM decisions;").unwrap();
    let out = daemon.csn(&["down"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    daemon.daemon_ends();
    drop(conn);
    assert_stopped_in_order(&daemon);
}

#[test]
fn a_daemon_stopped_during_startup_stops_in_order() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo began; while :; do sleep 1; done");
    daemon.wait_for_stdout(task, "began");
    let shim = daemon.client().task(&task.to_string()).unwrap().shim_pid().unwrap();
    daemon.kill_daemon();
    // A supervisor that does not answer keeps the next daemon searching for it.
    signal(shim, Signal::STOP);
    let mut up = daemon.csn_spawn(&["up", "--tcp", "127.0.0.1:0"]);
    let life = wait_for_state(&daemon, "recovering");
    let ready = daemon.client().call("GET", "/readyz", &[], None).unwrap_err();
    assert!(format!("{ready:?}").contains("recovery: not done yet"), "{ready:?}");
    signal(u32::try_from(life["pid"].as_u64().unwrap()).unwrap(), Signal::TERM);
    assert!(up.wait().unwrap().success());
    assert_stopped_in_order(&daemon);
    signal(shim, Signal::CONT);
    daemon.start();
    assert_eq!(daemon.client().task(&task.to_string()).unwrap().status, Status::Running);
}

#[test]
fn the_service_manager_gets_state_and_watchdog_messages() {
    let daemon = TestHome::new(CSN);
    let socket = daemon.work().join("notify");
    let told = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    let pid =
        daemon.try_start_with(&[("NOTIFY_SOCKET", socket.to_str().unwrap()), ("WATCHDOG_USEC", "400000")]).unwrap();
    let mut all = String::new();
    let mut hear = |wanted: &str| {
        let mut buf = [0; 4096];
        while !all.contains(wanted) {
            let n = told.recv(&mut buf).unwrap();
            all += &format!("{}\n", String::from_utf8_lossy(&buf[..n]));
        }
    };
    hear("STATUS=recovering");
    hear("READY=1");
    hear("WATCHDOG=1");
    signal(pid, Signal::TERM);
    hear("STOPPING=1");
    hear("STATUS=halted");
    daemon.daemon_ends();
    assert_stopped_in_order(&daemon);
}

#[test]
fn systemd_accepts_the_units() {
    let daemon = TestHome::new(CSN);
    for system in [&[][..], &["--system"]] {
        let out = daemon.csn(&[&["service", "install", "--print"], system].concat());
        assert!(out.status.success());
        let text = String::from_utf8(out.stdout).unwrap();
        for line in ["Type=notify", "KillMode=process", "WatchdogSec=30"] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        // The user that it names is created when it is installed.
        let text = text.replace("User=countersign", "User=root").replace("Group=countersign", "Group=root");
        let (unit, halt) = text.split_once("# countersign-halt.service\n").unwrap();
        let at = |name: &str| daemon.work().join(name).display().to_string();
        let (one, two) = (at("countersign.service"), at("countersign-halt.service"));
        std::fs::write(&one, unit).unwrap();
        std::fs::write(&two, halt).unwrap();
        let checked = daemon.outside(&["systemd-analyze", "verify", "--man=no", &one, &two]);
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success() && !said.contains("countersign"), "{said}");
    }
    // Written into the user's unit directory; files of others are not touched.
    let out = daemon.csn(&["service", "install"]);
    let unit = daemon.base().join("config/systemd/user/countersign.service");
    let text =
        std::fs::read_to_string(&unit).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)));
    assert!(text.contains(&format!("COUNTERSIGN_HOME={}", daemon.home().display())), "{text}");
    assert!(daemon.csn(&["service", "uninstall"]).status.success() && !unit.exists());
    std::fs::write(&unit, "[Service]\nExecStart=/bin/true\n").unwrap();
    for args in [["service", "install"], ["service", "uninstall"]] {
        let out = daemon.csn(&args);
        assert!(
            !out.status.success() && String::from_utf8_lossy(&out.stderr).contains("was not written by csn"),
            "{args:?}"
        );
    }
    assert!(unit.exists() && !unit.with_file_name("countersign-halt.service").exists(), "all of it, or nothing");
    assert_eq!(daemon.csn(&["service", "status"]).status.code(), Some(1));
    // A program that others can change does not become the system service.
    let bin = daemon.base().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for name in ["csn", "csn-shim"] {
        std::fs::copy(std::path::Path::new(CSN).with_file_name(name), bin.join(name)).unwrap();
    }
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&bin, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = daemon.outside(&[bin.join("csn").to_str().unwrap(), "service", "install", "--system"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let why = if rustix::process::geteuid().is_root() { "others than root can change" } else { "only root" };
    assert!(!refused.status.success() && said.contains(why), "{said}");
}
