//! Turns text into occurrences: every simple command in it, with the state of the shell at that point. Handles every
//! type of the syntax tree; what cannot be followed becomes opaque and is never skipped.

use super::{
    lex::LexError,
    state::{ExitStates, ShellState, merge_states},
    token,
};
use brush_parser::{ParserOptions, SourceSpan, ast};
use countersign_model::{Directory, InputSource, Occurrence, Opaque, Word, WordValue};
use std::{ops::Range, rc::Rc};

/// The longest text that is read.
pub(crate) const MAX_TEXT_BYTES: usize = 64 * 1024;
/// The nesting limits of shells in shells, and of substitutions.
const MAX_SHELL_NESTING: usize = 8;
const MAX_SUBSTITUTION_NESTING: usize = 32;
/// The limits on the size of a plan; no ordinary command reaches them.
const MAX_OCCURRENCES: usize = 2000;
const MAX_SUBSTITUTIONS: usize = 500;

/// The position of a text in the text of the request: exact, or somewhere inside a span.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextPosition {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) exact: bool,
}

impl TextPosition {
    pub(super) fn span(self) -> Range<usize> {
        self.start..self.end
    }

    /// The position of a text that starts at this offset inside; without an offset, somewhere inside.
    pub(super) fn nested_at(self, at: Option<usize>) -> Self {
        match at {
            Some(at) if self.exact => Self { start: self.start + at, ..self },
            _ => Self { exact: false, ..self },
        }
    }
}

pub(crate) struct PlanBuilder<'a> {
    pub(super) home: &'a str,
    /// Whether a variable is in the environment of the task's programs.
    pub(super) environment: &'a dyn Fn(&str) -> bool,
    pub(crate) occurrences: Vec<Occurrence>,
    pub(crate) multiplies: bool,
    /// The reason why the command that is being expanded is opaque.
    pub(super) pending_opaque: Option<Opaque>,
    /// The position of the text that is being read.
    pub(super) position: TextPosition,
    /// The line continuations of the text that is being read.
    continuations: token::ContinuationMap,
    pub(super) input: InputSource,
    pub(super) privileged: bool,
    /// The text is read only for its risks; the shell does not run it as written.
    pub(super) shadow: bool,
    /// A wrapper precedes the command, so the name of a builtin may mean a program.
    pub(super) wrapped: bool,
    /// The command runs under `timeout`, which ends it with a signal.
    pub(super) timed: bool,
    /// The files that the preceding pipeline lists, if it prints a list of file names.
    pub(super) listed_files: Option<Vec<String>>,
    /// The shell may lack bash's own syntax.
    pub(super) posix: bool,
    substitution_depth: usize,
    shell_depth: usize,
    substitution_count: usize,
}

impl<'a> PlanBuilder<'a> {
    pub(crate) fn new(home: &'a str, environment: &'a dyn Fn(&str) -> bool) -> Self {
        Self {
            home,
            environment,
            occurrences: Vec::new(),
            multiplies: false,
            pending_opaque: None,
            position: TextPosition { start: 0, end: 0, exact: true },
            continuations: token::ContinuationMap::default(),
            input: InputSource::Inherited,
            privileged: false,
            shadow: false,
            wrapped: false,
            timed: false,
            listed_files: None,
            posix: false,
            substitution_depth: 0,
            shell_depth: 0,
            substitution_count: 0,
        }
    }

    /// Reads the text of a request.
    pub(crate) fn read_text(&mut self, text: &str, cwd: &str) {
        self.position = TextPosition { start: 0, end: text.len(), exact: true };
        let mut state = ShellState::new(cwd);
        if text.len() > MAX_TEXT_BYTES {
            self.emit_unread(text, Opaque::TooLarge, &state);
        } else if super::find_invisible_char(text).is_some() {
            self.emit_unread(text, Opaque::Invisible, &state);
        } else {
            self.read_program(text, &mut state);
        }
    }

    /// Reads an argv: one command, without expansion.
    pub(crate) fn read_argv(&mut self, argv: &[String], cwd: &str) {
        let end = argv.iter().map(|w| w.len() + 1).sum::<usize>().saturating_sub(1);
        self.position = TextPosition { start: 0, end, exact: false };
        let words = argv.iter().map(|w| Word { quoted: true, ..Word::literal(w.clone()) }).collect();
        let mut state = ShellState::new(cwd);
        self.read_command_words(words, Vec::new(), Vec::new(), self.position, &mut state, None);
    }

    pub(super) fn mark_opaque(&mut self, why: Opaque) {
        self.pending_opaque.get_or_insert(why);
    }

    pub(super) fn take_opaque(&mut self) -> Option<Opaque> {
        self.pending_opaque.take()
    }

    pub(super) fn emit(&mut self, mut occurrence: Occurrence) {
        occurrence.privileged |= self.privileged;
        occurrence.shadow = self.shadow;
        occurrence.wrapped = self.wrapped;
        occurrence.timed = self.timed;
        if self.occurrences.len() < MAX_OCCURRENCES {
            self.occurrences.push(occurrence);
        } else if let Some(last) = self.occurrences.last_mut() {
            last.opaque = Some(Opaque::TooLarge);
            last.shadow = false;
        }
    }

    /// Adds text that cannot be read as one occurrence.
    pub(super) fn emit_unread(&mut self, text: &str, why: Opaque, state: &ShellState) {
        self.emit(Occurrence {
            verb: "bash".to_owned(),
            program: "bash".to_owned(),
            words: vec![Word { quoted: true, ..Word::literal(text) }],
            span: self.position.span(),
            directory: (*state.directory).clone(),
            opaque: Some(why),
            unread: true,
            ..Occurrence::default()
        });
    }

    /// Adds an occurrence if an expansion outside any command was opaque.
    fn emit_pending_opaque(&mut self, state: &ShellState) {
        if let Some(why) = self.take_opaque() {
            self.emit_unread("", why, state);
        }
    }

    pub(super) fn position_of(&self, span: Option<&SourceSpan>) -> TextPosition {
        match span {
            Some(span) if self.position.exact => {
                let (start, end, exact) = self.continuations.in_source(span.start.index, span.end.index);
                TextPosition { start: self.position.start + start, end: self.position.start + end, exact }
            }
            _ => TextPosition { exact: false, ..self.position },
        }
    }

    /// Reads text that runs in its own subshell: `$(…)`, `<(…)`. Returns its output if that is a literal. The output
    /// is a hint, not a certainty, since a program may be other than its name suggests: it may be used to refuse a
    /// command, never to allow one.
    pub(super) fn read_substitution(
        &mut self,
        text: &str,
        position: TextPosition,
        state: &ShellState,
    ) -> Option<String> {
        let from = self.occurrences.len();
        let saved = (self.pending_opaque.take(), self.position, std::mem::take(&mut self.input));
        let end = if position.exact { position.start + text.len() } else { position.end };
        self.position = TextPosition { end, ..position };
        self.listed_files = None;
        self.substitution_depth += 1;
        self.substitution_count += 1;
        let mut inner = state.clone();
        if self.substitution_count > MAX_SUBSTITUTIONS {
            self.mark_opaque(Opaque::TooLarge);
            self.substitution_depth -= 1;
            (self.position, self.input) = (saved.1, saved.2);
            return None;
        }
        if self.substitution_depth > MAX_SUBSTITUTION_NESTING {
            self.emit_unread(text, Opaque::TooDeep, state);
            self.listed_files = None;
        } else {
            self.read_program(text, &mut inner);
        }
        self.substitution_depth -= 1;
        (self.pending_opaque, self.position, self.input) = saved;
        match self.occurrences.get(from..) {
            Some([only]) => literal_output(only).map(|t| t.trim_end_matches('\n').to_owned()),
            _ => None,
        }
    }

    /// Reads the text that another shell gets.
    pub(super) fn read_shell_text(&mut self, text: &str, position: TextPosition, state: &ShellState, posix: bool) {
        let saved = (self.shell_depth, self.posix, self.wrapped);
        self.wrapped = true;
        self.shell_depth += 1;
        self.posix |= posix;
        // A child shell has only the exported variables, and no functions.
        let mut inner = state.clone();
        inner.variables = Rc::new(
            state
                .variables
                .iter()
                .filter(|(n, _)| state.exported.contains_key(*n) || super::simple_command::is_positional(n))
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect(),
        );
        inner.functions = Rc::default();
        if self.shell_depth > MAX_SHELL_NESTING {
            self.emit_unread(text, Opaque::TooDeep, state);
        } else if super::find_invisible_char(text).is_some() {
            // The characters were visible while they were written as escapes. Bash uses some of them internally.
            self.emit_unread(text, Opaque::Invisible, state);
        } else {
            self.read_substitution(text, position.nested_at(None), &inner);
        }
        (self.shell_depth, self.posix, self.wrapped) = saved;
    }

    fn read_program(&mut self, text: &str, state: &mut ShellState) -> ExitStates {
        match parse(text) {
            Ok((program, joined)) => {
                let outside = std::mem::replace(&mut self.continuations, joined);
                let mut exit = ExitStates::unchanged(state.clone());
                for list in &program.complete_commands {
                    exit = self.read_list(list, state);
                    if let Some(next) = exit.clone().merged() {
                        *state = next;
                    }
                }
                if program.complete_commands.len() != 1 {
                    self.listed_files = None;
                }
                self.continuations = outside;
                exit
            }
            Err(why) => {
                self.listed_files = None;
                self.emit_unread(text, why, state);
                self.salvage_lines(text, state);
                ExitStates::unchanged(state.clone())
            }
        }
    }

    /// Reads parts of a text that cannot be read as a whole, for their risks: bash runs each command as soon as it
    /// has read it. Uses the shortest runs of lines that can be read.
    fn salvage_lines(&mut self, text: &str, state: &ShellState) {
        if self.shadow || text.len() > MAX_TEXT_BYTES {
            return;
        }
        self.shadow = true;
        // Positions inside the parts are not positions in the text.
        let (position, joined) = (self.position, std::mem::take(&mut self.continuations));
        self.position = position.nested_at(None);
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let (mut from, mut tries) = (0, if text.len() > 8192 { 48 } else { 256 });
        while from < lines.len() && tries > 0 {
            let mut piece = String::new();
            let read = lines[from..].iter().position(|line| {
                piece.push_str(line);
                tries -= 1;
                tries <= 0 || try_parse(&piece).is_ok()
            });
            if let (Some(length), Ok((program, _))) = (read, try_parse(&piece)) {
                for list in &program.complete_commands {
                    self.read_list(list, &mut state.clone());
                }
                from += length;
            } else {
                self.salvage_fragments(lines[from], state, &mut tries);
            }
            from += 1;
        }
        self.pending_opaque = None;
        self.shadow = false;
        (self.position, self.continuations) = (position, joined);
    }

    /// Reads the fragments between the operators of a line that cannot be read, in case one is a command.
    fn salvage_fragments(&mut self, line: &str, state: &ShellState, tries: &mut i32) {
        for piece in line.split([';', '&', '|', '(', ')', '{', '}', '`', '\n']).take(32) {
            let piece = piece.trim().trim_start_matches(['"', '\'', '$']);
            let piece = ["do ", "then ", "else "].iter().fold(piece, |p, k| p.strip_prefix(k).unwrap_or(p));
            *tries -= 1;
            if *tries > 0
                && let Ok((program, _)) = try_parse(piece)
            {
                for list in &program.complete_commands {
                    self.read_list(list, &mut state.clone());
                }
            }
        }
    }

    pub(super) fn read_list(&mut self, list: &ast::CompoundList, state: &mut ShellState) -> ExitStates {
        let mut exit = ExitStates::unchanged(state.clone());
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            exit = match separator {
                ast::SeparatorOperator::Sequence => self.read_and_or(and_or, state),
                ast::SeparatorOperator::Async => {
                    self.read_and_or(and_or, &mut state.clone());
                    ExitStates::unchanged(state.clone())
                }
            };
            // Nothing runs behind an `exit`, but it is read all the same.
            if let Some(next) = exit.clone().merged() {
                *state = next;
            }
        }
        if list.0.len() != 1 {
            self.listed_files = None;
        }
        exit
    }

    fn read_and_or(&mut self, list: &ast::AndOrList, state: &mut ShellState) -> ExitStates {
        let mut exit = self.read_pipeline(&list.first, state);
        for next in &list.additional {
            match next {
                ast::AndOr::And(pipeline) => {
                    let mut entry = exit.ok.unwrap_or_else(|| state.clone());
                    let after = self.read_pipeline(pipeline, &mut entry);
                    exit = ExitStates { ok: after.ok, failed: merge_states(exit.failed, after.failed) };
                }
                ast::AndOr::Or(pipeline) => {
                    let mut entry = exit.failed.unwrap_or_else(|| state.clone());
                    let after = self.read_pipeline(pipeline, &mut entry);
                    exit = ExitStates { ok: merge_states(exit.ok, after.ok), failed: after.failed };
                }
            }
        }
        if !list.additional.is_empty() {
            self.listed_files = None;
        }
        exit
    }

    fn read_pipeline(&mut self, pipeline: &ast::Pipeline, state: &mut ShellState) -> ExitStates {
        if let [only] = &pipeline.seq[..] {
            let from = self.occurrences.len();
            let exit = self.read_command(only, state);
            // Only a substitution uses the list.
            self.listed_files = if self.substitution_depth > 0 { self.listed_by_stage(only, from) } else { None };
            return if pipeline.bang { ExitStates { ok: exit.failed, failed: exit.ok } } else { exit };
        }
        let outside = self.input.clone();
        let lists = self.substitution_depth > 0 || pipeline.seq.iter().skip(1).any(takes_lists);
        for command in &pipeline.seq {
            let from = self.occurrences.len();
            self.read_command(command, &mut state.clone());
            // The output of a stage is the input of the next.
            let literal = match (command, &self.occurrences[from.min(self.occurrences.len())..]) {
                (ast::Command::Simple(_), [only]) => literal_output(only),
                _ => None,
            };
            self.listed_files = if lists { self.listed_by_stage(command, from) } else { None };
            self.input = match (literal, &self.listed_files) {
                (Some(text), _) => InputSource::Text(Some(text)),
                (None, Some(globs)) => InputSource::Files(globs.clone()),
                (None, None) => InputSource::Pipe,
            };
        }
        self.input = outside;
        ExitStates::unchanged(state.clone())
    }

    /// The file names that a stage prints, if it is one command that prints nothing else.
    fn listed_by_stage(&self, command: &ast::Command, from: usize) -> Option<Vec<String>> {
        match (command, self.occurrences.get(from..)?) {
            (ast::Command::Simple(_), [only]) => super::listing::listed_globs(only),
            _ => None,
        }
    }

    fn read_command(&mut self, command: &ast::Command, state: &mut ShellState) -> ExitStates {
        match command {
            ast::Command::Simple(simple) => self.read_simple(simple, state),
            ast::Command::Compound(compound, redirects) => {
                let outside = self.input.clone();
                self.read_redirects(redirects.as_ref(), state);
                let exit = self.read_compound(compound, state);
                self.input = outside;
                exit
            }
            ast::Command::Function(function) => self.read_function(function, state),
            ast::Command::ExtendedTest(test, redirects) => {
                let outside = self.input.clone();
                self.read_redirects(redirects.as_ref(), state);
                self.input = outside;
                let position = self.position_of(Some(&test.loc));
                if self.posix {
                    // A shell without `[[` reads two commands here.
                    self.mark_opaque(Opaque::Unparseable);
                }
                let mut operands = Vec::new();
                self.read_test(&test.expr, state, &mut operands);
                let opaque = self.take_opaque();
                let mut words = vec![Word::literal("[[")];
                words.extend(operands);
                self.emit(Occurrence {
                    verb: "[[".to_owned(),
                    words,
                    span: position.span(),
                    directory: (*state.directory).clone(),
                    opaque,
                    ..Occurrence::default()
                });
                ExitStates::unchanged(state.clone())
            }
        }
    }

    /// Reads the redirects of a compound command, which set the input of everything inside.
    fn read_redirects(&mut self, list: Option<&ast::RedirectList>, state: &mut ShellState) {
        let Some(list) = list else { return };
        let mut redirects = Vec::new();
        let mut span = None;
        for redirect in &list.0 {
            let (target, input) = self.read_redirect(redirect, state, &mut span);
            redirects.extend(target);
            if let Some(input) = input {
                self.input = input;
            }
        }
        let opaque = self.take_opaque();
        if !redirects.is_empty() || opaque.is_some() {
            self.emit(Occurrence {
                verb: ":".to_owned(),
                words: vec![Word::literal(":")],
                span: span.unwrap_or(self.position.span()),
                directory: (*state.directory).clone(),
                redirects,
                opaque,
                ..Occurrence::default()
            });
        }
    }

    fn read_compound(&mut self, compound: &ast::CompoundCommand, state: &mut ShellState) -> ExitStates {
        match compound {
            ast::CompoundCommand::BraceGroup(group) => self.read_list(&group.list, state),
            ast::CompoundCommand::Subshell(group) => {
                self.read_list(&group.list, &mut state.clone());
                ExitStates::unchanged(state.clone())
            }
            ast::CompoundCommand::Arithmetic(command) => {
                self.read_arithmetic_command(command, state);
                ExitStates::unchanged(state.clone())
            }
            ast::CompoundCommand::ArithmeticForClause(clause) => {
                let position = self.position_of(Some(&clause.loc));
                for part in [&clause.initializer, &clause.condition, &clause.updater].into_iter().flatten() {
                    self.check_arithmetic(&part.value, position, state);
                }
                self.emit_pending_opaque(state);
                state.forget_variables();
                self.read_loop(None, &clause.body.list, state)
            }
            ast::CompoundCommand::ForClause(clause) => self.read_for(clause, state),
            ast::CompoundCommand::WhileClause(clause) | ast::CompoundCommand::UntilClause(clause) => {
                self.read_loop(Some(&clause.0), &clause.1.list, state)
            }
            ast::CompoundCommand::IfClause(clause) => self.read_if(clause, state),
            ast::CompoundCommand::CaseClause(clause) => self.read_case(clause, state),
            ast::CompoundCommand::Coprocess(coprocess) => {
                let position = self.position;
                self.position = self.position_of(Some(&coprocess.loc));
                self.emit_unread("coproc", Opaque::Coprocess, state);
                self.position = position;
                self.read_command(&coprocess.body, &mut state.clone());
                ExitStates::unchanged(state.clone())
            }
        }
    }

    fn read_for(&mut self, clause: &ast::ForClauseCommand, state: &mut ShellState) -> ExitStates {
        let mut words = Vec::new();
        for word in clause.values.iter().flatten() {
            let position = self.position_of(word.loc.as_ref());
            self.expand_words(&word.value, position, state, &mut words);
        }
        self.emit_pending_opaque(state);
        let value = match clause.values {
            Some(_) => Self::merge_loop_values(&words),
            None => WordValue::Unknown,
        };
        self.forget_changed(&clause.body.list, state);
        // Without a word there is no round, and the variable keeps its value.
        let before = state.clone();
        self.assign(&clause.variable_name, value, state);
        if words.iter().any(Word::is_listed) {
            state.mark_listed(&clause.variable_name);
        }
        let exit = self.read_list(&clause.body.list, state);
        ExitStates::unchanged(merge_states(Some(before), exit.merged()).unwrap_or_else(|| state.clone()))
    }

    fn read_if(&mut self, clause: &ast::IfClauseCommand, state: &mut ShellState) -> ExitStates {
        let condition = self.read_list(&clause.condition, state);
        let mut entry = condition.ok.clone().unwrap_or_else(|| state.clone());
        let then = self.read_list(&clause.then, &mut entry);
        let mut all = then.merged();
        let mut rest = condition.failed.unwrap_or_else(|| state.clone());
        let mut always = false;
        for other in clause.elses.iter().flatten() {
            let mut entry = match &other.condition {
                Some(list) => {
                    let condition = self.read_list(list, &mut rest);
                    let taken = condition.ok.clone().unwrap_or_else(|| rest.clone());
                    rest = condition.failed.unwrap_or(rest);
                    taken
                }
                None => {
                    always = true;
                    rest.clone()
                }
            };
            all = merge_states(all, self.read_list(&other.body, &mut entry).merged());
        }
        if !always {
            all = merge_states(all, Some(rest));
        }
        match all {
            Some(state) => ExitStates::unchanged(state),
            None => ExitStates { ok: None, failed: None },
        }
    }

    fn read_case(&mut self, clause: &ast::CaseClauseCommand, state: &mut ShellState) -> ExitStates {
        let position = self.position_of(clause.value.loc.as_ref());
        self.expand_value(&clause.value.value, position, state);
        let mut all = Some(state.clone());
        for item in &clause.cases {
            for pattern in &item.patterns {
                let position = self.position_of(pattern.loc.as_ref());
                self.expand_value(&pattern.value, position, state);
            }
            self.emit_pending_opaque(state);
            if let Some(list) = &item.cmd {
                // `;&` and `;;&` continue into the next item, so any item may follow any earlier state.
                let mut entry = all.clone().unwrap_or_else(|| state.clone());
                all = merge_states(all, self.read_list(list, &mut entry).merged());
            }
        }
        self.emit_pending_opaque(state);
        ExitStates::unchanged(all.unwrap_or_else(|| state.clone()))
    }

    /// Reads a loop. What the body changes is unknown in the next round.
    fn read_loop(
        &mut self,
        condition: Option<&ast::CompoundList>,
        body: &ast::CompoundList,
        state: &mut ShellState,
    ) -> ExitStates {
        self.forget_changed(body, state);
        if let Some(condition) = condition {
            self.forget_changed(condition, state);
        }
        let before = state.clone();
        let (mut entry, skipped) = match condition {
            Some(condition) => {
                let exit = self.read_list(condition, state);
                (exit.ok.unwrap_or_else(|| before.clone()), exit.failed)
            }
            None => (before.clone(), None),
        };
        let after = self.read_list(body, &mut entry).merged();
        ExitStates::unchanged(merge_states(merge_states(Some(before), skipped), after).unwrap_or(entry))
    }

    fn forget_changed(&mut self, list: &ast::CompoundList, state: &mut ShellState) {
        let mut changes = super::assigned_variables::AssignedVariables::default();
        changes.note_list(list);
        if changes.changes_directory || changes.any_variable {
            state.directory = Rc::new(Directory::Unknown);
        }
        if changes.any_variable {
            state.forget_variables();
        }
        for name in changes.functions {
            Rc::make_mut(&mut state.functions).insert(name);
        }
        for name in changes.names {
            self.assign(&name, WordValue::Unknown, state);
        }
    }

    /// `((…))`
    fn read_arithmetic_command(&mut self, command: &ast::ArithmeticCommand, state: &mut ShellState) {
        let position = self.position_of(Some(&command.loc));
        self.check_arithmetic(&command.expr.value, position, state);
        if let Some(why) = self.take_opaque() {
            self.emit_unread(&command.expr.value, why, state);
        }
    }

    fn read_function(&mut self, function: &ast::FunctionDefinition, state: &mut ShellState) -> ExitStates {
        let name = function.fname.value.clone();
        self.multiplies |= super::assigned_variables::is_fork_bomb(&name, &function.body.0);
        Rc::make_mut(&mut state.functions).insert(name);
        let mut inner = state.clone();
        inner.forget();
        let outside = self.input.clone();
        // The caller of the function and its input are not known here.
        self.input = InputSource::Pipe;
        self.read_redirects(function.body.1.as_ref(), &mut inner);
        self.read_compound(&function.body.0, &mut inner);
        self.input = outside;
        ExitStates::unchanged(state.clone())
    }
}

/// Whether a stage may act on each file name of its input.
fn takes_lists(command: &ast::Command) -> bool {
    match command {
        ast::Command::Simple(simple) => simple.word_or_name.as_ref().is_some_and(|w| w.value == "xargs"),
        ast::Command::Compound(..) => true,
        ast::Command::Function(_) | ast::Command::ExtendedTest(..) => false,
    }
}

/// `name=(…)`
pub(super) fn is_array(raw: &str) -> bool {
    raw.split_once("=(").is_some_and(|(name, _)| super::lex::name_length(name.as_bytes()).is_some())
}

/// The output of `echo` or `cat <<`, if it is literal.
fn literal_output(occurrence: &Occurrence) -> Option<String> {
    if occurrence.redirects.iter().any(|r| r.write) || occurrence.opaque.is_some() {
        return None;
    }
    let texts: Option<Vec<&str>> = occurrence.words.iter().map(Word::text).collect();
    match (texts?.as_slice(), &occurrence.input) {
        (["echo" | "printf", rest @ ..], _) => {
            let rest: Vec<&str> =
                rest.iter().copied().skip_while(|w| matches!(*w, "-n" | "-e" | "-E" | "-ne" | "-en")).collect();
            // `
            // ` is a newline to printf and to `echo -e`, so it is read as one and can hide nothing.
            Some(rest.join(" ").replace("\\n", "\n"))
        }
        (["cat"], InputSource::Text(text)) => text.clone(),
        _ => None,
    }
}

fn parse(text: &str) -> Result<(ast::Program, token::ContinuationMap), Opaque> {
    parse_within(text, token::MAX_RESCANNED_BYTES)
}

/// Parses a part of a text, with a lower limit because many parts are tried.
fn try_parse(text: &str) -> Result<(ast::Program, token::ContinuationMap), Opaque> {
    parse_within(text, token::MAX_RESCANNED_BYTES_PER_TRY)
}

fn parse_within(text: &str, max_rescanned_bytes: usize) -> Result<(ast::Program, token::ContinuationMap), Opaque> {
    let (tokens, joined) = token::tokens(text, max_rescanned_bytes).map_err(|why| match why {
        LexError::TooDeep => Opaque::TooDeep,
        LexError::TooLarge => Opaque::TooLarge,
        LexError::Unterminated | LexError::Grammar | LexError::Continuation(_) => Opaque::Unparseable,
    })?;
    let options = ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() };
    // If the parser crate panics, the text counts as one that cannot be read.
    match std::panic::catch_unwind(|| brush_parser::parse_tokens(&tokens, &options)) {
        Ok(Ok(program)) => Ok((program, joined)),
        Ok(Err(_)) | Err(_) => Err(Opaque::Unparseable),
    }
}
