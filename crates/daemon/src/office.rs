//! Where the desk works: one thread that takes what comes, lets the desk decide, writes it down, and only then acts.
//!
//! Group commit: everything that has come in by the time the thread gets to it shares one transaction and one sync.
//! With many tasks under way it waits a moment for company; with few it does not.

mod decide;

use crate::{
    confine,
    desk::{Caps, Desk, Event, Moment, NOT_AGAIN, Standing, Step, World},
    facts::{self, Looked},
    keeper::{Keeper, Ring},
    people::People,
    question::Texts,
    seal::{Given, Work},
    spares::Spares,
    wish::{Kept, Wish},
};
use countersign_model::{
    ApprovalId, At, By, Choice, Code, Confinement, Decision, HouseKey, HouseState, IdMint, Idempotency, Mode, Order,
    Outcome, Process, Record, Refusal, Register, Request, Resolved, Roster, Sandbox, Session, TaskId, TaskState, Text,
};
use countersign_redact::text_by_shape;
use countersign_shim::Spare;
use countersign_store::{
    Home, clock, crash,
    ledger::{Entry, Ledger, LedgerError, Reader},
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

/// What surfaces and keepers want from the office.
pub(crate) enum Call {
    Ask {
        asking: Box<Asking>,
        reply: Reply<Asked>,
    },
    Answer {
        answering: Box<Answering>,
        reply: Reply<()>,
    },
    Withdraw {
        task: TaskId,
        by: Text,
        reply: Reply<()>,
    },
    /// Something is to be entered into the register; what came of it, once that is durable.
    Wish {
        wish: Wish,
        reply: Reply<Kept>,
    },
    /// Somebody wants to look something up in the register.
    Read(Box<dyn FnOnce(&Register) + Send>),
    /// Something happened that needs no answer.
    Tell(Box<Event>),
    /// Decisions about settled tasks or the house; answered once they are durable.
    Decide {
        events: Vec<Event>,
        reply: Reply<()>,
    },
    /// What has been decided is moved from the log into the database; told whether all of it was.
    Checkpoint {
        reply: Reply<bool>,
    },
    /// The world as it is now for a task that has room, looked at apart: a dead file system holds up the line, and
    /// nobody else.
    Looked {
        task: TaskId,
        world: World,
        looked: Option<Box<(Looked, Request)>>,
    },
    /// What others were let run before this moment, and have not told the end of, is given up.
    GiveUp {
        before: At,
    },
    /// The index over the decisions is made anew.
    Rebuild {
        reply: Reply<()>,
    },
    /// Everything before this has been written; the launched tasks.
    Barrier {
        reply: oneshot::Sender<Vec<TaskId>>,
    },
    /// The last call.
    Halt {
        reply: oneshot::Sender<()>,
    },
}

type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// A request that has been read and looked at, with everything that is said about it clean. The office judges.
pub(crate) struct Asking {
    pub(crate) request: Request,
    pub(crate) looked: Looked,
    pub(crate) planned: Decision,
    pub(crate) standing: Standing,
    /// The session of this credential and place, if it seemed that there is none yet.
    pub(crate) opens: Option<Box<Session>>,
    pub(crate) texts: Texts,
    /// It cannot be allowed, for this reason, whatever the judge says.
    pub(crate) refused: Option<Refusal>,
    pub(crate) asker: Option<Process>,
    pub(crate) idempotency: Option<Idempotency>,
}

/// An answer to a question, and the world looked at again: what was approved must be what runs.
pub(crate) struct Answering {
    pub(crate) task: TaskId,
    pub(crate) approval: ApprovalId,
    pub(crate) choice: Choice,
    /// What is saved covers other operands too.
    pub(crate) any_arguments: bool,
    pub(crate) words: Option<Text>,
    pub(crate) by: By,
    pub(crate) world: World,
    pub(crate) looked: Option<(Looked, Request)>,
}

/// What became of an ask.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) task: TaskId,
    pub(crate) denied: Option<Refusal>,
    /// As it was when it was asked; none for one that had been asked before.
    pub(crate) state: Option<Box<TaskState>>,
    /// The same request waits already: this is its task.
    pub(crate) joined: bool,
}

pub(crate) struct Office {
    pub(crate) home: Home,
    pub(crate) key: HouseKey,
    pub(crate) ledger: Ledger,
    pub(crate) reader: Reader,
    pub(crate) desk: Desk,
    pub(crate) spares: Arc<Spares>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) calls: mpsc::Receiver<Call>,
    pub(crate) mint: IdMint,
    pub(crate) gate: Arc<facts::Gate>,
    /// The line, for surfaces to say where in it a task stands.
    pub(crate) line: watch::Sender<Arc<Vec<TaskId>>>,
    /// Sessions and credentials, for surfaces to know who arrives.
    pub(crate) roster: watch::Sender<Arc<Roster>>,
    /// How many decisions there are, for those who follow them.
    pub(crate) head: watch::Sender<i64>,
    /// Whether tasks that were in line may go.
    pub(crate) serving: bool,
    /// Who looks at the world for those who have room, and for whom that is being done.
    pub(crate) look: mpsc::Sender<TaskId>,
    pub(crate) looking: HashSet<TaskId>,
    /// Tasks that have settled and may have something to publish.
    pub(crate) settled: mpsc::Sender<TaskId>,
    /// The same, for those who make out receipts.
    pub(crate) unsealed: mpsc::Sender<Work>,
    /// What tasks are given, for them.
    pub(crate) given: Given,
    /// Settlements that could not be written yet.
    pub(crate) unwritten: Vec<Event>,
    /// Idempotency keys of the batch that is being worked on.
    pub(crate) fresh_keys: HashMap<countersign_model::Digest, (TaskId, Idempotency)>,
    /// Keys of requests that joined one that waited: they are in no record of their own, and go with the daemon.
    pub(crate) joined: HashMap<countersign_model::Digest, (TaskId, Idempotency, countersign_model::At)>,
    /// Rung when something in the ledger does not read.
    pub(crate) suspected: Arc<Notify>,
}

/// Work that waits for the commit.
struct Pending {
    step: Step,
    /// What would be launched, and what it would run in.
    looked: Option<(Looked, Request, Sandbox)>,
    spare: Option<Spare>,
    done: Done,
}

enum Done {
    Asked(Reply<Asked>, Asked),
    Replayed(Reply<Asked>, Result<Asked, Refusal>),
    /// With what the desk refused, if it did: also told after the commit, when what it collided with can be read.
    Plain(Reply<()>, Result<(), Refusal>),
    Kept(Reply<Kept>, Result<Kept, Refusal>),
    /// Tried again when the ledger would not take it.
    Told(Option<Event>),
}

impl Office {
    pub(crate) fn run(mut self) {
        let mut halted = None;
        while halted.is_none() {
            let mut batch = Vec::new();
            // Somebody who has room and could not go is tried again, also when nobody calls.
            let stuck = self.serving && self.desk.ready().iter().any(|task| !self.looking.contains(task));
            match self.unwritten.is_empty() && !stuck {
                true => match self.calls.recv() {
                    Ok(call) => batch.push(call),
                    Err(_) => return,
                },
                false => {
                    batch.extend(self.calls.recv_timeout(RETRY).ok());
                    batch.extend(std::mem::take(&mut self.unwritten).into_iter().map(Box::new).map(Call::Tell));
                }
            }
            self.wait_for_company(&mut batch);
            halted = self.work(batch);
        }
        if let Err(e) = self.ledger.checkpoint() {
            crate::log!("the ledger was not checkpointed: {e}");
        }
        drop(self.ledger);
        self.spares.close();
        if let Some(reply) = halted {
            let _ = reply.send(());
        }
    }

    fn wait_for_company(&self, batch: &mut Vec<Call>) {
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
    fn work(&mut self, batch: Vec<Call>) -> Option<oneshot::Sender<()>> {
        let (mut pending, mut barriers, mut checkpoints, mut halt) = (Vec::new(), Vec::new(), Vec::new(), None);
        for call in batch {
            match call {
                // Whoever was let in before the house began to go down comes too late here.
                Call::Ask { reply, .. } if !self.serving => drop(reply.send(Err(going_down()))),
                Call::Answer { reply, .. } if !self.serving => drop(reply.send(Err(going_down()))),
                Call::Wish { reply, .. } if !self.serving => drop(reply.send(Err(going_down()))),
                Call::Ask { asking, reply } => pending.extend(self.ask(*asking, reply)),
                Call::Answer { answering, reply } => pending.extend(self.answer(*answering, reply)),
                Call::Withdraw { task, by, reply } => {
                    let (step, told) = match self.step(Event::Withdrawn { task, by }) {
                        Ok(step) => (step, Ok(())),
                        Err(refusal) => (Step::default(), Err(refusal)),
                    };
                    pending.push(Pending { step, looked: None, spare: None, done: Done::Plain(reply, told) });
                }
                Call::Decide { events, reply } => {
                    let (mut step, mut told) = (Step::default(), Ok(()));
                    for event in events {
                        match self.step(event) {
                            Ok(more) => step.decisions.extend(more.decisions),
                            Err(refusal) => told = Err(refusal),
                        }
                    }
                    pending.push(Pending { step, looked: None, spare: None, done: Done::Plain(reply, told) });
                }
                Call::Checkpoint { reply } => checkpoints.push(reply),
                Call::Wish { wish, reply } => {
                    let (mut step, told) = match self.step(Event::Wished(wish)) {
                        Ok(step) => (step, Ok(Kept::Nothing)),
                        Err(refusal) => (Step::default(), Err(refusal)),
                    };
                    let told = told.map(|nothing| step.kept.take().unwrap_or(nothing));
                    pending.push(Pending { step, looked: None, spare: None, done: Done::Kept(reply, told) });
                }
                Call::Read(read) => read(&self.desk.register),
                Call::Looked { task, world, looked } => {
                    self.looking.remove(&task);
                    let looked = looked.map(|l| *l);
                    pending.extend(match self.desk.question(task).is_some() {
                        true => self.release(task, world, looked),
                        false => self.fill_slot(task, world, looked),
                    });
                }
                Call::GiveUp { before } => {
                    for task in self.desk.never_told(before) {
                        let outcome = Outcome::Lost { why: Text::of("nobody said how it ended") };
                        if let Ok(step) = self.step(Event::Told { task, outcome }) {
                            pending.push(Pending { step, looked: None, spare: None, done: Done::Told(None) });
                        }
                    }
                }
                Call::Rebuild { reply } => {
                    let _ = reply.send(self.ledger.rebuild_index().map_err(|e| ledger_refusal(&e)));
                }
                Call::Tell(event) => {
                    let event = *event;
                    if let Event::House { state, .. } = &event {
                        self.serving = *state == HouseState::Running;
                        // What was granted just before the last daemon ended may cover some who wait.
                        let waiting = if self.serving { self.desk.waiting_for_a_person() } else { Vec::new() };
                        waiting.into_iter().for_each(|task| self.look_at(task));
                    }
                    let again = retold(&event);
                    if let Ok(step) = self.step(event) {
                        pending.push(Pending { step, looked: None, spare: None, done: Done::Told(again) });
                    }
                }
                Call::Barrier { reply } => barriers.push(reply),
                Call::Halt { reply } => halt = Some(reply),
            }
        }
        let entries: Vec<Entry> = pending.iter().flat_map(|p| p.step.decisions.iter().cloned()).collect();
        let written = match entries.is_empty() {
            true => Ok(()),
            false => self.ledger.commit(&entries),
        };
        self.fresh_keys.clear();
        let entered = entries.iter().any(|e| matches!(e.decision, Decision::Entered(_)));
        match written {
            Ok(()) => {
                // Who arrives next must be known by what is written now.
                if entered {
                    self.roster.send_replace(Arc::new(self.desk.register.roster.clone()));
                }
                pending.into_iter().for_each(|p| self.act(p));
                if !entries.is_empty() {
                    self.head.send_replace(self.ledger.last());
                }
            }
            Err(e) => {
                self.not_written(pending, &e);
                self.roster.send_replace(Arc::new(self.desk.register.roster.clone()));
            }
        }
        self.look_for_the_next();
        let line = self.desk.line();
        self.line.send_if_modified(|old| {
            let moved = **old != line;
            if moved {
                *old = Arc::new(line);
            }
            moved
        });
        for reply in checkpoints {
            let _ = reply.send(self.ledger.checkpoint().map_err(|e| ledger_refusal(&e)));
        }
        for barrier in barriers {
            let _ = barrier.send(self.desk.launched());
        }
        halt
    }

    /// Has the world looked at for a task, apart.
    fn look_at(&mut self, task: TaskId) {
        if self.looking.insert(task) && self.look.send(task).is_err() {
            self.looking.remove(&task);
        }
    }

    fn step(&mut self, event: Event) -> Result<Step, Refusal> {
        let chance = u32::from_le_bytes(random());
        self.desk.step(Moment { at: clock::now(), chance, mint: &mut self.mint }, event)
    }

    /// The decisions are durable: now do what follows from them.
    fn act(&mut self, pending: Pending) {
        let Pending { step, looked, spare, done } = pending;
        match (step.launch, looked, spare) {
            (Some(launch), Some((looked, request, sandbox)), Some(spare)) => {
                crash::point("office.before_hand_over");
                let (task, pid) = (launch.permit.task, spare.pid());
                self.keeper.remember_shim(task, pid);
                match self.order(launch, looked, &request, sandbox).and_then(|order| {
                    spare.hand_over(order).map_err(|e| (format!("the supervisor did not take its order: {e}"), 125))
                }) {
                    Ok(channel) => self.keeper.keep(task, pid, channel),
                    Err((error, code)) => {
                        let error = text_by_shape(&error);
                        self.keeper.tell(Event::NotStarted { task, error, code, recovered: false });
                    }
                }
                crash::point("office.after_hand_over");
            }
            (Some(launch), _, spare) => {
                spare.into_iter().for_each(|s| self.spares.give_back(s));
                let error = Text::of("the waiting request is gone");
                self.keeper.tell(Event::NotStarted { task: launch.permit.task, error, code: 125, recovered: false });
            }
            (None, _, spare) => spare.into_iter().for_each(|s| self.spares.give_back(s)),
        }
        step.release.into_iter().for_each(|task| self.look_at(task));
        if let Some(task) = step.forget
            && let Err(e) = waiting::forget(&self.home, task)
        {
            crate::log!("{task}: its waiting request could not be deleted: {e}");
        }
        for entry in &step.decisions {
            if let Some(task) = entry.task {
                let rings = match entry.decision {
                    Decision::Settled { .. } => Ring::Settled,
                    Decision::Sealed(_) => Ring::Last,
                    _ => Ring::More,
                };
                self.keeper.ring(task, rings);
                if rings == Ring::Settled {
                    let _ = self.settled.send(task);
                    let _ = self.unsealed.send(Work::Seal(task));
                }
            }
        }
        match done {
            Done::Asked(reply, asked) => drop(reply.send(Ok(asked))),
            Done::Replayed(reply, earlier) => drop(reply.send(earlier)),
            Done::Plain(reply, told) => drop(reply.send(told)),
            Done::Kept(reply, told) => drop(reply.send(told)),
            Done::Told(_) => {}
        }
    }

    fn order(
        &self,
        launch: crate::desk::Launch,
        looked: Looked,
        request: &Request,
        sandbox: Sandbox,
    ) -> Result<Order, (String, i32)> {
        let task = launch.permit.task;
        let exec = looked.exec(&self.key).map_err(|e| (e, 127))?;
        let builtin = looked.builtin(request);
        if request.tool.is_builtin() && builtin.is_none() {
            return Err(("the file cannot be placed".to_owned(), 125));
        }
        let standing = self.desk.standing(task);
        let session = standing.and_then(|s| self.desk.register.roster.session(s.session?)).cloned();
        let walls = match standing {
            Some(standing) => confine::walls(&looked, &self.gate, &standing, session.as_deref(), sandbox),
            None => return Err(("the task is over".to_owned(), 125)),
        };
        let (mut env, mut exposure, mut limits) = (looked.env, looked.exposure, request.limits);
        if launch.permit.confinement == Confinement::ReadOnly {
            let asked = matches!(launch.permit.by, By::Person { .. });
            confine::base_only(request, asked, &looked.home, &mut env, &mut exposure);
            confine::budget(&mut limits);
        }
        if launch.permit.confinement != Confinement::ReadOnly && builtin.is_none() {
            self.given.keep(task, &env, &exec.argv);
        }
        env.push((countersign_model::MARKER.to_owned(), task.to_string()));
        let what = Resolved {
            task,
            plan_digest: looked.plan_digest,
            exec,
            builtin,
            cwd: looked.facts.cwd,
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
            secret: crate::keeper::secret(&self.key, task),
            mask_key: crate::question::mask_key(&self.key),
            redaction: self.gate.redaction.clone(),
            walls,
            login: looked.login,
        };
        Order::under(launch.permit, what).map_err(|e| (e.to_string(), 125))
    }

    /// The ledger would not take it: nothing was decided, so nothing is done. What already happened is tried again.
    fn not_written(&mut self, pending: Vec<Pending>, error: &LedgerError) {
        crate::log!("a commit failed, nothing of it was done: {error}");
        if error.is_damage() {
            self.suspected.notify_one();
        }
        for p in pending {
            p.spare.into_iter().for_each(|s| self.spares.give_back(s));
            match p.done {
                Done::Asked(reply, asked) => {
                    let _ = waiting::forget(&self.home, asked.task);
                    let _ = reply.send(Err(ledger_refusal(error)));
                }
                Done::Replayed(reply, earlier) => drop(reply.send(earlier.and(Err(ledger_refusal(error))))),
                Done::Plain(reply, told) => drop(reply.send(told.and(Err(ledger_refusal(error))))),
                Done::Kept(reply, told) => drop(reply.send(told.and(Err(ledger_refusal(error))))),
                Done::Told(again) => self.unwritten.extend(again),
            }
        }
        match restore(&self.reader, self.desk.caps(), self.desk.policy) {
            Ok(desk) => self.desk = desk,
            Err(e) => crate::log!("the ledger cannot be read back: {e}"),
        }
    }
}

fn going_down() -> Refusal {
    Refusal::new(Code::Draining, "the house is going down and takes nothing new")
        .hint("what waits goes on waiting; ask again when it is up")
}

/// A thread that looks at the world for tasks that have room, and tells the office.
pub(crate) fn looker(
    home: Home,
    key: HouseKey,
    people: People,
    calls: mpsc::Sender<Call>,
) -> std::io::Result<mpsc::Sender<TaskId>> {
    let (send, tasks) = mpsc::channel();
    std::thread::Builder::new().name("look".into()).spawn(move || {
        for task in tasks {
            // A request that cannot be read any more is not run: the desk settles it as one that could not be started.
            let (world, looked) = facts::look_again(&home, &key, &people, task).unwrap_or_else(|refusal| {
                crate::log!("{task}: {refusal}");
                (World::Same, None)
            });
            let looked = looked.map(Box::new);
            if calls.send(Call::Looked { task, world, looked }).is_err() {
                return;
            }
        }
    })?;
    Ok(send)
}

/// The desk as the ledger has it.
pub(crate) fn restore(
    reader: &Reader,
    caps: Caps,
    policy: Option<countersign_model::Digest>,
) -> Result<Desk, LedgerError> {
    let mut desk = Desk::new(caps);
    desk.policy = policy;
    for (at, entered) in reader.entered()? {
        desk.register.enter(at, &entered);
    }
    let now = clock::now();
    let of_late = countersign_model::At::from_micros(now.micros() - NOT_AGAIN.as_micros() as i64);
    // Settled tasks leave the desk again; what a person has refused of late stays with it.
    for task in reader.refused_since(of_late)?.into_iter().chain(reader.open_tasks()?) {
        for (seq, line) in reader.decisions(task, 0)? {
            let record = Record::parse(&line).map_err(|source| LedgerError::Record { n: seq as i64, source })?;
            desk.replay(task, &line, &record);
        }
    }
    Ok(desk)
}

/// An event that reports what has happened anyway must be told until it is written.
fn retold(event: &Event) -> Option<Event> {
    match event {
        Event::Closed { task, closing, recovered } => {
            Some(Event::Closed { task: *task, closing: closing.clone(), recovered: *recovered })
        }
        Event::NotStarted { task, error, code, recovered } => {
            Some(Event::NotStarted { task: *task, error: error.clone(), code: *code, recovered: *recovered })
        }
        Event::Lost { task, known, why, head, next_seq, recovered } => Some(Event::Lost {
            task: *task,
            known: known.clone(),
            why: why.clone(),
            head: *head,
            next_seq: *next_seq,
            recovered: *recovered,
        }),
        Event::Told { task, outcome } => Some(Event::Told { task: *task, outcome: outcome.clone() }),
        Event::Asked { .. }
        | Event::Unredeemed { .. }
        | Event::Observed { .. }
        | Event::Answered { .. }
        | Event::Slot { .. }
        | Event::Covered { .. }
        | Event::Wished(_)
        | Event::Withdrawn { .. }
        | Event::Expired { .. }
        | Event::Sealed { .. }
        | Event::Shutdown(_)
        | Event::Key(_)
        | Event::House { .. } => None,
    }
}

fn ledger_refusal(error: &LedgerError) -> Refusal {
    Refusal::new(Code::LedgerUnavailable, format!("{error}"))
        .hint("nothing was started; look at the disk below the house's home and ask again")
}

fn no_shim(spares: &Spares, error: &std::io::Error) -> Refusal {
    Refusal::new(Code::Internal, format!("the supervisor {} could not be started: {error}", spares.path().display()))
        .hint("csn-shim must lie beside csn; `cargo xtask build` puts it there")
}
