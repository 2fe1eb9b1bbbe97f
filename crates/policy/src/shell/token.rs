//! Splits characters into tokens for the parser crate: words exactly as in the source, operators, and here-document
//! bodies behind their delimiters.

use super::lex::{
    LexError, MAX_NESTING, after_arithmetic, after_bracket, after_counted, after_one, after_word, is_continuation,
    name_length, peek,
};
use brush_parser::{SourcePosition, SourceSpan, Token};
use std::{borrow::Cow, sync::Arc};

type ScanResult<T> = std::result::Result<T, LexError>;

/// The largest number of words, operators and blanks in one text; beyond it, the parser becomes slow.
const MAX_SCAN_STEPS: usize = 6000;

/// The largest number of bytes that are scanned again because of line continuations, each of which restarts the scan
/// of its construct; and the limit for one of many partial texts.
pub(super) const MAX_RESCANNED_BYTES: usize = 1 << 20;
pub(super) const MAX_RESCANNED_BYTES_PER_TRY: usize = 1 << 16;

/// The tokens of a whole text. Positions are byte offsets in the text without its continuations.
pub(super) fn tokens(text: &str, max_rescanned_bytes: usize) -> ScanResult<(Vec<Token>, ContinuationMap)> {
    let mut bytes = Cow::Borrowed(text.as_bytes());
    let (mut joined, mut progress, mut scanned) = (ContinuationMap::default(), ScanState::default(), 0);
    loop {
        let mut scanner = TokenScanner { s: &bytes, depth: 0, keep_tokens: true, nested: false, state: progress };
        match scanner.run() {
            Ok(_) => return Ok((scanner.state.tokens, joined)),
            Err(LexError::Continuation(at)) => {
                progress = scanner.state;
                scanned += at.saturating_sub(progress.n);
                if scanned > max_rescanned_bytes {
                    return Err(LexError::TooLarge);
                }
                joined.remove(bytes.to_mut(), at)?;
            }
            Err(why) => return Err(why),
        }
    }
}

/// The line continuations that were removed from a text: for each, its offset in the remaining text.
#[derive(Debug, Default)]
pub(super) struct ContinuationMap(Vec<usize>);

impl ContinuationMap {
    fn remove(&mut self, bytes: &mut Vec<u8>, at: usize) -> ScanResult<()> {
        // A construct that is now read differently may have hidden a continuation.
        if self.0.last().is_some_and(|last| at < *last) || !is_continuation(bytes, at) {
            return Err(LexError::Grammar);
        }
        let run = (at..bytes.len()).step_by(2).take_while(|n| is_continuation(bytes, *n)).count();
        bytes.drain(at..at + 2 * run);
        self.0.extend(std::iter::repeat_n(at, run));
        Ok(())
    }

    /// The source position of a range, and whether it is contiguous in the source.
    pub(super) fn in_source(&self, start: usize, end: usize) -> (usize, usize, bool) {
        if self.0.is_empty() {
            return (start, end, true);
        }
        let before = self.0.partition_point(|at| *at <= start);
        let inside = self.0.partition_point(|at| *at < end).max(before);
        (start + 2 * before, end + 2 * inside, before == inside)
    }
}

/// The position of the parenthesis that closes the list at `at`.
pub(super) fn end_of_list(s: &[u8], at: usize, depth: usize) -> ScanResult<usize> {
    if depth > MAX_NESTING {
        return Err(LexError::TooDeep);
    }
    let p = ScanState { n: at, ..ScanState::default() };
    TokenScanner { s, depth, keep_tokens: false, nested: true, state: p }.run()
}

/// The position behind the parenthesis that closes the elements of an array.
pub(super) fn end_of_array(s: &[u8], at: usize, depth: usize) -> ScanResult<usize> {
    let mut n = at;
    loop {
        match peek(s, n)?.as_ref() {
            None => return Err(LexError::Unterminated),
            Some(b')') => return Ok(n + 1),
            Some(b' ' | b'\t' | b'\n') => n += 1,
            Some(b'#') => n += line_length(&s[n..]),
            Some(b'|' | b'&' | b';' | b'(') => return Err(LexError::Grammar),
            Some(_) => {
                let end = after_word(s, n, depth)?;
                if end == n || s[n] == b'[' && after_bracket(&s[n..end], 1, depth).is_err() {
                    return Err(LexError::Grammar);
                }
                n = end;
            }
        }
    }
}

/// For `a[b[c[…`, the parser would try every way to read it.
fn nests_subscripts(word: &[u8]) -> bool {
    let mut depth = 0usize;
    word.iter().any(|b| {
        match b {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > 2
    }) && subscript_start(word).is_some()
}

/// The start of the subscript of `name[…`.
fn subscript_start(word: &[u8]) -> Option<usize> {
    name_length(word).filter(|n| word.get(*n) == Some(&b'[')).map(|n| n + 1)
}

/// A here-document's delimiter without its quotes; none if the result is uncertain.
fn unquote_delimiter(raw: &str) -> Option<String> {
    // Bash expands nothing in it, but removes some syntax; and it never finds a delimiter with a newline.
    if raw.is_empty() || raw.starts_with('#') || raw.contains(['$', '`', '(', ')', '<', '>', '\n']) {
        return None;
    }
    let mut bare = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => loop {
                match chars.next()? {
                    '\'' => break,
                    c => bare.push(c),
                }
            },
            '"' => loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => match chars.next()? {
                        c @ ('"' | '\\') => bare.push(c),
                        c => bare.extend(['\\', c]),
                    },
                    c => bare.push(c),
                }
            },
            '\\' => bare.push(chars.next()?),
            c => bare.push(c),
        }
    }
    // An empty delimiter ends at an empty line. With `<<-`, bash looks for a delimiter with leading tabs both before
    // and after it strips tabs.
    (!bare.is_empty() && !bare.starts_with('\t')).then_some(bare)
}

/// The end of a line in a here-document with an unquoted delimiter: only a backslash matters, which keeps the next
/// character.
fn expanded_line_end(s: &[u8], from: usize) -> ScanResult<usize> {
    let mut n = from;
    while let Some(b) = peek(s, n)? {
        match b {
            b'\n' => return Ok(n),
            b'\\' => n += 2,
            _ => n += 1,
        }
    }
    Ok(s.len())
}

/// The position behind the operand of `=~`, which may contain groups. Characters that bash reads differently in a
/// group are refused.
fn after_regex(s: &[u8], at: usize, depth: usize) -> ScanResult<usize> {
    let (mut n, mut open) = (at, 0usize);
    while let Some(b) = peek(s, n)? {
        match b {
            b'(' => (open, n) = (open + 1, n + 1),
            b')' if open > 0 => (open, n) = (open - 1, n + 1),
            b'|' => n += 1,
            b' ' | b'\t' | b'\n' if open == 0 => break,
            b' ' | b'\t' | b'\n' | b'#' | b'<' | b'>' | b'&' | b';' | b')' | b'`' | b'\'' | b'"' if open > 0 => {
                return Err(LexError::Grammar);
            }
            b'<' | b'>' | b'&' | b';' | b')' => return Err(LexError::Grammar),
            b'$' if open > 0 && !matches!(peek(s, n + 1)?, Some(b')' | b'|')) => return Err(LexError::Grammar),
            _ if open > 0 && b != b'\\' => n += 1,
            _ => n = after_one(s, n, depth)?,
        }
    }
    if open == 0 && n > at && n <= s.len() { Ok(n) } else { Err(LexError::Grammar) }
}

fn line_length(s: &[u8]) -> usize {
    s.iter().position(|&b| b == b'\n').unwrap_or(s.len())
}

/// An open construct, by what closes it.
#[derive(Clone, Copy, PartialEq)]
enum OpenConstruct {
    Parenthesis,
    Brace,
    If,
    Loop,
    Case { pattern: bool },
}

/// The preceding token: it decides whether a command can start here.
#[derive(Clone, Copy, PartialEq, Default)]
enum PrecedingToken {
    #[default]
    Start,
    Word,
    /// `time`, which options and then a command may follow.
    Time,
    /// `case`, whose `in` opens the patterns.
    Case,
    CaseWord,
    /// `function`, `coproc`: a name, then a body.
    Definition,
    DefinitionName,
}

/// A here-document whose body follows this line.
#[derive(Clone)]
struct PendingHeredoc {
    delimiter: String,
    quoted: bool,
    /// `<<-`
    strip_tabs: bool,
    /// The index of the token for its body.
    token_index: usize,
}

/// The progress of a scan.
#[derive(Default)]
struct ScanState {
    n: usize,
    tokens: Vec<Token>,
    open: Vec<OpenConstruct>,
    before: PrecedingToken,
    /// Inside `[[ … ]]`; and directly behind its `=~`.
    in_test: bool,
    after_regex_operator: bool,
    /// The number of consecutive `!`, on which the parser recurses.
    bangs: usize,
    pending_heredocs: Vec<PendingHeredoc>,
    steps: usize,
}

struct TokenScanner<'a> {
    s: &'a [u8],
    depth: usize,
    keep_tokens: bool,
    /// The scan ends at a parenthesis that it did not open.
    nested: bool,
    state: ScanState,
}

impl TokenScanner<'_> {
    /// Scans to the end, or to a parenthesis that it did not open.
    fn run(&mut self) -> ScanResult<usize> {
        while self.state.n < self.s.len() {
            self.state.steps += 1;
            if self.state.steps > MAX_SCAN_STEPS {
                return Err(LexError::TooLarge);
            }
            let (n, tokens, before) = (self.state.n, self.state.tokens.len(), self.state.before);
            match self.scan_step() {
                Ok(false) => {}
                Ok(true) => return Ok(self.state.n),
                Err(why) => {
                    // Restores the state before this step, so that the step can be repeated.
                    (self.state.n, self.state.before) = (n, before);
                    self.state.tokens.truncate(tokens);
                    return Err(why);
                }
            }
        }
        if self.nested {
            return Err(LexError::Unterminated);
        }
        self.read_heredoc_bodies()?;
        Ok(self.state.n)
    }

    /// Scans one word, operator or blank; returns whether it was the end. A step that fails may have changed only the
    /// position, the preceding token and the list of tokens.
    fn scan_step(&mut self) -> ScanResult<bool> {
        let Some(b) = peek(self.s, self.state.n)? else { return Ok(false) };
        if matches!(b, b'|' | b'&' | b';' | b'<' | b'>' | b'(') {
            // All characters of an operator must be adjacent, so a continuation between them is removed first.
            let next = peek(self.s, self.state.n + 1)?;
            if matches!(next, Some(b'|' | b'&' | b';' | b'<' | b'>')) {
                peek(self.s, self.state.n + 2)?;
            }
        }
        match b {
            b' ' | b'\t' => self.state.n += 1,
            // In a group of a regular expression, `#` starts no comment.
            b'#' if self.state.in_test => return Err(LexError::Grammar),
            b'#' => self.state.n += line_length(&self.s[self.state.n..]),
            _ if self.state.after_regex_operator && b != b'\n' => {
                let end = after_regex(self.s, self.state.n, self.depth)?;
                self.keep_token(self.state.n, end, true);
                (self.state.n, self.state.after_regex_operator) = (end, false);
            }
            b'\n' => {
                self.take_operator(1);
                self.read_heredoc_bodies()?;
            }
            b')' => match self.state.open.last_mut() {
                Some(OpenConstruct::Parenthesis) => {
                    self.state.open.pop();
                    self.take_operator(1);
                }
                Some(OpenConstruct::Case { pattern }) if *pattern => {
                    *pattern = false;
                    self.take_operator(1);
                }
                // Here-documents of this line need their bodies before the list ends.
                None if self.nested && self.state.pending_heredocs.is_empty() && !self.state.in_test => {
                    return Ok(true);
                }
                _ => return Err(LexError::Grammar),
            },
            b'(' => self.scan_parenthesis()?,
            b'|' | b'&' | b';' => self.scan_control_operator(),
            b'<' | b'>' if self.s.get(self.state.n + 1) != Some(&b'(') => self.scan_redirect()?,
            _ => self.scan_word()?,
        }
        Ok(false)
    }

    fn scan_parenthesis(&mut self) -> ScanResult<()> {
        let n = self.state.n;
        if self.state.in_test && n > 0 && !matches!(self.s[n - 1], b' ' | b'\t' | b'\n' | b'(') {
            // A group of a pattern, which bash reads as one word here.
            return Err(LexError::Grammar);
        }
        if self.s.get(n + 1) == Some(&b'(') {
            let counted = after_counted(self.s, n + 2)?;
            match after_arithmetic(self.s, n + 2, self.depth) {
                Ok(end) if end == counted + 1 => {
                    self.push_arithmetic(end);
                    return Ok(());
                }
                Err(why @ LexError::Continuation(_)) => return Err(why),
                Err(_) if self.s.get(counted) != Some(&b')') => {}
                // Bash would read it differently.
                Ok(_) | Err(_) => return Err(LexError::Grammar),
            }
        }
        // Separates two subshells, which the parser would take for arithmetic.
        if let Some(Token::Operator(last, _)) = self.state.tokens.last()
            && last == "("
        {
            self.push_token("\n", n, n, false);
        }
        if self.state.open.last() != Some(&OpenConstruct::Case { pattern: true }) {
            self.open_construct(OpenConstruct::Parenthesis)?;
        }
        self.take_operator(1);
        Ok(())
    }

    fn open_construct(&mut self, open: OpenConstruct) -> ScanResult<()> {
        self.state.open.push(open);
        if self.state.open.len() + self.depth > MAX_NESTING { Err(LexError::TooDeep) } else { Ok(()) }
    }

    fn push_token(&mut self, text: &str, from: usize, to: usize, word: bool) {
        let at = |index| Arc::new(SourcePosition { index, line: 0, column: 0 });
        let span = SourceSpan { start: at(from), end: at(to) };
        let text = text.to_owned();
        self.state.tokens.push(if word { Token::Word(text, span) } else { Token::Operator(text, span) });
    }

    fn keep_token(&mut self, from: usize, to: usize, word: bool) {
        if self.keep_tokens {
            let text = String::from_utf8_lossy(&self.s[from..to]);
            self.push_token(&text, from, to, word);
        }
    }

    /// Adds `((…))` or `for ((…;…;…))` with its expressions as one word each.
    fn push_arithmetic(&mut self, end: usize) {
        self.take_operator(1);
        self.take_operator(1);
        let mut from = self.state.n;
        for at in self.state.n..end - 2 {
            if self.s[at] == b';' {
                if at > from {
                    self.keep_token(from, at, true);
                }
                self.keep_token(at, at + 1, false);
                from = at + 1;
            }
        }
        if end - 2 > from {
            self.keep_token(from, end - 2, true);
        }
        self.state.n = end - 2;
        self.take_operator(1);
        self.take_operator(1);
    }

    fn take_operator(&mut self, length: usize) {
        self.keep_token(self.state.n, self.state.n + length, false);
        self.state.n += length;
        self.state.before = PrecedingToken::Start;
    }

    fn scan_control_operator(&mut self) {
        let rest = &self.s[self.state.n..];
        let known: [&[u8]; 9] = [b"&>>", b";;&", b"&&", b"&>", b"||", b"|&", b";;", b";&", b"&"];
        let length = known.iter().find(|o| rest.starts_with(o)).map_or(1, |o| o.len());
        if (rest.starts_with(b";;") || rest.starts_with(b";&"))
            && let Some(OpenConstruct::Case { pattern }) = self.state.open.last_mut()
        {
            *pattern = true;
        }
        let redirect = rest.starts_with(b"&>");
        self.take_operator(length);
        if redirect {
            self.state.before = PrecedingToken::Word;
        }
    }

    fn scan_redirect(&mut self) -> ScanResult<()> {
        let rest = &self.s[self.state.n..];
        let known: [&[u8]; 8] = [b"<<<", b"<<-", b"<<", b">>", b"<&", b">&", b"<>", b">|"];
        let operator = known.iter().find(|o| rest.starts_with(o)).copied().unwrap_or(&rest[..1]);
        // In a substitution, versions before 5.2 find here-documents by other rules than they read them: `$<<E` is
        // none to them.
        let plain = |b: &u8| b.is_ascii_alphanumeric() || b" \t\n-_./(;&|".contains(b);
        if self.nested && operator.starts_with(b"<<") && !self.s[..self.state.n].last().is_some_and(plain) {
            return Err(LexError::Grammar);
        }
        let before = self.state.before;
        self.take_operator(operator.len());
        // A redirect before the command leaves the command still to come.
        self.state.before = if before == PrecedingToken::Start { PrecedingToken::Start } else { PrecedingToken::Word };
        if self.state.in_test && operator.len() > 1 {
            return Err(LexError::Grammar);
        }
        if operator == b"<&" || operator == b">&" {
            self.check_close_operator()?;
        }
        if operator == b"<<" || operator == b"<<-" {
            while matches!(peek(self.s, self.state.n)?, Some(b' ' | b'\t')) {
                self.state.n += 1;
            }
            let end = after_word(self.s, self.state.n, self.depth)?;
            let raw = String::from_utf8_lossy(&self.s[self.state.n..end]).into_owned();
            let bare = unquote_delimiter(&raw).ok_or(LexError::Grammar)?;
            self.keep_token(self.state.n, end, true);
            self.state.n = end;
            let quoted = raw.contains(['\'', '"', '\\']);
            let (tabs, at) = (operator == b"<<-", self.state.tokens.len());
            self.keep_token(self.state.n, self.state.n, true);
            self.keep_token(self.state.n, self.state.n, true);
            self.state.pending_heredocs.push(PendingHeredoc {
                delimiter: bare,
                quoted,
                strip_tabs: tabs,
                token_index: at,
            });
        }
        Ok(())
    }

    /// In `>&-x`, bash takes the dash alone as the target, and `x` as the next word.
    fn check_close_operator(&self) -> ScanResult<()> {
        let mut n = self.state.n;
        while matches!(peek(self.s, n)?, Some(b' ' | b'\t')) {
            n += 1;
        }
        let closes = peek(self.s, n)? == Some(b'-');
        let ends = |b| matches!(b, b' ' | b'\t' | b'\n' | b';' | b'|' | b'&' | b'<' | b'>' | b'(' | b')');
        if closes && !peek(self.s, n + 1)?.is_none_or(ends) {
            return Err(LexError::Grammar);
        }
        Ok(())
    }

    /// Reads the bodies of the here-documents that the preceding line announced.
    fn read_heredoc_bodies(&mut self) -> ScanResult<()> {
        // In a substitution, versions before 5.2 handle one here-document, and look for the parenthesis inside the
        // second.
        if self.nested && self.state.pending_heredocs.len() > 1 {
            return Err(LexError::Grammar);
        }
        for document in self.state.pending_heredocs.clone() {
            self.read_heredoc_body(document)?;
        }
        self.state.pending_heredocs.clear();
        Ok(())
    }

    fn read_heredoc_body(&mut self, document: PendingHeredoc) -> ScanResult<()> {
        let PendingHeredoc { delimiter, quoted, strip_tabs: tabs, token_index: at } = document;
        let (start, mut body) = (self.state.n, String::new());
        loop {
            if self.state.n >= self.s.len() {
                // Bash takes the rest of the text as the body, with a warning.
                return Err(LexError::Unterminated);
            }
            let end = if quoted {
                self.state.n + line_length(&self.s[self.state.n..])
            } else {
                expanded_line_end(self.s, self.state.n)?
            };
            let text = String::from_utf8_lossy(&self.s[self.state.n..end]);
            let text = if tabs { text.trim_start_matches('\t') } else { &text };
            self.state.n = (end + 1).min(self.s.len());
            let behind = text.strip_prefix(delimiter.as_str());
            if behind == Some("") {
                break;
            }
            // In a substitution, some versions of bash also end the body here and continue behind the delimiter.
            if self.nested && behind.is_some_and(|rest| rest.contains(')')) {
                return Err(LexError::Grammar);
            }
            body.push_str(text);
            body.push('\n');
            // In a substitution, old versions join lines even if the backslash is escaped or the delimiter is quoted.
            if self.nested && text.ends_with('\\') {
                let next = &self.s[self.state.n..];
                let next = &next[next.iter().take_while(|b| tabs && **b == b'\t').count()..];
                if !quoted || next.starts_with(delimiter.as_bytes()) {
                    return Err(LexError::Grammar);
                }
            }
        }
        if self.keep_tokens {
            let position = |index| Arc::new(SourcePosition { index, line: 0, column: 0 });
            let span = SourceSpan { start: position(start), end: position(self.state.n) };
            self.state.tokens[at] = Token::Word(body, span.clone());
            self.state.tokens[at + 1] = Token::Word(delimiter, span);
        }
        Ok(())
    }

    fn scan_word(&mut self) -> ScanResult<()> {
        let end = after_word(self.s, self.state.n, self.depth)?;
        if end == self.state.n {
            return Err(LexError::Grammar);
        }
        let word = &self.s[self.state.n..end];
        // Whether bash reads the here-documents of this line inside the word or behind it depends on the version.
        if !self.state.pending_heredocs.is_empty() && word.contains(&b'\n') {
            return Err(LexError::Grammar);
        }
        // `name[` extends to its bracket, including blanks and operators.
        if subscript_start(word).is_some_and(|at| after_bracket(word, at, self.depth).is_err()) {
            return Err(LexError::Grammar);
        }
        if matches!(self.s.get(end), Some(b'<' | b'>')) {
            // No file descriptor has this many digits.
            if word.len() > 4 && word.iter().all(u8::is_ascii_digit) {
                return Err(LexError::Grammar);
            }
            // `{fd}>x` stores the descriptor in a variable, which may be one that bash uses.
            if word.starts_with(b"{") && word.ends_with(b"}") {
                return Err(LexError::Grammar);
            }
        }
        self.state.bangs = if word == b"!" { self.state.bangs + 1 } else { 0 };
        if self.state.bangs > MAX_NESTING || nests_subscripts(word) {
            return Err(LexError::TooDeep);
        }
        // The parser has no `select`; it reads like a `for` loop.
        if word == b"select" && self.state.before == PrecedingToken::Start && self.keep_tokens {
            self.push_token("for", self.state.n, end, true);
        } else {
            self.keep_token(self.state.n, end, true);
        }
        self.state.n = end;
        self.track_conditional(word);
        self.state.before = if self.state.in_test { PrecedingToken::Word } else { self.track_structure(word)? };
        Ok(())
    }

    /// Tracks whether the scan is inside `[[ … ]]`.
    fn track_conditional(&mut self, word: &[u8]) {
        if self.state.in_test {
            self.state.in_test = word != b"]]";
            self.state.after_regex_operator = word == b"=~";
        } else if word == b"[[" {
            let patterns = self.state.open.last() == Some(&OpenConstruct::Case { pattern: true });
            let starts = matches!(
                self.state.before,
                PrecedingToken::Start | PrecedingToken::Time | PrecedingToken::DefinitionName
            );
            self.state.in_test = starts && !patterns;
        }
    }

    /// Tracks open constructs, so that the nesting depth is known before the recursive parser sees the tokens.
    fn track_structure(&mut self, word: &[u8]) -> ScanResult<PrecedingToken> {
        match self.state.before {
            PrecedingToken::Case => return Ok(PrecedingToken::CaseWord),
            PrecedingToken::CaseWord if word == b"in" => {
                self.open_construct(OpenConstruct::Case { pattern: true })?;
                return Ok(PrecedingToken::Start);
            }
            PrecedingToken::Definition => return Ok(PrecedingToken::DefinitionName),
            PrecedingToken::Time if matches!(word, b"-p" | b"--") => return Ok(PrecedingToken::Time),
            PrecedingToken::DefinitionName | PrecedingToken::Start | PrecedingToken::Time => {}
            PrecedingToken::CaseWord | PrecedingToken::Word => return Ok(PrecedingToken::Word),
        }
        if let Some(OpenConstruct::Case { pattern: true }) = self.state.open.last() {
            if word == b"esac" {
                self.state.open.pop();
            }
            return Ok(PrecedingToken::Word);
        }
        let (opens, next) = match word {
            b"{" => (Some(OpenConstruct::Brace), PrecedingToken::Start),
            b"if" => (Some(OpenConstruct::If), PrecedingToken::Start),
            b"while" | b"until" => (Some(OpenConstruct::Loop), PrecedingToken::Start),
            b"for" | b"select" => (Some(OpenConstruct::Loop), PrecedingToken::Word),
            b"case" => (None, PrecedingToken::Case),
            b"function" | b"coproc" => (None, PrecedingToken::Definition),
            b"time" => (None, PrecedingToken::Time),
            b"then" | b"do" | b"else" | b"elif" | b"!" => (None, PrecedingToken::Start),
            _ => (None, PrecedingToken::Word),
        };
        if let Some(open) = opens {
            self.open_construct(open)?;
        }
        let closes = match word {
            b"}" => Some(OpenConstruct::Brace),
            b"fi" => Some(OpenConstruct::If),
            b"done" => Some(OpenConstruct::Loop),
            b"esac" => Some(OpenConstruct::Case { pattern: false }),
            _ => None,
        };
        if closes.is_some() && self.state.open.last().copied() == closes {
            self.state.open.pop();
        }
        Ok(next)
    }
}
