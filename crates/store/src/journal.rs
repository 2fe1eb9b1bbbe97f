//! Journals: append-only and chained, with a single writer. The writer holds a lock on the file while it lives, so that
//! others can tell a living shim from a dead one without a pid.

use crate::{clock, output::open_regular, proc};
use countersign_model::{Digest, Frame, HashChain, JournalEnd, Outcome, Record, RecordContent, StreamTotals, TaskId};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock};
use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
    time::Instant,
};

/// The name of a journal in its task's directory.
pub const JOURNAL_FILE: &str = "journal";
/// Disk space that is always reserved for the last frames, so that a full disk can still be recorded.
const RESERVED_BYTES: u64 = 16 * 1024;

/// The only writer of a journal.
pub struct JournalWriter {
    file: File,
    chain: HashChain,
    first_seq: u64,
    next_seq: u64,
    began: Instant,
    lines: Vec<u8>,
    written: u64,
    reserved: u64,
}

impl JournalWriter {
    /// Creates the journal exclusively: a second launch of the same order fails here.
    pub fn create(dir: &Path, task: TaskId, prologue: Digest, first_seq: u64) -> io::Result<Self> {
        Self::begin(create_locked(dir)?, task, prologue, first_seq)
    }

    /// Like [`Self::create`], with a file that [`unnamed_locked`] made in the same file system.
    pub fn create_from(file: File, dir: &Path, task: TaskId, prologue: Digest, first_seq: u64) -> io::Result<Self> {
        name_journal(&file, dir)?;
        Self::begin(file, task, prologue, first_seq)
    }

    fn begin(file: File, task: TaskId, prologue: Digest, first_seq: u64) -> io::Result<Self> {
        let mut writer = Self {
            file,
            chain: HashChain::for_journal(task, prologue),
            first_seq,
            next_seq: first_seq,
            began: clock::steady(),
            lines: Vec::new(),
            written: 0,
            reserved: 0,
        };
        writer.reserve()?;
        Ok(writer)
    }

    /// Adds a frame. It reaches the file with the next [`JournalWriter::write`].
    pub fn push(&mut self, frame: &Frame) -> u64 {
        let seq = self.next_seq;
        let t_us = u64::try_from(clock::steady().duration_since(self.began).as_micros()).unwrap_or(u64::MAX);
        let line = Record::frame_line(seq, clock::now(), t_us, frame);
        self.chain.push_line(&line);
        self.lines.extend_from_slice(line.as_bytes());
        self.lines.push(b'\n');
        self.next_seq += 1;
        seq
    }

    /// Writes the added frames to the file.
    pub fn write(&mut self) -> io::Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        self.flush_lines()?;
        self.reserve()
    }

    /// Writes the buffered lines. Bytes that have been written are removed from `lines` even if the rest fails.
    fn flush_lines(&mut self) -> io::Result<()> {
        while !self.lines.is_empty() {
            match self.file.write(&self.lines) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.lines.drain(..n);
                    self.written += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes the last frame. Returns the end, and the journal, which gives its reserved space back when it is dropped:
    /// nobody needs to wait for that.
    pub fn close(mut self, outcome: Outcome, streams: StreamTotals) -> io::Result<(JournalEnd, FinishedJournal)> {
        let frames = self.next_seq - self.first_seq + 1;
        self.push(&Frame::Closed { outcome: outcome.clone(), frames, streams });
        self.flush_lines()?;
        let end = JournalEnd { outcome, head: self.chain.head(), next_seq: self.next_seq };
        Ok((end, FinishedJournal { file: self.file, len: self.written }))
    }

    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The time since the journal began, which is when the child was spawned.
    pub fn elapsed(&self) -> std::time::Duration {
        clock::steady().duration_since(self.began)
    }

    fn reserve(&mut self) -> io::Result<()> {
        if self.written + RESERVED_BYTES <= self.reserved {
            return Ok(());
        }
        let (from, len) = (self.reserved, self.written + 2 * RESERVED_BYTES - self.reserved);
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, from, len) {
            Ok(()) => {
                self.reserved = from + len;
                Ok(())
            }
            // The file system has no reservations: nothing can be guaranteed.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                self.reserved = u64::MAX - RESERVED_BYTES;
                Ok(())
            }
            Err(e) if self.reserved == 0 => Err(e.into()),
            // The disk filled up after the launch; the space reserved earlier is still available.
            Err(_) => Ok(()),
        }
    }
}

/// A journal with its last frame.
#[must_use = "the space that it reserved is given back when it is dropped"]
pub struct FinishedJournal {
    file: File,
    len: u64,
}

impl Drop for FinishedJournal {
    fn drop(&mut self) {
        // The journal is complete even if this fails.
        let _ = self.file.set_len(self.len);
    }
}

/// Writes a small file beside the journal, completely or not at all.
pub fn write_beside(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let fresh = dir.join(format!(".{name}"));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut file = File::from(rustix::fs::open(&fresh, flags, Mode::RUSR | Mode::WUSR)?);
    let put = file.write_all(bytes).and_then(|()| std::fs::rename(&fresh, dir.join(name)));
    if put.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
    put
}

/// Creates the journal's file if it does not exist, and locks it. After a crash the new daemon does this first, so that
/// a late shim finds the name taken and stops. The name appears with the lock already held, so that every reader can
/// tell whether the journal has a writer.
pub fn create_locked(dir: &Path) -> io::Result<File> {
    match unnamed_locked(dir)? {
        Some(file) => name_journal(&file, dir).map(|()| file),
        None => create_locked_by_link(dir),
    }
}

/// A file for a journal, locked and without a name yet. None if the file system has no unnamed files.
pub fn unnamed_locked(dir: &Path) -> io::Result<Option<File>> {
    use rustix::io::Errno;
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::TMPFILE | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(Some(file.into()))
        }
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Makes an unnamed file the journal of a task, unless it has one.
fn name_journal(file: &File, dir: &Path) -> io::Result<()> {
    let named = rustix::fs::linkat(CWD, proc::own_file(file), CWD, dir.join(JOURNAL_FILE), AtFlags::SYMLINK_FOLLOW);
    Ok(named?)
}

fn create_locked_by_link(dir: &Path) -> io::Result<File> {
    let fresh = dir.join(format!(".{JOURNAL_FILE}.{}", std::process::id()));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = File::from(rustix::fs::open(&fresh, flags, Mode::RUSR | Mode::WUSR)?);
    let taken = flock(&file, FlockOperation::NonBlockingLockExclusive)
        .and_then(|()| rustix::fs::link(&fresh, dir.join(JOURNAL_FILE)));
    let _ = std::fs::remove_file(&fresh);
    taken?;
    Ok(file)
}

/// The first read of a journal. That of a short task is not longer.
const FIRST_READ_BYTES: usize = 4096;

/// The maximum length of a line. Real records are far shorter.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

fn unterminated_line() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a line of the journal has no end")
}

/// The journal, locked, if it has no writer; none while its writer lives.
pub fn take_over(dir: &Path) -> io::Result<Option<File>> {
    if !std::fs::symlink_metadata(dir.join(JOURNAL_FILE))?.is_file() {
        // Something else has its name: it is renamed, and nothing is known about the task.
        std::fs::rename(dir.join(JOURNAL_FILE), dir.join("journal.odd"))?;
        return create_locked(dir).map(Some);
    }
    let file = rustix::fs::open(
        dir.join(JOURNAL_FILE),
        OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK,
        Mode::empty(),
    )?;
    let file = File::from(file);
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The content of a journal after its writer has ended.
#[derive(Debug)]
pub struct ClosedJournal {
    /// Set if the journal was closed properly.
    pub closing: Option<JournalEnd>,
    pub head: Digest,
    pub next_seq: u64,
    /// Bytes of an incomplete last line that were cut off.
    pub torn: u64,
    /// What cannot be read, if more than the last line is damaged. It was moved to `journal.damaged`.
    pub damage: Option<String>,
}

/// Reads a journal after [`take_over`], cuts off what cannot be read, and returns how it ended.
pub fn recover(file: &File, dir: &Path, task: TaskId, prologue: Digest, first_seq: u64) -> io::Result<ClosedJournal> {
    let mut chain = HashChain::for_journal(task, prologue);
    let (mut next_seq, mut whole, mut closing, mut damage) = (first_seq, 0, None, None);
    let mut reader = BufReader::with_capacity(256 * 1024, file);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        (&mut reader).take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut bytes)?;
        // An incomplete line has no newline, or ends inside a character.
        let Some(line) = bytes.strip_suffix(b"\n") else { break };
        let record = std::str::from_utf8(line).ok().and_then(|text| Some((text, Record::parse(text).ok()?)));
        let (text, record) = match record {
            Some((text, record)) if record.seq == next_seq => (text, record),
            _ => {
                damage = Some(format!("line {} of the journal is not record {next_seq}", next_seq - first_seq + 1));
                break;
            }
        };
        chain.push_line(text);
        next_seq += 1;
        whole += bytes.len() as u64;
        if let RecordContent::Frame(Frame::Closed { outcome, .. }) = record.what {
            closing = Some(JournalEnd { outcome, head: chain.head(), next_seq });
        }
    }
    let torn = file.metadata()?.len().saturating_sub(whole);
    if damage.is_some() {
        let mut rest = File::create(dir.join("journal.damaged"))?;
        let mut from = file;
        from.seek(SeekFrom::Start(whole))?;
        io::copy(&mut from, &mut rest)?;
    }
    // Also gives back the space that its writer had reserved.
    file.set_len(whole)?;
    Ok(ClosedJournal { closing, head: chain.head(), next_seq, torn, damage })
}

/// Reads a journal from a record number on, while it grows.
pub struct JournalReader {
    file: File,
    /// The offset of the next unread line.
    at: u64,
    next_seq: u64,
    buf: Vec<u8>,
}

impl JournalReader {
    pub fn open(dir: &Path, first_seq: u64) -> io::Result<Self> {
        Ok(Self { file: open_regular(&dir.join(JOURNAL_FILE))?, at: 0, next_seq: first_seq, buf: Vec::new() })
    }

    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Skips to `seq`, or to the end of the journal. Lines are numbered without gaps, so counting is enough.
    pub fn skip_to(&mut self, seq: u64) -> io::Result<()> {
        let mut buf = Vec::new();
        while self.next_seq < seq {
            if buf.is_empty() {
                buf.resize(64 * 1024, 0);
            }
            let n = self.file.read_at(&mut buf, self.at)?;
            if n == 0 {
                return Ok(());
            }
            let before = self.next_seq;
            for end in memchr::memchr_iter(b'\n', &buf[..n]) {
                self.next_seq += 1;
                if self.next_seq == seq {
                    self.at += end as u64 + 1;
                    return Ok(());
                }
            }
            match memchr::memrchr(b'\n', &buf[..n]) {
                Some(last) => self.at += last as u64 + 1,
                None if buf.len() >= MAX_LINE_BYTES => return Err(unterminated_line()),
                None if self.next_seq == before && n == buf.len() => buf.resize(buf.len() * 2, 0),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// The complete lines that exist, up to about `max` bytes, each with its number. Empty if there are none yet.
    pub fn lines(&mut self, max: usize) -> io::Result<Vec<(u64, String)>> {
        let mut want = max;
        loop {
            let read = self.read_unread(want)?;
            match memchr::memrchr(b'\n', &self.buf[..read]) {
                Some(last) => {
                    let whole = &self.buf[..=last];
                    self.at += whole.len() as u64;
                    let lines = whole.split(|b| *b == b'\n').filter(|l| !l.is_empty());
                    let first = self.next_seq;
                    let lines: Vec<_> =
                        lines.zip(first..).map(|(l, seq)| (seq, String::from_utf8_lossy(l).into_owned())).collect();
                    self.next_seq += lines.len() as u64;
                    return Ok(lines);
                }
                // The line is longer than `max`: read more until it ends.
                None if read >= MAX_LINE_BYTES => return Err(unterminated_line()),
                None if read >= want => want = read * 2,
                None => return Ok(Vec::new()),
            }
        }
    }

    /// Reads what follows the lines that were read, at most `want` bytes; returns how many. Most journals are short, so
    /// the buffer begins small.
    fn read_unread(&mut self, want: usize) -> io::Result<usize> {
        let mut read = 0;
        while read < want {
            if read == self.buf.len() {
                self.buf.resize((read * 2).max(FIRST_READ_BYTES), 0);
            }
            let space = self.buf.len().min(want) - read;
            match self.file.read_at(&mut self.buf[read..read + space], self.at + read as u64) {
                Ok(n) => read += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            // A short read of a file ends where the file does.
            if read < self.buf.len().min(want) {
                break;
            }
        }
        Ok(read)
    }
}
