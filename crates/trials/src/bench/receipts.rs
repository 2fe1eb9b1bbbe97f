//! Measures receipts: the time from the visible exit to the sealed receipt, the speed of verification, and the time
//! that the daemon takes to stop.

use super::{
    BenchHome, build,
    load::{now, percentile},
    print_row,
};
use crate::command;
use std::process::Stdio;

const RECEIPTS: usize = 10_000;
const GIGABYTE: u64 = 1 << 30;

pub(super) fn measure_receipts(bench: &mut BenchHome) {
    let daemon = bench.daemon();
    let mut conn = daemon.connect();
    let one = |_| {
        let id = daemon.ask(&mut conn, "true");
        let path = format!("/tasks/{id}/events");
        daemon.connect().read_events(&path, r#""kind":"task.settled""#).expect("it settles");
        let settled = now();
        daemon.connect().read_events(&path, r#""kind":"receipt.sealed""#).expect("it is sealed");
        settled.elapsed().as_secs_f64() * 1e6
    };
    let after: Vec<f64> = (0..200).map(one).collect();
    print_row(
        "exit visible → receipt seen by the same client, p50 (p99)",
        format!("{:.2} ms ({:.2})", percentile(&after, 0.5) / 1e3, percentile(&after, 0.99) / 1e3),
        String::new(),
        String::new(),
    );
    daemon.throughput(8, RECEIPTS);
    // Not a read-only command: less is kept of those.
    let (id, _) = daemon.run_to_end("head -c 1073741824 /dev/zero; touch /tmp/csn-bench");
    daemon.wait_for_receipt(&id);
    let csn = build::output_dir().join("csn").display().to_string();
    let home = bench.home();
    let timed = |program: &str, args: &[&str]| {
        let began = now();
        let mut run = command(program);
        run.args(args).env("COUNTERSIGN_HOME", &home).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(run.status().is_ok_and(|s| s.success()), "{program} {args:?}");
        began.elapsed().as_secs_f64()
    };
    let best = |program: &str, args: &[&str]| (0..3).map(|_| timed(program, args)).fold(f64::MAX, f64::min);
    let rows = best(&csn, &["verify", "--receipts-only"]);
    let limit = "2 s".to_owned();
    print_row("verify 10,200 receipts, their chain and the ledger", format!("{rows:.2} s"), limit, String::new());
    let task = task_output_path(&home, &id);
    let (ours, theirs) = (best(&csn, &["verify", &id]), best("openssl", &["dgst", "-sha256", &task]));
    assert_eq!(std::fs::metadata(&task).map_or(0, |m| m.len()), GIGABYTE, "all of it was kept");
    let speed = |seconds: f64| GIGABYTE as f64 / 1e6 / seconds;
    print_row(
        "verify a task of 1 GiB: SHA-256 and every chunk",
        format!("{:.0} MB/s", speed(ours)),
        format!("{:.0} MB/s (openssl dgst -sha256)", speed(theirs)),
        format!("{:.2}×", theirs / ours),
    );
    let whole = best(&csn, &["verify"]);
    print_row("verify all of it, files too", format!("{whole:.2} s"), String::new(), String::new());
    let mut downs = Vec::new();
    for _ in 0..5 {
        downs.push(timed(&csn, &["down"]) * 1e3);
        bench.daemon = None;
        bench.start_daemon().expect("the daemon starts");
    }
    print_row(
        "csn down with no task, p50",
        format!("{:.0} ms", percentile(&downs, 0.5)),
        "200 ms".to_owned(),
        String::new(),
    );
}

fn task_output_path(home: &std::path::Path, id: &str) -> String {
    let shard: String = id.trim_start_matches("tk_").chars().take(6).collect();
    home.join("tasks").join(shard).join(id).join("stdout.log").display().to_string()
}
