//! Rule: no tracked file names a directory of the machine that it was written on. Examples use the names below.

use super::Finding;

/// Users in examples: `/home/<name>`.
const EXAMPLE_USERS: &[&str] = &["ann", "dev", "foo", "link", "me", "other", "someone", "u", "user", "x"];
/// Directories in examples, `/work/<name>`, by the beginnings of their names.
const EXAMPLE_WORK_DIRS: &[&str] = &["p", "a", "q", "x", "in", "foo", "trailing", ".."];

/// `here`: the directory of this checkout.
fn check(file: &str, text: &str, here: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let home = find_directories(line, "/home/").find(|name| !EXAMPLE_USERS.contains(name));
        let work = find_directories(line, "/work/")
            .find(|name| !EXAMPLE_WORK_DIRS.iter().any(|known| name.starts_with(known)));
        let named = home.map(|name| format!("/home/{name}")).or(work.map(|name| format!("/work/{name}")));
        // The path of a checkout directly below `/` is too common a word.
        let this = Some(here.to_owned()).filter(|h| h.matches('/').count() > 1 && line.contains(h.as_str()));
        if let Some(path) = this.or(named) {
            let advice = format!("`{path}` is a path of one machine: use a relative path, or /home/u and /work/proj");
            findings.push(Finding::new(file, i + 1, advice));
        }
    }
    findings
}

/// The names behind a directory, where that begins a path.
fn find_directories<'l>(line: &'l str, directory: &'l str) -> impl Iterator<Item = &'l str> {
    let begins = |at: &usize| !line[..*at].ends_with(|c: char| c.is_alphanumeric() || "._-}/$*~)]".contains(c));
    let name = |at: usize| {
        let rest = &line[at + directory.len()..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || "._-".contains(c))).unwrap_or(rest.len());
        &rest[..end]
    };
    line.match_indices(directory).map(|(at, _)| at).filter(begins).map(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        root,
        tidy::{assert_none, tracked_files::tracked_files},
    };

    /// A path of a machine, put together so that this file does not contain it.
    fn path(directory: &str, name: &str) -> String {
        format!("see /{directory}/{name}/notes.md")
    }

    #[test]
    fn a_path_of_a_machine_is_found() {
        let found = |line: &str| check("a.md", &format!("first\n{line}\n"), "/builds/here").len();
        assert_eq!(found(&path("home", "realname")), 1);
        assert_eq!(found(&path("work", "main")), 1);
        assert_eq!(found("target = /builds/here/target"), 1);
        assert_eq!(found(&path("home", "u")), 0);
        assert_eq!(found(&path("work", "proj2")), 0);
        assert_eq!(found("below $X/home/run and ~/work/here, /home/ and /workable/here"), 0);
        let shown = check("a.md", &path("work", "main"), "/").pop().unwrap().to_string();
        assert!(shown.starts_with("a.md:1: `/work/"), "{shown}");
    }

    #[test]
    fn no_file_of_this_tree_names_a_directory_of_a_machine() {
        let here = root().display().to_string();
        let mut findings = Vec::new();
        for file in tracked_files(&root()) {
            // A binary file is not read by people.
            let Ok(text) = std::fs::read_to_string(root().join(&file)) else { continue };
            findings.extend(check(&file.display().to_string(), &text, &here));
        }
        assert_none(findings);
    }
}
