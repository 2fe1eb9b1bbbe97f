//! One pass over the decisions: the chain of the ledger, each task and its receipt, and the expected content of the
//! index.

use super::{
    MAX_LISTED_FINDINGS, TrustedKeys, VerifyReport, receipt_chain::CheckedReceipt, receipt_chain::ReceiptsByTask,
};
use crate::{
    closing::hash_line,
    ledger::{LedgerError, LedgerReader, chained_line},
};
use countersign_model::{
    ApprovalId, Decision, Digest, HashChain, KeySignature, LedgerHead, PrincipalId, ReceiptSubject, Record,
    RecordContent, Scope, SealedReceipt, SessionId, Status, TaskId,
};
use rusqlite::{Row, params, types::ValueRef};
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, HashSet};

#[derive(Default)]
pub(super) struct LedgerPass {
    /// The ledger heads that receipts and saved heads name.
    pub(super) heads: HashMap<u64, Digest>,
    pub(super) last: u64,
    tasks: HashMap<TaskId, TaskHistory>,
    /// The numbers of the sealed receipts.
    sealed: HashSet<u64>,
    /// Whether a decision is missing or was changed: then the pass does not show what was decided.
    broken: bool,
}

/// A task according to its decisions. Numbers are those of decisions.
#[derive(Default)]
struct TaskHistory {
    planned: Option<IndexedRequest>,
    /// The status that the index must have; none means `queued`.
    status: Option<Status>,
    approval: Option<ApprovalId>,
    /// It waits for a person.
    waits: bool,
    settled: Option<u64>,
    /// The hash of its journal when it was settled.
    head: Option<Digest>,
    sealed: bool,
    expiries: Vec<ExpiryDecision>,
}

/// The columns of the index that come from a task's first decision.
struct IndexedRequest {
    first: u64,
    principal: PrincipalId,
    session: Option<SessionId>,
    idem: Option<Digest>,
}

/// A decision that the files of a task were removed.
struct ExpiryDecision {
    signed: Option<KeySignature>,
    /// The receipt was sealed later and covers this decision.
    covered: bool,
}

impl LedgerPass {
    /// Reads all decisions: checks the chain, compares each receipt with it, and collects the decisions of each task.
    pub(super) fn read_ledger(
        ledger: &LedgerReader,
        receipts: &ReceiptsByTask,
        since: Option<u64>,
        keys: &TrustedKeys,
        report: &mut VerifyReport,
    ) -> Result<Self, LedgerError> {
        let named = receipts.good.values().map(|r| r.ledger_head.decision.0).chain(since).collect();
        let mut walk = PassState { receipts, keys, named, pass: LedgerPass::default(), lines: HashMap::new(), report };
        let mut chain = HashChain::for_ledger();
        let mut all = ledger.conn.prepare("SELECT n, task, seq, line, head FROM decisions ORDER BY n")?;
        let mut found = all.query([])?;
        while let Some(row) = found.next()? {
            walk.apply_row(row, &mut chain)?;
        }
        let PassState { pass, .. } = walk;
        report.decisions = pass.last;
        for checked in receipts.good.values() {
            pass.check_head(checked, report);
            pass.check_sealed(checked, report);
        }
        Ok(pass)
    }

    /// Reads only the decisions of the tasks of these receipts.
    pub(super) fn read_tasks(
        ledger: &LedgerReader,
        receipts: &ReceiptsByTask,
        keys: &TrustedKeys,
        report: &mut VerifyReport,
    ) -> Result<Self, LedgerError> {
        let named = HashSet::new();
        let mut walk = PassState { receipts, keys, named, pass: LedgerPass::default(), lines: HashMap::new(), report };
        let mut own = ledger.conn.prepare("SELECT n, task, seq, line FROM decisions WHERE task = ?1 ORDER BY n")?;
        for task in receipts.good.keys() {
            let mut found = own.query(params![task.to_string()])?;
            while let Some(row) = found.next()? {
                let n = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
                match column_text(row, 3) {
                    Ok(line) => walk.apply_line(n, Some(*task), row.get_ref(2)?, line),
                    Err(()) => walk.report.add_finding(decision_place(n, Some(*task)), NOT_TEXT),
                }
            }
        }
        let PassState { pass, .. } = walk;
        receipts.good.values().for_each(|checked| pass.check_sealed(checked, report));
        Ok(pass)
    }

    fn check_head(&self, checked: &CheckedReceipt, report: &mut VerifyReport) {
        let LedgerHead { decision, sha256 } = checked.ledger_head;
        match self.heads.get(&decision.0) {
            Some(stored) if *stored == sha256 => {}
            Some(_) => report.add_finding(
                checked.place(),
                format!("covers another ledger: decision {decision} or an earlier one was changed"),
            ),
            None => {
                report.add_finding(checked.place(), format!("covers decision {decision}, which is not in the ledger"));
            }
        }
    }

    fn check_sealed(&self, checked: &CheckedReceipt, report: &mut VerifyReport) {
        if !self.sealed.contains(&checked.number) {
            report.add_finding(checked.place(), "is not in the ledger: no decision records that it was sealed");
        }
    }

    pub(super) fn has_task(&self, task: TaskId) -> bool {
        self.tasks.contains_key(&task)
    }

    /// The hash of a task's journal when it was settled.
    pub(super) fn settled_head(&self, task: TaskId) -> Option<Digest> {
        self.tasks.get(&task)?.head
    }

    /// Whether the daemon removed the files that a receipt covers. A key must confirm it, because anybody could add a
    /// line.
    pub(super) fn is_expired(&self, checked: &CheckedReceipt, keys: &TrustedKeys, report: &mut VerifyReport) -> bool {
        let expiries = self.tasks.get(&checked.task).map(|history| history.expiries.as_slice()).unwrap_or_default();
        let proved = expiries.iter().any(|e| e.covered || confirms_expiry(e.signed.as_ref(), checked, keys));
        if !proved && !expiries.is_empty() {
            report.add_finding(format!("retention.expired of {}", checked.task), UNCONFIRMED_EXPIRY);
        }
        proved
    }

    /// The settled tasks that were not sealed, in the order in which they settled.
    pub(super) fn unsealed_tasks(&self) -> Vec<TaskId> {
        let waiting =
            |(task, history): (&TaskId, &TaskHistory)| Some((history.settled.filter(|_| !history.sealed)?, *task));
        let mut all: Vec<(u64, TaskId)> = self.tasks.iter().filter_map(waiting).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, task)| task).collect()
    }

    /// Compares the index of tasks with the decisions.
    pub(super) fn check_index(&self, ledger: &LedgerReader, report: &mut VerifyReport) -> Result<(), LedgerError> {
        if self.broken {
            report.notes.push("the index was not checked, because its decisions are damaged".to_owned());
            return Ok(());
        }
        let mut wrong = Vec::new();
        let mut seen = HashSet::new();
        let mut query =
            ledger.conn.prepare(&format!("SELECT id, {} FROM tasks ORDER BY id", INDEX_COLUMNS.join(", ")))?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            let actual = |i| row.get_ref(i).map(value_text);
            let id = actual(0)?;
            let row_of_task = id.parse().ok().and_then(|task| Some((task, self.tasks.get(&task)?.index_row()?)));
            let Some((task, expected)) = row_of_task else {
                wrong.push((id, "lists this task, but no decision does".to_owned()));
                continue;
            };
            seen.insert(task);
            for (i, (name, expected)) in (1..).zip(INDEX_COLUMNS.iter().zip(expected)) {
                let actual = actual(i)?;
                if actual != expected {
                    wrong.push((id.clone(), format!("has {name} {actual} instead of {expected}")));
                }
            }
        }
        let left_out = self.tasks.iter().filter(|(task, history)| history.planned.is_some() && !seen.contains(*task));
        wrong.extend(left_out.map(|(task, _)| (task.to_string(), "lacks this task".to_owned())));
        for (id, what) in wrong.iter().take(MAX_LISTED_FINDINGS) {
            report.add_finding(format!("index of {id}"), format!("{what}; run `csn doctor --fix` to rebuild it"));
        }
        if wrong.len() > MAX_LISTED_FINDINGS {
            let more = wrong.len() - MAX_LISTED_FINDINGS;
            let entries = if more == 1 { "value is" } else { "values are" };
            report.add_finding("index", format!("{more} more {entries} wrong; run `csn doctor --fix` to rebuild it"));
        }
        Ok(())
    }
}

impl TaskHistory {
    /// The expected row of the index, in the order of [`INDEX_COLUMNS`].
    fn index_row(&self) -> Option<[String; INDEX_COLUMNS.len()]> {
        fn or_nothing(value: Option<impl ToString>) -> String {
            value.map_or_else(|| NOTHING.to_owned(), |v| v.to_string())
        }
        let flag = |set: bool| u8::from(set).to_string();
        let IndexedRequest { first, principal, session, idem } = self.planned.as_ref()?;
        Some([
            principal.to_string(),
            or_nothing(session.as_ref()),
            self.status.unwrap_or(Status::Queued).to_string(),
            or_nothing(self.approval),
            flag(self.waits),
            or_nothing(idem.as_ref()),
            first.to_string(),
            or_nothing(self.settled),
            flag(self.settled.is_some()),
            flag(self.sealed),
        ])
    }
}

/// All columns of the index except the task's id.
const INDEX_COLUMNS: [&str; 10] =
    ["principal", "session", "status", "approval", "waits", "idem", "first", "last", "settled", "sealed"];

const NOTHING: &str = "none";
const NOT_TEXT: &str = "cannot be parsed: its line is not text";
/// The finding if no trusted key confirms that a task has expired.
pub(super) const UNCONFIRMED_EXPIRY: &str = "no key of this home confirms the removal";

/// Whether a trusted key confirms that the files of this receipt were removed.
pub(super) fn confirms_expiry(signed: Option<&KeySignature>, checked: &CheckedReceipt, keys: &TrustedKeys) -> bool {
    let confirms =
        |signed: &KeySignature| Some(keys.get(signed.key)?.verifies_expiry(checked.task, checked.digest, signed));
    signed.and_then(confirms).unwrap_or(false)
}

fn decision_place(n: u64, task: Option<TaskId>) -> String {
    let of = task.map(|t| format!(" ({t})")).unwrap_or_default();
    format!("decision {n}{of}")
}

fn column_text<'a>(row: &'a Row<'_>, i: usize) -> Result<&'a str, ()> {
    row.get_ref(i).ok().and_then(|v| v.as_str().ok()).ok_or(())
}

/// A value as text.
fn value_text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => NOTHING.to_owned(),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(n) => n.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// The number of a line within its task. Lines written by Countersign begin with it.
fn seq_of(line: &str) -> Option<i64> {
    let begin = line.strip_prefix(r#"{"v":1,"seq":"#).and_then(|rest| rest.split_once(',')?.0.parse().ok());
    begin.or_else(|| i64::try_from(Record::parse(line).ok()?.seq).ok())
}

/// The state of the pass.
struct PassState<'a> {
    receipts: &'a ReceiptsByTask,
    keys: &'a TrustedKeys,
    /// The decisions whose heads are needed.
    named: HashSet<u64>,
    pass: LedgerPass,
    /// The hashes of tasks that are not sealed yet.
    lines: HashMap<TaskId, Sha256>,
    report: &'a mut VerifyReport,
}

impl PassState<'_> {
    /// Checks one more decision of the ledger against the chain so far.
    fn apply_row(&mut self, row: &Row<'_>, chain: &mut HashChain) -> Result<(), LedgerError> {
        let n: i64 = row.get(0)?;
        let Some(n) = u64::try_from(n).ok().filter(|n| *n > 0) else {
            self.add_break(format!("decision {n}"), "has an invalid number: decisions are numbered from 1");
            return Ok(());
        };
        let expected = self.pass.last.saturating_add(1);
        let gap = n != expected;
        if gap {
            self.add_break(decision_place(expected, None), "is missing from the ledger");
        }
        self.pass.last = n;
        let owner = match row.get_ref(1)? {
            ValueRef::Null => None,
            value => Some(value_text(value)),
        };
        let task = owner.as_deref().and_then(|t| t.parse::<TaskId>().ok());
        if let (Some(owner), None) = (&owner, task) {
            // In the chain, a decision that concerns no task has the owner `-`.
            self.add_break(
                decision_place(n, None),
                format!("was changed: it names the task `{owner}`, which is not a task id"),
            );
        }
        let Some(stored) = row.get_ref(4)?.as_blob().ok().and_then(|b| b.try_into().ok()).map(Digest::from_bytes)
        else {
            self.add_break(decision_place(n, task), "cannot be parsed: its hash does not have 32 bytes");
            return Ok(());
        };
        let Ok(line) = column_text(row, 3) else {
            self.add_break(decision_place(n, task), NOT_TEXT);
            *chain = HashChain::resume(stored);
            return Ok(());
        };
        chain.push_line(&chained_line(owner.as_deref(), line));
        if chain.head() != stored {
            if !gap {
                self.add_break(decision_place(n, task), "was changed: the ledger's chain breaks here");
            }
            // The chain continues with the stored hash, so that a second break is found too.
            *chain = HashChain::resume(stored);
        }
        if self.named.contains(&n) {
            self.pass.heads.insert(n, stored);
        }
        self.apply_line(n, task, row.get_ref(2)?, line);
        Ok(())
    }

    fn add_break(&mut self, place: String, what: impl Into<String>) {
        self.pass.broken = true;
        self.report.add_finding(place, what);
    }

    /// Adds a decision to the history of its task. `seq` is the number in the ledger's own column.
    fn apply_line(&mut self, n: u64, task: Option<TaskId>, seq: ValueRef<'_>, line: &str) {
        let expected = task.and_then(|_| seq_of(line));
        if seq != expected.map_or(ValueRef::Null, ValueRef::Integer) {
            let expected = expected.map_or_else(|| NOTHING.to_owned(), |n| n.to_string());
            self.add_break(
                decision_place(n, task),
                format!("was changed: the ledger stores it as number {}, but its line has {expected}", value_text(seq)),
            );
        }
        let Some(task) = task else { return };
        // Parsing is most of the work, so only lines that matter for the index or a receipt are parsed.
        let kinds = ["command.planned", "permission.requested", "task.settled", "receipt.sealed", "retention.expired"];
        let waits = || self.pass.tasks.get(&task).is_some_and(|history| history.waits);
        let granted = is_of_kind(line, "permission.granted") && waits();
        let runs = ["task.launched", "task.observing"].iter().any(|kind| is_of_kind(line, kind));
        let what = if granted || kinds.iter().any(|kind| is_of_kind(line, kind)) {
            Record::parse(line).ok().map(|r| r.what)
        } else {
            None
        };
        if let Some(RecordContent::Decision(Decision::Sealed(sealed))) = what {
            return self.apply_sealed(n, task, sealed);
        }
        hash_line(self.lines.entry(task).or_default(), line);
        let history = self.pass.tasks.entry(task).or_default();
        if runs {
            history.status = Some(Status::Running);
        }
        match what {
            Some(RecordContent::Decision(Decision::Planned { principal, session, idempotency, .. })) => {
                let idem = idempotency.map(|i| i.key);
                history.planned = Some(IndexedRequest { first: n, principal, session, idem });
            }
            Some(RecordContent::Decision(Decision::PermissionRequested { approval, .. })) => {
                (history.approval, history.waits) = (Some(approval), true);
            }
            Some(RecordContent::Decision(Decision::PermissionGranted { scope, .. })) => {
                history.waits &= scope == Scope::Policy
            }
            Some(RecordContent::Decision(Decision::Settled { journal_head, outcome, .. })) => {
                (history.settled, history.waits, history.status) = (Some(n), false, Some(outcome.status()));
                history.head = journal_head;
            }
            Some(RecordContent::Decision(Decision::Expired { signed, .. })) => {
                history.expiries.push(ExpiryDecision { signed, covered: false });
            }
            _ => {}
        }
    }

    /// Compares a decision about a sealed receipt with that receipt.
    fn apply_sealed(&mut self, n: u64, task: TaskId, sealed: SealedReceipt) {
        let decisions = Digest::from_bytes(self.lines.remove(&task).unwrap_or_default().finalize().into());
        self.pass.sealed.insert(sealed.number);
        let history = self.pass.tasks.entry(task).or_default();
        history.sealed = true;
        let Some(checked) = self.receipts.good.get(&task) else {
            if !self.receipts.bad.contains(&task) {
                let what = format!("is missing, although decision {n} records that it was sealed");
                self.report.add_finding(format!("receipt {} ({task})", sealed.number), what);
            }
            return;
        };
        let found = (checked.number, checked.digest, checked.receipt, checked.key);
        if found != (sealed.number, sealed.digest, sealed.receipt, sealed.key) {
            self.report
                .add_finding(checked.place(), format!("is not the receipt that decision {n} records for {task}"));
        }
        match checked.subject(ReceiptSubject::DECISIONS) {
            Some(covered) if covered == decisions => history.expiries.iter_mut().for_each(|e| e.covered = true),
            Some(_) => {
                let what = format!("covers other decisions of {task} than the ledger has");
                self.report.add_finding(checked.place(), what);
            }
            None => {}
        }
        if let Err(why) = self.keys.replaced_at(checked.key, n) {
            self.report.add_finding(checked.place(), why);
        }
    }
}

/// Whether a line may be of this kind. Quotes inside texts are escaped, so that they cannot match.
fn is_of_kind(line: &str, kind: &str) -> bool {
    let rest = line.split_once(r#""kind":""#).map(|(_, rest)| rest);
    rest.is_some_and(|rest| rest.strip_prefix(kind).is_some_and(|rest| rest.starts_with('"')))
}
