//! The files that receipts cover: journals, output, artifacts.

use super::{VerifyReport, ledger_pass::LedgerPass, receipt_chain::CheckedReceipt, receipt_chain::in_parallel};
use crate::{
    Home,
    closing::{digest_bounded_file, digest_file, is_task_file_name, read_bounded_line},
    journal,
    output::{ChunkLayout, ReadError, open_regular},
};
use countersign_model::{Digest, ReceiptSubject, Record, StreamName};
use std::{
    io::{self, BufReader},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

/// The beginning of a finding that names the digest of the file found instead.
pub(super) const OTHER_FILE: &str = "is a different file: its sha256 is ";
const LARGE_STREAM_BYTES: u64 = 4 * 1024 * 1024;

/// Checks all files that these receipts cover.
pub(super) fn check_all(
    home: &Home,
    receipts: &[&CheckedReceipt],
    pass: &LedgerPass,
    progress: super::VerifyProgress<'_>,
) -> VerifyReport {
    let done = AtomicU64::new(0);
    let total = receipts.len() as u64;
    let reports = in_parallel(receipts, |checked| {
        let report = check_task(&home.task_dir(checked.task), checked, pass.settled_head(checked.task));
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
        report
    });
    let mut all = VerifyReport::default();
    reports.into_iter().for_each(|report| all.merge(report));
    all
}

/// Checks the files that one receipt covers, in this directory. `settled` is the hash of its journal in the ledger.
pub(super) fn check_task(dir: &Path, checked: &CheckedReceipt, settled: Option<Digest>) -> VerifyReport {
    let mut report = VerifyReport { tasks: 1, ..VerifyReport::default() };
    let mut journal_holds = false;
    for (name, sha256) in checked.subjects.iter().filter(|(name, _)| name != ReceiptSubject::DECISIONS) {
        if !is_task_file_name(name) {
            report.add_finding(checked.place(), format!("covers `{name}`, which is not a file of a task"));
            continue;
        }
        let place = format!("{name} of {}", checked.task);
        let stream = stream_names(checked).iter().copied().find(|s| s.file() == name);
        let found = match stream {
            // The journal comes first: its frames can contradict the streams only if it is unchanged.
            Some(stream) if journal_holds => digest_stream(dir, stream),
            _ if name == ReceiptSubject::JOURNAL => digest_bounded_file(&dir.join(name)).map(|(d, l)| (d, l, None)),
            _ => digest_file(&dir.join(name)).map(|(d, l)| (d, l, None)),
        };
        match found {
            Ok((digest, length, chunk)) => {
                report.files += 1;
                report.bytes += length;
                let unchanged = digest == *sha256;
                journal_holds |= unchanged && name == ReceiptSubject::JOURNAL;
                match (unchanged, chunk) {
                    (true, None) => {}
                    (true, Some(chunk)) => {
                        let place = format!("{} of {}", ReceiptSubject::JOURNAL, checked.task);
                        report.add_finding(place, format!("does not match {name}, which {chunk}"));
                    }
                    (false, Some(chunk)) => report.add_finding(place, chunk),
                    (false, None) => report.add_finding(place, describe_difference(dir, name, checked, digest)),
                }
            }
            Err(e) => report.add_finding(place, read_error(&e)),
        }
    }
    if let Some(sealed) = &checked.journal {
        if let Some(damage) = &sealed.damage {
            report.add_finding(checked.place(), format!("was sealed with a damaged journal: {damage}"));
        } else if settled.is_some_and(|head| head != sealed.head) {
            report.add_finding(checked.place(), "names another hash of its journal than the ledger");
        }
    }
    report
}

fn stream_names(checked: &CheckedReceipt) -> &'static [StreamName] {
    StreamName::for_mode(if checked.pty { countersign_model::Mode::Pty } else { countersign_model::Mode::Pipes })
}

/// Why a file could not be checked.
pub(super) fn read_error(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound => "is missing".to_owned(),
        io::ErrorKind::InvalidInput => "is not a regular file".to_owned(),
        _ => format!("cannot be read: {e}"),
    }
}

/// What is wrong with a file whose digest differs: for a journal the line, if it can be found.
fn describe_difference(dir: &Path, name: &str, checked: &CheckedReceipt, actual: Digest) -> String {
    let line = (name == ReceiptSubject::JOURNAL).then(|| find_bad_line(dir, checked)).flatten();
    line.unwrap_or_else(|| format!("{OTHER_FILE}{actual}"))
}

/// A stream's file: its digest and length, and the first chunk that differs from its frame. For a large file, two
/// threads compute the two digests.
fn digest_stream(dir: &Path, stream: StreamName) -> io::Result<(Digest, u64, Option<String>)> {
    let path = dir.join(stream.file());
    if std::fs::symlink_metadata(&path)?.len() < LARGE_STREAM_BYTES {
        let (digest, length) = digest_file(&path)?;
        return Ok((digest, length, find_bad_chunk(dir, stream)));
    }
    thread::scope(|scope| {
        let whole = scope.spawn(|| digest_file(&path));
        let chunk = find_bad_chunk(dir, stream);
        let (digest, length) = whole.join().unwrap_or_else(|p| std::panic::resume_unwind(p))?;
        Ok((digest, length, chunk))
    })
}

fn find_bad_line(dir: &Path, checked: &CheckedReceipt) -> Option<String> {
    let sealed = checked.journal.as_ref()?;
    let mut journal = BufReader::new(open_regular(&dir.join(journal::JOURNAL_FILE)).ok()?);
    let (mut expected, mut count, mut bytes) = (None, 0, Vec::new());
    loop {
        let line = match read_bounded_line(&mut journal, &mut bytes) {
            Ok(Some(line)) => line.strip_suffix(b"\n").and_then(|l| std::str::from_utf8(l).ok()),
            Ok(None) => break,
            Err(_) => None,
        };
        count += 1;
        let record = line.and_then(|l| Record::parse(l).ok());
        let Some(record) = record.filter(|r| expected.is_none_or(|seq| r.seq == seq)) else {
            return Some(format!("was changed: line {count} is not the record that belongs there"));
        };
        expected = Some(record.seq.saturating_add(1));
    }
    match count.cmp(&sealed.frames.0) {
        std::cmp::Ordering::Less => Some(format!("was cut off: it has {count} of {} frames", sealed.frames)),
        std::cmp::Ordering::Greater => Some(format!("has {count} frames, but {} were sealed", sealed.frames)),
        std::cmp::Ordering::Equal => None,
    }
}

/// The first chunk of a stream's file that differs from its frame.
fn find_bad_chunk(dir: &Path, stream: StreamName) -> Option<String> {
    // A missing journal is reported separately.
    let mut journal = BufReader::new(open_regular(&dir.join(journal::JOURNAL_FILE)).ok()?);
    let (mut layout, mut bytes) = (ChunkLayout::default(), Vec::new());
    while let Some(line) = read_bounded_line(&mut journal, &mut bytes).ok()? {
        layout.add_line(std::str::from_utf8(line).ok()?);
    }
    let file = open_regular(&dir.join(stream.file())).ok()?;
    for span in layout.chunks_of(stream) {
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
