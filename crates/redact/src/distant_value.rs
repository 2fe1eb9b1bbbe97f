//! Finds values that no separator joins to their names: on a line below, in an object, in a sentence, in a row of a table.

use crate::{
    context::{MAX_BLANKS, MAX_WEAK_VALUE_BYTES},
    separator::Separator,
    value_reader::{BREAK, Quote, ValueReader},
    value_syntax::{is_text_next, skip_line_break},
    visible_text::TextView,
};

/// The longest rest of a line behind a name whose value is on the next line.
const MAX_REST_BYTES: usize = 120;
/// How far into an object its value is searched.
const MAX_OBJECT_BYTES: usize = 280;
/// The most members of an object between the name and its value.
const MAX_MEMBERS: usize = 5;
/// A shorter text on a line of its own is a word.
const MIN_LONE_BYTES: usize = 8;
/// The most bytes of a cell between a name and its value.
const MAX_CELL_BYTES: usize = 40;

/// Words of sentences between a name and its value.
const FILLERS: &[&[u8]] = &[
    b"is ",
    b"was ",
    b"put ",
    b"to ",
    b"as ",
    b"now ",
    b"set to ",
    b"changed to ",
    b"use ",
    b"value ",
    b"new ",
    b"the ",
    b"= ",
    b"here ",
    b"here: ",
    b"is: ",
    b"are ",
    b"with value ",
    b"provided: ",
    b"value: ",
    b"set: ",
];
const MAX_FILLERS: usize = 3;

/// A value far from its name: where it begins, and how it has to be judged.
type DistantValue = (usize, Separator);

/// A name that was read: where it begins, whether it is closed by a quote, and how many blanks follow.
#[derive(Clone, Copy)]
pub(crate) struct NameEnd {
    pub(crate) begin: usize,
    pub(crate) closed: bool,
    pub(crate) blanks: usize,
}

/// Finds the value of the name that ends at `r`. The inner `None`: there is none. The reader does not move, but notes where a
/// value may have begun.
pub(crate) fn find_distant_value(r: &mut ValueReader<'_>, name: NameEnd) -> Option<Option<DistantValue>> {
    let (from, value) = (r.at, r.value);
    let found = find(r, name);
    r.at = from;
    if let Some(None) = found {
        r.value = value;
    }
    found
}

fn find(r: &mut ValueReader<'_>, name: NameEnd) -> Option<Option<DistantValue>> {
    let from = r.at;
    let text = &r.view.bytes[name.begin..r.at - name.blanks];
    // `-----BEGIN PRIVATE KEY-----`
    if text.ends_with(b"-") {
        return Some(None);
    }
    // An ordinary word, a file and a part of a path are no names.
    let is_file = text.contains(&b'.') || r.view.bytes[..name.begin].ends_with(b"/");
    let in_sentence = name.blanks == 1 && !name.closed && !is_file && !matches!(text, b"pass" | b"Pass" | b"pw");
    match r.peek()? {
        b':' | b'=' => {
            r.at += 1;
            r.skip(MAX_BLANKS, |b| b == b' ')?;
            if r.peek()? == b'{' {
                r.at += 1;
                return Some(find_member(r)?.map(|at| (at, Separator::Apart)));
            }
        }
        b';' | b',' if !name.closed && name.blanks == 0 && begins_cell(r.view, name.begin) => {
            r.at += 1;
            r.value = Some(r.at);
            let ends_cell = |b: u8| matches!(b, b';' | b',' | BREAK);
            return Some((!ends_cell(r.peek()?) && r.peek()? != b' ').then_some((r.at, Separator::Near)));
        }
        b'c' | b'v' if name.closed && name.blanks == 1 => {
            for attribute in [&b"content="[..], b"value="] {
                if is_text_next(r, attribute)? {
                    return Some(Some((r.at + attribute.len(), Separator::Apart)));
                }
            }
        }
        b',' | BREAK if name.closed => {
            if let Some(at) = find_member(r)? {
                return Some(Some((at, Separator::Apart)));
            }
        }
        b'|' => {
            if let Some(at) = find_cell(r)? {
                return Some(Some((at, Separator::Near)));
            }
        }
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'(' | b'"' | b'\'' | b'`' if in_sentence && may_have_digit(r) => {
            if let Some(at) = skip_fillers(r)? {
                return Some(Some((at, Separator::Near)));
            }
        }
        _ => {}
    }
    r.at = from;
    Some(find_below(r, name.begin)?.map(|at| (at, Separator::Below)))
}

/// Finds the value in `"NAME": {"type": "string", "value": "V"}`, or behind `"Name": "NAME", "Type": "x", "Value": "V"`.
fn find_member(r: &mut ValueReader<'_>) -> Option<Option<usize>> {
    let from = r.at;
    for member in 0..MAX_MEMBERS {
        // The signs of a diff of a plan stand before a member.
        let divides = |b: u8| matches!(b, b' ' | b'\t' | b',' | b'+' | b'~' | BREAK);
        while r.at - from <= MAX_OBJECT_BYTES && (r.at < r.view.len() || !r.view.end) {
            // A line break in a text inside a text.
            let is_written = r.peek()? == b'\\' && r.peek_at(1)? == b'n';
            // A value on the line below may begin with a comma.
            let is_first = member == 0 && r.at > from && r.peek()? == b',';
            if !is_written && (!divides(r.peek()?) || is_first) || r.view.is_moved_at(r.at) {
                break;
            }
            r.at += 1 + usize::from(is_written);
        }
        // A value on the line below begins like a member.
        r.value = Some(r.at);
        let quote = r.read_quote()?;
        let start = r.at;
        r.skip(MAX_BLANKS, |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))?;
        let key = &r.view.bytes[start..r.at];
        if key.is_empty() || r.at - from > MAX_OBJECT_BYTES {
            return Some(None);
        }
        let is_value = key.len() >= 5 && key[key.len() - 5..].eq_ignore_ascii_case(b"value")
            || key.eq_ignore_ascii_case(b"default");
        if quote != Quote::None {
            r.read_quote()?;
        }
        r.skip(MAX_BLANKS, |b| b == b' ')?;
        if !matches!(r.peek()?, b':' | b'=') {
            return Some(None);
        }
        r.at += 1;
        r.skip(MAX_BLANKS, |b| b == b' ')?;
        // Base64 ends like a name with its separator.
        if r.peek()? != BREAK {
            r.value = None;
        }
        if is_value {
            r.value = Some(r.at);
            let is_quoted = matches!(r.peek()?, b'"' | b'\'' | b'\\');
            return Some(is_quoted.then_some(r.at));
        }
        // The value of another member: one word or one text.
        if let Quote::Of(q, slashes) = r.read_quote()? {
            let start = r.at;
            while !r.is_closing_quote(q, slashes)? {
                if r.peek()? == BREAK || r.at - start > MAX_REST_BYTES {
                    return Some(None);
                }
                r.at += 1;
            }
            r.at += slashes + 1;
        } else {
            r.skip(MAX_BLANKS, |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'{' | b'}' | b'[' | b']'))?;
        }
    }
    Some(None)
}

/// Whether a cell of a row of values begins here.
fn begins_cell(view: TextView<'_>, begin: usize) -> bool {
    let before = begin.checked_sub(1).and_then(|at| view.byte(at));
    before.is_none_or(|b| matches!(b, b';' | b',' | b'\n'))
}

/// Finds the value in another cell of the row: `| NAME | bob | V |`.
fn find_cell(r: &mut ValueReader<'_>) -> Option<Option<usize>> {
    for _ in 0..3 {
        // `a || b`
        if !r.take_byte(b'|')? || r.peek()? == b'|' {
            return Some(None);
        }
        r.skip(MAX_BLANKS, |b| matches!(b, b' ' | b'`' | b'*'))?;
        let start = r.at;
        r.value = Some(start);
        let length = r.skip(MAX_WEAK_VALUE_BYTES, |b| !matches!(b, b'|' | b' ' | b'`' | BREAK))?;
        if length >= MIN_LONE_BYTES + 2 && r.view.bytes[start..r.at].iter().any(u8::is_ascii_digit) {
            return Some(Some(start));
        }
        r.skip(MAX_CELL_BYTES, |b| !matches!(b, b'|' | BREAK))?;
    }
    Some(None)
}

/// Skips the words of a sentence before a value: `the API key is V`, `the token (V)`. None inside: no value follows.
fn skip_fillers(r: &mut ValueReader<'_>) -> Option<Option<usize>> {
    // `for the backup `
    if is_text_next(r, b"for ")? || is_text_next(r, b"of ")? || is_text_next(r, b"in ")? || is_text_next(r, b"on ")? {
        r.skip(4, |b| b != b' ')?;
        r.at += 1;
        for _ in 0..2 {
            if is_filler_next(r)?.is_some() {
                break;
            }
            r.skip(MAX_CELL_BYTES, |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'/'))?;
            if !r.take_byte(b' ')? {
                return Some(None);
            }
        }
        if is_filler_next(r)?.is_none() {
            return Some(None);
        }
    }
    for _ in 0..MAX_FILLERS {
        match is_filler_next(r)? {
            Some(length) => r.at += length,
            None => break,
        }
    }
    // `(`, a quote, and the value.
    r.skip(2, |b| matches!(b, b'(' | b'"' | b'\'' | b'`' | b'*'))?;
    r.value = Some(r.at);
    let start = r.at;
    let is_value = |b: u8| !matches!(b, BREAK | b' ' | b'"' | b'\'' | b'`' | b')' | b'(' | b',');
    let length = r.skip(MAX_WEAK_VALUE_BYTES, is_value)?;
    let has_digit = r.view.bytes[start..r.at].iter().any(u8::is_ascii_digit);
    Some((length >= MIN_LONE_BYTES && has_digit).then_some(start))
}

/// The length of the word of a sentence that is next.
fn is_filler_next(r: &ValueReader<'_>) -> Option<Option<usize>> {
    for filler in FILLERS {
        if is_text_next(r, filler)? {
            return Some(Some(filler.len()));
        }
    }
    Some(None)
}

/// Finds a value that stands alone on the line below: below a heading, or as the answer of a command.
fn find_below(r: &mut ValueReader<'_>, begin: usize) -> Option<Option<usize>> {
    let view = r.view;
    let (rest, is_whole) = line_behind(r);
    // Most lines end with other words, and the lines below them are no single word.
    if !is_whole || !may_be_alone(&view.bytes[r.at + rest.len()..]) {
        return Some(None);
    }
    r.at += rest.len();
    if view.is_moved_at(r.at) {
        return Some(None);
    }
    let rest = rest.trim_ascii();
    let rest = rest.strip_suffix(b"done").unwrap_or(rest);
    let ends =
        rest.iter().all(|b| matches!(b, b':' | b'.' | b'\'' | b'"' | b'`' | b')' | b']' | b'}' | b'*' | b'>' | b' '));
    if !ends && !is_command_line(view, begin) || !skip_line_break(r)? {
        return Some(None);
    }
    if r.peek()? == BREAK && !view.is_moved_at(r.at) && !skip_line_break(r)? {
        return Some(None);
    }
    // `NAME:`, `----` and the value, as `kubectl describe` shows the data of a ConfigMap.
    if r.skip(4, |b| b == b'-')? == 4 && !(r.peek()? == BREAK && skip_line_break(r)?) {
        return Some(None);
    }
    r.skip(MAX_BLANKS, |b| b == b' ')?;
    let start = r.at;
    // Most lines below a name are no single word.
    let first = r.peek()?;
    if !first.is_ascii_graphic() || matches!(first, b'-' | b'<' | b'{' | b'[' | b'(' | b'|' | b'=' | b'/') {
        return Some(None);
    }
    r.value = Some(start);
    let quote = r.read_quote()?;
    let word = r.at;
    let length = r.skip(MAX_WEAK_VALUE_BYTES, |b| b.is_ascii_graphic())?;
    let value = &view.bytes[word..r.at];
    let value = if quote == Quote::None { value } else { &value[..value.len().saturating_sub(1)] };
    let divides = |b: &u8| matches!(b, b'=' | b'(' | b'<' | b'{' | b'"' | b'\'' | b'`' | b';');
    let body = value.strip_suffix(b"==").or(value.strip_suffix(b"=")).unwrap_or(value);
    let is_word = length >= MIN_LONE_BYTES && r.peek()? == BREAK && !body.iter().any(divides) && !value.ends_with(b":");
    r.value = is_word.then_some(start);
    Some(is_word.then_some(start))
}

/// The rest of the line, and whether its end is there and near.
fn line_behind<'v>(r: &ValueReader<'v>) -> (&'v [u8], bool) {
    let rest = &r.view.bytes[r.at..];
    let rest = &rest[..rest.len().min(MAX_REST_BYTES)];
    match memchr::memchr2(b'\n', b'\r', rest) {
        Some(length) => (&rest[..length], true),
        None => (rest, false),
    }
}

/// Whether the rest of the line has a digit, or may get one: a value in a sentence has one.
fn may_have_digit(r: &ValueReader<'_>) -> bool {
    let (rest, is_whole) = line_behind(r);
    rest.iter().any(u8::is_ascii_digit) || !is_whole && rest.len() < MAX_REST_BYTES && !r.view.end
}

/// Whether the line behind these breaks may be one word so far: the bytes that are there have no blank inside.
fn may_be_alone(text: &[u8]) -> bool {
    let start = text.iter().take(MAX_BLANKS).take_while(|b| matches!(b, b'\n' | b'\r' | b' ' | b'-')).count();
    text[start..].iter().take(MIN_LONE_BYTES).all(u8::is_ascii_graphic)
}

/// Whether the line of a name is a command: a prompt begins it, or the name is the argument of a program that prints values.
fn is_command_line(view: TextView<'_>, begin: usize) -> bool {
    const PROMPTS: &[&[u8]] = &[b"$ ", b"# ", b"% ", b"> ", b"\xaf ", b"\x9c ", b"\x97 "];
    let line = view.line_start(begin, MAX_REST_BYTES);
    let before = &view.bytes[line..begin];
    PROMPTS.iter().any(|prompt| memchr::memmem::find(before, prompt).is_some())
        || before.starts_with(b"+") && before.iter().take(5).any(|b| *b == b' ')
        || [&b"echo "[..], b"printenv "].iter().any(|command| before.starts_with(command))
}
