//! Where the desk works: one thread that takes what comes, lets the desk decide, writes it down, and only then acts.
//!
//! Group commit: everything that has come in by the time the thread gets to it shares one transaction and one sync.
//! With many tasks under way it waits a moment for company; with few it does not.

mod decide;

use crate::{
    calls::{AskOutcome, CommitCall, CommitHandle, CommitReply},
    confine,
    desk::{Desk, DeskEvent, DeskStep, FactsAtLaunch, ShimLaunch},
    facts::{self, Prepared},
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
    time::Duration,
};
use tokio::sync::{Notify, oneshot, watch};

/// How long the office waits for company, for each task under way beyond the first few.
const COMPANY_EACH: Duration = Duration::from_micros(500);
const COMPANY_MOST: Duration = Duration::from_millis(4);
const FEW: usize = 3;
const BATCH: usize = 512;
/// How long after a failed commit a settled task is written down again.
const RETRY: Duration = Duration::from_secs(1);
/// So many keys of requests that joined others are remembered.
const MOST_JOINED: usize = 10_000;
/// How long an idempotency key is remembered.
const IDEMPOTENCY: Duration = Duration::from_secs(24 * 3600);

/// What the commit loop works with.
pub(crate) struct CommitParts {
    pub(crate) home: Home,
    pub(crate) users: Users,
    pub(crate) gate: Arc<facts::GateSettings>,
    pub(crate) ledger: Ledger,
    pub(crate) reader: LedgerReader,
    pub(crate) desk: Desk,
    /// The handle to the loop, and the end of it at which calls arrive.
    pub(crate) handle: CommitHandle,
    pub(crate) calls: mpsc::Receiver<CommitCall>,
    pub(crate) views: ViewSenders,
    pub(crate) pool: Arc<ShimPool>,
    pub(crate) registry: Arc<ShimRegistry>,
    /// Who publishes and who seals what has settled, and what tasks are given, for the latter.
    pub(crate) publisher: mpsc::Sender<TaskId>,
    pub(crate) sealer: SealerHandle,
    pub(crate) given: LaunchSecrets,
    /// Rung when something in the ledger does not read.
    pub(crate) suspected: Arc<Notify>,
}

/// What the commit loop shows of its state to everybody else, as of its last commit.
#[derive(Clone)]
pub(crate) struct CommittedViews {
    /// The tasks that wait for a slot, first come first.
    pub(crate) line: watch::Receiver<Arc<Vec<TaskId>>>,
    /// Sessions and credentials.
    pub(crate) roster: watch::Receiver<Arc<Roster>>,
    /// How many decisions there are.
    pub(crate) head: watch::Receiver<i64>,
}

pub(crate) struct ViewSenders {
    line: watch::Sender<Arc<Vec<TaskId>>>,
    roster: watch::Sender<Arc<Roster>>,
    head: watch::Sender<i64>,
}

impl CommittedViews {
    pub(crate) fn of(desk: &Desk, ledger: &Ledger) -> (ViewSenders, Self) {
        let (line, in_line) = watch::channel(Arc::new(desk.line()));
        let (roster, known) = watch::channel(Arc::new(desk.register.roster.clone()));
        let (head, read_to) = watch::channel(ledger.last_number());
        (ViewSenders { line, roster, head }, Self { line: in_line, roster: known, head: read_to })
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
    /// Whether tasks that were in line may go.
    serving: bool,
    /// Who looks at the world for those who have room, and for whom that is being done.
    look: mpsc::Sender<TaskId>,
    looking: HashSet<TaskId>,
    /// Tasks that have settled and may have something to publish.
    publisher: mpsc::Sender<TaskId>,
    /// The same, for those who make out receipts.
    sealer: SealerHandle,
    /// What tasks are given, for them.
    given: LaunchSecrets,
    /// Settlements that could not be written yet.
    unwritten: Vec<DeskEvent>,
    /// Idempotency keys of the batch that is being worked on.
    fresh_keys: HashMap<countersign_model::Digest, (TaskId, Idempotency)>,
    /// Keys of requests that joined one that waited: they are in no record of their own, and go with the daemon.
    joined: HashMap<countersign_model::Digest, (TaskId, Idempotency, Timestamp)>,
    /// Rung when something in the ledger does not read.
    suspected: Arc<Notify>,
}

/// Why a task that was permitted did not start.
#[derive(Debug, thiserror::Error)]
enum LaunchFailure {
    #[error(transparent)]
    NoProgram(#[from] facts::NoSuchProgram),
    #[error("the file cannot be placed")]
    NoPlace,
    #[error("the task is over")]
    Over,
    #[error(transparent)]
    Unpermitted(#[from] OrderError),
    #[error("the supervisor did not take its order: {0}")]
    NotTaken(std::io::Error),
}

impl LaunchFailure {
    /// As a shell would say it.
    fn exit_code(&self) -> i32 {
        match self {
            Self::NoProgram(_) => 127,
            Self::NoPlace | Self::Over | Self::Unpermitted(_) | Self::NotTaken(_) => 125,
        }
    }
}

/// Work that waits for the commit.
struct PendingReplies {
    step: DeskStep,
    /// What would be launched, and what it would run in.
    prepared: Option<(Prepared, Request, Sandbox)>,
    idle_shim: Option<IdleShim>,
    done: Done,
}

impl PendingReplies {
    /// A step that launches nothing.
    fn of(step: DeskStep, done: Done) -> Self {
        Self { step, prepared: None, idle_shim: None, done }
    }
}

/// What one batch of calls has come to so far.
#[derive(Default)]
struct CommitBatch {
    pending: Vec<PendingReplies>,
    checkpoints: Vec<CommitReply<bool>>,
    barriers: Vec<oneshot::Sender<Vec<TaskId>>>,
    halt: Option<oneshot::Sender<()>>,
}

enum Done {
    Asked(CommitReply<AskOutcome>, AskOutcome),
    Replayed(CommitReply<AskOutcome>, Result<AskOutcome, Refusal>),
    /// With what the desk refused, if it did: also told after the commit, when what it collided with can be read.
    Plain(CommitReply<()>, Result<(), Refusal>),
    Kept(CommitReply<RegisterReply>, Result<RegisterReply, Refusal>),
    /// Tried again when the ledger would not take it.
    Told(Option<DeskEvent>),
}

impl CommitLoop {
    /// A loop that serves nobody before it is told that the daemon runs.
    pub(crate) fn new(parts: CommitParts) -> std::io::Result<Self> {
        let CommitParts { home, users, gate, ledger, reader, desk, handle, calls, views, .. } = parts;
        Ok(Self {
            look: looker(home.clone(), gate.key.clone(), users, handle)?,
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
            looking: HashSet::new(),
            publisher: parts.publisher,
            sealer: parts.sealer,
            given: parts.given,
            unwritten: Vec::new(),
            fresh_keys: HashMap::new(),
            joined: HashMap::new(),
            suspected: parts.suspected,
        })
    }

    pub(crate) fn run(mut self) {
        let mut halted = None;
        while halted.is_none() {
            let mut batch = Vec::new();
            // Somebody who has room and could not go is tried again, also when nobody calls.
            let stuck = self.serving && self.desk.ready().iter().any(|task| !self.looking.contains(task));
            if self.unwritten.is_empty() && !stuck {
                match self.calls.recv() {
                    Ok(call) => batch.push(call),
                    Err(_) => return,
                }
            } else {
                batch.extend(self.calls.recv_timeout(RETRY).ok());
                batch.extend(std::mem::take(&mut self.unwritten).into_iter().map(Box::new).map(CommitCall::Tell));
            }
            self.wait_for_company(&mut batch);
            halted = self.work(batch);
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

    fn wait_for_company(&self, batch: &mut Vec<CommitCall>) {
        let busy = self.desk.busy();
        if busy > FEW {
            let until = clock::steady() + (COMPANY_EACH * u32::try_from(busy).unwrap_or(8)).min(COMPANY_MOST);
            while batch.len() < BATCH.min(busy) {
                let left = until.saturating_duration_since(clock::steady());
                match self.calls.recv_timeout(left) {
                    Ok(call) => batch.push(call),
                    Err(_) => break,
                }
            }
        }
        while batch.len() < BATCH
            && let Ok(call) = self.calls.try_recv()
        {
            batch.push(call);
        }
    }

    /// Decides about a batch, commits it, and acts on it. Gives the reply to a halt, if one was called.
    fn work(&mut self, calls: Vec<CommitCall>) -> Option<oneshot::Sender<()>> {
        let mut batch = CommitBatch::default();
        for call in calls {
            self.take(call, &mut batch);
        }
        self.commit(batch.pending);
        self.look_for_the_next();
        self.show_the_line();
        for reply in batch.checkpoints {
            let _ = reply.send(self.ledger.checkpoint().map_err(|e| ledger_refusal(&e)));
        }
        for barrier in batch.barriers {
            let _ = barrier.send(self.desk.launched());
        }
        batch.halt
    }

    fn take(&mut self, call: CommitCall, batch: &mut CommitBatch) {
        let pending = &mut batch.pending;
        match call {
            // Whoever was let in before the daemon began to go down comes too late here.
            CommitCall::Ask { reply, .. } if !self.serving => drop(reply.send(Err(going_down()))),
            CommitCall::Answer { reply, .. } if !self.serving => drop(reply.send(Err(going_down()))),
            CommitCall::Wish { reply, .. } if !self.serving => drop(reply.send(Err(going_down()))),
            CommitCall::Ask { asking, reply } => pending.extend(self.ask(*asking, reply)),
            CommitCall::Answer { answering, reply } => pending.extend(self.answer(*answering, reply)),
            CommitCall::Withdraw { task, by, reply } => pending.push(self.withdraw(task, by, reply)),
            CommitCall::Decide { events, reply } => pending.push(self.decide(events, reply)),
            CommitCall::Wish { wish, reply } => pending.push(self.decide_register(wish, reply)),
            CommitCall::Tell(event) => pending.extend(self.decide_event(*event)),
            CommitCall::Prepared { task, world, prepared } => {
                pending.extend(self.on_prepared(task, world, prepared.map(|l| *l)))
            }
            CommitCall::GiveUp { before } => pending.extend(self.give_up(before)),
            CommitCall::Read(read) => read(&self.desk.register),
            CommitCall::Rebuild { reply } => {
                let _ = reply.send(self.ledger.rebuild_index().map_err(|e| ledger_refusal(&e)));
            }
            CommitCall::Checkpoint { reply } => batch.checkpoints.push(reply),
            CommitCall::Barrier { reply } => batch.barriers.push(reply),
            CommitCall::Halt { reply } => batch.halt = Some(reply),
        }
    }

    fn withdraw(&mut self, task: TaskId, by: Text, reply: CommitReply<()>) -> PendingReplies {
        match self.step(DeskEvent::Withdrawn { task, by }) {
            Ok(step) => PendingReplies::of(step, Done::Plain(reply, Ok(()))),
            Err(refusal) => PendingReplies::of(DeskStep::default(), Done::Plain(reply, Err(refusal))),
        }
    }

    /// All of these events, as far as the desk accepts them; the reply tells the last refusal.
    fn decide(&mut self, events: Vec<DeskEvent>, reply: CommitReply<()>) -> PendingReplies {
        let (mut all, mut told) = (DeskStep::default(), Ok(()));
        for event in events {
            match self.step(event) {
                Ok(step) => all.decisions.extend(step.decisions),
                Err(refusal) => told = Err(refusal),
            }
        }
        PendingReplies::of(all, Done::Plain(reply, told))
    }

    fn decide_register(&mut self, wish: RegisterCommand, reply: CommitReply<RegisterReply>) -> PendingReplies {
        match self.step(DeskEvent::Wished(wish)) {
            Ok(mut step) => {
                let kept = step.kept.take().unwrap_or(RegisterReply::Nothing);
                PendingReplies::of(step, Done::Kept(reply, Ok(kept)))
            }
            Err(refusal) => PendingReplies::of(DeskStep::default(), Done::Kept(reply, Err(refusal))),
        }
    }

    /// Something has happened; nobody waits for what the desk says to it.
    fn decide_event(&mut self, event: DeskEvent) -> Option<PendingReplies> {
        if let DeskEvent::House { state, .. } = &event {
            self.serving = *state == DaemonState::Running;
            // What was granted just before the last daemon ended may cover some who wait.
            let waiting = if self.serving { self.desk.waiting_for_a_person() } else { Vec::new() };
            waiting.into_iter().for_each(|task| self.look_at(task));
        }
        let again = retold(&event);
        Some(PendingReplies::of(self.step(event).ok()?, Done::Told(again)))
    }

    /// The world has been looked at for a task that waits, for a person or for a slot.
    fn on_prepared(
        &mut self,
        task: TaskId,
        world: FactsAtLaunch,
        prepared: Option<(Prepared, Request)>,
    ) -> Option<PendingReplies> {
        self.looking.remove(&task);
        if self.desk.question(task).is_some() {
            self.release(task, world, prepared)
        } else {
            self.fill_slot(task, world, prepared)
        }
    }

    fn give_up(&mut self, before: Timestamp) -> Vec<PendingReplies> {
        let mut pending = Vec::new();
        for task in self.desk.never_told(before) {
            let outcome = Outcome::Lost { why: Text::from_static("nobody said how it ended") };
            let step = self.step(DeskEvent::Told { task, outcome }).ok();
            pending.extend(step.map(|step| PendingReplies::of(step, Done::Told(None))));
        }
        pending
    }

    /// Makes decisions durable, then does what follows from them.
    fn commit(&mut self, pending: Vec<PendingReplies>) {
        let entries: Vec<LedgerEntry> = pending.iter().flat_map(|p| p.step.decisions.iter().cloned()).collect();
        let written = if entries.is_empty() { Ok(()) } else { self.ledger.commit(&entries) };
        self.fresh_keys.clear();
        if let Err(e) = written {
            self.not_written(pending, &e);
            self.views.roster.send_replace(Arc::new(self.desk.register.roster.clone()));
            return;
        }
        // Who arrives next must be known by what is written now.
        if entries.iter().any(|e| matches!(e.decision, Decision::Entered(_))) {
            self.views.roster.send_replace(Arc::new(self.desk.register.roster.clone()));
        }
        pending.into_iter().for_each(|p| self.act(p));
        if !entries.is_empty() {
            self.views.head.send_replace(self.ledger.last_number());
        }
    }

    fn show_the_line(&self) {
        let line = self.desk.line();
        self.views.line.send_if_modified(|old| {
            let moved = **old != line;
            if moved {
                *old = Arc::new(line);
            }
            moved
        });
    }

    /// Has the world looked at for a task, apart.
    fn look_at(&mut self, task: TaskId) {
        if self.looking.insert(task) && self.look.send(task).is_err() {
            self.looking.remove(&task);
        }
    }

    fn step(&mut self, event: DeskEvent) -> Result<DeskStep, Refusal> {
        let random = u32::from_le_bytes(random());
        self.desk.step(Moment { at: clock::now(), random, mint: &mut self.mint }, event)
    }

    /// The decisions are durable: now do what follows from them.
    fn act(&mut self, pending: PendingReplies) {
        let PendingReplies { step, prepared, idle_shim, done } = pending;
        match (step.launch, prepared, idle_shim) {
            (Some(launch), Some(prepared), Some(idle_shim)) => self.hand_over(launch, prepared, idle_shim),
            (launch, _, idle_shim) => {
                self.give_back(idle_shim);
                if let Some(ShimLaunch { permit, .. }) = launch {
                    let error = Text::from_static("the waiting request is gone");
                    self.registry.send_event(DeskEvent::NotStarted {
                        task: permit.task,
                        error,
                        code: 125,
                        recovered: false,
                    });
                }
            }
        }
        step.release.into_iter().for_each(|task| self.look_at(task));
        if let Some(task) = step.forget
            && let Err(e) = waiting::remove(&self.home, task)
        {
            crate::log!("{task}: its waiting request could not be deleted: {e}");
        }
        step.decisions.iter().for_each(|entry| self.announce(entry));
        match done {
            Done::Asked(reply, asked) => drop(reply.send(Ok(asked))),
            Done::Replayed(reply, earlier) => drop(reply.send(earlier)),
            Done::Plain(reply, told) => drop(reply.send(told)),
            Done::Kept(reply, told) => drop(reply.send(told)),
            Done::Told(_) => {}
        }
    }

    /// Gives a shim its order. A task that cannot be started settles as that.
    fn hand_over(
        &self,
        launch: ShimLaunch,
        (prepared, request, sandbox): (Prepared, Request, Sandbox),
        idle_shim: IdleShim,
    ) {
        crash::point("office.before_hand_over");
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
        crash::point("office.after_hand_over");
    }

    fn give_back(&self, idle_shim: Option<IdleShim>) {
        if let Some(idle_shim) = idle_shim {
            self.pool.give_back(idle_shim);
        }
    }

    /// Tells those who follow a task of a decision about it, and has a settled one published and sealed.
    fn announce(&self, entry: &LedgerEntry) {
        let Some(task) = entry.task else { return };
        let rings = match entry.decision {
            Decision::Settled { .. } => Notification::Settled,
            Decision::Sealed(_) => Notification::Last,
            _ => Notification::More,
        };
        self.registry.notify(task, rings);
        if rings == Notification::Settled {
            let _ = self.publisher.send(task);
            self.sealer.seal(task);
        }
    }

    fn order(
        &self,
        launch: ShimLaunch,
        prepared: Prepared,
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
            confine::base_only(request, asked, &prepared.home, &mut env, &mut exposure);
            confine::budget(&mut limits);
        }
        if launch.permit.confinement != Confinement::ReadOnly && builtin.is_none() {
            self.given.remember(task, &env, &exec.argv);
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
            rows: request.args.rows.unwrap_or(facts::ROWS),
            cols: request.args.cols.unwrap_or(facts::COLS),
            task_dir: self.home.task_dir(task).to_string_lossy().into_owned(),
            run_dir: self.home.run().to_string_lossy().into_owned(),
            first_seq: launch.first_seq,
            prologue_head: launch.prologue_head,
            secret: crate::shims::registry::secret(&self.gate.key, task),
            mask_key: crate::case::mask_key(&self.gate.key),
            redaction: self.gate.redaction.clone(),
            sandbox: sandbox_spec,
            user: prepared.user,
        };
        Ok(Order::new(launch.permit, what)?)
    }

    /// The ledger would not take it: nothing was decided, so nothing is done. What already happened is tried again.
    fn not_written(&mut self, pending: Vec<PendingReplies>, error: &LedgerError) {
        crate::log!("a commit failed, nothing of it was done: {error}");
        if error.is_damage() {
            self.suspected.notify_one();
        }
        for p in pending {
            self.give_back(p.idle_shim);
            match p.done {
                Done::Asked(reply, asked) => {
                    let _ = waiting::remove(&self.home, asked.task);
                    let _ = reply.send(Err(ledger_refusal(error)));
                }
                Done::Replayed(reply, earlier) => drop(reply.send(earlier.and(Err(ledger_refusal(error))))),
                Done::Plain(reply, told) => drop(reply.send(told.and(Err(ledger_refusal(error))))),
                Done::Kept(reply, told) => drop(reply.send(told.and(Err(ledger_refusal(error))))),
                Done::Told(again) => self.unwritten.extend(again),
            }
        }
        match Desk::restore(&self.reader, self.desk.caps(), self.desk.policy) {
            Ok(desk) => self.desk = desk,
            Err(e) => crate::log!("the ledger cannot be read back: {e}"),
        }
    }
}

fn going_down() -> Refusal {
    Refusal::new(RefusalCode::Draining, "the house is going down and takes nothing new")
        .hint("what waits goes on waiting; ask again when it is up")
}

/// A thread that looks at the world for tasks that have room, and tells the office.
fn looker(home: Home, key: HomeKey, users: Users, commit: CommitHandle) -> std::io::Result<mpsc::Sender<TaskId>> {
    let (send, tasks) = mpsc::channel();
    std::thread::Builder::new().name("look".into()).spawn(move || {
        for task in tasks {
            // A request that cannot be read any more is not run: the desk settles it as one that could not be started.
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

/// An event that reports what has happened anyway must be told until it is written.
fn retold(event: &DeskEvent) -> Option<DeskEvent> {
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
        DeskEvent::Told { task, outcome } => Some(DeskEvent::Told { task: *task, outcome: outcome.clone() }),
        DeskEvent::Asked(_)
        | DeskEvent::Unredeemed { .. }
        | DeskEvent::Observed { .. }
        | DeskEvent::Answered(_)
        | DeskEvent::Slot { .. }
        | DeskEvent::Covered { .. }
        | DeskEvent::Wished(_)
        | DeskEvent::Withdrawn { .. }
        | DeskEvent::Expired { .. }
        | DeskEvent::Sealed { .. }
        | DeskEvent::Shutdown(_)
        | DeskEvent::Key(_)
        | DeskEvent::House { .. } => None,
    }
}

fn ledger_refusal(error: &LedgerError) -> Refusal {
    Refusal::new(RefusalCode::LedgerUnavailable, format!("{error}"))
        .hint("nothing was started; look at the disk below the house's home and ask again")
}

fn no_shim(pool: &ShimPool, error: &std::io::Error) -> Refusal {
    Refusal::new(
        RefusalCode::Internal,
        format!("the supervisor {} could not be started: {error}", pool.path().display()),
    )
    .hint("csn-shim must lie beside csn; `cargo xtask build` puts it there")
}
