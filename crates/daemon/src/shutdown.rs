//! Going down in order: a row of steps, each with a deadline, each written down.
//!
//! A step that does not end in time does not hold up the next one: what it left undone the next daemon finds. A second
//! signal shortens the deadlines, a third ends the process at once.

use crate::{desk::DeskEvent, ops::Ops, service};
use countersign_model::{DaemonState, KilledWhy, RefusalCode, ShutdownStep, StopStep, TaskId, Text};
use countersign_redact::text_by_shape;
use countersign_shim::wire::ToShim;
use countersign_store::clock;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

/// What is left of every deadline after a second signal.
const HURRIED: Duration = Duration::from_millis(500);
/// How long a supervisor may not answer before it is ended, and how often it is tried.
const UNHEARD: Duration = Duration::from_secs(6);
const AGAIN: Duration = Duration::from_millis(100);
/// Once the ledger has been told to close.
const LAST: Duration = Duration::from_secs(5);

const fn deadline(step: StopStep) -> Duration {
    Duration::from_secs(match step {
        StopStep::Admission | StopStep::Intakes => 2,
        // The ladder has five seconds between asking and ending.
        StopStep::Tasks => 20,
        StopStep::Receipts => 10,
        StopStep::Ledger => 5,
        StopStep::Surfaces => 1,
    })
}

/// The signals that end a house.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        let (term, int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { term, int, hup: signal(SignalKind::hangup())? })
    }

    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
            _ = self.hup.recv() => "SIGHUP",
        }
    }
}

/// The ordered stop. `close` ends the surfaces.
pub(crate) async fn halt(
    ops: &Arc<Ops>,
    reason: &'static str,
    signals: Signals,
    close: impl Future<Output = ()> + Send,
) {
    service::stopping();
    ops.enter(DaemonState::Draining, Some(Text::from_static(reason)));
    let down = Down { ops, hurry: hurrying(signals) };
    down.step(StopStep::Admission, async {
        // Whoever was let in before this has been answered by the time that the office comes to it.
        ops.settled_so_far().await;
        None
    })
    .await;
    down.step(StopStep::Intakes, async {
        let n = ops.tickets.take_back(ops).await;
        (n > 0).then(|| format!("{n} tickets taken back"))
    })
    .await;
    down.step(StopStep::Tasks, async {
        match ops.stop_tasks.load(Ordering::SeqCst) {
            true => Some(stop_all(ops).await),
            false => {
                let running = ops.settled_so_far().await.len();
                Some(format!("{running} kept running"))
            }
        }
    })
    .await;
    ops.enter(DaemonState::Cleanup, None);
    down.step(StopStep::Receipts, async {
        match ops.sealer.barrier().await {
            Ok(()) => None,
            Err(_) => Some("receipts are not made out by this house".to_owned()),
        }
    })
    .await;
    down.step(StopStep::Ledger, async {
        match ops.commit.checkpoint().await {
            Ok(true) => None,
            Ok(false) => Some("somebody still reads: what is new stays in the log beside it".to_owned()),
            Err(refusal) if refusal.code == RefusalCode::Draining => {
                Some("nobody keeps the ledger any more".to_owned())
            }
            Err(refusal) => Some(refusal.message),
        }
    })
    .await;
    down.step(StopStep::Surfaces, async {
        close.await;
        None
    })
    .await;
    ops.enter(DaemonState::Halted, None);
    if tokio::time::timeout(LAST, ops.commit.halt()).await.is_err() {
        // All that was decided is on the disk; what hangs is tidying up.
        crate::log!("the ledger does not close; the next daemon goes on from what it holds");
        std::process::exit(0);
    }
}

/// Says when to hurry; at the third signal there is nothing left to say.
fn hurrying(mut signals: Signals) -> watch::Receiver<bool> {
    let (send, hurry) = watch::channel(false);
    tokio::spawn(async move {
        let again = signals.next().await;
        crate::log!("{again} again: deadlines are shortened");
        send.send_replace(true);
        let third = signals.next().await;
        crate::log!("{third} once more: ending at once");
        std::process::exit(1);
    });
    hurry
}

struct Down<'a> {
    ops: &'a Arc<Ops>,
    hurry: watch::Receiver<bool>,
}

impl Down<'_> {
    /// One step, as far as it comes within its time.
    async fn step(&self, step: StopStep, work: impl Future<Output = Option<String>>) {
        let (began, allowed) = (clock::steady(), deadline(step));
        let mut hurry = self.hurry.clone();
        let late = async {
            let hurried = async {
                let _ = hurry.wait_for(|h| *h).await;
                tokio::time::sleep(HURRIED).await;
            };
            tokio::select! {
                () = tokio::time::sleep(allowed) => {}
                () = hurried => {}
            }
        };
        let says = tokio::select! {
            says = work => Ok(says),
            () = late => Err(()),
        };
        let took_ms = u64::try_from(clock::steady().duration_since(began).as_millis()).unwrap_or(u64::MAX);
        let deadline_ms = u64::try_from(allowed.as_millis()).unwrap_or(u64::MAX);
        let (done, says) = match says {
            Ok(says) => (true, says),
            Err(()) => (false, Some("not done in time; the next daemon goes on from here".to_owned())),
        };
        if !done {
            crate::log!("going down: {step:?} was not done in {took_ms} ms");
        }
        let says = says.map(|s| text_by_shape(&s));
        let went = ShutdownStep { step, done, took_ms, deadline_ms, says };
        self.ops.last_steps.send_modify(|steps| steps.push(went.clone()));
        self.ops.commit.send_event(DeskEvent::Shutdown(went));
    }
}

/// Has every supervisor run the stop ladder, and waits until all have settled.
async fn stop_all(ops: &Arc<Ops>) -> String {
    let tasks = ops.settled_so_far().await;
    let count = tasks.len();
    let mut ends = JoinSet::new();
    for task in tasks {
        let ops = Arc::clone(ops);
        ends.spawn(async move { stop(&ops, task).await });
    }
    let mut killed = 0;
    while let Some(end) = ends.join_next().await {
        killed += u32::from(matches!(end, Ok(Ended::Killed)));
    }
    match killed {
        0 => format!("{count} stopped"),
        _ => format!("{count} stopped; {killed} supervisors did not answer and were killed"),
    }
}

enum Ended {
    InOrder,
    /// Its supervisor heard nothing, and was ended with everything below it.
    Killed,
}

/// Until a task has settled. A supervisor that does not answer, because it was stopped or is still looked for, is tried
/// again; after a while it is ended, and what it leaves behind is ended by the house.
async fn stop(ops: &Arc<Ops>, task: TaskId) -> Ended {
    let mut notifications = ops.registry.subscribe(task);
    let settled = || ops.records.ledger(|r| Ok(!r.open_tasks()?.contains(&task))).unwrap_or(false);
    let (began, mut ended) = (clock::steady(), Ended::InOrder);
    while !settled() {
        let by = Text::from_static("shutdown");
        let cancel = move |re| ToShim::Cancel { re, by, reason: None, why: KilledWhy::Shutdown };
        match tokio::time::timeout(UNHEARD, ops.registry.operate(task, cancel)).await {
            Ok(Ok(_)) => break,
            Ok(Err(_)) if clock::steady().duration_since(began) < UNHEARD => tokio::time::sleep(AGAIN).await,
            Ok(Err(_)) | Err(_) => {
                crate::log!("{task}: its supervisor does not answer and is ended");
                ops.registry.kill_shim(task);
                ended = Ended::Killed;
                break;
            }
        }
    }
    while !settled() {
        // Rung when it settles; looked at again in any case, for a bell may have been made too late.
        let _ = tokio::time::timeout(AGAIN, notifications.changed()).await;
    }
    ended
}
