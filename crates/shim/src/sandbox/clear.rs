//! Removes a directory that a task has made hard to remove: without permission to enter, or deeper than a path or the
//! descriptor limit allows.

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Dir, FileType, Mode, OFlags, RawMode, openat, renameat, unlinkat},
};
use std::{io, path::Path};

/// A deeper directory is moved to the top and removed from there.
const MAX_DEPTH: usize = 24;
/// More rounds than the budget of a task can make necessary.
const MAX_ROUNDS: usize = 100_000;

/// Removes a directory with everything in it. No process may be working in it.
pub(super) fn remove_tree(directory: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let above = directory.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let name = directory.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let name = std::ffi::CString::new(name.as_encoded_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let above = rustix::fs::open(above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    make_accessible(&above, &name);
    let top = openat(&above, name.as_c_str(), flags, Mode::empty())?;
    let mut moved = 0u64;
    for _ in 0..MAX_ROUNDS {
        if remove_entries(&top, &top, 0, &mut moved)? {
            return std::fs::remove_dir(directory);
        }
    }
    Err(io::Error::other("the directory did not become empty"))
}

/// Makes a directory accessible to its owner. Does not follow links, which may lead to any file.
fn make_accessible(directory: &OwnedFd, name: &std::ffi::CStr) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(itself) = openat(directory, name, flags, Mode::empty()) {
        // By descriptor: the name may refer to something else by now.
        let _ = rustix::fs::chmod(countersign_store::proc::own_file(&itself), Mode::from_raw_mode(0o700 as RawMode));
    }
}

/// Removes the entries of a directory. Returns whether it is empty now.
fn remove_entries(top: &OwnedFd, directory: &OwnedFd, depth: usize, moved: &mut u64) -> io::Result<bool> {
    let mut is_empty = true;
    let entries: Vec<_> =
        Dir::read_from(directory)?.flatten().map(|e| (e.file_name().to_owned(), e.file_type())).collect();
    for (name, kind) in entries.iter().filter(|(name, _)| !matches!(name.to_bytes(), b"." | b"..")) {
        if *kind != FileType::Directory && unlinkat(directory, name, AtFlags::empty()).is_ok() {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        make_accessible(directory, name);
        if depth >= MAX_DEPTH {
            // The next round finds it there.
            *moved += 1;
            renameat(directory, name, top, format!("{moved}-moved-up"))?;
            is_empty = false;
            continue;
        }
        let inner = openat(directory, name, flags, Mode::empty())?;
        if remove_entries(top, &inner, depth + 1, moved)? {
            unlinkat(directory, name, AtFlags::REMOVEDIR)?;
        } else {
            is_empty = false;
        }
    }
    Ok(is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn closed_and_deep_directories_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tmp");
        fs::create_dir_all(root.join("closed/inner")).unwrap();
        fs::write(root.join("closed/inner/file"), "x").unwrap();
        std::os::unix::fs::symlink(dir.path(), root.join("closed/link")).unwrap();
        let beside = dir.path().join("beside");
        fs::write(&beside, "stays").unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&beside, root.join("to-beside")).unwrap();
        // Root may enter every directory, so this step is also tested directly.
        let at: OwnedFd = fs::File::open(&root).unwrap().into();
        make_accessible(&at, c"to-beside");
        assert_eq!(fs::metadata(&beside).unwrap().permissions().mode() & 0o777, 0o640, "a link is not followed");
        for name in ["closed/inner", "closed"] {
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o300)).unwrap();
        }
        // Deeper than the longest possible path.
        let mut at: OwnedFd = fs::File::open(&root).unwrap().into();
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&at, "deep", Mode::RWXU).unwrap();
            at = openat(&at, "deep", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        drop(at);
        fs::set_permissions(&root, fs::Permissions::from_mode(0o500)).unwrap();
        remove_tree(&root).unwrap();
        assert!(!root.exists());
        assert_eq!(
            fs::metadata(&beside).unwrap().permissions().mode() & 0o777,
            0o640,
            "the target of a link is unchanged"
        );
    }
}
