//! `/events` and `/approvals/events`: the ledger as it grows, as server-sent events. The cursor is the number of a
//! decision; notifications only say that there is more.

use super::{SharedState, body, extract::Params, problem::HttpResult};
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

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// How many decisions are read at a time at most, and at how many bytes a batch is complete. Each reader that does not
/// read holds one batch, and nothing more.
const MAX_BATCH_DECISIONS: u32 = 64;
const BATCH_BYTES: usize = 4 * 1024;

/// How many readers read at the same time: each takes a connection to the ledger, and many would take all threads.
static READ_SLOTS: Semaphore = Semaphore::const_new(4);

#[derive(Clone, Copy, PartialEq)]
enum FeedSelection {
    /// Every decision, as its line.
    Decisions,
    /// Approvals, each with its state after a decision about it.
    Approvals,
}

/// Every decision that the caller may see, from the beginning or after a cursor.
pub(crate) async fn ledger(
    State(front): SharedState,
    caller: Caller,
    headers: HeaderMap,
    Params(query): Params<LedgerQuery>,
) -> HttpResult<Response> {
    caller.require_scope(CredentialScope::Observe)?;
    let after = parse_cursor(&headers, query)?.unwrap_or(0);
    Ok(follow_ledger(Arc::clone(&front.ops), caller, FeedSelection::Decisions, after, Vec::new()))
}

/// Approvals: first the pending ones, then every one that is opened or resolved. After a cursor only the latter.
pub(crate) async fn approvals(
    State(front): SharedState,
    caller: Caller,
    headers: HeaderMap,
    Params(query): Params<LedgerQuery>,
) -> HttpResult<Response> {
    caller.require_scope(CredentialScope::Observe)?;
    let ops = Arc::clone(&front.ops);
    // The cursor first: a decision made meanwhile is sent twice rather than never.
    let decisions = *ops.decision_count.borrow();
    let (after, waiting) = match parse_cursor(&headers, query)? {
        Some(after) => (after, Vec::new()),
        None => {
            let (ops, caller) = (Arc::clone(&ops), caller.clone());
            (decisions, crate::blocking(move || answers::pending_with_card(&ops, &caller)).await??)
        }
    };
    Ok(follow_ledger(ops, caller, FeedSelection::Approvals, after, waiting))
}

fn parse_cursor(headers: &HeaderMap, query: LedgerQuery) -> Result<Option<i64>, Refusal> {
    match headers.get("last-event-id") {
        None => Ok(query.after),
        Some(id) => match id.to_str().ok().and_then(|id| id.parse().ok()) {
            Some(id) => Ok(Some(id)),
            None => Err(Refusal::new(RefusalCode::BadRequest, "`Last-Event-ID` must be the number of a decision")),
        },
    }
}

fn follow_ledger(ops: Arc<Ops>, caller: Caller, wants: FeedSelection, after: i64, waiting: Vec<TaskId>) -> Response {
    let (send, receive) = mpsc::channel(1);
    let reader = Arc::new(FeedReader { ops, caller, selection: wants });
    tokio::spawn(async move {
        if reader.send_pending(after, waiting, &send).await.is_ok() {
            let _ = reader.run(after, &send).await;
        }
    });
    body::event_response(receive)
}

/// An approval as an event. Without an id, a reader that disconnects after it resumes from its earlier cursor.
fn write_approval(text: &mut String, id: Option<i64>, approval: &Approval) {
    if let Ok(json) = serde_json::to_string(approval) {
        let id = id.map(|n| format!("id: {n}\n")).unwrap_or_default();
        let _ = write!(text, "{id}event: approval\ndata: {json}\n\n");
    }
}

/// A reader of the ledger.
struct FeedReader {
    ops: Arc<Ops>,
    caller: Caller,
    selection: FeedSelection,
}

/// The reader is gone, or the ledger cannot be read.
struct FeedClosed;

impl<E: std::error::Error> From<E> for FeedClosed {
    fn from(_: E) -> Self {
        FeedClosed
    }
}

/// A batch: its events, the number of the last decision, whether there may be more, and how many decisions the next
/// batch may hold, judged by the size of this one.
struct FeedBatch {
    text: String,
    last: i64,
    more: bool,
    next: u32,
}

impl FeedReader {
    /// Sends the pending approvals one by one; each is read when there is room for it. Only the last has an id: a
    /// reader that disconnects before it gets all of them again.
    async fn send_pending(
        self: &Arc<Self>,
        after: i64,
        all: Vec<TaskId>,
        send: &mpsc::Sender<Bytes>,
    ) -> Result<(), FeedClosed> {
        let last = all.last().copied();
        for task in all {
            let room = send.reserve().await?;
            let at = Arc::clone(self);
            let approval = tokio::task::spawn_blocking(move || answers::approval_of_task(&at.ops, task)).await?;
            let mut text = String::new();
            let id = Some(after).filter(|_| last == Some(task));
            if let Some(approval) = approval.map_err(|_| FeedClosed)? {
                write_approval(&mut text, id, &approval);
            }
            room.send(text.into());
        }
        Ok(send.send(Bytes::from_static(b": now\n\n")).await?)
    }

    async fn run(self: &Arc<Self>, mut after: i64, send: &mpsc::Sender<Bytes>) -> Result<(), FeedClosed> {
        let (mut decisions, mut roster) = (self.ops.decision_count.clone(), self.ops.roster.clone());
        let mut lines = 4;
        loop {
            // Reads only when there is room: a reader that does not read holds one batch.
            let room = send.reserve().await?;
            decisions.borrow_and_update();
            roster.borrow_and_update();
            // On its own thread: reading a long history must not delay requests.
            let turn = READ_SLOTS.acquire().await?;
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
                changed = decisions.changed() => changed?,
                changed = roster.changed() => changed?,
                () = send.closed() => return Ok(()),
                () = tokio::time::sleep(HEARTBEAT_INTERVAL) => send.send(Bytes::from_static(b": still here\n\n")).await?,
            }
        }
    }

    fn read(&self, after: i64, lines: u32) -> ApiResult<FeedBatch> {
        let Self { ops, caller, selection: wants } = self;
        let batch = ops.records.read_ledger(|r| r.decisions_after(after, lines))?;
        let more = batch.len() == lines as usize;
        let mut piece =
            FeedBatch { text: String::new(), last: after, more, next: (2 * lines).min(MAX_BATCH_DECISIONS) };
        // Decisions about one task are often consecutive.
        let mut seen: HashMap<TaskId, bool> = HashMap::new();
        for (sent, (n, task, line)) in (1..).zip(batch) {
            if piece.text.len() >= BATCH_BYTES {
                (piece.more, piece.next) = (true, sent);
                break;
            }
            piece.last = n;
            let visible = match task {
                Some(task) => *match seen.entry(task) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        let owner = ops.records.read_ledger(|r| r.task_owner(task))?;
                        new.insert(owner.is_some_and(|(p, s)| caller.can_see(&ops.records.roster(), p, s)))
                    }
                },
                // About the daemon itself: for its owner, with the scope `admin`.
                None => caller.principal == PrincipalId::owner() && caller.scopes.contains(&CredentialScope::Admin),
            };
            if visible {
                write_decision(&mut piece.text, ops, *wants, n, task, &line)?;
            }
        }
        piece.text.shrink_to_fit();
        Ok(piece)
    }
}

fn write_decision(
    text: &mut String,
    ops: &Ops,
    wants: FeedSelection,
    n: i64,
    task: Option<TaskId>,
    line: &str,
) -> ApiResult<()> {
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
            if about && let Some(approval) = answers::approval_of_task(ops, task)? {
                write_approval(text, Some(n), &approval);
            }
        }
        (FeedSelection::Approvals, None) => {}
    }
    Ok(())
}
