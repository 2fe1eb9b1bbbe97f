//! Everything on disk: the home, the ledger, journals, output files, keys, waiting requests.
//!
//! This crate handles bytes and their order. The model defines the meaning of a record, and the desk decides what to do
//! about it.

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
mod recent_decisions;
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
pub use home::{Home, HomeError, HomeLock, SOCKET, SYSTEM_HOME, SYSTEM_RUN};
pub use keys::home_key;
#[cfg(feature = "ledger")]
pub use keys::{adopt_signing_key, prepare_signing_key, signing_key};
pub use processes::{find_agent_above, is_below_agent, is_person_terminal, save_agents};
#[cfg(feature = "ledger")]
pub use receipts::SignedReceipt;
#[cfg(feature = "ledger")]
pub use sign::{Envelope, HEAD_TYPE, PublicKey, RECEIPT_TYPE, SigningKey};
