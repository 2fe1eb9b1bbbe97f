//! `/tasks/{id}/search`: where in the output a pattern is; page by page, checked like every other reading.

use super::{
    Answer, Projections, Shared, find_task,
    output::stream_of,
    problem::{Query, Segment},
};
use crate::{
    house::House,
    search::{Match, Pattern, Place, Search},
};
use axum::{Json, extract::State};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_model::{Code, Refusal, StreamName, TaskState};
use serde_json::{Value, json};

/// How much is read at a time.
const PIECE: u64 = 4 * 1024 * 1024;
const MATCHES: usize = 100;
const MOST_MATCHES: usize = 1000;
const MOST_CONTEXT: usize = 20;
const LONGEST_PATTERN: usize = 4096;

pub(crate) async fn search(State(house): Shared, Segment(id): Segment, mut query: Query) -> Answer<Json<Value>> {
    let task = find_task(&house, &id)?;
    Projections::warm(&house, task).await?;
    let state = house.projections.state(&house, task)?;
    let bad = |message: String| Refusal::new(Code::BadRequest, message);
    let text = query.text("pattern").ok_or_else(|| bad("`pattern` is missing".to_owned()))?;
    if text.len() > LONGEST_PATTERN {
        return Err(bad(format!("`pattern` has at most {LONGEST_PATTERN} bytes")).into());
    }
    let yes = |q: &mut Query, name: &str| Ok::<_, super::Problem>(q.parse(name, "true or false")?.unwrap_or(false));
    let regex = yes(&mut query, "regex")?;
    let ignore_case = yes(&mut query, "ignore_case")?;
    let pattern = Pattern::new(&text, regex, ignore_case).map_err(|e| bad(format!("`pattern`: {e}")))?;
    let context = query.parse("context", "a number of lines")?.unwrap_or(0usize);
    let most = query.parse("max_results", "a number")?.unwrap_or(MATCHES);
    if context > MOST_CONTEXT || !(1..=MOST_MATCHES).contains(&most) {
        return Err(bad(format!("`context` is 0 to {MOST_CONTEXT}, `max_results` 1 to {MOST_MATCHES}")).into());
    }
    let mut streams = StreamName::of(state.mode).to_vec();
    if let Some(name) = query.text("stream") {
        streams = vec![stream_of(state.mode, &name)?];
    }
    let mut from = Place { offset: 0, line: 1 };
    if let Some(cursor) = query.text("after") {
        let (stream, place) = parse_cursor(&cursor).ok_or_else(|| bad("`after` is the `next` of a page".to_owned()))?;
        let at = streams.iter().position(|s| *s == stream);
        streams.drain(..at.ok_or_else(|| bad("`after` belongs to another search".to_owned()))?);
        from = place;
    }
    query.nothing_else()?;
    let looked = tokio::task::spawn_blocking(move || look(&house, &state, &pattern, context, most, &streams, from));
    looked.await.map_err(|e| Refusal::new(Code::Internal, e.to_string()))?
}

fn parse_cursor(text: &str) -> Option<(StreamName, Place)> {
    let mut parts = text.split('.');
    let stream = serde_json::from_value(parts.next()?.into()).ok()?;
    let place = Place { offset: parts.next()?.parse().ok()?, line: parts.next()?.parse().ok()? };
    parts.next().is_none().then_some((stream, place))
}

fn look(
    house: &House,
    state: &TaskState,
    pattern: &Pattern,
    context: usize,
    most: usize,
    streams: &[StreamName],
    mut from: Place,
) -> Answer<Json<Value>> {
    let (mut matches, mut next) = (Vec::new(), None);
    for (n, stream) in streams.iter().enumerate() {
        let mut search = Search::new(pattern, context, most - matches.len(), from);
        walk(house, state, *stream, &mut search)?;
        let (found, more) = search.finish();
        matches.extend(found.iter().map(|m| shown(*stream, m)));
        if let Some(place) = more {
            next = Some(format!("{stream}.{}.{}", place.offset, place.line));
            break;
        }
        from = Place { offset: 0, line: 1 };
        if matches.len() >= most && n + 1 < streams.len() {
            next = Some(format!("{}.0.1", streams[n + 1]));
            break;
        }
    }
    Ok(Json(json!({"matches": matches, "next": next, "complete": state.settled()})))
}

/// Feeds a stream to the search, as far as it goes now.
fn walk(house: &House, state: &TaskState, stream: StreamName, search: &mut Search<'_>) -> Answer<()> {
    let Some(reading) = house.maps.of(house, state)? else { return Ok(()) };
    let mut reading = reading.lock().expect("nothing panics while it holds this lock");
    reading.refresh()?;
    let (total, gap) = (reading.total(stream), reading.gap(stream));
    let mut held: Vec<u8> = Vec::new();
    while !search.is_done() {
        let mut at = search.place().offset + held.len() as u64;
        if let Some(gap) = gap.filter(|gap| (gap.offset..gap.end()).contains(&at)) {
            search.jump(gap.end());
            (at, held) = (gap.end(), Vec::new());
        }
        if at >= total {
            break;
        }
        let bytes = reading.bytes(stream, at, PIECE)?;
        let end = at + bytes.len() as u64;
        let last = end >= total || gap.is_some_and(|gap| gap.offset == end);
        // Most pieces end in the middle of a line; only that line is carried over.
        if held.is_empty() {
            let used = search.feed(&bytes, last);
            held = bytes[used..].to_vec();
        } else {
            held.extend_from_slice(&bytes);
            let used = search.feed(&held, last);
            held.drain(..used);
        }
    }
    Ok(())
}

fn shown(stream: StreamName, m: &Match) -> Value {
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({"encoding": "base64", "content": STANDARD.encode(bytes)}),
    };
    let lines = |lines: &[Vec<u8>]| lines.iter().map(|l| text(l)).collect::<Vec<_>>();
    json!({
        "stream": stream, "offset_bytes": m.offset, "bytes": m.length, "line": m.line,
        "line_offset_bytes": m.line_offset, "excerpt": text(&m.excerpt),
        "before": lines(&m.before), "after": lines(&m.after),
    })
}
