//! Reading: streams by cursor and output by range, both while they grow.

use crate::CSN;
use countersign_client::ClientError;
use countersign_model::{Frame, Outcome, RefusalCode, StreamName, TaskRefusal};
use countersign_testkit::{MemoryUse, RawCalls as _, TestHome, frame};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub(crate) fn get(daemon: &TestHome, path: &str) -> Result<Value, countersign_model::Refusal> {
    match daemon.client().call("GET", path, &[], None) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap()),
        Err(ClientError::Refused(TaskRefusal { refusal, .. })) => Err(refusal),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn f157_a_reader_that_disconnects_resumes_with_every_frame_once() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("for i in $(seq 1 60); do echo $i; sleep 0.025; done");
    let (mut seen, mut last) = (Vec::new(), None);
    loop {
        // A new connection for every few frames, resumed by number.
        let mut events = daemon.client().events(task, last);
        let mut ended = false;
        for _ in 0..7 {
            match events.next_event().unwrap() {
                Some(event) => {
                    last = Some(event.value.record.seq);
                    seen.push(event.value.record.seq);
                }
                None => ended = true,
            }
        }
        if ended {
            break;
        }
    }
    assert_eq!(seen, (0..seen.len() as u64).collect::<Vec<_>>());
    assert!(seen.len() > 20);
}

#[test]
fn f157_a_reader_that_stops_reading_blocks_no_one_and_misses_nothing() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("for i in 1 2 3 4; do seq 1 500000; sleep 0.03; done");
    let mut slow = daemon.client().events(task, None);
    assert_eq!(slow.next_event().unwrap().unwrap().value.record.seq, 0);
    // Everything happens while the slow reader does not read: more than its socket holds.
    let all = daemon.sealed(task).next_seq;
    let mut seqs = vec![0];
    while let Some(event) = slow.next_event().unwrap() {
        seqs.push(event.value.record.seq);
    }
    assert_eq!(seqs, (0..all).collect::<Vec<_>>());
}

#[test]
fn f169_interrupted_system_calls_are_resumed() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("for i in $(seq 1 40); do seq 1 20000; sleep 0.005; done");
    let shim = daemon.client().task(&task.to_string()).unwrap().shim_pid().unwrap();
    let shim = rustix::process::Pid::from_raw(i32::try_from(shim).unwrap()).unwrap();
    let mut stopped = 0;
    while !daemon.client().task(&task.to_string()).unwrap().settled() {
        // Stopping and continuing interrupts whatever call the shim is in.
        for signal in [rustix::process::Signal::STOP, rustix::process::Signal::CONT] {
            stopped += u32::from(rustix::process::kill_process(shim, signal).is_ok());
        }
    }
    assert!(stopped > 10);
    let one: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 0 });
    assert_eq!(daemon.stdout(task), one.repeat(40));
}

#[test]
fn f158_two_readers_have_their_own_cursors() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo one; until [ -e go ]; do sleep 0.02; done; echo two");
    let mut early = daemon.client().events(task, None);
    frame(&mut early, |f| matches!(f, Frame::Output { offset: 0, .. }));
    std::fs::write(daemon.work().join("go"), "").unwrap();
    daemon.settled(task);
    let mut late = daemon.client().events(task, None);
    for events in [&mut early, &mut late] {
        frame(events, |f| matches!(f, Frame::Output { offset: 4, .. }));
    }
}

#[test]
fn f154_fifty_megabytes_are_whole_and_readable_by_range() {
    let daemon = TestHome::started(CSN);
    let memory_before = MemoryUse::of_process(daemon.daemon_pid());
    let task = daemon.ask("seq 1 6500000");
    let state = daemon.settled(task);
    assert_eq!(state.outcome(), Some(&Outcome::Exited { code: 0 }));
    let expected: String = (1..=6_500_000).map(|n| format!("{n}\n")).collect();
    assert!(expected.len() > 50_000_000);
    assert_eq!(state.io.streams[&StreamName::Stdout].bytes, expected.len() as u64);
    let digest: [u8; 32] = Sha256::digest(expected.as_bytes()).into();
    assert_eq!(state.io.streams[&StreamName::Stdout].sha256.unwrap().as_bytes(), &digest);
    let offset = 12_345_678;
    let range = daemon.client().output(task, StreamName::Stdout, offset, 300_000).unwrap();
    assert_eq!(range, &expected.as_bytes()[offset as usize..offset as usize + 300_000]);
    let path = format!("/tasks/{task}/output");
    let tail = get(&daemon, &format!("{path}?tail_lines=3")).unwrap();
    assert_eq!(tail["content"], "6499998\n6499999\n6500000\n");
    let lines = get(&daemon, &format!("{path}?line=1000000&lines=2")).unwrap();
    assert_eq!(lines["content"], "1000000\n1000001\n");
    assert_eq!((lines["complete"].as_bool(), lines["truncated"].as_bool()), (Some(true), Some(true)));
    let shown = daemon.frame(task, |f| matches!(f, Frame::Output { len, .. } if *len > 100_000));
    assert!(matches!(shown, Frame::Output { len, .. } if len <= 256 * 1024 + 4096), "{shown:?}");
    let peak = MemoryUse::own_peak(daemon.daemon_pid(), memory_before);
    assert!(peak < 32 * 1024, "memory stays flat: {peak} KiB");
}

#[test]
fn f166_impossible_ranges_are_refused_with_a_reason() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("printf 0123456789");
    daemon.settled(task);
    let path = format!("/tasks/{task}/output");
    let code = |query: &str| get(&daemon, &format!("{path}?{query}")).unwrap_err();
    assert_eq!(code("offset_bytes=11").code, RefusalCode::RangeNotSatisfiable);
    assert_eq!(code("offset_bytes=18446744073709551615").code, RefusalCode::RangeNotSatisfiable);
    assert!(code("offset_bytes=-1").message.contains("`offset_bytes`"));
    assert!(code("max_bytes=99999999999999999999999").message.contains("`max_bytes`"));
    assert!(code("stream=pty").message.contains("stdout and stderr"));
    assert!(code("colour=red").message.contains("`colour`"));
    let huge = get(&daemon, &format!("{path}?max_bytes=18446744073709551615")).unwrap();
    assert_eq!((huge["content"].as_str(), huge["next_offset"].as_u64()), (Some("0123456789"), Some(10)));
    let end = get(&daemon, &format!("{path}?offset_bytes=10")).unwrap();
    assert_eq!((end["bytes"].as_u64(), end["truncated"].as_bool()), (Some(0), Some(false)));
    let range = |range: &str| {
        daemon.client().call("GET", &path, &[("accept", "application/octet-stream"), ("range", range)], None)
    };
    assert_eq!(range("bytes=2-4").unwrap(), b"234");
    assert_eq!(range("bytes=-3").unwrap(), b"789");
    assert_eq!(range("bytes=8-").unwrap(), b"89");
    assert!(
        matches!(range("bytes=10-"), Err(ClientError::Refused(TaskRefusal { refusal, .. })) if refusal.code == RefusalCode::RangeNotSatisfiable)
    );
    assert_eq!(get(&daemon, &format!("{path}?line=9&lines=3")).unwrap()["bytes"], 0);
}

#[test]
fn changed_output_is_not_served() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("seq 1 100000");
    daemon.settled(task);
    assert!(daemon.client().output(task, StreamName::Stdout, 0, 10).is_ok());
    let file = daemon.task_dir(task).join("stdout.log");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[300_000] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let at = |offset| daemon.client().output(task, StreamName::Stdout, offset, 10);
    assert!(
        matches!(at(300_000), Err(ClientError::Refused(TaskRefusal { refusal, .. })) if refusal.code == RefusalCode::ArtifactTampered)
    );
    assert!(at(0).is_ok(), "other chunks are whole");
}

#[test]
fn f156_binary_output_is_base64_and_characters_are_whole() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("printf '\\xff\\xfe\\x00'");
    daemon.settled(task);
    let shown = get(&daemon, &format!("/tasks/{task}/output")).unwrap();
    assert_eq!((shown["encoding"].as_str(), shown["content"].as_str()), (Some("base64"), Some("//4A")));
    let task = daemon.ask("printf '\\xf0\\x9f'; sleep 0.005; printf '\\xa6\\x80 crab\\n'");
    daemon.settled(task);
    assert_eq!(daemon.stdout(task), "🦀 crab\n");
    // However the two halves were split: a half is shown as what it is, and no byte is damaged.
    let mut events = daemon.client().events(task, None);
    while let Some(event) = events.next_event().unwrap() {
        let shown: Value = serde_json::from_str(&event.json).unwrap();
        let text = shown["text"].as_str().unwrap_or_default();
        assert!(!text.contains('\u{fffd}') && (shown["encoding"] == "base64" || !text.contains('\u{f0}')), "{text}");
    }
}

#[test]
fn many_readers_of_a_fast_task_each_see_every_frame_once() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("for i in 1 2 3 4 5 6; do seq 1 400000; sleep 0.03; echo pause; sleep 0.03; done");
    let seen: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let read = || {
            let (mut events, mut seqs) = (daemon.client().events(task, None), Vec::new());
            while let Some(event) = events.next_event().unwrap() {
                seqs.push(event.value.record.seq);
            }
            seqs
        };
        let readers: Vec<_> = (0..16).map(|_| scope.spawn(read)).collect();
        readers.into_iter().map(|r| r.join().unwrap()).collect()
    });
    assert!(seen[0].len() > 60, "{} frames", seen[0].len());
    let all = seen[0].len() as u64;
    for seqs in &seen {
        assert_eq!(*seqs, (0..all).collect::<Vec<_>>());
    }
    // Readers that start elsewhere get pieces that were rendered for others, in the middle of their own lines.
    for after in (0..40).rev() {
        let (mut events, mut seqs) = (daemon.client().events(task, Some(after)), Vec::new());
        while let Some(event) = events.next_event().unwrap() {
            seqs.push(event.value.record.seq);
        }
        assert_eq!(seqs, (after + 1..all).collect::<Vec<_>>(), "after {after}");
    }
}

#[test]
fn a_cursor_after_the_last_record_ends_the_stream() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("true");
    let last = daemon.sealed(task).next_seq - 1;
    for after in [last, last + 1000] {
        assert!(daemon.client().events(task, Some(after)).next_event().unwrap().is_none());
    }
}

#[test]
fn raw_output_without_a_range_is_all_of_it() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("seq 1 200000");
    daemon.settled(task);
    let path = format!("/tasks/{task}/output");
    let raw = daemon.client().call("GET", &path, &[("accept", "application/octet-stream")], None).unwrap();
    assert_eq!(raw, (1..=200_000).map(|n| format!("{n}\n")).collect::<String>().into_bytes());
}

#[test]
fn missing_output_does_not_end_the_stream() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo one; echo two >&2");
    daemon.settled(task);
    std::fs::remove_file(daemon.task_dir(task).join("stdout.log")).unwrap();
    let mut events = daemon.client().events(task, None);
    let mut lines = Vec::new();
    while let Some(event) = events.next_event().unwrap() {
        lines.push(event.json);
    }
    let output: Vec<_> = lines.iter().filter(|l| l.contains("stream.output")).collect();
    assert!(output.iter().any(|l| l.contains("unreadable")) && output.iter().any(|l| l.contains("two")), "{output:?}");
    assert!(lines.last().unwrap().contains("receipt.sealed"));
}

#[test]
#[ignore = "slow: cargo xtask soak"]
fn a_gigabyte_is_whole_and_memory_stays_flat() {
    let daemon = TestHome::started(CSN);
    let memory_before = MemoryUse::of_process(daemon.daemon_pid());
    let task = daemon.ask("yes 0123456789abcdef | head -c 1073741824; until [ -e go ]; do sleep 0.02; done");
    let shim_pid = daemon.client().task(&task.to_string()).unwrap().shim_pid().unwrap();
    let shim = MemoryUse::of_process(shim_pid);
    daemon.frame(task, |f| matches!(f, Frame::Output { offset, len, .. } if offset + len == 1 << 30));
    let shim = MemoryUse::own_peak(shim_pid, shim);
    std::fs::write(daemon.work().join("go"), "").unwrap();
    let state = daemon.settled(task);
    let stdout = state.io.streams[&StreamName::Stdout];
    assert_eq!(stdout.bytes, 1 << 30);
    let mut sha = Sha256::new();
    let line = b"0123456789abcdef\n".repeat(4096);
    let mut left = 1usize << 30;
    while left > 0 {
        let n = left.min(line.len());
        sha.update(&line[..n]);
        left -= n;
    }
    let digest: [u8; 32] = sha.finalize().into();
    assert_eq!(stdout.sha256.unwrap().as_bytes(), &digest);
    assert_eq!(daemon.output(task, StreamName::Stdout).len(), 1 << 30);
    let peak = MemoryUse::own_peak(daemon.daemon_pid(), memory_before);
    eprintln!(
        "of its own at most: daemon {peak} KiB, shim {shim} KiB; {:?}",
        MemoryUse::of_process(daemon.daemon_pid())
    );
    assert!(peak < 32 * 1024, "the daemon's peak was {peak} KiB of its own");
    assert!(shim < 32 * 1024, "the shim's peak was {shim} KiB of its own");
}
