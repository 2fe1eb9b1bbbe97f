//! Shows a task: on a terminal through a filter for escapes, or into a file or pipe that gets every byte.

use crate::terminal::{
    escapes::{EscapeFilter, EscapePolicy},
    output::SafeOutput,
    raw::RawMode,
};
use countersign_model::StreamName;
use std::io::{self, Write as _};

pub(super) struct Display {
    /// Present if the task's terminal is drawn on our terminal.
    filter: Option<EscapeFilter>,
    plain: SafeOutput,
    raw: Option<RawMode>,
    /// The stream that the next bytes belong to.
    pub(super) stream: StreamName,
}

impl Display {
    pub(super) fn new(policy: Option<EscapePolicy>, stream: StreamName) -> Self {
        Self { filter: policy.map(EscapeFilter::new), plain: SafeOutput::new(false), raw: None, stream }
    }

    /// Whether the task's terminal is drawn; otherwise every byte is written once.
    pub(super) fn draws(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether the keyboard belongs to the task.
    pub(super) fn is_raw(&self) -> bool {
        self.raw.is_some()
    }

    pub(super) fn make_raw(&mut self) -> anyhow::Result<()> {
        if self.raw.is_none() {
            self.raw = Some(RawMode::begin()?);
        }
        Ok(())
    }

    pub(super) fn show(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.filter {
            Some(filter) => {
                let mut out = io::stdout().lock();
                out.write_all(&filter.feed(bytes))?;
                out.flush()
            }
            None => self.plain.write(self.stream, bytes),
        }
    }

    /// Scrolls by this many rows, so that earlier text stays above the task's screen.
    pub(super) fn make_room(&mut self, rows: usize) -> io::Result<()> {
        let Some(filter) = &mut self.filter else { return Ok(()) };
        let mut out = io::stdout().lock();
        out.write_all(&filter.finish())?;
        if self.raw.is_none() {
            out.write_all("\n".repeat(rows).as_bytes())?;
        }
        Ok(())
    }

    /// Restores the terminal. Returns whether the keyboard belonged to the task.
    pub(super) fn restore(&mut self) -> bool {
        if let Some(filter) = &mut self.filter {
            let reset = filter.finish();
            let _ = io::stdout().write_all(&reset).and_then(|()| io::stdout().flush());
        }
        let _ = self.plain.finish();
        self.raw.take().is_some()
    }
}
