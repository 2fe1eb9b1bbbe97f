//! The load client: times the same calls against any server on a unix socket.

use super::http::Conn;
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

/// A server under load: the daemon or the floor.
#[derive(Clone)]
pub(crate) struct LoadTarget {
    pub(crate) socket: PathBuf,
}

const SETTLED_EVENT: &str = r#""kind":"task.settled""#;
const SEALED_EVENT: &str = r#""kind":"receipt.sealed""#;

impl LoadTarget {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    pub(crate) fn connect(&self) -> Conn {
        Conn::open(&self.socket).expect("the subject listens")
    }

    /// Requests a command; returns the task id.
    pub(crate) fn ask(&self, conn: &mut Conn, command: &str) -> String {
        let body = format!(r#"{{"tool":"shell","args":{{"command":"{command}","cwd":"/tmp"}},"profile":"full_auto"}}"#);
        let (status, answer) =
            conn.call("POST", "/tasks", "content-type: application/json\r\n", &body).expect("an answer");
        let answer = String::from_utf8_lossy(&answer);
        assert!(status < 300, "{status} {answer}");
        let id = answer.split(r#""task_id":""#).nth(1).and_then(|rest| rest.split('"').next());
        id.expect("an answer names its task").to_owned()
    }

    pub(crate) fn wait_for_end(&self, id: &str) {
        self.connect().read_events(&format!("/tasks/{id}/events"), SETTLED_EVENT).expect("the stream ends");
    }

    pub(crate) fn wait_for_receipt(&self, id: &str) {
        self.connect().read_events(&format!("/tasks/{id}/events"), SEALED_EVENT).expect("it is sealed");
    }

    /// The time from the request to the exit visible over SSE, in sequence, in microseconds.
    pub(crate) fn latency(&self, n: usize) -> Vec<f64> {
        let mut conn = self.connect();
        let one = |_| {
            let mut events = self.connect();
            let began = now();
            let id = self.ask(&mut conn, "true");
            events.read_events(&format!("/tasks/{id}/events"), SETTLED_EVENT).expect("the stream ends");
            began.elapsed().as_secs_f64() * 1e6
        };
        (0..n).map(one).collect()
    }

    /// Tasks per second with `clients` that each request a task, poll until its end, and repeat.
    pub(crate) fn throughput(&self, clients: usize, n: usize) -> f64 {
        let next = AtomicUsize::new(0);
        let began = now();
        thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    let mut conn = self.connect();
                    while next.fetch_add(1, Ordering::Relaxed) < n {
                        let id = self.ask(&mut conn, "true");
                        while !self.has_ended(&mut conn, &id) {
                            thread::sleep(Duration::from_micros(200));
                        }
                    }
                });
            }
        });
        n as f64 / began.elapsed().as_secs_f64()
    }

    fn has_ended(&self, conn: &mut Conn, id: &str) -> bool {
        let (_, answer) = conn.call("GET", &format!("/tasks/{id}"), "", "").expect("an answer");
        !answer.windows(18).any(|w| w == br#""status":"running""#)
    }

    /// Runs one command to its end; returns its id and the seconds that it took.
    pub(crate) fn run_to_end(&self, command: &str) -> (String, f64) {
        let began = now();
        let id = self.ask(&mut self.connect(), command);
        self.wait_for_end(&id);
        (id, began.elapsed().as_secs_f64())
    }

    /// Range reads of `size` over the first `total` bytes, in microseconds each.
    pub(crate) fn time_range_reads(&self, id: &str, total: u64, size: u64) -> Vec<f64> {
        let mut conn = self.connect();
        let accept = "accept: application/octet-stream\r\n";
        let one = |offset: u64| {
            let path = format!("/tasks/{id}/output?stream=stdout&offset_bytes={offset}&max_bytes={size}");
            let began = now();
            let (status, bytes) = conn.call("GET", &path, accept, "").expect("an answer");
            assert!(status < 300 && bytes.len() as u64 == size, "{status}: {} bytes", bytes.len());
            began.elapsed().as_secs_f64() * 1e6
        };
        (0..total / size).map(|n| n * size).map(one).collect()
    }

    /// List pages, in microseconds each.
    pub(crate) fn time_list_pages(&self, n: usize) -> Vec<f64> {
        let mut conn = self.connect();
        let one = |_| {
            let began = now();
            let (status, _) = conn.call("GET", "/tasks", "", "").expect("an answer");
            assert!(status < 300);
            began.elapsed().as_secs_f64() * 1e6
        };
        (0..n).map(one).collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn percentile(values: &[f64], p: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(((sorted.len().max(1) - 1) as f64 * p) as usize).copied().unwrap_or(f64::NAN)
}
