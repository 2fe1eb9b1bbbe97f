//! Programs that run other programs: shells, `find -exec`, `ssh`, interpreters. Wrappers such as `sudo` are in
//! `wrappers`.

use super::{
    plan_builder::{PlanBuilder, TextPosition},
    simple_command::{is_positional, set_positional},
    state::ShellState,
};
use countersign_model::{Directory, InputSource, Occurrence, Opaque, Word, WordValue};
use std::rc::Rc;

#[rustfmt::skip]
pub(super) const SHELLS: &[&str] = &[
    "bash", "sh", "dash", "ash", "rbash", "ksh", "ksh93", "rksh", "mksh", "lksh", "oksh", "pdksh", "loksh", "posh", "zsh",
    "rzsh", "yash", "rc", "es",
];
/// Shells whose text this crate can read. Other shells have their own keywords, and read the same text differently.
const READABLE_SHELLS: &[&str] = &["bash", "sh", "dash", "ash", "rbash"];
/// Interpreters whose code resembles a shell's enough to be read for its risks.
pub(super) const SHELL_LIKE: &[&str] = &["fish", "csh", "tcsh", "nu", "xonsh"];

/// Interpreters, the options that take code, and the letters that do so inside a cluster.
const INTERPRETERS: &[(&str, &[&str], &str)] = &[
    ("python", &["-c"], "c"),
    ("pypy", &["-c"], "c"),
    ("node", &["-e", "-p", "--eval", "--print"], "ep"),
    ("nodejs", &["-e", "-p", "--eval", "--print"], "ep"),
    ("deno", &["eval"], ""),
    ("bun", &["-e", "--eval", "-p", "--print"], ""),
    ("ruby", &["-e"], "e"),
    ("irb", &[], ""),
    ("perl", &["-e", "-E"], "eE"),
    ("php", &["-r", "-B", "-R", "-E"], "r"),
    ("lua", &["-e"], "e"),
    ("luajit", &["-e"], "e"),
    ("Rscript", &["-e"], ""),
    ("R", &["-e"], ""),
    ("osascript", &["-e"], ""),
    ("tclsh", &[], ""),
    ("wish", &[], ""),
    ("expect", &["-c"], "c"),
    ("julia", &["-e", "-E", "--eval", "--print"], "eE"),
    ("elixir", &["-e", "--eval"], ""),
    ("erl", &["-eval", "-s", "-run"], ""),
    ("ghc", &["-e"], ""),
    ("groovy", &["-e"], ""),
    ("scala", &["-e"], ""),
    ("pwsh", &["-c", "-Command", "-command", "-EncodedCommand", "-e", "-ec"], ""),
    ("powershell", &["-c", "-Command", "-command", "-EncodedCommand"], ""),
    ("fish", &["-c", "--command"], "c"),
    ("csh", &["-c"], "c"),
    ("tcsh", &["-c"], "c"),
    ("nu", &["-c", "--commands"], ""),
    ("xonsh", &["-c"], ""),
    ("gdb", &["-ex", "-eval-command", "-x", "--command"], ""),
    ("lldb", &["-o", "--one-line", "-s", "--source"], ""),
    ("emacs", &["--eval", "-eval", "-e", "--execute"], ""),
    ("vim", &["-c", "--cmd", "-S"], ""),
    ("vi", &["-c", "-S"], ""),
    ("nvim", &["-c", "--cmd", "-S", "-l"], ""),
    ("ex", &["-c"], ""),
    ("sqlite3", &["-cmd"], ""),
];

/// Whether the options of a shell leave the meaning of its text unchanged. The last letter may be an `o`; the next
/// word then names the option.
fn keeps_text_meaning(text: &str, next: Option<&Word>) -> bool {
    const NAMES: &[&str] = &["pipefail", "errexit", "nounset", "xtrace", "verbose"];
    let letters = if text.starts_with('-') { "ceuxvl" } else { "euxv" };
    let (cluster, named) = match text[1..].strip_suffix('o') {
        Some(cluster) => (cluster, next.and_then(Word::text).is_some_and(|name| NAMES.contains(&name))),
        None => (&text[1..], true),
    };
    named && cluster.chars().all(|c| letters.contains(c))
}

/// What the options of a shell say.
struct ShellOptions {
    /// The index of the first word behind the options.
    rest: usize,
    /// `-c`: the first word behind the options is the program text.
    text_follows: bool,
    /// `-s`: the program text comes from the input.
    from_input: bool,
    /// All options leave the meaning of the text unchanged.
    reviewed: bool,
    /// `--rcfile`: the shell runs a file first.
    runs_file_first: bool,
    /// `--version` or similar: nothing runs.
    informs: bool,
}

impl ShellOptions {
    fn from_words(words: &[Word]) -> Self {
        let mut found = Self {
            rest: 1,
            text_follows: false,
            from_input: false,
            reviewed: true,
            runs_file_first: false,
            informs: false,
        };
        while let Some(text) = words.get(found.rest).and_then(Word::text) {
            match text {
                "--" | "-" => {
                    found.rest += 1;
                    break;
                }
                "--rcfile" | "--init-file" => {
                    found.runs_file_first = true;
                    found.rest += 1;
                }
                "--norc" | "--noprofile" | "--login" => {}
                _ if text.starts_with("--") => {
                    if prints_information(text) {
                        found.informs = true;
                        break;
                    }
                    found.reviewed = false;
                }
                _ if text.len() > 1 && text.starts_with(['-', '+']) => {
                    // Bash also takes a command behind `+c`.
                    found.text_follows |= text.contains('c');
                    found.from_input |= text.contains('s');
                    found.reviewed &= keeps_text_meaning(text, words.get(found.rest + 1));
                    found.rest += text.matches(['o', 'O']).count();
                }
                _ => break,
            }
            found.rest += 1;
        }
        found
    }
}

/// Whether an interpreter only prints information about itself with this option.
fn prints_information(text: &str) -> bool {
    matches!(text, "--version" | "-V" | "-v" | "--help" | "-h" | "-version" | "version" | "help")
}

impl PlanBuilder<'_> {
    /// Reads `bash -c '…'`, `bash script`, `… | sh`.
    pub(super) fn read_shell_command(
        &mut self,
        program: &str,
        mut occurrence: Occurrence,
        position: TextPosition,
        state: &mut ShellState,
    ) {
        let options = ShellOptions::from_words(&occurrence.words);
        if options.runs_file_first {
            occurrence.opaque.get_or_insert(Opaque::Source);
        }
        if options.informs {
            self.emit(occurrence);
            return;
        }
        if options.text_follows && !options.reviewed {
            occurrence.opaque.get_or_insert(Opaque::ShellMutation);
        }
        if options.text_follows && !READABLE_SHELLS.contains(&program) {
            occurrence.opaque.get_or_insert(Opaque::Code);
        }
        let mut inner = state.clone();
        for assignment in &occurrence.assignments {
            // Without PWD, a shell takes its directory from the kernel, with symbolic links resolved.
            inner.physical |= matches!(assignment.name.as_str(), "PWD" | "environment");
            Rc::make_mut(&mut inner.exported).insert(assignment.name.clone(), assignment.value.clone());
            inner.set(&assignment.name, assignment.value.clone());
        }
        let operand = occurrence.words.get(options.rest).cloned();
        if options.text_follows {
            Rc::make_mut(&mut inner.variables).retain(|name, _| !is_positional(name));
            set_positional(occurrence.words.get(options.rest + 1..).unwrap_or_default(), 0, &mut inner);
        }
        match (options.text_follows, operand) {
            (true, Some(word)) => {
                let posix = !matches!(program, "bash" | "rbash");
                self.read_shell_argument(&word, occurrence, position, &inner, posix);
            }
            (true, None) => {
                occurrence.opaque.get_or_insert(Opaque::Wrapper);
                self.emit(occurrence);
            }
            (false, Some(word)) if !options.from_input && !is_stdin(&word) => self.emit(occurrence),
            (false, _) => self.read_shell_input(occurrence, position, &inner),
        }
    }

    /// Reads the text of `bash -c '…'` in place, if the text is known and the shell is not opaque.
    fn read_shell_argument(
        &mut self,
        word: &Word,
        mut occurrence: Occurrence,
        position: TextPosition,
        inner: &ShellState,
        posix: bool,
    ) {
        match word.texts() {
            Some([text]) if occurrence.opaque.is_none() => {
                // The redirects of the shell apply to everything that runs in it.
                if !occurrence.redirects.is_empty() {
                    self.emit(Occurrence { verb: ":".to_owned(), words: vec![Word::literal(":")], ..occurrence });
                }
                self.read_shell_text(text, position, inner, posix);
            }
            texts => {
                for text in texts.unwrap_or_default().iter().chain(&word.hint) {
                    self.read_for_risks(text, position, inner);
                }
                occurrence.opaque.get_or_insert(Opaque::DynamicProgram);
                self.emit(occurrence);
            }
        }
    }

    /// Reads `… | sh`, where the input is the program.
    fn read_shell_input(&mut self, mut occurrence: Occurrence, position: TextPosition, inner: &ShellState) {
        occurrence.opaque.get_or_insert(Opaque::Input);
        let text = match &occurrence.input {
            InputSource::Text(text) => text.clone(),
            _ => None,
        };
        self.emit(occurrence);
        if let Some(text) = text {
            self.read_for_risks(&text, position, inner);
        }
    }

    /// Reads the commands of `find … -exec`.
    pub(super) fn read_find_actions(
        &mut self,
        occurrence: &Occurrence,
        position: TextPosition,
        state: &mut ShellState,
    ) {
        let words = &occurrence.words;
        let mut n = 1;
        while n < words.len() {
            let text = words[n].text().unwrap_or_default();
            n += 1;
            if !matches!(text, "-exec" | "-execdir" | "-ok" | "-okdir") {
                continue;
            }
            // Only these collect names and end at a `+`.
            let gathers = text.starts_with("-exec");
            let end = (n..words.len())
                .find(|&m| {
                    let text = words[m].text().unwrap_or_default();
                    text == ";" || text == "+" && gathers && words[m - 1].text() == Some("{}")
                })
                .unwrap_or(words.len());
            let starts: Vec<String> = crate::phrase::find_starts(&words[1..]);
            let below: Vec<String> = starts.iter().map(|s| format!("{}/*", s.trim_end_matches('/'))).collect();
            let inner: Vec<Word> = words[n..end]
                .iter()
                .map(|w| match w.text() {
                    // A name below the starting point looks like an option only if the starting point does.
                    Some("{}") if !text.ends_with("dir") => Word {
                        value: WordValue::Pattern(below.clone()),
                        quoted: true,
                        many: true,
                        substituted: false,
                        hint: None,
                    },
                    Some(t) if t.contains("{}") => Word { quoted: true, ..Word::unknown() },
                    _ => w.clone(),
                })
                .collect();
            if !inner.is_empty() {
                let mut there = state.clone();
                if text.ends_with("dir") {
                    // The command runs in the directory of each file, which may be above the starting point.
                    there.directory = Rc::new(Directory::Unknown);
                }
                let before = (std::mem::take(&mut self.input), std::mem::replace(&mut self.wrapped, true));
                self.read_command_words(inner, occurrence.assignments.clone(), Vec::new(), position, &mut there, None);
                (self.input, self.wrapped) = before;
            }
            n = end + 1;
        }
    }

    /// Reads the command that `ssh` runs on the other machine, for its risks.
    pub(super) fn read_ssh_command(&mut self, occurrence: &mut Occurrence, position: TextPosition, state: &ShellState) {
        let takes = "BbcDEeFIiJLlmOopQRSWw";
        let mut n = 1;
        while let Some(text) = occurrence.words.get(n).and_then(Word::text)
            && text.starts_with('-')
            && text.len() > 1
        {
            n += if text.len() == 2 && takes.contains(&text[1..]) { 2 } else { 1 };
        }
        let words: Option<Vec<&str>> =
            occurrence.words.get(n + 1..).unwrap_or_default().iter().map(Word::text).collect();
        match words {
            Some(words) if !words.is_empty() => {
                let text = words.join(" ");
                let from = self.occurrences.len();
                let mut elsewhere = state.clone();
                elsewhere.directory = Rc::new(Directory::Unknown);
                self.read_for_risks(&text, position, &elsewhere);
                for occurrence in &mut self.occurrences[from..] {
                    occurrence.remote = true;
                }
            }
            _ => {}
        }
    }

    /// Reads programs that options name: `tar --info-script=…`, `rsync -e …`, `git rebase --exec …`.
    pub(super) fn read_option_programs(
        &mut self,
        occurrence: &Occurrence,
        position: TextPosition,
        state: &mut ShellState,
    ) {
        const OPTIONS: &[(&str, &[&str])] = &[
            (
                "tar",
                &[
                    "--to-command",
                    "--use-compress-program",
                    "-I",
                    "--info-script",
                    "--new-volume-script",
                    "-F",
                    "--rsh-command",
                    "--rmt-command",
                ],
            ),
            ("script", &["-c", "--command"]),
            ("rsync", &["-e", "--rsh", "--rsync-path"]),
            (
                "git",
                &["-x", "--exec", "--upload-pack", "--receive-pack", "--extcmd", "--tree-filter", "--index-filter"],
            ),
        ];
        let program = occurrence.words[0].text().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
        let Some((_, options)) = OPTIONS.iter().find(|(p, _)| *p == program) else { return };
        for (n, word) in occurrence.words.iter().enumerate().skip(1) {
            let Some(text) = word.text() else { continue };
            let value = options.iter().find_map(|o| {
                if text == *o {
                    return occurrence.words.get(n + 1).and_then(Word::text).map(str::to_owned);
                }
                let attached = match text.strip_prefix(o) {
                    Some(rest) if o.starts_with("--") => rest.strip_prefix('='),
                    Some(rest) if !rest.is_empty() => Some(rest),
                    _ => None,
                };
                attached.map(str::to_owned)
            });
            let action = text.strip_prefix("--checkpoint-action=exec=").map(str::to_owned);
            if let Some(command) = value.or(action) {
                self.read_shell_text(&command, position, state, true);
            }
        }
    }
}

fn is_stdin(word: &Word) -> bool {
    match word.text() {
        Some(text) => matches!(text, "/dev/stdin" | "-" | "/dev/fd/0" | "/proc/self/fd/0"),
        None => word.hint.as_deref().is_some_and(|h| h.starts_with("/dev/fd")),
    }
}

pub(super) fn find_interpreter(
    program: &str,
) -> Option<&'static (&'static str, &'static [&'static str], &'static str)> {
    let bare = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.iter().find(|(name, _, _)| *name == program || *name == bare)
}

/// Programs that can run code, but whose operands are not scripts.
const TAKE_NO_SCRIPT: &[&str] = &["gdb", "lldb", "emacs", "vim", "vi", "nvim", "ex", "sqlite3"];

/// Whether the first operand of a program is a script that it runs.
pub(crate) fn runs_scripts(program: &str) -> bool {
    SHELLS.contains(&program) || find_interpreter(program).is_some() && !TAKE_NO_SCRIPT.contains(&program)
}

/// Whether an interpreter takes its code from its words or its input.
pub(super) fn code_source(occurrence: &Occurrence, code: &[&str], letters: &str) -> Option<Opaque> {
    let mut operand = false;
    for word in &occurrence.words[1..] {
        let Some(text) = word.text() else {
            if is_stdin(word) {
                return Some(Opaque::Input);
            }
            operand = true;
            continue;
        };
        if code.iter().any(|c| text == *c || c.starts_with("--") && text.starts_with(&format!("{c}="))) {
            return Some(Opaque::Code);
        }
        let cluster = text.len() > 1 && text.starts_with('-') && !text.starts_with("--");
        if cluster && !operand && text[1..].chars().any(|c| letters.contains(c)) {
            return Some(Opaque::Code);
        }
        if is_stdin(word) {
            return Some(Opaque::Input);
        }
        // The words behind the script are the script's own.
        if !text.starts_with('-') || matches!(text, "-m") || prints_information(text) {
            operand = true;
            break;
        }
    }
    let reads_input = matches!(occurrence.input, InputSource::Pipe | InputSource::Text(_) | InputSource::Files(_))
        || occurrence.words.len() == 1;
    let shell_like = !occurrence.words[0].text().is_some_and(|name| TAKE_NO_SCRIPT.contains(&name) && name != "ex");
    (!operand && reads_input && shell_like).then_some(Opaque::Input)
}
