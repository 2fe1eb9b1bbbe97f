//! The walls of a task: from what confinement is wanted and where its roots are to what its process gives up.
//!
//! Everything here happens before the fork. Places are opened without following links, unless only the system's owner
//! could have put them there; what a link leads to is looked at by the same table by which the gate reads.

mod clear;
mod error;
mod repository;
mod tables;

use crate::{
    gitconfig,
    seccomp::{self, SocketFamilies},
    sys::{
        confine::{self, Restrictions, limit, right},
        network::OwnNetwork,
        user::with_user_ids,
    },
};
use countersign_model::{Confinement, EnforcedSandbox, Kernel, Network, SandboxSpec, TaskUser, Text, places};
pub(crate) use error::SandboxError;
pub use repository::is_escape;
pub(crate) use repository::places_of_escapes;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, ResolveFlags, openat2},
};
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    rc::Rc,
};

const LIST: u64 = right::READ_FILE | right::READ_DIR;
const RUN: u64 = LIST | right::EXECUTE;
const MAKE: u64 = LIST
    | right::WRITE_FILE
    | right::TRUNCATE
    | right::REMOVE_DIR
    | right::REMOVE_FILE
    | right::MAKE_DIR
    | right::MAKE_REG
    | right::MAKE_SYM
    | right::REFER;
const BUILD: u64 = MAKE | right::EXECUTE | right::MAKE_SOCK | right::MAKE_FIFO;
const DEVICE: u64 = right::READ_FILE | right::WRITE_FILE | right::TRUNCATE | right::IOCTL_DEV;
/// What root keeps in a workspace: to own, change and run as whom it likes. Nothing of the machine itself.
const CAPS_OF_WORKSPACES: u64 = 0b1111_1011 | 1 << 10;
/// A confined process writes no files larger than this, and has no more memory of its own.
const LARGEST_FILE: u64 = 256 * 1024 * 1024;
/// Each may hold as much in the kernel as a socket takes.
const MOST_FILES: u64 = 1024;
pub(crate) const MEMORY: u64 = 4 * 1024 * 1024 * 1024;
/// The private directory of a confined task, in its own.
const TEMPORARY: &str = "tmp";

/// What the kernel has.
#[must_use]
pub fn kernel() -> Kernel {
    Kernel { landlock: confine::landlock_version(), seccomp: confine::has_seccomp() }
}

/// A task's confinement, ready for the fork.
pub(crate) struct Sandbox {
    pub(crate) restrictions: Restrictions,
    pub(crate) enforced: Option<EnforcedSandbox>,
    /// Variables that it gets, over what it has.
    pub(crate) env: BTreeMap<&'static str, String>,
}

/// Where it runs, beside the walls that the order names.
pub(crate) struct SandboxInput<'a> {
    /// Where its TMPDIR is to be.
    pub(crate) temporary: &'a Path,
    pub(crate) cwd: &'a str,
    pub(crate) env: &'a [(String, String)],
    /// The name of its terminal.
    pub(crate) terminal: Option<String>,
}

/// What every read-only task has of the system, made by a shim that waits: opening fifty places takes as long as starting
/// a process.
pub(crate) struct BaseRuleset {
    ruleset: OwnedFd,
    rules: Vec<PathRule>,
    version: u32,
    /// When /etc was last changed: what is replaced there is another file, which no rule names.
    etc: (i64, i64),
}

impl BaseRuleset {
    /// None where nothing could be confined anyway.
    pub(crate) fn prepare() -> Option<Self> {
        let version = kernel().landlock.min(Kernel::FULL.landlock);
        let etc = changed("/etc")?;
        let mut rules: Vec<PathRule> = of_system().collect();
        rules.iter_mut().for_each(|rule| rule.rights &= right::all(version));
        let ruleset = confine::ruleset(version, version > 0, true).ok()?;
        enter(&ruleset, &rules).ok()?;
        Some(Self { ruleset, rules, version, etc })
    }

    fn is_good(&self, version: u32) -> bool {
        self.version == version && changed("/etc") == Some(self.etc)
    }
}

fn changed(path: &str) -> Option<(i64, i64)> {
    let stat = rustix::fs::stat(path).ok()?;
    Some((stat.st_ctime, stat.st_ctime_nsec as i64))
}

/// What every confined task has of the system.
fn of_system() -> impl Iterator<Item = PathRule> {
    let rule = |path: String, rights| PathRule { path, rights, links: LinkTrust::Followed, at: RulePath::Path };
    let programs = places::PROGRAM_PLACES.iter().chain(tables::LIBRARIES).map(move |p| rule((*p).to_owned(), RUN));
    let system = tables::SYSTEM.iter().map(move |p| rule((*p).to_owned(), LIST));
    let etc = tables::ETC.iter().map(move |name| rule(format!("/etc/{name}"), LIST));
    let sources = tables::SOURCES.iter().map(move |p| rule((*p).to_owned(), right::READ_FILE));
    programs.chain(system).chain(etc).chain(sources).chain([rule("/dev/null".to_owned(), DEVICE)])
}

/// Builds what the order says. What cannot be enforced in full is refused, but for the shield, which says what it lacks.
/// `another`: whom it becomes, if that is another user, who has none of our capabilities.
pub(crate) fn build(
    confinement: Confinement,
    sandbox: &SandboxSpec,
    site: &SandboxInput<'_>,
    base_ruleset: Option<BaseRuleset>,
    another: Option<(u32, u32)>,
) -> Result<Sandbox, SandboxError> {
    let has = kernel();
    let kernel = Kernel {
        landlock: has.landlock.min(sandbox.kernel.landlock).min(Kernel::FULL.landlock),
        seccomp: has.seccomp && sandbox.kernel.seccomp,
    };
    if !kernel.can_enforce(confinement) {
        return Err(SandboxError::Kernel { wanted: confinement, landlock: kernel.landlock });
    }
    let mut built = Sandbox { restrictions: Restrictions::default(), enforced: None, env: BTreeMap::new() };
    if confinement == Confinement::None {
        return Ok(built);
    }
    built.restrictions.no_new_privileges = true;
    let missing = kernel.missing_parts(confinement).into_iter().map(Text::from_static).collect();
    let confined = confinement >= Confinement::Workspace;
    let landlock = if confined || kernel.can_scope_signals() { kernel.landlock } else { 0 };
    // Work that reaches nobody still serves and tests itself, where the kernel gives it a network of its own.
    let own_network = match (confinement, sandbox.network) {
        (Confinement::Workspace, Network::None) => OwnNetwork::available(another),
        _ => None,
    };
    built.enforced = Some(EnforcedSandbox { landlock, seccomp: confined, own_network: own_network.is_some(), missing });
    let ruleset = |net| confine::ruleset(kernel.landlock, confined, net).map_err(SandboxError::Ruleset);
    if !confined {
        built.restrictions.ruleset = if kernel.can_scope_signals() { Some(ruleset(false)?) } else { None };
        return Ok(built);
    }
    let own = make_temporary(site.temporary).map_err(SandboxError::Temporary)?;
    let temporary = site.temporary.to_owned();
    let mut plan = PathRules::new(sandbox, site.cwd, kernel.landlock);
    let whole = !places::PROGRAM_PLACES.iter().chain(tables::LIBRARIES).any(|p| plan.is_delicate(p));
    let base_ruleset =
        base_ruleset.filter(|r| confinement == Confinement::ReadOnly && whole && r.is_good(kernel.landlock));
    let alone = confinement == Confinement::ReadOnly || sandbox.network == Network::None && own_network.is_none();
    let ruleset = match base_ruleset {
        Some(base_ruleset) => {
            plan.entered = base_ruleset.rules.len();
            plan.rules = base_ruleset.rules;
            base_ruleset.ruleset
        }
        None => {
            plan.system();
            ruleset(alone)?
        }
    };
    plan.own(&temporary, own, confinement, site.terminal.as_deref());
    match confinement {
        Confinement::ReadOnly => {
            plan.reading(site, &temporary, &mut built.env);
            built.restrictions.limits = vec![
                (limit::CORE, 0),
                (limit::FSIZE, LARGEST_FILE),
                (limit::DATA, MEMORY),
                (limit::NOFILE, MOST_FILES),
            ];
            built.restrictions.limits.extend(crate::budget::most_of_user().map(|most| (limit::NPROC, most)));
            built.restrictions.keep_capabilities = confine::has_capabilities().then_some(0);
        }
        _ => {
            plan.building(site);
            built.restrictions.limits = vec![(limit::CORE, 0)];
            let keep = if another.is_some() { 0 } else { CAPS_OF_WORKSPACES };
            built.restrictions.keep_capabilities = confine::has_capabilities().then_some(keep);
        }
    }
    built.env.insert("TMPDIR", temporary.to_string_lossy().into_owned());
    enter(&ruleset, &plan.rules[plan.entered..])?;
    built.restrictions.ruleset = Some(ruleset);
    let may = SocketFamilies { inet: !alone, unix: sandbox.unix_sockets };
    built.restrictions.filter = seccomp::filter(confinement, may, kernel.can_scope_signals());
    built.restrictions.own_network = own_network;
    Ok(built)
}

/// Removes the temporary files of a confined task, whoever made them.
pub fn clear_temporary(task_dir: &Path, user: Option<&TaskUser>) {
    let temporary = temporary(task_dir, user);
    let _ = with_user_ids(user, || {
        use std::os::unix::fs::MetadataExt as _;
        // In a directory that all may write to, the name may have become somebody else's.
        let theirs =
            fs::symlink_metadata(&temporary).is_ok_and(|m| user.is_none_or(|u| m.is_dir() && m.uid() == u.uid));
        if !theirs {
            return;
        }
        // Mostly it is empty.
        if fs::remove_dir(&temporary).is_err() && fs::remove_dir_all(&temporary).is_err() {
            // Directories that may not be entered, or deeper than anybody has descriptors for.
            let _ = clear::remove(&temporary);
        }
    });
}

/// The TMPDIR of a confined task: in its own directory, or, of a user who may not look there, where theirs usually is.
pub(crate) fn temporary(task_dir: &Path, user: Option<&TaskUser>) -> PathBuf {
    match (user, task_dir.file_name()) {
        (Some(_), Some(task)) => Path::new("/tmp").join(format!("csn-{}", task.to_string_lossy())),
        _ => task_dir.join(TEMPORARY),
    }
}

/// New, and nobody else's.
fn make_temporary(at: &Path) -> io::Result<OwnedFd> {
    fs::DirBuilder::new().mode(0o700).create(at)?;
    Ok(rustix::fs::open(at, OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?)
}

/// Who may have put a link where a path leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkTrust {
    /// Only the system's owner: they are followed.
    Followed,
    /// Anybody: the path must lead where it says.
    Refused,
}

/// The places of a task and what it may do there.
struct PathRules<'a> {
    sandbox: &'a SandboxSpec,
    /// The directories that secrets lie directly in, of those that are a root or where it runs.
    cut_at: Vec<&'a str>,
    version: u32,
    rules: Vec<PathRule>,
    /// So many of them are in the ruleset already.
    entered: usize,
}

/// Rights over one place.
struct PathRule {
    path: String,
    rights: u64,
    links: LinkTrust,
    /// The place, where it had to be opened to see what it is; or the directory that it is an entry of.
    at: RulePath,
}

enum RulePath {
    Path,
    Fd(OwnedFd),
    Itself(Rc<OwnedFd>),
    Below(Rc<OwnedFd>),
}

impl<'a> PathRules<'a> {
    fn new(sandbox: &'a SandboxSpec, cwd: &'a str, version: u32) -> Self {
        let mut rules = Self { sandbox, cut_at: Vec::new(), version, rules: Vec::new(), entered: 0 };
        // A root by itself is looked at when it is given; not so one in a directory that is given anyway.
        let system = |root: &&str| places::PROGRAM_PLACES.iter().any(|p| places::inside(root, p));
        let within = sandbox.roots.iter().any(|root| places::inside(cwd, root) && root != cwd);
        let looked_at = sandbox.roots.iter().map(String::as_str).filter(system).chain(within.then_some(cwd));
        let secret = |dir: &str, (name, kind): &(String, PathKind)| {
            rules.is_secret(&format!("{}/{name}", dir.trim_end_matches('/')), *kind)
        };
        let holds = |dir: &&str| entries(dir).is_some_and(|all| all.iter().any(|entry| secret(dir, entry)));
        rules.cut_at = looked_at.filter(holds).collect();
        rules
    }

    fn add(&mut self, path: impl Into<String>, rights: u64, links: LinkTrust) {
        let path = path.into();
        if !self.has(&path, rights) {
            self.give(path, rights, links, RulePath::Path);
        }
    }

    /// Without looking whether it is given already.
    fn give(&mut self, path: impl Into<String>, rights: u64, links: LinkTrust, at: RulePath) {
        self.rules.push(PathRule { path: path.into(), rights: rights & right::all(self.version), links, at });
    }

    /// Whether these rights are given there already.
    fn has(&self, path: &str, rights: u64) -> bool {
        let rights = rights & right::all(self.version);
        self.rules.iter().any(|rule| rule.rights & rights == rights && places::inside(path, &rule.path))
    }

    fn is_secret(&self, path: &str, kind: PathKind) -> bool {
        places::is_hidden_from_readers(path, &self.sandbox.homes, kind == PathKind::Directory)
            || places::is_protected(path, &self.sandbox.homes, &self.sandbox.protected)
    }

    fn is_delicate(&self, directory: &str) -> bool {
        self.cut_at.iter().any(|cut| places::inside(cut, directory))
            || places::is_delicate(directory, &self.sandbox.homes, &self.sandbox.protected)
    }

    /// A directory without what in it is secret. `look` is whether its own entries are looked at in any case.
    fn carve(&mut self, directory: &str, rights: u64, look: bool) {
        if self.has(directory, rights) {
            return;
        }
        if !look && !self.is_delicate(directory) {
            return self.add(directory, rights, LinkTrust::Refused);
        }
        let Ok(fd) = open(directory, LinkTrust::Refused) else { return };
        let Some(entries) = entries(directory) else { return };
        let path = |name: &str| format!("{}/{name}", directory.trim_end_matches('/'));
        let apart = |(name, kind): &(String, PathKind)| {
            let path = path(name);
            *kind == PathKind::Odd
                || self.is_secret(&path, *kind)
                || *kind == PathKind::Directory && self.is_delicate(&path)
        };
        if !entries.iter().any(apart) {
            return self.give(directory, rights, LinkTrust::Refused, RulePath::Fd(fd));
        }
        // What is there may be seen; what is in it is given one by one.
        let fd = Rc::new(fd);
        self.give(directory, right::READ_DIR, LinkTrust::Refused, RulePath::Itself(Rc::clone(&fd)));
        for (name, kind) in entries {
            let path = path(&name);
            let below = RulePath::Below(Rc::clone(&fd));
            match kind {
                kind if self.is_secret(&path, kind) => {}
                PathKind::Directory if self.is_delicate(&path) => self.carve(&path, rights, false),
                PathKind::Directory => self.give(path, rights, LinkTrust::Refused, below),
                PathKind::File => self.give(path, rights & right::OF_FILES, LinkTrust::Refused, below),
                PathKind::Link | PathKind::Odd => {}
            }
        }
    }

    /// Something in a home: where it really is, unless that is where secrets are.
    fn of_home(&mut self, path: &Path, rights: u64) {
        let Some(path) = path.to_str() else { return };
        let (path, fd) = match open(path, LinkTrust::Refused) {
            Ok(fd) => (path.to_owned(), fd),
            // Through a link, of which there are few.
            Err(rustix::io::Errno::LOOP) => {
                let real = fs::canonicalize(path).ok().and_then(|p| p.into_os_string().into_string().ok());
                let Some(real) = real else { return };
                let Ok(fd) = open(&real, LinkTrust::Refused) else { return };
                (real, fd)
            }
            Err(_) => return,
        };
        let kind = kind(&fd);
        if self.is_secret(&path, kind.unwrap_or(PathKind::Odd)) || self.has(&path, rights) {
            return;
        }
        match kind {
            Some(PathKind::Directory) if self.is_delicate(&path) => self.carve(&path, rights, false),
            Some(PathKind::Directory) => self.give(path, rights, LinkTrust::Refused, RulePath::Fd(fd)),
            Some(PathKind::File) => self.give(path, rights & right::OF_FILES, LinkTrust::Refused, RulePath::Fd(fd)),
            Some(PathKind::Link | PathKind::Odd) | None => {}
        }
    }

    /// What every confined task has of the system, without what is delicate in it.
    fn system(&mut self) {
        for rule in of_system() {
            match rule.rights == RUN && self.is_delicate(&rule.path) {
                true => self.carve(&rule.path, RUN, false),
                false => self.give(rule.path, rule.rights, rule.links, RulePath::Path),
            }
        }
    }

    /// What is the task's own.
    fn own(&mut self, temporary: &Path, fd: OwnedFd, confinement: Confinement, terminal: Option<&str>) {
        let rights = if confinement == Confinement::ReadOnly { MAKE } else { BUILD };
        self.give(temporary.to_string_lossy(), rights, LinkTrust::Refused, RulePath::Fd(fd));
        if let Some(terminal) = terminal {
            self.add(terminal, DEVICE, LinkTrust::Followed);
            self.add("/dev/tty", DEVICE, LinkTrust::Followed);
        }
        for program in &self.sandbox.programs {
            // Most are the system's, and given already.
            if !self.has(program, right::EXECUTE) {
                self.of_home(Path::new(program), right::EXECUTE | right::READ_FILE);
            }
        }
    }

    fn is_in_root(&self, path: &Path) -> bool {
        self.sandbox.roots.iter().any(|root| path.starts_with(root))
    }

    /// The toolchains of the home that PATH leads to, and with them what they need.
    fn toolchains(&mut self, site: &SandboxInput<'_>, all_of_path: bool) {
        let home = Path::new(&self.sandbox.home);
        for entry in variable(site.env, "PATH").unwrap_or_default().split(':').filter(|e| e.starts_with('/')) {
            let entry = places::clean(entry);
            let chain = places::below_home(&entry, &self.sandbox.home)
                .and_then(|below| Some((below, places::TOOLCHAINS.iter().find(|t| places::inside(below, t))?)));
            match chain {
                Some((below, chain)) => {
                    let top = entry.strip_suffix(below).map_or(home, Path::new).to_owned();
                    self.of_home(&top.join(chain), RUN);
                    let companions = tables::COMPANIONS.iter().find(|(name, _)| name == chain);
                    for companion in companions.into_iter().flat_map(|(_, all)| *all) {
                        self.of_home(&top.join(companion), RUN);
                    }
                }
                // In a root it is given with that, and only where it really lies there.
                None if all_of_path && !self.is_in_root(Path::new(&entry)) => self.of_home(Path::new(&entry), RUN),
                None => {}
            }
        }
    }

    /// Reading, and nothing else.
    fn reading(&mut self, site: &SandboxInput<'_>, temporary: &Path, env: &mut BTreeMap<&'static str, String>) {
        for root in &self.sandbox.roots {
            self.carve(root, LIST, true);
        }
        self.accepted(LIST);
        if self.sandbox.read_all {
            self.carve("/", LIST, true);
        }
        self.toolchains(site, false);
        let git_dir = self.git_directories(LIST);
        let home = Path::new(&self.sandbox.home);
        let config_home = match variable(site.env, "XDG_CONFIG_HOME").map(Path::new) {
            // Elsewhere it may be anybody's, and what it names would be read.
            Some(path) if path.starts_with(home) && !self.is_in_root(path) => path.to_owned(),
            _ => home.join(".config"),
        };
        env.insert("GIT_CONFIG_GLOBAL", "/dev/null".to_owned());
        // Git, and those who leave out what it would.
        if self
            .sandbox
            .programs
            .iter()
            .map(|p| places::base(p))
            .any(|p| p.starts_with("git") || tables::LIKE_GIT.contains(&p))
        {
            let git = gitconfig::sanitise(Path::new("/etc/gitconfig"), home, &config_home, git_dir.as_deref());
            for path in git.reads.iter().filter(|p| fs::metadata(p).is_ok_and(|m| m.is_file())) {
                self.of_home(path, right::READ_FILE);
            }
            let own = temporary.join("config");
            if let Ok(config) = gitconfig::put(&git.text, &config_home, &own) {
                env.insert("GIT_CONFIG_GLOBAL", config.to_string_lossy().into_owned());
                // What else is in the real one cannot be read here anyway.
                env.insert("XDG_CONFIG_HOME", own.to_string_lossy().into_owned());
            }
        }
        let fixed = [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_PAGER", "cat"),
            ("PAGER", "cat"),
            ("MANPAGER", "cat"),
        ];
        env.extend(fixed.map(|(name, value)| (name, value.to_owned())));
    }

    /// Work on a project: the roots are written, caches too, keys are not read.
    fn building(&mut self, site: &SandboxInput<'_>) {
        for root in &self.sandbox.roots {
            self.carve(root, BUILD, false);
        }
        self.accepted(BUILD);
        let git_dir = self.git_directories(BUILD);
        self.git_settings(site, git_dir.as_deref());
        self.toolchains(site, true);
        for name in tables::ETC_OF_WORKSPACES {
            self.add(format!("/etc/{name}"), LIST, LinkTrust::Followed);
        }
        for device in tables::DEVICES {
            self.add(*device, DEVICE | MAKE, LinkTrust::Followed);
        }
        let home = Path::new(&self.sandbox.home).to_owned();
        for setting in tables::SETTINGS {
            self.of_home(&home.join(setting), LIST);
        }
        for name in tables::IF_PLAIN {
            let path = home.join(name);
            if is_plain(&path) {
                self.give(path.to_string_lossy(), right::READ_FILE, LinkTrust::Refused, RulePath::Path);
            }
        }
        let path = variable(site.env, "PATH").unwrap_or_default();
        let installed = |tool: &str| path.split(':').any(|dir| Path::new(dir).join(tool).is_file());
        for (tool, caches) in tables::CACHES {
            let makes = !tool.is_empty() && installed(tool);
            for cache in *caches {
                let at = home.join(cache);
                // A cache that its tool would make by itself is made for it: it may not write beside it.
                if (makes || *cache == ".cache") && !cache.contains("/.") {
                    let _ = fs::DirBuilder::new().recursive(true).mode(0o755).create(&at);
                }
                self.of_home(&at, BUILD);
                // Where a tool keeps a token among what it has fetched, others may still make theirs beside it.
                if self.is_delicate(&at.to_string_lossy()) {
                    self.of_cache(&at);
                }
            }
        }
    }

    /// The paths that a person, a grant or a rule has accepted beyond the roots.
    fn accepted(&mut self, write: u64) {
        let sandbox = self.sandbox;
        for path in &sandbox.reads {
            self.named(path, LIST);
        }
        for path in &sandbox.keys {
            self.key(path, LIST);
        }
        for path in sandbox.writes.iter().filter(|_| write == BUILD) {
            if places::is_credential(path, &sandbox.homes) {
                self.key(path, BUILD);
            } else {
                self.named(path, BUILD);
            }
        }
    }

    /// One path, without what is secret below it. What is yet to be made is made in the directory that is there.
    fn named(&mut self, path: &str, rights: u64) {
        let mut place = path;
        loop {
            match open(place, LinkTrust::Refused) {
                Err(rustix::io::Errno::NOENT) if rights == BUILD && self.may_hold_new(places::parent(place)) => {
                    place = places::parent(place);
                }
                Err(_) => return,
                Ok(fd) if kind(&fd) == Some(PathKind::Directory) => return self.carve(place, rights, false),
                Ok(fd) if self.is_secret(place, PathKind::File) => return drop(fd),
                Ok(fd) => return self.give(place, rights & right::OF_FILES, LinkTrust::Refused, RulePath::Fd(fd)),
            }
        }
    }

    /// Whether a directory may be given for something that is not there yet.
    fn may_hold_new(&self, directory: &str) -> bool {
        let deep = directory.split('/').filter(|c| !c.is_empty()).count() >= 2;
        (deep || directory == "/tmp") && !self.is_delicate(directory) && !self.is_secret(directory, PathKind::Directory)
    }

    /// Something called like a secret that was accepted as such; never what is countersign's own.
    fn key(&mut self, path: &str, rights: u64) {
        let sandbox = self.sandbox;
        let real = fs::canonicalize(path).ok().and_then(|p| p.into_os_string().into_string().ok());
        let Some(real) = real else { return };
        if places::is_protected(&real, &sandbox.homes, &sandbox.protected)
            || places::holds_protected(&real, &sandbox.homes, &sandbox.protected)
        {
            return;
        }
        let Ok(fd) = open(&real, LinkTrust::Refused) else { return };
        let rights = if kind(&fd) == Some(PathKind::Directory) { rights } else { rights & right::OF_FILES };
        self.give(real, rights, LinkTrust::Refused, RulePath::Fd(fd));
    }

    /// The files that git's configuration of the user includes and names: git ends where it may not read one.
    fn git_settings(&mut self, site: &SandboxInput<'_>, git_dir: Option<&Path>) {
        let home = Path::new(&self.sandbox.home);
        let config_home = match variable(site.env, "XDG_CONFIG_HOME").map(Path::new) {
            Some(path) if path.starts_with(home) && !self.is_in_root(path) => path.to_owned(),
            _ => home.join(".config"),
        };
        for path in gitconfig::named_files(Path::new("/etc/gitconfig"), home, &config_home, git_dir) {
            self.of_home(&path, RUN);
        }
    }

    /// A cache that is given entry by entry: what is new in it may be made, and written.
    fn of_cache(&mut self, at: &Path) {
        let rights = BUILD & !(right::READ_FILE | right::EXECUTE);
        let real = fs::canonicalize(at).ok().and_then(|p| p.into_os_string().into_string().ok());
        if let Some(real) = real.filter(|real| !self.is_secret(real, PathKind::Directory)) {
            self.give(real, rights, LinkTrust::Refused, RulePath::Path);
        }
    }

    /// Where a root's `.git` is a file: the directory that it names, if that points back, and the repository that this
    /// belongs to. Gives the git directory of the first root.
    fn git_directories(&mut self, rights: u64) -> Option<PathBuf> {
        let mut first = None;
        for root in self.sandbox.roots.clone() {
            let git = Path::new(&root).join(".git");
            let Ok(meta) = fs::symlink_metadata(&git) else { continue };
            if meta.is_dir() {
                first.get_or_insert(git);
                continue;
            }
            if !meta.is_file() {
                continue;
            }
            for place in repository::linked(Path::new(&root)).into_iter().flatten() {
                let path = place.to_string_lossy().into_owned();
                if !self.is_secret(&path, PathKind::Directory) && !self.is_delicate(&path) {
                    self.add(path, rights, LinkTrust::Refused);
                    first.get_or_insert(place);
                }
            }
        }
        first
    }
}

/// Has the kernel take them. Places that are not there are nowhere.
fn enter(ruleset: &OwnedFd, rules: &[PathRule]) -> Result<(), SandboxError> {
    for rule in rules {
        let opened;
        let fd = match &rule.at {
            RulePath::Fd(fd) => fd,
            RulePath::Itself(fd) => fd,
            at => {
                let found = match at {
                    RulePath::Below(directory) => below(directory, &rule.path),
                    _ => open(&rule.path, rule.links),
                };
                let Ok(found) = found else { continue };
                opened = found;
                &opened
            }
        };
        match confine::allow(ruleset, fd, rule.rights) {
            // A directory's rights over what is none.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => match (kind(fd), rule.rights & right::OF_FILES) {
                (Some(PathKind::File), rights) if rights != 0 => {
                    confine::allow(ruleset, fd, rights).map_err(SandboxError::Rule)?
                }
                _ => {}
            },
            allowed => allowed.map_err(SandboxError::Rule)?,
        }
    }
    Ok(())
}

/// An entry of a directory that is open already.
fn below(directory: &OwnedFd, path: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(directory, places::base(path), flags, Mode::empty())
}

fn kind(fd: &OwnedFd) -> Option<PathKind> {
    Some(match rustix::fs::fstat(fd).ok()?.st_mode & libc::S_IFMT {
        libc::S_IFDIR => PathKind::Directory,
        libc::S_IFLNK => PathKind::Link,
        _ => PathKind::File,
    })
}

fn open(path: &str, links: LinkTrust) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match links {
        LinkTrust::Followed => rustix::fs::open(path, flags, Mode::empty()),
        LinkTrust::Refused => {
            openat2(rustix::fs::CWD, path, flags | OFlags::NOFOLLOW, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        }
    }
}

fn variable<'e>(env: &'e [(String, String)], name: &str) -> Option<&'e str> {
    env.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathKind {
    Directory,
    File,
    Link,
    /// Its name is not text: it cannot be told from a secret's.
    Odd,
}

/// What a directory holds.
fn entries(directory: &str) -> Option<Vec<(String, PathKind)>> {
    let of = |entry: fs::DirEntry| {
        let kind = match entry.file_type() {
            Ok(t) if t.is_dir() => PathKind::Directory,
            Ok(t) if t.is_symlink() => PathKind::Link,
            _ => PathKind::File,
        };
        match entry.file_name().into_string() {
            Ok(name) => (name, kind),
            Err(name) => (name.to_string_lossy().into_owned(), PathKind::Odd),
        }
    };
    Some(fs::read_dir(directory).ok()?.flatten().map(of).collect())
}

/// Whether a file of settings speaks of no secret.
fn is_plain(path: &Path) -> bool {
    let Ok(text) = countersign_store::read_regular(&path.to_string_lossy(), 64 * 1024) else { return false };
    let text = String::from_utf8_lossy(&text).to_lowercase();
    let with_user = |line: &str| {
        line.split("://").skip(1).any(|rest| rest.split(['/', ' ', '"', '\'']).next().is_some_and(|h| h.contains('@')))
    };
    !tables::SECRET_WORDS.iter().any(|word| text.contains(word)) && !text.lines().any(with_user)
}
