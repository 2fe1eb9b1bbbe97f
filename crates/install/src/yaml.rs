//! Adds an extension as lines of its own directly below `extensions:`, and removes them. The parser gives positions and
//! checks that nothing else changed its meaning. A text with an unusual layout is refused.

use super::{
    entry::{ConfigValue, EditedText, Entry, EntryOwner, SERVER_NAME, Splice, apply_splices, line_ending},
    yaml_tree::{LinePositions, YamlKind, YamlNode, parse_document},
};
use crate::EditError;

pub(super) fn put_entry(
    text: &str,
    entry: &Entry,
    owner: &EntryOwner,
    made: &[String],
) -> Result<EditedText, EditError> {
    let Entry::Server { table, value, fixed } = entry else { return Err(EditError::NoSuchEntry("YAML")) };
    let tree = parse_document(text)?;
    let old = tree.as_ref().and_then(|t| t.get(table)).and_then(|(_, t)| t.get(SERVER_NAME));
    if let Some((key, ours)) = old {
        if !is_our_server(ours, owner) {
            return Err(EditError::ForeignServer { line: key.line, table: (*table).to_owned() });
        }
        let is_set = |(k, n): &(&'static str, ConfigValue)| {
            ours.get(k).is_some_and(|(_, v)| !fixed.contains(k) || has_value(v, n))
        };
        if value.iter().all(is_set) {
            return Ok(EditedText { text: text.to_owned(), made: made.to_vec() });
        }
        let edited = put_entry(&remove_entry(text, entry, owner, &[])?, entry, owner, made)?;
        return Ok(EditedText { made: made.to_vec(), ..edited });
    }
    let (splices, made_it) = plan_addition(text, tree.as_ref(), table, value)?;
    let edited = EditedText {
        text: apply_splices(text, splices),
        made: if made_it { vec![(*table).to_owned()] } else { made.to_vec() },
    };
    check_rest_unchanged(text, &edited.text, table)?;
    Ok(edited)
}

pub(super) fn remove_entry(
    text: &str,
    entry: &Entry,
    owner: &EntryOwner,
    made: &[String],
) -> Result<String, EditError> {
    let Entry::Server { table, .. } = entry else { return Ok(text.to_owned()) };
    let Some(tree) = parse_document(text)? else { return Ok(text.to_owned()) };
    let Some((holder, servers)) = tree.get(table) else { return Ok(text.to_owned()) };
    let Some((key, ours)) = servers.get(SERVER_NAME).filter(|(_, ours)| is_our_server(ours, owner)) else {
        return Ok(text.to_owned());
    };
    if servers.flow || tree.flow || servers.anchored {
        return Err(EditError::UnusualToRemove { line: key.line, table: (*table).to_owned() });
    }
    let lines = LinePositions::new(text);
    let range = lines.line_start(key.line)..lines.line_start(ours.last_line() + 1);
    let alone = matches!(&servers.kind, YamlKind::Map(pairs) if pairs.len() == 1);
    let mut splices = Vec::new();
    if alone && made.iter().any(|m| m == table) {
        splices.push(Splice(lines.line_start(holder.line)..lines.line_start(holder.end_line + 1), String::new()));
    } else if alone {
        let end = lines.offset_of(holder.end_line, holder.end_col) + 1;
        splices.push(Splice(end..end, " {}".to_owned()));
    }
    splices.push(Splice(range, String::new()));
    let without = apply_splices(text, splices);
    check_rest_unchanged(&without, text, table)?;
    Ok(without)
}

/// Where the new lines go, and whether `table` itself is new.
fn plan_addition(
    text: &str,
    tree: Option<&YamlNode>,
    table: &str,
    value: &[(&'static str, ConfigValue)],
) -> Result<(Vec<Splice>, bool), EditError> {
    let nl = line_ending(text);
    let lines = LinePositions::new(text);
    let at_end = |block: String| {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { nl };
        (vec![Splice(text.len()..text.len(), format!("{gap}{table}:{nl}{block}"))], true)
    };
    let Some(root) = tree else { return Ok(at_end(render_extension(value, "  ", nl))) };
    let YamlKind::Map(pairs) = &root.kind else { return Err(EditError::NotAMapping(root.line)) };
    if root.flow || root.col != 0 {
        return Err(EditError::Braces { line: root.line, table: table.to_owned() });
    }
    let Some((key, servers)) = pairs.iter().find(|(k, _)| k.is_scalar(table)) else {
        if text.lines().any(|l| l.starts_with("...")) {
            return Err(EditError::EndMark);
        }
        return Ok(at_end(render_extension(value, "  ", nl)));
    };
    let unusual = |reason| Err(EditError::Unusual { line: key.line, table: table.to_owned(), reason });
    if servers.anchored {
        return unusual("has an anchor, a tag or is an alias");
    }
    let colon = lines.offset_of(key.end_line, key.end_col);
    let rest = text[colon..].lines().next().unwrap_or_default();
    let Some(rest) = rest.strip_prefix(':') else { return unusual("has an unusual layout") };
    let next = lines.line_start(key.end_line + 1);
    let gap = if text[..next].ends_with('\n') { "" } else { nl };
    match &servers.kind {
        YamlKind::Map(pairs) if pairs.is_empty() && servers.flow && servers.line == key.line => {
            let braces = lines.offset_of(servers.line, servers.col)..lines.offset_of(servers.end_line, servers.end_col);
            let before = colon + 1..braces.start;
            let splices = vec![Splice(before.start..braces.end, String::new())];
            let body = Splice(next..next, format!("{gap}{}", render_extension(value, "  ", nl)));
            Ok((splices.into_iter().chain([body]).collect(), false))
        }
        YamlKind::Map(_) if servers.flow => unusual("is written in braces"),
        YamlKind::Map(_) if !matches!(rest.trim_start().chars().next(), None | Some('#')) => {
            unusual("has its mapping on the same line")
        }
        YamlKind::Map(_) => {
            Ok((vec![Splice(next..next, render_extension(value, &" ".repeat(servers.col), nl))], false))
        }
        YamlKind::Scalar { text, .. } if matches!(text.as_str(), "" | "~" | "null") && rest.trim().is_empty() => {
            Ok((vec![Splice(next..next, format!("{gap}{}", render_extension(value, "  ", nl)))], false))
        }
        _ => unusual("is not a mapping"),
    }
}

fn render_extension(value: &[(&'static str, ConfigValue)], indent: &str, nl: &str) -> String {
    let mut out = format!("{indent}{SERVER_NAME}:{nl}");
    for (key, node) in value {
        out.push_str(&format!("{indent}  {key}: {}{nl}", render_value(node)));
    }
    out
}

fn render_value(node: &ConfigValue) -> String {
    let plain = |t: &str| {
        t.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
            && t.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
            && !matches!(
                t.to_ascii_lowercase().as_str(),
                "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
            )
    };
    match node {
        ConfigValue::Text(text) if plain(text) => text.clone(),
        // A JSON string is a YAML string.
        ConfigValue::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        ConfigValue::Number(number) => number.to_string(),
        ConfigValue::Flag(flag) => flag.to_string(),
        ConfigValue::List(list) => format!("[{}]", list.iter().map(render_value).collect::<Vec<_>>().join(", ")),
        ConfigValue::Map(map) => {
            format!(
                "{{{}}}",
                map.iter().map(|(k, n)| format!("{k}: {}", render_value(n))).collect::<Vec<_>>().join(", ")
            )
        }
    }
}

/// Checks that two texts mean the same, apart from our entry.
fn check_rest_unchanged(without: &str, with: &str, table: &str) -> Result<(), EditError> {
    let values_of = |text: &str| -> Result<Vec<String>, EditError> {
        let mut values = Vec::new();
        if let Some(tree) = parse_document(text)? {
            tree.list_values(&mut values, &mut vec![], table);
        }
        Ok(values)
    };
    if values_of(without)? == values_of(with)? { Ok(()) } else { Err(EditError::Layout(table.to_owned())) }
}

fn is_our_server(server: &YamlNode, owner: &EntryOwner) -> bool {
    let args = match server.get("args") {
        Some((_, YamlNode { kind: YamlKind::Seq(items), .. })) => items.iter().filter_map(YamlNode::scalar).collect(),
        _ => Vec::new(),
    };
    let program = server.get("cmd").and_then(|(_, cmd)| cmd.scalar());
    program.is_some_and(|program| owner.owns_server([program].into_iter().chain(args)))
}

fn has_value(value: &YamlNode, node: &ConfigValue) -> bool {
    match node {
        ConfigValue::Text(text) => value.scalar() == Some(text),
        ConfigValue::Number(number) => value.scalar() == Some(&number.to_string()),
        ConfigValue::Flag(flag) => value.scalar() == Some(&flag.to_string()),
        ConfigValue::List(list) => {
            matches!(&value.kind, YamlKind::Seq(items) if items.len() == list.len() && items.iter().zip(list).all(|(a, b)| has_value(a, b)))
        }
        ConfigValue::Map(map) => {
            matches!(&value.kind, YamlKind::Map(pairs) if pairs.len() == map.len())
                && map.iter().all(|(k, n)| value.get(k).is_some_and(|(_, v)| has_value(v, n)))
        }
    }
}
