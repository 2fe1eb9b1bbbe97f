//! Tests of the gate by data: commands and their expected verdicts.
#![allow(clippy::unwrap_used)]

mod bypasses;
mod confined;
mod corpus;
mod day;
mod deny;
mod differential;
mod generate;
mod grants;
mod hostile_phrases;
mod hostile_shell;
mod jail;
mod lines;
mod marks;
mod mutations;
mod ordinary;
mod programs;
mod properties;
mod reading;
mod sandbox;
mod secrets;
mod support;
mod tables;
