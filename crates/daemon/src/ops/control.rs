//! Typing, resizing, signalling, stopping: operations on a running task. Each returns the number of the record that
//! holds it, once it has been applied.

use super::{
    ApiResult, OnceKey, Ops,
    intake::{MAX_TEXT_BYTES, placeholder_refusal},
    screen::SETTLE_TIMEOUT,
};
use crate::{caller::Caller, facts};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_model::{
    CredentialScope, Idempotency, KilledWhy, Refusal, RefusalCode, Status, TaskId, TaskRefusal, TaskState, Text,
    api::{AppliedRecord, CancelBody, ResizeBody, SignalBody, StdinBody},
};
use countersign_redact::{Mask, text_bounded};
use countersign_shim::wire::{ToShim, TypedInput};
use std::sync::Arc;

/// The most that one call accepts.
pub(crate) const MAX_INPUT_BYTES: usize = 64 * 1024;

/// The input of a call, checked.
pub(crate) fn parse_input(body: StdinBody) -> Result<TypedInput, Refusal> {
    let bad = |message: &str| {
        Err(Refusal::new(RefusalCode::BadRequest, message)
            .hint("send one of `text`, `chunk_b64`, `keys`, `paste` or `eof`"))
    };
    let input = match (body.chunk_b64, body.text, body.keys, body.paste, body.eof) {
        (None, Some(text), None, None, eof) => TypedInput::Text { text, eof },
        (Some(chunk), None, None, None, eof) => match STANDARD.decode(chunk.as_bytes()) {
            Ok(bytes) => input_from_bytes(bytes, eof),
            Err(e) => return bad(&format!("`chunk_b64`: {e}")),
        },
        (None, None, Some(keys), None, false) => TypedInput::Keys(keys),
        (None, None, None, Some(text), false) => TypedInput::Paste(text),
        (None, None, None, None, true) => TypedInput::Text { text: String::new(), eof: true },
        (None, None, None, None, false) => return bad("the input is empty"),
        _ => return bad("these fields cannot be combined"),
    };
    let len = match &input {
        TypedInput::Text { text, eof } if text.is_empty() && !eof => return bad("the input is empty"),
        TypedInput::Keys(keys) if keys.is_empty() => return bad("the input is empty"),
        TypedInput::Text { text, .. } | TypedInput::Paste(text) => {
            if let Some(placeholder) = countersign_redact::placeholder(text) {
                return Err(placeholder_refusal(placeholder, "input"));
            }
            text.len()
        }
        TypedInput::Bytes { bytes, .. } => bytes.len(),
        // No key needs more than 8 bytes.
        TypedInput::Keys(keys) => keys.len() * 8,
    };
    if len > MAX_INPUT_BYTES {
        return Err(Refusal::new(
            RefusalCode::TooLarge,
            format!("the input has {len} bytes; the maximum is {MAX_INPUT_BYTES}"),
        )
        .hint("send it in several calls"));
    }
    Ok(input)
}

/// Input as text if it is UTF-8: most input is, and text is shorter in JSON.
pub(crate) fn input_from_bytes(bytes: Vec<u8>, eof: bool) -> TypedInput {
    match String::from_utf8(bytes) {
        Ok(text) => TypedInput::Text { text, eof },
        Err(e) => TypedInput::Bytes { bytes: e.into_bytes(), eof },
    }
}

/// Withdraws a waiting task, or stops a running one.
pub(crate) async fn cancel(ops: &Arc<Ops>, caller: &Caller, id: &str, body: CancelBody) -> ApiResult<AppliedRecord> {
    caller.require_scope(CredentialScope::Run)?;
    let reason = body.reason.map(|r| text_bounded(&Mask::without_values(), &r, MAX_TEXT_BYTES));
    let task = ops.records.find_controlled_task(caller, id)?;
    ops.records.load_task(task).await?;
    let seq = stop_task(ops, task, caller.actor(), reason, KilledWhy::Cancel).await?;
    Ok(AppliedRecord { seq })
}

/// Withdraws a task that has not been launched.
pub(crate) async fn withdraw_task(ops: &Arc<Ops>, task: TaskId, by: Text) -> ApiResult<()> {
    Ok(ops.commit.withdraw(task, by).await?)
}

/// Withdraws a waiting task or stops a running one; returns the number of the record.
pub(crate) async fn stop_task(
    ops: &Arc<Ops>,
    task: TaskId,
    by: Text,
    reason: Option<Text>,
    why: KilledWhy,
) -> ApiResult<u64> {
    loop {
        if open_task(ops, task)?.status == Status::Queued {
            match withdraw_task(ops, task, by.clone()).await.map_err(|refused: TaskRefusal| refused.refusal) {
                // It was launched meanwhile: then it is stopped.
                Err(refusal) if refusal.code == RefusalCode::TaskStarted => {}
                withdrawn => {
                    withdrawn?;
                    return Ok(ops.records.state(task)?.next_seq - 1);
                }
            }
        }
        let state = open_task(ops, task)?;
        if state.observed() {
            return Err(Refusal::new(
                RefusalCode::WrongMode,
                "the agent runs this command itself; Countersign only records it",
            )
            .hint("stop the command in the agent")
            .into());
        }
        if state.status == Status::Running {
            let cancel = move |re| ToShim::Cancel { re, by, reason, why };
            return send_to_shim(ops, task, cancel).await;
        }
    }
}

pub(crate) async fn signal(
    ops: &Arc<Ops>,
    caller: &Caller,
    id: &str,
    SignalBody { signal }: SignalBody,
    once: Option<OnceKey<'_>>,
) -> ApiResult<AppliedRecord> {
    let by = caller.actor();
    apply(ops, caller, id, "signal", once, move |re, key| ToShim::Signal { re, signal, by, key }).await
}

pub(crate) async fn stdin(
    ops: &Arc<Ops>,
    caller: &Caller,
    id: &str,
    body: StdinBody,
    once: Option<OnceKey<'_>>,
) -> ApiResult<AppliedRecord> {
    let (input, by) = (parse_input(body)?, caller.actor());
    apply(ops, caller, id, "stdin", once, move |re, key| ToShim::Input { re, input, by, key }).await
}

pub(crate) async fn resize(
    ops: &Arc<Ops>,
    caller: &Caller,
    id: &str,
    ResizeBody { rows, cols }: ResizeBody,
    once: Option<OnceKey<'_>>,
) -> ApiResult<AppliedRecord> {
    facts::check_terminal_size(rows, cols)?;
    let by = caller.actor();
    apply(ops, caller, id, "resize", once, move |re, key| ToShim::Resize { re, rows, cols, by, key }).await
}

/// Sends a request to the shim of a running task that the caller controls.
async fn apply(
    ops: &Arc<Ops>,
    caller: &Caller,
    id: &str,
    operation: &str,
    once: Option<OnceKey<'_>>,
    request: impl FnOnce(u64, Option<Idempotency>) -> ToShim + Send + 'static,
) -> ApiResult<AppliedRecord> {
    caller.require_scope(CredentialScope::Run)?;
    let task = ops.records.find_controlled_task(caller, id)?;
    ops.records.load_task(task).await?;
    if open_task(ops, task)?.status == Status::Queued {
        let refusal =
            Refusal::new(RefusalCode::TaskOver, "the task has not started").hint("to withdraw it: csn cancel");
        return Err(TaskRefusal::from(refusal).of_task(task));
    }
    let key = once.map(|once| once.digest(ops, caller, &format!("{operation} {task}"))).transpose()?;
    Ok(AppliedRecord { seq: send_to_shim(ops, task, move |re| request(re, key)).await? })
}

/// Sends a request to the shim. If the shim cannot be reached, the task may be ending: then that is the reply.
async fn send_to_shim(
    ops: &Arc<Ops>,
    task: TaskId,
    request: impl FnOnce(u64) -> ToShim + Send + 'static,
) -> ApiResult<u64> {
    match ops.registry.apply(task, request).await {
        Err(refusal) if refusal.code == RefusalCode::ShimUnreachable => {
            ops.records.wait_for(task, SETTLE_TIMEOUT).await?;
            open_task(ops, task)?;
            Err(refusal.into())
        }
        Err(refusal) => Err(TaskRefusal::from(refusal).of_task(task)),
        Ok(seq) => Ok(seq),
    }
}

/// The state of a task that has not settled.
fn open_task(ops: &Ops, task: TaskId) -> ApiResult<TaskState> {
    let state = ops.records.state(task)?;
    match state.outcome() {
        None => Ok(state),
        Some(outcome) => {
            Err(TaskRefusal::from(Refusal::new(RefusalCode::TaskOver, format!("the task has ended: {outcome}")))
                .of_task(task))
        }
    }
}
