//! What is offered to a model, apart from the protocol that carries it.

use super::tools;
use crate::{
    house::House,
    surface::arrive::{Sees, Who, needs},
};
use axum::{
    Router,
    body::Body,
    http::{Method, Request},
};
use countersign_model::{Choice, Code, Refusal, SessionId, TaskId};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};
use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, Mutex},
};
use tower_service::Service as _;

/// What a server of ours does for a client, in our own words: whoever carries it knows nothing of tasks, and this nothing
/// of the protocol.
pub(crate) trait Offers: Send + Sync + 'static {
    /// The tools, always in the same order.
    fn tools(&self) -> &'static [tools::Offered];
    fn call(&self, call: Calling, talk: &impl Talk) -> impl Future<Output = Called> + Send;
    /// Bytes by their address, as [`tools::TEMPLATES`] has them.
    fn read(&self, uri: &str, who: Option<Who>) -> impl Future<Output = Result<Read, Refusal>> + Send;
}

/// One use of a tool.
pub(crate) struct Calling {
    pub(crate) name: String,
    pub(crate) args: Map<String, Value>,
    /// Who asks, where the connection does not say it once for all.
    pub(crate) who: Option<Who>,
    /// What the client says of itself and of this call.
    pub(crate) labels: Vec<(&'static str, String)>,
    /// What came back to a question, and to which.
    pub(crate) returned: Option<Returned>,
}

/// The answer of a client that was asked to come again with one.
pub(crate) struct Returned {
    pub(crate) state: String,
    pub(crate) choice: Option<Choice>,
}

/// How a client can be spoken to while it waits.
pub(crate) trait Talk: Send + Sync {
    fn wants_progress(&self) -> bool;
    /// Where it stands; the number only grows.
    fn progress(&self, done: f64, message: String) -> impl Future<Output = ()> + Send;
    fn asks(&self) -> Asks;
    /// Whether what is said in one call is known in the next.
    fn lasts(&self) -> bool;
    /// What the person at the client answers; none when nobody did.
    fn ask(&self, question: &Question) -> impl Future<Output = Option<Choice>> + Send;
    /// Returns when the client does not wait any more.
    fn gone(&self) -> impl Future<Output = ()> + Send;
}

/// Whether a client can put a question to its person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    No,
    /// While it waits.
    Now,
    /// By coming again with the answer.
    Again,
}

/// A question for the person at the client, flat as the protocol wants it.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) message: String,
    pub(crate) choices: Vec<Choice>,
}

/// What came of a call.
pub(crate) enum Called {
    Done(Outcome),
    /// The client shall put this to its person, and come again with the answer and this.
    Ask {
        question: Question,
        state: String,
    },
    /// There is no such tool.
    Unknown,
}

/// All that a model sees is in `structured`; clients hide what stands beside it.
pub(crate) struct Outcome {
    pub(crate) structured: Value,
    pub(crate) failed: bool,
    pub(crate) links: Vec<Link>,
}

pub(crate) struct Link {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// Bytes of a resource.
pub(crate) struct Read {
    pub(crate) text: Option<String>,
    /// Base64, when it is not text.
    pub(crate) blob: Option<String>,
    /// Where in the whole it stands.
    pub(crate) place: Value,
}

/// The house, as tools.
pub(crate) struct Tools {
    pub(super) house: Arc<House>,
    /// The house's own API, without the door.
    api: Router,
    /// Whose connection this is, where it is one.
    connected: Option<Who>,
    /// Whether the client speaks for whoever sits at it.
    speaks: bool,
    /// A session that was opened for a connection that began without one.
    opened: Mutex<Option<SessionId>>,
    /// What was asked for here. Only here is its question put, and an answer taken.
    asked: Mutex<VecDeque<TaskId>>,
}

/// So many tasks of one connection are remembered as its own.
const MOST_ASKED: usize = 1024;

impl Tools {
    pub(crate) fn new(house: Arc<House>, api: Router, connected: Option<Who>, speaks: bool) -> Self {
        Self { house, api, connected, speaks, opened: Mutex::default(), asked: Mutex::default() }
    }

    /// Remembers what was asked for here.
    pub(super) fn asks_for(&self, task: TaskId) {
        let mut asked = self.asked.lock().expect("nothing panics while it holds this lock");
        asked.push_back(task);
        if asked.len() > MOST_ASKED {
            asked.pop_front();
        }
    }

    /// Whether the question of a task may be put to this client.
    pub(super) fn may_be_asked(&self, task: TaskId) -> bool {
        self.speaks && self.asked.lock().expect("nothing panics while it holds this lock").contains(&task)
    }

    /// Whether it speaks for anybody at all.
    pub(super) fn speaks(&self, who: &Who) -> bool {
        self.speaks && !who.doubtful
    }

    /// The same for another connection.
    pub(crate) fn apart(&self) -> Self {
        Self::new(Arc::clone(&self.house), self.api.clone(), self.connected.clone(), self.speaks)
    }

    /// Whoever is connected, or came with this request.
    pub(super) fn who(&self, came: Option<Who>) -> Result<Who, Refusal> {
        let nobody = || Refusal::new(Code::Unauthorized, "nobody was recognised");
        let who = self.connected.clone().or(came).ok_or_else(nobody)?;
        match who.still_holds(&self.house) {
            true => Ok(who),
            false => Err(Refusal::new(Code::Unauthorized, "the token does not hold any more")),
        }
    }

    /// The session that requests of this connection belong to; none is that of their place.
    pub(super) fn session(&self, who: &Who) -> Option<SessionId> {
        match &who.sees {
            Sees::Session(own) => Some(*own),
            Sees::All | Sees::Own => *self.opened.lock().expect("nothing panics while it holds this lock"),
        }
    }

    pub(super) fn opened(&self, session: SessionId) {
        *self.opened.lock().expect("nothing panics while it holds this lock") = Some(session);
    }

    /// A call of the API in somebody's name.
    pub(super) async fn api(
        &self,
        who: &Who,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failed> {
        // The door is not passed here, so what it asks for is asked for here.
        if let Some(scope) = needs(&method, path.split('?').next().unwrap_or_default()) {
            who.may(scope)?;
        }
        let internal = |e: String| Failed::from(Refusal::new(Code::Internal, e));
        let bytes = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).body(Body::from(bytes));
        let mut request = request.map_err(|e| internal(e.to_string()))?;
        request.extensions_mut().insert(Arc::new(who.clone()));
        let response = match self.api.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(|e| internal(e.to_string()))?.to_bytes();
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        match status.is_success() {
            true => Ok(value),
            false => Err(Failed::of(&value)),
        }
    }
}

/// A refusal, and the task that it is about.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) refusal: Refusal,
    pub(crate) task: Option<TaskId>,
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, task: None }
    }
}

impl Failed {
    /// As the API tells it.
    fn of(problem: &Value) -> Self {
        let text = |name: &str| problem[name].as_str().map(str::to_owned);
        let code = serde_json::from_value(problem["code"].clone()).unwrap_or(Code::Internal);
        let mut refusal = Refusal::new(code, text("detail").unwrap_or_default());
        refusal.hint = text("hint");
        Self { refusal, task: problem["task_id"].as_str().and_then(|t| t.parse().ok()) }
    }

    /// What a model is told: what to do about it as well.
    pub(crate) fn told(&self) -> Called {
        let Refusal { code, message, hint } = &self.refusal;
        let structured = json!({"error": code, "message": message, "hint": hint, "task_id": self.task});
        Called::Done(Outcome { structured, failed: true, links: Vec::new() })
    }
}
