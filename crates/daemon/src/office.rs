//! Where the desk works: one thread that takes what comes, lets the desk decide, writes it down, and only then acts.
//!
//! Group commit: everything that has come in by the time the thread gets to it shares one transaction and one sync.
//! With many tasks under way it waits a moment for company; with few it does not.

use crate::{
    desk::{Caps, Desk, Event, Moment, NOT_AGAIN, Question, Same, Standing, Step, Whose, World},
    facts::{self, Looked},
    keeper::Keeper,
    question::{self, Texts},
    spares::Spares,
    wish::{Kept, Wish},
};
use countersign_model::{
    Answer, ApprovalId, Assessment, By, Choice, Code, Confinement, Decision, HouseKey, HouseState, IdMint, Idempotency,
    Order, Process, Record, Refusal, Register, Request, Resolved, Roster, Session, TaskId, TaskState, Text, Tool,
};
use countersign_redact::text_by_shape;
use countersign_shim::Spare;
use countersign_store::{
    Home, clock, crash,
    ledger::{Entry, Ledger, LedgerError, Reader},
    random, waiting,
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, mpsc},
    time::Duration,
};
use tokio::sync::{oneshot, watch};

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
    Tell(Event),
    /// A decision about a settled task; answered once it is durable.
    Expire {
        event: Event,
        reply: Reply<()>,
    },
    /// The world as it is now for a task that has room, looked at apart: a dead file system holds up the line, and
    /// nobody else.
    Looked {
        task: TaskId,
        world: World,
        looked: Option<Box<(Looked, Request)>>,
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
    /// Settlements that could not be written yet.
    pub(crate) unwritten: Vec<Event>,
    /// Idempotency keys of the batch that is being worked on.
    pub(crate) fresh_keys: HashMap<countersign_model::Digest, (TaskId, Idempotency)>,
    /// Keys of requests that joined one that waited: they are in no record of their own, and go with the daemon.
    pub(crate) joined: HashMap<countersign_model::Digest, (TaskId, Idempotency, countersign_model::At)>,
}

/// Work that waits for the commit.
struct Pending {
    step: Step,
    looked: Option<(Looked, Request)>,
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
                    batch.extend(std::mem::take(&mut self.unwritten).into_iter().map(Call::Tell));
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
        let (mut pending, mut barriers, mut halt) = (Vec::new(), Vec::new(), None);
        for call in batch {
            match call {
                Call::Ask { asking, reply } => pending.extend(self.ask(*asking, reply)),
                Call::Answer { answering, reply } => pending.extend(self.answer(*answering, reply)),
                Call::Withdraw { task, by, reply } => {
                    let (step, told) = match self.step(Event::Withdrawn { task, by }) {
                        Ok(step) => (step, Ok(())),
                        Err(refusal) => (Step::default(), Err(refusal)),
                    };
                    pending.push(Pending { step, looked: None, spare: None, done: Done::Plain(reply, told) });
                }
                Call::Expire { event, reply } => {
                    let (step, told) = match self.step(event) {
                        Ok(step) => (step, Ok(())),
                        Err(refusal) => (Step::default(), Err(refusal)),
                    };
                    pending.push(Pending { step, looked: None, spare: None, done: Done::Plain(reply, told) });
                }
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
                Call::Rebuild { reply } => {
                    let _ = reply.send(self.ledger.rebuild_index().map_err(|e| ledger_refusal(&e)));
                }
                Call::Tell(event) => {
                    if let Event::House { state, .. } = &event {
                        self.serving = *state == HouseState::Running;
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
        for barrier in barriers {
            let _ = barrier.send(self.desk.launched());
        }
        halt
    }

    fn step(&mut self, event: Event) -> Result<Step, Refusal> {
        let chance = u32::from_le_bytes(random());
        self.desk.step(Moment { at: clock::now(), chance, mint: &mut self.mint }, event)
    }

    fn ask(&mut self, asking: Asking, reply: Reply<Asked>) -> Option<Pending> {
        if let Some(earlier) = asking.idempotency.and_then(|i| self.earlier(i).transpose()) {
            // Told with the rest: what it repeats may be in this very batch.
            let done = Done::Replayed(reply, earlier);
            return Some(Pending { step: Step::default(), looked: None, spare: None, done });
        }
        let Asking { request, looked, mut planned, mut standing, mut opens, texts, refused, asker, idempotency } =
            asking;
        let roster = &self.desk.register.roster;
        // Somebody else of the same credential may have been first in the same place.
        let known = opens.as_ref().and_then(|s| roster.implicit(s.principal, s.implicit.as_ref()?)).map(|s| s.id);
        if let Some(known) = known {
            opens = None;
            standing.session = Some(known);
            if let Decision::Planned { session, .. } = &mut planned {
                *session = Some(known);
            }
        }
        let Standing { principal, session, profile, .. } = standing;
        let (plan_digest, background) = (looked.plan_digest, request.background);
        let same = Same { principal, session, plan_digest, background, profile };
        if let Some(task) = self.desk.joins(same).filter(|_| request.attended && refused.is_none()) {
            if let Some(idempotency) = idempotency {
                if self.joined.len() >= MOST_JOINED {
                    self.joined.clear();
                }
                self.joined.insert(idempotency.key, (task, idempotency, clock::now()));
            }
            let asked = Asked { task, denied: None, state: None, joined: true };
            let done = Done::Replayed(reply, Ok(asked));
            return Some(Pending { step: Step::default(), looked: None, spare: None, done });
        }
        let conversation = session.and_then(|s| roster.session(s)).cloned();
        if conversation.as_ref().is_some_and(|s| s.ended_at.is_some()) {
            let _ = reply.send(Err(Refusal::new(Code::SessionOver, "the session has ended")));
            return None;
        }
        let conversation = conversation.as_deref().or(opens.as_deref());
        let assessment = self.assess(&request, &looked, &standing, conversation);
        let answer = self.answer_now(&assessment, &request, same, refused);
        let question = match &answer {
            Answer::Ask { .. } => {
                let now = clock::now();
                let context = facts::context(&request, &looked, &self.gate, &standing, conversation, now);
                question::of(&request, &looked, &assessment, &context, conversation, texts)
            }
            Answer::Allow { .. } | Answer::Deny(_) => Question::default(),
        };
        let task = TaskId::mint(&mut self.mint, clock::now().millis(), u32::from_le_bytes(random()));
        let mut spare = None;
        let whose = Whose { session, principal };
        let at_once = matches!(answer, Answer::Allow { .. }) && self.desk.has_room(whose);
        match &answer {
            Answer::Allow { .. } if at_once => match self.spares.take() {
                Ok(taken) => spare = Some(taken),
                Err(e) => {
                    let _ = reply.send(Err(no_shim(&self.spares, &e)));
                    return None;
                }
            },
            Answer::Allow { .. } | Answer::Ask { .. } => {
                if let Err(e) = waiting::keep(&self.home, task, &request, &looked.facts, asker) {
                    let refusal = Refusal::new(Code::LedgerUnavailable, format!("the request could not be kept: {e}"));
                    let _ = reply.send(Err(refusal.hint("make room below the house's home; nothing was started")));
                    return None;
                }
                crash::point("office.after_waiting");
            }
            Answer::Deny(_) => {}
        }
        let denied = match &answer {
            Answer::Deny(refusal) => Some(refusal.clone()),
            _ => None,
        };
        let event = Event::Asked {
            task,
            planned: Box::new(planned),
            answer,
            question,
            grants: assessment.grants(),
            // Nothing confines yet: what only reads asks, and what a person lets run runs open.
            confinement: Confinement::None,
            opens,
            shim: spare.as_ref().map(Spare::pid),
        };
        if let Some(idempotency) = idempotency {
            self.fresh_keys.insert(idempotency.key, (task, idempotency));
        }
        match self.step(event) {
            Ok(step) => {
                let asked = Asked { task, denied, state: step.state(task).map(Box::new), joined: false };
                Some(Pending { step, looked: Some((looked, request)), spare, done: Done::Asked(reply, asked) })
            }
            Err(refusal) => {
                let _ = reply.send(Err(refusal));
                None
            }
        }
    }

    fn assess(&self, request: &Request, looked: &Looked, standing: &Standing, session: Option<&Session>) -> Assessment {
        let grants = &self.desk.register.grants;
        facts::assess(request, looked, &self.gate, standing, session, grants, clock::now())
    }

    /// The verdict, and what stands above it: what cannot be allowed at all, and what a person has just refused.
    fn answer_now(&self, assessment: &Assessment, request: &Request, same: Same, refused: Option<Refusal>) -> Answer {
        if let Some(refusal) = refused {
            return Answer::Deny(refusal);
        }
        if request.tool == Tool::SetWorkingDirectory {
            return Answer::Ask { uncovered: Vec::new() };
        }
        match &assessment.answer {
            Answer::Ask { .. } => match self.desk.refused(same, clock::now()) {
                Some((at, words)) => {
                    let minutes = NOT_AGAIN.as_secs() / 60;
                    let refusal = Refusal::new(Code::DeniedByPerson, format!("denied by user at {at}"));
                    let words = words.map(|w| format!("they said: \"{w}\"; ")).unwrap_or_default();
                    Answer::Deny(refusal.hint(format!(
                        "{words}the same request is not asked again for {minutes} minutes; do something else, or ask the person"
                    )))
                }
                None => assessment.answer.clone(),
            },
            answer => answer.clone(),
        }
    }

    /// The task that came under the same idempotency key before, if it was the same request.
    fn earlier(&self, new: Idempotency) -> Result<Option<Asked>, Refusal> {
        let fresh = self.fresh_keys.get(&new.key).map(|(task, i)| (*task, *i, clock::now()));
        let found = match fresh.or_else(|| self.joined.get(&new.key).copied()) {
            Some(found) => Some(found),
            None => self.reader.by_idempotency(new.key).map_err(|e| ledger_refusal(&e))?,
        };
        match found.filter(|(_, _, at)| clock::now().since(*at) < IDEMPOTENCY) {
            None => Ok(None),
            Some((task, old, _)) if old.body == new.body => {
                Ok(Some(Asked { task, denied: None, state: None, joined: false }))
            }
            Some((task, _, _)) => Err(Refusal::new(
                Code::IdempotencyConflict,
                format!("this Idempotency-Key came with another request before ({task})"),
            )
            .hint("use a new key for a new request")),
        }
    }

    fn answer(&mut self, answering: Answering, reply: Reply<()>) -> Option<Pending> {
        let Answering { task, approval, choice, any_arguments, words, by, world, looked } = answering;
        let refuse = |reply: Reply<()>, refusal| {
            let done = Done::Plain(reply, Err(refusal));
            Some(Pending { step: Step::default(), looked: None, spare: None, done })
        };
        let (mut saves, mut denied, mut moves) = (Vec::new(), None, None);
        let standing = self.desk.standing(task);
        let session = standing.and_then(|s| self.desk.register.roster.session(s.session?)).cloned();
        if let (Some((looked, request)), Some(standing), true) = (&looked, &standing, choice != Choice::Deny) {
            if request.tool == Tool::SetWorkingDirectory {
                moves = Some(text_by_shape(&looked.facts.cwd.resolved));
            } else {
                let assessment = self.assess(request, looked, standing, session.as_deref());
                if let Answer::Deny(refusal) = &assessment.answer {
                    denied = Some(refusal.clone());
                }
                let now = clock::now();
                let context = facts::context(request, looked, &self.gate, standing, session.as_deref(), now);
                let mint = &mut self.mint;
                let about = self.desk.question(task).unwrap_or_default().to_vec();
                let given = question::Given { choice, any_arguments, by: &by, about: &about };
                match question::grants(&given, looked, &assessment, &context, mint) {
                    Ok(grants) => saves = grants,
                    Err(refusal) => return refuse(reply, refusal),
                }
            }
        }
        let mut spare = None;
        let runs = choice != Choice::Deny && moves.is_none();
        if runs && self.desk.whose(task).is_some_and(|whose| self.desk.has_room(whose)) {
            match self.spares.take() {
                Ok(taken) => spare = Some(taken),
                Err(e) => {
                    let _ = reply.send(Err(no_shim(&self.spares, &e)));
                    return None;
                }
            }
        }
        let hint = self.hint_outside(task, session.as_deref());
        let shim = spare.as_ref().map(Spare::pid);
        let event = Event::Answered { task, approval, choice, words, by, world, saves, moves, hint, denied, shim };
        match self.step(event) {
            Ok(step) => Some(Pending { step, looked, spare, done: Done::Plain(reply, Ok(())) }),
            Err(refusal) => {
                Some(Pending { step: Step::default(), looked: None, spare, done: Done::Plain(reply, Err(refusal)) })
            }
        }
    }

    /// Who was refused something outside of its roots may ask to work there.
    fn hint_outside(&self, task: TaskId, session: Option<&Session>) -> Option<String> {
        let session = session.filter(|s| s.implicit.is_none())?;
        let roots: Vec<String> = session.roots.iter().chain(&session.folder).map(|r| r.as_str().to_owned()).collect();
        let outside = |d: &&Text| !countersign_policy::in_roots(d.as_str(), &roots);
        let place = self.desk.question(task)?.iter().flat_map(|a| &a.directories).find(outside)?;
        Some(format!("{place} is outside this session's roots: set_working_directory asks to work there"))
    }

    /// Lets a task go that waited for a person, if what was granted meanwhile covers it.
    fn release(&mut self, task: TaskId, world: World, looked: Option<(Looked, Request)>) -> Option<Pending> {
        let (standing, (looked, request)) = (self.desk.standing(task)?, looked?);
        if world != World::Same {
            return None;
        }
        let session = standing.session.and_then(|s| self.desk.register.roster.session(s)).cloned();
        let assessment = self.assess(&request, &looked, &standing, session.as_deref());
        let grants = assessment.grants();
        if !matches!(assessment.answer, Answer::Allow { .. }) || grants.is_empty() {
            return None;
        }
        let whose = self.desk.whose(task)?;
        let spare = match self.desk.has_room(whose) {
            true => match self.spares.take() {
                Ok(spare) => Some(spare),
                Err(e) => {
                    crate::log!("{}", no_shim(&self.spares, &e));
                    return None;
                }
            },
            false => None,
        };
        match self.step(Event::Covered { task, grants, shim: spare.as_ref().map(Spare::pid) }) {
            Ok(step) => Some(Pending { step, looked: Some((looked, request)), spare, done: Done::Told(None) }),
            Err(_) => {
                spare.into_iter().for_each(|s| self.spares.give_back(s));
                None
            }
        }
    }

    /// Has the world looked at for whoever in line has room now.
    fn look_for_the_next(&mut self) {
        if !self.serving {
            return;
        }
        for task in self.desk.ready() {
            if self.looking.insert(task) && self.look.send(task).is_err() {
                self.looking.remove(&task);
            }
        }
    }

    /// Lets go whoever has room, after facts were looked at again: what runs is what was permitted.
    fn fill_slot(&mut self, task: TaskId, world: World, looked: Option<(Looked, Request)>) -> Option<Pending> {
        if !self.serving || !self.desk.ready().contains(&task) {
            return None;
        }
        let spare = match self.spares.take() {
            Ok(spare) => spare,
            Err(e) => {
                crate::log!("{}", no_shim(&self.spares, &e));
                return None;
            }
        };
        let denied = looked.as_ref().and_then(|(looked, request)| self.denied_now(task, looked, request));
        match self.step(Event::Slot { task, world, denied, shim: spare.pid() }) {
            Ok(step) => Some(Pending { step, looked, spare: Some(spare), done: Done::Told(None) }),
            Err(_) => {
                self.spares.give_back(spare);
                None
            }
        }
    }

    /// Whether what was permitted before would be denied now, or what permitted it has been taken back.
    fn denied_now(&self, task: TaskId, looked: &Looked, request: &Request) -> Option<Refusal> {
        let standing = self.desk.standing(task)?;
        let register = &self.desk.register;
        let session = standing.session.and_then(|s| register.roster.session(s));
        let assessment = self.assess(request, looked, &standing, session.map(|s| &**s));
        if let Answer::Deny(refusal) = assessment.answer
            // Nobody could be asked, but nobody has to be.
            && !matches!(refusal.code, Code::ApprovalRequiredUnattended | Code::Locked)
        {
            return Some(refusal);
        }
        let Some(By::Grants(grants)) = self.desk.permitted_by(task) else { return None };
        let now = clock::now();
        let gone =
            grants.iter().find(|g| register.grants.get(**g).is_none_or(|g| g.expires_at.is_some_and(|e| e <= now)));
        gone.map(|grant| {
            Refusal::new(Code::GrantRevoked, format!("{grant}, which let it run, does not hold any more"))
                .hint("ask again: a person will be asked")
        })
    }

    /// The decisions are durable: now do what follows from them.
    fn act(&mut self, pending: Pending) {
        let Pending { step, looked, spare, done } = pending;
        match (step.launch, looked, spare) {
            (Some(launch), Some((looked, request)), Some(spare)) => {
                crash::point("office.before_hand_over");
                let (task, pid) = (launch.permit.task, spare.pid());
                self.keeper.remember_shim(task, pid);
                match self.order(launch, looked, &request).and_then(|order| {
                    spare.hand_over(order).map_err(|e| (format!("the supervisor did not take its order: {e}"), 125))
                }) {
                    Ok(channel) => self.keeper.keep(task, pid, channel),
                    Err((error, code)) => {
                        let error = text_by_shape(&error);
                        self.keeper.tell(Event::NotStarted { task, error, code });
                    }
                }
                crash::point("office.after_hand_over");
            }
            (Some(launch), _, spare) => {
                spare.into_iter().for_each(|s| self.spares.give_back(s));
                let error = Text::of("the waiting request is gone");
                self.keeper.tell(Event::NotStarted { task: launch.permit.task, error, code: 125 });
            }
            (None, _, spare) => spare.into_iter().for_each(|s| self.spares.give_back(s)),
        }
        for task in step.release {
            if self.looking.insert(task) && self.look.send(task).is_err() {
                self.looking.remove(&task);
            }
        }
        if let Some(task) = step.forget
            && let Err(e) = waiting::forget(&self.home, task)
        {
            crate::log!("{task}: its waiting request could not be deleted: {e}");
        }
        for entry in &step.decisions {
            if let Some(task) = entry.task {
                let settled = matches!(entry.decision, Decision::Settled { .. });
                self.keeper.ring(task, settled);
                if settled {
                    let _ = self.settled.send(task);
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

    fn order(&self, launch: crate::desk::Launch, looked: Looked, request: &Request) -> Result<Order, (String, i32)> {
        let task = launch.permit.task;
        let exec = looked.exec(&self.key).map_err(|e| (e, 127))?;
        let mut env = looked.env;
        env.push((countersign_model::MARKER.to_owned(), task.to_string()));
        let what = Resolved {
            task,
            plan_digest: looked.plan_digest,
            exec,
            cwd: looked.facts.cwd,
            env,
            exposure: looked.exposure,
            mode: request.mode,
            limits: request.limits,
            leftovers: request.leftovers,
            on_output_limit: request.on_output_limit,
            stdin: request.args.stdin,
            rows: request.args.rows.unwrap_or(facts::ROWS),
            cols: request.args.cols.unwrap_or(facts::COLS),
            task_dir: self.home.task_dir(task).to_string_lossy().into_owned(),
            run_dir: self.home.run().to_string_lossy().into_owned(),
            first_seq: launch.first_seq,
            prologue_head: launch.prologue_head,
            secret: crate::keeper::secret(&self.key, task),
            mask_key: self.key.digest("mask", &[task.to_string().as_bytes()]),
        };
        Order::under(launch.permit, what).map_err(|e| (e.to_string(), 125))
    }

    /// The ledger would not take it: nothing was decided, so nothing is done. What already happened is tried again.
    fn not_written(&mut self, pending: Vec<Pending>, error: &LedgerError) {
        crate::log!("a commit failed, nothing of it was done: {error}");
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
        match restore(&self.reader, self.desk.caps()) {
            Ok(desk) => self.desk = desk,
            Err(e) => crate::log!("the ledger cannot be read back: {e}"),
        }
    }
}

/// A thread that looks at the world for tasks that have room, and tells the office.
pub(crate) fn looker(
    home: Home,
    key: HouseKey,
    base_env: BTreeMap<String, String>,
    calls: mpsc::Sender<Call>,
) -> std::io::Result<mpsc::Sender<TaskId>> {
    let (send, tasks) = mpsc::channel();
    std::thread::Builder::new().name("look".into()).spawn(move || {
        for task in tasks {
            // A request that cannot be read any more is not run: the desk settles it as one that could not be started.
            let (world, looked) = facts::look_again(&home, &key, &base_env, task).unwrap_or_else(|refusal| {
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
pub(crate) fn restore(reader: &Reader, caps: Caps) -> Result<Desk, LedgerError> {
    let mut desk = Desk::new(caps);
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
        Event::Closed { task, closing } => Some(Event::Closed { task: *task, closing: closing.clone() }),
        Event::NotStarted { task, error, code } => {
            Some(Event::NotStarted { task: *task, error: error.clone(), code: *code })
        }
        Event::Lost { task, known, why, head, next_seq } => {
            Some(Event::Lost { task: *task, known: known.clone(), why: why.clone(), head: *head, next_seq: *next_seq })
        }
        Event::Asked { .. }
        | Event::Answered { .. }
        | Event::Slot { .. }
        | Event::Covered { .. }
        | Event::Wished(_)
        | Event::Withdrawn { .. }
        | Event::Expired { .. }
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
