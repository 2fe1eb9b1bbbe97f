//! Approvals: requests that wait for a person, and the answers to them.

use super::{ApiResult, Ops};
use crate::{
    caller::Caller,
    calls::AnswerCall,
    case::Case,
    desk::FactsAtLaunch,
    facts::{self, PreparedRequest},
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

const DEFAULT_PAGE_ITEMS: usize = 100;
const MAX_PAGE_ITEMS: usize = 500;
/// The most that a person may write with a denial.
const MAX_WORDS_BYTES: usize = 4096;
/// The shortest prefix of an id: an unset variable must not name the only approval there is.
const MIN_ID_CHARACTERS: usize = "ap_0000".len();
/// How many approvals of one session are shown with a card; the others wait until one is answered.
const MAX_CARDS_PER_SESSION: usize = 8;

/// The tasks that wait with a card, oldest first, and how many wait without one.
fn tasks_with_card(ops: &Ops, caller: &Caller) -> ApiResult<(Vec<TaskId>, usize)> {
    let mut cards: HashMap<Option<SessionId>, usize> = HashMap::new();
    let (mut with, mut without) = (Vec::new(), 0);
    for (task, session) in ops.records.read_ledger(|r| r.tasks_waiting_for_approval(caller.principal))? {
        if !caller.can_see(&ops.records.roster(), caller.principal, session) {
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
pub(crate) fn pending_with_card(ops: &Ops, caller: &Caller) -> ApiResult<Vec<TaskId>> {
    Ok(tasks_with_card(ops, caller)?.0)
}

/// The waiting approvals with a card, oldest first; or all approvals, newest first.
pub(crate) async fn list(ops: &Arc<Ops>, caller: &Caller, query: ApprovalQuery) -> ApiResult<ApprovalPage> {
    caller.require_scope(CredentialScope::Observe)?;
    let limit = super::page_limit(query.limit, DEFAULT_PAGE_ITEMS, MAX_PAGE_ITEMS)?;
    let (ops, caller) = (Arc::clone(ops), caller.clone());
    crate::blocking(move || page(&ops, &caller, query, limit)).await?
}

fn page(ops: &Ops, caller: &Caller, query: ApprovalQuery, limit: usize) -> ApiResult<ApprovalPage> {
    let (mut tasks, without_card) = if query.all {
        (ops.records.read_ledger(|r| r.tasks_with_approval(caller.principal, query.cursor, limit as u32 + 1))?, 0)
    } else {
        let (mut with, without) = tasks_with_card(ops, caller)?;
        with.retain(|task| query.cursor.is_none_or(|cursor| *task > cursor));
        (with, without)
    };
    let more = tasks.len() > limit;
    tasks.truncate(limit);
    let next = tasks.last().copied().filter(|_| more);
    let (mut approvals, all, roster) = (Vec::new(), tasks.len(), ops.records.roster());
    for task in tasks {
        let approval = approval_of_task(ops, task)?;
        approvals.extend(approval.filter(|a| caller.can_see(&roster, a.principal, a.session_id)));
    }
    // A caller that does not see everything must not learn that others have more.
    let next = next.filter(|_| approvals.len() == all);
    Ok(ApprovalPage { approvals, next, without_card })
}

/// The approval of a task as it is now, and whether its requester is still there.
pub(crate) fn approval_of_task(ops: &Ops, task: TaskId) -> ApiResult<Option<Approval>> {
    let approval = Approval::from_task(&ops.records.state(task)?);
    Ok(approval.map(|mut approval| {
        if approval.state == ApprovalState::Waiting {
            let asker = ops.records.waiting_request(task).and_then(|w| w.asker);
            // If this cannot be determined, the requester counts as waiting.
            approval.asker = asker
                .map(|p| if peer::is_running(p) == Ok(false) { AskerPresence::Gone } else { AskerPresence::Waiting });
        }
        approval
    }))
}

/// One approval, with its card.
pub(crate) async fn show(ops: &Arc<Ops>, caller: &Caller, id: &str) -> ApiResult<Approval> {
    caller.require_scope(CredentialScope::Observe)?;
    let (_, task) = find_approval(ops, caller, id)?;
    let mut approval = read_approval(ops, task)?;
    // A session that asks for another directory saves nothing, and runs nothing.
    if approval.state == ApprovalState::Waiting && approval.tool != Tool::SetWorkingDirectory {
        approval.card = build_card(ops, caller, task, &approval.options).await;
    }
    Ok(approval)
}

/// The card of an approval; none if its facts cannot be looked up any more.
async fn build_card(ops: &Arc<Ops>, caller: &Caller, task: TaskId, options: &[Choice]) -> Option<Card> {
    let _turn = ops.acquire_lookup_slot(caller.principal).await;
    let preparing = {
        let ops = Arc::clone(ops);
        crate::blocking(move || {
            let stored = ops.records.waiting_request(task)?;
            let run_as = ops.users.run_as(stored.uid).ok()?;
            let mut prepared = facts::prepare(&stored.request, &ops.key, &run_as).ok()?;
            // The scripts of the request, not those of now: the card marks a script that has changed.
            prepared.facts.scripts = stored.facts.scripts;
            Some((prepared, stored.request))
        })
    };
    let (prepared, request) = preparing.await.ok()??;
    let requester = Requester::from_task(&ops.records.state(task).ok()?);
    let gate = Arc::clone(&ops.gate);
    let judged = ops.commit.read_register(move |register| {
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
        // Keep only the grants that the verdict depends on.
        let grants =
            Grants::from_grants(assessment.grants().into_iter().filter_map(|id| grants.get(id).cloned()).collect());
        (request, prepared, session, grants, now, assessment)
    });
    let (request, prepared, session, grants, now, assessment) = judged.await.ok()?;
    let (gate, options) = (Arc::clone(&ops.gate), options.to_vec());
    let building = crate::blocking(move || {
        let (prepared, session) = (&prepared, session.as_deref());
        let case =
            Case { request: &request, prepared, settings: &gate, requester: &requester, session, grants: &grants, now };
        let asked_by = describe_requester(requester.credential, session);
        // Scripts are read as the user that the task runs as.
        with_user_ids(prepared.user.as_ref(), || case.card(&asked_by, &options, &assessment)).ok()
    });
    building.await.ok()?
}

/// The requester, for the card.
fn describe_requester(kind: CredentialKind, session: Option<&Session>) -> String {
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

/// Answers an approval as a person. A saved grant releases every waiting request that it covers.
pub(crate) async fn answer(ops: &Arc<Ops>, caller: &Caller, id: &str, body: AnswerBody) -> ApiResult<Approval> {
    caller.require_scope(CredentialScope::Approve)?;
    if body.words.as_ref().is_some_and(|w| w.len() > MAX_WORDS_BYTES) {
        return Err(Refusal::new(RefusalCode::TooLarge, "`words` must have at most 4096 bytes").into());
    }
    if body.words.is_some() && body.choice != Choice::Deny || body.any_arguments && !body.choice.saves() {
        let message = "`words` is only for the choice `deny`, `any_arguments` only for a choice that saves a grant";
        let refusal = Refusal::new(RefusalCode::BadRequest, message);
        return Err(refusal.into());
    }
    let (approval, task) = find_approval(ops, caller, id)?;
    commit_answer(ops, task, approval, caller.as_decider(), body).await?;
    read_approval(ops, task)
}

/// An answer through the agent's own client. The desk limits what such an answer may do.
pub(crate) async fn answer_in_band(
    ops: &Arc<Ops>,
    task: TaskId,
    approval: ApprovalId,
    choice: Choice,
    via: Via,
) -> ApiResult<()> {
    if ops.config.approvals.in_band == InBandAnswers::Off {
        let message = "this daemon does not accept answers through the agent's own client";
        let refusal = Refusal::new(RefusalCode::OptionNotOffered, message);
        return Err(refusal.hint("a person must answer this, for example with csn approvals answer").into());
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
        _ => prepare_again(ops, task).await?,
    };
    match ops.commit.answer(AnswerCall { task, approval, choice, any_arguments, words, by, world, prepared }).await {
        Ok(()) => Ok(()),
        Err(refusal) if refusal.code == RefusalCode::AlreadyAnswered => Err(answered_refusal(ops, task, refusal)),
        Err(refusal) => Err(TaskRefusal::from(refusal).of_task(task)),
    }
}

async fn prepare_again(ops: &Arc<Ops>, task: TaskId) -> ApiResult<(FactsAtLaunch, Option<(PreparedRequest, Request)>)> {
    let ops = Arc::clone(ops);
    Ok(crate::blocking(move || facts::prepare_again(&ops.home, &ops.key, &ops.users, task)).await??)
}

/// The refusal of a second answer; it names the first.
fn answered_refusal(ops: &Ops, task: TaskId, refusal: Refusal) -> TaskRefusal {
    let refusal = match read_approval(ops, task).map(|a| a.state) {
        Ok(ApprovalState::Answered { choice, by, at, .. }) => {
            Refusal::new(RefusalCode::AlreadyAnswered, format!("already answered with `{choice}` by {by} at {at}"))
        }
        Ok(ApprovalState::Withdrawn) => Refusal::new(RefusalCode::AlreadyAnswered, "the request was withdrawn"),
        _ => refusal,
    };
    TaskRefusal::from(refusal).of_task(task)
}

fn read_approval(ops: &Ops, task: TaskId) -> ApiResult<Approval> {
    approval_of_task(ops, task)?.ok_or_else(|| unknown_approval(&task.to_string()).into())
}

/// Finds an approval by its id or an unambiguous prefix. One that the caller may not see does not exist for it.
fn find_approval(ops: &Ops, caller: &Caller, text: &str) -> ApiResult<(ApprovalId, TaskId)> {
    let whole: Option<ApprovalId> = text.parse().ok();
    let prefix = if text.starts_with("ap_") { text.to_owned() } else { format!("ap_{text}") };
    if prefix.len() < MIN_ID_CHARACTERS {
        return Err(unknown_approval(text).into());
    }
    let found = ops.records.read_ledger(|r| {
        let all = match whole {
            Some(approval) => r.task_of_approval(approval)?.map(|task| (approval, task)).into_iter().collect(),
            None => r.approvals_by_prefix(&prefix, caller.principal)?,
        };
        let mut seen = Vec::new();
        for (approval, task) in all {
            seen.extend(
                r.task_owner(task)?
                    .filter(|(p, s)| caller.can_see(&ops.records.roster(), *p, *s))
                    .map(|_| (approval, task)),
            );
        }
        Ok(seen)
    })?;
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(unknown_approval(text).into()),
        _ => Err(Refusal::new(RefusalCode::AmbiguousId, format!("several approvals begin with {prefix}"))
            .hint("use more characters of the id")
            .into()),
    }
}

fn unknown_approval(text: &str) -> Refusal {
    let shown = DisplaySafe::bounded(text, 60);
    Refusal::new(RefusalCode::NotFound, format!("there is no approval {shown}"))
        .hint("`csn approvals list` shows the pending approvals")
}
