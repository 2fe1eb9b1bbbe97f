//! Terminal surfaces. They translate between a person and the client; they decide and remember nothing.

mod approvals;
mod args;
mod attach;
mod check;
mod doctor;
mod escapes;
mod exec;
mod export;
mod gc;
mod grants;
mod hook;
mod house;
mod install;
mod lists;
mod logs;
mod mcp;
mod prompt;
mod receipts;
mod redact;
mod repair;
mod replay;
mod run;
mod search;
mod send;
mod service;
mod sessions;
mod verify;

use args::{Cli, Command};
use clap::Parser as _;
use countersign_client::ClientError;
use std::process::ExitCode;

/// What only the program itself can do: this crate starts no processes.
pub struct Doors<'a> {
    /// Starts a detached daemon with these variables; what it said, once it serves.
    pub start_house: &'a StartHouse,
    /// What `csn-shim --probe` says, as JSON.
    pub probe_shim: &'a ProbeShim,
    /// Has a program of the service manager do something: whether it did, and what it said.
    pub manage: &'a Manage,
    /// Puts a question to a program.
    pub converse: &'a Converse,
}

pub type StartHouse = dyn Fn(&[(String, String)]) -> std::io::Result<String>;
pub type ProbeShim = dyn Fn() -> std::io::Result<String>;
pub type Manage = dyn Fn(&str, &[&str]) -> std::io::Result<(bool, String)>;
pub type Converse = dyn Fn(&Question<'_>) -> std::io::Result<Answered>;

/// Whether what was heard is all that was wanted.
pub type Enough = dyn Fn(&[u8]) -> bool;

/// What a program is told, and how long it may take to answer.
pub struct Question<'a> {
    pub program: &'a str,
    pub args: &'a [&'a str],
    pub stdin: &'a [u8],
    /// Beside what we have ourselves.
    pub env: &'a [(&'a str, &'a str)],
    pub timeout: std::time::Duration,
    /// Its input stays open until this has heard enough.
    pub until: Option<&'a Enough>,
}

/// What it said, bounded, and what it ended with; none when it had to be killed.
pub struct Answered {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub timed_out: bool,
}

/// What `main` should do next.
pub enum Action {
    Exit(ExitCode),
    /// Become the daemon.
    Serve {
        detached: bool,
        /// For every user of the machine.
        machine: bool,
        /// Where to listen on loopback, when not where everybody does.
        tcp: Option<String>,
    },
}

/// The exit codes that are ours.
pub(crate) mod exit {
    pub(crate) const USAGE: u8 = 2;
    /// Waiting for an approval, and told not to.
    pub(crate) const PENDING: u8 = 75;
    pub(crate) const OURS: u8 = 125;
    /// Nobody reads our output any more, as a shell would say it.
    pub(crate) const PIPE: u8 = 141;
}

#[must_use]
pub fn main(doors: &Doors<'_>) -> Action {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return Action::Exit(ExitCode::from(if e.use_stderr() { exit::USAGE } else { 0 }));
        }
    };
    if let Command::Up { detach: false, detached, tcp, system } = &cli.command
        && (*detached || *system || !house::serves())
    {
        if let Err(e) = countersign_store::Home::locate().map_err(Into::into).and_then(|home| house::by_a_person(&home))
        {
            return Action::Exit(fail(&e));
        }
        return Action::Serve { detached: *detached, machine: *system, tcp: tcp.clone() };
    }
    Action::Exit(match dispatch(doors, cli.command) {
        Ok(code) => code,
        Err(e) => fail(&e),
    })
}

fn dispatch(doors: &Doors<'_>, command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up { tcp, .. } => house::up(doors, tcp.as_deref()),
        Command::Down { stop_tasks, keep_tasks } => house::down(stop_tasks, keep_tasks),
        Command::Run(args) => run::run(doors, *args),
        Command::File(args) => run::run(doors, args.into_run()),
        Command::Ps { all, json } => lists::ps(doors, all, json),
        Command::Show { task, view: Some(view), .. } => lists::view(doors, &task, view),
        Command::Show { task, screen: true, json, .. } => lists::screen(doors, &task, json),
        Command::Show { task, json, .. } => lists::show(doors, &task, json),
        Command::Logs(args) => logs::logs(doors, &args),
        Command::Attach { task, read_only, detach_keys } => {
            attach::attach(doors, &attach::Args { task: &task, read_only, detach_keys: &detach_keys })
        }
        Command::Send(args) => send::send(doors, &args),
        Command::Resize { task, rows, cols } => lists::resize(doors, &task, rows, cols),
        Command::Search(args) => search::search(doors, &args),
        Command::Replay(args) => replay::replay(doors, &args),
        Command::Cancel { task, reason } => lists::cancel(doors, &task, reason.as_deref()),
        Command::Signal { task, signal } => lists::signal(doors, &task, &signal),
        Command::Wait { task, json } => lists::wait(doors, &task, json),
        Command::Approvals { command } => approvals::approvals(doors, command),
        Command::Grants { command } => grants::grants(doors, command),
        Command::Sessions { command } => sessions::sessions(doors, command),
        Command::Receipts { command } => receipts::receipts(doors, command),
        Command::Keys { command } => receipts::keys(doors, command),
        Command::Verify(args) => verify::verify(&args),
        Command::Export(args) => export::export(doors, &args),
        Command::Install(args) => install::install(doors, &args),
        Command::Service { command } => service::service(doors, command),
        Command::Token { command } => sessions::token(doors, command),
        Command::Check(args) => check::check(&args),
        Command::Policy { command } => check::policy(&command),
        Command::Redact(args) => redact::redact(&args),
        Command::Doctor { json, fix } => doctor::doctor(doors, json, fix),
        Command::Gc { older_than, keep, dry_run, json } => gc::gc(doors, older_than, keep.as_deref(), dry_run, json),
        Command::Hook { agent, witness } => hook::hook(agent, witness),
        Command::Exec(args) => exec::exec(&args),
        Command::Mcp => mcp::mcp(),
        Command::Completions { shell } => args::completions(shell),
    }
}

/// Something was typed that cannot be meant.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The same for programs: whoever asked for JSON gets the reason as JSON too.
fn tell_in_json(error: &anyhow::Error) {
    use std::io::Write as _;
    let told = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused { refusal, task }) => {
            serde_json::json!({"v": 1, "error": refusal, "task_id": task})
        }
        _ => serde_json::json!({"v": 1, "error": {"message": format!("{error:#}")}}),
    };
    let _ = writeln!(std::io::stdout(), "{told}");
}

/// Says what went wrong and what to do about it.
fn fail(error: &anyhow::Error) -> ExitCode {
    if std::env::args_os().skip(1).take_while(|a| a != "--").any(|a| a == "--json") {
        tell_in_json(error);
    }
    let refused = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused { refusal, task }) => Some((refusal, *task)),
        _ => None,
    };
    match refused {
        Some((refusal, task)) => {
            say(&format!("csn: {}", refusal.message));
            if let Some(hint) = &refusal.hint {
                say(&format!("     {hint}"));
            }
            if let Some(task) = task {
                say(&format!("     task {task}"));
            }
            code(refusal.code.exit_code())
        }
        None => {
            if let Some(e) = error.downcast_ref::<std::io::Error>()
                && e.kind() == std::io::ErrorKind::BrokenPipe
            {
                // Whoever read our output has seen enough.
                return ExitCode::SUCCESS;
            }
            say(&format!("csn: {error:#}"));
            ExitCode::from(if error.is::<Usage>() { exit::USAGE } else { exit::OURS })
        }
    }
}

/// Chatter goes to stderr; a closed stderr is nobody listening, not an error.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{line}");
}

pub(crate) fn code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code.rem_euclid(256)).unwrap_or(exit::OURS))
}
