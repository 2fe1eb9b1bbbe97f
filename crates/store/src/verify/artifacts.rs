//! The index of artifacts: where bytes with a digest are kept, as the receipts have it.

use super::{LISTED, VerifyReport, receipt_chain::ReceiptsByTask};
use crate::{
    fsx,
    ledger::{LedgerError, LedgerReader},
};
use countersign_model::Digest;
use std::collections::HashSet;

/// A sum over entries in any order. Its key is new for every run, so nobody can make up entries that cancel out.
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

/// Compares the index with what the receipts speak for.
pub(super) fn check(
    ledger: &LedgerReader,
    rows: &ReceiptsByTask,
    report: &mut VerifyReport,
) -> Result<(), LedgerError> {
    if !rows.bad.is_empty() {
        report.notes.push("the index of artifacts was not looked at: not every receipt holds".to_owned());
        return Ok(());
    }
    let key = fsx::random();
    let (mut due, mut said) = (UnorderedSum { key, sum: 0 }, UnorderedSum { key, sum: 0 });
    for checked in rows.good.values() {
        let task = checked.task.to_string();
        let subjects: HashSet<&(String, Digest)> = checked.subjects.iter().collect();
        subjects.iter().for_each(|(name, digest)| due.add(digest.as_bytes(), task.as_bytes(), name.as_bytes()));
    }
    entries(ledger, |(sha256, task, name)| said.add(&sha256, &task, &name))?;
    if due.sum != said.sum {
        name_them(ledger, rows, report)?;
    }
    Ok(())
}

/// Says which entries are wrong.
fn name_them(ledger: &LedgerReader, rows: &ReceiptsByTask, report: &mut VerifyReport) -> Result<(), LedgerError> {
    let mut due: HashSet<ArtifactEntry> = HashSet::new();
    for checked in rows.good.values() {
        let task = checked.task.to_string().into_bytes();
        due.extend(checked.subjects.iter().map(|(n, d)| (d.as_bytes().to_vec(), task.clone(), n.clone().into_bytes())));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut wrong = Vec::new();
    entries(ledger, |entry| {
        if !due.remove(&entry) {
            wrong.push((text(&entry.1), format!("has {}, no receipt does", text(&entry.2))));
        }
    })?;
    let mut missing: Vec<_> = due.iter().map(|(_, task, name)| (text(task), format!("lacks {}", text(name)))).collect();
    missing.sort_unstable();
    wrong.extend(missing);
    for (task, what) in wrong.iter().take(LISTED) {
        report.find(format!("artifacts of {task}"), format!("the index {what}; csn doctor --fix makes it anew"));
    }
    if wrong.len() > LISTED {
        let more = wrong.len() - LISTED;
        report.find("artifacts", format!("{more} more entries of the index are wrong; csn doctor --fix makes it anew"));
    }
    Ok(())
}

fn entries(ledger: &LedgerReader, mut each: impl FnMut(ArtifactEntry)) -> Result<(), LedgerError> {
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
