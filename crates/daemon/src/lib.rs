//! The house: desk, shim keeping, recovery, shutdown, and the HTTP surface on the unix socket.

mod confine;
mod descriptors;
mod desk;
mod env;
mod facts;
mod halt;
mod house;
mod keeper;
mod ledger_state;
mod left_agent;
mod office;
mod peer;
mod people;
mod publish;
mod question;
mod recover;
mod retention;
mod seal;
mod search;
mod service;
mod spares;
mod surface;
mod touched;
mod wish;

pub use countersign_store::HomeError;
pub use house::{Start, beside, main};

/// A line for the operator. Never holds what a task printed or was asked; what an error quotes is cleaned.
macro_rules! log {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let line = countersign_redact::text_by_shape(&format!($($arg)*));
        let _ = writeln!(std::io::stderr(), "{} {line}", countersign_store::clock::now());
    }};
}
pub(crate) use log;
