//! The types of the domain, their serialised form, and the one fold from decisions and frames to the state of a task.
//!
//! Pure: no files, no clock, no threads. Callers pass in the time and random numbers.

pub mod api;
mod approval;
mod card;
pub mod cast;
mod clean;
mod confinement;
mod denial;
mod digest;
mod display_safe;
mod fold;
mod glob;
mod grant;
mod id;
mod keys;
mod order;
mod outcome;
pub mod places;
mod plan;
mod process_kind;
mod receipt;
mod record;
mod redaction;
mod refusal;
mod register;
mod render;
mod request;
mod requester;
#[cfg(feature = "schema")]
mod schema;
pub mod secret_names;
mod session;
mod task_address;
mod task_json;
mod task_state;
mod task_user;
mod time;
pub mod tools;
mod verdict;
mod via;
pub mod view;

pub use approval::{Approval, ApprovalState, AskerPresence, Card, Choice, GrantOffer, Script, UncoveredCommand};
pub use card::{CardView, ChoiceView, CommandView, ScriptView};
pub use clean::{Clean, Text};
pub use confinement::{
    Confinement, EnforcedSandbox, GrantedSandbox, Kernel, Network, Sandbox, SandboxReason, SandboxSpec, SandboxSummary,
};
pub use denial::DenialReason;
pub use digest::{Digest, HashChain, HomeKey, file_digest};

pub use display_safe::{DisplaySafe, quoted};
pub use glob::glob_matches;
pub use grant::{Grant, GrantSandbox, Operands};
pub use id::{
    ApprovalId, GrantId, HomeId, IdError, IdMint, PermitId, PrincipalId, ReceiptId, SessionId, TaskId, TokenId,
};
pub use keys::{KeyMode, KeyPress};
pub use order::{
    Builtin, Exec, Exposure, FileWork, JournalEnd, Order, OrderError, Permit, ResolvedRequest, StreamTotal,
    StreamTotals,
};
pub use outcome::{ExitStatus, LimitReached, Outcome, Status, TimeLimit};
pub use plan::{
    Assignment, Directory, FactQuery, Facts, InputSource, Occurrence, Opaque, PathFact, PathKind, PathScope,
    PathTarget, PathTargetKind, Plan, ReadOnlyProof, Redirect, Risk, RiskNote, Rule, Word, WordValue,
};
pub use process_kind::ProcessKind;
pub use receipt::{
    AnswerKind, DecimalCount, Execution, ExecutionKind, LedgerHead, PREDICATE, Receipt, ReceiptPosition,
    ReceiptSubject, STATEMENT, SealedJournal, Statement, TaskAccount, TaskFileDigests,
};
pub use record::{
    Channel, DaemonState, DecidedBy, Decision, EnvClass, FORMAT, FileChange, FileObservation, Frame, Idempotency,
    InputKind, KeyAnnounced, KeySignature, KilledWhy, Record, RecordContent, RecordError, SavedGrant, Scope,
    SealedReceipt, ShutdownStep, StopStep, StreamName, TouchedFile, TouchedFiles, WaitsFor,
};
pub use redaction::RedactionRule;
pub use refusal::{Refusal, RefusalCode, TaskRefusal};
pub use register::{Grants, Register, RegisterEntry, Roster};
pub use render::{Encoding, MAX_COMPLETE_BYTES, RenderedOutput};
pub use request::{
    Audience, Command, CredentialKind, Leftovers, Limits, Mode, OnOutputLimit, OnSessionEnd, Profile, Request,
    SignalName, Tool, is_base_variable,
};
pub use requester::Requester;
pub use session::{CredentialScope, Process, Session, Token};
pub use task_address::{AddressError, TaskAddress};
pub use task_state::{
    Artifact, Launch, MainProcess, PostRunFindings, ProcessEnd, Question, QueueWait, RequestSummary, Ruling, Runner,
    Settlement, StreamState, TaskIo, TaskSandbox, TaskState, Terminal, Usage,
};
pub use task_user::TaskUser;
pub use time::Timestamp;
pub use verdict::{Assessment, Coverage, Verdict, VerdictKind};
pub use via::Via;

/// The environment variable that marks every process of a task.
pub const MARKER: &str = "COUNTERSIGN_TASK";
