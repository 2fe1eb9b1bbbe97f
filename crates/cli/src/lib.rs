//! The command line of Countersign. It translates between a person and the client; it decides nothing and stores nothing.

mod args;
mod examples;
mod follow;
mod frequent_verb;
mod help;
mod install;
mod render;
mod target_home;
mod terminal;
mod usage;
mod verbs;

use args::{Cli, Command};
use clap::Parser as _;
use countersign_client::ClientError;
use countersign_model::TaskRefusal;
use render::fields::{name_option_first, name_options};
use std::process::ExitCode;
use verbs::{
    approvals, attach, cancel, check, completions, doctor, down, exec, export, gc, grants, hook, keys, logs, man, mcp,
    policy, ps, receipts, redact, replay, resize, run, search, send, service, sessions, show, signal, token, up,
    verify, wait,
};

/// What the program does after the command line was handled.
pub enum NextProgram {
    Exit(ExitCode),
    /// Become the daemon.
    Serve {
        detached: bool,
        /// Serve every user of the machine (the system service).
        machine: bool,
        /// Where to listen on loopback, if not at the default address.
        tcp: Option<String>,
    },
}

/// The exit codes that `csn` itself uses; all others come from tasks.
pub(crate) mod exit {
    pub(crate) const USAGE: u8 = 2;
    /// The task waits for an approval and `--no-wait` was given.
    pub(crate) const PENDING: u8 = 75;
    pub(crate) const DENIED: i32 = 77;
    /// `csn` itself failed.
    pub(crate) const OURS: u8 = 125;
    /// The reader closed our output: 128 + SIGPIPE, as a shell reports it.
    pub(crate) const PIPE: u8 = 141;
}

#[must_use]
pub fn main() -> NextProgram {
    let command = match frequent_verb::parse(std::env::args_os().skip(1).collect()) {
        Some(command) => command,
        None => match Cli::try_parse() {
            Ok(cli) => cli.command,
            Err(_) => return NextProgram::Exit(usage::report_parse_error()),
        },
    };
    if let Command::Up { detach: false, detached, tcp, system } = &command
        && (*detached || *system || !target_home::is_served())
    {
        if let Err(e) = countersign_store::Home::locate()
            .map_err(Into::into)
            .and_then(|home| target_home::ensure_started_by_person(&home))
        {
            return NextProgram::Exit(fail(&e));
        }
        return NextProgram::Serve { detached: *detached, machine: *system, tcp: tcp.clone() };
    }
    NextProgram::Exit(match dispatch(command) {
        Ok(code) => code,
        Err(e) => fail(&e),
    })
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up { tcp, .. } => up::up(tcp.as_deref()),
        Command::Down { stop_tasks, keep_tasks } => down::down(stop_tasks, keep_tasks),
        Command::Run(args) => run::run(*args),
        Command::File(args) => run::run(args.into_run()),
        Command::Ps { all, json } => ps::ps(all, json),
        Command::Show { task, view: Some(view), .. } => show::view(&task, view),
        Command::Show { task, screen: true, json, .. } => show::screen(&task, json),
        Command::Show { task, json, .. } => show::show(&task, json),
        Command::Logs(args) => logs::logs(&args),
        Command::Attach { task, read_only, detach_keys } => {
            attach::attach(&attach::AttachOptions { task: &task, read_only, detach_keys: &detach_keys })
        }
        Command::Send(args) => send::send(&args),
        Command::Resize { task, rows, cols } => resize::resize(&task, rows, cols),
        Command::Search(args) => search::search(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Cancel { task, reason } => cancel::cancel(&task, reason.as_deref()),
        Command::Signal { task, signal } => signal::signal(&task, &signal),
        Command::Wait { task, json } => wait::wait(&task, json),
        Command::Approvals { command } => approvals::approvals(command),
        Command::Grants { command } => grants::grants(command),
        Command::Sessions { command } => sessions::sessions(command),
        Command::Receipts { command } => receipts::receipts(command),
        Command::Keys { command } => keys::keys(command),
        Command::Verify(args) => verify::verify(&args),
        Command::Export(args) => export::export(&args),
        Command::Install(args) => install::install(&args),
        Command::Service { command } => service::service(command),
        Command::Token { command } => token::token(command),
        Command::Check(args) => check::check(&args),
        Command::Policy { command } => policy::policy(&command),
        Command::Redact(args) => redact::redact(&args),
        Command::Doctor { json, fix } => doctor::doctor(json, fix),
        Command::Gc { older_than, keep, dry_run, json } => gc::gc(older_than, keep.as_deref(), dry_run, json),
        Command::Hook(args) => hook::hook(args.agent, args.witness),
        Command::Exec(args) => exec::exec(&args),
        Command::Mcp => mcp::mcp(),
        Command::Help { verbs } => help::help(&verbs),
        Command::Man { directory } => man::man(directory.as_deref()),
        Command::Completions { shell } => completions::completions(shell),
    }
}

/// A usage error. A message of several lines already says what to do.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Prints an error as JSON, for a caller that asked for JSON.
fn print_error_json(error: &anyhow::Error) {
    use std::io::Write as _;
    let object = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused(TaskRefusal { refusal, task })) => {
            serde_json::json!({"v": 1, "error": refusal, "task_id": task})
        }
        _ => serde_json::json!({"v": 1, "error": {"message": format!("{error:#}")}}),
    };
    let _ = writeln!(std::io::stdout(), "{object}");
}

/// Prints what went wrong and what to do next, and returns the exit code.
fn fail(error: &anyhow::Error) -> ExitCode {
    if std::env::args_os().skip(1).take_while(|a| a != "--").any(|a| a == "--json") {
        print_error_json(error);
    }
    let refused = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused(TaskRefusal { refusal, task })) => Some((refusal, *task)),
        _ => None,
    };
    match refused {
        Some((refusal, task)) => {
            // Without the word, `it would remove a whole file system` reads as if it had happened.
            let denied = if refusal.code.exit_code() == exit::DENIED { "denied: " } else { "" };
            say(&format!("csn: {denied}{}", name_option_first(&refusal.message)));
            if let Some(hint) = &refusal.hint {
                say(&format!("     {}", name_options(hint)));
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
                // The reader closed our output: it has read enough.
                return ExitCode::SUCCESS;
            }
            let Some(UsageError(message)) = error.downcast_ref() else {
                say(&format!("csn: {error:#}"));
                return ExitCode::from(exit::OURS);
            };
            usage::say_usage(message);
            if !message.contains('\n') {
                say(&format!("     {}", usage::help_and_example(&usage::typed_words())));
            }
            ExitCode::from(exit::USAGE)
        }
    }
}

/// Prints a line for a person on standard error. A closed standard error is not an error.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{line}");
}

pub(crate) fn code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code.rem_euclid(256)).unwrap_or(exit::OURS))
}
