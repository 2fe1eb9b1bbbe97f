//! `run`: a command as a task, its output and exit code passed on.

use crate::{
    UsageError,
    args::{FileCommand, LeftoversArg, OnOutputLimitArg, OnSessionEndArg, RunArgs},
    code, exit,
    follow::{FollowOptions, follow_or_cancel},
    render::{
        card::waiting_line,
        outcome::{OutcomeLine, closing, never_began},
    },
    say,
    target_home::{reach, reach_again},
    terminal::{
        detach::{DETACH_KEYS, detach_keys},
        interrupts::{Interrupts, TerminalReader},
        prompt::TerminalPrompt,
        raw::size,
    },
    verbs::{
        attach::{AttachEnd, AttachSession},
        gc, send,
    },
};
use anyhow::{Context as _, bail};
use countersign_client::{Client, ClientError};
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

/// How many tasks one `csn run` asks for when none of them begins because the daemon dies.
const MAX_ASKS: u32 = 5;

pub(crate) fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let request = request(&args)?;
    let client = reach()?;
    let mut interrupts = None;
    for asks in 1.. {
        let task = ask(&client, &request)?;
        if args.background || task.status == Status::Queued && args.no_wait {
            announce(&args, &task)?;
            let waits = args.no_wait && task.status == Status::Queued;
            return Ok(ExitCode::from(if waits { exit::PENDING } else { 0 }));
        }
        match &interrupts {
            None => interrupts = Some(Interrupts::begin(&client, task.task_id)?),
            Some(interrupts) => interrupts.go_to(task.task_id),
        }
        let ended = match to_its_end(&client, &args, &task)? {
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
fn ask(client: &Client, request: &Request) -> anyhow::Result<TaskState> {
    let key = send::random_key();
    loop {
        match client.ask_with_key(request, &key) {
            Err(e) if e.is_daemon_gone() => reach_again().context("nobody answers whether the command runs")?,
            asked => return Ok(asked?),
        }
    }
}

/// Follows a task to its end; or the code to leave with before that.
fn to_its_end(client: &Client, args: &RunArgs, task: &TaskState) -> anyhow::Result<Result<OutcomeLine, ExitCode>> {
    in_line(client, task);
    let asking = match (task.status, task.approval_id()) {
        (Status::Queued, Some(approval)) if task.waits_for() == Some(WaitsFor::Approval) => {
            let asking = TerminalPrompt::begin(client, approval);
            if asking.is_none() {
                say(&waiting_line(approval));
            }
            asking
        }
        _ => None,
    };
    if args.pty && !args.json {
        return on_terminal(client.clone(), args, task, asking);
    }
    if args.stdin {
        let (client, task) = (client.clone(), task.task_id);
        std::thread::spawn(move || {
            if let Err(e) = send_when_running(&client, task) {
                say(&format!("csn: standard input was not passed on: {e:#}"));
            }
        });
    }
    let reach = || reach_again();
    let following = FollowOptions { json: args.json, raw: args.raw, reach: &reach };
    follow_or_cancel(client, task.task_id, &following, asking)
}

/// With a terminal: attached from the first byte on.
fn on_terminal(
    client: Client,
    args: &RunArgs,
    task: &TaskState,
    asking: Option<TerminalPrompt>,
) -> anyhow::Result<Result<OutcomeLine, ExitCode>> {
    let detach = detach_keys(DETACH_KEYS)?;
    let mut session = AttachSession::new(client, task, false, detach).asking(asking);
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
        AttachEnd::Detached => Ok(Err(ExitCode::SUCCESS)),
        AttachEnd::Signalled => Ok(Err(ExitCode::from(exit::OURS))),
        AttachEnd::Ended(ended) => {
            let state = again.task(&task.task_id.to_string()).ok().filter(|_| !args.quiet);
            let dropped = state.and_then(|t| t.io.streams.values().next().copied()).map(|s| s.dropped);
            if let Some(dropped) = dropped.filter(|n| *n > 0) {
                say(&format!("csn: {dropped} bytes were not kept"));
            }
            // Whoever attaches to a task that has ended is shown its end, and not how that was found out.
            let never_began = ended.never_began
                || matches!(ended.outcome, Outcome::Failed { .. }) && settled_unbegun(&again, task.task_id)?;
            Ok(Ok(OutcomeLine { never_began, ..ended }))
        }
    }
}

/// Whether the record of a settled task says that it never began.
fn settled_unbegun(client: &Client, task: TaskId) -> anyhow::Result<bool> {
    let mut events = client.events(task, None);
    while let Some(event) = events.next_event()? {
        if let RecordContent::Decision(Decision::Settled { outcome, journal_head, recovered }) = event.value.record.what
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
        match event.value.record.what {
            RecordContent::Frame(Frame::Spawned { .. }) => {
                let terminal = io::stdin().is_terminal().then(|| TerminalReader::begin(task));
                let last = || terminal.iter().for_each(TerminalReader::end_of_input);
                return match send::from_stdin(client, task, true, last) {
                    // It ended, or closed its input: what it does not read it does not need.
                    Err(e) if e.downcast_ref::<ClientError>().is_some_and(is_over) => Ok(()),
                    sent => sent,
                };
            }
            RecordContent::Decision(Decision::Settled { .. }) => return Ok(()),
            _ => {}
        }
    }
}

fn is_over(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refused) if refused.refusal.code == countersign_model::RefusalCode::TaskOver)
}

/// Says where in line a task stands, whenever that changes, until it goes.
fn in_line(client: &Client, task: &TaskState) {
    if task.waits_for() != Some(WaitsFor::Slot) {
        return;
    }
    let (client, mut task, mut last) = (client.clone(), task.clone(), None);
    std::thread::spawn(move || {
        while task.waits_for() == Some(WaitsFor::Slot) {
            if task.position() != last {
                last = task.position();
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
    let session_id = session_id.map_err(|e: countersign_model::IdError| UsageError(format!("--session {e}")))?;
    let size = size().filter(|_| args.pty);
    let argv = (!args.argv.is_empty()).then(|| args.argv.clone());
    if args.text.len() > 1 {
        let message = "give shell text as one word, in quotes, or a program and its arguments after --";
        let pty = if args.pty { "--pty " } else { "" };
        return Err(UsageError(format!("{message}: csn run {pty}-- {}", args.text.join(" "))).into());
    }
    let label = |text: &String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let labels = args.label.iter().map(label).collect::<Option<_>>();
    let labels = labels.ok_or_else(|| UsageError("--label takes NAME=TEXT".to_owned()))?;
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
                Err(_) => return Err(UsageError(format!("--env {entry}: no such variable here")).into()),
            },
        };
        env.insert(name.to_owned(), value);
    }
    let at_terminal = io::stdin().is_terminal();
    let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    Ok((env, vars.filter(|(name, _)| at_terminal || is_base_variable(name)).collect()))
}

/// `90`, `90s`, `5m`, `2h`, `500ms`.
pub(crate) fn time(text: &str) -> Result<u64, UsageError> {
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
        .ok_or_else(|| UsageError(format!("{text}: use a whole number above zero with ms, s, m or h, at most a year")))
}

fn timeout(flag: &str, text: &str) -> anyhow::Result<u64> {
    time(text).map_err(|UsageError(e)| UsageError(format!("{flag} {e}")).into())
}

fn announce(args: &RunArgs, task: &TaskState) -> anyhow::Result<()> {
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(task)?)?;
        return Ok(());
    }
    writeln!(io::stdout(), "{}", task.task_id)?;
    if let Some(position) = task.position() {
        say(&format!("csn: waiting for a slot, {position}. in line"));
    } else if let (Status::Queued, Some(approval)) = (task.status, task.approval_id()) {
        say(&waiting_line(approval));
    }
    Ok(())
}
