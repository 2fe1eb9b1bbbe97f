//! Checks of single programs that the option grammar cannot express. Each returns why a command is not read-only, if
//! it is not.

use super::{PhraseMatch, apply_program_effects, embedded_programs, is_digits, sorts_only};
use crate::{
    programs,
    scopes::PathCollector,
    tables::{self, ParsedOptions, Phrase},
};
use countersign_model::{Opaque, Word, WordValue};

pub(super) fn sed(
    phrase: &Phrase,
    parsed: &ParsedOptions<'_>,
    skip: usize,
    matched: &mut PhraseMatch,
    scopes: &mut PathCollector<'_>,
) -> Option<String> {
    // BSD's `-l` takes no value, so the next word would be the script.
    let lengths = parsed.options.iter().filter(|(o, _, _)| o == "-l").filter_map(|(_, v, _)| v.as_ref());
    if lengths.map(Word::text).any(|t| t.is_none_or(|t| !t.bytes().all(|b| b.is_ascii_digit()))) {
        matched.opaque = Some(Opaque::Code);
        return Some("the line length is not a number".to_owned());
    }
    // A sed that accepts options only before its first operand takes that operand for the script.
    if skip > 0 && parsed.option_after_operand {
        matched.opaque = Some(Opaque::Code);
        return Some("the script follows an operand".to_owned());
    }
    // Several `-e` form one script, line by line.
    let scripts: Option<Vec<&str>> = parsed
        .options
        .iter()
        .filter(|(o, _, _)| matches!(o.as_str(), "-e" | "--expression"))
        .map(|(_, v, _)| v.as_ref()?.text())
        .collect();
    let whole = scripts.map(|s| s.join("\n"));
    let several = parsed.options.iter().filter(|(o, _, _)| matches!(o.as_str(), "-e" | "--expression")).count();
    let effects = match whole {
        Some(script) if skip > 0 => vec![Some(programs::sed(&script))],
        None if several > 1 => vec![None],
        _ => embedded_programs(phrase, parsed, skip, programs::sed),
    };
    apply_program_effects(effects, matched, scopes)
}

pub(super) fn git_list(phrase: &Phrase, parsed: &ParsedOptions<'_>) -> Option<String> {
    // Operands are patterns only when the command lists.
    let asks = ["--contains", "--no-contains", "--merged", "--no-merged", "--points-at"];
    let asks = parsed.has(&asks) || phrase.name == "git tag" && parsed.has(&["-n"]);
    // Older versions of git create a branch with `-l`.
    let list_options = if phrase.name == "git tag" { &["-l", "--list"][..] } else { &["--list"] };
    let lists = parsed.has(list_options) || asks && parsed.operands.len() <= 1 && !sorts_only(parsed);
    (!parsed.operands.is_empty() && !lists).then(|| "an operand without --list creates a branch or tag".to_owned())
}

pub(super) fn pager(parsed: &ParsedOptions<'_>) -> Option<String> {
    // The pager runs `+cmd`, and a file may have such a name.
    let runs = |t: &String| t.starts_with(['+', '*', '?', '[']);
    let command = parsed.operands.iter().any(|(w, _)| match &w.value {
        WordValue::One(text) => text.starts_with('+'),
        WordValue::Any(texts) => texts.iter().any(|t| t.starts_with('+')),
        WordValue::Pattern(globs) => globs.iter().any(runs),
        WordValue::Unknown => true,
    });
    // A value may continue with options and commands behind its digits.
    let plain = |v: &Word| {
        let number = |t: &String| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit() || b == b',');
        v.texts().is_some_and(|all| all.iter().all(number))
    };
    let values = parsed.options.iter().filter_map(|(_, v, _)| v.as_ref());
    let odd = values.into_iter().any(|v| !plain(v));
    (command || odd).then(|| "the pager may take an argument for a command".to_owned())
}

pub(super) fn plain_names(parsed: &ParsedOptions<'_>) -> Option<String> {
    let plain = |t: &str| t.chars().all(|c| c.is_ascii_alphanumeric() || "._+:@-".contains(c));
    let values = parsed.options.iter().filter_map(|(_, v, _)| v.as_ref());
    let all = parsed.operands.iter().map(|(w, _)| *w).chain(values).all(|w| w.text().is_some_and(plain));
    (!all).then(|| "an argument is not a plain name".to_owned())
}

pub(super) fn tar(parsed: &ParsedOptions<'_>) -> Option<String> {
    let archives: Vec<&Word> = parsed
        .options
        .iter()
        .filter(|(o, _, _)| matches!(o.as_str(), "-f" | "--file"))
        .filter_map(|(_, v, _)| v.as_ref())
        .collect();
    // `host:archive` is fetched from that host.
    let remote = archives.iter().any(|w| w.text().is_none_or(|t| t.contains(':')));
    if !parsed.has(&["-t", "--list"]) || archives.is_empty() {
        Some("only listing an archive is read-only".to_owned())
    } else {
        remote.then(|| "the archive may be on another machine".to_owned())
    }
}

pub(super) fn unzip(parsed: &ParsedOptions<'_>) -> Option<String> {
    // Some versions accept options behind the archive too.
    let late = parsed.operands.iter().any(|(w, _)| tables::may_be_option(w) && !w.quoted);
    let dashed = parsed.operands.iter().filter_map(|(w, _)| w.texts()).flatten().any(|t| t.starts_with('-'));
    let lists = parsed.has(&["-l", "-v", "-Z"]) && !late && !dashed;
    (!lists).then(|| "only listing an archive is read-only".to_owned())
}

pub(super) fn zgrep(parsed: &ParsedOptions<'_>) -> Option<String> {
    // Some versions are scripts that split the values of options again.
    let fits = |option: &str, t: &str| match option {
        "-e" => !t.contains(|c: char| c.is_whitespace() || "*?[]$`\\'\"".contains(c)),
        _ => is_digits(t),
    };
    let odd = parsed
        .options
        .iter()
        .any(|(o, v, _)| v.as_ref().is_some_and(|v| v.texts().is_none_or(|all| all.iter().any(|t| !fits(o, t)))));
    odd.then(|| "a value may expand to several words".to_owned())
}

pub(super) fn lsof(parsed: &ParsedOptions<'_>) -> Option<String> {
    let plain = |t: &str| {
        let (kind, port) = t.split_once(':').unwrap_or((t, ""));
        let kind = kind.trim_start_matches(['4', '6']).to_ascii_lowercase();
        matches!(kind.as_str(), "" | "tcp" | "udp")
            && port.bytes().all(|b| b.is_ascii_digit() || matches!(b, b',' | b'-'))
    };
    let mut values = parsed.options.iter().filter(|(o, _, _)| o == "-i").filter_map(|(_, v, _)| v.as_ref());
    values.any(|v| !v.text().is_some_and(plain)).then(|| "it may look up a host name".to_owned())
}
