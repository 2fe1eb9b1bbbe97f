//! Rule: no type name is defined twice in one crate.
//!
//! Two definitions in the same module under `#[cfg(…)]` are one type. Test code is left out: a stand-in for a type
//! may have its name.

use super::{Finding, workspace::Crate};
use std::collections::BTreeMap;

/// Where a type is defined.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DefinitionPlace {
    pub(super) file: String,
    pub(super) line: usize,
    module: Vec<String>,
    conditional: bool,
}

/// The types of a crate by name, each with the places of its definitions.
pub(super) fn types_of(of: &Crate) -> BTreeMap<String, Vec<DefinitionPlace>> {
    let mut types: BTreeMap<String, Vec<DefinitionPlace>> = BTreeMap::new();
    for file in of.shipped().filter(|file| !file.test) {
        for defined in &file.source.types {
            let module = [&file.module[..], &defined.inside[..]].concat();
            let path = file.file.display().to_string();
            let place = DefinitionPlace { file: path, line: defined.line, module, conditional: defined.conditional };
            let places = types.entry(defined.name.clone()).or_default();
            if !places.iter().any(|p| p.conditional && place.conditional && p.module == place.module) {
                places.push(place);
            }
        }
    }
    types.values_mut().for_each(|places| places.sort());
    types
}

fn check(of: &str, types: &BTreeMap<String, Vec<DefinitionPlace>>) -> Vec<Finding> {
    let twice = types.iter().filter(|(_, places)| places.len() > 1);
    twice
        .map(|(name, places)| {
            let others: Vec<_> = places[1..].iter().map(|p| format!("{}:{}", p.file, p.line)).collect();
            let advice = format!(
                "`{name}` is defined {} times in the crate `{of}`, also at {}: rename all but one after what they contain",
                places.len(),
                others.join(", ")
            );
            Finding::new(&places[0].file, places[0].line, advice)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{assert_none, workspace::Workspace};

    #[test]
    fn a_name_that_is_defined_twice_is_found() {
        let made_up = Crate::made_up(&[
            ("lib.rs", "mod a; struct Once; struct Twice; #[cfg(a)] struct Same; #[cfg(not(a))] struct Same;"),
            ("a.rs", "\nenum Twice {} #[cfg(test)] mod tests { struct Once; }"),
        ]);
        let found = check("x", &types_of(&made_up));
        assert_eq!(found.len(), 1);
        let shown = found[0].to_string();
        assert!(shown.contains("`Twice` is defined 2 times") && shown.contains("a.rs:2") && shown.contains("lib.rs:1"));
    }

    #[test]
    fn no_type_name_of_this_tree_is_defined_twice_in_a_crate() {
        let workspace = Workspace::read();
        let found: Vec<_> = workspace.members().flat_map(|c| check(&c.name, &types_of(c))).collect();
        assert_none(found);
    }
}
