//! What a moment brings with it, handed to code that reads no clock and draws no numbers.

use countersign_model::{IdMint, Timestamp};

/// The time, and what new ids are made from.
pub(crate) struct Moment<'a> {
    pub(crate) at: Timestamp,
    pub(crate) random: u32,
    pub(crate) mint: &'a mut IdMint,
}
