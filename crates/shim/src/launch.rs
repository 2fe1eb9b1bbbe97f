//! Starting shims, without `pre_exec`, so that std uses posix_spawn: forking a daemon would cost more the more memory it
//! has.

use crate::wire::{self, FromShim, PROTOCOL, ToShim};
use countersign_model::Order;
use rustix::{
    fd::AsFd as _,
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};
use std::{
    io::{self, IoSlice, Read as _},
    mem::MaybeUninit,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// How long a nursery or a shim that has been stopped may hold up the house.
const PATIENCE: Duration = Duration::from_secs(5);

/// The process that shims are forked from. One per daemon; started again when it is gone.
pub struct ForkServer {
    shim: PathBuf,
    process: Option<(Child, UnixStream)>,
}

impl ForkServer {
    #[must_use]
    pub fn new(shim: PathBuf) -> Self {
        Self { shim, process: None }
    }

    /// A new shim, from a nursery that was started for it if need be.
    pub fn shim(&mut self) -> io::Result<IdleShim> {
        if let Some((_, fork_server)) = &mut self.process
            && let Ok(idle_shim) = fork_shim(fork_server)
        {
            return Ok(idle_shim);
        }
        self.dismiss();
        let (_, fork_server) = self.process.insert(start(&self.shim)?);
        fork_shim(fork_server)
    }

    /// Ends the nursery; the shims that came from it go on.
    pub fn dismiss(&mut self) {
        if let Some((mut child, fork_server)) = self.process.take() {
            drop(fork_server);
            // It ends by itself when nobody is there, unless it was stopped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that starts csn-shim")]
fn start(shim: &Path) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(shim);
    command.env_clear().stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    if let Some(file) = std::env::var_os("COUNTERSIGN_CRASH_FILE").filter(|_| cfg!(feature = "crash-points")) {
        command.env("COUNTERSIGN_CRASH_FILE", file);
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // Before it is asked for anything: what it forks inherits this.
    crate::descriptors::restore_limit(&child);
    ours.set_read_timeout(Some(PATIENCE))?;
    Ok((child, ours))
}

fn fork_shim(fork_server: &mut UnixStream) -> io::Result<IdleShim> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [theirs.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(&*fork_server, &[IoSlice::new(&[1])], &mut ancillary, SendFlags::NOSIGNAL)?;
    let mut pid = [0; 4];
    fork_server.read_exact(&mut pid)?;
    match u32::from_le_bytes(pid) {
        0 => Err(io::Error::other("no more processes")),
        pid => {
            ours.set_read_timeout(Some(PATIENCE))?;
            ours.set_write_timeout(Some(PATIENCE))?;
            Ok(IdleShim { pid, channel: ours })
        }
    }
}

/// A shim that runs and waits for its order. Dropped without one, it ends by itself.
pub struct IdleShim {
    pid: u32,
    channel: UnixStream,
}

impl IdleShim {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Hears the shim's hello, hands the order over, and gives the channel to keep.
    pub fn hand_over(mut self, order: Order) -> io::Result<UnixStream> {
        match wire::receive(&mut self.channel)? {
            FromShim::Hello { protocol: PROTOCOL, version, .. } if version == env!("CARGO_PKG_VERSION") => {}
            _ => {
                return Err(io::Error::other(
                    "csn-shim is of another version than csn: install both from one build (see `csn doctor`)",
                ));
            }
        }
        wire::send(&mut self.channel, &ToShim::Order(Box::new(order)))?;
        self.channel.set_read_timeout(None)?;
        self.channel.set_write_timeout(None)?;
        Ok(self.channel)
    }
}
