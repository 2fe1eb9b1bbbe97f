//! An exported task: its receipt, the files that it covers, and the keys, in one directory or archive.

use super::{
    KeyAnnouncement, TrustedKeys, VerifyReport, files,
    ledger_pass::{UNCONFIRMED_EXPIRY, confirms_expiry},
    receipt_chain::{self, CheckedReceipt},
};
use crate::{
    Envelope, PublicKey, RECEIPT_TYPE, SignedReceipt,
    closing::{digest_file, read_bounded_line},
    output::open_regular,
};
use countersign_model::{Decision, Digest, ReceiptSubject, Record, RecordContent, Statement, TaskId, TaskState};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::{
    io::{self, BufRead, BufReader, Read as _, Write},
    path::Path,
};

/// The file names in a bundle, besides those of the files that the receipt covers.
pub struct BundleNames;

impl BundleNames {
    pub const RECEIPT: &'static str = "receipt.dsse.json";
    /// The content of the receipt, for people to read.
    pub const STATEMENT: &'static str = "statement.json";
    /// Every announced key, one per line.
    pub const KEYS: &'static str = "keys.jsonl";
    pub const PUBLIC_KEY: &'static str = "key.pub.pem";
    /// The decisions after the sealing.
    pub const AFTER: &'static str = "after.jsonl";
    pub const PLAN: &'static str = "plan.json";
    pub const STREAM: &'static str = "stream.jsonl";

    const ALL: [&'static str; 7] =
        [Self::RECEIPT, Self::STATEMENT, Self::KEYS, Self::PUBLIC_KEY, Self::AFTER, Self::PLAN, Self::STREAM];
}

/// The maximum size of the files with keys.
const MAX_KEY_FILE_BYTES: u64 = 1024 * 1024;
/// The maximum size of files that are read into memory.
const MAX_READ_BYTES: u64 = 64 * 1024 * 1024;

/// The receipt in an envelope, without checking its signature.
pub(super) fn open_envelope(envelope: &Envelope) -> Result<SignedReceipt, String> {
    let (payload, key, signature) = envelope.open(RECEIPT_TYPE)?;
    let statement: Statement = serde_json::from_str(&payload).map_err(|e| format!("cannot be parsed: {e}"))?;
    let receipt = statement.predicate;
    let (number, task, receipt) = (receipt.seq.0, receipt.task_id, receipt.receipt_id);
    Ok(SignedReceipt { number, receipt, task, payload, key, signature })
}

/// Merges decisions and frames by their numbers into the stream.
pub fn merge_stream(decisions: &[u8], mut journal: impl BufRead, out: &mut impl Write) -> io::Result<()> {
    let mut line = Vec::new();
    let begin = read_bounded_line(&mut journal, &mut line)?.unwrap_or_default();
    let first = numbered_lines(begin).next().map(|(seq, _)| seq);
    let (before, after): (Vec<_>, Vec<_>) =
        numbered_lines(decisions).partition(|(seq, _)| first.is_none_or(|first| *seq <= first));
    before.into_iter().try_for_each(|(_, line)| out.write_all(line))?;
    out.write_all(begin)?;
    io::copy(&mut journal, out)?;
    after.into_iter().try_for_each(|(_, line)| out.write_all(line))
}

fn numbered_lines(lines: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let seq = |line: &[u8]| std::str::from_utf8(line).ok().and_then(|l| Record::parse(l).ok()).map(|r| r.seq);
    lines.split_inclusive(|b| *b == b'\n').filter_map(move |line| Some((seq(line.trim_ascii_end())?, line)))
}

/// The plan that the decisions of a task describe; none if they describe none.
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

/// Verifies an exported directory.
pub fn bundle(dir: &Path, pinned: &[PublicKey]) -> Result<VerifyReport, String> {
    let mut report = VerifyReport::new(format!("the bundle {}", dir.display()));
    let receipt = read_small(dir, BundleNames::RECEIPT, MAX_READ_BYTES)
        .map_err(|e| format!("{}: {}", BundleNames::RECEIPT, files::read_error(&e)))?;
    let envelope: Envelope = serde_json::from_slice(&receipt).map_err(|e| format!("{}: {e}", BundleNames::RECEIPT))?;
    let announced = read_announcements(dir, &mut report);
    if announced.is_empty() && pinned.is_empty() {
        return Err(format!("{} contains no key; name one with --key", BundleNames::KEYS));
    }
    let keys = TrustedKeys::for_part(&announced, pinned, &mut report);
    let signed = match open_envelope(&envelope) {
        Ok(signed) => signed,
        Err(why) => {
            report.add_finding(BundleNames::RECEIPT, why);
            return Ok(report);
        }
    };
    let (payload, signer) = (signed.payload.clone(), signed.key);
    let Some(checked) = receipt_chain::check_all(vec![signed], None, &keys, &mut report).pop() else {
        return Ok(report);
    };
    report.home_id = checked.home;
    let mut opened = CheckedBundle { dir, checked: &checked, keys: &keys, report };
    opened.check_statement(&payload);
    opened.check_public_key(signer);
    opened.check_files();
    opened.check_unknown_files();
    Ok(opened.report)
}

/// Reads a small file of a bundle.
fn read_small(dir: &Path, name: &str, max_bytes: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(&dir.join(name))?;
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        Err(io::Error::other(format!("it has more than {max_bytes} bytes")))
    } else {
        Ok(bytes)
    }
}

fn read_announcements(dir: &Path, report: &mut VerifyReport) -> Vec<KeyAnnouncement> {
    let bytes = match read_small(dir, BundleNames::KEYS, MAX_KEY_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(e) => {
            report.add_finding(BundleNames::KEYS, files::read_error(&e));
            return Vec::new();
        }
    };
    let mut all = Vec::new();
    for (n, line) in bytes.split(|b| *b == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        let place = format!("{} line {}", BundleNames::KEYS, n + 1);
        match serde_json::from_slice(line) {
            Ok(announced) => all.push(KeyAnnouncement::from_line(place, announced)),
            Err(e) => report.add_finding(place, format!("cannot be parsed: {e}")),
        }
    }
    all
}

/// A bundle with a valid receipt.
struct CheckedBundle<'a> {
    dir: &'a Path,
    checked: &'a CheckedReceipt,
    keys: &'a TrustedKeys,
    report: VerifyReport,
}

impl CheckedBundle<'_> {
    /// The readable statement must match the signed one.
    fn check_statement(&mut self, payload: &str) {
        let signed: Option<Value> = serde_json::from_str(payload).ok();
        self.check_json(BundleNames::STATEMENT, signed.as_ref(), "does not match the signed statement");
    }

    fn check_json(&mut self, name: &str, expected: Option<&Value>, what: &str) {
        match read_small(self.dir, name, MAX_READ_BYTES) {
            Ok(bytes) if expected.is_some() && serde_json::from_slice(&bytes).ok().as_ref() == expected => {}
            Ok(_) => self.report.add_finding(name, what),
            Err(e) => self.report.add_finding(name, files::read_error(&e)),
        }
    }

    fn check_public_key(&mut self, signer: Digest) {
        match read_small(self.dir, BundleNames::PUBLIC_KEY, MAX_KEY_FILE_BYTES) {
            Ok(bytes) => {
                let key = std::str::from_utf8(&bytes).ok().and_then(PublicKey::from_pem);
                if key.is_none_or(|key| key.id() != signer) {
                    self.report
                        .add_finding(BundleNames::PUBLIC_KEY, format!("is not key {signer}, which signed the receipt"));
                }
            }
            Err(e) => self.report.add_finding(BundleNames::PUBLIC_KEY, files::read_error(&e)),
        }
    }

    /// Checks the files that the receipt covers, and those derived from them.
    fn check_files(&mut self) {
        let decisions = self.read_decisions();
        let expired = self.is_expired(decisions.as_deref());
        let mut found = files::check_task(self.dir, self.checked, None);
        if expired {
            found.findings.retain(|f| f.what != "is missing");
            self.report.expired = 1;
            self.report.notes.push("files that retention had removed before the export are not included".to_owned());
        }
        let whole = found.findings.is_empty();
        self.report.merge(found);
        let Some(decisions) = decisions else { return };
        let expected = plan(self.checked.task, &decisions);
        self.check_json(BundleNames::PLAN, expected.as_ref(), "does not match the plan in the decisions");
        // Files derived from a changed file differ as well, and that is already reported.
        if whole {
            self.check_stream(&decisions);
        }
    }

    /// The sealed decisions, if the file contains them unchanged.
    fn read_decisions(&mut self) -> Option<Vec<u8>> {
        let place = format!("{} of {}", ReceiptSubject::DECISIONS, self.checked.task);
        match read_small(self.dir, ReceiptSubject::DECISIONS, MAX_READ_BYTES) {
            Ok(bytes) if self.checked.subject(ReceiptSubject::DECISIONS) == Some(Digest::sha256(&[&bytes])) => {
                return Some(bytes);
            }
            Ok(_) => self.report.add_finding(place, "was changed"),
            Err(e) => self.report.add_finding(place, files::read_error(&e)),
        }
        None
    }

    fn check_stream(&mut self, decisions: &[u8]) {
        let mut hash = HashWriter(Sha256::new());
        let has_one = self.checked.subject(ReceiptSubject::JOURNAL).is_some();
        let made = match has_one.then(|| open_regular(&self.dir.join(ReceiptSubject::JOURNAL))) {
            Some(Ok(journal)) => merge_stream(decisions, BufReader::new(journal), &mut hash),
            _ => merge_stream(decisions, io::empty(), &mut hash),
        };
        let expected = Digest::from_bytes(hash.0.finalize().into());
        match (made, digest_file(&self.dir.join(BundleNames::STREAM))) {
            (Ok(()), Ok((digest, _))) if digest == expected => {}
            (_, Err(e)) => self.report.add_finding(BundleNames::STREAM, files::read_error(&e)),
            _ => self.report.add_finding(BundleNames::STREAM, "is not the merged decisions and journal"),
        }
    }

    /// Whether the daemon confirms that it removed the missing files: with a key, or in the receipt itself.
    fn is_expired(&mut self, decisions: Option<&[u8]>) -> bool {
        let mut claims = parse_expiries(decisions.unwrap_or_default()).peekable();
        if claims.peek().is_some() {
            return true;
        }
        let after = match read_small(self.dir, BundleNames::AFTER, MAX_READ_BYTES) {
            Ok(after) => after,
            Err(e) => {
                self.report.add_finding(BundleNames::AFTER, files::read_error(&e));
                return false;
            }
        };
        for (n, line) in after.split(|b| *b == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
            if std::str::from_utf8(line).ok().is_none_or(|l| Record::parse(l).is_err()) {
                self.report.add_finding(format!("{} line {}", BundleNames::AFTER, n + 1), "is not a decision");
            }
        }
        self.check_sealed(&after);
        let claims: Vec<Decision> = parse_expiries(&after).collect();
        let proved = claims.iter().any(|claim| match claim {
            Decision::Expired { signed, .. } => confirms_expiry(signed.as_ref(), self.checked, self.keys),
            _ => false,
        });
        if !proved && !claims.is_empty() {
            self.report.add_finding(format!("retention.expired of {}", self.checked.task), UNCONFIRMED_EXPIRY);
        }
        proved
    }

    /// The decision about the sealing must name this receipt.
    fn check_sealed(&mut self, after: &[u8]) {
        let checked = self.checked;
        for decision in parse_decisions(after) {
            if let Decision::Sealed(sealed) = decision
                && (sealed.number, sealed.digest, sealed.receipt, sealed.key)
                    != (checked.number, checked.digest, checked.receipt, checked.key)
            {
                self.report.add_finding(BundleNames::AFTER, "names another receipt");
            }
        }
    }

    /// Reports files that do not belong to a bundle.
    fn check_unknown_files(&mut self) {
        let entries = match std::fs::read_dir(self.dir) {
            Ok(entries) => entries,
            Err(e) => return self.report.add_finding(self.dir.display().to_string(), files::read_error(&e)),
        };
        let mut names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        for name in names {
            if !BundleNames::ALL.contains(&name.as_str()) && self.checked.subject(&name).is_none() {
                self.report.add_finding(name, "does not belong to the bundle: the receipt does not cover it");
            }
        }
    }
}

fn parse_decisions(lines: &[u8]) -> impl Iterator<Item = Decision> {
    let lines = lines.split(|b| *b == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(|line| match Record::parse(line).ok()?.what {
        RecordContent::Decision(decision) => Some(decision),
        _ => None,
    })
}

fn parse_expiries(lines: &[u8]) -> impl Iterator<Item = Decision> {
    parse_decisions(lines).filter(|d| matches!(d, Decision::Expired { .. }))
}

/// A writer that only hashes its input.
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
