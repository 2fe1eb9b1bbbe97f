//! The desk: the only part that permits a task. It is pure: `step(event)` returns decisions and effects, and a restart
//! replays the ledger.
//!
//! It holds the tasks that are not settled, and the register (grants, sessions, credentials). Settled tasks are only in
//! the ledger.

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

/// How long an identical request is denied without asking, after a person denied it.
pub(crate) const DENIAL_COOLDOWN: Duration = Duration::from_secs(600);

/// The state of the desk: a fold over the ledger.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Desk {
    caps: TaskCaps,
    open: BTreeMap<TaskId, OpenTask>,
    /// Grants, sessions, credentials.
    pub(crate) register: Register,
    /// The digest of the policy in force, for the record.
    pub(crate) policy: Option<Digest>,
    /// Requests that a person denied recently, with the person's words.
    recent_denials: HashMap<RequestIdentity, (Timestamp, Option<Text>)>,
}

/// How many tasks may run at the same time.
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
    /// A risk of this task is so grave that the agent's own client may not approve it.
    grave: bool,
    /// Its streams are published to a workspace.
    publishes: bool,
    stage: OpenStage,
}

impl OpenTask {
    fn slot_owner(&self) -> SlotOwner {
        SlotOwner { session: self.requester.session, principal: self.requester.principal }
    }

    fn identity(&self) -> RequestIdentity {
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
    /// Permitted, and waiting for a slot since then.
    Queued {
        since: Timestamp,
        granted: GrantedPermission,
    },
    Launched,
    /// The agent runs the command itself, since then.
    Observed(Timestamp),
}

/// The contents of `permission.granted`: everything that a permit is made from.
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

    /// The requester of a task that is not settled.
    pub(crate) fn requester(&self, task: TaskId) -> Option<Requester> {
        self.open.get(&task).map(|o| o.requester)
    }

    /// The task that waits for an approval of an identical request.
    pub(crate) fn find_waiting(&self, same: RequestIdentity) -> Option<TaskId> {
        let waits = |o: &OpenTask| matches!(o.stage, OpenStage::Waiting { .. }) && o.identity() == same;
        self.open.iter().find(|(_, o)| waits(o)).map(|(task, _)| *task)
    }

    /// When a person recently denied an identical request, and what they said.
    pub(crate) fn recent_denial(&self, same: RequestIdentity, now: Timestamp) -> Option<(Timestamp, Option<Text>)> {
        self.recent_denials.get(&same).filter(|(at, _)| now.since(*at) < DENIAL_COOLDOWN).cloned()
    }

    /// What an approval is asked about, if the task waits for one.
    pub(crate) fn pending_question(&self, task: TaskId) -> Option<&[UncoveredCommand]> {
        match &self.open.get(&task)?.stage {
            OpenStage::Waiting { about, .. } => Some(about),
            _ => None,
        }
    }

    /// The tasks that wait for an approval.
    pub(crate) fn tasks_awaiting_approval(&self) -> Vec<TaskId> {
        let waits = |o: &OpenTask| matches!(o.stage, OpenStage::Waiting { .. });
        self.open.iter().filter(|(_, o)| waits(o)).map(|(task, _)| *task).collect()
    }

    /// How many tasks of a principal have not been launched.
    pub(crate) fn count_unlaunched(&self, principal: countersign_model::PrincipalId) -> usize {
        let waits = |o: &&OpenTask| {
            !matches!(o.stage, OpenStage::Launched | OpenStage::Observed(_)) && o.requester.principal == principal
        };
        self.open.values().filter(waits).count()
    }

    /// Who permitted a task that has not been launched.
    pub(crate) fn permitted_by(&self, task: TaskId) -> Option<&DecidedBy> {
        match &self.open.get(&task)?.stage {
            OpenStage::Permitted(granted) | OpenStage::Queued { granted, .. } => Some(&granted.by),
            _ => None,
        }
    }

    /// The tasks that wait for a slot, in order.
    pub(crate) fn queue(&self) -> Vec<TaskId> {
        let since = |o: &OpenTask| match &o.stage {
            OpenStage::Queued { since, .. } => Some(*since),
            _ => None,
        };
        let mut line: Vec<(Timestamp, TaskId)> = self.open.iter().filter_map(|(t, o)| Some((since(o)?, *t))).collect();
        line.sort_unstable();
        line.into_iter().map(|(_, task)| task).collect()
    }

    /// The queued tasks that may start now. A task that is blocked by the limit of its own session or principal does
    /// not block others.
    pub(crate) fn ready_tasks(&self) -> Vec<TaskId> {
        let mut running = self.running();
        let mut ready = Vec::new();
        for task in self.queue() {
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

    /// Whether a new task of this owner could run now. It may not overtake a queued task that is ready.
    pub(crate) fn has_room(&self, owner: SlotOwner) -> bool {
        self.fits(&self.running(), owner) && self.ready_tasks().is_empty()
    }

    fn running(&self) -> Vec<SlotOwner> {
        self.open.values().filter(|o| o.stage == OpenStage::Launched).map(OpenTask::slot_owner).collect()
    }

    fn fits(&self, running: &[SlotOwner], owner: SlotOwner) -> bool {
        let count = |same: &dyn Fn(&SlotOwner) -> bool| running.iter().filter(|w| same(w)).count() as u64;
        // An implicit session is a directory, not a conversation: it has no limit of its own.
        let opened = |s: &SessionId| self.register.roster.session(*s).is_none_or(|s| s.implicit.is_none());
        let session = owner.session.filter(opened).map_or(0, |session| count(&|w| w.session == Some(session)));
        session < self.caps.session
            && count(&|w| w.principal == owner.principal) < self.caps.principal
            && (running.len() as u64) < self.caps.total
    }

    /// The owner of an open task, for the limits.
    pub(crate) fn slot_owner(&self, task: TaskId) -> Option<SlotOwner> {
        self.open.get(&task).map(OpenTask::slot_owner)
    }

    /// How many tasks are running.
    pub(crate) fn running_count(&self) -> usize {
        self.open.values().filter(|o| o.stage == OpenStage::Launched).count()
    }

    pub(crate) fn launched_tasks(&self) -> Vec<TaskId> {
        self.open.iter().filter(|(_, o)| o.stage == OpenStage::Launched).map(|(t, _)| *t).collect()
    }

    /// The tasks that agents run themselves, started before `before`, whose outcome has not been reported.
    pub(crate) fn unreported_before(&self, before: Timestamp) -> Vec<TaskId> {
        let old = |o: &OpenTask| matches!(o.stage, OpenStage::Observed(since) if since < before);
        self.open.iter().filter(|(_, o)| old(o)).map(|(t, _)| *t).collect()
    }

    /// Applies a decision that is already in the ledger.
    pub(crate) fn replay(&mut self, task: TaskId, line: &str, record: &Record) {
        let RecordContent::Decision(decision) = &record.what else { return };
        self.apply(task, record.at, line, decision);
    }

    /// The one place where a decision changes the desk.
    fn apply(&mut self, task: TaskId, at: Timestamp, line: &str, decision: &Decision) {
        if let (Some(requester), Decision::Planned { plan_digest, background, risks, workspace, .. }) =
            (Requester::from_decision(decision), decision)
        {
            let new = OpenTask {
                next_seq: 0,
                chain: HashChain::for_prologue(task),
                plan_digest: *plan_digest,
                requester,
                background: *background,
                grave: risks.iter().any(|r| r.is_grave()),
                publishes: workspace.is_some(),
                stage: OpenStage::Planned,
            };
            self.open.insert(task, new);
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
                let same = open.identity();
                self.recent_denials.retain(|_, (old, _)| at.since(*old) < DENIAL_COOLDOWN);
                self.recent_denials.insert(same, (at, words.clone()));
            }
            Decision::PermissionGranted { permit, by, scope, confinement, sandbox, .. } => {
                let (permit, by) = (*permit, by.clone());
                let permitted = PermittedSandbox { confinement: *confinement, sandbox: sandbox.clone() };
                open.stage = OpenStage::Permitted(GrantedPermission { permit, by, scope: *scope, permitted });
            }
            Decision::Queued { waits_for: WaitsFor::Slot, .. } => {
                if let OpenStage::Permitted(granted) = std::mem::replace(&mut open.stage, OpenStage::Planned) {
                    open.stage = OpenStage::Queued { since: at, granted };
                }
            }
            Decision::Launched { .. } => open.stage = OpenStage::Launched,
            Decision::Observing { .. } => open.stage = OpenStage::Observed(at),
            Decision::Settled { .. } => drop(self.open.remove(&task)),
            _ => {}
        }
    }

    /// Decides about one event. A refused event changes nothing.
    pub(crate) fn step(&mut self, now: Moment<'_>, event: DeskEvent) -> Result<DeskStep, Refusal> {
        let mut turn = Turn { desk: self, now, step: DeskStep::default() };
        turn.handle_event(event)?;
        Ok(turn.step)
    }

    /// The waiting tasks that a new grant may cover. The commit loop prepares and judges each again.
    fn tasks_grant_may_cover(&self, grant: &Grant) -> Vec<TaskId> {
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
