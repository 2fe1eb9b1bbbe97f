//! Routes an agent's commands through Countersign by editing the agent's own configuration. All changes are prepared in
//! memory, written together or not at all, and then proved; a change that is not proved is undone.
//!
//! This crate reads and writes files and runs programs. It never talks to the daemon: the caller decides who may install,
//! and starts the daemon if one is needed.

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

/// The agents whose configuration this crate can edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AgentProgram {
    ClaudeCode,
    Codex,
    Opencode,
    Gemini,
    Goose,
    Cursor,
}

/// How the agent's commands reach Countersign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InstallMode {
    /// A hook asks Countersign before each command; the agent keeps its own shell tool
    Hook,
    /// An MCP server gives the agent tools that run commands as tasks
    Mcp,
    /// Hook and MCP server
    Both,
}

/// Which of the agent's configurations is edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InstallScope {
    /// Your own configuration, for every project
    User,
    /// The configuration of the project around this directory
    Project,
}

/// What to install, and for which agent.
#[derive(Debug, Clone, Copy)]
pub struct InstallOptions {
    pub agent: AgentProgram,
    /// None: the default mode of the agent.
    pub mode: Option<InstallMode>,
    pub scope: InstallScope,
    /// The agent runs commands itself; Countersign decides and records.
    pub witness: bool,
}

/// One of the agent's files, and how it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    pub path: PathBuf,
    /// `created`, `changed`, `removed` or `unchanged`.
    pub action: &'static str,
    /// The changed lines with a few around them; secrets are redacted.
    pub diff: String,
}

/// The result of one proof: how the canary was denied, or why that is not proved.
pub type ProofResult = Result<String, ProofError>;

/// The proofs of an installation.
#[derive(Debug)]
pub struct ProofReport {
    pub proofs: Vec<ProofResult>,
    /// Whether the changes were undone; none when they stay.
    pub undone: Option<Result<(), InstallError>>,
}

/// An installation or a removal, prepared in memory.
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
    /// Prepares an installation.
    pub fn prepare(options: &InstallOptions) -> Result<Self, InstallError> {
        let mut prepared = Self::without_plan(options)?;
        prepared.request().parts()?;
        prepared.plan = plan::plan_install(&prepared.request(), &prepared.manifest_dir)?;
        Ok(prepared)
    }

    /// Prepares a removal.
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

    /// The agent's name, as `csn install` takes it.
    #[must_use]
    pub fn agent(&self) -> &'static str {
        agents::agent_name(self.agent)
    }

    /// The name of the agent's program.
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

    /// The version that the agent's program reports; none when the program does not run.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let run = ProgramRun {
            program: self.program(),
            args: &["--version"],
            stdin: b"",
            env: &[],
            timeout: Duration::from_secs(10),
            complete: None,
        };
        let output = countersign_spawn::run_program(&run).ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|l| !l.trim().is_empty()).unwrap_or("unknown version");
        Some(line.trim().chars().filter(|c| !c.is_control()).take(80).collect())
    }

    /// The agent's files, and how each changes.
    #[must_use]
    pub fn file_changes(&self) -> Vec<FileChange> {
        let file_change = |change: &FileWrite| {
            let action = match (&change.before, &change.after) {
                (before, after) if before == after => "unchanged",
                (None, _) => "created",
                (_, None) => "removed",
                _ => "changed",
            };
            FileChange { path: change.path.clone(), action, diff: edit::redacted_diff(change) }
        };
        self.plan.agent_files.iter().map(file_change).collect()
    }

    /// Writes everything or nothing. Returns whether there was anything to write.
    pub fn write(&self) -> Result<bool, InstallError> {
        let changes = self.plan.writes();
        let changed = changes.iter().any(FileWrite::has_effect);
        if changed {
            let dir = &self.manifest_dir;
            plan::create_private_dir(dir)
                .map_err(|error| FileError::DirectoryNotCreated { path: dir.clone(), error })?;
            files::write_all(&changes).inspect_err(|_| drop(std::fs::remove_dir(dir)))?;
        }
        Ok(changed)
    }

    /// Runs each installed hook and server as the agent would, with a command that Countersign always denies. Unless all
    /// of them deny it, the changes of `write` are undone. `changed`: `write` has changed something.
    #[must_use]
    pub fn prove(&self, changed: bool) -> ProofReport {
        self.prove_with(&countersign_spawn::run_program, changed)
    }

    fn prove_with(&self, run: &RunProgram, changed: bool) -> ProofReport {
        let cwd = self.places.project.as_ref().unwrap_or(&self.places.home);
        let proofs: Vec<ProofResult> = self.plan.proofs.iter().map(|proof| prove::prove(run, proof, cwd)).collect();
        let undo = || {
            let undone = files::undo_all(&self.plan.writes());
            undone.map_err(|all| FileError::NotUndone(all).into())
        };
        let undone = (changed && proofs.iter().any(Result::is_err)).then(undo);
        ProofReport { proofs, undone }
    }

    /// Removes the installation. Returns whether there was anything to remove.
    pub fn remove(&self) -> Result<bool, InstallError> {
        let changes = self.plan.writes();
        let changed = changes.iter().any(FileWrite::has_effect);
        files::write_all(&changes)?;
        // This fails as long as another installation has its manifest there.
        let _ = std::fs::remove_dir(&self.manifest_dir);
        Ok(changed)
    }

    /// What the user should know about a removal.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.plan.notes
    }

    /// What the user should do after an installation, or know about it.
    #[must_use]
    pub fn next_steps(&self) -> Vec<String> {
        self.request().next_steps()
    }
}

/// The path of this program, as it is written into the agent's files.
fn csn_path() -> Result<String, EnvironmentError> {
    let csn = std::env::current_exe().map_err(EnvironmentError::Unknown)?;
    let csn = csn.canonicalize().map_err(EnvironmentError::Program)?;
    let text = csn.to_str().filter(|t| !t.chars().any(char::is_control));
    text.map(str::to_owned).ok_or_else(|| EnvironmentError::ProgramName(csn.clone()))
}

/// Checks every installation: its name, and whether its entries are intact and still deny the canary.
#[must_use]
pub fn examine_installations() -> Vec<(String, Result<String, ExamineError>)> {
    let Ok(dir) = manifest::manifest_dir() else { return Vec::new() };
    manifest::read_all(&dir)
        .into_iter()
        .map(|manifest| match manifest {
            Ok(manifest) => (format!("agent {}", manifest.agent), check_installation(&manifest)),
            Err(error) => ("agent".to_owned(), Err(error.into())),
        })
        .collect()
}

fn check_installation(manifest: &Manifest) -> Result<String, ExamineError> {
    let (agent, mode) = manifest.agent().zip(manifest.mode()).ok_or(ExamineError::UnknownKind)?;
    let reinstall = || reinstall_command(manifest);
    let csn = csn_path().map_err(InstallError::from)?;
    if csn != manifest.csn {
        return Err(ExamineError::OtherProgram { installed: manifest.csn.clone(), csn, reinstall: reinstall() });
    }
    let here = AgentPaths::from_environment(InstallScope::User).map_err(InstallError::from)?;
    let places = AgentPaths { project: manifest.project.clone(), ..here };
    let request = InstallRequest { agent, mode, witness: manifest.witness, csn: &csn, places: &places };
    let mut proofs = Vec::new();
    for part in request.parts()? {
        let written = manifest.files.iter().find(|w| w.kind == part.kind.name());
        let not_written = || ExamineError::NotWritten { part: part.kind.name(), reinstall: reinstall() };
        let written = written.ok_or_else(not_written)?;
        if !plan::is_intact(&written.path, &part.entry, &request.owner(None))? {
            return Err(ExamineError::EntryChanged { path: written.path.clone(), reinstall: reinstall() });
        }
        if agent == AgentProgram::Codex && part.kind == PartKind::Hook {
            proofs.push(check_codex_trust(&written.path, &request)?);
        }
        let cwd = places.project.as_ref().unwrap_or(&places.home);
        proofs.push(prove::prove(&countersign_spawn::run_program, &part.proof, cwd)?);
    }
    Ok(proofs.join("; "))
}

/// The advice that repeats an installation.
fn reinstall_command(manifest: &Manifest) -> String {
    let witness = if manifest.witness { " --witness" } else { "" };
    let place = manifest.project.as_ref().map_or_else(String::new, |dir| format!(" in {}", dir.display()));
    format!("run `csn install {} --mode {} --scope {}{witness}`{place}", manifest.agent, manifest.mode, manifest.scope)
}

/// Codex skips an untrusted hook without a message. Its configuration says whether the user trusts ours.
fn check_codex_trust(hooks: &Path, request: &InstallRequest<'_>) -> Result<String, ExamineError> {
    let read =
        |path: &Path| files::read_file(path).map(|b| String::from_utf8_lossy(&b.unwrap_or_default()).into_owned());
    let owner = request.owner(None);
    let (group, handler) = json::find_hook(&read(hooks)?, "PreToolUse", &owner).ok_or(ExamineError::HookMissing)?;
    let codex_home = request.places.codex.clone().unwrap_or_else(|| request.places.home.join(".codex"));
    let parts = InstallRequest { mode: InstallMode::Hook, ..*request }.parts()?;
    let paths: Vec<PathBuf> = parts.into_iter().map(|p| p.path).chain([hooks.to_owned()]).collect();
    let is_trusted = paths.iter().any(|path| {
        let hook = format!("{}:pre_tool_use:{group}:{handler}", path.display());
        read(&codex_home.join("config.toml")).is_ok_and(|config| toml::codex_trusts(&config, &hook))
    });
    if is_trusted { Ok("trusted by Codex".to_owned()) } else { Err(ExamineError::Untrusted) }
}
