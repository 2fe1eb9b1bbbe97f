//! `/grants`: grants are listed, added and revoked here.

use crate::{Audience, Confinement, Grant, GrantId, Risk, SessionId, Text, Timestamp, Tool};
use serde::{Deserialize, Deserializer, Serialize};

/// Which grants `GET /grants` lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct GrantQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The `next` of an earlier page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<GrantId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 500)))]
    pub limit: Option<usize>,
}

/// A page of the valid grants, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantPage {
    pub grants: Vec<GrantView>,
    /// The cursor of the next page; null at the end.
    pub next: Option<GrantId>,
}

/// A grant as stored, with its label for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantView {
    #[serde(flatten)]
    pub grant: Grant,
    pub label: Text,
}

/// The body of `POST /grants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GrantBody {
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub verb: String,
    /// An absolute path; null means anywhere. The field is required, so that nobody grants "anywhere" by leaving it
    /// out.
    #[serde(deserialize_with = "required_but_nullable")]
    #[cfg_attr(feature = "schema", schemars(required, extend("type" = ["string", "null"], "pattern" = "^/")))]
    pub directory: Option<String>,
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub audience: Audience,
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub tool: Tool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risks: Option<Vec<Risk>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub uses: Option<u64>,
    /// `shield`: covered commands run without a sandbox. Without this field they run in the narrowest sandbox that
    /// their risks allow, and never in a weaker one than named here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("not" = {"const": "none"})))]
    pub confinement: Option<Confinement>,
}

/// The field may be null, but must be present.
fn required_but_nullable<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(d)
}
