//! Measures what a short task costs: processor time of the daemon and of everything that it starts, and the memory
//! that the daemon keeps. The floor runs the same load beside it.

use super::{BenchHome, load::LoadTarget, print_row, proc_kib};
use std::{
    fs,
    path::{Path, PathBuf},
};

const TASKS: usize = 2000;
/// The clock ticks in a second that /proc counts in; the same on every Linux system.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn measure_cost(bench: &mut BenchHome) {
    // The daemon starts again, inside the group: what it starts is inside as well.
    bench.daemon = None;
    let group = ControlGroup::new();
    let mut start = || bench.start_daemon().expect("the daemon starts");
    match &group {
        Some(group) => group.hold(start),
        None => start(),
    };
    let (daemon, pid) = (bench.daemon(), bench.pid());
    // The caches fill before anything is counted.
    daemon.throughput(8, TASKS / 4);
    for (load, run) in LOADS {
        let (own, all, kept) = (cpu_ms(pid, Children::Left), group.as_ref().map(ControlGroup::cpu_ms), kept_kib(pid));
        run(&daemon);
        // Receipts are made in order: with the last one, all are.
        daemon.wait_for_receipt(&daemon.ask(&mut daemon.connect(), "true"));
        let own = (cpu_ms(pid, Children::Left) - own) / TASKS as f64;
        let all = group.as_ref().zip(all).map(|(group, before)| (group.cpu_ms() - before) / TASKS as f64);
        let kept = (kept_kib(pid) - kept) / TASKS as f64;
        let floor_pid = bench.floor_nosync.0.id();
        let floor = cpu_ms(floor_pid, Children::Counted);
        run(&bench.nosync());
        let floor = (cpu_ms(floor_pid, Children::Counted) - floor) / TASKS as f64;
        print_row(&format!("daemon, CPU per task, {load}"), format!("{own:.2} ms"), String::new(), String::new());
        print_row(
            &format!("daemon, fork server, supervisors and commands, CPU per task, {load}"),
            all.map_or_else(|| "needs a control group".to_owned(), |all| format!("{all:.2} ms")),
            format!("{floor:.2} ms (floor-nosync and its commands)"),
            all.map(|all| format!("{:.2}×", all / floor)).unwrap_or_default(),
        );
        print_row(
            &format!("daemon, memory kept per finished task, {load}"),
            format!("{kept:.2} KB"),
            String::new(),
            String::new(),
        );
    }
    // A group can be removed when nothing is in it any more.
    bench.daemon = None;
    drop(group);
    bench.start_daemon().expect("the daemon starts");
}

type Load = (&'static str, fn(&LoadTarget));

const LOADS: [Load; 2] = [
    ("8 clients that poll", |target| {
        target.throughput(8, TASKS);
    }),
    ("1 client that follows", |target| {
        target.latency(TASKS);
    }),
];

#[derive(PartialEq)]
enum Children {
    Left,
    Counted,
}

/// The processor time of a process, with or without the children that it waited for.
fn cpu_ms(pid: u32, children: Children) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program may contain spaces and ends with the last parenthesis; the state follows it.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<f64> = fields.skip(11).take(4).filter_map(|ticks| ticks.parse().ok()).collect();
    let counted = if children == Children::Counted { &ticks[..] } else { &ticks[..2.min(ticks.len())] };
    counted.iter().sum::<f64>() * 1e3 / TICKS_PER_SECOND
}

/// Memory that no file holds.
fn kept_kib(pid: u32) -> f64 {
    proc_kib(pid, "status", "RssAnon:") as f64
}

/// A control group. Only it can count the supervisors: the fork server does not wait for them, so no process shows the
/// time that they used.
struct ControlGroup(PathBuf);

impl ControlGroup {
    /// None if this user may not make one.
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mount = mounts.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [_, at, "cgroup2", ..] => Some(Path::new(at)),
            _ => None,
        })?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let group = Self(mount.join(own).join(format!("csn-bench-{}", std::process::id())));
        fs::create_dir(&group.0).ok()?;
        Some(group)
    }

    /// Does something with this process in the group, so that what it starts is in the group and stays there.
    fn hold<T>(&self, act: impl FnOnce() -> T) -> T {
        let enter = |group: &Path| fs::write(group.join("cgroup.procs"), std::process::id().to_string());
        let _ = enter(&self.0);
        let done = act();
        let _ = self.0.parent().map(enter);
        done
    }

    fn cpu_ms(&self) -> f64 {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).unwrap_or_default();
        let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse::<f64>().ok());
        micros.unwrap_or(f64::NAN) / 1e3
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = super::wait_until(|| fs::remove_dir(&self.0).is_ok());
    }
}
