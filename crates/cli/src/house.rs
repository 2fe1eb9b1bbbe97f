//! Reaching a house, starting one if there is none, and stopping it.

use crate::{Doors, say};
use anyhow::{Context as _, bail};
use countersign_client::{Client, ClientError, Lifecycle};
use countersign_model::is_base_variable;
use countersign_store::{Config, Home, MACHINE_HOME, TasksAtStop, below_an_agent, ledger::Reader};
use std::{io::ErrorKind, process::ExitCode, thread, time::Duration};

/// How long another starter is waited for.
const PATIENCE: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);
/// How many daemons in a row may end as soon as they serve, before that is an error.
const MAX_STARTS: u32 = 5;

/// Variables of ours that a daemon needs; everything else that it gets is the base.
fn base_env() -> Vec<(String, String)> {
    let wanted = |name: &str| (is_base_variable(name) && name != "TERM") || name.starts_with("COUNTERSIGN_");
    let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    vars.filter(|(name, _)| wanted(name)).collect()
}

/// The house that is meant: the user's own, or one that others keep.
pub(crate) struct Place {
    pub(crate) home: Home,
    pub(crate) client: Client,
    /// It may be started by this user, and its files are theirs.
    pub(crate) own: bool,
}

impl Place {
    pub(crate) fn find() -> anyhow::Result<Self> {
        let Some(door) = Home::door_of_others() else {
            let home = Home::locate()?;
            return Ok(Self { client: Client::new(home.socket()), home, own: true });
        };
        let client = Client::new(door);
        // What it says of itself; while it is down, what it would be.
        let home = client.lifecycle().map_or_else(|_| MACHINE_HOME.into(), |life| life.home);
        Ok(Self { client, home: Home::at(home), own: false })
    }
}

/// The house that is meant. One's own is started if it does not run, but never from inside a task.
pub(crate) fn reach(doors: &Doors<'_>) -> anyhow::Result<Client> {
    let Place { home, client, own } = Place::find()?;
    match client.lifecycle() {
        Ok(life) => {
            say_reading_only(&life);
            return Ok(client);
        }
        Err(e) if !own => {
            return Err(e).context("the house of this machine does not answer (csn service status --system)");
        }
        // A daemon that is just dying may still have taken the call.
        Err(e) if e.is_daemon_gone() => {}
        Err(e) => return Err(e.into()),
    }
    for _ in 0..MAX_STARTS {
        start(doors, &home)?;
        match client.lifecycle() {
            Ok(life) => {
                say_reading_only(&life);
                if let Some(why) = life.degraded {
                    say(&format!("csn: degraded, only reading is allowed: {why}"));
                }
                return Ok(client);
            }
            // It was killed as soon as it served.
            Err(e) if e.is_daemon_gone() => {}
            Err(e) => return Err(e.into()),
        }
    }
    bail!("the daemon ended {MAX_STARTS} times just after it had started: see {}", home.log().display())
}

/// Reaches the daemon again after a connection broke. A machine's daemon is started by its service manager: that is
/// waited for.
pub(crate) fn reach_again(doors: &Doors<'_>) -> anyhow::Result<()> {
    let Place { client, own, .. } = Place::find()?;
    if own {
        return reach(doors).map(drop);
    }
    for _ in 0..PATIENCE {
        match client.lifecycle() {
            Ok(_) => return Ok(()),
            Err(e) if e.is_daemon_gone() => thread::sleep(PAUSE),
            Err(e) => return Err(e.into()),
        }
    }
    bail!("the daemon of this machine did not come back (csn service status --system)")
}

/// Whoever reads from what was salvaged must know that it is not all.
fn say_reading_only(life: &Lifecycle) {
    if let Some(why) = &life.reading_only {
        say(&format!("csn: reading only, nothing runs: {why}"));
    }
}

/// Nothing that a task or an agent has started starts a house: it would be one with a configuration of theirs.
pub(crate) fn by_a_person(home: &Home) -> anyhow::Result<()> {
    let whose = match std::env::var_os(countersign_model::MARKER).is_some() {
        true => "a task",
        false if below_an_agent(home) => "an agent",
        false => return Ok(()),
    };
    bail!("no house serves {}, and {whose} does not start one: run `csn up --detach` outside", home.path().display())
}

/// Starts a daemon and waits until it serves. Where another holds the house, that one is starting or just dying:
/// either it serves in a moment, or the house is free in a moment.
fn start(doors: &Doors<'_>, home: &Home) -> anyhow::Result<()> {
    by_a_person(home)?;
    let client = Client::new(home.socket());
    // Where there is a service for it, that is who starts it.
    let unit = crate::service::user_unit_path().is_ok_and(|path| path.exists());
    if unit && (doors.manage)("systemctl", &["--user", "start", crate::service::UNIT]).is_ok_and(|(done, _)| done) {
        return Ok(());
    }
    let mut last = None;
    for _ in 0..PATIENCE {
        match (doors.start_house)(&base_env()) {
            Ok(_) => return Ok(()),
            Err(e) if matches!(e.kind(), ErrorKind::ResourceBusy | ErrorKind::Interrupted) => last = Some(e),
            Err(e) => return Err(e).context("the house could not be started"),
        }
        if client.lifecycle().is_ok() {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    match last {
        Some(e) => Err(e).context("another daemon holds this house and does not answer"),
        None => bail!("the house could not be started"),
    }
}

/// Whether a house serves already.
pub(crate) fn serves() -> bool {
    Place::find().is_ok_and(|place| place.client.lifecycle().is_ok())
}

/// A house in the background, with its door on loopback open; of one that runs, only the door is opened.
pub(crate) fn up(doors: &Doors<'_>, tcp: Option<&str>) -> anyhow::Result<ExitCode> {
    let Place { home, client, own } = Place::find()?;
    if !own {
        say("csn: the house of this machine serves you; COUNTERSIGN_HOME=DIR csn up starts one of your own");
        return Ok(ExitCode::from(u8::from(client.lifecycle().is_err())));
    }
    let already = client.lifecycle().is_ok();
    if !already {
        start(doors, &home)?;
    }
    let life = client.lifecycle()?;
    let state = if already { "already up" } else { "up" };
    say(&format!("csn: {state}, pid {}, serving {}", life.pid, life.home.display()));
    match client.listen(tcp) {
        Ok(at) => say(&format!("csn: listening on http://{at} for those who have a token (csn token create)")),
        // The socket is the way in; the door on loopback is one more.
        Err(ClientError::Refused { refusal, .. }) => {
            say(&format!("csn: not listening on loopback: {}", refusal.message));
            refusal.hint.iter().for_each(|hint| say(&format!("     {hint}")));
            return Ok(ExitCode::from(u8::from(tcp.is_some())));
        }
        Err(e) => return Err(e.into()),
    }
    say_reading_only(&life);
    if let Some(why) = life.degraded {
        say(&format!("csn: degraded, only reading is allowed: {why}"));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn down(stop_tasks: bool, keep_tasks: bool) -> anyhow::Result<ExitCode> {
    let stop = (stop_tasks || keep_tasks).then_some(stop_tasks);
    let stops = stop.unwrap_or(Config::load().is_ok_and(|c| c.shutdown.tasks == TasksAtStop::Stop));
    let Place { home, client, own } = Place::find()?;
    let holder = if own { home.holder() } else { client.lifecycle().ok().map(|life| life.pid) };
    match client.stop(stop) {
        Ok(()) => {}
        Err(ClientError::NoHouse { .. }) if holder.is_none() => {
            say("csn: no house runs");
            return Ok(ExitCode::SUCCESS);
        }
        Err(e) => return Err(e.into()),
    }
    // Of this daemon, not of the house: whoever waits for a task of it starts the next one at once.
    if let Some(holder) = holder {
        Home::wait_until_gone(holder)?;
    }
    // What it could not do in time, it has written down.
    let steps =
        if own { Reader::open(&home.ledger()).and_then(|r| r.last_shutdown()).unwrap_or_default() } else { Vec::new() };
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
