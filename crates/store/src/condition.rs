//! Whether the ledger can be used: it can be read, it reaches its high-water mark, and it knows the newest task
//! directories. This module only reads; it never changes a faulty ledger.

use crate::{
    Home,
    high_water::HighWaterMark,
    ledger::{LedgerError, LedgerReader},
};
use countersign_model::TaskId;
use rusqlite::{OptionalExtension as _, params};
use std::{fs, path::Path};

/// Checking every page of a ledger up to this size takes a few milliseconds.
const SMALL_LEDGER_BYTES: u64 = 16 * 1024 * 1024;
/// How many of the newest task directories are checked.
const MAX_CHECKED_TASKS: usize = 64;

/// How much of the ledger file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckDepth {
    /// Every page if that is quick; otherwise only what a daemon needs to continue.
    Quick,
    /// Every page.
    Whole,
}

/// Whether the ledger of a home can be used. A home that never had one is fine.
pub fn check(home: &Home, depth: CheckDepth) -> Result<(), LedgerError> {
    let path = home.ledger();
    let (mark, newest) = (HighWaterMark::read(&path), newest_tasks(home));
    let gone = || {
        if mark.is_some() || !newest.is_empty() { Err(LedgerError::Gone { path: path.clone() }) } else { Ok(()) }
    };
    let size = match fs::metadata(&path) {
        Ok(meta) => meta.len(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return gone(),
        Err(e) => return Err(LedgerError::unreadable(&path, e)),
    };
    // SQLite treats an empty file as a new database; a write-ahead log beside it shows that it was not new.
    let log = fs::metadata(path.with_extension("db-wal")).map_or(0, |m| m.len());
    if size == 0 && log > 0 {
        return Err(LedgerError::Gone { path });
    }
    let damaged = |e| LedgerError::damaged(&path, e);
    let ledger = LedgerReader::open(&path).map_err(damaged)?;
    let tables = "SELECT count(*) FROM sqlite_schema";
    if ledger.conn.query_row(tables, [], |r| r.get::<_, i64>(0)).map_err(|e| damaged(e.into()))? == 0 {
        return gone();
    }
    ledger.check_version().map_err(damaged)?;
    if depth == CheckDepth::Whole || size <= SMALL_LEDGER_BYTES {
        ledger.check_pages(&path).map_err(damaged)?;
    }
    check_mark(&ledger, mark, &path).map_err(damaged)?;
    check_newest_tasks(&ledger, home, &newest).map_err(damaged)
}

/// Whether a quick check reads every page.
#[must_use]
pub fn is_small(home: &Home) -> bool {
    fs::metadata(home.ledger()).is_ok_and(|m| m.len() <= SMALL_LEDGER_BYTES)
}

/// The ledger must contain the decision that its mark names, with the same hash.
fn check_mark(ledger: &LedgerReader, mark: Option<HighWaterMark>, path: &Path) -> Result<(), LedgerError> {
    let Some(mark) = mark else { return Ok(()) };
    let (ends, _) = ledger.head()?;
    let head: Option<Vec<u8>> = ledger
        .conn
        .query_row("SELECT head FROM decisions WHERE n = ?1", params![mark.decision], |r| r.get(0))
        .optional()?;
    match head {
        Some(head) if head == mark.head.as_bytes() => Ok(()),
        Some(_) => Err(LedgerError::Other { path: path.to_owned(), decision: mark.decision }),
        None => Err(LedgerError::Older { path: path.to_owned(), ends, mark: mark.decision }),
    }
}

/// A task's directory is created after its launch was recorded in the ledger.
fn check_newest_tasks(ledger: &LedgerReader, home: &Home, newest: &[TaskId]) -> Result<(), LedgerError> {
    // A settled task was launched, even if that decision was lost and the ledger repaired.
    let launched = "SELECT max(line LIKE '%\"kind\":\"task.launched\"%' OR line LIKE '%\"kind\":\"task.settled\"%')
                    FROM decisions WHERE task = ?1";
    let mut query = ledger.conn.prepare(launched)?;
    for task in newest {
        let launched: Option<bool> = query.query_row(params![task.to_string()], |r| r.get(0))?;
        let begun = home.task_dir(*task).join(crate::journal::JOURNAL_FILE).exists();
        if launched.is_none() || begun && launched == Some(false) {
            return Err(LedgerError::Behind { path: home.ledger(), task: *task });
        }
    }
    Ok(())
}

/// The newest tasks that have a directory: those of the last shard that has any.
fn newest_tasks(home: &Home) -> Vec<TaskId> {
    let names = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort_unstable_by(|a, b| b.cmp(a));
        names
    };
    for shard in names(&home.tasks()) {
        let tasks = names(&home.tasks().join(&shard)).into_iter();
        let tasks = tasks.filter_map(|name| name.parse::<TaskId>().ok()).filter(|task| task.shard() == shard);
        let newest: Vec<TaskId> = tasks.take(MAX_CHECKED_TASKS).collect();
        if !newest.is_empty() {
            return newest;
        }
    }
    Vec::new()
}
