//! `/tasks/{id}/output`: bytes by range and by line, from either end, while they come and after; every chunk checked.

use super::{
    Answer, Projections, Shared,
    arrive::Who,
    find_task,
    problem::{Problem, Query, Segment},
};
use crate::house::House;
use axum::{
    Json,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_model::{Code, Mode, Refusal, Rendered, StreamName, TaskId, TaskState};
use countersign_store::output::{Cache, Gap, Map, ReadError, Span};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};
use tokio::sync::mpsc;

/// One answer holds at most this much, whatever the query says.
const MOST: u64 = 4 * 1024 * 1024;
const USUAL: u64 = 64 * 1024;
const REMEMBERED: usize = 16;

/// Chunk maps of the tasks that were read last. Each grows with its journal.
#[derive(Default)]
pub(crate) struct Maps {
    recent: Mutex<VecDeque<(TaskId, Arc<Mutex<Reading>>)>>,
}

pub(crate) struct Reading {
    dir: PathBuf,
    map: Map,
    cache: Cache,
}

impl Maps {
    pub(crate) fn of(&self, house: &House, state: &TaskState) -> Answer<Option<Arc<Mutex<Reading>>>> {
        if let Some(at) = state.expired_at {
            return Err(Problem::from(
                Refusal::new(Code::Expired, format!("what this task wrote was removed at {at}"))
                    .hint("its decisions and digests stay: csn show"),
            )
            .of_task(state.task_id));
        }
        let Some(first_seq) = state.first_seq else { return Ok(None) };
        let mut recent = self.recent.lock().expect("nothing panics while it holds this lock");
        if let Some(at) = recent.iter().position(|(t, _)| *t == state.task_id) {
            let reading = Arc::clone(&recent[at].1);
            let entry = recent.remove(at);
            recent.extend(entry);
            return Ok(Some(reading));
        }
        let dir = house.home.task_dir(state.task_id);
        let map = match Map::open(&dir, first_seq) {
            Ok(map) => map,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Refusal::new(Code::Internal, format!("the journal cannot be read: {e}")).into()),
        };
        let reading = Arc::new(Mutex::new(Reading { dir, map, cache: Cache::default() }));
        recent.push_back((state.task_id, Arc::clone(&reading)));
        if recent.len() > REMEMBERED {
            recent.pop_front();
        }
        Ok(Some(reading))
    }
}

impl Maps {
    pub(crate) fn forget(&self, task: TaskId) {
        self.recent.lock().expect("nothing panics while it holds this lock").retain(|(t, _)| *t != task);
    }

    /// Whether the task's output can be read without waiting for somebody else who reads much of it, and without
    /// going through its journal first.
    fn is_free(&self, task: TaskId) -> bool {
        let recent = self.recent.lock().expect("nothing panics while it holds this lock");
        recent.iter().any(|(t, reading)| *t == task && reading.try_lock().is_ok())
    }
}

impl Reading {
    pub(crate) fn refresh(&mut self) -> Answer<()> {
        self.map.refresh().map_err(|e| Refusal::new(Code::Internal, format!("the journal cannot be read: {e}")).into())
    }

    pub(crate) fn total(&self, stream: StreamName) -> u64 {
        self.map.total(stream)
    }

    pub(crate) fn spans(&self, stream: StreamName, offset: u64, max: u64) -> Vec<Span> {
        self.map.spans(stream, offset, max)
    }

    pub(crate) fn gap(&self, stream: StreamName) -> Option<Gap> {
        self.map.gap(stream)
    }

    pub(crate) fn tail(&mut self, stream: StreamName, lines: u64) -> Answer<u64> {
        let Self { dir, map, cache } = self;
        Ok(map.tail(cache, dir, stream, lines)?)
    }

    pub(crate) fn bytes(&mut self, stream: StreamName, offset: u64, max: u64) -> Answer<Vec<u8>> {
        let Self { dir, map, cache } = self;
        Ok(map.read(cache, dir, stream, offset, max)?)
    }
}

impl From<ReadError> for Problem {
    fn from(e: ReadError) -> Self {
        match &e {
            ReadError::Tampered { .. } => Refusal::new(Code::ArtifactTampered, e.to_string()).into(),
            ReadError::BeyondEnd { .. } | ReadError::InGap { .. } => {
                Refusal::new(Code::RangeNotSatisfiable, e.to_string()).into()
            }
            ReadError::Io(_) => Refusal::new(Code::Internal, e.to_string()).into(),
        }
    }
}

pub(crate) async fn read(
    State(house): Shared,
    who: Who,
    Segment(id): Segment,
    headers: HeaderMap,
    mut query: Query,
) -> Answer<Response> {
    let task = find_task(&house, &who, &id)?;
    Projections::warm(&house, task).await?;
    let mode = house.projections.state(&house, task)?.mode;
    let stream = match query.text("stream") {
        None => StreamName::of(mode)[0],
        Some(name) => stream_of(mode, &name)?,
    };
    let number = "a number of bytes or lines";
    let offset = query.parse::<u64>("offset_bytes", number)?;
    let max = query.parse::<u64>("max_bytes", number)?;
    let line = query.parse::<u64>("line", number)?;
    let lines = query.parse::<u64>("lines", number)?;
    let tail = query.parse::<u64>("tail_lines", number)?;
    query.nothing_else()?;
    let raw = headers.get(header::ACCEPT).is_some_and(|a| a.as_bytes().starts_with(b"application/octet-stream"));
    let range = headers.get(header::RANGE).filter(|_| raw).and_then(|r| r.to_str().ok()).map(str::to_owned);
    let wanted = Wanted { stream, offset, max, line, lines, tail, range };
    if raw && wanted.is_everything() {
        return everything(house, task, stream).await;
    }
    // A chunk or two is quicker read than handed to another thread; more may take a while, and others go on.
    if wanted.is_small() && house.maps.is_free(task) {
        return answer(&house, task, &wanted, raw);
    }
    tokio::task::spawn_blocking(move || answer(&house, task, &wanted, raw))
        .await
        .map_err(|e| Refusal::new(Code::Internal, e.to_string()))?
}

/// The stream that a query names, if tasks of this mode have it.
pub(crate) fn stream_of(mode: Mode, name: &str) -> Result<StreamName, Refusal> {
    let streams = StreamName::of(mode);
    streams.iter().copied().find(|s| s.as_str() == name).ok_or_else(|| {
        let names: Vec<&str> = streams.iter().map(|s| s.as_str()).collect();
        let shown = countersign_model::Shown::bounded(name, 40);
        Refusal::new(Code::BadRequest, format!("this task has {}, no stream `{shown}`", names.join(" and ")))
    })
}

struct Wanted {
    stream: StreamName,
    offset: Option<u64>,
    max: Option<u64>,
    line: Option<u64>,
    lines: Option<u64>,
    tail: Option<u64>,
    range: Option<String>,
}

/// The whole stream as it is now, piece by piece: whoever names no range gets all of it.
async fn everything(house: Arc<House>, task: TaskId, stream: StreamName) -> Answer<Response> {
    let state = house.projections.state(&house, task)?;
    let (total, dropped) = state.streams.get(&stream).map_or((0, 0), |s| (s.bytes, s.dropped));
    house.maps.of(&house, &state)?;
    let (send, receive) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    tokio::task::spawn_blocking(move || {
        let mut offset = 0;
        while offset < total {
            let mut read = || -> Answer<Vec<u8>> {
                let Some(reading) = house.maps.of(&house, &state)? else { return Ok(Vec::new()) };
                let mut reading = reading.lock().expect("nothing panics while it holds this lock");
                reading.refresh()?;
                // Everything is everything that was kept.
                if let Some(gap) = reading.map.gap(stream).filter(|gap| gap.offset == offset) {
                    offset = gap.end();
                }
                reading.bytes(stream, offset, MOST.min(total - offset))
            };
            // Bytes that do not match their digest end the answer short of its length: that is an error to any client.
            let bytes = read().map_err(|problem| std::io::Error::other(format!("{problem:?}")));
            let (failed, n) = (bytes.is_err(), bytes.as_ref().map_or(0, Vec::len));
            if send.blocking_send(bytes.map(Bytes::from)).is_err() || failed || n == 0 {
                return;
            }
            offset += n as u64;
        }
    });
    let mut response = Body::from_stream(Pieces(receive)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(total - dropped));
    Ok(response)
}

pub(crate) struct Pieces(pub(crate) mpsc::Receiver<Result<Bytes, std::io::Error>>);

impl futures_core::Stream for Pieces {
    type Item = Result<Bytes, std::io::Error>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}

impl Wanted {
    fn is_everything(&self) -> bool {
        let by_line = self.line.is_some() || self.lines.is_some() || self.tail.is_some();
        !by_line && self.range.is_none() && self.offset.is_none() && self.max.is_none()
    }

    fn is_small(&self) -> bool {
        let by_line = self.line.is_some() || self.lines.is_some() || self.tail.is_some();
        !by_line && self.range.is_none() && self.max.is_none_or(|max| max <= USUAL)
    }
}

fn answer(house: &House, task: TaskId, wanted: &Wanted, raw: bool) -> Answer<Response> {
    let state = house.projections.state(house, task)?;
    let stream = wanted.stream;
    let Some(reading) = house.maps.of(house, &state)? else {
        return match wanted.offset.unwrap_or(0) {
            0 => {
                let (complete, ranged) = (state.settled(), wanted.range.is_some());
                Ok(page(raw, Page { bytes: Vec::new(), start: 0, end: 0, total: 0, complete, ranged, gap: None }))
            }
            offset => Err(ReadError::BeyondEnd { offset, total: 0 }.into()),
        };
    };
    let mut reading = reading.lock().expect("nothing panics while it holds this lock");
    reading.refresh()?;
    let total = reading.map.total(stream);
    let (start, end) = {
        let Reading { dir, map, cache } = &mut *reading;
        if let Some(range) = &wanted.range {
            match byte_range(range, total) {
                Some(range) => range,
                None => return Ok(not_satisfiable(total)),
            }
        } else if let Some(tail) = wanted.tail {
            (map.tail(cache, dir, stream, tail)?, total)
        } else if wanted.line.is_some() || wanted.lines.is_some() {
            map.lines(cache, dir, stream, wanted.line.unwrap_or(1), wanted.lines.unwrap_or(1000))?
        } else {
            let start = wanted.offset.unwrap_or(0);
            (start, start.saturating_add(wanted.max.unwrap_or(USUAL)).min(total.max(start)))
        }
    };
    let most = wanted.max.unwrap_or(MOST).min(MOST);
    let bytes = reading.bytes(stream, start, (end - start).min(most))?;
    let gap = reading.map.gap(stream);
    Ok(page(raw, Page { bytes, start, end, total, complete: state.settled(), ranged: wanted.range.is_some(), gap }))
}

struct Page {
    bytes: Vec<u8>,
    start: u64,
    /// Where what was asked for ends, however little of it fits into one answer.
    end: u64,
    total: u64,
    complete: bool,
    ranged: bool,
    gap: Option<Gap>,
}

fn page(raw: bool, page: Page) -> Response {
    let Page { bytes, start, end, total, complete, ranged, gap } = page;
    let mut next = start + bytes.len() as u64;
    if raw {
        let last = next.saturating_sub(1).max(start);
        let size = if complete { total.to_string() } else { "*".to_owned() };
        let status = if ranged && !bytes.is_empty() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
        let mut response = (status, Body::from(bytes)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if status == StatusCode::PARTIAL_CONTENT
            && let Ok(range) = HeaderValue::from_str(&format!("bytes {start}-{last}/{size}"))
        {
            headers.insert(header::CONTENT_RANGE, range);
        }
        return response;
    }
    // Whoever goes on from here goes on behind what was dropped.
    if let Some(gap) = gap.filter(|gap| gap.offset == next && !bytes.is_empty()) {
        next = gap.end();
    }
    let len = bytes.len() as u64;
    let (content, encoding) = match String::from_utf8(bytes) {
        Ok(text) => (text, "utf-8"),
        Err(e) => (STANDARD.encode(e.as_bytes()), "base64"),
    };
    let mut answer = json!({
        "content": content,
        "encoding": encoding,
        "offset_bytes": start,
        "bytes": len,
        "total_bytes": total,
        "next_offset": next,
        "end_offset": end,
        "truncated": next < total,
        "complete": complete,
    });
    if let Some(gap) = gap {
        answer["gap"] = json!({"offset_bytes": gap.offset, "bytes": gap.bytes});
    }
    Json(answer).into_response()
}

/// `bytes=a-b`, `bytes=a-`, `bytes=-n`: start and end of one range, or none that can be served.
pub(crate) fn byte_range(range: &str, total: u64) -> Option<(u64, u64)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (start, end) = match (first.trim(), last.trim()) {
        ("", suffix) => (total.saturating_sub(suffix.parse().ok()?), total),
        (first, "") => (first.parse().ok()?, total),
        (first, last) => (first.parse().ok()?, last.parse::<u64>().ok()?.saturating_add(1).min(total)),
    };
    (start < end).then_some((start, end))
}

pub(crate) fn not_satisfiable(total: u64) -> Response {
    let refusal = Refusal::new(Code::RangeNotSatisfiable, format!("the stream has {total} bytes"));
    let mut response = Problem::from(refusal).into_response();
    if let Ok(range) = HeaderValue::from_str(&format!("bytes */{total}")) {
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    response
}

/// A stream for somebody who asked to wait: whole when short, else both ends.
pub(crate) fn ends(house: &House, state: &TaskState, stream: StreamName) -> Answer<Value> {
    let Some(reading) = house.maps.of(house, state)? else { return Ok(json!({"text": ""})) };
    let mut reading = reading.lock().expect("nothing panics while it holds this lock");
    reading.refresh()?;
    let total = reading.map.total(stream);
    let whole = countersign_model::INLINE_WHOLE as u64;
    if total > whole {
        let (head, tail) = reading.map.gap(stream).map_or((total, total), |gap| (gap.offset, total - gap.end()));
        let half = whole / 2;
        let bytes = reading.bytes(stream, 0, half.min(head))?;
        let tail = half.min(tail);
        let tail = reading.bytes(stream, total - tail, tail)?;
        return Ok(json!(Rendered::ends(&bytes, &tail, total, |b| STANDARD.encode(b))));
    }
    let bytes = reading.bytes(stream, 0, whole)?;
    Ok(json!(Rendered::whole(&bytes, |b| STANDARD.encode(b))))
}
