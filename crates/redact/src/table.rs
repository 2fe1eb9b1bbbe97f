//! Finds secrets in tables: a row names the columns, and the rows below it have the values, divided by commas, tabs or bars.

use crate::{
    context::REINSPECT_BYTES,
    guard,
    name::NameStrength,
    span::{Inspection, Rank, Span},
    visible_text::{TextView, is_break},
};
use std::ops::Range;

/// A header that ends farther from the name of the column is no header.
const MAX_HEADER_BYTES: usize = 240;
/// How far behind the name of a column its values are searched: as far as the name is inspected again.
const MAX_TABLE_BYTES: usize = REINSPECT_BYTES - 64;
const MAX_ROWS: usize = 16;
const MAX_CELL_BYTES: usize = 300;

/// Whether the line around a name has only bytes that a first row has.
pub(crate) fn may_be_header(view: TextView<'_>, name: usize) -> bool {
    let is_cell = |b: &u8| {
        b.is_ascii_alphanumeric()
            || matches!(b, b'_' | b'-' | b'.' | b' ' | b'"' | b'\'' | b'`' | b'*' | b'\t' | b'|' | b',' | b';')
    };
    let line = view.line_start(name, MAX_HEADER_BYTES);
    view.bytes[line..name].iter().all(is_cell)
        && view.bytes[name..].iter().take(MAX_HEADER_BYTES).take_while(|b| !is_break(**b)).all(is_cell)
}

/// Whether a cell of the first row may be the name of a column.
fn is_column_name(cell: &[u8]) -> bool {
    let (_, cell) = trim_cell(cell);
    !cell.is_empty()
        && cell.len() <= 40
        && cell.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b' '))
        && cell.iter().filter(|b| **b == b' ').count() <= 3
        && cell.iter().any(u8::is_ascii_alphabetic)
}

/// A cell without its blanks, quotes and marks, and where that begins in it.
fn trim_cell(cell: &[u8]) -> (usize, &[u8]) {
    let is_edge = |b: &&u8| matches!(b, b' ' | b'"' | b'\'' | b'`' | b'*' | b'\t' | b'\r');
    let start = cell.iter().take_while(is_edge).count();
    let end = cell.len() - cell[start..].iter().rev().take_while(is_edge).count();
    (start, &cell[start..end])
}

/// A line between the first row and the others: `| --- | --- |`, `+----+----+`.
fn is_rule_line(line: &[u8]) -> bool {
    line.iter().all(|b| matches!(b, b'-' | b'+' | b'|' | b':' | b'=' | b' ' | b'\r'))
}

/// A column of secrets: where its name is, how much that says, and the rule for its values.
pub(crate) struct Column {
    pub(crate) name: Range<usize>,
    pub(crate) strength: NameStrength,
    pub(crate) rule: &'static str,
}

/// Inspects the values below the name of a column. None: there are none.
pub(crate) fn inspect_column(view: TextView<'_>, column: Column) -> Option<Inspection> {
    let Column { name, strength, rule } = column;
    let line = view.line_start(name.start, MAX_HEADER_BYTES);
    let limit = name.start + MAX_TABLE_BYTES;
    let until = view.until_moved(name.start).min(limit);
    let text = |from: usize| &view.bytes[from..until.max(from)];
    let header_end = name.end + text(name.end).iter().take(MAX_HEADER_BYTES).position(|b| is_break(*b))?;
    let header = &view.bytes[line..header_end];
    let divider = [b',', b'\t', b'|', b';'].into_iter().find(|d| header.contains(d))?;
    let column = view.bytes[line..name.start].iter().filter(|b| **b == divider).count();
    let cells = || header.split(|b| *b == divider);
    // Bars may also stand at the edges.
    let inner = || cells().filter(|cell| !trim_cell(cell).1.is_empty());
    let ends_cell = trim_cell(cells().nth(column)?).1.ends_with(&view.bytes[name]);
    if !ends_cell || inner().count() < 2 || !inner().all(is_column_name) {
        return None;
    }
    let (mut spans, mut open) = (Vec::new(), None);
    let mut at = next_line(view, header_end);
    for _ in 0..MAX_ROWS {
        let length = text(at).iter().position(|b| is_break(*b));
        let row = &text(at)[..length.unwrap_or(text(at).len())];
        if row.is_empty() {
            break;
        }
        if !is_rule_line(row) {
            let Some(cell) = row.split(|b| *b == divider).nth(column) else { break };
            let before: usize = row.split(|b| *b == divider).take(column).map(|cell| cell.len() + 1).sum();
            let (edge, value) = trim_cell(cell);
            let from = at + before + edge;
            if length.is_none() && until == view.len() && until < limit && !view.end && !view.is_moved_at(until) {
                open = (!value.is_empty()).then_some(from);
                break;
            }
            if row.split(|b| *b == divider).count() != cells().count() {
                break;
            }
            if value.len() <= MAX_CELL_BYTES && guard::is_secret_in_table(strength, value) {
                spans.push(Span::new(from, from + value.len(), rule, Rank::Context));
            }
        }
        let Some(length) = length else { break };
        at = next_line(view, at + length);
    }
    (!spans.is_empty() || open.is_some()).then(|| Inspection::from_parts(spans, open))
}

/// Where the next line begins behind a line break.
fn next_line(view: TextView<'_>, at: usize) -> usize {
    at + if view.bytes[at..].starts_with(b"\r\n") { 2 } else { 1 }
}

/// Whether a name stands among the columns of `INSERT INTO t (a, NAME)`.
pub(crate) fn is_in_insert(view: TextView<'_>, name: usize) -> bool {
    let before = &view.bytes[view.line_start(name, MAX_HEADER_BYTES)..name];
    let Some(open) = memchr::memrchr(b'(', before) else { return false };
    let is_insert = |word: &[u8]| word.eq_ignore_ascii_case(b"insert");
    before[..open].split(|b| !b.is_ascii_alphanumeric()).any(is_insert)
}

/// Inspects the value of a column of `INSERT INTO t (a, NAME) VALUES ('x', 'V')`. None: there is none.
pub(crate) fn inspect_insert(view: TextView<'_>, column: Column) -> Option<Inspection> {
    let Column { name, strength, rule } = column;
    let line = view.line_start(name.start, MAX_HEADER_BYTES);
    let before = &view.bytes[line..name.start];
    let open = memchr::memrchr(b'(', before)?;
    let column = before[open..].iter().filter(|b| **b == b',').count();
    let limit = name.start + MAX_TABLE_BYTES;
    let until = view.until_moved(name.start).min(limit);
    let text = &view.bytes[name.end..until.max(name.end)];
    let names = memchr::memchr(b')', text)?;
    let values = names + memchr::memmem::find(&text[names..].to_ascii_uppercase(), b"VALUES")? + b"VALUES".len();
    let mut at = values + memchr::memchr(b'(', &text[values..])? + 1;
    let is_whole = until < view.len() || until == limit || view.end || view.is_moved_at(until);
    // The values before, in quotes or not.
    for _ in 0..column {
        at += text[at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        if text.get(at) == Some(&b'\'') {
            at += 1 + memchr::memchr(b'\'', &text[at + 1..])? + 1;
        }
        at += memchr::memchr2(b',', b')', text.get(at..)?)? + 1;
    }
    at += text[at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
    if text.get(at) != Some(&b'\'') {
        return None;
    }
    let from = at + 1;
    let Some(length) = memchr::memchr(b'\'', &text[from..]) else {
        return (!is_whole && from < text.len()).then_some(Inspection::Open(name.end + from));
    };
    let value = &text[from..from + length];
    let start = name.end + from;
    (value.len() <= MAX_CELL_BYTES && guard::is_secret_in_table(strength, value))
        .then(|| Inspection::Found(Span::new(start, start + length, rule, Rank::Context)))
}
