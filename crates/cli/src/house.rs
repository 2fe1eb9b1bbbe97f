//! Reaching a house, starting one if there is none, and stopping it.

use crate::{Doors, say};
use anyhow::{Context as _, bail};
use countersign_client::{Client, ClientError};
use countersign_model::is_base_variable;
use countersign_store::Home;
use std::{process::ExitCode, thread, time::Duration};

/// How long another starter is waited for.
const PATIENCE: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// Variables of ours that a daemon needs; everything else that it gets is the base.
fn base_env() -> Vec<(String, String)> {
    let wanted = |name: &str| (is_base_variable(name) && name != "TERM") || name.starts_with("COUNTERSIGN_");
    let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    vars.filter(|(name, _)| wanted(name)).collect()
}

/// The house of this user. Started if none runs, but never from inside a task.
pub(crate) fn reach(doors: &Doors<'_>) -> anyhow::Result<Client> {
    let home = Home::locate()?;
    let client = Client::new(home.socket());
    match client.lifecycle() {
        Ok(_) => return Ok(client),
        // A daemon that is just dying may still have taken the call.
        Err(ClientError::NoHouse { .. } | ClientError::Broken(_)) => {}
        Err(e) => return Err(e.into()),
    }
    if std::env::var_os(countersign_model::MARKER).is_some() {
        bail!(
            "no house serves {}, and a task does not start one: run `csn up --detach` outside",
            home.path().display()
        );
    }
    start(doors, &home)?;
    if let Some(why) = client.lifecycle()?.degraded {
        say(&format!("csn: degraded, only reading is allowed: {why}"));
    }
    Ok(client)
}

/// Starts a daemon and waits until it serves. Where another holds the house, that one is starting or just dying:
/// either it serves in a moment, or the house is free in a moment.
fn start(doors: &Doors<'_>, home: &Home) -> anyhow::Result<()> {
    let client = Client::new(home.socket());
    let mut last = None;
    for _ in 0..PATIENCE {
        match (doors.start_house)(&base_env()) {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => last = Some(e),
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
    Home::locate().is_ok_and(|home| Client::new(home.socket()).lifecycle().is_ok())
}

/// A house in the background, with its door on loopback open; of one that runs, only the door is opened.
pub(crate) fn up(doors: &Doors<'_>, tcp: Option<&str>) -> anyhow::Result<ExitCode> {
    let home = Home::locate()?;
    let client = Client::new(home.socket());
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
    if let Some(why) = life.degraded {
        say(&format!("csn: degraded, only reading is allowed: {why}"));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn down(stop_tasks: bool) -> anyhow::Result<ExitCode> {
    let home = Home::locate()?;
    let client = Client::new(home.socket());
    let holder = home.holder();
    match client.stop(stop_tasks) {
        Ok(()) => {}
        Err(ClientError::NoHouse { .. }) if home.holder().is_none() => {
            say("csn: no house runs");
            return Ok(ExitCode::SUCCESS);
        }
        Err(e) => return Err(e.into()),
    }
    // Of this daemon, not of the house: whoever waits for a task of it starts the next one at once.
    if let Some(holder) = holder {
        Home::wait_until_gone(holder)?;
    }
    let left = if stop_tasks { "running tasks were stopped" } else { "running tasks go on" };
    say(&format!("csn: down; {left}; questions and tasks in line go on waiting"));
    Ok(ExitCode::SUCCESS)
}
