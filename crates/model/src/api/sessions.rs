//! `/sessions`: conversations of agents and clients.

use crate::{Session, SessionId, TaskId, TaskState};
use serde::{Deserialize, Serialize};

/// Which sessions `GET /sessions` lists: those that go on, or all.
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
    /// Where its requests run that name no directory; the first root comes from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^/")))]
    pub directory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A process above the one that asks: from now on everything below it is an agent, in this session.
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

/// What came of moving a session: the session, or the task of the question that a person must answer first.
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
    /// The tasks that ended with it, and those that could not be stopped.
    pub stopped: Vec<TaskId>,
    pub left: Vec<TaskId>,
}

/// An agent's conversation, as its hook or its client tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// Which agent this is.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 200)))]
    pub agent: String,
    /// The agent's name for the conversation.
    #[cfg_attr(feature = "schema", schemars(length(max = 200)))]
    pub id: String,
    pub cwd: String,
    /// The process of the agent; without one the daemon must know the caller for an agent already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_pid: Option<u32>,
}
