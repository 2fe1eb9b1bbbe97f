//! Reports the daemon's state to a service manager. Does nothing where there is none.

use crate::calls::CommitHandle;
use countersign_model::DaemonState;
use sd_notify::NotifyState;
use std::time::Duration;
use tokio::sync::watch;

/// Reports that the daemon serves.
pub(crate) fn notify_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the daemon is stopping, which may take until its deadlines.
pub(crate) fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Reports the daemon's state.
pub(crate) fn notify_state(state: DaemonState) {
    let name = serde_json::json!(state);
    notify(&[NotifyState::Status(name.as_str().unwrap_or_default())]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        crate::log!("the service manager could not be notified: {e}");
    }
}

/// Notifies the watchdog while the commit loop answers: a daemon that cannot decide any more is restarted. Running
/// tasks are not affected.
pub(crate) async fn notify_watchdog(commit: CommitHandle, state: watch::Receiver<DaemonState>) {
    let Some(every) = sd_notify::watchdog_enabled() else { return };
    // Several times within its timeout: one slow commit is no reason for a restart.
    let every = every / 4;
    while *state.borrow() != DaemonState::Halted {
        if tokio::time::timeout(every * 2, commit.barrier()).await.is_ok_and(|a| a.is_ok()) {
            notify(&[NotifyState::Watchdog]);
        }
        tokio::time::sleep(every.max(Duration::from_millis(10))).await;
    }
}
