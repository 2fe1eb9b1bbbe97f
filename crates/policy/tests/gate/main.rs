//! The gate, by data: commands and what must come of them.
#![allow(clippy::unwrap_used)]

mod corpus;
mod support;
mod tables;
