//! `policy test|explain`: tests and explains the tables and rules that decide about commands.

use super::check::load_rules;
use crate::{args::PolicyCommand, render::text::count};
use countersign_model::{DisplaySafe, Rule, VerdictKind};
use countersign_store::Config;
use serde_json::json;
use std::process::ExitCode;

pub(crate) fn policy(command: &PolicyCommand) -> anyhow::Result<ExitCode> {
    match command {
        PolicyCommand::Test { json } => {
            let config = Config::load()?;
            let rules = load_rules(&config)?;
            let (total, failing) = countersign_policy::failing_examples();
            let own: usize = rules.iter().map(|(r, _)| r.matches.len() + r.not_match.len()).sum();
            if *json {
                println!(
                    "{}",
                    json!({"examples": total, "rules": rules.iter().count(), "rule_examples": own, "failing": failing})
                );
            } else {
                for line in &failing {
                    println!("{}", DisplaySafe::new(line));
                }
                let tables = total - failing.len();
                println!(
                    "{tables} of {} of the built-in tables pass; {} of {} in config.toml pass",
                    count(total as u64, "example"),
                    count(own as u64, "example"),
                    count(rules.iter().count() as u64, "rule")
                );
            }
            Ok(ExitCode::from(u8::from(!failing.is_empty())))
        }
        PolicyCommand::Explain { verb } => {
            let verb = verb.join(" ");
            for line in countersign_policy::describe_verb(&verb) {
                println!("{}", DisplaySafe::new(&line));
            }
            let rules = load_rules(&Config::load()?)?;
            for (rule, hard) in rules.iter().filter(|(r, _)| applies_to(r, &verb)) {
                let effect = match (hard, rule.answer) {
                    (true, _) => "always denies",
                    (false, VerdictKind::Deny) => "denies",
                    (false, VerdictKind::Ask) => "asks about",
                    (false, VerdictKind::Allow) => "allows",
                };
                println!("rule `{}` in config.toml {effect} it", DisplaySafe::new(&rule.name));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn applies_to(rule: &Rule, verb: &str) -> bool {
    rule.verb.is_empty()
        || rule.verb.iter().any(|v| verb.strip_prefix(v.as_str()).is_some_and(|r| r.is_empty() || r.starts_with(' ')))
}
