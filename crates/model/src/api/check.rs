//! `POST /check`: what the gate would do with a [`crate::Request`]. Nothing is recorded or run.

use crate::{GrantId, Refusal, Risk, VerdictKind};
use serde::{Deserialize, Serialize};

/// What the gate would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckResponse {
    pub verdict: VerdictKind,
    /// Nothing about it could be saved: it can only be approved once.
    pub one_shot: bool,
    pub risks: Vec<Risk>,
    /// The grants that it would run by.
    pub grants: Vec<GrantId>,
    /// Why it would be denied; else null.
    pub refusal: Option<Refusal>,
}
