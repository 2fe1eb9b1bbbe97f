//! Builds another ledger from what can still be read of a damaged one and from the task directories.
//!
//! The damaged ledger itself is never touched. The request, the requester and the reason of a permission are only in
//! the ledger: if they cannot be read there, they are lost.

use crate::{
    Home, clock,
    high_water::HighWaterMark,
    journal,
    ledger::{Ledger, LedgerEntry, LedgerError, LedgerReader, chained_line},
};
use countersign_model::{
    Audience, CredentialKind, Decision, Digest, Frame, HashChain, Mode, OnSessionEnd, Outcome, PrincipalId, Profile,
    Record, RecordContent, StreamName, TaskId, Text, Timestamp, Tool,
};
use rusqlite::{Connection, ErrorCode, Row, params};
use std::{
    collections::HashMap,
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

/// How much of the end of a journal is searched for its last frame.
const MAX_TAIL_BYTES: u64 = 1024 * 1024;
const BATCH_ENTRIES: usize = 1024;

/// How many consecutive numbers are tried after the last readable decision if their count is unknown.
const MAX_BLIND_PROBES: i64 = 10_000;

/// What a salvaged ledger contains, and what it lacks.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SalvageReport {
    /// Decisions that were copied unchanged.
    pub decisions: u64,
    /// Ranges of lost decisions: first and last number.
    pub lost: Vec<(i64, i64)>,
    /// Decisions that do not match the chain.
    pub changed: Vec<i64>,
    /// Tasks that are known only from their directory.
    pub remade: u64,
    pub receipts: u64,
    /// Some decisions could not be read: more may be lost than can be counted.
    pub torn: bool,
}

impl SalvageReport {
    /// Whether every decision is present and unchanged.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.torn && self.lost.is_empty() && self.changed.is_empty()
    }

    /// The number of lost decisions.
    #[must_use]
    pub fn lost_count(&self) -> u64 {
        self.lost.iter().map(|(from, to)| to.abs_diff(*from) + 1).sum()
    }
}

/// Creates a ledger at `target` from what can still be read of the home's ledger, and from the task directories.
/// Decisions keep their numbers, so that lost ones remain a gap that verification reports.
pub fn salvage(home: &Home, target: &Path) -> Result<(Ledger, SalvageReport), LedgerError> {
    remove_ledger(target).map_err(|e| LedgerError::unreadable(target, e))?;
    let mut copy = LedgerCopy::default();
    {
        let ledger = Ledger::open(target)?;
        // The copy need not survive a power failure: the original still exists.
        ledger.conn.execute_batch("PRAGMA synchronous = OFF; BEGIN")?;
        if home.ledger().exists()
            && let Ok(from) = LedgerReader::open(&home.ledger())
        {
            copy.copy_decisions(home, &from.conn, &ledger.conn)?;
            copy.copy_receipts(&from.conn, &ledger.conn)?;
        } else if let Some(mark) = HighWaterMark::read(&home.ledger()) {
            copy.salvaged.lost.push((1, mark.decision));
        }
        ledger.conn.execute_batch("COMMIT")?;
    }
    // Opened again, so that the chain continues from the last copied decision.
    let mut ledger = Ledger::open(target)?;
    let mut entries = Vec::new();
    for task in task_directories(home).into_iter().filter(|task| !copy.tasks.contains_key(task)) {
        let guessed = derive_decisions(home, task).unwrap_or_default();
        copy.salvaged.remade += u64::from(!guessed.is_empty());
        entries.extend(guessed);
        if entries.len() >= BATCH_ENTRIES {
            ledger.commit(&std::mem::take(&mut entries))?;
        }
    }
    if !entries.is_empty() {
        ledger.commit(&entries)?;
    }
    ledger.rebuild_index()?;
    ledger.restore_home_id()?;
    Ok((ledger, copy.salvaged))
}

/// Removes a ledger that is no longer needed, with all files beside it.
pub(crate) fn remove_ledger(ledger: &Path) -> io::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        match fs::remove_file(sidecar_path(ledger, suffix)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    crate::high_water::remove_mark(ledger)
}

/// The path of a file that SQLite keeps beside a database.
pub(crate) fn sidecar_path(ledger: &Path, suffix: &str) -> PathBuf {
    let mut name = ledger.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A copy in progress.
#[derive(Default)]
struct LedgerCopy {
    salvaged: SalvageReport,
    tasks: HashMap<TaskId, TaskNumbering>,
}

/// Whether the decisions of a task are complete: they are numbered without gaps until the launch.
#[derive(Default)]
struct TaskNumbering {
    next: u64,
    planned: bool,
    launched: bool,
    settled: bool,
    sealed: bool,
    gap: bool,
}

impl TaskNumbering {
    fn add_record(&mut self, record: &Record) {
        let RecordContent::Decision(decision) = &record.what else { return };
        self.gap |= !self.launched && record.seq != self.next;
        self.next = record.seq.saturating_add(1);
        match decision {
            Decision::Planned { .. } => self.planned = true,
            Decision::Launched { .. } | Decision::Observing { .. } => self.launched = true,
            Decision::Settled { .. } => self.settled = true,
            Decision::Sealed(_) => self.sealed = true,
            _ => {}
        }
    }
}

impl LedgerCopy {
    fn copy_decisions(&mut self, home: &Home, from: &Connection, to: &Connection) -> Result<(), LedgerError> {
        let mark = HighWaterMark::read(&home.ledger()).map(|m| m.decision);
        let mut insert =
            to.prepare("INSERT OR IGNORE INTO decisions (n, task, seq, line, head) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        let mut chain = HashChain::for_ledger();
        let mut last = 0;
        let query = "SELECT n, task, seq, line, head FROM decisions WHERE n >= ?1 ORDER BY n";
        let clean = scan_readable(from, query, "SELECT max(n) FROM decisions", mark, |row| {
            let (n, line): (i64, String) = (row.get(0)?, row.get(3)?);
            let (task, seq): (Option<String>, Option<i64>) = (row.get(1)?, row.get(2)?);
            let head = Digest::from_bytes(row.get(4)?);
            let parsed = task.as_deref().map(str::parse::<TaskId>);
            let (Ok(record), false) = (Record::parse(&line), matches!(parsed, Some(Err(_))) || n <= last) else {
                return Ok(());
            };
            if insert.execute(params![n, task, seq, line, head.as_bytes()])? == 0 {
                return Ok(());
            }
            self.add_lost(last + 1, n - 1);
            let follows = n == last + 1;
            chain.push_line(&chained_line(task.as_deref(), &line));
            if follows && chain.head() != head {
                self.salvaged.changed.push(n);
            }
            chain = HashChain::resume(head);
            last = n;
            self.salvaged.decisions += 1;
            if let Some(Ok(task)) = parsed {
                self.tasks.entry(task).or_default().add_record(&record);
            }
            Ok(())
        })?;
        self.salvaged.torn = !clean;
        self.add_lost(last + 1, mark.unwrap_or(0));
        // A task without its first decision, or unfinished with missing decisions, cannot be continued. Its directory
        // shows how it ended.
        let mut delete = to.prepare("DELETE FROM decisions WHERE task = ?1")?;
        let begun = |task: &TaskId| home.task_dir(*task).join(journal::JOURNAL_FILE).exists();
        let broken = |(task, numbering): &(&TaskId, &TaskNumbering)| {
            !numbering.planned || !numbering.settled && (numbering.gap || !numbering.launched && begun(task))
        };
        for task in self.tasks.iter().filter(broken).map(|(task, _)| *task).collect::<Vec<_>>() {
            delete.execute(params![task.to_string()])?;
            self.tasks.remove(&task);
        }
        Ok(())
    }

    fn add_lost(&mut self, from: i64, to: i64) {
        if from <= to {
            self.salvaged.lost.push((from, to));
        }
    }

    /// Copies only receipts that a decision names. Other tasks are sealed again.
    fn copy_receipts(&mut self, from: &Connection, to: &Connection) -> Result<(), LedgerError> {
        let mut insert = to.prepare(
            "INSERT OR IGNORE INTO receipts (number, id, task, payload, key, signature) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        let query = "SELECT number, id, task, payload, key, signature FROM receipts WHERE number >= ?1 ORDER BY number";
        scan_readable(from, query, "SELECT max(number) FROM receipts", None, |row| {
            let task: String = row.get(2)?;
            if task.parse().is_ok_and(|task: TaskId| self.tasks.get(&task).is_some_and(|numbering| numbering.sealed)) {
                let bytes = |i| row.get::<_, Vec<u8>>(i);
                let row = params![
                    row.get::<_, i64>(0)?,
                    row.get::<_, String>(1)?,
                    task,
                    row.get::<_, String>(3)?,
                    bytes(4)?,
                    bytes(5)?
                ];
                self.salvaged.receipts += insert.execute(row)? as u64;
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Reads a table by number and skips what cannot be read. Returns whether everything could be read.
fn scan_readable(
    from: &Connection,
    query: &str,
    last: &str,
    at_least: Option<i64>,
    mut each: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> Result<bool, LedgerError> {
    let Ok(mut query) = from.prepare(query) else { return Ok(false) };
    let known = from.query_row(last, [], |r| r.get::<_, Option<i64>>(0)).ok().flatten().max(at_least);
    let (mut at, mut failed, mut clean) = (0, 0, true);
    loop {
        let mut rows = query.query(params![at])?;
        loop {
            match rows.next() {
                Ok(None) => return Ok(clean),
                Ok(Some(row)) => {
                    failed = 0;
                    at = row.get::<_, i64>(0).map_or(at, |n| n.max(at).saturating_add(1));
                    // A malformed value counts as lost.
                    if let Err(e) = each(row)
                        && e.sqlite_error_code().is_some_and(|code| code != ErrorCode::DatabaseCorrupt)
                    {
                        return Err(e.into());
                    }
                }
                Err(_) => break,
            }
        }
        // The page of this number cannot be read; the next number may be on another page.
        (at, failed, clean) = (at.saturating_add(1), failed + 1, false);
        if known.map_or(failed > MAX_BLIND_PROBES, |known| at > known) {
            return Ok(clean);
        }
    }
}

/// Every task that has a directory, in order.
pub(crate) fn task_directories(home: &Home) -> Vec<TaskId> {
    let children = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<_>>();
    let all = children(&home.tasks()).into_iter().flat_map(|shard| children(&shard));
    let mut tasks: Vec<TaskId> = all.filter_map(|p| p.file_name()?.to_str()?.parse().ok()).collect();
    tasks.sort_unstable();
    tasks
}

/// The decisions that can be derived from a journal: that the task was launched, and how it ended.
fn derive_decisions(home: &Home, task: TaskId) -> io::Result<Vec<LedgerEntry>> {
    let dir = home.task_dir(task);
    let mut reader = journal::JournalReader::open(&dir, 0)?;
    let Some((_, first)) = reader.lines(64 * 1024)?.into_iter().next() else { return Ok(Vec::new()) };
    let first = Record::parse(&first).map_err(io::Error::other)?;
    let mode = if dir.join(StreamName::Pty.file()).exists() { Mode::Pty } else { Mode::Pipes };
    let unknown = Text::from_static("unknown: the ledger could not be read");
    let planned = Decision::Planned {
        plan_digest: Digest::sha256(&[]),
        display: unknown.clone(),
        verb: Text::from_static("unknown"),
        cwd: Text::from_static("unknown"),
        mode,
        tool: Tool::Shell,
        title: None,
        rationale: None,
        labels: Default::default(),
        session: None,
        principal: PrincipalId::owner(),
        credential: CredentialKind::Person,
        risks: Vec::new(),
        audience: Audience::Personal,
        profile: Profile::Safe,
        background: false,
        limits: Box::default(),
        workspace: None,
        on_session_end: OnSessionEnd::Keep,
        idempotency: None,
    };
    let at = task.created_at();
    let mut entries = vec![task_entry(task, 0, at, planned)];
    // The decisions between request and launch are known only by their numbers.
    for seq in 1..first.seq.saturating_sub(1) {
        entries.push(task_entry(task, seq, at, Decision::Lost { known: unknown.clone() }));
    }
    entries.push(task_entry(task, first.seq - 1, first.at, Decision::Launched { shim_pid: 0, first_seq: first.seq }));
    if let Some((seq, at, outcome)) = read_outcome(&dir)? {
        entries.push(task_entry(task, seq, at, Decision::Settled { outcome, journal_head: None, recovered: true }));
    }
    Ok(entries)
}

/// How a task ended; none while its journal has a writer.
fn read_outcome(dir: &Path) -> io::Result<Option<(u64, Timestamp, Outcome)>> {
    let mut file = crate::output::open_regular(&dir.join("journal"))?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(MAX_TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.take(MAX_TAIL_BYTES).read_to_end(&mut tail)?;
    let text = String::from_utf8_lossy(&tail);
    let last = text.lines().rev().find_map(|line| Record::parse(line).ok());
    if let Some(Record { seq, at, what: RecordContent::Frame(Frame::Closed { outcome, .. }), .. }) = last {
        return Ok(Some((seq + 1, at, outcome)));
    }
    if journal::take_over(dir)?.is_none() {
        return Ok(None);
    }
    let why = Text::from_static("its shim has ended without closing its journal");
    let (seq, at) = last.map_or((u64::MAX, clock::now()), |r| (r.seq + 1, r.at));
    Ok((seq != u64::MAX).then_some((seq, at, Outcome::Lost { why })))
}

fn task_entry(task: TaskId, seq: u64, at: Timestamp, decision: Decision) -> LedgerEntry {
    let line = Record::decision_line(seq, at, &decision);
    LedgerEntry { task: Some(task), seq, at, line, decision, receipt: None }
}
