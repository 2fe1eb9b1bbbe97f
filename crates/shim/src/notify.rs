//! When readers are told that there is more: soon after something was recorded, at once while somebody waits for an echo.
//! Pure: the loop gives the time and sends the message.

use std::time::{Duration, Instant};

/// A notice waits this long for more to tell: most commands are over by then, and one notice is enough.
const NOTIFY_AFTER: Duration = Duration::from_millis(2);
/// Output that is not kept leaves no frame; those who watch the screen are told this often.
const UNRECORDED_AFTER: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Notifier {
    /// The number up to which readers have been told.
    told: u64,
    due: Option<Instant>,
    /// The screen has changed and no frame says so.
    unrecorded: bool,
}

impl Notifier {
    /// When the next notice must go out.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Somebody waits: the next notice does not.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// The screen shows something that no frame will tell of.
    pub(crate) fn screen_changed(&mut self) {
        self.unrecorded = true;
    }

    /// What was due cannot be read: it was not written.
    pub(crate) fn cancel(&mut self) {
        self.due = None;
    }

    /// Whether a notice goes out now. Everything below `next_seq` is in the file.
    pub(crate) fn take(&mut self, next_seq: u64, now: Instant) -> bool {
        let recorded = next_seq != self.told;
        if !recorded && !self.unrecorded {
            self.due = None;
            return false;
        }
        let latest = now + if recorded { NOTIFY_AFTER } else { UNRECORDED_AFTER };
        let due = self.due.map_or(latest, |due| due.min(latest));
        if now < due {
            self.due = Some(due);
            return false;
        }
        *self = Self { told: next_seq, due: None, unrecorded: false };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_wait_for_more_but_not_for_long() {
        let begin = countersign_store::clock::steady();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut notifier = Notifier::default();
        // Each step: the time, the number of the next frame, whether a notice goes out.
        for (ms, next_seq, expect) in
            [(0, 0, false), (0, 3, false), (1, 5, false), (2, 6, true), (2, 6, false), (9, 7, false), (11, 7, true)]
        {
            assert_eq!(notifier.take(next_seq, at(ms)), expect, "after {ms} ms at {next_seq}");
        }
        assert_eq!(notifier.due(), None);
        notifier.screen_changed();
        assert!(!notifier.take(7, at(20)) && !notifier.take(7, at(119)) && notifier.take(7, at(120)));
        assert!(!notifier.take(8, at(130)));
        notifier.hurry(at(130));
        assert!(notifier.take(8, at(130)), "somebody waits for it");
        notifier.take(9, at(140));
        notifier.cancel();
        assert_eq!(notifier.due(), None);
    }
}
