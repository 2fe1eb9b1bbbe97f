//! `/approvals`: questions that wait for a person, and their answers.

use super::{
    Answer, Shared,
    problem::{Problem, Query, Segment, Whole, body},
};
use crate::{
    desk::World,
    facts,
    house::House,
    office::{Answering, Call},
};
use axum::{Json, extract::State};
use countersign_model::{Approval, ApprovalId, ApprovalState, By, Choice, Code, PrincipalId, Refusal, TaskId, Text};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::oneshot;

const PAGE: u32 = 100;

pub(crate) async fn list(State(house): Shared, mut query: Query) -> Answer<Json<Value>> {
    let all = query.parse::<bool>("all", "true or false")?.unwrap_or(false);
    query.nothing_else()?;
    let tasks = house.readers.with(|r| r.asked(all, PAGE))?;
    let mut approvals = Vec::new();
    for task in tasks {
        approvals.extend(Approval::of(&house.projections.state(&house, task)?));
    }
    Ok(Json(json!({"approvals": approvals})))
}

pub(crate) async fn show(State(house): Shared, Segment(id): Segment) -> Answer<Json<Approval>> {
    let (_, task) = find(&house, &id)?;
    Ok(Json(read(&house, task)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    choice: Choice,
    #[serde(default)]
    words: Option<String>,
}

pub(crate) async fn answer(State(house): Shared, Segment(id): Segment, Whole(bytes): Whole) -> Answer<Json<Approval>> {
    let Given { choice, words } = body(&bytes)?;
    if words.as_ref().is_some_and(|w| w.len() > 4096) {
        return Err(Refusal::new(Code::TooLarge, "`words` takes at most 4096 bytes").into());
    }
    let (approval, task) = find(&house, &id)?;
    let words = words.map(|w| countersign_redact::text_by_shape(&w));
    let by = By::Person { principal: PrincipalId::owner(), surface: Text::of("socket") };
    let (world, looked) = match choice {
        Choice::Once => {
            let house = Arc::clone(&house);
            let look =
                tokio::task::spawn_blocking(move || facts::look_again(&house.home, &house.key, &house.base_env, task));
            let look = look.await;
            look.map_err(|e| Refusal::new(Code::Internal, e.to_string()))??
        }
        Choice::Deny => (World::Same, None),
    };
    let (reply, given) = oneshot::channel();
    let gone = || Refusal::new(Code::Draining, "the house is going down");
    let answering = Box::new(Answering { task, approval, choice, words, by, world, looked });
    house.calls.send(Call::Answer { answering, reply }).map_err(|_| gone())?;
    match given.await.map_err(|_| gone())? {
        Ok(()) => Ok(Json(read(&house, task)?)),
        Err(refusal) if refusal.code == Code::AlreadyAnswered => Err(already(&house, task, refusal)),
        Err(refusal) => Err(Problem::from(refusal).of_task(task)),
    }
}

/// A second answer is told of the first.
fn already(house: &House, task: TaskId, refusal: Refusal) -> Problem {
    let told = match read(house, task).map(|a| a.state) {
        Ok(ApprovalState::Answered { choice, by, at }) => {
            Refusal::new(Code::AlreadyAnswered, format!("already answered `{choice}` by {by} at {at}"))
        }
        Ok(ApprovalState::Withdrawn) => Refusal::new(Code::AlreadyAnswered, "the request was withdrawn"),
        _ => refusal,
    };
    Problem::from(told).of_task(task)
}

fn read(house: &House, task: TaskId) -> Answer<Approval> {
    let state = house.projections.state(house, task)?;
    Approval::of(&state).ok_or_else(|| unknown(&task.to_string()).into())
}

/// By a whole id, or the beginning of exactly one.
fn find(house: &House, text: &str) -> Answer<(ApprovalId, TaskId)> {
    if let Ok(approval) = text.parse() {
        let task = house.readers.with(|r| r.task_of_approval(approval))?.ok_or_else(|| unknown(text))?;
        return Ok((approval, task));
    }
    let prefix = if text.starts_with("ap_") { text.to_owned() } else { format!("ap_{text}") };
    match house.readers.with(|r| r.approvals_by_prefix(&prefix))?.as_slice() {
        [] => Err(unknown(text).into()),
        [one] => Ok(*one),
        _ => Err(Refusal::new(Code::AmbiguousId, format!("more than one approval begins with {prefix}"))
            .hint("give more characters of the id")
            .into()),
    }
}

fn unknown(text: &str) -> Refusal {
    let shown = countersign_model::Shown::bounded(text, 60);
    Refusal::new(Code::NotFound, format!("there is no approval {shown}")).hint("`csn approvals list` shows what waits")
}
