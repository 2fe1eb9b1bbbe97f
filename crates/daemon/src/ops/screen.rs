//! Screens: what a terminal shows now, or showed last.

use super::{ApiResult, Ops};
use crate::{caller::Caller, records::OutputChunk, shims::registry::ScreenAt};
use countersign_model::{
    Artifact, CredentialScope, Frame, Mode, Record, RecordContent, Refusal, RefusalCode, StreamName, TaskId, TaskState,
};
use countersign_redact::Mask;
use countersign_shim::{SCREEN_ARTIFACT, Screen, ScreenSnapshot};
use countersign_store::{output::StreamGaps, stream::StreamError};
use std::{io::Read as _, sync::Arc, time::Duration};

const READ_BYTES: usize = 64 * 1024;
/// How long a task may take from its end to being settled.
pub(crate) const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// The screen of a task, by its id or a prefix.
pub(crate) async fn show(ops: &Arc<Ops>, caller: &Caller, id: &str) -> ApiResult<Box<ScreenAt>> {
    caller.require_scope(CredentialScope::Observe)?;
    let task = ops.records.find_task(caller, id)?;
    ops.records.load_task(task).await?;
    screen(ops, task).await
}

/// From the shim while the task runs; otherwise what the task left.
pub(crate) async fn screen(ops: &Arc<Ops>, task: TaskId) -> ApiResult<Box<ScreenAt>> {
    let state = ops.records.state(task)?;
    if state.request.mode != Mode::Pty {
        return Err(Refusal::new(RefusalCode::WrongMode, "the task has no terminal; it runs with pipes")
            .hint("read its output instead: csn logs")
            .into());
    }
    if state.first_seq().is_none() {
        return Err(Refusal::new(RefusalCode::TaskOver, "the task has not started and has no screen yet").into());
    }
    if !state.settled() {
        match ops.registry.screen(task).await {
            Ok(now) => return Ok(now),
            // The task may be ending: then its final screen is on disk in a moment.
            Err(refusal) if refusal.code == RefusalCode::ShimUnreachable => {
                if !ops.records.wait_for(task, SETTLE_TIMEOUT).await?.settled() {
                    return Err(refusal.into());
                }
            }
            Err(refusal) => return Err(refusal.into()),
        }
    }
    let state = ops.records.state(task)?;
    let ops = Arc::clone(ops);
    crate::blocking(move || final_screen(&ops, &state)).await?
}

/// The screen that the shim stored, or else one drawn from the recording.
fn final_screen(ops: &Ops, state: &TaskState) -> ApiResult<Box<ScreenAt>> {
    if state.expired_at.is_some() {
        return Err(Refusal::new(RefusalCode::Expired, "the output of this task was removed")
            .hint("its decisions and digests are kept: csn show")
            .into());
    }
    let screen = match state.io.artifacts.iter().find(|a| a.artifact.as_str() == SCREEN_ARTIFACT) {
        Some(artifact) => read_final_screen(ops, state, artifact)?,
        None => draw_recording(ops, state)?,
    };
    let offset = state.io.streams.get(&StreamName::Pty).map_or(0, |s| s.bytes);
    Ok(Box::new(ScreenAt { screen, offset, next_seq: state.next_seq }))
}

/// The stored screen, verified against its frame.
fn read_final_screen(ops: &Ops, state: &TaskState, artifact: &Artifact) -> ApiResult<ScreenSnapshot> {
    let mut bytes = Vec::new();
    let read = ops.records.open_file(state.task_id, SCREEN_ARTIFACT).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|e| Refusal::new(RefusalCode::Internal, format!("the screen cannot be read: {e}")))?;
    let tampered =
        || Refusal::new(RefusalCode::ArtifactTampered, "the stored screen was changed after it was recorded");
    if countersign_model::Digest::sha256(&[&bytes]) != artifact.sha256 {
        return Err(tampered().into());
    }
    serde_json::from_slice(&bytes).map_err(|_| tampered().into())
}

/// Feeds the recording to a new screen. Starts nothing.
fn draw_recording(ops: &Ops, state: &TaskState) -> ApiResult<ScreenSnapshot> {
    let (mut screen, mut stream) = (Screen::new(24, 80), ops.records.stream(state.task_id, 0));
    let mut gaps = StreamGaps::default();
    loop {
        let lines = ops.records.read_lines(&mut stream, READ_BYTES)?;
        if lines.is_empty() {
            break;
        }
        for (seq, line) in lines {
            match Record::parse(&line).map_err(|source| StreamError::Record { seq, source })?.what {
                RecordContent::Frame(Frame::Resized { rows, cols, .. }) => screen.resize(rows, cols),
                RecordContent::Frame(frame) => match OutputChunk::from_frame(&frame) {
                    Some(chunk) => {
                        let dropped = gaps.dropped_before(chunk.stream, chunk.offset);
                        screen.feed(&ops.records.read_chunk(state.task_id, chunk, dropped)?);
                    }
                    None => gaps.add_frame(&frame),
                },
                _ => {}
            }
        }
    }
    Ok(screen.snapshot(&Mask::without_values()))
}
