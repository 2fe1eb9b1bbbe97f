//! What known tools log in with: files of the home, and unix sockets.

use super::{Examples, parse_rows};
use countersign_model::{Occurrence, Risk};
use std::{collections::HashMap, sync::OnceLock};

/// What one tool needs in addition to its workspace to act as its user.
pub(crate) struct ToolLogin {
    /// Paths below the home that the tool reads, and that it writes.
    pub(crate) reads: Vec<&'static str>,
    pub(crate) writes: Vec<&'static str>,
    /// The tool connects to an agent, a daemon or a database over a unix socket.
    pub(crate) sockets: bool,
    /// Applies only if an option of the command raised `credential`, which the user or a grant then accepted.
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

/// What an occurrence logs in with: by its verb, or by the longest prefix of it in the table.
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
