//! The decisions of tasks that have no receipt yet, in memory as they were committed. A short task is read several
//! times before it is sealed, and the pages that a query needs change with every commit.

use crate::ledger::LedgerEntry;
use countersign_model::{Decision, TaskId};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// How many tasks are kept: more than a round of the sealer has. Those of others are read from the file.
const MAX_TASKS: usize = 512;

/// The lines of each task's decisions, with their numbers, from the first one on.
#[derive(Default)]
pub(crate) struct RecentDecisions(Mutex<BTreeMap<TaskId, Vec<(u64, String)>>>);

impl RecentDecisions {
    /// Adds decisions that are durable.
    pub(crate) fn add<'a>(&self, entries: impl Iterator<Item = &'a LedgerEntry>) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in entries {
            let Some(task) = entry.task else { continue };
            match entry.decision {
                Decision::Planned { .. } => drop(tasks.insert(task, Vec::new())),
                Decision::Sealed(_) | Decision::Expired { .. } => drop(tasks.remove(&task)),
                _ => {}
            }
            if let Some(lines) = tasks.get_mut(&task) {
                lines.push((entry.seq, entry.line.clone()));
            }
        }
        // Ids grow with time: the first task is the oldest.
        while tasks.len() > MAX_TASKS {
            tasks.pop_first();
        }
    }

    /// The lines of a task from number `from` on; none if the task is not kept.
    pub(crate) fn lines(&self, task: TaskId, from: u64) -> Option<Vec<(u64, String)>> {
        let tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(tasks.get(&task)?.iter().filter(|(seq, _)| *seq >= from).cloned().collect())
    }
}
