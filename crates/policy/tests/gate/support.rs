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

/// The verdict in full: `allow`, `ask[verbs]`, `once[verbs]`, `deny[code]`.
pub(crate) fn told(assessment: &Assessment, plan: &Plan) -> String {
    match &assessment.answer {
        Answer::Allow { .. } => "allow".to_owned(),
        Answer::Deny(refusal) => format!("deny[{}]", refusal.code.as_str()),
        Answer::Ask { uncovered } => {
            let verbs: Vec<&str> = uncovered.iter().map(|n| plan.occurrences[*n].verb.as_str()).collect();
            let word = if assessment.one_shot { "once" } else { "ask" };
            format!("{word}[{}]", verbs.join(", "))
        }
    }
}

/// A command in the project, with grants written as `verb@any` and `verb@here`, against the verdict in full.
#[track_caller]
pub(crate) fn check(command: &str, grants: &[&str], expect: &str) {
    let grants: Vec<Grant> = grants
        .iter()
        .map(|g| {
            let (verb, place) = g.split_once('@').unwrap();
            grant(
                verb,
                match place {
                    "any" => None,
                    "here" => Some(ROOT),
                    directory => Some(directory),
                },
            )
        })
        .collect();
    let assessment = assess(command, ROOT, &[ROOT], &grants, None);
    assert_eq!(told(&assessment, &plan(command, ROOT)), expect, "{command}");
}

/// The verbs of a command, in order.
#[track_caller]
pub(crate) fn verbs(command: &str, expect: &[&str]) {
    let plan = plan(command, ROOT);
    let found: Vec<&str> = plan.occurrences.iter().filter(|o| !o.shadow).map(|o| o.verb.as_str()).collect();
    assert_eq!(found, expect, "{command}");
}

/// The directories that each occurrence of a command works in.
#[track_caller]
pub(crate) fn directories(command: &str, expect: &[&[&str]]) {
    let assessment = assess(command, ROOT, &[ROOT], &[], None);
    assert_eq!(assessment.directories, expect, "{command}");
}
