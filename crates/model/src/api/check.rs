//! `POST /check`: what the gate would decide about a [`crate::Request`]. The daemon neither records nor runs the
//! request.

use crate::{GrantId, Refusal, Risk, VerdictKind};
use serde::{Deserialize, Serialize};

/// The gate's decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckResponse {
    pub verdict: VerdictKind,
    /// No grant can be saved for it: a person can only approve it once.
    pub one_shot: bool,
    pub risks: Vec<Risk>,
    /// The grants that cover it.
    pub grants: Vec<GrantId>,
    /// Why it would be denied; otherwise null.
    pub refusal: Option<Refusal>,
}
