//! A task that was exported: its receipt, what that speaks for, and the keys, in one directory or archive.

use super::{
    KeyAnnouncement, TrustedKeys, VerifyReport, files,
    ledger_pass::{UNPROVED, proves},
    receipt_chain::{self, CheckedReceipt},
};
use crate::{
    Envelope, PublicKey, RECEIPT_TYPE, SignedReceipt,
    closing::{bounded_line, digest_of},
    output::regular,
};
use countersign_model::{Decision, Digest, ReceiptSubject, Record, RecordContent, Statement, TaskId, TaskState};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::{
    io::{self, BufRead, BufReader, Read as _, Write},
    path::Path,
};

/// The names in a bundle, beside those of what the receipt speaks for.
pub struct BundleNames;

impl BundleNames {
    pub const RECEIPT: &'static str = "receipt.dsse.json";
    /// What is in the receipt, for reading.
    pub const STATEMENT: &'static str = "statement.json";
    /// Every key that was announced, one to a line.
    pub const KEYS: &'static str = "keys.jsonl";
    pub const PUBLIC_KEY: &'static str = "key.pub.pem";
    /// What was decided after it was sealed.
    pub const AFTER: &'static str = "after.jsonl";
    pub const PLAN: &'static str = "plan.json";
    pub const STREAM: &'static str = "stream.jsonl";

    const ALL: [&'static str; 7] =
        [Self::RECEIPT, Self::STATEMENT, Self::KEYS, Self::PUBLIC_KEY, Self::AFTER, Self::PLAN, Self::STREAM];
}

/// Keys have no more than this.
const SMALL: u64 = 1024 * 1024;
/// What is read whole has no more than this.
const LARGE: u64 = 64 * 1024 * 1024;

/// The receipt in an envelope, without having checked it.
pub(super) fn opened(envelope: &Envelope) -> Result<SignedReceipt, String> {
    let (payload, key, signature) = envelope.open(RECEIPT_TYPE)?;
    let statement: Statement = serde_json::from_str(&payload).map_err(|e| format!("does not read: {e}"))?;
    let receipt = statement.predicate;
    let (number, task, receipt) = (receipt.seq.0, receipt.task_id, receipt.receipt_id);
    Ok(SignedReceipt { number, receipt, task, payload, key, signature })
}

/// Decisions and frames in the order of their numbers: the stream.
pub fn merged(decisions: &[u8], mut journal: impl BufRead, out: &mut impl Write) -> io::Result<()> {
    let mut line = Vec::new();
    let begin = bounded_line(&mut journal, &mut line)?.unwrap_or_default();
    let first = seqs(begin).next().map(|(seq, _)| seq);
    let (before, behind): (Vec<_>, Vec<_>) =
        seqs(decisions).partition(|(seq, _)| first.is_none_or(|first| *seq <= first));
    before.into_iter().try_for_each(|(_, line)| out.write_all(line))?;
    out.write_all(begin)?;
    io::copy(&mut journal, out)?;
    behind.into_iter().try_for_each(|(_, line)| out.write_all(line))
}

fn seqs(lines: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let seq = |line: &[u8]| std::str::from_utf8(line).ok().and_then(|l| Record::parse(l).ok()).map(|r| r.seq);
    lines.split_inclusive(|b| *b == b'\n').filter_map(move |line| Some((seq(line.trim_ascii_end())?, line)))
}

/// What was asked for, as the decisions of a task tell it; none where they do not.
#[must_use]
pub fn plan(task: TaskId, decisions: &[u8]) -> Option<Value> {
    let lines = std::str::from_utf8(decisions).ok()?.lines();
    let records: Vec<Record> = lines.map(Record::parse).collect::<Result<_, _>>().ok()?;
    let state = TaskState::fold(task, &records)?;
    let (request, confinement) = (&state.request, state.confinement());
    let (about, uncovered) = state.question.as_ref().map(|q| (&*q.about, &*q.uncovered)).unwrap_or_default();
    Some(json!({
        "v": 1, "display": request.display, "verb": request.verb, "cwd": request.cwd, "mode": request.mode,
        "tool": request.tool, "risks": request.risks, "plan_digest": request.plan_digest, "about": about,
        "uncovered": uncovered, "limits": request.limits, "confinement": confinement,
    }))
}

/// Checks what was exported to a directory.
pub fn bundle(dir: &Path, pinned: &[PublicKey]) -> Result<VerifyReport, String> {
    let mut report = VerifyReport::about(format!("the bundle {}", dir.display()));
    let receipt = read(dir, BundleNames::RECEIPT, LARGE)
        .map_err(|e| format!("{}: {}", BundleNames::RECEIPT, files::unread(&e)))?;
    let envelope: Envelope = serde_json::from_slice(&receipt).map_err(|e| format!("{}: {e}", BundleNames::RECEIPT))?;
    let announced = announced(dir, &mut report);
    if announced.is_empty() && pinned.is_empty() {
        return Err(format!("{} has no key; name one with --key", BundleNames::KEYS));
    }
    let keys = TrustedKeys::of_a_part(&announced, pinned, &mut report);
    let signed = match opened(&envelope) {
        Ok(signed) => signed,
        Err(why) => {
            report.find(BundleNames::RECEIPT, why);
            return Ok(report);
        }
    };
    let (payload, signer) = (signed.payload.clone(), signed.key);
    let Some(checked) = receipt_chain::check_all(vec![signed], None, &keys, &mut report).pop() else {
        return Ok(report);
    };
    report.home_id = checked.home;
    let mut opened = CheckedBundle { dir, checked: &checked, keys: &keys, report };
    opened.statement(&payload);
    opened.public_key(signer);
    opened.kept();
    opened.strangers();
    Ok(opened.report)
}

/// A small file of a bundle, whole.
fn read(dir: &Path, name: &str, most: u64) -> io::Result<Vec<u8>> {
    let file = regular(&dir.join(name))?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!("it has more than {most} bytes"))),
        false => Ok(bytes),
    }
}

fn announced(dir: &Path, report: &mut VerifyReport) -> Vec<KeyAnnouncement> {
    let bytes = match read(dir, BundleNames::KEYS, SMALL) {
        Ok(bytes) => bytes,
        Err(e) => {
            report.find(BundleNames::KEYS, files::unread(&e));
            return Vec::new();
        }
    };
    let mut all = Vec::new();
    for (n, line) in bytes.split(|b| *b == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        let place = format!("{} line {}", BundleNames::KEYS, n + 1);
        match serde_json::from_slice(line) {
            Ok(said) => all.push(KeyAnnouncement::in_line(place, said)),
            Err(e) => report.find(place, format!("does not read: {e}")),
        }
    }
    all
}

/// A bundle whose receipt holds.
struct CheckedBundle<'a> {
    dir: &'a Path,
    checked: &'a CheckedReceipt,
    keys: &'a TrustedKeys,
    report: VerifyReport,
}

impl CheckedBundle<'_> {
    /// What is there for reading says what was signed.
    fn statement(&mut self, payload: &str) {
        let signed: Option<Value> = serde_json::from_str(payload).ok();
        self.same_value(BundleNames::STATEMENT, signed.as_ref(), "does not say what was signed");
    }

    fn same_value(&mut self, name: &str, due: Option<&Value>, what: &str) {
        match read(self.dir, name, LARGE) {
            Ok(bytes) if due.is_some() && serde_json::from_slice(&bytes).ok().as_ref() == due => {}
            Ok(_) => self.report.find(name, what),
            Err(e) => self.report.find(name, files::unread(&e)),
        }
    }

    fn public_key(&mut self, signer: Digest) {
        match read(self.dir, BundleNames::PUBLIC_KEY, SMALL) {
            Ok(bytes) => {
                let key = std::str::from_utf8(&bytes).ok().and_then(PublicKey::from_pem);
                if key.is_none_or(|key| key.id() != signer) {
                    self.report
                        .find(BundleNames::PUBLIC_KEY, format!("is not key {signer}, which the receipt was signed by"));
                }
            }
            Err(e) => self.report.find(BundleNames::PUBLIC_KEY, files::unread(&e)),
        }
    }

    /// What the receipt speaks for, and what is made of it.
    fn kept(&mut self) {
        let decisions = self.decisions();
        let expired = self.expired(decisions.as_deref());
        let mut found = files::of_task(self.dir, self.checked, None);
        if expired {
            found.findings.retain(|f| f.what != "is missing");
            self.report.expired = 1;
            self.report.notes.push("what retention had removed before the export is not in it".to_owned());
        }
        let whole = found.findings.is_empty();
        self.report.add(found);
        let Some(decisions) = decisions else { return };
        let due = plan(self.checked.task, &decisions);
        self.same_value(BundleNames::PLAN, due.as_ref(), "is not what the decisions tell of the plan");
        // What is made of something else is something else, and that is told already.
        if whole {
            self.stream(&decisions);
        }
    }

    /// The decisions that were sealed, if they are what is there.
    fn decisions(&mut self) -> Option<Vec<u8>> {
        let place = format!("{} of {}", ReceiptSubject::DECISIONS, self.checked.task);
        match read(self.dir, ReceiptSubject::DECISIONS, LARGE) {
            Ok(bytes) if self.checked.subject(ReceiptSubject::DECISIONS) == Some(Digest::sha256(&[&bytes])) => {
                return Some(bytes);
            }
            Ok(_) => self.report.find(place, "was changed"),
            Err(e) => self.report.find(place, files::unread(&e)),
        }
        None
    }

    fn stream(&mut self, decisions: &[u8]) {
        let mut hash = HashWriter(Sha256::new());
        let has_one = self.checked.subject(ReceiptSubject::JOURNAL).is_some();
        let made = match has_one.then(|| regular(&self.dir.join(ReceiptSubject::JOURNAL))) {
            Some(Ok(journal)) => merged(decisions, BufReader::new(journal), &mut hash),
            _ => merged(decisions, io::empty(), &mut hash),
        };
        let due = Digest::from_bytes(hash.0.finalize().into());
        match (made, digest_of(&self.dir.join(BundleNames::STREAM))) {
            (Ok(()), Ok((digest, _))) if digest == due => {}
            (_, Err(e)) => self.report.find(BundleNames::STREAM, files::unread(&e)),
            _ => self.report.find(BundleNames::STREAM, "is not decisions and journal in their order"),
        }
    }

    /// Whether the house says that it had removed what is not there: by its key, or with the receipt itself.
    fn expired(&mut self, decisions: Option<&[u8]>) -> bool {
        let mut claims = expiries(decisions.unwrap_or_default()).peekable();
        if claims.peek().is_some() {
            return true;
        }
        let after = match read(self.dir, BundleNames::AFTER, LARGE) {
            Ok(after) => after,
            Err(e) => {
                self.report.find(BundleNames::AFTER, files::unread(&e));
                return false;
            }
        };
        for (n, line) in after.split(|b| *b == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
            if std::str::from_utf8(line).ok().is_none_or(|l| Record::parse(l).is_err()) {
                self.report.find(format!("{} line {}", BundleNames::AFTER, n + 1), "does not read as a decision");
            }
        }
        self.sealed(&after);
        let claims: Vec<Decision> = expiries(&after).collect();
        let proved = claims.iter().any(|claim| match claim {
            Decision::Expired { signed, .. } => proves(signed.as_ref(), self.checked, self.keys),
            _ => false,
        });
        if !proved && !claims.is_empty() {
            self.report.find(format!("retention.expired of {}", self.checked.task), UNPROVED);
        }
        proved
    }

    /// What was decided of the receipt is about this one.
    fn sealed(&mut self, after: &[u8]) {
        let c = self.checked;
        for decision in parsed(after) {
            if let Decision::Sealed(said) = decision
                && (said.number, said.digest, said.receipt, said.key) != (c.number, c.digest, c.receipt, c.key)
            {
                self.report.find(BundleNames::AFTER, "tells of another receipt than this one");
            }
        }
    }

    /// Files that are no part of a bundle.
    fn strangers(&mut self) {
        let entries = match std::fs::read_dir(self.dir) {
            Ok(entries) => entries,
            Err(e) => return self.report.find(self.dir.display().to_string(), files::unread(&e)),
        };
        let mut names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        for name in names {
            if !BundleNames::ALL.contains(&name.as_str()) && self.checked.subject(&name).is_none() {
                self.report.find(name, "does not belong to the bundle: nothing speaks for it");
            }
        }
    }
}

fn parsed(lines: &[u8]) -> impl Iterator<Item = Decision> {
    let lines = lines.split(|b| *b == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(|line| match Record::parse(line).ok()?.what {
        RecordContent::Decision(decision) => Some(decision),
        _ => None,
    })
}

fn expiries(lines: &[u8]) -> impl Iterator<Item = Decision> {
    parsed(lines).filter(|d| matches!(d, Decision::Expired { .. }))
}

/// What is written is only hashed.
struct HashWriter(Sha256);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
