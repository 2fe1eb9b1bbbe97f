//! What an installation or its removal would change, worked out in memory: the agent's files, their copies as they were
//! before, and the manifest. Nothing is written here.

use super::{
    agents::{Part, Wanted},
    edit,
    entry::{Entry, Mine},
    files::{self, Change},
    manifest::{self, Manifest, Written, sha256},
    prove::Proof,
};
use crate::{EditError, FileError, InstallError, InstallMode};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// For files that hold what a person may not want others to read.
const OWN: u32 = 0o600;
const SHARED: u32 = 0o644;

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The agent's files.
    pub(super) shown: Vec<Change>,
    /// Copies and manifest.
    kept: Vec<Change>,
    pub(super) proofs: Vec<Proof>,
    pub(super) notes: Vec<String>,
}

impl Plan {
    /// In the order in which they are made: copies first, so that what is changed is never without one.
    pub(super) fn changes(&self) -> Vec<Change> {
        let (going, coming): (Vec<_>, Vec<_>) = self.kept.iter().cloned().partition(|c| c.after.is_none());
        let (manifest, copies): (Vec<_>, Vec<_>) =
            coming.into_iter().partition(|c| c.path.extension().is_some_and(|e| e == "json"));
        copies.into_iter().chain(self.shown.iter().cloned()).chain(manifest).chain(going).collect()
    }

    fn keep(&mut self, path: PathBuf, after: Option<Vec<u8>>) -> Result<(), FileError> {
        let before = files::read(&path)?;
        let dirs = files::missing_dirs(&path);
        self.kept.push(Change { path, before, after, mode: OWN, dirs });
        Ok(())
    }
}

/// The directory of manifests, for its owner alone.
pub(super) fn private(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

/// Links in a home are its user's; one in a project may be anybody's, and leads nowhere else.
fn inside(wanted: &Wanted<'_>, named: &Path, path: &Path) -> Result<(), FileError> {
    let Some(project) = wanted.places.project.as_deref() else { return Ok(()) };
    let project = project.canonicalize().map_err(|e| FileError::io(project, e))?;
    if path.starts_with(&project) {
        return Ok(());
    }
    Err(FileError::OutsideProject { named: named.to_owned(), path: path.to_owned() })
}

pub(super) fn install(wanted: &Wanted<'_>, dir: &Path) -> Result<Plan, InstallError> {
    let stem = manifest::stem(wanted.agent, wanted.places.project.as_deref());
    let at = manifest::path(dir, &stem);
    let old = manifest::read(&at)?;
    let mine = wanted.mine(old.as_ref().map(|o| o.csn.as_str()));
    let mut plan = Plan::default();
    let mut written = Vec::new();
    for part in wanted.parts()? {
        let path = files::resolve(&part.path)?;
        inside(wanted, &part.path, &path)?;
        let was = old.as_ref().and_then(|o| o.of(&path));
        let (now, base) = put(&mut plan, wanted, &part, path, was, &mine, dir)?;
        let backup = base.as_ref().map(|_| format!("{stem}.{}.before", part.kind.name()));
        written.push(Written { sha256_before: base.as_deref().map(sha256), backup: backup.clone(), ..now });
        if let Some((name, base)) = backup.zip(base) {
            plan.keep(dir.join(name), Some(base))?;
        }
        plan.proofs.push(part.proof);
    }
    for was in old.iter().flat_map(|o| &o.files) {
        if !written.iter().any(|now| now.path == was.path) {
            out(&mut plan, wanted, &was.path, Some(was), &mine, dir)?;
        }
        if let Some(name) = was.backup.as_ref().filter(|n| !written.iter().any(|w| w.backup.as_ref() == Some(n))) {
            plan.keep(dir.join(name), None)?;
        }
    }
    plan.keep(at, Some(Manifest::new(wanted, written).bytes()))?;
    Ok(plan)
}

/// One file with its entry; what the manifest says of it, and the file as it is without us.
fn put(
    plan: &mut Plan,
    wanted: &Wanted<'_>,
    part: &Part,
    path: PathBuf,
    was: Option<&Written>,
    mine: &Mine,
    dir: &Path,
) -> Result<(Written, Option<Vec<u8>>), FileError> {
    let told = |e: EditError| FileError::from(e).at(&path);
    let before = files::read(&path)?;
    let text = before.as_deref().map(utf8).transpose().map_err(told)?;
    let known = was.map_or(&[][..], |w| &w.made);
    let edited = edit::put(&path, text, &part.entry, mine, known).map_err(told)?;
    if let Some(why) = edit::off(&path, &edited.text, &part.entry) {
        return Err(told(why));
    }
    let base = without(&path, text, &part.entry, was, mine, dir).map_err(|e| e.at(&path))?;
    let dirs = was.map_or_else(|| files::missing_dirs(&path), |w| w.dirs.clone());
    let mode = if wanted.places.project.is_some() { SHARED } else { OWN };
    let after = edited.text.into_bytes();
    let written = Written {
        kind: part.kind.name().to_owned(),
        path: path.clone(),
        sha256_before: None,
        sha256_after: sha256(&after),
        backup: None,
        made: edited.made,
        dirs: dirs.clone(),
    };
    let change = Change { path, before, after: Some(after), mode, dirs };
    if change.does_something() {
        files::may_write(&change.path)?;
    }
    plan.shown.push(change);
    Ok((written, base))
}

/// A file as it would be without us: as it was, if nobody has changed it since; else with our entries taken out.
fn without(
    path: &Path,
    text: Option<&str>,
    entry: &Entry,
    was: Option<&Written>,
    mine: &Mine,
    dir: &Path,
) -> Result<Option<Vec<u8>>, FileError> {
    let Some(text) = text else { return Ok(None) };
    if let Some(was) = was.filter(|w| sha256(text.as_bytes()) == w.sha256_after) {
        match (&was.backup, &was.sha256_before) {
            (Some(name), Some(digest)) => {
                let copy = files::read(&dir.join(name))?;
                if let Some(copy) = copy.filter(|bytes| sha256(bytes) == *digest) {
                    return Ok(Some(copy));
                }
            }
            _ => return Ok(None),
        }
    }
    let made = was.map_or(&[][..], |w| &w.made);
    let rest = edit::take(path, text, entry, mine, made)?;
    // A file of ours in which nobody else has put anything.
    let ours = was.is_some_and(|w| w.sha256_before.is_none()) || matches!(entry, Entry::Whole(_));
    Ok(Some(rest.into_bytes()).filter(|rest| !(ours && edit::is_bare(rest))))
}

pub(super) fn uninstall(wanted: &Wanted<'_>, dir: &Path) -> Result<Plan, InstallError> {
    let stem = manifest::stem(wanted.agent, wanted.places.project.as_deref());
    let at = manifest::path(dir, &stem);
    let old = manifest::read(&at)?;
    let mine = wanted.mine(old.as_ref().map(|o| o.csn.as_str()));
    let mut plan = Plan::default();
    for was in old.iter().flat_map(|o| &o.files) {
        out(&mut plan, wanted, &was.path, Some(was), &mine, dir)?;
        if let Some(name) = &was.backup {
            plan.keep(dir.join(name), None)?;
        }
    }
    // Also what no manifest tells of: it is known by what it runs.
    for part in every_part(wanted) {
        let path = files::resolve(&part.path)?;
        if !plan.shown.iter().any(|c| c.path == path) {
            out(&mut plan, wanted, &path, None, &mine, dir)?;
        }
    }
    if old.is_some() {
        plan.keep(at, None)?;
    }
    Ok(plan)
}

/// One file without us.
fn out(
    plan: &mut Plan,
    wanted: &Wanted<'_>,
    path: &Path,
    was: Option<&Written>,
    mine: &Mine,
    dir: &Path,
) -> Result<(), FileError> {
    let Some(before) = files::read(path)? else { return Ok(()) };
    let same_kind =
        |p: &Part| was.map_or_else(|| files::resolve(&p.path).is_ok_and(|r| r == path), |w| p.kind.name() == w.kind);
    let Some(part) = every_part(wanted).into_iter().find(same_kind) else { return Ok(()) };
    let text = utf8(&before).map_err(|e| FileError::from(e).at(path))?;
    let after = match without(path, Some(text), &part.entry, was, mine, dir) {
        Ok(after) => after,
        // Without a manifest nothing says that there is anything of ours in it.
        Err(_) if was.is_none() => return Ok(()),
        Err(why) => return Err(why.at(path)),
    };
    if was.is_some_and(|w| sha256(&before) != w.sha256_after) && after.is_some() {
        plan.notes.push(format!("{} was changed since: the changes stay, our entries are out", path.display()));
    }
    let dirs = was.map_or_else(Vec::new, |w| w.dirs.clone());
    let change = Change { path: path.to_owned(), before: Some(before), after, mode: OWN, dirs };
    if change.does_something() {
        files::may_write(path)?;
        plan.shown.push(change);
    }
    Ok(())
}

/// Whatever an installation for this agent and scope could have written.
fn every_part(wanted: &Wanted<'_>) -> Vec<Part> {
    let of = |mode| Wanted { mode, witness: false, ..*wanted }.parts();
    of(InstallMode::Both).or_else(|_| of(InstallMode::Mcp)).unwrap_or_default()
}

/// Whether a file still holds its entry, as it was written; an error where the agent would skip it.
pub(super) fn holds(path: &Path, entry: &Entry, mine: &Mine) -> Result<bool, FileError> {
    let Some(bytes) = files::read(path)? else { return Ok(false) };
    let told = |e: EditError| FileError::from(e).at(path);
    let text = utf8(&bytes).map_err(told)?;
    let same = edit::put(path, Some(text), entry, mine, &[]).map_err(told)?.text == text;
    edit::off(path, text, entry).map_or(Ok(same), |why| Err(told(why)))
}

fn utf8(bytes: &[u8]) -> Result<&str, EditError> {
    std::str::from_utf8(bytes).map_err(|e| EditError::NotUtf8(e.valid_up_to()))
}
