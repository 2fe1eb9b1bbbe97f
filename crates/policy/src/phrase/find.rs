//! Matches `find`: its starting points, its tests, and the few actions that only print.

use super::PhraseMatch;
use crate::{
    paths,
    scopes::PathCollector,
    tables::{self, OperandRole, Phrase},
};
use countersign_model::{ReadOnlyProof, Word, WordValue};

/// Words of an expression that take no value.
#[rustfmt::skip]
const BARE_WORDS: &[&str] = &[
    "-print", "-print0", "-ls", "-prune", "-quit", "-true", "-false", "-empty", "-executable", "-readable",
    "-writable", "-nouser", "-nogroup", "-depth", "-d", "-mount", "-xdev", "-noleaf", "-daystart", "-follow", "-a",
    "-and", "-o", "-or", "-not", "!", "(", ")", ",", "-warn", "-nowarn", "-ignore_readdir_race", "-help", "--help",
    "-version", "--version",
];
/// Tests with a value that is not a file.
#[rustfmt::skip]
const VALUE_TESTS: &[&str] = &[
    "-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex", "-lname", "-ilname",
    "-type", "-xtype", "-size", "-mtime", "-atime", "-ctime", "-mmin", "-amin", "-cmin", "-maxdepth", "-mindepth",
    "-perm", "-user", "-group", "-uid", "-gid", "-links", "-inum", "-used", "-fstype", "-printf", "-regextype",
    "-newermt", "-newerat", "-newerct", "-context",
];
/// Tests against a file.
#[rustfmt::skip]
const FILE_TESTS: &[&str] = &[
    "-newer", "-anewer", "-cnewer", "-samefile", "-newermm", "-newerma", "-newerac",
];
/// Actions that write or run.
#[rustfmt::skip]
const ACTIONS: &[&str] = &[
    "-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls", "-files0-from",
];

/// The starting points of `find`: the words before its expression.
pub(crate) fn find_starts(words: &[Word]) -> Vec<String> {
    let mut starts = Vec::new();
    for word in words {
        match word.text() {
            Some("-H" | "-L" | "-P") => {}
            Some(t) if t.starts_with(['-', '(', ')', '!', ',']) => break,
            Some(t) => starts.push(t.to_owned()),
            None => {
                for text in word.texts().unwrap_or_default() {
                    starts.push(text.clone());
                }
                if let WordValue::Pattern(globs) = &word.value {
                    starts.extend(globs.iter().cloned());
                }
            }
        }
    }
    if starts.is_empty() {
        starts.push(".".to_owned());
    }
    starts
}

/// Whether the test at `at` excludes what it names from every action: `! -name x` if nothing else negates it, or
/// `-name x -prune -o …` as an alternative of its own.
pub(crate) fn find_excludes(words: &[Word], at: usize) -> bool {
    let text = |n: usize| words.get(n).and_then(Word::text);
    let before = |back: usize| at.checked_sub(back).and_then(text);
    let is_not = |t: Option<&str>| matches!(t, Some("!" | "-not"));
    let is_or = |t: Option<&str>| matches!(t, Some("-o" | "-or"));
    if words.iter().any(|w| w.text() == Some(",")) {
        return false;
    }
    if is_not(before(1)) {
        let turned = (0..words.len()).any(|n| is_not(text(n)) && matches!(text(n + 1), Some("(" | "!" | "-not")));
        return !turned && !(0..words.len()).any(|n| is_or(text(n)));
    }
    let open = words[..at].iter().filter(|w| w.text() == Some("(")).count();
    let closed = words[..at].iter().filter(|w| w.text() == Some(")")).count();
    let first = !words[..at].iter().any(|w| w.text().is_some_and(|t| t.starts_with(['-', '(', '!'])));
    open == closed && (first || is_or(before(1))) && text(at + 2) == Some("-prune") && is_or(text(at + 3))
}

/// The state of reading a `find` command line.
struct FindExpression<'w> {
    words: &'w [Word],
    /// The index of the next word.
    at: usize,
    /// The starting points have ended.
    expression_begun: bool,
    /// A starting point was named.
    start_named: bool,
    /// An action runs a command on the files found.
    runs_commands: bool,
    misfit: Option<String>,
}

/// Matches the words of a `find`, and adds every path among them to `scopes`.
pub(super) fn match_find(phrase: &'static Phrase, words: &[Word], scopes: &mut PathCollector<'_>) -> PhraseMatch {
    let runs = words.iter().any(|w| matches!(w.text(), Some("-exec" | "-execdir" | "-ok" | "-okdir")));
    let mut expression =
        FindExpression { words, at: 0, expression_begun: false, start_named: false, runs_commands: runs, misfit: None };
    while let Some(word) = words.get(expression.at) {
        expression.at += 1;
        expression.read_word(word, scopes);
    }
    if !expression.start_named {
        scopes.add_working_directory(true);
    }
    let reading = match expression.misfit {
        Some(why) => ReadOnlyProof::Not(why),
        None => ReadOnlyProof::Phrase(phrase.name),
    };
    PhraseMatch { reading, opaque: None, recursive: true }
}

impl FindExpression<'_> {
    /// Reads one word and its values.
    fn read_word(&mut self, word: &Word, scopes: &mut PathCollector<'_>) {
        let Some(text) = word.text() else {
            if self.expression_begun || tables::may_be_option(word) {
                scopes.loose = true;
                self.misfit.get_or_insert_with(|| "an argument may turn out to be an action".to_owned());
            }
            return self.add_start(word, scopes);
        };
        match text {
            "-H" | "-L" | "-P" if !self.expression_begun => {}
            "-O0" | "-O1" | "-O2" | "-O3" if !self.expression_begun => {}
            "-D" if !self.expression_begun && self.words.get(self.at).is_some_and(|w| w.text().is_some()) => {
                self.at += 1
            }
            _ if !self.expression_begun && !text.starts_with('-') && !matches!(text, "(" | ")" | "!" | ",") => {
                self.add_start(word, scopes);
            }
            "-exec" | "-execdir" | "-ok" | "-okdir" => self.skip_command(text),
            "-delete" => {
                self.expression_begun = true;
                self.misfit = Some("it uses the action -delete".to_owned());
            }
            "-fprint" | "-fprint0" | "-fls" | "-fprintf" => {
                self.expression_begun = true;
                if let Some(file) = self.words.get(self.at) {
                    scopes.add_word(file, OperandRole::WriteFile, false, &mut self.misfit);
                }
                self.at += 1 + usize::from(text == "-fprintf");
                self.misfit.get_or_insert_with(|| format!("it uses the action {text}"));
            }
            _ if BARE_WORDS.contains(&text) => self.expression_begun = true,
            _ if VALUE_TESTS.contains(&text) => self.read_test(text, scopes),
            _ if FILE_TESTS.contains(&text) => {
                self.expression_begun = true;
                if let Some(file) = self.words.get(self.at) {
                    scopes.add_word(file, OperandRole::File, false, &mut self.misfit);
                    if file.many {
                        self.misfit.get_or_insert_with(|| format!("the value of {text} is not known"));
                    }
                }
                self.at += 1;
            }
            _ => drop(self.misfit.get_or_insert_with(|| format!("its expression contains {text}"))),
        }
    }

    /// Adds a starting point. Without a command to run, find shows only names.
    fn add_start(&mut self, word: &Word, scopes: &mut PathCollector<'_>) {
        let role = if self.runs_commands { OperandRole::Dir } else { OperandRole::Name };
        self.start_named |= scopes.add_word(word, role, true, &mut self.misfit);
    }

    /// Skips the command of `-exec …`, which is an occurrence of its own.
    fn skip_command(&mut self, action: &str) {
        self.expression_begun = true;
        let words = self.words;
        let end = (self.at..words.len()).find(|&m| {
            let t = words[m].text().unwrap_or_default();
            t == ";" || t == "+" && action.starts_with("-exec") && words[m - 1].text() == Some("{}")
        });
        // busybox ends a command at any lone `+`.
        if (self.at..end.unwrap_or(words.len())).any(|m| words[m].text() == Some("+")) {
            self.misfit.get_or_insert_with(|| format!("{action} may end in two places"));
        }
        if end.is_none() {
            self.misfit.get_or_insert_with(|| format!("{action} has no end"));
        }
        self.at = end.map_or(words.len(), |end| end + 1);
    }

    /// Reads a test with a value.
    fn read_test(&mut self, text: &str, scopes: &mut PathCollector<'_>) {
        self.expression_begun = true;
        // The names that an unquoted glob matches become words of the expression, so none may be a word that `find`
        // knows.
        let meant = |glob: &String| {
            let mut all = BARE_WORDS.iter().chain(VALUE_TESTS).chain(FILE_TESTS).chain(ACTIONS);
            all.any(|word| paths::matches(glob, word))
        };
        let unknown = |w: &Word| match &w.value {
            WordValue::Pattern(globs) => w.many && (w.substituted || globs.iter().any(meant)),
            _ => w.many,
        };
        let value = self.words.get(self.at);
        if value.is_none_or(unknown) {
            scopes.loose = true;
            self.misfit.get_or_insert_with(|| format!("the value of {text} is not known"));
        }
        // Looking for a name does not read the file; running a command on it does. Excluded files are not read.
        let left_out = find_excludes(self.words, self.at - 1);
        if let (true, false, Some(value)) = (self.runs_commands, left_out, value) {
            match text {
                "-name" | "-iname" | "-path" | "-ipath" | "-wholename" | "-iwholename" => {
                    scopes.note_name_value(value, &mut self.misfit);
                }
                "-regex" | "-iregex" => scopes.note_name_regex(value, &mut self.misfit),
                _ => {}
            }
        }
        self.at += 1;
    }
}
