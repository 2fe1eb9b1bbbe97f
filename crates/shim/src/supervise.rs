//! The loop of one running task: waits for output, control messages, ended children and deadlines, and carries out the
//! actions of `lifecycle`.

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

/// One running task. Each duty has a struct of its own; a method that needs several of them is here, or in the file
/// that is named after it (`recording`, `operate`, `input`, `main_process`, `start`, `close`).
pub(crate) struct Shim<'a> {
    pub(crate) request: &'a ResolvedRequest,
    pub(crate) dir: PathBuf,
    pub(crate) mask: Arc<Mask>,
    pub(crate) control: ControlSocket,
    pub(crate) journal: JournalWriter,
    pub(crate) signals: OwnedFd,
    pub(crate) outputs: Vec<OutputStream>,
    pub(crate) input_queue: Option<InputQueue>,
    pub(crate) terminal: Option<TerminalWatch>,
    pub(crate) operations: Operations,
    pub(crate) secrets: TypedSecrets,
    pub(crate) lifecycle: Lifecycle,
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
                self.give_up_recording(&e);
            }
            if self.lifecycle.is_over() {
                return self.lifecycle.outcome();
            }
            let ready = self.wait_for_events();
            self.handle_ready(&ready);
            let now = self.journal.elapsed();
            self.step(now, LifecycleEvent::Tick);
            self.cut_due_output();
            self.check_terminal();
            self.check_limits();
        }
    }

    /// Checks the limits on resources, output and frames.
    fn check_limits(&mut self) {
        let used = self.limits.check_budget(clock::steady());
        self.apply_limit(used);
        let full = self.outputs.iter().any(OutputStream::is_over_limit);
        let printed = self.limits.check_output(full, self.request);
        self.apply_limit(printed);
        let recorded = self.limits.check_frames(self.journal.next_seq() - self.request.first_seq, self.request);
        self.apply_limit(recorded);
    }

    fn apply_limit(&mut self, hit: Option<LimitHit>) {
        let Some(hit) = hit else { return };
        if hit.stop == Some(StopCause::Processes) {
            self.main.kill_group();
        }
        self.journal.push(&hit.frame());
        if let Some(stop) = hit.stop {
            let now = self.journal.elapsed();
            self.step(now, LifecycleEvent::Stop(stop));
        }
    }

    fn check_terminal(&mut self) {
        let Some(watch) = &mut self.terminal else { return };
        let quiet = self.outputs.iter().all(OutputStream::is_quiet);
        let outputs = &mut self.outputs;
        let claim = || outputs.iter_mut().filter_map(|o| o.screen.as_mut()).find_map(|s| s.claimed_directory());
        for frame in watch.check(quiet, claim, &self.mask) {
            self.cut_all_output();
            self.journal.push(&frame);
        }
    }

    /// Writes the pushed frames, then notifies readers.
    fn publish(&mut self) -> io::Result<()> {
        self.journal.write()?;
        if self.notify.take_due(self.journal.next_seq(), clock::steady()) {
            self.control.notify();
        }
        Ok(())
    }

    /// Sleeps until something happens. Returns what is ready.
    fn wait_for_events(&self) -> Ready {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let mut outputs = Vec::new();
        for (n, output) in self.outputs.iter().enumerate() {
            if let Some(pipe) = output.poll_fd() {
                outputs.push(n);
                fds.push(PollFd::from_borrowed_fd(pipe, PollFlags::IN));
            }
        }
        let first_inlet = fds.len();
        fds.extend(
            self.input_queue
                .iter()
                .filter_map(InputQueue::poll_fd)
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)),
        );
        let first_control = fds.len();
        for (fd, sends) in self.control.fds() {
            let flags = if sends { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        let timeout = self.poll_timeout().and_then(|t| Timespec::try_from(t).ok());
        // If the call is interrupted or the kernel is short of memory, the next round polls again.
        let _ = poll(&mut fds, timeout.as_ref());
        let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        Ready {
            signals: ready(&fds[0]),
            outputs: outputs.into_iter().zip(&fds[1..]).filter(|(_, fd)| ready(fd)).map(|(n, _)| n).collect(),
            input_queue: fds[first_inlet..first_control].iter().any(ready),
            control: fds[first_control..].iter().map(ready).collect(),
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        let now = clock::steady();
        let elapsed = self.journal.elapsed();
        let lifecycle = self.lifecycle.deadline().map(|at| at.saturating_sub(elapsed));
        let cuts = self.outputs.iter().filter(|o| !o.has_unwritten()).filter_map(OutputStream::deadline);
        let cuts = cuts.map(|at| at.saturating_duration_since(now));
        let disk = self.disk.retry_after();
        let notice = self.notify.due().map(|at| at.saturating_duration_since(now));
        let budget = self.limits.due().map(|at| at.saturating_duration_since(now));
        lifecycle.into_iter().chain(cuts).chain(disk).chain(notice).chain(budget).min()
    }

    fn handle_ready(&mut self, ready: &Ready) {
        for n in &ready.outputs {
            self.read_output(*n);
        }
        if ready.input_queue {
            self.write_input();
        }
        for (n, _) in ready.control.iter().enumerate().filter(|(_, ready)| **ready) {
            match self.control.peer_id(n) {
                None => self.control.accept(),
                Some(peer) => {
                    for operation in self.control.read_messages(n) {
                        self.operate(peer, operation);
                    }
                }
            }
        }
        self.control.listen_when_abandoned();
        if ready.signals {
            self.handle_ended_children();
        }
        if self.outputs.iter().all(|o| !o.is_open()) {
            let now = self.journal.elapsed();
            self.step(now, LifecycleEvent::OutputClosed);
        }
    }

    pub(crate) fn step(&mut self, now: Duration, event: LifecycleEvent) {
        for action in self.lifecycle.step(now, event) {
            match action {
                LifecycleAction::RecordLimit { name, value } => {
                    let value = u64::try_from(value.as_millis()).unwrap_or(u64::MAX);
                    let (limit, action) = (Text::from_static(name), Text::from_static("stopped"));
                    self.journal.push(&Frame::LimitReached { limit, value, action });
                }
                LifecycleAction::Terminate => tree::terminate(std::process::id()),
                LifecycleAction::Kill(why) => self.kill_tree(why),
                LifecycleAction::RecordLeftovers => {
                    let processes = tree::descendants(std::process::id());
                    if processes.is_empty() {
                        self.step(now, LifecycleEvent::TreeShrank { left: 0 });
                    } else if self.main.update_leftovers(&processes) {
                        self.cut_all_output();
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
    outputs: Vec<usize>,
    input_queue: bool,
    control: Vec<bool>,
}
