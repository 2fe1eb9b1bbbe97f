//! The loop of one shim: waits for its order, runs it, records it, and tells its daemon.

use crate::{
    control::{self, Control},
    life::{Bounds, Effect, Event, Life, Stop},
    outlet::{Got, Outlet},
    sys, tree,
    wire::{self, FromShim, ToShim},
};
use countersign_model::{Code, Frame, KilledWhy, Limits, Order, Outcome, Resolved, SignalName, StreamName, Text};
use countersign_redact::{Known, Mask, text};
use countersign_store::{clock, crash, journal::Writer};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    fs::{Mode, OFlags},
    pipe::{PipeFlags, pipe_with},
};
use std::{
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
const PIPE_SIZE: usize = 1024 * 1024;
/// More reads than a full pipe takes.
const PIPE_READS: usize = 16;

/// One shim, from its hello to its end.
pub(crate) fn shim(channel: OwnedFd) -> ExitCode {
    sys::default_signals();
    let _ = rustix::process::setsid();
    match wait_for_order(channel) {
        Ok(Some((order, channel))) => run(&order, channel),
        Ok(None) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Says hello and waits. A daemon that goes away without an order needs us no more.
fn wait_for_order(channel: OwnedFd) -> io::Result<Option<(Order, OwnedFd)>> {
    let mut stream = std::os::unix::net::UnixStream::from(channel);
    wire::send(&mut stream, &control::hello(None))?;
    match wire::receive(&mut stream) {
        Ok(ToShim::Order(order)) => Ok(Some((*order, stream.into()))),
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

fn run(order: &Order, channel: OwnedFd) -> ExitCode {
    let what = order.what();
    let known = Known::of_env(what.env.iter().map(|(k, v)| (k.as_str(), v.as_str())));
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
    };
    let outcome = match shim.spawn() {
        Ok(()) => shim.supervise(),
        Err(outcome) => outcome,
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

struct Shim<'a> {
    what: &'a Resolved,
    confinement: countersign_model::Confinement,
    dir: PathBuf,
    mask: Arc<Mask>,
    control: Control,
    journal: Writer,
    signals: OwnedFd,
    outlets: Vec<Outlet>,
    life: Life,
    main: Option<u32>,
    main_usage: Option<sys::Reaped>,
    disk_full_since: Option<Instant>,
    /// The record could not be written; that has been dealt with.
    out_of_room: bool,
    /// The leftovers that were put on record last.
    kept: Vec<u32>,
    /// The number up to which readers have been told, and when they are told of the rest.
    rung: u64,
    ring_at: Option<Instant>,
}

impl Shim<'_> {
    fn spawn(&mut self) -> Result<(), Outcome> {
        let texts = |names: &[String]| names.iter().map(|n| text(&self.mask, n)).collect();
        let exposure = &self.what.exposure;
        self.journal.push(&Frame::EnvExposed {
            class: exposure.class,
            names: texts(&exposure.names),
            withheld: texts(&exposure.withheld),
        });
        let failed = |mask: &Mask, error: String, code| Outcome::Failed { error: text(mask, &error), code };
        let cwd = self.open_cwd().map_err(|e| failed(&self.mask, e, 125))?;
        self.check_program().map_err(|e| failed(&self.mask, e, 126))?;
        let pipes = || -> io::Result<_> {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            // A large pipe means fewer wake-ups; an unprivileged user may have used up the allowance.
            let _ = rustix::pipe::fcntl_setpipe_size(&read, PIPE_SIZE);
            rustix::io::ioctl_fionbio(&read, true)?;
            Ok((read, write))
        };
        let internal = |e: io::Error| failed(&self.mask, format!("no pipes could be made: {e}"), 125);
        let (stdout, child_stdout) = pipes().map_err(internal)?;
        let (stderr, child_stderr) = pipes().map_err(internal)?;
        let exec = &self.what.exec;
        let started = sys::spawn(sys::Child {
            program: Path::new(&exec.program.path),
            argv: &exec.argv,
            env: &self.what.env,
            cwd,
            stdout: child_stdout,
            stderr: child_stderr,
        });
        let pid = started.map_err(|e| {
            let code = if e.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            let hint = match e.raw_os_error() {
                Some(libc::E2BIG) => " (arguments and environment are larger than the kernel takes: use a file)",
                Some(libc::ENOEXEC) => " (not a program and no `#!` line)",
                _ => "",
            };
            failed(&self.mask, format!("{}: {e}{hint}", exec.program.path), code)
        })?;
        crash::point("shim.after_spawn");
        self.main = Some(pid);
        self.journal.push(&Frame::Spawned {
            pid,
            pgid: pid,
            sid: std::process::id(),
            argv_digest: exec.argv_digest,
            executable: text(&self.mask, &exec.program.resolved),
            dev: exec.program.dev,
            inode: exec.program.inode,
            confinement: self.confinement,
        });
        self.outlets = vec![
            Outlet::new(StreamName::Stdout, stdout, Arc::clone(&self.mask)),
            Outlet::new(StreamName::Stderr, stderr, Arc::clone(&self.mask)),
        ];
        Ok(())
    }

    /// The working directory, by descriptor, if it is still the one that was decided about.
    fn open_cwd(&self) -> Result<OwnedFd, String> {
        let fact = &self.what.cwd;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&fact.path, flags, Mode::empty());
        let fd = fd.map_err(|e| format!("the working directory {} cannot be entered: {e}", fact.path))?;
        let stat = rustix::fs::fstat(&fd).map_err(|e| format!("{}: {e}", fact.path))?;
        match (stat.st_dev, stat.st_ino) == (fact.dev, fact.inode) {
            true => Ok(fd),
            false => Err(format!("paths changed: {} is not the directory that was decided about", fact.path)),
        }
    }

    fn check_program(&self) -> Result<(), String> {
        let fact = &self.what.exec.program;
        match rustix::fs::stat(&fact.path) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == (fact.dev, fact.inode) => Ok(()),
            Ok(_) => Err(format!("paths changed: {} is not the program that was decided about", fact.path)),
            Err(e) => Err(format!("{}: {e}", fact.path)),
        }
    }

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
        }
    }

    /// What is pushed becomes visible, then the bell rings.
    fn publish(&mut self) -> io::Result<()> {
        self.journal.write()?;
        if self.journal.next_seq() == self.rung {
            self.ring_at = None;
            return Ok(());
        }
        let now = clock::steady();
        if now >= *self.ring_at.get_or_insert(now + RING_AFTER) {
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
        life.into_iter().chain(cuts).chain(disk).chain(ring).min()
    }

    fn take(&mut self, ready: &Ready) {
        for n in &ready.outlets {
            self.read(*n);
        }
        for (n, _) in ready.control.iter().enumerate().filter(|(_, ready)| **ready) {
            match self.control.is_peer(n) {
                false => self.control.accept(),
                true => {
                    for operation in self.control.hear(n) {
                        self.operate(n, operation);
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
        match self.outlets[n].read() {
            Ok(Got::Bytes) => {
                let now = self.journal.elapsed();
                self.step(now, Event::Output);
                let cut = self.outlets[n].cut_full(&mut self.journal, &self.dir);
                self.told(cut);
            }
            Ok(Got::End) => {
                let cut = self.outlets[n].cut_all(&mut self.journal, &self.dir);
                self.told(cut);
            }
            Ok(Got::Nothing) => {}
            Err(_) => self.outlets[n].abandon(&self.dir),
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
    fn told(&mut self, cut: io::Result<()>) {
        if let Err(e) = cut {
            let since = *self.disk_full_since.get_or_insert_with(clock::steady);
            if clock::steady().duration_since(since) >= DISK_PATIENCE {
                self.no_room(&e);
            }
        }
    }

    fn no_room(&mut self, error: &io::Error) {
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

    fn operate(&mut self, peer: usize, operation: ToShim) {
        self.cut_here();
        match operation {
            ToShim::Signal { re, signal, by } => match self.signal(signal) {
                Ok(()) => {
                    let seq = self.journal.push(&Frame::Signalled { signal, by });
                    self.applied(peer, re, seq);
                }
                Err(_) => self.control.refuse(peer, re, Code::TaskOver, "the process has ended"),
            },
            ToShim::Cancel { re, by, reason, shutdown } => {
                let seq = self.journal.push(&Frame::CancelRequested { by: by.clone(), reason: reason.clone() });
                let stop = if shutdown { Stop::Shutdown { by } } else { Stop::Cancel { by, reason } };
                let now = self.journal.elapsed();
                self.step(now, Event::Stop(stop));
                self.applied(peer, re, seq);
            }
            ToShim::Order(_) | ToShim::Hello { .. } => {}
        }
    }

    /// What is recorded next stands in the journal at this point of the output.
    fn cut_here(&mut self) {
        for n in 0..self.outlets.len() {
            let cut = self.outlets[n].cut_all(&mut self.journal, &self.dir);
            self.told(cut);
        }
    }

    fn applied(&mut self, peer: usize, re: u64, seq: u64) {
        if let Err(e) = self.journal.write() {
            self.no_room(&e);
        }
        self.control.answer(peer, &FromShim::Applied { re, seq });
    }

    /// To the task's process group, which outlives its leader.
    fn signal(&self, signal: SignalName) -> rustix::io::Result<()> {
        let group = self.main.and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        let signal = rustix::process::Signal::from_named_raw(signal.number());
        match (group, signal) {
            (Some(group), Some(signal)) => rustix::process::kill_process_group(group, signal),
            _ => Err(rustix::io::Errno::SRCH),
        }
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
                // What it wrote before it ended is still in the pipe; usually that, and its end, is all there is. A
                // child that goes on writing is the business of the loop, which has deadlines.
                for n in 0..self.outlets.len() {
                    for _ in 0..PIPE_READS {
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

    fn step(&mut self, now: Duration, event: Event) {
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

    /// The last bytes, the exit, the end of the journal; then the daemon is told.
    fn close(mut self, outcome: Outcome) -> ExitCode {
        let mut outcome = outcome;
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
        if let Some(usage) = &self.main_usage {
            self.journal.push(&Frame::Exited {
                status: usage.status,
                duration_us: u64::try_from(self.journal.elapsed().as_micros()).unwrap_or(u64::MAX),
                cpu_us: usage.cpu_us,
                max_rss_kb: usage.max_rss_kb,
            });
        }
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
    control: Vec<bool>,
}
