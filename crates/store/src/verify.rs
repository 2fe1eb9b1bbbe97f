//! Checking what was kept against what was signed: one task, a row of receipts, the whole ledger, an exported bundle.
//!
//! Nothing here needs a daemon, a network or a secret. What does not hold is said with its place; what retention removed is
//! expired, not broken.

mod artifacts;
mod bundle;
mod files;
mod home;
mod keys;
mod ledger_pass;
mod receipt_chain;

pub use bundle::{BundleNames, bundle, merged, plan};
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

/// What was looked at, and everything that does not hold.
#[derive(Debug, Default, Serialize)]
pub struct VerifyReport {
    /// What was verified.
    pub what: String,
    /// The home that it was made in, as far as that is known.
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
    /// What is good to know and no fault.
    pub notes: Vec<String>,
}

/// Something that does not hold, and where.
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
    pub fn about(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    #[must_use]
    pub fn holds(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.findings.push(Finding { place: place.into(), what: what.into() });
    }

    fn add(&mut self, other: VerifyReport) {
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

/// A signed head that was kept elsewhere.
#[derive(Debug, Clone, Deserialize)]
pub struct SavedLedgerHead {
    receipts: DecimalCount,
    receipt: Option<Digest>,
    ledger_head: LedgerHead,
    /// Heads of earlier versions name none.
    #[serde(default)]
    home_id: Option<HomeId>,
}

/// How the check is going, for whoever waits: tasks done, of how many.
pub type VerifyProgress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// What is wanted of a house.
#[derive(Default)]
pub struct VerifyScope<'a> {
    /// Keys that are trusted beforehand; without any, the first one of the ledger is.
    pub pinned: &'a [crate::PublicKey],
    pub since: Option<&'a Envelope>,
    /// Leave the bytes of tasks alone: receipts and ledger only.
    pub receipts_only: bool,
}

/// The whole house: every decision, every receipt, everything that they speak for.
pub fn home(home: &Home, wanted: &VerifyScope<'_>, progress: VerifyProgress<'_>) -> Result<VerifyReport, LedgerError> {
    let trouble = match condition::check(home, CheckDepth::Whole) {
        Ok(()) => None,
        Err(e @ LedgerError::Newer { .. }) => return Err(e),
        // Each of those tasks is named, where directories are looked at.
        Err(LedgerError::Behind { .. }) if !wanted.receipts_only => None,
        Err(e) => Some(e),
    };
    let unreadable = matches!(trouble, Some(LedgerError::Damaged { .. } | LedgerError::Gone { .. }));
    let mut report = match unreadable {
        true => with_what_reads(home, |path| whole(home, path, wanted, progress))?,
        false => or_what_reads(home, |path| whole(home, path, wanted, progress))?,
    };
    if let Some(trouble) = trouble {
        report.findings.insert(0, Finding { place: "ledger.db".to_owned(), what: trouble.to_string() });
    }
    for repair in crate::repair::repairs(home) {
        report.notes.push(format!("repaired at {}: {}", repair.at, repair.trouble));
    }
    Ok(report)
}

/// Verifies what reads of a ledger that does not read whole, and says so.
fn or_what_reads(
    home: &Home,
    verify: impl Fn(&Path) -> Result<VerifyReport, LedgerError>,
) -> Result<VerifyReport, LedgerError> {
    match verify(&home.ledger()) {
        Err(e) if e.is_damage() => {
            let mut report = with_what_reads(home, verify)?;
            report.find("ledger.db", LedgerError::damaged(&home.ledger(), e).to_string());
            Ok(report)
        }
        verified => verified,
    }
}

fn with_what_reads(
    home: &Home,
    verify: impl Fn(&Path) -> Result<VerifyReport, LedgerError>,
) -> Result<VerifyReport, LedgerError> {
    let scratch = home.run().join(format!("verify-{}.db", std::process::id()));
    let verified = crate::salvage::salvage(home, &scratch).and_then(|(ledger, _)| {
        drop(ledger);
        verify(&scratch)
    });
    let _ = crate::salvage::remove(&scratch);
    verified
}

fn whole(
    home: &Home,
    path: &Path,
    wanted: &VerifyScope<'_>,
    progress: VerifyProgress<'_>,
) -> Result<VerifyReport, LedgerError> {
    let ledger = LedgerReader::open(path)?;
    // What is decided meanwhile is not looked at.
    ledger.conn.execute_batch("BEGIN")?;
    let mut report = VerifyReport::about(format!("the house at {}", home.path().display()));
    let keys = TrustedKeys::of(&KeyAnnouncement::all(&ledger)?, wanted.pinned, &mut report);
    receipt_chain::outside(&ledger, &mut report)?;
    let rows = receipt_chain::check(&ledger, 1, None, &keys, &mut report)?;
    let since = wanted.since.and_then(|e| keys.head(e).ok()).map(|h| h.ledger_head.decision.0);
    let told = LedgerPass::all(&ledger, &rows, since, &keys, &mut report)?;
    told.index(&ledger, &mut report)?;
    home::check(&ledger, &rows, &mut report)?;
    artifacts::check(&ledger, &rows, &mut report)?;
    unsealed(home, path, &ledger, &told, &mut report)?;
    let kept = kept(rows.good.values(), &told, &keys, &mut report);
    match wanted.receipts_only {
        true => report.notes.push(NO_FILES.to_owned()),
        false => {
            report.add(files::all(home, &kept, &told, progress));
            strangers(home, path, &told, &mut report)?;
            name_the_exchanged(&ledger, &mut report)?;
        }
    }
    match wanted.since {
        Some(envelope) => anchor(envelope, &keys, &rows, &told, &mut report),
        None => report.notes.push(
            "no outside anchor: that nothing at the end was taken back is proved only against a head that was kept \
             elsewhere (csn receipts head)"
                .to_owned(),
        ),
    }
    Ok(report)
}

/// Receipts from one number to another, and what they speak for. One that is named as the last must be there.
pub fn range(
    home: &Home,
    from: u64,
    to: Option<u64>,
    wanted: &VerifyScope<'_>,
    progress: VerifyProgress<'_>,
) -> Result<VerifyReport, LedgerError> {
    or_what_reads(home, |path| range_in(home, path, from, to, wanted, progress))
}

fn range_in(
    home: &Home,
    path: &Path,
    from: u64,
    to: Option<u64>,
    wanted: &VerifyScope<'_>,
    progress: VerifyProgress<'_>,
) -> Result<VerifyReport, LedgerError> {
    let ledger = LedgerReader::open(path)?;
    ledger.conn.execute_batch("BEGIN")?;
    let mut report = VerifyReport::about(match to {
        Some(to) if to == from => format!("receipt {from}"),
        Some(to) => format!("receipts {from} to {to}"),
        None => format!("receipts from {from} on"),
    });
    let keys = TrustedKeys::of_a_part(&KeyAnnouncement::all(&ledger)?, wanted.pinned, &mut report);
    let rows = receipt_chain::check(&ledger, from.max(1), to, &keys, &mut report)?;
    if report.receipts == 0 && report.holds() {
        let end = to.map_or_else(|| "on".to_owned(), |to| format!("to {to}"));
        report.find("receipts", format!("there is none from {from} {end}"));
    }
    let told = LedgerPass::of_tasks(&ledger, &rows, &keys, &mut report)?;
    home::check(&ledger, &rows, &mut report)?;
    let kept = kept(rows.good.values(), &told, &keys, &mut report);
    match wanted.receipts_only {
        true => report.notes.push(NO_FILES.to_owned()),
        false => {
            report.add(files::all(home, &kept, &told, progress));
            name_the_exchanged(&ledger, &mut report)?;
        }
    }
    report.notes.push("the ledger as a whole was not looked at (csn verify, without a name)".to_owned());
    Ok(report)
}

const NO_FILES: &str = "the files of tasks were not looked at (--receipts-only)";

/// One task.
pub fn task(home: &Home, task: TaskId, wanted: &VerifyScope<'_>) -> Result<VerifyReport, LedgerError> {
    or_what_reads(home, |path| task_in(home, path, task, wanted))
}

fn task_in(home: &Home, path: &Path, task: TaskId, wanted: &VerifyScope<'_>) -> Result<VerifyReport, LedgerError> {
    let ledger = LedgerReader::open(path)?;
    let mut report = match ledger.number_of(task)? {
        Some(number) => range_in(home, path, number, Some(number), wanted, &|_, _| {})?,
        None => {
            let mut report = VerifyReport::default();
            let what = match (ledger.task_owner(task)?, ledger.settled_by(task)?) {
                (None, _) => "the ledger does not know this task",
                (Some(_), None) => "it has not settled, so it has no receipt",
                (Some(_), Some(_)) => "it has settled and has no receipt",
            };
            report.find(task.to_string(), what);
            report
        }
    };
    report.what = format!("task {task}");
    Ok(report)
}

/// Those whose files must be there. The others have expired, and a key of the house says so.
fn kept<'a>(
    all: impl Iterator<Item = &'a CheckedReceipt>,
    told: &LedgerPass,
    keys: &TrustedKeys,
    report: &mut VerifyReport,
) -> Vec<&'a CheckedReceipt> {
    let mut kept = Vec::new();
    for checked in all {
        match told.expired(checked, keys, report) {
            true => report.expired += 1,
            false => kept.push(checked),
        }
    }
    kept
}

/// Settled tasks without a receipt, as the decisions have it. One that has just settled gets it in a moment.
fn unsealed(
    home: &Home,
    path: &Path,
    ledger: &LedgerReader,
    told: &LedgerPass,
    report: &mut VerifyReport,
) -> Result<(), LedgerError> {
    let without = |reader: &LedgerReader, tasks: Vec<TaskId>| -> Result<Vec<TaskId>, LedgerError> {
        let mut left = Vec::with_capacity(tasks.len());
        for task in tasks {
            if reader.number_of(task)?.is_none() {
                left.push(task);
            }
        }
        Ok(left)
    };
    let mut waiting = without(ledger, told.unsealed())?;
    if waiting.is_empty() {
        return Ok(());
    }
    let fresh = LedgerReader::open(path)?;
    let mut left = PATIENCE;
    while left > 0 && !waiting.is_empty() && home.holder().is_some() {
        // Only the daemon knows when it has sealed, and this works without one.
        std::thread::sleep(PAUSE);
        let before = waiting.len();
        waiting = without(&fresh, waiting)?;
        left = if waiting.len() < before { PATIENCE } else { left - 1 };
    }
    for task in waiting.iter().take(LISTED) {
        report.find(task.to_string(), "has settled and has no receipt");
    }
    if waiting.len() > LISTED {
        report.find("ledger", format!("{} more tasks have settled and have no receipt", waiting.len() - LISTED));
    }
    Ok(())
}

/// So many pauses in which nothing is sealed are enough.
const PATIENCE: u32 = 20;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
const LISTED: usize = 20;

/// Directories of tasks that the ledger has never heard of: it is older than they are.
fn strangers(home: &Home, path: &Path, told: &LedgerPass, report: &mut VerifyReport) -> Result<(), LedgerError> {
    let fresh = LedgerReader::open(path)?;
    for task in crate::salvage::tasks(home) {
        // Asked for only after the snapshot was taken, perhaps.
        if !told.knows(task) && fresh.task_owner(task)?.is_none() {
            report.find(
                format!("tasks/{}/{task}", task.shard()),
                "the ledger does not know this task: the ledger is older than the directory",
            );
        }
    }
    Ok(())
}

/// Where a file is another one that was sealed, says which.
fn name_the_exchanged(ledger: &LedgerReader, report: &mut VerifyReport) -> Result<(), LedgerError> {
    for finding in &mut report.findings {
        let Some(actual) = finding.what.strip_prefix(files::OTHER).and_then(|w| Digest::parse(w.get(..64)?)) else {
            continue;
        };
        if let Some((task, name)) = ledger.artifacts(actual)?.into_iter().next() {
            finding.what = format!("is {name} of {task}: it was exchanged");
        }
    }
    Ok(())
}

/// A head that was kept elsewhere: the ledger must go on from it.
fn anchor(
    envelope: &Envelope,
    keys: &TrustedKeys,
    rows: &receipt_chain::ReceiptsByTask,
    told: &LedgerPass,
    report: &mut VerifyReport,
) {
    let head = match keys.head(envelope) {
        Ok(head) => head,
        Err(why) => return report.find("the head", why),
    };
    if let (Some(named), Some(ours)) = (head.home_id, report.home_id)
        && named != ours
    {
        return report.find("the head", format!("is of home {named}; this one is {ours}"));
    }
    let LedgerHead { decision, sha256 } = head.ledger_head;
    match told.at.get(&decision.0) {
        Some(stored) if *stored == sha256 => {}
        Some(_) => report
            .find("the ledger", format!("is not the one of the head: decision {decision} or one before it is another")),
        None => report.find(
            "the ledger",
            format!("was rolled back: it ends at decision {}, the head was taken at {decision}", told.last),
        ),
    }
    if let Some(digest) = head.receipt {
        let found = rows.good.values().find(|r| r.number == head.receipts.0);
        match found {
            Some(checked) if checked.digest == digest => {}
            Some(checked) => report.find(checked.place(), "is not the one that the head names"),
            None => report.find(
                format!("receipt {}", head.receipts),
                "is missing: the head was taken when it was there; the ledger was rolled back",
            ),
        }
    }
    if report.holds() {
        report.notes.push(format!("goes on from the head at decision {decision}, receipt {}", head.receipts));
    }
}

impl TrustedKeys {
    /// What a signed head says, if a trusted key has signed it.
    fn head(&self, envelope: &Envelope) -> Result<SavedLedgerHead, String> {
        let (payload, key, signature) = envelope.open(HEAD_TYPE)?;
        if !self.signer(key)?.verifies(HEAD_TYPE, payload.as_bytes(), &signature) {
            return Err("its signature does not verify".to_owned());
        }
        let head: SavedLedgerHead =
            serde_json::from_str(&payload).map_err(|e| format!("is not a head of a ledger: {e}"))?;
        self.replaced_at(key, head.ledger_head.decision.0)?;
        Ok(head)
    }
}

/// Receipts that were exported, as one envelope to a line: a row of them, or some.
pub fn envelopes(lines: &[Envelope], ends: Option<ExportRange>, keys: &TrustedKeys, report: &mut VerifyReport) {
    let mut signed = Vec::with_capacity(lines.len());
    for (n, envelope) in lines.iter().enumerate() {
        match bundle::opened(envelope) {
            Ok(one) => signed.push(one),
            Err(why) => report.find(format!("envelope {}", n + 1), why),
        }
    }
    if lines.is_empty() {
        report.find("receipts", "there is none in it");
    }
    if ends.is_none() {
        report.notes.push("each receipt was looked at by itself, not for gaps: this is not a row of them".to_owned());
    }
    let in_a_row = ends.is_some();
    let checked = receipt_chain::check_all(signed, ends, keys, report);
    if in_a_row {
        home::check_row(&checked, report);
    }
}
