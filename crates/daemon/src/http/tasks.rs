//! `/tasks`: requesting, listing and showing tasks, and reading their output.

use super::{
    SharedState,
    body::{json_bytes, stream_body},
    extract::{OncePayload, Params, Payload, Segment},
    problem::{HttpResult, Problem},
};
use crate::caller::Caller;
use crate::ops::{
    self,
    output::{ByteRange, RangeResult, StreamSlice},
};
use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use countersign_model::{
    Refusal, RefusalCode, Request, Status,
    api::{
        CastQuery, CheckResponse, CursorPosition, OutputQuery, ScreenView, SearchPage, SearchQuery, TaskPage,
        TaskQuery, WaitQuery,
    },
};

const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

pub(crate) async fn ask(
    State(front): SharedState,
    caller: Caller,
    payload: OncePayload<Request>,
) -> HttpResult<Response> {
    let (request, once) = payload.into_parts();
    let asked = ops::intake::ask(&front.ops, &caller, request, once.key()).await?;
    let task = &asked.answer.task;
    let status = if task.status == Status::Queued { StatusCode::ACCEPTED } else { StatusCode::CREATED };
    let location = HeaderValue::from_str(&format!("/tasks/{}", task.task_id));
    let mut response = (status, Json(&asked.answer)).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    if asked.replayed {
        let name = HeaderName::from_static("idempotency-replayed");
        response.headers_mut().insert(name, HeaderValue::from_static("true"));
    }
    Ok(response)
}

pub(crate) async fn check(
    State(front): SharedState,
    caller: Caller,
    Payload(request): Payload<Request>,
) -> HttpResult<Json<CheckResponse>> {
    Ok(Json(ops::intake::check(&front.ops, &caller, request).await?))
}

pub(crate) async fn list(
    State(front): SharedState,
    caller: Caller,
    Params(query): Params<TaskQuery>,
) -> HttpResult<Json<TaskPage>> {
    Ok(Json(ops::tasks::list(&front.ops, &caller, query).await?))
}

pub(crate) async fn show(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    Params(query): Params<WaitQuery>,
) -> HttpResult<Response> {
    Ok(json_bytes(ops::tasks::show(&front.ops, &caller, &id, query).await?))
}

/// Whether the client asks for raw bytes.
fn wants_bytes(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_some_and(|a| a.as_bytes().starts_with(b"application/octet-stream"))
}

pub(crate) async fn output(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    headers: HeaderMap,
    Params(query): Params<OutputQuery>,
) -> HttpResult<Response> {
    let ops = &front.ops;
    if !wants_bytes(&headers) {
        return Ok(Json(ops::output::read(ops, &caller, &id, query).await?).into_response());
    }
    if let Some(range) = headers.get(header::RANGE) {
        let range = range.to_str().ok().and_then(parse_range);
        // An invalid range cannot be satisfied.
        let range = range.unwrap_or(ByteRange::From { first: u64::MAX, last: None });
        return Ok(match ops::output::read_range(ops, &caller, &id, query, range).await? {
            RangeResult::Slice(slice) => slice_response(slice, true),
            RangeResult::Unsatisfiable { total } => not_satisfiable(total),
        });
    }
    // Without a range, everything.
    if query == (OutputQuery { stream: query.stream, ..OutputQuery::default() }) {
        let (length, receive) = ops::output::read_all(ops, &caller, &id, query.stream).await?;
        let mut response = stream_body(receive).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, BYTES);
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        return Ok(response);
    }
    Ok(slice_response(ops::output::read_bytes(ops, &caller, &id, query).await?, false))
}

fn slice_response(slice: StreamSlice, ranged: bool) -> Response {
    let StreamSlice { bytes, start, total, complete, .. } = slice;
    let last = (start + bytes.len() as u64).saturating_sub(1).max(start);
    let size = if complete { total.to_string() } else { "*".to_owned() };
    let status = if ranged && !bytes.is_empty() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut response = (status, Body::from(bytes)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, BYTES);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if status == StatusCode::PARTIAL_CONTENT
        && let Ok(range) = HeaderValue::from_str(&format!("bytes {start}-{last}/{size}"))
    {
        headers.insert(header::CONTENT_RANGE, range);
    }
    response
}

/// `bytes=a-b`, `bytes=a-`, `bytes=-n`: one range.
pub(crate) fn parse_range(range: &str) -> Option<ByteRange> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    Some(match (first.trim(), last.trim()) {
        ("", suffix) => ByteRange::Last(suffix.parse().ok()?),
        (first, "") => ByteRange::From { first: first.parse().ok()?, last: None },
        (first, last) => ByteRange::From { first: first.parse().ok()?, last: Some(last.parse().ok()?) },
    })
}

pub(crate) fn not_satisfiable(total: u64) -> Response {
    let refusal = Refusal::new(
        RefusalCode::RangeNotSatisfiable,
        format!("the range is outside the stream, which has {total} bytes"),
    );
    let mut response = Problem::from(refusal).into_response();
    if let Ok(range) = HeaderValue::from_str(&format!("bytes */{total}")) {
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    response
}

pub(crate) async fn search(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    Params(query): Params<SearchQuery>,
) -> HttpResult<Json<SearchPage>> {
    Ok(Json(ops::search::search(&front.ops, &caller, &id, query).await?))
}

pub(crate) async fn screen(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    headers: HeaderMap,
) -> HttpResult<Response> {
    let now = ops::screen::show(&front.ops, &caller, &id).await?;
    if wants_bytes(&headers) {
        return Ok(([(header::CONTENT_TYPE, BYTES)], now.screen.drawn.into_inner()).into_response());
    }
    let (row, col) = now.screen.cursor;
    Ok(Json(ScreenView {
        rows: now.screen.rows,
        cols: now.screen.cols,
        cursor: CursorPosition { row, col },
        alternate_screen: now.screen.alternate,
        text: now.screen.text,
        next_seq: now.next_seq,
        offset_bytes: now.offset,
    })
    .into_response())
}

pub(crate) async fn cast(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    Params(query): Params<CastQuery>,
) -> HttpResult<Response> {
    let recording = ops::cast::cast(&front.ops, &caller, &id, query).await?;
    Ok(([(header::CONTENT_TYPE, "application/x-asciicast")], stream_body(recording)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_byte_range_is_parsed() {
        for (text, range) in [
            ("bytes=0-", Some(ByteRange::From { first: 0, last: None })),
            ("bytes=5-9", Some(ByteRange::From { first: 5, last: Some(9) })),
            ("bytes=-7", Some(ByteRange::Last(7))),
            ("bytes=a-b", None),
            ("bytes=1-2,3-4", None),
            ("lines=1-2", None),
            ("", None),
        ] {
            assert_eq!(parse_range(text), range, "{text}");
        }
    }
}
