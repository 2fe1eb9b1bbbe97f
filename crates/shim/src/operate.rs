//! Control of a running task: signals, resize, cancel, its screen; input is in `input`. Each stands in the journal at the point of the output
//! where it was applied, once, and is answered with the number of its frame.

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

/// A larger screen does not travel.
const LARGEST_SCREEN: usize = 4 * 1024 * 1024;

impl Shim<'_> {
    pub(crate) fn operate(&mut self, peer: u64, operation: ToShim) {
        let asker = |re, key| OperationCaller { peer, re, key };
        match operation {
            ToShim::Signal { re, signal, by, key } => self.once(asker(re, key), |shim, asker| {
                shim.cut_here();
                match shim.signal(signal) {
                    Ok(()) => shim.applied(asker, &Frame::Signalled { signal, by }),
                    Err(_) => shim.refuse(asker, RefusalCode::TaskOver, "the process has ended"),
                }
            }),
            ToShim::Resize { re, rows, cols, by, key } => {
                self.once(asker(re, key), |shim, asker| shim.resize(asker, rows, cols, by));
            }
            ToShim::Input { re, input, by, key } => {
                self.once(asker(re, key), |shim, asker| shim.input(asker, input, by));
            }
            ToShim::Cancel { re, by, reason, why } => {
                self.cut_here();
                let frame = Frame::CancelRequested { by: by.clone(), reason: reason.clone() };
                let seq = self.journal.push(&frame);
                let stop = match why {
                    KilledWhy::Shutdown => StopCause::Shutdown { by },
                    KilledWhy::SessionEnd => StopCause::SessionEnd { by },
                    KilledWhy::Cancel | KilledWhy::Timeout | KilledWhy::Limit => StopCause::Cancel { by, reason },
                };
                let now = self.journal.elapsed();
                self.step(now, LifecycleEvent::Stop(stop));
                self.answer(asker(re, None), seq);
            }
            ToShim::Screen { re } => self.show_screen(peer, re),
            ToShim::Order(_) | ToShim::Hello { .. } => {}
        }
    }

    /// Applies an operation, unless it came before.
    fn once(&mut self, asker: OperationCaller, apply: impl FnOnce(&mut Self, OperationCaller)) {
        match self.operations.look(asker.key) {
            EarlierOperation::New => apply(self, asker),
            EarlierOperation::Same(Some(seq)) => {
                self.control.answer(asker.peer, &FromShim::Applied { re: asker.re, seq })
            }
            // The first is still on its way: those who ask again are told when it is done.
            EarlierOperation::Same(None) if self.operations.wait_along(asker) => {}
            EarlierOperation::Same(None) => {
                let message = "the same operation is on its way, and too many wait for it";
                self.control.refuse(asker.peer, asker.re, RefusalCode::InputFull, message);
            }
            EarlierOperation::Another => self.control.refuse(
                asker.peer,
                asker.re,
                RefusalCode::IdempotencyConflict,
                "this Idempotency-Key came with another operation before",
            ),
        }
    }

    pub(crate) fn applied(&mut self, asker: OperationCaller, frame: &Frame) {
        let seq = self.journal.push(frame);
        self.answer(asker, seq);
    }

    /// The frame is in the file before anyone is told of it.
    fn answer(&mut self, asker: OperationCaller, seq: u64) {
        if let Err(e) = self.journal.write() {
            self.no_room(&e);
        }
        self.operations.note(asker.key, Some(seq));
        self.control.answer(asker.peer, &FromShim::Applied { re: asker.re, seq });
        for again in self.operations.take_waiting(asker) {
            self.control.answer(again.peer, &FromShim::Applied { re: again.re, seq });
        }
    }

    pub(crate) fn refuse(&mut self, asker: OperationCaller, code: RefusalCode, message: &str) {
        // Nothing was applied: whoever tries again is heard again.
        self.operations.forget(asker.key);
        self.control.refuse(asker.peer, asker.re, code, message);
        for again in self.operations.take_waiting(asker) {
            self.control.refuse(again.peer, again.re, code, message);
        }
    }

    /// To whoever has the terminal, else to the task's process group, which outlives its leader.
    fn signal(&self, signal: SignalName) -> rustix::io::Result<()> {
        let main = self.main.pid().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        // A group that has nobody left may be somebody else's by now.
        let main = main.filter(|_| self.main.runs() || tree::has_group(std::process::id(), self.main.pid()));
        let there = |g: &rustix::process::Pid| {
            tree::has_group(std::process::id(), u32::try_from(g.as_raw_nonzero().get()).ok())
        };
        let group = self.terminal.as_ref().and_then(|t| t.terminal.foreground()).filter(there).or(main);
        let signal = rustix::process::Signal::from_named_raw(signal.number());
        match (group.and_then(|g| u32::try_from(g.as_raw_nonzero().get()).ok()), signal) {
            // One by one, and only what is below us: the number of a group that has ended may be somebody else's.
            (Some(group), Some(signal)) => tree::signal_group(std::process::id(), group, signal),
            _ => Err(rustix::io::Errno::SRCH),
        }
    }

    fn resize(&mut self, asker: OperationCaller, rows: u16, cols: u16, by: Text) {
        let Some(watch) = &mut self.terminal else {
            return self.refuse(asker, RefusalCode::WrongMode, "the task has no terminal: it runs over pipes");
        };
        if let Err(e) = watch.terminal.resize(rows, cols) {
            return self.refuse(asker, RefusalCode::TaskOver, &format!("the terminal takes no size: {e}"));
        }
        watch.note_input(clock::steady());
        self.cut_here();
        for screen in self.outlets.iter_mut().filter_map(|o| o.screen.as_mut()) {
            screen.resize(rows, cols);
        }
        self.applied(asker, &Frame::Resized { rows, cols, by: Some(by) });
    }

    fn show_screen(&mut self, peer: u64, re: u64) {
        self.cut_here();
        let mask = &self.mask;
        let shown = self.outlets.iter_mut().find_map(|o| Some((o.screen.as_mut()?.show(mask), o.end())));
        let next_seq = self.journal.next_seq();
        if let Err(e) = self.journal.write() {
            self.no_room(&e);
        }
        let message = match shown {
            Some((screen, _)) if screen.drawn.as_str().len() > LARGEST_SCREEN => {
                let refusal = Refusal::new(RefusalCode::TooLarge, "the screen is too large to be shown");
                FromShim::Refused { re, refusal: refusal.hint("make the terminal smaller: csn resize") }
            }
            Some((screen, offset)) => FromShim::Screen { re, screen: Box::new(screen), offset, next_seq },
            None => {
                let refusal = Refusal::new(RefusalCode::WrongMode, "the task has no terminal: it runs over pipes");
                FromShim::Refused { re, refusal }
            }
        };
        self.control.answer(peer, &message);
    }
}
