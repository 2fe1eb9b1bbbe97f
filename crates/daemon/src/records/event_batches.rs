//! The event batches that were rendered last, for readers at the same position: two hundred cost little more than one.

use crate::lock;
use bytes::Bytes;
use countersign_model::TaskId;
use std::{collections::VecDeque, sync::Mutex};

const MAX_CACHED_BATCHES: usize = 64;

/// Consecutive events, ready to be sent.
#[derive(Clone)]
pub(crate) struct EventBatch {
    pub(crate) bytes: Bytes,
    pub(crate) next_seq: u64,
    pub(crate) ended: bool,
}

/// By task and first sequence number.
#[derive(Default)]
pub(super) struct EventBatchCache {
    recent: Mutex<VecDeque<((TaskId, u64), EventBatch)>>,
}

impl EventBatchCache {
    pub(super) fn get(&self, at: (TaskId, u64)) -> Option<EventBatch> {
        lock(&self.recent).iter().rev().find(|(key, _)| *key == at).map(|(_, piece)| piece.clone())
    }

    pub(super) fn forget(&self, task: TaskId) {
        lock(&self.recent).retain(|((t, _), _)| *t != task);
    }

    pub(super) fn insert(&self, at: (TaskId, u64), piece: EventBatch) {
        let mut recent = lock(&self.recent);
        recent.push_back((at, piece));
        if recent.len() > MAX_CACHED_BATCHES {
            recent.pop_front();
        }
    }
}
