//! `doctor`: what holds and what does not. Exit 1 when something that matters does not.

mod repair;

use super::check::rules_of;
use crate::target_home::{TargetHome, reach};
use countersign_client::ClientError;
use countersign_model::{
    Confinement, GrantedSandbox, Kernel, Network, Status,
    api::{Lifecycle, TaskQuery},
};
use countersign_store::{Config, ConfineConfig, Home, ledger::LedgerReader};
use serde_json::{Value, json};
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

struct DoctorCheck {
    name: String,
    ok: bool,
    says: String,
}

/// What was looked at, and what was found.
#[derive(Default)]
struct DoctorReport(Vec<DoctorCheck>);

impl DoctorReport {
    fn add(&mut self, name: &str, result: Result<String, String>) {
        let ok = result.is_ok();
        let says = result.unwrap_or_else(|says| says);
        self.0.push(DoctorCheck { name: name.to_owned(), ok, says });
    }
}

pub(crate) fn doctor(as_json: bool, fix: bool) -> anyhow::Result<ExitCode> {
    let place = TargetHome::find()?;
    let fixed = if fix { [repair::fix(&place)?, fixes(&place.home)?].concat() } else { Vec::new() };
    let TargetHome { home, client, own } = place;
    let life = client.lifecycle();
    let probed = countersign_spawn::probe_shim().map_err(|e| e.to_string());
    let probed = probed.and_then(|text| serde_json::from_str::<Value>(&text).map_err(|e| e.to_string()));
    let mut checks = DoctorReport::default();
    checks.add("daemon", daemon(&life, &home, own));
    checks.add("versions", versions(&life));
    checks.add("supervisor", supervisor(probed.as_ref()));
    checks.add("kernel", kernel(probed.as_ref()));
    checks.add("home", directory(&home, own));
    checks.add("config", config());
    checks.add("ledger", ledger(&life, &home, own));
    checks.add("receipts", receipts(&life, &home, own));
    checks.add("disk", disk(&home));
    if own {
        checks.add("clock", clock(&home));
    }
    checks.add("shell", shell());
    let ceiling = Config::load().unwrap_or_default().confine;
    for (name, result) in confinement(probed.as_ref(), ceiling) {
        checks.add(name, result);
    }
    for (name, result) in countersign_install::examine() {
        checks.add(&name, result.map_err(|why| why.to_string()));
    }
    let daemon = life.ok().map(|l| json!({"pid": l.pid, "version": l.version, "state": l.state}));
    show(&checks, &fixed, as_json.then(|| json!({"daemon": daemon, "home": home.path()})))?;
    let well = checks.0.iter().all(|c| c.ok);
    Ok(ExitCode::from(u8::from(!well)))
}

/// As a table, or as one JSON object that holds `about` beside the checks.
fn show(checks: &DoctorReport, fixed: &[String], about: Option<Value>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Some(mut told) = about else {
        for line in fixed {
            writeln!(out, "done  {line}")?;
        }
        for c in &checks.0 {
            writeln!(out, "{}  {:<12} {}", if c.ok { "ok  " } else { "FAIL" }, c.name, c.says)?;
        }
        return Ok(());
    };
    let well = checks.0.iter().all(|c| c.ok);
    let all: Vec<Value> = checks.0.iter().map(|c| json!({"name": c.name, "ok": c.ok, "says": c.says})).collect();
    for (name, value) in [("v", json!(1)), ("ok", json!(well)), ("checks", json!(all)), ("fixed", json!(fixed))] {
        told[name] = value;
    }
    writeln!(out, "{told}")
}

type LifecycleResult = Result<Lifecycle, ClientError>;

fn daemon(life: &LifecycleResult, home: &Home, own: bool) -> Result<String, String> {
    match life {
        Ok(life) => Ok(format!("pid {}, version {}, {}", life.pid, life.version, text(&json!(life.state)))),
        Err(e) if !own => Err(format!("the house of this machine does not answer: {e}")),
        Err(_) if home.holder().is_none() => Ok("not running; `csn run` starts it".to_owned()),
        Err(e) => Err(format!("pid {} holds the house but does not answer: {e}", home.holder().unwrap_or(0))),
    }
}

fn versions(life: &LifecycleResult) -> Result<String, String> {
    match life {
        Ok(life) if life.version != env!("CARGO_PKG_VERSION") => Err(format!(
            "csn is {}, the daemon is {}: `csn down` and run again",
            env!("CARGO_PKG_VERSION"),
            life.version
        )),
        _ => Ok(env!("CARGO_PKG_VERSION").to_owned()),
    }
}

fn directory(home: &Home, own: bool) -> Result<String, String> {
    match std::fs::metadata(home.path()) {
        _ if !own => Ok(format!("{}, the machine's", home.path().display())),
        Ok(_) => home.prepare().map(|()| with_id(home)).map_err(|e| e.to_string()),
        Err(_) => Ok(format!("{} (not made yet)", home.path().display())),
    }
}

fn config() -> Result<String, String> {
    match Config::load().map_err(anyhow::Error::from).and_then(|c| Ok((rules_of(&c)?, c))) {
        Ok((rules, config)) => Ok(format!("profile {}, {} rules", text(&json!(config.profile)), rules.iter().count())),
        Err(e) => Err(e.to_string()),
    }
}

fn ledger(life: &LifecycleResult, home: &Home, own: bool) -> Result<String, String> {
    match life.as_ref().ok().and_then(|l| l.reading_only.clone()) {
        _ if !own => Ok("kept by the machine's house (sudo -u countersign csn verify)".to_owned()),
        Some(why) => Err(why),
        None => repair::examine(home),
    }
}

fn receipts(life: &LifecycleResult, home: &Home, own: bool) -> Result<String, String> {
    match life.as_ref().ok().and_then(|l| l.receipts.clone()) {
        Some(why) => Err(format!("not made out: {why}")),
        None if !own => Ok("made out and signed".to_owned()),
        None => keys(home),
    }
}

fn shell() -> Result<String, String> {
    match ["/bin/bash", "/usr/bin/bash"].iter().find(|p| std::path::Path::new(p).exists()) {
        Some(bash) => Ok((*bash).to_owned()),
        None => Err("no bash: shell text cannot run, argv can".to_owned()),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Where a home is, and its id if it has one yet.
fn with_id(home: &Home) -> String {
    let id = LedgerReader::open(&home.ledger()).and_then(|ledger| ledger.home_id()).ok().flatten();
    let path = home.path().display();
    id.map_or_else(|| path.to_string(), |id| format!("{path}, {id}"))
}

/// The keys, and whether nobody else can read them.
fn keys(home: &Home) -> Result<String, String> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = home.keys().join("signing.key");
    match std::fs::metadata(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok("no key yet; it is made at the first start".to_owned()),
        Err(e) => Err(format!("{}: {e}", path.display())),
        Ok(m) if m.permissions().mode() & 0o077 != 0 => {
            Err(format!("{} can be read by others: chmod 600 it, and csn keys rotate", path.display()))
        }
        Ok(_) => Ok("made out and signed".to_owned()),
    }
}

/// What can be put right without losing anything.
fn fixes(home: &Home) -> anyhow::Result<Vec<String>> {
    let mut done = Vec::new();
    // The house does it: only it may write the ledger.
    let client = reach()?;
    client.rebuild()?;
    done.push("the ledger's index was made anew from its decisions".to_owned());
    let mut ours = Vec::new();
    let mut query = TaskQuery { status: Some(Status::Running), limit: Some(500), ..TaskQuery::default() };
    loop {
        let page = client.tasks(&query)?;
        ours.extend(page.tasks.iter().map(|t| format!("{}.sock", t.task_id)));
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    // Of another's house only its own daemon tidies up.
    for entry in std::fs::read_dir(home.run()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("tk_") && name.ends_with(".sock") && !ours.contains(&name) {
            std::fs::remove_file(entry.path())?;
            done.push(format!("{name}, the socket of a task that is over, was removed"));
        }
    }
    Ok(done)
}

/// The wall clock stamps the record: one that went back would make it look out of order.
fn clock(home: &Home) -> Result<String, String> {
    let now = countersign_store::clock::now();
    let last = match home.ledger().exists() {
        // A ledger that does not read is told of where the ledger is.
        true => LedgerReader::open(&home.ledger()).and_then(|r| r.last_decision_at()).unwrap_or_default(),
        false => None,
    };
    match last {
        Some(last) if last > now => {
            Err(format!("it is {now}, but the last decision was taken at {last}: the clock went back"))
        }
        _ => Ok(now.to_string()),
    }
}

/// What each confinement comes to on this kernel.
fn confinement(probed: Result<&Value, &String>, config: ConfineConfig) -> Vec<(&'static str, Result<String, String>)> {
    let probed = match probed {
        Ok(probed) => probed,
        Err(e) => return vec![("confinement", Err(e.clone()))],
    };
    let landlock = probed["landlock_version"].as_u64().and_then(|v| u32::try_from(v).ok()).unwrap_or(0);
    let kernel = config.kernel(Kernel { landlock, seccomp: probed["features"]["seccomp"] == json!(true) });
    let version = match kernel.landlock {
        0 => "without Landlock".to_owned(),
        used if used < landlock => format!("Landlock {used} of {landlock}, as config.toml says"),
        used => format!("Landlock {used}"),
    };
    let lacks = |confinement| kernel.missing_parts(confinement).join(", ");
    let shield = match kernel.can_scope_signals() {
        true => format!("{version}: no signals, tracing or abstract sockets to the outside, no new rights"),
        false => format!("{version}: partial, no new rights only (lacks {})", lacks(Confinement::Shield)),
    };
    let read_only = match (kernel.can_enforce(Confinement::ReadOnly), kernel.can_scope_signals()) {
        (true, true) => "what only reads runs unasked: it writes nothing, reaches nobody, reads no keys".to_owned(),
        (true, false) => "what only reads runs unasked, and can signal nobody; with `timeout` it asks".to_owned(),
        (false, _) => "cannot be enforced here: what only reads asks instead".to_owned(),
    };
    let workspace = match kernel.can_enforce(Confinement::Workspace) {
        true => {
            let network = match (config.network, probed["features"]["own_network"] == json!(true)) {
                (Network::Open, true) => "network where it was accepted, else its own loopback",
                (Network::Open, false) => "network where it was accepted, else no sockets at all",
                (Network::None, true) => "no network but its own loopback",
                (Network::None, false) => "no network, no sockets at all",
            };
            let lacks = lacks(Confinement::Workspace);
            let lacks = if lacks.is_empty() { lacks } else { format!("; partial, lacks {lacks}") };
            format!(
                "for full_auto{}: {network}{lacks}",
                match config.granted {
                    GrantedSandbox::Narrow => " and what was accepted to write",
                    GrantedSandbox::Workspace => " and all that was accepted",
                    GrantedSandbox::Shield => "",
                }
            )
        }
        false => "cannot be enforced here: full_auto asks instead".to_owned(),
    };
    vec![("shield", Ok(shield)), ("read_only", Ok(read_only)), ("workspace", Ok(workspace))]
}

/// What the kernel offers a task.
fn kernel(probed: Result<&Value, &String>) -> Result<String, String> {
    let probed = probed.map_err(Clone::clone)?;
    let features = probed["features"].as_object().cloned().unwrap_or_default();
    let missing = |wanted: &[&str]| {
        wanted.iter().filter(|f| features.get(**f) != Some(&json!(true))).map(|f| (*f).to_owned()).collect::<Vec<_>>()
    };
    let needed = missing(&["pidfd", "pty", "children_list", "subreaper"]);
    let release = text(&probed["kernel"]);
    if !needed.is_empty() {
        return Err(format!("{release} lacks {}", needed.join(", ")));
    }
    let absent = missing(&["unnamed_files", "cgroup2", "landlock"]);
    let absent = if absent.is_empty() { String::new() } else { format!("; without {}", absent.join(", ")) };
    Ok(format!("{release}{absent}"))
}

fn supervisor(probed: Result<&Value, &String>) -> Result<String, String> {
    let csn = std::env::current_exe().map_err(|e| e.to_string())?;
    let shim = csn.with_file_name("csn-shim");
    let bytes =
        std::fs::read(&shim).map_err(|e| format!("{}: {e}; `cargo xtask build` puts it there", shim.display()))?;
    // A dynamic program names its loader in the first page.
    let dynamic = bytes.iter().take(4096).collect::<Vec<_>>().windows(8).any(|w| w.iter().copied().eq(b"ld-linux"));
    let kind = if dynamic { "dynamic (works; a static one starts faster)" } else { "static" };
    let version = text(&probed.map_err(|e| format!("{}: {e}", shim.display()))?["version"]);
    match version == env!("CARGO_PKG_VERSION") {
        true => Ok(format!("{}, {version}, {kind}", shim.display())),
        false => Err(format!(
            "{} is {version}, csn is {}: install both from one build",
            shim.display(),
            env!("CARGO_PKG_VERSION")
        )),
    }
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
