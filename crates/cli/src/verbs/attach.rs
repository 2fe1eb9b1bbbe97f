//! `attach`, and the terminal side of `run --pty`: shows a task on this terminal until it ends or the user detaches.
//!
//! One loop waits for the keyboard, the daemon and signals. When the daemon goes away the loop reconnects and draws the
//! screen again; typed bytes without an answer are sent again under the same numbers, so that they arrive once.

mod display;
mod outbox;

use crate::{
    code, exit,
    render::{
        card::waiting_line,
        outcome::{OutcomeLine, closing_lines, escape_warning, never_began},
        task::queue_line,
    },
    say,
    target_home::reach,
    terminal::{
        detach::{DetachWatch, TypedBytes, parse_detach_keys},
        escapes::EscapePolicy,
        interrupts::Interrupts,
        prompt::TerminalPrompt,
        raw::size,
    },
    verbs::{logs, send},
};
use countersign_client::{AttachedEvent, Attachment, Client, ClientError};
use countersign_model::{
    Decision, Frame, Mode, Record, RecordContent, Refusal, RefusalCode, Status, StreamName, TaskId, TaskRefusal,
    TaskState, Text,
    api::{AttachEvent, AttachQuery},
};
use countersign_store::clock;
use display::Display;
use outbox::{Outbox, OutboxMessage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGTERM, SIGWINCH};
use std::{
    io::{self, IsTerminal as _, Read as _, Write as _},
    os::{fd::AsFd as _, unix::net::UnixStream},
    process::ExitCode,
    time::Duration,
};

pub(crate) struct AttachOptions<'a> {
    pub(crate) task: &'a str,
    pub(crate) read_only: bool,
    pub(crate) detach_keys: &'a str,
}

pub(crate) fn attach(args: &AttachOptions<'_>) -> anyhow::Result<ExitCode> {
    let detach = parse_detach_keys(args.detach_keys)?;
    let client = reach()?;
    let state = client.task(args.task)?;
    logs::ensure_output_stored(&state)?;
    if state.request.mode == Mode::Pipes && !state.settled() && !args.read_only {
        Interrupts::begin(&client, state.task_id)?;
    }
    let mut session = AttachSession::new(client, &state, args.read_only, detach);
    match session.run(None)? {
        AttachEnd::Detached => Ok(ExitCode::SUCCESS),
        AttachEnd::Ended(ended) => {
            say(&closing_lines(state.task_id, &ended));
            Ok(code(ended.outcome.exit_code()))
        }
        AttachEnd::Signalled => Ok(ExitCode::from(exit::OURS)),
    }
}

/// How an attachment ended.
pub(crate) enum AttachEnd {
    Ended(OutcomeLine),
    Detached,
    /// A signal ended this program.
    Signalled,
}

pub(crate) struct AttachSession {
    client: Client,
    task: TaskId,
    mode: Mode,
    read_only: bool,
    detach: DetachWatch,
    outbox: Outbox,
    position: StreamPosition,
    display: Display,
    /// The current size of the task's terminal.
    size: Option<(u16, u16)>,
    prompt: Option<TerminalPrompt>,
    /// Standard input is a terminal. It goes into raw mode while it shows the task.
    keyboard: bool,
    /// Standard input goes to the task.
    forwards_stdin: bool,
    summary: AttachSummary,
}

/// How far the stream of the task was received.
#[derive(Default)]
struct StreamPosition {
    /// The last record that was received with its bytes.
    last_seq: Option<u64>,
    /// The record whose bytes come next.
    bytes_seq: Option<u64>,
}

/// What the closing lines need.
#[derive(Default)]
struct AttachSummary {
    took: Option<Duration>,
    words: Option<Text>,
    notes: Vec<String>,
}

impl AttachSession {
    pub(crate) fn new(client: Client, state: &TaskState, read_only: bool, detach: Vec<u8>) -> Self {
        let mode = state.request.mode;
        let keyboard = !state.settled() && io::stdin().is_terminal();
        let forwards_stdin = keyboard && !read_only;
        // If no input goes to the task, nothing reads the terminal's answers and they would be typed into the shell.
        let policy = if forwards_stdin { EscapePolicy::Live } else { EscapePolicy::Recording };
        let draws = io::stdout().is_terminal() && mode == Mode::Pty;
        Self {
            client,
            task: state.task_id,
            mode,
            read_only,
            detach: DetachWatch::new(detach),
            outbox: Outbox::new(send::random_key()),
            position: StreamPosition::default(),
            display: Display::new(draws.then_some(policy), StreamName::for_mode(mode)[0]),
            size: None,
            prompt: None,
            keyboard,
            forwards_stdin,
            summary: AttachSummary::default(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn with_prompt(mut self, prompt: Option<TerminalPrompt>) -> Self {
        self.prompt = prompt;
        self
    }

    /// Sends standard input to the task even if it is not a terminal: `run --pty --stdin`.
    pub(crate) fn with_stdin(mut self) -> Self {
        self.forwards_stdin = true;
        self
    }

    /// Runs until the task ends or the user detaches. With `after` it starts after that record instead of with the screen.
    pub(crate) fn run(&mut self, after: Option<u64>) -> anyhow::Result<AttachEnd> {
        let signals = signal_pipe()?;
        let mut after = after;
        let ended = loop {
            match self.run_connected(&signals, after) {
                Ok(end) => break Ok(end),
                Err(e) => match e.downcast_ref::<ClientError>() {
                    Some(error) if error.is_daemon_gone() => {
                        if let Err(e) = reach() {
                            let message = format!("the task keeps running; to attach again: csn attach {}", self.task);
                            break Err(e.context(message));
                        }
                        // A file gets every byte once; a terminal is drawn again.
                        after = self.position.last_seq.or(after).filter(|_| !self.display.draws());
                    }
                    _ => break Err(e),
                },
            }
        };
        self.restore_terminal(&ended);
        ended
    }

    fn restore_terminal(&mut self, end: &anyhow::Result<AttachEnd>) {
        let was_raw = self.display.restore();
        if matches!(end, Ok(AttachEnd::Detached)) {
            let new_line = if was_raw { "\n" } else { "" };
            say(&format!("{new_line}csn: detached; the task keeps running. To attach again: csn attach {}", self.task));
        }
    }

    /// Runs on one connection, until the attachment ends or the connection breaks.
    fn run_connected(&mut self, signals: &UnixStream, after: Option<u64>) -> anyhow::Result<AttachEnd> {
        let options = AttachQuery {
            read_only: self.read_only,
            // A file or a pipe gets every byte.
            skip: self.display.draws(),
            after,
            key: Some(self.outbox.key().to_owned()),
            from: self.outbox.first_number(),
        };
        let mut daemon = self.client.attach(self.task, &options)?;
        self.outbox.resend(&mut daemon)?;
        loop {
            while let Some(event) = daemon.next_message()? {
                if let Some(end) = self.handle_event(&mut daemon, event)? {
                    return Ok(end);
                }
            }
            if daemon.is_over() {
                return Err(ClientError::Broken(io::ErrorKind::UnexpectedEof.into()).into());
            }
            if let Some(end) = self.wait(&mut daemon, signals)? {
                return Ok(end);
            }
        }
    }

    /// Waits for the daemon, the keyboard or a signal, and handles all but messages of the daemon.
    fn wait(&mut self, daemon: &mut Attachment, signals: &UnixStream) -> anyhow::Result<Option<AttachEnd>> {
        let stdin = io::stdin();
        let mut out = PollFlags::IN;
        out.set(PollFlags::OUT, daemon.wants_to_write());
        // Before the task runs, the prompt alone reads the keyboard.
        let reads_stdin =
            self.display.is_raw() || self.forwards_stdin && (self.mode == Mode::Pipes || !stdin.is_terminal());
        let (stdin_ready, daemon_ready, signalled) = {
            let mut fds = vec![PollFd::new(&*daemon, out), PollFd::new(signals, PollFlags::IN)];
            if reads_stdin && self.outbox.has_room() && self.prompt.is_none() {
                fds.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
            }
            let timeout = self.detach.remaining_wait(clock::steady()).and_then(|t| Timespec::try_from(t).ok());
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(io::Error::from(e).into()),
            }
            let ready = |n: usize| fds.get(n).is_some_and(|fd| !fd.revents().is_empty());
            (ready(2), ready(0), ready(1))
        };
        if daemon_ready && daemon.wants_to_write() {
            daemon.flush()?;
        }
        if signalled && self.handle_signals(daemon, signals)? {
            return Ok(Some(AttachEnd::Signalled));
        }
        if stdin_ready {
            let mut buf = [0; 4096];
            let n = rustix::io::read(stdin.as_fd(), &mut buf).unwrap_or(0);
            if n == 0 {
                return self.handle_end_of_input(daemon, stdin.is_terminal());
            }
            if self.handle_typed(daemon, &buf[..n])? {
                return Ok(Some(AttachEnd::Detached));
            }
        } else if let Some(held) = self.detach.take_overdue(clock::steady()).filter(|_| !self.read_only) {
            self.outbox.send(daemon, OutboxMessage::Typed(held))?;
        }
        Ok(None)
    }

    fn handle_end_of_input(&mut self, daemon: &mut Attachment, terminal: bool) -> anyhow::Result<Option<AttachEnd>> {
        self.forwards_stdin = false;
        if terminal && self.display.is_raw() {
            // The terminal was closed.
            return Ok(Some(AttachEnd::Detached));
        }
        self.outbox.send(daemon, OutboxMessage::End)?;
        Ok(None)
    }

    /// Handles a change of size; returns whether a signal asks this program to end.
    fn handle_signals(&mut self, daemon: &mut Attachment, mut signals: &UnixStream) -> anyhow::Result<bool> {
        let mut buf = [0; 64];
        let n = signals.read(&mut buf).unwrap_or(0);
        if buf[..n].contains(&b'e') {
            return Ok(true);
        }
        self.send_size(daemon)?;
        Ok(false)
    }

    /// Sends typed bytes to the task; returns whether they were the detach keys.
    fn handle_typed(&mut self, daemon: &mut Attachment, bytes: &[u8]) -> anyhow::Result<bool> {
        // Ctrl-C, too, leaves a read-only attachment: nothing typed reaches the task.
        if self.read_only && bytes.contains(&3) {
            return Ok(true);
        }
        let TypedBytes { bytes, detach } = self.detach.feed(bytes, self.display.is_raw(), clock::steady());
        if !bytes.is_empty() && !self.read_only {
            self.outbox.send(daemon, OutboxMessage::Typed(bytes))?;
        }
        Ok(detach)
    }

    fn send_size(&mut self, daemon: &mut Attachment) -> anyhow::Result<()> {
        let Some(size) = size().filter(|size| self.size != Some(*size)) else { return Ok(()) };
        if self.mode == Mode::Pty && !self.read_only && self.display.is_raw() {
            self.size = Some(size);
            self.outbox.send(daemon, OutboxMessage::Size(size.0, size.1))?;
        }
        Ok(())
    }

    fn handle_event(&mut self, daemon: &mut Attachment, event: AttachedEvent) -> anyhow::Result<Option<AttachEnd>> {
        match event {
            AttachedEvent::Bytes(bytes) => {
                self.position.last_seq = self.position.bytes_seq.take().or(self.position.last_seq);
                self.display.show(&bytes)?;
                Ok(None)
            }
            AttachedEvent::Record(record) => self.handle_record(daemon, record.record),
            AttachedEvent::Attach(word) => self.handle_word(daemon, *word),
        }
    }

    fn handle_word(&mut self, daemon: &mut Attachment, word: AttachEvent) -> anyhow::Result<Option<AttachEnd>> {
        match word {
            AttachEvent::Begin { task, screen, .. } => return self.begin(daemon, *task, screen.is_some()),
            AttachEvent::Applied { n, .. } => self.outbox.mark_answered(n),
            AttachEvent::Refused { n: Some(n), refusal } => self.handle_refusal(n, &refusal),
            AttachEvent::Refused { n: None, refusal } => {
                return Err(ClientError::from(TaskRefusal::from(refusal).of_task(self.task)).into());
            }
            AttachEvent::Tail { stream, .. } => self.display.stream = stream,
            AttachEvent::Screen { .. } => {}
        }
        Ok(None)
    }

    fn handle_refusal(&mut self, n: u64, refusal: &Refusal) {
        self.outbox.mark_answered(n);
        // A task without input gets no more of it; the end of a task is reported anyway.
        if refusal.code == RefusalCode::WrongMode {
            self.forwards_stdin = false;
        } else if !matches!(refusal.code, RefusalCode::TaskOver | RefusalCode::Forbidden) {
            say(&format!("csn: {}\r", refusal.message));
        }
    }

    /// The daemon's first message: the state of the task.
    fn begin(&mut self, daemon: &mut Attachment, state: TaskState, draws: bool) -> anyhow::Result<Option<AttachEnd>> {
        if draws {
            self.display.make_room(size().map_or(24, |(rows, _)| usize::from(rows)))?;
        }
        self.size = state.io.terminal.map(|t| (t.rows, t.cols));
        match (state.status, state.position(), state.approval_id()) {
            (Status::Running, ..) => self.start_display(daemon)?,
            (Status::Queued, Some(position), _) => say(&queue_line(position)),
            (Status::Queued, None, Some(approval)) if self.prompt.is_none() => {
                say(&waiting_line(approval));
            }
            _ => {}
        }
        if let Some(outcome) = state.outcome() {
            // The screen follows; it is the last thing that the daemon sends.
            while !daemon.is_over() {
                match daemon.next_message()? {
                    Some(bytes @ AttachedEvent::Bytes(_)) => drop(self.handle_event(daemon, bytes)?),
                    Some(AttachedEvent::Attach(word)) => {
                        if let AttachEvent::Tail { stream, .. } = *word {
                            self.display.stream = stream;
                        }
                    }
                    Some(AttachedEvent::Record(_)) => {}
                    None => drop(poll(&mut [PollFd::new(&*daemon, PollFlags::IN)], None)),
                }
            }
            let took = state.usage().map(|u| Duration::from_micros(u.duration_us));
            let outcome = outcome.clone();
            return Ok(Some(AttachEnd::Ended(OutcomeLine {
                outcome,
                took,
                words: None,
                notes: Vec::new(),
                never_began: false,
            })));
        }
        Ok(None)
    }

    /// The task runs: from now on the keyboard belongs to it.
    fn start_display(&mut self, daemon: &mut Attachment) -> anyhow::Result<()> {
        if self.mode == Mode::Pty && self.keyboard {
            self.display.make_raw()?;
        }
        self.send_size(daemon)
    }

    fn handle_record(&mut self, daemon: &mut Attachment, record: Record) -> anyhow::Result<Option<AttachEnd>> {
        match record.what {
            // Received once its bytes have come.
            RecordContent::Frame(Frame::Output { .. }) => self.position.bytes_seq = Some(record.seq),
            _ => self.position.last_seq = Some(record.seq),
        }
        match record.what {
            RecordContent::Frame(Frame::Output { stream, .. }) => self.display.stream = stream,
            RecordContent::Frame(Frame::Resized { rows, cols, .. }) => self.size = self.size.or(Some((rows, cols))),
            RecordContent::Frame(Frame::ConfinementMet { note }) => self.summary.notes.push(note.as_str().to_owned()),
            RecordContent::Frame(Frame::WriteDetected { path, change, escape: true, .. }) => {
                self.summary.notes.push(escape_warning(&path, change))
            }
            RecordContent::Frame(Frame::Exited { duration_us, .. }) => {
                self.summary.took = Some(Duration::from_micros(duration_us));
            }
            RecordContent::Decision(Decision::PermissionGranted { .. }) => self.close_prompt(false),
            RecordContent::Decision(Decision::Withdrawn { .. }) => self.close_prompt(true),
            RecordContent::Decision(Decision::PermissionDenied { words, .. }) => {
                self.summary.words = words;
                self.close_prompt(false);
            }
            RecordContent::Decision(Decision::Launched { .. }) => self.start_display(daemon)?,
            RecordContent::Decision(Decision::Settled { outcome, journal_head, recovered }) => {
                let AttachSummary { took, words, notes } = std::mem::take(&mut self.summary);
                let never_began = never_began(&outcome, journal_head, recovered);
                return Ok(Some(AttachEnd::Ended(OutcomeLine { outcome, took, words, notes, never_began })));
            }
            _ => {}
        }
        Ok(None)
    }

    fn close_prompt(&mut self, withdrawn: bool) {
        if let Some(prompt) = self.prompt.take() {
            prompt.close(withdrawn);
        }
    }
}

/// A stream that gets one byte per signal: `w` for a change of size, `e` for the end of the program.
fn signal_pipe() -> anyhow::Result<UnixStream> {
    let (read, mut write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    let mut received = signal_hook::iterator::Signals::new([SIGWINCH, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        for signal in received.forever() {
            if write.write_all(if signal == SIGWINCH { b"w" } else { b"e" }).is_err() {
                return;
            }
        }
    });
    Ok(read)
}
