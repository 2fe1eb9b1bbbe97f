//! `/receipts`, `/tasks/{id}/receipt`, `/artifacts/{digest}`, `/keys`: what was signed, what it speaks for, and by which key.

use super::{
    Answer, Shared,
    arrive::Who,
    find_task,
    output::{Pieces, byte_range, not_satisfiable},
    problem::{Query, Segment, Whole, body},
};
use crate::{house::House, seal::Work};
use axum::{
    Json,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_model::{Code, Digest, Record, Refusal, Shown, Statement, Subject, TaskId, What};
use countersign_store::{PublicKey, Signed, closing::digest_of_open};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    fs::File,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

const PAGE: usize = 50;
const LARGEST_PAGE: usize = 500;
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long what has settled is waited for.
const SEALED_WITHIN: Duration = Duration::from_secs(2);
/// How long a signature is waited for.
const SIGNED_WITHIN: Duration = Duration::from_secs(20);
/// So many receipts are looked at for one page.
const LOOKED_AT: u32 = 500;
const ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";

/// Receipts, newest first, each with what a list shows.
pub(crate) async fn list(State(house): Shared, who: Who, mut query: Query) -> Answer<Json<Value>> {
    let before = query.parse::<u64>("cursor", "the `next` of an earlier page")?.unwrap_or(u64::MAX);
    let limit = query.limit(PAGE, LARGEST_PAGE)?;
    query.nothing_else()?;
    // What has just settled is there, too.
    house.sealed_so_far(SEALED_WITHIN).await;
    let (mut found, mut before, mut more) = (Vec::new(), before, false);
    // What may not be seen is passed over, and nothing tells that it is there.
    'pages: loop {
        let page = house.readers.with(|r| r.receipts_before(who.principal, before, LOOKED_AT))?;
        let Some((last, _)) = page.last() else { break };
        before = last.number;
        for (signed, session) in page {
            match who.sees(&house, who.principal, session) {
                true if found.len() == limit => {
                    more = true;
                    break 'pages;
                }
                true => found.push(signed),
                false => {}
            }
        }
    }
    let next = found.last().filter(|_| more).map(|signed: &Signed| signed.number.to_string());
    let rows: Vec<Value> = found.iter().filter_map(row).collect();
    let sealing = house.sealing.borrow().trouble();
    Ok(Json(json!({"receipts": rows, "next": next, "failing": sealing})))
}

fn row(signed: &Signed) -> Option<Value> {
    let statement: Statement = serde_json::from_str(&signed.payload).ok()?;
    let receipt = statement.predicate;
    Some(json!({
        "receipt_id": receipt.receipt_id, "seq": receipt.seq, "task_id": receipt.task_id, "digest": signed.digest(),
        "key": signed.key, "sealed_at": receipt.sealed_at, "outcome": receipt.outcome,
        "decision": receipt.decision.outcome, "recovered": receipt.recovered, "display": receipt.request.display,
    }))
}

/// The envelope of a task's receipt, as it was signed.
pub(crate) async fn of_task(
    State(house): Shared,
    who: Who,
    Segment(id): Segment,
    headers: HeaderMap,
    mut query: Query,
) -> Answer<Response> {
    let wait = query.parse::<u64>("wait_ms", "a time in milliseconds")?.unwrap_or(0);
    query.nothing_else()?;
    let task = match named(&house, &id)? {
        // One that may not be seen is not there, and its task is not named.
        Some(task) => find_task(&house, &who, &task.to_string()).map_err(|_| no_receipt(&id))?,
        None => find_task(&house, &who, &id)?,
    };
    let wait = Duration::from_millis(wait).min(LONGEST_WAIT);
    let Some(signed) = sealed(&house, task, wait).await? else {
        let refusal = Refusal::new(Code::NotSealed, "this task has no receipt yet");
        let hint = match house.sealing.borrow().trouble() {
            None => "it gets one a moment after it has settled".to_owned(),
            Some(why) => format!("receipts: {why}"),
        };
        return Err(super::Problem::from(refusal.hint(hint)).of_task(task));
    };
    let bytes = signed.envelope().json().into_bytes();
    let sha256 = Digest::sha256(&[&bytes]);
    let whole = Bytes::from(bytes);
    Ok(served(&headers, sha256, whole.len() as u64, ENVELOPE, |start, end| {
        Body::from(whole.slice(start as usize..end as usize))
    }))
}

/// A receipt by its own name or number, where a task could be named.
fn named(house: &House, text: &str) -> Answer<Option<TaskId>> {
    let signed = match (text.parse(), text.parse::<u64>()) {
        (Ok(receipt), _) => house.readers.with(|r| r.receipt_named(receipt))?,
        // Ids have more characters.
        (_, Ok(number)) if text.len() < 10 => house.readers.with(|r| r.receipt(number))?,
        _ if text.starts_with("rc_") => None,
        _ => return Ok(None),
    };
    match signed {
        Some(signed) => Ok(Some(signed.task)),
        None => Err(no_receipt(text).into()),
    }
}

fn no_receipt(text: &str) -> Refusal {
    Refusal::new(Code::NotFound, format!("there is no receipt {}", Shown::bounded(text, 40)))
        .hint("`csn receipts list` shows them")
}

/// A task's receipt, once there is one.
async fn sealed(house: &Arc<House>, task: TaskId, wait: Duration) -> Answer<Option<Signed>> {
    if !wait.is_zero() {
        // Somebody waits: it need not wait for others.
        house.sealed_so_far(wait.min(SEALED_WITHIN)).await;
    }
    let mut bell = house.keeper.bell(task);
    let there = async {
        loop {
            if let Some(signed) = house.readers.with(|r| r.receipt_of(task))? {
                return Ok(Some(signed));
            }
            if bell.changed().await.is_err() {
                bell = house.keeper.bell(task);
            }
        }
    };
    let found = match tokio::time::timeout(wait, there).await {
        Ok(found) => found,
        Err(_) => Ok(house.readers.with(|r| r.receipt_of(task))?),
    };
    if found.as_ref().is_ok_and(Option::is_some) {
        house.keeper.unlist(task);
    }
    found
}

fn busy() -> Refusal {
    Refusal::new(Code::SealerUnavailable, "whoever signs is busy").hint("ask again in a moment")
}

/// A head of the ledger, signed: kept elsewhere, it proves later that nothing before it was taken back.
pub(crate) async fn head(State(house): Shared, Whole(_): Whole) -> Answer<Response> {
    let (reply, answer) = oneshot::channel();
    let gone = || Refusal::new(Code::Draining, "the house is going down");
    house.sealer.send(Work::Head(reply)).map_err(|_| gone())?;
    let envelope = tokio::time::timeout(SIGNED_WITHIN, answer).await.map_err(|_| busy())?.map_err(|_| gone())??;
    Ok(([(header::CONTENT_TYPE, ENVELOPE)], envelope.json()).into_response())
}

/// Every key that receipts were signed with, oldest first.
pub(crate) async fn keys(State(house): Shared) -> Answer<Json<Value>> {
    let keys = house.readers.with(countersign_store::ledger::Reader::keys)?;
    let last = keys.len().saturating_sub(1);
    let row = |(n, (decision, key)): (usize, (i64, countersign_model::KeyAnnounced))| {
        let pem = PublicKey::from_bytes(&key.public).map(|k| k.pem());
        json!({"key": key.key, "pem": pem, "decision": decision, "announced_by": key.by, "in_use": n == last,
               "announcement": key})
    };
    Ok(Json(json!({"keys": keys.into_iter().enumerate().map(row).collect::<Vec<_>>()})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rotate {
    /// The only thing that can be wanted of keys.
    rotate: bool,
    #[serde(default)]
    lost: bool,
}

pub(crate) async fn rotate(State(house): Shared, Whole(bytes): Whole) -> Answer<Json<Value>> {
    let Rotate { rotate, lost } = body(&bytes)?;
    if !rotate {
        return Err(Refusal::new(Code::BadRequest, "`rotate` is true: nothing else can be done with keys").into());
    }
    let (reply, answer) = oneshot::channel();
    let gone = || Refusal::new(Code::Draining, "the house is going down");
    house.sealer.send(Work::Rotate { lost, reply }).map_err(|_| gone())?;
    Ok(Json(json!(answer.await.map_err(|_| gone())??)))
}

/// Files whose digest was checked, as they were then: what has not changed since need not be read again.
#[derive(Default)]
pub(crate) struct Checked {
    recent: Mutex<VecDeque<(Digest, Stamp)>>,
}

type Stamp = (u64, u64, u64, i64, i64);
const REMEMBERED: usize = 64;

impl Checked {
    fn holds(&self, digest: Digest, file: &File) -> std::io::Result<bool> {
        let m = file.metadata()?;
        let stamp = (m.dev(), m.ino(), m.len(), m.ctime(), m.ctime_nsec());
        let mut recent = self.recent.lock().expect("nothing panics while it holds this lock");
        if recent.contains(&(digest, stamp)) {
            return Ok(true);
        }
        drop(recent);
        if digest_of_open(file)?.0 != digest {
            return Ok(false);
        }
        recent = self.recent.lock().expect("nothing panics while it holds this lock");
        recent.push_back((digest, stamp));
        if recent.len() > REMEMBERED {
            recent.pop_front();
        }
        Ok(true)
    }
}

/// The bytes that a receipt speaks for, by their digest.
pub(crate) async fn artifact(
    State(house): Shared,
    who: Who,
    Segment(digest): Segment,
    headers: HeaderMap,
) -> Answer<Response> {
    let shown = Shown::bounded(&digest, 70).to_string();
    let wanted = digest.strip_prefix("sha256:").unwrap_or(&digest).to_ascii_lowercase();
    let wanted = Digest::parse(&wanted)
        .ok_or_else(|| Refusal::new(Code::BadRequest, format!("`{shown}` is not a SHA-256 digest: 64 hex digits")))?;
    tokio::task::spawn_blocking(move || find(&house, &who, wanted, &headers))
        .await
        .map_err(|e| Refusal::new(Code::Internal, e.to_string()))?
}

fn find(house: &Arc<House>, who: &Who, wanted: Digest, headers: &HeaderMap) -> Answer<Response> {
    let unknown = || Refusal::new(Code::NotFound, format!("there is no artifact {wanted}"));
    let (mut tampered, mut expired) = (None, None);
    for (task, name) in house.readers.with(|r| r.artifacts(wanted))? {
        if find_task(house, who, &task.to_string()).is_err() {
            continue;
        }
        if name == Subject::DECISIONS {
            let bytes = Bytes::from(decisions(house, task)?);
            if Digest::sha256(&[&bytes]) == wanted {
                return Ok(served(headers, wanted, bytes.len() as u64, "application/x-ndjson", |start, end| {
                    Body::from(bytes.slice(start as usize..end as usize))
                }));
            }
            tampered = Some((task, name));
            continue;
        }
        let file = match open(&house.home.task_dir(task).join(&name)) {
            Ok(file) => file,
            Err(_) if house.readers.with(|r| r.expired(task))? => {
                expired = Some(task);
                continue;
            }
            Err(_) => {
                tampered = Some((task, name));
                continue;
            }
        };
        let held = house.checked.holds(wanted, &file);
        if !held.map_err(|e| Refusal::new(Code::Internal, format!("{name} cannot be read: {e}")))? {
            tampered = Some((task, name));
            continue;
        }
        let length = file.metadata().map_err(|e| Refusal::new(Code::Internal, e.to_string()))?.len();
        return Ok(served(headers, wanted, length, "application/octet-stream", |start, end| {
            piecewise(file, start, end)
        }));
    }
    match (tampered, expired) {
        (Some((task, name)), _) => Err(super::Problem::from(Refusal::new(
            Code::ArtifactTampered,
            format!("{name} of {task} is not what its receipt speaks for"),
        ))
        .of_task(task)),
        (None, Some(task)) => Err(super::Problem::from(
            Refusal::new(Code::Expired, "what this digest names is not kept any more")
                .hint("the receipt still speaks for it"),
        )
        .of_task(task)),
        (None, None) => Err(unknown().into()),
    }
}

/// The decisions of a task up to its receipt, one line each.
fn decisions(house: &House, task: TaskId) -> Answer<String> {
    let mut out = String::new();
    for (_, line) in house.readers.with(|r| r.decisions(task, 0))? {
        if let Ok(Record { what: What::Decision(countersign_model::Decision::Sealed(_)), .. }) = Record::parse(&line) {
            break;
        }
        out.push_str(&line);
        out.push('\n');
    }
    Ok(out)
}

/// A file of a task, and not what was put in its place.
fn open(path: &std::path::Path) -> std::io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(std::io::Error::other("not a regular file")),
    }
}

/// A part of a file, piece by piece.
fn piecewise(file: File, start: u64, end: u64) -> Body {
    const PIECE: u64 = 256 * 1024;
    let (send, receive) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    tokio::task::spawn_blocking(move || {
        let mut at = start;
        while at < end {
            let mut piece = vec![0; usize::try_from(PIECE.min(end - at)).unwrap_or(0)];
            let read = file.read_exact_at(&mut piece, at).map(|()| Bytes::from(piece));
            let failed = read.is_err();
            if send.blocking_send(read).is_err() || failed {
                return;
            }
            at += PIECE.min(end - at);
        }
    });
    Body::from_stream(Pieces(receive))
}

/// Bytes that are named by their digest: whole, a range of them, or the word that they are known already.
fn served(
    headers: &HeaderMap,
    sha256: Digest,
    total: u64,
    kind: &'static str,
    part: impl FnOnce(u64, u64) -> Body,
) -> Response {
    let tag = format!("\"{sha256}\"");
    let says = |name: HeaderName| headers.get(name).and_then(|v| v.to_str().ok());
    let same = |list: &str| list.split(',').any(|t| t.trim() == tag || t.trim() == "*");
    // A range of something else than is known is not wanted.
    let ranged = says(header::IF_RANGE).is_none_or(|t| t.trim() == tag);
    let range = says(header::RANGE).filter(|_| ranged && total > 0);
    let mut response = if says(header::IF_NONE_MATCH).is_some_and(same) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        match range.map(|r| byte_range(r, total)) {
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
