//! The gate, by data: commands and what must come of them.
#![allow(clippy::unwrap_used)]

mod bypasses;
mod corpus;
mod day;
mod deny;
mod differential;
mod generate;
mod grants;
mod jail;
mod lines;
mod mutations;
mod properties;
mod reading;
mod support;
mod tables;
