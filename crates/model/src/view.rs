//! Two older vocabularies, as pure functions of the stream: `terminal` and `tool_task`.

use crate::{
    Decision, Frame, Outcome, Record, RecordContent, RenderedOutput, Status, StreamName, TaskId, TaskState,
    api::{
        StreamRecord, TerminalRecord, ToolTaskArgs, ToolTaskArtifact, ToolTaskChunk, ToolTaskEvent, ToolTaskHead,
        ToolTaskStream, ToolTaskWhat,
    },
};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// The stream unchanged.
    #[default]
    Native,
    Terminal,
    ToolTask,
}

impl FromStr for View {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "native" => Ok(View::Native),
            "terminal" => Ok(View::Terminal),
            "tool_task" => Ok(View::ToolTask),
            other => Err(format!(
                "unknown view `{}`: use native, terminal or tool_task",
                crate::DisplaySafe::bounded(other, 40)
            )),
        }
    }
}

/// A record's line in the `terminal` vocabulary. A line that is not a record stays unchanged.
#[must_use]
pub fn terminal(line: &str) -> String {
    let record = serde_json::from_str::<StreamRecord>(line);
    let view = record.and_then(|record| serde_json::to_string(&TerminalRecord(record)));
    view.unwrap_or_else(|_| line.to_owned())
}

/// The record as events of the `tool_task` vocabulary: none, one or several. `state` is the fold up to and including
/// this record.
pub fn tool_task(
    task: TaskId,
    record: &Record,
    state: &TaskState,
    rendered: Option<&RenderedOutput>,
) -> Vec<ToolTaskEvent> {
    let events = match &record.what {
        RecordContent::Decision(decision) => decision_events(task, decision, state),
        RecordContent::Frame(frame) => frame_events(frame, rendered),
        RecordContent::Unknown(_) => Vec::new(),
    };
    let head = |n: usize| ToolTaskHead {
        id: format!("{task}:{}:{n}", record.seq),
        stream_kind: ToolTaskStream::Task,
        stream_id: task,
        seq: record.seq,
        timestamp_ms: record.at.millis(),
    };
    events.into_iter().enumerate().map(|(n, what)| ToolTaskEvent { head: head(n), what }).collect()
}

/// A status event without details.
fn status(task_id: TaskId, status: Status) -> ToolTaskWhat {
    ToolTaskWhat::Status { task_id, status, started_at_ms: None, ended_at_ms: None, exit_code: None, error: None }
}

fn decision_events(task: TaskId, decision: &Decision, state: &TaskState) -> Vec<ToolTaskWhat> {
    match decision {
        Decision::Planned { display, cwd, mode, tool, title, session, .. } => vec![ToolTaskWhat::Spawned {
            task_id: task,
            tool_name: *tool,
            args: ToolTaskArgs { command: display.clone() },
            cwd: cwd.clone(),
            execution_mode: *mode,
            title: title.clone(),
            origin_session_id: *session,
        }],
        Decision::Queued { .. } => vec![status(task, Status::Queued)],
        Decision::Launched { .. } | Decision::Observing { .. } => vec![ToolTaskWhat::Status {
            task_id: task,
            status: Status::Running,
            started_at_ms: Some(state.launched_at().map(|at| at.millis())),
            ended_at_ms: None,
            exit_code: None,
            error: None,
        }],
        Decision::Settled { outcome, .. } => settled_events(task, outcome, state),
        Decision::PermissionRequested { .. }
        | Decision::PermissionGranted { .. }
        | Decision::PermissionDenied { .. }
        | Decision::Withdrawn { .. }
        | Decision::Lost { .. }
        | Decision::Touched(_)
        | Decision::Sealed(_)
        | Decision::Shutdown(_)
        | Decision::HomeNamed { .. }
        | Decision::Key(_)
        | Decision::Expired { .. }
        | Decision::Entered(_)
        | Decision::DaemonStateChanged { .. } => Vec::new(),
    }
}

fn settled_events(task_id: TaskId, outcome: &Outcome, state: &TaskState) -> Vec<ToolTaskWhat> {
    let wall_ms = state.ended_at().zip(state.launched_at()).map(|(end, start)| end.since(start).as_millis() as u64);
    let ran = matches!(outcome, Outcome::Exited { .. } | Outcome::Signalled { .. });
    let cancelled = matches!(outcome, Outcome::Cancelled { .. } | Outcome::Withdrawn { .. });
    let status = ToolTaskWhat::Status {
        task_id,
        status: outcome.status(),
        started_at_ms: Some(state.launched_at().map(|at| at.millis())),
        ended_at_ms: Some(state.ended_at().map(|at| at.millis())),
        exit_code: ran.then(|| outcome.exit_code()),
        error: (!ran && !cancelled).then(|| outcome.to_string()),
    };
    let ended = if ran {
        let artifacts = artifacts(state);
        Some(ToolTaskWhat::Ended { exit_code: outcome.exit_code(), duration_ms: wall_ms, artifacts })
    } else if cancelled {
        Some(ToolTaskWhat::Cancelled { reason: outcome.to_string(), wall_time_ms: wall_ms })
    } else {
        None
    };
    std::iter::once(status).chain(ended).collect()
}

/// Complete streams, and files beside the journal.
fn artifacts(state: &TaskState) -> Vec<ToolTaskArtifact> {
    let streams = state.io.streams.iter().filter_map(|(stream, s)| {
        let bytes = s.bytes.saturating_sub(s.dropped);
        s.sha256.map(|sha256| ToolTaskArtifact { name: stream.file().to_owned(), bytes, sha256 })
    });
    let others = state.io.artifacts.iter().map(|a| ToolTaskArtifact {
        name: a.artifact.as_str().to_owned(),
        bytes: a.bytes,
        sha256: a.sha256,
    });
    streams.chain(others).collect()
}

fn frame_events(frame: &Frame, rendered: Option<&RenderedOutput>) -> Vec<ToolTaskWhat> {
    match frame {
        Frame::Output { stream, offset, len, .. } => {
            let chunk = ToolTaskChunk::new(*offset, *len, rendered);
            // This vocabulary has two streams; the output of a terminal counts as standard output.
            let older = match stream {
                StreamName::Stdout | StreamName::Pty => ToolTaskWhat::Stdout(chunk.clone()),
                StreamName::Stderr => ToolTaskWhat::Stderr(chunk.clone()),
            };
            vec![ToolTaskWhat::OutputDelta { stream: *stream, chunk }, older]
        }
        Frame::CancelRequested { reason, .. } => vec![ToolTaskWhat::CancelRequested { reason: reason.clone() }],
        Frame::StdinWritten { bytes, .. } => vec![ToolTaskWhat::StdinWritten { bytes: *bytes }],
        Frame::Resized { rows, cols, .. } => vec![ToolTaskWhat::Resized { rows: *rows, cols: *cols }],
        Frame::Signalled { signal, .. } => vec![ToolTaskWhat::Signalled { signal: *signal }],
        Frame::EnvExposed { .. }
        | Frame::Spawned { .. }
        | Frame::Redacted { .. }
        | Frame::Gap { .. }
        | Frame::Echo { .. }
        | Frame::CwdChanged { .. }
        | Frame::ArtifactStored { .. }
        | Frame::LimitReached { .. }
        | Frame::Killed { .. }
        | Frame::Exited { .. }
        | Frame::Kept { .. }
        | Frame::ConfinementMet { .. }
        | Frame::WriteDetected { .. }
        | Frame::CleanupStarted { .. }
        | Frame::CleanupCompleted { .. }
        | Frame::Closed { .. } => Vec::new(),
    }
}
