//! The grant: a person's saved approval, and how far it goes.

use crate::{Audience, Choice, Confinement, Digest, GrantId, PrincipalId, Risk, SessionId, Text, Timestamp, Tool, Via};
use serde::{Deserialize, Serialize};

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// (verb, directory), for an audience and a tool, and everything else that a call must be to be covered by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// None only for one that nobody has saved: `csn check` tries those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<GrantId>,
    pub verb: Text,
    /// None is anywhere.
    pub directory: Option<Text>,
    /// The directory is the top of a repository, and was granted as that.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repository: bool,
    /// Whose requests it is for.
    #[serde(default = "PrincipalId::owner")]
    pub principal: PrincipalId,
    /// Only for this session; none is for every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(default)]
    pub audience: Audience,
    #[serde(default)]
    pub tool: Tool,
    /// The risks that were accepted; none: what the verb has by itself, and writing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risks: Option<Vec<Risk>>,
    /// The program that was meant, when it was not the one that the name leads to on a system path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Text>,
    /// The operands that were approved; none is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operands: Option<Operands>,
    /// The assignments that were approved, as a keyed digest: their values may be secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignments: Option<Digest>,
    /// The content of the script that was approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Digest>,
    /// What the request that was approved asked to be held to; the calls that it covers are held to that at least.
    #[serde(default, skip_serializing_if = "is_default")]
    pub confinement: Confinement,
    /// Whether its calls run open, as its card showed, or in what their risks need.
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
    /// How many more calls it covers; none is any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses_left: Option<u64>,
}

/// What a grant's calls run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GrantSandbox {
    /// With the user's rights, behind a shield: grants made before sandboxes followed what was accepted, and those given to
    /// a request that asked for it.
    #[default]
    Open,
    /// The narrowest sandbox that the call's risks need.
    Narrow,
}

/// The words behind a program, as a keyed digest of what they are and as what may be shown of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Operands {
    pub digest: Digest,
    pub shown: Text,
}

impl Grant {
    /// Whether it still holds at this moment.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        self.uses_left != Some(0) && self.expires_at.is_none_or(|end| now < end)
    }

    /// Whether both say the same, whoever said it when.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        let bare = |g: &Self| Self { id: None, created_at: None, created_by: None, surface: None, ..g.clone() };
        bare(self) == bare(other)
    }

    /// The answer that gives such a grant.
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
