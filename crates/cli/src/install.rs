//! `install`: puts an agent's commands through Countersign, and tells a person or a program how that went.

use crate::{UsageError, args::InstallArgs, say, target_home::TargetHome};
use countersign_install::{InstallError, Installation, Options, Proofs, Proved};
use countersign_model::CredentialKind;
use countersign_store::is_below_agent;
use serde_json::{Value, json};
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn install(args: &InstallArgs) -> anyhow::Result<ExitCode> {
    if !args.dry_run {
        by_a_person()?;
    }
    let InstallArgs { agent, mode, scope, witness, dry_run, uninstall, json: as_json } = *args;
    let options = Options { agent, mode, scope, witness };
    let prepared = if uninstall { Installation::prepare_removal(&options) } else { Installation::prepare(&options) };
    let prepared = prepared.map_err(usage)?;
    let mut told = InstallOutput { as_json, object: json!({"v": 1, "agent": prepared.agent()}) };
    told.set("scope", json!(prepared.scope()));
    told.set("dry_run", json!(dry_run));
    if !uninstall {
        told.set("mode", json!(prepared.mode()));
        told.version(&prepared);
    }
    told.files(&prepared)?;
    let code = if dry_run {
        told.say("dry run: nothing was written");
        ExitCode::SUCCESS
    } else if uninstall {
        take_out(&prepared, &mut told)?
    } else {
        put_in(&prepared, &mut told)?
    };
    told.finish()?;
    Ok(code)
}

/// What an agent does not have cannot be meant.
fn usage(error: InstallError) -> anyhow::Error {
    match error {
        InstallError::Unsupported(why) => UsageError(why.to_string()).into(),
        other => other.into(),
    }
}

/// What decides about agents is not theirs to put in or take out; and what is a user's is not left to root.
fn by_a_person() -> anyhow::Result<()> {
    // Whom the house takes us for; while it is down, whom it took us for.
    let TargetHome { home, client, .. } = TargetHome::find()?;
    let agents = match client.lifecycle() {
        Ok(life) => life.you == CredentialKind::Agent,
        Err(_) => is_below_agent(&home),
    };
    if agents {
        anyhow::bail!("an agent does not change what it goes through: a person does, in a terminal of their own");
    }
    if std::env::var_os(countersign_model::MARKER).is_some() {
        anyhow::bail!("a task does not change what agents go through: a person does, in a terminal of their own");
    }
    if rustix::process::geteuid().is_root() && std::env::var_os("SUDO_USER").is_some() {
        return Err(UsageError("an agent is set up as the user who runs it, without sudo".to_owned()).into());
    }
    Ok(())
}

fn put_in(prepared: &Installation, told: &mut InstallOutput) -> anyhow::Result<ExitCode> {
    let changed = prepared.write()?;
    if !changed {
        told.say("already installed: nothing to change");
    }
    told.set("changed", json!(changed));
    // A person is here to start the daemon; those who will need it may not. If it cannot be, the proof says so.
    let _ = crate::target_home::reach();
    let Proofs { proofs, undone } = prepared.prove(changed);
    told.set("proof", proofs.iter().map(|p| json!({"ok": p.is_ok(), "says": either(p)})).collect());
    if proofs.iter().all(Result::is_ok) {
        proofs.iter().for_each(|p| told.say(&format!("proved: {}", either(p))));
        let next = prepared.next();
        next.iter().for_each(|line| told.say(line));
        told.set("next", json!(next));
        return Ok(ExitCode::SUCCESS);
    }
    proofs.iter().filter(|p| p.is_err()).for_each(|p| told.say(&format!("not proved: {}", either(p))));
    told.set("undone", json!(changed));
    if let Some(undone) = undone {
        undone?;
        told.say("everything that was written has been taken back; `csn doctor` may say what is wrong");
    }
    Ok(ExitCode::FAILURE)
}

fn take_out(prepared: &Installation, told: &mut InstallOutput) -> anyhow::Result<ExitCode> {
    let changed = prepared.remove()?;
    told.set("changed", json!(changed));
    told.say(if changed { "taken out" } else { "nothing is installed" });
    prepared.notes().iter().for_each(|note| told.say(note));
    Ok(ExitCode::SUCCESS)
}

fn either(proved: &Proved) -> String {
    match proved {
        Ok(says) => says.clone(),
        Err(why) => why.to_string(),
    }
}

/// What is told, to a person as it comes or to a program at the end.
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

    fn version(&mut self, prepared: &Installation) {
        let (program, version) = (prepared.program(), prepared.version());
        match &version {
            Some(version) => self.say(&format!("{program}: {version}")),
            None => self.say(&format!("{program} was not found; it will find its configuration when it is there")),
        }
        self.set("version", json!(version));
    }

    fn files(&mut self, prepared: &Installation) -> io::Result<()> {
        let files = prepared.files();
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
