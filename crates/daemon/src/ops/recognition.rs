//! Recognises the caller at the other end of a connection, for every surface.
//!
//! On the unix socket the kernel reports the peer; elsewhere only a token counts.

use super::Ops;
use crate::{
    caller::{AGENT_SCOPES, Caller, Visibility},
    descriptors::OutOfDescriptors,
    left_agent, lock,
    peer::{self, ConnectionHolder, KnownProcesses, Peer},
    register_command::RegisterCommand,
    users,
};
use countersign_model::{
    Audience, CredentialKind, CredentialScope, Digest, PrincipalId, Process, Refusal, RefusalCode, Roster, SessionId,
    Text, TokenId, Via,
};
use countersign_store::clock;
use rustix::fd::OwnedFd;
use std::{
    collections::HashSet,
    net::SocketAddr,
    os::fd::AsFd,
    sync::{Arc, Mutex, atomic::Ordering},
};

/// The prefix of every token.
pub(crate) const TOKEN_PREFIX: &str = "csn_";

/// The other end of a unix socket. It is pinned on arrival, before its pid can be reused.
#[derive(Clone)]
pub(crate) struct SocketPeer {
    uid: Option<u32>,
    pid: Option<u32>,
    pin: ProcessPin,
    /// The person that it was recognised as, and by which roster.
    person: Arc<Mutex<Option<KnownPerson>>>,
}

/// A process that was recognised as a person's, and by which roster.
type KnownPerson = (Arc<Roster>, Process);

/// The pidfd of the process at the other end of a socket; none on kernels without support.
type ProcessPin = Result<Option<Arc<OwnedFd>>, OutOfDescriptors>;

impl SocketPeer {
    pub(crate) fn from_stream(ops: &Ops, stream: &tokio::net::UnixStream) -> Self {
        let peer = stream.peer_cred().ok();
        let pin = ops.descriptors.with_reserve(|| match countersign_shim::peer_pidfd(stream.as_fd()) {
            Ok(pin) => Ok(pin.map(Arc::new)),
            Err(_) => Err(OutOfDescriptors),
        });
        Self {
            uid: peer.as_ref().map(|c| c.uid()),
            pid: peer.and_then(|c| c.pid()).and_then(|pid| u32::try_from(pid).ok()),
            pin,
            person: Arc::default(),
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Adds a user of the machine who calls for the first time.
    pub(crate) async fn add_new_user(&self, ops: &Ops) -> Result<(), Refusal> {
        let Some(uid) = self.uid else { return Ok(()) };
        let known = uid == 0 || ops.roster.borrow().principal_of_uid(uid).is_some();
        if known || !ops.users.is_system_service() || ops.reading_only.is_set() {
            return Ok(());
        }
        ops.add_user(users::find_task_user(uid)?).await
    }

    /// The caller; with a token, the token's.
    pub(crate) fn caller(&self, ops: &Ops, token: Option<&str>) -> Result<Caller, Refusal> {
        let user = find_system_user(ops, self.uid)?;
        let pin = self.pin.as_ref().map_err(|out| *out)?.as_deref();
        let peer = ops.descriptors.with_reserve(|| self.recognise(ops, pin))?;
        match (&peer, token) {
            // A token cannot make an agent a person.
            (Peer::Person(_), Some(token)) => caller_for_token(ops, token),
            (peer, _) => Ok(caller_for_peer(ops, peer, user)),
        }
    }

    /// A live process is recognised once per roster. A connection may be older than the registration that made its
    /// process an agent.
    fn recognise(&self, ops: &Ops, pin: Option<&OwnedFd>) -> Result<Peer, OutOfDescriptors> {
        let mut person = lock(&self.person);
        let roster = Arc::clone(&ops.roster.borrow());
        if let Some((known, process)) = person.as_ref()
            && Arc::ptr_eq(known, &roster)
            && pin.is_some_and(peer::is_alive)
        {
            return Ok(Peer::Person(*process));
        }
        let found = recognise(ops, self.pid, pin)?;
        *person = match found {
            Peer::Person(process) => Some((roster, process)),
            _ => None,
        };
        Ok(found)
    }
}

/// The other end of a loopback connection.
#[derive(Clone)]
pub(crate) struct TcpPeer {
    peer_address: SocketAddr,
    local_address: Option<SocketAddr>,
    /// The roster by which the holder was found to be neither a task nor an agent.
    checked: Arc<Mutex<Option<Arc<Roster>>>>,
}

/// What a request does, as far as the holder of its connection matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Reads,
    Acts,
    /// It acts, and its client may be asked on behalf of a person.
    InBand,
}

impl TcpPeer {
    pub(crate) fn new(peer_address: SocketAddr, local_address: Option<SocketAddr>) -> Self {
        Self { peer_address, local_address, checked: Arc::default() }
    }

    /// A person's token in the hands of a task does not make it a person: a caller that acts over loopback must be a
    /// person's process, or another user's. Checked once per connection, and again when an agent was registered.
    ///
    /// An agent's token is an agent's wherever it is used; but its client may answer for a person only if it is not a
    /// task.
    pub(crate) async fn check_holder(
        &self,
        ops: &Arc<Ops>,
        touch: RequestKind,
        caller: &mut Caller,
    ) -> Result<(), Refusal> {
        let agent = caller.kind == CredentialKind::Agent;
        if touch == RequestKind::Reads || agent && touch != RequestKind::InBand {
            return Ok(());
        }
        let roster = Arc::clone(&ops.roster.borrow());
        let known = lock(&self.checked).clone();
        if known.is_some_and(|known| Arc::ptr_eq(&known, &roster)) {
            return Ok(());
        }
        let (peer_address, local_address, at) = (self.peer_address, self.local_address, Arc::clone(ops));
        let uid = roster.uid(caller.principal).unwrap_or_else(|| rustix::process::geteuid().as_raw());
        let found = crate::blocking(move || is_known_person(&at, peer_address, local_address, uid)).await;
        match found {
            Ok(Err(out)) => Err(out.into()),
            Ok(Ok(true)) => {
                *lock(&self.checked) = Some(roster);
                Ok(())
            }
            _ if agent => {
                caller.doubtful = true;
                Ok(())
            }
            _ => Err(Refusal::new(
                RefusalCode::MissingScope,
                format!("{} is a person's token, but a task, an agent or an unknown process uses it", caller.via),
            )
            .hint("if the token was stolen, revoke it: csn token revoke")),
        }
    }
}

/// Whether the process at the other end is known to be neither a task's nor an agent's.
fn is_known_person(
    ops: &Ops,
    peer_address: SocketAddr,
    local_address: Option<SocketAddr>,
    uid: u32,
) -> Result<bool, OutOfDescriptors> {
    ops.descriptors.with_reserve(|| {
        let holder = local_address.map_or(Ok(ConnectionHolder::Nobody), |local_address| {
            peer::find_holder(peer_address, local_address, uid)
        })?;
        Ok(match holder {
            ConnectionHolder::Process(pid) => matches!(recognise(ops, Some(pid), None)?, Peer::Person(_)),
            ConnectionHolder::Hidden(all) => with_known_processes(ops, |known| {
                for pid in &all {
                    if peer::is_below(*pid, known)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            })?,
            ConnectionHolder::Stranger => true,
            ConnectionHolder::Nobody => false,
        })
    })
}

/// Processes that were recognised as a person's, and their ancestors. They stay so until an agent is registered: none
/// can become the child of a shim.
#[derive(Default)]
pub(crate) struct KnownPeople(Mutex<KnownProcessSets>);

#[derive(Default)]
struct KnownProcessSets {
    roster: Arc<Roster>,
    persons: HashSet<Process>,
    /// Processes that walks have passed. A program that a person's shell starts is recognised at its parent.
    passed: HashSet<Process>,
}

const MAX_RECOGNISED_PROCESSES: usize = 1024;

impl KnownPeople {
    fn contains(&self, roster: &Arc<Roster>, process: Process) -> bool {
        let known = lock(&self.0);
        Arc::ptr_eq(&known.roster, roster) && known.persons.contains(&process)
    }

    /// Whether walks end at this process. With registered agents they do not: a process may have left one, and only its
    /// whole chain shows that.
    fn has_passed(&self, roster: &Arc<Roster>, process: Process) -> bool {
        let known = lock(&self.0);
        Arc::ptr_eq(&known.roster, roster) && known.passed.contains(&process) && roster.agents().next().is_none()
    }

    fn add(&self, roster: &Arc<Roster>, process: Process, passed: Vec<Process>) {
        let mut known = lock(&self.0);
        if !Arc::ptr_eq(&known.roster, roster) || known.persons.len() + known.passed.len() >= MAX_RECOGNISED_PROCESSES {
            *known = KnownProcessSets { roster: Arc::clone(roster), ..KnownProcessSets::default() };
        }
        known.persons.insert(process);
        known.passed.extend(passed);
    }
}

fn recognise(ops: &Ops, pid: Option<u32>, pin: Option<&OwnedFd>) -> Result<Peer, OutOfDescriptors> {
    let roster = Arc::clone(&ops.roster.borrow());
    // Only with a pidfd: without one the pid may have been reused.
    let Some(pid) = pid else { return Ok(Peer::Unpinned) };
    let before = peer::read_process(pid)?.map(|(process, _)| process).filter(|_| pin.is_some_and(peer::is_alive));
    if let Some(process) = before.filter(|p| ops.known_people.contains(&roster, *p)) {
        return Ok(Peer::Person(process));
    }
    // Until all shims of the last daemon are found, a walk may pass one.
    let knows_all_shims = ops.registry.unfound_shims.load(Ordering::Acquire) == 0;
    let (found, passed) = with_known_processes(ops, |known| peer::recognise(pid, pin, known))?;
    if let Peer::Person(process) = found {
        ops.known_people.add(&roster, process, if knows_all_shims { passed } else { Vec::new() });
    }
    Ok(found)
}

/// Runs `look` with everything that marks a process as a task's or an agent's.
fn with_known_processes<T>(ops: &Ops, inspect: impl FnOnce(&KnownProcesses<'_>) -> T) -> T {
    let roster = Arc::clone(&ops.roster.borrow());
    inspect(&KnownProcesses {
        shim: &|pid| ops.registry.task_of_shim(pid),
        agent: &|process| roster.session_of_agent(process).map(|s| s.id),
        left: &|chain| left_agent::find_trace(chain, &roster),
        passed: &|process| ops.known_people.has_passed(&roster, process),
        daemon: std::process::id(),
    })
}

/// A user of the machine at the socket, and their principal.
struct SystemUser {
    uid: u32,
    principal: PrincipalId,
    recorded_name: Text,
}

/// The user that the kernel reports. Root is the owner of a system service.
fn find_system_user(ops: &Ops, uid: Option<u32>) -> Result<SystemUser, Refusal> {
    let uid = uid.ok_or_else(|| Refusal::new(RefusalCode::Forbidden, "the kernel does not report the calling user"))?;
    let roster = ops.roster.borrow();
    let owner = uid == rustix::process::geteuid().as_raw() || ops.users.is_system_service() && uid == 0;
    let principal = if owner {
        Some(PrincipalId::owner())
    } else {
        roster.principal_of_uid(uid).filter(|_| ops.users.is_system_service())
    };
    match principal {
        Some(principal) => {
            let recorded_name = roster.name(principal).cloned().unwrap_or_else(|| Text::from_static("owner"));
            Ok(SystemUser { uid, principal, recorded_name })
        }
        None => Err(Refusal::new(RefusalCode::Forbidden, "this daemon belongs to another user")),
    }
}

fn caller_for_peer(ops: &Ops, peer: &Peer, user: SystemUser) -> Caller {
    let SystemUser { uid, principal: own, recorded_name } = user;
    let agent = |principal, audience, visibility: Visibility, via: Via, why: &'static str| Caller {
        uid: Some(uid),
        recorded_name: via.text(),
        principal,
        kind: CredentialKind::Agent,
        scopes: AGENT_SCOPES.to_vec(),
        audience,
        token: None,
        visibility,
        via,
        process: None,
        doubtful: false,
        missing_scope_reason: why,
    };
    // The agent has the principal and the audience of its session.
    let agent_of_session = |session: Option<SessionId>, why: &'static str| {
        let known = session.and_then(|s| ops.roster.borrow().session(s).cloned());
        // The position in the process tree is a fact; a marker is only a claim, and proves nothing about other
        // principals.
        let is_descendant = matches!(peer, Peer::Task(_) | Peer::Agent(_));
        match known.filter(|s| is_descendant || s.principal == own) {
            Some(s) => agent(s.principal, s.audience, Visibility::Session(s.id), Via::Agent, why),
            // This name belongs to no agent's session: the caller sees only its own requests.
            None => agent(own, Audience::Personal, Visibility::Own, Via::Orphan, why),
        }
    };
    let session_of_task = |task| ops.records.task_owner(task).ok().flatten().and_then(|(_, session)| session);
    match peer {
        Peer::Person(process) => Caller {
            principal: own,
            kind: CredentialKind::Person,
            scopes: if own == PrincipalId::owner() {
                CredentialScope::ALL.to_vec()
            } else {
                vec![CredentialScope::Observe, CredentialScope::Run, CredentialScope::Approve]
            },
            uid: Some(uid),
            recorded_name,
            audience: Audience::Personal,
            token: None,
            visibility: Visibility::All,
            via: Via::Socket,
            process: Some(*process),
            doubtful: false,
            missing_scope_reason: "",
        },
        Peer::Task(task) => agent_of_session(session_of_task(*task), "; a task cannot have it"),
        Peer::Agent(session) => agent_of_session(Some(*session), "; a process that an agent started cannot have it"),
        Peer::Marked(task) => match task.parse().ok().and_then(session_of_task) {
            Some(session) => agent_of_session(Some(session), "; a task cannot have it"),
            None => agent_of_session(None, "; this process has the marker of a task in its environment"),
        },
        Peer::LeftAgent => agent_of_session(None, "; this process has variables of an agent in its environment"),
        Peer::Unpinned => {
            let why = "; the calling process could not be identified (it has ended, or it hides)";
            agent(own, Audience::Personal, Visibility::Own, Via::Unidentified, why)
        }
    }
}

/// The caller with this token: `csn_ID_SECRET`.
pub(crate) fn caller_for_token(ops: &Ops, token: &str) -> Result<Caller, Refusal> {
    let (id, _) =
        token.strip_prefix(TOKEN_PREFIX).and_then(|rest| rest.split_once('_')).ok_or_else(invalid_token_refusal)?;
    let id: TokenId = format!("{}_{id}", TokenId::PREFIX).parse().map_err(|_| invalid_token_refusal())?;
    let now = clock::now();
    let stored = ops.roster.borrow().token(id).cloned().ok_or_else(invalid_token_refusal)?;
    // This compares digests, not tokens: the time it takes reveals nothing.
    if stored.hash != Digest::sha256(&[token.as_bytes()]) || !stored.is_valid_at(now) {
        return Err(invalid_token_refusal());
    }
    if stored.last_used_at.is_none_or(|at| now.since(at).as_secs() >= 3600) {
        ops.commit.register_later(RegisterCommand::RecordTokenUse(id));
    }
    Ok(Caller {
        principal: stored.principal,
        kind: stored.kind,
        scopes: stored.scopes.clone(),
        audience: stored.audience,
        token: Some(id),
        visibility: Visibility::All,
        via: Via::from_token(countersign_redact::text_by_shape(&format!("token {}", stored.name))),
        process: None,
        doubtful: false,
        uid: None,
        recorded_name: Text::default(),
        missing_scope_reason: match stored.kind {
            CredentialKind::Agent => "; an agent cannot have it",
            CredentialKind::Person => "; this token does not have it",
        },
    })
}

/// The refusal without a valid token.
pub(crate) fn invalid_token_refusal() -> Refusal {
    Refusal::new(RefusalCode::Unauthorized, "this needs a valid token in the header `Authorization: Bearer csn_…`")
        .hint("create one with `csn token create`; a revoked or expired token is not valid")
}
