//! `/tokens`: credentials for callers that do not use the socket.

use crate::{Audience, CredentialKind, CredentialScope, PrincipalId, Text, Timestamp, Token, TokenId};
use serde::{Deserialize, Serialize};

/// The body of `POST /tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("anyOf" = token_forms())))]
#[serde(deny_unknown_fields)]
pub struct TokenBody {
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[A-Za-z0-9._@-]{1,40}$")))]
    pub name: String,
    pub kind: CredentialKind,
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub scopes: Vec<CredentialScope>,
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub audience: Audience,
    /// The principal that the token acts for, by name; the owner by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[A-Za-z0-9._@-]{1,40}$")))]
    pub principal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// Which fields of a [`TokenBody`] go together: an agent's token never has the scopes `approve` or `admin`.
#[cfg(feature = "schema")]
fn token_forms() -> serde_json::Value {
    serde_json::json!([
        {"properties": {"kind": {"const": "person"}}},
        {"properties": {"kind": {"const": "agent"}, "scopes": {"items": {"enum": ["observe", "run"]}}}},
    ])
}

/// A token as people see it: without its hash.
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
    /// Rounded to the hour.
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

/// The answer to `POST /tokens`. It is the only answer that contains the token itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewToken {
    #[serde(flatten)]
    pub view: TokenView,
    pub token: String,
}

/// Debug output leaves the token out, so that no log can contain it.
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
