//! Records: decisions of the daemon and frames of a task, one JSON line each, numbered together per task.
//!
//! A line reads `{"v":1,"seq":…,"at":"…","t_us":…,"kind":"…",…}`; decisions have no `t_us`. Lines are hashed exactly as
//! written, so verification never has to serialise anything again.

use crate::{
    ApprovalId, Audience, Choice, Confinement, CredentialKind, DenialReason, Digest, EnforcedSandbox, ExitStatus,
    GrantId, HomeId, Limits, Mode, OnSessionEnd, Outcome, PermitId, PrincipalId, Profile, ReceiptId, RegisterEntry,
    Risk, SandboxSummary, SessionId, SignalName, StreamTotals, Text, Timestamp, Tool, UncoveredCommand, Via,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, fmt::Write as _};

/// The format version in every line. Only a newer Countersign writes a larger one.
pub const FORMAT: u32 = 1;

/// One decision of the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind")]
pub enum Decision {
    #[serde(rename = "command.planned")]
    Planned {
        plan_digest: Digest,
        display: Text,
        verb: Text,
        cwd: Text,
        mode: Mode,
        tool: Tool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<Text>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rationale: Option<Text>,
        /// Labels that the caller chose. Nobody has checked them.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        labels: BTreeMap<String, Text>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
        principal: PrincipalId,
        credential: CredentialKind,
        risks: Vec<Risk>,
        audience: Audience,
        profile: Profile,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        background: bool,
        /// The limits that apply, with the defaults filled in.
        #[serde(default, skip_serializing_if = "Limits::is_none")]
        limits: Box<Limits>,
        /// The directory in which the streams are published after the task has settled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace: Option<Text>,
        /// What happens to the task when its session ends.
        #[serde(default, skip_serializing_if = "is_keep")]
        on_session_end: OnSessionEnd,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency: Option<Box<Idempotency>>,
    },
    #[serde(rename = "permission.requested")]
    PermissionRequested {
        approval: ApprovalId,
        uncovered: Vec<Text>,
        options: Vec<Choice>,
        /// Verb, directories and risks of each uncovered command.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        about: Vec<UncoveredCommand>,
    },
    #[serde(rename = "permission.granted")]
    PermissionGranted {
        permit: PermitId,
        by: DecidedBy,
        scope: Scope,
        confinement: Confinement,
        /// What the sandbox allows beyond the confinement, and why it is not narrower. None for commands that only
        /// read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sandbox: Option<Box<SandboxSummary>>,
        /// The grants that the answer saved.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        saved: Vec<SavedGrant>,
        /// The digest of the policy that judged it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<Digest>,
    },
    #[serde(rename = "permission.denied")]
    PermissionDenied {
        by: DecidedBy,
        reason: DenialReason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<Text>,
        /// A message from the person to the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        words: Option<Text>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<Digest>,
    },
    #[serde(rename = "task.queued")]
    Queued {
        waits_for: WaitsFor,
        /// The place in the queue for a slot, from 1, when the task entered it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        position: Option<u64>,
    },
    #[serde(rename = "task.withdrawn")]
    Withdrawn { by: Text },
    /// The last decision of the prologue. The journal continues at `first_seq`.
    #[serde(rename = "task.launched")]
    Launched { shim_pid: u32, first_seq: u64 },
    /// The agent runs the command itself (witness mode). The daemon only decides, and records the reported result.
    #[serde(rename = "task.observing")]
    Observing { by: Text },
    #[serde(rename = "process.lost")]
    Lost { known: Text },
    /// The first decision of the epilogue. From here on the outcome is visible.
    #[serde(rename = "task.settled")]
    Settled {
        outcome: Outcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        journal_head: Option<Digest>,
        /// Determined from the disk after the daemon had ended unexpectedly.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        recovered: bool,
    },
    /// The files that the task seems to have changed, as far as they were observed.
    #[serde(rename = "files.touched")]
    Touched(TouchedFiles),
    /// The receipt is signed and stored.
    #[serde(rename = "receipt.sealed")]
    Sealed(SealedReceipt),
    /// The task's directory was removed; its digests remain.
    #[serde(rename = "retention.expired")]
    Expired {
        why: Text,
        bytes: u64,
        streams: StreamTotals,
        /// The home's key confirms that the daemon removed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<KeySignature>,
    },
    #[serde(rename = "house.state")]
    DaemonStateChanged {
        state: DaemonState,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Text>,
        /// Identifies the boot of the machine.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        boot: Option<Text>,
    },
    /// One step of stopping.
    #[serde(rename = "shutdown.step")]
    Shutdown(ShutdownStep),
    /// The id of this home. It is created once, and every later receipt names it.
    #[serde(rename = "home.named")]
    HomeNamed { home_id: HomeId },
    /// Receipts are signed with this key from now on.
    #[serde(rename = "key.announced")]
    Key(KeyAnnounced),
    /// About a grant, a session or a credential instead of a task.
    #[serde(untagged)]
    Entered(RegisterEntry),
}

/// One event in a task, written by its shim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind")]
pub enum Frame {
    #[serde(rename = "env.exposed")]
    EnvExposed { class: EnvClass, names: Vec<Text>, withheld: Vec<Text> },
    #[serde(rename = "process.spawned")]
    Spawned {
        pid: u32,
        pgid: u32,
        sid: u32,
        argv_digest: Digest,
        executable: Text,
        dev: u64,
        inode: u64,
        confinement: Confinement,
        /// What this kernel enforced of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        enforced: Option<EnforcedSandbox>,
        /// The user that it runs as, under the system service.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
    },
    /// No text: the bytes are stored once, in the output file. `digest` is BLAKE3.
    #[serde(rename = "stream.output")]
    Output { stream: StreamName, offset: u64, len: u64, digest: Digest },
    #[serde(rename = "stream.redacted")]
    Redacted { stream: StreamName, offset: u64, rule: Text, count: u64 },
    /// Bytes from `offset` on that the output limit dropped.
    #[serde(rename = "stream.gap")]
    Gap { stream: StreamName, offset: u64, bytes: u64 },
    /// The amount of input, never its content. Echoed input is part of the output and redacted there.
    #[serde(rename = "stdin.written")]
    StdinWritten { bytes: u64, input: InputKind, by: Text },
    #[serde(rename = "pty.resized")]
    Resized {
        rows: u16,
        cols: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Text>,
    },
    /// The terminal stopped showing typed text, as for a password, or shows it again.
    #[serde(rename = "pty.echo")]
    Echo { on: bool },
    #[serde(rename = "cwd.changed")]
    CwdChanged {
        path: Text,
        /// The program claimed it in its output (OSC 7), which any program can print. Otherwise the path comes from the
        /// kernel, or from the shell on Countersign's request.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        claimed: bool,
    },
    #[serde(rename = "process.signalled")]
    Signalled { signal: SignalName, by: Text },
    #[serde(rename = "cancel.requested")]
    CancelRequested {
        by: Text,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Text>,
    },
    #[serde(rename = "limit.reached")]
    LimitReached { limit: Text, value: u64, action: Text },
    #[serde(rename = "process.killed")]
    Killed { signal: SignalName, why: KilledWhy, survivors: Vec<u32> },
    #[serde(rename = "process.exited")]
    Exited {
        #[serde(flatten)]
        status: ExitStatus,
        duration_us: u64,
        cpu_us: u64,
        max_rss_kb: u64,
    },
    /// The command failed, and the sandbox may be the reason.
    #[serde(rename = "confinement.met")]
    ConfinementMet { note: Text },
    /// A task that may write changed a file that makes programs run later.
    #[serde(rename = "file.write_detected")]
    WriteDetected {
        path: Text,
        change: FileChange,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        escape: bool,
        /// The digest of the previous content with the home's key, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Digest>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Digest>,
    },
    /// The main process has ended; these descendants keep the task running, as requested.
    #[serde(rename = "leftovers.kept")]
    Kept { processes: Vec<u32> },
    /// Bytes too large for a frame, in a file beside the journal.
    #[serde(rename = "artifact.stored")]
    ArtifactStored { artifact: Text, what: Text, bytes: u64, sha256: Digest },
    #[serde(rename = "pty.cleanup_started")]
    CleanupStarted { processes: Vec<u32> },
    #[serde(rename = "pty.cleanup_completed")]
    CleanupCompleted { ended: u64, survivors: Vec<u32> },
    /// The last frame of every journal.
    #[serde(rename = "journal.closed")]
    Closed { outcome: Outcome, frames: u64, streams: StreamTotals },
}

/// How a file changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    Created,
    Modified,
    Deleted,
}

/// What was observed about the files that a task changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TouchedFiles {
    pub observed: FileObservation,
    /// The directories that were scanned. Nothing is stated about other places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<Text>,
    /// Whether no other file in these directories can have been changed or removed.
    pub complete: bool,
    pub files: Vec<TouchedFile>,
    /// How many more files there were than listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TouchedFile {
    pub path: Text,
    pub change: FileChange,
    /// The file makes programs run later (an escape file).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escape: bool,
    /// HMAC-SHA-256 with the home's key, because the content of a small file could be guessed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Digest>,
}

/// How the changed files of a task are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileObservation {
    /// The sandbox allowed no changes.
    Confined,
    /// The roots were scanned after the run.
    Scan,
    /// Countersign changed the single file itself.
    Exact,
    #[default]
    None,
}

/// The identity of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SealedReceipt {
    pub receipt: ReceiptId,
    /// Its number in the receipt chain of the home, from 1.
    pub number: u64,
    /// SHA-256 of the signed statement.
    pub digest: Digest,
    /// The key that signed it.
    pub key: Digest,
}

/// A signature, stored beside the data it covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeySignature {
    pub key: Digest,
    /// As base64.
    pub signature: String,
}

/// A signing key of the home, confirmed by the previous key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeyAnnounced {
    pub key: Digest,
    /// The public key, as hex.
    pub public: Digest,
    /// The key that signed the announcement, and its signature as base64; none for the first key, or if the previous
    /// key was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// The result of one step of an ordered stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShutdownStep {
    pub step: StopStep,
    /// Whether the step finished within its deadline.
    pub done: bool,
    pub took_ms: u64,
    pub deadline_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<Text>,
}

/// The steps of an ordered stop, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopStep {
    /// The daemon refuses new requests.
    Admission,
    /// Connections that bring requests are closed.
    Intakes,
    /// Running tasks are kept or stopped.
    Tasks,
    /// Settled tasks get their receipts.
    Receipts,
    /// The ledger is flushed and checkpointed.
    Ledger,
    /// Sockets are closed.
    Surfaces,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// An `Idempotency-Key` and the request body that came with it, both as keyed digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Idempotency {
    pub key: Digest,
    pub body: Digest,
}

/// A grant that an answer saved, with its label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SavedGrant {
    pub grant: GrantId,
    pub label: Text,
}

fn is_keep(policy: &OnSessionEnd) -> bool {
    *policy == OnSessionEnd::Keep
}

/// Who or what decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    Rule(Text),
    Grants(Vec<GrantId>),
    Person {
        principal: PrincipalId,
        surface: Via,
        #[serde(default, skip_serializing_if = "Channel::is_person")]
        channel: Channel,
    },
}

/// How an answer arrived: from a person directly, or through the agent's own client, which could have made it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    #[default]
    Person,
    InBand,
}

impl Channel {
    fn is_person(&self) -> bool {
        *self == Self::Person
    }
}

/// For people to read.
impl std::fmt::Display for DecidedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DecidedBy::Rule(rule) => write!(f, "rule {rule}"),
            DecidedBy::Grants(all) => {
                let ids: Vec<String> = all.iter().map(GrantId::to_string).collect();
                write!(f, "grant {}", ids.join(", "))
            }
            DecidedBy::Person { principal, surface, channel } => {
                let how = match channel {
                    Channel::Person => "",
                    Channel::InBand => ", in-band",
                };
                if *principal == PrincipalId::owner() {
                    write!(f, "owner ({surface}{how})")
                } else {
                    write!(f, "{principal} ({surface}{how})")
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Once,
    Session,
    Here,
    Repository,
    Anywhere,
    Policy,
}

impl Scope {
    /// The answer with this scope. A permission by policy counts as once.
    #[must_use]
    pub fn choice(self) -> Choice {
        match self {
            Self::Once | Self::Policy => Choice::Once,
            Self::Session => Choice::Session,
            Self::Here => Choice::Here,
            Self::Repository => Choice::Repository,
            Self::Anywhere => Choice::Anywhere,
        }
    }

    /// The scope of an answer that allows something; none for a denial.
    #[must_use]
    pub fn from_choice(choice: Choice) -> Option<Self> {
        match choice {
            Choice::Once => Some(Self::Once),
            Choice::Session => Some(Self::Session),
            Choice::Here => Some(Self::Here),
            Choice::Repository => Some(Self::Repository),
            Choice::Anywhere => Some(Self::Anywhere),
            Choice::Deny => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    Approval,
    /// A free slot among the tasks that run at the same time.
    Slot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EnvClass {
    Base,
    Named,
    Inherited,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StreamName {
    Stdout,
    Stderr,
    Pty,
}

/// The form of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    Text,
    Keys,
    Paste,
    Eof,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KilledWhy {
    Cancel,
    Timeout,
    Limit,
    Shutdown,
    SessionEnd,
}

/// The states of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DaemonState {
    Boot,
    Recovering,
    Ready,
    Running,
    Draining,
    Cleanup,
    Halted,
}

impl StreamName {
    pub fn as_str(self) -> &'static str {
        match self {
            StreamName::Stdout => "stdout",
            StreamName::Stderr => "stderr",
            StreamName::Pty => "pty",
        }
    }

    /// The streams of a task in this mode, in display order.
    pub fn for_mode(mode: Mode) -> &'static [StreamName] {
        match mode {
            Mode::Pipes => &[StreamName::Stdout, StreamName::Stderr],
            Mode::Pty => &[StreamName::Pty],
        }
    }

    /// The name of the output file in the task's directory.
    pub fn file(self) -> &'static str {
        match self {
            StreamName::Stdout => "stdout.log",
            StreamName::Stderr => "stderr.log",
            StreamName::Pty => "pty.log",
        }
    }
}

impl std::fmt::Display for StreamName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The content of a record.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordContent {
    Decision(Decision),
    Frame(Frame),
    /// A kind that this version does not know. It is kept and shown, but not interpreted.
    Unknown(String),
}

/// One line of a log, parsed.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub seq: u64,
    pub at: Timestamp,
    pub t_us: Option<u64>,
    pub what: RecordContent,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("not a record: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error(
        "the record has format {0}, and this program reads formats up to {FORMAT}: a newer version of Countersign wrote it"
    )]
    Newer(u32),
}

#[derive(Deserialize)]
struct RecordHead<'a> {
    v: u32,
    seq: u64,
    at: Timestamp,
    #[serde(default)]
    t_us: Option<u64>,
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
}

impl Record {
    /// The line of a decision, without its newline.
    pub fn decision_line(seq: u64, at: Timestamp, decision: &Decision) -> String {
        line(seq, at, None, &serde_json::to_string(decision).expect("decisions have string keys"))
    }

    /// The line of a frame, without its newline.
    pub fn frame_line(seq: u64, at: Timestamp, t_us: u64, frame: &Frame) -> String {
        line(seq, at, Some(t_us), &serde_json::to_string(frame).expect("frames have string keys"))
    }

    pub fn parse(line: &str) -> Result<Self, RecordError> {
        let head: RecordHead<'_> = serde_json::from_str(line)?;
        if head.v > FORMAT {
            return Err(RecordError::Newer(head.v));
        }
        let what = RecordContent::read(&head.kind, || serde_json::from_str(line), || serde_json::from_str(line))?;
        Ok(Self { seq: head.seq, at: head.at, t_us: head.t_us, what })
    }

    /// Parses a record from the fields of its line. It also returns the remaining fields, because those of an unknown
    /// kind must be kept.
    pub(crate) fn from_fields(fields: Map<String, Value>) -> Result<(Self, Map<String, Value>), RecordError> {
        let mut fields = Value::Object(fields);
        let RecordHead { v, seq, at, t_us, kind } = RecordHead::deserialize(&fields)?;
        if v > FORMAT {
            return Err(RecordError::Newer(v));
        }
        let what = RecordContent::read(&kind, || Decision::deserialize(&fields), || Frame::deserialize(&fields))?;
        let fields = fields.as_object_mut().map(|fields| {
            fields.retain(|name, _| !matches!(name.as_str(), "v" | "seq" | "at" | "t_us"));
            std::mem::take(fields)
        });
        Ok((Self { seq, at, t_us, what }, fields.unwrap_or_default()))
    }
}

impl RecordContent {
    /// Reads the content of a record of this kind with the matching reader.
    fn read(
        kind: &str,
        decision: impl FnOnce() -> serde_json::Result<Decision>,
        frame: impl FnOnce() -> serde_json::Result<Frame>,
    ) -> serde_json::Result<Self> {
        Ok(match kind {
            "command.planned"
            | "permission.requested"
            | "permission.granted"
            | "permission.denied"
            | "task.queued"
            | "task.withdrawn"
            | "task.launched"
            | "task.observing"
            | "process.lost"
            | "task.settled"
            | "files.touched"
            | "receipt.sealed"
            | "shutdown.step"
            | "home.named"
            | "key.announced"
            | "retention.expired"
            | "grant.saved"
            | "grant.revoked"
            | "grant.used"
            | "session.opened"
            | "session.moved"
            | "session.ended"
            | "principal.added"
            | "token.created"
            | "token.revoked"
            | "token.used"
            | "house.state" => RecordContent::Decision(decision()?),
            "env.exposed"
            | "process.spawned"
            | "stream.output"
            | "stream.redacted"
            | "stream.gap"
            | "stdin.written"
            | "pty.resized"
            | "pty.echo"
            | "cwd.changed"
            | "artifact.stored"
            | "process.signalled"
            | "cancel.requested"
            | "limit.reached"
            | "process.killed"
            | "process.exited"
            | "leftovers.kept"
            | "confinement.met"
            | "file.write_detected"
            | "pty.cleanup_started"
            | "pty.cleanup_completed"
            | "journal.closed" => RecordContent::Frame(frame()?),
            other => RecordContent::Unknown(other.to_owned()),
        })
    }
}

fn line(seq: u64, at: Timestamp, t_us: Option<u64>, body: &str) -> String {
    let mut out = String::with_capacity(body.len() + 96);
    let _ = write!(out, r#"{{"v":{FORMAT},"seq":{seq},"at":"{at}","#);
    if let Some(t_us) = t_us {
        let _ = write!(out, r#""t_us":{t_us},"#);
    }
    out.push_str(&body[1..]);
    out
}
