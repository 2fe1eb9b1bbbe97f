//! Operations on a running task.

use crate::{Key, SignalName};
use serde::{Deserialize, Serialize};

/// The body of `POST /tasks/{id}/cancel`; it may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The body of `POST /tasks/{id}/signal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SignalBody {
    pub signal: SignalName,
}

/// The body of `POST /tasks/{id}/stdin`: one of the first four, or `eof`, alone or after bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StdinBody {
    /// Bytes as base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_b64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<Key>>,
    /// Text that arrives as a paste where the program asked for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paste: Option<String>,
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub eof: bool,
}

impl StdinBody {
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    #[must_use]
    pub fn keys(keys: Vec<Key>) -> Self {
        Self { keys: Some(keys), ..Self::default() }
    }

    #[must_use]
    pub fn paste(text: impl Into<String>) -> Self {
        Self { paste: Some(text.into()), ..Self::default() }
    }

    /// The end of input.
    #[must_use]
    pub fn eof() -> Self {
        Self { eof: true, ..Self::default() }
    }
}

/// The body of `POST /tasks/{id}/resize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ResizeBody {
    pub rows: u16,
    pub cols: u16,
}

/// An operation was applied: the number of the record that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Applied {
    pub seq: u64,
}
