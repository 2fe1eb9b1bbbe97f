//! Operations on a running task.

use crate::{KeyPress, SignalName};
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

/// The body of `POST /tasks/{id}/stdin`: one of the first four fields, or `eof`, alone or after bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("anyOf" = input_forms())))]
#[serde(deny_unknown_fields)]
pub struct StdinBody {
    /// Bytes as base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = BASE64)))]
    pub chunk_b64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<KeyPress>>,
    /// Text that arrives as a bracketed paste if the program asked for bracketed pastes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paste: Option<String>,
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub eof: bool,
}

/// Standard base64 with padding.
#[cfg(feature = "schema")]
const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

/// Which fields of a [`StdinBody`] go together.
#[cfg(feature = "schema")]
fn input_forms() -> serde_json::Value {
    let only = |name: &str, schema: serde_json::Value, eof: serde_json::Value| {
        let mut fields = serde_json::Map::new();
        for other in ["chunk_b64", "text", "keys", "paste"] {
            fields.insert(other.to_owned(), serde_json::json!({"type": "null"}));
        }
        fields.insert("eof".to_owned(), eof);
        fields.insert(name.to_owned(), schema);
        serde_json::json!({"required": [name], "properties": fields})
    };
    let (any, never, always) =
        (serde_json::json!({}), serde_json::json!({"const": false}), serde_json::json!({"const": true}));
    let mut inputs = vec![
        only("text", serde_json::json!({"type": "string", "minLength": 1}), any.clone()),
        only("chunk_b64", serde_json::json!({"type": "string", "minLength": 4}), any),
        only("keys", serde_json::json!({"type": "array", "minItems": 1}), never.clone()),
        only("paste", serde_json::json!({"type": "string"}), never),
        only("eof", always.clone(), always.clone()),
    ];
    // `eof` may also come with an empty input.
    for name in ["text", "chunk_b64"] {
        let mut empty = only(name, serde_json::json!({"const": ""}), always.clone());
        empty["required"] = serde_json::json!([name, "eof"]);
        inputs.push(empty);
    }
    inputs.into()
}

impl StdinBody {
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    #[must_use]
    pub fn keys(keys: Vec<KeyPress>) -> Self {
        Self { keys: Some(keys), ..Self::default() }
    }

    #[must_use]
    pub fn paste(text: impl Into<String>) -> Self {
        Self { paste: Some(text.into()), ..Self::default() }
    }

    /// Closes standard input.
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
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub rows: u16,
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub cols: u16,
}

/// The daemon applied an operation; `seq` is the number of the record that documents it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppliedRecord {
    pub seq: u64,
}
