//! Time and randomness as a value, for code that may read no clock and draw no random numbers.

use countersign_model::{IdMint, Timestamp};

/// The current time, and the source of new ids.
pub(crate) struct Moment<'a> {
    pub(crate) at: Timestamp,
    pub(crate) random: u32,
    pub(crate) mint: &'a mut IdMint,
}
