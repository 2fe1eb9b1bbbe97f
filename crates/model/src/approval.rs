//! An approval: a question waiting for a person. It is a reading of its task's decisions, not a second store.

use crate::{ApprovalId, At, By, Ruling, Status, TaskId, TaskState, Text};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The answers that a card may offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    Once,
    Deny,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Choice::Once => "once",
            Choice::Deny => "deny",
        })
    }
}

impl FromStr for Choice {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "once" => Ok(Choice::Once),
            "deny" => Ok(Choice::Deny),
            other => Err(format!("`{}` is not an answer: use once or deny", crate::Shown::bounded(other, 40))),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    pub id: ApprovalId,
    pub task_id: TaskId,
    pub state: ApprovalState,
    pub asked_at: At,
    pub display: Text,
    pub uncovered: Vec<Text>,
    pub cwd: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rationale: Option<Text>,
    pub risks: Vec<crate::Risk>,
    pub options: Vec<Choice>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ApprovalState {
    Waiting,
    Answered {
        choice: Choice,
        by: By,
        at: At,
    },
    /// The task was withdrawn before anyone answered.
    Withdrawn,
}

impl Approval {
    /// The question that this task asked, if it asked one.
    pub fn of(task: &TaskState) -> Option<Self> {
        let state = match (&task.ruling, task.status) {
            (Some(Ruling::Granted { by, at, .. }), _) => {
                ApprovalState::Answered { choice: Choice::Once, by: by.clone(), at: *at }
            }
            (Some(Ruling::Denied { by, at, .. }), _) => {
                ApprovalState::Answered { choice: Choice::Deny, by: by.clone(), at: *at }
            }
            (None, Status::Queued) => ApprovalState::Waiting,
            (None, _) => ApprovalState::Withdrawn,
        };
        Some(Self {
            id: task.approval_id?,
            task_id: task.task_id,
            state,
            asked_at: task.asked_at,
            display: task.display.clone(),
            uncovered: task.uncovered.clone(),
            cwd: task.cwd.clone(),
            title: task.title.clone(),
            rationale: task.rationale.clone(),
            risks: task.risks.clone(),
            options: task.options.clone(),
        })
    }
}
