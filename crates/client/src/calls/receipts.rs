//! What was signed, by which key, and the bytes that it speaks for.

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

/// The signed envelope of a receipt, byte for byte, by task, receipt or number. One that is about to be sealed is waited
/// for.
#[must_use]
pub fn show(id: impl Display, wait_ms: u64) -> Call<Vec<u8>> {
    let query = WaitQuery { wait_ms: Some(wait_ms) };
    Call::bytes(HttpRequest::get(&["tasks", &id.to_string(), "receipt"]).query(&query))
}

/// A signed head of the ledger, byte for byte.
#[must_use]
pub fn signed_head() -> Call<Vec<u8>> {
    Call::bytes(HttpRequest::post(&["receipts", "head"]))
}

/// Bytes that a receipt speaks for.
#[must_use]
pub fn artifact(sha256: Digest) -> Call<Vec<u8>> {
    Call::bytes(HttpRequest::get(&["artifacts", &sha256.to_string()]))
}

/// Every key that receipts were signed with, oldest first.
#[must_use]
pub fn keys() -> Call<KeyList> {
    Call::json(HttpRequest::get(&["keys"]))
}

/// Goes over to a new key, and announces it.
#[must_use]
pub fn rotate_key(lost: bool) -> Call<KeyAnnounced> {
    Call::json(HttpRequest::post(&["keys"]).json(&RotateBody { rotate: true, lost }))
}
