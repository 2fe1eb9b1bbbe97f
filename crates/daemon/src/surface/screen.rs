//! `/tasks/{id}/screen`: what a terminal shows now, or showed last.

use super::{
    Answer, Projections, Shared, find_task,
    problem::{Query, Segment},
};
use crate::{house::House, keeper::ScreenNow};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse as _, Response},
};
use countersign_model::{Code, Mode, Refusal, StreamName, TaskId, TaskState};
use countersign_shim::{SCREEN, Shown};
use serde_json::json;
use std::sync::Arc;

pub(crate) async fn show(
    State(house): Shared,
    Segment(id): Segment,
    headers: HeaderMap,
    query: Query,
) -> Answer<Response> {
    query.nothing_else()?;
    let task = find_task(&house, &id)?;
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
        return Err(Refusal::new(Code::WrongMode, "the task has no terminal: it runs over pipes").into());
    }
    if state.first_seq.is_none() {
        return Err(Refusal::new(Code::TaskOver, "the task has not started, so it has no screen").into());
    }
    if !state.settled() {
        match house.keeper.screen(task).await {
            Ok(now) => return Ok(now),
            // It may be closing at this moment: then what it leaves is there, or soon will be.
            Err(refusal) if !house.projections.state(house, task)?.settled() => return Err(refusal.into()),
            Err(_) => {}
        }
    }
    let state = house.projections.state(house, task)?;
    let house = Arc::clone(house);
    let left = tokio::task::spawn_blocking(move || left(&house, &state)).await;
    left.map_err(|e| Refusal::new(Code::Internal, e.to_string()))?
}

/// The artifact that the shim left, checked against what its frame says.
fn left(house: &House, state: &TaskState) -> Answer<Box<ScreenNow>> {
    let expired = || Refusal::new(Code::Expired, "what this task wrote was removed");
    let Some(artifact) = state.artifacts.iter().find(|a| a.artifact.as_str() == SCREEN) else {
        return match state.expired_at {
            Some(_) => Err(expired().into()),
            None => Err(Refusal::new(Code::NotFound, "the task left no screen")
                .hint("its output is there: csn logs, csn replay")
                .into()),
        };
    };
    let bytes = match std::fs::read(house.home.task_dir(state.task_id).join(SCREEN)) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(expired().into()),
        Err(e) => return Err(Refusal::new(Code::Internal, format!("the screen cannot be read: {e}")).into()),
    };
    let tampered = || Refusal::new(Code::ArtifactTampered, "the screen was changed after it was recorded");
    if countersign_model::Digest::sha256(&[&bytes]) != artifact.sha256 {
        return Err(tampered().into());
    }
    let screen: Shown = serde_json::from_slice(&bytes).map_err(|_| tampered())?;
    let offset = state.streams.get(&StreamName::Pty).map_or(0, |s| s.bytes);
    Ok(Box::new(ScreenNow { screen, offset, next_seq: state.next_seq }))
}
