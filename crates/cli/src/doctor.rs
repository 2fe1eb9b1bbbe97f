//! `doctor`: what holds and what does not. Exit 1 when something that matters does not.

use countersign_client::Client;
use countersign_store::{Config, Home, ledger::Reader};
use serde_json::{Value, json};
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

struct Check {
    name: &'static str,
    ok: bool,
    says: String,
}

pub(crate) fn doctor(as_json: bool) -> anyhow::Result<ExitCode> {
    let home = Home::locate()?;
    let life = Client::new(home.socket()).lifecycle();
    let mut checks = Vec::new();
    let mut check = |name, result: Result<String, String>| {
        let (ok, says) = match result {
            Ok(says) => (true, says),
            Err(says) => (false, says),
        };
        checks.push(Check { name, ok, says });
    };
    check(
        "daemon",
        match &life {
            Ok(life) => Ok(format!("pid {}, version {}, {}", life.pid, life.version, text(&json!(life.state)))),
            Err(_) if home.holder().is_none() => Ok("not running; `csn run` starts it".to_owned()),
            Err(e) => Err(format!("pid {} holds the house but does not answer: {e}", home.holder().unwrap_or(0))),
        },
    );
    check(
        "versions",
        match &life {
            Ok(life) if life.version != env!("CARGO_PKG_VERSION") => Err(format!(
                "csn is {}, the daemon is {}: `csn down` and run again",
                env!("CARGO_PKG_VERSION"),
                life.version
            )),
            _ => Ok(env!("CARGO_PKG_VERSION").to_owned()),
        },
    );
    check("supervisor", supervisor());
    check(
        "home",
        match std::fs::metadata(home.path()) {
            Ok(_) => home.prepare().map(|()| home.path().display().to_string()).map_err(|e| e.to_string()),
            Err(_) => Ok(format!("{} (not made yet)", home.path().display())),
        },
    );
    check(
        "config",
        match Config::load() {
            Ok(config) => Ok(format!("profile {}", text(&json!(config.profile)))),
            Err(e) => Err(e.to_string()),
        },
    );
    check(
        "ledger",
        match home.ledger().exists() {
            false => Ok("none yet".to_owned()),
            true => match Reader::open(&home.ledger()).and_then(|r| Ok((r.check()?, r.head()?))) {
                Ok((None, (n, _))) => Ok(format!("{n} decisions, chain whole")),
                Ok((Some(wrong), _)) => Err(wrong),
                Err(e) => Err(e.to_string()),
            },
        },
    );
    check("disk", disk(&home));
    check(
        "shell",
        match ["/bin/bash", "/usr/bin/bash"].iter().find(|p| std::path::Path::new(p).exists()) {
            Some(bash) => Ok((*bash).to_owned()),
            None => Err("no bash: shell text cannot run, argv can".to_owned()),
        },
    );
    check("confinement", Ok("none: tasks run with your rights (see docs/security.md)".to_owned()));
    let well = checks.iter().all(|c| c.ok);
    let mut out = io::stdout().lock();
    if as_json {
        let daemon = life.ok().map(|l| json!({"pid": l.pid, "version": l.version, "state": l.state}));
        let checks: Vec<Value> = checks.iter().map(|c| json!({"name": c.name, "ok": c.ok, "says": c.says})).collect();
        writeln!(out, "{}", json!({"v": 1, "ok": well, "daemon": daemon, "home": home.path(), "checks": checks}))?;
    } else {
        for c in &checks {
            writeln!(out, "{}  {:<12} {}", if c.ok { "ok  " } else { "FAIL" }, c.name, c.says)?;
        }
    }
    Ok(ExitCode::from(u8::from(!well)))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn supervisor() -> Result<String, String> {
    let csn = std::env::current_exe().map_err(|e| e.to_string())?;
    let shim = csn.with_file_name("csn-shim");
    let bytes =
        std::fs::read(&shim).map_err(|e| format!("{}: {e}; `cargo xtask build` puts it there", shim.display()))?;
    // A dynamic program names its loader in the first page.
    let dynamic = bytes.iter().take(4096).collect::<Vec<_>>().windows(8).any(|w| w.iter().copied().eq(b"ld-linux"));
    let kind = if dynamic { "dynamic (works; a static one starts faster)" } else { "static" };
    Ok(format!("{}, {kind}", shim.display()))
}

fn disk(home: &Home) -> Result<String, String> {
    let mut at = home.path();
    let stat = loop {
        match (rustix::fs::statvfs(at), at.parent()) {
            (Ok(stat), _) => break stat,
            (Err(_), Some(parent)) => at = parent,
            (Err(e), None) => return Err(e.to_string()),
        }
    };
    let free = stat.f_bavail * stat.f_frsize / (1024 * 1024);
    match free < 64 {
        true => Err(format!("{free} MiB free: tasks will stop when the disk is full")),
        false => Ok(format!("{free} MiB free")),
    }
}
