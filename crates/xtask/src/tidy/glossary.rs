//! Rule: docs/glossary.md says for each noun where the code defines it, and that is true.
//!
//! A type with the bare noun as its name (`Plan`, `Verdict`) exists only in the crate that the glossary names first; a
//! longer name (`InstallPlan`) is free. Each item or path in the column "defined in" exists, and the terms are in
//! alphabetical order, each once.

use super::{Finding, type_names::DefinitionPlace};
use std::collections::BTreeMap;

const GLOSSARY: &str = "docs/glossary.md";

/// One row of the glossary.
#[derive(Debug, PartialEq, Eq)]
struct Term {
    name: String,
    line: usize,
    definitions: Vec<Definition>,
}

/// A code span in the column "defined in".
#[derive(Debug, PartialEq, Eq)]
enum Definition {
    /// `crate::module::Item`.
    Item { crate_name: String, item: String },
    /// A path of the repository.
    Path(String),
    /// Anything else in code style, for example a command.
    Other,
}

impl Term {
    /// The name of a type that means just this noun.
    fn type_name(&self) -> String {
        let capital = |word: &str| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>()).unwrap_or_default()
        };
        self.name.split([' ', '-']).map(capital).collect()
    }

    fn home_crate(&self) -> Option<&str> {
        self.definitions.iter().find_map(|definition| match definition {
            Definition::Item { crate_name, .. } => Some(crate_name.as_str()),
            Definition::Path(path) => path.strip_prefix("crates/")?.split('/').next(),
            Definition::Other => None,
        })
    }
}

fn parse_terms(glossary: &str) -> Vec<Term> {
    let rows = glossary.lines().enumerate().filter_map(|(n, line)| Some((n + 1, line.strip_prefix("| **")?)));
    rows.map(|(line, row)| {
        let name = row.split("**").next().unwrap_or_default().to_owned();
        let column = row.trim_end().trim_end_matches('|').rsplit(" | ").next().unwrap_or_default();
        let definitions = column.split('`').skip(1).step_by(2).map(parse_definition).collect();
        Term { name, line, definitions }
    })
    .collect()
}

fn parse_definition(span: &str) -> Definition {
    if span.starts_with("crates/") {
        return Definition::Path(span.to_owned());
    }
    match (span.split_once("::"), span.rsplit_once("::")) {
        (Some((crate_name, _)), Some((_, item))) => {
            Definition::Item { crate_name: crate_name.to_owned(), item: item.to_owned() }
        }
        _ => Definition::Other,
    }
}

/// Types with the bare name of a noun, outside of the crate that defines the noun.
fn find_misplaced(of: &str, terms: &[Term], types: &BTreeMap<String, Vec<DefinitionPlace>>) -> Vec<Finding> {
    let misplaced = terms.iter().filter_map(|term| {
        let (name, home) = (term.type_name(), term.home_crate()?);
        let places = types.get(&name).filter(|_| home != of)?;
        let advice = format!(
            "`{name}` is a noun of the glossary and belongs to the crate `{home}`: use that type, or name this one after \
             what it holds"
        );
        Some(Finding::new(&places[0].file, places[0].line, advice))
    });
    misplaced.collect()
}

/// Rows that are out of order or repeated, or that name something that does not exist. `exists` answers for an item of a
/// crate, or for a path.
fn find_wrong_rows(terms: &[Term], exists: impl Fn(&Definition) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let at = |term: &Term, advice: String| Finding::new(GLOSSARY, term.line, advice);
    for pair in terms.windows(2) {
        if pair[0].name.to_lowercase() >= pair[1].name.to_lowercase() {
            let advice = format!("`{}` must come before `{}`, and only once", pair[1].name, pair[0].name);
            findings.push(at(&pair[1], advice));
        }
    }
    for term in terms {
        if term.home_crate().is_none() {
            findings.push(at(term, format!("`{}` names no item or path that defines it", term.name)));
        }
        for definition in term.definitions.iter().filter(|definition| !exists(definition)) {
            findings.push(at(term, format!("`{}`: {definition:?} does not exist", term.name)));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{
        assert_none,
        type_names::types_of,
        workspace::{Crate, Workspace},
    };
    use std::collections::BTreeSet;

    const MADE_UP: &str = "# Glossary\n| term | meaning | defined in |\n|---|---|---|\n\
        | **desk** | Says **yes** or no. | `daemon::Desk` |\n\
        | **plan** | `x | y` | `model::plan::Plan`, `crates/model` |\n\
        | **redaction rule** | z | `csn redact`, `crates/redact/src/rules.rs` |\n";

    #[test]
    fn a_row_gives_its_noun_and_where_it_is_defined() {
        let terms = parse_terms(MADE_UP);
        let read: Vec<_> = terms.iter().map(|t| (t.line, t.type_name(), t.home_crate().unwrap())).collect();
        let expected = [(4, "Desk", "daemon"), (5, "Plan", "model"), (6, "RedactionRule", "redact")];
        assert_eq!(read, expected.map(|(line, name, home)| (line, name.to_owned(), home)));
        assert_eq!(terms[2].definitions[0], Definition::Other);
    }

    #[test]
    fn a_noun_outside_of_its_home_is_found() {
        let made_up = Crate::made_up(&[("lib.rs", "struct Plan;\nstruct Desk; struct InstallPlan;")]);
        let terms = parse_terms(MADE_UP);
        let found = |of: &str| -> Vec<String> {
            let findings = find_misplaced(of, &terms, &types_of(&made_up));
            findings.iter().map(|finding| finding.to_string().split(": use").next().unwrap().to_owned()).collect()
        };
        let desk = "lib.rs:2: `Desk` is a noun of the glossary and belongs to the crate `daemon`";
        let plan = "lib.rs:1: `Plan` is a noun of the glossary and belongs to the crate `model`";
        assert_eq!(found("model"), [desk]);
        assert_eq!(found("daemon"), [plan]);
        assert_eq!(found("install"), [desk, plan]);
    }

    #[test]
    fn a_row_that_is_wrong_is_found() {
        let swapped =
            "| **plan** | x | `model::Plan` |\n| **desk** | x | nowhere |\n| **desk** | x | `daemon::Gone` |\n";
        let terms = parse_terms(swapped);
        let found = find_wrong_rows(&terms, |d| !matches!(d, Definition::Item { item, .. } if item == "Gone"));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "docs/glossary.md:2: `desk` must come before `plan`, and only once",
                "docs/glossary.md:3: `desk` must come before `desk`, and only once",
                "docs/glossary.md:2: `desk` names no item or path that defines it",
                "docs/glossary.md:3: `desk`: Item { crate_name: \"daemon\", item: \"Gone\" } does not exist",
            ]
        );
    }

    fn glossary() -> Vec<Term> {
        let terms = parse_terms(&std::fs::read_to_string(crate::root().join(GLOSSARY)).unwrap());
        assert!(terms.iter().any(|term| term.name == "verdict"), "the glossary was read");
        terms
    }

    #[test]
    fn every_noun_of_this_tree_is_defined_at_home() {
        let (workspace, terms) = (Workspace::read(), glossary());
        let found: Vec<_> = workspace.members().flat_map(|c| find_misplaced(&c.name, &terms, &types_of(c))).collect();
        assert_none(found);
    }

    #[test]
    fn every_term_is_defined_where_the_glossary_says() {
        let workspace = Workspace::read();
        // What a crate defines: its types, its modules, and the constants and functions that its lines declare.
        let defined: BTreeMap<String, BTreeSet<String>> = workspace
            .members()
            .map(|member| {
                let mut names: BTreeSet<String> = types_of(member).into_keys().collect();
                for file in member.shipped() {
                    names.extend(file.module.iter().cloned());
                    let text = std::fs::read_to_string(crate::root().join(&file.file)).unwrap();
                    names.extend(text.lines().filter_map(declared_name));
                }
                (member.name.clone(), names)
            })
            .collect();
        let exists = |definition: &Definition| match definition {
            Definition::Item { crate_name, item } => defined.get(crate_name).is_some_and(|names| names.contains(item)),
            Definition::Path(path) => crate::root().join(path).exists(),
            Definition::Other => true,
        };
        assert_none(find_wrong_rows(&glossary(), exists));
    }

    /// The constant or function that a line declares.
    fn declared_name(line: &str) -> Option<String> {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let keyword = words.iter().position(|word| ["const", "static", "fn"].contains(word))?;
        words.get(keyword + 1).map(|name| (*name).to_owned())
    }
}
