//! `/stdin`, `/resize`, `/signal`, `/cancel`: operations on a task, answered with the number of the frame in which they
//! stand once they have been applied.

use super::{
    Answer, Projections, Shared,
    arrive::Who,
    find_own_task,
    problem::{Problem, Segment, Whole, body},
    screen::CLOSING,
    tasks::{LONGEST_TEXT, idempotency, wait_for},
};
use crate::{facts, house::House, office::Call};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_model::{Code, Key, KilledWhy, Refusal, SignalName, Status, TaskId, TaskState, Text};
use countersign_redact::{Mask, text_bounded};
use countersign_shim::wire::{Input, ToShim};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The most that one call takes.
pub(crate) const LARGEST_INPUT: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Signal {
    signal: SignalName,
}

/// One of the first four, or `eof`, alone or after bytes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stdin {
    #[serde(default)]
    chunk_b64: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    keys: Option<Vec<Key>>,
    #[serde(default)]
    paste: Option<String>,
    #[serde(default)]
    eof: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resize {
    pub(crate) rows: u16,
    pub(crate) cols: u16,
}

impl Stdin {
    pub(crate) fn input(self) -> Result<Input, Refusal> {
        let bad = |message: &str| {
            Err(Refusal::new(Code::BadRequest, message).hint("one of `text`, `chunk_b64`, `keys`, `paste`, `eof`"))
        };
        let input = match (self.chunk_b64, self.text, self.keys, self.paste, self.eof) {
            (None, Some(text), None, None, eof) => Input::Text { text, eof },
            (Some(chunk), None, None, None, eof) => match STANDARD.decode(chunk.as_bytes()) {
                Ok(bytes) => bytes_of(bytes, eof),
                Err(e) => return bad(&format!("`chunk_b64`: {e}")),
            },
            (None, None, Some(keys), None, false) => Input::Keys(keys),
            (None, None, None, Some(text), false) => Input::Paste(text),
            (None, None, None, None, true) => Input::Text { text: String::new(), eof: true },
            (None, None, None, None, false) => return bad("there is nothing to write"),
            _ => return bad("these do not go together"),
        };
        let len = match &input {
            Input::Text { text, eof } if text.is_empty() && !eof => return bad("there is nothing to write"),
            Input::Keys(keys) if keys.is_empty() => return bad("there is nothing to write"),
            Input::Text { text, .. } | Input::Paste(text) => {
                if let Some(placeholder) = countersign_redact::placeholder(text) {
                    return Err(super::tasks::no_placeholder(placeholder, "input"));
                }
                text.len()
            }
            Input::Bytes { bytes, .. } => bytes.len(),
            // No key takes more.
            Input::Keys(keys) => keys.len() * 8,
        };
        match len > LARGEST_INPUT {
            true => Err(Refusal::new(Code::TooLarge, format!("{len} bytes are more than a call takes"))
                .hint(format!("send at most {LARGEST_INPUT} bytes at a time"))),
            false => Ok(input),
        }
    }
}

/// Text where it is text: that is what most input is, and shorter on its way.
pub(crate) fn bytes_of(bytes: Vec<u8>, eof: bool) -> Input {
    match String::from_utf8(bytes) {
        Ok(text) => Input::Text { text, eof },
        Err(e) => Input::Bytes { bytes: e.into_bytes(), eof },
    }
}

fn applied(seq: u64) -> Response {
    (StatusCode::ACCEPTED, Json(json!({"seq": seq}))).into_response()
}

pub(crate) async fn cancel(
    State(house): Shared,
    who: Who,
    Segment(id): Segment,
    Whole(bytes): Whole,
) -> Answer<Response> {
    let Cancel { reason } = if bytes.is_empty() { Cancel { reason: None } } else { body(&bytes)? };
    let reason = reason.map(|r| text_bounded(&Mask::of_shapes(), &r, LONGEST_TEXT));
    let task = find_own_task(&house, &who, &id)?;
    Projections::warm(&house, task).await?;
    let by = who.actor();
    Ok(applied(stop(&house, task, by, reason, KilledWhy::Cancel).await?))
}

/// Takes a task back that has not been launched.
pub(crate) async fn withdraw(house: &Arc<House>, task: TaskId, by: Text) -> Answer<()> {
    let (reply, answer) = oneshot::channel();
    let gone = || Refusal::new(Code::Draining, "the house is going down");
    house.calls.send(Call::Withdraw { task, by, reply }).map_err(|_| gone())?;
    Ok(answer.await.map_err(|_| gone())??)
}

/// Withdraws a task that waits, stops one that runs; the number of the record in which that stands.
pub(crate) async fn stop(
    house: &Arc<House>,
    task: TaskId,
    by: Text,
    reason: Option<Text>,
    why: KilledWhy,
) -> Answer<u64> {
    loop {
        if open(house, task)?.status == Status::Queued {
            match withdraw(house, task, by.clone()).await.map_err(Problem::into_refusal) {
                // It was launched a moment ago: then it is cancelled.
                Err(refusal) if refusal.code == Code::TaskStarted => {}
                withdrawn => {
                    withdrawn?;
                    return Ok(house.projections.state(house, task)?.next_seq - 1);
                }
            }
        }
        let state = open(house, task)?;
        if state.observed {
            return Err(Refusal::new(Code::WrongMode, "its agent runs it: the house only looks on")
                .hint("stop it in the agent")
                .into());
        }
        if state.status == Status::Running {
            let cancel = move |re| ToShim::Cancel { re, by, reason, why };
            return operate(house, task, cancel).await;
        }
    }
}

pub(crate) async fn signal(
    State(house): Shared,
    who: Who,
    Segment(id): Segment,
    headers: HeaderMap,
    Whole(bytes): Whole,
) -> Answer<Response> {
    let Signal { signal } = body(&bytes)?;
    let task = running(&house, &who, &id).await?;
    let key = idempotency(&house, &who, &headers, &format!("signal {task}"), &bytes)?;
    let by = who.actor();
    Ok(applied(operate(&house, task, move |re| ToShim::Signal { re, signal, by, key }).await?))
}

pub(crate) async fn stdin(
    State(house): Shared,
    who: Who,
    Segment(id): Segment,
    headers: HeaderMap,
    Whole(bytes): Whole,
) -> Answer<Response> {
    let input = body::<Stdin>(&bytes)?.input()?;
    let task = running(&house, &who, &id).await?;
    let key = idempotency(&house, &who, &headers, &format!("stdin {task}"), &bytes)?;
    let by = who.actor();
    Ok(applied(operate(&house, task, move |re| ToShim::Input { re, input, by, key }).await?))
}

pub(crate) async fn resize(
    State(house): Shared,
    who: Who,
    Segment(id): Segment,
    headers: HeaderMap,
    Whole(bytes): Whole,
) -> Answer<Response> {
    let Resize { rows, cols } = body(&bytes)?;
    facts::terminal_size(rows, cols)?;
    let task = running(&house, &who, &id).await?;
    let key = idempotency(&house, &who, &headers, &format!("resize {task}"), &bytes)?;
    let by = who.actor();
    Ok(applied(operate(&house, task, move |re| ToShim::Resize { re, rows, cols, by, key }).await?))
}

/// Asks the shim. One that cannot be reached may just be closing: then the task is over, and that is the answer.
async fn operate(house: &Arc<House>, task: TaskId, wish: impl FnOnce(u64) -> ToShim + Send + 'static) -> Answer<u64> {
    match house.keeper.operate(task, wish).await {
        Err(refusal) if refusal.code == Code::ShimUnreachable => {
            wait_for(house, task, CLOSING).await?;
            open(house, task)?;
            Err(refusal.into())
        }
        Err(refusal) => Err(Problem::from(refusal).of_task(task)),
        Ok(seq) => Ok(seq),
    }
}

/// A task that runs, by its id or the beginning of it.
async fn running(house: &Arc<House>, who: &Who, id: &str) -> Answer<TaskId> {
    let task = find_own_task(house, who, id)?;
    Projections::warm(house, task).await?;
    match open(house, task)?.status {
        Status::Queued => Err(Problem::from(
            Refusal::new(Code::TaskOver, "the task has not started").hint("`csn cancel` withdraws it"),
        )
        .of_task(task)),
        _ => Ok(task),
    }
}

/// A task that has not settled.
fn open(house: &House, task: TaskId) -> Answer<TaskState> {
    let state = house.projections.state(house, task)?;
    match &state.outcome {
        None => Ok(state),
        Some(outcome) => {
            Err(Problem::from(Refusal::new(Code::TaskOver, format!("the task is over: {outcome}"))).of_task(task))
        }
    }
}
