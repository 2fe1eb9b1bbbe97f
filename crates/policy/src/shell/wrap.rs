//! Programs that run other programs: shells, wrappers, `find -exec`, `ssh`, interpreters.

use super::{
    lex,
    simple::{goes_up, inert, is_positional, keeps_characters, positional},
    state::State,
    walk::{Place, Walk},
};
use crate::{
    paths,
    tables::{self, Parsed, Role, Wraps},
};
use countersign_model::{Assignment, Directory, Input, Occurrence, Opaque, Redirect, Value, Word};
use std::rc::Rc;

#[rustfmt::skip]
pub(super) const SHELLS: &[&str] = &[
    "bash", "sh", "dash", "ash", "rbash", "ksh", "ksh93", "rksh", "mksh", "lksh", "oksh", "pdksh", "loksh", "posh", "zsh",
    "rzsh", "yash", "rc", "es",
];
/// Those whose text means what the reader takes it for. Others have words of their own, and read ours differently.
const READ: &[&str] = &["bash", "sh", "dash", "ash", "rbash"];
/// Interpreters whose code is near enough to a shell's to be read for its risks.
pub(super) const NEAR_SHELLS: &[&str] = &["fish", "csh", "tcsh", "nu", "xonsh"];

/// Interpreters: the options that take code, and the letter that does so inside a cluster.
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

/// Whether options of a shell leave the meaning of its text alone. The last letter may be an `o`, and then the next word
/// names the option.
fn keeps_meaning(text: &str, next: Option<&Word>) -> bool {
    const NAMES: &[&str] = &["pipefail", "errexit", "nounset", "xtrace", "verbose"];
    let letters = if text.starts_with('-') { "ceuxvl" } else { "euxv" };
    let (cluster, named) = match text[1..].strip_suffix('o') {
        Some(cluster) => (cluster, next.and_then(Word::text).is_some_and(|name| NAMES.contains(&name))),
        None => (&text[1..], true),
    };
    named && cluster.chars().all(|c| letters.contains(c))
}

/// Whether these are options after which an interpreter only says something about itself.
fn informs(text: &str) -> bool {
    matches!(text, "--version" | "-V" | "-v" | "--help" | "-h" | "-version" | "version" | "help")
}

impl Walk<'_> {
    /// `bash -c '…'`, `bash script`, `… | sh`.
    pub(super) fn shell_command(&mut self, program: &str, mut made: Occurrence, place: Place, state: &mut State) {
        let posix = !matches!(program, "bash" | "rbash");
        let (mut text_follows, mut from_input, mut reviewed) = (false, false, true);
        let mut n = 1;
        while n < made.words.len() {
            let word = &made.words[n];
            let Some(text) = word.text() else { break };
            match text {
                "--" | "-" => {
                    n += 1;
                    break;
                }
                "--rcfile" | "--init-file" => {
                    // That file is run first.
                    made.opaque.get_or_insert(Opaque::Source);
                    n += 1;
                }
                "--norc" | "--noprofile" | "--login" => {}
                _ if text.starts_with("--") => {
                    if informs(text) {
                        self.emit(made);
                        return;
                    }
                    reviewed = false;
                }
                _ if text.len() > 1 && text.starts_with(['-', '+']) => {
                    // Bash takes a command behind `+c` as well.
                    text_follows |= text.contains('c');
                    from_input |= text.contains('s');
                    reviewed &= keeps_meaning(text, made.words.get(n + 1));
                    n += text.matches(['o', 'O']).count();
                }
                _ => break,
            }
            n += 1;
        }
        if text_follows && !reviewed {
            made.opaque.get_or_insert(Opaque::ShellMutation);
        }
        if text_follows && !READ.contains(&program) {
            made.opaque.get_or_insert(Opaque::Code);
        }
        let mut inner = state.clone();
        for assignment in &made.assignments {
            // Without a word of how it got there, a shell goes by where it is.
            inner.physical |= matches!(assignment.name.as_str(), "PWD" | "environment");
            Rc::make_mut(&mut inner.exported).insert(assignment.name.clone(), assignment.value.clone());
            inner.set(&assignment.name, assignment.value.clone());
        }
        let operand = made.words.get(n).cloned();
        if text_follows {
            Rc::make_mut(&mut inner.variables).retain(|name, _| !is_positional(name));
            positional(made.words.get(n + 1..).unwrap_or_default(), 0, &mut inner);
        }
        match (text_follows, operand) {
            (true, Some(word)) => match word.texts() {
                Some([text]) if made.opaque.is_none() => {
                    let text = text.clone();
                    // What the shell itself writes to counts for all that runs in it.
                    if made.redirects.iter().any(|r| r.write) || !made.redirects.is_empty() {
                        self.emit(Occurrence {
                            verb: ":".to_owned(),
                            words: vec![Word::literal(":")],
                            redirects: std::mem::take(&mut made.redirects),
                            ..made.clone()
                        });
                    }
                    self.shell(&text, place, &inner, posix);
                }
                texts => {
                    for text in texts.unwrap_or_default().iter().chain(&word.hint).cloned().collect::<Vec<_>>() {
                        self.beside(&text, place, &inner);
                    }
                    made.opaque.get_or_insert(Opaque::DynamicProgram);
                    self.emit(made);
                }
            },
            (true, None) => {
                made.opaque.get_or_insert(Opaque::Wrapper);
                self.emit(made);
            }
            (false, Some(word)) if !from_input && !is_stdin(&word) => self.emit(made),
            (false, _) => {
                made.opaque.get_or_insert(Opaque::Input);
                let text = match &made.input {
                    Input::Text(text) => text.clone(),
                    _ => None,
                };
                self.emit(made);
                if let Some(text) = text {
                    self.beside(&text, place, &inner);
                }
            }
        }
    }

    /// A program that runs the command behind its own options.
    pub(super) fn unwrap(
        &mut self,
        program: &str,
        wrapper: &tables::Wrapper,
        mut made: Occurrence,
        place: Place,
        state: &mut State,
        is_path: bool,
    ) {
        let words = made.words.clone();
        let parsed: Parsed<'_> = wrapper.grammar.tell(&words[1..], false, true);
        let mut rest = 1 + parsed.rest;
        if parsed.has(&["--version", "--help", "-V"]) && wrapper.kind != Wraps::Privileged {
            self.emit(made);
            return;
        }
        // Options that we do not know may take a value, or name a program themselves.
        let mut unclear = parsed.misfit.is_some() || parsed.has(&["-S", "--split-string"]);
        let mut inner = state.clone();
        let mut assignments = made.assignments.clone();
        let mut payloads: Vec<String> = Vec::new();
        let mut moved = None;
        for (option, value, role) in &parsed.options {
            match (role, value) {
                (Role::Dir, Some(value)) if matches!(option.as_str(), "-C" | "--chdir" | "-D") => {
                    // Of several the last holds; and a program goes by where things really are.
                    inner.directory = Rc::new(match (value.text(), &*state.directory) {
                        (Some(to), Directory::Known(from)) if !goes_up(to) => {
                            Directory::Known(from.iter().map(|d| paths::clean(&paths::join(d, to))).collect())
                        }
                        _ => Directory::Unknown,
                    });
                    inner.physical = true;
                    moved = Some(value.clone());
                }
                (Role::WriteFile, Some(value)) => {
                    made.redirects.push(Redirect { target: value.clone(), write: true, append: false });
                }
                (Role::File, Some(value)) => {
                    made.redirects.push(Redirect { target: value.clone(), write: false, append: false });
                }
                // `su -c '…'`, `env -S '…'`: text for a shell, or near enough.
                (Role::Program, Some(value)) => payloads.extend(value.text().map(str::to_owned)),
                _ => {}
            }
        }
        // To go somewhere is judged as it is for `cd`.
        if let Some(to) = moved {
            self.emit(Occurrence {
                words: vec![Word::literal("cd"), Word::literal("--"), to],
                redirects: Vec::new(),
                assignments: Vec::new(),
                opaque: None,
                ..made.clone()
            });
        }
        if matches!(wrapper.kind, Wraps::Environment | Wraps::Privileged) {
            while let Some(text) = words.get(rest).and_then(Word::text)
                && let Some((name, value)) = text.split_once('=')
                && lex::name_length(name.as_bytes()) == Some(name.len())
            {
                let value = Value::One(value.to_owned());
                unclear |= !keeps_characters(name, &value);
                if !inert(name) {
                    assignments.push(Assignment { name: name.to_owned(), value });
                }
                rest += 1;
            }
            // `env -i`, `env -u NAME` change the environment too.
            if parsed.has(&["-i", "-u", "--ignore-environment", "--unset"]) {
                assignments.push(Assignment { name: "environment".to_owned(), value: Value::Unknown });
            }
        }
        if program == "flock"
            && let Some(file) = words.get(rest)
        {
            made.redirects.push(Redirect { target: file.clone(), write: true, append: true });
        }
        // `su user -c '…'`: its options need not come first.
        if matches!(program, "su" | "runuser")
            && let Some(at) = words.iter().position(|w| matches!(w.text(), Some("-c" | "--command")))
            && payloads.is_empty()
        {
            payloads.extend(words.get(at + 1).and_then(Word::text).map(str::to_owned));
            rest = words.len();
        }
        rest += if parsed.has(&["-u", "--user"]) && program == "runuser" { 0 } else { wrapper.operands };
        if words.get(rest).and_then(Word::text) == Some("-c") {
            payloads.extend(words.get(rest + 1).and_then(Word::text).map(str::to_owned));
            rest = words.len();
        }
        let inner_words: Vec<Word> = words.get(rest..).unwrap_or_default().to_vec();
        let privileged = wrapper.kind == Wraps::Privileged;
        // `nohup` and its kind leave nothing of their own; a path may be another program of that name.
        let own = privileged
            || is_path && !paths::is_system(words[0].text().unwrap_or_default())
            || wrapper.kind == Wraps::Foreign
            // It gives its words to a shell once more.
            || program == "parallel"
            || made.opaque.is_some();
        let writes = !made.redirects.is_empty();
        if inner_words.is_empty() || unclear {
            unclear |= !inner_words.is_empty();
            if unclear || privileged {
                made.opaque.get_or_insert(Opaque::Wrapper);
            }
            made.verb = program.to_owned();
            if privileged && !unclear && payloads.is_empty() {
                made.opaque = None;
            }
            let had = !payloads.is_empty() && !unclear;
            if had {
                made.opaque = None;
            }
            made.privileged = privileged;
            self.emit(made);
            for text in &payloads {
                let before = std::mem::replace(&mut self.privileged, privileged);
                if had {
                    self.shell(text, place, &inner, true)
                } else {
                    self.beside(text, place, &inner)
                }
                self.privileged = before;
            }
            if unclear {
                // Where the command starts is not clear: read from every word that could be it.
                let before = std::mem::replace(&mut self.shadow, true);
                for at in 1..words.len().min(16) {
                    let (input, pending) = (self.input.clone(), None);
                    self.command_words(
                        words[at..].to_vec(),
                        Vec::new(),
                        Vec::new(),
                        place,
                        &mut inner.clone(),
                        pending,
                    );
                    self.input = input;
                }
                self.shadow = before;
            }
            return;
        }
        let mut next = inner_words;
        if wrapper.kind == Wraps::Input {
            // A list counts only where its words are its lines, more or less, and where it is what is read.
            let odd = |(option, value, _): &(String, Option<Word>, Role)| match option.as_str() {
                "-d" | "--delimiter" => {
                    !value.as_ref().and_then(Word::text).is_some_and(|d| matches!(d, "\\n" | "\n" | "\\0"))
                }
                "-a" | "--arg-file" => true,
                _ => false,
            };
            let names = match &self.input {
                Input::Files(globs) if !parsed.options.iter().any(odd) => Some(listed(globs)),
                _ => None,
            };
            let given = |names: &[&str]| parsed.options.iter().filter(|(o, _, _)| names.contains(&o.as_str())).count();
            let marks = given(&["-I", "-i", "--replace"]);
            let replaced = parsed.options.iter().find_map(|(o, v, _)| {
                let named = matches!(o.as_str(), "-I" | "-i" | "--replace");
                named.then(|| v.as_ref().and_then(Word::text).unwrap_or("{}").to_owned())
            });
            if let Some(mark) = &replaced {
                for word in &mut next {
                    if let Some(text) = word.text().filter(|t| t.contains(mark)) {
                        let hint = match &self.input {
                            Input::Text(Some(given)) => Some(text.replace(mark, given.trim())),
                            _ => None,
                        };
                        *word = match &names {
                            Some(names) if text == mark => names.clone(),
                            _ => Word { quoted: true, many: false, hint, ..Word::unknown() },
                        };
                    }
                }
            }
            // Where it is told how many words to take as well, only one of the two holds.
            if replaced.is_none() || given(&["-L", "-l", "--max-lines", "-n", "--max-args"]) > 0 {
                // What is known of its input counts, though not as the whole of it.
                if let Input::Text(Some(text)) = &self.input {
                    next.extend(text.split_whitespace().take(64).map(Word::literal));
                }
                next.push(names.unwrap_or_else(Word::unknown));
            }
            // Of two marks the last holds, and any word may be it.
            if marks > 1 {
                next.iter_mut().for_each(|w| *w = Word::unknown());
            }
        }
        if own || writes {
            let mut own = made.clone();
            own.privileged = privileged;
            self.emit(own);
        }
        let before = (self.privileged, self.input.clone(), self.wrapped, self.timed);
        self.wrapped = true;
        self.timed |= matches!(program, "timeout" | "gtimeout");
        self.privileged |= privileged;
        // What it reads is its input, not its command's.
        let input = match wrapper.kind {
            Wraps::Input => Input::Inherited,
            _ => self.input.clone(),
        };
        let redirects = if own || writes { Vec::new() } else { made.redirects };
        if wrapper.kind == Wraps::Shell {
            let text: Option<Vec<String>> = next.iter().map(|w| w.text().map(str::to_owned)).collect();
            match text {
                Some(text) => self.shell(&text.join(" "), place, &inner, true),
                None => self.unread("", Opaque::Wrapper, &inner),
            }
        } else {
            self.command_words(next, assignments, redirects, place, &mut inner, Some(input));
        }
        (self.privileged, self.input, self.wrapped, self.timed) = before;
    }

    /// The commands of `find … -exec`.
    pub(super) fn find_actions(&mut self, made: &Occurrence, place: Place, state: &mut State) {
        let words = &made.words;
        let mut n = 1;
        while n < words.len() {
            let text = words[n].text().unwrap_or_default();
            n += 1;
            if !matches!(text, "-exec" | "-execdir" | "-ok" | "-okdir") {
                continue;
            }
            // Only these gather names and end at a `+`.
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
                    // A name below where it started: it cannot look like an option unless that did.
                    Some("{}") if !text.ends_with("dir") => Word {
                        value: Value::Pattern(below.clone()),
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
                    // In the directory of each file, which may be above where it started.
                    there.directory = Rc::new(Directory::Unknown);
                }
                let before = (std::mem::take(&mut self.input), std::mem::replace(&mut self.wrapped, true));
                self.command_words(inner, made.assignments.clone(), Vec::new(), place, &mut there, None);
                (self.input, self.wrapped) = before;
            }
            n = end + 1;
        }
    }

    /// What `ssh` is told to run there: read for its risks.
    pub(super) fn remote(&mut self, made: &mut Occurrence, place: Place, state: &State) {
        let takes = "BbcDEeFIiJLlmOopQRSWw";
        let mut n = 1;
        while let Some(text) = made.words.get(n).and_then(Word::text)
            && text.starts_with('-')
            && text.len() > 1
        {
            n += if text.len() == 2 && takes.contains(&text[1..]) { 2 } else { 1 };
        }
        let words: Option<Vec<&str>> = made.words.get(n + 1..).unwrap_or_default().iter().map(Word::text).collect();
        match words {
            Some(words) if !words.is_empty() => {
                let text = words.join(" ");
                let from = self.occurrences.len();
                let mut elsewhere = state.clone();
                elsewhere.directory = Rc::new(Directory::Unknown);
                self.beside(&text, place, &elsewhere);
                for occurrence in &mut self.occurrences[from..] {
                    occurrence.remote = true;
                }
            }
            _ => {}
        }
    }

    /// Programs that options name: `tar --info-script=…`, `rsync -e …`, `git rebase --exec …`.
    pub(super) fn named_programs(&mut self, made: &Occurrence, place: Place, state: &mut State) {
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
        let program = made.words[0].text().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
        let Some((_, options)) = OPTIONS.iter().find(|(p, _)| *p == program) else { return };
        for (n, word) in made.words.iter().enumerate().skip(1) {
            let Some(text) = word.text() else { continue };
            let value = options.iter().find_map(|o| {
                if text == *o {
                    return made.words.get(n + 1).and_then(Word::text).map(str::to_owned);
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
                self.shell(&command, place, state, true);
            }
        }
    }
}

/// Words from a list of file names.
fn listed(globs: &[String]) -> Word {
    Word { value: Value::Pattern(globs.to_vec()), quoted: false, many: true, substituted: true, hint: None }
}

fn is_stdin(word: &Word) -> bool {
    match word.text() {
        Some(text) => matches!(text, "/dev/stdin" | "-" | "/dev/fd/0" | "/proc/self/fd/0"),
        None => word.hint.as_deref().is_some_and(|h| h.starts_with("/dev/fd")),
    }
}

pub(super) fn interpreter(program: &str) -> Option<&'static (&'static str, &'static [&'static str], &'static str)> {
    let bare = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.iter().find(|(name, _, _)| *name == program || *name == bare)
}

/// Programs that can be told to run code, and whose operands are not that.
const NOT_SCRIPTS: &[&str] = &["gdb", "lldb", "emacs", "vim", "vi", "nvim", "ex", "sqlite3"];

/// Whether the first operand of a program is a script that it runs.
pub(crate) fn runs_scripts(program: &str) -> bool {
    SHELLS.contains(&program) || interpreter(program).is_some() && !NOT_SCRIPTS.contains(&program)
}

/// Whether an interpreter gets its code from its words or its input.
pub(super) fn runs_code(made: &Occurrence, code: &[&str], letters: &str) -> Option<Opaque> {
    let mut operand = false;
    for word in &made.words[1..] {
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
        // Behind the script come its own words.
        if !text.starts_with('-') || matches!(text, "-m") || informs(text) {
            operand = true;
            break;
        }
    }
    let reads_input = matches!(made.input, Input::Pipe | Input::Text(_) | Input::Files(_)) || made.words.len() == 1;
    let shell_like = !made.words[0].text().is_some_and(|name| NOT_SCRIPTS.contains(&name) && name != "ex");
    (!operand && reads_input && shell_like).then_some(Opaque::Input)
}
