//! A disk that does not take the record: it is waited for, for a while.

use std::time::{Duration, Instant};

/// How long a full disk is waited for before the task is stopped.
pub(crate) const DISK_PATIENCE: Duration = Duration::from_secs(10);
/// How often a full disk is tried again: nobody tells us when there is room.
const DISK_RETRY: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(crate) struct DiskWait {
    full_since: Option<Instant>,
    /// The record could not be written; that has been dealt with.
    given_up: bool,
}

impl DiskWait {
    /// A write failed. Whether it has been waited for long enough.
    pub(crate) fn failed(&mut self, now: Instant) -> bool {
        now.duration_since(*self.full_since.get_or_insert(now)) >= DISK_PATIENCE
    }

    pub(crate) fn took_everything(&mut self) {
        self.full_since = None;
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.full_since.map(|_| DISK_RETRY)
    }

    /// Whether this is the first time that the record is given up.
    pub(crate) fn give_up(&mut self) -> bool {
        !std::mem::replace(&mut self.given_up, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_waited_for_and_given_up_once() {
        let begin = countersign_store::clock::steady();
        let mut disk = DiskWait::default();
        assert_eq!((disk.failed(begin), disk.retry_after()), (false, Some(DISK_RETRY)));
        assert!(!disk.failed(begin + DISK_PATIENCE / 2) && disk.failed(begin + DISK_PATIENCE));
        disk.took_everything();
        assert_eq!((disk.retry_after(), disk.failed(begin + DISK_PATIENCE)), (None, false));
        assert_eq!((disk.give_up(), disk.give_up()), (true, false));
    }
}
