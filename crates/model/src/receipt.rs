//! The receipt: the final account of a task, as an in-toto statement. It is a pure function of the task's decisions,
//! its journal and the digests of its files.
//!
//! Every text comes from a record, so it is clean. Numbers that could be large are written as text, so that no reader
//! rounds them. Signing happens elsewhere.

use crate::{
    ApprovalId, Audience, Confinement, CredentialKind, DecidedBy, Decision, DenialReason, Digest, EnforcedSandbox,
    EnvClass, ExitStatus, FileObservation, Frame, HomeId, KilledWhy, Mode, Outcome, PrincipalId, Profile, ReceiptId,
    Record, RecordContent, Risk, Ruling, SandboxSummary, SavedGrant, Scope, SessionId, SignalName, StreamName, TaskId,
    TaskState, Text, Timestamp, Tool, TouchedFile, TouchedFiles,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

pub const STATEMENT: &str = "https://in-toto.io/Statement/v1";
pub const PREDICATE: &str = "https://countersign.dev/command-receipt/v1";

/// How many offsets of one redaction rule are listed; the count includes all of them.
const MAX_LISTED_OFFSETS: usize = 8;

/// A number that is written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DecimalCount(pub u64);

impl fmt::Display for DecimalCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for DecimalCount {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for DecimalCount {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map(Self).map_err(|_| serde::de::Error::custom("not a number in a text"))
    }
}

/// An in-toto Statement v1 about one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Statement {
    #[serde(rename = "_type")]
    pub kind: String,
    pub subject: Vec<ReceiptSubject>,
    #[serde(rename = "predicateType")]
    pub predicate_type: String,
    pub predicate: Receipt,
}

/// Bytes that the receipt covers: `sha256sum` can check them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceiptSubject {
    pub name: String,
    pub digest: Sha256,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sha256 {
    pub sha256: Digest,
}

impl ReceiptSubject {
    /// The decisions of a task up to its sealing, one line each.
    pub const DECISIONS: &'static str = "decisions.jsonl";
    pub const JOURNAL: &'static str = "journal";

    fn new(name: &str, sha256: Digest) -> Self {
        Self { name: name.to_owned(), digest: Sha256 { sha256 } }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    pub receipt_id: ReceiptId,
    pub task_id: TaskId,
    /// The home that issued the receipt; receipts of earlier versions name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home_id: Option<HomeId>,
    /// Its number in the receipt chain of the home, from 1 and without gaps.
    pub seq: DecimalCount,
    /// SHA-256 of the previous receipt's statement; none for the first.
    pub prev: Option<Digest>,
    pub ledger_head: LedgerHead,
    /// Settled or sealed after the daemon had ended unexpectedly.
    pub recovered: bool,
    pub sealed_at: Timestamp,
    pub lifecycle: Vec<ReceiptStage>,
    pub request: ReceiptRequest,
    pub risks: Vec<Risk>,
    pub decision: ReceiptDecision,
    pub confinement: ReceiptSandbox,
    pub outcome: Outcome,
    pub execution: Option<Execution>,
    pub touched_files: TouchedFiles,
    pub redactions: Vec<Redactions>,
    pub journal: Option<SealedJournal>,
}

/// The ledger head when the receipt was sealed: the last decision, and the hash of the chain up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerHead {
    pub decision: DecimalCount,
    pub sha256: Digest,
}

/// The stages of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReceiptStage {
    Planned,
    PermissionRequested,
    PermissionGranted,
    PermissionDenied,
    Withdrawn,
    Spawned,
    Streaming,
    Exited,
    Lost,
    ReceiptSealed,
}

/// The request and who made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceiptRequest {
    /// HMAC-SHA-256 with a key of the home, like `argv_digest`.
    pub plan_digest: Digest,
    pub argv_digest: Option<Digest>,
    pub display: Text,
    pub verb: Text,
    pub tool: Tool,
    pub cwd: Text,
    pub mode: Mode,
    pub background: bool,
    pub environment: Option<Environment>,
    pub requester: RecordedRequester,
    pub session: Option<SessionId>,
    pub audience: Audience,
    pub profile: Profile,
    pub asked_at: Timestamp,
    pub title: Option<Text>,
    pub rationale: Option<Text>,
    /// Labels that the caller chose.
    pub caller: CallerLabels,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Environment {
    pub class: EnvClass,
    /// Names, never values.
    pub names: Vec<Text>,
    pub withheld: Vec<Text>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordedRequester {
    pub principal: PrincipalId,
    pub credential: CredentialKind,
}

/// Labels from the caller. Nobody has checked them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CallerLabels {
    pub trusted: bool,
    pub labels: BTreeMap<String, Text>,
}

/// The decision about the request, as the ledger holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceiptDecision {
    pub outcome: AnswerKind,
    pub by: Option<DecidedBy>,
    pub at: Option<Timestamp>,
    pub scope: Option<Scope>,
    /// The approval, if a person was asked.
    pub approval: Option<ApprovalId>,
    pub saved: Vec<SavedGrant>,
    pub reason: Option<DenialReason>,
    pub words: Option<Text>,
    /// SHA-256 of the tables, rules and settings that judged the request.
    pub policy: Option<Digest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AnswerKind {
    Granted,
    Denied,
    /// The task was withdrawn before anyone answered.
    Unanswered,
}

/// What the kernel actually enforced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceiptSandbox {
    pub confinement: Option<Confinement>,
    pub enforced: Option<EnforcedSandbox>,
    /// What the sandbox allowed beyond that, and why it was not narrower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxSummary>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExecutionKind {
    /// The shim ran a program.
    Performed,
    /// Countersign did the work itself, without a program.
    Builtin,
    /// The agent ran the command itself and reported the result.
    Observed,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Execution {
    pub kind: ExecutionKind,
    pub launched_at: Option<Timestamp>,
    pub spawned_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub duration_us: Option<DecimalCount>,
    pub executable: Option<Executable>,
    pub pid: Option<u32>,
    /// The user that it ran as, under the system service; none means the daemon's own user.
    pub uid: Option<u32>,
    pub process_group: Option<u32>,
    /// How the main process ended, as the kernel reported it.
    pub exit: Option<ExitStatus>,
    pub killed: Vec<SentSignal>,
    pub cleanup: Option<Cleanup>,
    pub stdin_bytes: DecimalCount,
    pub streams: BTreeMap<StreamName, ReceiptStream>,
    /// Whether the output limit dropped any bytes.
    pub truncated: bool,
    pub cpu_us: Option<DecimalCount>,
    pub max_rss_kb: Option<DecimalCount>,
    pub limits_reached: Vec<Text>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Executable {
    pub path: Text,
    pub dev: DecimalCount,
    pub inode: DecimalCount,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SentSignal {
    pub signal: SignalName,
    pub why: KilledWhy,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cleanup {
    pub ended: DecimalCount,
    pub survivors: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceiptStream {
    /// What the program wrote, after redaction.
    pub bytes: DecimalCount,
    pub dropped: DecimalCount,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Redactions {
    pub rule: Text,
    pub count: DecimalCount,
    /// The first offsets.
    pub places: Vec<RedactionOffset>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RedactionOffset {
    pub stream: StreamName,
    /// An offset in the redacted stream.
    pub offset: DecimalCount,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SealedJournal {
    pub frames: DecimalCount,
    pub head: Digest,
    /// The hash of the decisions that the journal continues.
    pub prologue_head: Digest,
    /// Whether its last frame exists. Without it, the task was lost.
    pub closed: bool,
    /// A contradiction between the journal and the settled outcome, found when the receipt was sealed.
    pub damage: Option<Text>,
}

/// The digests of a task's files when its receipt is sealed.
#[derive(Debug, Clone)]
pub struct TaskFileDigests {
    /// SHA-256 of its decisions, one line each.
    pub decisions: Digest,
    pub journal: Option<(Digest, SealedJournal)>,
    /// Digests of streams that the journal does not state.
    pub streams: BTreeMap<StreamName, Digest>,
}

/// The position of a receipt in the receipt chain.
#[derive(Debug, Clone, Copy)]
pub struct ReceiptPosition {
    pub receipt: ReceiptId,
    pub home: Option<HomeId>,
    pub number: u64,
    pub prev: Option<Digest>,
    pub ledger_head: LedgerHead,
    pub at: Timestamp,
    /// The daemon that settled the task ended unexpectedly before it could seal the receipt.
    pub late: bool,
}

/// Everything that the records of a task state: its state, and details that only the receipt contains.
#[derive(Debug, Clone)]
pub struct TaskAccount {
    pub state: TaskState,
    environment: Option<Environment>,
    argv_digest: Option<Digest>,
    executable: Option<Executable>,
    process_group: Option<u32>,
    uid: Option<u32>,
    exit: Option<ExitStatus>,
    killed: Vec<SentSignal>,
    cleanup: Option<Cleanup>,
    limits_reached: Vec<Text>,
    redactions: BTreeMap<Text, (u64, Vec<RedactionOffset>)>,
    changed: Vec<TouchedFile>,
    touched: Option<TouchedFiles>,
    policy: Option<Digest>,
    recovered: bool,
    settled_at: Option<u64>,
    /// The journal has its last frame.
    closed: bool,
    /// Text was typed while the terminal's echo was off.
    typed_unseen: bool,
}

impl TaskAccount {
    /// None if this is not the first record of a task.
    #[must_use]
    pub fn begin(task: TaskId, first: &Record) -> Option<Self> {
        Some(Self {
            state: TaskState::begin(task, first)?,
            environment: None,
            argv_digest: None,
            executable: None,
            process_group: None,
            uid: None,
            exit: None,
            killed: Vec::new(),
            cleanup: None,
            limits_reached: Vec::new(),
            redactions: BTreeMap::new(),
            changed: Vec::new(),
            touched: None,
            policy: None,
            recovered: false,
            settled_at: None,
            closed: false,
            typed_unseen: false,
        })
    }

    pub fn apply(&mut self, record: &Record) {
        self.state.apply(record);
        match &record.what {
            RecordContent::Decision(decision) => self.apply_decision(record.seq, decision),
            RecordContent::Frame(frame) => self.apply_frame(frame),
            RecordContent::Unknown(_) => {}
        }
    }

    /// The number of the decision that settled it.
    #[must_use]
    pub fn settled_at(&self) -> Option<u64> {
        self.settled_at
    }

    fn apply_decision(&mut self, seq: u64, decision: &Decision) {
        match decision {
            Decision::PermissionGranted { policy, .. } | Decision::PermissionDenied { policy, .. } => {
                self.policy = *policy;
            }
            Decision::Settled { recovered, .. } => {
                self.recovered = *recovered;
                self.settled_at = Some(seq);
            }
            Decision::Touched(touched) => self.touched = Some(touched.clone()),
            Decision::Planned { .. }
            | Decision::PermissionRequested { .. }
            | Decision::Queued { .. }
            | Decision::Withdrawn { .. }
            | Decision::Launched { .. }
            | Decision::Observing { .. }
            | Decision::Lost { .. }
            | Decision::Sealed(_)
            | Decision::Expired { .. }
            | Decision::DaemonStateChanged { .. }
            | Decision::Shutdown(_)
            | Decision::HomeNamed { .. }
            | Decision::Key(_)
            | Decision::Entered(_) => {}
        }
    }

    fn apply_frame(&mut self, frame: &Frame) {
        match frame {
            Frame::EnvExposed { class, names, withheld } => {
                let (names, withheld) = (names.clone(), withheld.clone());
                self.environment = Some(Environment { class: *class, names, withheld });
            }
            Frame::Spawned { pgid, argv_digest, executable, dev, inode, uid, .. } => {
                self.uid = *uid;
                self.process_group = Some(*pgid);
                self.argv_digest = Some(*argv_digest);
                let (path, dev, inode) = (executable.clone(), DecimalCount(*dev), DecimalCount(*inode));
                self.executable = Some(Executable { path, dev, inode });
            }
            Frame::Redacted { stream, offset, rule, count } => {
                let (total, places) = self.redactions.entry(rule.clone()).or_default();
                *total = total.saturating_add(*count);
                if places.len() < MAX_LISTED_OFFSETS {
                    places.push(RedactionOffset { stream: *stream, offset: DecimalCount(*offset) });
                }
            }
            Frame::LimitReached { limit, .. } => self.limits_reached.push(limit.clone()),
            Frame::Killed { signal, why, survivors } => {
                self.killed.push(SentSignal { signal: *signal, why: *why });
                self.cleanup.get_or_insert_default().survivors.clone_from(survivors);
            }
            Frame::CleanupCompleted { ended, survivors } => {
                let cleanup = self.cleanup.get_or_insert_default();
                cleanup.ended = DecimalCount(cleanup.ended.0.saturating_add(*ended));
                cleanup.survivors.clone_from(survivors);
            }
            Frame::Exited { status, .. } => self.exit = Some(*status),
            Frame::WriteDetected { path, change, escape, before, after } => self.changed.push(TouchedFile {
                path: path.clone(),
                change: *change,
                escape: *escape,
                before: *before,
                after: *after,
            }),
            Frame::Output { .. }
            | Frame::Gap { .. }
            | Frame::StdinWritten { .. }
            | Frame::Resized { .. }
            | Frame::CwdChanged { .. }
            | Frame::Signalled { .. }
            | Frame::CancelRequested { .. }
            | Frame::ConfinementMet { .. }
            | Frame::Kept { .. }
            | Frame::ArtifactStored { .. }
            | Frame::CleanupStarted { .. } => {}
            Frame::Echo { on } => self.typed_unseen |= !on,
            Frame::Closed { .. } => self.closed = true,
        }
    }

    /// Whether text was typed unseen. The shim alone knew that it is secret, so the records may contain it.
    #[must_use]
    pub fn has_hidden_input(&self) -> bool {
        self.typed_unseen
    }

    /// What the records state about changed files, without a scan of the disk.
    #[must_use]
    pub fn files(&self) -> TouchedFiles {
        let state = &self.state;
        let (launched, spawned) = (state.launched_at().is_some(), state.spawned_at().is_some());
        let (observed, complete) = if !launched {
            (FileObservation::None, true)
        } else if state.observed() {
            // Nobody scanned for changes.
            (FileObservation::None, false)
        } else if state.request.tool.is_builtin() {
            // The single change is known if the journal is complete.
            (FileObservation::Exact, self.closed)
        } else if spawned && state.confinement() == Some(Confinement::ReadOnly) {
            (FileObservation::Confined, true)
        } else {
            // Nothing ran, if the journal is complete.
            (FileObservation::None, !spawned && self.closed)
        };
        TouchedFiles { observed, roots: Vec::new(), complete, files: self.changed.clone(), more: 0 }
    }

    fn lifecycle(&self) -> Vec<ReceiptStage> {
        let state = &self.state;
        let ruling = state.ruling.as_ref().map(|r| match r {
            Ruling::Granted { .. } => ReceiptStage::PermissionGranted,
            Ruling::Denied { .. } => ReceiptStage::PermissionDenied,
        });
        let ending = match state.outcome() {
            Some(Outcome::Withdrawn { .. }) => Some(ReceiptStage::Withdrawn),
            Some(Outcome::Lost { .. }) => Some(ReceiptStage::Lost),
            _ => self.exit.map(|_| ReceiptStage::Exited),
        };
        let streamed = state.io.streams.values().any(|s| s.bytes > 0);
        let stages = [
            Some(ReceiptStage::Planned),
            state.approval_id().map(|_| ReceiptStage::PermissionRequested),
            ruling,
            state.spawned_at().map(|_| ReceiptStage::Spawned),
            streamed.then_some(ReceiptStage::Streaming),
            ending,
            Some(ReceiptStage::ReceiptSealed),
        ];
        stages.into_iter().flatten().collect()
    }

    fn request(&self) -> ReceiptRequest {
        let state = &self.state;
        ReceiptRequest {
            plan_digest: state.request.plan_digest,
            argv_digest: self.argv_digest,
            display: state.request.display.clone(),
            verb: state.request.verb.clone(),
            tool: state.request.tool,
            cwd: state.request.cwd.clone(),
            mode: state.request.mode,
            background: state.request.background,
            environment: self.environment.clone(),
            requester: RecordedRequester { principal: state.request.principal, credential: state.request.credential },
            session: state.request.session_id,
            audience: state.request.audience,
            profile: state.request.profile,
            asked_at: state.request.asked_at,
            title: state.request.title.clone(),
            rationale: state.request.rationale.clone(),
            caller: CallerLabels { trusted: false, labels: state.request.labels.clone() },
        }
    }

    fn decision(&self) -> ReceiptDecision {
        let decided = ReceiptDecision {
            outcome: AnswerKind::Unanswered,
            by: None,
            at: None,
            scope: None,
            approval: self.state.approval_id(),
            saved: Vec::new(),
            reason: None,
            words: None,
            policy: self.policy,
        };
        match self.state.ruling.clone() {
            None => decided,
            Some(Ruling::Granted { by, scope, at, saved }) => ReceiptDecision {
                outcome: AnswerKind::Granted,
                by: Some(by),
                at: Some(at),
                scope: Some(scope),
                saved,
                ..decided
            },
            Some(Ruling::Denied { by, reason, words, at, .. }) => ReceiptDecision {
                outcome: AnswerKind::Denied,
                by: Some(by),
                at: Some(at),
                reason: Some(reason),
                words,
                ..decided
            },
        }
    }

    fn execution(&self) -> Option<Execution> {
        let state = &self.state;
        let kind = match state.request.tool {
            Tool::SetWorkingDirectory => ExecutionKind::Builtin,
            tool if tool.is_builtin() => ExecutionKind::Builtin,
            _ if state.observed() => ExecutionKind::Observed,
            _ => ExecutionKind::Performed,
        };
        // A task that could not be started has no execution.
        let executed = match kind {
            ExecutionKind::Performed => state.spawned_at().is_some(),
            ExecutionKind::Builtin => state.spawned_at().is_some() || self.closed,
            ExecutionKind::Observed => true,
        };
        if !executed {
            return None;
        }
        state.launched_at()?;
        Some(Execution {
            kind,
            launched_at: state.launched_at(),
            spawned_at: state.spawned_at(),
            ended_at: state.ended_at(),
            duration_us: state.usage().map(|u| DecimalCount(u.duration_us)),
            executable: self.executable.clone(),
            pid: state.pid(),
            uid: self.uid,
            process_group: self.process_group,
            exit: self.exit,
            killed: self.killed.clone(),
            cleanup: self.cleanup.clone(),
            stdin_bytes: DecimalCount(state.io.stdin_bytes),
            streams: state
                .io
                .streams
                .iter()
                .map(|(name, s)| {
                    (*name, ReceiptStream { bytes: DecimalCount(s.bytes), dropped: DecimalCount(s.dropped) })
                })
                .collect(),
            truncated: state.io.streams.values().any(|s| s.dropped > 0),
            cpu_us: state.usage().map(|u| DecimalCount(u.cpu_us)),
            max_rss_kb: state.usage().map(|u| DecimalCount(u.max_rss_kb)),
            limits_reached: self.limits_reached.clone(),
        })
    }
}

impl Statement {
    /// The statement about a settled task; none before that.
    #[must_use]
    pub fn from_account(account: &TaskAccount, digests: &TaskFileDigests, position: ReceiptPosition) -> Option<Self> {
        let state = &account.state;
        let outcome = state.outcome().cloned()?;
        let spawned = state.process.is_some();
        let mut subject = vec![ReceiptSubject::new(ReceiptSubject::DECISIONS, digests.decisions)];
        subject
            .extend(digests.journal.as_ref().map(|(sha256, _)| ReceiptSubject::new(ReceiptSubject::JOURNAL, *sha256)));
        for (name, stream) in &state.io.streams {
            let sha256 = stream.sha256.or_else(|| digests.streams.get(name).copied());
            // A stream without bytes has no file.
            subject.extend(
                sha256.filter(|_| stream.bytes > stream.dropped).map(|sha256| ReceiptSubject::new(name.file(), sha256)),
            );
        }
        subject.extend(state.io.artifacts.iter().map(|a| ReceiptSubject::new(a.artifact.as_str(), a.sha256)));
        let redaction = |(rule, (count, places)): (&Text, &(u64, Vec<RedactionOffset>))| Redactions {
            rule: rule.clone(),
            count: DecimalCount(*count),
            places: places.clone(),
        };
        let predicate = Receipt {
            receipt_id: position.receipt,
            task_id: state.task_id,
            home_id: position.home,
            seq: DecimalCount(position.number),
            prev: position.prev,
            ledger_head: position.ledger_head,
            recovered: account.recovered || position.late,
            sealed_at: position.at,
            lifecycle: account.lifecycle(),
            request: account.request(),
            risks: state.request.risks.clone(),
            decision: account.decision(),
            // A permit alone enforces nothing: without a process there was no sandbox.
            confinement: ReceiptSandbox {
                confinement: state.confinement().filter(|_| spawned),
                enforced: state.enforced().cloned(),
                sandbox: state.sandbox.as_ref().filter(|_| spawned).and_then(|s| s.summary.clone()),
            },
            outcome,
            execution: account.execution(),
            touched_files: account.touched.clone().unwrap_or_else(|| account.files()),
            redactions: account.redactions.iter().map(redaction).collect(),
            journal: digests.journal.as_ref().map(|(_, journal)| journal.clone()),
        };
        Some(Self { kind: STATEMENT.to_owned(), subject, predicate_type: PREDICATE.to_owned(), predicate })
    }

    /// The bytes that are signed.
    #[must_use]
    pub fn payload(&self) -> String {
        serde_json::to_string(self).expect("statements have string keys")
    }

    #[must_use]
    pub fn subject(&self, name: &str) -> Option<Digest> {
        self.subject.iter().find(|s| s.name == name).map(|s| s.digest.sha256)
    }
}
