//! The desk: the only thing that permits. `step(event) → decisions, effects`, pure; a restart is a replay.
//!
//! It knows the tasks that are not settled and nothing else: what is settled is in the ledger.

use countersign_model::{
    Answer, ApprovalId, At, By, Chain, Choice, Closing, Code, Confinement, Decision, Digest, Facts, HouseState, IdMint,
    Outcome, Permit, PermitId, PrincipalId, Record, Refusal, Scope, SessionId, StreamTotals, TaskId, TaskState, Text,
    WaitsFor, What,
};
use countersign_store::ledger::Entry;
use std::collections::BTreeMap;

/// The state of the desk: a fold over the ledger.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Desk {
    caps: Caps,
    open: BTreeMap<TaskId, Open>,
}

/// How many tasks run at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Caps {
    pub(crate) session: u64,
    pub(crate) principal: u64,
    pub(crate) house: u64,
}

impl Default for Caps {
    fn default() -> Self {
        Self { session: 16, principal: 64, house: 256 }
    }
}

/// Whose tasks are counted together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Whose {
    pub(crate) session: Option<SessionId>,
    pub(crate) principal: PrincipalId,
}

/// A task that is not settled.
#[derive(Debug, Clone, PartialEq)]
struct Open {
    next_seq: u64,
    chain: Chain,
    plan_digest: Digest,
    whose: Whose,
    stage: Stage,
}

#[derive(Debug, Clone, PartialEq)]
enum Stage {
    Planned,
    Waiting {
        approval: ApprovalId,
        options: Vec<Choice>,
    },
    Permitted(Granted),
    /// Permitted, and in line for a slot since then.
    InLine {
        since: At,
        granted: Granted,
    },
    Launched,
}

/// What `permission.granted` said: all that a permit is made of.
#[derive(Debug, Clone, PartialEq)]
struct Granted {
    permit: PermitId,
    by: By,
    scope: Scope,
    confinement: Confinement,
}

/// What a moment brings with it: the desk reads no clock and draws no numbers.
pub(crate) struct Moment<'a> {
    pub(crate) at: At,
    pub(crate) chance: u32,
    pub(crate) mint: &'a mut IdMint,
}

/// Everything that can come to the desk.
pub(crate) enum Event {
    /// A request that has been read, looked at and judged. `planned` is its first decision.
    Asked {
        task: TaskId,
        planned: Box<Decision>,
        answer: Answer,
        uncovered: Vec<Text>,
        confinement: Confinement,
        /// The shim that would run it; without one it waits for a slot.
        shim: Option<u32>,
    },
    Answered {
        task: TaskId,
        approval: ApprovalId,
        choice: Choice,
        words: Option<Text>,
        by: By,
        world: World,
        shim: Option<u32>,
    },
    /// There is room for a task that was in line. The world was looked at again, and judged again.
    Slot {
        task: TaskId,
        world: World,
        denied: Option<Refusal>,
        shim: u32,
    },
    Withdrawn {
        task: TaskId,
        by: Text,
    },
    /// The shim has closed its journal.
    Closed {
        task: TaskId,
        closing: Closing,
    },
    /// There is no journal and there never will be one.
    NotStarted {
        task: TaskId,
        error: Text,
        code: i32,
    },
    /// The shim is gone and its journal is open: we do not know how it ended.
    Lost {
        task: TaskId,
        known: Text,
        why: Text,
        head: Digest,
        next_seq: u64,
    },
    /// The directory of a settled task goes.
    Expired {
        task: TaskId,
        seq: u64,
        why: Text,
        bytes: u64,
        streams: StreamTotals,
    },
    House {
        state: HouseState,
        reason: Option<Text>,
    },
}

/// Whether the facts at launch are the facts that were asked about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum World {
    Same,
    Changed(&'static str),
}

impl World {
    pub(crate) fn compare(asked: &Facts, now: Option<&Facts>) -> Self {
        match now {
            Some(now) if now.same(asked) => World::Same,
            Some(now) if now.cwd != asked.cwd => {
                World::Changed("the working directory is not the one that was asked about")
            }
            Some(now) if now.program != asked.program || now.programs != asked.programs => {
                World::Changed("the program is not the one that was asked about")
            }
            Some(now) if now.scripts != asked.scripts => {
                World::Changed("the script is not the one that was asked about")
            }
            Some(_) => World::Changed("a path leads somewhere else than when it was asked about"),
            None => World::Changed("the working directory is gone"),
        }
    }
}

/// What follows from an event, once its decisions are durable.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) decisions: Vec<Entry>,
    pub(crate) launch: Option<Launch>,
    /// The raw request is not needed any more.
    pub(crate) forget: Option<TaskId>,
}

impl Step {
    /// The state of a task whose life began in this step.
    pub(crate) fn state(&self, task: TaskId) -> Option<TaskState> {
        let record = |e: &Entry| Record { seq: e.seq, at: e.at, t_us: None, what: What::Decision(e.decision.clone()) };
        let records: Vec<Record> = self.decisions.iter().filter(|e| e.task == Some(task)).map(record).collect();
        TaskState::fold(task, &records)
    }
}

/// Leave to start a shim's work.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) permit: Permit,
    pub(crate) first_seq: u64,
    pub(crate) prologue_head: Digest,
}

impl Desk {
    pub(crate) fn caps(&self) -> Caps {
        self.caps
    }

    pub(crate) fn new(caps: Caps) -> Self {
        Self { caps, open: BTreeMap::new() }
    }

    /// The tasks that wait for a slot, first come first.
    pub(crate) fn line(&self) -> Vec<TaskId> {
        let since = |o: &Open| match &o.stage {
            Stage::InLine { since, .. } => Some(*since),
            _ => None,
        };
        let mut line: Vec<(At, TaskId)> = self.open.iter().filter_map(|(t, o)| Some((since(o)?, *t))).collect();
        line.sort_unstable();
        line.into_iter().map(|(_, task)| task).collect()
    }

    /// Those of them that may go now. Whoever is held up by the tasks of their own session or principal holds up
    /// nobody else.
    pub(crate) fn ready(&self) -> Vec<TaskId> {
        let mut running = self.running();
        let mut ready = Vec::new();
        for task in self.line() {
            if running.len() as u64 >= self.caps.house {
                break;
            }
            let Some(open) = self.open.get(&task) else { continue };
            if self.fits(&running, open.whose) {
                running.push(open.whose);
                ready.push(task);
            }
        }
        ready
    }

    /// Whether a task of these could run at once. While somebody in line is about to go, nobody overtakes.
    pub(crate) fn has_room(&self, whose: Whose) -> bool {
        self.fits(&self.running(), whose) && self.ready().is_empty()
    }

    fn running(&self) -> Vec<Whose> {
        self.open.values().filter(|o| o.stage == Stage::Launched).map(|o| o.whose).collect()
    }

    fn fits(&self, running: &[Whose], whose: Whose) -> bool {
        let count = |same: &dyn Fn(&Whose) -> bool| running.iter().filter(|w| same(w)).count() as u64;
        let session = whose.session.map_or(0, |session| count(&|w| w.session == Some(session)));
        session < self.caps.session
            && count(&|w| w.principal == whose.principal) < self.caps.principal
            && (running.len() as u64) < self.caps.house
    }

    /// Whose task this is, while it is open.
    pub(crate) fn whose(&self, task: TaskId) -> Option<Whose> {
        self.open.get(&task).map(|o| o.whose)
    }

    /// How many tasks are on their way.
    pub(crate) fn busy(&self) -> usize {
        self.open.values().filter(|o| o.stage == Stage::Launched).count()
    }

    pub(crate) fn launched(&self) -> Vec<TaskId> {
        self.open.iter().filter(|(_, o)| o.stage == Stage::Launched).map(|(t, _)| *t).collect()
    }

    /// One decision that is already in the ledger: the other half of the fold.
    pub(crate) fn replay(&mut self, task: TaskId, line: &str, record: &Record) {
        let What::Decision(decision) = &record.what else { return };
        self.note(task, record.at, line, decision);
    }

    /// The one place where a decision changes the desk.
    fn note(&mut self, task: TaskId, at: At, line: &str, decision: &Decision) {
        if let Decision::Planned { plan_digest, session, principal, .. } = decision {
            let whose = Whose { session: *session, principal: *principal };
            let (chain, plan_digest) = (Chain::of_prologue(task), *plan_digest);
            self.open.insert(task, Open { next_seq: 0, chain, plan_digest, whose, stage: Stage::Planned });
        }
        let Some(open) = self.open.get_mut(&task) else { return };
        open.next_seq += 1;
        open.chain.push(line);
        match decision {
            Decision::PermissionRequested { approval, options, .. } => {
                open.stage = Stage::Waiting { approval: *approval, options: options.clone() };
            }
            Decision::PermissionGranted { permit, by, scope, confinement } => {
                let (permit, by) = (*permit, by.clone());
                open.stage = Stage::Permitted(Granted { permit, by, scope: *scope, confinement: *confinement });
            }
            Decision::Queued { waits_for: WaitsFor::Slot, .. } => {
                if let Stage::Permitted(granted) = std::mem::replace(&mut open.stage, Stage::Planned) {
                    open.stage = Stage::InLine { since: at, granted };
                }
            }
            Decision::Launched { .. } => open.stage = Stage::Launched,
            Decision::Settled { .. } => drop(self.open.remove(&task)),
            _ => {}
        }
    }

    pub(crate) fn step(&mut self, now: Moment<'_>, event: Event) -> Result<Step, Refusal> {
        let mut step = Step::default();
        match event {
            Event::Asked { task, planned, answer, uncovered, confinement, shim } => {
                self.decide(&mut step, now.at, task, *planned);
                match answer {
                    Answer::Allow { rule } => {
                        let by = By::Rule(Text::of(rule));
                        let leave = Leave { task, by, scope: Scope::Policy, confinement, shim };
                        self.permit(&mut step, now, leave);
                    }
                    Answer::Ask { .. } => {
                        let approval = ApprovalId::mint(now.mint, now.at.millis(), now.chance);
                        let options = vec![Choice::Once, Choice::Deny];
                        self.decide(
                            &mut step,
                            now.at,
                            task,
                            Decision::PermissionRequested { approval, uncovered, options },
                        );
                        let queued = Decision::Queued { waits_for: WaitsFor::Approval, position: None };
                        self.decide(&mut step, now.at, task, queued);
                    }
                    Answer::Deny(refusal) => {
                        self.deny(&mut step, now.at, task, By::Rule(Text::of(refusal.code.as_str())), &refusal, None)
                    }
                }
            }
            Event::Answered { task, approval, choice, words, by, world, shim } => {
                let open = self.waiting(task, approval)?;
                if let Stage::Waiting { options, .. } = &open.stage
                    && !options.contains(&choice)
                {
                    return Err(Refusal::new(Code::OptionNotOffered, format!("`{choice}` was not offered"))
                        .hint("look at the options with `csn approvals show`"));
                }
                match (choice, world) {
                    (Choice::Deny, _) => {
                        step.forget = Some(task);
                        let refusal = Refusal::new(Code::DeniedByPerson, "denied by user");
                        self.deny(&mut step, now.at, task, by, &refusal, words);
                    }
                    (Choice::Once, World::Changed(what)) => {
                        step.forget = Some(task);
                        self.paths_changed(&mut step, now.at, task, what);
                    }
                    (Choice::Once, World::Same) => {
                        step.forget = shim.map(|_| task);
                        let leave = Leave { task, by, scope: Scope::Once, confinement: Confinement::None, shim };
                        self.permit(&mut step, now, leave);
                    }
                }
            }
            Event::Slot { task, world, denied, shim } => {
                if !matches!(self.open.get(&task).map(|o| &o.stage), Some(Stage::InLine { .. })) {
                    return Err(over());
                }
                step.forget = Some(task);
                match (denied, world) {
                    (Some(refusal), _) => {
                        let by = By::Rule(Text::of(refusal.code.as_str()));
                        self.deny(&mut step, now.at, task, by, &refusal, None);
                    }
                    (None, World::Changed(what)) => self.paths_changed(&mut step, now.at, task, what),
                    (None, World::Same) => self.launch(&mut step, now.at, task, shim),
                }
            }
            Event::Withdrawn { task, by } => {
                match self.open.get(&task).map(|o| &o.stage) {
                    Some(Stage::Waiting { .. } | Stage::Planned | Stage::Permitted(_) | Stage::InLine { .. }) => {}
                    Some(Stage::Launched) => return Err(Refusal::new(Code::TaskStarted, "the task has been launched")),
                    None => return Err(over()),
                }
                step.forget = Some(task);
                self.decide(&mut step, now.at, task, Decision::Withdrawn { by: by.clone() });
                self.settle(&mut step, now.at, task, Outcome::Withdrawn { by }, None);
            }
            Event::Closed { task, closing } => {
                self.launched_only(task)?.next_seq = closing.next_seq;
                self.settle(&mut step, now.at, task, closing.outcome, Some(closing.head));
            }
            Event::NotStarted { task, error, code } => {
                self.launched_only(task)?;
                self.settle(&mut step, now.at, task, Outcome::Failed { error, code }, None);
            }
            Event::Lost { task, known, why, head, next_seq } => {
                self.launched_only(task)?.next_seq = next_seq;
                self.decide(&mut step, now.at, task, Decision::Lost { known });
                self.settle(&mut step, now.at, task, Outcome::Lost { why }, Some(head));
            }
            Event::Expired { task, seq, why, bytes, streams } => {
                let decision = Decision::Expired { why, bytes, streams };
                let line = Record::decision_line(seq, now.at, &decision);
                step.decisions.push(Entry { task: Some(task), seq, at: now.at, line, decision });
            }
            Event::House { state, reason } => {
                let decision = Decision::House { state, reason };
                let line = Record::decision_line(0, now.at, &decision);
                step.decisions.push(Entry { task: None, seq: 0, at: now.at, line, decision });
            }
        }
        Ok(step)
    }

    fn waiting(&self, task: TaskId, wanted: ApprovalId) -> Result<&Open, Refusal> {
        match self.open.get(&task) {
            Some(open) if matches!(open.stage, Stage::Waiting { approval, .. } if approval == wanted) => Ok(open),
            _ => Err(Refusal::new(Code::AlreadyAnswered, "this has been answered or withdrawn already")
                .hint(format!("see `csn approvals show {wanted}`"))),
        }
    }

    fn launched_only(&mut self, task: TaskId) -> Result<&mut Open, Refusal> {
        self.open.get_mut(&task).filter(|o| o.stage == Stage::Launched).ok_or_else(over)
    }

    fn decide(&mut self, step: &mut Step, at: At, task: TaskId, decision: Decision) {
        let seq = self.open.get(&task).map_or(0, |o| o.next_seq);
        let line = Record::decision_line(seq, at, &decision);
        self.note(task, at, &line, &decision);
        step.decisions.push(Entry { task: Some(task), seq, at, line, decision });
    }

    /// Permits a task: it runs at once when there is a shim for it, else it joins the line.
    fn permit(&mut self, step: &mut Step, now: Moment<'_>, leave: Leave) {
        let Leave { task, by, scope, confinement, shim } = leave;
        let permit = PermitId::mint(now.mint, now.at.millis(), now.chance);
        self.decide(step, now.at, task, Decision::PermissionGranted { permit, by, scope, confinement });
        match shim {
            Some(shim) => self.launch(step, now.at, task, shim),
            None => {
                // Behind everyone who is there, also when the clock went back.
                let line = self.line();
                let last = line.last().and_then(|task| match self.open.get(task)?.stage {
                    Stage::InLine { since, .. } => Some(At::from_micros(since.micros() + 1)),
                    _ => None,
                });
                let at = last.map_or(now.at, |last| last.max(now.at));
                let position = Some(line.len() as u64 + 1);
                self.decide(step, at, task, Decision::Queued { waits_for: WaitsFor::Slot, position });
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the desk is the only thing that permits")]
    fn launch(&mut self, step: &mut Step, at: At, task: TaskId, shim: u32) {
        let Some(Open { next_seq, plan_digest, stage, .. }) = self.open.get(&task).cloned() else { return };
        let (Stage::Permitted(granted) | Stage::InLine { granted, .. }) = stage else { return };
        let Granted { permit, by, scope, confinement } = granted;
        let permit = Permit::issue(permit, task, plan_digest, by, scope, confinement, at);
        let first_seq = next_seq + 1;
        self.decide(step, at, task, Decision::Launched { shim_pid: shim, first_seq });
        let prologue_head = self.open.get(&task).map_or(plan_digest, |o| o.chain.head());
        step.launch = Some(Launch { permit, first_seq, prologue_head });
    }

    fn paths_changed(&mut self, step: &mut Step, at: At, task: TaskId, what: &'static str) {
        let refusal =
            Refusal::new(Code::PathsChanged, what).hint("ask again: what was approved is not what is there now");
        self.deny(step, at, task, By::Rule(Text::of("paths_changed")), &refusal, None);
    }

    fn deny(&mut self, step: &mut Step, at: At, task: TaskId, by: By, refusal: &Refusal, words: Option<Text>) {
        let reason = Text::of(refusal.code.as_str());
        // What a refusal says is ours, not the asker's; it goes through redaction like everything else.
        let hint = refusal.hint.as_deref().map(countersign_redact::text_by_shape);
        self.decide(step, at, task, Decision::PermissionDenied { by, reason: reason.clone(), hint, words });
        self.settle(step, at, task, Outcome::Denied { reason }, None);
    }

    fn settle(&mut self, step: &mut Step, at: At, task: TaskId, outcome: Outcome, journal_head: Option<Digest>) {
        self.decide(step, at, task, Decision::Settled { outcome, journal_head });
    }
}

struct Leave {
    task: TaskId,
    by: By,
    scope: Scope,
    confinement: Confinement,
    shim: Option<u32>,
}

fn over() -> Refusal {
    Refusal::new(Code::TaskOver, "the task is over")
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_model::{Audience, CredentialKind, Mode, Profile, Tool};

    struct Office {
        desk: Desk,
        mint: IdMint,
        written: Vec<Entry>,
        clock: i64,
    }

    impl Office {
        fn new() -> Self {
            Self { desk: Desk::default(), mint: IdMint::default(), written: Vec::new(), clock: 1_700_000_000_000_000 }
        }

        fn step(&mut self, event: Event) -> Result<Step, Refusal> {
            let at = At::from_micros(self.clock + self.written.len() as i64);
            let step = self.desk.step(Moment { at, chance: 7, mint: &mut self.mint }, event)?;
            self.written.extend(step.decisions.iter().cloned());
            let mut again = Desk::new(self.desk.caps);
            for entry in self.written.iter().filter(|e| e.task.is_some()) {
                let record = Record::parse(&entry.line).unwrap();
                again.replay(entry.task.unwrap(), &entry.line, &record);
            }
            // Written by a settle, `next_seq` counts the journal too; an open task's is the same either way.
            assert_eq!(again, self.desk, "replay equals live");
            Ok(step)
        }

        fn ask(&mut self, answer: Answer) -> (TaskId, Step) {
            self.ask_in(None, answer)
        }

        fn ask_in(&mut self, session: Option<SessionId>, answer: Answer) -> (TaskId, Step) {
            let task = TaskId::mint(&mut self.mint, 1, 1);
            let digest = Digest::sha256(&[b"plan"]);
            let planned = Decision::Planned {
                plan_digest: digest,
                display: Text::of("make"),
                verb: Text::of("make"),
                cwd: Text::of("/p"),
                mode: Mode::Pipes,
                tool: Tool::Shell,
                title: None,
                rationale: None,
                session,
                principal: PrincipalId::owner(),
                credential: CredentialKind::Person,
                risks: vec![],
                audience: Audience::Personal,
                profile: Profile::Safe,
                background: false,
                limits: Box::default(),
                workspace: None,
                idempotency: None,
            };
            let uncovered = vec![Text::of("make")];
            let event = Event::Asked {
                task,
                planned: Box::new(planned),
                answer,
                uncovered,
                confinement: Confinement::None,
                shim: self.desk.has_room(Whose { session, principal: PrincipalId::owner() }).then_some(42),
            };
            let step = self.step(event).unwrap();
            (task, step)
        }

        fn answer(&mut self, task: TaskId, choice: Choice, world: World) -> Result<Step, Refusal> {
            let Some(Open { stage: Stage::Waiting { approval, .. }, .. }) = self.desk.open.get(&task).cloned() else {
                let approval = ApprovalId::mint(&mut self.mint, 1, 1);
                let by = By::Rule(Text::of("t"));
                return self.step(Event::Answered { task, approval, choice, words: None, by, world, shim: Some(1) });
            };
            let by = By::Person { principal: PrincipalId::owner(), surface: Text::of("socket") };
            self.step(Event::Answered { task, approval, choice, words: None, by, world, shim: Some(1) })
        }
    }

    fn kinds(step: &Step) -> Vec<String> {
        let kind =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["kind"].as_str().unwrap().to_owned();
        step.decisions.iter().map(|e| kind(&e.line)).collect()
    }

    #[test]
    fn allowed_at_once_is_one_commit_up_to_launch() {
        let mut office = Office::new();
        let (_, step) = office.ask(Answer::Allow { rule: "profile.full_auto" });
        assert_eq!(kinds(&step), ["command.planned", "permission.granted", "task.launched"]);
        assert_eq!(step.launch.unwrap().first_seq, 3);
    }

    #[test]
    fn a_question_is_answered_once() {
        let mut office = Office::new();
        let (task, step) = office.ask(Answer::Ask { uncovered: vec![0] });
        assert_eq!(kinds(&step), ["command.planned", "permission.requested", "task.queued"]);
        assert!(step.launch.is_none());
        let step = office.answer(task, Choice::Once, World::Same).unwrap();
        assert_eq!(kinds(&step), ["permission.granted", "task.launched"]);
        assert_eq!(office.answer(task, Choice::Deny, World::Same).unwrap_err().code, Code::AlreadyAnswered);
    }

    #[test]
    fn what_changed_since_the_question_does_not_run() {
        let mut office = Office::new();
        let (task, _) = office.ask(Answer::Ask { uncovered: vec![0] });
        let step = office.answer(task, Choice::Once, World::Changed("x")).unwrap();
        assert!(step.launch.is_none());
        assert_eq!(kinds(&step), ["permission.denied", "task.settled"]);
    }

    #[test]
    fn withdrawn_or_denied_never_launches() {
        let mut office = Office::new();
        let (a, _) = office.ask(Answer::Ask { uncovered: vec![0] });
        let (b, _) = office.ask(Answer::Ask { uncovered: vec![0] });
        assert!(office.step(Event::Withdrawn { task: a, by: Text::of("t") }).unwrap().launch.is_none());
        assert!(office.answer(b, Choice::Deny, World::Same).unwrap().launch.is_none());
        for task in [a, b] {
            assert_eq!(office.answer(task, Choice::Once, World::Same).unwrap_err().code, Code::AlreadyAnswered);
        }
    }

    #[test]
    fn a_task_settles_once() {
        let mut office = Office::new();
        let (task, step) = office.ask(Answer::Allow { rule: "profile.full_auto" });
        let head = step.launch.unwrap().prologue_head;
        let closing = Closing { outcome: Outcome::Exited { code: 0 }, head, next_seq: 9 };
        let step = office.step(Event::Closed { task, closing: closing.clone() }).unwrap();
        assert_eq!(step.decisions[0].seq, 9);
        assert_eq!(office.step(Event::Closed { task, closing }).unwrap_err().code, Code::TaskOver);
    }
    const YES: Answer = Answer::Allow { rule: "profile.full_auto" };

    fn small(session: u64, principal: u64, house: u64) -> Office {
        Office { desk: Desk::new(Caps { session, principal, house }), ..Office::new() }
    }

    fn end(office: &mut Office, task: TaskId) {
        let closing = Closing { outcome: Outcome::Exited { code: 0 }, head: Digest::sha256(&[]), next_seq: 9 };
        office.step(Event::Closed { task, closing }).unwrap();
    }

    fn slot(office: &mut Office, task: TaskId) -> Step {
        office.step(Event::Slot { task, world: World::Same, denied: None, shim: 7 }).unwrap()
    }

    #[test]
    fn f170_the_line_is_first_come_first_served() {
        let mut office = small(16, 64, 2);
        let (a, _) = office.ask(YES);
        office.ask(YES);
        let (c, step) = office.ask(YES);
        assert_eq!(kinds(&step), ["command.planned", "permission.granted", "task.queued"]);
        assert_eq!(step.state(c).unwrap().position, Some(1));
        let (d, step) = office.ask(YES);
        assert_eq!(step.state(d).unwrap().position, Some(2));
        assert_eq!((office.desk.ready(), office.desk.line()), (vec![], vec![c, d]));
        end(&mut office, a);
        assert_eq!(office.desk.ready(), [c]);
        let (e, step) = office.ask(YES);
        assert!(step.launch.is_none(), "nobody overtakes somebody who is about to go");
        assert_eq!(kinds(&slot(&mut office, c)), ["task.launched"]);
        assert_eq!((office.desk.ready(), office.desk.line()), (vec![], vec![d, e]));
    }

    #[test]
    fn the_line_keeps_its_order_when_the_clock_goes_back() {
        let mut office = small(16, 64, 1);
        office.ask(YES);
        let (b, _) = office.ask(YES);
        office.clock -= 3_600_000_000;
        let (c, _) = office.ask(YES);
        let (d, _) = office.ask(YES);
        assert_eq!(office.desk.line(), [b, c, d]);
    }

    #[test]
    fn a_full_session_holds_up_nobody_else() {
        let mut office = small(1, 3, 4);
        let session = |n: u32| Some(SessionId::mint(&mut IdMint::default(), 1, n));
        let (a, _) = office.ask_in(session(1), YES);
        let (b, _) = office.ask_in(session(1), YES);
        let (c, step) = office.ask_in(session(2), YES);
        assert!(step.launch.is_some(), "another session has room");
        let (d, _) = office.ask(YES);
        let (e, _) = office.ask(YES);
        assert_eq!(office.desk.line(), [b, e]);
        end(&mut office, c);
        assert_eq!(office.desk.ready(), [e], "the first in line is held up by its own session");
        end(&mut office, a);
        end(&mut office, d);
        assert_eq!(office.desk.ready(), [b, e]);
    }

    #[test]
    fn f151_in_line_can_be_withdrawn_and_a_changed_world_does_not_run() {
        let mut office = small(16, 64, 1);
        let (a, _) = office.ask(YES);
        let (b, _) = office.ask(YES);
        let (c, _) = office.ask(YES);
        let (d, _) = office.ask(YES);
        let step = office.step(Event::Withdrawn { task: b, by: Text::of("t") }).unwrap();
        assert_eq!(kinds(&step), ["task.withdrawn", "task.settled"]);
        end(&mut office, a);
        let gone = Event::Slot { task: c, world: World::Changed("x"), denied: None, shim: 7 };
        assert_eq!(kinds(&office.step(gone).unwrap()), ["permission.denied", "task.settled"]);
        let revoked = Refusal::new(Code::Locked, "not any more");
        let denied = Event::Slot { task: d, world: World::Same, denied: Some(revoked), shim: 7 };
        let step = office.step(denied).unwrap();
        assert!(step.launch.is_none() && step.forget == Some(d));
        assert_eq!(kinds(&step), ["permission.denied", "task.settled"]);
    }

    #[test]
    fn what_a_person_approved_waits_in_line_too() {
        let mut office = small(16, 64, 1);
        let (a, _) = office.ask(YES);
        let (b, _) = office.ask(Answer::Ask { uncovered: vec![0] });
        let Some(Open { stage: Stage::Waiting { approval, .. }, .. }) = office.desk.open.get(&b).cloned() else {
            panic!("it waits for a person");
        };
        let by = By::Person { principal: PrincipalId::owner(), surface: Text::of("socket") };
        let answered = Event::Answered {
            task: b,
            approval,
            choice: Choice::Once,
            words: None,
            by,
            world: World::Same,
            shim: None,
        };
        let step = office.step(answered).unwrap();
        assert_eq!((kinds(&step), step.forget), (vec!["permission.granted".to_owned(), "task.queued".into()], None));
        end(&mut office, a);
        let step = slot(&mut office, b);
        assert_eq!(step.launch.unwrap().permit.scope, Scope::Once);
    }
}
