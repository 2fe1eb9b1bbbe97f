//! The house: desk, shim keeping, recovery, shutdown, and the HTTP surface on the unix socket.

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

/// A line for the operator. Never holds what a task printed or was asked; what an error quotes is cleaned.
macro_rules! log {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let line = countersign_redact::text_by_shape(&format!($($arg)*));
        let _ = writeln!(std::io::stderr(), "{} {line}", countersign_store::clock::now());
    }};
}
pub(crate) use log;

/// Runs what may block on a thread where it may take its time.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string()))
}

/// Takes a lock that nothing panics under.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it holds this lock")
}
