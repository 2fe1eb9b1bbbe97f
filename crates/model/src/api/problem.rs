//! Every error is an `application/problem+json` body (RFC 9457) with a stable code and, where possible, a hint.

use crate::{Refusal, RefusalCode, TaskId, TaskRefusal};
use serde::{Deserialize, Serialize};

/// The body of every error answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    pub code: RefusalCode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The refused task, or the task that the refusal is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
}

impl From<TaskRefusal> for Problem {
    fn from(TaskRefusal { refusal: Refusal { code, message, hint }, task }: TaskRefusal) -> Self {
        Self {
            kind: format!("urn:countersign:problem:{}", code.as_str()),
            title: code.as_str().replace('_', " "),
            status: code.http_status(),
            detail: message,
            code,
            hint,
            task_id: task,
        }
    }
}

impl From<Problem> for TaskRefusal {
    fn from(problem: Problem) -> Self {
        let refusal = Refusal { code: problem.code, message: problem.detail, hint: problem.hint };
        Self { refusal, task: problem.task_id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_survives_the_wire_unchanged() {
        let refused =
            TaskRefusal::from(Refusal::new(RefusalCode::NotFound, "there is no such task").hint("see csn ps"));
        let sent = serde_json::to_string(&Problem::from(refused.clone())).unwrap();
        let read: Problem = serde_json::from_str(&sent).unwrap();
        assert_eq!(TaskRefusal::from(read), refused);
    }
}
