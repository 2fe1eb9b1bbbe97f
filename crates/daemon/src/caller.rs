//! Who calls, as whom, and what they may do. Surfaces have their callers recognised (`ops/recognition.rs`); every
//! operation asks the caller for the scope that it needs. Pure: looks at nothing but what it is given.

use countersign_model::{
    Audience, Channel, CredentialKind, CredentialScope, DecidedBy, PrincipalId, Process, Refusal, RefusalCode, Roster,
    Session, SessionId, Text, Timestamp, TokenId, Via,
};

/// What an agent may do at most.
pub(crate) const AGENT: [CredentialScope; 2] = [CredentialScope::Observe, CredentialScope::Run];

/// A credential as it arrived: whose it is, of what kind, and what it may do.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) principal: PrincipalId,
    pub(crate) kind: CredentialKind,
    pub(crate) scopes: Vec<CredentialScope>,
    pub(crate) audience: Audience,
    pub(crate) via: Via,
    pub(crate) sees: Visibility,
    pub(crate) process: Option<Process>,
    /// It is not known to be held by anything but a task or an agent's script.
    pub(crate) doubtful: bool,
    /// The user that the kernel says they are.
    pub(crate) uid: Option<u32>,
    pub(crate) token: Option<TokenId>,
    /// How this person is called in records, when they come through the socket.
    pub(crate) called: Text,
    /// Why this is not a person, when it is not.
    pub(crate) why: &'static str,
}

/// What of its principal a credential sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Visibility {
    All,
    /// Only this session.
    Session(SessionId),
    /// Only what it asked for itself, under its name.
    Own,
}

impl Caller {
    /// Whether a task or session of these is there for the caller.
    pub(crate) fn sees(&self, roster: &Roster, principal: PrincipalId, session: Option<SessionId>) -> bool {
        if self.principal != principal {
            return false;
        }
        let session = session.and_then(|s| roster.session(s));
        // What somebody does who is trusted more is not for those who are trusted less.
        if self.audience != Audience::Personal && session.is_none_or(|s| s.audience > self.audience) {
            return false;
        }
        match &self.sees {
            Visibility::All => true,
            // The conversations of one agent are its own, whichever it is in.
            Visibility::Session(own) => session.is_some_and(|s| {
                s.id == *own || s.agent.is_some() && roster.session(*own).is_some_and(|own| own.agent == s.agent)
            }),
            Visibility::Own => session.is_some_and(|s| s.by == self.via),
        }
    }

    /// Whether it may also type into it, stop it, or ask as part of it. An agent may in what it opened itself, or was
    /// given.
    pub(crate) fn controls(&self, roster: &Roster, principal: PrincipalId, session: Option<SessionId>) -> bool {
        let own = || session.and_then(|s| roster.session(s)).is_some_and(|s| s.by == self.via);
        let given = matches!(self.sees, Visibility::Session(_));
        self.sees(roster, principal, session) && (self.kind == CredentialKind::Person || given || own())
    }

    /// Whether a connection that goes on may go on: a token may have been taken back, or have ended.
    pub(crate) fn still_holds(&self, roster: &Roster, now: Timestamp) -> bool {
        self.token.is_none_or(|id| roster.token(id).is_some_and(|t| t.is_valid_at(now)))
    }

    pub(crate) fn by(&self) -> DecidedBy {
        DecidedBy::Person { principal: self.principal, surface: self.via.clone(), channel: Channel::Person }
    }

    /// As the agent of a session, whoever it was that came.
    pub(crate) fn as_agent(&self, session: &Session) -> Self {
        Self {
            principal: session.principal,
            kind: CredentialKind::Agent,
            scopes: AGENT.into_iter().filter(|s| self.scopes.contains(s)).collect(),
            audience: session.audience.min(self.audience),
            sees: Visibility::Session(session.id),
            via: Via::Agent,
            called: Text::from_static("agent"),
            why: ", which nothing below an agent's process has",
            ..self.clone()
        }
    }

    /// In records: who did this.
    pub(crate) fn actor(&self) -> Text {
        match (self.kind, &self.via) {
            (CredentialKind::Person, Via::Socket) => self.called.clone(),
            _ => self.via.text(),
        }
    }

    /// Refuses a caller without this scope. What needs `admin` is for the owner alone.
    pub(crate) fn may(&self, scope: CredentialScope) -> Result<(), Refusal> {
        if !self.scopes.contains(&scope) {
            let why = if scope.for_agents() { ", which was not given" } else { self.why };
            let refusal = Refusal::new(RefusalCode::MissingScope, format!("this needs the scope `{scope}`{why}"));
            return Err(match self.kind {
                CredentialKind::Agent => refusal.hint("a person does this, from a terminal of their own"),
                CredentialKind::Person => refusal.hint("make a token that has it: csn token create"),
            });
        }
        if scope == CredentialScope::Admin && self.principal != PrincipalId::owner() {
            return Err(Refusal::new(RefusalCode::Forbidden, "this is for the owner of the house"));
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
            why: ", which no agent has",
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
            (Caller::test(Agent, &AGENT), Run, None),
            (Caller::test(Agent, &AGENT), Approve, Some(RefusalCode::MissingScope)),
            (Caller::test(Agent, &AGENT), Admin, Some(RefusalCode::MissingScope)),
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
        // A session that nobody knows is not an agent's own.
        let agent = Caller { sees: Visibility::Own, ..Caller::test(Agent, &AGENT) };
        assert!(!agent.sees(&roster, PrincipalId::owner(), None));
    }
}
