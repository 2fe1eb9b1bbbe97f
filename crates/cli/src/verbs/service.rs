//! `service`: the house as a unit of systemd: of a user, or of the machine with a user of its own.

use crate::{UsageError, args::ServiceCommand, say};
use anyhow::{Context as _, bail};
use countersign_client::Client;
use countersign_model::api::StopTasks;
use countersign_store::{Home, SYSTEM_HOME, SYSTEM_RUN, SOCKET};
use std::{
    fmt::Write as _,
    fs, io,
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

pub(crate) const UNIT: &str = "countersign.service";
/// Stopped when everything goes down, and not when the house alone does: then nothing would be left to find tasks again.
const HALT: &str = "countersign-halt.service";
/// What every file of ours begins with: others are not touched.
const OURS: &str = "# Made by `csn service install`; `csn service uninstall` removes it.\n";
const SYSTEM_UNITS: &str = "/etc/systemd/system";
const SYSUSERS: &str = "/etc/sysusers.d/countersign.conf";
/// The user of the machine's house.
const USER: &str = "countersign";

pub(crate) fn service(command: ServiceCommand) -> anyhow::Result<ExitCode> {
    match command {
        ServiceCommand::Install { system, print } => {
            let csn = std::env::current_exe()?.canonicalize()?;
            let unit = if system { machine_unit(&csn)? } else { user_unit(&csn)? };
            let units = [(UNIT, unit), (HALT, halt_unit(&csn, system)?)];
            match print {
                true => {
                    let [(_, unit), (_, halt)] = units;
                    write!(io::stdout().lock(), "{unit}\n# {HALT}\n{halt}")?;
                    Ok(ExitCode::SUCCESS)
                }
                false if system => install_for_the_machine(&csn, &units),
                false => install(&units),
            }
        }
        ServiceCommand::Uninstall { system } => uninstall(system),
        ServiceCommand::Status { system, json } => status(system, json),
    }
}

/// Where a user's own unit lies.
pub(crate) fn user_unit_path() -> anyhow::Result<PathBuf> {
    let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let config = var("XDG_CONFIG_HOME").or_else(|| var("HOME").map(|h| h.join(".config")));
    Ok(config.context("neither XDG_CONFIG_HOME nor HOME is set")?.join("systemd/user").join(UNIT))
}

fn unit_path(system: bool, name: &str) -> anyhow::Result<PathBuf> {
    if system { Ok(Path::new(SYSTEM_UNITS).join(name)) } else { Ok(user_unit_path()?.with_file_name(name)) }
}

/// A path as units write one: quoted, with what means something to systemd doubled.
fn quoted(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().filter(|t| !t.contains(['\n', '"', '\\']));
    let text = text.with_context(|| format!("{} cannot be written into a unit", path.display()))?;
    Ok(format!("\"{}\"", text.replace('%', "%%").replace('$', "$$")))
}

/// What both kinds have in common. Shims are left alone when the daemon goes: a restart keeps every task.
fn common(start: &str) -> String {
    format!(
        "Type=notify\nNotifyAccess=main\nExecStart={start}\nKillMode=process\nRestart=on-failure\nRestartSec=1\n\
         WatchdogSec=30\nOOMPolicy=continue\nTimeoutStartSec=120\nTimeoutStopSec=60\nTasksMax=infinity\nLimitNOFILE=65536\n"
    )
}

/// Tasks outlive the daemon, but not the machine: it stops them in order, while there still is somebody to write that down.
fn halt_unit(csn: &Path, system: bool) -> anyhow::Result<String> {
    let (place, target) = match system {
        true => (format!("Environment=COUNTERSIGN_SOCKET={SYSTEM_RUN}/{SOCKET}\n"), "multi-user.target"),
        false => (places()?, "default.target"),
    };
    Ok(format!(
        "{OURS}[Unit]\nDescription=Countersign: stops tasks in order when everything goes down\n\
         After={UNIT}\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n\
         ExecStop={} down --stop-tasks\nTimeoutStopSec=60\n{place}\n\
         [Install]\nWantedBy={target}\n",
        quoted(csn)?
    ))
}

/// Where this house is, when that is not where it would be looked for.
fn places() -> anyhow::Result<String> {
    let mut places = String::new();
    for name in ["COUNTERSIGN_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
        if let Some(value) = std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute()) {
            let value = quoted(&value)?.replace("$$", "$");
            let _ = writeln!(places, "Environment={}", value.replacen('"', &format!("\"{name}="), 1));
        }
    }
    Ok(places)
}

fn user_unit(csn: &Path) -> anyhow::Result<String> {
    let mut unit =
        format!("{OURS}[Unit]\nDescription=Countersign: runs what agents ask to run, and answers for it\n\n");
    let _ = write!(unit, "[Service]\n{}", common(&format!("{} up", quoted(csn)?)));
    unit.push_str(&places()?);
    unit.push_str("\n[Install]\nWantedBy=default.target\n");
    Ok(unit)
}

/// The house of the machine: its own user, who can read what no task can, and who may act for the others.
fn machine_unit(csn: &Path) -> anyhow::Result<String> {
    let start = common(&format!("{} up --system", quoted(csn)?));
    Ok(format!(
        "{OURS}[Unit]\nDescription=Countersign: runs what agents ask to run, and answers for it, for every user\n\
         After=local-fs.target nss-user-lookup.target\n\n\
         [Service]\n{start}User={USER}\nGroup={USER}\nUMask=0077\n\
         # To look, run and end things as the users who ask. No right over files, and none over the machine.\n\
         AmbientCapabilities=CAP_SETUID CAP_SETGID CAP_KILL\n\
         Environment=COUNTERSIGN_HOME={SYSTEM_HOME} XDG_CONFIG_HOME=/etc\n\
         StateDirectory=countersign\nStateDirectoryMode=0700\nConfigurationDirectory=countersign\n\
         RuntimeDirectory=countersign\nRuntimeDirectoryMode=0755\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    ))
}

/// Whether a file is there; one that is not ours stays, and nothing is done.
fn ours(path: &Path) -> anyhow::Result<bool> {
    match fs::read_to_string(path) {
        Ok(text) if text.starts_with(OURS) => Ok(true),
        Ok(_) => bail!("{} is there already, and not ours: move it away first", path.display()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e).with_context(|| format!("{} cannot be read", path.display())),
    }
}

/// The files of a service, and whether any of them is there; an error when one is somebody else's.
fn files(system: bool) -> anyhow::Result<(Vec<PathBuf>, bool)> {
    let mut all = vec![unit_path(system, UNIT)?, unit_path(system, HALT)?];
    all.extend(system.then(|| PathBuf::from(SYSUSERS)));
    let mut there = false;
    for path in &all {
        there |= ours(path)?;
    }
    Ok((all, there))
}

fn put(path: &Path, text: &str) -> anyhow::Result<()> {
    let dir = path.parent().context("a unit lies in a directory")?;
    let written = fs::create_dir_all(dir).and_then(|()| fs::write(path, text));
    written.with_context(|| format!("{} cannot be written", path.display()))?;
    say(&format!("csn: wrote {}", path.display()));
    Ok(())
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => say(&format!("csn: removed {}", path.display())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e).with_context(|| format!("{} cannot be removed", path.display())),
    }
    Ok(())
}

/// Has systemd do something; what it says when it does not.
fn systemctl(system: bool, args: &[&str]) -> Result<String, String> {
    let user: &[&str] = if system { &[] } else { &["--user"] };
    managed("systemctl", &[user, args].concat())
}

fn managed(program: &str, args: &[&str]) -> Result<String, String> {
    match countersign_spawn::manage(program, args) {
        Ok((true, said)) => Ok(said),
        Ok((false, said)) => Err(said.trim().to_owned()),
        Err(e) => Err(format!("{program}: {e}")),
    }
}

fn enable(system: bool) -> anyhow::Result<ExitCode> {
    let mut done = systemctl(system, &["daemon-reload"]);
    if done.is_ok() && !system {
        make_way()?;
    }
    if done.is_ok() {
        done = systemctl(system, &["enable", "--now", UNIT, HALT]);
    }
    match done {
        Ok(_) => {
            say("csn: the service runs, and starts by itself from now on; csn service status shows it");
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => {
            let user = if system { "" } else { "--user " };
            say(&format!("csn: systemd has not started it: {why}"));
            say(&format!("     the unit is in place: systemctl {user}enable --now {UNIT} {HALT}, where systemd runs"));
            Ok(ExitCode::FAILURE)
        }
    }
}

fn install(units: &[(&str, String)]) -> anyhow::Result<ExitCode> {
    if rustix::process::geteuid().is_root() && std::env::var_os("SUDO_USER").is_some() {
        return Err(
            UsageError("a user's service is installed as that user; for the machine: --system".to_owned()).into()
        );
    }
    files(false)?;
    for (name, unit) in units {
        put(&unit_path(false, name)?, unit)?;
    }
    enable(false)
}

/// A daemon that was started by hand would hold the house. Its tasks go on.
fn make_way() -> anyhow::Result<()> {
    let home = Home::locate()?;
    if let Some(holder) = home.holder()
        && systemctl(false, &["is-active", UNIT]).is_err()
    {
        Client::new(home.socket()).stop(Some(StopTasks::Keep))?;
        Home::wait_for_exit(holder)?;
        say("csn: the daemon that ran has gone; its tasks go on");
    }
    Ok(())
}

fn install_for_the_machine(csn: &Path, units: &[(&str, String)]) -> anyhow::Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        return Err(UsageError(
            "the machine's service is installed by root: sudo csn service install --system".to_owned(),
        )
        .into());
    }
    for program in [csn.to_owned(), csn.with_file_name("csn-shim")] {
        only_roots(&program)?;
    }
    files(true)?;
    put(Path::new(SYSUSERS), &format!("{OURS}u {USER} - \"Countersign\" {SYSTEM_HOME}\n"))?;
    if let Err(why) = managed("systemd-sysusers", &[SYSUSERS]) {
        bail!(
            "the user {USER} was not made: {why}; make it yourself: useradd --system --home-dir {SYSTEM_HOME} {USER}"
        );
    }
    for (name, unit) in units {
        put(&unit_path(true, name)?, unit)?;
    }
    enable(true)
}

/// What runs with the machine's rights must be nobody's to change but root's.
fn only_roots(program: &Path) -> anyhow::Result<()> {
    for place in program.ancestors() {
        let meta = fs::metadata(place).with_context(|| format!("{} is not there", place.display()))?;
        // Others may put things into a sticky directory, and not take ours away.
        let open = meta.mode() & 0o022 != 0 && !(meta.is_dir() && meta.mode() & 0o1000 != 0);
        if meta.uid() != 0 || open {
            bail!(
                "{} can be changed by others than root: install both programs first, \
                 as in: install -m 755 csn csn-shim /usr/local/bin/, and run that csn",
                place.display()
            );
        }
    }
    Ok(())
}

fn uninstall(system: bool) -> anyhow::Result<ExitCode> {
    let (files, there) = files(system)?;
    if !there {
        say("csn: no such service is installed");
        return Ok(ExitCode::SUCCESS);
    }
    // The one that would stop the tasks is taken out, and not stopped: they go on.
    let disabled = systemctl(system, &["disable", HALT]);
    if let Err(why) = disabled.and_then(|_| systemctl(system, &["disable", "--now", UNIT])) {
        say(&format!("csn: systemd has not stopped it: {why}"));
    }
    for path in &files {
        remove(path)?;
    }
    let _ = systemctl(system, &["daemon-reload"]);
    if system {
        say(&format!("csn: the user {USER} and {SYSTEM_HOME} stay: receipts are for keeping"));
    }
    say("csn: tasks that ran go on; the next daemon finds them");
    Ok(ExitCode::SUCCESS)
}

fn status(system: bool, as_json: bool) -> anyhow::Result<ExitCode> {
    let path = unit_path(system, UNIT)?;
    let installed = ours(&path).unwrap_or(false);
    // One word, also when the answer is no; more than one is why there is no answer.
    let ask = |verb: &str| {
        let said = systemctl(system, &[verb, UNIT]).unwrap_or_else(|said| said);
        let word = said.trim();
        if word.is_empty() || word.contains(' ') { "unknown".to_owned() } else { word.to_owned() }
    };
    let (enabled, active) = (ask("is-enabled"), ask("is-active"));
    let up = installed && active == "active";
    let mut out = io::stdout().lock();
    if as_json {
        let told = serde_json::json!({
            "v": 1, "unit": path, "installed": installed, "enabled": enabled, "active": active,
        });
        writeln!(out, "{told}")?;
    } else {
        writeln!(out, "unit     {}{}", path.display(), if installed { "" } else { " (not installed)" })?;
        writeln!(out, "enabled  {enabled}")?;
        writeln!(out, "active   {active}")?;
    }
    Ok(ExitCode::from(u8::from(!up)))
}
