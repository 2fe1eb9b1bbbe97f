//! The desk: the only thing that permits. `step(event) → decisions, effects`, pure; a restart is a replay.
//!
//! It knows the tasks that are not settled, and the register: grants, sessions, credentials. What is settled is in the
//! ledger.

mod event;

pub(crate) use event::{Event, Launch, Moment, Permitted, Question, Same, Standing, Step, Whose, World};

use crate::wish;
use countersign_model::{
    About, Answer, ApprovalId, At, By, Chain, Channel, Choice, Code, Confinement, Decision, Digest, Entered, Grant,
    GrantId, Outcome, Permit, PermitId, Record, Refusal, Register, Saved, Scope, SessionId, TaskId, Text, Tool,
    WaitsFor, What,
};
use countersign_store::ledger::Entry;
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

/// How long an identical request is not asked again after a person has refused it.
pub(crate) const NOT_AGAIN: Duration = Duration::from_secs(600);

/// The state of the desk: a fold over the ledger.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Desk {
    caps: Caps,
    open: BTreeMap<TaskId, Open>,
    /// Grants, sessions, credentials.
    pub(crate) register: Register,
    /// The policy that it judges by, for the record.
    pub(crate) policy: Option<Digest>,
    /// What a person has refused of late, and their words.
    refused: HashMap<Same, (At, Option<Text>)>,
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

/// A task that is not settled.
#[derive(Debug, Clone, PartialEq)]
struct Open {
    next_seq: u64,
    chain: Chain,
    plan_digest: Digest,
    standing: Standing,
    background: bool,
    /// One of its risks is such that only a person, not an agent's client, may answer for it.
    grave: bool,
    stage: Stage,
}

impl Open {
    fn whose(&self) -> Whose {
        Whose { session: self.standing.session, principal: self.standing.principal }
    }

    fn same(&self) -> Same {
        let Standing { principal, session, profile, .. } = self.standing;
        Same { principal, session, plan_digest: self.plan_digest, background: self.background, profile }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Stage {
    Planned,
    Waiting {
        approval: ApprovalId,
        options: Vec<Choice>,
        about: Vec<About>,
    },
    Permitted(Granted),
    /// Permitted, and in line for a slot since then.
    InLine {
        since: At,
        granted: Granted,
    },
    Launched,
    /// Whoever asked runs it, since then.
    Observed(At),
}

/// What `permission.granted` said: all that a permit is made of.
#[derive(Debug, Clone, PartialEq)]
struct Granted {
    permit: PermitId,
    by: By,
    scope: Scope,
    permitted: Permitted,
}

impl Desk {
    pub(crate) fn caps(&self) -> Caps {
        self.caps
    }

    pub(crate) fn new(caps: Caps) -> Self {
        Self { caps, ..Self::default() }
    }

    /// As whom a task that is not settled is judged.
    pub(crate) fn standing(&self, task: TaskId) -> Option<Standing> {
        self.open.get(&task).map(|o| o.standing)
    }

    /// A task that waits for a person with the very same request.
    pub(crate) fn joins(&self, same: Same) -> Option<TaskId> {
        let waits = |o: &Open| matches!(o.stage, Stage::Waiting { .. }) && o.same() == same;
        self.open.iter().find(|(_, o)| waits(o)).map(|(task, _)| *task)
    }

    /// When a person refused the very same request, if that was not long ago, and what they said.
    pub(crate) fn refused(&self, same: Same, now: At) -> Option<(At, Option<Text>)> {
        self.refused.get(&same).filter(|(at, _)| now.since(*at) < NOT_AGAIN).cloned()
    }

    /// Whether a task waits for a person, and where it works.
    pub(crate) fn question(&self, task: TaskId) -> Option<&[About]> {
        match &self.open.get(&task)?.stage {
            Stage::Waiting { about, .. } => Some(about),
            _ => None,
        }
    }

    /// The tasks that wait for a person.
    pub(crate) fn waiting_for_a_person(&self) -> Vec<TaskId> {
        let waits = |o: &Open| matches!(o.stage, Stage::Waiting { .. });
        self.open.iter().filter(|(_, o)| waits(o)).map(|(task, _)| *task).collect()
    }

    /// How many tasks of a principal have not been launched.
    pub(crate) fn waiting_of(&self, principal: countersign_model::PrincipalId) -> usize {
        let waits =
            |o: &&Open| !matches!(o.stage, Stage::Launched | Stage::Observed(_)) && o.standing.principal == principal;
        self.open.values().filter(waits).count()
    }

    /// Who let a task run that is in line.
    pub(crate) fn permitted_by(&self, task: TaskId) -> Option<&By> {
        match &self.open.get(&task)?.stage {
            Stage::Permitted(granted) | Stage::InLine { granted, .. } => Some(&granted.by),
            _ => None,
        }
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
            if self.fits(&running, open.whose()) {
                running.push(open.whose());
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
        self.open.values().filter(|o| o.stage == Stage::Launched).map(Open::whose).collect()
    }

    fn fits(&self, running: &[Whose], whose: Whose) -> bool {
        let count = |same: &dyn Fn(&Whose) -> bool| running.iter().filter(|w| same(w)).count() as u64;
        // A session that nobody opened is one place, not one conversation.
        let opened = |s: &SessionId| self.register.roster.session(*s).is_none_or(|s| s.implicit.is_none());
        let session = whose.session.filter(opened).map_or(0, |session| count(&|w| w.session == Some(session)));
        session < self.caps.session
            && count(&|w| w.principal == whose.principal) < self.caps.principal
            && (running.len() as u64) < self.caps.house
    }

    /// Whose task this is, while it is open.
    pub(crate) fn whose(&self, task: TaskId) -> Option<Whose> {
        self.open.get(&task).map(Open::whose)
    }

    /// How many tasks are on their way.
    pub(crate) fn busy(&self) -> usize {
        self.open.values().filter(|o| o.stage == Stage::Launched).count()
    }

    pub(crate) fn launched(&self) -> Vec<TaskId> {
        self.open.iter().filter(|(_, o)| o.stage == Stage::Launched).map(|(t, _)| *t).collect()
    }

    /// The tasks that others run and nobody has told the end of since `before`.
    pub(crate) fn never_told(&self, before: At) -> Vec<TaskId> {
        let old = |o: &Open| matches!(o.stage, Stage::Observed(since) if since < before);
        self.open.iter().filter(|(_, o)| old(o)).map(|(t, _)| *t).collect()
    }

    /// One decision that is already in the ledger: the other half of the fold.
    pub(crate) fn replay(&mut self, task: TaskId, line: &str, record: &Record) {
        let What::Decision(decision) = &record.what else { return };
        self.note(task, record.at, line, decision);
    }

    /// The one place where a decision changes the desk.
    fn note(&mut self, task: TaskId, at: At, line: &str, decision: &Decision) {
        if let Decision::Planned {
            plan_digest,
            session,
            principal,
            audience,
            credential,
            profile,
            tool,
            background,
            risks,
            ..
        } = decision
        {
            let standing = Standing {
                principal: *principal,
                session: *session,
                audience: *audience,
                credential: *credential,
                profile: *profile,
                tool: *tool,
            };
            let (chain, plan_digest, background) = (Chain::of_prologue(task), *plan_digest, *background);
            let (stage, grave) = (Stage::Planned, risks.iter().any(|r| r.is_grave()));
            self.open.insert(task, Open { next_seq: 0, chain, plan_digest, standing, background, grave, stage });
        }
        let Some(open) = self.open.get_mut(&task) else { return };
        open.next_seq += 1;
        open.chain.push(line);
        match decision {
            Decision::PermissionRequested { approval, options, about, .. } => {
                let (options, about) = (options.clone(), about.clone());
                open.stage = Stage::Waiting { approval: *approval, options, about };
            }
            Decision::PermissionDenied { by: By::Person { .. }, words, .. } => {
                let same = open.same();
                self.refused.retain(|_, (old, _)| at.since(*old) < NOT_AGAIN);
                self.refused.insert(same, (at, words.clone()));
            }
            Decision::PermissionGranted { permit, by, scope, confinement, sandbox, .. } => {
                let (permit, by) = (*permit, by.clone());
                let permitted = Permitted { confinement: *confinement, sandbox: sandbox.clone() };
                open.stage = Stage::Permitted(Granted { permit, by, scope: *scope, permitted });
            }
            Decision::Queued { waits_for: WaitsFor::Slot, .. } => {
                if let Stage::Permitted(granted) = std::mem::replace(&mut open.stage, Stage::Planned) {
                    open.stage = Stage::InLine { since: at, granted };
                }
            }
            Decision::Launched { .. } => open.stage = Stage::Launched,
            Decision::Observing { .. } => open.stage = Stage::Observed(at),
            Decision::Settled { .. } => drop(self.open.remove(&task)),
            _ => {}
        }
    }

    pub(crate) fn step(&mut self, now: Moment<'_>, event: Event) -> Result<Step, Refusal> {
        let mut step = Step::default();
        match event {
            Event::Asked { task, planned, answer, question, grants, sandbox, opens, shim } => {
                if let Some(session) = opens {
                    self.enter(&mut step, now.at, Entered::SessionOpened { session });
                }
                self.decide(&mut step, now.at, task, *planned);
                match answer {
                    Answer::Allow { rule } => {
                        let (by, scope) = self.covered_by(&grants, rule);
                        self.permit(
                            &mut step,
                            now,
                            Leave { task, by, scope, permitted: sandbox, saved: Vec::new(), shim },
                        );
                    }
                    Answer::Ask { .. } => {
                        let approval = ApprovalId::mint(now.mint, now.at.millis(), now.chance);
                        let Question { uncovered, about, options } = question;
                        self.decide(
                            &mut step,
                            now.at,
                            task,
                            Decision::PermissionRequested { approval, uncovered, options, about },
                        );
                        let queued = Decision::Queued { waits_for: WaitsFor::Approval, position: None };
                        self.decide(&mut step, now.at, task, queued);
                    }
                    Answer::Deny(refusal) => {
                        self.deny(&mut step, now.at, task, By::Rule(Text::of(refusal.code.as_str())), &refusal, None)
                    }
                }
            }
            Event::Answered { task, approval, choice, words, by, world, saves, moves, hint, denied, sandbox, shim } => {
                let open = self.waiting(task, approval)?;
                let standing = open.standing;
                if let Stage::Waiting { options, .. } = &open.stage
                    && !options.contains(&choice)
                {
                    return Err(Refusal::new(Code::OptionNotOffered, format!("`{choice}` was not offered"))
                        .hint("look at the options with `csn approvals show`"));
                }
                if matches!(by, By::Person { channel: Channel::InBand, .. }) {
                    in_band(choice, open.grave)?;
                }
                match (Scope::of(choice), world, denied) {
                    (None, ..) => {
                        step.forget = Some(task);
                        let mut refusal = Refusal::new(Code::DeniedByPerson, "denied by user");
                        refusal.hint = hint;
                        self.deny(&mut step, now.at, task, by, &refusal, words);
                    }
                    (Some(_), _, Some(refusal)) => {
                        step.forget = Some(task);
                        let rule = By::Rule(Text::of(refusal.code.as_str()));
                        self.deny(&mut step, now.at, task, rule, &refusal, None);
                    }
                    (Some(_), World::Changed(what), None) => {
                        step.forget = Some(task);
                        self.paths_changed(&mut step, now.at, task, what);
                    }
                    (Some(scope), World::Same, None) if standing.tool == Tool::SetWorkingDirectory => {
                        step.forget = Some(task);
                        self.move_session(&mut step, now, task, by, scope, moves);
                    }
                    (Some(scope), World::Same, None) => {
                        step.forget = shim.map(|_| task);
                        let saved = self.save(&mut step, &now, saves);
                        step.release.retain(|t| *t != task);
                        let leave = Leave { task, by, scope, permitted: sandbox, saved, shim };
                        self.permit(&mut step, now, leave);
                    }
                }
            }
            Event::Covered { task, grants, sandbox, shim } => {
                if self.question(task).is_none() {
                    return Err(over());
                }
                step.forget = shim.map(|_| task);
                let (by, scope) = self.covered_by(&grants, "grant");
                self.permit(&mut step, now, Leave { task, by, scope, permitted: sandbox, saved: Vec::new(), shim });
            }
            Event::Wished(wish) => {
                let mut now = now;
                let (entered, kept) = wish::consider(wish, &self.register, &mut now)?;
                for entry in entered {
                    if let Entered::GrantSaved { grant } = &entry {
                        let grant = (**grant).clone();
                        step.release.extend(self.may_cover(&grant));
                    }
                    self.enter(&mut step, now.at, entry);
                }
                step.kept = Some(kept);
            }
            Event::Slot { task, world, denied, sandbox, shim } => {
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
                    (None, World::Same) => {
                        // What the operator has narrowed meanwhile counts; what was permitted is never widened.
                        if let Some(Open { stage: Stage::InLine { granted, .. }, .. }) = self.open.get_mut(&task)
                            && sandbox.confinement > granted.permitted.confinement
                        {
                            granted.permitted = sandbox;
                        }
                        self.launch(&mut step, now.at, task, shim);
                    }
                }
            }
            Event::Withdrawn { task, by } => {
                match self.open.get(&task).map(|o| &o.stage) {
                    Some(Stage::Waiting { .. } | Stage::Planned | Stage::Permitted(_) | Stage::InLine { .. }) => {}
                    Some(Stage::Launched | Stage::Observed(_)) => {
                        return Err(Refusal::new(Code::TaskStarted, "the task has been launched"));
                    }
                    None => return Err(over()),
                }
                step.forget = Some(task);
                self.decide(&mut step, now.at, task, Decision::Withdrawn { by: by.clone() });
                self.settle(&mut step, now.at, task, Outcome::Withdrawn { by }, None, false);
            }
            Event::Unredeemed { task, planned, opens, by } => {
                if let Some(session) = opens {
                    self.enter(&mut step, now.at, Entered::SessionOpened { session });
                }
                self.decide(&mut step, now.at, task, *planned);
                self.decide(&mut step, now.at, task, Decision::Withdrawn { by: by.clone() });
                self.settle(&mut step, now.at, task, Outcome::Withdrawn { by }, None, false);
            }
            Event::Observed { task, planned, opens, rule, grants, by } => {
                if let Some(session) = opens {
                    self.enter(&mut step, now.at, Entered::SessionOpened { session });
                }
                self.decide(&mut step, now.at, task, *planned);
                let (granted_by, scope) = self.covered_by(&grants, rule);
                let at = now.at;
                self.grant(&mut step, now, task, granted_by, scope);
                self.decide(&mut step, at, task, Decision::Observing { by });
            }
            Event::Told { task, outcome } => {
                match self.open.get(&task).map(|o| &o.stage) {
                    Some(Stage::Observed(_)) => {}
                    _ => return Err(over()),
                }
                self.settle(&mut step, now.at, task, outcome, None, false);
            }
            Event::Closed { task, closing, recovered } => {
                self.launched_only(task)?.next_seq = closing.next_seq;
                self.settle(&mut step, now.at, task, closing.outcome, Some(closing.head), recovered);
            }
            Event::NotStarted { task, error, code, recovered } => {
                self.launched_only(task)?;
                self.settle(&mut step, now.at, task, Outcome::Failed { error, code }, None, recovered);
            }
            Event::Lost { task, known, why, head, next_seq, recovered } => {
                self.launched_only(task)?.next_seq = next_seq;
                self.decide(&mut step, now.at, task, Decision::Lost { known });
                self.settle(&mut step, now.at, task, Outcome::Lost { why }, head, recovered);
            }
            Event::Expired { task, seq, why, bytes, streams, signed } => {
                after_the_end(&mut step, now.at, task, seq, Decision::Expired { why, bytes, streams, signed });
            }
            Event::Sealed { seq, at, touched, sealed, signed } => {
                let (task, mut seq) = (signed.task, seq);
                if let Some(touched) = touched {
                    after_the_end(&mut step, at, task, seq, Decision::Touched(touched));
                    seq += 1;
                }
                after_the_end(&mut step, now.at, task, seq, Decision::Sealed(sealed));
                step.decisions
                    .iter_mut()
                    .next_back()
                    .into_iter()
                    .for_each(|entry| entry.receipt = Some(signed.clone()));
            }
            Event::House { state, reason, boot } => {
                of_the_house(&mut step, now.at, Decision::House { state, reason, boot });
            }
            Event::Shutdown(went) => of_the_house(&mut step, now.at, Decision::Shutdown(went)),
            Event::Key(key) => of_the_house(&mut step, now.at, Decision::Key(key)),
        }
        Ok(step)
    }

    /// What lets a call run that nobody was asked about.
    fn covered_by(&self, grants: &[GrantId], rule: &'static str) -> (By, Scope) {
        let scope = grants.iter().filter_map(|g| self.register.grants.get(*g)).map(|g| g.scope()).min();
        match scope.and_then(Scope::of) {
            Some(scope) => (By::Grants(grants.to_vec()), scope),
            None => (By::Rule(Text::of(rule)), Scope::Policy),
        }
    }

    /// Saves what an answer leaves behind; what says the same is there already.
    fn save(&mut self, step: &mut Step, now: &Moment<'_>, grants: Vec<Grant>) -> Vec<Saved> {
        let mut saved: Vec<Saved> = Vec::new();
        for grant in grants {
            let kept = match self.register.grants.same(&grant, now.at) {
                Some(same) => same.clone(),
                None => {
                    step.release.extend(self.may_cover(&grant));
                    self.enter(step, now.at, Entered::GrantSaved { grant: Box::new(grant.clone()) });
                    grant
                }
            };
            let label = wish::label(&kept);
            saved.extend(kept.id.map(|grant| Saved { grant, label }));
        }
        step.release.sort_unstable();
        step.release.dedup();
        saved
    }

    /// The tasks that wait for a person and that a grant may cover: looked at again, judged again, then let go.
    fn may_cover(&self, grant: &Grant) -> Vec<TaskId> {
        let could = |open: &Open| {
            let Stage::Waiting { about, .. } = &open.stage else { return false };
            open.standing.principal == grant.principal
                && grant.session.is_none_or(|s| open.standing.session == Some(s))
                && about.iter().any(|a| a.verb.as_str().starts_with(grant.verb.as_str()))
        };
        self.open.iter().filter(|(_, o)| could(o)).map(|(task, _)| *task).collect()
    }

    /// The session works where it was let: there is nothing to launch.
    fn move_session(&mut self, step: &mut Step, now: Moment<'_>, task: TaskId, by: By, scope: Scope, to: Option<Text>) {
        let permit = PermitId::mint(now.mint, now.at.millis(), now.chance);
        let (confinement, sandbox, saved) = (Confinement::None, None, Vec::new());
        let policy = self.policy;
        let granted = Decision::PermissionGranted { permit, by, scope, confinement, sandbox, saved, policy };
        self.decide(step, now.at, task, granted);
        let session = self.open.get(&task).and_then(|o| o.standing.session);
        if let (Some(session), Some(directory)) = (session, to) {
            let root = Some(directory.clone());
            self.enter(step, now.at, Entered::SessionMoved { session, directory, root });
        }
        self.settle(step, now.at, task, Outcome::Exited { code: 0 }, None, false);
    }

    /// A decision about no task.
    fn enter(&mut self, step: &mut Step, at: At, entered: Entered) {
        self.register.enter(at, &entered);
        of_the_house(step, at, Decision::Entered(entered));
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
        step.decisions.push(Entry { task: Some(task), seq, at, line, decision, receipt: None });
    }

    /// Permits a task: it runs at once when there is a shim for it, else it joins the line.
    fn permit(&mut self, step: &mut Step, now: Moment<'_>, leave: Leave) {
        let Leave { task, by, scope, permitted: Permitted { confinement, sandbox }, saved, shim } = leave;
        let permit = PermitId::mint(now.mint, now.at.millis(), now.chance);
        self.count_uses(step, now.at, &by);
        let policy = self.policy;
        let granted = Decision::PermissionGranted { permit, by, scope, confinement, sandbox, saved, policy };
        self.decide(step, now.at, task, granted);
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

    fn count_uses(&mut self, step: &mut Step, at: At, by: &By) {
        if let By::Grants(grants) = by {
            let counted = |g: &GrantId| self.register.grants.get(*g).is_some_and(|g| g.uses_left.is_some());
            for grant in grants.iter().copied().filter(counted).collect::<Vec<_>>() {
                self.enter(step, at, Entered::GrantUsed { grant });
            }
        }
    }

    /// Leave for something that the house does not run, and so does not hold to anything.
    fn grant(&mut self, step: &mut Step, now: Moment<'_>, task: TaskId, by: By, scope: Scope) {
        let permit = PermitId::mint(now.mint, now.at.millis(), now.chance);
        self.count_uses(step, now.at, &by);
        let (confinement, sandbox, saved, policy) = (Confinement::None, None, Vec::new(), self.policy);
        let granted = Decision::PermissionGranted { permit, by, scope, confinement, sandbox, saved, policy };
        self.decide(step, now.at, task, granted);
    }

    #[expect(clippy::disallowed_methods, reason = "the desk is the only thing that permits")]
    fn launch(&mut self, step: &mut Step, at: At, task: TaskId, shim: u32) {
        let Some(Open { next_seq, plan_digest, stage, .. }) = self.open.get(&task).cloned() else { return };
        let (Stage::Permitted(granted) | Stage::InLine { granted, .. }) = stage else { return };
        let Granted { permit, by, scope, permitted } = granted;
        let permit = Permit::issue(permit, task, plan_digest, by, scope, permitted.confinement, at);
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
        let policy = self.policy;
        self.decide(step, at, task, Decision::PermissionDenied { by, reason: reason.clone(), hint, words, policy });
        self.settle(step, at, task, Outcome::Denied { reason }, None, false);
    }

    fn settle(
        &mut self,
        step: &mut Step,
        at: At,
        task: TaskId,
        outcome: Outcome,
        journal_head: Option<Digest>,
        recovered: bool,
    ) {
        self.decide(step, at, task, Decision::Settled { outcome, journal_head, recovered });
    }
}

/// A decision about a task that the desk has let go.
fn after_the_end(step: &mut Step, at: At, task: TaskId, seq: u64, decision: Decision) {
    let line = Record::decision_line(seq, at, &decision);
    step.decisions.push(Entry { task: Some(task), seq, at, line, decision, receipt: None });
}

/// A decision about no task.
fn of_the_house(step: &mut Step, at: At, decision: Decision) {
    let line = Record::decision_line(0, at, &decision);
    step.decisions.push(Entry { task: None, seq: 0, at, line, decision, receipt: None });
}

/// What may be answered through the agent's own client: it could have made the answer up.
fn in_band(choice: Choice, grave: bool) -> Result<(), Refusal> {
    let hint = "answer it as a person: csn approvals answer, or any surface of yours";
    match choice {
        Choice::Deny => Ok(()),
        Choice::Once if !grave => Ok(()),
        Choice::Once => {
            Err(Refusal::new(Code::OptionNotOffered, "this is not approved through the agent's own client").hint(hint))
        }
        _ => Err(Refusal::new(Code::OptionNotOffered, "nothing is saved through the agent's own client").hint(hint)),
    }
}

struct Leave {
    task: TaskId,
    by: By,
    scope: Scope,
    permitted: Permitted,
    saved: Vec<Saved>,
    shim: Option<u32>,
}

fn over() -> Refusal {
    Refusal::new(Code::TaskOver, "the task is over")
}

#[cfg(test)]
mod tests;
