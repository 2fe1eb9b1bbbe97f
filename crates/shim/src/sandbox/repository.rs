//! Finds the repository of a root when it lies elsewhere, and the escape files of both.

use super::tables;
use crate::gitconfig;
use countersign_model::SandboxSpec;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The directories with escape files, and the names to check in each: the roots, and git directories that lie
/// elsewhere.
pub(crate) fn escape_places(sandbox: &SandboxSpec) -> Vec<(PathBuf, &'static [&'static str])> {
    let mut all: Vec<(PathBuf, &'static [&'static str])> = Vec::new();
    for root in sandbox.roots.iter().map(Path::new) {
        all.push((root.to_owned(), tables::ESCAPE_FILES));
        let linked = fs::symlink_metadata(root.join(".git"))
            .is_ok_and(|m| m.is_file())
            .then(|| linked_git_directories(root))
            .flatten();
        all.extend(linked.into_iter().flatten().map(|git_dir| (git_dir, tables::GIT_DIRECTORY_ESCAPE_FILES)));
    }
    all
}

/// Whether a file is an escape file (makes programs run later), anywhere in a tree.
pub fn is_escape(path: &Path) -> bool {
    tables::ESCAPE_FILES.iter().any(|name| match name.strip_suffix('/') {
        Some(dir) => path.ancestors().skip(1).any(|p| p.ends_with(dir)),
        None => path.ends_with(name),
    })
}

/// The git directory that a `.git` file names, if that directory names this work tree, and the repository that it
/// belongs to.
pub(super) fn linked_git_directories(root: &Path) -> Option<Vec<PathBuf>> {
    let read = |path: PathBuf| {
        let small = fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() < 64 * 1024);
        fs::read_to_string(path).ok().filter(|_| small)
    };
    let link = read(root.join(".git"))?;
    let git_dir = fs::canonicalize(root.join(link.strip_prefix("gitdir:")?.trim())).ok()?;
    let points_back = match read(git_dir.join("gitdir")) {
        // A work tree: its git directory names its `.git`.
        Some(back) => fs::canonicalize(git_dir.join(back.trim())).ok()? == root.join(".git"),
        // A submodule: its configuration names its work tree.
        None => {
            let config = read(git_dir.join("config"))?;
            let worktree = gitconfig::configured_worktree(&config)?;
            fs::canonicalize(git_dir.join(worktree)).ok()? == root
        }
    };
    if !points_back || !is_git_directory(&git_dir) && !git_dir.join("commondir").is_file() {
        return None;
    }
    let mut all = vec![git_dir.clone()];
    // For a work tree, only the repository that its git directory lies in: any process could have written a different
    // path into `commondir`.
    if git_dir.join("commondir").is_file()
        && let Some(common) = git_dir.parent().filter(|p| p.ends_with("worktrees")).and_then(Path::parent)
        && is_git_directory(common)
    {
        all.push(common.to_owned());
    }
    Some(all)
}

fn is_git_directory(path: &Path) -> bool {
    path.join("HEAD").is_file() && path.join("objects").is_dir()
}
