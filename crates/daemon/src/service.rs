//! Talking with a service manager: that we are ready, that we are going, that we are alive. Says nothing where there is none.

use crate::ops::Ops;
use countersign_model::HouseState;
use sd_notify::NotifyState;
use std::{sync::Arc, time::Duration};

/// We serve.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// We are going down, in order, and that may take as long as its deadlines say.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Which state the house is in.
pub(crate) fn state(state: HouseState) {
    let name = serde_json::json!(state);
    tell(&[NotifyState::Status(name.as_str().unwrap_or_default())]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        crate::log!("the service manager was not told: {e}");
    }
}

/// Pats the watchdog for as long as the office answers: a house that decides nothing any more is to be started anew. Tasks
/// are not touched by that.
pub(crate) async fn watchdog(ops: Arc<Ops>) {
    let Some(every) = sd_notify::watchdog_enabled() else { return };
    // Several times within its patience: one slow commit is no reason to begin anew.
    let every = every / 4;
    while *ops.state.borrow() != HouseState::Halted {
        if tokio::time::timeout(every * 2, ops.commit.barrier()).await.is_ok_and(|a| a.is_ok()) {
            tell(&[NotifyState::Watchdog]);
        }
        tokio::time::sleep(every.max(Duration::from_millis(10))).await;
    }
}
