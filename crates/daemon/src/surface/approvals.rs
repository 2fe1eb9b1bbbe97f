//! `/approvals`: questions that wait for a person, and their answers.

use super::{
    Answer, Shared,
    arrive::Who,
    problem::{Problem, Query, Segment, Whole, body},
};
use crate::{
    desk::World,
    facts::{self, Looked},
    house::House,
    office::{Answering, Call},
    peer,
    people::in_the_name_of,
    question,
};
use axum::{Json, extract::State};
use countersign_model::{
    Approval, ApprovalId, ApprovalState, Asker, By, Card, Channel, Choice, Code, CredentialKind, Refusal, Request,
    Session, SessionId, TaskId, Tool,
};
use countersign_store::{InBand, clock, waiting};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc};
use tokio::sync::oneshot;

const PAGE: usize = 100;
const LARGEST_PAGE: usize = 500;
/// So much of an id must be given: what is not there must not mean the only question that is.
const SHORTEST_ID: usize = "ap_0000".len();
/// So many questions of one session are shown at once; the others wait until one of them is answered.
const CARDS: usize = 8;

/// The tasks that wait with a card, oldest first, and how many wait without one.
fn carded(house: &House, who: &Who) -> Answer<(Vec<TaskId>, usize)> {
    let mut cards: HashMap<Option<SessionId>, usize> = HashMap::new();
    let (mut with, mut without) = (Vec::new(), 0);
    for (task, session) in house.readers.with(|r| r.waiting_for_a_person(who.principal))? {
        if !who.sees(house, who.principal, session) {
            continue;
        }
        let shown = cards.entry(session).or_default();
        match *shown < CARDS {
            true => with.push(task),
            false => without += 1,
        }
        *shown += 1;
    }
    Ok((with, without))
}

/// The tasks that wait with a card, oldest first.
pub(crate) fn with_card(house: &House, who: &Who) -> Answer<Vec<TaskId>> {
    Ok(carded(house, who)?.0)
}

pub(crate) async fn list(State(house): Shared, who: Who, mut query: Query) -> Answer<Json<Value>> {
    let all = query.parse::<bool>("all", "true or false")?.unwrap_or(false);
    let cursor = query.parse::<TaskId>("cursor", "the `next` of an earlier page")?;
    let limit = query.limit(PAGE, LARGEST_PAGE)?;
    query.nothing_else()?;
    let page = tokio::task::spawn_blocking(move || page(&house, &who, all, cursor, limit)).await;
    Ok(Json(page.map_err(|e| Refusal::new(Code::Internal, e.to_string()))??))
}

fn page(house: &House, who: &Who, all: bool, cursor: Option<TaskId>, limit: usize) -> Answer<Value> {
    let (mut tasks, without) = match all {
        true => (house.readers.with(|r| r.asked(who.principal, cursor, limit as u32 + 1))?, 0),
        false => {
            let (mut with, without) = carded(house, who)?;
            with.retain(|task| cursor.is_none_or(|cursor| *task > cursor));
            (with, without)
        }
    };
    let more = tasks.len() > limit;
    tasks.truncate(limit);
    let next = tasks.last().copied().filter(|_| more);
    let mut approvals = Vec::new();
    let all = tasks.len();
    for task in tasks {
        let approval = of_task(house, task)?;
        approvals.extend(approval.filter(|a| who.sees(house, a.principal, a.session_id)));
    }
    // Who does not see everything is not told that there is more of others.
    let next = next.filter(|_| approvals.len() == all);
    Ok(json!({"approvals": approvals, "next": next, "without_card": without}))
}

/// The approval of a task as it is now, and whether its asker is there.
pub(crate) fn of_task(house: &House, task: TaskId) -> Answer<Option<Approval>> {
    let approval = Approval::of(&house.projections.state(house, task)?);
    Ok(approval.map(|mut approval| {
        if approval.state == ApprovalState::Waiting {
            let asker = waiting::read(&house.home, task).ok().and_then(|w| w.asker);
            // Where it cannot be told, nobody is said to have gone.
            approval.asker = asker.map(|p| if peer::is_there(p) == Ok(false) { Asker::Gone } else { Asker::Waiting });
        }
        approval
    }))
}

pub(crate) async fn show(State(house): Shared, who: Who, Segment(id): Segment) -> Answer<Json<Approval>> {
    let (_, task) = find(&house, &who, &id)?;
    let mut approval = read(&house, task)?;
    if approval.state == ApprovalState::Waiting && approval.tool == Tool::Shell {
        approval.card = card(&house, &who, task, &approval.options).await;
    }
    Ok(Json(approval))
}

/// What a person should know before answering; none when the world has moved on so far that it cannot be looked at.
async fn card(house: &Arc<House>, who: &Who, task: TaskId, options: &[Choice]) -> Option<Card> {
    let _turn = house.turn(who.principal).await;
    let look = {
        let house = Arc::clone(house);
        tokio::task::spawn_blocking(move || {
            let kept = waiting::read(&house.home, task).ok()?;
            let eyes = house.people.eyes(kept.uid).ok()?;
            let mut looked = facts::look(&kept.request, &house.key, &eyes).ok()?;
            // What was asked about, not what is there now: a script that has changed since says so.
            looked.facts.scripts = kept.facts.scripts;
            Some((looked, kept.request))
        })
    };
    let (looked, request) = look.await.ok()??;
    let judged = {
        let house = Arc::clone(house);
        let state = house.projections.state(&house, task).ok()?;
        let standing = crate::desk::Standing {
            principal: state.principal,
            session: state.session_id,
            audience: state.audience,
            credential: state.credential,
            profile: state.profile,
            tool: state.tool,
        };
        let read = Arc::clone(&house);
        read.read(move |register| {
            let session = standing.session.and_then(|s| register.roster.session(s)).cloned();
            let now = clock::now();
            let assessment =
                facts::assess(&request, &looked, &house.gate, &standing, session.as_deref(), &register.grants, now);
            (request, looked, standing, session, assessment)
        })
        .await
        .ok()?
    };
    let (house, options) = (Arc::clone(house), options.to_vec());
    let made = tokio::task::spawn_blocking(move || {
        let (request, looked, standing, session, assessment) = judged;
        let context = facts::context(&request, &looked, &house.gate, &standing, session.as_deref(), clock::now());
        let asked_by = asked_by(standing.credential, session.as_deref());
        // Scripts are shown as whom they run as reads them.
        in_the_name_of(looked.login.as_ref(), || {
            question::card(&request, &asked_by, &options, &looked, &assessment, &context, &house.gate.rules)
        })
        .ok()
    });
    made.await.ok()?
}

/// Who asks, for whoever is asked.
fn asked_by(kind: CredentialKind, session: Option<&Session>) -> String {
    let who = match (kind, session.map(|s| s.by.as_str())) {
        (CredentialKind::Person, Some("socket") | None) => "you".to_owned(),
        (CredentialKind::Person, Some(by)) => by.to_owned(),
        (CredentialKind::Agent, Some(by)) if by.starts_with("token ") => format!("an agent, {by}"),
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    choice: Choice,
    #[serde(default)]
    words: Option<String>,
    /// What is saved covers other operands too.
    #[serde(default)]
    any_arguments: bool,
}

pub(crate) async fn answer(
    State(house): Shared,
    who: Who,
    Segment(id): Segment,
    Whole(bytes): Whole,
) -> Answer<Json<Approval>> {
    let Given { choice, words, any_arguments } = body(&bytes)?;
    if words.as_ref().is_some_and(|w| w.len() > 4096) {
        return Err(Refusal::new(Code::TooLarge, "`words` takes at most 4096 bytes").into());
    }
    if words.is_some() && choice != Choice::Deny || any_arguments && !choice.saves() {
        let refusal = Refusal::new(Code::BadRequest, "`words` go with `deny`, `any_arguments` with what is saved");
        return Err(refusal.into());
    }
    let (approval, task) = find(&house, &who, &id)?;
    give(&house, task, approval, who.by(), Given { choice, words, any_arguments }).await?;
    Ok(Json(read(&house, task)?))
}

/// An answer that came through the agent's own client. The desk knows what such an answer is worth.
pub(crate) async fn answer_in_band(
    house: &Arc<House>,
    task: TaskId,
    approval: ApprovalId,
    choice: Choice,
    surface: &str,
) -> Answer<()> {
    if house.config.approvals.in_band == InBand::Off {
        return Err(Refusal::new(Code::OptionNotOffered, "nothing is answered through the agent's own client here")
            .hint("answer it as a person: csn approvals answer")
            .into());
    }
    let principal = house.projections.state(house, task)?.principal;
    let by = By::Person { principal, surface: countersign_redact::text_by_shape(surface), channel: Channel::InBand };
    give(house, task, approval, by, Given { choice, words: None, any_arguments: false }).await
}

async fn give(house: &Arc<House>, task: TaskId, approval: ApprovalId, by: By, given: Given) -> Answer<()> {
    let Given { choice, words, any_arguments } = given;
    let words = words.filter(|w| !w.trim().is_empty()).map(|w| countersign_redact::text_by_shape(&w));
    let (world, looked) = match choice {
        Choice::Deny => (World::Same, None),
        _ => again(house, task).await?,
    };
    let (reply, done) = oneshot::channel();
    let gone = || Refusal::new(Code::Draining, "the house is going down");
    let answering = Box::new(Answering { task, approval, choice, any_arguments, words, by, world, looked });
    house.calls.send(Call::Answer { answering, reply }).map_err(|_| gone())?;
    match done.await.map_err(|_| gone())? {
        Ok(()) => Ok(()),
        Err(refusal) if refusal.code == Code::AlreadyAnswered => Err(already(house, task, refusal)),
        Err(refusal) => Err(Problem::from(refusal).of_task(task)),
    }
}

async fn again(house: &Arc<House>, task: TaskId) -> Answer<(World, Option<(Looked, Request)>)> {
    let house = Arc::clone(house);
    let look = tokio::task::spawn_blocking(move || facts::look_again(&house.home, &house.key, &house.people, task));
    Ok(look.await.map_err(|e| Refusal::new(Code::Internal, e.to_string()))??)
}

/// A second answer is told of the first.
fn already(house: &House, task: TaskId, refusal: Refusal) -> Problem {
    let told = match read(house, task).map(|a| a.state) {
        Ok(ApprovalState::Answered { choice, by, at, .. }) => {
            Refusal::new(Code::AlreadyAnswered, format!("already answered `{choice}` by {by} at {at}"))
        }
        Ok(ApprovalState::Withdrawn) => Refusal::new(Code::AlreadyAnswered, "the request was withdrawn"),
        _ => refusal,
    };
    Problem::from(told).of_task(task)
}

fn read(house: &House, task: TaskId) -> Answer<Approval> {
    of_task(house, task)?.ok_or_else(|| unknown(&task.to_string()).into())
}

/// By a whole id, or the beginning of exactly one; one that may not be seen is not there.
fn find(house: &House, who: &Who, text: &str) -> Answer<(ApprovalId, TaskId)> {
    let whole: Option<ApprovalId> = text.parse().ok();
    let prefix = if text.starts_with("ap_") { text.to_owned() } else { format!("ap_{text}") };
    if prefix.len() < SHORTEST_ID {
        return Err(unknown(text).into());
    }
    let found = house.readers.with(|r| {
        let all = match whole {
            Some(approval) => r.task_of_approval(approval)?.map(|task| (approval, task)).into_iter().collect(),
            None => r.approvals_by_prefix(&prefix, who.principal)?,
        };
        let mut seen = Vec::new();
        for (approval, task) in all {
            seen.extend(r.whose(task)?.filter(|(p, s)| who.sees(house, *p, *s)).map(|_| (approval, task)));
        }
        Ok(seen)
    })?;
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(unknown(text).into()),
        _ => Err(Refusal::new(Code::AmbiguousId, format!("more than one approval begins with {prefix}"))
            .hint("give more characters of the id")
            .into()),
    }
}

fn unknown(text: &str) -> Refusal {
    let shown = countersign_model::Shown::bounded(text, 60);
    Refusal::new(Code::NotFound, format!("there is no approval {shown}")).hint("`csn approvals list` shows what waits")
}
