//! What the records of a settled task amount to: read once, hashed on the way. Receipts are made of this.

use crate::{
    Home, journal,
    ledger::LedgerReader,
    output::regular,
    stream::{StreamError, prologue},
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

/// No line of a journal is longer, by far.
pub(crate) const LONGEST_LINE: u64 = 16 * 1024 * 1024;
/// So much of a journal is read, and of a stream that its journal does not tell the digest of. One task does not keep
/// the others from their receipts.
const LONGEST: u64 = 16 * 1024 * 1024 * 1024;
/// A receipt has room for so many bytes of frames that it repeats, and for so many redaction rules.
const REPEATED: u64 = 4 * 1024 * 1024;
const RULES: usize = 1000;
/// No frame counts further.
const COUNTED: u64 = 1 << 32;

/// A settled task, as its records and files have it.
pub struct SettledTask {
    pub account: TaskAccount,
    /// Over the lines of its decisions.
    decisions: Sha256,
    journal: Option<(Digest, SealedJournal)>,
    streams: BTreeMap<StreamName, Digest>,
    /// The number of its next record.
    pub next_seq: u64,
}

impl SettledTask {
    /// Reads a task; none when the ledger does not know it.
    pub fn read(home: &Home, ledger: &LedgerReader, task: TaskId) -> Result<Option<Self>, StreamError> {
        let lines = ledger.decisions(task, 0)?;
        let parse = |seq: u64, line: &str| Record::parse(line).map_err(|source| StreamError::Record { seq, source });
        let mut records = Vec::with_capacity(lines.len());
        let mut decisions = Sha256::new();
        for (seq, line) in &lines {
            add_line(&mut decisions, line);
            records.push(parse(*seq, line)?);
        }
        let Some(mut account) = records.first().and_then(|first| TaskAccount::begin(task, first)) else {
            return Ok(None);
        };
        let expired = records.iter().any(|r| matches!(r.what, RecordContent::Decision(Decision::Expired { .. })));
        let head = records.iter().find_map(|r| match &r.what {
            RecordContent::Decision(Decision::Settled { journal_head, .. }) => *journal_head,
            _ => None,
        });
        let begins = prologue(ledger, task)?;
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
                match digest_of_some(&home.task_dir(task).join(name.file())) {
                    Ok((sha256, _)) => drop(streams.insert(*name, sha256)),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) if passes(&e) => return Err(e.into()),
                    Err(_) => damage(&mut journal, "a stream cannot be read"),
                }
            }
        }
        let next_seq = lines.last().map_or(0, |(seq, _)| seq + 1);
        Ok(Some(Self { account, decisions, journal, streams, next_seq }))
    }

    /// One more decision of this task, which is about to be written.
    pub fn add(&mut self, line: &str, record: &Record) {
        add_line(&mut self.decisions, line);
        self.account.apply(record);
        self.next_seq = record.seq + 1;
    }

    #[must_use]
    pub fn file_digests(&self) -> TaskFileDigests {
        let decisions = Digest::from_bytes(self.decisions.clone().finalize().into());
        TaskFileDigests { decisions, journal: self.journal.clone(), streams: self.streams.clone() }
    }
}

pub(crate) fn add_line(hash: &mut Sha256, line: &str) {
    hash.update(line.as_bytes());
    hash.update(b"\n");
}

fn damage(journal: &mut Option<(Digest, SealedJournal)>, what: &'static str) {
    if let Some((_, journal)) = journal {
        journal.damage.get_or_insert(Text::from_static(what));
    }
}

/// What is short now and may not be later: no fault of the task, and tried again.
fn passes(e: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR];
    e.raw_os_error().is_some_and(|code| short.iter().any(|s| s.raw_os_error() == code))
}

/// The next line with its end, if it has one: none behind the last one, an error of kind `InvalidData` if it is longer
/// than any line is.
pub(crate) fn bounded_line<'a>(reader: &mut impl BufRead, line: &'a mut Vec<u8>) -> io::Result<Option<&'a [u8]>> {
    line.clear();
    io::Read::take(&mut *reader, LONGEST_LINE).read_until(b'\n', line)?;
    match line.last() {
        None => Ok(None),
        Some(last) if *last != b'\n' && line.len() as u64 == LONGEST_LINE => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"))
        }
        Some(_) => Ok(Some(line)),
    }
}

/// Reads a journal to its end: what it says, what it amounts to, and whether that is what was settled. A journal that
/// cannot be read is damaged, and its task has its receipt all the same.
fn read_journal(
    dir: &Path,
    task: TaskId,
    prologue_head: Digest,
    settled: Digest,
    account: &mut TaskAccount,
) -> io::Result<(Digest, SealedJournal)> {
    let mut read = JournalCheck::new(HashChain::for_journal(task, prologue_head), account);
    match regular(&dir.join(journal::FILE)) {
        Ok(file) => read.all(file)?,
        Err(e) if passes(&e) => return Err(e),
        Err(e) if e.kind() == io::ErrorKind::NotFound => read.damaged("the journal is gone"),
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => read.damaged("the journal is not a regular file"),
        Err(_) => read.damaged("the journal cannot be opened"),
    }
    if read.chain.head() != settled {
        read.damaged("the journal is not the one that was settled");
    }
    let JournalCheck { chain, sha256, frames, closed, damage, .. } = read;
    let journal = SealedJournal { frames: DecimalCount(frames), head: chain.head(), prologue_head, closed, damage };
    Ok((Digest::from_bytes(sha256.finalize().into()), journal))
}

/// A journal that is being read.
struct JournalCheck<'a> {
    account: &'a mut TaskAccount,
    chain: HashChain,
    sha256: Sha256,
    next_seq: u64,
    frames: u64,
    closed: bool,
    repeated: u64,
    rules: HashSet<Text>,
    /// The first of what is wrong with it.
    damage: Option<Text>,
}

impl<'a> JournalCheck<'a> {
    fn new(chain: HashChain, account: &'a mut TaskAccount) -> Self {
        let next_seq = account.state.next_seq;
        let (sha256, rules) = (Sha256::new(), HashSet::new());
        Self { account, chain, sha256, next_seq, frames: 0, closed: false, repeated: 0, rules, damage: None }
    }

    fn damaged(&mut self, what: &'static str) {
        self.damage.get_or_insert(Text::from_static(what));
    }

    fn all(&mut self, file: File) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(256 * 1024, file);
        let (mut line, mut read) = (Vec::new(), 0);
        loop {
            let line = match bounded_line(&mut reader, &mut line) {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(()),
                Err(e) if passes(&e) => return Err(e),
                Err(e) => {
                    let long = e.kind() == io::ErrorKind::InvalidData;
                    self.damaged(if long { "a line of the journal is too long" } else { "the journal cannot be read" });
                    return Ok(());
                }
            };
            read += line.len() as u64;
            if read > LONGEST {
                self.damaged("the journal is too long to be read");
                return Ok(());
            }
            self.sha256.update(line);
            self.line(line);
        }
    }

    fn line(&mut self, line: &[u8]) {
        let text = line.strip_suffix(b"\n").and_then(|l| std::str::from_utf8(l).ok());
        let Some((text, record)) = text.and_then(|t| Some((t, Record::parse(t).ok()?))) else {
            return self.damaged("a line of the journal does not read");
        };
        self.chain.push(text);
        self.frames += 1;
        self.closed = matches!(record.what, RecordContent::Frame(Frame::Closed { .. }));
        let due = record.seq == self.next_seq;
        self.next_seq = record.seq.saturating_add(1);
        match &record.what {
            _ if !due => self.damaged("a line of the journal has another number than is due"),
            RecordContent::Frame(frame) if !self.believable(frame, line.len() as u64) => {
                self.damaged("a line of the journal says what cannot be");
            }
            _ => self.account.apply(&record),
        }
    }

    /// Whether what a frame says can be taken over: its numbers can be added up, its names are names of files here, and a
    /// receipt has room for it.
    fn believable(&mut self, frame: &Frame, length: u64) -> bool {
        match frame {
            Frame::Output { offset, len, .. } | Frame::Gap { offset, bytes: len, .. } => {
                offset.checked_add(*len).is_some()
            }
            Frame::StdinWritten { bytes, .. } => *bytes < COUNTED,
            Frame::CleanupCompleted { ended, .. } => *ended < COUNTED,
            Frame::Closed { streams, .. } => streams.values().all(|s| s.bytes.checked_add(s.dropped).is_some()),
            Frame::Redacted { rule, count, .. } => {
                *count < COUNTED && (self.rules.contains(rule) || self.rules.len() < RULES) && {
                    self.rules.insert(rule.clone());
                    true
                }
            }
            Frame::ArtifactStored { artifact, .. } => is_name(artifact.as_str()) && self.has_room(length),
            Frame::LimitReached { .. } | Frame::Killed { .. } | Frame::WriteDetected { .. } => self.has_room(length),
            _ => true,
        }
    }

    fn has_room(&mut self, length: u64) -> bool {
        self.repeated += length;
        self.repeated <= REPEATED
    }
}

/// Whether this names a file of a task's directory, that of its decisions apart: one plain component of a path.
pub(crate) fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | ".." | ReceiptSubject::DECISIONS) && !name.contains(['/', '\0'])
}

/// SHA-256 of a file, and its length.
pub fn digest_of(path: &Path) -> io::Result<(Digest, u64)> {
    digest_of_open(&regular(path)?)
}

/// The same of one that is not longer than what is read of a journal: a file with a hole in it may have any length.
pub(crate) fn digest_of_some(path: &Path) -> io::Result<(Digest, u64)> {
    let file = regular(path)?;
    match file.metadata()?.len() > LONGEST {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => digest_of_open(&file),
    }
}

/// The same of one that is open, from its beginning, as far as it goes now: one that grows has no digest.
pub fn digest_of_open(mut file: &File) -> io::Result<(Digest, u64)> {
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

/// More tasks than this are put on the disk by one call for all of its file system: each file by itself would make whatever
/// else is written there wait as often.
const FEW: usize = 2;

/// Has everything that tasks have left put on the disk.
pub fn sync(home: &Home, tasks: &[TaskId]) -> io::Result<()> {
    if tasks.len() > FEW {
        return Ok(rustix::fs::syncfs(&File::open(home.tasks())?)?);
    }
    for task in tasks {
        sync_one(&home.task_dir(*task))?;
    }
    Ok(())
}

/// What is no file cannot be synced, and what cannot be opened is found when it is read.
fn sync_one(dir: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if passes(&e) => return Err(e),
        // It never had one, or something else stands there.
        Err(_) => return Ok(()),
    };
    for entry in entries {
        match regular(&entry?.path()) {
            Ok(file) => file.sync_data()?,
            Err(e) if passes(&e) => return Err(e),
            Err(_) => {}
        }
    }
    File::open(dir)?.sync_all()?;
    match dir.parent() {
        Some(shard) => File::open(shard)?.sync_all(),
        None => Ok(()),
    }
}
