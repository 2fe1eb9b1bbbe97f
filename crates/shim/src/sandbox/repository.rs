//! Where the repository of a root lies, when that is elsewhere; and the files in both that make programs run later.

use super::tables;
use crate::gitconfig;
use countersign_model::SandboxSpec;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The places of a task where files lie that make programs run later: its roots, and where their git directories are elsewhere, those.
pub(crate) fn places_of_escapes(sandbox: &SandboxSpec) -> Vec<(PathBuf, &'static [&'static str])> {
    let mut all: Vec<(PathBuf, &'static [&'static str])> = Vec::new();
    for root in sandbox.roots.iter().map(Path::new) {
        all.push((root.to_owned(), tables::ESCAPES));
        let linked = fs::symlink_metadata(root.join(".git")).is_ok_and(|m| m.is_file()).then(|| linked(root)).flatten();
        all.extend(linked.into_iter().flatten().map(|git_dir| (git_dir, tables::ESCAPES_OF_GIT)));
    }
    all
}

/// Whether a file makes programs run later, wherever in a tree it lies.
pub fn is_escape(path: &Path) -> bool {
    tables::ESCAPES.iter().any(|name| match name.strip_suffix('/') {
        Some(dir) => path.ancestors().skip(1).any(|p| p.ends_with(dir)),
        None => path.ends_with(name),
    })
}

/// The git directory that a `.git` file names, if it says that it belongs to this work tree, and the repository that it is
/// a part of.
pub(super) fn linked(root: &Path) -> Option<Vec<PathBuf>> {
    let read = |path: PathBuf| {
        let small = fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() < 64 * 1024);
        fs::read_to_string(path).ok().filter(|_| small)
    };
    let named = read(root.join(".git"))?;
    let git_dir = fs::canonicalize(root.join(named.strip_prefix("gitdir:")?.trim())).ok()?;
    let back = match read(git_dir.join("gitdir")) {
        // A work tree: its directory says where its `.git` is.
        Some(back) => fs::canonicalize(git_dir.join(back.trim())).ok()? == root.join(".git"),
        // A submodule: its configuration says where its work tree is.
        None => {
            let config = read(git_dir.join("config"))?;
            let worktree = gitconfig::worktree(&config)?;
            fs::canonicalize(git_dir.join(worktree)).ok()? == root
        }
    };
    if !back || !is_git_directory(&git_dir) && !git_dir.join("commondir").is_file() {
        return None;
    }
    let mut all = vec![git_dir.clone()];
    // Of a work tree only the repository that it lies in: what it says beyond that anybody could have written.
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
