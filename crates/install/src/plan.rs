//! What an installation or its removal would change, worked out in memory: the agent's files, their copies as they were
//! before, and the manifest. Nothing is written here.

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

/// For files that hold what a person may not want others to read.
const PRIVATE_FILE_MODE: u32 = 0o600;
const PROJECT_FILE_MODE: u32 = 0o644;

#[derive(Debug, Default)]
pub(super) struct InstallPlan {
    /// The agent's files.
    pub(super) agent_files: Vec<FileWrite>,
    /// Copies and manifest.
    own_files: Vec<FileWrite>,
    pub(super) proofs: Vec<Proof>,
    pub(super) notes: Vec<String>,
}

impl InstallPlan {
    /// In the order in which they are made: copies first, so that what is changed is never without one.
    pub(super) fn writes(&self) -> Vec<FileWrite> {
        let (going, coming): (Vec<_>, Vec<_>) = self.own_files.iter().cloned().partition(|c| c.after.is_none());
        let (manifest, copies): (Vec<_>, Vec<_>) =
            coming.into_iter().partition(|c| c.path.extension().is_some_and(|e| e == "json"));
        copies.into_iter().chain(self.agent_files.iter().cloned()).chain(manifest).chain(going).collect()
    }

    fn add_own_file(&mut self, path: PathBuf, after: Option<Vec<u8>>) -> Result<(), FileError> {
        let before = files::read_file(&path)?;
        let dirs = files::missing_dirs(&path);
        self.own_files.push(FileWrite { path, before, after, mode: PRIVATE_FILE_MODE, dirs });
        Ok(())
    }
}

/// The directory of manifests, for its owner alone.
pub(super) fn create_private_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

/// Links in a home are its user's; one in a project may be anybody's, and leads nowhere else.
fn check_inside_project(wanted: &InstallRequest<'_>, named: &Path, path: &Path) -> Result<(), FileError> {
    let Some(project) = wanted.places.project.as_deref() else { return Ok(()) };
    let project = project.canonicalize().map_err(|e| FileError::io(project, e))?;
    if path.starts_with(&project) {
        return Ok(());
    }
    Err(FileError::OutsideProject { named: named.to_owned(), path: path.to_owned() })
}

pub(super) fn plan_install(wanted: &InstallRequest<'_>, dir: &Path) -> Result<InstallPlan, InstallError> {
    let stem = manifest::file_stem(wanted.agent, wanted.places.project.as_deref());
    let at = manifest::manifest_path(dir, &stem);
    let old = manifest::read_manifest(&at)?;
    let mine = wanted.owner(old.as_ref().map(|o| o.csn.as_str()));
    let mut plan = InstallPlan::default();
    let mut written = Vec::new();
    for part in wanted.parts()? {
        let path = files::resolve_links(&part.path)?;
        check_inside_project(wanted, &part.path, &path)?;
        let was = old.as_ref().and_then(|o| o.file_at(&path));
        let (now, base) = add_part(&mut plan, wanted, &part, path, was, &mine, dir)?;
        let backup = base.as_ref().map(|_| format!("{stem}.{}.before", part.kind.name()));
        written.push(ManifestFile { sha256_before: base.as_deref().map(sha256), backup: backup.clone(), ..now });
        if let Some((name, base)) = backup.zip(base) {
            plan.add_own_file(dir.join(name), Some(base))?;
        }
        plan.proofs.push(part.proof);
    }
    for was in old.iter().flat_map(|o| &o.files) {
        if !written.iter().any(|now| now.path == was.path) {
            add_removal(&mut plan, wanted, &was.path, Some(was), &mine, dir)?;
        }
        if let Some(name) = was.backup.as_ref().filter(|n| !written.iter().any(|w| w.backup.as_ref() == Some(n))) {
            plan.add_own_file(dir.join(name), None)?;
        }
    }
    plan.add_own_file(at, Some(Manifest::new(wanted, written).to_bytes()))?;
    Ok(plan)
}

/// One file with its entry; what the manifest says of it, and the file as it is without us.
fn add_part(
    plan: &mut InstallPlan,
    wanted: &InstallRequest<'_>,
    part: &InstallPart,
    path: PathBuf,
    was: Option<&ManifestFile>,
    mine: &EntryOwner,
    dir: &Path,
) -> Result<(ManifestFile, Option<Vec<u8>>), FileError> {
    let told = |e: EditError| FileError::from(e).at(&path);
    let before = files::read_file(&path)?;
    let text = before.as_deref().map(parse_utf8).transpose().map_err(told)?;
    let known = was.map_or(&[][..], |w| &w.made);
    let edited = edit::put_entry(&path, text, &part.entry, mine, known).map_err(told)?;
    if let Some(why) = edit::find_switch_off(&path, &edited.text, &part.entry) {
        return Err(told(why));
    }
    let base = content_without_entry(&path, text, &part.entry, was, mine, dir).map_err(|e| e.at(&path))?;
    let dirs = was.map_or_else(|| files::missing_dirs(&path), |w| w.dirs.clone());
    let mode = if wanted.places.project.is_some() { PROJECT_FILE_MODE } else { PRIVATE_FILE_MODE };
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

/// A file as it would be without us: as it was, if nobody has changed it since; else with our entries taken out.
fn content_without_entry(
    path: &Path,
    text: Option<&str>,
    entry: &Entry,
    was: Option<&ManifestFile>,
    mine: &EntryOwner,
    dir: &Path,
) -> Result<Option<Vec<u8>>, FileError> {
    let Some(text) = text else { return Ok(None) };
    if let Some(was) = was.filter(|w| sha256(text.as_bytes()) == w.sha256_after) {
        match (&was.backup, &was.sha256_before) {
            (Some(name), Some(digest)) => {
                let copy = files::read_file(&dir.join(name))?;
                if let Some(copy) = copy.filter(|bytes| sha256(bytes) == *digest) {
                    return Ok(Some(copy));
                }
            }
            _ => return Ok(None),
        }
    }
    let made = was.map_or(&[][..], |w| &w.made);
    let rest = edit::remove_entry(path, text, entry, mine, made)?;
    // A file of ours in which nobody else has put anything.
    let ours = was.is_some_and(|w| w.sha256_before.is_none()) || matches!(entry, Entry::Whole(_));
    Ok(Some(rest.into_bytes()).filter(|rest| !(ours && edit::is_empty_config(rest))))
}

pub(super) fn plan_removal(wanted: &InstallRequest<'_>, dir: &Path) -> Result<InstallPlan, InstallError> {
    let stem = manifest::file_stem(wanted.agent, wanted.places.project.as_deref());
    let at = manifest::manifest_path(dir, &stem);
    let old = manifest::read_manifest(&at)?;
    let mine = wanted.owner(old.as_ref().map(|o| o.csn.as_str()));
    let mut plan = InstallPlan::default();
    for was in old.iter().flat_map(|o| &o.files) {
        add_removal(&mut plan, wanted, &was.path, Some(was), &mine, dir)?;
        if let Some(name) = &was.backup {
            plan.add_own_file(dir.join(name), None)?;
        }
    }
    // Also what no manifest tells of: it is known by what it runs.
    for part in every_part(wanted) {
        let path = files::resolve_links(&part.path)?;
        if !plan.agent_files.iter().any(|c| c.path == path) {
            add_removal(&mut plan, wanted, &path, None, &mine, dir)?;
        }
    }
    if old.is_some() {
        plan.add_own_file(at, None)?;
    }
    Ok(plan)
}

/// One file without us.
fn add_removal(
    plan: &mut InstallPlan,
    wanted: &InstallRequest<'_>,
    path: &Path,
    was: Option<&ManifestFile>,
    mine: &EntryOwner,
    dir: &Path,
) -> Result<(), FileError> {
    let Some(before) = files::read_file(path)? else { return Ok(()) };
    let same_kind = |p: &InstallPart| {
        was.map_or_else(|| files::resolve_links(&p.path).is_ok_and(|r| r == path), |w| p.kind.name() == w.kind)
    };
    let Some(part) = every_part(wanted).into_iter().find(same_kind) else { return Ok(()) };
    let text = parse_utf8(&before).map_err(|e| FileError::from(e).at(path))?;
    let after = match content_without_entry(path, Some(text), &part.entry, was, mine, dir) {
        Ok(after) => after,
        // Without a manifest nothing says that there is anything of ours in it.
        Err(_) if was.is_none() => return Ok(()),
        Err(why) => return Err(why.at(path)),
    };
    if was.is_some_and(|w| sha256(&before) != w.sha256_after) && after.is_some() {
        plan.notes.push(format!("{} was changed since: the changes stay, our entries are out", path.display()));
    }
    let dirs = was.map_or_else(Vec::new, |w| w.dirs.clone());
    let change = FileWrite { path: path.to_owned(), before: Some(before), after, mode: PRIVATE_FILE_MODE, dirs };
    if change.has_effect() {
        files::check_writable(path)?;
        plan.agent_files.push(change);
    }
    Ok(())
}

/// Whatever an installation for this agent and scope could have written.
fn every_part(wanted: &InstallRequest<'_>) -> Vec<InstallPart> {
    let of = |mode| InstallRequest { mode, witness: false, ..*wanted }.parts();
    of(InstallMode::Both).or_else(|_| of(InstallMode::Mcp)).unwrap_or_default()
}

/// Whether a file still holds its entry, as it was written; an error where the agent would skip it.
pub(super) fn is_intact(path: &Path, entry: &Entry, mine: &EntryOwner) -> Result<bool, FileError> {
    let Some(bytes) = files::read_file(path)? else { return Ok(false) };
    let told = |e: EditError| FileError::from(e).at(path);
    let text = parse_utf8(&bytes).map_err(told)?;
    let same = edit::put_entry(path, Some(text), entry, mine, &[]).map_err(told)?.text == text;
    edit::find_switch_off(path, text, entry).map_or(Ok(same), |why| Err(told(why)))
}

fn parse_utf8(bytes: &[u8]) -> Result<&str, EditError> {
    std::str::from_utf8(bytes).map_err(|e| EditError::NotUtf8(e.valid_up_to()))
}
