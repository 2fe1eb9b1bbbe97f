//! The high-water mark: how far the ledger had come, in a file beside it. A ledger that ends before its mark has lost
//! decisions.
//!
//! The mark is written after each commit is durable and is never synced itself. After a power failure it may be older
//! than the ledger, but never newer, so that an ordinary crash raises no alarm.

use countersign_model::Digest;
use rustix::fs::{Mode, OFlags};
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// The number of a decision, and the head of the chain there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HighWaterMark {
    pub(crate) decision: i64,
    pub(crate) head: Digest,
}

const MAX_MARK_BYTES: u64 = 256;

/// The path of a ledger's mark.
pub(crate) fn mark_path(ledger: &Path) -> PathBuf {
    ledger.with_extension("mark")
}

impl HighWaterMark {
    /// The mark of a ledger; none if there is no mark, or if it cannot be read.
    pub(crate) fn read(ledger: &Path) -> Option<Self> {
        use std::io::Read as _;
        let mut text = String::new();
        let file = crate::output::open_regular(&mark_path(ledger)).ok()?;
        file.take(MAX_MARK_BYTES).read_to_string(&mut text).ok()?;
        let (decision, head) = text.trim_end().split_once(' ')?;
        Some(Self { decision: decision.parse().ok()?, head: Digest::parse(head)? })
    }
}

/// The open file of a ledger's mark.
pub(crate) struct HighWaterFile {
    file: Option<File>,
}

impl HighWaterFile {
    /// Opens the mark. A mark that cannot be written only weakens the check at the next start.
    pub(crate) fn open(ledger: &Path) -> Self {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(mark_path(ledger), flags, Mode::RUSR | Mode::WUSR).map(File::from);
        Self { file: file.ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file())) }
    }

    /// Records a durable commit. All lines have the same length, so a later one overwrites an earlier one completely.
    pub(crate) fn write_mark(&self, decision: i64, head: Digest) {
        if let Some(file) = &self.file {
            let _ = file.write_all_at(format!("{decision:020} {head}\n").as_bytes(), 0);
        }
    }
}

/// Removes the mark of a ledger.
pub(crate) fn remove_mark(ledger: &Path) -> io::Result<()> {
    match std::fs::remove_file(mark_path(ledger)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
