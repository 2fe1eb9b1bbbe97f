//! What receipts speak for, on the disk: journals, outputs, artifacts.

use super::{VerifyReport, ledger_pass::LedgerPass, receipt_chain::CheckedReceipt, receipt_chain::in_parallel};
use crate::{
    Home,
    closing::{bounded_line, digest_of, digest_of_some, is_name},
    journal,
    output::{ChunkLayout, ReadError, regular},
};
use countersign_model::{Digest, ReceiptSubject, Record, StreamName};
use std::{
    io::{self, BufReader},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

/// How a finding begins that names the digest of what is there instead.
pub(super) const OTHER: &str = "is another file: its sha256 is ";
const LARGE: u64 = 4 * 1024 * 1024;

/// Everything that these receipts speak for.
pub(super) fn all(
    home: &Home,
    receipts: &[&CheckedReceipt],
    told: &LedgerPass,
    progress: super::VerifyProgress<'_>,
) -> VerifyReport {
    let done = AtomicU64::new(0);
    let total = receipts.len() as u64;
    let reports = in_parallel(receipts, |checked| {
        let report = of_task(&home.task_dir(checked.task), checked, told.settled_head(checked.task));
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
        report
    });
    let mut all = VerifyReport::default();
    reports.into_iter().for_each(|report| all.add(report));
    all
}

/// What one receipt speaks for, in this directory. `settled` is the head of its journal that the ledger has.
pub(super) fn of_task(dir: &Path, checked: &CheckedReceipt, settled: Option<Digest>) -> VerifyReport {
    let mut report = VerifyReport { tasks: 1, ..VerifyReport::default() };
    let mut journal_holds = false;
    for (name, sha256) in checked.subjects.iter().filter(|(name, _)| name != ReceiptSubject::DECISIONS) {
        if !is_name(name) {
            report.find(checked.place(), format!("speaks for `{name}`, which is no file of a task"));
            continue;
        }
        let place = format!("{name} of {}", checked.task);
        let stream = streams(checked).iter().copied().find(|s| s.file() == name);
        let found = match stream {
            // The journal comes first: one that is not what was sealed does not speak against its streams.
            Some(stream) if journal_holds => stream_of(dir, stream),
            _ if name == ReceiptSubject::JOURNAL => digest_of_some(&dir.join(name)).map(|(d, l)| (d, l, None)),
            _ => digest_of(&dir.join(name)).map(|(d, l)| (d, l, None)),
        };
        match found {
            Ok((digest, length, chunk)) => {
                report.files += 1;
                report.bytes += length;
                let whole = digest == *sha256;
                journal_holds |= whole && name == ReceiptSubject::JOURNAL;
                match (whole, chunk) {
                    (true, None) => {}
                    (true, Some(chunk)) => {
                        let place = format!("{} of {}", ReceiptSubject::JOURNAL, checked.task);
                        report.find(place, format!("does not fit {name}, which {chunk}"));
                    }
                    (false, Some(chunk)) => report.find(place, chunk),
                    (false, None) => report.find(place, other(dir, name, checked, digest)),
                }
            }
            Err(e) => report.find(place, unread(&e)),
        }
    }
    if let Some(sealed) = &checked.journal {
        if let Some(damage) = &sealed.damage {
            report.find(checked.place(), format!("was sealed over a damaged journal: {damage}"));
        } else if settled.is_some_and(|head| head != sealed.head) {
            report.find(checked.place(), "names another head of its journal than was settled");
        }
    }
    report
}

fn streams(checked: &CheckedReceipt) -> &'static [StreamName] {
    StreamName::for_mode(if checked.pty { countersign_model::Mode::Pty } else { countersign_model::Mode::Pipes })
}

/// Why a file was not looked at.
pub(super) fn unread(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound => "is missing".to_owned(),
        io::ErrorKind::InvalidInput => "is not a regular file".to_owned(),
        _ => format!("cannot be read: {e}"),
    }
}

/// What is wrong with a file whose digest is another: for a journal the line, if that can be told.
fn other(dir: &Path, name: &str, checked: &CheckedReceipt, actual: Digest) -> String {
    let told = (name == ReceiptSubject::JOURNAL).then(|| bad_line(dir, checked)).flatten();
    told.unwrap_or_else(|| format!("{OTHER}{actual}"))
}

/// A stream's file: its digest and length, and the first chunk that is not what its frame says. Of a large one the two
/// digests are made by two processors.
fn stream_of(dir: &Path, stream: StreamName) -> io::Result<(Digest, u64, Option<String>)> {
    let path = dir.join(stream.file());
    if std::fs::symlink_metadata(&path)?.len() < LARGE {
        let (digest, length) = digest_of(&path)?;
        return Ok((digest, length, bad_chunk(dir, stream)));
    }
    thread::scope(|scope| {
        let whole = scope.spawn(|| digest_of(&path));
        let chunk = bad_chunk(dir, stream);
        let (digest, length) = whole.join().unwrap_or_else(|p| std::panic::resume_unwind(p))?;
        Ok((digest, length, chunk))
    })
}

fn bad_line(dir: &Path, checked: &CheckedReceipt) -> Option<String> {
    let sealed = checked.journal.as_ref()?;
    let mut journal = BufReader::new(regular(&dir.join(journal::FILE)).ok()?);
    let (mut due, mut count, mut bytes) = (None, 0, Vec::new());
    loop {
        let line = match bounded_line(&mut journal, &mut bytes) {
            Ok(Some(line)) => line.strip_suffix(b"\n").and_then(|l| std::str::from_utf8(l).ok()),
            Ok(None) => break,
            Err(_) => None,
        };
        count += 1;
        let record = line.and_then(|l| Record::parse(l).ok());
        let Some(record) = record.filter(|r| due.is_none_or(|due| r.seq == due)) else {
            return Some(format!("was changed: line {count} does not read as the record that belongs there"));
        };
        due = Some(record.seq.saturating_add(1));
    }
    match count.cmp(&sealed.frames.0) {
        std::cmp::Ordering::Less => Some(format!("was cut off: it has {count} frames of {}", sealed.frames)),
        std::cmp::Ordering::Greater => Some(format!("has {count} frames, {} were sealed", sealed.frames)),
        std::cmp::Ordering::Equal => None,
    }
}

/// The first chunk of a stream's file that is not what its frame says.
fn bad_chunk(dir: &Path, stream: StreamName) -> Option<String> {
    // A journal that is not there is told of by itself.
    let mut journal = BufReader::new(regular(&dir.join(journal::FILE)).ok()?);
    let (mut layout, mut bytes) = (ChunkLayout::default(), Vec::new());
    while let Some(line) = bounded_line(&mut journal, &mut bytes).ok()? {
        layout.note(std::str::from_utf8(line).ok()?);
    }
    let file = regular(&dir.join(stream.file())).ok()?;
    for span in layout.all(stream) {
        bytes.clear();
        match span.read(&file, &mut bytes) {
            Ok(()) => {}
            Err(ReadError::Tampered { offset, end, .. }) => {
                return Some(format!("was changed: bytes {offset} to {end} are not what was recorded"));
            }
            Err(e) => return Some(format!("cannot be read: {e}")),
        }
    }
    None
}
