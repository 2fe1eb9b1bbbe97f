//! `/approvals`: questions that wait for a person, and their answers. `/approvals/events` streams
//! [`crate::Approval`]s.

use crate::{Approval, Choice, TaskId};
use serde::{Deserialize, Serialize};

/// Which approvals `GET /approvals` lists: those that wait and have a card, oldest first; or all, newest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalQuery {
    #[serde(skip_serializing_if = "super::is_default")]
    pub all: bool,
    /// The `next` of an earlier page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 500)))]
    pub limit: Option<usize>,
}

/// A page of approvals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalPage {
    pub approvals: Vec<Approval>,
    /// The cursor of the next page; null at the end.
    pub next: Option<TaskId>,
    /// How many wait without a card, until one of their session is answered.
    pub without_card: usize,
}

/// The body of `POST /approvals/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("anyOf" = choices())))]
#[serde(deny_unknown_fields)]
pub struct AnswerBody {
    pub choice: Choice,
    /// What the person wants the agent to know; with `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// The saved grant covers other operands too.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub any_arguments: bool,
}

/// What goes together in an [`AnswerBody`]: words with a denial, other operands with what is saved.
#[cfg(feature = "schema")]
fn choices() -> serde_json::Value {
    let (saves, not): (Vec<Choice>, Vec<Choice>) = Choice::ALL.into_iter().partition(|choice| choice.saves());
    let plain: Vec<Choice> = not.into_iter().filter(|choice| *choice != Choice::Deny).collect();
    let no_words = serde_json::json!({"type": "null"});
    let not_any = serde_json::json!({"const": false});
    serde_json::json!([
        {"properties": {"choice": {"enum": [Choice::Deny]}, "any_arguments": not_any}},
        {"properties": {"choice": {"enum": plain}, "any_arguments": not_any, "words": no_words}},
        {"properties": {"choice": {"enum": saves}, "words": no_words}},
    ])
}
