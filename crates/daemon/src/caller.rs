//! The caller of an operation: who it is and what it may do. `ops/recognition.rs` recognises callers; every operation
//! checks the scope that it needs. Pure: reads nothing but its arguments.

use countersign_model::{
    Audience, Channel, CredentialKind, CredentialScope, DecidedBy, PrincipalId, Process, Refusal, RefusalCode, Roster,
    Session, SessionId, Text, Timestamp, TokenId, Via,
};

/// The scopes that an agent can have at most.
pub(crate) const AGENT_SCOPES: [CredentialScope; 2] = [CredentialScope::Observe, CredentialScope::Run];

/// A recognised credential: its principal, its kind and its scopes.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) principal: PrincipalId,
    pub(crate) kind: CredentialKind,
    pub(crate) scopes: Vec<CredentialScope>,
    pub(crate) audience: Audience,
    pub(crate) via: Via,
    pub(crate) visibility: Visibility,
    pub(crate) process: Option<Process>,
    /// The holder may be a task or a script of an agent.
    pub(crate) doubtful: bool,
    /// The user id that the kernel reports.
    pub(crate) uid: Option<u32>,
    pub(crate) token: Option<TokenId>,
    /// The name of this person in records, for a caller on the socket.
    pub(crate) recorded_name: Text,
    /// Why this caller is not a person, if it is none. It continues the sentence of a refusal.
    pub(crate) missing_scope_reason: &'static str,
}

/// The part of its principal's tasks and sessions that a credential sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Visibility {
    All,
    /// Only this session.
    Session(SessionId),
    /// Only its own requests.
    Own,
}

impl Caller {
    /// Whether the caller may see a task or session of this principal and session.
    pub(crate) fn can_see(&self, roster: &Roster, principal: PrincipalId, session: Option<SessionId>) -> bool {
        if self.principal != principal {
            return false;
        }
        let session = session.and_then(|s| roster.session(s));
        // A less trusted caller must not see the tasks of a more trusted one.
        if self.audience != Audience::Personal && session.is_none_or(|s| s.audience > self.audience) {
            return false;
        }
        match &self.visibility {
            Visibility::All => true,
            // An agent sees all conversations of the same agent.
            Visibility::Session(own) => session.is_some_and(|s| {
                s.id == *own || s.agent.is_some() && roster.session(*own).is_some_and(|own| own.agent == s.agent)
            }),
            Visibility::Own => session.is_some_and(|s| s.by == self.via),
        }
    }

    /// Whether the caller may also type into a task, stop it or ask within its session. An agent may do so in a session
    /// that it opened or that it was given.
    pub(crate) fn can_control(&self, roster: &Roster, principal: PrincipalId, session: Option<SessionId>) -> bool {
        let own = || session.and_then(|s| roster.session(s)).is_some_and(|s| s.by == self.via);
        let bound = matches!(self.visibility, Visibility::Session(_));
        self.can_see(roster, principal, session) && (self.kind == CredentialKind::Person || bound || own())
    }

    /// Whether an open connection may continue: its token may have been revoked or have expired.
    pub(crate) fn is_still_valid(&self, roster: &Roster, now: Timestamp) -> bool {
        self.token.is_none_or(|id| roster.token(id).is_some_and(|t| t.is_valid_at(now)))
    }

    pub(crate) fn as_decider(&self) -> DecidedBy {
        DecidedBy::Person { principal: self.principal, surface: self.via.clone(), channel: Channel::Person }
    }

    /// This caller as the agent of a session.
    pub(crate) fn as_agent(&self, session: &Session) -> Self {
        Self {
            principal: session.principal,
            kind: CredentialKind::Agent,
            scopes: AGENT_SCOPES.into_iter().filter(|s| self.scopes.contains(s)).collect(),
            audience: session.audience.min(self.audience),
            visibility: Visibility::Session(session.id),
            via: Via::Agent,
            recorded_name: Text::from_static("agent"),
            missing_scope_reason: "; a process that an agent started cannot have it",
            ..self.clone()
        }
    }

    /// The actor in records.
    pub(crate) fn actor(&self) -> Text {
        match (self.kind, &self.via) {
            (CredentialKind::Person, Via::Socket) => self.recorded_name.clone(),
            _ => self.via.text(),
        }
    }

    /// Refuses a caller without this scope. `admin` is for the owner only.
    pub(crate) fn require_scope(&self, scope: CredentialScope) -> Result<(), Refusal> {
        if !self.scopes.contains(&scope) {
            let why = if scope.for_agents() { "; this caller does not have it" } else { self.missing_scope_reason };
            let refusal = Refusal::new(RefusalCode::MissingScope, format!("this needs the scope `{scope}`{why}"));
            return Err(match self.kind {
                CredentialKind::Agent => refusal.hint("a person can do this from their own terminal"),
                CredentialKind::Person => refusal.hint("create a token with this scope: csn token create"),
            });
        }
        if scope == CredentialScope::Admin && self.principal != PrincipalId::owner() {
            return Err(Refusal::new(RefusalCode::Forbidden, "only the owner of this daemon may do this"));
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn for_test(kind: CredentialKind, scopes: &[CredentialScope]) -> Self {
        Self {
            principal: PrincipalId::owner(),
            kind,
            scopes: scopes.to_vec(),
            audience: Audience::Personal,
            via: if kind == CredentialKind::Person { Via::Socket } else { Via::Agent },
            visibility: Visibility::All,
            process: None,
            doubtful: false,
            uid: None,
            token: None,
            recorded_name: Text::from_static("owner"),
            missing_scope_reason: "; an agent cannot have it",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CredentialKind::{Agent, Person};
    use CredentialScope::{Admin, Approve, Observe, Run};
    use countersign_model::IdMint;

    #[test]
    fn a_caller_has_only_its_scopes_and_only_the_owner_administers() {
        let stranger = |caller: Caller| Caller { principal: PrincipalId::mint(&mut IdMint::default(), 1, 1), ..caller };
        for (caller, scope, refused) in [
            (Caller::for_test(Person, &[Observe]), Observe, None),
            (Caller::for_test(Person, &[Observe]), Run, Some(RefusalCode::MissingScope)),
            (Caller::for_test(Agent, &AGENT_SCOPES), Run, None),
            (Caller::for_test(Agent, &AGENT_SCOPES), Approve, Some(RefusalCode::MissingScope)),
            (Caller::for_test(Agent, &AGENT_SCOPES), Admin, Some(RefusalCode::MissingScope)),
            (Caller::for_test(Person, &CredentialScope::ALL), Admin, None),
            (stranger(Caller::for_test(Person, &CredentialScope::ALL)), Admin, Some(RefusalCode::Forbidden)),
            (stranger(Caller::for_test(Person, &CredentialScope::ALL)), Approve, None),
        ] {
            assert_eq!(caller.require_scope(scope).err().map(|r| r.code), refused, "{:?} {scope}", caller.kind);
        }
    }

    #[test]
    fn a_caller_sees_only_its_own_principal() {
        let (roster, caller) = (Roster::default(), Caller::for_test(Person, &CredentialScope::ALL));
        let other = PrincipalId::mint(&mut IdMint::default(), 1, 1);
        assert!(caller.can_see(&roster, PrincipalId::owner(), None));
        assert!(!caller.can_see(&roster, other, None) && !caller.can_control(&roster, other, None));
        // A session that is not in the register is not the agent's own.
        let agent = Caller { visibility: Visibility::Own, ..Caller::for_test(Agent, &AGENT_SCOPES) };
        assert!(!agent.can_see(&roster, PrincipalId::owner(), None));
    }
}
