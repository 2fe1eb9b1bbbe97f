//! `attach`, and the terminal side of `run --pty`: a task on this terminal, until it ends or is let go of.
//!
//! One loop waits for the keyboard, for the house and for signals. When the house goes away it is reached again and the
//! screen drawn anew; what was typed and not answered is sent again under the same numbers, so it arrives once.

mod display;
mod outbox;

use crate::{
    code, exit,
    render::outcome::{OutcomeLine, closing, escaped, never_began},
    say,
    target_home::reach,
    terminal::{
        detach::{DetachWatch, TypedBytes, detach_keys},
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
    let detach = detach_keys(args.detach_keys)?;
    let client = reach()?;
    let state = client.task(args.task)?;
    logs::kept(&state)?;
    if state.request.mode == Mode::Pipes && !state.settled() && !args.read_only {
        Interrupts::begin(&client, state.task_id)?;
    }
    let mut session = AttachSession::new(client, &state, args.read_only, detach);
    match session.run(None)? {
        AttachEnd::Detached => Ok(ExitCode::SUCCESS),
        AttachEnd::Ended(ended) => {
            closing(state.task_id, &ended);
            Ok(code(ended.outcome.exit_code()))
        }
        AttachEnd::Signalled => Ok(ExitCode::from(exit::OURS)),
    }
}

/// How an attachment ended.
pub(crate) enum AttachEnd {
    Ended(OutcomeLine),
    Detached,
    /// We were told to go.
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
    /// The size that the task's terminal has.
    size: Option<(u16, u16)>,
    asking: Option<TerminalPrompt>,
    /// Standard input is a terminal, which must not act on what is typed while it shows the task.
    keyboard: bool,
    /// Standard input is passed on.
    typing: bool,
    account: AttachSummary,
}

/// How far the stream of the task was seen.
#[derive(Default)]
struct StreamPosition {
    /// The last record that has been seen, with its bytes; and the one whose bytes come next.
    last_seq: Option<u64>,
    of_bytes: Option<u64>,
}

/// What the closing lines will say.
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
        let typing = keyboard && !read_only;
        // Where nothing is passed on, nobody takes the terminal's answers: they would be typed into a shell.
        let rule = if typing { EscapePolicy::Live } else { EscapePolicy::Recording };
        let draws = io::stdout().is_terminal() && mode == Mode::Pty;
        Self {
            client,
            task: state.task_id,
            mode,
            read_only,
            detach: DetachWatch::new(detach),
            outbox: Outbox::new(send::random_key()),
            position: StreamPosition::default(),
            display: Display::new(draws.then_some(rule), StreamName::for_mode(mode)[0]),
            size: None,
            asking: None,
            keyboard,
            typing,
            account: AttachSummary::default(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn asking(mut self, asking: Option<TerminalPrompt>) -> Self {
        self.asking = asking;
        self
    }

    /// Passes on what is not a terminal, too: `run --pty --stdin`.
    pub(crate) fn with_stdin(mut self) -> Self {
        self.typing = true;
        self
    }

    /// Until the task has ended or is let go of. `after` begins with a record instead of the screen.
    pub(crate) fn run(&mut self, after: Option<u64>) -> anyhow::Result<AttachEnd> {
        let signals = signals()?;
        let mut after = after;
        let ended = loop {
            match self.connected(&signals, after) {
                Ok(end) => break Ok(end),
                Err(e) => match e.downcast_ref::<ClientError>() {
                    // It is reached again, and the screen drawn anew.
                    Some(ClientError::Broken(_) | ClientError::NoDaemon { .. }) => {
                        if let Err(e) = reach() {
                            break Err(e.context(format!("the task goes on: csn attach {}", self.task)));
                        }
                        // Into a file goes everything once; a terminal is drawn anew.
                        after = self.position.last_seq.or(after).filter(|_| !self.display.draws());
                    }
                    _ => break Err(e),
                },
            }
        };
        self.let_go(&ended);
        ended
    }

    /// The terminal as it was.
    fn let_go(&mut self, end: &anyhow::Result<AttachEnd>) {
        let was_raw = self.display.leave();
        if matches!(end, Ok(AttachEnd::Detached)) {
            let new_line = if was_raw { "\n" } else { "" };
            say(&format!("{new_line}csn: detached; the task goes on: csn attach {}", self.task));
        }
    }

    fn connected(&mut self, signals: &UnixStream, after: Option<u64>) -> anyhow::Result<AttachEnd> {
        let options = AttachQuery {
            read_only: self.read_only,
            // Into a file or a pipe goes everything.
            skip: self.display.draws(),
            after,
            key: Some(self.outbox.key().to_owned()),
            from: self.outbox.first(),
        };
        let mut daemon = self.client.attach(self.task, &options)?;
        self.outbox.send_again(&mut daemon)?;
        loop {
            while let Some(came) = daemon.next_message()? {
                if let Some(end) = self.take(&mut daemon, came)? {
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

    /// Waits for whatever comes first, and deals with all but what the house says.
    fn wait(&mut self, daemon: &mut Attachment, signals: &UnixStream) -> anyhow::Result<Option<AttachEnd>> {
        let stdin = io::stdin();
        let mut out = PollFlags::IN;
        out.set(PollFlags::OUT, daemon.wants_to_write());
        // Before the task runs, what is typed is an answer to a question or nothing.
        let looking = self.display.is_raw();
        let typing = looking || self.typing && (self.mode == Mode::Pipes || !stdin.is_terminal());
        let (typed, told, signalled) = {
            let mut fds = vec![PollFd::new(&*daemon, out), PollFd::new(signals, PollFlags::IN)];
            if typing && self.outbox.has_room() && self.asking.is_none() {
                fds.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
            }
            let timeout = self.detach.patience(clock::steady()).and_then(|t| Timespec::try_from(t).ok());
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(io::Error::from(e).into()),
            }
            let ready = |n: usize| fds.get(n).is_some_and(|fd| !fd.revents().is_empty());
            (ready(2), ready(0), ready(1))
        };
        if told && daemon.wants_to_write() {
            daemon.flush()?;
        }
        if signalled && self.signalled(daemon, signals)? {
            return Ok(Some(AttachEnd::Signalled));
        }
        if typed {
            let mut buf = [0; 4096];
            let n = rustix::io::read(stdin.as_fd(), &mut buf).unwrap_or(0);
            if n == 0 {
                return self.end_of_input(daemon, stdin.is_terminal());
            }
            if self.typed(daemon, &buf[..n])? {
                return Ok(Some(AttachEnd::Detached));
            }
        } else if let Some(held) = self.detach.overdue(clock::steady()).filter(|_| !self.read_only) {
            self.outbox.send(daemon, OutboxMessage::Typed(held))?;
        }
        Ok(None)
    }

    fn end_of_input(&mut self, daemon: &mut Attachment, terminal: bool) -> anyhow::Result<Option<AttachEnd>> {
        self.typing = false;
        if terminal && self.display.is_raw() {
            // The terminal is gone, and with it whoever sat there.
            return Ok(Some(AttachEnd::Detached));
        }
        self.outbox.send(daemon, OutboxMessage::End)?;
        Ok(None)
    }

    /// Whether we were told to go.
    fn signalled(&mut self, daemon: &mut Attachment, mut signals: &UnixStream) -> anyhow::Result<bool> {
        let mut buf = [0; 64];
        let n = signals.read(&mut buf).unwrap_or(0);
        if buf[..n].contains(&b'e') {
            return Ok(true);
        }
        self.tell_size(daemon)?;
        Ok(false)
    }

    /// Bytes from the keyboard. Whether they were the detach keys.
    fn typed(&mut self, daemon: &mut Attachment, bytes: &[u8]) -> anyhow::Result<bool> {
        // Who only looks on can only leave, also as one leaves anything else.
        if self.read_only && bytes.contains(&3) {
            return Ok(true);
        }
        let TypedBytes { bytes, detach } = self.detach.feed(bytes, self.display.is_raw(), clock::steady());
        if !bytes.is_empty() && !self.read_only {
            self.outbox.send(daemon, OutboxMessage::Typed(bytes))?;
        }
        Ok(detach)
    }

    fn tell_size(&mut self, daemon: &mut Attachment) -> anyhow::Result<()> {
        let Some(size) = size().filter(|size| self.size != Some(*size)) else { return Ok(()) };
        if self.mode == Mode::Pty && !self.read_only && self.display.is_raw() {
            self.size = Some(size);
            self.outbox.send(daemon, OutboxMessage::Size(size.0, size.1))?;
        }
        Ok(())
    }

    fn take(&mut self, daemon: &mut Attachment, came: AttachedEvent) -> anyhow::Result<Option<AttachEnd>> {
        match came {
            AttachedEvent::Bytes(bytes) => {
                self.position.last_seq = self.position.of_bytes.take().or(self.position.last_seq);
                self.display.show(&bytes)?;
                Ok(None)
            }
            AttachedEvent::Record(record) => self.record(daemon, record.record),
            AttachedEvent::Attach(word) => self.word(daemon, *word),
        }
    }

    fn word(&mut self, daemon: &mut Attachment, word: AttachEvent) -> anyhow::Result<Option<AttachEnd>> {
        match word {
            AttachEvent::Begin { task, screen, .. } => return self.begin(daemon, *task, screen.is_some()),
            AttachEvent::Applied { n, .. } => self.outbox.answered(n),
            AttachEvent::Refused { n: Some(n), refusal } => self.refused(n, &refusal),
            AttachEvent::Refused { n: None, refusal } => {
                return Err(ClientError::from(TaskRefusal::from(refusal).of_task(self.task)).into());
            }
            AttachEvent::Tail { stream, .. } => self.display.stream = stream,
            AttachEvent::Screen { .. } => {}
        }
        Ok(None)
    }

    fn refused(&mut self, n: u64, refusal: &Refusal) {
        self.outbox.answered(n);
        // A task that has no input is not asked again; one that is over says so by itself.
        if refusal.code == RefusalCode::WrongMode {
            self.typing = false;
        } else if !matches!(refusal.code, RefusalCode::TaskOver | RefusalCode::Forbidden) {
            say(&format!("csn: {}\r", refusal.message));
        }
    }

    /// The house says what there is.
    fn begin(&mut self, daemon: &mut Attachment, state: TaskState, draws: bool) -> anyhow::Result<Option<AttachEnd>> {
        if draws {
            self.display.make_room(size().map_or(24, |(rows, _)| usize::from(rows)))?;
        }
        self.size = state.io.terminal.map(|t| (t.rows, t.cols));
        match (state.status, state.position(), state.approval_id()) {
            (Status::Running, ..) => self.started(daemon)?,
            (Status::Queued, Some(position), _) => say(&format!("csn: waiting for a slot, {position}. in line")),
            (Status::Queued, None, Some(approval)) if self.asking.is_none() => {
                say(&format!("csn: waiting for approval {approval}: csn approvals answer {approval} once"));
            }
            _ => {}
        }
        if let Some(outcome) = state.outcome() {
            // The screen follows; it is the last thing that the house sends.
            while !daemon.is_over() {
                match daemon.next_message()? {
                    Some(bytes @ AttachedEvent::Bytes(_)) => drop(self.take(daemon, bytes)?),
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

    /// The task runs: from now on the keyboard is its own.
    fn started(&mut self, daemon: &mut Attachment) -> anyhow::Result<()> {
        if self.mode == Mode::Pty && self.keyboard {
            self.display.make_raw()?;
        }
        self.tell_size(daemon)
    }

    fn record(&mut self, daemon: &mut Attachment, record: Record) -> anyhow::Result<Option<AttachEnd>> {
        match record.what {
            // Seen once its bytes have come.
            RecordContent::Frame(Frame::Output { .. }) => self.position.of_bytes = Some(record.seq),
            _ => self.position.last_seq = Some(record.seq),
        }
        match record.what {
            RecordContent::Frame(Frame::Output { stream, .. }) => self.display.stream = stream,
            RecordContent::Frame(Frame::Resized { rows, cols, .. }) => self.size = self.size.or(Some((rows, cols))),
            RecordContent::Frame(Frame::ConfinementMet { note }) => self.account.notes.push(note.as_str().to_owned()),
            RecordContent::Frame(Frame::WriteDetected { path, change, escape: true, .. }) => {
                self.account.notes.push(escaped(&path, change))
            }
            RecordContent::Frame(Frame::Exited { duration_us, .. }) => {
                self.account.took = Some(Duration::from_micros(duration_us));
            }
            RecordContent::Decision(Decision::PermissionGranted { .. }) => self.asked(false),
            RecordContent::Decision(Decision::Withdrawn { .. }) => self.asked(true),
            RecordContent::Decision(Decision::PermissionDenied { words, .. }) => {
                self.account.words = words;
                self.asked(false);
            }
            RecordContent::Decision(Decision::Launched { .. }) => self.started(daemon)?,
            RecordContent::Decision(Decision::Settled { outcome, journal_head, recovered }) => {
                let AttachSummary { took, words, notes } = std::mem::take(&mut self.account);
                let never_began = never_began(&outcome, journal_head, recovered);
                return Ok(Some(AttachEnd::Ended(OutcomeLine { outcome, took, words, notes, never_began })));
            }
            _ => {}
        }
        Ok(None)
    }

    fn asked(&mut self, withdrawn: bool) {
        if let Some(asking) = self.asking.take() {
            asking.end(withdrawn);
        }
    }
}

/// A byte for each signal: `w` for another size, `e` for the end.
fn signals() -> anyhow::Result<UnixStream> {
    let (read, mut write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    let mut told = signal_hook::iterator::Signals::new([SIGWINCH, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        for signal in told.forever() {
            if write.write_all(if signal == SIGWINCH { b"w" } else { b"e" }).is_err() {
                return;
            }
        }
    });
    Ok(read)
}
