//! The daemon: decides about requests, keeps their shims, recovers and shuts down, and serves HTTP and MCP.

mod caller;
mod calls;
mod case;
mod commit;
mod confine;
mod descriptors;
mod desk;
mod env;
mod facts;
mod http;
mod json;
mod ledger_state;
mod left_agent;
mod mcp;
mod moment;
mod ops;
#[cfg(test)]
mod ops_tests;
mod peer;
mod question;
mod receipts;
mod records;
mod register_command;
mod service;
mod shims;
mod shutdown;
mod startup;
mod users;

use countersign_model::{Refusal, RefusalCode};

pub use countersign_store::HomeError;
pub use mcp::protocol::{HttpService, over_http};
pub use startup::{Start, main};

/// Writes a line for the operator. It must never hold a task's output or request; text quoted by errors is redacted.
macro_rules! log {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let line = countersign_redact::text_by_shape(&format!($($arg)*));
        let _ = writeln!(std::io::stderr(), "{} {line}", countersign_store::clock::now());
    }};
}
pub(crate) use log;

/// Runs blocking work on the thread pool for it.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string()))
}

/// Takes a lock. No code panics while it holds one.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while it holds this lock")
}
