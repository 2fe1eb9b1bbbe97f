//! Checks stored data against signatures: one task, a receipt chain, the whole ledger, an exported bundle.
//!
//! This needs no daemon, no network and no secret. Every finding names its place. Files that retention removed count as
//! expired, not as missing.

mod artifacts;
mod bundle;
mod files;
mod home;
mod keys;
mod ledger_pass;
mod receipt_chain;

pub use bundle::{BundleNames, bundle, merge_stream, plan};
pub use keys::{KeyAnnouncement, TrustedKeys};
pub use receipt_chain::ExportRange;

use crate::{
    Envelope, HEAD_TYPE, Home,
    condition::{self, CheckDepth},
    ledger::{LedgerError, LedgerReader},
};
use countersign_model::{DecimalCount, Digest, HomeId, LedgerHead, TaskId};
use ledger_pass::LedgerPass;
use receipt_chain::CheckedReceipt;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What was checked, and every finding.
#[derive(Debug, Default, Serialize)]
pub struct VerifyReport {
    /// What was verified.
    pub what: String,
    /// The home that the data comes from, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home_id: Option<HomeId>,
    pub receipts: u64,
    pub decisions: u64,
    pub tasks: u64,
    pub files: u64,
    pub bytes: u64,
    /// Tasks whose files retention has removed.
    pub expired: u64,
    pub findings: Vec<Finding>,
    /// Remarks that are not faults.
    pub notes: Vec<String>,
}

/// A fault, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub place: String,
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl VerifyReport {
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.findings.is_empty()
    }

    fn add_finding(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.findings.push(Finding { place: place.into(), what: what.into() });
    }

    fn merge(&mut self, other: VerifyReport) {
        self.receipts += other.receipts;
        self.decisions += other.decisions;
        self.tasks += other.tasks;
        self.files += other.files;
        self.bytes += other.bytes;
        self.expired += other.expired;
        self.findings.extend(other.findings);
        self.notes.extend(other.notes);
    }
}

/// A signed ledger head that was saved elsewhere.
#[derive(Debug, Clone, Deserialize)]
pub struct SavedLedgerHead {
    receipts: DecimalCount,
    receipt: Option<Digest>,
    ledger_head: LedgerHead,
    /// Heads of earlier versions name no home.
    #[serde(default)]
    home_id: Option<HomeId>,
}

/// Reports progress: tasks done, and tasks in all.
pub type VerifyProgress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// What to verify of a home, and how.
#[derive(Default)]
pub struct VerifyScope<'a> {
    /// Keys that are trusted in advance; without any, the first key of the ledger is trusted.
    pub pinned: &'a [crate::PublicKey],
    pub since: Option<&'a Envelope>,
    /// Check only receipts and the ledger, not the files of tasks.
    pub receipts_only: bool,
}

/// Verifies a whole home: every decision, every receipt, and every file that they cover.
pub fn home(home: &Home, scope: &VerifyScope<'_>, progress: VerifyProgress<'_>) -> Result<VerifyReport, LedgerError> {
    let trouble = match condition::check(home, CheckDepth::Whole) {
        Ok(()) => None,
        Err(e @ LedgerError::Newer { .. }) => return Err(e),
        // Each of those tasks is reported when the directories are checked.
        Err(LedgerError::Behind { .. }) if !scope.receipts_only => None,
        Err(e) => Some(e),
    };
    let unreadable = matches!(trouble, Some(LedgerError::Damaged { .. } | LedgerError::Gone { .. }));
    let mut report = if unreadable {
        verify_salvaged(home, |path| verify_ledger(home, path, scope, progress))?
    } else {
        verify_or_salvage(home, |path| verify_ledger(home, path, scope, progress))?
    };
    if let Some(trouble) = trouble {
        report.findings.insert(0, Finding { place: "ledger.db".to_owned(), what: trouble.to_string() });
    }
    for repair in crate::repair::repairs(home) {
        report.notes.push(format!("repaired at {}: {}", repair.at, repair.trouble));
    }
    Ok(report)
}

/// Verifies a ledger. If it is damaged, verifies what can still be read and adds a finding about the damage.
fn verify_or_salvage(
    home: &Home,
    verify: impl Fn(&Path) -> Result<VerifyReport, LedgerError>,
) -> Result<VerifyReport, LedgerError> {
    match verify(&home.ledger()) {
        Err(e) if e.is_damage() => {
            let mut report = verify_salvaged(home, verify)?;
            report.add_finding("ledger.db", LedgerError::damaged(&home.ledger(), e).to_string());
            Ok(report)
        }
        verified => verified,
    }
}

fn verify_salvaged(
    home: &Home,
    verify: impl Fn(&Path) -> Result<VerifyReport, LedgerError>,
) -> Result<VerifyReport, LedgerError> {
    let scratch = home.run().join(format!("verify-{}.db", std::process::id()));
    let verified = crate::salvage::salvage(home, &scratch).and_then(|(ledger, _)| {
        drop(ledger);
        verify(&scratch)
    });
    let _ = crate::salvage::remove_ledger(&scratch);
    verified
}

fn verify_ledger(
    home: &Home,
    path: &Path,
    scope: &VerifyScope<'_>,
    progress: VerifyProgress<'_>,
) -> Result<VerifyReport, LedgerError> {
    let ledger = LedgerReader::open(path)?;
    // A snapshot: later decisions are not checked.
    ledger.conn.execute_batch("BEGIN")?;
    let mut report = VerifyReport::new(format!("the home at {}", home.path().display()));
    let keys = TrustedKeys::for_ledger(&KeyAnnouncement::read_all(&ledger)?, scope.pinned, &mut report);
    receipt_chain::check_invalid_numbers(&ledger, &mut report)?;
    let receipts = receipt_chain::check(&ledger, 1, None, &keys, &mut report)?;
    let since = scope.since.and_then(|e| keys.open_head(e).ok()).map(|h| h.ledger_head.decision.0);
    let pass = LedgerPass::read_ledger(&ledger, &receipts, since, &keys, &mut report)?;
    pass.check_index(&ledger, &mut report)?;
    home::check(&ledger, &receipts, &mut report)?;
    artifacts::check(&ledger, &receipts, &mut report)?;
    check_unsealed(home, path, &ledger, &pass, &mut report)?;
    let unexpired = unexpired_receipts(receipts.good.values(), &pass, &keys, &mut report);
    if scope.receipts_only {
        report.notes.push(FILES_NOT_CHECKED.to_owned());
    } else {
        report.merge(files::check_all(home, &unexpired, &pass, progress));
        check_unknown_tasks(home, path, &pass, &mut report)?;
        name_swapped_files(&ledger, &mut report)?;
    }
    match scope.since {
        Some(envelope) => check_saved_head(envelope, &keys, &receipts, &pass, &mut report),
        None => report.notes.push(
            "no saved ledger head was given, so decisions that were removed from the end would not be noticed; \
             save one elsewhere with `csn receipts head` and pass it with --since"
                .to_owned(),
        ),
    }
    Ok(report)
}

/// Verifies receipts from one number to another, and the files that they cover. A named last receipt must exist.
pub fn range(
    home: &Home,
    from: u64,
    to: Option<u64>,
    scope: &VerifyScope<'_>,
    progress: VerifyProgress<'_>,
) -> Result<VerifyReport, LedgerError> {
    verify_or_salvage(home, |path| verify_range(home, path, from, to, scope, progress))
}

fn verify_range(
    home: &Home,
    path: &Path,
    from: u64,
    to: Option<u64>,
    scope: &VerifyScope<'_>,
    progress: VerifyProgress<'_>,
) -> Result<VerifyReport, LedgerError> {
    let ledger = LedgerReader::open(path)?;
    ledger.conn.execute_batch("BEGIN")?;
    let mut report = VerifyReport::new(match to {
        Some(to) if to == from => format!("receipt {from}"),
        Some(to) => format!("receipts {from} to {to}"),
        None => format!("receipts from {from} on"),
    });
    let keys = TrustedKeys::for_part(&KeyAnnouncement::read_all(&ledger)?, scope.pinned, &mut report);
    let receipts = receipt_chain::check(&ledger, from.max(1), to, &keys, &mut report)?;
    if report.receipts == 0 && report.is_ok() {
        let end = to.map_or_else(|| "on".to_owned(), |to| format!("to {to}"));
        report.add_finding("receipts", format!("no receipt exists from {from} {end}"));
    }
    let pass = LedgerPass::read_tasks(&ledger, &receipts, &keys, &mut report)?;
    home::check(&ledger, &receipts, &mut report)?;
    let unexpired = unexpired_receipts(receipts.good.values(), &pass, &keys, &mut report);
    if scope.receipts_only {
        report.notes.push(FILES_NOT_CHECKED.to_owned());
    } else {
        report.merge(files::check_all(home, &unexpired, &pass, progress));
        name_swapped_files(&ledger, &mut report)?;
    }
    report.notes.push("the ledger as a whole was not checked; `csn verify` without a name does that".to_owned());
    Ok(report)
}

const FILES_NOT_CHECKED: &str = "the files of tasks were not checked (--receipts-only)";

/// Verifies one task.
pub fn task(home: &Home, task: TaskId, scope: &VerifyScope<'_>) -> Result<VerifyReport, LedgerError> {
    verify_or_salvage(home, |path| verify_task(home, path, task, scope))
}

fn verify_task(home: &Home, path: &Path, task: TaskId, scope: &VerifyScope<'_>) -> Result<VerifyReport, LedgerError> {
    let ledger = LedgerReader::open(path)?;
    let mut report = match ledger.receipt_number_of_task(task)? {
        Some(number) => verify_range(home, path, number, Some(number), scope, &|_, _| {})?,
        None => {
            let mut report = VerifyReport::default();
            let what = match (ledger.task_owner(task)?, ledger.settling_decision(task)?) {
                (None, _) => "the ledger has no such task",
                (Some(_), None) => "has not settled, so it has no receipt",
                (Some(_), Some(_)) => "has settled, but has no receipt",
            };
            report.add_finding(task.to_string(), what);
            report
        }
    };
    report.what = format!("task {task}");
    Ok(report)
}

/// The receipts whose files must exist. The files of the others have expired, confirmed by a key of the home.
fn unexpired_receipts<'a>(
    all: impl Iterator<Item = &'a CheckedReceipt>,
    pass: &LedgerPass,
    keys: &TrustedKeys,
    report: &mut VerifyReport,
) -> Vec<&'a CheckedReceipt> {
    let mut unexpired = Vec::new();
    for checked in all {
        if pass.is_expired(checked, keys, report) {
            report.expired += 1;
        } else {
            unexpired.push(checked);
        }
    }
    unexpired
}

/// Reports settled tasks without a receipt, according to the decisions. A task that has just settled gets a short time
/// for its receipt.
fn check_unsealed(
    home: &Home,
    path: &Path,
    ledger: &LedgerReader,
    pass: &LedgerPass,
    report: &mut VerifyReport,
) -> Result<(), LedgerError> {
    let without = |reader: &LedgerReader, tasks: Vec<TaskId>| -> Result<Vec<TaskId>, LedgerError> {
        let mut left = Vec::with_capacity(tasks.len());
        for task in tasks {
            if reader.receipt_number_of_task(task)?.is_none() {
                left.push(task);
            }
        }
        Ok(left)
    };
    let mut waiting = without(ledger, pass.unsealed_tasks())?;
    if waiting.is_empty() {
        return Ok(());
    }
    let fresh = LedgerReader::open(path)?;
    let mut left = MAX_IDLE_POLLS;
    while left > 0 && !waiting.is_empty() && home.holder().is_some() {
        // Only the daemon knows when it seals, and this check must work without it, so it polls.
        std::thread::sleep(SEAL_POLL_INTERVAL);
        let before = waiting.len();
        waiting = without(&fresh, waiting)?;
        left = if waiting.len() < before { MAX_IDLE_POLLS } else { left - 1 };
    }
    for task in waiting.iter().take(MAX_LISTED_FINDINGS) {
        report.add_finding(task.to_string(), "has settled, but has no receipt");
    }
    if waiting.len() > MAX_LISTED_FINDINGS {
        let more = waiting.len() - MAX_LISTED_FINDINGS;
        let (tasks, have) = if more == 1 { ("task", "has") } else { ("tasks", "have") };
        report.add_finding("ledger", format!("{more} more {tasks} {have} settled, but {have} no receipt"));
    }
    Ok(())
}

/// How many intervals without a new receipt are waited for.
const MAX_IDLE_POLLS: u32 = 20;
const SEAL_POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);
const MAX_LISTED_FINDINGS: usize = 20;

/// Reports directories of tasks that the ledger does not contain: the ledger is older than they are.
fn check_unknown_tasks(
    home: &Home,
    path: &Path,
    pass: &LedgerPass,
    report: &mut VerifyReport,
) -> Result<(), LedgerError> {
    let fresh = LedgerReader::open(path)?;
    for task in crate::salvage::task_directories(home) {
        // The task may have been requested after the snapshot.
        if !pass.has_task(task) && fresh.task_owner(task)?.is_none() {
            report.add_finding(
                format!("tasks/{}/{task}", task.shard()),
                "the ledger has no such task: the ledger is older than this directory",
            );
        }
    }
    Ok(())
}

/// Names the sealed file that a swapped file really is.
fn name_swapped_files(ledger: &LedgerReader, report: &mut VerifyReport) -> Result<(), LedgerError> {
    for finding in &mut report.findings {
        let Some(actual) = finding.what.strip_prefix(files::OTHER_FILE).and_then(|w| Digest::parse(w.get(..64)?))
        else {
            continue;
        };
        if let Some((task, name)) = ledger.artifacts(actual)?.into_iter().next() {
            finding.what = format!("holds {name} of {task}: the files were swapped");
        }
    }
    Ok(())
}

/// Checks the ledger against a saved ledger head: the ledger must continue it.
fn check_saved_head(
    envelope: &Envelope,
    keys: &TrustedKeys,
    receipts: &receipt_chain::ReceiptsByTask,
    pass: &LedgerPass,
    report: &mut VerifyReport,
) {
    let head = match keys.open_head(envelope) {
        Ok(head) => head,
        Err(why) => return report.add_finding("the saved ledger head", why),
    };
    if let (Some(named), Some(ours)) = (head.home_id, report.home_id)
        && named != ours
    {
        return report.add_finding("the saved ledger head", format!("belongs to home {named}; this home is {ours}"));
    }
    let LedgerHead { decision, sha256 } = head.ledger_head;
    match pass.heads.get(&decision.0) {
        Some(stored) if *stored == sha256 => {}
        Some(_) => report.add_finding(
            "the ledger",
            format!("does not match the saved ledger head: decision {decision} or an earlier one differs"),
        ),
        None => report.add_finding(
            "the ledger",
            format!(
                "was rolled back: it ends at decision {}, but the saved ledger head is from decision {decision}",
                pass.last
            ),
        ),
    }
    if let Some(digest) = head.receipt {
        let found = receipts.good.values().find(|r| r.number == head.receipts.0);
        match found {
            Some(checked) if checked.digest == digest => {}
            Some(checked) => report.add_finding(checked.place(), "is not the receipt that the saved ledger head names"),
            None => report.add_finding(
                format!("receipt {}", head.receipts),
                "is missing, although the saved ledger head names it: the ledger was rolled back",
            ),
        }
    }
    if report.is_ok() {
        report.notes.push(format!(
            "the ledger continues the saved ledger head (decision {decision}, receipt {})",
            head.receipts
        ));
    }
}

impl TrustedKeys {
    /// The content of a signed ledger head, if a trusted key signed it.
    fn open_head(&self, envelope: &Envelope) -> Result<SavedLedgerHead, String> {
        let (payload, key, signature) = envelope.open(HEAD_TYPE)?;
        if !self.signer(key)?.verifies(HEAD_TYPE, payload.as_bytes(), &signature) {
            return Err("its signature does not verify".to_owned());
        }
        let head: SavedLedgerHead = serde_json::from_str(&payload).map_err(|e| format!("is not a ledger head: {e}"))?;
        self.replaced_at(key, head.ledger_head.decision.0)?;
        Ok(head)
    }
}

/// Verifies exported receipts, one envelope per line: a complete chain, or single ones.
pub fn envelopes(lines: &[Envelope], ends: Option<ExportRange>, keys: &TrustedKeys, report: &mut VerifyReport) {
    let mut signed = Vec::with_capacity(lines.len());
    for (n, envelope) in lines.iter().enumerate() {
        match bundle::open_envelope(envelope) {
            Ok(one) => signed.push(one),
            Err(why) => report.add_finding(format!("envelope {}", n + 1), why),
        }
    }
    if lines.is_empty() {
        report.add_finding("receipts", "the file contains none");
    }
    if ends.is_none() {
        report
            .notes
            .push("each receipt was checked on its own, not for gaps: the file is not a receipt chain".to_owned());
    }
    let is_chain = ends.is_some();
    let checked = receipt_chain::check_all(signed, ends, keys, report);
    if is_chain {
        home::check_chain(&checked, report);
    }
}
