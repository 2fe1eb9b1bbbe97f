//! `/receipts`, `/tasks/{id}/receipt`, `/artifacts/{digest}`, `/keys`: what was signed, what it covers, and by which
//! key.

use super::{
    SharedState,
    body::stream_body,
    extract::{AnyPayload, Params, Payload, Segment},
    problem::HttpResult,
    tasks::{not_satisfiable, parse_range},
};
use crate::{
    caller::Caller,
    ops::receipts::{self, ArtifactBytes},
};
use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use countersign_model::{
    Digest, KeyAnnounced,
    api::{KeyList, ReceiptPage, ReceiptQuery, RotateBody, WaitQuery},
};
use std::{fs::File, os::unix::fs::FileExt as _};
use tokio::sync::mpsc;

/// The media type of a signed envelope.
pub(crate) const ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";
/// The media type of decisions, one line each.
pub(crate) const NDJSON: &str = "application/x-ndjson";

pub(crate) async fn list(
    State(front): SharedState,
    caller: Caller,
    Params(query): Params<ReceiptQuery>,
) -> HttpResult<Json<ReceiptPage>> {
    Ok(Json(receipts::list(&front.ops, &caller, query).await?))
}

/// The envelope of a task's receipt, as it was signed.
pub(crate) async fn envelope(
    State(front): SharedState,
    caller: Caller,
    Segment(id): Segment,
    headers: HeaderMap,
    Params(query): Params<WaitQuery>,
) -> HttpResult<Response> {
    let envelope = receipts::envelope(&front.ops, &caller, &id, query).await?;
    let whole = Bytes::from(envelope.json());
    let sha256 = Digest::sha256(&[&whole]);
    Ok(digest_response(&headers, sha256, whole.len() as u64, ENVELOPE, |start, end| {
        Body::from(whole.slice(start as usize..end as usize))
    }))
}

pub(crate) async fn signed_head(
    State(front): SharedState,
    caller: Caller,
    AnyPayload: AnyPayload,
) -> HttpResult<Response> {
    let envelope = receipts::signed_head(&front.ops, &caller).await?;
    Ok(([(header::CONTENT_TYPE, ENVELOPE)], envelope.json()).into_response())
}

pub(crate) async fn keys(State(front): SharedState, caller: Caller) -> HttpResult<Json<KeyList>> {
    Ok(Json(receipts::keys(&front.ops, &caller)?))
}

pub(crate) async fn rotate(
    State(front): SharedState,
    caller: Caller,
    Payload(body): Payload<RotateBody>,
) -> HttpResult<Json<KeyAnnounced>> {
    Ok(Json(receipts::rotate(&front.ops, &caller, body).await?))
}

/// The bytes that a receipt covers, by their digest.
pub(crate) async fn artifact(
    State(front): SharedState,
    caller: Caller,
    Segment(digest): Segment,
    headers: HeaderMap,
) -> HttpResult<Response> {
    let (digest, found) = receipts::artifact(&front.ops, &caller, &digest).await?;
    Ok(match found {
        ArtifactBytes::Decisions(bytes) => {
            digest_response(&headers, digest, bytes.len() as u64, NDJSON, |start, end| {
                Body::from(bytes.slice(start as usize..end as usize))
            })
        }
        ArtifactBytes::File { file, bytes } => {
            digest_response(&headers, digest, bytes, "application/octet-stream", |start, end| {
                stream_file(file, start, end)
            })
        }
    })
}

/// A part of a file, piece by piece.
fn stream_file(file: File, start: u64, end: u64) -> Body {
    const PIECE_BYTES: u64 = 256 * 1024;
    let (send, receive) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    tokio::task::spawn_blocking(move || {
        let mut at = start;
        while at < end {
            let mut piece = vec![0; usize::try_from(PIECE_BYTES.min(end - at)).unwrap_or(0)];
            let read = file.read_exact_at(&mut piece, at).map(|()| Bytes::from(piece));
            let failed = read.is_err();
            if send.blocking_send(read).is_err() || failed {
                return;
            }
            at += PIECE_BYTES.min(end - at);
        }
    });
    stream_body(receive)
}

/// Bytes named by their digest: all of them, a range, or a 304 if the client has them.
fn digest_response(
    headers: &HeaderMap,
    sha256: Digest,
    total: u64,
    kind: &'static str,
    part: impl FnOnce(u64, u64) -> Body,
) -> Response {
    let tag = format!("\"{sha256}\"");
    let header_text = |name: HeaderName| headers.get(name).and_then(|v| v.to_str().ok());
    let same = |list: &str| list.split(',').any(|t| t.trim() == tag || t.trim() == "*");
    // A range of a different version is not wanted.
    let ranged = header_text(header::IF_RANGE).is_none_or(|t| t.trim() == tag);
    let range = header_text(header::RANGE).filter(|_| ranged && total > 0);
    let mut response = if header_text(header::IF_NONE_MATCH).is_some_and(same) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        match range.map(|r| parse_range(r).and_then(|range| range.bounds_in(total))) {
            Some(None) => return not_satisfiable(total),
            Some(Some((start, end))) => {
                let mut response = (StatusCode::PARTIAL_CONTENT, part(start, end)).into_response();
                let (length, span) = (end - start, format!("bytes {start}-{}/{total}", end - 1));
                response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
                if let Ok(span) = HeaderValue::from_str(&span) {
                    response.headers_mut().insert(header::CONTENT_RANGE, span);
                }
                response
            }
            None => {
                let mut response = part(0, total).into_response();
                response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(total));
                response
            }
        }
    };
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, immutable, max-age=31536000"));
    let digest = format!("sha-256=:{}:", STANDARD.encode(sha256.as_bytes()));
    for (name, value) in [(header::ETAG, tag), (HeaderName::from_static("repr-digest"), digest)] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            out.insert(name, value);
        }
    }
    response
}
