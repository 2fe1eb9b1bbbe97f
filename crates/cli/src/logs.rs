//! `logs`: the stored bytes, exactly. stdout goes to stdout and stderr to stderr, in the order in which they came.

use crate::{
    Doors,
    args::{LogsArgs, StreamArg},
    house::reach,
};
use countersign_client::{Client, ClientError};
use countersign_model::{Frame, Record, StreamName, TaskId, What};
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

/// How much is asked for at a time.
const PIECE: u64 = 1024 * 1024;

pub(crate) fn logs(doors: &Doors<'_>, args: &LogsArgs) -> anyhow::Result<ExitCode> {
    let client = reach(doors)?;
    let state = client.task(&args.task)?;
    let task = state.task_id;
    let wanted = args.stream.map(|s| match s {
        StreamArg::Stdout => StreamName::Stdout,
        StreamArg::Stderr => StreamName::Stderr,
    });
    let streams = match wanted {
        Some(one) => vec![one],
        None => vec![StreamName::Stdout, StreamName::Stderr],
    };
    let mut printer = Printer::new(client.clone(), task);
    // The end of each stream, or one stream alone, needs no order between streams.
    if !args.json && (args.lines.is_some() || streams.len() == 1) {
        for stream in &streams {
            let from = args.lines.map_or(Ok(0), |n| client.tail(task, *stream, n))?;
            printer.seek(*stream, from);
            printer.print(*stream, state.streams.get(stream).map_or(0, |s| s.bytes))?;
        }
        if !args.follow || state.settled() {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let mut events = client.events(task, None);
    loop {
        let event = match events.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => break,
            Err(ClientError::Broken(_) | ClientError::NoHouse { .. }) if args.follow => {
                reach(doors)?;
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        if let Ok(Record { what: What::Frame(Frame::Output { stream, offset, len, .. }), .. }) =
            Record::parse(&event.line)
            && streams.contains(&stream)
        {
            match args.json {
                true => writeln!(io::stdout(), "{}", event.line)?,
                false => printer.print(stream, offset + len)?,
            }
        }
        if !args.follow && event.seq + 1 >= state.next_seq {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the streams of a task from where it stopped last.
pub(crate) struct Printer {
    client: Client,
    task: TaskId,
    printed: [u64; 2],
}

impl Printer {
    pub(crate) fn new(client: Client, task: TaskId) -> Self {
        Self { client, task, printed: [0; 2] }
    }

    fn seek(&mut self, stream: StreamName, offset: u64) {
        self.printed[stream as usize] = offset;
    }

    /// Bytes that came along with their frame.
    pub(crate) fn print_text(&mut self, stream: StreamName, offset: u64, text: &str) -> anyhow::Result<()> {
        if self.printed[stream as usize] == offset {
            self.printed[stream as usize] += text.len() as u64;
            write(stream, text.as_bytes())?;
        }
        Ok(())
    }

    /// Everything up to `end`, fetched.
    pub(crate) fn print(&mut self, stream: StreamName, end: u64) -> anyhow::Result<()> {
        let at = &mut self.printed[stream as usize];
        while *at < end {
            let bytes = self.client.output(self.task, stream, *at, PIECE.min(end - *at))?;
            if bytes.is_empty() {
                break;
            }
            *at += bytes.len() as u64;
            write(stream, &bytes)?;
        }
        Ok(())
    }
}

fn write(stream: StreamName, bytes: &[u8]) -> io::Result<()> {
    match stream {
        StreamName::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
        StreamName::Stderr => io::stderr().lock().write_all(bytes),
    }
}
