//! The state of a task: one struct for each stage of its life, present once the task has reached that stage.
//!
//! `fold.rs` fills it from records; `task_json.rs` has its flat JSON form. Nothing here decides anything.

use crate::{
    ApprovalId, Audience, Choice, Confinement, CredentialKind, DecidedBy, DenialReason, Digest, EnforcedSandbox,
    Limits, Mode, OnSessionEnd, Outcome, PrincipalId, Profile, Risk, SandboxSummary, SavedGrant, Scope, SealedReceipt,
    SessionId, Status, StreamName, TaskId, Text, Timestamp, Tool, UncoveredCommand, WaitsFor,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that the records state about a task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskState {
    pub task_id: TaskId,
    pub status: Status,
    pub request: RequestSummary,
    pub question: Option<Question>,
    pub ruling: Option<Ruling>,
    pub sandbox: Option<TaskSandbox>,
    /// While it is queued.
    pub wait: Option<QueueWait>,
    pub launch: Option<Launch>,
    pub process: Option<MainProcess>,
    pub io: TaskIo,
    pub aftermath: PostRunFindings,
    pub end: Option<ProcessEnd>,
    pub settlement: Option<Settlement>,
    pub receipt: Option<SealedReceipt>,
    /// When its directory was removed.
    pub expired_at: Option<Timestamp>,
    /// The number of the next record.
    pub next_seq: u64,
}

/// The request, who made it, and its conditions. Clean, unlike the request itself.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestSummary {
    pub asked_at: Timestamp,
    pub plan_digest: Digest,
    pub display: Text,
    pub verb: Text,
    pub cwd: Text,
    pub mode: Mode,
    pub tool: Tool,
    pub title: Option<Text>,
    pub rationale: Option<Text>,
    /// Labels that the caller chose.
    pub labels: BTreeMap<String, Text>,
    pub session_id: Option<SessionId>,
    pub principal: PrincipalId,
    pub credential: CredentialKind,
    pub risks: Vec<Risk>,
    pub audience: Audience,
    pub profile: Profile,
    pub background: bool,
    pub limits: Limits,
    pub workspace: Option<Text>,
    pub on_session_end: OnSessionEnd,
}

/// The question to a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub approval_id: ApprovalId,
    pub uncovered: Vec<Text>,
    pub about: Vec<UncoveredCommand>,
    pub options: Vec<Choice>,
}

/// The decision whether the task may run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Ruling {
    Granted {
        by: DecidedBy,
        scope: Scope,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        saved: Vec<SavedGrant>,
    },
    Denied {
        by: DecidedBy,
        reason: DenialReason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<Text>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        words: Option<Text>,
        at: Timestamp,
    },
}

/// The sandbox of the task: granted with the permission, enforced when its process starts.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSandbox {
    pub confinement: Confinement,
    /// What it allows beyond the confinement, and why.
    pub summary: Option<SandboxSummary>,
    /// What the kernel enforced of it.
    pub enforced: Option<EnforcedSandbox>,
}

/// What a queued task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueWait {
    pub waits_for: WaitsFor,
    /// The place in the queue for a slot, from 1. The daemon fills in the current place.
    pub position: Option<u64>,
}

/// When the task started, and who runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    pub at: Timestamp,
    pub runner: Runner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// A shim of the daemon; its journal begins at `first_seq`.
    Shim { pid: u32, first_seq: u64 },
    /// The agent itself (witness mode); it only reports the result to the daemon.
    Asker,
}

/// The task's main process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MainProcess {
    pub pid: u32,
    pub spawned_at: Timestamp,
}

/// Input and output of the task.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskIo {
    pub streams: BTreeMap<StreamName, StreamState>,
    pub terminal: Option<Terminal>,
    /// The directory of the foreground program, if it changed.
    pub current_directory: Option<Text>,
    pub artifacts: Vec<Artifact>,
    /// Bytes written to the task's standard input.
    pub stdin_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamState {
    /// The length of the stream, with dropped bytes.
    pub bytes: u64,
    /// How many bytes the output limit dropped.
    #[serde(default, skip_serializing_if = "crate::task_json::is_zero")]
    pub dropped: u64,
    pub redactions: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
}

/// The terminal of a task in mode `pty`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Terminal {
    pub rows: u16,
    pub cols: u16,
    /// `false` while typed text is not shown, as for a password.
    pub echo: bool,
}

/// A file beside the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Artifact {
    pub artifact: Text,
    pub what: Text,
    pub bytes: u64,
    pub sha256: Digest,
}

/// What the task left behind, and a note if its sandbox may have blocked it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PostRunFindings {
    /// The command failed, and the sandbox may be the reason: one line that says what to do.
    pub note: Option<Text>,
    /// Escape files that it changed: they make programs run later.
    pub escapes: Vec<Text>,
    /// Descendants that outlived the main process and were kept, as requested.
    pub kept: Vec<u32>,
    pub survivors: Vec<u32>,
}

/// The end of the main process, or of the task if it never had one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessEnd {
    pub at: Timestamp,
    /// What the kernel measured; unknown for a task without a process, and for a lost one.
    pub usage: Option<Usage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub duration_us: u64,
    pub cpu_us: u64,
    pub max_rss_kb: u64,
}

/// The decision that ended the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    pub outcome: Outcome,
    pub journal_head: Option<Digest>,
}

impl TaskState {
    #[must_use]
    pub fn settled(&self) -> bool {
        self.settlement.is_some()
    }

    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.settlement.as_ref().map(|s| &s.outcome)
    }

    #[must_use]
    pub fn approval_id(&self) -> Option<ApprovalId> {
        self.question.as_ref().map(|q| q.approval_id)
    }

    #[must_use]
    pub fn waits_for(&self) -> Option<WaitsFor> {
        self.wait.map(|w| w.waits_for)
    }

    /// The place in the queue for a slot, from 1.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        self.wait.and_then(|w| w.position)
    }

    #[must_use]
    pub fn confinement(&self) -> Option<Confinement> {
        self.sandbox.as_ref().map(|s| s.confinement)
    }

    /// What the kernel enforced of its confinement.
    #[must_use]
    pub fn enforced(&self) -> Option<&EnforcedSandbox> {
        self.sandbox.as_ref().and_then(|s| s.enforced.as_ref())
    }

    #[must_use]
    pub fn launched_at(&self) -> Option<Timestamp> {
        self.launch.map(|l| l.at)
    }

    /// Whether the agent runs it itself (witness mode) and the daemon only records it.
    #[must_use]
    pub fn observed(&self) -> bool {
        self.launch.is_some_and(|l| l.runner == Runner::Asker)
    }

    #[must_use]
    pub fn shim_pid(&self) -> Option<u32> {
        self.launch.and_then(|l| l.runner.shim()).map(|(pid, _)| pid)
    }

    /// The number of the journal's first frame.
    #[must_use]
    pub fn first_seq(&self) -> Option<u64> {
        self.launch.and_then(|l| l.runner.shim()).map(|(_, first_seq)| first_seq)
    }

    #[must_use]
    pub fn spawned_at(&self) -> Option<Timestamp> {
        self.process.map(|p| p.spawned_at)
    }

    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.map(|p| p.pid)
    }

    #[must_use]
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.end.map(|e| e.at)
    }

    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.end.and_then(|e| e.usage)
    }
}

impl Runner {
    fn shim(self) -> Option<(u32, u64)> {
        match self {
            Self::Shim { pid, first_seq } => Some((pid, first_seq)),
            Self::Asker => None,
        }
    }
}
