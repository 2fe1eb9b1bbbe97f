//! Reads a terminal with much output on a thread of its own, beside the loop.
//!
//! The kernel buffers only a few kilobytes between a program and its terminal: while nobody reads, the program is
//! blocked. So a terminal that prints much gets a thread that only reads. The queue is bounded: when the loop falls
//! behind, the thread stops reading.

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

const PIECE_BYTES: usize = 64 * 1024;
/// One read from a terminal returns no more than this.
const TERMINAL_READ_BYTES: usize = 4096;
const MAX_QUEUED_PIECES: usize = 8;
/// How often a terminal that every process has closed is checked: the kernel sends no event when one opens it again.
const REOPEN_CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// How long a drain waits for the thread to hand over what it has read.
const HAND_OVER_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

pub(crate) struct Feeder {
    pieces: mpsc::Receiver<(Vec<u8>, usize)>,
    recycle: mpsc::Sender<Vec<u8>>,
    shared: Arc<FeederState>,
    /// A piece that was handed out in part: its buffer, the offset of the rest, and its length.
    remainder: Option<(Vec<u8>, usize, usize)>,
}

struct FeederState {
    /// Readable when there is a piece to take.
    more: OwnedFd,
    /// Readable when the thread must check the two flags.
    wake: OwnedFd,
    no_more_output: AtomicBool,
    abandoned: AtomicBool,
}

/// The result of [`Feeder::read_into`].
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
            wake: event()?,
            no_more_output: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
        });
        let (to, pieces) = mpsc::sync_channel(MAX_QUEUED_PIECES);
        let (recycle, recycled) = mpsc::channel();
        let state = Arc::clone(&shared);
        std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            state.run(&terminal, &to, &recycled);
            // The sender is dropped before the reader is woken, so that the reader finds the end.
            drop(to);
            state.notify();
        })?;
        Ok(Self { pieces, recycle, shared, remainder: None })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.more.as_fd()
    }

    /// Copies what has been read so far into `room`.
    pub(crate) fn read_into(&mut self, room: &mut [u8]) -> FeedResult {
        let (piece, at, len) = match self.remainder.take() {
            Some(left) => left,
            None => match self.next_piece() {
                Ok((piece, len)) => (piece, 0, len),
                Err(mpsc::TryRecvError::Empty) => return FeedResult::Nothing,
                Err(mpsc::TryRecvError::Disconnected) => return FeedResult::End,
            },
        };
        let n = room.len().min(len - at);
        room[..n].copy_from_slice(&piece[at..at + n]);
        if at + n == len {
            drop(self.recycle.send(piece));
        } else {
            self.remainder = Some((piece, at + n, len));
        }
        FeedResult::Bytes(n)
    }

    fn next_piece(&mut self) -> Result<(Vec<u8>, usize), mpsc::TryRecvError> {
        match self.pieces.try_recv() {
            // The event is cleared only when the queue is empty. A piece may have come in between, so the queue is
            // checked again.
            Err(mpsc::TryRecvError::Empty) => {
                let _ = rustix::io::read(&self.shared.more, &mut [0; 8]);
                self.pieces.try_recv()
            }
            piece => piece,
        }
    }

    /// Waits briefly for more output or for the end. Returns whether either came.
    pub(crate) fn wait_for_more(&self) -> bool {
        poll(&mut [PollFd::new(&self.shared.more, PollFlags::IN)], Some(&HAND_OVER_TIMEOUT)).is_ok_and(|n| n > 0)
    }

    /// The terminal has hung up: the thread reads what is there and ends.
    pub(crate) fn finish_reading(&self) {
        self.shared.no_more_output.store(true, Ordering::Release);
        self.shared.wake_thread();
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.shared.abandoned.store(true, Ordering::Release);
        self.shared.wake_thread();
    }
}

impl FeederState {
    fn notify(&self) {
        let _ = rustix::io::write(&self.more, &1u64.to_ne_bytes());
    }

    fn wake_thread(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn run(&self, terminal: &OwnedFd, to: &mpsc::SyncSender<(Vec<u8>, usize)>, recycled: &mpsc::Receiver<Vec<u8>>) {
        loop {
            let mut piece = recycled.try_recv().unwrap_or_else(|_| vec![0; PIECE_BYTES]);
            let (len, more) = self.fill_piece(terminal, &mut piece);
            if len > 0 {
                if to.send((piece, len)).is_err() {
                    return;
                }
                self.notify();
            }
            if !more || self.abandoned.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Waits for the first byte, then reads until the piece is full or nothing more is there. Returns the length, and
    /// whether more can come.
    fn fill_piece(&self, terminal: &OwnedFd, piece: &mut [u8]) -> (usize, bool) {
        let mut len = 0;
        while piece.len() - len >= TERMINAL_READ_BYTES {
            let wake = || PollFd::new(&self.wake, PollFlags::IN);
            // Loaded before the read: only a read that starts after the hang-up proves that nothing is left.
            let no_more = self.no_more_output.load(Ordering::Acquire) || self.abandoned.load(Ordering::Acquire);
            match rustix::io::read(terminal, &mut piece[len..]) {
                Ok(0) => return (len, false),
                Ok(n) => len += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::IO) if no_more => return (len, false),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::IO) if len > 0 => return (len, true),
                Err(rustix::io::Errno::AGAIN) => {
                    let _ = poll(&mut [PollFd::new(terminal, PollFlags::IN), wake()], None);
                }
                // No process has the terminal open, but one of its session may open it again.
                Err(rustix::io::Errno::IO) => drop(poll(&mut [wake()], Some(&REOPEN_CHECK_INTERVAL))),
                Err(_) => return (len, false),
            }
        }
        (len, true)
    }
}
