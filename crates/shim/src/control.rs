//! The control sockets of a running shim: the inherited channel, and, once its other end is closed, a socket in `run/`
//! through which the next daemon connects.

use crate::wire::{self, FromShim, MessageReader, PROTOCOL, ToShim};
use countersign_model::{Digest, Refusal, RefusalCode, TaskId};
use countersign_store::Home;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt},
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// More connections than this are closed immediately.
const MAX_PEERS: usize = 16;
const MAX_PENDING_CONNECTIONS: i32 = 8;

/// The name of a shim's socket below `run/`.
#[must_use]
pub fn socket_name(task: TaskId) -> String {
    format!("{task}.sock")
}

pub struct ControlSocket {
    run: PathBuf,
    listener: Option<Listener>,
    peers: Vec<Peer>,
    task: TaskId,
    secret: Digest,
    next_id: u64,
}

struct Listener {
    fd: OwnedFd,
    /// Keeps the short path to the directory valid until the socket is removed.
    _dir: OwnedFd,
    path: PathBuf,
}

pub struct Peer {
    /// Identifies the peer while others connect and disconnect.
    id: u64,
    fd: OwnedFd,
    inbox: MessageReader,
    /// The peer has sent the secret that only this shim's daemon knows.
    trusted: bool,
    closed: bool,
    /// Bytes that the socket did not take yet.
    outbox: Vec<u8>,
}

impl ControlSocket {
    pub fn open(run: &Path, task: TaskId, secret: Digest, channel: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&channel, true)?;
        let channel = Peer::new(0, channel, true);
        Ok(Self { run: run.to_owned(), listener: None, peers: vec![channel], task, secret, next_id: 1 })
    }

    /// Removes closed peers, and listens for the next daemon when none is connected.
    pub fn listen_when_abandoned(&mut self) {
        self.peers.retain(|p| !p.closed);
        if self.listener.is_none() && !self.peers.iter().any(|p| p.trusted) {
            // On failure the next round tries again; recording does not depend on it.
            self.listener = Listener::open(&self.run, self.task).ok();
        }
    }

    /// The descriptors of all peers, then of the listener if it is open; `true` where bytes wait to be sent.
    pub fn fds(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        let peers = self.peers.iter().map(|p| (p.fd.as_fd(), !p.outbox.is_empty()));
        peers.chain(self.listener.iter().map(|l| (l.fd.as_fd(), false)))
    }

    /// Accepts connections, only from processes of this user.
    pub fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Some(listener) = &self.listener else { return };
        while let Ok(fd) = rustix::net::accept_with(&listener.fd, flags) {
            let same_user = sockopt::socket_peercred(&fd).is_ok_and(|c| c.uid == rustix::process::geteuid());
            if !same_user || self.peers.len() >= MAX_PEERS {
                continue;
            }
            let mut peer = Peer::new(self.next_id, fd, false);
            self.next_id += 1;
            peer.send(&hello(Some(self.task)));
            self.peers.push(peer);
        }
    }

    /// The ID of the peer at index `n` of [`Self::fds`]; none for the listener.
    pub fn peer_id(&self, n: usize) -> Option<u64> {
        self.peers.get(n).map(|p| p.id)
    }

    /// Reads the operations that the peer at index `n` has sent. A peer that disconnects or breaks the protocol is
    /// marked as closed.
    pub fn read_messages(&mut self, n: usize) -> Vec<ToShim> {
        let secret = self.secret;
        let Some(peer) = self.peers.get_mut(n) else { return Vec::new() };
        peer.flush();
        let mut operations = Vec::new();
        let mut buf = [0; 4096];
        loop {
            match rustix::net::recv(&peer.fd, &mut buf, RecvFlags::empty()) {
                Ok((0, _)) => {
                    peer.closed = true;
                    break;
                }
                Ok((got, _)) => peer.inbox.feed(&buf[..got]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => {
                    peer.closed = true;
                    break;
                }
            }
        }
        loop {
            match peer.inbox.next_message::<ToShim>() {
                Ok(None) => break,
                Ok(Some(ToShim::Hello { protocol: PROTOCOL, secret: sent })) if sent == secret => peer.trusted = true,
                Ok(Some(operation)) if peer.trusted => operations.push(operation),
                Ok(Some(_)) | Err(_) => {
                    peer.closed = true;
                    break;
                }
            }
        }
        operations
    }

    /// Sends a message to a peer that is still connected.
    pub fn send_to(&mut self, id: u64, message: &FromShim) {
        if let Some(peer) = self.peers.iter_mut().find(|p| p.id == id) {
            peer.send(message);
        }
    }

    /// Notifies the daemon that the journal has more. A peer with unsent bytes has a notification already.
    pub fn notify(&mut self) {
        for peer in self.peers.iter_mut().filter(|p| p.trusted && p.outbox.is_empty()) {
            peer.send(&FromShim::More);
        }
    }

    /// Tells the daemon which secrets the task has shown.
    pub fn tell_learned(&mut self, secrets: &[String]) {
        for peer in self.peers.iter_mut().filter(|p| p.trusted) {
            peer.send(&FromShim::Learned { secrets: secrets.to_vec() });
        }
    }

    /// Sends the last message to every daemon, then removes the socket.
    pub fn close(mut self, message: &FromShim) {
        for peer in self.peers.iter_mut().filter(|p| p.trusted) {
            // Blocking: a live daemon reads this; a dead one has closed its end.
            let _ = rustix::io::ioctl_fionbio(&peer.fd, false);
            peer.send(message);
        }
        if let Some(listener) = &self.listener {
            let _ = std::fs::remove_file(&listener.path);
        }
    }

    pub fn send_refusal(&mut self, id: u64, re: u64, code: RefusalCode, message: &str) {
        let refusal = Refusal::new(code, message);
        let refusal = match code {
            RefusalCode::WrongMode => {
                refusal.hint("start the task with `stdin: true`, or with `execution_mode: pty` for a terminal")
            }
            RefusalCode::InputFull => refusal.hint("wait until the program reads its input, or cancel the task"),
            RefusalCode::TaskOver => refusal.hint("show the task to see how it ended"),
            RefusalCode::IdempotencyConflict => refusal.hint("use a new key for a new operation"),
            _ => refusal,
        };
        self.send_to(id, &FromShim::Refused { re, refusal });
    }
}

impl Listener {
    fn open(run: &Path, task: TaskId) -> io::Result<Self> {
        let (dir, path) = Home::short_socket_path(run, &socket_name(task))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&fd, &SocketAddrUnix::new(&path)?)?;
        rustix::net::listen(&fd, MAX_PENDING_CONNECTIONS)?;
        Ok(Self { fd, _dir: dir, path })
    }
}

/// The first message of a shim.
pub fn hello(task: Option<TaskId>) -> FromShim {
    FromShim::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned(), pid: std::process::id(), task }
}

impl Peer {
    fn new(id: u64, fd: OwnedFd, trusted: bool) -> Self {
        Self { id, fd, inbox: MessageReader::default(), trusted, closed: false, outbox: Vec::new() }
    }

    fn send(&mut self, message: &FromShim) {
        if let Ok(bytes) = wire::encode(message) {
            self.outbox.extend(bytes);
            self.flush();
        }
    }

    fn flush(&mut self) {
        while !self.outbox.is_empty() && !self.closed {
            match rustix::net::send(&self.fd, &self.outbox, SendFlags::NOSIGNAL) {
                Ok(n) => drop(self.outbox.drain(..n)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.closed = true,
            }
        }
    }
}
