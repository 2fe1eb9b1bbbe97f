//! The tables: knowledge about programs, as data. Each row has examples that it must and must not match, and a test
//! runs all of them through the gate.
//!
//! A table is text: a line that starts in the first column opens a row, indented lines belong to it, `#` starts a
//! comment. Options are written as they are typed: `-abc` three flags, `-n=t` a value, `-i[=t]` a value only if it is
//! attached, `--all`, `--color[=t]`, `--width=t`, `-#` a bare number. The letter is the kind of the value: `t` text,
//! `f` a file that is read, `d` a directory that is read, `w` a file that is written, `W` a directory that is
//! written, `x` a command that is run.

mod logins;
mod options;
mod risks;
mod verbs;

pub(crate) use logins::find_login;
pub(crate) use options::{OperandRole, OptionGrammar, ParsedOptions, may_be_option};
pub(crate) use risks::{RiskTrigger, VerbRisks, find_risks};
pub(crate) use verbs::find_subcommands;

use std::{collections::HashMap, sync::OnceLock};

/// The texts of all built-in tables.
pub(crate) fn table_texts() -> impl Iterator<Item = &'static str> {
    PHRASES.iter().chain(risks::RISKS).copied().chain([WRAPPERS, TOOLS, verbs::VERBS, logins::LOGINS])
}

/// One row of a table, before it is interpreted.
pub(crate) struct TableRow {
    pub(crate) head: &'static str,
    pub(crate) lines: Vec<&'static str>,
}

impl TableRow {
    /// The text behind a keyword, for every line that starts with it.
    pub(crate) fn values(&self, keyword: &'static str) -> impl Iterator<Item = &'static str> + '_ {
        self.lines.iter().filter_map(move |l| {
            let rest = l.strip_prefix(keyword)?;
            (rest.is_empty() || rest.starts_with(' ')).then(|| rest.trim_start())
        })
    }

    pub(crate) fn has_keyword(&self, keyword: &'static str) -> bool {
        self.values(keyword).next().is_some()
    }
}

pub(crate) fn parse_rows(text: &'static str) -> Vec<TableRow> {
    let mut rows: Vec<TableRow> = Vec::new();
    for line in text.lines() {
        let bare = line.trim();
        if bare.is_empty() || line.starts_with('#') {
            continue;
        }
        match (line.starts_with(' '), rows.last_mut()) {
            (true, Some(row)) => row.lines.push(bare),
            _ => rows.push(TableRow { head: bare, lines: Vec::new() }),
        }
    }
    rows
}

/// A reviewed read-only command form.
pub(crate) struct Phrase {
    pub(crate) name: &'static str,
    pub(crate) grammar: OptionGrammar,
    /// Reads the working directory if no path is given.
    pub(crate) here: bool,
    /// No option can do harm, so a file name that looks like an option cannot either.
    pub(crate) harmless: bool,
    /// Every word behind the first operand is an operand.
    pub(crate) ordered: bool,
    /// Options that make it recursive, or `always`.
    pub(crate) recursive: Vec<&'static str>,
    /// Options whose value is a name pattern that selects the files to read.
    pub(crate) selects: Vec<&'static str>,
    /// Its words are only text: it reads, writes and runs nothing that they name.
    pub(crate) any_words: bool,
    /// It may run or load files of the workspace, so it runs without approval only in a task that the kernel
    /// confines.
    pub(crate) confined: bool,
    /// The words that must come first for this phrase.
    pub(crate) when: Vec<&'static str>,
    /// Options that take the place of the first operand (the pattern or program).
    pub(crate) unless: Vec<&'static str>,
    /// The name of an additional check.
    pub(crate) special: Option<&'static str>,
    pub(crate) examples: Examples,
}

impl Phrase {
    /// Whether the words behind the verb start as this phrase requires.
    pub(crate) fn applies_to(&self, words: &[countersign_model::Word]) -> bool {
        self.when.iter().enumerate().all(|(n, text)| words.get(n).and_then(countersign_model::Word::text) == Some(text))
    }
}

/// Commands that a row must and must not match.
#[derive(Default)]
pub(crate) struct Examples {
    pub(crate) yes: Vec<&'static str>,
    pub(crate) no: Vec<&'static str>,
}

impl Examples {
    fn from_row(row: &TableRow) -> Self {
        Self { yes: row.values("yes").collect(), no: row.values("no").collect() }
    }
}

const PHRASES: &[&str] = &[include_str!("phrases.table"), include_str!("phrases-git.table")];

fn load_phrases() -> HashMap<&'static str, Phrase> {
    let mut phrases = HashMap::new();
    let mut groups: HashMap<&'static str, Vec<&'static str>> = HashMap::new();
    for row in PHRASES.iter().flat_map(|text| parse_rows(text)) {
        if let Some(name) = row.head.strip_prefix("group ") {
            groups.insert(name, row.values("options").collect());
            continue;
        }
        // The row's own options override those of its groups.
        let mut options: Vec<&'static str> = Vec::new();
        for group in row.values("use").flat_map(str::split_whitespace) {
            options.extend(groups.get(group).into_iter().flatten());
        }
        options.extend(row.values("options"));
        for name in row.head.split(" | ") {
            let name = name.trim_start_matches("phrase ");
            let phrase = Phrase {
                name,
                grammar: OptionGrammar::parse(&options, row.values("operands").next().unwrap_or("none")),
                here: row.has_keyword("here"),
                harmless: row.has_keyword("harmless"),
                ordered: row.has_keyword("ordered"),
                recursive: row.values("recursive").flat_map(str::split_whitespace).collect(),
                selects: row.values("selects").flat_map(str::split_whitespace).collect(),
                any_words: row.has_keyword("any-words"),
                when: row.values("when").flat_map(str::split_whitespace).collect(),
                confined: row.has_keyword("confined"),
                unless: row.values("unless").flat_map(str::split_whitespace).collect(),
                special: row.values("special").next(),
                examples: Examples::from_row(&row),
            };
            phrases.insert(name, phrase);
        }
    }
    phrases
}

/// The phrase of a verb, such as `git stash list`.
pub(crate) fn phrase(verb: &str) -> Option<&'static Phrase> {
    phrases().get(verb)
}

pub(crate) fn phrases() -> &'static HashMap<&'static str, Phrase> {
    static ALL: OnceLock<HashMap<&'static str, Phrase>> = OnceLock::new();
    ALL.get_or_init(load_phrases)
}

/// A program that runs the command behind its own options.
pub(crate) struct Wrapper {
    pub(crate) grammar: OptionGrammar,
    /// The number of operands before the command.
    pub(crate) operands: usize,
    pub(crate) kind: WrapperKind,
    pub(crate) examples: Examples,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrapperKind {
    /// Runs the command unchanged.
    Plain,
    /// Takes `NAME=value` before the command.
    Environment,
    /// Runs the command with another user's rights.
    Privileged,
    /// Adds words from its input to the command.
    Input,
    /// Its operands are text for a shell.
    Shell,
    /// Runs its own version of the program that the command names.
    Foreign,
}

const WRAPPERS: &str = include_str!("wrappers.table");

pub(crate) fn wrappers() -> &'static HashMap<&'static str, Wrapper> {
    static ALL: OnceLock<HashMap<&'static str, Wrapper>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = HashMap::new();
        for row in parse_rows(WRAPPERS) {
            let options: Vec<&'static str> = row.values("options").collect();
            for name in row.head.split(" | ") {
                let kind = match row.values("kind").next() {
                    Some("environment") => WrapperKind::Environment,
                    Some("privileged") => WrapperKind::Privileged,
                    Some("input") => WrapperKind::Input,
                    Some("shell") => WrapperKind::Shell,
                    Some("foreign") => WrapperKind::Foreign,
                    _ => WrapperKind::Plain,
                };
                let operands = row.values("operands").next().and_then(|n| n.parse().ok()).unwrap_or(0);
                let grammar = OptionGrammar::parse(&options, "text*");
                all.insert(name, Wrapper { grammar, operands, kind, examples: Examples::from_row(&row) });
            }
        }
        all
    })
}

/// Whether the verb of a program is its name alone, since its words are files and text.
pub(crate) fn is_one_word(program: &str) -> bool {
    phrases().contains_key(program) || risks::all_verb_risks().contains_key(program) || wrappers().contains_key(program)
}

/// Tools that only print on `--version`, `-V` or `--help`.
const TOOLS: &str = include_str!("tools.table");

fn tools() -> &'static HashMap<&'static str, Vec<&'static str>> {
    static ALL: OnceLock<HashMap<&'static str, Vec<&'static str>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all: HashMap<&'static str, Vec<&'static str>> = HashMap::new();
        for row in parse_rows(TOOLS) {
            for name in row.lines.iter().flat_map(|l| l.split_whitespace()) {
                all.entry(name).or_default().push(row.head);
            }
        }
        all
    })
}

pub(crate) fn is_tool(program: &str) -> bool {
    tools().get(program).is_some_and(|all| all.iter().any(|how| *how != "inert")) || phrase(program).is_some()
}

/// Whether a tool loads nothing of the workspace when it prints its version or its help.
pub(crate) fn is_inert(program: &str) -> bool {
    prints_version_with(program, "inert") || phrase(program).is_some_and(|p| !p.confined)
}

/// Whether a tool only prints its version when called with this word.
pub(crate) fn prints_version_with(program: &str, how: &str) -> bool {
    tools().get(program).is_some_and(|all| all.contains(&how))
}

/// What the tables know about a program or verb, as lines for a user.
#[must_use]
pub fn describe_verb(verb: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let program = verb.split(' ').next().unwrap_or(verb);
    if let Some(wrapper) = wrappers().get(program) {
        let how = match wrapper.kind {
            WrapperKind::Plain => "",
            WrapperKind::Environment => " with other variables",
            WrapperKind::Privileged => " with another user's rights",
            WrapperKind::Input => " with words from its input",
            WrapperKind::Shell => " through a shell",
            WrapperKind::Foreign => " in its own version",
        };
        lines.push(format!("runs another command{how}: Countersign judges that command, not `{program}`"));
    }
    if let Some(phrase) = phrase(verb) {
        lines.push(format!("known read-only command `{}`", phrase.name));
        lines.extend(phrase.examples.yes.iter().map(|e| format!("  runs without approval in a workspace:  {e}")));
        lines.extend(phrase.examples.no.iter().map(|e| format!("  needs approval:                        {e}")));
    }
    if let Some(effects) = find_risks(verb) {
        let names = |risks: &[countersign_model::Risk]| risks.iter().map(|r| r.as_str()).collect::<Vec<_>>().join(", ");
        let base = if effects.base.is_empty() { "none of its own".to_owned() } else { names(&effects.base) };
        lines.push(format!("risks of `{}`: {base}", effects.verb));
        for (when, risks) in &effects.raises {
            let when = match when {
                RiskTrigger::Options(options) => format!("with {}", options.join(" ")),
                RiskTrigger::Operands(operands) => format!("on {}", operands.join(" ")),
            };
            lines.push(format!("  also {} {when}", names(risks)));
        }
        lines.push(format!(
            "a grant that names no risks accepts: write{}",
            effects
                .base
                .iter()
                .filter(|r| r.as_str() != "write")
                .map(|r| format!(", {}", r.as_str()))
                .collect::<String>()
        ));
    }
    if lines.is_empty() {
        lines.push(format!("`{verb}` is not in the tables: Countersign assumes that it writes"));
    }
    lines
}

/// Every example of every table.
pub(crate) fn examples() -> Vec<TableExample> {
    let mut all = Vec::new();
    for (name, phrase) in phrases() {
        for (list, matches) in [(&phrase.examples.yes, true), (&phrase.examples.no, false)] {
            all.extend(list.iter().map(|command| TableExample {
                table: "phrases",
                row: name,
                command,
                expect: "",
                matches,
            }));
        }
    }
    for (name, wrapper) in wrappers() {
        for command in &wrapper.examples.yes {
            let (command, expect) = command.split_once(" => ").unwrap_or((command, ""));
            all.push(TableExample { table: "wrappers", row: name, command, expect, matches: true });
        }
        all.extend(wrapper.examples.no.iter().map(|command| TableExample {
            table: "wrappers",
            row: name,
            command,
            expect: "",
            matches: false,
        }));
    }
    for (name, depth) in verbs::all_subcommands() {
        all.extend(depth.examples.iter().map(|(command, expect)| TableExample {
            table: "verbs",
            row: name,
            command,
            expect,
            matches: true,
        }));
    }
    for (name, effects) in risks::all_verb_risks() {
        for (list, matches) in [(&effects.examples.yes, true), (&effects.examples.no, false)] {
            for example in list {
                let (command, expect) = example.split_once(" => ").unwrap_or((example, ""));
                all.push(TableExample { table: "risks", row: name, command, expect, matches });
            }
        }
    }
    for (name, login) in logins::all_logins() {
        for (list, matches) in [(&login.examples.yes, true), (&login.examples.no, false)] {
            for example in list {
                let (command, expect) = example.split_once(" => ").unwrap_or((example, ""));
                all.push(TableExample { table: "logins", row: name, command, expect, matches });
            }
        }
    }
    all
}

/// The examples of the risk table for this verb.
pub(crate) fn risk_examples(verb: &str) -> Vec<&'static str> {
    let Some(effects) = risks::all_verb_risks().get(verb) else { return Vec::new() };
    let all = effects.examples.yes.iter().chain(&effects.examples.no);
    all.map(|example| example.split_once(" => ").map_or(*example, |(command, _)| command)).collect()
}

/// One example of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableExample {
    pub(crate) table: &'static str,
    pub(crate) row: &'static str,
    pub(crate) command: &'static str,
    /// The expected verb or risks.
    pub(crate) expect: &'static str,
    pub(crate) matches: bool,
}
