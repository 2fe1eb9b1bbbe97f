//! Works out in memory which files an installation or a removal writes: the agent's files, their backups and the manifest.
//! Nothing is written here.

use super::{
    agents::{InstallPart, InstallRequest},
    edit,
    entry::{Entry, EntryOwner},
    files::{self, FileWrite},
    manifest::{self, Manifest, ManifestFile, sha256},
    prove::Proof,
};
use crate::{EditError, FileError, InstallError, InstallMode};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// Such files may contain what other users should not read.
const PRIVATE_FILE_MODE: u32 = 0o600;
const PROJECT_FILE_MODE: u32 = 0o644;

#[derive(Debug, Default)]
pub(super) struct InstallPlan {
    /// The agent's files.
    pub(super) agent_files: Vec<FileWrite>,
    /// Backups and the manifest.
    own_files: Vec<FileWrite>,
    pub(super) proofs: Vec<Proof>,
    pub(super) notes: Vec<String>,
}

impl InstallPlan {
    /// In the order in which they are written: backups first, so that no file is changed without one.
    pub(super) fn writes(&self) -> Vec<FileWrite> {
        let (removed, written): (Vec<_>, Vec<_>) = self.own_files.iter().cloned().partition(|c| c.after.is_none());
        let (manifest, backups): (Vec<_>, Vec<_>) =
            written.into_iter().partition(|c| c.path.extension().is_some_and(|e| e == "json"));
        backups.into_iter().chain(self.agent_files.iter().cloned()).chain(manifest).chain(removed).collect()
    }

    fn add_own_file(&mut self, path: PathBuf, after: Option<Vec<u8>>) -> Result<(), FileError> {
        let before = files::read_file(&path)?;
        let dirs = files::missing_dirs(&path);
        self.own_files.push(FileWrite { path, before, after, mode: PRIVATE_FILE_MODE, dirs });
        Ok(())
    }
}

/// Creates the directory of manifests, readable by its owner alone.
pub(super) fn create_private_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

/// Links in a home directory are the user's own. A project's links may come from others: they must stay inside.
fn check_inside_project(request: &InstallRequest<'_>, link: &Path, path: &Path) -> Result<(), FileError> {
    let Some(project) = request.places.project.as_deref() else { return Ok(()) };
    let project = project.canonicalize().map_err(|e| FileError::io(project, e))?;
    if path.starts_with(&project) {
        return Ok(());
    }
    Err(FileError::OutsideProject { link: link.to_owned(), path: path.to_owned() })
}

pub(super) fn plan_install(request: &InstallRequest<'_>, dir: &Path) -> Result<InstallPlan, InstallError> {
    let stem = manifest::file_stem(request.agent, request.places.project.as_deref());
    let at = manifest::manifest_path(dir, &stem);
    let old = manifest::read_manifest(&at)?;
    let owner = request.owner(old.as_ref().map(|o| o.csn.as_str()));
    let mut plan = InstallPlan::default();
    let mut written = Vec::new();
    for part in request.parts()? {
        let path = files::resolve_links(&part.path)?;
        check_inside_project(request, &part.path, &path)?;
        let was = old.as_ref().and_then(|o| o.file_at(&path));
        let (now, base) = add_part(&mut plan, request, &part, path, was, &owner, dir)?;
        let backup = base.as_ref().map(|_| format!("{stem}.{}.before", part.kind.name()));
        written.push(ManifestFile { sha256_before: base.as_deref().map(sha256), backup: backup.clone(), ..now });
        if let Some((name, base)) = backup.zip(base) {
            plan.add_own_file(dir.join(name), Some(base))?;
        }
        plan.proofs.push(part.proof);
    }
    for was in old.iter().flat_map(|o| &o.files) {
        if !written.iter().any(|now| now.path == was.path) {
            add_removal(&mut plan, request, &was.path, Some(was), &owner, dir)?;
        }
        if let Some(name) = was.backup.as_ref().filter(|n| !written.iter().any(|w| w.backup.as_ref() == Some(n))) {
            plan.add_own_file(dir.join(name), None)?;
        }
    }
    plan.add_own_file(at, Some(Manifest::new(request, written).to_bytes()))?;
    Ok(plan)
}

/// Plans one file with its entry. Returns its line in the manifest, and its content without the entry.
fn add_part(
    plan: &mut InstallPlan,
    request: &InstallRequest<'_>,
    part: &InstallPart,
    path: PathBuf,
    was: Option<&ManifestFile>,
    owner: &EntryOwner,
    dir: &Path,
) -> Result<(ManifestFile, Option<Vec<u8>>), FileError> {
    let in_file = |e: EditError| FileError::from(e).at(&path);
    let before = files::read_file(&path)?;
    let text = before.as_deref().map(parse_utf8).transpose().map_err(in_file)?;
    let known = was.map_or(&[][..], |w| &w.made);
    let edited = edit::put_entry(&path, text, &part.entry, owner, known).map_err(in_file)?;
    if let Some(reason) = edit::find_switch_off(&path, &edited.text, &part.entry) {
        return Err(in_file(reason));
    }
    let base = content_without_entry(&path, text, &part.entry, was, owner, dir).map_err(|e| e.at(&path))?;
    let dirs = was.map_or_else(|| files::missing_dirs(&path), |w| w.dirs.clone());
    let mode = if request.places.project.is_some() { PROJECT_FILE_MODE } else { PRIVATE_FILE_MODE };
    let after = edited.text.into_bytes();
    let written = ManifestFile {
        kind: part.kind.name().to_owned(),
        path: path.clone(),
        sha256_before: None,
        sha256_after: sha256(&after),
        backup: None,
        made: edited.made,
        dirs: dirs.clone(),
    };
    let change = FileWrite { path, before, after: Some(after), mode, dirs };
    if change.has_effect() {
        files::check_writable(&change.path)?;
    }
    plan.agent_files.push(change);
    Ok((written, base))
}

/// The content of a file without the entry: the backup if the file is unchanged since, else the file with the entry
/// removed.
fn content_without_entry(
    path: &Path,
    text: Option<&str>,
    entry: &Entry,
    was: Option<&ManifestFile>,
    owner: &EntryOwner,
    dir: &Path,
) -> Result<Option<Vec<u8>>, FileError> {
    let Some(text) = text else { return Ok(None) };
    if let Some(was) = was.filter(|w| sha256(text.as_bytes()) == w.sha256_after) {
        match (&was.backup, &was.sha256_before) {
            (Some(name), Some(digest)) => {
                let backup = files::read_file(&dir.join(name))?;
                if let Some(backup) = backup.filter(|bytes| sha256(bytes) == *digest) {
                    return Ok(Some(backup));
                }
            }
            _ => return Ok(None),
        }
    }
    let made = was.map_or(&[][..], |w| &w.made);
    let rest = edit::remove_entry(path, text, entry, owner, made)?;
    // A file that the installation created and that has no other content is removed.
    let is_ours = was.is_some_and(|w| w.sha256_before.is_none()) || matches!(entry, Entry::Whole(_));
    Ok(Some(rest.into_bytes()).filter(|rest| !(is_ours && edit::is_empty_config(rest))))
}

pub(super) fn plan_removal(request: &InstallRequest<'_>, dir: &Path) -> Result<InstallPlan, InstallError> {
    let stem = manifest::file_stem(request.agent, request.places.project.as_deref());
    let at = manifest::manifest_path(dir, &stem);
    let old = manifest::read_manifest(&at)?;
    let owner = request.owner(old.as_ref().map(|o| o.csn.as_str()));
    let mut plan = InstallPlan::default();
    for was in old.iter().flat_map(|o| &o.files) {
        add_removal(&mut plan, request, &was.path, Some(was), &owner, dir)?;
        if let Some(name) = &was.backup {
            plan.add_own_file(dir.join(name), None)?;
        }
    }
    // Entries that no manifest lists are recognised by the command they run.
    for part in every_part(request) {
        let path = files::resolve_links(&part.path)?;
        if !plan.agent_files.iter().any(|c| c.path == path) {
            add_removal(&mut plan, request, &path, None, &owner, dir)?;
        }
    }
    if old.is_some() {
        plan.add_own_file(at, None)?;
    }
    Ok(plan)
}

/// Plans one file without the entry.
fn add_removal(
    plan: &mut InstallPlan,
    request: &InstallRequest<'_>,
    path: &Path,
    was: Option<&ManifestFile>,
    owner: &EntryOwner,
    dir: &Path,
) -> Result<(), FileError> {
    let Some(before) = files::read_file(path)? else { return Ok(()) };
    let same_kind = |p: &InstallPart| {
        was.map_or_else(|| files::resolve_links(&p.path).is_ok_and(|r| r == path), |w| p.kind.name() == w.kind)
    };
    let Some(part) = every_part(request).into_iter().find(same_kind) else { return Ok(()) };
    let text = parse_utf8(&before).map_err(|e| FileError::from(e).at(path))?;
    let after = match content_without_entry(path, Some(text), &part.entry, was, owner, dir) {
        Ok(after) => after,
        // Without a manifest the file may contain nothing of ours.
        Err(_) if was.is_none() => return Ok(()),
        Err(error) => return Err(error.at(path)),
    };
    if was.is_some_and(|w| sha256(&before) != w.sha256_after) && after.is_some() {
        plan.notes.push(format!(
            "{} was changed after the installation: the changes stay, Countersign's entries are removed",
            path.display()
        ));
    }
    let dirs = was.map_or_else(Vec::new, |w| w.dirs.clone());
    let change = FileWrite { path: path.to_owned(), before: Some(before), after, mode: PRIVATE_FILE_MODE, dirs };
    if change.has_effect() {
        files::check_writable(path)?;
        plan.agent_files.push(change);
    }
    Ok(())
}

/// Every part that an installation for this agent and scope could have written.
fn every_part(request: &InstallRequest<'_>) -> Vec<InstallPart> {
    let of = |mode| InstallRequest { mode, witness: false, ..*request }.parts();
    of(InstallMode::Both).or_else(|_| of(InstallMode::Mcp)).unwrap_or_default()
}

/// Whether a file still contains its entry as it was written; an error if the agent would ignore it.
pub(super) fn is_intact(path: &Path, entry: &Entry, owner: &EntryOwner) -> Result<bool, FileError> {
    let Some(bytes) = files::read_file(path)? else { return Ok(false) };
    let in_file = |e: EditError| FileError::from(e).at(path);
    let text = parse_utf8(&bytes).map_err(in_file)?;
    let is_unchanged = edit::put_entry(path, Some(text), entry, owner, &[]).map_err(in_file)?.text == text;
    edit::find_switch_off(path, text, entry).map_or(Ok(is_unchanged), |reason| Err(in_file(reason)))
}

fn parse_utf8(bytes: &[u8]) -> Result<&str, EditError> {
    std::str::from_utf8(bytes).map_err(|e| EditError::NotUtf8(e.valid_up_to()))
}
