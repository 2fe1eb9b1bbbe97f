//! Input for a running task: the shim checks it, encodes it for the terminal or pipe, and writes it as fast as the
//! program reads.

use crate::{
    input_queue::{InputRefusal, InputResult, OperationCaller, PendingInput},
    supervise::Shim,
    wire,
};
use countersign_model::{Frame, InputKind, Mode, RefusalCode, Text};
use countersign_store::clock;

impl Shim<'_> {
    pub(crate) fn queue_input(&mut self, caller: OperationCaller, input: wire::TypedInput, by: Text) {
        if self.input_queue.is_none() {
            let message = "the task has no standard input: it was started without one";
            return self.refuse_operation(caller, RefusalCode::WrongMode, message);
        }
        let terminal = self.request.mode == Mode::Pty;
        if !terminal && matches!(input, wire::TypedInput::Keys(_)) {
            let message = "keys can only be sent to a terminal: this task runs over pipes";
            return self.refuse_operation(caller, RefusalCode::WrongMode, message);
        }
        let (bytes, kind, eof) = self.encode_input(input);
        self.learn_typed_secrets(&bytes);
        // A terminal stays open: the end-of-file character ends its input.
        let bytes = if eof && terminal { [bytes, vec![0x04]].concat() } else { bytes };
        let input = PendingInput { bytes, kind, by, caller, last: eof && !terminal };
        let pushed = self.input_queue.as_mut().map_or(Err(InputRefusal::Closed), |input_queue| input_queue.push(input));
        match pushed {
            Ok(()) => {
                self.operations.remember(caller.key, None);
                self.write_input();
            }
            Err(InputRefusal::Closed) => {
                self.refuse_operation(caller, RefusalCode::TaskOver, "the input of the task is closed");
            }
            Err(InputRefusal::Full) => {
                self.refuse_operation(
                    caller,
                    RefusalCode::InputFull,
                    "the program does not read its input, and the queue is full (1 MiB)",
                );
            }
        }
    }

    /// The bytes that a terminal in its current mode would send, their kind, and whether the input ends after them.
    fn encode_input(&self, input: wire::TypedInput) -> (Vec<u8>, InputKind, bool) {
        let screen = self.outputs.iter().find_map(|o| o.screen.as_ref());
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
                let mode = screen.map(|s| s.key_mode()).unwrap_or_default();
                (keys.into_iter().flat_map(|key| key.bytes(mode)).collect(), InputKind::Keys, false)
            }
            wire::TypedInput::Paste(text) => {
                let bytes = if screen.is_some_and(|s| s.wants_bracketed_paste()) {
                    // Pasted text must not contain the sequence that ends a paste, so it keeps no escape characters.
                    let plain = text.replace(|c: char| c == '\u{1b}' || ('\u{80}'..='\u{9f}').contains(&c), "");
                    format!("\x1b[200~{plain}\x1b[201~")
                } else {
                    text
                };
                (bytes.into_bytes(), InputKind::Paste, false)
            }
        }
    }

    /// Writes as much input as the child takes now.
    pub(crate) fn write_input(&mut self) {
        let Some(input_queue) = &mut self.input_queue else { return };
        let finished = input_queue.write();
        if finished.is_empty() {
            return;
        }
        if let Some(watch) = &mut self.terminal {
            watch.note_input(clock::steady());
        }
        self.cut_all_output();
        for result in finished {
            self.finish_input(result);
        }
    }

    /// The task has ended and reads no more input.
    pub(crate) fn close_input(&mut self) {
        let finished = self.input_queue.as_mut().map(|input_queue| input_queue.close()).unwrap_or_default();
        for result in finished {
            self.finish_input(result);
        }
        self.input_queue = None;
    }

    fn finish_input(&mut self, result: InputResult) {
        let frame = Frame::StdinWritten { bytes: result.written, input: result.kind, by: result.by };
        if result.complete {
            return self.record_applied(result.caller, &frame);
        }
        if result.written > 0 {
            self.journal.push(&frame);
        }
        let message = format!("the program closed its input after {} of these bytes", result.written);
        self.refuse_operation(result.caller, RefusalCode::TaskOver, &message);
    }

    fn learn_typed_secrets(&mut self, bytes: &[u8]) {
        let Some(watch) = &self.terminal else { return };
        if let Some(mask) = self.secrets.learn(bytes, watch.terminal.echoes()) {
            self.mask = mask;
            self.outputs.iter_mut().for_each(|o| o.set_mask(&self.mask));
        }
    }
}
