//! The directory in which a shell ended, reported by the shell itself when it exits.
//!
//! Bash reads the file that `BASH_ENV` names before it runs its command. Here that file is a pipe with a short script:
//! it unsets the variable and makes the shell write its directory into another pipe when it exits. Both are pipes,
//! since an inherited descriptor must not be a file that can be written and executed. A command that sets its own trap
//! or replaces the shell reports nothing; then nothing is recorded.

use rustix::{
    fd::OwnedFd,
    pipe::{PipeFlags, pipe_with},
};
use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsRawFd as _, RawFd},
};

/// The descriptor numbers in the child: far from those that scripts use.
const SCRIPT_FD: RawFd = 197;
const REPORT_FD: RawFd = 198;
const MAX_PATH_BYTES: usize = 4096;

/// The two pipes between the shim and the shell of a task.
pub(crate) struct FinalCwd {
    /// The child's ends: the script that it reads, and the pipe that it writes to.
    script_read: OwnedFd,
    report_write: OwnedFd,
    report_read: File,
}

impl FinalCwd {
    pub(crate) fn new() -> io::Result<Self> {
        let (script_read, script_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (report_read, report_write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let text = format!(
            "unset BASH_ENV\nexec {SCRIPT_FD}<&-\ntrap '{{ builtin pwd -P >&{REPORT_FD}; }} 2>/dev/null || :' EXIT\n"
        );
        File::from(script_write).write_all(text.as_bytes())?;
        Ok(Self { script_read, report_write, report_read: File::from(report_read) })
    }

    /// The shim's numbers of the descriptors, and their numbers in the child.
    pub(crate) fn child_descriptors(&self) -> [(RawFd, RawFd); 2] {
        [(self.script_read.as_raw_fd(), SCRIPT_FD), (self.report_write.as_raw_fd(), REPORT_FD)]
    }

    /// The environment variable for the shell. The shell opens the path, not the shim.
    pub(crate) fn env_variable() -> (String, String) {
        ("BASH_ENV".to_owned(), format!("/proc/self/fd/{SCRIPT_FD}"))
    }

    /// The directory that the shell reported, if it is an absolute path.
    pub(crate) fn read_report(mut self) -> Option<String> {
        let mut bytes = [0; MAX_PATH_BYTES + 1];
        let n = self.report_read.read(&mut bytes).ok()?;
        let path = bytes[..n].strip_suffix(b"\n")?;
        let path = String::from_utf8(path.to_vec()).ok()?;
        (path.starts_with('/') && !path.contains('\0')).then_some(path)
    }
}
