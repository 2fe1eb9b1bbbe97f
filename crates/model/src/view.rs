//! Two older vocabularies, as pure functions of the stream: `terminal` and `tool_task`.

use crate::{Decision, Frame, Mode, Outcome, Record, Rendered, Scope, StreamName, TaskId, TaskState, What};
use serde_json::{Value, json};
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// The stream as it is.
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
            other => {
                Err(format!("unknown view `{}`: use native, terminal or tool_task", crate::Shown::bounded(other, 40)))
            }
        }
    }
}

/// The record's line with its kind in the `terminal.` vocabulary.
pub fn terminal(line: &str) -> Value {
    let mut value: Value = serde_json::from_str(line).unwrap_or(Value::Null);
    let Some(kind) = value.get("kind").and_then(Value::as_str) else { return value };
    let once = kind == "permission.granted" && value.get("scope") == serde_json::to_value(Scope::Once).ok().as_ref();
    let kind = format!("terminal.{kind}{}", if once { "_once" } else { "" });
    value["kind"] = kind.into();
    value
}

/// The record as events of the `tool_task` vocabulary: none, one or several. `state` is the fold up to and
/// including this record.
pub fn tool_task(task: TaskId, record: &Record, state: &TaskState, rendered: Option<&Rendered>) -> Vec<Value> {
    let mut events = match &record.what {
        What::Decision(decision) => of_decision(task, decision, state),
        What::Frame(frame) => of_frame(frame, rendered),
        What::Unknown(_) => Vec::new(),
    };
    for (n, event) in events.iter_mut().enumerate() {
        event["id"] = format!("{task}:{}:{n}", record.seq).into();
        event["stream_kind"] = "task".into();
        event["stream_id"] = task.to_string().into();
        event["seq"] = record.seq.into();
        event["timestamp_ms"] = record.at.millis().into();
    }
    events
}

fn of_decision(task: TaskId, decision: &Decision, state: &TaskState) -> Vec<Value> {
    let status = |status: &str| json!({"type": "tool_task_status", "task_id": task, "status": status});
    match decision {
        Decision::Planned { display, cwd, mode, tool, title, session, .. } => {
            let mut event = json!({
                "type": "tool_task_spawned", "task_id": task, "tool_name": tool, "args": {"command": display},
                "cwd": cwd, "execution_mode": match mode { Mode::Pipes => "pipes", Mode::Pty => "pty" },
            });
            if let Some(title) = title {
                event["title"] = title.as_str().into();
            }
            if let Some(session) = session {
                event["origin_session_id"] = session.to_string().into();
            }
            vec![event]
        }
        Decision::Queued { .. } => vec![status("queued")],
        Decision::Launched { .. } | Decision::Observing { .. } => {
            let mut event = status("running");
            event["started_at_ms"] = state.launched_at.map(|at| at.millis()).into();
            vec![event]
        }
        Decision::Settled { outcome, .. } => settled(task, outcome, state),
        Decision::PermissionRequested { .. }
        | Decision::PermissionGranted { .. }
        | Decision::PermissionDenied { .. }
        | Decision::Withdrawn { .. }
        | Decision::Lost { .. }
        | Decision::Touched(_)
        | Decision::Sealed(_)
        | Decision::Shutdown(_)
        | Decision::Key(_)
        | Decision::Expired { .. }
        | Decision::Entered(_)
        | Decision::House { .. } => Vec::new(),
    }
}

fn settled(task: TaskId, outcome: &Outcome, state: &TaskState) -> Vec<Value> {
    let mut status = json!({"type": "tool_task_status", "task_id": task, "status": outcome.status()});
    status["started_at_ms"] = state.launched_at.map(|at| at.millis()).into();
    status["ended_at_ms"] = state.ended_at.map(|at| at.millis()).into();
    let wall_ms = state.ended_at.zip(state.launched_at).map(|(end, start)| end.since(start).as_millis() as u64);
    match outcome {
        Outcome::Exited { .. } | Outcome::Signalled { .. } => {
            status["exit_code"] = outcome.exit_code().into();
            let ended = json!({
                "type": "tool_ended", "exit_code": outcome.exit_code(), "duration_ms": wall_ms, "artifacts": [],
            });
            vec![status, ended]
        }
        Outcome::Cancelled { .. } | Outcome::Withdrawn { .. } => {
            let cancelled = json!({
                "type": "tool_task_cancelled", "reason": outcome.to_string(), "wall_time_ms": wall_ms,
            });
            vec![status, cancelled]
        }
        _ => {
            status["error"] = outcome.to_string().into();
            vec![status]
        }
    }
}

/// That vocabulary has two streams; what a terminal shows is its standard output.
fn older_name(stream: StreamName) -> StreamName {
    match stream {
        StreamName::Pty => StreamName::Stdout,
        other => other,
    }
}

fn of_frame(frame: &Frame, rendered: Option<&Rendered>) -> Vec<Value> {
    match frame {
        Frame::Output { stream, .. } => {
            let chunk = rendered.map(|r| r.text.as_str()).unwrap_or_default();
            vec![
                json!({"type": "tool_task_output_delta", "stream": stream, "chunk": chunk}),
                json!({"type": format!("tool_{}", older_name(*stream)), "chunk": chunk}),
            ]
        }
        Frame::CancelRequested { reason, .. } => vec![json!({"type": "tool_task_cancel_requested", "reason": reason})],
        Frame::StdinWritten { bytes, .. } => vec![json!({"type": "tool_task_stdin_written", "bytes": bytes})],
        Frame::Resized { rows, cols, .. } => vec![json!({"type": "tool_task_resized", "rows": rows, "cols": cols})],
        Frame::Signalled { signal, .. } => vec![json!({"type": "tool_task_signalled", "signal": signal})],
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
        | Frame::WallMet { .. }
        | Frame::WriteDetected { .. }
        | Frame::CleanupStarted { .. }
        | Frame::CleanupCompleted { .. }
        | Frame::Closed { .. } => Vec::new(),
    }
}
