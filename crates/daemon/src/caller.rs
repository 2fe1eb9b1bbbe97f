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
    pub(crate) sees: Visibility,
    pub(crate) process: Option<Process>,
    /// The holder may be a task or a script of an agent.
    pub(crate) doubtful: bool,
    /// The user id that the kernel reports.
    pub(crate) uid: Option<u32>,
    pub(crate) token: Option<TokenId>,
    /// The name of this person in records, for a caller on the socket.
    pub(crate) called: Text,
    /// Why this caller is not a person, if it is none. It continues the sentence of a refusal.
    pub(crate) why: &'static str,
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
    pub(crate) fn sees(&self, roster: &Roster, principal: PrincipalId, session: Option<SessionId>) -> bool {
        if self.principal != principal {
            return false;
        }
        let session = session.and_then(|s| roster.session(s));
        // A less trusted caller must not see the tasks of a more trusted one.
        if self.audience != Audience::Personal && session.is_none_or(|s| s.audience > self.audience) {
            return false;
        }
        match &self.sees {
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
    pub(crate) fn controls(&self, roster: &Roster, principal: PrincipalId, session: Option<SessionId>) -> bool {
        let own = || session.and_then(|s| roster.session(s)).is_some_and(|s| s.by == self.via);
        let given = matches!(self.sees, Visibility::Session(_));
        self.sees(roster, principal, session) && (self.kind == CredentialKind::Person || given || own())
    }

    /// Whether an open connection may continue: its token may have been revoked or have expired.
    pub(crate) fn still_holds(&self, roster: &Roster, now: Timestamp) -> bool {
        self.token.is_none_or(|id| roster.token(id).is_some_and(|t| t.holds(now)))
    }

    pub(crate) fn by(&self) -> DecidedBy {
        DecidedBy::Person { principal: self.principal, surface: self.via.clone(), channel: Channel::Person }
    }

    /// This caller as the agent of a session.
    pub(crate) fn as_agent(&self, session: &Session) -> Self {
        Self {
            principal: session.principal,
            kind: CredentialKind::Agent,
            scopes: AGENT_SCOPES.into_iter().filter(|s| self.scopes.contains(s)).collect(),
            audience: session.audience.min(self.audience),
            sees: Visibility::Session(session.id),
            via: Via::Agent,
            called: Text::from_static("agent"),
            why: "; a process that an agent started cannot have it",
            ..self.clone()
        }
    }

    /// The actor in records.
    pub(crate) fn actor(&self) -> Text {
        match (self.kind, &self.via) {
            (CredentialKind::Person, Via::Socket) => self.called.clone(),
            _ => self.via.text(),
        }
    }

    /// Refuses a caller without this scope. `admin` is for the owner only.
    pub(crate) fn may(&self, scope: CredentialScope) -> Result<(), Refusal> {
        if !self.scopes.contains(&scope) {
            let why = if scope.for_agents() { "; this caller does not have it" } else { self.why };
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
    pub(crate) fn test(kind: CredentialKind, scopes: &[CredentialScope]) -> Self {
        Self {
            principal: PrincipalId::owner(),
            kind,
            scopes: scopes.to_vec(),
            audience: Audience::Personal,
            via: if kind == CredentialKind::Person { Via::Socket } else { Via::Agent },
            sees: Visibility::All,
            process: None,
            doubtful: false,
            uid: None,
            token: None,
            called: Text::from_static("owner"),
            why: "; an agent cannot have it",
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
    fn a_caller_may_what_it_was_given_and_only_the_owner_administers() {
        let stranger = |caller: Caller| Caller { principal: PrincipalId::mint(&mut IdMint::default(), 1, 1), ..caller };
        for (caller, scope, refused) in [
            (Caller::test(Person, &[Observe]), Observe, None),
            (Caller::test(Person, &[Observe]), Run, Some(RefusalCode::MissingScope)),
            (Caller::test(Agent, &AGENT_SCOPES), Run, None),
            (Caller::test(Agent, &AGENT_SCOPES), Approve, Some(RefusalCode::MissingScope)),
            (Caller::test(Agent, &AGENT_SCOPES), Admin, Some(RefusalCode::MissingScope)),
            (Caller::test(Person, &CredentialScope::ALL), Admin, None),
            (stranger(Caller::test(Person, &CredentialScope::ALL)), Admin, Some(RefusalCode::Forbidden)),
            (stranger(Caller::test(Person, &CredentialScope::ALL)), Approve, None),
        ] {
            assert_eq!(caller.may(scope).err().map(|r| r.code), refused, "{:?} {scope}", caller.kind);
        }
    }

    #[test]
    fn nobody_sees_what_is_another_principals() {
        let (roster, caller) = (Roster::default(), Caller::test(Person, &CredentialScope::ALL));
        let other = PrincipalId::mint(&mut IdMint::default(), 1, 1);
        assert!(caller.sees(&roster, PrincipalId::owner(), None));
        assert!(!caller.sees(&roster, other, None) && !caller.controls(&roster, other, None));
        // A session that is not in the register is not the agent's own.
        let agent = Caller { sees: Visibility::Own, ..Caller::test(Agent, &AGENT_SCOPES) };
        assert!(!agent.sees(&roster, PrincipalId::owner(), None));
    }
}
