//! The verdict on one plan, with its reasons.

use crate::{GrantId, Refusal, Risk, RiskNote, Sandbox};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Runs without asking; `rule` says what covers it.
    Allow {
        rule: &'static str,
    },
    /// Waits for a person, about these occurrences.
    Ask {
        uncovered: Vec<usize>,
    },
    Deny(Refusal),
}

/// A verdict in one word: what an operator's rule says, and what `POST /check` and `csn check` answer.
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

/// What lets one occurrence run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coverage {
    /// It only says something, or changes its own shell.
    SideEffect,
    /// A reviewed read-only phrase.
    Phrase(&'static str),
    /// A saved grant, and how it is labelled.
    Grant { id: GrantId, label: String },
    /// An operator's rule, by its name.
    Rule(String),
    /// Another occurrence stands for it.
    Elsewhere,
    /// Nothing; with the reason, and what would help.
    None { why: String, help: String },
}

impl Coverage {
    #[must_use]
    pub fn holds(&self) -> bool {
        !matches!(self, Self::None { .. })
    }
}

/// One assessment serves prompt, match, launch and receipt.
#[derive(Debug, Clone, PartialEq)]
pub struct Assessment {
    pub verdict: Verdict,
    pub risks: Vec<RiskNote>,
    /// What it runs in if it is let run.
    pub sandbox: Sandbox,
    /// What covers each occurrence, in order.
    pub coverage: Vec<Coverage>,
    /// Nothing about it could be saved: it can only be approved once.
    pub one_shot: bool,
    /// The directories that each occurrence works in.
    pub directories: Vec<Vec<String>>,
    /// The occurrence that a refusal is about.
    pub culprit: Option<usize>,
}

impl Assessment {
    /// The grants that it rests on.
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
