//! What a task wrote: its bytes, what is found in them, its screen, its recording.

use crate::{Encoding, Rendered, StreamName, Text, cast::Version};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Streams by name, each whole when it is short, else both ends.
pub type BoundedOutput = BTreeMap<StreamName, Rendered>;

/// Which bytes `GET /tasks/{id}/output` gives: by offset, by line, or from the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct OutputQuery {
    /// Without it, `stdout` or `pty`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// The first line, from 1.
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
    /// Where the content begins in the stream, and how many bytes of the stream it is.
    pub offset_bytes: u64,
    pub bytes: u64,
    pub total_bytes: u64,
    /// Where to read on.
    pub next_offset: u64,
    /// Where what was asked for ends, however little of it fits into one answer.
    pub end_offset: u64,
    /// Whether the stream has more behind `next_offset`.
    pub truncated: bool,
    /// Whether the stream grows no more.
    pub complete: bool,
    /// What the output limit dropped.
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

/// What to look for in a task's output.
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
    /// How many lines around a match are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 20)))]
    pub context: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub max_results: Option<usize>,
    /// Without it, every stream.
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
    /// Where to search on; null at the end.
    pub next: Option<String>,
    /// Whether the output grows no more.
    pub complete: bool,
}

/// One line with a match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SearchMatch {
    pub stream: StreamName,
    /// Where the match is in the stream, and how long it is.
    pub offset_bytes: u64,
    pub bytes: u64,
    /// From 1; null behind dropped output, where it is unknown.
    pub line: Option<u64>,
    pub line_offset_bytes: u64,
    pub excerpt: Excerpt,
    pub before: Vec<Excerpt>,
    pub after: Vec<Excerpt>,
}

/// A line, as text where it is text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Excerpt {
    Text(String),
    Encoded { encoding: Encoding, content: String },
}

/// What a terminal shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScreenView {
    pub rows: u16,
    pub cols: u16,
    pub cursor: CursorPosition,
    pub alternate_screen: bool,
    pub text: Text,
    /// The record and the byte of the stream behind which the screen looks like this.
    pub next_seq: u64,
    pub offset_bytes: u64,
}

/// Where a terminal's cursor is, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CursorPosition {
    pub row: u16,
    pub col: u16,
}

/// Which form of asciicast `GET /tasks/{id}/cast` gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CastQuery {
    /// Without it, version 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
}
