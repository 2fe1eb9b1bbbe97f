//! The `tool_task` vocabulary of a task's stream.

use crate::{Digest, Encoding, Mode, RenderedOutput, SessionId, SignalName, Status, StreamName, TaskId, Text, Tool};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolTaskEvent {
    #[serde(flatten)]
    pub head: ToolTaskHead,
    #[serde(flatten)]
    pub what: ToolTaskWhat,
}

/// The fields that every event has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolTaskHead {
    /// The task id, the number of the record, and the index of the event within that record.
    pub id: String,
    pub stream_kind: ToolTaskStream,
    pub stream_id: TaskId,
    pub seq: u64,
    pub timestamp_ms: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolTaskStream {
    #[default]
    Task,
}

/// The content of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type")]
pub enum ToolTaskWhat {
    #[serde(rename = "tool_task_spawned")]
    Spawned {
        task_id: TaskId,
        tool_name: Tool,
        args: ToolTaskArgs,
        cwd: Text,
        execution_mode: Mode,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<Text>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin_session_id: Option<SessionId>,
    },
    #[serde(rename = "tool_task_status")]
    Status {
        task_id: TaskId,
        status: Status,
        /// Null for a task that ended without having started.
        #[serde(default, deserialize_with = "null_or_value", skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
        started_at_ms: Option<Option<u64>>,
        #[serde(default, deserialize_with = "null_or_value", skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
        ended_at_ms: Option<Option<u64>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    #[serde(rename = "tool_ended")]
    Ended { exit_code: i32, duration_ms: Option<u64>, artifacts: Vec<ToolTaskArtifact> },
    #[serde(rename = "tool_task_cancelled")]
    Cancelled { reason: String, wall_time_ms: Option<u64> },
    #[serde(rename = "tool_task_output_delta")]
    OutputDelta {
        stream: StreamName,
        #[serde(flatten)]
        chunk: ToolTaskChunk,
    },
    #[serde(rename = "tool_stdout")]
    Stdout(ToolTaskChunk),
    #[serde(rename = "tool_stderr")]
    Stderr(ToolTaskChunk),
    #[serde(rename = "tool_task_cancel_requested")]
    CancelRequested { reason: Option<Text> },
    #[serde(rename = "tool_task_stdin_written")]
    StdinWritten { bytes: u64 },
    #[serde(rename = "tool_task_resized")]
    Resized { rows: u16, cols: u16 },
    #[serde(rename = "tool_task_signalled")]
    Signalled { signal: SignalName },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolTaskArgs {
    pub command: Text,
}

/// A piece of output: complete if it is short, otherwise its beginning and end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolTaskChunk {
    pub chunk: String,
    pub encoding: Encoding,
    /// The range of the stream that this piece covers. `GET /tasks/{id}/output` has all of its bytes.
    pub offset_bytes: u64,
    pub bytes: u64,
    /// How many bytes `chunk` leaves out between its beginning and end, and where in `chunk`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_at: Option<usize>,
    /// Why there is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl ToolTaskChunk {
    #[must_use]
    pub fn new(offset_bytes: u64, bytes: u64, rendered: Option<&RenderedOutput>) -> Self {
        let RenderedOutput { text, encoding, omitted, omitted_at, unreadable } = rendered.cloned().unwrap_or_default();
        let encoding = encoding.unwrap_or_default();
        Self { chunk: text, encoding, offset_bytes, bytes, omitted, omitted_at, unreadable }
    }
}

/// A file that the task left. `GET /artifacts/{sha256}` has it once the receipt is sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolTaskArtifact {
    pub name: String,
    pub bytes: u64,
    pub sha256: Digest,
}

/// One line of JSON.
impl fmt::Display for ToolTaskEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// Tells a field that is `null` from one that is absent.
fn null_or_value<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(d).map(Some)
}
