//! Rule: identifiers, file names, string literals, comments and Markdown contain no word of `retired_words.txt`. Names that
//! are stored or sent stay: `stored_names.txt` lists them.

use super::{
    Finding,
    rust_text::{PieceKind, read_pieces},
};
use std::{collections::BTreeSet, path::Path};

const WORDS_TEXT: &str = include_str!("retired_words.txt");
pub(super) const STORED_NAMES_FILE: &str = "crates/xtask/src/tidy/stored_names.txt";

/// One line of `retired_words.txt`.
struct RetiredWord {
    /// Lower case; more than one for a phrase.
    words: Vec<String>,
    scope: WordScope,
    /// Words behind it that give it another meaning.
    unless: Vec<String>,
    instead: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordScope {
    All,
    Identifiers,
    Constants,
    Text,
    DocComments,
    FunctionNames,
    TypeNames,
}

/// The retired words, with their scopes.
pub(super) struct RetiredWords(Vec<RetiredWord>);

impl RetiredWords {
    /// The list of this project.
    pub(super) fn of_project() -> Self {
        Self::parse(WORDS_TEXT)
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(
            lines
                .map(|line| parse_word(line).unwrap_or_else(|| panic!("`{line}` is no WORD | WHERE | INSTEAD")))
                .collect(),
        )
    }
}

fn parse_word(line: &str) -> Option<RetiredWord> {
    let mut columns = line.split('|').map(str::trim);
    let words = columns.next()?.split(' ').map(str::to_lowercase).collect();
    let mut condition = columns.next()?.split_whitespace();
    let scope = match condition.next()? {
        "all" => WordScope::All,
        "ident" => WordScope::Identifiers,
        "const" => WordScope::Constants,
        "text" => WordScope::Text,
        "doc" => WordScope::DocComments,
        "fn" => WordScope::FunctionNames,
        "type" => WordScope::TypeNames,
        _ => return None,
    };
    let unless = match condition.next() {
        Some("unless") => condition.map(str::to_owned).collect(),
        Some(_) => return None,
        None => Vec::new(),
    };
    let instead = columns.next()?.to_owned();
    Some(RetiredWord { words, scope, unless, instead })
}

/// Retired words that stay.
pub(super) struct StoredNames(Vec<StoredName>);

struct StoredName {
    line: usize,
    path: String,
    /// None: the whole directory.
    text: Option<String>,
}

impl StoredNames {
    pub(super) fn parse(text: &str) -> Self {
        let entry = |(i, line): (usize, &str)| {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            let (path, text) = match kind {
                "below" => (rest, None),
                "name" => rest.split_once(' ').map(|(path, text)| (path, Some(text.to_owned())))?,
                _ => return None,
            };
            Some(StoredName { line: i + 1, path: path.to_owned(), text })
        };
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let bad = |line: &str| panic!("{STORED_NAMES_FILE}: `{line}` is neither `below` nor `name`");
        Self(lines.map(|at| entry(at).unwrap_or_else(|| bad(at.1))).collect())
    }

    /// The entry that excuses a literal, or a whole file where there is no literal.
    fn entry_for(&self, file: &str, literal: Option<&str>) -> Option<usize> {
        let covers = |name: &&StoredName| match &name.text {
            None => file.starts_with(&name.path),
            Some(text) => Path::new(file).starts_with(&name.path) && literal == Some(text),
        };
        self.0.iter().find(covers).map(|name| name.line)
    }

    /// The entries of which none of these lines is one.
    pub(super) fn unused(&self, used: &BTreeSet<usize>) -> Vec<Finding> {
        let unused = self.0.iter().filter(|name| !used.contains(&name.line));
        unused
            .map(|name| Finding::new(STORED_NAMES_FILE, name.line, "this entry excuses nothing: delete the line"))
            .collect()
    }
}

/// The retired words of a file, and the entries of the stored names that excuse others.
#[derive(Default)]
pub(super) struct FileWords {
    pub(super) found: Vec<Finding>,
    pub(super) used_entries: Vec<usize>,
}

/// Checks one file by its kind. Files of other kinds are checked by their names alone.
pub(super) fn check(file: &str, text: &str, retired: &RetiredWords, stored: &StoredNames) -> FileWords {
    let mut checker = Checker { file, retired, stored, words: FileWords::default() };
    let stem = file.trim_end_matches(".rs").trim_end_matches(".md");
    for part in stem.split('/') {
        checker.check_stretch(&split_words(part, 1), Stretch::Identifier { constant: false }, None);
    }
    match Path::new(file).extension().and_then(|extension| extension.to_str()) {
        Some("rs") => checker.check_rust(text),
        Some("md") => checker.check_markdown(text),
        Some("toml" | "table" | "py" | "sh" | "yml") => checker.check_plain_text(text),
        _ => {}
    }
    checker.words
}

/// What a stretch of words is, to choose the words that apply.
#[derive(Clone, Copy)]
enum Stretch {
    Identifier {
        constant: bool,
    },
    /// The name of a function, where it is defined; also an identifier.
    FunctionName,
    /// The name of a type, where it is defined; also an identifier.
    TypeName,
    Text,
    DocComment,
}

impl WordScope {
    fn applies(self, stretch: Stretch) -> bool {
        match (self, stretch) {
            (Self::All, _)
            | (Self::Identifiers, Stretch::Identifier { .. } | Stretch::FunctionName | Stretch::TypeName)
            | (Self::FunctionNames, Stretch::FunctionName)
            | (Self::TypeNames, Stretch::TypeName) => true,
            (Self::Constants, Stretch::Identifier { constant }) => constant,
            (Self::Text, Stretch::Text | Stretch::DocComment) | (Self::DocComments, Stretch::DocComment) => true,
            _ => false,
        }
    }
}

struct Checker<'a> {
    file: &'a str,
    retired: &'a RetiredWords,
    stored: &'a StoredNames,
    words: FileWords,
}

impl Checker<'_> {
    fn check_rust(&mut self, text: &str) {
        let mut keyword = String::new();
        for piece in read_pieces(text) {
            let stretch = match piece.kind {
                PieceKind::Identifier if keyword == "fn" => Stretch::FunctionName,
                PieceKind::Identifier if ["struct", "enum", "trait", "type", "union"].contains(&keyword.as_str()) => {
                    Stretch::TypeName
                }
                PieceKind::Identifier => Stretch::Identifier { constant: !piece.text.contains(char::is_lowercase) },
                PieceKind::StringLiteral | PieceKind::Comment => Stretch::Text,
                PieceKind::DocComment => Stretch::DocComment,
            };
            let literal = (piece.kind == PieceKind::StringLiteral).then_some(piece.text.as_str());
            self.check_stretch(&split_words(&piece.text, piece.line), stretch, literal);
            keyword = if piece.kind == PieceKind::Identifier { piece.text } else { String::new() };
        }
    }

    /// Code spans are stretches of their own, since one may be a stored name.
    fn check_markdown(&mut self, text: &str) {
        let mut line = 1;
        let mut fenced = false;
        let mut prose = String::new();
        let mut prose_line = 1;
        for content in text.lines() {
            fenced ^= content.trim_start().starts_with("```");
            for (i, part) in content.split('`').enumerate() {
                let span = i % 2 == 1 && !fenced;
                if span {
                    self.check_stretch(&split_words(part, line), Stretch::Text, Some(part));
                    prose.push_str(" ` ");
                } else {
                    prose.push_str(part);
                }
            }
            prose.push('\n');
            line += 1;
            if content.trim().is_empty() {
                self.check_stretch(&split_words(&prose, prose_line), Stretch::Text, None);
                prose.clear();
                prose_line = line;
            }
        }
        self.check_stretch(&split_words(&prose, prose_line), Stretch::Text, None);
    }

    /// Such files have no literals that are known here, so a stored name is left out wherever it stands.
    fn check_plain_text(&mut self, text: &str) {
        let mut text = text.to_owned();
        for name in self.stored.0.iter().filter(|name| Path::new(self.file).starts_with(&name.path)) {
            if let Some(stored) = name.text.as_ref().filter(|stored| text.contains(*stored)) {
                text = text.replace(stored, "");
                self.words.used_entries.push(name.line);
            }
        }
        self.check_stretch(&split_words(&text, 1), Stretch::Text, None);
    }

    fn check_stretch(&mut self, words: &[TextWord], stretch: Stretch, literal: Option<&str>) {
        for retired in self.retired.0.iter().filter(|retired| retired.scope.applies(stretch)) {
            for at in 0..words.len() {
                if !is_at(retired, words, at) {
                    continue;
                }
                let excuse =
                    self.stored.entry_for(self.file, None).or_else(|| self.stored.entry_for(self.file, literal));
                if let Some(entry) = excuse {
                    self.words.used_entries.push(entry);
                    continue;
                }
                let phrase = retired.words.join(" ");
                let advice = format!("`{phrase}` is a retired word: {}", retired.instead);
                self.words.found.push(Finding::new(self.file, words[at].line, advice));
            }
        }
    }
}

/// Whether a whole name is retired; `*ed` retires every name with that ending, except for `need` and the like.
fn is_whole_name(retired: &RetiredWord, words: &[TextWord]) -> bool {
    let ([word], [wanted]) = (words, retired.words.as_slice()) else { return false };
    match wanted.strip_prefix('*') {
        Some(ending) => word.text.ends_with(ending) && !word.text.ends_with(&format!("e{ending}")),
        None => word.text == *wanted,
    }
}

/// Whether a retired phrase begins at a word.
fn is_at(retired: &RetiredWord, words: &[TextWord], at: usize) -> bool {
    if matches!(retired.scope, WordScope::FunctionNames | WordScope::TypeNames) {
        return at == 0 && is_whole_name(retired, words);
    }
    let count = retired.words.len();
    let Some(found) = words.get(at..at + count) else { return false };
    let last = count - 1;
    let matches = found.iter().zip(&retired.words).enumerate().all(|(i, (word, wanted))| {
        let same = if i == last && retired.scope != WordScope::DocComments {
            word.text.strip_prefix(wanted.as_str()).is_some_and(|ending| ["", "s", "es"].contains(&ending))
        } else {
            word.text == *wanted
        };
        same && (i == 0 || !word.after_mark)
    });
    let next = words.get(at + count);
    if retired.scope == WordScope::DocComments {
        return matches && at == 0 && next.is_none_or(|next| next.after_mark);
    }
    let has_other_meaning = next.is_some_and(|next| !next.after_mark && retired.unless.contains(&next.text));
    matches && !has_other_meaning
}

/// A word of a sentence, or a segment of an identifier, in lower case.
#[derive(Debug, PartialEq, Eq)]
struct TextWord {
    text: String,
    line: usize,
    /// Something other than space or `_` separates it from the word before it.
    after_mark: bool,
}

/// Splits at everything that is no letter, and where `CamelCase` begins a new segment.
fn split_words(text: &str, first_line: usize) -> Vec<TextWord> {
    let mut words: Vec<TextWord> = Vec::new();
    let mut line = first_line;
    let mut after_mark = false;
    let mut previous = ' ';
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        if c.is_alphabetic() {
            let acronym_ends = previous.is_uppercase() && letters.peek().is_some_and(|next| next.is_lowercase());
            let begins = !previous.is_alphabetic() || (c.is_uppercase() && (previous.is_lowercase() || acronym_ends));
            if begins {
                words.push(TextWord { text: String::new(), line, after_mark });
                after_mark = false;
            }
            if let Some(word) = words.last_mut() {
                word.text.extend(c.to_lowercase());
            }
        } else if !c.is_whitespace() && c != '_' {
            after_mark = true;
        }
        if c == '\n' {
            line += 1;
        }
        previous = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "# made up\n\ngizmo | all | tool\nblurb | ident | text\nhugest | const | MAX\n\
        as it were | text | say it\nditto | doc | say it\ngawk | all unless at | read\nblab | fn | say_it\n*ed | type | a noun\n";

    fn found(file: &str, text: &str) -> Vec<String> {
        let checked = check(file, text, &RetiredWords::parse(WORDS), &StoredNames::parse(""));
        let word = |advice: &str| advice.split('`').nth(1).unwrap_or_default().replace(' ', "-");
        checked.found.iter().map(|finding| format!("{}:{}", finding.line, word(&finding.advice))).collect()
    }

    #[test]
    fn a_retired_word_is_found_as_a_segment_of_an_identifier() {
        assert_eq!(
            found("a.rs", "struct GizmoLock;\nfn old_gizmo() {}\nconst GIZMO: u8 = 1; HTTPGizmo"),
            ["1:gizmo", "2:gizmo", "3:gizmo", "3:gizmo"]
        );
        assert!(found("a.rs", "gizmology(); Agizmo").is_empty());
        assert_eq!(found("src/old_gizmo/mod.rs", ""), ["1:gizmo"]);
        assert_eq!(found("docs/0001-a-gizmo.md", ""), ["1:gizmo"]);
    }

    #[test]
    fn a_retired_word_is_found_in_literals_comments_markdown_and_tables() {
        assert_eq!(
            found("a.rs", "// The Gizmo's end\nf(\"two\\ngizmos\", r\"[`Gizmo`]\");"),
            ["1:gizmo", "2:gizmo", "2:gizmo"]
        );
        assert_eq!(found("a.md", "# Title\n\nA `gizmo` and\na gizmo.\n"), ["3:gizmo", "4:gizmo"]);
        assert_eq!(found("a.toml", "# a gizmo\n"), ["1:gizmo"]);
        assert!(found("a.json", "gizmo").is_empty());
    }

    #[test]
    fn a_word_counts_only_where_its_scope_says() {
        assert!(found("a.rs", "// a blurb").is_empty());
        assert_eq!(found("a.rs", "a_blurb"), ["1:blurb"]);
        assert_eq!(found("a.rs", "HUGEST_NAME; hugest()"), ["1:hugest"]);
        assert_eq!(found("a.rs", "/// Ditto, for files.\nx; /// Ditto marks.\ny; // Ditto."), ["1:ditto"]);
        assert_eq!(found("a.rs", "// gawk at it; gawk"), ["1:gawk"]);
        assert_eq!(found("a.rs", "fn blab() { blab(); let blab_on; }\nfn blab_on() {}"), ["1:blab"]);
        assert_eq!(found("a.rs", "struct Chewed;\nenum Need {}\ntype ChewedFood = Chewed;"), ["1:*ed"]);
    }

    #[test]
    fn a_phrase_is_found_across_lines_and_not_across_marks() {
        assert_eq!(
            found("a.rs", "/// It is as it\n/// were.\nf(\"as it \\\n   were\")"),
            ["1:as-it-were", "3:as-it-were"]
        );
        assert_eq!(found("a.md", "It is as\nit were."), ["1:as-it-were"]);
        assert!(found("a.md", "as it, were").is_empty());
    }

    #[test]
    fn stored_names_excuse_exactly_what_they_name() {
        let stored = StoredNames::parse("below old/\nname src/a.rs gizmo_id\nname docs gizmo_id\n");
        let check = |file: &str, text: &str| {
            let checked = check(file, text, &RetiredWords::parse(WORDS), &stored);
            (checked.found.len(), checked.used_entries)
        };
        assert_eq!(check("old/gizmo.rs", ""), (0, vec![1]));
        assert_eq!(check("src/a.rs", "f(\"gizmo_id\", \"gizmo_ids\"); gizmo_id"), (2, vec![2]));
        assert_eq!(check("src/b.rs", "f(\"gizmo_id\")"), (1, vec![]));
        assert_eq!(check("docs/formats.md", "`gizmo_id` of a gizmo"), (1, vec![3]));
        assert_eq!(check("docs/a.toml", "gizmo_id and gizmo"), (1, vec![3]));
        assert_eq!(stored.unused(&[1, 3].into()).len(), 1);
    }

    #[test]
    fn the_list_of_the_project_can_be_read() {
        assert!(RetiredWords::of_project().0.len() > 20);
    }
}
