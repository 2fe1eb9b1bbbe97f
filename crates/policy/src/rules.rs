//! The operator's rules: permanent answers, each with examples that it must and must not match.

use crate::{grant, judge::JudgeContext, paths};
use countersign_model::{
    Confinement, Directory, Facts, Occurrence, Plan, Refusal, RefusalCode, Risk, Rule, VerdictKind, Word,
};

/// Rules that passed the check against their own examples.
#[derive(Debug, Clone, Default)]
pub struct CheckedRules {
    rules: Vec<Rule>,
    hard_denies: Vec<Rule>,
}

/// A fault in a rule of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule `{name}`: {message}")]
pub struct RuleFault {
    pub name: String,
    pub message: String,
    /// The index in `[[rules]]`, or in `[[hard_deny]]` if `hard` is set.
    pub index: usize,
    pub hard: bool,
}

/// What the rules decide for an occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuleVerdict {
    NoRule,
    Allow(String),
    Ask,
}

impl CheckedRules {
    /// Checks the rules and the additional hard denies against their examples.
    pub fn new(rules: Vec<Rule>, denies: Vec<Rule>) -> Result<Self, RuleFault> {
        for (hard, list) in [(false, &rules), (true, &denies)] {
            for (index, rule) in list.iter().enumerate() {
                let fault = |message: String| RuleFault { name: rule.name.clone(), message, index, hard };
                check_rule(rule, hard).map_err(fault)?;
            }
        }
        Ok(Self { rules, hard_denies: denies })
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Rule, bool)> {
        self.hard_denies.iter().map(|r| (r, true)).chain(self.rules.iter().map(|r| (r, false)))
    }

    /// The first occurrence that a rule denies.
    pub(crate) fn find_denial(
        &self,
        plan: &Plan,
        risks: &[Vec<(Risk, &'static str)>],
        facts: &Facts,
        _context: &JudgeContext<'_>,
    ) -> Option<(usize, Refusal)> {
        let refusing = self.hard_denies.iter().chain(self.rules.iter().filter(|r| r.answer == VerdictKind::Deny));
        for rule in refusing {
            for (n, occurrence) in plan.occurrences.iter().enumerate() {
                if rule_concerns(rule, occurrence, &risks[n], facts) {
                    let reason = rule.reason.clone().unwrap_or_else(|| "the operator does not allow this".to_owned());
                    let refusal = Refusal::new(RefusalCode::DeniedByRule, reason);
                    return Some((n, refusal.hint(format!("see rule `{}` in config.toml", rule.name))));
                }
            }
        }
        None
    }

    /// The confinement that the rules for an occurrence require.
    pub(crate) fn required_confinement(
        &self,
        occurrence: &Occurrence,
        risks: &[(Risk, &'static str)],
        facts: &Facts,
    ) -> Confinement {
        let speaks = |r: &&Rule| r.confinement > Confinement::None && rule_concerns(r, occurrence, risks, facts);
        self.rules.iter().filter(speaks).map(|r| r.confinement).max().unwrap_or_default()
    }

    /// Directories that deny rules protect from every command. The sandbox enforces them too, for commands that the
    /// gate cannot see.
    pub fn denied_directories(&self) -> impl Iterator<Item = String> + '_ {
        let of_places =
            |r: &&Rule| r.answer == VerdictKind::Deny && r.verb.is_empty() && r.with.is_empty() && r.risks.is_none();
        self.hard_denies.iter().chain(&self.rules).filter(of_places).filter_map(|r| r.directory.clone())
    }

    /// The risks that a rule accepts, if it names any.
    pub(crate) fn accepted_risks(&self, name: &str) -> Option<&[Risk]> {
        self.rules.iter().find(|r| r.name == name)?.risks.as_deref()
    }

    pub(crate) fn decide_rule(
        &self,
        occurrence: &Occurrence,
        risks: &[(Risk, &'static str)],
        facts: &Facts,
    ) -> RuleVerdict {
        if self.rules.is_empty() {
            return RuleVerdict::NoRule;
        }
        if self.rules.iter().any(|r| r.answer == VerdictKind::Ask && rule_concerns(r, occurrence, risks, facts)) {
            return RuleVerdict::Ask;
        }
        let allows = |r: &&Rule| r.answer == VerdictKind::Allow && rule_covers(r, occurrence, risks, facts);
        self.rules.iter().find(allows).map_or(RuleVerdict::NoRule, |r| RuleVerdict::Allow(r.name.clone()))
    }
}

fn verb_matches(rule: &Rule, occurrence: &Occurrence) -> bool {
    rule.verb.is_empty()
        || rule.verb.iter().any(|v| {
            let rest = occurrence.verb.strip_prefix(v.as_str()).or_else(|| {
                // A deny rule for a program also matches the program by its path.
                let by_name = paths::base(&occurrence.verb);
                (occurrence.verb.starts_with('/') && by_name == v).then_some("")
            });
            rest.is_some_and(|r| r.is_empty() || r.starts_with(' '))
        })
}

fn words_match(rule: &Rule, occurrence: &Occurrence) -> bool {
    rule.with.is_empty()
        || occurrence.words.iter().skip(1).filter_map(Word::texts).flatten().any(|text| {
            rule.with.iter().any(|glob| {
                text == glob || paths::matches(&glob.replace('.', "\\."), text) || paths::matches(glob, text)
            })
        })
}

/// Match for deny and ask rules: any part of the occurrence is enough.
fn rule_concerns(rule: &Rule, occurrence: &Occurrence, risks: &[(Risk, &'static str)], facts: &Facts) -> bool {
    let inside = |directory: &str| {
        let runs = match &occurrence.directory {
            Directory::Known(all) => all.iter().any(|d| paths::inside(d, directory)),
            Directory::Unknown => true,
        };
        runs || occurrence.scopes.iter().any(|s| {
            paths::inside(&s.path, directory)
                || grant::scope_directories(s, facts).iter().any(|d| paths::inside(d, directory))
        })
    };
    verb_matches(rule, occurrence)
        && words_match(rule, occurrence)
        && rule.directory.as_deref().is_none_or(inside)
        && rule.risks.as_ref().is_none_or(|expected| risks.iter().any(|(r, _)| expected.contains(r)))
}

/// Match for allow rules: the rule must cover the occurrence as a grant would.
fn rule_covers(rule: &Rule, occurrence: &Occurrence, risks: &[(Risk, &'static str)], facts: &Facts) -> bool {
    if !verb_matches(rule, occurrence) || !words_match(rule, occurrence) || occurrence.verb.starts_with('/') {
        return false;
    }
    let terms = grant::GrantTerms {
        verb: &occurrence.verb,
        directory: rule.directory.as_deref(),
        risks: rule.risks.as_deref(),
        program: None,
        operands: None,
        assignments: None,
        script: None,
        session_grant: false,
    };
    let set: Vec<Risk> = risks.iter().map(|(r, _)| *r).collect();
    let directories = grant::working_directories(occurrence, facts);
    grant::terms_cover(&terms, occurrence, &directories, &set, facts, &JudgeContext::personal("/", Vec::new()))
}

fn check_rule(rule: &Rule, hard: bool) -> Result<(), String> {
    if rule.name.trim().is_empty() {
        return Err("it has no name".to_owned());
    }
    if hard && rule.answer != VerdictKind::Deny {
        return Err("a rule in [[hard_deny]] can only deny".to_owned());
    }
    if rule.verb.is_empty() && rule.with.is_empty() && rule.directory.is_none() && rule.risks.is_none() {
        return Err("it names no verb, words, directory or risks, so it would match everything".to_owned());
    }
    if rule.answer == VerdictKind::Allow && rule.verb.is_empty() {
        return Err("a rule that allows must name its verbs".to_owned());
    }
    if let Some(verb) = rule.verb.iter().find(|v| v.trim() != v.as_str() || v.is_empty()) {
        return Err(format!("`{verb}` is not a verb: it is empty, or starts or ends with a blank"));
    }
    if let Some(directory) = rule.directory.as_deref().filter(|d| !d.starts_with('/') || paths::clean(d) != *d) {
        return Err(format!("`{directory}` is not an absolute path without `.`, `..` and doubled slashes"));
    }
    if rule.matches.is_empty() {
        return Err("it has no `match` example: add at least one command that it must match".to_owned());
    }
    let cwd = rule.directory.as_deref().unwrap_or("/work");
    for (examples, expected) in [(&rule.matches, true), (&rule.not_match, false)] {
        for example in examples {
            let plan =
                crate::read_text(example, &crate::ParseContext { cwd, home: "/home/user", environment: &|_| false });
            let facts = Facts::none(cwd);
            let hit = plan.occurrences.iter().any(|o| match rule.answer {
                VerdictKind::Allow => rule_covers(rule, o, &o.risks, &facts),
                VerdictKind::Ask | VerdictKind::Deny => rule_concerns(rule, o, &o.risks, &facts),
            });
            if hit != expected {
                let outcome = if expected { "should match, but does not" } else { "should not match, but does" };
                return Err(format!("its example `{example}` {outcome}"));
            }
        }
    }
    Ok(())
}
