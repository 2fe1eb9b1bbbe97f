//! `/mcp/session` and `/mcp/stdio`: the connection of the bridge that an agent starts.

use super::sessions::Conversation;
use crate::SessionId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The body of `POST /mcp/session`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct McpSessionBody {
    #[serde(deserialize_with = "super::object")]
    pub conversation: Conversation,
    /// The agent's environment. Its tasks get the base variables from it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

/// The session of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct McpSessionResponse {
    pub session_id: SessionId,
}

/// The session that `GET /mcp/stdio` connects to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct McpStdioQuery {
    /// The id of a session.
    pub session: String,
}
