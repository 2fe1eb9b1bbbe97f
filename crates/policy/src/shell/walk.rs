//! From text to occurrences: every simple command anywhere in it, with the state that the shell is in when it gets
//! there. Follows the grammar's types one by one; what is not followed is opaque, never skipped.

use super::{
    lex::LexError,
    state::{ExitStates, ShellState, either_state},
    token,
};
use brush_parser::{ParserOptions, SourceSpan, ast};
use countersign_model::{Directory, InputSource, Occurrence, Opaque, Word, WordValue};
use std::{ops::Range, rc::Rc};

/// The longest text that is read at all.
pub(crate) const LONGEST: usize = 64 * 1024;
/// How often shells may nest in shells, and substitutions in each other.
const DEEPEST_SHELL: usize = 8;
const DEEPEST_TEXT: usize = 32;
/// More occurrences than a person would look at, or than any honest command has.
const MOST_OCCURRENCES: usize = 2000;
const MOST_SUBSTITUTIONS: usize = 500;

/// Where a text stands in the text of the request: exactly, or somewhere inside a span.
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

    /// A text that starts `at` this offset inside, or somewhere inside.
    pub(super) fn inside(self, at: Option<usize>) -> Self {
        match at {
            Some(at) if self.exact => Self { start: self.start + at, ..self },
            _ => Self { exact: false, ..self },
        }
    }
}

pub(crate) struct PlanBuilder<'a> {
    pub(super) home: &'a str,
    /// Variables that every program of the task finds in its environment.
    pub(super) environment: &'a dyn Fn(&str) -> bool,
    pub(crate) occurrences: Vec<Occurrence>,
    pub(crate) multiplies: bool,
    /// What made the command opaque that is being expanded.
    pub(super) pending: Option<Opaque>,
    /// Where the text that is being read stands.
    pub(super) place: TextPosition,
    /// Where the text that is being read had line continuations.
    joined: token::ContinuationMap,
    pub(super) input: InputSource,
    pub(super) privileged: bool,
    /// Read only for its risks: it is not what the shell was given.
    pub(super) shadow: bool,
    /// Another program stands before it: what looks like a builtin may be a program of that name.
    pub(super) wrapped: bool,
    /// Behind `timeout`, which ends it by a signal.
    pub(super) timed: bool,
    /// What the pipeline before has printed, where that is a list of file names.
    pub(super) listing: Option<Vec<String>>,
    /// A shell without bash's own syntax.
    pub(super) posix: bool,
    texts: usize,
    shells: usize,
    substitutions: usize,
}

impl<'a> PlanBuilder<'a> {
    pub(crate) fn new(home: &'a str, environment: &'a dyn Fn(&str) -> bool) -> Self {
        Self {
            home,
            environment,
            occurrences: Vec::new(),
            multiplies: false,
            pending: None,
            place: TextPosition { start: 0, end: 0, exact: true },
            joined: token::ContinuationMap::default(),
            input: InputSource::Inherited,
            privileged: false,
            shadow: false,
            wrapped: false,
            timed: false,
            listing: None,
            posix: false,
            texts: 0,
            shells: 0,
            substitutions: 0,
        }
    }

    /// Reads the text of a request.
    pub(crate) fn text(&mut self, text: &str, cwd: &str) {
        self.place = TextPosition { start: 0, end: text.len(), exact: true };
        let mut state = ShellState::new(cwd);
        if text.len() > LONGEST {
            self.unread(text, Opaque::TooLarge, &state);
        } else if super::invisible(text).is_some() {
            self.unread(text, Opaque::Invisible, &state);
        } else {
            self.program(text, &mut state);
        }
    }

    /// Reads an argv: one command, nothing to expand.
    pub(crate) fn argv(&mut self, argv: &[String], cwd: &str) {
        let end = argv.iter().map(|w| w.len() + 1).sum::<usize>().saturating_sub(1);
        self.place = TextPosition { start: 0, end, exact: false };
        let words = argv.iter().map(|w| Word { quoted: true, ..Word::literal(w.clone()) }).collect();
        let mut state = ShellState::new(cwd);
        self.command_words(words, Vec::new(), Vec::new(), self.place, &mut state, None);
    }

    pub(super) fn opaque(&mut self, why: Opaque) {
        self.pending.get_or_insert(why);
    }

    pub(super) fn take_opaque(&mut self) -> Option<Opaque> {
        self.pending.take()
    }

    pub(super) fn emit(&mut self, mut occurrence: Occurrence) {
        occurrence.privileged |= self.privileged;
        occurrence.shadow = self.shadow;
        occurrence.wrapped = self.wrapped;
        occurrence.timed = self.timed;
        if self.occurrences.len() < MOST_OCCURRENCES {
            self.occurrences.push(occurrence);
        } else if let Some(last) = self.occurrences.last_mut() {
            last.opaque = Some(Opaque::TooLarge);
            last.shadow = false;
        }
    }

    /// Text that stays unread, as one occurrence.
    pub(super) fn unread(&mut self, text: &str, why: Opaque, state: &ShellState) {
        self.emit(Occurrence {
            verb: "bash".to_owned(),
            program: "bash".to_owned(),
            words: vec![Word { quoted: true, ..Word::literal(text) }],
            span: self.place.span(),
            directory: (*state.directory).clone(),
            opaque: Some(why),
            unread: true,
            ..Occurrence::default()
        });
    }

    /// What an expansion outside of any command has made opaque.
    fn settle(&mut self, state: &ShellState) {
        if let Some(why) = self.take_opaque() {
            self.unread("", why, state);
        }
    }

    pub(super) fn span(&self, span: Option<&SourceSpan>) -> TextPosition {
        match span {
            Some(span) if self.place.exact => {
                let (start, end, exact) = self.joined.in_source(span.start.index, span.end.index);
                TextPosition { start: self.place.start + start, end: self.place.start + end, exact }
            }
            _ => TextPosition { exact: false, ..self.place },
        }
    }

    /// Reads text in a subshell of its own: `$(…)`, `<(…)`.
    /// What it says in the end, when that is plain: never taken for certain, since programs may be other than they
    /// seem, but enough to refuse something.
    pub(super) fn substitution(&mut self, text: &str, place: TextPosition, state: &ShellState) -> Option<String> {
        let from = self.occurrences.len();
        let saved = (self.pending.take(), self.place, std::mem::take(&mut self.input));
        let end = if place.exact { place.start + text.len() } else { place.end };
        self.place = TextPosition { end, ..place };
        self.listing = None;
        self.texts += 1;
        self.substitutions += 1;
        let mut inner = state.clone();
        if self.substitutions > MOST_SUBSTITUTIONS {
            self.opaque(Opaque::TooLarge);
            self.texts -= 1;
            (self.place, self.input) = (saved.1, saved.2);
            return None;
        }
        if self.texts > DEEPEST_TEXT {
            self.unread(text, Opaque::TooDeep, state);
            self.listing = None;
        } else {
            self.program(text, &mut inner);
        }
        self.texts -= 1;
        (self.pending, self.place, self.input) = saved;
        match self.occurrences.get(from..) {
            Some([only]) => said(only).map(|t| t.trim_end_matches('\n').to_owned()),
            _ => None,
        }
    }

    /// Reads the text that another shell is given.
    pub(super) fn shell(&mut self, text: &str, place: TextPosition, state: &ShellState, posix: bool) {
        let saved = (self.shells, self.posix, self.wrapped);
        self.wrapped = true;
        self.shells += 1;
        self.posix |= posix;
        // A child shell has the exported variables only, and no functions.
        let mut inner = state.clone();
        inner.variables = Rc::new(
            state
                .variables
                .iter()
                .filter(|(n, _)| state.exported.contains_key(*n) || super::simple::is_positional(n))
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect(),
        );
        inner.functions = Rc::default();
        if self.shells > DEEPEST_SHELL {
            self.unread(text, Opaque::TooDeep, state);
        } else if super::invisible(text).is_some() {
            // Spelled as escapes it was visible; bash has marks of its own among these.
            self.unread(text, Opaque::Invisible, state);
        } else {
            self.substitution(text, place.inside(None), &inner);
        }
        (self.shells, self.posix, self.wrapped) = saved;
    }

    fn program(&mut self, text: &str, state: &mut ShellState) -> ExitStates {
        match parse(text) {
            Ok((program, joined)) => {
                let outside = std::mem::replace(&mut self.joined, joined);
                let mut exit = ExitStates::same(state.clone());
                for list in &program.complete_commands {
                    exit = self.list(list, state);
                    if let Some(next) = exit.clone().any() {
                        *state = next;
                    }
                }
                if program.complete_commands.len() != 1 {
                    self.listing = None;
                }
                self.joined = outside;
                exit
            }
            Err(why) => {
                self.listing = None;
                self.unread(text, why, state);
                self.salvage(text, state);
                ExitStates::same(state.clone())
            }
        }
    }

    /// Text that bash may still run in part, for it runs each command as soon as it has read it: the shortest runs of
    /// lines that can be read, for their risks.
    fn salvage(&mut self, text: &str, state: &ShellState) {
        if self.shadow || text.len() > LONGEST {
            return;
        }
        self.shadow = true;
        // What stands where in the pieces is not where it stands in the text.
        let (place, joined) = (self.place, std::mem::take(&mut self.joined));
        self.place = place.inside(None);
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
                    self.list(list, &mut state.clone());
                }
                from += length;
            } else {
                self.rough(lines[from], state, &mut tries);
            }
            from += 1;
        }
        self.pending = None;
        self.shadow = false;
        (self.place, self.joined) = (place, joined);
    }

    /// A line that cannot be read: whatever stands between its operators, in case that is a command.
    fn rough(&mut self, line: &str, state: &ShellState, tries: &mut i32) {
        for piece in line.split([';', '&', '|', '(', ')', '{', '}', '`', '\n']).take(32) {
            let piece = piece.trim().trim_start_matches(['"', '\'', '$']);
            let piece = ["do ", "then ", "else "].iter().fold(piece, |p, k| p.strip_prefix(k).unwrap_or(p));
            *tries -= 1;
            if *tries > 0
                && let Ok((program, _)) = try_parse(piece)
            {
                for list in &program.complete_commands {
                    self.list(list, &mut state.clone());
                }
            }
        }
    }

    pub(super) fn list(&mut self, list: &ast::CompoundList, state: &mut ShellState) -> ExitStates {
        let mut exit = ExitStates::same(state.clone());
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            exit = match separator {
                ast::SeparatorOperator::Sequence => self.and_or(and_or, state),
                ast::SeparatorOperator::Async => {
                    self.and_or(and_or, &mut state.clone());
                    ExitStates::same(state.clone())
                }
            };
            // Behind an `exit` nothing runs; it is read all the same.
            if let Some(next) = exit.clone().any() {
                *state = next;
            }
        }
        if list.0.len() != 1 {
            self.listing = None;
        }
        exit
    }

    fn and_or(&mut self, list: &ast::AndOrList, state: &mut ShellState) -> ExitStates {
        let mut exit = self.pipeline(&list.first, state);
        for next in &list.additional {
            match next {
                ast::AndOr::And(pipeline) => {
                    let mut entry = exit.ok.unwrap_or_else(|| state.clone());
                    let after = self.pipeline(pipeline, &mut entry);
                    exit = ExitStates { ok: after.ok, failed: either_state(exit.failed, after.failed) };
                }
                ast::AndOr::Or(pipeline) => {
                    let mut entry = exit.failed.unwrap_or_else(|| state.clone());
                    let after = self.pipeline(pipeline, &mut entry);
                    exit = ExitStates { ok: either_state(exit.ok, after.ok), failed: after.failed };
                }
            }
        }
        if !list.additional.is_empty() {
            self.listing = None;
        }
        exit
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline, state: &mut ShellState) -> ExitStates {
        if let [only] = &pipeline.seq[..] {
            let from = self.occurrences.len();
            let exit = self.command(only, state);
            // Only what is substituted is a list for anyone.
            self.listing = if self.texts > 0 { self.listed(only, from) } else { None };
            return if pipeline.bang { ExitStates { ok: exit.failed, failed: exit.ok } } else { exit };
        }
        let outside = self.input.clone();
        let lists = self.texts > 0 || pipeline.seq.iter().skip(1).any(takes_lists);
        for command in &pipeline.seq {
            let from = self.occurrences.len();
            self.command(command, &mut state.clone());
            // What the stage says is what the next one reads.
            let said = match (command, &self.occurrences[from.min(self.occurrences.len())..]) {
                (ast::Command::Simple(_), [only]) => said(only),
                _ => None,
            };
            self.listing = if lists { self.listed(command, from) } else { None };
            self.input = match (said, &self.listing) {
                (Some(text), _) => InputSource::Text(Some(text)),
                (None, Some(globs)) => InputSource::Files(globs.clone()),
                (None, None) => InputSource::Pipe,
            };
        }
        self.input = outside;
        ExitStates::same(state.clone())
    }

    /// The file names that a stage prints, where it is one command and they are all that it prints.
    fn listed(&self, command: &ast::Command, from: usize) -> Option<Vec<String>> {
        match (command, self.occurrences.get(from..)?) {
            (ast::Command::Simple(_), [only]) => super::listing::listed(only),
            _ => None,
        }
    }

    fn command(&mut self, command: &ast::Command, state: &mut ShellState) -> ExitStates {
        match command {
            ast::Command::Simple(simple) => self.simple(simple, state),
            ast::Command::Compound(compound, redirects) => {
                let outside = self.input.clone();
                self.redirected(redirects.as_ref(), state);
                let exit = self.compound(compound, state);
                self.input = outside;
                exit
            }
            ast::Command::Function(function) => self.function(function, state),
            ast::Command::ExtendedTest(test, redirects) => {
                let outside = self.input.clone();
                self.redirected(redirects.as_ref(), state);
                self.input = outside;
                let place = self.span(Some(&test.loc));
                if self.posix {
                    // A shell without it reads two commands here.
                    self.opaque(Opaque::Unparseable);
                }
                let mut operands = Vec::new();
                self.test(&test.expr, state, &mut operands);
                let opaque = self.take_opaque();
                let mut words = vec![Word::literal("[[")];
                words.extend(operands);
                self.emit(Occurrence {
                    verb: "[[".to_owned(),
                    words,
                    span: place.span(),
                    directory: (*state.directory).clone(),
                    opaque,
                    ..Occurrence::default()
                });
                ExitStates::same(state.clone())
            }
        }
    }

    /// The redirects of a compound command: files of their own, and input for all that is inside.
    fn redirected(&mut self, list: Option<&ast::RedirectList>, state: &mut ShellState) {
        let Some(list) = list else { return };
        let mut redirects = Vec::new();
        let mut span = None;
        for redirect in &list.0 {
            let (target, input) = self.redirect(redirect, state, &mut span);
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
                span: span.unwrap_or(self.place.span()),
                directory: (*state.directory).clone(),
                redirects,
                opaque,
                ..Occurrence::default()
            });
        }
    }

    fn compound(&mut self, compound: &ast::CompoundCommand, state: &mut ShellState) -> ExitStates {
        match compound {
            ast::CompoundCommand::BraceGroup(group) => self.list(&group.list, state),
            ast::CompoundCommand::Subshell(group) => {
                self.list(&group.list, &mut state.clone());
                ExitStates::same(state.clone())
            }
            ast::CompoundCommand::Arithmetic(command) => {
                self.arithmetic_command(command, state);
                ExitStates::same(state.clone())
            }
            ast::CompoundCommand::ArithmeticForClause(clause) => {
                let place = self.span(Some(&clause.loc));
                for part in [&clause.initializer, &clause.condition, &clause.updater].into_iter().flatten() {
                    self.arithmetic(&part.value, place, state);
                }
                self.settle(state);
                state.forget_variables();
                self.repeated(None, &clause.body.list, state)
            }
            ast::CompoundCommand::ForClause(clause) => self.for_clause(clause, state),
            ast::CompoundCommand::WhileClause(clause) | ast::CompoundCommand::UntilClause(clause) => {
                self.repeated(Some(&clause.0), &clause.1.list, state)
            }
            ast::CompoundCommand::IfClause(clause) => self.if_clause(clause, state),
            ast::CompoundCommand::CaseClause(clause) => self.case_clause(clause, state),
            ast::CompoundCommand::Coprocess(coprocess) => {
                let place = self.place;
                self.place = self.span(Some(&coprocess.loc));
                self.unread("coproc", Opaque::Coprocess, state);
                self.place = place;
                self.command(&coprocess.body, &mut state.clone());
                ExitStates::same(state.clone())
            }
        }
    }

    fn for_clause(&mut self, clause: &ast::ForClauseCommand, state: &mut ShellState) -> ExitStates {
        let mut words = Vec::new();
        for word in clause.values.iter().flatten() {
            let place = self.span(word.loc.as_ref());
            self.words(&word.value, place, state, &mut words);
        }
        self.settle(state);
        let value = match clause.values {
            Some(_) => Self::alternatives(&words),
            None => WordValue::Unknown,
        };
        self.forget_changed(&clause.body.list, state);
        // No word, no round: then the variable is what it was.
        let before = state.clone();
        self.assign(&clause.variable_name, value, state);
        if words.iter().any(Word::is_listed) {
            state.mark_listed(&clause.variable_name);
        }
        let exit = self.list(&clause.body.list, state);
        ExitStates::same(either_state(Some(before), exit.any()).unwrap_or_else(|| state.clone()))
    }

    fn if_clause(&mut self, clause: &ast::IfClauseCommand, state: &mut ShellState) -> ExitStates {
        let condition = self.list(&clause.condition, state);
        let mut entry = condition.ok.clone().unwrap_or_else(|| state.clone());
        let then = self.list(&clause.then, &mut entry);
        let mut all = then.any();
        let mut rest = condition.failed.unwrap_or_else(|| state.clone());
        let mut always = false;
        for other in clause.elses.iter().flatten() {
            let mut entry = match &other.condition {
                Some(list) => {
                    let condition = self.list(list, &mut rest);
                    let taken = condition.ok.clone().unwrap_or_else(|| rest.clone());
                    rest = condition.failed.unwrap_or(rest);
                    taken
                }
                None => {
                    always = true;
                    rest.clone()
                }
            };
            all = either_state(all, self.list(&other.body, &mut entry).any());
        }
        if !always {
            all = either_state(all, Some(rest));
        }
        match all {
            Some(state) => ExitStates::same(state),
            None => ExitStates { ok: None, failed: None },
        }
    }

    fn case_clause(&mut self, clause: &ast::CaseClauseCommand, state: &mut ShellState) -> ExitStates {
        let place = self.span(clause.value.loc.as_ref());
        self.value(&clause.value.value, place, state);
        let mut all = Some(state.clone());
        for item in &clause.cases {
            for pattern in &item.patterns {
                let place = self.span(pattern.loc.as_ref());
                self.value(&pattern.value, place, state);
            }
            self.settle(state);
            if let Some(list) = &item.cmd {
                // `;&` and `;;&` go on into the next: any item may follow any state before it.
                let mut entry = all.clone().unwrap_or_else(|| state.clone());
                all = either_state(all, self.list(list, &mut entry).any());
            }
        }
        self.settle(state);
        ExitStates::same(all.unwrap_or_else(|| state.clone()))
    }

    /// A loop: what its body changes is not known when it comes round again.
    fn repeated(
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
                let exit = self.list(condition, state);
                (exit.ok.unwrap_or_else(|| before.clone()), exit.failed)
            }
            None => (before.clone(), None),
        };
        let after = self.list(body, &mut entry).any();
        ExitStates::same(either_state(either_state(Some(before), skipped), after).unwrap_or(entry))
    }

    fn forget_changed(&mut self, list: &ast::CompoundList, state: &mut ShellState) {
        let mut changes = super::changes::AssignedVariables::default();
        changes.list(list);
        if changes.moves || changes.all {
            state.directory = Rc::new(Directory::Unknown);
        }
        if changes.all {
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
    fn arithmetic_command(&mut self, command: &ast::ArithmeticCommand, state: &mut ShellState) {
        let place = self.span(Some(&command.loc));
        self.arithmetic(&command.expr.value, place, state);
        if let Some(why) = self.take_opaque() {
            self.unread(&command.expr.value, why, state);
        }
    }

    fn function(&mut self, function: &ast::FunctionDefinition, state: &mut ShellState) -> ExitStates {
        let name = function.fname.value.clone();
        self.multiplies |= super::changes::multiplies(&name, &function.body.0);
        Rc::make_mut(&mut state.functions).insert(name);
        let mut inner = state.clone();
        inner.forget();
        let outside = self.input.clone();
        // Who calls it, and with what input, is not known here.
        self.input = InputSource::Pipe;
        self.redirected(function.body.1.as_ref(), &mut inner);
        self.compound(&function.body.0, &mut inner);
        self.input = outside;
        ExitStates::same(state.clone())
    }
}

/// Whether a stage may do something with each file name that it is given.
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

/// What `echo` and `cat <<` pass on to the next stage, when that is literal.
fn said(occurrence: &Occurrence) -> Option<String> {
    if occurrence.redirects.iter().any(|r| r.write) || occurrence.opaque.is_some() {
        return None;
    }
    let texts: Option<Vec<&str>> = occurrence.words.iter().map(Word::text).collect();
    match (texts?.as_slice(), &occurrence.input) {
        (["echo" | "printf", rest @ ..], _) => {
            let rest: Vec<&str> =
                rest.iter().copied().skip_while(|w| matches!(*w, "-n" | "-e" | "-E" | "-ne" | "-en")).collect();
            // `\n` is a newline to printf and to `echo -e`: read it as one, so that nothing hides behind it.
            Some(rest.join(" ").replace("\\n", "\n"))
        }
        (["cat"], InputSource::Text(text)) => text.clone(),
        _ => None,
    }
}

fn parse(text: &str) -> Result<(ast::Program, token::ContinuationMap), Opaque> {
    parse_within(text, token::MOST_SCANNED_AGAIN)
}

/// One of many tries to read some of a text.
fn try_parse(text: &str) -> Result<(ast::Program, token::ContinuationMap), Opaque> {
    parse_within(text, token::MOST_SCANNED_IN_A_TRY)
}

fn parse_within(text: &str, most_scanned_again: usize) -> Result<(ast::Program, token::ContinuationMap), Opaque> {
    let (tokens, joined) = token::tokens(text, most_scanned_again).map_err(|why| match why {
        LexError::TooDeep => Opaque::TooDeep,
        LexError::TooLarge => Opaque::TooLarge,
        LexError::Unterminated | LexError::Grammar | LexError::Continued(_) => Opaque::Unparseable,
    })?;
    let options = ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() };
    // The grammar is another's; should it panic, the text is one that we could not read.
    match std::panic::catch_unwind(|| brush_parser::parse_tokens(&tokens, &options)) {
        Ok(Ok(program)) => Ok((program, joined)),
        Ok(Err(_)) | Err(_) => Err(Opaque::Unparseable),
    }
}
