//! `/tasks`: requesting, listing and reading tasks. The body of `POST /tasks` is [`crate::Request`].

use super::output::BoundedOutput;
use crate::{Status, TaskId, TaskState};
use serde::{Deserialize, Serialize};

/// The answer to `POST /tasks`: the task as it is now, and its output if the caller waited for its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AskResponse {
    #[serde(flatten)]
    pub task: TaskState,
    /// Each stream: complete if it is short, otherwise its beginning and end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<BoundedOutput>,
}

/// A page of tasks, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskPage {
    pub tasks: Vec<TaskState>,
    /// The cursor of the next page; null at the end.
    pub next: Option<TaskId>,
}

/// Which tasks `GET /tasks` lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TaskQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The id of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// Only tasks requested at this time or later, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// A text that occurs in the command, its title or its rationale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The `next` of an earlier page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 500)))]
    pub limit: Option<u32>,
}

/// How long the daemon waits before it answers: for the end of a task, or for its receipt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct WaitQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}
