//! Puts an agent's commands through Countersign, by editing the agent's own configuration. Everything is prepared in
//! memory, written together or not at all, and then proved; what is not proved is taken back.
//!
//! This crate knows files and programs. It never talks to the daemon: who may install, and whether a daemon runs, is
//! the caller's affair.

mod agents;
mod edit;
mod entry;
mod error;
mod files;
mod json;
mod layout;
mod manifest;
mod plan;
mod plugin;
mod prove;
mod toml;
mod yaml;
mod yaml_tree;

#[cfg(test)]
mod tests;

use agents::{AgentPaths, InstallRequest, PartKind};
use clap::ValueEnum;
use countersign_spawn::ProgramRun;
pub use error::{
    EditError, EnvironmentError, ExamineError, FileError, FileErrors, InstallError, NoAnswerError, ProofError,
    UnsupportedError,
};
use files::FileWrite;
use manifest::Manifest;
use plan::InstallPlan;
use prove::RunProgram;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// The agents whose configuration is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AgentProgram {
    ClaudeCode,
    Codex,
    Opencode,
    Gemini,
    Goose,
    Cursor,
}

/// How the agent's commands come to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InstallMode {
    Hook,
    Mcp,
    Both,
}

/// Whose configuration is edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InstallScope {
    User,
    Project,
}

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub struct InstallOptions {
    pub agent: AgentProgram,
    /// None: what suits the agent.
    pub mode: Option<InstallMode>,
    pub scope: InstallScope,
    /// The agent runs commands itself; the hook only decides and records.
    pub witness: bool,
}

/// One of the agent's files, before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    pub path: PathBuf,
    /// `created`, `changed`, `removed` or `unchanged`.
    pub action: &'static str,
    /// A few lines around ours; what is secret in them is masked.
    pub diff: String,
}

/// How a proof went: how the canary was denied, or why that is not proved.
pub type ProofResult = Result<String, ProofError>;

/// The proofs of what was written.
#[derive(Debug)]
pub struct ProofReport {
    pub proofs: Vec<ProofResult>,
    /// Whether everything that was written has been taken back; none when it stays.
    pub undone: Option<Result<(), InstallError>>,
}

/// An installation or its removal, worked out in memory.
#[derive(Debug)]
pub struct Installation {
    agent: AgentProgram,
    mode: InstallMode,
    witness: bool,
    csn: String,
    places: AgentPaths,
    /// The directory of manifests.
    manifest_dir: PathBuf,
    plan: InstallPlan,
}

impl Installation {
    /// What putting it in would change.
    pub fn prepare(options: &InstallOptions) -> Result<Self, InstallError> {
        let mut prepared = Self::without_plan(options)?;
        prepared.request().parts()?;
        prepared.plan = plan::plan_install(&prepared.request(), &prepared.manifest_dir)?;
        Ok(prepared)
    }

    /// What taking it out would change.
    pub fn prepare_removal(options: &InstallOptions) -> Result<Self, InstallError> {
        let mut prepared = Self::without_plan(options)?;
        prepared.plan = plan::plan_removal(&prepared.request(), &prepared.manifest_dir)?;
        Ok(prepared)
    }

    fn without_plan(options: &InstallOptions) -> Result<Self, InstallError> {
        let InstallOptions { agent, mode, scope, witness } = *options;
        Ok(Self {
            agent,
            mode: mode.unwrap_or_else(|| agents::default_mode(agent)),
            witness,
            csn: csn_path()?,
            places: AgentPaths::from_environment(scope)?,
            manifest_dir: manifest::manifest_dir()?,
            plan: InstallPlan::default(),
        })
    }

    fn request(&self) -> InstallRequest<'_> {
        let Self { agent, mode, witness, csn, places, .. } = self;
        InstallRequest { agent: *agent, mode: *mode, witness: *witness, csn, places }
    }

    /// The agent's name, as it is written in commands.
    #[must_use]
    pub fn agent(&self) -> &'static str {
        agents::agent_name(self.agent)
    }

    /// The agent's program.
    #[must_use]
    pub fn program(&self) -> &'static str {
        agents::program_name(self.agent)
    }

    #[must_use]
    pub fn mode(&self) -> &'static str {
        manifest::mode_name(self.mode)
    }

    #[must_use]
    pub fn scope(&self) -> &'static str {
        manifest::scope_name(self.places.project.is_some())
    }

    /// The version that the agent's program reports; none when it is not there.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let question = ProgramRun {
            program: self.program(),
            args: &["--version"],
            stdin: b"",
            env: &[],
            timeout: Duration::from_secs(10),
            complete: None,
        };
        let said = countersign_spawn::run_program(&question).ok()?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let line = text.lines().find(|l| !l.trim().is_empty()).unwrap_or("of an unknown version");
        Some(line.trim().chars().filter(|c| !c.is_control()).take(80).collect())
    }

    /// The agent's files.
    #[must_use]
    pub fn file_changes(&self) -> Vec<FileChange> {
        let shown = |change: &FileWrite| {
            let action = match (&change.before, &change.after) {
                (before, after) if before == after => "unchanged",
                (None, _) => "created",
                (_, None) => "removed",
                _ => "changed",
            };
            FileChange { path: change.path.clone(), action, diff: edit::redacted_diff(change) }
        };
        self.plan.agent_files.iter().map(shown).collect()
    }

    /// Writes everything or nothing; whether there was anything to write.
    pub fn write(&self) -> Result<bool, InstallError> {
        let changes = self.plan.writes();
        let changed = changes.iter().any(FileWrite::has_effect);
        if changed {
            let dir = &self.manifest_dir;
            plan::create_private_dir(dir).map_err(|error| FileError::DirectoryUnmade { path: dir.clone(), error })?;
            files::write_all(&changes).inspect_err(|_| drop(std::fs::remove_dir(dir)))?;
        }
        Ok(changed)
    }

    /// Gives a command that nobody may let through to what was written, as the agent would. Unless all of it denies
    /// that, what `write` has `changed` is taken back.
    #[must_use]
    pub fn prove(&self, changed: bool) -> ProofReport {
        self.prove_with(&countersign_spawn::run_program, changed)
    }

    fn prove_with(&self, converse: &RunProgram, changed: bool) -> ProofReport {
        let cwd = self.places.project.as_ref().unwrap_or(&self.places.home);
        let proofs: Vec<ProofResult> =
            self.plan.proofs.iter().map(|proof| prove::prove(converse, proof, cwd)).collect();
        let undo = || {
            let undone = files::undo_all(&self.plan.writes());
            undone.map_err(|all| FileError::NotTakenBack(all).into())
        };
        let undone = (changed && proofs.iter().any(Result::is_err)).then(undo);
        ProofReport { proofs, undone }
    }

    /// Takes it out; whether there was anything of ours.
    pub fn remove(&self) -> Result<bool, InstallError> {
        let changes = self.plan.writes();
        let changed = changes.iter().any(FileWrite::has_effect);
        files::write_all(&changes)?;
        // Only when it was the last.
        let _ = std::fs::remove_dir(&self.manifest_dir);
        Ok(changed)
    }

    /// What a person should know of a removal.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.plan.notes
    }

    /// What a person should do after an installation, or know.
    #[must_use]
    pub fn next_steps(&self) -> Vec<String> {
        self.request().next_steps()
    }
}

/// This program, as it is written into files of others.
fn csn_path() -> Result<String, EnvironmentError> {
    let csn = std::env::current_exe().map_err(EnvironmentError::Unknown)?;
    let csn = csn.canonicalize().map_err(EnvironmentError::Program)?;
    let text = csn.to_str().filter(|t| !t.chars().any(char::is_control));
    text.map(str::to_owned).ok_or_else(|| EnvironmentError::ProgramName(csn.clone()))
}

/// Every installation by its name, and whether it still stands and holds.
#[must_use]
pub fn examine_installations() -> Vec<(String, Result<String, ExamineError>)> {
    let Ok(dir) = manifest::manifest_dir() else { return Vec::new() };
    manifest::read_all(&dir)
        .into_iter()
        .map(|manifest| match manifest {
            Ok(manifest) => (format!("agent {}", manifest.agent), check_installation(&manifest)),
            Err(why) => ("agent".to_owned(), Err(why.into())),
        })
        .collect()
}

fn check_installation(manifest: &Manifest) -> Result<String, ExamineError> {
    let (agent, mode) = manifest.agent().zip(manifest.mode()).ok_or(ExamineError::UnknownKind)?;
    let again = || reinstall_command(manifest);
    let csn = csn_path().map_err(InstallError::from)?;
    if csn != manifest.csn {
        return Err(ExamineError::AnotherProgram { was: manifest.csn.clone(), csn, again: again() });
    }
    let here = AgentPaths::from_environment(InstallScope::User).map_err(InstallError::from)?;
    let places = AgentPaths { project: manifest.project.clone(), ..here };
    let wanted = InstallRequest { agent, mode, witness: manifest.witness, csn: &csn, places: &places };
    let mut says = Vec::new();
    for part in wanted.parts()? {
        let written = manifest.files.iter().find(|w| w.kind == part.kind.name());
        let lacks = || ExamineError::NotWritten { part: part.kind.name(), again: again() };
        let written = written.ok_or_else(lacks)?;
        if !plan::is_intact(&written.path, &part.entry, &wanted.owner(None))? {
            return Err(ExamineError::EntryGone { path: written.path.clone(), again: again() });
        }
        if agent == AgentProgram::Codex && part.kind == PartKind::Hook {
            says.push(check_codex_trust(&written.path, &wanted)?);
        }
        let cwd = places.project.as_ref().unwrap_or(&places.home);
        says.push(prove::prove(&countersign_spawn::run_program, &part.proof, cwd)?);
    }
    Ok(says.join("; "))
}

/// The command that installs the same once more.
fn reinstall_command(manifest: &Manifest) -> String {
    let witness = if manifest.witness { " --witness" } else { "" };
    let place = manifest.project.as_ref().map_or_else(String::new, |dir| format!(" in {}", dir.display()));
    format!("run `csn install {} --mode {} --scope {}{witness}`{place}", manifest.agent, manifest.mode, manifest.scope)
}

/// Codex says nothing when it skips a hook: whether it was told to trust ours stands in its configuration.
fn check_codex_trust(hooks: &Path, wanted: &InstallRequest<'_>) -> Result<String, ExamineError> {
    let read =
        |path: &Path| files::read_file(path).map(|b| String::from_utf8_lossy(&b.unwrap_or_default()).into_owned());
    let mine = wanted.owner(None);
    let (group, handler) = json::find_hook(&read(hooks)?, "PreToolUse", &mine).ok_or(ExamineError::HookGone)?;
    let user = wanted.places.codex.clone().unwrap_or_else(|| wanted.places.home.join(".codex"));
    let parts = InstallRequest { mode: InstallMode::Hook, ..*wanted }.parts()?;
    let named: Vec<PathBuf> = parts.into_iter().map(|p| p.path).chain([hooks.to_owned()]).collect();
    let told = named.iter().any(|path| {
        let hook = format!("{}:pre_tool_use:{group}:{handler}", path.display());
        read(&user.join("config.toml")).is_ok_and(|config| toml::codex_trusts(&config, &hook))
    });
    if told { Ok("trusted by Codex".to_owned()) } else { Err(ExamineError::Untrusted) }
}
