//! Rule: every `.rs` file belongs to a module tree. A file that no `mod` names is never compiled, and becomes stale.

use super::{Finding, source::Source};
use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
};

/// A file of a module tree.
#[derive(Debug)]
pub(super) struct ModuleFile {
    pub(super) file: PathBuf,
    /// Its module path in the crate; empty for the root.
    pub(super) module: Vec<String>,
    pub(super) test: bool,
    pub(super) source: Source,
}

/// Every file that is reached from the root of a target. `text` reads a file; none if there is no such file.
pub(super) fn read_module_tree(root: &Path, text: &dyn Fn(&Path) -> Option<String>) -> Vec<ModuleFile> {
    let mut found: Vec<ModuleFile> = Vec::new();
    let mut left = vec![(root.to_owned(), Vec::new(), false)];
    while let Some((file, module, test)) = left.pop() {
        let Some(content) = text(&file) else { continue };
        let source = Source::read(&content).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        for declared in &source.modules {
            let in_directory = children_of(&file, module.is_empty()).join(declared.inside.iter().collect::<PathBuf>());
            let candidates = match &declared.path {
                Some(path) => vec![normalize_path(&file.parent().unwrap_or(Path::new("")).join(path))],
                None => vec![
                    in_directory.join(format!("{}.rs", declared.name)),
                    in_directory.join(&declared.name).join("mod.rs"),
                ],
            };
            let path = [&module[..], &declared.inside[..], std::slice::from_ref(&declared.name)].concat();
            left.extend(candidates.into_iter().map(|c| (c, path.clone(), test || declared.test)));
        }
        found.push(ModuleFile { file, module, test, source });
    }
    found
}

/// The directory of a file's modules.
fn children_of(file: &Path, root: bool) -> PathBuf {
    let directory = file.parent().unwrap_or(Path::new(""));
    match file.file_stem().filter(|stem| !root && *stem != "mod") {
        Some(stem) => directory.join(stem),
        None => directory.to_owned(),
    }
}

/// A path without `..`.
fn normalize_path(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
        plain
    })
}

fn check(files: &[PathBuf], reached: &BTreeSet<PathBuf>) -> Vec<Finding> {
    let lost = files.iter().filter(|file| !reached.contains(*file));
    lost.map(|file| {
        Finding::new(
            &file.display().to_string(),
            1,
            "no `mod` leads to this file: declare it in its parent, or delete it",
        )
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{assert_none, workspace::Workspace};
    use std::collections::BTreeMap;

    #[test]
    fn a_file_that_no_module_names_is_found() {
        let tree: BTreeMap<&str, &str> = [
            ("src/lib.rs", "mod a; mod b { mod c; } #[path = \"../shared/d.rs\"] mod d;"),
            ("src/a.rs", "mod e;"),
            ("src/a/e.rs", ""),
            ("src/b/c/mod.rs", "#[cfg(test)] mod f;"),
            ("src/b/c/f.rs", ""),
            ("shared/d.rs", ""),
            ("src/stale.rs", ""),
        ]
        .into();
        let text = |path: &Path| tree.get(path.to_str().unwrap()).map(|text| (*text).to_owned());
        let found = read_module_tree(Path::new("src/lib.rs"), &text);
        let f = found.iter().find(|f| f.file.ends_with("f.rs")).unwrap();
        assert!(f.test && f.module == ["b", "c", "f"]);
        let reached = found.into_iter().map(|f| f.file).collect();
        let files: Vec<PathBuf> = tree.keys().map(PathBuf::from).collect();
        let findings = check(&files, &reached);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].to_string().starts_with("src/stale.rs:1: no `mod` leads to this file"));
    }

    #[test]
    fn every_file_of_this_tree_is_in_a_module_tree() {
        let workspace = Workspace::read();
        let reached = workspace.crates.iter().flat_map(|c| &c.targets).flat_map(|t| &t.files).map(|f| f.file.clone());
        let rust: Vec<PathBuf> =
            workspace.files.iter().filter(|f| f.extension().is_some_and(|e| e == "rs")).cloned().collect();
        assert!(rust.len() > 100, "the files of the tree were listed");
        assert_none(check(&rust, &reached.collect()));
    }
}
