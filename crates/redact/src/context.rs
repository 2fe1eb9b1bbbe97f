//! Names that say that a value is secret: `name=value`, `"name": "value"`, `--name value`, headers, cookies, links.
//!
//! The name and what separates it stay; the value goes. Most of this file is about what is *not* a secret although it
//! stands there: types, variables, calls, words, placeholders.

use crate::{
    guard::{self, Setting, Strength},
    shadow::{View, is_break},
    span::{Look, Rank, Span},
};

/// What a name contains, in the ways in which people write it; of most words the end says enough.
pub(crate) const WORDS: &[&str] = &[
    "key",
    "KEY",
    "Key",
    "pwd",
    "PWD",
    "Pwd",
    "oken",
    "OKEN",
    "ecret",
    "ECRET",
    "assw",
    "ASSW",
    "assphrase",
    "ASSPHRASE",
    "redential",
    "REDENTIAL",
];
/// What begins a header that holds nothing but secrets.
pub(crate) const HEADERS: &[&str] = &["uthorization", "UTHORIZATION", "ookie:", "OOKIE:"];

/// How far before and behind a word its name may reach.
const NAME: usize = 48;
/// Blanks between a name, what separates it and its value.
const BLANKS: usize = 24;
const LONGEST: usize = 4096;
/// A place that is looked at again when more has come lies at most this far back.
pub(crate) const REACH: usize = 2 * NAME + 2 * BLANKS + 64;

fn name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
}

/// A place in the text, on its way forward. `None` from any step: more bytes will tell.
struct Reader<'a> {
    view: View<'a>,
    at: usize,
    /// Where the value may begin, once everything before it has been read.
    value: Option<usize>,
}

/// A break, or the end of all.
const END: u8 = b'\n';

impl Reader<'_> {
    /// The next byte, a break as one; nothing is taken.
    fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    /// What it comes to if more bytes must tell: what may be a value already stays here.
    fn open(&self) -> Look {
        match self.value {
            Some(start) if start < self.view.len() => Look::Open(start),
            _ => Look::Nothing,
        }
    }

    fn peek_at(&self, ahead: usize) -> Option<u8> {
        match self.view.byte(self.at + ahead) {
            Some(b) if is_break(b) => Some(END),
            None if self.view.end => Some(END),
            b => b,
        }
    }

    fn skip(&mut self, most: usize, wanted: impl Fn(u8) -> bool) -> Option<usize> {
        let from = self.at;
        while self.at - from < most && wanted(self.peek()?) {
            self.at += 1;
        }
        Some(self.at - from)
    }

    fn take(&mut self, wanted: u8) -> Option<bool> {
        let there = self.peek()? == wanted;
        self.at += usize::from(there);
        Some(there)
    }

    /// A quote, plain or escaped, and how it must end.
    fn quote(&mut self) -> Option<Quote> {
        let slashes = self.skip(3, |b| b == b'\\')?;
        match self.peek()? {
            q @ (b'"' | b'\'' | b'`') => {
                self.at += 1;
                Some(Quote::Of(q, slashes))
            }
            _ => {
                self.at -= slashes;
                Some(Quote::None)
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    None,
    Of(u8, usize),
}

/// Looks at the word that was found at `word`.
pub(crate) fn look(view: View<'_>, word: usize, length: usize) -> Look {
    let mut r = Reader { view, at: word + length, value: None };
    read(&mut r, word).unwrap_or_else(|| r.open())
}

fn read(r: &mut Reader<'_>, word: usize) -> Option<Look> {
    let view = r.view;
    let lowest = word.saturating_sub(NAME);
    let mut begin = word;
    while begin > lowest && name_byte(view.bytes[begin - 1]) {
        begin -= 1;
    }
    if r.skip(NAME, name_byte)? == NAME {
        return Some(Look::Nothing);
    }
    let mut name = &view.bytes[begin..r.at];
    // A sentence ends with a dot, and no name does.
    while let [rest @ .., b'.' | b'-'] = name {
        name = rest;
    }
    let before = |n: usize| begin.checked_sub(n).and_then(|i| view.byte(i));
    let flag = name.starts_with(b"-");
    let tag = before(1) == Some(b'<');
    let opened = matches!(before(1), Some(b'"' | b'\'' | b'`'));
    r.take(b']')?;
    let closed = r.quote()? != Quote::None;
    let blanks = r.skip(BLANKS, |b| matches!(b, b' ' | b'\t'))?;
    let separator = r.peek()?;
    let next = || r.peek_at(1);
    let spaced = match separator {
        b'=' => match next()? {
            b'=' | b'~' => return Some(Look::Nothing),
            b'>' => {
                r.at += 2;
                true
            }
            _ => {
                r.at += 1;
                blanks > 0
            }
        },
        b':' => match next()? {
            b':' => return Some(Look::Nothing),
            b'=' => {
                r.at += 2;
                true
            }
            b => {
                r.at += 1;
                matches!(b, b' ' | b'\t')
            }
        },
        b'>' if tag && !closed => {
            r.at += 1;
            false
        }
        b',' if flag && opened && closed => {
            r.at += 1;
            true
        }
        _ if flag && blanks > 0 && !closed => true,
        _ => return Some(Look::Nothing),
    };
    let arrow = separator == b'>';
    r.skip(BLANKS, |b| matches!(b, b' ' | b'\t'))?;
    r.value = Some(r.at);
    // `let key: &str = "…"`: what stands first is a type.
    let typed = separator == b':' && spaced && !closed && skip_type(r)?;
    // `b"…"`, `r'…'`, `@"…"`.
    if matches!(r.peek()?, b'b' | b'r' | b'f' | b'u' | b'L' | b'@') && matches!(r.peek_at(1)?, b'"' | b'\'') {
        r.at += 1;
    }
    let mut quote = r.quote()?;
    skip_scheme(r)?;
    if quote == Quote::None {
        quote = r.quote()?;
    }
    if typed && quote == Quote::None {
        return Some(Look::Nothing);
    }
    let start = r.at;
    if r.peek()? == END {
        return Some(Look::Nothing);
    }
    let shell = separator == b'=' && blanks == 0 && !spaced && !opened;
    let alone = shell && is_assignment(view, begin);
    let end = value_end(r, quote, alone, arrow)?;
    if end == start {
        return Some(Look::Nothing);
    }
    let follows = r.peek().unwrap_or(END);
    let setting = Setting {
        quoted: quote != Quote::None,
        // A whole line of a configuration, an argument, a part of a link.
        plain: quote != Quote::None
            || flag
            || alone
            || shell && name.len() > 3 && !name.iter().any(u8::is_ascii_lowercase)
            || arrow
            || (shell && matches!(before(1), Some(b'?' | b'&' | b';')))
            || is_entry(view, begin, separator, spaced, follows),
        spaced,
        follows,
    };
    let strength = guard::strength(name, closed || opened);
    let value = &*view.joined(start..end);
    if strength == Strength::None || !guard::is_secret(strength, name, value, &setting) || guard::says_other(name) {
        return Some(Look::Nothing);
    }
    let swallow = (end - start >= LONGEST).then_some(crate::span::token_byte as fn(u8) -> bool);
    Some(Look::Found(Span { swallow, ..Span::new(start, end, rule(strength), Rank::Context) }))
}

fn rule(strength: Strength) -> &'static str {
    match strength {
        Strength::Password => "password",
        _ => "secret-value",
    }
}

/// A type between `:` and `=`; leaves the reader behind the `=` if there is one, where it was otherwise.
fn skip_type(r: &mut Reader<'_>) -> Option<bool> {
    let from = r.at;
    if !matches!(r.peek()?, b'A'..=b'Z' | b'a'..=b'z' | b'&' | b'*') {
        return Some(false);
    }
    let taken = r.skip(40, |b| {
        b.is_ascii_alphanumeric()
            || matches!(b, b'_' | b'&' | b'*' | b'<' | b'>' | b'[' | b']' | b'\'' | b' ' | b'|' | b':' | b'.')
    })?;
    if taken < 40 && r.peek()? == b'=' && matches!(r.peek_at(1)?, b' ' | b'"' | b'\'') {
        r.at += 1;
        r.skip(BLANKS, |b| b == b' ')?;
        return Some(true);
    }
    r.at = from;
    Some(false)
}

/// `Bearer`, `Basic`, `token` before the value itself.
fn skip_scheme(r: &mut Reader<'_>) -> Option<()> {
    const SCHEMES: &[&[u8]] =
        &[b"bearer ", b"basic ", b"token ", b"bot ", b"apikey ", b"digest ", b"key ", b"splunk ", b"negotiate "];
    for scheme in SCHEMES {
        let mut matched = 0;
        for (n, want) in scheme.iter().enumerate() {
            match r.peek_at(n) {
                Some(b) if b.to_ascii_lowercase() == *want => matched += 1,
                Some(_) => break,
                // It may become one.
                None if n >= 3 => return None,
                None => break,
            }
        }
        if matched == scheme.len() {
            r.at += matched;
            r.skip(BLANKS, |b| b == b' ')?;
            return Some(());
        }
    }
    Some(())
}

/// Where the value ends, or nothing if that is still to come.
fn value_end(r: &mut Reader<'_>, quote: Quote, alone: bool, arrow: bool) -> Option<usize> {
    let start = r.at;
    loop {
        let b = r.peek()?;
        if b == END || r.at - start >= LONGEST {
            break;
        }
        // A line editor wraps with a blank and a return; the line goes on.
        if b == b' ' && quote == Quote::None && r.at > start && r.view.wraps(r.at)? {
            r.at += 2;
            continue;
        }
        let ends = match quote {
            Quote::Of(q, 0) => {
                if b == b'\\' && r.peek_at(1)? != END {
                    r.at += 2;
                    continue;
                }
                b == q
            }
            Quote::Of(q, _) => b == b'\\' && r.peek_at(1)? == q || b == q,
            Quote::None if arrow => matches!(b, b'<'),
            Quote::None if alone => matches!(b, b' ' | b'\t' | b'"' | b'\'' | b'`'),
            Quote::None => matches!(
                b,
                b' ' | b'\t'
                    | b'"'
                    | b'\''
                    | b'`'
                    | b','
                    | b';'
                    | b'&'
                    | b'<'
                    | b'>'
                    | b'('
                    | b')'
                    | b'{'
                    | b'}'
                    | b'['
                    | b']'
                    | b'|'
                    | b'\\'
            ),
        };
        if ends {
            break;
        }
        r.at += 1;
    }
    let mut end = r.at;
    if quote == Quote::None {
        while end > start && matches!(r.view.bytes[end - 1], b',' | b';' | b')' | b'.') {
            end -= 1;
        }
    }
    Some(end)
}

/// The name begins a line, or follows `export`, `set`, `env`: an assignment of a shell, whose value ends with a blank.
fn is_assignment(view: View<'_>, begin: usize) -> bool {
    let line = view.line_start(begin, 64);
    let before = view.bytes[line..begin].trim_ascii();
    before.is_empty()
        || [&b"export"[..], b"set", b"env", b"ENV", b"ARG", b"setx", b"declare -x", b"+", b"-"].contains(&before)
        || view.bytes[..begin].ends_with(b" ")
            && before.split(|b| *b == b' ').all(|w| w.contains(&b'=') || w == b"env" || w == b"export")
}

/// A line of a configuration that has nothing but a name and a value.
fn is_entry(view: View<'_>, begin: usize, separator: u8, spaced: bool, follows: u8) -> bool {
    let line = view.line_start(begin, 64);
    let before = view.bytes[line..begin].trim_ascii();
    (separator == b':' && spaced || separator == b'=') && (before.is_empty() || before == b"-") && follows == END
}

/// Looks at a header: its value goes as a whole, but for the scheme and, in cookies, names.
pub(crate) fn look_header(view: View<'_>, at: usize, length: usize) -> Look {
    let mut r = Reader { view, at: at + length, value: None };
    read_header(&mut r, at).unwrap_or_else(|| r.open())
}

fn read_header(r: &mut Reader<'_>, at: usize) -> Option<Look> {
    let view = r.view;
    let cookie = view.bytes[r.at - 1] == b':';
    if !cookie {
        r.quote()?;
        r.skip(4, |b| b == b' ')?;
        if !matches!(r.peek()?, b':' | b'=' | b',') {
            return Some(Look::Nothing);
        }
        r.at += 1;
    }
    r.skip(BLANKS, |b| matches!(b, b' ' | b'\t'))?;
    r.value = Some(r.at);
    r.quote()?;
    if cookie {
        // The first name stays.
        r.skip(64, name_byte)?;
        if !r.take(b'=')? {
            return Some(Look::Nothing);
        }
    } else {
        skip_scheme(r)?;
    }
    r.value = Some(r.at);
    let start = r.at;
    let set_cookie =
        cookie && view.bytes[..at].len() >= 5 && view.bytes[at - 5..at].to_ascii_lowercase().starts_with(b"set-");
    loop {
        let ends = match r.peek()? {
            END | b'"' | b'\'' | b'`' => true,
            b';' => set_cookie || !cookie,
            b' ' | b'\t' | b',' => !cookie,
            _ => false,
        };
        if ends || r.at - start >= LONGEST {
            break;
        }
        r.at += 1;
    }
    let value = &view.bytes[start..r.at];
    if value.len() < 8
        || guard::is_placeholder(value)
        || !value.iter().any(|b| b.is_ascii_digit()) && crate::rules::entropy(value) < 3.0
        || matches!(r.peek(), Some(b'('))
    {
        return Some(Look::Nothing);
    }
    let rule = if cookie { "cookie" } else { "authorization" };
    Some(Look::Found(Span::new(start, r.at, rule, Rank::Context)))
}

/// How far back a link's user may stand before the `@`.
const USERINFO: usize = 384;

fn userinfo_byte(b: u8) -> bool {
    !matches!(b, b' ' | b'\t' | b'/' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b'(' | b')') && !b.is_ascii_control()
}

/// The password between `scheme://user:` and `at`, if that is what ends there.
fn password(view: View<'_>, at: usize) -> Option<(usize, usize)> {
    let mut i = at;
    let mut colon = None;
    while i > 0 && at - i < USERINFO && userinfo_byte(view.bytes[i - 1]) {
        i -= 1;
        if view.bytes[i] == b':' {
            colon = Some(i);
        }
    }
    let scheme = i >= 4 && &view.bytes[i - 3..i] == b"://" && view.bytes[i - 4].is_ascii_alphanumeric();
    let colon = colon.filter(|_| scheme)?;
    Some((colon + 1, at))
}

/// Looks at an `@`: what stands between the colon and it in a link is a password.
pub(crate) fn look_at(view: View<'_>, at: usize) -> Look {
    let Some((start, end)) = password(view, at) else { return Look::Nothing };
    // A password may hold an `@` itself; the last one before the host counts.
    let rest = &view.bytes[at + 1..view.len().min(at + USERINFO)];
    let host = rest.iter().position(|b| !userinfo_byte(*b));
    let Some(host) = host.or((view.end || rest.len() + 1 >= USERINFO).then_some(rest.len())) else {
        return Look::Open(start);
    };
    if rest[..host].contains(&b'@') {
        return Look::Nothing;
    }
    let value = &view.bytes[start..end];
    if value.is_empty() || guard::is_placeholder(value) {
        return Look::Nothing;
    }
    Look::Found(Span::new(start, end, "url-password", Rank::Context))
}

/// Where the password of a link begins whose `@` may still come, at the end of the text.
pub(crate) fn open_link(view: View<'_>, flush: bool) -> Option<usize> {
    if view.end {
        return None;
    }
    let (start, end) = password(view, view.len())?;
    // A port looks the same, and people type those.
    let port = end - start <= 5 && view.bytes[start..end].iter().all(u8::is_ascii_digit);
    (start < end && !(flush && port)).then_some(start)
}
