//! One output stream on its way from the child to the disk: read, clean, cut, write, digest.
//!
//! Beyond its limit a stream is cleaned and shown as before, but only its last bytes are kept, in memory; they follow
//! when it ends.

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
/// Nobody tells us when a terminal that was closed by all is opened again: this often it is looked at.
const HUNG: Duration = Duration::from_millis(20);
/// More reads than a full pipe takes, however small they come out.
const DRAIN_READS: usize = 512;
/// Beyond this a stream gets a thread for its digest.
const LARGE: u64 = 1024 * 1024;

pub(crate) struct OutputStream {
    name: StreamName,
    pipe: Option<OwnedFd>,
    /// Reads the pipe for us, once a terminal has much to say.
    feeder: Option<Feeder>,
    scrubber: Scrubber,
    appender: OutputAppender,
    sha: StreamDigest,
    first_byte: Option<Instant>,
    last_byte: Option<Instant>,
    /// Clean bytes that the disk would not take, and how many it took.
    stuck: Option<(Clean<Chunk>, usize)>,
    found: Vec<Finding>,
    /// How much is kept from the beginning, and what is kept of the end once that is reached.
    limit: u64,
    tail: Option<Tail>,
    dropped: u64,
    /// Replacements behind the limit, by rule.
    behind: Vec<(Finding, u64)>,
    /// What a terminal shows after all that was cut.
    pub(crate) screen: Option<Screen>,
    /// Nobody has the terminal open; it is looked at again then.
    hung_until: Option<Instant>,
    /// The main process has ended, and with it the session that could open the terminal again.
    last_chance: bool,
    /// The disk did not take it: nothing more is read, cut or written.
    dead: bool,
}

/// What a read brought.
#[derive(Debug, PartialEq)]
pub(crate) enum ReadResult {
    Bytes,
    Nothing,
    /// The terminal is closed; whoever it belongs to may open it again.
    Hung,
    End,
}

impl OutputStream {
    pub(crate) fn new(name: StreamName, pipe: OwnedFd, mask: Arc<Mask>, limit: u64, screen: Option<Screen>) -> Self {
        Self::of(name, Some(pipe), mask, limit, screen)
    }

    fn of(name: StreamName, pipe: Option<OwnedFd>, mask: Arc<Mask>, limit: u64, screen: Option<Screen>) -> Self {
        Self {
            limit,
            tail: None,
            dropped: 0,
            behind: Vec::new(),
            screen,
            hung_until: None,
            name,
            pipe,
            feeder: None,
            scrubber: Scrubber::new(mask),
            appender: OutputAppender::new(),
            sha: StreamDigest::default(),
            first_byte: None,
            last_byte: None,
            stuck: None,
            found: Vec::new(),
            last_chance: false,
            dead: false,
        }
    }

    /// For what nobody writes into but we.
    pub(crate) fn without_pipe(name: StreamName, mask: Arc<Mask>, limit: u64) -> Self {
        Self::of(name, None, mask, limit, None)
    }

    /// All of it, to its end.
    pub(crate) fn put(&mut self, mut bytes: &[u8], journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
        while !bytes.is_empty() {
            let n = bytes.len().min(self.scrubber.input_buffer().len());
            self.scrubber.input_buffer()[..n].copy_from_slice(&bytes[..n]);
            self.fed(n);
            bytes = &bytes[n..];
            self.cut_full(journal, dir)?;
        }
        self.ended();
        self.cut_all(journal, dir)
    }

    /// The pipe, while it is open and we want more of it: a full disk stops the reading, and so the child.
    pub(crate) fn wants(&self) -> Option<BorrowedFd<'_>> {
        let hung = self.hung_until.is_some_and(|until| clock::steady() < until);
        if self.stuck.is_some() || hung {
            return None;
        }
        let fed = self.feeder.as_ref().map(Feeder::fd);
        fed.filter(|_| self.pipe.is_some()).or(self.pipe.as_ref().map(|p| p.as_fd()))
    }

    /// Whether the beginning is full, so that only the end is kept from here on.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.tail.is_some()
    }

    /// The end of the stream as far as it has been cut.
    pub(crate) fn end(&self) -> u64 {
        self.scrubber.emitted_bytes()
    }

    /// From here on a mask applies that knows more.
    pub(crate) fn learn(&mut self, mask: &Arc<Mask>) {
        self.scrubber.replace_mask(Arc::clone(mask));
    }

    /// The main process has ended, and the kernel has hung up the terminal that its session had: nobody can write to it
    /// any more, and nobody can open it again.
    pub(crate) fn hang_up(&mut self) {
        self.hung_until = None;
        self.last_chance = self.name == StreamName::Pty;
        if let Some(feeder) = &self.feeder {
            feeder.last_chance();
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.is_some()
    }

    /// Nothing waits to be cut.
    pub(crate) fn is_quiet(&self) -> bool {
        self.first_byte.is_none()
    }

    pub(crate) fn name(&self) -> StreamName {
        self.name
    }

    /// One read.
    pub(crate) fn read(&mut self) -> io::Result<ReadResult> {
        let Some(pipe) = &self.pipe else { return Ok(ReadResult::End) };
        if let Some(feeder) = &mut self.feeder {
            return Ok(match feeder.take(self.scrubber.input_buffer()) {
                FeedResult::Bytes(n) => self.fed(n),
                FeedResult::Nothing => ReadResult::Nothing,
                FeedResult::End => self.ended(),
            });
        }
        match rustix::io::read(pipe, self.scrubber.input_buffer()) {
            Ok(0) => Ok(self.ended()),
            Ok(n) => Ok(self.fed(n)),
            // All that a terminal says when nobody holds its other end. One that hung up with its session has nothing
            // more to come, whoever holds it.
            Err(rustix::io::Errno::IO | rustix::io::Errno::AGAIN) if self.last_chance => Ok(self.ended()),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                // Somebody has it open again, and says nothing.
                self.hung_until = None;
                Ok(ReadResult::Nothing)
            }
            Err(rustix::io::Errno::IO) if self.name == StreamName::Pty => {
                self.hung_until = Some(clock::steady() + HUNG);
                Ok(ReadResult::Hung)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn fed(&mut self, n: usize) -> ReadResult {
        self.hung_until = None;
        self.scrubber.accept_input(n);
        let now = clock::steady();
        self.last_byte = Some(now);
        self.first_byte.get_or_insert(now);
        // Where no thread can be had, the reading goes on here.
        if self.feeder.is_none()
            && self.name == StreamName::Pty
            && !self.last_chance
            && self.scrubber.emitted_bytes() > LARGE
            && let Some(Ok(terminal)) = self.pipe.as_ref().map(OwnedFd::try_clone)
        {
            self.feeder = Feeder::start(terminal).ok();
        }
        ReadResult::Bytes
    }

    fn ended(&mut self) -> ReadResult {
        self.pipe = None;
        self.feeder = None;
        self.scrubber.finish();
        ReadResult::End
    }

    /// Takes what is in the pipe without waiting, then closes it.
    pub(crate) fn drain(&mut self, journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
        if let Some(feeder) = &self.feeder {
            feeder.last_chance();
        }
        // Bounded: somebody outside may hold the pipe and write on.
        for _ in 0..DRAIN_READS {
            if self.wants().is_none() {
                break;
            }
            match self.read()? {
                ReadResult::Bytes => self.cut_full(journal, dir)?,
                // Whoever reads for us has not told all yet.
                ReadResult::Nothing if self.feeder.as_ref().is_some_and(Feeder::wait) => {}
                _ => break,
            }
        }
        self.ended();
        self.cut_all(journal, dir)?;
        self.put_tail(journal, dir)
    }

    /// Cuts whole chunks only.
    pub(crate) fn cut_full(&mut self, journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
        while self.stuck.is_some() || self.scrubber.ready_bytes() >= MAX_CHUNK_BYTES {
            if !self.cut(journal, dir, false)? {
                break;
            }
        }
        Ok(())
    }

    /// Cuts everything that is clean: a control operation, or the end of the stream.
    pub(crate) fn cut_all(&mut self, journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
        let end = self.pipe.is_none();
        while self.cut(journal, dir, end)? {}
        // What is still held, or the beginning of a character, is let go in its time, if nothing else comes.
        let left = !end && self.scrubber.held_bytes() + self.scrubber.ready_bytes() > 0;
        self.first_byte = self.last_byte.filter(|_| left);
        Ok(())
    }

    /// Cuts what is there although it is young, and lets go of what is held: somebody is typing and looks at it.
    pub(crate) fn cut_now(&mut self, journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
        self.scrubber.flush();
        while self.cut(journal, dir, false)? {}
        // A character that is not whole yet waits as usual.
        if self.scrubber.ready_bytes() == 0 {
            self.first_byte = None;
        }
        Ok(())
    }

    /// When [`Outlet::cut_due`] has something to do, or a closed terminal is looked at again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let cut = self.first_byte.map(|first| first + CUT_AFTER);
        cut.into_iter().chain(self.hung_until.filter(|_| self.pipe.is_some())).min()
    }

    /// Cuts what has waited long enough. When nothing has come for as long, held bytes are let go as well.
    pub(crate) fn cut_due(&mut self, journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
        let now = clock::steady();
        if self.first_byte.is_none_or(|first| now < first + CUT_AFTER) || self.is_stuck() {
            return Ok(());
        }
        let quiet = self.last_byte.is_some_and(|last| now >= last + CUT_AFTER);
        if quiet {
            self.scrubber.flush();
        }
        while self.cut(journal, dir, quiet)? {}
        // Bytes that are still held get a second look, once.
        self.first_byte = self.last_byte.filter(|_| !quiet);
        Ok(())
    }

    /// One chunk, if there is one: to the file, then its frame.
    fn cut(&mut self, journal: &mut JournalWriter, dir: &Path, all: bool) -> io::Result<bool> {
        if self.dead {
            return Ok(false);
        }
        let (chunk, mut done) = match self.stuck.take() {
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
        let kept = if self.tail.is_some() { 0 } else { len.min(room) };
        if kept > 0
            && let Err(e) = self.appender.append(dir, self.name, &chunk, &mut done, kept)
        {
            self.stuck = Some((chunk, done));
            return Err(e);
        }
        if let Some(screen) = &mut self.screen {
            screen.feed(chunk.as_ref());
        }
        if kept > 0 {
            let digest = chunk_digest(&chunk.as_ref()[..kept]);
            journal.push(&Frame::Output { stream: self.name, offset, len: kept as u64, digest });
        }
        if kept < len {
            self.tail.get_or_insert_default().push(&chunk, kept);
        }
        self.note_redactions(journal, self.scrubber.emitted_bytes());
        match kept == len {
            true => self.sha.update(chunk, offset + len as u64, &mut self.scrubber),
            false => {
                self.sha.settle().update(&chunk.as_ref()[..kept]);
                self.scrubber.recycle(chunk.into_inner());
            }
        }
        Ok(true)
    }

    /// What was kept of the end, with the count of what lies before it and was not.
    fn put_tail(&mut self, journal: &mut JournalWriter, dir: &Path) -> io::Result<()> {
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
            self.sha.settle().update(piece.as_ref());
        }
        for (Finding { rule, offset }, count) in std::mem::take(&mut self.behind) {
            let rule = countersign_redact::rule_name(&rule);
            journal.push(&Frame::Redacted { stream: self.name, offset, rule, count });
        }
        Ok(())
    }

    /// Replacements in what has been written, one frame for each rule and chunk.
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
            // One frame for each rule, at the end: a flood must not fill the journal.
            for (found, count) in counted {
                match self.behind.iter_mut().find(|(first, _)| first.rule == found.rule) {
                    Some((_, total)) => *total += count,
                    None => self.behind.push((found, count)),
                }
            }
            return;
        }
        for (Finding { rule, offset }, count) in counted {
            let rule = countersign_redact::rule_name(&rule);
            journal.push(&Frame::Redacted { stream: self.name, offset, rule, count });
        }
    }

    /// Lets go of what the disk would not take. The file keeps nothing that no frame speaks of.
    pub(crate) fn abandon(&mut self, dir: &Path) {
        self.stuck = None;
        self.pipe = None;
        self.feeder = None;
        self.dead = true;
        if let Ok(file) = std::fs::OpenOptions::new().write(true).open(dir.join(self.name.file())) {
            let _ = file.set_len(self.appender.offset());
        }
    }

    pub(crate) fn total(self) -> StreamTotal {
        StreamTotal { bytes: self.appender.offset(), dropped: self.dropped, sha256: self.sha.finish() }
    }
}

/// The digest of the whole stream: here while it is short, beside us once it is long, so that hashing, scanning and
/// writing use both cores.
#[derive(Default)]
struct StreamDigest {
    /// What has been hashed, as far as nobody does it beside us.
    here: Sha256,
    beside: Option<DigestThread>,
}

struct DigestThread {
    to: mpsc::SyncSender<Clean<Chunk>>,
    back: mpsc::Receiver<Chunk>,
    thread: JoinHandle<Sha256>,
}

impl StreamDigest {
    fn update(&mut self, chunk: Clean<Chunk>, total: u64, scrubber: &mut Scrubber) {
        if self.beside.is_none() && total > LARGE {
            // Where no thread can be had (the task may have used them all up), hashing goes on here.
            self.beside = DigestThread::begin(self.here.clone()).ok();
        }
        match &self.beside {
            None => {
                self.here.update(chunk.as_ref());
                scrubber.recycle(chunk.into_inner());
            }
            Some(DigestThread { to, back, .. }) => {
                // Bounded: when the hashing falls behind, the reading waits, and so does the child.
                to.send(chunk).expect("the hashing thread lives until its sender is dropped");
                if let Ok(chunk) = back.try_recv() {
                    scrubber.recycle(chunk);
                }
            }
        }
    }

    /// Back here, with all that was sent beside.
    fn settle(&mut self) -> &mut Sha256 {
        if let Some(DigestThread { to, thread, .. }) = self.beside.take() {
            drop(to);
            self.here = thread.join().expect("hashing does not panic");
        }
        &mut self.here
    }

    fn finish(mut self) -> countersign_model::Digest {
        countersign_model::Digest::from_bytes(std::mem::take(self.settle()).finalize().into())
    }
}

impl DigestThread {
    fn begin(mut sha: Sha256) -> io::Result<Self> {
        let (to, chunks) = mpsc::sync_channel::<Clean<Chunk>>(2);
        let (done, back) = mpsc::sync_channel(4);
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            for chunk in chunks {
                sha.update(chunk.as_ref());
                let _ = done.try_send(chunk.into_inner());
            }
            sha
        });
        Ok(Self { to, back, thread: thread? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    #[test]
    fn a_terminal_that_is_open_again_is_not_looked_at_all_the_time() {
        let (terminal, slave) = crate::terminal::Terminal::open(24, 80).unwrap();
        let mut outlet =
            OutputStream::new(StreamName::Pty, terminal.end().unwrap(), Arc::new(Mask::without_values()), 1000, None);
        drop(slave);
        assert_eq!(outlet.read().unwrap(), ReadResult::Hung);
        assert!(outlet.deadline().is_some() && outlet.wants().is_none());
        let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
        let _again = rustix::pty::ioctl_tiocgptpeer(terminal.end().unwrap(), flags).unwrap();
        assert_eq!(outlet.read().unwrap(), ReadResult::Nothing);
        assert!(outlet.deadline().is_none() && outlet.wants().is_some());
    }

    /// `n` may be the beginning of a known value; nothing follows, and somebody looks in between.
    #[test]
    fn what_is_held_when_somebody_looks_is_let_go_later() {
        let dir = tempfile::tempdir().unwrap();
        let task = "tk_01m7h4jys3gnc16h".parse().unwrap();
        let mut journal = JournalWriter::create(dir.path(), task, countersign_model::Digest::sha256(&[]), 0).unwrap();
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let mask = Arc::new(Mask::without_values().with_values(&["nothing-else".to_owned()]));
        let mut outlet = OutputStream::new(StreamName::Pty, read, mask, 1000, Some(Screen::new(24, 80)));
        rustix::io::write(&write, b"seen").unwrap();
        assert_eq!(outlet.read().unwrap(), ReadResult::Bytes);
        outlet.cut_all(&mut journal, dir.path()).unwrap();
        assert_eq!(outlet.end(), 3, "the last letter waits");
        let due = outlet.deadline().expect("and is looked at again");
        std::thread::sleep(due.saturating_duration_since(clock::steady()));
        outlet.cut_due(&mut journal, dir.path()).unwrap();
        assert_eq!((outlet.end(), outlet.deadline()), (4, None));
    }
}
