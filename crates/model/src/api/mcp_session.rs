//! `/mcp/session` and `/mcp/stdio`: how the bridge that an agent starts comes in.

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
    /// The environment of the agent; its tasks get the base variables of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

/// The session of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct McpSessionResponse {
    pub session_id: SessionId,
}

/// Whose connection `GET /mcp/stdio` opens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct McpStdioQuery {
    /// The id of a session.
    pub session: String,
}
