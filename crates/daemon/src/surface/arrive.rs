//! Who arrives, as whom, and what they may do: every request passes here first.
//!
//! On the unix socket the kernel says who the peer is; over TCP only a token counts. What may be done by which scope
//! is one table, [`needs`].

use super::{problem::Problem, server::Connection};
use crate::{
    descriptors::OutOfDescriptors,
    house::House,
    left_agent,
    office::Call,
    peer::{self, Holder, Known, Peer},
    people,
    wish::Wish,
};
use axum::{
    extract::{ConnectInfo, FromRequestParts, Request, State},
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use countersign_model::{
    Audience, By, Channel, Code, CredentialKind, CredentialScope, Digest, HouseState, PrincipalId, Process, Refusal,
    Roster, Session, SessionId, Text, TokenId,
};
use countersign_store::clock;
use rustix::fd::OwnedFd;
use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{net::UnixStream, sync::oneshot};

/// Who is at the other end of a connection.
#[derive(Clone)]
pub(crate) enum Caller {
    /// `person`: what it was found to be, and by which roster.
    Socket { uid: Option<u32>, pid: Option<u32>, pin: Pin, person: Arc<Mutex<Person>>, connection: Arc<Connection> },
    Tcp {
        theirs: SocketAddr,
        ours: Option<SocketAddr>,
        checked: Arc<Mutex<Option<Arc<Roster>>>>,
        connection: Arc<Connection>,
    },
}

impl Caller {
    /// Whoever is at the other end of a unix socket: pinned now, while it cannot have become another.
    pub(crate) fn of_socket(house: &House, stream: &UnixStream, connection: Arc<Connection>) -> Self {
        let peer = stream.peer_cred().ok();
        let pin = house.descriptors.with(|| match countersign_shim::peer_pidfd(stream) {
            Ok(pin) => Ok(pin.map(Arc::new)),
            Err(_) => Err(OutOfDescriptors),
        });
        Self::Socket {
            uid: peer.as_ref().map(|c| c.uid()),
            pid: peer.and_then(|c| c.pid()).and_then(|pid| u32::try_from(pid).ok()),
            pin,
            person: Arc::default(),
            connection,
        }
    }

    pub(crate) fn of_tcp(theirs: SocketAddr, ours: Option<SocketAddr>, connection: Arc<Connection>) -> Self {
        Self::Tcp { theirs, ours, checked: Arc::default(), connection }
    }

    fn connection(&self) -> &Connection {
        match self {
            Self::Socket { connection, .. } | Self::Tcp { connection, .. } => connection,
        }
    }

    /// The process at the other end, where the kernel names it.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::Socket { pid, .. } => *pid,
            Self::Tcp { .. } => None,
        }
    }
}

type Person = Option<(Arc<Roster>, Process)>;

/// What holds the process at the other end of a socket to its number; none on kernels that cannot.
type Pin = Result<Option<Arc<OwnedFd>>, OutOfDescriptors>;

/// A credential as it arrived: whose it is, of what kind, and what it may do.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    pub(crate) principal: PrincipalId,
    pub(crate) kind: CredentialKind,
    pub(crate) scopes: Vec<CredentialScope>,
    pub(crate) audience: Audience,
    token: Option<TokenId>,
    pub(crate) sees: Sees,
    /// How this credential is called: in implicit sessions and in records.
    pub(crate) name: Text,
    pub(crate) process: Option<Process>,
    /// It is not known to be held by anything but a task or an agent's script.
    pub(crate) doubtful: bool,
    /// The user that the kernel says they are.
    pub(crate) uid: Option<u32>,
    /// How this person is called in records, when they come through the socket.
    called: Text,
    /// Why this is not a person, when it is not.
    why: &'static str,
}

/// What of its principal a credential sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sees {
    All,
    /// Only this session.
    Session(SessionId),
    /// Only what it asked for itself, under its name.
    Own,
}

impl Who {
    /// Whether a task or session of these is there for whoever asks.
    pub(crate) fn sees(&self, house: &House, principal: PrincipalId, session: Option<SessionId>) -> bool {
        if self.principal != principal {
            return false;
        }
        let roster = house.roster.borrow();
        let session = session.and_then(|s| roster.session(s));
        // What somebody does who is trusted more is not for those who are trusted less.
        if self.audience != Audience::Personal && session.is_none_or(|s| s.audience > self.audience) {
            return false;
        }
        match &self.sees {
            Sees::All => true,
            // The conversations of one agent are its own, whichever it is in.
            Sees::Session(own) => session.is_some_and(|s| {
                s.id == *own || s.agent.is_some() && roster.session(*own).is_some_and(|own| own.agent == s.agent)
            }),
            Sees::Own => session.is_some_and(|s| s.by == self.name),
        }
    }

    /// Whether it may also type into it, stop it, or ask as part of it. An agent may in what it opened itself, or was
    /// given.
    pub(crate) fn controls(&self, house: &House, principal: PrincipalId, session: Option<SessionId>) -> bool {
        let own = || {
            let roster = house.roster.borrow();
            session.and_then(|s| roster.session(s)).is_some_and(|s| s.by == self.name)
        };
        let given = matches!(self.sees, Sees::Session(_));
        self.sees(house, principal, session) && (self.kind == CredentialKind::Person || given || own())
    }

    /// Whether a connection that goes on may go on: a token may have been taken back, or have ended.
    pub(crate) fn still_holds(&self, house: &House) -> bool {
        let now = clock::now();
        self.token.is_none_or(|id| house.roster.borrow().token(id).is_some_and(|t| t.holds(now)))
    }

    pub(crate) fn by(&self) -> By {
        By::Person { principal: self.principal, surface: self.name.clone(), channel: Channel::Person }
    }

    /// As the agent of a session, whoever it was that came.
    pub(crate) fn as_agent(&self, session: &Session) -> Self {
        Self {
            principal: session.principal,
            kind: CredentialKind::Agent,
            scopes: AGENT.into_iter().filter(|s| self.scopes.contains(s)).collect(),
            audience: session.audience.min(self.audience),
            sees: Sees::Session(session.id),
            name: Text::of("agent"),
            called: Text::of("agent"),
            why: ", which nothing below an agent's process has",
            ..self.clone()
        }
    }

    /// In records: who did this.
    pub(crate) fn actor(&self) -> Text {
        match (self.kind, self.name.as_str()) {
            (CredentialKind::Person, "socket") => self.called.clone(),
            _ => self.name.clone(),
        }
    }

    pub(crate) fn may(&self, scope: CredentialScope) -> Result<(), Refusal> {
        if self.scopes.contains(&scope) {
            return Ok(());
        }
        let why = if scope.for_agents() { ", which was not given" } else { self.why };
        let refusal = Refusal::new(Code::MissingScope, format!("this needs the scope `{scope}`{why}"));
        Err(match self.kind {
            CredentialKind::Agent => refusal.hint("a person does this, from a terminal of their own"),
            CredentialKind::Person => refusal.hint("make a token that has it: csn token create"),
        })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let who = parts.extensions.get::<Arc<Who>>().map(|who| (**who).clone());
        who.ok_or_else(|| Refusal::new(Code::Internal, "nobody was recognised").into())
    }
}

/// What a route asks for. Looking needs `observe`, whatever it is at; what is not named here is for `admin` alone.
pub(crate) fn needs(method: &Method, path: &str) -> Option<CredentialScope> {
    #[cfg(feature = "fixture")]
    if path == super::mcp::FIXTURE {
        return None;
    }
    let mut parts = path.trim_start_matches('/').split('/');
    let (first, reads) = (parts.next().unwrap_or_default(), matches!(*method, Method::GET | Method::HEAD));
    match first {
        "livez" | "readyz" => None,
        "tokens" => Some(CredentialScope::Admin),
        // Whoever is connected there can ask for commands, however the connection began.
        "mcp" => Some(CredentialScope::Run),
        _ if reads => Some(CredentialScope::Observe),
        "check" => Some(CredentialScope::Observe),
        "tasks" | "sessions" | "hooks" | "tickets" => Some(CredentialScope::Run),
        "approvals" | "grants" => Some(CredentialScope::Approve),
        _ => Some(CredentialScope::Admin),
    }
}

pub(crate) async fn arrive(
    State(house): State<Arc<House>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    mut request: Request,
    next: Next,
) -> Response {
    let scope = needs(request.method(), request.uri().path());
    let path = request.uri().path().to_owned();
    if let Err(refusal) = serves(&house, &path, scope).await {
        return Problem::from(refusal).into_response();
    }
    if let Err(refusal) = welcome(&house, &caller, scope).await {
        return Problem::from(refusal).into_response();
    }
    // Attaching is looking, and typing.
    let acts = scope.is_some_and(|s| s != CredentialScope::Observe) || path.ends_with("/attach");
    let acts = Acts { acts, in_band: path == "/mcp" };
    let admitted = match admit(&house, &caller, &request) {
        Ok(Some(mut who)) => match caller.connection().recognise(who.kind) {
            Ok(()) => not_from_a_task(&house, &caller, acts, &mut who).await.map(|()| Some(who)),
            Err(refusal) => Err(refusal),
        },
        other => other,
    };
    let response = match admitted {
        Ok(Some(who)) => {
            request.extensions_mut().insert(Arc::new(who));
            next.run(request).await
        }
        Ok(None) => next.run(request).await,
        Err(refusal) => return Problem::from(refusal).into_response(),
    };
    if !goes_on(&response) {
        return response;
    }
    match caller.connection().may_go_on() {
        Ok(()) if response.status() == StatusCode::SWITCHING_PROTOCOLS => caller.connection().upgrade(),
        Ok(()) => {}
        Err(out) => return Problem::from(Refusal::from(out)).into_response(),
    }
    response
}

/// Whether an answer may last as long as its reader likes.
fn goes_on(response: &Response) -> bool {
    let events = |v: &header::HeaderValue| v.as_bytes().starts_with(b"text/event-stream");
    response.status() == StatusCode::SWITCHING_PROTOCOLS
        || response.headers().get(header::CONTENT_TYPE).is_some_and(events)
}

/// How long a request waits for a house that is just coming up.
const COMING_UP: std::time::Duration = std::time::Duration::from_secs(30);

/// While the house comes up, requests wait; while it goes down, nothing new is taken in. How it is, it always tells.
async fn serves(house: &House, path: &str, scope: Option<CredentialScope>) -> Result<(), Refusal> {
    if scope.is_none() || path == "/lifecycle" {
        return Ok(());
    }
    let mut state = house.state.subscribe();
    let up = |s: &HouseState| !matches!(s, HouseState::Boot | HouseState::Recovering | HouseState::Ready);
    let waited = tokio::time::timeout(COMING_UP, state.wait_for(up)).await;
    let now = match waited {
        Ok(Ok(state)) => *state,
        _ => return Err(Refusal::new(Code::Draining, "the house is not up yet").hint("see GET /readyz for why")),
    };
    // What runs can still be looked at, typed into and stopped.
    let of_a_task = path.starts_with("/tasks/");
    match now == HouseState::Running || of_a_task || scope == Some(CredentialScope::Observe) {
        true => Ok(()),
        false => Err(Refusal::new(Code::Draining, "the house is going down and takes nothing new")
            .hint("what waits goes on waiting; ask again when it is up")),
    }
}

/// What a request does, as far as it matters who holds its connection.
#[derive(Clone, Copy)]
struct Acts {
    acts: bool,
    /// Its client may be asked for whoever sits at it.
    in_band: bool,
}

/// A person's token in the hands of a task is not a person: whoever acts over loopback must be a process that is one, or
/// somebody else's. Checked once for a connection, and again when somebody has become an agent.
///
/// An agent's token is an agent's wherever it is; but only where it is not a task's does its client speak for a person.
async fn not_from_a_task(house: &Arc<House>, caller: &Caller, what: Acts, who: &mut Who) -> Result<(), Refusal> {
    let Caller::Tcp { theirs, ours, checked, .. } = caller else { return Ok(()) };
    if !what.acts || who.kind == CredentialKind::Agent && !what.in_band {
        return Ok(());
    }
    let roster = Arc::clone(&house.roster.borrow());
    let known = checked.lock().expect("nothing panics while it holds this lock").clone();
    if known.is_some_and(|known| Arc::ptr_eq(&known, &roster)) {
        return Ok(());
    }
    let (theirs, ours, at) = (*theirs, *ours, Arc::clone(house));
    let uid = roster.uid(who.principal).unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let found = tokio::task::spawn_blocking(move || {
        at.descriptors.with(|| {
            let holder = ours.map_or(Ok(Holder::Nobody), |ours| peer::holder(theirs, ours, uid))?;
            Ok(match holder {
                Holder::Process(pid) => matches!(recognise(&at, Some(pid), None)?, Peer::Person(_)),
                Holder::Hidden(all) => with_known(&at, |known| {
                    for pid in &all {
                        if peer::is_below(*pid, known)? {
                            return Ok(false);
                        }
                    }
                    Ok(true)
                })?,
                Holder::Stranger => true,
                Holder::Nobody => false,
            })
        })
    });
    match found.await {
        Ok(Err(out)) => Err(out.into()),
        Ok(Ok(true)) => {
            *checked.lock().expect("nothing panics while it holds this lock") = Some(roster);
            Ok(())
        }
        _ if who.kind == CredentialKind::Agent => {
            who.doubtful = true;
            Ok(())
        }
        _ => Err(Refusal::new(
            Code::MissingScope,
            format!("{} is a person's, and used by a task, by an agent, or by nobody who can be found", who.name),
        )
        .hint("if it was stolen: csn token revoke")),
    }
}

fn admit(house: &House, caller: &Caller, request: &Request) -> Result<Option<Who>, Refusal> {
    if matches!(caller, Caller::Tcp { .. }) {
        super::tcp::check_host(request.headers())?;
    }
    let Some(scope) = needs(request.method(), request.uri().path()) else { return Ok(None) };
    let who = match caller {
        Caller::Tcp { .. } => of_token(house, request.headers())?,
        Caller::Socket { pid, pin, person, uid, .. } => {
            let visitor = visitor(house, *uid)?;
            let pin = pin.as_ref().map_err(|out| *out)?.as_deref();
            let peer = house.descriptors.with(|| recognise_again(house, *pid, pin, person))?;
            match (&peer, request.headers().contains_key(header::AUTHORIZATION)) {
                // A token makes a person no more than they are, and an agent not a person.
                (Peer::Person(_), true) => of_token(house, request.headers())?,
                (peer, _) => of_peer(house, peer, visitor),
            }
        }
    };
    who.may(scope)?;
    if scope == CredentialScope::Admin && who.principal != PrincipalId::owner() {
        return Err(Refusal::new(Code::Forbidden, "this is for the owner of the house"));
    }
    let stops = request.uri().path() == "/lifecycle";
    match house.reading_only.why() {
        Some(why) if scope != CredentialScope::Observe && !stops => Err(Refusal::new(Code::LedgerUnavailable, why)
            .hint("nothing runs until the ledger is repaired (csn doctor); tasks, logs and replays can be read")),
        _ => Ok(Some(who)),
    }
}

/// Processes that were found to be a person's. One stays so until somebody is registered as an agent: it cannot come
/// to be below a shim.
#[derive(Default)]
pub(crate) struct Recognised {
    persons: Mutex<(Arc<Roster>, HashSet<Process>)>,
}

const MOST_RECOGNISED: usize = 1024;

impl Recognised {
    fn knows(&self, roster: &Arc<Roster>, process: Process) -> bool {
        let persons = self.persons.lock().expect("nothing panics while it holds this lock");
        Arc::ptr_eq(&persons.0, roster) && persons.1.contains(&process)
    }

    fn add(&self, roster: &Arc<Roster>, process: Process) {
        let mut persons = self.persons.lock().expect("nothing panics while it holds this lock");
        if !Arc::ptr_eq(&persons.0, roster) || persons.1.len() >= MOST_RECOGNISED {
            *persons = (Arc::clone(roster), HashSet::new());
        }
        persons.1.insert(process);
    }
}

/// The same for a connection that goes on: until the roster changes, a process that lives is who it was. A connection may
/// be older than what made its process an agent.
fn recognise_again(
    house: &House,
    pid: Option<u32>,
    pin: Option<&OwnedFd>,
    person: &Mutex<Person>,
) -> Result<Peer, OutOfDescriptors> {
    let mut person = person.lock().expect("nothing panics while it holds this lock");
    let roster = Arc::clone(&house.roster.borrow());
    if let Some((known, process)) = person.as_ref()
        && Arc::ptr_eq(known, &roster)
        && pin.is_some_and(peer::lives)
    {
        return Ok(Peer::Person(*process));
    }
    let found = recognise(house, pid, pin)?;
    *person = match found {
        Peer::Person(process) => Some((roster, process)),
        _ => None,
    };
    Ok(found)
}

fn recognise(house: &House, pid: Option<u32>, pin: Option<&OwnedFd>) -> Result<Peer, OutOfDescriptors> {
    let roster = Arc::clone(&house.roster.borrow());
    // Only with a pin: without one its number could be another's by now.
    let Some(pid) = pid else { return Ok(Peer::Unpinned) };
    let before = peer::process(pid)?.map(|(process, _)| process).filter(|_| pin.is_some_and(peer::lives));
    if let Some(process) = before.filter(|p| house.recognised.knows(&roster, *p)) {
        return Ok(Peer::Person(process));
    }
    let found = with_known(house, |known| peer::recognise(pid, pin, known))?;
    if let Peer::Person(process) = found {
        house.recognised.add(&roster, process);
    }
    Ok(found)
}

/// With all that marks a process as a task's or an agent's.
fn with_known<T>(house: &House, look: impl FnOnce(&Known<'_>) -> T) -> T {
    let roster = Arc::clone(&house.roster.borrow());
    look(&Known {
        shim: &|pid| house.keeper.task_of_shim(pid),
        agent: &|process| roster.of_agent(process).map(|s| s.id),
        left: &|chain| left_agent::left(chain, &roster),
        house: std::process::id(),
    })
}

const AGENT: [CredentialScope; 2] = [CredentialScope::Observe, CredentialScope::Run];

/// A user of the machine at the socket, and the principal that they are.
struct Visitor {
    uid: u32,
    principal: PrincipalId,
    called: Text,
}

/// Whom the kernel says has come. An ordinary house knows its own user; the owner of a house of the machine is root.
fn visitor(house: &House, uid: Option<u32>) -> Result<Visitor, Refusal> {
    let uid = uid.ok_or_else(|| Refusal::new(Code::Forbidden, "the kernel does not say who asks"))?;
    let roster = house.roster.borrow();
    let owner = uid == rustix::process::geteuid().as_raw() || house.people.is_machine() && uid == 0;
    let principal = match owner {
        true => Some(PrincipalId::owner()),
        false => roster.of_uid(uid).filter(|_| house.people.is_machine()),
    };
    match principal {
        Some(principal) => {
            let called = roster.name(principal).cloned().unwrap_or_else(|| Text::of("owner"));
            Ok(Visitor { uid, principal, called })
        }
        None => Err(Refusal::new(Code::Forbidden, "this house belongs to another user")),
    }
}

/// Enters a user of the machine who comes for the first time.
async fn welcome(house: &House, caller: &Caller, scope: Option<CredentialScope>) -> Result<(), Refusal> {
    let Caller::Socket { uid: Some(uid), .. } = caller else { return Ok(()) };
    let known = *uid == 0 || house.roster.borrow().of_uid(*uid).is_some();
    if scope.is_none() || known || !house.people.is_machine() || house.reading_only.is_set() {
        return Ok(());
    }
    house.welcome(people::login(*uid)?).await
}

fn of_peer(house: &House, peer: &Peer, visitor: Visitor) -> Who {
    let Visitor { uid, principal: own, called } = visitor;
    let agent = |principal, audience, sees: Sees, name: Text, why: &'static str| Who {
        uid: Some(uid),
        called: name.clone(),
        principal,
        kind: CredentialKind::Agent,
        scopes: AGENT.to_vec(),
        audience,
        token: None,
        sees,
        name,
        process: None,
        doubtful: false,
        why,
    };
    // Whose the session is, and how far it is trusted, its agent is and is trusted.
    let of_session = |session: Option<SessionId>, why: &'static str| {
        let known = session.and_then(|s| house.roster.borrow().session(s).cloned());
        // Whose processes something is below is a fact; a marker is only what they say, and says nothing about others.
        let theirs = matches!(peer, Peer::Task(_) | Peer::Agent(_));
        match known.filter(|s| theirs || s.principal == own) {
            Some(s) => agent(s.principal, s.audience, Sees::Session(s.id), Text::of("agent"), why),
            // By a name that no session of an agent has: it sees what it asked for itself.
            None => agent(own, Audience::Personal, Sees::Own, Text::of("orphan"), why),
        }
    };
    let of_task = |task| house.readers.with(|r| r.whose(task)).ok().flatten().and_then(|(_, session)| session);
    match peer {
        Peer::Person(process) => Who {
            principal: own,
            kind: CredentialKind::Person,
            scopes: match own == PrincipalId::owner() {
                true => CredentialScope::ALL.to_vec(),
                false => vec![CredentialScope::Observe, CredentialScope::Run, CredentialScope::Approve],
            },
            uid: Some(uid),
            called,
            audience: Audience::Personal,
            token: None,
            sees: Sees::All,
            name: Text::of("socket"),
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
            agent(own, Audience::Personal, Sees::Own, Text::of("unknown"), why)
        }
    }
}

/// What begins every token.
pub(crate) const TOKEN: &str = "csn_";

fn of_token(house: &House, headers: &HeaderMap) -> Result<Who, Refusal> {
    let refused = || {
        Refusal::new(Code::Unauthorized, "this needs a token that is good: `Authorization: Bearer csn_…`")
            .hint("make one with `csn token create`; one that was revoked or has expired is not good any more")
    };
    let value = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).ok_or_else(refused)?;
    let token = value.strip_prefix("Bearer ").map(str::trim).ok_or_else(refused)?;
    let (id, _) = token.strip_prefix(TOKEN).and_then(|rest| rest.split_once('_')).ok_or_else(refused)?;
    let id: TokenId = format!("{}_{id}", TokenId::PREFIX).parse().map_err(|_| refused())?;
    let now = clock::now();
    let kept = house.roster.borrow().token(id).cloned().ok_or_else(refused)?;
    // Of two digests, not of the token: how far they agree tells nothing.
    if kept.hash != Digest::sha256(&[token.as_bytes()]) || !kept.holds(now) {
        return Err(refused());
    }
    if kept.last_used_at.is_none_or(|at| now.since(at).as_secs() >= 3600) {
        let (reply, _) = oneshot::channel();
        let _ = house.calls.send(Call::Wish { wish: Wish::UsedToken(id), reply });
    }
    Ok(Who {
        principal: kept.principal,
        kind: kept.kind,
        scopes: kept.scopes.clone(),
        audience: kept.audience,
        token: Some(id),
        sees: Sees::All,
        name: countersign_redact::text_by_shape(&format!("token {}", kept.name)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_needs_what_it_should() {
        use CredentialScope::{Admin, Approve, Observe, Run};
        for (method, path, scope) in [
            (Method::GET, "/livez", None),
            (Method::GET, "/readyz", None),
            (Method::GET, "/tasks", Some(Observe)),
            (Method::POST, "/tasks", Some(Run)),
            (Method::POST, "/tasks/tk_1/stdin", Some(Run)),
            (Method::GET, "/tasks/tk_1/attach", Some(Observe)),
            (Method::GET, "/approvals", Some(Observe)),
            (Method::POST, "/approvals/ap_1", Some(Approve)),
            (Method::GET, "/grants", Some(Observe)),
            (Method::POST, "/grants", Some(Approve)),
            (Method::DELETE, "/grants/gr_1", Some(Approve)),
            (Method::POST, "/grants/gr_1/narrow", Some(Approve)),
            (Method::POST, "/sessions", Some(Run)),
            (Method::DELETE, "/sessions/se_1", Some(Run)),
            (Method::GET, "/tokens", Some(Admin)),
            (Method::POST, "/tokens", Some(Admin)),
            (Method::POST, "/lifecycle", Some(Admin)),
            (Method::POST, "/hooks/before", Some(Run)),
            (Method::POST, "/tickets/ti_1", Some(Run)),
            (Method::POST, "/mcp", Some(Run)),
            (Method::DELETE, "/mcp", Some(Run)),
            (Method::GET, "/mcp", Some(Run)),
            (Method::GET, "/mcp/stdio", Some(Run)),
            (Method::POST, "/listen", Some(Admin)),
            (Method::POST, "/gc", Some(Admin)),
            (Method::POST, "/ledger", Some(Admin)),
            (Method::POST, "/what-comes-later", Some(Admin)),
            (Method::POST, "//approvals/ap_1", Some(Approve)),
        ] {
            assert_eq!(needs(&method, path), scope, "{method} {path}");
        }
    }

    #[test]
    fn only_a_build_for_the_suite_lets_it_in() {
        let scope = (!cfg!(feature = "fixture")).then_some(CredentialScope::Run);
        assert_eq!(needs(&Method::POST, "/mcp/fixture"), scope);
        assert_eq!(needs(&Method::POST, "/mcp/fixture/"), Some(CredentialScope::Run));
    }
}
