//! Whether a saved approval covers an occurrence: the same verb, inside its directory, for no worse risk.

use crate::{judge::JudgeContext, offer, paths, tables};
use countersign_model::{
    Digest, Directory, Facts, Grant, Grants, HomeKey, InputSource, Occurrence, PathKind, PathScope, PathTargetKind,
    Risk, Text, Word, WordValue,
};

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
        (PathKind::Perhaps, None | Some(PathTargetKind::Absent)) => return Vec::new(),
        (PathKind::Entry, _) => up(),
        // What is yet to be made is an entry of its parent.
        (PathKind::Directory | PathKind::Any, Some(PathTargetKind::Absent)) if scope.write => up(),
        (PathKind::Directory, _) => resolved.to_owned(),
        (_, Some(PathTargetKind::Directory)) => resolved.to_owned(),
        (_, Some(PathTargetKind::File | PathTargetKind::Other)) | (PathKind::File, _) => up(),
        (PathKind::Any | PathKind::Name, _) => resolved.to_owned(),
    };
    vec![directory]
}

/// What must be true of a call to be covered, whether a grant or a rule says so.
pub(crate) struct GrantTerms<'g> {
    pub(crate) verb: &'g str,
    pub(crate) directory: Option<&'g str>,
    pub(crate) risks: Option<&'g [Risk]>,
    pub(crate) program: Option<&'g str>,
    pub(crate) operands: Option<Digest>,
    pub(crate) assignments: Option<Digest>,
    pub(crate) script: Option<Digest>,
    /// A call that names no path is covered wherever it runs.
    pub(crate) of_session: bool,
}

impl<'g> GrantTerms<'g> {
    pub(crate) fn of(grant: &'g Grant) -> Self {
        Self {
            verb: grant.verb.as_str(),
            directory: grant.directory.as_ref().map(Text::as_str),
            risks: grant.risks.as_deref(),
            program: grant.program.as_ref().map(Text::as_str),
            operands: grant.operands.as_ref().map(|o| o.digest),
            assignments: grant.assignments,
            script: grant.script,
            of_session: grant.session.is_some(),
        }
    }

    /// What terms that name no risks accept for an occurrence.
    fn accept(&self, occurrence: &Occurrence, risk: Risk) -> bool {
        match self.risks {
            Some(risks) => risks.contains(&risk),
            // The risks of the verb that was granted, which may be shorter than this one.
            None if self.verb != occurrence.verb => {
                risk == Risk::Write || tables::effects(self.verb).is_some_and(|e| e.base.contains(&risk))
            }
            None => risk == Risk::Write || occurrence.base_risks.contains(&risk),
        }
    }
}

/// The assignments that an occurrence sees, as a grant records them; none when there are none.
pub(crate) fn recorded(occurrence: &Occurrence, key: &HomeKey) -> Option<Digest> {
    let value = |v: &WordValue| match v {
        WordValue::One(text) => text.clone(),
        _ => "?".to_owned(),
    };
    // Of two for the same name the last one counts.
    let last = |n: usize, name: &str| occurrence.assignments[n + 1..].iter().all(|a| a.name != name);
    let effective = occurrence.assignments.iter().enumerate().filter(|(n, a)| last(*n, &a.name));
    let mut all: Vec<String> = effective.map(|(_, a)| format!("{}={}", a.name, value(&a.value))).collect();
    all.sort_unstable();
    let parts: Vec<&[u8]> = all.iter().map(String::as_bytes).collect();
    (!parts.is_empty()).then(|| key.digest("assignments", &parts))
}

/// The words behind the program, when each has one text.
pub(crate) fn operands(occurrence: &Occurrence) -> Option<Vec<&str>> {
    occurrence.words.iter().skip(1).map(Word::text).collect()
}

/// The very call: its words, the files that they name, where it writes to, and what it is fed. None when not all of
/// that is known.
pub(crate) fn sealed(occurrence: &Occurrence, key: &HomeKey) -> Option<Digest> {
    let mut parts: Vec<String> = operands(occurrence)?.into_iter().map(|word| format!("word {word}")).collect();
    let named = occurrence.scopes.iter().filter(|s| !is_where_it_runs(s, occurrence));
    parts.extend(named.map(|s| format!("path {}", s.path)));
    for redirect in &occurrence.redirects {
        parts.push(format!("redirect {} {} {}", redirect.write, redirect.append, redirect.target.text()?));
    }
    match &occurrence.input {
        InputSource::Inherited | InputSource::File => {}
        InputSource::Text(Some(text)) => parts.push(format!("input {text}")),
        // What comes is known only when it comes.
        InputSource::Text(None) | InputSource::Pipe | InputSource::Files(_) => return None,
    }
    let parts: Vec<&[u8]> = parts.iter().map(String::as_bytes).collect();
    Some(key.digest("operands", &parts))
}

/// What `kubectl get` gets is an operand, though it reads like a part of the verb.
fn shorter(occurrence: &Occurrence) -> Option<&str> {
    let of_cluster = matches!(occurrence.program.as_str(), "kubectl" | "oc");
    let (rest, _) = occurrence.verb.rsplit_once(' ').filter(|_| of_cluster)?;
    rest.contains(' ').then_some(rest)
}

/// The grant that covers an occurrence, the session's own first.
pub(crate) fn covering<'g>(
    grants: &'g Grants,
    occurrence: &Occurrence,
    risks: &[Risk],
    facts: &Facts,
    context: &JudgeContext<'_>,
) -> Option<&'g Grant> {
    let all = directories(occurrence, facts);
    let first = all.first().map(String::as_str);
    let mut verb = Some(occurrence.verb.as_str());
    while let Some(name) = verb {
        let found = grants.candidates(name, first, context.session).find(|g| {
            (g.principal, g.audience, g.tool) == (context.principal, context.audience, context.tool)
                && g.is_valid_at(context.now)
                && covers(&GrantTerms::of(g), occurrence, &all, risks, facts, context)
        });
        if found.is_some() {
            return found;
        }
        verb = shorter(occurrence).filter(|s| name.len() > s.len());
    }
    None
}

/// Nothing but where it runs.
fn names_no_path(occurrence: &Occurrence) -> bool {
    matches!(occurrence.directory, Directory::Known(_))
        && occurrence.scopes.iter().all(|s| is_where_it_runs(s, occurrence))
}

fn is_where_it_runs(scope: &PathScope, occurrence: &Occurrence) -> bool {
    let Directory::Known(known) = &occurrence.directory else { return false };
    !scope.write && !scope.pattern && scope.kind == PathKind::Directory && known.contains(&scope.path)
}

pub(crate) fn covers(
    terms: &GrantTerms<'_>,
    occurrence: &Occurrence,
    directories: &[String],
    risks: &[Risk],
    facts: &Facts,
    context: &JudgeContext<'_>,
) -> bool {
    let wider = shorter(occurrence) == Some(terms.verb);
    if terms.verb != occurrence.verb && !wider || occurrence.opaque.is_some() {
        return false;
    }
    if risks.iter().any(|r| !terms.accept(occurrence, *r)) {
        return false;
    }
    // Other rights are granted by name, and with what they were asked for.
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
    if let Some(directory) = terms.directory.filter(|_| !(terms.of_session && names_no_path(occurrence))) {
        let known = matches!(occurrence.directory, Directory::Known(_));
        if directories.is_empty() && !known || !directories.iter().all(|d| paths::inside(d, &paths::clean(directory))) {
            return false;
        }
    }
    if shadowed(occurrence, facts, context) != terms.program {
        return false;
    }
    if recorded(occurrence, context.key) != terms.assignments {
        return false;
    }
    if let Some(granted) = terms.operands
        && sealed(occurrence, context.key) != Some(granted)
    {
        return false;
    }
    match terms.script {
        Some(digest) => offer::script(occurrence).is_some_and(|path| facts.scripts.get(path) == Some(&digest)),
        None => true,
    }
}

/// The file that a bare name leads to, when that is inside a root, or where neither the system nor a toolchain keeps
/// its programs: then it is that file, and not what its name says.
pub(crate) fn shadowed<'f>(occurrence: &Occurrence, facts: &'f Facts, context: &JudgeContext<'_>) -> Option<&'f str> {
    let name = occurrence.words.first().and_then(Word::text)?;
    let path = facts.programs.get(name)?;
    let in_root = context.roots.iter().any(|root| paths::inside(path, root));
    (in_root || !paths::is_program_place(path, context.home)).then_some(path.as_str())
}
