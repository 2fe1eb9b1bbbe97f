//! `logs`: the stored bytes, exactly. stdout goes to stdout and stderr to stderr, in the order in which they came. On a
//! terminal, escapes are shown instead of obeyed, unless `--raw`.

use crate::{
    Doors, Usage,
    args::LogsArgs,
    escapes::{Filter, Rule},
    house::reach,
    run, say,
};
use countersign_client::{Client, ClientError};
use countersign_model::{At, Code, Frame, Record, Refusal, StreamName, TaskId, TaskState, What};
use countersign_store::clock;
use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

/// How much is asked for at a time: less at a terminal, where somebody may want it to stop.
const PIECE: u64 = 1024 * 1024;
const TERMINAL_PIECE: u64 = 64 * 1024;
/// Whoever interrupts a task has seen enough: of more than this that waits to be printed, the end is.
const BACKLOG: u64 = 256 * 1024;
const SEEN_OF_IT: u64 = 4096;

pub(crate) fn logs(doors: &Doors<'_>, args: &LogsArgs) -> anyhow::Result<ExitCode> {
    let client = reach(doors)?;
    let state = client.task(&args.task)?;
    let task = state.task_id;
    kept(&state)?;
    if let Some(stream) = args.stream.map(|s| s.name()).filter(|s| !StreamName::of(state.mode).contains(s)) {
        let names: Vec<&str> = StreamName::of(state.mode).iter().map(|s| s.as_str()).collect();
        return Err(Usage(format!("--stream {stream}: this task has {}", names.join(" and "))).into());
    }
    let streams = match args.stream {
        Some(one) => vec![one.name()],
        None => StreamName::of(state.mode).to_vec(),
    };
    let since = args.since.as_deref().map(since).transpose()?;
    let lines = args.lines.as_deref().map(lines).transpose()?.or(args.tail.map(Lines::Last));
    let mut printer = Printer::new(client.clone(), task, args.raw);
    if let Some(Lines::Range { first, count }) = lines {
        for stream in &streams {
            let (from, to) = client.lines(task, *stream, first, count)?;
            printer.seek(*stream, from);
            printer.print(*stream, to)?;
        }
        printer.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    // The end of each stream, or one stream alone, needs no order between streams.
    if !args.json && since.is_none() && (lines.is_some() || streams.len() == 1) {
        for stream in &streams {
            let from = match lines {
                Some(Lines::Last(n)) => client.tail(task, *stream, n)?,
                _ => 0,
            };
            printer.seek(*stream, from);
            printer.print(*stream, end(&state, *stream))?;
        }
        if !args.follow || state.settled() {
            printer.finish()?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    printer.skipping = since.is_some();
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
        if let Ok(Record { what: What::Frame(Frame::Output { stream, offset, len, .. }), at, .. }) =
            Record::parse(&event.line)
            && streams.contains(&stream)
            && since.is_none_or(|since| at >= since)
        {
            match args.json {
                true => writeln!(io::stdout(), "{}", event.line)?,
                false => printer.print_frame(stream, offset, len)?,
            }
        }
        if !args.follow && event.seq + 1 >= state.next_seq {
            break;
        }
    }
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Whether what a task wrote is still there.
pub(crate) fn kept(state: &TaskState) -> anyhow::Result<()> {
    let Some(at) = state.expired_at else { return Ok(()) };
    let refusal = Refusal::new(Code::Expired, format!("what this task wrote was removed at {at}"));
    let refusal = refusal.hint("its decisions and digests stay: csn show");
    Err(ClientError::Refused { refusal, task: Some(state.task_id) }.into())
}

fn end(state: &TaskState, stream: StreamName) -> u64 {
    state.streams.get(&stream).map_or(0, |s| s.bytes)
}

#[derive(Clone, Copy)]
enum Lines {
    Last(u64),
    Range { first: u64, count: u64 },
}

/// `20` for the last twenty, `100:120` for those lines.
fn lines(text: &str) -> anyhow::Result<Lines> {
    let parsed = match text.split_once(':') {
        None => text.parse().ok().map(Lines::Last),
        Some((first, last)) => match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(first), Ok(last)) if 1 <= first && first <= last => {
                Some(Lines::Range { first, count: last - first + 1 })
            }
            _ => None,
        },
    };
    parsed
        .ok_or_else(|| Usage(format!("--lines {text}: a number for the last lines, or FROM:TO, counted from 1")).into())
}

/// A time of day on the record, or how long ago.
fn since(text: &str) -> anyhow::Result<At> {
    if let Ok(at) = serde_json::from_value::<At>(text.into()) {
        return Ok(at);
    }
    let ago = run::time(text).map_err(|_| {
        Usage(format!("--since {text}: how long ago (90s, 5m, 2h), or a time such as 2026-11-16T12:00:00Z"))
    })?;
    Ok(At::from_micros(clock::now().micros() - i64::try_from(ago).unwrap_or(i64::MAX).saturating_mul(1000)))
}

/// Our own two streams, made safe where they are a terminal.
pub(crate) struct Writers {
    out: Option<Filter>,
    err: Option<Filter>,
}

impl Writers {
    pub(crate) fn new(raw: bool) -> Self {
        let filter = |terminal: bool| (terminal && !raw).then(|| Filter::new(Rule::Plain));
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
pub(crate) struct Printer {
    client: Client,
    task: TaskId,
    printed: [u64; 3],
    writers: Writers,
    /// What came before was not asked for.
    skipping: bool,
}

impl Printer {
    pub(crate) fn new(client: Client, task: TaskId, raw: bool) -> Self {
        Self { client, task, printed: [0; 3], writers: Writers::new(raw), skipping: false }
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.writers.finish()
    }

    /// What a frame speaks of, and what lies before it and was not printed.
    fn print_frame(&mut self, stream: StreamName, offset: u64, len: u64) -> anyhow::Result<()> {
        let at = &mut self.printed[stream as usize];
        if self.skipping {
            *at = (*at).max(offset);
        }
        self.print(stream, offset + len)
    }

    fn seek(&mut self, stream: StreamName, offset: u64) {
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
        for (stream, s) in &state.streams {
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
            if self.writers.out.is_some() && run::was_interrupted() {
                self.skip_backlog()?;
                continue;
            }
            let at = &mut self.printed[stream as usize];
            let bytes = match self.client.output(self.task, stream, *at, piece.min(end - *at)) {
                Err(ClientError::Refused { refusal, .. }) if refusal.code == Code::RangeNotSatisfiable => {
                    // The output limit dropped what comes here; it goes on behind that.
                    let state = self.client.task(&self.task.to_string())?;
                    let Some(behind) = behind_gap(&state, stream, *at) else { return Err(refusal_of(refusal)) };
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

fn refusal_of(refusal: Refusal) -> anyhow::Error {
    ClientError::Refused { refusal, task: None }.into()
}

/// Where a stream goes on when `at` lies in what was dropped.
fn behind_gap(state: &TaskState, stream: StreamName, at: u64) -> Option<u64> {
    let (limit, dropped) = (state.limits.output_bytes?, state.streams.get(&stream)?.dropped);
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
