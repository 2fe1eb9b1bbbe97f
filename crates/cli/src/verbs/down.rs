//! `down`: stops the daemon.

use crate::{say, target_home::TargetHome};
use countersign_client::ClientError;
use countersign_model::api::StopTasks;
use countersign_store::{Config, Home, TasksAtStop, ledger::LedgerReader};
use std::process::ExitCode;

pub(crate) fn down(stop_tasks: bool, keep_tasks: bool) -> anyhow::Result<ExitCode> {
    let wish = if stop_tasks { StopTasks::Stop } else { StopTasks::Keep };
    let wish = (stop_tasks || keep_tasks).then_some(wish);
    let configured = || Config::load().is_ok_and(|c| c.shutdown.tasks == TasksAtStop::Stop);
    let stops = wish.map_or_else(configured, |wish| wish == StopTasks::Stop);
    let TargetHome { home, client, own } = TargetHome::find()?;
    let holder = if own { home.holder() } else { client.lifecycle().ok().map(|life| life.pid) };
    match client.stop(wish) {
        Ok(()) => {}
        Err(ClientError::NoDaemon { .. }) if holder.is_none() => {
            say("csn: no house runs");
            return Ok(ExitCode::SUCCESS);
        }
        Err(e) => return Err(e.into()),
    }
    // Of this daemon, not of the house: whoever waits for a task of it starts the next one at once.
    if let Some(holder) = holder {
        Home::wait_for_exit(holder)?;
    }
    // What it could not do in time, it has written down.
    let steps = if own {
        LedgerReader::open(&home.ledger()).and_then(|r| r.last_shutdown()).unwrap_or_default()
    } else {
        Vec::new()
    };
    let late: Vec<_> = steps.iter().filter(|s| !s.done).collect();
    for step in &late {
        let says = step.says.as_ref().map_or("not done in time", |s| s.as_str());
        say(&format!("csn: {}: {says}", serde_json::json!(step.step).as_str().unwrap_or_default()));
    }
    if stops && late.iter().any(|s| s.step == countersign_model::StopStep::Tasks) {
        say("csn: down; some tasks still run: csn ps");
        return Ok(ExitCode::FAILURE);
    }
    let left = if stops { "running tasks were stopped" } else { "running tasks go on" };
    say(&format!("csn: down; {left}; questions and tasks in line go on waiting"));
    Ok(ExitCode::SUCCESS)
}
