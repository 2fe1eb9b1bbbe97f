//! How far the ledger had come, kept beside it: a ledger that ends before its mark has lost decisions.
//!
//! The mark is written after each commit is durable and is never synced itself. It can lag behind the ledger after a power
//! failure, but it is never ahead of it, so an ordinary crash raises no alarm.

use countersign_model::Digest;
use rustix::fs::{Mode, OFlags};
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// A decision's number and the head of the chain there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HighWaterMark {
    pub(crate) decision: i64,
    pub(crate) head: Digest,
}

const MAX_MARK_BYTES: u64 = 256;

/// Where the mark of a ledger is.
pub(crate) fn path_of(ledger: &Path) -> PathBuf {
    ledger.with_extension("mark")
}

impl HighWaterMark {
    /// The mark of a ledger; none if nobody has kept one, or if it does not read.
    pub(crate) fn read(ledger: &Path) -> Option<Self> {
        use std::io::Read as _;
        let mut text = String::new();
        let file = crate::output::regular(&path_of(ledger)).ok()?;
        file.take(MAX_MARK_BYTES).read_to_string(&mut text).ok()?;
        let (decision, head) = text.trim_end().split_once(' ')?;
        Some(Self { decision: decision.parse().ok()?, head: Digest::parse(head)? })
    }
}

/// Who keeps the mark of a ledger.
pub(crate) struct HighWaterFile {
    file: Option<File>,
}

impl HighWaterFile {
    /// A mark that cannot be kept is missed by nobody but the check at the next start.
    pub(crate) fn of(ledger: &Path) -> Self {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path_of(ledger), flags, Mode::RUSR | Mode::WUSR).map(File::from);
        Self { file: file.ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file())) }
    }

    /// Notes a commit that is durable. Lines have one length, so a later one covers an earlier one whole.
    pub(crate) fn note(&self, decision: i64, head: Digest) {
        if let Some(file) = &self.file {
            let _ = file.write_all_at(format!("{decision:020} {head}\n").as_bytes(), 0);
        }
    }
}

/// Takes the mark of a ledger away.
pub(crate) fn forget(ledger: &Path) -> io::Result<()> {
    match std::fs::remove_file(path_of(ledger)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
