//! A task as a row of a list.

use super::text::{brief, cut};
use countersign_model::{Status, TaskState, Timestamp, WaitsFor};
use std::io::{self, Write};

pub(crate) fn line(out: &mut impl Write, task: &TaskState, now: Timestamp) -> io::Result<()> {
    let outcome = match (task.outcome(), task.approval_id()) {
        (Some(outcome), _) => outcome.to_string(),
        (None, _) if task.waits_for() == Some(WaitsFor::Slot) => match task.position() {
            Some(position) => format!("{position}. in line"),
            None => "in line".to_owned(),
        },
        (None, Some(approval)) if task.status == Status::Queued => approval.to_string(),
        _ => String::new(),
    };
    let name = task.request.title.as_ref().unwrap_or(&task.request.display);
    let age = brief(now.since(task.request.asked_at));
    let (status, outcome) = (task.status.to_string(), cut(&outcome, 22));
    writeln!(out, "{}  {status:<9}  {age:>6}  {outcome:<22}  {}", task.task_id, cut(name.as_str(), 60))
}
