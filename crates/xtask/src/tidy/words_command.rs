//! `words`: lists everything that the counted rules find in a checkout.

use super::{
    Finding, boolean_matches,
    counted::{self, Countable},
    markdown_width,
    retired_words::{self, RetiredWords, STORED_NAMES_FILE, StoredNames},
    tracked_files::tracked_files,
};
use crate::{Result, command};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// What the rules find in a tree.
pub(super) struct TreeFindings {
    pub(super) found: Vec<Countable>,
    /// Entries of the stored names that excuse nothing.
    pub(super) unused_names: Vec<Finding>,
}

/// Applies the rules to every file of a checkout.
pub(super) fn check_tree(root: &Path) -> TreeFindings {
    let stored_names = std::fs::read_to_string(root.join(STORED_NAMES_FILE));
    let stored = StoredNames::parse(stored_names.as_deref().unwrap_or(include_str!("stored_names.txt")));
    let retired = RetiredWords::of_project();
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    for path in tracked_files(root) {
        let file = path.display().to_string();
        // The lists themselves are left out, and so is a file that is not text.
        let is_list = file.starts_with("crates/xtask/src/tidy/") && file.ends_with(".txt");
        let text = std::fs::read_to_string(root.join(&path)).ok().filter(|_| !is_list);
        let Some(text) = text else { continue };
        let words = retired_words::check(&file, &text, &retired, &stored);
        found.extend(words.found);
        used.extend(words.used_entries);
        if file.ends_with(".md") {
            found.extend(markdown_width::check(&file, &text));
        } else if file.ends_with(".rs") {
            found.extend(boolean_matches::check(&file, &text));
        }
    }
    TreeFindings { found, unused_names: stored.unused(&used) }
}

/// `words [PATH…]` lists every place below the paths; `words --count [PATH…]` sums them up by crate; `words --update`
/// lowers the counted exceptions, and adds those of the words behind it. They work on the checkout around the current directory.
pub(crate) fn run(args: impl Iterator<Item = String>) -> Result<()> {
    let (flags, paths): (Vec<String>, Vec<String>) = args.partition(|arg| arg.starts_with("--"));
    let root = checkout_root()?;
    let tree = check_tree(&root);
    match flags.first().map(String::as_str) {
        None => list(&root, tree, &paths),
        Some("--count") => count(&tree.found, &paths),
        Some("--update") => {
            let file = root.join(counted::FILE);
            let before = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            std::fs::write(&file, counted::update(&before, &tree.found, &paths)?)
                .map_err(|e| format!("{}: {e}", file.display()))
        }
        Some(flag) => Err(format!("`{flag}` is not an option: use --count or --update")),
    }
}

fn checkout_root() -> Result<PathBuf> {
    let here = std::env::current_dir().map_err(|e| e.to_string())?;
    let output = command("git").current_dir(here).args(["rev-parse", "--show-toplevel"]).output();
    let output = output.map_err(|e| format!("git: {e}"))?;
    let root = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() { Ok(root.into()) } else { Err("the current directory is in no checkout".to_owned()) }
}

fn is_below(countable: &Countable, paths: &[String]) -> bool {
    paths.is_empty() || paths.iter().any(|path| Path::new(&countable.finding.file).starts_with(path))
}

/// Prints each place with its line of text.
fn list(root: &Path, tree: TreeFindings, paths: &[String]) -> Result<()> {
    let mut findings: Vec<Finding> = tree
        .found
        .into_iter()
        .filter(|countable| is_below(countable, paths))
        .map(|countable| countable.finding)
        .collect();
    if paths.is_empty() {
        findings.extend(tree.unused_names);
    }
    findings.sort();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for finding in &findings {
        if !texts.contains_key(&finding.file) {
            let text = std::fs::read_to_string(root.join(&finding.file)).map_err(|e| e.to_string())?;
            texts.insert(finding.file.clone(), text.lines().map(|line| line.trim().to_owned()).collect());
        }
        let line = texts[&finding.file].get(finding.line - 1).map(String::as_str).unwrap_or_default();
        let start: String = line.chars().take(140).collect();
        print_line(&format!("{finding}\n    {start}"))?;
    }
    print_line(&format!("{} findings", findings.len()))
}

/// Prints the counts of each crate, the largest first.
fn count(found: &[Countable], paths: &[String]) -> Result<()> {
    let mut counts: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for countable in found.iter().filter(|countable| is_below(countable, paths)) {
        let mut parts = countable.finding.file.split('/');
        let first = parts.next().unwrap_or_default();
        let place =
            if first == "crates" { format!("crates/{}", parts.next().unwrap_or_default()) } else { first.to_owned() };
        let mut key = countable.key.split(' ');
        let rule = key.next().unwrap_or_default();
        let what = key.nth(1).unwrap_or(rule).to_owned();
        *counts.entry(place).or_default().entry(what).or_default() += 1;
    }
    let mut places: Vec<_> =
        counts.into_iter().map(|(place, words)| (words.values().sum::<usize>(), place, words)).collect();
    places.sort_by_key(|(total, ..)| std::cmp::Reverse(*total));
    for (total, place, words) in places {
        let words: Vec<String> = words.into_iter().map(|(word, count)| format!("{word} {count}")).collect();
        print_line(&format!("{place}: {total}\n    {}", words.join(", ")))?;
    }
    Ok(())
}

/// Prints a line. A reader that has closed the pipe, like `head`, ends the command with an error instead of a panic.
fn print_line(line: &str) -> Result<()> {
    writeln!(io::stdout().lock(), "{line}").map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{root, tidy::assert_none};

    #[test]
    fn this_tree_breaks_the_counted_rules_no_more_than_is_excused() {
        let tree = check_tree(&root());
        let mut findings = counted::excuse(include_str!("counted_exceptions.txt"), tree.found);
        findings.extend(tree.unused_names);
        assert_none(findings);
    }
}
