//! The operations by idempotency key, and the callers that wait for their answers.

use crate::input_queue::OperationCaller;
use countersign_model::Idempotency;
use std::collections::VecDeque;

/// How many operations are remembered by key.
const MAX_REMEMBERED_OPERATIONS: usize = 4096;
/// How many callers may wait for answers to operations that others requested first.
const MAX_WAITING_CALLERS: usize = 1024;

/// Remembers operations by key: a repeated one is answered like the first and not applied again.
#[derive(Default)]
pub(crate) struct Operations {
    recent: VecDeque<(Idempotency, Option<u64>)>,
    /// Callers that repeated an operation before it was applied.
    waiting: Vec<OperationCaller>,
}

/// An earlier operation under the same key.
pub(crate) enum EarlierOperation {
    New,
    /// The same operation: applied as this frame, or not yet applied.
    Same(Option<u64>),
    Conflict,
}

impl Operations {
    pub(crate) fn find_earlier(&self, key: Option<Idempotency>) -> EarlierOperation {
        let Some(key) = key else { return EarlierOperation::New };
        match self.recent.iter().find(|(k, _)| k.key == key.key) {
            None => EarlierOperation::New,
            Some((k, seq)) if k.body == key.body => EarlierOperation::Same(*seq),
            Some(_) => EarlierOperation::Conflict,
        }
    }

    pub(crate) fn forget(&mut self, key: Option<Idempotency>) {
        self.recent.retain(|(k, _)| Some(*k) != key);
    }

    pub(crate) fn remember(&mut self, key: Option<Idempotency>, seq: Option<u64>) {
        let Some(key) = key else { return };
        match self.recent.iter_mut().find(|(k, _)| k.key == key.key) {
            Some(entry) => entry.1 = seq,
            None => {
                self.recent.push_back((key, seq));
                // An operation that is not yet applied stays: a repetition would apply it twice.
                if self.recent.len() > MAX_REMEMBERED_OPERATIONS
                    && let Some(oldest) = self.recent.iter().position(|(_, seq)| seq.is_some())
                {
                    self.recent.remove(oldest);
                }
            }
        }
    }

    /// Adds a caller that gets the answer when the operation is applied. False if too many wait already.
    pub(crate) fn add_waiting(&mut self, caller: OperationCaller) -> bool {
        let room = self.waiting.len() < MAX_WAITING_CALLERS;
        if room {
            self.waiting.push(caller);
        }
        room
    }

    /// Removes and returns the callers that repeated this operation.
    pub(crate) fn take_waiting(&mut self, first: OperationCaller) -> Vec<OperationCaller> {
        let Some(key) = first.key else { return Vec::new() };
        self.waiting.extract_if(.., |a| a.key == Some(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_model::Digest;

    fn caller(re: u64, key: &str, body: &str) -> OperationCaller {
        let (key, body) = (Digest::sha256(&[key.as_bytes()]), Digest::sha256(&[body.as_bytes()]));
        OperationCaller { peer: 1, re, key: Some(Idempotency { key, body }) }
    }

    #[test]
    fn a_key_identifies_one_operation() {
        let mut operations = Operations::default();
        let (first, again, other) = (caller(1, "k", "a"), caller(2, "k", "a"), caller(3, "k", "b"));
        assert!(matches!(operations.find_earlier(first.key), EarlierOperation::New));
        operations.remember(first.key, None);
        assert!(
            matches!(operations.find_earlier(again.key), EarlierOperation::Same(None)) && operations.add_waiting(again)
        );
        assert!(matches!(operations.find_earlier(other.key), EarlierOperation::Conflict));
        operations.remember(first.key, Some(9));
        assert!(matches!(operations.find_earlier(again.key), EarlierOperation::Same(Some(9))));
        assert_eq!((operations.take_waiting(first), operations.take_waiting(first)), (vec![again], vec![]));
        operations.forget(first.key);
        assert!(
            matches!(operations.find_earlier(other.key), EarlierOperation::New)
                && matches!(operations.find_earlier(None), EarlierOperation::New)
        );
    }

    #[test]
    fn the_oldest_applied_operation_is_forgotten_first() {
        let mut operations = Operations::default();
        operations.remember(caller(0, "waits", "").key, None);
        for n in 0..MAX_REMEMBERED_OPERATIONS as u64 {
            operations.remember(caller(0, &n.to_string(), "").key, Some(n));
        }
        assert!(matches!(operations.find_earlier(caller(0, "waits", "").key), EarlierOperation::Same(None)));
        assert!(matches!(operations.find_earlier(caller(0, "0", "").key), EarlierOperation::New));
        assert!(matches!(operations.find_earlier(caller(0, "1", "").key), EarlierOperation::Same(Some(1))));
    }
}
