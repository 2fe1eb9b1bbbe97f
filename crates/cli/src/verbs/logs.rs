//! `logs`: the stored bytes, exactly. stdout goes to stdout and stderr to stderr, in the order in which they came. On a
//! terminal, escapes are shown instead of obeyed, unless `--raw`.

use crate::{UsageError, args::LogsArgs, target_home::reach, terminal::output::StreamPrinter, verbs::run};
use countersign_client::ClientError;
use countersign_model::{
    Frame, Record, RecordContent, Refusal, RefusalCode, StreamName, TaskRefusal, TaskState, Timestamp,
};
use countersign_store::clock;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn logs(args: &LogsArgs) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let state = client.task(&args.task)?;
    let task = state.task_id;
    kept(&state)?;
    if let Some(stream) =
        args.stream.map(|s| s.name()).filter(|s| !StreamName::for_mode(state.request.mode).contains(s))
    {
        let names: Vec<&str> = StreamName::for_mode(state.request.mode).iter().map(|s| s.as_str()).collect();
        return Err(UsageError(format!("--stream {stream}: this task has {}", names.join(" and "))).into());
    }
    let streams = match args.stream {
        Some(one) => vec![one.name()],
        None => StreamName::for_mode(state.request.mode).to_vec(),
    };
    let since = args.since.as_deref().map(since).transpose()?;
    let lines = args.lines.as_deref().map(lines).transpose()?.or(args.tail.map(LineSelection::Last));
    let mut printer = StreamPrinter::new(client.clone(), task, args.raw);
    if let Some(LineSelection::Range { first, count }) = lines {
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
                Some(LineSelection::Last(n)) => client.tail(task, *stream, n)?,
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
            Err(ClientError::Broken(_) | ClientError::NoDaemon { .. }) if args.follow => {
                reach()?;
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        if let Record { what: RecordContent::Frame(Frame::Output { stream, offset, len, .. }), at, .. } =
            event.value.record
            && streams.contains(&stream)
            && since.is_none_or(|since| at >= since)
        {
            match args.json {
                true => writeln!(io::stdout(), "{}", event.json)?,
                false => printer.print_frame(stream, offset, len)?,
            }
        }
        if !args.follow && event.value.record.seq + 1 >= state.next_seq {
            break;
        }
    }
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Whether what a task wrote is still there.
pub(crate) fn kept(state: &TaskState) -> anyhow::Result<()> {
    let Some(at) = state.expired_at else { return Ok(()) };
    let refusal = Refusal::new(RefusalCode::Expired, format!("what this task wrote was removed at {at}"));
    let refusal = refusal.hint("its decisions and digests stay: csn show");
    Err(ClientError::from(TaskRefusal::from(refusal).of_task(state.task_id)).into())
}

fn end(state: &TaskState, stream: StreamName) -> u64 {
    state.io.streams.get(&stream).map_or(0, |s| s.bytes)
}

#[derive(Clone, Copy)]
enum LineSelection {
    Last(u64),
    Range { first: u64, count: u64 },
}

/// `20` for the last twenty, `100:120` for those lines.
fn lines(text: &str) -> anyhow::Result<LineSelection> {
    let parsed = match text.split_once(':') {
        None => text.parse().ok().map(LineSelection::Last),
        Some((first, last)) => match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(first), Ok(last)) if 1 <= first && first <= last => {
                Some(LineSelection::Range { first, count: last - first + 1 })
            }
            _ => None,
        },
    };
    parsed.ok_or_else(|| {
        UsageError(format!("--lines {text}: a number for the last lines, or FROM:TO, counted from 1")).into()
    })
}

/// A time of day on the record, or how long ago.
fn since(text: &str) -> anyhow::Result<Timestamp> {
    if let Ok(at) = serde_json::from_value::<Timestamp>(text.into()) {
        return Ok(at);
    }
    let ago = run::time(text).map_err(|_| {
        UsageError(format!("--since {text}: how long ago (90s, 5m, 2h), or a time such as 2026-11-16T12:00:00Z"))
    })?;
    Ok(Timestamp::from_micros(clock::now().micros() - i64::try_from(ago).unwrap_or(i64::MAX).saturating_mul(1000)))
}
