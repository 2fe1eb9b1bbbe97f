//! Adds a table at the end of a TOML text, and removes it by its position. Every other byte stays, line endings, too: writing
//! the parsed document back would not keep them.

use super::entry::{
    ConfigValue, EditedText, Entry, EntryOwner, SERVER_NAME, Splice, apply_splices, line_ending, line_number,
};
use crate::EditError;
use std::ops::Range;
use toml_edit::{Document, Item, Table, TableLike, Value};

pub(super) fn put_entry(text: &str, entry: &Entry, owner: &EntryOwner) -> Result<EditedText, EditError> {
    let Entry::Server { table, value, fixed } = entry else { return Err(EditError::NoSuchEntry("TOML")) };
    let doc = parse(text)?;
    let splices = match find_server(text, &doc, table)? {
        None => vec![Splice(text.len()..text.len(), render_table(text, table, value))],
        Some(Item::Table(ours)) if !ours.is_dotted() => {
            reject_foreign_server(text, table, ours, ours.span(), owner)?;
            set_keys(text, ours, value, fixed)
        }
        Some(other) => match other.as_table_like() {
            Some(ours) if is_our_server(ours, owner) && value.iter().all(|(k, n)| has_value(ours.get(k), n)) => {
                Vec::new()
            }
            Some(ours) => {
                reject_foreign_server(text, table, ours, other.span(), owner)?;
                let line = line_number(text, other.span().map_or(0, |s| s.start));
                return Err(EditError::Inline { line, table: (*table).to_owned() });
            }
            None => return Err(EditError::NotATable((*table).to_owned())),
        },
    };
    let text = apply_splices(text, splices);
    // TOML has more ways to close a table to additions than are checked above.
    parse(&text).map_err(|e| EditError::NotExtensible { table: (*table).to_owned(), error: Box::new(e) })?;
    Ok(EditedText { text, made: Vec::new() })
}

pub(super) fn remove_entry(text: &str, entry: &Entry, owner: &EntryOwner) -> Result<String, EditError> {
    let Entry::Server { table, .. } = entry else { return Ok(text.to_owned()) };
    let doc = parse(text)?;
    let ours = match find_server(text, &doc, table) {
        Ok(Some(found)) if found.as_table_like().is_some_and(|ours| is_our_server(ours, owner)) => match found {
            Item::Table(ours) if !ours.is_dotted() => ours,
            _ => return Err(EditError::InlineToRemove((*table).to_owned())),
        },
        _ => return Ok(text.to_owned()),
    };
    let mut blocks = Vec::new();
    collect_blocks(ours, &mut blocks);
    let without =
        apply_splices(text, blocks.into_iter().map(|b| Splice(whole_lines(text, b), String::new())).collect());
    parse(&without)?;
    Ok(without)
}

/// Why the agent would ignore the entry.
pub(super) fn find_switch_off(text: &str, entry: &Entry) -> Option<String> {
    let Entry::Server { table, .. } = entry else { return None };
    let doc = parse(text).ok()?;
    let enabled = find_server(text, &doc, table).ok()??.get("enabled")?.as_bool();
    (enabled == Some(false)).then(|| format!("`{table}.{SERVER_NAME}.enabled` is false"))
}

/// Whether the user trusts this hook in Codex, which records that by file, event and position.
pub(super) fn codex_trusts(text: &str, hook: &str) -> bool {
    let Ok(doc) = parse(text) else { return false };
    let state = doc.get("hooks").and_then(|h| h.get("state")).and_then(|s| s.get(hook));
    state.and_then(|s| s.get("trusted_hash")).and_then(Item::as_str).is_some_and(|hash| !hash.is_empty())
}

fn parse(text: &str) -> Result<Document<&str>, EditError> {
    Document::parse(text).map_err(|e| {
        let at = e.span().map_or(String::new(), |s| format!("line {}: ", line_number(text, s.start)));
        EditError::Invalid { format: "TOML", reason: format!("{at}{}", e.message()) }
    })
}

fn find_server<'d>(text: &str, doc: &'d Document<&str>, table: &str) -> Result<Option<&'d Item>, EditError> {
    match doc.as_table().get(table) {
        None => Ok(None),
        Some(Item::Table(servers)) => Ok(servers.get(SERVER_NAME)),
        Some(other) => {
            let line = line_number(text, other.span().map_or(0, |s| s.start));
            let ours = other.as_table_like().and_then(|t| t.get(SERVER_NAME));
            ours.map(Some).ok_or_else(|| EditError::ClosedTable { line, table: table.to_owned() })
        }
    }
}

fn reject_foreign_server(
    text: &str,
    table: &str,
    ours: &dyn TableLike,
    span: Option<Range<usize>>,
    owner: &EntryOwner,
) -> Result<(), EditError> {
    if is_our_server(ours, owner) {
        return Ok(());
    }
    Err(EditError::ForeignServer { line: line_number(text, span.map_or(0, |s| s.start)), table: table.to_owned() })
}

fn is_our_server(server: &dyn TableLike, owner: &EntryOwner) -> bool {
    let args = server.get("args").and_then(Item::as_array).into_iter().flatten().filter_map(Value::as_str);
    server
        .get("command")
        .and_then(Item::as_str)
        .is_some_and(|program| owner.owns_server([program].into_iter().chain(args)))
}

fn render_value(node: &ConfigValue) -> String {
    match node {
        ConfigValue::Text(text) => Value::from(text.as_str()).to_string().trim().to_owned(),
        ConfigValue::Number(number) => number.to_string(),
        ConfigValue::Flag(flag) => flag.to_string(),
        ConfigValue::List(list) => format!("[{}]", list.iter().map(render_value).collect::<Vec<_>>().join(", ")),
        ConfigValue::Map(map) => {
            format!(
                "{{ {} }}",
                map.iter().map(|(k, n)| format!("{k} = {}", render_value(n))).collect::<Vec<_>>().join(", ")
            )
        }
    }
}

fn render_table(text: &str, table: &str, value: &[(&'static str, ConfigValue)]) -> String {
    let nl = line_ending(text);
    let mut block = String::new();
    if !text.is_empty() && !text.ends_with('\n') {
        block.push_str(nl);
    }
    if !text.trim_start_matches('\u{feff}').trim().is_empty() {
        block.push_str(nl);
    }
    block.push_str(&format!("[{table}.{SERVER_NAME}]{nl}"));
    value.iter().for_each(|(key, node)| block.push_str(&format!("{key} = {}{nl}", render_value(node))));
    block
}

fn set_keys(text: &str, ours: &Table, wanted: &[(&'static str, ConfigValue)], fixed: &[&str]) -> Vec<Splice> {
    let nl = line_ending(text);
    let mut splices = Vec::new();
    let mut missing = String::new();
    for (key, node) in wanted {
        match ours.get(key) {
            None => missing.push_str(&format!("{nl}{key} = {}", render_value(node))),
            Some(item) if fixed.contains(key) && !has_value(Some(item), node) => {
                splices.extend(item.span().map(|span| Splice(span, render_value(node))));
            }
            Some(_) => {}
        }
    }
    if let Some(header) = ours.span().filter(|_| !missing.is_empty()) {
        let line = text[header.end..].find('\n').map_or(text.len(), |n| header.end + n);
        let at = if text[..line].ends_with('\r') { line - 1 } else { line };
        splices.push(Splice(at..at, missing));
    }
    splices
}

fn has_value(item: Option<&Item>, node: &ConfigValue) -> bool {
    let value = item.and_then(Item::as_value);
    fn is(value: &Value, node: &ConfigValue) -> bool {
        match node {
            ConfigValue::Text(text) => value.as_str() == Some(text),
            ConfigValue::Number(number) => value.as_integer() == i64::try_from(*number).ok(),
            ConfigValue::Flag(flag) => value.as_bool() == Some(*flag),
            ConfigValue::List(list) => {
                value.as_array().is_some_and(|a| a.len() == list.len() && a.iter().zip(list).all(|(a, b)| is(a, b)))
            }
            ConfigValue::Map(_) => false,
        }
    }
    value.is_some_and(|value| is(value, node))
}

/// Collects the range of a table, from its header to its last value, and of the tables inside it.
fn collect_blocks(table: &Table, blocks: &mut Vec<Range<usize>>) {
    let mut block = table.span().filter(|_| !table.is_implicit() && !table.is_dotted());
    let extend = |block: &mut Option<Range<usize>>, span: Range<usize>| {
        if let Some(block) = block {
            block.end = block.end.max(span.end);
        }
    };
    for (_, item) in table.iter() {
        match item {
            Item::Value(value) => {
                if let Some(span) = value.span() {
                    extend(&mut block, span);
                }
            }
            Item::Table(inner) if inner.is_dotted() => {
                for span in value_spans(inner) {
                    extend(&mut block, span);
                }
            }
            Item::Table(inner) => collect_blocks(inner, blocks),
            Item::ArrayOfTables(all) => all.iter().for_each(|inner| collect_blocks(inner, blocks)),
            Item::None => {}
        }
    }
    blocks.extend(block);
}

/// The ranges of the values of a dotted table.
fn value_spans(table: &Table) -> Vec<Range<usize>> {
    table
        .iter()
        .flat_map(|(_, item)| match item {
            Item::Table(inner) => value_spans(inner),
            other => other.span().into_iter().collect(),
        })
        .collect()
}

/// The lines of a block, and the blank line before it if the text does not need that any more.
fn whole_lines(text: &str, block: Range<usize>) -> Range<usize> {
    let mut start = text[..block.start].rfind('\n').map_or(0, |n| n + 1);
    let end = text[block.end..].find('\n').map_or(text.len(), |n| block.end + n + 1);
    let before = text[..start].strip_suffix('\n').map(|t| t.strip_suffix('\r').unwrap_or(t));
    let blank = before.is_some_and(|b| b.ends_with('\n'));
    if blank && text[end..].lines().next().is_none_or(|l| l.trim().is_empty()) {
        start = before.map_or(start, str::len);
    }
    start..end
}
