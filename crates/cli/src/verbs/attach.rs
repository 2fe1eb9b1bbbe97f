//! `attach`, and the terminal side of `run --pty`: a task on this terminal, until it ends or is let go of.
//!
//! One loop waits for the keyboard, for the house and for signals. When the house goes away it is reached again and the
//! screen drawn anew; what was typed and not answered is sent again under the same numbers, so it arrives once.

use crate::{
    code, exit,
    house::reach,
    render::outcome::{Ended, closing, escaped, never_began},
    say,
    terminal::{
        detach::detach_keys,
        escapes::{Filter, Rule},
        interrupts::Interrupts,
        output::Writers,
        prompt::Asking,
        raw::{Raw, size},
    },
    verbs::{logs, send},
};
use countersign_client::{Attached, Attachment, Client, ClientError};
use countersign_model::{
    Code, Decision, Frame, Mode, Record, Refusal, Refused, Status, StreamName, TaskId, TaskState, What,
    api::{AttachEvent, AttachMessage, AttachQuery, ResizeBody, StdinBody},
};
use countersign_store::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGTERM, SIGWINCH};
use std::{
    collections::VecDeque,
    io::{self, IsTerminal as _, Read as _, Write as _},
    os::{fd::AsFd as _, unix::net::UnixStream},
    process::ExitCode,
    time::{Duration, Instant},
};

/// How long the beginning of the detach keys waits for its rest.
const HOLD: Duration = Duration::from_millis(500);
/// So much that was typed may wait for a house that is away.
const MOST_UNANSWERED: usize = 4096;

pub(crate) struct Args<'a> {
    pub(crate) task: &'a str,
    pub(crate) read_only: bool,
    pub(crate) detach_keys: &'a str,
}

pub(crate) fn attach(args: &Args<'_>) -> anyhow::Result<ExitCode> {
    let detach = detach_keys(args.detach_keys)?;
    let client = reach()?;
    let state = client.task(args.task)?;
    logs::kept(&state)?;
    if state.request.mode == Mode::Pipes && !state.settled() && !args.read_only {
        Interrupts::begin(&client, state.task_id)?;
    }
    let mut session = Session::new(client, &state, args.read_only, detach);
    match session.run(None)? {
        End::Detached => Ok(ExitCode::SUCCESS),
        End::Ended(ended) => {
            closing(state.task_id, &ended);
            Ok(code(ended.outcome.exit_code()))
        }
        End::Signalled => Ok(ExitCode::from(exit::OURS)),
    }
}

/// How an attachment ended.
pub(crate) enum End {
    Ended(Ended),
    Detached,
    /// We were told to go.
    Signalled,
}

/// What was sent and not answered.
enum Sent {
    Typed(Vec<u8>),
    Size(u16, u16),
    End,
}

pub(crate) struct Session {
    client: Client,
    task: TaskId,
    mode: Mode,
    read_only: bool,
    detach: Vec<u8>,
    /// Bytes of the detach keys that have been typed so far, and since when.
    held: Vec<u8>,
    held_since: Option<Instant>,
    key: String,
    /// What was sent, from the first that was not answered on. The house counts without gaps, so what was answered
    /// behind it stays, and is sent again with the rest; it is applied once.
    unanswered: VecDeque<(Sent, bool)>,
    next: u64,
    /// The last record that has been seen, with its bytes; and the one whose bytes come next.
    last_seq: Option<u64>,
    of_bytes: Option<u64>,
    filter: Option<Filter>,
    plain: Writers,
    raw: Option<Raw>,
    /// The stream that the next bytes belong to.
    stream: StreamName,
    size: Option<(u16, u16)>,
    took: Option<Duration>,
    asking: Option<Asking>,
    /// Standard input is a terminal, which must not act on what is typed while it shows the task.
    keyboard: bool,
    /// Standard input is passed on.
    typing: bool,
    words: Option<countersign_model::Text>,
    notes: Vec<String>,
}

impl Session {
    pub(crate) fn new(client: Client, state: &TaskState, read_only: bool, detach: Vec<u8>) -> Self {
        let terminal = io::stdout().is_terminal();
        let keyboard = !state.settled() && io::stdin().is_terminal();
        let typing = keyboard && !read_only;
        // Where nothing is passed on, nobody takes the terminal's answers: they would be typed into a shell.
        let rule = if typing { Rule::Live } else { Rule::Recording };
        Self {
            client,
            task: state.task_id,
            mode: state.request.mode,
            read_only,
            detach,
            held: Vec::new(),
            held_since: None,
            key: send::random_key(),
            unanswered: VecDeque::new(),
            next: 0,
            last_seq: None,
            of_bytes: None,
            filter: (terminal && state.request.mode == Mode::Pty).then(|| Filter::new(rule)),
            plain: Writers::new(false),
            raw: None,
            stream: StreamName::of(state.request.mode)[0],
            size: None,
            took: None,
            asking: None,
            keyboard,
            typing,
            words: None,
            notes: Vec::new(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn asking(mut self, asking: Option<Asking>) -> Self {
        self.asking = asking;
        self
    }

    /// Passes on what is not a terminal, too: `run --pty --stdin`.
    pub(crate) fn with_stdin(mut self) -> Self {
        self.typing = true;
        self
    }

    /// Until the task has ended or is let go of. `after` begins with a record instead of the screen.
    pub(crate) fn run(&mut self, after: Option<u64>) -> anyhow::Result<End> {
        let signals = signals()?;
        let mut after = after;
        let ended = loop {
            match self.connected(&signals, after) {
                Ok(end) => break Ok(end),
                Err(e) => match e.downcast_ref::<ClientError>() {
                    // It is reached again, and the screen drawn anew.
                    Some(ClientError::Broken(_) | ClientError::NoHouse { .. }) => {
                        if let Err(e) = reach() {
                            break Err(e.context(format!("the task goes on: csn attach {}", self.task)));
                        }
                        // Into a file goes everything once; a terminal is drawn anew.
                        after =
                            self.last_seq.filter(|_| self.filter.is_none()).or(after.filter(|_| self.filter.is_none()));
                    }
                    _ => break Err(e),
                },
            }
        };
        self.let_go(&ended);
        ended
    }

    /// The terminal as it was.
    fn let_go(&mut self, end: &anyhow::Result<End>) {
        if let Some(filter) = &mut self.filter {
            let reset = filter.finish();
            let _ = io::stdout().write_all(&reset).and_then(|()| io::stdout().flush());
        }
        let _ = self.plain.finish();
        let was_raw = self.raw.take().is_some();
        if matches!(end, Ok(End::Detached)) {
            let new_line = if was_raw { "\n" } else { "" };
            say(&format!("{new_line}csn: detached; the task goes on: csn attach {}", self.task));
        }
    }

    fn connected(&mut self, signals: &UnixStream, after: Option<u64>) -> anyhow::Result<End> {
        let options = AttachQuery {
            read_only: self.read_only,
            // Into a file or a pipe goes everything.
            skip: self.filter.is_some(),
            after,
            key: Some(self.key.clone()),
            from: self.next - self.unanswered.len() as u64,
        };
        let mut house = self.client.attach(self.task, &options)?;
        for (sent, _) in &self.unanswered {
            pass(&mut house, sent)?;
        }
        loop {
            while let Some(came) = house.next_message()? {
                if let Some(end) = self.take(&mut house, came)? {
                    return Ok(end);
                }
            }
            if house.is_over() {
                return Err(ClientError::Broken(io::ErrorKind::UnexpectedEof.into()).into());
            }
            if let Some(end) = self.wait(&mut house, signals)? {
                return Ok(end);
            }
        }
    }

    /// Waits for whatever comes first, and deals with all but what the house says.
    fn wait(&mut self, house: &mut Attachment, signals: &UnixStream) -> anyhow::Result<Option<End>> {
        let stdin = io::stdin();
        let mut out = PollFlags::IN;
        out.set(PollFlags::OUT, house.wants_to_write());
        // Before the task runs, what is typed is an answer to a question or nothing.
        let looking = self.raw.is_some();
        let typing = looking || self.typing && (self.mode == Mode::Pipes || !stdin.is_terminal());
        let (typed, told, signalled) = {
            let mut fds = vec![PollFd::new(&*house, out), PollFd::new(signals, PollFlags::IN)];
            let room = self.unanswered.len() < MOST_UNANSWERED;
            if typing && room && self.asking.is_none() {
                fds.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
            }
            let timeout = self.held_since.map(|since| (since + HOLD).saturating_duration_since(clock::steady()));
            let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(io::Error::from(e).into()),
            }
            let ready = |n: usize| fds.get(n).is_some_and(|fd| !fd.revents().is_empty());
            (ready(2), ready(0), ready(1))
        };
        if told && house.wants_to_write() {
            house.flush()?;
        }
        if signalled && self.signalled(house, signals)? {
            return Ok(Some(End::Signalled));
        }
        if typed {
            let mut buf = [0; 4096];
            let n = rustix::io::read(stdin.as_fd(), &mut buf).unwrap_or(0);
            if n == 0 {
                return self.end_of_input(house, stdin.is_terminal());
            }
            if self.typed(house, &buf[..n])? {
                return Ok(Some(End::Detached));
            }
        } else if self.held_since.is_some_and(|since| clock::steady() >= since + HOLD) {
            // They were not the beginning of the detach keys after all.
            let held = std::mem::take(&mut self.held);
            self.held_since = None;
            if !self.read_only {
                self.send(house, Sent::Typed(held))?;
            }
        }
        Ok(None)
    }

    fn end_of_input(&mut self, house: &mut Attachment, terminal: bool) -> anyhow::Result<Option<End>> {
        self.typing = false;
        if terminal && self.raw.is_some() {
            // The terminal is gone, and with it whoever sat there.
            return Ok(Some(End::Detached));
        }
        self.send(house, Sent::End)?;
        Ok(None)
    }

    /// Whether we were told to go.
    fn signalled(&mut self, house: &mut Attachment, mut signals: &UnixStream) -> anyhow::Result<bool> {
        let mut buf = [0; 64];
        let n = signals.read(&mut buf).unwrap_or(0);
        if buf[..n].contains(&b'e') {
            return Ok(true);
        }
        self.tell_size(house)?;
        Ok(false)
    }

    /// Bytes from the keyboard. Whether they were the detach keys.
    fn typed(&mut self, house: &mut Attachment, bytes: &[u8]) -> anyhow::Result<bool> {
        let mut out = Vec::new();
        // Who only looks on can only leave, also as one leaves anything else.
        if self.read_only && bytes.contains(&3) {
            return Ok(true);
        }
        for b in bytes {
            self.held.push(*b);
            if self.raw.is_some() && self.held == self.detach {
                if !out.is_empty() {
                    self.send(house, Sent::Typed(out))?;
                }
                self.held.clear();
                return Ok(true);
            }
            while !self.held.is_empty() && (self.raw.is_none() || !self.detach.starts_with(&self.held)) {
                out.push(self.held.remove(0));
            }
        }
        self.held_since = (!self.held.is_empty()).then(clock::steady);
        if !out.is_empty() && !self.read_only {
            self.send(house, Sent::Typed(out))?;
        }
        Ok(false)
    }

    fn send(&mut self, house: &mut Attachment, sent: Sent) -> anyhow::Result<()> {
        self.unanswered.push_back((sent, false));
        self.next += 1;
        let (sent, _) = self.unanswered.back().expect("it was just put there");
        Ok(pass(house, sent)?)
    }

    fn tell_size(&mut self, house: &mut Attachment) -> anyhow::Result<()> {
        let Some(size) = size().filter(|size| self.size != Some(*size)) else { return Ok(()) };
        if self.mode == Mode::Pty && !self.read_only && self.raw.is_some() {
            self.size = Some(size);
            self.send(house, Sent::Size(size.0, size.1))?;
        }
        Ok(())
    }

    fn take(&mut self, house: &mut Attachment, came: Attached) -> anyhow::Result<Option<End>> {
        match came {
            Attached::Bytes(bytes) => {
                self.last_seq = self.of_bytes.take().or(self.last_seq);
                match &mut self.filter {
                    Some(filter) => {
                        let mut out = io::stdout().lock();
                        out.write_all(&filter.feed(&bytes))?;
                        out.flush()?;
                    }
                    None => self.plain.write(self.stream, &bytes)?,
                }
                Ok(None)
            }
            Attached::Record(record) => self.record(house, record.record),
            Attached::Word(word) => self.word(house, *word),
        }
    }

    fn word(&mut self, house: &mut Attachment, word: AttachEvent) -> anyhow::Result<Option<End>> {
        match word {
            AttachEvent::Begin { task, screen, .. } => return self.begin(house, *task, screen.is_some()),
            AttachEvent::Applied { n, .. } => self.answered(n),
            AttachEvent::Refused { n: Some(n), refusal } => self.refused(n, &refusal),
            AttachEvent::Refused { n: None, refusal } => {
                return Err(ClientError::from(Refused::from(refusal).of_task(self.task)).into());
            }
            AttachEvent::Tail { stream, .. } => self.stream = stream,
            AttachEvent::Screen { .. } => {}
        }
        Ok(None)
    }

    fn answered(&mut self, n: u64) {
        let first = self.next - self.unanswered.len() as u64;
        let at = n.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        if let Some((_, answered)) = at.and_then(|at| self.unanswered.get_mut(at)) {
            *answered = true;
        }
        while self.unanswered.front().is_some_and(|(_, answered)| *answered) {
            self.unanswered.pop_front();
        }
    }

    fn refused(&mut self, n: u64, refusal: &Refusal) {
        self.answered(n);
        // A task that has no input is not asked again; one that is over says so by itself.
        if refusal.code == Code::WrongMode {
            self.typing = false;
        } else if !matches!(refusal.code, Code::TaskOver | Code::Forbidden) {
            say(&format!("csn: {}\r", refusal.message));
        }
    }

    /// The house says what there is.
    fn begin(&mut self, house: &mut Attachment, state: TaskState, draws: bool) -> anyhow::Result<Option<End>> {
        if let (true, Some(filter)) = (draws, &mut self.filter) {
            // What was on this terminal before stays above what comes now.
            let rows = size().map_or(24, |(rows, _)| usize::from(rows));
            let mut out = io::stdout().lock();
            out.write_all(&filter.finish())?;
            if self.raw.is_none() {
                out.write_all("\n".repeat(rows).as_bytes())?;
            }
        }
        self.size = state.io.terminal.map(|t| (t.rows, t.cols));
        match (state.status, state.position(), state.approval_id()) {
            (Status::Running, ..) => self.started(house)?,
            (Status::Queued, Some(position), _) => say(&format!("csn: waiting for a slot, {position}. in line")),
            (Status::Queued, None, Some(approval)) if self.asking.is_none() => {
                say(&format!("csn: waiting for approval {approval}: csn approvals answer {approval} once"));
            }
            _ => {}
        }
        if let Some(outcome) = state.outcome() {
            // The screen follows; it is the last thing that the house sends.
            while !house.is_over() {
                match house.next_message()? {
                    Some(bytes @ Attached::Bytes(_)) => drop(self.take(house, bytes)?),
                    Some(Attached::Word(word)) => {
                        if let AttachEvent::Tail { stream, .. } = *word {
                            self.stream = stream;
                        }
                    }
                    Some(Attached::Record(_)) => {}
                    None => drop(poll(&mut [PollFd::new(&*house, PollFlags::IN)], None)),
                }
            }
            let took = state.usage().map(|u| Duration::from_micros(u.duration_us));
            let outcome = outcome.clone();
            return Ok(Some(End::Ended(Ended { outcome, took, words: None, notes: Vec::new(), never_began: false })));
        }
        Ok(None)
    }

    /// The task runs: from now on the keyboard is its own.
    fn started(&mut self, house: &mut Attachment) -> anyhow::Result<()> {
        if self.mode == Mode::Pty && self.keyboard && self.raw.is_none() {
            self.raw = Some(Raw::begin()?);
        }
        self.tell_size(house)
    }

    fn record(&mut self, house: &mut Attachment, record: Record) -> anyhow::Result<Option<End>> {
        match record.what {
            // Seen once its bytes have come.
            What::Frame(Frame::Output { .. }) => self.of_bytes = Some(record.seq),
            _ => self.last_seq = Some(record.seq),
        }
        match record.what {
            What::Frame(Frame::Output { stream, .. }) => self.stream = stream,
            What::Frame(Frame::Resized { rows, cols, .. }) => self.size = self.size.or(Some((rows, cols))),
            What::Frame(Frame::WallMet { note }) => self.notes.push(note.as_str().to_owned()),
            What::Frame(Frame::WriteDetected { path, change, escape: true, .. }) => {
                self.notes.push(escaped(&path, change))
            }
            What::Frame(Frame::Exited { duration_us, .. }) => self.took = Some(Duration::from_micros(duration_us)),
            What::Decision(Decision::PermissionGranted { .. }) => self.asked(false),
            What::Decision(Decision::Withdrawn { .. }) => self.asked(true),
            What::Decision(Decision::PermissionDenied { words, .. }) => {
                self.words = words;
                self.asked(false);
            }
            What::Decision(Decision::Launched { .. }) => self.started(house)?,
            What::Decision(Decision::Settled { outcome, journal_head, recovered }) => {
                return Ok(Some(End::Ended(Ended {
                    never_began: never_began(&outcome, journal_head, recovered),
                    outcome,
                    took: self.took,
                    words: self.words.take(),
                    notes: std::mem::take(&mut self.notes),
                })));
            }
            _ => {}
        }
        Ok(None)
    }

    fn asked(&mut self, withdrawn: bool) {
        self.asking.take().into_iter().for_each(|a| a.end(withdrawn));
    }
}

fn pass(house: &mut Attachment, sent: &Sent) -> Result<(), ClientError> {
    match sent {
        Sent::Typed(bytes) => house.type_bytes(bytes),
        Sent::End => house.send(&AttachMessage::Stdin(StdinBody::eof())),
        Sent::Size(rows, cols) => house.send(&AttachMessage::Resize(ResizeBody { rows: *rows, cols: *cols })),
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
