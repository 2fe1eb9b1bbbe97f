//! One output stream on its way from the child to the disk: read, redact, cut into chunks, write, digest.
//!
//! Beyond its limit a stream is still redacted and shown on the screen, but only its last bytes are kept, in memory.
//! They are written when the stream ends.

use crate::{
    feeder::{FeedResult, Feeder},
    terminal::Screen,
};
use countersign_model::{Clean, Frame, StreamName, StreamTotal};
use countersign_redact::{Chunk, Finding, MAX_CHUNK_BYTES, Mask, Scrubber, Tail};
use countersign_store::{
    clock,
    journal::JournalWriter,
    output::{OutputAppender, chunk_digest},
};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use sha2::{Digest as _, Sha256};
use std::{
    io,
    path::Path,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// A chunk is cut this long after its first byte.
const CUT_AFTER: Duration = Duration::from_millis(20);
/// How often a terminal that every process has closed is checked: the kernel sends no event when one opens it again.
const REOPEN_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// More reads than a full pipe needs, however small they are.
const MAX_DRAIN_READS: usize = 512;
/// A longer stream is digested, and a terminal read, on a thread of its own.
const LARGE_STREAM_BYTES: u64 = 1024 * 1024;

pub(crate) struct OutputStream {
    name: StreamName,
    pipe: Option<OwnedFd>,
    /// Reads the pipe on a thread, once a terminal has printed much.
    feeder: Option<Feeder>,
    scrubber: Scrubber,
    appender: OutputAppender,
    digest: StreamDigest,
    first_byte: Option<Instant>,
    last_byte: Option<Instant>,
    /// A chunk that the disk did not take in full, and how many bytes it took.
    unwritten: Option<(Clean<Chunk>, usize)>,
    found: Vec<Finding>,
    /// How many bytes are kept from the beginning; beyond that, `tail` holds the last ones.
    limit: u64,
    tail: Option<Tail>,
    dropped: u64,
    /// Redactions beyond the limit, by rule.
    tail_redactions: Vec<(Finding, u64)>,
    /// The screen of the terminal after everything that was cut.
    pub(crate) screen: Option<Screen>,
    /// No process has the terminal open; it is checked again at this time.
    hung_until: Option<Instant>,
    /// The main process has ended, and with it the session that could open the terminal again.
    hung_up: bool,
    /// The disk did not take the output: nothing more is read, cut or written.
    abandoned: bool,
}

/// The result of one read.
#[derive(Debug, PartialEq)]
pub(crate) enum ReadResult {
    Bytes,
    Nothing,
    /// No process has the terminal open; one of its session may open it again.
    HungUp,
    End,
}

impl OutputStream {
    pub(crate) fn new(name: StreamName, pipe: OwnedFd, mask: Arc<Mask>, limit: u64, screen: Option<Screen>) -> Self {
        Self::with_source(name, Some(pipe), mask, limit, screen)
    }

    fn with_source(
        name: StreamName,
        pipe: Option<OwnedFd>,
        mask: Arc<Mask>,
        limit: u64,
        screen: Option<Screen>,
    ) -> Self {
        Self {
            limit,
            tail: None,
            dropped: 0,
            tail_redactions: Vec::new(),
            screen,
            hung_until: None,
            name,
            pipe,
            feeder: None,
            scrubber: Scrubber::new(mask),
            appender: OutputAppender::new(),
            digest: StreamDigest::default(),
            first_byte: None,
            last_byte: None,
            unwritten: None,
            found: Vec::new(),
            hung_up: false,
            abandoned: false,
        }
    }

    /// A stream that only the shim itself writes.
    pub(crate) fn without_pipe(name: StreamName, mask: Arc<Mask>, limit: u64) -> Self {
        Self::with_source(name, None, mask, limit, None)
    }

    /// Writes all of the bytes and ends the stream.
    pub(crate) fn write_all(&mut self, mut bytes: &[u8], journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
        while !bytes.is_empty() {
            let n = bytes.len().min(self.scrubber.input_buffer().len());
            self.scrubber.input_buffer()[..n].copy_from_slice(&bytes[..n]);
            self.note_fed(n);
            bytes = &bytes[n..];
            self.cut_full_chunks(journal, dir)?;
        }
        self.end_reading();
        self.cut_all(journal, dir)
    }

    /// The descriptor to poll, while the stream is open and is read: a full disk stops the reading, and so blocks the
    /// child.
    pub(crate) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        let hung = self.hung_until.is_some_and(|until| clock::steady() < until);
        if self.unwritten.is_some() || hung {
            return None;
        }
        let fed = self.feeder.as_ref().map(Feeder::fd);
        fed.filter(|_| self.pipe.is_some()).or(self.pipe.as_ref().map(|p| p.as_fd()))
    }

    /// Whether the limit is reached, so that only the last bytes are kept from here on.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.tail.is_some()
    }

    /// How many bytes of the stream have been cut.
    pub(crate) fn cut_offset(&self) -> u64 {
        self.scrubber.emitted_bytes()
    }

    /// Replaces the mask, for output from here on.
    pub(crate) fn set_mask(&mut self, mask: &Arc<Mask>) {
        self.scrubber.replace_mask(Arc::clone(mask));
    }

    /// The secrets that the stream has shown for the first time since the last call.
    pub(crate) fn take_learned(&mut self) -> Vec<String> {
        self.scrubber.take_learned()
    }

    /// The main process has ended, and the kernel has hung up the terminal of its session: no process can write to it
    /// or open it again.
    pub(crate) fn hang_up(&mut self) {
        self.hung_until = None;
        self.hung_up = self.name == StreamName::Pty;
        if let Some(feeder) = &self.feeder {
            feeder.finish_reading();
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    pub(crate) fn has_unwritten(&self) -> bool {
        self.unwritten.is_some()
    }

    /// Whether nothing waits to be cut.
    pub(crate) fn is_quiet(&self) -> bool {
        self.first_byte.is_none()
    }

    pub(crate) fn name(&self) -> StreamName {
        self.name
    }

    /// Reads once.
    pub(crate) fn read(&mut self) -> io::Result<ReadResult> {
        let Some(pipe) = &self.pipe else { return Ok(ReadResult::End) };
        if let Some(feeder) = &mut self.feeder {
            return Ok(match feeder.read_into(self.scrubber.input_buffer()) {
                FeedResult::Bytes(n) => self.note_fed(n),
                FeedResult::Nothing => ReadResult::Nothing,
                FeedResult::End => self.end_reading(),
            });
        }
        match rustix::io::read(pipe, self.scrubber.input_buffer()) {
            Ok(0) => Ok(self.end_reading()),
            Ok(n) => Ok(self.note_fed(n)),
            // A terminal returns EIO when no process has its other end open. After the hang-up of its session nothing
            // more can come, even if a process still has it open.
            Err(rustix::io::Errno::IO | rustix::io::Errno::AGAIN) if self.hung_up => Ok(self.end_reading()),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                // A process has it open again, and has not written.
                self.hung_until = None;
                Ok(ReadResult::Nothing)
            }
            Err(rustix::io::Errno::IO) if self.name == StreamName::Pty => {
                self.hung_until = Some(clock::steady() + REOPEN_CHECK_INTERVAL);
                Ok(ReadResult::HungUp)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn note_fed(&mut self, n: usize) -> ReadResult {
        self.hung_until = None;
        self.scrubber.accept_input(n);
        let now = clock::steady();
        self.last_byte = Some(now);
        self.first_byte.get_or_insert(now);
        // If no thread can be started, the loop keeps reading.
        if self.feeder.is_none()
            && self.name == StreamName::Pty
            && !self.hung_up
            && self.scrubber.emitted_bytes() > LARGE_STREAM_BYTES
            && let Some(Ok(terminal)) = self.pipe.as_ref().map(OwnedFd::try_clone)
        {
            self.feeder = Feeder::start(terminal).ok();
        }
        ReadResult::Bytes
    }

    fn end_reading(&mut self) -> ReadResult {
        self.pipe = None;
        self.feeder = None;
        self.scrubber.finish();
        ReadResult::End
    }

    /// Reads what is in the pipe without waiting, then closes it.
    pub(crate) fn drain(&mut self, journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
        if let Some(feeder) = &self.feeder {
            feeder.finish_reading();
        }
        // Bounded: a process outside of the task may hold the pipe open and keep writing.
        for _ in 0..MAX_DRAIN_READS {
            if self.poll_fd().is_none() {
                break;
            }
            match self.read()? {
                ReadResult::Bytes => self.cut_full_chunks(journal, dir)?,
                // The reading thread has not handed over everything yet.
                ReadResult::Nothing if self.feeder.as_ref().is_some_and(Feeder::wait_for_more) => {}
                _ => break,
            }
        }
        self.end_reading();
        self.cut_all(journal, dir)?;
        self.write_tail(journal, dir)
    }

    /// Cuts full chunks only.
    pub(crate) fn cut_full_chunks(&mut self, journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
        while self.unwritten.is_some() || self.scrubber.ready_bytes() >= MAX_CHUNK_BYTES {
            if !self.cut_chunk(journal, dir, false)? {
                break;
            }
        }
        Ok(())
    }

    /// Cuts everything that is redacted, before a control operation or at the end of the stream.
    pub(crate) fn cut_all(&mut self, journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
        let end = self.pipe.is_none();
        while self.cut_chunk(journal, dir, end)? {}
        // Bytes that may begin a secret, or an incomplete character, are released later if nothing else comes.
        let left = !end && self.scrubber.held_bytes() + self.scrubber.ready_bytes() > 0;
        self.first_byte = self.last_byte.filter(|_| left);
        Ok(())
    }

    /// Cuts everything without waiting, held bytes included: a user is typing and waits for the echo.
    pub(crate) fn cut_now(&mut self, journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
        self.scrubber.flush_echo();
        while self.cut_chunk(journal, dir, false)? {}
        // An incomplete character waits as usual.
        if self.scrubber.ready_bytes() == 0 {
            self.first_byte = None;
        }
        Ok(())
    }

    /// When [`Self::cut_due`] has something to cut, or a closed terminal is checked again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let cut = self.first_byte.map(|first| first + CUT_AFTER);
        cut.into_iter().chain(self.hung_until.filter(|_| self.pipe.is_some())).min()
    }

    /// Cuts what has waited long enough. If nothing new has come for that long, held bytes are released too.
    pub(crate) fn cut_due(&mut self, journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
        let now = clock::steady();
        if self.first_byte.is_none_or(|first| now < first + CUT_AFTER) || self.has_unwritten() {
            return Ok(());
        }
        let quiet = self.last_byte.is_some_and(|last| now >= last + CUT_AFTER);
        if quiet {
            self.scrubber.flush();
        }
        while self.cut_chunk(journal, dir, quiet)? {}
        // Bytes that are still held are cut at the next deadline.
        self.first_byte = self.last_byte.filter(|_| !quiet);
        Ok(())
    }

    /// Cuts one chunk, if there is one: writes it to the file, then pushes its frame.
    fn cut_chunk(&mut self, journal: &mut JournalWriter, dir: &Path, all: bool) -> io::Result<bool> {
        if self.abandoned {
            return Ok(false);
        }
        let (chunk, mut written) = match self.unwritten.take() {
            Some(stuck) => stuck,
            None => match self.scrubber.take_chunk(all) {
                Some(chunk) => (chunk, 0),
                None => return Ok(false),
            },
        };
        self.found.append(&mut self.scrubber.take_findings());
        let offset = self.appender.offset();
        let len = chunk.as_ref().len();
        let room = usize::try_from(self.limit.saturating_sub(offset)).unwrap_or(usize::MAX);
        let kept_len = if self.tail.is_some() { 0 } else { len.min(room) };
        if kept_len > 0
            && let Err(e) = self.appender.append(dir, self.name, &chunk, &mut written, kept_len)
        {
            self.unwritten = Some((chunk, written));
            return Err(e);
        }
        if let Some(screen) = &mut self.screen {
            screen.feed(chunk.as_ref());
        }
        if kept_len > 0 {
            let digest = chunk_digest(&chunk.as_ref()[..kept_len]);
            journal.push(&Frame::Output { stream: self.name, offset, len: kept_len as u64, digest });
        }
        if kept_len < len {
            self.tail.get_or_insert_default().push(&chunk, kept_len);
        }
        self.note_redactions(journal, self.scrubber.emitted_bytes());
        if kept_len == len {
            self.digest.update(chunk, offset + len as u64, &mut self.scrubber);
        } else {
            self.digest.join_thread().update(&chunk.as_ref()[..kept_len]);
            self.scrubber.recycle(chunk.into_inner());
        }
        Ok(true)
    }

    /// Writes the last bytes that were kept, after a gap with the count of the bytes that were dropped.
    fn write_tail(&mut self, journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
        let Some(tail) = self.tail.take() else { return Ok(()) };
        let (dropped, pieces) = tail.finish();
        if dropped > 0 {
            journal.push(&Frame::Gap { stream: self.name, offset: self.appender.offset(), bytes: dropped });
            self.dropped = dropped;
        }
        for piece in pieces {
            let (offset, len) = (self.appender.offset() + dropped, piece.as_ref().len());
            self.appender.append(dir, self.name, &piece, &mut 0, len)?;
            let digest = chunk_digest(piece.as_ref());
            journal.push(&Frame::Output { stream: self.name, offset, len: len as u64, digest });
            self.digest.join_thread().update(piece.as_ref());
        }
        for (Finding { rule, offset }, count) in std::mem::take(&mut self.tail_redactions) {
            let rule = countersign_redact::rule_name(&rule);
            journal.push(&Frame::Redacted { stream: self.name, offset, rule, count });
        }
        Ok(())
    }

    /// Records redactions in what has been written, one frame for each rule and chunk.
    fn note_redactions(&mut self, journal: &mut JournalWriter, written: u64) {
        let later = self.found.iter().position(|f| f.offset >= written).unwrap_or(self.found.len());
        let mut counted: Vec<(Finding, u64)> = Vec::new();
        for found in self.found.drain(..later) {
            match counted.iter_mut().find(|(first, _)| first.rule == found.rule) {
                Some((_, count)) => *count += 1,
                None => counted.push((found, 1)),
            }
        }
        if self.tail.is_some() {
            // Beyond the limit, one frame for each rule at the end: endless output must not fill the journal.
            for (found, count) in counted {
                match self.tail_redactions.iter_mut().find(|(first, _)| first.rule == found.rule) {
                    Some((_, total)) => *total += count,
                    None => self.tail_redactions.push((found, count)),
                }
            }
            return;
        }
        for (Finding { rule, offset }, count) in counted {
            let rule = countersign_redact::rule_name(&rule);
            journal.push(&Frame::Redacted { stream: self.name, offset, rule, count });
        }
    }

    /// Drops what the disk did not take, and truncates the file to what the frames cover.
    pub(crate) fn abandon(&mut self, dir: &Path) {
        self.unwritten = None;
        self.pipe = None;
        self.feeder = None;
        self.abandoned = true;
        if let Ok(file) = std::fs::OpenOptions::new().write(true).open(dir.join(self.name.file())) {
            let _ = file.set_len(self.appender.offset());
        }
    }

    pub(crate) fn total(self) -> StreamTotal {
        StreamTotal { bytes: self.appender.offset(), dropped: self.dropped, sha256: self.digest.finish() }
    }
}

/// The digest of the whole stream: computed in the loop while the stream is short, on a thread once it is long, so that
/// hashing, redacting and writing use two cores.
#[derive(Default)]
struct StreamDigest {
    /// The state of the hash while no thread has it.
    local: Sha256,
    thread: Option<DigestThread>,
}

struct DigestThread {
    to: mpsc::SyncSender<Clean<Chunk>>,
    recycled: mpsc::Receiver<Chunk>,
    thread: JoinHandle<Sha256>,
}

impl StreamDigest {
    fn update(&mut self, chunk: Clean<Chunk>, total: u64, scrubber: &mut Scrubber) {
        if self.thread.is_none() && total > LARGE_STREAM_BYTES {
            // If no thread can be started (the task may have used them all up), the loop keeps hashing.
            self.thread = DigestThread::start(self.local.clone()).ok();
        }
        match &self.thread {
            None => {
                self.local.update(chunk.as_ref());
                scrubber.recycle(chunk.into_inner());
            }
            Some(DigestThread { to, recycled, .. }) => {
                // Bounded: when hashing falls behind, the loop waits, and so does the child.
                to.send(chunk).expect("the hashing thread lives until its sender is dropped");
                if let Ok(chunk) = recycled.try_recv() {
                    scrubber.recycle(chunk);
                }
            }
        }
    }

    /// Ends the thread, if there is one, and takes back the state of the hash.
    fn join_thread(&mut self) -> &mut Sha256 {
        if let Some(DigestThread { to, thread, .. }) = self.thread.take() {
            drop(to);
            self.local = thread.join().expect("hashing does not panic");
        }
        &mut self.local
    }

    fn finish(mut self) -> countersign_model::Digest {
        countersign_model::Digest::from_bytes(std::mem::take(self.join_thread()).finalize().into())
    }
}

impl DigestThread {
    fn start(mut sha: Sha256) -> io::Result<Self> {
        let (to, chunks) = mpsc::sync_channel::<Clean<Chunk>>(2);
        let (recycle, recycled) = mpsc::sync_channel(4);
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            for chunk in chunks {
                sha.update(chunk.as_ref());
                let _ = recycle.try_send(chunk.into_inner());
            }
            sha
        });
        Ok(Self { to, recycled, thread: thread? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    #[test]
    fn a_reopened_terminal_is_polled_instead_of_checked_on_a_timer() {
        let (terminal, slave) = crate::terminal::Terminal::open(24, 80).unwrap();
        let mut output = OutputStream::new(
            StreamName::Pty,
            terminal.duplicate_master().unwrap(),
            Arc::new(Mask::without_values()),
            1000,
            None,
        );
        drop(slave);
        assert_eq!(output.read().unwrap(), ReadResult::HungUp);
        assert!(output.deadline().is_some() && output.poll_fd().is_none());
        let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
        let _again = rustix::pty::ioctl_tiocgptpeer(terminal.duplicate_master().unwrap(), flags).unwrap();
        assert_eq!(output.read().unwrap(), ReadResult::Nothing);
        assert!(output.deadline().is_none() && output.poll_fd().is_some());
    }

    /// `seen` may be the beginning of a token, and `n` that of a known value; nothing follows, and a control operation cuts in between.
    #[test]
    fn bytes_held_at_a_cut_are_released_later() {
        let dir = tempfile::tempdir().unwrap();
        let task = "tk_01m7h4jys3gnc16h".parse().unwrap();
        let mut journal = JournalWriter::create(dir.path(), task, countersign_model::Digest::sha256(&[]), 0).unwrap();
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let mask = Arc::new(Mask::without_values().with_values(&["nothing-else".to_owned()]));
        let mut output = OutputStream::new(StreamName::Pty, read, mask, 1000, Some(Screen::new(24, 80)));
        rustix::io::write(&write, b"as seen").unwrap();
        assert_eq!(output.read().unwrap(), ReadResult::Bytes);
        output.cut_all(&mut journal, dir.path()).unwrap();
        assert_eq!(output.cut_offset(), 3, "the last word waits");
        let due = output.deadline().expect("and is cut later");
        std::thread::sleep(due.saturating_duration_since(clock::steady()));
        output.cut_due(&mut journal, dir.path()).unwrap();
        assert_eq!((output.cut_offset(), output.deadline()), (7, None));
    }
}
