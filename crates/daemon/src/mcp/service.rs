//! What is offered to a model, apart from the protocol that carries it.

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

/// What a server of ours does for a client, in our own words: whoever carries it knows nothing of tasks, and this nothing
/// of the protocol.
pub(crate) trait McpService: Send + Sync + 'static {
    /// The tools, always in the same order.
    fn tools(&self) -> impl Iterator<Item = &'static ToolSpec> + Send;
    fn call(&self, call: ToolCall, talk: &impl ClientChannel) -> impl Future<Output = CallOutcome> + Send;
    /// Bytes by their address, as [`super::TEMPLATES`] has them.
    fn read(&self, uri: &str, who: Option<Caller>) -> impl Future<Output = Result<ResourceBytes, Refusal>> + Send;
}

/// One use of a tool.
pub(crate) struct ToolCall {
    pub(crate) name: String,
    pub(crate) args: Map<String, Value>,
    /// Who asks, where the connection does not say it once for all.
    pub(crate) who: Option<Caller>,
    /// What the client says of itself and of this call.
    pub(crate) labels: Vec<(&'static str, String)>,
    /// What came back to a question, and to which.
    pub(crate) returned: Option<RetryAnswer>,
}

/// The answer of a client that was asked to come again with one.
pub(crate) struct RetryAnswer {
    pub(crate) state: String,
    pub(crate) choice: Option<Choice>,
}

/// How a client can be spoken to while it waits.
pub(crate) trait ClientChannel: Send + Sync {
    fn wants_progress(&self) -> bool;
    /// Where it stands; the number only grows.
    fn progress(&self, done: f64, message: String) -> impl Future<Output = ()> + Send;
    fn asks(&self) -> ElicitationSupport;
    /// Whether what is said in one call is known in the next.
    fn lasts(&self) -> bool;
    /// What the person at the client answers; none when nobody did.
    fn ask(&self, question: &Elicitation) -> impl Future<Output = Option<Choice>> + Send;
    /// Returns when the client does not wait any more.
    fn gone(&self) -> impl Future<Output = ()> + Send;
}

/// Whether a client can put a question to its person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElicitationSupport {
    No,
    /// While it waits.
    Now,
    /// By coming again with the answer.
    Again,
}

/// A question for the person at the client, flat as the protocol wants it.
#[derive(Debug, Clone)]
pub(crate) struct Elicitation {
    pub(crate) message: String,
    pub(crate) choices: Vec<Choice>,
}

/// What came of a call.
pub(crate) enum CallOutcome {
    Done(ToolResult),
    /// The client shall put this to its person, and come again with the answer and this.
    Ask {
        question: Elicitation,
        state: String,
    },
    /// There is no such tool.
    Unknown,
}

/// All that a model sees is in `structured`; clients hide what stands beside it.
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
    /// Base64, when it is not text.
    pub(crate) blob: Option<String>,
    /// Where in the whole it stands.
    pub(crate) place: Value,
}

/// The operations of the daemon, as tools.
pub(crate) struct DaemonTools {
    pub(super) ops: Arc<Ops>,
    /// What connections are known by.
    pub(super) connections: Arc<Connections>,
    /// Whose connection this is, where it is one.
    connected: Option<Caller>,
    /// Whether the client speaks for whoever sits at it.
    speaks: bool,
    /// A session that was opened for a connection that began without one.
    opened: Mutex<Option<SessionId>>,
    /// What was asked for here. Only here is its question put, and an answer taken.
    asked: Mutex<VecDeque<TaskId>>,
}

/// So many tasks of one connection are remembered as its own.
const MOST_ASKED: usize = 1024;

impl DaemonTools {
    pub(crate) fn new(ops: Arc<Ops>, connections: Arc<Connections>, connected: Option<Caller>, speaks: bool) -> Self {
        Self { ops, connections, connected, speaks, opened: Mutex::default(), asked: Mutex::default() }
    }

    /// Remembers what was asked for here.
    pub(super) fn asks_for(&self, task: TaskId) {
        let mut asked = lock(&self.asked);
        asked.push_back(task);
        if asked.len() > MOST_ASKED {
            asked.pop_front();
        }
    }

    /// Whether the question of a task may be put to this client.
    pub(super) fn may_be_asked(&self, task: TaskId) -> bool {
        self.speaks && lock(&self.asked).contains(&task)
    }

    /// Whether it speaks for anybody at all.
    pub(super) fn speaks(&self, who: &Caller) -> bool {
        self.speaks && !who.doubtful
    }

    /// The same for another connection.
    pub(crate) fn apart(&self) -> Self {
        Self::new(Arc::clone(&self.ops), Arc::clone(&self.connections), self.connected.clone(), self.speaks)
    }

    /// Whoever is connected, or came with this request.
    pub(super) fn who(&self, came: Option<Caller>) -> Result<Caller, Refusal> {
        let nobody = || Refusal::new(RefusalCode::Unauthorized, "nobody was recognised");
        let who = self.connected.clone().or(came).ok_or_else(nobody)?;
        if !self.ops.still_admits(&who) {
            return Err(Refusal::new(RefusalCode::Unauthorized, "the token does not hold any more"));
        }
        Ok(who)
    }

    /// The session that requests of this connection belong to; none is that of their place.
    pub(super) fn session(&self, who: &Caller) -> Option<SessionId> {
        match &who.sees {
            Visibility::Session(own) => Some(*own),
            Visibility::All | Visibility::Own => *lock(&self.opened),
        }
    }

    pub(super) fn opened(&self, session: SessionId) {
        *lock(&self.opened) = Some(session);
    }
}

/// What a model is told of a refusal: what to do about it as well.
pub(super) fn refusal_outcome(
    TaskRefusal { refusal: Refusal { code, message, hint }, task }: TaskRefusal,
) -> CallOutcome {
    let clean = |text: String| countersign_redact::text_by_shape(&text);
    let structured = json!({
        "error": code, "message": clean(message), "hint": hint.map(clean), "task_id": task,
    });
    CallOutcome::Done(ToolResult { structured, failed: true, links: Vec::new() })
}
