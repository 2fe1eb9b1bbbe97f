//! What can be typed.

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use countersign_install::{AgentProgram, InstallMode, InstallScope};
use countersign_model::{Confinement, Network, Profile, StreamName};
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
        /// Where to listen for those who have a token
        #[arg(long, value_name = "127.0.0.1:PORT")]
        tcp: Option<String>,
        /// For every user of the machine, as its service starts it (csn service install --system)
        #[arg(long, conflicts_with_all = ["detach", "detached", "tcp"])]
        system: bool,
    },
    /// Stop the daemon; tasks go on unless told otherwise
    Down {
        /// Stop every running task first
        #[arg(long)]
        stop_tasks: bool,
        /// Let them go on, whatever the configuration says
        #[arg(long, conflicts_with = "stop_tasks")]
        keep_tasks: bool,
    },
    /// Run a command as a task and pass on its output and exit code
    ///
    /// Its standard input is empty unless --stdin or --pty is given. Ctrl-C interrupts it, twice cancels it; Ctrl-\
    /// Ctrl-D leaves it to run by itself.
    #[command(override_usage = "csn run [OPTIONS] 'shell text'\n       csn run [OPTIONS] -- PROGRAM [ARGUMENT]...")]
    Run(Box<RunArgs>),
    /// Read, write or edit one file as a task: asked about, recorded, with secrets taken out and left where they are
    File(Box<FileArgs>),
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
        /// Its records as JSON lines, in this vocabulary
        #[arg(long, value_enum, conflicts_with = "json")]
        view: Option<ViewArg>,
        /// What its terminal shows
        #[arg(long, conflicts_with = "view")]
        screen: bool,
    },
    /// Print what a task has written, byte for byte
    Logs(LogsArgs),
    /// Put a task on this terminal; Ctrl-\ Ctrl-D leaves it to itself again
    Attach {
        task: String,
        /// Look on, type nothing
        #[arg(long)]
        read_only: bool,
        /// The keys that let go
        #[arg(long, value_name = "KEYS", default_value = crate::terminal::detach::DETACH_KEYS)]
        detach_keys: String,
    },
    /// Type into a task
    Send(SendArgs),
    /// Set the size of a task's terminal
    Resize { task: String, rows: u16, cols: u16 },
    /// Find something in what a task has written; exit 1 when it is not there
    Search(SearchArgs),
    /// Play a task's recording; nothing is started
    Replay(ReplayArgs),
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
    /// What has been approved for good
    Grants {
        #[command(subcommand)]
        command: Option<GrantsCommand>,
    },
    /// Conversations of agents and clients
    Sessions {
        #[command(subcommand)]
        command: Option<SessionsCommand>,
    },
    /// Signed accounts of what was asked, decided and done
    Receipts {
        #[command(subcommand)]
        command: ReceiptsCommand,
    },
    /// Check what was kept against what was signed: everything, a task, a receipt, or an exported file
    ///
    /// Works without a daemon. Exit code 0 only if all of it holds.
    Verify(VerifyArgs),
    /// The keys that receipts are signed with
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Put a task into one archive: receipt, stream, output, plan, keys; `csn verify` checks it anywhere
    Export(ExportArgs),
    /// Have an agent's commands go through Countersign: its hook or its MCP server, written into its configuration
    ///
    /// Comments and everything else in the files stay. What was written is proved with a command that must be denied.
    Install(InstallArgs),
    /// The daemon as a service of systemd
    Service {
        #[command(subcommand)]
        command: ServiceCommand,
    },
    /// Credentials for those who do not come through the socket
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Say what the gate would do with a command, and why; nothing is run
    ///
    /// Exit code 0 when it would run unasked, 75 when a person would be asked, 77 when it would be refused.
    #[command(
        override_usage = "csn check [OPTIONS] 'shell text'\n       csn check [OPTIONS] -- PROGRAM [ARGUMENT]...\n       csn check --batch [FILE]"
    )]
    Check(Box<CheckArgs>),
    /// What the gate goes by
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Take secrets out of what passes through: standard input, or files, to standard output
    ///
    /// Values of this environment that look secret go too, in every form. `csn redact test` tries every example of every
    /// rule.
    #[command(override_usage = "csn redact [OPTIONS] [FILE]...\n       csn redact test")]
    Redact(RedactArgs),
    /// Check the house: daemon, home, ledger, supervisor, kernel, disk, clock, installed agents
    Doctor {
        #[arg(long)]
        json: bool,
        /// Make the ledger's index anew and clear away what is left over
        #[arg(long)]
        fix: bool,
    },
    /// Remove what old tasks have written; decisions and digests stay
    Gc {
        /// Only what settled longer ago than this
        #[arg(long, value_name = "DAYS")]
        older_than: Option<u64>,
        /// The newest so much is kept: 500M, 10G
        #[arg(long, value_name = "BYTES")]
        keep: Option<String>,
        /// Say what would go
        #[arg(long)]
        dry_run: bool,
        #[arg(long)]
        json: bool,
    },
    /// Answer an agent's hook: what it is about to run is read from standard input (csn install writes this)
    Hook {
        agent: HookAgent,
        /// The agent runs what is allowed; the house decides and writes down
        #[arg(long)]
        witness: bool,
    },
    /// Run what a hook has let through, as a task, and pass on its output and exit code
    #[command(override_usage = "csn exec --ticket TICKET -- 'shell text'")]
    Exec(ExecArgs),
    /// Speak MCP on standard input and output, for an agent that starts this
    Mcp,
    /// Print completions for a shell
    Completions { shell: Shell },
}

/// Agents whose hooks are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookAgent {
    ClaudeCode,
    Codex,
    Opencode,
}

#[derive(Args)]
pub(crate) struct ExecArgs {
    /// What the hook was given
    #[arg(long, value_name = "TICKET", required_unless_present = "leave")]
    pub(crate) ticket: Option<String>,
    /// Print what brings a shell to where the command of this ticket ended
    #[arg(long, value_name = "TICKET", hide = true, conflicts_with = "ticket")]
    pub(crate) leave: Option<String>,
    /// The command, exactly as the hook was asked about it
    #[arg(last = false, trailing_var_arg = false, allow_hyphen_values = true)]
    pub(crate) command: Option<String>,
}

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// Shell text, as `csn run` takes it; with --batch a file of JSON lines, or standard input
    pub(crate) text: Vec<String>,
    /// A program and its arguments
    #[arg(last = true, conflicts_with = "text")]
    pub(crate) argv: Vec<String>,
    /// Many commands, one JSON object a line; answers in the same way
    #[arg(long)]
    pub(crate) batch: bool,
    /// The answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Where it would run
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<std::path::PathBuf>,
    /// A directory that may be read unasked, in place of the repository around it
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Vec<String>,
    /// As if this were granted: 'cargo test in /srv/a', 'git push anywhere'
    #[arg(long, value_name = "GRANT")]
    pub(crate) grant: Vec<String>,
    #[arg(long, value_enum)]
    pub(crate) profile: Option<ProfileArg>,
    /// As if this had been asked for
    #[arg(long, value_enum)]
    pub(crate) confinement: Option<ConfinementArg>,
    #[arg(long, value_enum)]
    pub(crate) network: Option<NetworkArg>,
    /// As if nobody could be asked
    #[arg(long)]
    pub(crate) unattended: bool,
    /// As if config.toml were not there
    #[arg(long)]
    pub(crate) no_config: bool,
}

#[derive(Args)]
pub(crate) struct RedactArgs {
    /// Say on standard error what was found where, never what it was
    #[arg(long)]
    pub(crate) report: bool,
    /// List the rules
    #[arg(long, conflicts_with_all = ["report", "words"])]
    pub(crate) rules: bool,
    /// Print an example of every rule, made up now: something to try a pipeline or a scanner with
    #[arg(long, conflicts_with_all = ["report", "words", "rules", "json"])]
    pub(crate) examples: bool,
    /// Report or rules as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Leave the rules of config.toml out
    #[arg(long)]
    pub(crate) no_config: bool,
    /// Files to read, one after the other
    #[arg(value_name = "FILE")]
    pub(crate) words: Vec<String>,
}

#[derive(Subcommand)]
pub(crate) enum PolicyCommand {
    /// Try every example of every rule and table
    Test {
        #[arg(long)]
        json: bool,
    },
    /// What is known about a verb: its read-only forms, its risks, the rules that name it
    Explain {
        /// For example: git push
        #[arg(required = true)]
        verb: Vec<String>,
    },
}

#[derive(Args)]
pub(crate) struct RunArgs {
    /// Shell text, run by bash; one word for the shell that you type it into, so quote it
    #[arg(required_unless_present = "argv")]
    pub(crate) text: Vec<String>,
    /// A program and its arguments, run without a shell
    #[arg(last = true, conflicts_with = "text")]
    pub(crate) argv: Vec<String>,
    /// Give it a terminal, and this one to you
    #[arg(long)]
    pub(crate) pty: bool,
    /// Pass standard input on; with --background leave it open for `csn send`
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Return at once; the task goes on
    #[arg(long)]
    pub(crate) background: bool,
    /// Output as it is, with every escape, also on a terminal
    #[arg(long)]
    pub(crate) raw: bool,
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
    /// Stop it after this long without output
    #[arg(long, value_name = "TIME")]
    pub(crate) idle_timeout: Option<String>,
    /// How much of each stream is kept from its beginning: 500M, 1G
    #[arg(long, value_name = "BYTES")]
    pub(crate) output_limit: Option<String>,
    /// What becomes of it when it writes more
    #[arg(long, value_enum, default_value_t = OnOutputLimitArg::Tail)]
    pub(crate) on_output_limit: OnOutputLimitArg,
    /// Publish what it wrote below DIR, in .runs, when it has ended
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<std::path::PathBuf>,
    /// What becomes of processes that outlive the command
    #[arg(long, value_enum, default_value_t = LeftoversArg::Kill)]
    pub(crate) leftovers: LeftoversArg,
    /// A name for lists
    #[arg(long)]
    pub(crate) title: Option<String>,
    /// Why, for whoever is asked to approve it
    #[arg(long)]
    pub(crate) why: Option<String>,
    /// What is written down beside it, unchecked
    #[arg(long, value_name = "NAME=TEXT")]
    pub(crate) label: Vec<String>,
    /// How much the house asks for this one
    #[arg(long, value_enum)]
    pub(crate) profile: Option<ProfileArg>,
    /// The sandbox to run in: a narrower one than it would get, or a wider one, for which a person is asked
    #[arg(long, value_enum)]
    pub(crate) confinement: Option<ConfinementArg>,
    /// `open`: it needs the network, which a person is asked about; `none`: it reaches nobody
    #[arg(long, value_enum)]
    pub(crate) network: Option<NetworkArg>,
    /// Nobody can be asked: what needs approval is denied
    #[arg(long)]
    pub(crate) unattended: bool,
    /// As part of this session
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// What becomes of it when its session ends
    #[arg(long, value_enum, default_value_t = OnSessionEndArg::Keep)]
    pub(crate) on_session_end: OnSessionEndArg,
    /// Do not wait for an approval: exit 75
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// No closing line
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// A file tool instead of a command; see `csn file`.
    #[arg(skip)]
    pub(crate) file: Option<FileCommand>,
}

/// Where a file tool works, and who may be asked.
#[derive(Args)]
pub(crate) struct FileArgs {
    #[command(subcommand)]
    pub(crate) command: FileCommand,
    /// The directory that paths are below
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) cwd: Option<std::path::PathBuf>,
    /// Frames as JSON lines instead of output
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Why, for whoever is asked to approve it
    #[arg(long, global = true)]
    pub(crate) why: Option<String>,
    /// Nobody can be asked: what needs approval is denied
    #[arg(long, global = true)]
    pub(crate) unattended: bool,
    /// As part of this session
    #[arg(long, value_name = "SESSION", global = true)]
    pub(crate) session: Option<String>,
    /// Do not wait for an approval: exit 75
    #[arg(long, global = true)]
    pub(crate) no_wait: bool,
    /// No closing line
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Subcommand)]
pub(crate) enum FileCommand {
    /// Show a file, with its secrets taken out
    Read {
        path: String,
        /// The first line to show, from 1
        #[arg(long, value_name = "N")]
        first_line: Option<u64>,
        /// How many lines
        #[arg(long, value_name = "N")]
        line_count: Option<u64>,
    },
    /// Write a file whole, from standard input
    Write { path: String },
    /// Replace a piece of a file; what it stands for is kept where a placeholder stands in both
    Edit {
        path: String,
        /// What stands there now, as `csn file read` shows it
        #[arg(long, allow_hyphen_values = true)]
        old: String,
        /// What shall stand there
        #[arg(long, allow_hyphen_values = true)]
        new: String,
        /// Wherever it stands; without this it must stand there once
        #[arg(long)]
        all: bool,
    },
}

impl FileArgs {
    /// The same as a task like any other.
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
    pub(crate) task: String,
    /// Go on until the task ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// One stream only
    #[arg(long, value_enum)]
    pub(crate) stream: Option<StreamArg>,
    /// Only the last lines of each stream, or those FROM:TO
    #[arg(long, value_name = "N|FROM:TO")]
    pub(crate) lines: Option<String>,
    /// Only the last lines of each stream
    #[arg(long, value_name = "N", conflicts_with = "lines")]
    pub(crate) tail: Option<u64>,
    /// Only what was written since: 90s, 5m, 2h ago, or a time
    #[arg(long, value_name = "TIME", conflicts_with_all = ["lines", "tail"])]
    pub(crate) since: Option<String>,
    /// The output frames as JSON lines instead of bytes
    #[arg(long, conflicts_with_all = ["lines", "tail"])]
    pub(crate) json: bool,
    /// With every escape, also on a terminal
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Args)]
pub(crate) struct SendArgs {
    pub(crate) task: String,
    /// Text, as it is; `-` for standard input
    pub(crate) text: Option<String>,
    /// Keys by name, one after another: ctrl-c,enter,up
    #[arg(long, value_delimiter = ',')]
    pub(crate) keys: Vec<String>,
    /// The text as a paste
    #[arg(long, requires = "text")]
    pub(crate) paste: bool,
    /// Enter, after the text
    #[arg(long)]
    pub(crate) enter: bool,
    /// The end of input, after everything
    #[arg(long)]
    pub(crate) eof: bool,
}

#[derive(Args)]
pub(crate) struct SearchArgs {
    pub(crate) task: String,
    pub(crate) pattern: String,
    /// The pattern is a regular expression
    #[arg(short = 'e', long)]
    pub(crate) regex: bool,
    #[arg(short, long)]
    pub(crate) ignore_case: bool,
    /// Lines around each match
    #[arg(short = 'C', long, value_name = "LINES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub(crate) context: u32,
    /// No more than so many
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max: Option<u64>,
    #[arg(long, value_enum)]
    pub(crate) stream: Option<StreamArg>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct ReplayArgs {
    pub(crate) task: String,
    /// Twice as fast: 2
    #[arg(long)]
    pub(crate) speed: Option<f64>,
    /// All at once
    #[arg(long, conflicts_with = "speed")]
    pub(crate) instant: bool,
    /// No pause longer than so many seconds
    #[arg(long, value_name = "SECONDS", conflicts_with = "instant")]
    pub(crate) max_pause: Option<f64>,
    /// Write an asciicast instead; `-` for standard output
    #[arg(long, num_args = 2, value_names = ["v2|v3", "FILE"])]
    pub(crate) cast: Vec<String>,
    /// Print the text without the escapes that drew it
    #[arg(long, conflicts_with_all = ["cast", "speed", "instant"])]
    pub(crate) text: bool,
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
    /// Answer one: what can be answered, `show` says
    Answer {
        /// Its id, or the beginning of it
        approval: String,
        /// once, session, here, repository, anywhere or deny
        #[arg(value_name = "once|session|here|repository|anywhere|deny")]
        choice: String,
        /// What the agent should know
        #[arg(long)]
        words: Option<String>,
        /// What is saved covers any words, where it would be these only
        #[arg(long)]
        any_arguments: bool,
    },
    /// Show questions as they come, and at a terminal ask them
    Watch {
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum GrantsCommand {
    /// Every grant that holds
    List {
        /// As they are stored, one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Approve something beforehand: 'cargo test in /srv/a', or --verb with --in or --anywhere
    Add(GrantArgs),
    /// Run the calls of a grant in the narrowest sandbox that their risks need, not open
    Narrow {
        grant: Vec<String>,
        /// Every grant that runs open
        #[arg(long)]
        all: bool,
    },
    /// Take back a grant, by id or by label
    Revoke {
        #[arg(required = true)]
        grant: Vec<String>,
    },
}

#[derive(Args)]
pub(crate) struct GrantArgs {
    /// 'VERB in DIR' or 'VERB anywhere'
    pub(crate) label: Vec<String>,
    /// Program and subcommand: 'cargo test'
    #[arg(long)]
    pub(crate) verb: Option<String>,
    /// In this directory and below
    #[arg(long = "in", value_name = "DIR")]
    pub(crate) within: Option<std::path::PathBuf>,
    /// Everywhere
    #[arg(long)]
    pub(crate) anywhere: bool,
    /// Only these risks: write, destructive, network, credential, host_modifying, filesystem_wide, workspace_code,
    /// interactive, background
    #[arg(long, value_name = "RISK,...", value_delimiter = ',')]
    pub(crate) accept: Vec<String>,
    /// The sandbox of its calls: `shield` runs them open; without this, the narrowest that their risks need
    #[arg(long, value_enum)]
    pub(crate) confinement: Option<ConfinementArg>,
    /// personal, team or public
    #[arg(long)]
    pub(crate) audience: Option<String>,
    /// shell, unless named
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Only for this session
    #[arg(long)]
    pub(crate) session: Option<String>,
    /// For so long: 90m, 8h, 30d
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<String>,
    /// For so many calls
    #[arg(long, value_name = "N")]
    pub(crate) uses: Option<u64>,
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Subcommand)]
pub(crate) enum SessionsCommand {
    /// Those that are open
    List {
        /// Ended ones too
        #[arg(long)]
        all: bool,
        #[arg(long)]
        json: bool,
    },
    /// Open one and print its id
    Open {
        /// Where its requests run that name no directory
        #[arg(long = "in", value_name = "DIR")]
        directory: Option<std::path::PathBuf>,
        #[arg(long)]
        title: Option<String>,
        /// The process that runs this command is an agent from now on, with everything below it
        #[arg(long)]
        agent: bool,
        #[arg(long)]
        json: bool,
    },
    /// Everything about one, as JSON
    Show { session: String },
    /// Work elsewhere; outside of its roots a person is asked
    Cd { session: String, directory: std::path::PathBuf },
    /// End one: its grants go
    End { session: String },
}

#[derive(Subcommand)]
pub(crate) enum ReceiptsCommand {
    /// The newest first
    List {
        /// How many
        #[arg(long, short = 'n', default_value_t = 50)]
        limit: usize,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// One of them: by task, by its own id, or by its number
    Show {
        #[arg(value_name = "TASK|RECEIPT")]
        receipt: String,
        /// The signed statement as JSON
        #[arg(long)]
        json: bool,
        /// The signed envelope (DSSE), as others verify it
        #[arg(long, conflicts_with = "json")]
        envelope: bool,
    },
    /// Envelopes, one to a line, with the keys that verify them
    Export {
        #[arg(value_name = "TASK|RECEIPT")]
        receipts: Vec<String>,
        /// From this number on
        #[arg(long)]
        from: Option<u64>,
        /// Up to this number
        #[arg(long)]
        to: Option<u64>,
        /// A new file, instead of standard output
        #[arg(long, short)]
        output: Option<std::path::PathBuf>,
    },
    /// The same as `csn verify`
    Verify(VerifyArgs),
    /// A signed head of the ledger: kept elsewhere, it proves that nothing before it was taken back
    Head {
        /// A new file, instead of standard output
        #[arg(long, short)]
        output: Option<std::path::PathBuf>,
    },
}

#[derive(Args)]
pub(crate) struct VerifyArgs {
    /// A task, a receipt (id or number), or a file or directory that was exported; without one, everything
    #[arg(value_name = "TASK|RECEIPT|FILE")]
    pub(crate) target: Option<String>,
    /// Receipts from this number on
    #[arg(long, conflicts_with = "target")]
    pub(crate) from: Option<u64>,
    /// Receipts up to this number
    #[arg(long, conflicts_with = "target")]
    pub(crate) to: Option<u64>,
    /// A head that was kept elsewhere (csn receipts head): nothing before it may be missing
    #[arg(long, value_name = "HEAD", conflicts_with_all = ["target", "from", "to"])]
    pub(crate) since: Option<std::path::PathBuf>,
    /// Trust this public key (csn keys export), and those that it speaks for, and no other
    #[arg(long, value_name = "PEM")]
    pub(crate) key: Vec<std::path::PathBuf>,
    /// Leave the files of tasks alone
    #[arg(long)]
    pub(crate) receipts_only: bool,
    /// What was found, as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct ExportArgs {
    /// A task, or its receipt by id or number
    #[arg(value_name = "TASK|RECEIPT")]
    pub(crate) task: String,
    /// The archive to make; TASK.tar here, if none is named
    #[arg(long, short)]
    pub(crate) output: Option<std::path::PathBuf>,
}

#[derive(Subcommand)]
pub(crate) enum KeysCommand {
    /// Every key, oldest first
    List {
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// The public half, as openssl reads it
    Export {
        /// The beginning of its id; the one in use, if none is named
        key: Option<String>,
    },
    /// Go over to a new key; the old one speaks for it
    Rotate {
        /// The old one is lost and cannot speak
        #[arg(long)]
        lost: bool,
    },
}

#[derive(Args)]
pub(crate) struct InstallArgs {
    #[arg(value_enum)]
    pub(crate) agent: AgentProgram,
    /// A hook before each command, tools through MCP, or both; what suits the agent if not said
    #[arg(long, value_enum)]
    pub(crate) mode: Option<InstallMode>,
    /// For you everywhere, or for the project around this directory
    #[arg(long, value_enum, default_value_t = InstallScope::User)]
    pub(crate) scope: InstallScope,
    /// Show what would be changed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take it out again
    #[arg(long, conflicts_with_all = ["mode", "witness"])]
    pub(crate) uninstall: bool,
    /// The agent runs commands itself; the hook only decides and writes down
    #[arg(long)]
    pub(crate) witness: bool,
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Subcommand)]
pub(crate) enum ServiceCommand {
    /// Write the unit, and have systemd start it now and with every login
    Install {
        /// For the machine: a house with a user of its own, which runs tasks as whoever asks
        #[arg(long)]
        system: bool,
        /// Print the unit, and do nothing
        #[arg(long)]
        print: bool,
    },
    /// Stop it and remove the unit; tasks go on, and nothing that was recorded goes
    Uninstall {
        /// The machine's
        #[arg(long)]
        system: bool,
    },
    /// Whether it is installed and runs; exit 1 when it does not
    Status {
        /// The machine's
        #[arg(long)]
        system: bool,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Make one; it is shown once
    Create {
        /// For a person
        #[arg(long)]
        person: bool,
        /// For an agent: it never approves
        #[arg(long, conflicts_with = "person")]
        agent: bool,
        /// observe, run, approve, admin
        #[arg(long, required = true, value_delimiter = ',')]
        scope: Vec<String>,
        #[arg(long)]
        name: String,
        /// Somebody else than you, by name: what is theirs is not seen by others
        #[arg(long)]
        principal: Option<String>,
        /// personal, team or public
        #[arg(long)]
        audience: Option<String>,
        /// For so long: 90m, 8h, 30d
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Every one, with when it was used last
    List {
        #[arg(long)]
        json: bool,
    },
    /// Take one back, by id or by name
    Revoke { token: String },
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
    /// With your rights; it cannot signal or trace other processes
    Shield,
    /// Writes the roots, its own TMPDIR and caches; reads no keys of the home
    Workspace,
    /// Reads the roots and the system; writes nothing, reaches nobody
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
    None,
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
    Native,
    Terminal,
    ToolTask,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum OnSessionEndArg {
    Keep,
    Stop,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum OnOutputLimitArg {
    Tail,
    Kill,
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
