//! Compares printed output with real output. Values that differ from run to run are equal: ids, times, durations, sizes,
//! process ids, digests. Everything else must be the same.

/// Stands for anything: alone on a line for any number of lines, within a line for any text.
const ANYTHING: &str = "…";

/// Words before a number that differs between machines or runs.
const WORDS_BEFORE_NUMBERS: &[&str] = &["pid", "Landlock", "version"];
/// Units behind a number, after a blank or right behind it.
const UNITS: &[&str] = &[
    "ns", "us", "µs", "ms", "s", "m", "h", "d", "B", "kB", "KB", "MB", "GB", "KiB", "MiB", "GiB", "byte", "bytes",
    "second", "seconds", "minute", "minutes",
];
/// The kinds of ids, `tk_0123456789abcdef`.
const ID_DIGITS: usize = 16;
const DIGEST_DIGITS: usize = 32;

/// The pairs of lines that belong together, or where the first line that differs stands in `actual`.
pub(crate) fn align(expected: &[String], actual: &[String]) -> Result<Vec<(usize, usize)>, usize> {
    let plain: Vec<String> = actual.iter().map(|l| normalise(l)).collect();
    let mut furthest = 0;
    let mut pairs = Vec::new();
    if lines_match(expected, &plain, (0, 0), &mut pairs, &mut furthest) { Ok(pairs) } else { Err(furthest) }
}

fn lines_match(
    expected: &[String],
    actual: &[String],
    (e, a): (usize, usize),
    pairs: &mut Vec<(usize, usize)>,
    furthest: &mut usize,
) -> bool {
    *furthest = (*furthest).max(a);
    let Some(line) = expected.get(e) else { return a == actual.len() };
    if line.trim() == ANYTHING {
        return (a..=actual.len()).any(|next| lines_match(expected, actual, (e + 1, next), pairs, furthest));
    }
    let found = actual.get(a).is_some_and(|real| line_matches(line, real));
    if !found {
        return false;
    }
    pairs.push((e, a));
    let rest = lines_match(expected, actual, (e + 1, a + 1), pairs, furthest);
    if !rest {
        pairs.pop();
    }
    rest
}

/// `actual` is normalised.
fn line_matches(expected: &str, actual: &str) -> bool {
    let expected = normalise(expected);
    let parts: Vec<&str> = expected.split(ANYTHING).map(str::trim).collect();
    let [first, middle @ .., last] = parts.as_slice() else { return expected == actual };
    let Some(mut rest) = actual.strip_prefix(first) else { return false };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// A line without what differs from run to run.
pub(crate) fn normalise(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let normal = words.iter().enumerate().map(|(n, word)| {
        let unit = words.get(n + 1).map_or("", |next| next.trim_end_matches(|c: char| !c.is_alphanumeric()));
        let number_differs = UNITS.contains(&unit) || n > 0 && WORDS_BEFORE_NUMBERS.contains(&words[n - 1]);
        normalise_word(word, number_differs)
    });
    normal.collect::<Vec<String>>().join(" ")
}

fn normalise_word(word: &str, number_differs: bool) -> String {
    let mut out = String::new();
    let mut rest = word;
    while !rest.is_empty() {
        let length = rest.find(|c: char| !is_part_of_a_value(c)).unwrap_or(rest.len());
        let (token, behind) = rest.split_at(length);
        out.push_str(&normalise_token(token, number_differs));
        let separator = behind.chars().next().map_or(0, char::len_utf8);
        out.push_str(&behind[..separator]);
        rest = &behind[separator..];
    }
    // The tag of a redacted value is a digest under the home's own key.
    if let Some(at) = out.find("[redacted:")
        && let Some(end) = out[at..].find(']')
        && let Some(tag) = out[at..at + end].rfind(':')
    {
        out.replace_range(at + tag + 1..at + end, "TAG");
    }
    out
}

fn is_part_of_a_value(c: char) -> bool {
    c.is_alphanumeric() || "_.:+-µ".contains(c)
}

fn normalise_token(token: &str, number_differs: bool) -> String {
    let core = token.trim_end_matches(['.', ':', '-', '+']);
    let end = &token[core.len()..];
    if number_differs && core.starts_with(|c: char| c.is_ascii_digit()) {
        return format!("N{end}");
    }
    if let Some(kind) = id_kind(core) {
        return format!("{kind}_ID{}{end}", &core[kind.len() + 1 + ID_DIGITS..]);
    }
    if is_time(core) {
        return format!("TIME{end}");
    }
    if core.len() >= DIGEST_DIGITS && core.chars().all(|c| c.is_ascii_hexdigit()) {
        return format!("DIGEST{end}");
    }
    let number = core.trim_end_matches(|c: char| c.is_alphabetic());
    let is_number =
        number.starts_with(|c: char| c.is_ascii_digit()) && number.chars().all(|c| c.is_ascii_digit() || c == '.');
    if is_number && UNITS.contains(&&core[number.len()..]) {
        return format!("N{end}");
    }
    token.to_owned()
}

/// `tk` of `tk_0123456789abcdef` and of names that begin with it.
fn id_kind(word: &str) -> Option<&str> {
    let (kind, id) = word.split_once('_')?;
    let digits = id.get(..ID_DIGITS)?;
    let is_id = kind.len() == 2
        && kind.chars().all(|c| c.is_ascii_lowercase())
        && digits.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        && digits.starts_with(|c: char| c.is_ascii_digit())
        && !id[ID_DIGITS..].starts_with(char::is_alphanumeric);
    is_id.then_some(kind)
}

fn is_time(word: &str) -> bool {
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape.starts_with("0000-00-00T00:00:00") || shape == "00:00:00" || shape == "0000-00-00"
}

/// Every id in a line, in order.
pub(crate) fn ids(line: &str) -> Vec<&str> {
    let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| id_kind(word).is_some_and(|kind| word.len() == kind.len() + 1 + ID_DIGITS)).collect()
}

/// What a page prints instead of `shown`: the real lines, with the places kept that stand for anything.
pub(crate) fn refresh(shown: &[String], actual: &[String]) -> Vec<String> {
    let stands_for_anything = |line: &String| line.trim() == ANYTHING;
    let Some(first) = shown.iter().position(stands_for_anything) else {
        return actual.iter().enumerate().map(|(n, real)| refresh_line(shown.get(n), real)).collect();
    };
    let last = shown.iter().rposition(stands_for_anything).unwrap_or(first);
    let before = first.min(actual.len());
    let after = (shown.len() - 1 - last).min(actual.len() - before);
    let mut lines: Vec<String> = (0..before).map(|n| refresh_line(shown.get(n), &actual[n])).collect();
    // Between two such places only lines that still match can be kept.
    let real: Vec<String> = actual.iter().map(|l| normalise(l)).collect();
    let is_kept = |line: &&String| stands_for_anything(line) || real.iter().any(|l| line_matches(line, l));
    lines.extend(shown[first..=last].iter().filter(is_kept).cloned());
    let behind = actual.len() - after;
    lines.extend((behind..actual.len()).map(|n| refresh_line(shown.get(n + shown.len() - actual.len()), &actual[n])));
    lines
}

/// A line that still matches stays as it is written, with the ids of `actual`.
fn refresh_line(shown: Option<&String>, actual: &str) -> String {
    let Some(line) = shown.filter(|line| line_matches(line, &normalise(actual))) else {
        return actual.to_owned();
    };
    let new_ids = ids(line).into_iter().zip(ids(actual));
    new_ids.fold(line.clone(), |line, (old, new)| line.replace(old, new))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn same(expected: &str, actual: &str) -> bool {
        align(&lines(expected), &lines(actual)).is_ok()
    }

    #[test]
    fn what_differs_from_run_to_run_is_equal() {
        assert!(same("csn: tk_01m7jft0k8w2h5cd exited 0, 4ms", "csn: tk_01m7qbqawx50py04 exited 0, 1.5s"));
        assert!(same("sealed 2026-11-17T05:11:41.849183Z.", "sealed 2026-11-18T01:00:00Z."));
        assert!(same("[redacted:known-value:e8bd]", "[redacted:known-value:0000]"));
        assert!(same("took 19 ms, 3016 kB at most", "took 1 ms, 2 kB at most"));
        assert!(same("daemon  pid 12, version 0.1.0, running", "daemon pid 3456, version 0.2.0, running"));
        let (one, other) = ("55af999bd0f27aac9bf258a074577bde", "0000999bd0f27aac9bf258a074577bde");
        assert!(same(&format!("sha256 {one} journal"), &format!("sha256 {other}  journal")));
        assert!(same("/home/u/tasks/tk_01m7jft0k8w2h5cd/stdout.log", "/home/u/tasks/tk_01m7qbqawx50py04/stdout.log"));
    }

    #[test]
    fn what_says_something_else_differs() {
        assert!(!same("csn: tk_01m7jft0k8w2h5cd exited 0, 4ms", "csn: tk_01m7jft0k8w2h5cd exited 1, 4ms"));
        assert!(!same("tk_01m7jft0k8w2h5cd", "ap_01m7jft0k8w2h5cd"));
        assert!(!same("Approved: git push", "Denied: git push"));
        assert!(!same("one\ntwo", "one"));
        assert!(!same("one", "one\ntwo"));
        assert!(!same("", "one"));
        assert!(!same("tick 3", "tick 4"));
        assert!(!same("[redacted:known-value:e8bd]", "[redacted:github-token:e8bd]"));
        assert!(!same("in /home/u/web", "in /home/u/other"));
        assert_eq!(align(&lines("a\nb\nc"), &lines("a\nb\nx")), Err(2));
    }

    #[test]
    fn an_ellipsis_stands_for_anything_and_nothing_more() {
        assert!(same("a\n…\nz", "a\nb\nc\nz") && same("a\n…\nz", "a\nz") && same("…", ""));
        assert!(!same("a\n…\nz", "a\nb\nc") && !same("…\nz", "a"));
        assert!(same("sandbox: workspace; …; network open", "sandbox: workspace; writes x; network open"));
        assert!(!same("sandbox: workspace; …; network open", "sandbox: workspace; writes x; network none"));
        assert!(!same("a … b", "a only"));
    }

    #[test]
    fn ids_are_found_in_words_and_paths() {
        let line = "tasks/tk_01m7jft0k8w2h5cd/x: waits for ap_01m7j43c133xehzd, tk_short";
        assert_eq!(ids(line), ["tk_01m7jft0k8w2h5cd", "ap_01m7j43c133xehzd"]);
    }

    #[test]
    fn a_refresh_keeps_what_matches_and_what_stands_for_anything() {
        let shown = lines("one, 3ms\n…\nold end");
        assert_eq!(refresh(&shown, &lines("one, 9ms\nx\ny\nnew end")), lines("one, 3ms\n…\nnew end"));
        assert_eq!(refresh(&lines("a …\nb"), &lines("a 1\nc\nd")), lines("a …\nc\nd"));
        assert_eq!(refresh(&lines("…\nb\ngone\n  …\nz"), &lines("a\nb\nc\ny")), lines("…\nb\n  …\ny"));
        let (old, new) = (lines("tk_01m7jft0k8w2h5cd, 1ms"), lines("tk_01m7qbqawx50py04, 2ms"));
        assert_eq!(refresh(&old, &new), lines("tk_01m7qbqawx50py04, 1ms"));
    }
}
