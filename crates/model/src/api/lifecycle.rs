//! The daemon itself: how it is, what it listens on, stopping it, tidying up.

use crate::{CredentialKind, DaemonState, HomeId, Profile, ShutdownStep, TaskId, Text, Timestamp};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

/// How the daemon is. Clients also meet older daemons, so what came later may be absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lifecycle {
    pub state: DaemonState,
    /// Why it is in this state, where there is a reason; else null.
    #[serde(default)]
    pub reason: Option<Text>,
    pub pid: u32,
    /// What the daemon takes the caller for.
    #[serde(default)]
    pub you: CredentialKind,
    pub version: String,
    pub home: PathBuf,
    /// The id of that home; null where it could not be given one.
    #[serde(default)]
    pub home_id: Option<HomeId>,
    /// Whether it serves several users of the machine.
    #[serde(default)]
    pub machine: bool,
    #[serde(default)]
    pub profile: Profile,
    /// Where it listens on loopback; null where it does not.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub tcp: Option<SocketAddr>,
    /// Why only what reads may run, when the configuration cannot be read; else null.
    #[serde(default)]
    pub degraded: Option<String>,
    /// Why nothing is decided, when the ledger cannot be used; else null.
    #[serde(default)]
    pub reading_only: Option<String>,
    /// Why receipts are not sealed, when they are not; else null.
    #[serde(default)]
    pub receipts: Option<Text>,
    /// The steps of the stop that is under way.
    #[serde(default)]
    pub shutdown: Vec<ShutdownStep>,
    #[serde(default)]
    pub started_at: Timestamp,
}

/// The body of `POST /listen`; it may be left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListenBody {
    /// A loopback address and port; without it, 127.0.0.1:7311.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub tcp: Option<SocketAddr>,
}

/// Where the daemon listens now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListenResponse {
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub tcp: SocketAddr,
}

/// The body of `POST /lifecycle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StopBody {
    pub state: StopTarget,
    /// Without it, as the configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<StopTasks>,
}

/// The only state that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopTarget {
    Halted,
}

/// What becomes of running tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopTasks {
    Keep,
    Stop,
}

/// The daemon is on its way down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopResponse {
    pub state: DaemonState,
    pub pid: u32,
}

/// The body of `POST /gc`; it may be left out. What it does not name is as configured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GcBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_days: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_bytes: Option<u64>,
    /// Only say what would be removed.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub dry_run: bool,
}

/// What was removed, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GcReport {
    pub removed: Vec<GcRemoved>,
    pub bytes: u64,
    /// What is left, of finished and of running tasks.
    pub kept_tasks: u64,
    pub kept_bytes: u64,
}

/// A task whose directory was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GcRemoved {
    pub task_id: TaskId,
    pub bytes: u64,
    pub why: Text,
}

/// The body of `POST /ledger`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RebuildBody {
    pub index: IndexAction,
}

/// The only thing that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IndexAction {
    Rebuild,
}

/// The index over the decisions was rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IndexRebuilt {
    pub index: IndexState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IndexState {
    Rebuilt,
}

/// The answer of `GET /readyz`, with status 200 or 503.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Readiness {
    pub ready: bool,
    /// The first check that fails, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
    /// Each check: `ok`, or what is wrong.
    pub checks: BTreeMap<String, String>,
}
