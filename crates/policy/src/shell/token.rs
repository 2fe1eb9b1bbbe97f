//! Characters to tokens, in the form that the grammar takes: words as they stand in the source, operators, and the
//! bodies of here-documents behind their delimiters.

use super::lex::{DEEPEST, Unreadable, after_arithmetic, after_word};
use brush_parser::{SourcePosition, SourceSpan, Token};
use std::sync::Arc;

type Result<T> = std::result::Result<T, Unreadable>;

/// Words, operators and blanks of one text; more than a person would read, and than the grammar reads in no time.
const MOST_STEPS: usize = 6000;

/// The tokens of a whole text. Positions are byte offsets.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut scanner = Scanner::new(text.as_bytes(), 0, true);
    let end = scanner.run(false)?;
    debug_assert_eq!(end, text.len());
    Ok(scanner.tokens)
}

/// Where the list that starts at `at` meets the parenthesis that closes it.
pub(super) fn end_of_list(s: &[u8], at: usize, depth: usize) -> Result<usize> {
    if depth > DEEPEST {
        return Err(Unreadable::TooDeep);
    }
    let mut scanner = Scanner::new(s, at, false);
    scanner.depth = depth;
    scanner.run(true)
}

/// The end of an array's elements, behind its closing parenthesis.
pub(super) fn end_of_array(s: &[u8], at: usize, depth: usize) -> Result<usize> {
    let mut n = at;
    loop {
        match s.get(n) {
            None => return Err(Unreadable::Unterminated),
            Some(b')') => return Ok(n + 1),
            Some(b' ' | b'\t' | b'\n') => n += 1,
            Some(b'#') => n += line(&s[n..]),
            Some(b'|' | b'&' | b';' | b'(') => return Err(Unreadable::Grammar),
            Some(_) => {
                let end = after_word(s, n, depth)?;
                if end == n {
                    return Err(Unreadable::Grammar);
                }
                n = end;
            }
        }
    }
}

/// `a[b[c[…`: the grammar would try every way to read it.
fn nested_subscripts(word: &[u8]) -> bool {
    let mut depth = 0usize;
    word.iter().any(|b| {
        match b {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > 2
    }) && super::lex::name_length(word).is_some_and(|n| word.get(n) == Some(&b'['))
}

fn line(s: &[u8]) -> usize {
    s.iter().position(|&b| b == b'\n').unwrap_or(s.len())
}

/// What an open construct waits for.
#[derive(Clone, Copy, PartialEq)]
enum Open {
    Parenthesis,
    Brace,
    If,
    Loop,
    Case { pattern: bool },
}

/// What stood before: whether a command can start here.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Start,
    Word,
    /// `case`, whose `in` opens the patterns.
    Case,
    CaseWord,
    /// `function`, `coproc`: a name, then a body.
    Definition,
    DefinitionName,
}

struct Scanner<'a> {
    s: &'a [u8],
    n: usize,
    depth: usize,
    keep: bool,
    tokens: Vec<Token>,
    open: Vec<Open>,
    before: Before,
    /// How many `!` stand in a row: the grammar recurses on them.
    bangs: usize,
    /// Here-documents whose bodies come behind this line: the delimiter, whether tabs go, where the body's token is.
    pending: Vec<(String, bool, usize)>,
    steps: usize,
}

impl<'a> Scanner<'a> {
    fn new(s: &'a [u8], n: usize, keep: bool) -> Self {
        let (tokens, open, pending) = (Vec::new(), Vec::new(), Vec::new());
        Self { s, n, depth: 0, keep, tokens, open, before: Before::Start, bangs: 0, pending, steps: 0 }
    }

    /// Reads to the end, or to the parenthesis that nothing here opened.
    fn run(&mut self, until_parenthesis: bool) -> Result<usize> {
        while let Some(&b) = self.s.get(self.n) {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return Err(Unreadable::TooLarge);
            }
            match b {
                b' ' | b'\t' => self.n += 1,
                b'\\' if self.s.get(self.n + 1) == Some(&b'\n') => self.n += 2,
                b'#' => self.n += line(&self.s[self.n..]),
                b'\n' => {
                    self.operator(1);
                    self.bodies()?;
                }
                b')' => match self.open.last_mut() {
                    Some(Open::Parenthesis) => {
                        self.open.pop();
                        self.operator(1);
                    }
                    Some(Open::Case { pattern }) if *pattern => {
                        *pattern = false;
                        self.operator(1);
                    }
                    _ if until_parenthesis => {
                        // The bodies of documents that this line began come before its end.
                        return if self.pending.is_empty() { Ok(self.n) } else { Err(Unreadable::Grammar) };
                    }
                    _ => return Err(Unreadable::Grammar),
                },
                b'(' if self.s.get(self.n + 1) == Some(&b'(')
                    && let Ok(end) = after_arithmetic(self.s, self.n + 2, self.depth) =>
                {
                    self.arithmetic(end);
                }
                b'(' => {
                    // Two subshells, which the grammar would take for arithmetic.
                    if let Some(Token::Operator(last, _)) = self.tokens.last()
                        && last == "("
                    {
                        let at = self.n;
                        self.push_token("\n", at, at, false);
                    }
                    if self.open.last() != Some(&Open::Case { pattern: true }) {
                        self.push(Open::Parenthesis)?;
                    }
                    self.operator(1);
                }
                b'|' | b'&' | b';' => self.control(),
                b'<' | b'>' if self.s.get(self.n + 1) != Some(&b'(') => self.redirect()?,
                _ => self.word()?,
            }
        }
        if until_parenthesis {
            return Err(Unreadable::Unterminated);
        }
        self.bodies()?;
        Ok(self.n)
    }

    fn push(&mut self, open: Open) -> Result<()> {
        self.open.push(open);
        if self.open.len() + self.depth > DEEPEST { Err(Unreadable::TooDeep) } else { Ok(()) }
    }

    fn push_token(&mut self, text: &str, from: usize, to: usize, word: bool) {
        let at = |index| Arc::new(SourcePosition { index, line: 0, column: 0 });
        let span = SourceSpan { start: at(from), end: at(to) };
        let text = text.to_owned();
        self.tokens.push(if word { Token::Word(text, span) } else { Token::Operator(text, span) });
    }

    fn token(&mut self, from: usize, to: usize, word: bool) {
        if self.keep {
            let text = String::from_utf8_lossy(&self.s[from..to]);
            self.push_token(&text, from, to, word);
        }
    }

    /// `((…))` and `for ((…;…;…))`: one word between its marks.
    fn arithmetic(&mut self, end: usize) {
        self.operator(1);
        self.operator(1);
        let mut from = self.n;
        for at in self.n..end - 2 {
            if self.s[at] == b';' {
                if at > from {
                    self.token(from, at, true);
                }
                self.token(at, at + 1, false);
                from = at + 1;
            }
        }
        if end - 2 > from {
            self.token(from, end - 2, true);
        }
        self.n = end - 2;
        self.operator(1);
        self.operator(1);
    }

    fn operator(&mut self, length: usize) {
        self.token(self.n, self.n + length, false);
        self.n += length;
        self.before = Before::Start;
    }

    fn control(&mut self) {
        let rest = &self.s[self.n..];
        let known: [&[u8]; 9] = [b"&>>", b";;&", b"&&", b"&>", b"||", b"|&", b";;", b";&", b"&"];
        let length = known.iter().find(|o| rest.starts_with(o)).map_or(1, |o| o.len());
        if (rest.starts_with(b";;") || rest.starts_with(b";&"))
            && let Some(Open::Case { pattern }) = self.open.last_mut()
        {
            *pattern = true;
        }
        let redirect = rest.starts_with(b"&>");
        self.operator(length);
        if redirect {
            self.before = Before::Word;
        }
    }

    fn redirect(&mut self) -> Result<()> {
        let rest = &self.s[self.n..];
        let known: [&[u8]; 8] = [b"<<<", b"<<-", b"<<", b">>", b"<&", b">&", b"<>", b">|"];
        let operator = known.iter().find(|o| rest.starts_with(o)).copied().unwrap_or(&rest[..1]);
        let before = self.before;
        self.operator(operator.len());
        // A redirect before the command leaves the command still to come.
        self.before = if before == Before::Start { Before::Start } else { Before::Word };
        if operator == b"<<" || operator == b"<<-" {
            while matches!(self.s.get(self.n), Some(b' ' | b'\t')) {
                self.n += 1;
            }
            let end = after_word(self.s, self.n, self.depth)?;
            let raw = String::from_utf8_lossy(&self.s[self.n..end]).into_owned();
            if raw.is_empty() {
                return Err(Unreadable::Grammar);
            }
            self.token(self.n, end, true);
            self.n = end;
            // The delimiter is what is left when its quotes are gone; expansions in it are not made.
            let bare: String = raw.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
            if raw.contains(['$', '`']) {
                return Err(Unreadable::Grammar);
            }
            self.pending.push((bare, operator == b"<<-", self.tokens.len()));
            self.token(self.n, self.n, true);
            self.token(self.n, self.n, true);
        }
        Ok(())
    }

    /// The bodies of the here-documents that the line before has announced.
    fn bodies(&mut self) -> Result<()> {
        for (delimiter, tabs, at) in std::mem::take(&mut self.pending) {
            let start = self.n;
            let mut body = String::new();
            loop {
                if self.n >= self.s.len() {
                    break;
                }
                let end = self.n + line(&self.s[self.n..]);
                let text = String::from_utf8_lossy(&self.s[self.n..end]);
                let text = if tabs { text.trim_start_matches('\t') } else { &text };
                self.n = (end + 1).min(self.s.len());
                if text == delimiter {
                    break;
                }
                body.push_str(text);
                body.push('\n');
            }
            if self.keep {
                let position = |index| Arc::new(SourcePosition { index, line: 0, column: 0 });
                let span = SourceSpan { start: position(start), end: position(self.n) };
                self.tokens[at] = Token::Word(body, span.clone());
                self.tokens[at + 1] = Token::Word(delimiter, span);
            }
        }
        Ok(())
    }

    fn word(&mut self) -> Result<()> {
        let end = after_word(self.s, self.n, self.depth)?;
        if end == self.n {
            return Err(Unreadable::Grammar);
        }
        let word = &self.s[self.n..end];
        if matches!(self.s.get(end), Some(b'<' | b'>')) {
            // More digits than any descriptor has.
            if word.len() > 4 && word.iter().all(u8::is_ascii_digit) {
                return Err(Unreadable::Grammar);
            }
            // `{fd}>x`: a variable gets the descriptor, and it may be one that bash goes by.
            if word.starts_with(b"{") && word.ends_with(b"}") {
                return Err(Unreadable::Grammar);
            }
        }
        self.bangs = if word == b"!" { self.bangs + 1 } else { 0 };
        if self.bangs > DEEPEST || nested_subscripts(word) {
            return Err(Unreadable::TooDeep);
        }
        // To the grammar, `select` is a `for` that asks.
        if word == b"select" && self.before == Before::Start && self.keep {
            self.push_token("for", self.n, end, true);
        } else {
            self.token(self.n, end, true);
        }
        self.n = end;
        self.before = self.structure(word)?;
        Ok(())
    }

    /// Follows what opens and closes, so that nesting is known before the grammar, which recurses, sees it.
    fn structure(&mut self, word: &[u8]) -> Result<Before> {
        match self.before {
            Before::Case => return Ok(Before::CaseWord),
            Before::CaseWord if word == b"in" => {
                self.push(Open::Case { pattern: true })?;
                return Ok(Before::Start);
            }
            Before::Definition => return Ok(Before::DefinitionName),
            Before::DefinitionName | Before::Start => {}
            Before::CaseWord | Before::Word => return Ok(Before::Word),
        }
        if let Some(Open::Case { pattern: true }) = self.open.last() {
            if word == b"esac" {
                self.open.pop();
            }
            return Ok(Before::Word);
        }
        let (opens, next) = match word {
            b"{" => (Some(Open::Brace), Before::Start),
            b"if" => (Some(Open::If), Before::Start),
            b"while" | b"until" => (Some(Open::Loop), Before::Start),
            b"for" | b"select" => (Some(Open::Loop), Before::Word),
            b"case" => (None, Before::Case),
            b"function" | b"coproc" => (None, Before::Definition),
            b"then" | b"do" | b"else" | b"elif" | b"!" | b"time" => (None, Before::Start),
            _ => (None, Before::Word),
        };
        if let Some(open) = opens {
            self.push(open)?;
        }
        let closes = match word {
            b"}" => Some(Open::Brace),
            b"fi" => Some(Open::If),
            b"done" => Some(Open::Loop),
            b"esac" => Some(Open::Case { pattern: false }),
            _ => None,
        };
        if closes.is_some() && self.open.last().copied() == closes {
            self.open.pop();
        }
        Ok(next)
    }
}
