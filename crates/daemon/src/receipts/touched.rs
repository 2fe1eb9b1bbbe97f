//! Finds the files that a task seems to have changed: scans the roots afterwards, within limits, by file times.
//!
//! It does not use git, which runs programs that the repository's configuration names. A removed file cannot be seen;
//! only the change of its directory can, and then the list does not claim to be complete.

use countersign_model::{Digest, FileChange, TaskUser, Timestamp, file_digest};
use countersign_shim::with_user_ids;
use countersign_store::{clock, read_regular};
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::mpsc,
    time::{Duration, Instant},
};

/// How long the scan of one root may take, and how many entries it reads.
const ROOT_SCAN_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_SCANNED_ENTRIES: usize = 50_000;
/// How long the daemon waits for a scan: a hanging file system must not delay it.
const SCAN_TIMEOUT: Duration = Duration::from_secs(2);
/// The kernel stamps files with the time of its last tick, in microseconds.
const TICK_MICROS: i64 = 10_000;
/// How many files are listed, how many of them are digested, and up to which size.
const MAX_LISTED_FILES: usize = 100;
const MAX_DIGESTED_FILES: usize = 32;
const MAX_DIGESTED_BYTES: u64 = 64 * 1024;

/// The changes in a root since a time.
#[derive(Debug, Default)]
struct RootScan {
    files: Vec<ChangedFile>,
    /// How many directories gained or lost an entry.
    directories: usize,
    complete: bool,
}

#[derive(Debug)]
struct ChangedFile {
    path: PathBuf,
    /// Microseconds. Not every file system records the birth.
    changed: i64,
    born: Option<i64>,
}

/// When a task ran.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunWindow {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl RunWindow {
    fn contains(self, micros: i64) -> bool {
        micros >= self.from.micros() - TICK_MICROS && micros <= self.to.micros() + TICK_MICROS
    }
}

/// The changes that were found for one task.
#[derive(Debug, Default)]
pub(crate) struct TouchedByTask {
    pub(crate) files: Vec<TouchedPath>,
    pub(crate) more: u64,
    pub(crate) complete: bool,
}

/// A file with its raw name: the caller must redact it.
#[derive(Debug)]
pub(crate) struct TouchedPath {
    pub(crate) path: PathBuf,
    pub(crate) change: FileChange,
    pub(crate) escape: bool,
    pub(crate) after: Option<Digest>,
}

/// The scans of one round, shared by its tasks: each root is scanned once.
pub(crate) struct RootScans {
    since: i64,
    skip: Vec<PathBuf>,
    key: Digest,
    /// By user and root.
    scans: BTreeMap<(Option<u32>, PathBuf), RootScan>,
    total_time: Duration,
}

impl RootScans {
    /// For tasks that ran since then. Nothing below `skip` counts.
    pub(crate) fn since(since: Timestamp, skip: Vec<PathBuf>, key: Digest) -> Self {
        Self { since: since.micros() - TICK_MICROS, skip, key, scans: BTreeMap::new(), total_time: Duration::ZERO }
    }

    /// How long all scans took.
    pub(crate) fn total_time(&self) -> Duration {
        self.total_time
    }

    /// The changes in these roots, as this user sees them; none is the daemon's own user.
    pub(crate) fn scan_roots(
        &mut self,
        roots: &[PathBuf],
        window: RunWindow,
        user: Option<&TaskUser>,
    ) -> TouchedByTask {
        let at = |root: &PathBuf| (user.map(|l| l.uid), root.clone());
        let mut touched = TouchedByTask { complete: true, ..TouchedByTask::default() };
        let mut found: Vec<(bool, &ChangedFile)> = Vec::new();
        let outermost = |root: &&PathBuf| !roots.iter().any(|r| r != *root && root.starts_with(r));
        for root in roots.iter().filter(outermost) {
            if !self.scans.contains_key(&at(root)) {
                let began = clock::steady();
                let seen = scan_root(root.clone(), self.since, self.skip.clone(), user.cloned());
                self.total_time += clock::steady().duration_since(began);
                self.scans.insert(at(root), seen);
            }
        }
        for root in roots.iter().filter(outermost) {
            let Some(seen) = self.scans.get(&at(root)) else { continue };
            touched.complete &= seen.complete;
            for file in &seen.files {
                if window.contains(file.changed) {
                    found.push((countersign_shim::is_escape(&file.path), file));
                } else {
                    // Changed after the task, by another process: the task may have changed it before.
                    touched.complete &= file.changed < window.from.micros();
                }
            }
            // Where entries appeared or vanished, a file may have been removed.
            touched.complete &= seen.directories == 0;
        }
        found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.path.cmp(&b.1.path)));
        touched.more = found.len().saturating_sub(MAX_LISTED_FILES) as u64;
        touched.complete &= touched.more == 0;
        for (n, (escape, file)) in found.into_iter().take(MAX_LISTED_FILES).enumerate() {
            let born = file.born.is_some_and(|b| window.contains(b));
            let change = if born { FileChange::Created } else { FileChange::Modified };
            let after = (n < MAX_DIGESTED_FILES).then(|| self.digest(&file.path, user)).flatten();
            touched.files.push(TouchedPath { path: file.path.clone(), change, escape, after });
        }
        touched
    }

    fn digest(&self, path: &Path, user: Option<&TaskUser>) -> Option<Digest> {
        let read = || {
            // Not the target of a link.
            let plain = fs::symlink_metadata(path).ok()?.is_file();
            read_regular(path.to_str().filter(|_| plain)?, MAX_DIGESTED_BYTES).ok()
        };
        Some(file_digest(self.key, &with_user_ids(user, read).ok()??))
    }
}

/// Scans one root on a thread of its own, which is abandoned if it does not return in time.
fn scan_root(root: PathBuf, since: i64, skip: Vec<PathBuf>, user: Option<TaskUser>) -> RootScan {
    let (send, receive) = mpsc::channel();
    let walking = std::thread::Builder::new().name("scan".into()).spawn(move || {
        let seen = with_user_ids(user.as_ref(), || walk_root(&root, since, &skip));
        let _ = send.send(seen.unwrap_or_default());
    });
    match walking {
        Ok(_) => receive.recv_timeout(SCAN_TIMEOUT).unwrap_or_default(),
        Err(_) => RootScan::default(),
    }
}

fn walk_root(root: &Path, since: i64, skip: &[PathBuf]) -> RootScan {
    let until: Instant = clock::steady() + ROOT_SCAN_TIMEOUT;
    let mut seen = RootScan { complete: true, ..RootScan::default() };
    let Some(device) = stat(root).map(|s| (s.stx_dev_major, s.stx_dev_minor)) else {
        return RootScan::default();
    };
    let (mut todo, mut prepared) = (vec![root.to_owned()], 0);
    while let Some(dir) = todo.pop() {
        seen.directories += usize::from(stat(&dir).is_none_or(|s| micros(&s.stx_mtime) >= since));
        // Other processes may change a directory that the daemon cannot list.
        let Ok(entries) = fs::read_dir(&dir) else {
            seen.complete = false;
            continue;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                seen.complete = false;
                continue;
            };
            prepared += 1;
            if prepared > MAX_SCANNED_ENTRIES || clock::steady() > until {
                seen.complete = false;
                return seen;
            }
            let path = entry.path();
            if skip.contains(&path) {
                continue;
            }
            let (Ok(kind), Some(s)) = (entry.file_type(), stat(&path)) else {
                seen.complete = false;
                continue;
            };
            if kind.is_dir() {
                // The daemon's own copies, and git objects, which are named by their digest.
                let ours = entry.file_name() == ".runs" && dir == root;
                let objects = entry.file_name() == "objects" && dir.ends_with(".git");
                if (s.stx_dev_major, s.stx_dev_minor) != device {
                    // Another file system may hang or be endless.
                    seen.complete = false;
                } else if !ours && !objects {
                    todo.push(path);
                }
            } else if micros(&s.stx_ctime) >= since {
                let born = (s.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| micros(&s.stx_btime));
                seen.files.push(ChangedFile { changed: micros(&s.stx_ctime), born, path });
            }
        }
    }
    seen
}

fn stat(path: &Path) -> Option<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, wanted).ok()
}

fn micros(at: &rustix::fs::StatxTimestamp) -> i64 {
    at.tv_sec.saturating_mul(1_000_000).saturating_add(i64::from(at.tv_nsec / 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(root: &Path, from: Timestamp) -> TouchedByTask {
        let key = Digest::sha256(&[b"k"]);
        let mut scans = RootScans::since(from, vec![root.join("daemon")], key);
        scans.scan_roots(&[root.to_owned(), root.join("sub")], RunWindow { from, to: clock::now() }, None)
    }

    /// A time before every later change: the kernel's clock has ticked.
    fn after_a_tick(dir: &Path) -> Timestamp {
        let probe = dir.join("probe");
        let now = clock::now();
        loop {
            fs::write(&probe, "x").unwrap();
            let at = stat(&probe).map(|s| micros(&s.stx_ctime)).unwrap();
            if at > now.micros() + TICK_MICROS {
                return Timestamp::from_micros(at + TICK_MICROS);
            }
        }
    }

    #[test]
    fn changes_in_the_window_are_listed_with_escape_files_first() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for place in ["sub", ".git/hooks", ".git/objects", "daemon", ".runs"] {
            fs::create_dir_all(root.join(place)).unwrap();
        }
        for name in ["old.txt", "changed.txt"] {
            fs::write(root.join(name), "a").unwrap();
        }
        let from = after_a_tick(dir.path());
        let clock_passed = || stat(&root.join("probe")).is_some();
        assert!(clock_passed());
        while clock::now() < from {
            std::thread::yield_now();
        }
        fs::write(root.join("changed.txt"), "b").unwrap();
        fs::write(root.join("sub/new.txt"), "b").unwrap();
        fs::write(root.join(".git/hooks/pre-commit"), "b").unwrap();
        fs::write(root.join(".git/objects/x"), "b").unwrap();
        fs::write(root.join("daemon/x"), "b").unwrap();
        fs::write(root.join(".runs/x"), "b").unwrap();
        let touched = scan(root, from);
        let found: Vec<(String, FileChange, bool)> = touched
            .files
            .iter()
            .map(|f| {
                (f.path.to_str().unwrap().trim_start_matches(root.to_str().unwrap()).to_owned(), f.change, f.escape)
            })
            .filter(|(path, ..)| path != "/probe")
            .collect();
        let expect = [
            ("/.git/hooks/pre-commit".to_owned(), FileChange::Created, true),
            ("/changed.txt".to_owned(), FileChange::Modified, false),
            ("/sub/new.txt".to_owned(), FileChange::Created, false),
        ];
        assert_eq!(found, expect);
        assert!(!touched.complete, "a removed file cannot be seen: {touched:?}");
        let new = touched.files.iter().find(|f| f.path.ends_with("new.txt")).unwrap();
        assert_eq!(new.after, Some(file_digest(Digest::sha256(&[b"k"]), b"b")));
    }

    #[test]
    fn a_removed_file_leaves_the_list_incomplete() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join("sub/gone.txt"), "a").unwrap();
        let from = after_a_tick(dir.path());
        while clock::now() < from {
            std::thread::yield_now();
        }
        fs::remove_file(root.join("sub/gone.txt")).unwrap();
        let touched = scan(&root, from);
        assert!(!touched.complete && touched.files.is_empty(), "{touched:?}");
    }

    #[test]
    fn modified_files_leave_the_list_complete() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("sub/.runs")).unwrap();
        fs::write(root.join("sub/a.txt"), "a").unwrap();
        fs::write(root.join("sub/.runs/hook"), "a").unwrap();
        let from = after_a_tick(dir.path());
        while clock::now() < from {
            std::thread::yield_now();
        }
        fs::write(root.join("sub/a.txt"), "b").unwrap();
        fs::write(root.join("sub/.runs/hook"), "b").unwrap();
        let touched = scan(&root, from);
        assert!(touched.complete && touched.files.len() == 2, "{touched:?}");
    }

    #[test]
    fn a_missing_root_leaves_the_list_incomplete() {
        let touched = scan(Path::new("/nonexistent/root"), clock::now());
        assert!(!touched.complete);
    }
}
