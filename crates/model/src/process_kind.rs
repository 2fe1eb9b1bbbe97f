//! What a process is for the processes below it: a wrapper that only starts something, a person's terminal, or a
//! program.

/// The kind of a process above a program that an agent started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind {
    /// A shell that runs a command, or a program that only starts another: the process above it decides.
    Passes,
    /// A place where a person types, or a program that contains such places. Never an agent.
    Person,
    Program,
}

const SHELLS: &[&str] = &[
    "sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox", "nu", "tcsh", "csh", "pwsh", "xonsh", "elvish",
    "mksh", "rc", "es", "yash", "oksh",
];
const WRAPPERS: &[&str] = &["timeout", "env", "nice", "nohup", "setsid", "stdbuf", "ionice", "chrt", "time"];
/// Programs that contain places where people type, by their kernel names.
const PLACES: &[&str] = &[
    "tmux: server",
    "tmux",
    "screen",
    "SCREEN",
    "zellij",
    "sshd",
    "sshd-session",
    "login",
    "systemd",
    "init",
    "dbus-daemon",
    "su",
    "sudo",
    "xterm",
    "gnome-terminal-",
    "konsole",
    "kitty",
    "alacritty",
    "wezterm-gui",
    "foot",
    "xfce4-terminal",
    "ptyxis-agent",
    "ghostty",
    "code",
    "cron",
    // Init programs that only reap orphans.
    "tini",
    "dumb-init",
    "docker-init",
    "podman-init",
    "catatonit",
    "s6-svscan",
    "runit",
    "runsvdir",
    "openrc-init",
    "supervisord",
    "conmon",
    "crond",
];
/// Shell options that take an argument.
const WITH_A_WORD: &[&str] = &["-o", "+o", "-O", "+O", "--rcfile", "--init-file", "-C", "--init-command"];

impl ProcessKind {
    /// Classifies a process by its kernel name, its arguments, and whether it reads from a terminal.
    #[must_use]
    pub fn classify(comm: &str, words: &[String], at_a_terminal: bool) -> Self {
        if PLACES.contains(&comm) {
            return Self::Person;
        }
        let name = words.first().map_or(comm, |w| w.rsplit('/').next().unwrap_or_default());
        let name = name.trim_start_matches('-');
        if WRAPPERS.contains(&name) {
            return Self::Passes;
        }
        match (SHELLS.contains(&name), Self::has_something_to_do(words)) {
            (false, _) => Self::Program,
            (true, false) if at_a_terminal => Self::Person,
            (true, _) => Self::Passes,
        }
    }

    /// Whether the shell was started with a command or a script.
    fn has_something_to_do(words: &[String]) -> bool {
        let mut rest = words.iter().skip(1);
        while let Some(word) = rest.next() {
            let option = word.starts_with('-') || word.starts_with('+');
            let clustered = option && !word.starts_with("--");
            if WITH_A_WORD.contains(&word.as_str()) {
                rest.next();
                continue;
            }
            if !option || clustered && word.contains('c') {
                return true;
            }
            // In `-euo pipefail` the last letter takes the next word.
            if clustered && word.ends_with(['o', 'O']) {
                rest.next();
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_that_runs_a_command_is_not_a_persons_terminal() {
        use ProcessKind::{Passes, Person, Program};
        for (line, at_a_terminal, is) in [
            ("/bin/sh -c csn", true, Passes),
            ("bash -lc csn", true, Passes),
            ("bash -o pipefail -c csn", true, Passes),
            ("bash -euo pipefail -c csn", true, Passes),
            ("bash --rcfile x -c csn", true, Passes),
            ("bash agent.sh", true, Passes),
            ("timeout -k 1 60 csn hook codex", true, Passes),
            ("-bash", true, Person),
            ("/usr/bin/zsh -il", true, Person),
            ("bash --login", true, Person),
            ("bash -o vi", true, Person),
            ("fish -C prompt", true, Person),
            ("nu", true, Person),
            ("bash", false, Passes),
            ("node /usr/bin/claude -p x", true, Program),
            ("/opt/bash-agent/run -c x", true, Program),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let comm = words[0].rsplit('/').next().unwrap().to_owned();
            assert_eq!(ProcessKind::classify(&comm, &words, at_a_terminal), is, "{line}");
        }
        assert_eq!(ProcessKind::classify("tmux: server", &["tmux".to_owned(), "new".to_owned()], false), Person);
    }
}
