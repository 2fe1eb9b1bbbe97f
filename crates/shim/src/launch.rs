//! Starting shims (from the daemon) and the daemon itself (from a client). Both without `pre_exec`, so that std uses
//! posix_spawn: forking a daemon would cost more the more memory it has.

use crate::wire::{self, FromShim, PROTOCOL, ToShim};
use countersign_model::Order;
use std::{
    io::{self, Read as _},
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
};

/// A shim that runs and waits for its order. Dropped without one, it ends by itself.
pub struct Spare {
    child: Child,
    channel: UnixStream,
}

impl Spare {
    /// Starts a shim. It has said nothing yet.
    #[expect(clippy::disallowed_methods, reason = "the one place that starts a shim")]
    pub fn start(shim: &Path) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(shim);
        command.env_clear().stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
        if let Some(file) = std::env::var_os("COUNTERSIGN_CRASH_FILE").filter(|_| cfg!(feature = "crash-points")) {
            command.env("COUNTERSIGN_CRASH_FILE", file);
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { child, channel: ours })
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Hears the shim's hello, hands the order over, and gives the channel and the process to keep.
    pub fn hand_over(mut self, order: Order) -> io::Result<(Child, UnixStream)> {
        match wire::receive(&mut self.channel)? {
            FromShim::Hello { protocol: PROTOCOL, version, .. } if version == env!("CARGO_PKG_VERSION") => {}
            _ => {
                return Err(io::Error::other(
                    "csn-shim is of another version than csn: install both from one build (see `csn doctor`)",
                ));
            }
        }
        wire::send(&mut self.channel, &ToShim::Order(Box::new(order)))?;
        Ok((self.child, self.channel))
    }

    /// Ends a shim that is not needed and takes it off the table.
    pub fn dismiss(mut self) {
        drop(self.channel);
        let _ = self.child.wait();
    }
}

/// Starts `csn up` as a process of its own, with nothing of ours but the named variables, and waits until it says
/// that it serves. Gives what it said.
#[expect(clippy::disallowed_methods, reason = "the one place that starts a house")]
pub fn start_house(csn: &Path, env: &[(String, String)]) -> io::Result<String> {
    let mut child = Command::new(csn)
        .args(["up", "--detached"])
        .env_clear()
        .envs(env.iter().map(|(k, v)| (k, v)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut said)?;
    }
    if said.starts_with("ready") {
        return Ok(said);
    }
    let mut why = String::new();
    if let Some(mut err) = child.stderr.take() {
        let _ = err.read_to_string(&mut why);
    }
    let _ = child.wait();
    let why = why.trim().trim_start_matches("csn: ");
    Err(io::Error::other(if why.is_empty() { "the daemon ended without a word".to_owned() } else { why.to_owned() }))
}
