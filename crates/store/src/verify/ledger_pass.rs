//! What the decisions tell: of the ledger's chain, of each task and its receipt, and of what the index must say.

use super::{LISTED, TrustedKeys, VerifyReport, receipt_chain::CheckedReceipt, receipt_chain::ReceiptsByTask};
use crate::{
    closing::add_line,
    ledger::{LedgerError, LedgerReader, chained},
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
    /// The ledger's heads that receipts and anchors name.
    pub(super) at: HashMap<u64, Digest>,
    pub(super) last: u64,
    tasks: HashMap<TaskId, TaskHistory>,
    /// The numbers of the receipts that were sealed.
    sealed: HashSet<u64>,
    /// Whether a decision is missing or was changed: what is told then is not what was decided.
    broken: bool,
}

/// A task, as its decisions have it. Numbers are those of decisions.
#[derive(Default)]
struct TaskHistory {
    planned: Option<IndexedRequest>,
    /// What the index must have for its status; none is `queued`.
    status: Option<Status>,
    approval: Option<ApprovalId>,
    /// It waits for a person.
    waits: bool,
    settled: Option<u64>,
    /// What its journal amounted to when it was settled.
    head: Option<Digest>,
    sealed: bool,
    expiries: Vec<ExpiryDecision>,
}

/// What the index has of a task's first decision.
struct IndexedRequest {
    first: u64,
    principal: PrincipalId,
    session: Option<SessionId>,
    idem: Option<Digest>,
}

/// A decision that says that what a task left was removed.
struct ExpiryDecision {
    signed: Option<KeySignature>,
    /// The receipt was sealed later, and speaks for this decision with the others.
    spoken_for: bool,
}

impl LedgerPass {
    /// Goes through all decisions: the chain, what each receipt says of it, and the decisions of each task.
    pub(super) fn all(
        ledger: &LedgerReader,
        rows: &ReceiptsByTask,
        since: Option<u64>,
        keys: &TrustedKeys,
        report: &mut VerifyReport,
    ) -> Result<Self, LedgerError> {
        let named = rows.good.values().map(|r| r.ledger_head.decision.0).chain(since).collect();
        let mut walk = PassState { rows, keys, named, told: LedgerPass::default(), lines: HashMap::new(), report };
        let mut chain = HashChain::for_ledger();
        let mut all = ledger.conn.prepare("SELECT n, task, seq, line, head FROM decisions ORDER BY n")?;
        let mut found = all.query([])?;
        while let Some(row) = found.next()? {
            walk.decision(row, &mut chain)?;
        }
        let PassState { told, .. } = walk;
        report.decisions = told.last;
        for checked in rows.good.values() {
            told.head_of(checked, report);
            told.sealed_as(checked, report);
        }
        Ok(told)
    }

    /// The decisions of the tasks of these receipts, and no others.
    pub(super) fn of_tasks(
        ledger: &LedgerReader,
        rows: &ReceiptsByTask,
        keys: &TrustedKeys,
        report: &mut VerifyReport,
    ) -> Result<Self, LedgerError> {
        let named = HashSet::new();
        let mut walk = PassState { rows, keys, named, told: LedgerPass::default(), lines: HashMap::new(), report };
        let mut own = ledger.conn.prepare("SELECT n, task, seq, line FROM decisions WHERE task = ?1 ORDER BY n")?;
        for task in rows.good.keys() {
            let mut found = own.query(params![task.to_string()])?;
            while let Some(row) = found.next()? {
                let n = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
                match text(row, 3) {
                    Ok(line) => walk.note(n, Some(*task), row.get_ref(2)?, line),
                    Err(()) => walk.report.find(place(n, Some(*task)), NOT_TEXT),
                }
            }
        }
        let PassState { told, .. } = walk;
        rows.good.values().for_each(|checked| told.sealed_as(checked, report));
        Ok(told)
    }

    fn head_of(&self, checked: &CheckedReceipt, report: &mut VerifyReport) {
        let LedgerHead { decision, sha256 } = checked.ledger_head;
        match self.at.get(&decision.0) {
            Some(stored) if *stored == sha256 => {}
            Some(_) => report.find(
                checked.place(),
                format!("speaks for another ledger: decision {decision} or one before it was changed"),
            ),
            None => {
                report.find(checked.place(), format!("speaks for decision {decision}, which the ledger does not have"));
            }
        }
    }

    fn sealed_as(&self, checked: &CheckedReceipt, report: &mut VerifyReport) {
        if !self.sealed.contains(&checked.number) {
            report.find(checked.place(), "is not in the ledger: no decision says that it was sealed");
        }
    }

    pub(super) fn knows(&self, task: TaskId) -> bool {
        self.tasks.contains_key(&task)
    }

    /// What a task's journal amounted to when it was settled.
    pub(super) fn settled_head(&self, task: TaskId) -> Option<Digest> {
        self.tasks.get(&task)?.head
    }

    /// Whether what a receipt speaks for was removed by the house, which a key must say: a line anybody could add.
    pub(super) fn expired(&self, checked: &CheckedReceipt, keys: &TrustedKeys, report: &mut VerifyReport) -> bool {
        let expiries = self.tasks.get(&checked.task).map(|life| life.expiries.as_slice()).unwrap_or_default();
        let proved = expiries.iter().any(|e| e.spoken_for || proves(e.signed.as_ref(), checked, keys));
        if !proved && !expiries.is_empty() {
            report.find(format!("retention.expired of {}", checked.task), UNPROVED);
        }
        proved
    }

    /// The tasks that have settled and were not sealed, in the order in which they settled.
    pub(super) fn unsealed(&self) -> Vec<TaskId> {
        let waiting = |(task, life): (&TaskId, &TaskHistory)| Some((life.settled.filter(|_| !life.sealed)?, *task));
        let mut all: Vec<(u64, TaskId)> = self.tasks.iter().filter_map(waiting).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, task)| task).collect()
    }

    /// Compares the index of tasks with what it was made from.
    pub(super) fn index(&self, ledger: &LedgerReader, report: &mut VerifyReport) -> Result<(), LedgerError> {
        if self.broken {
            report.notes.push("the index was not looked at: the decisions that it is made from do not hold".to_owned());
            return Ok(());
        }
        let mut wrong = Vec::new();
        let mut seen = HashSet::new();
        let mut query = ledger.conn.prepare(&format!("SELECT id, {} FROM tasks ORDER BY id", INDEXED.join(", ")))?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            let said = |i| row.get_ref(i).map(shown);
            let id = said(0)?;
            let life = id.parse().ok().and_then(|task| Some((task, self.tasks.get(&task)?.indexed()?)));
            let Some((task, due)) = life else {
                wrong.push((id, "that there is this task, and no decision does".to_owned()));
                continue;
            };
            seen.insert(task);
            for (i, (name, due)) in (1..).zip(INDEXED.iter().zip(due)) {
                let said = said(i)?;
                if said != due {
                    wrong.push((id.clone(), format!("{name} {said}, the decisions say {due}")));
                }
            }
        }
        let left_out = self.tasks.iter().filter(|(task, life)| life.planned.is_some() && !seen.contains(*task));
        wrong.extend(left_out.map(|(task, _)| (task.to_string(), "nothing of this task".to_owned())));
        for (id, says) in wrong.iter().take(LISTED) {
            report.find(format!("index of {id}"), format!("says {says}; csn doctor --fix makes it anew"));
        }
        if wrong.len() > LISTED {
            let more = wrong.len() - LISTED;
            report.find(
                "index",
                format!("says {more} more things that no decision does; csn doctor --fix makes it anew"),
            );
        }
        Ok(())
    }
}

impl TaskHistory {
    /// What the index must say, in the order of [`INDEXED`].
    fn indexed(&self) -> Option<[String; INDEXED.len()]> {
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

/// The columns of the index beside the task's id: all of them.
const INDEXED: [&str; 10] =
    ["principal", "session", "status", "approval", "waits", "idem", "first", "last", "settled", "sealed"];

const NOTHING: &str = "none";
const NOT_TEXT: &str = "does not read: its line is not text";
/// What is found where a task is said to have expired, and nobody who may say so does.
pub(super) const UNPROVED: &str = "no key of the house says so";

/// Whether a trusted key says that what this receipt speaks for was removed.
pub(super) fn proves(word: Option<&KeySignature>, checked: &CheckedReceipt, keys: &TrustedKeys) -> bool {
    let says = |word: &KeySignature| Some(keys.get(word.key)?.says_expired(checked.task, checked.digest, word));
    word.and_then(says).unwrap_or(false)
}

fn place(n: u64, task: Option<TaskId>) -> String {
    let of = task.map(|t| format!(" ({t})")).unwrap_or_default();
    format!("decision {n}{of}")
}

fn text<'a>(row: &'a Row<'_>, i: usize) -> Result<&'a str, ()> {
    row.get_ref(i).ok().and_then(|v| v.as_str().ok()).ok_or(())
}

/// A value as it stands.
fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => NOTHING.to_owned(),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(n) => n.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// The number that a line has in its task: the lines of the house begin with it.
fn seq_of(line: &str) -> Option<i64> {
    let begin = line.strip_prefix(r#"{"v":1,"seq":"#).and_then(|rest| rest.split_once(',')?.0.parse().ok());
    begin.or_else(|| i64::try_from(Record::parse(line).ok()?.seq).ok())
}

/// On the way through the decisions.
struct PassState<'a> {
    rows: &'a ReceiptsByTask,
    keys: &'a TrustedKeys,
    /// The decisions whose heads are wanted.
    named: HashSet<u64>,
    told: LedgerPass,
    /// Of tasks that are not sealed yet.
    lines: HashMap<TaskId, Sha256>,
    report: &'a mut VerifyReport,
}

impl PassState<'_> {
    /// One more decision of the ledger, with the chain so far.
    fn decision(&mut self, row: &Row<'_>, chain: &mut HashChain) -> Result<(), LedgerError> {
        let n: i64 = row.get(0)?;
        let Some(n) = u64::try_from(n).ok().filter(|n| *n > 0) else {
            self.breaks(format!("decision {n}"), "stands outside of the ledger: decisions are numbered from 1");
            return Ok(());
        };
        let due = self.told.last.saturating_add(1);
        let gap = n != due;
        if gap {
            self.breaks(place(due, None), "is missing from the ledger");
        }
        self.told.last = n;
        let owner = match row.get_ref(1)? {
            ValueRef::Null => None,
            value => Some(shown(value)),
        };
        let task = owner.as_deref().and_then(|t| t.parse::<TaskId>().ok());
        if let (Some(owner), None) = (&owner, task) {
            // In the chain, a decision about no task has the owner `-`.
            self.breaks(place(n, None), format!("was changed: it is said to be of `{owner}`, which is no task"));
        }
        let Some(stored) = row.get_ref(4)?.as_blob().ok().and_then(|b| b.try_into().ok()).map(Digest::from_bytes)
        else {
            self.breaks(place(n, task), "does not read: its head does not have 32 bytes");
            return Ok(());
        };
        let Ok(line) = text(row, 3) else {
            self.breaks(place(n, task), NOT_TEXT);
            *chain = HashChain::resume(stored);
            return Ok(());
        };
        chain.push(&chained(owner.as_deref(), line));
        if chain.head() != stored {
            if !gap {
                self.breaks(place(n, task), "was changed: the ledger's chain breaks here");
            }
            // Once is enough: from here the chain goes on as it is stored, so that a second break is found too.
            *chain = HashChain::resume(stored);
        }
        if self.named.contains(&n) {
            self.told.at.insert(n, stored);
        }
        self.note(n, task, row.get_ref(2)?, line);
        Ok(())
    }

    fn breaks(&mut self, place: String, what: impl Into<String>) {
        self.told.broken = true;
        self.report.find(place, what);
    }

    /// What a decision says of its task. `seq` is the number that it has in the ledger's column for that.
    fn note(&mut self, n: u64, task: Option<TaskId>, seq: ValueRef<'_>, line: &str) {
        let due = task.and_then(|_| seq_of(line));
        if seq != due.map_or(ValueRef::Null, ValueRef::Integer) {
            let due = due.map_or_else(|| NOTHING.to_owned(), |n| n.to_string());
            self.breaks(
                place(n, task),
                format!("was changed: the ledger has it as number {}, it is {due}", shown(seq)),
            );
        }
        let Some(task) = task else { return };
        // Parsing is most of the work: only what says something of the index or of a receipt.
        let kinds = ["command.planned", "permission.requested", "task.settled", "receipt.sealed", "retention.expired"];
        let waits = || self.told.tasks.get(&task).is_some_and(|life| life.waits);
        let granted = is_of_kind(line, "permission.granted") && waits();
        let runs = ["task.launched", "task.observing"].iter().any(|kind| is_of_kind(line, kind));
        let what = match granted || kinds.iter().any(|kind| is_of_kind(line, kind)) {
            true => Record::parse(line).ok().map(|r| r.what),
            false => None,
        };
        if let Some(RecordContent::Decision(Decision::Sealed(said))) = what {
            return self.seal(n, task, said);
        }
        add_line(self.lines.entry(task).or_default(), line);
        let life = self.told.tasks.entry(task).or_default();
        if runs {
            life.status = Some(Status::Running);
        }
        match what {
            Some(RecordContent::Decision(Decision::Planned { principal, session, idempotency, .. })) => {
                let idem = idempotency.map(|i| i.key);
                life.planned = Some(IndexedRequest { first: n, principal, session, idem });
            }
            Some(RecordContent::Decision(Decision::PermissionRequested { approval, .. })) => {
                (life.approval, life.waits) = (Some(approval), true);
            }
            Some(RecordContent::Decision(Decision::PermissionGranted { scope, .. })) => {
                life.waits &= scope == Scope::Policy
            }
            Some(RecordContent::Decision(Decision::Settled { journal_head, outcome, .. })) => {
                (life.settled, life.waits, life.status) = (Some(n), false, Some(outcome.status()));
                life.head = journal_head;
            }
            Some(RecordContent::Decision(Decision::Expired { signed, .. })) => {
                life.expiries.push(ExpiryDecision { signed, spoken_for: false });
            }
            _ => {}
        }
    }

    /// A decision that a receipt was sealed, beside that receipt.
    fn seal(&mut self, n: u64, task: TaskId, said: SealedReceipt) {
        let decisions = Digest::from_bytes(self.lines.remove(&task).unwrap_or_default().finalize().into());
        self.told.sealed.insert(said.number);
        let life = self.told.tasks.entry(task).or_default();
        life.sealed = true;
        let Some(checked) = self.rows.good.get(&task) else {
            if !self.rows.bad.contains(&task) {
                let what = format!("is missing: decision {n} says that it was sealed");
                self.report.find(format!("receipt {} ({task})", said.number), what);
            }
            return;
        };
        let same = (checked.number, checked.digest, checked.receipt, checked.key);
        if same != (said.number, said.digest, said.receipt, said.key) {
            self.report.find(checked.place(), format!("is not the one that decision {n} says was sealed for {task}"));
        }
        match checked.subject(ReceiptSubject::DECISIONS) {
            Some(sealed) if sealed == decisions => life.expiries.iter_mut().for_each(|e| e.spoken_for = true),
            Some(_) => {
                let what = format!("the decisions of {task} are not those that it speaks for");
                self.report.find(checked.place(), what);
            }
            None => {}
        }
        if let Err(why) = self.keys.replaced_at(checked.key, n) {
            self.report.find(checked.place(), why);
        }
    }
}

/// Whether a line may be of this kind: what is quoted in a line has its quotes escaped.
fn is_of_kind(line: &str, kind: &str) -> bool {
    let behind = line.split_once(r#""kind":""#).map(|(_, rest)| rest);
    behind.is_some_and(|rest| rest.strip_prefix(kind).is_some_and(|rest| rest.starts_with('"')))
}
