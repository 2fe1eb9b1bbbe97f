//! `completions`: a script that lets a shell complete verbs and options.

use crate::{
    args::{Cli, Shell},
    help,
};
use clap::{Command, CommandFactory as _};
use clap_complete::{Shell as Target, generate};
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    io::stdout().write_all(&script(shell))?;
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell) -> Vec<u8> {
    let target = match shell {
        Shell::Bash => Target::Bash,
        Shell::Elvish => Target::Elvish,
        Shell::Fish => Target::Fish,
        Shell::Zsh => Target::Zsh,
    };
    let root = Cli::command();
    let verbs: Vec<Command> = root.get_subcommands().filter(|verb| !verb.is_hide_set()).map(name_only).collect();
    // `help` takes any verbs as arguments; a shell completes them only if they are a tree.
    let mut root = root.mut_subcommand("help", |help| {
        let about = help.get_about().cloned().unwrap_or_default();
        Command::new("help").about(about).disable_help_flag(true).subcommands(verbs)
    });
    let mut script = Vec::new();
    generate(target, &mut root, help::PROGRAM, &mut script);
    script
}

/// A verb without its options.
fn name_only(verb: &Command) -> Command {
    let below = verb.get_subcommands().filter(|verb| !verb.is_hide_set()).map(name_only);
    Command::new(verb.get_name().to_owned())
        .about(verb.get_about().cloned().unwrap_or_default())
        .disable_help_flag(true)
        .subcommands(below.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_completes_the_verbs_behind_help() {
        for (shell, behind_help) in [
            (Shell::Bash, "csn__subcmd__help,approvals)"),
            (Shell::Elvish, "&'csn;help;approvals;answer'"),
            (Shell::Fish, "__fish_csn_using_subcommand help; and __fish_seen_subcommand_from approvals"),
            (Shell::Zsh, "_csn__subcmd__help__subcmd__approvals__subcmd__answer_commands"),
        ] {
            let script = String::from_utf8(script(shell)).expect("text");
            assert!(script.contains(behind_help), "{behind_help} is not in:\n{script}");
        }
    }
}
