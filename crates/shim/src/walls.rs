//! The walls of a task: from what confinement is wanted and where its roots are to what its process gives up.
//!
//! Everything here happens before the fork. Places are opened without following links, unless only the system's owner
//! could have put them there; what a link leads to is looked at by the same table by which the gate reads.

mod tables;

use crate::{
    gitconfig, seccomp,
    sys::confine::{self, Forgo, limit, right},
};
use countersign_model::{Confinement, Enforced, Kernel, Network, Text, Walls, places};
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, ResolveFlags, openat2},
};
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};
pub(crate) use tables::ESCAPES;

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
pub(crate) const MEMORY: u64 = 4 * 1024 * 1024 * 1024;
/// The private directory of a confined task, in its own.
const TEMPORARY: &str = "tmp";

/// What the kernel has.
#[must_use]
pub fn kernel() -> Kernel {
    Kernel { landlock: confine::landlock_version(), seccomp: confine::has_seccomp() }
}

/// A task's confinement, ready for the fork.
pub(crate) struct Built {
    pub(crate) forgo: Forgo,
    pub(crate) enforced: Option<Enforced>,
    /// Variables that it gets, over what it has.
    pub(crate) env: BTreeMap<&'static str, String>,
    /// Its private directory.
    pub(crate) temporary: Option<PathBuf>,
}

/// Where it runs, beside the walls that the order names.
pub(crate) struct Site<'a> {
    pub(crate) task_dir: &'a Path,
    pub(crate) cwd: &'a str,
    pub(crate) env: &'a [(String, String)],
    /// The name of its terminal.
    pub(crate) terminal: Option<String>,
}

/// Builds what the order says. What cannot be enforced in full is refused, but for the shield, which says what it lacks.
pub(crate) fn build(confinement: Confinement, walls: &Walls, site: &Site<'_>) -> Result<Built, String> {
    let has = kernel();
    let kernel = Kernel {
        landlock: has.landlock.min(walls.kernel.landlock).min(Kernel::FULL.landlock),
        seccomp: has.seccomp && walls.kernel.seccomp,
    };
    if !kernel.holds(confinement) {
        let (wanted, landlock) = (confinement.as_str(), kernel.landlock);
        return Err(format!("it is to run confined ({wanted}), and this kernel cannot do that (Landlock {landlock})"));
    }
    let mut built = Built { forgo: Forgo::default(), enforced: None, env: BTreeMap::new(), temporary: None };
    if confinement == Confinement::None {
        return Ok(built);
    }
    built.forgo.no_new_privileges = true;
    let missing = kernel.lacks(confinement).into_iter().map(Text::of).collect();
    let confined = confinement >= Confinement::Workspace;
    built.enforced = Some(Enforced { landlock: kernel.landlock, seccomp: confined, missing });
    let alone = confinement == Confinement::ReadOnly || walls.network == Network::None;
    if confined || kernel.scopes() {
        let made = confine::ruleset(kernel.landlock, confined, confined && alone);
        built.forgo.ruleset = Some(made.map_err(|e| format!("no Landlock ruleset could be made: {e}"))?);
    }
    if !confined {
        return Ok(built);
    }
    let temporary = make_temporary(site.task_dir).map_err(|e| format!("no directory for temporary files: {e}"))?;
    let mut plan = Rules::new(walls, site.cwd, kernel.landlock);
    plan.system();
    plan.own(&temporary, confinement, site.terminal.as_deref());
    match confinement {
        Confinement::ReadOnly => {
            plan.reading(site, &temporary, &mut built.env);
            built.forgo.limits = vec![(limit::CORE, 0), (limit::FSIZE, LARGEST_FILE), (limit::DATA, MEMORY)];
            built.forgo.keep_capabilities = confine::has_capabilities().then_some(0);
        }
        _ => {
            plan.building(site);
            built.forgo.limits = vec![(limit::CORE, 0)];
            built.forgo.keep_capabilities = confine::has_capabilities().then_some(CAPS_OF_WORKSPACES);
        }
    }
    built.env.insert("TMPDIR", temporary.to_string_lossy().into_owned());
    if let Some(ruleset) = &built.forgo.ruleset {
        plan.enter(ruleset)?;
    }
    built.forgo.filter = seccomp::filter(confinement, walls.network, kernel.scopes());
    built.temporary = Some(temporary);
    Ok(built)
}

/// Removes what a confined task has left behind of its own.
pub(crate) fn clear(temporary: &Path) {
    // It may have taken the leave to enter from directories of its own.
    let _ = fs::remove_dir_all(temporary);
}

fn make_temporary(task_dir: &Path) -> io::Result<PathBuf> {
    let at = task_dir.join(TEMPORARY);
    fs::DirBuilder::new().mode(0o700).create(&at)?;
    // By its real name: the rules that open it follow no links.
    fs::canonicalize(at)
}

/// Who may have put a link where a path leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    /// Only the system's owner: they are followed.
    Followed,
    /// Anybody: the path must lead where it says.
    Refused,
}

/// The places of a task and what it may do there.
struct Rules<'a> {
    walls: &'a Walls,
    /// The directories that secrets lie directly in, of those that are a root or where it runs.
    cut_at: Vec<&'a str>,
    version: u32,
    rules: Vec<(String, u64, Links)>,
}

impl<'a> Rules<'a> {
    fn new(walls: &'a Walls, cwd: &'a str, version: u32) -> Self {
        let mut rules = Self { walls, cut_at: Vec::new(), version, rules: Vec::new() };
        // A root by itself is looked at when it is given; not so one in a directory that is given anyway.
        let system = |root: &&str| places::PROGRAM_PLACES.iter().any(|p| places::inside(root, p));
        let within = walls.roots.iter().any(|root| places::inside(cwd, root) && root != cwd);
        let looked_at = walls.roots.iter().map(String::as_str).filter(system).chain(within.then_some(cwd));
        let secret = |dir: &str, name: &str| rules.is_secret(&format!("{}/{name}", dir.trim_end_matches('/')));
        let holds = |dir: &&str| entries(dir).is_some_and(|all| all.iter().any(|(name, _)| secret(dir, name)));
        rules.cut_at = looked_at.filter(holds).collect();
        rules
    }

    fn add(&mut self, path: impl Into<String>, rights: u64, links: Links) {
        let (path, rights) = (path.into(), rights & right::all(self.version));
        if !self.has(&path, rights) {
            self.rules.push((path, rights, links));
        }
    }

    /// Whether these rights are given there already.
    fn has(&self, path: &str, rights: u64) -> bool {
        let rights = rights & right::all(self.version);
        self.rules.iter().any(|(at, has, _)| has & rights == rights && places::inside(path, at))
    }

    fn is_secret(&self, path: &str) -> bool {
        places::is_credential(path, &self.walls.home)
            || places::is_protected(path, &self.walls.home, &self.walls.protected)
    }

    fn is_delicate(&self, directory: &str) -> bool {
        self.cut_at.iter().any(|cut| places::inside(cut, directory))
            || places::is_delicate(directory, &self.walls.home, &self.walls.protected)
    }

    /// A directory without what in it is secret. `look` is whether its own entries are looked at in any case.
    fn carve(&mut self, directory: &str, rights: u64, look: bool) {
        if self.has(directory, rights) {
            return;
        }
        if !look && !self.is_delicate(directory) {
            return self.add(directory, rights, Links::Refused);
        }
        let Some(entries) = entries(directory) else { return };
        let path = |name: &str| format!("{}/{name}", directory.trim_end_matches('/'));
        let apart = |(name, kind): &(String, Kind)| {
            let path = path(name);
            self.is_secret(&path) || *kind == Kind::Directory && self.is_delicate(&path)
        };
        if !entries.iter().any(apart) {
            return self.add(directory, rights, Links::Refused);
        }
        // What is there may be seen; what is in it is given one by one.
        self.add(directory, right::READ_DIR, Links::Refused);
        for (name, kind) in entries {
            let path = path(&name);
            match kind {
                _ if self.is_secret(&path) => {}
                Kind::Directory if self.is_delicate(&path) => self.carve(&path, rights, false),
                Kind::Directory => self.add(path, rights, Links::Refused),
                Kind::File => self.add(path, rights & right::OF_FILES, Links::Refused),
                Kind::Link => {}
            }
        }
    }

    /// Something in a home: where it really is, unless that is where secrets are.
    fn of_home(&mut self, path: &Path, rights: u64) {
        let Some(path) = fs::canonicalize(path).ok().and_then(|p| p.into_os_string().into_string().ok()) else {
            return;
        };
        if self.is_secret(&path) {
            return;
        }
        match fs::symlink_metadata(&path) {
            Ok(m) if m.is_dir() => self.carve(&path, rights, false),
            Ok(m) if m.is_file() => self.add(path, rights & right::OF_FILES, Links::Refused),
            _ => {}
        }
    }

    /// What every confined task has of the system.
    fn system(&mut self) {
        for place in places::PROGRAM_PLACES.iter().chain(tables::LIBRARIES) {
            match self.is_delicate(place) {
                true => self.carve(place, RUN, false),
                false => self.add(*place, RUN, Links::Followed),
            }
        }
        for place in tables::SYSTEM {
            self.add(*place, LIST, Links::Followed);
        }
        for name in tables::ETC {
            self.add(format!("/etc/{name}"), LIST, Links::Followed);
        }
        for device in tables::SOURCES {
            self.add(*device, right::READ_FILE, Links::Followed);
        }
        self.add("/dev/null", DEVICE, Links::Followed);
    }

    /// What is the task's own.
    fn own(&mut self, temporary: &Path, confinement: Confinement, terminal: Option<&str>) {
        let rights = if confinement == Confinement::ReadOnly { MAKE } else { BUILD };
        self.add(temporary.to_string_lossy(), rights, Links::Refused);
        if let Some(terminal) = terminal {
            self.add(terminal, DEVICE, Links::Followed);
            self.add("/dev/tty", DEVICE, Links::Followed);
        }
        for program in &self.walls.programs {
            // Most are the system's, and given already.
            if !self.has(program, right::EXECUTE) {
                self.of_home(Path::new(program), right::EXECUTE | right::READ_FILE);
            }
        }
    }

    /// The toolchains of the home that PATH leads to, and with them what they need.
    fn toolchains(&mut self, site: &Site<'_>, all_of_path: bool) {
        let home = Path::new(&self.walls.home);
        for entry in variable(site.env, "PATH").unwrap_or_default().split(':').filter(|e| e.starts_with('/')) {
            let entry = places::clean(entry);
            let below = places::below_home(&entry, &self.walls.home).map(|below| format!("/{below}"));
            let chain = below.as_ref().and_then(|below| {
                places::TOOLCHAINS.iter().find(|t| places::inside(below, &format!("/{t}"))).map(|t| (below, *t))
            });
            match chain {
                Some((below, chain)) => {
                    let top = entry.strip_suffix(below.as_str()).map_or(home, Path::new).to_owned();
                    self.of_home(&top.join(chain), RUN);
                    let companions = tables::COMPANIONS.iter().find(|(name, _)| *name == chain);
                    for companion in companions.into_iter().flat_map(|(_, all)| *all) {
                        self.of_home(&top.join(companion), RUN);
                    }
                }
                None if all_of_path => self.of_home(Path::new(&entry), RUN),
                None => {}
            }
        }
    }

    /// Reading, and nothing else.
    fn reading(&mut self, site: &Site<'_>, temporary: &Path, env: &mut BTreeMap<&'static str, String>) {
        for root in &self.walls.roots {
            self.carve(root, LIST, true);
        }
        if self.walls.read_all {
            self.carve("/", LIST, true);
        }
        self.toolchains(site, false);
        let git_dir = self.git_directories(LIST);
        let home = Path::new(&self.walls.home);
        let config_home = match variable(site.env, "XDG_CONFIG_HOME").filter(|p| p.starts_with('/')) {
            Some(path) => PathBuf::from(path),
            None => home.join(".config"),
        };
        let git = gitconfig::sanitise(home, &config_home, git_dir.as_deref());
        for path in git.reads.iter().chain(&git.plain) {
            self.of_home(path, right::READ_FILE);
        }
        let copy = temporary.join("gitconfig");
        let global = match git.text.is_empty() || fs::write(&copy, &git.text).is_err() {
            true => "/dev/null".to_owned(),
            false => copy.to_string_lossy().into_owned(),
        };
        env.insert("GIT_CONFIG_GLOBAL", global);
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
    fn building(&mut self, site: &Site<'_>) {
        for root in &self.walls.roots {
            self.carve(root, BUILD, false);
        }
        self.git_directories(BUILD);
        self.toolchains(site, true);
        for name in tables::ETC_OF_WORKSPACES {
            self.add(format!("/etc/{name}"), LIST, Links::Followed);
        }
        for device in tables::DEVICES {
            self.add(*device, DEVICE | MAKE, Links::Followed);
        }
        let home = Path::new(&self.walls.home).to_owned();
        for setting in tables::SETTINGS {
            self.of_home(&home.join(setting), LIST);
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
            }
        }
    }

    /// Where a root's `.git` is a file: the directory that it names, if that points back, and the repository that this
    /// belongs to. Gives the git directory of the first root.
    fn git_directories(&mut self, rights: u64) -> Option<PathBuf> {
        let mut first = None;
        for root in self.walls.roots.clone() {
            let git = Path::new(&root).join(".git");
            let Ok(meta) = fs::symlink_metadata(&git) else { continue };
            if meta.is_dir() {
                first.get_or_insert(git);
                continue;
            }
            if !meta.is_file() {
                continue;
            }
            for place in linked(Path::new(&root)).into_iter().flatten() {
                let path = place.to_string_lossy().into_owned();
                if !self.is_secret(&path) && !self.is_delicate(&path) {
                    self.add(path, rights, Links::Refused);
                    first.get_or_insert(place);
                }
            }
        }
        first
    }

    /// Has the kernel take them. Places that are not there are nowhere.
    fn enter(&self, ruleset: &OwnedFd) -> Result<(), String> {
        for (path, rights, links) in &self.rules {
            let Ok(fd) = open(path, *links) else { continue };
            let Ok(stat) = rustix::fs::fstat(&fd) else { continue };
            let rights = match stat.st_mode & libc::S_IFMT {
                libc::S_IFDIR => *rights,
                libc::S_IFLNK => continue,
                _ => *rights & right::OF_FILES,
            };
            if rights != 0 {
                confine::allow(ruleset, &fd, rights).map_err(|e| format!("no Landlock rule could be made: {e}"))?;
            }
        }
        Ok(())
    }
}

fn open(path: &str, links: Links) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match links {
        Links::Followed => rustix::fs::open(path, flags, Mode::empty()),
        Links::Refused => {
            openat2(rustix::fs::CWD, path, flags | OFlags::NOFOLLOW, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        }
    }
}

fn variable<'e>(env: &'e [(String, String)], name: &str) -> Option<&'e str> {
    env.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Link,
}

/// What a directory holds. A name that is not text cannot be told from a secret's, and is left out.
fn entries(directory: &str) -> Option<Vec<(String, Kind)>> {
    let entries = fs::read_dir(directory).ok()?;
    let kind = |entry: &fs::DirEntry| match entry.file_type() {
        Ok(t) if t.is_dir() => Kind::Directory,
        Ok(t) if t.is_symlink() => Kind::Link,
        _ => Kind::File,
    };
    Some(entries.flatten().filter_map(|e| Some((e.file_name().into_string().ok()?, kind(&e)))).collect())
}

/// The git directory that a `.git` file names, if it says that it belongs to this work tree, and the repository that it is
/// a part of.
fn linked(root: &Path) -> Option<Vec<PathBuf>> {
    let read = |path: PathBuf| {
        let small = fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() < 64 * 1024);
        fs::read_to_string(path).ok().filter(|_| small)
    };
    let named = read(root.join(".git"))?;
    let git_dir = fs::canonicalize(root.join(named.strip_prefix("gitdir:")?.trim())).ok()?;
    let back = match read(git_dir.join("gitdir")) {
        // A work tree: its directory says where its `.git` is.
        Some(back) => fs::canonicalize(git_dir.join(back.trim())).ok()? == root.join(".git"),
        // A submodule: its configuration says where its work tree is.
        None => {
            let config = read(git_dir.join("config"))?;
            let worktree = gitconfig::worktree(&config)?;
            fs::canonicalize(git_dir.join(worktree)).ok()? == root
        }
    };
    if !back || !is_git_directory(&git_dir) && !git_dir.join("commondir").is_file() {
        return None;
    }
    let mut all = vec![git_dir.clone()];
    // Of a work tree only the repository that it lies in: what it says beyond that anybody could have written.
    if git_dir.join("commondir").is_file()
        && let Some(common) = git_dir.parent().filter(|p| p.ends_with("worktrees")).and_then(Path::parent)
        && is_git_directory(common)
    {
        all.push(common.to_owned());
    }
    Some(all)
}

fn is_git_directory(path: &Path) -> bool {
    path.join("HEAD").is_file() && path.join("objects").is_dir()
}
