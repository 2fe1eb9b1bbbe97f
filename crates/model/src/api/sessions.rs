//! `/sessions`: conversations of agents and clients.

use crate::{Session, SessionId, TaskId, TaskState};
use serde::{Deserialize, Serialize};

/// Which sessions `GET /sessions` lists: the open ones. With `all`, ended ones too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SessionQuery {
    #[serde(skip_serializing_if = "super::is_default")]
    pub all: bool,
    /// The `next` of an earlier page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 500)))]
    pub limit: Option<usize>,
}

/// A page of sessions, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionPage {
    pub sessions: Vec<Session>,
    /// The cursor of the next page; null at the end.
    pub next: Option<SessionId>,
}

/// The body of `POST /sessions`; it may be left out. The answer is the [`Session`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenSessionBody {
    /// The directory for requests that name none. It also becomes the first workspace root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^/")))]
    pub directory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A process above the caller. From now on every process below it counts as an agent in this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_pid: Option<u32>,
}

/// The body of `POST /sessions/{id}/directory`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DirectoryBody {
    /// Absolute.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^/")))]
    pub directory: String,
}

/// The result of moving a session: the session, or the task that waits until a person approves the move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum SessionMove {
    Asked(Box<TaskState>),
    There(Box<Session>),
}

/// The answer of `DELETE /sessions/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionEnd {
    pub session: Session,
    /// The tasks that were stopped with the session, and those that could not be stopped.
    pub stopped: Vec<TaskId>,
    pub left: Vec<TaskId>,
}

/// An agent's conversation, as its hook or its client reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// Which agent this is.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 200)))]
    pub agent: String,
    /// The agent's id of the conversation.
    #[cfg_attr(feature = "schema", schemars(length(max = 200)))]
    pub id: String,
    pub cwd: String,
    /// The process of the agent. Without it, the daemon must already know the caller as an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_pid: Option<u32>,
}
