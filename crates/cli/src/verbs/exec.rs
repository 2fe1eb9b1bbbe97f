//! `exec`: redeems the run ticket of a hook. The command runs as a task; the caller gets its output and exit code.
//!
//! It never starts a daemon, because an agent calls it.

use crate::{
    UsageError,
    args::ExecArgs,
    code, exit,
    follow::{FollowOptions, follow_or_cancel},
    render::card::waiting_line,
    say,
    target_home::TargetHome,
    terminal::interrupts::Interrupts,
    verbs::hook::inherited_environment,
};
use anyhow::Context as _;
use countersign_client::Client;
use countersign_model::{
    DisplaySafe, Outcome, Status, TaskId, WaitsFor,
    api::{RedeemBody, RedeemResponse},
    quoted,
};
use signal_hook::consts::{SIGHUP, SIGTERM};
use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

/// How long the agent's shell waits for the directory in which its command ended.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// How many attempts are made to reach a daemon that restarts, and the pause between two of them.
const MAX_ATTEMPTS: u32 = 100;
const RETRY_PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn exec(args: &ExecArgs) -> anyhow::Result<ExitCode> {
    let TargetHome { client, .. } = TargetHome::find()?;
    if let Some(ticket) = &args.leave {
        return print_final_directory(&client, ticket);
    }
    let (Some(ticket), Some(command)) = (&args.ticket, &args.command) else {
        return Err(UsageError(
            "give the command as one argument: csn exec --ticket TICKET -- 'shell text'".to_owned(),
        )
        .into());
    };
    let cwd = std::env::current_dir()
        .context("the current directory no longer exists: change to another one and repeat the command")?;
    let cwd = cwd.to_str().context("the name of the working directory is not UTF-8; use another directory")?;
    let body = RedeemBody { command: command.clone(), cwd: cwd.to_owned(), inherit: inherited_environment() };
    let RedeemResponse { task, patience_ms } = client.redeem(ticket, &body)?;
    let (id, queued) = (task.task_id, task.status == Status::Queued);
    Interrupts::begin(&client, id)?;
    cancel_when_terminated(&client, id)?;
    if let (true, Some(approval)) = (queued, task.approval_id()) {
        say(&waiting_line(approval));
        exit_when_still_pending(&client, id, Duration::from_millis(patience_ms));
    }
    let reach = || wait_for_daemon(&client);
    let options = FollowOptions { json: false, raw: true, reach: &reach };
    let ended = match follow_or_cancel(&client, id, &options, None)? {
        Ok(ended) => ended,
        Err(code) => return Ok(code),
    };
    for note in &ended.notes {
        say(&format!("csn: {}", DisplaySafe::new(note)));
    }
    match &ended.outcome {
        Outcome::Exited { .. } | Outcome::Signalled { .. } => {}
        outcome => {
            let words =
                ended.words.as_ref().map(|w| format!(": \"{}\"", DisplaySafe::new(w.as_str()))).unwrap_or_default();
            say(&format!("csn: {id} {}{words}", DisplaySafe::new(&outcome.to_string())));
        }
    }
    Ok(code(ended.outcome.exit_code()))
}

/// Waits until a daemon serves again; the task keeps running meanwhile.
fn wait_for_daemon(client: &Client) -> anyhow::Result<()> {
    for _ in 0..MAX_ATTEMPTS {
        match client.lifecycle() {
            Ok(_) => return Ok(()),
            Err(e) if e.is_daemon_gone() => {}
            Err(e) => return Err(e.into()),
        }
        // Another process starts the daemon, and nothing tells when: poll.
        std::thread::sleep(RETRY_PAUSE);
    }
    anyhow::bail!(
        "the daemon is gone; the task keeps running. A person must run `csn up --detach`; then csn wait gets the result"
    )
}

/// Exits before the agent's tool gives up, if no person has answered by then: the agent must learn why it has no
/// result yet.
fn exit_when_still_pending(client: &Client, task: TaskId, timeout: Duration) {
    let client = client.clone();
    std::thread::spawn(move || {
        std::thread::sleep(timeout);
        let pending = client.task(&task.to_string()).is_ok_and(|t| t.waits_for() == Some(WaitsFor::Approval));
        if pending {
            say(&format!("csn: approval pending: csn wait {task} (the command runs once a person approves it)"));
            std::process::exit(i32::from(exit::PENDING));
        }
    });
}

/// Cancels the task when the agent terminates this process, as that would end a command of its own.
fn cancel_when_terminated(client: &Client, task: TaskId) -> anyhow::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGHUP])?;
    let client = client.clone();
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let _ = client.cancel(task, Some("its agent ended it"));
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Prints for `eval` a `cd` to the directory in which the command ended. The agent's shell waits for this; without it
/// the shell stays in its own directory.
fn print_final_directory(client: &Client, ticket: &str) -> anyhow::Result<ExitCode> {
    std::thread::spawn(|| {
        std::thread::sleep(LEAVE_TIMEOUT);
        std::process::exit(0);
    });
    if let Some(dir) = client.ticket(ticket).ok().and_then(|task| task.io.current_directory) {
        writeln!(io::stdout(), "cd -- {} 2>/dev/null", quoted(dir.as_str()))?;
    }
    Ok(ExitCode::SUCCESS)
}
