//! Classifies an occurrence: its verb, the paths that it names, whether it only reads, and its risks. Uses only the
//! tables and the words, no facts.

use crate::{
    paths, phrase,
    scopes::{PathCollector, collect_option_paths, collect_path_like_words},
    tables::{self, OperandRole, ParsedOptions, RiskTrigger, VerbRisks},
};
use countersign_model::{Assignment, Directory, Occurrence, Opaque, PathKind, ReadOnlyProof, Risk, Word, WordValue};

/// The verb of an occurrence, the index of its first own word, and the global options before it.
struct Verb<'w> {
    verb: String,
    rest: usize,
    globals: Vec<ParsedOptions<'w>>,
}

fn find_verb<'w>(program: &str, words: &'w [Word]) -> Verb<'w> {
    let mut verb = program.to_owned();
    let (mut rest, mut globals) = (1, Vec::new());
    let Some(mut subcommands) = tables::find_subcommands(program) else {
        if tables::is_one_word(program) || SIDE_EFFECTS.contains(&program) {
            return Verb { verb, rest, globals };
        }
        // For an unknown program, the verb is every word up to the first that is not plain.
        while rest < words.len().min(4) {
            match words[rest].text() {
                Some(text) if !words[rest].quoted && is_plain_word(text) => {
                    verb.push(' ');
                    verb.push_str(text);
                    rest += 1;
                }
                _ => break,
            }
        }
        return Verb { verb, rest, globals };
    };
    // `cargo +nightly test`
    if program == "cargo" && words.get(1).and_then(Word::text).is_some_and(|t| t.starts_with('+')) {
        rest = 2;
    }
    let mut verb_words = usize::MAX;
    let mut taken = 0;
    while taken < verb_words && rest <= words.len() {
        let parsed = subcommands.globals.parse_options(&words[rest..], false, true);
        let next = rest + parsed.rest;
        globals.push(parsed);
        let Some(text) = words.get(next).and_then(Word::text) else {
            if taken == 0 {
                rest = next.min(words.len());
            } else {
                globals.pop();
            }
            break;
        };
        // The last words of a verb are adjacent: the verb of `git remote -v update` is `git remote`.
        if taken > 0 && next != rest && tables::find_subcommands(&verb).is_none() {
            globals.pop();
            break;
        }
        if !is_subcommand(text) {
            rest = next;
            break;
        }
        if taken == 0 {
            verb_words = subcommands.verb_words_for(text);
            if verb_words == 0 {
                rest = next;
                break;
            }
        }
        verb.push(' ');
        verb.push_str(text);
        rest = next + 1;
        taken += 1;
        if let Some(deeper) = tables::find_subcommands(&verb) {
            subcommands = deeper;
            (verb_words, taken) = (usize::MAX, 0);
        }
    }
    Verb { verb, rest, globals }
}

fn is_plain_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '-' | '_'))
}

fn is_subcommand(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.'))
}

/// Builtins that only print or change their own shell.
const SIDE_EFFECTS: &[&str] = &[
    "echo", "printf", ":", "true", "false", "pwd", "exit", "return", "break", "continue", "shift", "wait", "umask",
    "jobs", "times", "dirs", "set", "unset", "export", "declare", "typeset", "local", "readonly", "logout", "ulimit",
    "disown", "[[", "caller", "read",
];

/// Classifies an occurrence and stores the result in it.
pub(crate) fn interpret(occurrence: &mut Occurrence, home: &str) {
    if occurrence.unread {
        let reason = occurrence.opaque.map_or("", Opaque::reason);
        occurrence.risks = vec![(Risk::Opaque, reason), (Risk::Write, "a command that cannot be analysed may write")];
        return;
    }
    let words = std::mem::take(&mut occurrence.words);
    let name = words.first().and_then(Word::text).unwrap_or_default().to_owned();
    occurrence.literal = words.iter().all(|w| w.texts().is_some() && !w.substituted);
    let directory = occurrence.directory.clone();
    let mut scopes = PathCollector::new(&directory, home);
    let mut risks: Vec<(Risk, &'static str)> = Vec::new();
    let by_path = name.contains('/') && !(name.starts_with('/') && paths::is_system(&paths::clean(&name)));
    occurrence.program = paths::base(&name).to_owned();
    let mut misfit = None;
    if occurrence.opaque.is_some() {
        risks.push((Risk::Opaque, occurrence.opaque.map_or("", Opaque::reason)));
    }
    if name.is_empty() {
        occurrence.reading = ReadOnlyProof::Unknown;
        if occurrence.verb.is_empty() {
            occurrence.verb = "bash".to_owned();
        }
        collect_path_like_words(&words, 1, None, &mut scopes);
    } else if by_path {
        occurrence.verb = match (&directory, name.starts_with('/')) {
            (_, true) => paths::clean(&name),
            (Directory::Known(all), false) if all.len() == 1 => paths::clean(&paths::join(&all[0], &name)),
            _ => name.clone(),
        };
        occurrence.reading = ReadOnlyProof::Unknown;
        occurrence.base_risks = vec![Risk::Write, Risk::WorkspaceCode];
        risks.push((Risk::Write, "a program given by its path may write"));
        risks.push((Risk::WorkspaceCode, "runs a file that the agent may have changed"));
        scopes.add_word(&words[0], OperandRole::File, false, &mut misfit);
        collect_path_like_words(&words, 1, None, &mut scopes);
        // A program given by its path has the risks of its name as well.
        if let Some(effects) = tables::find_risks(&occurrence.program)
            && effects.base.contains(&Risk::Destructive)
        {
            risks.push((Risk::Destructive, "a program of this name can lose data"));
        }
    } else {
        interpret_named_program(occurrence, &words, &mut scopes, &mut risks);
    }
    for redirect in &occurrence.redirects {
        interpret_redirect(redirect, &mut scopes, &mut risks);
    }
    for assignment in &occurrence.assignments {
        if let WordValue::One(value) = &assignment.value
            && value.starts_with('/')
        {
            // A path in a variable counts as a path that the command uses.
            scopes.add_scope(value, value, false, PathKind::Perhaps, false, false);
        }
    }
    if scopes.seeks_credentials {
        risks.push((Risk::Credential, "reads files or settings that may hold secrets"));
    }
    if occurrence.privileged {
        risks.push((Risk::Privileged, "asks for another user's rights"));
    }
    risks.dedup_by_key(|(risk, _)| *risk);
    occurrence.risks = risks;
    occurrence.scopes = scopes.list;
    let listed = words.iter().chain(occurrence.redirects.iter().map(|r| &r.target)).any(Word::is_listed);
    let reads = matches!(occurrence.reading, ReadOnlyProof::Phrase(_) | ReadOnlyProof::SideEffect);
    occurrence.loose = scopes.loose || listed && (!reads || occurrence.redirects.iter().any(|r| r.write));
    occurrence.words = words;
}

/// Options of git itself that do not change what it runs.
#[rustfmt::skip]
const INERT_GIT_OPTIONS: &[&str] = &[
    "-C", "-c", "--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--icase-pathspecs", "--glob-pathspecs",
    "--noglob-pathspecs", "--no-replace-objects", "--version", "--help",
];

/// The options before a subcommand: another directory, other configuration.
#[derive(Default)]
struct LeadingOptions {
    directory: Option<String>,
    settings: Vec<Assignment>,
}

fn read_leading_options(
    program: &str,
    words: &[Word],
    rest: usize,
    globals: &[ParsedOptions<'_>],
    scopes: &mut PathCollector<'_>,
    risks: &mut Vec<(Risk, &'static str)>,
    misfit: &mut Option<String>,
) -> LeadingOptions {
    let mut found = LeadingOptions::default();
    for parsed in globals {
        for (option, value, role) in &parsed.options {
            let Some(value) = value else { continue };
            match (program, option.as_str(), value.text()) {
                ("git", "-C", Some(to)) => {
                    // Each `-C` is relative to the one before.
                    let to = match &found.directory {
                        Some(before) => paths::join(before, to),
                        None => to.to_owned(),
                    };
                    scopes.add_word(&Word::literal(to.clone()), OperandRole::Dir, false, misfit);
                    found.directory = Some(to);
                }
                ("git", "-C", None) => {
                    scopes.loose = true;
                    misfit.get_or_insert_with(|| "the directory it runs in is not known".to_owned());
                }
                ("git", "-c", text) if !text.is_some_and(is_inert_git_setting) => {
                    misfit.get_or_insert_with(|| "it sets git configuration".to_owned());
                    risks.push((Risk::WorkspaceCode, "git configuration can name programs to run"));
                    let name = format!("git -c {}", text.unwrap_or("?"));
                    found.settings.push(Assignment { name, value: value.value.clone() });
                    if let Some((_, value)) = text.and_then(|t| t.split_once('='))
                        && value.contains('/')
                    {
                        scopes.add_word(&Word::literal(value), OperandRole::Path, false, misfit);
                    }
                }
                _ => drop(scopes.add_word(value, *role, false, misfit)),
            }
        }
        if let Some(why) = &parsed.misfit {
            misfit.get_or_insert_with(|| why.clone());
            // An unknown option may still name a file.
            collect_path_like_words(&words[1..rest], 0, None, scopes);
        }
        if program == "git"
            && let Some((option, _, _)) =
                parsed.options.iter().find(|(o, _, _)| !INERT_GIT_OPTIONS.contains(&o.as_str()))
        {
            misfit.get_or_insert_with(|| format!("it uses option {option}"));
            risks.push((Risk::WorkspaceCode, "the option makes git use other files, which can name programs to run"));
            found.settings.push(Assignment { name: format!("git {option}"), value: WordValue::Unknown });
        }
    }
    found
}

/// `cd` and similar builtins. Changing the directory reads nothing. The commands that follow are checked in every
/// directory that they may run in; `cd` itself only in the directory that it reaches if the commands before it
/// succeed.
fn interpret_cd(program: &str, own: &[Word], scopes: &mut PathCollector<'_>, misfit: &mut Option<String>) {
    let operand = own.iter().find(|w| !w.text().is_some_and(|t| t.starts_with('-') && t != "-"));
    let likely = match scopes.directory {
        Directory::Known(all) => Directory::Known(all.iter().take(1).cloned().collect()),
        Directory::Unknown => Directory::Unknown,
    };
    let mut there = PathCollector::new(&likely, scopes.home);
    match operand {
        Some(word) if word.text() != Some("-") => drop(there.add_word(word, OperandRole::Dir, false, misfit)),
        None if program == "cd" => there.add_scope(there.home, there.home, false, PathKind::Directory, false, false),
        _ => {}
    }
    scopes.loose |= there.loose;
    scopes.list.extend(there.list);
}

fn interpret_named_program(
    occurrence: &mut Occurrence,
    words: &[Word],
    scopes: &mut PathCollector<'_>,
    risks: &mut Vec<(Risk, &'static str)>,
) {
    let program = occurrence.program.clone();
    let Verb { verb, rest, globals } = find_verb(&program, words);
    let own = words.get(rest.min(words.len())..).unwrap_or_default();
    occurrence.verb.clone_from(&verb);
    let mut misfit: Option<String> = None;
    let bare_builtin = words[0].text() == Some(&program);
    let LeadingOptions { directory: moved, settings: configured } =
        read_leading_options(&program, words, rest, &globals, scopes, risks, &mut misfit);
    occurrence.assignments.extend(configured);
    // `git -C x status`: paths are relative to `x`.
    let elsewhere = moved.map(|to| match scopes.directory {
        Directory::Known(all) => Directory::Known(all.iter().map(|d| paths::clean(&paths::join(d, &to))).collect()),
        Directory::Unknown => Directory::Unknown,
    });
    let inner_directory = elsewhere.clone().unwrap_or_else(|| scopes.directory.clone());
    let mut inner = PathCollector::new(&inner_directory, scopes.home);
    let mut matched = None;
    if bare_builtin && matches!(program.as_str(), "test" | "[") {
        matched = Some(phrase::match_test(words, &mut inner));
    } else if bare_builtin && program == "[[" {
        for word in own {
            inner.add_word(word, OperandRole::Name, false, &mut misfit);
        }
        occurrence.reading = ReadOnlyProof::SideEffect;
    } else if bare_builtin && SIDE_EFFECTS.contains(&program.as_str()) {
        occurrence.reading = interpret_builtin(&program, own, &mut inner, risks);
    } else if bare_builtin && matches!(program.as_str(), "cd" | "pushd" | "popd") {
        interpret_cd(&program, own, &mut inner, &mut misfit);
        occurrence.reading = ReadOnlyProof::SideEffect;
    } else if prints_version(&program, if verb == program { &words[1..] } else { own }, &verb)
        && (verb == program || globals.iter().all(|g| g.options.is_empty()))
    {
        misfit = None;
        occurrence.reading = ReadOnlyProof::Phrase("version");
        // The workspace can choose what most tools run even for `--version`, so beside a granted command the user is
        // asked.
        occurrence.literal &= tables::is_inert(&program);
    } else if let Some(phrase) = tables::phrase(&verb).filter(|p| p.applies_to(own)) {
        matched = Some(phrase::match_phrase(phrase, own, &mut inner));
        // Beside a granted command it would not be confined, so the user is asked.
        occurrence.literal &= !phrase.confined;
    }
    let mut recursive = false;
    if let Some(matched) = matched {
        recursive = matched.recursive;
        occurrence.reading = matched.reading;
        if let Some(why) = matched.opaque {
            occurrence.opaque.get_or_insert(why);
            risks.push((Risk::Opaque, why.reason()));
        }
    }
    if let (Some(why), ReadOnlyProof::Phrase(_) | ReadOnlyProof::SideEffect) = (&misfit, &occurrence.reading) {
        occurrence.reading = ReadOnlyProof::Not(why.clone());
    }
    let effects = tables::find_risks(&verb);
    occurrence.base_risks = effects.map(|e| e.base.clone()).unwrap_or_else(|| vec![Risk::Write]);
    if !matches!(occurrence.reading, ReadOnlyProof::Phrase(_) | ReadOnlyProof::SideEffect) {
        // Some tools take important options before their subcommand.
        let options = if matches!(program.as_str(), "npx" | "bunx" | "pnpx" | "cargo") { &words[1..] } else { own };
        interpret_effects(occurrence, effects, own, options, &mut inner, risks, &mut recursive);
    } else if occurrence.opaque.is_none() {
        occurrence.base_risks.clear();
    }
    if inner.list.is_empty()
        && scopes.list.is_empty()
        && !matches!(occurrence.reading, ReadOnlyProof::SideEffect | ReadOnlyProof::Phrase(_))
    {
        inner.add_working_directory(recursive);
    }
    scopes.loose |= inner.loose;
    scopes.seeks_credentials |= inner.seeks_credentials;
    scopes.list.extend(inner.list);
}

/// Adds the risks and paths of a command that does more than read.
fn interpret_effects(
    occurrence: &Occurrence,
    effects: Option<&'static VerbRisks>,
    own: &[Word],
    options: &[Word],
    scopes: &mut PathCollector<'_>,
    risks: &mut Vec<(Risk, &'static str)>,
    recursive: &mut bool,
) {
    let fits_phrase = matches!(occurrence.reading, ReadOnlyProof::Not(_));
    match effects {
        None if fits_phrase => risks.push((Risk::Write, "not a known read-only form")),
        None => risks.push((Risk::Write, "an unknown program may write")),
        Some(effects) => {
            risks.extend(effects.base.iter().map(|r| (*r, risk_reason(*r))));
            if effects.base.is_empty() {
                risks.push((Risk::Write, "not a known read-only form"));
            }
            let bare = tables::OptionGrammar::default();
            let dashed = (effects.verb == "tar").then(|| dash_first_word(own)).flatten();
            let own = dashed.as_deref().unwrap_or(own);
            let parsed = effects.grammar.as_ref().unwrap_or(&bare).parse_options(own, false, false);
            *recursive |= effects.recursive.contains(&"always")
                || !effects.recursive.is_empty() && has_option(own, &effects.recursive, &parsed);
            for (when, raised) in &effects.raises {
                let hit = match when {
                    RiskTrigger::Options(wanted) => has_option(options, wanted, &parsed),
                    RiskTrigger::Operands(starts) => own.iter().filter_map(Word::texts).flatten().any(|t| {
                        starts.iter().any(|s| {
                            let lower = t.to_ascii_lowercase();
                            t.eq_ignore_ascii_case(s)
                                || s.contains(['*', '?']) && (paths::matches(s, t) || paths::matches(s, &lower))
                        })
                    }),
                };
                if hit {
                    risks.extend(raised.iter().map(|r| (*r, risk_reason(*r))));
                }
            }
            if let Some(grammar) = &effects.grammar {
                let mut parsed = parsed;
                grammar.assign_roles(&mut parsed, 0);
                if let (true, Some((_, role))) = (effects.writes_last, parsed.operands.last_mut()) {
                    *role = OperandRole::WritePath;
                }
                scopes.loose |= parsed.loose;
                let mut misfit = None;
                for (_, value, role) in &parsed.options {
                    if let Some(value) = value {
                        if *role == OperandRole::Text {
                            // An unknown value of an option that takes text is that text, and no path.
                            if value.texts().is_some() {
                                collect_path_like_words(std::slice::from_ref(value), 0, Some(effects), scopes);
                            }
                        } else {
                            scopes.add_word(value, *role, *recursive, &mut misfit);
                        }
                    }
                }
                for (word, role) in &parsed.operands {
                    match role {
                        OperandRole::Text => {
                            collect_path_like_words(std::slice::from_ref(*word), 0, Some(effects), scopes)
                        }
                        role => drop(scopes.add_word(word, *role, *recursive, &mut misfit)),
                    }
                }
                // Options that are not in the grammar may still name files.
                if parsed.misfit.is_some() {
                    collect_path_like_words(own, 0, Some(effects), scopes);
                }
                return;
            }
        }
    }
    if !fits_phrase || effects.is_some() {
        collect_path_like_words(own, 0, effects, scopes);
    } else {
        collect_option_paths(own, scopes);
    }
}

/// `tar xf a`: the first word is a cluster of options without its dash.
fn dash_first_word(own: &[Word]) -> Option<Vec<Word>> {
    let text = own.first()?.text()?;
    if text.starts_with('-') || !text.bytes().all(|b| b.is_ascii_alphabetic()) {
        return None;
    }
    let mut words = own.to_vec();
    words[0] = Word::literal(format!("-{text}"));
    Some(words)
}

/// `--upload-pa=x` is `--upload-pack=x`.
fn abbreviates(text: &str, option: &str) -> bool {
    let name = text.split_once('=').map_or(text, |(n, _)| n);
    name.len() > 3 && option.starts_with(name)
}

fn has_option(own: &[Word], options: &[&str], parsed: &ParsedOptions<'_>) -> bool {
    parsed.has(options)
        || options.contains(&"--") && own.iter().filter_map(Word::texts).flatten().any(|t| t == "--")
        || own.iter().take_while(|w| w.text() != Some("--")).filter_map(Word::texts).flatten().any(|t| {
            options.iter().any(|o| {
                t == *o
                    || o.len() > 2 && t.strip_prefix(o).is_some_and(|r| r.starts_with('='))
                    || o.starts_with("--") && t.starts_with("--") && abbreviates(t, o)
                    || o.len() == 2
                        && !o.starts_with("--")
                        && t.starts_with('-')
                        && !t.starts_with("--")
                        && t[1..].contains(&o[1..])
            })
        })
}

/// Classifies builtins that touch no file, unless their words say otherwise.
fn interpret_builtin(
    program: &str,
    own: &[Word],
    scopes: &mut PathCollector<'_>,
    risks: &mut Vec<(Risk, &'static str)>,
) -> ReadOnlyProof {
    let dumps = match program {
        "set" => own.is_empty(),
        "export" | "declare" | "typeset" | "readonly" | "local" => {
            let some = |w: &Word, is: fn(&str) -> bool| w.texts().is_some_and(|all| all.iter().any(|t| is(t)));
            own.iter().all(|w| some(w, |t| t.starts_with('-')))
                || own.iter().any(|w| some(w, |t| t.starts_with('-') && t.contains('p')))
        }
        _ => false,
    };
    if dumps {
        risks.push((Risk::Credential, "prints all variables, which may hold secrets"));
        return ReadOnlyProof::Not("it prints every variable".to_owned());
    }
    let mut misfit = None;
    if matches!(program, "echo" | "printf") {
        for word in own {
            // A glob shows the names in a directory.
            if matches!(word.value, WordValue::Pattern(_)) {
                scopes.add_word(word, OperandRole::Name, false, &mut misfit);
            }
        }
    }
    match misfit {
        Some(why) => ReadOnlyProof::Not(why),
        None => ReadOnlyProof::SideEffect,
    }
}

/// Whether a tool only prints its version or its help.
fn prints_version(program: &str, own: &[Word], verb: &str) -> bool {
    let texts: Option<Vec<&str>> = own.iter().map(Word::text).collect();
    let Some(texts) = texts else { return false };
    let known = tables::is_tool(program);
    match texts[..] {
        ["--version" | "--help"] => known && verb == program && !(program == "git" && texts[0] == "--help"),
        ["-vV"] | ["--version", "--verbose"] => verb == program && program == "rustc",
        ["-V"] => verb == program && tables::prints_version_with(program, "-V"),
        ["-version"] => verb == program && tables::prints_version_with(program, "-version"),
        ["-v"] => verb == program && tables::prints_version_with(program, "-v"),
        ["version"] => verb == program && tables::prints_version_with(program, "version"),
        [] => verb.strip_prefix(program) == Some(" version") && tables::prints_version_with(program, "version"),
        ["--client" | "--short" | "-m" | "--client=true"] => {
            verb.strip_prefix(program) == Some(" version") && matches!(program, "kubectl" | "helm" | "go" | "oc")
        }
        _ => false,
    }
}

/// `git -c` settings that only change how output looks.
fn is_inert_git_setting(setting: &str) -> bool {
    let (key, value) = setting.split_once('=').unwrap_or((setting, "true"));
    let key = key.to_ascii_lowercase();
    key.starts_with("color.")
        || key.starts_with("advice.")
        || key.starts_with("column.")
        || matches!(
            key.as_str(),
            "core.quotepath"
                | "core.abbrev"
                | "log.date"
                | "log.decorate"
                | "diff.renames"
                | "diff.renamelimit"
                | "diff.context"
                | "diff.noprefix"
                | "diff.mnemonicprefix"
                | "diff.algorithm"
                | "status.short"
                | "status.branch"
                | "status.relativepaths"
                | "status.showuntrackedfiles"
                | "log.showroot"
        )
        || (key == "core.pager" || key.starts_with("pager.")) && matches!(value, "cat" | "" | "false")
        || key == "core.fsmonitor" && value == "false"
}

fn interpret_redirect(
    redirect: &countersign_model::Redirect,
    scopes: &mut PathCollector<'_>,
    risks: &mut Vec<(Risk, &'static str)>,
) {
    let word = &redirect.target;
    if let Some(texts) = word.texts() {
        if texts.iter().any(|t| t.starts_with("/dev/tcp/") || t.starts_with("/dev/udp/")) {
            risks.push((Risk::Network, "a redirect opens a network connection"));
            return;
        }
        if texts.iter().all(|t| if redirect.write { paths::is_sink(t) } else { paths::is_source(t) }) {
            return;
        }
    }
    if word.hint.as_deref().is_some_and(|h| h.starts_with("/dev/fd")) && word.substituted {
        return;
    }
    if redirect.write {
        risks.push((Risk::Write, if redirect.append { "appends to a file" } else { "writes a file" }));
    }
    let mut misfit = None;
    let role = if redirect.write { OperandRole::WriteFile } else { OperandRole::File };
    scopes.add_word(word, role, false, &mut misfit);
}

/// The reason shown for a risk that comes from the tables.
fn risk_reason(risk: Risk) -> &'static str {
    match risk {
        Risk::Write => "changes files",
        Risk::Destructive => "data may be lost",
        Risk::Network => "talks to other machines",
        Risk::Credential => "may show secrets",
        Risk::HostModifying => "changes this machine",
        Risk::FilesystemWide => "reaches the whole file system",
        Risk::Privileged => "asks for another user's rights",
        Risk::WorkspaceCode => "runs code from this directory, which the agent can change",
        Risk::Opaque => "cannot be analysed",
        Risk::Interactive => "gets a terminal",
        Risk::Background => "keeps running in the background",
        Risk::OfSelf => "touches Countersign itself",
    }
}
