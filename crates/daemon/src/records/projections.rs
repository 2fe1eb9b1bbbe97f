//! The folded states of the tasks that were read last. Each continues from where it was.

use super::{Records, unknown_task};
use crate::lock;
use bytes::Bytes;
use countersign_model::{PrincipalId, SessionId, TaskId, TaskRefusal, TaskState, WaitsFor};
use countersign_store::{clock, stream::TaskStream};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const MAX_CACHED_TASKS: usize = 64;
/// How often an unsettled task is shown.
const SHOW_INTERVAL: Duration = Duration::from_millis(20);
/// How many finished tasks are cached for lists: a few megabytes.
const MAX_CACHED_SEALED_TASKS: usize = 1024;

#[derive(Default)]
pub(super) struct Projections {
    recent: Mutex<VecDeque<(TaskId, Arc<Mutex<TaskFold>>)>>,
    /// States that do not change any more, oldest first.
    sealed: Mutex<(HashMap<TaskId, TaskState>, VecDeque<TaskId>)>,
}

struct TaskFold {
    stream: TaskStream,
    state: Option<TaskState>,
    /// The last notification number when the state was read.
    last_notification: Option<u64>,
    /// The state as JSON, for repeated requests.
    json: Option<Bytes>,
    /// When it was shown last.
    shown_at: Option<Instant>,
}

impl TaskFold {
    fn new(stream: TaskStream, state: Option<TaskState>) -> Self {
        Self { stream, state, last_notification: None, json: None, shown_at: None }
    }
}

impl Projections {
    pub(super) fn contains(&self, task: TaskId) -> bool {
        lock(&self.recent).iter().any(|(t, _)| *t == task)
    }

    /// The owner of a task that was read recently.
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
        if order.len() > MAX_CACHED_SEALED_TASKS
            && let Some(oldest) = order.pop_front()
        {
            states.remove(&oldest);
        }
    }

    fn remember(&self, task: TaskId, folding: Arc<Mutex<TaskFold>>) {
        let mut recent = lock(&self.recent);
        recent.push_back((task, folding));
        if recent.len() > MAX_CACHED_TASKS {
            recent.pop_front();
        }
    }

    fn get(&self, task: TaskId) -> Option<Arc<Mutex<TaskFold>>> {
        let mut recent = lock(&self.recent);
        let at = recent.iter().position(|(t, _)| *t == task)?;
        let entry = recent.remove(at)?;
        let folding = Arc::clone(&entry.1);
        recent.push_back(entry);
        Some(folding)
    }
}

impl Records {
    /// The current state of a task.
    pub(crate) fn state(&self, task: TaskId) -> Result<TaskState, TaskRefusal> {
        let folding = self.current_fold(task)?;
        let mut state = lock(&folding).state.clone().ok_or_else(|| unknown_task(task))?;
        self.set_queue_position(&mut state);
        Ok(state)
    }

    /// Like [`Self::state`], for lists: it does not displace the tasks that are read one by one.
    pub(crate) fn listed_state(&self, task: TaskId) -> Result<TaskState, TaskRefusal> {
        if let Some(state) = lock(&self.projections.sealed).0.get(&task) {
            return Ok(state.clone());
        }
        if self.projections.contains(task) {
            return self.state(task);
        }
        let mut state = self.state_once(task)?.ok_or_else(|| unknown_task(task))?;
        if state.receipt.is_some() {
            self.projections.remember_sealed(&state);
            // The task may have expired after its state was read and before it was cached.
            if state.expired_at.is_none() && self.read_ledger(|r| r.is_expired(task))? {
                self.projections.forget(task);
            }
        }
        self.set_queue_position(&mut state);
        Ok(state)
    }

    /// Whether a task has settled and has no record numbered `seq` or later.
    pub(crate) fn ended_before(&self, task: TaskId, seq: u64) -> Result<bool, TaskRefusal> {
        let folding = self.current_fold(task)?;
        let folding = lock(&folding);
        Ok(folding.state.as_ref().is_some_and(|s| self.has_last_record(s) && seq >= s.next_seq))
    }

    /// Waits until a task may be shown again: it has settled, or it was shown last a while ago. A client that asks again
    /// and again would take the processor from the task that it waits for.
    pub(crate) async fn pace(&self, task: TaskId) {
        let left = self.projections.get(task).and_then(|folding| {
            let folding = lock(&folding);
            let open = folding.state.as_ref().is_some_and(|state| !state.settled());
            (folding.shown_at.filter(|_| open)? + SHOW_INTERVAL).checked_duration_since(clock::steady())
        });
        if let Some(left) = left {
            let _ = tokio::time::timeout(left, self.shims.wait_until_settled(task)).await;
        }
    }

    /// The state as JSON.
    pub(crate) fn state_json(&self, task: TaskId) -> Result<Bytes, TaskRefusal> {
        let folding = self.current_fold(task)?;
        let mut folding = lock(&folding);
        folding.shown_at = Some(clock::steady());
        let TaskFold { state, json, .. } = &mut *folding;
        let state = state.as_ref().ok_or_else(|| unknown_task(task))?;
        if state.waits_for() == Some(WaitsFor::Slot) {
            // Its queue position changes without a record of its own.
            let mut state = state.clone();
            self.set_queue_position(&mut state);
            return Ok(serde_json::to_vec(&state).map(Bytes::from).unwrap_or_default());
        }
        let fresh = || serde_json::to_vec(state).map(Bytes::from).unwrap_or_default();
        Ok(json.get_or_insert_with(fresh).clone())
    }

    /// Caches the state of a task that was just created, and that the answer to its request shows.
    pub(crate) fn cache_new_task(&self, state: &TaskState) {
        let stream = TaskStream::continuing(&self.home, state);
        let shown_at = Some(clock::steady());
        let folding = TaskFold { shown_at, ..TaskFold::new(stream, Some(state.clone())) };
        self.projections.remember(state.task_id, Arc::new(Mutex::new(folding)));
    }

    /// The fold of a task, brought up to date.
    fn current_fold(&self, task: TaskId) -> Result<Arc<Mutex<TaskFold>>, TaskRefusal> {
        let shared = self.projections.get(task).unwrap_or_else(|| {
            let folding = Arc::new(Mutex::new(TaskFold::new(self.stream(task, 0), None)));
            self.projections.remember(task, Arc::clone(&folding));
            folding
        });
        {
            let mut folding = lock(&shared);
            let TaskFold { stream, state, last_notification, json, .. } = &mut *folding;
            let now = self.shims.last_notification(task);
            let current =
                state.as_ref().is_some_and(|s| s.receipt.is_some()) || (now.is_some() && *last_notification == now);
            if !current {
                *last_notification = now;
                *json = None;
                self.read_ledger(|r| Ok(stream.fold_into(r, state)))??;
            }
        }
        Ok(shared)
    }
}
