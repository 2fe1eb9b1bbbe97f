//! The loop of one running task: waits for output, control, ended children and deadlines, and does what `life` says.

use crate::{
    control::ControlSocket,
    disk::DiskWait,
    input_queue::InputQueue,
    lifecycle::{Lifecycle, LifecycleAction, LifecycleEvent, StopCause},
    limits::{LimitHit, LimitWatch},
    main_process::MainProcess,
    notify::Notifier,
    operations::Operations,
    output_stream::OutputStream,
    task_sandbox::TaskSandbox,
    terminal_watch::TerminalWatch,
    tree,
    typed_secrets::TypedSecrets,
};
use countersign_model::{Frame, Outcome, ResolvedRequest, Text};
use countersign_redact::Mask;
use countersign_store::{clock, journal::JournalWriter};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
};
use std::{io, path::PathBuf, sync::Arc, time::Duration};

/// One task under way. Each duty has a struct of its own; what needs several of them is a method here or in the file that
/// is named after it (`recording`, `operate`, `input`, `main_process`, `start`, `close`).
pub(crate) struct Shim<'a> {
    pub(crate) what: &'a ResolvedRequest,
    pub(crate) dir: PathBuf,
    pub(crate) mask: Arc<Mask>,
    pub(crate) control: ControlSocket,
    pub(crate) journal: JournalWriter,
    pub(crate) signals: OwnedFd,
    pub(crate) outlets: Vec<OutputStream>,
    pub(crate) inlet: Option<InputQueue>,
    pub(crate) terminal: Option<TerminalWatch>,
    pub(crate) operations: Operations,
    pub(crate) secrets: TypedSecrets,
    pub(crate) life: Lifecycle,
    pub(crate) main: MainProcess,
    pub(crate) disk: DiskWait,
    pub(crate) notify: Notifier,
    pub(crate) limits: LimitWatch,
    pub(crate) sandbox: TaskSandbox,
}

impl Shim<'_> {
    pub(crate) fn supervise(&mut self) -> Outcome {
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
            self.step(now, LifecycleEvent::Tick);
            self.cut_due();
            self.look_at_terminal();
            self.mind_limits();
        }
    }

    /// What is neither output nor time: how much has come, and how much it uses.
    fn mind_limits(&mut self) {
        let used = self.limits.budget(clock::steady());
        self.limit_reached(used);
        let full = self.outlets.iter().any(OutputStream::is_over_limit);
        let printed = self.limits.output(full, self.what);
        self.limit_reached(printed);
        let recorded = self.limits.frames(self.journal.next_seq() - self.what.first_seq, self.what);
        self.limit_reached(recorded);
    }

    fn limit_reached(&mut self, reached: Option<LimitHit>) {
        let Some(reached) = reached else { return };
        if reached.stop == Some(StopCause::Processes) {
            self.main.kill_group();
        }
        self.journal.push(&reached.frame());
        if let Some(stop) = reached.stop {
            let now = self.journal.elapsed();
            self.step(now, LifecycleEvent::Stop(stop));
        }
    }

    fn look_at_terminal(&mut self) {
        let Some(watch) = &mut self.terminal else { return };
        let quiet = self.outlets.iter().all(OutputStream::is_quiet);
        let outlets = &mut self.outlets;
        let claim = || outlets.iter_mut().filter_map(|o| o.screen.as_mut()).find_map(|s| s.claimed_directory());
        for frame in watch.look(quiet, claim, &self.mask) {
            self.cut_here();
            self.journal.push(&frame);
        }
    }

    /// What is pushed becomes visible, then readers are told.
    fn publish(&mut self) -> io::Result<()> {
        self.journal.write()?;
        if self.notify.take(self.journal.next_seq(), clock::steady()) {
            self.control.notify();
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
        fds.extend(
            self.inlet.iter().filter_map(InputQueue::wants).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)),
        );
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
        let cuts = self.outlets.iter().filter(|o| !o.is_stuck()).filter_map(OutputStream::deadline);
        let cuts = cuts.map(|at| at.saturating_duration_since(now));
        let disk = self.disk.retry_after();
        let notice = self.notify.due().map(|at| at.saturating_duration_since(now));
        let budget = self.limits.due().map(|at| at.saturating_duration_since(now));
        life.into_iter().chain(cuts).chain(disk).chain(notice).chain(budget).min()
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
                    for operation in self.control.read_messages(n) {
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
            self.step(now, LifecycleEvent::OutputClosed);
        }
    }

    pub(crate) fn step(&mut self, now: Duration, event: LifecycleEvent) {
        for effect in self.life.step(now, event) {
            match effect {
                LifecycleAction::Limit { name, value } => {
                    let value = u64::try_from(value.as_millis()).unwrap_or(u64::MAX);
                    let (limit, action) = (Text::from_static(name), Text::from_static("stopped"));
                    self.journal.push(&Frame::LimitReached { limit, value, action });
                }
                LifecycleAction::Terminate => tree::terminate(std::process::id()),
                LifecycleAction::Kill(why) => self.kill(why),
                LifecycleAction::Keep => {
                    let processes = tree::descendants(std::process::id());
                    if processes.is_empty() {
                        self.step(now, LifecycleEvent::TreeShrank { left: 0 });
                    } else if self.main.keeps_others(&processes) {
                        self.cut_here();
                        self.journal.push(&Frame::Kept { processes });
                    }
                }
                LifecycleAction::Finish => {}
            }
        }
    }
}

struct Ready {
    signals: bool,
    outlets: Vec<usize>,
    inlet: bool,
    control: Vec<bool>,
}
