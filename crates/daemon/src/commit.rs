//! The commit loop: one thread that receives calls, lets the desk decide, commits the decisions to the ledger, and only
//! then acts on them.
//!
//! Group commit: all calls that have arrived when the thread is ready share one transaction and one sync. With more
//! than a few tasks running, and while calls come together, the thread waits briefly for more of them.

mod decide;

use crate::{
    calls::{AskOutcome, CommitCall, CommitHandle, CommitReply},
    confine,
    desk::{Desk, DeskEvent, DeskStep, FactsAtLaunch, ShimLaunch},
    facts::{self, PreparedRequest},
    moment::Moment,
    receipts::sealing::{LaunchSecrets, SealerHandle},
    register_command::{RegisterCommand, RegisterReply},
    shims::pool::ShimPool,
    shims::registry::{Notification, ShimRegistry},
    users::Users,
};
use countersign_model::{
    Confinement, DaemonState, DecidedBy, Decision, HomeKey, IdMint, Idempotency, Mode, Order, OrderError, Outcome,
    Refusal, RefusalCode, Request, ResolvedRequest, Roster, Sandbox, TaskId, Text, Timestamp,
};
use countersign_redact::text_by_shape;
use countersign_shim::IdleShim;
use countersign_store::{
    Home, clock, crash,
    ledger::{Ledger, LedgerEntry, LedgerError, LedgerReader},
    random, waiting,
};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use tokio::sync::{Notify, oneshot, watch};

/// How long the loop waits to batch more calls, for each running task, and at most.
const BATCH_WAIT_PER_TASK: Duration = Duration::from_micros(400);
const MAX_BATCH_WAIT: Duration = Duration::from_millis(3);
const TASKS_WITHOUT_BATCH_WAIT: usize = 3;
const MAX_BATCH_CALLS: usize = 512;
/// How long after a failed commit the loop tries again to record a settlement.
const COMMIT_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How many idempotency keys of requests that joined a waiting one are remembered.
const MAX_JOINED_KEYS: usize = 10_000;
/// How long an idempotency key is remembered.
const IDEMPOTENCY_KEY_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Everything that a commit loop is made from.
pub(crate) struct CommitParts {
    pub(crate) home: Home,
    pub(crate) users: Users,
    pub(crate) gate: Arc<facts::GateSettings>,
    pub(crate) ledger: Ledger,
    pub(crate) reader: LedgerReader,
    pub(crate) desk: Desk,
    /// The handle to the loop, and the receiving end of its calls.
    pub(crate) handle: CommitHandle,
    pub(crate) calls: mpsc::Receiver<CommitCall>,
    pub(crate) views: ViewSenders,
    pub(crate) pool: Arc<ShimPool>,
    pub(crate) registry: Arc<ShimRegistry>,
    /// The threads that publish and seal settled tasks, and the secrets that the sealer redacts.
    pub(crate) publisher: mpsc::Sender<TaskId>,
    pub(crate) sealer: SealerHandle,
    pub(crate) launch_secrets: LaunchSecrets,
    /// Notified when the ledger cannot be read.
    pub(crate) ledger_damage: Arc<Notify>,
}

/// The state of the commit loop that others may read, as of its last commit.
#[derive(Clone)]
pub(crate) struct CommittedViews {
    /// The tasks that wait for a slot, in order.
    pub(crate) queue: watch::Receiver<Arc<Vec<TaskId>>>,
    /// Sessions and credentials.
    pub(crate) roster: watch::Receiver<Arc<Roster>>,
    /// The number of decisions in the ledger.
    pub(crate) decision_count: watch::Receiver<i64>,
}

pub(crate) struct ViewSenders {
    queue: watch::Sender<Arc<Vec<TaskId>>>,
    roster: watch::Sender<Arc<Roster>>,
    decision_count: watch::Sender<i64>,
}

impl CommittedViews {
    pub(crate) fn from_desk(desk: &Desk, ledger: &Ledger) -> (ViewSenders, Self) {
        let (queue, queue_view) = watch::channel(Arc::new(desk.queue()));
        let (roster, roster_view) = watch::channel(Arc::new(desk.register.roster.clone()));
        let (decision_count, decision_count_view) = watch::channel(ledger.last_number());
        (
            ViewSenders { queue, roster, decision_count },
            Self { queue: queue_view, roster: roster_view, decision_count: decision_count_view },
        )
    }
}

pub(crate) struct CommitLoop {
    home: Home,
    gate: Arc<facts::GateSettings>,
    ledger: Ledger,
    reader: LedgerReader,
    desk: Desk,
    pool: Arc<ShimPool>,
    registry: Arc<ShimRegistry>,
    calls: mpsc::Receiver<CommitCall>,
    mint: IdMint,
    views: ViewSenders,
    /// Whether requests are accepted and queued tasks may start.
    serving: bool,
    /// The thread that prepares waiting tasks again, and the tasks that it is working on.
    preparer: mpsc::Sender<TaskId>,
    preparing: HashSet<TaskId>,
    /// Receives settled tasks whose output is published to a workspace.
    publisher: mpsc::Sender<TaskId>,
    /// Receives settled tasks, which need a receipt.
    sealer: SealerHandle,
    /// The secrets that launched tasks were given, for the sealer.
    launch_secrets: LaunchSecrets,
    /// Events that could not be committed yet.
    uncommitted: Vec<DeskEvent>,
    /// How many calls the last batch had.
    last_batch_calls: usize,
    /// Idempotency keys of the current batch.
    fresh_keys: HashMap<countersign_model::Digest, (TaskId, Idempotency)>,
    /// Keys of requests that joined a waiting one. They have no record of their own and are lost when the daemon stops.
    joined_keys: HashMap<countersign_model::Digest, (TaskId, Idempotency, Timestamp)>,
    /// Notified when the ledger cannot be read.
    ledger_damage: Arc<Notify>,
}

/// Why a task that was permitted did not start.
#[derive(Debug, thiserror::Error)]
enum LaunchFailure {
    #[error(transparent)]
    NoProgram(#[from] facts::NoSuchProgram),
    #[error("the path of the file cannot be resolved")]
    NoPlace,
    #[error("the task has ended")]
    Over,
    #[error(transparent)]
    Unpermitted(#[from] OrderError),
    #[error("the supervisor did not accept its order: {0}")]
    NotTaken(std::io::Error),
}

impl LaunchFailure {
    /// The exit code that a shell would give.
    fn exit_code(&self) -> i32 {
        match self {
            Self::NoProgram(_) => 127,
            Self::NoPlace | Self::Over | Self::Unpermitted(_) | Self::NotTaken(_) => 125,
        }
    }
}

/// A step of the desk, and what to do when it is committed.
struct PendingReplies {
    step: DeskStep,
    /// The request that would be launched, and its sandbox.
    prepared: Option<(PreparedRequest, Request, Sandbox)>,
    idle_shim: Option<IdleShim>,
    after_commit: AfterCommit,
}

impl PendingReplies {
    /// For a step that launches nothing.
    fn without_launch(step: DeskStep, after_commit: AfterCommit) -> Self {
        Self { step, prepared: None, idle_shim: None, after_commit }
    }
}

/// What one batch of calls has led to so far.
#[derive(Default)]
struct CommitBatch {
    pending: Vec<PendingReplies>,
    checkpoints: Vec<CommitReply<bool>>,
    barriers: Vec<oneshot::Sender<Vec<TaskId>>>,
    halt: Option<oneshot::Sender<()>>,
}

enum AfterCommit {
    Asked(CommitReply<AskOutcome>, AskOutcome),
    Replayed(CommitReply<AskOutcome>, Result<AskOutcome, Refusal>),
    /// With the desk's refusal, if it refused. Sent after the commit, when the caller can read what it conflicts with.
    Plain(CommitReply<()>, Result<(), Refusal>),
    Registered(CommitReply<RegisterReply>, Result<RegisterReply, Refusal>),
    /// Nobody waits for a reply. The event is tried again if the commit fails.
    Event(Option<DeskEvent>),
}

impl CommitLoop {
    /// A loop that accepts no requests until the daemon state is `Running`.
    pub(crate) fn new(parts: CommitParts) -> std::io::Result<Self> {
        let CommitParts { home, users, gate, ledger, reader, desk, handle, calls, views, .. } = parts;
        Ok(Self {
            preparer: spawn_preparer(home.clone(), gate.key.clone(), users, handle)?,
            home,
            gate,
            ledger,
            reader,
            desk,
            pool: parts.pool,
            registry: parts.registry,
            calls,
            mint: IdMint::default(),
            views,
            serving: false,
            preparing: HashSet::new(),
            publisher: parts.publisher,
            sealer: parts.sealer,
            launch_secrets: parts.launch_secrets,
            uncommitted: Vec::new(),
            last_batch_calls: 0,
            fresh_keys: HashMap::new(),
            joined_keys: HashMap::new(),
            ledger_damage: parts.ledger_damage,
        })
    }

    pub(crate) fn run(mut self) {
        let mut halted = None;
        while halted.is_none() {
            let mut batch = Vec::new();
            // A task that has a slot but could not start is tried again, even if no call arrives.
            let stuck = self.serving && self.desk.ready_tasks().iter().any(|task| !self.preparing.contains(task));
            if self.uncommitted.is_empty() && !stuck {
                match self.calls.recv() {
                    Ok(call) => batch.push(call),
                    Err(_) => return,
                }
            } else {
                batch.extend(self.calls.recv_timeout(COMMIT_RETRY_INTERVAL).ok());
                batch.extend(std::mem::take(&mut self.uncommitted).into_iter().map(Box::new).map(CommitCall::Event));
            }
            self.fill_batch(&mut batch);
            self.last_batch_calls = batch.len();
            halted = self.process_batch(batch);
        }
        if let Err(e) = self.ledger.checkpoint() {
            crate::log!("the ledger was not checkpointed: {e}");
        }
        drop(self.ledger);
        self.pool.close();
        if let Some(reply) = halted {
            let _ = reply.send(());
        }
    }

    fn fill_batch(&self, batch: &mut Vec<CommitCall>) {
        self.take_arrived(batch);
        let busy = self.desk.running_count();
        // A call that comes alone waits for nobody, however many tasks run without a call.
        let together = self.last_batch_calls.max(batch.len()) > 1;
        if together && busy > TASKS_WITHOUT_BATCH_WAIT && batch.len() < busy {
            let wait = BATCH_WAIT_PER_TASK.saturating_mul(u32::try_from(busy).unwrap_or(u32::MAX));
            // Asleep: each call that arrives would wake this thread, which would only wait for the next one.
            thread::sleep(wait.min(MAX_BATCH_WAIT));
            self.take_arrived(batch);
        }
    }

    fn take_arrived(&self, batch: &mut Vec<CommitCall>) {
        while batch.len() < MAX_BATCH_CALLS
            && let Ok(call) = self.calls.try_recv()
        {
            batch.push(call);
        }
    }

    /// Decides about a batch, commits it and acts on it. Returns the reply to a halt, if the batch contains one.
    fn process_batch(&mut self, calls: Vec<CommitCall>) -> Option<oneshot::Sender<()>> {
        let mut batch = CommitBatch::default();
        for call in calls {
            self.handle_call(call, &mut batch);
        }
        self.commit(batch.pending);
        self.prepare_ready_tasks();
        self.publish_queue();
        for reply in batch.checkpoints {
            let _ = reply.send(self.ledger.checkpoint().map_err(|e| ledger_refusal(&e)));
        }
        for barrier in batch.barriers {
            let _ = barrier.send(self.desk.launched_tasks());
        }
        batch.halt
    }

    fn handle_call(&mut self, call: CommitCall, batch: &mut CommitBatch) {
        let pending = &mut batch.pending;
        match call {
            // The asker has gone away, and nothing was decided yet.
            CommitCall::Ask { reply, .. } if reply.is_closed() => {}
            // These calls were accepted before the daemon began to stop.
            CommitCall::Ask { reply, .. } if !self.serving => drop(reply.send(Err(draining_refusal()))),
            CommitCall::Answer { reply, .. } if !self.serving => drop(reply.send(Err(draining_refusal()))),
            CommitCall::Register { reply, .. } if !self.serving => drop(reply.send(Err(draining_refusal()))),
            CommitCall::Ask { asking, reply } => pending.extend(self.ask(*asking, reply)),
            CommitCall::Answer { answering, reply } => pending.extend(self.answer(*answering, reply)),
            CommitCall::Withdraw { task, by, reply } => pending.push(self.withdraw(task, by, reply)),
            CommitCall::Decide { events, reply } => pending.push(self.decide(events, reply)),
            CommitCall::Register { command, reply } => pending.push(self.decide_register(command, reply)),
            CommitCall::Event(event) => pending.extend(self.decide_event(*event)),
            CommitCall::Prepared { task, world, prepared } => {
                pending.extend(self.on_prepared(task, world, prepared.map(|l| *l)))
            }
            CommitCall::GiveUpUnreported { before } => pending.extend(self.give_up_unreported(before)),
            CommitCall::ReadRegister(read) => read(&self.desk.register),
            CommitCall::RebuildIndex { reply } => {
                let _ = reply.send(self.ledger.rebuild_index().map_err(|e| ledger_refusal(&e)));
            }
            CommitCall::Checkpoint { reply } => batch.checkpoints.push(reply),
            CommitCall::Barrier { reply } => batch.barriers.push(reply),
            CommitCall::Halt { reply } => batch.halt = Some(reply),
        }
    }

    fn withdraw(&mut self, task: TaskId, by: Text, reply: CommitReply<()>) -> PendingReplies {
        match self.step(DeskEvent::Withdrawn { task, by }) {
            Ok(step) => PendingReplies::without_launch(step, AfterCommit::Plain(reply, Ok(()))),
            Err(refusal) => {
                PendingReplies::without_launch(DeskStep::default(), AfterCommit::Plain(reply, Err(refusal)))
            }
        }
    }

    /// Decides about all of these events that the desk accepts. The reply is the last refusal, if there was one.
    fn decide(&mut self, events: Vec<DeskEvent>, reply: CommitReply<()>) -> PendingReplies {
        let (mut all, mut result) = (DeskStep::default(), Ok(()));
        for event in events {
            match self.step(event) {
                Ok(step) => {
                    all.decisions.extend(step.decisions);
                    all.publish.extend(step.publish);
                }
                Err(refusal) => result = Err(refusal),
            }
        }
        PendingReplies::without_launch(all, AfterCommit::Plain(reply, result))
    }

    fn decide_register(&mut self, command: RegisterCommand, reply: CommitReply<RegisterReply>) -> PendingReplies {
        match self.step(DeskEvent::RegisterCommand(command)) {
            Ok(mut step) => {
                let register_reply = step.register_reply.take().unwrap_or(RegisterReply::Nothing);
                PendingReplies::without_launch(step, AfterCommit::Registered(reply, Ok(register_reply)))
            }
            Err(refusal) => {
                PendingReplies::without_launch(DeskStep::default(), AfterCommit::Registered(reply, Err(refusal)))
            }
        }
    }

    /// Decides about an event that nobody waits for.
    fn decide_event(&mut self, event: DeskEvent) -> Option<PendingReplies> {
        if let DeskEvent::DaemonState { state, .. } = &event {
            self.serving = *state == DaemonState::Running;
            // A grant that was saved just before the previous daemon ended may cover a waiting task.
            let waiting = if self.serving { self.desk.tasks_awaiting_approval() } else { Vec::new() };
            for task in waiting {
                self.prepare_task(task);
            }
        }
        let again = copy_reported_fact(&event);
        Some(PendingReplies::without_launch(self.step(event).ok()?, AfterCommit::Event(again)))
    }

    /// A task that waits, for an approval or for a slot, has been prepared again.
    fn on_prepared(
        &mut self,
        task: TaskId,
        world: FactsAtLaunch,
        prepared: Option<(PreparedRequest, Request)>,
    ) -> Option<PendingReplies> {
        self.preparing.remove(&task);
        if self.desk.pending_question(task).is_some() {
            self.release(task, world, prepared)
        } else {
            self.fill_slot(task, world, prepared)
        }
    }

    fn give_up_unreported(&mut self, before: Timestamp) -> Vec<PendingReplies> {
        let mut pending = Vec::new();
        for task in self.desk.unreported_before(before) {
            let outcome = Outcome::Lost { why: Text::from_static("the outcome was never reported") };
            let step = self.step(DeskEvent::OutcomeReported { task, outcome }).ok();
            pending.extend(step.map(|step| PendingReplies::without_launch(step, AfterCommit::Event(None))));
        }
        pending
    }

    /// Makes decisions durable, then does what follows from them.
    fn commit(&mut self, pending: Vec<PendingReplies>) {
        let entries: Vec<&LedgerEntry> = pending.iter().flat_map(|p| &p.step.decisions).collect();
        let written = if entries.is_empty() { Ok(()) } else { self.ledger.commit(entries.iter().copied()) };
        self.fresh_keys.clear();
        if let Err(e) = written {
            self.undo_failed_commit(pending, &e);
            self.views.roster.send_replace(Arc::new(self.desk.register.roster.clone()));
            return;
        }
        // The next caller must be recognised by what is committed now.
        if entries.iter().any(|e| matches!(e.decision, Decision::Entered(_))) {
            self.views.roster.send_replace(Arc::new(self.desk.register.roster.clone()));
        }
        let decided = !entries.is_empty();
        pending.into_iter().for_each(|p| self.act(p));
        if decided {
            self.views.decision_count.send_replace(self.ledger.last_number());
        }
    }

    fn publish_queue(&self) {
        let queue = self.desk.queue();
        self.views.queue.send_if_modified(|old| {
            let changed = **old != queue;
            if changed {
                *old = Arc::new(queue);
            }
            changed
        });
    }

    /// Has a task prepared again, on the preparing thread.
    fn prepare_task(&mut self, task: TaskId) {
        if self.preparing.insert(task) && self.preparer.send(task).is_err() {
            self.preparing.remove(&task);
        }
    }

    fn step(&mut self, event: DeskEvent) -> Result<DeskStep, Refusal> {
        let random = u32::from_le_bytes(random());
        self.desk.step(Moment { at: clock::now(), random, mint: &mut self.mint }, event)
    }

    /// Acts on a step whose decisions are durable.
    fn act(&mut self, pending: PendingReplies) {
        let PendingReplies { step, prepared, idle_shim, after_commit } = pending;
        match (step.launch, prepared, idle_shim) {
            (Some(launch), Some(prepared), Some(idle_shim)) => self.hand_over(launch, prepared, idle_shim),
            (launch, _, idle_shim) => {
                self.give_back(idle_shim);
                if let Some(ShimLaunch { permit, .. }) = launch {
                    let error = Text::from_static("the stored request is missing");
                    self.registry.send_event(DeskEvent::NotStarted {
                        task: permit.task,
                        error,
                        code: 125,
                        recovered: false,
                    });
                }
            }
        }
        step.may_release.into_iter().for_each(|task| self.prepare_task(task));
        if let Some(task) = step.drop_request
            && let Err(e) = waiting::remove(&self.home, task)
        {
            crate::log!("{task}: its stored request could not be deleted: {e}");
        }
        for task in step.publish {
            let _ = self.publisher.send(task);
        }
        step.decisions.iter().for_each(|entry| self.announce(entry));
        match after_commit {
            AfterCommit::Asked(reply, asked) => drop(reply.send(Ok(asked))),
            AfterCommit::Replayed(reply, earlier) => drop(reply.send(earlier)),
            AfterCommit::Plain(reply, result) => drop(reply.send(result)),
            AfterCommit::Registered(reply, result) => drop(reply.send(result)),
            AfterCommit::Event(_) => {}
        }
    }

    /// Gives a shim its order. A task that cannot be started settles as failed.
    fn hand_over(
        &self,
        launch: ShimLaunch,
        (prepared, request, sandbox): (PreparedRequest, Request, Sandbox),
        idle_shim: IdleShim,
    ) {
        crash::point("commit.before_hand_over");
        let (task, pid) = (launch.permit.task, idle_shim.pid());
        self.registry.remember_shim(task, pid);
        let taken = self
            .order(launch, prepared, &request, sandbox)
            .and_then(|order| idle_shim.hand_over(order).map_err(LaunchFailure::NotTaken));
        match taken {
            Ok(channel) => self.registry.adopt_shim(task, pid, channel),
            Err(why) => {
                let (error, code) = (text_by_shape(&why.to_string()), why.exit_code());
                self.registry.send_event(DeskEvent::NotStarted { task, error, code, recovered: false });
            }
        }
        crash::point("commit.after_hand_over");
    }

    fn give_back(&self, idle_shim: Option<IdleShim>) {
        if let Some(idle_shim) = idle_shim {
            self.pool.give_back(idle_shim);
        }
    }

    /// Notifies the followers of a task of a decision about it, and has a settled task sealed.
    fn announce(&self, entry: &LedgerEntry) {
        let Some(task) = entry.task else { return };
        let notification = match entry.decision {
            Decision::Settled { .. } => Notification::Settled,
            Decision::Sealed(_) => Notification::Last,
            _ => Notification::More,
        };
        self.registry.notify(task, notification);
        if notification == Notification::Settled {
            self.sealer.queue_task(task);
        }
    }

    fn order(
        &self,
        launch: ShimLaunch,
        prepared: PreparedRequest,
        request: &Request,
        sandbox: Sandbox,
    ) -> Result<Order, LaunchFailure> {
        let task = launch.permit.task;
        let exec = prepared.exec(&self.gate.key)?;
        let builtin = prepared.builtin(request);
        if request.tool.is_builtin() && builtin.is_none() {
            return Err(LaunchFailure::NoPlace);
        }
        let requester = self.desk.requester(task);
        let session = requester.and_then(|s| self.desk.register.roster.session(s.session?)).cloned();
        let sandbox_spec = match requester {
            Some(requester) => confine::sandbox_spec(&prepared, &self.gate, &requester, session.as_deref(), sandbox),
            None => return Err(LaunchFailure::Over),
        };
        let (mut env, mut exposure, mut limits) = (prepared.env, prepared.exposure, request.limits);
        if launch.permit.confinement == Confinement::ReadOnly {
            let asked = matches!(launch.permit.by, DecidedBy::Person { .. });
            confine::reduce_environment(request, asked, &prepared.home, &mut env, &mut exposure);
            confine::limit_read_only(&mut limits);
        }
        if launch.permit.confinement != Confinement::ReadOnly && builtin.is_none() {
            self.launch_secrets.remember(task, &env, &exec.argv);
        }
        env.push((countersign_model::MARKER.to_owned(), task.to_string()));
        let what = ResolvedRequest {
            task,
            plan_digest: prepared.plan_digest,
            exec,
            builtin,
            cwd: prepared.facts.cwd,
            env,
            exposure,
            mode: request.mode,
            limits,
            leftovers: request.leftovers,
            on_output_limit: request.on_output_limit,
            stdin: request.args.stdin,
            tell_directory: request.args.tell_directory
                && request.args.command.is_some()
                && request.mode == Mode::Pipes,
            rows: request.args.rows.unwrap_or(facts::DEFAULT_ROWS),
            cols: request.args.cols.unwrap_or(facts::DEFAULT_COLS),
            task_dir: self.home.task_dir(task).to_string_lossy().into_owned(),
            run_dir: self.home.run().to_string_lossy().into_owned(),
            first_seq: launch.first_seq,
            prologue_head: launch.prologue_head,
            secret: crate::shims::registry::shim_secret(&self.gate.key, task),
            mask_key: crate::case::mask_key(&self.gate.key),
            redaction: self.gate.redaction.clone(),
            known_secrets: session.as_ref().map(|s| self.registry.learned.start(task, s.id)).unwrap_or_default(),
            sandbox: sandbox_spec,
            user: prepared.user,
        };
        Ok(Order::new(launch.permit, what)?)
    }

    /// A commit failed: nothing was decided, so nothing is done. Events that report facts are tried again.
    fn undo_failed_commit(&mut self, pending: Vec<PendingReplies>, error: &LedgerError) {
        crate::log!("a commit failed and was rolled back: {error}");
        if error.is_damage() {
            self.ledger_damage.notify_one();
        }
        for p in pending {
            self.give_back(p.idle_shim);
            match p.after_commit {
                AfterCommit::Asked(reply, asked) => {
                    let _ = waiting::remove(&self.home, asked.task);
                    let _ = reply.send(Err(ledger_refusal(error)));
                }
                AfterCommit::Replayed(reply, earlier) => drop(reply.send(earlier.and(Err(ledger_refusal(error))))),
                AfterCommit::Plain(reply, result) => drop(reply.send(result.and(Err(ledger_refusal(error))))),
                AfterCommit::Registered(reply, result) => drop(reply.send(result.and(Err(ledger_refusal(error))))),
                AfterCommit::Event(again) => self.uncommitted.extend(again),
            }
        }
        match Desk::restore(&self.reader, self.desk.caps(), self.desk.policy) {
            Ok(desk) => self.desk = desk,
            Err(e) => crate::log!("the desk cannot be restored from the ledger: {e}"),
        }
    }
}

fn draining_refusal() -> Refusal {
    Refusal::new(RefusalCode::Draining, "the daemon is stopping and accepts no new requests")
        .hint("pending approvals and queued tasks stay; try again when the daemon runs")
}

/// Starts the thread that prepares waiting tasks again and reports to the commit loop.
fn spawn_preparer(
    home: Home,
    key: HomeKey,
    users: Users,
    commit: CommitHandle,
) -> std::io::Result<mpsc::Sender<TaskId>> {
    let (send, tasks) = mpsc::channel();
    std::thread::Builder::new().name("prepare".into()).spawn(move || {
        for task in tasks {
            // A request that cannot be read is not run: the desk settles its task as one that could not be started.
            let (world, prepared) = facts::prepare_again(&home, &key, &users, task).unwrap_or_else(|refusal| {
                crate::log!("{task}: {refusal}");
                (FactsAtLaunch::Same, None)
            });
            if !commit.finish_preparing(task, world, prepared) {
                return;
            }
        }
    })?;
    Ok(send)
}

/// A copy of an event that reports a fact: the loop must repeat it until it is recorded.
fn copy_reported_fact(event: &DeskEvent) -> Option<DeskEvent> {
    match event {
        DeskEvent::Closed { task, closing, recovered } => {
            Some(DeskEvent::Closed { task: *task, closing: closing.clone(), recovered: *recovered })
        }
        DeskEvent::NotStarted { task, error, code, recovered } => {
            Some(DeskEvent::NotStarted { task: *task, error: error.clone(), code: *code, recovered: *recovered })
        }
        DeskEvent::Lost { task, known, why, head, next_seq, recovered } => Some(DeskEvent::Lost {
            task: *task,
            known: known.clone(),
            why: why.clone(),
            head: *head,
            next_seq: *next_seq,
            recovered: *recovered,
        }),
        DeskEvent::OutcomeReported { task, outcome } => {
            Some(DeskEvent::OutcomeReported { task: *task, outcome: outcome.clone() })
        }
        DeskEvent::Asked(_)
        | DeskEvent::Unredeemed { .. }
        | DeskEvent::Observed { .. }
        | DeskEvent::Answered(_)
        | DeskEvent::SlotFree { .. }
        | DeskEvent::Covered { .. }
        | DeskEvent::RegisterCommand(_)
        | DeskEvent::Withdrawn { .. }
        | DeskEvent::Expired { .. }
        | DeskEvent::Sealed { .. }
        | DeskEvent::Shutdown(_)
        | DeskEvent::Key(_)
        | DeskEvent::DaemonState { .. } => None,
    }
}

fn ledger_refusal(error: &LedgerError) -> Refusal {
    Refusal::new(RefusalCode::LedgerUnavailable, format!("{error}"))
        .hint("nothing was started; check the disk that holds the home, then try again")
}

fn no_shim(pool: &ShimPool, error: &std::io::Error) -> Refusal {
    Refusal::new(RefusalCode::Internal, format!("the supervisor {} cannot be started: {error}", pool.path().display()))
        .hint("csn-shim must be in the same directory as csn; `cargo xtask build` puts it there")
}
