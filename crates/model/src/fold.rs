//! The one fold from records to the state of a task. The daemon, the CLI and replays all use it; nothing else computes
//! a state.

use crate::{
    Artifact, Decision, Frame, Launch, MainProcess, PostRunFindings, ProcessEnd, Question, QueueWait, Record,
    RecordContent, RequestSummary, Ruling, Runner, Settlement, Status, TaskId, TaskIo, TaskSandbox, TaskState,
    Terminal, Timestamp, Usage,
};

impl TaskState {
    /// A task begins with `command.planned`; with any other first record there is no state.
    pub fn begin(task_id: TaskId, record: &Record) -> Option<Self> {
        let RecordContent::Decision(Decision::Planned {
            plan_digest,
            display,
            verb,
            cwd,
            mode,
            tool,
            title,
            rationale,
            labels,
            session,
            principal,
            credential,
            risks,
            audience,
            profile,
            background,
            limits,
            workspace,
            on_session_end,
            idempotency: _,
        }) = &record.what
        else {
            return None;
        };
        let request = RequestSummary {
            asked_at: record.at,
            plan_digest: *plan_digest,
            display: display.clone(),
            verb: verb.clone(),
            cwd: cwd.clone(),
            mode: *mode,
            tool: *tool,
            title: title.clone(),
            rationale: rationale.clone(),
            labels: labels.clone(),
            session_id: *session,
            principal: *principal,
            credential: *credential,
            risks: risks.clone(),
            audience: *audience,
            profile: *profile,
            background: *background,
            limits: **limits,
            workspace: workspace.clone(),
            on_session_end: *on_session_end,
        };
        Some(Self::from_request(task_id, request, record.seq.saturating_add(1)))
    }

    /// The state of a task that has only been requested.
    fn from_request(task_id: TaskId, request: RequestSummary, next_seq: u64) -> Self {
        Self {
            task_id,
            status: Status::Queued,
            request,
            question: None,
            ruling: None,
            sandbox: None,
            wait: None,
            launch: None,
            process: None,
            io: TaskIo::default(),
            aftermath: PostRunFindings::default(),
            end: None,
            settlement: None,
            receipt: None,
            expired_at: None,
            next_seq,
        }
    }

    /// Applies the next record of this task.
    pub fn apply(&mut self, record: &Record) {
        self.next_seq = record.seq.saturating_add(1);
        match &record.what {
            RecordContent::Decision(decision) => self.apply_decision(record.at, decision),
            RecordContent::Frame(frame) => self.apply_frame(record.at, frame),
            RecordContent::Unknown(_) => {}
        }
    }

    /// Applies a whole stream of records.
    pub fn fold<'a>(task_id: TaskId, records: impl IntoIterator<Item = &'a Record>) -> Option<Self> {
        let mut records = records.into_iter();
        let mut state = Self::begin(task_id, records.next()?)?;
        records.for_each(|r| state.apply(r));
        Some(state)
    }

    fn apply_decision(&mut self, at: Timestamp, decision: &Decision) {
        match decision {
            Decision::Planned { .. }
            | Decision::Touched(_)
            | Decision::Shutdown(_)
            | Decision::HomeNamed { .. }
            | Decision::Key(_)
            | Decision::DaemonStateChanged { .. }
            | Decision::Lost { .. }
            | Decision::Withdrawn { .. }
            | Decision::Entered(_) => {}
            Decision::PermissionRequested { approval, uncovered, options, about } => {
                self.question = Some(Question {
                    approval_id: *approval,
                    uncovered: uncovered.clone(),
                    about: about.clone(),
                    options: options.clone(),
                });
            }
            Decision::PermissionGranted { by, scope, confinement, sandbox, saved, .. } => {
                let saved = saved.clone();
                self.ruling = Some(Ruling::Granted { by: by.clone(), scope: *scope, at, saved });
                self.sandbox = Some(TaskSandbox {
                    confinement: *confinement,
                    summary: sandbox.as_deref().cloned(),
                    enforced: None,
                });
                self.wait = None;
            }
            Decision::PermissionDenied { by, reason, hint, words, policy: _ } => {
                self.ruling = Some(Ruling::Denied {
                    by: by.clone(),
                    reason: reason.clone(),
                    hint: hint.clone(),
                    words: words.clone(),
                    at,
                });
            }
            Decision::Queued { waits_for, position } => {
                self.wait = Some(QueueWait { waits_for: *waits_for, position: *position });
            }
            Decision::Launched { shim_pid, first_seq } => {
                self.start(Launch { at, runner: Runner::Shim { pid: *shim_pid, first_seq: *first_seq } });
            }
            Decision::Observing { .. } => self.start(Launch { at, runner: Runner::Asker }),
            Decision::Sealed(sealed) => self.receipt = Some(*sealed),
            Decision::Settled { outcome, journal_head, recovered: _ } => {
                self.status = outcome.status();
                self.wait = None;
                self.settlement = Some(Settlement { outcome: outcome.clone(), journal_head: *journal_head });
                // The journal knows the end better: the daemon may have settled the task much later.
                self.end.get_or_insert(ProcessEnd { at, usage: None });
            }
            Decision::Expired { streams, .. } => {
                self.expired_at = Some(at);
                self.set_totals(streams);
            }
        }
    }

    fn start(&mut self, launch: Launch) {
        self.status = Status::Running;
        self.wait = None;
        self.launch = Some(launch);
    }

    fn apply_frame(&mut self, at: Timestamp, frame: &Frame) {
        match frame {
            Frame::EnvExposed { .. }
            | Frame::Signalled { .. }
            | Frame::CancelRequested { .. }
            | Frame::LimitReached { .. }
            | Frame::CleanupStarted { .. } => {}
            Frame::Spawned { pid, confinement, enforced, .. } => {
                let summary = self.sandbox.take().and_then(|s| s.summary);
                self.sandbox = Some(TaskSandbox { confinement: *confinement, summary, enforced: enforced.clone() });
                self.process = Some(MainProcess { pid: *pid, spawned_at: at });
            }
            Frame::Output { stream, offset, len, .. } => {
                self.io.streams.entry(*stream).or_default().bytes = offset.saturating_add(*len);
            }
            Frame::Gap { stream, offset, bytes } => {
                let state = self.io.streams.entry(*stream).or_default();
                (state.bytes, state.dropped) = (offset.saturating_add(*bytes), *bytes);
            }
            Frame::StdinWritten { bytes, .. } => self.io.stdin_bytes = self.io.stdin_bytes.saturating_add(*bytes),
            Frame::Resized { rows, cols, .. } => {
                let echo = self.io.terminal.is_none_or(|t| t.echo);
                self.io.terminal = Some(Terminal { rows: *rows, cols: *cols, echo });
            }
            Frame::Echo { on } => {
                if let Some(terminal) = &mut self.io.terminal {
                    terminal.echo = *on;
                }
            }
            // A directory that the program only claims stays in the record and changes no state.
            Frame::CwdChanged { claimed: true, .. } => {}
            Frame::CwdChanged { path, claimed: false } => self.io.current_directory = Some(path.clone()),
            Frame::ArtifactStored { artifact, what, bytes, sha256 } => self.io.artifacts.push(Artifact {
                artifact: artifact.clone(),
                what: what.clone(),
                bytes: *bytes,
                sha256: *sha256,
            }),
            Frame::Redacted { stream, count, .. } => {
                let redactions = &mut self.io.streams.entry(*stream).or_default().redactions;
                *redactions = redactions.saturating_add(*count);
            }
            Frame::Killed { survivors, .. } | Frame::CleanupCompleted { survivors, .. } => {
                self.aftermath.survivors.clone_from(survivors);
            }
            Frame::Exited { duration_us, cpu_us, max_rss_kb, .. } => {
                let usage = Usage { duration_us: *duration_us, cpu_us: *cpu_us, max_rss_kb: *max_rss_kb };
                self.end = Some(ProcessEnd { at, usage: Some(usage) });
            }
            Frame::ConfinementMet { note } => self.aftermath.note = Some(note.clone()),
            Frame::WriteDetected { path, escape, .. } => self.aftermath.escapes.extend(escape.then(|| path.clone())),
            Frame::Kept { processes } => self.aftermath.kept.clone_from(processes),
            Frame::Closed { streams, .. } => {
                self.end.get_or_insert(ProcessEnd { at, usage: None });
                self.aftermath.kept.clear();
                self.set_totals(streams);
            }
        }
    }

    fn set_totals(&mut self, streams: &crate::StreamTotals) {
        for (stream, total) in streams {
            let state = self.io.streams.entry(*stream).or_default();
            state.bytes = total.bytes.saturating_add(total.dropped);
            state.dropped = total.dropped;
            state.sha256 = Some(total.sha256);
        }
    }
}
