//! The sandbox of a plan that is let run: the narrowest that what was accepted needs.
//!
//! A person, a grant or a rule accepts the risks of the commands that they see. A command that nobody saw gets no more than
//! those risks need: the workspace for what writes, the network only where `network` was accepted, the paths that were named.

use crate::{judge::JudgeContext, paths, rules::CheckedRules, tables};
use countersign_model::{
    Confinement, Coverage, Directory, Facts, GrantSandbox, GrantedSandbox, Grants, Network, Occurrence, PathKind,
    PathScope, PathTargetKind, Plan, ReadOnlyProof, Risk, Sandbox, SandboxReason, places,
};

/// More paths than this are not named one by one.
const MAX_NAMED_PATHS: usize = 32;

/// Everything that a sandbox is chosen by.
pub(crate) struct SandboxCase<'a> {
    pub(crate) plan: &'a Plan,
    /// The risks of each occurrence, with what the world adds to them.
    pub(crate) risks: &'a [Vec<(Risk, &'static str)>],
    pub(crate) facts: &'a Facts,
    pub(crate) context: &'a JudgeContext<'a>,
    pub(crate) rules: &'a CheckedRules,
    pub(crate) grants: &'a Grants,
}

impl SandboxCase<'_> {
    /// What the plan gets if it is let run as it was asked about: by its risks, then by grants, rules and the operator.
    pub(crate) fn accepted(&self, coverage: &[Coverage]) -> Sandbox {
        let context = self.context;
        if self.risks.iter().flatten().any(|(r, _)| *r == Risk::Privileged) {
            // Other rights cannot be gained behind a shield: a person who allows this allows all of it.
            return Sandbox::plain(Confinement::None, Network::Open, SandboxReason::Accepted(Risk::Privileged));
        }
        // The supervisor reads or writes the one file by itself: no process runs.
        if context.tool.is_builtin() {
            return Sandbox::plain(Confinement::Shield, Network::Open, SandboxReason::Writes);
        }
        let mut sandbox = self.needed(coverage);
        let granting = || {
            coverage.iter().filter_map(|c| match c {
                Coverage::Grant { id, .. } => self.grants.get(*id),
                _ => None,
            })
        };
        let open = granting().any(|g| g.sandbox == GrantSandbox::Open && g.confinement <= Confinement::Shield);
        let widen = |sandbox: &mut Sandbox, why| {
            if sandbox.confinement > Confinement::Shield {
                *sandbox = Sandbox::plain(Confinement::Shield, Network::Open, why);
            }
        };
        if open {
            widen(&mut sandbox, SandboxReason::EarlierGrant);
        }
        let by_rule = || (0..self.plan.occurrences.len()).map(|n| self.rule_confinement(n));
        if by_rule().any(|c| c == Confinement::Shield) {
            widen(&mut sandbox, SandboxReason::Rule);
        }
        match context.granted {
            GrantedSandbox::Shield => widen(&mut sandbox, SandboxReason::Operator),
            GrantedSandbox::Narrow | GrantedSandbox::Workspace => {}
        }
        // A kernel that cannot confine: a person, a grant or a rule lets it run all the same, and is told so.
        if !context.kernel.can_enforce(sandbox.confinement) {
            sandbox = Sandbox::plain(Confinement::Shield, Network::Open, SandboxReason::Kernel);
        } else if sandbox.confinement == Confinement::ReadOnly
            && !context.kernel.can_scope_signals()
            && self.plan.occurrences.iter().any(|o| o.timed)
        {
            sandbox.confinement = Confinement::Workspace;
            sandbox.why = SandboxReason::Kernel;
        }
        if context.granted == GrantedSandbox::Workspace && sandbox.confinement < Confinement::Workspace {
            sandbox.confinement = Confinement::Workspace;
            sandbox.why = SandboxReason::Operator;
        }
        let narrowest = |level: Confinement, why, sandbox: &mut Sandbox| {
            if level > sandbox.confinement {
                (sandbox.confinement, sandbox.why) = (level, why);
            }
        };
        narrowest(by_rule().max().unwrap_or_default(), SandboxReason::Rule, &mut sandbox);
        let of_grants = granting().map(|g| g.confinement).max().unwrap_or_default();
        narrowest(of_grants, SandboxReason::Requested, &mut sandbox);
        if context.network == Network::None || context.wanted_network == Some(Network::None) {
            sandbox.network = Network::None;
        }
        // Behind a shield there is nothing that would hold it.
        if sandbox.confinement <= Confinement::Shield {
            sandbox.network = Network::Open;
        }
        sandbox
    }

    /// The widest confinement that the operator lets a request ask for.
    pub(crate) fn operators_limit(&self) -> Confinement {
        let of_rules = (0..self.plan.occurrences.len()).map(|n| self.rule_confinement(n)).max().unwrap_or_default();
        match self.context.granted {
            GrantedSandbox::Workspace => of_rules.max(Confinement::Workspace),
            GrantedSandbox::Narrow | GrantedSandbox::Shield => of_rules,
        }
    }

    fn rule_confinement(&self, n: usize) -> Confinement {
        self.rules.confinement(&self.plan.occurrences[n], &self.risks[n], self.facts)
    }

    /// What the risks of the plan need, and nothing else.
    fn needed(&self, coverage: &[Coverage]) -> Sandbox {
        let mut need = SandboxNeed {
            case: self,
            sandbox: Sandbox::plain(Confinement::ReadOnly, Network::None, SandboxReason::OnlyReads),
            asked: true,
        };
        let login = self.login(coverage);
        for (n, occurrence) in self.plan.occurrences.iter().enumerate() {
            if matches!(coverage[n], Coverage::SideEffect | Coverage::Phrase(_)) || occurrence.remote {
                continue;
            }
            need.asked = matches!(coverage[n], Coverage::None { .. });
            need.occurrence(n, occurrence, login);
            need.sandbox.network = match &coverage[n] {
                // What a grant or a rule accepts counts, also where the table does not know that the program needs it.
                Coverage::Grant { id, .. }
                    if self.grants.get(*id).is_some_and(|g| accepts_network(g.risks.as_deref())) =>
                {
                    Network::Open
                }
                Coverage::Rule(name) if accepts_network(self.rules.risks_of(name)) => Network::Open,
                _ => need.sandbox.network,
            };
        }
        if login && need.sandbox.confinement == Confinement::Workspace {
            need.log_in();
        }
        let SandboxNeed { mut sandbox, .. } = need;
        let Sandbox { reads, writes, .. } = &mut sandbox;
        reads.retain(|read| !writes.iter().any(|written| paths::inside(read, written)));
        for paths in [&mut sandbox.reads, &mut sandbox.writes, &mut sandbox.keys] {
            paths.sort_unstable();
            paths.dedup();
        }
        // Whatever is beyond that is not given.
        for paths in [&mut sandbox.reads, &mut sandbox.writes, &mut sandbox.keys] {
            paths.truncate(MAX_NAMED_PATHS);
        }
        sandbox
    }

    /// Whether a known tool gets what it signs in with: only where nothing else but reading stands beside it.
    fn login(&self, coverage: &[Coverage]) -> bool {
        let mut acting = self
            .plan
            .occurrences
            .iter()
            .zip(coverage)
            .filter(|(o, c)| !matches!(c, Coverage::SideEffect | Coverage::Phrase(_)) && !o.remote);
        let Some((first, _)) = acting.clone().next() else { return false };
        // Something opaque could be any program, and a program of the workspace can call itself anything.
        let plain = |o: &Occurrence| o.opaque.is_none() && self.is_known(o);
        acting.clone().any(|(o, _)| tables::login(o).is_some())
            && acting.all(|(o, _)| o.program == first.program && plain(o))
    }

    /// The program is the one that its name says.
    fn is_known(&self, occurrence: &Occurrence) -> bool {
        !occurrence.verb.starts_with('/') && crate::grant::shadowed(occurrence, self.facts, self.context).is_none()
    }
}

fn accepts_network(risks: Option<&[Risk]>) -> bool {
    risks.is_some_and(|risks| risks.contains(&Risk::Network))
}

/// A sandbox that grows as occurrences need more.
struct SandboxNeed<'a> {
    case: &'a SandboxCase<'a>,
    sandbox: Sandbox,
    /// A person is asked about this occurrence, and sees what sandbox it would get. What a grant or a rule covers was not
    /// shown: a path that it names does not open the sandbox.
    asked: bool,
}

impl SandboxNeed<'_> {
    fn widen(&mut self, level: Confinement, why: SandboxReason) {
        if why == SandboxReason::Outside && !self.asked {
            return;
        }
        if level < self.sandbox.confinement {
            (self.sandbox.confinement, self.sandbox.why) = (level, why);
        }
    }

    fn occurrence(&mut self, n: usize, occurrence: &Occurrence, login: bool) {
        let reads = matches!(occurrence.reading, ReadOnlyProof::SideEffect | ReadOnlyProof::Phrase(_))
            && occurrence.opaque.is_none()
            && !occurrence.scopes.iter().any(|s| s.write);
        if !reads {
            self.widen(Confinement::Workspace, SandboxReason::Writes);
        }
        for (risk, _) in &self.case.risks[n] {
            let of_verb = occurrence.risks.iter().any(|(r, _)| r == risk);
            match risk {
                Risk::Network => self.sandbox.network = Network::Open,
                Risk::HostModifying if of_verb => self.widen(Confinement::Shield, SandboxReason::Accepted(*risk)),
                Risk::FilesystemWide if !reads => self.widen(Confinement::Shield, SandboxReason::Accepted(*risk)),
                Risk::Credential if of_verb && !(login && tables::login(occurrence).is_some()) => {
                    self.widen(Confinement::Shield, SandboxReason::Accepted(*risk));
                }
                // It speaks with the daemon over its socket.
                Risk::OfSelf => {
                    self.widen(Confinement::Workspace, SandboxReason::Writes);
                    self.sandbox.unix_sockets = true;
                }
                _ => {}
            }
        }
        for scope in &occurrence.scopes {
            self.scope(n, scope, reads);
        }
        if !reads && let Directory::Known(all) = &occurrence.directory {
            for directory in all {
                let resolved = self.resolved(directory).to_owned();
                if !self.in_roots(&resolved) {
                    self.write_below(resolved);
                }
            }
        }
    }

    fn resolved<'p>(&'p self, path: &'p str) -> &'p str {
        let facts = self.case.facts;
        match facts.paths.get(path) {
            Some(found) => &found.resolved,
            None if path == facts.cwd.path => &facts.cwd.resolved,
            None => path,
        }
    }

    fn in_roots(&self, path: &str) -> bool {
        self.case.context.roots.iter().any(|root| paths::inside(path, &paths::clean(root)))
    }

    fn scope(&mut self, n: usize, scope: &PathScope, reads: bool) {
        let found = self.case.facts.paths.get(&scope.walked);
        let kind = found.map(|f| f.kind);
        if paths::is_source(&scope.path)
            || paths::is_sink(&scope.path)
            || scope.kind == PathKind::Perhaps && matches!(kind, None | Some(PathTargetKind::Absent))
        {
            return;
        }
        let resolved = match scope.pattern {
            true => self.resolved(&scope.path).to_owned(),
            false => found.map_or_else(|| scope.path.clone(), |f| f.resolved.clone()),
        };
        let home = self.case.context.home;
        let secret =
            !scope.pattern && (paths::is_credential(&scope.path, home) || paths::is_credential(&resolved, home));
        if secret {
            self.sandbox.keys.push(resolved.clone());
        }
        if self.in_roots(&resolved) {
            return;
        }
        // A directory that a command works in, and not only reads: `git -C`, `make -C`, `npm --prefix`.
        let works_there = !reads && scope.kind == PathKind::Directory;
        match (scope.write, kind) {
            (false, _) if works_there => self.write_below(resolved),
            (false, _) if !secret => self.sandbox.reads.push(resolved),
            (false, _) => {}
            (true, Some(PathTargetKind::Directory)) if scope.kind != PathKind::Entry => self.write_below(resolved),
            (true, _) if self.can_be_written(paths::parent(&resolved)) => {
                self.sandbox.writes.push(paths::parent(&resolved).to_owned());
            }
            (true, Some(PathTargetKind::File)) if scope.kind != PathKind::Entry => self.sandbox.writes.push(resolved),
            (true, _) => {
                let of_host = self.case.risks[n].iter().any(|(r, _)| *r == Risk::HostModifying);
                let why = if of_host { SandboxReason::Accepted(Risk::HostModifying) } else { SandboxReason::Outside };
                self.widen(Confinement::Shield, why);
            }
        }
    }

    fn write_below(&mut self, directory: String) {
        if self.can_be_written(&directory) {
            self.sandbox.writes.push(directory);
        } else {
            self.widen(Confinement::Shield, SandboxReason::Outside);
        }
    }

    /// Whether a rule for all of a directory gives no more than what was named: a rule holds for everything below.
    fn can_be_written(&self, directory: &str) -> bool {
        let context = self.case.context;
        let temporary = ["/tmp", "/var/tmp"].iter().any(|t| paths::inside(directory, t));
        let deep = directory.split('/').filter(|c| !c.is_empty()).count() >= 2;
        (temporary || deep)
            && !paths::is_system_place(directory, context.home)
            && paths::below_home(directory, context.home) != Some("")
            && !paths::is_credential(directory, context.home)
            && !places::is_delicate(directory, context.home, &context.protected)
            && !context.roots.iter().any(|root| root != directory && paths::inside(root, directory))
    }

    /// What its tools sign in with: files of the home, and local sockets.
    fn log_in(&mut self) {
        let case = self.case;
        for login in case.plan.occurrences.iter().filter_map(tables::login) {
            for home in case.context.home.split(':').filter(|h| h.starts_with('/')) {
                let at = |name: &&str| format!("{}/{name}", home.trim_end_matches('/'));
                self.sandbox.keys.extend(login.reads.iter().map(at));
                self.sandbox.writes.extend(login.writes.iter().map(at));
            }
            self.sandbox.unix_sockets |= login.sockets;
        }
    }
}
