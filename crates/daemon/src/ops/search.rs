//! Searching output: the matches of a pattern, page by page. Every chunk is verified, as in other reads.

use super::{
    ApiResult, Ops,
    output::check_stream,
    pattern::{OutputSketch, PatternMatch, Search, SearchPattern, SearchPosition},
};
use crate::{caller::Caller, lock};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_model::{
    CredentialScope, Encoding, Refusal, RefusalCode, StreamName, TaskState,
    api::{Excerpt, SearchMatch, SearchPage, SearchQuery},
};
use countersign_store::{
    clock,
    output::{OutputChunk, ReadError},
};
use std::{
    fs::File,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// How much is read at a time.
const READ_AHEAD_BYTES: u64 = 32 * 1024 * 1024;
/// Fewer chunks than this are read one after another.
const MIN_CHUNKS_FOR_PARALLEL_SCAN: usize = 16;
/// How long one search runs; the page then names where to continue.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_THREADS: usize = 4;
/// A line across chunks that is longer than this is read like one with a match.
const MAX_BORDER_BYTES: usize = 1024 * 1024;
const DEFAULT_MATCHES: usize = 100;
const MAX_MATCHES: usize = 1000;
const MAX_CONTEXT_LINES: usize = 20;
const MAX_PATTERN_BYTES: usize = 4096;

/// A page of matching lines.
pub(crate) async fn search(ops: &Arc<Ops>, caller: &Caller, id: &str, query: SearchQuery) -> ApiResult<SearchPage> {
    caller.require_scope(CredentialScope::Observe)?;
    let task = ops.records.find_task(caller, id)?;
    ops.records.load_task(task).await?;
    let state = ops.records.state(task)?;
    let bad = |message: String| Refusal::new(RefusalCode::BadRequest, message);
    if query.pattern.len() > MAX_PATTERN_BYTES {
        return Err(bad(format!("`pattern` must have at most {MAX_PATTERN_BYTES} bytes")).into());
    }
    let pattern = SearchPattern::new(&query.pattern, query.regex, query.ignore_case);
    let pattern = pattern.map_err(|e| bad(format!("`pattern`: {e}")))?;
    let (context, most) = (query.context.unwrap_or(0), query.max_results.unwrap_or(DEFAULT_MATCHES));
    if context > MAX_CONTEXT_LINES || !(1..=MAX_MATCHES).contains(&most) {
        let message = format!("`context` must be from 0 to {MAX_CONTEXT_LINES}, `max_results` from 1 to {MAX_MATCHES}");
        return Err(bad(message).into());
    }
    let mut streams = match query.stream {
        Some(stream) => vec![check_stream(state.request.mode, stream)?],
        None => StreamName::for_mode(state.request.mode).to_vec(),
    };
    let mut from = SearchPosition { offset: 0, line: 1, searched_bytes: 0 };
    if let Some(cursor) = query.after {
        let (stream, place) =
            parse_cursor(&cursor).ok_or_else(|| bad("`after` must be the `next` of an earlier page".to_owned()))?;
        let at = streams.iter().position(|s| *s == stream);
        streams.drain(..at.ok_or_else(|| bad("`after` belongs to another search".to_owned()))?);
        from = place;
    }
    let ops = Arc::clone(ops);
    crate::blocking(move || search_stream(&ops, &state, &pattern, context, most, &streams, from)).await?
}

fn parse_cursor(text: &str) -> Option<(StreamName, SearchPosition)> {
    let mut parts = text.split('.');
    let stream = serde_json::from_value(parts.next()?.into()).ok()?;
    // No stream is longer than this, and no line has a higher number.
    let mut number = || parts.next()?.parse::<u64>().ok().filter(|n| *n < 1 << 60);
    let place = SearchPosition { offset: number()?, line: number()?, searched_bytes: number()? };
    parts.next().is_none().then_some((stream, place))
}

fn search_stream(
    ops: &Ops,
    state: &TaskState,
    pattern: &SearchPattern,
    context: usize,
    most: usize,
    streams: &[StreamName],
    mut from: SearchPosition,
) -> ApiResult<SearchPage> {
    let (mut matches, mut next) = (Vec::new(), None);
    for (n, stream) in streams.iter().enumerate() {
        let mut search = Search::new(pattern, context, most - matches.len(), from);
        search_output(ops, state, *stream, &mut search)?;
        let (found, more) = search.finish();
        matches.extend(found.iter().map(|m| match_view(*stream, m)));
        if let Some(place) = more {
            next = Some(format!("{stream}.{}.{}.{}", place.offset, place.line, place.searched_bytes));
            break;
        }
        from = SearchPosition { offset: 0, line: 1, searched_bytes: 0 };
        if matches.len() >= most && n + 1 < streams.len() {
            next = Some(format!("{}.0.1.0", streams[n + 1]));
            break;
        }
    }
    Ok(SearchPage { matches, next, complete: state.settled() })
}

/// Feeds a stream to the search, as far as it goes now. Several threads scan for stretches without a match; the rest is
/// read line by line.
fn search_output(ops: &Ops, state: &TaskState, stream: StreamName, search: &mut Search<'_>) -> ApiResult<()> {
    let Some(reading) = ops.records.output(state)? else { return Ok(()) };
    let (total, gap) = {
        let mut reading = lock(&reading);
        reading.refresh()?;
        (reading.total(stream), reading.gap(stream))
    };
    if total == 0 {
        return Ok(());
    }
    let file = ops.records.open_file(state.task_id, stream.file()).map_err(ReadError::from)?;
    let mut held: Vec<u8> = Vec::new();
    let deadline = clock::steady() + SEARCH_TIMEOUT;
    while !search.is_done() {
        let mut at = search.position().offset + held.len() as u64;
        if clock::steady() > deadline {
            search.stop();
            break;
        }
        if let Some(gap) = gap.filter(|gap| (gap.offset..gap.end()).contains(&at)) {
            feed_search(search, &mut held, true);
            search.continue_after_gap(gap.end());
            (at, held) = (gap.end(), Vec::new());
        }
        if at >= total {
            break;
        }
        let spans = lock(&reading).spans(stream, at, READ_AHEAD_BYTES);
        let Some(last) = spans.last().map(|s| s.end()) else { break };
        let whole = spans.first().is_some_and(|s| s.offset() == at);
        if whole && search.can_skip() && spans.len() >= MIN_CHUNKS_FOR_PARALLEL_SCAN {
            held = scan_in_parallel(&file, &spans, search, held)?;
        } else {
            // Up to the next chunk, or all of the few that are left.
            let near = if whole { &spans[..] } else { &spans[..1] };
            let end = near.last().map_or(last, |s| s.end());
            read_range(&file, near, at, end, &mut held)?;
            feed_search(search, &mut held, end >= total || gap.is_some_and(|gap| gap.offset == end));
        }
    }
    if !search.is_done() && !held.is_empty() {
        feed_search(search, &mut held, true);
    }
    Ok(())
}

fn feed_search(search: &mut Search<'_>, held: &mut Vec<u8>, last: bool) {
    let used = search.feed(held, last);
    held.drain(..used);
}

/// Scans stretches in parallel and skips those without a match; feeds the others. Returns the rest of an incomplete
/// line.
fn scan_in_parallel(
    file: &File,
    spans: &[OutputChunk],
    search: &mut Search<'_>,
    mut held: Vec<u8>,
) -> ApiResult<Vec<u8>> {
    let pattern = search.pattern();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let each = spans.len().div_ceil(threads * 2);
    let stretches: Vec<&[OutputChunk]> = spans.chunks(each).collect();
    let next = AtomicUsize::new(0);
    let glances: Vec<Mutex<Option<Result<OutputSketch, ReadError>>>> =
        stretches.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut bytes = Vec::new();
                while let Some(n) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < stretches.len()) {
                    let glance = scan_stretch(file, stretches[n], pattern, &mut bytes);
                    *lock(&glances[n]) = Some(glance);
                }
            });
        }
    });
    for (stretch, glance) in stretches.iter().zip(glances) {
        let glance = glance.into_inner().ok().flatten().unwrap_or_else(|| Ok(OutputSketch::default()))?;
        if search.is_done() {
            break;
        }
        let (mut bytes, start) = (Vec::new(), stretch[0].offset());
        // The line that begins before this stretch is searched as a whole.
        if let (false, Some(first), Some(last)) = (glance.may_match, glance.first, glance.last) {
            read_range(file, stretch, start, start + first, &mut bytes)?;
            held.extend_from_slice(&bytes);
            feed_search(search, &mut held, false);
            if held.is_empty() && search.can_skip() {
                search.skip_counted(last - first, glance.lines - 1);
                read_range(file, stretch, start + last, start + glance.len, &mut held)?;
                continue;
            }
            bytes.clear();
            read_range(file, stretch, start + first, start + glance.len, &mut bytes)?;
        } else {
            read_range(file, stretch, start, start + glance.len, &mut bytes)?;
        }
        held.extend_from_slice(&bytes);
        feed_search(search, &mut held, false);
    }
    Ok(held)
}

/// Scans chunk by chunk, so that the bytes are still in the processor's cache.
fn scan_stretch(
    file: &File,
    stretch: &[OutputChunk],
    pattern: &SearchPattern,
    bytes: &mut Vec<u8>,
) -> Result<OutputSketch, ReadError> {
    let (mut all, mut border) = (OutputSketch::default(), Vec::new());
    for span in stretch {
        span.read(file, bytes)?;
        let here = OutputSketch::scan(pattern, bytes);
        // A line across the border of two chunks belongs to neither.
        border.extend_from_slice(&bytes[..here.first.unwrap_or(here.len) as usize]);
        let across = all.len > 0 && pattern.is_in(&border);
        if here.last.is_some() || border.len() > MAX_BORDER_BYTES {
            border.clear();
            border.extend_from_slice(&bytes[here.last.unwrap_or(0) as usize..]);
        }
        all = all.join(here);
        all.may_match |= across || border.len() > MAX_BORDER_BYTES;
    }
    Ok(all)
}

fn read_range(file: &File, stretch: &[OutputChunk], from: u64, to: u64, into: &mut Vec<u8>) -> Result<(), ReadError> {
    let mut bytes = Vec::new();
    for span in stretch.iter().filter(|s| s.end() > from && s.offset() < to) {
        span.read(file, &mut bytes)?;
        let (a, b) = (from.saturating_sub(span.offset()) as usize, (to.min(span.end()) - span.offset()) as usize);
        into.extend_from_slice(&bytes[a..b]);
    }
    Ok(())
}

fn match_view(stream: StreamName, m: &PatternMatch) -> SearchMatch {
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => Excerpt::Text(text.to_owned()),
        Err(_) => Excerpt::Encoded { encoding: Encoding::Base64, content: STANDARD.encode(bytes) },
    };
    SearchMatch {
        stream,
        offset_bytes: m.offset,
        bytes: m.length,
        line: m.line,
        line_offset_bytes: m.line_offset,
        excerpt: text(&m.excerpt),
        before: m.before.iter().map(|line| text(line)).collect(),
        after: m.after.iter().map(|line| text(line)).collect(),
    }
}
