//! The typed client for programs.
//!
//! [`calls`] builds a call as a value: what is sent, and the type of its answer. Two clients send the same values:
//! [`Client`] waits for each answer, `AsyncClient` (with the feature `async`) is for programs on tokio. Both reach a
//! daemon by its [`Address`]: the unix socket of its home, or a loopback port with a [`BearerToken`].
//!
//! ```no_run
//! use countersign_client::{Address, Client, ClientError, BearerToken, calls};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::at(Address::unix("/home/me/.local/state/countersign/run/csn.sock"));
//! let running = client.send(&calls::tasks::list(&countersign_model::api::TaskQuery::default()))?;
//! println!("{} tasks", running.tasks.len());
//!
//! // Over TCP, with a token that `csn token create` created.
//! let token = BearerToken::new(std::env::var("COUNTERSIGN_TOKEN")?)?;
//! let client = Client::at(Address::tcp("127.0.0.1:7311".parse()?, token)?);
//!
//! // A stream continues after the last event, over any number of connections.
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
//! A refusal of the daemon is [`ClientError::Refused`] with the daemon's [`countersign_model::TaskRefusal`]; programs
//! act on its code. `wire/` parses HTTP and server-sent events, and `stream.rs` tracks the position in a stream, both
//! without a socket; the clients only move bytes.

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
