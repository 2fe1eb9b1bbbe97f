//! Measures how much 200 readers of a task's events slow the task down: pairs of one task without and with them.

use super::{
    BenchHome,
    confine::json_number,
    load::{LoadTarget, percentile},
    print_row,
};
use std::thread;

const READERS: usize = 200;
const PAIRS: usize = 15;

/// Microseconds from the running process to its end.
fn run_with_readers(daemon: &LoadTarget, command: &str, readers: usize) -> f64 {
    let events_of = |id: &str| format!("/tasks/{id}/events");
    // The readers are connected and ask all at once, when the task begins.
    let connections: Vec<_> = (0..readers).map(|_| daemon.connect()).collect();
    let id = daemon.ask(&mut daemon.connect(), command);
    thread::scope(|scope| {
        for mut connection in connections {
            let id = &id;
            let read = move || connection.read_events(&events_of(id), "event: end").expect("the stream ends");
            thread::Builder::new().stack_size(64 * 1024).spawn_scoped(scope, read).expect("a thread");
        }
    });
    let (mut spawned, mut ended) = (0.0, 0.0);
    daemon.connect().read_lines(&events_of(&id), |line| {
        if line.contains(r#""kind":"process.spawned""#) {
            spawned = json_number(line, "t_us").unwrap_or_default();
        }
        if line.contains(r#""kind":"process.exited""#) {
            ended = json_number(line, "duration_us").unwrap_or_default();
        }
        !line.starts_with("event: end")
    });
    ended - spawned
}

/// The processor time that a process has used. The kernel counts it in hundredths of a second.
fn cpu_ms(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    10.0 * fields.skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum::<f64>()
}

pub(super) fn measure_readers(bench: &mut BenchHome) {
    let daemon = bench.daemon();
    for (what, command) in [
        ("a task that prints 45 MB at once", "yes some line of output that is typical | head -c 45000000"),
        ("a task that prints 100 lines a second", "for i in $(seq 70); do echo $i; sleep 0.01; done"),
        ("a task that uses a core", "for ((i = 0; i < 250000; i++)); do :; done"),
    ] {
        let (mut alone, mut read, mut serving_ms) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..PAIRS {
            alone.push(run_with_readers(&daemon, command, 0));
            let before = cpu_ms(bench.pid());
            read.push(run_with_readers(&daemon, command, READERS));
            serving_ms += cpu_ms(bench.pid()) - before;
        }
        let slower = |p| 100.0 * (percentile(&read, p) / percentile(&alone, p) - 1.0);
        print_row(
            &format!("{what}, with {READERS} readers, p50"),
            format!(
                "{:.0} ms; the daemon uses {:.0} ms of a processor",
                percentile(&read, 0.5) / 1e3,
                serving_ms / PAIRS as f64
            ),
            format!("{:.0} ms (without readers)", percentile(&alone, 0.5) / 1e3),
            format!("{:+.0} % (quartiles {:+.0}, {:+.0} %)", slower(0.5), slower(0.25), slower(0.75)),
        );
    }
}
