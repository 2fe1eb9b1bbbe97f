//! Redaction by data and by property. Secrets are made here, never written down.
#![allow(clippy::unwrap_used)]

mod context;
mod engine;
mod ordinary;
mod rules;
mod support;
