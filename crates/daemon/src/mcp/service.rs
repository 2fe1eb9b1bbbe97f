//! What the daemon offers to a model, independent of the protocol.

use super::Connections;
use crate::{
    caller::{Caller, Visibility},
    lock,
    ops::Ops,
};
use countersign_model::{Choice, Refusal, RefusalCode, SessionId, TaskId, TaskRefusal, tools::ToolSpec};
use serde_json::{Map, Value, json};
use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, Mutex},
};

/// An MCP service in the daemon's own terms: the protocol knows nothing about tasks, and the service nothing about the
/// protocol.
pub(crate) trait McpService: Send + Sync + 'static {
    /// The tools, always in the same order.
    fn tools(&self) -> impl Iterator<Item = &'static ToolSpec> + Send;
    fn call(&self, call: ToolCall, client: &impl ClientChannel) -> impl Future<Output = CallOutcome> + Send;
    /// Reads a resource by its address, see [`super::TEMPLATES`].
    fn read(&self, uri: &str, caller: Option<Caller>) -> impl Future<Output = Result<ResourceBytes, Refusal>> + Send;
}

/// One use of a tool.
pub(crate) struct ToolCall {
    pub(crate) name: String,
    pub(crate) args: Map<String, Value>,
    /// The caller, if the connection does not name it.
    pub(crate) caller: Option<Caller>,
    /// What the client reports about itself and this call.
    pub(crate) labels: Vec<(&'static str, String)>,
    /// The answer to an earlier elicitation, if this call returns with one.
    pub(crate) retry: Option<RetryAnswer>,
}

/// The answer of a client that calls again with it.
pub(crate) struct RetryAnswer {
    pub(crate) state: String,
    pub(crate) choice: Option<Choice>,
}

/// Talks to the client while it waits.
pub(crate) trait ClientChannel: Send + Sync {
    fn wants_progress(&self) -> bool;
    /// Reports progress; the number only grows.
    fn progress(&self, done: f64, message: String) -> impl Future<Output = ()> + Send;
    fn elicitation_support(&self) -> ElicitationSupport;
    /// Whether the connection keeps state between calls.
    fn keeps_state(&self) -> bool;
    /// Asks the person at the client; none if nobody answered.
    fn ask(&self, question: &Elicitation) -> impl Future<Output = Option<Choice>> + Send;
    /// Returns when the client does not wait any more.
    fn wait_until_gone(&self) -> impl Future<Output = ()> + Send;
}

/// Whether a client can ask its person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElicitationSupport {
    No,
    /// While the call waits.
    Now,
    /// By calling again with the answer.
    Again,
}

/// A question for the person at the client, as a flat form.
#[derive(Debug, Clone)]
pub(crate) struct Elicitation {
    pub(crate) message: String,
    pub(crate) choices: Vec<Choice>,
}

/// The outcome of a call.
pub(crate) enum CallOutcome {
    Done(ToolResult),
    /// The client must ask its person, and call again with the answer and this state.
    Ask {
        question: Elicitation,
        state: String,
    },
    /// There is no such tool.
    Unknown,
}

/// The model sees only `structured`; clients hide the rest.
pub(crate) struct ToolResult {
    pub(crate) structured: Value,
    pub(crate) failed: bool,
    pub(crate) links: Vec<ResourceLink>,
}

pub(crate) struct ResourceLink {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// Bytes of a resource.
pub(crate) struct ResourceBytes {
    pub(crate) text: Option<String>,
    /// Base64, if the bytes are not UTF-8.
    pub(crate) blob: Option<String>,
    /// Its position in the whole.
    pub(crate) position: Value,
}

/// The operations of the daemon, as tools.
pub(crate) struct DaemonTools {
    pub(super) ops: Arc<Ops>,
    /// The state of MCP connections.
    pub(super) connections: Arc<Connections>,
    /// The caller of this connection, if it has one.
    connected: Option<Caller>,
    /// Whether the client may answer for the person who uses it.
    answers_for_person: bool,
    /// The session that was opened for a connection without one.
    opened_session: Mutex<Option<SessionId>>,
    /// The tasks that this connection requested. Only their approvals may be answered through it.
    requested_tasks: Mutex<VecDeque<TaskId>>,
}

/// How many tasks of one connection are remembered.
const MAX_REQUESTED_TASKS: usize = 1024;

impl DaemonTools {
    pub(crate) fn new(
        ops: Arc<Ops>,
        connections: Arc<Connections>,
        connected: Option<Caller>,
        answers_for_person: bool,
    ) -> Self {
        Self {
            ops,
            connections,
            connected,
            answers_for_person,
            opened_session: Mutex::default(),
            requested_tasks: Mutex::default(),
        }
    }

    /// Remembers a task as requested here.
    pub(super) fn remember_task(&self, task: TaskId) {
        let mut asked = lock(&self.requested_tasks);
        asked.push_back(task);
        if asked.len() > MAX_REQUESTED_TASKS {
            asked.pop_front();
        }
    }

    /// Whether the approval of a task may be put to this client.
    pub(super) fn may_ask_about(&self, task: TaskId) -> bool {
        self.answers_for_person && lock(&self.requested_tasks).contains(&task)
    }

    /// Whether the client may answer for a person at all.
    pub(super) fn may_answer_for_person(&self, caller: &Caller) -> bool {
        self.answers_for_person && !caller.doubtful
    }

    /// The same tools for a new connection.
    pub(crate) fn for_new_connection(&self) -> Self {
        Self::new(Arc::clone(&self.ops), Arc::clone(&self.connections), self.connected.clone(), self.answers_for_person)
    }

    /// The connected caller, or the one of this request.
    pub(super) fn resolve_caller(&self, request_caller: Option<Caller>) -> Result<Caller, Refusal> {
        let nobody = || Refusal::new(RefusalCode::Unauthorized, "the request has no recognised caller");
        let caller = self.connected.clone().or(request_caller).ok_or_else(nobody)?;
        if !self.ops.still_admits(&caller) {
            return Err(Refusal::new(RefusalCode::Unauthorized, "the token was revoked or has expired"));
        }
        Ok(caller)
    }

    /// The session of this connection's requests; none means the implicit one of their directory.
    pub(super) fn session(&self, caller: &Caller) -> Option<SessionId> {
        match &caller.visibility {
            Visibility::Session(own) => Some(*own),
            Visibility::All | Visibility::Own => *lock(&self.opened_session),
        }
    }

    pub(super) fn remember_session(&self, session: SessionId) {
        *lock(&self.opened_session) = Some(session);
    }
}

/// A refusal as a result for a model, with the hint.
pub(super) fn refusal_outcome(
    TaskRefusal { refusal: Refusal { code, message, hint }, task }: TaskRefusal,
) -> CallOutcome {
    let clean = |text: String| countersign_redact::text_by_shape(&text);
    let structured = json!({
        "error": code, "message": clean(message), "hint": hint.map(clean), "task_id": task,
    });
    CallOutcome::Done(ToolResult { structured, failed: true, links: Vec::new() })
}
