//! Input for a running task: checked, turned into the bytes that its terminal or pipe takes, written as far as the program
//! reads.

use crate::{
    input_queue::{InputRefusal, InputResult, OperationCaller, PendingInput},
    supervise::Shim,
    wire,
};
use countersign_model::{Frame, InputKind, Mode, RefusalCode, Text};
use countersign_store::clock;

impl Shim<'_> {
    pub(crate) fn input(&mut self, asker: OperationCaller, input: wire::TypedInput, by: Text) {
        if self.inlet.is_none() {
            return self.refuse(asker, RefusalCode::WrongMode, "the task has no standard input: it was not asked for");
        }
        let terminal = self.what.mode == Mode::Pty;
        if !terminal && matches!(input, wire::TypedInput::Keys(_)) {
            return self.refuse(asker, RefusalCode::WrongMode, "keys are for terminals: the task runs over pipes");
        }
        let (bytes, kind, eof) = self.bytes_of(input);
        self.learn_what_is_hidden(&bytes);
        // A terminal stays open; what ends its input is a character.
        let bytes = if eof && terminal { [bytes, vec![0x04]].concat() } else { bytes };
        let input = PendingInput { bytes, kind, by, asker, last: eof && !terminal };
        let pushed = self.inlet.as_mut().map_or(Err(InputRefusal::Closed), |inlet| inlet.push(input));
        match pushed {
            Ok(()) => {
                self.operations.note(asker.key, None);
                self.write_input();
            }
            Err(InputRefusal::Closed) => self.refuse(asker, RefusalCode::TaskOver, "the task takes no more input"),
            Err(InputRefusal::Waiting) => {
                self.refuse(
                    asker,
                    RefusalCode::InputFull,
                    "the program does not read: a megabyte of input waits already",
                );
            }
        }
    }

    /// The bytes that a terminal in its present mode would send.
    fn bytes_of(&self, input: wire::TypedInput) -> (Vec<u8>, InputKind, bool) {
        let screen = self.outlets.iter().find_map(|o| o.screen.as_ref());
        let kind = |empty: bool, eof: bool| if empty && eof { InputKind::Eof } else { InputKind::Text };
        match input {
            wire::TypedInput::Text { text, eof } => {
                let kind = kind(text.is_empty(), eof);
                (text.into_bytes(), kind, eof)
            }
            wire::TypedInput::Bytes { bytes, eof } => {
                let kind = kind(bytes.is_empty(), eof);
                (bytes, kind, eof)
            }
            wire::TypedInput::Keys(keys) => {
                let mode = screen.map(|s| s.keys()).unwrap_or_default();
                (keys.into_iter().flat_map(|key| key.bytes(mode)).collect(), InputKind::Keys, false)
            }
            wire::TypedInput::Paste(text) => {
                let bytes = if screen.is_some_and(|s| s.brackets_paste()) {
                    // What is pasted must not be able to say that the paste is over: it holds no escape at all.
                    let plain = text.replace(|c: char| c == '\u{1b}' || ('\u{80}'..='\u{9f}').contains(&c), "");
                    format!("\x1b[200~{plain}\x1b[201~")
                } else {
                    text
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
        if let Some(watch) = &mut self.terminal {
            watch.note_input(clock::steady());
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

    fn input_done(&mut self, done: InputResult) {
        let frame = Frame::StdinWritten { bytes: done.written, input: done.kind, by: done.by };
        if done.whole {
            return self.applied(done.asker, &frame);
        }
        if done.written > 0 {
            self.journal.push(&frame);
        }
        let said = format!("the program closed its input after {} of these bytes", done.written);
        self.refuse(done.asker, RefusalCode::TaskOver, &said);
    }

    fn learn_what_is_hidden(&mut self, bytes: &[u8]) {
        let Some(watch) = &self.terminal else { return };
        if let Some(mask) = self.secrets.learn(bytes, watch.terminal.echoes()) {
            self.mask = mask;
            self.outlets.iter_mut().for_each(|o| o.learn(&self.mask));
        }
    }
}
