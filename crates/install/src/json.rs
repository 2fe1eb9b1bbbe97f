//! Adds entries to JSON and JSONC and removes them by splicing the text, so that every other byte stays.
//!
//! An edit is a sequence of steps: parse the text, find the first difference from the wanted state, splice, parse again.
//! It ends when there is no difference, so a second edit changes nothing.

use super::{
    entry::{
        ConfigValue, EditedText, Entry, EntryOwner, HookHandler, SERVER_NAME, Splice, apply_splices, line_ending,
        line_number,
    },
    layout::{ItemRanges, JsonStyle, insert_item, remove_item, render_value},
};
use crate::EditError;
use jsonc_parser::{
    CollectOptions, ParseOptions,
    ast::{Array, Object, ObjectProp, Value},
    common::{Range, Ranged as _},
    parse_to_ast,
};

/// More steps than any entry needs. A text that does not settle is a bug in this file, and is not written.
const MAX_EDIT_STEPS: usize = 64;

const JSONC_OPTIONS: ParseOptions = ParseOptions {
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

pub(super) fn put_entry(
    text: &str,
    entry: &Entry,
    owner: &EntryOwner,
    made: &[String],
) -> Result<EditedText, EditError> {
    edit_until_settled(text, entry, true, owner, made)
}

/// The text without the entry and the containers that were created for it.
pub(super) fn remove_entry(
    text: &str,
    entry: &Entry,
    owner: &EntryOwner,
    made: &[String],
) -> Result<String, EditError> {
    edit_until_settled(text, entry, false, owner, made).map(|edited| edited.text)
}

/// The position of our handler for an event: its group, and its place in the group.
pub(super) fn find_hook(text: &str, event: &str, owner: &EntryOwner) -> Option<(usize, usize)> {
    let value = parse(text).ok()??;
    let groups = value.as_object()?.get_object("hooks")?.get_array(event)?;
    groups.elements.iter().enumerate().find_map(|(g, group)| {
        let handlers = group.as_object()?.get_array("hooks")?;
        let at = handlers.elements.iter().position(|h| h.as_object().is_some_and(|h| is_our_handler(h, owner)))?;
        Some((g, at))
    })
}

/// Why the agent would ignore the entry.
pub(super) fn find_switch_off(text: &str, entry: &Entry) -> Option<String> {
    let value = parse(text).ok()??;
    let root = value.as_object()?;
    let is = |object: &Object<'_>, key: &str, to: bool| object.get_boolean(key).is_some_and(|b| b.value == to);
    match entry {
        Entry::Hooks(_) => is(root, "disableAllHooks", true).then(|| "`disableAllHooks` is set".to_owned()),
        Entry::Server { table, .. } => {
            let ours = root.get_object(table)?.get_object(SERVER_NAME)?;
            let off = is(ours, "disabled", true) || is(ours, "enabled", false);
            off.then(|| format!("`{table}.{SERVER_NAME}` is switched off"))
        }
        Entry::Whole(_) => None,
    }
}

fn edit_until_settled(
    text: &str,
    entry: &Entry,
    wanted: bool,
    owner: &EntryOwner,
    made: &[String],
) -> Result<EditedText, EditError> {
    let mut edited = EditedText { text: text.to_owned(), made: made.to_vec() };
    for _ in 0..MAX_EDIT_STEPS {
        let mut step = EditStep { text: &edited.text, owner, made: edited.made.clone() };
        let splices = match parse(&edited.text)? {
            None if wanted => step.start_document(entry),
            None => None,
            Some(value) => {
                let root = value.as_object().ok_or(EditError::NotAnObject)?;
                reject_duplicate_keys(&edited.text, &value)?;
                step.next_splices(root, entry, wanted)?
            }
        };
        let made = step.made;
        match splices {
            Some(splices) => edited = EditedText { text: apply_splices(&edited.text, splices), made },
            None => return Ok(EditedText { made, ..edited }),
        }
    }
    Err(EditError::Unsettled)
}

fn parse(text: &str) -> Result<Option<Value<'_>>, EditError> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &JSONC_OPTIONS);
    parsed.map(|p| p.value).map_err(|e| EditError::Invalid { format: "JSON", reason: e.to_string() })
}

/// Programs disagree about which of two equal keys counts.
fn reject_duplicate_keys(text: &str, value: &Value<'_>) -> Result<(), EditError> {
    match value {
        Value::Object(object) => {
            let mut seen = std::collections::BTreeSet::new();
            for prop in &object.properties {
                if !seen.insert(prop.name.as_str()) {
                    let key = prop.name.as_str().to_owned();
                    return Err(EditError::DuplicateKey { line: line_number(text, prop.range.start), key });
                }
                reject_duplicate_keys(text, &prop.value)?;
            }
            Ok(())
        }
        Value::Array(array) => array.elements.iter().try_for_each(|e| reject_duplicate_keys(text, e)),
        _ => Ok(()),
    }
}

struct EditStep<'t> {
    text: &'t str,
    owner: &'t EntryOwner,
    made: Vec<String>,
}

type StepResult = Result<Option<Vec<Splice>>, EditError>;

impl EditStep<'_> {
    /// Writes a document into a text that has none: it is empty, or has only comments.
    fn start_document(&mut self, entry: &Entry) -> Option<Vec<Splice>> {
        let (nl, content) = (line_ending(self.text), self.text.trim_end());
        let root = match entry {
            Entry::Hooks(hooks) => vec![("hooks", ConfigValue::Map(groups_by_event(hooks)))],
            Entry::Server { table, value, .. } => {
                vec![(*table, ConfigValue::Map(vec![(SERVER_NAME, ConfigValue::Map(value.clone()))]))]
            }
            Entry::Whole(_) => return None,
        };
        match entry {
            Entry::Hooks(hooks) => hooks.iter().for_each(|h| self.record_made(&["hooks", h.event])),
            Entry::Server { table, .. } => self.record_made(&[table]),
            Entry::Whole(_) => {}
        }
        let body = render_value(&ConfigValue::Map(root), &JsonStyle::with_line_ending(nl), "");
        let gap = if content.is_empty() { "" } else { nl };
        Some(vec![Splice(content.len()..self.text.len(), format!("{gap}{body}{nl}"))])
    }

    fn next_splices(&mut self, root: &Object<'_>, entry: &Entry, wanted: bool) -> StepResult {
        match entry {
            Entry::Hooks(hooks) => self.put_hooks(root, if wanted { hooks } else { &[] }),
            Entry::Server { table, value, fixed } if wanted => self.put_server(root, table, value, fixed),
            Entry::Server { table, .. } => self.remove_server(root, table),
            Entry::Whole(_) => Ok(None),
        }
    }

    fn put_server(
        &mut self,
        root: &Object<'_>,
        table: &str,
        value: &[(&'static str, ConfigValue)],
        fixed: &[&str],
    ) -> StepResult {
        let Some(servers) = self.find_object(root, table)? else {
            self.record_made(&[table]);
            let inner = ConfigValue::Map(vec![(SERVER_NAME, ConfigValue::Map(value.to_vec()))]);
            return Ok(Some(self.insert_prop(root, table, &inner)));
        };
        let Some(ours) = self.find_object(servers, SERVER_NAME)? else {
            return Ok(Some(self.insert_prop(servers, SERVER_NAME, &ConfigValue::Map(value.to_vec()))));
        };
        if !is_our_server(ours, self.owner) {
            let line = line_number(self.text, ours.range.start);
            return Err(EditError::ForeignServer { line, table: table.to_owned() });
        }
        Ok(self.set_keys(ours, value, fixed))
    }

    fn remove_server(&self, root: &Object<'_>, table: &str) -> StepResult {
        let Some(servers) = self.find_object(root, table)? else { return Ok(None) };
        match servers.get(SERVER_NAME) {
            Some(prop) if prop.value.as_object().is_some_and(|o| is_our_server(o, self.owner)) => {
                Ok(Some(self.remove_prop(servers, prop)))
            }
            _ => Ok(self.remove_empty_container(root, table, servers.properties.is_empty(), table)),
        }
    }

    fn put_hooks(&mut self, root: &Object<'_>, wanted: &[HookHandler]) -> StepResult {
        let Some(all) = self.find_object(root, "hooks")? else {
            if wanted.is_empty() {
                return Ok(None);
            }
            wanted.iter().for_each(|h| self.record_made(&["hooks", h.event]));
            return Ok(Some(self.insert_prop(root, "hooks", &ConfigValue::Map(groups_by_event(wanted)))));
        };
        for prop in &all.properties {
            let event = prop.name.as_str();
            let wants = wanted.iter().find(|h| h.event == event);
            let named = format!("hooks.{event}");
            let Some(groups) = prop.value.as_array() else {
                // Events without a handler of ours may have any form that the agent accepts.
                if wants.is_some() {
                    return Err(self.wrong_kind(&prop.value, &named, "a list"));
                }
                continue;
            };
            if let Some(splices) = self.put_handler(groups, wants, &named)? {
                return Ok(Some(splices));
            }
            if let Some(splices) = self.remove_empty_container(all, event, groups.elements.is_empty(), &named) {
                return Ok(Some(splices));
            }
        }
        if let Some(hook) = wanted.iter().find(|h| all.get(h.event).is_none()) {
            self.record_made(&["hooks", hook.event]);
            let groups = ConfigValue::List(vec![hook_group(hook)]);
            return Ok(Some(self.insert_prop(all, hook.event, &groups)));
        }
        Ok(self.remove_empty_container(root, "hooks", all.properties.is_empty(), "hooks"))
    }

    /// Makes one event have our handler exactly once, in a group with our matcher; without `wants`, not at all.
    fn put_handler(&self, groups: &Array<'_>, wants: Option<&HookHandler>, named: &str) -> StepResult {
        let mut found = false;
        for (g, value) in groups.elements.iter().enumerate() {
            let Some(group) = value.as_object() else {
                return Err(self.wrong_kind(value, &format!("{named}[{g}]"), "an object"));
            };
            let Some(handlers) = group.get_array("hooks") else { continue };
            let matcher = group.get_string("matcher").map(|m| m.value.as_ref());
            for (h, value) in handlers.elements.iter().enumerate() {
                let Some(handler) = value.as_object().filter(|o| is_our_handler(o, self.owner)) else { continue };
                match wants.filter(|w| !found && matcher == Some(w.matcher)) {
                    Some(hook) => {
                        found = true;
                        let all: Vec<&str> = hook.handler.iter().map(|(k, _)| *k).collect();
                        if let Some(splices) = self.set_keys(handler, &hook.handler, &all) {
                            return Ok(Some(splices));
                        }
                    }
                    None if handlers.elements.len() == 1 => return Ok(Some(self.remove_element(groups, g))),
                    None => return Ok(Some(self.remove_element(handlers, h))),
                }
            }
        }
        Ok(wants.filter(|_| !found).map(|hook| {
            let text = |style: &JsonStyle, indent: &str| render_value(&hook_group(hook), style, indent);
            insert_item(self.text, groups.range.start, &element_ranges(groups), &text)
        }))
    }

    /// Adds missing keys to an object, and sets the values of those that are fixed.
    fn set_keys(
        &self,
        object: &Object<'_>,
        wanted: &[(&'static str, ConfigValue)],
        fixed: &[&str],
    ) -> Option<Vec<Splice>> {
        wanted.iter().find_map(|(key, node)| match object.get(key) {
            None => Some(self.insert_prop(object, key, node)),
            Some(prop) if fixed.contains(key) && !has_value(&prop.value, node) => {
                let style = JsonStyle::detect(self.text);
                let compact = !self.text[prop.value.start()..prop.value.end()].contains('\n');
                let text = render_value(node, &JsonStyle { compact: style.compact || compact, ..style }, "");
                Some(vec![Splice(prop.value.start()..prop.value.end(), text)])
            }
            Some(_) => None,
        })
    }

    /// Removes a container that an installation created and that is empty now.
    fn remove_empty_container(&self, holder: &Object<'_>, key: &str, empty: bool, named: &str) -> Option<Vec<Splice>> {
        let prop = holder.get(key).filter(|_| empty && self.made.iter().any(|m| m == named))?;
        Some(self.remove_prop(holder, prop))
    }

    fn find_object<'o, 'a>(&self, holder: &'o Object<'a>, key: &str) -> Result<Option<&'o Object<'a>>, EditError> {
        match holder.get(key) {
            None => Ok(None),
            Some(ObjectProp { value: Value::Object(object), .. }) => Ok(Some(object)),
            Some(prop) => Err(self.wrong_kind(&prop.value, key, "an object")),
        }
    }

    fn wrong_kind(&self, value: &Value<'_>, key: &str, expected: &'static str) -> EditError {
        EditError::WrongKind { line: line_number(self.text, value.start()), key: key.to_owned(), expected }
    }

    /// Records the containers of a path that do not exist yet: a removal will remove them.
    fn record_made(&mut self, path: &[&str]) {
        for depth in 1..=path.len() {
            let named = path[..depth].join(".");
            if !self.made.contains(&named) && !self.exists(&path[..depth]) {
                self.made.push(named);
            }
        }
    }

    fn exists(&self, path: &[&str]) -> bool {
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

    fn insert_prop(&self, object: &Object<'_>, key: &str, node: &ConfigValue) -> Vec<Splice> {
        let text = |style: &JsonStyle, indent: &str| {
            format!("\"{key}\":{}{}", if style.spaced { " " } else { "" }, render_value(node, style, indent))
        };
        insert_item(self.text, object.range.start, &property_ranges(object), &text)
    }

    fn remove_prop(&self, object: &Object<'_>, prop: &ObjectProp<'_>) -> Vec<Splice> {
        let at = object.properties.iter().position(|p| p.range == prop.range).unwrap_or_default();
        remove_item(self.text, &property_ranges(object), at)
    }

    fn remove_element(&self, array: &Array<'_>, at: usize) -> Vec<Splice> {
        remove_item(self.text, &element_ranges(array), at)
    }
}

fn property_ranges(object: &Object<'_>) -> ItemRanges {
    item_ranges(object.range, object.properties.iter().map(|p| p.range))
}

fn element_ranges(array: &Array<'_>) -> ItemRanges {
    item_ranges(array.range, array.elements.iter().map(|e| Range::new(e.start(), e.end())))
}

fn item_ranges(range: Range, items: impl Iterator<Item = Range>) -> ItemRanges {
    ItemRanges { inside: range.start + 1..range.end - 1, each: items.map(|r| r.start..r.end).collect() }
}

fn hook_group(hook: &HookHandler) -> ConfigValue {
    let handlers = ConfigValue::List(vec![ConfigValue::Map(hook.handler.clone())]);
    ConfigValue::Map(vec![("matcher", ConfigValue::text(hook.matcher)), ("hooks", handlers)])
}

fn groups_by_event(hooks: &[HookHandler]) -> Vec<(&'static str, ConfigValue)> {
    hooks.iter().map(|h| (h.event, ConfigValue::List(vec![hook_group(h)]))).collect()
}

fn is_our_handler(handler: &Object<'_>, owner: &EntryOwner) -> bool {
    handler.get_string("command").is_some_and(|c| owner.owns_hook(&c.value))
}

/// A server is ours if it runs `csn mcp`, written as one list or as a program and its arguments.
fn is_our_server(server: &Object<'_>, owner: &EntryOwner) -> bool {
    let texts = |key: &str| -> Vec<&str> {
        let list = server.get_array(key).map(|a| a.elements.iter().filter_map(Value::as_string_lit));
        list.into_iter().flatten().map(|s| s.value.as_ref()).collect()
    };
    match server.get_string("command") {
        Some(program) => owner.owns_server([program.value.as_ref()].into_iter().chain(texts("args"))),
        None => owner.owns_server(texts("command").into_iter()),
    }
}

fn has_value(value: &Value<'_>, node: &ConfigValue) -> bool {
    match (value, node) {
        (Value::StringLit(a), ConfigValue::Text(b)) => a.value == b.as_str(),
        (Value::NumberLit(a), ConfigValue::Number(b)) => a.value == b.to_string(),
        (Value::BooleanLit(a), ConfigValue::Flag(b)) => a.value == *b,
        (Value::Array(a), ConfigValue::List(b)) => {
            a.elements.len() == b.len() && a.elements.iter().zip(b).all(|(a, b)| has_value(a, b))
        }
        (Value::Object(a), ConfigValue::Map(b)) => {
            a.properties.len() == b.len() && b.iter().all(|(k, b)| a.get(k).is_some_and(|a| has_value(&a.value, b)))
        }
        _ => false,
    }
}
