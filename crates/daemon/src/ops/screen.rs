//! Screens: what a terminal shows now, or showed last.

use super::{ApiResult, Ops};
use crate::{caller::Caller, records::OutputChunk, shims::registry::ScreenAt};
use countersign_model::{
    Artifact, CredentialScope, Frame, Mode, Record, RecordContent, Refusal, RefusalCode, StreamName, TaskId, TaskState,
};
use countersign_redact::Mask;
use countersign_shim::{SCREEN, Screen, ScreenSnapshot};
use countersign_store::{output::StreamGaps, stream::StreamError};
use std::{io::Read as _, sync::Arc, time::Duration};

const LINES: usize = 64 * 1024;
/// How long a task takes from its last word to being settled.
pub(crate) const CLOSING: Duration = Duration::from_secs(2);

/// The screen of a task by its id or the beginning of it.
pub(crate) async fn show(ops: &Arc<Ops>, caller: &Caller, id: &str) -> ApiResult<Box<ScreenAt>> {
    caller.may(CredentialScope::Observe)?;
    let task = ops.records.find(caller, id)?;
    ops.records.warm(task).await?;
    screen(ops, task).await
}

/// From the shim while the task runs, else what it left.
pub(crate) async fn screen(ops: &Arc<Ops>, task: TaskId) -> ApiResult<Box<ScreenAt>> {
    let state = ops.records.state(task)?;
    if state.request.mode != Mode::Pty {
        return Err(Refusal::new(RefusalCode::WrongMode, "the task has no terminal: it runs over pipes")
            .hint("its output is there: csn logs")
            .into());
    }
    if state.first_seq().is_none() {
        return Err(Refusal::new(RefusalCode::TaskOver, "the task has not started, so it has no screen").into());
    }
    if !state.settled() {
        match ops.registry.screen(task).await {
            Ok(now) => return Ok(now),
            // It may be closing at this moment: then what it leaves is there in a moment.
            Err(refusal) if refusal.code == RefusalCode::ShimUnreachable => {
                if !ops.records.wait_for(task, CLOSING).await?.settled() {
                    return Err(refusal.into());
                }
            }
            Err(refusal) => return Err(refusal.into()),
        }
    }
    let state = ops.records.state(task)?;
    let ops = Arc::clone(ops);
    crate::blocking(move || left(&ops, &state)).await?
}

/// The artifact that the shim left, else the recording drawn again.
fn left(ops: &Ops, state: &TaskState) -> ApiResult<Box<ScreenAt>> {
    if state.expired_at.is_some() {
        return Err(Refusal::new(RefusalCode::Expired, "what this task wrote was removed")
            .hint("its decisions and digests stay: csn show")
            .into());
    }
    let screen = match state.io.artifacts.iter().find(|a| a.artifact.as_str() == SCREEN) {
        Some(artifact) => read_final_screen(ops, state, artifact)?,
        None => drawn_again(ops, state)?,
    };
    let offset = state.io.streams.get(&StreamName::Pty).map_or(0, |s| s.bytes);
    Ok(Box::new(ScreenAt { screen, offset, next_seq: state.next_seq }))
}

/// The artifact, checked against what its frame says.
fn read_final_screen(ops: &Ops, state: &TaskState, artifact: &Artifact) -> ApiResult<ScreenSnapshot> {
    let mut bytes = Vec::new();
    let read = ops.records.file(state.task_id, SCREEN).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|e| Refusal::new(RefusalCode::Internal, format!("the screen cannot be read: {e}")))?;
    let tampered = || Refusal::new(RefusalCode::ArtifactTampered, "the screen was changed after it was recorded");
    if countersign_model::Digest::sha256(&[&bytes]) != artifact.sha256 {
        return Err(tampered().into());
    }
    serde_json::from_slice(&bytes).map_err(|_| tampered().into())
}

/// Everything that was recorded, on a screen of our own. Starts nothing.
fn drawn_again(ops: &Ops, state: &TaskState) -> ApiResult<ScreenSnapshot> {
    let (mut screen, mut stream) = (Screen::new(24, 80), ops.records.stream(state.task_id, 0));
    let mut gaps = StreamGaps::default();
    loop {
        let lines = ops.records.next(&mut stream, LINES)?;
        if lines.is_empty() {
            break;
        }
        for (seq, line) in lines {
            match Record::parse(&line).map_err(|source| StreamError::Record { seq, source })?.what {
                RecordContent::Frame(Frame::Resized { rows, cols, .. }) => screen.resize(rows, cols),
                RecordContent::Frame(frame) => match OutputChunk::of(&frame) {
                    Some(chunk) => {
                        let dropped = gaps.dropped_before(chunk.stream, chunk.offset);
                        screen.feed(&ops.records.chunk(state.task_id, chunk, dropped)?);
                    }
                    None => gaps.add_frame(&frame),
                },
                _ => {}
            }
        }
    }
    Ok(screen.show(&Mask::of_shapes()))
}
