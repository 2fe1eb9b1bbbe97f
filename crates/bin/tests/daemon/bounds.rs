//! Limits: output, frames, the queue for slots, retention, publishing.

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

const OUTPUT_LIMIT_BYTES: u64 = 100_000;
const TAIL_BYTES: u64 = 1024 * 1024;

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
fn beyond_the_output_limit_both_ends_are_stored_and_the_gap_is_exact() {
    let daemon = TestHome::started(CSN);
    for mode in ["pipes", "pty"] {
        let stream = if mode == "pty" { StreamName::Pty } else { StreamName::Stdout };
        let with = json!({"execution_mode": mode, "limits": {"output_bytes": OUTPUT_LIMIT_BYTES}});
        let task = daemon.ask_with("stty -onlcr 2>/dev/null; seq 1 500000", with).task_id;
        let state = daemon.settled(task);
        assert_eq!(state.outcome(), Some(&Outcome::Exited { code: 0 }), "it is not killed");
        let all = numbers(500_000);
        let total = all.len() as u64;
        let dropped = total - OUTPUT_LIMIT_BYTES - TAIL_BYTES;
        assert_eq!((state.io.streams[&stream].bytes, state.io.streams[&stream].dropped), (total, dropped));
        let frames = limit_frames(&daemon, task);
        assert_eq!(
            frames.last(),
            Some(&Frame::Gap { stream, offset: OUTPUT_LIMIT_BYTES, bytes: dropped }),
            "{frames:?}"
        );
        assert!(
            matches!(&frames[0], Frame::LimitReached { limit, value: OUTPUT_LIMIT_BYTES, .. } if limit.as_str() == "output")
        );
        let file = std::fs::read(daemon.task_dir(task).join(stream.file())).unwrap();
        let kept = [&all[..OUTPUT_LIMIT_BYTES as usize], &all[(total - TAIL_BYTES) as usize..]].concat();
        assert!(file == kept, "the file holds the stored bytes and nothing else");
        let sha: [u8; 32] = Sha256::digest(&file).into();
        assert_eq!(state.io.streams[&stream].sha256.unwrap().as_bytes(), &sha, "as sha256sum would say");

        let read = |offset: u64, max: u64| daemon.client().output(task, stream, offset, max);
        assert_eq!(
            read(OUTPUT_LIMIT_BYTES - 10, 100).unwrap(),
            &all[OUTPUT_LIMIT_BYTES as usize - 10..OUTPUT_LIMIT_BYTES as usize],
            "up to the gap"
        );
        assert_eq!(read(total - 50, 100).unwrap(), &all[(total - 50) as usize..], "offsets after the gap are exact");
        let Err(ClientError::Refused(TaskRefusal { refusal, .. })) = read(OUTPUT_LIMIT_BYTES + 5, 10) else {
            panic!("a range inside the gap")
        };
        assert_eq!((refusal.code.http_status(), refusal.message.contains("dropped")), (416, true));
        let page =
            get(&daemon, &format!("/tasks/{task}/output?stream={stream}&offset_bytes={}", OUTPUT_LIMIT_BYTES - 3))
                .unwrap();
        assert_eq!(
            page["next_offset"].as_u64(),
            Some(OUTPUT_LIMIT_BYTES + dropped),
            "a reader that continues does so after the gap"
        );
        assert_eq!(page["gap"]["bytes"].as_u64(), Some(dropped));
        let last = get(&daemon, &format!("/tasks/{task}/output?stream={stream}&tail_lines=1")).unwrap();
        assert_eq!(last["content"], "500000\n");
        let search = |pattern: &str| get(&daemon, &format!("/tasks/{task}/search?pattern={pattern}")).unwrap();
        assert_eq!(search("499999")["matches"][0]["line"], Value::Null, "line numbers after a gap are unknown");
        assert_eq!(search("499999")["matches"][0]["offset_bytes"].as_u64(), Some(total - 14));
        assert_eq!(search("12345")["matches"][0]["line"], 12345);
        let logs = daemon.csn(&["logs", &task.to_string(), "--stream", stream.as_str()]);
        assert!(logs.stdout == kept && String::from_utf8_lossy(&logs.stderr).contains("were not stored"));
        let whole = daemon.client().call(
            "GET",
            &format!("/tasks/{task}/output?stream={stream}"),
            &[("accept", "application/octet-stream")],
            None,
        );
        assert!(whole.unwrap() == kept, "without a range every stored byte is returned");
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
    // Ten times as much as is stored passes; only the child's own count tells when.
    let pid = daemon.client().task(&task.to_string()).unwrap().pid().unwrap();
    let still = || countersign_testkit::processes_with("head -c 10737418240").iter().any(|p| *p != pid);
    wait_for(|| !still());
    let peak = MemoryUse::own_peak(shim, at_first);
    std::fs::write(daemon.work().join("go"), "").unwrap();
    let state = daemon.settled(task);
    let (total, kept) = (10_737_418_240 + 8, 1 << 30);
    let stdout = state.io.streams[&StreamName::Stdout];
    assert_eq!((stdout.bytes, stdout.dropped), (total, total - kept - TAIL_BYTES));
    let client = daemon.client();
    let byte = |offset: u64| b"0123456789abcdef\n"[(offset % 17) as usize];
    for offset in [0, kept - 1000, total - TAIL_BYTES] {
        let bytes = client.output(task, StreamName::Stdout, offset, 1000).unwrap();
        assert!(bytes.iter().zip(offset..).all(|(b, at)| *b == byte(at)), "bytes from {offset} on");
    }
    let end = client.output(task, StreamName::Stdout, total - 8, 100).unwrap();
    assert_eq!(end, b"the end\n");
    let file = daemon.task_dir(task).join("stdout.log");
    assert_eq!(std::fs::metadata(file).unwrap().len(), kept + TAIL_BYTES);
    assert!(peak < 32 * 1024, "the shim's peak was {peak} KiB of its own");
    let daemon_peak = MemoryUse::own_peak(daemon.daemon_pid(), memory_before);
    assert!(daemon_peak < 32 * 1024, "the daemon's peak was {daemon_peak} KiB of its own");
}

#[test]
fn output_that_ends_soon_after_the_limit_has_no_gap() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask_with("seq 1 50000", json!({"limits": {"output_bytes": OUTPUT_LIMIT_BYTES}})).task_id;
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
fn the_answer_names_the_limits_and_ceilings_are_enforced() {
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
        assert!(refusal.code == RefusalCode::BadRequest && refusal.message.contains("the maximum of this daemon"));
    }
}

/// A daemon with slots for `running` tasks.
fn daemon_with_slots(running: u64, more: &str) -> TestHome {
    let daemon = TestHome::new(CSN);
    daemon.configure(&format!("[limits]\nrunning = {running}\n{more}"));
    daemon.start();
    daemon
}

fn position(daemon: &TestHome, task: TaskId) -> Option<u64> {
    daemon.client().task(&task.to_string()).unwrap().position()
}

/// Ends a task that reads a line.
fn end_reader(daemon: &TestHome, task: TaskId) {
    daemon.client().stdin(task, &body(json!({"text": "\n"}))).unwrap();
    daemon.settled(task);
}

fn wait_running(daemon: &TestHome, task: TaskId) {
    daemon.frame(task, |f| matches!(f, Frame::Spawned { .. }));
}

const READ_COMMAND: &str = "read x";

fn ask_reader(daemon: &TestHome) -> TaskState {
    daemon.ask_with(READ_COMMAND, json!({"args": {"stdin": true}}))
}

#[test]
fn f170_tasks_beyond_the_caps_wait_in_the_queue_and_start_in_order() {
    let daemon = daemon_with_slots(2, "");
    let running: Vec<TaskId> = (0..2).map(|_| ask_reader(&daemon).task_id).collect();
    let queued: Vec<TaskState> = (0..5).map(|_| ask_reader(&daemon)).collect();
    for (n, task) in (1..).zip(&queued) {
        assert_eq!((task.status, task.waits_for(), task.position()), (Status::Queued, Some(WaitsFor::Slot), Some(n)));
        assert_eq!(position(&daemon, task.task_id), Some(n));
    }
    let queued: Vec<TaskId> = queued.iter().map(|t| t.task_id).collect();
    let ps = String::from_utf8(daemon.csn(&["ps"]).stdout).unwrap();
    assert!(ps.contains("number 3 in queue"), "{ps}");
    end_reader(&daemon, running[0]);
    wait_running(&daemon, queued[0]);
    assert_eq!(position(&daemon, queued[1]), Some(1), "the others move up");
    // F151: a task cancelled while it waits never runs.
    daemon.client().cancel(queued[2], None).unwrap();
    assert!(matches!(daemon.outcome(queued[2]), Outcome::Withdrawn { .. }));
    assert!(!daemon.task_dir(queued[2]).exists() && position(&daemon, queued[3]) == Some(2));
    // The queue survives the daemon.
    daemon.kill_daemon();
    daemon.start();
    assert_eq!(
        (position(&daemon, queued[1]), position(&daemon, queued[3]), position(&daemon, queued[4])),
        (Some(1), Some(2), Some(3))
    );
    for (ends, goes) in [(running[1], queued[1]), (queued[0], queued[3]), (queued[1], queued[4])] {
        end_reader(&daemon, ends);
        wait_running(&daemon, goes);
    }
    for task in [queued[3], queued[4]] {
        end_reader(&daemon, task);
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
        kinds(queued[4]),
        ["command.planned", "permission.granted", "task.queued", "task.launched", "task.settled"]
    );
}

#[test]
fn caps_of_sessions_and_principals_are_enforced() {
    let daemon = daemon_with_slots(50, "running_per_session = 2\nrunning_per_principal = 5\n");
    let sessions = [0, 1].map(|_| daemon.client().open_session(&body(json!({}))).unwrap().id);
    let ask = |n: usize| daemon.ask_with(READ_COMMAND, json!({"session_id": sessions[n], "args": {"stdin": true}}));
    let first: Vec<_> = (0..4).map(|_| ask(0)).collect();
    assert_eq!(
        first.iter().map(|t| t.status).collect::<Vec<_>>(),
        [Status::Running, Status::Running, Status::Queued, Status::Queued]
    );
    let second: Vec<_> = (0..2).map(|_| ask(1)).collect();
    assert!(second.iter().all(|t| t.status == Status::Running), "another session is not blocked");
    let free = ask_reader(&daemon);
    assert_eq!(free.status, Status::Running);
    assert_eq!(ask_reader(&daemon).status, Status::Queued, "five of one principal");
    end_reader(&daemon, second[0].task_id);
    // Two tasks of the first session still run: the first queued task that may start is the one without a session.
    let running = daemon.client().tasks(&body(json!({"status": "running"}))).unwrap().tasks;
    assert!(running.iter().filter(|t| t.request.session_id == first[0].request.session_id).count() == 2);
    end_reader(&daemon, first[0].task_id);
    wait_running(&daemon, first[2].task_id);
    assert_eq!(daemon.client().task(&first[3].task_id.to_string()).unwrap().status, Status::Queued);
}

#[test]
fn a_queued_command_whose_paths_changed_does_not_run() {
    let daemon = daemon_with_slots(1, "");
    let first = ask_reader(&daemon).task_id;
    let dir = daemon.work().join("there");
    std::fs::create_dir_all(&dir).unwrap();
    let task = daemon.ask_with("touch ran", json!({"args": {"cwd": dir}})).task_id;
    // Stored under another name, so that the new file cannot get its inode number.
    std::fs::rename(&dir, daemon.work().join("elsewhere")).unwrap();
    std::fs::create_dir(&dir).unwrap();
    end_reader(&daemon, first);
    assert!(matches!(daemon.outcome(task), Outcome::Denied { .. }));
    assert!(!dir.join("ran").exists());
}

#[test]
fn an_approved_task_can_wait_in_the_queue_and_be_withdrawn_there() {
    let daemon = daemon_with_slots(1, "");
    let first = ask_reader(&daemon).task_id;
    let asked = daemon.ask_with("touch ran", json!({"profile": "safe"}));
    let approval = daemon.client().approval(&asked.approval_id().unwrap().to_string()).unwrap();
    daemon.client().answer(approval.id, countersign_model::Choice::Once, None).unwrap();
    let state = daemon.client().task(&asked.task_id.to_string()).unwrap();
    assert_eq!((state.waits_for(), state.position()), (Some(WaitsFor::Slot), Some(1)));
    assert!(daemon.client().approvals(false).unwrap().is_empty(), "it no longer waits for an answer");
    daemon.kill_daemon();
    daemon.start();
    end_reader(&daemon, first);
    assert_eq!(daemon.outcome(asked.task_id), Outcome::Exited { code: 0 });
    assert!(daemon.work().join("ran").exists());
}

/// 500 queued tasks, with cancellations and kills of the daemon: each runs once or is withdrawn, in order.
#[test]
fn a_long_queue_loses_no_task() {
    let daemon = daemon_with_slots(4, "running_per_principal = 100\n");
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
            // The daemon was killed between the decision and the hand-over: the task reports it, nothing runs twice.
            (false, Outcome::Failed { code: 125, .. }) => {}
            other => panic!("{n}: {other:?}"),
        }
    }
    assert!(ran_expected.len() + 3 * 4 >= 500 - cancelled.len(), "only requests in flight at a kill are missing");
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

fn gc(daemon: &TestHome, request: Value) -> Value {
    json!(daemon.client().gc(&body(request)).unwrap())
}

#[test]
fn retention_removes_output_and_keeps_decisions() {
    let daemon = TestHome::started(CSN);
    let old = daemon.ask("seq 1 10000");
    let before = daemon.settled(old);
    let running = ask_reader(&daemon).task_id;
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
        "digests remain"
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
    assert!(String::from_utf8(raw).unwrap().contains("event: gap"), "the gap is reported");
    let view = daemon.csn(&["show", &old.to_string()]);
    assert!(String::from_utf8_lossy(&view.stdout).contains("removed"));
    daemon.kill_daemon();
    daemon.start();
    let again = daemon.settled(old);
    assert_eq!(again, after, "the same after a restart");
    let done = gc(&daemon, json!({"older_than_days": 0}));
    assert_eq!(done["removed"].as_array().unwrap().len(), 1, "the new task stays, and running tasks are not touched");
    end_reader(&daemon, running);
    assert!(daemon.csn(&["doctor"]).status.success());
}

#[test]
fn concurrent_garbage_collections_do_not_conflict() {
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
fn an_unreadable_request_does_not_block_the_queue() {
    let daemon = daemon_with_slots(1, "");
    let first = ask_reader(&daemon).task_id;
    let (broken, next) = (ask_reader(&daemon).task_id, ask_reader(&daemon).task_id);
    std::fs::write(daemon.home().join("waiting").join(broken.to_string()), "{").unwrap();
    end_reader(&daemon, first);
    assert!(matches!(daemon.outcome(broken), Outcome::Failed { code: 125, .. }));
    wait_running(&daemon, next);
    end_reader(&daemon, next);
    assert_eq!(std::fs::read_dir(daemon.home().join("waiting")).unwrap().count(), 0);
}

#[test]
fn both_ends_of_the_output_are_distinct_with_a_small_limit() {
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
        "the beginning is shown before the note about the rest"
    );
    assert!(text.ends_with("500000\nNEEDLE\n"));
}

#[test]
fn a_removal_that_a_crash_interrupted_is_completed() {
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
fn streams_are_published_to_the_workspace_without_following_links() {
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

    // A search through the workspace does not find its own published output.
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

    // An agent may change its workspace as it likes: the record is elsewhere.
    std::fs::remove_dir_all(&runs).unwrap();
    assert_eq!(daemon.stdout(task).len(), 14_888_896);
    let elsewhere = daemon.work().join("elsewhere");
    std::fs::create_dir_all(&elsewhere).unwrap();
    let task = daemon.ask_with("read x; echo followed", with(json!({"args": {"stdin": true}}))).task_id;
    std::os::unix::fs::symlink(&elsewhere, &runs).unwrap();
    end_reader(&daemon, task);
    let log = daemon.home().join("run/daemon.log");
    wait_for(|| {
        std::fs::read_to_string(&log).is_ok_and(|l| l.contains(&format!("{task}: the output was not published")))
    });
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    for unfit in [work.clone(), work.join("nowhere")] {
        let (refusal, _) = daemon.refused("true", json!({"workspace": unfit}));
        assert_eq!(refusal.code, RefusalCode::BadRequest);
    }
}

/// Publishing is not part of a task's stream, so this polls for the file.
fn wait_for(there: impl Fn() -> bool) {
    while !there() {
        std::thread::yield_now();
    }
}

#[test]
fn f187_processes_that_left_their_session_are_ended_at_shutdown() {
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
