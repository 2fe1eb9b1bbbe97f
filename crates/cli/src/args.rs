//! The verbs and options of `csn`, and the help text of each. It may not decide or print anything.

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use countersign_install::{AgentProgram, InstallMode, InstallScope};
use countersign_model::{Choice, Confinement, Network, Profile, StreamName};

#[derive(Parser)]
#[command(
    name = "csn",
    version,
    about = "Countersign runs what AI agents ask to run: approved, sandboxed and recorded.",
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start the daemon
    ///
    /// Without --detach the daemon runs in this terminal until you stop it. Other verbs start a daemon in the background
    /// when they need one, so `csn up` is needed only to serve the HTTP API to clients with a token, or before you start an
    /// agent.
    Up {
        /// Start the daemon in the background and return once it serves
        #[arg(long)]
        detach: bool,
        #[arg(long, hide = true)]
        detached: bool,
        /// Serve the HTTP API on this loopback address (127.0.0.1:7311 if not given)
        #[arg(long, value_name = "127.0.0.1:PORT")]
        tcp: Option<String>,
        /// Serve every user of the machine; the system service uses this (csn service install --system)
        #[arg(long, conflicts_with_all = ["detach", "detached", "tcp"])]
        system: bool,
    },
    /// Stop the daemon; running tasks keep running
    ///
    /// The next daemon finds the running tasks again. Approvals and queued tasks stay as they are.
    Down {
        /// Stop every running task first
        #[arg(long)]
        stop_tasks: bool,
        /// Keep tasks running, even if the configuration says to stop them
        #[arg(long, conflicts_with = "stop_tasks")]
        keep_tasks: bool,
    },
    /// Run a command as a task; pass on its output and exit code
    ///
    /// A command that only reads runs immediately, in a read-only sandbox. Any other command needs a grant, a rule or
    /// your approval; until then the task waits.
    ///
    /// Standard input is empty unless you give --stdin or --pty. Ctrl-C interrupts the task; a second Ctrl-C cancels it.
    /// Press Ctrl-\ Ctrl-D to detach; the task keeps running.
    #[command(override_usage = "csn run [OPTIONS] 'SHELL TEXT'\n       csn run [OPTIONS] -- PROGRAM [ARGUMENT]...")]
    Run(Box<RunArgs>),
    /// Read, write or edit one file as a task
    ///
    /// Like a command, it may need approval, and it has a receipt. Secrets in the file are shown as placeholders and stay
    /// unchanged on disk.
    File(Box<FileArgs>),
    /// List tasks that wait or run
    Ps {
        /// List finished tasks too
        #[arg(short, long)]
        all: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show one task: request, decision, sandbox and outcome
    Show {
        /// ID of the task; a unique prefix is enough
        task: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// Print the records of the task as JSON lines, in this vocabulary
        #[arg(long, value_enum, conflicts_with = "json")]
        view: Option<ViewArg>,
        /// Print what the terminal of the task shows now
        #[arg(long, conflicts_with = "view")]
        screen: bool,
    },
    /// Print the output of a task
    ///
    /// Standard output and standard error of the task go to those of `csn logs`. Into a pipe, or with --raw, the stored
    /// bytes are printed unchanged; a terminal sees escape sequences other than colours as text.
    Logs(LogsArgs),
    /// Connect this terminal to a task
    ///
    /// Press Ctrl-\ Ctrl-D to detach; the task keeps running. Several terminals can attach to one task. If the daemon
    /// restarts, `csn attach` reconnects. Attaching to a finished task shows its last screen.
    Attach {
        /// ID of the task; a unique prefix is enough
        task: String,
        /// Watch only; do not send keys to the task
        #[arg(long)]
        read_only: bool,
        /// Keys that detach, as names separated by commas
        #[arg(long, value_name = "KEYS", default_value = crate::terminal::detach::DETACH_KEYS)]
        detach_keys: String,
    },
    /// Send text or keys to a task
    ///
    /// Works for a task with a terminal (--pty) or with open input (--stdin). The record keeps only the length of what
    /// you send.
    Send(SendArgs),
    /// Set the size of a task's terminal
    Resize {
        /// ID of the task; a unique prefix is enough
        task: String,
        /// Number of rows
        rows: u16,
        /// Number of columns
        cols: u16,
    },
    /// Search the output of a task
    ///
    /// Prints STREAM:LINE:OFFSET:TEXT for each match. The exit code is 1 if nothing matches.
    Search(SearchArgs),
    /// Play the recording of a task; nothing runs again
    Replay(ReplayArgs),
    /// Stop a task, or withdraw one that waits
    ///
    /// Every process of the task gets SIGTERM, and SIGKILL five seconds later.
    Cancel {
        /// ID of the task; a unique prefix is enough
        task: String,
        /// Reason to record
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Send a signal to a task
    Signal {
        /// ID of the task; a unique prefix is enough
        task: String,
        /// One of INT, QUIT, TERM, HUP, KILL, USR1, USR2, STOP, CONT, WINCH, TSTP
        signal: String,
    },
    /// Wait for a task to end; exit with its exit code
    Wait {
        /// ID of the task; a unique prefix is enough
        task: String,
        /// Print the finished task as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// List and answer the approvals that wait for a person
    ///
    /// Without a verb, lists the approvals that wait. An approval stays until a person answers it; it survives restarts
    /// of the daemon. The first answer counts.
    Approvals {
        #[command(subcommand)]
        command: Option<ApprovalsCommand>,
    },
    /// List, add and revoke grants (commands approved in advance)
    ///
    /// Without a verb, lists all grants.
    Grants {
        #[command(subcommand)]
        command: Option<GrantsCommand>,
    },
    /// List, open and end sessions of agents and clients
    ///
    /// A session is one conversation of an agent or client. Without a verb, lists the open sessions. A request that names
    /// no session belongs to the session of its repository or directory.
    Sessions {
        #[command(subcommand)]
        command: Option<SessionsCommand>,
    },
    /// List, show and export receipts (signed records of tasks)
    ///
    /// Every request ends in a receipt: what was asked, who decided, how it was sandboxed and how it ended.
    Receipts {
        #[command(subcommand)]
        command: ReceiptsCommand,
    },
    /// Verify receipts, the ledger and stored output
    ///
    /// Checks everything, or one task, one receipt, or one exported file. Needs no daemon. The exit code is 0 only if
    /// everything verifies, and 1 if something does not.
    Verify(VerifyArgs),
    /// List, export and rotate the keys that sign receipts
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Export one task as an archive that anyone can verify
    ///
    /// The archive holds the receipt, the recording, the output, the plan and the public keys. `csn verify FILE` checks
    /// it on any machine.
    Export(ExportArgs),
    /// Connect an AI agent to Countersign (hook or MCP server)
    ///
    /// Edits the configuration of the agent, prints the difference and keeps a copy. Comments and other settings stay.
    /// Afterwards it checks that a forbidden command is denied.
    Install(InstallArgs),
    /// Install, remove or check the daemon as a systemd service
    Service {
        #[command(subcommand)]
        command: ServiceCommand,
    },
    /// Create, list and revoke tokens for the HTTP API
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Explain what would happen to a command, without running it
    ///
    /// Names each part of the command, its risks, the rule or grant that covers it, and the sandbox. Needs no daemon, so
    /// it knows only the grants that you give with --grant.
    ///
    /// The exit code is 0 if the command would run without approval, 75 if it would need approval, and 77 if it would be
    /// denied.
    #[command(
        override_usage = "csn check [OPTIONS] 'SHELL TEXT'\n       csn check [OPTIONS] -- PROGRAM [ARGUMENT]...\n       csn check --batch [FILE]"
    )]
    Check(Box<CheckArgs>),
    /// Explain and test the rules that decide about commands
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Replace secrets in files or standard input with placeholders
    ///
    /// Prints the result to standard output. Secret values of this environment are replaced too, in every encoding.
    /// Needs no daemon.
    ///
    /// `csn redact test` checks every rule against its examples.
    #[command(override_usage = "csn redact [OPTIONS] [FILE]...\n       csn redact test")]
    Redact(RedactArgs),
    /// Check the daemon, the home, the kernel and installed agents
    ///
    /// The exit code is 1 if a check fails.
    Doctor {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// Rebuild the index of the ledger and remove stale sockets
        #[arg(long)]
        fix: bool,
    },
    /// Remove the stored output of old tasks
    ///
    /// Decisions, outcomes, receipts and digests stay. The daemon also does this automatically, by the `[retention]`
    /// settings in config.toml.
    Gc {
        /// Remove output of tasks that ended more than DAYS ago
        #[arg(long, value_name = "DAYS")]
        older_than: Option<u64>,
        /// Keep the newest output up to this size (500M, 10G)
        #[arg(long, value_name = "BYTES")]
        keep: Option<String>,
        /// List what would be removed; remove nothing
        #[arg(long)]
        dry_run: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Answer an agent's hook (csn install sets this up)
    ///
    /// Reads from standard input the command that the agent is about to run. A denied command does not run; the agent
    /// gets the reason. An allowed command becomes `csn exec --ticket TICKET`, so that it runs as a task.
    Hook(HookArgs),
    /// Run a command that a hook allowed (the hook writes this)
    ///
    /// The ticket is valid for one run of exactly this command.
    #[command(override_usage = "csn exec --ticket TICKET -- 'SHELL TEXT'")]
    Exec(ExecArgs),
    /// Serve MCP on standard input and output (an agent starts this)
    ///
    /// `csn install AGENT --mode mcp` writes this into the configuration of the agent.
    Mcp,
    /// Show the help of a verb
    Help {
        /// Verb, and verb below it: `csn help approvals answer`
        #[arg(value_name = "VERB")]
        verbs: Vec<String>,
    },
    /// Write manual pages
    ///
    /// Without a directory, prints the page csn(1).
    Man {
        /// Directory for csn.1 and one page for each verb
        #[arg(value_name = "DIR")]
        directory: Option<std::path::PathBuf>,
    },
    /// Print a completion script for a shell
    Completions {
        /// Shell to complete in
        shell: Shell,
    },
}

/// Agents whose hooks `csn hook` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookAgent {
    ClaudeCode,
    Codex,
    Opencode,
}

#[derive(Args)]
pub(crate) struct HookArgs {
    /// Agent that calls the hook
    pub(crate) agent: HookAgent,
    /// Witness mode: the agent runs the command itself; Countersign decides and records
    #[arg(long)]
    pub(crate) witness: bool,
}

#[derive(Args)]
pub(crate) struct ExecArgs {
    /// Single-use run ticket from the hook
    #[arg(long, value_name = "TICKET", required_unless_present = "leave")]
    pub(crate) ticket: Option<String>,
    /// Print the shell text that changes to the directory in which the command of this ticket ended
    #[arg(long, value_name = "TICKET", hide = true, conflicts_with = "ticket")]
    pub(crate) leave: Option<String>,
    /// The command, exactly as the hook received it
    #[arg(last = false, trailing_var_arg = false, allow_hyphen_values = true)]
    pub(crate) command: Option<String>,
}

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// Shell text, in quotes; with --batch, a file of JSON lines
    #[arg(value_name = "SHELL TEXT")]
    pub(crate) text: Vec<String>,
    /// A program and its arguments, without a shell
    #[arg(last = true, conflicts_with = "text", value_name = "ARGUMENT")]
    pub(crate) argv: Vec<String>,
    /// Check many commands: one JSON object per line in, one per line out
    #[arg(long)]
    pub(crate) batch: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Directory to run in (the current directory if not given)
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<std::path::PathBuf>,
    /// Workspace root: a directory to read without approval, in place of the repository
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Vec<String>,
    /// Assume this grant: 'cargo test in /srv/a' or 'git push anywhere'
    #[arg(long, value_name = "GRANT")]
    pub(crate) grant: Vec<String>,
    /// Assume this profile
    #[arg(long, value_enum)]
    pub(crate) profile: Option<ProfileArg>,
    /// Assume that the request asks for this sandbox
    #[arg(long, value_enum, value_name = "SANDBOX")]
    pub(crate) confinement: Option<ConfinementArg>,
    /// Assume that the request asks for this network access
    #[arg(long, value_enum)]
    pub(crate) network: Option<NetworkArg>,
    /// Assume that no person can answer
    #[arg(long)]
    pub(crate) unattended: bool,
    /// Ignore config.toml
    #[arg(long)]
    pub(crate) no_config: bool,
}

#[derive(Args)]
pub(crate) struct RedactArgs {
    /// Report on standard error which rules matched and where; never the secrets
    #[arg(long)]
    pub(crate) report: bool,
    /// List the rules
    #[arg(long, conflicts_with_all = ["report", "words"])]
    pub(crate) rules: bool,
    /// Print a generated example for each built-in rule, to test a pipeline or a scanner
    #[arg(long, conflicts_with_all = ["report", "words", "rules", "json"])]
    pub(crate) examples: bool,
    /// Print the report or the rules as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Ignore the rules of config.toml
    #[arg(long)]
    pub(crate) no_config: bool,
    /// Files to read, in this order; standard input if none
    #[arg(value_name = "FILE")]
    pub(crate) words: Vec<String>,
}

#[derive(Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check every rule and built-in table against its examples
    Test {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Explain a program or subcommand: read-only forms, risks, rules
    Explain {
        /// Program and subcommand, such as: git push
        #[arg(required = true, value_name = "PROGRAM")]
        verb: Vec<String>,
    },
}

#[derive(Args)]
pub(crate) struct RunArgs {
    /// Shell text, run by bash; put it in quotes
    #[arg(required_unless_present = "argv", value_name = "SHELL TEXT")]
    pub(crate) text: Vec<String>,
    /// A program and its arguments, run without a shell
    #[arg(last = true, conflicts_with = "text", value_name = "ARGUMENT")]
    pub(crate) argv: Vec<String>,
    /// Give the task a terminal, and connect it to this one
    #[arg(long, help_heading = INPUT_AND_OUTPUT)]
    pub(crate) pty: bool,
    /// Pass standard input on; with --background, keep it open for `csn send`
    #[arg(long, help_heading = INPUT_AND_OUTPUT)]
    pub(crate) stdin: bool,
    /// Return immediately and print the task ID; the task keeps running
    #[arg(long)]
    pub(crate) background: bool,
    /// Print output unchanged on a terminal too, with every escape sequence
    #[arg(long, help_heading = INPUT_AND_OUTPUT)]
    pub(crate) raw: bool,
    /// Print JSON frames, one per line, instead of output; with --background, one object
    #[arg(long, help_heading = INPUT_AND_OUTPUT)]
    pub(crate) json: bool,
    /// Directory to run in (the current directory if not given)
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<std::path::PathBuf>,
    /// Set a variable, or pass on one of yours by its name
    #[arg(long, value_name = "K[=V]")]
    pub(crate) env: Vec<String>,
    /// Stop the task after this time (90, 90s, 5m, 2h)
    #[arg(long, value_name = "TIME", help_heading = LIMITS)]
    pub(crate) timeout: Option<String>,
    /// Stop the task after this time without output
    #[arg(long, value_name = "TIME", help_heading = LIMITS)]
    pub(crate) idle_timeout: Option<String>,
    /// Keep this much of each stream from its beginning (500M, 1G)
    #[arg(long, value_name = "BYTES", help_heading = LIMITS)]
    pub(crate) output_limit: Option<String>,
    /// What to do when a stream exceeds --output-limit
    #[arg(long, value_enum, default_value_t = OnOutputLimitArg::Tail, value_name = "ACTION", help_heading = LIMITS)]
    pub(crate) on_output_limit: OnOutputLimitArg,
    /// When the task ends, copy its output into DIR/.runs
    #[arg(long, value_name = "DIR", help_heading = INPUT_AND_OUTPUT)]
    pub(crate) workspace: Option<std::path::PathBuf>,
    /// What to do with processes that outlive the command
    #[arg(long, value_enum, default_value_t = LeftoversArg::Kill, value_name = "ACTION", help_heading = LIMITS)]
    pub(crate) leftovers: LeftoversArg,
    /// Reason, shown to the person who approves
    #[arg(long, value_name = "TEXT", help_heading = APPROVAL)]
    pub(crate) why: Option<String>,
    /// Name of the task in lists
    #[arg(long, value_name = "TEXT", help_heading = RECORDS)]
    pub(crate) title: Option<String>,
    /// Record this label with the request; it is not checked
    #[arg(long, value_name = "NAME=TEXT", help_heading = RECORDS)]
    pub(crate) label: Vec<String>,
    /// Profile for this task: which commands need approval. An agent can only choose a stricter one
    #[arg(long, value_enum, help_heading = APPROVAL)]
    pub(crate) profile: Option<ProfileArg>,
    /// Sandbox to run in; a wider one than the default needs approval
    #[arg(long, value_enum, value_name = "SANDBOX", help_heading = APPROVAL)]
    pub(crate) confinement: Option<ConfinementArg>,
    /// Network access
    #[arg(long, value_enum, help_heading = APPROVAL)]
    pub(crate) network: Option<NetworkArg>,
    /// Deny a command that needs approval, because no person can answer
    #[arg(long, help_heading = APPROVAL)]
    pub(crate) unattended: bool,
    /// Run in this session
    #[arg(long, value_name = "SESSION", help_heading = RECORDS)]
    pub(crate) session: Option<String>,
    /// What to do when the session ends
    #[arg(long, value_enum, default_value_t = OnSessionEndArg::Keep, value_name = "ACTION", help_heading = RECORDS)]
    pub(crate) on_session_end: OnSessionEndArg,
    /// Do not wait for an approval; exit with 75
    #[arg(long, help_heading = APPROVAL)]
    pub(crate) no_wait: bool,
    /// Do not print the closing line
    #[arg(short, long, help_heading = INPUT_AND_OUTPUT)]
    pub(crate) quiet: bool,
    /// A file tool instead of a command; see `csn file`.
    #[arg(skip)]
    pub(crate) file: Option<FileCommand>,
}

const INPUT_AND_OUTPUT: &str = "Input and output";
const LIMITS: &str = "Limits";
const APPROVAL: &str = "Approval and sandbox";
const RECORDS: &str = "Session and records";

/// Options that every file tool takes.
#[derive(Args)]
pub(crate) struct FileArgs {
    #[command(subcommand)]
    pub(crate) command: FileCommand,
    /// Directory that relative paths start from
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) cwd: Option<std::path::PathBuf>,
    /// Print JSON frames, one per line, instead of output
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Reason, shown to the person who approves
    #[arg(long, value_name = "TEXT", global = true)]
    pub(crate) why: Option<String>,
    /// Deny a request that needs approval, because no person can answer
    #[arg(long, global = true)]
    pub(crate) unattended: bool,
    /// Run in this session
    #[arg(long, value_name = "SESSION", global = true)]
    pub(crate) session: Option<String>,
    /// Do not wait for an approval; exit with 75
    #[arg(long, global = true)]
    pub(crate) no_wait: bool,
    /// Do not print the closing line
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Subcommand)]
pub(crate) enum FileCommand {
    /// Print a file; secrets are redacted
    Read {
        /// File to read
        path: String,
        /// First line to print, counted from 1
        #[arg(long, value_name = "N")]
        first_line: Option<u64>,
        /// Number of lines to print
        #[arg(long, value_name = "N")]
        line_count: Option<u64>,
    },
    /// Write a file from standard input
    Write {
        /// File to write
        path: String,
    },
    /// Replace text in a file
    ///
    /// A placeholder that appears in both --old and --new keeps the secret that it stands for.
    Edit {
        /// File to edit
        path: String,
        /// Text to replace, as `csn file read` prints it
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        old: String,
        /// Replacement
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        new: String,
        /// Replace every occurrence; without this, the text must occur exactly once
        #[arg(long)]
        all: bool,
    },
}

impl FileArgs {
    /// A file tool runs as a task, with the settings of `csn run`.
    pub(crate) fn into_run(self) -> RunArgs {
        RunArgs {
            text: Vec::new(),
            argv: Vec::new(),
            pty: false,
            stdin: false,
            background: false,
            raw: false,
            json: self.json,
            cwd: self.cwd,
            env: Vec::new(),
            timeout: None,
            idle_timeout: None,
            output_limit: None,
            on_output_limit: OnOutputLimitArg::Tail,
            workspace: None,
            leftovers: LeftoversArg::Kill,
            title: None,
            why: self.why,
            label: Vec::new(),
            profile: None,
            confinement: None,
            network: None,
            unattended: self.unattended,
            session: self.session,
            on_session_end: OnSessionEndArg::Keep,
            no_wait: self.no_wait,
            quiet: self.quiet,
            file: Some(self.command),
        }
    }
}

#[derive(Args)]
pub(crate) struct LogsArgs {
    /// ID of the task; a unique prefix is enough
    pub(crate) task: String,
    /// Keep printing until the task ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print only this stream
    #[arg(long, value_enum)]
    pub(crate) stream: Option<StreamArg>,
    /// Last N lines of each stream, or lines FROM to TO
    #[arg(long, value_name = "N|FROM:TO")]
    pub(crate) lines: Option<String>,
    /// Last N lines of each stream
    #[arg(long, value_name = "N", conflicts_with = "lines")]
    pub(crate) tail: Option<u64>,
    /// Output since this time: 90s, 5m or 2h ago, or a timestamp
    #[arg(long, value_name = "TIME", conflicts_with_all = ["lines", "tail"])]
    pub(crate) since: Option<String>,
    /// Print the output frames as JSON lines instead of bytes
    #[arg(long, conflicts_with_all = ["lines", "tail"])]
    pub(crate) json: bool,
    /// Print output unchanged on a terminal too, with every escape sequence
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Args)]
pub(crate) struct SendArgs {
    /// ID of the task; a unique prefix is enough
    pub(crate) task: String,
    /// Text to send unchanged; `-` sends standard input
    pub(crate) text: Option<String>,
    /// Keys to send, as names separated by commas: ctrl-c,enter,up
    #[arg(long, value_delimiter = ',')]
    pub(crate) keys: Vec<String>,
    /// Send the text as a paste
    #[arg(long, requires = "text")]
    pub(crate) paste: bool,
    /// Press Enter after the text
    #[arg(long)]
    pub(crate) enter: bool,
    /// Close the input of the task after everything is sent
    #[arg(long)]
    pub(crate) eof: bool,
}

#[derive(Args)]
pub(crate) struct SearchArgs {
    /// ID of the task; a unique prefix is enough
    pub(crate) task: String,
    /// Text to find; with --regex, a regular expression
    pub(crate) pattern: String,
    /// Treat the pattern as a regular expression
    #[arg(short = 'e', long)]
    pub(crate) regex: bool,
    /// Ignore upper and lower case
    #[arg(short, long)]
    pub(crate) ignore_case: bool,
    /// Print this many lines around each match (0 to 20)
    #[arg(short = 'C', long, value_name = "LINES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub(crate) context: u32,
    /// Stop after N matches
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max: Option<u64>,
    /// Search only this stream
    #[arg(long, value_enum)]
    pub(crate) stream: Option<StreamArg>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// ID of the task; a unique prefix is enough
    pub(crate) task: String,
    /// Multiply the speed: 2 plays twice as fast, 0.5 half as fast
    #[arg(long, value_name = "FACTOR")]
    pub(crate) speed: Option<f64>,
    /// Print everything without pauses
    #[arg(long, conflicts_with = "speed")]
    pub(crate) instant: bool,
    /// Shorten pauses to at most this many seconds
    #[arg(long, value_name = "SECONDS", conflicts_with = "instant")]
    pub(crate) max_pause: Option<f64>,
    /// Write an asciicast recording (v2 or v3) to a new file; `-` is standard output
    #[arg(long, num_args = 2, value_names = ["v2|v3", "FILE"])]
    pub(crate) cast: Vec<String>,
    /// Print the text without escape sequences
    #[arg(long, conflicts_with_all = ["cast", "speed", "instant"])]
    pub(crate) text: bool,
}

#[derive(Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the approvals that wait
    List {
        /// List answered approvals too
        #[arg(long)]
        all: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show one approval and its possible answers
    Show {
        /// ID of the approval; a unique prefix is enough
        approval: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Answer an approval
    ///
    /// Every answer except `once` and `deny` also saves a grant for similar commands. `csn approvals show` lists the answers
    /// that an approval accepts.
    Answer {
        /// ID of the approval; a unique prefix is enough
        approval: String,
        /// The answer
        #[arg(value_name = "ANSWER", value_parser = answers())]
        choice: String,
        /// Message to the agent
        #[arg(long, value_name = "TEXT")]
        words: Option<String>,
        /// Let the saved grant cover any arguments, where it would cover only these
        #[arg(long)]
        any_arguments: bool,
    },
    /// Show approvals as they arrive; in a terminal, ask for answers
    Watch {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
}

/// The answers to an approval, for help, completions and typing errors.
fn answers() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(Choice::ALL.map(|choice| {
        PossibleValue::new(choice.as_str()).help(match choice {
            Choice::Once => "Approve this command only, once",
            Choice::Session => "Approve similar commands in this session",
            Choice::Here => "Approve similar commands in the directory that the approval shows, and below",
            Choice::Repository => "Approve similar commands in the whole repository",
            Choice::Anywhere => "Approve similar commands everywhere",
            Choice::Deny => "Deny this command",
        })
    }))
}

#[derive(Subcommand)]
pub(crate) enum GrantsCommand {
    /// List all grants
    List {
        /// Print one JSON object per line, as stored
        #[arg(long)]
        json: bool,
    },
    /// Add a grant: approve a command in advance
    ///
    /// The grant covers any arguments, and the risks that the command normally has (`csn policy explain VERB` lists
    /// them). Give a label such as 'cargo test in /srv/a', or --verb with --in or --anywhere.
    Add(GrantArgs),
    /// Run the commands of a grant in the narrowest sandbox that they need
    ///
    /// Older grants run their commands without a sandbox; `csn grants list` marks them.
    Narrow {
        /// ID or label of the grant
        grant: Vec<String>,
        /// Narrow every grant that runs without a sandbox
        #[arg(long)]
        all: bool,
    },
    /// Revoke a grant
    Revoke {
        /// ID or label of the grant
        #[arg(required = true)]
        grant: Vec<String>,
    },
}

#[derive(Args)]
pub(crate) struct GrantArgs {
    /// Label: 'PROGRAM in DIR' or 'PROGRAM anywhere'
    pub(crate) label: Vec<String>,
    /// Program and subcommand, such as 'cargo test'
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) verb: Option<String>,
    /// Allow it in this directory and below
    #[arg(long = "in", value_name = "DIR")]
    pub(crate) within: Option<std::path::PathBuf>,
    /// Allow it everywhere
    #[arg(long)]
    pub(crate) anywhere: bool,
    /// Accept exactly these risks instead of the usual ones of the command: write, destructive, network, credential, host_modifying, filesystem_wide,
    /// workspace_code, interactive, background
    #[arg(long, value_name = "RISK,...", value_delimiter = ',')]
    pub(crate) accept: Vec<String>,
    /// Sandbox of the commands (the narrowest that their risks need if not given)
    #[arg(long, value_enum, value_name = "SANDBOX")]
    pub(crate) confinement: Option<ConfinementArg>,
    /// Audience of the requests: personal, team or public
    #[arg(long)]
    pub(crate) audience: Option<String>,
    /// Tool that the grant is for (shell if not given)
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Allow it only in this session
    #[arg(long)]
    pub(crate) session: Option<String>,
    /// Expire after this time (90m, 8h, 30d)
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<String>,
    /// Expire after N commands
    #[arg(long, value_name = "N")]
    pub(crate) uses: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Subcommand)]
pub(crate) enum SessionsCommand {
    /// List the open sessions
    List {
        /// List ended sessions too
        #[arg(long)]
        all: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Open a session and print its ID
    Open {
        /// Directory for requests that name none
        #[arg(long = "in", value_name = "DIR")]
        directory: Option<std::path::PathBuf>,
        /// Name of the session in lists
        #[arg(long, value_name = "TEXT")]
        title: Option<String>,
        /// Register the calling process as an agent; it and its children can ask, but not approve
        #[arg(long)]
        agent: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show one session as JSON
    Show {
        /// ID of the session
        session: String,
    },
    /// Change the working directory of a session
    ///
    /// A directory outside the workspace roots of the session needs approval.
    Cd {
        /// ID of the session
        session: String,
        /// New working directory
        directory: std::path::PathBuf,
    },
    /// End a session and remove its grants
    End {
        /// ID of the session
        session: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum ReceiptsCommand {
    /// List receipts, newest first
    List {
        /// Number of receipts to list
        #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show one receipt
    Show {
        /// ID of a task, or ID or number of a receipt
        #[arg(value_name = "TASK|RECEIPT")]
        receipt: String,
        /// Print the signed statement as JSON
        #[arg(long)]
        json: bool,
        /// Print the signed envelope (DSSE), for other verifiers
        #[arg(long, conflicts_with = "json")]
        envelope: bool,
    },
    /// Export receipts as JSON lines, with the keys that verify them
    ///
    /// Name tasks or receipts, or a part of the receipt chain with --from and --to.
    Export {
        /// IDs of tasks, or IDs or numbers of receipts
        #[arg(value_name = "TASK|RECEIPT")]
        receipts: Vec<String>,
        /// First receipt number to export
        #[arg(long, value_name = "N")]
        from: Option<u64>,
        /// Last receipt number to export
        #[arg(long, value_name = "N")]
        to: Option<u64>,
        /// Write to this new file instead of standard output
        #[arg(long, short, value_name = "FILE")]
        output: Option<std::path::PathBuf>,
    },
    /// Verify receipts (same as `csn verify`)
    Verify(VerifyArgs),
    /// Print the ledger head (a signed checkpoint of the ledger)
    ///
    /// Keep it on another machine. `csn verify --since` then proves that no earlier record was removed.
    Head {
        /// Write to this new file instead of standard output
        #[arg(long, short, value_name = "FILE")]
        output: Option<std::path::PathBuf>,
    },
}

#[derive(Args)]
pub(crate) struct VerifyArgs {
    /// A task, a receipt (ID or number), or an exported file or directory; everything if not given
    #[arg(value_name = "TASK|RECEIPT|FILE")]
    pub(crate) target: Option<String>,
    /// First receipt number to verify
    #[arg(long, value_name = "N", conflicts_with = "target")]
    pub(crate) from: Option<u64>,
    /// Last receipt number to verify
    #[arg(long, value_name = "N", conflicts_with = "target")]
    pub(crate) to: Option<u64>,
    /// Ledger head that you kept (csn receipts head); no record before it may be missing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "from", "to"])]
    pub(crate) since: Option<std::path::PathBuf>,
    /// Trust only this public key (csn keys export) and the keys that it announced
    #[arg(long, value_name = "PEM")]
    pub(crate) key: Vec<std::path::PathBuf>,
    /// Verify receipts only, not the stored files of tasks
    #[arg(long)]
    pub(crate) receipts_only: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct ExportArgs {
    /// ID of a task, or ID or number of its receipt
    #[arg(value_name = "TASK|RECEIPT")]
    pub(crate) task: String,
    /// New archive to write (TASK.tar in this directory if not given)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<std::path::PathBuf>,
}

#[derive(Subcommand)]
pub(crate) enum KeysCommand {
    /// List all keys, oldest first
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Print a public key as PEM
    Export {
        /// ID of the key, or a prefix of it (the current key if not given)
        key: Option<String>,
    },
    /// Replace the signing key with a new one
    ///
    /// The old key signs the announcement of the new one and is then destroyed.
    Rotate {
        /// The old key is lost and cannot sign the announcement
        #[arg(long)]
        lost: bool,
    },
}

#[derive(Args)]
pub(crate) struct InstallArgs {
    /// Agent to connect
    #[arg(value_enum)]
    pub(crate) agent: AgentProgram,
    /// How the agent's commands reach Countersign (what suits the agent if not given)
    #[arg(long, value_enum)]
    pub(crate) mode: Option<InstallMode>,
    /// Which configuration to edit
    #[arg(long, value_enum, default_value_t = InstallScope::User)]
    pub(crate) scope: InstallScope,
    /// Print the changes; change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Remove Countersign from the agent's configuration
    #[arg(long, conflicts_with_all = ["mode", "witness"])]
    pub(crate) uninstall: bool,
    /// Witness mode: the agent runs the command itself; Countersign decides and records
    #[arg(long)]
    pub(crate) witness: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Subcommand)]
pub(crate) enum ServiceCommand {
    /// Install the service and start it; systemd then starts it automatically
    Install {
        /// Install the system service: one daemon for all users, with a system user of its own
        #[arg(long)]
        system: bool,
        /// Print the unit file; install nothing
        #[arg(long)]
        print: bool,
    },
    /// Stop the service and remove it; tasks and records stay
    Uninstall {
        /// Remove the system service
        #[arg(long)]
        system: bool,
    },
    /// Check whether the service is installed and runs
    ///
    /// The exit code is 1 if it does not run.
    Status {
        /// Check the system service
        #[arg(long)]
        system: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it once
    Create {
        /// Token for a person
        #[arg(long)]
        person: bool,
        /// Token for an agent; it can never approve
        #[arg(long, conflicts_with = "person")]
        agent: bool,
        /// What the token allows: observe, run, approve, admin
        #[arg(long, required = true, value_delimiter = ',')]
        scope: Vec<String>,
        /// Name of the token in lists
        #[arg(long)]
        name: String,
        /// Issue the token to another principal, who does not see your tasks nor you theirs
        #[arg(long)]
        principal: Option<String>,
        /// Audience of its requests: personal, team or public
        #[arg(long)]
        audience: Option<String>,
        /// Expire after this time (90m, 8h, 30d)
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// List all tokens and when each was last used
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token
    Revoke {
        /// ID or name of the token
        token: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum LeftoversArg {
    /// Stop them
    Kill,
    /// Keep the task running until they end
    Keep,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ProfileArg {
    /// Run only read-only and granted commands; deny the rest without asking
    Locked,
    /// Run read-only and granted commands; ask about the rest
    Safe,
    /// Run every command that is not denied, in a workspace sandbox with network; ask only about sudo
    FullAuto,
}

impl From<ProfileArg> for Profile {
    fn from(arg: ProfileArg) -> Self {
        match arg {
            ProfileArg::Locked => Self::Locked,
            ProfileArg::Safe => Self::Safe,
            ProfileArg::FullAuto => Self::FullAuto,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ConfinementArg {
    /// Not sandboxed: your rights, but no signals to other processes and no tracing
    Shield,
    /// Sandboxed (workspace): writes the workspace roots, TMPDIR and caches; reads no credentials outside them
    Workspace,
    /// Sandboxed (read-only): reads the workspace roots and the system; writes only its TMPDIR; no network
    ReadOnly,
}

impl From<ConfinementArg> for Confinement {
    fn from(arg: ConfinementArg) -> Self {
        match arg {
            ConfinementArg::Shield => Self::Shield,
            ConfinementArg::Workspace => Self::Workspace,
            ConfinementArg::ReadOnly => Self::ReadOnly,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum NetworkArg {
    /// No network
    None,
    /// Full network access; needs approval. A command that only reads gets none
    Open,
}

impl From<NetworkArg> for Network {
    fn from(arg: NetworkArg) -> Self {
        match arg {
            NetworkArg::None => Self::None,
            NetworkArg::Open => Self::Open,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum StreamArg {
    Stdout,
    Stderr,
    Pty,
}

impl StreamArg {
    pub(crate) fn name(self) -> StreamName {
        match self {
            StreamArg::Stdout => StreamName::Stdout,
            StreamArg::Stderr => StreamName::Stderr,
            StreamArg::Pty => StreamName::Pty,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ViewArg {
    /// Records as the daemon keeps them
    Native,
    /// The same records, with kinds that start with `terminal.`
    Terminal,
    /// Events of a tool call: status, output, artifacts
    ToolTask,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum OnSessionEndArg {
    /// Keep the task running
    Keep,
    /// Stop the task
    Stop,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum OnOutputLimitArg {
    /// Keep the task running; also keep the last mebibyte
    Tail,
    /// Stop the task
    Kill,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Elvish,
    Fish,
    Zsh,
}
