//! The output of a task: its bytes, search results, its screen and its recording.

use crate::{Encoding, RenderedOutput, StreamName, Text, cast::Version};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Streams by name. A short stream is complete; a long one is cut to its beginning and end.
pub type BoundedOutput = BTreeMap<StreamName, RenderedOutput>;

/// Which bytes `GET /tasks/{id}/output` sends: by offset, by line, or from the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct OutputQuery {
    /// By default `stdout`, or `pty` for a task with a terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// The first line to send, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_lines: Option<u64>,
}

/// A part of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputPage {
    pub content: String,
    pub encoding: Encoding,
    /// The offset of the content in the stream, and its length in bytes of the stream.
    pub offset_bytes: u64,
    pub bytes: u64,
    pub total_bytes: u64,
    /// The offset to continue from.
    pub next_offset: u64,
    /// The end of the requested part, even if the answer holds only a piece of it.
    pub end_offset: u64,
    /// Whether the stream has more bytes after `next_offset`.
    pub truncated: bool,
    /// Whether the stream is complete: no more bytes will be added.
    pub complete: bool,
    /// The bytes that the output limit dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<OutputGap>,
}

/// Bytes that the output limit dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputGap {
    pub offset_bytes: u64,
    pub bytes: u64,
}

/// A search in a task's output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SearchQuery {
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 4096)))]
    pub pattern: String,
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub regex: bool,
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub ignore_case: bool,
    /// How many lines of context each match has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 20)))]
    pub context: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub max_results: Option<usize>,
    /// By default every stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamName>,
    /// The `next` of an earlier page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A page of matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SearchPage {
    pub matches: Vec<SearchMatch>,
    /// The cursor of the next page; null at the end.
    pub next: Option<String>,
    /// Whether the output is complete: no more bytes will be added.
    pub complete: bool,
}

/// One line that matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SearchMatch {
    pub stream: StreamName,
    /// The offset of the match in the stream, and its length.
    pub offset_bytes: u64,
    pub bytes: u64,
    /// The line number, from 1; null after dropped output, where it is unknown.
    pub line: Option<u64>,
    pub line_offset_bytes: u64,
    pub excerpt: Excerpt,
    pub before: Vec<Excerpt>,
    pub after: Vec<Excerpt>,
}

/// A line: as text if it is valid text, otherwise encoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Excerpt {
    Text(String),
    Encoded { encoding: Encoding, content: String },
}

/// What the terminal of a task shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScreenView {
    pub rows: u16,
    pub cols: u16,
    pub cursor: CursorPosition,
    pub alternate_screen: bool,
    pub text: Text,
    /// The next record and the byte offset of the stream at which the screen looks like this.
    pub next_seq: u64,
    pub offset_bytes: u64,
}

/// The position of a terminal's cursor, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CursorPosition {
    pub row: u16,
    pub col: u16,
}

/// Which asciicast version `GET /tasks/{id}/cast` sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CastQuery {
    /// By default version 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
}
