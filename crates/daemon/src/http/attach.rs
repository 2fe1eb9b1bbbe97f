//! `/tasks/{id}/attach`: a task over a WebSocket. It shows the screen and then each record; input and size go the other
//! way.
//!
//! The daemon sends text for records (the line of each) and binary for bytes: those of the preceding output record, or
//! the drawing of the screen after `attach.begin` or `attach.screen`. The client sends binary for typed input, and text
//! for `{"stdin": …}`, `{"resize": …}` and `{"signal": …}`. Its messages are numbered; each is answered by
//! `attach.applied` or `attach.refused` with its number. A client that names a `key` may reconnect and send unanswered
//! messages again: each is applied once.
//!
//! A viewer reads the files like every other reader, with its own cursor: a slow one delays only itself. One that
//! allows it (`skip`) and falls far behind a terminal with much output gets the current screen and continues from
//! there: its input must not wait until it has received everything.

use super::{
    SharedState,
    extract::{Params, Segment},
    problem::HttpResult,
};
use crate::{
    caller::Caller,
    facts,
    json::parse,
    ops::{ApiResult, Ops, control, screen::screen},
    records::OutputChunk,
    shims::registry::{ScreenAt, ShimReply},
};
use axum::{
    extract::{
        FromRequestParts as _, Request, State,
        ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade},
    },
    response::Response,
};
use countersign_model::{
    CredentialScope, Decision, Frame, Idempotency, Mode, Record, RecordContent, Refusal, RefusalCode, StreamName,
    TaskId, TaskRefusal, TaskState, Text,
    api::{AttachEvent, AttachMessage, AttachQuery, AttachScreen, ResizeBody},
};
use countersign_shim::wire::ToShim;
use countersign_store::{output::StreamGaps, stream::TaskStream};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::{sync::oneshot, task::JoinSet};

const READ_BYTES: usize = 8 * 1024;
/// How much a late viewer of a task without a terminal is shown of each stream: lines, and bytes at most.
const TAIL_LINES: u64 = 100;
const TAIL_BYTES: u64 = 64 * 1024;
/// A viewer that is further behind gets the screen instead.
const MAX_LAG_BYTES: u64 = 1024 * 1024;
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
const MAX_MESSAGE_BYTES: usize = 128 * 1024;

pub(crate) async fn attach(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    Params(query): Params<AttachQuery>,
    request: Request,
) -> HttpResult<Response> {
    caller.require_scope(CredentialScope::Observe)?;
    let ops = Arc::clone(&front.ops);
    let AttachQuery { read_only, after, key, from: message_count, skip } = query;
    if message_count > u64::from(u32::MAX) {
        return Err(Refusal::new(RefusalCode::BadRequest, "`from` must be the number of a message").into());
    }
    if key.as_ref().is_some_and(|k| k.is_empty() || k.len() > 255) {
        return Err(Refusal::new(RefusalCode::BadRequest, "`key` must have 1 to 255 characters").into());
    }
    let task = ops.records.find_task(&caller, &id)?;
    let types =
        caller.require_scope(CredentialScope::Run).is_ok() && ops.records.find_controlled_task(&caller, &id).is_ok();
    ops.records.load_task(task).await?;
    let (mut parts, _) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await.map_err(|e| {
        Refusal::new(RefusalCode::BadRequest, format!("this path needs a WebSocket: {e}"))
            .hint("use `csn attach`, or /tasks/{id}/events for server-sent events")
    })?;
    let upgrade = upgrade.max_message_size(MAX_MESSAGE_BYTES).max_frame_size(MAX_MESSAGE_BYTES);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let stream = ops.records.stream(task, 0);
        let mut viewer = AttachedViewer {
            ops,
            task,
            socket,
            stream,
            lines: VecDeque::new(),
            read_only: read_only || !types,
            actor: caller.actor(),
            caller,
            skip,
            key,
            message_count,
            replies: JoinSet::new(),
            limited: false,
            gaps: StreamGaps::default(),
            drawn_offset: 0,
            ended: false,
        };
        if let Err(DetachCause::Problem(refusal)) = viewer.run(after).await {
            let _ = viewer.send_event(&AttachEvent::Refused { n: None, refusal }).await;
        }
        viewer.close().await;
    }))
}

/// Why a viewer is disconnected.
enum DetachCause {
    /// The client left.
    Left,
    Problem(Refusal),
}

impl From<Refusal> for DetachCause {
    fn from(refusal: Refusal) -> Self {
        DetachCause::Problem(refusal)
    }
}

impl From<TaskRefusal> for DetachCause {
    fn from(problem: TaskRefusal) -> Self {
        DetachCause::Problem(problem.refusal)
    }
}

impl From<axum::Error> for DetachCause {
    fn from(_: axum::Error) -> Self {
        DetachCause::Left
    }
}

struct AttachedViewer {
    ops: Arc<Ops>,
    task: TaskId,
    socket: WebSocket,
    stream: TaskStream,
    /// Lines that were read and not sent yet.
    lines: VecDeque<String>,
    read_only: bool,
    caller: Caller,
    /// The actor of its input, in the record.
    actor: Text,
    /// Whether it may miss output, as long as it sees the screen.
    skip: bool,
    key: Option<String>,
    /// The number of messages received.
    message_count: u64,
    replies: JoinSet<(u64, Result<u64, Refusal>)>,
    /// Output exceeds its limit and is not kept: until the task ends, only the screen shows it.
    limited: bool,
    gaps: StreamGaps,
    /// Output before this offset was on a screen that the viewer has.
    drawn_offset: u64,
    /// The last record has been sent.
    ended: bool,
}

impl AttachedViewer {
    async fn run(&mut self, after: Option<u64>) -> Result<(), DetachCause> {
        let mut notifications = self.ops.registry.subscribe(self.task);
        self.send_begin(after).await?;
        let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if !self.ops.still_admits(&self.caller) {
                return Err(Refusal::new(RefusalCode::Unauthorized, "the token was revoked or has expired").into());
            }
            let notified = notifications.has_changed().unwrap_or(true);
            notifications.mark_unchanged();
            self.read_more().await?;
            if notified && self.shows_screen() && self.lines.is_empty() && !self.ended {
                self.redraw().await?;
            }
            if self.ended {
                self.ops.registry.forget_task(self.task);
                return Ok(());
            }
            let waiting = self.lines.is_empty();
            tokio::select! {
                // Input first: it must not wait for output.
                biased;
                message = self.socket.recv() => self.handle_message(message).await?,
                Some(done) = self.replies.join_next() => {
                    if let Ok((n, result)) = done {
                        self.send_reply(n, result).await?;
                    }
                }
                () = std::future::ready(()), if !waiting => self.send_next().await?,
                notified = notifications.changed() => match notified {
                    Err(_) => notifications = self.ops.registry.subscribe(self.task),
                    // Marked as unseen: the top of the loop may have to redraw.
                    Ok(()) => notifications.mark_changed(),
                },
                _ = heartbeat.tick() => self.socket.send(Message::Ping(Default::default())).await?,
            }
        }
    }

    /// Reads the next lines if none are left. A viewer far behind a terminal gets the screen instead.
    async fn read_more(&mut self) -> Result<(), DetachCause> {
        if !self.lines.is_empty() || self.ended {
            return Ok(());
        }
        let from = self.stream.next_seq();
        let lines = self.ops.records.read_lines(&mut self.stream, READ_BYTES)?;
        self.lines.extend(lines.into_iter().map(|(_, line)| line));
        if self.lines.is_empty() {
            self.ended = self.ops.records.ended_before(self.task, from)?;
        } else if self.skip && self.is_far_behind()? {
            self.redraw().await?;
        }
        Ok(())
    }

    fn is_far_behind(&self) -> Result<bool, DetachCause> {
        let first = self.lines.iter().find_map(|line| match Record::parse(line).ok()?.what {
            RecordContent::Frame(Frame::Output { stream: StreamName::Pty, offset, .. }) => Some(offset),
            _ => None,
        });
        let Some(offset) = first else { return Ok(false) };
        let state = self.ops.records.state(self.task)?;
        let end = state.io.streams.get(&StreamName::Pty).map_or(0, |s| s.bytes);
        Ok(end.saturating_sub(offset.max(self.drawn_offset)) > MAX_LAG_BYTES)
    }

    async fn send_event(&mut self, event: &AttachEvent) -> Result<(), DetachCause> {
        let json = serde_json::to_string(event).unwrap_or_default();
        Ok(self.socket.send(Message::text(json)).await?)
    }

    /// Sends the current state, and sets where the records continue.
    async fn send_begin(&mut self, after: Option<u64>) -> Result<(), DetachCause> {
        let state = self.ops.records.state(self.task)?;
        self.limited = is_limited(&state);
        self.gaps = StreamGaps::from_state(&state);
        let begin = |screen| AttachEvent::Begin { v: 1, task: Box::new(state.clone()), screen };
        if after.is_some() || state.first_seq().is_none() {
            let from = after.map_or(0, |seq| seq.saturating_add(1));
            self.stream = self.ops.records.stream(self.task, from);
            return self.send_event(&begin(None)).await;
        }
        if state.request.mode == Mode::Pipes {
            self.send_event(&begin(None)).await?;
            for stream in StreamName::for_mode(state.request.mode) {
                self.send_tail(&state, *stream).await?;
            }
            self.stream = self.ops.records.stream(self.task, state.next_seq);
            return Ok(());
        }
        let now = screen(&self.ops, self.task).await?;
        let event = begin(Some(describe_screen(&now)));
        self.stream = self.ops.records.stream(self.task, now.next_seq);
        self.send_event(&event).await?;
        self.send_drawing(*now).await
    }

    async fn send_drawing(&mut self, now: ScreenAt) -> Result<(), DetachCause> {
        Ok(self.socket.send(Message::binary(now.screen.drawn.into_inner().into_bytes())).await?)
    }

    /// Sends the screen again, to a viewer that cannot follow byte by byte; output after it is sent as usual. A task
    /// that has ended has a screen too: the viewer need not receive all output to see the end.
    async fn redraw(&mut self) -> Result<(), DetachCause> {
        if let Ok(now) = screen(&self.ops, self.task).await {
            self.drawn_offset = now.offset;
            self.send_screen(*now).await?;
        }
        Ok(())
    }

    async fn send_screen(&mut self, now: ScreenAt) -> Result<(), DetachCause> {
        self.send_event(&AttachEvent::Screen { screen: describe_screen(&now) }).await?;
        self.send_drawing(now).await
    }

    /// Whether output that is not kept is shown as a screen. Viewers that do not allow that get the kept part of the
    /// end when the task is over.
    fn shows_screen(&self) -> bool {
        self.limited && self.skip
    }

    /// Sends the final screen if output was not kept.
    async fn send_last_screen(&mut self) -> Result<(), DetachCause> {
        let state = self.ops.records.state(self.task)?;
        if self.shows_screen() && state.request.mode == Mode::Pty && state.settled() {
            let now = screen(&self.ops, self.task).await?;
            self.send_screen(*now).await?;
        }
        Ok(())
    }

    /// Sends the last lines of a stream, as if they had just been written.
    async fn send_tail(&mut self, state: &TaskState, stream: StreamName) -> Result<(), DetachCause> {
        let (ops, state) = (Arc::clone(&self.ops), state.clone());
        let read = move || -> ApiResult<(u64, Vec<u8>)> {
            let Some(reading) = ops.records.output(&state)? else { return Ok((0, Vec::new())) };
            let mut reading = crate::lock(&reading);
            reading.refresh()?;
            let end = state.io.streams.get(&stream).map_or(0, |s| s.bytes);
            let start = reading.tail_offset(stream, TAIL_LINES)?.max(end.saturating_sub(TAIL_BYTES)).min(end);
            Ok((start, reading.read_bytes(stream, start, end - start)?))
        };
        let (offset, bytes) = crate::blocking(read).await??;
        if !bytes.is_empty() {
            self.send_event(&AttachEvent::Tail { stream, offset, len: bytes.len() as u64 }).await?;
            self.socket.send(Message::binary(bytes)).await?;
        }
        Ok(())
    }

    /// Sends one record, and the bytes that belong to it.
    async fn send_next(&mut self) -> Result<(), DetachCause> {
        let Some(line) = self.lines.pop_front() else { return Ok(()) };
        let record = Record::parse(&line).map(|r| r.what);
        if self.is_on_screen(record.as_ref().ok()) {
            return Ok(());
        }
        if matches!(record, Ok(RecordContent::Decision(Decision::Settled { .. }))) {
            // Before the record that ends it: clients leave when they see that.
            self.send_last_screen().await?;
        }
        self.socket.send(Message::text(line)).await?;
        match record {
            // The viewer has seen the kept part of the end on the screen.
            Ok(RecordContent::Frame(Frame::Output { stream: StreamName::Pty, .. })) if self.shows_screen() => {}
            Ok(RecordContent::Frame(frame @ Frame::Output { .. })) => self.send_bytes(&frame).await?,
            Ok(RecordContent::Frame(frame @ Frame::Gap { .. })) => self.gaps.add_frame(&frame),
            Ok(RecordContent::Frame(Frame::LimitReached { limit, .. })) if limit.as_str() == "output" => {
                self.limited = true
            }
            Ok(RecordContent::Decision(Decision::Settled { .. })) => {
                // Records after the end are only for readers of the events.
                self.ended = true;
                self.lines.clear();
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a record is of output that the viewer has seen on a screen.
    fn is_on_screen(&self, record: Option<&RecordContent>) -> bool {
        matches!(record, Some(RecordContent::Frame(Frame::Output { stream: StreamName::Pty, offset, .. })) if *offset < self.drawn_offset)
    }

    async fn send_bytes(&mut self, frame: &Frame) -> Result<(), DetachCause> {
        let Some(chunk) = OutputChunk::from_frame(frame) else { return Ok(()) };
        let dropped = self.gaps.dropped_before(chunk.stream, chunk.offset);
        let bytes = self.ops.records.read_chunk(self.task, chunk, dropped).map_err(TaskRefusal::from)?;
        Ok(self.socket.send(Message::binary(bytes)).await?)
    }

    async fn handle_message(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), DetachCause> {
        let message = message.ok_or(DetachCause::Left)??;
        let (parsed, bytes) = match &message {
            Message::Binary(bytes) => (Ok(None), bytes.as_ref()),
            Message::Text(text) => (parse::<AttachMessage>(text.as_bytes()).map(Some), text.as_bytes()),
            Message::Close(_) => return Err(DetachCause::Left),
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
        };
        let n = self.message_count;
        self.message_count += 1;
        match parsed.and_then(|parsed| self.shim_request(n, parsed, bytes)) {
            Err(refusal) => self.send_reply(n, Err(refusal)).await,
            Ok(build_request) => match self.ops.registry.send_request(self.task, build_request).await {
                Err(refusal) => {
                    let refusal = self.explain_refusal(refusal)?;
                    self.send_reply(n, Err(refusal)).await
                }
                Ok(answer) => {
                    // Replies are awaited separately: the next input must not wait for them.
                    self.replies.spawn(async move { (n, await_applied(answer).await) });
                    Ok(())
                }
            },
        }
    }

    /// The refusal for a task without a shim: it has not started, or it has ended.
    fn explain_refusal(&self, refusal: Refusal) -> Result<Refusal, DetachCause> {
        let state = self.ops.records.state(self.task)?;
        Ok(match (state.outcome(), state.first_seq()) {
            (Some(outcome), _) => Refusal::new(RefusalCode::TaskOver, format!("the task has ended: {outcome}")),
            (None, None) => Refusal::new(RefusalCode::TaskOver, "the task has not started"),
            _ => refusal,
        })
    }

    fn shim_request(
        &self,
        n: u64,
        message: Option<AttachMessage>,
        bytes: &[u8],
    ) -> Result<Box<dyn FnOnce(u64) -> ToShim + Send>, Refusal> {
        if self.read_only || !self.ops.still_admits(&self.caller) {
            return Err(Refusal::new(RefusalCode::Forbidden, "this viewer is read-only"));
        }
        let by = self.actor.clone();
        let task = self.task.to_string();
        let key = self.key.as_ref().map(|key| Idempotency {
            key: self.ops.key.digest("attach", &[task.as_bytes(), key.as_bytes(), &n.to_le_bytes()]),
            body: self.ops.key.digest("idempotency-body", &[bytes]),
        });
        Ok(match message {
            None if bytes.is_empty() => return Err(Refusal::new(RefusalCode::BadRequest, "the input is empty")),
            None if bytes.len() > control::MAX_INPUT_BYTES => {
                return Err(Refusal::new(RefusalCode::TooLarge, "the input is too large for one message"));
            }
            None => {
                let input = control::input_from_bytes(bytes.to_vec(), false);
                Box::new(move |re| ToShim::Input { re, input, by, key })
            }
            Some(AttachMessage::Stdin(stdin)) => {
                let input = control::parse_input(stdin)?;
                Box::new(move |re| ToShim::Input { re, input, by, key })
            }
            Some(AttachMessage::Resize(ResizeBody { rows, cols })) => {
                facts::check_terminal_size(rows, cols)?;
                Box::new(move |re| ToShim::Resize { re, rows, cols, by, key })
            }
            Some(AttachMessage::Signal(signal)) => Box::new(move |re| ToShim::Signal { re, signal, by, key }),
        })
    }

    async fn send_reply(&mut self, n: u64, result: Result<u64, Refusal>) -> Result<(), DetachCause> {
        let event = match result {
            Ok(seq) => AttachEvent::Applied { n, seq },
            Err(refusal) => AttachEvent::Refused { n: Some(n), refusal },
        };
        self.send_event(&event).await
    }

    async fn close(mut self) {
        // Every message gets a reply: the shim has replied or has disconnected; forward what is left.
        let moment = Duration::from_secs(1);
        while let Ok(Some(done)) = tokio::time::timeout(moment, self.replies.join_next()).await {
            if let Ok((n, result)) = done
                && self.send_reply(n, result).await.is_err()
            {
                return;
            }
        }
        let normal = CloseFrame { code: 1000, reason: Default::default() };
        let _ = self.socket.send(Message::Close(Some(normal))).await;
        // The client closes too. Reading what it sent meanwhile makes sure that our last messages are not lost. A
        // client that does not close is not waited for.
        let closed = async { while let Some(Ok(_)) = self.socket.recv().await {} };
        let _ = tokio::time::timeout(Duration::from_secs(1), closed).await;
    }
}

async fn await_applied(answer: oneshot::Receiver<Result<ShimReply, Refusal>>) -> Result<u64, Refusal> {
    match answer.await {
        Ok(Ok(ShimReply::Applied(seq))) => Ok(seq),
        Ok(Err(refusal)) => Err(refusal),
        _ => Err(Refusal::new(
            RefusalCode::ShimUnreachable,
            "the supervisor of the task did not confirm that this was applied",
        )),
    }
}

fn describe_screen(now: &ScreenAt) -> AttachScreen {
    AttachScreen {
        rows: now.screen.rows,
        cols: now.screen.cols,
        alternate_screen: now.screen.alternate,
        next_seq: now.next_seq,
        offset_bytes: now.offset,
    }
}

/// Whether a terminal has written more than the output limit keeps.
fn is_limited(state: &TaskState) -> bool {
    let bytes = state.io.streams.values().map(|s| s.bytes).max().unwrap_or(0);
    state.request.limits.output_bytes.is_some_and(|limit| bytes >= limit)
}
