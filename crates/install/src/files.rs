//! Files changed whole or not at all: each through a temporary one beside it, all of them or none.

use crate::{FileError, error::FileErrors};
use countersign_store::read_regular;
use rustix::fs::{Access, Gid, Uid, access, chown};
use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// No configuration is longer.
const MAX_CONFIG_BYTES: u64 = 16 * 1024 * 1024;

/// One file before and after; none where there is no file.
#[derive(Debug, Clone)]
pub(super) struct FileWrite {
    pub(super) path: PathBuf,
    pub(super) before: Option<Vec<u8>>,
    pub(super) after: Option<Vec<u8>>,
    /// Of a file that is made.
    pub(super) mode: u32,
    /// Directories that go with the file, when nothing else is in them; innermost first.
    pub(super) dirs: Vec<PathBuf>,
}

impl FileWrite {
    pub(super) fn has_effect(&self) -> bool {
        self.before != self.after
    }

    fn reversed(&self) -> Self {
        let (before, after) = (self.after.clone(), self.before.clone());
        Self { before, after, ..self.clone() }
    }
}

/// Where a file really is: links are followed, so that what they lead to is changed and they stay.
pub(super) fn resolve_links(path: &Path) -> Result<PathBuf, FileError> {
    if fs::symlink_metadata(path).is_ok() {
        return path.canonicalize().map_err(|error| FileError::DanglingLink { path: path.to_owned(), error });
    }
    let there = path.ancestors().skip(1).find(|dir| fs::symlink_metadata(dir).is_ok());
    let Some(there) = there else { return Ok(path.to_owned()) };
    let real = there.canonicalize().map_err(|e| FileError::io(path, e))?;
    if !real.is_dir() {
        return Err(FileError::NoDirectory { path: path.to_owned(), place: there.to_owned() });
    }
    Ok(path.strip_prefix(there).map_or_else(|_| path.to_owned(), |rest| real.join(rest)))
}

/// What a file holds; none when it is not there.
pub(super) fn read_file(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(FileError::io(path, e)),
        Ok(meta) if !meta.is_file() => return Err(FileError::NotRegular(path.to_owned())),
        Ok(meta) if meta.len() > MAX_CONFIG_BYTES => return Err(FileError::TooLong(path.to_owned())),
        Ok(_) => {}
    }
    let name = path.to_str().ok_or_else(|| FileError::Name(path.to_owned()))?;
    read_regular(name, MAX_CONFIG_BYTES).map(Some).map_err(|e| FileError::io(path, e))
}

/// Directories that would have to be made for a file, innermost first.
pub(super) fn missing_dirs(path: &Path) -> Vec<PathBuf> {
    path.ancestors().skip(1).take_while(|dir| !dir.exists()).map(Path::to_owned).collect()
}

/// Why a change could not be made, as far as that can be seen beforehand. Modes count for root too: who takes the
/// write bit from a file means it.
pub(super) fn check_writable(path: &Path) -> Result<(), FileError> {
    let dir = path.ancestors().skip(1).find(|dir| dir.exists());
    for place in [Some(path).filter(|p| p.exists()), dir].into_iter().flatten() {
        let mode = fs::metadata(place).map_err(|e| FileError::io(place, e))?.mode();
        if mode & 0o200 == 0 || access(place, Access::WRITE_OK).is_err() {
            return Err(FileError::ReadOnly(place.to_owned()));
        }
    }
    Ok(())
}

/// All of them, or none: when one fails, those before it are put back.
pub(super) fn write_all(changes: &[FileWrite]) -> Result<(), FileError> {
    for (at, change) in changes.iter().enumerate() {
        if let Err(why) = write_file(change) {
            let (why, back) = (Box::new(why), undo_all(&changes[..at]));
            return Err(match back {
                Ok(()) => FileError::NothingChanged(why),
                Err(also) => FileError::HalfChanged { why, also },
            });
        }
    }
    Ok(())
}

/// Takes back what was applied, last first.
pub(super) fn undo_all(changes: &[FileWrite]) -> Result<(), FileErrors> {
    let failed: Vec<FileError> =
        changes.iter().rev().filter_map(|change| write_file(&change.reversed()).err()).collect();
    if failed.is_empty() { Ok(()) } else { Err(FileErrors(failed)) }
}

fn write_file(change: &FileWrite) -> Result<(), FileError> {
    let path = &change.path;
    if !change.has_effect() {
        return Ok(());
    }
    // An agent that runs writes its own configuration too.
    if read_file(path)? != change.before {
        return Err(FileError::ChangedMeanwhile(path.clone()));
    }
    let done = match &change.after {
        Some(bytes) => replace_file(path, bytes, change.mode),
        None => fs::remove_file(path),
    };
    done.map_err(|error| FileError::Unwritable { path: path.clone(), error })?;
    if change.after.is_none() {
        // Not empty is somebody else's.
        change.dirs.iter().take_while(|dir| fs::remove_dir(dir).is_ok()).for_each(drop);
    }
    Ok(())
}

fn replace_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
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
