//! The daemon from start to stop: opens the home, builds the parts, connects them and runs them.

use crate::{
    calls::CommitHandle,
    commit::{CommitLoop, CommitParts, CommittedViews},
    desk::{Desk, TaskCaps},
    env,
    facts::GateSettings,
    http::{self, HttpState},
    ledger_state::{self, OpenedLedger},
    left_agent::AgentGroups,
    ops::{Ops, OpsParts, retention},
    receipts::{
        publish,
        sealing::{LaunchSecrets, Sealer, SealerParts},
    },
    records::Records,
    service,
    shims::{pool::ShimPool, recovery, registry::ShimRegistry},
    shutdown::{self, Signals},
    users::Users,
};
use anyhow::Context as _;
use countersign_model::{DaemonState, Decision, Digest, Record, RecordContent, Refusal, RefusalCode, TaskId};
use countersign_policy::CheckedRules;
use countersign_store::{Config, Home, SOCKET, SYSTEM_RUN, UnaskedReads, home_key, ledger::LedgerReader};
use std::{
    io::Write as _,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{net::UnixListener, sync::Notify};

/// How a daemon was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// In a terminal; it also listens on loopback.
    Foreground { tcp: Option<String> },
    /// By `csn up --detach` or by a client that needs a daemon. It prints one line, then closes its starter's streams.
    Detached,
    /// By a service manager, as a system service for every user of the machine.
    SystemService,
}

/// Runs the daemon until it is stopped. `shim` is the path of the supervisor program.
pub fn main(start: Start, shim: PathBuf) -> anyhow::Result<()> {
    countersign_shim::forbid_dumping();
    countersign_shim::configure_allocator();
    countersign_shim::descriptors::raise_limit();
    // A panic message may quote a secret; the log redacts it.
    std::panic::set_hook(Box::new(|info| crate::log!("panic: {info}")));
    if start == Start::Detached {
        countersign_shim::close_inherited_descriptors();
        let _ = rustix::process::setsid();
    }
    let home = Home::locate()?;
    let (users, socket) = users_and_socket(&start, &home)?;
    let (config, degraded) = Config::load_or_degrade()?;
    if let Some(why) = &degraded {
        crate::log!("degraded: only read-only commands may run: {why}");
    }
    let [rules, denies] = config.rules();
    let rules = CheckedRules::new(rules, denies)
        .map_err(|fault| config.rule_fault(fault.index, fault.hard, fault.to_string()))?;
    let user = countersign_redact::UserRules::new(&config.redaction())
        .map_err(|f| config.redaction_fault(f.index, f.message))?;
    countersign_redact::set_user_rules(user);
    home.prepare()?;
    let lock = home.lock()?;
    // The kernel hands the orphans of a killed shim to the daemon, so that it can end them.
    countersign_shim::become_subreaper().context("cannot become the reaper of orphaned processes")?;
    anyhow::ensure!(
        shim.is_file(),
        "the supervisor {} is missing; it must be in the same directory as csn; `cargo xtask build` puts it there",
        shim.display()
    );
    // One thread for sockets: what takes long has threads of its own, and two would wake each other for every call.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(32)
        .enable_all()
        .build()
        .context("cannot start the daemon's threads")?;
    let gate = Arc::new(gate_settings(&home, &config, rules, degraded)?);
    let DaemonParts { ops, commit_loop, sealer, ledger_damage, launched } =
        open(home, config, gate, shim, runtime.handle().clone(), users, socket)?;
    let listener = {
        let _guard = runtime.enter();
        listen(&ops.socket, ops.users.is_system_service())?
    };
    let commits = std::thread::Builder::new().name("commit".into()).spawn(move || commit_loop.run())?;
    std::thread::Builder::new().name("seal".into()).spawn(move || sealer.run())?;
    runtime.block_on(serve(ops, listener, launched, ledger_damage, start))?;
    runtime.shutdown_timeout(Duration::from_millis(100));
    let _ = commits.join();
    // Released last: no other daemon may start while the commit loop can write.
    drop(lock);
    Ok(())
}

/// The settings that the gate judges by.
fn gate_settings(
    home: &Home,
    config: &Config,
    rules: CheckedRules,
    degraded: Option<String>,
) -> anyhow::Result<GateSettings> {
    Ok(GateSettings {
        rules,
        protected: protected_directories(home),
        read_all: config.audience.personal.read == UnaskedReads::All,
        roots: real_roots(&config.roots),
        degraded,
        key: home_key(home).context("the home has no digest key")?,
        kernel: config.confine.kernel(countersign_shim::detect_kernel()),
        granted: config.confine.granted,
        network: config.confine.network,
        redaction: config.redaction(),
    })
}

/// A digest of everything that a verdict depends on, except the request, its facts and the grants.
fn policy_digest(config: &Config) -> anyhow::Result<Digest> {
    let [rules, denies] = config.rules();
    let settings = serde_json::json!({
        "rules": rules, "hard_deny": denies, "profile": config.profile, "roots": config.roots,
        "read_all": config.audience.personal.read == UnaskedReads::All, "granted": config.confine.granted,
        "network": config.confine.network, "landlock": config.confine.landlock,
    });
    let settings = serde_json::to_vec(&settings)?;
    let tables = countersign_policy::tables_digest();
    Ok(Digest::sha256(&[b"countersign.policy.v1:", env!("CARGO_PKG_VERSION").as_bytes(), tables.as_bytes(), &settings]))
}

/// Directories as they are written in the configuration, and their real paths.
fn real_roots(named: &[String]) -> Vec<String> {
    let real = |root: &String| std::fs::canonicalize(root).ok()?.into_os_string().into_string().ok();
    let mut roots: Vec<String> = named.iter().cloned().chain(named.iter().filter_map(real)).collect();
    roots.dedup();
    roots
}

/// The parts of the daemon, connected but not running.
struct DaemonParts {
    ops: Arc<Ops>,
    commit_loop: CommitLoop,
    sealer: Sealer,
    /// Notified when the ledger cannot be read.
    ledger_damage: Arc<Notify>,
    /// The tasks that earlier daemons launched.
    launched: Vec<TaskId>,
}

fn open(
    home: Home,
    config: Config,
    gate: Arc<GateSettings>,
    shim: PathBuf,
    runtime: tokio::runtime::Handle,
    users: Users,
    socket: PathBuf,
) -> anyhow::Result<DaemonParts> {
    let OpenedLedger { ledger, reader, desk, after_a_crash, home_id, reading_only } =
        ledger_state::open(&home, task_caps(&config), policy_digest(&config)?)?;
    if !reading_only.is_set() {
        delete_orphaned_requests(&home, &reader);
    }
    let (senders, views) = CommittedViews::from_desk(&desk, &ledger);
    let (handle, calls) = CommitHandle::new();
    let launch_secrets = LaunchSecrets::default();
    let (sealer, to_sealer, sealing) = Sealer::new(SealerParts {
        home: &home,
        home_id,
        users: &users,
        gate: &gate,
        ledger: &ledger,
        commit: &handle,
        roster: views.roster.clone(),
        launch_secrets: launch_secrets.clone(),
        after_a_crash,
        reading_only: reading_only.why(),
    })?;
    let registry =
        ShimRegistry::new(home.clone(), gate.key.clone(), handle.clone(), runtime, after_a_crash, sealing.clone());
    remember_shims(&registry, &desk, &reader)?;
    // Without the ledger it is not known what the running tasks were permitted: leave them alone.
    let launched = if reading_only.is_set() { Vec::new() } else { desk.launched_tasks() };
    let ledger_damage = Arc::new(Notify::new());
    let readers = ledger.reader_pool({
        let ledger_damage = Arc::clone(&ledger_damage);
        move || ledger_damage.notify_one()
    });
    let pool = ShimPool::start(shim, &home);
    let commit_loop = CommitLoop::new(CommitParts {
        home: home.clone(),
        users: users.clone(),
        gate: Arc::clone(&gate),
        ledger,
        reader,
        desk,
        handle: handle.clone(),
        calls,
        views: senders,
        pool,
        registry: Arc::clone(&registry),
        publisher: publish::spawn_publisher(&home, users.clone(), views.roster.clone())?,
        sealer: to_sealer.clone(),
        launch_secrets,
        ledger_damage: Arc::clone(&ledger_damage),
    })?;
    let records = Records::new(
        home.clone(),
        home_id,
        readers,
        views.roster.clone(),
        views.queue,
        sealing.clone(),
        Arc::clone(&registry),
    );
    let ops = Ops::new(OpsParts {
        home,
        config,
        gate,
        users,
        socket,
        records: Arc::new(records),
        registry,
        commit: handle,
        roster: views.roster,
        decision_count: views.decision_count,
        reading_only,
        sealer: to_sealer,
        sealing,
    });
    Ok(DaemonParts { ops: Arc::new(ops), commit_loop, sealer, ledger_damage, launched })
}

fn task_caps(config: &Config) -> TaskCaps {
    TaskCaps {
        session: config.limits.running_per_session,
        principal: config.limits.running_per_principal,
        total: config.limits.running,
    }
}

/// Must run before any caller is served: a process below a launched task's supervisor belongs to the task, also while
/// recovery still looks for the supervisor.
fn remember_shims(registry: &ShimRegistry, desk: &Desk, reader: &LedgerReader) -> anyhow::Result<()> {
    for task in desk.launched_tasks() {
        for (_, line) in reader.decisions(task, 0)? {
            // The supervisor is unknown if only the task's directory shows that it was launched.
            if let Ok(Record { what: RecordContent::Decision(Decision::Launched { shim_pid, .. }), .. }) =
                Record::parse(&line)
                && shim_pid > 0
            {
                registry.remember_shim(task, shim_pid);
            }
        }
    }
    Ok(())
}

/// The directories that no task may touch: their real paths, and the paths as written.
fn protected_directories(home: &Home) -> Vec<String> {
    let config = Config::path().and_then(|p| p.parent().map(std::path::Path::to_path_buf));
    let mut places = Vec::new();
    for path in [Some(home.path().to_path_buf()), config].into_iter().flatten() {
        places.extend(std::fs::canonicalize(&path).ok().and_then(|p| p.to_str().map(str::to_owned)));
        places.extend(path.to_str().map(str::to_owned));
    }
    places.dedup();
    places
}

/// Stores which processes are agents, so that clients recognise them while no daemon runs.
async fn store_agents(ops: Arc<Ops>) {
    let mut roster = ops.roster.clone();
    let mut groups = AgentGroups::default();
    loop {
        let now = Arc::clone(&roster.borrow_and_update());
        let known = Arc::clone(&now);
        let stored = crate::blocking(move || {
            groups.update(known.agents());
            groups
        });
        groups = stored.await.unwrap_or_default();
        if let Err(e) = countersign_store::save_agents(&ops.home, now.agents()) {
            crate::log!("the list of agent processes could not be stored: {e}");
        }
        if roster.changed().await.is_err() {
            return;
        }
    }
}

/// Deletes stored requests that no task waits for: never acknowledged, or left by a crash.
fn delete_orphaned_requests(home: &Home, reader: &LedgerReader) {
    let _ = countersign_store::waiting::remove_unfinished(home);
    let Ok(stored) = countersign_store::waiting::waiting_tasks(home) else { return };
    let Ok(asked) = reader.waiting_tasks() else { return };
    for task in stored.into_iter().filter(|task| !asked.contains(task)) {
        let _ = countersign_store::waiting::remove(home, task);
    }
}

/// The users that this daemon serves, and the socket that it listens on.
fn users_and_socket(start: &Start, home: &Home) -> anyhow::Result<(Users, PathBuf)> {
    let base = env::daemon_base_variables();
    if *start != Start::SystemService {
        return Ok((Users::for_own_user(base), home.socket()));
    }
    anyhow::ensure!(
        countersign_shim::can_act_for_other_users() && !rustix::process::geteuid().is_root(),
        "the system service needs its own user that may act for others; \
         `csn service install --system` installs a unit that starts it this way"
    );
    let door = std::env::var_os("RUNTIME_DIRECTORY").map_or_else(|| PathBuf::from(SYSTEM_RUN), PathBuf::from);
    Ok((Users::for_system_service(base), door.join(SOCKET)))
}

/// Every user may connect to a system service; the kernel tells the daemon who connects.
fn listen(socket: &std::path::Path, everybody: bool) -> anyhow::Result<UnixListener> {
    // This daemon holds the lock, so a socket that exists belongs to a daemon that has ended.
    let _ = std::fs::remove_file(socket);
    let failed = || format!("cannot listen on {}", socket.display());
    let (_dir, path) = Home::short_socket_path(socket.parent().with_context(failed)?, SOCKET).with_context(failed)?;
    let listener = UnixListener::bind(&path).with_context(failed)?;
    use std::os::unix::fs::PermissionsExt as _;
    let mode = if everybody { 0o666 } else { 0o600 };
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

async fn serve(
    ops: Arc<Ops>,
    listener: UnixListener,
    launched: Vec<TaskId>,
    ledger_damage: Arc<Notify>,
    start: Start,
) -> anyhow::Result<()> {
    let front = HttpState::new(Arc::clone(&ops));
    // Listen from the beginning: a daemon that is told to stop while it starts must stop in order, too.
    let mut signals = Signals::listen()?;
    ops.enter_state(DaemonState::Boot, None);
    let registry = Arc::clone(&ops.registry);
    // Before anybody is recognised: a walk that passes a shim that was not found yet must not be remembered.
    registry.unfound_shims.store(launched.len(), Ordering::Release);
    let server = tokio::spawn(http::serve_unix(Arc::clone(&front), listener));
    ops.enter_state(DaemonState::Recovering, None);
    crate::blocking(move || recovery::adopt_all(&registry, &launched)).await?;
    ops.wait_for_commits().await;
    ops.enter_state(DaemonState::Ready, None);
    ops.enter_state(DaemonState::Running, None);
    if !ops.reading_only.is_set() {
        let (records, reading_only) = (Arc::clone(&ops.records), Arc::clone(&ops.reading_only));
        tokio::spawn(ledger_state::watch(ops.home.clone(), records, reading_only, ledger_damage));
        tokio::spawn(retention::run_periodically(Arc::clone(&ops)));
        tokio::spawn(store_agents(Arc::clone(&ops)));
    }
    let tcp = match &start {
        Start::Foreground { tcp } => Some(open_loopback(&front, tcp.as_deref()).await),
        Start::Detached | Start::SystemService => None,
    };
    announce_ready(&ops.home, &ops.socket, &start, tcp)?;
    service::notify_ready(&format!("serves {}", ops.home.path().display()));
    tokio::spawn(service::notify_watchdog(ops.commit.clone(), ops.state.subscribe()));
    let reason = tokio::select! {
        () = ops.stop.notified() => "asked to stop",
        reason = signals.next() => reason,
    };
    let close = async {
        server.abort();
        let _ = server.await;
        let _ = std::fs::remove_file(&ops.socket);
    };
    shutdown::halt(&ops, reason, signals, close).await;
    Ok(())
}

async fn open_loopback(front: &Arc<HttpState>, wanted: Option<&str>) -> Result<std::net::SocketAddr, Refusal> {
    let wanted = match wanted {
        None => http::tcp::DEFAULT_ADDRESS,
        Some(text) => text.parse().map_err(|_| {
            Refusal::new(
                RefusalCode::BadRequest,
                format!("`{}` is not an address", countersign_model::DisplaySafe::bounded(text, 60)),
            )
            .hint("use --tcp 127.0.0.1:PORT")
        })?,
    };
    http::tcp::start_listener(front, wanted).await
}

/// Reports that the daemon serves. A detached daemon then closes its starter's streams.
fn announce_ready(
    home: &Home,
    socket: &std::path::Path,
    start: &Start,
    tcp: Option<Result<std::net::SocketAddr, Refusal>>,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    match start {
        Start::Foreground { .. } | Start::SystemService => {
            writeln!(out, "countersign {} serves {}", env!("CARGO_PKG_VERSION"), home.path().display())?;
            writeln!(out, "socket {}", socket.display())?;
            match tcp {
                Some(Ok(at)) => writeln!(out, "http://{at} (needs a token: csn token create)")?,
                Some(Err(refusal)) => {
                    writeln!(out, "not listening on loopback: {refusal}")?;
                    if let Some(hint) = &refusal.hint {
                        writeln!(out, "  {hint}")?;
                    }
                }
                None => {}
            }
        }
        Start::Detached => {
            use std::os::unix::fs::OpenOptionsExt as _;
            let log = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(home.log())?;
            let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
            writeln!(out, "ready {}", std::process::id())?;
            out.flush()?;
            rustix::stdio::dup2_stderr(&log)?;
            rustix::stdio::dup2_stdout(&null)?;
            crate::log!(
                "countersign {} serves {}, pid {}",
                env!("CARGO_PKG_VERSION"),
                home.path().display(),
                std::process::id()
            );
        }
    }
    Ok(())
}

/// The operations of a daemon with its own home, for tests. It commits decisions and seals receipts, but nothing
/// listens, and there is no supervisor program, so no task can run.
#[cfg(test)]
pub(crate) fn test_operations(
    directory: &std::path::Path,
    config: Config,
    degraded: Option<String>,
    runtime: &tokio::runtime::Handle,
) -> anyhow::Result<Arc<Ops>> {
    let home = Home::at(directory);
    home.prepare()?;
    let [rules, denies] = config.rules();
    let rules = CheckedRules::new(rules, denies).map_err(|fault| anyhow::anyhow!("rule {}: {fault}", fault.index))?;
    let gate = Arc::new(gate_settings(&home, &config, rules, degraded)?);
    let users = Users::for_own_user(env::daemon_base_variables());
    let (shim, socket) = (directory.join("no-supervisor"), home.socket());
    let DaemonParts { ops, commit_loop, sealer, .. } = open(home, config, gate, shim, runtime.clone(), users, socket)?;
    std::thread::spawn(move || commit_loop.run());
    std::thread::spawn(move || sealer.run());
    ops.enter_state(DaemonState::Running, None);
    Ok(ops)
}
