//! A row of receipts: each signed, each in its place, each bound to the one before it.

use super::{LISTED, TrustedKeys, VerifyReport};
use crate::{
    SignedReceipt,
    ledger::{LedgerError, LedgerReader},
    receipts::{LAST_NUMBER, UnreadableReceipt},
};
use countersign_model::{
    Digest, HomeId, LedgerHead, PREDICATE, ReceiptId, STATEMENT, SealedJournal, Statement, TaskId,
};
use std::{
    collections::{HashMap, HashSet},
    thread,
};

/// So many are read at a time.
const BATCH: u32 = 2048;

/// What is needed of a receipt that was checked.
#[derive(Debug, Clone)]
pub(super) struct CheckedReceipt {
    pub(super) number: u64,
    pub(super) receipt: ReceiptId,
    pub(super) task: TaskId,
    pub(super) home: Option<HomeId>,
    pub(super) digest: Digest,
    pub(super) key: Digest,
    pub(super) ledger_head: LedgerHead,
    pub(super) subjects: Vec<(String, Digest)>,
    pub(super) journal: Option<SealedJournal>,
    prev: Option<Digest>,
    pub(super) pty: bool,
}

impl CheckedReceipt {
    /// One that speaks for nothing.
    #[cfg(test)]
    pub(super) fn bare(number: u64, task: TaskId, home: Option<HomeId>, ledger_head: LedgerHead) -> Self {
        let (digest, receipt) = (ledger_head.sha256, "rc_01jcx3v9q8k2m4tx".parse().unwrap());
        let (subjects, journal, prev, pty) = (Vec::new(), None, None, false);
        Self { number, receipt, task, home, digest, key: digest, ledger_head, subjects, journal, prev, pty }
    }

    pub(super) fn place(&self) -> String {
        place(self.number, Some(self.task))
    }

    pub(super) fn subject(&self, name: &str) -> Option<Digest> {
        self.subjects.iter().find(|(n, _)| n == name).map(|(_, d)| *d)
    }
}

fn place(number: u64, task: Option<TaskId>) -> String {
    match task {
        Some(task) => format!("receipt {number} ({task})"),
        None => format!("receipt {number}"),
    }
}

/// By task: those that hold by themselves, and those that are there and do not.
#[derive(Default)]
pub(super) struct ReceiptsByTask {
    pub(super) good: HashMap<TaskId, CheckedReceipt>,
    pub(super) bad: HashSet<TaskId>,
}

/// Checks the receipts from one number to another, which must be there if it is named.
pub(super) fn check(
    ledger: &LedgerReader,
    from: u64,
    to: Option<u64>,
    keys: &TrustedKeys,
    report: &mut VerifyReport,
) -> Result<ReceiptsByTask, LedgerError> {
    let mut rows = ReceiptsByTask::default();
    let mut row = ReceiptChain::from(from);
    if let Some((before, last)) = row.last.as_mut().map(|(n, digest, _)| (*n, digest)) {
        *last = ledger.receipt(before)?.map(|s| s.digest());
    }
    let (mut next, end) = (from, to.unwrap_or(LAST_NUMBER).min(LAST_NUMBER));
    while next <= end {
        let batch = ledger.receipts_as_they_stand(next, end, BATCH)?;
        let Some(last) = batch.last().map(|(number, _)| *number) else { break };
        rows.bad.extend(batch.iter().filter_map(|(_, one)| task_of(one)));
        for checked in row.go_on(&batch, keys, report) {
            rows.bad.remove(&checked.task);
            rows.good.insert(checked.task, checked);
        }
        next = last.saturating_add(1);
    }
    if let Some(to) = to {
        row.reach(to, report);
    }
    Ok(rows)
}

/// Rows whose numbers no receipt can have.
pub(super) fn outside(ledger: &LedgerReader, report: &mut VerifyReport) -> Result<(), LedgerError> {
    for number in ledger.receipts_outside()? {
        report.find(format!("receipt {number}"), "stands outside of the row: receipts are numbered from 1");
    }
    Ok(())
}

/// From which receipt to which a file has all of them.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportRange {
    pub from: u64,
    pub to: u64,
}

/// The same for receipts that came in a file: a row of them, or each by itself.
pub(super) fn check_all(
    signed: Vec<SignedReceipt>,
    ends: Option<ExportRange>,
    keys: &TrustedKeys,
    report: &mut VerifyReport,
) -> Vec<CheckedReceipt> {
    let all: Vec<ChainCheck> = signed.into_iter().map(|one| (one.number, Ok(one))).collect();
    let Some(ExportRange { from, to }) = ends else {
        return ReceiptChain::apart().go_on(&all, keys, report);
    };
    let mut row = ReceiptChain::from(from);
    let checked = row.go_on(&all, keys, report);
    row.reach(to, report);
    checked
}

type ChainCheck = (u64, Result<SignedReceipt, UnreadableReceipt>);

fn task_of(one: &Result<SignedReceipt, UnreadableReceipt>) -> Option<TaskId> {
    one.as_ref().map_or_else(|unreadable| unreadable.task, |signed| Some(signed.task))
}

struct ReceiptChain {
    /// The last one: its number, its digest if that is known, and how far the ledger went.
    last: Option<(u64, Option<Digest>, u64)>,
    /// Not a row: what is before or behind is not known.
    apart: bool,
}

impl ReceiptChain {
    fn from(first: u64) -> Self {
        Self { last: first.checked_sub(1).filter(|n| *n > 0).map(|before| (before, None, 0)), apart: false }
    }

    fn apart() -> Self {
        Self { last: None, apart: true }
    }

    fn due(&self) -> u64 {
        self.last.map_or(1, |(n, ..)| n.saturating_add(1))
    }

    fn go_on(&mut self, all: &[ChainCheck], keys: &TrustedKeys, report: &mut VerifyReport) -> Vec<CheckedReceipt> {
        let opened = in_parallel(all, |(_, one)| match one {
            Ok(signed) => open(signed, keys),
            Err(unreadable) => Err(unreadable.why.clone()),
        });
        let mut good = Vec::with_capacity(all.len());
        for ((number, one), opened) in all.iter().zip(opened) {
            report.receipts += 1;
            let place = place(*number, task_of(one));
            if !self.apart {
                missing(self.due(), *number, report);
                if *number < self.due() {
                    report.find(&place, format!("stands where receipt {} should be", self.due()));
                }
            }
            let ledger = self.last.map_or(0, |(.., ledger)| ledger);
            match opened {
                Ok(checked) => {
                    if let Some(Err(why)) = one.as_ref().ok().map(|signed| self.fits(signed, &checked)) {
                        report.find(place, why);
                    }
                    self.stands(*number, Some(checked.digest), ledger.max(checked.ledger_head.decision.0));
                    good.push(checked);
                }
                Err(why) => {
                    report.find(place, why);
                    self.stands(*number, None, ledger);
                }
            }
        }
        good
    }

    fn stands(&mut self, number: u64, digest: Option<Digest>, ledger: u64) {
        if !self.apart {
            self.last = Some((number, digest, ledger));
        }
    }

    /// Whether a receipt is the one that should stand where it stands.
    fn fits(&self, stands: &SignedReceipt, checked: &CheckedReceipt) -> Result<(), String> {
        if checked.number != stands.number {
            return Err(format!("is receipt {}: it does not stand in its place", checked.number));
        }
        if checked.task != stands.task {
            return Err(format!("is the receipt of {}", checked.task));
        }
        if checked.receipt != stands.receipt {
            return Err(format!("is kept as {}, and is {}", stands.receipt, checked.receipt));
        }
        match self.last {
            Some((n, Some(digest), _)) if n.checked_add(1) == Some(stands.number) && checked.prev != Some(digest) => {
                Err(format!("does not go on from receipt {n}: one of the two was exchanged"))
            }
            Some((n, _, ledger)) if checked.ledger_head.decision.0 < ledger => {
                Err(format!("speaks for an older ledger than receipt {n} before it"))
            }
            None if stands.number == 1 && checked.prev.is_some() => {
                Err("goes on from a receipt that is not there".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The row must go as far as this.
    fn reach(&self, to: u64, report: &mut VerifyReport) {
        missing(self.due(), to.saturating_add(1), report);
    }
}

/// Receipts from `due` on that are not there, up to the one that is.
fn missing(due: u64, there: u64, report: &mut VerifyReport) {
    let listed = due.saturating_add(LISTED as u64).min(there);
    for number in due..listed {
        report.find(format!("receipt {number}"), "is missing");
    }
    if due < listed && listed < there {
        report.find(format!("receipts {listed} to {}", there - 1), "are missing");
    }
}

/// Opens one receipt: whose signature it bears, and what it says.
fn open(signed: &SignedReceipt, keys: &TrustedKeys) -> Result<CheckedReceipt, String> {
    if !signed.verifies(keys.signer(signed.key)?) {
        return Err("was changed: its signature does not verify".to_owned());
    }
    let statement: Statement = serde_json::from_str(&signed.payload).map_err(|e| format!("does not read: {e}"))?;
    if statement.kind != STATEMENT || statement.predicate_type != PREDICATE {
        return Err(format!("is a {}, not a {PREDICATE}", statement.predicate_type));
    }
    let receipt = statement.predicate;
    keys.replaced_at(signed.key, receipt.ledger_head.decision.0)?;
    Ok(CheckedReceipt {
        number: receipt.seq.0,
        receipt: receipt.receipt_id,
        task: receipt.task_id,
        home: receipt.home_id,
        digest: signed.digest(),
        key: signed.key,
        ledger_head: receipt.ledger_head,
        subjects: statement.subject.into_iter().map(|s| (s.name, s.digest.sha256)).collect(),
        journal: receipt.journal,
        prev: receipt.prev,
        pty: receipt.request.mode == countersign_model::Mode::Pty,
    })
}

/// The same function for all of them, by all processors, in order.
pub(super) fn in_parallel<T: Sync, U: Send>(all: &[T], f: impl Fn(&T) -> U + Sync) -> Vec<U> {
    let workers = thread::available_parallelism().map_or(1, usize::from).min(8);
    if workers < 2 || all.len() < 4 {
        return all.iter().map(f).collect();
    }
    let each = all.len().div_ceil(workers);
    thread::scope(|scope| {
        let parts: Vec<_> =
            all.chunks(each).map(|part| scope.spawn(|| part.iter().map(&f).collect::<Vec<U>>())).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    })
}
