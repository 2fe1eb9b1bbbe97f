//! Everything on disk: home, ledger, journals, output files, keys, waiting requests.
//!
//! Bytes and order, not meaning: what a record says is the model's affair, what to do about it the desk's.

pub mod clock;
pub mod crash;
mod fsx;
mod home;
pub mod journal;
mod keys;
pub mod output;
pub mod waiting;
pub mod world;

#[cfg(feature = "ledger")]
mod config;
#[cfg(feature = "ledger")]
pub mod ledger;
#[cfg(feature = "ledger")]
pub mod salvage;
#[cfg(feature = "ledger")]
pub mod stream;

#[cfg(feature = "ledger")]
pub use config::{Config, ConfigError, ConfineConfig, Reads, RetentionConfig};
pub use fsx::{random, read_regular};
pub use home::{Home, HomeError, Lock};
pub use keys::house_key;
