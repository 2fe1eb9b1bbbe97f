//! What happens when our part of an agent breaks: nothing runs. Where the agent itself leaves us out, the doctor says
//! so, since nobody else would.

use super::{asked::holds, kinds::AgentKind, session::AgentSession, trial_home::TrialHome};
use crate::{Result, command};
use std::{fs, os::unix::fs::PermissionsExt as _};

/// Every one of these agents runs it at once when nobody is in the way.
const WRITES: &str = "touch made";

/// The command must not have run, and the model must have been told something.
fn nothing_ran(daemon: &TrialHome, more: &[&str]) -> Result<Vec<String>> {
    let saw = AgentSession::start(daemon, &[daemon.run(WRITES)], more)?.end()?;
    if daemon.project("made").exists() {
        return Err(format!("it ran; the model saw {saw:?}"));
    }
    Ok(saw)
}

/// Puts another program in the place of the one that the hook names.
fn replace(daemon: &TrialHome, script: &str) -> Result<()> {
    let path = daemon.dir.join("bin/csn");
    // Taken away first: what is there is another name of the program that was built.
    let made = fs::remove_file(&path)
        .and_then(|()| fs::write(&path, script))
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
    made.map_err(|e| format!("{}: {e}", path.display()))
}

pub(super) fn crash(daemon: &TrialHome) -> Result<()> {
    // Silent deaths: Codex blocks with exit code 2 only if there is something on stderr too.
    for script in ["#!/bin/sh\nexit 1\n", "#!/bin/sh\nkill -SEGV $$\n"] {
        replace(daemon, script)?;
        nothing_ran(daemon, daemon.agent.willing(daemon.way)).map_err(|why| format!("{script:?}: {why}"))?;
    }
    Ok(())
}

pub(super) fn missing(daemon: &TrialHome) -> Result<()> {
    let path = daemon.dir.join("bin/csn");
    fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    nothing_ran(daemon, daemon.agent.willing(daemon.way)).map(drop)
}

pub(super) fn down(daemon: &TrialHome) -> Result<()> {
    daemon.csn(&["down"])?;
    nothing_ran(daemon, daemon.agent.willing(daemon.way))?;
    match daemon.doctor()?["daemon"]["pid"].as_u64() {
        None => Ok(()),
        Some(pid) => Err(format!("a daemon was started for it: {pid}")),
    }
}

pub(super) fn stuck(daemon: &TrialHome) -> Result<()> {
    let pid = daemon.doctor()?["daemon"]["pid"].as_u64().ok_or("the doctor knows of no daemon")?.to_string();
    let signal = |name: &str| command("kill").args([name, &pid]).status().map_err(|e| format!("kill: {e}")).map(drop);
    signal("-STOP")?;
    let done = nothing_ran(daemon, daemon.agent.willing(daemon.way));
    signal("-CONT")?;
    done.map(drop)
}

pub(super) fn untrusted(daemon: &TrialHome) -> Result<()> {
    // Without the flag that trusts every hook. That the command runs is the agent's doing, and the reason for the rest.
    let sandbox = ["--sandbox", "workspace-write"];
    AgentSession::start(daemon, &[daemon.run(WRITES)], &sandbox)?.end()?;
    if !daemon.project("made").exists() {
        return Err("Codex no longer skips what it does not trust: say so in the notes, and drop this check".into());
    }
    let doctor = daemon.doctor()?;
    let checks = doctor["checks"].as_array().into_iter().flatten();
    let named =
        checks.filter(|check| check["ok"] == false).any(|check| check.to_string().contains(AgentKind::Codex.name()));
    match doctor["ok"] == false && named {
        true => Ok(()),
        false => Err(format!("the hook is skipped and the doctor is content: {doctor}")),
    }
}

pub(super) fn sandboxed(daemon: &TrialHome) -> Result<()> {
    let flags = ["--dangerously-bypass-hook-trust", "--sandbox", "workspace-write"];
    let saw = nothing_ran(daemon, &flags)?;
    // With the colon: the name alone is in every path of this check.
    holds(&saw, 0, "csn: ")
}
