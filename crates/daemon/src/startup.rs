//! The house from start to halt, in order.

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
use countersign_store::{
    Config, Home, SYSTEM_RUN, SOCKET, UnaskedReads, home_key,
    ledger::{LedgerReader, LedgerReaderPool},
};
use std::{io::Write as _, path::PathBuf, sync::Arc, time::Duration};
use tokio::{net::UnixListener, sync::Notify};

/// How a daemon was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// In somebody's terminal; it listens on loopback too.
    Foreground { tcp: Option<String> },
    /// By `csn up --detach` or by a client that needed a house: says one line, then lets go of its starter.
    Detached,
    /// By a service manager, for every user of the machine.
    Machine,
}

/// Runs a house until it is stopped. `shim` is the supervisor program.
pub fn main(start: Start, shim: PathBuf) -> anyhow::Result<()> {
    countersign_shim::not_dumpable();
    countersign_shim::give_back_large_buffers();
    countersign_shim::descriptors::raise_limit();
    // What went wrong may quote what it went wrong with.
    std::panic::set_hook(Box::new(|info| crate::log!("panic: {info}")));
    if start == Start::Detached {
        countersign_shim::close_inherited();
        let _ = rustix::process::setsid();
    }
    let home = Home::locate()?;
    let (users, socket) = whom_to_serve(&start, &home)?;
    let (config, degraded) = Config::load_or_degrade()?;
    if let Some(why) = &degraded {
        crate::log!("degraded, only what reads may run: {why}");
    }
    let [rules, denies] = config.rules();
    let rules = CheckedRules::new(rules, denies)
        .map_err(|fault| config.rule_fault(fault.index, fault.hard, fault.to_string()))?;
    let user =
        countersign_redact::User::new(&config.redaction()).map_err(|f| config.redaction_fault(f.index, f.message))?;
    countersign_redact::install(user);
    home.prepare()?;
    let lock = home.lock()?;
    // Orphans of a shim that is killed come to us, so that they can be ended.
    countersign_shim::become_subreaper().context("cannot look after orphans")?;
    anyhow::ensure!(
        shim.is_file(),
        "the supervisor {} is missing: it must lie beside csn; `cargo xtask build` puts it there",
        shim.display()
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(32)
        .enable_all()
        .build()
        .context("no threads for the daemon")?;
    let gate = Arc::new(gate(&home, &config, rules, degraded)?);
    let DaemonParts { ops, commit_loop, sealer, suspected, launched } =
        open(home, config, gate, shim, runtime.handle().clone(), users, socket)?;
    let listener = {
        let _guard = runtime.enter();
        listen(&ops.socket, ops.users.is_machine())?
    };
    let commits = std::thread::Builder::new().name("office".into()).spawn(move || commit_loop.run())?;
    std::thread::Builder::new().name("seal".into()).spawn(move || sealer.run())?;
    runtime.block_on(serve(ops, listener, launched, suspected, start))?;
    runtime.shutdown_timeout(Duration::from_millis(100));
    let _ = commits.join();
    // Last: as long as the commit loop may write, no other daemon may.
    drop(lock);
    Ok(())
}

/// What the gate goes by, beside the request and the world.
fn gate(home: &Home, config: &Config, rules: CheckedRules, degraded: Option<String>) -> anyhow::Result<GateSettings> {
    Ok(GateSettings {
        rules,
        protected: own_places(home),
        read_all: config.audience.personal.read == UnaskedReads::All,
        roots: real_roots(&config.roots),
        degraded,
        key: home_key(home).context("the house has no digest key")?,
        kernel: config.confine.kernel(countersign_shim::kernel()),
        granted: config.confine.granted,
        network: config.confine.network,
        redaction: config.redaction(),
    })
}

/// All that a verdict depends on but the request, the world and the grants, as one digest.
fn policy(config: &Config) -> anyhow::Result<Digest> {
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

/// As they were named, and where they really are.
fn real_roots(named: &[String]) -> Vec<String> {
    let real = |root: &String| std::fs::canonicalize(root).ok()?.into_os_string().into_string().ok();
    let mut roots: Vec<String> = named.iter().cloned().chain(named.iter().filter_map(real)).collect();
    roots.dedup();
    roots
}

/// The daemon in its parts, wired and not yet running.
struct DaemonParts {
    ops: Arc<Ops>,
    commit_loop: CommitLoop,
    sealer: Sealer,
    /// Rung when something in the ledger does not read.
    suspected: Arc<Notify>,
    /// The tasks that earlier daemons have launched.
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
        ledger_state::open(&home, caps(&config), policy(&config)?)?;
    if !reading_only.is_set() {
        tidy_waiting(&home, &reader);
    }
    let (senders, views) = CommittedViews::of(&desk, &ledger);
    let (handle, calls) = CommitHandle::new();
    let given = LaunchSecrets::default();
    let (sealer, to_sealer, sealing) = Sealer::new(SealerParts {
        home: &home,
        home_id,
        users: &users,
        gate: &gate,
        ledger: &ledger,
        commit: &handle,
        roster: views.roster.clone(),
        given: given.clone(),
        after_a_crash,
        reading_only: reading_only.why(),
    })?;
    let registry =
        ShimRegistry::new(home.clone(), gate.key.clone(), handle.clone(), runtime, after_a_crash, sealing.clone());
    remember_shims(&registry, &desk, &reader)?;
    // Without the ledger nobody knows what was launched with which leave: it is left alone.
    let launched = if reading_only.is_set() { Vec::new() } else { desk.launched() };
    let suspected = Arc::new(Notify::new());
    let readers = LedgerReaderPool::new(ledger.path(), {
        let suspected = Arc::clone(&suspected);
        move || suspected.notify_one()
    });
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
        pool: ShimPool::stock(shim),
        registry: Arc::clone(&registry),
        publisher: publish::publisher(&home, users.clone(), views.roster.clone())?,
        sealer: to_sealer.clone(),
        given,
        suspected: Arc::clone(&suspected),
    })?;
    let records = Records::new(
        home.clone(),
        home_id,
        readers,
        views.roster.clone(),
        views.line,
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
        head: views.head,
        reading_only,
        sealer: to_sealer,
        sealing,
    });
    Ok(DaemonParts { ops: Arc::new(ops), commit_loop, sealer, suspected, launched })
}

fn caps(config: &Config) -> TaskCaps {
    TaskCaps {
        session: config.limits.running_per_session,
        principal: config.limits.running_per_principal,
        total: config.limits.running,
    }
}

/// Known before anybody is let in: what is below a launched task's supervisor is the task's, also while it is looked for.
fn remember_shims(registry: &ShimRegistry, desk: &Desk, reader: &LedgerReader) -> anyhow::Result<()> {
    for task in desk.launched() {
        for (_, line) in reader.decisions(task, 0)? {
            // Of a task that only its directory tells of, the supervisor is not known.
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

/// The directories that no task may touch, as they are and as they were written.
fn own_places(home: &Home) -> Vec<String> {
    let config = Config::path().and_then(|p| p.parent().map(std::path::Path::to_path_buf));
    let mut places = Vec::new();
    for path in [Some(home.path().to_path_buf()), config].into_iter().flatten() {
        places.extend(std::fs::canonicalize(&path).ok().and_then(|p| p.to_str().map(str::to_owned)));
        places.extend(path.to_str().map(str::to_owned));
    }
    places.dedup();
    places
}

/// Whoever is known for an agent stays one while no daemon is there to ask.
async fn keep_agents(ops: Arc<Ops>) {
    let mut roster = ops.roster.clone();
    let mut groups = AgentGroups::default();
    loop {
        let now = Arc::clone(&roster.borrow_and_update());
        let known = Arc::clone(&now);
        let kept = crate::blocking(move || {
            groups.keep(known.agents());
            groups
        });
        groups = kept.await.unwrap_or_default();
        if let Err(e) = countersign_store::save_agents(&ops.home, now.agents()) {
            crate::log!("who is an agent could not be kept: {e}");
        }
        if roster.changed().await.is_err() {
            return;
        }
    }
}

/// A raw request whose ask was never acknowledged, or whose end came with a crash, waits for nobody.
fn tidy_waiting(home: &Home, reader: &LedgerReader) {
    let _ = countersign_store::waiting::remove_unfinished(home);
    let Ok(kept) = countersign_store::waiting::waiting_tasks(home) else { return };
    let Ok(asked) = reader.waiting_tasks() else { return };
    for task in kept.into_iter().filter(|task| !asked.contains(task)) {
        let _ = countersign_store::waiting::remove(home, task);
    }
}

/// Whom this house serves, and where it listens for them.
fn whom_to_serve(start: &Start, home: &Home) -> anyhow::Result<(Users, PathBuf)> {
    let base = env::base_of_house();
    if *start != Start::Machine {
        return Ok((Users::own(base), home.socket()));
    }
    anyhow::ensure!(
        countersign_shim::acts_for_others() && !rustix::process::geteuid().is_root(),
        "a house of the machine needs a user of its own that may act for others: \
         `csn service install --system` makes the unit that starts it so"
    );
    let door = std::env::var_os("RUNTIME_DIRECTORY").map_or_else(|| PathBuf::from(SYSTEM_RUN), PathBuf::from);
    Ok((Users::of_the_machine(base), door.join(SOCKET)))
}

/// The kernel says who comes: everybody may knock at the door of a house of the machine.
fn listen(socket: &std::path::Path, everybody: bool) -> anyhow::Result<UnixListener> {
    // The lock is ours, so whoever bound this before is gone.
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
    suspected: Arc<Notify>,
    start: Start,
) -> anyhow::Result<()> {
    let front = HttpState::new(Arc::clone(&ops));
    // From the first moment: a house that is told to go while it comes up goes in order, too.
    let mut signals = Signals::listen()?;
    ops.enter(DaemonState::Boot, None);
    let server = tokio::spawn(http::serve_unix(Arc::clone(&front), listener));
    ops.enter(DaemonState::Recovering, None);
    let registry = Arc::clone(&ops.registry);
    crate::blocking(move || recovery::adopt_all(&registry, &launched)).await?;
    ops.settled_so_far().await;
    ops.enter(DaemonState::Ready, None);
    ops.enter(DaemonState::Running, None);
    if !ops.reading_only.is_set() {
        let (records, reading_only) = (Arc::clone(&ops.records), Arc::clone(&ops.reading_only));
        tokio::spawn(ledger_state::watch(ops.home.clone(), records, reading_only, suspected));
        tokio::spawn(retention::tick(Arc::clone(&ops)));
        tokio::spawn(keep_agents(Arc::clone(&ops)));
    }
    let tcp = match &start {
        Start::Foreground { tcp } => Some(open_loopback(&front, tcp.as_deref()).await),
        Start::Detached | Start::Machine => None,
    };
    greet(&ops.home, &ops.socket, &start, tcp)?;
    service::ready(&format!("serves {}", ops.home.path().display()));
    tokio::spawn(service::watchdog(ops.commit.clone(), ops.state.subscribe()));
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
        None => http::tcp::DEFAULT,
        Some(text) => text.parse().map_err(|_| {
            Refusal::new(
                RefusalCode::BadRequest,
                format!("`{}` is not an address", countersign_model::DisplaySafe::bounded(text, 60)),
            )
            .hint("--tcp 127.0.0.1:PORT")
        })?,
    };
    http::tcp::open(front, wanted).await
}

/// Says that we serve. A detached daemon then lets go of whoever started it.
fn greet(
    home: &Home,
    socket: &std::path::Path,
    start: &Start,
    tcp: Option<Result<std::net::SocketAddr, Refusal>>,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    match start {
        Start::Foreground { .. } | Start::Machine => {
            writeln!(out, "countersign {} serves {}", env!("CARGO_PKG_VERSION"), home.path().display())?;
            writeln!(out, "socket {}", socket.display())?;
            match tcp {
                Some(Ok(at)) => writeln!(out, "http://{at} for those who have a token (csn token create)")?,
                Some(Err(refusal)) => {
                    writeln!(out, "not on loopback: {refusal}")?;
                    refusal.hint.iter().try_for_each(|hint| writeln!(out, "  {hint}"))?;
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

/// The operations of a daemon over a home of their own, for tests: decisions are committed and receipts are made out, but
/// nothing listens, and there is no supervisor program, so that nothing can run.
#[cfg(test)]
pub(crate) fn operations(
    directory: &std::path::Path,
    config: Config,
    runtime: &tokio::runtime::Handle,
) -> anyhow::Result<Arc<Ops>> {
    let home = Home::at(directory);
    home.prepare()?;
    let [rules, denies] = config.rules();
    let rules = CheckedRules::new(rules, denies).map_err(|fault| anyhow::anyhow!("rule {}: {fault}", fault.index))?;
    let gate = Arc::new(gate(&home, &config, rules, None)?);
    let users = Users::own(env::base_of_house());
    let (shim, socket) = (directory.join("no-supervisor"), home.socket());
    let DaemonParts { ops, commit_loop, sealer, .. } = open(home, config, gate, shim, runtime.clone(), users, socket)?;
    std::thread::spawn(move || commit_loop.run());
    std::thread::spawn(move || sealer.run());
    ops.enter(DaemonState::Running, None);
    Ok(ops)
}
