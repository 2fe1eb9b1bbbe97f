//! Receipts in the ledger. They are never removed.

use crate::{
    Envelope, PublicKey, RECEIPT_TYPE,
    ledger::{LedgerError, LedgerReader},
};
use countersign_model::{
    Decision, Digest, KeyAnnounced, PrincipalId, ReceiptId, Record, RecordContent, SessionId, TaskId,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

/// The stored kind of a decision about the state of the daemon.
const DAEMON_STATE: &str = "house.state";

type ReceiptResult<T> = std::result::Result<T, LedgerError>;

/// Receipts, and an index of the files that they cover, by digest (it can be rebuilt).
pub(crate) const SCHEMA: &str = "
    CREATE TABLE receipts (
        number    INTEGER PRIMARY KEY,
        id        TEXT NOT NULL UNIQUE,
        task      TEXT NOT NULL UNIQUE,
        payload   TEXT NOT NULL,
        key       BLOB NOT NULL,
        signature BLOB NOT NULL
    ) STRICT;
    CREATE TABLE artifacts (
        sha256 BLOB NOT NULL,
        task   TEXT NOT NULL,
        name   TEXT NOT NULL,
        PRIMARY KEY (sha256, task, name)
    ) STRICT, WITHOUT ROWID;
    ALTER TABLE tasks ADD COLUMN sealed INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX tasks_unsealed ON tasks (last) WHERE settled = 1 AND sealed = 0;
";

/// A statement and its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedReceipt {
    pub number: u64,
    pub receipt: ReceiptId,
    pub task: TaskId,
    pub payload: String,
    pub key: Digest,
    pub signature: Vec<u8>,
}

impl SignedReceipt {
    /// Its identity: SHA-256 of the signed payload.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::sha256(&[self.payload.as_bytes()])
    }

    #[must_use]
    pub fn envelope(&self) -> Envelope {
        Envelope::new(RECEIPT_TYPE, &self.payload, self.key, &self.signature)
    }

    #[must_use]
    pub fn verifies(&self, key: &PublicKey) -> bool {
        self.key == key.id() && key.verifies(RECEIPT_TYPE, self.payload.as_bytes(), &self.signature)
    }

    /// None if the row cannot be read: it is not a receipt that this program wrote. `csn verify` reports it.
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Option<Self>> {
        Ok(Self::parse_row(row)?.ok())
    }

    fn parse_row(row: &Row<'_>) -> rusqlite::Result<std::result::Result<Self, UnreadableReceipt>> {
        let text = |i, column: &str| match row.get_ref(i).map(|v| v.as_str().map(str::to_owned)) {
            Ok(Ok(text)) => Ok(text),
            _ => Err(format!("cannot be parsed: its {column} is not text")),
        };
        let task = text(1, "task");
        let parsed: Option<TaskId> = task.as_ref().ok().and_then(|t| t.parse().ok());
        let number = row.get::<_, i64>(0)?;
        let read = || -> std::result::Result<Self, String> {
            let receipt = text(5, "id")?.parse().map_err(|e| format!("cannot be parsed: {e}"))?;
            let key = row.get_ref(3).ok().and_then(|v| v.as_blob().ok()?.try_into().ok());
            let signature = row.get_ref(4).ok().and_then(|v| Some(v.as_blob().ok()?.to_vec()));
            Ok(Self {
                number: u64::try_from(number).map_err(|_| "cannot be parsed: its number is negative")?,
                receipt,
                task: task.clone()?.parse().map_err(|e| format!("cannot be parsed: {e}"))?,
                payload: text(2, "payload")?,
                key: Digest::from_bytes(key.ok_or("cannot be parsed: its key id does not have 32 bytes")?),
                signature: signature.ok_or("cannot be parsed: its signature is not a blob")?,
            })
        };
        Ok(read().map_err(|why| UnreadableReceipt { task: parsed, why }))
    }
}

/// A row that is not a receipt.
#[derive(Debug)]
pub(crate) struct UnreadableReceipt {
    pub(crate) task: Option<TaskId>,
    pub(crate) why: String,
}

/// The largest number that has a successor.
pub(crate) const MAX_RECEIPT_NUMBER: u64 = i64::MAX as u64 - 1;

/// Stores a receipt.
pub(crate) fn insert_receipt(conn: &Connection, signed: &SignedReceipt) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO receipts (number, task, payload, key, signature, id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        signed.number as i64,
        signed.task.to_string(),
        signed.payload,
        signed.key.as_bytes(),
        signed.signature,
        signed.receipt.to_string()
    ])?;
    index_artifacts(conn, &signed.task.to_string(), &signed.payload)
}

/// Adds the files that a receipt covers to the index.
fn index_artifacts(conn: &Connection, task: &str, payload: &str) -> rusqlite::Result<()> {
    #[derive(serde::Deserialize)]
    struct Subjects {
        subject: Vec<countersign_model::ReceiptSubject>,
    }
    let Ok(Subjects { subject }) = serde_json::from_str(payload) else { return Ok(()) };
    let mut insert = conn.prepare_cached("INSERT OR IGNORE INTO artifacts (sha256, task, name) VALUES (?1, ?2, ?3)")?;
    for s in subject {
        insert.execute(params![s.digest.sha256.as_bytes(), task, s.name])?;
    }
    Ok(())
}

/// Rebuilds the index of artifacts.
pub(crate) fn rebuild_artifacts(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute("DELETE FROM artifacts", [])?;
    let mut all = conn.prepare("SELECT task, payload FROM receipts ORDER BY number")?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        index_artifacts(conn, &row.get::<_, String>(0)?, &row.get::<_, String>(1)?)?;
    }
    Ok(())
}

impl LedgerReader {
    /// The number and the digest of the last receipt.
    pub fn last_receipt(&self) -> ReceiptResult<Option<(u64, Digest)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT number, payload FROM receipts WHERE number BETWEEN 1 AND ?1 ORDER BY number DESC LIMIT 1",
        )?;
        let row = query
            .query_row(params![MAX_RECEIPT_NUMBER as i64], |r| {
                Ok((r.get::<_, i64>(0)? as u64, Digest::sha256(&[r.get_ref(1)?.as_bytes()?])))
            })
            .optional()?;
        Ok(row)
    }

    pub fn receipt_of_task(&self, task: TaskId) -> ReceiptResult<Option<SignedReceipt>> {
        let mut query = self
            .conn
            .prepare_cached("SELECT number, task, payload, key, signature, id FROM receipts WHERE task = ?1")?;
        Ok(query.query_row(params![task.to_string()], SignedReceipt::from_row).optional()?.flatten())
    }

    pub fn receipt(&self, number: u64) -> ReceiptResult<Option<SignedReceipt>> {
        let mut query = self
            .conn
            .prepare_cached("SELECT number, task, payload, key, signature, id FROM receipts WHERE number = ?1")?;
        let Ok(number) = i64::try_from(number) else { return Ok(None) };
        Ok(query.query_row(params![number], SignedReceipt::from_row).optional()?.flatten())
    }

    pub fn receipt_by_id(&self, receipt: ReceiptId) -> ReceiptResult<Option<SignedReceipt>> {
        let mut query =
            self.conn.prepare_cached("SELECT number, task, payload, key, signature, id FROM receipts WHERE id = ?1")?;
        Ok(query.query_row(params![receipt.to_string()], SignedReceipt::from_row).optional()?.flatten())
    }

    /// The number of a task's receipt, even if the rest of the row is damaged.
    pub fn receipt_number_of_task(&self, task: TaskId) -> ReceiptResult<Option<u64>> {
        self.query_number("SELECT number FROM receipts WHERE task = ?1", &task.to_string())
    }

    /// The number of a receipt by its id, even if the rest of the row is damaged.
    pub fn receipt_number_by_id(&self, receipt: ReceiptId) -> ReceiptResult<Option<u64>> {
        self.query_number("SELECT number FROM receipts WHERE id = ?1", &receipt.to_string())
    }

    fn query_number(&self, query: &str, name: &str) -> ReceiptResult<Option<u64>> {
        let number = self.conn.prepare_cached(query)?.query_row(params![name], |r| r.get::<_, i64>(0)).optional()?;
        Ok(number.and_then(|n| u64::try_from(n).ok()))
    }

    /// Receipts from number `from` to `to`, oldest first, at most `limit`: each receipt, or why it cannot be read.
    pub(crate) fn raw_receipts(
        &self,
        from: u64,
        to: u64,
        limit: u32,
    ) -> ReceiptResult<Vec<(u64, std::result::Result<SignedReceipt, UnreadableReceipt>)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT number, task, payload, key, signature, id FROM receipts WHERE number >= ?1 AND number <= ?2
             ORDER BY number LIMIT ?3",
        )?;
        let number = |n: u64| n.clamp(1, MAX_RECEIPT_NUMBER) as i64;
        let rows = query.query_map(params![number(from), number(to), limit], |r| {
            Ok((r.get::<_, i64>(0)? as u64, SignedReceipt::parse_row(r)?))
        })?;
        Ok(rows.collect::<std::result::Result<Vec<_>, _>>()?)
    }

    /// Stored numbers that no receipt can have; only a few of them.
    pub(crate) fn invalid_receipt_numbers(&self) -> ReceiptResult<Vec<i64>> {
        let mut query = self
            .conn
            .prepare_cached("SELECT number FROM receipts WHERE number < 1 OR number > ?1 ORDER BY number LIMIT 20")?;
        let rows = query.query_map(params![MAX_RECEIPT_NUMBER as i64], |r| r.get(0))?;
        Ok(rows.collect::<std::result::Result<_, _>>()?)
    }

    /// Receipts of a principal before number `before`, newest first, with the session of their task.
    pub fn receipts_before(
        &self,
        principal: PrincipalId,
        before: u64,
        limit: u32,
    ) -> ReceiptResult<Vec<(SignedReceipt, Option<SessionId>)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT r.number, r.task, r.payload, r.key, r.signature, r.id, t.session FROM receipts r
             JOIN tasks t ON t.id = r.task WHERE r.number < ?1 AND t.principal = ?2 ORDER BY r.number DESC LIMIT ?3",
        )?;
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        let rows = query.query_map(params![before, principal.to_string(), limit], |r| {
            Ok((SignedReceipt::from_row(r)?, r.get::<_, Option<String>>(6)?))
        })?;
        let rows = rows.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(rows
            .into_iter()
            .filter_map(|(signed, session)| Some((signed?, session.and_then(|s| s.parse().ok()))))
            .collect())
    }

    /// The settled tasks without a receipt, in the order in which they settled.
    pub fn unsealed_tasks(&self) -> ReceiptResult<Vec<TaskId>> {
        let mut query =
            self.conn.prepare_cached("SELECT id FROM tasks WHERE settled = 1 AND sealed = 0 ORDER BY last")?;
        let rows = query.query_map([], |r| r.get::<_, String>(0))?;
        let ids = rows.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
    }

    /// The number of the decision that settled a task.
    pub fn settling_decision(&self, task: TaskId) -> ReceiptResult<Option<i64>> {
        let mut query = self.conn.prepare_cached("SELECT last FROM tasks WHERE id = ?1 AND settled = 1")?;
        Ok(query.query_row(params![task.to_string()], |r| r.get(0)).optional()?.flatten())
    }

    /// Whether a task has its receipt, so that its files may be removed.
    pub fn is_sealed(&self, task: TaskId) -> ReceiptResult<bool> {
        let mut query = self.conn.prepare_cached("SELECT 1 FROM tasks WHERE id = ?1 AND sealed = 1")?;
        Ok(query.exists(params![task.to_string()])?)
    }

    /// The tasks and file names that have bytes with this digest.
    pub fn artifacts(&self, sha256: Digest) -> ReceiptResult<Vec<(TaskId, String)>> {
        let mut query = self
            .conn
            .prepare_cached("SELECT task, name FROM artifacts WHERE sha256 = ?1 ORDER BY task DESC LIMIT 100")?;
        let rows = query.query_map(params![sha256.as_bytes()], |r| Ok((r.get::<_, String>(0)?, r.get(1)?)))?;
        let rows = rows.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(rows.into_iter().filter_map(|(task, name)| Some((task.parse().ok()?, name))).collect())
    }

    /// Every announced key, in order, with the number of the decision.
    pub fn keys(&self) -> ReceiptResult<Vec<(i64, KeyAnnounced)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT n, line FROM decisions WHERE task IS NULL AND line LIKE '%\"kind\":\"key.announced\"%' ORDER BY n",
        )?;
        let mut rows = query.query([])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let (n, line): (i64, String) = (row.get(0)?, row.get(1)?);
            let record = Record::parse(&line).map_err(|source| LedgerError::Record { n, source })?;
            if let RecordContent::Decision(Decision::Key(key)) = record.what {
                all.push((n, key));
            }
        }
        Ok(all)
    }

    /// The last recorded state of the daemon.
    pub fn last_state(&self) -> ReceiptResult<Option<countersign_model::DaemonState>> {
        let mut query = self.conn.prepare_cached(
            "SELECT n, line FROM decisions WHERE task IS NULL AND line LIKE ?1 ORDER BY n DESC LIMIT 1",
        )?;
        let pattern = format!("%\"kind\":\"{DAEMON_STATE}\"%");
        let row = query.query_row([pattern], |r| Ok((r.get::<_, i64>(0)?, r.get::<_, String>(1)?))).optional()?;
        let Some((n, line)) = row else { return Ok(None) };
        let record = Record::parse(&line).map_err(|source| LedgerError::Record { n, source })?;
        match record.what {
            RecordContent::Decision(Decision::DaemonStateChanged { state, .. }) => Ok(Some(state)),
            _ => Ok(None),
        }
    }

    /// The steps of the last stop.
    pub fn last_shutdown(&self) -> ReceiptResult<Vec<countersign_model::ShutdownStep>> {
        let mut query = self.conn.prepare_cached(
            "SELECT n, line FROM decisions WHERE task IS NULL AND line LIKE '%\"kind\":\"shutdown.step\"%'
             ORDER BY n DESC LIMIT 6",
        )?;
        let mut rows = query.query([])?;
        let mut steps: Vec<countersign_model::ShutdownStep> = Vec::new();
        while let Some(row) = rows.next()? {
            let (n, line): (i64, String) = (row.get(0)?, row.get(1)?);
            let record = Record::parse(&line).map_err(|source| LedgerError::Record { n, source })?;
            let RecordContent::Decision(Decision::Shutdown(step)) = record.what else { continue };
            // An interrupted stop has fewer steps; those of the stop before it start from the beginning again.
            if steps.last().is_some_and(|after| after.step <= step.step) {
                break;
            }
            steps.push(step);
        }
        steps.reverse();
        Ok(steps)
    }

    /// Whether a daemon ended unexpectedly after a decision.
    pub fn crashed_since(&self, n: i64) -> ReceiptResult<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT n, line FROM decisions WHERE task IS NULL AND line LIKE ?2 AND n > ?1 ORDER BY n",
        )?;
        let pattern = format!("%\"kind\":\"{DAEMON_STATE}\"%");
        let mut rows = query.query(params![n, pattern])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let (n, line): (i64, String) = (row.get(0)?, row.get(1)?);
            let record = Record::parse(&line).map_err(|source| LedgerError::Record { n, source })?;
            if let RecordContent::Decision(Decision::DaemonStateChanged { state, .. }) = record.what {
                use countersign_model::DaemonState::{Boot, Halted};
                if state == Boot && last != Some(Halted) {
                    return Ok(true);
                }
                last = Some(state);
            }
        }
        Ok(false)
    }

    /// The boot of the machine in which a task was launched, if it was recorded.
    pub fn boot_of_launch(&self, task: TaskId) -> ReceiptResult<Option<String>> {
        let mut query = self.conn.prepare_cached(
            "SELECT n, line FROM decisions WHERE task IS NULL AND line LIKE ?2
             AND n < (SELECT max(n) FROM decisions WHERE task = ?1) ORDER BY n DESC LIMIT 1",
        )?;
        let pattern = format!("%\"kind\":\"{DAEMON_STATE}\"%\"boot\":%");
        let row = query
            .query_row(params![task.to_string(), pattern], |r| Ok((r.get::<_, i64>(0)?, r.get::<_, String>(1)?)))
            .optional()?;
        let Some((n, line)) = row else { return Ok(None) };
        let record = Record::parse(&line).map_err(|source| LedgerError::Record { n, source })?;
        match record.what {
            RecordContent::Decision(Decision::DaemonStateChanged { boot, .. }) => Ok(boot.map(|b| b.into_inner())),
            _ => Ok(None),
        }
    }
}
