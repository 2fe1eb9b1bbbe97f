//! The ledger: every decision of the daemon, in order, in SQLite. One writer; readers have their own connections.
//!
//! `decisions` is the source of truth and is chained: `h(n) = sha256(h(n-1) ‖ task ‖ ' ' ‖ line)`. The table `tasks` is
//! an index over it and can be rebuilt at any time.

use crate::{
    Home,
    condition::{self, CheckDepth},
    high_water::HighWaterFile,
    receipts::{self, SignedReceipt},
    recent_decisions::RecentDecisions,
};
use countersign_model::{
    ApprovalId, DecidedBy, Decision, Digest, HashChain, Idempotency, PrincipalId, Question, Record, RecordContent,
    RegisterEntry, Scope, SessionId, Status, TaskId, TaskState, Timestamp,
};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, config::DbConfig, params};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// How long a connection waits for another one; while the daemon stops, only briefly.
const BUSY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
const CHECKPOINT_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(200);

/// How many read connections are kept for reuse.
const MAX_IDLE_READERS: usize = 4;

/// Each entry upgrades the schema by one version; the first one creates it.
const MIGRATIONS: &[&str] = &[INITIAL_SCHEMA, REGISTER_SCHEMA, receipts::SCHEMA, HOME_ID_SCHEMA];

/// No table changes: the ledger may contain `home.named`, and a program that does not know it would seal receipts
/// without the home id.
const HOME_ID_SCHEMA: &str = "";

/// The owner of each task, whether it waits for a person, and decisions that concern no task.
const REGISTER_SCHEMA: &str = concat!(
    "
    ALTER TABLE tasks ADD COLUMN principal TEXT NOT NULL DEFAULT 'pr_0000000000000000';
    ALTER TABLE tasks ADD COLUMN session TEXT;
    ALTER TABLE tasks ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;
    UPDATE tasks SET session = (SELECT json_extract(line, '$.session') FROM decisions WHERE n = first);
    UPDATE tasks SET waits = 1 WHERE settled = 0 AND status = 'queued' AND approval IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM decisions d WHERE d.task = tasks.id AND d.line LIKE '%\"kind\":\"permission.granted\"%');
    CREATE INDEX tasks_waiting ON tasks (id) WHERE waits = 1;
    CREATE INDEX ",
    "decisions_of_house",
    " ON decisions (n) WHERE task IS NULL;
"
);

const INITIAL_SCHEMA: &str = "
    CREATE TABLE decisions (
        n    INTEGER PRIMARY KEY,
        task TEXT,
        seq  INTEGER,
        line TEXT NOT NULL,
        head BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX decisions_of_task ON decisions (task, seq) WHERE task IS NOT NULL;
    CREATE TABLE tasks (
        id       TEXT PRIMARY KEY,
        status   TEXT NOT NULL,
        settled  INTEGER NOT NULL DEFAULT 0,
        approval TEXT,
        idem     TEXT,
        first    INTEGER NOT NULL,
        last     INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX tasks_open ON tasks (id) WHERE settled = 0;
    CREATE UNIQUE INDEX tasks_approval ON tasks (approval) WHERE approval IS NOT NULL;
    CREATE INDEX tasks_idem ON tasks (idem) WHERE idem IS NOT NULL;
";

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error(
        "the ledger has version {found}, and this program knows versions up to {known}: a newer version of Countersign \
         wrote it. Nothing was changed; use that version"
    )]
    Newer { found: i64, known: usize },
    #[error(
        "the ledger {path} is damaged: {error}. Nothing was changed. Restore it from a backup, or run `csn doctor --fix`, \
         which keeps the damaged file and recovers what can still be read"
    )]
    Damaged { path: PathBuf, error: String },
    #[error(
        "the ledger {path} is missing, but this home has been used before. Restore the file, or run `csn doctor --fix`, \
         which starts a new ledger from the task directories"
    )]
    Gone { path: PathBuf },
    #[error(
        "the ledger {path} ends at decision {ends}, but this home had reached decision {mark}: it is an old copy, or its \
         write-ahead log is missing. Restore the newer files, or run `csn doctor --fix`, which continues without the lost decisions"
    )]
    Older { path: PathBuf, ends: i64, mark: i64 },
    #[error(
        "the ledger {path} is not the one that was last used here: its decision {decision} differs. Restore the right file, \
         or run `csn doctor --fix`, which continues with this one"
    )]
    Other { path: PathBuf, decision: i64 },
    #[error(
        "the ledger {path} is older than the task directories: it does not know that {task} was started. Restore the newer \
         file, or run `csn doctor --fix`, which continues without the lost decisions"
    )]
    Behind { path: PathBuf, task: TaskId },
    #[error("the ledger cannot be used: {0}")]
    Sqlite(rusqlite::Error),
    #[error("decision {n} of the ledger cannot be parsed: {source}")]
    Record { n: i64, source: countersign_model::RecordError },
}

impl LedgerError {
    /// An error of SQLite or of a line, expressed as damage of the file.
    pub(crate) fn damaged(path: &Path, error: Self) -> Self {
        match error {
            LedgerError::Sqlite(error) => LedgerError::unreadable(path, error),
            LedgerError::Record { .. } => LedgerError::unreadable(path, error),
            other => other,
        }
    }

    pub(crate) fn unreadable(path: &Path, error: impl std::fmt::Display) -> Self {
        LedgerError::Damaged { path: path.to_owned(), error: error.to_string() }
    }

    /// Whether the file itself is unusable, rather than busy or on a full disk.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match self {
            LedgerError::Sqlite(error) => {
                matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
            }
            LedgerError::Newer { .. }
            | LedgerError::Damaged { .. }
            | LedgerError::Gone { .. }
            | LedgerError::Older { .. }
            | LedgerError::Other { .. }
            | LedgerError::Behind { .. }
            | LedgerError::Record { .. } => true,
        }
    }
}

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        LedgerError::Sqlite(error)
    }
}

type LedgerResult<T> = std::result::Result<T, LedgerError>;

/// A decision on its way into the ledger.
#[derive(Debug, Clone)]
pub struct LedgerEntry {
    /// None for a decision that concerns no task.
    pub task: Option<TaskId>,
    pub seq: u64,
    pub at: Timestamp,
    pub line: String,
    pub decision: Decision,
    /// The receipt that a `receipt.sealed` decision names.
    pub receipt: Option<Box<SignedReceipt>>,
}

/// The only writer.
pub struct Ledger {
    pub(crate) conn: Connection,
    chain: HashChain,
    next: i64,
    path: PathBuf,
    marker: HighWaterFile,
    recent: Arc<RecentDecisions>,
}

impl Ledger {
    /// Opens the ledger of a home if it can be used.
    pub fn open_home(home: &Home) -> LedgerResult<Self> {
        condition::check(home, CheckDepth::Quick)?;
        Self::open(&home.ledger())
    }

    /// Opens the ledger, upgrades an older one (and keeps a copy), and refuses a newer one.
    pub fn open(path: &Path) -> LedgerResult<Self> {
        let damaged = |error: rusqlite::Error| LedgerError::unreadable(path, error);
        let mut conn = Connection::open(path).map_err(damaged)?;
        // Files that SQLite creates beside it get the same mode.
        let _ = std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600));
        conn.busy_timeout(BUSY_TIMEOUT)?;
        migrate(&mut conn, path).map_err(|e| match e {
            LedgerError::Sqlite(source) => damaged(source),
            other => other,
        })?;
        conn.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;
             PRAGMA cache_size = -4096; PRAGMA journal_size_limit = 8388608;",
        )
        .map_err(damaged)?;
        let last: Option<(i64, [u8; 32])> = conn
            .query_row("SELECT n, head FROM decisions ORDER BY n DESC LIMIT 1", [], |r| Ok((r.get(0)?, r.get(1)?)))
            .optional()
            .map_err(damaged)?;
        let (next, chain) = match last {
            Some((n, head)) => (n + 1, HashChain::resume(Digest::from_bytes(head))),
            None => (1, HashChain::for_ledger()),
        };
        let marker = HighWaterFile::open(path);
        if next > 1 {
            marker.write_mark(next - 1, chain.head());
        }
        Ok(Self { conn, chain, next, path: path.to_owned(), marker, recent: Arc::default() })
    }

    /// Writes all entries in one transaction and waits until they are on the disk: all or none.
    pub fn commit<'a>(&mut self, entries: impl IntoIterator<Item = &'a LedgerEntry> + Clone) -> LedgerResult<()> {
        let (mut chain, mut next) = (self.chain, self.next);
        let tx = self.conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        {
            let mut insert =
                tx.prepare_cached("INSERT INTO decisions (n, task, seq, line, head) VALUES (?1, ?2, ?3, ?4, ?5)")?;
            for entry in entries.clone() {
                let task = entry.task.map(|t| t.to_string());
                chain.push_line(&chained_line(task.as_deref(), &entry.line));
                let seq = entry.task.map(|_| entry.seq as i64);
                insert.execute(params![next, task, seq, entry.line, chain.head().as_bytes()])?;
                update_index(&tx, next, task.as_deref(), &entry.decision)?;
                if let Some(signed) = &entry.receipt {
                    receipts::insert_receipt(&tx, signed)?;
                }
                next += 1;
            }
        }
        crate::crash::point("ledger.before_commit");
        tx.commit()?;
        crate::crash::point("ledger.after_commit");
        (self.chain, self.next) = (chain, next);
        self.recent.add(entries.into_iter());
        self.marker.write_mark(next - 1, chain.head());
        Ok(())
    }

    /// Rebuilds the index from the decisions.
    pub fn rebuild_index(&mut self) -> LedgerResult<()> {
        let tx = self.conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        tx.execute("DELETE FROM tasks", [])?;
        {
            let mut all = tx.prepare("SELECT n, task, line FROM decisions WHERE task IS NOT NULL ORDER BY n")?;
            let mut rows = all.query([])?;
            while let Some(row) = rows.next()? {
                let (n, task, line): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
                let record = Record::parse(&line).map_err(|source| LedgerError::Record { n, source })?;
                if let RecordContent::Decision(decision) = record.what {
                    update_index(&tx, n, Some(&task), &decision)?;
                }
            }
        }
        receipts::rebuild_artifacts(&tx)?;
        tx.commit()?;
        Ok(())
    }

    /// The number of the last decision.
    #[must_use]
    pub fn last_number(&self) -> i64 {
        self.next - 1
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A reader that finds recent decisions in memory.
    pub fn reader(&self) -> LedgerResult<LedgerReader> {
        LedgerReader::open_beside(&self.path, Some(&self.recent))
    }

    /// Readers that find recent decisions in memory. `on_damage` is called if something cannot be read.
    pub fn reader_pool(&self, on_damage: impl Fn() + Send + Sync + 'static) -> LedgerReaderPool {
        let idle = IdleReaders { path: self.path.clone(), recent: Some(Arc::clone(&self.recent)), readers: Vec::new() };
        LedgerReaderPool { idle: Mutex::new(idle), on_damage: Box::new(on_damage) }
    }

    /// Closes a damaged ledger without moving anything from its write-ahead log into it.
    pub fn abandon(self) {
        let _ = self.conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    }

    /// Moves the write-ahead log into the database, for a clean stop. Returns whether all of it was moved: pages that
    /// readers still use stay in the log, where the next daemon finds them.
    pub fn checkpoint(&self) -> LedgerResult<bool> {
        self.conn.execute_batch("PRAGMA optimize")?;
        self.conn.busy_timeout(CHECKPOINT_TIMEOUT)?;
        let busy: i64 = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |r| r.get(0))?;
        self.conn.busy_timeout(BUSY_TIMEOUT)?;
        Ok(busy == 0)
    }
}

pub(crate) fn chained_line(task: Option<&str>, line: &str) -> String {
    [task.unwrap_or("-"), " ", line].concat()
}

fn update_index(tx: &Connection, n: i64, task: Option<&str>, decision: &Decision) -> rusqlite::Result<()> {
    let Some(task) = task else { return Ok(()) };
    match decision {
        Decision::Planned { idempotency, principal, session, .. } => {
            let idem = idempotency.as_ref().map(|i| i.key.to_string());
            let session = session.map(|s| s.to_string());
            tx.prepare_cached(
                "INSERT INTO tasks (id, status, idem, first, principal, session) VALUES (?1, 'queued', ?2, ?3, ?4, ?5)",
            )?
            .execute(params![task, idem, n, principal.to_string(), session])?;
        }
        Decision::PermissionRequested { approval, .. } => {
            tx.prepare_cached("UPDATE tasks SET approval = ?2, waits = 1 WHERE id = ?1")?
                .execute(params![task, approval.to_string()])?;
        }
        // A task that the policy allows never waited.
        Decision::PermissionGranted { scope: Scope::Policy, .. } => {}
        Decision::PermissionGranted { .. } => {
            tx.prepare_cached("UPDATE tasks SET waits = 0 WHERE id = ?1 AND waits = 1")?.execute(params![task])?;
        }
        Decision::Launched { .. } | Decision::Observing { .. } => {
            tx.prepare_cached("UPDATE tasks SET status = 'running' WHERE id = ?1")?.execute(params![task])?;
        }
        Decision::Settled { outcome, .. } => {
            tx.prepare_cached("UPDATE tasks SET status = ?2, settled = 1, waits = 0, last = ?3 WHERE id = ?1")?
                .execute(params![task, outcome.status().to_string(), n])?;
        }
        Decision::Sealed(_) => {
            tx.prepare_cached("UPDATE tasks SET sealed = 1 WHERE id = ?1")?.execute(params![task])?;
        }
        Decision::PermissionDenied { .. }
        | Decision::Touched(_)
        | Decision::Shutdown(_)
        | Decision::HomeNamed { .. }
        | Decision::Key(_)
        | Decision::Queued { .. }
        | Decision::Withdrawn { .. }
        | Decision::Lost { .. }
        | Decision::Expired { .. }
        | Decision::Entered(_)
        | Decision::DaemonStateChanged { .. } => {}
    }
    Ok(())
}

fn migrate(conn: &mut Connection, path: &Path) -> LedgerResult<()> {
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Exclusive)?;
    let known = "SELECT count(*) FROM sqlite_schema WHERE name = 'schema_version'";
    let versioned = tx.query_row(known, [], |r| r.get::<_, i64>(0))? > 0;
    let found = if versioned {
        tx.query_row("SELECT max(version) FROM schema_version", [], |r| r.get::<_, i64>(0))?
    } else {
        0
    };
    let done = usize::try_from(found).unwrap_or(usize::MAX);
    if done > MIGRATIONS.len() {
        return Err(LedgerError::Newer { found, known: MIGRATIONS.len() });
    }
    if done == MIGRATIONS.len() {
        return Ok(());
    }
    if done > 0 {
        let copy = path.with_extension(format!("v{found}.db"));
        std::fs::copy(path, &copy).map_err(|e| {
            rusqlite::Error::ToSqlConversionFailure(
                format!("the old ledger could not be copied to {}: {e}", copy.display()).into(),
            )
        })?;
    }
    tx.execute_batch("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL, at TEXT NOT NULL) STRICT;")?;
    for (n, step) in MIGRATIONS.iter().enumerate().skip(done) {
        tx.execute_batch(step)?;
        tx.execute(
            "INSERT INTO schema_version (version, at) VALUES (?1, ?2)",
            params![n as i64 + 1, crate::clock::now().to_string()],
        )?;
    }
    tx.commit()?;
    Ok(())
}

/// Which tasks a list shows.
#[derive(Debug, Default, Clone)]
pub struct TaskFilter {
    pub status: Option<Status>,
    /// Only the tasks of this principal; none means everyone's.
    pub principal: Option<PrincipalId>,
    /// Only tasks whose id sorts before this one: the cursor of a page.
    pub before: Option<TaskId>,
    /// Only tasks requested at the time of this id or later.
    pub since: Option<TaskId>,
    pub verb: Option<String>,
    /// Only tasks of one of these sessions.
    pub sessions: Option<Vec<String>>,
    /// A part of the display text or the title.
    pub text: Option<String>,
    pub limit: u32,
}

/// A read-only view of everything that has been committed.
pub struct LedgerReader {
    pub(crate) conn: Connection,
    /// The decisions that the writer in this process has committed lately.
    recent: Option<Arc<RecentDecisions>>,
}

impl LedgerReader {
    pub fn open(path: &Path) -> LedgerResult<Self> {
        Self::open_beside(path, None)
    }

    fn open_beside(path: &Path, recent: Option<&Arc<RecentDecisions>>) -> LedgerResult<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(BUSY_TIMEOUT)?;
        conn.execute_batch("PRAGMA cache_size = -2048; PRAGMA temp_store = MEMORY;")?;
        Ok(Self { conn, recent: recent.cloned() })
    }

    /// Refuses a ledger that a newer program wrote.
    pub(crate) fn check_version(&self) -> LedgerResult<()> {
        let found: i64 = self.conn.query_row("SELECT max(version) FROM schema_version", [], |r| r.get(0))?;
        if usize::try_from(found).is_ok_and(|found| found <= MIGRATIONS.len()) {
            Ok(())
        } else {
            Err(LedgerError::Newer { found, known: MIGRATIONS.len() })
        }
    }

    /// Reads every page and finds overwritten ones.
    pub(crate) fn check_pages(&self, path: &Path) -> LedgerResult<()> {
        let result: String = self.conn.query_row("PRAGMA quick_check(1)", [], |r| r.get(0))?;
        if result == "ok" { Ok(()) } else { Err(LedgerError::unreadable(path, result.replace('\n', " "))) }
    }

    /// The lines of a task's decisions from number `from` on, with their numbers.
    pub fn decisions(&self, task: TaskId, from: u64) -> LedgerResult<Vec<(u64, String)>> {
        if let Some(lines) = self.recent.as_ref().and_then(|recent| recent.lines(task, from)) {
            return Ok(lines);
        }
        let mut query =
            self.conn.prepare_cached("SELECT seq, line FROM decisions WHERE task = ?1 AND seq >= ?2 ORDER BY seq")?;
        let rows =
            query.query_map(params![task.to_string(), from as i64], |r| Ok((r.get::<_, i64>(0)? as u64, r.get(1)?)))?;
        Ok(rows.collect::<std::result::Result<_, _>>()?)
    }

    /// The principal and the session of a task; none if there is no such task.
    pub fn task_owner(&self, task: TaskId) -> LedgerResult<Option<(PrincipalId, Option<SessionId>)>> {
        let mut query = self.conn.prepare_cached("SELECT principal, session FROM tasks WHERE id = ?1")?;
        let row = query
            .query_row(params![task.to_string()], |r| Ok((r.get::<_, String>(0)?, r.get::<_, Option<String>>(1)?)))
            .optional()?;
        let Some((principal, session)) = row else { return Ok(None) };
        let session = session.and_then(|s| s.parse().ok());
        Ok(principal.parse().ok().map(|principal| (principal, session)))
    }

    /// All entries about grants, sessions and credentials, in order.
    pub fn register_entries(&self) -> LedgerResult<Vec<(Timestamp, RegisterEntry)>> {
        let mut query = self.conn.prepare_cached("SELECT n, line FROM decisions WHERE task IS NULL ORDER BY n")?;
        let mut rows = query.query([])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let (n, line): (i64, String) = (row.get(0)?, row.get(1)?);
            let record = Record::parse(&line).map_err(|source| LedgerError::Record { n, source })?;
            if let RecordContent::Decision(Decision::Entered(entry)) = record.what {
                all.push((record.at, entry));
            }
        }
        Ok(all)
    }

    /// Decisions after number `after`, oldest first, with their task.
    pub fn decisions_after(&self, after: i64, limit: u32) -> LedgerResult<Vec<(i64, Option<TaskId>, String)>> {
        let mut query =
            self.conn.prepare_cached("SELECT n, task, line FROM decisions WHERE n > ?1 ORDER BY n LIMIT ?2")?;
        let rows = query.query_map(params![after, limit], |r| {
            Ok((r.get(0)?, r.get::<_, Option<String>>(1)?.and_then(|t| t.parse().ok()), r.get(2)?))
        })?;
        Ok(rows.collect::<std::result::Result<_, _>>()?)
    }

    /// The tasks that a person has denied since this time.
    pub fn tasks_denied_since(&self, since: Timestamp) -> LedgerResult<Vec<TaskId>> {
        let mut query = self.conn.prepare_cached("SELECT n, task, line FROM decisions ORDER BY n DESC")?;
        let mut rows = query.query([])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let (n, task, line): (i64, Option<String>, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let record = Record::parse(&line).map_err(|source| LedgerError::Record { n, source })?;
            if record.at < since {
                break;
            }
            let refused = matches!(
                record.what,
                RecordContent::Decision(Decision::PermissionDenied { by: DecidedBy::Person { .. }, .. })
            );
            all.extend(task.filter(|_| refused).and_then(|t| t.parse::<TaskId>().ok()));
        }
        Ok(all)
    }

    /// Ids that begin with `prefix`: enough of them to tell a unique one from an ambiguous one.
    pub fn tasks_by_prefix(&self, prefix: &str, principal: PrincipalId) -> LedgerResult<Vec<TaskId>> {
        let mut query = self.conn.prepare_cached(
            "SELECT id FROM tasks WHERE id >= ?1 AND id < ?1 || 'zzzzzzzz~' AND principal = ?2 ORDER BY id LIMIT 50",
        )?;
        let rows = query.query_map(params![prefix, principal.to_string()], |r| r.get::<_, String>(0))?;
        let ids = rows.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(ids.iter().filter(|id| id.starts_with(prefix)).filter_map(|id| id.parse().ok()).collect())
    }

    /// The tasks that are not settled, oldest first.
    pub fn open_tasks(&self) -> LedgerResult<Vec<TaskId>> {
        let mut query = self.conn.prepare_cached("SELECT id FROM tasks WHERE settled = 0 ORDER BY id")?;
        let rows = query.query_map([], |r| r.get::<_, String>(0))?;
        let ids = rows.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
    }

    /// The tasks that are neither launched nor settled: each has a stored raw request.
    pub fn waiting_tasks(&self) -> LedgerResult<Vec<TaskId>> {
        let mut query =
            self.conn.prepare_cached("SELECT id FROM tasks WHERE settled = 0 AND status = 'queued' ORDER BY id")?;
        let rows = query.query_map([], |r| r.get::<_, String>(0))?;
        let ids = rows.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
    }

    /// When a task settled, and the number of its next decision; none before that.
    pub fn settled_at(&self, task: TaskId) -> LedgerResult<Option<(Timestamp, u64)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT z.line, (SELECT max(seq) FROM decisions WHERE task = ?1) FROM tasks t
             JOIN decisions z ON z.n = t.last WHERE t.id = ?1 AND t.settled = 1",
        )?;
        let row = query
            .query_row(params![task.to_string()], |r| Ok((r.get::<_, String>(0)?, r.get::<_, i64>(1)?)))
            .optional()?;
        let Some((line, last)) = row else { return Ok(None) };
        let record = Record::parse(&line).map_err(|source| LedgerError::Record { n: 0, source })?;
        Ok(Some((record.at, last as u64 + 1)))
    }

    /// Whether retention has removed the task's files.
    pub fn is_expired(&self, task: TaskId) -> LedgerResult<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT 1 FROM decisions WHERE task = ?1 AND line LIKE '%\"kind\":\"retention.expired\"%'",
        )?;
        Ok(query.exists(params![task.to_string()])?)
    }

    pub fn task_of_approval(&self, approval: ApprovalId) -> LedgerResult<Option<TaskId>> {
        let mut query = self.conn.prepare_cached("SELECT id FROM tasks WHERE approval = ?1")?;
        let id = query.query_row(params![approval.to_string()], |r| r.get::<_, String>(0)).optional()?;
        Ok(id.and_then(|id| id.parse().ok()))
    }

    /// Approvals that begin with `prefix` with their tasks: enough of them to tell a unique one from an ambiguous one.
    pub fn approvals_by_prefix(&self, prefix: &str, principal: PrincipalId) -> LedgerResult<Vec<(ApprovalId, TaskId)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT approval, id FROM tasks WHERE approval IS NOT NULL AND approval >= ?1 AND principal = ?2
             ORDER BY approval LIMIT 50",
        )?;
        let rows = query.query_map(params![prefix, principal.to_string()], |r| {
            Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?))
        })?;
        let found = rows.collect::<std::result::Result<Vec<_>, _>>()?;
        let found = found.iter().filter(|(approval, _)| approval.starts_with(prefix));
        Ok(found.filter_map(|(approval, task)| Some((approval.parse().ok()?, task.parse().ok()?))).collect())
    }

    /// Tasks that wait for a person, oldest first, with their session.
    pub fn tasks_waiting_for_approval(&self, principal: PrincipalId) -> LedgerResult<Vec<(TaskId, Option<SessionId>)>> {
        let mut query =
            self.conn.prepare_cached("SELECT id, session FROM tasks WHERE waits = 1 AND principal = ?1 ORDER BY id")?;
        let rows = query.query_map(params![principal.to_string()], |r| {
            Ok((r.get::<_, String>(0)?, r.get::<_, Option<String>>(1)?))
        })?;
        let all = rows.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(all.iter().filter_map(|(id, s)| Some((id.parse().ok()?, s.as_ref().and_then(|s| s.parse().ok())))).collect())
    }

    /// Tasks that ever asked for an approval, newest first, before `before`.
    pub fn tasks_with_approval(
        &self,
        principal: PrincipalId,
        before: Option<TaskId>,
        limit: u32,
    ) -> LedgerResult<Vec<TaskId>> {
        let mut query = self.conn.prepare_cached(
            "SELECT id FROM tasks WHERE approval IS NOT NULL AND principal = ?1 AND (?2 IS NULL OR id < ?2)
             ORDER BY id DESC LIMIT ?3",
        )?;
        let before = before.map(|t| t.to_string());
        let rows = query.query_map(params![principal.to_string(), before, limit], |r| r.get::<_, String>(0))?;
        let ids = rows.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
    }

    /// The tasks of a session that are not settled.
    pub fn open_tasks_of_session(&self, session: SessionId) -> LedgerResult<Vec<TaskId>> {
        let mut query =
            self.conn.prepare_cached("SELECT id FROM tasks WHERE settled = 0 AND session = ?1 ORDER BY id")?;
        let rows = query.query_map(params![session.to_string()], |r| r.get::<_, String>(0))?;
        let ids = rows.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
    }

    /// The newest task with this idempotency key, and the request body that came with it.
    pub fn task_by_idempotency(&self, key: Digest) -> LedgerResult<Option<(TaskId, Idempotency, Timestamp)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT t.id, d.line FROM tasks t JOIN decisions d ON d.n = t.first WHERE t.idem = ?1 ORDER BY t.id DESC LIMIT 1",
        )?;
        let row = query
            .query_row(params![key.to_string()], |r| Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?)))
            .optional()?;
        Ok(row.and_then(|(id, line)| {
            let record = Record::parse(&line).ok()?;
            match record.what {
                RecordContent::Decision(Decision::Planned { idempotency: Some(i), .. }) => {
                    Some((id.parse().ok()?, *i, record.at))
                }
                _ => None,
            }
        }))
    }

    /// A page of tasks, newest first, with what the ledger knows: without the content of journals.
    pub fn list_tasks(&self, filter: &TaskFilter) -> LedgerResult<Vec<TaskState>> {
        let mut query = self.conn.prepare_cached(
            "SELECT t.id, t.status, t.approval, a.line, z.line FROM tasks t
             JOIN decisions a ON a.n = t.first LEFT JOIN decisions z ON z.n = t.last
             WHERE (?1 IS NULL OR t.status = ?1) AND (?2 IS NULL OR t.id < ?2) AND (?3 IS NULL OR t.id >= ?3)
               AND (?4 IS NULL OR json_extract(a.line, '$.verb') = ?4)
               AND (?5 IS NULL OR t.session IN (SELECT value FROM json_each(?5))) AND (?8 IS NULL OR t.principal = ?8)
               AND (?6 IS NULL OR instr(lower(coalesce(json_extract(a.line, '$.title'), '') || ' '
                    || json_extract(a.line, '$.display')), lower(?6)) > 0)
             ORDER BY t.id DESC LIMIT ?7",
        )?;
        let mut rows = query.query(params![
            filter.status.map(|s| s.to_string()),
            filter.before.map(|t| t.to_string()),
            filter.since.map(|t| t.to_string()),
            filter.verb,
            filter.sessions.as_ref().map(|all| serde_json::json!(all).to_string()),
            filter.text,
            filter.limit,
            filter.principal.map(|p| p.to_string()),
        ])?;
        let mut tasks = Vec::new();
        while let Some(row) = rows.next()? {
            let line = |i| -> LedgerResult<Option<Record>> {
                let line: Option<String> = row.get(i)?;
                line.map(|l| Record::parse(&l)).transpose().map_err(|source| LedgerError::Record { n: 0, source })
            };
            let (id, status): (String, String) = (row.get(0)?, row.get(1)?);
            let approval: Option<String> = row.get(2)?;
            let (Ok(id), Some(planned)) = (id.parse(), line(3)?) else { continue };
            let Some(mut state) = TaskState::begin(id, &planned) else { continue };
            if status == "running" {
                state.status = Status::Running;
            }
            state.question = approval.and_then(|a| a.parse().ok()).map(|approval_id| Question {
                approval_id,
                uncovered: Vec::new(),
                about: Vec::new(),
                options: Vec::new(),
            });
            if let Some(settled) = line(4)? {
                state.apply(&settled);
            }
            tasks.push(state);
        }
        Ok(tasks)
    }

    /// The number of decisions, and the stored head of their chain.
    pub fn head(&self) -> LedgerResult<(i64, Option<Digest>)> {
        let mut query = self.conn.prepare_cached("SELECT n, head FROM decisions ORDER BY n DESC LIMIT 1")?;
        let row = query.query_row([], |r| Ok((r.get(0)?, r.get::<_, [u8; 32]>(1)?))).optional()?;
        Ok(row.map_or((0, None), |(n, head)| (n, Some(Digest::from_bytes(head)))))
    }

    /// The time of the last decision.
    pub fn last_decision_at(&self) -> LedgerResult<Option<Timestamp>> {
        let mut query = self.conn.prepare_cached("SELECT n, line FROM decisions ORDER BY n DESC LIMIT 1")?;
        let row = query.query_row([], |r| Ok((r.get::<_, i64>(0)?, r.get::<_, String>(1)?))).optional()?;
        let Some((n, line)) = row else { return Ok(None) };
        Ok(Some(Record::parse(&line).map_err(|source| LedgerError::Record { n, source })?.at))
    }
}

/// Read connections, opened on demand and reused.
pub struct LedgerReaderPool {
    idle: Mutex<IdleReaders>,
    /// Called if something cannot be read.
    on_damage: Box<dyn Fn() + Send + Sync>,
}

struct IdleReaders {
    path: PathBuf,
    recent: Option<Arc<RecentDecisions>>,
    readers: Vec<LedgerReader>,
}

impl LedgerReaderPool {
    /// Reads from another file from now on.
    pub fn switch_file(&self, path: &Path) {
        *self.idle() = IdleReaders { path: path.to_owned(), recent: None, readers: Vec::new() };
    }

    pub fn with<T>(&self, f: impl FnOnce(&LedgerReader) -> LedgerResult<T>) -> LedgerResult<T> {
        let (path, recent, reader) = {
            let mut idle = self.idle();
            let reader = idle.readers.pop();
            (idle.path.clone(), idle.recent.clone(), reader)
        };
        let reader = match reader {
            Some(reader) => reader,
            None => LedgerReader::open_beside(&path, recent.as_ref())?,
        };
        let result = f(&reader);
        if result.as_ref().is_err_and(LedgerError::is_damage) {
            (self.on_damage)();
        }
        let mut idle = self.idle();
        if idle.readers.len() < MAX_IDLE_READERS && idle.path == path {
            idle.readers.push(reader);
        }
        result
    }

    fn idle(&self) -> MutexGuard<'_, IdleReaders> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
