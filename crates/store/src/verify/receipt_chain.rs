//! The receipt chain: each receipt is signed, has the right number, and names the previous receipt.

use super::{MAX_LISTED_FINDINGS, TrustedKeys, VerifyReport};
use crate::{
    SignedReceipt,
    ledger::{LedgerError, LedgerReader},
    receipts::{MAX_RECEIPT_NUMBER, UnreadableReceipt},
};
use countersign_model::{
    Digest, HomeId, LedgerHead, PREDICATE, ReceiptId, STATEMENT, SealedJournal, Statement, TaskId,
};
use std::{
    collections::{HashMap, HashSet},
    thread,
};

/// How many receipts are read at a time.
const BATCH_RECEIPTS: u32 = 2048;

/// The fields of a checked receipt that later checks need.
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
    /// A receipt that covers nothing.
    #[cfg(test)]
    pub(super) fn for_test(number: u64, task: TaskId, home: Option<HomeId>, ledger_head: LedgerHead) -> Self {
        let (digest, receipt) = (ledger_head.sha256, "rc_01jcx3v9q8k2m4tx".parse().unwrap());
        let (subjects, journal, prev, pty) = (Vec::new(), None, None, false);
        Self { number, receipt, task, home, digest, key: digest, ledger_head, subjects, journal, prev, pty }
    }

    pub(super) fn place(&self) -> String {
        receipt_place(self.number, Some(self.task))
    }

    pub(super) fn subject(&self, name: &str) -> Option<Digest> {
        self.subjects.iter().find(|(n, _)| n == name).map(|(_, d)| *d)
    }
}

fn receipt_place(number: u64, task: Option<TaskId>) -> String {
    match task {
        Some(task) => format!("receipt {number} ({task})"),
        None => format!("receipt {number}"),
    }
}

/// Receipts by task: the valid ones, and the tasks whose receipt exists but is not valid.
#[derive(Default)]
pub(super) struct ReceiptsByTask {
    pub(super) good: HashMap<TaskId, CheckedReceipt>,
    pub(super) bad: HashSet<TaskId>,
}

/// Checks the receipts from one number to another. A named last receipt must exist.
pub(super) fn check(
    ledger: &LedgerReader,
    from: u64,
    to: Option<u64>,
    keys: &TrustedKeys,
    report: &mut VerifyReport,
) -> Result<ReceiptsByTask, LedgerError> {
    let mut receipts = ReceiptsByTask::default();
    let mut chain = ReceiptChain::starting_at(from);
    if let Some((before, last)) = chain.last.as_mut().map(|(n, digest, _)| (*n, digest)) {
        *last = ledger.receipt(before)?.map(|s| s.digest());
    }
    let (mut next, end) = (from, to.unwrap_or(MAX_RECEIPT_NUMBER).min(MAX_RECEIPT_NUMBER));
    while next <= end {
        let batch = ledger.raw_receipts(next, end, BATCH_RECEIPTS)?;
        let Some(last) = batch.last().map(|(number, _)| *number) else { break };
        receipts.bad.extend(batch.iter().filter_map(|(_, one)| task_of(one)));
        for checked in chain.extend(&batch, keys, report) {
            receipts.bad.remove(&checked.task);
            receipts.good.insert(checked.task, checked);
        }
        next = last.saturating_add(1);
    }
    if let Some(to) = to {
        chain.require_up_to(to, report);
    }
    Ok(receipts)
}

/// Reports rows with numbers that no receipt can have.
pub(super) fn check_invalid_numbers(ledger: &LedgerReader, report: &mut VerifyReport) -> Result<(), LedgerError> {
    for number in ledger.invalid_receipt_numbers()? {
        report.add_finding(format!("receipt {number}"), "has an invalid number: receipts are numbered from 1");
    }
    Ok(())
}

/// The first and the last number of an export that contains all receipts between them.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportRange {
    pub from: u64,
    pub to: u64,
}

/// Checks receipts from a file: a complete chain, or single ones.
pub(super) fn check_all(
    signed: Vec<SignedReceipt>,
    ends: Option<ExportRange>,
    keys: &TrustedKeys,
    report: &mut VerifyReport,
) -> Vec<CheckedReceipt> {
    let all: Vec<NumberedReceipt> = signed.into_iter().map(|one| (one.number, Ok(one))).collect();
    let Some(ExportRange { from, to }) = ends else {
        return ReceiptChain::unchained().extend(&all, keys, report);
    };
    let mut chain = ReceiptChain::starting_at(from);
    let checked = chain.extend(&all, keys, report);
    chain.require_up_to(to, report);
    checked
}

type NumberedReceipt = (u64, Result<SignedReceipt, UnreadableReceipt>);

fn task_of(one: &Result<SignedReceipt, UnreadableReceipt>) -> Option<TaskId> {
    one.as_ref().map_or_else(|unreadable| unreadable.task, |signed| Some(signed.task))
}

struct ReceiptChain {
    /// The last receipt: its number, its digest if known, and the last decision that it covers.
    last: Option<(u64, Option<Digest>, u64)>,
    /// Not a chain: the receipts before and after are unknown.
    unchained: bool,
}

impl ReceiptChain {
    fn starting_at(first: u64) -> Self {
        Self { last: first.checked_sub(1).filter(|n| *n > 0).map(|before| (before, None, 0)), unchained: false }
    }

    fn unchained() -> Self {
        Self { last: None, unchained: true }
    }

    fn next_number(&self) -> u64 {
        self.last.map_or(1, |(n, ..)| n.saturating_add(1))
    }

    fn extend(
        &mut self,
        all: &[NumberedReceipt],
        keys: &TrustedKeys,
        report: &mut VerifyReport,
    ) -> Vec<CheckedReceipt> {
        let opened = in_parallel(all, |(_, one)| match one {
            Ok(signed) => open_receipt(signed, keys),
            Err(unreadable) => Err(unreadable.why.clone()),
        });
        let mut good = Vec::with_capacity(all.len());
        for ((number, one), opened) in all.iter().zip(opened) {
            report.receipts += 1;
            let place = receipt_place(*number, task_of(one));
            if !self.unchained {
                report_missing(self.next_number(), *number, report);
                if *number < self.next_number() {
                    report.add_finding(&place, format!("is in the place of receipt {}", self.next_number()));
                }
            }
            let ledger = self.last.map_or(0, |(.., ledger)| ledger);
            match opened {
                Ok(checked) => {
                    if let Some(Err(why)) = one.as_ref().ok().map(|signed| self.check_position(signed, &checked)) {
                        report.add_finding(place, why);
                    }
                    self.advance(*number, Some(checked.digest), ledger.max(checked.ledger_head.decision.0));
                    good.push(checked);
                }
                Err(why) => {
                    report.add_finding(place, why);
                    self.advance(*number, None, ledger);
                }
            }
        }
        good
    }

    fn advance(&mut self, number: u64, digest: Option<Digest>, ledger: u64) {
        if !self.unchained {
            self.last = Some((number, digest, ledger));
        }
    }

    /// Whether a receipt belongs where it is stored.
    fn check_position(&self, stored: &SignedReceipt, checked: &CheckedReceipt) -> Result<(), String> {
        if checked.number != stored.number {
            return Err(format!("is receipt {}, stored under the wrong number", checked.number));
        }
        if checked.task != stored.task {
            return Err(format!("is the receipt of another task, {}", checked.task));
        }
        if checked.receipt != stored.receipt {
            return Err(format!("is stored as {}, but its id is {}", stored.receipt, checked.receipt));
        }
        match self.last {
            Some((n, Some(digest), _)) if n.checked_add(1) == Some(stored.number) && checked.prev != Some(digest) => {
                Err(format!("does not follow receipt {n}: one of the two was replaced"))
            }
            Some((n, _, ledger)) if checked.ledger_head.decision.0 < ledger => {
                Err(format!("covers an older ledger than the previous receipt {n}"))
            }
            None if stored.number == 1 && checked.prev.is_some() => {
                Err("names a previous receipt that does not exist".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The chain must contain all receipts up to this number.
    fn require_up_to(&self, to: u64, report: &mut VerifyReport) {
        report_missing(self.next_number(), to.saturating_add(1), report);
    }
}

/// Reports the missing receipts from `due` up to `there`, the next one that exists.
fn report_missing(due: u64, there: u64, report: &mut VerifyReport) {
    let listed = due.saturating_add(MAX_LISTED_FINDINGS as u64).min(there);
    for number in due..listed {
        report.add_finding(format!("receipt {number}"), "is missing");
    }
    if due < listed && listed < there {
        report.add_finding(format!("receipts {listed} to {}", there - 1), "are missing");
    }
}

/// Opens one receipt: checks its signature and reads its statement.
fn open_receipt(signed: &SignedReceipt, keys: &TrustedKeys) -> Result<CheckedReceipt, String> {
    if !signed.verifies(keys.signer(signed.key)?) {
        return Err("was changed: its signature does not verify".to_owned());
    }
    let statement: Statement = serde_json::from_str(&signed.payload).map_err(|e| format!("cannot be parsed: {e}"))?;
    if statement.kind != STATEMENT || statement.predicate_type != PREDICATE {
        return Err(format!("has the type {}, not {PREDICATE}", statement.predicate_type));
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

/// Applies a function to all items in parallel; the results are in order.
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
