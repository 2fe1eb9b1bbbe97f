//! Finds what a loop body may change in its own shell, without expanding it: the body runs again in the state that it
//! leaves. Also finds functions that start themselves twice (fork bombs).

use brush_parser::ast;
use countersign_model::Word;
use std::collections::BTreeSet;

/// Builtins that set variables, or run what their arguments say.
#[rustfmt::skip]
const CHANGE_ANYTHING: &[&str] = &[
    ".", "eval", "source", "read", "mapfile", "readarray", "getopts", "let", "declare", "typeset", "local",
    "readonly", "export", "unset", "printf", "set", "shift", "wait", "exec", "builtin", "command", "trap",
];
const MOVE: &[&str] = &["cd", "pushd", "popd"];

#[derive(Default)]
pub(super) struct AssignedVariables {
    pub(super) names: BTreeSet<String>,
    pub(super) changes_directory: bool,
    pub(super) any_variable: bool,
    /// Functions that the text defines: they exist from the second round on.
    pub(super) functions: BTreeSet<String>,
}

impl AssignedVariables {
    pub(super) fn note_list(&mut self, list: &ast::CompoundList) {
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            if matches!(separator, ast::SeparatorOperator::Async) {
                continue;
            }
            let rest = and_or.additional.iter().map(|a| match a {
                ast::AndOr::And(p) | ast::AndOr::Or(p) => p,
            });
            for pipeline in std::iter::once(&and_or.first).chain(rest) {
                // Each stage of a pipeline runs in its own subshell.
                if let [only] = &pipeline.seq[..] {
                    self.note_command(only);
                }
            }
        }
    }

    fn note_command(&mut self, command: &ast::Command) {
        match command {
            ast::Command::Simple(simple) => self.note_simple(simple),
            ast::Command::Compound(compound, redirects) => {
                if let Some(redirects) = redirects {
                    self.note_word(&redirects.to_string());
                }
                self.note_compound(compound);
            }
            ast::Command::Function(function) => {
                self.any_variable = true;
                self.functions.insert(function.fname.value.clone());
            }
            ast::Command::ExtendedTest(test, redirects) => {
                self.note_word(&test.expr.to_string());
                if let Some(redirects) = redirects {
                    self.note_word(&redirects.to_string());
                }
            }
        }
    }

    fn note_compound(&mut self, compound: &ast::CompoundCommand) {
        match compound {
            ast::CompoundCommand::Arithmetic(_) | ast::CompoundCommand::ArithmeticForClause(_) => {
                self.any_variable = true
            }
            ast::CompoundCommand::BraceGroup(group) => self.note_list(&group.list),
            ast::CompoundCommand::Subshell(_) | ast::CompoundCommand::Coprocess(_) => {}
            ast::CompoundCommand::ForClause(clause) => {
                self.names.insert(clause.variable_name.clone());
                clause.values.iter().flatten().for_each(|w| self.note_word(&w.value));
                self.note_list(&clause.body.list);
            }
            ast::CompoundCommand::CaseClause(clause) => {
                self.note_word(&clause.value.value);
                clause.cases.iter().flat_map(|c| &c.patterns).for_each(|w| self.note_word(&w.value));
                clause.cases.iter().filter_map(|c| c.cmd.as_ref()).for_each(|list| self.note_list(list));
            }
            ast::CompoundCommand::IfClause(clause) => {
                self.note_list(&clause.condition);
                self.note_list(&clause.then);
                for other in clause.elses.iter().flatten() {
                    if let Some(condition) = &other.condition {
                        self.note_list(condition);
                    }
                    self.note_list(&other.body);
                }
            }
            ast::CompoundCommand::WhileClause(clause) | ast::CompoundCommand::UntilClause(clause) => {
                self.note_list(&clause.0);
                self.note_list(&clause.1.list);
            }
        }
    }

    fn note_simple(&mut self, simple: &ast::SimpleCommand) {
        let plain_read = plain_read_variables(simple);
        let items = simple.prefix.iter().flat_map(|p| &p.0).chain(simple.suffix.iter().flat_map(|s| &s.0));
        for item in items {
            if let ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) = item {
                self.note_word(&redirect.to_string());
            }
            if let ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, word) = item {
                // `IFS= read` sets the variable only for that command.
                let splits = plain_read.is_some() && word.value.starts_with("IFS=");
                match &assignment.name {
                    ast::AssignmentName::VariableName(_) if splits => {}
                    ast::AssignmentName::VariableName(name) | ast::AssignmentName::ArrayElementName(name, _) => {
                        self.names.insert(name.clone());
                    }
                }
                self.note_word(&word.value);
            } else if let ast::CommandPrefixOrSuffixItem::Word(word) = item {
                self.note_word(&word.value);
            }
        }
        if let Some(name) = &simple.word_or_name {
            let bare = name.value.trim_matches(['\\', '"', '\'']);
            self.changes_directory |= MOVE.contains(&bare);
            // A name that is not plain may be any of these builtins.
            match plain_read {
                Some(names) => self.names.extend(names),
                None => self.any_variable |= CHANGE_ANYTHING.contains(&bare) || !super::lex::is_plain(&name.value),
            }
            self.note_word(&name.value);
        }
    }

    /// `${x:=y}` also sets a variable.
    fn note_word(&mut self, raw: &str) {
        self.any_variable |= raw.contains("${") && raw.contains('=') || raw.contains("$((") || raw.contains("$[");
    }
}

/// The variables that a plain `read` sets.
fn plain_read_variables(simple: &ast::SimpleCommand) -> Option<Vec<String>> {
    if simple.word_or_name.as_ref()?.value != "read" {
        return None;
    }
    let words: Option<Vec<Word>> = simple
        .suffix
        .iter()
        .flat_map(|s| &s.0)
        .filter(|item| !matches!(item, ast::CommandPrefixOrSuffixItem::IoRedirect(_)))
        .map(|item| match item {
            // Quotes around a delimiter or a prompt do not matter here.
            ast::CommandPrefixOrSuffixItem::Word(word) => {
                let bare = word.value.trim_matches(['"', '\'']);
                (bare.is_empty() || super::lex::is_plain(bare)).then(|| Word::literal(bare))
            }
            _ => None,
        })
        .collect();
    super::simple_command::read_variables(&words?)
}

/// Whether a function starts a second copy of itself: in a pipeline with itself, or in the background.
pub(super) fn is_fork_bomb(name: &str, body: &ast::CompoundCommand) -> bool {
    let list = match body {
        ast::CompoundCommand::BraceGroup(group) => &group.list,
        ast::CompoundCommand::Subshell(group) => &group.list,
        _ => return false,
    };
    let calls = |command: &ast::Command| match command {
        ast::Command::Simple(simple) => simple.word_or_name.as_ref().is_some_and(|w| w.value == name),
        ast::Command::Compound(compound, _) => match compound {
            ast::CompoundCommand::BraceGroup(g) => calls_itself(name, &g.list),
            ast::CompoundCommand::Subshell(g) => calls_itself(name, &g.list),
            _ => false,
        },
        ast::Command::Function(_) | ast::Command::ExtendedTest(..) => false,
    };
    list.0.iter().any(|ast::CompoundListItem(and_or, separator)| {
        let pipelines = std::iter::once(&and_or.first).chain(and_or.additional.iter().map(|a| match a {
            ast::AndOr::And(p) | ast::AndOr::Or(p) => p,
        }));
        let background = matches!(separator, ast::SeparatorOperator::Async);
        pipelines.into_iter().any(|p| {
            let count = p.seq.iter().filter(|c| calls(c)).count();
            count >= 2 || count >= 1 && background
        })
    })
}

fn calls_itself(name: &str, list: &ast::CompoundList) -> bool {
    list.0.iter().any(|ast::CompoundListItem(and_or, _)| {
        and_or.first.seq.iter().any(|c| match c {
            ast::Command::Simple(simple) => simple.word_or_name.as_ref().is_some_and(|w| w.value == name),
            _ => false,
        })
    })
}
