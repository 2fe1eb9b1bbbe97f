//! Checks that nothing runs if Countersign's part of an agent fails. If the agent itself skips the hook, `csn doctor`
//! must report it, since nothing else would.

use super::{decisions::expect_result, kinds::AgentKind, session::AgentSession, trial_home::TrialHome};
use crate::{Result, command};
use std::{fs, os::unix::fs::PermissionsExt as _};

/// Every one of these agents runs this command immediately without Countersign.
const WRITES: &str = "touch made";

/// Expects that the command did not run, and that the model got some result.
fn expect_nothing_ran(home: &TrialHome, more: &[&str]) -> Result<Vec<String>> {
    let results = AgentSession::start(home, &[home.run_step(WRITES)], more)?.wait_for_results()?;
    if home.project_file("made").exists() {
        return Err(format!("the command ran; the model saw {results:?}"));
    }
    Ok(results)
}

/// Replaces the program that the hook names.
fn replace_csn(home: &TrialHome, script: &str) -> Result<()> {
    let path = home.dir.join("bin/csn");
    // The file is a hard link to the built program, so it must be removed before writing.
    let result = fs::remove_file(&path)
        .and_then(|()| fs::write(&path, script))
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
    result.map_err(|e| format!("{}: {e}", path.display()))
}

pub(super) fn check_crash(home: &TrialHome) -> Result<()> {
    // These exit silently: Codex blocks on exit code 2 only if there is also text on stderr.
    for script in ["#!/bin/sh\nexit 1\n", "#!/bin/sh\nkill -SEGV $$\n"] {
        replace_csn(home, script)?;
        expect_nothing_ran(home, home.agent.permissive_args(home.integration))
            .map_err(|why| format!("{script:?}: {why}"))?;
    }
    Ok(())
}

pub(super) fn check_missing(home: &TrialHome) -> Result<()> {
    let path = home.dir.join("bin/csn");
    fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    expect_nothing_ran(home, home.agent.permissive_args(home.integration)).map(drop)
}

pub(super) fn check_down(home: &TrialHome) -> Result<()> {
    home.csn(&["down"])?;
    expect_nothing_ran(home, home.agent.permissive_args(home.integration))?;
    match home.doctor()?["daemon"]["pid"].as_u64() {
        None => Ok(()),
        Some(pid) => Err(format!("the hook started a daemon: {pid}")),
    }
}

pub(super) fn check_stuck(home: &TrialHome) -> Result<()> {
    let pid = home.doctor()?["daemon"]["pid"].as_u64().ok_or("csn doctor reports no daemon")?.to_string();
    let signal = |name: &str| command("kill").args([name, &pid]).status().map_err(|e| format!("kill: {e}")).map(drop);
    signal("-STOP")?;
    let done = expect_nothing_ran(home, home.agent.permissive_args(home.integration));
    signal("-CONT")?;
    done.map(drop)
}

pub(super) fn check_untrusted(home: &TrialHome) -> Result<()> {
    // Without the flag that trusts every hook, Codex skips the hook and runs the command.
    let sandbox = ["--sandbox", "workspace-write"];
    AgentSession::start(home, &[home.run_step(WRITES)], &sandbox)?.wait_for_results()?;
    if !home.project_file("made").exists() {
        return Err("Codex no longer skips an untrusted hook: update docs/agents.md and remove this check".into());
    }
    let doctor = home.doctor()?;
    let checks = doctor["checks"].as_array().into_iter().flatten();
    let named =
        checks.filter(|check| check["ok"] == false).any(|check| check.to_string().contains(AgentKind::Codex.name()));
    if doctor["ok"] == false && named {
        Ok(())
    } else {
        Err(format!("Codex skips the hook, but csn doctor reports no problem: {doctor}"))
    }
}

pub(super) fn check_sandboxed(home: &TrialHome) -> Result<()> {
    let flags = ["--dangerously-bypass-hook-trust", "--sandbox", "workspace-write"];
    let results = expect_nothing_ran(home, &flags)?;
    // The colon matters: the name alone is in every path of this check.
    expect_result(&results, 0, "csn: ")
}
