//! Files changed whole or not at all: each through a temporary one beside it, all of them or none.

use countersign_store::read_regular;
use rustix::fs::{Access, Gid, Uid, access, chown};
use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// No configuration is longer.
const MOST: u64 = 16 * 1024 * 1024;

/// One file before and after; none where there is no file.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) path: PathBuf,
    pub(super) before: Option<Vec<u8>>,
    pub(super) after: Option<Vec<u8>>,
    /// Of a file that is made.
    pub(super) mode: u32,
    /// Directories that go with the file, when nothing else is in them; innermost first.
    pub(super) dirs: Vec<PathBuf>,
}

impl Change {
    pub(super) fn does_something(&self) -> bool {
        self.before != self.after
    }

    fn back(&self) -> Self {
        let (before, after) = (self.after.clone(), self.before.clone());
        Self { before, after, ..self.clone() }
    }
}

/// Where a file really is: links are followed, so that what they lead to is changed and they stay.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, String> {
    let told = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    if fs::symlink_metadata(path).is_ok() {
        return path.canonicalize().map_err(|e| told(&format!("it is a link that leads nowhere ({e})")));
    }
    let there = path.ancestors().skip(1).find(|dir| fs::symlink_metadata(dir).is_ok());
    let Some(there) = there else { return Ok(path.to_owned()) };
    let real = there.canonicalize().map_err(|e| told(&e))?;
    match real.is_dir() {
        true => Ok(path.strip_prefix(there).map_or_else(|_| path.to_owned(), |rest| real.join(rest))),
        false => Err(told(&format!("{} is not a directory", there.display()))),
    }
}

/// What a file holds; none when it is not there.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let told = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(told(&e)),
        Ok(meta) if !meta.is_file() => return Err(told(&"it is not a regular file")),
        Ok(meta) if meta.len() > MOST => return Err(told(&"it is too long for a configuration")),
        Ok(_) => {}
    }
    let name = path.to_str().ok_or_else(|| told(&"its name is not UTF-8"))?;
    read_regular(name, MOST).map(Some).map_err(|e| told(&e))
}

/// Directories that would have to be made for a file, innermost first.
pub(super) fn missing_dirs(path: &Path) -> Vec<PathBuf> {
    path.ancestors().skip(1).take_while(|dir| !dir.exists()).map(Path::to_owned).collect()
}

/// Why a change could not be made, as far as that can be seen beforehand. Modes count for root too: who takes the
/// write bit from a file means it.
pub(super) fn may_write(path: &Path) -> Result<(), String> {
    let told = |what: &Path| {
        Err(format!("{} is read-only: nothing was changed (chmod u+w {0}, or change it by hand)", what.display()))
    };
    let dir = path.ancestors().skip(1).find(|dir| dir.exists());
    for place in [Some(path).filter(|p| p.exists()), dir].into_iter().flatten() {
        let mode = fs::metadata(place).map_err(|e| format!("{}: {e}", place.display()))?.mode();
        if mode & 0o200 == 0 || access(place, Access::WRITE_OK).is_err() {
            return told(place);
        }
    }
    Ok(())
}

/// All of them, or none: when one fails, those before it are put back.
pub(super) fn apply(changes: &[Change]) -> Result<(), String> {
    for (at, change) in changes.iter().enumerate() {
        if let Err(why) = make(change) {
            let back = undo(&changes[..at]);
            return Err(match back {
                Ok(()) => format!("{why}; nothing was changed"),
                Err(also) => format!("{why}; and what was written before could not be taken back: {also}"),
            });
        }
    }
    Ok(())
}

/// Takes back what was applied, last first.
pub(super) fn undo(changes: &[Change]) -> Result<(), String> {
    let failed: Vec<String> = changes.iter().rev().filter_map(|change| make(&change.back()).err()).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn make(change: &Change) -> Result<(), String> {
    let path = &change.path;
    if !change.does_something() {
        return Ok(());
    }
    // An agent that runs writes its own configuration too.
    if read(path)? != change.before {
        return Err(format!("{} was changed by somebody else meanwhile: run this again", path.display()));
    }
    let done = match &change.after {
        Some(bytes) => replace(path, bytes, change.mode),
        None => fs::remove_file(path),
    };
    done.map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    if change.after.is_none() {
        // Not empty is somebody else's.
        change.dirs.iter().take_while(|dir| fs::remove_dir(dir).is_ok()).for_each(drop);
    }
    Ok(())
}

fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    fs::create_dir_all(dir)?;
    let old = fs::metadata(path).ok();
    let fresh = dir.join(format!(".{name}.csn-{}", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(bytes)?;
        if let Some(old) = &old {
            let ours = file.metadata()?;
            if (ours.uid(), ours.gid()) != (old.uid(), old.gid()) {
                chown(&fresh, Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid())))?;
            }
        }
        let mode = old.map_or(mode, |old| old.mode() & 0o7777);
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}
