//! `words`: lists everything that the rules about text find in a checkout.

use super::{
    Finding, boolean_matches, markdown_width,
    retired_words::{self, RetiredWords, STORED_NAMES_FILE, StoredNames},
    tracked_files::tracked_files,
};
use crate::{Result, command};
use std::{
    collections::BTreeSet,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// Applies the rules to every file of a checkout. An entry of the stored names that excuses nothing is a finding, too.
fn check_tree(root: &Path) -> Vec<Finding> {
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
    found.extend(stored.unused(&used));
    found
}

/// `words [PATH…]` lists every place below the paths, in the checkout around the current directory.
pub(crate) fn run(paths: impl Iterator<Item = String>) -> Result<()> {
    let paths: Vec<String> = paths.collect();
    let root = checkout_root()?;
    let is_below = |finding: &Finding| paths.iter().any(|path| Path::new(&finding.file).starts_with(path));
    let mut findings = check_tree(&root);
    findings.retain(|finding| paths.is_empty() || is_below(finding));
    findings.sort();
    for finding in &findings {
        let text = std::fs::read_to_string(root.join(&finding.file)).map_err(|e| e.to_string())?;
        let line = text.lines().nth(finding.line - 1).unwrap_or_default();
        let start: String = line.trim().chars().take(140).collect();
        print_line(&format!("{finding}\n    {start}"))?;
    }
    print_line(&format!("{} findings", findings.len()))
}

fn checkout_root() -> Result<PathBuf> {
    let here = std::env::current_dir().map_err(|e| e.to_string())?;
    let output = command("git").current_dir(here).args(["rev-parse", "--show-toplevel"]).output();
    let output = output.map_err(|e| format!("git: {e}"))?;
    let root = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() { Ok(root.into()) } else { Err("the current directory is in no checkout".to_owned()) }
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
    fn this_tree_has_no_retired_word_no_long_markdown_and_no_boolean_match() {
        assert_none(check_tree(&root()));
    }
}
