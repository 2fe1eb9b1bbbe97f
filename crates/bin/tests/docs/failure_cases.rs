//! docs/failure-cases.md lists exactly the failure cases that tests cite by their ids.

use crate::root;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Ids in a text, `f070` or `F070`, also as parts of names such as `f007_f165_…`.
fn ids(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let is_id =
        |word: &&str| word.len() == 4 && word.starts_with(['f', 'F']) && word[1..].chars().all(|c| c.is_ascii_digit());
    words.filter(is_id).map(str::to_lowercase).collect()
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn cited() -> BTreeSet<String> {
    let mut files = Vec::new();
    for krate in fs::read_dir(root().join("crates")).unwrap().flatten() {
        for part in ["src", "tests"] {
            rust_files(&krate.path().join(part), &mut files);
        }
    }
    // This file names ids as examples.
    let here = Path::new(file!()).file_name();
    let texts = files.iter().filter(|path| path.file_name() != here).map(|path| fs::read_to_string(path).unwrap());
    texts.flat_map(|text| ids(&text)).collect()
}

#[test]
fn every_cited_failure_case_is_listed_and_every_listed_one_is_cited() {
    let page = fs::read_to_string(root().join("docs/failure-cases.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| f")?.split(' ').next());
    let listed: BTreeSet<String> = rows.map(|number| format!("f{number}")).collect();
    let cited = cited();
    assert!(cited.len() > 80, "tests cite failure cases: {cited:?}");
    let missing: Vec<_> = cited.difference(&listed).collect();
    let idle: Vec<_> = listed.difference(&cited).collect();
    assert!(missing.is_empty(), "docs/failure-cases.md does not list {missing:?}");
    assert!(idle.is_empty(), "no test cites {idle:?} of docs/failure-cases.md");
}

#[test]
fn ids_are_found_in_names_and_words() {
    let found: Vec<String> = ids("fn f007_f165_what() { /* F151, of2345, f1234, xf150 */ }").into_iter().collect();
    assert_eq!(found, ["f007", "f151", "f165"]);
}
