//! Talking with a service manager: that we are ready, that we are going, that we are alive. Says nothing where there is none.

use crate::calls::CommitHandle;
use countersign_model::DaemonState;
use sd_notify::NotifyState;
use std::time::Duration;
use tokio::sync::watch;

/// We serve.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// We are going down, in order, and that may take as long as its deadlines say.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Which state the house is in.
pub(crate) fn state(state: DaemonState) {
    let name = serde_json::json!(state);
    tell(&[NotifyState::Status(name.as_str().unwrap_or_default())]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        crate::log!("the service manager was not told: {e}");
    }
}

/// Pats the watchdog for as long as the commit loop answers: a daemon that decides nothing any more is to be restarted.
/// Running tasks are not touched by that.
pub(crate) async fn watchdog(commit: CommitHandle, state: watch::Receiver<DaemonState>) {
    let Some(every) = sd_notify::watchdog_enabled() else { return };
    // Several times within its patience: one slow commit is no reason for a restart.
    let every = every / 4;
    while *state.borrow() != DaemonState::Halted {
        if tokio::time::timeout(every * 2, commit.barrier()).await.is_ok_and(|a| a.is_ok()) {
            tell(&[NotifyState::Watchdog]);
        }
        tokio::time::sleep(every.max(Duration::from_millis(10))).await;
    }
}
