//! Control of a running task: input, resize, signals, cancel. Each stands in the journal at the point of the output
//! where it was applied, once, and is answered with the number of its frame.

use crate::{
    inlet::{Asker, Done, Full, Input},
    life::{Event, Stop},
    supervise::Shim,
    tree,
    wire::{self, FromShim, ToShim},
};
use countersign_model::{Code, Frame, Idempotency, InputKind, KilledWhy, Mode, Refusal, SignalName, Text};
use countersign_store::clock;
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// So long after input the terminal is watched closely: what comes now is most likely the echo.
const ATTENTIVE: Duration = Duration::from_millis(100);
/// How many operations are remembered by their key.
const REMEMBERED: usize = 4096;
/// A line that was typed unseen and is longer than this is no password.
const LONGEST_SECRET: usize = 1024;
/// So many are remembered, the last ones; and a call with more lines than this was typed by nobody.
const SECRETS: usize = 32;
const TYPED_LINES: usize = 4;
/// So many may wait for the answer to an operation that somebody else asked for first.
const ALSO_ASKED: usize = 1024;
/// A larger screen does not travel.
const LARGEST_SCREEN: usize = 4 * 1024 * 1024;

/// What was applied under an idempotency key: a second one is answered like the first, and not applied.
#[derive(Default)]
pub(crate) struct Applied {
    recent: VecDeque<(Idempotency, Option<u64>)>,
}

enum Before {
    New,
    /// Still on its way, or applied as this frame.
    Same(Option<u64>),
    Another,
}

impl Applied {
    fn look(&self, key: Option<Idempotency>) -> Before {
        let Some(key) = key else { return Before::New };
        match self.recent.iter().find(|(k, _)| k.key == key.key) {
            None => Before::New,
            Some((k, seq)) if k.body == key.body => Before::Same(*seq),
            Some(_) => Before::Another,
        }
    }

    fn forget(&mut self, key: Option<Idempotency>) {
        self.recent.retain(|(k, _)| Some(*k) != key);
    }

    fn note(&mut self, key: Option<Idempotency>, seq: Option<u64>) {
        let Some(key) = key else { return };
        match self.recent.iter_mut().find(|(k, _)| k.key == key.key) {
            Some(entry) => entry.1 = seq,
            None => {
                self.recent.push_back((key, seq));
                // What is still on its way is not forgotten: it would be applied twice.
                if self.recent.len() > REMEMBERED
                    && let Some(oldest) = self.recent.iter().position(|(_, seq)| seq.is_some())
                {
                    self.recent.remove(oldest);
                }
            }
        }
    }
}

impl Shim<'_> {
    pub(crate) fn operate(&mut self, peer: u64, operation: ToShim) {
        let asker = |re, key| Asker { peer, re, key };
        match operation {
            ToShim::Signal { re, signal, by, key } => self.once(asker(re, key), |shim, asker| {
                shim.cut_here();
                match shim.signal(signal) {
                    Ok(()) => shim.applied(asker, &Frame::Signalled { signal, by }),
                    Err(_) => shim.refuse(asker, Code::TaskOver, "the process has ended"),
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
                    KilledWhy::Shutdown => Stop::Shutdown { by },
                    KilledWhy::SessionEnd => Stop::SessionEnd { by },
                    KilledWhy::Cancel | KilledWhy::Timeout | KilledWhy::Limit => Stop::Cancel { by, reason },
                };
                let now = self.journal.elapsed();
                self.step(now, Event::Stop(stop));
                self.answer(asker(re, None), seq);
            }
            ToShim::Screen { re } => self.show_screen(peer, re),
            ToShim::Order(_) | ToShim::Hello { .. } => {}
        }
    }

    /// Applies an operation, unless it came before.
    fn once(&mut self, asker: Asker, apply: impl FnOnce(&mut Self, Asker)) {
        match self.operations.look(asker.key) {
            Before::New => apply(self, asker),
            Before::Same(Some(seq)) => self.control.answer(asker.peer, &FromShim::Applied { re: asker.re, seq }),
            // The first is still on its way: whoever asks again is told when it is done.
            Before::Same(None) if self.also_asked.len() < ALSO_ASKED => self.also_asked.push(asker),
            Before::Same(None) => {
                let message = "the same operation is on its way, and too many wait for it";
                self.control.refuse(asker.peer, asker.re, Code::InputFull, message);
            }
            Before::Another => self.control.refuse(
                asker.peer,
                asker.re,
                Code::IdempotencyConflict,
                "this Idempotency-Key came with another operation before",
            ),
        }
    }

    fn applied(&mut self, asker: Asker, frame: &Frame) {
        let seq = self.journal.push(frame);
        self.answer(asker, seq);
    }

    /// The frame is in the file before anyone is told of it.
    fn answer(&mut self, asker: Asker, seq: u64) {
        if let Err(e) = self.journal.write() {
            self.no_room(&e);
        }
        self.operations.note(asker.key, Some(seq));
        self.control.answer(asker.peer, &FromShim::Applied { re: asker.re, seq });
        for again in self.asked_again(asker) {
            self.control.answer(again.peer, &FromShim::Applied { re: again.re, seq });
        }
    }

    fn refuse(&mut self, asker: Asker, code: Code, message: &str) {
        // Nothing was applied: whoever tries again is heard again.
        self.operations.forget(asker.key);
        self.control.refuse(asker.peer, asker.re, code, message);
        for again in self.asked_again(asker) {
            self.control.refuse(again.peer, again.re, code, message);
        }
    }

    fn asked_again(&mut self, first: Asker) -> Vec<Asker> {
        let Some(key) = first.key else { return Vec::new() };
        self.also_asked.extract_if(.., |a| a.key == Some(key)).collect()
    }

    /// What is recorded next stands in the journal at this point of the output.
    pub(crate) fn cut_here(&mut self) {
        for n in 0..self.outlets.len() {
            let cut = self.outlets[n].cut_all(&mut self.journal, &self.dir);
            self.told(cut);
        }
    }

    /// To whoever has the terminal, else to the task's process group, which outlives its leader.
    fn signal(&self, signal: SignalName) -> rustix::io::Result<()> {
        let main = self.main.and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        // A group that has nobody left may be somebody else's by now.
        let main = main.filter(|_| self.main_runs() || tree::has_group(std::process::id(), self.main));
        let there = |g: &rustix::process::Pid| {
            tree::has_group(std::process::id(), u32::try_from(g.as_raw_nonzero().get()).ok())
        };
        let group = self.terminal.as_ref().and_then(|t| t.foreground()).filter(there).or(main);
        let signal = rustix::process::Signal::from_named_raw(signal.number());
        match (group.and_then(|g| u32::try_from(g.as_raw_nonzero().get()).ok()), signal) {
            // One by one, and only what is below us: the number of a group that has ended may be somebody else's.
            (Some(group), Some(signal)) => tree::signal_group(std::process::id(), group, signal),
            _ => Err(rustix::io::Errno::SRCH),
        }
    }

    fn resize(&mut self, asker: Asker, rows: u16, cols: u16, by: Text) {
        let Some(terminal) = &self.terminal else {
            return self.refuse(asker, Code::WrongMode, "the task has no terminal: it runs over pipes");
        };
        if let Err(e) = terminal.resize(rows, cols) {
            return self.refuse(asker, Code::TaskOver, &format!("the terminal takes no size: {e}"));
        }
        self.attentive_until = Some(clock::steady() + ATTENTIVE);
        self.cut_here();
        for screen in self.outlets.iter_mut().filter_map(|o| o.screen.as_mut()) {
            screen.resize(rows, cols);
        }
        self.applied(asker, &Frame::Resized { rows, cols, by: Some(by) });
    }

    fn input(&mut self, asker: Asker, input: wire::Input, by: Text) {
        if self.inlet.is_none() {
            return self.refuse(asker, Code::WrongMode, "the task has no standard input: it was not asked for");
        }
        let terminal = self.what.mode == Mode::Pty;
        if !terminal && matches!(input, wire::Input::Keys(_)) {
            return self.refuse(asker, Code::WrongMode, "keys are for terminals: the task runs over pipes");
        }
        let (bytes, kind, eof) = self.bytes_of(input);
        self.learn_what_is_hidden(&bytes);
        let bytes = match eof && terminal {
            // A terminal stays open; what ends its input is a character.
            true => [bytes, vec![0x04]].concat(),
            false => bytes,
        };
        let input = Input { bytes, kind, by, asker, last: eof && !terminal };
        let pushed = self.inlet.as_mut().map_or(Err(Full::Closed), |inlet| inlet.push(input));
        match pushed {
            Ok(()) => {
                self.operations.note(asker.key, None);
                self.write_input();
            }
            Err(Full::Closed) => self.refuse(asker, Code::TaskOver, "the task takes no more input"),
            Err(Full::Waiting) => {
                self.refuse(asker, Code::InputFull, "the program does not read: a megabyte of input waits already");
            }
        }
    }

    /// The bytes that a terminal in its present mode would send.
    fn bytes_of(&self, input: wire::Input) -> (Vec<u8>, InputKind, bool) {
        let screen = self.outlets.iter().find_map(|o| o.screen.as_ref());
        let kind = |empty: bool, eof: bool| if empty && eof { InputKind::Eof } else { InputKind::Text };
        match input {
            wire::Input::Text { text, eof } => {
                let kind = kind(text.is_empty(), eof);
                (text.into_bytes(), kind, eof)
            }
            wire::Input::Bytes { bytes, eof } => {
                let kind = kind(bytes.is_empty(), eof);
                (bytes, kind, eof)
            }
            wire::Input::Keys(keys) => {
                let mode = screen.map(|s| s.keys()).unwrap_or_default();
                (keys.into_iter().flat_map(|key| key.bytes(mode)).collect(), InputKind::Keys, false)
            }
            wire::Input::Paste(text) => {
                let bytes = match screen.is_some_and(|s| s.brackets_paste()) {
                    // What is pasted must not be able to say that the paste is over: it holds no escape at all.
                    true => {
                        let plain = text.replace(|c: char| c == '\u{1b}' || ('\u{80}'..='\u{9f}').contains(&c), "");
                        format!("\x1b[200~{plain}\x1b[201~")
                    }
                    false => text,
                };
                (bytes.into_bytes(), InputKind::Paste, false)
            }
        }
    }

    /// As much as the child takes now.
    pub(crate) fn write_input(&mut self) {
        let Some(inlet) = &mut self.inlet else { return };
        let done = inlet.write();
        if done.is_empty() {
            return;
        }
        if self.terminal.is_some() {
            self.attentive_until = Some(clock::steady() + ATTENTIVE);
        }
        self.cut_here();
        done.into_iter().for_each(|d| self.input_done(d));
    }

    /// The task has ended: what it has not read it never will.
    pub(crate) fn close_input(&mut self) {
        let done = self.inlet.as_mut().map(|inlet| inlet.close()).unwrap_or_default();
        done.into_iter().for_each(|d| self.input_done(d));
        self.inlet = None;
    }

    fn input_done(&mut self, done: Done) {
        let frame = Frame::StdinWritten { bytes: done.written, input: done.kind, by: done.by };
        match done.whole {
            true => self.applied(done.asker, &frame),
            false => {
                if done.written > 0 {
                    self.journal.push(&frame);
                }
                let said = format!("the program closed its input after {} of these bytes", done.written);
                self.refuse(done.asker, Code::TaskOver, &said);
            }
        }
    }

    /// What is typed while the terminal does not show it is a secret from then on, wherever it is printed.
    fn learn_what_is_hidden(&mut self, bytes: &[u8]) {
        let Some(terminal) = &self.terminal else { return };
        if terminal.echoes() {
            self.hidden.clear();
            return;
        }
        let is_end = |b: &&u8| matches!(**b, b'\r' | b'\n');
        if bytes.iter().filter(is_end).count() > TYPED_LINES {
            self.hidden.clear();
            return;
        }
        let before = self.secrets.len();
        for b in bytes {
            match b {
                b'\r' | b'\n' => {
                    let line = std::mem::take(&mut self.hidden);
                    self.secrets.extend(String::from_utf8(line).ok().filter(|line| !line.is_empty()));
                }
                // Erase and kill, as the terminal would; and the keys that make a signal of the line.
                0x7f | 0x08 => drop(self.hidden.pop()),
                0x15 | 0x03 | 0x1a | 0x1c => self.hidden.clear(),
                b if self.hidden.len() < LONGEST_SECRET => self.hidden.push(*b),
                _ => {}
            }
        }
        if self.secrets.len() > before {
            while self.secrets.len() > SECRETS {
                self.secrets.pop_front();
            }
            self.mask = Arc::new(self.first_mask.with(&self.secrets));
            self.outlets.iter_mut().for_each(|o| o.learn(&self.mask));
        }
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
                let refusal = Refusal::new(Code::TooLarge, "the screen is too large to be shown");
                FromShim::Refused { re, refusal: refusal.hint("make the terminal smaller: csn resize") }
            }
            Some((screen, offset)) => FromShim::Screen { re, screen: Box::new(screen), offset, next_seq },
            None => {
                let refusal = Refusal::new(Code::WrongMode, "the task has no terminal: it runs over pipes");
                FromShim::Refused { re, refusal }
            }
        };
        self.control.answer(peer, &message);
    }
}
