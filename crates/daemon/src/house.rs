//! The house from start to halt, in order.

use crate::{
    descriptors::Descriptors,
    desk::{Caps, Event},
    env,
    facts::Gate,
    halt::{self, Signals},
    keeper::Keeper,
    ledger_state::{self, Opened, ReadingOnly},
    left_agent::Groups,
    office::{self, Call, Office},
    people::{Eyes, People},
    publish, recover, retention,
    seal::{self, Sealer, Sealing, Work},
    service,
    spares::Spares,
    surface,
    wish::{Kept, Wish},
};
use anyhow::Context as _;
use countersign_model::{
    At, Code, Decision, Digest, HouseKey, HouseState, IdMint, Login, PrincipalId, Record, Refusal, Register, Roster,
    ShutdownStep, TaskId, TaskState, Text, What,
};
use countersign_redact::text_by_shape;
use countersign_store::{
    Config, Home, MACHINE_RUN, Reads, SOCKET, TasksAtStop, clock, house_key,
    ledger::{Reader, Readers},
};
use std::{
    collections::{HashMap, HashSet},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::Duration,
};
use tokio::{
    net::UnixListener,
    sync::{Notify, oneshot, watch},
};

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

/// So many requests of one principal are looked at at once; there are four times as many threads for it.
const TURNS: usize = 8;

/// What every surface needs.
pub(crate) struct House {
    pub(crate) home: Home,
    pub(crate) key: HouseKey,
    pub(crate) config: Config,
    pub(crate) gate: Arc<Gate>,
    pub(crate) people: People,
    /// Where it listens.
    pub(crate) socket: PathBuf,
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
    pub(crate) reading_only: ReadingOnly,
    /// Rung when something in the ledger does not read.
    pub(crate) suspected: Arc<Notify>,
    /// Where the house listens on loopback, if it does.
    pub(crate) tcp: tokio::sync::Mutex<Option<std::net::SocketAddr>>,
    pub(crate) state: watch::Sender<HouseState>,
    /// Held by whoever tidies up: one at a time.
    pub(crate) tidying: tokio::sync::Mutex<()>,
    /// How many requests of each principal are looked at at once.
    pub(crate) turns: std::sync::Mutex<HashMap<PrincipalId, Arc<tokio::sync::Semaphore>>>,
    /// Who makes out receipts, and whether that works.
    pub(crate) sealer: mpsc::Sender<Work>,
    pub(crate) sealing: watch::Receiver<Sealing>,
    /// Why the house is in its state, and how its going down has gone so far.
    pub(crate) reason: watch::Sender<Option<Text>>,
    pub(crate) last_steps: watch::Sender<Vec<ShutdownStep>>,
    pub(crate) stop: Notify,
    pub(crate) stop_tasks: std::sync::atomic::AtomicBool,
    pub(crate) started_at: At,
    pub(crate) recognised: surface::Recognised,
    pub(crate) projections: surface::Projections,
    pub(crate) maps: surface::Maps,
    pub(crate) checked: surface::Checked,
    pub(crate) pieces: surface::Pieces,
    pub(crate) tickets: surface::Tickets,
    pub(crate) mcp: surface::Connections,
    pub(crate) crowd: surface::Crowd,
    pub(crate) descriptors: Arc<Descriptors>,
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
    let (people, socket) = whom_to_serve(&start, &home)?;
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
        redaction,
    });
    let (house, office, sealer, work) = open(home, config, gate, shim, runtime.handle().clone(), people, socket)?;
    let listener = {
        let _guard = runtime.enter();
        listen(&house.socket, house.people.is_machine())?
    };
    // Without the ledger nobody knows what was launched with which leave: it is left alone.
    let launched = if !house.reading_only.is_set() { office.desk.launched() } else { Vec::new() };
    let office = std::thread::Builder::new().name("office".into()).spawn(move || office.run())?;
    std::thread::Builder::new().name("seal".into()).spawn(move || sealer.run(&work))?;
    runtime.block_on(serve(Arc::clone(&house), listener, launched, start))?;
    runtime.shutdown_timeout(Duration::from_millis(100));
    let _ = office.join();
    // Last: as long as the office may write, no other daemon may.
    drop(lock);
    Ok(())
}

/// All that a verdict depends on but the request, the world and the grants, as one digest.
fn policy(config: &Config) -> anyhow::Result<Digest> {
    let [rules, denies] = config.rules();
    let settings = serde_json::json!({
        "rules": rules, "hard_deny": denies, "profile": config.profile, "roots": config.roots,
        "read_all": config.audience.personal.read == Reads::All, "granted": config.confine.granted,
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

fn open(
    home: Home,
    config: Config,
    gate: Arc<Gate>,
    shim: PathBuf,
    runtime: tokio::runtime::Handle,
    people: People,
    socket: PathBuf,
) -> anyhow::Result<(Arc<House>, Office, Sealer, mpsc::Receiver<Work>)> {
    let key = gate.key.clone();
    let caps = Caps {
        session: config.limits.running_per_session,
        principal: config.limits.running_per_principal,
        house: config.limits.running,
    };
    let Opened { ledger, reader, desk, keys, after_a_crash, reading_only } =
        ledger_state::open(&home, caps, policy(&config)?)?;
    let path = ledger.path().to_owned();
    let suspected = Arc::new(Notify::new());
    let (line, in_line) = watch::channel(Arc::new(desk.line()));
    let (roster, known) = watch::channel(Arc::new(desk.register.roster.clone()));
    let (head, read_to) = watch::channel(ledger.last());
    let settled = publish::publisher(&home, people.clone(), known.clone())?;
    if !reading_only.is_set() {
        tidy_waiting(&home, &reader);
    }
    let (calls, called) = mpsc::channel();
    let signing = match reading_only.why() {
        None => seal::load_key(&home, &reader),
        Some(why) => Err(why.to_owned()),
    };
    if let (Err(e), None) = (&signing, reading_only.why()) {
        crate::log!("receipts are not made out: {e}");
    }
    let sealing = watch::Sender::new(match &signing {
        Ok(_) => Sealing::Works,
        Err(e) => Sealing::Fails(e.clone()),
    });
    let (unsealed, work) = mpsc::channel();
    let keeper = Keeper::new(home.clone(), key.clone(), calls.clone(), runtime, after_a_crash, sealing.subscribe());
    for task in desk.launched() {
        // Known before anybody is let in: what is below them is a task's, also while they are looked for.
        for (_, line) in reader.decisions(task, 0)? {
            // Of a task that only its directory tells of, the supervisor is not known.
            if let Ok(Record { what: What::Decision(Decision::Launched { shim_pid, .. }), .. }) = Record::parse(&line)
                && shim_pid > 0
            {
                keeper.remember_shim(task, shim_pid);
            }
        }
    }
    let known_sealing = sealing.subscribe();
    let given = seal::Given::default();
    let sealer = Sealer {
        home: home.clone(),
        reader: ledger.reader()?,
        calls: calls.clone(),
        roster: known.clone(),
        people: people.clone(),
        sealing,
        file_key: crate::question::mask_key(&key),
        skip: own_places(&home).into_iter().map(PathBuf::from).collect(),
        began_after: ledger.last(),
        after_a_crash,
        reads: !reading_only.is_set(),
        announced: !keys.is_empty(),
        key: signing.ok(),
        mint: IdMint::default(),
        given: given.clone(),
        troubled: HashMap::new(),
        rests_until: None,
    };

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
        look: office::looker(home.clone(), key.clone(), people.clone(), calls.clone())?,
        looking: HashSet::new(),
        settled,
        unsealed: unsealed.clone(),
        given,
        unwritten: Vec::new(),
        fresh_keys: HashMap::new(),
        joined: HashMap::new(),
        suspected: Arc::clone(&suspected),
    };
    let stops = config.shutdown.tasks == TasksAtStop::Stop;
    let house = House {
        readers: Readers::new(&path, {
            let suspected = Arc::clone(&suspected);
            move || suspected.notify_one()
        }),
        suspected,
        reading_only,
        home,
        key,
        config,
        gate,
        people,
        socket,
        keeper,
        calls,
        line: in_line,
        roster: known,
        head: read_to,
        tcp: tokio::sync::Mutex::default(),
        state: watch::Sender::new(HouseState::Boot),
        tidying: tokio::sync::Mutex::new(()),
        turns: std::sync::Mutex::default(),
        sealer: unsealed,
        sealing: known_sealing,
        reason: watch::Sender::new(None),
        last_steps: watch::Sender::new(Vec::new()),
        stop: Notify::new(),
        stop_tasks: std::sync::atomic::AtomicBool::new(stops),
        started_at: clock::now(),
        recognised: surface::Recognised::default(),
        projections: surface::Projections::default(),
        maps: surface::Maps::default(),
        checked: surface::Checked::default(),
        pieces: surface::Pieces::default(),
        tickets: surface::Tickets::default(),
        mcp: surface::Connections::default(),
        crowd: surface::Crowd::default(),
        descriptors: Descriptors::reserve(),
    };
    Ok((Arc::new(house), office, sealer, work))
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
/// Whoever is known for an agent stays one while no daemon is there to ask.
async fn keep_agents(house: Arc<House>) {
    let mut roster = house.roster.clone();
    let mut groups = Groups::default();
    loop {
        let now = Arc::clone(&roster.borrow_and_update());
        let known = Arc::clone(&now);
        let kept = tokio::task::spawn_blocking(move || {
            groups.keep(known.agents());
            groups
        });
        groups = kept.await.unwrap_or_default();
        if let Err(e) = countersign_store::keep_agents(&house.home, now.agents()) {
            crate::log!("who is an agent could not be kept: {e}");
        }
        if roster.changed().await.is_err() {
            return;
        }
    }
}

fn tidy_waiting(home: &Home, reader: &Reader) {
    let _ = countersign_store::waiting::sweep(home);
    let Ok(kept) = countersign_store::waiting::all(home) else { return };
    let Ok(asked) = reader.waiting_tasks() else { return };
    for task in kept.into_iter().filter(|task| !asked.contains(task)) {
        let _ = countersign_store::waiting::forget(home, task);
    }
}

/// Whom this house serves, and where it listens for them.
fn whom_to_serve(start: &Start, home: &Home) -> anyhow::Result<(People, PathBuf)> {
    let base = env::base_of_house();
    if *start != Start::Machine {
        return Ok((People::own(base), home.socket()));
    }
    anyhow::ensure!(
        countersign_shim::acts_for_others() && !rustix::process::geteuid().is_root(),
        "a house of the machine needs a user of its own that may act for others: \
         `csn service install --system` makes the unit that starts it so"
    );
    let door = std::env::var_os("RUNTIME_DIRECTORY").map_or_else(|| PathBuf::from(MACHINE_RUN), PathBuf::from);
    Ok((People::of_the_machine(base), door.join(SOCKET)))
}

/// The kernel says who comes: everybody may knock at the door of a house of the machine.
fn listen(socket: &std::path::Path, everybody: bool) -> anyhow::Result<UnixListener> {
    // The lock is ours, so whoever bound this before is gone.
    let _ = std::fs::remove_file(socket);
    let failed = || format!("cannot listen on {}", socket.display());
    let (_dir, path) = Home::short(socket.parent().with_context(failed)?, SOCKET).with_context(failed)?;
    let listener = UnixListener::bind(&path).with_context(failed)?;
    use std::os::unix::fs::PermissionsExt as _;
    let mode = if everybody { 0o666 } else { 0o600 };
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

async fn serve(house: Arc<House>, listener: UnixListener, launched: Vec<TaskId>, start: Start) -> anyhow::Result<()> {
    // From the first moment: a house that is told to go while it comes up goes in order, too.
    let mut signals = Signals::listen()?;
    house.enter(HouseState::Boot, None);
    let server = tokio::spawn(surface::serve_unix(Arc::clone(&house), listener));
    house.enter(HouseState::Recovering, None);
    let keeper = Arc::clone(&house.keeper);
    tokio::task::spawn_blocking(move || recover::adopt_all(&keeper, &launched)).await?;
    house.settled_so_far().await;
    house.enter(HouseState::Ready, None);
    house.enter(HouseState::Running, None);
    if !house.reading_only.is_set() {
        tokio::spawn(ledger_state::watch(Arc::clone(&house), Arc::clone(&house.suspected)));
        tokio::spawn(retention::tick(Arc::clone(&house)));
        tokio::spawn(keep_agents(Arc::clone(&house)));
    }
    let tcp = match &start {
        Start::Foreground { tcp } => Some(open_loopback(&house, tcp.as_deref()).await),
        Start::Detached | Start::Machine => None,
    };
    greet(&house.home, &house.socket, &start, tcp)?;
    service::ready(&format!("serves {}", house.home.path().display()));
    tokio::spawn(service::watchdog(Arc::clone(&house)));
    let reason = tokio::select! {
        () = house.stop.notified() => "asked to stop",
        reason = signals.next() => reason,
    };
    let close = async {
        server.abort();
        let _ = server.await;
        let _ = std::fs::remove_file(&house.socket);
    };
    halt::halt(&house, reason, signals, close).await;
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

impl House {
    pub(crate) fn enter(&self, state: HouseState, reason: Option<Text>) {
        service::state(state);
        self.state.send_replace(state);
        self.reason.send_replace(reason.clone());
        let boot = (state == HouseState::Boot).then(recover::boot).flatten().map(|b| text_by_shape(&b));
        let _ = self.calls.send(Call::Tell(Box::new(Event::House { state, reason, boot })));
    }

    /// The eyes of a principal.
    pub(crate) fn eyes(&self, principal: PrincipalId) -> Result<Eyes, Refusal> {
        let uid = self.roster.borrow().uid(principal);
        self.people.eyes(uid)
    }

    /// One's turn to have the world looked at: nobody takes all of those who look.
    pub(crate) async fn turn(&self, principal: PrincipalId) -> Option<tokio::sync::OwnedSemaphorePermit> {
        let turns = {
            let mut turns = self.turns.lock().expect("nothing panics while it holds this lock");
            Arc::clone(turns.entry(principal).or_insert_with(|| Arc::new(tokio::sync::Semaphore::new(TURNS))))
        };
        turns.acquire_owned().await.ok()
    }

    /// Whether what settles gets its receipt.
    pub(crate) fn seals(&self) -> bool {
        self.sealing.borrow().works()
    }

    /// Whether nothing more will come of a task: it has its receipt, or gets none from this house.
    pub(crate) fn is_over(&self, state: &TaskState) -> bool {
        state.receipt.is_some() || state.settled() && !self.seals()
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
    /// Enters a user of the machine as a principal, unless they are one.
    pub(crate) async fn welcome(&self, login: Login) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        let gone = || Refusal::new(Code::Draining, "the house is going down");
        let wish = Wish::Welcome { uid: login.uid, name: text_by_shape(&login.name) };
        self.calls.send(Call::Wish { wish, reply }).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?.map(drop)
    }

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

    /// Waits, but not for ever, until what has settled has its receipt.
    pub(crate) async fn sealed_so_far(&self, patience: Duration) {
        let (reply, done) = oneshot::channel();
        let _ = self.sealer.send(Work::Barrier(reply));
        let _ = tokio::time::timeout(patience, done).await;
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
