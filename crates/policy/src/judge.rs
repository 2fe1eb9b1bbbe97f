//! Judging: audience, hard denies, operator rules, then what covers each occurrence. In that order, and deny wins.

use crate::{
    Label, deny, grant, paths,
    rules::{CheckedRules, RuleVerdict},
    sandbox::SandboxCase,
    verdict::VerdictInput,
};
use countersign_model::{
    Assessment, Audience, Confinement, Coverage, Directory, Facts, GrantSandbox, GrantedSandbox, Grants, HomeKey,
    Kernel, Network, Occurrence, PathKind, PathScope, PathTargetKind, Plan, PrincipalId, Profile, ReadOnlyProof, Risk,
    RiskNote, Sandbox, SandboxReason, SessionId, Timestamp, Tool, Verdict, WordValue,
};

/// What the verdict depends on beside the plan and the facts.
#[derive(Debug, Clone)]
pub struct JudgeContext<'a> {
    pub profile: Profile,
    pub audience: Audience,
    /// Whether somebody can be asked.
    pub attended: bool,
    /// What the kernel can hold a task to. What only reads asks where it cannot be held to that.
    pub kernel: Kernel,
    /// What the asker wants it to be held to.
    pub wanted: Option<Confinement>,
    /// Whom the asker wants to reach.
    pub wanted_network: Option<Network>,
    /// How far the sandbox of what is granted or approved goes, and whom a workspace may reach at most: the operator's word.
    pub granted: GrantedSandbox,
    pub network: Network,
    pub background: bool,
    /// Whether it gets a terminal, and so somebody to answer its questions.
    pub interactive: bool,
    /// The asking user's home.
    pub home: &'a str,
    /// The directories that may be read unasked.
    pub roots: Vec<String>,
    /// Countersign's own places, beside those that every home has.
    pub protected: Vec<String>,
    /// The operator lets this audience read everywhere.
    pub read_all: bool,
    /// Whose request it is, from which session, and for which tool.
    pub principal: PrincipalId,
    pub session: Option<SessionId>,
    pub tool: Tool,
    /// The session's own folder: nothing is granted there.
    pub folder: Option<String>,
    /// When: a grant may have ended.
    pub now: Timestamp,
    /// Under which operands and assignments are recorded.
    pub key: &'a HomeKey,
    /// The configuration cannot be read: only what provably reads may run.
    pub degraded: bool,
}

/// For judging apart from any house.
static NO_KEY: HomeKey = HomeKey::new([0; 32]);

impl<'a> JudgeContext<'a> {
    /// A person at a terminal, asking in the default profile, where the kernel confines.
    #[must_use]
    pub fn personal(home: &'a str, roots: Vec<String>) -> Self {
        Self {
            profile: Profile::Safe,
            audience: Audience::Personal,
            attended: true,
            kernel: Kernel::FULL,
            wanted: None,
            wanted_network: None,
            granted: GrantedSandbox::Narrow,
            network: Network::Open,
            background: false,
            interactive: false,
            home,
            roots,
            protected: Vec::new(),
            read_all: false,
            principal: PrincipalId::owner(),
            session: None,
            tool: Tool::Shell,
            folder: None,
            now: Timestamp::from_micros(0),
            key: &NO_KEY,
            degraded: false,
        }
    }
}

/// The verdict on a plan.
#[must_use]
pub fn judge(
    plan: &Plan,
    facts: &Facts,
    context: &JudgeContext<'_>,
    rules: &CheckedRules,
    grants: &Grants,
) -> Assessment {
    let risks: Vec<Vec<(Risk, &'static str)>> =
        plan.occurrences.iter().map(|o| occurrence_risks(o, facts, context)).collect();
    let notes = notes(&risks);
    let mut assessment = Assessment {
        verdict: Verdict::Ask { uncovered: Vec::new() },
        risks: notes,
        sandbox: Sandbox::default(),
        coverage: Vec::new(),
        one_shot: false,
        directories: plan.occurrences.iter().map(|o| grant::directories(o, facts)).collect(),
        culprit: None,
    };
    assessment.coverage = coverage(plan, &risks, facts, context, rules, grants);
    assessment.one_shot = uncovered(&assessment.coverage).iter().any(|n| !can_be_saved(&plan.occurrences[*n]));
    if let Some((culprit, refusal)) =
        deny::deny(plan, facts, context).or_else(|| rules.denies(plan, &risks, facts, context))
    {
        assessment.culprit = Some(culprit);
        assessment.verdict = Verdict::Deny(refusal);
        return assessment;
    }
    let case = SandboxCase { plan, risks: &risks, facts, context, rules, grants };
    let privileged = risks.iter().flatten().any(|(r, _)| *r == Risk::Privileged);
    let must_ask = (0..plan.occurrences.len())
        .any(|n| rules.decide_rule(&plan.occurrences[n], &risks[n], facts) == RuleVerdict::Ask);
    let reads = only_reads(&assessment.coverage);
    let unheld_whole = ask_where_nothing_holds(&case, reads, privileged, &mut assessment.coverage);
    let covered = uncovered(&assessment.coverage).is_empty();
    let only_reads = reads && covered && !unheld_whole && assessment.grants().is_empty();
    assessment.sandbox = if only_reads { reading() } else { case.accepted(&assessment.coverage) };
    follow_the_request(&case, privileged, &mut assessment);
    let weighed = VerdictInput { privileged, must_ask, only_reads, unheld_whole };
    (assessment.verdict, assessment.sandbox) = weighed.answer(plan, context, &assessment);
    assessment
}

/// The occurrences that nothing lets run.
pub(crate) fn uncovered(coverage: &[Coverage]) -> Vec<usize> {
    (0..coverage.len()).filter(|n| !coverage[*n].is_covered()).collect()
}

/// Whether all of a plan is known to do nothing but read.
fn only_reads(coverage: &[Coverage]) -> bool {
    coverage.iter().all(|c| matches!(c, Coverage::SideEffect | Coverage::Phrase(_) | Coverage::Elsewhere))
}

/// What is known to read runs unasked because the kernel holds it to that; where it cannot, or shall not, a person is asked.
/// True: there is nothing in the plan to ask about, and still nothing that would hold it, so it is asked about as a whole.
fn ask_where_nothing_holds(case: &SandboxCase<'_>, reads: bool, privileged: bool, coverage: &mut [Coverage]) -> bool {
    let SandboxCase { plan, risks, facts, context, grants, .. } = case;
    let unheld = if reads { cannot_be_held(plan, context) } else { None };
    if let Some((why, help)) = unheld {
        unconfined(plan, risks, facts, context, grants, &|| none(why, help), coverage);
    }
    if privileged && uncovered(coverage).is_empty() {
        apart_from_privileged(plan, coverage);
    }
    unheld.is_some() && plan.occurrences.is_empty()
}

/// The confinement that the request wants, if it wants another one. A wider one asks.
fn follow_the_request(case: &SandboxCase<'_>, privileged: bool, assessment: &mut Assessment) {
    // What the operator holds it to is not the asker's to widen.
    let wanted = case.context.wanted.map(|w| w.max(case.operators_limit()));
    let Some(wanted) = wanted.filter(|w| *w != assessment.sandbox.confinement && !privileged) else { return };
    if wanted < assessment.sandbox.confinement {
        ask_for_wider(wanted, case.grants, &mut assessment.coverage);
    }
    assessment.sandbox = as_requested(std::mem::take(&mut assessment.sandbox), wanted);
}

/// What asks for other rights runs unconfined, and what stands beside it would, too: then that asks as well, unless it only
/// reads. Nobody has seen the two together.
fn apart_from_privileged(plan: &Plan, coverage: &mut [Coverage]) {
    for (occurrence, coverage) in plan.occurrences.iter().zip(coverage) {
        if !occurrence.privileged && matches!(coverage, Coverage::Grant { .. } | Coverage::Rule(_)) {
            *coverage = none(
                "beside something that asks for other rights it would run without confinement",
                "run it apart from that, or a person's answer",
            );
        }
    }
}

/// Why what only reads cannot run unasked, and what would help.
fn cannot_be_held(plan: &Plan, context: &JudgeContext<'_>) -> Option<(&'static str, &'static str)> {
    if context.wanted.is_some_and(|wanted| wanted != Confinement::ReadOnly) {
        return Some(("it only reads, but shall not be held to that", "a person's answer"));
    }
    if !context.kernel.can_enforce(Confinement::ReadOnly) {
        let help = "a kernel that confines it (Linux 6.2 with Landlock), or a person's answer";
        return Some(("it only reads, but nothing would hold it to that", help));
    }
    if !context.kernel.can_scope_signals() && plan.occurrences.iter().any(|o| o.timed) {
        let why = "on this kernel what is confined can signal nobody, and `timeout` must";
        return Some((why, "leave `timeout` out (the task has a limit of its own), or a person's answer"));
    }
    None
}

/// What runs unasked: reading, and nothing else.
fn reading() -> Sandbox {
    Sandbox::plain(Confinement::ReadOnly, Network::None, SandboxReason::OnlyReads)
}

/// What was granted was granted with its own sandbox: a request that wants a wider one asks a person.
fn ask_for_wider(wanted: Confinement, grants: &Grants, coverage: &mut [Coverage]) {
    for coverage in coverage {
        let narrow = match coverage {
            Coverage::Grant { id, .. } => grants.get(*id).is_none_or(|g| g.sandbox == GrantSandbox::Narrow),
            Coverage::Rule(_) => true,
            _ => false,
        };
        if narrow {
            let why = format!("it asks for a wider sandbox ({}) than what lets it run gives", wanted.as_str());
            *coverage = none(why, "leave `confinement` out, or a person's answer");
        }
    }
}

/// The sandbox with the confinement that the request names.
fn as_requested(sandbox: Sandbox, wanted: Confinement) -> Sandbox {
    let why = SandboxReason::Requested;
    match wanted > sandbox.confinement {
        true => Sandbox { confinement: wanted, why, ..sandbox },
        // Behind a shield there is nothing else to hold it.
        false if wanted <= Confinement::Shield => Sandbox::plain(wanted, Network::Open, why),
        false => Sandbox { confinement: wanted, why, ..sandbox },
    }
}

/// What only reads, where nothing would hold it to that: a grant covers it, or a person is asked.
fn unconfined(
    plan: &Plan,
    risks: &[Vec<(Risk, &'static str)>],
    facts: &Facts,
    context: &JudgeContext<'_>,
    grants: &Grants,
    why: &dyn Fn() -> Coverage,
    coverage: &mut [Coverage],
) {
    for (n, occurrence) in plan.occurrences.iter().enumerate() {
        if let Coverage::Phrase(_) = coverage[n] {
            coverage[n] = granted(occurrence, &risks[n], facts, context, grants).unwrap_or_else(why);
        }
    }
    // What only says something goes with what is granted, and asks where nothing is.
    if !coverage.iter().any(|c| matches!(c, Coverage::Grant { .. })) {
        for (n, occurrence) in plan.occurrences.iter().enumerate() {
            if let Coverage::SideEffect = coverage[n]
                && let Some(covered) = granted(occurrence, &risks[n], facts, context, grants)
            {
                coverage[n] = covered;
            }
        }
    }
    if !coverage.iter().any(|c| matches!(c, Coverage::Grant { .. })) {
        for (occurrence, coverage) in plan.occurrences.iter().zip(coverage) {
            if !occurrence.shadow {
                *coverage = why();
            }
        }
    }
}

fn notes(risks: &[Vec<(Risk, &'static str)>]) -> Vec<RiskNote> {
    let each = risks.iter().enumerate();
    each.flat_map(|(occurrence, all)| {
        all.iter().map(move |(risk, reason)| RiskNote { risk: *risk, occurrence, reason })
    })
    .collect()
}

/// The risks of an occurrence, with what the world adds to them.
fn occurrence_risks(occurrence: &Occurrence, facts: &Facts, context: &JudgeContext<'_>) -> Vec<(Risk, &'static str)> {
    let mut risks = occurrence.risks.clone();
    let mut add = |risk, reason| {
        if !risks.iter().any(|(r, _)| *r == risk) {
            risks.push((risk, reason));
        }
    };
    for scope in &occurrence.scopes {
        if occurrence.remote {
            break;
        }
        let (path, resolved) = both(scope, facts);
        if holds_secrets(scope, facts, context.home) {
            add(Risk::Credential, "reads what holds secrets");
        }
        if scope.recursive {
            for place in [path, resolved] {
                if scope.kind != PathKind::Name && paths::covers_credentials(place, context.home) {
                    add(Risk::Credential, "everything below includes keys and tokens");
                }
                if wide(place, context) {
                    add(Risk::FilesystemWide, "reaches over the whole file system, a home, or above the roots");
                }
            }
        }
        if scope.write && (paths::is_system_place(path, context.home) || paths::is_system_place(resolved, context.home))
        {
            add(Risk::HostModifying, "writes where the system or every shell reads");
        }
        if scope.write && [path, resolved].iter().any(|p| p.split('/').any(|part| part == ".git")) {
            add(Risk::WorkspaceCode, "changes what git runs later");
        }
        // What nobody looked at is taken to be there, where the system keeps its own.
        let found = facts.paths.get(&scope.walked);
        let exists = found.map_or(paths::is_system_place(path, "/"), |f| f.kind == PathTargetKind::File);
        let overwrites = occurrence.redirects.iter().any(|r| r.write && !r.append);
        if scope.write && exists && overwrites && !in_roots(resolved, context) {
            add(Risk::Destructive, "overwrites a file outside the roots");
        }
        if paths::is_protected(path, context.home, &context.protected)
            || paths::is_protected(resolved, context.home, &context.protected)
        {
            add(Risk::OfSelf, "touches countersign's own files");
        }
    }
    if occurrence.program == "csn" || occurrence.program == "csn-shim" {
        add(Risk::OfSelf, "runs countersign itself");
    }
    if context.interactive {
        add(Risk::Interactive, "gets a terminal: what is typed into it is not known now");
    }
    let reads = matches!(occurrence.reading, ReadOnlyProof::SideEffect | ReadOnlyProof::Phrase(_));
    if context.wanted_network == Some(Network::Open) && !reads {
        add(Risk::Network, "the request asks for the network");
    }
    if context.background {
        add(Risk::Background, "goes on when nobody waits for it");
    }
    risks
}

fn both<'s>(scope: &'s PathScope, facts: &'s Facts) -> (&'s str, &'s str) {
    let resolved = facts.paths.get(&scope.walked).map_or(scope.path.as_str(), |f| f.resolved.as_str());
    (&scope.path, resolved)
}

fn holds_secrets(scope: &PathScope, facts: &Facts, home: &str) -> bool {
    if scope.pattern && scope.kind == PathKind::Name {
        return false;
    }
    if scope.pattern {
        return paths::glob_wants_credentials(&scope.walked, home)
            || facts
                .patterns
                .get(&scope.walked)
                .and_then(Option::as_ref)
                .is_some_and(|all| all.iter().any(|p| paths::is_credential(p, home)));
    }
    let (path, resolved) = both(scope, facts);
    let found = facts.paths.get(&scope.walked).map(|f| f.kind);
    paths::shows_secrets(scope, found, path, home)
        || resolved != path && paths::shows_secrets(scope, found, resolved, home)
}

fn wide(path: &str, context: &JudgeContext<'_>) -> bool {
    path == "/"
        || path == "/home"
        || paths::below_home(path, context.home) == Some("")
        || context.roots.iter().any(|root| root != path && paths::inside(root, path))
}

fn in_roots(path: &str, context: &JudgeContext<'_>) -> bool {
    context.roots.iter().any(|root| paths::inside(path, &paths::clean(root)))
}

/// What covers each occurrence.
fn coverage(
    plan: &Plan,
    risks: &[Vec<(Risk, &'static str)>],
    facts: &Facts,
    context: &JudgeContext<'_>,
    rules: &CheckedRules,
    grants: &Grants,
) -> Vec<Coverage> {
    let mut all: Vec<Coverage> = plan
        .occurrences
        .iter()
        .zip(risks)
        .map(|(occurrence, risks)| {
            if occurrence.shadow {
                return Coverage::Elsewhere;
            }
            let said = rules.decide_rule(occurrence, risks, facts);
            if said == RuleVerdict::Ask {
                return none("the operator wants to be asked about this", "a person's answer");
            }
            match reads_only(occurrence, risks, facts, context) {
                Ok(coverage) => coverage,
                Err(why) => match said {
                    // A rule for the house is none for strangers.
                    RuleVerdict::Allow(name) if context.audience != Audience::Public => Coverage::Rule(name),
                    RuleVerdict::Allow(_) | RuleVerdict::Ask | RuleVerdict::Nothing => {
                        granted(occurrence, risks, facts, context, grants).unwrap_or(why)
                    }
                },
            }
        })
        .collect();
    // What runs beside something granted does not run confined: then it must be literal to count as read.
    if all.iter().any(|c| matches!(c, Coverage::Grant { .. } | Coverage::Rule(_))) {
        for (n, occurrence) in plan.occurrences.iter().enumerate() {
            if matches!(all[n], Coverage::Phrase(_)) && !occurrence.literal {
                let set: Vec<(Risk, &'static str)> = risks[n].clone();
                all[n] = granted(occurrence, &set, facts, context, grants).unwrap_or_else(|| {
                    none(
                        "beside a granted command it would not run confined, and not all its words are literal",
                        "run it apart from the granted command",
                    )
                });
            }
        }
    }
    // Going somewhere to run what is granted there asks nothing of its own.
    let rest_is_covered = plan.occurrences.iter().zip(&all).all(|(o, c)| c.is_covered() || is_cd(o));
    if rest_is_covered && all.iter().any(|c| matches!(c, Coverage::Grant { .. } | Coverage::Rule(_))) {
        for (n, occurrence) in plan.occurrences.iter().enumerate() {
            let plain = occurrence.opaque.is_none() && !occurrence.loose && occurrence.redirects.is_empty();
            if is_cd(occurrence) && !all[n].is_covered() && plain && risks[n].is_empty() {
                all[n] = Coverage::SideEffect;
            }
        }
    }
    all
}

fn is_cd(occurrence: &Occurrence) -> bool {
    matches!(occurrence.verb.as_str(), "cd" | "pushd" | "popd") && occurrence.reading == ReadOnlyProof::SideEffect
}

fn none(why: impl Into<String>, help: impl Into<String>) -> Coverage {
    Coverage::None { why: why.into(), help: help.into() }
}

fn granted(
    occurrence: &Occurrence,
    risks: &[(Risk, &'static str)],
    facts: &Facts,
    context: &JudgeContext<'_>,
    grants: &Grants,
) -> Option<Coverage> {
    if context.audience == Audience::Public || grants.is_empty() {
        return None;
    }
    let set: Vec<Risk> = risks.iter().map(|(r, _)| *r).collect();
    let covering = grant::covering(grants, occurrence, &set, facts, context)?;
    Some(Coverage::Grant { id: covering.id?, label: Label::from_grant(covering).to_string() })
}

/// Whether an occurrence provably only reads, and only what may be read unasked; else why not.
fn reads_only(
    occurrence: &Occurrence,
    risks: &[(Risk, &'static str)],
    facts: &Facts,
    context: &JudgeContext<'_>,
) -> Result<Coverage, Coverage> {
    let grant = || {
        let directory = match &grant::directories(occurrence, facts)[..] {
            [one] => format!(" in {one}"),
            _ => String::new(),
        };
        // A grant that names risks accepts those and no others.
        let beyond = risks.iter().any(|(r, _)| *r != Risk::Write && !occurrence.base_risks.contains(r));
        let named: Vec<&str> = risks.iter().map(|(r, _)| r.as_str()).collect();
        let accepting = if beyond { format!(" that accepts {}", named.join(", ")) } else { String::new() };
        format!("a grant for `{}`{directory}{accepting}, or a person's answer", occurrence.verb)
    };
    if let Some(why) = occurrence.opaque {
        return Err(none(why.reason(), "a person's answer, once; or write it so that it can be read"));
    }
    if occurrence.privileged {
        return Err(none("asks for another user's rights", "a person's answer"));
    }
    if let Some((_, reason)) = risks.iter().find(|(r, _)| *r == Risk::Credential) {
        return Err(none(*reason, "a person's answer"));
    }
    let covered = match &occurrence.reading {
        ReadOnlyProof::SideEffect => Coverage::SideEffect,
        ReadOnlyProof::Phrase(name) => Coverage::Phrase(name),
        ReadOnlyProof::Not(why) => {
            return Err(none(format!("not one of the read-only forms of `{}`: {why}", occurrence.verb), grant()));
        }
        ReadOnlyProof::Unknown => {
            let why = risks.first().map_or("not known to be read-only", |(_, reason)| *reason);
            return Err(none(why, grant()));
        }
    };
    // A builtin sees only what bash itself goes by; behind another program it is a program too.
    let matters =
        |name: &str| covered != Coverage::SideEffect || occurrence.wrapped || crate::shell::read_by_bash(name);
    if let Some(assignment) = occurrence.assignments.iter().find(|a| matters(&a.name)) {
        return Err(none(
            format!("{} is set for it, which may change what it does", assignment.name),
            "leave the assignment out, or a person's answer",
        ));
    }
    if let Some((_, reason)) = risks.iter().find(|(r, _)| *r != Risk::FilesystemWide) {
        return Err(none(*reason, grant()));
    }
    if let Some(path) = grant::shadowed(occurrence, facts, context) {
        return Err(none(format!("its name leads to {path}, which the agent can change"), grant()));
    }
    let home = matches!(&occurrence.directory, Directory::Unknown);
    if occurrence.loose {
        let why =
            if home { "where it runs is not known" } else { "a word in the place of a path or an option is not known" };
        return Err(none(why, "write the path out, or a person's answer"));
    }
    for scope in &occurrence.scopes {
        if scope.write {
            return Err(none("writes a file", grant()));
        }
        if let Some(outside) = outside(scope, facts, context) {
            return Err(none(format!("{outside} is outside the roots"), grant()));
        }
    }
    if occurrence.redirects.iter().any(|r| matches!(r.target.value, WordValue::Unknown) && r.target.hint.is_none()) {
        return Err(none("where it redirects to is not known", "write the path out, or a person's answer"));
    }
    Ok(covered)
}

/// The path by which a scope leaves the roots.
fn outside(scope: &PathScope, facts: &Facts, context: &JudgeContext<'_>) -> Option<String> {
    if context.read_all && context.audience == Audience::Personal {
        return None;
    }
    let (path, resolved) = both(scope, facts);
    if paths::is_source(path) {
        return None;
    }
    if !in_roots(path, context) {
        return Some(path.to_owned());
    }
    if !in_roots(resolved, context) {
        return Some(resolved.to_owned());
    }
    if scope.pattern {
        let cover = facts.paths.get(&scope.path).map(|f| f.resolved.as_str());
        if facts.patterns.get(&scope.walked) == Some(&None) {
            return Some(format!("some of the many files of {}, for all that can be told,", scope.walked));
        }
        let matched = facts.patterns.get(&scope.walked).and_then(Option::as_ref);
        let all = cover.into_iter().chain(matched.into_iter().flatten().map(String::as_str));
        return all.into_iter().find(|p| !in_roots(p, context)).map(str::to_owned);
    }
    None
}

/// Whether a grant could be made for an occurrence.
pub(crate) fn can_be_saved(occurrence: &Occurrence) -> bool {
    occurrence.opaque.is_none() && !occurrence.loose && matches!(occurrence.directory, Directory::Known(_))
}
