//! What is known about the shell at one point of a text: its directory, the values of its variables, and its changed
//! settings.

use countersign_model::{Directory, WordValue};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// The largest number of values in a known set.
pub(crate) const MAX_WORD_VALUES: usize = 32;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ShellState {
    pub(super) directory: Rc<Directory>,
    pub(super) variables: Rc<BTreeMap<String, WordValue>>,
    /// Exported assignments that later programs see, except inert ones.
    pub(super) exported: Rc<BTreeMap<String, WordValue>>,
    pub(super) functions: Rc<BTreeSet<String>>,
    pub(super) readonly: Rc<BTreeSet<String>>,
    /// Variables that hold one word of a list of file names.
    pub(super) holds_file_name: Rc<BTreeSet<String>>,
    /// The values of all variables are unknown.
    pub(super) variables_unknown: bool,
    /// PATH, HOME or IFS have changed, so names, tildes or word splitting mean something else.
    pub(super) path_changed: bool,
    pub(super) home_changed: bool,
    pub(super) ifs_changed: bool,
    /// The shell may use physical paths: `..` is then the parent of a symbolic link's target.
    pub(super) physical: bool,
}

impl ShellState {
    pub(super) fn new(cwd: &str) -> Self {
        Self {
            directory: Rc::new(Directory::Known(vec![cwd.to_owned()])),
            variables: Rc::default(),
            exported: Rc::default(),
            functions: Rc::default(),
            readonly: Rc::default(),
            holds_file_name: Rc::default(),
            variables_unknown: false,
            path_changed: false,
            home_changed: false,
            ifs_changed: false,
            physical: false,
        }
    }

    /// Forgets everything, after a command that may have changed the shell in any way.
    pub(super) fn forget(&mut self) {
        self.directory = Rc::new(Directory::Unknown);
        self.forget_variables();
    }

    pub(super) fn forget_variables(&mut self) {
        self.variables = Rc::default();
        self.variables_unknown = true;
    }

    pub(super) fn set(&mut self, name: &str, value: WordValue) {
        match name {
            "PATH" => self.path_changed = true,
            "HOME" => self.home_changed = true,
            "IFS" => self.ifs_changed = true,
            _ => {}
        }
        if self.holds_file_name.contains(name) {
            Rc::make_mut(&mut self.holds_file_name).remove(name);
        }
        Rc::make_mut(&mut self.variables).insert(name.to_owned(), value);
    }

    pub(super) fn mark_listed(&mut self, name: &str) {
        Rc::make_mut(&mut self.holds_file_name).insert(name.to_owned());
    }

    pub(super) fn get(&self, name: &str) -> Option<&WordValue> {
        self.variables.get(name)
    }

    /// What is known if the shell is in one of the two states.
    pub(super) fn merge(mut self, other: Self) -> Self {
        if self == other {
            return self;
        }
        if self.directory != other.directory {
            self.directory = Rc::new(match (&*self.directory, &*other.directory) {
                (Directory::Known(a), Directory::Known(b)) => {
                    let mut all = a.clone();
                    all.extend(b.iter().filter(|d| !a.contains(d)).cloned());
                    if all.len() > 8 { Directory::Unknown } else { Directory::Known(all) }
                }
                _ => Directory::Unknown,
            });
        }
        if self.variables != other.variables {
            let mut merged = BTreeMap::new();
            for name in self.variables.keys().chain(other.variables.keys()) {
                let value = match (self.variables.get(name), other.variables.get(name)) {
                    // The directory stack is one list or the other, not a mixture.
                    (Some(a), Some(b)) if name == "\0stack" && a != b => WordValue::Unknown,
                    (Some(a), Some(b)) => merge_values(a, b),
                    // Set in only one state: in the other it keeps an earlier value, which is unknown.
                    _ => WordValue::Unknown,
                };
                merged.insert(name.clone(), value);
            }
            self.variables = Rc::new(merged);
        }
        for (name, value) in other.exported.iter() {
            if self.exported.get(name) != Some(value) {
                Rc::make_mut(&mut self.exported).insert(name.clone(), WordValue::Unknown);
            }
        }
        if !other.functions.is_subset(&self.functions) {
            Rc::make_mut(&mut self.functions).extend(other.functions.iter().cloned());
        }
        if !other.readonly.is_subset(&self.readonly) {
            Rc::make_mut(&mut self.readonly).extend(other.readonly.iter().cloned());
        }
        if !other.holds_file_name.is_subset(&self.holds_file_name) {
            Rc::make_mut(&mut self.holds_file_name).extend(other.holds_file_name.iter().cloned());
        }
        self.variables_unknown |= other.variables_unknown;
        self.path_changed |= other.path_changed;
        self.home_changed |= other.home_changed;
        self.ifs_changed |= other.ifs_changed;
        self.physical |= other.physical;
        self
    }
}

/// A value that is one or the other.
pub(super) fn merge_values(a: &WordValue, b: &WordValue) -> WordValue {
    if a == b {
        return a.clone();
    }
    let union = |a: &[String], b: &[String]| {
        let mut all = a.to_vec();
        all.extend(b.iter().filter(|v| !a.contains(v)).cloned());
        (all.len() <= MAX_WORD_VALUES).then_some(all)
    };
    let globs = |value: &WordValue| match value {
        WordValue::One(text) => Some(vec![escape_glob(text)]),
        WordValue::Any(texts) => Some(texts.iter().map(|t| escape_glob(t)).collect()),
        WordValue::Pattern(globs) => Some(globs.clone()),
        WordValue::Unknown => None,
    };
    let texts = |value: &WordValue| match value {
        WordValue::One(text) => Some(vec![text.clone()]),
        WordValue::Any(texts) => Some(texts.clone()),
        WordValue::Pattern(_) | WordValue::Unknown => None,
    };
    match (texts(a), texts(b)) {
        (Some(a), Some(b)) => union(&a, &b).map_or(WordValue::Unknown, WordValue::Any),
        _ => match (globs(a), globs(b)) {
            (Some(a), Some(b)) => union(&a, &b).map_or(WordValue::Unknown, WordValue::Pattern),
            _ => WordValue::Unknown,
        },
    }
}

/// Escapes literal text to a glob that matches only it.
pub(super) fn escape_glob(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The text of a glob without wildcards; none for a glob with wildcards.
pub(crate) fn unescape_glob(glob: &str) -> Option<String> {
    let mut out = String::with_capacity(glob.len());
    let mut chars = glob.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            '*' | '?' => return None,
            // An unclosed bracket is literal.
            '[' if chars.as_str().contains(']') => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

/// The states after which a list of commands ends: by success, by failure. None: it never ends that way.
#[derive(Debug, Clone)]
pub(super) struct ExitStates {
    pub(super) ok: Option<ShellState>,
    pub(super) failed: Option<ShellState>,
}

impl ExitStates {
    pub(super) fn unchanged(state: ShellState) -> Self {
        Self { ok: Some(state.clone()), failed: Some(state) }
    }

    /// The state after success or failure.
    pub(super) fn merged(self) -> Option<ShellState> {
        merge_states(self.ok, self.failed)
    }
}

pub(super) fn merge_states(a: Option<ShellState>, b: Option<ShellState>) -> Option<ShellState> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.merge(b)),
        (a, b) => a.or(b),
    }
}
