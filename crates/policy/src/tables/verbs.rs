//! How many words of a command form its verb.

use super::{OptionGrammar, parse_rows};
use std::{collections::HashMap, sync::OnceLock};

/// The subcommands of one program.
pub(crate) struct Subcommands {
    /// Options that may precede the subcommand.
    pub(crate) globals: OptionGrammar,
    pub(crate) words: usize,
    deeper: HashMap<&'static str, usize>,
    pub(crate) examples: Vec<(&'static str, &'static str)>,
}

impl Subcommands {
    /// The number of words in the verb if its first subcommand is this one.
    pub(crate) fn verb_words_for(&self, first: &str) -> usize {
        self.deeper.get(first).copied().unwrap_or(self.words)
    }
}

pub(super) const VERBS: &str = include_str!("verbs.table");

pub(crate) fn all_subcommands() -> &'static HashMap<&'static str, Subcommands> {
    static ALL: OnceLock<HashMap<&'static str, Subcommands>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = HashMap::new();
        for row in parse_rows(VERBS) {
            let globals: Vec<&'static str> = row.values("options").collect();
            for name in row.head.split(" | ") {
                let depth = Subcommands {
                    globals: OptionGrammar::parse(&globals, "text*"),
                    words: row.values("words").next().and_then(|n| n.parse().ok()).unwrap_or(1),
                    deeper: row
                        .values("deeper")
                        .flat_map(str::split_whitespace)
                        .filter_map(|d| d.split_once(':').and_then(|(n, w)| Some((n, w.parse().ok()?))))
                        .collect(),
                    examples: row.values("yes").filter_map(|e| e.split_once(" => ")).collect(),
                };
                all.insert(name, depth);
            }
        }
        all
    })
}

pub(crate) fn find_subcommands(program: &str) -> Option<&'static Subcommands> {
    all_subcommands().get(program)
}
