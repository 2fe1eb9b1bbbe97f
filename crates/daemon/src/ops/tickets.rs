//! Hooks and tickets: agents that ask before their own shell runs a command.
//!
//! A hook is answered immediately. A denied command becomes a denied task. A command that may run, or that needs an
//! approval, gets a *ticket*: `csn exec` redeems it once, with the same command, from below the same agent, and the
//! daemon runs it. The gate decides at that time, with the command's real environment. A ticket that is never redeemed
//! becomes a withdrawn task.
//!
//! In *witness mode* the agent runs the command itself: the daemon decides and records, and the agent reports the
//! outcome.

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

/// How long a ticket is valid.
const TICKET_LIFETIME: Duration = Duration::from_secs(60);
/// How many tickets may be open; beyond that a hook is denied.
const MAX_OPEN_TICKETS: usize = 1024;
/// The label with the agent's id for one use of its tool.
const TOOL_USE_LABEL: &str = "tool_use_id";
/// How long an agent's tool waits by default.
const DEFAULT_TOOL_TIMEOUT_MS: u64 = 100_000;

/// The open tickets, and the tasks of redeemed ones.
#[derive(Default)]
pub(crate) struct Tickets {
    open: Mutex<HashMap<String, Ticket>>,
    /// The tasks of recently redeemed tickets.
    redeemed: Mutex<VecDeque<(String, TaskId)>>,
}

/// The decision of a hook, to be redeemed once.
struct Ticket {
    session: SessionId,
    command: String,
    cwd: String,
    patience_ms: u64,
    may_change_directory: bool,
    /// The request: recorded if the ticket is never redeemed; its title and labels are used if it is.
    asking: Box<AskCall>,
}

/// An agent asks before its own shell runs a command.
pub(crate) async fn hook_before(
    ops: &Arc<Ops>,
    caller: &Caller,
    body: HookBeforeBody,
) -> ApiResult<HookBeforeResponse> {
    caller.require_scope(CredentialScope::Run)?;
    let HookBeforeBody { conversation, command, inherit, title, mut labels, tool_use, patience_ms, witness } = body;
    let (caller, session) = sessions::conversation_session(ops, caller, &conversation).await?;
    labels.insert("agent".to_owned(), conversation.agent.clone());
    labels.extend(tool_use.map(|id| (TOOL_USE_LABEL.to_owned(), id)));
    let args = Command { command: Some(command.clone()), cwd: Some(conversation.cwd), inherit, ..Command::default() };
    let mut request = session_request(args, &session);
    (request.title, request.labels, request.attended) = (title, labels, !witness);
    let asking = intake::prepare(ops, &caller, request, None).await?;
    let (mut asking, assessment) = intake::judge(ops, asking).await?;
    let refused = asking.refused.clone().or(match &assessment.verdict {
        Verdict::Deny(refusal) => Some(refusal.clone()),
        Verdict::Allow { .. } | Verdict::Ask { .. } => None,
    });
    if let Some(refusal) = refused {
        (asking.refused, asking.judged) = (Some(refusal), Some(Box::new(assessment)));
        return match intake::commit_ask(ops, *asking).await {
            Err(refused) => Ok(denied_response(refused)),
            Ok(_) => Err(Refusal::new(RefusalCode::Internal, "a denied request was allowed").into()),
        };
    }
    if witness {
        // In witness mode nobody is asked: whatever is not allowed was denied above.
        let Verdict::Allow { rule } = assessment.verdict else {
            return Err(Refusal::new(RefusalCode::Internal, "a request in witness mode needs an approval").into());
        };
        let agent = text_by_shape(&conversation.agent);
        let task = record_observed(ops, *asking, rule, assessment.grants(), agent).await?;
        return Ok(HookBeforeResponse::Allow { ticket: None, moves: None, task_id: Some(task) });
    }
    let asks = matches!(assessment.verdict, Verdict::Ask { .. });
    let moves = may_change_directory(&asking.prepared.plan);
    let ticket = Ticket {
        session: session.id,
        cwd: asking.prepared.facts.cwd.resolved.clone(),
        patience_ms: patience_ms.unwrap_or(DEFAULT_TOOL_TIMEOUT_MS),
        command,
        may_change_directory: moves,
        asking,
    };
    let ticket = ops.tickets.add(ops, ticket)?;
    Ok(if asks {
        HookBeforeResponse::Ask { ticket, moves }
    } else {
        HookBeforeResponse::Allow { ticket: Some(ticket), moves: Some(moves), task_id: None }
    })
}

/// A request within a session, with defaults.
fn session_request(args: Command, session: &Session) -> Request {
    Request { session_id: Some(session.id), ..Request::new(Tool::Shell, args) }
}

/// Whether the shell may end in another directory than it started in.
fn may_change_directory(plan: &Plan) -> bool {
    let changes_directory = |verb: &str| matches!(verb, "cd" | "pushd" | "popd");
    plan.occurrences.iter().any(|o| !o.shadow && (changes_directory(o.verb.as_str()) || o.opaque.is_some()))
}

/// A denial, as the reply to a hook.
fn denied_response(TaskRefusal { refusal, task }: TaskRefusal) -> HookBeforeResponse {
    HookBeforeResponse::Deny {
        code: refusal.code,
        reason: text_by_shape(&refusal.message),
        hint: refusal.hint.map(|hint| text_by_shape(&hint)),
        task_id: task,
    }
}

fn mint_task_id() -> TaskId {
    TaskId::mint(&mut IdMint::default(), clock::now().millis(), u32::from_le_bytes(random()))
}

async fn commit_event(ops: &Ops, event: DeskEvent) -> ApiResult<()> {
    Ok(ops.commit.decide(vec![event]).await?)
}

async fn record_observed(
    ops: &Ops,
    asking: AskCall,
    rule: &'static str,
    grants: Vec<GrantId>,
    by: Text,
) -> ApiResult<TaskId> {
    let task = mint_task_id();
    let AskCall { planned, opens, .. } = asking;
    commit_event(ops, DeskEvent::Observed { task, planned: Box::new(planned), opens, rule, grants, by }).await?;
    Ok(task)
}

/// The agent reports the outcome of a command that it ran in witness mode.
pub(crate) async fn hook_after(ops: &Arc<Ops>, caller: &Caller, body: HookAfterBody) -> ApiResult<HookAfterResponse> {
    caller.require_scope(CredentialScope::Run)?;
    let HookAfterBody { conversation, tool_use, exit_code, interrupted } = body;
    let (_, session) = sessions::conversation_session(ops, caller, &conversation).await?;
    let unknown = || {
        Refusal::new(
            RefusalCode::NotFound,
            "no running command has this `tool_use`, or its outcome was already reported",
        )
    };
    let task = find_observed(ops, session.id, &tool_use)?.ok_or_else(unknown)?;
    let outcome = match (interrupted, exit_code) {
        (true, _) => Outcome::Cancelled { by: text_by_shape(&conversation.agent), reason: None },
        (false, Some(code)) => Outcome::Exited { code },
        (false, None) => Outcome::Lost { why: Text::from_static("the agent did not report the outcome") },
    };
    commit_event(ops, DeskEvent::OutcomeReported { task, outcome }).await?;
    Ok(HookAfterResponse { task_id: task })
}

/// The newest open task of a session that runs in witness mode under this tool use.
fn find_observed(ops: &Ops, session: SessionId, tool_use: &str) -> ApiResult<Option<TaskId>> {
    for task in ops.records.read_ledger(|r| r.open_tasks_of_session(session))?.into_iter().rev() {
        let state = ops.records.state(task)?;
        let named = state.request.labels.get(TOOL_USE_LABEL).is_some_and(|name| name.as_str() == tool_use);
        if state.observed() && !state.settled() && named {
            return Ok(Some(task));
        }
    }
    Ok(None)
}

/// Redeems a ticket: runs its command.
pub(crate) async fn redeem(ops: &Arc<Ops>, caller: &Caller, id: &str, body: RedeemBody) -> ApiResult<RedeemResponse> {
    caller.require_scope(CredentialScope::Run)?;
    let ticket = ops.tickets.take(ops, caller, id, &body.command)?;
    let (ops, caller, id) = (Arc::clone(ops), caller.clone(), id.to_owned());
    // Runs to its end even if the caller disconnects: a redeemed ticket must lead to a task.
    let done = tokio::spawn(async move {
        let patience_ms = ticket.patience_ms;
        match run_ticket(&ops, &caller, &ticket, body).await {
            Ok(task) => {
                ops.tickets.remember_redeemed(id, task.task_id);
                Ok(RedeemResponse { task, patience_ms })
            }
            // A denial has its own task.
            Err(refused) if refused.task.is_some() => Err(refused),
            Err(refused) => {
                ops.tickets.record_unredeemed(&ops, ticket).await;
                Err(refused)
            }
        }
    });
    done.await.map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string()))?
}

async fn run_ticket(ops: &Arc<Ops>, caller: &Caller, ticket: &Ticket, redeemed: RedeemBody) -> ApiResult<TaskState> {
    let RedeemBody { command, cwd, inherit } = redeemed;
    let missing = || Refusal::new(RefusalCode::NotFound, "the session of this ticket does not exist any more");
    let session = ops.roster.borrow().session(ticket.session).cloned().ok_or_else(missing)?;
    let args = Command {
        command: Some(command),
        cwd: Some(cwd),
        inherit,
        tell_directory: ticket.may_change_directory,
        ..Command::default()
    };
    let mut request = session_request(args, &session);
    (request.title, request.labels) = (ticket.asking.request.title.clone(), ticket.asking.request.labels.clone());
    let asking = intake::prepare(ops, &caller.as_agent(&session), request, None).await?;
    if asking.prepared.facts.cwd.resolved != ticket.cwd {
        return Err(ticket_refusal("this ticket is for another directory").into());
    }
    let asked = intake::commit_ask(ops, asking).await?;
    match asked.state {
        Some(state) => {
            ops.records.cache_new_task(&state);
            Ok(*state)
        }
        None => ops.records.state(asked.task),
    }
}

/// The task that a ticket was redeemed for.
pub(crate) fn task_of_ticket(ops: &Ops, caller: &Caller, id: &str) -> ApiResult<TaskState> {
    caller.require_scope(CredentialScope::Observe)?;
    let task = ops
        .tickets
        .task_of(id)
        .ok_or_else(|| Refusal::new(RefusalCode::NotFound, "there is no ticket with this id"))?;
    let task = ops.records.find_task(caller, &task.to_string())?;
    ops.records.state(task)
}

fn ticket_refusal(message: &str) -> Refusal {
    Refusal::new(RefusalCode::Forbidden, message).hint("run the command again; its hook gets a new ticket")
}

impl Tickets {
    fn add(&self, ops: &Arc<Ops>, ticket: Ticket) -> Result<String, Refusal> {
        let id = format!("ti_{}", URL_SAFE_NO_PAD.encode(random::<16>()));
        let mut out = lock(&self.open);
        if out.len() >= MAX_OPEN_TICKETS {
            return Err(Refusal::new(RefusalCode::TooMany, "too many tickets are open").hint("try again in a minute"));
        }
        out.insert(id.clone(), ticket);
        drop(out);
        let (ops, late) = (Arc::clone(ops), id.clone());
        tokio::spawn(async move {
            tokio::time::sleep(TICKET_LIFETIME).await;
            let ticket = lock(&ops.tickets.open).remove(&late);
            if let Some(ticket) = ticket {
                ops.tickets.record_unredeemed(&ops, ticket).await;
            }
        });
        Ok(id)
    }

    /// Records all open tickets as withdrawn, because the daemon stops; returns their number.
    pub(crate) async fn withdraw_all(&self, ops: &Ops) -> usize {
        let out: Vec<Ticket> = {
            let mut out = lock(&self.open);
            out.drain().map(|(_, ticket)| ticket).collect()
        };
        let all = out.len();
        for ticket in out {
            self.record_unredeemed(ops, ticket).await;
        }
        all
    }

    /// Records a ticket that was never redeemed.
    async fn record_unredeemed(&self, ops: &Ops, ticket: Ticket) {
        let AskCall { planned, opens, .. } = *ticket.asking;
        let by = Text::from_static("the agent, which did not run it");
        let event = DeskEvent::Unredeemed { task: mint_task_id(), planned: Box::new(planned), opens, by };
        if let Err(e) = commit_event(ops, event).await {
            crate::log!("an unredeemed ticket could not be recorded: {}", e.refusal);
        }
    }

    /// Takes the ticket, if it is for this command and this caller. It is used up in any case: a caller that tried
    /// another command cannot try again with the right one.
    fn take(&self, ops: &Arc<Ops>, caller: &Caller, id: &str, command: &str) -> Result<Ticket, Refusal> {
        let taken = lock(&self.open).remove(id);
        let unknown = || {
            Refusal::new(
                RefusalCode::NotFound,
                "this ticket does not exist, was already used, or is older than a minute",
            )
            .hint("run the command again; its hook gets a new ticket")
        };
        let ticket = taken.ok_or_else(unknown)?;
        let roster = Arc::clone(&ops.roster.borrow());
        let agent = roster.session(ticket.session).and_then(|s| s.agent);
        let same_agent = match &caller.visibility {
            Visibility::Session(own) if *own == ticket.session => true,
            Visibility::Session(own) => {
                roster.session(*own).is_some_and(|own| own.agent.is_some() && own.agent == agent)
            }
            Visibility::All | Visibility::Own => false,
        };
        let why = match () {
            () if caller.kind != CredentialKind::Agent || !same_agent => "this ticket belongs to another agent",
            () if ticket.command != command => "this ticket is for another command",
            () => return Ok(ticket),
        };
        let at = Arc::clone(ops);
        tokio::spawn(async move { at.tickets.record_unredeemed(&at, ticket).await });
        Err(ticket_refusal(why))
    }

    fn remember_redeemed(&self, id: String, task: TaskId) {
        let mut redeemed = lock(&self.redeemed);
        redeemed.push_back((id, task));
        if redeemed.len() > MAX_OPEN_TICKETS {
            redeemed.pop_front();
        }
    }

    fn task_of(&self, id: &str) -> Option<TaskId> {
        let redeemed = lock(&self.redeemed);
        redeemed.iter().find(|(known, _)| known == id).map(|(_, task)| *task)
    }
}
