//! Measures terminals, search and late attachment, each against the kernel or another tool without Countersign.

use super::{BenchHome, load, print_row};
use crate::command;
use load::{now, percentile};
use rustix::{
    fd::OwnedFd,
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
};
use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    process::Stdio,
    time::Duration,
};
use tungstenite::{Message, WebSocket};

const SEQ_COMMAND: &str = "seq 1 8000000";
/// The output of SEQ_COMMAND, with a carriage return for every line.
const SEQ_BYTES: f64 = 62_888_896.0 + 8_000_000.0;

/// A plain terminal: this side, and the side for a child process.
fn raw_pty() -> (File, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).expect("a terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal");
    let slave = ioctl_tiocgptpeer(&master, flags).expect("its other end");
    (File::from(master), slave)
}

/// Seconds for a command on a plain terminal whose output goes into a file.
fn raw_run(text: &str, into: &mut File) -> f64 {
    let began = now();
    let (mut master, slave) = raw_pty();
    let clone = || slave.try_clone().map(Stdio::from).expect("descriptors");
    let mut bash = command("bash");
    bash.args(["-c", text]).stdin(clone()).stdout(clone()).stderr(clone());
    let mut child = bash.spawn().expect("bash");
    drop((slave, bash));
    let mut buf = vec![0; 64 * 1024];
    // Reading a closed terminal is an error, not an end of file.
    while let Ok(n @ 1..) = master.read(&mut buf) {
        into.write_all(&buf[..n]).expect("the disk takes it");
    }
    let _ = child.wait();
    began.elapsed().as_secs_f64()
}

fn ask_pty(bench: &BenchHome, text: &str, more: &str) -> String {
    let mut conn = bench.daemon().connect();
    let body = format!(
        r#"{{"tool":"shell","args":{{"command":"{text}","cwd":"/tmp"}},"profile":"full_auto","execution_mode":"pty"{more}}}"#
    );
    let (status, answer) = conn.call("POST", "/tasks", "content-type: application/json\r\n", &body).expect("an answer");
    let answer = String::from_utf8_lossy(&answer);
    assert!(status < 300, "{status} {answer}");
    answer.split(r#""task_id":""#).nth(1).and_then(|r| r.split('"').next()).expect("its id").to_owned()
}

pub(super) fn measure_terminals(bench: &mut BenchHome) {
    let scratch = bench.dir.join("raw");
    let (mut daemon, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let began = now();
        let id = ask_pty(bench, SEQ_COMMAND, "");
        bench.daemon().wait_for_end(&id);
        daemon.push(began.elapsed().as_secs_f64());
        raw.push(raw_run(SEQ_COMMAND, &mut File::create(&scratch).expect("a file")));
    }
    let speed = |s: &[f64]| SEQ_BYTES / 1e6 / percentile(s, 0.5);
    let (h, r) = (speed(&daemon), speed(&raw));
    print_row(
        "terminal, 71 MB of seq, cleaned, hashed, drawn",
        format!("{h:.1} MB/s"),
        format!("{r:.1} MB/s (raw terminal into a file)"),
        format!("{:.2}×", h / r),
    );
    let (mut daemon, mut seen, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..6 {
        for _ in 0..30 {
            let began = now();
            let id = ask_pty(bench, "true", "");
            bench.daemon().wait_for_end(&id);
            daemon.push(began.elapsed().as_secs_f64() * 1e6);
            seen.push(task_micros(bench, &id));
        }
        for _ in 0..30 {
            raw.push(raw_run("true", &mut File::create(&scratch).expect("a file")) * 1e6);
        }
    }
    let (s, h, r) = (percentile(&seen, 0.5), percentile(&daemon, 0.5), percentile(&raw, 0.5));
    print_row(
        "terminal: order → exit seen by the shim, p50",
        format!("{:.2} ms", s / 1e3),
        format!("{:.2} ms (bash -c true on a raw terminal)", r / 1e3),
        format!("{:.2}×", s / r),
    );
    print_row(
        "terminal: ask → exit visible, p50",
        format!("{:.2} ms", h / 1e3),
        format!("{:.2} ms (bash -c true on a raw terminal)", r / 1e3),
        format!("{:.2}×", h / r),
    );
    measure_echo(bench);
    let _ = std::fs::remove_file(scratch);
}

/// Microseconds from the start of a task's journal to the exit in it.
fn task_micros(bench: &BenchHome, id: &str) -> f64 {
    let (_, state) = bench.daemon().connect().call("GET", &format!("/tasks/{id}"), "", "").expect("an answer");
    let state = String::from_utf8_lossy(&state).into_owned();
    state.split(r#""duration_us":"#).nth(1).and_then(|s| s.split([',', '}']).next()?.parse().ok()).unwrap_or(f64::NAN)
}

fn attach(bench: &BenchHome, id: &str) -> WebSocket<UnixStream> {
    let stream = UnixStream::connect(bench.daemon().socket).expect("the daemon listens");
    let address = format!("ws://bench/tasks/{id}/attach");
    tungstenite::client(address, stream).expect("a WebSocket").0
}

/// Measures a key and its echo: on a plain terminal, and through the daemon and back.
fn measure_echo(bench: &BenchHome) {
    let (mut raw, mut daemon) = (Vec::new(), Vec::new());
    let (mut master, slave) = raw_pty();
    let id = ask_pty(bench, "cat >/dev/null", "");
    let mut viewer = attach(bench, &id);
    let mut byte = [0; 64];
    for _ in 0..300 {
        // Slower than anyone types, so that the echo of one key does not mix with the next.
        std::thread::sleep(Duration::from_millis(3));
        let began = now();
        master.write_all(b"x").expect("the terminal takes a key");
        assert!(master.read(&mut byte).is_ok_and(|n| n > 0));
        raw.push(began.elapsed().as_secs_f64() * 1e6);
        std::thread::sleep(Duration::from_millis(3));
        let began = now();
        viewer.send(Message::binary(b"x".to_vec())).expect("the daemon takes a key");
        loop {
            match viewer.read().expect("the daemon answers") {
                Message::Binary(bytes) if bytes.as_ref() == b"x" => break,
                _ => {}
            }
        }
        daemon.push(began.elapsed().as_secs_f64() * 1e6);
    }
    drop((slave, viewer));
    let mut conn = bench.daemon().connect();
    let _ = conn.call("POST", &format!("/tasks/{id}/cancel"), "", "{}");
    let (h, r) = (percentile(&daemon, 0.5), percentile(&raw, 0.5));
    print_row(
        "key → echo through attach, p50 (p99)",
        format!("{:.2} ms ({:.2})", h / 1e3, percentile(&daemon, 0.99) / 1e3),
        format!("{:.2} ms (raw terminal)", r / 1e3),
        format!("+{:.2} ms", (h - r) / 1e3),
    );
}

/// A gigabyte of text that contains the search word once.
const GIGABYTE_OF_TEXT: &str =
    "yes 'a line of ordinary text, as programs write them: 0123456789' | head -c 1073741000; echo needle";

pub(super) fn measure_search(bench: &mut BenchHome) {
    let (id, _) = bench.daemon().run_to_end(GIGABYTE_OF_TEXT);
    let file = find(&bench.home().join("tasks"), &id).map(|dir| dir.join("stdout.log")).expect("its output");
    let mut conn = bench.daemon().connect();
    let (mut daemon, mut rg) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let began = now();
        let (status, answer) =
            conn.call("GET", &format!("/tasks/{id}/search?pattern=needle"), "", "").expect("an answer");
        assert!(status == 200 && String::from_utf8_lossy(&answer).contains("needle"), "found");
        daemon.push(began.elapsed().as_secs_f64());
        let began = now();
        let mut peer = command("rg");
        peer.args(["-c", "-j1", "needle"]).arg(&file).stdout(Stdio::null());
        match peer.status() {
            Ok(status) if status.success() => rg.push(began.elapsed().as_secs_f64()),
            _ => println!("(no rg on this machine: apt-get install ripgrep)"),
        }
    }
    let speed = |s: &[f64]| if s.is_empty() { f64::NAN } else { GIGABYTE / 1e9 / percentile(s, 0.5) };
    let (h, r) = (speed(&daemon), speed(&rg));
    print_row(
        "search of 1 GiB, every chunk checked",
        format!("{h:.2} GB/s"),
        format!("{r:.2} GB/s (rg -c, one thread)"),
        format!("{:.2}×", h / r),
    );
}

const GIGABYTE: f64 = (1u64 << 30) as f64;

fn find(dir: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    let shards = std::fs::read_dir(dir).ok()?;
    shards.flatten().map(|shard| shard.path().join(name)).find(|path| path.exists())
}

/// Measures the first screen for a viewer that attaches after a gigabyte of output.
pub(super) fn measure_late_attach(bench: &mut BenchHome) {
    let id = ask_pty(
        bench,
        "stty -opost; head -c 1073741824 /dev/zero | tr '\\\\\\\\0' 'x' | fold -w 79; echo; echo done; cat",
        "",
    );
    bench.daemon().connect().read_events(&format!("/tasks/{id}/events"), "done").expect("the stream goes on");
    let one = |_| {
        let began = now();
        let mut viewer = attach(bench, &id);
        while !matches!(viewer.read().expect("the daemon answers"), Message::Binary(_)) {}
        began.elapsed().as_secs_f64() * 1e3
    };
    let times: Vec<f64> = (0..20).map(one).collect();
    print_row(
        "late attach after 1 GiB on a terminal, p50 (worst)",
        format!("{:.1} ms ({:.1})", percentile(&times, 0.5), percentile(&times, 1.0)),
        "50 ms".to_owned(),
        String::new(),
    );
    let _ = bench.daemon().connect().call("POST", &format!("/tasks/{id}/cancel"), "", "{}");
    bench.daemon().wait_for_end(&id);
}
