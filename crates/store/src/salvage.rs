//! What can be told without a sound ledger: another one, made from what still reads of it and from the task directories.
//!
//! The ledger itself is not touched. What was asked, by whom and why it was allowed is not in a task's directory: where the
//! ledger does not tell it any more, it is lost.

use crate::{
    Home, clock,
    high_water::HighWaterMark,
    journal,
    ledger::{Ledger, LedgerEntry, LedgerError, LedgerReader, chained},
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

/// The end of a journal that is looked at for its last frame.
const TAIL: u64 = 1024 * 1024;
const BATCH: usize = 1024;

/// So many numbers in a row are tried behind the last decision that reads, when nothing says how many there were.
const MAX_BLIND_PROBES: i64 = 10_000;

/// What a salvaged ledger holds, and what it does not.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SalvageReport {
    /// Decisions that were taken over as they stood.
    pub decisions: u64,
    /// Decisions that are lost, from and to.
    pub lost: Vec<(i64, i64)>,
    /// Decisions that are not what was chained.
    pub changed: Vec<i64>,
    /// Tasks of which only their directory tells.
    pub remade: u64,
    pub receipts: u64,
    /// Somewhere the decisions did not read: more may be lost than can be counted.
    pub torn: bool,
}

impl SalvageReport {
    /// Whether every decision is there as it was taken.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.torn && self.lost.is_empty() && self.changed.is_empty()
    }

    /// How many decisions are lost.
    #[must_use]
    pub fn lost_count(&self) -> u64 {
        self.lost.iter().map(|(from, to)| to.abs_diff(*from) + 1).sum()
    }
}

/// Makes a ledger at `target` from what still reads of the home's own, and from the task directories. The home's ledger is
/// not touched. Decisions keep their numbers, so that what is lost stays a gap that verification names.
pub fn salvage(home: &Home, target: &Path) -> Result<(Ledger, SalvageReport), LedgerError> {
    remove(target).map_err(|e| LedgerError::unreadable(target, e))?;
    let mut copy = LedgerCopy::default();
    {
        let ledger = Ledger::open(target)?;
        // The copy is not needed after a power failure: the original is still there.
        ledger.conn.execute_batch("PRAGMA synchronous = OFF; BEGIN")?;
        if home.ledger().exists()
            && let Ok(from) = LedgerReader::open(&home.ledger())
        {
            copy.decisions(home, &from.conn, &ledger.conn)?;
            copy.receipts(&from.conn, &ledger.conn)?;
        } else if let Some(mark) = HighWaterMark::read(&home.ledger()) {
            copy.salvaged.lost.push((1, mark.decision));
        }
        ledger.conn.execute_batch("COMMIT")?;
    }
    // Opened again: the chain goes on from the last decision that was copied.
    let mut ledger = Ledger::open(target)?;
    let mut entries = Vec::new();
    for task in tasks(home).into_iter().filter(|task| !copy.tasks.contains_key(task)) {
        let told = told(home, task).unwrap_or_default();
        copy.salvaged.remade += u64::from(!told.is_empty());
        entries.extend(told);
        if entries.len() >= BATCH {
            ledger.commit(&std::mem::take(&mut entries))?;
        }
    }
    if !entries.is_empty() {
        ledger.commit(&entries)?;
    }
    ledger.rebuild_index()?;
    ledger.restore_home()?;
    Ok((ledger, copy.salvaged))
}

/// Takes a ledger that nobody needs away, with all that SQLite and we keep beside it.
pub(crate) fn remove(ledger: &Path) -> io::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        match fs::remove_file(beside(ledger, suffix)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    crate::high_water::forget(ledger)
}

/// The name of a file that SQLite keeps beside a database.
pub(crate) fn beside(ledger: &Path, suffix: &str) -> PathBuf {
    let mut name = ledger.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A copy on its way.
#[derive(Default)]
struct LedgerCopy {
    salvaged: SalvageReport,
    tasks: HashMap<TaskId, TaskNumbering>,
}

/// Whether the decisions of a task are all there: they are numbered without gaps until it is launched.
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
    fn note(&mut self, record: &Record) {
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
    fn decisions(&mut self, home: &Home, from: &Connection, to: &Connection) -> Result<(), LedgerError> {
        let mark = HighWaterMark::read(&home.ledger()).map(|m| m.decision);
        let mut insert =
            to.prepare("INSERT OR IGNORE INTO decisions (n, task, seq, line, head) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        let mut chain = HashChain::for_ledger();
        let mut last = 0;
        let query = "SELECT n, task, seq, line, head FROM decisions WHERE n >= ?1 ORDER BY n";
        let clean = scan(from, query, "SELECT max(n) FROM decisions", mark, |row| {
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
            self.miss(last + 1, n - 1);
            let follows = n == last + 1;
            chain.push(&chained(task.as_deref(), &line));
            if follows && chain.head() != head {
                self.salvaged.changed.push(n);
            }
            chain = HashChain::resume(head);
            last = n;
            self.salvaged.decisions += 1;
            if let Some(Ok(task)) = parsed {
                self.tasks.entry(task).or_default().note(&record);
            }
            Ok(())
        })?;
        self.salvaged.torn = !clean;
        self.miss(last + 1, mark.unwrap_or(0));
        // What is left of a task without its beginning, or on its way with something missing, cannot be gone on from: its
        // directory tells what became of it.
        let mut delete = to.prepare("DELETE FROM decisions WHERE task = ?1")?;
        let begun = |task: &TaskId| home.task_dir(*task).join(journal::FILE).exists();
        let broken = |(task, life): &(&TaskId, &TaskNumbering)| {
            !life.planned || !life.settled && (life.gap || !life.launched && begun(task))
        };
        for task in self.tasks.iter().filter(broken).map(|(task, _)| *task).collect::<Vec<_>>() {
            delete.execute(params![task.to_string()])?;
            self.tasks.remove(&task);
        }
        Ok(())
    }

    fn miss(&mut self, from: i64, to: i64) {
        if from <= to {
            self.salvaged.lost.push((from, to));
        }
    }

    /// Only receipts that a decision speaks of: the task of any other is sealed again.
    fn receipts(&mut self, from: &Connection, to: &Connection) -> Result<(), LedgerError> {
        let mut insert = to.prepare(
            "INSERT OR IGNORE INTO receipts (number, id, task, payload, key, signature) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        let query = "SELECT number, id, task, payload, key, signature FROM receipts WHERE number >= ?1 ORDER BY number";
        scan(from, query, "SELECT max(number) FROM receipts", None, |row| {
            let task: String = row.get(2)?;
            if task.parse().is_ok_and(|task: TaskId| self.tasks.get(&task).is_some_and(|life| life.sealed)) {
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

/// Goes through a table by its number, past whatever does not read; whether all of it did.
fn scan(
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
                    // A value that is not what it should be is as good as lost.
                    if let Err(e) = each(row)
                        && e.sqlite_error_code().is_some_and(|code| code != ErrorCode::DatabaseCorrupt)
                    {
                        return Err(e.into());
                    }
                }
                Err(_) => break,
            }
        }
        // The page of this number does not read; the next number may be on another.
        (at, failed, clean) = (at.saturating_add(1), failed + 1, false);
        if known.map_or(failed > MAX_BLIND_PROBES, |known| at > known) {
            return Ok(clean);
        }
    }
}

/// Every task that has a directory, in order.
pub(crate) fn tasks(home: &Home) -> Vec<TaskId> {
    let children = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<_>>();
    let all = children(&home.tasks()).into_iter().flat_map(|shard| children(&shard));
    let mut tasks: Vec<TaskId> = all.filter_map(|p| p.file_name()?.to_str()?.parse().ok()).collect();
    tasks.sort_unstable();
    tasks
}

/// The decisions that a journal lets one guess: that it began, and how it ended.
fn told(home: &Home, task: TaskId) -> io::Result<Vec<LedgerEntry>> {
    let dir = home.task_dir(task);
    let mut reader = journal::JournalReader::open(&dir, 0)?;
    let Some((_, first)) = reader.lines(64 * 1024)?.into_iter().next() else { return Ok(Vec::new()) };
    let first = Record::parse(&first).map_err(io::Error::other)?;
    let mode = if dir.join(StreamName::Pty.file()).exists() { Mode::Pty } else { Mode::Pipes };
    let unknown = Text::from_static("not known: the ledger cannot be read");
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
    let mut entries = vec![entry(task, 0, at, planned)];
    // What was decided between asking and launch has its numbers, and nothing else is known of it.
    for seq in 1..first.seq.saturating_sub(1) {
        entries.push(entry(task, seq, at, Decision::Lost { known: unknown.clone() }));
    }
    entries.push(entry(task, first.seq - 1, first.at, Decision::Launched { shim_pid: 0, first_seq: first.seq }));
    if let Some((seq, at, outcome)) = ending(&dir)? {
        entries.push(entry(task, seq, at, Decision::Settled { outcome, journal_head: None, recovered: true }));
    }
    Ok(entries)
}

/// How a task ended; none while its journal has a writer.
fn ending(dir: &Path) -> io::Result<Option<(u64, Timestamp, Outcome)>> {
    let mut file = crate::output::regular(&dir.join("journal"))?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    let text = String::from_utf8_lossy(&tail);
    let last = text.lines().rev().find_map(|line| Record::parse(line).ok());
    if let Some(Record { seq, at, what: RecordContent::Frame(Frame::Closed { outcome, .. }), .. }) = last {
        return Ok(Some((seq + 1, at, outcome)));
    }
    if journal::take_over(dir)?.is_none() {
        return Ok(None);
    }
    let why = Text::from_static("its supervisor is gone and its journal was not closed");
    let (seq, at) = last.map_or((u64::MAX, clock::now()), |r| (r.seq + 1, r.at));
    Ok((seq != u64::MAX).then_some((seq, at, Outcome::Lost { why })))
}

fn entry(task: TaskId, seq: u64, at: Timestamp, decision: Decision) -> LedgerEntry {
    let line = Record::decision_line(seq, at, &decision);
    LedgerEntry { task: Some(task), seq, at, line, decision, receipt: None }
}
