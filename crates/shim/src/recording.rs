//! The output of a task on its way into the record: read, cut, written; and a disk that does not take it.

use crate::{
    disk::DISK_PATIENCE,
    lifecycle::{LifecycleEvent, StopCause},
    output_stream::{OutputStream, ReadResult},
    supervise::Shim,
};
use countersign_model::{Frame, StreamName, Text};
use countersign_redact::text;
use countersign_store::clock;
use std::io;

/// A terminal gives a page at a time: about a chunk of them are read before anything else is looked at.
const TERMINAL_READS: usize = 64;

impl Shim<'_> {
    pub(crate) fn read(&mut self, n: usize) {
        let terminal = self.outlets[n].name() == StreamName::Pty;
        let mut spoke = false;
        for _ in 0..if terminal { TERMINAL_READS } else { 1 } {
            match self.outlets[n].read() {
                Ok(ReadResult::Bytes) => {
                    spoke = true;
                    let cut = self.outlets[n].cut_full(&mut self.journal, &self.dir);
                    self.told(cut);
                    if self.outlets[n].wants().is_none() {
                        break;
                    }
                }
                Ok(ReadResult::End) => {
                    let cut = self.outlets[n].cut_all(&mut self.journal, &self.dir);
                    self.told(cut);
                    break;
                }
                Ok(ReadResult::Nothing | ReadResult::Hung) => break,
                Err(_) => {
                    self.outlets[n].abandon(&self.dir);
                    break;
                }
            }
        }
        if spoke {
            let now = self.journal.elapsed();
            self.step(now, LifecycleEvent::Output);
            self.terminal_spoke(n);
        }
    }

    /// The stream of the terminal has new output: those who type wait for it.
    fn terminal_spoke(&mut self, n: usize) {
        let Some(watch) = &mut self.terminal else { return };
        watch.note_output();
        if self.outlets[n].is_over_limit() {
            self.notify.screen_changed();
        }
        if watch.is_attentive(clock::steady()) {
            let cut = self.outlets[n].cut_now(&mut self.journal, &self.dir);
            self.told(cut);
            self.notify.hurry(clock::steady());
        }
    }

    pub(crate) fn cut_due(&mut self) {
        for n in 0..self.outlets.len() {
            let outlet = &mut self.outlets[n];
            let cut = if outlet.is_stuck() {
                outlet.cut_all(&mut self.journal, &self.dir)
            } else {
                outlet.cut_due(&mut self.journal, &self.dir)
            };
            self.told(cut);
        }
        if !self.outlets.iter().any(OutputStream::is_stuck) {
            self.disk.took_everything();
        }
    }

    /// Whether the disk took it. When it does not, we stop reading, wait, and in the end stop the task.
    pub(crate) fn told(&mut self, cut: io::Result<()>) {
        if let Err(e) = cut
            && self.disk.failed(clock::steady())
        {
            self.no_room(&e);
        }
    }

    pub(crate) fn no_room(&mut self, error: &io::Error) {
        self.notify.cancel();
        if self.life.is_over() || !self.disk.give_up() {
            return;
        }
        let patience = u64::try_from(DISK_PATIENCE.as_millis()).unwrap_or(u64::MAX);
        self.journal.push(&Frame::LimitReached {
            limit: Text::from_static("disk"),
            value: patience,
            action: text(&self.mask, &format!("stopped: the record could not be written: {error}")),
        });
        for outlet in &mut self.outlets {
            outlet.abandon(&self.dir);
        }
        let now = self.journal.elapsed();
        self.step(now, LifecycleEvent::Stop(StopCause::Disk));
    }

    /// What is recorded next stands in the journal at this point of the output.
    pub(crate) fn cut_here(&mut self) {
        for n in 0..self.outlets.len() {
            let cut = self.outlets[n].cut_all(&mut self.journal, &self.dir);
            self.told(cut);
        }
    }
}
