//! Decides whether a grant covers an occurrence: the same verb, inside its directory, with no risk beyond the
//! accepted ones.

use crate::{judge::JudgeContext, offer, paths, tables};
use countersign_model::{
    Digest, Directory, Facts, Grant, Grants, HomeKey, InputSource, Occurrence, PathKind, PathScope, PathTargetKind,
    Risk, Text, Word, WordValue,
};

/// The directories that an occurrence works in, for grants and cards. A file counts as its parent directory.
pub(crate) fn working_directories(occurrence: &Occurrence, facts: &Facts) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut add = |directory: String| {
        if !all.contains(&directory) {
            all.push(directory);
        }
    };
    for scope in &occurrence.scopes {
        for directory in scope_directories(scope, facts) {
            add(directory);
        }
    }
    if all.is_empty()
        && let Directory::Known(known) = &occurrence.directory
    {
        all.extend(known.iter().cloned());
    }
    all
}

/// The resolved directories of a scope; none for a word that turned out not to be a path.
pub(crate) fn scope_directories(scope: &PathScope, facts: &Facts) -> Vec<String> {
    if scope.pattern {
        let mut all = vec![facts.paths.get(&scope.path).map_or_else(|| scope.path.clone(), |f| f.resolved.clone())];
        for path in facts.patterns.get(&scope.walked).and_then(Option::as_ref).into_iter().flatten() {
            let directory = paths::parent(path).to_owned();
            if !all.contains(&directory) {
                all.push(directory);
            }
        }
        return all;
    }
    let found = facts.paths.get(&scope.walked);
    let resolved = found.map_or(scope.path.as_str(), |f| f.resolved.as_str());
    let up = || paths::parent(resolved).to_owned();
    let directory = match (scope.kind, found.map(|f| f.kind)) {
        (PathKind::Perhaps, None | Some(PathTargetKind::Absent)) => return Vec::new(),
        (PathKind::Entry, _) => up(),
        // A path that does not exist yet is an entry of its parent.
        (PathKind::Directory | PathKind::Any, Some(PathTargetKind::Absent)) if scope.write => up(),
        (PathKind::Directory, _) => resolved.to_owned(),
        (_, Some(PathTargetKind::Directory)) => resolved.to_owned(),
        (_, Some(PathTargetKind::File | PathTargetKind::Other)) | (PathKind::File, _) => up(),
        (PathKind::Any | PathKind::Name, _) => resolved.to_owned(),
    };
    vec![directory]
}

/// The conditions of a grant or a rule that a call must meet to be covered.
pub(crate) struct GrantTerms<'g> {
    pub(crate) verb: &'g str,
    pub(crate) directory: Option<&'g str>,
    pub(crate) risks: Option<&'g [Risk]>,
    pub(crate) program: Option<&'g str>,
    pub(crate) operands: Option<Digest>,
    pub(crate) assignments: Option<Digest>,
    pub(crate) script: Option<Digest>,
    /// The terms of a session grant: a call that names no path is covered wherever it runs.
    pub(crate) session_grant: bool,
}

impl<'g> GrantTerms<'g> {
    pub(crate) fn from_grant(grant: &'g Grant) -> Self {
        Self {
            verb: grant.verb.as_str(),
            directory: grant.directory.as_ref().map(Text::as_str),
            risks: grant.risks.as_deref(),
            program: grant.program.as_ref().map(Text::as_str),
            operands: grant.operands.as_ref().map(|o| o.digest),
            assignments: grant.assignments,
            script: grant.script,
            session_grant: grant.session.is_some(),
        }
    }

    /// Whether the terms accept a risk of an occurrence.
    fn accepts_risk(&self, occurrence: &Occurrence, risk: Risk) -> bool {
        match self.risks {
            Some(risks) => risks.contains(&risk),
            // The granted verb may be shorter than this one; its own base risks count.
            None if self.verb != occurrence.verb => {
                risk == Risk::Write || tables::find_risks(self.verb).is_some_and(|e| e.base.contains(&risk))
            }
            None => risk == Risk::Write || occurrence.base_risks.contains(&risk),
        }
    }
}

/// The digest of the assignments that an occurrence sees; none if there are none.
pub(crate) fn assignments_digest(occurrence: &Occurrence, key: &HomeKey) -> Option<Digest> {
    let value = |v: &WordValue| match v {
        WordValue::One(text) => text.clone(),
        _ => "?".to_owned(),
    };
    // Of two assignments to one name, the last counts.
    let last = |n: usize, name: &str| occurrence.assignments[n + 1..].iter().all(|a| a.name != name);
    let effective = occurrence.assignments.iter().enumerate().filter(|(n, a)| last(*n, &a.name));
    let mut all: Vec<String> = effective.map(|(_, a)| format!("{}={}", a.name, value(&a.value))).collect();
    all.sort_unstable();
    let parts: Vec<&[u8]> = all.iter().map(String::as_bytes).collect();
    (!parts.is_empty()).then(|| key.digest("assignments", &parts))
}

/// The operands, if each has exactly one text.
pub(crate) fn operand_texts(occurrence: &Occurrence) -> Option<Vec<&str>> {
    occurrence.words.iter().skip(1).map(Word::text).collect()
}

/// The digest of an exact call: its words, the files that they name, its redirects and its input. None if any of
/// those is unknown.
pub(crate) fn call_digest(occurrence: &Occurrence, key: &HomeKey) -> Option<Digest> {
    let mut parts: Vec<String> = operand_texts(occurrence)?.into_iter().map(|word| format!("word {word}")).collect();
    let named = occurrence.scopes.iter().filter(|s| !is_working_directory(s, occurrence));
    parts.extend(named.map(|s| format!("path {}", s.path)));
    for redirect in &occurrence.redirects {
        parts.push(format!("redirect {} {} {}", redirect.write, redirect.append, redirect.target.text()?));
    }
    match &occurrence.input {
        InputSource::Inherited | InputSource::File => {}
        InputSource::Text(Some(text)) => parts.push(format!("input {text}")),
        // This input is known only at run time.
        InputSource::Text(None) | InputSource::Pipe | InputSource::Files(_) => return None,
    }
    let parts: Vec<&[u8]> = parts.iter().map(String::as_bytes).collect();
    Some(key.digest("operands", &parts))
}

/// In `kubectl get pods`, `pods` is an operand, although it reads like a part of the verb.
fn shorter_verb(occurrence: &Occurrence) -> Option<&str> {
    let of_cluster = matches!(occurrence.program.as_str(), "kubectl" | "oc");
    let (rest, _) = occurrence.verb.rsplit_once(' ').filter(|_| of_cluster)?;
    rest.contains(' ').then_some(rest)
}

/// Finds a grant that covers an occurrence; grants of the session come first.
pub(crate) fn find_covering_grant<'g>(
    grants: &'g Grants,
    occurrence: &Occurrence,
    risks: &[Risk],
    facts: &Facts,
    context: &JudgeContext<'_>,
) -> Option<&'g Grant> {
    let all = working_directories(occurrence, facts);
    let first = all.first().map(String::as_str);
    let mut verb = Some(occurrence.verb.as_str());
    while let Some(name) = verb {
        let found = grants.candidates(name, first, context.session).find(|g| {
            (g.principal, g.audience, g.tool) == (context.principal, context.audience, context.tool)
                && g.is_valid_at(context.now)
                && terms_cover(&GrantTerms::from_grant(g), occurrence, &all, risks, facts, context)
        });
        if found.is_some() {
            return found;
        }
        verb = shorter_verb(occurrence).filter(|s| name.len() > s.len());
    }
    None
}

/// Whether the working directory is the only path of an occurrence.
fn names_no_path(occurrence: &Occurrence) -> bool {
    matches!(occurrence.directory, Directory::Known(_))
        && occurrence.scopes.iter().all(|s| is_working_directory(s, occurrence))
}

fn is_working_directory(scope: &PathScope, occurrence: &Occurrence) -> bool {
    let Directory::Known(known) = &occurrence.directory else { return false };
    !scope.write && !scope.pattern && scope.kind == PathKind::Directory && known.contains(&scope.path)
}

pub(crate) fn terms_cover(
    terms: &GrantTerms<'_>,
    occurrence: &Occurrence,
    directories: &[String],
    risks: &[Risk],
    facts: &Facts,
    context: &JudgeContext<'_>,
) -> bool {
    let wider = shorter_verb(occurrence) == Some(terms.verb);
    if terms.verb != occurrence.verb && !wider || occurrence.opaque.is_some() {
        return false;
    }
    if risks.iter().any(|r| !terms.accepts_risk(occurrence, *r)) {
        return false;
    }
    // A privileged call needs a grant that names the risk and the operands.
    if risks.contains(&Risk::Privileged) && (terms.risks.is_none() || terms.operands.is_none()) {
        return false;
    }
    if occurrence.words.iter().chain(occurrence.redirects.iter().map(|r| &r.target)).any(Word::is_listed) {
        return false;
    }
    let unknown = occurrence.words.iter().any(|w| matches!(w.value, WordValue::Unknown));
    if occurrence.loose && (terms.directory.is_some() || unknown) {
        return false;
    }
    if let Some(directory) = terms.directory.filter(|_| !(terms.session_grant && names_no_path(occurrence))) {
        let known = matches!(occurrence.directory, Directory::Known(_));
        if directories.is_empty() && !known || !directories.iter().all(|d| paths::inside(d, &paths::clean(directory))) {
            return false;
        }
    }
    if shadowing_program(occurrence, facts, context) != terms.program {
        return false;
    }
    if assignments_digest(occurrence, context.key) != terms.assignments {
        return false;
    }
    if let Some(granted) = terms.operands
        && call_digest(occurrence, context.key) != Some(granted)
    {
        return false;
    }
    match terms.script {
        Some(digest) => offer::script_path(occurrence).is_some_and(|path| facts.scripts.get(path) == Some(&digest)),
        None => true,
    }
}

/// The file that a bare program name resolves to, if that file is inside a root or outside the program directories of
/// the system and the toolchains. The occurrence then runs that file, and not the program that its name suggests.
pub(crate) fn shadowing_program<'f>(
    occurrence: &Occurrence,
    facts: &'f Facts,
    context: &JudgeContext<'_>,
) -> Option<&'f str> {
    let name = occurrence.words.first().and_then(Word::text)?;
    let path = facts.programs.get(name)?;
    let in_root = context.roots.iter().any(|root| paths::inside(path, root));
    (in_root || !paths::is_program_place(path, context.home)).then_some(path.as_str())
}
