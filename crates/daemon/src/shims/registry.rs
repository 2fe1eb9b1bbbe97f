//! The registry of shims: a connection to each, notifications for readers of its task, and recovery when it ends.

use crate::{
    calls::CommitHandle,
    desk::DeskEvent,
    receipts::sealing::SealingState,
    shims::{learned::LearnedSecrets, recovery},
};
use countersign_model::{Digest, HomeKey, Refusal, RefusalCode, TaskId};
use countersign_shim::{
    ScreenSnapshot,
    wire::{self, FromShim, MessageReader, ToShim},
};
use countersign_store::Home;
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    collections::HashMap,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    sync::{mpsc, oneshot, watch},
};

pub(crate) struct ShimRegistry {
    pub(crate) home: Home,
    pub(crate) key: HomeKey,
    pub(crate) commit: CommitHandle,
    pub(crate) runtime: tokio::runtime::Handle,
    live: Mutex<HashMap<TaskId, Arc<LiveTask>>>,
    /// The shims of launched tasks: a process below one of them belongs to the task.
    shims: Mutex<HashMap<u32, TaskId>>,
    /// The previous daemon crashed.
    pub(crate) after_a_crash: bool,
    /// How many tasks have supervisors that recovery still looks for.
    pub(crate) unfound_shims: std::sync::atomic::AtomicUsize,
    /// Whether receipts are made: then the receipt is a task's last record.
    pub(crate) sealing: watch::Receiver<SealingState>,
    /// What the tasks of a session have shown.
    pub(crate) learned: LearnedSecrets,
}

/// A task that is not settled, for its followers.
pub(crate) struct LiveTask {
    notifications: watch::Sender<u64>,
    /// Whether the task has settled. Beside the notifications, so that a reader that waits for the end sleeps until then.
    settled: watch::Sender<bool>,
    control: Mutex<Option<mpsc::Sender<ShimRequest>>>,
}

/// A number that no notification had before, so that a new entry never looks like an earlier one.
fn next_notification() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// How long a shim may take to send its screen.
const SCREEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Why followers are notified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notification {
    More,
    Settled,
    /// Nothing more will come.
    Last,
}

/// A request to a shim, made from the number of its reply, and the receiver of the reply.
type ShimRequest = (Box<dyn FnOnce(u64) -> ToShim + Send>, oneshot::Sender<Result<ShimReply, Refusal>>);

/// The reply of a shim.
#[derive(Debug)]
pub(crate) enum ShimReply {
    /// The number of the frame that records it.
    Applied(u64),
    Screen(Box<ScreenAt>),
}

/// A screen, and its position in the stream.
#[derive(Debug)]
pub(crate) struct ScreenAt {
    pub(crate) screen: ScreenSnapshot,
    pub(crate) offset: u64,
    pub(crate) next_seq: u64,
}

/// The secret that a daemon must present to the shim of a task. Derived, so that the next daemon knows it too.
pub(crate) fn shim_secret(key: &HomeKey, task: TaskId) -> Digest {
    key.digest("shim", &[task.to_string().as_bytes()])
}

impl ShimRegistry {
    pub(crate) fn new(
        home: Home,
        key: HomeKey,
        commit: CommitHandle,
        runtime: tokio::runtime::Handle,
        after_a_crash: bool,
        sealing: watch::Receiver<SealingState>,
    ) -> Arc<Self> {
        let (live, shims) = (Mutex::default(), Mutex::default());
        Arc::new(Self {
            home,
            key,
            commit,
            runtime,
            live,
            shims,
            after_a_crash,
            unfound_shims: Default::default(),
            sealing,
            learned: LearnedSecrets::default(),
        })
    }

    fn live_task(&self, task: TaskId) -> Arc<LiveTask> {
        let mut live = crate::lock(&self.live);
        let fresh = || {
            let notifications = watch::Sender::new(next_notification());
            Arc::new(LiveTask { notifications, settled: watch::Sender::new(false), control: Mutex::default() })
        };
        Arc::clone(live.entry(task).or_insert_with(fresh))
    }

    /// Remembers a shim, before it starts anything.
    pub(crate) fn remember_shim(&self, task: TaskId, pid: u32) {
        crate::lock(&self.shims).insert(pid, task);
    }

    /// The task that this process supervises, if it is a shim of this daemon.
    pub(crate) fn task_of_shim(&self, pid: u32) -> Option<TaskId> {
        crate::lock(&self.shims).get(&pid).copied()
    }

    /// Notifies whenever there is more to read of this task. Read first, then wait: earlier notifications are not
    /// repeated.
    pub(crate) fn subscribe(&self, task: TaskId) -> watch::Receiver<u64> {
        self.live_task(task).notifications.subscribe()
    }

    /// The number of the last notification of an unsettled task. While it stays the same, so does the task.
    pub(crate) fn last_notification(&self, task: TaskId) -> Option<u64> {
        let live = crate::lock(&self.live);
        live.get(&task).map(|l| *l.notifications.borrow())
    }

    /// Waits until a task has settled.
    pub(crate) async fn wait_until_settled(&self, task: TaskId) {
        let settled = crate::lock(&self.live).get(&task).map(|live| live.settled.subscribe());
        if let Some(mut settled) = settled {
            // An error says that the entry was removed, and so that the task has settled.
            let _ = settled.wait_for(|settled| *settled).await;
        }
    }

    /// Whether a shim of this task is connected.
    pub(crate) fn has_shim(&self, task: TaskId) -> bool {
        let live = crate::lock(&self.live);
        live.get(&task).is_some_and(|l| l.control.lock().is_ok_and(|c| c.is_some()))
    }

    /// How many followers this task has.
    pub(crate) fn follower_count(&self, task: TaskId) -> usize {
        let live = crate::lock(&self.live);
        live.get(&task).map_or(0, |l| l.notifications.receiver_count())
    }

    pub(crate) fn notify(&self, task: TaskId, why: Notification) {
        let mut live = crate::lock(&self.live);
        if let Some(entry) = live.get(&task) {
            if why != Notification::More {
                entry.settled.send_replace(true);
            }
            entry.notifications.send_replace(next_notification());
        }
        if why == Notification::Settled {
            self.learned.end(task);
            if let Some(entry) = live.get(&task) {
                *crate::lock(&entry.control) = None;
            }
            crate::lock(&self.shims).retain(|_, t| *t != task);
        }
        if why == Notification::Last || why == Notification::Settled && !self.sealing.borrow().can_seal() {
            live.remove(&task);
        }
    }

    /// Kills the supervisor of a task. Recovery ends the processes that it leaves.
    pub(crate) fn kill_shim(&self, task: TaskId) {
        use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
        let shims = crate::lock(&self.shims);
        let pid = shims.iter().find(|(_, t)| **t == task).and_then(|(pid, _)| Pid::from_raw(i32::try_from(*pid).ok()?));
        // Pinned before it is checked: the pid may have been reused.
        let pinned = pid.and_then(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)));
        if let Some((pid, pin)) = pinned
            && countersign_shim::tree::is_shim(pid.as_raw_nonzero().get().unsigned_abs())
        {
            let _ = pidfd_send_signal(&pin, Signal::KILL);
        }
    }

    /// Removes the entry that a reader of a settled task may have created.
    pub(crate) fn forget_task(&self, task: TaskId) {
        let mut live = crate::lock(&self.live);
        let connected = live.get(&task).is_some_and(|l| l.control.lock().is_ok_and(|c| c.is_some()));
        if !connected {
            live.remove(&task);
        }
    }

    /// Sends a request to the shim of a task; returns the number of the frame that records it.
    pub(crate) async fn apply(
        &self,
        task: TaskId,
        build_request: impl FnOnce(u64) -> ToShim + Send + 'static,
    ) -> Result<u64, Refusal> {
        match self.send_request(task, build_request).await?.await.map_err(|_| unreachable_refusal())?? {
            ShimReply::Applied(seq) => Ok(seq),
            ShimReply::Screen(_) => Err(unreachable_refusal()),
        }
    }

    /// The screen of a running task.
    pub(crate) async fn screen(&self, task: TaskId) -> Result<Box<ScreenAt>, Refusal> {
        let answer = self.send_request(task, |re| ToShim::Screen { re }).await?;
        let answer = tokio::time::timeout(SCREEN_TIMEOUT, answer).await.map_err(|_| unreachable_refusal())?;
        match answer.map_err(|_| unreachable_refusal())?? {
            ShimReply::Screen(screen) => Ok(screen),
            ShimReply::Applied(_) => Err(unreachable_refusal()),
        }
    }

    /// Sends a request to a shim. Requests of one sender reach the shim in order; the caller awaits the reply
    /// separately.
    pub(crate) async fn send_request(
        &self,
        task: TaskId,
        build_request: impl FnOnce(u64) -> ToShim + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<ShimReply, Refusal>>, Refusal> {
        let live = crate::lock(&self.live).get(&task).cloned();
        let sender = live.and_then(|l| crate::lock(&l.control).clone()).ok_or_else(unreachable_refusal)?;
        let (reply, answer) = oneshot::channel();
        sender.send((Box::new(build_request), reply)).await.map_err(|_| unreachable_refusal())?;
        Ok(answer)
    }

    /// Takes over the connection to a shim, started by this daemon or by an earlier one.
    pub(crate) fn adopt_shim(self: &Arc<Self>, task: TaskId, pid: u32, channel: StdStream) {
        self.remember_shim(task, pid);
        let (control, operations) = mpsc::channel(16);
        *crate::lock(&self.live_task(task).control) = Some(control);
        // A pidfd: the pid may be reused.
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let registry = Arc::clone(self);
        self.runtime.spawn(async move {
            let closed = registry.converse(task, channel, operations).await;
            if !closed {
                wait_for_exit(process).await;
                recovery::settle_from_disk(&registry, task, Some(pid));
            }
        });
    }

    /// Exchanges messages with a shim until it closes the connection. Returns whether it reported the end of its task.
    async fn converse(&self, task: TaskId, channel: StdStream, mut operations: mpsc::Receiver<ShimRequest>) -> bool {
        let stream = channel.set_nonblocking(true).and_then(|()| UnixStream::from_std(channel));
        let Ok(mut stream) = stream else { return false };
        let mut asked: HashMap<u64, oneshot::Sender<Result<ShimReply, Refusal>>> = HashMap::new();
        let (mut inbox, mut buf, mut next, mut closed) = (MessageReader::default(), [0; 4096], 0, false);
        loop {
            tokio::select! {
                read = stream.read(&mut buf) => match read {
                    Ok(0) | Err(_) => return closed,
                    Ok(n) => inbox.feed(&buf[..n]),
                },
                Some((build_request, reply)) = operations.recv() => {
                    next += 1;
                    asked.insert(next, reply);
                    let sent = match wire::encode(&build_request(next)) {
                        Ok(bytes) => stream.write_all(&bytes).await,
                        Err(e) => Err(e),
                    };
                    if sent.is_err() {
                        asked.remove(&next);
                    }
                }
            }
            loop {
                match inbox.next_message::<FromShim>() {
                    Ok(None) => break,
                    Ok(Some(FromShim::More)) => self.notify(task, Notification::More),
                    Ok(Some(FromShim::Learned { secrets })) => self.learned.learn(task, secrets),
                    Ok(Some(FromShim::Applied { re, seq })) => {
                        // Notified first: the caller can read the change as soon as it has the reply.
                        self.notify(task, Notification::More);
                        asked.remove(&re).map(|reply| reply.send(Ok(ShimReply::Applied(seq))));
                    }
                    Ok(Some(FromShim::Screen { re, screen, offset, next_seq })) => {
                        let now = Box::new(ScreenAt { screen: *screen, offset, next_seq });
                        asked.remove(&re).map(|reply| reply.send(Ok(ShimReply::Screen(now))));
                    }
                    Ok(Some(FromShim::Refused { re, refusal })) => {
                        asked.remove(&re).map(|reply| reply.send(Err(refusal)));
                    }
                    Ok(Some(FromShim::Closed(closing))) => {
                        closed = true;
                        self.send_event(DeskEvent::Closed { task, closing, recovered: false });
                    }
                    Ok(Some(FromShim::NotStarted { error, code })) => {
                        closed = true;
                        self.send_event(DeskEvent::NotStarted { task, error, code, recovered: false });
                    }
                    Ok(Some(FromShim::Hello { .. })) => {}
                    Err(e) => {
                        crate::log!("{task}: its supervisor sent an invalid message: {e}");
                        return closed;
                    }
                }
            }
        }
    }

    pub(crate) fn send_event(&self, event: DeskEvent) {
        self.commit.send_event(event);
    }
}

fn unreachable_refusal() -> Refusal {
    Refusal::new(RefusalCode::ShimUnreachable, "the supervisor of the task cannot be reached")
        .hint("the task keeps running and recording; try again, or run `csn doctor`")
}

/// Waits until a process has ended. It has closed the connection already, so this takes moments.
async fn wait_for_exit(process: Option<OwnedFd>) {
    let waited = crate::blocking(move || {
        if let Some(process) = process {
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], None);
        }
    });
    let _ = waited.await;
}
