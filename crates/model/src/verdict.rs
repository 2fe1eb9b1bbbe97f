//! The verdict on one plan, with its reasons.

use crate::{GrantId, Refusal, Risk, RiskNote, Sandbox};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Runs without an approval; `rule` names what covers it.
    Allow {
        rule: &'static str,
    },
    /// Waits for a person, because of these occurrences.
    Ask {
        uncovered: Vec<usize>,
    },
    Deny(Refusal),
}

/// A verdict in one word: the answer of an operator's rule, of `POST /check` and of `csn check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    Allow,
    Ask,
    #[default]
    Deny,
}

impl VerdictKind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl Verdict {
    #[must_use]
    pub fn kind(&self) -> VerdictKind {
        match self {
            Self::Allow { .. } => VerdictKind::Allow,
            Self::Ask { .. } => VerdictKind::Ask,
            Self::Deny(_) => VerdictKind::Deny,
        }
    }
}

/// What allows one command of a plan to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coverage {
    /// It only prints something or changes its own shell.
    SideEffect,
    /// A known read-only command, by the name of its phrase.
    Phrase(&'static str),
    /// A saved grant with its label.
    Grant { id: GrantId, label: String },
    /// An operator's rule, by its name.
    Rule(String),
    /// Another command of the plan covers it.
    Elsewhere,
    /// Nothing covers it: why, and what would help.
    None { why: String, help: String },
}

impl Coverage {
    #[must_use]
    pub fn is_covered(&self) -> bool {
        !matches!(self, Self::None { .. })
    }
}

/// One assessment serves the card, the decision, the launch and the receipt.
#[derive(Debug, Clone, PartialEq)]
pub struct Assessment {
    pub verdict: Verdict,
    pub risks: Vec<RiskNote>,
    /// The sandbox that it would run in.
    pub sandbox: Sandbox,
    /// What covers each command of the plan, in order.
    pub coverage: Vec<Coverage>,
    /// No grant can be saved for it: a person can only approve it once.
    pub one_shot: bool,
    /// The directories that each command works in.
    pub directories: Vec<Vec<String>>,
    /// The command that caused a refusal.
    pub culprit: Option<usize>,
}

impl Assessment {
    /// The grants that cover it.
    #[must_use]
    pub fn grants(&self) -> Vec<GrantId> {
        let each = self.coverage.iter().filter_map(|c| match c {
            Coverage::Grant { id, .. } => Some(*id),
            _ => None,
        });
        let mut all: Vec<GrantId> = each.collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The risks, each once, in their fixed order.
    pub fn risk_set(&self) -> Vec<Risk> {
        let mut risks: Vec<Risk> = self.risks.iter().map(|n| n.risk).collect();
        risks.sort_unstable();
        risks.dedup();
        risks
    }
}
