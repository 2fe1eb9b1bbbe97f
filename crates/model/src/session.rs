//! Who asks, and in which conversation: principals, tokens, sessions.

use crate::{Audience, CredentialKind, Digest, PrincipalId, SessionId, Text, Timestamp, TokenId, Via};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// What a credential may do. Agents never hold the last two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CredentialScope {
    /// Look at tasks, approvals, sessions.
    Observe,
    /// Ask for commands, and control one's tasks.
    Run,
    /// Answer approvals, give and revoke grants.
    Approve,
    /// Tokens, and stopping the house.
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

    /// Whether an agent may hold it.
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

/// A bearer token, as it is kept: never itself, only its hash.
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
    /// To the hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

impl Token {
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// One conversation of an agent or client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Session {
    pub id: SessionId,
    pub principal: PrincipalId,
    pub credential: CredentialKind,
    pub audience: Audience,
    /// The credential that opened it, by name.
    #[serde(default)]
    pub by: Via,
    /// Where its requests run that name no directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<Text>,
    /// What it may read unasked.
    #[serde(default)]
    pub roots: Vec<Text>,
    /// Its own folder, made when it was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<Text>,
    /// Nobody opened it: the requests of one credential from one repository, by this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implicit: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Text>,
    /// What the agent calls this conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Text>,
    /// The process of the agent: everything below it is an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Process>,
    /// The process that made it known, before anything of it was: what it is asked, it may put to whoever sits there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<Process>,
    pub opened_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// A process that cannot be taken for another: its pid, and when it started in ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process {
    pub pid: u32,
    pub start: u64,
}
