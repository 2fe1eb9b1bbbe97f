//! One output stream on its way from the child's pipe to the disk: read, clean, cut, write, digest.

use countersign_model::{Clean, Frame, StreamName, StreamTotal};
use countersign_redact::{CHUNK, Chunk, Found, Mask, Scrubber};
use countersign_store::{
    clock,
    journal::Writer,
    output::{Appender, chunk_digest},
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
/// More reads than a full pipe takes, however small they come out.
const DRAIN_READS: usize = 512;
/// Beyond this a stream gets a thread for its digest.
const LARGE: u64 = 1024 * 1024;

pub(crate) struct Outlet {
    name: StreamName,
    pipe: Option<OwnedFd>,
    scrubber: Scrubber,
    appender: Appender,
    sha: Sha,
    first_byte: Option<Instant>,
    last_byte: Option<Instant>,
    /// Clean bytes that the disk would not take, and how many it took.
    stuck: Option<(Clean<Chunk>, usize)>,
    found: Vec<Found>,
    /// The disk did not take it: nothing more is read, cut or written.
    dead: bool,
}

/// What a read brought.
#[derive(Debug, PartialEq)]
pub(crate) enum Got {
    Bytes,
    Nothing,
    End,
}

impl Outlet {
    pub(crate) fn new(name: StreamName, pipe: OwnedFd, mask: Arc<Mask>) -> Self {
        Self {
            name,
            pipe: Some(pipe),
            scrubber: Scrubber::new(mask),
            appender: Appender::new(),
            sha: Sha::Here(Sha256::new()),
            first_byte: None,
            last_byte: None,
            stuck: None,
            found: Vec::new(),
            dead: false,
        }
    }

    /// The pipe, while it is open and we want more of it: a full disk stops the reading, and so the child.
    pub(crate) fn wants(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| self.stuck.is_none()).map(|p| p.as_fd())
    }

    pub(crate) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.is_some()
    }

    pub(crate) fn name(&self) -> StreamName {
        self.name
    }

    /// One read.
    pub(crate) fn read(&mut self) -> io::Result<Got> {
        let Some(pipe) = &self.pipe else { return Ok(Got::End) };
        match rustix::io::read(pipe, self.scrubber.room()) {
            Ok(0) => {
                self.pipe = None;
                self.scrubber.finish();
                Ok(Got::End)
            }
            Ok(n) => {
                self.scrubber.fed(n);
                let now = clock::steady();
                self.last_byte = Some(now);
                self.first_byte.get_or_insert(now);
                Ok(Got::Bytes)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Got::Nothing),
            Err(e) => Err(e.into()),
        }
    }

    /// Takes what is in the pipe without waiting, then closes it.
    pub(crate) fn drain(&mut self, journal: &mut Writer, dir: &Path) -> io::Result<()> {
        // Bounded: somebody outside may hold the pipe and write on.
        for _ in 0..DRAIN_READS {
            if self.wants().is_none() || self.read()? != Got::Bytes {
                break;
            }
            self.cut_full(journal, dir)?;
        }
        self.pipe = None;
        self.scrubber.finish();
        self.cut_all(journal, dir)
    }

    /// Cuts whole chunks only.
    pub(crate) fn cut_full(&mut self, journal: &mut Writer, dir: &Path) -> io::Result<()> {
        while self.stuck.is_some() || self.scrubber.ready() >= CHUNK {
            if !self.cut(journal, dir, false)? {
                break;
            }
        }
        Ok(())
    }

    /// Cuts everything that is clean: a control operation, or the end of the stream.
    pub(crate) fn cut_all(&mut self, journal: &mut Writer, dir: &Path) -> io::Result<()> {
        let end = self.pipe.is_none();
        while self.cut(journal, dir, end)? {}
        self.first_byte = None;
        Ok(())
    }

    /// When [`Outlet::cut_due`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.first_byte.map(|first| first + CUT_AFTER)
    }

    /// Cuts what has waited long enough. When nothing has come for as long, held bytes are let go as well.
    pub(crate) fn cut_due(&mut self, journal: &mut Writer, dir: &Path) -> io::Result<()> {
        let now = clock::steady();
        if self.deadline().is_none_or(|due| now < due) || self.is_stuck() {
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
    fn cut(&mut self, journal: &mut Writer, dir: &Path, all: bool) -> io::Result<bool> {
        if self.dead {
            return Ok(false);
        }
        let (chunk, mut done) = match self.stuck.take() {
            Some(stuck) => stuck,
            None => match self.scrubber.cut(all) {
                Some(chunk) => (chunk, 0),
                None => return Ok(false),
            },
        };
        self.found.append(&mut self.scrubber.found());
        let offset = self.appender.offset();
        if let Err(e) = self.appender.append(dir, self.name, &chunk, &mut done) {
            self.stuck = Some((chunk, done));
            return Err(e);
        }
        let bytes = chunk.as_ref();
        let len = bytes.len() as u64;
        journal.push(&Frame::Output { stream: self.name, offset, len, digest: chunk_digest(bytes) });
        self.note_redactions(journal, offset + len);
        self.sha.update(chunk, offset + len, &mut self.scrubber);
        Ok(true)
    }

    /// Replacements in what has been written, one frame for each rule and chunk.
    fn note_redactions(&mut self, journal: &mut Writer, written: u64) {
        let later = self.found.iter().position(|f| f.offset >= written).unwrap_or(self.found.len());
        let mut counted: Vec<(Found, u64)> = Vec::new();
        for found in self.found.drain(..later) {
            match counted.iter_mut().find(|(first, _)| first.rule == found.rule) {
                Some((_, count)) => *count += 1,
                None => counted.push((found, 1)),
            }
        }
        for (Found { rule, offset }, count) in counted {
            let rule = countersign_model::Text::of(rule);
            journal.push(&Frame::Redacted { stream: self.name, offset, rule, count });
        }
    }

    /// Lets go of what the disk would not take. The file keeps nothing that no frame speaks of.
    pub(crate) fn abandon(&mut self, dir: &Path) {
        self.stuck = None;
        self.pipe = None;
        self.dead = true;
        if let Ok(file) = std::fs::OpenOptions::new().write(true).open(dir.join(self.name.file())) {
            let _ = file.set_len(self.appender.offset());
        }
    }

    pub(crate) fn total(self) -> StreamTotal {
        StreamTotal { bytes: self.appender.offset(), sha256: self.sha.finish() }
    }
}

/// The digest of the whole stream: here while it is short, beside us once it is long, so that hashing, scanning and
/// writing use both cores.
enum Sha {
    Here(Sha256),
    Beside { to: mpsc::SyncSender<Clean<Chunk>>, back: mpsc::Receiver<Chunk>, thread: JoinHandle<Sha256> },
}

impl Sha {
    fn update(&mut self, chunk: Clean<Chunk>, total: u64, scrubber: &mut Scrubber) {
        if let Sha::Here(sha) = self
            && total > LARGE
            && let Ok(beside) = Self::beside(sha.clone())
        {
            *self = beside;
        }
        match self {
            Sha::Here(sha) => {
                sha.update(chunk.as_ref());
                scrubber.recycle(chunk.into_inner());
            }
            Sha::Beside { to, back, .. } => {
                // Bounded: when the hashing falls behind, the reading waits, and so does the child.
                to.send(chunk).expect("the hashing thread lives until its sender is dropped");
                if let Ok(chunk) = back.try_recv() {
                    scrubber.recycle(chunk);
                }
            }
        }
    }

    /// Where no thread can be had (the task may have used them all up), hashing goes on here.
    fn beside(mut sha: Sha256) -> io::Result<Self> {
        let (to, chunks) = mpsc::sync_channel::<Clean<Chunk>>(2);
        let (done, back) = mpsc::sync_channel(4);
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            for chunk in chunks {
                sha.update(chunk.as_ref());
                let _ = done.try_send(chunk.into_inner());
            }
            sha
        });
        Ok(Sha::Beside { to, back, thread: thread? })
    }

    fn finish(self) -> countersign_model::Digest {
        let sha = match self {
            Sha::Here(sha) => sha,
            Sha::Beside { to, thread, .. } => {
                drop(to);
                thread.join().expect("hashing does not panic")
            }
        };
        countersign_model::Digest::from_bytes(sha.finalize().into())
    }
}
