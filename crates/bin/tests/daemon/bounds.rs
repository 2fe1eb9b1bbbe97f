//! Bounds: output, frames, the line for slots, retention, publishing.

use crate::{CSN, stream::get};
use countersign_client::ClientError;
use countersign_model::{
    Decision, Frame, LimitReached, Outcome, Record, RecordContent, RefusalCode, Status, StreamName, TaskId,
    TaskRefusal, TaskState, WaitsFor,
};
use countersign_testkit::{MemoryUse, RawCalls as _, TestHome, body};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::os::unix::fs::PermissionsExt as _;

const KEPT: u64 = 100_000;
const TAIL: u64 = 1024 * 1024;

fn numbers(n: u64) -> Vec<u8> {
    (1..=n).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

fn limit_frames(daemon: &TestHome, task: TaskId) -> Vec<Frame> {
    let of = |r: Record| match r.what {
        RecordContent::Frame(f @ (Frame::LimitReached { .. } | Frame::Gap { .. })) => Some(f),
        _ => None,
    };
    daemon.records(task).into_iter().filter_map(of).collect()
}

fn api(daemon: &TestHome, path: &str) -> Result<Value, RefusalCode> {
    get(daemon, path).map_err(|r| r.code)
}

#[test]
fn beyond_the_limit_the_beginning_and_the_end_are_kept_and_the_gap_is_exact() {
    let daemon = TestHome::started(CSN);
    for mode in ["pipes", "pty"] {
        let stream = if mode == "pty" { StreamName::Pty } else { StreamName::Stdout };
        let with = json!({"execution_mode": mode, "limits": {"output_bytes": KEPT}});
        let task = daemon.ask_with("stty -onlcr 2>/dev/null; seq 1 500000", with).task_id;
        let state = daemon.settled(task);
        assert_eq!(state.outcome(), Some(&Outcome::Exited { code: 0 }), "it is not killed");
        let all = numbers(500_000);
        let total = all.len() as u64;
        let dropped = total - KEPT - TAIL;
        assert_eq!((state.io.streams[&stream].bytes, state.io.streams[&stream].dropped), (total, dropped));
        let frames = limit_frames(&daemon, task);
        assert_eq!(frames.last(), Some(&Frame::Gap { stream, offset: KEPT, bytes: dropped }), "{frames:?}");
        assert!(matches!(&frames[0], Frame::LimitReached { limit, value: KEPT, .. } if limit.as_str() == "output"));
        let file = std::fs::read(daemon.task_dir(task).join(stream.file())).unwrap();
        let kept = [&all[..KEPT as usize], &all[(total - TAIL) as usize..]].concat();
        assert!(file == kept, "the file holds what was kept, and nothing else");
        let sha: [u8; 32] = Sha256::digest(&file).into();
        assert_eq!(state.io.streams[&stream].sha256.unwrap().as_bytes(), &sha, "as sha256sum would say");

        let read = |offset: u64, max: u64| daemon.client().output(task, stream, offset, max);
        assert_eq!(read(KEPT - 10, 100).unwrap(), &all[KEPT as usize - 10..KEPT as usize], "up to the gap");
        assert_eq!(read(total - 50, 100).unwrap(), &all[(total - 50) as usize..], "true offsets behind it");
        let Err(ClientError::Refused(TaskRefusal { refusal, .. })) = read(KEPT + 5, 10) else {
            panic!("a range inside the gap")
        };
        assert_eq!((refusal.code.http_status(), refusal.message.contains("dropped")), (416, true));
        let page = get(&daemon, &format!("/tasks/{task}/output?stream={stream}&offset_bytes={}", KEPT - 3)).unwrap();
        assert_eq!(page["next_offset"].as_u64(), Some(KEPT + dropped), "who goes on goes on behind it");
        assert_eq!(page["gap"]["bytes"].as_u64(), Some(dropped));
        let last = get(&daemon, &format!("/tasks/{task}/output?stream={stream}&tail_lines=1")).unwrap();
        assert_eq!(last["content"], "500000\n");
        let search = |pattern: &str| get(&daemon, &format!("/tasks/{task}/search?pattern={pattern}")).unwrap();
        assert_eq!(
            search("499999")["matches"][0]["line"],
            Value::Null,
            "nobody knows the number of a line behind a gap"
        );
        assert_eq!(search("499999")["matches"][0]["offset_bytes"].as_u64(), Some(total - 14));
        assert_eq!(search("12345")["matches"][0]["line"], 12345);
        let logs = daemon.csn(&["logs", &task.to_string(), "--stream", stream.as_str()]);
        assert!(logs.stdout == kept && String::from_utf8_lossy(&logs.stderr).contains("were not kept"));
        let whole = daemon.client().call(
            "GET",
            &format!("/tasks/{task}/output?stream={stream}"),
            &[("accept", "application/octet-stream")],
            None,
        );
        assert!(whole.unwrap() == kept, "everything is everything that was kept");
        daemon.records(task);
    }
}

#[test]
#[ignore = "slow: cargo xtask soak"]
fn ten_gigabytes_keep_their_ends_and_memory_stays_flat() {
    let daemon = TestHome::started(CSN);
    let text = "yes 0123456789abcdef | head -c 10737418240; printf 'the end\\n'; until [ -e go ]; do sleep 0.05; done";
    let memory_before = MemoryUse::of_process(daemon.daemon_pid());
    let task = daemon.ask(text);
    let shim = daemon.client().task(&task.to_string()).unwrap().shim_pid().unwrap();
    let at_first = MemoryUse::of_process(shim);
    daemon.frame(task, |f| matches!(f, Frame::LimitReached { .. }));
    // Ten times as much as is kept goes by; what the child has written is all that tells when.
    let pid = daemon.client().task(&task.to_string()).unwrap().pid().unwrap();
    let still = || countersign_testkit::processes_with("head -c 10737418240").iter().any(|p| *p != pid);
    wait_for(|| !still());
    let peak = MemoryUse::own_peak(shim, at_first);
    std::fs::write(daemon.work().join("go"), "").unwrap();
    let state = daemon.settled(task);
    let (total, kept) = (10_737_418_240 + 8, 1 << 30);
    let stdout = state.io.streams[&StreamName::Stdout];
    assert_eq!((stdout.bytes, stdout.dropped), (total, total - kept - TAIL));
    let client = daemon.client();
    let byte = |offset: u64| b"0123456789abcdef\n"[(offset % 17) as usize];
    for offset in [0, kept - 1000, total - TAIL] {
        let bytes = client.output(task, StreamName::Stdout, offset, 1000).unwrap();
        assert!(bytes.iter().zip(offset..).all(|(b, at)| *b == byte(at)), "bytes from {offset} on");
    }
    let end = client.output(task, StreamName::Stdout, total - 8, 100).unwrap();
    assert_eq!(end, b"the end\n");
    let file = daemon.task_dir(task).join("stdout.log");
    assert_eq!(std::fs::metadata(file).unwrap().len(), kept + TAIL);
    assert!(peak < 32 * 1024, "the shim's peak was {peak} KiB of its own");
    let daemon_peak = MemoryUse::own_peak(daemon.daemon_pid(), memory_before);
    assert!(daemon_peak < 32 * 1024, "the daemon's peak was {daemon_peak} KiB of its own");
}

#[test]
fn what_ends_soon_after_the_limit_has_no_gap() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask_with("seq 1 50000", json!({"limits": {"output_bytes": KEPT}})).task_id;
    let state = daemon.settled(task);
    assert_eq!(daemon.output(task, StreamName::Stdout), numbers(50_000));
    assert_eq!(state.io.streams[&StreamName::Stdout].dropped, 0);
    assert_eq!(limit_frames(&daemon, task).len(), 1, "the limit, and no gap");
}

#[test]
fn a_task_may_be_stopped_at_its_limits() {
    let daemon = TestHome::started(CSN);
    let with = json!({"limits": {"output_bytes": 5000, "grace_ms": 100}, "on_output_limit": "kill"});
    let task = daemon.ask_with("yes", with).task_id;
    assert_eq!(daemon.outcome(task), Outcome::Limited { limit: LimitReached::Output });
    assert_eq!(daemon.csn(&["wait", &task.to_string()]).status.code(), Some(124));
    let task = daemon.ask_with("while :; do echo x; sleep 0.021; done", json!({"limits": {"frames": 20}})).task_id;
    assert_eq!(daemon.outcome(task), Outcome::Limited { limit: LimitReached::Frames });
    assert!(daemon.settled(task).next_seq < 40);
}

#[test]
fn the_answer_says_which_limits_apply_and_ceilings_hold() {
    let daemon = TestHome::new(CSN);
    daemon.configure("[limits]\noutput_bytes = 5000\nframes = 1000\nwall_ms = 60000\n");
    daemon.start();
    let state = daemon.ask_with("true", json!({}));
    assert_eq!(
        (state.request.limits.output_bytes, state.request.limits.frames, state.request.limits.wall_ms),
        (Some(5000), Some(1000), Some(60000))
    );
    for limits in [json!({"output_bytes": 5001}), json!({"frames": 1001}), json!({"wall_ms": 60001})] {
        let (refusal, _) = daemon.refused("true", json!({"limits": limits}));
        assert!(refusal.code == RefusalCode::BadRequest && refusal.message.contains("the most that this house allows"));
    }
}

/// A house with room for `running` tasks at once.
fn small(running: u64, more: &str) -> TestHome {
    let daemon = TestHome::new(CSN);
    daemon.configure(&format!("[limits]\nrunning = {running}\n{more}"));
    daemon.start();
    daemon
}

fn position(daemon: &TestHome, task: TaskId) -> Option<u64> {
    daemon.client().task(&task.to_string()).unwrap().position()
}

/// Ends a task that reads a line.
fn let_go(daemon: &TestHome, task: TaskId) {
    daemon.client().stdin(task, &body(json!({"text": "\n"}))).unwrap();
    daemon.settled(task);
}

fn wait_running(daemon: &TestHome, task: TaskId) {
    daemon.frame(task, |f| matches!(f, Frame::Spawned { .. }));
}

const READS: &str = "read x";

fn reads(daemon: &TestHome) -> TaskState {
    daemon.ask_with(READS, json!({"args": {"stdin": true}}))
}

#[test]
fn f170_tasks_beyond_the_caps_wait_in_line_and_go_in_order() {
    let daemon = small(2, "");
    let running: Vec<TaskId> = (0..2).map(|_| reads(&daemon).task_id).collect();
    let line: Vec<TaskState> = (0..5).map(|_| reads(&daemon)).collect();
    for (n, task) in (1..).zip(&line) {
        assert_eq!((task.status, task.waits_for(), task.position()), (Status::Queued, Some(WaitsFor::Slot), Some(n)));
        assert_eq!(position(&daemon, task.task_id), Some(n));
    }
    let line: Vec<TaskId> = line.iter().map(|t| t.task_id).collect();
    let ps = String::from_utf8(daemon.csn(&["ps"]).stdout).unwrap();
    assert!(ps.contains("3. in line"), "{ps}");
    let_go(&daemon, running[0]);
    wait_running(&daemon, line[0]);
    assert_eq!(position(&daemon, line[1]), Some(1), "the others move up");
    // F151: cancelled while it waits, it never runs.
    daemon.client().cancel(line[2], None).unwrap();
    assert!(matches!(daemon.outcome(line[2]), Outcome::Withdrawn { .. }));
    assert!(!daemon.task_dir(line[2]).exists() && position(&daemon, line[3]) == Some(2));
    // The line outlives the daemon.
    daemon.kill_daemon();
    daemon.start();
    assert_eq!(
        (position(&daemon, line[1]), position(&daemon, line[3]), position(&daemon, line[4])),
        (Some(1), Some(2), Some(3))
    );
    for (ends, goes) in [(running[1], line[1]), (line[0], line[3]), (line[1], line[4])] {
        let_go(&daemon, ends);
        wait_running(&daemon, goes);
    }
    for task in [line[3], line[4]] {
        let_go(&daemon, task);
    }
    assert_eq!(std::fs::read_dir(daemon.home().join("waiting")).unwrap().count(), 0, "no request is left behind");
    let kinds = |task| -> Vec<String> {
        let of = |r: Record| match r.what {
            RecordContent::Decision(Decision::Touched(_) | Decision::Sealed(_)) => None,
            RecordContent::Decision(d) => serde_json::to_value(d).unwrap()["kind"].as_str().map(str::to_owned),
            _ => None,
        };
        daemon.records(task).into_iter().filter_map(of).collect()
    };
    assert_eq!(
        kinds(line[4]),
        ["command.planned", "permission.granted", "task.queued", "task.launched", "task.settled"]
    );
}

#[test]
fn caps_of_sessions_and_principals_hold() {
    let daemon = small(50, "running_per_session = 2\nrunning_per_principal = 5\n");
    let sessions = [0, 1].map(|_| daemon.client().open_session(&body(json!({}))).unwrap().id);
    let ask = |n: usize| daemon.ask_with(READS, json!({"session_id": sessions[n], "args": {"stdin": true}}));
    let first: Vec<_> = (0..4).map(|_| ask(0)).collect();
    assert_eq!(
        first.iter().map(|t| t.status).collect::<Vec<_>>(),
        [Status::Running, Status::Running, Status::Queued, Status::Queued]
    );
    let second: Vec<_> = (0..2).map(|_| ask(1)).collect();
    assert!(second.iter().all(|t| t.status == Status::Running), "another session is not held up");
    let free = reads(&daemon);
    assert_eq!(free.status, Status::Running);
    assert_eq!(reads(&daemon).status, Status::Queued, "five of one principal");
    let_go(&daemon, second[0].task_id);
    // Two of the first session run still: the first in line that may go is the one without a session.
    let running = daemon.client().tasks(&body(json!({"status": "running"}))).unwrap().tasks;
    assert!(running.iter().filter(|t| t.request.session_id == first[0].request.session_id).count() == 2);
    let_go(&daemon, first[0].task_id);
    wait_running(&daemon, first[2].task_id);
    assert_eq!(daemon.client().task(&first[3].task_id.to_string()).unwrap().status, Status::Queued);
}

#[test]
fn what_changed_while_it_stood_in_line_does_not_run() {
    let daemon = small(1, "");
    let first = reads(&daemon).task_id;
    let dir = daemon.work().join("there");
    std::fs::create_dir_all(&dir).unwrap();
    let task = daemon.ask_with("touch ran", json!({"args": {"cwd": dir}})).task_id;
    // Kept under another name, so that the new one cannot be given its number.
    std::fs::rename(&dir, daemon.work().join("elsewhere")).unwrap();
    std::fs::create_dir(&dir).unwrap();
    let_go(&daemon, first);
    assert!(matches!(daemon.outcome(task), Outcome::Denied { .. }));
    assert!(!dir.join("ran").exists());
}

#[test]
fn an_approved_task_waits_in_line_too_and_can_be_withdrawn_there() {
    let daemon = small(1, "");
    let first = reads(&daemon).task_id;
    let asked = daemon.ask_with("touch ran", json!({"profile": "safe"}));
    let approval = daemon.client().approval(&asked.approval_id().unwrap().to_string()).unwrap();
    daemon.client().answer(approval.id, countersign_model::Choice::Once, None).unwrap();
    let state = daemon.client().task(&asked.task_id.to_string()).unwrap();
    assert_eq!((state.waits_for(), state.position()), (Some(WaitsFor::Slot), Some(1)));
    assert!(daemon.client().approvals(false).unwrap().is_empty(), "it waits for nobody's answer any more");
    daemon.kill_daemon();
    daemon.start();
    let_go(&daemon, first);
    assert_eq!(daemon.outcome(asked.task_id), Outcome::Exited { code: 0 });
    assert!(daemon.work().join("ran").exists());
}

/// 500 in line, with cancels and kills of the daemon among them: each runs once or was withdrawn, in order.
#[test]
fn a_long_line_loses_nobody() {
    let daemon = small(4, "running_per_principal = 100\n");
    let gate = daemon.work().join("gate");
    let text = "while ! test -e gate; do sleep 0.05; done; echo $N >> ran";
    let ask = |n: usize| daemon.ask_with(text, json!({"args": {"env": {"N": n.to_string()}}}));
    let tasks: Vec<TaskState> = (0..500).map(ask).collect();
    let ids: Vec<TaskId> = tasks.iter().map(|t| t.task_id).collect();
    assert_eq!(tasks.iter().filter(|t| t.status == Status::Queued).count(), 496);
    assert_eq!(tasks.last().unwrap().position(), Some(496));
    let cancelled: Vec<usize> = (10..500).step_by(7).collect();
    for n in &cancelled {
        daemon.client().cancel(ids[*n], None).unwrap();
    }
    daemon.kill_daemon();
    daemon.start();
    let left: Vec<usize> = (4..500).filter(|n| !cancelled.contains(n)).collect();
    for (at, n) in (1u64..).zip(&left) {
        if at % 50 == 1 {
            assert_eq!(position(&daemon, ids[*n]), Some(at));
        }
    }
    std::fs::write(&gate, "").unwrap();
    for kill in 0..3 {
        daemon.settled(ids[left[(kill + 1) * 60]]);
        daemon.kill_daemon();
        daemon.start();
    }
    let mut ran_expected = Vec::new();
    for (n, id) in ids.iter().enumerate() {
        match (cancelled.contains(&n), daemon.outcome(*id)) {
            (true, Outcome::Withdrawn { .. }) => {}
            (false, Outcome::Exited { code: 0 }) => ran_expected.push(n),
            // The daemon was killed between the decision and the hand-over: it says so, and runs nothing twice.
            (false, Outcome::Failed { code: 125, .. }) => {}
            other => panic!("{n}: {other:?}"),
        }
    }
    assert!(ran_expected.len() + 3 * 4 >= 500 - cancelled.len(), "at most what was on its way at a kill");
    let ran = std::fs::read_to_string(daemon.work().join("ran")).unwrap();
    let mut order: Vec<usize> = ran.lines().map(|l| l.parse().unwrap()).collect();
    let launched: Vec<_> = (0..500).filter(|n| !cancelled.contains(n)).map(|n| launched_at(&daemon, ids[n])).collect();
    assert!(launched.is_sorted(), "first come, first served");
    order.sort_unstable();
    assert_eq!(order, ran_expected, "each once");
}

fn launched_at(daemon: &TestHome, task: TaskId) -> countersign_model::Timestamp {
    daemon.client().task(&task.to_string()).unwrap().launched_at().unwrap()
}

fn gc(daemon: &TestHome, wish: Value) -> Value {
    json!(daemon.client().gc(&body(wish)).unwrap())
}

#[test]
fn retention_removes_what_was_written_and_keeps_what_was_decided() {
    let daemon = TestHome::started(CSN);
    let old = daemon.ask("seq 1 10000");
    let before = daemon.settled(old);
    let running = reads(&daemon).task_id;
    let new = daemon.ask("echo new");
    daemon.settled(new);
    let dry = gc(&daemon, json!({"keep_bytes": 5000, "dry_run": true}));
    assert_eq!(dry["removed"][0]["task_id"], old.to_string());
    assert!(daemon.task_dir(old).exists(), "a dry run removes nothing");
    let done = gc(&daemon, json!({"keep_bytes": 5000}));
    assert_eq!((done["removed"].as_array().unwrap().len(), done["kept_tasks"].as_u64()), (1, Some(2)));
    assert!(!daemon.task_dir(old).exists() && daemon.task_dir(new).exists() && daemon.task_dir(running).exists());
    let after = daemon.settled(old);
    assert!(after.expired_at.is_some() && after.outcome() == before.outcome());
    assert_eq!(
        after.io.streams[&StreamName::Stdout].sha256,
        before.io.streams[&StreamName::Stdout].sha256,
        "digests stay"
    );
    assert_eq!(after.io.streams[&StreamName::Stdout].bytes, before.io.streams[&StreamName::Stdout].bytes);
    for how in [vec!["logs"], vec!["logs", "--since", "1h"], vec!["logs", "-f"], vec!["replay"], vec!["attach"]] {
        let said = daemon.csn(&[&how[..1], &[&*old.to_string()], &how[1..]].concat());
        assert!(!said.status.success() && String::from_utf8_lossy(&said.stderr).contains("was removed"), "{how:?}");
    }
    for path in ["output", "output?offset_bytes=5", "search?pattern=x", "cast"] {
        assert_eq!(api(&daemon, &format!("/tasks/{old}/{path}")), Err(RefusalCode::Expired), "{path}");
    }
    let records = daemon.records(old);
    let settled = |r: &Record| matches!(r.what, RecordContent::Decision(Decision::Settled { .. }));
    assert!(records.iter().any(settled) && records[0].seq == 0);
    let raw = daemon.client().call("GET", &format!("/tasks/{old}/events"), &[], None).unwrap();
    assert!(String::from_utf8(raw).unwrap().contains("event: gap"), "what is missing is told of");
    let view = daemon.csn(&["show", &old.to_string()]);
    assert!(String::from_utf8_lossy(&view.stdout).contains("removed"));
    daemon.kill_daemon();
    daemon.start();
    let again = daemon.settled(old);
    assert_eq!(again, after, "the same after a restart");
    let done = gc(&daemon, json!({"older_than_days": 0}));
    assert_eq!(done["removed"].as_array().unwrap().len(), 1, "the new one; what runs is not touched");
    let_go(&daemon, running);
    assert!(daemon.csn(&["doctor"]).status.success());
}

#[test]
fn many_who_tidy_at_once_get_in_nobodys_way() {
    let daemon = TestHome::started(CSN);
    let tasks: Vec<TaskId> = (0..20).map(|n| daemon.ask(&format!("echo {n}"))).collect();
    tasks.iter().for_each(|t| drop(daemon.settled(*t)));
    let removed: usize = std::thread::scope(|scope| {
        let tidy = || gc(&daemon, json!({"older_than_days": 0}))["removed"].as_array().unwrap().len();
        let all: Vec<_> = (0..6).map(|_| scope.spawn(tidy)).collect();
        all.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(removed, 20, "each once");
}

#[test]
fn a_request_that_cannot_be_read_does_not_hold_up_the_line() {
    let daemon = small(1, "");
    let first = reads(&daemon).task_id;
    let (broken, next) = (reads(&daemon).task_id, reads(&daemon).task_id);
    std::fs::write(daemon.home().join("waiting").join(broken.to_string()), "{").unwrap();
    let_go(&daemon, first);
    assert!(matches!(daemon.outcome(broken), Outcome::Failed { code: 125, .. }));
    wait_running(&daemon, next);
    let_go(&daemon, next);
    assert_eq!(std::fs::read_dir(daemon.home().join("waiting")).unwrap().count(), 0);
}

#[test]
fn ends_are_told_apart_where_little_was_kept() {
    let daemon = TestHome::started(CSN);
    let work = daemon.work();
    let with = json!({"limits": {"output_bytes": 0}, "wait_ms": 60000, "workspace": work});
    let answer =
        daemon.client().call("POST", "/tasks", &[], Some(&json!(daemon.request("seq 1 500000", with)))).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert!(answer["output"]["stdout"]["text"].as_str().unwrap().ends_with("500000\n"), "{answer}");
    let with = json!({"limits": {"output_bytes": 1000}, "workspace": work});
    let task = daemon.ask_with("seq 1 500000; echo NEEDLE", with).task_id;
    daemon.settled(task);
    let published = work.join(format!(".runs/{task}.stdout.log"));
    wait_for(|| published.exists());
    let text = std::fs::read_to_string(published).unwrap();
    let marker = text.find("\n[").unwrap();
    assert_eq!(
        text.as_bytes()[..marker],
        numbers(500)[..1000],
        "the beginning alone is before the word about the rest"
    );
    assert!(text.ends_with("500000\nNEEDLE\n"));
}

#[test]
fn a_crash_between_the_decision_and_the_removal_is_made_good() {
    let daemon = TestHome::new(CSN);
    let point = daemon.work().join("crash");
    daemon.try_start_with(&[("COUNTERSIGN_CRASH_FILE", point.to_str().unwrap())]).unwrap();
    let task = daemon.ask("echo x");
    daemon.settled(task);
    std::fs::write(&point, "retention.before_remove").unwrap();
    assert!(daemon.client().gc(&body(json!({"older_than_days": 0}))).is_err());
    daemon.daemon_ends();
    std::fs::remove_file(&point).unwrap();
    assert!(daemon.task_dir(task).exists());
    daemon.start();
    assert_eq!(gc(&daemon, json!({"older_than_days": 0}))["removed"].as_array().unwrap().len(), 1);
    assert!(!daemon.task_dir(task).exists());
    let lines: Vec<String> = {
        let raw = daemon.client().call("GET", &format!("/tasks/{task}/events"), &[], None).unwrap();
        String::from_utf8(raw).unwrap().lines().filter(|l| l.contains("retention.expired")).map(str::to_owned).collect()
    };
    assert_eq!(lines.len(), 1, "decided once");
}

#[test]
fn streams_are_published_to_the_workspace_and_nothing_is_followed_there() {
    let daemon = TestHome::started(CSN);
    let work = daemon.work();
    let with = |more: Value| {
        let mut with = json!({"workspace": work});
        with.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with
    };
    let task = daemon.ask_with("echo out; echo err >&2", with(json!({}))).task_id;
    daemon.settled(task);
    let runs = work.join(".runs");
    let published = |task: TaskId, stream: &str| runs.join(format!("{task}.{stream}.log"));
    wait_for(|| published(task, "stderr").exists());
    assert_eq!(std::fs::read_to_string(published(task, "stdout")).unwrap(), "out\n");
    assert_eq!(std::fs::read_to_string(runs.join(".gitignore")).unwrap(), "*\n");
    assert_eq!(std::fs::metadata(&runs).unwrap().permissions().mode() & 0o777, 0o700);

    // A search through the workspace does not feed on what it prints.
    std::fs::write(work.join("hay"), "needle\n".repeat(1000)).unwrap();
    let task = daemon.ask_with("grep -r needle . | wc -l; grep -r needle .", with(json!({}))).task_id;
    daemon.settled(task);
    assert!(daemon.stdout(task).starts_with("1000\n"));

    let task = daemon.ask_with("seq 1 2000000", with(json!({}))).task_id;
    daemon.settled(task);
    wait_for(|| published(task, "stdout").exists());
    wait_for(|| std::fs::read_to_string(published(task, "stdout")).is_ok_and(|t| t.ends_with("2000000\n")));
    let long = std::fs::read_to_string(published(task, "stdout")).unwrap();
    assert!(long.starts_with("1\n2\n") && long.contains(&format!("csn logs {task} --stream stdout")));
    assert!(long.len() < 3 << 20, "both ends, not all");
    assert_eq!(daemon.output(task, StreamName::Stdout).len(), 14_888_896, "nothing of ours is lost");

    // What an agent does to its workspace is its own affair: our record is elsewhere.
    std::fs::remove_dir_all(&runs).unwrap();
    assert_eq!(daemon.stdout(task).len(), 14_888_896);
    let elsewhere = daemon.work().join("elsewhere");
    std::fs::create_dir_all(&elsewhere).unwrap();
    let task = daemon.ask_with("read x; echo followed", with(json!({"args": {"stdin": true}}))).task_id;
    std::os::unix::fs::symlink(&elsewhere, &runs).unwrap();
    let_go(&daemon, task);
    let log = daemon.home().join("run/daemon.log");
    wait_for(|| std::fs::read_to_string(&log).is_ok_and(|l| l.contains(&format!("{task}: not published"))));
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    for unfit in [work.clone(), work.join("nowhere")] {
        let (refusal, _) = daemon.refused("true", json!({"workspace": unfit}));
        assert_eq!(refusal.code, RefusalCode::BadRequest);
    }
}

/// Publishing is not part of a task's stream: there is nothing to wait for but the file.
fn wait_for(there: impl Fn() -> bool) {
    while !there() {
        std::thread::yield_now();
    }
}

#[test]
fn f187_what_left_its_session_is_ended_at_shutdown() {
    let daemon = TestHome::started(CSN);
    let task = daemon
        .ask_with(
            "setsid sleep 3597.187 & setsid setsid sh -c 'sleep 3597.187 & wait' & cat",
            json!({"execution_mode": "pty"}),
        )
        .task_id;
    wait_for(|| countersign_testkit::processes_with("sleep 3597.187").len() >= 2);
    assert!(daemon.csn(&["down", "--stop-tasks"]).status.success());
    assert_eq!(countersign_testkit::processes_with("sleep 3597.187"), Vec::<u32>::new());
    daemon.daemon_ends();
    daemon.start();
    assert!(matches!(daemon.outcome(task), Outcome::Cancelled { .. }));
    assert_eq!(daemon.settled(task).aftermath.survivors, Vec::<u32>::new());
}
