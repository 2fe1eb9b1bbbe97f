//! The layout of a JSON text: where and how an item is inserted, and which bytes are removed with one. Inserting an item
//! and removing it again restores the same bytes.

use super::entry::{ConfigValue, Splice, line_ending};
use std::ops::Range;

/// The items of an object or a list.
pub(super) struct ItemRanges {
    /// The range between the brackets.
    pub(super) inside: Range<usize>,
    pub(super) each: Vec<Range<usize>>,
}

#[derive(Debug, Clone)]
pub(super) struct JsonStyle {
    pub(super) newline: &'static str,
    /// One step of indentation.
    pub(super) unit: String,
    /// Everything is on one line.
    pub(super) compact: bool,
    /// A space after colons and commas.
    pub(super) spaced: bool,
}

impl JsonStyle {
    pub(super) fn with_line_ending(newline: &'static str) -> Self {
        Self { newline, unit: "  ".to_owned(), compact: false, spaced: true }
    }

    pub(super) fn detect(text: &str) -> Self {
        let body = text.trim();
        // The first key on a line of its own is indented by one step.
        let first = text.lines().find_map(|line| {
            let rest = line.trim_start_matches([' ', '\t']);
            Some(&line[..line.len() - rest.len()]).filter(|unit| !unit.is_empty() && rest.starts_with('"'))
        });
        let single = !body.contains('\n') && body.contains('"');
        Self {
            newline: line_ending(text),
            unit: first.unwrap_or("  ").to_owned(),
            compact: single,
            spaced: !single || body.contains("\": "),
        }
    }
}

/// A value as text. Lines after the first are indented by `indent`.
pub(super) fn render_value(node: &ConfigValue, style: &JsonStyle, indent: &str) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let inner = format!("{indent}{}", style.unit);
    let colon = if style.spaced { ": " } else { ":" };
    let (open, close, items): (_, _, Vec<String>) = match node {
        ConfigValue::Text(text) => return quoted(text),
        ConfigValue::Number(number) => return number.to_string(),
        ConfigValue::Flag(flag) => return flag.to_string(),
        ConfigValue::List(list) => {
            // A list of scalars is written on one line.
            let words = list.iter().all(|n| !matches!(n, ConfigValue::List(_) | ConfigValue::Map(_)));
            let style = JsonStyle { compact: style.compact || words, ..style.clone() };
            let items: Vec<String> = list.iter().map(|n| render_value(n, &style, &inner)).collect();
            return enclose("[", "]", &items, &style, indent, &inner);
        }
        ConfigValue::Map(map) => (
            "{",
            "}",
            map.iter().map(|(k, n)| format!("{}{colon}{}", quoted(k), render_value(n, style, &inner))).collect(),
        ),
    };
    enclose(open, close, &items, style, indent, &inner)
}

fn enclose(open: &str, close: &str, items: &[String], style: &JsonStyle, indent: &str, inner: &str) -> String {
    if items.is_empty() {
        return format!("{open}{close}");
    }
    if style.compact {
        return format!("{open}{}{close}", items.join(if style.spaced { ", " } else { "," }));
    }
    let nl = style.newline;
    format!("{open}{nl}{inner}{}{nl}{indent}{close}", items.join(&format!(",{nl}{inner}")))
}

/// The indentation of the line of an offset.
fn indent_at(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |n| n + 1);
    let line = &text[start..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Whether only blanks precede an offset on its line.
fn begins_line(text: &str, at: usize) -> bool {
    text[..at].trim_end_matches([' ', '\t']).ends_with('\n')
}

fn rest_of_line(text: &str, at: usize) -> &str {
    text[at..].lines().next().unwrap_or_default().trim()
}

fn line_before(text: &str, at: usize) -> &str {
    let end = text[..at].rfind('\n').unwrap_or_default();
    text[..end].lines().next_back().unwrap_or_default()
}

/// What follows an item: the end of its comma, if it has one, and the end of the last comment on the line of the item (or
/// of the comma).
fn find_item_end(text: &str, end: usize, limit: usize) -> (Option<usize>, usize) {
    let (mut at, mut comma, mut comment_end) = (end, None, end);
    let mut same_line = true;
    while at < limit {
        let rest = &text[at..limit];
        if let Some(comment) = rest.strip_prefix("//") {
            at += 2 + comment.find(['\n', '\r']).unwrap_or(comment.len());
            comment_end = if same_line { at } else { comment_end };
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let length = comment.find("*/").map_or(comment.len(), |n| n + 2);
            same_line &= !comment[..length].contains('\n');
            at += 2 + length;
            comment_end = if same_line { at } else { comment_end };
        } else if rest.starts_with(',') && comma.is_none() {
            at += 1;
            comma = Some(at);
            // Text between the item and its comma belongs to the item.
            (comment_end, same_line) = (at, true);
        } else if rest.starts_with([' ', '\t', '\r']) {
            at += 1;
        } else if rest.starts_with('\n') {
            at += 1;
            same_line = false;
            if comma.is_some() {
                break;
            }
        } else {
            break;
        }
    }
    (comma, comment_end)
}

/// The end of the last comment between brackets that contain nothing else.
fn comments_end(text: &str, inside: &Range<usize>) -> usize {
    inside.start + text[inside.clone()].trim_end().len()
}

/// Inserts an item behind the last one.
pub(super) fn insert_item(
    text: &str,
    open: usize,
    items: &ItemRanges,
    item: &dyn Fn(&JsonStyle, &str) -> String,
) -> Vec<Splice> {
    let style = JsonStyle::detect(text);
    let outer = indent_at(text, open).to_owned();
    let ItemRanges { inside, each } = items;
    let Some(last) = each.last() else {
        let at = comments_end(text, inside);
        if style.compact {
            let replaced = if at == inside.start { inside.clone() } else { at..at };
            return vec![Splice(replaced, item(&style, ""))];
        }
        let inner = format!("{outer}{}", style.unit);
        let nl = style.newline;
        let body = format!("{nl}{inner}{}", item(&style, &inner));
        let splice = if at == inside.start {
            Splice(inside.clone(), format!("{body}{nl}{outer}"))
        } else if text[at..inside.end].contains('\n') {
            Splice(at..at, body)
        } else {
            Splice(at..inside.end, format!("{body}{nl}{outer}"))
        };
        return vec![splice];
    };
    let (comma, at) = find_item_end(text, last.end, inside.end);
    if !text[inside.clone()].contains('\n') {
        let style = JsonStyle { compact: true, ..style };
        let gap = if style.spaced { " " } else { "" };
        let body = item(&style, "");
        return match comma {
            Some(_) => vec![Splice(at..at, format!("{gap}{body},"))],
            None => vec![Splice(last.end..last.end, format!(",{gap}{body}"))],
        };
    }
    let inner = if begins_line(text, last.start) {
        indent_at(text, last.start).to_owned()
    } else {
        format!("{outer}{}", style.unit)
    };
    let body = format!("{}{inner}{}", style.newline, item(&style, &inner));
    match comma {
        Some(_) => vec![Splice(at..at, format!("{body},"))],
        None if at == last.end => vec![Splice(at..at, format!(",{body}"))],
        None => vec![Splice(last.end..last.end, ",".to_owned()), Splice(at..at, body)],
    }
}

/// Removes an item with its line and its comma; the last item takes the comma before it along.
pub(super) fn remove_item(text: &str, items: &ItemRanges, which: usize) -> Vec<Splice> {
    let ItemRanges { inside, each } = items;
    let item = &each[which];
    let (comma, comment_end) = find_item_end(text, item.end, inside.end);
    let end = comma.unwrap_or(item.end);
    if each.len() == 1 {
        let around = format!("{}{}", &text[inside.start..item.start], &text[end..inside.end]);
        if around.trim().is_empty() && text[item.end..end].trim_matches([',', ' ', '\n', '\r', '\t']).is_empty() {
            return vec![Splice(inside.clone(), String::new())];
        }
    }
    let mut splices = Vec::new();
    if let (None, Some(before)) = (comma, which.checked_sub(1).map(|b| &each[b])) {
        let (comma_before, _) = find_item_end(text, before.end, item.start);
        splices.extend(comma_before.map(|at| Splice(at - 1..at, String::new())));
    }
    let start = match (begins_line(text, item.start), comment_end > end) {
        // A comment behind the item is the user's: its line stays.
        (_, true) => item.start,
        // The rest of this line must not end up behind a comment.
        (true, false) if !rest_of_line(text, end).is_empty() && line_before(text, item.start).contains("//") => {
            item.start
        }
        (true, false) => {
            let blank = text[..item.start].trim_end_matches([' ', '\t']);
            let blank = blank.strip_suffix('\n').unwrap_or(blank);
            blank.strip_suffix('\r').unwrap_or(blank).len()
        }
        (false, false) => text[..item.start].trim_end_matches([' ', '\t']).len().max(inside.start),
    };
    splices.push(Splice(start..end, String::new()));
    splices
}
