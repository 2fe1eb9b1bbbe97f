//! Wrappers (`sudo`, `env`, `timeout`, `xargs`, …) run the command behind their own options. The wrapper is removed,
//! and the command is read as if it stood alone, with the directory, environment and input that the wrapper gives it.

use super::{
    lex,
    plan_builder::{PlanBuilder, TextPosition},
    simple_command::{goes_up, is_inert_variable, keeps_characters},
    state::ShellState,
};
use crate::{
    paths,
    tables::{self, OperandRole, ParsedOptions, WrapperKind},
};
use countersign_model::{Assignment, Directory, InputSource, Occurrence, Opaque, Redirect, Word, WordValue};
use std::rc::Rc;

/// The largest number of words that are tried as the start of the command.
const MAX_COMMAND_STARTS: usize = 16;
/// The largest number of words taken from a known input.
const MAX_INPUT_WORDS: usize = 64;

/// The state of reading a wrapper's command line.
struct WrapperScan<'a> {
    program: &'a str,
    wrapper: &'a tables::Wrapper,
    words: &'a [Word],
    parsed: ParsedOptions<'a>,
    /// The index of the first word of the command.
    command_start: usize,
    /// The start of the command may be wrong.
    unclear: bool,
    /// `su -c '…'`, `env -S '…'`: text for a shell or similar.
    payloads: Vec<String>,
    assignments: Vec<Assignment>,
    /// The state of the shell for the wrapped command.
    inner: ShellState,
}

impl<'a> WrapperScan<'a> {
    fn new(
        program: &'a str,
        wrapper: &'a tables::Wrapper,
        words: &'a [Word],
        assignments: &[Assignment],
        state: &ShellState,
    ) -> Self {
        let parsed: ParsedOptions<'_> = wrapper.grammar.parse_options(&words[1..], false, true);
        Self {
            program,
            wrapper,
            words,
            command_start: 1 + parsed.rest,
            // An unknown option may take a value, or name a program itself.
            unclear: parsed.misfit.is_some() || parsed.has(&["-S", "--split-string"]),
            parsed,
            payloads: Vec::new(),
            assignments: assignments.to_vec(),
            inner: state.clone(),
        }
    }

    fn prints_information(&self) -> bool {
        self.parsed.has(&["--version", "--help", "-V"]) && self.wrapper.kind != WrapperKind::Privileged
    }

    fn is_privileged(&self) -> bool {
        self.wrapper.kind == WrapperKind::Privileged
    }

    /// Reads the options: files that the wrapper opens become redirects, text becomes a payload. Returns the
    /// directory that it changes to; of several, the last.
    fn read_options(&mut self, state: &ShellState, redirects: &mut Vec<Redirect>) -> Option<Word> {
        let mut moved = None;
        for (option, value, role) in &self.parsed.options {
            match (role, value) {
                (OperandRole::Dir, Some(value)) if matches!(option.as_str(), "-C" | "--chdir" | "-D") => {
                    // A program resolves symbolic links.
                    self.inner.directory = Rc::new(match (value.text(), &*state.directory) {
                        (Some(to), Directory::Known(from)) if !goes_up(to) => {
                            Directory::Known(from.iter().map(|d| paths::clean(&paths::join(d, to))).collect())
                        }
                        _ => Directory::Unknown,
                    });
                    self.inner.physical = true;
                    moved = Some(value.clone());
                }
                (OperandRole::WriteFile, Some(value)) => {
                    redirects.push(Redirect { target: value.clone(), write: true, append: false });
                }
                (OperandRole::File, Some(value)) => {
                    redirects.push(Redirect { target: value.clone(), write: false, append: false });
                }
                (OperandRole::Program, Some(value)) => self.payloads.extend(value.text().map(str::to_owned)),
                _ => {}
            }
        }
        moved
    }

    /// Reads `env NAME=value …` and `env -i`.
    fn read_environment(&mut self) {
        if !matches!(self.wrapper.kind, WrapperKind::Environment | WrapperKind::Privileged) {
            return;
        }
        while let Some(text) = self.words.get(self.command_start).and_then(Word::text)
            && let Some((name, value)) = text.split_once('=')
            && lex::name_length(name.as_bytes()) == Some(name.len())
        {
            let value = WordValue::One(value.to_owned());
            self.unclear |= !keeps_characters(name, &value);
            if !is_inert_variable(name) {
                self.assignments.push(Assignment { name: name.to_owned(), value });
            }
            self.command_start += 1;
        }
        // `env -i` and `env -u NAME` change the environment too.
        if self.parsed.has(&["-i", "-u", "--ignore-environment", "--unset"]) {
            self.assignments.push(Assignment { name: "environment".to_owned(), value: WordValue::Unknown });
        }
    }

    /// Skips the wrapper's own operands to the start of the command.
    fn find_command(&mut self, redirects: &mut Vec<Redirect>) {
        let words = self.words;
        let payload_at = |n: usize| words.get(n).and_then(Word::text).map(str::to_owned);
        if self.program == "flock"
            && let Some(file) = words.get(self.command_start)
        {
            redirects.push(Redirect { target: file.clone(), write: true, append: true });
        }
        // `su user -c '…'`: the options need not come first.
        if matches!(self.program, "su" | "runuser")
            && let Some(at) = words.iter().position(|w| matches!(w.text(), Some("-c" | "--command")))
            && self.payloads.is_empty()
        {
            self.payloads.extend(payload_at(at + 1));
            self.command_start = words.len();
        }
        let names_user = self.parsed.has(&["-u", "--user"]) && self.program == "runuser";
        self.command_start += if names_user { 0 } else { self.wrapper.operands };
        if words.get(self.command_start).and_then(Word::text) == Some("-c") {
            self.payloads.extend(payload_at(self.command_start + 1));
            self.command_start = words.len();
        }
    }

    fn command(&self) -> &'a [Word] {
        self.words.get(self.command_start..).unwrap_or_default()
    }

    /// Whether the wrapper is an occurrence of its own. `nohup` and similar add nothing; a wrapper given by its path
    /// may be another program of that name.
    fn is_own_occurrence(&self, is_path: bool, occurrence: &Occurrence) -> bool {
        self.is_privileged()
            || is_path && !paths::is_system(self.words[0].text().unwrap_or_default())
            || self.wrapper.kind == WrapperKind::Foreign
            // `parallel` passes its words to a shell again.
            || self.program == "parallel"
            || occurrence.opaque.is_some()
    }
}

impl PlanBuilder<'_> {
    /// Reads a program that runs the command behind its own options.
    pub(super) fn strip_wrapper(
        &mut self,
        program: &str,
        wrapper: &tables::Wrapper,
        mut occurrence: Occurrence,
        position: TextPosition,
        state: &mut ShellState,
        is_path: bool,
    ) {
        let words = occurrence.words.clone();
        let mut wrapped = WrapperScan::new(program, wrapper, &words, &occurrence.assignments, state);
        if wrapped.prints_information() {
            self.emit(occurrence);
            return;
        }
        // Changing the directory is judged as for `cd`.
        if let Some(to) = wrapped.read_options(state, &mut occurrence.redirects) {
            self.emit(Occurrence {
                words: vec![Word::literal("cd"), Word::literal("--"), to],
                redirects: Vec::new(),
                assignments: Vec::new(),
                opaque: None,
                ..occurrence.clone()
            });
        }
        wrapped.read_environment();
        wrapped.find_command(&mut occurrence.redirects);
        if wrapped.command().is_empty() || wrapped.unclear {
            self.read_unclear_wrapper(wrapped, occurrence, position);
        } else {
            self.read_wrapped_command(wrapped, occurrence, position, is_path);
        }
    }

    /// Reads a wrapper whose command is missing or cannot be found: the wrapper then stands for what it runs.
    fn read_unclear_wrapper(&mut self, wrapped: WrapperScan<'_>, mut occurrence: Occurrence, position: TextPosition) {
        let privileged = wrapped.is_privileged();
        let has_payloads = !wrapped.payloads.is_empty() && !wrapped.unclear;
        if wrapped.unclear || privileged {
            occurrence.opaque.get_or_insert(Opaque::Wrapper);
        }
        occurrence.verb = wrapped.program.to_owned();
        if privileged && !wrapped.unclear || has_payloads {
            occurrence.opaque = None;
        }
        occurrence.privileged = privileged;
        self.emit(occurrence);
        for text in &wrapped.payloads {
            let before = std::mem::replace(&mut self.privileged, privileged);
            if has_payloads {
                self.read_shell_text(text, position, &wrapped.inner, true);
            } else {
                self.read_for_risks(text, position, &wrapped.inner);
            }
            self.privileged = before;
        }
        if wrapped.unclear {
            // Reads from every word that may be the start of the command.
            let before = std::mem::replace(&mut self.shadow, true);
            for at in 1..wrapped.words.len().min(MAX_COMMAND_STARTS) {
                let input = self.input.clone();
                let words = wrapped.words[at..].to_vec();
                self.read_command_words(words, Vec::new(), Vec::new(), position, &mut wrapped.inner.clone(), None);
                self.input = input;
            }
            self.shadow = before;
        }
    }

    /// Reads the command behind the wrapper as a command of its own.
    fn read_wrapped_command(
        &mut self,
        wrapped: WrapperScan<'_>,
        occurrence: Occurrence,
        position: TextPosition,
        is_path: bool,
    ) {
        let privileged = wrapped.is_privileged();
        let apart = wrapped.is_own_occurrence(is_path, &occurrence) || !occurrence.redirects.is_empty();
        let kind = wrapped.wrapper.kind;
        let mut command = wrapped.command().to_vec();
        if kind == WrapperKind::Input {
            self.add_input_words(&mut command, &wrapped.parsed);
        }
        if apart {
            let mut own = occurrence.clone();
            own.privileged = privileged;
            self.emit(own);
        }
        let before = (self.privileged, self.input.clone(), self.wrapped, self.timed);
        self.wrapped = true;
        self.timed |= matches!(wrapped.program, "timeout" | "gtimeout");
        self.privileged |= privileged;
        let mut inner = wrapped.inner;
        if kind == WrapperKind::Shell {
            let text: Option<Vec<String>> = command.iter().map(|w| w.text().map(str::to_owned)).collect();
            match text {
                Some(text) => self.read_shell_text(&text.join(" "), position, &inner, true),
                None => self.emit_unread("", Opaque::Wrapper, &inner),
            }
        } else {
            // The wrapper reads the input, not its command.
            let input = if kind == WrapperKind::Input { InputSource::Inherited } else { self.input.clone() };
            let redirects = if apart { Vec::new() } else { occurrence.redirects };
            self.read_command_words(command, wrapped.assignments, redirects, position, &mut inner, Some(input));
        }
        (self.privileged, self.input, self.wrapped, self.timed) = before;
    }

    /// `xargs`: adds the words of its input to the command, in place of a placeholder or at the end.
    fn add_input_words(&self, command: &mut Vec<Word>, parsed: &ParsedOptions<'_>) {
        // A list counts only if its words are roughly its lines, and if it is what xargs reads.
        let odd = |(option, value, _): &(String, Option<Word>, OperandRole)| match option.as_str() {
            "-d" | "--delimiter" => {
                !value.as_ref().and_then(Word::text).is_some_and(|d| matches!(d, "\\n" | "\n" | "\\0"))
            }
            "-a" | "--arg-file" => true,
            _ => false,
        };
        let names = match &self.input {
            InputSource::Files(globs) if !parsed.options.iter().any(odd) => Some(file_name_words(globs)),
            _ => None,
        };
        let count_options =
            |names: &[&str]| parsed.options.iter().filter(|(o, _, _)| names.contains(&o.as_str())).count();
        let marks = count_options(&["-I", "-i", "--replace"]);
        let mark = parsed.options.iter().find_map(|(o, v, _)| {
            let named = matches!(o.as_str(), "-I" | "-i" | "--replace");
            named.then(|| v.as_ref().and_then(Word::text).unwrap_or("{}").to_owned())
        });
        if let Some(mark) = &mark {
            self.replace_mark(command, mark, names.as_ref());
        }
        // With an option for the number of words as well, only one of the two options takes effect.
        if mark.is_none() || count_options(&["-L", "-l", "--max-lines", "-n", "--max-args"]) > 0 {
            // Known input counts, but may not be all of it.
            if let InputSource::Text(Some(text)) = &self.input {
                command.extend(text.split_whitespace().take(MAX_INPUT_WORDS).map(Word::literal));
            }
            command.push(names.unwrap_or_else(Word::unknown));
        }
        // Of two placeholders the last counts, and any word may contain it.
        if marks > 1 {
            command.iter_mut().for_each(|w| *w = Word::unknown());
        }
    }

    /// Replaces the placeholder of `xargs -I{} … {} …`.
    fn replace_mark(&self, command: &mut [Word], mark: &str, names: Option<&Word>) {
        for word in command {
            if let Some(text) = word.text().filter(|t| t.contains(mark)) {
                let hint = match &self.input {
                    InputSource::Text(Some(input)) => Some(text.replace(mark, input.trim())),
                    _ => None,
                };
                *word = match names {
                    Some(names) if text == mark => names.clone(),
                    _ => Word { quoted: true, many: false, hint, ..Word::unknown() },
                };
            }
        }
    }
}

/// Words from a list of file names.
fn file_name_words(globs: &[String]) -> Word {
    Word { value: WordValue::Pattern(globs.to_vec()), quoted: false, many: true, substituted: true, hint: None }
}
