//! The nouns of the house, their serialised form, and the one fold from decisions and frames to state.
//!
//! Pure: no files, no clock, no threads. Whoever needs the time or a random number passes it in.

pub mod api;
mod approval;
mod card;
pub mod cast;
mod clean;
mod confinement;
mod denial;
mod digest;
mod fold;
mod glob;
mod grant;
mod id;
mod keys;
mod login;
mod order;
mod outcome;
pub mod places;
mod plan;
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
mod shown;
mod starter;
mod task_address;
mod task_json;
mod task_state;
mod time;
pub mod tools;
mod verdict;
mod via;
pub mod view;

pub use approval::{About, Approval, ApprovalState, Asker, Card, Choice, Offer, Script};
pub use card::{CardView, ChoiceView, CommandView, ScriptView};
pub use clean::{Clean, Text};
pub use confinement::{
    Confinement, Enforced, GrantedSandbox, Kernel, Network, Sandbox, SandboxReason, SandboxSummary, Walls,
};
pub use denial::DenialReason;
pub use digest::{Chain, Digest, HouseKey, file_digest};
/// The variable that marks every process of a task.
pub const MARKER: &str = "COUNTERSIGN_TASK";

pub use glob::glob_matches;
pub use grant::{Grant, GrantSandbox, Operands};
pub use id::{
    ApprovalId, GrantId, HomeId, IdError, IdMint, PermitId, PrincipalId, ReceiptId, SessionId, TaskId, TokenId,
};
pub use keys::{Key, KeyMode};
pub use login::Login;
pub use order::{
    Builtin, Closing, Exec, Exposure, FileWork, Order, OrderError, Permit, Resolved, StreamTotal, StreamTotals,
};
pub use outcome::{ExitStatus, Limited, Outcome, Status, TimedOut};
pub use plan::{
    Assignment, Directory, Facts, Found, FoundKind, Input, Needs, Occurrence, Opaque, PathFact, PathKind, PathScope,
    Plan, Reading, Redirect, Risk, RiskNote, Rule, Value, Word,
};
pub use receipt::{
    Account, Answered, Count, Execution, ExecutionKind, Kept, LedgerHead, PREDICATE, Receipt, STATEMENT, Seal,
    SealedJournal, Statement, Subject,
};
pub use record::{
    By, Channel, Decision, EnvClass, FORMAT, FileChange, Frame, HouseState, Idempotency, InputKind, KeyAnnounced,
    KilledWhy, Observed, Record, RecordError, Saved, Scope, SealedReceipt, ShutdownStep, SignedWord, StopStep,
    StreamName, TouchedFile, TouchedFiles, WaitsFor, What,
};
pub use redaction::RedactionRule;
pub use refusal::{Code, Refusal, Refused};
pub use register::{Entered, Grants, Register, Roster};
pub use render::{Encoding, INLINE_WHOLE, Rendered};
pub use request::{
    Audience, Command, CredentialKind, Leftovers, Limits, Mode, OnOutputLimit, OnSessionEnd, Profile, Request,
    SignalName, Tool, is_base_variable,
};
pub use requester::Requester;
pub use session::{CredentialScope, Process, Session, Token};
pub use shown::{Shown, quoted};
pub use starter::Starter;
pub use task_address::{AddressError, TaskAddress};
pub use task_state::{
    Aftermath, Artifact, End, Launch, MainProcess, Question, RequestSummary, Ruling, Runner, Settlement, StreamState,
    TaskIo, TaskSandbox, TaskState, Terminal, Usage, Wait,
};
pub use time::At;
pub use verdict::{Assessment, Coverage, Verdict, VerdictKind};
pub use via::Via;
