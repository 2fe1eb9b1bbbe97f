//! The desk: the only thing that permits. `step(event) → decisions, effects`, pure; a restart is a replay.
//!
//! It knows the tasks that are not settled and nothing else: what is settled is in the ledger.

use countersign_model::{
    Answer, ApprovalId, At, By, Chain, Choice, Closing, Code, Confinement, Decision, Digest, Facts, HouseState, IdMint,
    Outcome, Permit, PermitId, Record, Refusal, Scope, TaskId, TaskState, Text, WaitsFor, What,
};
use countersign_store::ledger::Entry;
use std::collections::BTreeMap;

/// The state of the desk: a fold over the ledger.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Desk {
    open: BTreeMap<TaskId, Open>,
}

/// A task that is not settled.
#[derive(Debug, Clone, PartialEq)]
struct Open {
    next_seq: u64,
    chain: Chain,
    plan_digest: Digest,
    stage: Stage,
}

#[derive(Debug, Clone, PartialEq)]
enum Stage {
    Planned,
    Waiting { approval: ApprovalId, options: Vec<Choice> },
    Launched,
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
        plan_digest: Digest,
        answer: Answer,
        uncovered: Vec<Text>,
        confinement: Confinement,
        shim: u32,
    },
    Answered {
        task: TaskId,
        approval: ApprovalId,
        choice: Choice,
        words: Option<Text>,
        by: By,
        world: World,
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
            Some(now) if now == asked => World::Same,
            Some(now) if now.cwd != asked.cwd => {
                World::Changed("the working directory is not the one that was asked about")
            }
            Some(_) => World::Changed("the program is not the one that was asked about"),
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
        self.note(task, line, decision);
    }

    /// The one place where a decision changes the desk.
    fn note(&mut self, task: TaskId, line: &str, decision: &Decision) {
        if let Decision::Planned { plan_digest, .. } = decision {
            let chain = Chain::of_prologue(task);
            self.open.insert(task, Open { next_seq: 0, chain, plan_digest: *plan_digest, stage: Stage::Planned });
        }
        let Some(open) = self.open.get_mut(&task) else { return };
        open.next_seq += 1;
        open.chain.push(line);
        match decision {
            Decision::PermissionRequested { approval, options, .. } => {
                open.stage = Stage::Waiting { approval: *approval, options: options.clone() };
            }
            Decision::Launched { .. } => open.stage = Stage::Launched,
            Decision::Settled { .. } => drop(self.open.remove(&task)),
            _ => {}
        }
    }

    pub(crate) fn step(&mut self, now: Moment<'_>, event: Event) -> Result<Step, Refusal> {
        let mut step = Step::default();
        match event {
            Event::Asked { task, planned, plan_digest, answer, uncovered, confinement, shim } => {
                self.decide(&mut step, now.at, task, *planned);
                match answer {
                    Answer::Allow { rule } => {
                        let by = By::Rule(Text::of(rule));
                        let leave = Leave { task, plan_digest, by, scope: Scope::Policy, confinement, shim };
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
                        self.decide(&mut step, now.at, task, Decision::Queued { waits_for: WaitsFor::Approval });
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
                let plan_digest = open.plan_digest;
                step.forget = Some(task);
                match (choice, world) {
                    (Choice::Deny, _) => {
                        let refusal = Refusal::new(Code::DeniedByPerson, "denied by user");
                        self.deny(&mut step, now.at, task, by, &refusal, words);
                    }
                    (Choice::Once, World::Changed(what)) => {
                        let refusal = Refusal::new(Code::PathsChanged, what)
                            .hint("ask again: what was approved is not what is there now");
                        self.deny(&mut step, now.at, task, By::Rule(Text::of("paths_changed")), &refusal, None);
                    }
                    (Choice::Once, World::Same) => {
                        let leave =
                            Leave { task, plan_digest, by, scope: Scope::Once, confinement: Confinement::None, shim };
                        self.permit(&mut step, now, leave);
                    }
                }
            }
            Event::Withdrawn { task, by } => {
                match self.open.get(&task).map(|o| &o.stage) {
                    Some(Stage::Waiting { .. } | Stage::Planned) => {}
                    Some(Stage::Launched) => return Err(Refusal::new(Code::Internal, "the task has been launched")),
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
        self.note(task, &line, &decision);
        step.decisions.push(Entry { task: Some(task), seq, at, line, decision });
    }

    #[expect(clippy::disallowed_methods, reason = "the desk is the only thing that permits")]
    fn permit(&mut self, step: &mut Step, now: Moment<'_>, leave: Leave) {
        let Leave { task, plan_digest, by, scope, confinement, shim } = leave;
        let id = PermitId::mint(now.mint, now.at.millis(), now.chance);
        let permit = Permit::issue(id, task, plan_digest, by.clone(), scope, confinement, now.at);
        self.decide(step, now.at, task, Decision::PermissionGranted { permit: id, by, scope, confinement });
        let first_seq = self.open.get(&task).map_or(0, |o| o.next_seq) + 1;
        self.decide(step, now.at, task, Decision::Launched { shim_pid: shim, first_seq });
        let prologue_head = self.open.get(&task).map_or(plan_digest, |o| o.chain.head());
        step.launch = Some(Launch { permit, first_seq, prologue_head });
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
    plan_digest: Digest,
    by: By,
    scope: Scope,
    confinement: Confinement,
    shim: u32,
}

fn over() -> Refusal {
    Refusal::new(Code::TaskOver, "the task is over")
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_model::{Audience, CredentialKind, Mode, PrincipalId, Profile, Tool};

    struct Office {
        desk: Desk,
        mint: IdMint,
        written: Vec<Entry>,
    }

    impl Office {
        fn new() -> Self {
            Self { desk: Desk::default(), mint: IdMint::default(), written: Vec::new() }
        }

        fn step(&mut self, event: Event) -> Result<Step, Refusal> {
            let at = At::from_micros(1_700_000_000_000_000 + self.written.len() as i64);
            let step = self.desk.step(Moment { at, chance: 7, mint: &mut self.mint }, event)?;
            self.written.extend(step.decisions.iter().cloned());
            let mut again = Desk::default();
            for entry in self.written.iter().filter(|e| e.task.is_some()) {
                let record = Record::parse(&entry.line).unwrap();
                again.replay(entry.task.unwrap(), &entry.line, &record);
            }
            // Written by a settle, `next_seq` counts the journal too; an open task's is the same either way.
            assert_eq!(again, self.desk, "replay equals live");
            Ok(step)
        }

        fn ask(&mut self, answer: Answer) -> (TaskId, Step) {
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
                session: None,
                principal: PrincipalId::owner(),
                credential: CredentialKind::Person,
                risks: vec![],
                audience: Audience::Personal,
                profile: Profile::Safe,
                background: false,
                idempotency: None,
            };
            let uncovered = vec![Text::of("make")];
            let event = Event::Asked {
                task,
                planned: Box::new(planned),
                plan_digest: digest,
                answer,
                uncovered,
                confinement: Confinement::None,
                shim: 42,
            };
            let step = self.step(event).unwrap();
            (task, step)
        }

        fn answer(&mut self, task: TaskId, choice: Choice, world: World) -> Result<Step, Refusal> {
            let Some(Open { stage: Stage::Waiting { approval, .. }, .. }) = self.desk.open.get(&task).cloned() else {
                let approval = ApprovalId::mint(&mut self.mint, 1, 1);
                let by = By::Rule(Text::of("t"));
                return self.step(Event::Answered { task, approval, choice, words: None, by, world, shim: 1 });
            };
            let by = By::Person { principal: PrincipalId::owner(), surface: Text::of("socket") };
            self.step(Event::Answered { task, approval, choice, words: None, by, world, shim: 1 })
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
}
