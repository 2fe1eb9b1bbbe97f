//! The folds of the tasks that were looked at last. Each goes on from where it was.

use super::{Records, unknown};
use crate::lock;
use bytes::Bytes;
use countersign_model::{PrincipalId, SessionId, TaskId, TaskRefusal, TaskState, WaitsFor};
use countersign_store::stream::TaskStream;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
};

const MAX_REMEMBERED: usize = 64;
/// How many tasks that are over are remembered for lists: a few megabytes.
const MAX_SEALED: usize = 1024;

#[derive(Default)]
pub(super) struct Projections {
    recent: Mutex<VecDeque<(TaskId, Arc<Mutex<TaskFold>>)>>,
    /// States that change no more, in the order in which they came.
    sealed: Mutex<(HashMap<TaskId, TaskState>, VecDeque<TaskId>)>,
}

struct TaskFold {
    stream: TaskStream,
    state: Option<TaskState>,
    /// What the bell said when the state was read last.
    rings: Option<u64>,
    /// The state as JSON, for those who ask again and again.
    json: Option<Bytes>,
}

impl Projections {
    pub(super) fn knows(&self, task: TaskId) -> bool {
        lock(&self.recent).iter().any(|(t, _)| *t == task)
    }

    /// Whose a task is that was looked at of late.
    pub(super) fn task_owner(&self, task: TaskId) -> Option<(PrincipalId, Option<SessionId>)> {
        let folding = lock(&self.recent).iter().find(|(t, _)| *t == task).map(|(_, f)| Arc::clone(f))?;
        let folding = lock(&folding);
        folding.state.as_ref().map(|s| (s.request.principal, s.request.session_id))
    }

    pub(super) fn forget(&self, task: TaskId) {
        lock(&self.recent).retain(|(t, _)| *t != task);
        let mut sealed = lock(&self.sealed);
        if sealed.0.remove(&task).is_some() {
            sealed.1.retain(|t| *t != task);
        }
    }

    fn remember_sealed(&self, state: &TaskState) {
        let (states, order) = &mut *lock(&self.sealed);
        if states.insert(state.task_id, state.clone()).is_none() {
            order.push_back(state.task_id);
        }
        if order.len() > MAX_SEALED
            && let Some(oldest) = order.pop_front()
        {
            states.remove(&oldest);
        }
    }

    fn remember(&self, task: TaskId, folding: Arc<Mutex<TaskFold>>) {
        let mut recent = lock(&self.recent);
        recent.push_back((task, folding));
        if recent.len() > MAX_REMEMBERED {
            recent.pop_front();
        }
    }

    fn recall(&self, task: TaskId) -> Option<Arc<Mutex<TaskFold>>> {
        let mut recent = lock(&self.recent);
        let at = recent.iter().position(|(t, _)| *t == task)?;
        let entry = recent.remove(at)?;
        let folding = Arc::clone(&entry.1);
        recent.push_back(entry);
        Some(folding)
    }
}

impl Records {
    /// The state of a task as its stream tells it now.
    pub(crate) fn state(&self, task: TaskId) -> Result<TaskState, TaskRefusal> {
        let folding = self.current(task)?;
        let mut state = lock(&folding).state.clone().ok_or_else(|| unknown(task))?;
        self.place_in_line(&mut state);
        Ok(state)
    }

    /// The same for a list: what is not looked at by itself does not take the place of what is.
    pub(crate) fn listed_state(&self, task: TaskId) -> Result<TaskState, TaskRefusal> {
        if let Some(state) = lock(&self.projections.sealed).0.get(&task) {
            return Ok(state.clone());
        }
        if self.projections.knows(task) {
            return self.state(task);
        }
        let mut state = self.state_once(task)?.ok_or_else(|| unknown(task))?;
        if state.receipt.is_some() {
            self.projections.remember_sealed(&state);
            // What is being removed was decided about before it is forgotten: that may have come in between.
            if state.expired_at.is_none() && self.ledger(|r| r.is_expired(task))? {
                self.projections.forget(task);
            }
        }
        self.place_in_line(&mut state);
        Ok(state)
    }

    /// Whether a task has settled and has no record numbered `seq` or later.
    pub(crate) fn ended_before(&self, task: TaskId, seq: u64) -> Result<bool, TaskRefusal> {
        let folding = self.current(task)?;
        let folding = lock(&folding);
        Ok(folding.state.as_ref().is_some_and(|s| self.is_over(s) && seq >= s.next_seq))
    }

    /// The state as JSON.
    pub(crate) fn state_json(&self, task: TaskId) -> Result<Bytes, TaskRefusal> {
        let folding = self.current(task)?;
        let mut folding = lock(&folding);
        let TaskFold { state, json, .. } = &mut *folding;
        let state = state.as_ref().ok_or_else(|| unknown(task))?;
        if state.waits_for() == Some(WaitsFor::Slot) {
            // Where it stands changes without a word from it.
            let mut state = state.clone();
            self.place_in_line(&mut state);
            return Ok(serde_json::to_vec(&state).map(Bytes::from).unwrap_or_default());
        }
        let fresh = || serde_json::to_vec(state).map(Bytes::from).unwrap_or_default();
        Ok(json.get_or_insert_with(fresh).clone())
    }

    /// A task that has just been asked for: whoever looks at it next goes on from here.
    pub(crate) fn begin(&self, state: &TaskState) {
        let stream = TaskStream::continuing(&self.home, state);
        let folding = TaskFold { stream, state: Some(state.clone()), rings: None, json: None };
        self.projections.remember(state.task_id, Arc::new(Mutex::new(folding)));
    }

    /// The fold of a task, brought up to now.
    fn current(&self, task: TaskId) -> Result<Arc<Mutex<TaskFold>>, TaskRefusal> {
        let shared = self.projections.recall(task).unwrap_or_else(|| {
            let folding = TaskFold { stream: self.stream(task, 0), state: None, rings: None, json: None };
            let folding = Arc::new(Mutex::new(folding));
            self.projections.remember(task, Arc::clone(&folding));
            folding
        });
        {
            let mut folding = lock(&shared);
            let TaskFold { stream, state, rings, json } = &mut *folding;
            let now = self.shims.rings(task);
            let current = state.as_ref().is_some_and(|s| s.receipt.is_some()) || (now.is_some() && *rings == now);
            if !current {
                *rings = now;
                *json = None;
                self.ledger(|r| Ok(stream.fold_into(r, state)))??;
            }
        }
        Ok(shared)
    }
}
