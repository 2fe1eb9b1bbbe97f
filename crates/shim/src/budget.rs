//! Limits what a read-only task uses of the machine: processes, memory, and disk space in its TMPDIR. The kernel sends
//! no event when a task exceeds one of these, so the shim counts at intervals.

use crate::{lifecycle::StopCause, sandbox, sys::user::with_user_ids, tree};
use countersign_model::TaskUser;
use countersign_store::proc;
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Processes and threads at one time, including dead ones that nobody has reaped.
pub(crate) const MAX_PROCESSES: usize = 256;
/// What a task may keep in its TMPDIR, in bytes and in files.
const MAX_TEMPORARY_BYTES: u64 = 1024 * 1024 * 1024;
const MAX_TEMPORARY_FILES: usize = 20_000;
/// The interval between two counts. A process can fork a few hundred times in it.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// The interval once a task has more than [`CROWDED_PROCESSES`].
const CROWDED_CHECK_INTERVAL: Duration = Duration::from_millis(4);
const CROWDED_PROCESSES: usize = MAX_PROCESSES / 4;
/// The kernel's process limit counts all processes and threads of a user. This many more than the whole machine has now
/// are left for what the user starts outside of the task.
const SPARE_USER_PROCESSES: u64 = 384;
/// Only every fifth check counts memory and files: that costs more, and they grow more slowly.
const CHECKS_PER_MEMORY_CHECK: u32 = 5;

pub(crate) struct Budget {
    due: Instant,
    rounds: u32,
    temporary: PathBuf,
    /// The owner of `temporary`; none is the shim's own user.
    user: Option<TaskUser>,
    /// The available memory of the machine at the first check.
    available_at_start: Option<u64>,
}

impl Budget {
    pub(crate) fn new(now: Instant, temporary: PathBuf, login: Option<TaskUser>) -> Self {
        Self { due: now + CHECK_INTERVAL, rounds: 0, temporary, user: login, available_at_start: None }
    }

    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// The limit that the task exceeds, if a check is due.
    pub(crate) fn find_exceeded(&mut self, now: Instant) -> Option<(StopCause, u64)> {
        if now < self.due {
            return None;
        }
        self.due = now + CHECK_INTERVAL;
        self.rounds += 1;
        let (all, tasks) = tree::census(std::process::id());
        if tasks > MAX_PROCESSES {
            return Some((StopCause::Processes, MAX_PROCESSES as u64));
        }
        if tasks > CROWDED_PROCESSES {
            self.due = now + CROWDED_CHECK_INTERVAL;
        }
        if !self.rounds.is_multiple_of(CHECKS_PER_MEMORY_CHECK) {
            return None;
        }
        let (total, available) = machine_memory();
        // Never more than half of the machine's memory.
        let max_bytes = (total / 2).min(sandbox::MAX_MEMORY_BYTES);
        let own_bytes: u64 = all.iter().map(|pid| private_memory_bytes(*pid)).sum();
        // Memory that the kernel allocates on behalf of a process appears in no process's account. If the machine has
        // lost more than the task may use and is short of memory, the task is stopped: it can be run again.
        let at_start = *self.available_at_start.get_or_insert(available);
        let machine_is_short = at_start.saturating_sub(available) > max_bytes && available < total / 4;
        if own_bytes > max_bytes || machine_is_short {
            return Some((StopCause::Memory, max_bytes));
        }
        let usage = with_user_ids(self.user.as_ref(), || directory_usage(&self.temporary));
        let (bytes, files) = usage.unwrap_or_default();
        (bytes > MAX_TEMPORARY_BYTES || files > MAX_TEMPORARY_FILES)
            .then_some((StopCause::Temporary, MAX_TEMPORARY_BYTES))
    }
}

/// How many processes and threads the task's user may have in all, for the kernel to enforce. The shim's own count
/// comes a few milliseconds late; this limit does not, but it applies to users instead of tasks and does not bind root.
/// None if the kernel does not report how many there are.
pub(crate) fn user_process_limit() -> Option<u64> {
    // The user cannot have more than the whole machine has.
    Some(proc::thread_count().ok()?.saturating_add(SPARE_USER_PROCESSES))
}

/// The memory of a process without the files that it maps.
fn private_memory_bytes(pid: u32) -> u64 {
    let Ok(status) = proc::status(pid) else { return 0 };
    ["RssAnon", "RssShmem", "VmSwap", "VmPTE"].iter().map(|name| status.bytes(name)).sum()
}

/// The total and the available memory of the machine.
fn machine_memory() -> (u64, u64) {
    match proc::memory().map(|all| (all.bytes("MemTotal"), all.bytes("MemAvailable"))) {
        Ok((total, available)) if total > 0 => (total, available),
        _ => (u64::MAX, u64::MAX),
    }
}

/// Bytes and files below a directory. Stops counting once there are too many files.
fn directory_usage(directory: &Path) -> (u64, usize) {
    let (mut bytes, mut files, mut pending) = (0, 0, vec![directory.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            files += 1;
            match entry.metadata() {
                Ok(m) if m.is_dir() => pending.push(entry.path()),
                Ok(m) => bytes += std::os::unix::fs::MetadataExt::blocks(&m) * 512,
                Err(_) => {}
            }
            if files > MAX_TEMPORARY_FILES {
                return (bytes, files);
            }
        }
    }
    (bytes, files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_memory_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/b"), vec![1; 100_000]).unwrap();
        let (bytes, files) = directory_usage(dir.path());
        assert!((100_000..200_000).contains(&bytes) && files == 2, "{bytes} {files}");
        let (total, available) = machine_memory();
        assert!(available <= total && total > 1 << 20);
        assert!(private_memory_bytes(std::process::id()) > 100_000);
        assert!(user_process_limit().unwrap() > SPARE_USER_PROCESSES);
    }
}
