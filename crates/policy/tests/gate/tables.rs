//! Every row of every table, by its own examples.

use crate::support::{ROOT, assess, plan, verdict};
use countersign_policy::examples;

#[test]
fn every_row_matches_what_it_says_and_nothing_else() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for example in examples() {
        count += 1;
        let command = quoted(example.command, example.table);
        match example.table {
            "phrases" => {
                let allowed = verdict(&command) == "allow";
                if allowed != example.matches {
                    wrong.push(format!("{} `{command}`: allowed {allowed}", example.row));
                }
            }
            "verbs" => {
                let verbs: Vec<String> = plan(&command, ROOT).occurrences.into_iter().map(|o| o.verb).collect();
                if !verbs.iter().any(|v| v == example.expect) {
                    wrong.push(format!("{} `{command}`: {verbs:?}", example.row));
                }
            }
            "wrappers" => {
                let wanted = if example.expect.is_empty() { "git push" } else { example.expect };
                let plan = plan(&command, ROOT);
                let inner = plan.occurrences.iter().any(|o| o.verb == wanted && !o.shadow);
                if inner != example.matches && !(example.matches && example.expect.is_empty()) {
                    wrong.push(format!("{} `{command}`: found {inner}", example.row));
                }
                // What cannot be unwrapped is opaque.
                if !example.matches && plan.occurrences.iter().all(|o| o.opaque.is_none()) {
                    wrong.push(format!("{} `{command}`: not opaque", example.row));
                }
            }
            _ => {
                let risks = assess(&command, ROOT, &[ROOT], &[], None).risk_set();
                for name in example.expect.split_whitespace() {
                    let has = risks.iter().any(|r| r.as_str() == name);
                    if has != example.matches {
                        wrong.push(format!("{} `{command}`: {name} {has}", example.row));
                    }
                }
            }
        }
    }
    assert!(count > 500, "{count} examples");
    wrong.sort();
    wrong.dedup();
    assert_eq!(wrong, Vec::<String>::new());
}

/// Examples are written without quotes; what a shell would take apart is quoted here.
fn quoted(command: &str, table: &str) -> String {
    if table != "phrases" {
        return command.to_owned();
    }
    let words = command.split(' ').map(|word| {
        let special = word.contains(['{', '}', '(', ')', ';', '*', '$', '"', '&', '|', '<', '>']);
        if special { format!("'{word}'") } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}
