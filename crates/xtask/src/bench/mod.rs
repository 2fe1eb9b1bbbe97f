//! `bench`: figures beside their limits, in the same run.

pub(crate) mod proxy;
