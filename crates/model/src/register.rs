//! The register: grants, sessions, tokens and principals, as a fold over the entries about them.

use crate::{Grant, GrantId, PrincipalId, Process, Session, SessionId, Text, Timestamp, Token, TokenId};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// A decision that concerns no task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind")]
pub enum RegisterEntry {
    #[serde(rename = "grant.saved")]
    GrantSaved { grant: Box<Grant> },
    #[serde(rename = "grant.revoked")]
    GrantRevoked { grant: GrantId, by: Text },
    /// A grant with a limited number of uses was used once.
    #[serde(rename = "grant.used")]
    GrantUsed { grant: GrantId },
    #[serde(rename = "session.opened")]
    SessionOpened { session: Box<Session> },
    /// The session works in another directory from now on. `root` is set if that directory was outside its roots.
    #[serde(rename = "session.moved")]
    SessionMoved {
        session: SessionId,
        directory: Text,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        root: Option<Text>,
    },
    #[serde(rename = "session.ended")]
    SessionEnded { session: SessionId, by: Text },
    #[serde(rename = "principal.added")]
    PrincipalAdded {
        principal: PrincipalId,
        name: Text,
        /// The system user that the principal is, under the system service.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
    },
    #[serde(rename = "token.created")]
    TokenCreated { token: Box<Token> },
    #[serde(rename = "token.revoked")]
    TokenRevoked { token: TokenId, by: Text },
    /// Recorded at most once an hour.
    #[serde(rename = "token.used")]
    TokenUsed { token: TokenId },
}

/// The current grants, sessions, tokens and principals.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Register {
    pub grants: Grants,
    pub roster: Roster,
}

impl Register {
    /// Applies an entry. Nothing else changes the register.
    pub fn enter(&mut self, at: Timestamp, entry: &RegisterEntry) {
        match entry {
            RegisterEntry::GrantSaved { grant } => self.grants.add((**grant).clone()),
            RegisterEntry::GrantRevoked { grant, .. } => self.grants.remove(*grant),
            RegisterEntry::GrantUsed { grant } => self.grants.count_use(*grant),
            RegisterEntry::SessionEnded { session, .. } => {
                self.grants.end_session(*session);
                self.roster.enter(at, entry);
            }
            RegisterEntry::SessionOpened { .. }
            | RegisterEntry::SessionMoved { .. }
            | RegisterEntry::PrincipalAdded { .. }
            | RegisterEntry::TokenCreated { .. }
            | RegisterEntry::TokenRevoked { .. }
            | RegisterEntry::TokenUsed { .. } => self.roster.enter(at, entry),
        }
    }
}

/// Sessions, tokens and principals. Cheap to copy: surfaces read a copy of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Roster {
    sessions: BTreeMap<SessionId, Arc<Session>>,
    implicit: HashMap<(PrincipalId, Text), SessionId>,
    agents: HashMap<Process, SessionId>,
    conversations: HashMap<(PrincipalId, Text), SessionId>,
    tokens: BTreeMap<TokenId, Arc<Token>>,
    principals: BTreeMap<PrincipalId, (Text, Option<u32>)>,
}

impl Roster {
    fn enter(&mut self, at: Timestamp, entry: &RegisterEntry) {
        match entry {
            RegisterEntry::SessionOpened { session } => {
                if let Some(name) = &session.implicit {
                    self.implicit.insert((session.principal, name.clone()), session.id);
                }
                if let Some(name) = &session.conversation {
                    self.conversations.insert((session.principal, name.clone()), session.id);
                }
                if let Some(agent) = session.agent {
                    self.agents.insert(agent, session.id);
                }
                self.sessions.insert(session.id, Arc::new((**session).clone()));
            }
            RegisterEntry::SessionMoved { session, directory, root } => {
                if let Some(session) = self.sessions.get_mut(session) {
                    let session = Arc::make_mut(session);
                    session.directory = Some(directory.clone());
                    session.roots.extend(root.clone());
                }
            }
            RegisterEntry::SessionEnded { session, .. } => {
                if let Some(session) = self.sessions.get_mut(session) {
                    Arc::make_mut(session).ended_at = Some(at);
                }
                // The process stays an agent: a process whose session has ended does not become a person.
            }
            RegisterEntry::PrincipalAdded { principal, name, uid } => {
                self.principals.insert(*principal, (name.clone(), *uid));
            }
            RegisterEntry::TokenCreated { token } => drop(self.tokens.insert(token.id, Arc::new((**token).clone()))),
            RegisterEntry::TokenRevoked { token, .. } => {
                if let Some(token) = self.tokens.get_mut(token) {
                    Arc::make_mut(token).revoked_at.get_or_insert(at);
                }
            }
            RegisterEntry::TokenUsed { token } => {
                if let Some(token) = self.tokens.get_mut(token) {
                    Arc::make_mut(token).last_used_at = Some(at);
                }
            }
            RegisterEntry::GrantSaved { .. } | RegisterEntry::GrantRevoked { .. } | RegisterEntry::GrantUsed { .. } => {
            }
        }
    }

    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<&Arc<Session>> {
        self.sessions.get(&id)
    }

    pub fn sessions(&self) -> impl DoubleEndedIterator<Item = &Arc<Session>> {
        self.sessions.values()
    }

    /// The session for requests of one credential from one place.
    #[must_use]
    pub fn implicit(&self, principal: PrincipalId, name: &Text) -> Option<&Arc<Session>> {
        let id = self.implicit.get(&(principal, name.clone()))?;
        self.sessions.get(id).filter(|s| s.ended_at.is_none())
    }

    /// Every process known to be an agent.
    pub fn agents(&self) -> impl Iterator<Item = Process> {
        self.agents.keys().copied()
    }

    /// The session of the agent with this process.
    #[must_use]
    pub fn session_of_agent(&self, process: Process) -> Option<&Arc<Session>> {
        self.sessions.get(self.agents.get(&process)?)
    }

    /// The newest open session of a principal with this conversation name.
    #[must_use]
    pub fn conversation(&self, principal: PrincipalId, name: &Text) -> Option<&Arc<Session>> {
        let id = self.conversations.get(&(principal, name.clone()))?;
        self.sessions.get(id).filter(|s| s.ended_at.is_none())
    }

    #[must_use]
    pub fn token(&self, id: TokenId) -> Option<&Arc<Token>> {
        self.tokens.get(&id)
    }

    pub fn tokens(&self) -> impl DoubleEndedIterator<Item = &Arc<Token>> {
        self.tokens.values()
    }

    /// A principal by name. The owner has no name.
    #[must_use]
    pub fn principal(&self, name: &str) -> Option<PrincipalId> {
        let mut named = self.principals.iter().filter(|(_, (n, _))| n.as_str() == name);
        // A system user takes precedence over a principal that only has the same name.
        let user = named.clone().find(|(_, (_, uid))| uid.is_some());
        user.or_else(|| named.next()).map(|(id, _)| *id)
    }

    #[must_use]
    pub fn name(&self, principal: PrincipalId) -> Option<&Text> {
        self.principals.get(&principal).map(|(name, _)| name)
    }

    /// The principal of a system user.
    #[must_use]
    pub fn principal_of_uid(&self, uid: u32) -> Option<PrincipalId> {
        self.principals.iter().find(|(_, (_, principal_uid))| *principal_uid == Some(uid)).map(|(id, _)| *id)
    }

    /// The system user of a principal.
    #[must_use]
    pub fn uid(&self, principal: PrincipalId) -> Option<u32> {
        self.principals.get(&principal).and_then(|(_, uid)| *uid)
    }
}

/// Saved grants, indexed by verb and directory: finding one takes a single lookup, regardless of their number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Grants {
    all: BTreeMap<GrantId, Grant>,
    /// By verb, then by directory.
    places: HashMap<String, HashMap<Option<String>, Vec<GrantId>>>,
    sessions: HashMap<SessionId, Vec<GrantId>>,
}

impl Grants {
    /// Grants that were never saved, to try them out.
    #[must_use]
    pub fn from_grants(grants: Vec<Grant>) -> Self {
        let (mut mint, mut all) = (crate::IdMint::default(), Self::default());
        for grant in grants {
            let id = grant.id.unwrap_or_else(|| GrantId::mint(&mut mint, 0, 0));
            all.add(Grant { id: Some(id), ..grant });
        }
        all
    }

    fn add(&mut self, grant: Grant) {
        let Some(id) = grant.id else { return };
        match grant.session {
            Some(session) => self.sessions.entry(session).or_default().push(id),
            None => {
                let directory = grant.directory.as_ref().map(|d| d.as_str().to_owned());
                let verb = grant.verb.as_str().to_owned();
                self.places.entry(verb).or_default().entry(directory).or_default().push(id);
            }
        }
        self.all.insert(id, grant);
    }

    fn remove(&mut self, id: GrantId) {
        let Some(grant) = self.all.remove(&id) else { return };
        let drop_from = |list: &mut Vec<GrantId>| {
            list.retain(|g| *g != id);
            list.is_empty()
        };
        match grant.session {
            Some(session) => {
                if self.sessions.get_mut(&session).is_some_and(drop_from) {
                    self.sessions.remove(&session);
                }
            }
            None => {
                let directory = grant.directory.map(Text::into_inner);
                let verb = grant.verb.as_str();
                if let Some(places) = self.places.get_mut(verb) {
                    if places.get_mut(&directory).is_some_and(drop_from) {
                        places.remove(&directory);
                    }
                    if places.is_empty() {
                        self.places.remove(verb);
                    }
                }
            }
        }
    }

    fn end_session(&mut self, session: SessionId) {
        for id in self.sessions.remove(&session).unwrap_or_default() {
            self.all.remove(&id);
        }
    }

    fn count_use(&mut self, id: GrantId) {
        if let Some(left) = self.all.get_mut(&id).and_then(|g| g.uses_left.as_mut()) {
            *left = left.saturating_sub(1);
        }
    }

    #[must_use]
    pub fn get(&self, id: GrantId) -> Option<&Grant> {
        self.all.get(&id)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Grant> {
        self.all.values()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A valid grant with the same terms, if there is one.
    #[must_use]
    pub fn find_same(&self, grant: &Grant, now: Timestamp) -> Option<&Grant> {
        let directory = grant.directory.as_ref().map(|d| d.as_str().to_owned());
        let ids = match grant.session {
            Some(session) => self.sessions.get(&session),
            None => self.places.get(grant.verb.as_str()).and_then(|places| places.get(&directory)),
        };
        ids.into_iter()
            .flatten()
            .filter_map(|id| self.all.get(id))
            .find(|g| g.has_same_terms(grant) && g.is_valid_at(now))
    }

    /// The grants for this verb that could cover a command in `directory` of this session: the session's own first,
    /// then those of the directory and its parents, then those for anywhere.
    pub fn candidates<'g>(
        &'g self,
        verb: &str,
        directory: Option<&str>,
        session: Option<SessionId>,
    ) -> impl Iterator<Item = &'g Grant> {
        let own = session.and_then(|s| self.sessions.get(&s)).into_iter().flatten();
        let mut found: Vec<&'g Grant> =
            own.filter_map(|id| self.all.get(id)).filter(|g| g.verb.as_str() == verb).collect();
        if let Some(places) = self.places.get(verb) {
            let above = directory.map(std::path::Path::new).into_iter().flat_map(std::path::Path::ancestors);
            let above = above.filter_map(|d| d.to_str()).map(|d| Some(d.to_owned()));
            let ids = above.chain([None]).filter_map(|place| places.get(&place)).flatten();
            found.extend(ids.filter_map(|id| self.all.get(id)));
        }
        found.into_iter()
    }
}
