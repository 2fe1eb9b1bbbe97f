//! Tasks: listing them, showing one, waiting for its end.

use super::{ApiResult, Ops, intake::MAX_WAIT};
use crate::caller::{Caller, Visibility};
use bytes::Bytes;
use countersign_model::{
    Audience, CredentialScope, IdMint, Session, TaskId,
    api::{TaskPage, TaskQuery, WaitQuery},
};
use countersign_store::ledger::TaskFilter;
use std::{sync::Arc, time::Duration};

/// The default size of a list page.
const DEFAULT_PAGE_ITEMS: usize = 50;
const MAX_PAGE_ITEMS: usize = 500;
/// Task ids hold their time in 48 bits; a later time finds nothing.
const MAX_TIME_MS: u64 = 1 << 49;

/// Tasks, newest first, each as in [`show`].
pub(crate) async fn list(ops: &Arc<Ops>, caller: &Caller, query: TaskQuery) -> ApiResult<TaskPage> {
    caller.require_scope(CredentialScope::Observe)?;
    let limit = super::page_limit(query.limit.map(|n| n as usize), DEFAULT_PAGE_ITEMS, MAX_PAGE_ITEMS)?;
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
        sessions: match (&caller.visibility, query.session) {
            // Nothing about another session is disclosed, not even that it has tasks.
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
    let mut tasks = ops.records.read_ledger(|r| r.list_tasks(&filter))?;
    let more = tasks.len() > limit;
    tasks.truncate(limit);
    let all = tasks.len();
    let next = tasks.last().filter(|_| more).map(|t| t.task_id);
    tasks.retain(|t| caller.can_see(&roster, t.request.principal, t.request.session_id));
    let next = next.filter(|_| {
        caller.visibility == Visibility::All && caller.audience == Audience::Personal || tasks.len() == all
    });
    // If the journal of a task cannot be read, its row in the ledger stands in.
    let tasks = tasks.into_iter().map(|found| ops.records.listed_state(found.task_id).unwrap_or(found)).collect();
    Ok(TaskPage { tasks, next })
}

/// A task by its id or a prefix, as JSON; with `wait_ms`, once it has ended or the time is up.
pub(crate) async fn show(ops: &Arc<Ops>, caller: &Caller, id: &str, query: WaitQuery) -> ApiResult<Bytes> {
    caller.require_scope(CredentialScope::Observe)?;
    let task = ops.records.find_task(caller, id)?;
    ops.records.load_task(task).await?;
    match query.wait_ms {
        Some(ms) => drop(ops.records.wait_for(task, Duration::from_millis(ms).min(MAX_WAIT)).await?),
        None => ops.records.pace(task).await,
    }
    ops.records.state_json(task)
}
