//! The desk: the only thing that permits. `step(event) → decisions, effects`, pure; a restart is a replay.
//!
//! It knows the tasks that are not settled, and the register: grants, sessions, credentials. What is settled is in the
//! ledger.

mod event;
mod restore;
mod turn;

pub(crate) use event::{
    ApprovalQuestion, DeskEvent, DeskStep, FactsAtLaunch, NewTask, PermittedSandbox, PersonAnswer, RequestIdentity,
    ShimLaunch, SlotOwner,
};

use self::turn::Turn;
use crate::moment::Moment;
use countersign_model::{
    ApprovalId, Choice, DecidedBy, Decision, Digest, Grant, HashChain, PermitId, Record, RecordContent, Refusal,
    Register, Requester, Scope, SessionId, TaskId, Text, Timestamp, UncoveredCommand, WaitsFor,
};
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

/// How long an identical request is not asked again after a person has refused it.
pub(crate) const NOT_AGAIN: Duration = Duration::from_secs(600);

/// The state of the desk: a fold over the ledger.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Desk {
    caps: TaskCaps,
    open: BTreeMap<TaskId, OpenTask>,
    /// Grants, sessions, credentials.
    pub(crate) register: Register,
    /// The policy that it judges by, for the record.
    pub(crate) policy: Option<Digest>,
    /// What a person has refused of late, and their words.
    refused: HashMap<RequestIdentity, (Timestamp, Option<Text>)>,
}

/// How many tasks run at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TaskCaps {
    pub(crate) session: u64,
    pub(crate) principal: u64,
    pub(crate) total: u64,
}

impl Default for TaskCaps {
    fn default() -> Self {
        Self { session: 16, principal: 64, total: 256 }
    }
}

/// A task that is not settled.
#[derive(Debug, Clone, PartialEq)]
struct OpenTask {
    next_seq: u64,
    chain: HashChain,
    plan_digest: Digest,
    requester: Requester,
    background: bool,
    /// One of its risks is such that only a person, not an agent's client, may answer for it.
    grave: bool,
    stage: OpenStage,
}

impl OpenTask {
    fn slot_owner(&self) -> SlotOwner {
        SlotOwner { session: self.requester.session, principal: self.requester.principal }
    }

    fn same(&self) -> RequestIdentity {
        let Requester { principal, session, profile, .. } = self.requester;
        RequestIdentity { principal, session, plan_digest: self.plan_digest, background: self.background, profile }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum OpenStage {
    Planned,
    Waiting {
        approval: ApprovalId,
        options: Vec<Choice>,
        about: Vec<UncoveredCommand>,
    },
    Permitted(GrantedPermission),
    /// Permitted, and in line for a slot since then.
    InLine {
        since: Timestamp,
        granted: GrantedPermission,
    },
    Launched,
    /// Whoever asked runs it, since then.
    Observed(Timestamp),
}

/// What `permission.granted` said: all that a permit is made of.
#[derive(Debug, Clone, PartialEq)]
struct GrantedPermission {
    permit: PermitId,
    by: DecidedBy,
    scope: Scope,
    permitted: PermittedSandbox,
}

impl Desk {
    pub(crate) fn caps(&self) -> TaskCaps {
        self.caps
    }

    pub(crate) fn new(caps: TaskCaps) -> Self {
        Self { caps, ..Self::default() }
    }

    /// As whom a task that is not settled is judged.
    pub(crate) fn requester(&self, task: TaskId) -> Option<Requester> {
        self.open.get(&task).map(|o| o.requester)
    }

    /// A task that waits for a person with the very same request.
    pub(crate) fn joins(&self, same: RequestIdentity) -> Option<TaskId> {
        let waits = |o: &OpenTask| matches!(o.stage, OpenStage::Waiting { .. }) && o.same() == same;
        self.open.iter().find(|(_, o)| waits(o)).map(|(task, _)| *task)
    }

    /// When a person refused the very same request, if that was not long ago, and what they said.
    pub(crate) fn refused(&self, same: RequestIdentity, now: Timestamp) -> Option<(Timestamp, Option<Text>)> {
        self.refused.get(&same).filter(|(at, _)| now.since(*at) < NOT_AGAIN).cloned()
    }

    /// Whether a task waits for a person, and where it works.
    pub(crate) fn question(&self, task: TaskId) -> Option<&[UncoveredCommand]> {
        match &self.open.get(&task)?.stage {
            OpenStage::Waiting { about, .. } => Some(about),
            _ => None,
        }
    }

    /// The tasks that wait for a person.
    pub(crate) fn waiting_for_a_person(&self) -> Vec<TaskId> {
        let waits = |o: &OpenTask| matches!(o.stage, OpenStage::Waiting { .. });
        self.open.iter().filter(|(_, o)| waits(o)).map(|(task, _)| *task).collect()
    }

    /// How many tasks of a principal have not been launched.
    pub(crate) fn waiting_of(&self, principal: countersign_model::PrincipalId) -> usize {
        let waits = |o: &&OpenTask| {
            !matches!(o.stage, OpenStage::Launched | OpenStage::Observed(_)) && o.requester.principal == principal
        };
        self.open.values().filter(waits).count()
    }

    /// Who let a task run that is in line.
    pub(crate) fn permitted_by(&self, task: TaskId) -> Option<&DecidedBy> {
        match &self.open.get(&task)?.stage {
            OpenStage::Permitted(granted) | OpenStage::InLine { granted, .. } => Some(&granted.by),
            _ => None,
        }
    }

    /// The tasks that wait for a slot, first come first.
    pub(crate) fn line(&self) -> Vec<TaskId> {
        let since = |o: &OpenTask| match &o.stage {
            OpenStage::InLine { since, .. } => Some(*since),
            _ => None,
        };
        let mut line: Vec<(Timestamp, TaskId)> = self.open.iter().filter_map(|(t, o)| Some((since(o)?, *t))).collect();
        line.sort_unstable();
        line.into_iter().map(|(_, task)| task).collect()
    }

    /// Those of them that may go now. Whoever is held up by the tasks of their own session or principal holds up
    /// nobody else.
    pub(crate) fn ready(&self) -> Vec<TaskId> {
        let mut running = self.running();
        let mut ready = Vec::new();
        for task in self.line() {
            if running.len() as u64 >= self.caps.total {
                break;
            }
            let Some(open) = self.open.get(&task) else { continue };
            if self.fits(&running, open.slot_owner()) {
                running.push(open.slot_owner());
                ready.push(task);
            }
        }
        ready
    }

    /// Whether a task of these could run at once. While somebody in line is about to go, nobody overtakes.
    pub(crate) fn has_room(&self, whose: SlotOwner) -> bool {
        self.fits(&self.running(), whose) && self.ready().is_empty()
    }

    fn running(&self) -> Vec<SlotOwner> {
        self.open.values().filter(|o| o.stage == OpenStage::Launched).map(OpenTask::slot_owner).collect()
    }

    fn fits(&self, running: &[SlotOwner], whose: SlotOwner) -> bool {
        let count = |same: &dyn Fn(&SlotOwner) -> bool| running.iter().filter(|w| same(w)).count() as u64;
        // A session that nobody opened is one place, not one conversation.
        let opened = |s: &SessionId| self.register.roster.session(*s).is_none_or(|s| s.implicit.is_none());
        let session = whose.session.filter(opened).map_or(0, |session| count(&|w| w.session == Some(session)));
        session < self.caps.session
            && count(&|w| w.principal == whose.principal) < self.caps.principal
            && (running.len() as u64) < self.caps.total
    }

    /// Whose task this is, while it is open.
    pub(crate) fn slot_owner(&self, task: TaskId) -> Option<SlotOwner> {
        self.open.get(&task).map(OpenTask::slot_owner)
    }

    /// How many tasks are on their way.
    pub(crate) fn busy(&self) -> usize {
        self.open.values().filter(|o| o.stage == OpenStage::Launched).count()
    }

    pub(crate) fn launched(&self) -> Vec<TaskId> {
        self.open.iter().filter(|(_, o)| o.stage == OpenStage::Launched).map(|(t, _)| *t).collect()
    }

    /// The tasks that others run and nobody has told the end of since `before`.
    pub(crate) fn never_told(&self, before: Timestamp) -> Vec<TaskId> {
        let old = |o: &OpenTask| matches!(o.stage, OpenStage::Observed(since) if since < before);
        self.open.iter().filter(|(_, o)| old(o)).map(|(t, _)| *t).collect()
    }

    /// One decision that is already in the ledger: the other half of the fold.
    pub(crate) fn replay(&mut self, task: TaskId, line: &str, record: &Record) {
        let RecordContent::Decision(decision) = &record.what else { return };
        self.note(task, record.at, line, decision);
    }

    /// The one place where a decision changes the desk.
    fn note(&mut self, task: TaskId, at: Timestamp, line: &str, decision: &Decision) {
        if let (Some(requester), Decision::Planned { plan_digest, background, risks, .. }) =
            (Requester::from_decision(decision), decision)
        {
            let (chain, plan_digest, background) = (HashChain::for_prologue(task), *plan_digest, *background);
            let (stage, grave) = (OpenStage::Planned, risks.iter().any(|r| r.is_grave()));
            self.open.insert(task, OpenTask { next_seq: 0, chain, plan_digest, requester, background, grave, stage });
        }
        let Some(open) = self.open.get_mut(&task) else { return };
        open.next_seq += 1;
        open.chain.push_line(line);
        match decision {
            Decision::PermissionRequested { approval, options, about, .. } => {
                let (options, about) = (options.clone(), about.clone());
                open.stage = OpenStage::Waiting { approval: *approval, options, about };
            }
            Decision::PermissionDenied { by: DecidedBy::Person { .. }, words, .. } => {
                let same = open.same();
                self.refused.retain(|_, (old, _)| at.since(*old) < NOT_AGAIN);
                self.refused.insert(same, (at, words.clone()));
            }
            Decision::PermissionGranted { permit, by, scope, confinement, sandbox, .. } => {
                let (permit, by) = (*permit, by.clone());
                let permitted = PermittedSandbox { confinement: *confinement, sandbox: sandbox.clone() };
                open.stage = OpenStage::Permitted(GrantedPermission { permit, by, scope: *scope, permitted });
            }
            Decision::Queued { waits_for: WaitsFor::Slot, .. } => {
                if let OpenStage::Permitted(granted) = std::mem::replace(&mut open.stage, OpenStage::Planned) {
                    open.stage = OpenStage::InLine { since: at, granted };
                }
            }
            Decision::Launched { .. } => open.stage = OpenStage::Launched,
            Decision::Observing { .. } => open.stage = OpenStage::Observed(at),
            Decision::Settled { .. } => drop(self.open.remove(&task)),
            _ => {}
        }
    }

    /// Decides about one event. Nothing is changed when it is refused.
    pub(crate) fn step(&mut self, now: Moment<'_>, event: DeskEvent) -> Result<DeskStep, Refusal> {
        let mut turn = Turn { desk: self, now, step: DeskStep::default() };
        turn.take(event)?;
        Ok(turn.step)
    }

    /// The tasks that wait for a person and that a grant may cover: looked at again, judged again, then let go.
    fn may_cover(&self, grant: &Grant) -> Vec<TaskId> {
        let could = |open: &OpenTask| {
            let OpenStage::Waiting { about, .. } = &open.stage else { return false };
            open.requester.principal == grant.principal
                && grant.session.is_none_or(|s| open.requester.session == Some(s))
                && about.iter().any(|a| a.verb.as_str().starts_with(grant.verb.as_str()))
        };
        self.open.iter().filter(|(_, o)| could(o)).map(|(task, _)| *task).collect()
    }
}

#[cfg(test)]
mod tests;
