//! The record of what was installed: one manifest for each agent and scope, beside backups of the original files. Agents
//! cannot write to this directory. A removal reads here what belongs to Countersign.

use super::{agents, files};
use crate::{AgentProgram, FileError, InstallMode, error::EnvironmentError};
use countersign_model::Digest;
use countersign_store::Config;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const MANIFEST_VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) v: u32,
    pub(super) agent: String,
    pub(super) scope: String,
    /// The project's directory, with scope `project`.
    pub(super) project: Option<PathBuf>,
    pub(super) mode: String,
    pub(super) witness: bool,
    /// The path of csn that was written into the files.
    pub(super) csn: String,
    pub(super) files: Vec<ManifestFile>,
}

/// One changed file, and how to restore it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ManifestFile {
    pub(super) kind: String,
    /// With symbolic links followed.
    pub(super) path: PathBuf,
    /// None: the file did not exist.
    pub(super) sha256_before: Option<String>,
    pub(super) sha256_after: String,
    /// The name of its backup in this directory.
    pub(super) backup: Option<String>,
    /// Containers inside it that the installation created.
    pub(super) made: Vec<String>,
    /// Directories that the installation created, innermost first.
    pub(super) dirs: Vec<PathBuf>,
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    Digest::sha256(&[bytes]).to_string()
}

/// The directory of all manifests.
pub(super) fn manifest_dir() -> Result<PathBuf, EnvironmentError> {
    let config = Config::path().ok_or(EnvironmentError::NoConfig)?;
    Ok(config.with_file_name("agents"))
}

/// The name that a manifest and its backups begin with.
pub(super) fn file_stem(agent: AgentProgram, project: Option<&Path>) -> String {
    let agent = agents::agent_name(agent);
    match project {
        None => agent.to_owned(),
        Some(dir) => {
            let digest = sha256(dir.as_os_str().as_encoded_bytes());
            let hex = digest.rsplit(':').next().unwrap_or_default();
            format!("{agent}@{}", &hex[..hex.len().min(16)])
        }
    }
}

pub(super) fn manifest_path(dir: &Path, stem: &str) -> PathBuf {
    dir.join(format!("{stem}.json"))
}

pub(super) fn read_manifest(path: &Path) -> Result<Option<Manifest>, FileError> {
    let Some(bytes) = files::read_file(path)? else { return Ok(None) };
    let invalid = |error| FileError::Manifest { path: path.to_owned(), error };
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(invalid)?;
    if value["v"].as_u64().is_some_and(|v| v > u64::from(MANIFEST_VERSION)) {
        return Err(FileError::NewerManifest(path.to_owned()));
    }
    serde_json::from_value(value).map(Some).map_err(invalid)
}

/// Every manifest in the directory, or why it cannot be read.
pub(super) fn read_all(dir: &Path) -> Vec<Result<Manifest, FileError>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    paths.sort();
    paths.iter().filter_map(|p| read_manifest(p).transpose()).collect()
}

impl Manifest {
    pub(super) fn new(request: &agents::InstallRequest<'_>, files: Vec<ManifestFile>) -> Self {
        let project = request.places.project.clone();
        Self {
            v: MANIFEST_VERSION,
            agent: agents::agent_name(request.agent).to_owned(),
            scope: scope_name(project.is_some()).to_owned(),
            project,
            mode: mode_name(request.mode).to_owned(),
            witness: request.witness,
            csn: request.csn.to_owned(),
            files,
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        text
    }

    pub(super) fn agent(&self) -> Option<AgentProgram> {
        use clap::ValueEnum as _;
        AgentProgram::value_variants().iter().copied().find(|a| agents::agent_name(*a) == self.agent)
    }

    pub(super) fn mode(&self) -> Option<InstallMode> {
        [InstallMode::Hook, InstallMode::Mcp, InstallMode::Both].into_iter().find(|m| mode_name(*m) == self.mode)
    }

    pub(super) fn file_at(&self, path: &Path) -> Option<&ManifestFile> {
        self.files.iter().find(|w| w.path == path)
    }
}

pub(super) fn mode_name(mode: InstallMode) -> &'static str {
    match mode {
        InstallMode::Hook => "hook",
        InstallMode::Mcp => "mcp",
        InstallMode::Both => "both",
    }
}

pub(super) fn scope_name(project: bool) -> &'static str {
    if project { "project" } else { "user" }
}
