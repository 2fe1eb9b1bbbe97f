//! `doctor`: gathers facts about the daemon, the home and the machine. The checks and their words are made in
//! `render/doctor.rs`. Exits with 1 when a check fails.

mod repair;

use super::check::load_rules;
use crate::{
    render::doctor::{DoctorFacts, DoctorReport, HomeDirectory, SigningKeyFile},
    target_home::{TargetHome, reach},
};
use countersign_model::{Status, Timestamp, api::TaskQuery};
use countersign_store::{Config, Home, ledger::LedgerReader};
use serde_json::{Value, json};
use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

pub(crate) fn doctor(as_json: bool, fix: bool) -> anyhow::Result<ExitCode> {
    let target = TargetHome::find()?;
    let repairs = if fix { [repair::fix(&target)?, remove_leftovers(&target.home)?].concat() } else { Vec::new() };
    let facts = gather_facts(&target)?;
    let report = DoctorReport::from_facts(&facts);
    let mut out = io::stdout().lock();
    if as_json {
        let life = facts.lifecycle.as_ref().ok();
        let daemon = life.map(|l| json!({"pid": l.pid, "version": l.version, "state": l.state}));
        let object = json!({
            "v": 1, "ok": report.is_healthy(), "daemon": daemon, "home": facts.home,
            "checks": report.json(), "fixed": repairs,
        });
        writeln!(out, "{object}")?;
    } else {
        write!(out, "{}", report.table(&repairs))?;
    }
    Ok(ExitCode::from(u8::from(!report.is_healthy())))
}

fn gather_facts(target: &TargetHome) -> anyhow::Result<DoctorFacts> {
    let TargetHome { home, client, own } = target;
    let probe = countersign_spawn::probe_shim().map_err(|e| e.to_string());
    let probe = probe.and_then(|text| serde_json::from_str::<Value>(&text).map_err(|e| e.to_string()));
    let shim_path = std::env::current_exe()?.with_file_name("csn-shim");
    let config = Config::load().map_err(anyhow::Error::from);
    let confine = config.as_ref().map(|config| config.confine).unwrap_or_default();
    let config = config.and_then(|config| Ok((config.profile, load_rules(&config)?.iter().count())));
    let bash = ["/bin/bash", "/usr/bin/bash"].map(PathBuf::from).into_iter().find(|path| path.exists());
    let agents = countersign_install::examine_installations().into_iter();
    Ok(DoctorFacts {
        csn_version: env!("CARGO_PKG_VERSION").to_owned(),
        home: home.path().to_owned(),
        own: *own,
        lifecycle: client.lifecycle().map_err(|e| e.to_string()),
        lock_holder: home.holder(),
        shim_is_dynamic: is_dynamic(&shim_path).map_err(|e| e.to_string()),
        shim_path,
        probe,
        home_directory: if *own { home_directory(home) } else { HomeDirectory::Missing },
        config: config.map_err(|e| e.to_string()),
        confine,
        // Only the system user reads the files of the system service.
        ledger: if *own { repair::examine(home) } else { Ok(String::new()) },
        signing_key: if *own { signing_key_file(home) } else { SigningKeyFile::Missing },
        free_mib: free_mib(home.path()),
        now: countersign_store::clock::now(),
        last_decision_at: if *own { last_decision_at(home) } else { None },
        bash,
        agents: agents.map(|(name, result)| (name, result.map_err(|why| why.to_string()))).collect(),
    })
}

fn home_directory(home: &Home) -> HomeDirectory {
    if std::fs::metadata(home.path()).is_err() {
        return HomeDirectory::Missing;
    }
    match home.prepare() {
        Err(e) => HomeDirectory::Unusable(e.to_string()),
        Ok(()) => {
            let id = LedgerReader::open(&home.ledger()).and_then(|ledger| ledger.home_id());
            HomeDirectory::Ready(id.ok().flatten())
        }
    }
}

fn signing_key_file(home: &Home) -> SigningKeyFile {
    use std::os::unix::fs::PermissionsExt as _;
    let path = home.keys().join("signing.key");
    match std::fs::metadata(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => SigningKeyFile::Missing,
        Err(e) => SigningKeyFile::Unreadable(format!("{}: {e}", path.display())),
        Ok(m) if m.permissions().mode() & 0o077 != 0 => SigningKeyFile::ReadableByOthers(path),
        Ok(_) => SigningKeyFile::Private,
    }
}

/// When the last decision was made. A ledger that cannot be read is reported by the check of the ledger.
fn last_decision_at(home: &Home) -> Option<Timestamp> {
    if !home.ledger().exists() {
        return None;
    }
    LedgerReader::open(&home.ledger()).and_then(|ledger| ledger.last_decision_at()).unwrap_or_default()
}

/// Whether a program is linked dynamically: then it names its loader in the first page.
fn is_dynamic(program: &Path) -> io::Result<bool> {
    let bytes = std::fs::read(program)?;
    let first_page = &bytes[..bytes.len().min(4096)];
    Ok(first_page.windows(8).any(|window| window == b"ld-linux"))
}

/// The free space of the file system that holds, or will hold, this path.
fn free_mib(path: &Path) -> Result<u64, String> {
    let mut at = path;
    let stat = loop {
        match (rustix::fs::statvfs(at), at.parent()) {
            (Ok(stat), _) => break stat,
            (Err(_), Some(parent)) => at = parent,
            (Err(e), None) => return Err(e.to_string()),
        }
    };
    Ok(stat.f_bavail * stat.f_frsize / (1024 * 1024))
}

/// Rebuilds the ledger's index and removes the sockets of tasks that have ended. Loses nothing.
fn remove_leftovers(home: &Home) -> anyhow::Result<Vec<String>> {
    let mut repairs = Vec::new();
    // Only the daemon may write the ledger, so the daemon rebuilds the index.
    let client = reach()?;
    client.rebuild()?;
    repairs.push("rebuilt the ledger's index from its decisions".to_owned());
    let mut running = Vec::new();
    let mut query = TaskQuery { status: Some(Status::Running), limit: Some(500), ..TaskQuery::default() };
    loop {
        let page = client.tasks(&query)?;
        running.extend(page.tasks.iter().map(|t| format!("{}.sock", t.task_id)));
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    // The run directory of the system service cannot be read here: its own daemon cleans it.
    for entry in std::fs::read_dir(home.run()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("tk_") && name.ends_with(".sock") && !running.contains(&name) {
            std::fs::remove_file(entry.path())?;
            repairs.push(format!("removed {name}, the socket of a task that has ended"));
        }
    }
    Ok(repairs)
}
