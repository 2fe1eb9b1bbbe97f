//! The main process of a task, and how it and its descendants end.

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

/// More reads than a full pipe needs.
const MAX_PIPE_READS: usize = 16;
/// More reads than a terminal needs when it hangs up.
const MAX_TERMINAL_READS: usize = 4096;

#[derive(Default)]
pub(crate) struct MainProcess {
    pid: Option<u32>,
    exited: Option<ExitedChild>,
    /// The pipe into which the shell reports the directory where it ended.
    final_cwd: Option<FinalCwd>,
    /// The leftovers that were recorded last.
    recorded_leftovers: Vec<u32>,
}

impl MainProcess {
    pub(crate) fn start(&mut self, pid: u32, final_cwd: Option<FinalCwd>) {
        (self.pid, self.final_cwd) = (Some(pid), final_cwd);
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    pub(crate) fn is_running(&self) -> bool {
        self.exited.is_none()
    }

    pub(crate) fn exited(&self) -> Option<&ExitedChild> {
        self.exited.as_ref()
    }

    /// A child was reaped. Returns its status if it is the main process and has not been noted before.
    fn note_reaped(&mut self, reaped: ExitedChild) -> Option<ExitStatus> {
        if Some(reaped.pid) != self.pid || self.exited.is_some() {
            return None;
        }
        let status = reaped.status;
        self.exited = Some(reaped);
        Some(status)
    }

    /// Stores the processes that are left. Returns whether they differ from the recorded ones.
    pub(crate) fn update_leftovers(&mut self, processes: &[u32]) -> bool {
        let changed = processes != self.recorded_leftovers;
        self.recorded_leftovers = processes.to_vec();
        changed
    }

    /// The directory that the shell reported, if the process has ended.
    pub(crate) fn take_final_directory(&mut self) -> Option<String> {
        let reported = self.final_cwd.take().and_then(FinalCwd::read_report);
        reported.filter(|_| self.exited.is_some())
    }

    /// Kills the task's first process group in one call: a fork bomb is mostly in it, and would keep forking while its
    /// processes are found one by one. Until the main process is reaped, no other group can have its number.
    pub(crate) fn kill_group(&self) {
        let group = self.pid.filter(|_| self.is_running()).and_then(|pid| i32::try_from(pid).ok());
        if let Some(group) = group.and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl Shim<'_> {
    pub(crate) fn handle_ended_children(&mut self) {
        // The signals only say that some child has ended: all ended children are reaped.
        let mut info = [0; 512];
        while rustix::io::read(&self.signals, &mut info).is_ok_and(|n| n > 0) {}
        self.reap_children();
        if self.lifecycle.is_over() {
            return;
        }
        let left = tree::descendants(std::process::id()).len();
        let now = self.journal.elapsed();
        self.step(now, LifecycleEvent::TreeShrank { left });
    }

    pub(crate) fn reap_children(&mut self) {
        while let Some(reaped) = sys::reap_child() {
            if let Some(status) = self.main.note_reaped(reaped) {
                let now = self.journal.elapsed();
                self.drain_after_exit();
                if self.outputs.iter().all(|o| !o.is_open()) {
                    self.step(now, LifecycleEvent::OutputClosed);
                }
                self.step(now, LifecycleEvent::MainExited(status));
            }
        }
    }

    /// Reads what the main process wrote before it ended; usually nothing else is in the pipe. A child that keeps
    /// writing is left to the loop, which has deadlines.
    fn drain_after_exit(&mut self) {
        // The kernel hangs up a terminal when the leader of its session ends.
        self.outputs.iter_mut().for_each(OutputStream::hang_up);
        let reads = if self.terminal.is_some() { MAX_TERMINAL_READS } else { MAX_PIPE_READS };
        for n in 0..self.outputs.len() {
            for _ in 0..reads {
                if self.outputs[n].poll_fd().is_none() || !matches!(self.outputs[n].read(), Ok(ReadResult::Bytes)) {
                    break;
                }
                let cut = self.outputs[n].cut_full_chunks(&mut self.journal, &self.dir);
                self.note_write_result(cut);
            }
        }
    }

    /// Kills all descendants and records them.
    pub(crate) fn kill_tree(&mut self, why: Option<KilledWhy>) {
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
                while let Some(reaped) = sys::reap_child() {
                    let _ = main.note_reaped(reaped);
                }
            },
        );
        if let Some(why) = why {
            self.journal.push(&Frame::Killed { signal: SignalName::KILL, why, survivors: survivors.clone() });
        }
        self.journal.push(&Frame::CleanupCompleted { ended, survivors });
    }
}
