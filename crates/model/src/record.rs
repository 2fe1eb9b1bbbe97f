//! Records: decisions of the house and frames of a task, one JSON line each, one numbering per task.
//!
//! A line reads `{"v":1,"seq":…,"at":"…","t_us":…,"kind":"…",…}`; decisions have no `t_us`. Lines are hashed as they
//! stand, so writing is a plain concatenation and nothing is ever re-serialised to check it.

use crate::{
    ApprovalId, Audience, Choice, Confinement, CredentialKind, DenialReason, Digest, EnforcedSandbox, ExitStatus,
    GrantId, HomeId, Limits, Mode, OnSessionEnd, Outcome, PermitId, PrincipalId, Profile, ReceiptId, RegisterEntry,
    Risk, SandboxSummary, SessionId, SignalName, StreamTotals, Text, Timestamp, Tool, UncoveredCommand, Via,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, fmt::Write as _};

/// The version in every line. A reader meets a larger one only in a log written by a newer house.
pub const FORMAT: u32 = 1;

/// One thing that the house decided.
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
        /// What the asker says of itself. Nobody has checked it.
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
        /// The bounds that apply, defaults filled in.
        #[serde(default, skip_serializing_if = "Limits::is_none")]
        limits: Box<Limits>,
        /// Where the streams are published when the task has settled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace: Option<Text>,
        /// What becomes of it when its session ends.
        #[serde(default, skip_serializing_if = "is_kept")]
        on_session_end: OnSessionEnd,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency: Option<Box<Idempotency>>,
    },
    #[serde(rename = "permission.requested")]
    PermissionRequested {
        approval: ApprovalId,
        uncovered: Vec<Text>,
        options: Vec<Choice>,
        /// What each of the uncovered is.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        about: Vec<UncoveredCommand>,
    },
    #[serde(rename = "permission.granted")]
    PermissionGranted {
        permit: PermitId,
        by: DecidedBy,
        scope: Scope,
        confinement: Confinement,
        /// What its sandbox gives beyond that, and why it is not narrower. None for what only reads.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sandbox: Option<Box<SandboxSummary>>,
        /// The grants that the answer left behind.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        saved: Vec<SavedGrant>,
        /// The policy by which it was judged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<Digest>,
    },
    #[serde(rename = "permission.denied")]
    PermissionDenied {
        by: DecidedBy,
        reason: DenialReason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<Text>,
        /// What the person who refused wants the agent to know.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        words: Option<Text>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<Digest>,
    },
    #[serde(rename = "task.queued")]
    Queued {
        waits_for: WaitsFor,
        /// The place in the queue for a slot, from 1, when it was taken.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        position: Option<u64>,
    },
    #[serde(rename = "task.withdrawn")]
    Withdrawn { by: Text },
    /// The last decision of the prologue: the journal goes on at `first_seq`.
    #[serde(rename = "task.launched")]
    Launched { shim_pid: u32, first_seq: u64 },
    /// Whoever asked runs it; the house was only asked, and will be told how it went.
    #[serde(rename = "task.observing")]
    Observing { by: Text },
    #[serde(rename = "process.lost")]
    Lost { known: Text },
    /// The first decision of the epilogue: the exit is visible.
    #[serde(rename = "task.settled")]
    Settled {
        outcome: Outcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        journal_head: Option<Digest>,
        /// Found out from the disk, after a daemon that had ended without a word.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        recovered: bool,
    },
    /// Which files it seems to have changed, as far as that was looked for.
    #[serde(rename = "files.touched")]
    Touched(TouchedFiles),
    /// The receipt is signed and kept.
    #[serde(rename = "receipt.sealed")]
    Sealed(SealedReceipt),
    /// The task's directory is removed; what identifies its bytes stays.
    #[serde(rename = "retention.expired")]
    Expired {
        why: Text,
        bytes: u64,
        streams: StreamTotals,
        /// The house's word that it was the house that removed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<KeySignature>,
    },
    #[serde(rename = "house.state")]
    House {
        state: DaemonState,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Text>,
        /// Which start of the machine this is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        boot: Option<Text>,
    },
    /// One step on the way down.
    #[serde(rename = "shutdown.step")]
    Shutdown(ShutdownStep),
    /// The id of this home: made once, and named by every receipt from here on.
    #[serde(rename = "home.named")]
    HomeNamed { home_id: HomeId },
    /// Receipts are signed with this key from here on.
    #[serde(rename = "key.announced")]
    Key(KeyAnnounced),
    /// About no task: a grant, a session, a credential.
    #[serde(untagged)]
    Entered(RegisterEntry),
}

/// One thing that happened in a task, written by its shim.
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
        /// How far that goes on this kernel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        enforced: Option<EnforcedSandbox>,
        /// The user that it runs as, in a house of several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
    },
    /// Never text: the bytes are stored once, in the output file. `digest` is BLAKE3.
    #[serde(rename = "stream.output")]
    Output { stream: StreamName, offset: u64, len: u64, digest: Digest },
    #[serde(rename = "stream.redacted")]
    Redacted { stream: StreamName, offset: u64, rule: Text, count: u64 },
    /// Bytes from `offset` on that the output limit dropped.
    #[serde(rename = "stream.gap")]
    Gap { stream: StreamName, offset: u64, bytes: u64 },
    /// How much went in, never what. What was echoed is in the output, redacted there.
    #[serde(rename = "stdin.written")]
    StdinWritten { bytes: u64, input: InputKind, by: Text },
    #[serde(rename = "pty.resized")]
    Resized {
        rows: u16,
        cols: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Text>,
    },
    /// The terminal reads lines without showing them, as for a password; or shows them again.
    #[serde(rename = "pty.echo")]
    Echo { on: bool },
    #[serde(rename = "cwd.changed")]
    CwdChanged {
        path: Text,
        /// The program said so in its output (OSC 7), which any program can print. Without it the path comes from the
        /// kernel, or from the shell that Countersign asked.
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
    /// It failed, and what it was held to may be why.
    #[serde(rename = "confinement.met")]
    WallMet { note: Text },
    /// A file that makes programs run later was changed by a task that may write.
    #[serde(rename = "file.write_detected")]
    WriteDetected {
        path: Text,
        change: FileChange,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        escape: bool,
        /// What it held, digested under the house's key, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Digest>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Digest>,
    },
    /// The main process is gone; these descendants keep the task running, as asked.
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

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    Created,
    Modified,
    Deleted,
}

/// What was seen of the files that a task changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TouchedFiles {
    pub observed: FileObservation,
    /// Where was looked; what lies elsewhere is not spoken of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<Text>,
    /// Whether no other file there can have been changed or removed.
    pub complete: bool,
    pub files: Vec<TouchedFile>,
    /// How many more there were than are listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TouchedFile {
    pub path: Text,
    pub change: FileChange,
    /// It makes programs run later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escape: bool,
    /// HMAC-SHA-256 under the house's key: what a small file holds could be guessed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Digest>,
}

/// How it is known which files a task changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileObservation {
    /// The kernel let it change none.
    Confined,
    /// The roots were looked through afterwards.
    Scan,
    /// The house changed the one file itself.
    Exact,
    #[default]
    None,
}

/// A receipt, by what identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SealedReceipt {
    pub receipt: ReceiptId,
    /// Its place among the receipts of the house, from 1.
    pub number: u64,
    /// SHA-256 of the signed statement.
    pub digest: Digest,
    /// The key that signed it.
    pub key: Digest,
}

/// A signature beside what it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeySignature {
    pub key: Digest,
    /// As base64.
    pub signature: String,
}

/// A key of the house, and the word of the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeyAnnounced {
    pub key: Digest,
    /// The public half, as hex.
    pub public: Digest,
    /// The key that speaks for it, and its signature as base64; none for the first, or when that one was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// How one step of an ordered stop went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShutdownStep {
    pub step: StopStep,
    /// Whether it came to its end within its deadline.
    pub done: bool,
    pub took_ms: u64,
    pub deadline_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<Text>,
}

/// The steps of an ordered stop, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopStep {
    /// New requests are turned away.
    Admission,
    /// Conversations that bring requests are closed.
    Intakes,
    /// Tasks are kept or stopped.
    Tasks,
    /// What has settled gets its receipt.
    Receipts,
    /// The ledger is flushed and checkpointed.
    Ledger,
    /// Sockets are closed.
    Surfaces,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// An `Idempotency-Key` and the body that came under it, both as keyed digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Idempotency {
    pub key: Digest,
    pub body: Digest,
}

/// A grant that an answer left behind, as it is labelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SavedGrant {
    pub grant: GrantId,
    pub label: Text,
}

fn is_kept(policy: &OnSessionEnd) -> bool {
    *policy == OnSessionEnd::Keep
}

/// Who or what an answer comes from.
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

/// How an answer came: from a person, or through the agent's own client, which could have made it up.
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

/// In words.
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
                match *principal == PrincipalId::owner() {
                    true => write!(f, "owner ({surface}{how})"),
                    false => write!(f, "{principal} ({surface}{how})"),
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
    /// The answer that has this scope; what the policy lets through is as good as once.
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

    /// The scope of an answer that lets something run.
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
    /// A place among the tasks that may run at once.
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

/// How input came.
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

/// The life of the house.
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

    /// The streams of a task, in the order in which they are shown.
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

/// What a record says.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordContent {
    Decision(Decision),
    Frame(Frame),
    /// A kind that this version does not know. Kept, shown, not understood.
    Unknown(String),
}

/// One line of a log, read.
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
    #[error("the record has version {0}, this program reads up to {FORMAT}: it was written by a newer countersign")]
    Newer(u32),
}

#[derive(Deserialize)]
struct Head<'a> {
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
        let head: Head<'_> = serde_json::from_str(line)?;
        if head.v > FORMAT {
            return Err(RecordError::Newer(head.v));
        }
        let what = RecordContent::read(&head.kind, || serde_json::from_str(line), || serde_json::from_str(line))?;
        Ok(Self { seq: head.seq, at: head.at, t_us: head.t_us, what })
    }

    /// A record from the fields of its line, which come back: those of a kind that this version does not know are
    /// worth keeping.
    pub(crate) fn of_fields(fields: Map<String, Value>) -> Result<(Self, Map<String, Value>), RecordError> {
        let mut fields = Value::Object(fields);
        let Head { v, seq, at, t_us, kind } = Head::deserialize(&fields)?;
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
    /// What a record of this kind says, by whichever of the two readers it needs.
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
