//! `/receipts`, `/tasks/{id}/receipt`, `/keys`: what was signed, and by which key.

use crate::{AnswerKind, DecimalCount, Digest, KeyAnnounced, Outcome, ReceiptId, TaskId, Text, Timestamp};
use serde::{Deserialize, Serialize};

/// Which receipts `GET /receipts` lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ReceiptQuery {
    /// The `next` of an earlier page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 500)))]
    pub limit: Option<usize>,
}

/// A page of receipts, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceiptPage {
    pub receipts: Vec<ReceiptRow>,
    /// The cursor of the next page; null at the end.
    pub next: Option<DecimalCount>,
    /// Why receipts are not sealed, when they are not; else null.
    pub failing: Option<Text>,
}

/// What a list shows of a receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceiptRow {
    pub receipt_id: ReceiptId,
    /// Its place among the receipts of the home, from 1.
    pub seq: DecimalCount,
    pub task_id: TaskId,
    /// SHA-256 of the signed statement.
    pub digest: Digest,
    pub key: Digest,
    pub sealed_at: Timestamp,
    pub outcome: Outcome,
    pub decision: AnswerKind,
    pub recovered: bool,
    pub display: Text,
}

/// A DSSE envelope: the signed statement of a receipt, or a signed head of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Envelope {
    #[serde(rename = "payloadType")]
    pub payload_type: String,
    /// As base64.
    pub payload: String,
    pub signatures: Vec<EnvelopeSignature>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnvelopeSignature {
    pub keyid: String,
    /// As base64.
    pub sig: String,
}

/// Every key that receipts were signed with, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeyList {
    pub keys: Vec<KeyView>,
}

/// A key, and where the ledger announces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeyView {
    pub key: Digest,
    /// The public half; null if it does not read.
    pub pem: Option<String>,
    /// The number of the decision that announces it.
    pub decision: i64,
    /// The key that vouches for it; null for the first, or where that one was lost.
    pub announced_by: Option<Digest>,
    pub in_use: bool,
    pub announcement: KeyAnnounced,
}

/// The body of `POST /keys`. The answer is the [`KeyAnnounced`] of the new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RotateBody {
    /// True: nothing else can be done with keys.
    #[cfg_attr(feature = "schema", schemars(extend("const" = true)))]
    pub rotate: bool,
    /// The present key is lost and cannot vouch for the new one.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub lost: bool,
}
