//! Where a shell ended: told by the shell itself, as it leaves.
//!
//! Bash reads the file that `BASH_ENV` names before its command. Ours is a pipe with a few lines in it, which forget the
//! variable and have the shell say its directory into another pipe when it exits. Pipes, since what is inherited must
//! not be something that could be written and executed. A command that sets a trap of its own, or that becomes another
//! program, tells nothing; then nothing is known, and nothing is said.

use rustix::{
    fd::OwnedFd,
    pipe::{PipeFlags, pipe_with},
};
use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsRawFd as _, RawFd},
};

/// The numbers that the child knows them by: far from those that scripts use.
const ASKED: RawFd = 197;
const TOLD: RawFd = 198;
const LONGEST: usize = 4096;

/// What the shell of a task is given to tell where it ended.
pub(crate) struct FinalCwd {
    /// What it is to read, and what it is to write to: the child's ends.
    asked: OwnedFd,
    tells: OwnedFd,
    told: File,
}

impl FinalCwd {
    pub(crate) fn new() -> io::Result<Self> {
        let (asked, asks) = pipe_with(PipeFlags::CLOEXEC)?;
        let (told, tells) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let text =
            format!("unset BASH_ENV\nexec {ASKED}<&-\ntrap '{{ builtin pwd -P >&{TOLD}; }} 2>/dev/null || :' EXIT\n");
        File::from(asks).write_all(text.as_bytes())?;
        Ok(Self { asked, tells, told: File::from(told) })
    }

    /// The descriptors of the child, and their numbers there.
    pub(crate) fn also(&self) -> [(RawFd, RawFd); 2] {
        [(self.asked.as_raw_fd(), ASKED), (self.tells.as_raw_fd(), TOLD)]
    }

    /// The variable that the shell is given for it: a path that the shell opens, not we.
    pub(crate) fn variable() -> (String, String) {
        ("BASH_ENV".to_owned(), format!("/proc/self/fd/{ASKED}"))
    }

    /// What it said: an absolute path, or nothing that is one.
    pub(crate) fn told(mut self) -> Option<String> {
        let mut bytes = [0; LONGEST + 1];
        let n = self.told.read(&mut bytes).ok()?;
        let path = bytes[..n].strip_suffix(b"\n")?;
        let path = String::from_utf8(path.to_vec()).ok()?;
        (path.starts_with('/') && !path.contains('\0')).then_some(path)
    }
}
