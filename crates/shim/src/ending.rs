//! Where a shell ended: told by the shell itself, as it leaves.
//!
//! Bash reads the file that `BASH_ENV` names before its command. Ours is a few lines in memory that forget the variable
//! and have the shell write its directory over them when it exits. A command that sets a trap of its own, or that
//! becomes another program, tells nothing; then nothing is known, and nothing is said.

use rustix::fs::MemfdFlags;
use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::fd::{AsRawFd as _, RawFd},
};

/// The number that the child knows it by: far from those that scripts use.
pub(crate) const TOLD: RawFd = 198;
const LONGEST: u64 = 4096;

/// What the shell of a task is given to tell where it ended.
pub(crate) struct Ending(File);

impl Ending {
    pub(crate) fn new() -> io::Result<Self> {
        let mut file = File::from(rustix::fs::memfd_create("ending", MemfdFlags::CLOEXEC)?);
        write!(file, "unset BASH_ENV\ntrap 'builtin pwd -P >&{TOLD}' EXIT 2>/dev/null\n")?;
        // The place where the shell writes is that of the descriptor it gets: the beginning.
        file.rewind()?;
        Ok(Self(file))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The variable that the shell is given for it.
    pub(crate) fn variable() -> (String, String) {
        ("BASH_ENV".to_owned(), format!("/proc/self/fd/{TOLD}"))
    }

    /// What it said: an absolute path, or nothing that is one.
    pub(crate) fn told(mut self) -> Option<String> {
        self.0.rewind().ok()?;
        let mut bytes = Vec::new();
        (&self.0).take(LONGEST + 1).read_to_end(&mut bytes).ok()?;
        let end = bytes.iter().position(|b| *b == b'\n')?;
        bytes.truncate(end);
        let path = String::from_utf8(bytes).ok()?;
        (path.starts_with('/') && !path.contains('\0')).then_some(path)
    }
}
