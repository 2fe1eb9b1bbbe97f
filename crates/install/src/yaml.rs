//! YAML: our extension as lines of its own directly below `extensions:`. The parser says where things stand and checks
//! that all the rest reads the same afterwards; what is laid out in an unusual way is refused.

use super::{
    entry::{Edited, Entry, Mine, Node, SERVER, Splice, newline, splice},
    tree::{Kind, Lines, Tree, read},
};
use crate::EditError;

pub(super) fn put(text: &str, entry: &Entry, mine: &Mine, made: &[String]) -> Result<Edited, EditError> {
    let Entry::Server { table, value, fixed } = entry else { return Err(EditError::NoSuchEntry("YAML")) };
    let tree = read(text)?;
    let old = tree.as_ref().and_then(|t| t.get(table)).and_then(|(_, t)| t.get(SERVER));
    if let Some((key, ours)) = old {
        if !serves(ours, mine) {
            return Err(EditError::ForeignServer { line: key.line, table: (*table).to_owned() });
        }
        let well = |(k, n): &(&'static str, Node)| ours.get(k).is_some_and(|(_, v)| !fixed.contains(k) || same(v, n));
        if value.iter().all(well) {
            return Ok(Edited { text: text.to_owned(), made: made.to_vec() });
        }
        let edited = put(&take(text, entry, mine, &[])?, entry, mine, made)?;
        return Ok(Edited { made: made.to_vec(), ..edited });
    }
    let (splices, made_it) = addition(text, tree.as_ref(), table, value)?;
    let edited =
        Edited { text: splice(text, splices), made: if made_it { vec![(*table).to_owned()] } else { made.to_vec() } };
    check(text, &edited.text, table)?;
    Ok(edited)
}

pub(super) fn take(text: &str, entry: &Entry, mine: &Mine, made: &[String]) -> Result<String, EditError> {
    let Entry::Server { table, .. } = entry else { return Ok(text.to_owned()) };
    let Some(tree) = read(text)? else { return Ok(text.to_owned()) };
    let Some((holder, servers)) = tree.get(table) else { return Ok(text.to_owned()) };
    let Some((key, ours)) = servers.get(SERVER).filter(|(_, ours)| serves(ours, mine)) else {
        return Ok(text.to_owned());
    };
    if servers.flow || tree.flow || servers.anchored {
        return Err(EditError::UnusualToRemove { line: key.line, table: (*table).to_owned() });
    }
    let lines = Lines::of(text);
    let range = lines.start(key.line)..lines.start(ours.last_line() + 1);
    let alone = matches!(&servers.kind, Kind::Map(pairs) if pairs.len() == 1);
    let mut splices = Vec::new();
    if alone && made.iter().any(|m| m == table) {
        splices.push(Splice(lines.start(holder.line)..lines.start(holder.end_line + 1), String::new()));
    } else if alone {
        let end = lines.at(holder.end_line, holder.end_col) + 1;
        splices.push(Splice(end..end, " {}".to_owned()));
    }
    splices.push(Splice(range, String::new()));
    let without = splice(text, splices);
    check(&without, text, table)?;
    Ok(without)
}

/// Where our lines go, and whether `table` itself had to be made.
fn addition(
    text: &str,
    tree: Option<&Tree>,
    table: &str,
    value: &[(&'static str, Node)],
) -> Result<(Vec<Splice>, bool), EditError> {
    let nl = newline(text);
    let lines = Lines::of(text);
    let at_end = |block: String| {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { nl };
        (vec![Splice(text.len()..text.len(), format!("{gap}{table}:{nl}{block}"))], true)
    };
    let Some(root) = tree else { return Ok(at_end(block(value, "  ", nl))) };
    let Kind::Map(pairs) = &root.kind else { return Err(EditError::NoMapping(root.line)) };
    if root.flow || root.col != 0 {
        return Err(EditError::Braces { line: root.line, table: table.to_owned() });
    }
    let Some((key, servers)) = pairs.iter().find(|(k, _)| k.is(table)) else {
        if text.lines().any(|l| l.starts_with("...")) {
            return Err(EditError::EndMark);
        }
        return Ok(at_end(block(value, "  ", nl)));
    };
    let unusual = |why| Err(EditError::Unusual { line: key.line, table: table.to_owned(), why });
    if servers.anchored {
        return unusual("has an anchor, a tag or is an alias");
    }
    let colon = lines.at(key.end_line, key.end_col);
    let rest = text[colon..].lines().next().unwrap_or_default();
    let Some(rest) = rest.strip_prefix(':') else { return unusual("is written in an unusual way") };
    let next = lines.start(key.end_line + 1);
    let gap = if text[..next].ends_with('\n') { "" } else { nl };
    match &servers.kind {
        Kind::Map(pairs) if pairs.is_empty() && servers.flow && servers.line == key.line => {
            let braces = lines.at(servers.line, servers.col)..lines.at(servers.end_line, servers.end_col);
            let before = colon + 1..braces.start;
            let splices = vec![Splice(before.start..braces.end, String::new())];
            let body = Splice(next..next, format!("{gap}{}", block(value, "  ", nl)));
            Ok((splices.into_iter().chain([body]).collect(), false))
        }
        Kind::Map(_) if servers.flow => unusual("is written in braces"),
        Kind::Map(_) if !matches!(rest.trim_start().chars().next(), None | Some('#')) => {
            unusual("begins on its own line")
        }
        Kind::Map(_) => Ok((vec![Splice(next..next, block(value, &" ".repeat(servers.col), nl))], false)),
        Kind::Scalar { text, .. } if matches!(text.as_str(), "" | "~" | "null") && rest.trim().is_empty() => {
            Ok((vec![Splice(next..next, format!("{gap}{}", block(value, "  ", nl)))], false))
        }
        _ => unusual("is not a mapping"),
    }
}

fn block(value: &[(&'static str, Node)], indent: &str, nl: &str) -> String {
    let mut out = format!("{indent}{SERVER}:{nl}");
    for (key, node) in value {
        out.push_str(&format!("{indent}  {key}: {}{nl}", render(node)));
    }
    out
}

fn render(node: &Node) -> String {
    let plain = |t: &str| {
        t.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
            && t.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
            && !matches!(
                t.to_ascii_lowercase().as_str(),
                "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
            )
    };
    match node {
        Node::Text(text) if plain(text) => text.clone(),
        // A JSON string is a YAML string.
        Node::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        Node::Number(number) => number.to_string(),
        Node::Flag(flag) => flag.to_string(),
        Node::List(list) => format!("[{}]", list.iter().map(render).collect::<Vec<_>>().join(", ")),
        Node::Map(map) => {
            format!("{{{}}}", map.iter().map(|(k, n)| format!("{k}: {}", render(n))).collect::<Vec<_>>().join(", "))
        }
    }
}

/// With and without our entry a text must read the same.
fn check(without: &str, with: &str, table: &str) -> Result<(), EditError> {
    let strip = |text: &str| -> Result<Vec<String>, EditError> {
        let mut told = Vec::new();
        if let Some(tree) = read(text)? {
            tree.tell(&mut told, &mut vec![], table);
        }
        Ok(told)
    };
    if strip(without)? == strip(with)? { Ok(()) } else { Err(EditError::Layout(table.to_owned())) }
}

fn serves(server: &Tree, mine: &Mine) -> bool {
    let args = match server.get("args") {
        Some((_, Tree { kind: Kind::Seq(items), .. })) => items.iter().filter_map(Tree::scalar).collect(),
        _ => Vec::new(),
    };
    let program = server.get("cmd").and_then(|(_, cmd)| cmd.scalar());
    program.is_some_and(|program| mine.server([program].into_iter().chain(args)))
}

fn same(value: &Tree, node: &Node) -> bool {
    match node {
        Node::Text(text) => value.scalar() == Some(text),
        Node::Number(number) => value.scalar() == Some(&number.to_string()),
        Node::Flag(flag) => value.scalar() == Some(&flag.to_string()),
        Node::List(list) => {
            matches!(&value.kind, Kind::Seq(items) if items.len() == list.len() && items.iter().zip(list).all(|(a, b)| same(a, b)))
        }
        Node::Map(map) => {
            matches!(&value.kind, Kind::Map(pairs) if pairs.len() == map.len())
                && map.iter().all(|(k, n)| value.get(k).is_some_and(|(_, v)| same(v, n)))
        }
    }
}
