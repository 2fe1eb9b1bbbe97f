//! Explains what was typed wrong: the problem, what to do, and an example. It may not run anything.

use crate::{
    UsageError,
    args::Cli,
    examples::{Example, examples},
    exit, help, say,
};
use clap::{
    ArgAction, Command, CommandFactory as _,
    error::{ContextKind, ContextValue, Error, ErrorKind},
};
use countersign_model::{DisplaySafe, quoted};
use std::{
    error::Error as _,
    io::{self, Write as _},
    process::ExitCode,
};

/// What a user may type for a verb, and what to type instead.
mod other_words;

/// What follows `csn` on the command line.
pub(crate) fn typed_words() -> Vec<String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Prints the help that was asked for, or what is wrong with the command line.
pub(crate) fn report_parse_error() -> ExitCode {
    let Err(error) = help::full_command(help::width()).try_get_matches_from(std::env::args_os()) else {
        // Both parsers have the same verbs and options, so this is not reached; it must not be silent.
        say_usage("the command line cannot be read; csn --help lists the verbs");
        return ExitCode::from(exit::USAGE);
    };
    if !is_output(&error) {
        say_usage(&explain(&error, &typed_words()));
        return ExitCode::from(exit::USAGE);
    }
    let text = help::printable(&error);
    if error.use_stderr() {
        let _ = io::stderr().write_all(text.as_bytes());
        return ExitCode::from(exit::USAGE);
    }
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Whether the text of the error is what a user wants to see: help, or the version.
fn is_output(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// Prints the lines of a message: the problem, then hints.
pub(crate) fn say_usage(message: &str) {
    say(&format!("csn: {}", message.replace('\n', "\n     ")));
}

/// The problem, then what to do, a line each.
fn message(problem: &str, hints: &[String]) -> String {
    [&[problem.to_owned()], hints].concat().join("\n")
}

pub(crate) fn explain(error: &Error, words: &[String]) -> String {
    let root = built_command();
    let typed = CommandLine::read(&root, words);
    let name = typed.name();
    let argument = shown(&texts(error, ContextKind::InvalidArg).join(", "));
    let value = shown(&texts(error, ContextKind::InvalidValue).join(" "));
    let (problem, hint) = match error.kind() {
        ErrorKind::InvalidSubcommand => return unknown_verb(error, &typed, words, false),
        ErrorKind::UnknownArgument => return unknown_argument(error, &root, &typed, words),
        ErrorKind::ArgumentConflict if typed.takes_command() && typed.rest.iter().any(|word| word == "--") => {
            return message(
                "the command must be either quoted text, or words after `--`.",
                &typed.corrected_lines("Put"),
            );
        }
        ErrorKind::ArgumentConflict => {
            let others = shown(&texts(error, ContextKind::PriorArg).join(", "));
            (format!("`{argument}` cannot be used with `{others}`."), Some("Give only one of them.".to_owned()))
        }
        ErrorKind::MissingRequiredArgument => (format!("`{name}` needs {}.", argument.trim_end_matches("...")), None),
        ErrorKind::MissingSubcommand => {
            let verbs: Vec<&str> = typed.command.get_subcommands().map(Command::get_name).collect();
            (format!("`{name}` needs a verb."), Some(format!("Use one of: {}.", verbs.join(", "))))
        }
        ErrorKind::InvalidValue if value.is_empty() => (format!("`{argument}` needs a value."), accepted_values(error)),
        ErrorKind::InvalidValue => (format!("`{argument}` does not accept `{value}`."), accepted_values(error)),
        ErrorKind::ValueValidation => {
            let reason = error.source().map(|e| format!(" ({e})")).unwrap_or_default();
            (format!("`{argument}` does not accept `{value}`{}.", shown(&reason)), None)
        }
        ErrorKind::WrongNumberOfValues | ErrorKind::TooFewValues | ErrorKind::TooManyValues => {
            (format!("`{argument}` got the wrong number of values."), None)
        }
        ErrorKind::InvalidUtf8 => ("an argument is not UTF-8.".to_owned(), None),
        _ => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            (format!("{}.", shown(&first)), None)
        }
    };
    message(&problem, &hint.into_iter().chain([help_and_example(words)]).collect::<Vec<_>>())
}

/// Where to read more about what was typed, and an example of it.
pub(crate) fn help_and_example(words: &[String]) -> String {
    let root = built_command();
    let typed = CommandLine::read(&root, words);
    match examples(&typed.path.join(" ")) {
        [Example { line, .. }, ..] => format!("Example: {line} (see `{} --help`)", typed.name()),
        [] => format!("See `{} --help`.", typed.name()),
    }
}

/// `csn run echo hi`: the text could be shell text or a program with an argument, so the user must say which.
pub(crate) fn several_words(words: &[String]) -> UsageError {
    let root = built_command();
    let typed = CommandLine::read(&root, words);
    UsageError(message("the command must be one quoted text, or words after `--`.", &typed.corrected_lines("Put")))
}

/// `csn help nosuch`.
pub(crate) fn no_such_verb(path: &[String], word: &str) -> UsageError {
    let line = [help::PROGRAM].into_iter().chain(path.iter().map(String::as_str)).chain([word]);
    let words: Vec<String> = line.clone().skip(1).map(str::to_owned).collect();
    let text = match Cli::command().try_get_matches_from(line) {
        Err(error) if error.kind() == ErrorKind::InvalidSubcommand => {
            let root = built_command();
            unknown_verb(&error, &CommandLine::read(&root, &words), &words, true)
        }
        _ => {
            let verb = [&[help::PROGRAM.to_owned()], path].concat().join(" ");
            message(&format!("`{verb}` has no verbs below it."), &[format!("See `{verb} --help`.")])
        }
    };
    UsageError(text)
}

fn unknown_verb(error: &Error, typed: &CommandLine<'_>, words: &[String], asks_for_help: bool) -> String {
    let word = texts(error, ContextKind::InvalidSubcommand).concat();
    let path = typed.path.join(" ");
    let problem = if path.is_empty() {
        format!("there is no verb `{}`.", shown(&word))
    } else {
        format!("`{}` has no verb `{}`.", typed.name(), shown(&word))
    };
    let mut hints = Vec::new();
    if path.is_empty() && !asks_for_help && is_program(&word) {
        hints.push(run_hint(words));
    }
    let known = other_words::suggestions(&path, &word);
    hints.extend(known.iter().map(|(purpose, line)| format!("{purpose}: {line}")));
    let clap_suggests = || texts(error, ContextKind::SuggestedSubcommand).pop().filter(|verb| begins_like(verb, &word));
    let similar = similar_verb(typed.command, &word).or_else(clap_suggests).filter(|_| known.is_empty());
    if let Some(similar) = similar {
        let position = words.iter().position(|typed| *typed == word);
        let corrected = words.iter().enumerate().map(|(n, typed)| if Some(n) == position { &similar } else { typed });
        let help = asks_for_help.then(|| "help".to_owned());
        hints.push(format!("Did you mean: {}", command_line(help.iter().chain(corrected))));
    }
    if hints.is_empty() && path.is_empty() && !asks_for_help {
        hints.push(run_hint(words));
    }
    hints.push(format!("`{} --help` lists the verbs.", typed.name()));
    message(&problem, &hints)
}

fn run_hint(words: &[String]) -> String {
    let first = ["run", "--"].map(str::to_owned);
    format!("To run it as a command: {}", command_line(first.iter().chain(words)))
}

/// Keeps clap's looser suggestions from answering a program's name: for `git` it suggests `wait`.
fn begins_like(verb: &str, word: &str) -> bool {
    word.len() > 3 && word.get(..2).is_some_and(|beginning| verb.starts_with(beginning))
}

fn unknown_argument(error: &Error, root: &Command, typed: &CommandLine<'_>, words: &[String]) -> String {
    let argument = texts(error, ContextKind::InvalidArg).concat();
    let similar = texts(error, ContextKind::SuggestedArg).pop();
    let is_option = argument.starts_with('-');
    let before_verb = words.first().is_some_and(|word| word.starts_with('-') && !is_known(root, word));
    let name = if before_verb { help::PROGRAM.to_owned() } else { typed.name() };
    let problem = if is_option {
        format!("`{name}` has no option `{}`.", shown(&argument))
    } else {
        format!("`{name}` does not take the argument `{}`.", shown(&argument))
    };
    let mut hints = Vec::new();
    if let Some(similar) = &similar {
        hints.push(format!("Did you mean `{similar}`?"));
    }
    let options_are_known = typed.options().all(|option| is_known(typed.command, option));
    if before_verb && options_are_known && !typed.path.is_empty() {
        let verbs = typed.path.iter().map(|verb| (*verb).to_owned()).collect::<Vec<_>>();
        let line = command_line(verbs.iter().chain(&typed.before).chain(&typed.rest));
        hints.push(format!("Put options after the verb: {line}"));
    } else if is_option && typed.takes_command() && options_are_known && !typed.rest.is_empty() {
        hints.extend(typed.corrected_lines("If it belongs to the command, put"));
        return message(&problem, &hints);
    }
    hints.push(help_and_example(words));
    message(&problem, &hints)
}

/// The verb closest to a mistyped word. clap's own suggestion misses short verbs: for `rn` it does not find `run`.
fn similar_verb(command: &Command, word: &str) -> Option<String> {
    let most = match word.chars().count() {
        0..=4 => 1,
        5..=7 => 2,
        _ => 3,
    };
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name);
    let near = verbs.map(|verb| (edit_distance(word, verb), verb)).filter(|(distance, _)| *distance <= most);
    near.min().map(|(_, verb)| verb.to_owned())
}

/// The number of letters to add, remove, replace or swap with a neighbour to turn one word into the other.
fn edit_distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![(0..=to.len()).collect::<Vec<usize>>()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

/// Whether a program of this name can be run.
fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    !name.contains('/') && std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// The values that an option accepts.
fn accepted_values(error: &Error) -> Option<String> {
    if let Some(similar) = texts(error, ContextKind::SuggestedValue).pop() {
        return Some(format!("Did you mean `{similar}`?"));
    }
    let valid = texts(error, ContextKind::ValidValue);
    (!valid.is_empty()).then(|| format!("Use one of: {}.", valid.join(", ")))
}

/// The verbs and options with what clap adds to them, such as global options and --help.
fn built_command() -> Command {
    let mut root = Cli::command();
    root.build();
    root
}

fn texts(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

fn shown(text: &str) -> String {
    DisplaySafe::bounded(text, 200).to_string()
}

/// `csn` and these words, as a shell takes them.
fn command_line<'a>(words: impl IntoIterator<Item = &'a String>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| quoted(word)).collect();
    shown(&format!("{} {}", help::PROGRAM, words.join(" ")))
}

/// What was typed, split at the first word that is neither a verb nor an option.
struct CommandLine<'a> {
    /// The last verb.
    command: &'a Command,
    path: Vec<&'a str>,
    /// Options and their values before the first argument.
    before: Vec<String>,
    /// The first argument, and everything after it.
    rest: Vec<String>,
}

impl<'a> CommandLine<'a> {
    fn read(root: &'a Command, words: &[String]) -> Self {
        let mut typed = Self { command: root, path: Vec::new(), before: Vec::new(), rest: Vec::new() };
        let mut left = words;
        while let [word, after @ ..] = left {
            let used = if word != "--" && is_option(word) {
                let used = 1 + separate_values(typed.command, word).min(after.len());
                typed.before.extend_from_slice(&left[..used]);
                used
            } else if let Some(verb) = typed.command.find_subcommand(word) {
                typed.command = verb;
                typed.path.push(verb.get_name());
                1
            } else {
                break;
            };
            left = &left[used..];
        }
        typed.rest = left.to_vec();
        typed
    }

    /// `csn` with its verbs.
    fn name(&self) -> String {
        [&[help::PROGRAM], &self.path[..]].concat().join(" ")
    }

    fn options(&self) -> impl Iterator<Item = &String> {
        self.before.iter().filter(|word| is_option(word))
    }

    /// Whether a command may follow `--`, as in `run` and `check`.
    fn takes_command(&self) -> bool {
        self.command.get_positionals().any(clap::Arg::is_last_set)
    }

    /// The command line with the command after `--`, and with the command in quotes.
    fn corrected_lines(&self, put: &str) -> Vec<String> {
        let verbs: Vec<String> = self.path.iter().map(|verb| (*verb).to_owned()).collect();
        let ours = || verbs.iter().chain(&self.before);
        let mut command = self.rest.clone();
        if let Some(dashes) = command.iter().position(|word| word == "--") {
            command.remove(dashes);
        }
        let dashes = "--".to_owned();
        let mut lines = Vec::new();
        if !is_shell_text(&command) {
            let line = command_line(ours().chain([&dashes]).chain(&command));
            lines.push(format!("{put} -- before the command: {line}"));
        }
        if lines.is_empty() || command.iter().all(|word| quoted(word) == *word) {
            let line = command_line(ours().chain([&command.join(" ")]));
            let how = if lines.is_empty() { "Quote the whole command" } else { "Or quote the command" };
            lines.push(format!("{how}: {line}"));
        }
        let (own, others) = self.own_options(&command);
        if !own.is_empty() {
            let line = command_line(ours().chain(&own).chain([&dashes]).chain(&others));
            lines.push(format!("If `{}` is for csn: {line}", shown(&own.join(" "))));
        }
        lines
    }

    /// The words that are options of csn, with their values, and the other words.
    fn own_options(&self, command: &[String]) -> (Vec<String>, Vec<String>) {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        let mut left = command;
        while let [word, after @ ..] = left {
            let is_own = is_option(word) && is_known(self.command, word);
            let used = if is_own { 1 + separate_values(self.command, word).min(after.len()) } else { 1 };
            let part = if is_own { &mut own } else { &mut others };
            part.extend_from_slice(&left[..used]);
            left = &left[used..];
        }
        (own, others)
    }
}

fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

/// Whether only a shell could make sense of these words: a first word that is no program, or an operator.
fn is_shell_text(command: &[String]) -> bool {
    let is_operator = |word: &String| word.chars().all(|letter| "|&;<>".contains(letter));
    command.first().is_some_and(|word| word.contains(char::is_whitespace)) || command.iter().any(is_operator)
}

/// The option of a word, if the command has it: `--long`, `--long=value`, `-s`, or several short ones in one word.
fn option_of<'a>(command: &'a Command, word: &str) -> Option<&'a clap::Arg> {
    if let Some(long) = word.strip_prefix("--") {
        let name = long.split('=').next();
        return command.get_arguments().find(|arg| arg.get_long() == name);
    }
    let mut last = None;
    for letter in word.strip_prefix('-')?.chars() {
        let arg = command.get_arguments().find(|arg| arg.get_short() == Some(letter))?;
        last = Some(arg);
        if takes_values(arg) {
            break;
        }
    }
    last
}

fn is_known(command: &Command, word: &str) -> bool {
    option_of(command, word).is_some()
}

fn takes_values(arg: &clap::Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

/// How many words after this option are its values.
fn separate_values(command: &Command, word: &str) -> usize {
    match option_of(command, word) {
        Some(arg) if takes_values(arg) && !word.contains('=') => {
            // `-n10` holds its value.
            let holds_value = !word.starts_with("--") && word.len() > 2;
            if holds_value { 0 } else { arg.get_num_args().map_or(1, |count| count.min_values()) }
        }
        _ => 0,
    }
}

#[cfg(test)]
pub(crate) mod tests;
