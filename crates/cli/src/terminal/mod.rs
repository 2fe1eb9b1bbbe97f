//! The terminal that we run on: its keys, its modes, and what may be written to it.

pub(crate) mod detach;
pub(crate) mod escapes;
pub(crate) mod interrupts;
pub(crate) mod output;
pub(crate) mod prompt;
pub(crate) mod raw;
