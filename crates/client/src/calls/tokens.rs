//! Credentials for callers that do not use the socket.

use crate::{Call, HttpRequest};
use countersign_model::api::{NewToken, TokenBody, TokenList, TokenView};

/// Every token, oldest first, without the tokens themselves.
#[must_use]
pub fn list() -> Call<TokenList> {
    Call::json(HttpRequest::get(&["tokens"]))
}

/// Creates a token. Only this answer contains it.
#[must_use]
pub fn create(body: &TokenBody) -> Call<NewToken> {
    Call::json(HttpRequest::post(&["tokens"]).json(body))
}

/// Revokes a token by its id or its name.
#[must_use]
pub fn revoke(id: &str) -> Call<TokenView> {
    Call::json(HttpRequest::delete(&["tokens", id]))
}
