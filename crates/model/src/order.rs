//! Permit and order: nothing runs without a permit for exactly that request.

use crate::{
    Confinement, DecidedBy, Digest, EnvClass, Leftovers, Limits, Mode, OnOutputLimit, Outcome, PathFact, PermitId,
    RedactionRule, SandboxSpec, Scope, StreamName, TaskId, TaskUser, Timestamp,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Permission to run one exact request once. Only the desk issues it (clippy refuses `issue` elsewhere).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Permit {
    pub id: PermitId,
    pub task: TaskId,
    plan_digest: Digest,
    pub by: DecidedBy,
    pub scope: Scope,
    pub confinement: Confinement,
    pub issued_at: Timestamp,
}

impl Permit {
    pub fn issue(
        id: PermitId,
        task: TaskId,
        plan_digest: Digest,
        by: DecidedBy,
        scope: Scope,
        confinement: Confinement,
        issued_at: Timestamp,
    ) -> Self {
        Self { id, task, plan_digest, by, scope, confinement, issued_at }
    }
}

/// A request with every path and program resolved: the content of an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedRequest {
    pub task: TaskId,
    pub plan_digest: Digest,
    pub exec: Exec,
    /// A file operation that the shim does itself, instead of running a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtin: Option<Builtin>,
    pub cwd: PathFact,
    pub env: Vec<(String, String)>,
    pub exposure: Exposure,
    pub mode: Mode,
    pub limits: Limits,
    pub leftovers: Leftovers,
    pub on_output_limit: OnOutputLimit,
    /// Whether standard input is a pipe (in mode `pipes`; a terminal always takes input).
    pub stdin: bool,
    /// Whether the shell reports the directory in which it ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tell_directory: bool,
    pub rows: u16,
    pub cols: u16,
    /// `tasks/<shard>/<id>`, created by the shim.
    pub task_dir: String,
    /// The directory of the shim's control socket.
    pub run_dir: String,
    pub first_seq: u64,
    pub prologue_head: Digest,
    /// The shim obeys only a daemon that sends this secret on the control socket.
    pub secret: Digest,
    /// The key of the redaction placeholders: the same secret gets the same placeholder everywhere in this home.
    pub mask_key: Digest,
    /// The user's redaction rules for the output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redaction: Vec<RedactionRule>,
    /// Secrets that earlier tasks of the session have shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known_secrets: Vec<String>,
    /// The input of the sandbox.
    #[serde(rename = "walls")]
    pub sandbox: SandboxSpec,
    /// The user that it runs as, under the system service; none means the daemon's own user.
    #[serde(rename = "login", default, skip_serializing_if = "Option::is_none")]
    pub user: Option<TaskUser>,
}

/// The program and its arguments, with the identity that the facts found for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exec {
    pub program: PathFact,
    pub argv: Vec<String>,
    pub argv_digest: Digest,
}

/// A file operation that needs no program: one file is read or changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Builtin {
    /// The path as the request names it, and where it leads.
    pub named: String,
    pub resolved: String,
    #[serde(rename = "what")]
    pub work: FileWork,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileWork {
    Read { first_line: Option<u64>, line_count: Option<u64> },
    Write { content: String },
    Edit { old: String, new: String, all: bool },
}

/// The variables that a task gets: names, never values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exposure {
    pub class: EnvClass,
    pub names: Vec<String>,
    pub withheld: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the permit is for another task or another plan")]
pub struct OrderError;

/// Everything that a shim needs. It can only be created with a permit for exactly this request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    permit: Permit,
    #[serde(rename = "what")]
    request: ResolvedRequest,
}

impl Order {
    pub fn new(permit: Permit, request: ResolvedRequest) -> Result<Self, OrderError> {
        if permit.task == request.task && permit.plan_digest == request.plan_digest {
            Ok(Self { permit, request })
        } else {
            Err(OrderError)
        }
    }

    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    pub fn request(&self) -> &ResolvedRequest {
        &self.request
    }
}

/// The end of a journal: what the desk needs to settle its task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEnd {
    pub outcome: Outcome,
    pub head: Digest,
    /// The number of the first decision of the epilogue.
    pub next_seq: u64,
}

/// A whole stream, as `journal.closed` states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamTotal {
    /// The bytes in the file.
    pub bytes: u64,
    /// The bytes that the output limit dropped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    pub sha256: Digest,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Totals by stream.
pub type StreamTotals = BTreeMap<StreamName, StreamTotal>;
