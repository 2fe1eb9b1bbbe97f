//! Input on its way to the child: written in order, as fast as the child takes it.

use countersign_model::{Idempotency, InputKind, Text};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::collections::VecDeque;

/// How much input waits for a program that does not read.
const MAX_QUEUED_BYTES: usize = 1024 * 1024;

const MAX_QUEUED_ENTRIES: usize = 4096;

/// The peer that waits for the answer to an operation, and the operation's number and key.
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
    pub caller: OperationCaller,
    /// The input ends after these bytes.
    pub last: bool,
}

/// Input that the child has taken, or that it will never take in full.
pub(crate) struct InputResult {
    pub written: u64,
    pub complete: bool,
    pub kind: InputKind,
    pub by: Text,
    pub caller: OperationCaller,
}

#[derive(Debug, PartialEq)]
pub(crate) enum InputRefusal {
    /// The queue is full.
    Full,
    /// The child's input is closed, or an end of input is queued.
    Closed,
}

pub(crate) struct InputQueue {
    pipe: Option<OwnedFd>,
    queue: VecDeque<(PendingInput, usize)>,
    queued_bytes: usize,
    /// The last entry of the queue ends the input.
    closing: bool,
}

impl InputQueue {
    pub(crate) fn new(to: OwnedFd) -> Self {
        Self { pipe: Some(to), queue: VecDeque::new(), queued_bytes: 0, closing: false }
    }

    /// The descriptor to poll, while input waits.
    pub(crate) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| !self.queue.is_empty()).map(|fd| fd.as_fd())
    }

    pub(crate) fn push(&mut self, input: PendingInput) -> Result<(), InputRefusal> {
        if self.pipe.is_none() || self.closing {
            return Err(InputRefusal::Closed);
        }
        if self.queued_bytes + input.bytes.len() > MAX_QUEUED_BYTES || self.queue.len() >= MAX_QUEUED_ENTRIES {
            return Err(InputRefusal::Full);
        }
        self.queued_bytes += input.bytes.len();
        self.closing = input.last;
        self.queue.push_back((input, 0));
        Ok(())
    }

    /// Writes what the child takes now. Returns the entries that are finished.
    pub(crate) fn write(&mut self) -> Vec<InputResult> {
        let mut finished = Vec::new();
        while let (Some(to), Some((input, at))) = (&self.pipe, self.queue.front_mut()) {
            if *at == input.bytes.len() {
                if input.last {
                    self.pipe = None;
                }
                self.queued_bytes -= input.bytes.len();
                finished.extend(self.queue.pop_front().map(|(input, at)| into_result(input, at)));
                continue;
            }
            match rustix::io::write(to, &input.bytes[*at..]) {
                Ok(n) => *at += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return finished,
                // The other end is closed.
                Err(_) => {
                    finished.extend(self.close());
                    return finished;
                }
            }
        }
        finished
    }

    /// Closes the input and returns what the child has not taken.
    pub(crate) fn close(&mut self) -> Vec<InputResult> {
        self.pipe = None;
        self.queued_bytes = 0;
        self.queue.drain(..).map(|(input, at)| into_result(input, at)).collect()
    }
}

fn into_result(input: PendingInput, at: usize) -> InputResult {
    InputResult {
        written: at as u64,
        complete: at == input.bytes.len(),
        kind: input.kind,
        by: input.by,
        caller: input.caller,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    fn input(bytes: &[u8], re: u64, last: bool) -> PendingInput {
        let caller = OperationCaller { peer: 0, re, key: None };
        PendingInput { bytes: bytes.to_vec(), kind: InputKind::Text, by: Text::from_static("t"), caller, last }
    }

    #[test]
    fn input_arrives_in_order_at_a_slow_reader() {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let mut input_queue = InputQueue::new(write);
        input_queue.push(input(&[b'a'; 60_000], 1, false)).unwrap();
        input_queue.push(input(&[b'b'; 60_000], 2, true)).unwrap();
        assert_eq!(input_queue.push(input(b"late", 3, false)), Err(InputRefusal::Closed));
        assert_eq!(input_queue.write().iter().map(|d| d.caller.re).collect::<Vec<_>>(), [1]);
        let (mut got, mut buf) = (Vec::new(), [0; 9000]);
        let mut finished = Vec::new();
        while got.len() < 120_000 {
            let n = rustix::io::read(&read, &mut buf).unwrap();
            got.extend_from_slice(&buf[..n]);
            finished.extend(input_queue.write());
        }
        assert!(got[..60_000].iter().all(|b| *b == b'a') && got[60_000..].iter().all(|b| *b == b'b'));
        assert_eq!((finished.len(), finished[0].complete, input_queue.poll_fd().is_none()), (1, true, true));
        assert_eq!(rustix::io::read(&read, &mut buf).unwrap(), 0, "the reader sees the end of input");
    }

    #[test]
    fn input_for_a_program_that_does_not_read_is_bounded() {
        let (_read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let mut input_queue = InputQueue::new(write);
        let mut pushed = 0;
        while input_queue.push(input(&[b'x'; 65_536], pushed, false)).is_ok() {
            input_queue.write();
            pushed += 1;
        }
        assert!((16..=18).contains(&pushed), "{pushed}");
        assert!(input_queue.close().iter().any(|d| !d.complete));
    }
}
