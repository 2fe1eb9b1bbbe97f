//! The loop of one shim: waits for its order, runs it, records it, and tells its daemon.

use crate::{
    aftermath::{self, Escapes},
    budget::Budget,
    control::{self, Control},
    directories::{Directories, Moved},
    ending::Ending,
    inlet::{Asker, Inlet},
    life::{Bounds, Effect, Event, Life, Stop},
    operate::Applied,
    outlet::{Got, Outlet},
    sys::{self, user::in_the_name_of},
    terminal::Terminal,
    tree,
    walls::{self, Foundation},
    wire::{self, FromShim, ToShim},
};
use countersign_model::{
    Confinement, Frame, KilledWhy, Limits, OnOutputLimit, Order, Outcome, Resolved, SignalName, StreamName, Text,
    TimedOut,
};
use countersign_redact::{Known, Mask, User, text, text_by_shape};
use countersign_store::{
    clock, crash,
    journal::{self, Writer},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
};
use std::{
    collections::VecDeque,
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a full disk is waited for before the task is stopped.
const DISK_PATIENCE: Duration = Duration::from_secs(10);
/// How often a full disk is tried again: nobody tells us when there is room.
const DISK_RETRY: Duration = Duration::from_millis(250);
/// The bell waits this long for more to ring for: most commands are over by then, and ring once.
const RING_AFTER: Duration = Duration::from_millis(2);
/// Output that is not kept leaves no frame; those who watch the screen are told this often.
const UNRECORDED_AFTER: Duration = Duration::from_millis(100);
/// More reads than a full pipe takes.
const PIPE_READS: usize = 16;
/// More than a terminal holds when it hangs up.
const DRAIN_READS: usize = 4096;
/// A terminal gives a page at a time: about a chunk of them are read before anything else is looked at.
const TERMINAL_READS: usize = 64;

/// Up to this a recording is drawn again for whoever wants to see its last screen.
const DRAWN_ANEW: u64 = 1024 * 1024;
/// The artifact with the last screen, in the task's directory.
pub const SCREEN: &str = "screen.json";

/// One shim, from its hello to its end.
pub(crate) fn shim(channel: OwnedFd) -> ExitCode {
    sys::default_signals();
    let _ = rustix::process::setsid();
    match wait_for_order(channel) {
        Ok(Some((order, channel, foundation))) => run(&order, channel, foundation),
        Ok(None) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Says hello and waits. A daemon that goes away without an order needs us no more.
fn wait_for_order(channel: OwnedFd) -> io::Result<Option<(Order, OwnedFd, Option<Foundation>)>> {
    let mut stream = std::os::unix::net::UnixStream::from(channel);
    wire::send(&mut stream, &control::hello(None))?;
    let foundation = Foundation::prepare();
    match wire::receive(&mut stream) {
        Ok(ToShim::Order(order)) => Ok(Some((*order, stream.into(), foundation))),
        Ok(_) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}

/// Nothing was started: say so and go.
fn not_started(channel: OwnedFd, error: Text, code: i32) -> ExitCode {
    let _ = wire::send(&mut std::os::unix::net::UnixStream::from(channel), &FromShim::NotStarted { error, code });
    ExitCode::FAILURE
}

fn run(order: &Order, channel: OwnedFd, foundation: Option<Foundation>) -> ExitCode {
    let what = order.what();
    // Checked by the daemon when it read them; a rule that does not compile here cannot let anything through unseen.
    match User::new(&what.redaction) {
        Ok(user) => countersign_redact::install(user),
        Err(fault) => return not_started(channel, text_by_shape(&fault.message), 125),
    }
    let mut known = Known::of_env(what.env.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    known.add_found(what.exec.argv.iter().map(String::as_str));
    let mask = Arc::new(Mask::new(what.mask_key, known));
    crash::point("shim.before_journal");
    // Should the record not begin, this is how the daemon hears of it.
    let Ok(fallback) = channel.try_clone() else { return ExitCode::FAILURE };
    let (control, journal, signals) = match open(what, channel) {
        Ok(opened) => opened,
        Err(e) => return not_started(fallback, text(&mask, &format!("the record could not be begun: {e}")), 125),
    };
    drop(fallback);
    crash::point("shim.after_journal");
    let mut shim = Shim {
        what,
        confinement: order.permit().confinement,
        dir: PathBuf::from(&what.task_dir),
        first_mask: Arc::clone(&mask),
        mask,
        control,
        journal,
        signals,
        outlets: Vec::new(),
        life: Life::new(bounds(what)),
        main: None,
        main_usage: None,
        disk_full_since: None,
        out_of_room: false,
        kept: Vec::new(),
        rung: 0,
        ring_at: None,
        inlet: None,
        terminal: None,
        operations: Applied::default(),
        also_asked: Vec::new(),
        hidden: Vec::new(),
        secrets: VecDeque::new(),
        echo: true,
        directories: Directories::new(&what.cwd.resolved),
        attentive_until: None,
        over_limit: false,
        too_many_frames: false,
        unrecorded: false,
        terminal_spoke: false,
        budget: None,
        escapes: None,
        foundation,
        ending: None,
    };
    let outcome = match &what.builtin {
        Some(builtin) => shim.work(builtin),
        None => match shim.spawn() {
            Ok(()) => shim.supervise(),
            Err(outcome) => outcome,
        },
    };
    shim.close(outcome)
}

fn bounds(what: &Resolved) -> Bounds {
    let ms = Duration::from_millis;
    Bounds {
        wall: what.limits.wall_ms.map(ms),
        idle: what.limits.idle_ms.map(ms),
        grace: ms(what.limits.grace_ms.unwrap_or(Limits::GRACE_MS)),
        drain: ms(what.limits.drain_ms.unwrap_or(Limits::DRAIN_MS)),
        leftovers: what.leftovers,
    }
}

/// Everything that must stand before a process is started.
fn open(what: &Resolved, channel: OwnedFd) -> io::Result<(Control, Writer, OwnedFd)> {
    let signals = sys::signal_fd()?;
    sys::become_subreaper()?;
    let dir = Path::new(&what.task_dir);
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let control = Control::open(Path::new(&what.run_dir), what.task, what.secret, channel)?;
    let journal = Writer::create(dir, what.task, what.prologue_head, what.first_seq)?;
    Ok((control, journal, signals))
}

pub(crate) struct Shim<'a> {
    pub(crate) what: &'a Resolved,
    pub(crate) confinement: Confinement,
    pub(crate) dir: PathBuf,
    pub(crate) mask: Arc<Mask>,
    pub(crate) control: Control,
    pub(crate) journal: Writer,
    signals: OwnedFd,
    pub(crate) outlets: Vec<Outlet>,
    pub(crate) inlet: Option<Inlet>,
    pub(crate) terminal: Option<Terminal>,
    pub(crate) operations: Applied,
    /// Those who asked for an operation again before it was done.
    pub(crate) also_asked: Vec<Asker>,
    /// The line that is being typed unseen.
    pub(crate) hidden: Vec<u8>,
    /// Lines that were typed unseen, and the mask without them.
    pub(crate) secrets: VecDeque<String>,
    pub(crate) first_mask: Arc<Mask>,
    /// Whether the terminal showed what is typed when we last looked.
    echo: bool,
    directories: Directories,
    /// Until then somebody most likely waits for an echo.
    pub(crate) attentive_until: Option<Instant>,
    /// The output limit has been put on record.
    over_limit: bool,
    too_many_frames: bool,
    /// The screen has changed and no frame says so.
    unrecorded: bool,
    /// There was output since the terminal was last looked at.
    terminal_spoke: bool,
    life: Life,
    pub(crate) main: Option<u32>,
    main_usage: Option<sys::Reaped>,
    disk_full_since: Option<Instant>,
    /// The record could not be written; that has been dealt with.
    out_of_room: bool,
    /// The leftovers that were put on record last.
    kept: Vec<u32>,
    /// The number up to which readers have been told, and when they are told of the rest.
    rung: u64,
    ring_at: Option<Instant>,
    /// What a read-only task may use.
    pub(crate) budget: Option<Budget>,
    /// The files that make programs run later, as they were.
    pub(crate) escapes: Option<Escapes>,
    /// What was made of its walls before anybody knew what it would be.
    pub(crate) foundation: Option<Foundation>,
    /// Where its shell tells in which directory it ended.
    pub(crate) ending: Option<Ending>,
}

impl Shim<'_> {
    fn supervise(&mut self) -> Outcome {
        loop {
            if let Err(e) = self.publish() {
                self.no_room(&e);
            }
            if self.life.is_over() {
                return self.life.outcome();
            }
            let ready = self.wait();
            self.take(&ready);
            let now = self.journal.elapsed();
            self.step(now, Event::Tick);
            self.cut_due();
            self.look_at_terminal();
            self.mind_limits();
        }
    }

    /// What is neither output nor time: how much has come, and how much it uses.
    fn mind_limits(&mut self) {
        let now = self.journal.elapsed();
        if let Some((stop, value)) = self.budget.as_mut().and_then(|b| b.exceeded(clock::steady())) {
            self.budget = None;
            let limit = Text::of(match stop {
                Stop::Memory => "memory",
                Stop::Temporary => "temporary",
                _ => "processes",
            });
            if stop == Stop::Processes {
                self.kill_group();
            }
            self.journal.push(&Frame::LimitReached { limit, value, action: Text::of("stopped") });
            self.step(now, Event::Stop(stop));
        }
        if !self.over_limit && self.outlets.iter().any(Outlet::is_over_limit) {
            self.over_limit = true;
            let kill = self.what.on_output_limit == OnOutputLimit::Kill;
            let action = if kill { "stopped" } else { "goes on; from here only the last mebibyte is kept" };
            let value = self.what.limits.output_bytes.unwrap_or(Limits::OUTPUT_BYTES);
            self.journal.push(&Frame::LimitReached { limit: Text::of("output"), value, action: Text::of(action) });
            if kill {
                self.step(now, Event::Stop(Stop::Output));
            }
        }
        let frames = self.what.limits.frames.unwrap_or(Limits::FRAMES);
        if !self.too_many_frames && self.journal.next_seq() - self.what.first_seq >= frames {
            self.too_many_frames = true;
            let (limit, action) = (Text::of("frames"), Text::of("stopped"));
            self.journal.push(&Frame::LimitReached { limit, value: frames, action });
            self.step(now, Event::Stop(Stop::Frames));
        }
    }

    /// Whether the terminal hides what is typed, and where its program is.
    fn look_at_terminal(&mut self) {
        let Some(terminal) = self.terminal.as_ref().filter(|_| self.terminal_spoke) else { return };
        let quiet = self.outlets.iter().all(Outlet::is_quiet);
        // Some programs write their prompt first and hide the answer then: looked at again when it is quiet.
        self.terminal_spoke = !quiet;
        let echo = terminal.echoes();
        let claim = self.outlets.iter_mut().filter_map(|o| o.screen.as_mut()).find_map(|s| s.claimed_directory());
        // A claim is compared with where the program really is, so that the truth needs no second record.
        let look = quiet || claim.is_some();
        let actual = look.then(|| terminal.directory()).flatten().and_then(|d| d.into_os_string().into_string().ok());
        let moves = self.directories.update(actual, claim);
        if echo != self.echo {
            self.echo = echo;
            self.cut_here();
            self.journal.push(&Frame::Echo { on: echo });
        }
        for Moved { path, claimed } in moves {
            self.cut_here();
            self.journal.push(&Frame::CwdChanged { path: text(&self.mask, &path), claimed });
        }
    }

    /// What is pushed becomes visible, then the bell rings.
    fn publish(&mut self) -> io::Result<()> {
        self.journal.write()?;
        if self.journal.next_seq() == self.rung && !self.unrecorded {
            self.ring_at = None;
            return Ok(());
        }
        let now = clock::steady();
        let pause = if self.journal.next_seq() == self.rung { UNRECORDED_AFTER } else { RING_AFTER };
        let at = self.ring_at.map_or(now + pause, |at| at.min(now + pause));
        self.ring_at = Some(at);
        if now >= at {
            self.unrecorded = false;
            self.rung = self.journal.next_seq();
            self.ring_at = None;
            self.control.ring();
        }
        Ok(())
    }

    /// Sleeps until something happens; gives what is ready, in the order signals, outlets, control.
    fn wait(&self) -> Ready {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let mut outlets = Vec::new();
        for (n, outlet) in self.outlets.iter().enumerate() {
            if let Some(pipe) = outlet.wants() {
                outlets.push(n);
                fds.push(PollFd::from_borrowed_fd(pipe, PollFlags::IN));
            }
        }
        let first_inlet = fds.len();
        fds.extend(self.inlet.iter().filter_map(Inlet::wants).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        let first_control = fds.len();
        for (fd, sends) in self.control.fds() {
            let flags = if sends { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        let timeout = self.timeout().and_then(|t| Timespec::try_from(t).ok());
        // Interrupted or out of memory for a moment: the next round asks again.
        let _ = poll(&mut fds, timeout.as_ref());
        let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        Ready {
            signals: ready(&fds[0]),
            outlets: outlets.into_iter().zip(&fds[1..]).filter(|(_, fd)| ready(fd)).map(|(n, _)| n).collect(),
            inlet: fds[first_inlet..first_control].iter().any(ready),
            control: fds[first_control..].iter().map(ready).collect(),
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let now = clock::steady();
        let elapsed = self.journal.elapsed();
        let life = self.life.deadline().map(|at| at.saturating_sub(elapsed));
        let cuts = self.outlets.iter().filter(|o| !o.is_stuck()).filter_map(Outlet::deadline);
        let cuts = cuts.map(|at| at.saturating_duration_since(now));
        let disk = self.disk_full_since.map(|_| DISK_RETRY);
        let ring = self.ring_at.map(|at| at.saturating_duration_since(now));
        let budget = self.budget.as_ref().map(|b| b.due().saturating_duration_since(now));
        life.into_iter().chain(cuts).chain(disk).chain(ring).chain(budget).min()
    }

    fn take(&mut self, ready: &Ready) {
        for n in &ready.outlets {
            self.read(*n);
        }
        if ready.inlet {
            self.write_input();
        }
        for (n, _) in ready.control.iter().enumerate().filter(|(_, ready)| **ready) {
            match self.control.peer(n) {
                None => self.control.accept(),
                Some(peer) => {
                    for operation in self.control.hear(n) {
                        self.operate(peer, operation);
                    }
                }
            }
        }
        self.control.mind_the_door();
        if ready.signals {
            self.children_ended();
        }
        if self.outlets.iter().all(|o| !o.is_open()) {
            let now = self.journal.elapsed();
            self.step(now, Event::OutputClosed);
        }
    }

    fn read(&mut self, n: usize) {
        let terminal = self.outlets[n].name() == StreamName::Pty;
        let mut spoke = false;
        for _ in 0..if terminal { TERMINAL_READS } else { 1 } {
            match self.outlets[n].read() {
                Ok(Got::Bytes) => {
                    spoke = true;
                    let cut = self.outlets[n].cut_full(&mut self.journal, &self.dir);
                    self.told(cut);
                    if self.outlets[n].wants().is_none() {
                        break;
                    }
                }
                Ok(Got::End) => {
                    let cut = self.outlets[n].cut_all(&mut self.journal, &self.dir);
                    self.told(cut);
                    break;
                }
                Ok(Got::Nothing | Got::Hung) => break,
                Err(_) => {
                    self.outlets[n].abandon(&self.dir);
                    break;
                }
            }
        }
        if spoke {
            let now = self.journal.elapsed();
            self.step(now, Event::Output);
            self.terminal_spoke |= terminal;
            self.unrecorded |= terminal && self.outlets[n].is_over_limit();
            if terminal && self.attentive_until.is_some_and(|until| clock::steady() < until) {
                let cut = self.outlets[n].cut_now(&mut self.journal, &self.dir);
                self.told(cut);
                self.ring_at = Some(clock::steady());
            }
        }
    }

    fn cut_due(&mut self) {
        for n in 0..self.outlets.len() {
            let cut = match self.outlets[n].is_stuck() {
                true => self.outlets[n].cut_all(&mut self.journal, &self.dir),
                false => self.outlets[n].cut_due(&mut self.journal, &self.dir),
            };
            self.told(cut);
        }
        if !self.outlets.iter().any(Outlet::is_stuck) {
            self.disk_full_since = None;
        }
    }

    /// Whether the disk took it. When it does not, we stop reading, wait, and in the end stop the task.
    pub(crate) fn told(&mut self, cut: io::Result<()>) {
        if let Err(e) = cut {
            let since = *self.disk_full_since.get_or_insert_with(clock::steady);
            if clock::steady().duration_since(since) >= DISK_PATIENCE {
                self.no_room(&e);
            }
        }
    }

    pub(crate) fn no_room(&mut self, error: &io::Error) {
        self.ring_at = None;
        if self.life.is_over() || std::mem::replace(&mut self.out_of_room, true) {
            return;
        }
        let patience = u64::try_from(DISK_PATIENCE.as_millis()).unwrap_or(u64::MAX);
        self.journal.push(&Frame::LimitReached {
            limit: Text::of("disk"),
            value: patience,
            action: text(&self.mask, &format!("stopped: the record could not be written: {error}")),
        });
        for outlet in &mut self.outlets {
            outlet.abandon(&self.dir);
        }
        let now = self.journal.elapsed();
        self.step(now, Event::Stop(Stop::Disk));
    }

    fn children_ended(&mut self) {
        // How many and which does not matter: everything that has ended is taken.
        let mut info = [0; 512];
        while rustix::io::read(&self.signals, &mut info).is_ok_and(|n| n > 0) {}
        self.reap();
        if self.life.is_over() {
            return;
        }
        let left = tree::descendants(std::process::id()).len();
        let now = self.journal.elapsed();
        self.step(now, Event::TreeShrank { left });
    }

    fn reap(&mut self) {
        while let Some(reaped) = sys::reap() {
            if Some(reaped.pid) == self.main && self.main_usage.is_none() {
                let status = reaped.status;
                self.main_usage = Some(reaped);
                let now = self.journal.elapsed();
                // A terminal hangs up with the session that it belonged to.
                self.outlets.iter_mut().for_each(Outlet::hang_up);
                // What it wrote before it ended is still in the pipe; usually that, and its end, is all there is. A
                // child that goes on writing is the business of the loop, which has deadlines.
                for n in 0..self.outlets.len() {
                    let reads = if self.terminal.is_some() { DRAIN_READS } else { PIPE_READS };
                    for _ in 0..reads {
                        if self.outlets[n].wants().is_none() || !matches!(self.outlets[n].read(), Ok(Got::Bytes)) {
                            break;
                        }
                        let cut = self.outlets[n].cut_full(&mut self.journal, &self.dir);
                        self.told(cut);
                    }
                }
                if self.outlets.iter().all(|o| !o.is_open()) {
                    self.step(now, Event::OutputClosed);
                }
                self.step(now, Event::MainExited(status));
            }
        }
    }

    pub(crate) fn main_runs(&self) -> bool {
        self.main_usage.is_none()
    }

    pub(crate) fn step(&mut self, now: Duration, event: Event) {
        for effect in self.life.step(now, event) {
            match effect {
                Effect::Limit { name, value } => {
                    let value = u64::try_from(value.as_millis()).unwrap_or(u64::MAX);
                    let (limit, action) = (Text::of(name), Text::of("stopped"));
                    self.journal.push(&Frame::LimitReached { limit, value, action });
                }
                Effect::Terminate => tree::terminate(std::process::id()),
                Effect::Kill(why) => self.kill(why),
                Effect::Keep => {
                    let processes = tree::descendants(std::process::id());
                    if processes.is_empty() {
                        self.step(now, Event::TreeShrank { left: 0 });
                    } else if processes != self.kept {
                        self.kept.clone_from(&processes);
                        self.cut_here();
                        self.journal.push(&Frame::Kept { processes });
                    }
                }
                Effect::Finish => {}
            }
        }
    }

    /// Ends whatever is in the task's first process group, in one call: what multiplies is mostly there, and would go on
    /// while it is looked for one by one. Until the first process is reaped the group's number is nobody else's.
    fn kill_group(&self) {
        let group = self.main.filter(|_| self.main_runs()).and_then(|pid| i32::try_from(pid).ok());
        if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }

    /// Ends everything below us, and says what was there.
    fn kill(&mut self, why: Option<KilledWhy>) {
        let me = std::process::id();
        let found = tree::descendants(me);
        if found.is_empty() {
            return;
        }
        self.journal.push(&Frame::CleanupStarted { processes: found });
        let main = self.main;
        let mut usage = self.main_usage.take();
        let (ended, survivors) = tree::kill_all(
            || tree::descendants(me),
            || {
                while let Some(reaped) = sys::reap() {
                    if Some(reaped.pid) == main {
                        usage.get_or_insert(reaped);
                    }
                }
            },
        );
        self.main_usage = usage;
        if let Some(why) = why {
            self.journal.push(&Frame::Killed { signal: SignalName::KILL, why, survivors: survivors.clone() });
        }
        self.journal.push(&Frame::CleanupCompleted { ended, survivors });
    }

    /// What the terminal showed last, for those who come when it is over. A short recording is as quick to draw anew; and
    /// since a long one can be too, a disk that does not take this costs nothing.
    fn keep_screen(&mut self) {
        // What was put together from known values must not be drawn again by somebody who does not know them.
        let known = self.mask.knows_values();
        let long = self.outlets.iter_mut().find(|o| o.end() > DRAWN_ANEW || known);
        let Some(screen) = long.and_then(|o| o.screen.as_mut()) else { return };
        let shown = screen.show(&self.mask);
        let Ok(bytes) = serde_json::to_vec(&shown) else { return };
        if journal::put_beside(&self.dir, SCREEN, &bytes).is_ok() {
            let sha256 = countersign_model::Digest::sha256(&[&bytes]);
            let (artifact, what) = (Text::of(SCREEN), Text::of("the terminal's last screen"));
            self.journal.push(&Frame::ArtifactStored { artifact, what, bytes: bytes.len() as u64, sha256 });
        }
    }

    /// What there is to say about its confinement, now that it is over.
    fn look_back(&mut self, outcome: &Outcome) {
        if let Some(before) = self.escapes.take() {
            let look = || Escapes::of(&self.what.walls);
            let now = in_the_name_of(self.what.login.as_ref(), look).unwrap_or_default();
            for (path, change) in before.changes(&now) {
                let path = text(&self.mask, &path);
                self.journal.push(&Frame::WriteDetected { path, change, escape: true, before: None, after: None });
            }
        }
        let failed = matches!(outcome, Outcome::Exited { code } if *code != 0);
        let streams = self.outlets.iter().map(|o| self.dir.join(o.name().file())).collect::<Vec<_>>();
        let late = matches!(outcome, Outcome::TimedOut { limit: TimedOut::Wall });
        // Its own limit it knows about.
        let late = late && self.what.limits.wall_ms == Some(Limits::READ_ONLY_WALL_MS);
        if late && self.confinement == Confinement::ReadOnly {
            self.journal.push(&Frame::WallMet { note: Text::of(aftermath::LATE) });
        } else if failed && let Some(note) = aftermath::note(self.confinement, &self.what.walls, &streams) {
            self.journal.push(&Frame::WallMet { note: text(&self.mask, &note) });
        }
        if self.confinement >= Confinement::Workspace {
            walls::clear_temporary(&self.dir, self.what.login.as_ref());
        }
    }

    /// The last bytes, the exit, the end of the journal; then the daemon is told.
    fn close(mut self, outcome: Outcome) -> ExitCode {
        let mut outcome = outcome;
        self.close_input();
        for outlet in &mut self.outlets {
            if outlet.is_stuck() || outlet.drain(&mut self.journal, &self.dir).is_err() {
                outlet.abandon(&self.dir);
                if matches!(outcome, Outcome::Exited { .. } | Outcome::Signalled { .. }) {
                    outcome = Outcome::Limited { limit: countersign_model::Limited::Disk };
                }
            }
        }
        if self.main_usage.is_none() {
            self.reap();
        }
        self.look_back(&outcome);
        let ended = self.ending.take().and_then(Ending::told).filter(|path| *path != self.what.cwd.resolved);
        if let (Some(path), Some(_)) = (ended, &self.main_usage) {
            self.journal.push(&Frame::CwdChanged { path: text(&self.mask, &path), claimed: false });
        }
        if let Some(usage) = &self.main_usage {
            self.journal.push(&Frame::Exited {
                status: usage.status,
                duration_us: u64::try_from(self.journal.elapsed().as_micros()).unwrap_or(u64::MAX),
                cpu_us: usage.cpu_us,
                max_rss_kb: usage.max_rss_kb,
            });
        }
        self.keep_screen();
        crash::point("shim.before_close");
        let streams = self.outlets.into_iter().map(|o| (o.name(), o.total())).filter(|(_, t)| t.bytes > 0).collect();
        match self.journal.close(outcome, streams) {
            Ok(closing) => {
                crash::point("shim.after_close");
                self.control.close(&FromShim::Closed(closing));
                ExitCode::SUCCESS
            }
            // The journal ends without its last frame: the daemon will find it so.
            Err(_) => ExitCode::FAILURE,
        }
    }
}

struct Ready {
    signals: bool,
    outlets: Vec<usize>,
    inlet: bool,
    control: Vec<bool>,
}
