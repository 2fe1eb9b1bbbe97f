//! The process tree below a shim: finds its processes and ends them.

use crate::sys::user::with_owner_ids;
use countersign_model::MARKER;
use countersign_store::proc;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeSet, HashSet};

/// The descendants of `root`. Zombies do not count: they have ended.
#[must_use]
pub fn descendants(root: u32) -> Vec<u32> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut pending = vec![root];
    while let Some(pid) = pending.pop() {
        for child in children(pid) {
            if seen.insert(child) {
                pending.push(child);
                if is_alive(child) {
                    found.push(child);
                }
            }
        }
    }
    found
}

/// The descendants of `root`, and how many processes and threads they are, including ended ones that were not reaped:
/// each of those still occupies a process number.
#[must_use]
pub fn census(root: u32) -> (Vec<u32>, usize) {
    let (mut found, mut tasks, mut pending) = (Vec::new(), 0, vec![root]);
    while let Some(pid) = pending.pop() {
        let (children, threads) = children_and_threads(pid);
        // The threads of the root are not counted: it is the shim.
        tasks += if pid == root { 0 } else { threads.max(1) };
        found.extend_from_slice(&children);
        pending.extend(children);
    }
    found.sort_unstable();
    found.dedup();
    (found, tasks)
}

/// Whether a descendant of `root` is in this process group.
#[must_use]
pub fn has_group(root: u32, group: Option<u32>) -> bool {
    group.is_some() && descendants(root).into_iter().any(|pid| group_of(pid) == group)
}

/// Signals the descendants of `root` in this process group.
pub fn signal_group(root: u32, group: u32, signal: Signal) -> rustix::io::Result<()> {
    let pin = |pid: u32| {
        let pinned = Pid::from_raw(i32::try_from(pid).ok()?)?;
        Some((pid, pidfd_open(pinned, PidfdFlags::empty()).ok()?))
    };
    let pinned: Vec<_> =
        descendants(root).into_iter().filter(|pid| group_of(*pid) == Some(group)).filter_map(pin).collect();
    // Checked again now that they are pinned: a number may have been reused before.
    let still = descendants(root);
    let mut sent = Err(rustix::io::Errno::SRCH);
    for (pid, pin) in pinned.iter().filter(|(pid, _)| still.contains(pid) && group_of(*pid) == Some(group)) {
        debug_assert!(*pid != root);
        sent = sent.or(pidfd_send_signal(pin, signal));
    }
    sent
}

fn group_of(pid: u32) -> Option<u32> {
    proc::stat(pid).ok()?.group
}

fn children(pid: u32) -> Vec<u32> {
    children_and_threads(pid).0
}

fn children_and_threads(pid: u32) -> (Vec<u32>, usize) {
    proc::children(pid).unwrap_or_default()
}

fn is_alive(pid: u32) -> bool {
    proc::stat(pid).is_ok_and(|stat| stat.is_alive())
}

/// Sends a signal by descriptor, so that a reused pid is not signalled.
fn send(pid: u32, signal: Signal) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    pidfd_send_signal(&fd, signal).is_ok()
}

/// Sends SIGTERM to all descendants of `root`. Stopped processes are continued, so that they can end.
pub fn terminate(root: u32) {
    for pid in descendants(root) {
        send(pid, Signal::TERM);
        send(pid, Signal::CONT);
    }
}

/// Kills all processes that `find` returns, in passes: stop all, so that none can fork, then kill all, until a pass
/// finds none. `reap` reaps dead children. Returns how many were killed, and the survivors.
pub fn kill_all(find: impl Fn() -> Vec<u32>, mut reap: impl FnMut()) -> (u64, Vec<u32>) {
    let mut ended = BTreeSet::new();
    // Processes in an uninterruptible sleep do not die on a signal: give up on them after a bounded number of passes.
    for pass in 0..200 {
        let found = find();
        if found.is_empty() {
            return (ended.len() as u64, Vec::new());
        }
        for pid in &found {
            send(*pid, Signal::STOP);
        }
        for pid in find() {
            send(pid, Signal::KILL);
            ended.insert(pid);
        }
        reap();
        if pass > 4 {
            // The kernel needs a moment to remove killed processes, and sends no event for children of other processes.
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    let survivors = find();
    ended.retain(|pid| !survivors.contains(pid));
    (ended.len() as u64, survivors)
}

/// The processes of a task whose shim has ended, found by marker, session and process group. A process that has changed
/// all three is not found.
#[must_use]
pub fn strays(task: &str, groups: &[u32]) -> Vec<u32> {
    let mut found = Vec::new();
    let Ok(all) = proc::all_pids() else { return found };
    for pid in all {
        let Some(stat) = proc::stat(pid).ok().filter(proc::ProcessStat::is_alive) else { continue };
        let grouped = [stat.group, stat.session].into_iter().flatten().any(|group| groups.contains(&group));
        if grouped || with_owner_ids(pid, || proc::environ(pid)).is_ok_and(|environ| environ.has_value(MARKER, task)) {
            found.push(pid);
        }
    }
    found
}

/// Processes that became descendants of this process because their shim died: all but the fork server and its shims.
#[must_use]
pub fn orphans() -> Vec<u32> {
    let mut found = Vec::new();
    for child in children(std::process::id()).into_iter().filter(|pid| !is_shim(*pid)) {
        if is_alive(child) {
            found.push(child);
        }
        found.extend(descendants(child));
    }
    found
}

/// Whether a process is a shim, by its name.
#[must_use]
pub fn is_shim(pid: u32) -> bool {
    proc::is_shim(pid).unwrap_or(false)
}

/// Reaps dead orphans: children that are neither shims nor alive.
pub fn reap_orphans() {
    for child in children(std::process::id()) {
        let dead = proc::stat(child).is_ok_and(|stat| stat.state == 'Z');
        if dead
            && !is_shim(child)
            && let Some(pid) = i32::try_from(child).ok().and_then(Pid::from_raw)
        {
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process to signal")]
    fn only_processes_below_the_root_are_signalled() {
        use std::os::unix::process::CommandExt as _;
        let mut child = std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let group = child.id();
        // The child has no descendants, so nothing below it is in the group.
        assert_eq!(signal_group(group, group, Signal::KILL), Err(rustix::io::Errno::SRCH));
        assert!(child.try_wait().unwrap().is_none());
        signal_group(std::process::id(), group, Signal::KILL).unwrap();
        assert!(!child.wait().unwrap().success());
    }
}
