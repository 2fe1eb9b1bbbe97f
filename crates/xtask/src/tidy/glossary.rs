//! Rule: a noun of docs/glossary.md is the name of a type in its home crate alone. The rule is about the bare noun
//! (`Plan`, `Verdict`): a longer name (`InstallPlan`) is free.

use super::{Finding, exceptions::Excusable, type_names::DefinitionPlace};
use std::collections::{BTreeMap, BTreeSet};

/// Nouns whose home is not `model`.
const NOUN_HOMES: &[(&str, &str)] = &[
    ("BaseRuleset", "shim"),
    ("Caller", "daemon"),
    ("CommitLoop", "daemon"),
    ("Daemon", "daemon"),
    ("Desk", "daemon"),
    ("ForkServer", "shim"),
    ("Gap", "store"),
    ("Home", "store"),
    ("IdleShim", "shim"),
    ("Journal", "store"),
    ("Ledger", "store"),
    ("Notification", "daemon"),
    ("Phrase", "policy"),
    ("ReceiptChain", "store"),
    ("Screen", "shim"),
    ("Shim", "shim"),
    ("ShimPool", "daemon"),
    ("ShimRegistry", "daemon"),
    ("SystemService", "testkit"),
    ("Ticket", "daemon"),
    ("Verb", "policy"),
];

/// Nouns of the API that are not in the glossary.
const EXTRA_NOUNS: &[&str] = &["Caller", "Refusal"];

/// The nouns of the glossary as names of types.
fn parse_nouns(glossary: &str) -> BTreeSet<String> {
    let bold = glossary.lines().filter_map(|line| line.strip_prefix("| **")?.split("**").next());
    bold.map(camel_case).chain(EXTRA_NOUNS.iter().map(|noun| (*noun).to_owned())).collect()
}

fn camel_case(noun: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>()).unwrap_or_default()
    };
    noun.split([' ', '-']).map(capital).collect()
}

fn home_of(noun: &str) -> &'static str {
    NOUN_HOMES.iter().find(|(name, _)| *name == noun).map_or("model", |(_, home)| home)
}

fn check(of: &str, nouns: &BTreeSet<String>, types: &BTreeMap<String, Vec<DefinitionPlace>>) -> Vec<Excusable> {
    let away = types.iter().filter(|(name, _)| nouns.contains(*name) && home_of(name) != of);
    away.map(|(name, places)| {
        let entry = format!("noun {of} {name}");
        let advice = format!(
            "`{name}` is a noun of the glossary and belongs to the crate `{}`: use that type, or name this one after \
             what it holds (the entry that would excuse it: `{entry}`)",
            home_of(name)
        );
        Excusable { finding: Finding::new(&places[0].file, places[0].line, advice), entry }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{
        assert_none, exceptions,
        type_names::types_of,
        workspace::{Crate, Workspace},
    };

    #[test]
    fn nouns_are_the_bold_words_of_the_table() {
        let found = parse_nouns(
            "# Glossary\n| noun | meaning |\n|---|---|\n| **plan** | x |\n| **redaction rule** | **y** |\n",
        );
        assert_eq!(found, ["Caller", "Plan", "RedactionRule", "Refusal"].map(str::to_owned).into());
    }

    #[test]
    fn a_noun_outside_of_its_home_is_found() {
        let made_up = Crate::made_up(&[("lib.rs", "struct Plan;\nstruct Desk; struct InstallPlan;")]);
        let nouns = ["Plan".to_owned(), "Desk".to_owned()].into();
        let found = |of: &str| -> Vec<String> {
            check(of, &nouns, &types_of(&made_up)).into_iter().map(|found| found.entry).collect()
        };
        assert_eq!(found("model"), ["noun model Desk"]);
        assert_eq!(found("daemon"), ["noun daemon Plan"]);
        assert_eq!(found("install"), ["noun install Desk", "noun install Plan"]);
        let shown = check("model", &nouns, &types_of(&made_up))[0].finding.to_string();
        assert!(shown.starts_with("lib.rs:2: `Desk` is a noun of the glossary and belongs to the crate `daemon`"));
    }

    #[test]
    fn every_noun_of_this_tree_is_defined_at_home() {
        let workspace = Workspace::read();
        let glossary = std::fs::read_to_string(crate::root().join("docs/glossary.md")).unwrap();
        let nouns = parse_nouns(&glossary);
        assert!(nouns.contains("Plan") && nouns.contains("Verdict"), "the glossary was read");
        let found: Vec<_> = workspace.members().flat_map(|c| check(&c.name, &nouns, &types_of(c))).collect();
        assert_none(exceptions::apply("noun", found));
    }
}
