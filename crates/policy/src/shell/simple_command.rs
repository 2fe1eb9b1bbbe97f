//! Reads one simple command: its assignments, the shell's builtins, programs that run other programs, and nested
//! shells. Every other command becomes an occurrence as it is.

use super::{
    lex,
    nested_commands::{SHELL_LIKE, SHELLS, code_source, find_interpreter},
    plan_builder::{PlanBuilder, TextPosition, is_array},
    state::{ExitStates, ShellState},
};
use crate::{paths, tables};
use countersign_model::{Assignment, Directory, InputSource, Occurrence, Opaque, Redirect, Word, WordValue};
use std::rc::Rc;

/// Variables that only change how output looks.
const INERT_VARIABLES: &[&str] =
    &["LANG", "LANGUAGE", "TZ", "COLUMNS", "LINES", "NO_COLOR", "CLICOLOR", "GIT_OPTIONAL_LOCKS"];
/// Variables to which bash assigns by evaluating the value.
#[rustfmt::skip]
const EVALUATED_VARIABLES: &[&str] = &[
    "RANDOM", "SRANDOM", "SECONDS", "HISTCMD", "LINENO", "OPTIND", "BASHPID", "EPOCHSECONDS", "UID", "EUID", "PPID",
];
/// Variables that bash itself uses.
#[rustfmt::skip]
const BASH_VARIABLES: &[&str] = &[
    "PATH", "HOME", "IFS", "CDPATH", "ENV", "SHELLOPTS", "BASHOPTS", "PS0", "PS1", "PS2", "PS4", "PROMPT_COMMAND",
    "GLOBIGNORE", "POSIXLY_CORRECT", "TIMEFORMAT", "TMOUT", "FIGNORE", "EXECIGNORE", "OPTIND", "FUNCNEST", "TMPDIR",
    "HISTFILE", "HISTCMD", "INPUTRC", "MAILPATH", "OLDPWD", "PWD", "SHELL",
];
/// Common variables that tell programs what to run or to load.
#[rustfmt::skip]
const PROGRAM_VARIABLES: &[&str] = &[
    "PAGER", "EDITOR", "VISUAL", "BROWSER", "TERM", "CC", "CXX", "LD", "AR", "MAKEFLAGS", "CFLAGS", "LDFLAGS",
    "CLASSPATH", "MANPATH", "USER", "LOGNAME", "DISPLAY", "LESS", "LESSOPEN", "LESSCLOSE", "MORE", "TAR_OPTIONS",
    "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
];
#[rustfmt::skip]
const PROGRAM_VARIABLE_PREFIXES: &[&str] = &[
    "BASH", "LD_", "DYLD_", "GIT_", "SSH_", "GPG_", "PYTHON", "NODE_", "NPM_", "npm_", "RUBY", "GEM_", "PERL", "PHP",
    "JAVA_", "JDK_", "MAVEN_", "GRADLE_", "GO", "CARGO", "RUST", "XDG_", "GREP_", "RIPGREP_", "FZF_", "MAN", "LESS",
    "DOCKER_", "KUBE", "AWS_", "GCLOUD", "AZURE_", "GOOGLE_", "TERRAFORM", "TF_", "DBUS_", "SYSTEMD_", "GLIBC_",
    "MALLOC_", "LUA_", "OPENSSL_", "CURL_", "WGET", "PIP_", "UV_", "VIRTUAL_ENV", "CONDA", "MAKE", "CMAKE",
];

/// Whether bash, or the loader of every program, uses this variable.
pub(crate) fn is_bash_variable(name: &str) -> bool {
    BASH_VARIABLES.contains(&name) || ["BASH", "LD_"].iter().any(|p| name.starts_with(p)) || name == "environment"
}

/// Whether a locale uses characters whose second byte may be a backslash or a quote.
pub(crate) fn splits_characters(name: &str, value: &str) -> bool {
    const OF_HALVES: &[&str] = &["gbk", "gb18030", "gb2312", "big5", "sjis", "shift", "johab", "hkscs"];
    let value = value.to_ascii_lowercase();
    matches!(name, "LANG" | "LC_ALL" | "LC_CTYPE") && OF_HALVES.iter().any(|set| value.contains(set))
}

/// Whether a variable is known not to change what programs do.
pub(crate) fn is_inert_variable(name: &str) -> bool {
    INERT_VARIABLES.contains(&name) || name.starts_with("LC_")
}

/// Whether a locale keeps the boundaries of characters that this reader assumes. In some character sets a backslash
/// or a quote is the second byte of a character, and bash applies a new locale from the next line on.
pub(crate) fn keeps_characters(name: &str, value: &WordValue) -> bool {
    if !matches!(name, "LANG" | "LC_ALL" | "LC_CTYPE") {
        return true;
    }
    let WordValue::One(value) = value else { return false };
    let value = value.to_ascii_lowercase();
    matches!(value.as_str(), "" | "c" | "posix") || value.ends_with(".utf-8") || value.ends_with(".utf8")
}

/// Variables that make a new shell run code, or read words differently.
pub(crate) fn mutates_bash(name: &str) -> bool {
    const MUTATE: &[&str] =
        &["BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "CDPATH", "GLOBIGNORE"];
    MUTATE.contains(&name) || name.starts_with("BASH_FUNC_")
}

pub(super) const DECLARING_BUILTINS: &[&str] = &["export", "declare", "typeset", "local", "readonly"];

impl PlanBuilder<'_> {
    pub(super) fn affects_programs(&self, name: &str) -> bool {
        !is_inert_variable(name)
            && (BASH_VARIABLES.contains(&name)
                || PROGRAM_VARIABLES.contains(&name)
                || PROGRAM_VARIABLE_PREFIXES.iter().any(|p| name.starts_with(p))
                || (self.environment)(name))
    }

    /// Sets a variable of this shell.
    pub(super) fn assign(&mut self, name: &str, value: WordValue, state: &mut ShellState) {
        // A readonly variable keeps its old value, which is not tracked.
        let value = if state.readonly.contains(name) { WordValue::Unknown } else { value };
        if self.affects_programs(name) {
            self.export(name, value, state);
        } else {
            state.set(name, value);
        }
    }

    fn export(&mut self, name: &str, value: WordValue, state: &mut ShellState) {
        if !is_inert_variable(name) {
            Rc::make_mut(&mut state.exported).insert(name.to_owned(), value.clone());
        }
        state.set(name, value);
    }

    /// Reads `NAME=value`; none if the word has another form.
    fn read_assignment(
        &mut self,
        raw: &str,
        position: TextPosition,
        state: &mut ShellState,
    ) -> Option<(String, WordValue)> {
        let length = lex::name_length(raw.as_bytes())?;
        let (name, mut rest) = raw.split_at(length);
        let mut element = false;
        if rest.starts_with('[') {
            let end = rest.find("]=").or_else(|| rest.find("]+="))?;
            let subscript = rest[1..end].to_owned();
            self.check_arithmetic(&subscript, position.nested_at(None), state);
            rest = &rest[end + 1..];
            element = true;
        }
        if EVALUATED_VARIABLES.contains(&name) {
            self.mark_opaque(Opaque::EvaluatesArguments);
        }
        let (append, text) = match rest.strip_prefix("+=") {
            Some(text) => (true, text),
            None => (false, rest.strip_prefix('=')?),
        };
        if is_array(raw) && raw.ends_with(')') {
            self.read_array(raw, position, state);
            return Some((name.to_owned(), WordValue::Unknown));
        }
        let value = self.expand_value(text, position.nested_at(None), state);
        if !keeps_characters(name, if append { &WordValue::Unknown } else { &value }) {
            self.mark_opaque(Opaque::ShellMutation);
        }
        let value = match (append || element, &value, state.get(name)) {
            (false, _, _) => value,
            (true, WordValue::One(more), Some(WordValue::One(before))) if !element => {
                WordValue::One(format!("{before}{more}"))
            }
            _ => WordValue::Unknown,
        };
        Some((name.to_owned(), value))
    }

    /// Reads `NAME=value` behind `export`: the name is known even if the value is not.
    pub(super) fn read_declaration(&mut self, raw: &str, position: TextPosition, state: &mut ShellState) -> Word {
        match self.read_assignment(raw, position, state) {
            Some((name, WordValue::One(value))) => Word::literal(format!("{name}={value}")),
            Some((name, _)) => Word { hint: Some(format!("={name}")), ..Word::unknown() },
            None => Word::unknown(),
        }
    }

    /// Reads the elements of `name=(…)`.
    pub(super) fn read_array(&mut self, raw: &str, position: TextPosition, state: &mut ShellState) {
        let Some((_, inner)) = raw.split_once("=(") else { return };
        let inner = inner.strip_suffix(')').unwrap_or(inner);
        let bytes = inner.as_bytes();
        let mut n = 0;
        while n < bytes.len() {
            match bytes[n] {
                b' ' | b'\t' | b'\n' => n += 1,
                b'#' => n += bytes[n..].iter().position(|b| *b == b'\n').unwrap_or(bytes.len() - n),
                _ => match lex::after_word(bytes, n, 1) {
                    Ok(end) if end > n => {
                        let element = &inner[n..end];
                        let (subscript, element) = match element.strip_prefix('[').and_then(|e| e.split_once("]=")) {
                            Some((subscript, value)) => (Some(subscript), value),
                            None => (None, element),
                        };
                        if let Some(subscript) = subscript {
                            self.check_arithmetic(subscript, position.nested_at(None), state);
                        }
                        self.expand_words(element, position.nested_at(None), state, &mut Vec::new());
                        n = end;
                    }
                    _ => {
                        self.mark_opaque(Opaque::Unparseable);
                        return;
                    }
                },
            }
        }
    }

    pub(super) fn read_simple_command(
        &mut self,
        words: Vec<Word>,
        raw: Vec<(String, TextPosition)>,
        redirects: Vec<Redirect>,
        position: TextPosition,
        state: &mut ShellState,
        input: Option<InputSource>,
    ) -> ExitStates {
        let mut prefix_assignments = Vec::new();
        for (text, at) in raw {
            match self.read_assignment(&text, at, state) {
                Some((name, value)) => prefix_assignments.push((name, value)),
                None => self.mark_opaque(Opaque::Unparseable),
            }
        }
        if words.is_empty() {
            for (name, value) in prefix_assignments {
                self.assign(&name, value, state);
            }
            let opaque = self.take_opaque();
            if !redirects.is_empty() || opaque.is_some() {
                self.emit(Occurrence {
                    verb: ":".to_owned(),
                    program: ":".to_owned(),
                    words: vec![Word::literal(":")],
                    span: position.span(),
                    directory: (*state.directory).clone(),
                    redirects,
                    opaque,
                    ..Occurrence::default()
                });
            }
            return ExitStates::unchanged(state.clone());
        }
        // An assignment before one of these persists in some shells.
        const KEEP: &[&str] = &[
            ":", ".", "source", "eval", "exec", "export", "readonly", "declare", "typeset", "local", "set", "shift",
            "trap", "unset", "return", "exit", "break", "continue", "command", "builtin",
        ];
        if words[0].text().is_none_or(|t| KEEP.contains(&t)) {
            for (name, _) in &prefix_assignments {
                self.assign(name, WordValue::Unknown, state);
            }
        }
        let assignments = prefix_assignments
            .into_iter()
            .filter(|(n, _)| !is_inert_variable(n))
            .map(|(name, value)| Assignment { name, value })
            .collect();
        let outside = self.input.clone();
        let exit = self.read_command_words(words, assignments, redirects, position, state, input);
        self.input = outside;
        exit
    }

    /// Reads a command whose words are expanded as far as possible.
    pub(super) fn read_command_words(
        &mut self,
        words: Vec<Word>,
        assignments: Vec<Assignment>,
        redirects: Vec<Redirect>,
        position: TextPosition,
        state: &mut ShellState,
        input: Option<InputSource>,
    ) -> ExitStates {
        if let Some(input) = input {
            self.input = input;
        }
        let opaque = self.take_opaque();
        let mut occurrence = Occurrence {
            words,
            span: position.span(),
            directory: (*state.directory).clone(),
            redirects,
            assignments,
            input: self.input.clone(),
            opaque,
            ..Occurrence::default()
        };
        for (name, value) in state.exported.iter() {
            if !occurrence.assignments.iter().any(|a| a.name == *name) {
                occurrence.assignments.push(Assignment { name: name.clone(), value: value.clone() });
            }
        }
        let Some(name) = occurrence.words.first().and_then(Word::text).map(str::to_owned) else {
            for text in occurrence.words.first().and_then(Word::texts).unwrap_or_default().to_vec() {
                self.read_for_risks(&text, position, state);
            }
            occurrence.opaque.get_or_insert(Opaque::DynamicProgram);
            occurrence.verb = "bash".to_owned();
            self.emit(occurrence);
            state.forget();
            return ExitStates::unchanged(state.clone());
        };
        if state.functions.contains(&name) {
            occurrence.opaque.get_or_insert(Opaque::Function);
            occurrence.verb.clone_from(&name);
            self.emit(occurrence);
            state.forget();
            return ExitStates::unchanged(state.clone());
        }
        self.dispatch(&name, occurrence, position, state)
    }

    /// Reads text only for its risks.
    pub(super) fn read_for_risks(&mut self, text: &str, position: TextPosition, state: &ShellState) {
        let before = std::mem::replace(&mut self.shadow, true);
        self.read_shell_text(text, position, state, false);
        self.shadow = before;
    }

    /// Reads a builtin, which acts on this shell, or a program.
    fn dispatch(
        &mut self,
        name: &str,
        occurrence: Occurrence,
        position: TextPosition,
        state: &mut ShellState,
    ) -> ExitStates {
        match self.read_builtin(name, occurrence, position, state) {
            Ok(exit) => exit,
            Err(occurrence) => self.read_program_call(name, *occurrence, position, state),
        }
    }

    /// Reads a builtin; gives the occurrence back if the name is no builtin.
    fn read_builtin(
        &mut self,
        name: &str,
        mut occurrence: Occurrence,
        position: TextPosition,
        state: &mut ShellState,
    ) -> Result<ExitStates, Box<Occurrence>> {
        let texts: Vec<Option<String>> = occurrence.words[1..].iter().map(|w| w.text().map(str::to_owned)).collect();
        let first = texts.first().and_then(|t| t.as_deref());
        match name {
            "cd" | "pushd" | "popd" => return Ok(self.read_cd(name, occurrence, state)),
            "exit" => {
                self.emit(occurrence);
                return Ok(ExitStates { ok: None, failed: None });
            }
            // Outside a function or a login shell these fail, and the next command runs.
            "return" | "logout" => self.emit(occurrence),
            "shift" => {
                Rc::make_mut(&mut state.variables).retain(|name, _| !is_positional(name));
                self.emit(occurrence);
            }
            // `jobs -x` runs a command; `wait -p name[…]` evaluates the subscript. An unknown word may be either.
            "jobs" if !texts.iter().all(|t| lacks_option(t.as_deref(), 'x')) => self.emit_evaluating(occurrence),
            "wait" if !texts.is_empty() => {
                if texts.iter().all(|t| lacks_option(t.as_deref(), 'p')) {
                    self.emit(occurrence);
                } else {
                    self.emit_evaluating(occurrence);
                }
            }
            "command" | "builtin" if !first.is_some_and(|t| t.starts_with('-') && !matches!(t, "-p" | "--")) => {
                return self.read_command_builtin(occurrence, position, state);
            }
            "command" if first.is_some_and(|t| matches!(t, "-v" | "-V" | "-pv" | "-pV")) => self.emit(occurrence),
            "eval" => self.read_eval(occurrence, position, state),
            "source" | "." => {
                occurrence.opaque.get_or_insert(Opaque::Source);
                self.emit(occurrence);
                state.forget();
            }
            "trap" | "alias" | "unalias" | "shopt" | "enable" | "hash" | "bind" | "complete" | "compopt" => {
                occurrence.opaque.get_or_insert(Opaque::ShellMutation);
                self.emit(occurrence);
                if let (Some(body), "trap") = (first.filter(|t| !t.starts_with('-')), name) {
                    self.read_for_risks(body, position, state);
                }
                state.forget_variables();
            }
            "read" if read_variables(&occurrence.words[1..]).is_some() => self.read_read(occurrence, &texts, state),
            "compgen" | "fc" | "read" | "mapfile" | "readarray" | "let" | "getopts" => {
                self.emit_evaluating(occurrence);
                if name == "compgen" {
                    for text in texts.iter().flatten().filter(|t| !t.starts_with('-')) {
                        self.read_for_risks(text, position, state);
                    }
                }
                state.forget_variables();
            }
            "export" | "declare" | "typeset" | "local" | "readonly" => {
                return Ok(self.read_declare(name, occurrence, state));
            }
            "unset" => self.read_unset(occurrence, &texts, state),
            "set" => {
                if !texts.is_empty() && !texts.iter().all(|t| t.as_deref().is_some_and(is_plain_set_option)) {
                    occurrence.opaque.get_or_insert(Opaque::ShellMutation);
                    state.forget_variables();
                }
                if first == Some("--") {
                    set_positional(&occurrence.words[2..], 1, state);
                }
                self.emit(occurrence);
            }
            "printf" => self.read_printf(occurrence, &texts, state),
            "test" | "[" if crate::phrase::test_evaluates(&occurrence.words) => self.emit_evaluating(occurrence),
            "test" | "[" => self.emit(occurrence),
            "exec" if occurrence.words.len() == 1 => {
                occurrence.words = vec![Word::literal(":")];
                self.emit(occurrence);
                // After this, the input may come from any file.
                self.input = InputSource::Pipe;
            }
            _ => return Err(Box::new(occurrence)),
        }
        Ok(ExitStates::unchanged(state.clone()))
    }

    /// Reads `command` or `builtin`, which run a builtin in this shell; gives the occurrence back if none follows.
    fn read_command_builtin(
        &mut self,
        mut occurrence: Occurrence,
        position: TextPosition,
        state: &mut ShellState,
    ) -> Result<ExitStates, Box<Occurrence>> {
        let skip = 1 + occurrence.words[1..].iter().take_while(|w| matches!(w.text(), Some("-p" | "--"))).count();
        let words = occurrence.words.split_off(skip.min(occurrence.words.len()));
        if !words.is_empty() && occurrence.opaque.is_none() {
            let Occurrence { assignments, redirects, .. } = occurrence;
            return Ok(self.read_command_words(words, assignments, redirects, position, state, None));
        }
        occurrence.words.extend(words);
        Err(Box::new(occurrence))
    }

    /// Adds a builtin that evaluates its arguments as shell text.
    fn emit_evaluating(&mut self, mut occurrence: Occurrence) {
        occurrence.opaque.get_or_insert(Opaque::EvaluatesArguments);
        self.emit(occurrence);
    }

    fn read_eval(&mut self, mut occurrence: Occurrence, position: TextPosition, state: &mut ShellState) {
        occurrence.opaque.get_or_insert(Opaque::Eval);
        let known_text = |w: &Word| w.text().map(str::to_owned).or_else(|| w.hint.clone());
        let known: Option<Vec<String>> = occurrence.words[1..].iter().map(known_text).collect();
        self.emit(occurrence);
        if let Some(text) = known {
            self.read_for_risks(&text.join(" "), position, state);
        }
        state.forget();
    }

    /// Reads `read` into plain variables.
    fn read_read(&mut self, mut occurrence: Occurrence, texts: &[Option<String>], state: &mut ShellState) {
        // IFS affects only how `read` splits its line.
        occurrence.assignments.retain(|a| a.name != "IFS");
        let names = read_variables(&occurrence.words[1..]).unwrap_or_default();
        // `read -r` stores a whole line in one variable, unchanged.
        let raw = texts.first().and_then(|t| t.as_deref()) == Some("-r");
        let whole = raw && texts.iter().flatten().all(|t| t == "-r" || names.contains(t));
        let line = match (&self.input, &names[..]) {
            (InputSource::Files(globs), [_]) if whole && !state.ifs_changed => Some(globs.clone()),
            _ => None,
        };
        for name in &names {
            self.assign(name, WordValue::Unknown, state);
            if let Some(globs) = &line
                && state.get(name) == Some(&WordValue::Unknown)
                && !self.affects_programs(name)
            {
                state.set(name, WordValue::Pattern(globs.clone()));
                state.mark_listed(name);
            }
        }
        self.emit(occurrence);
    }

    fn read_unset(&mut self, mut occurrence: Occurrence, texts: &[Option<String>], state: &mut ShellState) {
        for text in texts {
            match text.as_deref() {
                Some("-v" | "-f") => {}
                Some(name) if lex::name_length(name.as_bytes()) == Some(name.len()) => {
                    self.assign(name, WordValue::Unknown, state);
                }
                _ => drop(occurrence.opaque.get_or_insert(Opaque::EvaluatesArguments)),
            }
        }
        self.emit(occurrence);
    }

    fn read_printf(&mut self, occurrence: Occurrence, texts: &[Option<String>], state: &mut ShellState) {
        let text = |n: usize| texts.get(n).and_then(|t| t.as_deref());
        // The format may be `-v`, and bash then evaluates the next word.
        let format = if text(0) == Some("--") { text(1) } else { text(0) };
        if !matches!(format, Some(t) if !t.starts_with("-v") && !stores_count(t)) && occurrence.words.len() > 1 {
            state.forget_variables();
            self.emit_evaluating(occurrence);
        } else {
            self.emit(occurrence);
        }
    }

    fn read_program_call(
        &mut self,
        name: &str,
        mut occurrence: Occurrence,
        position: TextPosition,
        state: &mut ShellState,
    ) -> ExitStates {
        let program = name.rsplit('/').next().unwrap_or(name).to_owned();
        let is_path = name.contains('/');
        if SHELLS.contains(&program.as_str()) {
            self.read_shell_command(&program, occurrence, position, state);
            return ExitStates::unchanged(state.clone());
        }
        if let Some(wrapper) = tables::wrappers().get(program.as_str()) {
            self.strip_wrapper(&program, wrapper, occurrence, position, state, is_path);
            return ExitStates::unchanged(state.clone());
        }
        if program == "find" {
            self.read_find_actions(&occurrence, position, state);
        } else if program == "ssh" {
            self.read_ssh_command(&mut occurrence, position, state);
        } else if matches!(program.as_str(), "tar" | "rsync" | "git" | "script") {
            self.read_option_programs(&occurrence, position, state);
        }
        if let Some((_, code, letters)) = find_interpreter(&program)
            && let Some(why) = code_source(&occurrence, code, letters)
        {
            occurrence.opaque.get_or_insert(why);
            if SHELL_LIKE.contains(&program.as_str()) {
                for text in occurrence.words[1..].iter().filter_map(Word::text).filter(|t| !t.starts_with('-')) {
                    self.read_for_risks(text, position, state);
                }
            }
        }
        self.emit(occurrence);
        ExitStates::unchanged(state.clone())
    }

    /// Reads `cd`, `pushd` and `popd`, and follows them to the new directory.
    fn read_cd(&mut self, name: &str, occurrence: Occurrence, state: &mut ShellState) -> ExitStates {
        let words: Vec<&Word> = occurrence.words[1..].iter().collect();
        let mut operands = words.as_slice();
        let (mut options, mut physical) = (true, state.physical);
        while options && let Some(text) = operands.first().and_then(|w| w.text()) {
            match text {
                "-L" | "-P" | "-e" | "-@" => {
                    physical |= text == "-P";
                    operands = &operands[1..];
                }
                "--" => (operands, options) = (&operands[1..], false),
                _ => options = false,
            }
        }
        let old = state.directory.clone();
        // If the builtin fails, the directory and the stack stay unchanged.
        let failed = state.clone();
        // `pushd -n` and `popd -n` change only the stack.
        if name != "cd" && occurrence.words.iter().any(|w| w.text() == Some("-n")) {
            state.set("\0stack", WordValue::Unknown);
            self.emit(occurrence);
            return ExitStates::unchanged(state.clone());
        }
        let stack = |state: &ShellState| {
            state.get("\0stack").and_then(|v| match v {
                WordValue::Any(all) => Some(all.clone()),
                _ => None,
            })
        };
        let target = match (name, operands) {
            ("popd", []) => match stack(state) {
                Some(mut all) if !all.is_empty() => {
                    let top = all.pop().unwrap_or_default();
                    state.set("\0stack", WordValue::Any(all));
                    Directory::Known(vec![top])
                }
                _ => Directory::Unknown,
            },
            ("cd", []) if !state.home_changed && !state.variables_unknown => {
                Directory::Known(vec![self.home.to_owned()])
            }
            (_, [one]) if !one.text().is_some_and(|t| t == "-" || t.starts_with('+') || t.starts_with('-')) => {
                match (one.texts(), &*old) {
                    // The parent of a symbolic link's target is unknown.
                    (Some(texts), _) if physical && texts.iter().any(|t| goes_up(t)) => Directory::Unknown,
                    (Some(texts), Directory::Known(from)) if !state.exported.contains_key("CDPATH") => {
                        let mut all: Vec<String> = Vec::new();
                        for text in texts {
                            for base in from {
                                let to = paths::clean(&paths::join(base, text));
                                if !all.contains(&to) {
                                    all.push(to);
                                }
                            }
                        }
                        if all.len() > 8 || all.is_empty() { Directory::Unknown } else { Directory::Known(all) }
                    }
                    (Some([text]), Directory::Unknown) if text.starts_with('/') => {
                        Directory::Known(vec![paths::clean(text)])
                    }
                    _ => Directory::Unknown,
                }
            }
            _ => Directory::Unknown,
        };
        if name == "pushd" {
            let mut all = stack(state).unwrap_or_default();
            match &*old {
                Directory::Known(one) if one.len() == 1 => all.push(one[0].clone()),
                _ => all.clear(),
            }
            state.set("\0stack", WordValue::Any(all));
        }
        // Once the shell uses physical paths, the directories on its stack are physical too.
        let may_ask = |t: &String| t.starts_with('-') && t.contains('P');
        let may_be_physical = occurrence.words.iter().any(|w| w.texts().is_none_or(|all| all.iter().any(may_ask)));
        state.physical = physical || may_be_physical;
        self.emit(occurrence);
        state.directory = Rc::new(target);
        ExitStates { ok: Some(state.clone()), failed: Some(failed) }
    }

    /// Reads `export NAME=value` and similar builtins with plain names; any other argument may be evaluated.
    fn read_declare(&mut self, name: &str, mut occurrence: Occurrence, state: &mut ShellState) -> ExitStates {
        let mut exports = name == "export";
        let fixes = name == "readonly"
            || occurrence.words.iter().any(|w| w.text().is_some_and(|t| t.starts_with('-') && t.contains('r')));
        let names: Vec<String> = occurrence.words[1..]
            .iter()
            .filter_map(|w| {
                w.text().map(str::to_owned).or_else(|| w.hint.as_ref().map(|h| h.trim_start_matches('=').to_owned()))
            })
            .filter_map(|t| lex::name_length(t.as_bytes()).map(|n| t[..n].to_owned()))
            .collect();
        for word in &occurrence.words[1..] {
            let Some(text) = word.text() else {
                match word.hint.as_deref().and_then(|h| h.strip_prefix('=')) {
                    Some(variable) if exports => self.export(variable, WordValue::Unknown, state),
                    Some(variable) => self.assign(variable, WordValue::Unknown, state),
                    None => {
                        // The word may name any variable, and bash may evaluate a subscript.
                        occurrence.opaque.get_or_insert(Opaque::EvaluatesArguments);
                        state.forget_variables();
                        self.export("environment", WordValue::Unknown, state);
                    }
                }
                continue;
            };
            match text {
                "-x" => exports = true,
                "-r" | "-g" | "-gx" | "-rx" | "-xr" if name != "export" => exports |= text.contains('x'),
                "-p" | "-n" if name == "export" => {}
                _ => match lex::name_length(text.as_bytes()).map(|n| text.split_at(n)) {
                    Some((variable, "")) => {
                        if exports {
                            let value = state.get(variable).cloned().unwrap_or(WordValue::Unknown);
                            self.export(variable, value, state);
                        }
                    }
                    Some((variable, rest)) if rest.starts_with('=') => {
                        let value = WordValue::One(rest[1..].to_owned());
                        if !keeps_characters(variable, &value) {
                            occurrence.opaque.get_or_insert(Opaque::ShellMutation);
                        }
                        if exports {
                            self.export(variable, value, state);
                        } else {
                            self.assign(variable, value, state);
                        }
                    }
                    _ => {
                        occurrence.opaque.get_or_insert(Opaque::EvaluatesArguments);
                        state.forget_variables();
                    }
                },
            }
        }
        if fixes {
            Rc::make_mut(&mut state.readonly).extend(names);
        }
        self.emit(occurrence);
        ExitStates::unchanged(state.clone())
    }
}

/// Whether a path contains `..`.
pub(super) fn goes_up(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

pub(super) fn is_positional(name: &str) -> bool {
    matches!(name, "@" | "*") || name.bytes().all(|b| b.is_ascii_digit())
}

/// Sets `$0`, `$1`, … and `$@`, as far as they are known.
pub(super) fn set_positional(words: &[Word], first: usize, state: &mut ShellState) {
    for (n, word) in words.iter().enumerate().take(16) {
        let value = if word.is_listed() { WordValue::Unknown } else { word.value.clone() };
        state.set(&(n + first).to_string(), value);
    }
    let rest = words.get(1 - first.min(1)..).unwrap_or_default();
    let all = match rest {
        [one] if !one.is_listed() => one.value.clone(),
        _ => WordValue::Unknown,
    };
    state.set("@", all.clone());
    state.set("*", all);
}

/// Whether a word is known not to be a cluster of options with this letter.
fn lacks_option(text: Option<&str>, letter: char) -> bool {
    text.is_some_and(|t| !t.starts_with('-') || !t.contains(letter))
}

/// The variables that `read` sets, if the form is plain: it evaluates no subscript, and reads only its input.
pub(super) fn read_variables(words: &[Word]) -> Option<Vec<String>> {
    let texts: Option<Vec<&str>> = words.iter().map(Word::text).collect();
    let mut names = Vec::new();
    let mut texts = texts?.into_iter();
    while let Some(text) = texts.next() {
        match text {
            "-r" | "-s" | "-rs" | "-sr" => {}
            "-d" | "-n" | "-N" | "-t" | "-p" | "-u" | "-rd" | "-rn" | "-rp" | "-rt" if names.is_empty() => {
                texts.next()?;
            }
            // Bash evaluates values that are assigned to some of its own variables.
            name if lex::name_length(name.as_bytes()) == Some(name.len())
                && !EVALUATED_VARIABLES.contains(&name)
                && !BASH_VARIABLES.contains(&name)
                && !name.starts_with("BASH") =>
            {
                names.push(name.to_owned());
            }
            _ => return None,
        }
    }
    Some(names)
}

/// Whether a format stores the number of printed characters in a variable (`%n`).
fn stores_count(format: &str) -> bool {
    format
        .split('%')
        .skip(1)
        .any(|s| s.trim_start_matches(|c: char| "#0- +'.*123456789hlLjzt".contains(c)).starts_with('n'))
}

/// Whether an option of `set` leaves the meaning of words unchanged.
fn is_plain_set_option(text: &str) -> bool {
    match text.strip_prefix(['-', '+']) {
        Some(letters) => !letters.is_empty() && letters.chars().all(|c| "euxvo".contains(c)),
        None => matches!(text, "pipefail" | "errexit" | "nounset" | "xtrace" | "verbose"),
    }
}
