//! `run`: a command as a task, its output and exit code passed on.

use crate::{
    Doors, Usage,
    args::{LeftoversArg, ProfileArg, RunArgs},
    code, exit,
    house::reach,
    lists::brief,
    logs::Printer,
    prompt::Asking,
    say,
};
use anyhow::{Context as _, bail};
use countersign_client::{Client, ClientError};
use countersign_model::{
    Command, Decision, Frame, Leftovers, Limits, Mode, OnSessionEnd, Outcome, Profile, Record, Request, Status, TaskId,
    TaskState, Text, Tool, What, is_base_variable,
};
use signal_hook::consts::SIGINT;
use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    time::Duration,
};

pub(crate) fn run(doors: &Doors<'_>, args: RunArgs) -> anyhow::Result<ExitCode> {
    let request = request(&args)?;
    let client = reach(doors)?;
    let task = client.ask(&request)?;
    if args.background {
        announce(&args, &task)?;
        return Ok(ExitCode::SUCCESS);
    }
    if task.status == Status::Queued && args.no_wait {
        announce(&args, &task)?;
        return Ok(ExitCode::from(exit::PENDING));
    }
    interrupts(&client, task.task_id)?;
    let asking = match (task.status, task.approval_id) {
        (Status::Queued, Some(approval)) => {
            let asking = Asking::begin(&client, approval);
            if asking.is_none() {
                say(&format!("csn: waiting for approval {approval}: csn approvals answer {approval} once"));
            }
            asking
        }
        _ => None,
    };
    let ended = match follow(doors, &client, task.task_id, args.json, asking) {
        Err(e) if is_broken_pipe(&e) => {
            // As in a shell: what nobody reads is not written.
            let _ = client.cancel(task.task_id, Some("its output was closed"));
            return Ok(ExitCode::from(exit::PIPE));
        }
        followed => followed?,
    };
    if !args.quiet && !args.json {
        closing(task.task_id, &ended);
    }
    Ok(code(ended.outcome.exit_code()))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn request(args: &RunArgs) -> anyhow::Result<Request> {
    let here = std::env::current_dir().context("the current directory is gone: give one with --cwd")?;
    let cwd = args.cwd.as_ref().map_or_else(|| here.clone(), |dir| here.join(dir));
    let cwd = cwd.into_os_string().into_string().ok().context("the directory's name is not UTF-8")?;
    let (env, inherit) = environment(&args.env)?;
    let wall_ms = args.timeout.as_deref().map(time).transpose()?;
    let argv = (!args.argv.is_empty()).then(|| args.argv.clone());
    if args.text.len() > 1 {
        let message = "give shell text as one word, in quotes, or a program and its arguments after --";
        return Err(Usage(format!("{message}: csn run -- {}", args.text.join(" "))).into());
    }
    Ok(Request {
        tool: Tool::Shell,
        args: Command { command: args.text.first().cloned(), argv, cwd: Some(cwd), env, inherit },
        title: args.title.clone(),
        rationale: args.why.clone(),
        mode: Mode::Pipes,
        background: args.background,
        attended: !args.unattended,
        profile: args.profile.map(|p| match p {
            ProfileArg::Locked => Profile::Locked,
            ProfileArg::Safe => Profile::Safe,
            ProfileArg::FullAuto => Profile::FullAuto,
        }),
        wait_ms: None,
        limits: Limits { wall_ms, ..Limits::default() },
        leftovers: match args.leftovers {
            LeftoversArg::Kill => Leftovers::Kill,
            LeftoversArg::Keep => Leftovers::Keep,
        },
        on_session_end: OnSessionEnd::Keep,
        session_id: None,
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
fn time(text: &str) -> anyhow::Result<u64> {
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
        Usage(format!("--timeout {text}: use a whole number above zero with ms, s, m or h, at most a year")).into()
    })
}

fn announce(args: &RunArgs, task: &TaskState) -> anyhow::Result<()> {
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(task)?)?;
        return Ok(());
    }
    writeln!(io::stdout(), "{}", task.task_id)?;
    if let (Status::Queued, Some(approval)) = (task.status, task.approval_id) {
        say(&format!("csn: waiting for approval {approval}: csn approvals answer {approval} once"));
    }
    Ok(())
}

/// Ctrl-C interrupts the task; twice cancels it.
fn interrupts(client: &Client, task: TaskId) -> anyhow::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT])?;
    let client = client.clone();
    std::thread::spawn(move || {
        for (n, _) in signals.forever().enumerate() {
            let sent = match n {
                0 => client
                    .signal(task, countersign_model::SignalName::INT)
                    .or_else(|_| client.cancel(task, Some("interrupted"))),
                _ => client.cancel(task, Some("interrupted twice")),
            };
            if let Err(e) = sent {
                say(&format!("csn: {e}"));
            }
        }
    });
    Ok(())
}

struct Ended {
    outcome: Outcome,
    took: Option<Duration>,
    words: Option<Text>,
}

/// Passes the stream on until the task has settled, through any number of restarts of the daemon.
fn follow(
    doors: &Doors<'_>,
    client: &Client,
    task: TaskId,
    json: bool,
    mut asking: Option<Asking>,
) -> anyhow::Result<Ended> {
    let mut events = client.events(task, None);
    let mut printer = Printer::new(client.clone(), task);
    let (mut took, mut words) = (None, None);
    loop {
        let event = match events.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => bail!("the stream of {task} ended without an outcome"),
            Err(ClientError::Broken(_) | ClientError::NoHouse { .. }) => {
                reach(doors).with_context(|| format!("the task goes on: csn wait {task}"))?;
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
                None => printer.print(stream, offset + len)?,
            },
            What::Frame(Frame::Exited { duration_us, .. }) => took = Some(Duration::from_micros(duration_us)),
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
            What::Decision(Decision::Settled { outcome, .. }) => return Ok(Ended { outcome, took, words }),
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

fn closing(task: TaskId, ended: &Ended) {
    let took = ended.took.map(|t| format!(", {}", brief(t))).unwrap_or_default();
    let outcome = ended.outcome.to_string();
    say(&format!("csn: {task} {}{took}", countersign_model::Shown::new(&outcome)));
    if let Some(words) = &ended.words {
        say(&format!("     \"{}\"", countersign_model::Shown::new(words.as_str())));
    }
}
