//! How a task ended, in the lines that close its output.

use super::text::brief;
use crate::say;
use countersign_model::{Digest, DisplaySafe, FileChange, Outcome, TaskId, Text};
use std::time::Duration;

pub(crate) struct OutcomeLine {
    pub(crate) outcome: Outcome,
    pub(crate) took: Option<Duration>,
    pub(crate) words: Option<Text>,
    /// What its confinement has to say.
    pub(crate) notes: Vec<String>,
    /// The daemon died between its leave to run and its beginning: nothing of it ran, and nothing will.
    pub(crate) never_began: bool,
}

/// Whether a settlement says that the daemon died before the task could begin: there is no journal, and its name has
/// been taken, so that no supervisor can begin one.
pub(crate) fn never_began(outcome: &Outcome, journal: Option<Digest>, recovered: bool) -> bool {
    recovered && journal.is_none() && matches!(outcome, Outcome::Failed { .. })
}

/// A file that makes programs run later was changed by a task that was let write.
pub(crate) fn escaped(path: &Text, change: FileChange) -> String {
    let what = match change {
        FileChange::Created => "made",
        FileChange::Modified => "changed",
        FileChange::Deleted => "removed",
    };
    format!("it {what} {path}, which makes programs run later: look at it before you go on")
}

pub(crate) fn closing(task: TaskId, ended: &OutcomeLine) {
    let took = ended.took.map(|t| format!(", {}", brief(t))).unwrap_or_default();
    let outcome = ended.outcome.to_string();
    say(&format!("csn: {task} {}{took}", DisplaySafe::new(&outcome)));
    for note in &ended.notes {
        say(&format!("     {}", DisplaySafe::new(note)));
    }
    if let Some(words) = &ended.words {
        say(&format!("     \"{}\"", DisplaySafe::new(words.as_str())));
    }
}
