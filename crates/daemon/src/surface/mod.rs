//! HTTP on the unix socket, and on loopback for those who have a token. Surfaces translate; they never decide or
//! remember.

mod approvals;
mod arrive;
mod attach;
mod control;
mod events;
mod follow;
mod grants;
mod hooks;
mod lifecycle;
mod mcp;
mod output;
mod problem;
mod receipts;
mod replay;
mod screen;
mod search;
mod server;
mod sessions;
mod tasks;
pub(crate) mod tcp;
mod tokens;

use crate::house::House;
pub(crate) use arrive::Recognised;
use arrive::Who;
use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    middleware,
    routing::{delete, get, post},
};
use countersign_model::{Code, PrincipalId, Refusal, SessionId, Status, TaskId, TaskState, WaitsFor};
use countersign_store::stream::{Stream, StreamError};
pub(crate) use events::Pieces;
pub(crate) use hooks::Tickets;
pub(crate) use mcp::Connections;
pub(crate) use output::Maps;
pub(crate) use problem::Problem;
pub(crate) use receipts::Checked;
pub(crate) use server::{Crowd, serve_unix};
use sessions::find_own as find_own_session;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

pub(crate) type Shared = State<Arc<House>>;
pub(crate) type Answer<T> = Result<T, Problem>;

const LARGEST_BODY: usize = server::MAX_BODY as usize;

/// Every address of the house, and the door before them.
pub(crate) fn router(house: &Arc<House>) -> Router {
    let api = routes(house);
    mcp::http(house, api.clone()).merge(api).layer(middleware::from_fn_with_state(Arc::clone(house), arrive::arrive))
}

/// The addresses, for who has been let in.
fn routes(house: &Arc<House>) -> Router {
    Router::new()
        .route("/tasks", post(tasks::ask).get(tasks::list))
        .route("/tasks/{id}", get(tasks::show))
        .route("/tasks/{id}/events", get(events::of_task))
        .route("/tasks/{id}/output", get(output::read))
        .route("/tasks/{id}/search", get(search::search))
        .route("/tasks/{id}/receipt", get(receipts::of_task))
        .route("/receipts", get(receipts::list))
        .route("/receipts/head", post(receipts::head))
        .route("/artifacts/{digest}", get(receipts::artifact))
        .route("/keys", get(receipts::keys).post(receipts::rotate))
        .route("/tasks/{id}/screen", get(screen::show))
        .route("/tasks/{id}/cast", get(replay::cast))
        .route("/tasks/{id}/attach", get(attach::attach))
        .route("/tasks/{id}/cancel", post(control::cancel))
        .route("/tasks/{id}/signal", post(control::signal))
        .route("/tasks/{id}/stdin", post(control::stdin))
        .route("/tasks/{id}/resize", post(control::resize))
        .route("/approvals", get(approvals::list))
        .route("/approvals/events", get(follow::approvals))
        .route("/approvals/{id}", get(approvals::show).post(approvals::answer))
        .route("/grants", get(grants::list).post(grants::add))
        .route("/grants/{id}", delete(grants::revoke).get(grants::show))
        .route("/grants/{id}/narrow", post(grants::narrow))
        .route("/check", post(tasks::check))
        .route("/mcp/session", post(mcp::session))
        .route("/mcp/stdio", get(mcp::stdio))
        .route("/hooks/before", post(hooks::before))
        .route("/hooks/after", post(hooks::after))
        .route("/tickets/{id}", post(hooks::redeem).get(hooks::redeemed))
        .route("/sessions", get(sessions::list).post(sessions::open))
        .route("/sessions/{id}", get(sessions::show).delete(sessions::end))
        .route("/sessions/{id}/directory", post(sessions::set_directory))
        .route("/tokens", get(tokens::list).post(tokens::create))
        .route("/tokens/{id}", delete(tokens::revoke))
        .route("/events", get(follow::ledger))
        .route("/listen", post(lifecycle::listen))
        .route("/lifecycle", get(lifecycle::show).post(lifecycle::stop))
        .route("/gc", post(lifecycle::gc))
        .route("/ledger", post(lifecycle::rebuild))
        .route("/livez", get(lifecycle::alive))
        .route("/readyz", get(lifecycle::ready))
        .fallback(nowhere)
        .method_not_allowed_fallback(not_that_way)
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(Arc::clone(house))
}

async fn nowhere() -> Problem {
    Refusal::new(Code::NotFound, "there is nothing at this address").hint("see docs/api.md for the routes").into()
}

async fn not_that_way() -> Problem {
    Refusal::new(Code::MethodNotAllowed, "this address does not take this method").hint("see docs/api.md").into()
}

/// The same, for those who want to type into it or stop it.
pub(crate) fn find_own_task(house: &House, who: &Who, text: &str) -> Answer<TaskId> {
    let task = find_task(house, who, text)?;
    let whose = house.readers.with(|r| r.whose(task))?;
    match whose.is_some_and(|(principal, session)| who.controls(house, principal, session)) {
        true => Ok(task),
        false => {
            Err(Problem::from(Refusal::new(Code::Forbidden, "this task is of a session that somebody else opened"))
                .of_task(task))
        }
    }
}

/// So much of an id must be given.
const SHORTEST_ID: usize = 4;

/// The task that a path names: a whole id, or the beginning of exactly one. One that whoever asks may not see is one
/// that is not there.
pub(crate) fn find_task(house: &House, who: &Who, text: &str) -> Answer<TaskId> {
    let unknown =
        || Refusal::new(Code::NotFound, format!("there is no task {}", countersign_model::Shown::bounded(text, 60)));
    if let Ok(task) = text.parse::<TaskId>() {
        let whose = match house.projections.whose(task) {
            Some(whose) => Some(whose),
            None => house.readers.with(|r| r.whose(task))?,
        };
        return match whose.is_some_and(|(principal, session)| who.sees(house, principal, session)) {
            true => Ok(task),
            false => Err(unknown().into()),
        };
    }
    if text.starts_with("ap_") {
        return Err(unknown().hint(format!("that is an approval: csn approvals show {text}")).into());
    }
    let prefixed = if text.starts_with("tk_") { text.to_owned() } else { format!("tk_{text}") };
    // A variable that is not set must not name the only task there is.
    if prefixed.len() < 3 + SHORTEST_ID || !prefixed[3..].bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err(unknown().into());
    }
    let found = house.readers.with(|r| {
        let mut found = Vec::new();
        for task in r.by_prefix(&prefixed, who.principal)? {
            found.extend(r.whose(task)?.filter(|(p, s)| who.sees(house, *p, *s)).map(|_| task));
        }
        Ok(found)
    })?;
    match found.as_slice() {
        [] => Err(unknown().into()),
        [one] => Ok(*one),
        _ => Err(Refusal::new(Code::AmbiguousId, format!("more than one task begins with {prefixed}"))
            .hint("give more characters of the id")
            .into()),
    }
}

/// The folds of the tasks that were looked at last. Each goes on from where it was.
#[derive(Default)]
pub(crate) struct Projections {
    recent: Mutex<VecDeque<(TaskId, Arc<Mutex<Folding>>)>>,
}

struct Folding {
    stream: Stream,
    state: Option<TaskState>,
    /// What the bell said when the state was read last.
    rings: Option<u64>,
    /// The state as JSON, for those who ask again and again.
    json: Option<Bytes>,
}

const REMEMBERED: usize = 64;

impl Projections {
    fn knows(&self, task: TaskId) -> bool {
        self.recent.lock().expect("nothing panics while it holds this lock").iter().any(|(t, _)| *t == task)
    }

    /// Whose a task is that was looked at of late.
    fn whose(&self, task: TaskId) -> Option<(PrincipalId, Option<SessionId>)> {
        let recent = self.recent.lock().expect("nothing panics while it holds this lock");
        let folding = recent.iter().find(|(t, _)| *t == task).map(|(_, f)| Arc::clone(f))?;
        drop(recent);
        let folding = folding.lock().expect("nothing panics while it holds this lock");
        folding.state.as_ref().map(|s| (s.principal, s.session_id))
    }

    pub(crate) fn forget(&self, task: TaskId) {
        self.recent.lock().expect("nothing panics while it holds this lock").retain(|(t, _)| *t != task);
    }

    /// Folds a task whose beginning lies far back on a thread where that may take its time. What is folded already is
    /// brought up to now in a moment.
    pub(crate) async fn warm(house: &Arc<House>, task: TaskId) -> Answer<()> {
        if house.projections.knows(task) {
            return Ok(());
        }
        let house = Arc::clone(house);
        let folded = tokio::task::spawn_blocking(move || house.projections.state(&house, task).map(drop)).await;
        folded.map_err(|e| Refusal::new(Code::Internal, e.to_string()))?
    }

    /// The state of a task as its stream tells it now.
    pub(crate) fn state(&self, house: &House, task: TaskId) -> Answer<TaskState> {
        let folding = self.current(house, task)?;
        let folding = folding.lock().expect("nothing panics while it holds this lock");
        let mut state = folding.state.clone().ok_or_else(|| unknown(task))?;
        drop(folding);
        place_in_line(house, &mut state);
        Ok(state)
    }

    /// Whether a task has settled and has no record numbered `seq` or later.
    pub(crate) fn ended_before(&self, house: &House, task: TaskId, seq: u64) -> Answer<bool> {
        let folding = self.current(house, task)?;
        let folding = folding.lock().expect("nothing panics while it holds this lock");
        Ok(folding.state.as_ref().is_some_and(|s| house.is_over(s) && seq >= s.next_seq))
    }

    /// The same as JSON.
    pub(crate) fn json(&self, house: &House, task: TaskId) -> Answer<Bytes> {
        let folding = self.current(house, task)?;
        let mut folding = folding.lock().expect("nothing panics while it holds this lock");
        let Folding { state, json, .. } = &mut *folding;
        let state = state.as_ref().ok_or_else(|| unknown(task))?;
        if state.waits_for == Some(WaitsFor::Slot) {
            // Where it stands changes without a word from it.
            let mut state = state.clone();
            place_in_line(house, &mut state);
            return Ok(serde_json::to_vec(&state).map(Bytes::from).unwrap_or_default());
        }
        let fresh = || serde_json::to_vec(state).map(Bytes::from).unwrap_or_default();
        Ok(json.get_or_insert_with(fresh).clone())
    }

    /// The fold of a task, brought up to now.
    fn current(&self, house: &House, task: TaskId) -> Answer<Arc<Mutex<Folding>>> {
        let shared = self.folding(house, task);
        {
            let mut folding = shared.lock().expect("nothing panics while it holds this lock");
            let Folding { stream, state, rings, json } = &mut *folding;
            let now = house.keeper.rings(task);
            let current = state.as_ref().is_some_and(|s| s.receipt.is_some()) || (now.is_some() && *rings == now);
            if !current {
                *rings = now;
                *json = None;
                house.readers.with(|r| Ok(stream.fold_into(r, state)))??;
            }
        }
        Ok(shared)
    }

    /// A task that has just been asked for: whoever looks at it next goes on from here.
    pub(crate) fn begin(&self, house: &House, state: &TaskState) {
        let stream = Stream::after(&house.home, state);
        let folding = Folding { stream, state: Some(state.clone()), rings: None, json: None };
        self.remember(state.task_id, Arc::new(Mutex::new(folding)));
    }

    fn remember(&self, task: TaskId, folding: Arc<Mutex<Folding>>) {
        let mut recent = self.recent.lock().expect("nothing panics while it holds this lock");
        recent.push_back((task, folding));
        if recent.len() > REMEMBERED {
            recent.pop_front();
        }
    }

    fn folding(&self, house: &House, task: TaskId) -> Arc<Mutex<Folding>> {
        let mut recent = self.recent.lock().expect("nothing panics while it holds this lock");
        if let Some(at) = recent.iter().position(|(t, _)| *t == task) {
            let folding = Arc::clone(&recent[at].1);
            let entry = recent.remove(at);
            recent.extend(entry);
            return folding;
        }
        drop(recent);
        let stream = Stream::from(&house.home, task, 0);
        let folding = Arc::new(Mutex::new(Folding { stream, state: None, rings: None, json: None }));
        self.remember(task, Arc::clone(&folding));
        folding
    }
}

/// Where a task that waits for a slot stands now.
pub(crate) fn place_in_line(house: &House, state: &mut TaskState) {
    if state.status == Status::Queued {
        let at = house.line.borrow().iter().position(|t| *t == state.task_id);
        if let Some(at) = at {
            (state.waits_for, state.position) = (Some(WaitsFor::Slot), Some(at as u64 + 1));
        }
    }
}

fn unknown(task: TaskId) -> Problem {
    Refusal::new(Code::NotFound, format!("there is no task {task}")).into()
}

impl From<StreamError> for Problem {
    fn from(e: StreamError) -> Self {
        Refusal::new(Code::Internal, e.to_string()).hint("see `csn doctor`").into()
    }
}
