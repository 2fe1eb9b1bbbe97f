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
pub mod proc;
mod processes;
mod refused;
pub mod waiting;
pub mod world;

#[cfg(feature = "ledger")]
pub mod closing;
#[cfg(feature = "ledger")]
pub mod condition;
#[cfg(feature = "ledger")]
mod config;
#[cfg(feature = "ledger")]
mod high_water;
#[cfg(feature = "ledger")]
mod home_id;
#[cfg(feature = "ledger")]
pub mod ledger;
#[cfg(feature = "ledger")]
mod receipts;
#[cfg(feature = "ledger")]
pub mod repair;
#[cfg(feature = "ledger")]
pub mod salvage;
#[cfg(feature = "ledger")]
mod sign;
#[cfg(feature = "ledger")]
pub mod stream;
#[cfg(feature = "ledger")]
pub mod verify;

#[cfg(feature = "ledger")]
pub use config::{Config, ConfigError, ConfineConfig, InBandAnswers, RetentionConfig, TasksAtStop, UnaskedReads};
pub use fsx::{random, read_regular};
pub use home::{Home, HomeError, HomeLock, MACHINE_HOME, MACHINE_RUN, SOCKET};
pub use keys::house_key;
#[cfg(feature = "ledger")]
pub use keys::{adopt_signing_key, prepare_signing_key, signing_key};
pub use processes::{agent_above, below_an_agent, is_a_persons, keep_agents};
#[cfg(feature = "ledger")]
pub use receipts::SignedReceipt;
#[cfg(feature = "ledger")]
pub use sign::{Envelope, HEAD_TYPE, PublicKey, RECEIPT_TYPE, SigningKey};
