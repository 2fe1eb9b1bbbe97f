//! Hooks and tickets: agents that ask before their own shell runs something.
//!
//! A hook is answered at once. What is denied is a task that was denied. What may run, or may be asked about, gets a
//! *ticket*: leave to come back with the very same command, from below the same agent, and have it run here. The gate
//! decides then, with the environment that the command would really have. A ticket that nobody comes with leaves a
//! withdrawn task.
//!
//! A *witness* lets the agent run it: the daemon decides, writes down, and is told how it went.

use super::{ApiResult, Ops, intake, sessions};
use crate::{
    caller::{Caller, Visibility},
    calls::AskCall,
    desk::DeskEvent,
    lock,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use countersign_model::{
    Command, CredentialKind, CredentialScope, GrantId, IdMint, Outcome, Plan, Refusal, RefusalCode, Request, Session,
    SessionId, TaskId, TaskRefusal, TaskState, Text, Tool, Verdict,
    api::{HookAfterBody, HookAfterResponse, HookBeforeBody, HookBeforeResponse, RedeemBody, RedeemResponse},
};
use countersign_redact::text_by_shape;
use countersign_store::{clock, random};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

/// How long a ticket is good for.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// So many may be out at once; a hook that meets them denies.
const MAX_OUT: usize = 1024;
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
    asking: Box<AskCall>,
}

/// An agent asks before its own shell runs a command.
pub(crate) async fn before(ops: &Arc<Ops>, caller: &Caller, body: HookBeforeBody) -> ApiResult<HookBeforeResponse> {
    caller.may(CredentialScope::Run)?;
    let HookBeforeBody { conversation, command, inherit, title, mut labels, tool_use, patience_ms, witness } = body;
    let (caller, session) = sessions::conversation(ops, caller, &conversation).await?;
    labels.insert("agent".to_owned(), conversation.agent.clone());
    labels.extend(tool_use.map(|id| (TOOL_USE.to_owned(), id)));
    let args = Command { command: Some(command.clone()), cwd: Some(conversation.cwd), inherit, ..Command::default() };
    let mut request = plain(args, &session);
    (request.title, request.labels, request.attended) = (title, labels, !witness);
    let asking = intake::considered(ops, &caller, request, None).await?;
    let (mut asking, assessment) = intake::judged(ops, asking).await?;
    let refused = asking.refused.clone().or(match &assessment.verdict {
        Verdict::Deny(refusal) => Some(refusal.clone()),
        Verdict::Allow { .. } | Verdict::Ask { .. } => None,
    });
    if let Some(refusal) = refused {
        (asking.refused, asking.judged) = (Some(refusal), Some(Box::new(assessment)));
        return match intake::commit_ask(ops, *asking).await {
            Err(refused) => Ok(denied(refused)),
            Ok(_) => Err(Refusal::new(RefusalCode::Internal, "what was denied was let through").into()),
        };
    }
    if witness {
        // Nobody is asked here: what is not allowed outright was denied above.
        let Verdict::Allow { rule } = assessment.verdict else {
            return Err(Refusal::new(RefusalCode::Internal, "a question came up where nobody can be asked").into());
        };
        let agent = text_by_shape(&conversation.agent);
        let task = observe(ops, *asking, rule, assessment.grants(), agent).await?;
        return Ok(HookBeforeResponse::Allow { ticket: None, moves: None, task_id: Some(task) });
    }
    let asks = matches!(assessment.verdict, Verdict::Ask { .. });
    let moves = may_move(&asking.prepared.plan);
    let ticket = Ticket {
        session: session.id,
        cwd: asking.prepared.facts.cwd.resolved.clone(),
        patience_ms: patience_ms.unwrap_or(PATIENCE_MS),
        command,
        moves,
        asking,
    };
    let ticket = ops.tickets.add(ops, ticket)?;
    Ok(if asks {
        HookBeforeResponse::Ask { ticket, moves }
    } else {
        HookBeforeResponse::Allow { ticket: Some(ticket), moves: Some(moves), task_id: None }
    })
}

/// A request of a session, as plain as they come.
fn plain(args: Command, session: &Session) -> Request {
    Request { session_id: Some(session.id), ..Request::new(Tool::Shell, args) }
}

/// Whether the shell may end in another directory than it began in.
fn may_move(plan: &Plan) -> bool {
    let moves = |verb: &str| matches!(verb, "cd" | "pushd" | "popd");
    plan.occurrences.iter().any(|o| !o.shadow && (moves(o.verb.as_str()) || o.opaque.is_some()))
}

/// A denial, for whoever has to tell it to an agent.
fn denied(TaskRefusal { refusal, task }: TaskRefusal) -> HookBeforeResponse {
    HookBeforeResponse::Deny {
        code: refusal.code,
        reason: text_by_shape(&refusal.message),
        hint: refusal.hint.map(|hint| text_by_shape(&hint)),
        task_id: task,
    }
}

fn new_task() -> TaskId {
    TaskId::mint(&mut IdMint::default(), clock::now().millis(), u32::from_le_bytes(random()))
}

async fn decide(ops: &Ops, event: DeskEvent) -> ApiResult<()> {
    Ok(ops.commit.decide(vec![event]).await?)
}

async fn observe(ops: &Ops, asking: AskCall, rule: &'static str, grants: Vec<GrantId>, by: Text) -> ApiResult<TaskId> {
    let task = new_task();
    let AskCall { planned, opens, .. } = asking;
    decide(ops, DeskEvent::Observed { task, planned: Box::new(planned), opens, rule, grants, by }).await?;
    Ok(task)
}

/// How a command went that a witness let run.
pub(crate) async fn after(ops: &Arc<Ops>, caller: &Caller, body: HookAfterBody) -> ApiResult<HookAfterResponse> {
    caller.may(CredentialScope::Run)?;
    let HookAfterBody { conversation, tool_use, exit_code, interrupted } = body;
    let (_, session) = sessions::conversation(ops, caller, &conversation).await?;
    let unknown =
        || Refusal::new(RefusalCode::NotFound, "nothing of this name was let run, or its end was told already");
    let task = observed(ops, session.id, &tool_use)?.ok_or_else(unknown)?;
    let outcome = match (interrupted, exit_code) {
        (true, _) => Outcome::Cancelled { by: text_by_shape(&conversation.agent), reason: None },
        (false, Some(code)) => Outcome::Exited { code },
        (false, None) => Outcome::Lost { why: Text::from_static("its agent did not say how it ended") },
    };
    decide(ops, DeskEvent::Told { task, outcome }).await?;
    Ok(HookAfterResponse { task_id: task })
}

/// What a witness let run under this name in a session, and has not heard of since; the newest, if there are several.
fn observed(ops: &Ops, session: SessionId, tool_use: &str) -> ApiResult<Option<TaskId>> {
    for task in ops.records.ledger(|r| r.open_tasks_of_session(session))?.into_iter().rev() {
        let state = ops.records.state(task)?;
        let named = state.request.labels.get(TOOL_USE).is_some_and(|name| name.as_str() == tool_use);
        if state.observed() && !state.settled() && named {
            return Ok(Some(task));
        }
    }
    Ok(None)
}

/// Has the command of a ticket run.
pub(crate) async fn redeem(ops: &Arc<Ops>, caller: &Caller, id: &str, body: RedeemBody) -> ApiResult<RedeemResponse> {
    caller.may(CredentialScope::Run)?;
    let ticket = ops.tickets.take(ops, caller, id, &body.command)?;
    let (ops, caller, id) = (Arc::clone(ops), caller.clone(), id.to_owned());
    // To its end, also when whoever came with it hangs up: what was taken must come to something.
    let done = tokio::spawn(async move {
        let patience_ms = ticket.patience_ms;
        match redeem_for(&ops, &caller, &ticket, body).await {
            Ok(task) => {
                ops.tickets.was_redeemed(id, task.task_id);
                Ok(RedeemResponse { task, patience_ms })
            }
            // A denial is a task of its own.
            Err(refused) if refused.task.is_some() => Err(refused),
            Err(refused) => {
                ops.tickets.unredeemed(&ops, ticket).await;
                Err(refused)
            }
        }
    });
    done.await.map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string()))?
}

async fn redeem_for(ops: &Arc<Ops>, caller: &Caller, ticket: &Ticket, redeemed: RedeemBody) -> ApiResult<TaskState> {
    let RedeemBody { command, cwd, inherit } = redeemed;
    let gone = || Refusal::new(RefusalCode::NotFound, "the session of this ticket is not there any more");
    let session = ops.roster.borrow().session(ticket.session).cloned().ok_or_else(gone)?;
    let args =
        Command { command: Some(command), cwd: Some(cwd), inherit, tell_directory: ticket.moves, ..Command::default() };
    let mut request = plain(args, &session);
    (request.title, request.labels) = (ticket.asking.request.title.clone(), ticket.asking.request.labels.clone());
    let asking = intake::considered(ops, &caller.as_agent(&session), request, None).await?;
    if asking.prepared.facts.cwd.resolved != ticket.cwd {
        return Err(refused("this ticket is for another directory").into());
    }
    let asked = intake::commit_ask(ops, asking).await?;
    match asked.state {
        Some(state) => {
            ops.records.begin(&state);
            Ok(*state)
        }
        None => ops.records.state(asked.task),
    }
}

/// The task that a ticket was redeemed for.
pub(crate) fn redeemed(ops: &Ops, caller: &Caller, id: &str) -> ApiResult<TaskState> {
    caller.may(CredentialScope::Observe)?;
    let task = ops.tickets.task_of(id).ok_or_else(|| Refusal::new(RefusalCode::NotFound, "there is no such ticket"))?;
    let task = ops.records.find(caller, &task.to_string())?;
    ops.records.state(task)
}

fn refused(message: &str) -> Refusal {
    Refusal::new(RefusalCode::Forbidden, message).hint("run the command again: its hook asks anew")
}

impl Tickets {
    fn add(&self, ops: &Arc<Ops>, ticket: Ticket) -> Result<String, Refusal> {
        let id = format!("ti_{}", URL_SAFE_NO_PAD.encode(random::<16>()));
        let mut out = lock(&self.out);
        if out.len() >= MAX_OUT {
            return Err(Refusal::new(RefusalCode::TooMany, "too many tickets are out").hint("try again in a minute"));
        }
        out.insert(id.clone(), ticket);
        drop(out);
        let (ops, late) = (Arc::clone(ops), id.clone());
        tokio::spawn(async move {
            tokio::time::sleep(GOOD_FOR).await;
            let ticket = lock(&ops.tickets.out).remove(&late);
            if let Some(ticket) = ticket {
                ops.tickets.unredeemed(&ops, ticket).await;
            }
        });
        Ok(id)
    }

    /// The house goes down: nobody will come with these any more.
    pub(crate) async fn take_back(&self, ops: &Ops) -> usize {
        let out: Vec<Ticket> = {
            let mut out = lock(&self.out);
            out.drain().map(|(_, ticket)| ticket).collect()
        };
        let all = out.len();
        for ticket in out {
            self.unredeemed(ops, ticket).await;
        }
        all
    }

    /// Nobody came with it: it is on record all the same.
    async fn unredeemed(&self, ops: &Ops, ticket: Ticket) {
        let AskCall { planned, opens, .. } = *ticket.asking;
        let by = Text::from_static("its agent, which did not run it");
        let event = DeskEvent::Unredeemed { task: new_task(), planned: Box::new(planned), opens, by };
        if let Err(e) = decide(ops, event).await {
            crate::log!("a ticket that nobody came with is not on record: {}", e.refusal);
        }
    }

    /// The ticket, if it is for exactly this and for whoever comes with it. It is gone whatever it was used for: what
    /// was tried with another command is not tried again with the right one.
    fn take(&self, ops: &Arc<Ops>, caller: &Caller, id: &str, command: &str) -> Result<Ticket, Refusal> {
        let taken = lock(&self.out).remove(id);
        let unknown = || {
            Refusal::new(RefusalCode::NotFound, "there is no such ticket: it was used, or a minute has gone by")
                .hint("run the command again: its hook asks anew")
        };
        let ticket = taken.ok_or_else(unknown)?;
        let roster = Arc::clone(&ops.roster.borrow());
        let agent = roster.session(ticket.session).and_then(|s| s.agent);
        let theirs = match &caller.sees {
            Visibility::Session(own) if *own == ticket.session => true,
            Visibility::Session(own) => {
                roster.session(*own).is_some_and(|own| own.agent.is_some() && own.agent == agent)
            }
            Visibility::All | Visibility::Own => false,
        };
        let why = match () {
            () if caller.kind != CredentialKind::Agent || !theirs => "this ticket was given to another agent's process",
            () if ticket.command != command => "this ticket is for another command",
            () => return Ok(ticket),
        };
        let at = Arc::clone(ops);
        tokio::spawn(async move { at.tickets.unredeemed(&at, ticket).await });
        Err(refused(why))
    }

    fn was_redeemed(&self, id: String, task: TaskId) {
        let mut redeemed = lock(&self.redeemed);
        redeemed.push_back((id, task));
        if redeemed.len() > MAX_OUT {
            redeemed.pop_front();
        }
    }

    fn task_of(&self, id: &str) -> Option<TaskId> {
        let redeemed = lock(&self.redeemed);
        redeemed.iter().find(|(known, _)| known == id).map(|(_, task)| *task)
    }
}
