//! Prints the output of a task on standard output and standard error, filtered where they are a terminal.

use super::{
    escapes::{EscapeFilter, EscapePolicy},
    interrupts::take_interrupt,
};
use crate::say;
use countersign_client::{Client, ClientError};
use countersign_model::{RefusalCode, StreamName, TaskId, TaskRefusal, TaskState};
use std::io::{self, IsTerminal as _, Write as _};

/// How much is fetched in one call: less for a terminal, where the user may interrupt.
const FETCH_BYTES: u64 = 1024 * 1024;
const TERMINAL_FETCH_BYTES: u64 = 64 * 1024;
/// After Ctrl-C a larger backlog than this is skipped, except for its end.
const MAX_BACKLOG_BYTES: u64 = 256 * 1024;
const BACKLOG_TAIL_BYTES: u64 = 4096;

/// Standard output and standard error, with escapes filtered where they are a terminal.
pub(crate) struct SafeOutput {
    out: Option<EscapeFilter>,
    err: Option<EscapeFilter>,
}

impl SafeOutput {
    pub(crate) fn new(raw: bool) -> Self {
        let filter = |terminal: bool| (terminal && !raw).then(|| EscapeFilter::new(EscapePolicy::Plain));
        Self { out: filter(io::stdout().is_terminal()), err: filter(io::stderr().is_terminal()) }
    }

    pub(crate) fn write(&mut self, stream: StreamName, bytes: &[u8]) -> io::Result<()> {
        let filter = match stream {
            StreamName::Stdout | StreamName::Pty => &mut self.out,
            StreamName::Stderr => &mut self.err,
        };
        match filter {
            Some(filter) => write(stream, &filter.feed(bytes)),
            None => write(stream, bytes),
        }
    }

    /// Writes what the filters hold back and resets colours.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        for (stream, filter) in [(StreamName::Stdout, &mut self.out), (StreamName::Stderr, &mut self.err)] {
            if let Some(filter) = filter {
                write(stream, &filter.finish())?;
            }
        }
        Ok(())
    }
}

/// Prints the streams of a task; each call continues where the last one stopped.
pub(crate) struct StreamPrinter {
    client: Client,
    task: TaskId,
    printed: [u64; 3],
    writers: SafeOutput,
    /// Output before the first printed frame is skipped.
    pub(crate) skipping: bool,
}

impl StreamPrinter {
    pub(crate) fn new(client: Client, task: TaskId, raw: bool) -> Self {
        Self { client, task, printed: [0; 3], writers: SafeOutput::new(raw), skipping: false }
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.writers.finish()
    }

    /// Prints the bytes of a frame, after those before it that were not printed yet.
    pub(crate) fn print_frame(&mut self, stream: StreamName, offset: u64, len: u64) -> anyhow::Result<()> {
        let at = &mut self.printed[stream as usize];
        if self.skipping {
            *at = (*at).max(offset);
        }
        self.print(stream, offset + len)
    }

    pub(crate) fn seek(&mut self, stream: StreamName, offset: u64) {
        self.printed[stream as usize] = offset;
    }

    /// Prints bytes that came with their frame.
    pub(crate) fn print_text(&mut self, stream: StreamName, offset: u64, text: &str) -> anyhow::Result<()> {
        if self.printed[stream as usize] == offset {
            self.printed[stream as usize] += text.len() as u64;
            self.writers.write(stream, text.as_bytes())?;
        }
        Ok(())
    }

    /// Skips a large backlog, so that an interrupted task seems to stop immediately.
    fn skip_backlog(&mut self) -> anyhow::Result<()> {
        let state = self.client.task(&self.task.to_string())?;
        for (stream, s) in &state.io.streams {
            let at = &mut self.printed[*stream as usize];
            if s.bytes.saturating_sub(*at) > MAX_BACKLOG_BYTES {
                let skipped = s.bytes - BACKLOG_TAIL_BYTES - *at;
                *at += skipped;
                say(&format!("\ncsn: skipped {skipped} bytes of {stream}; to read them: csn logs {}", self.task));
            }
        }
        Ok(())
    }

    /// Fetches and prints everything up to `end`.
    pub(crate) fn print(&mut self, stream: StreamName, end: u64) -> anyhow::Result<()> {
        let piece = if self.writers.out.is_some() { TERMINAL_FETCH_BYTES } else { FETCH_BYTES };
        while self.printed[stream as usize] < end {
            if self.writers.out.is_some() && take_interrupt() {
                self.skip_backlog()?;
                continue;
            }
            let at = &mut self.printed[stream as usize];
            let bytes = match self.client.output(self.task, stream, *at, piece.min(end - *at)) {
                Err(ClientError::Refused(refused)) if refused.refusal.code == RefusalCode::RangeNotSatisfiable => {
                    // The output limit dropped these bytes; the stream continues after them.
                    let state = self.client.task(&self.task.to_string())?;
                    let Some(next) = end_of_gap(&state, stream, *at) else { return Err(without_task(refused)) };
                    self.writers.finish()?;
                    say(&format!("csn: {} bytes of {stream} were not stored (output limit)", next - *at));
                    *at = next;
                    continue;
                }
                bytes => bytes?,
            };
            if bytes.is_empty() {
                break;
            }
            *at += bytes.len() as u64;
            self.writers.write(stream, &bytes)?;
        }
        Ok(())
    }
}

fn without_task(refused: TaskRefusal) -> anyhow::Error {
    ClientError::from(TaskRefusal { task: None, ..refused }).into()
}

/// Where a stream continues if `at` lies in the bytes that the output limit dropped.
fn end_of_gap(state: &TaskState, stream: StreamName, at: u64) -> Option<u64> {
    let (limit, dropped) = (state.request.limits.output_bytes?, state.io.streams.get(&stream)?.dropped);
    (dropped > 0 && (limit..limit + dropped).contains(&at)).then_some(limit + dropped)
}

fn write(stream: StreamName, bytes: &[u8]) -> io::Result<()> {
    match stream {
        StreamName::Stdout | StreamName::Pty => {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
        StreamName::Stderr => io::stderr().lock().write_all(bytes),
    }
}
