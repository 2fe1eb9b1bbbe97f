//! The descriptor limit: the daemon raises its own to the maximum, and tasks get the limit that the daemon was started
//! with.

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use std::{process::Child, sync::OnceLock};

/// The limit that this process was started with, if it has been raised since.
static ORIGINAL_LIMIT: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit to the maximum. The daemon holds descriptors for every connection and every task.
pub fn raise_limit() {
    let original = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: original.maximum, ..original };
    if original.current != original.maximum && setrlimit(Resource::Nofile, raised).is_ok() {
        let _ = ORIGINAL_LIMIT.set(original);
    }
}

/// Sets a child's limit to the original one: some programs close every possible number, and others cannot handle
/// numbers above 1,024.
pub(crate) fn restore_limit(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Some(original), Some(pid)) = (ORIGINAL_LIMIT.get(), pid) {
        let _ = prlimit(Some(pid), Resource::Nofile, *original);
    }
}
