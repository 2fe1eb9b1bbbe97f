//! A task's stream, passed on until the task has settled: for `run` and `exec`.

use crate::{
    exit,
    render::outcome::{OutcomeLine, escaped, never_began},
    say,
    terminal::{output::StreamPrinter, prompt::TerminalPrompt},
};
use anyhow::{Context as _, bail};
use countersign_client::{Client, ClientError};
use countersign_model::{Decision, Frame, RecordContent, RenderedOutput, TaskId, api::StreamRecord};
use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

/// The same; a task whose output nobody takes any more is cancelled, as it would be in a shell. Then the code to leave
/// with.
pub(crate) fn follow_or_cancel(
    client: &Client,
    task: TaskId,
    how: &FollowOptions<'_>,
    asking: Option<TerminalPrompt>,
) -> anyhow::Result<Result<OutcomeLine, ExitCode>> {
    match follow(client, task, how, asking) {
        Err(e) if is_broken_pipe(&e) => {
            let _ = client.cancel(task, Some("its output was closed"));
            Ok(Err(ExitCode::from(exit::PIPE)))
        }
        Err(e) if e.is::<io::Error>() => {
            let _ = client.cancel(task, Some("its output could not be written"));
            Err(e.context(format!("its output could not be written; {task} was cancelled")))
        }
        followed => Ok(Ok(followed?)),
    }
}

/// How a stream is passed on.
pub(crate) struct FollowOptions<'a> {
    /// The records themselves, instead of what they say.
    pub(crate) json: bool,
    pub(crate) raw: bool,
    /// What to do when the house is gone: it comes back when there is one again.
    pub(crate) reach: &'a dyn Fn() -> anyhow::Result<()>,
}

/// Passes the stream on until the task has settled, through any number of restarts of the daemon.
fn follow(
    client: &Client,
    task: TaskId,
    how: &FollowOptions<'_>,
    mut asking: Option<TerminalPrompt>,
) -> anyhow::Result<OutcomeLine> {
    let json = how.json;
    let mut events = client.events(task, None);
    let mut printer = StreamPrinter::new(client.clone(), task, how.raw);
    let (mut took, mut words, mut notes) = (None, None, Vec::new());
    let again = || (how.reach)().with_context(|| format!("the task goes on: csn wait {task}"));
    loop {
        let event = match events.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => bail!("the stream of {task} ended without an outcome"),
            Err(e) if e.is_daemon_gone() => {
                again()?;
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        if json {
            writeln!(io::stdout(), "{}", event.json)?;
        }
        let StreamRecord { record, output, .. } = event.value;
        match record.what {
            RecordContent::Frame(Frame::Output { stream, offset, len, .. }) if !json => {
                match output.and_then(|output| whole_text(output, len)) {
                    Some(text) => printer.print_text(stream, offset, &text)?,
                    // The printer knows how far it has come.
                    None => loop {
                        match printer.print(stream, offset + len) {
                            Err(e) if e.downcast_ref().is_some_and(ClientError::is_daemon_gone) => again()?,
                            printed => break printed?,
                        }
                    },
                }
            }
            RecordContent::Frame(Frame::ConfinementMet { note }) => notes.push(note.as_str().to_owned()),
            RecordContent::Frame(Frame::WriteDetected { path, change, escape: true, .. }) => {
                notes.push(escaped(&path, change))
            }
            RecordContent::Frame(Frame::Exited { duration_us, .. }) => took = Some(Duration::from_micros(duration_us)),
            RecordContent::Frame(Frame::LimitReached { limit, value, .. }) if !json && limit.as_str() == "output" => {
                say(&format!(
                    "csn: {value} bytes are kept from the beginning; the last mebibyte is shown when it ends"
                ));
            }
            RecordContent::Frame(Frame::Kept { processes }) if !json => {
                say(&format!("csn: the command has ended; waiting for what it left running: {processes:?}"));
                say(&format!("     csn cancel {task} ends it"));
            }
            RecordContent::Decision(Decision::PermissionGranted { .. }) => {
                asking.take().into_iter().for_each(|a| a.end(false));
            }
            RecordContent::Decision(Decision::Withdrawn { .. }) => asking.take().into_iter().for_each(|a| a.end(true)),
            RecordContent::Decision(Decision::PermissionDenied { words: said, .. }) => {
                words = said;
                asking.take().into_iter().for_each(|a| a.end(false));
            }
            RecordContent::Decision(Decision::Settled { outcome, journal_head, recovered }) => {
                printer.finish()?;
                let never_began = never_began(&outcome, journal_head, recovered);
                return Ok(OutcomeLine { outcome, took, words, notes, never_began });
            }
            _ => {}
        }
    }
}

/// The text of an output frame, when the frame carries all of it.
fn whole_text(output: RenderedOutput, len: u64) -> Option<String> {
    (output.encoding.is_none() && output.text.len() as u64 == len).then_some(output.text)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
