//! Decides when readers are notified of new frames: soon after something was recorded, and immediately while a user
//! waits for an echo. Does no I/O: the loop supplies the time and sends the message.

use std::time::{Duration, Instant};

/// A notification waits this long for more frames: most commands are over by then, and one notification is enough.
const NOTIFY_DELAY: Duration = Duration::from_millis(2);
/// Output beyond the limit makes no frame; viewers of the screen are notified at this interval.
const UNRECORDED_NOTIFY_DELAY: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Notifier {
    /// Readers have been notified of all frames below this number.
    notified_seq: u64,
    due: Option<Instant>,
    /// The screen has changed without a frame.
    unrecorded_change: bool,
}

impl Notifier {
    /// When the next notification is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A user waits for output: the next notification goes out immediately.
    pub(crate) fn notify_now(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// The screen has changed without a frame.
    pub(crate) fn note_screen_change(&mut self) {
        self.unrecorded_change = true;
    }

    /// The frames could not be written, so there is nothing to read.
    pub(crate) fn cancel(&mut self) {
        self.due = None;
    }

    /// Whether a notification goes out now. All frames below `next_seq` are in the file.
    pub(crate) fn take_due(&mut self, next_seq: u64, now: Instant) -> bool {
        let recorded = next_seq != self.notified_seq;
        if !recorded && !self.unrecorded_change {
            self.due = None;
            return false;
        }
        let latest = now + if recorded { NOTIFY_DELAY } else { UNRECORDED_NOTIFY_DELAY };
        let due = self.due.map_or(latest, |due| due.min(latest));
        if now < due {
            self.due = Some(due);
            return false;
        }
        *self = Self { notified_seq: next_seq, due: None, unrecorded_change: false };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_batched_for_a_bounded_time() {
        let begin = countersign_store::clock::steady();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut notifier = Notifier::default();
        // Each step: the time, the number of the next frame, whether a notification goes out.
        for (ms, next_seq, expect) in
            [(0, 0, false), (0, 3, false), (1, 5, false), (2, 6, true), (2, 6, false), (9, 7, false), (11, 7, true)]
        {
            assert_eq!(notifier.take_due(next_seq, at(ms)), expect, "after {ms} ms at {next_seq}");
        }
        assert_eq!(notifier.due(), None);
        notifier.note_screen_change();
        assert!(!notifier.take_due(7, at(20)) && !notifier.take_due(7, at(119)) && notifier.take_due(7, at(120)));
        assert!(!notifier.take_due(8, at(130)));
        notifier.notify_now(at(130));
        assert!(notifier.take_due(8, at(130)), "a user waits for it");
        notifier.take_due(9, at(140));
        notifier.cancel();
        assert_eq!(notifier.due(), None);
    }
}
