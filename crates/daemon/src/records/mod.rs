//! The one way to read: the ledger, journals and output of tasks, and the states that are folded from them. Nothing
//! else of the daemon opens what lies below the home for reading.

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

/// How much of an id must be given: a variable that is not set must not name the only task there is.
const MIN_ID_CHARACTERS: usize = 4;

/// What an output frame says of its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputChunk {
    pub(crate) stream: StreamName,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) digest: Digest,
}

impl OutputChunk {
    /// Of an output frame; none of any other.
    pub(crate) fn of(frame: &Frame) -> Option<Self> {
        let Frame::Output { stream, offset, len, digest } = frame else { return None };
        Some(Self { stream: *stream, offset: *offset, len: *len, digest: *digest })
    }
}

/// What is recorded in a home, and what was read of it of late.
pub(crate) struct Records {
    home: Home,
    home_id: Option<HomeId>,
    readers: LedgerReaderPool,
    roster: watch::Receiver<Arc<Roster>>,
    line: watch::Receiver<Arc<Vec<TaskId>>>,
    sealing: watch::Receiver<SealingState>,
    shims: Arc<ShimRegistry>,
    projections: Projections,
    readings: OutputReaders,
    pieces: EventBatchCache,
    pub(crate) verified: VerifiedFiles,
}

impl Records {
    pub(crate) fn new(
        home: Home,
        home_id: Option<HomeId>,
        readers: LedgerReaderPool,
        roster: watch::Receiver<Arc<Roster>>,
        line: watch::Receiver<Arc<Vec<TaskId>>>,
        sealing: watch::Receiver<SealingState>,
        shims: Arc<ShimRegistry>,
    ) -> Self {
        Self {
            home,
            home_id,
            readers,
            roster,
            line,
            sealing,
            shims,
            projections: Projections::default(),
            readings: OutputReaders::default(),
            pieces: EventBatchCache::default(),
            verified: VerifiedFiles::default(),
        }
    }

    /// The id of this home; none where it could not be given one.
    pub(crate) fn home_id(&self) -> Option<HomeId> {
        self.home_id
    }

    /// Reads the ledger.
    pub(crate) fn ledger<T>(
        &self,
        read: impl FnOnce(&LedgerReader) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        self.readers.with(read)
    }

    /// From now on the ledger is read there.
    pub(crate) fn switch_ledger(&self, path: &Path) {
        self.readers.switch_file(path);
    }

    pub(crate) fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster.borrow())
    }

    /// A file of a task: a regular one, and not what was put in its place.
    pub(crate) fn file(&self, task: TaskId, name: &str) -> io::Result<File> {
        output::open_regular(&self.home.task_dir(task).join(name))
    }

    /// The state of a task, folded by itself: what is removed next need not be remembered.
    pub(crate) fn state_once(&self, task: TaskId) -> Result<Option<TaskState>, TaskRefusal> {
        Ok(self.ledger(|r| Ok(TaskStream::read_state(&self.home, task, r)))??)
    }

    /// The decisions and frames of a task, from a number on.
    pub(crate) fn stream(&self, task: TaskId, from: u64) -> TaskStream {
        TaskStream::starting_at(&self.home, task, from)
    }

    /// The next lines of a stream, with their numbers.
    pub(crate) fn next(&self, stream: &mut TaskStream, bytes: usize) -> Result<Vec<(u64, String)>, TaskRefusal> {
        Ok(self.ledger(|r| Ok(stream.next_lines(r, bytes)))??)
    }

    /// The bytes of one output frame, checked. `dropped` is what the output limit dropped before it.
    pub(crate) fn chunk(&self, task: TaskId, chunk: OutputChunk, dropped: u64) -> Result<Vec<u8>, ReadError> {
        let OutputChunk { stream, offset, len, digest } = chunk;
        output::read_verified_chunk(&self.home.task_dir(task), stream, offset, len, digest, dropped)
    }

    /// Both ends of a long output frame, unchecked: for one that a living shim has just written.
    pub(crate) fn chunk_ends(
        &self,
        task: TaskId,
        chunk: OutputChunk,
        dropped: u64,
        end: usize,
    ) -> Result<(Vec<u8>, Vec<u8>), ReadError> {
        let OutputChunk { stream, offset, len, .. } = chunk;
        Ok(output::read_ends(&self.home.task_dir(task), stream, offset.saturating_sub(dropped), len, end)?)
    }

    /// The raw request of a task that waits, if it still does.
    pub(crate) fn waiting(&self, task: TaskId) -> Option<WaitingRequest> {
        waiting::read(&self.home, task).ok()
    }

    /// Whose a task is.
    pub(crate) fn task_owner(&self, task: TaskId) -> Result<Option<(PrincipalId, Option<SessionId>)>, LedgerError> {
        match self.projections.task_owner(task) {
            Some(whose) => Ok(Some(whose)),
            None => self.ledger(|r| r.task_owner(task)),
        }
    }

    /// The task that a text names: a whole id, or the beginning of exactly one, and this home in front of it or none. A
    /// task that the caller may not see is one that is not there.
    pub(crate) fn find(&self, caller: &Caller, text: &str) -> Result<TaskId, TaskRefusal> {
        let text = TaskAddress::within(text, self.home_id).map_err(|why| {
            Refusal::new(RefusalCode::NotFound, format!("there is no task {}: {why}", DisplaySafe::bounded(text, 60)))
        })?;
        let unknown =
            || Refusal::new(RefusalCode::NotFound, format!("there is no task {}", DisplaySafe::bounded(text, 60)));
        let roster = self.roster();
        if let Ok(task) = text.parse::<TaskId>() {
            let seen =
                self.task_owner(task)?.is_some_and(|(principal, session)| caller.sees(&roster, principal, session));
            return if seen { Ok(task) } else { Err(unknown().into()) };
        }
        if text.starts_with("ap_") {
            return Err(unknown().hint(format!("that is an approval: csn approvals show {text}")).into());
        }
        let prefixed = if text.starts_with("tk_") { text.to_owned() } else { format!("tk_{text}") };
        if prefixed.len() < 3 + MIN_ID_CHARACTERS || !prefixed[3..].bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(unknown().into());
        }
        let found = self.ledger(|r| {
            let mut found = Vec::new();
            for task in r.tasks_by_prefix(&prefixed, caller.principal)? {
                found.extend(r.task_owner(task)?.filter(|(p, s)| caller.sees(&roster, *p, *s)).map(|_| task));
            }
            Ok(found)
        })?;
        match found.as_slice() {
            [] => Err(unknown().into()),
            [one] => Ok(*one),
            _ => Err(Refusal::new(RefusalCode::AmbiguousId, format!("more than one task begins with {prefixed}"))
                .hint("give more characters of the id")
                .into()),
        }
    }

    /// The same, for those who want to type into it or stop it.
    pub(crate) fn find_own(&self, caller: &Caller, text: &str) -> Result<TaskId, TaskRefusal> {
        let task = self.find(caller, text)?;
        let whose = self.ledger(|r| r.task_owner(task))?;
        let roster = self.roster();
        if whose.is_some_and(|(principal, session)| caller.controls(&roster, principal, session)) {
            return Ok(task);
        }
        let refusal = Refusal::new(RefusalCode::Forbidden, "this task is of a session that somebody else opened");
        Err(TaskRefusal::from(refusal).of_task(task))
    }

    /// Where a task that waits for a slot stands now.
    pub(crate) fn place_in_line(&self, state: &mut TaskState) {
        if state.status == Status::Queued
            && let Some(at) = self.line.borrow().iter().position(|t| *t == state.task_id)
        {
            state.wait = Some(QueueWait { waits_for: WaitsFor::Slot, position: Some(at as u64 + 1) });
        }
    }

    /// Whether what settles gets its receipt.
    pub(crate) fn seals(&self) -> bool {
        self.sealing.borrow().works()
    }

    /// Whether nothing more will come of a task: it has its receipt, or gets none from this daemon.
    pub(crate) fn is_over(&self, state: &TaskState) -> bool {
        state.receipt.is_some() || state.settled() && !self.seals()
    }

    /// The state of a task when it has settled or time is up.
    pub(crate) async fn wait_for(&self, task: TaskId, wait: Duration) -> Result<TaskState, TaskRefusal> {
        let mut notifications = self.shims.subscribe(task);
        let ended = async {
            loop {
                let state = self.state(task)?;
                if state.settled() {
                    return Ok(state);
                }
                if notifications.changed().await.is_err() {
                    // The entry went with its settlement: what that wrote is there now.
                    notifications = self.shims.subscribe(task);
                }
            }
        };
        match tokio::time::timeout(wait, ended).await {
            Ok(Ok(state)) => {
                self.shims.unlist(task);
                Ok(state)
            }
            Ok(Err(refused)) => Err(refused),
            Err(_) => self.state(task),
        }
    }

    /// Folds a task whose beginning lies far back on a thread where that may take its time. What is folded already is
    /// brought up to now in a moment.
    pub(crate) async fn warm(self: &Arc<Self>, task: TaskId) -> Result<(), TaskRefusal> {
        if self.projections.knows(task) {
            return Ok(());
        }
        let records = Arc::clone(self);
        blocking(move || records.state(task).map(drop)).await?
    }

    /// Nothing of this task is remembered: what it left on the disk goes.
    pub(crate) fn forget(&self, task: TaskId) {
        self.projections.forget(task);
        self.readings.forget(task);
        self.pieces.forget(task);
    }

    pub(crate) fn piece(&self, at: (TaskId, u64)) -> Option<EventBatch> {
        self.pieces.get(at)
    }

    pub(crate) fn keep_piece(&self, at: (TaskId, u64), piece: EventBatch) {
        self.pieces.put(at, piece);
    }
}

/// There is no such task.
fn unknown(task: TaskId) -> Refusal {
    Refusal::new(RefusalCode::NotFound, format!("there is no task {task}"))
}
