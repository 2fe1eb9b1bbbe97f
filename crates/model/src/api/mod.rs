//! The wire format: every request and response body, defined once. The daemon, the client, MCP, the test kit and the
//! OpenAPI document all use these types.
//!
//! A field without a value is either left out or written as `null`; each field always does the same. Request bodies
//! refuse unknown fields. Clients ignore unknown fields in answers, so that an older client understands a newer daemon.

mod approvals;
mod attach;
mod check;
mod control;
mod events;
mod grants;
mod hooks;
mod lifecycle;
mod mcp_session;
mod output;
mod problem;
pub mod query;
mod receipts;
mod sessions;
mod tasks;
mod tokens;
mod tool_task;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use std::{fmt, marker::PhantomData};

pub use approvals::{AnswerBody, ApprovalPage, ApprovalQuery};
pub use attach::{AttachEvent, AttachMessage, AttachQuery, AttachScreen};
pub use check::CheckResponse;
pub use control::{AppliedRecord, CancelBody, ResizeBody, SignalBody, StdinBody};
pub use events::{EventQuery, GapEvent, LedgerEvent, LedgerQuery, StreamRecord, TerminalRecord};
pub use grants::{GrantBody, GrantPage, GrantQuery, GrantView};
pub use hooks::{HookAfterBody, HookAfterResponse, HookBeforeBody, HookBeforeResponse, RedeemBody, RedeemResponse};
pub use lifecycle::{
    GcBody, GcRemoved, GcReport, IndexAction, IndexRebuilt, IndexState, Lifecycle, ListenBody, ListenResponse,
    Readiness, RebuildBody, StopBody, StopResponse, StopTarget, StopTasks,
};
pub use mcp_session::{McpSessionBody, McpSessionResponse, McpStdioQuery};
pub use output::{
    BoundedOutput, CastQuery, CursorPosition, Excerpt, OutputGap, OutputPage, OutputQuery, ScreenView, SearchMatch,
    SearchPage, SearchQuery,
};
pub use problem::Problem;
pub use query::{QueryError, from_pairs, to_query};
pub use receipts::{Envelope, EnvelopeSignature, KeyList, KeyView, ReceiptPage, ReceiptQuery, ReceiptRow, RotateBody};
pub use sessions::{Conversation, DirectoryBody, OpenSessionBody, SessionEnd, SessionMove, SessionPage, SessionQuery};
pub use tasks::{AskResponse, TaskPage, TaskQuery, WaitQuery};
pub use tokens::{NewToken, TokenBody, TokenList, TokenView};
pub use tool_task::{
    ToolTaskArgs, ToolTaskArtifact, ToolTaskChunk, ToolTaskEvent, ToolTaskHead, ToolTaskStream, ToolTaskWhat,
};

/// Reads a field that must be an object. A derived implementation would also accept a list, by the order of its fields.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<T, D::Error> {
    struct Object<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(fields))
        }
    }
    d.deserialize_map(Object(PhantomData))
}

/// Whether a field has its default value and can be left out.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests;
