//! Follows a task for `run` and `exec`: prints its output until it has ended.

use crate::{
    exit,
    render::outcome::{OutcomeLine, escape_warning, never_began},
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

/// Follows a task to its end. If our output is closed, cancels the task, as a shell would, and returns the exit code
/// to use.
pub(crate) fn follow_or_cancel(
    client: &Client,
    task: TaskId,
    options: &FollowOptions<'_>,
    prompt: Option<TerminalPrompt>,
) -> anyhow::Result<Result<OutcomeLine, ExitCode>> {
    match follow(client, task, options, prompt) {
        Err(e) if is_broken_pipe(&e) => {
            let _ = client.cancel(task, Some("its output was closed"));
            Ok(Err(ExitCode::from(exit::PIPE)))
        }
        Err(e) if e.is::<io::Error>() => {
            let _ = client.cancel(task, Some("its output could not be written"));
            Err(e.context(format!("the output of {task} could not be written, so the task was cancelled")))
        }
        followed => Ok(Ok(followed?)),
    }
}

pub(crate) struct FollowOptions<'a> {
    /// Print the records as JSON instead of the output.
    pub(crate) json: bool,
    pub(crate) raw: bool,
    /// Called when the daemon is gone; returns once a daemon serves again.
    pub(crate) reach: &'a dyn Fn() -> anyhow::Result<()>,
}

/// Prints the stream until the task has ended, across any number of restarts of the daemon.
fn follow(
    client: &Client,
    task: TaskId,
    options: &FollowOptions<'_>,
    mut prompt: Option<TerminalPrompt>,
) -> anyhow::Result<OutcomeLine> {
    let json = options.json;
    let mut events = client.events(task, None);
    let mut printer = StreamPrinter::new(client.clone(), task, options.raw);
    let (mut took, mut words, mut notes) = (None, None, Vec::new());
    let reach =
        || (options.reach)().with_context(|| format!("the task keeps running; to wait for it: csn wait {task}"));
    loop {
        let event = match events.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => bail!("the stream of {task} ended without an outcome; to see the task: csn show {task}"),
            Err(e) if e.is_daemon_gone() => {
                reach()?;
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
                    // The printer remembers how far it got, so a retry continues there.
                    None => loop {
                        match printer.print(stream, offset + len) {
                            Err(e) if e.downcast_ref().is_some_and(ClientError::is_daemon_gone) => reach()?,
                            printed => break printed?,
                        }
                    },
                }
            }
            RecordContent::Frame(Frame::ConfinementMet { note }) => notes.push(note.as_str().to_owned()),
            RecordContent::Frame(Frame::WriteDetected { path, change, escape: true, .. }) => {
                notes.push(escape_warning(&path, change))
            }
            RecordContent::Frame(Frame::Exited { duration_us, .. }) => took = Some(Duration::from_micros(duration_us)),
            RecordContent::Frame(Frame::LimitReached { limit, value, .. }) if !json && limit.as_str() == "output" => {
                say(&format!(
                    "csn: the output limit is reached: the first {value} bytes are stored; the last MiB follows when the task ends"
                ));
            }
            RecordContent::Frame(Frame::Kept { processes }) if !json => {
                say(&format!(
                    "csn: the command has ended; waiting for the processes that it left running: {processes:?}"
                ));
                say(&format!("     to stop waiting and end them: csn cancel {task}"));
            }
            RecordContent::Decision(Decision::PermissionGranted { .. }) => close_prompt(&mut prompt, false),
            RecordContent::Decision(Decision::Withdrawn { .. }) => close_prompt(&mut prompt, true),
            RecordContent::Decision(Decision::PermissionDenied { words: message, .. }) => {
                words = message;
                close_prompt(&mut prompt, false);
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

fn close_prompt(prompt: &mut Option<TerminalPrompt>, withdrawn: bool) {
    if let Some(prompt) = prompt.take() {
        prompt.close(withdrawn);
    }
}

/// The text of an output frame, if the frame carries all of it.
fn whole_text(output: RenderedOutput, len: u64) -> Option<String> {
    (output.encoding.is_none() && output.text.len() as u64 == len).then_some(output.text)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
