//! Finds the daemon that this user's commands go to, and starts the user's own daemon if it does not run.

use crate::{say, verbs::service};
use anyhow::{Context as _, bail};
use countersign_client::Client;
use countersign_model::{api::Lifecycle, is_base_variable};
use countersign_store::{Home, SYSTEM_HOME, is_below_agent};
use std::{io::ErrorKind, thread, time::Duration};

/// How many attempts are made to reach a daemon that another process starts, and the pause between two of them.
const MAX_ATTEMPTS: u32 = 100;
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How many daemons in a row may end just after they started before that is an error.
const MAX_STARTS: u32 = 5;

/// The environment of a daemon: the base variables of tasks, and those of Countersign.
fn daemon_environment() -> Vec<(String, String)> {
    let wanted = |name: &str| (is_base_variable(name) && name != "TERM") || name.starts_with("COUNTERSIGN_");
    let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    vars.filter(|(name, _)| wanted(name)).collect()
}

/// The home that this user's commands go to: the user's own, or the one of the system service.
pub(crate) struct TargetHome {
    pub(crate) home: Home,
    pub(crate) client: Client,
    /// The user may start its daemon and owns its files.
    pub(crate) own: bool,
}

impl TargetHome {
    pub(crate) fn find() -> anyhow::Result<Self> {
        let Some(socket) = Home::shared_socket() else {
            let home = Home::locate()?;
            return Ok(Self { client: Client::new(home.socket()), home, own: true });
        };
        let client = Client::new(socket);
        // A daemon that does not answer has the default home.
        let home = client.lifecycle().map_or_else(|_| SYSTEM_HOME.into(), |life| life.home);
        Ok(Self { client, home: Home::at(home), own: false })
    }
}

/// The way to the daemon, whether one runs or not.
pub(crate) fn client() -> anyhow::Result<Client> {
    Ok(match Home::shared_socket() {
        Some(socket) => Client::new(socket),
        None => Client::new(Home::locate()?.socket()),
    })
}

/// Connects to the daemon. Starts the user's own daemon if it does not run, but never from inside a task.
pub(crate) fn reach() -> anyhow::Result<Client> {
    let TargetHome { home, client, own } = TargetHome::find()?;
    match client.lifecycle() {
        Ok(life) => {
            say_reading_only(&life);
            return Ok(client);
        }
        Err(e) if !own => {
            return Err(e).context("the system service does not answer; see: csn service status --system");
        }
        // It holds its home, so no other daemon can start.
        Err(e) if e.is_timeout() => return Err(e).context("the daemon does not answer; see: csn doctor"),
        // A daemon that is just ending may still have accepted the call.
        Err(e) if e.is_daemon_gone() => {}
        Err(e) => return Err(e.into()),
    }
    for _ in 0..MAX_STARTS {
        start(&home)?;
        match client.lifecycle() {
            Ok(life) => {
                say_restrictions(&life);
                return Ok(client);
            }
            // It was killed just after it started.
            Err(e) if e.is_daemon_gone() => {}
            Err(e) => return Err(e.into()),
        }
    }
    bail!("the daemon ended {MAX_STARTS} times just after it started; its log says why: {}", home.log().display())
}

/// Reaches the daemon again after a connection broke. The service manager restarts the system service, so this only
/// waits for it.
pub(crate) fn reach_again() -> anyhow::Result<()> {
    let TargetHome { client, own, .. } = TargetHome::find()?;
    if own {
        return reach().map(drop);
    }
    for _ in 0..MAX_ATTEMPTS {
        match client.lifecycle() {
            Ok(_) => return Ok(()),
            Err(e) if e.is_daemon_gone() => thread::sleep(RETRY_PAUSE),
            Err(e) => return Err(e.into()),
        }
    }
    bail!("the system service did not come back; see: csn service status --system")
}

/// Warns that the daemon serves a damaged ledger: what it shows may be incomplete.
fn say_reading_only(life: &Lifecycle) {
    if let Some(why) = &life.reading_only {
        say(&format!("csn: the daemon only reads, no task can start: {why}"));
    }
}

/// Warns about everything that restricts what the daemon allows.
pub(crate) fn say_restrictions(life: &Lifecycle) {
    say_reading_only(life);
    if let Some(why) = &life.degraded {
        say(&format!("csn: only commands that read can run, because config.toml cannot be used: {why}"));
        say("     to check it after a correction: csn doctor");
    }
}

/// Refuses to start a daemon from inside a task or an agent: that daemon would use a configuration of theirs.
pub(crate) fn ensure_started_by_person(home: &Home) -> anyhow::Result<()> {
    let starter = if std::env::var_os(countersign_model::MARKER).is_some() {
        "a task"
    } else if is_below_agent(home) {
        "an agent"
    } else {
        return Ok(());
    };
    bail!(
        "no daemon serves {}, and {starter} may not start one: run `csn up --detach` in your own terminal",
        home.path().display()
    )
}

/// Starts a daemon and waits until it serves. If another process holds the home, that one is starting or ending: soon
/// either it serves or the home is free.
pub(crate) fn start(home: &Home) -> anyhow::Result<()> {
    ensure_started_by_person(home)?;
    let client = Client::new(home.socket());
    // If the user has installed the service, systemd starts the daemon.
    let unit = service::user_unit_path().is_ok_and(|path| path.exists());
    if unit
        && countersign_spawn::run_service_manager("systemctl", &["--user", "start", service::UNIT])
            .is_ok_and(|(done, _)| done)
    {
        return Ok(());
    }
    let mut last = None;
    for _ in 0..MAX_ATTEMPTS {
        match countersign_spawn::start_daemon(&daemon_environment()) {
            Ok(_) => return Ok(()),
            Err(e) if matches!(e.kind(), ErrorKind::ResourceBusy | ErrorKind::Interrupted) => last = Some(e),
            Err(e) => return Err(e).with_context(|| start_failed(home)),
        }
        if client.lifecycle().is_ok() {
            return Ok(());
        }
        thread::sleep(RETRY_PAUSE);
    }
    match last {
        Some(e) => Err(e).context("another daemon holds this home and does not answer; see: csn doctor"),
        None => bail!(start_failed(home)),
    }
}

fn start_failed(home: &Home) -> String {
    format!("the daemon could not be started; its log may say why: {}", home.log().display())
}

/// Whether a daemon already serves the home.
pub(crate) fn is_served() -> bool {
    TargetHome::find().is_ok_and(|target| target.client.lifecycle().is_ok())
}
