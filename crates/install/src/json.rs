//! JSON and JSONC: our entries put in and taken out by splicing the text, so that every byte around them stays.
//!
//! Each change is one step: read the text, find the first thing that is not as wanted, splice, read again. When nothing
//! is left to do the text is as wanted; a second run therefore changes nothing.

use super::{
    entry::{Edited, Entry, Hook, Mine, Node, SERVER, Splice, line, newline, splice},
    layout::{Items, Style, insert, remove, render},
};
use crate::EditError;
use jsonc_parser::{
    CollectOptions, ParseOptions,
    ast::{Array, Object, ObjectProp, Value},
    common::{Range, Ranged as _},
    parse_to_ast,
};

/// More steps than any entry needs: a text that does not settle is a mistake of ours, and is not written.
const STEPS: usize = 64;

const STRICT: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(super) fn put(text: &str, entry: &Entry, mine: &Mine, made: &[String]) -> Result<Edited, EditError> {
    settle(text, entry, true, mine, made)
}

/// The text without what is ours, and without what was made for it.
pub(super) fn take(text: &str, entry: &Entry, mine: &Mine, made: &[String]) -> Result<String, EditError> {
    settle(text, entry, false, mine, made).map(|edited| edited.text)
}

/// Where our handler for an event stands: which group, which handler in it.
pub(super) fn place_of_hook(text: &str, event: &str, mine: &Mine) -> Option<(usize, usize)> {
    let value = parse(text).ok()??;
    let groups = value.as_object()?.get_object("hooks")?.get_array(event)?;
    groups.elements.iter().enumerate().find_map(|(g, group)| {
        let handlers = group.as_object()?.get_array("hooks")?;
        let at = handlers.elements.iter().position(|h| h.as_object().is_some_and(|h| is_ours(h, mine)))?;
        Some((g, at))
    })
}

/// Why the agent would not use our entry, though it is there.
pub(super) fn off(text: &str, entry: &Entry) -> Option<String> {
    let value = parse(text).ok()??;
    let root = value.as_object()?;
    let is = |object: &Object<'_>, key: &str, to: bool| object.get_boolean(key).is_some_and(|b| b.value == to);
    match entry {
        Entry::Hooks(_) => is(root, "disableAllHooks", true).then(|| "`disableAllHooks` is set".to_owned()),
        Entry::Server { table, .. } => {
            let ours = root.get_object(table)?.get_object(SERVER)?;
            let off = is(ours, "disabled", true) || is(ours, "enabled", false);
            off.then(|| format!("`{table}.{SERVER}` is switched off"))
        }
        Entry::Whole(_) => None,
    }
}

fn settle(text: &str, entry: &Entry, wanted: bool, mine: &Mine, made: &[String]) -> Result<Edited, EditError> {
    let mut edited = Edited { text: text.to_owned(), made: made.to_vec() };
    for _ in 0..STEPS {
        let mut step = Step { text: &edited.text, mine, made: edited.made.clone() };
        let splices = match parse(&edited.text)? {
            None if wanted => step.begin(entry),
            None => None,
            Some(value) => {
                let root = value.as_object().ok_or(EditError::NoObject)?;
                no_key_twice(&edited.text, &value)?;
                step.next(root, entry, wanted)?
            }
        };
        let made = step.made;
        match splices {
            Some(splices) => edited = Edited { text: splice(&edited.text, splices), made },
            None => return Ok(Edited { made, ..edited }),
        }
    }
    Err(EditError::Unsettled)
}

fn parse(text: &str) -> Result<Option<Value<'_>>, EditError> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &STRICT);
    parsed.map(|p| p.value).map_err(|e| EditError::Invalid { format: "JSON", why: e.to_string() })
}

/// Whoever reads a key that stands twice reads one of the two, and not everybody the same.
fn no_key_twice(text: &str, value: &Value<'_>) -> Result<(), EditError> {
    match value {
        Value::Object(object) => {
            let mut seen = std::collections::BTreeSet::new();
            for prop in &object.properties {
                if !seen.insert(prop.name.as_str()) {
                    let key = prop.name.as_str().to_owned();
                    return Err(EditError::KeyTwice { line: line(text, prop.range.start), key });
                }
                no_key_twice(text, &prop.value)?;
            }
            Ok(())
        }
        Value::Array(array) => array.elements.iter().try_for_each(|e| no_key_twice(text, e)),
        _ => Ok(()),
    }
}

struct Step<'t> {
    text: &'t str,
    mine: &'t Mine,
    made: Vec<String>,
}

type Next = Result<Option<Vec<Splice>>, EditError>;

impl Step<'_> {
    /// A text without a value: empty, or nothing but comments.
    fn begin(&mut self, entry: &Entry) -> Option<Vec<Splice>> {
        let (nl, kept) = (newline(self.text), self.text.trim_end());
        let root = match entry {
            Entry::Hooks(hooks) => vec![("hooks", Node::Map(by_event(hooks)))],
            Entry::Server { table, value, .. } => vec![(*table, Node::Map(vec![(SERVER, Node::Map(value.clone()))]))],
            Entry::Whole(_) => return None,
        };
        match entry {
            Entry::Hooks(hooks) => hooks.iter().for_each(|h| self.make(&["hooks", h.event])),
            Entry::Server { table, .. } => self.make(&[table]),
            Entry::Whole(_) => {}
        }
        let body = render(&Node::Map(root), &Style::plain(nl), "");
        let gap = if kept.is_empty() { "" } else { nl };
        Some(vec![Splice(kept.len()..self.text.len(), format!("{gap}{body}{nl}"))])
    }

    fn next(&mut self, root: &Object<'_>, entry: &Entry, wanted: bool) -> Next {
        match entry {
            Entry::Hooks(hooks) => self.hooks(root, if wanted { hooks } else { &[] }),
            Entry::Server { table, value, fixed } => match wanted {
                true => self.server(root, table, value, fixed),
                false => self.no_server(root, table),
            },
            Entry::Whole(_) => Ok(None),
        }
    }

    fn server(&mut self, root: &Object<'_>, table: &str, value: &[(&'static str, Node)], fixed: &[&str]) -> Next {
        let Some(servers) = self.object(root, table)? else {
            self.make(&[table]);
            let inner = Node::Map(vec![(SERVER, Node::Map(value.to_vec()))]);
            return Ok(Some(self.insert_prop(root, table, &inner)));
        };
        let Some(ours) = self.object(servers, SERVER)? else {
            return Ok(Some(self.insert_prop(servers, SERVER, &Node::Map(value.to_vec()))));
        };
        if !serves(ours, self.mine) {
            let line = line(self.text, ours.range.start);
            return Err(EditError::ForeignServer { line, table: table.to_owned() });
        }
        Ok(self.ensure(ours, value, fixed))
    }

    fn no_server(&self, root: &Object<'_>, table: &str) -> Next {
        let Some(servers) = self.object(root, table)? else { return Ok(None) };
        match servers.get(SERVER) {
            Some(prop) if prop.value.as_object().is_some_and(|o| serves(o, self.mine)) => {
                Ok(Some(self.remove_prop(servers, prop)))
            }
            _ => Ok(self.clear(root, table, servers.properties.is_empty(), table)),
        }
    }

    fn hooks(&mut self, root: &Object<'_>, wanted: &[Hook]) -> Next {
        let Some(all) = self.object(root, "hooks")? else {
            if wanted.is_empty() {
                return Ok(None);
            }
            wanted.iter().for_each(|h| self.make(&["hooks", h.event]));
            return Ok(Some(self.insert_prop(root, "hooks", &Node::Map(by_event(wanted)))));
        };
        for prop in &all.properties {
            let event = prop.name.as_str();
            let wants = wanted.iter().find(|h| h.event == event);
            let named = format!("hooks.{event}");
            let Some(groups) = prop.value.as_array() else {
                // Only where we have to put something: what else stands below `hooks` is between them and their agent.
                match wants {
                    Some(_) => return Err(self.wrong(&prop.value, &named, "a list")),
                    None => continue,
                }
            };
            if let Some(splices) = self.event(groups, wants, &named)? {
                return Ok(Some(splices));
            }
            if let Some(splices) = self.clear(all, event, groups.elements.is_empty(), &named) {
                return Ok(Some(splices));
            }
        }
        if let Some(hook) = wanted.iter().find(|h| all.get(h.event).is_none()) {
            self.make(&["hooks", hook.event]);
            let groups = Node::List(vec![group(hook)]);
            return Ok(Some(self.insert_prop(all, hook.event, &groups)));
        }
        Ok(self.clear(root, "hooks", all.properties.is_empty(), "hooks"))
    }

    /// One event: our handler once and as wanted, in a group with our matcher.
    fn event(&self, groups: &Array<'_>, wants: Option<&Hook>, named: &str) -> Next {
        let mut there = false;
        for (g, value) in groups.elements.iter().enumerate() {
            let Some(group) = value.as_object() else {
                return Err(self.wrong(value, &format!("{named}[{g}]"), "an object"));
            };
            let Some(handlers) = group.get_array("hooks") else { continue };
            let matcher = group.get_string("matcher").map(|m| m.value.as_ref());
            for (h, value) in handlers.elements.iter().enumerate() {
                let Some(handler) = value.as_object().filter(|o| is_ours(o, self.mine)) else { continue };
                match wants.filter(|w| !there && matcher == Some(w.matcher)) {
                    Some(hook) => {
                        there = true;
                        let all: Vec<&str> = hook.handler.iter().map(|(k, _)| *k).collect();
                        if let Some(splices) = self.ensure(handler, &hook.handler, &all) {
                            return Ok(Some(splices));
                        }
                    }
                    None if handlers.elements.len() == 1 => return Ok(Some(self.remove_element(groups, g))),
                    None => return Ok(Some(self.remove_element(handlers, h))),
                }
            }
        }
        Ok(wants.filter(|_| !there).map(|hook| {
            let text = |style: &Style, indent: &str| render(&group(hook), style, indent);
            insert(self.text, groups.range.start, &items(groups), &text)
        }))
    }

    /// An object with the wanted keys; those that are fixed also with the wanted values.
    fn ensure(&self, object: &Object<'_>, wanted: &[(&'static str, Node)], fixed: &[&str]) -> Option<Vec<Splice>> {
        wanted.iter().find_map(|(key, node)| match object.get(key) {
            None => Some(self.insert_prop(object, key, node)),
            Some(prop) if fixed.contains(key) && !same(&prop.value, node) => {
                let style = Style::of(self.text);
                let compact = !self.text[prop.value.start()..prop.value.end()].contains('\n');
                let text = render(node, &Style { compact: style.compact || compact, ..style }, "");
                Some(vec![Splice(prop.value.start()..prop.value.end(), text)])
            }
            Some(_) => None,
        })
    }

    /// A container of ours in which nothing is left goes too.
    fn clear(&self, holder: &Object<'_>, key: &str, empty: bool, named: &str) -> Option<Vec<Splice>> {
        let prop = holder.get(key).filter(|_| empty && self.made.iter().any(|m| m == named))?;
        Some(self.remove_prop(holder, prop))
    }

    fn object<'o, 'a>(&self, holder: &'o Object<'a>, key: &str) -> Result<Option<&'o Object<'a>>, EditError> {
        match holder.get(key) {
            None => Ok(None),
            Some(ObjectProp { value: Value::Object(object), .. }) => Ok(Some(object)),
            Some(prop) => Err(self.wrong(&prop.value, key, "an object")),
        }
    }

    fn wrong(&self, value: &Value<'_>, named: &str, wanted: &'static str) -> EditError {
        EditError::WrongKind { line: line(self.text, value.start()), named: named.to_owned(), wanted }
    }

    fn make(&mut self, path: &[&str]) {
        for depth in 1..=path.len() {
            let named = path[..depth].join(".");
            if !self.made.contains(&named) && !self.there(&path[..depth]) {
                self.made.push(named);
            }
        }
    }

    fn there(&self, path: &[&str]) -> bool {
        let Ok(Some(Value::Object(root))) = parse(self.text) else { return false };
        let mut at = &root;
        for key in path {
            match at.get(key).map(|p| &p.value) {
                Some(Value::Object(object)) => at = object,
                Some(_) => return true,
                None => return false,
            }
        }
        true
    }

    fn insert_prop(&self, object: &Object<'_>, key: &str, node: &Node) -> Vec<Splice> {
        let text = |style: &Style, indent: &str| {
            format!("\"{key}\":{}{}", if style.spaced { " " } else { "" }, render(node, style, indent))
        };
        insert(self.text, object.range.start, &props(object), &text)
    }

    fn remove_prop(&self, object: &Object<'_>, prop: &ObjectProp<'_>) -> Vec<Splice> {
        let at = object.properties.iter().position(|p| p.range == prop.range).unwrap_or_default();
        remove(self.text, &props(object), at)
    }

    fn remove_element(&self, array: &Array<'_>, at: usize) -> Vec<Splice> {
        remove(self.text, &items(array), at)
    }
}

fn props(object: &Object<'_>) -> Items {
    whole(object.range, object.properties.iter().map(|p| p.range))
}

fn items(array: &Array<'_>) -> Items {
    whole(array.range, array.elements.iter().map(|e| Range::new(e.start(), e.end())))
}

fn whole(range: Range, items: impl Iterator<Item = Range>) -> Items {
    Items { inside: range.start + 1..range.end - 1, each: items.map(|r| r.start..r.end).collect() }
}

fn group(hook: &Hook) -> Node {
    let handlers = Node::List(vec![Node::Map(hook.handler.clone())]);
    Node::Map(vec![("matcher", Node::text(hook.matcher)), ("hooks", handlers)])
}

fn by_event(hooks: &[Hook]) -> Vec<(&'static str, Node)> {
    hooks.iter().map(|h| (h.event, Node::List(vec![group(h)]))).collect()
}

fn is_ours(handler: &Object<'_>, mine: &Mine) -> bool {
    handler.get_string("command").is_some_and(|c| mine.hook(&c.value))
}

/// A server is ours by what it runs: a program and its arguments in one list, or apart.
fn serves(server: &Object<'_>, mine: &Mine) -> bool {
    let texts = |key: &str| -> Vec<&str> {
        let list = server.get_array(key).map(|a| a.elements.iter().filter_map(Value::as_string_lit));
        list.into_iter().flatten().map(|s| s.value.as_ref()).collect()
    };
    match server.get_string("command") {
        Some(program) => mine.server([program.value.as_ref()].into_iter().chain(texts("args"))),
        None => mine.server(texts("command").into_iter()),
    }
}

fn same(value: &Value<'_>, node: &Node) -> bool {
    match (value, node) {
        (Value::StringLit(a), Node::Text(b)) => a.value == b.as_str(),
        (Value::NumberLit(a), Node::Number(b)) => a.value == b.to_string(),
        (Value::BooleanLit(a), Node::Flag(b)) => a.value == *b,
        (Value::Array(a), Node::List(b)) => {
            a.elements.len() == b.len() && a.elements.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Node::Map(b)) => {
            a.properties.len() == b.len() && b.iter().all(|(k, b)| a.get(k).is_some_and(|a| same(&a.value, b)))
        }
        _ => false,
    }
}
