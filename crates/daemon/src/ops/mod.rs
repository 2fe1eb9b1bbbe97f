//! The operations of the daemon, as plain typed functions: each takes [`Ops`] and the caller, and checks the caller's
//! scope itself. Surfaces only translate; they never decide and keep no state.

pub(crate) mod answers;
pub(crate) mod cast;
pub(crate) mod control;
pub(crate) mod grants;
pub(crate) mod intake;
pub(crate) mod lifecycle;
pub(crate) mod output;
mod pattern;
pub(crate) mod receipts;
pub(crate) mod recognition;
pub(crate) mod retention;
pub(crate) mod screen;
pub(crate) mod search;
pub(crate) mod sessions;
pub(crate) mod tasks;
pub(crate) mod tickets;
pub(crate) mod tokens;

use crate::caller::Caller;
use crate::{
    calls::CommitHandle,
    descriptors::DescriptorReserve,
    desk::DeskEvent,
    facts::GateSettings,
    ledger_state::ReadOnlyState,
    receipts::sealing::{SealerHandle, SealingState},
    records::Records,
    register_command::RegisterCommand,
    service,
    shims::{recovery, registry::ShimRegistry},
    users::{RunAs, Users},
};
use countersign_model::{
    DaemonState, HomeKey, Idempotency, PrincipalId, Refusal, RefusalCode, Roster, ShutdownStep, TaskId, TaskRefusal,
    TaskUser, Text, Timestamp,
};
use countersign_redact::text_by_shape;
use countersign_store::{Config, Home, TasksAtStop, clock};
use recognition::KnownPeople;
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tickets::Tickets;
use tokio::sync::{Notify, watch};

/// The result of an operation.
pub(crate) type ApiResult<T> = Result<T, TaskRefusal>;

/// Concurrent fact look-ups per principal; there are four times as many threads for them.
const MAX_LOOKUPS_PER_PRINCIPAL: usize = 8;

/// Everything that the operations need.
pub(crate) struct Ops {
    pub(crate) home: Home,
    pub(crate) key: HomeKey,
    pub(crate) config: Config,
    pub(crate) gate: Arc<GateSettings>,
    pub(crate) users: Users,
    /// The path of the socket that the daemon listens on.
    pub(crate) socket: PathBuf,
    pub(crate) records: Arc<Records>,
    pub(crate) registry: Arc<ShimRegistry>,
    pub(crate) commit: CommitHandle,
    /// Sessions and credentials, as of the last commit.
    pub(crate) roster: watch::Receiver<Arc<Roster>>,
    /// The number of decisions in the ledger.
    pub(crate) decision_count: watch::Receiver<i64>,
    /// Why the ledger cannot be used, if so: then nothing is decided, and the records can only be read.
    pub(crate) reading_only: Arc<ReadOnlyState>,
    /// The loopback address that the daemon listens on, if any.
    pub(crate) tcp: tokio::sync::Mutex<Option<std::net::SocketAddr>>,
    pub(crate) state: watch::Sender<DaemonState>,
    /// Held during retention: one run at a time.
    pub(crate) retention_lock: tokio::sync::Mutex<()>,
    /// Limits the concurrent fact look-ups of each principal.
    pub(crate) lookup_slots: std::sync::Mutex<HashMap<PrincipalId, Arc<tokio::sync::Semaphore>>>,
    /// The sealer, and its state.
    pub(crate) sealer: SealerHandle,
    pub(crate) sealing: watch::Receiver<SealingState>,
    /// Why the daemon is in its state, and the steps of its shutdown so far.
    pub(crate) reason: watch::Sender<Option<Text>>,
    pub(crate) shutdown_steps: watch::Sender<Vec<ShutdownStep>>,
    pub(crate) stop: Notify,
    pub(crate) stop_tasks: AtomicBool,
    pub(crate) started_at: Timestamp,
    pub(crate) known_people: KnownPeople,
    pub(crate) tickets: Tickets,
    pub(crate) descriptors: Arc<DescriptorReserve>,
}

/// Everything that [`Ops`] is made from.
pub(crate) struct OpsParts {
    pub(crate) home: Home,
    pub(crate) config: Config,
    pub(crate) gate: Arc<GateSettings>,
    pub(crate) users: Users,
    pub(crate) socket: PathBuf,
    pub(crate) records: Arc<Records>,
    pub(crate) registry: Arc<ShimRegistry>,
    pub(crate) commit: CommitHandle,
    pub(crate) roster: watch::Receiver<Arc<Roster>>,
    pub(crate) decision_count: watch::Receiver<i64>,
    pub(crate) reading_only: Arc<ReadOnlyState>,
    pub(crate) sealer: SealerHandle,
    pub(crate) sealing: watch::Receiver<SealingState>,
}

impl Ops {
    pub(crate) fn new(parts: OpsParts) -> Self {
        let OpsParts { home, config, gate, users, socket, records, registry, commit, roster, decision_count, .. } =
            parts;
        Self {
            key: gate.key.clone(),
            stop_tasks: AtomicBool::new(config.shutdown.tasks == TasksAtStop::Stop),
            home,
            config,
            gate,
            users,
            socket,
            records,
            registry,
            commit,
            roster,
            decision_count,
            reading_only: parts.reading_only,
            sealer: parts.sealer,
            sealing: parts.sealing,
            tcp: tokio::sync::Mutex::default(),
            state: watch::Sender::new(DaemonState::Boot),
            retention_lock: tokio::sync::Mutex::new(()),
            lookup_slots: std::sync::Mutex::default(),
            reason: watch::Sender::new(None),
            shutdown_steps: watch::Sender::new(Vec::new()),
            stop: Notify::new(),
            started_at: clock::now(),
            known_people: KnownPeople::default(),
            tickets: Tickets::default(),
            descriptors: DescriptorReserve::reserve(),
        }
    }

    /// Changes the daemon's state, reports it and records it.
    pub(crate) fn enter_state(&self, state: DaemonState, reason: Option<Text>) {
        service::notify_state(state);
        self.state.send_replace(state);
        self.reason.send_replace(reason.clone());
        let boot = (state == DaemonState::Boot).then(recovery::boot_id).flatten().map(|b| text_by_shape(&b));
        self.commit.send_event(DeskEvent::DaemonState { state, reason, boot });
    }

    /// Whether the caller of an open connection may still be served: its token may have been revoked or have expired.
    pub(crate) fn still_admits(&self, caller: &Caller) -> bool {
        caller.is_still_valid(&self.roster.borrow(), clock::now())
    }

    /// The user that a principal runs as.
    pub(crate) fn run_as(&self, principal: PrincipalId) -> Result<RunAs, Refusal> {
        let uid = self.roster.borrow().uid(principal);
        self.users.run_as(uid)
    }

    /// Waits for a slot to look up facts, so that no principal takes all of them.
    pub(crate) async fn acquire_lookup_slot(
        &self,
        principal: PrincipalId,
    ) -> Option<tokio::sync::OwnedSemaphorePermit> {
        let turns = {
            let mut turns = crate::lock(&self.lookup_slots);
            Arc::clone(
                turns
                    .entry(principal)
                    .or_insert_with(|| Arc::new(tokio::sync::Semaphore::new(MAX_LOOKUPS_PER_PRINCIPAL))),
            )
        };
        turns.acquire_owned().await.ok()
    }

    /// Adds a user of the machine as a principal, if it is none yet.
    pub(crate) async fn add_user(&self, user: TaskUser) -> Result<(), Refusal> {
        let command = RegisterCommand::AddUser { uid: user.uid, name: text_by_shape(&user.name) };
        self.commit.register(command).await.map(drop)
    }

    /// Waits for at most this time until every settled task has its receipt.
    pub(crate) async fn wait_for_receipts(&self, timeout: Duration) {
        let _ = tokio::time::timeout(timeout, self.sealer.barrier()).await;
    }

    /// Waits until the commit loop has processed all earlier calls; returns the tasks that run.
    pub(crate) async fn wait_for_commits(&self) -> Vec<TaskId> {
        self.commit.barrier().await.unwrap_or_default()
    }
}

/// An idempotency key, under which an operation is done once however often it is sent, with the body of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnceKey<'a> {
    pub(crate) key: &'a str,
    pub(crate) body: &'a [u8],
}

impl OnceKey<'_> {
    /// The digests in the record, for this caller and this operation.
    fn digest(self, ops: &Ops, caller: &Caller, operation: &str) -> Result<Idempotency, Refusal> {
        if self.key.is_empty() || self.key.len() > 255 {
            return Err(Refusal::new(RefusalCode::BadRequest, "`Idempotency-Key` must have 1 to 255 characters"));
        }
        let owner = caller.principal.to_string();
        let key = [owner.as_bytes(), operation.as_bytes(), self.key.as_bytes()];
        Ok(Idempotency {
            key: ops.key.digest("idempotency-key", &key),
            body: ops.key.digest("idempotency-body", &[self.body]),
        })
    }
}

/// The size of a list page: `usual` by default, `most` at most.
fn page_limit(wanted: Option<usize>, usual: usize, most: usize) -> Result<usize, Refusal> {
    let limit = wanted.unwrap_or(usual);
    if !(1..=most).contains(&limit) {
        return Err(Refusal::new(RefusalCode::BadRequest, format!("`limit` must be from 1 to {most}")));
    }
    Ok(limit)
}
