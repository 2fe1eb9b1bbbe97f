//! `replay`: plays the recording of a task on the terminal, or writes it as a file. It starts nothing.

use crate::{
    UsageError,
    args::ReplayArgs,
    say,
    target_home::reach,
    terminal::{
        escapes::{EscapeFilter, EscapePolicy},
        output::SafeOutput,
        raw::size,
    },
    verbs::logs::ensure_output_stored,
};
use anyhow::Context as _;
use countersign_client::Client;
use countersign_model::{Frame, Mode, Record, RecordContent, StreamName, TaskState, cast::Version};
use std::{
    fs::File,
    io::{self, IsTerminal as _, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};

/// How much one call fetches.
const FETCH_BYTES: u64 = 1024 * 1024;

pub(crate) fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let speed = match args.speed {
        Some(speed) if !speed.is_finite() || speed <= 0.0 => {
            return Err(UsageError("--speed: give a number above zero, for example 2 or 0.5".to_owned()).into());
        }
        speed => speed.unwrap_or(1.0),
    };
    if args.max_pause.is_some_and(|pause| !pause.is_finite() || pause < 0.0) {
        return Err(UsageError("--max-pause: give a number of seconds, for example 1.5".to_owned()).into());
    }
    let client = reach()?;
    let state = client.task(&args.task)?;
    ensure_output_stored(&state)?;
    if let [version, file] = &args.cast[..] {
        return write_cast(&client, &state, version, Path::new(file));
    }
    if args.text {
        return print_text(&client, &state);
    }
    play(&client, &state, (!args.instant).then_some(speed), args.max_pause)
}

fn write_cast(client: &Client, state: &TaskState, version: &str, file: &Path) -> anyhow::Result<ExitCode> {
    let version: Version = version.parse().map_err(|e| UsageError(format!("--cast: {e}")))?;
    let mut cast = client.cast(state.task_id, version)?;
    if file == Path::new("-") {
        io::copy(&mut cast, &mut io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let write_failed = || format!("{} cannot be written", file.display());
    // An existing file is never overwritten.
    let mut to = match File::options().write(true).create_new(true).open(file) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(UsageError(format!("--cast: {} already exists: name another file", file.display())).into());
        }
        opened => opened.with_context(write_failed)?,
    };
    let bytes = io::copy(&mut cast, &mut to).with_context(write_failed)?;
    say(&format!("csn: wrote {bytes} bytes to {}", file.display()));
    Ok(ExitCode::SUCCESS)
}

/// Calls `each` for every record of a task up to now, with the bytes of its output.
fn for_each_record(
    client: &Client,
    state: &TaskState,
    mut each: impl FnMut(&Record, Option<(StreamName, &[u8])>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut events = client.events(state.task_id, None);
    while let Some(event) = events.next_event()? {
        let record = event.value.record;
        match &record.what {
            RecordContent::Frame(Frame::Output { stream, offset, len, .. }) => {
                let (mut at, end) = (*offset, offset + len);
                while at < end {
                    let bytes = client.output(state.task_id, *stream, at, FETCH_BYTES.min(end - at))?;
                    anyhow::ensure!(!bytes.is_empty(), "the recording is incomplete; to check it: csn verify");
                    each(&record, Some((*stream, &bytes)))?;
                    at += bytes.len() as u64;
                }
            }
            _ => each(&record, None)?,
        }
        // A task that still runs is replayed up to now.
        if record.seq + 1 >= state.next_seq {
            break;
        }
    }
    Ok(())
}

/// Prints the text without escape sequences.
fn print_text(client: &Client, state: &TaskState) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let mut filter = EscapeFilter::new(EscapePolicy::Text);
    for_each_record(client, state, |_, bytes| {
        if let Some((_, bytes)) = bytes {
            out.write_all(&filter.feed(bytes))?;
        }
        Ok(())
    })?;
    out.write_all(&filter.finish())?;
    Ok(ExitCode::SUCCESS)
}

fn play(client: &Client, state: &TaskState, speed: Option<f64>, max_pause: Option<f64>) -> anyhow::Result<ExitCode> {
    let terminal = io::stdout().is_terminal();
    let mut drawn = (state.request.mode == Mode::Pty && terminal).then(|| EscapeFilter::new(EscapePolicy::Recording));
    let mut plain = SafeOutput::new(false);
    let mut last_us = None;
    if let (Some(theirs), Some(ours)) = (state.io.terminal, size())
        && drawn.is_some()
        && (ours.0 < theirs.rows || ours.1 < theirs.cols)
    {
        say(&format!(
            "csn: the recording is {}x{}, larger than this terminal ({}x{}): parts may be misplaced",
            theirs.cols, theirs.rows, ours.1, ours.0
        ));
    }
    let played = for_each_record(client, state, |record, bytes| {
        if let (Some(speed), Some(t_us)) = (speed, record.t_us) {
            let since = t_us.saturating_sub(last_us.unwrap_or(t_us)) as f64 / 1e6;
            let pause = since.min(max_pause.unwrap_or(f64::MAX)) / speed;
            last_us = Some(t_us);
            std::thread::sleep(Duration::from_secs_f64(pause.clamp(0.0, 86_400.0)));
        }
        if let Some((stream, bytes)) = bytes {
            match &mut drawn {
                Some(filter) => {
                    let mut out = io::stdout().lock();
                    out.write_all(&filter.feed(bytes))?;
                    out.flush()?;
                }
                None => plain.write(stream, bytes)?,
            }
        }
        Ok(())
    });
    if let Some(filter) = &mut drawn {
        io::stdout().write_all(&filter.finish())?;
    }
    plain.finish()?;
    played?;
    if let Some(outcome) = state.outcome() {
        say(&format!("csn: {} {}", state.task_id, countersign_model::DisplaySafe::new(&outcome.to_string())));
    }
    Ok(ExitCode::SUCCESS)
}
