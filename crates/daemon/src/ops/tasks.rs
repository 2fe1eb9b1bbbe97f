//! Tasks: listing them, looking at one, waiting for its end.

use super::{ApiResult, Ops, intake::MAX_WAIT};
use crate::caller::{Caller, Visibility};
use bytes::Bytes;
use countersign_model::{
    Audience, CredentialScope, IdMint, Session, TaskId,
    api::{TaskPage, TaskQuery, WaitQuery},
};
use countersign_store::ledger::TaskFilter;
use std::{sync::Arc, time::Duration};

/// A list page, unless the caller names a size.
const PAGE: usize = 50;
const MAX_PAGE: usize = 500;
/// Ids hold their time in 48 bits; a later time finds nothing.
const MAX_TIME_MS: u64 = 1 << 49;

/// Tasks, newest first, each as [`show`] has it.
pub(crate) async fn list(ops: &Arc<Ops>, caller: &Caller, query: TaskQuery) -> ApiResult<TaskPage> {
    caller.may(CredentialScope::Observe)?;
    let limit = super::page_limit(query.limit.map(|n| n as usize), PAGE, MAX_PAGE)?;
    let (ops, caller) = (Arc::clone(ops), caller.clone());
    crate::blocking(move || page(&ops, &caller, query, limit)).await?
}

fn page(ops: &Ops, caller: &Caller, query: TaskQuery, limit: usize) -> ApiResult<TaskPage> {
    let roster = ops.records.roster();
    let filter = TaskFilter {
        status: query.status,
        before: query.cursor,
        since: query.since_ms.map(|ms| TaskId::mint(&mut IdMint::default(), ms.min(MAX_TIME_MS), 0)),
        verb: query.verb,
        sessions: match (&caller.sees, query.session) {
            // Nothing of another's session is told, not even that there is more.
            (Visibility::Session(own), named) => {
                let agent = roster.session(*own).and_then(|s| s.agent);
                let its = |s: &&Arc<Session>| s.id == *own || agent.is_some() && s.agent == agent;
                let all = roster.sessions().filter(its).map(|s| s.id.to_string());
                Some(all.filter(|id| named.as_ref().is_none_or(|named| named == id)).collect())
            }
            (Visibility::All | Visibility::Own, named) => named.map(|named| vec![named]),
        },
        principal: Some(caller.principal),
        text: query.text,
        limit: limit as u32 + 1,
    };
    let mut tasks = ops.records.ledger(|r| r.list_tasks(&filter))?;
    let more = tasks.len() > limit;
    tasks.truncate(limit);
    let all = tasks.len();
    let next = tasks.last().filter(|_| more).map(|t| t.task_id);
    tasks.retain(|t| caller.sees(&roster, t.request.principal, t.request.session_id));
    let next =
        next.filter(|_| caller.sees == Visibility::All && caller.audience == Audience::Personal || tasks.len() == all);
    // The ledger finds them and its own view stands in for a task whose journal does not read.
    let tasks = tasks.into_iter().map(|found| ops.records.listed_state(found.task_id).unwrap_or(found)).collect();
    Ok(TaskPage { tasks, next })
}

/// A task by its id or the beginning of it, as JSON; with `wait_ms`, once it has ended or time is up.
pub(crate) async fn show(ops: &Arc<Ops>, caller: &Caller, id: &str, query: WaitQuery) -> ApiResult<Bytes> {
    caller.may(CredentialScope::Observe)?;
    let task = ops.records.find(caller, id)?;
    ops.records.warm(task).await?;
    if let Some(ms) = query.wait_ms {
        ops.records.wait_for(task, Duration::from_millis(ms).min(MAX_WAIT)).await?;
    }
    ops.records.state_json(task)
}
