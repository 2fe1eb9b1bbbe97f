//! One narrow door: a command, where it runs, what is granted; and the assessment.

use countersign_model::{Answer, Assessment, Facts, Grant, Plan};
use countersign_policy::{Context, Rules, Surroundings, judge, read_text};

pub(crate) const HOME: &str = "/home/dev";
pub(crate) const ROOT: &str = "/work/proj";

pub(crate) fn plan(command: &str, cwd: &str) -> Plan {
    read_text(command, &Surroundings { cwd, home: HOME, environment: &|_| false })
}

pub(crate) fn assess(command: &str, cwd: &str, roots: &[&str], grants: &[Grant], facts: Option<Facts>) -> Assessment {
    let context = Context::personal(HOME, roots.iter().map(|r| (*r).to_owned()).collect());
    let facts = facts.unwrap_or_else(|| Facts::none(cwd));
    judge(&plan(command, cwd), &facts, &context, &Rules::default(), grants)
}

/// `allow`, `ask` or `deny`, for a command in the project with nothing granted.
pub(crate) fn verdict(command: &str) -> &'static str {
    word(&assess(command, ROOT, &[ROOT], &[], None))
}

pub(crate) fn word(assessment: &Assessment) -> &'static str {
    match assessment.answer {
        Answer::Allow { .. } => "allow",
        Answer::Ask { .. } => "ask",
        Answer::Deny(_) => "deny",
    }
}

/// A grant that names no risks.
pub(crate) fn grant(verb: &str, directory: Option<&str>) -> Grant {
    serde_json::from_value(serde_json::json!({"verb": verb, "directory": directory})).unwrap()
}
