//! Adds an entry to a text or removes it, in any of the three formats, and shows the change as a diff.

use super::{
    entry::{EditedText, Entry, EntryOwner, FILE_MARKER},
    files::FileWrite,
    json, toml, yaml,
};
use crate::EditError;
use std::{borrow::Cow, path::Path};

#[derive(Debug, Clone, Copy)]
enum Format {
    Json,
    Toml,
    Yaml,
}

fn format_of(path: &Path) -> Format {
    match path.extension().and_then(|e| e.to_str()) {
        Some("toml") => Format::Toml,
        Some("yaml" | "yml") => Format::Yaml,
        _ => Format::Json,
    }
}

fn split_bom(text: &str) -> (&str, &str) {
    text.strip_prefix('\u{feff}').map_or(("", text), |body| ("\u{feff}", body))
}

/// The text with the entry. `made` are containers that an earlier installation created.
pub(super) fn put_entry(
    path: &Path,
    text: Option<&str>,
    entry: &Entry,
    owner: &EntryOwner,
    made: &[String],
) -> Result<EditedText, EditError> {
    if let Entry::Whole(body) = entry {
        return match text {
            Some(existing) if !existing.starts_with(FILE_MARKER) => Err(EditError::ForeignFile),
            _ => Ok(EditedText { text: body.clone(), made: Vec::new() }),
        };
    }
    let (bom, body) = split_bom(text.unwrap_or_default());
    let edited = put_entry_in_body(format_of(path), body, entry, owner, made)?;
    // An edit that changes its own result would change the file with every run.
    if put_entry_in_body(format_of(path), &edited.text, entry, owner, &edited.made)?.text != edited.text {
        return Err(EditError::Unreliable);
    }
    Ok(EditedText { text: format!("{bom}{}", edited.text), ..edited })
}

fn put_entry_in_body(
    format: Format,
    body: &str,
    entry: &Entry,
    owner: &EntryOwner,
    made: &[String],
) -> Result<EditedText, EditError> {
    match format {
        Format::Json => json::put_entry(body, entry, owner, made),
        Format::Toml => toml::put_entry(body, entry, owner),
        Format::Yaml => yaml::put_entry(body, entry, owner, made),
    }
}

/// The text without the entry.
pub(super) fn remove_entry(
    path: &Path,
    text: &str,
    entry: &Entry,
    owner: &EntryOwner,
    made: &[String],
) -> Result<String, EditError> {
    if let Entry::Whole(_) = entry {
        return Ok(if text.starts_with(FILE_MARKER) { String::new() } else { text.to_owned() });
    }
    let (bom, body) = split_bom(text);
    let without = match format_of(path) {
        Format::Json => json::remove_entry(body, entry, owner, made),
        Format::Toml => toml::remove_entry(body, entry, owner),
        Format::Yaml => yaml::remove_entry(body, entry, owner, made),
    }?;
    Ok(format!("{bom}{without}"))
}

/// Why the agent would ignore the entry, as far as its file tells.
pub(super) fn find_switch_off(path: &Path, text: &str, entry: &Entry) -> Option<EditError> {
    let reason = match format_of(path) {
        Format::Json => json::find_switch_off(split_bom(text).1, entry),
        Format::Toml => toml::find_switch_off(split_bom(text).1, entry),
        // The key that switches an extension off is one that the entry sets.
        Format::Yaml => None,
    };
    reason.map(EditError::SwitchedOff)
}

/// Whether a configuration contains nothing.
pub(super) fn is_empty_config(text: &[u8]) -> bool {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text).trim_ascii();
    text.is_empty() || text == b"{}"
}

/// A unified diff without secrets. Empty when nothing changes.
pub(super) fn redacted_diff(change: &FileWrite) -> String {
    let (before, after) = (lossy(change.before.as_deref()), lossy(change.after.as_deref()));
    if before == after && change.before.is_some() == change.after.is_some() {
        return String::new();
    }
    let name = |exists: bool| if exists { change.path.display().to_string() } else { "/dev/null".to_owned() };
    let diff = similar::TextDiff::from_lines(before.as_ref(), after.as_ref());
    let mut unified = diff.unified_diff();
    let unified = unified.header(&name(change.before.is_some()), &name(change.after.is_some())).to_string();
    let clean = countersign_redact::text_by_shape(&unified);
    clean.as_str().chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect()
}

fn lossy(bytes: Option<&[u8]>) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes.unwrap_or_default())
}
