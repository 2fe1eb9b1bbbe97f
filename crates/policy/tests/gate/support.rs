//! Helpers of all tests: a command, its directory and its grants in, the assessment out.

use countersign_model::{Assessment, Choice, Facts, Grant, Grants, Plan, Verdict};
use countersign_policy::{CheckedRules, GrantProposal, JudgeContext, ParseContext, grant_proposals, judge, read_text};

pub(crate) const HOME: &str = "/home/dev";
pub(crate) const ROOT: &str = "/work/proj";

pub(crate) fn plan(command: &str, cwd: &str) -> Plan {
    read_text(command, &ParseContext { cwd, home: HOME, environment: &|_| false })
}

pub(crate) fn assess(command: &str, cwd: &str, roots: &[&str], grants: &[Grant], facts: Option<Facts>) -> Assessment {
    let context = JudgeContext::personal(HOME, roots.iter().map(|r| (*r).to_owned()).collect());
    let facts = facts.unwrap_or_else(|| Facts::none(cwd));
    judge(&plan(command, cwd), &facts, &context, &CheckedRules::default(), &Grants::from_grants(grants.to_vec()))
}

pub(crate) fn verdict_word(assessment: &Assessment) -> &'static str {
    match assessment.verdict {
        Verdict::Allow { .. } => "allow",
        Verdict::Ask { .. } => "ask",
        Verdict::Deny(_) => "deny",
    }
}

/// A grant that names no risks.
pub(crate) fn grant(verb: &str, directory: Option<&str>) -> Grant {
    serde_json::from_value(serde_json::json!({"verb": verb, "directory": directory})).unwrap()
}

/// The grants that an answer to this command would save.
pub(crate) fn saved_grants(command: &str, choice: Choice, any_arguments: bool) -> Vec<Grant> {
    saved_grants_in(command, ROOT, &Facts::none(ROOT), choice, any_arguments).unwrap_or_default()
}

pub(crate) fn saved_grants_in(
    command: &str,
    cwd: &str,
    facts: &Facts,
    choice: Choice,
    any: bool,
) -> Option<Vec<Grant>> {
    let context = JudgeContext::personal(HOME, vec![ROOT.to_owned()]);
    let plan = plan(command, cwd);
    let assessment = judge(&plan, facts, &context, &CheckedRules::default(), &Grants::default());
    let all = grant_proposals(choice, any, &plan, facts, &assessment, &context)?;
    Some(all.into_iter().map(|p| grant_from_proposal(&p)).collect())
}

/// Turns a proposal into a grant. The daemon redacts it first; here nothing is secret.
pub(crate) fn grant_from_proposal(p: &GrantProposal) -> Grant {
    let operands = p.operands.as_ref().map(|(d, words)| serde_json::json!({"digest": d, "shown": words.join(" ")}));
    serde_json::from_value(serde_json::json!({
        "verb": p.verb, "directory": p.directory, "risks": p.risks, "program": p.program, "operands": operands,
        "assignments": p.assignments, "script": p.script,
    }))
    .unwrap()
}

/// The verdict as text: `allow`, `ask[verbs]`, `once[verbs]`, `deny[code]`.
pub(crate) fn verdict_text(assessment: &Assessment, plan: &Plan) -> String {
    match &assessment.verdict {
        Verdict::Allow { .. } => "allow".to_owned(),
        Verdict::Deny(refusal) => format!("deny[{}]", refusal.code.as_str()),
        Verdict::Ask { uncovered } => {
            let verbs: Vec<&str> = uncovered.iter().map(|n| plan.occurrences[*n].verb.as_str()).collect();
            let word = if assessment.one_shot { "once" } else { "ask" };
            format!("{word}[{}]", verbs.join(", "))
        }
    }
}

/// Checks the verdict text of a command in the project, with grants written as `verb@any` and `verb@here`.
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
    assert_eq!(verdict_text(&assessment, &plan(command, ROOT)), expect, "{command}");
}

/// Checks the verbs of a command, in order.
#[track_caller]
pub(crate) fn check_verbs(command: &str, expect: &[&str]) {
    let plan = plan(command, ROOT);
    let found: Vec<&str> = plan.occurrences.iter().filter(|o| !o.shadow).map(|o| o.verb.as_str()).collect();
    assert_eq!(found, expect, "{command}");
}

/// Checks the directories that each occurrence of a command works in.
#[track_caller]
pub(crate) fn check_directories(command: &str, expect: &[&[&str]]) {
    let assessment = assess(command, ROOT, &[ROOT], &[], None);
    assert_eq!(assessment.directories, expect, "{command}");
}
