//! Where a task is shown: a terminal, drawn through a filter, or a file or pipe that gets every byte.

use crate::terminal::{
    escapes::{EscapeFilter, EscapePolicy},
    output::SafeOutput,
    raw::RawMode,
};
use countersign_model::StreamName;
use std::io::{self, Write as _};

pub(super) struct Display {
    /// Only where a terminal of the task is shown on a terminal of ours.
    filter: Option<EscapeFilter>,
    plain: SafeOutput,
    raw: Option<RawMode>,
    /// The stream that the next bytes belong to.
    pub(super) stream: StreamName,
}

impl Display {
    pub(super) fn new(rule: Option<EscapePolicy>, stream: StreamName) -> Self {
        Self { filter: rule.map(EscapeFilter::new), plain: SafeOutput::new(false), raw: None, stream }
    }

    /// Whether it is drawn; else everything is written, once.
    pub(super) fn draws(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether the keyboard is the task's.
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

    /// Makes room for a screen of this height: what was on this terminal before stays above it.
    pub(super) fn make_room(&mut self, rows: usize) -> io::Result<()> {
        let Some(filter) = &mut self.filter else { return Ok(()) };
        let mut out = io::stdout().lock();
        out.write_all(&filter.finish())?;
        if self.raw.is_none() {
            out.write_all("\n".repeat(rows).as_bytes())?;
        }
        Ok(())
    }

    /// Leaves the terminal as it was; whether the keyboard was the task's.
    pub(super) fn leave(&mut self) -> bool {
        if let Some(filter) = &mut self.filter {
            let reset = filter.finish();
            let _ = io::stdout().write_all(&reset).and_then(|()| io::stdout().flush());
        }
        let _ = self.plain.finish();
        self.raw.take().is_some()
    }
}
