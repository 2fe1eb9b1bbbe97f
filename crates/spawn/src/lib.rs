//! Starts programs that are not tasks: the daemon, the service manager, the probe of `csn-shim`, an agent's own
//! program. Tasks are started by the shim alone.
//!
//! Nothing here uses `pre_exec`, so that std uses posix_spawn.

mod converse;

pub use converse::{Enough, Question, Reply, converse};

use std::{
    io::{self, Read as _},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The supervisor that belongs to this program: the one beside it.
#[must_use]
pub fn shim_beside(csn: &Path) -> PathBuf {
    csn.with_file_name("csn-shim")
}

/// The features that `csn-shim --probe` reports, as JSON; of the `csn-shim` beside this program.
#[expect(clippy::disallowed_methods, reason = "the probe of csn-shim is not a task")]
pub fn probe_shim() -> io::Result<String> {
    let shim = shim_beside(&std::env::current_exe()?);
    let output = Command::new(shim).arg("--probe").env_clear().stdin(Stdio::null()).output()?;
    if output.status.success() {
        String::from_utf8(output.stdout).map_err(io::Error::other)
    } else {
        Err(io::Error::other("csn-shim does not know --probe: it is of another version than csn"))
    }
}

/// Has a program of the service manager do something: whether it did, and what it said.
#[expect(clippy::disallowed_methods, reason = "a program of the service manager is not a task")]
pub fn manage(program: &str, args: &[&str]) -> io::Result<(bool, String)> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output()?;
    let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// A daemon's exit code when another daemon holds the home.
pub const HOME_HELD: u8 = 75;

/// Starts this program's daemon as a process of its own, with nothing of ours but the named variables, and waits until
/// it says that it serves. Gives what it said; where another daemon holds the home the error is `ResourceBusy`.
#[expect(clippy::disallowed_methods, reason = "the daemon is not a task")]
pub fn start_daemon(env: &[(String, String)]) -> io::Result<String> {
    let mut child = Command::new(std::env::current_exe()?)
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
    let kind = match child.wait() {
        Ok(status) if status.code() == Some(i32::from(HOME_HELD)) => io::ErrorKind::ResourceBusy,
        // Killed while it started: the next one may not be.
        Ok(status) if status.signal().is_some() => io::ErrorKind::Interrupted,
        _ => io::ErrorKind::Other,
    };
    let why = why.trim().trim_start_matches("csn: ");
    Err(io::Error::new(kind, if why.is_empty() { "the daemon ended without a word" } else { why }))
}
