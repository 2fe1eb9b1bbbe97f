//! Finds passwords that a program passes to a call by place (`connect("host", "user", "V")`), and those of SQL statements.

use crate::{
    guard,
    span::{Inspection, Rank, Span},
    value_reader::{BREAK, Quote, ValueReader},
    value_syntax::skip_wrapper,
    visible_text::TextView,
};

const MAX_ARGUMENT_BYTES: usize = 160;

/// Calls that take a secret, and which argument it is, counted from 0.
pub(crate) const CALLS: &[(&str, usize)] = &[
    ("login(", 1),
    (".auth(", 1),
    ("PDO(", 2),
    ("PDO->__construct(", 2),
    ("onnection(", 2),
    ("asicAuth(", 1),
    ("basic_auth(", 1),
    ("AndPassword(", 1),
    ("auth_password(", 1),
    ("WiFi.begin(", 1),
    ("createHmac(", 1),
    ("signWith(", 1),
    ("Certificate2(", 1),
    (".setAuth(", 1),
    ("check_password(", 1),
    ("jwt.encode(", 1),
    ("jwt.sign(", 1),
    ("jwt.verify(", 1),
    ("JWT.encode ", 1),
    ("Credentials::new(", 1),
    ("OPT_PASSWORD, ", 0),
    ("PlainAuth(", 2),
    ("SecretCredential(", 2),
    ("DBI->connect(", 2),
    ("pgsql:connect(", 2),
    ("_real_connect(", 3),
    ("CookieStore(", 0),
    ("from_secret(", 0),
    ("Fernet(", 0),
    ("hmac.new(", 0),
    ("SecretStr(", 0),
    ("UTF8.GetBytes(", 0),
];

/// Inspects a call; `end` is behind the parenthesis, or before it.
pub(crate) fn inspect_call(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let mut r = ValueReader { view, at: end, value: None };
    let name = &view.bytes[start..end];
    let index = CALLS.iter().find(|call| name == call.0.as_bytes()).map_or(2, |call| call.1);
    read_call(&mut r, index).unwrap_or_else(|| r.unfinished())
}

/// Inspects the second argument of a call; its parenthesis is at `at`.
pub(crate) fn inspect_pair(view: TextView<'_>, at: usize) -> Inspection {
    let mut r = ValueReader { view, at: at + 1, value: None };
    read_call(&mut r, 1).unwrap_or_else(|| r.unfinished())
}

fn read_call(r: &mut ValueReader<'_>, index: usize) -> Option<Inspection> {
    if !matches!(r.view.bytes[r.at - 1], b'(' | b' ') && !r.take_byte(b'(')? {
        return Some(Inspection::Nothing);
    }
    for _ in 0..index {
        r.skip(8, |b| b == b' ')?;
        let from = r.at;
        let quote = r.read_quote()?;
        let ends = |b: u8| match quote {
            Quote::Of(q, _) => b == q || b == BREAK,
            Quote::None => matches!(b, b',' | b')' | b'(' | BREAK | b'"' | b'\''),
        };
        if r.skip(MAX_ARGUMENT_BYTES, |b| !ends(b))? == MAX_ARGUMENT_BYTES || r.at == from {
            return Some(Inspection::Nothing);
        }
        if quote != Quote::None {
            r.at += 1;
            skip_conversion(r)?;
        }
        if !r.take_byte(b',')? {
            return Some(Inspection::Nothing);
        }
    }
    r.skip(8, |b| b == b' ')?;
    // `Some("V")`, `b"V"`, `[]byte("V")`
    skip_wrapper(r)?;
    if matches!(r.peek()?, b'b' | b'@') && matches!(r.peek_at(1)?, b'"' | b'\'') {
        r.at += 1;
    }
    let Quote::Of(quote, slashes) = r.read_quote()? else { return Some(Inspection::Nothing) };
    let start = r.at;
    r.value = Some(start);
    while !r.is_closing_quote(quote, slashes)? {
        if r.peek()? == BREAK || r.at - start > MAX_ARGUMENT_BYTES {
            return Some(Inspection::Nothing);
        }
        // An escaped quote belongs to the value.
        let escapes = slashes == 0 && r.peek()? == b'\\' && r.peek_at(1)? != BREAK;
        r.at += 1 + usize::from(escapes);
    }
    let end = r.at;
    r.at += slashes + 1;
    skip_conversion(r)?;
    let value = &r.view.bytes[start..end];
    let closes = matches!(r.peek()?, b')' | b',');
    let expression = value.starts_with(b"$") && memchr::memmem::find(value, b"::").is_some();
    if !closes || expression || !guard::is_password_argument(value) || guard::is_placeholder(value) {
        return Some(Inspection::Nothing);
    }
    Some(Inspection::Found(Span::new(start, end, "password", Rank::Context)))
}

/// Skips what converts a text: `.to_string()`, `.toCharArray()`.
fn skip_conversion(r: &mut ValueReader<'_>) -> Option<()> {
    if r.peek()? == b'.' {
        let mut call = *r;
        call.at += 1;
        call.skip(24, |b| b.is_ascii_alphanumeric() || b == b'_')?;
        if call.take_byte(b'(')? && call.take_byte(b')')? {
            *r = call;
        }
    }
    r.skip(2, |b| b == b' ')?;
    Some(())
}

/// Inspects `IDENTIFIED BY V` of a statement that creates or alters a user.
pub(crate) fn inspect_identified(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let before = view.bytes[start.saturating_sub(160)..start].to_ascii_uppercase();
    if ![
        &b"CREATE USER"[..],
        b"ALTER USER",
        b"CREATE LOGIN",
        b"ALTER LOGIN",
        b"GRANT ",
        b"CREATE ROLE",
        b"ALTER ROLE",
        b" LINK ",
    ]
    .iter()
    .any(|w| memchr::memmem::find(&before, w).is_some())
    {
        return Inspection::Nothing;
    }
    let mut r = ValueReader { view, at: end, value: None };
    let read = |r: &mut ValueReader<'_>| {
        r.skip(4, |b| b == b' ')?;
        r.value = Some(r.at);
        let quote = r.read_quote()?;
        let start = r.at;
        r.value = Some(start);
        let ends = |b: u8| match quote {
            Quote::Of(q, _) => b == q || b == BREAK,
            Quote::None => matches!(b, BREAK | b' ' | b'\t' | b';' | b'"' | b'\'' | b')'),
        };
        let length = r.skip(MAX_ARGUMENT_BYTES, |b| !ends(b))?;
        r.peek()?;
        let mut end = r.at;
        while end > start && r.view.bytes[end - 1] == b'\\' {
            end -= 1;
        }
        let value = &r.view.bytes[start..end];
        let word =
            quote == Quote::None && (value.eq_ignore_ascii_case(b"values") || value.eq_ignore_ascii_case(b"random"));
        if length < 4 || length == MAX_ARGUMENT_BYTES || word || guard::is_placeholder(value) {
            return Some(Inspection::Nothing);
        }
        Some(Inspection::Found(Span::new(start, end, "password", Rank::Context)))
    };
    read(&mut r).unwrap_or_else(|| r.unfinished())
}
