//! `/tasks/{id}/screen`: what a terminal shows now, or showed last.

use super::{
    Answer, Projections, Shared,
    arrive::Who,
    find_task,
    problem::{Query, Segment},
    tasks::wait_for,
};
use crate::{house::House, keeper::ScreenNow};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse as _, Response},
};
use countersign_model::{Artifact, Code, Frame, Mode, Record, Refusal, StreamName, TaskId, TaskState, What};
use countersign_redact::Mask;
use countersign_shim::{SCREEN, Screen, Shown};
use countersign_store::{
    output::{self, Gaps},
    stream::{Stream, StreamError},
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

const LINES: usize = 64 * 1024;
/// How long a task takes from its last word to being settled.
pub(crate) const CLOSING: Duration = Duration::from_secs(2);

pub(crate) async fn show(
    State(house): Shared,
    who: Who,
    Segment(id): Segment,
    headers: HeaderMap,
    query: Query,
) -> Answer<Response> {
    query.nothing_else()?;
    let task = find_task(&house, &who, &id)?;
    Projections::warm(&house, task).await?;
    let now = screen(&house, task).await?;
    if headers.get(header::ACCEPT).is_some_and(|a| a.as_bytes().starts_with(b"application/octet-stream")) {
        let headers = [(header::CONTENT_TYPE, "application/octet-stream")];
        return Ok((headers, now.screen.drawn.as_str().to_owned()).into_response());
    }
    let Shown { rows, cols, cursor, alternate, text, .. } = now.screen;
    Ok(Json(json!({
        "rows": rows, "cols": cols, "cursor": {"row": cursor.0, "col": cursor.1}, "alternate_screen": alternate,
        "text": text, "next_seq": now.next_seq, "offset_bytes": now.offset,
    }))
    .into_response())
}

/// From the shim while the task runs, else what it left.
pub(crate) async fn screen(house: &Arc<House>, task: TaskId) -> Answer<Box<ScreenNow>> {
    let state = house.projections.state(house, task)?;
    if state.mode != Mode::Pty {
        return Err(Refusal::new(Code::WrongMode, "the task has no terminal: it runs over pipes")
            .hint("its output is there: csn logs")
            .into());
    }
    if state.first_seq.is_none() {
        return Err(Refusal::new(Code::TaskOver, "the task has not started, so it has no screen").into());
    }
    if !state.settled() {
        match house.keeper.screen(task).await {
            Ok(now) => return Ok(now),
            // It may be closing at this moment: then what it leaves is there in a moment.
            Err(refusal) if refusal.code == Code::ShimUnreachable => {
                if !wait_for(house, task, CLOSING).await?.settled() {
                    return Err(refusal.into());
                }
            }
            Err(refusal) => return Err(refusal.into()),
        }
    }
    let state = house.projections.state(house, task)?;
    let house = Arc::clone(house);
    let left = tokio::task::spawn_blocking(move || left(&house, &state)).await;
    left.map_err(|e| Refusal::new(Code::Internal, e.to_string()))?
}

/// The artifact that the shim left, else the recording drawn again.
fn left(house: &House, state: &TaskState) -> Answer<Box<ScreenNow>> {
    if state.expired_at.is_some() {
        return Err(Refusal::new(Code::Expired, "what this task wrote was removed")
            .hint("its decisions and digests stay: csn show")
            .into());
    }
    let screen = match state.artifacts.iter().find(|a| a.artifact.as_str() == SCREEN) {
        Some(artifact) => kept(house, state, artifact)?,
        None => drawn_again(house, state)?,
    };
    let offset = state.streams.get(&StreamName::Pty).map_or(0, |s| s.bytes);
    Ok(Box::new(ScreenNow { screen, offset, next_seq: state.next_seq }))
}

/// The artifact, checked against what its frame says.
fn kept(house: &House, state: &TaskState, artifact: &Artifact) -> Answer<Shown> {
    let bytes = std::fs::read(house.home.task_dir(state.task_id).join(SCREEN))
        .map_err(|e| Refusal::new(Code::Internal, format!("the screen cannot be read: {e}")))?;
    let tampered = || Refusal::new(Code::ArtifactTampered, "the screen was changed after it was recorded");
    if countersign_model::Digest::sha256(&[&bytes]) != artifact.sha256 {
        return Err(tampered().into());
    }
    serde_json::from_slice(&bytes).map_err(|_| tampered().into())
}

/// Everything that was recorded, on a screen of our own. Starts nothing.
fn drawn_again(house: &House, state: &TaskState) -> Answer<Shown> {
    let (mut screen, mut stream) = (Screen::new(24, 80), Stream::from(&house.home, state.task_id, 0));
    let mut gaps = Gaps::default();
    let dir = house.home.task_dir(state.task_id);
    loop {
        let lines = house.readers.with(|r| Ok(stream.next(r, LINES)))??;
        if lines.is_empty() {
            break;
        }
        for (seq, line) in lines {
            match Record::parse(&line).map_err(|source| StreamError::Record { seq, source })?.what {
                What::Frame(Frame::Resized { rows, cols, .. }) => screen.resize(rows, cols),
                What::Frame(Frame::Output { stream, offset, len, digest }) => {
                    let dropped = gaps.before(stream, offset);
                    screen.feed(&output::chunk(&dir, stream, offset, len, digest, dropped)?);
                }
                What::Frame(frame) => gaps.note(&frame),
                _ => {}
            }
        }
    }
    Ok(screen.show(&Mask::of_shapes()))
}
