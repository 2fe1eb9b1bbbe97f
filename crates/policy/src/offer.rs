//! The choices that a card offers: which answers can be saved, what each would save, and examples of what each
//! covers.
//!
//! An offered grant is never wider than what the card shows: the verb, its directory and its risks.

use crate::{
    grant,
    judge::{JudgeContext, can_be_saved, judge},
    paths,
    rules::CheckedRules,
    tables,
};
use countersign_model::{
    Assessment, Choice, Digest, Directory, Facts, Grants, Occurrence, Plan, Risk, Verdict, Word, WordValue,
};

/// A grant as a card would save it, before redaction. The daemon redacts secrets from it, or does not save it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantProposal {
    /// The words of the command, joined by blanks.
    pub command: String,
    pub verb: String,
    pub directory: Option<String>,
    pub risks: Vec<Risk>,
    pub program: Option<String>,
    /// The operands, and the digest that a later call is compared with.
    pub operands: Option<(Digest, Vec<String>)>,
    pub assignments: Option<Digest>,
    pub script: Option<Digest>,
}

/// Risks that a grant accepts only for the operands that the card shows.
const EXACT_RISKS: [Risk; 4] = [Risk::Destructive, Risk::Credential, Risk::HostModifying, Risk::Privileged];

/// The choices that the card for this approval offers.
#[must_use]
pub fn offered_choices(
    plan: &Plan,
    facts: &Facts,
    assessment: &Assessment,
    context: &JudgeContext<'_>,
    in_session: bool,
) -> Vec<Choice> {
    let mut choices = vec![Choice::Once];
    let candidates = [Choice::Session, Choice::Here, Choice::Repository, Choice::Anywhere];
    for choice in candidates.into_iter().filter(|c| in_session || *c != Choice::Session) {
        if grant_proposals(choice, false, plan, facts, assessment, context).is_some() {
            choices.push(choice);
        }
    }
    choices.push(Choice::Deny);
    choices
}

/// The grants that a choice would save; none if the choice is not available.
#[must_use]
pub fn grant_proposals(
    choice: Choice,
    any_arguments: bool,
    plan: &Plan,
    facts: &Facts,
    assessment: &Assessment,
    context: &JudgeContext<'_>,
) -> Option<Vec<GrantProposal>> {
    let Verdict::Ask { uncovered } = &assessment.verdict else { return None };
    if assessment.one_shot || !choice.saves() {
        return None;
    }
    let mut all: Vec<GrantProposal> = Vec::new();
    let mut differs = false;
    for n in uncovered {
        let occurrence = &plan.occurrences[*n];
        let place = card_directory(occurrence, &assessment.directories[*n]);
        let directory = match choice {
            Choice::Anywhere => None,
            Choice::Repository => {
                let place = place?;
                let top = facts.repositories.get(&place)?.clone();
                differs |= top != place;
                Some(top)
            }
            Choice::Session => Some(place?),
            Choice::Here | Choice::Once | Choice::Deny => Some(place?),
        };
        let shallow = |d: &String| !can_be_granted(d, context);
        if choice != Choice::Session && directory.as_ref().is_some_and(shallow) {
            return None;
        }
        let proposal = propose_grant(occurrence, *n, directory, any_arguments, facts, assessment, context)?;
        if !all.contains(&proposal) {
            all.push(proposal);
        }
    }
    (!all.is_empty() && (choice != Choice::Repository || differs)).then_some(all)
}

fn propose_grant(
    occurrence: &Occurrence,
    n: usize,
    directory: Option<String>,
    any_arguments: bool,
    facts: &Facts,
    assessment: &Assessment,
    context: &JudgeContext<'_>,
) -> Option<GrantProposal> {
    // A value that is not known cannot be compared with a later one.
    let unknown = occurrence.assignments.iter().any(|a| !matches!(a.value, WordValue::One(_)));
    if !can_be_saved(occurrence) || unknown {
        return None;
    }
    let mut risks: Vec<Risk> = assessment.risks.iter().filter(|r| r.occurrence == n).map(|r| r.risk).collect();
    risks.sort_unstable();
    risks.dedup();
    let privileged = risks.contains(&Risk::Privileged);
    let script = match script_path(occurrence) {
        // A grant cannot be bound to a script whose content is not known.
        Some(path) => Some(*facts.scripts.get(path)?),
        None => None,
    };
    // Without a script, an interpreter runs code from its arguments, which its verb does not describe.
    let bare = script.is_none() && crate::shell::runs_scripts(&occurrence.program);
    let grave = risks.iter().any(|r| EXACT_RISKS.contains(r));
    let operands = if bare || privileged || grave && !any_arguments {
        let words = grant::operand_texts(occurrence)?.into_iter().map(str::to_owned).collect();
        Some((grant::call_digest(occurrence, context.key)?, words))
    } else {
        None
    };
    let words: Vec<&str> = occurrence.words.iter().filter_map(Word::text).collect();
    Some(GrantProposal {
        command: words.join(" "),
        verb: occurrence.verb.clone(),
        directory,
        risks,
        program: grant::shadowing_program(occurrence, facts, context).map(str::to_owned),
        operands,
        assignments: grant::assignments_digest(occurrence, context.key),
        script,
    })
}

/// The directory that contains every directory an occurrence works in.
fn card_directory(occurrence: &Occurrence, directories: &[String]) -> Option<String> {
    let holds = |d: &&String| directories.iter().all(|other| paths::inside(other, d));
    if let Some(one) = directories.iter().find(holds) {
        return Some(one.clone());
    }
    match &occurrence.directory {
        Directory::Known(all) => match &all[..] {
            [cwd] if holds(&cwd) => Some(cwd.clone()),
            _ => None,
        },
        Directory::Unknown => None,
    }
}

/// The directories that a card shows for the commands that need approval, without duplicates.
#[must_use]
pub fn card_directories(plan: &Plan, assessment: &Assessment) -> Vec<String> {
    let Verdict::Ask { uncovered } = &assessment.verdict else { return Vec::new() };
    let mut all: Vec<String> = Vec::new();
    for n in uncovered {
        let found = match card_directory(&plan.occurrences[*n], &assessment.directories[*n]) {
            Some(one) => vec![one],
            None => assessment.directories[*n].clone(),
        };
        for directory in found {
            if !all.contains(&directory) {
                all.push(directory);
            }
        }
    }
    all
}

/// Whether a grant can be saved for a directory: not for `/` or a top-level directory, not for a home, not for the
/// temporary folder of a session.
#[must_use]
pub fn can_be_granted(directory: &str, context: &JudgeContext<'_>) -> bool {
    let components = directory.split('/').filter(|c| !c.is_empty()).count();
    components >= 2
        && paths::below_home(directory, context.home) != Some("")
        && context.session_folder.as_ref().is_none_or(|folder| !paths::inside(directory, folder))
}

/// The file whose content runs: a program given by its path, or the script of an interpreter.
pub(crate) fn script_path(occurrence: &Occurrence) -> Option<&str> {
    let by_path = occurrence.words.first().and_then(Word::text).is_some_and(|name| name.contains('/'));
    let runs = occurrence.base_risks.contains(&Risk::WorkspaceCode);
    // An option before the script may name other code.
    let first = || occurrence.words.get(1).and_then(Word::text).is_some_and(|word| !word.starts_with(['-', '+']));
    let is_script = by_path || crate::shell::runs_scripts(&occurrence.program) && first();
    let scope = occurrence.scopes.first()?;
    (runs && !scope.pattern && is_script).then_some(scope.walked.as_str())
}

/// Commands that the grants of one answer would and would not cover, with their directories. Each was judged with these
/// grants alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoverageExamples {
    pub covered: Vec<(String, String)>,
    pub not_covered: Vec<(String, String)>,
}

/// Why no answer to this approval can be saved, if so.
#[must_use]
pub fn unsavable_reason(plan: &Plan, assessment: &Assessment) -> Option<&'static str> {
    let Verdict::Ask { uncovered } = &assessment.verdict else { return None };
    uncovered.iter().find_map(|n| {
        let occurrence = &plan.occurrences[*n];
        match (occurrence.opaque, &occurrence.directory) {
            (Some(opaque), _) => Some(opaque.reason()),
            (None, Directory::Unknown) => Some("the directory it runs in is not known"),
            (None, _) if occurrence.loose => Some("an argument that may be a path or an option is not known"),
            (None, _) if occurrence.assignments.iter().any(|a| !matches!(a.value, WordValue::One(_))) => {
                Some("the value of a variable that is set for it is not known")
            }
            _ => None,
        }
    })
}

/// The largest number of examples of each kind.
const MAX_EXAMPLES: usize = 3;

/// Examples for a proposal, judged with all the grants that the answer would save.
#[must_use]
pub fn coverage_examples(
    proposal: &GrantProposal,
    place: &str,
    prepared: &Facts,
    grants: &Grants,
    context: &JudgeContext<'_>,
    rules: &CheckedRules,
) -> CoverageExamples {
    let here = proposal.directory.as_deref().unwrap_or(place);
    let below = format!("{}/sub", here.trim_end_matches('/'));
    let aside = match paths::parent(here) {
        "/" => "/srv/elsewhere".to_owned(),
        parent => format!("{parent}/elsewhere"),
    };
    let verb = &proposal.verb;
    let mut tried: Vec<(String, String)> = Vec::new();
    let mut examples = CoverageExamples::default();
    // Riskier forms of the verb come first: the user must know about those.
    let known = tables::risk_examples(verb);
    let at = |command: &str, cwd: &str| (command.to_owned(), cwd.to_owned());
    let mut all: Vec<(String, String)> = known.iter().map(|c| at(c, here)).collect();
    let plain = !proposal.command.contains(|c: char| !(c.is_alphanumeric() || " -_./=:@%+,".contains(c)));
    if plain && proposal.command.starts_with(|c: char| c.is_alphanumeric() || "./".contains(c)) {
        all.push(at(&format!("{} other-argument", proposal.command), here));
    }
    // The verb of a script is the interpreter or a path, which is no example without its arguments.
    if proposal.script.is_none() {
        all.push(at(verb, here));
        all.push(at(verb, &below));
        all.push(at(&format!("{verb} other-argument"), here));
        all.push(at(verb, &aside));
    }
    all.push(at(&format!("sudo {verb}"), here));
    for (command, cwd) in all {
        if tried.contains(&(command.clone(), cwd.clone())) {
            continue;
        }
        tried.push((command.clone(), cwd.clone()));
        let parse_context = crate::ParseContext { cwd: &cwd, home: context.home, environment: &|_| false };
        let plan = crate::read_text(&command, &parse_context);
        if !plan.occurrences.iter().any(|o| o.verb == *verb && !o.shadow) {
            continue;
        }
        // The prepared facts describe only the directory of the request; elsewhere nothing is known.
        let mut facts = Facts::none(&cwd);
        if cwd == place {
            facts.paths.clone_from(&prepared.paths);
            facts.scripts.clone_from(&prepared.scripts);
        }
        facts.programs.clone_from(&prepared.programs);
        let assessment = judge(&plan, &facts, context, rules, grants);
        let list = match assessment.verdict {
            Verdict::Allow { .. } if !assessment.grants().is_empty() => &mut examples.covered,
            // A read-only proof allows it, not the grant.
            Verdict::Allow { .. } => continue,
            Verdict::Ask { .. } | Verdict::Deny(_) => &mut examples.not_covered,
        };
        if list.len() < MAX_EXAMPLES {
            list.push((command, cwd));
        }
    }
    examples
}

/// Parses a text that must be a verb and nothing else.
pub fn parse_verb(text: &str) -> Result<String, String> {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.starts_with('/') && !words.contains(' ') {
        if words.ends_with('/') {
            return Err("it is a directory".to_owned());
        }
        return Ok(paths::clean(&words));
    }
    if words.len() > 200 {
        return Err("it is longer than 200 bytes".to_owned());
    }
    let program = words.split(' ').next().unwrap_or_default();
    if tables::wrappers().get(program).is_some_and(|w| w.kind == tables::WrapperKind::Privileged) {
        return Err("another user's rights can be granted only by answering an approval".to_owned());
    }
    if program == "csn" {
        return Err("a task may not run `csn` to answer or grant".to_owned());
    }
    let plan =
        crate::read_text(&words, &crate::ParseContext { cwd: "/work/x", home: "/home/user", environment: &|_| false });
    match &plan.occurrences[..] {
        [one] if one.opaque.is_some() => {
            Err("what it runs is not known in advance, so it cannot be granted".to_owned())
        }
        [one] if one.verb == words => Ok(words),
        [one] => Err(format!("its verb is `{}`", one.verb)),
        _ => Err("name one program, with its subcommand".to_owned()),
    }
}
