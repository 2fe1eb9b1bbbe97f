//! Output: bytes by range and by line, from either end, while a task runs and after. Every chunk is verified.

use super::{ApiResult, Ops};
use crate::caller::Caller;
use crate::lock;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use countersign_model::{
    CredentialScope, Encoding, MAX_COMPLETE_BYTES, Mode, Refusal, RefusalCode, RenderedOutput, StreamName, TaskId,
    TaskState,
    api::{BoundedOutput, OutputGap, OutputPage, OutputQuery},
};
use countersign_store::output::{Gap, ReadError};
use std::{io, sync::Arc};
use tokio::sync::mpsc;

/// The most that one reply holds, whatever the query says.
const MAX_REPLY_BYTES: u64 = 4 * 1024 * 1024;
const DEFAULT_REPLY_BYTES: u64 = 64 * 1024;
const DEFAULT_LINES: u64 = 1000;

/// Bytes that arrive piece by piece.
pub(crate) type ByteStream = mpsc::Receiver<io::Result<Bytes>>;

/// A range of bytes: from the first to the last, or the last N.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteRange {
    From { first: u64, last: Option<u64> },
    Last(u64),
}

impl ByteRange {
    /// Where the range begins and ends in a whole of `total` bytes; none if it cannot be served.
    pub(crate) fn bounds_in(self, total: u64) -> Option<(u64, u64)> {
        let (start, end) = match self {
            Self::Last(bytes) => (total.saturating_sub(bytes), total),
            Self::From { first, last: None } => (first, total),
            Self::From { first, last: Some(last) } => (first, last.saturating_add(1).min(total)),
        };
        (start < end).then_some((start, end))
    }
}

/// A part of a stream.
#[derive(Debug)]
pub(crate) struct StreamSlice {
    pub(crate) bytes: Vec<u8>,
    pub(crate) start: u64,
    /// Where the requested part ends, even if one reply cannot hold all of it.
    end: u64,
    pub(crate) total: u64,
    pub(crate) complete: bool,
    gap: Option<Gap>,
}

/// The result of reading a range.
pub(crate) enum RangeResult {
    Slice(StreamSlice),
    /// The stream has no such bytes.
    Unsatisfiable {
        total: u64,
    },
}

/// A part of a task's output, as text if it is UTF-8.
pub(crate) async fn read(ops: &Arc<Ops>, caller: &Caller, id: &str, query: OutputQuery) -> ApiResult<OutputPage> {
    let (task, stream) = find_stream(ops, caller, id, query.stream).await?;
    Ok(read_slice(ops, task, stream, query).await?.into())
}

/// A part of a task's output, as bytes.
pub(crate) async fn read_bytes(
    ops: &Arc<Ops>,
    caller: &Caller,
    id: &str,
    query: OutputQuery,
) -> ApiResult<StreamSlice> {
    let (task, stream) = find_stream(ops, caller, id, query.stream).await?;
    read_slice(ops, task, stream, query).await
}

/// A range of a task's output, as bytes.
pub(crate) async fn read_range(
    ops: &Arc<Ops>,
    caller: &Caller,
    id: &str,
    query: OutputQuery,
    range: ByteRange,
) -> ApiResult<RangeResult> {
    let (task, stream) = find_stream(ops, caller, id, query.stream).await?;
    let at = Arc::clone(ops);
    let total = crate::blocking(move || total_bytes(&at, task, stream)).await??;
    let Some((start, end)) = range.bounds_in(total) else { return Ok(RangeResult::Unsatisfiable { total }) };
    let max = query.max_bytes.unwrap_or(MAX_REPLY_BYTES).min(end - start);
    let query = OutputQuery { stream: Some(stream), offset_bytes: Some(start), max_bytes: Some(max), ..query };
    Ok(RangeResult::Slice(read_slice(ops, task, stream, query).await?))
}

/// The whole stream as it is now, piece by piece, and its length.
pub(crate) async fn read_all(
    ops: &Arc<Ops>,
    caller: &Caller,
    id: &str,
    stream: Option<StreamName>,
) -> ApiResult<(u64, ByteStream)> {
    let (task, stream) = find_stream(ops, caller, id, stream).await?;
    let state = ops.records.state(task)?;
    let (total, dropped) = state.io.streams.get(&stream).map_or((0, 0), |s| (s.bytes, s.dropped));
    ops.records.output(&state)?;
    let (send, receive) = mpsc::channel(1);
    let ops = Arc::clone(ops);
    tokio::task::spawn_blocking(move || send_all(&ops, &state, stream, total, &send));
    Ok((total - dropped, receive))
}

fn send_all(ops: &Ops, state: &TaskState, stream: StreamName, total: u64, send: &mpsc::Sender<io::Result<Bytes>>) {
    let mut offset = 0;
    while offset < total {
        let mut read = || -> ApiResult<Vec<u8>> {
            let Some(reading) = ops.records.output(state)? else { return Ok(Vec::new()) };
            let mut reading = lock(&reading);
            reading.refresh()?;
            // "Everything" means everything that was kept.
            if let Some(gap) = reading.gap(stream).filter(|gap| gap.offset == offset) {
                offset = gap.end();
            }
            reading.read_bytes(stream, offset, MAX_REPLY_BYTES.min(total - offset))
        };
        // Bytes that do not match their digest end the reply early, which every client treats as an error.
        let bytes = read().map_err(io::Error::other);
        let (failed, n) = (bytes.is_err(), bytes.as_ref().map_or(0, Vec::len));
        if send.blocking_send(bytes.map(Bytes::from)).is_err() || failed || n == 0 {
            return;
        }
        offset += n as u64;
    }
}

/// The task and the stream of a query.
async fn find_stream(
    ops: &Arc<Ops>,
    caller: &Caller,
    id: &str,
    stream: Option<StreamName>,
) -> ApiResult<(TaskId, StreamName)> {
    caller.require_scope(CredentialScope::Observe)?;
    let task = ops.records.find_task(caller, id)?;
    ops.records.load_task(task).await?;
    let mode = ops.records.state(task)?.request.mode;
    let stream = match stream {
        None => StreamName::for_mode(mode)[0],
        Some(stream) => check_stream(mode, stream)?,
    };
    Ok((task, stream))
}

/// Checks that tasks of this mode have a stream.
pub(crate) fn check_stream(mode: Mode, stream: StreamName) -> Result<StreamName, Refusal> {
    let streams = StreamName::for_mode(mode);
    if streams.contains(&stream) {
        return Ok(stream);
    }
    let names: Vec<&str> = streams.iter().map(|s| s.as_str()).collect();
    Err(Refusal::new(
        RefusalCode::BadRequest,
        format!("this task has no stream `{stream}`, only {}", names.join(" and ")),
    ))
}

async fn read_slice(ops: &Arc<Ops>, task: TaskId, stream: StreamName, query: OutputQuery) -> ApiResult<StreamSlice> {
    let by_line = query.line.is_some() || query.lines.is_some() || query.tail_lines.is_some();
    // Reading a chunk or two is quicker than switching threads; more may take a while and must not block others.
    let small = !by_line && query.max_bytes.is_none_or(|max| max <= DEFAULT_REPLY_BYTES);
    if small && ops.records.output_is_free(task) {
        return read_slice_blocking(ops, task, stream, query);
    }
    let ops = Arc::clone(ops);
    crate::blocking(move || read_slice_blocking(&ops, task, stream, query)).await?
}

fn read_slice_blocking(ops: &Ops, task: TaskId, stream: StreamName, query: OutputQuery) -> ApiResult<StreamSlice> {
    let state = ops.records.state(task)?;
    let complete = state.settled();
    let Some(reading) = ops.records.output(&state)? else {
        return match query.offset_bytes.unwrap_or(0) {
            0 => Ok(StreamSlice { bytes: Vec::new(), start: 0, end: 0, total: 0, complete, gap: None }),
            offset => Err(ReadError::BeyondEnd { offset, total: 0 }.into()),
        };
    };
    let mut reading = lock(&reading);
    reading.refresh()?;
    let total = reading.total(stream);
    let (start, end) = if let Some(tail) = query.tail_lines {
        (reading.tail_offset(stream, tail)?, total)
    } else if query.line.is_some() || query.lines.is_some() {
        reading.line_range(stream, query.line.unwrap_or(1), query.lines.unwrap_or(DEFAULT_LINES))?
    } else {
        let start = query.offset_bytes.unwrap_or(0);
        (start, start.saturating_add(query.max_bytes.unwrap_or(DEFAULT_REPLY_BYTES)).min(total.max(start)))
    };
    let most = query.max_bytes.unwrap_or(MAX_REPLY_BYTES).min(MAX_REPLY_BYTES);
    let bytes = reading.read_bytes(stream, start, (end - start).min(most))?;
    Ok(StreamSlice { bytes, start, end, total, complete, gap: reading.gap(stream) })
}

fn total_bytes(ops: &Ops, task: TaskId, stream: StreamName) -> ApiResult<u64> {
    let Some(reading) = ops.records.output(&ops.records.state(task)?)? else { return Ok(0) };
    let mut reading = lock(&reading);
    reading.refresh()?;
    Ok(reading.total(stream))
}

impl From<StreamSlice> for OutputPage {
    fn from(slice: StreamSlice) -> Self {
        let StreamSlice { bytes, start, end, total, complete, gap } = slice;
        let len = bytes.len() as u64;
        // The next page continues after the dropped bytes.
        let next_offset = match gap {
            Some(gap) if gap.offset == start + len && len > 0 => gap.end(),
            _ => start + len,
        };
        let (content, encoding) = match String::from_utf8(bytes) {
            Ok(text) => (text, Encoding::Utf8),
            Err(e) => (STANDARD.encode(e.as_bytes()), Encoding::Base64),
        };
        Self {
            content,
            encoding,
            offset_bytes: start,
            bytes: len,
            total_bytes: total,
            next_offset,
            end_offset: end,
            truncated: next_offset < total,
            complete,
            gap: gap.map(|gap| OutputGap { offset_bytes: gap.offset, bytes: gap.bytes }),
        }
    }
}

/// Every stream for a caller that waits: complete if short, otherwise both ends.
pub(crate) fn bounded_output(ops: &Ops, state: &TaskState) -> ApiResult<BoundedOutput> {
    let mut output = BoundedOutput::new();
    for &stream in StreamName::for_mode(state.request.mode) {
        if state.io.streams.contains_key(&stream) {
            output.insert(stream, both_ends(ops, state, stream)?);
        }
    }
    Ok(output)
}

/// A stream: complete if short, otherwise both ends.
pub(crate) fn both_ends(ops: &Ops, state: &TaskState, stream: StreamName) -> ApiResult<RenderedOutput> {
    let encode = |bytes: &[u8]| STANDARD.encode(bytes);
    let Some(reading) = ops.records.output(state)? else { return Ok(RenderedOutput::complete(b"", encode)) };
    let mut reading = lock(&reading);
    reading.refresh()?;
    let (total, whole) = (reading.total(stream), MAX_COMPLETE_BYTES as u64);
    if total <= whole {
        return Ok(RenderedOutput::complete(&reading.read_bytes(stream, 0, whole)?, encode));
    }
    let (head, tail) = reading.gap(stream).map_or((total, total), |gap| (gap.offset, total - gap.end()));
    let half = whole / 2;
    let head = reading.read_bytes(stream, 0, half.min(head))?;
    let tail = half.min(tail);
    let tail = reading.read_bytes(stream, total - tail, tail)?;
    Ok(RenderedOutput::ends(&head, &tail, total, encode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_the_end_of_the_stream() {
        let from = |first, last| ByteRange::From { first, last };
        for (range, total, served) in [
            (from(0, None), 10, Some((0, 10))),
            (from(3, Some(5)), 10, Some((3, 6))),
            (from(3, Some(99)), 10, Some((3, 10))),
            (from(3, Some(u64::MAX)), 10, Some((3, 10))),
            (from(10, None), 10, None),
            (from(5, Some(4)), 10, None),
            (ByteRange::Last(4), 10, Some((6, 10))),
            (ByteRange::Last(99), 10, Some((0, 10))),
            (ByteRange::Last(0), 10, None),
            (from(0, None), 0, None),
        ] {
            assert_eq!(range.bounds_in(total), served, "{range:?} of {total}");
        }
    }

    #[test]
    fn a_page_continues_after_dropped_bytes_and_names_its_encoding() {
        let slice =
            |bytes: &[u8], gap| StreamSlice { bytes: bytes.to_vec(), start: 2, end: 5, total: 20, complete: true, gap };
        let page = OutputPage::from(slice(b"abc", Some(Gap { offset: 5, bytes: 10 })));
        assert_eq!((page.next_offset, page.end_offset, page.truncated), (15, 5, true));
        assert_eq!((page.content.as_str(), page.encoding), ("abc", Encoding::Utf8));
        let page = OutputPage::from(slice(b"\xff\xfe\xfd", None));
        assert_eq!(
            (page.content.as_str(), page.encoding, page.bytes, page.next_offset),
            ("//79", Encoding::Base64, 3, 5)
        );
    }
}
