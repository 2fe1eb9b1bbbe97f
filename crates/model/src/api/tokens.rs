//! `/tokens`: credentials for callers that cannot come through the socket.

use crate::{Audience, CredentialKind, CredentialScope, PrincipalId, Text, Timestamp, Token, TokenId};
use serde::{Deserialize, Serialize};

/// The body of `POST /tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("anyOf" = kinds())))]
#[serde(deny_unknown_fields)]
pub struct TokenBody {
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[A-Za-z0-9._@-]{1,40}$")))]
    pub name: String,
    pub kind: CredentialKind,
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub scopes: Vec<CredentialScope>,
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub audience: Audience,
    /// Another principal than the owner, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[A-Za-z0-9._@-]{1,40}$")))]
    pub principal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// What goes together in a [`TokenBody`]: an agent never holds `approve` or `admin`.
#[cfg(feature = "schema")]
fn kinds() -> serde_json::Value {
    serde_json::json!([
        {"properties": {"kind": {"const": "person"}}},
        {"properties": {"kind": {"const": "agent"}, "scopes": {"items": {"enum": ["observe", "run"]}}}},
    ])
}

/// A token for people to see: everything but its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenView {
    pub id: TokenId,
    pub name: Text,
    pub principal: PrincipalId,
    /// Null for the owner.
    pub principal_name: Option<Text>,
    pub kind: CredentialKind,
    pub scopes: Vec<CredentialScope>,
    pub audience: Audience,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// To the hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

impl TokenView {
    #[must_use]
    pub fn new(token: &Token, principal_name: Option<Text>) -> Self {
        let Token {
            id,
            name,
            principal,
            kind,
            scopes,
            audience,
            hash: _,
            created_at,
            expires_at,
            last_used_at,
            revoked_at,
        } = token.clone();
        Self {
            id,
            name,
            principal,
            principal_name,
            kind,
            scopes,
            audience,
            created_at,
            expires_at,
            last_used_at,
            revoked_at,
        }
    }
}

/// The answer of `POST /tokens`: the only time that the token itself is shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewToken {
    #[serde(flatten)]
    pub view: TokenView,
    pub token: String,
}

/// A token must not get into a log by way of a debug format.
impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewToken").field("view", &self.view).finish_non_exhaustive()
    }
}

/// Every token, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenList {
    pub tokens: Vec<TokenView>,
}
