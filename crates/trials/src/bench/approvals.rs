//! Measures approvals: the time until another client sees one, the time from the answer to the running process, and
//! the cost of many grants.

use super::{
    BenchHome,
    http::Conn,
    load::{LoadTarget, now, percentile},
    print_row,
};
use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

const ROUNDS: usize = 200;
const GRANT_COUNT: usize = 10_000;
const WAITING_COUNT: usize = 1_000;

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

/// Waits until a line of the stream contains `part`; returns the time.
fn wait_for_line(daemon: &LoadTarget, path: &str, part: &str) -> Instant {
    daemon.connect().read_events(path, part).expect("the stream goes on");
    now()
}

fn micros_between(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e6
}

pub(super) fn measure_approvals(bench: &mut BenchHome) {
    let daemon = bench.daemon();
    let at_first = measure_answers(&daemon);
    measure_decisions(&daemon, "decision (POST /check), p50 (p99), nothing granted");
    let slowest = add_grants_and_approvals(&daemon);
    measure_decisions(&daemon, "decision, p50 (p99), 10,000 grants and 1,000 approvals");
    measure_pages(&daemon);
    let mut conn = daemon.connect();
    let asked: Vec<f64> = (0..100).map(|n| measure_spawn(&daemon, &mut conn, n)).collect();
    let asked = percentile(&asked, 0.5);
    print_row(
        "ask → spawn seen, with all of that, p50",
        format!("{:.2} ms", asked / 1e3),
        format!("{:.2} ms (before)", at_first / 1e3),
        format!("{:.2}×", asked / at_first),
    );
    print_row("a grant saved, slowest of 10,000", format!("{:.1} ms", slowest / 1e3), String::new(), String::new());
}

/// The time from the request of an allowed command to its visible process.
fn measure_spawn(daemon: &LoadTarget, conn: &mut Conn, n: usize) -> f64 {
    let began = now();
    let asked = post(conn, "/tasks", &request(&format!("true {n}"), "full_auto"));
    let task = field(&asked, "task_id");
    let seen = wait_for_line(daemon, &format!("/tasks/{task}/events"), "process.spawned");
    daemon.wait_for_end(&task);
    micros_between(began, seen)
}

/// Requests, sees the approval on another connection, and answers it; in between, requests allowed commands and
/// returns their median.
fn measure_answers(daemon: &LoadTarget) -> f64 {
    let mut conn = daemon.connect();
    let (send, lines) = mpsc::channel();
    let watcher = daemon.connect();
    std::thread::spawn(move || {
        watcher.read_lines("/approvals/events", |line| send.send((line.to_owned(), now())).is_ok())
    });
    let (mut visible, mut answered, mut allowed) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..ROUNDS {
        let began = now();
        let asked = post(&mut conn, "/tasks", &request(&format!("true {n} > /dev/null; make -v {n}"), "safe"));
        let (task, approval) = (field(&asked, "task_id"), field(&asked, "approval_id"));
        let shown = loop {
            let (line, at) = lines.recv_timeout(Duration::from_secs(10)).expect("the approval is shown");
            if line.contains(&approval) {
                break at;
            }
        };
        visible.push(micros_between(began, shown));
        let began = now();
        post(&mut conn, &format!("/approvals/{approval}"), r#"{"choice":"once"}"#);
        answered
            .push(micros_between(began, wait_for_line(daemon, &format!("/tasks/{task}/events"), "process.spawned")));
        daemon.wait_for_end(&task);
        allowed.push(measure_spawn(daemon, &mut conn, n));
    }
    print_row(
        "ask → approval seen by a second client, p50 (p99)",
        format!("{:.2} ms ({:.2})", percentile(&visible, 0.5) / 1e3, percentile(&visible, 0.99) / 1e3),
        "10 ms".to_owned(),
        String::new(),
    );
    let (a, b) = (percentile(&answered, 0.5), percentile(&allowed, 0.5));
    print_row(
        "answer → spawn seen, p50",
        format!("{:.2} ms", a / 1e3),
        format!("{:.2} ms (allowed without approval)", b / 1e3),
        format!("{:+.2} ms", (a - b) / 1e3),
    );
    b
}

/// Adds many grants and approvals; returns the time of the slowest grant.
fn add_grants_and_approvals(daemon: &LoadTarget) -> f64 {
    let mut conn = daemon.connect();
    let mut slowest: f64 = 0.0;
    for n in 0..GRANT_COUNT {
        let began = now();
        // Half of the grants are for one verb.
        let verb = if n % 2 == 0 { "make".to_owned() } else { format!("tool{n}x") };
        post(&mut conn, "/grants", &format!(r#"{{"verb":"{verb}","directory":"/srv/p{n}/x"}}"#));
        slowest = slowest.max(micros_between(began, now()));
    }
    for n in 0..WAITING_COUNT {
        post(&mut conn, "/tasks", &request(&format!("touch /tmp/never-{n}"), "safe"));
    }
    slowest
}

fn measure_pages(daemon: &LoadTarget) {
    let mut conn = daemon.connect();
    for (name, path) in [
        ("page of 100 grants, p50", "/grants?limit=100"),
        ("page of 100 approvals, p50", "/approvals?all=true&limit=100"),
        ("page of cards, p50", "/approvals"),
    ] {
        let one = |_| {
            let began = now();
            conn.call("GET", path, "", "").expect("an answer");
            micros_between(began, now())
        };
        let all: Vec<f64> = (0..50).map(one).collect();
        print_row(name, format!("{:.2} ms", percentile(&all, 0.5) / 1e3), String::new(), String::new());
    }
}

fn measure_decisions(daemon: &LoadTarget, name: &str) {
    let mut conn = daemon.connect();
    let one = |n: usize| {
        let body = request(&format!("git status && make -j2 t{n} && git push"), "safe");
        let began = now();
        post(&mut conn, "/check", &body);
        began.elapsed().as_secs_f64() * 1e6
    };
    let all: Vec<f64> = (0..500).map(one).collect();
    print_row(
        name,
        format!("{:.2} ms ({:.2})", percentile(&all, 0.5) / 1e3, percentile(&all, 0.99) / 1e3),
        "1 ms".to_owned(),
        String::new(),
    );
}
