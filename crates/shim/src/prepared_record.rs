//! What the record of a task needs of the file system, made by an idle shim: the task's directory with the directory for
//! its temporary files, and the file of its journal. Each is a new inode, and a file system in which many files were
//! deleted lately takes a tenth of a millisecond to find one. A task that starts gives them their names.
//!
//! Nothing here says that a task has begun: only the name of the journal does.

use crate::sandbox;
use countersign_store::journal;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

pub(crate) struct PreparedRecord {
    directory: PathBuf,
    /// None once a task has it.
    journal: Option<File>,
}

impl PreparedRecord {
    /// Makes everything below this place. None if that fails: a task can make it for itself.
    pub(crate) fn make(place: &Path) -> Option<Self> {
        let directory = place.join(std::process::id().to_string());
        // A shim with this pid that was killed may have left it.
        remove(&directory);
        let create = || {
            create_private(&directory)?;
            create_private(&sandbox::temporary_path(&directory, None))?;
            journal::unnamed_locked(&directory)
        };
        match create() {
            Ok(Some(journal)) => Some(Self { directory, journal: Some(journal) }),
            _ => {
                remove(&directory);
                None
            }
        }
    }

    /// Makes it the record of a task that has none. Returns the file for the journal; none if the task has a directory.
    pub(crate) fn name(mut self, directory: &Path) -> Option<File> {
        let name = || renameat_with(CWD, &self.directory, CWD, directory, RenameFlags::NOREPLACE);
        let named = match name() {
            // The first task of its shard.
            Err(rustix::io::Errno::NOENT) => {
                directory.parent().is_some_and(|shard| create_private(shard).is_ok()) && name().is_ok()
            }
            named => named.is_ok(),
        };
        self.journal.take_if(|_| named)
    }
}

impl Drop for PreparedRecord {
    fn drop(&mut self) {
        if self.journal.is_some() {
            remove(&self.directory);
        }
    }
}

fn create_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Removes what the idle shims of a daemon that was killed have left at this place.
pub fn remove_left_records(place: &Path) {
    for left in fs::read_dir(place).into_iter().flatten().flatten() {
        remove(&left.path());
    }
}

/// Only empty directories, and by their names: a shim that still has an order may name this one meanwhile.
fn remove(directory: &Path) {
    let _ = fs::remove_dir(sandbox::temporary_path(directory, None));
    let _ = fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn a_task_gets_what_was_prepared() {
        let home = tempfile::tempdir().unwrap();
        let (place, task) = (home.path().join("prepared"), home.path().join("shard/task"));
        let prepared = PreparedRecord::make(&place).unwrap();
        let named = prepared.name(&task);
        assert!(named.is_some() && entries(&place).is_empty());
        assert_eq!(entries(&task), ["tmp"], "a journal without a name is none");
    }

    #[test]
    fn a_directory_that_a_task_has_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let (place, task) = (home.path().join("prepared"), home.path().join("task"));
        create_private(&task).unwrap();
        assert!(PreparedRecord::make(&place).unwrap().name(&task).is_none());
        assert!(entries(&task).is_empty() && entries(&place).is_empty());
    }

    #[test]
    fn what_no_task_needed_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let prepared = PreparedRecord::make(home.path());
        assert_eq!(entries(home.path()), [std::process::id().to_string()]);
        drop(prepared);
        assert!(entries(home.path()).is_empty());
        // After a kill, the next shim with this pid takes its place, and so does the next daemon.
        std::mem::forget(PreparedRecord::make(home.path()));
        std::mem::forget(PreparedRecord::make(home.path()));
        remove_left_records(home.path());
        assert!(entries(home.path()).is_empty());
    }
}
