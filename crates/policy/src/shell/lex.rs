//! Splits characters into words, and words into pieces: quotes, escapes, expansions and substitutions. `expand`
//! decides what the pieces become.
//!
//! This lexer replaces that of the parser crate because everything later depends on it: the text of a word is exactly
//! its text in the source, to the byte, and nothing is cached.
//!
//! Bash removes a backslash-newline from its input before it scans, except in single quotes, comments and
//! here-document bodies with a quoted delimiter. Here, a scan that meets one returns its position (`Continuation`);
//! `token` removes it and scans again. So no later step sees a backslash-newline that bash would not see.

/// The nesting depth of substitutions, quotes and groups beyond which the whole text is opaque.
pub(super) const MAX_NESTING: usize = 32;

/// Why a text cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LexError {
    Unterminated,
    TooDeep,
    TooLarge,
    Grammar,
    /// A backslash-newline at this position, which bash would remove.
    Continuation(usize),
}

type LexResult<T> = std::result::Result<T, LexError>;

/// A part of a word.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WordPiece {
    Text {
        text: String,
        quoted: bool,
    },
    /// `~` or `~name` at the start of a word.
    Tilde(String),
    Parameter {
        parameter: Parameter,
        quoted: bool,
    },
    /// `$(…)`, or backquotes without their own escapes; `at` is the position of the text in the word, if it appears
    /// there unchanged.
    Command {
        text: String,
        at: Option<usize>,
        quoted: bool,
    },
    Arithmetic {
        text: String,
    },
    /// `<(…)` and `>(…)`.
    Process {
        text: String,
        at: usize,
    },
    /// Syntax whose effect in bash is not modelled.
    Unsupported,
}

/// `$x`, `${x…}`.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) subscript: Option<String>,
    /// `${!x…}`
    pub(crate) indirect: bool,
    /// `${#x}`
    pub(crate) length: bool,
    /// The operator and everything behind it, unexpanded.
    pub(crate) rest: String,
}

/// The position behind the closing quote of the single-quoted text at `at`.
fn after_single(s: &[u8], at: usize) -> LexResult<usize> {
    find_byte(b'\'', &s[at + 1..]).map(|n| at + n + 2).ok_or(LexError::Unterminated)
}

/// Whether a backslash-newline is at `n`.
pub(super) fn is_continuation(s: &[u8], n: usize) -> bool {
    s.get(n) == Some(&b'\\') && s.get(n + 1) == Some(&b'\n')
}

/// The byte at `n`, as bash sees it outside single quotes.
pub(super) fn peek(s: &[u8], n: usize) -> LexResult<Option<u8>> {
    if is_continuation(s, n) { Err(LexError::Continuation(n)) } else { Ok(s.get(n).copied()) }
}

/// The position behind the escape at `n`.
fn after_escape(s: &[u8], n: usize) -> LexResult<usize> {
    peek(s, n).map(|_| n + 2)
}

fn find_byte(needle: u8, hay: &[u8]) -> Option<usize> {
    hay.iter().position(|&b| b == needle)
}

/// The end of `$'…'`, from behind its quote. A backslash-newline stays in it.
fn after_ansi_c(s: &[u8], from: usize) -> LexResult<usize> {
    let mut n = from;
    while n < s.len() {
        match s[n] {
            b'\\' => n += 2,
            b'\'' => return Ok(n + 1),
            _ => n += 1,
        }
    }
    Err(LexError::Unterminated)
}

/// The position behind the double-quoted text at `at`.
pub(super) fn after_double(s: &[u8], at: usize, depth: usize) -> LexResult<usize> {
    let mut n = at + 1;
    while n < s.len() {
        match s[n] {
            b'\\' => n = after_escape(s, n)?,
            b'"' => return Ok(n + 1),
            b'$' => n = after_dollar(s, n, true, depth)?,
            b'`' => n = after_backquote(s, n)?,
            _ => n += 1,
        }
    }
    Err(LexError::Unterminated)
}

/// Bash reads to the next unescaped backquote, ignoring quotes: a backslash-newline is removed even in single quotes.
fn after_backquote(s: &[u8], at: usize) -> LexResult<usize> {
    let mut n = at + 1;
    while n < s.len() {
        match s[n] {
            b'\\' => n = after_escape(s, n)?,
            b'`' => return Ok(n + 1),
            _ => n += 1,
        }
    }
    Err(LexError::Unterminated)
}

/// The position behind the parenthesis that closes the one before `at`, found by counting. Bash finds the end of `((`
/// and `$((` this way before it knows what they are.
pub(super) fn after_counted(s: &[u8], at: usize) -> LexResult<usize> {
    let (mut n, mut open) = (at, 1);
    while n < s.len() {
        match s[n] {
            b'(' => (open, n) = (open + 1, n + 1),
            // Whether bash skips the continuation to find the second parenthesis depends on the context.
            b')' if follows_continuations(s, n + 1, b')') => return Err(LexError::Grammar),
            b')' => {
                (open, n) = (open - 1, n + 1);
                if open == 0 {
                    return Ok(n);
                }
            }
            b'$' if peek(s, n + 1)? == Some(b'\'') => n = after_ansi_c(s, n + 2)?,
            b'\'' => n = after_single(s, n)?,
            b'`' => n = after_backquote(s, n)?,
            b'"' => {
                n += 1;
                while *s.get(n).ok_or(LexError::Unterminated)? != b'"' {
                    n = match s[n] {
                        b'\\' => after_escape(s, n)?,
                        // Bash would look for the end of the nested expansion too. This is rare, so it is refused.
                        b'`' => return Err(LexError::Grammar),
                        b'$' if matches!(peek(s, n + 1)?, Some(b'(' | b'{' | b'[')) => return Err(LexError::Grammar),
                        _ => n + 1,
                    };
                }
                n += 1;
            }
            b'\\' => n = after_escape(s, n)?,
            _ => n += 1,
        }
    }
    Err(LexError::Unterminated)
}

/// The end of what the `$` at `at` starts; the position behind the `$` if it starts nothing.
pub(super) fn after_dollar(s: &[u8], at: usize, in_double: bool, depth: usize) -> LexResult<usize> {
    if depth > MAX_NESTING {
        return Err(LexError::TooDeep);
    }
    match peek(s, at + 1)? {
        Some(b'(') if s.get(at + 2) == Some(&b'(') => {
            let counted = after_counted(s, at + 2)?;
            let end = match after_arithmetic(s, at + 3, depth) {
                Ok(end) => end,
                Err(why @ (LexError::TooDeep | LexError::TooLarge | LexError::Continuation(_))) => return Err(why),
                // `$((a); b)` is a substitution that starts with a subshell.
                Err(_) => super::token::end_of_list(s, at + 2, depth + 1)? + 1,
            };
            if end == counted { Ok(end) } else { Err(LexError::Grammar) }
        }
        // Whether this is arithmetic depends on the version of bash.
        Some(b'(') if follows_continuations(s, at + 2, b'(') => Err(LexError::Grammar),
        Some(b'(') => super::token::end_of_list(s, at + 2, depth + 1).map(|end| end + 1),
        Some(b'[') => after_bracket(s, at + 2, depth),
        Some(b'{') => after_brace(s, at + 2, in_double, depth + 1),
        Some(b'\'') if !in_double => after_ansi_c(s, at + 2),
        Some(b'"') if !in_double => after_double(s, at + 1, depth + 1),
        Some(b'_' | b'a'..=b'z' | b'A'..=b'Z') => {
            let name = s[at + 1..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
            Ok(at + 1 + name)
        }
        Some(b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => Ok(at + 2),
        _ => Ok(at + 1),
    }
}

/// Whether one or more backslash-newlines are at `at`, followed by this byte.
fn follows_continuations(s: &[u8], at: usize, byte: u8) -> bool {
    let mut n = at;
    while is_continuation(s, n) {
        n += 2;
    }
    n > at && s.get(n) == Some(&byte)
}

/// The position behind the escape, quotes, expansion or single byte at `n`.
pub(super) fn after_one(s: &[u8], n: usize, depth: usize) -> LexResult<usize> {
    match s[n] {
        b'\\' => after_escape(s, n),
        b'\'' => after_single(s, n),
        b'"' => after_double(s, n, depth),
        b'`' => after_backquote(s, n),
        b'$' => after_dollar(s, n, false, depth),
        _ => Ok(n + 1),
    }
}

/// The end of `$((…))`, from behind its second parenthesis.
pub(super) fn after_arithmetic(s: &[u8], at: usize, depth: usize) -> LexResult<usize> {
    let (mut n, mut open) = (at, 0);
    while n < s.len() {
        match s[n] {
            b'(' => (open, n) = (open + 1, n + 1),
            b')' if open > 0 => (open, n) = (open - 1, n + 1),
            b')' if s.get(n + 1) == Some(&b')') => return Ok(n + 2),
            b')' => return Err(LexError::Grammar),
            _ => n = after_one(s, n, depth + 1)?,
        }
        if open > MAX_NESTING {
            return Err(LexError::TooDeep);
        }
    }
    Err(LexError::Unterminated)
}

pub(super) fn after_bracket(s: &[u8], at: usize, depth: usize) -> LexResult<usize> {
    let (mut n, mut open) = (at, 0);
    while n < s.len() {
        match s[n] {
            b'[' => (open, n) = (open + 1, n + 1),
            b']' if open > 0 => (open, n) = (open - 1, n + 1),
            b']' => return Ok(n + 1),
            _ => n = after_one(s, n, depth + 1)?,
        }
    }
    Err(LexError::Unterminated)
}

/// The end of `${…}`, from behind its brace.
fn after_brace(s: &[u8], at: usize, in_double: bool, depth: usize) -> LexResult<usize> {
    let mut n = at;
    while n < s.len() {
        match s[n] {
            b'}' => return Ok(n + 1),
            b'\\' => n = after_escape(s, n)?,
            // Whether these quote depends on the operator, the version and the mode.
            b'\'' if in_double => return Err(LexError::Grammar),
            b'\'' => n = after_single(s, n)?,
            // New versions of bash read this as one unit, old ones as two characters.
            b'<' | b'>' if peek(s, n + 1)? == Some(b'(') => return Err(LexError::Grammar),
            b'"' => n = after_double(s, n, depth)?,
            b'`' => n = after_backquote(s, n)?,
            b'$' => n = after_dollar(s, n, in_double, depth)?,
            _ => n += 1,
        }
    }
    Err(LexError::Unterminated)
}

/// The end of the word at `at`: the first blank or operator outside quotes and expansions.
pub(super) fn after_word(s: &[u8], at: usize, depth: usize) -> LexResult<usize> {
    let mut n = at;
    while n < s.len() {
        match s[n] {
            b' ' | b'\t' | b'\n' | b'|' | b'&' | b';' | b')' => break,
            // `a<(b)` is one word; `a<b` is not.
            b'<' | b'>' if peek(s, n + 1)? == Some(b'(') => {
                if follows_continuations(s, n + 2, b'(') {
                    return Err(LexError::Grammar);
                }
                n = super::token::end_of_list(s, n + 2, depth + 1)? + 1;
            }
            b'<' | b'>' => break,
            // `name=(…)` is one word.
            b'(' if starts_array(&s[at..n]) => n = super::token::end_of_array(s, n + 1, depth + 1)?,
            b'(' => break,
            _ => n = after_one(s, n, depth + 1)?,
        }
    }
    if n > s.len() {
        return Err(LexError::Unterminated);
    }
    Ok(n)
}

/// Whether this is `name=`, `name+=` or `name[…]=`, behind which a parenthesis opens an array.
fn starts_array(s: &[u8]) -> bool {
    let Some((b'=', before)) = s.split_last().map(|(l, b)| (*l, b)) else { return false };
    let before = before.strip_suffix(b"+").unwrap_or(before);
    name_length(before).is_some_and(|n| n == before.len() || before[n] == b'[' && before.ends_with(b"]"))
}

/// The length of the identifier at the start, if there is one.
pub(crate) fn name_length(s: &[u8]) -> Option<usize> {
    let n = s.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
    (n > 0 && !s[0].is_ascii_digit()).then_some(n)
}

/// Whether a word contains no syntax, so that it needs no splitting.
pub(crate) fn is_plain(word: &str) -> bool {
    word.bytes().all(|b| {
        b.is_ascii_alphanumeric()
            || matches!(b, b'-' | b'_' | b'.' | b'/' | b',' | b':' | b'=' | b'+' | b'@' | b'%' | b'^' | b'!' | b']')
            || b >= 0x80
    })
}

/// Splits a word into pieces. `tildes`: also expand tildes behind an unquoted `=` or `:`, as in assignments.
pub(crate) fn word_pieces(word: &str, tildes: bool) -> LexResult<Vec<WordPiece>> {
    WordLexer { word, s: word.as_bytes(), out: Vec::new(), tildes }.read_word()
}

/// Splits the body of a here-document with an unquoted delimiter into pieces.
pub(crate) fn heredoc_pieces(text: &str) -> LexResult<Vec<WordPiece>> {
    let mut lexer = WordLexer { word: text, s: text.as_bytes(), out: Vec::new(), tildes: false };
    let end = lexer.read_double_quoted(0, None)?;
    debug_assert_eq!(end, text.len());
    Ok(lexer.out)
}

struct WordLexer<'a> {
    word: &'a str,
    s: &'a [u8],
    out: Vec<WordPiece>,
    tildes: bool,
}

impl WordLexer<'_> {
    fn push_range(&mut self, from: usize, to: usize, quoted: bool) {
        self.push_text(&self.word[from..to], quoted);
    }

    fn push_text(&mut self, more: &str, was_quoted: bool) {
        match self.out.last_mut() {
            Some(WordPiece::Text { text, quoted }) if *quoted == was_quoted => text.push_str(more),
            _ => self.out.push(WordPiece::Text { text: more.to_owned(), quoted: was_quoted }),
        }
    }

    fn read_word(mut self) -> LexResult<Vec<WordPiece>> {
        let (mut n, mut tilde) = (0, true);
        while n < self.s.len() {
            let here = n;
            match self.s[n] {
                b'~' if tilde => {
                    let name = self.s[n + 1..]
                        .iter()
                        .take_while(|b| b.is_ascii_alphanumeric() || matches!(**b, b'.' | b'_' | b'-' | b'+'))
                        .count();
                    let end = n + 1 + name;
                    if matches!(self.s.get(end), None | Some(b'/')) || self.tildes && self.s.get(end) == Some(&b':') {
                        self.out.push(WordPiece::Tilde(self.word[n + 1..end].to_owned()));
                    } else {
                        self.push_range(n, end, false);
                    }
                    n = end;
                }
                b'\\' if is_continuation(self.s, n) => return Err(LexError::Continuation(n)),
                b'\\' => {
                    let end = next_char(self.word, n + 1);
                    if end == n + 1 {
                        return Err(LexError::Unterminated);
                    }
                    self.push_range(n + 1, end, true);
                    n = end;
                }
                b'\'' => {
                    let end = after_single(self.s, n)?;
                    self.push_range(n + 1, end - 1, true);
                    n = end;
                }
                b'"' => n = self.read_double_quoted(n + 1, Some(b'"'))? + 1,
                b'$' => n = self.read_dollar(n, false)?,
                b'`' => n = self.read_backquoted(n, false)?,
                b'<' | b'>' if self.s.get(n + 1) == Some(&b'(') => {
                    let end = super::token::end_of_list(self.s, n + 2, 1)?;
                    self.out.push(WordPiece::Process { text: self.word[n + 2..end].to_owned(), at: n + 2 });
                    n = end + 1;
                }
                b => {
                    let end = next_char(self.word, n);
                    self.push_range(n, end, false);
                    n = end;
                    tilde = self.tildes && matches!(b, b'=' | b':');
                    continue;
                }
            }
            debug_assert!(n > here);
            tilde = false;
        }
        Ok(self.out)
    }

    /// Reads the inside of double quotes up to `until`, or a here-document body to its end.
    fn read_double_quoted(&mut self, at: usize, until: Option<u8>) -> LexResult<usize> {
        let mut n = at;
        if until.is_some() {
            // Empty quotes are a word too.
            self.push_text("", true);
        }
        while n < self.s.len() {
            match self.s[n] {
                b if Some(b) == until => return Ok(n),
                b'\\' => match self.s.get(n + 1) {
                    Some(b'\n') => return Err(LexError::Continuation(n)),
                    Some(b'$' | b'`' | b'\\') => (self.push_range(n + 1, n + 2, true), n += 2).1,
                    Some(b'"') if until.is_some() => (self.push_range(n + 1, n + 2, true), n += 2).1,
                    None => return Err(LexError::Unterminated),
                    _ => (self.push_range(n, n + 1, true), n += 1).1,
                },
                b'$' => n = self.read_dollar(n, true)?,
                b'`' => n = self.read_backquoted(n, true)?,
                _ => {
                    let end = next_char(self.word, n);
                    self.push_range(n, end, true);
                    n = end;
                }
            }
        }
        if until.is_some() { Err(LexError::Unterminated) } else { Ok(n) }
    }

    fn read_backquoted(&mut self, at: usize, quoted: bool) -> LexResult<usize> {
        let end = after_backquote(self.s, at)?;
        let raw = &self.word[at + 1..end - 1];
        let mut text = String::with_capacity(raw.len());
        let mut chars = raw.chars().peekable();
        while let Some(c) = chars.next() {
            match (c, chars.peek()) {
                ('\\', Some('$' | '`' | '\\')) => text.extend(chars.next()),
                ('\\', Some('"')) if quoted => text.extend(chars.next()),
                _ => text.push(c),
            }
        }
        self.out.push(WordPiece::Command { text, at: (!raw.contains('\\')).then_some(at + 1), quoted });
        Ok(end)
    }

    fn read_dollar(&mut self, at: usize, quoted: bool) -> LexResult<usize> {
        let end = after_dollar(self.s, at, quoted, 0)?;
        let inner = |skip: usize, tail: usize| self.word.get(at + skip..end - tail).unwrap_or_default().to_owned();
        let piece = match self.s.get(at + 1) {
            Some(b'(') if self.s.get(at + 2) == Some(&b'(') && after_arithmetic(self.s, at + 3, 0) == Ok(end) => {
                WordPiece::Arithmetic { text: inner(3, 2) }
            }
            Some(b'(') => WordPiece::Command { text: inner(2, 1), at: Some(at + 2), quoted },
            Some(b'[') => WordPiece::Arithmetic { text: inner(2, 1) },
            Some(b'{') => {
                let text = inner(2, 1);
                match parse_parameter(&text) {
                    // Which quotes count inside depends on the operator.
                    Some(p) if !(quoted && p.rest.contains('\'')) => WordPiece::Parameter { parameter: p, quoted },
                    _ => WordPiece::Unsupported,
                }
            }
            Some(b'\'') if !quoted => {
                let text = decode_ansi_c(&inner(2, 1));
                match text {
                    Some(text) => WordPiece::Text { text, quoted: true },
                    None => WordPiece::Unsupported,
                }
            }
            Some(b'"') if !quoted => {
                self.read_double_quoted(at + 2, Some(b'"'))?;
                return Ok(end);
            }
            _ if end > at + 1 => {
                WordPiece::Parameter { parameter: Parameter { name: inner(1, 0), ..Parameter::default() }, quoted }
            }
            _ => {
                self.push_text("$", quoted);
                return Ok(end);
            }
        };
        self.out.push(piece);
        Ok(end)
    }
}

/// The start of the character behind the one at `n`.
fn next_char(s: &str, n: usize) -> usize {
    s.get(n..).and_then(|rest| rest.chars().next()).map_or(n, |c| n + c.len_utf8())
}

/// Parses the inside of `${…}`. None for a bad substitution, or for one that runs a command (`${ cmd; }`).
fn parse_parameter(text: &str) -> Option<Parameter> {
    let mut p = Parameter::default();
    let mut rest = text;
    let special = |s: &str| s.starts_with(['@', '*', '?', '$', '!', '-', '#']);
    if let Some(after) = rest.strip_prefix('#').filter(|a| !a.is_empty() && !a.starts_with(['#', '%', ':', '/', '}'])) {
        (p.length, rest) = (true, after);
    } else if let Some(after) = rest.strip_prefix('!').filter(|a| name_length(a.as_bytes()).is_some()) {
        (p.indirect, rest) = (true, after);
    }
    let length = match name_length(rest.as_bytes()) {
        Some(n) => n,
        None if rest.starts_with(|c: char| c.is_ascii_digit()) => rest.bytes().take_while(u8::is_ascii_digit).count(),
        None if special(rest) => 1,
        None => return None,
    };
    p.name = rest[..length].to_owned();
    rest = &rest[length..];
    if rest.starts_with('[') {
        let end = after_bracket(rest.as_bytes(), 1, 0).ok()?;
        p.subscript = Some(rest[1..end - 1].to_owned());
        rest = &rest[end..];
    }
    let operator = rest.is_empty()
        || rest.starts_with([':', '-', '=', '?', '+', '#', '%', '/', '^', ',', '@', '~'])
        || p.indirect && rest == "*";
    p.rest = rest.to_owned();
    (operator && (!p.length || p.rest.is_empty())).then_some(p)
}

/// Decodes the inside of `$'…'`. None if the result is not text.
pub(crate) fn decode_ansi_c(text: &str) -> Option<String> {
    let mut out: Vec<u8> = Vec::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>, radix: u32, most: usize, first: &str| {
        let mut digits = first.to_owned();
        while digits.len() < most && chars.peek().is_some_and(|c| c.is_digit(radix)) {
            digits.extend(chars.next());
        }
        u32::from_str_radix(&digits, radix).ok()
    };
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend(c.encode_utf8(&mut [0; 4]).bytes());
            continue;
        }
        let byte = match chars.next()? {
            'a' => 7,
            'b' => 8,
            'e' | 'E' => 27,
            'f' => 12,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 11,
            c @ ('\\' | '\'' | '"' | '?') => c as u8,
            c @ '0'..='7' => u8::try_from(number(&mut chars, 8, 3, &c.to_string())? & 0xff).ok()?,
            'x' => u8::try_from(number(&mut chars, 16, 2, "")?).ok()?,
            'c' => u8::try_from(chars.next()? as u32 & 0x1f).ok()?,
            c @ ('u' | 'U') => {
                let code = number(&mut chars, 16, if c == 'u' { 4 } else { 8 }, "")?;
                out.extend(char::from_u32(code)?.encode_utf8(&mut [0; 4]).bytes());
                continue;
            }
            c => {
                out.push(b'\\');
                out.extend(c.encode_utf8(&mut [0; 4]).bytes());
                continue;
            }
        };
        // Bash drops the text behind a NUL.
        if byte == 0 {
            return None;
        }
        out.push(byte);
    }
    String::from_utf8(out).ok()
}
