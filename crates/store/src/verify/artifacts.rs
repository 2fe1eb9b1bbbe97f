//! The index of artifacts: which files have which digest, according to the receipts.

use super::{MAX_LISTED_FINDINGS, VerifyReport, receipt_chain::ReceiptsByTask};
use crate::{
    fsx,
    ledger::{LedgerError, LedgerReader},
};
use countersign_model::Digest;
use std::collections::HashSet;

/// A sum over entries in any order. Its key is random for every run, so that nobody can construct entries that cancel
/// out.
struct UnorderedSum {
    key: [u8; 32],
    sum: u128,
}

impl UnorderedSum {
    fn add(&mut self, sha256: &[u8], task: &[u8], name: &[u8]) {
        let mut hash = blake3::Hasher::new_keyed(&self.key);
        for part in [sha256, task, name] {
            hash.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        let mut half = [0; 16];
        half.copy_from_slice(&hash.finalize().as_bytes()[..16]);
        self.sum = self.sum.wrapping_add(u128::from_le_bytes(half));
    }
}

type ArtifactEntry = (Vec<u8>, Vec<u8>, Vec<u8>);

/// Compares the index with the files that the receipts cover.
pub(super) fn check(
    ledger: &LedgerReader,
    receipts: &ReceiptsByTask,
    report: &mut VerifyReport,
) -> Result<(), LedgerError> {
    if !receipts.bad.is_empty() {
        report.notes.push("the index of artifacts was not checked, because not every receipt is valid".to_owned());
        return Ok(());
    }
    let key = fsx::random();
    let (mut expected, mut actual) = (UnorderedSum { key, sum: 0 }, UnorderedSum { key, sum: 0 });
    for checked in receipts.good.values() {
        let task = checked.task.to_string();
        let subjects: HashSet<&(String, Digest)> = checked.subjects.iter().collect();
        subjects.iter().for_each(|(name, digest)| expected.add(digest.as_bytes(), task.as_bytes(), name.as_bytes()));
    }
    for_each_entry(ledger, |(sha256, task, name)| actual.add(&sha256, &task, &name))?;
    if expected.sum != actual.sum {
        report_wrong_entries(ledger, receipts, report)?;
    }
    Ok(())
}

/// Reports the wrong entries.
fn report_wrong_entries(
    ledger: &LedgerReader,
    receipts: &ReceiptsByTask,
    report: &mut VerifyReport,
) -> Result<(), LedgerError> {
    let mut expected: HashSet<ArtifactEntry> = HashSet::new();
    for checked in receipts.good.values() {
        let task = checked.task.to_string().into_bytes();
        expected.extend(
            checked.subjects.iter().map(|(n, d)| (d.as_bytes().to_vec(), task.clone(), n.clone().into_bytes())),
        );
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut wrong = Vec::new();
    for_each_entry(ledger, |entry| {
        if !expected.remove(&entry) {
            wrong.push((text(&entry.1), format!("lists {}, but no receipt does", text(&entry.2))));
        }
    })?;
    let mut missing: Vec<_> =
        expected.iter().map(|(_, task, name)| (text(task), format!("lacks {}", text(name)))).collect();
    missing.sort_unstable();
    wrong.extend(missing);
    for (task, what) in wrong.iter().take(MAX_LISTED_FINDINGS) {
        report.add_finding(
            format!("artifacts of {task}"),
            format!("the index {what}; run `csn doctor --fix` to rebuild it"),
        );
    }
    if wrong.len() > MAX_LISTED_FINDINGS {
        let more = wrong.len() - MAX_LISTED_FINDINGS;
        let entries = if more == 1 { "entry of the index is" } else { "entries of the index are" };
        report.add_finding("artifacts", format!("{more} more {entries} wrong; run `csn doctor --fix` to rebuild it"));
    }
    Ok(())
}

fn for_each_entry(ledger: &LedgerReader, mut each: impl FnMut(ArtifactEntry)) -> Result<(), LedgerError> {
    use rusqlite::types::ValueRef;
    let bytes = |value: ValueRef<'_>| match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.to_vec(),
        _ => Vec::new(),
    };
    let mut query = ledger.conn.prepare("SELECT sha256, task, name FROM artifacts")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        each((bytes(row.get_ref(0)?), bytes(row.get_ref(1)?), bytes(row.get_ref(2)?)));
    }
    Ok(())
}
