//! Redaction, tested with data and properties. The tests generate their secrets.
#![allow(clippy::unwrap_used)]

mod chunking;
mod context;
mod engine;
mod forms;
mod ordinary;
mod rules;
mod support;
