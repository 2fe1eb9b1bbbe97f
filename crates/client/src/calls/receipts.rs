//! Receipts, the keys that signed them, and the files that they cover.

use crate::{Call, HttpRequest};
use countersign_model::{
    Digest, KeyAnnounced,
    api::{KeyList, ReceiptPage, ReceiptQuery, RotateBody, WaitQuery},
};
use std::fmt::Display;

/// A page of receipts, newest first.
#[must_use]
pub fn list(query: &ReceiptQuery) -> Call<ReceiptPage> {
    Call::json(HttpRequest::get(&["receipts"]).query(query))
}

/// The signed envelope of a receipt, byte for byte, by task, receipt id or number. Waits for a receipt that is about to
/// be sealed.
#[must_use]
pub fn show(id: impl Display, wait_ms: u64) -> Call<Vec<u8>> {
    let query = WaitQuery { wait_ms: Some(wait_ms) };
    Call::bytes(HttpRequest::get(&["tasks", &id.to_string(), "receipt"]).query(&query))
}

/// A signed ledger head, byte for byte.
#[must_use]
pub fn signed_head() -> Call<Vec<u8>> {
    Call::bytes(HttpRequest::post(&["receipts", "head"]))
}

/// A file that a receipt covers.
#[must_use]
pub fn artifact(sha256: Digest) -> Call<Vec<u8>> {
    Call::bytes(HttpRequest::get(&["artifacts", &sha256.to_string()]))
}

/// Every key that receipts were signed with, oldest first.
#[must_use]
pub fn keys() -> Call<KeyList> {
    Call::json(HttpRequest::get(&["keys"]))
}

/// Switches to a new key and announces it.
#[must_use]
pub fn rotate_key(lost: bool) -> Call<KeyAnnounced> {
    Call::json(HttpRequest::post(&["keys"]).json(&RotateBody { rotate: true, lost }))
}
