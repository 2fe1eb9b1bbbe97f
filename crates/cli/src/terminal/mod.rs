//! The terminal that `csn` runs on: its keys, its modes, and the filter for what is written to it.

pub(crate) mod detach;
pub(crate) mod escapes;
pub(crate) mod interrupts;
pub(crate) mod output;
pub(crate) mod prompt;
pub(crate) mod raw;
