//! Which operations came under which idempotency key, and who waits to hear of them.

use crate::input_queue::OperationCaller;
use countersign_model::Idempotency;
use std::collections::VecDeque;

/// How many operations are remembered by their key.
const REMEMBERED: usize = 4096;
/// This many may wait for the answer to an operation that another peer asked for first.
const ALSO_ASKED: usize = 1024;

/// A second operation under one key is answered like the first, and not applied.
#[derive(Default)]
pub(crate) struct Operations {
    recent: VecDeque<(Idempotency, Option<u64>)>,
    /// Those who asked for an operation again before it was done.
    also_asked: Vec<OperationCaller>,
}

/// What is known of an operation by its key.
pub(crate) enum EarlierOperation {
    New,
    /// Still on its way, or applied as this frame.
    Same(Option<u64>),
    Another,
}

impl Operations {
    pub(crate) fn look(&self, key: Option<Idempotency>) -> EarlierOperation {
        let Some(key) = key else { return EarlierOperation::New };
        match self.recent.iter().find(|(k, _)| k.key == key.key) {
            None => EarlierOperation::New,
            Some((k, seq)) if k.body == key.body => EarlierOperation::Same(*seq),
            Some(_) => EarlierOperation::Another,
        }
    }

    pub(crate) fn forget(&mut self, key: Option<Idempotency>) {
        self.recent.retain(|(k, _)| Some(*k) != key);
    }

    pub(crate) fn note(&mut self, key: Option<Idempotency>, seq: Option<u64>) {
        let Some(key) = key else { return };
        match self.recent.iter_mut().find(|(k, _)| k.key == key.key) {
            Some(entry) => entry.1 = seq,
            None => {
                self.recent.push_back((key, seq));
                // What is still on its way is not forgotten: it would be applied twice.
                if self.recent.len() > REMEMBERED
                    && let Some(oldest) = self.recent.iter().position(|(_, seq)| seq.is_some())
                {
                    self.recent.remove(oldest);
                }
            }
        }
    }

    /// Tells this one, too, when the operation is done; false when too many wait for it already.
    pub(crate) fn wait_along(&mut self, asker: OperationCaller) -> bool {
        let room = self.also_asked.len() < ALSO_ASKED;
        if room {
            self.also_asked.push(asker);
        }
        room
    }

    /// Those who asked for the same operation again meanwhile.
    pub(crate) fn take_waiting(&mut self, first: OperationCaller) -> Vec<OperationCaller> {
        let Some(key) = first.key else { return Vec::new() };
        self.also_asked.extract_if(.., |a| a.key == Some(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_model::Digest;

    fn asker(re: u64, key: &str, body: &str) -> OperationCaller {
        let (key, body) = (Digest::sha256(&[key.as_bytes()]), Digest::sha256(&[body.as_bytes()]));
        OperationCaller { peer: 1, re, key: Some(Idempotency { key, body }) }
    }

    #[test]
    fn a_key_stands_for_one_operation() {
        let mut operations = Operations::default();
        let (first, again, other) = (asker(1, "k", "a"), asker(2, "k", "a"), asker(3, "k", "b"));
        assert!(matches!(operations.look(first.key), EarlierOperation::New));
        operations.note(first.key, None);
        assert!(matches!(operations.look(again.key), EarlierOperation::Same(None)) && operations.wait_along(again));
        assert!(matches!(operations.look(other.key), EarlierOperation::Another));
        operations.note(first.key, Some(9));
        assert!(matches!(operations.look(again.key), EarlierOperation::Same(Some(9))));
        assert_eq!((operations.take_waiting(first), operations.take_waiting(first)), (vec![again], vec![]));
        operations.forget(first.key);
        assert!(
            matches!(operations.look(other.key), EarlierOperation::New)
                && matches!(operations.look(None), EarlierOperation::New)
        );
    }

    #[test]
    fn the_oldest_is_forgotten_but_never_one_on_its_way() {
        let mut operations = Operations::default();
        operations.note(asker(0, "waits", "").key, None);
        for n in 0..REMEMBERED as u64 {
            operations.note(asker(0, &n.to_string(), "").key, Some(n));
        }
        assert!(matches!(operations.look(asker(0, "waits", "").key), EarlierOperation::Same(None)));
        assert!(matches!(operations.look(asker(0, "0", "").key), EarlierOperation::New));
        assert!(matches!(operations.look(asker(0, "1", "").key), EarlierOperation::Same(Some(1))));
    }
}
