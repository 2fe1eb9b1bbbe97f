//! `/tasks/{id}/events`: the stream as server-sent events, history first, then as it happens.
//!
//! Every reader has its own cursor and reads the files; the bell says only that there is more. One that is slow is
//! slow by itself: its socket fills, its reading stops, nobody else notices. Readers that stand at the same place
//! share what is rendered there, so that two hundred cost little more than one.

use super::{
    Answer, Projections, Shared,
    arrive::Who,
    find_task,
    problem::{Problem, Query, Segment},
};
use crate::{house::House, keeper::SETTLED};
use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_model::{
    Code, Decision, Frame, INLINE_WHOLE, Record, Refusal, Rendered, TaskId, TaskState, What,
    view::{self, View},
};
use countersign_store::{
    output::{self, Gaps, ReadError},
    stream::Stream,
};
use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt::Write as _,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::{mpsc, watch};

/// A comment this often keeps connections from being taken for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How much journal is read at a time, and how much is sent.
const LINES: usize = 8 * 1024;
const PIECE: usize = 16 * 1024;
/// Up to this many readers are woken for everything; beyond, each makes all of them wait a little longer.
const FEW: usize = 8;
const PAUSE_EACH: Duration = Duration::from_micros(500);
const PAUSE_MOST: Duration = Duration::from_millis(100);
/// How many pieces are remembered for readers that come to the same place.
const SHARED: usize = 64;

pub(crate) async fn of_task(
    State(house): Shared,
    who: Who,
    Segment(id): Segment,
    headers: HeaderMap,
    mut query: Query,
) -> Answer<Response> {
    let after = query.parse::<u64>("after", "the number of a frame")?;
    let view = query.text("view").map_or(Ok(View::Native), |v| v.parse());
    let view = view.map_err(|e: String| Refusal::new(Code::BadRequest, e))?;
    let speed = query.parse::<f64>("speed", "a number above zero")?;
    if speed.is_some_and(|s| !s.is_finite() || s <= 0.0) {
        return Err(Refusal::new(Code::BadRequest, "`speed` is a number above zero").into());
    }
    query.nothing_else()?;
    let last = match headers.get("last-event-id") {
        None => None,
        Some(id) => Some(id.to_str().ok().and_then(|id| id.parse::<u64>().ok()).ok_or_else(|| {
            Problem::from(Refusal::new(Code::BadRequest, "`Last-Event-ID` is the number of a frame"))
        })?),
    };
    let task = find_task(&house, &who, &id)?;
    Projections::warm(&house, task).await?;
    let from = last.or(after).map_or(0, |seq| seq.saturating_add(1));
    let (send, receive) = mpsc::channel(1);
    let stream = Stream::from(&house.home, task, from);
    let gaps = Gaps::of(&house.projections.state(&house, task)?);
    let pace = speed.map(|speed| Pace { speed, last_us: None });
    let read = VecDeque::new();
    let reader = Reader { who, stream, next_seq: from, read, house, task, view, state: None, gaps, pace };
    tokio::spawn(reader.run(send));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(Sent(receive))).into_response())
}

/// What a channel brings, as a body.
pub(crate) struct Sent(pub(crate) mpsc::Receiver<Bytes>);

impl futures_core::Stream for Sent {
    type Item = Result<Bytes, Infallible>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|piece| piece.map(Ok))
    }
}

/// Some events in a row, ready to be sent.
#[derive(Clone)]
struct Piece {
    bytes: Bytes,
    next_seq: u64,
    ended: bool,
}

/// The pieces that were rendered last, by task and first number.
#[derive(Default)]
pub(crate) struct Pieces {
    recent: Mutex<VecDeque<((TaskId, u64), Piece)>>,
}

impl Pieces {
    fn get(&self, at: (TaskId, u64)) -> Option<Piece> {
        let recent = self.recent.lock().expect("nothing panics while it holds this lock");
        recent.iter().rev().find(|(key, _)| *key == at).map(|(_, piece)| piece.clone())
    }

    pub(crate) fn forget(&self, task: TaskId) {
        let mut recent = self.recent.lock().expect("nothing panics while it holds this lock");
        recent.retain(|((t, _), _)| *t != task);
    }

    fn put(&self, at: (TaskId, u64), piece: Piece) {
        let mut recent = self.recent.lock().expect("nothing panics while it holds this lock");
        recent.push_back((at, piece));
        if recent.len() > SHARED {
            recent.pop_front();
        }
    }
}

struct Reader {
    who: Who,
    house: Arc<House>,
    task: TaskId,
    stream: Stream,
    /// The number of the next event to be sent, and lines that were read and not sent yet.
    next_seq: u64,
    read: VecDeque<(u64, String)>,
    view: View,
    /// Only the `tool_task` view needs to know what came before.
    state: Option<TaskState>,
    /// What was dropped before the chunks that are shown.
    gaps: Gaps,
    /// A recording that is played back at a speed.
    pace: Option<Pace>,
}

struct Pace {
    speed: f64,
    last_us: Option<u64>,
}

impl Pace {
    /// How long after the record before this one comes.
    fn before(&mut self, line: &str) -> Duration {
        let Some(t_us) = Record::parse(line).ok().and_then(|r| r.t_us) else { return Duration::ZERO };
        let since = t_us.saturating_sub(self.last_us.unwrap_or(t_us));
        self.last_us = Some(t_us);
        Duration::from_secs_f64((since as f64 / 1e6 / self.speed).min(86_400.0))
    }
}

impl Reader {
    async fn run(mut self, send: mpsc::Sender<Bytes>) {
        self.tell(&send).await;
        // Others who wait for the same bell make it anew.
        self.house.keeper.unlist(self.task);
    }

    async fn tell(&mut self, send: &mpsc::Sender<Bytes>) {
        let mut bell = self.house.keeper.bell(self.task);
        if send.send(Bytes::from_static(b"retry: 2000\n\n")).await.is_err() {
            return;
        }
        loop {
            bell.mark_unchanged();
            if !self.keep_pace(send).await {
                return;
            }
            // Nothing is read before there is room for it.
            let Ok(room) = send.reserve().await else { return };
            if !self.who.still_holds(&self.house) {
                return;
            }
            let before = self.next_seq;
            let piece = match self.piece() {
                Ok(piece) => piece,
                Err(problem) => {
                    crate::log!("{}: its events cannot be read: {problem:?}", self.task);
                    return;
                }
            };
            let nothing = piece.bytes.is_empty();
            // A heartbeat needs the room, too.
            if nothing {
                drop(room)
            } else {
                room.send(piece.bytes)
            }
            if piece.ended {
                return;
            }
            // A view may have nothing to say of many records; there may be more behind them.
            if nothing && self.next_seq == before {
                tokio::select! {
                    rung = bell.changed() => if rung.is_err() {
                        // The entry went with its settlement: what that wrote is there now.
                        bell = self.house.keeper.bell(self.task);
                    } else {
                        self.let_the_task_work(&mut bell).await;
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

    /// Waits for the moment of the next record, when it is played back at a speed. Whether anyone still listens.
    async fn keep_pace(&mut self, send: &mpsc::Sender<Bytes>) -> bool {
        if self.pace.is_none() {
            return true;
        }
        if self.fill().is_err() {
            return true;
        }
        let (Some(pace), Some((_, line))) = (&mut self.pace, self.read.front()) else { return true };
        let due = tokio::time::Instant::now() + pace.before(line);
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(due) => return true,
                () = send.closed() => return false,
                () = tokio::time::sleep(HEARTBEAT) => drop(send.send(Bytes::from_static(b": \n\n")).await),
            }
        }
    }

    /// Where many read along, they are not all woken for every line: the task needs the processor too. The end of a
    /// task is told at once.
    async fn let_the_task_work(&self, bell: &mut watch::Receiver<u64>) {
        let listeners = self.house.keeper.listeners(self.task);
        if listeners > FEW {
            let pause = (PAUSE_EACH * u32::try_from(listeners).unwrap_or(u32::MAX)).min(PAUSE_MOST);
            let _ = tokio::time::timeout(pause, bell.wait_for(|rings| *rings == SETTLED)).await;
        }
    }

    /// The next events that are there, if any: from those who were here before, else from the disk.
    fn piece(&mut self) -> Answer<Piece> {
        let at = (self.task, self.next_seq);
        // The `tool_task` view depends on what its reader has seen; the others only on where they are.
        let shared = self.view == View::Native && self.pace.is_none();
        if shared && let Some(piece) = self.house.pieces.get(at) {
            self.next_seq = piece.next_seq;
            while self.read.front().is_some_and(|(seq, _)| *seq < piece.next_seq) {
                self.read.pop_front();
            }
            return Ok(piece);
        }
        let piece = self.render()?;
        self.next_seq = piece.next_seq;
        if shared && !piece.bytes.is_empty() {
            self.house.pieces.put(at, piece.clone());
        }
        Ok(piece)
    }

    /// Reads on where nothing is left that was read before.
    fn fill(&mut self) -> Answer<()> {
        if self.read.is_empty() {
            if self.stream.next_seq() < self.next_seq {
                let skipped = self.stream.skip_to(self.next_seq);
                skipped.map_err(|e| Refusal::new(Code::Internal, format!("the journal cannot be read: {e}")))?;
            }
            self.read = self.house.readers.with(|r| Ok(self.stream.next(r, LINES)))??.into();
        }
        Ok(())
    }

    fn render(&mut self) -> Answer<Piece> {
        self.fill()?;
        let most = if self.pace.is_some() { 1 } else { PIECE };
        let (mut out, mut ended, mut next_seq) = (String::new(), false, self.next_seq);
        while out.len() < most
            && let Some((seq, line)) = self.read.pop_front()
        {
            if seq > next_seq {
                // What lies between was removed, or does not read.
                let _ =
                    write!(out, "event: gap\nid: {}\ndata: {{\"from\":{next_seq},\"to\":{}}}\n\n", seq - 1, seq - 1);
            }
            next_seq = seq + 1;
            let output = line.contains(r#""kind":"stream.output""#);
            let settled = line.contains(r#""kind":"task.settled""#);
            let sealed = line.contains(r#""kind":"receipt.sealed""#);
            let gap = line.contains(r#""kind":"stream.gap""#);
            let record = match output || settled || sealed || gap || self.view == View::ToolTask {
                true => Record::parse(&line).ok(),
                false => None,
            };
            if let Some(Record { what: What::Frame(frame), .. }) = &record {
                self.gaps.note(frame);
            }
            let rendered = record.as_ref().and_then(|r| self.rendered(r));
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
            ended |= match record {
                Some(Record { what: What::Decision(Decision::Sealed(_)), .. }) => true,
                // In a house that makes out no receipts, this is the end.
                Some(Record { what: What::Decision(Decision::Settled { .. }), .. }) => !self.house.seals(),
                _ => false,
            };
        }
        if out.is_empty() && !ended {
            // A cursor behind the last record: there is nothing to wait for.
            ended = self.house.projections.ended_before(&self.house, self.task, next_seq)?;
        }
        if ended {
            out.push_str("event: end\ndata: {}\n\n");
        }
        Ok(Piece { bytes: out.into(), next_seq, ended })
    }

    /// The readable part of an output frame. Bytes that are gone or were changed do not end the stream: the frame is
    /// shown with the reason in their place.
    fn rendered(&self, record: &Record) -> Option<Rendered> {
        let What::Frame(Frame::Output { stream, offset, len, digest }) = &record.what else { return None };
        let encode = |b: &[u8]| STANDARD.encode(b);
        let dir = self.house.home.task_dir(self.task);
        let dropped = self.gaps.before(*stream, *offset);
        let long = *len > INLINE_WHOLE as u64;
        let read = if long && self.house.keeper.is_kept(self.task) {
            // Just written by a shim that lives: reading the whole chunk to check it would cost the task its speed.
            output::ends(&dir, *stream, offset.saturating_sub(dropped), *len, Rendered::END)
                .map(|(head, tail)| Rendered::ends(&head, &tail, *len, encode))
                .map_err(ReadError::from)
        } else {
            output::chunk(&dir, *stream, *offset, *len, *digest, dropped).map(|bytes| match long {
                true => Rendered::ends(&bytes[..Rendered::END], &bytes[bytes.len() - Rendered::END..], *len, encode),
                false => Rendered::whole(&bytes, encode),
            })
        };
        Some(read.unwrap_or_else(|e| Rendered::unreadable(e.to_string())))
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
