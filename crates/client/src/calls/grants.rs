//! Grants: listed, added and revoked.

use crate::{Call, HttpRequest};
use countersign_model::api::{GrantBody, GrantPage, GrantQuery, GrantView};
use std::fmt::Display;

/// A page of the valid grants, newest first.
#[must_use]
pub fn list(query: &GrantQuery) -> Call<GrantPage> {
    Call::json(HttpRequest::get(&["grants"]).query(query))
}

#[must_use]
pub fn show(id: impl Display) -> Call<GrantView> {
    Call::json(HttpRequest::get(&["grants", &id.to_string()]))
}

#[must_use]
pub fn add(body: &GrantBody) -> Call<GrantView> {
    Call::json(HttpRequest::post(&["grants"]).json(body))
}

#[must_use]
pub fn revoke(id: impl Display) -> Call<GrantView> {
    Call::json(HttpRequest::delete(&["grants", &id.to_string()]))
}

/// From now on, commands that the grant covers run in the narrowest sandbox for their risks.
#[must_use]
pub fn narrow(id: impl Display) -> Call<GrantView> {
    Call::json(HttpRequest::post(&["grants", &id.to_string(), "narrow"]))
}
