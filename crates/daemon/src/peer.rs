//! Recognises the process at the other end of the socket: a person's, or one that an agent started.
//!
//! The walk follows the ancestors of the peer up to the first process, or to one that an earlier walk has passed. A pidfd
//! pins the peer, so that its pid cannot be reused meanwhile. A process below a shim, below a registered agent, or with a
//! task's marker in its environment belongs to an agent; so does one that ends or hides before it was checked. If nothing
//! can be read because no descriptor is left, that is an error, and nobody is recognised.

use crate::descriptors::OutOfDescriptors;
use countersign_model::{MARKER, Process, SessionId, TaskId};
use countersign_shim::with_owner_ids;
use countersign_store::proc;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::OwnedFd,
};
use std::{io, net::SocketAddr};

/// What a peer was recognised as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    Person(Process),
    /// Below the shim of this task.
    Task(TaskId),
    /// Below the agent process of this session.
    Agent(SessionId),
    /// Has the marker of a task, or comes from a task that lost its shim.
    Marked(String),
    /// Has a variable that an agent sets for its commands, and no agent's process is an ancestor.
    LeftAgent,
    Unpinned,
}

/// How a process is recognised as an agent's although it is no descendant of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AgentTrace {
    /// It is in the control group of the agent of this session.
    Group(SessionId),
    /// It has this variable, and no agent's process is an ancestor.
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

/// How many ancestors are followed: more than any real process tree has.
const MAX_ANCESTORS: usize = 256;
/// How often a walk is repeated when a process ends meanwhile.
const MAX_WALKS: usize = 3;

/// A process and its ancestors, each with its parent.
pub(crate) type ProcessChain = [(Process, u32)];

/// The processes that the walk must recognise.
pub(crate) struct KnownProcesses<'a> {
    pub(crate) shim: &'a dyn Fn(u32) -> Option<TaskId>,
    pub(crate) agent: &'a dyn Fn(Process) -> Option<SessionId>,
    /// Whether a process, given its ancestors, has left a registered agent.
    pub(crate) left: &'a dyn Fn(&ProcessChain) -> Option<AgentTrace>,
    /// Whether an earlier walk has passed this process on the way to the first one, and found nothing that makes its
    /// descendants an agent's.
    pub(crate) passed: &'a dyn Fn(Process) -> bool,
    /// This daemon: a process below it that is not a shim was left by a dead shim.
    pub(crate) daemon: u32,
}

/// The result of reading `/proc`; none if the process is gone or may not be read.
type LookupResult<T> = Result<Option<T>, OutOfDescriptors>;

fn found_or_gone<T>(prepared: io::Result<T>) -> LookupResult<T> {
    match prepared {
        Ok(found) => Ok(Some(found)),
        Err(e) if OutOfDescriptors::matches(&e) => Err(OutOfDescriptors),
        Err(_) => Ok(None),
    }
}

/// Follows the ancestors of a peer. Returns what it is, and the ancestors that the walk has passed if it is a person's.
/// `pin` is the peer's pidfd; without one its start time must not change.
pub(crate) fn recognise(
    pid: u32,
    pin: Option<&OwnedFd>,
    known: &KnownProcesses<'_>,
) -> Result<(Peer, Vec<Process>), OutOfDescriptors> {
    for _ in 0..MAX_WALKS {
        let Some((found, chain)) = walk_ancestors(pid, known)? else { continue };
        // A pid on the way may have been reused after a process ended: then walk again.
        let mut same = true;
        for (process, parent) in &chain {
            same &= self::read_process(process.pid)? == Some((*process, *parent));
        }
        if same && pin.is_none_or(is_alive) {
            let ancestors = chain.iter().skip(1).map(|(process, _)| *process);
            let passed = if matches!(found, Peer::Person(_)) { ancestors.collect() } else { Vec::new() };
            return Ok((found, passed));
        }
    }
    Ok((Peer::Unpinned, Vec::new()))
}

/// One walk up to the first process, with every process on the way and its parent. None if a process was gone.
fn walk_ancestors(pid: u32, known: &KnownProcesses<'_>) -> LookupResult<(Peer, Vec<(Process, u32)>)> {
    let mut chain: Vec<(Process, u32)> = Vec::new();
    let Some(own) = read_marker(pid)? else { return Ok(None) };
    let mut marked = own.map(Peer::Marked);
    let mut at = pid;
    while chain.len() < MAX_ANCESTORS {
        let Some((process, parent)) = read_process(at)? else { return Ok(None) };
        chain.push((process, parent));
        if let Some(task) = (known.shim)(at) {
            return Ok(Some((Peer::Task(task), chain)));
        }
        if let Some(session) = (known.agent)(process) {
            return Ok(Some((Peer::Agent(session), chain)));
        }
        if at == known.daemon {
            let orphan = || Peer::Marked("of a task that lost its supervisor".to_owned());
            return Ok(Some((marked.unwrap_or_else(orphan), chain)));
        }
        if at != pid && marked.is_none() {
            if (known.passed)(process) {
                return Ok(Some((Peer::Person(chain[0].0), chain)));
            }
            // The environment of an ancestor may be unreadable; only the peer's own must be known.
            marked = read_marker(at)?.flatten().map(Peer::Marked);
        }
        if parent <= 1 {
            // In a container the first process may be an agent. A process that was put in from outside is not below it.
            if let Some(session) = first_process(parent)?.and_then(known.agent) {
                return Ok(Some((Peer::Agent(session), chain)));
            }
            let person = chain.first().map(|(process, _)| Peer::Person(*process));
            let left = || (known.left)(&chain).map(Peer::from);
            return Ok(marked.or_else(left).or(person).map(|found| (found, chain)));
        }
        at = parent;
    }
    // A tree this deep is made to confuse the walk.
    Ok(Some((Peer::Unpinned, Vec::new())))
}

/// Whether a process has not ended: its pidfd is not readable.
pub(crate) fn is_alive(pin: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pin, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|n| n == 0)
}

/// The first process, if it is the parent.
fn first_process(parent: u32) -> LookupResult<Process> {
    Ok(read_process(parent)?.filter(|_| parent == 1).map(|(process, _)| process))
}

/// A process and its parent.
pub(crate) fn read_process(pid: u32) -> LookupResult<(Process, u32)> {
    Ok(found_or_gone(proc::stat(pid))?.map(|stat| (stat.process, stat.parent)))
}

/// The holder of the other end of a loopback connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConnectionHolder {
    /// This process, of the daemon's user.
    Process(u32),
    /// A process of another user: a proxy, a tunnel.
    Stranger,
    /// One of these processes of the daemon's user, which may not be inspected, such as a tunnel.
    Hidden(Vec<u32>),
    /// It has been closed, or no process holds it.
    Nobody,
}

/// Searches the processes that run as `uid` for the holder of a connection.
pub(crate) fn find_holder(
    peer_address: SocketAddr,
    local_address: SocketAddr,
    uid: u32,
) -> Result<ConnectionHolder, OutOfDescriptors> {
    let socket =
        found_or_gone(proc::tcp_socket(peer_address, local_address))?.flatten().filter(|socket| socket.inode != 0);
    let Some(proc::TcpSocket { owner, inode }) = socket else { return Ok(ConnectionHolder::Nobody) };
    if owner != uid {
        return Ok(ConnectionHolder::Stranger);
    }
    let wanted = format!("socket:[{inode}]");
    let mut hidden = Vec::new();
    let Some(all) = found_or_gone(proc::all_pids())? else { return Ok(ConnectionHolder::Nobody) };
    for pid in all {
        let held = with_owner_ids(pid, || {
            proc::open_files(pid).map(|mut open| open.any(|file| file.as_os_str() == wanted.as_str()))
        });
        match held {
            Ok(true) => return Ok(ConnectionHolder::Process(pid)),
            Ok(false) => {}
            Err(e) if OutOfDescriptors::matches(&e) => return Err(OutOfDescriptors),
            Err(_) if runs_as(pid, uid)? && pid != std::process::id() && !is_shim(pid)? => hidden.push(pid),
            Err(_) => {}
        }
    }
    Ok(if hidden.is_empty() { ConnectionHolder::Nobody } else { ConnectionHolder::Hidden(hidden) })
}

/// Whether a process is below a task or an agent, judged by its ancestors.
pub(crate) fn is_below(pid: u32, known: &KnownProcesses<'_>) -> Result<bool, OutOfDescriptors> {
    let (mut at, mut chain) = (pid, Vec::new());
    for _ in 0..MAX_ANCESTORS {
        let Some((process, parent)) = read_process(at)? else { return Ok(true) };
        chain.push((process, parent));
        if (known.shim)(at).is_some() || (known.agent)(process).is_some() || at == known.daemon {
            return Ok(true);
        }
        if parent <= 1 {
            return Ok(first_process(parent)?.and_then(known.agent).is_some() || (known.left)(&chain).is_some());
        }
        at = parent;
    }
    Ok(true)
}

pub(crate) fn runs_as(pid: u32, uid: u32) -> Result<bool, OutOfDescriptors> {
    Ok(found_or_gone(proc::runs_as(pid, uid))?.unwrap_or(false))
}

/// Shims hide, as the daemon does; they hold no such connections.
fn is_shim(pid: u32) -> Result<bool, OutOfDescriptors> {
    Ok(found_or_gone(proc::is_shim(pid))?.unwrap_or(false))
}

/// Whether a process still runs.
pub(crate) fn is_running(process: Process) -> Result<bool, OutOfDescriptors> {
    Ok(self::read_process(process.pid)?.is_some_and(|(now, _)| now == process))
}

/// The task whose marker a process has. The outer option is none if its environment cannot be read.
fn read_marker(pid: u32) -> LookupResult<Option<String>> {
    let environ = match with_owner_ids(pid, || proc::environ(pid)) {
        Ok(environ) => environ,
        Err(e) if OutOfDescriptors::matches(&e) => return Err(OutOfDescriptors),
        // A process of root hides from a daemon that is not root's, and could do anything to it. Its ancestors still
        // show whether it belongs to a task.
        Err(_) if !rustix::process::geteuid().is_root() && runs_as(pid, 0)? => return Ok(Some(None)),
        Err(_) => return Ok(None),
    };
    Ok(Some(environ.value(MARKER).map(|task| String::from_utf8_lossy(task).chars().take(40).collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: KnownProcesses<'static> =
        KnownProcesses { shim: &|_| None, agent: &|_| None, left: &|_| None, passed: &|_| false, daemon: 0 };

    fn recognise(pid: u32, known: &KnownProcesses<'_>) -> Peer {
        super::recognise(pid, None, known).unwrap().0
    }

    #[test]
    fn the_ancestors_of_a_process_decide_what_it_is() {
        let me = std::process::id();
        let (process, parent) = read_process(me).unwrap().unwrap();
        // If the tests run inside a task, they are recognised as one.
        let outside = std::env::var_os(MARKER).is_none();
        if outside {
            assert_eq!(recognise(me, &NOBODY), Peer::Person(process));
        }
        let session: SessionId = "se_01m7h4jys3gnc16h".parse().unwrap();
        let of_parent = |p: Process| (p.pid == parent).then_some(session);
        assert_eq!(recognise(me, &KnownProcesses { agent: &of_parent, ..NOBODY }), Peer::Agent(session));
        let task: TaskId = "tk_01m7h4jys3gnc16h".parse().unwrap();
        let shim = |pid: u32| (pid == parent).then_some(task);
        assert_eq!(recognise(me, &KnownProcesses { shim: &shim, ..NOBODY }), Peer::Task(task));
        assert!(matches!(recognise(me, &KnownProcesses { daemon: parent, ..NOBODY }), Peer::Marked(_)));
        assert_eq!(is_running(process), Ok(true));
        assert_eq!(is_running(Process { start: process.start + 1, ..process }), Ok(false));
    }

    #[test]
    fn a_walk_ends_at_a_process_that_an_earlier_walk_has_passed() {
        let me = std::process::id();
        if std::env::var_os(MARKER).is_some() {
            return;
        }
        let (found, passed) = super::recognise(me, None, &NOBODY).unwrap();
        let (process, parent) = read_process(me).unwrap().unwrap();
        assert_eq!((found, passed.first().map(|p| p.pid)), (Peer::Person(process), Some(parent)));
        let asked = std::cell::RefCell::new(Vec::new());
        let is_passed = |p: Process| {
            asked.borrow_mut().push(p);
            passed.contains(&p)
        };
        let known = KnownProcesses { passed: &is_passed, ..NOBODY };
        assert_eq!(recognise(me, &known), Peer::Person(process));
        assert_eq!(*asked.borrow(), [passed[0]], "neither the peer itself nor what is above its parent");
        // A shim on the way is found first.
        let task: TaskId = "tk_01m7h4jys3gnc16h".parse().unwrap();
        let shim = |pid: u32| (pid == parent).then_some(task);
        assert_eq!(recognise(me, &KnownProcesses { shim: &shim, ..known }), Peer::Task(task));
    }

    #[test]
    fn the_holder_of_a_connection_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer_address, local_address) = (client.local_addr().unwrap(), listener.local_addr().unwrap());
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(find_holder(peer_address, local_address, uid), Ok(ConnectionHolder::Process(std::process::id())));
        assert_eq!(find_holder(peer_address, local_address, uid + 1), Ok(ConnectionHolder::Stranger));
        // The listener's end is open, but no process holds the client's end.
        let (_other, _) = listener.accept().unwrap();
        drop(client);
        assert_eq!(find_holder(peer_address, local_address, uid), Ok(ConnectionHolder::Nobody));
    }

    #[test]
    fn a_process_that_is_gone_is_not_a_person() {
        assert_eq!(recognise(u32::MAX / 2, &NOBODY), Peer::Unpinned);
        assert_eq!(recognise(0, &NOBODY), Peer::Unpinned);
    }
}
