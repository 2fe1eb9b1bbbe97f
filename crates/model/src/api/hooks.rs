//! `/hooks` and `/tickets`: for agents whose hook asks the daemon before the agent's own shell runs a command.

use super::sessions::Conversation;
use crate::{RefusalCode, TaskId, TaskState, Text};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The body of `POST /hooks/before`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HookBeforeBody {
    #[serde(deserialize_with = "super::object")]
    pub conversation: Conversation,
    pub command: String,
    /// The environment of the hook. The command will have the same one, as far as the hook can know.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inherit: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The agent's id of this tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use: Option<String>,
    /// How long the agent's tool waits for the command, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_ms: Option<u64>,
    /// Witness mode: the agent runs the command itself; the daemon only decides and records.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub witness: bool,
}

/// The answer that the hook gives to its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum HookBeforeResponse {
    Deny {
        code: RefusalCode,
        reason: Text,
        hint: Option<Text>,
        task_id: Option<TaskId>,
    },
    /// With a ticket, `csn exec` runs the command as a task. Without one the agent runs it, and the task only records
    /// it.
    Allow {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ticket: Option<String>,
        /// Whether the command's shell may end in another directory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        moves: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task_id: Option<TaskId>,
    },
    /// The daemon asks a person when the ticket is redeemed.
    Ask {
        ticket: String,
        moves: bool,
    },
}

/// The body of `POST /hooks/after`: the result of a command that the agent ran itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HookAfterBody {
    #[serde(deserialize_with = "super::object")]
    pub conversation: Conversation,
    pub tool_use: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub interrupted: bool,
}

/// The task whose end the daemon recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookAfterResponse {
    pub task_id: TaskId,
}

/// The body of `POST /tickets/{id}`. `GET` answers with the [`TaskState`] of the redeemed ticket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RedeemBody {
    pub command: String,
    pub cwd: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inherit: BTreeMap<String, String>,
}

/// The task of a redeemed ticket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RedeemResponse {
    pub task: TaskState,
    /// How long the agent's tool waits for the task, in milliseconds.
    pub patience_ms: u64,
}
