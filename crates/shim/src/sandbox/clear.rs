//! Removing a directory that somebody has made hard to remove: entries that may not be entered, and depths that no path and no
//! set of descriptors reaches.

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Dir, FileType, Mode, OFlags, RawMode, openat, renameat, unlinkat},
};
use std::{io, path::Path};

/// Deeper than this, a directory is moved to the top and removed from there.
const DEEP: usize = 24;
/// More rounds than any budget leaves room for.
const ROUNDS: usize = 100_000;

/// Removes a directory with everything in it. Nobody else may be working in it.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let above = directory.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let name = directory.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let name = std::ffi::CString::new(name.as_encoded_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let above = rustix::fs::open(above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    open_up(&above, &name);
    let top = openat(&above, name.as_c_str(), flags, Mode::empty())?;
    let mut moved = 0u64;
    for _ in 0..ROUNDS {
        if empty(&top, &top, 0, &mut moved)? {
            return std::fs::remove_dir(directory);
        }
    }
    Err(io::Error::other("it does not become empty"))
}

/// Lets us into a directory that its maker has closed. Not what a link leads to: that may be anybody's.
fn open_up(directory: &OwnedFd, name: &std::ffi::CStr) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(itself) = openat(directory, name, flags, Mode::empty()) {
        // By its descriptor: the name may be another's by now.
        let _ = rustix::fs::chmod(countersign_store::proc::own_file(&itself), Mode::from_raw_mode(0o700 as RawMode));
    }
}

/// Removes what is in a directory; whether all of it is gone.
fn empty(top: &OwnedFd, directory: &OwnedFd, depth: usize, moved: &mut u64) -> io::Result<bool> {
    let mut gone = true;
    let entries: Vec<_> =
        Dir::read_from(directory)?.flatten().map(|e| (e.file_name().to_owned(), e.file_type())).collect();
    for (name, kind) in entries.iter().filter(|(name, _)| !matches!(name.to_bytes(), b"." | b"..")) {
        if *kind != FileType::Directory && unlinkat(directory, name, AtFlags::empty()).is_ok() {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        open_up(directory, name);
        if depth >= DEEP {
            // It is found there in the next round.
            *moved += 1;
            renameat(directory, name, top, format!("{moved}-moved-up"))?;
            gone = false;
            continue;
        }
        let inner = openat(directory, name, flags, Mode::empty())?;
        match empty(top, &inner, depth + 1, moved)? {
            true => unlinkat(directory, name, AtFlags::REMOVEDIR)?,
            false => gone = false,
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn what_is_closed_and_what_is_deep_goes() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tmp");
        fs::create_dir_all(root.join("closed/inner")).unwrap();
        fs::write(root.join("closed/inner/file"), "x").unwrap();
        std::os::unix::fs::symlink(dir.path(), root.join("closed/link")).unwrap();
        let beside = dir.path().join("beside");
        fs::write(&beside, "stays").unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&beside, root.join("to-beside")).unwrap();
        // For root nothing is closed: the step is tried by itself.
        let at: OwnedFd = fs::File::open(&root).unwrap().into();
        open_up(&at, c"to-beside");
        assert_eq!(fs::metadata(&beside).unwrap().permissions().mode() & 0o777, 0o640, "a link is not followed");
        for name in ["closed/inner", "closed"] {
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o300)).unwrap();
        }
        // Deeper than a path may be long.
        let mut at: OwnedFd = fs::File::open(&root).unwrap().into();
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&at, "deep", Mode::RWXU).unwrap();
            at = openat(&at, "deep", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        drop(at);
        fs::set_permissions(&root, fs::Permissions::from_mode(0o500)).unwrap();
        remove(&root).unwrap();
        assert!(!root.exists());
        assert_eq!(
            fs::metadata(&beside).unwrap().permissions().mode() & 0o777,
            0o640,
            "what a link led to is as it was"
        );
    }
}
