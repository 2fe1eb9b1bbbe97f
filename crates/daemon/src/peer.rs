//! Who is at the other end of the socket: a person, or something that an agent started.
//!
//! A process is followed up to the first one, with the peer pinned by a descriptor so that its number cannot become
//! another's meanwhile. Below a shim, below a registered agent, or with a task's marker in its environment it is an
//! agent; so is one that is gone or hides before we have looked. Where nothing can be looked at because there is no
//! descriptor left, that is an error, and nobody is taken for anybody.

use crate::descriptors::OutOfDescriptors;
use countersign_model::{MARKER, Process, SessionId, TaskId};
use countersign_shim::as_owner_of;
use countersign_store::proc;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::OwnedFd,
};
use std::{io, net::SocketAddr};

/// What a peer turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    Person(Process),
    /// Below the shim of this task.
    Task(TaskId),
    /// Below the agent process of this session.
    Agent(SessionId),
    /// Carries the marker of a task, or came from one that has lost its shim.
    Marked(String),
    /// Carries what an agent puts into the environment of what it runs, and no agent's process is above it.
    LeftAgent,
    Unpinned,
}

/// How a process is known for an agent's that is no longer below it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AgentTrace {
    /// It is in the control group of the agent of this session.
    Group(SessionId),
    /// It carries this variable, and no agent's process is above it.
    Variable(&'static str),
}

impl From<AgentTrace> for Peer {
    fn from(left: AgentTrace) -> Self {
        match left {
            AgentTrace::Group(session) => Peer::Agent(session),
            AgentTrace::Variable(_) => Peer::LeftAgent,
        }
    }
}

/// Deeper than any process tree that is not made to confuse.
const DEEPEST: usize = 256;
/// How often a walk is begun anew when somebody ended meanwhile.
const TRIES: usize = 3;

/// A process and everything above it, each with its parent.
pub(crate) type ProcessChain = [(Process, u32)];

/// What the walk must be able to recognise.
pub(crate) struct KnownProcesses<'a> {
    pub(crate) shim: &'a dyn Fn(u32) -> Option<TaskId>,
    pub(crate) agent: &'a dyn Fn(Process) -> Option<SessionId>,
    /// Whether a process, with everything above it, has left a registered agent.
    pub(crate) left: &'a dyn Fn(&ProcessChain) -> Option<AgentTrace>,
    /// This daemon: what is below it, and not a shim, is what a dead shim has left.
    pub(crate) daemon: u32,
}

/// What was looked for, or nothing if it is not there or may not be looked at.
type LookupResult<T> = Result<Option<T>, OutOfDescriptors>;

fn seen<T>(prepared: io::Result<T>) -> LookupResult<T> {
    match prepared {
        Ok(found) => Ok(Some(found)),
        Err(e) if OutOfDescriptors::is_it(&e) => Err(OutOfDescriptors),
        Err(_) => Ok(None),
    }
}

/// Follows a peer upwards. `pin` is what the kernel says the peer is; without one its start time must stay the same.
pub(crate) fn recognise(pid: u32, pin: Option<&OwnedFd>, known: &KnownProcesses<'_>) -> Result<Peer, OutOfDescriptors> {
    for _ in 0..TRIES {
        let Some((found, chain)) = follow(pid, known)? else { continue };
        // A process that ended on the way may have been another's by the time it was looked at: then once more.
        let mut same = true;
        for (process, parent) in &chain {
            same &= self::process(process.pid)? == Some((*process, *parent));
        }
        if same && pin.is_none_or(lives) {
            return Ok(found);
        }
    }
    Ok(Peer::Unpinned)
}

/// One walk up to the first process, and everyone on the way with their parent. None when somebody was not there.
fn follow(pid: u32, known: &KnownProcesses<'_>) -> LookupResult<(Peer, Vec<(Process, u32)>)> {
    let mut chain: Vec<(Process, u32)> = Vec::new();
    let Some(own) = marker(pid)? else { return Ok(None) };
    let mut marked = own.map(Peer::Marked);
    let mut at = pid;
    while chain.len() < DEEPEST {
        let Some((process, parent)) = process(at)? else { return Ok(None) };
        chain.push((process, parent));
        if let Some(task) = (known.shim)(at) {
            return Ok(Some((Peer::Task(task), chain)));
        }
        if let Some(session) = (known.agent)(process) {
            return Ok(Some((Peer::Agent(session), chain)));
        }
        if at == known.daemon {
            let orphan = || Peer::Marked("of a task that has lost its supervisor".to_owned());
            return Ok(Some((marked.unwrap_or_else(orphan), chain)));
        }
        if at != pid && marked.is_none() {
            // Of others the environment may be out of reach; they are not the ones who ask.
            marked = marker(at)?.flatten().map(Peer::Marked);
        }
        if parent <= 1 {
            // In a container the first process may be an agent. What was put into it from outside is not below it.
            if let Some(session) = first(parent)?.and_then(known.agent) {
                return Ok(Some((Peer::Agent(session), chain)));
            }
            let person = chain.first().map(|(process, _)| Peer::Person(*process));
            let left = || (known.left)(&chain).map(Peer::from);
            return Ok(marked.or_else(left).or(person).map(|found| (found, chain)));
        }
        at = parent;
    }
    // Nobody is so deep down by accident.
    Ok(Some((Peer::Unpinned, Vec::new())))
}

/// A process that has not ended: its descriptor is not readable.
pub(crate) fn lives(pin: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pin, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|n| n == 0)
}

/// The first process of all, where that is the parent.
fn first(parent: u32) -> LookupResult<Process> {
    Ok(process(parent)?.filter(|_| parent == 1).map(|(process, _)| process))
}

/// A process and its parent.
pub(crate) fn process(pid: u32) -> LookupResult<(Process, u32)> {
    Ok(seen(proc::stat(pid))?.map(|stat| (stat.process, stat.parent)))
}

/// Who holds the other end of a connection on loopback.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConnectionHolder {
    /// This process, of our own user.
    Process(u32),
    /// Somebody else's: a proxy, a tunnel.
    Stranger,
    /// One of these, of our user, which may not be looked into, as a tunnel's may be; nobody else has it.
    Hidden(Vec<u32>),
    /// It has hung up, or nobody has it.
    Nobody,
}

/// Looks for whoever holds a connection, among everything that runs as `uid`.
pub(crate) fn holder(theirs: SocketAddr, ours: SocketAddr, uid: u32) -> Result<ConnectionHolder, OutOfDescriptors> {
    let socket = seen(proc::tcp_socket(theirs, ours))?.flatten().filter(|socket| socket.inode != 0);
    let Some(proc::TcpSocket { owner, inode }) = socket else { return Ok(ConnectionHolder::Nobody) };
    if owner != uid {
        return Ok(ConnectionHolder::Stranger);
    }
    let wanted = format!("socket:[{inode}]");
    let mut hidden = Vec::new();
    let Some(all) = seen(proc::all_pids())? else { return Ok(ConnectionHolder::Nobody) };
    for pid in all {
        let held = as_owner_of(pid, || {
            proc::open_files(pid).map(|mut open| open.any(|file| file.as_os_str() == wanted.as_str()))
        });
        match held {
            Ok(true) => return Ok(ConnectionHolder::Process(pid)),
            Ok(false) => {}
            Err(e) if OutOfDescriptors::is_it(&e) => return Err(OutOfDescriptors),
            Err(_) if runs_as(pid, uid)? && pid != std::process::id() && !is_shim(pid)? => hidden.push(pid),
            Err(_) => {}
        }
    }
    Ok(if hidden.is_empty() { ConnectionHolder::Nobody } else { ConnectionHolder::Hidden(hidden) })
}

/// Whether a process is below a task or an agent, as far as its parents tell.
pub(crate) fn is_below(pid: u32, known: &KnownProcesses<'_>) -> Result<bool, OutOfDescriptors> {
    let (mut at, mut chain) = (pid, Vec::new());
    for _ in 0..DEEPEST {
        let Some((process, parent)) = process(at)? else { return Ok(true) };
        chain.push((process, parent));
        if (known.shim)(at).is_some() || (known.agent)(process).is_some() || at == known.daemon {
            return Ok(true);
        }
        if parent <= 1 {
            return Ok(first(parent)?.and_then(known.agent).is_some() || (known.left)(&chain).is_some());
        }
        at = parent;
    }
    Ok(true)
}

pub(crate) fn runs_as(pid: u32, uid: u32) -> Result<bool, OutOfDescriptors> {
    Ok(seen(proc::runs_as(pid, uid))?.unwrap_or(false))
}

/// Shims hide, as the daemon does; they hold no such connection.
fn is_shim(pid: u32) -> Result<bool, OutOfDescriptors> {
    Ok(seen(proc::is_shim(pid))?.unwrap_or(false))
}

/// Whether a process that asked is still there.
pub(crate) fn is_there(process: Process) -> Result<bool, OutOfDescriptors> {
    Ok(self::process(process.pid)?.is_some_and(|(now, _)| now == process))
}

/// The task whose marker a process carries; the outer none when its environment cannot be read.
fn marker(pid: u32) -> LookupResult<Option<String>> {
    let environ = match as_owner_of(pid, || proc::environ(pid)) {
        Ok(environ) => environ,
        Err(e) if OutOfDescriptors::is_it(&e) => return Err(OutOfDescriptors),
        // Root hides from a house that is not root's, and could do whatever it likes to it: where it stands in the tree
        // still tells a task's root from another.
        Err(_) if !rustix::process::geteuid().is_root() && runs_as(pid, 0)? => return Ok(Some(None)),
        Err(_) => return Ok(None),
    };
    Ok(Some(environ.value(MARKER).map(|task| String::from_utf8_lossy(task).chars().take(40).collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: KnownProcesses<'static> =
        KnownProcesses { shim: &|_| None, agent: &|_| None, left: &|_| None, daemon: 0 };

    #[test]
    fn this_process_is_itself_and_what_is_above_it_decides() {
        let me = std::process::id();
        let (process, parent) = process(me).unwrap().unwrap();
        // Where the tests themselves run as a task, they are one.
        let outside = std::env::var_os(MARKER).is_none();
        if outside {
            assert_eq!(recognise(me, None, &NOBODY), Ok(Peer::Person(process)));
        }
        let session: SessionId = "se_01m7h4jys3gnc16h".parse().unwrap();
        let of_parent = |p: Process| (p.pid == parent).then_some(session);
        assert_eq!(recognise(me, None, &KnownProcesses { agent: &of_parent, ..NOBODY }), Ok(Peer::Agent(session)));
        let task: TaskId = "tk_01m7h4jys3gnc16h".parse().unwrap();
        let shim = |pid: u32| (pid == parent).then_some(task);
        assert_eq!(recognise(me, None, &KnownProcesses { shim: &shim, ..NOBODY }), Ok(Peer::Task(task)));
        assert!(matches!(recognise(me, None, &KnownProcesses { daemon: parent, ..NOBODY }), Ok(Peer::Marked(_))));
        assert_eq!(is_there(process), Ok(true));
        assert_eq!(is_there(Process { start: process.start + 1, ..process }), Ok(false));
    }

    #[test]
    fn the_holder_of_a_connection_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, ours) = (client.local_addr().unwrap(), listener.local_addr().unwrap());
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(holder(theirs, ours, uid), Ok(ConnectionHolder::Process(std::process::id())));
        assert_eq!(holder(theirs, ours, uid + 1), Ok(ConnectionHolder::Stranger));
        // The other end is still there, and has nobody on this one.
        let (_other, _) = listener.accept().unwrap();
        drop(client);
        assert_eq!(holder(theirs, ours, uid), Ok(ConnectionHolder::Nobody));
    }

    #[test]
    fn who_is_not_there_is_not_a_person() {
        assert_eq!(recognise(u32::MAX / 2, None, &NOBODY), Ok(Peer::Unpinned));
        assert_eq!(recognise(0, None, &NOBODY), Ok(Peer::Unpinned));
    }
}
