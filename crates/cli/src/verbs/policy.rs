//! `policy test|explain`: what the gate goes by.

use super::check::rules_of;
use crate::args::PolicyCommand;
use countersign_model::{DisplaySafe, Rule, VerdictKind};
use countersign_store::Config;
use serde_json::json;
use std::process::ExitCode;

pub(crate) fn policy(command: &PolicyCommand) -> anyhow::Result<ExitCode> {
    match command {
        PolicyCommand::Test { json } => {
            let config = Config::load()?;
            let rules = rules_of(&config)?;
            let (count, failing) = countersign_policy::failing_examples();
            let own: usize = rules.iter().map(|(r, _)| r.matches.len() + r.not_match.len()).sum();
            if *json {
                println!(
                    "{}",
                    json!({"examples": count, "rules": rules.iter().count(), "rule_examples": own, "failing": failing})
                );
            } else {
                for line in &failing {
                    println!("{}", DisplaySafe::new(line));
                }
                let tables = count - failing.len();
                println!(
                    "{tables} of {count} examples of the tables hold; {own} examples of {} rules hold",
                    rules.iter().count()
                );
            }
            Ok(ExitCode::from(u8::from(!failing.is_empty())))
        }
        PolicyCommand::Explain { verb } => {
            let verb = verb.join(" ");
            for line in countersign_policy::describe_verb(&verb) {
                println!("{}", DisplaySafe::new(&line));
            }
            let rules = rules_of(&Config::load()?)?;
            for (rule, hard) in rules.iter().filter(|(r, _)| names(r, &verb)) {
                let what = match (hard, rule.answer) {
                    (true, _) => "always denies",
                    (false, VerdictKind::Deny) => "denies",
                    (false, VerdictKind::Ask) => "asks about",
                    (false, VerdictKind::Allow) => "allows",
                };
                println!("rule `{}` in config.toml {what} it", DisplaySafe::new(&rule.name));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn names(rule: &Rule, verb: &str) -> bool {
    rule.verb.is_empty()
        || rule.verb.iter().any(|v| verb.strip_prefix(v.as_str()).is_some_and(|r| r.is_empty() || r.starts_with(' ')))
}
