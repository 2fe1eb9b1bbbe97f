//! `/tasks/{id}/events`: the stream as server-sent events, history first, then as it happens.
//!
//! Every reader has its own cursor and reads the files; the bell says only that there is more. One that is slow is
//! slow by itself: its socket fills, its reading stops, nobody else notices.

use super::{
    Answer, Shared, find_task,
    problem::{Problem, Query},
};
use crate::house::House;
use axum::{
    body::{Body, Bytes},
    extract::{Path, Query as AxumQuery, State},
    http::{HeaderMap, header},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_model::{
    Code, Decision, Frame, Record, Refusal, Rendered, TaskId, TaskState, What,
    view::{self, View},
};
use countersign_store::stream::Stream;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::Write as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::mpsc;

/// A comment this often keeps connections from being taken for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How much journal is read at a time.
const PIECE: usize = 64 * 1024;

pub(crate) async fn of_task(
    State(house): Shared,
    Path(id): Path<String>,
    headers: HeaderMap,
    AxumQuery(query): AxumQuery<BTreeMap<String, String>>,
) -> Answer<Response> {
    let mut query = Query::new(query);
    let after = query.parse::<u64>("after", "the number of a frame")?;
    let view = query.text("view").map_or(Ok(View::Native), |v| v.parse());
    let view = view.map_err(|e: String| Refusal::new(Code::BadRequest, e))?;
    query.nothing_else()?;
    let last = match headers.get("last-event-id") {
        None => None,
        Some(id) => Some(id.to_str().ok().and_then(|id| id.parse::<u64>().ok()).ok_or_else(|| {
            Problem::from(Refusal::new(Code::BadRequest, "`Last-Event-ID` is the number of a frame"))
        })?),
    };
    let task = find_task(&house, &id)?;
    let from = last.or(after).map_or(0, |seq| seq.saturating_add(1));
    let (send, receive) = mpsc::channel(4);
    let reader = Reader { stream: Stream::from(&house.home, task, from), house, task, view, state: None };
    tokio::spawn(reader.run(send));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(Pieces(receive))).into_response())
}

struct Pieces(mpsc::Receiver<Bytes>);

impl futures_core::Stream for Pieces {
    type Item = Result<Bytes, Infallible>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|piece| piece.map(Ok))
    }
}

struct Reader {
    house: Arc<House>,
    task: TaskId,
    stream: Stream,
    view: View,
    /// Only the `tool_task` view needs to know what came before.
    state: Option<TaskState>,
}

impl Reader {
    async fn run(mut self, send: mpsc::Sender<Bytes>) {
        let mut bell = self.house.keeper.bell(self.task);
        if send.send(Bytes::from_static(b"retry: 2000\n\n")).await.is_err() {
            return;
        }
        loop {
            bell.mark_unchanged();
            let (piece, ended) = match self.piece() {
                Ok(piece) => piece,
                Err(problem) => {
                    crate::log!("{}: its events cannot be read: {problem:?}", self.task);
                    return;
                }
            };
            let nothing = piece.is_empty();
            if !nothing && send.send(piece.into()).await.is_err() {
                return;
            }
            if ended {
                self.house.keeper.unlist(self.task);
                return;
            }
            if nothing {
                tokio::select! {
                    rung = bell.changed() => if rung.is_err() {
                        // The entry went with its settlement: what that wrote is there now.
                        bell = self.house.keeper.bell(self.task);
                    },
                    () = tokio::time::sleep(HEARTBEAT) => {
                        if send.send(Bytes::from_static(b": \n\n")).await.is_err() {
                            return;
                        }
                    }
                    () = send.closed() => return,
                }
            }
        }
    }

    /// The events that are there now, and whether the last of them was among them.
    fn piece(&mut self) -> Answer<(String, bool)> {
        let lines = self.house.readers.with(|r| Ok(self.stream.next(r, PIECE)))??;
        let mut out = String::new();
        let mut ended = false;
        for (seq, line) in lines {
            let output = line.contains(r#""kind":"stream.output""#);
            let settled = line.contains(r#""kind":"task.settled""#);
            let record = match output || settled || self.view == View::ToolTask {
                true => Record::parse(&line).ok(),
                false => None,
            };
            let rendered = record.as_ref().map(|r| self.rendered(r)).transpose()?.flatten();
            match self.view {
                View::Native => {
                    let line = rendered.map_or_else(|| line.clone(), |r| r.beside(&line));
                    let _ = write!(out, "id: {seq}\ndata: {line}\n\n");
                }
                View::Terminal => {
                    let line = rendered.map_or_else(|| line.clone(), |r| r.beside(&line));
                    let _ = write!(out, "id: {seq}\ndata: {}\n\n", view::terminal(&line));
                }
                View::ToolTask => self.tool_task(&mut out, seq, record.as_ref(), rendered.as_ref())?,
            }
            ended |= matches!(record, Some(Record { what: What::Decision(Decision::Settled { .. }), .. }));
        }
        if ended {
            out.push_str("event: end\ndata: {}\n\n");
        }
        Ok((out, ended))
    }

    fn rendered(&self, record: &Record) -> Answer<Option<Rendered>> {
        let What::Frame(Frame::Output { stream, offset, len, .. }) = &record.what else { return Ok(None) };
        let state = self.house.projections.state(&self.house, self.task)?;
        let Some(reading) = self.house.maps.of(&self.house, &state)? else { return Ok(None) };
        let mut reading = reading.lock().expect("nothing panics while it holds this lock");
        reading.refresh()?;
        let bytes = reading.bytes(*stream, *offset, *len)?;
        Ok(Some(Rendered::of(&bytes, |b| STANDARD.encode(b))))
    }

    fn tool_task(
        &mut self,
        out: &mut String,
        seq: u64,
        record: Option<&Record>,
        rendered: Option<&Rendered>,
    ) -> Answer<()> {
        let Some(record) = record else { return Ok(()) };
        match &mut self.state {
            Some(state) => state.apply(record),
            // A reader that joins late begins with what the task was up to there.
            None => {
                self.state = match record.seq {
                    0 => TaskState::begin(self.task, record),
                    _ => Some(self.house.projections.state(&self.house, self.task)?),
                }
            }
        }
        if let Some(state) = &self.state {
            for event in view::tool_task(self.task, record, state, rendered) {
                let _ = write!(out, "id: {seq}\ndata: {event}\n\n");
            }
        }
        Ok(())
    }
}
