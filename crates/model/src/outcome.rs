//! How a task ended. A command that fails has an outcome; it is not an error of Countersign.

use crate::{DenialReason, SignalName, Text};
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Queued,
    Running,
    Exited,
    Cancelled,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    Exited {
        code: i32,
    },
    Signalled {
        signal: i32,
        core: bool,
    },
    TimedOut {
        limit: TimeLimit,
    },
    Limited {
        limit: LimitReached,
    },
    Cancelled {
        by: Text,
        reason: Option<Text>,
    },
    Withdrawn {
        by: Text,
    },
    Denied {
        reason: DenialReason,
    },
    /// Never started. `code` is the exit code that a shell would use: 126, 127, or else 125.
    Failed {
        error: Text,
        code: i32,
    },
    /// It is unknown how the task ended.
    Lost {
        why: Text,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TimeLimit {
    Wall,
    Idle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LimitReached {
    Output,
    Frames,
    Disk,
    Memory,
    Processes,
    /// The limit of its TMPDIR.
    Temporary,
}

/// How the kernel reports the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum ExitStatus {
    Code { code: i32 },
    Signal { signal: i32, core: bool },
}

impl From<ExitStatus> for Outcome {
    fn from(status: ExitStatus) -> Self {
        match status {
            ExitStatus::Code { code } => Outcome::Exited { code },
            ExitStatus::Signal { signal, core } => Outcome::Signalled { signal, core },
        }
    }
}

impl Outcome {
    pub fn status(&self) -> Status {
        match self {
            Outcome::Exited { .. } | Outcome::Signalled { .. } => Status::Exited,
            Outcome::Cancelled { .. } | Outcome::Withdrawn { .. } => Status::Cancelled,
            Outcome::TimedOut { .. }
            | Outcome::Limited { .. }
            | Outcome::Denied { .. }
            | Outcome::Failed { .. }
            | Outcome::Lost { .. } => Status::Failed,
        }
    }

    /// The exit code of `csn run` and `csn wait`.
    pub fn exit_code(&self) -> i32 {
        match self {
            Outcome::Exited { code } => *code,
            Outcome::Signalled { signal, .. } => 128 + signal,
            Outcome::TimedOut { .. } | Outcome::Limited { .. } => 124,
            Outcome::Cancelled { .. } | Outcome::Withdrawn { .. } => 130,
            Outcome::Denied { .. } => 77,
            Outcome::Failed { code, .. } => *code,
            Outcome::Lost { .. } => 125,
        }
    }
}

/// For people, in a list or at the end of a run.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Exited { code } => write!(f, "exited {code}"),
            Outcome::Signalled { signal, core } => {
                match SignalName::ALL.iter().find(|s| s.number() == *signal) {
                    Some(name) => write!(f, "killed by SIG{name}")?,
                    None => write!(f, "killed by signal {signal}")?,
                }
                f.write_str(if *core { ", core dumped" } else { "" })
            }
            Outcome::TimedOut { limit: TimeLimit::Wall } => f.write_str("timed out (time limit)"),
            Outcome::TimedOut { limit: TimeLimit::Idle } => f.write_str("timed out (no output)"),
            Outcome::Limited { limit: LimitReached::Output } => f.write_str("stopped: the output limit was reached"),
            Outcome::Limited { limit: LimitReached::Frames } => f.write_str("stopped: the frame limit was reached"),
            Outcome::Limited { limit: LimitReached::Disk } => f.write_str("stopped: the disk is full"),
            Outcome::Limited { limit: LimitReached::Memory } => f.write_str("stopped: the memory limit was reached"),
            Outcome::Limited { limit: LimitReached::Processes } => {
                f.write_str("stopped: the limit of processes was reached")
            }
            Outcome::Limited { limit: LimitReached::Temporary } => {
                f.write_str("stopped: the size limit of its TMPDIR was reached")
            }
            Outcome::Cancelled { reason: None, .. } => f.write_str("cancelled"),
            Outcome::Cancelled { reason: Some(reason), .. } => write!(f, "cancelled: {reason}"),
            Outcome::Withdrawn { .. } => f.write_str("withdrawn before it ran"),
            Outcome::Denied { reason } => write!(f, "denied: {reason}"),
            Outcome::Failed { error, .. } => write!(f, "could not start: {error}"),
            Outcome::Lost { why } => write!(f, "lost: {why}"),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Queued => "queued",
            Status::Running => "running",
            Status::Exited => "exited",
            Status::Cancelled => "cancelled",
            Status::Failed => "failed",
        })
    }
}
