//! Messages to a task that are not answered yet. After a reconnect they are sent again under the same numbers, so that
//! the daemon applies each of them once.

use countersign_client::{Attachment, ClientError};
use countersign_model::api::{AttachMessage, ResizeBody, StdinBody};
use std::collections::VecDeque;

/// How many messages may wait for a daemon that restarts.
const MAX_UNANSWERED_MESSAGES: usize = 4096;

/// One message to a task.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutboxMessage {
    Typed(Vec<u8>),
    Size(u16, u16),
    End,
}

impl OutboxMessage {
    fn send_to(&self, daemon: &mut Attachment) -> Result<(), ClientError> {
        match self {
            Self::Typed(bytes) => daemon.type_bytes(bytes),
            Self::End => daemon.send(&AttachMessage::Stdin(StdinBody::eof())),
            Self::Size(rows, cols) => daemon.send(&AttachMessage::Resize(ResizeBody { rows: *rows, cols: *cols })),
        }
    }
}

/// The messages from the first unanswered one on. The daemon numbers them without gaps, so a later message that is
/// already answered stays here and is sent again with the rest.
pub(super) struct Outbox {
    /// Identifies this client across connections.
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

    /// The number of the first message that a new connection sends.
    pub(super) fn first_number(&self) -> u64 {
        self.next - self.unanswered.len() as u64
    }

    pub(super) fn has_room(&self) -> bool {
        self.unanswered.len() < MAX_UNANSWERED_MESSAGES
    }

    /// Sends a message and keeps it until the daemon answers it.
    pub(super) fn send(&mut self, daemon: &mut Attachment, message: OutboxMessage) -> Result<(), ClientError> {
        let result = message.send_to(daemon);
        self.push(message);
        result
    }

    /// Sends every unanswered message again.
    pub(super) fn resend(&self, daemon: &mut Attachment) -> Result<(), ClientError> {
        self.unanswered.iter().try_for_each(|(message, _)| message.send_to(daemon))
    }

    fn push(&mut self, message: OutboxMessage) {
        self.unanswered.push_back((message, false));
        self.next += 1;
    }

    /// Records that the daemon applied or refused the message of this number.
    pub(super) fn mark_answered(&mut self, n: u64) {
        let at = n.checked_sub(self.first_number()).and_then(|at| usize::try_from(at).ok());
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
    fn a_message_answered_out_of_order_stays_until_those_before_it_are_answered() {
        let mut outbox = Outbox::new("k".to_owned());
        for size in 0..4 {
            outbox.push(OutboxMessage::Size(size, size));
        }
        for (answered, first, left) in [(2, 0, 4), (0, 1, 3), (7, 1, 3), (0, 1, 3), (1, 3, 1), (3, 4, 0)] {
            outbox.mark_answered(answered);
            assert_eq!((outbox.first_number(), outbox.unanswered.len()), (first, left), "after {answered}");
        }
    }
}
