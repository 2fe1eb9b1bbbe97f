//! What was sent to a task and not answered yet. After a break it is sent again under the same numbers, so that each
//! message is applied once.

use countersign_client::{Attachment, ClientError};
use countersign_model::api::{AttachMessage, ResizeBody, StdinBody};
use std::collections::VecDeque;

/// How many messages may wait for a daemon that is away.
const MAX_UNANSWERED: usize = 4096;

/// One message to a task.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutboxMessage {
    Typed(Vec<u8>),
    Size(u16, u16),
    End,
}

impl OutboxMessage {
    fn pass(&self, daemon: &mut Attachment) -> Result<(), ClientError> {
        match self {
            Self::Typed(bytes) => daemon.type_bytes(bytes),
            Self::End => daemon.send(&AttachMessage::Stdin(StdinBody::eof())),
            Self::Size(rows, cols) => daemon.send(&AttachMessage::Resize(ResizeBody { rows: *rows, cols: *cols })),
        }
    }
}

/// Messages from the first that was not answered on. The daemon counts without gaps, so a message that was answered
/// behind that one stays, and is sent again with the rest.
pub(super) struct Outbox {
    /// Names this client across connections.
    key: String,
    unanswered: VecDeque<(OutboxMessage, bool)>,
    next: u64,
}

impl Outbox {
    pub(super) fn new(key: String) -> Self {
        Self { key, unanswered: VecDeque::new(), next: 0 }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The number of the first message that is sent on a new connection.
    pub(super) fn first(&self) -> u64 {
        self.next - self.unanswered.len() as u64
    }

    pub(super) fn has_room(&self) -> bool {
        self.unanswered.len() < MAX_UNANSWERED
    }

    /// Sends a message, and keeps it until it is answered.
    pub(super) fn send(&mut self, daemon: &mut Attachment, sent: OutboxMessage) -> Result<(), ClientError> {
        let passed = sent.pass(daemon);
        self.keep(sent);
        passed
    }

    /// Sends everything again that was not answered.
    pub(super) fn send_again(&self, daemon: &mut Attachment) -> Result<(), ClientError> {
        self.unanswered.iter().try_for_each(|(sent, _)| sent.pass(daemon))
    }

    fn keep(&mut self, sent: OutboxMessage) {
        self.unanswered.push_back((sent, false));
        self.next += 1;
    }

    /// The message of this number was applied or refused.
    pub(super) fn answered(&mut self, n: u64) {
        let at = n.checked_sub(self.first()).and_then(|at| usize::try_from(at).ok());
        if let Some((_, answered)) = at.and_then(|at| self.unanswered.get_mut(at)) {
            *answered = true;
        }
        while self.unanswered.front().is_some_and(|(_, answered)| *answered) {
            self.unanswered.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_answered_out_of_order_stays_behind_what_is_not() {
        let mut outbox = Outbox::new("k".to_owned());
        for size in 0..4 {
            outbox.keep(OutboxMessage::Size(size, size));
        }
        for (answered, first, kept) in [(2, 0, 4), (0, 1, 3), (7, 1, 3), (0, 1, 3), (1, 3, 1), (3, 4, 0)] {
            outbox.answered(answered);
            assert_eq!((outbox.first(), outbox.unanswered.len()), (first, kept), "after {answered}");
        }
    }
}
