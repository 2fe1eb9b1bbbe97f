//! Relative links in Markdown lead to files of the repository. Addresses elsewhere are not visited.

use crate::root;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The targets of `[text](target)` outside of code, without anchors.
fn link_targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        // Every second piece between backquotes is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let links = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        let files = links.filter_map(|(target, _)| target.split('#').next());
        if !fenced {
            targets.extend(files.filter(|t| !t.is_empty() && !t.contains(':')).map(str::to_owned));
        }
    }
    targets
}

/// Markdown files at the root and below `docs/`.
fn markdown_files() -> Vec<PathBuf> {
    let directories = ["", "docs", "docs/decisions"].map(|d| root().join(d));
    let entries = directories.iter().flat_map(|d| fs::read_dir(d).into_iter().flatten().flatten());
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "md")).collect()
}

#[test]
fn every_relative_link_leads_to_a_file() {
    let mut broken = Vec::new();
    for file in markdown_files() {
        let directory = file.parent().unwrap_or(Path::new(""));
        for target in link_targets(&fs::read_to_string(&file).unwrap()) {
            if !directory.join(&target).exists() {
                broken.push(format!("{}: {target}", file.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn links_are_found_outside_of_code() {
    let text = "[a](a.md#x), [b](https://b.example) and `[c](c.md)`\n```sh\n[d](d.md)\n```\n[e](e/)\n";
    assert_eq!(link_targets(text), ["a.md", "e/"]);
}
