//! The typed way in for programs.
//!
//! A call is a value that [`calls`] makes: it says what is sent and what type its answer has. Two faces send the same
//! values: [`Client`] waits for each answer, `AsyncClient` (with the feature `async`) is for programs on tokio. Both reach
//! a daemon by its [`Address`]: the unix socket of its home, or its port on loopback with a [`BearerToken`].
//!
//! ```no_run
//! use countersign_client::{Address, Client, ClientError, BearerToken, calls};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::at(Address::unix("/home/me/.local/state/countersign/run/csn.sock"));
//! let running = client.send(&calls::tasks::list(&countersign_model::api::TaskQuery::default()))?;
//! println!("{} tasks", running.tasks.len());
//!
//! // The same over TCP, with a token that `csn token create` has made.
//! let token = BearerToken::new(std::env::var("COUNTERSIGN_TOKEN")?)?;
//! let client = Client::at(Address::tcp("127.0.0.1:7311".parse()?, token)?);
//!
//! // A stream goes on behind the last event, over any number of connections.
//! let mut events = client.follow(calls::tasks::events("tk_01jcx3v9q8k2m4tz"));
//! loop {
//!     match events.next_event() {
//!         Ok(Some(event)) => println!("{} {:?}", event.value.record.seq, event.value.record.what),
//!         Ok(None) => break,
//!         Err(error) if error.is_daemon_gone() => eprintln!("{error}; trying again"),
//!         Err(ClientError::Refused(refused)) => return Err(refused.refusal.message.into()),
//!         Err(error) => return Err(error.into()),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `examples/run_and_follow.rs` runs a command, follows its output and prints its outcome.
//!
//! What a daemon refuses is [`ClientError::Refused`] with the [`countersign_model::Refused`] that the daemon made: its
//! code decides what a program does about it. HTTP and server-sent events are parsed in `wire/`, and where a stream goes
//! on in `stream.rs`, without a socket; the faces only move bytes.

mod address;
#[cfg(feature = "async")]
mod async_client;
mod attach;
mod blocking;
mod call;
pub mod calls;
mod error;
mod shortcuts;
mod stream;
mod transport;
mod wire;

pub use address::{Address, AddressError, BearerToken};
#[cfg(feature = "async")]
pub use async_client::{AsyncBody, AsyncClient, AsyncEvents};
pub use attach::{AttachedEvent, Attachment};
pub use blocking::{Body, Client, Events};
pub use call::Call;
pub use error::{ClientError, Result};
pub use stream::{Event, EventCursor, StreamCall};
pub use transport::Connection;
pub use wire::request::HttpRequest;
