//! The known exceptions, in `exceptions.txt`: one per line, beginning with its rule. The list may only shrink: an entry that
//! excuses nothing fails the test.

use super::Finding;

const FILE: &str = "crates/xtask/src/tidy/exceptions.txt";
const TEXT: &str = include_str!("exceptions.txt");

/// A finding, and the entry that would excuse it.
pub(super) struct Excusable {
    pub(super) finding: Finding,
    pub(super) entry: String,
}

/// The findings of a rule that no entry excuses, and the entries of that rule that excuse nothing.
pub(super) fn apply(rule: &str, found: Vec<Excusable>) -> Vec<Finding> {
    apply_list(TEXT, rule, found)
}

/// The entries of a rule, each with its line, as words behind the name of the rule.
pub(super) fn entries(rule: &str) -> Vec<(usize, Vec<&'static str>)> {
    of_rule(TEXT, rule).map(|(line, entry)| (line, entry.split_whitespace().skip(1).collect())).collect()
}

/// An entry that is not needed any more.
pub(super) fn not_needed(line: usize) -> Finding {
    Finding::new(FILE, line, "this exception is not needed any more: delete the line")
}

fn of_rule<'t>(text: &'t str, rule: &str) -> impl Iterator<Item = (usize, &'t str)> {
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    lines.filter(move |(_, line)| line.split_whitespace().next() == Some(rule))
}

fn apply_list(text: &str, rule: &str, found: Vec<Excusable>) -> Vec<Finding> {
    let known: Vec<(usize, &str)> = of_rule(text, rule).collect();
    let unused = known.iter().filter(|(_, entry)| found.iter().all(|f| f.entry != *entry));
    let mut findings: Vec<Finding> = unused.map(|(line, _)| not_needed(*line)).collect();
    findings.extend(found.into_iter().filter(|f| known.iter().all(|(_, e)| *e != f.entry)).map(|f| f.finding));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_excuses_one_finding_and_fails_when_it_excuses_none() {
        let text = "# why\ntwice a Known\ntwice a Gone\nnoun a Other\n";
        let found = |name: &str| Excusable { finding: Finding::new("f.rs", 1, name), entry: format!("twice a {name}") };
        let left = apply_list(text, "twice", vec![found("Known"), found("New")]);
        assert_eq!(left, [not_needed(3), Finding::new("f.rs", 1, "New")]);
    }

    #[test]
    fn every_line_names_a_rule_that_there_is() {
        for (i, line) in TEXT.lines().enumerate().filter(|(_, l)| !l.is_empty() && !l.starts_with('#')) {
            let rule = line.split_whitespace().next().unwrap_or_default();
            assert!(
                ["twice", "noun", "edge"].contains(&rule),
                "{FILE}:{}: there is no rule `{rule}`: delete the line",
                i + 1
            );
        }
    }
}
