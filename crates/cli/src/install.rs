//! `install`: routes an agent's commands through Countersign and reports the result, to a person or as JSON.

use crate::{UsageError, args::InstallArgs, say, target_home::TargetHome};
use countersign_install::{InstallError, InstallOptions, Installation, ProofReport, ProofResult};
use countersign_model::CredentialKind;
use countersign_store::is_below_agent;
use serde_json::{Value, json};
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn install(args: &InstallArgs) -> anyhow::Result<ExitCode> {
    if !args.dry_run {
        ensure_asked_by_person()?;
    }
    let InstallArgs { agent, mode, scope, witness, dry_run, uninstall, json: as_json } = *args;
    let options = InstallOptions { agent, mode, scope, witness };
    let plan = if uninstall { Installation::prepare_removal(&options) } else { Installation::prepare(&options) };
    let plan = plan.map_err(into_usage_error)?;
    let mut output = InstallOutput { as_json, object: json!({"v": 1, "agent": plan.agent()}) };
    output.set("scope", json!(plan.scope()));
    output.set("dry_run", json!(dry_run));
    if !uninstall {
        output.set("mode", json!(plan.mode()));
        output.add_version(&plan);
    }
    output.add_files(&plan)?;
    let code = if dry_run {
        output.say("dry run: nothing was written");
        ExitCode::SUCCESS
    } else if uninstall {
        uninstall_plan(&plan, &mut output)?
    } else {
        install_plan(&plan, &mut output)?
    };
    output.finish()?;
    Ok(code)
}

/// Asking for something that the agent does not support is a usage error.
fn into_usage_error(error: InstallError) -> anyhow::Error {
    match error {
        InstallError::Unsupported(why) => UsageError(why.to_string()).into(),
        other => other.into(),
    }
}

/// Refuses an agent or a task that would change its own control, and root, who would own a user's files.
fn ensure_asked_by_person() -> anyhow::Result<()> {
    // The daemon knows whether the caller is an agent; without a daemon its records in the home tell.
    let TargetHome { home, client, .. } = TargetHome::find()?;
    let is_agent = match client.lifecycle() {
        Ok(life) => life.you == CredentialKind::Agent,
        Err(_) => is_below_agent(&home),
    };
    if is_agent {
        anyhow::bail!("an agent may not change how Countersign controls it: run this in your own terminal");
    }
    if std::env::var_os(countersign_model::MARKER).is_some() {
        anyhow::bail!("a task may not change how Countersign controls agents: run this in your own terminal");
    }
    if rustix::process::geteuid().is_root() && std::env::var_os("SUDO_USER").is_some() {
        return Err(
            UsageError("install an agent as the user who runs it: repeat the command without sudo".to_owned()).into()
        );
    }
    Ok(())
}

fn install_plan(plan: &Installation, output: &mut InstallOutput) -> anyhow::Result<ExitCode> {
    let changed = plan.write()?;
    if !changed {
        output.say("already installed; nothing was changed");
    }
    output.set("changed", json!(changed));
    // The agent may not start the daemon later, so start it now. If that fails, the proof reports it.
    let _ = crate::target_home::reach();
    let ProofReport { proofs, undone } = plan.prove(changed);
    output.set("proof", proofs.iter().map(|p| json!({"ok": p.is_ok(), "says": proof_text(p)})).collect());
    if proofs.iter().all(Result::is_ok) {
        for proof in &proofs {
            output.say(&format!("proved: {}", proof_text(proof)));
        }
        let next = plan.next_steps();
        for line in &next {
            output.say(line);
        }
        output.set("next", json!(next));
        return Ok(ExitCode::SUCCESS);
    }
    for proof in proofs.iter().filter(|proof| proof.is_err()) {
        output.say(&format!("not proved: {}", proof_text(proof)));
    }
    output.set("undone", json!(changed));
    if let Some(undone) = undone {
        undone?;
        output.say("every change was undone; to find the cause: csn doctor");
    }
    Ok(ExitCode::FAILURE)
}

fn uninstall_plan(plan: &Installation, output: &mut InstallOutput) -> anyhow::Result<ExitCode> {
    let changed = plan.remove()?;
    output.set("changed", json!(changed));
    output.say(if changed { "uninstalled" } else { "not installed; nothing was changed" });
    for note in plan.notes() {
        output.say(note);
    }
    Ok(ExitCode::SUCCESS)
}

fn proof_text(proof: &ProofResult) -> String {
    match proof {
        Ok(text) => text.clone(),
        Err(why) => why.to_string(),
    }
}

/// The report: lines for a person immediately, or one JSON object at the end.
struct InstallOutput {
    as_json: bool,
    object: Value,
}

impl InstallOutput {
    fn set(&mut self, key: &str, value: Value) {
        self.object[key] = value;
    }

    fn say(&self, line: &str) {
        if !self.as_json {
            say(&format!("csn: {line}"));
        }
    }

    fn add_version(&mut self, plan: &Installation) {
        let (program, version) = (plan.program(), plan.version());
        match &version {
            Some(version) => self.say(&format!("{program}: {version}")),
            None => self.say(&format!("{program} was not found; once it is installed it will use this configuration")),
        }
        self.set("version", json!(version));
    }

    fn add_files(&mut self, plan: &Installation) -> io::Result<()> {
        let files = plan.file_changes();
        if !self.as_json {
            let mut out = io::stdout().lock();
            files.iter().try_for_each(|file| out.write_all(file.diff.as_bytes()))?;
        }
        let file = |f: &countersign_install::FileChange| json!({"path": f.path, "action": f.action, "diff": f.diff});
        self.set("files", files.iter().map(file).collect());
        Ok(())
    }

    fn finish(self) -> io::Result<()> {
        if self.as_json { writeln!(io::stdout().lock(), "{}", self.object) } else { Ok(()) }
    }
}
