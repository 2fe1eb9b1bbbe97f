//! A full disk: the shim waits for space for a bounded time before it stops the task.

use std::time::{Duration, Instant};

/// How long the shim waits for space before it stops the task.
pub(crate) const DISK_FULL_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between write attempts: the kernel sends no event when there is space again.
const DISK_RETRY_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(crate) struct DiskWait {
    full_since: Option<Instant>,
    /// The shim has given up recording and has reacted to it.
    given_up: bool,
}

impl DiskWait {
    /// A write failed. Returns whether the shim has waited long enough.
    pub(crate) fn note_failure(&mut self, now: Instant) -> bool {
        now.duration_since(*self.full_since.get_or_insert(now)) >= DISK_FULL_TIMEOUT
    }

    pub(crate) fn note_recovery(&mut self) {
        self.full_since = None;
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.full_since.map(|_| DISK_RETRY_INTERVAL)
    }

    /// Gives up recording. Returns whether this is the first time.
    pub(crate) fn give_up(&mut self) -> bool {
        !std::mem::replace(&mut self.given_up, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shim_waits_for_a_full_disk_and_gives_up_once() {
        let begin = countersign_store::clock::steady();
        let mut disk = DiskWait::default();
        assert_eq!((disk.note_failure(begin), disk.retry_after()), (false, Some(DISK_RETRY_INTERVAL)));
        assert!(!disk.note_failure(begin + DISK_FULL_TIMEOUT / 2) && disk.note_failure(begin + DISK_FULL_TIMEOUT));
        disk.note_recovery();
        assert_eq!((disk.retry_after(), disk.note_failure(begin + DISK_FULL_TIMEOUT)), (None, false));
        assert_eq!((disk.give_up(), disk.give_up()), (true, false));
    }
}
