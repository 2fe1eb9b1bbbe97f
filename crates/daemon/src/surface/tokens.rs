//! `/tokens`: credentials for those who cannot come through the socket. Shown once, kept as a hash.

use super::{
    Answer, Shared,
    arrive::{TOKEN, Who},
    problem::{Problem, Segment, Whole, body},
};
use crate::{
    people,
    wish::{Kept, Wish},
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use countersign_model::{
    At, Audience, Code, CredentialKind, CredentialScope, Digest, IdMint, PrincipalId, Refusal, Shown, Token, TokenId,
};
use countersign_redact::text_by_shape;
use countersign_store::{clock, random};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Making {
    name: String,
    kind: CredentialKind,
    scopes: Vec<CredentialScope>,
    #[serde(default)]
    audience: Audience,
    /// Somebody else than the owner, by name.
    #[serde(default)]
    principal: Option<String>,
    #[serde(default)]
    expires_at: Option<At>,
}

/// A token for people to see: everything but its hash.
fn shown(house: &crate::house::House, token: &Token) -> Value {
    let mut value = json!(token);
    if let Some(object) = value.as_object_mut() {
        object.remove("hash");
    }
    value["principal_name"] = json!(house.roster.borrow().name(token.principal));
    value
}

fn name(text: &str, what: &str) -> Result<countersign_model::Text, Problem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    match !text.is_empty() && text.len() <= 40 && text.chars().all(plain) {
        true => Ok(text_by_shape(text)),
        false => Err(Refusal::new(
            Code::BadRequest,
            format!("`{what}`: 1 to 40 letters, digits, - _ . @, not `{}`", Shown::bounded(text, 40)),
        )
        .into()),
    }
}

pub(crate) async fn create(State(house): Shared, who: Who, Whole(bytes): Whole) -> Answer<Response> {
    let making: Making = body(&bytes)?;
    if who.principal != PrincipalId::owner() {
        return Err(Refusal::new(Code::Forbidden, "tokens are made by the owner of the house").into());
    }
    let mut scopes = making.scopes;
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.is_empty() {
        return Err(Refusal::new(Code::BadRequest, "`scopes` is empty: it could do nothing").into());
    }
    let now = clock::now();
    if making.expires_at.is_some_and(|end| end <= now) {
        return Err(Refusal::new(Code::BadRequest, "`expires_at` has passed already").into());
    }
    let id = TokenId::mint(&mut IdMint::default(), now.millis(), u32::from_le_bytes(random()));
    let secret = format!("{TOKEN}{}_{}", id.tail(), URL_SAFE_NO_PAD.encode(random::<32>()));
    let token = Token {
        id,
        name: name(&making.name, "name")?,
        principal: PrincipalId::owner(),
        kind: making.kind,
        scopes,
        audience: making.audience,
        hash: Digest::sha256(&[secret.as_bytes()]),
        created_at: now,
        expires_at: making.expires_at,
        last_used_at: None,
        revoked_at: None,
    };
    let of = making.principal.as_deref().map(|p| name(p, "principal")).transpose()?;
    if of.as_ref().is_some_and(|of| of.as_str() == "owner") {
        return Err(Refusal::new(Code::BadRequest, "`principal`: the owner is whom it is for without one").into());
    }
    if let Some(of) =
        of.as_ref().filter(|of| house.people.is_machine() && house.roster.borrow().principal(of.as_str()).is_none())
    {
        // Whoever it is for, it is a user of the machine: nothing runs as anybody else.
        let uid = people::uid_of(of.as_str())
            .ok_or_else(|| Refusal::new(Code::BadRequest, format!("`principal`: the machine has no user {of}")))?;
        house.welcome(people::login(uid)?).await?;
    }
    match house.wish(Wish::Token { token: Box::new(token), of }).await? {
        Kept::Token(token) => {
            let mut told = shown(&house, &token);
            told["token"] = json!(secret);
            Ok((StatusCode::CREATED, Json(told)).into_response())
        }
        _ => Err(Refusal::new(Code::Internal, "no token came of it").into()),
    }
}

pub(crate) async fn list(State(house): Shared, who: Who) -> Answer<Json<Value>> {
    let roster = Arc::clone(&house.roster.borrow());
    let own = |t: &&Arc<Token>| who.principal == PrincipalId::owner() || t.principal == who.principal;
    let all: Vec<Value> = roster.tokens().filter(own).map(|t| shown(&house, t)).collect();
    Ok(Json(json!({"tokens": all})))
}

/// By id, by the beginning of one, or by name.
pub(crate) async fn revoke(State(house): Shared, who: Who, Segment(text): Segment) -> Answer<Json<Value>> {
    let roster = Arc::clone(&house.roster.borrow());
    let own = |t: &&Arc<Token>| who.principal == PrincipalId::owner() || t.principal == who.principal;
    let prefix = if text.starts_with("ct_") { text.clone() } else { format!("ct_{text}") };
    let meant = |t: &&Arc<Token>| {
        t.name.as_str() == text && t.revoked_at.is_none() || prefix.len() >= 7 && t.id.to_string().starts_with(&prefix)
    };
    let mut found = roster.tokens().filter(own).filter(meant);
    let (token, other) = (found.next(), found.next());
    let Some(token) = token else {
        let shown = Shown::bounded(&text, 60);
        return Err(Refusal::new(Code::NotFound, format!("there is no token {shown}"))
            .hint("`csn token list` shows them")
            .into());
    };
    if other.is_some() {
        return Err(Refusal::new(Code::AmbiguousId, "more than one token is called that").into());
    }
    match house.wish(Wish::RevokeToken { token: token.id, by: who.actor() }).await? {
        Kept::Token(token) => Ok(Json(shown(&house, &token))),
        _ => Err(Refusal::new(Code::Internal, "no token came of it").into()),
    }
}
