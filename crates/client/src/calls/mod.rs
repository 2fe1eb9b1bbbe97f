//! Every route of the API as a typed call, by subject. These functions only build values; [`crate::Client`] and
//! `AsyncClient` send them. Two routes are missing on purpose: [`crate::Client::attach`] opens a WebSocket, and `/mcp`
//! is for MCP clients.

pub mod approvals;
pub mod control;
pub mod grants;
pub mod hooks;
pub mod lifecycle;
pub mod mcp;
pub mod output;
pub mod receipts;
pub mod sessions;
pub mod tasks;
pub mod tokens;

#[cfg(test)]
mod tests;
