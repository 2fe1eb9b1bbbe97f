//! The records of a settled task, read and hashed in one pass. Receipts are made from this.

use crate::{
    Home, journal,
    ledger::LedgerReader,
    output::open_regular,
    stream::{StreamError, find_prologue},
};
use countersign_model::{
    DecimalCount, Decision, Digest, Frame, HashChain, ReceiptSubject, Record, RecordContent, SealedJournal, StreamName,
    TaskAccount, TaskFileDigests, TaskId, Text,
};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use std::{
    collections::{BTreeMap, HashSet},
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom},
    path::Path,
};

/// The maximum length of a line in a journal. Real lines are far shorter.
pub(crate) const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;
/// How much is read of a journal, and of a stream whose digest no journal states. One task must not delay the receipts
/// of the others.
const MAX_READ_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// How many bytes of repeated frames, and how many redaction rules, a receipt may contain.
const MAX_REPEATED_BYTES: u64 = 4 * 1024 * 1024;
const MAX_REDACTION_RULES: usize = 1000;
/// The largest count that a frame may state.
const MAX_FRAME_COUNT: u64 = 1 << 32;

/// A settled task, as its records and files describe it.
pub struct SettledTask {
    pub account: TaskAccount,
    /// The hash over the lines of its decisions.
    decisions: Sha256,
    journal: Option<(Digest, SealedJournal)>,
    streams: BTreeMap<StreamName, Digest>,
    /// The number of its next record.
    pub next_seq: u64,
}

impl SettledTask {
    /// Reads a task; none if the ledger does not know it, or if it has its receipt.
    pub fn read(home: &Home, ledger: &LedgerReader, task: TaskId) -> Result<Option<Self>, StreamError> {
        let lines = ledger.decisions(task, 0)?;
        let parse = |seq: u64, line: &str| Record::parse(line).map_err(|source| StreamError::Record { seq, source });
        let mut records = Vec::with_capacity(lines.len());
        let mut decisions = Sha256::new();
        for (seq, line) in &lines {
            hash_line(&mut decisions, line);
            records.push(parse(*seq, line)?);
        }
        let Some(mut account) = records.first().and_then(|first| TaskAccount::begin(task, first)) else {
            return Ok(None);
        };
        let sealed = |r: &Record| matches!(r.what, RecordContent::Decision(Decision::Sealed(_)));
        if records.iter().any(sealed) {
            return Ok(None);
        }
        let expired = records.iter().any(|r| matches!(r.what, RecordContent::Decision(Decision::Expired { .. })));
        let head = records.iter().find_map(|r| match &r.what {
            RecordContent::Decision(Decision::Settled { journal_head, .. }) => *journal_head,
            _ => None,
        });
        let begins = find_prologue(task, &lines);
        let mut rest = records.iter().skip(1).peekable();
        while let Some(record) = rest.next_if(|r| begins.is_none_or(|(first_seq, _)| r.seq < first_seq)) {
            account.apply(record);
        }
        let mut journal = None;
        if let (Some((_, prologue_head)), Some(head), false) = (begins, head, expired) {
            journal = Some(read_journal(&home.task_dir(task), task, prologue_head, head, &mut account)?);
        }
        rest.for_each(|record| account.apply(record));
        let mut streams = BTreeMap::new();
        if journal.as_ref().is_some_and(|(_, j)| !j.closed) {
            for name in StreamName::for_mode(account.state.request.mode) {
                match digest_bounded_file(&home.task_dir(task).join(name.file())) {
                    Ok((sha256, _)) => drop(streams.insert(*name, sha256)),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) if is_temporary(&e) => return Err(e.into()),
                    Err(_) => set_damage(&mut journal, "a stream cannot be read"),
                }
            }
        }
        let next_seq = lines.last().map_or(0, |(seq, _)| seq + 1);
        Ok(Some(Self { account, decisions, journal, streams, next_seq }))
    }

    /// Adds a decision of this task that is about to be written.
    pub fn apply_decision(&mut self, line: &str, record: &Record) {
        hash_line(&mut self.decisions, line);
        self.account.apply(record);
        self.next_seq = record.seq + 1;
    }

    #[must_use]
    pub fn file_digests(&self) -> TaskFileDigests {
        let decisions = Digest::from_bytes(self.decisions.clone().finalize().into());
        TaskFileDigests { decisions, journal: self.journal.clone(), streams: self.streams.clone() }
    }
}

pub(crate) fn hash_line(hash: &mut Sha256, line: &str) {
    hash.update(line.as_bytes());
    hash.update(b"\n");
}

fn set_damage(journal: &mut Option<(Digest, SealedJournal)>, what: &'static str) {
    if let Some((_, journal)) = journal {
        journal.damage.get_or_insert(Text::from_static(what));
    }
}

/// Whether an error is a temporary shortage of resources. It is not the task's fault, so the caller tries again.
fn is_temporary(e: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR];
    e.raw_os_error().is_some_and(|code| short.iter().any(|s| s.raw_os_error() == code))
}

/// The next line with its newline, if it has one. None after the last line; an error of kind `InvalidData` if the line
/// is longer than [`MAX_LINE_BYTES`].
pub(crate) fn read_bounded_line<'a>(reader: &mut impl BufRead, line: &'a mut Vec<u8>) -> io::Result<Option<&'a [u8]>> {
    line.clear();
    io::Read::take(&mut *reader, MAX_LINE_BYTES).read_until(b'\n', line)?;
    match line.last() {
        None => Ok(None),
        Some(last) if *last != b'\n' && line.len() as u64 == MAX_LINE_BYTES => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"))
        }
        Some(_) => Ok(Some(line)),
    }
}

/// Reads a journal to its end: its content, its hash, and whether they match the settled outcome. A journal that cannot
/// be read counts as damaged, and the task still gets its receipt.
fn read_journal(
    dir: &Path,
    task: TaskId,
    prologue_head: Digest,
    settled: Digest,
    account: &mut TaskAccount,
) -> io::Result<(Digest, SealedJournal)> {
    let mut read = JournalCheck::new(HashChain::for_journal(task, prologue_head), account);
    match open_regular(&dir.join(journal::JOURNAL_FILE)) {
        Ok(file) => read.read_all(file)?,
        Err(e) if is_temporary(&e) => return Err(e),
        Err(e) if e.kind() == io::ErrorKind::NotFound => read.add_damage("the journal is missing"),
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => read.add_damage("the journal is not a regular file"),
        Err(_) => read.add_damage("the journal cannot be opened"),
    }
    if read.chain.head() != settled {
        read.add_damage("the journal is not the one that was settled");
    }
    let JournalCheck { chain, sha256, frames, closed, damage, .. } = read;
    let journal = SealedJournal { frames: DecimalCount(frames), head: chain.head(), prologue_head, closed, damage };
    Ok((Digest::from_bytes(sha256.finalize().into()), journal))
}

/// A journal while it is being read.
struct JournalCheck<'a> {
    account: &'a mut TaskAccount,
    chain: HashChain,
    sha256: Sha256,
    next_seq: u64,
    frames: u64,
    closed: bool,
    repeated: u64,
    rules: HashSet<Text>,
    /// The first damage that was found.
    damage: Option<Text>,
}

impl<'a> JournalCheck<'a> {
    fn new(chain: HashChain, account: &'a mut TaskAccount) -> Self {
        let next_seq = account.state.next_seq;
        let (sha256, rules) = (Sha256::new(), HashSet::new());
        Self { account, chain, sha256, next_seq, frames: 0, closed: false, repeated: 0, rules, damage: None }
    }

    fn add_damage(&mut self, what: &'static str) {
        self.damage.get_or_insert(Text::from_static(what));
    }

    fn read_all(&mut self, file: File) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(256 * 1024, file);
        let (mut line, mut read) = (Vec::new(), 0);
        loop {
            let line = match read_bounded_line(&mut reader, &mut line) {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(()),
                Err(e) if is_temporary(&e) => return Err(e),
                Err(e) => {
                    let too_long = e.kind() == io::ErrorKind::InvalidData;
                    let damage =
                        if too_long { "a line of the journal is too long" } else { "the journal cannot be read" };
                    self.add_damage(damage);
                    return Ok(());
                }
            };
            read += line.len() as u64;
            if read > MAX_READ_BYTES {
                self.add_damage("the journal is too long to be read");
                return Ok(());
            }
            self.sha256.update(line);
            self.read_line(line);
        }
    }

    fn read_line(&mut self, line: &[u8]) {
        let text = line.strip_suffix(b"\n").and_then(|l| std::str::from_utf8(l).ok());
        let Some((text, record)) = text.and_then(|t| Some((t, Record::parse(t).ok()?))) else {
            return self.add_damage("a line of the journal cannot be parsed");
        };
        self.chain.push_line(text);
        self.frames += 1;
        self.closed = matches!(record.what, RecordContent::Frame(Frame::Closed { .. }));
        let expected = record.seq == self.next_seq;
        self.next_seq = record.seq.saturating_add(1);
        match &record.what {
            _ if !expected => self.add_damage("a line of the journal has the wrong number"),
            RecordContent::Frame(frame) if !self.is_plausible(frame, line.len() as u64) => {
                self.add_damage("a line of the journal states impossible values");
            }
            _ => self.account.apply(&record),
        }
    }

    /// Whether the statements of a frame can be accepted: its counts can be added up, its names are file names of the
    /// task, and the receipt has room for it.
    fn is_plausible(&mut self, frame: &Frame, length: u64) -> bool {
        match frame {
            Frame::Output { offset, len, .. } | Frame::Gap { offset, bytes: len, .. } => {
                offset.checked_add(*len).is_some()
            }
            Frame::StdinWritten { bytes, .. } => *bytes < MAX_FRAME_COUNT,
            Frame::CleanupCompleted { ended, .. } => *ended < MAX_FRAME_COUNT,
            Frame::Closed { streams, .. } => streams.values().all(|s| s.bytes.checked_add(s.dropped).is_some()),
            Frame::Redacted { rule, count, .. } => {
                *count < MAX_FRAME_COUNT && (self.rules.contains(rule) || self.rules.len() < MAX_REDACTION_RULES) && {
                    self.rules.insert(rule.clone());
                    true
                }
            }
            Frame::ArtifactStored { artifact, .. } => is_task_file_name(artifact.as_str()) && self.has_room(length),
            Frame::LimitReached { .. } | Frame::Killed { .. } | Frame::WriteDetected { .. } => self.has_room(length),
            _ => true,
        }
    }

    fn has_room(&mut self, length: u64) -> bool {
        self.repeated += length;
        self.repeated <= MAX_REPEATED_BYTES
    }
}

/// Whether this is the name of a file in a task's directory, other than its decisions: one plain path component.
pub(crate) fn is_task_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | ".." | ReceiptSubject::DECISIONS) && !name.contains(['/', '\0'])
}

/// SHA-256 of a file, and its length.
pub fn digest_file(path: &Path) -> io::Result<(Digest, u64)> {
    digest_open_file(&open_regular(path)?)
}

/// SHA-256 of a file that is not longer than the limit for journals: a sparse file may have any length.
pub(crate) fn digest_bounded_file(path: &Path) -> io::Result<(Digest, u64)> {
    let file = open_regular(path)?;
    if file.metadata()?.len() > MAX_READ_BYTES {
        Err(io::ErrorKind::FileTooLarge.into())
    } else {
        digest_open_file(&file)
    }
}

/// SHA-256 of an open file from its beginning, up to its current length: a file that grows has no stable digest.
pub fn digest_open_file(mut file: &File) -> io::Result<(Digest, u64)> {
    file.seek(SeekFrom::Start(0))?;
    let mut whole = file.take(file.metadata()?.len());
    let (mut hash, mut buf, mut length) = (Sha256::new(), vec![0; 256 * 1024], 0);
    loop {
        match whole.read(&mut buf) {
            Ok(0) => return Ok((Digest::from_bytes(hash.finalize().into()), length)),
            Ok(n) => {
                hash.update(&buf[..n]);
                length += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Above this number of tasks, one call syncs the whole file system. Syncing each file would delay all other writes as
/// often.
const MAX_SINGLE_SYNCS: usize = 2;

/// Syncs all files of these tasks to the disk.
pub fn sync_tasks(home: &Home, tasks: &[TaskId]) -> io::Result<()> {
    if tasks.len() > MAX_SINGLE_SYNCS {
        return Ok(rustix::fs::syncfs(&File::open(home.tasks())?)?);
    }
    for task in tasks {
        sync_task(&home.task_dir(*task))?;
    }
    Ok(())
}

/// Entries that are not files cannot be synced; files that cannot be opened are reported when they are read.
fn sync_task(dir: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if is_temporary(&e) => return Err(e),
        // The task has no directory, or something else has its name.
        Err(_) => return Ok(()),
    };
    for entry in entries {
        match open_regular(&entry?.path()) {
            Ok(file) => file.sync_data()?,
            Err(e) if is_temporary(&e) => return Err(e),
            Err(_) => {}
        }
    }
    File::open(dir)?.sync_all()?;
    match dir.parent() {
        Some(shard) => File::open(shard)?.sync_all(),
        None => Ok(()),
    }
}
