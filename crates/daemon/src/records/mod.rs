//! The only way to read: the ledger, the journals and output of tasks, and the states folded from them. No other part
//! of the daemon reads files below the home.

mod event_batches;
mod output_readers;
mod projections;
mod verified;

pub(crate) use event_batches::EventBatch;

use crate::{blocking, caller::Caller, receipts::sealing::SealingState, shims::registry::ShimRegistry};
use countersign_model::{
    Digest, DisplaySafe, Frame, HomeId, PrincipalId, QueueWait, Refusal, RefusalCode, Roster, SessionId, Status,
    StreamName, TaskAddress, TaskId, TaskRefusal, TaskState, WaitsFor,
};
use countersign_store::{
    Home,
    ledger::{LedgerError, LedgerReader, LedgerReaderPool},
    output::{self, ReadError},
    stream::TaskStream,
    waiting::{self, WaitingRequest},
};
use event_batches::EventBatchCache;
use output_readers::OutputReaders;
use projections::Projections;
use std::{fs::File, io, path::Path, sync::Arc, time::Duration};
use tokio::sync::watch;
use verified::VerifiedFiles;

/// The shortest prefix of an id: an unset variable must not name the only task there is.
const MIN_ID_CHARACTERS: usize = 4;

/// The position and digest of the bytes of an output frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputChunk {
    pub(crate) stream: StreamName,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) digest: Digest,
}

impl OutputChunk {
    /// From an output frame; none for any other.
    pub(crate) fn from_frame(frame: &Frame) -> Option<Self> {
        let Frame::Output { stream, offset, len, digest } = frame else { return None };
        Some(Self { stream: *stream, offset: *offset, len: *len, digest: *digest })
    }
}

/// The records of a home, with caches of what was read last.
pub(crate) struct Records {
    home: Home,
    home_id: Option<HomeId>,
    readers: LedgerReaderPool,
    roster: watch::Receiver<Arc<Roster>>,
    queue: watch::Receiver<Arc<Vec<TaskId>>>,
    sealing: watch::Receiver<SealingState>,
    shims: Arc<ShimRegistry>,
    projections: Projections,
    output_readers: OutputReaders,
    event_batches: EventBatchCache,
    pub(crate) verified: VerifiedFiles,
}

impl Records {
    pub(crate) fn new(
        home: Home,
        home_id: Option<HomeId>,
        readers: LedgerReaderPool,
        roster: watch::Receiver<Arc<Roster>>,
        queue: watch::Receiver<Arc<Vec<TaskId>>>,
        sealing: watch::Receiver<SealingState>,
        shims: Arc<ShimRegistry>,
    ) -> Self {
        Self {
            home,
            home_id,
            readers,
            roster,
            queue,
            sealing,
            shims,
            projections: Projections::default(),
            output_readers: OutputReaders::default(),
            event_batches: EventBatchCache::default(),
            verified: VerifiedFiles::default(),
        }
    }

    /// The id of this home; none if it has none.
    pub(crate) fn home_id(&self) -> Option<HomeId> {
        self.home_id
    }

    /// Reads the ledger.
    pub(crate) fn read_ledger<T>(
        &self,
        read: impl FnOnce(&LedgerReader) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        self.readers.with(read)
    }

    /// Switches to the ledger at this path.
    pub(crate) fn switch_ledger(&self, path: &Path) {
        self.readers.switch_file(path);
    }

    pub(crate) fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster.borrow())
    }

    /// Opens a file of a task. It must be a regular file.
    pub(crate) fn open_file(&self, task: TaskId, name: &str) -> io::Result<File> {
        output::open_regular(&self.home.task_dir(task).join(name))
    }

    /// The state of a task, folded without caching.
    pub(crate) fn state_once(&self, task: TaskId) -> Result<Option<TaskState>, TaskRefusal> {
        Ok(self.read_ledger(|r| Ok(TaskStream::read_state(&self.home, task, r)))??)
    }

    /// The decisions and frames of a task, from a sequence number on.
    pub(crate) fn stream(&self, task: TaskId, from: u64) -> TaskStream {
        TaskStream::starting_at(&self.home, task, from)
    }

    /// The next lines of a stream, with their sequence numbers.
    pub(crate) fn read_lines(&self, stream: &mut TaskStream, bytes: usize) -> Result<Vec<(u64, String)>, TaskRefusal> {
        Ok(self.read_ledger(|r| Ok(stream.next_lines(r, bytes)))??)
    }

    /// The bytes of one output frame, verified. `dropped` is what the output limit dropped before it.
    pub(crate) fn read_chunk(&self, task: TaskId, chunk: OutputChunk, dropped: u64) -> Result<Vec<u8>, ReadError> {
        let OutputChunk { stream, offset, len, digest } = chunk;
        output::read_verified_chunk(&self.home.task_dir(task), stream, offset, len, digest, dropped)
    }

    /// Both ends of a long output frame, unverified: for one that a live shim has just written.
    pub(crate) fn read_chunk_ends(
        &self,
        task: TaskId,
        chunk: OutputChunk,
        dropped: u64,
        end: usize,
    ) -> Result<(Vec<u8>, Vec<u8>), ReadError> {
        let OutputChunk { stream, offset, len, .. } = chunk;
        Ok(output::read_ends(&self.home.task_dir(task), stream, offset.saturating_sub(dropped), len, end)?)
    }

    /// The stored request of a task, while it waits.
    pub(crate) fn waiting_request(&self, task: TaskId) -> Option<WaitingRequest> {
        waiting::read(&self.home, task).ok()
    }

    /// The principal and session of a task.
    pub(crate) fn task_owner(&self, task: TaskId) -> Result<Option<(PrincipalId, Option<SessionId>)>, LedgerError> {
        match self.projections.task_owner(task) {
            Some(owner) => Ok(Some(owner)),
            None => self.read_ledger(|r| r.task_owner(task)),
        }
    }

    /// The task that a text names: an id, or an unambiguous prefix of one, with or without this home in front. A task
    /// that the caller may not see does not exist for it.
    pub(crate) fn find_task(&self, caller: &Caller, text: &str) -> Result<TaskId, TaskRefusal> {
        let text = TaskAddress::within(text, self.home_id).map_err(|why| {
            Refusal::new(RefusalCode::NotFound, format!("there is no task {}: {why}", DisplaySafe::bounded(text, 60)))
        })?;
        let unknown =
            || Refusal::new(RefusalCode::NotFound, format!("there is no task {}", DisplaySafe::bounded(text, 60)));
        let roster = self.roster();
        if let Ok(task) = text.parse::<TaskId>() {
            let seen =
                self.task_owner(task)?.is_some_and(|(principal, session)| caller.can_see(&roster, principal, session));
            return if seen { Ok(task) } else { Err(unknown().into()) };
        }
        if text.starts_with("ap_") {
            return Err(unknown().hint(format!("this is the id of an approval: csn approvals show {text}")).into());
        }
        let prefixed = if text.starts_with("tk_") { text.to_owned() } else { format!("tk_{text}") };
        if prefixed.len() < 3 + MIN_ID_CHARACTERS || !prefixed[3..].bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(unknown().into());
        }
        let found = self.read_ledger(|r| {
            let mut found = Vec::new();
            for task in r.tasks_by_prefix(&prefixed, caller.principal)? {
                found.extend(r.task_owner(task)?.filter(|(p, s)| caller.can_see(&roster, *p, *s)).map(|_| task));
            }
            Ok(found)
        })?;
        match found.as_slice() {
            [] => Err(unknown().into()),
            [one] => Ok(*one),
            _ => Err(Refusal::new(RefusalCode::AmbiguousId, format!("several tasks begin with {prefixed}"))
                .hint("use more characters of the id")
                .into()),
        }
    }

    /// Like [`Self::find_task`], for a caller that wants to type into the task or stop it.
    pub(crate) fn find_controlled_task(&self, caller: &Caller, text: &str) -> Result<TaskId, TaskRefusal> {
        let task = self.find_task(caller, text)?;
        let owner = self.read_ledger(|r| r.task_owner(task))?;
        let roster = self.roster();
        if owner.is_some_and(|(principal, session)| caller.can_control(&roster, principal, session)) {
            return Ok(task);
        }
        let refusal = Refusal::new(RefusalCode::Forbidden, "this task belongs to a session that another caller opened");
        Err(TaskRefusal::from(refusal).of_task(task))
    }

    /// Sets the current queue position of a task that waits for a slot.
    pub(crate) fn set_queue_position(&self, state: &mut TaskState) {
        if state.status == Status::Queued
            && let Some(at) = self.queue.borrow().iter().position(|t| *t == state.task_id)
        {
            state.wait = Some(QueueWait { waits_for: WaitsFor::Slot, position: Some(at as u64 + 1) });
        }
    }

    /// Whether settled tasks get a receipt.
    pub(crate) fn makes_receipts(&self) -> bool {
        self.sealing.borrow().can_seal()
    }

    /// Whether a task has its last record: its receipt, or its end if this daemon makes no receipts.
    pub(crate) fn has_last_record(&self, state: &TaskState) -> bool {
        state.receipt.is_some() || state.settled() && !self.makes_receipts()
    }

    /// The state of a task when it has settled or the time is up.
    pub(crate) async fn wait_for(&self, task: TaskId, wait: Duration) -> Result<TaskState, TaskRefusal> {
        let mut notifications = self.shims.subscribe(task);
        let ended = async {
            loop {
                let state = self.state(task)?;
                if state.settled() {
                    return Ok(state);
                }
                if notifications.changed().await.is_err() {
                    // The entry was removed when the task settled; the settlement can be read now.
                    notifications = self.shims.subscribe(task);
                }
            }
        };
        match tokio::time::timeout(wait, ended).await {
            Ok(Ok(state)) => {
                self.shims.forget_task(task);
                Ok(state)
            }
            Ok(Err(refused)) => Err(refused),
            Err(_) => self.state(task),
        }
    }

    /// Folds a task with a long history on a blocking thread. A task that is cached already needs only its newest
    /// records.
    pub(crate) async fn load_task(self: &Arc<Self>, task: TaskId) -> Result<(), TaskRefusal> {
        if self.projections.contains(task) {
            return Ok(());
        }
        let records = Arc::clone(self);
        blocking(move || records.state(task).map(drop)).await?
    }

    /// Forgets everything about a task whose files are removed.
    pub(crate) fn forget_task(&self, task: TaskId) {
        self.projections.forget(task);
        self.output_readers.forget(task);
        self.event_batches.forget(task);
    }

    pub(crate) fn cached_batch(&self, at: (TaskId, u64)) -> Option<EventBatch> {
        self.event_batches.get(at)
    }

    pub(crate) fn cache_batch(&self, at: (TaskId, u64), piece: EventBatch) {
        self.event_batches.insert(at, piece);
    }
}

/// The refusal for an unknown task.
fn unknown_task(task: TaskId) -> Refusal {
    Refusal::new(RefusalCode::NotFound, format!("there is no task {task}"))
}
