//! Checks the tables against their own examples: each row has commands that it must match and commands that it must
//! not.

use crate::{CheckedRules, JudgeContext, ParseContext, judge, read_text, tables};
use countersign_model::{Assessment, Facts, Grants, Plan, Verdict, secret_names};

const PROJECT: &str = "/work/proj";
const HOME: &str = "/home/dev";

/// The number of examples, and a message for each that does not behave as its row says.
#[must_use]
pub fn failing_examples() -> (usize, Vec<String>) {
    let examples = tables::examples();
    let mut failing: Vec<String> = examples
        .iter()
        .filter_map(|example| {
            let command = quote_phrase(example.command, example.table);
            check_example(example, &command)
                .map(|why| format!("{} `{}`: `{command}` {why}", example.table, example.row))
        })
        .collect();
    failing.extend(secret_names::failing_examples());
    failing.sort();
    failing.dedup();
    (examples.len() + secret_names::examples().len(), failing)
}

fn assess_command(command: &str) -> (Plan, Assessment) {
    let plan = read_text(command, &ParseContext { cwd: PROJECT, home: HOME, environment: &|_| false });
    let context = JudgeContext::personal(HOME, vec![PROJECT.to_owned()]);
    let assessment = judge(&plan, &Facts::none(PROJECT), &context, &CheckedRules::default(), &Grants::default());
    (plan, assessment)
}

fn check_example(example: &tables::TableExample, command: &str) -> Option<String> {
    let (plan, assessment) = assess_command(command);
    match example.table {
        "phrases" => {
            let allowed = matches!(assessment.verdict, Verdict::Allow { .. });
            (allowed != example.matches).then(|| format!("is {}allowed", if allowed { "" } else { "not " }))
        }
        "verbs" => {
            let found = plan.occurrences.iter().any(|o| o.verb == example.expect);
            (!found).then(|| format!("has no verb `{}`", example.expect))
        }
        "wrappers" => {
            let expected = if example.expect.is_empty() { "git push" } else { example.expect };
            let found = plan.occurrences.iter().any(|o| o.verb == expected && !o.shadow);
            let opaque = plan.occurrences.iter().any(|o| o.opaque.is_some());
            if example.matches {
                (!found && !example.expect.is_empty()).then(|| format!("does not show `{expected}`"))
            } else {
                // A wrapper whose command cannot be found is opaque.
                (found || !opaque).then(|| "is unwrapped, or not opaque".to_owned())
            }
        }
        "logins" => {
            let s = &assessment.sandbox;
            let given = s.keys.iter().chain(&s.writes).any(|p| *p == format!("{HOME}/{}", example.expect));
            (given != example.matches)
                .then(|| format!("is {}given {}", if given { "" } else { "not " }, example.expect))
        }
        _ => {
            let risks = assessment.risk_set();
            let wrong = |name: &&str| risks.iter().any(|r| r.as_str() == *name) != example.matches;
            let names = example.expect.split_whitespace().find(wrong);
            names.map(|name| format!("{} {name}", if example.matches { "lacks" } else { "has" }))
        }
    }
}

/// Phrase examples are written without quotes; this quotes the words that a shell would split.
fn quote_phrase(command: &str, table: &str) -> String {
    if table != "phrases" {
        return command.to_owned();
    }
    let special = ['{', '}', '(', ')', ';', '*', '$', '"', '&', '|', '<', '>'];
    let quote = |w: &str| if w.contains(special) { format!("'{w}'") } else { w.to_owned() };
    command.split(' ').map(quote).collect::<Vec<_>>().join(" ")
}
