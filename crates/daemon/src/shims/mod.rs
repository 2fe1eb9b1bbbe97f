//! Supervisors of tasks: those that wait, those that run, and those that a daemon before this one has left.

pub(crate) mod pool;
pub(crate) mod recovery;
pub(crate) mod registry;
