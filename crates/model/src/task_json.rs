//! The JSON form of a task's state: one flat object, as clients have always read it, without the members of stages that
//! the task has not reached. This module only decides names and order.

use crate::{
    ApprovalId, Artifact, Audience, Choice, Confinement, CredentialKind, Digest, EnforcedSandbox, Launch, Limits,
    MainProcess, Mode, OnSessionEnd, Outcome, PostRunFindings, PrincipalId, ProcessEnd, Profile, Question, QueueWait,
    RequestSummary, Risk, Ruling, Runner, SandboxSummary, SealedReceipt, SessionId, Settlement, Status, StreamName,
    StreamState, TaskId, TaskIo, TaskSandbox, TaskState, Terminal, Text, Timestamp, Tool, UncoveredCommand, Usage,
    WaitsFor,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{borrow::Cow, collections::BTreeMap};

/// Everything that the records state about a task.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "TaskState"))]
struct TaskStateJson<'a> {
    task_id: TaskId,
    status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waits_for: Option<WaitsFor>,
    /// The place in the queue for a slot, from 1. The daemon fills in the current place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approval_id: Option<ApprovalId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<Cow<'a, Outcome>>,
    plan_digest: Digest,
    display: Cow<'a, Text>,
    verb: Cow<'a, Text>,
    cwd: Cow<'a, Text>,
    mode: Mode,
    tool: Tool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<Cow<'a, Text>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rationale: Option<Cow<'a, Text>>,
    /// Labels that the caller chose.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: Cow<'a, BTreeMap<String, Text>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<SessionId>,
    principal: PrincipalId,
    credential: CredentialKind,
    risks: Cow<'a, [Risk]>,
    audience: Audience,
    profile: Profile,
    #[serde(default)]
    background: bool,
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    limits: Limits,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workspace: Option<Cow<'a, Text>>,
    #[serde(default, skip_serializing_if = "is_keep")]
    on_session_end: OnSessionEnd,
    #[serde(default, skip_serializing_if = "<[Text]>::is_empty")]
    uncovered: Cow<'a, [Text]>,
    #[serde(default, skip_serializing_if = "<[UncoveredCommand]>::is_empty")]
    about: Cow<'a, [UncoveredCommand]>,
    #[serde(default, skip_serializing_if = "<[Choice]>::is_empty")]
    options: Cow<'a, [Choice]>,
    #[serde(default, rename = "decision", skip_serializing_if = "Option::is_none")]
    ruling: Option<Cow<'a, Ruling>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    confinement: Option<Confinement>,
    /// What its sandbox allowed beyond the confinement, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sandbox: Option<Cow<'a, SandboxSummary>>,
    /// What the kernel enforced of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enforced: Option<Cow<'a, EnforcedSandbox>>,
    /// The command failed, and the sandbox may be the reason: one line that says what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<Cow<'a, Text>>,
    /// Escape files that it changed: they make programs run later.
    #[serde(default, skip_serializing_if = "<[Text]>::is_empty")]
    escapes: Cow<'a, [Text]>,
    asked_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    launched_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spawned_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    /// The agent runs it itself (witness mode); the daemon only records it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    observed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shim_pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_seq: Option<u64>,
    streams: Cow<'a, BTreeMap<StreamName, StreamState>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    terminal: Option<Terminal>,
    /// The directory of the foreground program, if it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current_directory: Option<Cow<'a, Text>>,
    #[serde(default, skip_serializing_if = "<[Artifact]>::is_empty")]
    artifacts: Cow<'a, [Artifact]>,
    /// Bytes written to the task's standard input.
    #[serde(default, skip_serializing_if = "is_zero")]
    stdin_bytes: u64,
    /// Descendants that outlived the main process and were kept, as requested.
    #[serde(default, skip_serializing_if = "<[u32]>::is_empty")]
    kept: Cow<'a, [u32]>,
    #[serde(default, skip_serializing_if = "<[u32]>::is_empty")]
    survivors: Cow<'a, [u32]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_rss_kb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    journal_head: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<SealedReceipt>,
    /// When its directory was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expired_at: Option<Timestamp>,
    /// The number of the next record.
    next_seq: u64,
}

fn is_keep(policy: &OnSessionEnd) -> bool {
    *policy == OnSessionEnd::Keep
}

pub(crate) fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Serialize for TaskState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        TaskStateJson::from_state(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TaskState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        TaskStateJson::deserialize(deserializer).map(TaskStateJson::into_state)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for TaskState {
    fn schema_name() -> Cow<'static, str> {
        TaskStateJson::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        TaskStateJson::json_schema(generator)
    }
}

/// Borrows an optional value.
fn borrowed<T: Clone>(value: Option<&T>) -> Option<Cow<'_, T>> {
    value.map(Cow::Borrowed)
}

fn owned<T: Clone>(value: Option<Cow<'_, T>>) -> Option<T> {
    value.map(Cow::into_owned)
}

impl<'a> TaskStateJson<'a> {
    fn from_state(state: &'a TaskState) -> Self {
        let TaskState { request, question, sandbox, io, aftermath, settlement, .. } = state;
        let (question, sandbox, settlement) = (question.as_ref(), sandbox.as_ref(), settlement.as_ref());
        let usage = state.usage();
        Self {
            task_id: state.task_id,
            status: state.status,
            waits_for: state.waits_for(),
            position: state.position(),
            approval_id: state.approval_id(),
            outcome: borrowed(state.outcome()),
            plan_digest: request.plan_digest,
            display: Cow::Borrowed(&request.display),
            verb: Cow::Borrowed(&request.verb),
            cwd: Cow::Borrowed(&request.cwd),
            mode: request.mode,
            tool: request.tool,
            title: borrowed(request.title.as_ref()),
            rationale: borrowed(request.rationale.as_ref()),
            labels: Cow::Borrowed(&request.labels),
            session_id: request.session_id,
            principal: request.principal,
            credential: request.credential,
            risks: Cow::Borrowed(&request.risks),
            audience: request.audience,
            profile: request.profile,
            background: request.background,
            limits: request.limits,
            workspace: borrowed(request.workspace.as_ref()),
            on_session_end: request.on_session_end,
            uncovered: Cow::Borrowed(question.map_or(&[], |q| &q.uncovered)),
            about: Cow::Borrowed(question.map_or(&[], |q| &q.about)),
            options: Cow::Borrowed(question.map_or(&[], |q| &q.options)),
            ruling: borrowed(state.ruling.as_ref()),
            confinement: state.confinement(),
            sandbox: borrowed(sandbox.and_then(|s| s.summary.as_ref())),
            enforced: borrowed(state.enforced()),
            note: borrowed(aftermath.note.as_ref()),
            escapes: Cow::Borrowed(&aftermath.escapes),
            asked_at: request.asked_at,
            launched_at: state.launched_at(),
            spawned_at: state.spawned_at(),
            ended_at: state.ended_at(),
            observed: state.observed(),
            shim_pid: state.shim_pid(),
            pid: state.pid(),
            first_seq: state.first_seq(),
            streams: Cow::Borrowed(&io.streams),
            terminal: io.terminal,
            current_directory: borrowed(io.current_directory.as_ref()),
            artifacts: Cow::Borrowed(&io.artifacts),
            stdin_bytes: io.stdin_bytes,
            kept: Cow::Borrowed(&aftermath.kept),
            survivors: Cow::Borrowed(&aftermath.survivors),
            duration_us: usage.map(|u| u.duration_us),
            cpu_us: usage.map(|u| u.cpu_us),
            max_rss_kb: usage.map(|u| u.max_rss_kb),
            journal_head: settlement.and_then(|s| s.journal_head),
            receipt: state.receipt,
            expired_at: state.expired_at,
            next_seq: state.next_seq,
        }
    }

    fn into_state(self) -> TaskState {
        let shim = self.shim_pid.zip(self.first_seq).map(|(pid, first_seq)| Runner::Shim { pid, first_seq });
        let runner = if self.observed { Some(Runner::Asker) } else { shim };
        let usage = match (self.duration_us, self.cpu_us, self.max_rss_kb) {
            (Some(duration_us), Some(cpu_us), Some(max_rss_kb)) => Some(Usage { duration_us, cpu_us, max_rss_kb }),
            _ => None,
        };
        TaskState {
            task_id: self.task_id,
            status: self.status,
            request: RequestSummary {
                asked_at: self.asked_at,
                plan_digest: self.plan_digest,
                display: self.display.into_owned(),
                verb: self.verb.into_owned(),
                cwd: self.cwd.into_owned(),
                mode: self.mode,
                tool: self.tool,
                title: owned(self.title),
                rationale: owned(self.rationale),
                labels: self.labels.into_owned(),
                session_id: self.session_id,
                principal: self.principal,
                credential: self.credential,
                risks: self.risks.into_owned(),
                audience: self.audience,
                profile: self.profile,
                background: self.background,
                limits: self.limits,
                workspace: owned(self.workspace),
                on_session_end: self.on_session_end,
            },
            question: self.approval_id.map(|approval_id| Question {
                approval_id,
                uncovered: self.uncovered.into_owned(),
                about: self.about.into_owned(),
                options: self.options.into_owned(),
            }),
            ruling: owned(self.ruling),
            sandbox: self.confinement.map(|confinement| TaskSandbox {
                confinement,
                summary: owned(self.sandbox),
                enforced: owned(self.enforced),
            }),
            wait: self.waits_for.map(|waits_for| QueueWait { waits_for, position: self.position }),
            launch: self.launched_at.zip(runner).map(|(at, runner)| Launch { at, runner }),
            process: self.pid.zip(self.spawned_at).map(|(pid, spawned_at)| MainProcess { pid, spawned_at }),
            io: TaskIo {
                streams: self.streams.into_owned(),
                terminal: self.terminal,
                current_directory: owned(self.current_directory),
                artifacts: self.artifacts.into_owned(),
                stdin_bytes: self.stdin_bytes,
            },
            aftermath: PostRunFindings {
                note: owned(self.note),
                escapes: self.escapes.into_owned(),
                kept: self.kept.into_owned(),
                survivors: self.survivors.into_owned(),
            },
            end: self.ended_at.map(|at| ProcessEnd { at, usage }),
            settlement: owned(self.outcome).map(|outcome| Settlement { outcome, journal_head: self.journal_head }),
            receipt: self.receipt,
            expired_at: self.expired_at,
            next_seq: self.next_seq,
        }
    }
}
