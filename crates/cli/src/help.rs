//! The help of `csn`: groups of verbs, examples, widths. It may not parse: what can be typed is in `args`.

use crate::{
    UsageError,
    args::Cli,
    examples::{Example, FIRST_STEPS, examples},
    terminal::raw::size,
    usage,
};
use clap::{Command, CommandFactory as _};
use std::{
    fmt::Write as _,
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) const PROGRAM: &str = "csn";
/// Where the output is no terminal.
pub(crate) const DEFAULT_WIDTH: usize = 80;
/// Longer lines are hard to read.
const MAX_WIDTH: usize = 100;
const MIN_WIDTH: usize = 40;

/// Exit codes of `csn run` that do not come from the command.
pub(crate) const RUN_EXIT_CODES: &[(&str, &str)] = &[
    ("2", "usage error"),
    ("75", "the task waits for approval, and --no-wait was given"),
    ("77", "denied"),
    ("124", "timed out, or stopped at a limit"),
    ("125", "Countersign failed, or the outcome is unknown"),
    ("126, 127", "the program cannot be executed, or does not exist"),
    ("128+N", "ended by signal N"),
    ("130", "cancelled or withdrawn"),
];

/// Verbs in the order of `csn --help`.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    (
        "Run and watch",
        &[
            "run", "file", "ps", "show", "logs", "attach", "send", "resize", "search", "replay", "wait", "cancel",
            "signal",
        ],
    ),
    ("Approve", &["approvals", "grants"]),
    ("Policy", &["check", "policy", "redact"]),
    ("Records", &["receipts", "verify", "export", "keys"]),
    ("Agents", &["install", "sessions", "token", "hook", "exec", "mcp"]),
    ("Service", &["up", "down", "service", "doctor", "gc"]),
    ("Help", &["help", "man", "completions"]),
];

/// The width of the terminal, within bounds.
pub(crate) fn width() -> usize {
    let terminal = size().map(|(_, columns)| usize::from(columns));
    let columns = terminal.or_else(|| std::env::var("COLUMNS").ok()?.parse().ok()).unwrap_or(DEFAULT_WIDTH);
    columns.clamp(MIN_WIDTH, MAX_WIDTH)
}

/// The whole command line with groups and examples, for everything that prints help. Parsing does without them.
pub(crate) fn full_command(width: usize) -> Command {
    let root = decorate(Cli::command(), "").term_width(width);
    let overview = overview(&root, width);
    root.override_help(overview)
}

fn decorate(command: Command, path: &str) -> Command {
    let mut command = command.mut_subcommands(|verb| {
        let path = if path.is_empty() { verb.get_name().to_owned() } else { format!("{path} {}", verb.get_name()) };
        decorate(verb, &path)
    });
    if command.has_subcommands() {
        command = command.subcommand_value_name("VERB").subcommand_help_heading("Verbs");
    }
    if path.is_empty() {
        return command;
    }
    let shown = shown_examples(examples(path));
    if path == "run" {
        command = command.after_long_help(format!("{}\n\n{shown}", shown_exit_codes()));
    }
    command.after_help(shown)
}

fn shown_exit_codes() -> String {
    let mut text = "Exit codes:\n  The exit code is that of the command, except:".to_owned();
    for (code, meaning) in RUN_EXIT_CODES {
        let _ = write!(text, "\n    {code:8}  {meaning}");
    }
    text
}

fn shown_examples(examples: &[Example]) -> String {
    let mut text = if examples.len() == 1 { "Example:" } else { "Examples:" }.to_owned();
    for Example { line, effect } in examples {
        let _ = write!(text, "\n  {line}\n      {effect}");
    }
    text
}

/// `csn --help`.
fn overview(root: &Command, width: usize) -> String {
    let mut text = String::new();
    for line in wrap(&root.get_about().map(ToString::to_string).unwrap_or_default(), width) {
        let _ = writeln!(text, "{line}");
    }
    text.push_str("\nUsage: csn VERB [OPTIONS] [ARGUMENT]...\n");
    for (group, verbs) in GROUPS {
        let rows = verbs.iter().map(|verb| {
            let about = root.find_subcommand(verb).and_then(Command::get_about);
            ((*verb).to_owned(), about.map(ToString::to_string).unwrap_or_default())
        });
        table(&mut text, group, rows, 11, width);
    }
    let options = [("-h, --help", "Show this help"), ("-V, --version", "Print the version")];
    table(&mut text, "Options", options.map(|(name, about)| (name.to_owned(), about.to_owned())), 23, width);
    let rows = FIRST_STEPS.iter().map(|example| (example.line.to_owned(), example.effect.to_owned()));
    table(&mut text, "Examples", rows, 23, width);
    text.push('\n');
    for line in wrap("`csn help VERB` explains a verb and its options. `csn man DIR` writes manual pages.", width) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Two columns below a heading; the second one is wrapped.
fn table(
    text: &mut String,
    heading: &str,
    rows: impl IntoIterator<Item = (String, String)>,
    first_column: usize,
    width: usize,
) {
    let _ = writeln!(text, "\n{heading}:");
    let indent = first_column + 4;
    for (name, about) in rows {
        let mut lines = wrap(&about, width.saturating_sub(indent)).into_iter();
        let _ = writeln!(text, "  {name:first_column$}  {}", lines.next().unwrap_or_default());
        for line in lines {
            let _ = writeln!(text, "{:indent$}{line}", "");
        }
    }
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// `csn help VERB`: what `csn VERB --help` prints.
pub(crate) fn help(verbs: &[String]) -> anyhow::Result<ExitCode> {
    io::stdout().write_all(page(verbs, width())?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The help of one verb, or of `csn` for none.
pub(crate) fn page(verbs: &[String], width: usize) -> Result<String, UsageError> {
    let root = full_command(width);
    let mut found = &root;
    for (depth, verb) in verbs.iter().enumerate() {
        let unknown = || usage::no_such_verb(&verbs[..depth], verb);
        found = found.find_subcommand(verb).ok_or_else(unknown)?;
    }
    let words = [PROGRAM].into_iter().chain(verbs.iter().map(String::as_str)).chain(["--help"]);
    Ok(match root.clone().try_get_matches_from(words) {
        Err(help) => printable(&help),
        Ok(_) => String::new(),
    })
}

/// Help or version as clap renders it, without blanks at the ends of lines.
pub(crate) fn printable(rendered: &clap::Error) -> String {
    let text = rendered.to_string();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests;
