//! The closing lines of `csn down`.

use super::text::count;

/// What the daemon had open when it was told to stop.
#[derive(Clone, Copy)]
pub(crate) struct OpenWork {
    pub(crate) running: u64,
    pub(crate) queued: u64,
    pub(crate) approvals: u64,
}

/// Tells that the daemon has stopped and what happens to the open work. `work` is none where it could not be counted.
pub(crate) fn stopped_line(work: Option<OpenWork>, tasks_stopped: bool) -> String {
    let Some(OpenWork { running, queued, approvals }) = work else {
        let tasks = if tasks_stopped { "Running tasks were stopped" } else { "Running tasks keep running" };
        return format!("Stopped. {tasks}; pending approvals and queued tasks stay.");
    };
    let verb = |n: u64, singular: &'static str, plural: &'static str| if n == 1 { singular } else { plural };
    let mut parts = Vec::new();
    if running > 0 {
        let tasks = count(running, "task");
        parts.push(if tasks_stopped {
            format!("{tasks} {} stopped", verb(running, "was", "were"))
        } else {
            format!("{tasks} {} running", verb(running, "keeps", "keep"))
        });
    }
    if approvals > 0 {
        parts.push(format!("{} {} pending", count(approvals, "approval"), verb(approvals, "stays", "stay")));
    }
    if queued > 0 {
        parts.push(format!("{} {} in the queue", count(queued, "task"), verb(queued, "stays", "stay")));
    }
    if parts.is_empty() {
        return "Stopped. No task was running and no approval was pending.".to_owned();
    }
    format!("Stopped. {}.", parts.join("; "))
}
