//! What known tools sign in with: files of the home, and local sockets.

use super::{Examples, parse_rows};
use countersign_model::{Occurrence, Risk};
use std::{collections::HashMap, sync::OnceLock};

/// What one tool needs beside its workspace to act as its user.
pub(crate) struct ToolLogin {
    /// Below the home: read, and written.
    pub(crate) reads: Vec<&'static str>,
    pub(crate) writes: Vec<&'static str>,
    /// It speaks with an agent, a daemon or a database over a unix socket.
    pub(crate) sockets: bool,
    /// Only where an option of the command has raised `credential`: a person or a grant accepted that then.
    if_credential: bool,
    pub(crate) examples: Examples,
}

pub(super) const LOGINS: &str = include_str!("logins.table");

pub(super) fn all_logins() -> &'static HashMap<&'static str, ToolLogin> {
    static ALL: OnceLock<HashMap<&'static str, ToolLogin>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = HashMap::new();
        for row in parse_rows(LOGINS) {
            for verb in row.head.split(" | ") {
                let words = |keyword| row.values(keyword).flat_map(str::split_whitespace).collect();
                let login = ToolLogin {
                    reads: words("reads"),
                    writes: words("writes"),
                    sockets: row.has_keyword("sockets"),
                    if_credential: row.has_keyword("if-credential"),
                    examples: Examples::from_row(&row),
                };
                all.insert(verb, login);
            }
        }
        all
    })
}

/// What an occurrence signs in with: by its verb, or the longest start of it that the table knows.
pub(crate) fn find_login(occurrence: &Occurrence) -> Option<&'static ToolLogin> {
    let mut verb = occurrence.verb.as_str();
    loop {
        if let Some(found) = all_logins().get(verb) {
            let raised = occurrence.risks.iter().any(|(risk, _)| *risk == Risk::Credential);
            return Some(found).filter(|l| !l.if_credential || raised);
        }
        verb = &verb[..verb.rfind(' ')?];
    }
}
