//! One interactive bash on a terminal, in a fresh home, with the real csn on its PATH. It decides nothing about what is printed.

use crate::{CSN, SHIM};
use std::{
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::Duration,
};

/// How long a command of the documentation may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// A screen that has not changed for this long has come to rest.
const QUIET_SCREEN: Duration = Duration::from_millis(400);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The prompt: the exit code between two bytes that no program prints.
const PROMPT: (u8, u8) = (0x1e, 0x1f);
const PROMPT_SETUP: &str = "set +H +m; PS1=$'\\x1e$?\\x1f' PS2=\n";
/// git asks nobody and shows no advice; a commit has an author.
const GIT_CONFIG: &str =
    "[user]\nname = U\nemail = u@example.invalid\n[init]\ndefaultBranch = main\n[advice]\ndetachedHead = false\n";

/// Whether bash takes these lines as whole commands.
#[expect(clippy::disallowed_methods, reason = "the documentation's commands are read by a real bash")]
pub(crate) fn is_complete(text: &str) -> bool {
    let out = Command::new("bash").args(["-n", "-c", text]).output().expect("bash runs");
    // An open here-document is only a warning.
    out.status.success() && out.stderr.is_empty()
}

/// What a reader types while a command runs.
#[derive(Debug, PartialEq)]
pub(crate) enum KeyboardInput {
    /// A line, at a prompt `> `.
    Answer(String),
    /// Keys, once the program has shown something and the screen has come to rest.
    Keys(Vec<u8>),
}

impl KeyboardInput {
    /// A line of a `console` block that is typed rather than printed.
    pub(crate) fn read(line: &str) -> Option<Self> {
        if let Some(answer) = line.strip_prefix("> ") {
            return Some(Self::Answer(answer.to_owned()));
        }
        let keys = line.strip_prefix('[')?.strip_suffix(']')?;
        let bytes = keys.split(' ').map(parse_key).collect::<Option<Vec<u8>>>()?;
        Some(Self::Keys(bytes))
    }
}

fn parse_key(name: &str) -> Option<u8> {
    match name {
        "Enter" => Some(b'\r'),
        "Escape" => Some(0x1b),
        _ => match name.strip_prefix("Ctrl-")?.as_bytes() {
            [letter] => Some(letter.to_ascii_uppercase() & 0x1f),
            _ => None,
        },
    }
}

pub(crate) struct Shell {
    child: Child,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
    base: PathBuf,
}

/// What a command has shown, and how it ended.
pub(crate) struct CommandOutput {
    pub(crate) text: String,
    pub(crate) code: i32,
}

impl Shell {
    pub(crate) fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("csn-docs-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let base = std::env::temp_dir().join(name);
        let programs = base.join("usr/local/bin");
        fs::create_dir_all(&programs).expect("a directory for programs");
        for (real, name) in [(CSN, "csn"), (SHIM, "csn-shim")] {
            let linked = fs::hard_link(real, programs.join(name)).is_ok();
            assert!(linked || fs::copy(real, programs.join(name)).is_ok(), "{name} can be copied");
        }
        for directory in ["home/u/web", "home/u/bin"] {
            fs::create_dir_all(base.join(directory)).expect("a home");
        }
        fs::write(base.join("home/u/.gitconfig"), GIT_CONFIG).expect("a configuration for git");
        let mut command = new_command(&base, "script");
        command.args(["-qefc", "stty cols 200 rows 50; exec bash --norc --noprofile --noediting -i", "/dev/null"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("script runs");
        let input = child.stdin.take().expect("piped");
        let mut stdout = child.stdout.take().expect("piped");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut shell = Self { child, input, output, base };
        shell.press_keys(PROMPT_SETUP.as_bytes());
        shell.read_until_prompt(&mut Vec::new()).unwrap_or_else(|seen| panic!("bash does not start: {seen}"));
        shell
    }

    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.base.join("home/u/web")
    }

    /// Runs one command. The error is what the terminal showed until the time was up.
    pub(crate) fn run_command(
        &mut self,
        command: &str,
        mut typed: Vec<KeyboardInput>,
    ) -> Result<CommandOutput, String> {
        let file = self.base.join("command");
        fs::write(&file, format!("{command}\n")).expect("a command");
        self.press_keys(format!(". {}\n", file.display()).as_bytes());
        let (seen, code) = self.read_until_prompt(&mut typed)?;
        if !typed.is_empty() {
            return Err(format!("it ended before {typed:?} could be typed:\n{}", strip_echo(&seen)));
        }
        Ok(CommandOutput { text: strip_echo(&seen), code })
    }

    fn press_keys(&mut self, bytes: &[u8]) {
        self.input.write_all(bytes).and_then(|()| self.input.flush()).expect("the terminal takes input");
    }

    fn read_until_prompt(&mut self, typed: &mut Vec<KeyboardInput>) -> Result<(String, i32), String> {
        let (mut seen, mut waited, mut quiet) = (Vec::new(), Duration::ZERO, Duration::ZERO);
        loop {
            match self.output.recv_timeout(POLL_INTERVAL) {
                Ok(bytes) => {
                    seen.extend(bytes);
                    quiet = Duration::ZERO;
                }
                Err(RecvTimeoutError::Timeout) => {
                    waited += POLL_INTERVAL;
                    quiet += POLL_INTERVAL;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("the shell ended:\n{}", strip_escapes(&seen)));
                }
            }
            if let Some((text, code)) = split_at_prompt(&seen) {
                return Ok((text, code));
            }
            let shown = strip_escapes(&seen);
            let printed = strip_echo(&shown);
            let due = match typed.first() {
                Some(KeyboardInput::Answer(_)) => shown.ends_with("\n> "),
                // Keys that come before the program has set up its terminal would go elsewhere.
                Some(KeyboardInput::Keys(_)) => !printed.is_empty() && quiet >= QUIET_SCREEN,
                None => false,
            };
            if due {
                match typed.remove(0) {
                    KeyboardInput::Answer(line) => self.press_keys(format!("{line}\n").as_bytes()),
                    KeyboardInput::Keys(keys) => self.press_keys(&keys),
                }
                quiet = Duration::ZERO;
            }
            if waited > COMMAND_TIMEOUT {
                return Err(format!(
                    "it takes longer than {} s, or it asks:\n{}",
                    COMMAND_TIMEOUT.as_secs(),
                    strip_escapes(&seen)
                ));
            }
        }
    }

    /// `csn …` beside the terminal.
    pub(crate) fn run_csn(&self, args: &[&str]) -> Output {
        let mut command = new_command(&self.base, "csn");
        command.args(args).stdin(Stdio::null()).output().expect("csn runs")
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.run_csn(&["down", "--stop-tasks"]);
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// A program with nothing of this process's environment but its PATH.
#[expect(clippy::disallowed_methods, reason = "the documentation is tried with real programs")]
fn new_command(base: &Path, name: &str) -> Command {
    let ours = base.join("usr/local/bin");
    let real = ours.join(name);
    let mut command = Command::new(if real.exists() { real } else { name.into() });
    let path = std::env::var("PATH").unwrap_or_default();
    let home = base.join("home/u");
    command.env_clear().env("PATH", format!("{}:{}:{path}", home.join("bin").display(), ours.display()));
    command.env("HOME", &home).env("USER", "u").env("LANG", "C.UTF-8").env("TZ", "UTC").env("TERM", "xterm-256color");
    command.env("NO_COLOR", "1").env("PAGER", "cat").env("SHELL", "/bin/bash").current_dir(home.join("web"));
    command
}

/// The text before the prompt, and the exit code in it.
fn split_at_prompt(seen: &[u8]) -> Option<(String, i32)> {
    let end = seen.iter().rposition(|b| *b == PROMPT.1)?;
    let start = seen[..end].iter().rposition(|b| *b == PROMPT.0)?;
    let code = std::str::from_utf8(&seen[start + 1..end]).ok()?.parse().ok()?;
    Some((strip_escapes(&seen[..start]), code))
}

/// The text without its first line, which is the echo of what the test typed.
fn strip_echo(text: &str) -> String {
    text.split_once('\n').map_or("", |(_, rest)| rest).trim_end().to_owned()
}

/// What a terminal shows, without escapes.
fn strip_escapes(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\x1b', Some('[')) => {
                chars.next();
                let _ = chars.by_ref().find(|c| ('\x40'..='\x7e').contains(c));
            }
            ('\x1b', Some(']' | 'P')) => {
                let mut before = c;
                let ends = |c: &char| {
                    let end = *c == '\x07' || (before == '\x1b' && *c == '\\');
                    before = *c;
                    end
                };
                chars.next();
                let _ = chars.by_ref().find(ends);
            }
            ('\x1b', Some(_)) => {
                chars.next();
            }
            ('\r' | '\x07' | '\x0f', _) => {}
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_lines_are_distinguished_from_printed_ones() {
        assert_eq!(KeyboardInput::read("> h"), Some(KeyboardInput::Answer("h".into())));
        assert_eq!(KeyboardInput::read("[Ctrl-\\ Ctrl-D]"), Some(KeyboardInput::Keys(vec![0x1c, 0x04])));
        assert_eq!(KeyboardInput::read("[redacted:known-value:e8bd]"), None);
        assert_eq!(KeyboardInput::read("printed"), None);
    }

    #[test]
    fn escapes_are_not_part_of_the_text() {
        assert_eq!(strip_escapes(b"\x1b[33mask\x1b[0m: \x1b]0;title\x07x\r\n\x1b]8;;u\x1b\\y"), "ask: x\ny");
        assert_eq!(split_at_prompt(b"out\r\n\x1e75\x1f"), Some(("out\n".into(), 75)));
        assert_eq!(split_at_prompt(b"out\r\n\x1e75"), None);
    }
}
