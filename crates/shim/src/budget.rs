//! What a read-only task may use of the machine: so many processes, so much memory. Nothing tells us when it has more, so it is
//! looked at, the sooner the more it could have become.

use crate::{life::Stop, tree, walls};
use std::{
    fs,
    time::{Duration, Instant},
};

/// Processes at once.
pub(crate) const PROCESSES: usize = 256;
/// How often they are counted. A machine forks a few hundred times in this.
const EVERY: Duration = Duration::from_millis(20);
/// Memory is looked at every so many times: reading it costs more, and it grows more slowly.
const MEMORY_EVERY: u32 = 5;

pub(crate) struct Budget {
    due: Instant,
    rounds: u32,
}

impl Budget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { due: now + EVERY, rounds: 0 }
    }

    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// What it has too much of, when it is time to look, with the limit.
    pub(crate) fn exceeded(&mut self, now: Instant) -> Option<(Stop, u64)> {
        if now < self.due {
            return None;
        }
        self.due = now + EVERY;
        self.rounds += 1;
        let all = tree::descendants(std::process::id());
        if all.len() > PROCESSES {
            return Some((Stop::Processes, PROCESSES as u64));
        }
        if self.rounds.is_multiple_of(MEMORY_EVERY) {
            // Never more than half of what there is.
            let most = (physical() / 2).min(walls::MEMORY);
            return (all.iter().map(|pid| own_memory(*pid)).sum::<u64>() > most).then_some((Stop::Memory, most));
        }
        None
    }
}

/// The memory that a process has for itself and shares with its own, without the files that it looks into.
fn own_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()
    };
    (of("RssAnon").unwrap_or(0) + of("RssShmem").unwrap_or(0)) * 1024
}

fn physical() -> u64 {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    total.map_or(u64::MAX, |kib| kib * 1024)
}
