//! Reaching a house, and starting one if there is none.

use crate::{say, verbs::service};
use anyhow::{Context as _, bail};
use countersign_client::Client;
use countersign_model::{api::Lifecycle, is_base_variable};
use countersign_store::{Home, SYSTEM_HOME, is_below_agent};
use std::{io::ErrorKind, thread, time::Duration};

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
pub(crate) struct TargetHome {
    pub(crate) home: Home,
    pub(crate) client: Client,
    /// It may be started by this user, and its files are theirs.
    pub(crate) own: bool,
}

impl TargetHome {
    pub(crate) fn find() -> anyhow::Result<Self> {
        let Some(door) = Home::shared_socket() else {
            let home = Home::locate()?;
            return Ok(Self { client: Client::new(home.socket()), home, own: true });
        };
        let client = Client::new(door);
        // What it says of itself; while it is down, what it would be.
        let home = client.lifecycle().map_or_else(|_| SYSTEM_HOME.into(), |life| life.home);
        Ok(Self { client, home: Home::at(home), own: false })
    }
}

/// The house that is meant. One's own is started if it does not run, but never from inside a task.
pub(crate) fn reach() -> anyhow::Result<Client> {
    let TargetHome { home, client, own } = TargetHome::find()?;
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
        start(&home)?;
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
pub(crate) fn reach_again() -> anyhow::Result<()> {
    let TargetHome { client, own, .. } = TargetHome::find()?;
    if own {
        return reach().map(drop);
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
pub(crate) fn say_reading_only(life: &Lifecycle) {
    if let Some(why) = &life.reading_only {
        say(&format!("csn: reading only, nothing runs: {why}"));
    }
}

/// Nothing that a task or an agent has started starts a house: it would be one with a configuration of theirs.
pub(crate) fn by_a_person(home: &Home) -> anyhow::Result<()> {
    let whose = match std::env::var_os(countersign_model::MARKER).is_some() {
        true => "a task",
        false if is_below_agent(home) => "an agent",
        false => return Ok(()),
    };
    bail!("no house serves {}, and {whose} does not start one: run `csn up --detach` outside", home.path().display())
}

/// Starts a daemon and waits until it serves. Where another holds the house, that one is starting or just dying:
/// either it serves in a moment, or the house is free in a moment.
pub(crate) fn start(home: &Home) -> anyhow::Result<()> {
    by_a_person(home)?;
    let client = Client::new(home.socket());
    // Where there is a service for it, that is who starts it.
    let unit = service::user_unit_path().is_ok_and(|path| path.exists());
    if unit && countersign_spawn::manage("systemctl", &["--user", "start", service::UNIT]).is_ok_and(|(done, _)| done) {
        return Ok(());
    }
    let mut last = None;
    for _ in 0..PATIENCE {
        match countersign_spawn::start_daemon(&base_env()) {
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
    TargetHome::find().is_ok_and(|place| place.client.lifecycle().is_ok())
}
