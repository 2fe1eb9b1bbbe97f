//! Commands that change the register, and the rules for them. Pure, like the desk.

use crate::moment::Moment;
use countersign_model::{
    CredentialKind, CredentialScope, Grant, GrantId, GrantSandbox, PrincipalId, Refusal, RefusalCode, Register,
    RegisterEntry, Session, SessionId, Text, Token, TokenId,
};
use countersign_policy::Label;
use std::{sync::Arc, time::Duration};

/// A change to the register.
pub(crate) enum RegisterCommand {
    Grant(Box<Grant>),
    Revoke {
        grant: GrantId,
        principal: PrincipalId,
        by: Text,
    },
    /// Confines the calls of a grant to what their risks need.
    Narrow {
        grant: GrantId,
        principal: PrincipalId,
        by: Text,
    },
    Open(Box<Session>),
    Move {
        session: SessionId,
        directory: Text,
    },
    End {
        session: SessionId,
        by: Text,
    },
    Token {
        token: Box<Token>,
        of: Option<Text>,
    },
    RevokeToken {
        token: TokenId,
        by: Text,
    },
    RecordTokenUse(TokenId),
    /// Adds a user of the machine who calls for the first time.
    AddUser {
        uid: u32,
        name: Text,
    },
}

/// The reply to a register command.
#[derive(Debug, Clone)]
pub(crate) enum RegisterReply {
    Grant { grant: Box<Grant>, new: bool },
    Session(Arc<Session>),
    Token(Arc<Token>),
    Nothing,
}

/// How often the use of a token is recorded.
const TOKEN_USE_INTERVAL: Duration = Duration::from_secs(3600);

/// The entries of a command, and its reply.
type RegisterOutcome = Result<(Vec<RegisterEntry>, RegisterReply), Refusal>;

pub(crate) fn decide_command(command: RegisterCommand, register: &Register, now: &mut Moment<'_>) -> RegisterOutcome {
    match command {
        RegisterCommand::Grant(grant) => Ok(save_grant(*grant, register, now)),
        RegisterCommand::Revoke { grant, principal, by } => {
            let kept = Box::new(find_grant(register, grant, principal)?.clone());
            Ok((vec![RegisterEntry::GrantRevoked { grant, by }], RegisterReply::Grant { grant: kept, new: false }))
        }
        RegisterCommand::Narrow { grant, principal, by } => narrow_grant(grant, principal, by, register, now),
        RegisterCommand::Open(session) => open_session(session, register),
        RegisterCommand::Move { session, directory } => {
            let mut moved = find_open_session(register, session)?.clone();
            Arc::make_mut(&mut moved).directory = Some(directory.clone());
            Ok((vec![RegisterEntry::SessionMoved { session, directory, root: None }], RegisterReply::Session(moved)))
        }
        RegisterCommand::End { session, by } => {
            let ended = RegisterReply::Session(Arc::clone(find_open_session(register, session)?));
            Ok((vec![RegisterEntry::SessionEnded { session, by }], ended))
        }
        RegisterCommand::Token { token, of } => create_token(*token, of, register, now),
        RegisterCommand::RevokeToken { token, by } => revoke_token(token, by, register),
        RegisterCommand::AddUser { uid, name } => {
            let principal = PrincipalId::mint(now.mint, now.at.millis(), now.random);
            let new = register.roster.principal_of_uid(uid).is_none();
            let added = new.then_some(RegisterEntry::PrincipalAdded { principal, name, uid: Some(uid) });
            Ok((added.into_iter().collect(), RegisterReply::Nothing))
        }
        RegisterCommand::RecordTokenUse(token) => {
            let last = register.roster.token(token).map(|t| t.last_used_at);
            let due = last.is_some_and(|last| last.is_none_or(|at| now.at.since(at) >= TOKEN_USE_INTERVAL));
            Ok((due.then_some(RegisterEntry::TokenUsed { token }).into_iter().collect(), RegisterReply::Nothing))
        }
    }
}

/// Saves a grant, unless an equal one exists.
fn save_grant(grant: Grant, register: &Register, now: &mut Moment<'_>) -> (Vec<RegisterEntry>, RegisterReply) {
    if let Some(same) = register.grants.find_same(&grant, now.at) {
        return (Vec::new(), RegisterReply::Grant { grant: Box::new(same.clone()), new: false });
    }
    let id = GrantId::mint(now.mint, now.at.millis(), now.random);
    let grant = Box::new(Grant { id: Some(id), created_at: Some(now.at), ..grant });
    (vec![RegisterEntry::GrantSaved { grant: grant.clone() }], RegisterReply::Grant { grant, new: true })
}

/// Replaces a grant by a narrow one.
fn narrow_grant(
    grant: GrantId,
    principal: PrincipalId,
    by: Text,
    register: &Register,
    now: &mut Moment<'_>,
) -> RegisterOutcome {
    let kept = find_grant(register, grant, principal)?.clone();
    if kept.sandbox == GrantSandbox::Narrow {
        return Ok((Vec::new(), RegisterReply::Grant { grant: Box::new(kept), new: false }));
    }
    let narrow = Grant { sandbox: GrantSandbox::Narrow, ..kept };
    let revoked = RegisterEntry::GrantRevoked { grant, by };
    if let Some(same) = register.grants.find_same(&narrow, now.at).filter(|g| g.id != Some(grant)) {
        return Ok((vec![revoked], RegisterReply::Grant { grant: Box::new(same.clone()), new: false }));
    }
    let id = GrantId::mint(now.mint, now.at.millis(), now.random);
    let narrow = Box::new(Grant { id: Some(id), ..narrow });
    Ok((
        vec![revoked, RegisterEntry::GrantSaved { grant: narrow.clone() }],
        RegisterReply::Grant { grant: narrow, new: true },
    ))
}

fn open_session(session: Box<Session>, register: &Register) -> RegisterOutcome {
    if let Some(agent) = session.agent
        && register.roster.session_of_agent(agent).is_some_and(|s| s.principal != session.principal)
    {
        return Err(Refusal::new(RefusalCode::Forbidden, "this process is the agent of another user's session"));
    }
    let kept = RegisterReply::Session(Arc::new((*session).clone()));
    Ok((vec![RegisterEntry::SessionOpened { session }], kept))
}

/// Creates a token, and its principal if that is new.
fn create_token(token: Token, of: Option<Text>, register: &Register, now: &mut Moment<'_>) -> RegisterOutcome {
    let roster = &register.roster;
    let agents_only = |s: &CredentialScope| !s.for_agents();
    if token.kind == CredentialKind::Agent && token.scopes.iter().any(agents_only) {
        return Err(Refusal::new(
            RefusalCode::BadRequest,
            "an agent token cannot have the scopes `approve` or `admin`",
        )
        .hint("use the kind `person` for a person's token (csn token create --person)"));
    }
    if roster.tokens().any(|t| t.name == token.name && t.is_valid_at(now.at)) {
        return Err(Refusal::new(RefusalCode::BadRequest, format!("a token named `{}` already exists", token.name))
            .hint("revoke that token first, or choose another name"));
    }
    let mut entered = Vec::new();
    let principal = match of {
        None => token.principal,
        Some(name) => roster.principal(name.as_str()).unwrap_or_else(|| {
            let principal = PrincipalId::mint(now.mint, now.at.millis(), now.random);
            entered.push(RegisterEntry::PrincipalAdded { principal, name, uid: None });
            principal
        }),
    };
    let token = Token { principal, ..token };
    entered.push(RegisterEntry::TokenCreated { token: Box::new(token.clone()) });
    Ok((entered, RegisterReply::Token(Arc::new(token))))
}

fn revoke_token(token: TokenId, by: Text, register: &Register) -> RegisterOutcome {
    match register.roster.token(token) {
        Some(kept) if kept.revoked_at.is_none() => {
            Ok((vec![RegisterEntry::TokenRevoked { token, by }], RegisterReply::Token(Arc::clone(kept))))
        }
        Some(kept) => Ok((Vec::new(), RegisterReply::Token(Arc::clone(kept)))),
        None => Err(Refusal::new(RefusalCode::NotFound, format!("there is no token {token}"))
            .hint("`csn token list` shows all tokens")),
    }
}

fn find_grant(register: &Register, grant: GrantId, principal: PrincipalId) -> Result<&Grant, Refusal> {
    register.grants.get(grant).filter(|g| g.principal == principal).ok_or_else(|| {
        Refusal::new(RefusalCode::NotFound, format!("there is no grant {grant}"))
            .hint("`csn grants list` shows all grants")
    })
}

fn find_open_session(register: &Register, session: SessionId) -> Result<&Arc<Session>, Refusal> {
    match register.roster.session(session) {
        None => Err(Refusal::new(RefusalCode::NotFound, format!("there is no session {session}"))),
        Some(found) if found.ended_at.is_some() => Err(Refusal::new(RefusalCode::SessionOver, "the session has ended")),
        Some(found) => Ok(found),
    }
}

/// The text of a grant for people. Its parts are redacted already.
pub(crate) fn grant_label(grant: &Grant) -> Text {
    countersign_redact::text_by_shape(&Label::from_grant(grant).to_string())
}
