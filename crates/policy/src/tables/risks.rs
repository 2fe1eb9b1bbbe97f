//! What a verb does when it does more than read: its risks, and which of its words are paths.

use super::{Examples, OptionGrammar, rows};
use countersign_model::Risk;
use std::{collections::HashMap, sync::OnceLock};

pub(crate) struct VerbRisks {
    pub(crate) verb: &'static str,
    pub(crate) base: Vec<Risk>,
    pub(crate) raises: Vec<(RiskTrigger, Vec<Risk>)>,
    /// How to tell options from operands; none: by their looks.
    pub(crate) grammar: Option<OptionGrammar>,
    /// Options that mean everything below, or `always`.
    pub(crate) recursive: Vec<&'static str>,
    /// Operands that look like absolute paths may be routes of an API.
    pub(crate) routes: bool,
    /// The last operand is what is written.
    pub(crate) writes_last: bool,
    /// No operand is a path, unless it starts like one.
    pub(crate) no_paths: bool,
    pub(crate) examples: Examples,
}

/// When a risk is raised beyond the verb's own.
pub(crate) enum RiskTrigger {
    /// One of these options is there.
    Options(Vec<&'static str>),
    /// An operand is one of these, or starts with one that ends in `*`.
    Operands(Vec<&'static str>),
}

pub(super) const RISKS: &[&str] = &[include_str!("risks.table"), include_str!("risks-tools.table")];

pub(crate) fn all_effects() -> &'static HashMap<&'static str, VerbRisks> {
    static ALL: OnceLock<HashMap<&'static str, VerbRisks>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = HashMap::new();
        for row in RISKS.iter().flat_map(|text| rows(text)) {
            let risks = |text: &'static str| text.split_whitespace().filter_map(Risk::from_name).collect::<Vec<Risk>>();
            for verb in row.head.split(" | ") {
                let options: Vec<&'static str> = row.all("options").collect();
                let operands = row.all("operands").next();
                let grammar = (!options.is_empty() || operands.is_some())
                    .then(|| OptionGrammar::parse(&options, operands.unwrap_or("text*")));
                let mut raises = Vec::new();
                for raise in row.all("raise") {
                    if let Some((what, when)) = raise.split_once(" if ") {
                        raises.push((RiskTrigger::Options(when.split_whitespace().collect()), risks(what)));
                    } else if let Some((what, when)) = raise.split_once(" on ") {
                        raises.push((RiskTrigger::Operands(when.split_whitespace().collect()), risks(what)));
                    }
                }
                let effects = VerbRisks {
                    verb,
                    base: row.all("base").flat_map(risks).collect(),
                    raises,
                    grammar,
                    recursive: row.all("recursive").flat_map(str::split_whitespace).collect(),
                    routes: row.has("routes"),
                    writes_last: row.has("writes-last"),
                    no_paths: row.has("no-paths"),
                    examples: Examples { yes: row.all("yes").collect(), no: row.all("no").collect() },
                };
                all.insert(verb, effects);
            }
        }
        all
    })
}

/// What is known of a verb, or of the longest start of it.
pub(crate) fn effects(verb: &str) -> Option<&'static VerbRisks> {
    let all = all_effects();
    let mut verb = verb;
    loop {
        if let Some(found) = all.get(verb) {
            return Some(found);
        }
        verb = &verb[..verb.rfind(' ')?];
    }
}
