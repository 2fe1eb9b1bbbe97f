//! Keeping shims: a conversation with each, a bell for those who read along, and what to do when one ends.

use crate::{calls::CommitHandle, desk::DeskEvent, receipts::sealing::SealingState, shims::recovery};
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
    /// The shims of launched tasks: what is below one of them is a task's.
    shims: Mutex<HashMap<u32, TaskId>>,
    /// The daemon before this one ended without a word.
    pub(crate) after_a_crash: bool,
    /// Tasks whose supervisors are still looked for.
    pub(crate) looked_for: std::sync::atomic::AtomicUsize,
    /// Whether receipts are made out: then that is what comes last.
    pub(crate) sealing: watch::Receiver<SealingState>,
}

/// A task that is not settled, as far as those who wait for it are concerned.
pub(crate) struct LiveTask {
    notifications: watch::Sender<u64>,
    control: Mutex<Option<mpsc::Sender<ShimRequest>>>,
}

/// No two rings are the same, of whatever bell: an entry that is made anew does not look like the one before it.
fn next_ring() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// How long a shim may take to show its screen.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a bell is rung for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notification {
    More,
    Settled,
    /// Nothing more will come.
    Last,
}

/// What the bell of a task says when it has settled.
pub(crate) const SETTLED: u64 = u64::MAX;

/// What a shim is asked, given the number that its answer will bear, and where that goes.
type ShimRequest = (Box<dyn FnOnce(u64) -> ToShim + Send>, oneshot::Sender<Result<ShimReply, Refusal>>);

/// What a shim says when it has done what it was asked.
#[derive(Debug)]
pub(crate) enum ShimReply {
    /// The number of the frame in which it stands.
    Applied(u64),
    Screen(Box<ScreenAt>),
}

/// A screen, and where in the stream it was drawn.
#[derive(Debug)]
pub(crate) struct ScreenAt {
    pub(crate) screen: ScreenSnapshot,
    pub(crate) offset: u64,
    pub(crate) next_seq: u64,
}

/// What a daemon must say to the shim of a task. Derived, so that the next daemon knows it too.
pub(crate) fn secret(key: &HomeKey, task: TaskId) -> Digest {
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
            looked_for: Default::default(),
            sealing,
        })
    }

    fn live(&self, task: TaskId) -> Arc<LiveTask> {
        let mut live = crate::lock(&self.live);
        let fresh = || Arc::new(LiveTask { notifications: watch::Sender::new(next_ring()), control: Mutex::default() });
        Arc::clone(live.entry(task).or_insert_with(fresh))
    }

    /// Remembers a shim, before it starts anything.
    pub(crate) fn remember_shim(&self, task: TaskId, pid: u32) {
        crate::lock(&self.shims).insert(pid, task);
    }

    /// The task that this process supervises, if it is a shim of ours.
    pub(crate) fn task_of_shim(&self, pid: u32) -> Option<TaskId> {
        crate::lock(&self.shims).get(&pid).copied()
    }

    /// Rings whenever there is more to read of this task. Look first, then wait: what came before is there already.
    pub(crate) fn subscribe(&self, task: TaskId) -> watch::Receiver<u64> {
        self.live(task).notifications.subscribe()
    }

    /// The last ring of an unsettled task's bell: as long as this stays the same, so does the task.
    pub(crate) fn rings(&self, task: TaskId) -> Option<u64> {
        let live = crate::lock(&self.live);
        live.get(&task).map(|l| *l.notifications.borrow())
    }

    /// Whether a shim of this task is being talked to.
    pub(crate) fn has_shim(&self, task: TaskId) -> bool {
        let live = crate::lock(&self.live);
        live.get(&task).is_some_and(|l| l.control.lock().is_ok_and(|c| c.is_some()))
    }

    /// How many wait for the bell of this task.
    pub(crate) fn listeners(&self, task: TaskId) -> usize {
        let live = crate::lock(&self.live);
        live.get(&task).map_or(0, |l| l.notifications.receiver_count())
    }

    pub(crate) fn notify(&self, task: TaskId, why: Notification) {
        let mut live = crate::lock(&self.live);
        if let Some(entry) = live.get(&task) {
            entry.notifications.send_replace(if why == Notification::More { next_ring() } else { SETTLED });
        }
        if why == Notification::Settled {
            if let Some(entry) = live.get(&task) {
                *crate::lock(&entry.control) = None;
            }
            crate::lock(&self.shims).retain(|_, t| *t != task);
        }
        if why == Notification::Last || why == Notification::Settled && !self.sealing.borrow().works() {
            live.remove(&task);
        }
    }

    /// Ends the supervisor of a task. What it leaves behind is found and ended like that of any that has died.
    pub(crate) fn kill_shim(&self, task: TaskId) {
        use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
        let shims = crate::lock(&self.shims);
        let pid = shims.iter().find(|(_, t)| **t == task).and_then(|(pid, _)| Pid::from_raw(i32::try_from(*pid).ok()?));
        // Pinned before it is looked at: its number may have become another's.
        let pinned = pid.and_then(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)));
        if let Some((pid, pin)) = pinned
            && countersign_shim::tree::is_shim(pid.as_raw_nonzero().get().unsigned_abs())
        {
            let _ = pidfd_send_signal(&pin, Signal::KILL);
        }
    }

    /// Drops the entry that a reader of a settled task may have made.
    pub(crate) fn unlist(&self, task: TaskId) {
        let mut live = crate::lock(&self.live);
        let kept = live.get(&task).is_some_and(|l| l.control.lock().is_ok_and(|c| c.is_some()));
        if !kept {
            live.remove(&task);
        }
    }

    /// Asks the shim of a task; the number of the frame in which it stands.
    pub(crate) async fn operate(
        &self,
        task: TaskId,
        wish: impl FnOnce(u64) -> ToShim + Send + 'static,
    ) -> Result<u64, Refusal> {
        match self.request(task, wish).await?.await.map_err(|_| unreachable())?? {
            ShimReply::Applied(seq) => Ok(seq),
            ShimReply::Screen(_) => Err(unreachable()),
        }
    }

    /// What the terminal of a running task shows.
    pub(crate) async fn screen(&self, task: TaskId) -> Result<Box<ScreenAt>, Refusal> {
        let answer = self.request(task, |re| ToShim::Screen { re }).await?;
        let answer = tokio::time::timeout(PATIENCE, answer).await.map_err(|_| unreachable())?;
        match answer.map_err(|_| unreachable())?? {
            ShimReply::Screen(screen) => Ok(screen),
            ShimReply::Applied(_) => Err(unreachable()),
        }
    }

    /// Sends a wish. Wishes of one sender reach the shim in the order in which they were sent; the answer is waited
    /// for apart.
    pub(crate) async fn request(
        &self,
        task: TaskId,
        wish: impl FnOnce(u64) -> ToShim + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<ShimReply, Refusal>>, Refusal> {
        let live = crate::lock(&self.live).get(&task).cloned();
        let sender = live.and_then(|l| crate::lock(&l.control).clone()).ok_or_else(unreachable)?;
        let (reply, answer) = oneshot::channel();
        sender.send((Box::new(wish), reply)).await.map_err(|_| unreachable())?;
        Ok(answer)
    }

    /// Looks after a shim: one of this daemon's, or one that an earlier daemon left.
    pub(crate) fn adopt_shim(self: &Arc<Self>, task: TaskId, pid: u32, channel: StdStream) {
        self.remember_shim(task, pid);
        let (control, operations) = mpsc::channel(16);
        *crate::lock(&self.live(task).control) = Some(control);
        // By descriptor: a pid that is used again is another process.
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let registry = Arc::clone(self);
        self.runtime.spawn(async move {
            let closed = registry.converse(task, channel, operations).await;
            if !closed {
                gone(process).await;
                recovery::settle_from_disk(&registry, task, Some(pid));
            }
        });
    }

    /// Talks with a shim until it hangs up. Whether it said how its task ended.
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
                Some((wish, reply)) = operations.recv() => {
                    next += 1;
                    asked.insert(next, reply);
                    let sent = match wire::encode(&wish(next)) {
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
                    Ok(Some(FromShim::Applied { re, seq })) => {
                        // Whoever is told can look at once, and see it.
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
                        crate::log!("{task}: its shim spoke out of turn: {e}");
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

fn unreachable() -> Refusal {
    Refusal::new(RefusalCode::ShimUnreachable, "the task's supervisor cannot be reached")
        .hint("it goes on recording; try again, or see `csn doctor`")
}

/// Waits until a process has ended. It has hung up already, so this is a matter of moments.
async fn gone(process: Option<OwnedFd>) {
    let waited = crate::blocking(move || {
        if let Some(process) = process {
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], None);
        }
    });
    let _ = waited.await;
}
