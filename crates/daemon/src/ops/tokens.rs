//! Tokens: credentials for callers that do not use the socket. A token is shown once and stored as a hash.

use super::{ApiResult, Ops, recognition::TOKEN_PREFIX};
use crate::{
    caller::Caller,
    register_command::{RegisterCommand, RegisterReply},
    users,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use countersign_model::{
    CredentialScope, Digest, DisplaySafe, IdMint, PrincipalId, Refusal, RefusalCode, Text, Token, TokenId,
    api::{NewToken, TokenBody, TokenList, TokenView},
};
use countersign_redact::text_by_shape;
use countersign_store::{clock, random};
use std::sync::Arc;

/// A token without its hash.
fn token_view(ops: &Ops, token: &Token) -> TokenView {
    TokenView::new(token, ops.roster.borrow().name(token.principal).cloned())
}

fn check_name(text: &str, what: &str) -> Result<Text, Refusal> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if !text.is_empty() && text.len() <= 40 && text.chars().all(plain) {
        return Ok(text_by_shape(text));
    }
    let shown = DisplaySafe::bounded(text, 40);
    let message = format!("`{what}` must be 1 to 40 letters, digits or the characters - _ . @, not `{shown}`");
    Err(Refusal::new(RefusalCode::BadRequest, message))
}

/// Creates a token. This is the only time that its secret is shown.
pub(crate) async fn create(ops: &Arc<Ops>, caller: &Caller, making: TokenBody) -> ApiResult<NewToken> {
    caller.require_scope(CredentialScope::Admin)?;
    let mut scopes = making.scopes;
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.is_empty() {
        return Err(Refusal::new(RefusalCode::BadRequest, "`scopes` is empty; name at least one scope").into());
    }
    let now = clock::now();
    if making.expires_at.is_some_and(|end| end <= now) {
        return Err(Refusal::new(RefusalCode::BadRequest, "`expires_at` is in the past").into());
    }
    let id = TokenId::mint(&mut IdMint::default(), now.millis(), u32::from_le_bytes(random()));
    let secret = format!("{TOKEN_PREFIX}{}_{}", id.tail(), URL_SAFE_NO_PAD.encode(random::<32>()));
    let token = Token {
        id,
        name: check_name(&making.name, "name")?,
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
    let of = making.principal.as_deref().map(|p| check_name(p, "principal")).transpose()?;
    if of.as_ref().is_some_and(|of| of.as_str() == "owner") {
        let message = "`principal` cannot be `owner`; leave it out for a token of the owner";
        return Err(Refusal::new(RefusalCode::BadRequest, message).into());
    }
    if let Some(of) =
        of.as_ref().filter(|of| ops.users.is_system_service() && ops.roster.borrow().principal(of.as_str()).is_none())
    {
        // The principal must be a user of the machine: nothing runs as anyone else.
        let uid = users::find_uid(of.as_str()).ok_or_else(|| {
            Refusal::new(RefusalCode::BadRequest, format!("`principal`: there is no user {of} on this machine"))
        })?;
        ops.add_user(users::find_task_user(uid)?).await?;
    }
    match ops.commit.register(RegisterCommand::Token { token: Box::new(token), of }).await? {
        RegisterReply::Token(token) => Ok(NewToken { view: token_view(ops, &token), token: secret }),
        _ => Err(Refusal::new(RefusalCode::Internal, "the register returned no token").into()),
    }
}

/// Every token, oldest first.
pub(crate) fn list(ops: &Ops, caller: &Caller) -> ApiResult<TokenList> {
    caller.require_scope(CredentialScope::Admin)?;
    Ok(TokenList { tokens: ops.records.roster().tokens().map(|token| token_view(ops, token)).collect() })
}

/// Revokes a token, by its id, a prefix or its name.
pub(crate) async fn revoke(ops: &Arc<Ops>, caller: &Caller, text: &str) -> ApiResult<TokenView> {
    caller.require_scope(CredentialScope::Admin)?;
    let roster = ops.records.roster();
    let prefix = if text.starts_with("ct_") { text.to_owned() } else { format!("ct_{text}") };
    let matches = |t: &&Arc<Token>| {
        t.name.as_str() == text && t.revoked_at.is_none() || prefix.len() >= 7 && t.id.to_string().starts_with(&prefix)
    };
    let mut found = roster.tokens().filter(matches);
    let (token, other) = (found.next(), found.next());
    let Some(token) = token else {
        let shown = DisplaySafe::bounded(text, 60);
        return Err(Refusal::new(RefusalCode::NotFound, format!("there is no token {shown}"))
            .hint("`csn token list` shows all tokens")
            .into());
    };
    if other.is_some() {
        return Err(Refusal::new(RefusalCode::AmbiguousId, "several tokens match; use the whole id").into());
    }
    match ops.commit.register(RegisterCommand::RevokeToken { token: token.id, by: caller.actor() }).await? {
        RegisterReply::Token(token) => Ok(token_view(ops, &token)),
        _ => Err(Refusal::new(RefusalCode::Internal, "the register returned no token").into()),
    }
}
