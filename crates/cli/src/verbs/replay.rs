//! `replay`: what was recorded, at its own speed or at once, on the terminal or as a file. Starts nothing.

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
    verbs::logs::kept,
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

const PIECE: u64 = 1024 * 1024;

pub(crate) fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let speed = match args.speed {
        Some(speed) if !speed.is_finite() || speed <= 0.0 => {
            return Err(UsageError("--speed: a number above zero, such as 2 or 0.5".to_owned()).into());
        }
        speed => speed.unwrap_or(1.0),
    };
    if args.max_pause.is_some_and(|pause| !pause.is_finite() || pause < 0.0) {
        return Err(UsageError("--max-pause: a number of seconds".to_owned()).into());
    }
    let client = reach()?;
    let state = client.task(&args.task)?;
    kept(&state)?;
    if let [version, file] = &args.cast[..] {
        return cast(&client, &state, version, Path::new(file));
    }
    if args.text {
        return text(&client, &state);
    }
    play(&client, &state, (!args.instant).then_some(speed), args.max_pause)
}

fn cast(client: &Client, state: &TaskState, version: &str, file: &Path) -> anyhow::Result<ExitCode> {
    let version: Version = version.parse().map_err(|e| UsageError(format!("--cast: {e}")))?;
    let mut cast = client.cast(state.task_id, version)?;
    if file == Path::new("-") {
        io::copy(&mut cast, &mut io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let cannot = || format!("{} cannot be written", file.display());
    // A file that is there is somebody's: it is not written over.
    let mut to = match File::options().write(true).create_new(true).open(file) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(UsageError(format!("--cast: {} is there already: name another file", file.display())).into());
        }
        opened => opened.with_context(cannot)?,
    };
    let bytes = io::copy(&mut cast, &mut to).with_context(cannot)?;
    say(&format!("csn: {bytes} bytes in {}", file.display()));
    Ok(ExitCode::SUCCESS)
}

/// Every record of a task up to now, with the bytes of its output.
fn recorded(
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
                    let bytes = client.output(state.task_id, *stream, at, PIECE.min(end - at))?;
                    anyhow::ensure!(!bytes.is_empty(), "the recording breaks off");
                    each(&record, Some((*stream, &bytes)))?;
                    at += bytes.len() as u64;
                }
            }
            _ => each(&record, None)?,
        }
        // What runs is replayed as far as it has come.
        if record.seq + 1 >= state.next_seq {
            break;
        }
    }
    Ok(())
}

/// The text alone, without the escapes that drew it.
fn text(client: &Client, state: &TaskState) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let mut strip = EscapeFilter::new(EscapePolicy::Text);
    recorded(client, state, |_, bytes| {
        if let Some((_, bytes)) = bytes {
            out.write_all(&strip.feed(bytes))?;
        }
        Ok(())
    })?;
    out.write_all(&strip.finish())?;
    Ok(ExitCode::SUCCESS)
}

fn play(client: &Client, state: &TaskState, speed: Option<f64>, max_pause: Option<f64>) -> anyhow::Result<ExitCode> {
    let terminal = io::stdout().is_terminal();
    let mut shown = (state.request.mode == Mode::Pty && terminal).then(|| EscapeFilter::new(EscapePolicy::Recording));
    let mut plain = SafeOutput::new(false);
    let mut last_us = None;
    if let (Some(theirs), Some(ours)) = (state.io.terminal, size())
        && shown.is_some()
        && (ours.0 < theirs.rows || ours.1 < theirs.cols)
    {
        say(&format!("csn: this was drawn on {}x{}; here it is {}x{}", theirs.cols, theirs.rows, ours.1, ours.0));
    }
    let played = recorded(client, state, |record, bytes| {
        if let (Some(speed), Some(t_us)) = (speed, record.t_us) {
            let since = t_us.saturating_sub(last_us.unwrap_or(t_us)) as f64 / 1e6;
            let pause = since.min(max_pause.unwrap_or(f64::MAX)) / speed;
            last_us = Some(t_us);
            std::thread::sleep(Duration::from_secs_f64(pause.clamp(0.0, 86_400.0)));
        }
        if let Some((stream, bytes)) = bytes {
            match &mut shown {
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
    if let Some(filter) = &mut shown {
        io::stdout().write_all(&filter.finish())?;
    }
    plain.finish()?;
    played?;
    if let Some(outcome) = state.outcome() {
        say(&format!("csn: {} {}", state.task_id, countersign_model::DisplaySafe::new(&outcome.to_string())));
    }
    Ok(ExitCode::SUCCESS)
}
