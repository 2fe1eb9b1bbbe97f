//! What a task wrote, on our own two streams: made safe where they are a terminal.

use super::{
    escapes::{EscapeFilter, EscapePolicy},
    interrupts::was_interrupted,
};
use crate::say;
use countersign_client::{Client, ClientError};
use countersign_model::{RefusalCode, StreamName, TaskId, TaskRefusal, TaskState};
use std::io::{self, IsTerminal as _, Write as _};

/// How much is asked for at a time: less at a terminal, where somebody may want it to stop.
const PIECE: u64 = 1024 * 1024;
const TERMINAL_PIECE: u64 = 64 * 1024;
/// Whoever interrupts a task has seen enough: of more than this that waits to be printed, the end is.
const BACKLOG: u64 = 256 * 1024;
const SEEN_OF_IT: u64 = 4096;

/// Our own two streams, made safe where they are a terminal.
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

    /// What was held back, and colours as they were.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        for (stream, filter) in [(StreamName::Stdout, &mut self.out), (StreamName::Stderr, &mut self.err)] {
            if let Some(filter) = filter {
                write(stream, &filter.finish())?;
            }
        }
        Ok(())
    }
}

/// Prints the streams of a task from where it stopped last.
pub(crate) struct StreamPrinter {
    client: Client,
    task: TaskId,
    printed: [u64; 3],
    writers: SafeOutput,
    /// What came before was not asked for.
    pub(crate) skipping: bool,
}

impl StreamPrinter {
    pub(crate) fn new(client: Client, task: TaskId, raw: bool) -> Self {
        Self { client, task, printed: [0; 3], writers: SafeOutput::new(raw), skipping: false }
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.writers.finish()
    }

    /// What a frame speaks of, and what lies before it and was not printed.
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

    /// Bytes that came along with their frame.
    pub(crate) fn print_text(&mut self, stream: StreamName, offset: u64, text: &str) -> anyhow::Result<()> {
        if self.printed[stream as usize] == offset {
            self.printed[stream as usize] += text.len() as u64;
            self.writers.write(stream, text.as_bytes())?;
        }
        Ok(())
    }

    /// On to where the task is now.
    fn skip_backlog(&mut self) -> anyhow::Result<()> {
        let state = self.client.task(&self.task.to_string())?;
        for (stream, s) in &state.io.streams {
            let at = &mut self.printed[*stream as usize];
            if s.bytes.saturating_sub(*at) > BACKLOG {
                let skipped = s.bytes - SEEN_OF_IT - *at;
                *at += skipped;
                say(&format!("\ncsn: {skipped} bytes of {stream} not shown: csn logs {}", self.task));
            }
        }
        Ok(())
    }

    /// Everything up to `end`, fetched.
    pub(crate) fn print(&mut self, stream: StreamName, end: u64) -> anyhow::Result<()> {
        let piece = if self.writers.out.is_some() { TERMINAL_PIECE } else { PIECE };
        while self.printed[stream as usize] < end {
            if self.writers.out.is_some() && was_interrupted() {
                self.skip_backlog()?;
                continue;
            }
            let at = &mut self.printed[stream as usize];
            let bytes = match self.client.output(self.task, stream, *at, piece.min(end - *at)) {
                Err(ClientError::Refused(refused)) if refused.refusal.code == RefusalCode::RangeNotSatisfiable => {
                    // The output limit dropped what comes here; it goes on behind that.
                    let state = self.client.task(&self.task.to_string())?;
                    let Some(behind) = behind_gap(&state, stream, *at) else { return Err(without_task(refused)) };
                    self.writers.finish()?;
                    say(&format!("csn: {} bytes of {stream} were not kept", behind - *at));
                    *at = behind;
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

/// Where a stream goes on when `at` lies in what was dropped.
fn behind_gap(state: &TaskState, stream: StreamName, at: u64) -> Option<u64> {
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
