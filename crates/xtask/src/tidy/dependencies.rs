//! Rule: code uses every dependency of a `Cargo.toml`: the library or a program, outside of tests, an ordinary one; a test,
//! a benchmark or an example a development dependency; `build.rs` a build dependency.

use super::{
    Finding,
    workspace::{Crate, DependencyKind, TargetKind},
};
use std::collections::BTreeSet;

fn check(of: &Crate, manifest: &str) -> Vec<Finding> {
    let shipped = used_names(of, |target, test| target == TargetKind::Shipped && !test);
    let development = used_names(of, |target, test| target == TargetKind::Development || test);
    let build = used_names(of, |target, _| target == TargetKind::BuildScript);
    let mut findings = Vec::new();
    for dependency in &of.dependencies {
        let name = dependency.name.replace('-', "_");
        let used = match dependency.kind {
            DependencyKind::Normal => &shipped,
            DependencyKind::Development => &development,
            DependencyKind::Build => &build,
        };
        if used.contains(name.as_str()) {
            continue;
        }
        let tests_only = dependency.kind == DependencyKind::Normal && development.contains(name.as_str());
        let advice = if tests_only {
            format!("only tests use `{}`: move it to [dev-dependencies]", dependency.name)
        } else {
            format!("nothing uses `{}`: remove it", dependency.name)
        };
        let line = line_of(manifest, &dependency.name, dependency.kind);
        findings.push(Finding::new(&of.manifest.display().to_string(), line, advice));
    }
    findings
}

/// The first names of all paths in the wanted code.
fn used_names(of: &Crate, wanted: impl Fn(TargetKind, bool) -> bool) -> BTreeSet<&str> {
    let files = of.targets.iter().flat_map(|target| target.files.iter().map(move |file| (target.kind, file)));
    let heads = files.flat_map(|(kind, file)| file.source.path_starts.iter().map(move |head| (kind, file.test, head)));
    heads.filter(|(kind, test, head)| wanted(*kind, *test || head.test)).map(|(.., head)| head.name.as_str()).collect()
}

/// The line on which a manifest names a dependency in the table of its kind; 1 if it is written in another form.
fn line_of(manifest: &str, name: &str, kind: DependencyKind) -> usize {
    let table = match kind {
        DependencyKind::Normal => "[dependencies]",
        DependencyKind::Development => "[dev-dependencies]",
        DependencyKind::Build => "[build-dependencies]",
    };
    let mut in_table = false;
    for (i, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            in_table = line.trim() == table;
        }
        let key = line.split(['.', '=', ' ']).next();
        if in_table && key == Some(name) {
            return i + 1;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{
        assert_none,
        module_tree::read_module_tree,
        workspace::{Dependency, Target, Workspace},
    };
    use std::path::Path;

    #[test]
    fn a_dependency_that_nothing_uses_is_found() {
        let target = |kind, text: &str| {
            let read = |_: &Path| Some(text.to_owned());
            Target { kind, files: read_module_tree(Path::new("lib.rs"), &read) }
        };
        let shipped = "use used_one::X; #[cfg(test)] mod tests { use for_tests::Y; use used_dev::Z; }";
        let dependency = |name: &str, kind| Dependency { name: name.to_owned(), kind };
        let made_up = Crate {
            name: "x".into(),
            manifest: "x/Cargo.toml".into(),
            targets: vec![target(TargetKind::Shipped, shipped), target(TargetKind::BuildScript, "use built::X;")],
            dependencies: vec![
                dependency("used-one", DependencyKind::Normal),
                dependency("unused", DependencyKind::Normal),
                dependency("for-tests", DependencyKind::Normal),
                dependency("used-dev", DependencyKind::Development),
                dependency("unused", DependencyKind::Development),
                dependency("built", DependencyKind::Build),
            ],
        };
        let manifest = "[package]\n[dependencies]\nused-one.workspace = true\nunused = \"1\"\nfor-tests = \"1\"\n\
                        [dev-dependencies]\nunused.workspace = true\n";
        let found: Vec<String> = check(&made_up, manifest).iter().map(ToString::to_string).collect();
        let expected = [
            "x/Cargo.toml:4: nothing uses `unused`: remove it",
            "x/Cargo.toml:5: only tests use `for-tests`: move it to [dev-dependencies]",
            "x/Cargo.toml:7: nothing uses `unused`: remove it",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn every_dependency_of_this_tree_is_used() {
        let workspace = Workspace::read();
        let manifest = |of: &Crate| std::fs::read_to_string(crate::root().join(&of.manifest)).unwrap();
        assert_none(workspace.crates.iter().flat_map(|c| check(c, &manifest(c))).collect());
    }
}
