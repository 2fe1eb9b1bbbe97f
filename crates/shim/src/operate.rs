//! Control of a running task: signals, resize, cancel, screen (input is in `input`). Each operation is applied once,
//! recorded at the point of the output where it was applied, and answered with the number of its frame.

use crate::{
    input_queue::OperationCaller,
    lifecycle::{LifecycleEvent, StopCause},
    operations::EarlierOperation,
    supervise::Shim,
    tree,
    wire::{FromShim, ToShim},
};
use countersign_model::{Frame, KilledWhy, Refusal, RefusalCode, SignalName, Text};
use countersign_store::clock;

/// Larger screens are not sent.
const MAX_SCREEN_BYTES: usize = 4 * 1024 * 1024;

impl Shim<'_> {
    pub(crate) fn operate(&mut self, peer: u64, operation: ToShim) {
        let caller = |re, key| OperationCaller { peer, re, key };
        match operation {
            ToShim::Signal { re, signal, by, key } => self.apply_once(caller(re, key), |shim, caller| {
                shim.cut_all_output();
                match shim.signal_task(signal) {
                    Ok(()) => shim.record_applied(caller, &Frame::Signalled { signal, by }),
                    Err(_) => shim.refuse_operation(caller, RefusalCode::TaskOver, "the process of the task has ended"),
                }
            }),
            ToShim::Resize { re, rows, cols, by, key } => {
                self.apply_once(caller(re, key), |shim, caller| shim.resize(caller, rows, cols, by));
            }
            ToShim::Input { re, input, by, key } => {
                self.apply_once(caller(re, key), |shim, caller| shim.queue_input(caller, input, by));
            }
            ToShim::Cancel { re, by, reason, why } => {
                self.cut_all_output();
                let frame = Frame::CancelRequested { by: by.clone(), reason: reason.clone() };
                let seq = self.journal.push(&frame);
                let stop = match why {
                    KilledWhy::Shutdown => StopCause::Shutdown { by },
                    KilledWhy::SessionEnd => StopCause::SessionEnd { by },
                    KilledWhy::Cancel | KilledWhy::Timeout | KilledWhy::Limit => StopCause::Cancel { by, reason },
                };
                let now = self.journal.elapsed();
                self.step(now, LifecycleEvent::Stop(stop));
                self.answer_applied(caller(re, None), seq);
            }
            ToShim::Screen { re } => self.show_screen(peer, re),
            ToShim::Order(_) | ToShim::Hello { .. } => {}
        }
    }

    /// Applies an operation unless it has come before under the same key.
    fn apply_once(&mut self, caller: OperationCaller, apply: impl FnOnce(&mut Self, OperationCaller)) {
        match self.operations.find_earlier(caller.key) {
            EarlierOperation::New => apply(self, caller),
            EarlierOperation::Same(Some(seq)) => {
                self.control.send_to(caller.peer, &FromShim::Applied { re: caller.re, seq })
            }
            // The first one is still being applied: this caller gets the same answer then.
            EarlierOperation::Same(None) if self.operations.add_waiting(caller) => {}
            EarlierOperation::Same(None) => {
                let message = "this operation is still being applied, and too many callers wait for its answer";
                self.control.send_refusal(caller.peer, caller.re, RefusalCode::InputFull, message);
            }
            EarlierOperation::Conflict => self.control.send_refusal(
                caller.peer,
                caller.re,
                RefusalCode::IdempotencyConflict,
                "this Idempotency-Key was used for a different operation",
            ),
        }
    }

    pub(crate) fn record_applied(&mut self, caller: OperationCaller, frame: &Frame) {
        let seq = self.journal.push(frame);
        self.answer_applied(caller, seq);
    }

    /// Writes the frame to the file before any caller is answered.
    fn answer_applied(&mut self, caller: OperationCaller, seq: u64) {
        if let Err(e) = self.journal.write() {
            self.give_up_recording(&e);
        }
        self.operations.remember(caller.key, Some(seq));
        self.control.send_to(caller.peer, &FromShim::Applied { re: caller.re, seq });
        for again in self.operations.take_waiting(caller) {
            self.control.send_to(again.peer, &FromShim::Applied { re: again.re, seq });
        }
    }

    pub(crate) fn refuse_operation(&mut self, caller: OperationCaller, code: RefusalCode, message: &str) {
        // Nothing was applied, so the same key may try again.
        self.operations.forget(caller.key);
        self.control.send_refusal(caller.peer, caller.re, code, message);
        for again in self.operations.take_waiting(caller) {
            self.control.send_refusal(again.peer, again.re, code, message);
        }
    }

    /// Signals the foreground group of the terminal, or else the task's process group, which outlives its leader.
    fn signal_task(&self, signal: SignalName) -> rustix::io::Result<()> {
        let main = self.main.pid().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        // The number of a group without processes may belong to another group by now.
        let main = main.filter(|_| self.main.is_running() || tree::has_group(std::process::id(), self.main.pid()));
        let is_ours = |g: &rustix::process::Pid| {
            tree::has_group(std::process::id(), u32::try_from(g.as_raw_nonzero().get()).ok())
        };
        let group = self.terminal.as_ref().and_then(|t| t.terminal.foreground_group()).filter(is_ours).or(main);
        let signal = rustix::process::Signal::from_named_raw(signal.number());
        match (group.and_then(|g| u32::try_from(g.as_raw_nonzero().get()).ok()), signal) {
            // One by one, and only descendants of the shim: the number of a group that has ended may have been reused.
            (Some(group), Some(signal)) => tree::signal_group(std::process::id(), group, signal),
            _ => Err(rustix::io::Errno::SRCH),
        }
    }

    fn resize(&mut self, caller: OperationCaller, rows: u16, cols: u16, by: Text) {
        let Some(watch) = &mut self.terminal else {
            return self.refuse_operation(
                caller,
                RefusalCode::WrongMode,
                "the task has no terminal: it runs over pipes",
            );
        };
        if let Err(e) = watch.terminal.resize(rows, cols) {
            let message = format!("the kernel did not accept the new size of the terminal: {e}");
            return self.refuse_operation(caller, RefusalCode::TaskOver, &message);
        }
        watch.note_input(clock::steady());
        self.cut_all_output();
        for screen in self.outputs.iter_mut().filter_map(|o| o.screen.as_mut()) {
            screen.resize(rows, cols);
        }
        self.record_applied(caller, &Frame::Resized { rows, cols, by: Some(by) });
    }

    fn show_screen(&mut self, peer: u64, re: u64) {
        self.cut_all_output();
        let mask = &self.mask;
        let shown = self.outputs.iter_mut().find_map(|o| Some((o.screen.as_mut()?.snapshot(mask), o.cut_offset())));
        let next_seq = self.journal.next_seq();
        if let Err(e) = self.journal.write() {
            self.give_up_recording(&e);
        }
        let message = match shown {
            Some((screen, _)) if screen.drawn.as_str().len() > MAX_SCREEN_BYTES => {
                let refusal = Refusal::new(RefusalCode::TooLarge, "the screen is too large to send");
                FromShim::Refused { re, refusal: refusal.hint("resize the terminal to fewer rows and columns") }
            }
            Some((screen, offset)) => FromShim::Screen { re, screen: Box::new(screen), offset, next_seq },
            None => {
                let refusal = Refusal::new(RefusalCode::WrongMode, "the task has no terminal: it runs over pipes");
                FromShim::Refused { re, refusal }
            }
        };
        self.control.send_to(peer, &message);
    }
}
