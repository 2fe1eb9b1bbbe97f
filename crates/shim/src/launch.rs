//! Starts the fork server and requests shims from it. Uses no `pre_exec`, so that std uses posix_spawn: the cost of
//! forking the daemon would grow with its memory.

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

/// How long the daemon waits for a fork server or a shim that does not respond.
const SHIM_TIMEOUT: Duration = Duration::from_secs(5);

/// The process that shims are forked from. A daemon has one, and restarts it when it has ended.
pub struct ForkServer {
    shim_program: PathBuf,
    /// Where idle shims prepare the records of tasks.
    place: PathBuf,
    process: Option<(Child, UnixStream)>,
}

impl ForkServer {
    #[must_use]
    pub fn new(shim: PathBuf, place: PathBuf) -> Self {
        Self { shim_program: shim, place, process: None }
    }

    /// Forks a new shim. Starts the fork server if it does not run.
    pub fn fork_shim(&mut self) -> io::Result<IdleShim> {
        if let Some((_, fork_server)) = &mut self.process
            && let Ok(idle_shim) = request_shim(fork_server)
        {
            return Ok(idle_shim);
        }
        self.stop();
        let (_, fork_server) = self.process.insert(start_fork_server(&self.shim_program, &self.place)?);
        request_shim(fork_server)
    }

    /// Stops the fork server. The shims that it forked keep running.
    pub fn stop(&mut self) {
        if let Some((mut child, fork_server)) = self.process.take() {
            drop(fork_server);
            // It exits when the socket closes; the kill is for one that a signal has stopped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that starts csn-shim")]
fn start_fork_server(shim: &Path, place: &Path) -> io::Result<(Child, UnixStream)> {
    let (channel, child_channel) = UnixStream::pair()?;
    let mut command = Command::new(shim);
    command.arg(place).env_clear().stdin(Stdio::from(std::os::fd::OwnedFd::from(child_channel)));
    if let Some(file) = std::env::var_os("COUNTERSIGN_CRASH_FILE").filter(|_| cfg!(feature = "crash-points")) {
        command.env("COUNTERSIGN_CRASH_FILE", file);
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // Before the first request: the shims that it forks inherit this.
    crate::descriptors::restore_limit(&child);
    channel.set_read_timeout(Some(SHIM_TIMEOUT))?;
    Ok((child, channel))
}

fn request_shim(fork_server: &mut UnixStream) -> io::Result<IdleShim> {
    let (channel, child_channel) = UnixStream::pair()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [child_channel.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(&*fork_server, &[IoSlice::new(&[1])], &mut ancillary, SendFlags::NOSIGNAL)?;
    let mut pid = [0; 4];
    fork_server.read_exact(&mut pid)?;
    match u32::from_le_bytes(pid) {
        0 => Err(io::Error::other("the kernel allows no more processes for this user")),
        pid => {
            channel.set_read_timeout(Some(SHIM_TIMEOUT))?;
            channel.set_write_timeout(Some(SHIM_TIMEOUT))?;
            Ok(IdleShim { pid, channel })
        }
    }
}

/// A shim that runs and waits for its order. It exits when this is dropped.
pub struct IdleShim {
    pid: u32,
    channel: UnixStream,
}

impl IdleShim {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Reads the shim's hello and sends the order. Returns the channel.
    pub fn hand_over(mut self, order: Order) -> io::Result<UnixStream> {
        match wire::receive(&mut self.channel)? {
            FromShim::Hello { protocol: PROTOCOL, version, .. } if version == env!("CARGO_PKG_VERSION") => {}
            _ => {
                return Err(io::Error::other(
                    "csn-shim and csn have different versions: install both from the same build (see `csn doctor`)",
                ));
            }
        }
        wire::send(&mut self.channel, &ToShim::Order(Box::new(order)))?;
        self.channel.set_read_timeout(None)?;
        self.channel.set_write_timeout(None)?;
        Ok(self.channel)
    }
}
