//! Names that mean a secret: the table, how a name is judged by it, and which patterns are aimed at secrets.
//!
//! A pattern is *aimed* at secrets if it can match a name of the table and cannot match any of the table's controls,
//! the names that broad patterns are usually written for. So `*.json` and `*` are not aimed, although they match
//! `auth.json`; `.e?v`, `*.pem` and `[.]env` are. A pattern is compared by what it could match: a leading dot is an
//! ordinary letter, capitals do not count, and sets and alternatives are expanded, so that `*.{env,md}` is aimed
//! because of its first half. In doubt, a pattern is aimed and a person is asked.

use std::sync::OnceLock;

/// The text of the table.
pub const TABLE: &str = include_str!("secrets.table");

/// What a name means according to the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretNameKind {
    /// A file of this name holds a secret.
    File,
    /// Two or more words that mean a secret, without an ending: a file, a branch, or plain words.
    Words,
    /// One such word. A directory of that name is usually a package of source code.
    Word,
}

/// One example of a row.
#[derive(Debug, Clone, Copy)]
pub struct NameExample {
    pub row: &'static str,
    pub path: &'static str,
    pub is_secret: bool,
}

struct NameRow {
    patterns: Vec<&'static str>,
    not: Vec<&'static str>,
    even_code: bool,
}

struct WordRow {
    all: Vec<Vec<&'static str>>,
    not: Vec<&'static str>,
}

#[derive(Default)]
struct Table {
    sample: Vec<&'static str>,
    copy: Vec<&'static str>,
    stage: Vec<&'static str>,
    code: Vec<&'static str>,
    plain: Vec<&'static str>,
    source: Vec<&'static str>,
    control: Vec<&'static str>,
    names: Vec<NameRow>,
    words: Vec<WordRow>,
    /// Directory, name, and whether the sandbox must leave the file readable.
    files: Vec<(&'static str, &'static str, bool)>,
    directories: Vec<&'static str>,
    examples: Vec<NameExample>,
    /// Names that a pattern is tested with.
    exemplars: Vec<Vec<char>>,
    controls: Vec<Vec<char>>,
    /// Directories and names that a pattern is tested with.
    path_exemplars: Vec<(Vec<char>, Vec<char>)>,
    /// For each row three letters that every name of it contains. A name without any of them is not examined further.
    marks: Marks,
}

/// A set of three-letter sequences, as a cheap first test.
#[derive(Default)]
struct Marks {
    bits: Vec<u64>,
}

impl Marks {
    fn index(three: &[u8]) -> usize {
        three.iter().fold(0, |sum, b| (sum << 5 | usize::from(b.to_ascii_lowercase() & 31)) & 0x7fff)
    }

    /// Adds the first three letters of a pattern that belong to one word, because words are never split; otherwise its
    /// first three characters.
    fn add(&mut self, pattern: &str) {
        self.bits.resize(0x8000 / 64, 0);
        let literal = |three: &&[u8]| !three.contains(&b'*');
        let word = |three: &&[u8]| three.iter().all(u8::is_ascii_alphabetic);
        let windows = || pattern.as_bytes().windows(3);
        match windows().find(word).or_else(|| windows().find(literal)) {
            Some(three) => self.bits[Self::index(three) / 64] |= 1 << (Self::index(three) % 64),
            // Nothing usable: then every name must be examined.
            None => self.bits.fill(u64::MAX),
        }
    }

    fn any_in(&self, name: &str) -> bool {
        name.as_bytes().windows(3).any(|three| self.bits[Self::index(three) / 64] >> (Self::index(three) % 64) & 1 == 1)
    }
}

/// Endings of structured data. A name may say before such an ending that it is a sample.
const DATA_ENDINGS: &[&str] =
    &["json", "yml", "yaml", "toml", "ini", "txt", "properties", "env", "xml", "cfg", "conf", "csv", "php", "py"];
/// More alternatives than a person would write.
const MAX_ALTERNATIVES: usize = 256;
/// A set with more members than this is not expanded.
const MAX_SET_MEMBERS: usize = 8;

/// Reads the table in advance, so that forked processes inherit it.
pub fn warm_up() {
    let _ = table();
}

fn table() -> &'static Table {
    static ONCE: OnceLock<Table> = OnceLock::new();
    ONCE.get_or_init(|| load(TABLE))
}

fn load(text: &'static str) -> Table {
    let mut table = Table::default();
    let mut head = "";
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()) {
        let (keyword, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let alternatives = || rest.split('|').map(str::trim).filter(|p| !p.is_empty());
        let list = || rest.split_whitespace();
        if !line.starts_with(' ') {
            head = line;
        }
        match keyword {
            "sample" => table.sample.extend(list()),
            "copy" => table.copy.extend(list()),
            "stage" => table.stage.extend(list()),
            "code" => table.code.extend(list()),
            "plain" => table.plain.extend(list()),
            "source" => table.source.extend(list()),
            "control" => table.control.extend(list()),
            "name" => {
                let row = NameRow { patterns: alternatives().collect(), not: Vec::new(), even_code: false };
                table.names.push(row);
            }
            "words" => {
                let all = alternatives().map(|w| w.split_whitespace().collect()).collect();
                table.words.push(WordRow { all, not: Vec::new() });
            }
            "file" | "open-file" => {
                let open = keyword == "open-file";
                table
                    .files
                    .extend(alternatives().filter_map(|f| f.rsplit_once('/')).map(|(dir, name)| (dir, name, open)));
            }
            "directory" => table.directories.extend(alternatives()),
            "even" => {
                if let Some(row) = table.names.last_mut() {
                    row.even_code = true;
                }
            }
            "not" if head.starts_with("words") => {
                if let Some(row) = table.words.last_mut() {
                    row.not.extend(list());
                }
            }
            "not" => {
                if let Some(row) = table.names.last_mut() {
                    row.not.extend(list());
                }
            }
            "yes" | "no" => table.examples.push(NameExample { row: head, path: rest, is_secret: keyword == "yes" }),
            _ => {}
        }
    }
    let of_rows = table.names.iter().flat_map(|row| &row.patterns).map(|p| p.replace('*', "x"));
    let by_name = |e: &&NameExample| e.is_secret && (e.row.starts_with("name") || e.row.starts_with("words"));
    let of_examples = table.examples.iter().filter(by_name).map(|e| e.path.rsplit('/').next().unwrap_or(e.path));
    let chars = |text: String| text.to_ascii_lowercase().chars().collect::<Vec<char>>();
    table.exemplars = of_examples.map(str::to_owned).chain(of_rows).map(chars).collect();
    table.controls = table.control.iter().map(|c| c.chars().collect()).collect();
    let by_path = |e: &&NameExample| e.is_secret && (e.row.starts_with("file") || e.row.starts_with("open-file"));
    let paths = table.examples.iter().filter(by_path).filter_map(|e| e.path.rsplit_once('/'));
    let paths = paths.chain(table.files.iter().map(|(dir, name, _)| (*dir, *name)));
    let last = |dir: &str| chars(dir.rsplit('/').next().unwrap_or(dir).to_owned());
    table.path_exemplars = paths.map(|(dir, name)| (last(dir), chars(name.replace('*', "x")))).collect();
    table.names.iter().flat_map(|row| &row.patterns).for_each(|pattern| table.marks.add(pattern));
    table.words.iter().flat_map(|row| &row.all).filter_map(|w| w.last()).for_each(|word| table.marks.add(word));
    table.exemplars.sort();
    table.exemplars.dedup();
    table
}

/// Every example of the table.
#[must_use]
pub fn examples() -> &'static [NameExample] {
    &table().examples
}

/// The examples that contradict their row, and the controls that count as secrets.
#[must_use]
pub fn failing_examples() -> Vec<String> {
    let wrong = examples().iter().filter(|e| path_kind(&format!("/{}", e.path)).is_some() != e.is_secret);
    let mut failing: Vec<String> = wrong
        .map(|e| format!("secrets `{}`: `{}` is {}secret", e.row, e.path, if e.is_secret { "not " } else { "" }))
        .collect();
    failing
        .extend(table().control.iter().filter(|c| name_kind(c).is_some()).map(|c| format!("control `{c}` is secret")));
    failing
}

/// What a file name means.
#[must_use]
pub fn name_kind(name: &str) -> Option<SecretNameKind> {
    let table = table();
    if !table.marks.any_in(name) {
        return None;
    }
    let whole = name.trim_matches('#');
    let base = without_copies(whole, table);
    let lower = base.to_ascii_lowercase();
    let words = words_of(base);
    if is_sample(&lower, &words, table) {
        return None;
    }
    let ending = ending_of(&lower);
    let code = ending.is_some_and(|e| table.code.contains(&e));
    let candidates = candidates(&lower, table);
    // The full name takes precedence over the name without copy marks and stages.
    let full = whole.to_ascii_lowercase();
    let by_name = table.names.iter().any(|row| {
        (row.not.is_empty() || !words.iter().any(|w| row.not.contains(&w.as_str())))
            && row.patterns.iter().any(|pattern| {
                let spelled = |c: &&str| !code || row.even_code && !(pattern.ends_with('*') && c.ends_with(".md"));
                candidates
                    .iter()
                    .map(String::as_str)
                    .chain([full.as_str()])
                    .filter(spelled)
                    .any(|c| matches_row(pattern, c))
            })
    });
    if by_name && (code || words.len() > 1 || lower.contains('.')) {
        return Some(SecretNameKind::File);
    }
    if code {
        return None;
    }
    let by_words = table.words.iter().any(|row| {
        !words.iter().any(|w| row.not.contains(&w.as_str()))
            && row.all.iter().any(|wanted| ends_in(&words, wanted, ending, table))
    });
    if by_words {
        return Some(match words.len() {
            _ if lower.contains('.') => SecretNameKind::File,
            0 | 1 => SecretNameKind::Word,
            _ => SecretNameKind::Words,
        });
    }
    if by_name {
        return Some(SecretNameKind::File);
    }
    // `secrets.json.txt` counts as `secrets.json`.
    name_kind(lower.strip_suffix(".txt")?)
}

/// What a path means: by its name, as a name in a certain directory, or as a file in a directory of secrets.
#[must_use]
pub fn path_kind(path: &str) -> Option<SecretNameKind> {
    let name = path.rsplit('/').next().unwrap_or(path);
    if let Some(kind) = name_kind(name) {
        return Some(kind);
    }
    let directory = path[..path.len() - name.len()].trim_end_matches('/');
    if directory.is_empty() {
        return None;
    }
    if is_named_file(directory, name, true) {
        return Some(SecretNameKind::File);
    }
    in_secret_directory(directory).then(|| kind_in_secret_directory(directory, name)).flatten()
}

/// Whether git, or another program that runs in the sandbox, must read this file itself.
#[must_use]
pub fn stays_readable(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let directory = path[..path.len() - name.len()].trim_end_matches('/');
    name_kind(name).is_none() && is_named_file(directory, name, true) && !is_named_file(directory, name, false)
}

fn is_named_file(directory: &str, name: &str, open: bool) -> bool {
    let table = table();
    let Some(parent) = directory.rsplit('/').next().filter(|p| !p.is_empty()) else { return false };
    let mut spelled = None;
    table.files.iter().filter(|(dir, _, o)| (open || !o) && parent.eq_ignore_ascii_case(dir)).any(|(_, pattern, _)| {
        let all = spelled.get_or_insert_with(|| {
            let base = without_copies(name, table).to_ascii_lowercase();
            if is_sample(&base, &words_of(&base), table) { Vec::new() } else { candidates(&base, table) }
        });
        all.iter().any(|c| matches_row(pattern, c))
    })
}

/// Whether a directory, or one above it, has a name of directories of secrets. Git's own files are excluded: a
/// repository in such a directory must still work.
#[must_use]
pub fn in_secret_directory(directory: &str) -> bool {
    let table = table();
    directory.split('/').any(|part| table.directories.iter().any(|d| part.eq_ignore_ascii_case(d)))
        && !directory.split('/').any(|part| part == ".git")
}

/// Whether everything in a directory counts as secret: its name says so, and no part of its path means source code.
#[must_use]
pub fn is_secret_directory(directory: &str) -> bool {
    let table = table();
    let source = |part: &str| table.source.iter().any(|s| part.eq_ignore_ascii_case(s));
    in_secret_directory(directory) && !directory.split('/').any(source)
}

/// A file in a directory of secrets.
fn kind_in_secret_directory(directory: &str, name: &str) -> Option<SecretNameKind> {
    let table = table();
    let lower = without_copies(name, table).to_ascii_lowercase();
    if table.plain.contains(&lower.as_str()) || is_sample(&lower, &words_of(&lower), table) {
        return None;
    }
    match ending_of(&lower) {
        Some(ending) if table.code.contains(&ending) => None,
        Some(_) => Some(SecretNameKind::File),
        // It may be a directory itself.
        None => is_secret_directory(&format!("{directory}/{name}")).then_some(SecretNameKind::Word),
    }
}

/// The words of a name, separated by anything that is not a letter or digit, and where a small letter is followed by a
/// capital.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut small = false;
    for c in name.chars() {
        if !word.is_empty() && (!c.is_alphanumeric() || c.is_uppercase() && small) {
            words.push(std::mem::take(&mut word));
        }
        small = c.is_lowercase() || c.is_ascii_digit();
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

fn ending_of(name: &str) -> Option<&str> {
    name.rsplit_once('.').filter(|(stem, ending)| !stem.is_empty() && !ending.is_empty()).map(|(_, ending)| ending)
}

/// Whether the words of a name end in these, with or without the file ending, before a stage or a number.
fn ends_in(words: &[String], wanted: &[&str], ending: Option<&str>, table: &Table) -> bool {
    let matches = |words: &[String]| {
        let skip = |w: &&String| table.stage.contains(&w.as_str()) || w.bytes().all(|b| b.is_ascii_digit());
        let end = words.len() - words.iter().rev().take_while(skip).count();
        let words = &words[..end];
        // `CLIENTSECRET`: nothing shows where its words end.
        let glued = wanted.concat();
        glued.len() > 4 && words.last().is_some_and(|last| last.len() > glued.len() && last.ends_with(&glued))
            || words.last() == Some(&glued)
            || words.len() >= wanted.len()
                && words[words.len() - wanted.len()..].iter().zip(wanted).all(|(word, wanted)| {
                    word == wanted || word.trim_end_matches(|c: char| c.is_ascii_digit()) == *wanted
                })
    };
    matches(words) || ending.is_some() && words.split_last().is_some_and(|(_, before)| matches(before))
}

/// A name without the marks of a copy.
fn without_copies<'n>(name: &'n str, table: &Table) -> &'n str {
    let mut name = name;
    loop {
        let before = name;
        name = name.strip_suffix('~').unwrap_or(name).trim_end();
        if let Some((stem, "copy")) = name.rsplit_once(' ') {
            name = stem;
        }
        if let Some((stem, number)) = name.rsplit_once(" (")
            && number.strip_suffix(')').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
        {
            name = stem;
        }
        if let Some(at) = name.rfind(['.', '-', '_']).filter(|at| *at > 0) {
            let last = &name[at + 1..];
            let number = !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
            if number || table.copy.iter().any(|c| last.eq_ignore_ascii_case(c)) {
                name = &name[..at];
            }
        }
        if name == before || name.is_empty() {
            return before;
        }
    }
}

/// The names that a name may stand for: itself, without `.txt`, and without the stage in front, behind or before its
/// ending.
fn candidates(base: &str, table: &Table) -> Vec<String> {
    let mut all = vec![base.to_owned()];
    let mut add = |name: &str| {
        if !name.is_empty() && !all.iter().any(|a| a == name) {
            all.push(name.to_owned());
        }
    };
    let stage = |word: &str| table.stage.contains(&word);
    let mut text = base;
    while let Some(stem) = text.strip_suffix(".txt") {
        text = without_copies(stem, table);
        add(text);
    }
    if let Some(at) = base.find(['.', '-', '_']).filter(|at| stage(&base[..*at])) {
        add(&base[at + 1..]);
        // `prod.env` already has its dot; `prod.npmrc` lost one.
        add(&base[at..].replacen(['-', '_'], ".", 1));
    }
    if let Some(at) = base.rfind(['.', '-', '_']).filter(|at| *at > 0 && stage(&base[at + 1..])) {
        add(&base[..at]);
    }
    if let Some((stem, ending)) = base.rsplit_once('.')
        && let Some(at) = stem.rfind(['.', '-', '_']).filter(|at| *at > 0 && stage(&stem[at + 1..]))
    {
        add(&format!("{}.{ending}", &stem[..at]));
    }
    add(base.trim_end_matches(|c: char| c.is_ascii_digit()));
    all
}

fn is_sample(lower: &str, words: &[String], table: &Table) -> bool {
    let is = |word: Option<&String>| word.is_some_and(|w| table.sample.contains(&w.as_str()));
    is(words.last())
        || words.len() > 1
            && ending_of(lower).is_some_and(|e| DATA_ENDINGS.contains(&e))
            && is(words.get(words.len() - 2))
}

/// Matches a pattern of the table against a name: `*` stands for any letters.
fn matches_row(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let Some((middle, end)) = rest.rsplit_once('*') else { return name.ends_with(rest) };
    for part in middle.split('*') {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(end)
}

/// One element of a pattern.
#[derive(Debug, Clone, PartialEq)]
enum Letter {
    One(char),
    Any,
    Many,
    Set { negated: bool, ranges: Vec<(char, char)> },
}

impl Letter {
    fn matches_letter(&self, c: char) -> bool {
        match self {
            Self::One(one) => *one == c,
            Self::Any | Self::Many => true,
            Self::Set { negated, ranges } => {
                let upper = c.to_ascii_uppercase();
                let found = ranges.iter().any(|(a, b)| (*a..=*b).contains(&c) || (*a..=*b).contains(&upper));
                // A negated set may still match the other case of the letter.
                found != *negated || *negated && c != upper
            }
        }
    }

    /// The letters of a small set.
    fn members(&self) -> Option<Vec<char>> {
        let Self::Set { negated: false, ranges } = self else { return None };
        let mut all: Vec<char> = ranges
            .iter()
            .flat_map(|(a, b)| (*a..=*b).take(MAX_SET_MEMBERS + 1))
            .map(|c| c.to_ascii_lowercase())
            .collect();
        all.sort_unstable();
        all.dedup();
        (all.len() <= MAX_SET_MEMBERS).then_some(all)
    }
}

/// Whether a pattern, with or without directories, is aimed at secrets.
#[must_use]
pub fn aims_at_secrets(pattern: &str) -> bool {
    let Some(all) = expand_braces(pattern) else { return true };
    all.iter().any(|one| is_aimed(one))
}

fn is_aimed(pattern: &str) -> bool {
    let (directory, name) = match pattern.trim_end_matches('/').rsplit_once('/') {
        Some((directory, name)) => (directory, name),
        None => ("", pattern.trim_end_matches('/')),
    };
    // `secrets/` and `secrets/**` mean everything below.
    let (directory, name) =
        if pattern.ends_with('/') { (pattern.trim_end_matches('/'), "*") } else { (directory, name) };
    let Some(spellings) = spellings(name) else { return true };
    let table = table();
    let aimed_name = spellings.iter().any(|s| match literal(s) {
        Some(text) => name_kind(&text).is_some(),
        None => {
            let filled = |with: &str| name_kind(&fill(s, with)).is_some();
            !table.controls.iter().any(|c| matches_letters(s, c))
                && (table.exemplars.iter().any(|e| matches_letters(s, e)) || filled("") || filled("x"))
        }
    });
    aimed_name || !directory.is_empty() && leads_to_secrets(directory, &spellings)
}

/// Whether a pattern leads to secrets through the directories that it names.
fn leads_to_secrets(directory: &str, names: &[Vec<Letter>]) -> bool {
    let table = table();
    let parts: Vec<Vec<Vec<Letter>>> =
        directory.split('/').filter(|p| !p.is_empty() && *p != ".").filter_map(spellings).collect();
    let is = |part: &[Vec<Letter>], name: &str| {
        part.iter().any(|s| match literal(s) {
            Some(text) => text == name,
            None => {
                let takes = |name: &str| matches_letters(s, &name.chars().collect::<Vec<char>>());
                takes(name) && !table.source.iter().any(|c| takes(c))
            }
        })
    };
    let source = parts
        .iter()
        .any(|part| part.iter().all(|s| literal(s).is_some_and(|text| table.source.contains(&text.as_str()))));
    let secret = parts.iter().any(|part| table.directories.iter().any(|d| is(part, d)));
    let code = |s: &Vec<Letter>| {
        let text: String = s.iter().rev().map_while(|l| if let Letter::One(c) = l { Some(*c) } else { None }).collect();
        let text: String = text.chars().rev().collect();
        text.rsplit_once('.').is_some_and(|(_, ending)| table.code.contains(&ending))
            || literal(s).is_some_and(|t| kind_in_secret_directory("/secrets", &t).is_none())
    };
    if secret && !names.iter().all(code) && (!source || !names.iter().all(|s| ends_open(s))) {
        return true;
    }
    parts.last().is_some_and(|last| {
        table.path_exemplars.iter().any(|(dir, name)| {
            // A specific name is enough; otherwise the directory must be specific.
            let narrow = |s: &Vec<Letter>| !table.controls.iter().any(|c| matches_letters(s, c));
            let reached = last.iter().any(|s| matches_letters(s, dir));
            let specific = dir.first() == Some(&'.') && is(last, &dir.iter().collect::<String>());
            reached && names.iter().any(|s| matches_letters(s, name) && (narrow(s) || specific))
        })
    })
}

/// Whether a pattern leaves open how a name ends.
fn ends_open(letters: &[Letter]) -> bool {
    !matches!(letters.last(), Some(Letter::One(_)))
}

/// A pattern as lists of elements, one list for each way to spell it; none if there are too many.
fn spellings(pattern: &str) -> Option<Vec<Vec<Letter>>> {
    let mut all: Vec<Vec<Letter>> = vec![Vec::new()];
    for letter in letters(pattern) {
        match letter.members() {
            Some(members) if all.len() * members.len().max(1) <= MAX_ALTERNATIVES && !members.is_empty() => {
                all = all
                    .iter()
                    .flat_map(|s| members.iter().map(move |c| s.iter().cloned().chain([Letter::One(*c)]).collect()))
                    .collect();
            }
            _ => all.iter_mut().for_each(|s| {
                if letter != Letter::Many || s.last() != Some(&Letter::Many) {
                    s.push(letter.clone());
                }
            }),
        }
    }
    (pattern.len() <= 4096).then_some(all)
}

fn letters(pattern: &str) -> Vec<Letter> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut out = Vec::new();
    let mut n = 0;
    while let Some(c) = chars.get(n) {
        n += 1;
        out.push(match c {
            '*' => Letter::Many,
            '?' => Letter::Any,
            '\\' => {
                n += 1;
                Letter::One(chars.get(n - 1).copied().unwrap_or('\\').to_ascii_lowercase())
            }
            '[' => match parse_set(&chars[n..]) {
                Some((letter, length)) => {
                    n += length;
                    letter
                }
                None => Letter::One('['),
            },
            c => Letter::One(c.to_ascii_lowercase()),
        });
    }
    out
}

/// The set after a `[`, and its length with its end.
fn parse_set(chars: &[char]) -> Option<(Letter, usize)> {
    let negated = matches!(chars.first(), Some('!' | '^'));
    let from = usize::from(negated);
    let mut n = from;
    let (mut ranges, mut open) = (Vec::new(), false);
    loop {
        let c = *chars.get(n)?;
        if c == ']' && n > from {
            let letter = if open { Letter::Any } else { Letter::Set { negated, ranges } };
            return Some((letter, n + 1));
        }
        if c == '[' && matches!(chars.get(n + 1), Some(':' | '.' | '=')) {
            // A named class: it may match any letter.
            let mark = chars[n + 1];
            let end = (n + 2..chars.len().saturating_sub(1)).find(|m| chars[*m] == mark && chars[m + 1] == ']')?;
            open = true;
            n = end + 2;
            continue;
        }
        let c = if c == '\\' {
            n += 1;
            *chars.get(n)?
        } else {
            c
        };
        n += 1;
        match (chars.get(n), chars.get(n + 1)) {
            (Some('-'), Some(end)) if *end != ']' => {
                ranges.push((c, *end));
                n += 2;
            }
            _ => ranges.push((c, c)),
        }
    }
}

fn literal(letters: &[Letter]) -> Option<String> {
    letters.iter().map(|l| if let Letter::One(c) = l { Some(*c) } else { None }).collect()
}

/// A name that a pattern could match.
fn fill(letters: &[Letter], with: &str) -> String {
    let mut out = String::new();
    for letter in letters {
        match letter {
            Letter::One(c) => out.push(*c),
            Letter::Many => out.push_str(with),
            Letter::Any | Letter::Set { .. } => out.push('x'),
        }
    }
    out
}

/// Whether a pattern matches a lower-case name.
fn matches_letters(letters: &[Letter], name: &[char]) -> bool {
    let (mut l, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match letters.get(l) {
            Some(Letter::Many) => {
                retry = Some((l, n));
                l += 1;
            }
            Some(letter) if letter.matches_letter(name[n]) => (l, n) = (l + 1, n + 1),
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    (l, n) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    letters[l..].iter().all(|l| *l == Letter::Many)
}

/// Expands `{a,b}`, also nested; none if there are more alternatives than anyone would write.
fn expand_braces(pattern: &str) -> Option<Vec<String>> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(one) = open.pop() {
        match alternatives(&one) {
            Some(more) => open.extend(more),
            None => done.push(one),
        }
        if open.len() + done.len() > MAX_ALTERNATIVES {
            return None;
        }
    }
    Some(done)
}

/// The ways to read the first braces of a pattern that contain a comma.
fn alternatives(pattern: &str) -> Option<Vec<String>> {
    let (mut depth, mut start, mut commas) = (0_usize, 0, Vec::new());
    let mut escaped = false;
    for (at, c) in pattern.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => {
                if depth == 0 {
                    (start, commas) = (at, Vec::new());
                }
                depth += 1;
            }
            ',' if depth == 1 => commas.push(at),
            '}' if depth == 1 => {
                let mut parts = Vec::new();
                let mut from = start + 1;
                for comma in commas.iter().copied().chain([at]) {
                    parts.push(format!("{}{}{}", &pattern[..start], &pattern[from..comma], &pattern[at + 1..]));
                    from = comma + 1;
                }
                return Some(parts);
            }
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_its_examples_and_not_its_near_misses() {
        assert!(examples().len() > 200, "{}", examples().len());
        assert_eq!(failing_examples(), Vec::<String>::new());
    }

    #[test]
    fn copies_stages_and_capitals_name_the_same_secret() {
        for example in examples().iter().filter(|e| e.is_secret) {
            let (directory, name) = example.path.rsplit_once('/').map_or(("", example.path), |(d, n)| (d, n));
            for variant in [
                format!("{name}.bak"),
                format!("{name}.old"),
                format!("{name}~"),
                format!("{name}.orig"),
                format!("{name}.save"),
                format!("{name}.1"),
                format!("{name}.2024-01-31"),
                format!("{name}.bak.gz"),
                format!("{name} (1)"),
                name.to_ascii_uppercase(),
            ] {
                let path = format!("/{directory}/{variant}");
                assert!(path_kind(&path).is_some(), "{path}");
            }
        }
        for name in ["prod.auth.json", "dev.secrets.yml", "prod-id_rsa", "staging.wp-config.php", "auth.prod.json"] {
            assert!(name_kind(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_pattern_is_aimed_when_it_is_written_for_secrets() {
        for pattern in [
            "[.]env",
            ".E[N]V",
            ".e?v",
            ".[e]nv",
            ".en*",
            ".e*",
            ".*",
            "*.e*v",
            "{.env,x}",
            "*.{md,env}",
            "*.pem",
            "id_*",
            "*.[pk]e[my]",
            "**/.env",
            "secrets/*",
            "secrets/**",
            "**/secrets/*.yaml",
            "s[e]crets/app.yaml",
            ".git/conf*",
            "config/database.y?l",
            "*secret*",
            "*token*",
            "auth.j*n",
            ".[a-z]nv",
            "[.]e[[:alpha:]]v",
            "*.[e-f]nv",
            ".env",
            "deploy_k?y",
            "secrets/",
            "[!a]env",
            "gcp-*.json",
            "*.k*",
            "?oken.txt",
        ] {
            assert!(aims_at_secrets(pattern), "{pattern}");
        }
        for pattern in [
            "*",
            "**",
            "*.*",
            "*.json",
            "*.rs",
            "src/**",
            "*.y*ml",
            "*.{ts,tsx}",
            "*.[jt]s",
            "*config*",
            "test_*",
            "*.md",
            "README*",
            "package*.json",
            "**/*.txt",
            "*auth*",
            "src/secrets/*.rs",
            "pkg/secrets/*.go",
            "config/*.yml",
            "*.log",
            "docker*",
            "?",
            "a*",
            "tests/**/*.snap",
            ".github/workflows/*",
            "*.conf",
            "crates/*/Cargo.toml",
            "src/secrets/**",
            "*.config.{js,ts}",
        ] {
            assert!(!aims_at_secrets(pattern), "{pattern}");
        }
    }

    #[test]
    fn no_spelling_of_a_secret_as_a_pattern_is_unaimed() {
        for example in examples().iter().filter(|e| e.is_secret) {
            let chars: Vec<char> = example.path.chars().collect();
            let spell = |at: usize, with: &str| -> String {
                chars.iter().enumerate().map(|(n, c)| if n == at { with.to_owned() } else { c.to_string() }).collect()
            };
            let sets: String = chars.iter().map(|c| if *c == '/' { c.to_string() } else { format!("[{c}]") }).collect();
            assert!(aims_at_secrets(&sets), "{sets}");
            for (at, c) in chars.iter().enumerate().filter(|(_, c)| **c != '/') {
                for with in
                    [&format!("[{c}]"), &format!("[{c}x]"), "?", "*", &format!("{{{c},}}"), &format!("{{{c},x}}")]
                {
                    let pattern = spell(at, with);
                    assert!(aims_at_secrets(&pattern), "{pattern} for {}", example.path);
                }
            }
        }
    }
}
