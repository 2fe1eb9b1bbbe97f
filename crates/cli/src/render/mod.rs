//! What Countersign knows, as text for a person. Nothing here asks or waits.

pub(crate) mod card;
pub(crate) mod outcome;
pub(crate) mod receipt;
pub(crate) mod task;
pub(crate) mod text;
