//! Reads the output of a task and writes it to the record, and handles a disk that does not take it.

use crate::{
    disk::DISK_FULL_TIMEOUT,
    lifecycle::{LifecycleEvent, StopCause},
    output_stream::{OutputStream, ReadResult},
    supervise::Shim,
};
use countersign_model::{Frame, StreamName, Text};
use countersign_redact::text;
use countersign_store::clock;
use std::io;

/// A terminal returns a page at a time. This many are read, about a chunk, before the loop handles anything else.
const MAX_TERMINAL_READS: usize = 64;

impl Shim<'_> {
    pub(crate) fn read_output(&mut self, n: usize) {
        let terminal = self.outputs[n].name() == StreamName::Pty;
        let mut printed = false;
        for _ in 0..if terminal { MAX_TERMINAL_READS } else { 1 } {
            match self.outputs[n].read() {
                Ok(ReadResult::Bytes) => {
                    printed = true;
                    let cut = self.outputs[n].cut_full_chunks(&mut self.journal, &self.dir);
                    self.note_write_result(cut);
                    if self.outputs[n].poll_fd().is_none() {
                        break;
                    }
                }
                Ok(ReadResult::End) => {
                    let cut = self.outputs[n].cut_all(&mut self.journal, &self.dir);
                    self.note_write_result(cut);
                    break;
                }
                Ok(ReadResult::Nothing | ReadResult::HungUp) => break,
                Err(_) => {
                    self.outputs[n].abandon(&self.dir);
                    break;
                }
            }
        }
        self.share_learned_secrets(n);
        if printed {
            let now = self.journal.elapsed();
            self.step(now, LifecycleEvent::Output);
            self.note_terminal_output(n);
        }
    }

    /// Redacts what one stream has shown in all that follows: in the other streams, on the screen, in later tasks.
    fn share_learned_secrets(&mut self, n: usize) {
        let learned = self.outputs[n].take_learned();
        if learned.is_empty() {
            return;
        }
        self.mask = self.secrets.remember(&learned);
        self.outputs.iter_mut().for_each(|o| o.set_mask(&self.mask));
        self.control.tell_learned(&learned);
    }

    /// The terminal has new output, which a typing user waits for.
    fn note_terminal_output(&mut self, n: usize) {
        let Some(watch) = &mut self.terminal else { return };
        watch.note_output();
        if self.outputs[n].is_over_limit() {
            self.notify.note_screen_change();
        }
        if watch.expects_echo(clock::steady()) {
            let cut = self.outputs[n].cut_now(&mut self.journal, &self.dir);
            self.note_write_result(cut);
            self.notify.notify_now(clock::steady());
        }
    }

    pub(crate) fn cut_due_output(&mut self) {
        for n in 0..self.outputs.len() {
            let output = &mut self.outputs[n];
            let cut = if output.has_unwritten() {
                output.cut_all(&mut self.journal, &self.dir)
            } else {
                output.cut_due(&mut self.journal, &self.dir)
            };
            self.note_write_result(cut);
        }
        if !self.outputs.iter().any(OutputStream::has_unwritten) {
            self.disk.note_recovery();
        }
    }

    /// Notes whether the disk took the output. If it does not, the shim stops reading, waits, and in the end stops the
    /// task.
    pub(crate) fn note_write_result(&mut self, cut: io::Result<()>) {
        if let Err(e) = cut
            && self.disk.note_failure(clock::steady())
        {
            self.give_up_recording(&e);
        }
    }

    pub(crate) fn give_up_recording(&mut self, error: &io::Error) {
        self.notify.cancel();
        if self.lifecycle.is_over() || !self.disk.give_up() {
            return;
        }
        let timeout_ms = u64::try_from(DISK_FULL_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        self.journal.push(&Frame::LimitReached {
            limit: Text::from_static("disk"),
            value: timeout_ms,
            action: text(&self.mask, &format!("stopped: the record could not be written: {error}")),
        });
        for output in &mut self.outputs {
            output.abandon(&self.dir);
        }
        let now = self.journal.elapsed();
        self.step(now, LifecycleEvent::Stop(StopCause::Disk));
    }

    /// Cuts all output, so that the next frame is at this point of the output.
    pub(crate) fn cut_all_output(&mut self) {
        for n in 0..self.outputs.len() {
            let cut = self.outputs[n].cut_all(&mut self.journal, &self.dir);
            self.note_write_result(cut);
        }
    }
}
