//! `run`: a command as a task, its output and exit code passed on.

use crate::{
    Doors, Usage,
    args::{FileCommand, LeftoversArg, OnOutputLimitArg, OnSessionEndArg, RunArgs},
    attach::{self, End, Session},
    code, exit, gc,
    house::{reach, reach_again},
    lists::brief,
    logs::Printer,
    prompt::{Asking, waiting_line},
    say, send,
};
use anyhow::{Context as _, bail};
use countersign_client::{Client, ClientError};
use countersign_model::{
    Command, Decision, Digest, FileChange, Frame, Leftovers, Limits, Mode, OnOutputLimit, OnSessionEnd, Outcome,
    Record, Request, SignalName, Status, TaskId, TaskState, Text, Tool, WaitsFor, What, is_base_variable,
};
use signal_hook::consts::{SIGINT, SIGQUIT};
use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// How many tasks one `csn run` asks for when none of them begins because the daemon dies.
const MAX_ASKS: u32 = 5;

pub(crate) fn run(doors: &Doors<'_>, args: RunArgs) -> anyhow::Result<ExitCode> {
    let request = request(&args)?;
    let client = reach(doors)?;
    let mut interrupts = None;
    for asks in 1.. {
        let task = ask(doors, &client, &request)?;
        if args.background || task.status == Status::Queued && args.no_wait {
            announce(&args, &task)?;
            let waits = args.no_wait && task.status == Status::Queued;
            return Ok(ExitCode::from(if waits { exit::PENDING } else { 0 }));
        }
        match &interrupts {
            None => interrupts = Some(Interrupts::begin(&client, task.task_id)?),
            Some(interrupts) => interrupts.go_to(task.task_id),
        }
        let ended = match to_its_end(doors, &client, &args, &task)? {
            Ok(ended) => ended,
            Err(code) => return Ok(code),
        };
        if ended.never_began && asks < MAX_ASKS {
            say(&format!("csn: the daemon ended before {} began; asking again", task.task_id));
            continue;
        }
        if !args.quiet && !args.json {
            closing(task.task_id, &ended);
        }
        return Ok(code(ended.outcome.exit_code()));
    }
    bail!("no task was asked for")
}

/// Asks under a key of its own. When the daemon goes away before it has answered, the next one is asked under the same
/// key: it knows the task, or the request never got as far as being one.
fn ask(doors: &Doors<'_>, client: &Client, request: &Request) -> anyhow::Result<TaskState> {
    let key = send::random_key();
    loop {
        match client.ask_once(request, &key) {
            Err(e) if e.is_daemon_gone() => reach_again(doors).context("nobody answers whether the command runs")?,
            asked => return Ok(asked?),
        }
    }
}

/// Follows a task to its end; or the code to leave with before that.
fn to_its_end(
    doors: &Doors<'_>,
    client: &Client,
    args: &RunArgs,
    task: &TaskState,
) -> anyhow::Result<Result<Ended, ExitCode>> {
    in_line(client, task);
    let asking = match (task.status, task.approval_id) {
        (Status::Queued, Some(approval)) if task.waits_for == Some(WaitsFor::Approval) => {
            let asking = Asking::begin(client, approval);
            if asking.is_none() {
                say(&waiting_line(approval));
            }
            asking
        }
        _ => None,
    };
    if args.pty && !args.json {
        return on_terminal(doors, client.clone(), args, task, asking);
    }
    if args.stdin {
        let (client, task) = (client.clone(), task.task_id);
        std::thread::spawn(move || {
            if let Err(e) = send_when_running(&client, task) {
                say(&format!("csn: standard input was not passed on: {e:#}"));
            }
        });
    }
    let reach = || reach_again(doors);
    let following = Following { json: args.json, raw: args.raw, reach: &reach };
    follow_or_cancel(client, task.task_id, &following, asking)
}

/// With a terminal: attached from the first byte on.
fn on_terminal(
    doors: &Doors<'_>,
    client: Client,
    args: &RunArgs,
    task: &TaskState,
    asking: Option<Asking>,
) -> anyhow::Result<Result<Ended, ExitCode>> {
    let detach = attach::detach_keys(attach::DETACH_KEYS)?;
    let mut session = Session::new(doors, client, task, false, detach).asking(asking);
    if args.stdin {
        session = session.with_stdin();
    }
    if !args.stdin && !args.quiet && !io::stdin().is_terminal() {
        say(&format!(
            "csn: nothing is typed into it from here: csn attach {0}, csn send {0}, or --stdin",
            task.task_id
        ));
    }
    let again = session.client().clone();
    match session.run(Some(task.next_seq - 1))? {
        End::Detached => Ok(Err(ExitCode::SUCCESS)),
        End::Signalled => Ok(Err(ExitCode::from(exit::OURS))),
        End::Ended(ended) => {
            let state = again.task(&task.task_id.to_string()).ok().filter(|_| !args.quiet);
            let dropped = state.and_then(|t| t.streams.values().next().copied()).map(|s| s.dropped);
            if let Some(dropped) = dropped.filter(|n| *n > 0) {
                say(&format!("csn: {dropped} bytes were not kept"));
            }
            // Whoever attaches to a task that has ended is shown its end, and not how that was found out.
            let never_began = ended.never_began
                || matches!(ended.outcome, Outcome::Failed { .. }) && settled_unbegun(&again, task.task_id)?;
            Ok(Ok(Ended { never_began, ..ended }))
        }
    }
}

/// Whether the record of a settled task says that it never began.
fn settled_unbegun(client: &Client, task: TaskId) -> anyhow::Result<bool> {
    let mut events = client.events(task, None);
    while let Some(event) = events.next_event()? {
        if let Ok(What::Decision(Decision::Settled { outcome, journal_head, recovered })) =
            Record::parse(&event.line).map(|r| r.what)
        {
            return Ok(never_began(&outcome, journal_head, recovered));
        }
    }
    Ok(false)
}

/// Passes standard input on, once there is somebody to take it.
fn send_when_running(client: &Client, task: TaskId) -> anyhow::Result<()> {
    let mut events = client.events(task, None);
    loop {
        let event = match events.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(()),
            // Whoever follows the task reaches the next daemon; the events go on there.
            Err(e) if e.is_daemon_gone() => continue,
            Err(e) => return Err(e.into()),
        };
        match Record::parse(&event.line).map(|r| r.what) {
            Ok(What::Frame(Frame::Spawned { .. })) => {
                let terminal = io::stdin().is_terminal().then(|| ReadsTerminal::begin(task));
                let last = || terminal.iter().for_each(ReadsTerminal::end_of_input);
                return match send::from_stdin(client, task, true, last) {
                    // It ended, or closed its input: what it does not read it does not need.
                    Err(e) if e.downcast_ref::<ClientError>().is_some_and(is_over) => Ok(()),
                    sent => sent,
                };
            }
            Ok(What::Decision(Decision::Settled { .. })) => return Ok(()),
            _ => {}
        }
    }
}

fn is_over(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { refusal, .. } if refusal.code == countersign_model::Code::TaskOver)
}

/// Says where in line a task stands, whenever that changes, until it goes.
fn in_line(client: &Client, task: &TaskState) {
    if task.waits_for != Some(WaitsFor::Slot) {
        return;
    }
    let (client, mut task, mut last) = (client.clone(), task.clone(), None);
    std::thread::spawn(move || {
        while task.waits_for == Some(WaitsFor::Slot) {
            if task.position != last {
                last = task.position;
                say(&format!("csn: waiting for a slot, {}. in line", last.unwrap_or(1)));
            }
            // Moving up in line is no record of the task that moves: there is nothing to wait for but time.
            std::thread::sleep(Duration::from_secs(1));
            match client.task(&task.task_id.to_string()) {
                Ok(now) => task = now,
                Err(_) => return,
            }
        }
    });
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn request(args: &RunArgs) -> anyhow::Result<Request> {
    let here = std::env::current_dir().context("the current directory is gone: give one with --cwd")?;
    let cwd = args.cwd.as_ref().map_or_else(|| here.clone(), |dir| here.join(dir));
    let cwd = cwd.into_os_string().into_string().ok().context("the directory's name is not UTF-8")?;
    let (env, inherit) = environment(&args.env)?;
    let wall_ms = args.timeout.as_deref().map(|t| timeout("--timeout", t)).transpose()?;
    let idle_ms = args.idle_timeout.as_deref().map(|t| timeout("--idle-timeout", t)).transpose()?;
    let output_bytes = args.output_limit.as_deref().map(|b| gc::bytes("--output-limit", b)).transpose()?;
    let absolute = |dir: &std::path::PathBuf| here.join(dir).into_os_string().into_string().ok();
    let workspace = match &args.workspace {
        Some(dir) => Some(absolute(dir).context("the workspace's name is not UTF-8")?),
        None => None,
    };
    let session_id = args.session.as_ref().map(|s| s.parse()).transpose();
    let session_id = session_id.map_err(|e: countersign_model::IdError| Usage(format!("--session {e}")))?;
    let size = attach::size().filter(|_| args.pty);
    let argv = (!args.argv.is_empty()).then(|| args.argv.clone());
    if args.text.len() > 1 {
        let message = "give shell text as one word, in quotes, or a program and its arguments after --";
        let pty = if args.pty { "--pty " } else { "" };
        return Err(Usage(format!("{message}: csn run {pty}-- {}", args.text.join(" "))).into());
    }
    let label = |text: &String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let labels = args.label.iter().map(label).collect::<Option<_>>();
    let labels = labels.ok_or_else(|| Usage("--label takes NAME=TEXT".to_owned()))?;
    let (tool, file) = file_tool(args.file.as_ref())?;
    Ok(Request {
        tool,
        args: Command {
            command: args.text.first().cloned(),
            argv,
            // A session knows where it works.
            cwd: (args.session.is_none() || args.cwd.is_some()).then_some(cwd),
            env,
            inherit,
            stdin: args.stdin && !args.pty,
            rows: size.map(|(rows, _)| rows),
            cols: size.map(|(_, cols)| cols),
            ..file
        },
        title: args.title.clone(),
        rationale: args.why.clone(),
        labels,
        mode: if args.pty { Mode::Pty } else { Mode::Pipes },
        background: args.background,
        attended: !args.unattended,
        profile: args.profile.map(Into::into),
        confinement: args.confinement.map(Into::into),
        network: args.network.map(Into::into),
        wait_ms: None,
        limits: Limits { wall_ms, idle_ms, output_bytes, ..Limits::default() },
        leftovers: match args.leftovers {
            LeftoversArg::Kill => Leftovers::Kill,
            LeftoversArg::Keep => Leftovers::Keep,
        },
        on_output_limit: match args.on_output_limit {
            OnOutputLimitArg::Tail => OnOutputLimit::Tail,
            OnOutputLimitArg::Kill => OnOutputLimit::Kill,
        },
        on_session_end: match args.on_session_end {
            OnSessionEndArg::Keep => OnSessionEnd::Keep,
            OnSessionEndArg::Stop => OnSessionEnd::Stop,
        },
        workspace,
        session_id,
    })
}

/// What a file tool is asked to do.
fn file_tool(file: Option<&FileCommand>) -> anyhow::Result<(Tool, Command)> {
    let about = |path: &String| Command { path: Some(path.clone()), ..Command::default() };
    Ok(match file {
        None => (Tool::Shell, Command::default()),
        Some(FileCommand::Read { path, first_line, line_count }) => {
            (Tool::ReadFile, Command { first_line: *first_line, line_count: *line_count, ..about(path) })
        }
        Some(FileCommand::Write { path }) => {
            let content = io::read_to_string(io::stdin()).context("what shall be written is not text")?;
            (Tool::WriteFile, Command { content: Some(content), ..about(path) })
        }
        Some(FileCommand::Edit { path, old, new, all }) => {
            (Tool::EditFile, Command { old: Some(old.clone()), new: Some(new.clone()), all: *all, ..about(path) })
        }
    })
}

type Variables = BTreeMap<String, String>;

/// What was named with `--env`, and what to inherit: all of ours at a terminal, only the base elsewhere.
fn environment(named: &[String]) -> anyhow::Result<(Variables, Variables)> {
    let mut env = BTreeMap::new();
    for entry in named {
        let (name, value) = match entry.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => match std::env::var(entry) {
                Ok(value) => (entry.as_str(), value),
                Err(_) => return Err(Usage(format!("--env {entry}: no such variable here")).into()),
            },
        };
        env.insert(name.to_owned(), value);
    }
    let at_terminal = io::stdin().is_terminal();
    let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    Ok((env, vars.filter(|(name, _)| at_terminal || is_base_variable(name)).collect()))
}

/// `90`, `90s`, `5m`, `2h`, `500ms`.
pub(crate) fn time(text: &str) -> Result<u64, Usage> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let ms = factor.zip(number.parse::<u64>().ok()).and_then(|(factor, n)| n.checked_mul(factor));
    ms.filter(|ms| (1..=Limits::MAX_MS).contains(ms))
        .ok_or_else(|| Usage(format!("{text}: use a whole number above zero with ms, s, m or h, at most a year")))
}

fn timeout(flag: &str, text: &str) -> anyhow::Result<u64> {
    time(text).map_err(|Usage(e)| Usage(format!("{flag} {e}")).into())
}

fn announce(args: &RunArgs, task: &TaskState) -> anyhow::Result<()> {
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(task)?)?;
        return Ok(());
    }
    writeln!(io::stdout(), "{}", task.task_id)?;
    if let Some(position) = task.position {
        say(&format!("csn: waiting for a slot, {position}. in line"));
    } else if let (Status::Queued, Some(approval)) = (task.status, task.approval_id) {
        say(&waiting_line(approval));
    }
    Ok(())
}

/// Somebody has pressed Ctrl-C, and what waits to be printed has not been cut short for it yet.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Ctrl-\ was pressed; whoever reads the terminal next and meets the end of input lets go.
static LETTING_GO: AtomicBool = AtomicBool::new(false);
/// Somebody else reads the terminal: a question, or standard input that is passed on.
static READERS: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn was_interrupted() -> bool {
    INTERRUPTED.swap(false, Ordering::AcqRel)
}

/// Reads the terminal for something else than the detach keys, as long as it lives.
pub(crate) struct ReadsTerminal(TaskId);

impl ReadsTerminal {
    pub(crate) fn begin(task: TaskId) -> Self {
        READERS.fetch_add(1, Ordering::AcqRel);
        Self(task)
    }

    /// The end of input: was it the second of the detach keys? Then this is the end of us.
    pub(crate) fn end_of_input(&self) {
        if LETTING_GO.swap(false, Ordering::AcqRel) {
            detached(self.0);
        }
    }
}

impl Drop for ReadsTerminal {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Ordering::AcqRel);
    }
}

fn detached(task: TaskId) -> ! {
    say(&format!("\ncsn: detached; the task goes on: csn attach {task}"));
    std::process::exit(0)
}

/// Ctrl-C interrupts the task; twice cancels it. Ctrl-\ Ctrl-D leaves it to run by itself; Ctrl-\ alone is SIGQUIT.
pub(crate) struct Interrupts {
    /// The task that they are about, and how often it was interrupted.
    about: Arc<Mutex<(TaskId, u32)>>,
}

impl Interrupts {
    pub(crate) fn begin(client: &Client, task: TaskId) -> anyhow::Result<Self> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGQUIT])?;
        let client = client.clone();
        let about = Arc::new(Mutex::new((task, 0)));
        let now = Arc::clone(&about);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let (task, interrupted) = {
                    let mut now = now.lock().expect("nothing panics while it holds this lock");
                    let was = *now;
                    now.1 += u32::from(signal == SIGINT);
                    was
                };
                if signal == SIGQUIT && let_go() {
                    detached(task);
                }
                INTERRUPTED.store(signal == SIGINT, Ordering::Release);
                let sent = match (signal, interrupted) {
                    (SIGQUIT, _) => client.signal(task, SignalName::QUIT),
                    (_, 0) => {
                        client.signal(task, SignalName::INT).or_else(|_| client.cancel(task, Some("interrupted")))
                    }
                    _ => client.cancel(task, Some("interrupted twice")),
                };
                if let Err(e) = sent {
                    say(&format!("csn: {e}"));
                }
            }
        });
        Ok(Self { about })
    }

    /// From now on they are about another task.
    fn go_to(&self, task: TaskId) {
        *self.about.lock().expect("nothing panics while it holds this lock") = (task, 0);
    }
}

/// Whether Ctrl-D follows in a moment. On a terminal that reads lines it is the end of input.
fn let_go() -> bool {
    if READERS.load(Ordering::Acquire) > 0 {
        // Whoever reads it will know, and has as long as the second key may take.
        LETTING_GO.store(true, Ordering::Release);
        std::thread::sleep(Duration::from_secs(1));
        LETTING_GO.store(false, Ordering::Release);
        return false;
    }
    let Ok(mut tty) = std::fs::OpenOptions::new().read(true).open("/dev/tty") else { return false };
    let moment = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
    let mut fds = [rustix::event::PollFd::new(&tty, rustix::event::PollFlags::IN)];
    let came = rustix::event::poll(&mut fds, Some(&moment)).is_ok_and(|n| n > 0);
    came && io::Read::read(&mut tty, &mut [0; 64]).is_ok_and(|n| n == 0)
}

pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) took: Option<Duration>,
    pub(crate) words: Option<Text>,
    /// What its confinement has to say.
    pub(crate) notes: Vec<String>,
    /// The daemon died between its leave to run and its beginning: nothing of it ran, and nothing will.
    pub(crate) never_began: bool,
}

/// Whether a settlement says that the daemon died before the task could begin: there is no journal, and its name has
/// been taken, so that no supervisor can begin one.
pub(crate) fn never_began(outcome: &Outcome, journal: Option<Digest>, recovered: bool) -> bool {
    recovered && journal.is_none() && matches!(outcome, Outcome::Failed { .. })
}

/// The same; a task whose output nobody takes any more is cancelled, as it would be in a shell. Then the code to leave
/// with.
pub(crate) fn follow_or_cancel(
    client: &Client,
    task: TaskId,
    how: &Following<'_>,
    asking: Option<Asking>,
) -> anyhow::Result<Result<Ended, ExitCode>> {
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
pub(crate) struct Following<'a> {
    /// The records themselves, instead of what they say.
    pub(crate) json: bool,
    pub(crate) raw: bool,
    /// What to do when the house is gone: it comes back when there is one again.
    pub(crate) reach: &'a dyn Fn() -> anyhow::Result<()>,
}

/// Passes the stream on until the task has settled, through any number of restarts of the daemon.
fn follow(client: &Client, task: TaskId, how: &Following<'_>, mut asking: Option<Asking>) -> anyhow::Result<Ended> {
    let json = how.json;
    let mut events = client.events(task, None);
    let mut printer = Printer::new(client.clone(), task, how.raw);
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
            writeln!(io::stdout(), "{}", event.line)?;
        }
        let record = Record::parse(&event.line).context("the house sent a record that does not read")?;
        match record.what {
            What::Frame(Frame::Output { stream, offset, len, .. }) if !json => match whole_text(&event.line, len) {
                Some(text) => printer.print_text(stream, offset, &text)?,
                // The printer knows how far it has come.
                None => loop {
                    match printer.print(stream, offset + len) {
                        Err(e) if e.downcast_ref().is_some_and(ClientError::is_daemon_gone) => again()?,
                        printed => break printed?,
                    }
                },
            },
            What::Frame(Frame::WallMet { note }) => notes.push(note.as_str().to_owned()),
            What::Frame(Frame::WriteDetected { path, change, escape: true, .. }) => notes.push(escaped(&path, change)),
            What::Frame(Frame::Exited { duration_us, .. }) => took = Some(Duration::from_micros(duration_us)),
            What::Frame(Frame::LimitReached { limit, value, .. }) if !json && limit.as_str() == "output" => {
                say(&format!(
                    "csn: {value} bytes are kept from the beginning; the last mebibyte is shown when it ends"
                ));
            }
            What::Frame(Frame::Kept { processes }) if !json => {
                say(&format!("csn: the command has ended; waiting for what it left running: {processes:?}"));
                say(&format!("     csn cancel {task} ends it"));
            }
            What::Decision(Decision::PermissionGranted { .. }) => {
                asking.take().into_iter().for_each(|a| a.end(false));
            }
            What::Decision(Decision::Withdrawn { .. }) => asking.take().into_iter().for_each(|a| a.end(true)),
            What::Decision(Decision::PermissionDenied { words: said, .. }) => {
                words = said;
                asking.take().into_iter().for_each(|a| a.end(false));
            }
            What::Decision(Decision::Settled { outcome, journal_head, recovered }) => {
                printer.finish()?;
                let never_began = never_began(&outcome, journal_head, recovered);
                return Ok(Ended { outcome, took, words, notes, never_began });
            }
            _ => {}
        }
    }
}

/// The text of an output frame, when the frame carries all of it.
fn whole_text(line: &str, len: u64) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Carried {
        text: Option<String>,
        encoding: Option<String>,
    }
    let carried: Carried = serde_json::from_str(line).ok()?;
    carried.text.filter(|t| carried.encoding.is_none() && t.len() as u64 == len)
}

/// A file that makes programs run later was changed by a task that was let write.
pub(crate) fn escaped(path: &Text, change: FileChange) -> String {
    let what = match change {
        FileChange::Created => "made",
        FileChange::Modified => "changed",
        FileChange::Deleted => "removed",
    };
    format!("it {what} {path}, which makes programs run later: look at it before you go on")
}

pub(crate) fn closing(task: TaskId, ended: &Ended) {
    let took = ended.took.map(|t| format!(", {}", brief(t))).unwrap_or_default();
    let outcome = ended.outcome.to_string();
    say(&format!("csn: {task} {}{took}", countersign_model::Shown::new(&outcome)));
    for note in &ended.notes {
        say(&format!("     {}", countersign_model::Shown::new(note)));
    }
    if let Some(words) = &ended.words {
        say(&format!("     \"{}\"", countersign_model::Shown::new(words.as_str())));
    }
}
