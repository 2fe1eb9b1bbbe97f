//! The house from start to halt, in order.

use crate::{
    desk::{Caps, Event},
    env,
    facts::Gate,
    keeper::Keeper,
    office::{self, Call, Office},
    publish, recover, retention,
    spares::Spares,
    surface,
    wish::{Kept, Wish},
};
use anyhow::Context as _;
use countersign_model::{
    At, Code, Decision, HouseKey, HouseState, IdMint, KilledWhy, Record, Refusal, Register, Roster, TaskId, Text, What,
};
use countersign_shim::wire::ToShim;
use countersign_store::{
    Config, Home, Reads, clock, house_key,
    ledger::{Ledger, LedgerError, Reader, Readers},
    salvage::salvage,
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::Duration,
};
use tokio::{
    net::UnixListener,
    signal::unix::{SignalKind, signal},
    sync::{Notify, oneshot, watch},
};

/// How a daemon was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// In somebody's terminal; it listens on loopback too.
    Foreground { tcp: Option<String> },
    /// By `csn up --detach` or by a client that needed a house: says one line, then lets go of its starter.
    Detached,
}

/// What every surface needs.
pub(crate) struct House {
    pub(crate) home: Home,
    pub(crate) key: HouseKey,
    pub(crate) config: Config,
    pub(crate) gate: Arc<Gate>,
    pub(crate) base_env: BTreeMap<String, String>,
    pub(crate) readers: Readers,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) calls: mpsc::Sender<Call>,
    /// The tasks that wait for a slot, first come first.
    pub(crate) line: watch::Receiver<Arc<Vec<TaskId>>>,
    /// Sessions and credentials, as far as they are written.
    pub(crate) roster: watch::Receiver<Arc<Roster>>,
    /// How many decisions there are.
    pub(crate) head: watch::Receiver<i64>,
    /// The ledger cannot be used, for this reason: nothing is decided, what is on the disk can be read.
    pub(crate) reading_only: Option<String>,
    /// Where the house listens on loopback, if it does.
    pub(crate) tcp: tokio::sync::Mutex<Option<std::net::SocketAddr>>,
    pub(crate) state: watch::Sender<HouseState>,
    /// Held by whoever tidies up: one at a time.
    pub(crate) tidying: tokio::sync::Mutex<()>,
    pub(crate) stop: Notify,
    pub(crate) stop_tasks: std::sync::atomic::AtomicBool,
    pub(crate) started_at: At,
    pub(crate) recognised: surface::Recognised,
    pub(crate) projections: surface::Projections,
    pub(crate) maps: surface::Maps,
    pub(crate) pieces: surface::Pieces,
}

/// Runs a house until it is stopped. `shim` is the supervisor program.
pub fn main(start: Start, shim: PathBuf) -> anyhow::Result<()> {
    countersign_shim::not_dumpable();
    countersign_shim::give_back_large_buffers();
    // What went wrong may quote what it went wrong with.
    std::panic::set_hook(Box::new(|info| crate::log!("panic: {info}")));
    if start == Start::Detached {
        countersign_shim::close_inherited();
        let _ = rustix::process::setsid();
    }
    let home = Home::locate()?;
    let (config, degraded) = Config::load_or_degrade()?;
    if let Some(why) = &degraded {
        crate::log!("degraded, only what reads may run: {why}");
    }
    let [rules, denies] = config.rules();
    let rules = countersign_policy::Rules::new(rules, denies)
        .map_err(|fault| config.rule_fault(fault.index, fault.hard, fault.to_string()))?;
    let redaction = config.redaction();
    let user = countersign_redact::User::new(&redaction).map_err(|f| config.redaction_fault(f.index, f.message))?;
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
    let gate = Arc::new(Gate {
        rules,
        protected: own_places(&home),
        read_all: config.audience.personal.read == Reads::All,
        roots: real_roots(&config.roots),
        degraded,
        key: house_key(&home).context("the house has no digest key")?,
        kernel: config.confine.kernel(countersign_shim::kernel()),
        granted: config.confine.granted,
        network: config.confine.network,
        home: std::env::var("HOME").unwrap_or_default(),
        redaction,
    });
    let (house, office) = open(home, config, gate, shim, runtime.handle().clone())?;
    let listener = {
        let _guard = runtime.enter();
        listen(&house.home)?
    };
    // Without the ledger nobody knows what was launched with which leave: it is left alone.
    let launched = if house.reading_only.is_none() { office.desk.launched() } else { Vec::new() };
    let office = std::thread::Builder::new().name("office".into()).spawn(move || office.run())?;
    runtime.block_on(serve(Arc::clone(&house), listener, launched, start))?;
    runtime.shutdown_timeout(Duration::from_millis(100));
    let _ = office.join();
    // Last: as long as the office may write, no other daemon may.
    drop(lock);
    Ok(())
}

/// As they were named, and where they really are.
fn real_roots(named: &[String]) -> Vec<String> {
    let real = |root: &String| std::fs::canonicalize(root).ok()?.into_os_string().into_string().ok();
    let mut roots: Vec<String> = named.iter().cloned().chain(named.iter().filter_map(real)).collect();
    roots.dedup();
    roots
}

fn open(
    home: Home,
    config: Config,
    gate: Arc<Gate>,
    shim: PathBuf,
    runtime: tokio::runtime::Handle,
) -> anyhow::Result<(Arc<House>, Office)> {
    let key = gate.key.clone();
    let (ledger, reading_only) = match Ledger::open(&home.ledger()) {
        Ok(ledger) => (ledger, None),
        Err(e @ (LedgerError::Damaged { .. } | LedgerError::Newer { .. })) => {
            crate::log!("reading only: {e}");
            (salvage(&home, &home.run().join("reading-only.db"))?, Some(e.to_string()))
        }
        Err(e) => return Err(e.into()),
    };
    let path = ledger.path().to_owned();
    let reader = ledger.reader()?;
    let caps = Caps {
        session: config.limits.running_per_session,
        principal: config.limits.running_per_principal,
        house: config.limits.running,
    };
    let desk = office::restore(&reader, caps)?;
    let (line, in_line) = watch::channel(Arc::new(desk.line()));
    let (roster, known) = watch::channel(Arc::new(desk.register.roster.clone()));
    let (head, read_to) = watch::channel(ledger.last());
    let settled = publish::publisher(&home)?;
    if reading_only.is_none() {
        tidy_waiting(&home, &reader);
    }
    let (calls, called) = mpsc::channel();
    let keeper = Keeper::new(home.clone(), key.clone(), calls.clone(), runtime);
    for task in desk.launched() {
        // Known before anybody is let in: what is below them is a task's, also while they are looked for.
        for (_, line) in reader.decisions(task, 0)? {
            if let Ok(Record { what: What::Decision(Decision::Launched { shim_pid, .. }), .. }) = Record::parse(&line) {
                keeper.remember_shim(task, shim_pid);
            }
        }
    }
    let base_env = env::base_of_house();
    let office = Office {
        home: home.clone(),
        key: key.clone(),
        ledger,
        reader,
        desk,
        spares: Spares::stock(shim),
        keeper: Arc::clone(&keeper),
        calls: called,
        mint: IdMint::default(),
        gate: Arc::clone(&gate),
        line,
        roster,
        head,
        serving: false,
        look: office::looker(home.clone(), key.clone(), base_env.clone(), calls.clone())?,
        looking: HashSet::new(),
        settled,
        unwritten: Vec::new(),
        fresh_keys: HashMap::new(),
        joined: HashMap::new(),
    };
    let house = House {
        readers: Readers::new(&path),
        reading_only,
        home,
        key,
        config,
        gate,
        base_env,
        keeper,
        calls,
        line: in_line,
        roster: known,
        head: read_to,
        tcp: tokio::sync::Mutex::default(),
        state: watch::Sender::new(HouseState::Boot),
        tidying: tokio::sync::Mutex::new(()),
        stop: Notify::new(),
        stop_tasks: std::sync::atomic::AtomicBool::new(false),
        started_at: clock::now(),
        recognised: surface::Recognised::default(),
        projections: surface::Projections::default(),
        maps: surface::Maps::default(),
        pieces: surface::Pieces::default(),
    };
    Ok((Arc::new(house), office))
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

/// A raw request whose ask was never acknowledged, or whose end came with a crash, waits for nobody.
fn tidy_waiting(home: &Home, reader: &Reader) {
    let _ = countersign_store::waiting::sweep(home);
    let Ok(kept) = countersign_store::waiting::all(home) else { return };
    let Ok(asked) = reader.waiting_tasks() else { return };
    for task in kept.into_iter().filter(|task| !asked.contains(task)) {
        let _ = countersign_store::waiting::forget(home, task);
    }
}

fn listen(home: &Home) -> anyhow::Result<UnixListener> {
    let name = "csn.sock";
    // The lock is ours, so whoever bound this before is gone.
    let _ = std::fs::remove_file(home.socket());
    let (_dir, path) = Home::short(&home.run(), name)?;
    let listener =
        UnixListener::bind(&path).with_context(|| format!("cannot listen on {}", home.socket().display()))?;
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(home.socket(), std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn serve(house: Arc<House>, listener: UnixListener, launched: Vec<TaskId>, start: Start) -> anyhow::Result<()> {
    house.enter(HouseState::Recovering, None);
    let keeper = Arc::clone(&house.keeper);
    tokio::task::spawn_blocking(move || recover::adopt_all(&keeper, &launched)).await?;
    house.settled_so_far().await;
    house.enter(HouseState::Ready, None);
    let server = tokio::spawn(surface::serve(Arc::clone(&house), listener));
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    house.enter(HouseState::Running, None);
    if house.reading_only.is_none() {
        tokio::spawn(retention::tick(Arc::clone(&house)));
    }
    let tcp = match &start {
        Start::Foreground { tcp } => Some(open_loopback(&house, tcp.as_deref()).await),
        Start::Detached => None,
    };
    greet(&house.home, &start, tcp)?;
    let reason = tokio::select! {
        () = house.stop.notified() => "asked to stop",
        _ = term.recv() => "SIGTERM",
        _ = int.recv() => "SIGINT",
    };
    halt(&house, reason).await;
    server.abort();
    let _ = std::fs::remove_file(house.home.socket());
    Ok(())
}

async fn open_loopback(house: &Arc<House>, wanted: Option<&str>) -> Result<std::net::SocketAddr, Refusal> {
    let wanted = match wanted {
        None => std::net::SocketAddr::from(([127, 0, 0, 1], surface::tcp::PORT)),
        Some(text) => text.parse().map_err(|_| {
            Refusal::new(
                Code::BadRequest,
                format!("`{}` is not an address", countersign_model::Shown::bounded(text, 60)),
            )
            .hint("--tcp 127.0.0.1:PORT")
        })?,
    };
    surface::tcp::open(house, surface::router(house), wanted).await
}

/// Says that we serve. A detached daemon then lets go of whoever started it.
fn greet(home: &Home, start: &Start, tcp: Option<Result<std::net::SocketAddr, Refusal>>) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    match start {
        Start::Foreground { .. } => {
            writeln!(out, "countersign {} serves {}", env!("CARGO_PKG_VERSION"), home.path().display())?;
            writeln!(out, "socket {}", home.socket().display())?;
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

/// The ordered stop: admission, tasks (kept unless told otherwise), the ledger.
async fn halt(house: &Arc<House>, reason: &'static str) {
    house.enter(HouseState::Draining, Some(Text::of(reason)));
    if house.stop_tasks.load(std::sync::atomic::Ordering::SeqCst) {
        stop_all_tasks(house).await;
    }
    house.enter(HouseState::Cleanup, None);
    house.enter(HouseState::Halted, None);
    let (reply, done) = oneshot::channel();
    if house.calls.send(Call::Halt { reply }).is_ok() {
        let _ = tokio::time::timeout(Duration::from_secs(10), done).await;
    }
}

/// Cancels what runs and waits for it to settle, for as long as the ladder may take.
async fn stop_all_tasks(house: &Arc<House>) {
    let tasks = house.settled_so_far().await;
    let mut ends = tokio::task::JoinSet::new();
    for task in tasks {
        let house = Arc::clone(house);
        ends.spawn(async move {
            let mut bell = house.keeper.bell(task);
            let by = Text::of("shutdown");
            let cancel = move |re| ToShim::Cancel { re, by, reason: None, why: KilledWhy::Shutdown };
            if let Err(e) = house.keeper.operate(task, cancel).await {
                crate::log!("{task}: not stopped: {e}");
                return;
            }
            let settled = || house.readers.with(|r| Ok(!r.open_tasks()?.contains(&task))).unwrap_or(true);
            while !settled() {
                if bell.changed().await.is_err() {
                    break;
                }
            }
        });
    }
    let all = async { while ends.join_next().await.is_some() {} };
    if tokio::time::timeout(Duration::from_secs(30), all).await.is_err() {
        crate::log!("some tasks did not end in time; they are kept");
    }
}

impl House {
    pub(crate) fn enter(&self, state: HouseState, reason: Option<Text>) {
        self.state.send_replace(state);
        let _ = self.calls.send(Call::Tell(Event::House { state, reason }));
    }

    /// Looks something up in the register, as it is between two commits.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Register) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        let gone = || Refusal::new(Code::Draining, "the house is going down");
        let read = Box::new(move |register: &Register| drop(reply.send(read(register))));
        self.calls.send(Call::Read(read)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }

    /// Has something entered into the register; what came of it, once it is durable.
    pub(crate) async fn wish(&self, wish: Wish) -> Result<Kept, surface::Problem> {
        let (reply, answer) = oneshot::channel();
        let gone = || Refusal::new(Code::Draining, "the house is going down");
        self.calls.send(Call::Wish { wish, reply }).map_err(|_| gone())?;
        Ok(answer.await.map_err(|_| gone())??)
    }

    /// Nothing of this task is remembered: what it left on the disk goes.
    pub(crate) fn forget(&self, task: TaskId) {
        self.projections.forget(task);
        self.maps.forget(task);
        self.pieces.forget(task);
    }

    /// Waits until the office has written all that it was told; gives the tasks that are still on their way.
    pub(crate) async fn settled_so_far(&self) -> Vec<TaskId> {
        let (reply, done) = oneshot::channel();
        let _ = self.calls.send(Call::Barrier { reply });
        done.await.unwrap_or_default()
    }
}

/// The supervisor that belongs to this program: the one beside it.
#[must_use]
pub fn beside(csn: &Path) -> PathBuf {
    csn.with_file_name("csn-shim")
}
