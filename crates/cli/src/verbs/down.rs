//! `down`: stops the daemon.

use crate::{
    render::shutdown::{OpenWork, stopped_line},
    say,
    target_home::TargetHome,
};
use countersign_client::{Client, ClientError, calls};
use countersign_model::{
    Status, StopStep, WaitsFor,
    api::{StopTasks, TaskQuery},
};
use countersign_store::{Config, Home, TasksAtStop, ledger::LedgerReader};
use std::{process::ExitCode, time::Duration};

/// A daemon that is slow to list its tasks is stopped without their number.
const COUNT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn down(stop_tasks: bool, keep_tasks: bool) -> anyhow::Result<ExitCode> {
    let requested = if stop_tasks { StopTasks::Stop } else { StopTasks::Keep };
    let requested = (stop_tasks || keep_tasks).then_some(requested);
    let configured = || Config::load().is_ok_and(|c| c.shutdown.tasks == TasksAtStop::Stop);
    let stops_tasks = requested.map_or_else(configured, |requested| requested == StopTasks::Stop);
    let TargetHome { home, client, own } = TargetHome::find()?;
    let holder = if own { home.holder() } else { client.lifecycle().ok().map(|life| life.pid) };
    let work = count_open_work(&client);
    match client.stop(requested) {
        Ok(()) => {}
        Err(e) if is_not_running(&e) && holder.is_none() => {
            say("csn: the daemon is not running");
            return Ok(ExitCode::SUCCESS);
        }
        Err(e) => return Err(e.into()),
    }
    // This waits for the process, not for the lock of the home: a client that waits for a task starts the next daemon
    // immediately.
    if let Some(holder) = holder {
        Home::wait_for_exit(holder)?;
    }
    // The daemon records the steps that it could not finish in time.
    let steps = if own {
        LedgerReader::open(&home.ledger()).and_then(|r| r.last_shutdown()).unwrap_or_default()
    } else {
        Vec::new()
    };
    let unfinished: Vec<_> = steps.iter().filter(|s| !s.done).collect();
    for step in &unfinished {
        let reason = step.says.as_ref().map_or("not done in time", |s| s.as_str());
        say(&format!("csn: {}: {reason}", serde_json::json!(step.step).as_str().unwrap_or_default()));
    }
    if stops_tasks && unfinished.iter().any(|s| s.step == StopStep::Tasks) {
        say("Stopped. Some tasks still run; to see them: csn ps");
        return Ok(ExitCode::FAILURE);
    }
    say(&stopped_line(work, stops_tasks));
    Ok(ExitCode::SUCCESS)
}

fn is_not_running(error: &ClientError) -> bool {
    error.is_daemon_gone() && !matches!(error, ClientError::Broken(_))
}

/// Counts what is open just before the daemon stops; none if the daemon does not answer in time, or if there is too much
/// to list. It only informs: the daemon itself decides what it stops.
fn count_open_work(client: &Client) -> Option<OpenWork> {
    let mut work = OpenWork { running: 0, queued: 0, approvals: 0 };
    for status in [Status::Running, Status::Queued] {
        let query = TaskQuery { status: Some(status), limit: Some(500), ..TaskQuery::default() };
        let page = client.send(&calls::tasks::list(&query).with_timeout(COUNT_TIMEOUT)).ok()?;
        for task in &page.tasks {
            match (status, task.waits_for()) {
                (Status::Running, _) => work.running += 1,
                (_, Some(WaitsFor::Approval)) => work.approvals += 1,
                _ => work.queued += 1,
            }
        }
        if page.next.is_some() {
            return None;
        }
    }
    Some(work)
}
