//! The risks of verbs that do more than read, and which of their words are paths.

use super::{Examples, OptionGrammar, parse_rows};
use countersign_model::Risk;
use std::{collections::HashMap, sync::OnceLock};

pub(crate) struct VerbRisks {
    pub(crate) verb: &'static str,
    pub(crate) base: Vec<Risk>,
    pub(crate) raises: Vec<(RiskTrigger, Vec<Risk>)>,
    /// The grammar of options and operands; without one, words count as paths by their shape.
    pub(crate) grammar: Option<OptionGrammar>,
    /// Options that make it recursive, or `always`.
    pub(crate) recursive: Vec<&'static str>,
    /// Operands that look like absolute paths may be API routes.
    pub(crate) routes: bool,
    /// The last operand is written.
    pub(crate) writes_last: bool,
    /// No operand is a path, unless it starts like one.
    pub(crate) no_paths: bool,
    pub(crate) examples: Examples,
}

/// What raises a risk beyond the base risks of a verb.
pub(crate) enum RiskTrigger {
    /// One of these options is present.
    Options(Vec<&'static str>),
    /// An operand equals one of these, or matches one with a wildcard.
    Operands(Vec<&'static str>),
}

pub(super) const RISKS: &[&str] = &[include_str!("risks.table"), include_str!("risks-tools.table")];

pub(crate) fn all_verb_risks() -> &'static HashMap<&'static str, VerbRisks> {
    static ALL: OnceLock<HashMap<&'static str, VerbRisks>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = HashMap::new();
        for row in RISKS.iter().flat_map(|text| parse_rows(text)) {
            let risks = |text: &'static str| text.split_whitespace().filter_map(Risk::from_name).collect::<Vec<Risk>>();
            for verb in row.head.split(" | ") {
                let options: Vec<&'static str> = row.values("options").collect();
                let operands = row.values("operands").next();
                let grammar = (!options.is_empty() || operands.is_some())
                    .then(|| OptionGrammar::parse(&options, operands.unwrap_or("text*")));
                let mut raises = Vec::new();
                for raise in row.values("raise") {
                    if let Some((what, when)) = raise.split_once(" if ") {
                        raises.push((RiskTrigger::Options(when.split_whitespace().collect()), risks(what)));
                    } else if let Some((what, when)) = raise.split_once(" on ") {
                        raises.push((RiskTrigger::Operands(when.split_whitespace().collect()), risks(what)));
                    }
                }
                let effects = VerbRisks {
                    verb,
                    base: row.values("base").flat_map(risks).collect(),
                    raises,
                    grammar,
                    recursive: row.values("recursive").flat_map(str::split_whitespace).collect(),
                    routes: row.has_keyword("routes"),
                    writes_last: row.has_keyword("writes-last"),
                    no_paths: row.has_keyword("no-paths"),
                    examples: Examples { yes: row.values("yes").collect(), no: row.values("no").collect() },
                };
                all.insert(verb, effects);
            }
        }
        all
    })
}

/// The risks of a verb, or of the longest prefix of it in the table.
pub(crate) fn find_risks(verb: &str) -> Option<&'static VerbRisks> {
    let all = all_verb_risks();
    let mut verb = verb;
    loop {
        if let Some(found) = all.get(verb) {
            return Some(found);
        }
        verb = &verb[..verb.rfind(' ')?];
    }
}
