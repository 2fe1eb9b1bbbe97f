//! The nursery: a `csn-shim` that runs nothing, but forks a shim whenever its daemon sends it a channel.
//!
//! Starting a program costs more than half a millisecond, most of it spent finding out what the processor can do; a
//! fork of one that has already found out costs a tenth of that. Each task still has a process of its own.

use crate::{run, sys};
use countersign_model::Digest;
use rustix::{
    fd::OwnedFd,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};
use std::{
    io::{self, IoSliceMut, Write as _},
    mem::MaybeUninit,
    os::unix::net::UnixStream,
    process::ExitCode,
};

/// The whole program: until the daemon hangs up.
#[must_use]
pub fn main() -> ExitCode {
    sys::not_dumpable();
    std::panic::set_hook(Box::new(|info| {
        eprintln!("csn-shim: {}", countersign_redact::text_by_shape(&info.to_string()))
    }));
    sys::default_signals();
    sys::ignore_children();
    let _ = std::env::set_current_dir("/");
    let _ = rustix::process::setsid();
    countersign_redact::warm_up();
    crate::seccomp::warm_up();
    sys::network::warm_up();
    let _ = (Digest::sha256(&[b"warm"]), countersign_store::output::chunk_digest(b"warm"));
    let Ok(daemon) = sys::inherited_channel() else { return ExitCode::FAILURE };
    let mut daemon = UnixStream::from(daemon);
    loop {
        let channel = match next_channel(&daemon) {
            Ok(Some(channel)) => channel,
            Ok(None) => return ExitCode::SUCCESS,
            Err(_) => return ExitCode::FAILURE,
        };
        match sys::fork() {
            Ok(None) => {
                drop(daemon);
                // Standard input is the nursery's; a shim must not keep it open.
                if let Ok(null) = std::fs::File::open("/dev/null") {
                    let _ = rustix::stdio::dup2_stdin(&null);
                }
                return run::shim(channel);
            }
            Ok(Some(pid)) => {
                if daemon.write_all(&pid.to_le_bytes()).is_err() {
                    return ExitCode::SUCCESS;
                }
            }
            // No process to be had: the daemon reads a pid that is none.
            Err(_) => drop(daemon.write_all(&0u32.to_le_bytes())),
        }
    }
}

/// The next channel that the daemon sends; none when it has hung up.
fn next_channel(daemon: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    loop {
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(daemon, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        match received {
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
            Ok(message) if message.bytes == 0 => return Ok(None),
            Ok(_) => {}
        }
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut fds) = message
                && let Some(fd) = fds.next()
            {
                return Ok(Some(fd));
            }
        }
    }
}
