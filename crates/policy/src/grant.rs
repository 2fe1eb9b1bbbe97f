//! Whether a saved approval covers an occurrence: the same verb, inside its directory, for no worse risk.

use crate::{judge::Context, paths, tables};
use countersign_model::{Directory, Facts, FoundKind, Grant, Occurrence, PathKind, PathScope, Risk, Value, Word};

/// The directories that an occurrence works in, for a grant and for a card: a file's scope is its parent.
pub(crate) fn directories(occurrence: &Occurrence, facts: &Facts) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut add = |directory: String| {
        if !all.contains(&directory) {
            all.push(directory);
        }
    };
    for scope in &occurrence.scopes {
        for directory in of_scope(scope, facts) {
            add(directory);
        }
    }
    if all.is_empty()
        && let Directory::Known(known) = &occurrence.directory
    {
        known.iter().for_each(|d| all.push(d.clone()));
    }
    all
}

/// Where a scope lies, resolved; nothing for a word that turned out not to be a path.
pub(crate) fn of_scope(scope: &PathScope, facts: &Facts) -> Vec<String> {
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
        (PathKind::Perhaps, None | Some(FoundKind::Absent)) => return Vec::new(),
        (PathKind::Entry, _) => up(),
        (PathKind::Directory, _) => resolved.to_owned(),
        (_, Some(FoundKind::Directory)) => resolved.to_owned(),
        (_, Some(FoundKind::File | FoundKind::Other)) | (PathKind::File, _) => up(),
        (PathKind::Any, _) => resolved.to_owned(),
    };
    vec![directory]
}

/// What a grant that names no risks accepts for an occurrence.
fn accepts(grant: &Grant, occurrence: &Occurrence, risk: Risk) -> bool {
    match &grant.risks {
        Some(risks) => risks.contains(&risk),
        // The risks of the verb that was granted, which may be shorter than this one.
        None if grant.verb != occurrence.verb => {
            risk == Risk::Write || tables::effects(&grant.verb).is_some_and(|e| e.base.contains(&risk))
        }
        None => risk == Risk::Write || occurrence.base_risks.contains(&risk),
    }
}

/// `NAME=value`, as a grant records it.
pub(crate) fn recorded(occurrence: &Occurrence) -> Vec<String> {
    let value = |v: &Value| match v {
        Value::One(text) => text.clone(),
        _ => "?".to_owned(),
    };
    occurrence.assignments.iter().map(|a| format!("{}={}", a.name, value(&a.value))).collect()
}

pub(crate) fn covers(
    grant: &Grant,
    occurrence: &Occurrence,
    risks: &[Risk],
    facts: &Facts,
    context: &Context<'_>,
) -> bool {
    // What `kubectl get` gets is an operand, though it reads like a part of the verb.
    let wider = matches!(occurrence.program.as_str(), "kubectl" | "oc")
        && occurrence.verb.strip_prefix(grant.verb.as_str()).is_some_and(|rest| rest.starts_with(' '))
        && grant.verb.contains(' ');
    if grant.verb != occurrence.verb && !wider || occurrence.opaque.is_some() {
        return false;
    }
    if risks.iter().any(|r| !accepts(grant, occurrence, *r)) {
        return false;
    }
    // Other rights are granted by name, and with what they were asked for.
    if risks.contains(&Risk::Privileged) && (grant.risks.is_none() || grant.operands.is_none()) {
        return false;
    }
    let unknown = occurrence.words.iter().any(|w| matches!(w.value, Value::Unknown));
    if occurrence.loose && (grant.directory.is_some() || unknown) {
        return false;
    }
    if let Some(directory) = &grant.directory {
        let known = matches!(occurrence.directory, Directory::Known(_));
        let all = directories(occurrence, facts);
        if all.is_empty() && !known || !all.iter().all(|d| paths::inside(d, &paths::clean(directory))) {
            return false;
        }
    }
    if shadowed(occurrence, facts, context).is_some_and(|path| grant.program.as_deref() != Some(path)) {
        return false;
    }
    if recorded(occurrence).iter().any(|a| !grant.assignments.contains(a)) {
        return false;
    }
    if let Some(operands) = &grant.operands {
        let texts: Option<Vec<&str>> = occurrence.words.iter().map(Word::text).collect();
        if texts
            .is_none_or(|t| t.get(1..).unwrap_or_default() != operands.iter().map(String::as_str).collect::<Vec<_>>())
        {
            return false;
        }
    }
    match &grant.script {
        Some(digest) => occurrence.scopes.iter().any(|s| facts.scripts.get(&s.walked) == Some(digest)),
        None => true,
    }
}

/// The file that a bare name leads to, when that is inside a root and so not the system's program.
pub(crate) fn shadowed<'f>(occurrence: &Occurrence, facts: &'f Facts, context: &Context<'_>) -> Option<&'f str> {
    let name = occurrence.words.first().and_then(Word::text)?;
    let path = facts.programs.get(name)?;
    context.roots.iter().any(|root| paths::inside(path, root)).then_some(path.as_str())
}
