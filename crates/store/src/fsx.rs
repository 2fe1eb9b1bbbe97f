//! Small file operations that must be durable or exclusive, and random numbers.

use rustix::fs::{self, Mode, OFlags};
use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
};

/// Writes a file of mode 0600 completely or not at all, and waits until it is on the disk.
pub(crate) fn write_durably(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let dir_fd = File::open(dir)?;
    let temp = format!(".{name}.new");
    let fd = fs::openat(
        &dir_fd,
        temp.as_str(),
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    )?;
    let mut file = File::from(fd);
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(fs::renameat(&dir_fd, temp.as_str(), &dir_fd, name)?));
    if written.is_err() {
        // The content may be secret.
        let _ = fs::unlinkat(&dir_fd, temp.as_str(), fs::AtFlags::empty());
    }
    written?;
    dir_fd.sync_all()
}

/// Waits until the names in a directory are on the disk.
#[cfg(feature = "ledger")]
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Reads a whole regular file of at most `max_bytes`. Never waits for anything else with that name, such as a pipe.
pub fn read_regular(path: &str, max_bytes: u64) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    const PROC: i64 = 0x9fa0;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // Does not follow magic links to open files, and refuses files that the kernel generates for the reading process.
    let file = File::from(fs::openat2(fs::CWD, path, flags, Mode::empty(), fs::ResolveFlags::NO_MAGICLINKS)?);
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > max_bytes || fs::fstatfs(&file)?.f_type == PROC {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(bytes) }
}

/// Random bytes from the kernel.
#[must_use]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel's random numbers are always there once it has booted");
    bytes
}
