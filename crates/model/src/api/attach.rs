//! `/tasks/{id}/attach`: the text messages of the WebSocket. Terminal bytes travel as binary messages.

use super::control::{ResizeBody, StdinBody};
use crate::{Refusal, SignalName, StreamName, TaskState};
use serde::{Deserialize, Serialize};

/// The parameters of an attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AttachQuery {
    #[serde(skip_serializing_if = "super::is_default")]
    pub read_only: bool,
    /// Replays the stream from the record after this one, instead of starting with the current screen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Names this client across connections. The daemon applies a message only once, even if the client sends it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The number of the first message that the client will send.
    #[serde(skip_serializing_if = "super::is_default")]
    pub from: u64,
    /// When the client falls far behind, the daemon sends the current screen instead of the missed output.
    #[serde(skip_serializing_if = "super::is_default")]
    pub skip: bool,
}

/// A text message from the client. Typed bytes travel as binary messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum AttachMessage {
    Stdin(StdinBody),
    Resize(ResizeBody),
    Signal(SignalName),
}

/// A message from the daemon about the attachment itself, between the records of the stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind")]
pub enum AttachEvent {
    /// The first message of an attachment.
    #[serde(rename = "attach.begin")]
    Begin {
        v: u32,
        task: Box<TaskState>,
        /// The screen that the next bytes draw.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        screen: Option<AttachScreen>,
    },
    /// The next bytes redraw the whole screen.
    #[serde(rename = "attach.screen")]
    Screen { screen: AttachScreen },
    /// The next bytes are the end of a stream that was written before the client attached.
    #[serde(rename = "attach.tail")]
    Tail { stream: StreamName, offset: u64, len: u64 },
    /// The daemon applied message `n`; the record with number `seq` documents it.
    #[serde(rename = "attach.applied")]
    Applied { n: u64, seq: u64 },
    /// The daemon refused message `n`. Without a number, it refused the whole attachment.
    #[serde(rename = "attach.refused")]
    Refused {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        n: Option<u64>,
        refusal: Refusal,
    },
}

/// A screen. Its bytes follow in the next binary messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttachScreen {
    pub rows: u16,
    pub cols: u16,
    pub alternate_screen: bool,
    pub next_seq: u64,
    pub offset_bytes: u64,
}
