//! The grant: a person's saved approval, and which commands it covers.

use crate::{Audience, Choice, Confinement, Digest, GrantId, PrincipalId, Risk, SessionId, Text, Timestamp, Tool, Via};
use serde::{Deserialize, Serialize};

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A verb in a directory, for an audience and a tool, with all other conditions that a command must meet to be covered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// None only for a grant that was never saved: `csn check` tries out such grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<GrantId>,
    pub verb: Text,
    /// None means anywhere.
    pub directory: Option<Text>,
    /// The directory is the top of a repository and was granted as such.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repository: bool,
    /// The principal whose requests it covers.
    #[serde(default = "PrincipalId::owner")]
    pub principal: PrincipalId,
    /// Valid only in this session; none means in every session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(default)]
    pub audience: Audience,
    #[serde(default)]
    pub tool: Tool,
    /// The accepted risks. None means the verb's own risks, and writing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risks: Option<Vec<Risk>>,
    /// The approved program, if it is not the one that the name resolves to on a system path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Text>,
    /// The approved operands; none means any operands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operands: Option<Operands>,
    /// The approved assignments, as a keyed digest because their values may be secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignments: Option<Digest>,
    /// The content of the approved script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Digest>,
    /// The confinement that the approved request asked for. Commands that the grant covers get at least this one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub confinement: Confinement,
    /// Whether covered commands run without a sandbox, as the card showed, or in the narrowest one for their risks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sandbox: GrantSandbox,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<Via>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// How many more commands it covers; none means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses_left: Option<u64>,
}

/// The sandbox of the commands that a grant covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GrantSandbox {
    /// No sandbox, only the shield: for grants that were saved before grants had sandboxes, and for requests that asked
    /// for it.
    #[default]
    Open,
    /// The narrowest sandbox that the risks of the command allow.
    Narrow,
}

/// The arguments of a program, as a keyed digest and as the text that may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Operands {
    pub digest: Digest,
    pub shown: Text,
}

impl Grant {
    /// Whether it is valid at this time.
    #[must_use]
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.uses_left != Some(0) && self.expires_at.is_none_or(|end| now < end)
    }

    /// Whether both grant the same, regardless of who saved them and when.
    #[must_use]
    pub fn has_same_terms(&self, other: &Self) -> bool {
        let without_origin =
            |g: &Self| Self { id: None, created_at: None, created_by: None, surface: None, ..g.clone() };
        without_origin(self) == without_origin(other)
    }

    /// The choice on a card that saves such a grant.
    #[must_use]
    pub fn scope(&self) -> Choice {
        match (self.session, self.repository, &self.directory) {
            (Some(_), ..) => Choice::Session,
            (None, true, _) => Choice::Repository,
            (None, false, Some(_)) => Choice::Here,
            (None, false, None) => Choice::Anywhere,
        }
    }
}
