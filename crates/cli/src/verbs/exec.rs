//! `exec`: redeems the ticket of a hook. The command runs as a task; whoever called sees its output and its exit code.
//!
//! It starts no house: it is called from inside an agent.

use crate::{
    UsageError,
    args::ExecArgs,
    code, exit,
    follow::{FollowOptions, follow_or_cancel},
    render::card::waiting_line,
    say,
    target_home::TargetHome,
    terminal::interrupts::Interrupts,
    verbs::hook::inherited,
};
use anyhow::Context as _;
use countersign_client::{Client, ClientError};
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

/// How long a shell waits to hear where its command ended.
const LEAVING: Duration = Duration::from_secs(3);

pub(crate) fn exec(args: &ExecArgs) -> anyhow::Result<ExitCode> {
    let TargetHome { client, .. } = TargetHome::find()?;
    if let Some(ticket) = &args.leave {
        return leave(&client, ticket);
    }
    let (Some(ticket), Some(command)) = (&args.ticket, &args.command) else {
        return Err(
            UsageError("give the command as one word: csn exec --ticket TICKET -- 'shell text'".to_owned()).into()
        );
    };
    let cwd = std::env::current_dir().context("the current directory is gone")?;
    let cwd = cwd.to_str().context("the directory's name is not UTF-8")?;
    let with = RedeemBody { command: command.clone(), cwd: cwd.to_owned(), inherit: inherited() };
    let RedeemResponse { task, patience_ms } = client.redeem(ticket, &with)?;
    let (id, queued) = (task.task_id, task.status == Status::Queued);
    Interrupts::begin(&client, id)?;
    ends_with_its_agent(&client, id)?;
    if let (true, Some(approval)) = (queued, task.approval_id()) {
        say(&waiting_line(approval));
        not_for_ever(&client, id, Duration::from_millis(patience_ms));
    }
    let reach = || again(&client);
    let following = FollowOptions { json: false, raw: true, reach: &reach };
    let ended = match follow_or_cancel(&client, id, &following, None)? {
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

/// A house that goes and comes back: the task goes on meanwhile.
fn again(client: &Client) -> anyhow::Result<()> {
    for _ in 0..100 {
        match client.lifecycle() {
            Ok(_) => return Ok(()),
            Err(ClientError::NoDaemon { .. } | ClientError::Broken(_)) => {}
            Err(e) => return Err(e.into()),
        }
        // Somebody else starts it: there is nothing to wait for but time.
        std::thread::sleep(Duration::from_millis(100));
    }
    anyhow::bail!("the house is gone; the task goes on: csn wait, once `csn up --detach` was run")
}

/// A tool that has waited long enough must hear why there is nothing yet before it gives up.
fn not_for_ever(client: &Client, task: TaskId, patience: Duration) {
    let client = client.clone();
    std::thread::spawn(move || {
        std::thread::sleep(patience);
        let waits = client.task(&task.to_string()).is_ok_and(|t| t.waits_for() == Some(WaitsFor::Approval));
        if waits {
            say(&format!("csn: approval pending: csn wait {task} (it runs once a person has approved it)"));
            std::process::exit(i32::from(exit::PENDING));
        }
    });
}

/// What ends us ends what we were asked to run, as it would end a command of its own.
fn ends_with_its_agent(client: &Client, task: TaskId) -> anyhow::Result<()> {
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

/// For `eval`: go where the command ended. A shell waits for this, and has its own directory without it.
fn leave(client: &Client, ticket: &str) -> anyhow::Result<ExitCode> {
    std::thread::spawn(|| {
        std::thread::sleep(LEAVING);
        std::process::exit(0);
    });
    if let Some(dir) = client.ticket(ticket).ok().and_then(|task| task.io.current_directory) {
        writeln!(io::stdout(), "cd -- {} 2>/dev/null", quoted(dir.as_str()))?;
    }
    Ok(ExitCode::SUCCESS)
}
