//! Read errors as refusals to a caller.

use crate::output::ReadError;
use countersign_model::{Refusal, RefusalCode, TaskRefusal};

#[cfg(feature = "ledger")]
impl From<crate::ledger::LedgerError> for TaskRefusal {
    fn from(e: crate::ledger::LedgerError) -> Self {
        Refusal::new(RefusalCode::LedgerUnavailable, e.to_string()).hint("run `csn doctor`").into()
    }
}

#[cfg(feature = "ledger")]
impl From<crate::stream::StreamError> for TaskRefusal {
    fn from(e: crate::stream::StreamError) -> Self {
        Refusal::new(RefusalCode::Internal, e.to_string()).hint("run `csn doctor`").into()
    }
}

impl From<ReadError> for TaskRefusal {
    fn from(e: ReadError) -> Self {
        let code = match &e {
            ReadError::Tampered { .. } => RefusalCode::ArtifactTampered,
            ReadError::BeyondEnd { .. } | ReadError::InGap { .. } => RefusalCode::RangeNotSatisfiable,
            ReadError::Io(_) => RefusalCode::Internal,
        };
        Refusal::new(code, e.to_string()).into()
    }
}
