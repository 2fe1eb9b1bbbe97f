//! The daemon itself: its state, the addresses it listens on, stopping it, and removing old tasks.

use crate::{CredentialKind, DaemonState, HomeId, Profile, ShutdownStep, TaskId, Text, Timestamp};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

/// The state of the daemon. Clients also talk to older daemons, so fields that were added later may be absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lifecycle {
    pub state: DaemonState,
    /// Why the daemon is in this state, if there is a reason; otherwise null.
    #[serde(default)]
    pub reason: Option<Text>,
    pub pid: u32,
    /// The kind of credential that the daemon recognised for the caller.
    #[serde(default)]
    pub you: CredentialKind,
    pub version: String,
    pub home: PathBuf,
    /// The id of that home; null if it has none.
    #[serde(default)]
    pub home_id: Option<HomeId>,
    /// Whether it is the system service, which serves several users of this machine.
    #[serde(default)]
    pub machine: bool,
    #[serde(default)]
    pub profile: Profile,
    /// The loopback address it listens on; null if it listens on the socket only.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub tcp: Option<SocketAddr>,
    /// Why only reading commands may run: the configuration cannot be read. Otherwise null.
    #[serde(default)]
    pub degraded: Option<String>,
    /// Why the daemon decides nothing: the ledger cannot be used. Otherwise null.
    #[serde(default)]
    pub reading_only: Option<String>,
    /// Why the daemon seals no receipts; null while it seals them.
    #[serde(default)]
    pub receipts: Option<Text>,
    /// The steps of the stop in progress.
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
    /// A loopback address and port; 127.0.0.1:7311 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub tcp: Option<SocketAddr>,
}

/// The address that the daemon listens on now.
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
    /// Without this field, the configuration decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<StopTasks>,
}

/// The only state that a caller can request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopTarget {
    Halted,
}

/// Whether running tasks keep running or are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopTasks {
    Keep,
    Stop,
}

/// The daemon is stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopResponse {
    pub state: DaemonState,
    pub pid: u32,
}

/// The body of `POST /gc`; it may be left out. A missing limit comes from the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GcBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_days: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_bytes: Option<u64>,
    /// Only report what would be removed.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub dry_run: bool,
}

/// The tasks whose files were removed, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GcReport {
    pub removed: Vec<GcRemoved>,
    pub bytes: u64,
    /// What remains, for finished and running tasks together.
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

/// The only action that a caller can request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IndexAction {
    Rebuild,
}

/// The daemon rebuilt the index over the decisions.
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
    /// The first check that fails, with the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
    /// Each check: `ok`, or the reason why it fails.
    pub checks: BTreeMap<String, String>,
}
