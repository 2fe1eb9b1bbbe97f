//! The daemon's listeners and clients that do not finish, do not read, or are too many.

use crate::CSN;
use countersign_model::RefusalCode;
use countersign_testkit::{TestHome, body};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit},
};
use serde_json::{Value, json};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
};

/// The tests hold both ends of many connections.
fn raise_own_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// A daemon that listens on loopback, and a person's token for it.
fn open(config: &str) -> (TestHome, String, String) {
    let daemon = TestHome::new(CSN);
    daemon.configure(config);
    daemon.start();
    let at = daemon.client().listen(Some(([127, 0, 0, 1], 0).into())).unwrap();
    let wanted = json!({"name": "me", "kind": "person", "scopes": ["observe", "run"]});
    let token = daemon.client().create_token(&body(wanted)).unwrap().token;
    (daemon, at.to_string(), token)
}

fn socket(daemon: &TestHome) -> UnixStream {
    UnixStream::connect(daemon.home().join("run/csn.sock")).unwrap()
}

struct Answer {
    status: u16,
    body: Value,
}

impl Answer {
    fn code(&self) -> Option<RefusalCode> {
        serde_json::from_value(self.body["code"].clone()).ok()
    }
}

/// One answer with a length, from a connection that may continue.
fn answer(stream: &mut impl Read) -> io::Result<Answer> {
    let mut from = BufReader::with_capacity(1, stream);
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_ascii_lowercase();
        match line.split_once(": ") {
            Some(("content-length", n)) => length = n.parse().unwrap(),
            None if line.starts_with("http/1.1 ") => status = line[9..12].parse().unwrap(),
            None if line.is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Answer { status, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}

fn ask(stream: &mut (impl Read + Write), head: &str) -> io::Result<Answer> {
    stream.write_all(format!("{head}\r\nhost: localhost\r\n\r\n").as_bytes())?;
    answer(stream)
}

/// Whether the other end has closed: nothing more can be read, or a reset.
fn is_cut_off(stream: &mut impl Read) -> bool {
    !matches!(stream.read(&mut [0; 64]), Ok(n) if n > 0)
}

#[test]
fn half_sent_requests_do_not_keep_token_holders_out() {
    raise_own_limit();
    // Long enough that no deadline helps.
    let (daemon, at, token) = open("[http]\nheader_timeout_ms = 3600000\n");
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..1200 {
        let mut stream = TcpStream::connect(&at).unwrap();
        // It may have had to make room already.
        let _ = stream.write_all(b"GET /tasks HTTP/1.1\r\nhost: localhost\r\nx: ");
        held.push(stream);
    }
    let mut person = TcpStream::connect(&at).unwrap();
    let with_token = format!("GET /tasks HTTP/1.1\r\nauthorization: Bearer {token}");
    assert_eq!(ask(&mut person, &with_token).unwrap().status, 200);
    // An identified connection does not make room for unidentified ones.
    for _ in 0..600 {
        let mut stream = TcpStream::connect(&at).unwrap();
        let _ = stream.write_all(b"GET /tasks HTTP/1.1\r\n");
        held.push(stream);
    }
    let mut another = TcpStream::connect(&at).unwrap();
    assert_eq!(ask(&mut another, &with_token).unwrap().status, 200);
    assert_eq!(ask(&mut person, &with_token).unwrap().status, 200);
    assert!(is_cut_off(&mut held[0]), "the oldest made room");
    assert_eq!(ask(&mut socket(&daemon), "GET /lifecycle HTTP/1.1").unwrap().status, 200);
}

#[test]
fn agents_leave_connections_for_people() {
    let (daemon, at, token) = open("[http]\nconnections = 4\n");
    let wanted = json!({"name": "bot", "kind": "agent", "scopes": ["observe"]});
    let agent = daemon.client().create_token(&body(wanted)).unwrap().token;
    let ask_with = |token: &str| {
        let mut stream = TcpStream::connect(&at).unwrap();
        let told = ask(&mut stream, &format!("GET /tasks HTTP/1.1\r\nauthorization: Bearer {token}")).unwrap();
        (stream, told)
    };
    let held: Vec<_> = (0..3).map(|_| ask_with(&agent)).collect();
    assert!(held.iter().all(|(_, told)| told.status == 200));
    let (_, refused) = ask_with(&agent);
    assert_eq!((refused.status, refused.code()), (429, Some(RefusalCode::TooMany)), "{}", refused.body);
    assert_eq!(ask_with(&token).1.status, 200);
}

#[test]
fn a_request_that_does_not_arrive_in_time_is_dropped() {
    let (daemon, at, token) = open("[http]\nheader_timeout_ms = 700\nbody_timeout_ms = 700\n");
    let half = b"GET /tasks HTTP/1.1\r\nhost: localhost\r\nx: ";
    let (mut tcp, mut unix) = (TcpStream::connect(&at).unwrap(), socket(&daemon));
    tcp.write_all(half).unwrap();
    unix.write_all(half).unwrap();
    let (mut silent_tcp, mut silent_unix) = (TcpStream::connect(&at).unwrap(), socket(&daemon));
    assert!(is_cut_off(&mut tcp) && is_cut_off(&mut unix));
    assert!(is_cut_off(&mut silent_tcp) && is_cut_off(&mut silent_unix));
    let head = "POST /tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100";
    let mut unix = socket(&daemon);
    unix.write_all(format!("{head}\r\n\r\n{{\"tool\"").as_bytes()).unwrap();
    let mut tcp = TcpStream::connect(&at).unwrap();
    tcp.write_all(format!("{head}\r\nauthorization: Bearer {token}\r\n\r\n{{").as_bytes()).unwrap();
    for told in [answer(&mut unix).unwrap(), answer(&mut tcp).unwrap()] {
        assert_eq!((told.status, told.code()), (408, Some(RefusalCode::RequestTimeout)), "{}", told.body);
    }
    assert!(is_cut_off(&mut unix) && is_cut_off(&mut tcp));
    assert_eq!(daemon.client().tasks(&Default::default()).unwrap().tasks.len(), 0, "nothing came of it");
}

/// A body that is too long, from a client that reads the answer only afterwards.
fn send_too_much(stream: &mut impl Write, chunked: bool) -> io::Result<()> {
    let piece = vec![b' '; 1 << 20];
    for _ in 0..20 {
        if chunked {
            stream.write_all(b"100000\r\n")?;
        }
        stream.write_all(&piece)?;
        if chunked {
            stream.write_all(b"\r\n")?;
        }
    }
    if chunked { stream.write_all(b"0\r\n\r\n") } else { Ok(()) }
}

#[test]
fn bodies_that_are_too_long_are_answered_and_drained() {
    let (daemon, at, token) = open("");
    for (length, chunked) in [("content-length: 20971520", false), ("transfer-encoding: chunked", true)] {
        for (route, token, status) in [
            ("/tasks", Some(&token), 413),
            ("/mcp", Some(&token), 413),
            ("/tasks", None, 401),
            ("/nowhere", Some(&token), 403),
        ] {
            let bearer = token.map(|t| format!("\r\nauthorization: Bearer {t}")).unwrap_or_default();
            let mut tcp = TcpStream::connect(&at).unwrap();
            let json = "content-type: application/json\r\naccept: application/json, text/event-stream";
            let head = format!("POST {route} HTTP/1.1\r\nhost: localhost\r\n{json}\r\n{length}{bearer}\r\n\r\n");
            tcp.write_all(head.as_bytes()).unwrap();
            send_too_much(&mut tcp, chunked).unwrap();
            let told = answer(&mut tcp).unwrap();
            assert_eq!(told.status, status, "{route} {length}: {}", told.body);
            assert_eq!(ask(&mut tcp, "GET /livez HTTP/1.1").unwrap().status, 200, "the connection continues");
        }
        let mut unix = socket(&daemon);
        unix.write_all(format!("POST /tasks HTTP/1.1\r\nhost: localhost\r\n{length}\r\n\r\n").as_bytes()).unwrap();
        send_too_much(&mut unix, chunked).unwrap();
        let told = answer(&mut unix).unwrap();
        assert_eq!((told.status, told.code()), (413, Some(RefusalCode::TooLarge)), "{}", told.body);
    }
    // A client that sends `Expect: 100-continue` gets no leave to send.
    let head = "POST /tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20971520\r\nexpect: 100-continue\r\n\r\n";
    let mut unix = socket(&daemon);
    unix.write_all(head.as_bytes()).unwrap();
    assert_eq!(answer(&mut unix).unwrap().status, 413);
}

/// More decisions than the buffers of a socket hold.
fn with_history(config: &str) -> TestHome {
    let daemon = TestHome::new(CSN);
    daemon.configure(config);
    daemon.start();
    let padding = format!(": {}", "x".repeat(3000));
    let tasks: Vec<_> = (0..150).map(|_| daemon.ask(&padding)).collect();
    tasks.iter().for_each(|task| drop(daemon.sealed(*task)));
    daemon
}

fn follow_from(daemon: &TestHome, after: u64) -> UnixStream {
    let mut stream = socket(daemon);
    let head = format!("GET /events?after={after} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// The numbers of the received decisions, up to `last` or until the connection breaks; only of complete events.
fn numbers(stream: UnixStream, last: Option<u64>) -> Vec<u64> {
    let (mut all, mut id) = (Vec::new(), None);
    for line in BufReader::new(stream).split(b'\n') {
        let Ok(line) = line else { break };
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if let Some(n) = line.strip_prefix("id: ") {
            id = n.parse().ok();
        } else if line.is_empty()
            && let Some(n) = id.take()
        {
            all.push(n);
            if Some(n) == last {
                break;
            }
        }
    }
    all
}

#[test]
fn a_reader_that_does_not_read_is_dropped_and_resumes_without_a_gap() {
    let daemon = with_history("[http]\nstall_timeout_ms = 200\n");
    let whole = numbers_of_all(&daemon);
    let slow = follow_from(&daemon, 0);
    // Until the daemon closes the connection.
    poll(&mut [PollFd::new(&slow, PollFlags::RDHUP)], None).unwrap();
    let mut seen = numbers(slow, None);
    assert!(!seen.is_empty() && seen.len() < whole.len(), "{} of {}", seen.len(), whole.len());
    seen.extend(numbers(follow_from(&daemon, seen[seen.len() - 1]), whole.last().copied()));
    assert_eq!(seen, whole, "every decision once, in order");
}

/// The number of every decision up to the receipt of the last task, which is the last of all.
fn numbers_of_all(daemon: &TestHome) -> Vec<u64> {
    let last = daemon.client().tasks(&body(json!({"limit": 1}))).unwrap().tasks[0].task_id.to_string();
    let (mut all, mut id) = (Vec::new(), None);
    for line in BufReader::new(follow_from(daemon, 0)).lines() {
        let line = line.unwrap();
        if let Some(n) = line.strip_prefix("id: ") {
            id = n.parse::<u64>().ok();
        } else if line.starts_with("data: ") {
            all.extend(id.take());
            if line.contains("receipt.sealed") && line.contains(&last) {
                break;
            }
        }
    }
    all
}

/// Anonymous memory of the daemon, in KiB.
fn anonymous_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// What readers that do not read cost the daemon, and what is left of that when they have gone, in KiB.
fn cost_of_readers(readers: usize) -> (u64, u64, u64) {
    raise_own_limit();
    let daemon = with_history("[http]\nstall_timeout_ms = 3600000\n");
    let pid = daemon.daemon_pid();
    let before = anonymous_kb(pid);
    let all: Vec<UnixStream> = (0..readers).map(|_| follow_from(&daemon, 0)).collect();
    let waiting = || all.iter().map(|s| rustix::io::ioctl_fionread(s).unwrap()).collect::<Vec<_>>();
    // Each was sent what its socket holds, and nothing has moved since the daemon answered another client.
    let mut last = Vec::new();
    loop {
        let now = waiting();
        if now == last && now.iter().all(|n| *n > 64 * 1024) {
            break;
        }
        last = now;
        daemon.client().lifecycle().unwrap();
    }
    let with = anonymous_kb(pid);
    drop(all);
    // The daemon frees it as they leave; no event tells when. What it keeps for itself does not grow with them.
    let bound = before + 20 * 1024;
    let mut after = anonymous_kb(pid);
    while after > bound {
        daemon.client().lifecycle().unwrap();
        after = anonymous_kb(pid);
    }
    println!("{readers} readers: {before} KiB before, {with} KiB with them, {after} KiB after");
    (before, with, after)
}

#[test]
fn readers_that_do_not_read_cost_little() {
    let (before, with, _) = cost_of_readers(300);
    assert!(with - before < 300 * 64, "{} KiB for 300 readers", with - before);
}

#[test]
#[ignore = "slow: cargo xtask soak"]
fn two_thousand_readers_that_do_not_read_fit_into_a_hundred_megabytes_and_give_them_back() {
    let (before, with, after) = cost_of_readers(2000);
    assert!(with < 100 * 1024, "the daemon has {with} KiB with 2,000 readers");
    assert!(after <= before + 20 * 1024, "{after} KiB are left of {with}");
}

/// Limits a daemon's descriptors; returns the earlier limit.
fn limit_descriptors(pid: u32, current: Option<u64>) -> Rlimit {
    let process = Pid::from_raw(i32::try_from(pid).unwrap());
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = text.lines().find(|l| l.starts_with("Max open files")).unwrap();
    let maximum = line.split_whitespace().nth(4).unwrap().parse().ok();
    prlimit(process, Resource::Nofile, Rlimit { current, maximum }).unwrap()
}

#[test]
fn without_descriptors_no_caller_is_mistaken_for_another() {
    let daemon = TestHome::started(CSN);
    let pid = daemon.daemon_pid();
    let mut person = socket(&daemon);
    assert_eq!(ask(&mut person, "GET /livez HTTP/1.1").unwrap().status, 200, "it is connected and not identified yet");
    // No number below this is free, so the reserve does not help either.
    let had = limit_descriptors(pid, Some(3));
    let told = ask(&mut person, "GET /lifecycle HTTP/1.1").unwrap();
    assert_eq!((told.status, told.code()), (503, Some(RefusalCode::OutOfDescriptors)), "{}", told.body);
    assert!(told.body["hint"].as_str().unwrap().contains("ulimit"), "{}", told.body);
    limit_descriptors(pid, had.current);
    let told = ask(&mut person, "GET /lifecycle HTTP/1.1").unwrap();
    assert_eq!(told.body["you"], "person", "{}", told.body);
    // A client that connects meanwhile is served afterwards.
    limit_descriptors(pid, Some(3));
    let mut waiting = socket(&daemon);
    waiting.write_all(b"GET /lifecycle HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    limit_descriptors(pid, had.current);
    let told = answer(&mut waiting).unwrap();
    assert_eq!((told.status, &told.body["you"]), (200, &json!("person")), "{}", told.body);
}

#[test]
fn with_its_last_descriptors_the_daemon_still_answers_its_owner() {
    let daemon = TestHome::started(CSN);
    let pid = daemon.daemon_pid();
    let had = limit_descriptors(pid, Some(160));
    let follow = || {
        let mut stream = socket(&daemon);
        stream.write_all(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let told = answer(&mut stream).unwrap();
        (stream, told)
    };
    let mut held = Vec::new();
    let refused = loop {
        match follow() {
            (stream, told) if told.status == 200 => held.push(stream),
            (_, told) => break told,
        }
    };
    assert!(held.len() > 20, "{} followers fit", held.len());
    assert_eq!((refused.status, refused.code()), (503, Some(RefusalCode::OutOfDescriptors)), "{}", refused.body);
    for _ in 0..40 {
        let told = ask(&mut socket(&daemon), "GET /lifecycle HTTP/1.1").unwrap();
        assert_eq!((told.status, &told.body["you"]), (200, &json!("person")), "{}", told.body);
    }
    let listed = daemon.csn(&["ps", "--all"]);
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    drop(held);
    // Their descriptors are free once the daemon notices.
    while follow().1.status != 200 {}
    limit_descriptors(pid, had.current);
}

#[test]
fn tasks_have_the_limit_that_the_daemon_was_given() {
    let daemon = TestHome::new(CSN);
    let home = daemon.home().display();
    // The daemon that this starts inherits the limit.
    let started = format!(
        "ulimit -Sn 900; COUNTERSIGN_HOME={home} XDG_CONFIG_HOME={home} exec {CSN} run --quiet --profile full_auto 'ulimit -Sn'"
    );
    let ran = daemon.outside(&["sh", "-c", &started]);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "900\n", "{}", String::from_utf8_lossy(&ran.stderr));
    let text = std::fs::read_to_string(format!("/proc/{}/limits", daemon.client().lifecycle().unwrap().pid)).unwrap();
    let line = text.lines().find(|l| l.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[3], words[4], "the daemon uses every descriptor that it may have");
}
