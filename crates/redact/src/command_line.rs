//! Finds the secrets in the arguments of well-known programs: `curl -u user:V`, `mysql -pV`, `cargo login V`.
//!
//! A flag such as `-p` means something else to every program, so the program's name must precede it in the same command.
//! Commands are read from the name on, for a bounded number of bytes.

use crate::{
    call,
    context::MAX_VALUE_BYTES,
    guard,
    programs::{Form, PROGRAMS, Part, Program},
    runs::is_plain,
    span::{Inspection, Rank, Span},
    visible_text::{TextView, is_break},
};
use std::{collections::HashMap, sync::OnceLock};

/// How far behind the program's name an argument counts. The name is inspected again until so much has come.
pub(crate) const MAX_COMMAND_BYTES: usize = 768;
/// How far before a flag the program's name is searched.
pub(crate) const MAX_LOOKBACK_BYTES: usize = 512;
/// The longest key before a colon.
const MAX_KEY_BYTES: usize = 128;
/// The longest name of a program.
const MAX_PROGRAM_BYTES: usize = 24;

/// One argument of a command, without the quotes around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Argument {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// False: the text ends inside it, and more of it may come.
    pub(crate) whole: bool,
}

/// What comes next in a command.
pub(crate) enum NextArgument {
    Found(Argument),
    /// The command has ended.
    End,
    /// More bytes are needed.
    More,
}

/// The arguments of a command, from left to right.
pub(crate) struct Arguments<'a> {
    view: TextView<'a>,
    pub(crate) at: usize,
    /// The arguments are quoted strings of a list: `["curl", "-u", "bob:V"]`.
    list: bool,
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(view: TextView<'a>, at: usize) -> Self {
        Self { view, at, list: false }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        if self.view.is_moved_at(at) { Some(b'\n') } else { self.view.byte(at) }
    }

    /// How many backslashes are here, and the quote behind them.
    fn quote_at(&self, at: usize) -> Option<(u8, usize)> {
        let slashes = self.view.bytes[at..].iter().take(16).take_while(|b| **b == b'\\').count();
        match self.byte(at + slashes) {
            Some(q @ (b'"' | b'\'')) if slashes < 16 => Some((q, slashes)),
            _ => None,
        }
    }

    /// Skips the quote behind the name of a program, which makes this a list.
    fn open_list(&mut self) {
        if let Some((_, slashes)) = self.quote_at(self.at) {
            self.at += slashes + 1;
            self.list = true;
        }
    }

    pub(crate) fn next(&mut self) -> NextArgument {
        let from = self.at;
        match self.read_next() {
            // A byte that no argument begins with ends the command; every step must advance.
            NextArgument::Found(argument) if self.at <= from && argument.whole => NextArgument::End,
            next => next,
        }
    }

    fn read_next(&mut self) -> NextArgument {
        loop {
            let Some(b) = self.byte(self.at) else {
                return if self.view.end { NextArgument::End } else { NextArgument::More };
            };
            match b {
                b' ' | b'\t' | 0 => self.at += 1,
                b',' | b'\n' | b'\r' if self.list && !self.view.is_moved_at(self.at) => self.at += 1,
                b'\\' => match (self.byte(self.at + 1), self.byte(self.at + 2)) {
                    (Some(b'\n'), _) => self.at += 2,
                    (Some(b'\r'), Some(b'\n')) => self.at += 3,
                    (None, _) | (Some(b'\r'), None) if !self.view.end => return NextArgument::More,
                    _ => break,
                },
                b'\n' | b'\r' | b';' | b'|' | b'&' | b')' | b']' | b'}' | b'`' => return NextArgument::End,
                _ => break,
            }
        }
        let slashes = self.view.bytes[self.at..].iter().take(16).take_while(|b| **b == b'\\').count();
        if self.at + slashes >= self.view.len() && !self.view.end {
            return NextArgument::More;
        }
        NextArgument::Found(match self.quote_at(self.at) {
            Some((quote, slashes)) => self.read_quoted(quote, slashes),
            None if self.list => return NextArgument::End,
            None => match self.read_bare() {
                // Every argument moves the reader on.
                argument if argument.end == argument.start && argument.whole => return NextArgument::End,
                argument => argument,
            },
        })
    }

    /// Reads a string to its closing quote.
    fn read_quoted(&mut self, quote: u8, slashes: usize) -> Argument {
        let start = self.at + slashes + 1;
        let mut at = start;
        loop {
            match self.byte(at) {
                None => {
                    // An escape at the end reaches behind it.
                    self.at = at.min(self.view.len());
                    return Argument { start, end: self.at, whole: self.view.end };
                }
                Some(b) if is_break(b) || at - start >= MAX_VALUE_BYTES => {
                    self.at = at.min(self.view.len());
                    return Argument { start, end: self.at, whole: true };
                }
                Some(b) if b == quote && slashes == 0 => {
                    self.at = at + 1;
                    return Argument { start, end: at, whole: true };
                }
                Some(b'\\') if slashes == 0 => {
                    // Where the cursor moved, another text begins: nothing there is escaped.
                    let escapes = (quote == b'"' || self.list) && !self.view.is_moved_at(at + 1);
                    at += if escapes { 2 } else { 1 };
                }
                Some(b'\\') => {
                    let run = self.view.bytes[at..].iter().take(16).take_while(|b| **b == b'\\').count();
                    match self.byte(at + run) {
                        None if !self.view.end => {
                            self.at = at + run;
                            return Argument { start, end: self.view.len(), whole: false };
                        }
                        Some(b) if b == quote && run <= slashes => {
                            self.at = at + run + 1;
                            return Argument { start, end: at, whole: true };
                        }
                        _ => at += run.max(1),
                    }
                }
                Some(_) => at += 1,
            }
        }
    }

    /// Reads an argument that does not begin with a quote. A quote inside it opens only where a value may begin.
    fn read_bare(&mut self) -> Argument {
        let start = self.at;
        let mut at = start;
        loop {
            let Some(b) = self.byte(at) else {
                self.at = at.min(self.view.len());
                return Argument { start, end: self.at, whole: self.view.end };
            };
            let ends = match b {
                b' ' | b'\t' | b'\n' | b'\r' | b'`' | 0 => true,
                // A redirection, or a tag of a document.
                b'<' | b'>' if at > start => true,
                _ if at - start >= MAX_VALUE_BYTES => true,
                b'"' | b'\'' | b'\\' => match self.quote_at(at) {
                    Some((quote, slashes)) if self.may_open(start, at) => {
                        self.at = at;
                        let inner = self.read_quoted(quote, slashes);
                        return Argument { start, ..inner };
                    }
                    Some(_) => true,
                    None => match self.byte(at + 1) {
                        Some(next) if is_break(next) => true,
                        None if !self.view.end => {
                            self.at = at;
                            return Argument { start, end: self.view.len(), whole: false };
                        }
                        _ => {
                            at += 1;
                            false
                        }
                    },
                },
                // A sign that ends the command, unless the word goes on.
                b';' | b'|' | b'&' | b')' => match self.byte(at + 1) {
                    None if !self.view.end => {
                        self.at = at;
                        return Argument { start, end: self.view.len(), whole: false };
                    }
                    None | Some(b' ' | b'\t' | b'\n' | b'\r' | b';' | b'|' | b'&' | b')' | b'"' | b'\'') => true,
                    Some(_) => false,
                },
                _ => false,
            };
            if ends {
                self.at = at;
                return Argument { start, end: at, whole: true };
            }
            at += 1;
        }
    }

    fn may_open(&self, start: usize, at: usize) -> bool {
        let word = &self.view.bytes[start..at];
        matches!(word, [b'-', _]) || matches!(word.last(), Some(b'=' | b':' | b'%'))
    }
}

/// Spans of one command, and where a value begins whose end has not come.
#[derive(Default)]
struct Findings {
    spans: Vec<Span>,
    open: Option<usize>,
}

/// Inspects a command; `start` and `end` delimit a part of the program's name, or a flag or a command of a program.
pub(crate) fn inspect_command(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    // `mysqli("host", "user", "V")`, `mysql_connect(…)`
    let word = view.bytes[end..].iter().take(MAX_PROGRAM_BYTES).take_while(|b| is_word_byte(**b)).count();
    if view.byte(end + word) == Some(b'(') && view.bytes[start..].starts_with(b"mysql") {
        return call::inspect_call(view, start, end + word);
    }
    let mut findings = Findings::default();
    let is_flag = matches!(view.bytes[start], b' ' | b'"');
    if is_flag || !read_program(view, start, end, &mut findings) {
        read_programs_before(view, start, &mut findings);
        // What precedes this place may have been decided.
        findings.spans.retain(|span| span.start >= start);
    }
    Inspection::from_parts(findings.spans, findings.open)
}

fn is_word_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
}

/// Reads the command of the program whose name contains this place. False: this is no program.
fn read_program(view: TextView<'_>, start: usize, end: usize, findings: &mut Findings) -> bool {
    let reach = MAX_PROGRAM_BYTES;
    let before = view.bytes[..start].iter().rev().take(reach).take_while(|b| is_word_byte(**b)).count();
    let end = start + view.bytes[start..end].trim_ascii_end().iter().take_while(|b| is_word_byte(**b)).count();
    let after = view.bytes[end..].iter().take(reach).take_while(|b| is_word_byte(**b)).count();
    if end + after >= view.len() && !view.end {
        // The name may continue. No argument has come.
        return false;
    }
    let name = &view.bytes[start - before..end + after];
    let mut any = false;
    for program in programs_named(name) {
        any = true;
        read_arguments(view, program, start - before, end + after, findings);
    }
    any
}

/// The entries of a program; a program may have several.
fn programs_named(name: &[u8]) -> impl Iterator<Item = &'static Program> {
    static BUILT: OnceLock<HashMap<&[u8], Vec<&Program>>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let mut built: HashMap<&[u8], Vec<&Program>> = HashMap::new();
        for program in PROGRAMS {
            program.names.iter().for_each(|name| built.entry(name.as_bytes()).or_default().push(program));
        }
        built
    });
    let name = name.strip_suffix(b".exe").unwrap_or(name);
    built.get(name).into_iter().flatten().copied()
}

/// Reads the commands of all programs that are named before `at` in the same command.
fn read_programs_before(view: TextView<'_>, at: usize, findings: &mut Findings) {
    let from = command_start(view, at);
    let mut word = None;
    for n in from..=at {
        let inside = n < at && is_word_byte(view.bytes[n]);
        match (inside, word) {
            (true, None) => word = Some(n),
            (false, Some(begin)) => {
                word = None;
                for program in programs_named(&view.bytes[begin..n]) {
                    read_arguments(view, program, begin, n, findings);
                }
            }
            _ => {}
        }
    }
}

/// Where the command around `at` begins: behind a line break, `;`, `|` or `&`.
pub(crate) fn command_start(view: TextView<'_>, at: usize) -> usize {
    let lowest = at.saturating_sub(MAX_LOOKBACK_BYTES);
    let mut i = at;
    while i > lowest {
        let b = view.bytes[i - 1];
        let continued = || {
            let before = &view.bytes[..i - 1];
            before.ends_with(b"\\") || before.ends_with(b"\\\r") || before.ends_with(b",") || before.ends_with(b"[")
        };
        if matches!(b, b';' | b'|' | b'&') && view.byte(i).is_none_or(|b| b == b' ')
            || is_break(b) && !continued()
            || view.is_moved_at(i)
        {
            break;
        }
        i -= 1;
    }
    i
}

fn read_arguments(view: TextView<'_>, program: &Program, start: usize, name_end: usize, findings: &mut Findings) {
    let mut arguments = Arguments::new(view, name_end);
    if start > 0 && matches!(view.bytes[start - 1], b'"' | b'\'') {
        arguments.open_list();
    }
    if !arguments.list && !matches!(arguments.byte(name_end), Some(b' ' | b'\t' | b'\\' | 0)) {
        return;
    }
    let mut commanded = program.commands.is_empty();
    let mut operands = 0;
    let mut awaited: Option<Part> = None;
    while let NextArgument::Found(argument) = arguments.next() {
        if argument.start - start > MAX_COMMAND_BYTES {
            return;
        }
        let text = &view.bytes[argument.start..argument.end];
        if let Some(part) = awaited.take() {
            take_part(view, part, argument, argument.start, findings);
        } else if !commanded {
            commanded = argument.whole && is_command_word(program, text);
        } else if let Some((part, at)) = flag_value(program, text) {
            match at {
                Some(at) => take_part(view, part, argument, argument.start + at, findings),
                None => awaited = Some(part).filter(|_| argument.whole),
            }
        } else if !matches!(text.first(), Some(b'-')) || text.len() == 1 {
            operands += 1;
            for form in program.forms {
                match *form {
                    Form::Nth(n, part) if n == operands => {
                        take_part(view, part, argument, argument.start, findings);
                    }
                    Form::Each(part) => take_part(view, part, argument, argument.start, findings),
                    _ => {}
                }
            }
        }
        if !argument.whole {
            return;
        }
    }
}

fn is_command_word(program: &Program, text: &[u8]) -> bool {
    program.commands.iter().any(|c| {
        let c = c.as_bytes();
        text == c || c.ends_with(b".") && text.starts_with(c)
    })
}

/// The value of a flag, and where it begins in `text`; none: in the next argument.
fn flag_value(program: &Program, text: &[u8]) -> Option<(Part, Option<usize>)> {
    program.forms.iter().find_map(|form| match *form {
        Form::Long(name, part) => {
            let rest = text.strip_prefix(name.as_bytes())?;
            match rest.first() {
                None => Some((part, None)),
                Some(b'=') => Some((part, Some(name.len() + 1))),
                Some(_) => None,
            }
        }
        Form::Joined(name, part) => {
            let rest = text.strip_prefix(name.as_bytes())?;
            (!rest.is_empty()).then_some((part, Some(name.len())))
        }
        Form::Short(letter, part) => {
            let [b'-', letters @ ..] = text else { return None };
            let n = letters.iter().take_while(|b| program.letters.contains(b)).count();
            // The letters before it may themselves include it.
            let n = letters[..n].iter().position(|b| *b == letter).unwrap_or(n);
            match letters.get(n + 1) {
                _ if letters.get(n) != Some(&letter) => None,
                None => Some((part, None)),
                Some(b'=') => Some((part, Some(n + 3))),
                Some(_) => Some((part, Some(n + 2))),
            }
        }
        Form::Nth(..) | Form::Each(_) => None,
    })
}

/// Takes the secret part of an argument, which begins at `from` in the text.
fn take_part(view: TextView<'_>, part: Part, argument: Argument, from: usize, findings: &mut Findings) {
    let find = |b: u8| view.bytes[from..argument.end].iter().position(|x| *x == b).map(|n| from + n + 1);
    let start = match part {
        Part::Whole | Part::Token => Some(from),
        // `curl -u KEY:` has the token before the colon.
        Part::AfterColon if argument.whole && is_key_with_colon(&view.bytes[from..argument.end]) => Some(from),
        Part::AfterColon => find(b':'),
        Part::AfterColonOrToken => Some(find(b':').unwrap_or(from)),
        Part::AfterPercent => find(b'%'),
        Part::AfterEquals | Part::Cookies => find(b'='),
        Part::Connection => find(b':').or_else(|| find(b'/')),
        Part::AfterSlash => find(b'/'),
        Part::AfterComma => find(b','),
        Part::AfterPass => view.bytes[from..argument.end].starts_with(b"pass:").then_some(from + 5),
    };
    let Some(mut start) = start else { return };
    // Quotes inside the argument: `--user="bob:V"`, `bob:'V'`.
    while start < argument.end && matches!(view.bytes[start], b'"' | b'\'' | b'\\') && start > from.saturating_sub(1) {
        start += 1;
    }
    if !argument.whole {
        if start < argument.end {
            findings.open = Some(findings.open.map_or(start, |open| open.min(start)));
        }
        return;
    }
    let mut end = argument.end;
    if matches!(part, Part::Connection | Part::AfterSlash) {
        // The host is behind the last `@`.
        match view.bytes[start..end].iter().rposition(|b| *b == b'@') {
            Some(n) => end = start + n,
            None if part == Part::Connection => return,
            None => {}
        }
    }
    let before_colon = part == Part::AfterColon && is_key_with_colon(&view.bytes[from..end]);
    end -= usize::from(before_colon);
    let value = &view.bytes[start..end];
    let token = before_colon || matches!(part, Part::Token) || part == Part::AfterColonOrToken && start == from;
    let long = value.len() >= MAX_VALUE_BYTES;
    let is_link = matches!(part, Part::AfterColon | Part::Connection | Part::AfterSlash) && value.starts_with(b"//");
    if !is_argument_secret(value) || is_link || token && !guard::is_token_like(value) {
        return;
    }
    let rule = if part == Part::Cookies { "cookie" } else { "command-password" };
    let rest: fn(u8) -> bool = |b| !b.is_ascii_whitespace() && !matches!(b, b'"' | b'\'');
    findings.spans.push(Span { swallow: long.then_some(rest), ..Span::new(start, end, rule, Rank::Context) });
}

/// `KEY:`, perhaps behind a quote. Other bytes would not be held until the colon comes.
fn is_key_with_colon(argument: &[u8]) -> bool {
    let argument = argument.strip_prefix(b"\"").or(argument.strip_prefix(b"'")).unwrap_or(argument);
    argument.strip_suffix(b":").is_some_and(|key| key.len() <= MAX_KEY_BYTES && key.iter().all(|b| is_plain(*b)))
}

/// Whether an argument is a secret rather than another flag, a variable, a placeholder, a port or a path.
pub(crate) fn is_argument_secret(value: &[u8]) -> bool {
    // `[-P FD]` of a manual
    let is_usage = value.ends_with(b"]") && !value.contains(&b'[');
    let port = value.len() <= 5 && value.iter().all(u8::is_ascii_digit);
    let flag = matches!(value, [b'-', b'a'..=b'z' | b'A'..=b'Z' | b'-', ..]);
    let path = value.starts_with(b"/") && value[1..].contains(&b'/')
        || value.starts_with(b"./")
        || value.starts_with(b"~/")
        || value.starts_with(b"@")
        || memchr::memmem::find(value, b"://").is_some();
    let windows_variable = value.len() > 2 && value.starts_with(b"%") && value.ends_with(b"%");
    value.len() >= 4
        && !(port || flag || path && !guard::is_token_like(value) || windows_variable)
        && !is_usage
        && !guard::is_placeholder(value)
        && !guard::is_shell_variable(value)
}
