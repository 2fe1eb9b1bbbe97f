//! `/events` and `/approvals/events`: the ledger as it grows, over server-sent events. The cursor is the number of a
//! decision; the bell says only that there is more.

use super::{Shared, body, extract::Params, problem::HttpResult};
use crate::{
    caller::Caller,
    ops::{ApiResult, Ops, answers},
};
use axum::{extract::State, http::HeaderMap, response::Response};
use bytes::Bytes;
use countersign_model::{
    Approval, CredentialScope, Decision, PrincipalId, Record, RecordContent, Refusal, RefusalCode, TaskId,
    api::LedgerQuery,
};
use std::{
    collections::{HashMap, hash_map::Entry},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{Semaphore, mpsc};

const HEARTBEAT: Duration = Duration::from_secs(15);
/// How many decisions are read at a time at most, and after how many bytes no more of them are put into one piece. A
/// piece waits for each reader that does not read, and nothing else does.
const LINES: u32 = 64;
const PIECE: usize = 4 * 1024;

/// How many readers are read for at once: each takes a connection to the ledger, and many would take all threads.
static READING: Semaphore = Semaphore::const_new(4);

#[derive(Clone, Copy, PartialEq)]
enum FeedSelection {
    /// Every decision, as its line.
    Decisions,
    /// Approvals, as they are after each decision about one.
    Approvals,
}

/// Every decision that the caller may see, from the beginning or behind a cursor.
pub(crate) async fn ledger(
    State(front): Shared,
    caller: Caller,
    headers: HeaderMap,
    Params(query): Params<LedgerQuery>,
) -> HttpResult<Response> {
    caller.may(CredentialScope::Observe)?;
    let after = cursor(&headers, query)?.unwrap_or(0);
    Ok(follow(Arc::clone(&front.ops), caller, FeedSelection::Decisions, after, Vec::new()))
}

/// Approvals: first those that wait, then every one that is opened or resolved. Behind a cursor only the latter.
pub(crate) async fn approvals(
    State(front): Shared,
    caller: Caller,
    headers: HeaderMap,
    Params(query): Params<LedgerQuery>,
) -> HttpResult<Response> {
    caller.may(CredentialScope::Observe)?;
    let ops = Arc::clone(&front.ops);
    // The cursor first: what is decided while we look is told twice rather than not at all.
    let head = *ops.head.borrow();
    let (after, waiting) = match cursor(&headers, query)? {
        Some(after) => (after, Vec::new()),
        None => {
            let (ops, caller) = (Arc::clone(&ops), caller.clone());
            (head, crate::blocking(move || answers::with_card(&ops, &caller)).await??)
        }
    };
    Ok(follow(ops, caller, FeedSelection::Approvals, after, waiting))
}

fn cursor(headers: &HeaderMap, query: LedgerQuery) -> Result<Option<i64>, Refusal> {
    match headers.get("last-event-id") {
        None => Ok(query.after),
        Some(id) => match id.to_str().ok().and_then(|id| id.parse().ok()) {
            Some(id) => Ok(Some(id)),
            None => Err(Refusal::new(RefusalCode::BadRequest, "`Last-Event-ID` is the number of a decision")),
        },
    }
}

fn follow(ops: Arc<Ops>, caller: Caller, wants: FeedSelection, after: i64, waiting: Vec<TaskId>) -> Response {
    let (send, receive) = mpsc::channel(1);
    let reader = Arc::new(FeedReader { ops, caller, wants });
    tokio::spawn(async move {
        if reader.tell_waiting(after, waiting, &send).await.is_ok() {
            let _ = reader.run(after, &send).await;
        }
    });
    body::events(receive)
}

/// An approval as an event. Without an id, a reader that breaks off behind it goes on from where it was before.
fn event(text: &mut String, id: Option<i64>, approval: &Approval) {
    if let Ok(json) = serde_json::to_string(approval) {
        let id = id.map(|n| format!("id: {n}\n")).unwrap_or_default();
        let _ = write!(text, "{id}event: approval\ndata: {json}\n\n");
    }
}

/// Whoever follows the ledger, and what of it they want.
struct FeedReader {
    ops: Arc<Ops>,
    caller: Caller,
    wants: FeedSelection,
}

/// Nobody reads any more, or nothing can be read.
struct FeedClosed;

impl<E: std::error::Error> From<E> for FeedClosed {
    fn from(_: E) -> Self {
        FeedClosed
    }
}

/// What was read: its events, the number of the last decision, whether there may be more, and how many decisions the
/// next piece may hold, going by this one.
struct FeedBatch {
    text: String,
    last: i64,
    more: bool,
    next: u32,
}

impl FeedReader {
    /// First those that wait, one by one: each is read when there is room for it. Only the last has an id: a reader that
    /// breaks off before it is told all of them again.
    async fn tell_waiting(
        self: &Arc<Self>,
        after: i64,
        all: Vec<TaskId>,
        send: &mpsc::Sender<Bytes>,
    ) -> Result<(), FeedClosed> {
        let last = all.last().copied();
        for task in all {
            let room = send.reserve().await?;
            let at = Arc::clone(self);
            let approval = tokio::task::spawn_blocking(move || answers::of_task(&at.ops, task)).await?;
            let mut text = String::new();
            let id = Some(after).filter(|_| last == Some(task));
            approval.map_err(|_| FeedClosed)?.iter().for_each(|approval| event(&mut text, id, approval));
            room.send(text.into());
        }
        Ok(send.send(Bytes::from_static(b": now\n\n")).await?)
    }

    async fn run(self: &Arc<Self>, mut after: i64, send: &mpsc::Sender<Bytes>) -> Result<(), FeedClosed> {
        let (mut head, mut roster) = (self.ops.head.clone(), self.ops.roster.clone());
        let mut lines = 4;
        loop {
            // Nothing is read before there is room for it: a reader that does not read costs no more than one piece.
            let room = send.reserve().await?;
            head.borrow_and_update();
            roster.borrow_and_update();
            // Apart: reading a long history must not hold up those who ask.
            let turn = READING.acquire().await?;
            let at = Arc::clone(self);
            let piece = tokio::task::spawn_blocking(move || at.read(after, lines)).await?.map_err(|_| FeedClosed)?;
            drop(turn);
            (after, lines) = (piece.last, piece.next);
            if !self.ops.still_admits(&self.caller) {
                return Ok(());
            }
            // A heartbeat needs the room, too.
            if piece.text.is_empty() {
                drop(room)
            } else {
                room.send(piece.text.into())
            }
            if piece.more {
                continue;
            }
            tokio::select! {
                changed = head.changed() => changed?,
                changed = roster.changed() => changed?,
                () = send.closed() => return Ok(()),
                () = tokio::time::sleep(HEARTBEAT) => send.send(Bytes::from_static(b": still here\n\n")).await?,
            }
        }
    }

    fn read(&self, after: i64, lines: u32) -> ApiResult<FeedBatch> {
        let Self { ops, caller, wants } = self;
        let batch = ops.records.ledger(|r| r.decisions_after(after, lines))?;
        let more = batch.len() == lines as usize;
        let mut piece = FeedBatch { text: String::new(), last: after, more, next: (2 * lines).min(LINES) };
        // Decisions about one task often stand together.
        let mut seen: HashMap<TaskId, bool> = HashMap::new();
        for (told, (n, task, line)) in (1..).zip(batch) {
            if piece.text.len() >= PIECE {
                (piece.more, piece.next) = (true, told);
                break;
            }
            piece.last = n;
            let visible = match task {
                Some(task) => *match seen.entry(task) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        let whose = ops.records.ledger(|r| r.task_owner(task))?;
                        new.insert(whose.is_some_and(|(p, s)| caller.sees(&ops.records.roster(), p, s)))
                    }
                },
                // About the house itself: for its owner, and of those for who may do everything.
                None => caller.principal == PrincipalId::owner() && caller.scopes.contains(&CredentialScope::Admin),
            };
            if visible {
                tell(&mut piece.text, ops, *wants, n, task, &line)?;
            }
        }
        piece.text.shrink_to_fit();
        Ok(piece)
    }
}

fn tell(text: &mut String, ops: &Ops, wants: FeedSelection, n: i64, task: Option<TaskId>, line: &str) -> ApiResult<()> {
    match (wants, task) {
        (FeedSelection::Decisions, task) => {
            let task = task.map_or_else(|| "null".to_owned(), |t| format!("\"{t}\""));
            let _ = write!(text, "id: {n}\ndata: {{\"task\":{task},\"decision\":{line}}}\n\n");
        }
        (FeedSelection::Approvals, Some(task)) => {
            let Ok(record) = Record::parse(line) else { return Ok(()) };
            let about = matches!(
                record.what,
                RecordContent::Decision(
                    Decision::PermissionRequested { .. }
                        | Decision::PermissionGranted { .. }
                        | Decision::PermissionDenied { .. }
                        | Decision::Withdrawn { .. }
                )
            );
            if about && let Some(approval) = answers::of_task(ops, task)? {
                event(text, Some(n), &approval);
            }
        }
        (FeedSelection::Approvals, None) => {}
    }
    Ok(())
}
