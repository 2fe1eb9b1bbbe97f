//! The workspace: tracked files, crates with their targets, and the module tree of each target. Paths are relative to the
//! root of the workspace.

use super::{
    module_tree::{ModuleFile, read_module_tree},
    tracked_files::tracked_files,
};
use crate::{cargo, root};
use serde_json::Value;
use std::path::{Path, PathBuf};

pub(super) struct Workspace {
    pub(super) files: Vec<PathBuf>,
    pub(super) crates: Vec<Crate>,
}

pub(super) struct Crate {
    /// Without `countersign-`.
    pub(super) name: String,
    pub(super) manifest: PathBuf,
    pub(super) targets: Vec<Target>,
    pub(super) dependencies: Vec<Dependency>,
}

pub(super) struct Target {
    pub(super) kind: TargetKind,
    pub(super) files: Vec<ModuleFile>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetKind {
    /// A library or a program.
    Shipped,
    /// A test, a benchmark or an example.
    Development,
    BuildScript,
}

pub(super) struct Dependency {
    /// As `Cargo.toml` names it.
    pub(super) name: String,
    pub(super) kind: DependencyKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DependencyKind {
    Normal,
    Development,
    Build,
}

impl Crate {
    /// A library of these files, of which one is `lib.rs`, for the test of a rule.
    pub(super) fn made_up(files: &[(&str, &str)]) -> Self {
        let text = |path: &Path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, t)| (*t).to_owned());
        let library = Target { kind: TargetKind::Shipped, files: read_module_tree(Path::new("lib.rs"), &text) };
        Self { name: "made-up".into(), manifest: "Cargo.toml".into(), targets: vec![library], dependencies: Vec::new() }
    }

    /// The files of its libraries and programs.
    pub(super) fn shipped(&self) -> impl Iterator<Item = &ModuleFile> {
        self.targets.iter().filter(|t| t.kind == TargetKind::Shipped).flat_map(|t| &t.files)
    }
}

impl Workspace {
    pub(super) fn read() -> Self {
        let files = tracked_files(&root());
        // The fuzz targets and one benchmark are packages outside of the workspace.
        let manifests = files.iter().filter(|f| f.ends_with("Cargo.toml") && !f.starts_with("crates"));
        let crates = manifests.flat_map(|manifest| crates_of(manifest)).collect();
        Self { files, crates }
    }

    /// The crates of the product, its tests and its tools: those below `crates/`.
    pub(super) fn members(&self) -> impl Iterator<Item = &Crate> {
        self.crates.iter().filter(|c| c.manifest.starts_with("crates"))
    }
}

fn crates_of(manifest: &Path) -> Vec<Crate> {
    let args = ["metadata", "--format-version", "1", "--offline", "--no-deps", "--manifest-path"];
    let output = cargo().args(args).arg(manifest).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    list(&metadata, "packages").map(crate_of).collect()
}

fn crate_of(package: &Value) -> Crate {
    let name = package["name"].as_str().unwrap_or_default();
    let text = |path: &Path| std::fs::read_to_string(root().join(path)).ok();
    let target = |target: &Value| {
        let kind = match target["kind"][0].as_str() {
            Some("test" | "bench" | "example") => TargetKind::Development,
            Some("custom-build") => TargetKind::BuildScript,
            _ => TargetKind::Shipped,
        };
        Target { kind, files: read_module_tree(&relative(&target["src_path"]), &text) }
    };
    let dependency = |dependency: &Value| {
        let name = dependency["rename"].as_str().or(dependency["name"].as_str()).unwrap_or_default();
        let kind = match dependency["kind"].as_str() {
            Some("dev") => DependencyKind::Development,
            Some("build") => DependencyKind::Build,
            _ => DependencyKind::Normal,
        };
        Dependency { name: name.to_owned(), kind }
    };
    Crate {
        name: name.strip_prefix("countersign-").unwrap_or(name).to_owned(),
        manifest: relative(&package["manifest_path"]),
        targets: list(package, "targets").map(target).collect(),
        dependencies: list(package, "dependencies").map(dependency).collect(),
    }
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn relative(path: &Value) -> PathBuf {
    let path = Path::new(path.as_str().unwrap_or_default());
    path.strip_prefix(root()).unwrap_or(path).to_owned()
}
