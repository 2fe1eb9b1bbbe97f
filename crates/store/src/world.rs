//! Looking: what is at the paths that a plan names, and where its programs lead. Answers questions, judges nothing.

use crate::{clock, proc};
use countersign_model::{Digest, FactQuery, Facts, PathFact, PathTarget, PathTargetKind, glob_matches};
use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
    time::{Duration, Instant},
};

/// More files in one directory, or more matches, than it is worth to look at.
const MOST_ENTRIES: usize = 10_000;
const MOST_MATCHES: usize = 1_000;
/// And for all of one request.
const MOST_LOOKED_AT: usize = 100_000;
const LONGEST_LOOK: Duration = Duration::from_millis(500);
/// Scripts longer than this are not bound to their content.
const LONGEST_SCRIPT: u64 = 8 * 1024 * 1024;

/// How far one may look.
#[derive(Debug, Clone, Default)]
pub struct LookupLimits {
    /// Only below these; none is everywhere.
    pub below: Option<Vec<String>>,
    /// Where bare program names are looked for; none: not at all.
    pub path: Option<String>,
}

impl LookupLimits {
    fn sees(&self, path: &str) -> bool {
        let clean = lexical(Path::new(path));
        self.below.as_ref().is_none_or(|all| all.iter().any(|b| clean.starts_with(b)))
    }
}

/// Answers what a plan needs to know.
pub fn look_up_facts(needs: &FactQuery, sight: &LookupLimits, facts: &mut Facts) {
    let mut patience = LookupBudget { until: clock::steady() + LONGEST_LOOK, entries: MOST_LOOKED_AT };
    for path in &needs.paths {
        if sight.sees(path) && !is_of_the_looker(path) {
            facts.paths.insert(path.clone(), find(path));
        }
    }
    for pattern in &needs.patterns {
        if sight.sees(pattern) {
            facts.patterns.insert(pattern.clone(), matches(pattern, &mut patience));
        }
    }
    if let Some(path) = &sight.path {
        for name in &needs.programs {
            if let Some(found) = program(name, path, &facts.cwd.path) {
                facts.programs.insert(name.clone(), found);
            }
        }
    }
    for script in &needs.scripts {
        if sight.sees(script)
            && let Ok(bytes) = crate::read_regular(script, LONGEST_SCRIPT)
        {
            facts.scripts.insert(script.clone(), Digest::sha256(&[&bytes]));
        }
    }
    if sight.below.is_none() {
        for pid in &needs.processes {
            if let Some(name) = proc::comm(*pid).ok().and_then(|name| String::from_utf8(name).ok()) {
                facts.processes.insert(*pid, name.trim_end().to_owned());
            }
        }
    }
}

/// What is left to look at for one request.
struct LookupBudget {
    until: Instant,
    entries: usize,
}

impl LookupBudget {
    /// One more entry; whether there may be one.
    fn spend(&mut self) -> bool {
        self.entries = self.entries.saturating_sub(1);
        self.entries > 0 && (!self.entries.is_multiple_of(256) || clock::steady() < self.until)
    }
}

/// Whether a path leads through what the kernel shows of the process that looks (`/proc/self`, `/dev/fd`, …). To the one who
/// would run it that is something else, and what this process has open is not theirs to see. Such a path is judged by
/// its name alone.
fn is_of_the_looker(path: &str) -> bool {
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

/// A path, where it leads, and which file that is; none when there is nothing.
#[must_use]
pub fn path_fact(path: &str) -> Option<PathFact> {
    if is_of_the_looker(path) {
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

/// As a shell finds it: the first file of that name on PATH that can be executed. An entry that is empty or relative is
/// below where it runs.
#[must_use]
pub fn program(name: &str, path: &str, cwd: &str) -> Option<String> {
    let executable = |p: &String| fs::metadata(p).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let below = |dir: &str| match dir {
        "" => format!("{cwd}/{name}"),
        dir if dir.starts_with('/') => format!("{dir}/{name}"),
        dir => format!("{cwd}/{dir}/{name}"),
    };
    path.split(':').map(below).find(executable)
}

/// The directory that holds `.git`, at or above this one.
#[must_use]
pub fn repository(directory: &str) -> Option<String> {
    let holds = |d: &&Path| d.join(".git").symlink_metadata().is_ok();
    Path::new(directory).ancestors().find(holds).map(|d| d.to_string_lossy().into_owned())
}

fn find(path: &str) -> PathTarget {
    let absent = |resolved: PathBuf| PathTarget {
        resolved: resolved.to_string_lossy().into_owned(),
        kind: PathTargetKind::Absent,
        dev: 0,
        inode: 0,
        mount: false,
    };
    let Ok(resolved) = fs::canonicalize(path) else { return absent(leads(Path::new(path), 0)) };
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

/// Where a path leads that does not exist in full: through the links of what does, also of a link to nothing.
fn leads(path: &Path, depth: usize) -> PathBuf {
    if depth > 40 {
        return lexical(path);
    }
    if let Ok(target) = fs::read_link(path) {
        let base = path.parent().unwrap_or(Path::new("/"));
        let base = fs::canonicalize(base).unwrap_or_else(|_| lexical(base));
        return leads(&base.join(target), depth + 1);
    }
    let (Some(parent), Some(Component::Normal(name))) = (path.parent(), path.components().next_back()) else {
        return lexical(path);
    };
    match fs::canonicalize(parent) {
        Ok(parent) => parent.join(name),
        Err(_) => leads(parent, depth + 1).join(name),
    }
}

/// `.` and `..` resolved without looking.
fn lexical(path: &Path) -> PathBuf {
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

/// What a glob matches, resolved; none when there is too much to look at.
fn matches(pattern: &str, patience: &mut LookupBudget) -> Option<Vec<String>> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.split('/').filter(|p| !p.is_empty()) {
        let mut next = Vec::new();
        for directory in &found {
            if !part.contains(['*', '?', '[', '\\']) {
                next.push(directory.join(part));
                continue;
            }
            if directory.to_str().is_none_or(is_of_the_looker) {
                return None;
            }
            let Ok(entries) = fs::read_dir(directory) else { continue };
            for (n, entry) in entries.flatten().enumerate() {
                if n >= MOST_ENTRIES || !patience.spend() {
                    return None;
                }
                if entry.file_name().to_str().is_some_and(|name| glob_matches(part, name)) {
                    next.push(entry.path());
                }
                if next.len() > MOST_MATCHES {
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
            // The kernel goes through the link before it goes up.
            (at("link/../no-such-dir/x"), "/no-such-dir/x".to_owned(), PathTargetKind::Absent),
            (at("dangling"), at("nowhere/at/all"), PathTargetKind::Absent),
            (at("new/file"), at("new/file"), PathTargetKind::Absent),
        ] {
            let found = find(&path);
            assert_eq!((found.resolved, found.kind), (resolved, kind), "{path}");
        }
        assert_eq!(find(&at("loop")).kind, PathTargetKind::Absent);
        assert!(find("/proc").mount && !find(&at("src")).mount);
    }

    #[test]
    fn globs_are_expanded_as_the_shell_expands_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        for name in ["a.rs", "b.rs", ".hidden.rs"] {
            fs::write(root.join(name), "").unwrap();
        }
        symlink("/etc/hosts", root.join("c.rs")).unwrap();
        let mut patience = LookupBudget { until: clock::steady() + LONGEST_LOOK, entries: MOST_LOOKED_AT };
        let found = matches(&format!("{}/*.rs", root.display()), &mut patience).unwrap();
        patience.entries = 3;
        assert_eq!(matches(&format!("{}/*.rs", root.display()), &mut patience), None, "there is an end to looking");
        assert_eq!(
            found,
            ["/etc/hosts".to_owned(), format!("{}/a.rs", root.display()), format!("{}/b.rs", root.display())]
        );
    }

    #[test]
    fn what_is_shown_of_whoever_looks_is_not_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        symlink("/proc/self/fd", root.join("fds")).unwrap();
        symlink("fds/../maps", root.join("maps")).unwrap();
        let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let own = format!("/proc/{}/maps", std::process::id());
        for path in ["/proc/self/maps", "/dev/fd/0", "/dev/../proc//self/./fd/3/x", &own, &at("fds/3"), &at("maps")] {
            assert!(is_of_the_looker(path), "{path}");
            assert!(path_fact(path).is_none() && crate::read_regular(path, 1 << 20).is_err(), "{path}");
        }
        assert!(!is_of_the_looker("/proc/1/maps") && !is_of_the_looker(&at("x")));
    }

    #[test]
    fn what_may_not_be_seen_is_not_looked_at() {
        let needs =
            FactQuery { paths: vec!["/etc/hosts".to_owned(), "/work/../etc/hosts".to_owned()], ..FactQuery::default() };
        let mut facts = Facts::none("/work");
        look_up_facts(&needs, &LookupLimits { below: Some(vec!["/work".to_owned()]), path: None }, &mut facts);
        assert!(facts.paths.is_empty());
    }
}
