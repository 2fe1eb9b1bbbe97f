//! The one way to say no across a wire: a stable code, what happened, and what to do about it.

use crate::TaskId;
use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $exit:literal;)*) => {
        /// Why the house did not do what it was asked: closed, and each with its HTTP status and exit code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum RefusalCode {
            $($(#[$doc])* #[serde(rename = $text)] $name),*
        }

        impl RefusalCode {
            pub const ALL: &[RefusalCode] = &[$(RefusalCode::$name),*];

            pub fn as_str(self) -> &'static str {
                match self { $(RefusalCode::$name => $text),* }
            }

            pub fn http_status(self) -> u16 {
                match self { $(RefusalCode::$name => $status),* }
            }

            pub fn exit_code(self) -> i32 {
                match self { $(RefusalCode::$name => $exit),* }
            }
        }
    };
}

codes! {
    BadRequest = "bad_request", 400, 2;
    /// This house cannot do that (yet, or on this machine).
    Unsupported = "unsupported", 400, 2;
    NotFound = "not_found", 404, 1;
    MethodNotAllowed = "method_not_allowed", 405, 1;
    AmbiguousId = "ambiguous_id", 409, 2;
    AlreadyAnswered = "already_answered", 409, 1;
    TaskOver = "task_over", 409, 1;
    TaskStarted = "task_started", 409, 1;
    /// The task has no terminal, or no open standard input.
    WrongMode = "wrong_mode", 409, 2;
    /// The program does not read what it was sent.
    InputFull = "input_full", 409, 1;
    /// Removed under retention.
    Expired = "expired", 410, 1;
    OptionNotOffered = "option_not_offered", 422, 2;
    IdempotencyConflict = "idempotency_conflict", 422, 1;
    /// A placeholder of redaction where the secret itself would have to stand.
    PlaceholderInText = "placeholder_in_text", 422, 2;
    /// A request did not arrive in time.
    RequestTimeout = "request_timeout", 408, 1;
    TooLarge = "too_large", 413, 2;
    RangeNotSatisfiable = "range_not_satisfiable", 416, 1;
    /// All of a file system, a disk, the machine.
    SystemDestructive = "system_destructive", 403, 77;
    /// Countersign's own files.
    ProtectedPath = "protected_path", 403, 77;
    /// An operator's rule, or an addition to the hard denies.
    DeniedByRule = "denied_by_rule", 403, 77;
    /// Nobody asks for a stranger.
    NotForAudience = "not_for_this_audience", 403, 77;
    /// Stopping or killing countersign itself, or answering for a person.
    SelfDestructive = "self_destructive", 403, 77;
    ApprovalRequiredUnattended = "approval_required_unattended", 403, 77;
    Locked = "locked", 403, 77;
    DeniedByPerson = "denied_by_person", 403, 77;
    PathsChanged = "paths_changed", 403, 77;
    /// What let it run was taken back before it did.
    GrantRevoked = "grant_revoked", 403, 77;
    /// It is to run confined, and this kernel cannot do that.
    CannotConfine = "cannot_confine", 403, 77;
    /// The configuration cannot be read.
    PolicyUnavailable = "policy_unavailable", 403, 77;
    /// The session has ended.
    SessionOver = "session_over", 409, 1;
    /// Who arrived like this may not do that.
    MissingScope = "missing_scope", 403, 77;
    /// No token, or one that is not good.
    Unauthorized = "unauthorized", 401, 77;
    TooMany = "too_many", 429, 125;
    /// The peer is not the owner of this house.
    Forbidden = "forbidden", 403, 77;
    ProfileWider = "profile_wider_than_allowed", 403, 77;
    Draining = "draining", 503, 125;
    LedgerUnavailable = "ledger_unavailable", 503, 125;
    /// The daemon has no descriptors left.
    OutOfDescriptors = "out_of_descriptors", 503, 125;
    /// The task's supervisor did not answer.
    ShimUnreachable = "shim_unreachable", 503, 125;
    /// The task has no receipt yet.
    NotSealed = "not_sealed", 409, 1;
    /// Receipts cannot be made out: the key is missing, or is another one.
    SealerUnavailable = "sealer_unavailable", 503, 125;
    ArtifactTampered = "artifact_tampered", 500, 125;
    Internal = "internal", 500, 125;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{message}")]
pub struct Refusal {
    pub code: RefusalCode,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Refusal {
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A refusal, and the task that it is about, if it is about one. Operations answer it; clients get it back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{refusal}")]
pub struct TaskRefusal {
    pub refusal: Refusal,
    pub task: Option<TaskId>,
}

impl TaskRefusal {
    #[must_use]
    pub fn of_task(mut self, task: TaskId) -> Self {
        self.task = Some(task);
        self
    }
}

impl From<Refusal> for TaskRefusal {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, task: None }
    }
}
