//! Input on its way to the child: written as far as the child takes it, in the order in which it came.

use countersign_model::{Idempotency, InputKind, Text};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::collections::VecDeque;

/// More than this does not wait for a program that does not read.
const WAITING: usize = 1024 * 1024;

const ENTRIES: usize = 4096;

/// Who wants to know when an operation has been applied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct OperationCaller {
    pub peer: u64,
    pub re: u64,
    pub key: Option<Idempotency>,
}

/// Bytes that wait for the child.
pub(crate) struct PendingInput {
    pub bytes: Vec<u8>,
    pub kind: InputKind,
    pub by: Text,
    pub asker: OperationCaller,
    /// After these bytes nothing more comes.
    pub last: bool,
}

/// Input that has been taken by the child, or never will be.
pub(crate) struct InputResult {
    pub written: u64,
    pub whole: bool,
    pub kind: InputKind,
    pub by: Text,
    pub asker: OperationCaller,
}

#[derive(Debug, PartialEq)]
pub(crate) enum InputRefusal {
    /// Too much waits already.
    Waiting,
    /// The child takes no more.
    Closed,
}

pub(crate) struct InputQueue {
    to: Option<OwnedFd>,
    queue: VecDeque<(PendingInput, usize)>,
    waiting: usize,
    /// Nothing may come after what is in the queue.
    ended: bool,
}

impl InputQueue {
    pub(crate) fn new(to: OwnedFd) -> Self {
        Self { to: Some(to), queue: VecDeque::new(), waiting: 0, ended: false }
    }

    /// The descriptor, while something waits for it.
    pub(crate) fn wants(&self) -> Option<BorrowedFd<'_>> {
        self.to.as_ref().filter(|_| !self.queue.is_empty()).map(|fd| fd.as_fd())
    }

    pub(crate) fn push(&mut self, input: PendingInput) -> Result<(), InputRefusal> {
        if self.to.is_none() || self.ended {
            return Err(InputRefusal::Closed);
        }
        if self.waiting + input.bytes.len() > WAITING || self.queue.len() >= ENTRIES {
            return Err(InputRefusal::Waiting);
        }
        self.waiting += input.bytes.len();
        self.ended = input.last;
        self.queue.push_back((input, 0));
        Ok(())
    }

    /// Writes what the child takes now; gives what is done.
    pub(crate) fn write(&mut self) -> Vec<InputResult> {
        let mut done = Vec::new();
        while let (Some(to), Some((input, at))) = (&self.to, self.queue.front_mut()) {
            if *at == input.bytes.len() {
                if input.last {
                    self.to = None;
                }
                self.waiting -= input.bytes.len();
                done.extend(self.queue.pop_front().map(|(input, at)| finished(input, at)));
                continue;
            }
            match rustix::io::write(to, &input.bytes[*at..]) {
                Ok(n) => *at += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return done,
                // Nobody will read it: the other end is closed.
                Err(_) => {
                    done.extend(self.close());
                    return done;
                }
            }
        }
        done
    }

    /// Gives up what the child has not taken.
    pub(crate) fn close(&mut self) -> Vec<InputResult> {
        self.to = None;
        self.waiting = 0;
        self.queue.drain(..).map(|(input, at)| finished(input, at)).collect()
    }
}

fn finished(input: PendingInput, at: usize) -> InputResult {
    InputResult {
        written: at as u64,
        whole: at == input.bytes.len(),
        kind: input.kind,
        by: input.by,
        asker: input.asker,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    fn input(bytes: &[u8], re: u64, last: bool) -> PendingInput {
        let asker = OperationCaller { peer: 0, re, key: None };
        PendingInput { bytes: bytes.to_vec(), kind: InputKind::Text, by: Text::from_static("t"), asker, last }
    }

    #[test]
    fn input_goes_in_order_and_waits_for_a_slow_reader() {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let mut inlet = InputQueue::new(write);
        inlet.push(input(&[b'a'; 60_000], 1, false)).unwrap();
        inlet.push(input(&[b'b'; 60_000], 2, true)).unwrap();
        assert_eq!(inlet.push(input(b"late", 3, false)), Err(InputRefusal::Closed));
        assert_eq!(inlet.write().iter().map(|d| d.asker.re).collect::<Vec<_>>(), [1]);
        let (mut got, mut buf) = (Vec::new(), [0; 9000]);
        let mut done = Vec::new();
        while got.len() < 120_000 {
            let n = rustix::io::read(&read, &mut buf).unwrap();
            got.extend_from_slice(&buf[..n]);
            done.extend(inlet.write());
        }
        assert!(got[..60_000].iter().all(|b| *b == b'a') && got[60_000..].iter().all(|b| *b == b'b'));
        assert_eq!((done.len(), done[0].whole, inlet.wants().is_none()), (1, true, true));
        assert_eq!(rustix::io::read(&read, &mut buf).unwrap(), 0, "the end of input is told");
    }

    #[test]
    fn a_program_that_does_not_read_is_not_buffered_for_without_end() {
        let (_read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let mut inlet = InputQueue::new(write);
        let mut taken = 0;
        while inlet.push(input(&[b'x'; 65_536], taken, false)).is_ok() {
            inlet.write();
            taken += 1;
        }
        assert!((16..=18).contains(&taken), "{taken}");
        assert!(inlet.close().iter().any(|d| !d.whole));
    }
}
