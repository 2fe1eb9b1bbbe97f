//! Exceptions by count, in `counted_exceptions.txt`: how often a file still breaks a rule. The counts may only shrink: one
//! that is too high fails, as one that is too low does. `cargo xtask words --update` lowers them.

use super::Finding;
use std::collections::BTreeMap;

pub(super) const FILE: &str = "crates/xtask/src/tidy/counted_exceptions.txt";

/// A finding, and what it is counted as: the rule, the file and perhaps a word.
#[derive(Debug)]
pub(super) struct Countable {
    pub(super) finding: Finding,
    pub(super) key: String,
}

/// How often each key is found.
pub(super) fn count(found: &[Countable]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for countable in found {
        *counts.entry(countable.key.clone()).or_default() += 1;
    }
    counts
}

/// The counts of a list, each with its line.
fn parse(list: &str) -> BTreeMap<&str, (usize, usize)> {
    let lines = list.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(i, line)| {
            let entry = line.rsplit_once(' ').and_then(|(key, count)| Some((key, (i + 1, count.parse().ok()?))));
            entry.unwrap_or_else(|| panic!("{FILE}:{}: `{line}` does not end with a count", i + 1))
        })
        .collect()
}

/// The findings that no count excuses, and the counts that are too high.
#[cfg(test)]
pub(super) fn excuse(list: &str, found: Vec<Countable>) -> Vec<Finding> {
    let excused = parse(list);
    let counts = count(&found);
    let mut findings = Vec::new();
    for (key, (line, excused)) in &excused {
        let now = counts.get(*key).copied().unwrap_or_default();
        if now < *excused {
            let advice = format!("`{key}` is down to {now}: lower the count (cargo xtask words --update)");
            findings.push(Finding::new(FILE, *line, advice));
        }
    }
    let is_excused = |key: &str| counts.get(key) <= excused.get(key).map(|(_, count)| count);
    findings
        .extend(found.into_iter().filter(|countable| !is_excused(&countable.key)).map(|countable| countable.finding));
    findings
}

/// The list for what is found now. The error names a word or a rule whose total grew; totals span all files, because
/// files are renamed. `added`: words that are new in the list of retired words.
pub(super) fn update(list: &str, found: &[Countable], added: &[String]) -> Result<String, String> {
    let now = count(found);
    let before = totals(parse(list).into_iter().map(|(key, (_, count))| (key, count)));
    for (what, total) in totals(now.iter().map(|(key, count)| (key.as_str(), *count))) {
        let allowed = before.get(&what).copied().unwrap_or_default();
        let is_added = added.iter().any(|word| what.split(' ').nth(1) == Some(word));
        if total > allowed && !is_added {
            return Err(format!(
                "`{what}` is found {total} times, and only {allowed} are excused: remove the new ones first"
            ));
        }
    }
    let head: String = list
        .lines()
        .take_while(|line| line.starts_with('#') || line.is_empty())
        .fold(String::new(), |head, line| head + line + "\n");
    Ok(now.iter().fold(head, |text, (key, count)| format!("{text}{key} {count}\n")))
}

/// Sums over all files: `rule FILE word` counts as `rule word`.
fn totals<'k>(counts: impl Iterator<Item = (&'k str, usize)>) -> BTreeMap<String, usize> {
    let mut totals = BTreeMap::new();
    for (key, count) in counts {
        let parts: Vec<&str> = key.split(' ').collect();
        let what = [&parts[..1], parts.get(2..).unwrap_or_default()].concat().join(" ");
        *totals.entry(what).or_default() += count;
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(keys: &[&str]) -> Vec<Countable> {
        keys.iter().map(|key| Countable { finding: Finding::new("f.rs", 1, *key), key: (*key).to_owned() }).collect()
    }

    #[test]
    fn a_count_excuses_that_many_findings_and_no_more() {
        let list = "# why\nword a.rs x 2\nwrap b.md 1\n";
        assert!(excuse(list, found(&["word a.rs x", "word a.rs x", "wrap b.md"])).is_empty());
        let more = excuse(list, found(&["word a.rs x", "word a.rs x", "word a.rs x", "wrap b.md"]));
        assert_eq!(more.len(), 3, "each place is named");
        let fewer = excuse(list, found(&["word a.rs x", "wrap b.md"]));
        assert_eq!(fewer.len(), 1);
        assert!(fewer[0].to_string().contains("counted_exceptions.txt:2: `word a.rs x` is down to 1"));
        assert_eq!(excuse("", found(&["wrap b.md"])).len(), 1);
    }

    #[test]
    fn an_update_follows_renamed_files_and_never_raises_a_total() {
        let list = "# why\n\nword a.rs x 2\n";
        assert_eq!(update(list, &found(&["word b.rs x"]), &[]).unwrap(), "# why\n\nword b.rs x 1\n");
        assert!(update(list, &found(&["word a.rs y"]), &[]).unwrap_err().contains("`word y` is found 1 times"));
        assert!(update(list, &found(&["word a.rs x", "word b.rs x", "word b.rs x"]), &[]).is_err());
        assert!(update(list, &found(&["word a.rs y"]), &["y".to_owned()]).is_ok(), "a word that was just retired");
    }
}
