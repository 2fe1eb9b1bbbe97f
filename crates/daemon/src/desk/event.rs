//! What comes to the desk, and what follows from it.

use crate::register_command::{RegisterCommand, RegisterReply};
use countersign_model::{
    ApprovalId, Choice, Confinement, DaemonState, DecidedBy, Decision, Digest, Facts, Grant, GrantId, JournalEnd,
    KeyAnnounced, KeySignature, Network, Outcome, Permit, PrincipalId, Profile, Record, RecordContent, Refusal,
    Sandbox, SandboxSummary, SealedReceipt, Session, SessionId, ShutdownStep, StreamTotals, TaskId, TaskState, Text,
    Timestamp, TouchedFiles, UncoveredCommand, Verdict,
};
use countersign_store::{SignedReceipt, ledger::LedgerEntry};

/// Two requests are the same when all of this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RequestIdentity {
    pub(crate) principal: PrincipalId,
    pub(crate) session: Option<SessionId>,
    pub(crate) plan_digest: Digest,
    pub(crate) background: bool,
    pub(crate) profile: Profile,
}

/// Whose tasks are counted together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SlotOwner {
    pub(crate) session: Option<SessionId>,
    pub(crate) principal: PrincipalId,
}

/// What a task is permitted with, as it is recorded: its confinement, and what its sandbox gives beyond that.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct PermittedSandbox {
    pub(crate) confinement: Confinement,
    pub(crate) sandbox: Option<Box<SandboxSummary>>,
}

impl PermittedSandbox {
    /// None of what only reads and gets nothing beyond that: its confinement says all.
    pub(crate) fn of(sandbox: &Sandbox) -> Self {
        let summary = sandbox.summary(countersign_redact::text_by_shape);
        let plain = SandboxSummary { network: Network::None, ..SandboxSummary::default() };
        let told = sandbox.confinement != Confinement::ReadOnly || summary != plain;
        Self { confinement: sandbox.confinement, sandbox: told.then(|| Box::new(summary)) }
    }
}

/// Everything that can come to the desk.
pub(crate) enum DeskEvent {
    /// A request that has been read, looked at and judged.
    Asked(Box<NewTask>),
    Answered(Box<PersonAnswer>),
    /// A task that waits for a person is covered by what was granted meanwhile.
    Covered {
        task: TaskId,
        grants: Vec<GrantId>,
        sandbox: PermittedSandbox,
        shim: Option<u32>,
    },
    /// Something is to be entered into the register.
    Wished(RegisterCommand),
    /// There is room for a task that was in line. The world was looked at again, and judged again.
    Slot {
        task: TaskId,
        world: FactsAtLaunch,
        denied: Option<Refusal>,
        /// What it would be held to if it were let run now.
        sandbox: PermittedSandbox,
        shim: u32,
    },
    Withdrawn {
        task: TaskId,
        by: Text,
    },
    /// A ticket that nobody came with: the request was made, and nothing came of it.
    Unredeemed {
        task: TaskId,
        planned: Box<Decision>,
        opens: Option<Box<Session>>,
        by: Text,
    },
    /// Whoever asked is let run it themselves.
    Observed {
        task: TaskId,
        planned: Box<Decision>,
        opens: Option<Box<Session>>,
        rule: &'static str,
        grants: Vec<GrantId>,
        by: Text,
    },
    /// Whoever ran it has told how it went, or nobody will.
    Told {
        task: TaskId,
        outcome: Outcome,
    },
    /// The shim has closed its journal.
    Closed {
        task: TaskId,
        closing: JournalEnd,
        /// Found on the disk, after a daemon that had ended without a word.
        recovered: bool,
    },
    /// There is no journal and there never will be one.
    NotStarted {
        task: TaskId,
        error: Text,
        code: i32,
        recovered: bool,
    },
    /// The shim is gone and its journal is open: we do not know how it ended.
    Lost {
        task: TaskId,
        known: Text,
        why: Text,
        /// None when there is no journal any more.
        head: Option<Digest>,
        next_seq: u64,
        recovered: bool,
    },
    /// The directory of a settled task goes.
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
        /// The number of the first decision that is added to the task.
        seq: u64,
        /// When its files were looked at.
        at: Timestamp,
        touched: Option<TouchedFiles>,
        sealed: SealedReceipt,
        signed: Box<SignedReceipt>,
    },
    House {
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
    /// Its first decision.
    pub(crate) planned: Decision,
    pub(crate) verdict: Verdict,
    pub(crate) question: ApprovalQuestion,
    /// The grants that it rests on.
    pub(crate) grants: Vec<GrantId>,
    pub(crate) sandbox: PermittedSandbox,
    /// The session of this credential and place, when this is its first request.
    pub(crate) opens: Option<Box<Session>>,
    /// The shim that would run it; without one it waits for a slot.
    pub(crate) shim: Option<u32>,
}

/// A person's answer to a question, and what it would bring about.
pub(crate) struct PersonAnswer {
    pub(crate) task: TaskId,
    pub(crate) approval: ApprovalId,
    pub(crate) choice: Choice,
    pub(crate) words: Option<Text>,
    pub(crate) by: DecidedBy,
    pub(crate) world: FactsAtLaunch,
    /// What the answer saves.
    pub(crate) saves: Vec<Grant>,
    /// Where the session is to work, when that was the question.
    pub(crate) moves: Option<Text>,
    /// What the agent should try instead, when it is refused.
    pub(crate) hint: Option<String>,
    /// It would be denied now, whatever anyone says.
    pub(crate) denied: Option<Refusal>,
    pub(crate) sandbox: PermittedSandbox,
    pub(crate) shim: Option<u32>,
}

/// What a person is asked, when one is.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ApprovalQuestion {
    pub(crate) uncovered: Vec<Text>,
    pub(crate) about: Vec<UncoveredCommand>,
    pub(crate) options: Vec<Choice>,
}

/// Whether the facts at launch are the facts that were asked about.
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
                FactsAtLaunch::Changed("the working directory is not the one that was asked about")
            }
            Some(now) if now.program != asked.program || now.programs != asked.programs => {
                FactsAtLaunch::Changed("the program is not the one that was asked about")
            }
            Some(now) if now.scripts != asked.scripts => {
                FactsAtLaunch::Changed("the script is not the one that was asked about")
            }
            Some(_) => FactsAtLaunch::Changed("a path leads somewhere else than when it was asked about"),
            None => FactsAtLaunch::Changed("the working directory is gone"),
        }
    }
}

/// What follows from an event, once its decisions are durable.
#[derive(Debug, Default)]
pub(crate) struct DeskStep {
    pub(crate) decisions: Vec<LedgerEntry>,
    pub(crate) launch: Option<ShimLaunch>,
    /// The raw request is not needed any more.
    pub(crate) forget: Option<TaskId>,
    /// What came of a wish.
    pub(crate) kept: Option<RegisterReply>,
    /// Tasks that wait for a person, and that something new may cover.
    pub(crate) release: Vec<TaskId>,
}

impl DeskStep {
    /// The state of a task whose life began in this step.
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

/// Leave to start a shim's work.
#[derive(Debug)]
pub(crate) struct ShimLaunch {
    pub(crate) permit: Permit,
    pub(crate) first_seq: u64,
    pub(crate) prologue_head: Digest,
}
