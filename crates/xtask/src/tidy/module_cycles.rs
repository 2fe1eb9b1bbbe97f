//! Rule: the top-level modules of `daemon` use each other without a cycle. Items of lib.rs belong to no module, and test
//! code may use everything.

use super::{Finding, module_tree::ModuleFile};
use std::collections::{BTreeMap, BTreeSet};

const CRATE: &str = "daemon";

/// Which module uses which, with the first place of each use.
type Edges = BTreeMap<(String, String), (String, usize)>;

fn find_edges<'f>(files: impl Iterator<Item = &'f ModuleFile>) -> Edges {
    let files: Vec<&ModuleFile> = files.filter(|file| !file.test).collect();
    let modules: BTreeSet<&str> = files.iter().filter_map(|file| file.module.first().map(String::as_str)).collect();
    let mut edges = Edges::new();
    for file in &files {
        for path in &file.source.paths {
            let around = [&file.module[..], &path.inside[..]].concat();
            let Some(from) = around.first() else { continue };
            let at_root = path.up.is_none_or(|up| up == around.len());
            if at_root && *from != path.first && modules.contains(path.first.as_str()) {
                let place = (file.file.display().to_string(), path.line);
                edges.entry((from.clone(), path.first.clone())).or_insert(place);
            }
        }
    }
    edges
}

/// The edges that lie on a cycle.
fn check(edges: &Edges) -> Vec<Finding> {
    let on_a_cycle = edges.iter().filter(|((from, to), _)| reaches(edges, to, from));
    on_a_cycle
        .map(|((from, to), (file, line))| {
            let advice = format!(
                "`{from}` uses `{to}`, which uses `{from}`, directly or through others: move what both need into a \
                 module below both"
            );
            Finding::new(file, *line, advice)
        })
        .collect()
}

fn reaches(edges: &Edges, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut left = vec![from];
    while let Some(at) = left.pop() {
        if at == to {
            return true;
        }
        if seen.insert(at) {
            left.extend(edges.keys().filter(|(user, _)| user == at).map(|(_, used)| used.as_str()));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{
        assert_none,
        workspace::{Crate, Workspace},
    };

    fn made_up() -> Edges {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; fn help() {}"),
            ("a.rs", "use crate::{help, b::X}; mod inner;"),
            ("a/inner.rs", "use super::super::c::Y; use super::Z;"),
            ("b.rs", "fn f() {\n    crate::a::g()\n}"),
            ("c.rs", "#[cfg(test)] mod tests { use crate::a::X; }"),
        ];
        find_edges(Crate::made_up(&files).shipped())
    }

    #[test]
    fn edges_follow_crate_and_super_and_leave_tests_out() {
        let edges: Vec<_> = made_up().into_keys().collect();
        let expected = [("a", "b"), ("a", "c"), ("b", "a")].map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(edges, expected);
    }

    #[test]
    fn a_cycle_is_found() {
        let mut edges = made_up();
        let found = check(&edges);
        assert_eq!(found.len(), 2, "both directions");
        assert!(found[1].to_string().starts_with("b.rs:2: `b` uses `a`"));
        edges.remove(&("b".to_owned(), "a".to_owned()));
        assert!(check(&edges).is_empty());
    }

    #[test]
    fn the_modules_of_the_daemon_form_no_cycle() {
        let workspace = Workspace::read();
        let daemon = workspace.members().find(|c| c.name == CRATE).unwrap();
        let edges = find_edges(daemon.shipped());
        assert!(edges.contains_key(&("http".to_owned(), "ops".to_owned())), "the uses were read");
        assert_none(check(&edges));
    }
}
