//! `/tasks/{id}/attach`: a task over a WebSocket. What it shows, then what happens; input and size the other way.
//!
//! The daemon sends text for records (the line of each) and binary for bytes: those of the output record before, or what
//! draws the screen after `attach.begin` or `attach.screen`. The other side sends binary for input as it was typed, and
//! text for `{"stdin": …}`, `{"resize": …}` and `{"signal": …}`. Its messages are counted; each is answered by
//! `attach.applied` or `attach.refused` with its number. Whoever names a `key` and comes back after a broken connection
//! may send again what was not answered: it is applied once.
//!
//! A viewer reads the files like every other reader, with its own cursor: a slow one is slow by itself. One that allows
//! it (`skip`) and falls far behind a terminal that floods is shown the screen as it is now, and goes on from there:
//! what it types must not wait until it has seen everything.

use super::{
    Shared,
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

const LINES: usize = 8 * 1024;
/// Of a task without a terminal, who comes late is shown so many lines of each stream, and no more than so many bytes.
const TAIL_LINES: u64 = 100;
const TAIL_BYTES: u64 = 64 * 1024;
/// More than a screen can show in a moment: whoever is so far behind sees the screen instead.
const FAR_BEHIND: u64 = 1024 * 1024;
const HEARTBEAT: Duration = Duration::from_secs(15);
const LARGEST_MESSAGE: usize = 128 * 1024;

pub(crate) async fn attach(
    State(front): Shared,
    caller: Caller,
    Segment(id): Segment,
    Params(query): Params<AttachQuery>,
    request: Request,
) -> HttpResult<Response> {
    caller.may(CredentialScope::Observe)?;
    let ops = Arc::clone(&front.ops);
    let AttachQuery { read_only, after, key, from: count, skip } = query;
    if count > u64::from(u32::MAX) {
        return Err(Refusal::new(RefusalCode::BadRequest, "`from` is the number of a message").into());
    }
    if key.as_ref().is_some_and(|k| k.is_empty() || k.len() > 255) {
        return Err(Refusal::new(RefusalCode::BadRequest, "`key` takes 1 to 255 characters").into());
    }
    let task = ops.records.find(&caller, &id)?;
    let types = caller.may(CredentialScope::Run).is_ok() && ops.records.find_own(&caller, &id).is_ok();
    ops.records.warm(task).await?;
    let (mut parts, _) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await.map_err(|e| {
        Refusal::new(RefusalCode::BadRequest, format!("this address speaks WebSocket: {e}"))
            .hint("`csn attach`, or /tasks/{id}/events for server-sent events")
    })?;
    let upgrade = upgrade.max_message_size(LARGEST_MESSAGE).max_frame_size(LARGEST_MESSAGE);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let stream = ops.records.stream(task, 0);
        let mut viewer = AttachedViewer {
            ops,
            task,
            socket,
            stream,
            read: VecDeque::new(),
            read_only: read_only || !types,
            by: caller.actor(),
            caller,
            skip,
            key,
            count,
            answers: JoinSet::new(),
            limited: false,
            gaps: StreamGaps::default(),
            drawn: 0,
            over: false,
        };
        if let Err(DetachCause::Problem(refusal)) = viewer.run(after).await {
            let _ = viewer.tell(&AttachEvent::Refused { n: None, refusal }).await;
        }
        viewer.hang_up().await;
    }))
}

/// Why a viewer is not served any more.
enum DetachCause {
    /// It has left.
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
    read: VecDeque<String>,
    read_only: bool,
    caller: Caller,
    /// Who types, for the record.
    by: Text,
    /// May miss output that it would see late, as long as it sees the screen.
    skip: bool,
    key: Option<String>,
    /// How many messages have come.
    count: u64,
    answers: JoinSet<(u64, Result<u64, Refusal>)>,
    /// Output is not kept any more: until it is over, the screen is all there is to see.
    limited: bool,
    gaps: StreamGaps,
    /// Output before this place was on a screen that it was shown.
    drawn: u64,
    /// The last record has been sent.
    over: bool,
}

impl AttachedViewer {
    async fn run(&mut self, after: Option<u64>) -> Result<(), DetachCause> {
        let mut notifications = self.ops.registry.subscribe(self.task);
        self.begin(after).await?;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if !self.ops.still_admits(&self.caller) {
                return Err(Refusal::new(RefusalCode::Unauthorized, "the token does not hold any more").into());
            }
            let rung = notifications.has_changed().unwrap_or(true);
            notifications.mark_unchanged();
            self.read_on().await?;
            if rung && self.sees_the_screen() && self.read.is_empty() && !self.over {
                self.redraw().await?;
            }
            if self.over {
                self.ops.registry.unlist(self.task);
                return Ok(());
            }
            let waiting = self.read.is_empty();
            tokio::select! {
                // First what is typed: it must not wait for all that there is to see.
                biased;
                message = self.socket.recv() => self.hear(message).await?,
                Some(done) = self.answers.join_next() => {
                    if let Ok((n, result)) = done {
                        self.answer(n, result).await?;
                    }
                }
                () = std::future::ready(()), if !waiting => self.send_next().await?,
                rung = notifications.changed() => match rung {
                    Err(_) => notifications = self.ops.registry.subscribe(self.task),
                    // Looked at as not seen yet: at the top of the loop it may have to draw.
                    Ok(()) => notifications.mark_changed(),
                },
                _ = heartbeat.tick() => self.socket.send(Message::Ping(Default::default())).await?,
            }
        }
    }

    /// Reads the next lines, where none are left. Far behind a terminal, its screen is shown instead.
    async fn read_on(&mut self) -> Result<(), DetachCause> {
        if !self.read.is_empty() || self.over {
            return Ok(());
        }
        let from = self.stream.next_seq();
        let lines = self.ops.records.next(&mut self.stream, LINES)?;
        self.read.extend(lines.into_iter().map(|(_, line)| line));
        if self.read.is_empty() {
            self.over = self.ops.records.ended_before(self.task, from)?;
        } else if self.skip && self.is_far_behind()? {
            self.redraw().await?;
        }
        Ok(())
    }

    fn is_far_behind(&self) -> Result<bool, DetachCause> {
        let first = self.read.iter().find_map(|line| match Record::parse(line).ok()?.what {
            RecordContent::Frame(Frame::Output { stream: StreamName::Pty, offset, .. }) => Some(offset),
            _ => None,
        });
        let Some(offset) = first else { return Ok(false) };
        let state = self.ops.records.state(self.task)?;
        let end = state.io.streams.get(&StreamName::Pty).map_or(0, |s| s.bytes);
        Ok(end.saturating_sub(offset.max(self.drawn)) > FAR_BEHIND)
    }

    async fn tell(&mut self, event: &AttachEvent) -> Result<(), DetachCause> {
        let json = serde_json::to_string(event).unwrap_or_default();
        Ok(self.socket.send(Message::text(json)).await?)
    }

    /// What there is to see now, and from where it goes on.
    async fn begin(&mut self, after: Option<u64>) -> Result<(), DetachCause> {
        let state = self.ops.records.state(self.task)?;
        self.limited = is_limited(&state);
        self.gaps = StreamGaps::from_state(&state);
        let begin = |screen| AttachEvent::Begin { v: 1, task: Box::new(state.clone()), screen };
        if after.is_some() || state.first_seq().is_none() {
            let from = after.map_or(0, |seq| seq.saturating_add(1));
            self.stream = self.ops.records.stream(self.task, from);
            return self.tell(&begin(None)).await;
        }
        if state.request.mode == Mode::Pipes {
            self.tell(&begin(None)).await?;
            for stream in StreamName::for_mode(state.request.mode) {
                self.tail(&state, *stream).await?;
            }
            self.stream = self.ops.records.stream(self.task, state.next_seq);
            return Ok(());
        }
        let now = screen(&self.ops, self.task).await?;
        let told = begin(Some(described(&now)));
        self.stream = self.ops.records.stream(self.task, now.next_seq);
        self.tell(&told).await?;
        self.draw(*now).await
    }

    async fn draw(&mut self, now: ScreenAt) -> Result<(), DetachCause> {
        Ok(self.socket.send(Message::binary(now.screen.drawn.into_inner().into_bytes())).await?)
    }

    /// The screen anew, for those who cannot follow byte by byte; of the output, what comes after it is sent. A task
    /// that has ended meanwhile has a screen too: nobody must see a flood to its end to see how it ended.
    async fn redraw(&mut self) -> Result<(), DetachCause> {
        if let Ok(now) = screen(&self.ops, self.task).await {
            self.drawn = now.offset;
            self.show(*now).await?;
        }
        Ok(())
    }

    async fn show(&mut self, now: ScreenAt) -> Result<(), DetachCause> {
        self.tell(&AttachEvent::Screen { screen: described(&now) }).await?;
        self.draw(now).await
    }

    /// Output that is not kept is seen on the screen by those who allow that; the others get what is kept of the end when
    /// it is over.
    fn sees_the_screen(&self) -> bool {
        self.limited && self.skip
    }

    /// Where output was not kept any more, the end is seen on the last screen.
    async fn last_screen(&mut self) -> Result<(), DetachCause> {
        let state = self.ops.records.state(self.task)?;
        if self.sees_the_screen() && state.request.mode == Mode::Pty && state.settled() {
            let now = screen(&self.ops, self.task).await?;
            self.show(*now).await?;
        }
        Ok(())
    }

    /// The last lines of a stream, as if they had just been written.
    async fn tail(&mut self, state: &TaskState, stream: StreamName) -> Result<(), DetachCause> {
        let (ops, state) = (Arc::clone(&self.ops), state.clone());
        let read = move || -> ApiResult<(u64, Vec<u8>)> {
            let Some(reading) = ops.records.output(&state)? else { return Ok((0, Vec::new())) };
            let mut reading = crate::lock(&reading);
            reading.refresh()?;
            let end = state.io.streams.get(&stream).map_or(0, |s| s.bytes);
            let start = reading.tail(stream, TAIL_LINES)?.max(end.saturating_sub(TAIL_BYTES)).min(end);
            Ok((start, reading.bytes(stream, start, end - start)?))
        };
        let (offset, bytes) = crate::blocking(read).await??;
        if !bytes.is_empty() {
            self.tell(&AttachEvent::Tail { stream, offset, len: bytes.len() as u64 }).await?;
            self.socket.send(Message::binary(bytes)).await?;
        }
        Ok(())
    }

    /// Sends one record, and the bytes that belong to it.
    async fn send_next(&mut self) -> Result<(), DetachCause> {
        let Some(line) = self.read.pop_front() else { return Ok(()) };
        let record = Record::parse(&line).map(|r| r.what);
        if self.has_drawn(record.as_ref().ok()) {
            return Ok(());
        }
        if matches!(record, Ok(RecordContent::Decision(Decision::Settled { .. }))) {
            // Before the word that it is over: whoever hears that leaves.
            self.last_screen().await?;
        }
        self.socket.send(Message::text(line)).await?;
        match record {
            // What was kept of the end has been seen on the screen already.
            Ok(RecordContent::Frame(Frame::Output { stream: StreamName::Pty, .. })) if self.sees_the_screen() => {}
            Ok(RecordContent::Frame(frame @ Frame::Output { .. })) => self.bytes(&frame).await?,
            Ok(RecordContent::Frame(frame @ Frame::Gap { .. })) => self.gaps.add_frame(&frame),
            Ok(RecordContent::Frame(Frame::LimitReached { limit, .. })) if limit.as_str() == "output" => {
                self.limited = true
            }
            Ok(RecordContent::Decision(Decision::Settled { .. })) => {
                // What comes after the end is for those who read the record.
                self.over = true;
                self.read.clear();
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a record is of output that was on a screen already.
    fn has_drawn(&self, record: Option<&RecordContent>) -> bool {
        matches!(record, Some(RecordContent::Frame(Frame::Output { stream: StreamName::Pty, offset, .. })) if *offset < self.drawn)
    }

    async fn bytes(&mut self, frame: &Frame) -> Result<(), DetachCause> {
        let Some(chunk) = OutputChunk::of(frame) else { return Ok(()) };
        let dropped = self.gaps.dropped_before(chunk.stream, chunk.offset);
        let bytes = self.ops.records.chunk(self.task, chunk, dropped).map_err(TaskRefusal::from)?;
        Ok(self.socket.send(Message::binary(bytes)).await?)
    }

    async fn hear(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), DetachCause> {
        let message = message.ok_or(DetachCause::Left)??;
        let (wish, bytes) = match &message {
            Message::Binary(bytes) => (Ok(None), bytes.as_ref()),
            Message::Text(text) => (parse::<AttachMessage>(text.as_bytes()).map(Some), text.as_bytes()),
            Message::Close(_) => return Err(DetachCause::Left),
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
        };
        let n = self.count;
        self.count += 1;
        match wish.and_then(|wish| self.wish(n, wish, bytes)) {
            Err(refusal) => self.answer(n, Err(refusal)).await,
            Ok(wish) => match self.ops.registry.request(self.task, wish).await {
                Err(refusal) => {
                    let refusal = self.why_not(refusal)?;
                    self.answer(n, Err(refusal)).await
                }
                Ok(answer) => {
                    // Answers are waited for beside: what is typed next must not wait for them.
                    self.answers.spawn(async move { (n, applied(answer).await) });
                    Ok(())
                }
            },
        }
    }

    /// A task without a shim has not started, or is over.
    fn why_not(&self, refusal: Refusal) -> Result<Refusal, DetachCause> {
        let state = self.ops.records.state(self.task)?;
        Ok(match (state.outcome(), state.first_seq()) {
            (Some(outcome), _) => Refusal::new(RefusalCode::TaskOver, format!("the task is over: {outcome}")),
            (None, None) => Refusal::new(RefusalCode::TaskOver, "the task has not started"),
            _ => refusal,
        })
    }

    fn wish(
        &self,
        n: u64,
        wish: Option<AttachMessage>,
        bytes: &[u8],
    ) -> Result<Box<dyn FnOnce(u64) -> ToShim + Send>, Refusal> {
        if self.read_only || !self.ops.still_admits(&self.caller) {
            return Err(Refusal::new(RefusalCode::Forbidden, "this viewer only looks on"));
        }
        let by = self.by.clone();
        let task = self.task.to_string();
        let key = self.key.as_ref().map(|key| Idempotency {
            key: self.ops.key.digest("attach", &[task.as_bytes(), key.as_bytes(), &n.to_le_bytes()]),
            body: self.ops.key.digest("idempotency-body", &[bytes]),
        });
        Ok(match wish {
            None if bytes.is_empty() => return Err(Refusal::new(RefusalCode::BadRequest, "there is nothing to write")),
            None if bytes.len() > control::MAX_INPUT_BYTES => {
                return Err(Refusal::new(RefusalCode::TooLarge, "this is more than a message takes"));
            }
            None => {
                let input = control::bytes_of(bytes.to_vec(), false);
                Box::new(move |re| ToShim::Input { re, input, by, key })
            }
            Some(AttachMessage::Stdin(stdin)) => {
                let input = control::input(stdin)?;
                Box::new(move |re| ToShim::Input { re, input, by, key })
            }
            Some(AttachMessage::Resize(ResizeBody { rows, cols })) => {
                facts::terminal_size(rows, cols)?;
                Box::new(move |re| ToShim::Resize { re, rows, cols, by, key })
            }
            Some(AttachMessage::Signal(signal)) => Box::new(move |re| ToShim::Signal { re, signal, by, key }),
        })
    }

    async fn answer(&mut self, n: u64, result: Result<u64, Refusal>) -> Result<(), DetachCause> {
        let told = match result {
            Ok(seq) => AttachEvent::Applied { n, seq },
            Err(refusal) => AttachEvent::Refused { n: Some(n), refusal },
        };
        self.tell(&told).await
    }

    async fn hang_up(mut self) {
        // Every message is answered: the shim has said, or has hung up, what is still to be passed on.
        let moment = Duration::from_secs(1);
        while let Ok(Some(done)) = tokio::time::timeout(moment, self.answers.join_next()).await {
            if let Ok((n, result)) = done
                && self.answer(n, result).await.is_err()
            {
                return;
            }
        }
        let normal = CloseFrame { code: 1000, reason: Default::default() };
        let _ = self.socket.send(Message::Close(Some(normal))).await;
        // The other side closes too; what it sent meanwhile is read, so that our last words are not lost. One that does
        // not close is not waited for.
        let closed = async { while let Some(Ok(_)) = self.socket.recv().await {} };
        let _ = tokio::time::timeout(Duration::from_secs(1), closed).await;
    }
}

async fn applied(answer: oneshot::Receiver<Result<ShimReply, Refusal>>) -> Result<u64, Refusal> {
    match answer.await {
        Ok(Ok(ShimReply::Applied(seq))) => Ok(seq),
        Ok(Err(refusal)) => Err(refusal),
        _ => {
            Err(Refusal::new(RefusalCode::ShimUnreachable, "the task's supervisor did not say whether it was applied"))
        }
    }
}

fn described(now: &ScreenAt) -> AttachScreen {
    AttachScreen {
        rows: now.screen.rows,
        cols: now.screen.cols,
        alternate_screen: now.screen.alternate,
        next_seq: now.next_seq,
        offset_bytes: now.offset,
    }
}

/// Whether the terminal of a running task shows more than is kept of it.
fn is_limited(state: &TaskState) -> bool {
    let bytes = state.io.streams.values().map(|s| s.bytes).max().unwrap_or(0);
    state.request.limits.output_bytes.is_some_and(|limit| bytes >= limit)
}
