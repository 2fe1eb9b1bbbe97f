//! `service`: installs the daemon as a systemd unit: for one user, or as the system service with a system user.

use crate::{UsageError, args::ServiceCommand, say};
use anyhow::{Context as _, bail};
use countersign_client::Client;
use countersign_model::api::StopTasks;
use countersign_store::{Home, SOCKET, SYSTEM_HOME, SYSTEM_RUN};
use std::{
    fmt::Write as _,
    fs, io,
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

pub(crate) const UNIT: &str = "countersign.service";
/// The unit that stops tasks. It stops when the machine or the login session stops, and not when the daemon alone
/// stops: a restarted daemon must find its tasks again.
const HALT_UNIT: &str = "countersign-halt.service";
/// The first line of every file that this command writes. It never touches other files.
const FILE_HEADER: &str = "# Made by `csn service install`; `csn service uninstall` removes it.\n";
const SYSTEM_UNITS: &str = "/etc/systemd/system";
const SYSUSERS: &str = "/etc/sysusers.d/countersign.conf";
/// The system user of the system service.
const USER: &str = "countersign";

pub(crate) fn service(command: ServiceCommand) -> anyhow::Result<ExitCode> {
    match command {
        ServiceCommand::Install { system, print } => {
            let csn = std::env::current_exe()?.canonicalize()?;
            let unit = if system { system_unit(&csn)? } else { user_unit(&csn)? };
            let units = [(UNIT, unit), (HALT_UNIT, halt_unit(&csn, system)?)];
            if print {
                let [(_, unit), (_, halt)] = units;
                write!(io::stdout().lock(), "{unit}\n# {HALT_UNIT}\n{halt}")?;
                return Ok(ExitCode::SUCCESS);
            }
            if system { install_system_service(&csn, &units) } else { install_user_service(&units) }
        }
        ServiceCommand::Uninstall { system } => uninstall(system),
        ServiceCommand::Status { system, json } => status(system, json),
    }
}

/// The path of a user's own unit.
pub(crate) fn user_unit_path() -> anyhow::Result<PathBuf> {
    let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let config = var("XDG_CONFIG_HOME").or_else(|| var("HOME").map(|h| h.join(".config")));
    Ok(config.context("neither XDG_CONFIG_HOME nor HOME is set: set HOME")?.join("systemd/user").join(UNIT))
}

fn unit_path(system: bool, name: &str) -> anyhow::Result<PathBuf> {
    if system { Ok(Path::new(SYSTEM_UNITS).join(name)) } else { Ok(user_unit_path()?.with_file_name(name)) }
}

/// Quotes a path for a unit file: characters with a meaning for systemd are doubled.
fn quote_path(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().filter(|t| !t.contains(['\n', '"', '\\']));
    let text = text.with_context(|| {
        format!(
            "{} contains a quote, a backslash or a newline, which a unit cannot name: install csn elsewhere",
            path.display()
        )
    })?;
    Ok(format!("\"{}\"", text.replace('%', "%%").replace('$', "$$")))
}

/// The settings of both kinds of service. KillMode=process leaves shims alone, so that a restart keeps every task.
fn common_settings(start: &str) -> String {
    format!(
        "Type=notify\nNotifyAccess=main\nExecStart={start}\nKillMode=process\nRestart=on-failure\nRestartSec=1\n\
         WatchdogSec=30\nOOMPolicy=continue\nTimeoutStartSec=120\nTimeoutStopSec=60\nTasksMax=infinity\nLimitNOFILE=65536\n"
    )
}

/// Tasks outlive the daemon, but not the machine. At shutdown this unit stops them while the daemon can still record it.
fn halt_unit(csn: &Path, system: bool) -> anyhow::Result<String> {
    let (environment, target) = if system {
        (format!("Environment=COUNTERSIGN_SOCKET={SYSTEM_RUN}/{SOCKET}\n"), "multi-user.target")
    } else {
        (home_environment()?, "default.target")
    };
    Ok(format!(
        "{FILE_HEADER}[Unit]\nDescription=Countersign: stops tasks in order at shutdown\n\
         After={UNIT}\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n\
         ExecStop={} down --stop-tasks\nTimeoutStopSec=60\n{environment}\n\
         [Install]\nWantedBy={target}\n",
        quote_path(csn)?
    ))
}

/// The variables that name the home, if it is not the default one.
fn home_environment() -> anyhow::Result<String> {
    let mut lines = String::new();
    for name in ["COUNTERSIGN_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
        if let Some(value) = std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute()) {
            let value = quote_path(&value)?.replace("$$", "$");
            let _ = writeln!(lines, "Environment={}", value.replacen('"', &format!("\"{name}="), 1));
        }
    }
    Ok(lines)
}

fn user_unit(csn: &Path) -> anyhow::Result<String> {
    let mut unit =
        format!("{FILE_HEADER}[Unit]\nDescription=Countersign: runs and records the commands of AI agents\n\n");
    let _ = write!(unit, "[Service]\n{}", common_settings(&format!("{} up", quote_path(csn)?)));
    unit.push_str(&home_environment()?);
    unit.push_str("\n[Install]\nWantedBy=default.target\n");
    Ok(unit)
}

/// The system service has a user of its own: no task can read its files, and it may run tasks as other users.
fn system_unit(csn: &Path) -> anyhow::Result<String> {
    let start = common_settings(&format!("{} up --system", quote_path(csn)?));
    Ok(format!(
        "{FILE_HEADER}[Unit]\nDescription=Countersign: runs and records the commands of AI agents, for every user\n\
         After=local-fs.target nss-user-lookup.target\n\n\
         [Service]\n{start}User={USER}\nGroup={USER}\nUMask=0077\n\
         # To read files, run and end tasks as the users who ask. No rights over files or the machine.\n\
         AmbientCapabilities=CAP_SETUID CAP_SETGID CAP_KILL\n\
         Environment=COUNTERSIGN_HOME={SYSTEM_HOME} XDG_CONFIG_HOME=/etc\n\
         StateDirectory=countersign\nStateDirectoryMode=0700\nConfigurationDirectory=countersign\n\
         RuntimeDirectory=countersign\nRuntimeDirectoryMode=0755\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    ))
}

/// Whether a file exists. A file that `csn service` did not write is an error.
fn is_installed(path: &Path) -> anyhow::Result<bool> {
    match fs::read_to_string(path) {
        Ok(text) if text.starts_with(FILE_HEADER) => Ok(true),
        Ok(_) => bail!("{} exists and was not written by csn: move it away, then repeat the command", path.display()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e).with_context(|| format!("{} cannot be read", path.display())),
    }
}

/// The files of a service, and whether any of them exists. A foreign file is an error.
fn service_files(system: bool) -> anyhow::Result<(Vec<PathBuf>, bool)> {
    let mut all = vec![unit_path(system, UNIT)?, unit_path(system, HALT_UNIT)?];
    all.extend(system.then(|| PathBuf::from(SYSUSERS)));
    let mut any_exists = false;
    for path in &all {
        any_exists |= is_installed(path)?;
    }
    Ok((all, any_exists))
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let dir = path.parent().context("the path of a unit has no directory")?;
    let written = fs::create_dir_all(dir).and_then(|()| fs::write(path, text));
    written.with_context(|| format!("{} cannot be written", path.display()))?;
    say(&format!("csn: wrote {}", path.display()));
    Ok(())
}

fn remove_file(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => say(&format!("csn: removed {}", path.display())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e).with_context(|| format!("{} cannot be removed", path.display())),
    }
    Ok(())
}

/// Runs systemctl; the error is what it printed.
fn systemctl(system: bool, args: &[&str]) -> Result<String, String> {
    let user: &[&str] = if system { &[] } else { &["--user"] };
    run_manager("systemctl", &[user, args].concat())
}

fn run_manager(program: &str, args: &[&str]) -> Result<String, String> {
    match countersign_spawn::run_service_manager(program, args) {
        Ok((true, output)) => Ok(output),
        Ok((false, output)) => Err(output.trim().to_owned()),
        Err(e) => Err(format!("{program}: {e}")),
    }
}

fn enable_service(system: bool) -> anyhow::Result<ExitCode> {
    let mut done = systemctl(system, &["daemon-reload"]);
    if done.is_ok() && !system {
        stop_manual_daemon()?;
    }
    if done.is_ok() {
        done = systemctl(system, &["enable", "--now", UNIT, HALT_UNIT]);
    }
    match done {
        Ok(_) => {
            say("csn: the service runs and starts automatically from now on; to see it: csn service status");
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => {
            let user = if system { "" } else { "--user " };
            say(&format!("csn: systemd did not start the service: {why}"));
            say(&format!(
                "     the units are written; where systemd runs: systemctl {user}enable --now {UNIT} {HALT_UNIT}"
            ));
            Ok(ExitCode::FAILURE)
        }
    }
}

fn install_user_service(units: &[(&str, String)]) -> anyhow::Result<ExitCode> {
    if rustix::process::geteuid().is_root() && std::env::var_os("SUDO_USER").is_some() {
        return Err(UsageError(
            "install a user's service as that user, without sudo; for the system service add --system".to_owned(),
        )
        .into());
    }
    service_files(false)?;
    for (name, unit) in units {
        write_file(&unit_path(false, name)?, unit)?;
    }
    enable_service(false)
}

/// Stops a daemon that was started by hand, because it holds the home. Its tasks keep running.
fn stop_manual_daemon() -> anyhow::Result<()> {
    let home = Home::locate()?;
    if let Some(holder) = home.holder()
        && systemctl(false, &["is-active", UNIT]).is_err()
    {
        Client::new(home.socket()).stop(Some(StopTasks::Keep))?;
        Home::wait_for_exit(holder)?;
        say("csn: stopped the daemon that was started by hand; its tasks keep running");
    }
    Ok(())
}

fn install_system_service(csn: &Path, units: &[(&str, String)]) -> anyhow::Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        return Err(UsageError(
            "only root can install the system service: sudo csn service install --system".to_owned(),
        )
        .into());
    }
    for program in [csn.to_owned(), csn.with_file_name("csn-shim")] {
        ensure_only_root_can_change(&program)?;
    }
    service_files(true)?;
    write_file(Path::new(SYSUSERS), &format!("{FILE_HEADER}u {USER} - \"Countersign\" {SYSTEM_HOME}\n"))?;
    if let Err(why) = run_manager("systemd-sysusers", &[SYSUSERS]) {
        bail!("the user {USER} was not created: {why}; create it: useradd --system --home-dir {SYSTEM_HOME} {USER}");
    }
    for (name, unit) in units {
        write_file(&unit_path(true, name)?, unit)?;
    }
    enable_service(true)
}

/// Refuses a program that others than root can change: it will run with the rights of the system service.
fn ensure_only_root_can_change(program: &Path) -> anyhow::Result<()> {
    for path in program.ancestors() {
        let meta = fs::metadata(path).with_context(|| format!("{} cannot be examined", path.display()))?;
        // In a sticky directory others can add files, but not replace ours.
        let open = meta.mode() & 0o022 != 0 && !(meta.is_dir() && meta.mode() & 0o1000 != 0);
        if meta.uid() != 0 || open {
            bail!(
                "others than root can change {}: install both programs first (install -m 755 csn csn-shim \
                 /usr/local/bin/), then run /usr/local/bin/csn",
                path.display()
            );
        }
    }
    Ok(())
}

fn uninstall(system: bool) -> anyhow::Result<ExitCode> {
    let (files, any_exists) = service_files(system)?;
    if !any_exists {
        say("csn: this service is not installed");
        return Ok(ExitCode::SUCCESS);
    }
    // The halt unit is disabled but not stopped: stopping it would stop the tasks.
    let disabled = systemctl(system, &["disable", HALT_UNIT]);
    if let Err(why) = disabled.and_then(|_| systemctl(system, &["disable", "--now", UNIT])) {
        say(&format!("csn: systemd did not stop the service: {why}"));
    }
    for path in &files {
        remove_file(path)?;
    }
    let _ = systemctl(system, &["daemon-reload"]);
    if system {
        say(&format!("csn: the user {USER} and {SYSTEM_HOME} with its receipts remain"));
    }
    say("csn: running tasks keep running; the next daemon finds them");
    Ok(ExitCode::SUCCESS)
}

fn status(system: bool, as_json: bool) -> anyhow::Result<ExitCode> {
    let path = unit_path(system, UNIT)?;
    let installed = is_installed(&path).unwrap_or(false);
    // systemctl prints one word, also for a negative answer; several words are an error message.
    let ask = |verb: &str| {
        let output = systemctl(system, &[verb, UNIT]).unwrap_or_else(|output| output);
        let word = output.trim();
        if word.is_empty() || word.contains(' ') { "unknown".to_owned() } else { word.to_owned() }
    };
    let (enabled, active) = (ask("is-enabled"), ask("is-active"));
    let running = installed && active == "active";
    let mut out = io::stdout().lock();
    if as_json {
        let object = serde_json::json!({
            "v": 1, "unit": path, "installed": installed, "enabled": enabled, "active": active,
        });
        writeln!(out, "{object}")?;
    } else {
        writeln!(out, "unit     {}{}", path.display(), if installed { "" } else { " (not installed)" })?;
        writeln!(out, "enabled  {enabled}")?;
        writeln!(out, "active   {active}")?;
    }
    Ok(ExitCode::from(u8::from(!running)))
}
