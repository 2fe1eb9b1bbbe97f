//! Starts programs that are not tasks: the daemon, the service manager, the probe of `csn-shim`, an agent's own
//! program. It may not start tasks: only the shim does that.
//!
//! Nothing here uses `pre_exec`, so that std uses posix_spawn.

mod run_program;

pub use run_program::{OutputCheck, ProgramOutput, ProgramRun, run_program};

use std::{
    io::{self, Read as _},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The `csn-shim` that belongs to this `csn`: the one in the same directory.
#[must_use]
pub fn shim_path(csn: &Path) -> PathBuf {
    csn.with_file_name("csn-shim")
}

/// The features that the `csn-shim` beside this program reports, as JSON.
#[expect(clippy::disallowed_methods, reason = "the probe of csn-shim is not a task")]
pub fn probe_shim() -> io::Result<String> {
    let shim = shim_path(&std::env::current_exe()?);
    let output = Command::new(shim).arg("--probe").env_clear().stdin(Stdio::null()).output()?;
    if output.status.success() {
        String::from_utf8(output.stdout).map_err(io::Error::other)
    } else {
        Err(io::Error::other("csn-shim does not know --probe: csn and csn-shim are of different versions"))
    }
}

/// Runs a program of the service manager: whether it succeeded, and what it printed.
#[expect(clippy::disallowed_methods, reason = "a program of the service manager is not a task")]
pub fn run_service_manager(program: &str, args: &[&str]) -> io::Result<(bool, String)> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output()?;
    let printed = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok((output.status.success(), String::from_utf8_lossy(&printed).into_owned()))
}

/// The daemon's exit code when another daemon uses the home.
pub const EXIT_HOME_IN_USE: u8 = 75;

/// Starts the daemon of this program as a process of its own, with no other variables than these, and waits until it
/// serves. Returns what it printed. The error is `ResourceBusy` when another daemon uses the home.
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
    let mut printed = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut printed)?;
    }
    if printed.starts_with("ready") {
        return Ok(printed);
    }
    let mut errors = String::new();
    if let Some(mut err) = child.stderr.take() {
        let _ = err.read_to_string(&mut errors);
    }
    let kind = match child.wait() {
        Ok(status) if status.code() == Some(i32::from(EXIT_HOME_IN_USE)) => io::ErrorKind::ResourceBusy,
        // A signal ended it while it started: another attempt may succeed.
        Ok(status) if status.signal().is_some() => io::ErrorKind::Interrupted,
        _ => io::ErrorKind::Other,
    };
    let reason = errors.trim().trim_start_matches("csn: ");
    Err(io::Error::new(kind, if reason.is_empty() { "the daemon ended without an error message" } else { reason }))
}
