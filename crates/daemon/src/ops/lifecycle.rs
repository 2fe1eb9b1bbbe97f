//! The daemon itself: its state, stopping it, retention.

use super::{ApiResult, Ops, retention};
use crate::caller::Caller;
use crate::receipts::sealing::SealingState;
use countersign_model::{
    CredentialScope, DaemonState,
    api::{
        GcBody, GcReport, IndexAction, IndexRebuilt, IndexState, Lifecycle, Readiness, RebuildBody, StopBody,
        StopResponse, StopTarget, StopTasks,
    },
};
use countersign_redact::text_by_shape;
use std::sync::{Arc, atomic::Ordering};

pub(crate) async fn show(ops: &Ops, caller: &Caller) -> ApiResult<Lifecycle> {
    caller.require_scope(CredentialScope::Observe)?;
    let tcp = *ops.tcp.lock().await;
    Ok(Lifecycle {
        state: *ops.state.borrow(),
        reason: ops.reason.borrow().clone(),
        pid: std::process::id(),
        you: caller.kind,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        home: ops.home.path().to_path_buf(),
        home_id: ops.records.home_id(),
        machine: ops.users.is_system_service(),
        profile: ops.config.profile,
        tcp,
        degraded: ops.gate.degraded.clone(),
        reading_only: ops.reading_only.why().map(str::to_owned),
        receipts: ops.sealing.borrow().problem(),
        shutdown: ops.shutdown_steps.borrow().clone(),
        started_at: ops.started_at,
    })
}

/// Stops the daemon. Its tasks keep running unless they are to stop with it.
pub(crate) fn stop(ops: &Ops, caller: &Caller, body: StopBody) -> ApiResult<StopResponse> {
    caller.require_scope(CredentialScope::Admin)?;
    let StopBody { state: StopTarget::Halted, tasks } = body;
    if let Some(tasks) = tasks {
        ops.stop_tasks.store(tasks == StopTasks::Stop, Ordering::SeqCst);
    }
    ops.stop.notify_one();
    Ok(StopResponse { state: DaemonState::Draining, pid: std::process::id() })
}

/// Runs retention now, by the configured rule or by the limits in the request.
pub(crate) async fn gc(ops: &Arc<Ops>, caller: &Caller, body: GcBody) -> ApiResult<GcReport> {
    caller.require_scope(CredentialScope::Admin)?;
    let mut rule = ops.config.retention.clone();
    rule.days = body.older_than_days.unwrap_or(rule.days);
    rule.bytes = body.keep_bytes.unwrap_or(rule.bytes);
    Ok(retention::run_once(ops, rule, body.dry_run).await?)
}

/// Rebuilds the index over the decisions.
pub(crate) async fn rebuild(ops: &Ops, caller: &Caller, body: RebuildBody) -> ApiResult<IndexRebuilt> {
    caller.require_scope(CredentialScope::Admin)?;
    let RebuildBody { index: IndexAction::Rebuild } = body;
    ops.commit.rebuild_index().await?;
    Ok(IndexRebuilt { index: IndexState::Rebuilt })
}

/// The conditions for being ready, each with its problem. Public.
pub(crate) fn readiness(ops: &Ops) -> Readiness {
    let checks = checks(ops).map(|(name, why)| (name, why.map(|why| text_by_shape(&why).into_inner())));
    let failing = checks.iter().find_map(|(name, why)| Some(format!("{name}: {}", why.as_ref()?)));
    let status = |why: Option<String>| why.unwrap_or_else(|| "ok".to_owned());
    Readiness {
        ready: failing.is_none(),
        failing,
        checks: checks.into_iter().map(|(name, why)| (name.to_owned(), status(why))).collect(),
    }
}

fn checks(ops: &Ops) -> [(&'static str, Option<String>); 5] {
    let state = *ops.state.borrow();
    let ledger = match (ops.reading_only.why(), ops.records.read_ledger(|r| r.head())) {
        (Some(why), _) => Some(why.to_owned()),
        (None, Err(e)) => Some(e.to_string()),
        (None, Ok(_)) => None,
    };
    let looked_for = ops.registry.unfound_shims.load(Ordering::Relaxed);
    let recovery = match (state, looked_for) {
        (DaemonState::Boot | DaemonState::Recovering, _) => Some("not done yet".to_owned()),
        (_, 0) => None,
        (_, 1) => Some("the supervisor of 1 task does not answer yet".to_owned()),
        (_, n) => Some(format!("the supervisors of {n} tasks do not answer yet")),
    };
    let sockets = (!ops.socket.exists()).then(|| "the socket file is missing".to_owned());
    let keys = match &*ops.sealing.borrow() {
        SealingState::Works | SealingState::Stuck(_) => None,
        SealingState::Fails(why) => Some(format!("no receipts can be made: {why}")),
    };
    let serving = match state {
        DaemonState::Running => None,
        state => Some(format!("the daemon is {}", serde_json::json!(state).as_str().unwrap_or_default())),
    };
    [("ledger", ledger), ("recovery", recovery), ("sockets", sockets), ("keys", keys), ("state", serving)]
}
