//! Small file operations that must be durable or exclusive, and random numbers.

use rustix::fs::{self, Mode, OFlags};
use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
};

/// Writes a file of mode 0600 whole or not at all, and waits until it is on the disk.
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
        // What it holds may be secret.
        let _ = fs::unlinkat(&dir_fd, temp.as_str(), fs::AtFlags::empty());
    }
    written?;
    dir_fd.sync_all()
}

/// Random bytes from the kernel.
#[must_use]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel's random numbers are always there once it has booted");
    bytes
}
