//! Reads a terminal that has much to say, beside the loop.
//!
//! The kernel holds no more than a few kilobytes between a program and its terminal: while nobody reads, the program
//! stands still. So a terminal that writes much gets a thread that does nothing but read. It is bounded: when the loop
//! falls behind, the reading stops.

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fd::{AsFd as _, BorrowedFd, OwnedFd},
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

const BUFFER: usize = 64 * 1024;
/// A terminal gives no more than this at once.
const PAGE: usize = 4096;
const WAITING: usize = 8;
/// Nobody tells us when a terminal that was closed by all is opened again: this often it is looked at.
const HUNG: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// What was read takes no longer than this to be handed over.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

pub(crate) struct Feeder {
    pieces: mpsc::Receiver<(Vec<u8>, usize)>,
    back: mpsc::Sender<Vec<u8>>,
    shared: Arc<FeederState>,
    /// A piece that did not fit into what was asked for, and how much of it did.
    left: Option<(Vec<u8>, usize, usize)>,
}

struct FeederState {
    /// Readable when there is something to take.
    more: OwnedFd,
    /// Readable when the thread should look at the two flags.
    look: OwnedFd,
    last_chance: AtomicBool,
    gone: AtomicBool,
}

/// What a look brought.
pub(crate) enum FeedResult {
    Bytes(usize),
    Nothing,
    End,
}

impl Feeder {
    pub(crate) fn start(terminal: OwnedFd) -> io::Result<Self> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Arc::new(FeederState {
            more: event()?,
            look: event()?,
            last_chance: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        });
        let (to, pieces) = mpsc::sync_channel(WAITING);
        let (back, idle_shim) = mpsc::channel();
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            theirs.read(&terminal, &to, &idle_shim);
            // Whoever waits is woken to find that nobody sends any more.
            drop(to);
            theirs.notify();
        })?;
        Ok(Self { pieces, back, shared, left: None })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.more.as_fd()
    }

    /// What there is now goes into `room`.
    pub(crate) fn take(&mut self, room: &mut [u8]) -> FeedResult {
        let (piece, at, len) = match self.left.take() {
            Some(left) => left,
            None => match self.next() {
                Ok((piece, len)) => (piece, 0, len),
                Err(mpsc::TryRecvError::Empty) => return FeedResult::Nothing,
                Err(mpsc::TryRecvError::Disconnected) => return FeedResult::End,
            },
        };
        let n = room.len().min(len - at);
        room[..n].copy_from_slice(&piece[at..at + n]);
        match at + n == len {
            true => drop(self.back.send(piece)),
            false => self.left = Some((piece, at + n, len)),
        }
        FeedResult::Bytes(n)
    }

    fn next(&mut self) -> Result<(Vec<u8>, usize), mpsc::TryRecvError> {
        match self.pieces.try_recv() {
            // The bell is silenced only when nothing is there, and then looked at once more.
            Err(mpsc::TryRecvError::Empty) => {
                let _ = rustix::io::read(&self.shared.more, &mut [0; 8]);
                self.pieces.try_recv()
            }
            piece => piece,
        }
    }

    /// Waits a moment for more, or for the end. Whether either came.
    pub(crate) fn wait(&self) -> bool {
        poll(&mut [PollFd::new(&self.shared.more, PollFlags::IN)], Some(&MOMENT)).is_ok_and(|n| n > 0)
    }

    /// The terminal has hung up: what is there is all there is.
    pub(crate) fn last_chance(&self) {
        self.shared.last_chance.store(true, Ordering::Release);
        self.shared.have_a_look();
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::Release);
        self.shared.have_a_look();
    }
}

impl FeederState {
    fn notify(&self) {
        let _ = rustix::io::write(&self.more, &1u64.to_ne_bytes());
    }

    fn have_a_look(&self) {
        let _ = rustix::io::write(&self.look, &1u64.to_ne_bytes());
    }

    fn read(&self, terminal: &OwnedFd, to: &mpsc::SyncSender<(Vec<u8>, usize)>, idle_shim: &mpsc::Receiver<Vec<u8>>) {
        loop {
            let mut piece = idle_shim.try_recv().unwrap_or_else(|_| vec![0; BUFFER]);
            let (len, more) = self.fill(terminal, &mut piece);
            if len > 0 {
                if to.send((piece, len)).is_err() {
                    return;
                }
                self.notify();
            }
            if !more || self.gone.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Reads until the piece is full or there is nothing more just now; waits for the first byte. Whether more can come.
    fn fill(&self, terminal: &OwnedFd, piece: &mut [u8]) -> (usize, bool) {
        let mut len = 0;
        while piece.len() - len >= PAGE {
            let look = || PollFd::new(&self.look, PollFlags::IN);
            // Asked before the read: what was written before the terminal hung up must have been seen as missing.
            let no_more = self.last_chance.load(Ordering::Acquire) || self.gone.load(Ordering::Acquire);
            match rustix::io::read(terminal, &mut piece[len..]) {
                Ok(0) => return (len, false),
                Ok(n) => len += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::IO) if no_more => return (len, false),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::IO) if len > 0 => return (len, true),
                Err(rustix::io::Errno::AGAIN) => {
                    let _ = poll(&mut [PollFd::new(terminal, PollFlags::IN), look()], None);
                }
                // Nobody has it open; whoever it belongs to may open it again.
                Err(rustix::io::Errno::IO) => drop(poll(&mut [look()], Some(&HUNG))),
                Err(_) => return (len, false),
            }
        }
        (len, true)
    }
}
