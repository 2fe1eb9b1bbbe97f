//! The events that the desk decides about, and what follows from them.

use crate::register_command::{RegisterCommand, RegisterReply};
use countersign_model::{
    ApprovalId, Choice, Confinement, DaemonState, DecidedBy, Decision, Digest, Facts, Grant, GrantId, JournalEnd,
    KeyAnnounced, KeySignature, Network, Outcome, Permit, PrincipalId, Profile, Record, RecordContent, Refusal,
    Sandbox, SandboxSummary, SealedReceipt, Session, SessionId, ShutdownStep, StreamTotals, TaskId, TaskState, Text,
    Timestamp, TouchedFiles, UncoveredCommand, Verdict,
};
use countersign_store::{SignedReceipt, ledger::LedgerEntry};

/// Two requests are identical if all of this is equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RequestIdentity {
    pub(crate) principal: PrincipalId,
    pub(crate) session: Option<SessionId>,
    pub(crate) plan_digest: Digest,
    pub(crate) background: bool,
    pub(crate) profile: Profile,
}

/// Whom a running task counts against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SlotOwner {
    pub(crate) session: Option<SessionId>,
    pub(crate) principal: PrincipalId,
}

/// The confinement that a task is permitted with, as recorded, and what its sandbox gives beyond that.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct PermittedSandbox {
    pub(crate) confinement: Confinement,
    pub(crate) sandbox: Option<Box<SandboxSummary>>,
}

impl PermittedSandbox {
    /// A read-only sandbox without extras needs no summary: the confinement says everything.
    pub(crate) fn from_sandbox(sandbox: &Sandbox) -> Self {
        let summary = sandbox.summary(countersign_redact::text_by_shape);
        let plain = SandboxSummary { network: Network::None, ..SandboxSummary::default() };
        let needs_summary = sandbox.confinement != Confinement::ReadOnly || summary != plain;
        Self { confinement: sandbox.confinement, sandbox: needs_summary.then(|| Box::new(summary)) }
    }
}

/// An event for the desk.
pub(crate) enum DeskEvent {
    /// A request that has been read, prepared and judged.
    Asked(Box<NewTask>),
    Answered(Box<PersonAnswer>),
    /// New grants cover a task that waits for an approval.
    Covered {
        task: TaskId,
        grants: Vec<GrantId>,
        sandbox: PermittedSandbox,
        shim: Option<u32>,
    },
    /// An entry into the register is requested.
    RegisterCommand(RegisterCommand),
    /// A queued task has a slot. It was prepared and judged again.
    SlotFree {
        task: TaskId,
        world: FactsAtLaunch,
        denied: Option<Refusal>,
        /// The sandbox that it would get if it were judged now.
        sandbox: PermittedSandbox,
        shim: u32,
    },
    Withdrawn {
        task: TaskId,
        by: Text,
    },
    /// A ticket was never redeemed: the request was made, and nothing ran.
    Unredeemed {
        task: TaskId,
        planned: Box<Decision>,
        opens: Option<Box<Session>>,
        by: Text,
    },
    /// The agent may run the command itself.
    Observed {
        task: TaskId,
        planned: Box<Decision>,
        opens: Option<Box<Session>>,
        rule: &'static str,
        grants: Vec<GrantId>,
        by: Text,
    },
    /// The agent reported the outcome of a command that it ran itself, or never will.
    OutcomeReported {
        task: TaskId,
        outcome: Outcome,
    },
    /// The shim has closed its journal.
    Closed {
        task: TaskId,
        closing: JournalEnd,
        /// Found on disk after a daemon crashed.
        recovered: bool,
    },
    /// The task has no journal and will never have one.
    NotStarted {
        task: TaskId,
        error: Text,
        code: i32,
        recovered: bool,
    },
    /// The shim is gone and its journal is open: the outcome is unknown.
    Lost {
        task: TaskId,
        known: Text,
        why: Text,
        /// None when there is no journal any more.
        head: Option<Digest>,
        next_seq: u64,
        recovered: bool,
    },
    /// The directory of a settled task is deleted.
    Expired {
        task: TaskId,
        seq: u64,
        why: Text,
        bytes: u64,
        streams: StreamTotals,
        signed: Option<KeySignature>,
    },
    /// A settled task has its receipt.
    Sealed {
        /// The sequence number of the first decision that is added to the task.
        seq: u64,
        /// When its files were read.
        at: Timestamp,
        touched: Option<TouchedFiles>,
        sealed: SealedReceipt,
        signed: Box<SignedReceipt>,
    },
    /// The daemon's state changed.
    DaemonState {
        state: DaemonState,
        reason: Option<Text>,
        boot: Option<Text>,
    },
    Shutdown(ShutdownStep),
    Key(KeyAnnounced),
}

/// A request that has been judged, and what it needs to run.
pub(crate) struct NewTask {
    pub(crate) task: TaskId,
    /// The task's first decision.
    pub(crate) planned: Decision,
    pub(crate) verdict: Verdict,
    pub(crate) question: ApprovalQuestion,
    /// The grants that the verdict depends on.
    pub(crate) grants: Vec<GrantId>,
    pub(crate) sandbox: PermittedSandbox,
    /// The implicit session that this request opens, if it is the first of its credential and directory.
    pub(crate) opens: Option<Box<Session>>,
    /// The shim that would run it. Without one it waits for a slot.
    pub(crate) shim: Option<u32>,
}

/// A person's answer to an approval, and its effects.
pub(crate) struct PersonAnswer {
    pub(crate) task: TaskId,
    pub(crate) approval: ApprovalId,
    pub(crate) choice: Choice,
    pub(crate) words: Option<Text>,
    pub(crate) by: DecidedBy,
    pub(crate) world: FactsAtLaunch,
    /// The grants that the answer saves.
    pub(crate) new_grants: Vec<Grant>,
    /// The new working directory of the session, if that was the question.
    pub(crate) new_directory: Option<Text>,
    /// What the agent should try instead, if it is denied.
    pub(crate) hint: Option<String>,
    /// The gate would deny the request now, whatever the person answers.
    pub(crate) denied: Option<Refusal>,
    pub(crate) sandbox: PermittedSandbox,
    pub(crate) shim: Option<u32>,
}

/// What an approval asks about.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ApprovalQuestion {
    pub(crate) uncovered: Vec<Text>,
    pub(crate) about: Vec<UncoveredCommand>,
    pub(crate) options: Vec<Choice>,
}

/// Whether the facts at launch equal the facts that were approved.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FactsAtLaunch {
    Same,
    Changed(&'static str),
}

impl FactsAtLaunch {
    pub(crate) fn compare(asked: &Facts, now: Option<&Facts>) -> Self {
        match now {
            Some(now) if now.still_matches(asked) => FactsAtLaunch::Same,
            Some(now) if now.cwd != asked.cwd => {
                FactsAtLaunch::Changed("the working directory changed after the request")
            }
            Some(now) if now.program != asked.program || now.programs != asked.programs => {
                FactsAtLaunch::Changed("the program changed after the request")
            }
            Some(now) if now.scripts != asked.scripts => FactsAtLaunch::Changed("the script changed after the request"),
            Some(_) => FactsAtLaunch::Changed("a path resolves to a different file than at the time of the request"),
            None => FactsAtLaunch::Changed("the working directory does not exist any more"),
        }
    }
}

/// What follows from an event, once its decisions are durable.
#[derive(Debug, Default)]
pub(crate) struct DeskStep {
    pub(crate) decisions: Vec<LedgerEntry>,
    pub(crate) launch: Option<ShimLaunch>,
    /// The task whose stored request is not needed any more.
    pub(crate) drop_request: Option<TaskId>,
    /// Settled tasks whose streams are published to their workspaces.
    pub(crate) publish: Vec<TaskId>,
    /// The reply to a register command.
    pub(crate) register_reply: Option<RegisterReply>,
    /// Tasks that wait for an approval and that a new grant may cover.
    pub(crate) may_release: Vec<TaskId>,
}

impl DeskStep {
    /// The state of a task that was created in this step.
    pub(crate) fn state(&self, task: TaskId) -> Option<TaskState> {
        let record = |e: &LedgerEntry| Record {
            seq: e.seq,
            at: e.at,
            t_us: None,
            what: RecordContent::Decision(e.decision.clone()),
        };
        let records: Vec<Record> = self.decisions.iter().filter(|e| e.task == Some(task)).map(record).collect();
        TaskState::fold(task, &records)
    }
}

/// The permit to start a task, and where its journal begins.
#[derive(Debug)]
pub(crate) struct ShimLaunch {
    pub(crate) permit: Permit,
    pub(crate) first_seq: u64,
    pub(crate) prologue_head: Digest,
}
