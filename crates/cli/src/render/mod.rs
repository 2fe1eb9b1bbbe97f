//! Text for people, made from model types. The functions here are pure: they print nothing, ask nothing and wait for
//! nothing.

pub(crate) mod card;
pub(crate) mod doctor;
pub(crate) mod fields;
pub(crate) mod outcome;
pub(crate) mod receipt;
pub(crate) mod shutdown;
pub(crate) mod task;
pub(crate) mod text;

#[cfg(test)]
mod snapshot_tests;
