//! Writes a set of files, all of them or none: each is replaced through a temporary file beside it.

use crate::{FileError, error::FileErrors};
use countersign_store::read_regular;
use rustix::fs::{Access, Gid, Uid, access, chown};
use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// A larger file is no configuration.
const MAX_CONFIG_BYTES: u64 = 16 * 1024 * 1024;

/// The content of a file before and after; none where the file does not exist.
#[derive(Debug, Clone)]
pub(super) struct FileWrite {
    pub(super) path: PathBuf,
    pub(super) before: Option<Vec<u8>>,
    pub(super) after: Option<Vec<u8>>,
    /// Used when the file is created.
    pub(super) mode: u32,
    /// Directories to remove with the file if they are empty then; innermost first.
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

/// The path with symbolic links followed, so that the link stays and its target is edited.
pub(super) fn resolve_links(path: &Path) -> Result<PathBuf, FileError> {
    if fs::symlink_metadata(path).is_ok() {
        return path.canonicalize().map_err(|error| FileError::DanglingLink { path: path.to_owned(), error });
    }
    let existing = path.ancestors().skip(1).find(|dir| fs::symlink_metadata(dir).is_ok());
    let Some(existing) = existing else { return Ok(path.to_owned()) };
    let real = existing.canonicalize().map_err(|e| FileError::io(path, e))?;
    if !real.is_dir() {
        return Err(FileError::NoDirectory { path: path.to_owned(), place: existing.to_owned() });
    }
    Ok(path.strip_prefix(existing).map_or_else(|_| path.to_owned(), |rest| real.join(rest)))
}

/// The content of a file; none when it does not exist.
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

/// The directories that have to be created for a file, innermost first.
pub(super) fn missing_dirs(path: &Path) -> Vec<PathBuf> {
    path.ancestors().skip(1).take_while(|dir| !dir.exists()).map(Path::to_owned).collect()
}

/// Checks in advance that a file can be written. Modes count for root, too: a user who removes the write bit from a file
/// wants it unchanged.
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

/// Writes all of them or none: when one fails, the earlier ones are restored.
pub(super) fn write_all(changes: &[FileWrite]) -> Result<(), FileError> {
    for (at, change) in changes.iter().enumerate() {
        if let Err(cause) = write_file(change) {
            let cause = Box::new(cause);
            return Err(match undo_all(&changes[..at]) {
                Ok(()) => FileError::NothingChanged(cause),
                Err(restore) => FileError::PartlyChanged { cause, restore },
            });
        }
    }
    Ok(())
}

/// Restores the content before the writes, in reverse order.
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
    // A running agent also writes its configuration.
    if read_file(path)? != change.before {
        return Err(FileError::ChangedConcurrently(path.clone()));
    }
    let result = match &change.after {
        Some(bytes) => replace_file(path, bytes, change.mode),
        None => fs::remove_file(path),
    };
    result.map_err(|error| FileError::Unwritable { path: path.clone(), error })?;
    if change.after.is_none() {
        // A directory that is not empty belongs to other programs.
        for dir in &change.dirs {
            if fs::remove_dir(dir).is_err() {
                break;
            }
        }
    }
    Ok(())
}

fn replace_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    fs::create_dir_all(dir)?;
    let old = fs::metadata(path).ok();
    let temporary = dir.join(format!(".{name}.csn-{}", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        if let Some(old) = &old {
            let ours = file.metadata()?;
            if (ours.uid(), ours.gid()) != (old.uid(), old.gid()) {
                chown(&temporary, Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid())))?;
            }
        }
        let mode = old.map_or(mode, |old| old.mode() & 0o7777);
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}
