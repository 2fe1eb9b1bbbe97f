//! Who asks, and in which conversation: principals, tokens and sessions.

use crate::{Audience, CredentialKind, Digest, PrincipalId, SessionId, Text, Timestamp, TokenId, Via};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// What a credential may do. Agents never have the last two scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CredentialScope {
    /// Read tasks, approvals and sessions.
    Observe,
    /// Request commands, and control one's own tasks.
    Run,
    /// Answer approvals, add and revoke grants.
    Approve,
    /// Manage tokens, and stop the daemon.
    Admin,
}

impl CredentialScope {
    pub const ALL: [Self; 4] = [Self::Observe, Self::Run, Self::Approve, Self::Admin];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Run => "run",
            Self::Approve => "approve",
            Self::Admin => "admin",
        }
    }

    /// Whether an agent may have it.
    #[must_use]
    pub fn for_agents(self) -> bool {
        matches!(self, Self::Observe | Self::Run)
    }
}

impl fmt::Display for CredentialScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CredentialScope {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| {
            format!("`{}` is not a scope: use observe, run, approve or admin", crate::DisplaySafe::bounded(text, 40))
        })
    }
}

/// A bearer token as stored: only its hash, never the token itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Token {
    pub id: TokenId,
    pub name: Text,
    pub principal: PrincipalId,
    pub kind: CredentialKind,
    pub scopes: Vec<CredentialScope>,
    #[serde(default)]
    pub audience: Audience,
    /// SHA-256 of the token.
    pub hash: Digest,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Rounded to the hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

impl Token {
    #[must_use]
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// One conversation of an agent or a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Session {
    pub id: SessionId,
    pub principal: PrincipalId,
    pub credential: CredentialKind,
    pub audience: Audience,
    /// How the caller that opened it connected.
    #[serde(default)]
    pub by: Via,
    /// The directory for requests that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<Text>,
    /// The directories that it may read without an approval.
    #[serde(default)]
    pub roots: Vec<Text>,
    /// Its own directory, created when it was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<Text>,
    /// Opened automatically for the requests of one credential from one repository; the name identifies both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implicit: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Text>,
    /// The agent's id of this conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Text>,
    /// The process of the agent: every process below it counts as an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Process>,
    /// The process that first reported the conversation. The daemon may send approvals to it, for the person who uses
    /// that agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<Process>,
    pub opened_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// A process that cannot be confused with another: its pid, and its start time in ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process {
    pub pid: u32,
    pub start: u64,
}
