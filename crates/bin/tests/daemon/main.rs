//! End to end: the real programs in a temporary home. The tests wait for frames and events, not for time to pass.
#![allow(clippy::unwrap_used)]

mod again;
mod approvals;
mod bounds;
mod burst;
mod check;
mod client;
mod confine;
mod crash;
mod credentials;
mod daily;
mod disk;
mod doors;
mod earlier_home;
mod grants;
mod halt;
mod hidden;
mod home_id;
mod hooks;
mod input;
mod install;
mod ledger;
mod left_agent;
mod machine;
mod mcp;
mod one_state;
mod receipts;
mod redaction;
mod replay;
mod stream;
mod tamper;
mod terminal;
mod tree;
mod viewers;
mod walk;
mod words;
mod workspace;

/// The program under test.
const CSN: &str = env!("CARGO_BIN_EXE_csn");
/// Named so that it is built.
const _SHIM: &str = env!("CARGO_BIN_EXE_csn-shim");
