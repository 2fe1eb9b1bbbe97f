//! Commands whose output is a list of file names: `find`, `git ls-files`, `grep -l` and similar, and filters that
//! only select lines of such a list. A command that reads the list reads files below known directories.
//!
//! The list is described by globs: where the names can be, and which names were asked for. So `find . -name .env |
//! xargs cat` needs approval as `cat .env` does. The globs do not describe every word: a command that splits the list
//! at blanks may make two words of one name. So only commands that the kernel confines to reading take them as paths;
//! for all others they are unknown words.

use super::state::escape_glob;
use crate::{
    phrase,
    tables::{self, ParsedOptions},
};
use countersign_model::{InputSource, Occurrence, Word, WordValue};

/// A list with more globs is treated as unknown.
const MAX_GLOBS: usize = 32;

/// The globs that match every line of a command's output; none if it may print anything else.
pub(super) fn listed_globs(occurrence: &Occurrence) -> Option<Vec<String>> {
    let hidden = |r: &countersign_model::Redirect| !r.write || r.target.text() == Some("/dev/null");
    if occurrence.opaque.is_some() || !occurrence.assignments.is_empty() || !occurrence.redirects.iter().all(hidden) {
        return None;
    }
    let (program, words) = occurrence.words.split_first()?;
    let globs = match (program.text()?, words.first().and_then(Word::text)) {
        ("find", _) => find_globs(words),
        ("grep" | "egrep" | "fgrep", _) => grep_globs(words).or_else(|| filtered_globs(occurrence, words)),
        ("rg", _) => rg_globs(words),
        ("ls", _) => ls_globs(words),
        ("fd" | "fdfind", _) => fd_globs(words),
        ("git", Some("ls-files")) => ls_files_globs(&words[1..]),
        ("git", Some("grep")) => git_globs(&words[1..], &["-l", "--name-only", "--files-with-matches"]),
        ("git", Some("diff" | "diff-tree" | "ls-tree")) => git_globs(&words[1..], &["--name-only"]),
        ("head" | "tail" | "sort" | "uniq" | "cat" | "tr", _) => filtered_globs(occurrence, words),
        _ => None,
    }?;
    (!globs.is_empty() && globs.len() <= MAX_GLOBS).then_some(globs)
}

fn any_name() -> Vec<String> {
    vec!["*".to_owned()]
}

/// For git commands that print names, with no option that prints more or adds a prefix.
fn git_globs(words: &[Word], lists: &[&str]) -> Option<Vec<String>> {
    const NAMES_ONLY: &[&str] = &[
        "--",
        "-l",
        "-i",
        "-w",
        "-E",
        "-F",
        "-P",
        "-r",
        "-z",
        "-e",
        "--name-only",
        "--files-with-matches",
        "--cached",
        "--staged",
        "--untracked",
        "--no-commit-id",
        "--ignore-case",
        "--word-regexp",
        "--extended-regexp",
        "--fixed-strings",
    ];
    let mut listing = false;
    for word in words {
        let text = word.text()?;
        listing |= lists.contains(&text);
        if text.starts_with('-') && !NAMES_ONLY.contains(&text) && !text.starts_with("--diff-filter=") {
            return None;
        }
    }
    listing.then(any_name)
}

/// Parses words by the grammar of a read-only phrase; none if they do not fit.
fn parse_words<'w>(verb: &str, words: &'w [Word]) -> Option<ParsedOptions<'w>> {
    let phrase = tables::phrase(verb)?;
    let parsed = phrase.grammar.parse_options(words, phrase.harmless, false);
    parsed.misfit.is_none().then_some(parsed)
}

fn option_values<'p>(parsed: &'p ParsedOptions<'_>, options: &[&str]) -> Vec<&'p Word> {
    parsed.options.iter().filter(|(o, _, _)| options.contains(&o.as_str())).filter_map(|(_, v, _)| v.as_ref()).collect()
}

/// The globs that a word can be.
fn word_globs(word: &Word) -> Option<Vec<String>> {
    match &word.value {
        WordValue::One(text) => Some(vec![escape_glob(text)]),
        WordValue::Any(texts) => Some(texts.iter().map(|t| escape_glob(t)).collect()),
        WordValue::Pattern(globs) => Some(globs.clone()),
        WordValue::Unknown => None,
    }
}

/// Every name below every start; without names, everything below and the start itself.
fn globs_below(starts: &[String], names: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for start in starts {
        let join = |name: &str| match start.as_str() {
            "" => name.to_owned(),
            start => format!("{}/{name}", start.trim_end_matches('/')),
        };
        if names.is_empty() {
            all.push(join("*"));
            if !start.is_empty() {
                all.push(start.clone());
            }
        }
        all.extend(names.iter().map(|name| join(name.trim_start_matches("./"))));
    }
    all
}

fn find_globs(words: &[Word]) -> Option<Vec<String>> {
    let starts: Vec<String> = phrase::find_starts(words);
    if starts.iter().any(|s| s.starts_with('-')) {
        return None;
    }
    let texts: Vec<Option<&str>> = words.iter().map(Word::text).collect();
    let (mut names, mut other) = (Vec::new(), false);
    // Without a print action, find prints what any alternative accepts, including pruned names.
    let printed = texts.iter().any(|t| matches!(t, Some("-print" | "-print0"))) || !texts.contains(&Some("-prune"));
    for (n, text) in texts.iter().enumerate() {
        let left_out = printed && phrase::find_excludes(words, n);
        match text {
            Some("-name" | "-iname" | "-path" | "-ipath" | "-wholename" | "-iwholename") if !left_out => {
                // A quoted pattern is text to the shell and a pattern to `find`.
                match &words.get(n + 1)?.value {
                    WordValue::One(glob) => names.push(glob.clone()),
                    WordValue::Any(globs) | WordValue::Pattern(globs) => names.extend(globs.iter().cloned()),
                    WordValue::Unknown => return None,
                }
            }
            Some("-o" | "-or" | ",") => other = true,
            Some(
                "-exec" | "-execdir" | "-ok" | "-okdir" | "-printf" | "-ls" | "-fprint" | "-fprint0" | "-fprintf"
                | "-fls" | "-delete" | "-regex" | "-iregex" | "-files0-from" | "-D",
            ) => return None,
            _ => {}
        }
    }
    let mut globs = globs_below(&starts, &names);
    if other && !names.is_empty() {
        globs.extend(globs_below(&starts, &[]));
    }
    Some(globs)
}

/// The globs of the files that a search reads, limited to the selected names.
fn search_globs(parsed: &ParsedOptions<'_>, pattern: usize, selects: &[&str]) -> Option<Vec<String>> {
    let mut starts = Vec::new();
    for (word, _) in parsed.operands.iter().skip(pattern) {
        starts.extend(word_globs(word)?);
    }
    if starts.is_empty() {
        starts.push(String::new());
    }
    let mut names = Vec::new();
    for word in option_values(parsed, selects) {
        names.extend(word.texts()?.iter().filter(|t| !t.starts_with('!')).cloned());
    }
    Some(globs_below(&starts, &names))
}

fn grep_globs(words: &[Word]) -> Option<Vec<String>> {
    let parsed = parse_words("grep", words)?;
    let lists = parsed.has(&["-l", "-L", "--files-with-matches", "--files-without-match"]);
    let pattern = usize::from(!parsed.has(&["-e", "-f", "--regexp", "--file"]));
    let reads_input =
        parsed.operands.len() <= pattern && !parsed.has(&["-r", "-R", "--recursive", "--dereference-recursive"]);
    // `--label` replaces the printed name of the input.
    (lists && !reads_input && !parsed.has(&["--label"]))
        .then(|| search_globs(&parsed, pattern, &["--include"]))
        .flatten()
}

fn rg_globs(words: &[Word]) -> Option<Vec<String>> {
    let parsed = parse_words("rg", words)?;
    let all = parsed.has(&["--files"]);
    let lists = all || parsed.has(&["-l", "--files-with-matches", "--files-without-match"]);
    let pattern = usize::from(!all && !parsed.has(&["-e", "-f", "--regexp", "--file"]));
    lists.then(|| search_globs(&parsed, pattern, &["-g", "--glob", "--iglob"])).flatten()
}

fn fd_globs(words: &[Word]) -> Option<Vec<String>> {
    let parsed = parse_words("fd", words)?;
    if parsed.has(&[
        "-l",
        "--list-details",
        "-a",
        "--absolute-path",
        "-C",
        "--base-directory",
        "--search-path",
        "--and",
    ]) {
        return None;
    }
    let mut names: Vec<String> = option_values(&parsed, &["-e", "--extension"])
        .into_iter()
        .map(|w| w.text().map(|ending| format!("*.{ending}")))
        .collect::<Option<_>>()?;
    if let Some((word, _)) = parsed.operands.first() {
        let text = word.text()?;
        match plain_regex_glob(text) {
            Some(text) => names.push(format!("*{text}*")),
            None => return None,
        }
    }
    let mut starts = Vec::new();
    for (word, _) in parsed.operands.iter().skip(1) {
        starts.extend(word_globs(word)?);
    }
    if starts.is_empty() {
        starts.push(String::new());
    }
    Some(globs_below(&starts, &names))
}

fn ls_globs(words: &[Word]) -> Option<Vec<String>> {
    let parsed = parse_words("ls", words)?;
    if parsed.has(&["-l", "-o", "-g", "-n", "-s", "-i", "-C", "-m", "-x", "-F", "-p", "-Q", "-b", "-R", "-Z"])
        || parsed.options.iter().any(|(o, _, _)| o.starts_with("--") && o != "--all" && o != "--almost-all")
    {
        return None;
    }
    let mut globs = any_name();
    if parsed.has(&["-a", "-A", "-f", "--all", "--almost-all"]) {
        globs.push(".*".to_owned());
    }
    for (word, _) in &parsed.operands {
        globs.extend(word_globs(word)?);
    }
    Some(globs)
}

fn ls_files_globs(words: &[Word]) -> Option<Vec<String>> {
    let parsed = parse_words("git ls-files", words)?;
    const NAMES_ONLY: &[&str] = &[
        "-c",
        "-d",
        "-m",
        "-o",
        "-i",
        "-z",
        "-x",
        "--cached",
        "--deleted",
        "--modified",
        "--others",
        "--ignored",
        "--exclude",
        "--exclude-standard",
        "--deduplicate",
        "--error-unmatch",
        "--recurse-submodules",
    ];
    if !parsed.options.iter().all(|(o, _, _)| NAMES_ONLY.contains(&o.as_str())) {
        return None;
    }
    let mut globs = Vec::new();
    for (word, _) in &parsed.operands {
        match &word.value {
            // git matches patterns itself.
            WordValue::One(text) if !text.starts_with(':') => {
                globs.push(text.clone());
                if !text.contains(['*', '?', '[']) {
                    globs.push(format!("{}/*", text.trim_end_matches('/')));
                }
            }
            WordValue::Pattern(all) => globs.extend(all.iter().cloned()),
            _ => return None,
        }
    }
    if globs.is_empty() {
        globs = any_name();
    }
    Some(globs)
}

/// The list behind a filter that selects lines and changes none.
fn filtered_globs(occurrence: &Occurrence, words: &[Word]) -> Option<Vec<String>> {
    let InputSource::Files(globs) = &occurrence.input else { return None };
    let program = occurrence.words.first()?.text()?;
    let parsed = parse_words(program, words)?;
    let mut globs = globs.clone();
    match program {
        // A byte count may cut a name in the middle.
        "head" | "tail" if parsed.operands.is_empty() && !parsed.has(&["-c", "--bytes"]) => {}
        "cat" if parsed.operands.is_empty() && parsed.options.is_empty() => {}
        "sort" if parsed.operands.is_empty() => {}
        "uniq" if parsed.operands.is_empty() && !parsed.has(&["-c", "--count"]) => {}
        // Converts between lines and the format of `xargs -0`.
        "tr" => {
            let texts: Vec<Option<&str>> = parsed.operands.iter().map(|(w, _)| w.text()).collect();
            if !matches!(texts[..], [Some("\\n"), Some("\\0")] | [Some("\\0"), Some("\\n")])
                || !parsed.options.is_empty()
            {
                return None;
            }
        }
        "grep" | "egrep" | "fgrep" => {
            let keeps =
                ["-v", "--invert-match", "-i", "--ignore-case", "-E", "-F", "--extended-regexp", "--fixed-strings"];
            if parsed.operands.len() != 1 || !parsed.options.iter().all(|(o, _, _)| keeps.contains(&o.as_str())) {
                return None;
            }
            if !parsed.has(&["-v", "--invert-match"]) {
                // A pattern that selects names asks for these names.
                let wanted = parsed.operands[0].0.text().and_then(plain_regex_glob)?;
                globs.extend(globs_below(&[String::new()], &[format!("*{wanted}*")]));
            }
        }
        _ => return None,
    }
    Some(globs)
}

/// The glob for a regular expression of literal characters and `.`; none for any other.
fn plain_regex_glob(regex: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = regex.trim_start_matches('^').trim_end_matches('$').chars();
    while let Some(c) = chars.next() {
        match c {
            '.' => out.push('?'),
            '\\' => match chars.next() {
                Some(c @ ('.' | '-' | '/')) => out.push(c),
                _ => return None,
            },
            c if c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | '@' | '~' | ' ') => out.push(c),
            _ => return None,
        }
    }
    Some(out)
}
