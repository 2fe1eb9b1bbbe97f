//! `/approvals`: approvals that wait for a person, and the answers to them. `/approvals/events` streams
//! [`crate::Approval`]s.

use crate::{Approval, Choice, TaskId};
use serde::{Deserialize, Serialize};

/// Which approvals `GET /approvals` lists: those that wait and have a card, oldest first. With `all`, every approval,
/// newest first.
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
    /// How many approvals wait without a card. They get one when another approval of their session is answered.
    pub without_card: usize,
}

/// The body of `POST /approvals/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("anyOf" = answer_forms())))]
#[serde(deny_unknown_fields)]
pub struct AnswerBody {
    pub choice: Choice,
    /// A message from the person to the agent. Allowed only with `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// The saved grant also covers other operands.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub any_arguments: bool,
}

/// Which fields of an [`AnswerBody`] go together: `words` with a denial, `any_arguments` with a choice that saves a
/// grant.
#[cfg(feature = "schema")]
fn answer_forms() -> serde_json::Value {
    let (saves, no_save): (Vec<Choice>, Vec<Choice>) = Choice::ALL.into_iter().partition(|choice| choice.saves());
    let plain: Vec<Choice> = no_save.into_iter().filter(|choice| *choice != Choice::Deny).collect();
    let words_absent = serde_json::json!({"type": "null"});
    let not_any_arguments = serde_json::json!({"const": false});
    serde_json::json!([
        {"properties": {"choice": {"enum": [Choice::Deny]}, "any_arguments": not_any_arguments}},
        {"properties": {"choice": {"enum": plain}, "any_arguments": not_any_arguments, "words": words_absent}},
        {"properties": {"choice": {"enum": saves}, "words": words_absent}},
    ])
}
