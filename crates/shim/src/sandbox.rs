//! Builds the sandbox of a task: from its confinement and its workspace roots to the restrictions on its process.
//!
//! Everything here happens before the fork. Paths are opened without following symbolic links, unless only the owner of
//! the system could have created the link; the target of a link is checked with the same table that the gate uses.

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
pub(crate) use repository::escape_places;
pub use repository::is_escape;
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

const READ_RIGHTS: u64 = right::READ_FILE | right::READ_DIR;
const RUN_RIGHTS: u64 = READ_RIGHTS | right::EXECUTE;
const CREATE_RIGHTS: u64 = READ_RIGHTS
    | right::WRITE_FILE
    | right::TRUNCATE
    | right::REMOVE_DIR
    | right::REMOVE_FILE
    | right::MAKE_DIR
    | right::MAKE_REG
    | right::MAKE_SYM
    | right::REFER;
const BUILD_RIGHTS: u64 = CREATE_RIGHTS | right::EXECUTE | right::MAKE_SOCK | right::MAKE_FIFO;
const DEVICE_RIGHTS: u64 = right::READ_FILE | right::WRITE_FILE | right::TRUNCATE | right::IOCTL_DEV;
/// The capabilities that root keeps in a workspace: over owners and modes of files, signals, user and group IDs, and
/// low ports. None over the machine itself.
const WORKSPACE_CAPABILITIES: u64 = 0b1111_1011 | 1 << 10;
/// The largest file that a read-only task may write.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;
/// Each open file may hold as much kernel memory as a socket.
const MAX_OPEN_FILES: u64 = 1024;
/// The private memory of a read-only task.
pub(crate) const MAX_MEMORY_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// The directory for temporary files, in the directory of the task.
const TEMPORARY_DIRECTORY: &str = "tmp";

/// The sandbox features of the running kernel.
#[must_use]
pub fn detect_kernel() -> Kernel {
    Kernel { landlock: confine::landlock_version(), seccomp: confine::has_seccomp() }
}

/// Builds the tables that every sandbox needs, so that the shims that are forked later have them.
pub(crate) fn warm_up() {
    let _ = countersign_model::secret_names::in_secret_directory("/usr");
}

/// The sandbox of a task, ready for the fork.
pub(crate) struct ChildSandbox {
    pub(crate) restrictions: Restrictions,
    pub(crate) enforced: Option<EnforcedSandbox>,
    /// Environment variables that replace those of the request.
    pub(crate) env: BTreeMap<&'static str, String>,
}

/// Facts about the task beside the sandbox specification of the order.
pub(crate) struct SandboxInput<'a> {
    /// The path of its TMPDIR, and whether it exists.
    pub(crate) temporary: &'a Path,
    pub(crate) has_temporary: bool,
    pub(crate) cwd: &'a str,
    pub(crate) env: &'a [(String, String)],
    /// The path of its terminal.
    pub(crate) terminal: Option<String>,
}

/// The rules for the system that every read-only task has. An idle shim prepares them: opening fifty paths takes as
/// long as starting a process.
pub(crate) struct BaseRuleset {
    ruleset: OwnedFd,
    rules: Vec<PathRule>,
    version: u32,
    /// When /etc was last changed: a file that was replaced since then is covered by no rule.
    etc: (i64, i64),
}

impl BaseRuleset {
    /// None if the kernel cannot sandbox tasks.
    pub(crate) fn prepare() -> Option<Self> {
        let version = detect_kernel().landlock.min(Kernel::FULL.landlock);
        let etc = change_time("/etc")?;
        let mut rules: Vec<PathRule> = system_rules().collect();
        rules.iter_mut().for_each(|rule| rule.rights &= right::all(version));
        let ruleset = confine::create_ruleset(version, version > 0, true).ok()?;
        install_rules(&ruleset, &rules).ok()?;
        Some(Self { ruleset, rules, version, etc })
    }

    fn is_current(&self, version: u32) -> bool {
        self.version == version && change_time("/etc") == Some(self.etc)
    }
}

fn change_time(path: &str) -> Option<(i64, i64)> {
    let stat = rustix::fs::stat(path).ok()?;
    Some((stat.st_ctime, stat.st_ctime_nsec as i64))
}

/// The rules for the system that every confined task has.
fn system_rules() -> impl Iterator<Item = PathRule> {
    let rule = |path: String, rights| PathRule { path, rights, links: LinkTrust::Follow, at: RulePath::Path };
    let programs =
        places::PROGRAM_PLACES.iter().chain(tables::LIBRARIES).map(move |p| rule((*p).to_owned(), RUN_RIGHTS));
    let system = tables::SYSTEM_PLACES.iter().map(move |p| rule((*p).to_owned(), READ_RIGHTS));
    let etc = tables::ETC_NAMES.iter().map(move |name| rule(format!("/etc/{name}"), READ_RIGHTS));
    let sources = tables::READ_DEVICES.iter().map(move |p| rule((*p).to_owned(), right::READ_FILE));
    programs.chain(system).chain(etc).chain(sources).chain([rule("/dev/null".to_owned(), DEVICE_RIGHTS)])
}

/// Builds the sandbox of an order. Fails if the kernel cannot enforce it in full; `shield` instead records what is
/// missing. `other_user`: the user and group that the task runs as, if not the shim's; they have none of the shim's
/// capabilities.
pub(crate) fn build(
    confinement: Confinement,
    sandbox: &SandboxSpec,
    input: &SandboxInput<'_>,
    base_ruleset: Option<BaseRuleset>,
    other_user: Option<(u32, u32)>,
) -> Result<ChildSandbox, SandboxError> {
    let has = detect_kernel();
    let kernel = Kernel {
        landlock: has.landlock.min(sandbox.kernel.landlock).min(Kernel::FULL.landlock),
        seccomp: has.seccomp && sandbox.kernel.seccomp,
    };
    if !kernel.can_enforce(confinement) {
        return Err(SandboxError::Kernel { wanted: confinement, landlock: kernel.landlock });
    }
    let mut built = ChildSandbox { restrictions: Restrictions::default(), enforced: None, env: BTreeMap::new() };
    if confinement == Confinement::None {
        return Ok(built);
    }
    built.restrictions.no_new_privileges = true;
    let missing = kernel.missing_parts(confinement).into_iter().map(Text::from_static).collect();
    let confined = confinement >= Confinement::Workspace;
    let landlock = if confined || kernel.can_scope_signals() { kernel.landlock } else { 0 };
    // A workspace task without a network can still run servers and test them, if the kernel gives it a network of its
    // own.
    let own_network = match (confinement, sandbox.network) {
        (Confinement::Workspace, Network::None) => OwnNetwork::available(other_user),
        _ => None,
    };
    built.enforced = Some(EnforcedSandbox { landlock, seccomp: confined, own_network: own_network.is_some(), missing });
    let ruleset = |net| confine::create_ruleset(kernel.landlock, confined, net).map_err(SandboxError::Ruleset);
    if !confined {
        built.restrictions.ruleset = if kernel.can_scope_signals() { Some(ruleset(false)?) } else { None };
        return Ok(built);
    }
    let own = open_temporary(input.temporary, input.has_temporary).map_err(SandboxError::Temporary)?;
    let temporary = input.temporary.to_owned();
    let mut path_rules = PathRules::new(sandbox, input.cwd, kernel.landlock);
    let system_is_plain = !places::PROGRAM_PLACES.iter().chain(tables::LIBRARIES).any(|p| path_rules.is_delicate(p));
    let base_ruleset = base_ruleset
        .filter(|r| confinement == Confinement::ReadOnly && system_is_plain && r.is_current(kernel.landlock));
    let no_network = confinement == Confinement::ReadOnly || sandbox.network == Network::None && own_network.is_none();
    let ruleset = match base_ruleset {
        Some(base_ruleset) => {
            path_rules.installed = base_ruleset.rules.len();
            path_rules.rules = base_ruleset.rules;
            base_ruleset.ruleset
        }
        None => {
            path_rules.add_system();
            ruleset(no_network)?
        }
    };
    path_rules.add_own(&temporary, own, confinement, input.terminal.as_deref());
    match confinement {
        Confinement::ReadOnly => {
            path_rules.add_read_only(input, &temporary, &mut built.env);
            built.restrictions.limits = vec![
                (limit::CORE, 0),
                (limit::FSIZE, MAX_FILE_BYTES),
                (limit::DATA, MAX_MEMORY_BYTES),
                (limit::NOFILE, MAX_OPEN_FILES),
            ];
            built.restrictions.limits.extend(crate::budget::user_process_limit().map(|count| (limit::NPROC, count)));
            built.restrictions.keep_capabilities = confine::has_capabilities().then_some(0);
        }
        _ => {
            path_rules.add_workspace(input);
            built.restrictions.limits = vec![(limit::CORE, 0)];
            let keep = if other_user.is_some() { 0 } else { WORKSPACE_CAPABILITIES };
            built.restrictions.keep_capabilities = confine::has_capabilities().then_some(keep);
        }
    }
    built.env.insert("TMPDIR", temporary.to_string_lossy().into_owned());
    install_rules(&ruleset, &path_rules.rules[path_rules.installed..])?;
    built.restrictions.ruleset = Some(ruleset);
    let sockets = SocketFamilies { inet: !no_network, unix: sandbox.unix_sockets };
    built.restrictions.filter = seccomp::filter_for(confinement, sockets, kernel.can_scope_signals());
    built.restrictions.own_network = own_network;
    Ok(built)
}

/// Removes the directory for temporary files that was prepared for a task that has none, or has it elsewhere.
pub(crate) fn remove_unneeded_temporary(task_dir: &Path) {
    let _ = fs::remove_dir(temporary_path(task_dir, None));
}

/// Removes the temporary files of a confined task.
pub fn clear_temporary(task_dir: &Path, user: Option<&TaskUser>) {
    let temporary = temporary_path(task_dir, user);
    if user.is_some() {
        remove_unneeded_temporary(task_dir);
    }
    let _ = with_user_ids(user, || {
        use std::os::unix::fs::MetadataExt as _;
        // In a directory that every user may write to, another user may have taken the name.
        let is_own =
            fs::symlink_metadata(&temporary).is_ok_and(|m| user.is_none_or(|u| m.is_dir() && m.uid() == u.uid));
        if !is_own {
            return;
        }
        // It is usually empty.
        if fs::remove_dir(&temporary).is_err() && fs::remove_dir_all(&temporary).is_err() {
            // Directories without permission to enter, or deeper than the descriptor limit.
            let _ = clear::remove_tree(&temporary);
        }
    });
}

/// The TMPDIR of a confined task: in the directory of the task, or below /tmp for another user, who may not enter that.
pub(crate) fn temporary_path(task_dir: &Path, user: Option<&TaskUser>) -> PathBuf {
    match (user, task_dir.file_name()) {
        (Some(_), Some(task)) => Path::new("/tmp").join(format!("csn-{}", task.to_string_lossy())),
        _ => task_dir.join(TEMPORARY_DIRECTORY),
    }
}

/// Opens the directory, or creates it. Fails if the name of a new one is taken.
fn open_temporary(at: &Path, exists: bool) -> io::Result<OwnedFd> {
    let open = || rustix::fs::open(at, OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty());
    if exists && let Ok(prepared) = open() {
        return Ok(prepared);
    }
    fs::DirBuilder::new().mode(0o700).create(at)?;
    Ok(open()?)
}

/// Whether symbolic links in a path are followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkTrust {
    /// Only the owner of the system can have created them.
    Follow,
    /// Any user can have created them.
    Refuse,
}

/// The paths of a task, with its rights to them.
struct PathRules<'a> {
    sandbox: &'a SandboxSpec,
    /// Directories with secrets directly in them, among system roots and the working directory. Rules for them are
    /// split by entry.
    split_directories: Vec<&'a str>,
    version: u32,
    rules: Vec<PathRule>,
    /// How many of `rules` are in the ruleset already.
    installed: usize,
}

/// Rights to one path.
struct PathRule {
    path: String,
    rights: u64,
    links: LinkTrust,
    /// How the path is opened for the kernel.
    at: RulePath,
}

enum RulePath {
    /// Opened by its path when the rule is installed.
    Path,
    /// Already open.
    Fd(OwnedFd),
    /// Already open, and shared with the rules for its entries.
    Shared(Rc<OwnedFd>),
    /// An entry of this open directory.
    Below(Rc<OwnedFd>),
}

impl<'a> PathRules<'a> {
    fn new(sandbox: &'a SandboxSpec, cwd: &'a str, version: u32) -> Self {
        let mut rules = Self { sandbox, split_directories: Vec::new(), version, rules: Vec::new(), installed: 0 };
        // The rule for a root checks the root's entries. A root in a system directory, or a working directory in a
        // root, has no such rule, so its entries are checked here.
        let in_system = |root: &&str| places::PROGRAM_PLACES.iter().any(|p| places::inside(root, p));
        let within = sandbox.roots.iter().any(|root| places::inside(cwd, root) && root != cwd);
        let candidates = sandbox.roots.iter().map(String::as_str).filter(in_system).chain(within.then_some(cwd));
        let secret = |dir: &str, (name, kind): &(String, PathKind)| {
            rules.is_secret(&format!("{}/{name}", dir.trim_end_matches('/')), *kind)
        };
        let holds_secret = |dir: &&str| list_entries(dir).is_some_and(|all| all.iter().any(|entry| secret(dir, entry)));
        rules.split_directories = candidates.filter(holds_secret).collect();
        rules
    }

    fn add(&mut self, path: impl Into<String>, rights: u64, links: LinkTrust) {
        let path = path.into();
        if !self.allows(&path, rights) {
            self.push_rule(path, rights, links, RulePath::Path);
        }
    }

    /// Adds a rule without checking whether another one covers it.
    fn push_rule(&mut self, path: impl Into<String>, rights: u64, links: LinkTrust, at: RulePath) {
        self.rules.push(PathRule { path: path.into(), rights: rights & right::all(self.version), links, at });
    }

    /// Whether the rules already give these rights to a path.
    fn allows(&self, path: &str, rights: u64) -> bool {
        let rights = rights & right::all(self.version);
        self.rules.iter().any(|rule| rule.rights & rights == rights && places::inside(path, &rule.path))
    }

    fn is_secret(&self, path: &str, kind: PathKind) -> bool {
        places::is_hidden_from_readers(path, &self.sandbox.homes, kind == PathKind::Directory)
            || places::is_protected(path, &self.sandbox.homes, &self.sandbox.protected)
    }

    fn is_delicate(&self, directory: &str) -> bool {
        self.split_directories.iter().any(|split| places::inside(split, directory))
            || places::is_delicate(directory, &self.sandbox.homes, &self.sandbox.protected)
    }

    /// Adds a directory without the secrets in it. `check_entries`: also check the entries of a directory that no table
    /// names as delicate.
    fn add_without_secrets(&mut self, directory: &str, rights: u64, check_entries: bool) {
        if self.allows(directory, rights) {
            return;
        }
        if !check_entries && !self.is_delicate(directory) {
            return self.add(directory, rights, LinkTrust::Refuse);
        }
        let Ok(fd) = open_path(directory, LinkTrust::Refuse) else { return };
        let Some(entries) = list_entries(directory) else { return };
        let path = |name: &str| format!("{}/{name}", directory.trim_end_matches('/'));
        let needs_own_rule = |(name, kind): &(String, PathKind)| {
            let path = path(name);
            *kind == PathKind::NotText
                || self.is_secret(&path, *kind)
                || *kind == PathKind::Directory && self.is_delicate(&path)
        };
        if !entries.iter().any(needs_own_rule) {
            return self.push_rule(directory, rights, LinkTrust::Refuse, RulePath::Fd(fd));
        }
        // The directory may be listed; each entry gets its own rule.
        let fd = Rc::new(fd);
        self.push_rule(directory, right::READ_DIR, LinkTrust::Refuse, RulePath::Shared(Rc::clone(&fd)));
        for (name, kind) in entries {
            let path = path(&name);
            let below = RulePath::Below(Rc::clone(&fd));
            match kind {
                kind if self.is_secret(&path, kind) => {}
                PathKind::Directory if self.is_delicate(&path) => self.add_without_secrets(&path, rights, false),
                PathKind::Directory => self.push_rule(path, rights, LinkTrust::Refuse, below),
                PathKind::File => self.push_rule(path, rights & right::FILE_RIGHTS, LinkTrust::Refuse, below),
                PathKind::Link | PathKind::NotText => {}
            }
        }
    }

    /// Adds a path in a home directory, with links resolved, unless it leads to a secret.
    fn add_home_path(&mut self, path: &Path, rights: u64) {
        let Some(path) = path.to_str() else { return };
        let (path, fd) = match open_path(path, LinkTrust::Refuse) {
            Ok(fd) => (path.to_owned(), fd),
            // The path contains a link.
            Err(rustix::io::Errno::LOOP) => {
                let real = fs::canonicalize(path).ok().and_then(|p| p.into_os_string().into_string().ok());
                let Some(real) = real else { return };
                let Ok(fd) = open_path(&real, LinkTrust::Refuse) else { return };
                (real, fd)
            }
            Err(_) => return,
        };
        let kind = kind_of_fd(&fd);
        if self.is_secret(&path, kind.unwrap_or(PathKind::NotText)) || self.allows(&path, rights) {
            return;
        }
        match kind {
            Some(PathKind::Directory) if self.is_delicate(&path) => self.add_without_secrets(&path, rights, false),
            Some(PathKind::Directory) => self.push_rule(path, rights, LinkTrust::Refuse, RulePath::Fd(fd)),
            Some(PathKind::File) => {
                self.push_rule(path, rights & right::FILE_RIGHTS, LinkTrust::Refuse, RulePath::Fd(fd))
            }
            Some(PathKind::Link | PathKind::NotText) | None => {}
        }
    }

    /// Adds the rules for the system, without the secrets in it.
    fn add_system(&mut self) {
        for rule in system_rules() {
            if rule.rights == RUN_RIGHTS && self.is_delicate(&rule.path) {
                self.add_without_secrets(&rule.path, RUN_RIGHTS, false);
            } else {
                self.push_rule(rule.path, rule.rights, rule.links, RulePath::Path);
            }
        }
    }

    /// Adds the task's TMPDIR, its terminal and its programs.
    fn add_own(&mut self, temporary: &Path, fd: OwnedFd, confinement: Confinement, terminal: Option<&str>) {
        let rights = if confinement == Confinement::ReadOnly { CREATE_RIGHTS } else { BUILD_RIGHTS };
        self.push_rule(temporary.to_string_lossy(), rights, LinkTrust::Refuse, RulePath::Fd(fd));
        if let Some(terminal) = terminal {
            self.add(terminal, DEVICE_RIGHTS, LinkTrust::Follow);
            self.add("/dev/tty", DEVICE_RIGHTS, LinkTrust::Follow);
        }
        for program in &self.sandbox.programs {
            // Most programs are in system directories, which have rules already.
            if !self.allows(program, right::EXECUTE) {
                self.add_home_path(Path::new(program), right::EXECUTE | right::READ_FILE);
            }
        }
    }

    fn is_in_root(&self, path: &Path) -> bool {
        self.sandbox.roots.iter().any(|root| path.starts_with(root))
    }

    /// Adds the toolchains in the home directory that PATH names, and the directories that they need.
    fn add_toolchains(&mut self, input: &SandboxInput<'_>, all_of_path: bool) {
        let home = Path::new(&self.sandbox.home);
        for entry in env_value(input.env, "PATH").unwrap_or_default().split(':').filter(|e| e.starts_with('/')) {
            let entry = places::clean(entry);
            let chain = places::below_home(&entry, &self.sandbox.home)
                .and_then(|below| Some((below, places::TOOLCHAINS.iter().find(|t| places::inside(below, t))?)));
            match chain {
                Some((below, chain)) => {
                    let top = entry.strip_suffix(below).map_or(home, Path::new).to_owned();
                    self.add_home_path(&top.join(chain), RUN_RIGHTS);
                    let companions = tables::COMPANIONS.iter().find(|(name, _)| name == chain);
                    for companion in companions.into_iter().flat_map(|(_, all)| *all) {
                        self.add_home_path(&top.join(companion), RUN_RIGHTS);
                    }
                }
                // An entry in a root is covered by the rule for the root.
                None if all_of_path && !self.is_in_root(Path::new(&entry)) => {
                    self.add_home_path(Path::new(&entry), RUN_RIGHTS)
                }
                None => {}
            }
        }
    }

    /// Adds the rules of a read-only task, and its environment variables.
    fn add_read_only(&mut self, input: &SandboxInput<'_>, temporary: &Path, env: &mut BTreeMap<&'static str, String>) {
        for root in &self.sandbox.roots {
            self.add_without_secrets(root, READ_RIGHTS, true);
        }
        self.add_accepted(READ_RIGHTS);
        if self.sandbox.read_all {
            self.add_without_secrets("/", READ_RIGHTS, true);
        }
        self.add_toolchains(input, false);
        let git_dir = self.add_git_directories(READ_RIGHTS);
        let home = Path::new(&self.sandbox.home);
        let config_home = match env_value(input.env, "XDG_CONFIG_HOME").map(Path::new) {
            // A configuration elsewhere may be another user's, and the files that it names would become readable.
            Some(path) if path.starts_with(home) && !self.is_in_root(path) => path.to_owned(),
            _ => home.join(".config"),
        };
        env.insert("GIT_CONFIG_GLOBAL", "/dev/null".to_owned());
        // Git, and programs that ignore the files that git ignores.
        if self
            .sandbox
            .programs
            .iter()
            .map(|p| places::base(p))
            .any(|p| p.starts_with("git") || tables::GIT_CONFIG_READERS.contains(&p))
        {
            let git = gitconfig::sanitise_config(Path::new("/etc/gitconfig"), home, &config_home, git_dir.as_deref());
            for path in git.reads.iter().filter(|p| fs::metadata(p).is_ok_and(|m| m.is_file())) {
                self.add_home_path(path, right::READ_FILE);
            }
            let own = temporary.join("config");
            if let Ok(config) = gitconfig::write_config(&git.text, &config_home, &own) {
                env.insert("GIT_CONFIG_GLOBAL", config.to_string_lossy().into_owned());
                // The rest of the real directory is not readable in the sandbox anyway.
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

    /// Adds the rules of a workspace task: it writes to the roots and to caches, and reads no keys.
    fn add_workspace(&mut self, input: &SandboxInput<'_>) {
        for root in &self.sandbox.roots {
            self.add_without_secrets(root, BUILD_RIGHTS, false);
        }
        self.add_accepted(BUILD_RIGHTS);
        let git_dir = self.add_git_directories(BUILD_RIGHTS);
        self.add_git_settings(input, git_dir.as_deref());
        self.add_toolchains(input, true);
        for name in tables::WORKSPACE_ETC_NAMES {
            self.add(format!("/etc/{name}"), READ_RIGHTS, LinkTrust::Follow);
        }
        for device in tables::WRITE_DEVICES {
            self.add(*device, DEVICE_RIGHTS | CREATE_RIGHTS, LinkTrust::Follow);
        }
        let home = Path::new(&self.sandbox.home).to_owned();
        for setting in tables::SETTINGS {
            self.add_home_path(&home.join(setting), READ_RIGHTS);
        }
        for name in tables::SETTINGS_WITHOUT_SECRETS {
            let path = home.join(name);
            if has_no_secret_words(&path) {
                self.push_rule(path.to_string_lossy(), right::READ_FILE, LinkTrust::Refuse, RulePath::Path);
            }
        }
        let path = env_value(input.env, "PATH").unwrap_or_default();
        let installed = |tool: &str| path.split(':').any(|dir| Path::new(dir).join(tool).is_file());
        for (tool, caches) in tables::CACHES {
            let makes = !tool.is_empty() && installed(tool);
            for cache in *caches {
                let at = home.join(cache);
                // The tool would create its cache, but may not write to the parent directory; so it is created here.
                if (makes || *cache == ".cache") && !cache.contains("/.") {
                    let _ = fs::DirBuilder::new().recursive(true).mode(0o755).create(&at);
                }
                self.add_home_path(&at, BUILD_RIGHTS);
                // If a tool keeps a token in its cache, other tools may still create their entries beside it.
                if self.is_delicate(&at.to_string_lossy()) {
                    self.add_cache(&at);
                }
            }
        }
    }

    /// Adds the paths beyond the roots that a user, a grant or a rule has accepted.
    fn add_accepted(&mut self, write: u64) {
        let sandbox = self.sandbox;
        for path in &sandbox.reads {
            self.add_accepted_path(path, READ_RIGHTS);
        }
        for path in &sandbox.keys {
            self.add_key(path, READ_RIGHTS);
        }
        for path in sandbox.writes.iter().filter(|_| write == BUILD_RIGHTS) {
            if places::is_credential(path, &sandbox.homes) {
                self.add_key(path, BUILD_RIGHTS);
            } else {
                self.add_accepted_path(path, BUILD_RIGHTS);
            }
        }
    }

    /// Adds one path, without the secrets below it. For a path that does not exist yet, adds the closest existing
    /// directory.
    fn add_accepted_path(&mut self, path: &str, rights: u64) {
        let mut place = path;
        loop {
            match open_path(place, LinkTrust::Refuse) {
                Err(rustix::io::Errno::NOENT) if rights == BUILD_RIGHTS && self.may_hold_new(places::parent(place)) => {
                    place = places::parent(place);
                }
                Err(_) => return,
                Ok(fd) if kind_of_fd(&fd) == Some(PathKind::Directory) => {
                    return self.add_without_secrets(place, rights, false);
                }
                Ok(fd) if self.is_secret(place, PathKind::File) => return drop(fd),
                Ok(fd) => {
                    return self.push_rule(place, rights & right::FILE_RIGHTS, LinkTrust::Refuse, RulePath::Fd(fd));
                }
            }
        }
    }

    /// Whether a directory may get a rule for an entry that does not exist yet.
    fn may_hold_new(&self, directory: &str) -> bool {
        let deep = directory.split('/').filter(|c| !c.is_empty()).count() >= 2;
        (deep || directory == "/tmp") && !self.is_delicate(directory) && !self.is_secret(directory, PathKind::Directory)
    }

    /// Adds a path that is named like a secret and was accepted as such. Never a path of Countersign's own.
    fn add_key(&mut self, path: &str, rights: u64) {
        let sandbox = self.sandbox;
        let real = fs::canonicalize(path).ok().and_then(|p| p.into_os_string().into_string().ok());
        let Some(real) = real else { return };
        if places::is_protected(&real, &sandbox.homes, &sandbox.protected)
            || places::holds_protected(&real, &sandbox.homes, &sandbox.protected)
        {
            return;
        }
        let Ok(fd) = open_path(&real, LinkTrust::Refuse) else { return };
        let rights = if kind_of_fd(&fd) == Some(PathKind::Directory) { rights } else { rights & right::FILE_RIGHTS };
        self.push_rule(real, rights, LinkTrust::Refuse, RulePath::Fd(fd));
    }

    /// Adds the files that the user's git configuration includes and names: git fails if it may not read one of them.
    fn add_git_settings(&mut self, input: &SandboxInput<'_>, git_dir: Option<&Path>) {
        let home = Path::new(&self.sandbox.home);
        let config_home = match env_value(input.env, "XDG_CONFIG_HOME").map(Path::new) {
            Some(path) if path.starts_with(home) && !self.is_in_root(path) => path.to_owned(),
            _ => home.join(".config"),
        };
        for path in gitconfig::named_files(Path::new("/etc/gitconfig"), home, &config_home, git_dir) {
            self.add_home_path(&path, RUN_RIGHTS);
        }
    }

    /// Adds the right to create and write new entries to a cache whose existing entries have rules of their own.
    fn add_cache(&mut self, at: &Path) {
        let rights = BUILD_RIGHTS & !(right::READ_FILE | right::EXECUTE);
        let real = fs::canonicalize(at).ok().and_then(|p| p.into_os_string().into_string().ok());
        if let Some(real) = real.filter(|real| !self.is_secret(real, PathKind::Directory)) {
            self.push_rule(real, rights, LinkTrust::Refuse, RulePath::Path);
        }
    }

    /// For roots whose `.git` is a file: adds the git directory that it names, if that one points back, and the
    /// repository that it belongs to. Returns the git directory of the first root that has one.
    fn add_git_directories(&mut self, rights: u64) -> Option<PathBuf> {
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
            for place in repository::linked_git_directories(Path::new(&root)).into_iter().flatten() {
                let path = place.to_string_lossy().into_owned();
                if !self.is_secret(&path, PathKind::Directory) && !self.is_delicate(&path) {
                    self.add(path, rights, LinkTrust::Refuse);
                    first.get_or_insert(place);
                }
            }
        }
        first
    }
}

/// Adds rules to the kernel's ruleset. Paths that do not exist are skipped.
fn install_rules(ruleset: &OwnedFd, rules: &[PathRule]) -> Result<(), SandboxError> {
    for rule in rules {
        let opened;
        let fd = match &rule.at {
            RulePath::Fd(fd) => fd,
            RulePath::Shared(fd) => fd,
            at => {
                let found = match at {
                    RulePath::Below(directory) => open_entry(directory, &rule.path),
                    _ => open_path(&rule.path, rule.links),
                };
                let Ok(found) = found else { continue };
                opened = found;
                &opened
            }
        };
        match confine::add_path_rule(ruleset, fd, rule.rights) {
            // The rule has rights of directories, and the path is a file.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                match (kind_of_fd(fd), rule.rights & right::FILE_RIGHTS) {
                    (Some(PathKind::File), rights) if rights != 0 => {
                        confine::add_path_rule(ruleset, fd, rights).map_err(SandboxError::Rule)?
                    }
                    _ => {}
                }
            }
            allowed => allowed.map_err(SandboxError::Rule)?,
        }
    }
    Ok(())
}

/// Opens an entry of an open directory.
fn open_entry(directory: &OwnedFd, path: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(directory, places::base(path), flags, Mode::empty())
}

fn kind_of_fd(fd: &OwnedFd) -> Option<PathKind> {
    Some(match rustix::fs::fstat(fd).ok()?.st_mode & libc::S_IFMT {
        libc::S_IFDIR => PathKind::Directory,
        libc::S_IFLNK => PathKind::Link,
        _ => PathKind::File,
    })
}

fn open_path(path: &str, links: LinkTrust) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match links {
        LinkTrust::Follow => rustix::fs::open(path, flags, Mode::empty()),
        LinkTrust::Refuse => {
            openat2(rustix::fs::CWD, path, flags | OFlags::NOFOLLOW, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        }
    }
}

fn env_value<'e>(env: &'e [(String, String)], name: &str) -> Option<&'e str> {
    env.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathKind {
    Directory,
    File,
    Link,
    /// Its name is not valid UTF-8, so it cannot be compared with the names of secrets.
    NotText,
}

/// The entries of a directory with their kinds.
fn list_entries(directory: &str) -> Option<Vec<(String, PathKind)>> {
    let name_and_kind = |entry: fs::DirEntry| {
        let kind = match entry.file_type() {
            Ok(t) if t.is_dir() => PathKind::Directory,
            Ok(t) if t.is_symlink() => PathKind::Link,
            _ => PathKind::File,
        };
        match entry.file_name().into_string() {
            Ok(name) => (name, kind),
            Err(name) => (name.to_string_lossy().into_owned(), PathKind::NotText),
        }
    };
    Some(fs::read_dir(directory).ok()?.flatten().map(name_and_kind).collect())
}

/// Whether a settings file contains no word that marks a secret, and no URL with a user.
fn has_no_secret_words(path: &Path) -> bool {
    let Ok(text) = countersign_store::read_regular(&path.to_string_lossy(), 64 * 1024) else { return false };
    let text = String::from_utf8_lossy(&text).to_lowercase();
    let with_user = |line: &str| {
        line.split("://").skip(1).any(|rest| rest.split(['/', ' ', '"', '\'']).next().is_some_and(|h| h.contains('@')))
    };
    !tables::SECRET_WORDS.iter().any(|word| text.contains(word)) && !text.lines().any(with_user)
}
