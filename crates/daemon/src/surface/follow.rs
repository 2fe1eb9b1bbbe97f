//! `/events` and `/approvals/events`: the ledger as it grows, over server-sent events. The cursor is the number of a
//! decision; the bell says only that there is more.

use super::{
    Answer, Shared, approvals,
    arrive::Who,
    problem::{Problem, Query},
};
use crate::house::House;
use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse as _, Response},
};
use countersign_model::{Approval, Code, CredentialScope, Decision, PrincipalId, Record, Refusal, TaskId, What};
use std::{collections::HashMap, fmt::Write as _, sync::Arc, time::Duration};
use tokio::sync::mpsc;

const HEARTBEAT: Duration = Duration::from_secs(15);
/// How many decisions are read at a time.
const LINES: u32 = 64;

#[derive(Clone, Copy, PartialEq)]
enum Wants {
    /// Every decision, as its line.
    Decisions,
    /// Approvals, as they are after each decision about one.
    Approvals,
}

/// Every decision that whoever asks may see, from the beginning or behind a cursor.
pub(crate) async fn ledger(State(house): Shared, who: Who, headers: HeaderMap, mut query: Query) -> Answer<Response> {
    let after = cursor(&headers, &mut query)?.unwrap_or(0);
    query.nothing_else()?;
    Ok(follow(house, who, Wants::Decisions, after, Vec::new()))
}

/// Approvals: first those that wait, then every one that is opened or resolved. Behind a cursor only the latter.
pub(crate) async fn approvals(
    State(house): Shared,
    who: Who,
    headers: HeaderMap,
    mut query: Query,
) -> Answer<Response> {
    let after = cursor(&headers, &mut query)?;
    query.nothing_else()?;
    // The cursor first: what is decided while we look is told twice rather than not at all.
    let head = *house.head.borrow();
    let (after, waiting) = match after {
        Some(after) => (after, Vec::new()),
        None => {
            let house = Arc::clone(&house);
            let who = who.clone();
            let waiting = tokio::task::spawn_blocking(move || approvals::cards(&house, &who)).await;
            (head, waiting.map_err(|e| Refusal::new(Code::Internal, e.to_string()))??)
        }
    };
    Ok(follow(house, who, Wants::Approvals, after, waiting))
}

fn cursor(headers: &HeaderMap, query: &mut Query) -> Answer<Option<i64>> {
    let after = query.parse::<i64>("after", "the number of a decision")?;
    match headers.get("last-event-id") {
        None => Ok(after),
        Some(id) => match id.to_str().ok().and_then(|id| id.parse().ok()) {
            Some(id) => Ok(Some(id)),
            None => Err(Refusal::new(Code::BadRequest, "`Last-Event-ID` is the number of a decision").into()),
        },
    }
}

fn follow(house: Arc<House>, who: Who, wants: Wants, after: i64, first: Vec<Approval>) -> Response {
    let (send, receive) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut text = String::new();
        first.iter().for_each(|a| event(&mut text, after, a));
        text.push_str(": now\n\n");
        if send.send(Bytes::from(text)).await.is_ok() {
            let _ = run(&house, &Arc::new(who), wants, after, &send).await;
        }
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(super::events::Sent(receive))).into_response()
}

fn event(text: &mut String, n: i64, approval: &Approval) {
    if let Ok(json) = serde_json::to_string(approval) {
        let _ = write!(text, "id: {n}\nevent: approval\ndata: {json}\n\n");
    }
}

async fn run(
    house: &Arc<House>,
    who: &Arc<Who>,
    wants: Wants,
    mut after: i64,
    send: &mpsc::Sender<Bytes>,
) -> Result<(), Problem> {
    let (mut head, mut roster) = (house.head.clone(), house.roster.clone());
    let mut seen: HashMap<TaskId, bool> = HashMap::new();
    while who.still_holds(house) {
        head.borrow_and_update();
        roster.borrow_and_update();
        // Apart: reading a long history must not hold up those who ask.
        let (at, them, from) = (Arc::clone(house), Arc::clone(who), after);
        let read = tokio::task::spawn_blocking(move || read(&at, &them, wants, from, seen)).await;
        let (text, last, full, known) = read.map_err(|e| Refusal::new(Code::Internal, e.to_string()))??;
        (after, seen) = (last, known);
        if !text.is_empty() && send.send(Bytes::from(text)).await.is_err() {
            return Ok(());
        }
        if full {
            continue;
        }
        tokio::select! {
            changed = head.changed() => if changed.is_err() { return Ok(()) },
            changed = roster.changed() => if changed.is_err() { return Ok(()) },
            () = send.closed() => return Ok(()),
            () = tokio::time::sleep(HEARTBEAT) => {
                if send.send(Bytes::from_static(b": still here\n\n")).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// What was read: its events, the number of the last decision, whether there may be more, and which tasks may be seen.
type Read = (String, i64, bool, HashMap<TaskId, bool>);

fn read(
    house: &House,
    who: &Who,
    wants: Wants,
    mut after: i64,
    mut seen: HashMap<TaskId, bool>,
) -> Result<Read, Problem> {
    let batch = house.readers.with(|r| r.after(after, LINES))?;
    let full = batch.len() == LINES as usize;
    let mut text = String::new();
    if seen.len() > 10_000 {
        seen.clear();
    }
    for (n, task, line) in batch {
        after = n;
        let visible = match task {
            Some(task) => *match seen.entry(task) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(new) => {
                    let whose = house.readers.with(|r| r.whose(task))?;
                    new.insert(whose.is_some_and(|(p, s)| who.sees(house, p, s)))
                }
            },
            // About the house itself: for its owner, and of those for who may do everything.
            None => who.principal == PrincipalId::owner() && who.scopes.contains(&CredentialScope::Admin),
        };
        if visible {
            tell(&mut text, house, wants, n, task, &line)?;
        }
    }
    Ok((text, after, full, seen))
}

fn tell(
    text: &mut String,
    house: &House,
    wants: Wants,
    n: i64,
    task: Option<TaskId>,
    line: &str,
) -> Result<(), Problem> {
    match (wants, task) {
        (Wants::Decisions, task) => {
            let task = task.map_or_else(|| "null".to_owned(), |t| format!("\"{t}\""));
            let _ = write!(text, "id: {n}\ndata: {{\"task\":{task},\"decision\":{line}}}\n\n");
        }
        (Wants::Approvals, Some(task)) => {
            let Ok(record) = Record::parse(line) else { return Ok(()) };
            let about = matches!(
                record.what,
                What::Decision(
                    Decision::PermissionRequested { .. }
                        | Decision::PermissionGranted { .. }
                        | Decision::PermissionDenied { .. }
                        | Decision::Withdrawn { .. }
                )
            );
            if about && let Some(approval) = approvals::of_task(house, task)? {
                event(text, n, &approval);
            }
        }
        (Wants::Approvals, None) => {}
    }
    Ok(())
}
