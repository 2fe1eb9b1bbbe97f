//! The only module that reads a clock.

use countersign_model::Timestamp;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The wall clock, for records.
#[expect(clippy::disallowed_methods, reason = "the one reader of the wall clock")]
#[must_use]
pub fn now() -> Timestamp {
    let micros = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(_) => 0,
    };
    Timestamp::from_micros(micros)
}

/// The monotonic clock, for deadlines.
#[expect(clippy::disallowed_methods, reason = "the one reader of the steady clock")]
#[must_use]
pub fn steady() -> Instant {
    Instant::now()
}
