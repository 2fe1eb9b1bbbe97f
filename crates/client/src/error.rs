//! Why a call failed.

use crate::Address;
use countersign_model::{TaskRefusal, api::Problem};
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens at this address.
    #[error("no daemon answers at {address}: {error}")]
    NoDaemon { address: Address, error: io::Error },
    /// The daemon refused: why, and the task that the refusal is about.
    #[error("{}", .0.refusal)]
    Refused(TaskRefusal),
    /// The call cannot be written as one HTTP request. Trying again does not help.
    #[error("the request cannot be sent: {0}")]
    Unsendable(String),
    #[error("the connection to the daemon was lost: {0}")]
    Broken(io::Error),
    #[error("the daemon sent an answer that this program cannot read: {0}")]
    UnreadableAnswer(String),
}

pub type Result<T> = std::result::Result<T, ClientError>;

impl ClientError {
    /// Whether the daemon is gone, so that a later attempt may succeed.
    #[must_use]
    pub fn is_daemon_gone(&self) -> bool {
        matches!(self, Self::NoDaemon { .. } | Self::Broken(_))
    }

    /// Whether the daemon did not answer within the time limit of the call.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Broken(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
    }

    pub(crate) fn unreadable(error: impl std::fmt::Display) -> Self {
        Self::UnreadableAnswer(error.to_string())
    }

    /// The connection ended too early.
    pub(crate) fn cut_off() -> Self {
        Self::Broken(io::ErrorKind::UnexpectedEof.into())
    }

    /// The error in an answer with an error status.
    pub(crate) fn from_problem(status: u16, body: &[u8]) -> Self {
        match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => Self::Refused(problem.into()),
            Err(_) => Self::UnreadableAnswer(format!("status {status}: {}", String::from_utf8_lossy(body))),
        }
    }
}

// Not a source: the message already contains it.
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
