//! A refusal: a stable code, what happened, and what to do about it. Every surface reports errors in this form.

use crate::TaskId;
use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $exit:literal;)*) => {
        /// Why a request was refused. The list is closed; every code has an HTTP status and an exit code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum RefusalCode {
            $($(#[$doc])* #[serde(rename = $text)] $name),*
        }

        impl RefusalCode {
            pub const ALL: &[RefusalCode] = &[$(RefusalCode::$name),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(RefusalCode::$name => $text,)*
                }
            }

            pub fn http_status(self) -> u16 {
                match self {
                    $(RefusalCode::$name => $status,)*
                }
            }

            pub fn exit_code(self) -> i32 {
                match self {
                    $(RefusalCode::$name => $exit,)*
                }
            }
        }
    };
}

codes! {
    BadRequest = "bad_request", 400, 2;
    /// This version of Countersign, or this machine, cannot do that.
    Unsupported = "unsupported", 400, 2;
    NotFound = "not_found", 404, 1;
    MethodNotAllowed = "method_not_allowed", 405, 1;
    AmbiguousId = "ambiguous_id", 409, 2;
    AlreadyAnswered = "already_answered", 409, 1;
    TaskOver = "task_over", 409, 1;
    TaskStarted = "task_started", 409, 1;
    /// The task has no terminal, or no open standard input.
    WrongMode = "wrong_mode", 409, 2;
    /// The program does not read its input.
    InputFull = "input_full", 409, 1;
    /// Removed by retention.
    Expired = "expired", 410, 1;
    OptionNotOffered = "option_not_offered", 422, 2;
    IdempotencyConflict = "idempotency_conflict", 422, 1;
    /// The text holds a redaction placeholder where the secret itself would be needed.
    PlaceholderInText = "placeholder_in_text", 422, 2;
    /// The request did not arrive in time.
    RequestTimeout = "request_timeout", 408, 1;
    TooLarge = "too_large", 413, 2;
    RangeNotSatisfiable = "range_not_satisfiable", 416, 1;
    /// It would destroy a file system, a disk or the machine.
    SystemDestructive = "system_destructive", 403, 77;
    /// It would touch Countersign's own files.
    ProtectedPath = "protected_path", 403, 77;
    /// An operator's rule denies it, or an entry in the list of additional denies.
    DeniedByRule = "denied_by_rule", 403, 77;
    /// The audience of the session does not allow it.
    NotForAudience = "not_for_this_audience", 403, 77;
    /// A task tried to stop Countersign or to act for a person.
    SelfDestructive = "self_destructive", 403, 77;
    ApprovalRequiredUnattended = "approval_required_unattended", 403, 77;
    Locked = "locked", 403, 77;
    DeniedByPerson = "denied_by_person", 403, 77;
    PathsChanged = "paths_changed", 403, 77;
    /// The grant that covered it was revoked before it started.
    GrantRevoked = "grant_revoked", 403, 77;
    /// The sandbox that it needs cannot be enforced.
    CannotConfine = "cannot_confine", 403, 77;
    /// The configuration cannot be read.
    PolicyUnavailable = "policy_unavailable", 403, 77;
    /// The session has ended.
    SessionOver = "session_over", 409, 1;
    /// The credential does not have the scope for it.
    MissingScope = "missing_scope", 403, 77;
    /// The token is missing or not valid.
    Unauthorized = "unauthorized", 401, 77;
    TooMany = "too_many", 429, 125;
    /// The calling process does not belong to the owner of this home.
    Forbidden = "forbidden", 403, 77;
    ProfileWider = "profile_wider_than_allowed", 403, 77;
    Draining = "draining", 503, 125;
    LedgerUnavailable = "ledger_unavailable", 503, 125;
    /// The daemon has no file descriptors left.
    OutOfDescriptors = "out_of_descriptors", 503, 125;
    /// The task's shim did not answer.
    ShimUnreachable = "shim_unreachable", 503, 125;
    /// The task has no receipt yet.
    NotSealed = "not_sealed", 409, 1;
    /// Receipts cannot be signed: the key is missing, or does not match the ledger.
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
