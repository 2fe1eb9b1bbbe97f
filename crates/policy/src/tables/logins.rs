//! What known tools sign in with: files of the home, and local sockets.

use super::{Examples, rows};
use countersign_model::{Occurrence, Word};
use std::{collections::HashMap, sync::OnceLock};

/// What one tool needs beside its workspace to act as its user.
pub(crate) struct Login {
    /// Below the home: read, and written.
    pub(crate) reads: Vec<&'static str>,
    pub(crate) writes: Vec<&'static str>,
    /// It speaks with an agent, a daemon or a database over a unix socket.
    pub(crate) sockets: bool,
    /// Only with one of these options, if there are any.
    when: Vec<&'static str>,
    pub(crate) examples: Examples,
}

pub(super) const LOGINS: &str = include_str!("logins.table");

pub(super) fn all_logins() -> &'static HashMap<&'static str, Login> {
    static ALL: OnceLock<HashMap<&'static str, Login>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = HashMap::new();
        for row in rows(LOGINS) {
            for verb in row.head.split(" | ") {
                let words = |keyword| row.all(keyword).flat_map(str::split_whitespace).collect();
                let login = Login {
                    reads: words("reads"),
                    writes: words("writes"),
                    sockets: row.has("sockets"),
                    when: words("when"),
                    examples: Examples::of(&row),
                };
                all.insert(verb, login);
            }
        }
        all
    })
}

/// What an occurrence signs in with: by its verb, or the longest start of it that the table knows.
pub(crate) fn login(occurrence: &Occurrence) -> Option<&'static Login> {
    let mut verb = occurrence.verb.as_str();
    loop {
        if let Some(found) = all_logins().get(verb) {
            let given = |option: &&str| occurrence.words.iter().filter_map(Word::text).any(|w| is_option(w, option));
            return Some(found).filter(|l| l.when.is_empty() || l.when.iter().any(given));
        }
        verb = &verb[..verb.rfind(' ')?];
    }
}

/// `--sign`, `--sign=key`, `-S`, `-Skey`; a letter among others does not count.
fn is_option(word: &str, option: &str) -> bool {
    word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('=') || !option.starts_with("--"))
}
