//! How a task ended, in the lines that `run` and `attach` print after its output.

use super::text::brief;
use countersign_model::{Digest, DisplaySafe, FileChange, Outcome, TaskId, Text};
use std::{fmt::Write as _, time::Duration};

/// The end of a task, with everything that the closing lines need.
pub(crate) struct OutcomeLine {
    pub(crate) outcome: Outcome,
    pub(crate) took: Option<Duration>,
    /// The message that the person who denied the task left for the agent.
    pub(crate) words: Option<Text>,
    /// Notes of the sandbox, and the escape files that the task changed.
    pub(crate) notes: Vec<String>,
    /// The daemon died after it allowed the task and before the task started: nothing ran, and nothing will.
    pub(crate) never_began: bool,
}

/// Whether a settlement records that the daemon died before the task could start. Then the task has no journal, and
/// recovery has taken the journal's name, so that no supervisor can start one.
pub(crate) fn never_began(outcome: &Outcome, journal: Option<Digest>, recovered: bool) -> bool {
    recovered && journal.is_none() && matches!(outcome, Outcome::Failed { .. })
}

/// Warns about an escape file that a task changed: a file that makes other programs run commands later.
pub(crate) fn escape_warning(path: &Text, change: FileChange) -> String {
    let change = match change {
        FileChange::Created => "created",
        FileChange::Modified => "changed",
        FileChange::Deleted => return format!("the task deleted {path}, a file that made other programs run commands"),
    };
    format!("the task {change} {path}, which makes other programs run commands later: review it before you continue")
}

/// The lines that follow the output of a task.
pub(crate) fn closing_lines(task: TaskId, ended: &OutcomeLine) -> String {
    let took = ended.took.map(|t| format!(", {}", brief(t))).unwrap_or_default();
    let outcome = ended.outcome.to_string();
    let mut lines = format!("csn: {task} {}{took}", DisplaySafe::new(&outcome));
    for note in &ended.notes {
        let _ = write!(lines, "\n     {}", DisplaySafe::new(note));
    }
    if let Some(words) = &ended.words {
        let _ = write!(lines, "\n     \"{}\"", DisplaySafe::new(words.as_str()));
    }
    if let Some(next_step) = next_step(&ended.outcome) {
        let _ = write!(lines, "\n     {next_step} {task}");
    }
    lines
}

/// The command that tells more about an outcome, where its own line does not tell enough.
fn next_step(outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Failed { .. } | Outcome::Lost { .. } | Outcome::Denied { .. } => Some("for details: csn show"),
        Outcome::TimedOut { .. } | Outcome::Limited { .. } => Some("to read its output: csn logs"),
        Outcome::Exited { .. } | Outcome::Signalled { .. } | Outcome::Cancelled { .. } | Outcome::Withdrawn { .. } => {
            None
        }
    }
}
