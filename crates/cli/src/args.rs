//! What can be typed.

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "csn",
    version,
    about = "Runs what AI agents ask to run, and answers for it.",
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start the daemon here, or in the background with --detach
    Up {
        /// Start it in the background and return once it serves
        #[arg(long)]
        detach: bool,
        #[arg(long, hide = true)]
        detached: bool,
    },
    /// Stop the daemon; tasks go on unless told otherwise
    Down {
        /// Stop every running task first
        #[arg(long)]
        stop_tasks: bool,
    },
    /// Run a command as a task and pass on its output and exit code
    ///
    /// Its standard input is empty.
    #[command(override_usage = "csn run [OPTIONS] 'shell text'\n       csn run [OPTIONS] -- PROGRAM [ARGUMENT]...")]
    Run(Box<RunArgs>),
    /// List tasks that wait or run
    Ps {
        /// Finished ones too
        #[arg(short, long)]
        all: bool,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Show everything that is known of a task
    Show {
        task: String,
        #[arg(long)]
        json: bool,
    },
    /// Print what a task has written, byte for byte
    Logs(LogsArgs),
    /// Stop a task, or withdraw one that waits
    Cancel {
        task: String,
        /// Why, for the record
        #[arg(long)]
        reason: Option<String>,
    },
    /// Send a signal to a task
    Signal {
        task: String,
        /// INT QUIT TERM HUP KILL USR1 USR2 STOP CONT WINCH TSTP
        signal: String,
    },
    /// Wait for a task and exit with its code
    Wait {
        task: String,
        /// The task as it ended, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Questions that wait for a person
    Approvals {
        #[command(subcommand)]
        command: Option<ApprovalsCommand>,
    },
    /// Check the house: daemon, home, ledger, supervisor, disk
    Doctor {
        #[arg(long)]
        json: bool,
    },
    /// Print completions for a shell
    Completions { shell: Shell },
}

#[derive(Args)]
pub(crate) struct RunArgs {
    /// Shell text, run by bash; one word for the shell that you type it into, so quote it
    #[arg(required_unless_present = "argv")]
    pub(crate) text: Vec<String>,
    /// A program and its arguments, run without a shell
    #[arg(last = true, conflicts_with = "text")]
    pub(crate) argv: Vec<String>,
    /// Return at once; the task goes on
    #[arg(long)]
    pub(crate) background: bool,
    /// Frames as JSON lines instead of output; with --background one object
    #[arg(long)]
    pub(crate) json: bool,
    /// Where to run it
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<std::path::PathBuf>,
    /// Set a variable, or pass one of yours on by its name
    #[arg(long, value_name = "K[=V]")]
    pub(crate) env: Vec<String>,
    /// Stop it after this long: 90, 90s, 5m, 2h
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<String>,
    /// What becomes of processes that outlive the command
    #[arg(long, value_enum, default_value_t = LeftoversArg::Kill)]
    pub(crate) leftovers: LeftoversArg,
    /// A name for lists
    #[arg(long)]
    pub(crate) title: Option<String>,
    /// Why, for whoever is asked to approve it
    #[arg(long)]
    pub(crate) why: Option<String>,
    /// How much the house asks for this one
    #[arg(long, value_enum)]
    pub(crate) profile: Option<ProfileArg>,
    /// Nobody can be asked: what needs approval is denied
    #[arg(long)]
    pub(crate) unattended: bool,
    /// Do not wait for an approval: exit 75
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// No closing line
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Args)]
pub(crate) struct LogsArgs {
    pub(crate) task: String,
    /// Go on until the task ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// One stream only
    #[arg(long, value_enum)]
    pub(crate) stream: Option<StreamArg>,
    /// Only the last lines of each stream
    #[arg(long, value_name = "N")]
    pub(crate) lines: Option<u64>,
    /// The output frames as JSON lines instead of bytes
    #[arg(long, conflicts_with = "lines")]
    pub(crate) json: bool,
}

#[derive(Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// What waits
    List {
        /// Answered ones too
        #[arg(long)]
        all: bool,
        #[arg(long)]
        json: bool,
    },
    /// One question, whole
    Show {
        approval: String,
        #[arg(long)]
        json: bool,
    },
    /// Answer: once or deny
    Answer {
        approval: String,
        choice: String,
        /// What the agent should know
        #[arg(long)]
        words: Option<String>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum LeftoversArg {
    Kill,
    Keep,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ProfileArg {
    Locked,
    Safe,
    FullAuto,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum StreamArg {
    Stdout,
    Stderr,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Elvish,
    Fish,
    Zsh,
}

pub(crate) fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    use clap_complete::{Shell as Target, generate};
    let target = match shell {
        Shell::Bash => Target::Bash,
        Shell::Elvish => Target::Elvish,
        Shell::Fish => Target::Fish,
        Shell::Zsh => Target::Zsh,
    };
    let mut script = Vec::new();
    generate(target, &mut Cli::command(), "csn", &mut script);
    use std::io::Write as _;
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
