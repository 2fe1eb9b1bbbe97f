//! `/tasks/{id}/attach`: what goes over the WebSocket as text. Bytes go as bytes.

use super::control::{ResizeBody, StdinBody};
use crate::{Refusal, SignalName, StreamName, TaskState};
use serde::{Deserialize, Serialize};

/// How to attach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AttachQuery {
    #[serde(skip_serializing_if = "super::is_default")]
    pub read_only: bool,
    /// From the record after this one on, instead of the screen as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Names this client across connections, so that the daemon applies once what the client sends again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The number of the first message that the client will send.
    #[serde(skip_serializing_if = "super::is_default")]
    pub from: u64,
    /// When far behind, see the screen as it is instead of all that led to it.
    #[serde(skip_serializing_if = "super::is_default")]
    pub skip: bool,
}

/// What a client sends, beside the bytes that were typed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum AttachMessage {
    Stdin(StdinBody),
    Resize(ResizeBody),
    Signal(SignalName),
}

/// What the daemon says about the attachment, between the records of the stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind")]
pub enum AttachEvent {
    /// The first of all.
    #[serde(rename = "attach.begin")]
    Begin {
        v: u32,
        task: Box<TaskState>,
        /// The screen that the next bytes draw.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        screen: Option<AttachScreen>,
    },
    /// The next bytes draw the screen anew.
    #[serde(rename = "attach.screen")]
    Screen { screen: AttachScreen },
    /// The next bytes are the last of a stream, from before.
    #[serde(rename = "attach.tail")]
    Tail { stream: StreamName, offset: u64, len: u64 },
    /// The message numbered `n` was applied; the record with this number says so.
    #[serde(rename = "attach.applied")]
    Applied { n: u64, seq: u64 },
    /// The message numbered `n` was refused; without a number, the whole attachment.
    #[serde(rename = "attach.refused")]
    Refused {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        n: Option<u64>,
        refusal: Refusal,
    },
}

/// A screen whose bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttachScreen {
    pub rows: u16,
    pub cols: u16,
    pub alternate_screen: bool,
    pub next_seq: u64,
    pub offset_bytes: u64,
}
