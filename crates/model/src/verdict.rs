//! The verdict on one plan, with its reasons.

use crate::{Confinement, Refusal, Risk, RiskNote};

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
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

/// One assessment serves prompt, match, launch and receipt.
#[derive(Debug, Clone, PartialEq)]
pub struct Assessment {
    pub answer: Answer,
    pub risks: Vec<RiskNote>,
    pub confinement: Confinement,
}

impl Assessment {
    /// The risks, each once, in their fixed order.
    pub fn risk_set(&self) -> Vec<Risk> {
        let mut risks: Vec<Risk> = self.risks.iter().map(|n| n.risk).collect();
        risks.sort_unstable();
        risks.dedup();
        risks
    }
}
