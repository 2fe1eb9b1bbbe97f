//! The main process of a task, and the end of it and of everything below it.

use crate::{
    final_cwd::FinalCwd,
    lifecycle::LifecycleEvent,
    output_stream::{OutputStream, ReadResult},
    supervise::Shim,
    sys::{self, ExitedChild},
    tree,
};
use countersign_model::{ExitStatus, Frame, KilledWhy, SignalName};
use rustix::process::Pid;

/// More reads than a full pipe takes.
const PIPE_READS: usize = 16;
/// More than a terminal holds when it hangs up.
const DRAIN_READS: usize = 4096;

#[derive(Default)]
pub(crate) struct MainProcess {
    pid: Option<u32>,
    ended: Option<ExitedChild>,
    /// Where its shell tells in which directory it ended.
    ending: Option<FinalCwd>,
    /// The leftovers that were put on record last.
    kept: Vec<u32>,
}

impl MainProcess {
    pub(crate) fn start(&mut self, pid: u32, ending: Option<FinalCwd>) {
        (self.pid, self.ending) = (Some(pid), ending);
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    pub(crate) fn runs(&self) -> bool {
        self.ended.is_none()
    }

    pub(crate) fn ended(&self) -> Option<&ExitedChild> {
        self.ended.as_ref()
    }

    /// A child was reaped. Its status, if it is the main process and was not known to have ended.
    fn note(&mut self, reaped: ExitedChild) -> Option<ExitStatus> {
        if Some(reaped.pid) != self.pid || self.ended.is_some() {
            return None;
        }
        let status = reaped.status;
        self.ended = Some(reaped);
        Some(status)
    }

    /// Whether other processes are left than the record has.
    pub(crate) fn keeps_others(&mut self, processes: &[u32]) -> bool {
        let others = processes != self.kept;
        self.kept = processes.to_vec();
        others
    }

    /// The directory in which its shell said that it ended, if the process has ended.
    pub(crate) fn take_final_directory(&mut self) -> Option<String> {
        let told = self.ending.take().and_then(FinalCwd::told);
        told.filter(|_| self.ended.is_some())
    }

    /// Ends the task's first process group in one call: what multiplies is mostly there, and would go on while it is
    /// looked for one by one. Until the first process is reaped, no other group has its number.
    pub(crate) fn kill_group(&self) {
        let group = self.pid.filter(|_| self.runs()).and_then(|pid| i32::try_from(pid).ok());
        if let Some(group) = group.and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl Shim<'_> {
    pub(crate) fn children_ended(&mut self) {
        // How many and which does not matter: everything that has ended is taken.
        let mut info = [0; 512];
        while rustix::io::read(&self.signals, &mut info).is_ok_and(|n| n > 0) {}
        self.reap();
        if self.life.is_over() {
            return;
        }
        let left = tree::descendants(std::process::id()).len();
        let now = self.journal.elapsed();
        self.step(now, LifecycleEvent::TreeShrank { left });
    }

    pub(crate) fn reap(&mut self) {
        while let Some(reaped) = sys::reap() {
            if let Some(status) = self.main.note(reaped) {
                let now = self.journal.elapsed();
                self.drain_after_end();
                if self.outlets.iter().all(|o| !o.is_open()) {
                    self.step(now, LifecycleEvent::OutputClosed);
                }
                self.step(now, LifecycleEvent::MainExited(status));
            }
        }
    }

    /// What the main process wrote before it ended is still in the pipe; usually that, and its end, is all there is. A child
    /// that goes on writing is the business of the loop, which has deadlines.
    fn drain_after_end(&mut self) {
        // A terminal hangs up with the session that it belonged to.
        self.outlets.iter_mut().for_each(OutputStream::hang_up);
        let reads = if self.terminal.is_some() { DRAIN_READS } else { PIPE_READS };
        for n in 0..self.outlets.len() {
            for _ in 0..reads {
                if self.outlets[n].wants().is_none() || !matches!(self.outlets[n].read(), Ok(ReadResult::Bytes)) {
                    break;
                }
                let cut = self.outlets[n].cut_full(&mut self.journal, &self.dir);
                self.told(cut);
            }
        }
    }

    /// Ends everything below us, and says what was there.
    pub(crate) fn kill(&mut self, why: Option<KilledWhy>) {
        let me = std::process::id();
        let found = tree::descendants(me);
        if found.is_empty() {
            return;
        }
        self.journal.push(&Frame::CleanupStarted { processes: found });
        let main = &mut self.main;
        let (ended, survivors) = tree::kill_all(
            || tree::descendants(me),
            || {
                while let Some(reaped) = sys::reap() {
                    let _ = main.note(reaped);
                }
            },
        );
        if let Some(why) = why {
            self.journal.push(&Frame::Killed { signal: SignalName::KILL, why, survivors: survivors.clone() });
        }
        self.journal.push(&Frame::CleanupCompleted { ended, survivors });
    }
}
