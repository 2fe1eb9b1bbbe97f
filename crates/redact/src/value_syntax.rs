//! Reads how values are written: wrappers and schemes before them, blocks below their names, and where they end.

use crate::{
    context::{MAX_BLANKS, MAX_NAME_REACH_BYTES, MAX_VALUE_BYTES, MAX_WEAK_VALUE_BYTES},
    guard,
    value_reader::{BREAK, Quote, ValueReader},
};

/// Reads the second value in `"old" -> "new"`; the reader is before the first closing quote.
pub(crate) fn read_changed_value(r: &mut ValueReader<'_>, slashes: usize) -> Option<Option<(usize, usize)>> {
    const ARROW: &[u8] = b" -> ";
    let mut at = slashes + 1;
    for want in ARROW {
        // What comes later does not change the first value, but it must not be decided without the second.
        if r.peek_at(at)? != *want {
            return Some(None);
        }
        at += 1;
    }
    let mut reader = ValueReader { view: r.view, at: r.at + at, value: None };
    let Quote::Of(quote, slashes) = reader.read_quote()? else { return Some(None) };
    let from = reader.at;
    while !reader.is_closing_quote(quote, slashes)? {
        if reader.peek()? == BREAK || reader.at - from >= MAX_VALUE_BYTES {
            return Some(None);
        }
        reader.at += 1;
    }
    let value = &r.view.bytes[from..reader.at];
    Some((value.len() >= 4 && !guard::is_placeholder(value)).then_some((from, reader.at)))
}

/// Skips `>-` or `|` and the line break behind it, to the value on the next line. False: there is none, and the reader has
/// not moved.
pub(crate) fn skip_block_header(r: &mut ValueReader<'_>, begin: usize) -> Option<bool> {
    let from = r.at;
    let has_header = matches!(r.peek()?, b'|' | b'>');
    if !has_header && r.peek()? != BREAK {
        return Some(false);
    }
    r.at += usize::from(has_header);
    r.skip(2, |b| matches!(b, b'-' | b'+' | b'1'..=b'9'))?;
    if r.peek()? != BREAK || r.view.is_moved_at(r.at) || !skip_line_break(r)? {
        r.at = from;
        return Some(false);
    }
    let line = r.view.line_start(begin, MAX_NAME_REACH_BYTES);
    let indent = r.view.bytes[line..begin].iter().take_while(|b| matches!(b, b' ' | b'-')).count();
    let blanks = r.skip(2 * MAX_BLANKS, |b| b == b' ')?;
    if blanks <= indent || !has_header && !is_alone_in_line(r)? {
        r.at = from;
        return Some(false);
    }
    Some(true)
}

/// Whether the line consists of one plain value.
fn is_alone_in_line(r: &ValueReader<'_>) -> Option<bool> {
    let mut line = ValueReader { view: r.view, at: r.at, value: None };
    loop {
        let (b, n) = (line.peek()?, line.at - r.at);
        if b == BREAK {
            break;
        }
        let divides = matches!(b, b' ' | b'\t' | b'"' | b'\'' | b'`' | b'{' | b'[' | b'<' | b'(' | b'#' | b',' | b'|');
        if divides || n == 0 && matches!(b, b'-' | b'*' | b'&' | b'!' | b'$' | b'@') || n >= MAX_WEAK_VALUE_BYTES {
            return Some(false);
        }
        line.at += 1;
    }
    let value = &r.view.bytes[r.at..line.at];
    Some(!value.is_empty() && !value.ends_with(b":") && !value.ends_with(b";"))
}

/// Skips one line break. False: the stream has ended.
pub(crate) fn skip_line_break(r: &mut ValueReader<'_>) -> Option<bool> {
    match (r.view.byte(r.at), r.view.byte(r.at + 1)) {
        (Some(b'\r'), Some(b'\n')) => r.at += 2,
        (Some(b'\r'), None) if !r.view.end => return None,
        (Some(b'\n' | b'\r'), _) => r.at += 1,
        (None, _) if !r.view.end => return None,
        _ => return Some(false),
    }
    Some(true)
}

/// The end of the further lines of a block: indented like the first, and without blanks or names.
pub(crate) fn skip_block_lines(r: &mut ValueReader<'_>, start: usize, end: usize) -> Option<usize> {
    let line = r.view.line_start(start, 4 * MAX_BLANKS);
    let indent = start - line;
    let mut end = end;
    while r.peek()? == BREAK && !r.view.is_moved_at(r.at) && r.at - start < MAX_VALUE_BYTES {
        if !skip_line_break(r)? {
            break;
        }
        let blanks = r.skip(2 * MAX_BLANKS, |b| b == b' ')?;
        let length = r.skip(MAX_WEAK_VALUE_BYTES, |b| b != BREAK && !matches!(b, b' ' | b':' | b'"' | b'#' | b'{'))?;
        if blanks != indent || length < 4 || r.peek()? != BREAK {
            break;
        }
        end = r.at;
    }
    Some(end)
}

/// Skips a type between `:` and `=`, with the `=`. False: there is none, and the reader has not moved.
pub(crate) fn skip_type(r: &mut ValueReader<'_>) -> Option<bool> {
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
        r.skip(MAX_BLANKS, |b| b == b' ')?;
        return Some(true);
    }
    r.at = from;
    Some(false)
}

/// Skips `&anchor ` or `!tag ` before a value of YAML.
pub(crate) fn skip_yaml_marker(r: &mut ValueReader<'_>) -> Option<()> {
    if !matches!(r.peek()?, b'&' | b'!') {
        return Some(());
    }
    let mut length = 1;
    while length < MAX_BLANKS
        && (r.peek_at(length)?.is_ascii_alphanumeric() || matches!(r.peek_at(length)?, b'!' | b'_' | b'-'))
    {
        length += 1;
    }
    if length > 1 && r.peek_at(length)? == b' ' {
        r.at += length + 1;
    }
    Some(())
}

/// Whether this text is next.
pub(crate) fn is_text_next(r: &ValueReader<'_>, text: &[u8]) -> Option<bool> {
    for (n, want) in text.iter().enumerate() {
        if r.peek_at(n)? != *want {
            return Some(false);
        }
    }
    Some(true)
}

/// Skips this text if it is there. True: it was.
pub(crate) fn skip_text(r: &mut ValueReader<'_>, text: &[u8]) -> Option<bool> {
    let is_next = is_text_next(r, text)?;
    r.at += if is_next { text.len() } else { 0 };
    Some(is_next)
}

/// Quotes that are no ASCII: `“`, `”`, `‘`, `’`, `«`, `»`.
const CURLY_QUOTES: &[&[u8]] =
    &["“".as_bytes(), "”".as_bytes(), "‘".as_bytes(), "’".as_bytes(), "«".as_bytes(), "»".as_bytes()];

fn is_curly_quote_next(r: &ValueReader<'_>) -> Option<bool> {
    for quote in CURLY_QUOTES {
        if is_text_next(r, quote)? {
            return Some(true);
        }
    }
    Some(false)
}

/// Skips one of those quotes. True: it was there.
pub(crate) fn skip_curly_quote(r: &mut ValueReader<'_>) -> Option<bool> {
    if !matches!(r.peek()?, 0xc2 | 0xe2) {
        return Some(false);
    }
    for quote in CURLY_QUOTES {
        if skip_text(r, quote)? {
            return Some(true);
        }
    }
    Some(false)
}

/// Skips a backslash that continues the line, the line break, and the blanks of the next line.
pub(crate) fn skip_continued_line(r: &mut ValueReader<'_>) -> Option<()> {
    if r.peek()? == b'\\' && r.peek_at(1)? == BREAK {
        let mut next = ValueReader { view: r.view, at: r.at + 1, value: None };
        if skip_line_break(&mut next)? {
            next.skip(2 * MAX_BLANKS, |b| matches!(b, b' ' | b'\t'))?;
            r.at = next.at;
        }
    }
    Some(())
}

/// Skips to a value in quotes that stands alone on the next line.
pub(crate) fn skip_to_quoted_line(r: &mut ValueReader<'_>) -> Option<()> {
    if r.peek()? != BREAK || r.view.is_moved_at(r.at) {
        return Some(());
    }
    let mut next = ValueReader { view: r.view, at: r.at, value: None };
    if !skip_line_break(&mut next)? {
        return Some(());
    }
    next.skip(2 * MAX_BLANKS, |b| matches!(b, b' ' | b'\t'))?;
    let mut line = ValueReader { view: r.view, at: next.at, value: None };
    skip_dumped_type(&mut line)?;
    let Quote::Of(quote @ (b'"' | b'\''), 0) = line.read_quote()? else { return Some(()) };
    let length = line.skip(MAX_WEAK_VALUE_BYTES, |b| b != quote && b != b' ' && b != BREAK)?;
    if length >= 4 && line.take_byte(quote)? {
        line.skip(2, |b| matches!(b, b',' | b';'))?;
        if line.peek()? == BREAK {
            r.at = next.at;
        }
    }
    Some(())
}

/// Skips the condition before a value: `isProd ? "V" : ""`, `${?NAME} "V"`. True: there was one.
pub(crate) fn skip_condition(r: &mut ValueReader<'_>) -> Option<bool> {
    const MAX_CONDITION_BYTES: usize = 40;
    let mut value = ValueReader { view: r.view, at: r.at, value: None };
    if skip_text(&mut value, b"${?")? {
        value.skip(MAX_CONDITION_BYTES, |b| b.is_ascii_alphanumeric() || b == b'_')?;
        if !value.take_byte(b'}')? {
            return Some(false);
        }
    } else {
        let is_part = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'(' | b')' | b'!' | b' ');
        if !value.peek()?.is_ascii_alphabetic() || value.skip(MAX_CONDITION_BYTES, is_part)? == 0 {
            return Some(false);
        }
        if !value.take_byte(b'?')? || value.peek()? != b' ' {
            return Some(false);
        }
    }
    value.skip(MAX_BLANKS, |b| b == b' ')?;
    if !matches!(value.peek()?, b'"' | b'\'' | b'`') {
        return Some(false);
    }
    r.at = value.at;
    Some(true)
}

/// Skips the rest of the format of `printf 'NAME=%s\n' 'V'`, to the value.
pub(crate) fn skip_format(r: &mut ValueReader<'_>) -> Option<()> {
    let mut value = ValueReader { view: r.view, at: r.at, value: None };
    if skip_text(&mut value, b"%s")? {
        skip_text(&mut value, b"\\n")?;
        if value.read_quote()? != Quote::None && value.skip(MAX_BLANKS, |b| b == b' ')? > 0 {
            r.at = value.at;
        }
    }
    Some(())
}

/// Skips the rest of an opening quote of three signs, or of two backticks, and a line break behind it.
pub(crate) fn skip_long_quote(r: &mut ValueReader<'_>, quote: Quote) -> Option<()> {
    match quote {
        Quote::Of(q @ (b'"' | b'\''), 0) if r.peek()? == q && r.peek_at(1)? == q => {
            r.at += 2;
            if r.peek()? == BREAK && skip_line_break(r)? {
                r.skip(2 * MAX_BLANKS, |b| b == b' ')?;
            }
        }
        Quote::Of(b'`', 0) if r.peek()? == b'`' && r.peek_at(1)? != b'`' => r.at += 1,
        _ => {}
    }
    Some(())
}

/// Skips the type before a value as PHP and Go print it: `string(40) "V"`, `(string) (len=40) "V"`.
fn skip_dumped_type(r: &mut ValueReader<'_>) -> Option<()> {
    let mut go = *r;
    if skip_text(&mut go, b"(string) (len=")? && go.skip(6, |b| b.is_ascii_digit())? > 0 && skip_text(&mut go, b") ")? {
        r.at = go.at;
        return Some(());
    }
    let mut value = ValueReader { view: r.view, at: r.at, value: None };
    if skip_text(&mut value, b"string(")? && value.skip(6, |b| b.is_ascii_digit())? > 0 && skip_text(&mut value, b") ")?
    {
        r.at = value.at;
    }
    Some(())
}

/// Skips what wraps a value in program text: `Some("V")`, `String::from("V")`, `("V")`.
pub(crate) fn skip_wrapper(r: &mut ValueReader<'_>) -> Option<()> {
    skip_dumped_type(r)?;
    const WRAPPERS: &[&[u8]] = &[
        b"[]string{",
        b"[]byte(",
        b"(",
        b"[",
        b"Some(",
        b"Ok(",
        b"Just ",
        b"String(",
        b"String::from(",
        b"new String(",
        b"str(",
        b"string(",
        b"bytes(",
        b"Buffer.from(",
        b"Secret(",
        b"SecretStr(",
        b"SecretString(",
        b"SecretString::from(",
        b"Optional.of(",
        b"pulumi.secret(",
        b"Optional[",
        b"pulumi.String(",
    ];
    for wrapper in WRAPPERS {
        let mut matched = 0;
        for want in *wrapper {
            if r.peek_at(matched)? != *want {
                break;
            }
            matched += 1;
        }
        if matched == wrapper.len() {
            let mut quoted = ValueReader { view: r.view, at: r.at + matched, value: None };
            // The value may stand on a line of its own.
            if quoted.peek()? == BREAK && !quoted.view.is_moved_at(quoted.at) && skip_line_break(&mut quoted)? {
                quoted.skip(2 * MAX_BLANKS, |b| b == b' ')?;
                matched = quoted.at - r.at;
            }
            let letter = matches!(quoted.peek()?, b'b' | b'@' | b'r') && matches!(quoted.peek_at(1)?, b'"' | b'\'');
            if letter || matches!(quoted.peek()?, b'"' | b'\'' | b'\\' | b'`') || *wrapper == b"Optional[" {
                r.at += matched;
            }
            return Some(());
        }
    }
    Some(())
}

/// Skips a scheme before the value: `Bearer`, `Basic`, `token`.
pub(crate) fn skip_scheme(r: &mut ValueReader<'_>) -> Option<()> {
    const SCHEMES: &[&[u8]] = &[
        b"bearer ",
        b"basic ",
        b"token ",
        b"bot ",
        b"apikey ",
        b"digest ",
        b"key ",
        b"splunk ",
        b"negotiate ",
        b"ssws ",
        b"geniekey ",
    ];
    for scheme in SCHEMES {
        let mut matched = 0;
        for (n, want) in scheme.iter().enumerate() {
            match r.peek_at(n) {
                Some(b) if b.to_ascii_lowercase() == *want => matched += 1,
                Some(_) => break,
                // More bytes may complete the scheme.
                None if n >= 3 => return None,
                None => break,
            }
        }
        if matched == scheme.len() {
            r.at += matched;
            r.skip(MAX_BLANKS, |b| b == b' ')?;
            return Some(());
        }
    }
    Some(())
}

/// How far a value extends.
pub(crate) struct ValueExtent {
    pub(crate) quote: Quote,
    /// It ends with a blank, whatever signs it contains.
    pub(crate) to_blank: bool,
    pub(crate) in_tag: bool,
    pub(crate) to_line_end: bool,
    pub(crate) max: usize,
}

/// The end of the value; none if it is still to come.
pub(crate) fn find_value_end(r: &mut ValueReader<'_>, extent: &ValueExtent) -> Option<usize> {
    let start = r.at;
    let quote = extent.quote;
    loop {
        let b = r.peek()?;
        if b == BREAK || r.at - start >= extent.max {
            break;
        }
        // A line editor wraps with a blank and a carriage return; the value continues.
        if b == b' '
            && r.at > start
            && (quote == Quote::None || r.at + 3 > r.view.len() || r.view.bytes[r.at + 1] == b'\r')
            && r.view.is_wrapped_at(r.at)?
        {
            r.at += 2;
            continue;
        }
        let ends = match quote {
            Quote::Of(q @ b'&', _) => r.is_closing_quote(q, 0)?,
            Quote::Of(q, 0) => {
                if b == b'\\' && r.peek_at(1)? != BREAK {
                    r.at += 2;
                    continue;
                }
                // A shell writes a quote inside quotes as `'\''`.
                if b == q && q == b'\'' && is_text_next(r, b"'\\''")? {
                    r.at += 4;
                    continue;
                }
                b == q
            }
            Quote::Of(q, slashes) => b == q || b == b'\\' && r.is_closing_quote(q, slashes)?,
            Quote::None if extent.to_line_end => false,
            Quote::None if extent.in_tag => matches!(b, b'<'),
            Quote::None if b == 0 || matches!(b, 0xc2 | 0xe2) && is_curly_quote_next(r)? => true,
            Quote::None if extent.to_blank => matches!(b, b' ' | b'\t' | b'"' | b'\'' | b'`'),
            Quote::None => match b {
                b' ' | b'\t' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'(' | b')' | b'{' | b'}' | b'[' | b']' | b'|'
                | b'\\' => true,
                b',' | b';' | b'&' => ends_at_sign(r)?,
                _ => false,
            },
        };
        if ends {
            break;
        }
        r.at += 1;
    }
    let mut end = r.at;
    if extent.in_tag && r.view.bytes[start..end].ends_with(b"]]>") {
        end -= 3;
    } else if extent.to_line_end || extent.in_tag {
        while end > start && r.view.bytes[end - 1] == b' ' {
            end -= 1;
        }
    } else if quote == Quote::None {
        while end > start && matches!(r.view.bytes[end - 1], b',' | b';' | b')' | b'.') {
            end -= 1;
        }
    }
    Some(end)
}

/// Whether a comma, a semicolon or an `&` ends the value: another name or nothing follows. Otherwise it is part of the value.
pub(crate) fn ends_at_sign(r: &ValueReader<'_>) -> Option<bool> {
    const MAX_NAME_BYTES: usize = 40;
    if !(r.peek_at(1)?.is_ascii_alphanumeric() || matches!(r.peek_at(1)?, b'!'..=b'~')) {
        return Some(true);
    }
    let mut n = 1;
    while n < MAX_NAME_BYTES {
        match r.peek_at(n)? {
            b if b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.') => n += 1,
            // `a&b;` has no other name.
            b';' if r.peek()? == b'&' => {
                let entities = [&b"amp"[..], b"quot", b"lt", b"gt", b"apos"];
                return Some(entities.contains(&&r.view.bytes[r.at + 1..r.at + n]));
            }
            // `&amp;`, `key: value`
            b'=' | b':' | b';' | b')' | b'}' | b']' | b'(' | b'\\' => return Some(true),
            // `Initial Catalog=…`
            b' ' if n > 1 && r.peek_at(1)?.is_ascii_alphabetic() => n += 1,
            b'"' | b'\'' => return Some(n == 1),
            _ => return Some(false),
        }
    }
    Some(true)
}
