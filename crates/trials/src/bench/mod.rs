//! `bench`: measures the daemon and its limits in the same run, in blocks within seconds of each other.

mod agents;
mod approvals;
mod confine;
mod cost;
mod floor;
mod gate;
mod http;
mod load;
mod peers;
pub(crate) mod proxy;
mod readers;
mod receipts;
mod redaction;
mod terminal;

use crate::{Result, build, command};
use load::{LoadTarget, now, percentile};
use std::{
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

/// Runs the floor in this process.
pub(crate) fn floor(socket: &str, dir: &str, durable: bool) -> Result<()> {
    floor::serve(Path::new(socket), Path::new(dir), durable)
}

/// A child process that is killed on drop.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct BenchHome {
    dir: PathBuf,
    daemon: Option<ChildGuard>,
    floor_sync: ChildGuard,
    floor_nosync: ChildGuard,
}

impl BenchHome {
    fn build() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("csn-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
        let floor = |name: &str, kind: &str| -> Result<ChildGuard> {
            let me = std::env::current_exe().map_err(|e| e.to_string())?;
            let mut floor = command(me.to_str().unwrap_or_default());
            floor.arg("floor").arg(dir.join(name)).arg(dir.join(format!("{name}.d"))).arg(kind);
            let running = ChildGuard(floor.spawn().map_err(|e| e.to_string())?);
            wait_until(|| LoadTarget::new(&dir.join(name)).socket.exists())?;
            Ok(running)
        };
        let (floor_sync, floor_nosync) = (floor("sync.sock", "sync")?, floor("nosync.sock", "nosync")?);
        let mut bench = Self { dir, daemon: None, floor_sync, floor_nosync };
        bench.start_daemon()?;
        Ok(bench)
    }

    /// Starts the daemon; returns the seconds until it serves.
    fn start_daemon(&mut self) -> Result<f64> {
        let began = now();
        let mut csn = command(build::output_dir().join("csn").to_str().unwrap_or_default());
        csn.args(["up", "--detached"])
            .env("COUNTERSIGN_HOME", self.home())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = csn.spawn().map_err(|e| e.to_string())?;
        let mut ready = [0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut ready)
            .map_err(|e| format!("the daemon: {e}"))?;
        self.daemon = Some(ChildGuard(child));
        Ok(began.elapsed().as_secs_f64())
    }

    fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    fn daemon(&self) -> LoadTarget {
        LoadTarget::new(&self.home().join("run/csn.sock"))
    }

    fn sync(&self) -> LoadTarget {
        LoadTarget::new(&self.dir.join("sync.sock"))
    }

    fn nosync(&self) -> LoadTarget {
        LoadTarget::new(&self.dir.join("nosync.sock"))
    }

    fn pid(&self) -> u32 {
        self.daemon.as_ref().map_or(0, |h| h.0.id())
    }
}

impl Drop for BenchHome {
    fn drop(&mut self) {
        self.daemon = None;
        let _ = (self.floor_sync.0.kill(), self.floor_nosync.0.kill());
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn wait_until(done: impl Fn() -> bool) -> Result<()> {
    for _ in 0..500 {
        if done() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err("the server did not start in time".to_owned())
}

fn print_row(metric: &str, daemon: String, limit: String, ratio: String) {
    println!("| {metric} | {daemon} | {limit} | {ratio} |");
}

/// A field of /proc/PID/status or smaps_rollup, in KiB. The trials observe the programs from outside and link none of
/// their crates.
fn proc_kib(pid: u32, file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(field));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// Measures, and prints a table. No figure passes or fails.
pub(crate) fn bench_now(only: Option<&str>) -> Result<()> {
    if only.is_none_or(|only| only == "gate") {
        gate::measure_gate()?;
    }
    if only == Some("gate") {
        return Ok(());
    }
    let mut bench = BenchHome::build()?;
    println!("| metric | daemon | limit | ratio |\n|---|---|---|---|");
    type BenchPart = (&'static str, fn(&mut BenchHome));
    let parts: [BenchPart; 16] = [
        ("latency", measure_latency),
        ("approvals", approvals::measure_approvals),
        ("confinement", confine::measure_confinement),
        ("throughput", measure_throughput),
        ("cost", cost::measure_cost),
        ("big", measure_big_output),
        ("redaction", redaction::measure_redaction),
        ("readers", readers::measure_readers),
        ("terminals", terminal::measure_terminals),
        ("searching", terminal::measure_search),
        ("late", terminal::measure_late_attach),
        ("small", measure_small_tasks),
        ("receipts", receipts::measure_receipts),
        ("restart", measure_restart),
        ("agents", agents::measure_agents),
        ("peers", peers::measure_peers),
    ];
    for (_, part) in parts.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        part(&mut bench);
    }
    Ok(())
}

/// The time to start the shim's program, which only the first task pays.
fn measure_shim_start() -> f64 {
    let shim = build::output_dir().join("csn-shim");
    let one = |_| {
        let began = now();
        let mut command = command(shim.to_str().unwrap_or_default());
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        began.elapsed().as_secs_f64() * 1e6
    };
    percentile(&(0..100).map(one).collect::<Vec<_>>(), 0.5)
}

fn measure_latency(bench: &mut BenchHome) {
    let (mut daemon, mut sync) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        daemon.extend(bench.daemon().latency(60));
        sync.extend(bench.sync().latency(60));
    }
    let spawn = measure_shim_start();
    let (h, f) = (percentile(&daemon, 0.5), percentile(&sync, 0.5) + spawn);
    print_row(
        "ask → exit visible, p50",
        format!("{:.2} ms", h / 1e3),
        format!("{:.2} ms (floor-sync + one spawn of {:.2} ms)", f / 1e3, spawn / 1e3),
        format!("{:.2}×", h / f),
    );
    let (h, f) = (percentile(&daemon, 0.99), percentile(&sync, 0.99));
    print_row(
        "ask → exit visible, p99",
        format!("{:.2} ms", h / 1e3),
        format!("{:.2} ms (floor-sync)", f / 1e3),
        format!("{:.2}×", h / f),
    );
}

fn measure_throughput(bench: &mut BenchHome) {
    let (mut daemon, mut nosync, mut sync) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        daemon.push(bench.daemon().throughput(8, 400));
        nosync.push(bench.nosync().throughput(8, 400));
        sync.push(bench.sync().throughput(8, 400));
    }
    let (h, f, s) = (percentile(&daemon, 0.5), percentile(&nosync, 0.5), percentile(&sync, 0.5));
    print_row(
        "tasks/s, 8 clients",
        format!("{h:.0}"),
        format!("{f:.0} (floor-nosync), {s:.0} (floor-sync)"),
        format!("{:.2}×, {:.2}×", h / f, h / s),
    );
}

const GIGABYTE: u64 = 1 << 30;

fn measure_big_output(bench: &mut BenchHome) {
    let command = "head -c 1073741824 /dev/zero";
    let disk_before = file_bytes(&bench.home());
    let (mut daemon, mut sync) = (Vec::new(), Vec::new());
    let (mut id, mut floor_id) = (String::new(), String::new());
    for _ in 0..2 {
        let (i, seconds) = bench.daemon().run_to_end(command);
        (id, daemon) = (i, [daemon, vec![seconds]].concat());
        let (i, seconds) = bench.sync().run_to_end(command);
        (floor_id, sync) = (i, [sync, vec![seconds]].concat());
    }
    let speed = |s: &[f64]| GIGABYTE as f64 / 1e6 / percentile(s, 0.0);
    let (h, f) = (speed(&daemon), speed(&sync));
    print_row(
        "1 GiB over pipes, cleaned and hashed",
        format!("{h:.0} MB/s"),
        format!("{f:.0} MB/s (floor-sync)"),
        format!("{:.2}×", h / f),
    );
    print_row(
        "daemon, peak memory after that",
        format!("{:.1} MB", proc_kib(bench.pid(), "status", "VmHWM:") as f64 / 1e3),
        String::new(),
        String::new(),
    );
    let per_byte = (file_bytes(&bench.home()) - disk_before) as f64 / (daemon.len() as u64 * GIGABYTE) as f64;
    print_row("disk per output byte", format!("{per_byte:.4}"), "1".to_owned(), String::new());
    let total = GIGABYTE / 8;
    let (h, f) = (
        bench.daemon().time_range_reads(&id, total, 64 * 1024),
        bench.sync().time_range_reads(&floor_id, total, 64 * 1024),
    );
    let (h, f) = (percentile(&h, 0.5), percentile(&f, 0.5));
    print_row(
        "verified range read of 64 KiB, p50",
        format!("{h:.0} µs"),
        format!("{f:.0} µs (floor, unverified)"),
        format!("{:.2}×", h / f),
    );
    let (h, f) = (
        bench.daemon().time_range_reads(&id, total, 1 << 20),
        bench.sync().time_range_reads(&floor_id, total, 1 << 20),
    );
    let speed = |v: &[f64]| total as f64 / v.iter().sum::<f64>();
    print_row(
        "verified range reads of 1 MiB",
        format!("{:.0} MB/s", speed(&h)),
        format!("{:.0} MB/s (floor, unverified)", speed(&f)),
        format!("{:.2}×", speed(&h) / speed(&f)),
    );
}

/// The total size of the regular files below a directory.
fn file_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|e| match e.file_type() {
            Ok(t) if t.is_dir() => file_bytes(&e.path()),
            Ok(t) if t.is_file() => e.metadata().map_or(0, |m| m.len()),
            _ => 0,
        })
        .sum()
}

fn measure_small_tasks(bench: &mut BenchHome) {
    let daemon = bench.daemon();
    let mut conn = daemon.connect();
    let id = daemon.ask(&mut conn, "sleep 5");
    let (_, state) = conn.call("GET", &format!("/tasks/{id}"), "", "").expect("an answer");
    let state = String::from_utf8_lossy(&state).into_owned();
    let shim = state.split(r#""shim_pid":"#).nth(1).and_then(|s| s.split([',', '}']).next()?.parse().ok()).unwrap_or(0);
    // Lets the shim become idle.
    std::thread::sleep(Duration::from_millis(200));
    let private = proc_kib(shim, "smaps_rollup", "Private_Clean:") + proc_kib(shim, "smaps_rollup", "Private_Dirty:");
    print_row("idle shim, private memory", format!("{:.2} MB", private as f64 / 1e3), String::new(), String::new());
    daemon.wait_for_end(&id);
    let (before, rss) = (file_bytes(&bench.home()), proc_kib(bench.pid(), "status", "VmRSS:"));
    let n = 2000;
    daemon.throughput(8, n);
    let (after, rss_after) = (file_bytes(&bench.home()), proc_kib(bench.pid(), "status", "VmRSS:"));
    print_row(
        "disk per short task (bytes in files)",
        format!("{:.2} KB", (after - before) as f64 / n as f64 / 1e3),
        String::new(),
        String::new(),
    );
    let kept_kb = rss_after.saturating_sub(rss) as f64 / n as f64;
    print_row("daemon memory kept per finished task", format!("{kept_kb:.2} KB"), String::new(), String::new());
    let after_many = daemon.throughput(8, 400);
    print_row("tasks/s, 8 clients, thousands later", format!("{after_many:.0}"), String::new(), String::new());
    print_row(
        "list page of 50, p50",
        format!("{:.0} µs", percentile(&daemon.time_list_pages(300), 0.5)),
        String::new(),
        String::new(),
    );
    let csn = build::output_dir().join("csn");
    let time = |program: &str, args: &[&str]| {
        let one = |_| {
            let began = now();
            let mut run = command(program);
            run.args(args)
                .env("COUNTERSIGN_HOME", bench.home())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            assert!(run.status().is_ok_and(|s| s.success()), "{program}");
            began.elapsed().as_secs_f64() * 1e3
        };
        percentile(&(0..100).map(one).collect::<Vec<_>>(), 0.5)
    };
    let (cli, bash) = (
        time(csn.to_str().unwrap_or_default(), &["run", "--profile", "full_auto", "true"]),
        time("bash", &["-c", "true"]),
    );
    print_row(
        "csn run true, p50",
        format!("{cli:.2} ms"),
        format!("{bash:.2} ms (bash -c true)"),
        format!("+{:.2} ms", cli - bash),
    );
}

fn measure_restart(bench: &mut BenchHome) {
    bench.daemon = None;
    let mut seconds = Vec::new();
    for _ in 0..5 {
        seconds.push(bench.start_daemon().expect("the daemon starts"));
        bench.daemon = None;
    }
    print_row(
        "restart to serving, some thousand finished",
        format!("{:.1} ms", percentile(&seconds, 0.5) * 1e3),
        String::new(),
        String::new(),
    );
    // The parts that follow need a daemon.
    bench.start_daemon().expect("the daemon starts");
}
