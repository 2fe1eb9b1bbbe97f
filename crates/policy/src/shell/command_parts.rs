//! Reads the parts of one simple command from the syntax tree: assignments, words, redirects.

use super::{
    plan_builder::{PlanBuilder, TextPosition, is_array},
    state::{ExitStates, ShellState},
};
use brush_parser::ast;
use countersign_model::{InputSource, Opaque, Redirect, Word, WordValue};
use std::ops::Range;

impl PlanBuilder<'_> {
    pub(super) fn read_simple(&mut self, simple: &ast::SimpleCommand, state: &mut ShellState) -> ExitStates {
        let outer = self.pending_opaque.take();
        let (mut assignments, mut redirects, mut words) = (Vec::new(), Vec::new(), Vec::new());
        let mut input = None;
        let mut span: Option<Range<usize>> = None;
        let mut cover = |range: Range<usize>| {
            let whole = span.get_or_insert(range.clone());
            *whole = whole.start.min(range.start)..whole.end.max(range.end);
        };
        let prefix = simple.prefix.iter().flat_map(|p| &p.0);
        let suffix = simple.suffix.iter().flat_map(|s| &s.0);
        for item in prefix {
            match item {
                ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word) => {
                    let position = self.position_of(word.loc.as_ref());
                    cover(position.span());
                    assignments.push((word.value.clone(), position));
                }
                other => self.read_item(other, state, &mut words, &mut redirects, &mut input, &mut cover),
            }
        }
        if let Some(name) = &simple.word_or_name {
            let position = self.position_of(name.loc.as_ref());
            cover(position.span());
            self.expand_words(&name.value, position, state, &mut words);
        }
        let declares = simple
            .word_or_name
            .as_ref()
            .is_some_and(|w| super::simple_command::DECLARING_BUILTINS.contains(&w.value.as_str()));
        for item in suffix {
            if let (true, ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word)) = (declares, item) {
                let position = self.position_of(word.loc.as_ref());
                cover(position.span());
                let raw = word.value.clone();
                words.push(self.read_declaration(&raw, position, state));
                continue;
            }
            self.read_item(item, state, &mut words, &mut redirects, &mut input, &mut cover);
        }
        let position = match span {
            Some(range) => TextPosition { start: range.start, end: range.end, exact: false },
            None => TextPosition { exact: false, ..self.position },
        };
        let exit = self.read_simple_command(words, assignments, redirects, position, state, input);
        self.pending_opaque = outer;
        exit
    }

    fn read_item(
        &mut self,
        item: &ast::CommandPrefixOrSuffixItem,
        state: &mut ShellState,
        words: &mut Vec<Word>,
        redirects: &mut Vec<Redirect>,
        input: &mut Option<InputSource>,
        cover: &mut impl FnMut(Range<usize>),
    ) {
        match item {
            ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => {
                let mut span = None;
                let (target, from) = self.read_redirect(redirect, state, &mut span);
                if let Some(span) = span {
                    cover(span);
                }
                redirects.extend(target);
                if from.is_some() {
                    *input = from;
                }
            }
            ast::CommandPrefixOrSuffixItem::Word(word) | ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word) => {
                let position = self.position_of(word.loc.as_ref());
                cover(position.span());
                if word.value.ends_with(')') && is_array(&word.value) {
                    // Only declaring builtins take an array; the substitutions in its elements run in any case.
                    self.read_array(&word.value, position, state);
                    words.push(Word { hint: Some("array".to_owned()), ..Word::unknown() });
                } else {
                    self.expand_words(&word.value, position, state, words);
                }
            }
            ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                self.read_list(&subshell.list, &mut state.clone());
                words.push(Word { substituted: true, ..Word::unknown() });
            }
        }
    }

    /// The file that a redirect opens, and the input source that it sets.
    pub(super) fn read_redirect(
        &mut self,
        redirect: &ast::IoRedirect,
        state: &mut ShellState,
        span: &mut Option<Range<usize>>,
    ) -> (Option<Redirect>, Option<InputSource>) {
        use ast::{IoFileRedirectKind as Kind, IoFileRedirectTarget as Target, IoRedirect};
        let mut file = |builder: &mut Self, word: &ast::Word, write, append| {
            let position = builder.position_of(word.loc.as_ref());
            let whole = span.take().unwrap_or(position.span());
            *span = Some(whole.start.min(position.start)..whole.end.max(position.end));
            let mut words = Vec::new();
            builder.expand_words(&word.value, position, state, &mut words);
            let target = match <[Word; 1]>::try_from(words) {
                Ok([word]) => word,
                Err(_) => Word::unknown(),
            };
            Redirect { target, write, append }
        };
        match redirect {
            IoRedirect::File(fd, kind, target) => {
                let (write, append) = match kind {
                    Kind::Read | Kind::DuplicateInput => (false, false),
                    Kind::Write | Kind::Clobber | Kind::DuplicateOutput => (true, false),
                    Kind::Append | Kind::ReadAndWrite => (true, true),
                };
                let stdin = !write && fd.is_none_or(|fd| fd == 0);
                match target {
                    Target::Filename(word) => {
                        (Some(file(self, word, write, append)), stdin.then_some(InputSource::File))
                    }
                    Target::Fd(_) => (None, stdin.then_some(InputSource::Pipe)),
                    Target::ProcessSubstitution(_, subshell) => {
                        self.read_list(&subshell.list, &mut state.clone());
                        (None, stdin.then_some(InputSource::Pipe))
                    }
                    Target::Duplicate(word) => {
                        let text = word.value.as_str();
                        let digits = text.strip_suffix('-').unwrap_or(text);
                        if digits.bytes().all(|b| b.is_ascii_digit()) {
                            (None, stdin.then_some(InputSource::Pipe))
                        } else {
                            // Bash expands this word, and if the result is not a number, expands the result again.
                            if write && !super::lex::is_plain(text) {
                                self.mark_opaque(Opaque::EvaluatesArguments);
                            }
                            (Some(file(self, word, write, append)), stdin.then_some(InputSource::Pipe))
                        }
                    }
                }
            }
            IoRedirect::HereDocument(fd, document) => {
                let position = self.position_of(document.doc.loc.as_ref());
                let value = if document.requires_expansion {
                    self.expand_heredoc(&document.doc.value, position.nested_at(None), state)
                } else {
                    WordValue::One(document.doc.value.clone())
                };
                let text = match value {
                    WordValue::One(text) => Some(text),
                    _ => None,
                };
                (None, fd.is_none_or(|fd| fd == 0).then_some(InputSource::Text(text)))
            }
            IoRedirect::HereString(fd, word) => {
                let position = self.position_of(word.loc.as_ref());
                let text = match self.expand_value(&word.value, position, state) {
                    WordValue::One(text) => Some(text),
                    _ => None,
                };
                (None, fd.is_none_or(|fd| fd == 0).then_some(InputSource::Text(text)))
            }
            IoRedirect::OutputAndError(word, append) => (Some(file(self, word, true, *append)), None),
        }
    }
}
