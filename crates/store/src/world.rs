//! Looks up facts about the paths and programs that a plan names. It answers queries and judges nothing.

use crate::{clock, proc};
use countersign_model::{Digest, FactQuery, Facts, PathFact, PathTarget, PathTargetKind, glob_matches};
use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
    time::{Duration, Instant},
};

/// Limits for the entries of one directory, and for the matches of one glob.
const MAX_DIRECTORY_ENTRIES: usize = 10_000;
const MAX_GLOB_MATCHES: usize = 1_000;
/// Limits for all look-ups of one request.
const MAX_ENTRIES_PER_REQUEST: usize = 100_000;
const MAX_LOOKUP_TIME: Duration = Duration::from_millis(500);
/// Longer scripts are not bound to their content.
const MAX_SCRIPT_BYTES: u64 = 8 * 1024 * 1024;

/// What a look-up may read.
#[derive(Debug, Clone, Default)]
pub struct LookupLimits {
    /// Only below these directories; none means everywhere.
    pub below: Option<Vec<String>>,
    /// The PATH for bare program names; none means that they are not looked up.
    pub path: Option<String>,
}

impl LookupLimits {
    fn allows(&self, path: &str) -> bool {
        let clean = resolve_lexically(Path::new(path));
        self.below.as_ref().is_none_or(|all| all.iter().any(|b| clean.starts_with(b)))
    }
}

/// Collects the facts that a plan needs.
pub fn look_up_facts(query: &FactQuery, limits: &LookupLimits, facts: &mut Facts) {
    let mut budget = LookupBudget { until: clock::steady() + MAX_LOOKUP_TIME, entries: MAX_ENTRIES_PER_REQUEST };
    for path in &query.paths {
        if limits.allows(path) && !shows_reading_process(path) {
            facts.paths.insert(path.clone(), path_target(path));
        }
    }
    for pattern in &query.patterns {
        if limits.allows(pattern) {
            facts.patterns.insert(pattern.clone(), expand_glob(pattern, &mut budget));
        }
    }
    if let Some(path) = &limits.path {
        for name in &query.programs {
            if let Some(found) = find_program(name, path, &facts.cwd.path) {
                facts.programs.insert(name.clone(), found);
            }
        }
    }
    for script in &query.scripts {
        if limits.allows(script)
            && let Ok(bytes) = crate::read_regular(script, MAX_SCRIPT_BYTES)
        {
            facts.scripts.insert(script.clone(), Digest::sha256(&[&bytes]));
        }
    }
    if limits.below.is_none() {
        for pid in &query.processes {
            if let Some(name) = proc::comm(*pid).ok().and_then(|name| String::from_utf8(name).ok()) {
                facts.processes.insert(*pid, name.trim_end().to_owned());
            }
        }
    }
}

/// The remaining look-ups of one request.
struct LookupBudget {
    until: Instant,
    entries: usize,
}

impl LookupBudget {
    /// Counts one more entry; returns whether it is within the budget.
    fn spend(&mut self) -> bool {
        self.entries = self.entries.saturating_sub(1);
        self.entries > 0 && (!self.entries.is_multiple_of(256) || clock::steady() < self.until)
    }
}

/// Whether a path leads through files that the kernel generates for the reading process (`/proc/self`, `/dev/fd`, …).
/// The task would see other content there, and open files of this process must stay hidden. Such a path is judged by
/// its name alone.
fn shows_reading_process(path: &str) -> bool {
    const NAMES: [&str; 6] = ["/proc/self", "/proc/thread-self", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"];
    let own = format!("/proc/{}", std::process::id());
    let parts = |path: &Path| path.components().rev().map(|c| c.as_os_str().to_owned()).collect::<Vec<_>>();
    let (mut todo, mut at, mut links) = (parts(Path::new(path)), PathBuf::from("/"), 0);
    while let Some(part) = todo.pop() {
        match part.as_encoded_bytes() {
            b"/" => at = PathBuf::from("/"),
            b"." => {}
            b".." => drop(at.pop()),
            _ => {
                at.push(&part);
                if NAMES.iter().any(|name| at == Path::new(name)) || at == Path::new(&own) {
                    return true;
                }
                if let Ok(target) = fs::read_link(&at) {
                    links += 1;
                    if links > 40 {
                        return false;
                    }
                    at.pop();
                    todo.extend(parts(&target));
                }
            }
        }
    }
    false
}

/// A path, where it leads, and the identity of that file; none if it does not exist.
#[must_use]
pub fn path_fact(path: &str) -> Option<PathFact> {
    if shows_reading_process(path) {
        return None;
    }
    let resolved = fs::canonicalize(path).ok()?;
    let meta = fs::metadata(&resolved).ok()?;
    Some(PathFact {
        path: path.to_owned(),
        resolved: resolved.to_string_lossy().into_owned(),
        dev: meta.dev(),
        inode: meta.ino(),
    })
}

/// Finds a program like a shell does: the first executable file of that name on PATH. Empty or relative entries are
/// relative to the working directory.
#[must_use]
pub fn find_program(name: &str, path: &str, cwd: &str) -> Option<String> {
    let executable = |p: &String| fs::metadata(p).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let below = |dir: &str| match dir {
        "" => format!("{cwd}/{name}"),
        dir if dir.starts_with('/') => format!("{dir}/{name}"),
        dir => format!("{cwd}/{dir}/{name}"),
    };
    path.split(':').map(below).find(executable)
}

/// The directory with `.git`, at or above this one.
#[must_use]
pub fn find_repository(directory: &str) -> Option<String> {
    let has_git = |d: &&Path| d.join(".git").symlink_metadata().is_ok();
    Path::new(directory).ancestors().find(has_git).map(|d| d.to_string_lossy().into_owned())
}

fn path_target(path: &str) -> PathTarget {
    let absent = |resolved: PathBuf| PathTarget {
        resolved: resolved.to_string_lossy().into_owned(),
        kind: PathTargetKind::Absent,
        dev: 0,
        inode: 0,
        mount: false,
    };
    let Ok(resolved) = fs::canonicalize(path) else { return absent(resolve_missing(Path::new(path), 0)) };
    let Ok(meta) = fs::metadata(&resolved) else { return absent(resolved) };
    let kind = match meta.file_type() {
        t if t.is_file() => PathTargetKind::File,
        t if t.is_dir() => PathTargetKind::Directory,
        t => {
            debug_assert!(t.is_fifo() || t.is_socket() || t.is_block_device() || t.is_char_device() || t.is_symlink());
            PathTargetKind::Other
        }
    };
    let parent = resolved.parent().and_then(|p| fs::metadata(p).ok());
    let mount = kind == PathTargetKind::Directory && parent.is_none_or(|p| p.dev() != meta.dev());
    PathTarget { resolved: resolved.to_string_lossy().into_owned(), kind, dev: meta.dev(), inode: meta.ino(), mount }
}

/// Where a path leads that does not exist completely: through the links of the existing part, also of a dangling link.
fn resolve_missing(path: &Path, depth: usize) -> PathBuf {
    if depth > 40 {
        return resolve_lexically(path);
    }
    if let Ok(target) = fs::read_link(path) {
        let base = path.parent().unwrap_or(Path::new("/"));
        let base = fs::canonicalize(base).unwrap_or_else(|_| resolve_lexically(base));
        return resolve_missing(&base.join(target), depth + 1);
    }
    let (Some(parent), Some(Component::Normal(name))) = (path.parent(), path.components().next_back()) else {
        return resolve_lexically(path);
    };
    match fs::canonicalize(parent) {
        Ok(parent) => parent.join(name),
        Err(_) => resolve_missing(parent, depth + 1).join(name),
    }
}

/// Resolves `.` and `..` without access to the file system.
fn resolve_lexically(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::Normal(name) => out.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}

/// The resolved matches of a glob; none if there are too many.
fn expand_glob(pattern: &str, budget: &mut LookupBudget) -> Option<Vec<String>> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.split('/').filter(|p| !p.is_empty()) {
        let mut next = Vec::new();
        for directory in &found {
            if !part.contains(['*', '?', '[', '\\']) {
                next.push(directory.join(part));
                continue;
            }
            if directory.to_str().is_none_or(shows_reading_process) {
                return None;
            }
            let Ok(entries) = fs::read_dir(directory) else { continue };
            for (n, entry) in entries.flatten().enumerate() {
                if n >= MAX_DIRECTORY_ENTRIES || !budget.spend() {
                    return None;
                }
                if entry.file_name().to_str().is_some_and(|name| glob_matches(part, name)) {
                    next.push(entry.path());
                }
                if next.len() > MAX_GLOB_MATCHES {
                    return None;
                }
            }
        }
        found = next;
    }
    let mut resolved: Vec<String> =
        found.iter().filter_map(|p| fs::canonicalize(p).ok()).map(|p| p.to_string_lossy().into_owned()).collect();
    resolved.sort_unstable();
    Some(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_are_followed_through_links_as_far_as_they_exist() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
        fs::create_dir(at("src")).unwrap();
        fs::write(at("src/a.rs"), "x").unwrap();
        symlink("/etc", at("link")).unwrap();
        symlink("nowhere/at/all", at("dangling")).unwrap();
        symlink("loop", at("loop")).unwrap();
        for (path, resolved, kind) in [
            (at("src/a.rs"), at("src/a.rs"), PathTargetKind::File),
            (at("src/../src"), at("src"), PathTargetKind::Directory),
            (at("link/hosts"), "/etc/hosts".to_owned(), PathTargetKind::File),
            (at("link/no-such-file"), "/etc/no-such-file".to_owned(), PathTargetKind::Absent),
            // The kernel follows the link before it goes up.
            (at("link/../no-such-dir/x"), "/no-such-dir/x".to_owned(), PathTargetKind::Absent),
            (at("dangling"), at("nowhere/at/all"), PathTargetKind::Absent),
            (at("new/file"), at("new/file"), PathTargetKind::Absent),
        ] {
            let found = path_target(&path);
            assert_eq!((found.resolved, found.kind), (resolved, kind), "{path}");
        }
        assert_eq!(path_target(&at("loop")).kind, PathTargetKind::Absent);
        assert!(path_target("/proc").mount && !path_target(&at("src")).mount);
    }

    #[test]
    fn globs_are_expanded_like_in_a_shell() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        for name in ["a.rs", "b.rs", ".hidden.rs"] {
            fs::write(root.join(name), "").unwrap();
        }
        symlink("/etc/hosts", root.join("c.rs")).unwrap();
        let mut budget = LookupBudget { until: clock::steady() + MAX_LOOKUP_TIME, entries: MAX_ENTRIES_PER_REQUEST };
        let found = expand_glob(&format!("{}/*.rs", root.display()), &mut budget).unwrap();
        budget.entries = 3;
        assert_eq!(expand_glob(&format!("{}/*.rs", root.display()), &mut budget), None, "there is an end to looking");
        assert_eq!(
            found,
            ["/etc/hosts".to_owned(), format!("{}/a.rs", root.display()), format!("{}/b.rs", root.display())]
        );
    }

    #[test]
    fn paths_of_the_reading_process_are_not_looked_up() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        symlink("/proc/self/fd", root.join("fds")).unwrap();
        symlink("fds/../maps", root.join("maps")).unwrap();
        let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let own = format!("/proc/{}/maps", std::process::id());
        for path in ["/proc/self/maps", "/dev/fd/0", "/dev/../proc//self/./fd/3/x", &own, &at("fds/3"), &at("maps")] {
            assert!(shows_reading_process(path), "{path}");
            assert!(path_fact(path).is_none() && crate::read_regular(path, 1 << 20).is_err(), "{path}");
        }
        assert!(!shows_reading_process("/proc/1/maps") && !shows_reading_process(&at("x")));
    }

    #[test]
    fn paths_outside_the_limits_are_not_looked_up() {
        let query =
            FactQuery { paths: vec!["/etc/hosts".to_owned(), "/work/../etc/hosts".to_owned()], ..FactQuery::default() };
        let mut facts = Facts::none("/work");
        look_up_facts(&query, &LookupLimits { below: Some(vec!["/work".to_owned()]), path: None }, &mut facts);
        assert!(facts.paths.is_empty());
    }
}
