//! Approvals: questions that wait for a person, and their answers.

use super::{ApiResult, Ops};
use crate::{
    caller::Caller,
    calls::AnswerCall,
    case::Case,
    desk::FactsAtLaunch,
    facts::{self, Prepared},
    peer,
    users::with_user_ids,
};
use countersign_model::{
    Approval, ApprovalId, ApprovalState, AskerPresence, Card, Channel, Choice, CredentialKind, CredentialScope,
    DecidedBy, DisplaySafe, Grants, Refusal, RefusalCode, Request, Requester, Session, SessionId, TaskId, TaskRefusal,
    Tool, Via,
    api::{AnswerBody, ApprovalPage, ApprovalQuery},
};
use countersign_store::{InBandAnswers, clock};
use std::{collections::HashMap, sync::Arc};

const PAGE: usize = 100;
const MAX_PAGE: usize = 500;
/// The most that a person may say with a denial.
const MAX_WORDS_BYTES: usize = 4096;
/// How much of an id must be given: what is not there must not mean the only question that is.
const MIN_ID_CHARACTERS: usize = "ap_0000".len();
/// How many questions of one session are shown at once; the others wait until one of them is answered.
const MAX_CARDS_PER_SESSION: usize = 8;

/// The tasks that wait with a card, oldest first, and how many wait without one.
fn carded(ops: &Ops, caller: &Caller) -> ApiResult<(Vec<TaskId>, usize)> {
    let mut cards: HashMap<Option<SessionId>, usize> = HashMap::new();
    let (mut with, mut without) = (Vec::new(), 0);
    for (task, session) in ops.records.ledger(|r| r.tasks_waiting_for_approval(caller.principal))? {
        if !caller.sees(&ops.records.roster(), caller.principal, session) {
            continue;
        }
        let shown = cards.entry(session).or_default();
        if *shown < MAX_CARDS_PER_SESSION {
            with.push(task);
        } else {
            without += 1;
        }
        *shown += 1;
    }
    Ok((with, without))
}

/// The tasks that wait with a card, oldest first.
pub(crate) fn with_card(ops: &Ops, caller: &Caller) -> ApiResult<Vec<TaskId>> {
    Ok(carded(ops, caller)?.0)
}

/// Those that wait and have a card, oldest first; or all, newest first.
pub(crate) async fn list(ops: &Arc<Ops>, caller: &Caller, query: ApprovalQuery) -> ApiResult<ApprovalPage> {
    caller.may(CredentialScope::Observe)?;
    let limit = super::page_limit(query.limit, PAGE, MAX_PAGE)?;
    let (ops, caller) = (Arc::clone(ops), caller.clone());
    crate::blocking(move || page(&ops, &caller, query, limit)).await?
}

fn page(ops: &Ops, caller: &Caller, query: ApprovalQuery, limit: usize) -> ApiResult<ApprovalPage> {
    let (mut tasks, without_card) = if query.all {
        (ops.records.ledger(|r| r.tasks_with_approval(caller.principal, query.cursor, limit as u32 + 1))?, 0)
    } else {
        let (mut with, without) = carded(ops, caller)?;
        with.retain(|task| query.cursor.is_none_or(|cursor| *task > cursor));
        (with, without)
    };
    let more = tasks.len() > limit;
    tasks.truncate(limit);
    let next = tasks.last().copied().filter(|_| more);
    let (mut approvals, all, roster) = (Vec::new(), tasks.len(), ops.records.roster());
    for task in tasks {
        let approval = of_task(ops, task)?;
        approvals.extend(approval.filter(|a| caller.sees(&roster, a.principal, a.session_id)));
    }
    // A caller who does not see everything is not told that there is more of others.
    let next = next.filter(|_| approvals.len() == all);
    Ok(ApprovalPage { approvals, next, without_card })
}

/// The approval of a task as it is now, and whether its asker is there.
pub(crate) fn of_task(ops: &Ops, task: TaskId) -> ApiResult<Option<Approval>> {
    let approval = Approval::from_task(&ops.records.state(task)?);
    Ok(approval.map(|mut approval| {
        if approval.state == ApprovalState::Waiting {
            let asker = ops.records.waiting(task).and_then(|w| w.asker);
            // Where it cannot be told, nobody is said to have gone.
            approval.asker = asker
                .map(|p| if peer::is_there(p) == Ok(false) { AskerPresence::Gone } else { AskerPresence::Waiting });
        }
        approval
    }))
}

/// One approval, with all that a person should know before answering.
pub(crate) async fn show(ops: &Arc<Ops>, caller: &Caller, id: &str) -> ApiResult<Approval> {
    caller.may(CredentialScope::Observe)?;
    let (_, task) = find(ops, caller, id)?;
    let mut approval = read(ops, task)?;
    if approval.state == ApprovalState::Waiting && approval.tool == Tool::Shell {
        approval.card = card(ops, caller, task, &approval.options).await;
    }
    Ok(approval)
}

/// What a person should know before answering; none when the world has moved on so far that it cannot be looked at.
async fn card(ops: &Arc<Ops>, caller: &Caller, task: TaskId, options: &[Choice]) -> Option<Card> {
    let _turn = ops.turn(caller.principal).await;
    let look = {
        let ops = Arc::clone(ops);
        crate::blocking(move || {
            let kept = ops.records.waiting(task)?;
            let run_as = ops.users.run_as(kept.uid).ok()?;
            let mut prepared = facts::prepare(&kept.request, &ops.key, &run_as).ok()?;
            // What was asked about, not what is there now: a script that has changed since says so.
            prepared.facts.scripts = kept.facts.scripts;
            Some((prepared, kept.request))
        })
    };
    let (prepared, request) = look.await.ok()??;
    let requester = Requester::from_task(&ops.records.state(task).ok()?);
    let gate = Arc::clone(&ops.gate);
    let judged = ops.commit.read(move |register| {
        let session = requester.session.and_then(|s| register.roster.session(s)).cloned();
        let (now, grants) = (clock::now(), &register.grants);
        let case = Case {
            request: &request,
            prepared: &prepared,
            settings: &gate,
            requester: &requester,
            session: session.as_deref(),
            grants,
            now,
        };
        let assessment = case.assess();
        // What it rests on goes along, not everything that was ever granted.
        let grants =
            Grants::from_grants(assessment.grants().into_iter().filter_map(|id| grants.get(id).cloned()).collect());
        (request, prepared, session, grants, now, assessment)
    });
    let (request, prepared, session, grants, now, assessment) = judged.await.ok()?;
    let (gate, options) = (Arc::clone(&ops.gate), options.to_vec());
    let made = crate::blocking(move || {
        let (prepared, session) = (&prepared, session.as_deref());
        let case =
            Case { request: &request, prepared, settings: &gate, requester: &requester, session, grants: &grants, now };
        let asked_by = asked_by(requester.credential, session);
        // Scripts are shown as whom they run as reads them.
        with_user_ids(prepared.user.as_ref(), || case.card(&asked_by, &options, &assessment)).ok()
    });
    made.await.ok()?
}

/// Who asks, for whoever is asked.
fn asked_by(kind: CredentialKind, session: Option<&Session>) -> String {
    let who = match (kind, session.map(|s| &s.by)) {
        (CredentialKind::Person, Some(Via::Socket) | None) => "you".to_owned(),
        (CredentialKind::Person, Some(by)) => by.to_string(),
        (CredentialKind::Agent, Some(by @ Via::Token(_))) => format!("an agent, {by}"),
        (CredentialKind::Agent, _) => "an agent".to_owned(),
    };
    match session {
        Some(Session { implicit: None, id, title, .. }) => {
            let title = title.as_ref().map_or(String::new(), |t| format!(" \"{t}\""));
            format!("{who}, in session {id}{title}")
        }
        _ => who,
    }
}

/// A person's answer. Whatever it saves lets go every request that it covers.
pub(crate) async fn answer(ops: &Arc<Ops>, caller: &Caller, id: &str, body: AnswerBody) -> ApiResult<Approval> {
    caller.may(CredentialScope::Approve)?;
    if body.words.as_ref().is_some_and(|w| w.len() > MAX_WORDS_BYTES) {
        return Err(Refusal::new(RefusalCode::TooLarge, "`words` takes at most 4096 bytes").into());
    }
    if body.words.is_some() && body.choice != Choice::Deny || body.any_arguments && !body.choice.saves() {
        let refusal =
            Refusal::new(RefusalCode::BadRequest, "`words` go with `deny`, `any_arguments` with what is saved");
        return Err(refusal.into());
    }
    let (approval, task) = find(ops, caller, id)?;
    commit_answer(ops, task, approval, caller.by(), body).await?;
    read(ops, task)
}

/// An answer that came through the agent's own client. The desk knows what such an answer is worth.
pub(crate) async fn answer_in_band(
    ops: &Arc<Ops>,
    task: TaskId,
    approval: ApprovalId,
    choice: Choice,
    via: Via,
) -> ApiResult<()> {
    if ops.config.approvals.in_band == InBandAnswers::Off {
        return Err(Refusal::new(
            RefusalCode::OptionNotOffered,
            "nothing is answered through the agent's own client here",
        )
        .hint("answer it as a person: csn approvals answer")
        .into());
    }
    let principal = ops.records.state(task)?.request.principal;
    let by = DecidedBy::Person { principal, surface: via, channel: Channel::InBand };
    commit_answer(ops, task, approval, by, AnswerBody { choice, words: None, any_arguments: false }).await
}

async fn commit_answer(
    ops: &Arc<Ops>,
    task: TaskId,
    approval: ApprovalId,
    by: DecidedBy,
    body: AnswerBody,
) -> ApiResult<()> {
    let AnswerBody { choice, words, any_arguments } = body;
    let words = words.filter(|w| !w.trim().is_empty()).map(|w| countersign_redact::text_by_shape(&w));
    let (world, prepared) = match choice {
        Choice::Deny => (FactsAtLaunch::Same, None),
        _ => again(ops, task).await?,
    };
    match ops.commit.answer(AnswerCall { task, approval, choice, any_arguments, words, by, world, prepared }).await {
        Ok(()) => Ok(()),
        Err(refusal) if refusal.code == RefusalCode::AlreadyAnswered => Err(already(ops, task, refusal)),
        Err(refusal) => Err(TaskRefusal::from(refusal).of_task(task)),
    }
}

async fn again(ops: &Arc<Ops>, task: TaskId) -> ApiResult<(FactsAtLaunch, Option<(Prepared, Request)>)> {
    let ops = Arc::clone(ops);
    Ok(crate::blocking(move || facts::prepare_again(&ops.home, &ops.key, &ops.users, task)).await??)
}

/// A second answer is told of the first.
fn already(ops: &Ops, task: TaskId, refusal: Refusal) -> TaskRefusal {
    let told = match read(ops, task).map(|a| a.state) {
        Ok(ApprovalState::Answered { choice, by, at, .. }) => {
            Refusal::new(RefusalCode::AlreadyAnswered, format!("already answered `{choice}` by {by} at {at}"))
        }
        Ok(ApprovalState::Withdrawn) => Refusal::new(RefusalCode::AlreadyAnswered, "the request was withdrawn"),
        _ => refusal,
    };
    TaskRefusal::from(told).of_task(task)
}

fn read(ops: &Ops, task: TaskId) -> ApiResult<Approval> {
    of_task(ops, task)?.ok_or_else(|| unknown(&task.to_string()).into())
}

/// By a whole id, or the beginning of exactly one; one that may not be seen is not there.
fn find(ops: &Ops, caller: &Caller, text: &str) -> ApiResult<(ApprovalId, TaskId)> {
    let whole: Option<ApprovalId> = text.parse().ok();
    let prefix = if text.starts_with("ap_") { text.to_owned() } else { format!("ap_{text}") };
    if prefix.len() < MIN_ID_CHARACTERS {
        return Err(unknown(text).into());
    }
    let found = ops.records.ledger(|r| {
        let all = match whole {
            Some(approval) => r.task_of_approval(approval)?.map(|task| (approval, task)).into_iter().collect(),
            None => r.approvals_by_prefix(&prefix, caller.principal)?,
        };
        let mut seen = Vec::new();
        for (approval, task) in all {
            seen.extend(
                r.task_owner(task)?
                    .filter(|(p, s)| caller.sees(&ops.records.roster(), *p, *s))
                    .map(|_| (approval, task)),
            );
        }
        Ok(seen)
    })?;
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(unknown(text).into()),
        _ => Err(Refusal::new(RefusalCode::AmbiguousId, format!("more than one approval begins with {prefix}"))
            .hint("give more characters of the id")
            .into()),
    }
}

fn unknown(text: &str) -> Refusal {
    let shown = DisplaySafe::bounded(text, 60);
    Refusal::new(RefusalCode::NotFound, format!("there is no approval {shown}"))
        .hint("`csn approvals list` shows what waits")
}
