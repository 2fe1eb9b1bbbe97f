//! `/tasks/{id}/events`: the stream as server-sent events, history first, then as it happens.
//!
//! Every reader has its own cursor and reads the files; the bell says only that there is more. One that is slow is
//! slow by itself: its socket fills, its reading stops, nobody else notices. Readers that stand at the same place
//! share what is rendered there, so that two hundred cost little more than one.

use super::{
    Shared, body,
    extract::{Params, Segment},
    problem::HttpResult,
};
use crate::{
    caller::Caller,
    ops::{ApiResult, Ops},
    records::{EventBatch, OutputChunk},
    shims::registry::SETTLED,
};
use axum::{extract::State, http::HeaderMap, response::Response};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use countersign_model::{
    CredentialScope, Decision, MAX_COMPLETE_BYTES, Record, RecordContent, Refusal, RefusalCode, RenderedOutput, TaskId, TaskState,
    api::EventQuery,
    view::{self, View},
};
use countersign_store::{output::StreamGaps, stream::TaskStream};
use std::{collections::VecDeque, fmt::Write as _, str::FromStr, sync::Arc, time::Duration};
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

/// The last event that a reader has seen: the number of its record, and its place among the events of that record, where
/// a view makes several of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EventPosition {
    seq: u64,
    nth: Option<usize>,
}

impl FromStr for EventPosition {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('.') {
            None => Ok(Self { seq: text.parse()?, nth: None }),
            Some((seq, nth)) => Ok(Self { seq: seq.parse()?, nth: Some(nth.parse()?) }),
        }
    }
}

pub(crate) async fn of_task(
    State(front): Shared,
    caller: Caller,
    Segment(id): Segment,
    headers: HeaderMap,
    Params(query): Params<EventQuery>,
) -> HttpResult<Response> {
    caller.may(CredentialScope::Observe)?;
    let ops = Arc::clone(&front.ops);
    if query.speed.is_some_and(|s| !s.is_finite() || s <= 0.0) {
        return Err(Refusal::new(RefusalCode::BadRequest, "`speed` is a number above zero").into());
    }
    let last = match headers.get("last-event-id") {
        None => None,
        Some(id) => Some(id.to_str().ok().and_then(|id| id.parse::<EventPosition>().ok()).ok_or_else(|| {
            Refusal::new(RefusalCode::BadRequest, "`Last-Event-ID` is the id of an event of this stream")
        })?),
    };
    if last.is_some_and(|last| last.nth.is_some()) && query.view != Some(View::ToolTask) {
        return Err(
            Refusal::new(RefusalCode::BadRequest, "`Last-Event-ID` is the id of an event of this stream").into()
        );
    }
    let task = ops.records.find(&caller, &id)?;
    ops.records.warm(task).await?;
    // Of a record that a view makes several events of, the later ones may not have been seen.
    let (from, seen) = match (last, query.after) {
        (Some(EventPosition { seq, nth: Some(nth) }), _) => (seq, Some((seq, nth.saturating_add(1)))),
        (Some(EventPosition { seq, nth: None }), _) | (None, Some(seq)) => (seq.saturating_add(1), None),
        (None, None) => (0, None),
    };
    let (send, receive) = mpsc::channel(1);
    let reader = EventReader {
        caller,
        stream: ops.records.stream(task, from),
        next_seq: from,
        read: VecDeque::new(),
        view: query.view.unwrap_or_default(),
        seen,
        state: None,
        gaps: StreamGaps::from_state(&ops.records.state(task)?),
        pace: query.speed.map(|speed| ReadPace { speed, last_us: None }),
        ops,
        task,
    };
    tokio::spawn(reader.run(send));
    Ok(body::events(receive))
}

struct EventReader {
    caller: Caller,
    ops: Arc<Ops>,
    task: TaskId,
    stream: TaskStream,
    /// The number of the next event to be sent, and lines that were read and not sent yet.
    next_seq: u64,
    read: VecDeque<(u64, String)>,
    view: View,
    /// Of this record its reader has seen some events already, and how many.
    seen: Option<(u64, usize)>,
    /// Only the `tool_task` view needs to know what came before.
    state: Option<TaskState>,
    /// What was dropped before the chunks that are shown.
    gaps: StreamGaps,
    /// A recording that is played back at a speed.
    pace: Option<ReadPace>,
}

struct ReadPace {
    speed: f64,
    last_us: Option<u64>,
}

impl ReadPace {
    /// How long after the record before this one comes.
    fn before(&mut self, line: &str) -> Duration {
        let Some(t_us) = Record::parse(line).ok().and_then(|r| r.t_us) else { return Duration::ZERO };
        let since = t_us.saturating_sub(self.last_us.unwrap_or(t_us));
        self.last_us = Some(t_us);
        Duration::from_secs_f64((since as f64 / 1e6 / self.speed).min(86_400.0))
    }
}

impl EventReader {
    async fn run(mut self, send: mpsc::Sender<Bytes>) {
        self.tell(&send).await;
        // Others who wait for the same bell make it anew.
        self.ops.registry.unlist(self.task);
    }

    async fn tell(&mut self, send: &mpsc::Sender<Bytes>) {
        let mut notifications = self.ops.registry.subscribe(self.task);
        if send.send(Bytes::from_static(b"retry: 2000\n\n")).await.is_err() {
            return;
        }
        loop {
            notifications.mark_unchanged();
            if !self.keep_pace(send).await {
                return;
            }
            // Nothing is read before there is room for it.
            let Ok(room) = send.reserve().await else { return };
            if !self.ops.still_admits(&self.caller) {
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
                    rung = notifications.changed() => if rung.is_err() {
                        // The entry went with its settlement: what that wrote is there now.
                        notifications = self.ops.registry.subscribe(self.task);
                    } else {
                        self.let_the_task_work(&mut notifications).await;
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
    async fn let_the_task_work(&self, notifications: &mut watch::Receiver<u64>) {
        let listeners = self.ops.registry.listeners(self.task);
        if listeners > FEW {
            let pause = (PAUSE_EACH * u32::try_from(listeners).unwrap_or(u32::MAX)).min(PAUSE_MOST);
            let _ = tokio::time::timeout(pause, notifications.wait_for(|rings| *rings == SETTLED)).await;
        }
    }

    /// The next events that are there, if any: from those who were here before, else from the disk.
    fn piece(&mut self) -> ApiResult<EventBatch> {
        let at = (self.task, self.next_seq);
        // The `tool_task` view depends on what its reader has seen; the others only on where they are.
        let shared = self.view == View::Native && self.pace.is_none();
        if shared && let Some(piece) = self.ops.records.piece(at) {
            self.next_seq = piece.next_seq;
            while self.read.front().is_some_and(|(seq, _)| *seq < piece.next_seq) {
                self.read.pop_front();
            }
            return Ok(piece);
        }
        let piece = self.render()?;
        self.next_seq = piece.next_seq;
        if shared && !piece.bytes.is_empty() {
            self.ops.records.keep_piece(at, piece.clone());
        }
        Ok(piece)
    }

    /// Reads on where nothing is left that was read before.
    fn fill(&mut self) -> ApiResult<()> {
        if self.read.is_empty() {
            if self.stream.next_seq() < self.next_seq {
                let skipped = self.stream.skip_to(self.next_seq);
                skipped.map_err(|e| Refusal::new(RefusalCode::Internal, format!("the journal cannot be read: {e}")))?;
            }
            self.read = self.ops.records.next(&mut self.stream, LINES)?.into();
        }
        Ok(())
    }

    fn render(&mut self) -> ApiResult<EventBatch> {
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
            if let Some(Record { what: RecordContent::Frame(frame), .. }) = &record {
                self.gaps.add_frame(frame);
            }
            let rendered = record.as_ref().and_then(|r| self.rendered(r));
            match self.view {
                View::Native => {
                    let line = rendered.map_or_else(|| line.clone(), |r| r.add_to_line(&line));
                    let _ = write!(out, "id: {seq}\ndata: {line}\n\n");
                }
                View::Terminal => {
                    let line = rendered.map_or_else(|| line.clone(), |r| r.add_to_line(&line));
                    let _ = write!(out, "id: {seq}\ndata: {}\n\n", view::terminal(&line));
                }
                View::ToolTask => self.tool_task(&mut out, seq, record.as_ref(), rendered.as_ref())?,
            }
            ended |= match record {
                Some(Record { what: RecordContent::Decision(Decision::Sealed(_)), .. }) => true,
                // In a house that makes out no receipts, this is the end.
                Some(Record { what: RecordContent::Decision(Decision::Settled { .. }), .. }) => {
                    !self.ops.records.seals()
                }
                _ => false,
            };
        }
        if out.is_empty() && !ended {
            // A cursor behind the last record: there is nothing to wait for.
            ended = self.ops.records.ended_before(self.task, next_seq)?;
        }
        if ended {
            out.push_str("event: end\ndata: {}\n\n");
        }
        Ok(EventBatch { bytes: out.into(), next_seq, ended })
    }

    /// The readable part of an output frame. Bytes that are gone or were changed do not end the stream: the frame is
    /// shown with the reason in their place.
    fn rendered(&self, record: &Record) -> Option<RenderedOutput> {
        let RecordContent::Frame(frame) = &record.what else { return None };
        let chunk = OutputChunk::of(frame)?;
        let encode = |b: &[u8]| STANDARD.encode(b);
        let (records, len) = (&self.ops.records, chunk.len);
        let dropped = self.gaps.dropped_before(chunk.stream, chunk.offset);
        let long = len > MAX_COMPLETE_BYTES as u64;
        let read = if long && self.ops.registry.has_shim(self.task) {
            // Just written by a shim that lives: reading the whole chunk to check it would cost the task its speed.
            let ends = records.chunk_ends(self.task, chunk, dropped, RenderedOutput::END_BYTES);
            ends.map(|(head, tail)| RenderedOutput::ends(&head, &tail, len, encode))
        } else {
            records.chunk(self.task, chunk, dropped).map(|bytes| match long {
                true => RenderedOutput::ends(&bytes[..RenderedOutput::END_BYTES], &bytes[bytes.len() - RenderedOutput::END_BYTES..], len, encode),
                false => RenderedOutput::complete(&bytes, encode),
            })
        };
        Some(read.unwrap_or_else(|e| RenderedOutput::unreadable(e.to_string())))
    }

    fn tool_task(
        &mut self,
        out: &mut String,
        seq: u64,
        record: Option<&Record>,
        rendered: Option<&RenderedOutput>,
    ) -> ApiResult<()> {
        let Some(record) = record else { return Ok(()) };
        match &mut self.state {
            Some(state) => state.apply(record),
            None => self.state = self.folded(record)?,
        }
        if let Some(state) = &self.state {
            let seen = self.seen.filter(|(record, _)| *record == seq).map_or(0, |(_, seen)| seen);
            for (nth, event) in view::tool_task(self.task, record, state, rendered).iter().enumerate().skip(seen) {
                let _ = write!(out, "id: {seq}.{nth}\ndata: {event}\n\n");
            }
        }
        Ok(())
    }

    /// The task as it was with this record, for a reader that joins late.
    fn folded(&self, record: &Record) -> ApiResult<Option<TaskState>> {
        let (mut stream, mut state) = (self.ops.records.stream(self.task, 0), None::<TaskState>);
        loop {
            let lines = self.ops.records.next(&mut stream, LINES)?;
            if lines.is_empty() {
                return Ok(state);
            }
            for (seq, line) in lines {
                let Ok(earlier) = Record::parse(&line) else { continue };
                match &mut state {
                    Some(state) => state.apply(&earlier),
                    None => state = TaskState::begin(self.task, &earlier),
                }
                if seq >= record.seq {
                    return Ok(state);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_event_names_its_record_and_its_place() {
        assert_eq!("7".parse(), Ok(EventPosition { seq: 7, nth: None }));
        assert_eq!("7.1".parse(), Ok(EventPosition { seq: 7, nth: Some(1) }));
        for bad in ["", ".", "7.", ".1", "7.1.2", "-1", "x"] {
            assert!(bad.parse::<EventPosition>().is_err(), "{bad}");
        }
    }
}
