//! Secrets that the tasks of a session have shown. Later tasks of the session redact them from their first byte on. They
//! are kept in memory alone.

use countersign_model::{SessionId, TaskId};
use std::{
    collections::{HashMap, VecDeque},
    sync::Mutex,
};

/// The most secrets of one session, and the most sessions; the oldest are forgotten.
const MAX_SECRETS: usize = 64;
const MAX_SESSIONS: usize = 256;

#[derive(Default)]
pub(crate) struct LearnedSecrets(Mutex<SecretsBySession>);

#[derive(Default)]
struct SecretsBySession {
    /// The sessions of running tasks.
    tasks: HashMap<TaskId, SessionId>,
    /// In the order in which they were last told.
    sessions: VecDeque<(SessionId, VecDeque<String>)>,
}

impl LearnedSecrets {
    /// A task of a session starts. Returns what its session knows.
    pub(crate) fn start(&self, task: TaskId, session: SessionId) -> Vec<String> {
        let mut learned = crate::lock(&self.0);
        learned.tasks.insert(task, session);
        let known = learned.sessions.iter().find(|(of, _)| *of == session);
        known.map(|(_, secrets)| secrets.iter().cloned().collect()).unwrap_or_default()
    }

    /// A task has shown secrets.
    pub(crate) fn learn(&self, task: TaskId, secrets: Vec<String>) {
        let mut learned = crate::lock(&self.0);
        let Some(session) = learned.tasks.get(&task).copied() else { return };
        let at = learned.sessions.iter().position(|(of, _)| *of == session);
        let (_, mut known) = at.and_then(|at| learned.sessions.remove(at)).unwrap_or((session, VecDeque::new()));
        for secret in secrets {
            if !known.contains(&secret) {
                known.push_back(secret);
            }
        }
        let surplus = known.len().saturating_sub(MAX_SECRETS);
        known.drain(..surplus);
        learned.sessions.push_back((session, known));
        let surplus = learned.sessions.len().saturating_sub(MAX_SESSIONS);
        learned.sessions.drain(..surplus);
    }

    /// A task is over.
    pub(crate) fn end(&self, task: TaskId) {
        crate::lock(&self.0).tasks.remove(&task);
    }
}
