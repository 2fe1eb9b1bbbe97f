//! Splits the words of a command into options and operands, by a grammar.

use countersign_model::{Word, WordValue};
use std::collections::HashMap;

/// What the value of an option or an operand is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperandRole {
    Text,
    File,
    Dir,
    Path,
    WriteFile,
    WriteDir,
    /// A file or a directory that is written.
    WritePath,
    /// A command that is run.
    Program,
    /// A path of which only the name, size and age are shown.
    Name,
    /// A revision or a path, as git takes them.
    GitArgument,
    /// A path behind the `--` of git.
    GitPath,
    /// A revision or a path of which git shows only the name.
    GitName,
    /// A format that starts with `+`.
    Format,
    /// A number, or a word in its position.
    Number,
    /// `name=value`, or a file.
    AssignmentOrFile,
    /// A directory entry that is created or removed.
    Entry,
}

impl OperandRole {
    fn from_name(name: &str) -> Self {
        match name {
            "f" | "file" => Self::File,
            "d" | "dir" => Self::Dir,
            "p" | "path" => Self::Path,
            "w" | "wfile" => Self::WriteFile,
            "W" | "wdir" => Self::WriteDir,
            "x" | "program" => Self::Program,
            "name" => Self::Name,
            "rev" => Self::GitArgument,
            "gitname" => Self::GitName,
            "format" => Self::Format,
            "n" | "number" => Self::Number,
            "assign" => Self::AssignmentOrFile,
            "e" | "entry" => Self::Entry,
            _ => Self::Text,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum OptionArity {
    Nothing,
    Value(OperandRole),
    Attached(OperandRole),
    /// Two words, the second with this role.
    Two(OperandRole),
}

/// The options of a program, and the roles of its operands.
#[derive(Debug, Clone, Default)]
pub(crate) struct OptionGrammar {
    short: HashMap<char, OptionArity>,
    long: HashMap<&'static str, OptionArity>,
    /// `-5`
    numbers: bool,
    operands: Vec<(OperandRole, OperandCount)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum OperandCount {
    One,
    Optional,
    Any,
}

/// The words of a command, split into options and operands.
#[derive(Debug, Default)]
pub(crate) struct ParsedOptions<'w> {
    /// Options by the name they were written with, and their values.
    pub(crate) options: Vec<(String, Option<Word>, OperandRole)>,
    pub(crate) operands: Vec<(&'w Word, OperandRole)>,
    /// Why the words do not fit the grammar.
    pub(crate) misfit: Option<String>,
    /// It is not known whether some word is an option.
    pub(crate) loose: bool,
    /// The index of the first operand among the parsed words.
    pub(crate) rest: usize,
    /// The number of operands before a `--`, if there is one.
    pub(crate) operands_before_dashes: Option<usize>,
    /// An option follows an operand.
    pub(crate) option_after_operand: bool,
}

impl ParsedOptions<'_> {
    pub(crate) fn has(&self, names: &[&str]) -> bool {
        self.options.iter().any(|(name, _, _)| names.contains(&name.as_str()))
    }

    /// Adds an option whose value is the next word, if that word can be a value.
    fn take_value(&mut self, option: String, value: Option<&Word>, role: OperandRole, harmless: bool) {
        match value {
            Some(value) if !value.many && (harmless || !looks_like_option(value)) => {
                self.options.push((option, Some(value.clone()), role));
            }
            Some(_) => {
                self.loose = true;
                self.misfit.get_or_insert_with(|| format!("the value of {option} is not known"));
            }
            None => drop(self.misfit.get_or_insert_with(|| format!("{option} lacks its value"))),
        }
    }
}

impl OptionGrammar {
    pub(crate) fn parse(lines: &[&'static str], operands: &'static str) -> Self {
        let mut grammar = Self::default();
        for token in lines.iter().flat_map(|l| l.split_whitespace()) {
            if token == "-#" {
                grammar.numbers = true;
                continue;
            }
            let (name, takes) = match (token.split_once("[="), token.split_once('=')) {
                (Some((name, role)), _) => {
                    (name, OptionArity::Attached(OperandRole::from_name(role.trim_end_matches(']'))))
                }
                (None, Some((name, role))) => match role.strip_prefix('2') {
                    Some(role) => (name, OptionArity::Two(OperandRole::from_name(role))),
                    None => (name, OptionArity::Value(OperandRole::from_name(role))),
                },
                (None, None) => (token, OptionArity::Nothing),
            };
            match name.strip_prefix("--") {
                Some(long) => drop(grammar.long.insert(long, takes)),
                None => {
                    for c in name.trim_start_matches('-').chars() {
                        grammar.short.insert(c, takes);
                    }
                }
            }
        }
        grammar.operands = operands
            .split_whitespace()
            .filter(|o| *o != "none")
            .map(|o| match o.strip_suffix('*') {
                Some(role) => (OperandRole::from_name(role), OperandCount::Any),
                None => match o.strip_suffix('?') {
                    Some(role) => (OperandRole::from_name(role), OperandCount::Optional),
                    None => (OperandRole::from_name(o), OperandCount::One),
                },
            })
            .collect();
        grammar
    }

    /// What a long option takes, if it is known.
    fn find_long(&self, name: &str) -> Option<OptionArity> {
        self.long.get(name).copied()
    }

    /// Splits the words behind a program's name. `harmless`: no option of the program can do harm. `in_order`: the
    /// options end at the first operand.
    pub(crate) fn parse_options<'w>(&self, words: &'w [Word], harmless: bool, in_order: bool) -> ParsedOptions<'w> {
        let mut parsed = ParsedOptions::default();
        let mut operands: Vec<&'w Word> = Vec::new();
        let (mut n, mut only_operands) = (0, false);
        parsed.rest = words.len();
        while n < words.len() {
            let word = &words[n];
            let place = n;
            n += 1;
            if !only_operands && may_be_option(word) {
                parsed.option_after_operand |= !operands.is_empty();
                // `--include=*.rs`: every match starts the same way, so it is the same option.
                if let WordValue::Pattern(globs) = &word.value
                    && let [glob] = &globs[..]
                    && let Some((name, value)) = glob.strip_prefix("--").and_then(|g| g.split_once('='))
                    && let Some(OptionArity::Value(OperandRole::Text) | OptionArity::Attached(OperandRole::Text)) =
                        self.find_long(name)
                {
                    parsed.options.push((format!("--{name}"), Some(word_part(word, value)), OperandRole::Text));
                    continue;
                }
                let Some(text) = word.text() else {
                    if !harmless || matches!(word.value, WordValue::Unknown) {
                        parsed.loose = true;
                        parsed.misfit.get_or_insert_with(|| "an argument may turn out to be an option".to_owned());
                    }
                    operands.push(word);
                    continue;
                };
                if text == "--" {
                    only_operands = true;
                    parsed.operands_before_dashes.get_or_insert(operands.len());
                    if in_order {
                        parsed.rest = n;
                        return self.with_operands(parsed, operands);
                    }
                    continue;
                }
                n += self.read_option(text, word, &words[n..], harmless, &mut parsed);
                continue;
            }
            if in_order {
                parsed.rest = place;
                return self.with_operands(parsed, operands);
            }
            operands.push(word);
        }
        self.with_operands(parsed, operands)
    }

    /// Reads a word that is an option, or several in a cluster. `behind` are the words after it; returns how many of
    /// them it took.
    fn read_option(
        &self,
        text: &str,
        word: &Word,
        behind: &[Word],
        harmless: bool,
        parsed: &mut ParsedOptions<'_>,
    ) -> usize {
        if let Some(long) = text.strip_prefix("--") {
            return self.read_long_option(long, word, behind, harmless, parsed);
        }
        if self.numbers && text[1..].bytes().all(|b| b.is_ascii_digit()) {
            parsed.options.push(("-#".to_owned(), None, OperandRole::Text));
            return 0;
        }
        self.read_short_options(text, word, behind, harmless, parsed)
    }

    fn read_long_option(
        &self,
        long: &str,
        word: &Word,
        behind: &[Word],
        harmless: bool,
        parsed: &mut ParsedOptions<'_>,
    ) -> usize {
        let (name, attached) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        match (self.find_long(name), attached) {
            (Some(OptionArity::Nothing), None) => parsed.options.push((format!("--{name}"), None, OperandRole::Text)),
            (Some(OptionArity::Attached(role)), None) => parsed.options.push((format!("--{name}"), None, role)),
            (Some(OptionArity::Value(role) | OptionArity::Attached(role)), Some(value)) => {
                parsed.options.push((format!("--{name}"), Some(word_part(word, value)), role));
            }
            (Some(OptionArity::Value(role)), None) => {
                parsed.take_value(format!("--{name}"), behind.first(), role, harmless);
                return usize::from(!behind.is_empty());
            }
            (Some(OptionArity::Two(role)), None) => match behind {
                [name_word, value, ..] if !name_word.many && !value.many => {
                    parsed.options.push((format!("--{name}"), Some(value.clone()), role));
                    return 2;
                }
                _ => {
                    parsed.loose = true;
                    parsed.misfit.get_or_insert_with(|| format!("--{name} needs two values"));
                }
            },
            (Some(OptionArity::Nothing | OptionArity::Two(_)), Some(_)) | (None, _) => {
                parsed.misfit.get_or_insert_with(|| format!("it uses option --{name}"));
                parsed.options.push((format!("--{name}"), attached.map(|v| word_part(word, v)), OperandRole::Text));
            }
        }
        0
    }

    fn read_short_options(
        &self,
        text: &str,
        word: &Word,
        behind: &[Word],
        harmless: bool,
        parsed: &mut ParsedOptions<'_>,
    ) -> usize {
        for (at, c) in text[1..].char_indices() {
            let rest = &text[1 + at + c.len_utf8()..];
            match self.short.get(&c) {
                Some(OptionArity::Nothing | OptionArity::Two(_)) => {
                    parsed.options.push((format!("-{c}"), None, OperandRole::Text))
                }
                Some(OptionArity::Attached(role)) => {
                    let value = (!rest.is_empty()).then(|| word_part(word, rest));
                    parsed.options.push((format!("-{c}"), value, *role));
                    return 0;
                }
                Some(OptionArity::Value(role)) if !rest.is_empty() => {
                    parsed.options.push((format!("-{c}"), Some(word_part(word, rest)), *role));
                    return 0;
                }
                Some(OptionArity::Value(role)) => {
                    parsed.take_value(format!("-{c}"), behind.first(), *role, harmless);
                    return 1;
                }
                None if self.numbers && c.is_ascii_digit() => {}
                None => {
                    parsed.misfit.get_or_insert_with(|| format!("it uses option -{c}"));
                    parsed.options.push((format!("-{c}"), None, OperandRole::Text));
                }
            }
        }
        0
    }

    /// Stores the operands, without roles.
    fn with_operands<'w>(&self, mut parsed: ParsedOptions<'w>, operands: Vec<&'w Word>) -> ParsedOptions<'w> {
        parsed.operands = operands.into_iter().map(|w| (w, OperandRole::Text)).collect();
        parsed
    }

    /// Assigns roles to the operands in order; the first `skip` roles are given as options.
    pub(crate) fn assign_roles(&self, parsed: &mut ParsedOptions<'_>, skip: usize) {
        let spec = &self.operands[skip.min(self.operands.len())..];
        let mut at = 0;
        let before = parsed.operands_before_dashes.unwrap_or(usize::MAX);
        for (n, (word, role)) in parsed.operands.iter_mut().enumerate() {
            match spec.get(at) {
                Some((OperandRole::GitArgument, OperandCount::Any)) if n >= before => *role = OperandRole::GitPath,
                Some((r, OperandCount::Any)) => *role = *r,
                Some((r, OperandCount::One | OperandCount::Optional)) => {
                    *role = *r;
                    at += 1;
                    // A word that may become several also takes the positions behind it.
                    if word.many {
                        parsed.misfit.get_or_insert_with(|| "an argument may expand to several words".to_owned());
                    }
                }
                None => {
                    parsed.misfit.get_or_insert_with(|| "it has more operands than the read-only form".to_owned());
                }
            }
        }
        if matches!(spec.get(at), Some((_, OperandCount::One))) {
            parsed.misfit.get_or_insert_with(|| "an operand is missing".to_owned());
        }
    }
}

/// Whether a value in a word of its own would be an option if its option took no value. A negative number is a value.
fn looks_like_option(word: &Word) -> bool {
    word.texts().is_some_and(|all| {
        all.iter().any(|t| t.len() > 1 && t.starts_with('-') && !t[1..].starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// A value that is part of a word.
fn word_part(word: &Word, text: &str) -> Word {
    Word { value: WordValue::One(text.to_owned()), ..word.clone() }
}

/// Whether a word is an option, or may become one.
pub(crate) fn may_be_option(word: &Word) -> bool {
    let dash = |t: &str| t.starts_with('-') && t.len() > 1;
    match &word.value {
        WordValue::One(text) => dash(text),
        WordValue::Any(texts) => texts.iter().any(|t| dash(t)),
        // A leading wildcard may match a name that starts with a dash.
        WordValue::Pattern(globs) => globs.iter().any(|g| g.starts_with(['*', '?', '[', '-'])),
        WordValue::Unknown => !word.hint.as_deref().is_some_and(|h| h.starts_with('/') || h.contains("://")),
    }
}
