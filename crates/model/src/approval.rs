//! An approval: a question to a person about one task. It is derived from the task's decisions and not stored
//! separately.

use crate::{
    ApprovalId, Confinement, DecidedBy, PrincipalId, Ruling, SandboxSummary, SavedGrant, SessionId, Status, TaskId,
    TaskState, Text, Timestamp, Tool,
};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The answers that a card may offer, in the order in which it offers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    Once,
    Session,
    Here,
    Repository,
    Anywhere,
    Deny,
}

impl Choice {
    pub const ALL: [Self; 6] = [Self::Once, Self::Session, Self::Here, Self::Repository, Self::Anywhere, Self::Deny];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Here => "here",
            Self::Repository => "repository",
            Self::Anywhere => "anywhere",
            Self::Deny => "deny",
        }
    }

    /// The text on a card.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Once => "Once",
            Self::Session => "This chat",
            Self::Here => "Always here",
            Self::Repository => "This repository",
            Self::Anywhere => "Always anywhere",
            Self::Deny => "Deny",
        }
    }

    /// The key that a person presses for it.
    #[must_use]
    pub fn key(self) -> char {
        match self {
            Self::Once => 'o',
            Self::Session => 's',
            Self::Here => 'h',
            Self::Repository => 'r',
            Self::Anywhere => 'a',
            Self::Deny => 'd',
        }
    }

    /// Whether it saves a grant.
    #[must_use]
    pub fn saves(self) -> bool {
        !matches!(self, Self::Once | Self::Deny)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Choice {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|c| c.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("`{}` is not a choice: use one of {names}", crate::DisplaySafe::bounded(text, 40))
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Approval {
    pub id: ApprovalId,
    pub task_id: TaskId,
    pub state: ApprovalState,
    pub asked_at: Timestamp,
    pub principal: PrincipalId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    pub tool: Tool,
    pub display: Text,
    /// The texts of the commands that no grant covers.
    pub uncovered: Vec<Text>,
    /// Verb, directories and risks of each of them.
    #[serde(default)]
    pub about: Vec<UncoveredCommand>,
    pub cwd: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rationale: Option<Text>,
    pub risks: Vec<crate::Risk>,
    pub options: Vec<Choice>,
    /// Whether the process that asked still waits, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asker: Option<AskerPresence>,
    /// The rest of the card; only in the answer for a single approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<Card>,
}

/// One command that a person is asked about: its verb, its directories and its risks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UncoveredCommand {
    pub verb: Text,
    pub directories: Vec<Text>,
    pub risks: Vec<crate::Risk>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AskerPresence {
    Waiting,
    /// The approval can still be answered; the caller can read the result by the task id.
    Gone,
}

/// What a person should know before answering. The daemon builds it whenever the approval is read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Card {
    /// Who asks, for people to read.
    pub asked_by: Text,
    /// Each risk with its reason.
    pub risks: Vec<Text>,
    /// Why no grant can be saved, if none can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_saved: Option<Text>,
    /// For each choice that saves a grant: the grant, and examples of commands that it would and would not cover. The
    /// gate has judged every example.
    pub offers: Vec<GrantOffer>,
    pub scripts: Vec<Script>,
    /// The variables that the request sets, with secrets redacted.
    #[serde(default)]
    pub variables: Vec<Text>,
    /// Whether the command works in the session's own directory.
    #[serde(default)]
    pub in_session_folder: bool,
    /// The sandbox that the command would get, what it may do beyond that confinement, and why.
    #[serde(default)]
    pub confinement: Confinement,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxSummary>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantOffer {
    pub choice: Choice,
    pub saves: Vec<Text>,
    pub covers: Vec<Text>,
    pub does_not_cover: Vec<Text>,
    /// The grant covers only the same operands, unless the answer says that any arguments are fine.
    #[serde(default)]
    pub exact: bool,
}

/// A script that would run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Script {
    pub path: Text,
    pub sha256: crate::Digest,
    /// The beginning of the file.
    pub content: Text,
    /// How many bytes of the file are not in `content`.
    pub omitted: u64,
    /// The script changed after the request. An approval would not run it.
    #[serde(default)]
    pub changed: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ApprovalState {
    Waiting,
    Answered {
        choice: Choice,
        by: DecidedBy,
        at: Timestamp,
        /// The grants that the answer saved.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        saved: Vec<SavedGrant>,
    },
    /// The task was withdrawn before anyone answered.
    Withdrawn,
}

impl Approval {
    /// The approval of this task, if the task asked for one.
    pub fn from_task(task: &TaskState) -> Option<Self> {
        let (request, question) = (&task.request, task.question.as_ref()?);
        let state = match (&task.ruling, task.status) {
            (Some(Ruling::Granted { by, at, scope, saved }), _) => {
                ApprovalState::Answered { choice: scope.choice(), by: by.clone(), at: *at, saved: saved.clone() }
            }
            (Some(Ruling::Denied { by, at, .. }), _) => {
                ApprovalState::Answered { choice: Choice::Deny, by: by.clone(), at: *at, saved: Vec::new() }
            }
            (None, Status::Queued) => ApprovalState::Waiting,
            (None, _) => ApprovalState::Withdrawn,
        };
        Some(Self {
            id: question.approval_id,
            task_id: task.task_id,
            state,
            asked_at: request.asked_at,
            principal: request.principal,
            session_id: request.session_id,
            tool: request.tool,
            display: request.display.clone(),
            uncovered: question.uncovered.clone(),
            about: question.about.clone(),
            cwd: request.cwd.clone(),
            title: request.title.clone(),
            rationale: request.rationale.clone(),
            risks: request.risks.clone(),
            options: question.options.clone(),
            asker: None,
            card: None,
        })
    }

    /// The result in one line; none while it waits.
    #[must_use]
    pub fn resolution(&self) -> Option<String> {
        match &self.state {
            ApprovalState::Waiting => None,
            ApprovalState::Withdrawn => Some("Withdrawn".to_owned()),
            ApprovalState::Answered { choice: Choice::Deny, by: DecidedBy::Rule(why), .. } => {
                Some(format!("Not run: {}", why.as_str().replace('_', " ")))
            }
            ApprovalState::Answered { choice: Choice::Deny, .. } => Some("Denied".to_owned()),
            ApprovalState::Answered { by: DecidedBy::Grants(_), .. } => {
                Some("Approved: a saved grant covers it".to_owned())
            }
            ApprovalState::Answered { saved, choice, .. } if !saved.is_empty() => {
                let labels: Vec<&str> = saved.iter().map(|s| s.label.as_str()).collect();
                let how = if *choice == Choice::Session { "Saved for this chat" } else { "Saved" };
                Some(format!("{how}: {}", merge_labels(&labels)))
            }
            ApprovalState::Answered { .. } if self.tool == Tool::SetWorkingDirectory => {
                Some("Approved for this chat".to_owned())
            }
            ApprovalState::Answered { .. } => Some("Approved (no save)".to_owned()),
        }
    }
}

/// Joins labels of the same place: `a in /x`, `b in /x` become `a, b in /x`.
fn merge_labels(labels: &[&str]) -> String {
    let parts = |label: &str| match label.rfind(" in /") {
        Some(at) => (label[..at].to_owned(), label[at..].to_owned()),
        None => {
            let verb = label.strip_suffix(" anywhere").unwrap_or(label);
            (verb.to_owned(), " anywhere".to_owned())
        }
    };
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (verb, place) in labels.iter().map(|l| parts(l)) {
        match groups.iter_mut().find(|(p, _)| *p == place) {
            Some((_, verbs)) if !verbs.contains(&verb) => verbs.push(verb),
            Some(_) => {}
            None => groups.push((place, vec![verb])),
        }
    }
    groups.iter().map(|(place, verbs)| format!("{}{place}", verbs.join(", "))).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_of_one_place_are_said_together() {
        assert_eq!(
            merge_labels(&["git add in /a", "git commit in /a", "curl anywhere"]),
            "git add, git commit in /a; curl anywhere"
        );
    }
}
