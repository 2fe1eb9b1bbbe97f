//! Matches `ps`. It takes options with a dash and BSD options without one. If the dashed options make no sense to it,
//! it reads all words as BSD options, where `e` shows the environment of every process, as one output column does.

use super::{PhraseMatch, not_read_only};
use crate::{scopes::PathCollector, tables::Phrase};
use countersign_model::{ReadOnlyProof, Word};

const FLAGS: &str = "AadefFHjlLwy";
const BSD_FLAGS: &str = "aAcCfghHjlLmMnrsSTuvVwxXZ";
/// Long options without a value.
#[rustfmt::skip]
const LONG_FLAGS: &[&str] = &[
    "forest", "no-headers", "no-heading", "headers", "heading", "deselect", "cumulative", "help", "version",
];
/// Long options with a value.
#[rustfmt::skip]
const LONG_VALUES: &[&str] = &[
    "sort", "pid", "ppid", "quick-pid", "user", "User", "group", "Group", "format", "cols", "columns", "width",
    "lines", "rows", "sid", "tty",
];

/// What the words of a `ps` ask for.
#[derive(Default)]
struct PsOptions<'w> {
    /// An option asks for the environment of processes.
    environment_requested: bool,
    misfit: Option<String>,
    /// Words that `ps` reads as BSD letters if it refuses the dashed options; and whether it may refuse them.
    bsd_candidates: Vec<&'w str>,
    may_be_refused: bool,
    flags: String,
    tree: bool,
    names_columns: bool,
}

/// Matches the words of a `ps`.
pub(super) fn match_ps(phrase: &'static Phrase, words: &[Word], scopes: &mut PathCollector<'_>) -> PhraseMatch {
    let Some(texts) = words.iter().map(Word::text).collect::<Option<Vec<_>>>() else {
        scopes.loose = true;
        return not_read_only("an argument is known only at run time");
    };
    let mut options = PsOptions::default();
    let mut rest = texts.into_iter();
    while let Some(text) = rest.next() {
        match text.strip_prefix("--") {
            Some(long) => options.read_long_option(long, &mut rest),
            None => options.read_cluster(text, &mut rest),
        }
    }
    let shows = options.shows_environments();
    scopes.seeks_credentials |= shows;
    match options.misfit {
        _ if shows => not_read_only("it shows the environment of processes"),
        Some(why) => not_read_only(why),
        None => PhraseMatch { reading: ReadOnlyProof::Phrase(phrase.name), opaque: None, recursive: false },
    }
}

impl<'w> PsOptions<'w> {
    fn read_long_option(&mut self, long: &'w str, rest: &mut impl Iterator<Item = &'w str>) {
        let (name, attached) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
        if LONG_VALUES.contains(&name) {
            let value = attached.or_else(|| rest.next());
            self.environment_requested |= name == "format" && value.is_none_or(shows_environment);
            self.names_columns |= name == "format";
        } else if !LONG_FLAGS.contains(&name) || attached.is_some() {
            self.misfit.get_or_insert_with(|| format!("it uses option --{name}"));
        }
        self.tree |= name == "forest";
    }

    /// Reads a cluster of letters, with or without a dash.
    fn read_cluster(&mut self, text: &'w str, rest: &mut impl Iterator<Item = &'w str>) {
        let dashed = text.strip_prefix('-');
        let cluster = dashed.unwrap_or(text);
        self.bsd_candidates.push(cluster);
        if is_numbers(cluster) {
            return;
        }
        for (at, c) in cluster.char_indices() {
            let takes = if dashed.is_some() { "oOpqCuUGgts" } else { "oOpqkUt" };
            if takes.contains(c) {
                let attached = &cluster[at + c.len_utf8()..];
                // Without a dash, a terminal is named only in the same word.
                let value = match attached {
                    "" if c == 't' && dashed.is_none() => Some(""),
                    "" => rest.next(),
                    _ => Some(attached),
                };
                self.note_value(c, value, dashed.is_some());
                break;
            }
            match dashed {
                Some(_) if FLAGS.contains(c) => self.flags.push(c),
                Some(_) if BSD_FLAGS.contains(c) || "dNyF".contains(c) => self.may_be_refused = true,
                None if BSD_FLAGS.contains(c) => {}
                None if c == 'e' => self.environment_requested = true,
                _ => drop(self.misfit.get_or_insert_with(|| format!("it uses option {c}"))),
            }
        }
    }

    fn note_value(&mut self, option: char, value: Option<&'w str>, dashed: bool) {
        match (option, value) {
            (_, None) => self.misfit = Some(format!("option {option} lacks its value")),
            ('o' | 'O', Some(value)) => {
                self.environment_requested |= shows_environment(value);
                self.names_columns = true;
            }
            ('p' | 'q', Some(value)) if is_numbers(value) => {}
            (_, Some(value)) => {
                self.bsd_candidates.push(value);
                self.may_be_refused |= dashed && option != 'C';
            }
        }
    }

    /// Whether `ps` shows environments, also if it refuses the dashed options and reads them as BSD letters.
    fn shows_environments(&self) -> bool {
        let has = |set: &str| self.flags.contains(|c| set.contains(c));
        // Threads as a tree, or two ways to choose the columns.
        let conflicts = has("L") && (has("H") || self.tree) || has("fFljy") && self.names_columns;
        // Other options with a tree may conflict in ways that are not modelled here.
        let odd_tree = self.tree && self.flags.contains(|c| !"eAfFw".contains(c));
        let refusable = self.may_be_refused || conflicts || odd_tree;
        self.environment_requested || refusable && self.bsd_candidates.iter().any(|w| letters_show_environment(w))
    }
}

fn is_numbers(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b',' | b' '))
}

/// Whether a list of columns includes the environment, under any of its names.
fn shows_environment(columns: &str) -> bool {
    columns.to_ascii_lowercase().contains("env")
}

/// Whether BSD letters include the `e` that shows environments, before a letter that takes the rest as its value.
fn letters_show_environment(word: &str) -> bool {
    let word = word.trim_start_matches('-');
    word.chars().take_while(|c| c.is_ascii_alphabetic() && !"oOpqkUt".contains(*c)).any(|c| c == 'e')
}
