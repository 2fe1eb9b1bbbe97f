//! Matches an occurrence against the reviewed read-only phrases: every option by its grammar, every operand by its
//! role, embedded programs (awk, sed, jq) by parsing them.

mod checks;
mod find;
mod ps;

pub(crate) use find::{find_excludes, find_starts};

use crate::{
    paths,
    programs::{self, FileUse, ProgramEffects},
    scopes::PathCollector,
    tables::{self, OperandRole, ParsedOptions, Phrase},
};
use countersign_model::{Opaque, ReadOnlyProof, Word, WordValue};

/// The result of matching an occurrence against a phrase.
pub(crate) struct PhraseMatch {
    pub(crate) reading: ReadOnlyProof,
    /// Set when the words contain code.
    pub(crate) opaque: Option<Opaque>,
    pub(crate) recursive: bool,
}

fn not_read_only(why: impl Into<String>) -> PhraseMatch {
    PhraseMatch { reading: ReadOnlyProof::Not(why.into()), opaque: None, recursive: false }
}

/// Matches the words behind the verb against the grammar of a phrase, and adds every path among them to `scopes`.
pub(crate) fn match_phrase(phrase: &'static Phrase, words: &[Word], scopes: &mut PathCollector<'_>) -> PhraseMatch {
    if phrase.special == Some("find") {
        return find::match_find(phrase, words, scopes);
    }
    if phrase.special == Some("xxd") {
        return match_xxd(phrase, words, scopes);
    }
    if phrase.special == Some("ps") {
        return ps::match_ps(phrase, words, scopes);
    }
    let words = words.get(phrase.when.len()..).unwrap_or_default();
    let dashed = (phrase.special == Some("tar")).then(|| dash_tar_options(words)).flatten();
    let words = dashed.as_deref().unwrap_or(words);
    // Where words are only text, an unknown word counts as any text.
    let known: Vec<Word>;
    let words = if phrase.any_words && words.iter().any(|w| w.texts().is_none()) {
        let plain = |w: &Word| if w.texts().is_none() { Word::literal("text") } else { w.clone() };
        known = words.iter().map(plain).collect();
        &known
    } else {
        words
    };
    let mut parsed = phrase.grammar.parse_options(words, phrase.harmless, phrase.ordered);
    if phrase.ordered {
        let operands = words.get(parsed.rest..).unwrap_or_default();
        parsed.operands.extend(operands.iter().map(|w| (w, OperandRole::Text)));
    }
    let skip = usize::from(!phrase.unless.is_empty() && parsed.has(&phrase.unless));
    phrase.grammar.assign_roles(&mut parsed, skip);
    scopes.loose |= parsed.loose;
    let mut matched = PhraseMatch { reading: ReadOnlyProof::Phrase(phrase.name), opaque: None, recursive: false };
    matched.recursive = phrase.recursive.contains(&"always") || parsed.has(&phrase.recursive);
    let mut misfit = parsed.misfit.take();
    for (option, value, role) in &parsed.options {
        if let Some(value) = value {
            if matches!(role, OperandRole::WriteFile | OperandRole::WriteDir | OperandRole::Program) {
                misfit.get_or_insert_with(|| format!("it uses option {option}"));
            }
            scopes.add_word(value, *role, matched.recursive, &mut misfit);
            if phrase.selects.contains(&option.as_str()) {
                scopes.note_name_value(value, &mut misfit);
            }
            if matches!(option.as_str(), "-G" | "--file-search-regex") {
                scopes.note_name_regex(value, &mut misfit);
            }
            if phrase.name.starts_with("git ") {
                misfit = misfit.or_else(|| git_value_misfit(phrase, option, value));
            }
        }
    }
    let mut named = false;
    // An operand of a search that is not recursive is a file.
    let searches = !matched.recursive && matches!(phrase.name, "grep" | "egrep" | "fgrep");
    for (word, role) in &parsed.operands {
        let role = if searches && *role == OperandRole::Path { OperandRole::File } else { *role };
        named |= scopes.add_word(word, role, matched.recursive, &mut misfit);
    }
    if (phrase.here || matched.recursive) && !named {
        scopes.add_working_directory(matched.recursive);
    }
    // The effects of a script count even if an option already makes the command more than a read.
    misfit =
        misfit.or_else(|| odd_word_misfit(phrase, words)).or_else(|| split_name_misfit(phrase, words, parsed.rest));
    if misfit.is_none() || matches!(phrase.special, Some("sed" | "awk")) {
        let found = special_misfit(phrase, &parsed, skip, &mut matched, scopes);
        misfit = misfit.or(found);
    }
    if let Some(why) = misfit {
        matched.reading = ReadOnlyProof::Not(why);
    }
    matched
}

/// A list of file names that is split at blanks may turn half a name into an option. Only commands without a harmful
/// option take such a list in an option position. `rest`: where the options end, for commands that take them only in
/// front.
fn split_name_misfit(phrase: &Phrase, words: &[Word], rest: usize) -> Option<String> {
    // sed commonly reads such lists. If half a name made it write, the kernel would refuse that.
    if phrase.harmless || phrase.any_words || phrase.special == Some("sed") {
        return None;
    }
    let options = if phrase.ordered { &words[..rest.min(words.len())] } else { words };
    let mut options = options.iter().take_while(|w| w.text() != Some("--"));
    options.any(Word::is_listed).then(|| "a file name with a blank may become an option".to_owned())
}

/// Every text that the words can be; none if a word is known only at run time.
fn all_texts<'w>(words: impl Iterator<Item = &'w Word>) -> Option<Vec<&'w str>> {
    let mut all = Vec::new();
    for word in words {
        all.extend(word.texts()?.iter().map(String::as_str));
    }
    Some(all)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Words that a program splits in its own way, in any position.
fn odd_word_misfit(phrase: &Phrase, words: &[Word]) -> Option<String> {
    match phrase.special? {
        // `tree` takes the value from the next word; letters behind the option are more options.
        "tree" => {
            let odd = |text: &str| {
                let letters = text.strip_prefix('-').filter(|l| !l.starts_with('-')).unwrap_or_default();
                let value = letters.find(|c| "IPHTL".contains(c));
                value.is_some_and(|at| {
                    let rest = &letters[at + 1..];
                    !(rest.is_empty() || letters[at..].starts_with('L') && is_digits(rest))
                })
            };
            let any = words.iter().filter_map(Word::texts).flatten().any(|t| odd(t));
            any.then(|| "letters follow an option that takes a value".to_owned())
        }
        // binutils read `@file` as the words in that file, also in the position of a value.
        "binutils" => {
            let list = words.iter().any(|w| match &w.value {
                WordValue::One(text) => text.starts_with('@'),
                WordValue::Any(texts) => texts.iter().any(|t| t.starts_with('@')),
                WordValue::Pattern(globs) => globs.iter().any(|g| g.starts_with(['@', '*', '?', '['])),
                WordValue::Unknown => true,
            });
            list.then(|| "it may read its arguments from a file".to_owned())
        }
        // `-i` also takes the next word, and looks up the host in it.
        "lsof" => {
            let host = all_texts(words.iter()).is_none_or(|all| all.iter().any(|t| t.contains('@')));
            host.then(|| "it may look up a host name".to_owned())
        }
        _ => None,
    }
}

/// Values with which git runs a configured program: formats and sort keys that check signatures, formats that the
/// configuration defines, and merges that are redone.
fn git_value_misfit(phrase: &Phrase, option: &str, value: &Word) -> Option<String> {
    const FORMATS: &[&str] =
        &["oneline", "short", "medium", "full", "fuller", "reference", "email", "mboxrd", "raw", ""];
    // These commands print text without a placeholder unchanged.
    let verbatim =
        matches!(phrase.name, "git branch" | "git tag" | "git for-each-ref" | "git ls-files" | "git ls-tree");
    let checks = |text: &str| {
        text.contains("signature")
            || text.split('%').skip(1).any(|t| t.trim_start_matches(['+', '-', ' ']).starts_with('G'))
    };
    let spelled = |text: &str| text.contains('%') || text.starts_with("format:") || text.starts_with("tformat:");
    let configured = |text: &str| !verbatim && !spelled(text) && !FORMATS.contains(&text);
    match (option, value.texts()) {
        ("--sort" | "--format" | "--pretty" | "--group" | "--diff-merges", None) => {
            Some(format!("the value of {option} is not known"))
        }
        ("--sort" | "--format" | "--pretty" | "--group", Some(all)) if all.iter().any(|t| checks(t)) => {
            Some("the format runs gpg".to_owned())
        }
        ("--format" | "--pretty", Some(all)) if all.iter().any(|t| configured(t)) => {
            Some("the format is defined in git's configuration".to_owned())
        }
        ("--diff-merges", Some(all)) if all.iter().any(|t| matches!(t.as_str(), "r" | "remerge")) => {
            Some("redoing a merge can run a merge driver".to_owned())
        }
        _ => None,
    }
}

/// Checks that the option grammar cannot express; returns why the command is not read-only.
fn special_misfit(
    phrase: &Phrase,
    parsed: &ParsedOptions<'_>,
    skip: usize,
    matched: &mut PhraseMatch,
    scopes: &mut PathCollector<'_>,
) -> Option<String> {
    let program = |reads: fn(&str) -> ProgramEffects| embedded_programs(phrase, parsed, skip, reads);
    match phrase.special? {
        "sed" => checks::sed(phrase, parsed, skip, matched, scopes),
        "awk" => apply_program_effects(program(programs::awk), matched, scopes),
        "jq" => apply_program_effects(program(|t| programs::jq(t).into()), matched, scopes),
        "credential-words" => match all_texts(parsed.operands.iter().map(|(w, _)| *w)) {
            None => Some("an argument is known only at run time".to_owned()),
            Some(all) => all
                .iter()
                .any(|t| t.split([':', '=']).any(|p| paths::is_credential(&format!("/{p}"), "")))
                .then(|| "an argument names a file that may hold secrets".to_owned()),
        },
        "git-list" => checks::git_list(phrase, parsed),
        "git-config" => git_config_misfit(parsed, scopes),
        "git-reflog" => {
            let changes = |all: Vec<&str>| all.iter().any(|t| matches!(*t, "expire" | "delete" | "drop" | "write"));
            all_texts(parsed.operands.iter().map(|(w, _)| *w))
                .is_none_or(changes)
                .then(|| "it may change the reflog".to_owned())
        }
        "git-remote" => {
            let first = parsed.operands.first().map(|(w, _)| w.text());
            first
                .is_some_and(|t| t != Some("get-url"))
                .then(|| "only listing remotes and get-url are read-only".to_owned())
        }
        "tee" => {
            let sinks = parsed.operands.iter().all(|(w, _)| w.text().is_some_and(paths::is_sink));
            (!sinks).then(|| "it writes a file".to_owned())
        }
        "pager" => checks::pager(parsed),
        "plain-names" => checks::plain_names(parsed),
        "tar" => checks::tar(parsed),
        "unzip" => checks::unzip(parsed),
        "zgrep" => checks::zgrep(parsed),
        "lsof" => checks::lsof(parsed),
        "yq" if parsed
            .operands
            .first()
            .and_then(|(w, _)| w.texts())
            .is_some_and(|all| all.iter().any(|t| matches!(t.as_str(), "e" | "ea" | "eval" | "eval-all"))) =>
        {
            Some("it uses a subcommand".to_owned())
        }
        "yq" => {
            // If the expression is the name of a file, yq reads that file.
            let mut misfit = None;
            if let Some((word, _)) = parsed.operands.first() {
                scopes.add_word(word, OperandRole::File, false, &mut misfit);
            }
            misfit.or_else(|| apply_program_effects(program(|t| programs::yq(t).into()), matched, scopes))
        }
        "date" => parsed
            .operands
            .iter()
            .any(|(w, _)| w.text().is_none_or(|t| !t.starts_with('+')))
            .then(|| "an operand that is not a format sets the clock".to_owned()),
        _ => None,
    }
}

/// Analyses the programs among the words: those in options, otherwise the first operand. None stands for a program
/// that is not known.
fn embedded_programs(
    phrase: &Phrase,
    parsed: &ParsedOptions<'_>,
    skip: usize,
    reads: fn(&str) -> ProgramEffects,
) -> Vec<Option<ProgramEffects>> {
    let options =
        parsed.options.iter().filter(|(o, _, _)| phrase.unless.contains(&o.as_str())).map(|(_, v, _)| v.as_ref());
    let operand = (skip == 0).then(|| parsed.operands.first().map(|(w, _)| *w));
    let texts = options.chain(operand).map(|w| w.and_then(Word::texts));
    texts.flat_map(|all| all.map_or(vec![None], |all| all.iter().map(|t| Some(reads(t))).collect())).collect()
}

/// `git config` reads settings by name. Anything that shows values that the command does not name is refused. The
/// options end at the first operand.
fn git_config_misfit(parsed: &ParsedOptions<'_>, scopes: &mut PathCollector<'_>) -> Option<String> {
    const NEW: &[&str] = &["--show-origin", "--show-scope", "--local", "--global", "--system", "--worktree", "--all"];
    let secret = |t: &&str| {
        let t = t.to_ascii_lowercase();
        ["token", "password", "secret", "credential", "extraheader", "helper", "cookie", "proxy", "insteadof"]
            .iter()
            .any(|s| t.contains(s))
    };
    let Some(texts) = parsed.operands.iter().map(|(w, _)| w.texts()).collect::<Option<Vec<_>>>() else {
        return Some("the name of a setting is known only at run time".to_owned());
    };
    let all: Vec<&str> = texts.iter().flat_map(|t| t.iter().map(String::as_str)).collect();
    let one_by_one = texts.iter().all(|t| t.len() == 1);
    let names_only = parsed.has(&["--name-only"]);
    if all.iter().any(secret) {
        scopes.seeks_credentials |= !names_only;
        return Some("a setting may hold a secret".to_owned());
    }
    let lists = parsed.has(&["-l", "--list", "--get-regexp"]);
    // `get` and `list` are the newer forms.
    let newer = one_by_one && matches!(all.first(), Some(&"list"));
    if lists || newer {
        let sections = ["alias", "user", "branch", "core", "init", "color", "diff", "merge", "pull", "push"];
        let named = |t: &&str| {
            let section = t.strip_prefix('^').and_then(|t| t.split_once("\\."));
            section.is_some_and(|(section, rest)| sections.contains(&section) && !rest.contains('|'))
        };
        let section =
            parsed.has(&["--get-regexp"]) && !parsed.has(&["-l", "--list"]) && !all.is_empty() && named(&all[0]);
        let section = section && one_by_one;
        if names_only && lists || newer && all.contains(&"--name-only") || section {
            return None;
        }
        scopes.seeks_credentials = true;
        return Some("it prints all settings, which may include secrets".to_owned());
    }
    let key = |t: &&str| t.contains('.') && !t.starts_with('-');
    let gets = match &all[..] {
        ["get", options @ .., name] if one_by_one => options.iter().all(|o| NEW.contains(o)) && key(name),
        // A single name prints its value.
        _ if parsed.has(&["--get", "--get-all"]) => texts.first().is_some_and(|t| t.iter().all(|t| key(&t.as_str()))),
        _ => texts.len() == 1 && all.iter().all(key),
    };
    (!gets).then(|| "only reading a setting by its name is read-only".to_owned())
}

fn sorts_only(parsed: &ParsedOptions<'_>) -> bool {
    parsed.options.iter().all(|(o, _, _)| matches!(o.as_str(), "--sort" | "-n"))
}

/// Applies the effects of embedded programs to a match; returns why the command is not read-only.
fn apply_program_effects(
    all: Vec<Option<ProgramEffects>>,
    matched: &mut PhraseMatch,
    scopes: &mut PathCollector<'_>,
) -> Option<String> {
    let mut misfit = None;
    for program in all {
        let Some(program) = program else {
            matched.opaque = Some(Opaque::Code);
            return Some("its program is known only at run time".to_owned());
        };
        for named in program.files {
            let role = if named.write { OperandRole::WriteFile } else { OperandRole::File };
            match named.file {
                Some(file) => drop(scopes.add_word(&Word::literal(file), role, false, &mut None)),
                None => scopes.loose = true,
            }
        }
        match program.file_use {
            FileUse::Reads => {}
            FileUse::Touches(why) => drop(misfit.get_or_insert_with(|| why.to_owned())),
            FileUse::Runs(why) => {
                matched.opaque = Some(Opaque::Code);
                return Some(why.to_owned());
            }
        }
    }
    misfit
}

/// `tar tzf a`: the options have no dash, and the archive follows all of them.
fn dash_tar_options(words: &[Word]) -> Option<Vec<Word>> {
    let (first, rest) = words.split_first()?;
    let letters = first.text()?;
    if letters.starts_with('-') || letters.is_empty() || !letters.bytes().all(|b| b.is_ascii_alphabetic()) {
        return None;
    }
    let mut out = Vec::new();
    let without: String = letters.chars().filter(|c| *c != 'f').collect();
    if !without.is_empty() {
        out.push(Word::literal(format!("-{without}")));
    }
    let mut rest = rest.iter();
    for _ in letters.matches('f') {
        out.extend([Word::literal("-f"), rest.next()?.clone()]);
    }
    out.extend(rest.cloned());
    Some(out)
}

/// `xxd` takes its options one by one, never in clusters, and writes to a second operand.
fn match_xxd(phrase: &'static Phrase, words: &[Word], scopes: &mut PathCollector<'_>) -> PhraseMatch {
    const FLAGS: &[&str] = &["-a", "-b", "-C", "-e", "-E", "-i", "-p", "-ps", "-plain", "-u", "-d", "-h", "-v"];
    const VALUES: &[&str] = &["-c", "-cols", "-g", "-l", "-len", "-n", "-o", "-s", "-seek", "-R"];
    let mut misfit: Option<String> = None;
    let (mut n, mut operands) = (0, 0);
    while let Some(word) = words.get(n) {
        n += 1;
        let text = word.text().unwrap_or_default();
        let attached = VALUES
            .iter()
            .any(|v| text.strip_prefix(v).is_some_and(|r| !r.is_empty() && r.bytes().all(|b| b.is_ascii_digit())));
        // After the input file, every further word is the output file, whatever it looks like.
        if operands == 0 && (FLAGS.contains(&text) || attached) {
            continue;
        }
        if operands == 0 && VALUES.contains(&text) {
            let number = |t: &String| t.trim_start_matches(['+', '-']).bytes().all(|b| b.is_ascii_alphanumeric());
            let value = words.get(n).filter(|w| !w.many).and_then(Word::texts);
            if !value.is_some_and(|all| all.iter().all(number)) {
                scopes.loose = true;
                misfit.get_or_insert_with(|| format!("the value of {text} is not known"));
            }
            n += 1;
        } else if tables::may_be_option(word) {
            misfit.get_or_insert_with(|| "an option is not known".to_owned());
            scopes.loose |= word.text().is_none();
        } else {
            operands += 1;
            if operands > 1 {
                misfit.get_or_insert_with(|| "it writes to its second operand".to_owned());
                scopes.add_word(word, OperandRole::WriteFile, false, &mut misfit);
            } else {
                scopes.add_word(word, OperandRole::File, false, &mut misfit);
            }
            if word.many {
                misfit.get_or_insert_with(|| "an argument may expand to several words".to_owned());
            }
        }
    }
    match misfit {
        Some(why) => not_read_only(why),
        None => PhraseMatch { reading: ReadOnlyProof::Phrase(phrase.name), opaque: None, recursive: false },
    }
}

const UNARY_FILE: &[&str] = &[
    "-a", "-b", "-c", "-d", "-e", "-f", "-g", "-h", "-k", "-p", "-r", "-s", "-u", "-w", "-x", "-G", "-L", "-N", "-O",
    "-S",
];
const UNARY_TEXT: &[&str] = &["-n", "-z", "-t", "-o"];
const BINARY: &[&str] =
    &["=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef", "=~"];

/// The operands of `test`, and whether each is a file; none if the form is not a plain one.
fn test_operands(words: &[Word]) -> Option<Vec<(&Word, bool)>> {
    let mut words = &words[1..];
    if let Some((last, rest)) = words.split_last()
        && last.text() == Some("]")
    {
        words = rest;
    }
    let mut out = Vec::new();
    // Splits `a -a b -o c` into its parts.
    for part in words.split(|w| matches!(w.text(), Some("-a" | "-o" | "&&" | "||"))) {
        let mut part = part;
        while part.len() > 1 && part[0].text() == Some("!") {
            part = &part[1..];
        }
        match part {
            [] => {}
            [one] if !one.many => out.push((one, false)),
            [operator, operand] if !operand.many => {
                let operator = operator.text()?;
                if UNARY_FILE.contains(&operator) {
                    out.push((operand, true));
                } else if UNARY_TEXT.contains(&operator) {
                    out.push((operand, false));
                } else {
                    return None;
                }
            }
            [left, operator, right] if !left.many && !right.many => {
                let operator = operator.text()?;
                if !BINARY.contains(&operator) {
                    return None;
                }
                let files = matches!(operator, "-nt" | "-ot" | "-ef");
                out.push((left, files));
                out.push((right, files));
            }
            _ => return None,
        }
    }
    Some(out)
}

/// Whether `test` may evaluate its operands (`-v`, `-R`), or may become a test that does.
pub(crate) fn test_evaluates(words: &[Word]) -> bool {
    test_operands(words).is_none()
}

/// Matches `test` and `[`, which only tell whether files exist.
pub(crate) fn match_test(words: &[Word], scopes: &mut PathCollector<'_>) -> PhraseMatch {
    let Some(parts) = test_operands(words) else { return not_read_only("the form of the test cannot be analysed") };
    let mut misfit = None;
    for (word, file) in parts {
        if file {
            scopes.add_word(word, OperandRole::Name, false, &mut misfit);
        }
    }
    match misfit {
        None => PhraseMatch { reading: ReadOnlyProof::SideEffect, opaque: None, recursive: false },
        Some(why) => not_read_only(why),
    }
}
