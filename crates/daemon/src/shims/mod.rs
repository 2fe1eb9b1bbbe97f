//! The supervisors of tasks: idle ones, running ones, and those that an earlier daemon left.

pub(crate) mod learned;
pub(crate) mod pool;
pub(crate) mod recovery;
pub(crate) mod registry;
