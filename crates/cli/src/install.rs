//! `install`: an agent's commands through Countersign, written into the agent's own configuration. Everything is
//! prepared in memory, written together or not at all, and then proved; what is not proved is taken back.

mod agents;
mod edit;
mod entry;
mod files;
mod json;
mod layout;
mod manifest;
mod plan;
mod plugin;
mod prove;
mod toml;
mod tree;
mod yaml;

#[cfg(test)]
mod tests;

use crate::{
    Doors, Question, Usage,
    args::{AgentArg, InstallArgs, InstallMode, InstallScope},
    house::Place,
    say,
};
use agents::{Kind, Places, Wanted};
use anyhow::Context as _;
use countersign_model::CredentialKind;
use countersign_store::below_an_agent;
use files::Change;
use manifest::Manifest;
use plan::Plan;
use serde_json::{Value, json};
use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

pub(crate) fn install(doors: &Doors<'_>, args: &InstallArgs) -> anyhow::Result<ExitCode> {
    if !args.dry_run {
        by_a_person()?;
    }
    let csn = own_path()?;
    let places = Places::here(args.scope)?;
    let wanted = Wanted {
        agent: args.agent,
        mode: args.mode.unwrap_or_else(|| agents::usual_mode(args.agent)),
        witness: args.witness,
        csn: &csn,
        places: &places,
    };
    let dir = manifest::dir()?;
    let plan = if args.uninstall {
        plan::uninstall(&wanted, &dir).map_err(anyhow::Error::msg)?
    } else {
        wanted.parts().map_err(Usage)?;
        plan::install(&wanted, &dir).map_err(anyhow::Error::msg)?
    };
    let mut told = Told { as_json: args.json, object: json!({"v": 1, "agent": agents::name(args.agent)}) };
    told.set("scope", json!(manifest::scope_name(places.project.is_some())));
    told.set("dry_run", json!(args.dry_run));
    if !args.uninstall {
        told.set("mode", json!(manifest::mode_name(wanted.mode)));
        told.version(version(doors, args.agent), args.agent);
    }
    told.files(&plan)?;
    let code = match (args.dry_run, args.uninstall) {
        (true, _) => {
            told.say("dry run: nothing was written");
            ExitCode::SUCCESS
        }
        (false, true) => take_out(&plan, &dir, &mut told)?,
        (false, false) => put_in(doors, &wanted, &plan, &dir, &mut told)?,
    };
    told.finish()?;
    Ok(code)
}

/// What decides about agents is not theirs to put in or take out; and what is a user's is not left to root.
fn by_a_person() -> anyhow::Result<()> {
    // Whom the house takes us for; while it is down, whom it took us for.
    let Place { home, client, .. } = Place::find()?;
    let agents = match client.lifecycle() {
        Ok(life) => life.you == CredentialKind::Agent,
        Err(_) => below_an_agent(&home),
    };
    if agents {
        anyhow::bail!("an agent does not change what it goes through: a person does, in a terminal of their own");
    }
    if std::env::var_os(countersign_model::MARKER).is_some() {
        anyhow::bail!("a task does not change what agents go through: a person does, in a terminal of their own");
    }
    if rustix::process::geteuid().is_root() && std::env::var_os("SUDO_USER").is_some() {
        return Err(Usage("an agent is set up as the user who runs it, without sudo".to_owned()).into());
    }
    Ok(())
}

/// This program, as it is written into files of others.
fn own_path() -> anyhow::Result<String> {
    let csn = std::env::current_exe()?.canonicalize().context("where this csn is cannot be found out")?;
    let text = csn.to_str().filter(|t| !t.chars().any(char::is_control));
    Ok(text.with_context(|| format!("{} cannot be written into a configuration", csn.display()))?.to_owned())
}

fn put_in(
    doors: &Doors<'_>,
    wanted: &Wanted<'_>,
    plan: &Plan,
    dir: &Path,
    told: &mut Told,
) -> anyhow::Result<ExitCode> {
    let changes = plan.changes();
    let changed = changes.iter().any(Change::does_something);
    if changed {
        plan::private(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        files::apply(&changes).map_err(anyhow::Error::msg).inspect_err(|_| drop(std::fs::remove_dir(dir)))?;
    } else {
        told.say("already installed: nothing to change");
    }
    told.set("changed", json!(changed));
    // A person is here to start the house; those who will need it may not. If it cannot be, the proof says so.
    let _ = crate::house::reach(doors);
    let cwd = wanted.places.project.as_ref().unwrap_or(&wanted.places.home);
    let proofs: Vec<Result<String, String>> = plan.proofs.iter().map(|proof| prove::prove(doors, proof, cwd)).collect();
    let failed: Vec<&String> = proofs.iter().filter_map(|p| p.as_ref().err()).collect();
    told.set("proof", proofs.iter().map(|p| json!({"ok": p.is_ok(), "says": either(p)})).collect());
    if failed.is_empty() {
        proofs.iter().for_each(|p| told.say(&format!("proved: {}", either(p))));
        let next = wanted.next();
        next.iter().for_each(|line| told.say(line));
        told.set("next", json!(next));
        return Ok(ExitCode::SUCCESS);
    }
    failed.iter().for_each(|why| told.say(&format!("not proved: {why}")));
    told.set("undone", json!(changed));
    if changed {
        files::undo(&changes).map_err(anyhow::Error::msg).context("what was written could not be taken back")?;
        told.say("everything that was written has been taken back; `csn doctor` may say what is wrong");
    }
    Ok(ExitCode::FAILURE)
}

fn take_out(plan: &Plan, dir: &Path, told: &mut Told) -> anyhow::Result<ExitCode> {
    let changes = plan.changes();
    let changed = changes.iter().any(Change::does_something);
    files::apply(&changes).map_err(anyhow::Error::msg)?;
    // Only when it was the last.
    let _ = std::fs::remove_dir(dir);
    told.set("changed", json!(changed));
    told.say(if changed { "taken out" } else { "nothing is installed" });
    plan.notes.iter().for_each(|note| told.say(note));
    Ok(ExitCode::SUCCESS)
}

fn either(result: &Result<String, String>) -> &str {
    match result {
        Ok(says) | Err(says) => says,
    }
}

/// What the agent says of itself; none when it is not there.
fn version(doors: &Doors<'_>, agent: AgentArg) -> Option<String> {
    let question = Question {
        program: agents::program(agent),
        args: &["--version"],
        stdin: b"",
        env: &[],
        timeout: Duration::from_secs(10),
        until: None,
    };
    let said = (doors.converse)(&question).ok()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let line = text.lines().find(|l| !l.trim().is_empty()).unwrap_or("of an unknown version");
    Some(line.trim().chars().filter(|c| !c.is_control()).take(80).collect())
}

/// What is told, to a person as it comes or to a program at the end.
struct Told {
    as_json: bool,
    object: Value,
}

impl Told {
    fn set(&mut self, key: &str, value: Value) {
        self.object[key] = value;
    }

    fn say(&self, line: &str) {
        if !self.as_json {
            say(&format!("csn: {line}"));
        }
    }

    fn version(&mut self, version: Option<String>, agent: AgentArg) {
        let program = agents::program(agent);
        match &version {
            Some(version) => self.say(&format!("{program}: {version}")),
            None => self.say(&format!("{program} was not found; it will find its configuration when it is there")),
        }
        self.set("version", json!(version));
    }

    /// The diff of each file. It shows a few lines around ours, which are nobody's business if they are secret.
    fn files(&mut self, plan: &Plan) -> io::Result<()> {
        let mut all = Vec::new();
        for change in &plan.shown {
            let diff = edit::diff(change);
            if !self.as_json {
                io::stdout().lock().write_all(diff.as_bytes())?;
            }
            let action = match (&change.before, &change.after) {
                (before, after) if before == after => "unchanged",
                (None, _) => "created",
                (_, None) => "removed",
                _ => "changed",
            };
            all.push(json!({"path": change.path, "action": action, "diff": diff}));
        }
        self.set("files", json!(all));
        Ok(())
    }

    fn finish(self) -> io::Result<()> {
        match self.as_json {
            true => writeln!(io::stdout().lock(), "{}", self.object),
            false => Ok(()),
        }
    }
}

/// For `csn doctor`: every installation, whether it still stands, and whether it holds.
pub(crate) fn examine(doors: &Doors<'_>) -> Vec<(String, Result<String, String>)> {
    let Ok(dir) = manifest::dir() else { return Vec::new() };
    manifest::all(&dir)
        .into_iter()
        .map(|manifest| match manifest {
            Ok(manifest) => (format!("agent {}", manifest.agent), stands(doors, &manifest)),
            Err(why) => ("agent".to_owned(), Err(why)),
        })
        .collect()
}

fn stands(doors: &Doors<'_>, manifest: &Manifest) -> Result<String, String> {
    let told = |e: anyhow::Error| e.to_string();
    let (agent, mode) = manifest.agent().zip(manifest.mode()).ok_or("its manifest is of an unknown kind")?;
    let again = again(manifest);
    let csn = own_path().map_err(told)?;
    if csn != manifest.csn {
        return Err(format!("it was installed for {}, and this is {csn}: {again}", manifest.csn));
    }
    let here = Places::here(InstallScope::User).map_err(told)?;
    let places = Places { project: manifest.project.clone(), ..here };
    let wanted = Wanted { agent, mode, witness: manifest.witness, csn: &csn, places: &places };
    let mut says = Vec::new();
    for part in wanted.parts()? {
        let written = manifest.files.iter().find(|w| w.kind == part.kind.name());
        let written = written.ok_or_else(|| format!("its manifest lacks the {}: {again}", part.kind.name()))?;
        if !plan::holds(&written.path, &part.entry, &wanted.mine(None))? {
            return Err(format!("our entry is gone from {}, or is not as it was: {again}", written.path.display()));
        }
        if agent == AgentArg::Codex && part.kind == Kind::Hook {
            says.push(trusted(&written.path, &wanted)?);
        }
        let cwd = places.project.as_ref().unwrap_or(&places.home);
        says.push(prove::prove(doors, &part.proof, cwd)?);
    }
    Ok(says.join("; "))
}

/// The command that installs the same once more.
fn again(manifest: &Manifest) -> String {
    let witness = if manifest.witness { " --witness" } else { "" };
    let place = manifest.project.as_ref().map_or_else(String::new, |dir| format!(" in {}", dir.display()));
    format!("run `csn install {} --mode {} --scope {}{witness}`{place}", manifest.agent, manifest.mode, manifest.scope)
}

/// Codex says nothing when it skips a hook: whether it was told to trust ours stands in its configuration.
fn trusted(hooks: &Path, wanted: &Wanted<'_>) -> Result<String, String> {
    let skipped = "Codex skips this hook silently until you trust it: run /hooks in codex";
    let read = |path: &Path| files::read(path).map(|b| String::from_utf8_lossy(&b.unwrap_or_default()).into_owned());
    let mine = wanted.mine(None);
    let (group, handler) = json::place_of_hook(&read(hooks)?, "PreToolUse", &mine).ok_or("our hook is gone")?;
    let user = wanted.places.codex.clone().unwrap_or_else(|| wanted.places.home.join(".codex"));
    let parts = Wanted { mode: InstallMode::Hook, ..*wanted }.parts()?;
    let named: Vec<PathBuf> = parts.into_iter().map(|p| p.path).chain([hooks.to_owned()]).collect();
    let told = named.iter().any(|path| {
        let hook = format!("{}:pre_tool_use:{group}:{handler}", path.display());
        read(&user.join("config.toml")).is_ok_and(|config| toml::trusts(&config, &hook))
    });
    if told { Ok("trusted by Codex".to_owned()) } else { Err(skipped.to_owned()) }
}
