//! `/hooks` and `/tickets`: agents that ask before their own shell runs something.
//!
//! A hook is answered at once. What is denied is a task that was denied. What may run, or may be asked about, gets a
//! *ticket*: leave to come back with the very same command, from below the same agent, and have it run here. The gate
//! decides then, with the environment that the command would really have. A ticket that nobody comes with leaves a
//! withdrawn task.
//!
//! A *witness* lets the agent run it: the house decides, writes down, and is told how it went.

use super::{
    Answer, Shared,
    arrive::{Sees, Who},
    problem::{Problem, Segment, Whole, body},
    sessions::{self, Talking},
    tasks,
};
use crate::{
    desk::Event,
    facts,
    house::House,
    office::{Asking, Call},
};
use axum::{Json, extract::State};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use countersign_model::{
    Code, Command, CredentialKind, IdMint, Outcome, Plan, Refusal, Request, Session, SessionId, TaskId, TaskState,
    Text, Tool,
};
use countersign_redact::text_by_shape;
use countersign_store::{clock, random};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::oneshot;

/// How long a ticket is good for.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// So many may be out at once; a hook that meets them denies.
const MOST: usize = 1024;
/// The label that says how the agent calls one use of its tool.
const TOOL_USE: &str = "tool_use_id";
/// How long an agent's tool waits, when nobody says.
const PATIENCE_MS: u64 = 100_000;

/// What is out, and what came of those that were.
#[derive(Default)]
pub(crate) struct Tickets {
    out: Mutex<HashMap<String, Ticket>>,
    /// What tickets were redeemed for, of late.
    redeemed: Mutex<VecDeque<(String, TaskId)>>,
}

/// A decision that a hook took, to be redeemed once.
struct Ticket {
    session: SessionId,
    command: String,
    cwd: String,
    patience_ms: u64,
    moves: bool,
    /// What is written down when nobody comes, and what is said of it when somebody does.
    asking: Box<Asking>,
}

/// What a hook says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Before {
    conversation: Talking,
    command: String,
    /// The hook's own environment: what the command will have, as far as it can be known yet.
    #[serde(default)]
    inherit: BTreeMap<String, String>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// How the agent calls this one use of its tool.
    #[serde(default)]
    tool_use: Option<String>,
    /// How long its tool waits for the command.
    #[serde(default)]
    patience_ms: Option<u64>,
    /// The agent runs it.
    #[serde(default)]
    witness: bool,
}

pub(crate) async fn before(State(house): Shared, who: Who, Whole(bytes): Whole) -> Answer<Json<Value>> {
    let Before { conversation: talking, command, inherit, title, mut labels, tool_use, patience_ms, witness } =
        body(&bytes)?;
    let (who, session) = sessions::conversation(&house, &who, &talking).await?;
    labels.insert("agent".to_owned(), talking.agent.clone());
    labels.extend(tool_use.clone().map(|id| (TOOL_USE.to_owned(), id)));
    let args = Command { command: Some(command.clone()), cwd: Some(talking.cwd), inherit, ..Command::default() };
    let mut request = plain(args, &session);
    (request.title, request.labels, request.attended) = (title, labels, !witness);
    let asking = tasks::considered(&house, &who, request, None).await?;
    let (mut asking, answer, grants) = judged(&house, asking).await?;
    let refused = asking.refused.clone().or(match &answer {
        countersign_model::Answer::Deny(refusal) => Some(refusal.clone()),
        _ => None,
    });
    if let Some(refusal) = refused {
        asking.refused = Some(refusal);
        return match tasks::put(&house, *asking).await {
            Err(problem) => Ok(Json(denied(problem))),
            Ok(_) => Err(Refusal::new(Code::Internal, "what was denied was let through").into()),
        };
    }
    if witness {
        // Nobody is asked here: what is not allowed outright was denied above.
        let countersign_model::Answer::Allow { rule } = answer else {
            return Err(Refusal::new(Code::Internal, "a question came up where nobody can be asked").into());
        };
        let agent = text_by_shape(&talking.agent);
        let task = observe(&house, *asking, rule, grants, agent).await?;
        return Ok(Json(json!({"verdict": "allow", "task_id": task})));
    }
    let asks = matches!(answer, countersign_model::Answer::Ask { .. });
    let moves = may_move(&asking.looked.plan);
    let ticket = Ticket {
        session: session.id,
        cwd: asking.looked.facts.cwd.resolved.clone(),
        patience_ms: patience_ms.unwrap_or(PATIENCE_MS),
        command,
        moves,
        asking,
    };
    let id = house.tickets.add(&house, ticket)?;
    Ok(Json(json!({"verdict": if asks { "ask" } else { "allow" }, "ticket": id, "moves": moves})))
}

/// A request of a session, as plain as they come.
fn plain(args: Command, session: &Session) -> Request {
    Request { session_id: Some(session.id), ..Request::new(Tool::Shell, args) }
}

type Judged = (Box<Asking>, countersign_model::Answer, Vec<countersign_model::GrantId>);

/// What the gate says of it at this moment, with all that is granted.
async fn judged(house: &Arc<House>, asking: Asking) -> Answer<Judged> {
    let at = Arc::clone(house);
    let judged = house.read(move |register| {
        let session = asking.standing.session.and_then(|s| register.roster.session(s)).map(|s| &**s);
        let session = session.or(asking.opens.as_deref());
        let Asking { request, looked, standing, .. } = &asking;
        let a = facts::assess(request, looked, &at.gate, standing, session, &register.grants, clock::now());
        let grants = a.grants();
        (Box::new(asking), a.answer, grants)
    });
    Ok(judged.await?)
}

/// Whether the shell may end in another directory than it began in.
fn may_move(plan: &Plan) -> bool {
    let moves = |verb: &str| matches!(verb, "cd" | "pushd" | "popd");
    plan.occurrences.iter().any(|o| !o.shadow && (moves(o.verb.as_str()) || o.opaque.is_some()))
}

/// A denial, for whoever has to tell it to an agent.
fn denied(problem: Problem) -> Value {
    let (refusal, task) = problem.parts();
    json!({
        "verdict": "deny", "code": refusal.code, "reason": text_by_shape(&refusal.message),
        "hint": refusal.hint.map(|hint| text_by_shape(&hint)), "task_id": task,
    })
}

fn new_task() -> TaskId {
    TaskId::mint(&mut IdMint::default(), clock::now().millis(), u32::from_le_bytes(random()))
}

async fn decide(house: &House, event: Event) -> Answer<()> {
    let gone = || Refusal::new(Code::Draining, "the house is going down");
    let (reply, done) = oneshot::channel();
    house.calls.send(Call::Decide { events: vec![event], reply }).map_err(|_| gone())?;
    Ok(done.await.map_err(|_| gone())??)
}

async fn observe(
    house: &House,
    asking: Asking,
    rule: &'static str,
    grants: Vec<countersign_model::GrantId>,
    by: Text,
) -> Answer<TaskId> {
    let task = new_task();
    let Asking { planned, opens, .. } = asking;
    decide(house, Event::Observed { task, planned: Box::new(planned), opens, rule, grants, by }).await?;
    Ok(task)
}

/// How something went that a witness let run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct After {
    conversation: Talking,
    tool_use: String,
    #[serde(default)]
    exit_code: Option<i32>,
    #[serde(default)]
    interrupted: bool,
}

pub(crate) async fn after(State(house): Shared, who: Who, Whole(bytes): Whole) -> Answer<Json<Value>> {
    let After { conversation: talking, tool_use, exit_code, interrupted } = body(&bytes)?;
    let (_, session) = sessions::conversation(&house, &who, &talking).await?;
    let unknown = || Refusal::new(Code::NotFound, "nothing of this name was let run, or its end was told already");
    let task = observed(&house, session.id, &tool_use)?.ok_or_else(unknown)?;
    let outcome = match (interrupted, exit_code) {
        (true, _) => Outcome::Cancelled { by: text_by_shape(&talking.agent), reason: None },
        (false, Some(code)) => Outcome::Exited { code },
        (false, None) => Outcome::Lost { why: Text::of("its agent did not say how it ended") },
    };
    decide(&house, Event::Told { task, outcome }).await?;
    Ok(Json(json!({"task_id": task})))
}

/// What a witness let run under this name in a session, and has not heard of since; the newest, if there are several.
fn observed(house: &House, session: SessionId, tool_use: &str) -> Answer<Option<TaskId>> {
    for task in house.readers.with(|r| r.open_in(session))?.into_iter().rev() {
        let state = house.projections.state(house, task)?;
        let named = state.labels.get(TOOL_USE).is_some_and(|name| name.as_str() == tool_use);
        if state.observed && !state.settled() && named {
            return Ok(Some(task));
        }
    }
    Ok(None)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Redeemed {
    command: String,
    cwd: String,
    #[serde(default)]
    inherit: BTreeMap<String, String>,
}

pub(crate) async fn redeem(
    State(house): Shared,
    who: Who,
    Segment(id): Segment,
    Whole(bytes): Whole,
) -> Answer<Json<Value>> {
    let redeemed: Redeemed = body(&bytes)?;
    let ticket = house.tickets.take(&house, &who, &id, &redeemed.command)?;
    // To its end, also when whoever came with it hangs up: what was taken must come to something.
    let done = tokio::spawn(async move {
        let patience_ms = ticket.patience_ms;
        match redeem_for(&house, &who, &ticket, redeemed).await {
            Ok(task) => {
                house.tickets.was_redeemed(id, task.task_id);
                Ok(Json(json!({"task": task, "patience_ms": patience_ms})))
            }
            // A denial is a task of its own.
            Err(problem) if problem.task().is_some() => Err(problem),
            Err(problem) => {
                house.tickets.unredeemed(&house, ticket).await;
                Err(problem)
            }
        }
    });
    done.await.map_err(|e| Refusal::new(Code::Internal, e.to_string()))?
}

async fn redeem_for(house: &Arc<House>, who: &Who, ticket: &Ticket, redeemed: Redeemed) -> Answer<TaskState> {
    let Redeemed { command, cwd, inherit } = redeemed;
    let gone = || Refusal::new(Code::NotFound, "the session of this ticket is not there any more");
    let session = house.roster.borrow().session(ticket.session).cloned().ok_or_else(gone)?;
    let args =
        Command { command: Some(command), cwd: Some(cwd), inherit, tell_directory: ticket.moves, ..Command::default() };
    let mut request = plain(args, &session);
    (request.title, request.labels) = (ticket.asking.request.title.clone(), ticket.asking.request.labels.clone());
    let asking = tasks::considered(house, &who.as_agent(&session), request, None).await?;
    if asking.looked.facts.cwd.resolved != ticket.cwd {
        return Err(refused("this ticket is for another directory").into());
    }
    let asked = tasks::put(house, asking).await?;
    match asked.state {
        Some(state) => {
            house.projections.begin(house, &state);
            Ok(*state)
        }
        None => house.projections.state(house, asked.task),
    }
}

/// What a ticket was redeemed for.
pub(crate) async fn redeemed(State(house): Shared, who: Who, Segment(id): Segment) -> Answer<Json<Value>> {
    let task = house.tickets.task_of(&id).ok_or_else(|| Refusal::new(Code::NotFound, "there is no such ticket"))?;
    let task = super::find_task(&house, &who, &task.to_string())?;
    Ok(Json(json!(house.projections.state(&house, task)?)))
}

fn refused(message: &str) -> Refusal {
    Refusal::new(Code::Forbidden, message).hint("run the command again: its hook asks anew")
}

impl Tickets {
    fn add(&self, house: &Arc<House>, ticket: Ticket) -> Result<String, Refusal> {
        let id = format!("ti_{}", URL_SAFE_NO_PAD.encode(random::<16>()));
        let mut out = self.out.lock().expect("nothing panics while it holds this lock");
        if out.len() >= MOST {
            return Err(Refusal::new(Code::TooMany, "too many tickets are out").hint("try again in a minute"));
        }
        out.insert(id.clone(), ticket);
        drop(out);
        let (house, late) = (Arc::clone(house), id.clone());
        tokio::spawn(async move {
            tokio::time::sleep(GOOD_FOR).await;
            let ticket = house.tickets.out.lock().expect("nothing panics while it holds this lock").remove(&late);
            if let Some(ticket) = ticket {
                house.tickets.unredeemed(&house, ticket).await;
            }
        });
        Ok(id)
    }

    /// The house goes down: nobody will come with these any more.
    pub(crate) async fn take_back(&self, house: &House) -> usize {
        let out: Vec<Ticket> = {
            let mut out = self.out.lock().expect("nothing panics while it holds this lock");
            out.drain().map(|(_, ticket)| ticket).collect()
        };
        let all = out.len();
        for ticket in out {
            self.unredeemed(house, ticket).await;
        }
        all
    }

    /// Nobody came with it: it is on record all the same.
    async fn unredeemed(&self, house: &House, ticket: Ticket) {
        let Asking { planned, opens, .. } = *ticket.asking;
        let by = Text::of("its agent, which did not run it");
        let event = Event::Unredeemed { task: new_task(), planned: Box::new(planned), opens, by };
        if let Err(e) = decide(house, event).await {
            crate::log!("a ticket that nobody came with is not on record: {}", e.into_refusal());
        }
    }

    /// The ticket, if it is for exactly this and for whoever comes with it. It is gone whatever it was used for: what
    /// was tried with another command is not tried again with the right one.
    fn take(&self, house: &Arc<House>, who: &Who, id: &str, command: &str) -> Result<Ticket, Refusal> {
        let taken = self.out.lock().expect("nothing panics while it holds this lock").remove(id);
        let unknown = || {
            Refusal::new(Code::NotFound, "there is no such ticket: it was used, or a minute has gone by")
                .hint("run the command again: its hook asks anew")
        };
        let ticket = taken.ok_or_else(unknown)?;
        let roster = Arc::clone(&house.roster.borrow());
        let agent = roster.session(ticket.session).and_then(|s| s.agent);
        let theirs = match &who.sees {
            Sees::Session(own) if *own == ticket.session => true,
            Sees::Session(own) => roster.session(*own).is_some_and(|own| own.agent.is_some() && own.agent == agent),
            Sees::All | Sees::Own => false,
        };
        let why = match () {
            () if who.kind != CredentialKind::Agent || !theirs => "this ticket was given to another agent's process",
            () if ticket.command != command => "this ticket is for another command",
            () => return Ok(ticket),
        };
        let at = Arc::clone(house);
        tokio::spawn(async move { at.tickets.unredeemed(&at, ticket).await });
        Err(refused(why))
    }

    fn was_redeemed(&self, id: String, task: TaskId) {
        let mut redeemed = self.redeemed.lock().expect("nothing panics while it holds this lock");
        redeemed.push_back((id, task));
        if redeemed.len() > MOST {
            redeemed.pop_front();
        }
    }

    fn task_of(&self, id: &str) -> Option<TaskId> {
        let redeemed = self.redeemed.lock().expect("nothing panics while it holds this lock");
        redeemed.iter().find(|(known, _)| known == id).map(|(_, task)| *task)
    }
}
