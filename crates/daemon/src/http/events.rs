//! `/tasks/{id}/events`: the records of a task as server-sent events, history first, then as they are written.
//!
//! Every reader has its own cursor and reads the files; notifications only say that there is more. A slow reader delays
//! only itself: its socket fills, and its reading stops. Readers at the same position share a rendered batch, so that
//! two hundred cost little more than one.

use super::{
    SharedState, body,
    extract::{Params, Segment},
    problem::HttpResult,
};
use crate::{
    caller::Caller,
    ops::{ApiResult, Ops},
    records::{EventBatch, OutputChunk},
};
use axum::{extract::State, http::HeaderMap, response::Response};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use countersign_model::{
    CredentialScope, Decision, MAX_COMPLETE_BYTES, Record, RecordContent, Refusal, RefusalCode, RenderedOutput, TaskId,
    TaskState,
    api::EventQuery,
    view::{self, View},
};
use countersign_store::{output::StreamGaps, stream::TaskStream};
use std::{collections::VecDeque, fmt::Write as _, str::FromStr, sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// How often a comment is sent, so that idle connections are not closed.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// How much of the journal is read at a time, and how much is sent.
const READ_BYTES: usize = 8 * 1024;
const BATCH_BYTES: usize = 16 * 1024;
/// Up to this many readers wake for every notification; each further one lengthens the pause of all.
const READERS_WITHOUT_PAUSE: usize = 8;
const PAUSE_PER_READER: Duration = Duration::from_micros(500);
const MAX_PAUSE: Duration = Duration::from_millis(100);
/// How much each of many readers gets of a task that prints faster than all of them read, between two pauses.
const BYTES_BETWEEN_PAUSES: usize = 64 * 1024;

/// The last event that a reader has seen: the number of its record and, if a view makes several events of one record,
/// its index among them.
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

pub(crate) async fn task_events(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    headers: HeaderMap,
    Params(query): Params<EventQuery>,
) -> HttpResult<Response> {
    caller.require_scope(CredentialScope::Observe)?;
    let ops = Arc::clone(&front.ops);
    if query.speed.is_some_and(|s| !s.is_finite() || s <= 0.0) {
        return Err(Refusal::new(RefusalCode::BadRequest, "`speed` must be a number above zero").into());
    }
    let last = match headers.get("last-event-id") {
        None => None,
        Some(id) => Some(id.to_str().ok().and_then(|id| id.parse::<EventPosition>().ok()).ok_or_else(|| {
            Refusal::new(RefusalCode::BadRequest, "`Last-Event-ID` must be the id of an event of this stream")
        })?),
    };
    if last.is_some_and(|last| last.nth.is_some()) && query.view != Some(View::ToolTask) {
        return Err(
            Refusal::new(RefusalCode::BadRequest, "`Last-Event-ID` must be the id of an event of this stream").into()
        );
    }
    let task = ops.records.find_task(&caller, &id)?;
    ops.records.load_task(task).await?;
    // The reader may not have seen the later events of a record that a view splits.
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
        lines: VecDeque::new(),
        view: query.view.unwrap_or_default(),
        seen_events: seen,
        state: None,
        gaps: StreamGaps::from_state(&ops.records.state(task)?),
        pace: query.speed.map(|speed| ReadPace { speed, last_us: None }),
        ops,
        task,
    };
    tokio::spawn(reader.run(send));
    Ok(body::event_response(receive))
}

struct EventReader {
    caller: Caller,
    ops: Arc<Ops>,
    task: TaskId,
    stream: TaskStream,
    /// The number of the next event, and the lines that were read but not sent.
    next_seq: u64,
    lines: VecDeque<(u64, String)>,
    view: View,
    /// The record of which the reader has seen some events already, and how many.
    seen_events: Option<(u64, usize)>,
    /// Only the `tool_task` view needs the state before a record.
    state: Option<TaskState>,
    /// What was dropped before the chunks that are shown.
    gaps: StreamGaps,
    /// The playback speed of a recording.
    pace: Option<ReadPace>,
}

struct ReadPace {
    speed: f64,
    last_us: Option<u64>,
}

impl ReadPace {
    /// The delay between the previous record and this one.
    fn delay_before(&mut self, line: &str) -> Duration {
        let Some(t_us) = Record::parse(line).ok().and_then(|r| r.t_us) else { return Duration::ZERO };
        let since = t_us.saturating_sub(self.last_us.unwrap_or(t_us));
        self.last_us = Some(t_us);
        Duration::from_secs_f64((since as f64 / 1e6 / self.speed).min(86_400.0))
    }
}

impl EventReader {
    async fn run(mut self, send: mpsc::Sender<Bytes>) {
        self.send_events(&send).await;
        // Other readers of this task create the entry again.
        self.ops.registry.forget_task(self.task);
    }

    async fn send_events(&mut self, send: &mpsc::Sender<Bytes>) {
        let mut notifications = self.ops.registry.subscribe(self.task);
        let mut sent_since_pause = 0;
        if send.send(Bytes::from_static(b"retry: 2000\n\n")).await.is_err() {
            return;
        }
        loop {
            notifications.mark_unchanged();
            if !self.keep_pace(send).await {
                return;
            }
            // Reads only when there is room.
            let Ok(room) = send.reserve().await else { return };
            if !self.ops.still_admits(&self.caller) {
                return;
            }
            let before = self.next_seq;
            let piece = match self.next_batch() {
                Ok(piece) => piece,
                Err(problem) => {
                    crate::log!("{}: its events cannot be read: {problem:?}", self.task);
                    return;
                }
            };
            let nothing = piece.bytes.is_empty();
            sent_since_pause += piece.bytes.len();
            // A heartbeat needs the room, too.
            if nothing {
                drop(room)
            } else {
                room.send(piece.bytes)
            }
            if piece.ended {
                return;
            }
            // A view may render nothing for many records; more may follow them.
            if nothing && self.next_seq == before {
                tokio::select! {
                    changed = notifications.changed() => if changed.is_err() {
                        // The entry was removed when the task settled; the settlement can be read now.
                        notifications = self.ops.registry.subscribe(self.task);
                    } else {
                        self.pause_for_other_readers().await;
                        sent_since_pause = 0;
                    },
                    () = tokio::time::sleep(HEARTBEAT_INTERVAL) => {
                        if send.send(Bytes::from_static(b": \n\n")).await.is_err() {
                            return;
                        }
                    }
                    () = send.closed() => return,
                }
            } else if sent_since_pause >= BYTES_BETWEEN_PAUSES && self.ops.registry.has_shim(self.task) {
                self.pause_for_other_readers().await;
                sent_since_pause = 0;
            }
        }
    }

    /// Waits until the next record is due, in a playback. Returns whether the reader is still there.
    async fn keep_pace(&mut self, send: &mpsc::Sender<Bytes>) -> bool {
        if self.pace.is_none() {
            return true;
        }
        if self.fill().is_err() {
            return true;
        }
        let (Some(pace), Some((_, line))) = (&mut self.pace, self.lines.front()) else { return true };
        let due = tokio::time::Instant::now() + pace.delay_before(line);
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(due) => return true,
                () = send.closed() => return false,
                () = tokio::time::sleep(HEARTBEAT_INTERVAL) => drop(send.send(Bytes::from_static(b": \n\n")).await),
            }
        }
    }

    /// With many readers, not all of them read every line at once: the task needs the processor too. The end of a task
    /// is reported immediately.
    async fn pause_for_other_readers(&self) {
        let listeners = self.ops.registry.follower_count(self.task);
        if listeners > READERS_WITHOUT_PAUSE {
            let pause = (PAUSE_PER_READER * u32::try_from(listeners).unwrap_or(u32::MAX)).min(MAX_PAUSE);
            let _ = tokio::time::timeout(pause, self.ops.registry.wait_until_settled(self.task)).await;
        }
    }

    /// The next events, if any: from the shared cache, or else from disk.
    fn next_batch(&mut self) -> ApiResult<EventBatch> {
        let at = (self.task, self.next_seq);
        // The `tool_task` view depends on what its reader has seen; the others only on the position.
        let shared = self.view == View::Native && self.pace.is_none();
        if shared && let Some(piece) = self.ops.records.cached_batch(at) {
            self.next_seq = piece.next_seq;
            while self.lines.front().is_some_and(|(seq, _)| *seq < piece.next_seq) {
                self.lines.pop_front();
            }
            return Ok(piece);
        }
        let piece = self.render()?;
        self.next_seq = piece.next_seq;
        if shared && !piece.bytes.is_empty() {
            self.ops.records.cache_batch(at, piece.clone());
        }
        Ok(piece)
    }

    /// Reads more lines if none are left.
    fn fill(&mut self) -> ApiResult<()> {
        if self.lines.is_empty() {
            if self.stream.next_seq() < self.next_seq {
                let skipped = self.stream.skip_to(self.next_seq);
                skipped.map_err(|e| Refusal::new(RefusalCode::Internal, format!("the journal cannot be read: {e}")))?;
            }
            self.lines = self.ops.records.read_lines(&mut self.stream, READ_BYTES)?.into();
        }
        Ok(())
    }

    fn render(&mut self) -> ApiResult<EventBatch> {
        self.fill()?;
        let most = if self.pace.is_some() { 1 } else { BATCH_BYTES };
        let (mut out, mut ended, mut next_seq) = (String::new(), false, self.next_seq);
        while out.len() < most
            && let Some((seq, line)) = self.lines.pop_front()
        {
            if seq > next_seq {
                // The records in between were removed or cannot be read.
                let _ =
                    write!(out, "event: gap\nid: {}\ndata: {{\"from\":{next_seq},\"to\":{}}}\n\n", seq - 1, seq - 1);
            }
            next_seq = seq + 1;
            let output = line.contains(r#""kind":"stream.output""#);
            let settled = line.contains(r#""kind":"task.settled""#);
            let sealed = line.contains(r#""kind":"receipt.sealed""#);
            let gap = line.contains(r#""kind":"stream.gap""#);
            let record = if output || settled || sealed || gap || self.view == View::ToolTask {
                Record::parse(&line).ok()
            } else {
                None
            };
            if let Some(Record { what: RecordContent::Frame(frame), .. }) = &record {
                self.gaps.add_frame(frame);
            }
            let rendered = record.as_ref().and_then(|r| self.render_output(r));
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
                // If this daemon makes no receipts, this is the end.
                Some(Record { what: RecordContent::Decision(Decision::Settled { .. }), .. }) => {
                    !self.ops.records.makes_receipts()
                }
                _ => false,
            };
        }
        if out.is_empty() && !ended {
            // The cursor is after the last record: there is nothing to wait for.
            ended = self.ops.records.ended_before(self.task, next_seq)?;
        }
        if ended {
            out.push_str("event: end\ndata: {}\n\n");
        }
        Ok(EventBatch { bytes: out.into(), next_seq, ended })
    }

    /// The readable part of an output frame. Missing or changed bytes do not end the stream: the frame is shown with
    /// the reason in their place.
    fn render_output(&self, record: &Record) -> Option<RenderedOutput> {
        let RecordContent::Frame(frame) = &record.what else { return None };
        let chunk = OutputChunk::from_frame(frame)?;
        let encode = |b: &[u8]| STANDARD.encode(b);
        let (records, len) = (&self.ops.records, chunk.len);
        let dropped = self.gaps.dropped_before(chunk.stream, chunk.offset);
        let long = len > MAX_COMPLETE_BYTES as u64;
        let read = if long && self.ops.registry.has_shim(self.task) {
            // A live shim just wrote it: reading the whole chunk to verify it would slow the task down.
            let ends = records.read_chunk_ends(self.task, chunk, dropped, RenderedOutput::END_BYTES);
            ends.map(|(head, tail)| RenderedOutput::ends(&head, &tail, len, encode))
        } else {
            records.read_chunk(self.task, chunk, dropped).map(|bytes| {
                if long {
                    RenderedOutput::ends(
                        &bytes[..RenderedOutput::END_BYTES],
                        &bytes[bytes.len() - RenderedOutput::END_BYTES..],
                        len,
                        encode,
                    )
                } else {
                    RenderedOutput::complete(&bytes, encode)
                }
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
            None => self.state = self.fold_up_to(record)?,
        }
        if let Some(state) = &self.state {
            let seen = self.seen_events.filter(|(record, _)| *record == seq).map_or(0, |(_, seen)| seen);
            for (nth, event) in view::tool_task(self.task, record, state, rendered).iter().enumerate().skip(seen) {
                let _ = write!(out, "id: {seq}.{nth}\ndata: {event}\n\n");
            }
        }
        Ok(())
    }

    /// The state of the task up to this record, for a reader that joins late.
    fn fold_up_to(&self, record: &Record) -> ApiResult<Option<TaskState>> {
        let (mut stream, mut state) = (self.ops.records.stream(self.task, 0), None::<TaskState>);
        loop {
            let lines = self.ops.records.read_lines(&mut stream, READ_BYTES)?;
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
    fn an_event_id_names_its_record_and_its_index() {
        assert_eq!("7".parse(), Ok(EventPosition { seq: 7, nth: None }));
        assert_eq!("7.1".parse(), Ok(EventPosition { seq: 7, nth: Some(1) }));
        for bad in ["", ".", "7.", ".1", "7.1.2", "-1", "x"] {
            assert!(bad.parse::<EventPosition>().is_err(), "{bad}");
        }
    }
}
