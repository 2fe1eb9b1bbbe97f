//! The one fold: records in, the state of a task out. Daemon, CLI and replay all call this and nothing else.

use crate::{
    About, ApprovalId, At, Audience, By, Choice, Confinement, CredentialKind, Decision, Digest, Enforced, Frame,
    Limits, Mode, OnSessionEnd, Outcome, PrincipalId, Profile, Record, Risk, SandboxSummary, Saved, Scope,
    SealedReceipt, SessionId, Status, StreamName, TaskId, Text, Tool, WaitsFor, What,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that is known of a task, as its records tell it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskState {
    pub task_id: TaskId,
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsFor>,
    /// The place in the queue for a slot, from 1. The house fills in where the task stands now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    pub plan_digest: Digest,
    pub display: Text,
    pub verb: Text,
    pub cwd: Text,
    pub mode: Mode,
    pub tool: Tool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rationale: Option<Text>,
    /// What the asker says of itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    pub principal: PrincipalId,
    pub credential: CredentialKind,
    pub risks: Vec<Risk>,
    pub audience: Audience,
    pub profile: Profile,
    #[serde(default)]
    pub background: bool,
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    pub limits: Limits,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Text>,
    #[serde(default, skip_serializing_if = "is_kept")]
    pub on_session_end: OnSessionEnd,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncovered: Vec<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<About>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Choice>,
    #[serde(default, rename = "decision", skip_serializing_if = "Option::is_none")]
    pub ruling: Option<Ruling>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
    /// What its sandbox gave it beyond that, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxSummary>,
    /// How far the kernel enforced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforced: Option<Enforced>,
    /// It failed, and its confinement may be why: in one line, with what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Text>,
    /// Files that make programs run later, which it changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escapes: Vec<Text>,
    pub asked_at: At,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launched_at: Option<At>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawned_at: Option<At>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<At>,
    /// Whoever asked runs it; the house only looks on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shim_pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seq: Option<u64>,
    pub streams: BTreeMap<StreamName, StreamState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
    /// Where the program in the foreground is, when it has moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_directory: Option<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// Bytes that went into the task's standard input.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stdin_bytes: u64,
    /// Descendants that outlived the main process and were kept, as asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub survivors: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rss_kb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_head: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<SealedReceipt>,
    /// When its directory was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired_at: Option<At>,
    /// The number of the next record.
    pub next_seq: u64,
}

/// How the question "may this run?" was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Ruling {
    Granted {
        by: By,
        scope: Scope,
        at: At,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        saved: Vec<Saved>,
    },
    Denied {
        by: By,
        reason: Text,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<Text>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        words: Option<Text>,
        at: At,
    },
}

/// The terminal of a task in mode `pty`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Terminal {
    pub rows: u16,
    pub cols: u16,
    /// `false` while lines are read without being shown, as for a password.
    pub echo: bool,
}

/// Bytes that are kept beside the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Artifact {
    pub artifact: Text,
    pub what: Text,
    pub bytes: u64,
    pub sha256: Digest,
}

fn is_kept(policy: &OnSessionEnd) -> bool {
    *policy == OnSessionEnd::Keep
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamState {
    /// The end of the stream: what was kept and what was dropped.
    pub bytes: u64,
    /// What the output limit dropped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    pub redactions: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
}

impl TaskState {
    /// A task begins with `command.planned`; any other first record is not the beginning of a task.
    pub fn begin(task_id: TaskId, record: &Record) -> Option<Self> {
        let What::Decision(Decision::Planned {
            plan_digest,
            display,
            verb,
            cwd,
            mode,
            tool,
            title,
            rationale,
            labels,
            session,
            principal,
            credential,
            risks,
            audience,
            profile,
            background,
            limits,
            workspace,
            on_session_end,
            idempotency: _,
        }) = &record.what
        else {
            return None;
        };
        Some(Self {
            task_id,
            status: Status::Queued,
            waits_for: None,
            position: None,
            approval_id: None,
            outcome: None,
            plan_digest: *plan_digest,
            display: display.clone(),
            verb: verb.clone(),
            cwd: cwd.clone(),
            mode: *mode,
            tool: *tool,
            title: title.clone(),
            rationale: rationale.clone(),
            labels: labels.clone(),
            session_id: *session,
            principal: *principal,
            credential: *credential,
            risks: risks.clone(),
            audience: *audience,
            profile: *profile,
            background: *background,
            limits: **limits,
            workspace: workspace.clone(),
            on_session_end: *on_session_end,
            uncovered: Vec::new(),
            about: Vec::new(),
            options: Vec::new(),
            ruling: None,
            confinement: None,
            sandbox: None,
            enforced: None,
            note: None,
            escapes: Vec::new(),
            asked_at: record.at,
            launched_at: None,
            spawned_at: None,
            ended_at: None,
            observed: false,
            shim_pid: None,
            pid: None,
            first_seq: None,
            streams: BTreeMap::new(),
            terminal: None,
            current_directory: None,
            artifacts: Vec::new(),
            stdin_bytes: 0,
            kept: Vec::new(),
            survivors: Vec::new(),
            duration_us: None,
            cpu_us: None,
            max_rss_kb: None,
            journal_head: None,
            receipt: None,
            expired_at: None,
            next_seq: record.seq.saturating_add(1),
        })
    }

    /// One more record of this task.
    pub fn apply(&mut self, record: &Record) {
        self.next_seq = record.seq.saturating_add(1);
        match &record.what {
            What::Decision(decision) => self.decide(record.at, decision),
            What::Frame(frame) => self.happen(record.at, frame),
            What::Unknown(_) => {}
        }
    }

    /// The whole stream at once.
    pub fn fold<'a>(task_id: TaskId, records: impl IntoIterator<Item = &'a Record>) -> Option<Self> {
        let mut records = records.into_iter();
        let mut state = Self::begin(task_id, records.next()?)?;
        records.for_each(|r| state.apply(r));
        Some(state)
    }

    pub fn settled(&self) -> bool {
        self.outcome.is_some()
    }

    fn decide(&mut self, at: At, decision: &Decision) {
        match decision {
            Decision::Planned { .. }
            | Decision::Touched(_)
            | Decision::Shutdown(_)
            | Decision::HomeNamed { .. }
            | Decision::Key(_)
            | Decision::House { .. }
            | Decision::Lost { .. }
            | Decision::Withdrawn { .. }
            | Decision::Entered(_) => {}
            Decision::PermissionRequested { approval, uncovered, options, about } => {
                self.approval_id = Some(*approval);
                self.uncovered.clone_from(uncovered);
                self.options.clone_from(options);
                self.about.clone_from(about);
            }
            Decision::PermissionGranted { by, scope, confinement, sandbox, saved, .. } => {
                let saved = saved.clone();
                self.ruling = Some(Ruling::Granted { by: by.clone(), scope: *scope, at, saved });
                self.confinement = Some(*confinement);
                self.sandbox = sandbox.as_deref().cloned();
                self.waits_for = None;
            }
            Decision::PermissionDenied { by, reason, hint, words, policy: _ } => {
                self.ruling = Some(Ruling::Denied {
                    by: by.clone(),
                    reason: reason.clone(),
                    hint: hint.clone(),
                    words: words.clone(),
                    at,
                });
            }
            Decision::Queued { waits_for, position } => {
                self.waits_for = Some(*waits_for);
                self.position = *position;
            }
            Decision::Launched { shim_pid, first_seq } => {
                self.status = Status::Running;
                self.waits_for = None;
                self.position = None;
                self.launched_at = Some(at);
                self.shim_pid = Some(*shim_pid);
                self.first_seq = Some(*first_seq);
            }
            Decision::Observing { .. } => {
                self.status = Status::Running;
                self.waits_for = None;
                self.launched_at = Some(at);
                self.observed = true;
            }
            Decision::Sealed(sealed) => self.receipt = Some(*sealed),
            Decision::Settled { outcome, journal_head, recovered: _ } => {
                self.status = outcome.status();
                self.waits_for = None;
                self.position = None;
                self.journal_head = *journal_head;
                self.outcome = Some(outcome.clone());
                // When it ended its journal knows better: nobody may have been there to settle it.
                self.ended_at.get_or_insert(at);
            }
            Decision::Expired { streams, .. } => {
                self.expired_at = Some(at);
                self.totals(streams);
            }
        }
    }

    fn happen(&mut self, at: At, frame: &Frame) {
        match frame {
            Frame::EnvExposed { .. }
            | Frame::Signalled { .. }
            | Frame::CancelRequested { .. }
            | Frame::LimitReached { .. }
            | Frame::CleanupStarted { .. } => {}
            Frame::Spawned { pid, confinement, enforced, .. } => {
                self.confinement = Some(*confinement);
                self.enforced.clone_from(enforced);
                self.spawned_at = Some(at);
                self.pid = Some(*pid);
            }
            Frame::Output { stream, offset, len, .. } => {
                self.streams.entry(*stream).or_default().bytes = offset.saturating_add(*len);
            }
            Frame::Gap { stream, offset, bytes } => {
                let state = self.streams.entry(*stream).or_default();
                (state.bytes, state.dropped) = (offset.saturating_add(*bytes), *bytes);
            }
            Frame::StdinWritten { bytes, .. } => self.stdin_bytes = self.stdin_bytes.saturating_add(*bytes),
            Frame::Resized { rows, cols, .. } => {
                let echo = self.terminal.is_none_or(|t| t.echo);
                self.terminal = Some(Terminal { rows: *rows, cols: *cols, echo });
            }
            Frame::Echo { on } => self.terminal.iter_mut().for_each(|t| t.echo = *on),
            Frame::CwdChanged { path } => self.current_directory = Some(path.clone()),
            Frame::ArtifactStored { artifact, what, bytes, sha256 } => self.artifacts.push(Artifact {
                artifact: artifact.clone(),
                what: what.clone(),
                bytes: *bytes,
                sha256: *sha256,
            }),
            Frame::Redacted { stream, count, .. } => {
                let redactions = &mut self.streams.entry(*stream).or_default().redactions;
                *redactions = redactions.saturating_add(*count);
            }
            Frame::Killed { survivors, .. } | Frame::CleanupCompleted { survivors, .. } => {
                self.survivors.clone_from(survivors);
            }
            Frame::Exited { duration_us, cpu_us, max_rss_kb, .. } => {
                self.ended_at = Some(at);
                self.duration_us = Some(*duration_us);
                self.cpu_us = Some(*cpu_us);
                self.max_rss_kb = Some(*max_rss_kb);
            }
            Frame::WallMet { note } => self.note = Some(note.clone()),
            Frame::WriteDetected { path, escape, .. } => self.escapes.extend(escape.then(|| path.clone())),
            Frame::Kept { processes } => self.kept.clone_from(processes),
            Frame::Closed { streams, .. } => {
                self.ended_at.get_or_insert(at);
                self.kept.clear();
                self.totals(streams);
            }
        }
    }

    fn totals(&mut self, streams: &crate::StreamTotals) {
        for (stream, total) in streams {
            let state = self.streams.entry(*stream).or_default();
            state.bytes = total.bytes.saturating_add(total.dropped);
            state.dropped = total.dropped;
            state.sha256 = Some(total.sha256);
        }
    }
}
