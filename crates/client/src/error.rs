//! Why a call did not come back with what was asked for.

use crate::Address;
use countersign_model::{TaskRefusal, api::Problem};
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens at this address.
    #[error("no countersign serves {address}: {error}")]
    NoHouse { address: Address, error: io::Error },
    /// The daemon refused: why, and the task that the refusal is about.
    #[error("{}", .0.refusal)]
    Refused(TaskRefusal),
    /// The call would not be one HTTP request. Trying again does not help.
    #[error("this cannot be sent: {0}")]
    Unsendable(String),
    #[error("the connection to the daemon broke: {0}")]
    Broken(io::Error),
    #[error("the daemon sent something that this program does not understand: {0}")]
    Strange(String),
}

pub type Result<T> = std::result::Result<T, ClientError>;

impl ClientError {
    /// Whether the daemon went away, so that asking again, once there is one, may succeed.
    #[must_use]
    pub fn is_daemon_gone(&self) -> bool {
        matches!(self, Self::NoHouse { .. } | Self::Broken(_))
    }

    pub(crate) fn unreadable(error: impl std::fmt::Display) -> Self {
        Self::Strange(error.to_string())
    }

    /// The connection ended in the middle of something.
    pub(crate) fn cut_off() -> Self {
        Self::Broken(io::ErrorKind::UnexpectedEof.into())
    }

    /// What an answer that is an error says.
    pub(crate) fn of_problem(status: u16, body: &[u8]) -> Self {
        match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => Self::Refused(problem.into()),
            Err(_) => Self::Strange(format!("status {status}: {}", String::from_utf8_lossy(body))),
        }
    }
}

// Not a source: the message says it already.
impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<TaskRefusal> for ClientError {
    fn from(refused: TaskRefusal) -> Self {
        Self::Refused(refused)
    }
}
