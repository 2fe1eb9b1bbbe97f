//! How a caller connected. Records hold it as one text; surfaces derive sentences for people from it.

use crate::Text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a caller connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// The unix socket, as a person: the kernel names the user, and no task or agent is above the process.
    Socket,
    /// A token, by its name.
    Token(TokenName),
    /// A process below a task or a registered agent, whose session is known.
    Agent,
    /// A process of a task or an agent whose session is not known.
    Orphan,
    /// A process that could not be identified.
    Unidentified,
    /// The agent's own MCP client, on behalf of the person who uses it.
    Mcp,
    /// A text that another version stored.
    Other(Text),
}

/// The name of a token as records hold it: `token NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenName(Text);

const TOKEN_PREFIX: &str = "token ";

impl Via {
    /// The token with this name; `stored` is the clean text `token NAME`.
    #[must_use]
    pub fn from_token(stored: Text) -> Self {
        Self::from(stored)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Socket => "socket",
            Self::Token(TokenName(stored)) => stored.as_str(),
            Self::Agent => "agent",
            Self::Orphan => "orphan",
            Self::Unidentified => "unknown",
            Self::Mcp => "mcp",
            Self::Other(text) => text.as_str(),
        }
    }

    /// The text for a record.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::Socket => Text::from_static("socket"),
            Self::Token(TokenName(text)) | Self::Other(text) => text.clone(),
            Self::Agent => Text::from_static("agent"),
            Self::Orphan => Text::from_static("orphan"),
            Self::Unidentified => Text::from_static("unknown"),
            Self::Mcp => Text::from_static("mcp"),
        }
    }
}

/// For records from before this was stored.
impl Default for Via {
    fn default() -> Self {
        Self::Other(Text::default())
    }
}

impl From<Text> for Via {
    fn from(text: Text) -> Self {
        match text.as_str() {
            "socket" => Self::Socket,
            "agent" => Self::Agent,
            "orphan" => Self::Orphan,
            "unknown" => Self::Unidentified,
            "mcp" => Self::Mcp,
            stored if stored.starts_with(TOKEN_PREFIX) => Self::Token(TokenName(text)),
            _ => Self::Other(text),
        }
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Via {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Via {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Text::deserialize(d).map(Self::from)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Via {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Via".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "How the caller connected: socket, agent, orphan, unknown, mcp, or `token` and its name",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_keeps_its_stored_text() {
        for (stored, via) in [
            ("socket", Via::Socket),
            ("agent", Via::Agent),
            ("orphan", Via::Orphan),
            ("unknown", Via::Unidentified),
            ("mcp", Via::Mcp),
        ] {
            assert_eq!(serde_json::to_value(&via).unwrap(), stored);
            assert_eq!(serde_json::from_value::<Via>(stored.into()).unwrap(), via);
            assert_eq!(via.text().as_str(), stored);
        }
        for stored in ["token ci", "a way of a later version", ""] {
            let via: Via = serde_json::from_value(stored.into()).unwrap();
            assert_eq!(matches!(via, Via::Token(_)), stored == "token ci");
            assert_eq!(serde_json::to_value(&via).unwrap(), stored);
        }
    }
}
