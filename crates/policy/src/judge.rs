//! Judges a plan in this order: audience, hard denies, operator rules, then the coverage of each occurrence. A deny
//! wins over everything else.

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

/// What the verdict depends on, apart from the plan and the facts.
#[derive(Debug, Clone)]
pub struct JudgeContext<'a> {
    pub profile: Profile,
    pub audience: Audience,
    /// Whether a user can answer an approval.
    pub attended: bool,
    /// The confinement that this kernel can enforce. A read-only command needs approval where the kernel cannot
    /// enforce that it only reads.
    pub kernel: Kernel,
    /// The confinement that the request asks for.
    pub requested_confinement: Option<Confinement>,
    /// The network access that the request asks for.
    pub requested_network: Option<Network>,
    /// The operator's settings: the sandbox of granted and approved commands, and the widest network access of a
    /// workspace sandbox.
    pub granted_sandbox: GrantedSandbox,
    pub network_limit: Network,
    pub background: bool,
    /// Whether the task gets a terminal, through which a user can type input.
    pub interactive: bool,
    /// The home directory of the requesting user.
    pub home: &'a str,
    /// The directories that may be read without approval.
    pub roots: Vec<String>,
    /// Countersign's own directories, in addition to the default ones below every home.
    pub protected: Vec<String>,
    /// The operator allows this audience to read everywhere.
    pub read_all: bool,
    /// The requesting principal, its session and the tool.
    pub principal: PrincipalId,
    pub session: Option<SessionId>,
    pub tool: Tool,
    /// The session's temporary folder: no grant is saved for it.
    pub session_folder: Option<String>,
    /// The time of the decision; a grant may have expired.
    pub now: Timestamp,
    /// The key of the digests that record operands and assignments.
    pub key: &'a HomeKey,
    /// The configuration cannot be read: only commands that provably read may run.
    pub degraded: bool,
}

/// The key for judging without a home.
static NO_KEY: HomeKey = HomeKey::new([0; 32]);

impl<'a> JudgeContext<'a> {
    /// A user at a terminal, with the default profile, on a kernel that can confine.
    #[must_use]
    pub fn personal(home: &'a str, roots: Vec<String>) -> Self {
        Self {
            profile: Profile::Safe,
            audience: Audience::Personal,
            attended: true,
            kernel: Kernel::FULL,
            requested_confinement: None,
            requested_network: None,
            granted_sandbox: GrantedSandbox::Narrow,
            network_limit: Network::Open,
            background: false,
            interactive: false,
            home,
            roots,
            protected: Vec::new(),
            read_all: false,
            principal: PrincipalId::owner(),
            session: None,
            tool: Tool::Shell,
            session_folder: None,
            now: Timestamp::from_micros(0),
            key: &NO_KEY,
            degraded: false,
        }
    }
}

/// Judges a plan.
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
    let notes = risk_notes(&risks);
    let mut assessment = Assessment {
        verdict: Verdict::Ask { uncovered: Vec::new() },
        risks: notes,
        sandbox: Sandbox::default(),
        coverage: Vec::new(),
        one_shot: false,
        directories: plan.occurrences.iter().map(|o| grant::working_directories(o, facts)).collect(),
        culprit: None,
    };
    assessment.coverage = cover_occurrences(plan, &risks, facts, context, rules, grants);
    assessment.one_shot = uncovered(&assessment.coverage).iter().any(|n| !can_be_saved(&plan.occurrences[*n]));
    if let Some((culprit, refusal)) =
        deny::find_hard_deny(plan, facts, context).or_else(|| rules.find_denial(plan, &risks, facts, context))
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
    let ask_whole_plan = ask_where_not_confined(&case, reads, privileged, &mut assessment.coverage);
    let covered = uncovered(&assessment.coverage).is_empty();
    let only_reads = reads && covered && !ask_whole_plan && assessment.grants().is_empty();
    assessment.sandbox = if only_reads { read_only_sandbox() } else { case.accepted_sandbox(&assessment.coverage) };
    apply_requested_confinement(&case, privileged, &mut assessment);
    let input = VerdictInput { privileged, must_ask, only_reads, ask_whole_plan };
    (assessment.verdict, assessment.sandbox) = input.decide(plan, context, &assessment);
    assessment
}

/// The indexes of the occurrences that nothing covers.
pub(crate) fn uncovered(coverage: &[Coverage]) -> Vec<usize> {
    (0..coverage.len()).filter(|n| !coverage[*n].is_covered()).collect()
}

/// Whether every occurrence of a plan is proved read-only.
fn only_reads(coverage: &[Coverage]) -> bool {
    coverage.iter().all(|c| matches!(c, Coverage::SideEffect | Coverage::Phrase(_) | Coverage::Elsewhere))
}

/// A read-only command runs without approval because the kernel enforces that it only reads. Where the kernel cannot,
/// or the request asks for more, the user is asked. Returns true if the plan has no occurrence to ask about and still
/// cannot be confined: the user is then asked about the whole plan.
fn ask_where_not_confined(case: &SandboxCase<'_>, reads: bool, privileged: bool, coverage: &mut [Coverage]) -> bool {
    let SandboxCase { plan, risks, facts, context, grants, .. } = case;
    let reason = if reads { why_not_confined(plan, context) } else { None };
    if let Some((why, help)) = reason {
        cover_unconfined_reads(plan, risks, facts, context, grants, &|| not_covered(why, help), coverage);
    }
    if privileged && uncovered(coverage).is_empty() {
        ask_beside_privileged(plan, coverage);
    }
    reason.is_some() && plan.occurrences.is_empty()
}

/// Applies the confinement that the request asks for, if it differs. A wider one needs approval.
fn apply_requested_confinement(case: &SandboxCase<'_>, privileged: bool, assessment: &mut Assessment) {
    // A request cannot widen the operator's limit.
    let requested = case.context.requested_confinement.map(|w| w.max(case.operators_limit()));
    let Some(requested) = requested.filter(|w| *w != assessment.sandbox.confinement && !privileged) else { return };
    if requested < assessment.sandbox.confinement {
        ask_for_wider(requested, case.grants, &mut assessment.coverage);
    }
    assessment.sandbox = with_requested_confinement(std::mem::take(&mut assessment.sandbox), requested);
}

/// A privileged command runs without confinement, and so would the commands beside it. A grant or rule that covers
/// those was not made for that combination, so the user is asked, except for read-only commands.
fn ask_beside_privileged(plan: &Plan, coverage: &mut [Coverage]) {
    for (occurrence, coverage) in plan.occurrences.iter().zip(coverage) {
        if !occurrence.privileged && matches!(coverage, Coverage::Grant { .. } | Coverage::Rule(_)) {
            *coverage = not_covered(
                "it would run without a sandbox, because a command beside it asks for another user's rights",
                "run it separately, or a person's approval",
            );
        }
    }
}

/// Why a read-only command cannot run without approval, and what would help.
fn why_not_confined(plan: &Plan, context: &JudgeContext<'_>) -> Option<(&'static str, &'static str)> {
    if context.requested_confinement.is_some_and(|requested| requested != Confinement::ReadOnly) {
        return Some(("it only reads, but the request asks for another sandbox than read-only", "a person's approval"));
    }
    if !context.kernel.can_enforce(Confinement::ReadOnly) {
        let help = "a kernel with Landlock (Linux 6.2 or newer), or a person's approval";
        return Some(("it only reads, but this kernel cannot enforce that", help));
    }
    if !context.kernel.can_scope_signals() && plan.occurrences.iter().any(|o| o.timed) {
        let why = "`timeout` must send a signal, which this kernel does not allow in the sandbox";
        return Some((why, "leave `timeout` out (the task has its own time limit), or a person's approval"));
    }
    None
}

/// The sandbox of a plan that only reads.
fn read_only_sandbox() -> Sandbox {
    Sandbox::plain(Confinement::ReadOnly, Network::None, SandboxReason::OnlyReads)
}

/// A grant or rule includes a sandbox; a request for a wider one needs approval.
fn ask_for_wider(requested: Confinement, grants: &Grants, coverage: &mut [Coverage]) {
    for coverage in coverage {
        let narrow = match coverage {
            Coverage::Grant { id, .. } => grants.get(*id).is_none_or(|g| g.sandbox == GrantSandbox::Narrow),
            Coverage::Rule(_) => true,
            _ => false,
        };
        if narrow {
            let why =
                format!("the request asks for a wider sandbox ({}) than the grant or rule gives", requested.as_str());
            *coverage = not_covered(why, "leave `confinement` out, or a person's approval");
        }
    }
}

/// Gives the sandbox the confinement that the request asks for.
fn with_requested_confinement(sandbox: Sandbox, requested: Confinement) -> Sandbox {
    let why = SandboxReason::Requested;
    if requested <= sandbox.confinement && requested <= Confinement::Shield {
        // `shield` restricts neither paths nor the network.
        return Sandbox::plain(requested, Network::Open, why);
    }
    Sandbox { confinement: requested, why, ..sandbox }
}

/// For read-only commands that nothing would confine: a grant covers each, or the user is asked.
fn cover_unconfined_reads(
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
            coverage[n] = covering_grant(occurrence, &risks[n], facts, context, grants).unwrap_or_else(why);
        }
    }
    // Builtins run together with a granted command. Without one, they need approval too.
    if !coverage.iter().any(|c| matches!(c, Coverage::Grant { .. })) {
        for (n, occurrence) in plan.occurrences.iter().enumerate() {
            if let Coverage::SideEffect = coverage[n]
                && let Some(covered) = covering_grant(occurrence, &risks[n], facts, context, grants)
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

fn risk_notes(risks: &[Vec<(Risk, &'static str)>]) -> Vec<RiskNote> {
    let each = risks.iter().enumerate();
    each.flat_map(|(occurrence, all)| {
        all.iter().map(move |(risk, reason)| RiskNote { risk: *risk, occurrence, reason })
    })
    .collect()
}

/// The risks of an occurrence, including those that follow from the facts.
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
        let (path, resolved) = path_and_target(scope, facts);
        if holds_secrets(scope, facts, context.home) {
            add(Risk::Credential, "reads files or settings that may hold secrets");
        }
        if scope.recursive {
            for place in [path, resolved] {
                if scope.kind != PathKind::Name && paths::covers_credentials(place, context.home) {
                    add(Risk::Credential, "the directory tree includes keys and tokens");
                }
                if is_wide(place, context) {
                    add(
                        Risk::FilesystemWide,
                        "reaches the whole file system, a home, or a directory above a workspace root",
                    );
                }
            }
        }
        if scope.write && (paths::is_system_place(path, context.home) || paths::is_system_place(resolved, context.home))
        {
            add(Risk::HostModifying, "writes to a system directory or a startup file");
        }
        if scope.write && [path, resolved].iter().any(|p| p.split('/').any(|part| part == ".git")) {
            add(Risk::WorkspaceCode, "changes git's own files, which can name programs to run");
        }
        // Without a fact, a file in a system directory counts as existing.
        let found = facts.paths.get(&scope.walked);
        let exists = found.map_or(paths::is_system_place(path, "/"), |f| f.kind == PathTargetKind::File);
        let overwrites = occurrence.redirects.iter().any(|r| r.write && !r.append);
        if scope.write && exists && overwrites && !in_roots(resolved, context) {
            add(Risk::Destructive, "overwrites a file outside the workspace roots");
        }
        if paths::is_protected(path, context.home, &context.protected)
            || paths::is_protected(resolved, context.home, &context.protected)
        {
            add(Risk::OfSelf, "touches Countersign's own files");
        }
    }
    if occurrence.program == "csn" || occurrence.program == "csn-shim" {
        add(Risk::OfSelf, "runs Countersign itself");
    }
    if context.interactive {
        add(Risk::Interactive, "gets a terminal: its later input is not known");
    }
    let reads = matches!(occurrence.reading, ReadOnlyProof::SideEffect | ReadOnlyProof::Phrase(_));
    if context.requested_network == Some(Network::Open) && !reads {
        add(Risk::Network, "the request asks for network access");
    }
    if context.background {
        add(Risk::Background, "keeps running in the background");
    }
    risks
}

fn path_and_target<'s>(scope: &'s PathScope, facts: &'s Facts) -> (&'s str, &'s str) {
    let resolved = facts.paths.get(&scope.walked).map_or(scope.path.as_str(), |f| f.resolved.as_str());
    (&scope.path, resolved)
}

fn holds_secrets(scope: &PathScope, facts: &Facts, home: &str) -> bool {
    if scope.pattern && scope.kind == PathKind::Name {
        return false;
    }
    if scope.pattern {
        return paths::glob_aims_at_credentials(&scope.walked, home)
            || facts
                .patterns
                .get(&scope.walked)
                .and_then(Option::as_ref)
                .is_some_and(|all| all.iter().any(|p| paths::is_credential(p, home)));
    }
    let (path, resolved) = path_and_target(scope, facts);
    let found = facts.paths.get(&scope.walked).map(|f| f.kind);
    paths::shows_secrets(scope, found, path, home)
        || resolved != path && paths::shows_secrets(scope, found, resolved, home)
}

fn is_wide(path: &str, context: &JudgeContext<'_>) -> bool {
    path == "/"
        || path == "/home"
        || paths::below_home(path, context.home) == Some("")
        || context.roots.iter().any(|root| root != path && paths::inside(root, path))
}

fn in_roots(path: &str, context: &JudgeContext<'_>) -> bool {
    context.roots.iter().any(|root| paths::inside(path, &paths::clean(root)))
}

/// Decides what covers each occurrence.
fn cover_occurrences(
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
            let rule_verdict = rules.decide_rule(occurrence, risks, facts);
            if rule_verdict == RuleVerdict::Ask {
                return not_covered("an operator rule requires approval for this", "a person's approval");
            }
            match prove_read_only(occurrence, risks, facts, context) {
                Ok(coverage) => coverage,
                Err(why) => match rule_verdict {
                    // Rules that allow do not apply to the public audience.
                    RuleVerdict::Allow(name) if context.audience != Audience::Public => Coverage::Rule(name),
                    RuleVerdict::Allow(_) | RuleVerdict::Ask | RuleVerdict::NoRule => {
                        covering_grant(occurrence, risks, facts, context, grants).unwrap_or(why)
                    }
                },
            }
        })
        .collect();
    // A command beside a granted one is not confined to reading, so it counts as read-only only if all its words are
    // literal.
    if all.iter().any(|c| matches!(c, Coverage::Grant { .. } | Coverage::Rule(_))) {
        for (n, occurrence) in plan.occurrences.iter().enumerate() {
            if matches!(all[n], Coverage::Phrase(_)) && !occurrence.literal {
                let set: Vec<(Risk, &'static str)> = risks[n].clone();
                all[n] = covering_grant(occurrence, &set, facts, context, grants).unwrap_or_else(|| {
                    not_covered(
                        "beside a granted command it would not be confined to reading, and not all of its arguments are literal",
                        "run it separately from the granted command",
                    )
                });
            }
        }
    }
    // A `cd` into a directory where the rest is granted needs no approval of its own.
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

fn not_covered(why: impl Into<String>, help: impl Into<String>) -> Coverage {
    Coverage::None { why: why.into(), help: help.into() }
}

fn covering_grant(
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
    let covering = grant::find_covering_grant(grants, occurrence, &set, facts, context)?;
    Some(Coverage::Grant { id: covering.id?, label: Label::from_grant(covering).to_string() })
}

/// Proves that an occurrence only reads, and only paths that may be read without approval; otherwise says why not.
fn prove_read_only(
    occurrence: &Occurrence,
    risks: &[(Risk, &'static str)],
    facts: &Facts,
    context: &JudgeContext<'_>,
) -> Result<Coverage, Coverage> {
    let grant = || {
        let directory = match &grant::working_directories(occurrence, facts)[..] {
            [one] => format!(" in {one}"),
            _ => String::new(),
        };
        // A grant that names risks accepts only those.
        let beyond = risks.iter().any(|(r, _)| *r != Risk::Write && !occurrence.base_risks.contains(r));
        let named: Vec<&str> = risks.iter().map(|(r, _)| r.as_str()).collect();
        let accepting = if beyond { format!(" that accepts {}", named.join(", ")) } else { String::new() };
        format!("a grant for `{}`{directory}{accepting}, or a person's approval", occurrence.verb)
    };
    if let Some(why) = occurrence.opaque {
        return Err(not_covered(
            format!("cannot be analysed: {}", why.reason()),
            "a person's approval, once; or a form of the command that can be analysed",
        ));
    }
    if occurrence.privileged {
        return Err(not_covered("asks for another user's rights", "a person's approval"));
    }
    if let Some((_, reason)) = risks.iter().find(|(r, _)| *r == Risk::Credential) {
        return Err(not_covered(*reason, "a person's approval"));
    }
    let covered = match &occurrence.reading {
        ReadOnlyProof::SideEffect => Coverage::SideEffect,
        ReadOnlyProof::Phrase(name) => Coverage::Phrase(name),
        ReadOnlyProof::Not(why) => {
            return Err(not_covered(format!("not a known read-only form of `{}`: {why}", occurrence.verb), grant()));
        }
        ReadOnlyProof::Unknown => {
            let why = risks.first().map_or("not known to be read-only", |(_, reason)| *reason);
            return Err(not_covered(why, grant()));
        }
    };
    // Only the variables that bash itself uses affect a builtin. Behind a wrapper, the builtin's name means a
    // program.
    let matters =
        |name: &str| covered != Coverage::SideEffect || occurrence.wrapped || crate::shell::is_bash_variable(name);
    if let Some(assignment) = occurrence.assignments.iter().find(|a| matters(&a.name)) {
        return Err(not_covered(
            format!("{} is set for it and may change what it does", assignment.name),
            "leave the assignment out, or a person's approval",
        ));
    }
    if let Some((_, reason)) = risks.iter().find(|(r, _)| *r != Risk::FilesystemWide) {
        return Err(not_covered(*reason, grant()));
    }
    if let Some(path) = grant::shadowing_program(occurrence, facts, context) {
        return Err(not_covered(format!("its name resolves to {path}, which the agent can change"), grant()));
    }
    let unknown_directory = matches!(&occurrence.directory, Directory::Unknown);
    if occurrence.loose {
        let why = if unknown_directory {
            "the directory it runs in is not known"
        } else {
            "an argument that may be a path or an option is not known"
        };
        return Err(not_covered(why, "write the path out in full, or a person's approval"));
    }
    for scope in &occurrence.scopes {
        if scope.write {
            return Err(not_covered("writes a file", grant()));
        }
        if let Some(outside) = path_outside_roots(scope, facts, context) {
            return Err(not_covered(format!("{outside} is outside the workspace roots"), grant()));
        }
    }
    if occurrence.redirects.iter().any(|r| matches!(r.target.value, WordValue::Unknown) && r.target.hint.is_none()) {
        return Err(not_covered(
            "the target of a redirect is not known",
            "write the path out in full, or a person's approval",
        ));
    }
    Ok(covered)
}

/// The path of a scope that is outside the roots.
fn path_outside_roots(scope: &PathScope, facts: &Facts, context: &JudgeContext<'_>) -> Option<String> {
    if context.read_all && context.audience == Audience::Personal {
        return None;
    }
    let (path, resolved) = path_and_target(scope, facts);
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
            return Some(format!("possibly one of the many files that match {}", scope.walked));
        }
        let matched = facts.patterns.get(&scope.walked).and_then(Option::as_ref);
        let all = cover.into_iter().chain(matched.into_iter().flatten().map(String::as_str));
        return all.into_iter().find(|p| !in_roots(p, context)).map(str::to_owned);
    }
    None
}

/// Whether a grant can be saved for an occurrence.
pub(crate) fn can_be_saved(occurrence: &Occurrence) -> bool {
    occurrence.opaque.is_none() && !occurrence.loose && matches!(occurrence.directory, Directory::Known(_))
}
