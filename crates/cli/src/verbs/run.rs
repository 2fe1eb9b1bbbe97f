//! `run`: runs a command as a task, prints its output and exits with its code.

use crate::{
    UsageError,
    args::{FileCommand, LeftoversArg, OnOutputLimitArg, OnSessionEndArg, RunArgs},
    code, exit,
    follow::{FollowOptions, follow_or_cancel},
    render::{
        card::waiting_line,
        outcome::{OutcomeLine, closing_lines, never_began},
        task::queue_line,
    },
    say,
    target_home::{self, reach, reach_again},
    terminal::{
        detach::{DETACH_KEYS, parse_detach_keys},
        interrupts::{Interrupts, TerminalReader},
        prompt::TerminalPrompt,
        raw::size,
    },
    usage,
    verbs::{
        attach::{AttachEnd, AttachSession},
        gc, send,
    },
};
use anyhow::{Context as _, bail};
use countersign_client::{Client, ClientError, calls};
use countersign_model::{
    Command, Decision, Frame, Leftovers, Limits, Mode, OnOutputLimit, OnSessionEnd, Outcome, RecordContent, Request,
    Status, TaskId, TaskState, Tool, WaitsFor, is_base_variable,
};
use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    time::Duration,
};

/// How many tasks one `csn run` requests if the daemon dies before each of them starts.
const MAX_REQUESTS: u32 = 5;
/// How long a daemon may take for its first answer before `csn run` asks whether it lives.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let request = build_request(&args)?;
    let client = target_home::client()?;
    let mut interrupts = None;
    for requests in 1.. {
        let task = request_task(&client, &request)?;
        if args.background || task.status == Status::Queued && args.no_wait {
            print_task_id(&args, &task)?;
            let pending = args.no_wait && task.status == Status::Queued;
            return Ok(ExitCode::from(if pending { exit::PENDING } else { 0 }));
        }
        match &interrupts {
            None => interrupts = Some(Interrupts::begin(&client, task.task_id)?),
            Some(interrupts) => interrupts.retarget(task.task_id),
        }
        let ended = match follow_task(&client, &args, &task)? {
            Ok(ended) => ended,
            Err(code) => return Ok(code),
        };
        if ended.never_began && requests < MAX_REQUESTS {
            say(&format!("csn: the daemon ended before {} started; requesting it again", task.task_id));
            continue;
        }
        if !args.quiet && !args.json {
            say(&closing_lines(task.task_id, &ended));
        }
        return Ok(code(ended.outcome.exit_code()));
    }
    bail!("no task was requested")
}

/// Requests the task under a random idempotency key. If the daemon goes away before it answers, the next daemon gets
/// the request with the same key: either it knows the task, or the first daemon never recorded the request.
fn request_task(client: &Client, request: &Request) -> anyhow::Result<TaskState> {
    let key = send::random_key();
    let ask = calls::tasks::ask(request).with_key(&key);
    // A daemon that hangs is found out then; one that only takes longer is asked again, with as much time as it needs.
    let mut answer = client.send(&ask.clone().with_timeout(FIRST_ANSWER_TIMEOUT));
    // Looked for only now: a daemon almost always runs, and asking whether it does costs a round trip.
    if let Err(ClientError::NoDaemon { .. }) = answer {
        reach()?;
        answer = client.send(&ask);
    }
    loop {
        match answer {
            Err(e) if e.is_daemon_gone() => {
                reach_again().context("the daemon went away before it answered whether the command may run")?
            }
            asked => return Ok(asked?.task),
        }
        answer = client.send(&ask);
    }
}

/// Follows a task to its end. Returns an exit code instead if `csn` exits before that.
fn follow_task(client: &Client, args: &RunArgs, task: &TaskState) -> anyhow::Result<Result<OutcomeLine, ExitCode>> {
    report_queue_position(client, task);
    let prompt = match (task.status, task.approval_id()) {
        (Status::Queued, Some(approval)) if task.waits_for() == Some(WaitsFor::Approval) => {
            let prompt = TerminalPrompt::begin(client, approval);
            if prompt.is_none() {
                say(&waiting_line(approval));
            }
            prompt
        }
        _ => None,
    };
    if args.pty && !args.json {
        return follow_on_terminal(client.clone(), args, task, prompt);
    }
    if args.stdin {
        let (client, task) = (client.clone(), task.task_id);
        std::thread::spawn(move || {
            if let Err(e) = send_when_running(&client, task) {
                say(&format!("csn: standard input did not reach the task: {e:#}"));
            }
        });
    }
    let reach = || reach_again();
    let options = FollowOptions { json: args.json, raw: args.raw, reach: &reach };
    follow_or_cancel(client, task.task_id, &options, prompt)
}

/// Follows a task that has a terminal of its own, attached from its first byte.
fn follow_on_terminal(
    client: Client,
    args: &RunArgs,
    task: &TaskState,
    prompt: Option<TerminalPrompt>,
) -> anyhow::Result<Result<OutcomeLine, ExitCode>> {
    let detach = parse_detach_keys(DETACH_KEYS)?;
    let mut session = AttachSession::new(client, task, false, detach).with_prompt(prompt);
    if args.stdin {
        session = session.with_stdin();
    }
    if !args.stdin && !args.quiet && !io::stdin().is_terminal() {
        say(&format!(
            "csn: standard input is not a terminal, so no keys reach the task; use --stdin, csn send {0} or csn attach {0}",
            task.task_id
        ));
    }
    let client = session.client().clone();
    match session.run(Some(task.next_seq - 1))? {
        AttachEnd::Detached => Ok(Err(ExitCode::SUCCESS)),
        AttachEnd::Signalled => Ok(Err(ExitCode::from(exit::OURS))),
        AttachEnd::Ended(ended) => {
            let state = client.task(&task.task_id.to_string()).ok().filter(|_| !args.quiet);
            let dropped = state.and_then(|t| t.io.streams.values().next().copied()).map(|s| s.dropped);
            if let Some(dropped) = dropped.filter(|n| *n > 0) {
                say(&format!("csn: {dropped} bytes of its output were not stored (output limit)"));
            }
            // Attaching to a task that has already ended shows only its outcome, so the records tell whether it started.
            let never_began = ended.never_began
                || matches!(ended.outcome, Outcome::Failed { .. }) && ended_before_start(&client, task.task_id)?;
            Ok(Ok(OutcomeLine { never_began, ..ended }))
        }
    }
}

/// Whether the records of an ended task show that it never started.
fn ended_before_start(client: &Client, task: TaskId) -> anyhow::Result<bool> {
    let mut events = client.events(task, None);
    while let Some(event) = events.next_event()? {
        if let RecordContent::Decision(Decision::Settled { outcome, journal_head, recovered }) = event.value.record.what
        {
            return Ok(never_began(&outcome, journal_head, recovered));
        }
    }
    Ok(false)
}

/// Sends standard input to the task once its process runs.
fn send_when_running(client: &Client, task: TaskId) -> anyhow::Result<()> {
    let mut events = client.events(task, None);
    loop {
        let event = match events.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(()),
            // The thread that follows the task reaches the next daemon; the events continue there.
            Err(e) if e.is_daemon_gone() => continue,
            Err(e) => return Err(e.into()),
        };
        match event.value.record.what {
            RecordContent::Frame(Frame::Spawned { .. }) => {
                let terminal = io::stdin().is_terminal().then(|| TerminalReader::begin(task));
                let at_end = || {
                    if let Some(terminal) = &terminal {
                        terminal.handle_end_of_input();
                    }
                };
                return match send::send_stdin(client, task, true, at_end) {
                    // The task ended or closed its input: it does not need the rest.
                    Err(e) if e.downcast_ref::<ClientError>().is_some_and(is_task_over) => Ok(()),
                    sent => sent,
                };
            }
            RecordContent::Decision(Decision::Settled { .. }) => return Ok(()),
            _ => {}
        }
    }
}

fn is_task_over(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refused) if refused.refusal.code == countersign_model::RefusalCode::TaskOver)
}

/// Prints the position of a task in the queue whenever it changes, until the task leaves the queue.
fn report_queue_position(client: &Client, task: &TaskState) {
    if task.waits_for() != Some(WaitsFor::Slot) {
        return;
    }
    let (client, mut task, mut last) = (client.clone(), task.clone(), None);
    std::thread::spawn(move || {
        while task.waits_for() == Some(WaitsFor::Slot) {
            if task.position() != last {
                last = task.position();
                say(&queue_line(last.unwrap_or(1)));
            }
            // No record of this task tells that it moved up in the queue, so poll.
            std::thread::sleep(Duration::from_secs(1));
            match client.task(&task.task_id.to_string()) {
                Ok(newer) => task = newer,
                Err(_) => return,
            }
        }
    });
}

fn build_request(args: &RunArgs) -> anyhow::Result<Request> {
    let here =
        std::env::current_dir().context("the current directory no longer exists: name another with --cwd DIR")?;
    let cwd = args.cwd.as_ref().map_or_else(|| here.clone(), |dir| here.join(dir));
    let cwd = cwd
        .into_os_string()
        .into_string()
        .ok()
        .context("the name of the working directory is not UTF-8; use another directory")?;
    let (env, inherit) = environment(&args.env)?;
    let wall_ms = args.timeout.as_deref().map(|t| parse_timeout("--timeout", t)).transpose()?;
    let idle_ms = args.idle_timeout.as_deref().map(|t| parse_timeout("--idle-timeout", t)).transpose()?;
    let output_bytes = args.output_limit.as_deref().map(|b| gc::parse_bytes("--output-limit", b)).transpose()?;
    let absolute = |dir: &std::path::PathBuf| here.join(dir).into_os_string().into_string().ok();
    let workspace = match &args.workspace {
        Some(dir) => {
            Some(absolute(dir).context("--workspace: the directory's name is not UTF-8; use another directory")?)
        }
        None => None,
    };
    let session_id = args.session.as_ref().map(|s| s.parse()).transpose();
    let session_id = session_id.map_err(|e: countersign_model::IdError| UsageError(format!("--session {e}")))?;
    let size = size().filter(|_| args.pty);
    let argv = (!args.argv.is_empty()).then(|| args.argv.clone());
    if args.text.len() > 1 {
        return Err(usage::several_words(&usage::typed_words()).into());
    }
    let label = |text: &String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let labels = args.label.iter().map(label).collect::<Option<_>>();
    let labels =
        labels.ok_or_else(|| UsageError("--label: give NAME=TEXT, for example --label ticket=42".to_owned()))?;
    let (tool, file) = file_tool(args.file.as_ref())?;
    Ok(Request {
        tool,
        args: Command {
            command: args.text.first().cloned(),
            argv,
            // A session has a working directory of its own.
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

/// The tool and its arguments for `csn file`; the shell without them for `csn run`.
fn file_tool(file: Option<&FileCommand>) -> anyhow::Result<(Tool, Command)> {
    let on_path = |path: &String| Command { path: Some(path.clone()), ..Command::default() };
    Ok(match file {
        None => (Tool::Shell, Command::default()),
        Some(FileCommand::Read { path, first_line, line_count }) => {
            (Tool::ReadFile, Command { first_line: *first_line, line_count: *line_count, ..on_path(path) })
        }
        Some(FileCommand::Write { path }) => {
            let content = io::read_to_string(io::stdin())
                .context("standard input is not UTF-8 text, and csn file writes only text")?;
            (Tool::WriteFile, Command { content: Some(content), ..on_path(path) })
        }
        Some(FileCommand::Edit { path, old, new, all }) => {
            (Tool::EditFile, Command { old: Some(old.clone()), new: Some(new.clone()), all: *all, ..on_path(path) })
        }
    })
}

type Variables = BTreeMap<String, String>;

/// The variables of `--env`, and those to inherit: all of ours at a terminal, only the base variables elsewhere.
fn environment(named: &[String]) -> anyhow::Result<(Variables, Variables)> {
    let mut env = BTreeMap::new();
    for entry in named {
        let (name, value) = match entry.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => match std::env::var(entry) {
                Ok(value) => (entry.as_str(), value),
                Err(_) => {
                    return Err(
                        UsageError(format!("--env {entry}: this variable is not set here; give NAME=VALUE")).into()
                    );
                }
            },
        };
        env.insert(name.to_owned(), value);
    }
    let at_terminal = io::stdin().is_terminal();
    let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    Ok((env, vars.filter(|(name, _)| at_terminal || is_base_variable(name)).collect()))
}

/// Parses `90`, `90s`, `5m`, `2h` or `500ms` into milliseconds.
pub(crate) fn parse_duration_ms(text: &str) -> Result<u64, UsageError> {
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
    ms.filter(|ms| (1..=Limits::MAX_MS).contains(ms)).ok_or_else(|| {
        UsageError(format!("{text}: give a whole number above zero with ms, s, m or h, at most one year"))
    })
}

fn parse_timeout(flag: &str, text: &str) -> anyhow::Result<u64> {
    parse_duration_ms(text).map_err(|UsageError(e)| UsageError(format!("{flag} {e}")).into())
}

fn print_task_id(args: &RunArgs, task: &TaskState) -> anyhow::Result<()> {
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(task)?)?;
        return Ok(());
    }
    writeln!(io::stdout(), "{}", task.task_id)?;
    if let Some(position) = task.position() {
        say(&queue_line(position));
    } else if let (Status::Queued, Some(approval)) = (task.status, task.approval_id()) {
        say(&waiting_line(approval));
    }
    Ok(())
}
