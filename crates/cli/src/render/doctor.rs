//! What `csn doctor` tells: checks made from facts that `verbs/doctor.rs` gathers. Nothing here reads a file or asks
//! the daemon.

use super::text::count;
use countersign_model::{Confinement, GrantedSandbox, HomeId, Kernel, Network, Profile, Timestamp, api::Lifecycle};
use countersign_store::ConfineConfig;
use serde_json::{Value, json};
use std::{fmt::Write as _, path::PathBuf};

/// Below this much free space doctor reports a problem.
const MIN_FREE_MIB: u64 = 64;

/// Everything that the checks are made from.
pub(crate) struct DoctorFacts {
    pub(crate) csn_version: String,
    pub(crate) home: PathBuf,
    /// The home belongs to this user; otherwise it is the system service's.
    pub(crate) own: bool,
    pub(crate) lifecycle: Result<Lifecycle, String>,
    /// The process that holds the lock of the home.
    pub(crate) lock_holder: Option<u32>,
    pub(crate) shim_path: PathBuf,
    /// Whether the shim is linked dynamically, or why its file cannot be read.
    pub(crate) shim_is_dynamic: Result<bool, String>,
    /// What `csn-shim --probe` printed, or why it printed nothing.
    pub(crate) probe: Result<Value, String>,
    pub(crate) home_directory: HomeDirectory,
    /// The profile and the number of rules in config.toml, or why it cannot be read.
    pub(crate) config: Result<(Profile, usize), String>,
    pub(crate) confine: ConfineConfig,
    /// The condition of the ledger, from its files.
    pub(crate) ledger: Result<String, String>,
    pub(crate) signing_key: SigningKeyFile,
    pub(crate) free_mib: Result<u64, String>,
    pub(crate) now: Timestamp,
    pub(crate) last_decision_at: Option<Timestamp>,
    pub(crate) bash: Option<PathBuf>,
    /// Installed agents by check name, and whether their configuration is as it was installed.
    pub(crate) agents: Vec<(String, Result<String, String>)>,
}

/// The directory of the home.
pub(crate) enum HomeDirectory {
    Missing,
    Ready(Option<HomeId>),
    Unusable(String),
}

/// The file that holds the private key of receipts.
pub(crate) enum SigningKeyFile {
    Missing,
    Private,
    ReadableByOthers(PathBuf),
    Unreadable(String),
}

/// One check: a name, whether it passed, and one line about it.
pub(crate) struct DoctorCheck {
    pub(crate) name: String,
    pub(crate) ok: bool,
    pub(crate) message: String,
}

/// The checks in the order in which they are shown.
#[derive(Default)]
pub(crate) struct DoctorReport(Vec<DoctorCheck>);

impl DoctorReport {
    pub(crate) fn from_facts(facts: &DoctorFacts) -> Self {
        let mut report = Self::default();
        report.add("daemon", check_daemon(facts));
        report.add("versions", check_versions(facts));
        report.add("supervisor", check_shim(facts));
        report.add("kernel", check_kernel(&facts.probe));
        report.add("home", check_home(facts));
        report.add("config", check_config(facts));
        report.add("ledger", check_ledger(facts));
        report.add("receipts", check_receipts(facts));
        report.add("disk", check_disk(facts));
        if facts.own {
            report.add("clock", check_clock(facts));
        }
        report.add("shell", check_shell(facts));
        for (name, result) in check_confinements(&facts.probe, facts.confine) {
            report.add(name, result);
        }
        for (name, result) in &facts.agents {
            report.add(name, result.clone());
        }
        report
    }

    fn add(&mut self, name: &str, result: Result<String, String>) {
        let ok = result.is_ok();
        let message = result.unwrap_or_else(|problem| problem);
        self.0.push(DoctorCheck { name: name.to_owned(), ok, message });
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.0.iter().all(|check| check.ok)
    }

    /// The table that people read. `repairs` are the lines about what `--fix` did.
    pub(crate) fn table(&self, repairs: &[String]) -> String {
        let mut out = String::new();
        for line in repairs {
            let _ = writeln!(out, "done  {line}");
        }
        let width = self.0.iter().map(|check| label(&check.name).len()).max().unwrap_or(0);
        for check in &self.0 {
            let mark = if check.ok { "ok  " } else { "FAIL" };
            let _ = writeln!(out, "{mark}  {:<width$} {}", label(&check.name), check.message);
        }
        let failed = self.0.iter().filter(|check| !check.ok).count() as u64;
        if failed > 0 {
            let _ = writeln!(out, "{} found", count(failed, "problem"));
        }
        out
    }

    /// The checks as JSON, by their machine names.
    pub(crate) fn json(&self) -> Value {
        let check = |c: &DoctorCheck| json!({"name": c.name, "ok": c.ok, "says": c.message});
        self.0.iter().map(check).collect()
    }
}

/// The name of a check as people read it.
fn label(name: &str) -> &str {
    match name {
        "shield" => "without a sandbox",
        "workspace" => "workspace sandbox",
        "read_only" => "read-only sandbox",
        other => other,
    }
}

fn json_text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn check_daemon(facts: &DoctorFacts) -> Result<String, String> {
    match (&facts.lifecycle, facts.lock_holder) {
        (Ok(life), _) => Ok(format!("pid {}, version {}, {}", life.pid, life.version, json_text(&json!(life.state)))),
        (Err(e), _) if !facts.own => {
            Err(format!("the system service does not answer: {e}; see: csn service status --system"))
        }
        (Err(_), None) => Ok("not running; `csn run` starts it".to_owned()),
        (Err(e), Some(pid)) => {
            Err(format!("pid {pid} holds the home but does not answer: {e}; if it stays so, end that process"))
        }
    }
}

fn check_versions(facts: &DoctorFacts) -> Result<String, String> {
    let csn = &facts.csn_version;
    match &facts.lifecycle {
        Ok(life) if life.version != *csn => Err(format!(
            "csn is {csn}, the daemon is {}: run `csn down`; the next `csn run` starts {csn}",
            life.version
        )),
        _ => Ok(csn.clone()),
    }
}

fn check_shim(facts: &DoctorFacts) -> Result<String, String> {
    let (shim, csn) = (facts.shim_path.display(), &facts.csn_version);
    let dynamic = facts.shim_is_dynamic.clone();
    let dynamic = dynamic.map_err(|e| format!("{shim}: {e}; install csn-shim beside csn (`cargo xtask build`)"))?;
    let kind = if dynamic { "dynamic (works; a static one starts faster)" } else { "static" };
    let probe = facts.probe.as_ref().map_err(|e| format!("{shim}: {e}; install csn and csn-shim from one build"))?;
    let version = json_text(&probe["version"]);
    if version != *csn {
        return Err(format!("{shim} is {version}, csn is {csn}: install both from one build"));
    }
    Ok(format!("{shim}, {version}, {kind}"))
}

fn check_kernel(probe: &Result<Value, String>) -> Result<String, String> {
    let probe = probe.as_ref().map_err(Clone::clone)?;
    let missing = |wanted: &[&'static str]| -> Vec<&str> {
        wanted.iter().copied().filter(|feature| probe["features"][*feature] != json!(true)).collect()
    };
    let release = json_text(&probe["kernel"]);
    let required = missing(&["pidfd", "pty", "children_list", "subreaper"]);
    if !required.is_empty() {
        return Err(format!("{release} lacks {}, which tasks need: use a newer kernel", required.join(", ")));
    }
    let optional = missing(&["unnamed_files", "cgroup2", "landlock"]);
    let optional = if optional.is_empty() { String::new() } else { format!("; without {}", optional.join(", ")) };
    Ok(format!("{release}{optional}"))
}

fn check_home(facts: &DoctorFacts) -> Result<String, String> {
    let path = facts.home.display();
    match &facts.home_directory {
        _ if !facts.own => Ok(format!("{path}, of the system service")),
        HomeDirectory::Ready(Some(id)) => Ok(format!("{path}, {id}")),
        HomeDirectory::Ready(None) => Ok(path.to_string()),
        HomeDirectory::Missing => Ok(format!("{path} (created at the first start)")),
        HomeDirectory::Unusable(why) => Err(why.clone()),
    }
}

fn check_config(facts: &DoctorFacts) -> Result<String, String> {
    let (profile, rules) = facts.config.clone()?;
    Ok(format!("profile {}, {}", json_text(&json!(profile)), count(rules as u64, "rule")))
}

fn check_ledger(facts: &DoctorFacts) -> Result<String, String> {
    if !facts.own {
        return Ok("kept by the system service (to check it: sudo -u countersign csn verify)".to_owned());
    }
    match facts.lifecycle.as_ref().ok().and_then(|life| life.reading_only.clone()) {
        Some(why) => Err(why),
        None => facts.ledger.clone(),
    }
}

fn check_receipts(facts: &DoctorFacts) -> Result<String, String> {
    if let Some(why) = facts.lifecycle.as_ref().ok().and_then(|life| life.receipts.clone()) {
        return Err(format!("receipts are not being sealed: {why}"));
    }
    match &facts.signing_key {
        _ if !facts.own => Ok("sealed and signed".to_owned()),
        SigningKeyFile::Private => Ok("sealed and signed".to_owned()),
        SigningKeyFile::Missing => Ok("no signing key yet; the first start creates it".to_owned()),
        SigningKeyFile::ReadableByOthers(path) => {
            let path = path.display();
            Err(format!("other users can read {path}: run `chmod 600 {path}`, then `csn keys rotate`"))
        }
        SigningKeyFile::Unreadable(why) => Err(why.clone()),
    }
}

fn check_disk(facts: &DoctorFacts) -> Result<String, String> {
    let free = facts.free_mib.clone()?;
    if free < MIN_FREE_MIB {
        return Err(format!("{free} MiB free: tasks stop when the disk is full; to delete old output: csn gc"));
    }
    Ok(format!("{free} MiB free"))
}

/// Decisions carry the wall clock's time: a clock that went back makes the ledger look out of order.
fn check_clock(facts: &DoctorFacts) -> Result<String, String> {
    let now = facts.now;
    match facts.last_decision_at {
        Some(last) if last > now => {
            Err(format!("the clock went back: it is {now}, the last decision was made at {last}; set the clock"))
        }
        _ => Ok(now.to_string()),
    }
}

fn check_shell(facts: &DoctorFacts) -> Result<String, String> {
    match &facts.bash {
        Some(bash) => Ok(bash.display().to_string()),
        None => Err("there is no bash: shell text cannot run; install bash, or use `csn run -- PROGRAM`".to_owned()),
    }
}

/// What each confinement means on this kernel.
fn check_confinements(
    probe: &Result<Value, String>,
    config: ConfineConfig,
) -> Vec<(&'static str, Result<String, String>)> {
    let probe = match probe {
        Ok(probe) => probe,
        Err(e) => return vec![("confinement", Err(e.clone()))],
    };
    let landlock = probe["landlock_version"].as_u64().and_then(|v| u32::try_from(v).ok()).unwrap_or(0);
    let kernel = config.kernel(Kernel { landlock, seccomp: probe["features"]["seccomp"] == json!(true) });
    let version = match kernel.landlock {
        0 => "no Landlock".to_owned(),
        used if used < landlock => format!("Landlock {used} (config.toml sets the limit, the kernel has {landlock})"),
        used => format!("Landlock {used}"),
    };
    let lacks = |confinement| kernel.missing_parts(confinement).join(", ");
    let shield = if kernel.can_scope_signals() {
        format!("{version}: tasks cannot signal or trace other processes, and cannot gain privileges")
    } else {
        let lacks = lacks(Confinement::Shield);
        format!("{version}: partial: tasks cannot gain privileges; this kernel does not restrict {lacks}")
    };
    let read_only = match (kernel.can_enforce(Confinement::ReadOnly), kernel.can_scope_signals()) {
        (true, true) => {
            "known read-only commands run without approval: they cannot write, use the network or read credentials outside the workspace"
        }
        (true, false) => {
            "known read-only commands run without approval and cannot signal any process; with `timeout` they need one"
        }
        (false, _) => "this kernel cannot enforce it: known read-only commands need approval",
    };
    let own_network = probe["features"]["own_network"] == json!(true);
    vec![
        ("shield", Ok(shield)),
        ("read_only", Ok(read_only.to_owned())),
        ("workspace", Ok(workspace_sentence(kernel, config, own_network))),
    ]
}

fn workspace_sentence(kernel: Kernel, config: ConfineConfig, own_network: bool) -> String {
    if !kernel.can_enforce(Confinement::Workspace) {
        return "this kernel cannot enforce it: profile full_auto asks for approval instead".to_owned();
    }
    let network = match (config.network, own_network) {
        (Network::Open, true) => {
            "network for full_auto and where it was approved, otherwise only the task's own loopback"
        }
        (Network::Open, false) => "network for full_auto and where it was approved, otherwise no sockets",
        (Network::None, true) => "no network except the task's own loopback",
        (Network::None, false) => "no network and no sockets",
    };
    let used_for = match config.granted {
        GrantedSandbox::Narrow => "profile full_auto and approved commands that write",
        GrantedSandbox::Workspace => "profile full_auto and every approved command",
        GrantedSandbox::Shield => "profile full_auto",
    };
    let lacks = kernel.missing_parts(Confinement::Workspace).join(", ");
    let partial = if lacks.is_empty() { lacks } else { format!("; partial: this kernel does not restrict {lacks}") };
    format!("used for {used_for}: {network}{partial}")
}
