//! The control sockets of a running shim: the inherited channel, and, once nobody is at its other end any more, a
//! socket in `run/` through which the next daemon comes back.

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

/// Where the shim of a task listens, below `run/`.
#[must_use]
pub fn socket_name(task: TaskId) -> String {
    format!("{task}.sock")
}

pub struct ControlSocket {
    run: PathBuf,
    door: Option<Listener>,
    peers: Vec<Peer>,
    task: TaskId,
    secret: Digest,
    next_id: u64,
}

struct Listener {
    listener: OwnedFd,
    /// Keeps the short path to the directory valid until the socket is removed.
    _dir: OwnedFd,
    path: PathBuf,
}

pub struct Peer {
    /// Stays the same while others come and go.
    id: u64,
    fd: OwnedFd,
    inbox: MessageReader,
    /// Has shown that it is our daemon.
    trusted: bool,
    gone: bool,
    /// Bytes that the socket did not take yet.
    outbox: Vec<u8>,
}

impl ControlSocket {
    pub fn open(run: &Path, task: TaskId, secret: Digest, channel: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&channel, true)?;
        let channel = Peer::new(0, channel, true);
        Ok(Self { run: run.to_owned(), door: None, peers: vec![channel], task, secret, next_id: 1 })
    }

    /// Opens the door for the next daemon when the last one has gone.
    pub fn mind_the_door(&mut self) {
        self.peers.retain(|p| !p.gone);
        if self.door.is_none() && !self.peers.iter().any(|p| p.trusted) {
            // Where it cannot be opened now, the next round tries again; the record does not wait for it.
            self.door = Listener::open(&self.run, self.task).ok();
        }
    }

    /// Every peer, then the door if it is open; `true` where there is something to send.
    pub fn fds(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        let peers = self.peers.iter().map(|p| (p.fd.as_fd(), !p.outbox.is_empty()));
        peers.chain(self.door.iter().map(|d| (d.listener.as_fd(), false)))
    }

    /// Lets the next one in. Another user's process is not heard at all.
    pub fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Some(door) = &self.door else { return };
        while let Ok(fd) = rustix::net::accept_with(&door.listener, flags) {
            let same_user = sockopt::socket_peercred(&fd).is_ok_and(|c| c.uid == rustix::process::geteuid());
            if !same_user || self.peers.len() >= 16 {
                continue;
            }
            let mut peer = Peer::new(self.next_id, fd, false);
            self.next_id += 1;
            peer.send(&hello(Some(self.task)));
            self.peers.push(peer);
        }
    }

    /// Which peer stands at place `n`; none for the door.
    pub fn peer(&self, n: usize) -> Option<u64> {
        self.peers.get(n).map(|p| p.id)
    }

    /// What peer number `n` has to say. Peers that lie or leave are marked as gone.
    pub fn read_messages(&mut self, n: usize) -> Vec<ToShim> {
        let secret = self.secret;
        let Some(peer) = self.peers.get_mut(n) else { return Vec::new() };
        peer.push_out();
        let mut heard = Vec::new();
        let mut buf = [0; 4096];
        loop {
            match rustix::net::recv(&peer.fd, &mut buf, RecvFlags::empty()) {
                Ok((0, _)) => {
                    peer.gone = true;
                    break;
                }
                Ok((got, _)) => peer.inbox.feed(&buf[..got]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => {
                    peer.gone = true;
                    break;
                }
            }
        }
        loop {
            match peer.inbox.message::<ToShim>() {
                Ok(None) => break,
                Ok(Some(ToShim::Hello { protocol: PROTOCOL, secret: said })) if said == secret => peer.trusted = true,
                Ok(Some(operation)) if peer.trusted => heard.push(operation),
                Ok(Some(_)) | Err(_) => {
                    peer.gone = true;
                    break;
                }
            }
        }
        heard
    }

    /// Tells a peer, if it is still there.
    pub fn answer(&mut self, id: u64, message: &FromShim) {
        if let Some(peer) = self.peers.iter_mut().find(|p| p.id == id) {
            peer.send(message);
        }
    }

    /// The doorbell. Where one is still unheard, another adds nothing.
    pub fn notify(&mut self) {
        for peer in self.peers.iter_mut().filter(|p| p.trusted && p.outbox.is_empty()) {
            peer.send(&FromShim::More);
        }
    }

    /// The last word to everyone; then the socket is gone.
    pub fn close(mut self, message: &FromShim) {
        for peer in self.peers.iter_mut().filter(|p| p.trusted) {
            // Blocking: a daemon that is alive reads this, one that is dead has closed.
            let _ = rustix::io::ioctl_fionbio(&peer.fd, false);
            peer.send(message);
        }
        if let Some(door) = &self.door {
            let _ = std::fs::remove_file(&door.path);
        }
    }

    pub fn refuse(&mut self, id: u64, re: u64, code: RefusalCode, message: &str) {
        let refusal = Refusal::new(code, message);
        let refusal = match code {
            RefusalCode::WrongMode => {
                refusal.hint("`stdin: true` or `execution_mode: pty` must be asked for with the task")
            }
            RefusalCode::InputFull => refusal.hint("wait until the program reads, or end it: csn cancel"),
            RefusalCode::TaskOver => refusal.hint("see how it ended: csn show"),
            RefusalCode::IdempotencyConflict => refusal.hint("use a new key for a new operation"),
            _ => refusal,
        };
        self.answer(id, &FromShim::Refused { re, refusal });
    }
}

impl Listener {
    fn open(run: &Path, task: TaskId) -> io::Result<Self> {
        let (dir, path) = Home::short_socket_path(run, &socket_name(task))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path)?)?;
        rustix::net::listen(&listener, 8)?;
        Ok(Self { listener, _dir: dir, path })
    }
}

/// What a shim says first.
pub fn hello(task: Option<TaskId>) -> FromShim {
    FromShim::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned(), pid: std::process::id(), task }
}

impl Peer {
    fn new(id: u64, fd: OwnedFd, trusted: bool) -> Self {
        Self { id, fd, inbox: MessageReader::default(), trusted, gone: false, outbox: Vec::new() }
    }

    fn send(&mut self, message: &FromShim) {
        if let Ok(bytes) = wire::encode(message) {
            self.outbox.extend(bytes);
            self.push_out();
        }
    }

    fn push_out(&mut self) {
        while !self.outbox.is_empty() && !self.gone {
            match rustix::net::send(&self.fd, &self.outbox, SendFlags::NOSIGNAL) {
                Ok(n) => drop(self.outbox.drain(..n)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.gone = true,
            }
        }
    }
}
