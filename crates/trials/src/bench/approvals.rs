//! Asking and answering: how soon a question is seen elsewhere, how soon an answer runs, and what many grants cost.

use super::{
    BenchHome,
    http::Conn,
    load::{LoadTarget, now, percentile},
    row,
};
use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

const ROUNDS: usize = 200;
const GRANTS: usize = 10_000;
const WAITING: usize = 1_000;

fn field(answer: &[u8], name: &str) -> String {
    let text = String::from_utf8_lossy(answer);
    let found = text.split(&format!(r#""{name}":""#)).nth(1).and_then(|rest| rest.split('"').next());
    found.unwrap_or_default().to_owned()
}

fn post(conn: &mut Conn, path: &str, body: &str) -> Vec<u8> {
    let (status, answer) = conn.call("POST", path, "content-type: application/json\r\n", body).expect("an answer");
    assert!(status < 300, "{path}: {status} {}", String::from_utf8_lossy(&answer));
    answer
}

fn request(command: &str, profile: &str) -> String {
    format!(r#"{{"tool":"shell","args":{{"command":"{command}","cwd":"/tmp"}},"profile":"{profile}"}}"#)
}

/// When a line of the stream that holds `part` was seen.
fn seen(daemon: &LoadTarget, path: &str, part: &str) -> Instant {
    daemon.conn().events(path, part).expect("the stream goes on");
    now()
}

fn us(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e6
}

pub(super) fn approvals(stand: &mut BenchHome) {
    let daemon = stand.daemon();
    let at_first = questions(&daemon);
    decisions(&daemon, "decision (POST /check), p50 (p99), nothing granted");
    let slowest = fill(&daemon);
    decisions(&daemon, "the same, 10,000 grants and 1,000 questions");
    pages(&daemon);
    let mut conn = daemon.conn();
    let asked: Vec<f64> = (0..100).map(|n| spawn_seen(&daemon, &mut conn, n)).collect();
    let asked = percentile(&asked, 0.5);
    row(
        "ask → spawn seen, with all of that, p50",
        format!("{:.2} ms", asked / 1e3),
        format!("{:.2} ms (before)", at_first / 1e3),
        format!("{:.2}×", asked / at_first),
    );
    row("a grant saved, slowest of 10,000", format!("{:.1} ms", slowest / 1e3), String::new(), String::new());
}

/// How long a command that is allowed at once takes from being asked for to its process being seen.
fn spawn_seen(daemon: &LoadTarget, conn: &mut Conn, n: usize) -> f64 {
    let began = now();
    let asked = post(conn, "/tasks", &request(&format!("true {n}"), "full_auto"));
    let task = field(&asked, "task_id");
    let seen = seen(daemon, &format!("/tasks/{task}/events"), "process.spawned");
    daemon.ends(&task);
    us(began, seen)
}

/// Asks, sees the question elsewhere, answers; beside it what is allowed at once, whose median is given back.
fn questions(daemon: &LoadTarget) -> f64 {
    let mut conn = daemon.conn();
    let (send, lines) = mpsc::channel();
    let watcher = daemon.conn();
    std::thread::spawn(move || watcher.lines("/approvals/events", |line| send.send((line.to_owned(), now())).is_ok()));
    let (mut visible, mut answered, mut allowed) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..ROUNDS {
        let began = now();
        let asked = post(&mut conn, "/tasks", &request(&format!("true {n} > /dev/null; make -v {n}"), "safe"));
        let (task, approval) = (field(&asked, "task_id"), field(&asked, "approval_id"));
        let shown = loop {
            let (line, at) = lines.recv_timeout(Duration::from_secs(10)).expect("the question is shown");
            if line.contains(&approval) {
                break at;
            }
        };
        visible.push(us(began, shown));
        let began = now();
        post(&mut conn, &format!("/approvals/{approval}"), r#"{"choice":"once"}"#);
        answered.push(us(began, seen(daemon, &format!("/tasks/{task}/events"), "process.spawned")));
        daemon.ends(&task);
        allowed.push(spawn_seen(daemon, &mut conn, n));
    }
    row(
        "ask → question seen by a second client, p50 (p99)",
        format!("{:.2} ms ({:.2})", percentile(&visible, 0.5) / 1e3, percentile(&visible, 0.99) / 1e3),
        "10 ms".to_owned(),
        String::new(),
    );
    let (a, b) = (percentile(&answered, 0.5), percentile(&allowed, 0.5));
    row(
        "answer → spawn seen, p50",
        format!("{:.2} ms", a / 1e3),
        format!("{:.2} ms (allowed at once)", b / 1e3),
        format!("{:+.2} ms", (a - b) / 1e3),
    );
    b
}

/// Many grants and many questions. Gives how long the slowest grant took.
fn fill(daemon: &LoadTarget) -> f64 {
    let mut conn = daemon.conn();
    let mut slowest: f64 = 0.0;
    for n in 0..GRANTS {
        let began = now();
        // Half of them for one verb.
        let verb = if n % 2 == 0 { "make".to_owned() } else { format!("tool{n}x") };
        post(&mut conn, "/grants", &format!(r#"{{"verb":"{verb}","directory":"/srv/p{n}/x"}}"#));
        slowest = slowest.max(us(began, now()));
    }
    for n in 0..WAITING {
        post(&mut conn, "/tasks", &request(&format!("touch /tmp/never-{n}"), "safe"));
    }
    slowest
}

fn pages(daemon: &LoadTarget) {
    let mut conn = daemon.conn();
    for (name, path) in [
        ("page of 100 grants, p50", "/grants?limit=100"),
        ("page of 100 questions, p50", "/approvals?all=true&limit=100"),
        ("page of cards, p50", "/approvals"),
    ] {
        let one = |_| {
            let began = now();
            conn.call("GET", path, "", "").expect("an answer");
            us(began, now())
        };
        let all: Vec<f64> = (0..50).map(one).collect();
        row(name, format!("{:.2} ms", percentile(&all, 0.5) / 1e3), String::new(), String::new());
    }
}

fn decisions(daemon: &LoadTarget, name: &str) {
    let mut conn = daemon.conn();
    let one = |n: usize| {
        let body = request(&format!("git status && make -j2 t{n} && git push"), "safe");
        let began = now();
        post(&mut conn, "/check", &body);
        began.elapsed().as_secs_f64() * 1e6
    };
    let all: Vec<f64> = (0..500).map(one).collect();
    row(
        name,
        format!("{:.2} ms ({:.2})", percentile(&all, 0.5) / 1e3, percentile(&all, 0.99) / 1e3),
        "1 ms".to_owned(),
        String::new(),
    );
}
