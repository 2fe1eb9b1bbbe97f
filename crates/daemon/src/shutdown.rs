//! The ordered shutdown: a list of steps, each with a deadline, each recorded.
//!
//! A step that misses its deadline does not delay the next one: the next daemon finds what it left undone. A second
//! signal shortens the deadlines; a third ends the process immediately.

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

/// The deadline of every step after a second signal.
const SHORTENED_DEADLINE: Duration = Duration::from_millis(500);
/// How long a supervisor may not answer before it is killed, and how often it is tried.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(6);
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How long the ledger may take to close.
const LEDGER_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

const fn deadline(step: StopStep) -> Duration {
    Duration::from_secs(match step {
        StopStep::Admission | StopStep::Intakes => 2,
        // The supervisor waits five seconds between the first signal and SIGKILL.
        StopStep::Tasks => 20,
        StopStep::Receipts => 10,
        StopStep::Ledger => 5,
        StopStep::Surfaces => 1,
    })
}

/// The signals that stop the daemon.
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

/// Stops the daemon in order. `close` closes the surfaces.
pub(crate) async fn halt(
    ops: &Arc<Ops>,
    reason: &'static str,
    signals: Signals,
    close: impl Future<Output = ()> + Send,
) {
    service::notify_stopping();
    ops.enter_state(DaemonState::Draining, Some(Text::from_static(reason)));
    let down = Shutdown { ops, hurry: watch_signals(signals) };
    down.step(StopStep::Admission, async {
        // Requests that were accepted before this have been answered once the commit loop has come this far.
        ops.wait_for_commits().await;
        None
    })
    .await;
    down.step(StopStep::Intakes, async {
        let n = ops.tickets.withdraw_all(ops).await;
        (n > 0).then(|| if n == 1 { "1 ticket withdrawn".to_owned() } else { format!("{n} tickets withdrawn") })
    })
    .await;
    down.step(StopStep::Tasks, async {
        if ops.stop_tasks.load(Ordering::SeqCst) {
            return Some(stop_all_tasks(ops).await);
        }
        let running = ops.wait_for_commits().await.len();
        Some(format!("{} kept running", count_tasks(running)))
    })
    .await;
    ops.enter_state(DaemonState::Cleanup, None);
    down.step(StopStep::Receipts, async {
        // A task is settled in the ledger a moment before the commit loop tells the sealer.
        ops.wait_for_commits().await;
        match ops.sealer.barrier().await {
            Ok(()) => None,
            Err(_) => Some("this daemon cannot sign receipts".to_owned()),
        }
    })
    .await;
    down.step(StopStep::Ledger, async {
        match ops.commit.checkpoint().await {
            Ok(true) => None,
            Ok(false) => Some("the ledger is still being read: new decisions stay in the write-ahead log".to_owned()),
            Err(refusal) if refusal.code == RefusalCode::Draining => Some("the commit loop has stopped".to_owned()),
            Err(refusal) => Some(refusal.message),
        }
    })
    .await;
    down.step(StopStep::Surfaces, async {
        close.await;
        None
    })
    .await;
    ops.enter_state(DaemonState::Halted, None);
    if tokio::time::timeout(LEDGER_CLOSE_TIMEOUT, ops.commit.halt()).await.is_err() {
        // All decisions are on disk; only closing the ledger hangs.
        crate::log!("the ledger does not close; the next daemon recovers it");
        std::process::exit(0);
    }
}

/// Shortens the deadlines at the next signal, and ends the process at the one after that.
fn watch_signals(mut signals: Signals) -> watch::Receiver<bool> {
    let (send, hurry) = watch::channel(false);
    tokio::spawn(async move {
        let again = signals.next().await;
        crate::log!("{again} again: shortening the deadlines");
        send.send_replace(true);
        let third = signals.next().await;
        crate::log!("{third} again: ending immediately");
        std::process::exit(1);
    });
    hurry
}

struct Shutdown<'a> {
    ops: &'a Arc<Ops>,
    hurry: watch::Receiver<bool>,
}

impl Shutdown<'_> {
    /// Runs one step until it is done or its deadline has passed.
    async fn step(&self, step: StopStep, work: impl Future<Output = Option<String>>) {
        let (began, allowed) = (clock::steady(), deadline(step));
        let mut hurry = self.hurry.clone();
        let late = async {
            let hurried = async {
                let _ = hurry.wait_for(|h| *h).await;
                tokio::time::sleep(SHORTENED_DEADLINE).await;
            };
            tokio::select! {
                () = tokio::time::sleep(allowed) => {}
                () = hurried => {}
            }
        };
        let result = tokio::select! {
            says = work => Ok(says),
            () = late => Err(()),
        };
        let took_ms = u64::try_from(clock::steady().duration_since(began).as_millis()).unwrap_or(u64::MAX);
        let deadline_ms = u64::try_from(allowed.as_millis()).unwrap_or(u64::MAX);
        let (done, says) = match result {
            Ok(says) => (true, says),
            Err(()) => (false, Some("not done in time; the next daemon continues".to_owned())),
        };
        if !done {
            crate::log!("stopping: the step {step:?} was not done in {took_ms} ms");
        }
        let says = says.map(|s| text_by_shape(&s));
        let step_report = ShutdownStep { step, done, took_ms, deadline_ms, says };
        self.ops.shutdown_steps.send_modify(|steps| steps.push(step_report.clone()));
        self.ops.commit.send_event(DeskEvent::Shutdown(step_report));
    }
}

/// Has every supervisor stop its task, and waits until all tasks have settled.
async fn stop_all_tasks(ops: &Arc<Ops>) -> String {
    let tasks = ops.wait_for_commits().await;
    let count = tasks.len();
    let mut ends = JoinSet::new();
    for task in tasks {
        let ops = Arc::clone(ops);
        ends.spawn(async move { stop_task(&ops, task).await });
    }
    let mut killed = 0;
    while let Some(end) = ends.join_next().await {
        killed += u32::from(matches!(end, Ok(StopOutcome::Killed)));
    }
    match killed {
        0 => format!("{} stopped", count_tasks(count)),
        1 => format!("{} stopped; 1 supervisor did not answer and was killed", count_tasks(count)),
        _ => format!("{} stopped; {killed} supervisors did not answer and were killed", count_tasks(count)),
    }
}

fn count_tasks(count: usize) -> String {
    if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") }
}

enum StopOutcome {
    InOrder,
    /// The supervisor did not answer and was killed with all its descendants.
    Killed,
}

/// Stops a task and returns when it has settled. A supervisor that does not answer, because it is suspended or not
/// found yet, is asked again; after a while the daemon kills it and ends what it leaves behind.
async fn stop_task(ops: &Arc<Ops>, task: TaskId) -> StopOutcome {
    let mut notifications = ops.registry.subscribe(task);
    let settled = || ops.records.read_ledger(|r| Ok(!r.open_tasks()?.contains(&task))).unwrap_or(false);
    let (began, mut ended) = (clock::steady(), StopOutcome::InOrder);
    while !settled() {
        let by = Text::from_static("shutdown");
        let cancel = move |re| ToShim::Cancel { re, by, reason: None, why: KilledWhy::Shutdown };
        match tokio::time::timeout(SUPERVISOR_TIMEOUT, ops.registry.apply(task, cancel)).await {
            Ok(Ok(_)) => break,
            Ok(Err(_)) if clock::steady().duration_since(began) < SUPERVISOR_TIMEOUT => {
                tokio::time::sleep(RETRY_INTERVAL).await
            }
            Ok(Err(_)) | Err(_) => {
                crate::log!("{task}: its supervisor does not answer and is killed");
                ops.registry.kill_shim(task);
                ended = StopOutcome::Killed;
                break;
            }
        }
    }
    while !settled() {
        // Woken when the task settles. Checked again in any case: the subscription may have come too late.
        let _ = tokio::time::timeout(RETRY_INTERVAL, notifications.changed()).await;
    }
    ended
}
