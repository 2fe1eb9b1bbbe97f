//! Chooses the sandbox of a plan that may run: the narrowest that the accepted risks need.
//!
//! A user, a grant or a rule accepts the risks of the commands that the plan shows. Commands that those start are not
//! shown, and get no more than these risks need: the workspace for writing, the network only if `network` was
//! accepted, and the named paths.

use crate::{judge::JudgeContext, paths, rules::CheckedRules, tables};
use countersign_model::{
    Confinement, Coverage, Directory, Facts, GrantSandbox, GrantedSandbox, Grants, Network, Occurrence, PathKind,
    PathScope, PathTargetKind, Plan, ReadOnlyProof, Risk, Sandbox, SandboxReason, places,
};

/// A sandbox names at most this many paths of each kind.
const MAX_NAMED_PATHS: usize = 32;

/// The input for choosing a sandbox.
pub(crate) struct SandboxCase<'a> {
    pub(crate) plan: &'a Plan,
    /// The risks of each occurrence, including those that follow from the facts.
    pub(crate) risks: &'a [Vec<(Risk, &'static str)>],
    pub(crate) facts: &'a Facts,
    pub(crate) context: &'a JudgeContext<'a>,
    pub(crate) rules: &'a CheckedRules,
    pub(crate) grants: &'a Grants,
}

impl SandboxCase<'_> {
    /// The sandbox of the plan once it is accepted: by its risks, then by grants, rules and the operator.
    pub(crate) fn accepted_sandbox(&self, coverage: &[Coverage]) -> Sandbox {
        let context = self.context;
        if self.risks.iter().flatten().any(|(r, _)| *r == Risk::Privileged) {
            // Other rights cannot be gained under `shield`, so an approved privileged plan runs without confinement.
            return Sandbox::plain(Confinement::None, Network::Open, SandboxReason::Accepted(Risk::Privileged));
        }
        // A file tool runs no process: the shim itself reads or writes the one file.
        if context.tool.is_builtin() {
            return Sandbox::plain(Confinement::Shield, Network::Open, SandboxReason::Writes);
        }
        let mut sandbox = self.needed_sandbox(coverage);
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
        match context.granted_sandbox {
            GrantedSandbox::Shield => widen(&mut sandbox, SandboxReason::Operator),
            GrantedSandbox::Narrow | GrantedSandbox::Workspace => {}
        }
        // On a kernel that cannot confine, an accepted plan still runs, and the sandbox gives the kernel as the
        // reason.
        if !context.kernel.can_enforce(sandbox.confinement) {
            sandbox = Sandbox::plain(Confinement::Shield, Network::Open, SandboxReason::Kernel);
        } else if sandbox.confinement == Confinement::ReadOnly
            && !context.kernel.can_scope_signals()
            && self.plan.occurrences.iter().any(|o| o.timed)
        {
            sandbox.confinement = Confinement::Workspace;
            sandbox.why = SandboxReason::Kernel;
        }
        if context.granted_sandbox == GrantedSandbox::Workspace && sandbox.confinement < Confinement::Workspace {
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
        if context.network_limit == Network::None || context.requested_network == Some(Network::None) {
            sandbox.network = Network::None;
        }
        // `shield` does not restrict the network.
        if sandbox.confinement <= Confinement::Shield {
            sandbox.network = Network::Open;
        }
        sandbox
    }

    /// The widest confinement that the operator lets a request ask for.
    pub(crate) fn operators_limit(&self) -> Confinement {
        let of_rules = (0..self.plan.occurrences.len()).map(|n| self.rule_confinement(n)).max().unwrap_or_default();
        match self.context.granted_sandbox {
            GrantedSandbox::Workspace => of_rules.max(Confinement::Workspace),
            GrantedSandbox::Narrow | GrantedSandbox::Shield => of_rules,
        }
    }

    fn rule_confinement(&self, n: usize) -> Confinement {
        self.rules.required_confinement(&self.plan.occurrences[n], &self.risks[n], self.facts)
    }

    /// The sandbox that the risks of the plan need, and nothing more.
    fn needed_sandbox(&self, coverage: &[Coverage]) -> Sandbox {
        let mut need = SandboxNeed {
            case: self,
            sandbox: Sandbox::plain(Confinement::ReadOnly, Network::None, SandboxReason::OnlyReads),
            user_asked: true,
        };
        let login = self.may_log_in(coverage);
        for (n, occurrence) in self.plan.occurrences.iter().enumerate() {
            if matches!(coverage[n], Coverage::SideEffect | Coverage::Phrase(_)) || occurrence.remote {
                continue;
            }
            need.user_asked = matches!(coverage[n], Coverage::None { .. });
            need.add_occurrence(n, occurrence, login);
            need.sandbox.network = match &coverage[n] {
                // A grant or rule that accepts the network opens it, even if the table does not list the program as
                // needing it.
                Coverage::Grant { id, .. }
                    if self.grants.get(*id).is_some_and(|g| accepts_network(g.risks.as_deref())) =>
                {
                    Network::Open
                }
                Coverage::Rule(name) if accepts_network(self.rules.accepted_risks(name)) => Network::Open,
                _ => need.sandbox.network,
            };
        }
        if login && need.sandbox.confinement == Confinement::Workspace {
            need.add_logins();
        }
        let SandboxNeed { mut sandbox, .. } = need;
        let Sandbox { reads, writes, .. } = &mut sandbox;
        reads.retain(|read| !writes.iter().any(|written| paths::inside(read, written)));
        for paths in [&mut sandbox.reads, &mut sandbox.writes, &mut sandbox.keys] {
            paths.sort_unstable();
            paths.dedup();
        }
        // Further paths are not opened.
        for paths in [&mut sandbox.reads, &mut sandbox.writes, &mut sandbox.keys] {
            paths.truncate(MAX_NAMED_PATHS);
        }
        sandbox
    }

    /// Whether a known tool gets its login: only if every other command of the plan only reads.
    fn may_log_in(&self, coverage: &[Coverage]) -> bool {
        let mut acting = self
            .plan
            .occurrences
            .iter()
            .zip(coverage)
            .filter(|(o, c)| !matches!(c, Coverage::SideEffect | Coverage::Phrase(_)) && !o.remote);
        let Some((first, _)) = acting.clone().next() else { return false };
        // An opaque command may run any program, and a program of the workspace may have any name.
        let plain = |o: &Occurrence| o.opaque.is_none() && self.is_named_program(o);
        acting.clone().any(|(o, _)| tables::find_login(o).is_some())
            && acting.all(|(o, _)| o.program == first.program && plain(o))
    }

    /// Whether the program is the one that its name suggests.
    fn is_named_program(&self, occurrence: &Occurrence) -> bool {
        !occurrence.verb.starts_with('/')
            && crate::grant::shadowing_program(occurrence, self.facts, self.context).is_none()
    }
}

fn accepts_network(risks: Option<&[Risk]>) -> bool {
    risks.is_some_and(|risks| risks.contains(&Risk::Network))
}

/// A sandbox that widens as occurrences need more.
struct SandboxNeed<'a> {
    case: &'a SandboxCase<'a>,
    sandbox: Sandbox,
    /// The user is asked about this occurrence and sees its sandbox. A grant or a rule did not show it, so a path
    /// that the call names does not open the sandbox.
    user_asked: bool,
}

impl SandboxNeed<'_> {
    fn widen(&mut self, level: Confinement, why: SandboxReason) {
        if why == SandboxReason::Outside && !self.user_asked {
            return;
        }
        if level < self.sandbox.confinement {
            (self.sandbox.confinement, self.sandbox.why) = (level, why);
        }
    }

    fn add_occurrence(&mut self, n: usize, occurrence: &Occurrence, login: bool) {
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
                Risk::Credential if of_verb && !(login && tables::find_login(occurrence).is_some()) => {
                    self.widen(Confinement::Shield, SandboxReason::Accepted(*risk));
                }
                // `csn` connects to the daemon over a unix socket.
                Risk::OfSelf => {
                    self.widen(Confinement::Workspace, SandboxReason::Writes);
                    self.sandbox.unix_sockets = true;
                }
                _ => {}
            }
        }
        for scope in &occurrence.scopes {
            self.add_scope(n, scope, reads);
        }
        if !reads && let Directory::Known(all) = &occurrence.directory {
            for directory in all {
                let resolved = self.resolved_path(directory).to_owned();
                if !self.in_roots(&resolved) {
                    self.add_writable_directory(resolved);
                }
            }
        }
    }

    fn resolved_path<'p>(&'p self, path: &'p str) -> &'p str {
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

    fn add_scope(&mut self, n: usize, scope: &PathScope, reads: bool) {
        let found = self.case.facts.paths.get(&scope.walked);
        let kind = found.map(|f| f.kind);
        if paths::is_source(&scope.path)
            || paths::is_sink(&scope.path)
            || scope.kind == PathKind::Perhaps && matches!(kind, None | Some(PathTargetKind::Absent))
        {
            return;
        }
        let resolved = if scope.pattern {
            self.resolved_path(&scope.path).to_owned()
        } else {
            found.map_or_else(|| scope.path.clone(), |f| f.resolved.clone())
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
        // Directories that a command works in, and does not only read: `git -C`, `make -C`, `npm --prefix`.
        let works_there = !reads && scope.kind == PathKind::Directory;
        match (scope.write, kind) {
            (false, _) if works_there => self.add_writable_directory(resolved),
            (false, _) if !secret => self.sandbox.reads.push(resolved),
            (false, _) => {}
            (true, Some(PathTargetKind::Directory)) if scope.kind != PathKind::Entry => {
                self.add_writable_directory(resolved)
            }
            (true, _) if self.may_be_writable(paths::parent(&resolved)) => {
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

    fn add_writable_directory(&mut self, directory: String) {
        if self.may_be_writable(&directory) {
            self.sandbox.writes.push(directory);
        } else {
            self.widen(Confinement::Shield, SandboxReason::Outside);
        }
    }

    /// Whether a directory may be opened for writing: a kernel rule opens everything below it, which must not be more
    /// than what was named.
    fn may_be_writable(&self, directory: &str) -> bool {
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

    /// Adds what the tools of the plan log in with: files of the home, and unix sockets.
    fn add_logins(&mut self) {
        let case = self.case;
        for login in case.plan.occurrences.iter().filter_map(tables::find_login) {
            for home in case.context.home.split(':').filter(|h| h.starts_with('/')) {
                let at = |name: &&str| format!("{}/{name}", home.trim_end_matches('/'));
                self.sandbox.keys.extend(login.reads.iter().map(at));
                self.sandbox.writes.extend(login.writes.iter().map(at));
            }
            self.sandbox.unix_sockets |= login.sockets;
        }
    }
}
