//! Permit and order: nothing runs without leave for exactly that.

use crate::{
    Confinement, DecidedBy, Digest, EnvClass, Leftovers, Limits, Mode, OnOutputLimit, Outcome, PathFact, PermitId,
    RedactionRule, SandboxSpec, Scope, StreamName, TaskId, TaskUser, Timestamp,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Leave to run one exact request once. Issued by the desk alone (clippy refuses `issue` elsewhere).
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

/// A request with everything looked up: what the order is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedRequest {
    pub task: TaskId,
    pub plan_digest: Digest,
    pub exec: Exec,
    /// What the supervisor does by itself instead.
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
    /// Whether the shell is to tell where it ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tell_directory: bool,
    pub rows: u16,
    pub cols: u16,
    /// `tasks/<shard>/<id>`, made by the shim.
    pub task_dir: String,
    /// Where the shim binds its control socket.
    pub run_dir: String,
    pub first_seq: u64,
    pub prologue_head: Digest,
    /// What a daemon must say to be obeyed on the control socket.
    pub secret: Digest,
    /// Keys the placeholders of redaction, so that the same secret looks the same in all that this house shows.
    pub mask_key: Digest,
    /// The user's rules for what is taken out of the output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redaction: Vec<RedactionRule>,
    /// What confinement is built from.
    #[serde(rename = "walls")]
    pub sandbox: SandboxSpec,
    /// Whom it runs as, in a house of several users; none is whoever the house itself is.
    #[serde(rename = "login", default, skip_serializing_if = "Option::is_none")]
    pub user: Option<TaskUser>,
}

/// The program and its arguments, with the identity that the facts gave it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exec {
    pub program: PathFact,
    pub argv: Vec<String>,
    pub argv_digest: Digest,
}

/// Something that needs no program: one file is read or changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Builtin {
    /// As the asker named it, and where that leads.
    pub named: String,
    pub resolved: String,
    pub what: FileWork,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileWork {
    Read { first_line: Option<u64>, line_count: Option<u64> },
    Write { content: String },
    Edit { old: String, new: String, all: bool },
}

/// Which variables a task was given: names, never values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exposure {
    pub class: EnvClass,
    pub names: Vec<String>,
    pub withheld: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the permit is for another task or another plan")]
pub struct OrderError;

/// All that a shim needs. It cannot be made without a permit for exactly this.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    permit: Permit,
    what: ResolvedRequest,
}

impl Order {
    pub fn under(permit: Permit, what: ResolvedRequest) -> Result<Self, OrderError> {
        match permit.task == what.task && permit.plan_digest == what.plan_digest {
            true => Ok(Self { permit, what }),
            false => Err(OrderError),
        }
    }

    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    pub fn what(&self) -> &ResolvedRequest {
        &self.what
    }
}

/// How a journal ended: what the desk needs to settle its task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEnd {
    pub outcome: Outcome,
    pub head: Digest,
    /// The number that the first decision of the epilogue gets.
    pub next_seq: u64,
}

/// A whole stream, as `journal.closed` accounts for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamTotal {
    /// The bytes that were kept: those of the file.
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
