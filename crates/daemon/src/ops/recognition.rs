//! Who is at the other end of a connection: every surface has its callers recognised here.
//!
//! On the unix socket the kernel says who the peer is; elsewhere only a token counts.

use super::Ops;
use crate::{
    caller::{AGENT, Caller, Visibility},
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
    sync::{Arc, Mutex},
};

/// What begins every token.
pub(crate) const TOKEN: &str = "csn_";

/// The other end of a unix socket, pinned when it came, while it could not have become another.
#[derive(Clone)]
pub(crate) struct SocketPeer {
    uid: Option<u32>,
    pid: Option<u32>,
    pin: ProcessPin,
    /// What it was found to be, and by which roster.
    person: Arc<Mutex<Option<KnownPerson>>>,
}

/// A process that was found to be a person's, and by which roster.
type KnownPerson = (Arc<Roster>, Process);

/// What holds the process at the other end of a socket to its number; none on kernels that cannot.
type ProcessPin = Result<Option<Arc<OwnedFd>>, OutOfDescriptors>;

impl SocketPeer {
    pub(crate) fn of(ops: &Ops, stream: &tokio::net::UnixStream) -> Self {
        let peer = stream.peer_cred().ok();
        let pin = ops.descriptors.with(|| match countersign_shim::peer_pidfd(stream.as_fd()) {
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

    /// Enters a user of the machine who comes for the first time.
    pub(crate) async fn welcome(&self, ops: &Ops) -> Result<(), Refusal> {
        let Some(uid) = self.uid else { return Ok(()) };
        let known = uid == 0 || ops.roster.borrow().principal_of_uid(uid).is_some();
        if known || !ops.users.is_machine() || ops.reading_only.is_set() {
            return Ok(());
        }
        ops.welcome(users::find_task_user(uid)?).await
    }

    /// Who came; with a token, as whom it says.
    pub(crate) fn caller(&self, ops: &Ops, token: Option<&str>) -> Result<Caller, Refusal> {
        let visitor = visitor(ops, self.uid)?;
        let pin = self.pin.as_ref().map_err(|out| *out)?.as_deref();
        let peer = ops.descriptors.with(|| self.recognise(ops, pin))?;
        match (&peer, token) {
            // A token makes a person no more than they are, and an agent not a person.
            (Peer::Person(_), Some(token)) => of_token(ops, token),
            (peer, _) => Ok(of_peer(ops, peer, visitor)),
        }
    }

    /// Until the roster changes, a process that lives is who it was. A connection may be older than what made its
    /// process an agent.
    fn recognise(&self, ops: &Ops, pin: Option<&OwnedFd>) -> Result<Peer, OutOfDescriptors> {
        let mut person = lock(&self.person);
        let roster = Arc::clone(&ops.roster.borrow());
        if let Some((known, process)) = person.as_ref()
            && Arc::ptr_eq(known, &roster)
            && pin.is_some_and(peer::lives)
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

/// The other end of a connection on loopback.
#[derive(Clone)]
pub(crate) struct TcpPeer {
    theirs: SocketAddr,
    ours: Option<SocketAddr>,
    /// By which roster it was found that no task or agent holds it.
    checked: Arc<Mutex<Option<Arc<Roster>>>>,
}

/// What a request does, as far as it matters who holds its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Looks,
    Acts,
    /// It acts, and its client may be asked for whoever sits at it.
    InBand,
}

impl TcpPeer {
    pub(crate) fn new(theirs: SocketAddr, ours: Option<SocketAddr>) -> Self {
        Self { theirs, ours, checked: Arc::default() }
    }

    /// A person's token in the hands of a task is not a person: whoever acts over loopback must be a process that is
    /// one, or somebody else's. Checked once for a connection, and again when somebody has become an agent.
    ///
    /// An agent's token is an agent's wherever it is; but only where it is not a task's does its client speak for a
    /// person.
    pub(crate) async fn not_from_a_task(
        &self,
        ops: &Arc<Ops>,
        touch: RequestKind,
        caller: &mut Caller,
    ) -> Result<(), Refusal> {
        let agent = caller.kind == CredentialKind::Agent;
        if touch == RequestKind::Looks || agent && touch != RequestKind::InBand {
            return Ok(());
        }
        let roster = Arc::clone(&ops.roster.borrow());
        let known = lock(&self.checked).clone();
        if known.is_some_and(|known| Arc::ptr_eq(&known, &roster)) {
            return Ok(());
        }
        let (theirs, ours, at) = (self.theirs, self.ours, Arc::clone(ops));
        let uid = roster.uid(caller.principal).unwrap_or_else(|| rustix::process::geteuid().as_raw());
        let found = crate::blocking(move || is_nobodys_task(&at, theirs, ours, uid)).await;
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
                format!("{} is a person's, and used by a task, by an agent, or by nobody who can be found", caller.via),
            )
            .hint("if it was stolen: csn token revoke")),
        }
    }
}

/// Whether the process at the other end is known to be neither a task's nor an agent's.
fn is_nobodys_task(
    ops: &Ops,
    theirs: SocketAddr,
    ours: Option<SocketAddr>,
    uid: u32,
) -> Result<bool, OutOfDescriptors> {
    ops.descriptors.with(|| {
        let holder = ours.map_or(Ok(ConnectionHolder::Nobody), |ours| peer::holder(theirs, ours, uid))?;
        Ok(match holder {
            ConnectionHolder::Process(pid) => matches!(recognise(ops, Some(pid), None)?, Peer::Person(_)),
            ConnectionHolder::Hidden(all) => with_known(ops, |known| {
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

/// Processes that were found to be a person's. One stays so until somebody is registered as an agent: it cannot come
/// to be below a shim.
#[derive(Default)]
pub(crate) struct KnownPeople {
    persons: Mutex<(Arc<Roster>, HashSet<Process>)>,
}

const MAX_RECOGNISED: usize = 1024;

impl KnownPeople {
    fn knows(&self, roster: &Arc<Roster>, process: Process) -> bool {
        let persons = lock(&self.persons);
        Arc::ptr_eq(&persons.0, roster) && persons.1.contains(&process)
    }

    fn add(&self, roster: &Arc<Roster>, process: Process) {
        let mut persons = lock(&self.persons);
        if !Arc::ptr_eq(&persons.0, roster) || persons.1.len() >= MAX_RECOGNISED {
            *persons = (Arc::clone(roster), HashSet::new());
        }
        persons.1.insert(process);
    }
}

fn recognise(ops: &Ops, pid: Option<u32>, pin: Option<&OwnedFd>) -> Result<Peer, OutOfDescriptors> {
    let roster = Arc::clone(&ops.roster.borrow());
    // Only with a pin: without one its number could be another's by now.
    let Some(pid) = pid else { return Ok(Peer::Unpinned) };
    let before = peer::process(pid)?.map(|(process, _)| process).filter(|_| pin.is_some_and(peer::lives));
    if let Some(process) = before.filter(|p| ops.recognised.knows(&roster, *p)) {
        return Ok(Peer::Person(process));
    }
    let found = with_known(ops, |known| peer::recognise(pid, pin, known))?;
    if let Peer::Person(process) = found {
        ops.recognised.add(&roster, process);
    }
    Ok(found)
}

/// With all that marks a process as a task's or an agent's.
fn with_known<T>(ops: &Ops, look: impl FnOnce(&KnownProcesses<'_>) -> T) -> T {
    let roster = Arc::clone(&ops.roster.borrow());
    look(&KnownProcesses {
        shim: &|pid| ops.registry.task_of_shim(pid),
        agent: &|process| roster.session_of_agent(process).map(|s| s.id),
        left: &|chain| left_agent::left(chain, &roster),
        daemon: std::process::id(),
    })
}

/// A user of the machine at the socket, and the principal that they are.
struct SystemUser {
    uid: u32,
    principal: PrincipalId,
    called: Text,
}

/// Whom the kernel says has come. An ordinary daemon knows its own user; the owner of a machine's daemon is root.
fn visitor(ops: &Ops, uid: Option<u32>) -> Result<SystemUser, Refusal> {
    let uid = uid.ok_or_else(|| Refusal::new(RefusalCode::Forbidden, "the kernel does not say who asks"))?;
    let roster = ops.roster.borrow();
    let owner = uid == rustix::process::geteuid().as_raw() || ops.users.is_machine() && uid == 0;
    let principal =
        if owner { Some(PrincipalId::owner()) } else { roster.principal_of_uid(uid).filter(|_| ops.users.is_machine()) };
    match principal {
        Some(principal) => {
            let called = roster.name(principal).cloned().unwrap_or_else(|| Text::from_static("owner"));
            Ok(SystemUser { uid, principal, called })
        }
        None => Err(Refusal::new(RefusalCode::Forbidden, "this house belongs to another user")),
    }
}

fn of_peer(ops: &Ops, peer: &Peer, visitor: SystemUser) -> Caller {
    let SystemUser { uid, principal: own, called } = visitor;
    let agent = |principal, audience, sees: Visibility, via: Via, why: &'static str| Caller {
        uid: Some(uid),
        called: via.text(),
        principal,
        kind: CredentialKind::Agent,
        scopes: AGENT.to_vec(),
        audience,
        token: None,
        sees,
        via,
        process: None,
        doubtful: false,
        why,
    };
    // Whose the session is, and how far it is trusted, its agent is and is trusted.
    let of_session = |session: Option<SessionId>, why: &'static str| {
        let known = session.and_then(|s| ops.roster.borrow().session(s).cloned());
        // Whose processes something is below is a fact; a marker is only what they say, and says nothing about others.
        let theirs = matches!(peer, Peer::Task(_) | Peer::Agent(_));
        match known.filter(|s| theirs || s.principal == own) {
            Some(s) => agent(s.principal, s.audience, Visibility::Session(s.id), Via::Agent, why),
            // By a name that no session of an agent has: it sees what it asked for itself.
            None => agent(own, Audience::Personal, Visibility::Own, Via::Orphan, why),
        }
    };
    let of_task = |task| ops.records.task_owner(task).ok().flatten().and_then(|(_, session)| session);
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
            called,
            audience: Audience::Personal,
            token: None,
            sees: Visibility::All,
            via: Via::Socket,
            process: Some(*process),
            doubtful: false,
            why: "",
        },
        Peer::Task(task) => of_session(of_task(*task), ", which no task has"),
        Peer::Agent(session) => of_session(Some(*session), ", which nothing below an agent's process has"),
        Peer::Marked(task) => match task.parse().ok().and_then(of_task) {
            Some(session) => of_session(Some(session), ", which no task has"),
            None => of_session(None, ", and this process carries the marker of a task"),
        },
        Peer::LeftAgent => of_session(None, ", and this process carries the environment of an agent"),
        Peer::Unpinned => {
            let why = ", and it could not be told which process asks (it has ended, or hides what it is)";
            agent(own, Audience::Personal, Visibility::Own, Via::Unidentified, why)
        }
    }
}

/// Who holds a token: `csn_ID_SECRET`.
pub(crate) fn of_token(ops: &Ops, token: &str) -> Result<Caller, Refusal> {
    let (id, _) = token.strip_prefix(TOKEN).and_then(|rest| rest.split_once('_')).ok_or_else(no_token)?;
    let id: TokenId = format!("{}_{id}", TokenId::PREFIX).parse().map_err(|_| no_token())?;
    let now = clock::now();
    let kept = ops.roster.borrow().token(id).cloned().ok_or_else(no_token)?;
    // Of two digests, not of the token: how far they agree tells nothing.
    if kept.hash != Digest::sha256(&[token.as_bytes()]) || !kept.is_valid_at(now) {
        return Err(no_token());
    }
    if kept.last_used_at.is_none_or(|at| now.since(at).as_secs() >= 3600) {
        ops.commit.register_later(RegisterCommand::UsedToken(id));
    }
    Ok(Caller {
        principal: kept.principal,
        kind: kept.kind,
        scopes: kept.scopes.clone(),
        audience: kept.audience,
        token: Some(id),
        sees: Visibility::All,
        via: Via::from_token(countersign_redact::text_by_shape(&format!("token {}", kept.name))),
        process: None,
        doubtful: false,
        uid: None,
        called: Text::default(),
        why: match kept.kind {
            CredentialKind::Agent => ", which no agent has",
            CredentialKind::Person => ", which this token was not given",
        },
    })
}

/// No token came, or one that is not good.
pub(crate) fn no_token() -> Refusal {
    Refusal::new(RefusalCode::Unauthorized, "this needs a token that is good: `Authorization: Bearer csn_…`")
        .hint("make one with `csn token create`; one that was revoked or has expired is not good any more")
}
