//! `/receipts`, `/tasks/{id}/receipt` and `/keys`: signed receipts and the keys that signed them.

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
    /// Why the daemon seals no receipts; null while it seals them.
    pub failing: Option<Text>,
}

/// A receipt in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceiptRow {
    pub receipt_id: ReceiptId,
    /// Its number in the receipt chain of the home, from 1.
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

/// A DSSE envelope with the signed statement of a receipt, or a signed ledger head.
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
    /// The public key; null if the ledger's entry cannot be read.
    pub pem: Option<String>,
    /// The number of the decision that announced the key.
    pub decision: i64,
    /// The key that signed the announcement; null for the first key, or if the previous key was lost.
    pub announced_by: Option<Digest>,
    pub in_use: bool,
    pub announcement: KeyAnnounced,
}

/// The body of `POST /keys`. The answer is the [`KeyAnnounced`] of the new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RotateBody {
    /// Must be true: rotation is the only operation.
    #[cfg_attr(feature = "schema", schemars(extend("const" = true)))]
    pub rotate: bool,
    /// The current key is lost and cannot sign the announcement of the new one.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub lost: bool,
}
