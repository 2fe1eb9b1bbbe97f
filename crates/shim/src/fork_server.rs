//! The fork server: a `csn-shim` that runs no task, but forks a shim for every channel that its daemon sends.
//!
//! Starting a program takes more than half a millisecond, most of it to detect the processor's features; forking one
//! that has started takes a tenth of that. Each task still has a process of its own.

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
    path::Path,
    process::ExitCode,
};

/// The whole program. Runs until the daemon closes the socket. `place`: where idle shims prepare the records of tasks.
#[must_use]
pub fn main(place: Option<&Path>) -> ExitCode {
    sys::forbid_dumping();
    std::panic::set_hook(Box::new(|info| {
        eprintln!("csn-shim: {}", countersign_redact::text_by_shape(&info.to_string()))
    }));
    sys::reset_signals();
    sys::discard_ended_children();
    let _ = std::env::set_current_dir("/");
    let _ = rustix::process::setsid();
    countersign_redact::warm_up();
    countersign_model::secret_names::warm_up();
    crate::seccomp::warm_up();
    sys::network::warm_up();
    crate::sandbox::warm_up();
    let _ = (Digest::sha256(&[b"warm"]), countersign_store::output::chunk_digest(b"warm"));
    let Ok(daemon) = sys::duplicate_stdin() else { return ExitCode::FAILURE };
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
                // Standard input is the fork server's socket; a shim must not keep it open.
                if let Ok(null) = std::fs::File::open("/dev/null") {
                    let _ = rustix::stdio::dup2_stdin(&null);
                }
                return run::run_shim(channel, place);
            }
            Ok(Some(pid)) => {
                if daemon.write_all(&pid.to_le_bytes()).is_err() {
                    return ExitCode::SUCCESS;
                }
            }
            // The fork failed: the daemon reads pid 0.
            Err(_) => drop(daemon.write_all(&0u32.to_le_bytes())),
        }
    }
}

/// Receives the next channel; none when the daemon has closed the socket.
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
