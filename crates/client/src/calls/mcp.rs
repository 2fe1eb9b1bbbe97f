//! The connection of the bridge that an agent starts.

use crate::{Call, HttpRequest};
use countersign_model::{
    SessionId,
    api::{McpSessionBody, McpSessionResponse, McpStdioQuery},
};

/// Opens the session of an MCP connection.
#[must_use]
pub fn session(body: &McpSessionBody) -> Call<McpSessionResponse> {
    Call::json(HttpRequest::post(&["mcp", "session"]).json(body))
}

/// Opens an MCP connection with one message per line, in both directions.
#[must_use]
pub fn stdio(session: SessionId) -> Call<Vec<u8>> {
    let query = McpStdioQuery { session: session.to_string() };
    Call::bytes(HttpRequest::get(&["mcp", "stdio"]).query(&query).header("upgrade", "mcp"))
}
