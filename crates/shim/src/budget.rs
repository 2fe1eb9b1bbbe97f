//! What a read-only task may use of the machine: so many processes, so much memory, so much of its TMPDIR. Nothing tells us when
//! it has more, so it is looked at.

use crate::{lifecycle::StopCause, sandbox, sys::user::with_user_ids, tree};
use countersign_model::TaskUser;
use countersign_store::proc;
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Processes and threads at once, the dead that nobody has taken away among them.
pub(crate) const PROCESSES: usize = 256;
/// What may lie in its TMPDIR, in bytes and in files.
const TEMPORARY: u64 = 1024 * 1024 * 1024;
const FILES: usize = 20_000;
/// How often they are counted. A machine forks a few hundred times in this.
const EVERY: Duration = Duration::from_millis(20);
/// How often when there are many already.
const SOON: Duration = Duration::from_millis(4);
const MANY: usize = PROCESSES / 4;
/// The kernel counts all processes and threads of a user together: so many more than the whole machine has are left for whatever
/// else the user starts meanwhile.
const SPARE: u64 = 384;
/// Memory and files are looked at every so many times: that costs more, and they grow more slowly.
const RARELY: u32 = 5;

pub(crate) struct Budget {
    due: Instant,
    rounds: u32,
    temporary: PathBuf,
    /// Whose that is.
    login: Option<TaskUser>,
    /// What the machine had left when we first looked.
    had: Option<u64>,
}

impl Budget {
    pub(crate) fn new(now: Instant, temporary: PathBuf, login: Option<TaskUser>) -> Self {
        Self { due: now + EVERY, rounds: 0, temporary, login, had: None }
    }

    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// What it has too much of, when it is time to look, with the limit.
    pub(crate) fn exceeded(&mut self, now: Instant) -> Option<(StopCause, u64)> {
        if now < self.due {
            return None;
        }
        self.due = now + EVERY;
        self.rounds += 1;
        let (all, tasks) = tree::census(std::process::id());
        if tasks > PROCESSES {
            return Some((StopCause::Processes, PROCESSES as u64));
        }
        if tasks > MANY {
            self.due = now + SOON;
        }
        if !self.rounds.is_multiple_of(RARELY) {
            return None;
        }
        let (total, available) = machine();
        // Never more than half of what there is.
        let most = (total / 2).min(sandbox::MEMORY);
        let own: u64 = all.iter().map(|pid| own_memory(*pid)).sum();
        // What a kernel keeps for a process is in nobody's account: when the machine has lost as much as it may use, and is short of
        // it, this task is the one that can be run again.
        let had = *self.had.get_or_insert(available);
        let lost = had.saturating_sub(available) > most && available < total / 4;
        if own > most || lost {
            return Some((StopCause::Memory, most));
        }
        let lies = with_user_ids(self.login.as_ref(), || lies_in(&self.temporary));
        let (bytes, files) = lies.unwrap_or_default();
        (bytes > TEMPORARY || files > FILES).then_some((StopCause::Temporary, TEMPORARY))
    }
}

/// How many processes and threads the user of a task may have in all, for the kernel to hold it to. Counting comes a few
/// milliseconds late; this does not, but it knows users and not tasks, and does not bind root. None if the kernel does not
/// say how many there are.
pub(crate) fn most_of_user() -> Option<u64> {
    // The user has no more than all of the machine.
    Some(proc::thread_count().ok()?.saturating_add(SPARE))
}

/// The memory that a process has for itself and shares with its own, without the files that it looks into.
fn own_memory(pid: u32) -> u64 {
    let Ok(status) = proc::status(pid) else { return 0 };
    ["RssAnon", "RssShmem", "VmSwap", "VmPTE"].iter().map(|name| status.bytes(name)).sum()
}

/// What the machine has, and what is left of it.
fn machine() -> (u64, u64) {
    match proc::memory().map(|all| (all.bytes("MemTotal"), all.bytes("MemAvailable"))) {
        Ok((total, available)) if total > 0 => (total, available),
        _ => (u64::MAX, u64::MAX),
    }
}

/// How much lies below a directory; with too many files the rest is not looked at.
fn lies_in(directory: &Path) -> (u64, usize) {
    let (mut bytes, mut files, mut todo) = (0, 0, vec![directory.to_owned()]);
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            files += 1;
            match entry.metadata() {
                Ok(m) if m.is_dir() => todo.push(entry.path()),
                Ok(m) => bytes += std::os::unix::fs::MetadataExt::blocks(&m) * 512,
                Err(_) => {}
            }
            if files > FILES {
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
    fn what_lies_there_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/b"), vec![1; 100_000]).unwrap();
        let (bytes, files) = lies_in(dir.path());
        assert!((100_000..200_000).contains(&bytes) && files == 2, "{bytes} {files}");
        let (total, available) = machine();
        assert!(available <= total && total > 1 << 20);
        assert!(own_memory(std::process::id()) > 100_000);
        assert!(most_of_user().unwrap() > SPARE);
    }
}
